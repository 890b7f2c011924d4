// The program of barriers.c, but it computes in a region: `barriers-marked WORK...`.
#include "../../include/spile/region.h"
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank + 1 >= argc) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int i = 0; i < 3; i++) {
    {
      SPILE_REGION("marked work");
      for (long end = now() + 1000000 * atol(argv[rank + 1]); now() < end;) {
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
}
