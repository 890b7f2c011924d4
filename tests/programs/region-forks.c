/*
 * Regions within the handlers of pthread_atfork(), in forks by several threads. The first region of
 * the program is in a handler. With -DLOCKED the program has its own fork(), which holds a lock while
 * handlers run, as glibc before 2.36 and musl do.
 *
 * Prints how often each region was entered.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spile/region.h"

enum { THREADS = 4, FORKS = 20 };

#ifdef LOCKED
static struct handlers {
    void (*prepare)(void), (*parent)(void), (*child)(void);
} all[8];
static int number;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *gnu_get_libc_version(void)
{
    return "2.35";
}

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *module)
{
    (void)module;
    pthread_mutex_lock(&lock);
    if (number == 8)
        abort();
    all[number++] = (struct handlers){prepare, parent, child};
    pthread_mutex_unlock(&lock);
    return 0;
}

static pid_t forked(void)
{
    pthread_mutex_lock(&lock);
    for (int i = number; i-- > 0;)
        if (all[i].prepare != NULL)
            all[i].prepare();
    pid_t pid = _Fork();
    for (int i = 0; i < number; i++) {
        void (*handler)(void) = pid == 0 ? all[i].child : all[i].parent;
        if (handler != NULL)
            handler();
    }
    pthread_mutex_unlock(&lock);
    return pid;
}

static void set_handlers(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    __register_atfork(prepare, parent, child, NULL);
}
#else
#define forked fork
#define set_handlers pthread_atfork
#endif

static void prepare(void)
{
    SPILE_REGION_BEGIN("prepare");
    SPILE_REGION_END();
}

static void parent(void)
{
    SPILE_REGION_BEGIN("parent");
    SPILE_REGION_END();
}

static void child(void)
{
    SPILE_REGION_BEGIN("child");
    SPILE_REGION_END();
}

static void *forks(void *argument)
{
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = forked();
        if (pid == 0)
            _exit(0);
        if (pid < 0 || waitpid(pid, NULL, 0) < 0)
            abort();
    }
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];
    set_handlers(prepare, parent, child);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, forks, NULL) != 0)
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("prepare %d\nparent %d\nchild %d\n", THREADS * FORKS, THREADS * FORKS, THREADS * FORKS);
}
