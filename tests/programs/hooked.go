// Calls a function a known number of times from goroutines, at a word from its standard input; see hooked.c.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

//go:noinline
func plain(a, b int) int {
	return a*3 + b
}

func main() {
	threads, _ := strconv.Atoi(os.Args[1])
	calls, _ := strconv.Atoi(os.Args[2])
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready", os.Getpid())
	input.ReadString('\n')
	var all sync.WaitGroup
	sums := make([]int, threads)
	for i := 0; i < threads; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < calls; n++ {
				sums[i] += plain(n, i)
				if n%1000 == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	go func() {
		for {
			runtime.GC()
		}
	}()
	all.Wait()
	sum := 0
	for _, s := range sums {
		sum += s
	}
	fmt.Println("sum", sum)
	fmt.Println("signals 0")
	input.ReadString('\n')
	os.Exit(7)
}
