// Goroutines that change threads, and whose stacks grow, before their functions return. Prints how often
// `main.outer` returned, the sum of its results, and how often `main.grow` returned.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

var returned, sum, grown atomic.Int64

//go:noinline
func grow(n int) int {
	grown.Add(1)
	var room [64]int
	for i := range room {
		room[i] = n + i
	}
	if n > 0 {
		room[n%64] += grow(n - 1)
	}
	runtime.Gosched()
	return room[n%64]
}

//go:noinline
func outer(id, n int) int {
	value := grow(n)
	runtime.Gosched()
	return value + id
}

//go:noinline
func recovers(n int) (value int) {
	defer func() {
		if recover() != nil {
			value = -1
		}
	}()
	if n%2 == 0 {
		panic("even")
	}
	return n
}

func main() {
	var wait sync.WaitGroup
	for g := 0; g < 20; g++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 20; i++ {
				sum.Add(int64(outer(i, 10*i)))
				returned.Add(1)
				recovers(i)
			}
			runtime.GC()
		}()
	}
	wait.Wait()
	fmt.Println("outer", returned.Load(), sum.Load(), "grow", grown.Load())
}
