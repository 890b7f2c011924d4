/*
 * OpenMP through the functions to which gcc compiles it: GOMP_* of libgomp, which has no OMPT. This
 * file has the functions that start regions and tasks; those that only wait are in calls.def.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "context.h"

typedef void body(void *);

/* ---- parallel regions ---- */

/* The argument with which threads of a region run our function instead of the program's. It is read
 * before the program's function starts, and the thread that has it on its stack waits until all
 * threads have ended. */
struct team {
    body *function;
    void *data;
    uint32_t region, barrier;
};

/* A finished thread waits for the others, and then, unless it is the first, for its next region.
 * Both waits are reported as the barrier at the region's end. */
static void run(void *data)
{
    struct team team = *(struct team *)data;
    context_change(team.region, 1);
    team.function(team.data);
    context_change(team.barrier, 1);
}

/* The region's address is that of its outlined body, whose line is the directive's; the call often
 * has another line. Announced addresses are return addresses. */
static void begin(struct team *team)
{
    uint64_t code = (uint64_t)team->function + 1;
    team->region = context_number(REGION, 0, code, "parallel");
    team->barrier = context_number_below(team->region, BARRIER, 2, code, "implicit barrier");
}

/* A function that starts a region and returns at its end. */
#define PARALLEL(type, keep, give, number, name, parameters, ...)                                  \
    EXPORT type name(body *function, void *data, unsigned threads parameters);                     \
    type name(body *function, void *data, unsigned threads parameters)                             \
    {                                                                                              \
        typedef type next(body *, void *, unsigned threads parameters);                            \
        uint64_t found = context_next(CALLS * NAMES + number, #name, CALLER);                      \
        next *next_function = (next *)(found & ~SPEAKS_OMPT);                                      \
        if (found & SPEAKS_OMPT)                                                                   \
            return next_function(function, data, threads __VA_ARGS__);                             \
        struct team team = {function, data, 0, 0};                                                 \
        uint64_t before = spile_word;                                                              \
        begin(&team);                                                                              \
        keep next_function(run, &team, threads __VA_ARGS__);                                       \
        context_change(before, 0);                                                                 \
        give;                                                                                      \
    }
#define COMMA ,
#define FLAGS COMMA unsigned flags
#define BOUNDS COMMA long start COMMA long end COMMA long step
#define LOOP(number, name)                                                                         \
    PARALLEL(void, , , number, GOMP_parallel_loop_##name, BOUNDS COMMA long chunk FLAGS, , start,  \
             end, step, chunk, flags)
#define RUNTIME_LOOP(number, name)                                                                 \
    PARALLEL(void, , , number, GOMP_parallel_loop_##name, BOUNDS FLAGS, , start, end, step, flags)

PARALLEL(void, , , 0, GOMP_parallel, FLAGS, , flags)
PARALLEL(unsigned, unsigned result =, return result, 1, GOMP_parallel_reductions, FLAGS, , flags)
PARALLEL(void, , , 2, GOMP_parallel_sections, COMMA unsigned count FLAGS, , count, flags)
PARALLEL(void, , , 3, GOMP_teams_reg, COMMA unsigned limit FLAGS, , limit, flags)
LOOP(4, static)
LOOP(5, dynamic)
LOOP(6, guided)
LOOP(7, nonmonotonic_dynamic)
LOOP(8, nonmonotonic_guided)
RUNTIME_LOOP(9, runtime)
RUNTIME_LOOP(10, nonmonotonic_runtime)
RUNTIME_LOOP(11, maybe_nonmonotonic_runtime)

/* ---- tasks ---- */

typedef void copier(void *to, void *from);

/*
 * libgomp copies a task's arguments. Ours start with this structure, and the program's follow at
 * `offset`. For a task of a taskloop, libgomp writes the bounds to the front, and reads a third
 * word there.
 */
struct task {
    uint64_t front[3];
    body *function;
    copier *copy;
    char *data;
    uint32_t size, offset;
    uint64_t number;
};

static void copy_words(char *to, const char *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = *(const volatile char *)&from[i];
}

static void copy_task(void *to, void *from)
{
    struct task *task = from;
    *(struct task *)to = *task;
    char *data = (char *)to + task->offset;
    if (task->copy != NULL)
        task->copy(data, task->data);
    else
        copy_words(data, task->data, task->size);
}

static void run_task(void *data)
{
    struct task *task = data;
    uint64_t before = spile_word;
    context_change(task->number, 1);
    task->function((char *)data + task->offset);
    context_change(before, 0);
}

static void run_loop_task(void *data)
{
    struct task *task = data;
    copy_words((char *)data + task->offset, (char *)task->front, 2 * sizeof(uint64_t));
    run_task(data);
}

/* Creates our arguments, aligned at least like `struct task`. */
static long wrap(struct task *task, body *function, void *data, copier *copy, long size,
                 long *align, uint64_t number)
{
    if (*align < 16)
        *align = 16;
    *task = (struct task){{0}, function, copy, data, (uint32_t)size, 0, number};
    copy_words((char *)task->front, data, size < 24 ? (size_t)size : 24);
    task->offset = (uint32_t)((sizeof *task + (size_t)*align - 1) / (size_t)*align * (size_t)*align);
    return task->offset + size;
}

/* Sufficient for all tasks; a task that can be completed from outside gets its handle there. */
static bool wrappable(long size, long align, unsigned flags)
{
    enum { DETACH = 1 << 13 };
    return size >= 0 && size < 1 << 30 && align < 1 << 20 && !(flags & DETACH);
}

#define TASK_PARAMETERS                                                                            \
    body *function, void *data, copier *copy, long size, long align, bool deferred,                \
        unsigned flags, void **depend, int priority, void *detach
typedef void task_function(TASK_PARAMETERS);
EXPORT void GOMP_task(TASK_PARAMETERS);

/* Programs of older compilers pass fewer arguments, and flags that say so. */
void GOMP_task(TASK_PARAMETERS)
{
    uint64_t found = context_next(CALLS * NAMES + 12, "GOMP_task", CALLER);
    task_function *next = (task_function *)(found & ~SPEAKS_OMPT);
    if (found & SPEAKS_OMPT || !wrappable(size, align, flags)) {
        next(function, data, copy, size, align, deferred, flags, depend, priority, detach);
        return;
    }
    struct task task;
    uint32_t number = context_number(TASK, 0, CALLER, "task");
    size = wrap(&task, function, data, copy, size, &align, number);
    next(run_task, &task, copy_task, size, align, deferred, flags, depend, priority, detach);
}

/* The thread that creates the tasks of a loop also waits for them; its time outside of tasks is
 * reported as a wait. */
#define TASKLOOP(entry, name, type)                                                                \
    EXPORT void name(body *function, void *data, copier *copy, long size, long align,              \
                     unsigned flags, unsigned long tasks, int priority, type start, type end,      \
                     type step);                                                                   \
    void name(body *function, void *data, copier *copy, long size, long align, unsigned flags,     \
              unsigned long tasks, int priority, type start, type end, type step)                  \
    {                                                                                              \
        typedef void next(body *, void *, copier *, long, long, unsigned, unsigned long, int,      \
                          type, type, type);                                                       \
        uint64_t found = context_next(CALLS * NAMES + entry, #name, CALLER);                       \
        next *next_function = (next *)(found & ~SPEAKS_OMPT);                                      \
        if (found & SPEAKS_OMPT || !wrappable(size, align, flags)) {                               \
            next_function(function, data, copy, size, align, flags, tasks, priority, start, end,   \
                          step);                                                                   \
            return;                                                                                \
        }                                                                                          \
        struct task task;                                                                          \
        uint32_t number = context_number(TASK, 1, CALLER, "taskloop");                             \
        size = wrap(&task, function, data, copy, size, &align, number);                            \
        uint64_t before = context_enter(BARRIER, 3, CALLER, "taskloop");                           \
        next_function(run_loop_task, &task, copy_task, size, align, flags, tasks, priority, start, \
                      end, step);                                                                  \
        context_change(before, 0);                                                                 \
    }
TASKLOOP(13, GOMP_taskloop, long)
TASKLOOP(14, GOMP_taskloop_ull, unsigned long long)
