/* What programs measure themselves by: the kernel's monotonic clock. */
#include <time.h>

static inline long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Computes for that many milliseconds of time, on whatever part of a processor it gets. */
static inline void compute(long ms) {
  long end = now() + ms * 1000000;
  while (now() < end) {
  }
}
