/* The clock of programs that measure themselves: the kernel's monotonic one. */
#include <time.h>

static inline long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Computes until that number of milliseconds has passed, however little processor time it gets. */
static inline void compute(long ms) {
  long end = now() + ms * 1000000;
  while (now() < end) {
  }
}
