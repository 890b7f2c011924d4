/*
 * What the parts of the context library share: the word, numbers of regions, times in them, and the functions
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

/* In the low half of the word: the thread is in a system call of the library's own. */
#define CONTEXT_OWN 0xffffffffu

/* Sets the thread's word. Its time until now belongs to the region that it was in. `entered`: 1 where
 * the thread enters the region, 0 where it goes back to it. */
void context_change(uint64_t word, uint32_t entered);

/* Enters a region; what the word has to be when it is left. */
static inline uint64_t context_enter(enum kind kind, uint32_t what, uint64_t code,
                                     const char *name)
{
    uint64_t before = spile_word;
    context_change(context_number(kind, what, code, name), 1);
    return before;
}

/* On a page that the kernel empties in children of fork, from the first region on: 0 in a child that has not noticed
 * that it is one. Some are made without what libraries do there. */
extern uint64_t *context_not_forked;

/* A child of fork has a process number of its own, under which nothing is known yet. */
void context_forked(void);

static inline void context_notice_fork(void)
{
    if (context_not_forked != NULL && __builtin_expect(*context_not_forked == 0, false))
        context_forked();
}

/* Times in regions begin anew, in a child of fork. */
void context_times_in_child(void);

/* Announces where the thread's word is, before its first system call of the library's own. */
void context_announce_place(void);

/* Announces where the thread's times are: the name of a file, and the place of a chunk in it; 0 and 0 where
 * there is no room for them. */
void context_announce_times(uint64_t file, uint64_t place);

/* Announces that there are changes of the thread's to be taken. */
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

/* A system call, not through libc, which would set errno. Its result, an error as a number below 0. */
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
#error "the context library knows x86-64 and aarch64"
#endif
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

/* Interposed functions: those of context/calls.def, `NAMES` symbols each, then those of gomp.c. */
enum {
#define GOMP(symbol, text) FIRST_##symbol,
#define MPI(name, fortran) FIRST_MPI_##name,
#include "calls.def"
#undef GOMP
#undef MPI
    CALLS,
};
#define NAMES 5
#define ENTRIES (CALLS * NAMES + 16)

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
