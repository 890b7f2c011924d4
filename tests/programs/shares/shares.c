/* Two functions whose shares of the processor the program measures itself: `shares SECONDS` prints that of `heavy`. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The compiler does not know it. */
static volatile long unit = 100000;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static __attribute__((noinline)) long heavy(long n) {
  long s = 1;
  for (long i = 0; i < n; i++) s = (s * 31 + i) % 1000003;
  return s;
}

static __attribute__((noinline)) long light(long n) {
  long s = 2;
  for (long i = 0; i < n; i++) s = (s * 17 + i) % 1000033;
  return s;
}

int main(int argc, char **argv) {
  double spent[2] = {0, 0}, end = atof(argv[1]);
  volatile long sink = 0;
  for (double a = now(); a < end;) {
    sink += heavy(3 * unit);
    double b = now();
    spent[0] += b - a;
    sink += light(unit);
    a = now();
    spent[1] += a - b;
  }
  printf("%f\n", spent[0] / (spent[0] + spent[1]));
}
