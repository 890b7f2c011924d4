/*
 * OpenMP through OMPT, the tools interface of OpenMP 5: regions, waits and tasks of LLVM's libomp
 * and of other runtimes that support it. The declarations are the standard's, limited to those in
 * use.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A task that is not running has its word in its data, with a mark until it has run for the first
 * time. While a task waits, the high half of its word is the number that it returns to: waits of one
 * task do not nest.
 */
#include "context.h"

union data {
    uint64_t value;
    void *pointer;
};
/* Flag in a task's word: it has never run. */
#define FRESH (1ull << 63)

typedef void (*function)(void);
typedef int set_callback(int event, function callback);

enum event {
    PARALLEL_BEGIN = 3,
    PARALLEL_END = 4,
    TASK_CREATE = 5,
    TASK_SCHEDULE = 6,
    IMPLICIT_TASK = 7,
    SYNC_REGION = 23,
    MUTEX_ACQUIRE = 26,
    MUTEX_ACQUIRED = 27,
};
enum endpoint { BEGIN = 1, END = 2 };
enum { TASK_INITIAL = 1 };

/* The names of waits, by ompt_sync_region_t. Versions of the standard name the barrier at a
 * region's end differently. */
static const struct {
    uint32_t what;
    const char *name;
} waits[] = {
    {0, "wait"},      {3, "barrier"},   {2, "implicit barrier"}, {3, "barrier"},
    {4, "barrier"},   {5, "taskwait"},  {6, "taskgroup"},        {7, "reduction"},
    {2, "implicit barrier"}, {2, "implicit barrier"}, {10, "teams barrier"},
};

static void wait_begins(uint32_t what, uint64_t code, const char *name)
{
    uint64_t before = spile_word;
    context_change(before << 32 | context_number(BARRIER, what, code, name), 1);
}

static void wait_ends(void)
{
    context_change(spile_word >> 32, 0);
}

static void parallel_begin(union data *task, const void *frame, union data *parallel,
                           unsigned threads, int flags, const void *code)
{
    (void)frame, (void)threads, (void)flags;
    task->value = spile_word;
    parallel->value = context_number(REGION, 0, (uint64_t)code, "parallel");
}

static void parallel_end(union data *parallel, union data *task, int flags, const void *code)
{
    (void)parallel, (void)flags, (void)code;
    context_change(task->value, 0);
}

/* The end of a worker's task may be reported as late as at its next region. */
static void implicit_task(enum endpoint endpoint, union data *parallel, union data *task,
                          unsigned threads, unsigned index, int flags)
{
    (void)task, (void)threads;
    if (flags & TASK_INITIAL)
        return;
    if (endpoint == BEGIN && parallel != NULL)
        context_change(parallel->value, 1);
    else if (endpoint == END && index != 0)
        context_change(0, 0);
}

static void sync_region(unsigned kind, enum endpoint endpoint, union data *parallel,
                        union data *task, const void *code)
{
    (void)parallel, (void)task;
    if (kind >= sizeof waits / sizeof *waits)
        kind = 0;
    /* At a region's end only the first thread gets an address. */
    if (endpoint == BEGIN)
        wait_begins(waits[kind].what, code != NULL ? (uint64_t)code : context_code(),
                    waits[kind].name);
    else if (endpoint == END)
        wait_ends();
}

static void task_create(union data *task, const void *frame, union data *made, int flags,
                        int dependences, const void *code)
{
    (void)task, (void)frame, (void)dependences;
    if (!(flags & TASK_INITIAL))
        made->value = FRESH | context_number(TASK, 0, (uint64_t)code, "task");
}

/* Other statuses do not switch to another task. */
static void task_schedule(union data *prior, unsigned status, union data *next)
{
    enum { COMPLETE = 1, YIELD, CANCEL, DETACH, SWITCH = 7 };
    if (next == NULL || prior == next || !(status <= DETACH || status == SWITCH))
        return;
    if (prior != NULL)
        prior->value = spile_word;
    bool fresh = next->value & FRESH;
    context_change(next->value & ~FRESH, fresh);
}

/* Only these three: the acquisition of locks is not always reported. */
static const char *mutex_name(unsigned kind)
{
    enum { CRITICAL = 5, ATOMIC, ORDERED };
    return kind == CRITICAL ? "critical" : kind == ATOMIC ? "atomic" : kind == ORDERED ? "ordered" : NULL;
}

static void mutex_acquire(unsigned kind, unsigned hint, unsigned implementation, uint64_t wait,
                          const void *code)
{
    (void)hint, (void)implementation, (void)wait;
    if (mutex_name(kind) != NULL)
        wait_begins(16 + kind, (uint64_t)code, mutex_name(kind));
}

static void mutex_acquired(unsigned kind, uint64_t wait, const void *code)
{
    (void)wait, (void)code;
    if (mutex_name(kind) != NULL)
        wait_ends();
}

static int initialize(function (*lookup)(const char *name), int device, union data *tool)
{
    (void)device, (void)tool;
    set_callback *set = (set_callback *)lookup("ompt_set_callback");
    if (set == NULL)
        return 0;
    set(PARALLEL_BEGIN, (function)parallel_begin);
    set(PARALLEL_END, (function)parallel_end);
    set(IMPLICIT_TASK, (function)implicit_task);
    set(TASK_CREATE, (function)task_create);
    set(TASK_SCHEDULE, (function)task_schedule);
    set(SYNC_REGION, (function)sync_region);
    set(MUTEX_ACQUIRE, (function)mutex_acquire);
    set(MUTEX_ACQUIRED, (function)mutex_acquired);
    return 1;
}

static void finalize(union data *tool)
{
    (void)tool;
}

extern __attribute__((weak, visibility("default"))) char *getenv(const char *name);

/* Whether the user has an OMPT tool, too; spile appends this library to the user's. */
static bool others(void)
{
    const char *list = getenv != NULL ? getenv("OMP_TOOL_LIBRARIES") : NULL;
    for (; list != NULL && *list != 0; list++)
        if (*list == ':')
            return true;
    return false;
}

struct tool {
    int (*initialize)(function (*)(const char *), int, union data *);
    void (*finalize)(union data *);
    union data data;
};

EXPORT struct tool *ompt_start_tool(unsigned version, const char *runtime);

/* A runtime asks loaded libraries before it opens OMP_TOOL_LIBRARIES, and accepts one tool: the
 * user's own has priority. */
struct tool *ompt_start_tool(unsigned version, const char *runtime)
{
    /* Filled in here: initialised data would be a separate mapping, which each fork copies. */
    static struct tool tool;
    static unsigned asked;
    (void)version, (void)runtime;
    if (__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED) == 0 && others())
        return NULL;
    tool.initialize = initialize;
    tool.finalize = finalize;
    return &tool;
}
