// A rank that ends in or before MPI_Init, while the others wait at a barrier: `ranks-end HOW RANK`. HOW is kill (by
// SIGKILL), abort (by SIGABRT), exit (with status 3), or before (with status 3, before MPI_Init).
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int begun;

static void *ends(void *how) {
  while (!begun) usleep(1000);
  usleep(20000);
  if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(how, "abort")) {
    signal(SIGABRT, SIG_DFL);
    abort();
  }
  _exit(3);
}

int main(int argc, char **argv) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = getenv("PMI_RANK");
  if (argc > 2 && rank && !strcmp(rank, argv[2])) {
    if (!strcmp(argv[1], "before")) return 3;
    pthread_t thread;
    pthread_create(&thread, 0, ends, argv[1]);
  } else {
    // Gives the other rank enough time in MPI_Init.
    usleep(200000);
  }
  begun = 1;
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
