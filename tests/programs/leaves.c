// `leaves KIND COUNT`: calls that end by other ways than a return, or return on other stacks. Prints
// the calls of `step`, and how many of them returned.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long entered, returned, sum;
static int count;

// What the innermost call of `step` does before it returns.
static int (*inside)(int);

__attribute__((noipa)) int step(int n, int depth) {
    entered++;
    int value = depth > 0 ? step(n, depth - 1) : inside(n);
    returned++;
    sum += value + 1;
    return value + 1;
}

// Three coroutines that take turns in the middle of `step`.
static ucontext_t at_home, coroutines[3];
static int turn;

static int next_coroutine(int n) {
    int own = turn;
    turn = (turn + 1) % 3;
    swapcontext(&coroutines[own], &coroutines[turn]);
    return n;
}

static void coroutine(int number) {
    for (int i = 0; i < count; i++)
        step(i, number);
    // The others end, too, when it is their turn.
    for (;;) {
        turn = (turn + 1) % 3;
        if (number == 2)
            swapcontext(&coroutines[2], &at_home);
        swapcontext(&coroutines[number], &coroutines[turn]);
    }
}

static void by_coroutines(void) {
    inside = next_coroutine;
    for (int i = 0; i < 3; i++) {
        getcontext(&coroutines[i]);
        coroutines[i].uc_stack.ss_size = 256 << 10;
        coroutines[i].uc_stack.ss_sp = malloc(256 << 10);
        makecontext(&coroutines[i], (void (*)(void))coroutine, 1, i);
    }
    swapcontext(&at_home, &coroutines[0]);
}

// A signal handler on a stack of its own, which is above that of the interrupted function.
static int nothing(int n) { return n; }

static void on_signal(int number) {
    inside = nothing;
    step(number, 2);
}

static int raises(int n) {
    raise(SIGUSR1);
    return n;
}

static void by_signal(void) {
    char above[64 << 10];
    stack_t stack = {.ss_sp = above, .ss_size = sizeof above};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < count; i++) {
        inside = raises;
        step(i, 1);
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
}

static jmp_buf back;

static int jumps_out(int n) {
    if (n % 3 == 0)
        longjmp(back, 1);
    return n;
}

static void by_longjmp(void) {
    inside = jumps_out;
    for (volatile int i = 0; i < count; i++)
        if (!setjmp(back))
            step(i, i % 4);
}

static int ends_thread(int n) {
    if (n % 2)
        pthread_exit(NULL);
    return n;
}

static void *thread(void *n) {
    step((int)(long)n, 1);
    return NULL;
}

static void by_thread_exit(void) {
    inside = ends_thread;
    for (int i = 0; i < count; i++) {
        pthread_t id;
        pthread_create(&id, NULL, thread, (void *)(long)i);
        pthread_join(id, NULL);
    }
}

static int calls_vfork(int n) {
    if (vfork() == 0) {
        inside = nothing;
        step(n, 1);
        _exit(0);
    }
    inside = calls_vfork;
    return n;
}

static void by_vfork(void) {
    for (int i = 0; i < count; i++) {
        inside = calls_vfork;
        step(i, 1);
        wait(NULL);
    }
}

// The calls that are running when the process forks return in both.
static int calls_fork(int n) {
    if (fork() == 0)
        return n;
    wait(NULL);
    return n;
}

static void by_fork(void) {
    int parent = getpid();
    for (int i = 0; i < count; i++) {
        inside = calls_fork;
        step(i, 1);
        if (getpid() != parent)
            _exit(0);
    }
    // Those of the children.
    returned += 2 * count;
    for (int i = 0; i < count; i++)
        sum += 2 * i + 3;
}

// Each process calls `step` and executes the next one in the middle of it; the last one returns.
static const char *program, *exec_left;

static int execs(int n) {
    char left[16];
    snprintf(left, sizeof left, "%d", n - 1);
    if (n > 0)
        execl(program, program, "exec", left, NULL);
    return n;
}

static void by_exec(void) {
    inside = execs;
    step(count, 1);
}

// `step` calls itself by way of another function: COUNT + 1 calls.
static int between(int n) { return n == 0 ? 0 : step(n - 1, 0); }

static void by_way_of_another(void) {
    inside = between;
    step(count, 0);
}

// Waits for a line in the middle of the first calls.
static int waits(int n) {
    if (n == 0) {
        puts("waits");
        fflush(stdout);
        getchar();
    }
    return n;
}

static void by_waiting(void) {
    inside = waits;
    for (int i = 0; i < count; i++)
        step(i, 2);
}

int main(int argc, char **argv) {
    program = argv[0];
    const char *kind = argc > 1 ? argv[1] : "";
    count = argc > 2 ? atoi(argv[2]) : 10;
    const struct {
        const char *name;
        void (*run)(void);
    } kinds[] = {
        {"coroutines", by_coroutines},   {"signal", by_signal}, {"longjmp", by_longjmp},
        {"thread-exit", by_thread_exit}, {"vfork", by_vfork},   {"fork", by_fork},
        {"exec", by_exec}, {"another", by_way_of_another}, {"began", by_waiting},
    };
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, kind))
            kinds[i].run();
    printf("%s entered %ld returned %ld sum %ld\n", kind, entered, returned, sum);
}
