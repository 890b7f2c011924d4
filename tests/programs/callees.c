// Calls of all kinds: by instructions, inlined, by a jump at the end, from several callers.
#include <stdio.h>

#define FUNCTION __attribute__((noinline, noclone))

#ifdef FAR
FUNCTION int far(int n) { return n * 3; }
#else
int far(int n);
static FUNCTION int near(int n) { return far(n) + 1; }
volatile int total;

FUNCTION int leaf(int n) { total += n; return n + 1; }

static inline __attribute__((always_inline)) int copied(int n) {
  total ^= n;
  return leaf(n * 10);
}

FUNCTION int middle(int n) { return leaf(n + 100) * 2; }

FUNCTION int jumps(int n) { total++; return leaf(n + 1000); }

FUNCTION int first(int n) { return leaf(n) + middle(n) + copied(n) + 1; }

FUNCTION int second(int n) { return leaf(n) + middle(n) + jumps(n) + 1; }

FUNCTION int (*pointer(void))(int) { return leaf; }

int main(void) {
  int sum = 0;
  for (int i = 1; i <= 2; i++) sum += first(i) + second(i * 5) + pointer()(7) + near(i);
  printf("%d\n", sum);
  return 0;
}
#endif
