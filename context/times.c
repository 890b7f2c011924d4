/*
 * Time of each thread in each region, and number of entries: counted when the word changes, in a
 * file that `spile profile` reads. The file outlives the process, so a killed process loses
 * nothing.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The file consists of chunks. A chunk belongs to one thread and has a head and a cell for each of
 * 4,096 numbers of regions, or of the ranks that calls of MPI are for; pages without regions take
 * no memory. A process creates its file when it
 * enters its first region. Without the directory that SPILE_REGIONS names, or without room in it,
 * threads do not count, and announce that.
 *
 * For time lines each change is recorded as well, in a ring of chunks whose cells are changes. The
 * reader stores the number of changes that it has taken; changes without room are counted.
 */
#include "context.h"

#define CELLS 4096
#define CHUNKS_OF_THREAD 16
/* The first cells of a thread's first chunk, which share a page with its head; enough for most
 * threads. */
#define FEW 252
/* Chunks of a thread's changes; the reader is notified each time half of them are full. */
#define RING 16
/* Number of chunks in a segment, and of segments. */
#if defined(__x86_64__)
#define SEGMENT 64
#define SEGMENTS 512
enum { LARGEST_PAGE = 4096 };
#else
#define SEGMENT 1024
#define SEGMENTS 32
enum { LARGEST_PAGE = 65536 };
#endif

struct cell {
    /* In a change: the region's number, with the flags below. */
    uint64_t entries;
    uint64_t ticks;
};

/* Flags: the thread entered the region; changes before this one were lost. */
#define ENTERED (1ull << 32)
#define AFTER_LOST (1ull << 33)

/* docs/profile-context.md has this layout. */
struct chunk {
    /* In a thread's first chunk: the clock at the entry to the current region, and that region's
     * number, with the number of its call's ranks in the high half. */
    uint64_t since;
    uint64_t number;
    /* The index of the thread's next chunk plus one, 0 for none; and this chunk's first number. */
    uint64_t next;
    uint64_t base;
    /* In a thread's first chunk: the numbers of changes that were recorded, that were lost, and
     * that the reader has taken; and the index plus one of the first chunk with changes, 0 for
     * none. */
    uint64_t written;
    uint64_t lost;
    uint64_t taken;
    uint64_t changes;
    struct cell cells[CELLS];
};

/* Placeholder for chunks that could not be allocated. */
static struct chunk nobody;

static _Thread_local struct {
    struct chunk *first, *last;
    struct cell *cell;
    /* The first chunk for its FEW numbers, and the other chunks by number. */
    struct chunk *chunks[1 + CHUNKS_OF_THREAD];
    /* The next free change, and the end of its chunk; NULL if changes are not recorded. */
    struct cell *change, *end;
    struct chunk *ring[RING];
    bool after_lost, no_chunks, told;
} thread;

static inline uint32_t place_of(uint32_t number)
{
    return number < FEW ? 0 : 1 + number / CELLS;
}

uint64_t *context_not_forked;

/* The process's file: its name in the directory, 0 before the first region; and its number of
 * chunks. */
static uint64_t name;
static uint32_t chunks;
static struct chunk *segments[SEGMENTS];

extern __attribute__((weak, visibility("default"))) char *getenv(const char *name);
extern __attribute__((weak, visibility("default"))) int clock_gettime(int clock, uint64_t time[2]);

/* ---- the clock ---- */

/* Whether the processors' counters disagree, so that the kernel's clock is used instead. */
static bool by_kernel;
/* Whether changes are recorded. */
static bool traced;

/* Sets the word and returns the time. Nothing happens in between: if the kernel switched the thread
 * out there, it would attribute that time to another region than the clock does. */
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
enum { PROT_READ_WRITE = 3, MAP_SHARED_ = 1, MAP_PRIVATE_ANONYMOUS = 0x22 };
enum { MADV_DONTDUMP_ = 16, MADV_WIPEONFORK_ = 18, MADV_POPULATE_WRITE_ = 23 };
enum { RLIMIT_FSIZE_ = 1, RLIMIT_AS_ = 9 };

#if defined(__x86_64__)
enum { O_NOFOLLOW_ = 0x20000 };
#else
enum { O_NOFOLLOW_ = 0x8000 };
#endif

#define SIZE (SEGMENT * sizeof(struct chunk))
/* File offsets of mappings are multiples of the page size. */
_Static_assert(SIZE % LARGEST_PAGE == 0, "segments begin with a page");

/* The path of a file in the directory; returns whether there is a directory. */
static bool path_of(char *path, size_t size, uint64_t number)
{
    const char *folder = getenv != NULL ? getenv("SPILE_REGIONS") : NULL;
    if (folder == NULL)
        return false;
    /* A leading plus requests changes, a colon the kernel's clock. */
    traced = *folder == '+';
    folder += traced;
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

/* Limits of memory and of files belong to the program: the library uses none of them up. */
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

/* Maps a segment of the file, unless another thread has already done so. */
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

static void notice_forks(void)
{
    long at = context_system(SYS_MMAP, 0, LARGEST_PAGE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096)
        return;
    *(uint64_t *)at = 1;
    if (context_system(SYS_MADVISE, at, LARGEST_PAGE, MADV_WIPEONFORK_, 0, 0, 0) == 0)
        __atomic_store_n(&context_not_forked, (uint64_t *)at, __ATOMIC_RELEASE);
}

/* The process's file; 1 if there is none. */
static uint64_t file(void)
{
    uint64_t now = __atomic_load_n(&name, __ATOMIC_ACQUIRE);
    if (now != 0)
        return now;
    if (context_not_forked == NULL)
        notice_forks();
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
    /* Two threads can create a file each: the first one is used, the other one removed. */
    if (__atomic_compare_exchange_n(&name, &now, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return wanted;
    if (wanted != 1 && path_of(path, sizeof path, wanted))
        context_system(SYS_UNLINKAT, AT_FDCWD_, (long)path, 0, 0, 0, 0);
    return now;
}

/* Allocates the memory of a part of the file. A store to an unallocated page without room would
 * kill the program. */
static bool provide(const void *from, const void *to)
{
    long first = (long)from & -LARGEST_PAGE;
    long end = ((long)to + LARGEST_PAGE - 1) & -LARGEST_PAGE;
    return context_system(SYS_MADVISE, first, end - first, MADV_POPULATE_WRITE_, 0, 0, 0) == 0;
}

/* Allocates a chunk of the file, and returns its index. */
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

/* ---- changes ---- */

/* The chunk of changes is full: continues in the next one, if the reader has taken its content. */
static __attribute__((noinline)) bool turn(void)
{
    struct chunk *first = thread.first;
    uint64_t nth = first->written / CELLS % RING;
    uint64_t before = spile_word;
    spile_word = CONTEXT_OWN;
    uint64_t taken = __atomic_load_n(&first->taken, __ATOMIC_ACQUIRE);
    bool room = first->written - taken <= (RING - 1) * CELLS && !thread.no_chunks;
    if (room && thread.ring[nth] == NULL) {
        uint32_t place;
        struct chunk *next = chunk(file(), &place);
        room = next != NULL && provide(next, next + 1);
        thread.no_chunks = !room;
        if (room) {
            uint64_t *last = nth == 0 ? &first->changes : &thread.ring[nth - 1]->next;
            __atomic_store_n(last, place + 1, __ATOMIC_RELEASE);
            thread.ring[nth] = next;
        }
    }
    /* Repeated while there is no room, because notifications can be lost, too. */
    if (room ? nth % (RING / 2) == 0 && first->written != 0 : first->lost % (RING / 2 * CELLS) == 0)
        context_announce_changes();
    spile_word = before;
    if (room) {
        thread.change = thread.ring[nth]->cells;
        thread.end = thread.change + CELLS;
    }
    return room;
}

static inline void write_down(uint32_t number, uint64_t now, uint32_t entered)
{
    struct chunk *first = thread.first;
    if (__builtin_expect(thread.change == thread.end, false) && !turn()) {
        first->lost++;
        thread.after_lost = true;
        return;
    }
    uint64_t what = number | (entered ? ENTERED : 0);
    if (__builtin_expect(thread.after_lost, false)) {
        what |= AFTER_LOST;
        thread.after_lost = false;
    }
    *thread.change++ = (struct cell){what, now};
    __atomic_store_n(&first->written, first->written + 1, __ATOMIC_RELEASE);
}

/* ---- regions ---- */

/* The thread's region numbers that cannot be counted. */
static struct chunk *none(void)
{
    if (!thread.told && getenv != NULL && getenv("SPILE_REGIONS") != NULL) {
        thread.told = true;
        context_announce_times(0, 0);
    }
    return &nobody;
}

/* The thread's first chunk, with room for a few numbers. */
static struct chunk *first_chunk(uint64_t of)
{
    uint32_t place;
    struct chunk *first = chunk(of, &place);
    if (first == NULL || !provide(first, &first->cells[FEW]))
        return none();
    context_announce_times(of, place);
    return first;
}

/* The thread's chunk for numbers from this one on. */
static struct chunk *next_chunk(uint64_t of, uint32_t base)
{
    if (thread.first == &nobody)
        return &nobody;
    uint32_t place = 0;
    struct chunk *next = base == 0 ? thread.first : chunk(of, &place);
    if (next == NULL || !provide(next, next + 1))
        return none();
    if (base != 0) {
        next->base = base;
        __atomic_store_n(&thread.last->next, place + 1, __ATOMIC_RELEASE);
        thread.last = next;
    }
    return next;
}

/* Allocates the thread's chunk for a number, and returns the number's cell. The system calls are
 * marked as the library's own. */
static __attribute__((noinline)) struct cell *more(uint32_t number)
{
    uint64_t before = spile_word;
    context_announce_place();
    spile_word = CONTEXT_OWN;
    uint64_t of = file();
    if (thread.first == NULL) {
        thread.first = thread.last = thread.chunks[0] = first_chunk(of);
        thread.first->since = set(spile_word);
        thread.cell = &thread.first->cells[0];
        if (traced && thread.first != &nobody) {
            /* Any value: the first chunk is created with the first change. */
            thread.change = thread.end = thread.first->cells;
        }
    }
    uint32_t at = place_of(number);
    if (thread.chunks[at] == NULL)
        thread.chunks[at] = next_chunk(of, number / CELLS * CELLS);
    spile_word = before;
    return &thread.chunks[at]->cells[number % CELLS];
}

static inline struct cell *cell_of(uint32_t number)
{
    struct chunk *of = thread.chunks[place_of(number)];
    return __builtin_expect(of == NULL, false) ? more(number) : &of->cells[number % CELLS];
}

void context_change(uint64_t word, uint32_t entered)
{
    context_notice_fork();
    uint32_t number = (uint16_t)word;
    struct cell *cell = cell_of(number);
    struct chunk *first = thread.first;
    if (__builtin_expect(first == &nobody, false)) {
        spile_word = word;
        return;
    }
    uint64_t now = set(word);
    /* A clock that goes backwards adds nothing. */
    if (now > first->since)
        thread.cell->ticks += now - first->since;
    thread.cell = cell;
    cell->entries += entered;
    first->number = number;
    first->since = now;
    if (__builtin_expect(thread.change != NULL, false))
        write_down(number, now, entered);
}

uint64_t context_begin_peers(uint32_t region, uint32_t peers)
{
    if (peers != 0)
        thread.first->number = region | (uint64_t)peers << 32;
    return thread.cell->ticks;
}

void context_end_peers(uint32_t region, uint32_t peers, uint64_t ticks)
{
    struct cell *cell = cell_of(peers);
    cell->entries++;
    cell->ticks += cell_of(region)->ticks - ticks;
}

/* A child of fork shares its parent's chunks, and must not write to them. */
void context_times_in_child(void)
{
    __builtin_memset(&thread, 0, sizeof thread);
    name = 0;
    chunks = 0;
    __builtin_memset(segments, 0, sizeof segments);
    if (context_not_forked != NULL)
        *context_not_forked = 1;
    /* The current region continues, and is not entered again. */
    if ((uint16_t)spile_word != 0)
        context_change(spile_word, 0);
}
