// An OpenMP region with four barriers. Before each, the second thread computes thirty times as long as the first.
// Prints the time of each thread in the barriers, measured by itself.
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
