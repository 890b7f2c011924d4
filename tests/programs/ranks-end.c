// A rank that ends in MPI_Init, or before it: `ranks-end HOW RANK`, where HOW is kill (by SIGKILL), abort (by
// SIGABRT), exit (with status 3), or before (with status 3, before MPI_Init). The others meet at a barrier.
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
    // So that the other one is in MPI_Init for long enough.
    usleep(200000);
  }
  begun = 1;
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
