/*
 * The word with the region that a thread is in, the numbers of regions, and their announcements to
 * `spile profile`. An announcement is a system call that fails; a BPF program observes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "context.h"

_Thread_local uint64_t spile_word;

/* ---- the system call ---- */

/* First argument of prctl: an option that Linux does not have. */
#define MAGIC 0x53504c31 /* "SPL1" */
enum { PLACE = 0, DESCRIBE = 1, REFUSED = 2, TIMES = 3, CHANGES = 4 };

/* Whether the thread has announced the place of its word. */
static _Thread_local bool placed;

/* The distance of the thread's word from its thread pointer. */
static uint64_t place(void)
{
    uint64_t thread;
#if defined(__x86_64__)
    /* The first word of a thread's block is its own address. */
    __asm__("mov %%fs:0, %0" : "=r"(thread));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(thread));
#endif
    return (uint64_t)&spile_word - thread;
}

static void register_fork(void);

/* During the system call the word marks it as the library's own. The first announcement includes
 * the word's place: programs and forked children without regions announce nothing. */
static void announce(uint64_t what, uint64_t a, const volatile void *b, uint64_t c)
{
    uint64_t before = spile_word;
    spile_word = CONTEXT_OWN;
    __asm__ volatile("" ::: "memory");
    if (!placed) {
        placed = true;
        register_fork();
        context_system(SYS_PRCTL, MAGIC, PLACE, (long)place(), 0, 0, 0);
    }
    if (what != PLACE)
        context_system(SYS_PRCTL, MAGIC, (long)what, (long)a, (long)b, (long)c, 0);
    spile_word = before;
}

void context_announce_place(void)
{
    announce(PLACE, 0, NULL, 0);
}

void context_announce_times(uint64_t file, uint64_t place)
{
    announce(TIMES, file, NULL, place);
}

void context_announce_changes(void)
{
    announce(CHANGES, 0, NULL, 0);
}

/* ---- numbers ---- */

/* The description of a region. */
struct description {
    uint32_t kind;
    uint32_t parent;
    uint64_t code;
    char name[112];
    bool whole;
};

#define NUMBERS 65536
#define SLOTS (NUMBERS * 2)

/* Descriptions by number. Pages without regions are never touched. */
static struct description described[NUMBERS];
static uint32_t whats[NUMBERS];
static uint32_t used;
static uint64_t refused;

/*
 * Hash table of regions with open addressing: a slot has 48 bits of the hash (its index gives 17
 * more) and a 16-bit number. A slot is written once, atomically: readers never wait for a writer,
 * not even in a forked child. The probability that two of 65,535 regions share the 65 bits is 10 to
 * the -10.
 */
static uint64_t slots[SLOTS];
static uint32_t filled;

static uint32_t find(uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        uint64_t slot = __atomic_load_n(&slots[i % SLOTS], __ATOMIC_ACQUIRE);
        if (slot == 0 || (slot ^ hash) >> 16 == 0)
            return slot & 0xffff;
    }
}

/* Limit on aliases of numbers, which leaves room for the first slot of each number. Readers stop at
 * empty slots. */
#define ALIASES (SLOTS / 4)

/* Assigns a number to a hash. Returns the number of another thread that was faster. */
static uint32_t insert(uint64_t hash, uint32_t number, bool alias)
{
    if (alias && __atomic_load_n(&filled, __ATOMIC_RELAXED) >= ALIASES)
        return number;
    __atomic_fetch_add(&filled, 1, __ATOMIC_RELAXED);
    uint64_t mine = (hash & ~0xffffull) | number;
    for (uint64_t i = hash;; i++) {
        uint64_t slot = 0;
        if (__atomic_compare_exchange_n(&slots[i % SLOTS], &slot, mine, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return number;
        if ((slot ^ hash) >> 16 == 0)
            return slot & 0xffff;
    }
}

/* Announces a region, or ranks. */
static void describe(uint32_t number)
{
    const struct description *d = &described[number];
    announce(DESCRIBE | d->kind << 8, number | (uint64_t)d->parent << 32, d->name, d->code);
}

/* Counts a region without a number; announces the count at 1, 2, 4, ... */
static uint32_t refuse(uint32_t parent)
{
    uint64_t count = __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
    if ((count & (count - 1)) == 0)
        announce(REFUSED, count, NULL, 0);
    return parent;
}

/* The surrounding region if it is the same one, so that recursion creates no new regions. Waits and
 * calls do not contain themselves. */
static uint32_t around(enum kind kind, uint32_t what, uint64_t code, uint32_t parent)
{
    if (kind == BARRIER || kind == CALL || kind == PEERS)
        return 0;
    while (parent != 0) {
        const struct description *d = &described[parent];
        if (d->kind == kind && whats[parent] == what && (code == 0 || d->code == code))
            break;
        parent = d->parent;
    }
    return parent;
}

static __attribute__((noinline)) uint32_t create(uint64_t hash, uint32_t parent, enum kind kind,
                                                 uint32_t what, uint64_t code, const char *name)
{
    context_notice_fork();
    uint32_t recursive = around(kind, what, kind == MARK ? 0 : code, parent);
    if (recursive != 0)
        return insert(hash, recursive, true);
    /* Numbers start at 1. */
    if (__atomic_load_n(&used, __ATOMIC_RELAXED) >= NUMBERS - 1)
        return refuse(parent);
    uint32_t number = __atomic_add_fetch(&used, 1, __ATOMIC_RELAXED);
    if (number >= NUMBERS)
        return refuse(parent);
    struct description *d = &described[number];
    d->kind = kind;
    d->parent = parent;
    d->code = code;
    whats[number] = what;
    for (size_t i = 0; i + 1 < sizeof d->name && name[i] != 0; i++)
        d->name[i] = name[i];
    uint32_t winner = insert(hash, number, false);
    if (winner != number)
        return winner;
    __atomic_store_n(&d->whole, true, __ATOMIC_RELEASE);
    describe(number);
    return number;
}

uint32_t context_number_below(uint32_t parent, enum kind kind, uint32_t what, uint64_t code,
                              const char *name)
{
    uint64_t hash = context_mix(code ^ ((uint64_t)what << 36) ^ ((uint64_t)kind << 60));
    hash = context_mix(hash + parent);
    uint32_t number = find(hash);
    return number != 0 ? number : create(hash, parent, kind, what, code, name);
}

/* Half of the numbers are for regions only. */
#define NUMBERS_WITH_PEERS (NUMBERS / 2)

uint32_t context_number_of_peers(uint32_t region, const int32_t *ranks, uint32_t count)
{
    uint64_t hash = region ^ ((uint64_t)PEERS << 60);
    for (uint32_t i = 0; i < count; i++)
        hash = context_mix(hash + ((uint64_t)(uint32_t)ranks[i] << 20));
    uint32_t number = find(hash);
    if (number != 0 || __atomic_load_n(&used, __ATOMIC_RELAXED) >= NUMBERS_WITH_PEERS)
        return number;
    char name[MOST_PEERS * 11] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t digits = 1;
        for (int32_t rest = ranks[i]; rest > 9; rest /= 10)
            digits++;
        int32_t rest = ranks[i];
        for (uint32_t at = digits; at-- > 0; rest /= 10)
            name[n + at] = (char)('0' + rest % 10);
        n += digits;
        name[n++] = i + 1 < count ? ' ' : 0;
    }
    return create(hash, region, PEERS, 0, 0, name);
}

enum kind context_kind(void)
{
    return described[(uint16_t)spile_word].kind;
}

uint64_t context_code(void)
{
    return described[(uint16_t)spile_word].code;
}

/* ---- marks in programs: include/spile/region.h ---- */

#define DEPTH 32
static _Thread_local uint64_t outer[DEPTH];
static _Thread_local uint32_t depth;

static uint32_t text_hash(const char *name)
{
    uint64_t hash = 1;
    for (; *name != 0; name++)
        hash = context_mix(hash + (unsigned char)*name);
    return (uint32_t)hash | 1;
}

EXPORT void spile_region_begin(const char *name);
EXPORT void spile_region_end(void);
EXPORT uint32_t spile_region_enter(const char *name);
EXPORT void spile_region_leave(uint32_t before);

/* `name` is a literal, which its address identifies. Equal texts are the same region. */
static inline void begin(const char *name, uint64_t code)
{
    uint64_t before = spile_word;
    uint64_t hash = context_mix((uint64_t)name);
    hash = context_mix(hash + (uint32_t)before);
    uint32_t number = find(hash);
    if (number == 0) {
        uint32_t text = text_hash(name);
        uint64_t by_text = context_mix(((uint64_t)text << 32) + (uint32_t)before);
        number = find(by_text);
        if (number == 0)
            number = create(by_text, (uint32_t)before, MARK, text, code, name);
        insert(hash, number, true);
    }
    context_change(number, 1);
    if (depth++ < DEPTH)
        outer[depth - 1] = before;
}

void spile_region_begin(const char *name)
{
    begin(name, CALLER);
}

/* An end without a beginning has no effect. Below DEPTH, the region stays that of DEPTH. */
void spile_region_end(void)
{
    if (depth != 0 && --depth < DEPTH)
        context_change(outer[depth], 0);
}

/* Begins a region for a block; returns the number of surrounding regions. */
uint32_t spile_region_enter(const char *name)
{
    uint32_t before = depth;
    begin(name, CALLER);
    return before;
}

/* Ends the block, and regions in it that a jump or an exception left without an end. */
void spile_region_leave(uint32_t before)
{
    if (depth <= before)
        return;
    depth = before;
    if (before < DEPTH)
        context_change(outer[before], 0);
}

/* ---- the functions behind ours ---- */

struct place {
    const char *file;
    void *base;
    const char *symbol;
    void *address;
};

#define WEAK extern __attribute__((weak, visibility("default")))
WEAK void *dlsym(void *handle, const char *symbol);
WEAK void *dlopen(const char *file, int flags);
WEAK int dladdr(const void *address, struct place *place);
/* The first one is glibc's, the second one musl's. */
WEAK int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
WEAK int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
WEAK const char *gnu_get_libc_version(void);
WEAK long write(int fd, const void *bytes, size_t size);
WEAK void _exit(int status) __attribute__((noreturn));

#define NEXT ((void *)-1l)
#define DEFAULT ((void *)0)
enum { LAZY = 1, NOLOAD = 4 };

uint64_t context_global[ENTRIES];

/*
 * A module that a program opened with dlopen, and the functions that it finds behind ours. Such
 * modules have separate scopes, and each may bring its own libgomp.
 */
struct module {
    void *base;
    uint64_t next[ENTRIES];
};
#define MODULES 8
static struct module modules[MODULES];

static void *base_of(const void *address)
{
    struct place place = {0};
    return address != NULL && dladdr(address, &place) != 0 ? place.base : NULL;
}

/* The function, marked if it is libomp's, with which gcc's programs can run. */
static uint64_t marked(void *handle, void *function)
{
    void *fork_call = dlsym(handle, "__kmpc_fork_call");
    bool ompt = fork_call != NULL && base_of(fork_call) == base_of(function);
    return (uint64_t)function | (ompt ? SPEAKS_OMPT : 0);
}

/* Like `context_next`, for callers that do not find the function in the global scope. */
static uint64_t of_module(uint32_t entry, const char *symbol, uint64_t caller)
{
    struct place place = {0};
    if (dlopen == NULL || dladdr((void *)caller, &place) == 0)
        return 0;
    for (size_t i = 0; i < MODULES; i++) {
        void *base = __atomic_load_n(&modules[i].base, __ATOMIC_ACQUIRE);
        uint64_t known = __atomic_load_n(&modules[i].next[entry], __ATOMIC_RELAXED);
        if (base == place.base && known != 0)
            return known;
    }
    void *handle = dlopen(place.file, LAZY | NOLOAD);
    void *function = handle != NULL ? dlsym(handle, symbol) : NULL;
    if (function == NULL || base_of(function) == base_of(&spile_region_end))
        return 0;
    uint64_t found = marked(handle, function);
    for (size_t i = 0; i < MODULES; i++) {
        void *base = NULL;
        bool mine = __atomic_compare_exchange_n(&modules[i].base, &base, place.base, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (mine || base == place.base) {
            __atomic_store_n(&modules[i].next[entry], found, __ATOMIC_RELAXED);
            break;
        }
    }
    return found;
}

void *context_symbol(const char *symbol, uint64_t near)
{
    if (dlsym == NULL || dlopen == NULL || dladdr == NULL)
        return NULL;
    /* The program's copy of a variable comes before the library's. */
    void *found = dlsym(DEFAULT, symbol);
    struct place place = {0};
    if (found != NULL || dladdr((void *)near, &place) == 0)
        return found;
    void *handle = dlopen(place.file, LAZY | NOLOAD);
    return handle != NULL ? dlsym(handle, symbol) : NULL;
}

static size_t length(const char *text)
{
    size_t n = 0;
    while (text[n] != 0)
        n++;
    return n;
}

uint64_t context_look_up(uint32_t entry, const char *symbol, uint64_t caller)
{
    if (dlsym != NULL && dladdr != NULL) {
        void *function = dlsym(NEXT, symbol);
        if (function != NULL) {
            uint64_t found = marked(NEXT, function);
            __atomic_store_n(&context_global[entry], found, __ATOMIC_RELAXED);
            return found;
        }
        uint64_t found = of_module(entry, symbol, caller);
        if (found != 0)
            return found;
    }
    if (write != NULL) {
        static const char said[] = ": symbol lookup error: no library behind spile's has it\n";
        (void)!write(2, symbol, length(symbol));
        (void)!write(2, said, sizeof said - 1);
    }
    if (_exit != NULL)
        _exit(127);
    __builtin_trap();
}

/* ---- forks ---- */

void context_forked(void)
{
    placed = false;
    for (uint32_t n = 1; n <= used && n < NUMBERS; n++)
        if (__atomic_load_n(&described[n].whole, __ATOMIC_ACQUIRE))
            describe(n);
    context_times_in_child();
}

/* Called before the first region, or when the library is loaded. Forks of programs without regions
 * run no code of the library if possible: it would cost each child page faults. */
static void register_fork(void)
{
    static bool registered;
    if (__atomic_exchange_n(&registered, true, __ATOMIC_RELAXED))
        return;
    if (__register_atfork != NULL)
        __register_atfork(NULL, NULL, context_forked, NULL);
    else if (pthread_atfork != NULL)
        pthread_atfork(NULL, NULL, context_forked);
}

/* Whether handlers of a fork may register others: since glibc 2.36 they run without the lock that
 * registering takes. */
static bool handlers_may_register(void)
{
    const char *version = gnu_get_libc_version != NULL ? gnu_get_libc_version() : "0.0";
    uint32_t numbers[2] = {0, 0};
    for (int part = 0; part < 2 && *version != 0; version++) {
        if (*version == '.')
            part++;
        else
            numbers[part] = numbers[part] * 10 + (uint32_t)(*version - '0');
    }
    return numbers[0] > 2 || (numbers[0] == 2 && numbers[1] >= 36);
}

/* The library's initialiser (build.rs). Where the C library holds that lock, a first region within a
 * handler would wait for its own thread, so nothing is registered later. */
void context_loaded(void)
{
    if (!handlers_may_register())
        register_fork();
}
