/* Calls of MPI with arguments in registers and on the stack, whose results are checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/spile/region.h"
#include "context-ask.h"

/* An operation of the program, which runs inside MPI_Allreduce. */
static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    ask("in-allreduce");
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ask("after-init");

    SPILE_REGION_BEGIN("exchange");
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    int mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, op, MPI_COMM_WORLD); /* LINE allreduce */
    ask("after-allreduce");
    if (sum != size * (size + 1) / 2)
        return 3;

    /* Twelve arguments. */
    int to = (rank + 1) % size, from = (rank + size - 1) % size, got = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, to, 7, &got, 1, MPI_INT, from, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (got != from)
        return 4;

    int counts[64], places[64], sent[64], received[64];
    MPI_Datatype types[64];
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = i * (int)sizeof(int);
        sent[i] = rank * 100 + i;
        types[i] = MPI_INT;
    }
    MPI_Request request;
    MPI_Ialltoallw(sent, counts, places, types, received, counts, places, types, MPI_COMM_WORLD,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        if (received[i] != i * 100 + rank)
            return 5;
    ask("in-exchange");
    SPILE_REGION_END();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Op_free(&op);
    MPI_Finalize();
    if (rank == 0)
        printf("%d ranks\n", size);
    return 0;
}
