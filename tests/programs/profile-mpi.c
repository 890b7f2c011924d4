/* Ranks that wait for each other: `profile-mpi MS N`. Before each of three barriers, the first rank computes for MS
   milliseconds, the second for twice as long, and so on. Then each rank sends N messages to its neighbour, and waits
   for each. The first rank prints the time of main(). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  long begin = now(), ms = argc > 1 ? atol(argv[1]) : 50, n = argc > 2 ? atol(argv[2]) : 1000;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 3; i++) {
    compute(ms * (rank + 1));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  for (int i = 0; i < n; i++) {
    int got = -1;
    MPI_Sendrecv(&i, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (got != i) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank == 0) printf("main %.6f\n", (now() - begin) / 1e9);
  MPI_Finalize();
}
