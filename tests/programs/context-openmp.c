/* OpenMP regions, waits and tasks that report their region, in threads and in a forked child. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../../include/spile/region.h"
#include "context-ask.h"

static void *thread(void *data)
{
    ask("thread");
    return data;
}

static void regions(int again)
{
#pragma omp parallel num_threads(3) /* LINE region */
    {
        ask("in-region");
#pragma omp barrier /* LINE barrier */
        ask("after-barrier");
    }
    ask("between");

    long sum = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(2) reduction(+ : sum) /* LINE loop */
    for (int i = 0; i < 4; i++) {
        ask("in-loop");
        sum += i;
    }

#pragma omp parallel num_threads(2) /* LINE tasks */
    {
#pragma omp single
        {
            for (int i = 0; i < 3; i++) {
                char a = 'a';
                double b = 2.5;
#pragma omp task firstprivate(i, a, b) /* LINE task */
                {
                    if (i < 0 || i > 2 || a != 'a' || b != 2.5)
                        abort();
                    ask("in-task");
                }
            }
            ask("before-taskwait");
#pragma omp taskwait
            ask("after-taskwait");
            long loop = 0;
#pragma omp taskloop num_tasks(2) reduction(+ : loop) /* LINE taskloop */
            for (int i = 0; i < 10; i++) {
                ask("in-taskloop");
                loop += i;
            }
            if (loop != 45)
                abort();
        }
        ask("after-single");
    }

#pragma omp parallel sections num_threads(2)
    {
#pragma omp section
        ask("in-section");
#pragma omp section
        ask("in-section");
    }

    int count = 0;
#pragma omp parallel num_threads(2)
    {
#pragma omp critical
        {
            ask("in-critical");
            count++;
        }
    }
    if (sum != 6 || count != 2)
        abort();
    if (again)
        regions(0);
}

int main(void)
{
    ask("outside");
    SPILE_REGION_BEGIN("outer");
    SPILE_REGION_BEGIN("inner");
    ask("in-inner");
    pthread_t made;
    pthread_create(&made, NULL, thread, NULL);
    pthread_join(made, NULL);
    SPILE_REGION_END();
    ask("in-outer");
    regions(1);
    ask("in-outer-again");
    pid_t child = fork();
    if (child == 0) {
        ask("in-child");
        SPILE_REGION_BEGIN("child");
        ask("in-child-region");
        SPILE_REGION_END();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SPILE_REGION_END();
    SPILE_REGION_END();
    ask("end");
    return 0;
}
