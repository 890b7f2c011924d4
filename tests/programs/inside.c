// Functions inside functions (GNU C), called directly, through a pointer, and inlined.
#include <stdio.h>

volatile int sink;

__attribute__((noinline)) static int each(int (*f)(int), int n) {
  int sum = 0;
  for (int i = 0; i < n; i++)
    sum += f(i);
  return sum;
}

__attribute__((noinline)) int outer(int base, int n) {
  int extra = base * 2;
  __attribute__((noinline)) int inner(int x) {
    sink = x;
    return x + base + extra;
  }
  inline __attribute__((always_inline)) int copied(int y) {
    sink = y;
    return y - extra;
  }
  return each(inner, n) + inner(100) + copied(base);
}

__attribute__((noinline)) int other(int n) {
  __attribute__((noinline)) int inner(int x) {
    sink = x;
    return x;
  }
  return inner(n);
}

int main(void) {
  int sum = 0;
  for (int i = 0; i < 3; i++)
    sum += outer(i, 4);
  printf("%d\n", sum + other(7));
}
