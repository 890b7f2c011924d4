/* Signals arrive all the time while threads call the kernel: between the instructions of calls, within handlers of probes,
 * and in calls that they end. Prints how often its handler ran, which calls getpgrp once each time. Other calls are: 80,000
 * of getppid, 2,000 bytes written and read one by one, and five programs that are executed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long handled, taken;
static int fds[2];

static void alarmed(int sig)
{
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
    getpgrp();
}

static void *calls(void *n)
{
    for (int i = 0; i < 20000; i++)
        getppid();
    return n;
}

static void *reads(void *n)
{
    char c;
    long got;
    /* A signal ends a read without bytes. */
    while ((got = read(fds[0], &c, 1)) != 0)
        taken += got == 1;
    return n;
}

int main(void)
{
    pthread_t t[5];
    struct sigaction a = { .sa_handler = alarmed, .sa_flags = 0 };
    struct itimerval every = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };
    char *args[] = { "true", 0 };
    extern char **environ;
    pipe(fds);
    sigaction(SIGALRM, &a, 0);
    pthread_create(t, 0, reads, 0);
    for (int i = 1; i < 5; i++)
        pthread_create(t + i, 0, calls, 0);
    setitimer(ITIMER_REAL, &every, 0);
    for (int i = 0; i < 2000; i++)
        while (write(fds[1], "x", 1) != 1)
            ;
    for (int i = 0; i < 5; i++) {
        pid_t pid;
        int status;
        if (posix_spawn(&pid, "/bin/true", 0, 0, args, environ) == 0)
            while (waitpid(pid, &status, 0) < 0)
                ;
    }
    for (int i = 1; i < 5; i++)
        pthread_join(t[i], 0);
    setitimer(ITIMER_REAL, &never, 0);
    close(fds[1]);
    pthread_join(t[0], 0);
    printf("%ld\n", handled);
    return taken != 2000;
}
