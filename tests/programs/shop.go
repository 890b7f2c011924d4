// A program in Go: a function and a method with parameters in registers.
package main

import "os"

type Shop struct{ sum, n int }

//go:noinline
func (s *Shop) Sell(item int, price uint8, name string) int {
	s.sum += item * int(price)
	s.n += len(name)
	return s.sum
}

//go:noinline
func add(a, b int) int { return a + b }

func main() {
	s := &Shop{n: 5}
	for i := 0; i < 3; i++ {
		s.Sell(i, 7, "thing")
	}
	if add(len(os.Args), 40) == 0 {
		os.Exit(1)
	}
}
