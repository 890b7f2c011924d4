// A profiler that uses MPI's profiling interface: its MPI_* functions measure the time and call PMPI_*. At
// MPI_Finalize each rank prints a line for each called function: `RANK NAME CALLS NANOSECONDS`. Programs contain this
// file, or are linked with it as a library.
#include <mpi.h>
#include <stdio.h>

#include "clock.h"

#define FUNCTIONS(F)                                                                                                   \
  F(Barrier, (MPI_Comm c), (c))                                                                                        \
  F(Allreduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (s, r, n, t, o, c))              \
  F(Send, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))                  \
  F(Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r),                            \
    (b, n, t, from, tag, c, r))                                                                                        \
  F(Wait, (MPI_Request * r, MPI_Status *s), (r, s))

#define WRAPPER(name, parameters, arguments)                                                                           \
  static long calls_##name, ns_##name;                                                                                 \
  int MPI_##name parameters {                                                                                          \
    long a = now();                                                                                                    \
    int result = PMPI_##name arguments;                                                                                \
    ns_##name += now() - a;                                                                                            \
    calls_##name++;                                                                                                    \
    return result;                                                                                                     \
  }
FUNCTIONS(WRAPPER)

int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
#define LINE(name, parameters, arguments)                                                                              \
  if (calls_##name) printf("%d MPI_%s %ld %ld\n", rank, #name, calls_##name, ns_##name);
  FUNCTIONS(LINE)
  return PMPI_Finalize();
}
