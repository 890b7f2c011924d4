// Calls that gcc spreads over parts: `small` is split and its rest is inlined again, the rest of
// `large` is a function of its own. `walk` calls itself.
#include <stdio.h>

volatile int sink;

static int small(int n) {
  if (n < 5)
    return n;
  int sum = 0;
  for (int i = 0; i < n; i++) {
    sum += sink * i;
    sink = sum;
    sum ^= n;
    sink += 2;
  }
  return sum;
}

static int large(int n) {
  if (n < 5)
    return n;
  int sum = 0;
  for (int i = 0; i < n; i++) {
    sum += sink * i;
    sink = sum;
    fprintf(stderr, "%d ", sum);
    sum ^= n;
    sink += 2;
  }
  for (int i = 0; i < n; i++) {
    sum += sink * i;
    sink = sum;
    fprintf(stderr, "%d ", sum);
    sum ^= n * 3;
    sink += 2;
  }
  return sum;
}

static int walk(int n) {
  sink = n;
  int below = n <= 0 ? 0 : walk(n - 1) * 3;
  return below + sink;
}

__attribute__((noinline)) int one(int n) { return small(n) + 1; }
__attribute__((noinline)) int two(int n) { return small(n) + 2; }
__attribute__((noinline)) int three(int n) { return large(n) + 1; }
__attribute__((noinline)) int four(int n) { return large(n) + 2; }

int main(int argc, char **argv) {
  int sum = 0;
  for (int i = 0; i < 10; i++) {
    sum += one(i) + three(i);
    sum += two(i) + four(i);
  }
  printf("%d %d\n", sum, walk(19 + argc));
}
