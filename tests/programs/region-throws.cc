// Exceptions leave regions: those that are blocks end, and what began in them. It prints how long it was in all.
#include <spile/region.h>
#include <cstdio>
#include <ctime>

static long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void compute(long ms) {
  for (long end = now() + ms * 1000000; now() < end;) {
  }
}

static void throws() {
  SPILE_REGION("block");
  SPILE_REGION_BEGIN("begun");
  compute(1);
  throw 1;
}

int main() {
  long a = now();
  for (int i = 0; i < 50; i++) {
    SPILE_REGION("around");
    try {
      throws();
    } catch (int) {
    }
  }
  std::printf("%ld\n", now() - a);
  compute(60);
}
