// A parallel region of OpenMP whose second thread computes thirty times as long as its first before a barrier, four
// times. It prints how long each thread was in the barrier, by its own clock.
#include <omp.h>
#include <stdio.h>

#include "clock.h"

int main(void) {
  long waited[2] = {0};
  for (int i = 0; i < 4; i++) {
#pragma omp parallel num_threads(2)
    {
      int thread = omp_get_thread_num();
      compute(thread ? 150 : 5);
      long a = now();
#pragma omp barrier
      waited[thread] += now() - a;
    }
  }
  printf("%ld %ld\n", waited[0], waited[1]);
}
