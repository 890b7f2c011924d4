// Ranks that reach three barriers at different times: `barriers WORK...`. WORK is the number of milliseconds for
// which a rank computes before each barrier, or sleeps if the number follows an `s`. Each rank prints its time in
// MPI_Barrier, measured by itself: `RANK NANOSECONDS`.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"

int main(int argc, char **argv) {
  int rank;
  long waited = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank + 1 >= argc) MPI_Abort(MPI_COMM_WORLD, 2);
  const char *work = argv[rank + 1];
  for (int i = 0; i < 3; i++) {
    if (*work == 's') {
      usleep(1000 * atol(work + 1));
    } else {
      compute(atol(work));
    }
    long a = now();
    MPI_Barrier(MPI_COMM_WORLD);
    waited += now() - a;
  }
  printf("%d %ld\n", rank, waited);
  MPI_Finalize();
}
