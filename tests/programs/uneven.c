// A parallel region of OpenMP whose second thread computes thirty times as long as its first before a barrier, four
// times. It prints how long each thread was in the barrier, by its own clock.
#include <omp.h>
#include <stdio.h>
#include <time.h>

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(void) {
  long waited[2] = {0};
  for (int i = 0; i < 4; i++) {
#pragma omp parallel num_threads(2)
    {
      int thread = omp_get_thread_num();
      long end = now() + (thread ? 150 : 5) * 1000000L;
      while (now() < end) {
      }
      long a = now();
#pragma omp barrier
      waited[thread] += now() - a;
    }
  }
  printf("%ld %ld\n", waited[0], waited[1]);
}
