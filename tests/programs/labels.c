/* Labels that code jumps to: `big` for 2, 3 and 4, `huge` for 3 and 4. */
#include <stdio.h>

volatile int sink;

int __attribute__((noinline)) sized(int x) {
  int r = x * 3;
  if (r > 3) goto big;
  sink = r;
  return 0;
big:
  sink = r + 1;
  if (r > 6) goto huge;
  return 1;
huge:
  sink = r + 2;
  return 2;
}

int main(void) {
  int sum = 0;
  for (int i = 0; i < 5; i++) sum += sized(i);
  return sum != 5;
}
