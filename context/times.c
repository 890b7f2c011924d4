/*
 * How long each thread is in each region, and how often it enters one: counted where the word changes,
 * in a file that `spile profile` reads. The file outlives the process, so a killed process loses nothing.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The file holds chunks. A chunk belongs to one thread and has a head and a cell for each of 4,096
 * region numbers; pages that no region needs are never touched. A process makes its file when it enters
 * its first region. Without the folder that SPILE_REGIONS names, threads count in a chunk that nobody reads.
 */
#include "context.h"

#define CELLS 4096
#define CHUNKS_OF_THREAD 16
/* How many chunks are mapped at once, and how often. */
#define SEGMENT 32
#define SEGMENTS 1024

struct cell {
    uint64_t entries;
    uint64_t ticks;
};

/* docs/profile-context.md has this layout. */
struct chunk {
    /* Of a thread's first chunk: the clock when the thread entered the region that it is in, and that
     * region's number. */
    uint64_t since;
    uint64_t number;
    /* One more than the place of the thread's next chunk, 0 for none; and this chunk's first number. */
    uint64_t next;
    uint64_t base;
    uint64_t unused[4];
    struct cell cells[CELLS];
};

static struct chunk nobody;

static _Thread_local struct {
    struct chunk *first, *last;
    struct cell *cell;
    struct chunk *chunks[CHUNKS_OF_THREAD];
} thread;

/* The process's file: its name in the folder, 0 before the first region; and how many chunks it has. */
static uint64_t name;
static uint32_t chunks;
static struct chunk *segments[SEGMENTS];

extern __attribute__((weak, visibility("default"))) char *getenv(const char *name);
extern __attribute__((weak, visibility("default"))) int clock_gettime(int clock, uint64_t time[2]);

/* ---- the clock ---- */

/* The processors' counters do not agree: the kernel's clock is taken instead. */
static bool by_kernel;

/* Sets the word, and tells when. Nothing is between the two: a kernel that takes the processor away
 * there would count that time to another region than the clock does. */
static inline uint64_t set(uint64_t word)
{
    if (__builtin_expect(by_kernel, false)) {
        enum { MONOTONIC = 1 };
        uint64_t time[2] = {0};
        if (clock_gettime != NULL)
            clock_gettime(MONOTONIC, time);
        spile_word = word;
        return time[0] * 1000000000u + time[1];
    }
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc\n\tmovq %3, %2"
                     : "=&a"(low), "=&d"(high), "=m"(spile_word)
                     : "r"(word));
    return (uint64_t)high << 32 | low;
#else
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0\n\tstr %2, %1"
                     : "=&r"(count), "=m"(spile_word)
                     : "r"(word));
    return count;
#endif
}

/* ---- chunks ---- */

enum { AT_FDCWD_ = -100, O_RDWR_ = 2, O_CREAT_ = 0x40, O_EXCL_ = 0x80, O_CLOEXEC_ = 0x80000 };
enum { PROT_READ_WRITE = 3, MAP_SHARED_ = 1, MADV_DONTDUMP_ = 16 };
enum { RLIMIT_FSIZE_ = 1, RLIMIT_AS_ = 9 };

#if defined(__x86_64__)
enum { O_NOFOLLOW_ = 0x20000 };
#else
enum { O_NOFOLLOW_ = 0x8000 };
#endif

#define SIZE (SEGMENT * sizeof(struct chunk))

/* The path of a file in the folder, and whether there is a folder. */
static bool path_of(char *path, size_t size, uint64_t number)
{
    const char *folder = getenv != NULL ? getenv("SPILE_REGIONS") : NULL;
    if (folder == NULL)
        return false;
    /* A colon in front asks for the kernel's clock. */
    by_kernel = *folder == ':';
    folder += by_kernel;
    size_t n = 0;
    for (; folder[n] != 0; n++) {
        if (n + 18 > size)
            return false;
        path[n] = folder[n];
    }
    path[n++] = '/';
    for (int shift = 60; shift >= 0; shift -= 4)
        path[n++] = "0123456789abcdef"[number >> shift & 15];
    path[n] = 0;
    return n > 17;
}

/* Limits of memory and of files are the program's: nothing of theirs is used. */
static bool unlimited(int resource)
{
    uint64_t limit[2] = {0};
    return context_system(SYS_PRLIMIT, 0, resource, 0, (long)limit, 0, 0) == 0 && limit[0] == ~0ull;
}

static long open_file(uint64_t number, int flags)
{
    char path[512];
    if (!path_of(path, sizeof path, number))
        return -1;
    return context_system(SYS_OPENAT, AT_FDCWD_, (long)path,
                          O_RDWR_ | O_CLOEXEC_ | O_NOFOLLOW_ | flags, 0600, 0, 0);
}

/* Maps a segment of the file, unless another thread has done so. */
static struct chunk *map(uint64_t file, uint32_t segment)
{
    long fd = open_file(file, 0);
    if (fd < 0)
        return NULL;
    long at = context_system(SYS_MMAP, 0, SIZE, PROT_READ_WRITE, MAP_SHARED_, fd,
                             (long)(segment * SIZE));
    context_system(SYS_CLOSE, fd, 0, 0, 0, 0, 0);
    if (at < 0 && at > -4096)
        return NULL;
    context_system(SYS_MADVISE, at, SIZE, MADV_DONTDUMP_, 0, 0, 0);
    struct chunk *there = NULL;
    if (__atomic_compare_exchange_n(&segments[segment], &there, (struct chunk *)at, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return (struct chunk *)at;
    context_system(SYS_MUNMAP, at, SIZE, 0, 0, 0, 0);
    return there;
}

/* The process's file; 1 where there is none. */
static uint64_t file(void)
{
    uint64_t now = __atomic_load_n(&name, __ATOMIC_ACQUIRE);
    if (now != 0)
        return now;
    uint64_t wanted = 1;
    char path[512];
    if (path_of(path, sizeof path, 0) && unlimited(RLIMIT_FSIZE_) && unlimited(RLIMIT_AS_)) {
        uint64_t seed = context_mix(set(spile_word) ^ (uint64_t)&seed);
        for (int i = 0; i < 8 && wanted == 1; i++, seed = context_mix(seed + 1)) {
            long fd = open_file(seed | 2, O_CREAT_ | O_EXCL_);
            if (fd < 0)
                continue;
            if (context_system(SYS_FTRUNCATE, fd, (long)(SEGMENTS * SIZE), 0, 0, 0, 0) == 0)
                wanted = seed | 2;
            context_system(SYS_CLOSE, fd, 0, 0, 0, 0, 0);
        }
    }
    /* Two threads can make a file each: that of the first is taken. */
    if (__atomic_compare_exchange_n(&name, &now, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return wanted;
    return now;
}

/* A chunk of the file, and its place there. */
static struct chunk *chunk(uint64_t of, uint32_t *place)
{
    if (of == 1)
        return NULL;
    *place = __atomic_fetch_add(&chunks, 1, __ATOMIC_RELAXED);
    uint32_t segment = *place / SEGMENT;
    if (segment >= SEGMENTS)
        return NULL;
    struct chunk *mapped = __atomic_load_n(&segments[segment], __ATOMIC_ACQUIRE);
    if (mapped == NULL)
        mapped = map(of, segment);
    return mapped != NULL ? mapped + *place % SEGMENT : NULL;
}

/* The thread has no chunk for the number yet: gets one, and its cell. The system calls of this are
 * the library's own. */
static __attribute__((noinline)) struct cell *more(uint32_t number)
{
    uint64_t before = spile_word;
    spile_word = CONTEXT_OWN;
    uint64_t of = file();
    uint32_t place;
    if (thread.first == NULL) {
        struct chunk *first = chunk(of, &place);
        if (first != NULL)
            context_announce_times(of, place);
        thread.first = thread.last = first != NULL ? first : &nobody;
        thread.chunks[0] = thread.first;
        thread.first->since = set(spile_word);
        thread.cell = &thread.first->cells[0];
    }
    uint32_t at = number / CELLS % CHUNKS_OF_THREAD;
    if (thread.chunks[at] == NULL) {
        struct chunk *next = thread.first != &nobody ? chunk(of, &place) : NULL;
        if (next != NULL) {
            next->base = number / CELLS * CELLS;
            __atomic_store_n(&thread.last->next, place + 1, __ATOMIC_RELEASE);
            thread.last = next;
        }
        thread.chunks[at] = next != NULL ? next : &nobody;
    }
    spile_word = before;
    return &thread.chunks[at]->cells[number % CELLS];
}

void context_change(uint64_t word, uint32_t entered)
{
    uint32_t number = (uint16_t)word;
    struct chunk *of = thread.chunks[number / CELLS];
    struct cell *cell = &of->cells[number % CELLS];
    if (__builtin_expect(of == NULL, false))
        cell = more(number);
    uint64_t now = set(word);
    struct chunk *first = thread.first;
    /* (A clock that goes back adds nothing.) */
    if (now > first->since)
        thread.cell->ticks += now - first->since;
    thread.cell = cell;
    cell->entries += entered;
    first->number = number;
    first->since = now;
}

/* A child of fork shares its parent's chunks, and must not write to them. */
void context_times_in_child(void)
{
    __builtin_memset(&thread, 0, sizeof thread);
    name = 0;
    chunks = 0;
    __builtin_memset(segments, 0, sizeof segments);
    /* What it is in goes on, and is not entered again. */
    if ((uint16_t)spile_word != 0)
        context_change(spile_word, 0);
}
