/*
 * Declarations that the parts of the region library share: the word, numbers of regions, times in
 * them, and the functions behind interposed ones. docs/profile-context.md explains the library's
 * purpose.
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
/* The return address of the function that uses this. */
#define CALLER ((uint64_t)__builtin_return_address(0))

/* Kind of a region, as announced. */
enum kind { MARK, REGION, BARRIER, TASK, CALL, PEERS };

/* Low half: number of the thread's region, 0 for none. High half: the previous number, while an
 * OpenMP runtime with OMPT waits (ompt.c). */
extern _Thread_local uint64_t spile_word;

/*
 * The number of a region below another one, or below none for 0; announced when it is new. A region
 * is identified by its kind, `what` within the kind (several may be at one address), its address in
 * the code and the surrounding region. Without free numbers, the result is the surrounding region's
 * number.
 */
uint32_t context_number_below(uint32_t parent, enum kind kind, uint32_t what, uint64_t code,
                              const char *name);

/* Largest number of ranks that a call of MPI is counted for. */
#define MOST_PEERS 8

/* The number of some ranks as those that calls of MPI in a region are for; 0 without free numbers.
 */
uint32_t context_number_of_peers(uint32_t region, const int32_t *ranks, uint32_t count);

/* The number of a region below the thread's region. */
static inline uint32_t context_number(enum kind kind, uint32_t what, uint64_t code,
                                      const char *name)
{
    return context_number_below((uint32_t)spile_word, kind, what, code, name);
}

/* In the low half of the word: the thread is in a system call of the library's own. */
#define CONTEXT_OWN 0xffffffffu

/* Sets the thread's word, and attributes the time until now to its previous region. `entered`: 1 if
 * the thread enters the region, 0 if it returns to it. */
void context_change(uint64_t word, uint32_t entered);

/* Enters a region; returns the word to restore when the thread leaves it. */
static inline uint64_t context_enter(enum kind kind, uint32_t what, uint64_t code,
                                     const char *name)
{
    uint64_t before = spile_word;
    context_change(context_number(kind, what, code, name), 1);
    return before;
}

/* Sets `peers` as the ranks that the thread's call of MPI is for, and returns the thread's ticks in
 * the call's region so far. */
uint64_t context_begin_peers(uint32_t region, uint32_t peers);

/* Counts the call, and its ticks in the region since then, for the ranks. */
void context_end_peers(uint32_t region, uint32_t peers, uint64_t ticks);

/* From the first region on, a word on a page that the kernel zeroes in forked children: 0 in a
 * child that has not noticed the fork. Some children are created without the fork handlers of
 * libraries. */
extern uint64_t *context_not_forked;

/* Called in a forked child, which has a process number without any announcements. */
void context_forked(void);

static inline void context_notice_fork(void)
{
    if (context_not_forked != NULL && __builtin_expect(*context_not_forked == 0, false))
        context_forked();
}

/* Restarts the times in regions, in a forked child. */
void context_times_in_child(void);

/* Announces the place of the thread's word, before the library's first other system call in the
 * thread. */
void context_announce_place(void);

/* Announces the place of the thread's times: the name of a file, and the index of a chunk in it; 0
 * and 0 if there is no room for them. */
void context_announce_times(uint64_t file, uint64_t place);

/* Announces that the reader can take changes of the thread. */
void context_announce_changes(void);

/* Numbers of the system calls that the library makes. */
#if defined(__x86_64__)
enum {
    SYS_CLOSE = 3,
    SYS_MMAP = 9,
    SYS_MUNMAP = 11,
    SYS_MADVISE = 28,
    SYS_FTRUNCATE = 77,
    SYS_PRCTL = 157,
    SYS_OPENAT = 257,
    SYS_UNLINKAT = 263,
    SYS_PRLIMIT = 302,
};
#else
enum {
    SYS_UNLINKAT = 35,
    SYS_FTRUNCATE = 46,
    SYS_OPENAT = 56,
    SYS_CLOSE = 57,
    SYS_PRCTL = 167,
    SYS_MUNMAP = 215,
    SYS_MMAP = 222,
    SYS_MADVISE = 233,
    SYS_PRLIMIT = 261,
};
#endif

/* Makes a system call without libc, which would set errno. Returns its result; errors are negative.
 * */
static inline long context_system(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result = number;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    register long x8 __asm__("x8") = number;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8)
                     : "memory");
    return x0;
#else
#error "the region library supports x86-64 and aarch64"
#endif
}

/* The kind of the thread's region, `MARK` without one; and its address in the code. */
enum kind context_kind(void);
uint64_t context_code(void);

/* Mixes the bits of an address or a number. */
static inline uint64_t context_mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Interposed functions: those of context/calls.def, `NAMES` symbols each, then those of gomp.c. */
enum {
#define GOMP(symbol, text) FIRST_##symbol,
#define MPI(name, fortran, ...) FIRST_MPI_##name,
#include "calls.def"
#undef GOMP
#undef MPI
    CALLS,
};
#define NAMES 5
#define ENTRIES (CALLS * NAMES + 16)

/* Set in the address of a function of libomp, which reports to OMPT itself: the trampoline only
 * jumps to it. */
#define SPEAKS_OMPT (1ull << 63)

/* The next functions in the global scope, by entry, after their look-up. */
extern uint64_t context_global[ENTRIES];

/* Looks up a symbol for a caller. Ends the program as the dynamic linker would if it is undefined.
 * */
uint64_t context_look_up(uint32_t entry, const char *symbol, uint64_t caller);

/* What the arguments of a function of MPI are, by position from 1; 0 for none. */
struct roles {
    /* The ranks that it sends to and receives from, and their communicator. */
    uint8_t to, from, comm;
    /* The status of what it received. */
    uint8_t status;
    /* The request that it makes; those that it waits for, and their number (one request if none). */
    uint8_t made, requests, count;
    /* Whether it waits for some of the requests only; whether it frees a communicator. */
    bool some, frees;
};

/* A call in its trampoline (calls.S). */
struct call {
#if defined(__aarch64__)
    uint64_t fp, lr;
    uint64_t args[8];
#endif
    /* The word before the call. */
    uint64_t before;
    /* The call's region, and its peers if they are known; 0 if there are none. */
    uint32_t region, peers;
    uint64_t ticks;
    /* The communicator of a peer that only the status tells, 0 for none. */
    uint64_t comm;
    uint32_t entry;
#if defined(__aarch64__)
    uint64_t result;
#else
    uint64_t args[6];
    uint64_t fp, lr;
#endif
    uint64_t stacked[];
};
#if defined(__aarch64__)
_Static_assert(offsetof(struct call, before) == 80, "as in calls.S");
_Static_assert(offsetof(struct call, stacked) == 128, "as in calls.S");
#else
_Static_assert(offsetof(struct call, args) == 88 - 48, "as in calls.S");
_Static_assert(offsetof(struct call, stacked) == 88 + 16, "as in calls.S");
#endif

/* Before and after a call of MPI with some roles: who its time is for. `next` is the function. */
void context_peers_before(struct call *call, const struct roles *roles, bool fortran, uint64_t next);
void context_peers_after(struct call *call, const struct roles *roles, bool fortran, bool failed);

/* A symbol in the global scope, or where `near` was found; NULL if there is none. */
void *context_symbol(const char *symbol, uint64_t near);

/* The function that a call from `caller` would reach without this library. */
static inline uint64_t context_next(uint32_t entry, const char *symbol, uint64_t caller)
{
    uint64_t known = __atomic_load_n(&context_global[entry], __ATOMIC_RELAXED);
    return known != 0 ? known : context_look_up(entry, symbol, caller);
}

#endif
