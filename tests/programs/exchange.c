// Ranks with different work that wait for each other in every way: `exchange MS...`. A rank computes for MS
// milliseconds before a barrier, before a sum over all ranks, and before it receives from its left neighbour, in each
// of three rounds. If the program is linked with `pmpi.c`, that file measures and prints.
#include <mpi.h>
#include <stdlib.h>

#include "clock.h"

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != size + 1) MPI_Abort(MPI_COMM_WORLD, 2);
  long ms = atol(argv[rank + 1]);
  for (int i = 0; i < 3; i++) {
    compute(ms);
    MPI_Barrier(MPI_COMM_WORLD);
    compute(ms);
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int got = -1;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, i, MPI_COMM_WORLD, &request);
    compute(ms);
    MPI_Send(&sum, 1, MPI_INT, (rank + 1) % size, i, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (got != sum || sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
}
