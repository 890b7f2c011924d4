/*
 * The C part of the trampolines in calls.S: finds the next function, changes the region, and has the
 * time counted for the ranks that a call of MPI is for.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "context.h"

/* A function; for MPI, its names in C and Fortran. No pointers, which would be relocated in every
 * program. */
static const struct {
    char symbol[44];
    char other[36];
    bool mpi, has_roles;
    struct roles roles;
} calls[CALLS] = {
#define GOMP(symbol, text) {#symbol, text, false, false, {}},
#define MPI(name, fortran, ...) \
    {"MPI_" #name, "mpi_" #fortran, true, sizeof #__VA_ARGS__ > 1, {__VA_ARGS__}},
#include "calls.def"
#undef GOMP
#undef MPI
};

/* The symbols of a call, in the order of calls.S. */
static const struct {
    bool fortran;
    char before[2], after[8];
} names[NAMES] = {{false, "", ""},
                  {true, "", "_"},
                  {true, "", "_f08_"},
                  {true, "", "_f08ts_"},
                  {false, "P", ""}};

static __attribute__((noinline)) uint64_t look_up(uint32_t entry, uint64_t caller)
{
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

/* Enters the region. Returns the function's address, which may be marked. */
uint64_t context_call(uint32_t entry, uint64_t caller, struct call *of);

uint64_t context_call(uint32_t entry, uint64_t caller, struct call *of)
{
    uint32_t call = entry / NAMES;
    uint64_t next = __atomic_load_n(&context_global[entry], __ATOMIC_RELAXED);
    if (next == 0)
        next = look_up(entry, caller);
    of->before = spile_word;
    of->entry = entry;
    of->region = 0;
    if (next & SPEAKS_OMPT)
        return next;
    if (!calls[call].mpi)
        context_enter(BARRIER, 64 + call, caller, calls[call].other);
    else if (context_kind() != CALL) {
        /* MPI libraries call themselves, and a tool's MPI_* calls PMPI_*: only the program's own
         * call counts. */
        context_enter(CALL, 64 + call, caller, calls[call].symbol);
        if (calls[call].has_roles)
            context_peers_before(of, &calls[call].roles, names[entry % NAMES].fortran, next);
    }
    return next;
}

/* Leaves the region: restores the word. */
void context_called(struct call *of, int32_t result);

void context_called(struct call *of, int32_t result)
{
    context_change(of->before, 0);
    uint32_t call = of->entry / NAMES;
    bool fortran = names[of->entry % NAMES].fortran;
    if (of->region != 0 || calls[call].roles.frees)
        context_peers_after(of, &calls[call].roles, fortran, !fortran && result != 0);
}
