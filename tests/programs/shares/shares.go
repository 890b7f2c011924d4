// As shares.c.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func now() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

//go:noinline
func heavy(n int) int {
	s := 1
	for i := 0; i < n; i++ {
		s = (s*31 + i) % 1000003
	}
	return s
}

//go:noinline
func light(n int) int {
	s := 2
	for i := 0; i < n; i++ {
		s = (s*17 + i) % 1000033
	}
	return s
}

func main() {
	end, _ := strconv.ParseFloat(os.Args[1], 64)
	var spent [2]float64
	sink := 0
	for a := now(); a < end; {
		sink += heavy(300000)
		b := now()
		spent[0] += b - a
		sink += light(100000)
		a = now()
		spent[1] += a - b
	}
	fmt.Println(spent[0] / (spent[0] + spent[1]))
	if sink == 1 {
		fmt.Println(sink)
	}
}
