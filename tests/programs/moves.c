// Moves itself N times between two of its processors, and prints how often it did; ends with 77 if it has only one.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  cpu_set_t all, one;
  long n = argc > 1 ? atol(argv[1]) : 1, moves = 0;
  int cpus[2], found = 0;
  sched_getaffinity(0, sizeof all, &all);
  for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
    if (CPU_ISSET(cpu, &all)) cpus[found++] = cpu;
  if (found < 2) return 77;
  // To one of them first, so that each further call moves.
  for (long i = 0; i <= n; i++) {
    CPU_ZERO(&one);
    CPU_SET(cpus[i % 2], &one);
    sched_setaffinity(0, sizeof one, &one);
    moves += i > 0;
  }
  printf("%ld\n", moves);
  return 0;
}
