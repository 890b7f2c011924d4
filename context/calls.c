/*
 * The C part of the trampolines in calls.S: finds the next function, and changes the region.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "context.h"

/* A function; for MPI, its names in C and Fortran. No pointers, which would be relocated in every
 * program. */
static const struct {
    char symbol[44];
    char other[36];
    bool mpi;
} calls[CALLS] = {
#define GOMP(symbol, text) {#symbol, text, false},
#define MPI(name, fortran) {"MPI_" #name, "mpi_" #fortran, true},
#include "calls.def"
#undef GOMP
#undef MPI
};

static __attribute__((noinline)) uint64_t look_up(uint32_t entry, uint64_t caller)
{
    /* The symbols of a call, in the order of calls.S. */
    static const struct {
        bool fortran;
        char before[2], after[8];
    } names[NAMES] = {{false, "", ""},
                      {true, "", "_"},
                      {true, "", "_f08_"},
                      {true, "", "_f08ts_"},
                      {false, "P", ""}};
    char symbol[64];
    uint32_t which = entry % NAMES;
    const char *name = calls[entry / NAMES].symbol;
    if (names[which].fortran)
        name = calls[entry / NAMES].other;
    size_t n = 0;
    if (names[which].before[0] != 0)
        symbol[n++] = names[which].before[0];
    for (; *name != 0; name++)
        symbol[n++] = *name;
    for (const char *end = names[which].after;; end++) {
        symbol[n++] = *end;
        if (*end == 0)
            break;
    }
    return context_look_up(entry, symbol, caller);
}

/* Enters the region and stores the previous word. Returns the function's address, which may be
 * marked. */
uint64_t context_call(uint32_t entry, uint64_t caller, uint64_t *before);

uint64_t context_call(uint32_t entry, uint64_t caller, uint64_t *before)
{
    uint32_t call = entry / NAMES;
    uint64_t next = __atomic_load_n(&context_global[entry], __ATOMIC_RELAXED);
    if (next == 0)
        next = look_up(entry, caller);
    *before = spile_word;
    if (next & SPEAKS_OMPT)
        return next;
    if (!calls[call].mpi)
        context_enter(BARRIER, 64 + call, caller, calls[call].other);
    else if (context_kind() != CALL)
        /* MPI libraries call themselves, and a tool's MPI_* calls PMPI_*: only the program's own
         * call counts. */
        context_enter(CALL, 64 + call, caller, calls[call].symbol);
    return next;
}

/* Leaves the region: restores the word. */
void context_called(uint64_t before);

void context_called(uint64_t before)
{
    context_change(before, 0);
}
