/* The workload of `cargo xtask bench markers`: `markers plain|dormant|marked|called CALLS` calls one
 * of two functions that differ in a marker, or one that calls the kernel, and prints the least processor time of a call in ns, in
 * which others that run on the machine do not count. */
#include <spile/sdt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Many short ones: some fall between the disturbances of a shared machine. */
#define RUNS 400

__attribute__((noinline)) long plain(long a, long b)
{
    __asm__ __volatile__("" : : "r"(a), "r"(b) : "memory");
    return a * 3 + b;
}

__attribute__((noinline)) long marked(long a, long b)
{
    SPILE_PROBE(bench, hit, a, b);
    return a * 3 + b;
}

/* A system call, by an instruction whose number is a constant. */
__attribute__((noinline)) long called(long a, long b)
{
    return getppid() + a + b;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long (*volatile function)(long, long) = plain;
    long calls = argc > 2 ? atol(argv[2]) : 1000, i, sum = 0;
    double least = 1e18;
    int run;
    if (argc > 1 && strcmp(argv[1], "called") == 0)
        function = called;
    else if (argc > 1 && strcmp(argv[1], "plain") != 0)
        function = marked;
    for (run = 0; run < RUNS; run++) {
        double start = now(), took;
        for (i = 0; i < calls; i++)
            sum += function(i, run);
        took = (now() - start) / calls;
        if (took < least)
            least = took;
    }
    printf("%.3f %ld\n", least, sum & 1);
    return 0;
}
