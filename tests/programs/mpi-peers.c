// Three ranks. In each step rank 0 waits in calls of MPI for messages that rank 1 or 2 sends 20 ms later. For each call,
// and for the ranks that it is for, rank 0 prints the number of its calls and their time by its own clock: CALL RANKS
// CALLS NS. Ranks that neither arguments nor a status name are "?".
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { ROUNDS = 5 };

static struct sum {
  const char *call, *ranks;
  long calls;
  double time;
} sums[64];

static void add(const char *call, const char *ranks, double time) {
  struct sum *s = sums;
  while (s->call && (strcmp(s->call, call) || strcmp(s->ranks, ranks))) s++;
  *s = (struct sum){call, ranks, s->calls + 1, s->time + time};
}

static double begin;
#define TIMED(call, ranks, arguments) \
  (begin = MPI_Wtime(), MPI_##call arguments, add("MPI_" #call, ranks, MPI_Wtime() - begin))

static int rank, value, other;
static MPI_Comm world = MPI_COMM_WORLD;
static MPI_Status status, statuses[3];
static MPI_Request requests[3];

// The next step: a rank that is not rank 0 sends rank 0 a message, after a time.
static void step(int from, int after_ms, MPI_Comm comm, int to) {
  MPI_Barrier(world);
  if (rank == from) {
    nanosleep(&(struct timespec){0, after_ms * 1000000}, NULL);
    MPI_Send(&value, 1, MPI_INT, to, 7, comm);
  }
}

#define INTO(n) (n), 1, MPI_INT

static void blocking(MPI_Comm reversed) {
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Recv, "1", (INTO(&value), 1, 7, world, MPI_STATUS_IGNORE));
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Recv, "1", (INTO(&value), MPI_ANY_SOURCE, 7, world, &status));
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Recv, "?", (INTO(&value), MPI_ANY_SOURCE, 7, world, MPI_STATUS_IGNORE));
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Probe, "1", (MPI_ANY_SOURCE, 7, world, &status));
  if (rank == 0) TIMED(Recv, "1", (INTO(&value), 1, 7, world, MPI_STATUS_IGNORE));
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Sendrecv, "1", (INTO(&value), 1, 8, INTO(&other), 1, 7, world, &status));
  if (rank == 1) MPI_Recv(INTO(&other), 0, 8, world, &status);
  step(1, 20, world, 0);
  if (rank == 0) TIMED(Sendrecv, "1,2", (INTO(&value), 2, 8, INTO(&other), 1, 7, world, &status));
  if (rank == 2) MPI_Recv(INTO(&other), 0, 8, world, &status);
  // Rank 2 of the world is rank 0 there.
  step(2, 20, reversed, 2);
  if (rank == 0) TIMED(Recv, "2", (INTO(&value), 0, 7, reversed, MPI_STATUS_IGNORE));
  step(2, 20, reversed, 2);
  if (rank == 0) TIMED(Recv, "2", (INTO(&value), MPI_ANY_SOURCE, 7, reversed, &status));
  step(-1, 0, world, 0);
  if (rank == 0) TIMED(Ssend, "1", (INTO(&value), 1, 9, world));
  if (rank == 1) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    MPI_Recv(INTO(&value), 0, 9, world, &status);
  }
}

static void with_requests(MPI_Comm reversed, MPI_Request persistent) {
  int index;
  step(1, 20, world, 0);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), 1, 7, world, &requests[0]);
    TIMED(Wait, "1", (&requests[0], MPI_STATUS_IGNORE));
  }
  step(2, 20, reversed, 2);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), MPI_ANY_SOURCE, 7, reversed, &requests[0]);
    TIMED(Wait, "2", (&requests[0], &status));
  }
  // As at the edge of a grid, where there is no neighbour.
  step(1, 20, world, 0);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), 1, 7, world, &requests[0]);
    MPI_Irecv(INTO(&other), MPI_PROC_NULL, 7, world, &requests[1]);
    MPI_Isend(INTO(&value), 1, 8, world, &requests[2]);
    TIMED(Waitall, "1", (3, requests, statuses));
  }
  if (rank == 1) MPI_Recv(INTO(&other), 0, 8, world, &status);
  step(1, 20, world, 0);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), 1, 7, world, &requests[0]);
    MPI_Irecv(INTO(&other), 2, 7, world, &requests[1]);
    requests[2] = MPI_REQUEST_NULL;
    TIMED(Waitall, "1,2", (3, requests, statuses));
  }
  if (rank == 2) MPI_Send(INTO(&value), 0, 7, world);
  step(1, 20, world, 0);
  MPI_Ibarrier(world, &requests[1]);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), 1, 7, world, &requests[0]);
    TIMED(Waitall, "?", (2, requests, statuses));
  } else {
    MPI_Wait(&requests[1], &status);
  }
  step(1, 20, world, 0);
  if (rank == 0) {
    MPI_Irecv(INTO(&value), 1, 7, world, &requests[0]);
    MPI_Irecv(INTO(&other), 2, 7, world, &requests[1]);
    TIMED(Waitany, "?", (2, requests, &index, &status));
    TIMED(Waitany, index == 0 ? "1" : "2", (2, requests, &index, &status));
  }
  if (rank == 2) MPI_Send(INTO(&value), 0, 7, world);
  step(1, 20, world, 0);
  if (rank == 0) {
    MPI_Start(&persistent);
    TIMED(Wait, "1", (&persistent, MPI_STATUS_IGNORE));
  }
  step(-1, 0, world, 0);
  if (rank == 1) nanosleep(&(struct timespec){0, 20000000}, NULL);
  MPI_Ibarrier(world, &requests[0]);
  if (rank == 0)
    TIMED(Wait, "?", (&requests[0], MPI_STATUS_IGNORE));
  else
    MPI_Wait(&requests[0], &status);
}

// All ranks wait for the last one.
static void star(int last) {
  MPI_Barrier(world);
  if (rank == last) nanosleep(&(struct timespec){0, 300000000}, NULL);
  if (rank != last) MPI_Recv(INTO(&value), last, 7, world, &status);
  for (int to = 0; rank == last && to < last; to++) MPI_Send(INTO(&value), to, 7, world);
}

// `mpi-peers`; `mpi-peers star`, with any number of ranks; `mpi-peers hang`, with one rank, which a signal ends.
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(world, &rank);
  if (argc > 1 && !strcmp(argv[1], "star")) {
    int size;
    MPI_Comm_size(world, &size);
    star(size - 1);
    return MPI_Finalize();
  }
  if (argc > 1 && !strcmp(argv[1], "hang")) {
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 300000}}, NULL);
    MPI_Recv(INTO(&value), 0, 7, world, &status);
  }
  MPI_Request persistent;
  MPI_Recv_init(INTO(&value), 1, 7, world, &persistent);
  for (int i = 0; i < ROUNDS; i++) {
    MPI_Comm reversed, turned;
    MPI_Comm_split(world, 0, -rank, &reversed);
    blocking(reversed);
    with_requests(reversed, persistent);
    // Its handle can be that of the next one, whose rank 0 is rank 1 of the world.
    MPI_Comm_free(&reversed);
    MPI_Comm_split(world, 0, (rank + 2) % 3, &turned);
    step(1, 20, turned, 2);
    if (rank == 0) TIMED(Recv, "1", (INTO(&value), 0, 7, turned, MPI_STATUS_IGNORE));
    MPI_Comm_free(&turned);
  }
  MPI_Request_free(&persistent);
  for (struct sum *s = sums; s->call; s++)
    printf("%s %s %ld %.0f\n", s->call, s->ranks, s->calls, s->time * 1e9);
  MPI_Finalize();
  return 0;
}
