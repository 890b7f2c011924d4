// Functions of C that compilers inline, unroll, split, clone, fold and leave by jumps. Each prints
// how often it was called.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))
volatile int sink;
long n_step, n_triple, n_square, n_split, n_even, n_odd, n_fact, n_clone, n_through, n_lib, n_choose, n_line, n_cold,
    n_pointer, n_deep, n_mid, n_waits;

// In a loop that is unrolled.
//: step = n_step
static inline int step(int a) {
  n_step++; // at n_step
  sink = a;
  return a + sink;
}
NOINLINE int unrolled(int k) {
  int sum = 0;
  for (int i = 0; i < 4; i++)
    sum += step(i + k);
  return sum;
}
NOINLINE int rolled(int n) {
  int sum = 0;
#ifdef __clang__
#pragma clang loop unroll_count(4)
#else
#pragma GCC unroll 4
#endif
  for (int i = 0; i < n; i++)
    sum += step(i);
  return sum;
}

// With branches, in a loop that is unrolled.
//: triple = n_triple
static inline int triple(int a) {
  n_triple++;
  if (a & 1)
    sink = a;
  else
    a += sink;
  return a;
}
NOINLINE int branches(int n) {
  int sum = 0;
#ifdef __clang__
#pragma clang loop unroll_count(2)
#else
#pragma GCC unroll 2
#endif
  for (int i = 0; i < n; i++)
    sum += triple(i);
  return sum + triple(n);
}

// In a loop that is vectorised.
//: square = n_square
static inline int square(int a) {
  n_square++;
  return a * a + 3;
}
int numbers[1000];
NOINLINE int vectorised(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++)
    sum += square(numbers[i]);
  return sum;
}

//: split = n_split
static int split(int n) {
  n_split++;
  if (n < 5)
    return n;
  int sum = 0;
  for (int i = 0; i < n; i++) {
    sum += sink * i;
    sink = sum;
    sum ^= n;
    fprintf(stderr, "%s", sum == 1 ? "." : "");
  }
  for (int i = 0; i < n; i++) {
    sum += sink * i;
    sink = sum;
    fprintf(stderr, "%s", sum == 2 ? "." : "");
  }
  return sum;
}
NOINLINE int split_one(int n) { return split(n) + 1; }
NOINLINE int split_two(int n) { return split(n) + 2; }

// Mutual recursion and tail recursion.
//: is_even = n_even
//: is_odd = n_odd
//: waits = n_waits
int is_odd(int n);
// Begins with a loop.
NOINLINE int waits(volatile int *left) {
  while (--*left > 0)
    ;
  return 1;
}
NOINLINE int is_even(int n) {
  n_even++;
  return n == 0 ? 1 : is_odd(n - 1);
}
NOINLINE int is_odd(int n) {
  n_odd++;
  return n == 0 ? 0 : is_even(n - 1);
}
//: fact = n_fact, recursion
NOINLINE int fact(int n) {
  n_fact++; // at n_fact
  return n <= 1 ? 1 : n * fact(n - 1);
}

// A clone for constants.
//: clone = n_clone
NOINLINE static int clone(int a, int b, int unused) {
  n_clone++;
  sink = b;
  return a * b;
}

// Leaves through a pointer.
//: through = n_through
NOINLINE int through(int (*f)(int), int n) {
  n_through++;
  return f(n);
}
//: pointer = n_pointer
NOINLINE int pointer(int n) {
  n_pointer++;
  return n + 2;
}
// Leaves through the linkage table.
//: lib = n_lib
NOINLINE int lib(const char *text) {
  n_lib++;
  return atoi(text);
}

//: choose = n_choose
NOINLINE int choose(int n) {
  n_choose++;
  switch (n) {
  case 0: return sink;
  case 1: return sink * 3;
  case 2: return pointer(n);
  case 3: sink = 4; return 5;
  case 4: sink = n; return 9;
  case 5: return rand() & 1;
  default: return 11;
  }
}

//: cold = n_cold
NOINLINE int cold(int n) {
  n_cold++; // at n_cold
  if (__builtin_expect(n == 3, 0)) {
    fprintf(stderr, "%s", n == 4 ? "." : "");
    if (n == 7)
      abort();
  }
  return sink;
}

// Several levels of inlining.
//: deep = n_deep
//: mid = n_mid
static inline int deep(int n) {
  n_deep++;
  sink = n;
  return sink;
}
static inline int mid(int n) {
  n_mid++;
  return deep(n) + deep(n + 1);
}
NOINLINE int levels(int n) { return mid(n) + mid(n + 2) + deep(n); }

// Lines in a loop.
NOINLINE int lines(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    n_line++; // at n_line
    sum += sink;
  }
  return sum;
}

int main(int argc, char **argv) {
  int sum = 0;
  for (int i = 0; i < 1000; i++)
    numbers[i] = sink + i;
  for (int i = 0; i < 7; i++) {
    volatile int left = i;
    n_waits++;
    sum += waits(&left);
    sum += unrolled(i) + rolled(i * 3) + branches(i) + split_one(i) + split_two(i + 2) + is_even(i) + fact(i + 1);
    sum += clone(i, 4, 2) + clone(3, 4, i) + through(i & 1 ? pointer : abs, i) + lib("12") + choose(i) + cold(i) + levels(i) +
           lines(i) + vectorised(i * 37);
  }
  fprintf(stderr, "%s", sum == 1 ? "." : "");
#define SHOW(x) printf(#x " %ld\n", x)
  SHOW(n_step), SHOW(n_triple), SHOW(n_square), SHOW(n_split), SHOW(n_even), SHOW(n_odd), SHOW(n_fact), SHOW(n_clone);
  SHOW(n_through), SHOW(n_lib), SHOW(n_choose), SHOW(n_line), SHOW(n_cold), SHOW(n_pointer), SHOW(n_deep), SHOW(n_mid), SHOW(n_waits);
}
