// Bodies of parallel regions, tasks and loops of OpenMP.
#include <stdio.h>
long n_region, n_task, n_loop;
volatile int sink;
//: region*_fn*|.omp_outlined. = n_region
__attribute__((noinline)) void region(int n) {
#pragma omp parallel num_threads(2)
  {
    sink = n;
#pragma omp atomic
    n_region++;
  }
}
int main() {
  for (int i = 0; i < 5; i++)
    region(i);
  printf("n_region %ld\n", n_region);
}
