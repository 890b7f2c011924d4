/* Threads in system calls that block, each in its own way: the kernel restarts each in its own way after a stop. At a word
 * from the standard input all go on; prints what they returned. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int pipes[2][2];
static int word;
static int errors;

__attribute__((noinline, noclone)) long plain(long a)
{
    __asm__ volatile("" : "+r"(a));
    return a * 3;
}

static long checked(long result)
{
    plain(1);
    if (result < 0)
        errors++;
    return result;
}

static void *polls(void *argument)
{
    struct pollfd fd = { pipes[0][0], POLLIN, 0 };
    (void)argument;
    return (void *)checked(poll(&fd, 1, 100000));
}

static void *reads(void *argument)
{
    char byte;
    (void)argument;
    return (void *)checked(read(pipes[1][0], &byte, 1));
}

static void *sleeps(void *argument)
{
    struct timespec time = { 2, 0 };
    (void)argument;
    return (void *)checked(nanosleep(&time, NULL));
}

static void *waits(void *argument)
{
    struct timespec time = { 100, 0 };
    (void)argument;
    return (void *)checked(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0));
}

static volatile int handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static void *suspends(void *argument)
{
    sigset_t none;
    (void)argument;
    sigemptyset(&none);
    while (!handled && sigsuspend(&none) == -1 && errno == EINTR)
        ;
    checked(0);
    return (void *)(long)handled;
}

int main(void)
{
    void *(*work[])(void *) = { polls, reads, sleeps, waits, suspends };
    pthread_t all[5];
    long results[5];
    char line[64];
    sigset_t usr1;
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    if (pipe(pipes[0]) || pipe(pipes[1]))
        return 1;
    for (int i = 0; i < 5; i++)
        pthread_create(&all[i], NULL, work[i], NULL);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    if (write(pipes[0][1], "x", 1) != 1 || write(pipes[1][1], "x", 1) != 1)
        return 1;
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_kill(all[4], SIGUSR1);
    for (int i = 0; i < 5; i++) {
        void *result;
        pthread_join(all[i], &result);
        results[i] = (long)result;
    }
    plain(2);
    printf("poll %ld read %ld nanosleep %ld futex %ld sigsuspend %ld errors %d\n", results[0], results[1], results[2],
           results[3], results[4], errors);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
    return 7;
}
