/* Computes pi by numerical integration, in the given number of parallel regions: `profile-pi THREADS REGIONS`.
   Prints the time of main(), and the processor time of
   the program. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 10000000L

int main(int argc, char **argv) {
  double begin = omp_get_wtime(), sum = 0;
  int threads = argc > 1 ? atoi(argv[1]) : 32, regions = argc > 2 ? atoi(argv[2]) : 1;
  if (threads < 1 || regions < 1) return 2;
  omp_set_num_threads(threads);
  for (long r = 0; r < regions; r++) {
    long from = STEPS * r / regions, to = STEPS * (r + 1) / regions;
#pragma omp parallel for reduction(+ : sum)
    for (long i = from; i < to; i++) {
      double x = (i + 0.5) / STEPS;
      sum += 4.0 / (1.0 + x * x);
    }
  }
  double pi = sum / STEPS;
  printf("main %.6f\n", omp_get_wtime() - begin);
  printf("cpu %.6f\n", (double)clock() / CLOCKS_PER_SEC);
  return pi > 3.1415926 && pi < 3.1415927 ? 0 : 1;
}
