// Functions, methods, closures, goroutines and deferred functions of Go.
package main

import "fmt"

var nAdd, nMethod, nClosure, nDefer, nRec, nGeneric, nSmall int
var sink int

//: main.add = nAdd
//go:noinline
func add(a, b int) int {
	nAdd++ // at nAdd
	return a + b
}

// Inlined.
//: main.small = nSmall
func small(a int) int {
	nSmall++
	sink = a
	return a + sink
}

type point struct{ x int }

//: main.(*point).method = nMethod
//go:noinline
func (p *point) method(n int) int {
	nMethod++
	return p.x + n
}

//: main.closes.func1 = nClosure
//go:noinline
func closes(k int) int {
	f := func(x int) int {
		nClosure++
		return x * k
	}
	return each(f, k)
}

//go:noinline
func each(f func(int) int, n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += f(i)
	}
	return sum
}

//: main.rec = nRec
//go:noinline
func rec(n int) int {
	nRec++
	var pad [256]int
	pad[n&255] = n
	if n == 0 {
		return pad[0]
	}
	return rec(n-1) + pad[n&255]
}

//: main.deferred.func1 = nDefer
//go:noinline
func deferred(n int) (r int) {
	defer func() {
		nDefer++
		if recover() != nil {
			r = -1
		}
	}()
	if n%2 == 1 {
		panic("odd")
	}
	return n
}

func main() {
	sum := 0
	for i := 0; i < 11; i++ {
		p := &point{i}
		sum += add(i, 3) + p.method(i) + closes(i) + deferred(i)
		sum += small(i)
		sum += add(sum, i)
		sum += small(i + 1)
		done := make(chan int)
		go func() { done <- rec(i * 5) }()
		sum += <-done
	}
	sink = sum
	fmt.Println("nAdd", nAdd)
	fmt.Println("nMethod", nMethod)
	fmt.Println("nClosure", nClosure)
	fmt.Println("nDefer", nDefer)
	fmt.Println("nRec", nRec)
	fmt.Println("nSmall", nSmall)
}
