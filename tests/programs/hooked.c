/* Calls functions a known number of times from several threads, at a word from its standard input:
 *
 *     hooked THREADS CALLS [signals] [fork|vfork|rawfork] [time] [exec]
 *
 * prints "ready", waits for a line, makes the calls, prints the numbers, waits for the end of the input, ends with 7. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, aligned(16)))

static atomic_long in_signals;
static long calls;
static int endless;
static volatile int stop;

KEEP long plain(long a, long b)
{
    __asm__ volatile("" : "+r"(a));
    return a * 3 + b;
}

/* Its first instructions use rip and branch. */
static volatile long table[4] = { 1, 2, 3, 4 };
KEEP long relative(long a)
{
    if (table[0] == a)
        return table[1];
    return table[2] + a;
}

/* Its caller goes on with the flags and registers that it had. */
KEEP long signalled(long a)
{
    __asm__ volatile("" : "+r"(a));
    return a + 1;
}

KEEP double floating(double a, double b)
{
    return a * b + 1.0;
}

extern uint64_t registers(uint64_t *from);
/* Calls `bare` with all registers and flags set to known values, and sums what they are afterwards. */
__asm__(".text\n.globl bare\n.type bare,@function\n.p2align 4\n"
        "bare: nop\n nop\n nop\n nop\n nop\n nop\n ret\n.size bare,.-bare\n"
        ".globl registers\n.type registers,@function\n.p2align 4\n"
        "registers:\n"
        " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov $1,%eax\n mov $2,%ebx\n mov $3,%ecx\n mov $4,%edx\n mov $5,%esi\n mov $6,%ebp\n"
        " mov $8,%r8d\n mov $9,%r9d\n mov $10,%r10d\n mov $11,%r11d\n mov $12,%r12d\n"
        " mov $13,%r13d\n mov $14,%r14d\n mov $15,%r15d\n"
        " sub $8,%rsp\n push %rdi\n popf\n mov $7,%edi\n"
        " call bare\n"
        " pushf\n"
        " shl $4,%rax\n add %rbx,%rax\n shl $4,%rax\n add %rcx,%rax\n shl $4,%rax\n add %rdx,%rax\n"
        " shl $4,%rax\n add %rsi,%rax\n shl $4,%rax\n add %rdi,%rax\n shl $4,%rax\n add %rbp,%rax\n"
        " shl $4,%rax\n add %r8,%rax\n shl $4,%rax\n add %r9,%rax\n shl $4,%rax\n add %r10,%rax\n"
        " shl $4,%rax\n add %r11,%rax\n shl $4,%rax\n add %r12,%rax\n shl $4,%rax\n add %r13,%rax\n"
        " shl $4,%rax\n add %r14,%rax\n shl $4,%rax\n add %r15,%rax\n"
        " pop %rdi\n and $0x8d5,%edi\n shl $48,%rdi\n xor %rdi,%rax\n"
        " add $8,%rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
        ".size registers,.-registers\n");

static void handler(int signal)
{
    int saved = errno;
    (void)signal;
    in_signals++;
    signalled(1);
    errno = saved;
}

static void *work(void *argument)
{
    long sum = 0;
    double product = 1;
    stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
    sigaltstack(&stack, NULL);
    for (long i = 0; (i < calls || endless) && !stop; i++) {
        sum += plain(i, (long)argument) + relative(i & 3);
        product = floating(product, 0.5);
    }
    return (void *)(sum + (long)(product * 1000));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int has(char **words, const char *word)
{
    for (; *words; words++)
        if (!strcmp(*words, word))
            return 1;
    return 0;
}

static void child(char **words)
{
    pid_t pid;
    if (has(words, "fork"))
        pid = fork();
    else if (has(words, "rawfork"))
        pid = syscall(SYS_fork);
    else if (has(words, "vfork"))
        pid = vfork();
    else
        return;
    if (pid == 0) {
        for (int i = 0; i < 1000; i++)
            plain(i, 1);
        _exit(0);
    }
    for (int i = 0; i < 1000; i++)
        plain(i, 1);
    waitpid(pid, NULL, 0);
    printf("child %d\n", pid);
}

int main(int count, char **argv)
{
    int threads = count > 2 ? atoi(argv[1]) : 1;
    pthread_t all[256];
    char line[64];
    calls = atol(argv[2]);
    endless = calls == 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (!endless && !fgets(line, sizeof line, stdin))
        return 1;
    if (has(argv, "signals")) {
        struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK };
        struct itimerval timer = { { 0, 50 }, { 0, 50 } };
        sigaction(SIGPROF, &action, NULL);
        action.sa_flags = SA_RESTART;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_PROF, &timer, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    if (has(argv, "exec"))
        execl("/proc/self/exe", argv[0], argv[1], argv[2], NULL);
    child(argv);
    long sum = 0;
    for (long i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    if (endless) {
        if (!fgets(line, sizeof line, stdin))
            return 1;
        stop = 1;
    }
    for (long i = 0; i < threads; i++) {
        void *result;
        pthread_join(all[i], &result);
        sum += (long)result;
    }
    if (has(argv, "time")) {
        double best = 1e9;
        for (int round = 0; round < 40; round++) {
            double since = now();
            for (int i = 0; i < 20000; i++)
                plain(i, 2);
            double took = (now() - since) / 20000;
            best = took < best ? took : best;
        }
        printf("nanoseconds %.2f\n", best);
    }
    uint64_t flags = registers((uint64_t *)0x202);
    flags = flags * 31 + registers((uint64_t *)0xad7);
    struct itimerval none = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_PROF, &none, NULL);
    setitimer(ITIMER_REAL, &none, NULL);
    printf("sum %ld registers %llx\n", endless ? 0 : sum, (unsigned long long)flags);
    printf("signals %ld\n", (long)in_signals);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
    return 7;
}
