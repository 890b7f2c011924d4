// Two ranks with unequal work: `ranks MS`. Rank r calls getppid (r + 1) * 1000 times. Rank 1 then uses
// MS ms of processor time, while rank 0 waits for it in MPI_Allreduce.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 || size != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int i = 0; i < (rank + 1) * 1000; i++) syscall(SYS_getppid);
  if (rank == 1) {
    long until = used_ms() + atol(argv[1]);
    while (used_ms() < until)
      for (volatile int i = 0; i < 100000; i++) {
      }
  }
  int mine = rank + 1, sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) printf("%d\n", sum);
  return sum == 3 ? 0 : 4;
}
