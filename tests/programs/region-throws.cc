// Exceptions leave regions: block regions end, and so do the regions inside. Prints the time in all regions.
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
