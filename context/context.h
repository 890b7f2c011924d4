/*
 * What the parts of the context library share: the word, numbers of regions, and the functions
 * behind interposed ones. docs/profile-context.md says what the library is for.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Nothing is linked: libc's functions are weak and looked up when the program starts, so that one
 * object serves programs of any libc, with and without libdl.
 */
#ifndef SPILE_CONTEXT_H
#define SPILE_CONTEXT_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
/* Where the function that uses it was called. */
#define CALLER ((uint64_t)__builtin_return_address(0))

/* What a region is, as announced. */
enum kind { MARK, REGION, BARRIER, TASK, CALL };

/* Low half: number of the region that the thread is in, 0 for none. High half: the number before,
 * while an OpenMP runtime with OMPT waits (ompt.c). */
extern _Thread_local uint64_t spile_word;

/*
 * The number of a region below the one that the thread is in; announced when it is new. A region is
 * its kind, `what` of that kind (several may be at one place), its place in the code and the region
 * around it. Where there are no more numbers it is that of the region around.
 */
uint32_t context_number(enum kind kind, uint32_t what, uint64_t code, const char *name);

/* Enters a region; what `spile_word` has to be when it is left. */
static inline uint64_t context_enter(enum kind kind, uint32_t what, uint64_t code,
                                     const char *name)
{
    uint64_t before = spile_word;
    spile_word = context_number(kind, what, code, name);
    return before;
}

/* The kind of the region that the thread is in; `MARK` in none. And its place in the code. */
enum kind context_kind(void);
uint64_t context_code(void);

/* Mixes the bits of an address, a number. */
static inline uint64_t context_mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Interposed functions: those of context/calls.def, four symbols each, then those of gomp.c. */
enum {
#define GOMP(symbol, text) FIRST_##symbol,
#define MPI(name, fortran) FIRST_MPI_##name,
#include "calls.def"
#undef GOMP
#undef MPI
    CALLS,
};
#define ENTRIES (CALLS * 4 + 16)

/* Set in the address of a function of libomp, which tells OMPT itself: only to be jumped to. */
#define SPEAKS_OMPT (1ull << 63)

/* What comes next in the global scope, by entry, once it was looked up. */
extern uint64_t context_global[ENTRIES];

/* Looks a symbol up for a caller. Ends the program as the dynamic linker would if there is none. */
uint64_t context_look_up(uint32_t entry, const char *symbol, uint64_t caller);

/* The function that a call from `caller` would reach without this library. */
static inline uint64_t context_next(uint32_t entry, const char *symbol, uint64_t caller)
{
    uint64_t known = __atomic_load_n(&context_global[entry], __ATOMIC_RELAXED);
    return known != 0 ? known : context_look_up(entry, symbol, caller);
}

#endif
