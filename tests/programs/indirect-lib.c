/* A library with indirect functions, and a function in two versions. */
#include <unistd.h>

static long one(long x) { return x + 1; }
static long two(long x) { return x + 2; }
__attribute__((visibility("hidden"))) long three(long x) { return x + 3; }
static long other(long x) { return x + 4; }

static void *choose(void) {
    int pid = getpid();
    return pid == 1 ? (void *)two : pid == 2 ? (void *)three : (void *)one;
}
long chosen(long) __attribute__((ifunc("choose")));

static void *choose_other(void) { return other; }
long same(long) __attribute__((ifunc("choose_other")));

long old_f(long x) { return x * 5; }
long new_f(long x) { return x * 7; }
__asm__(".symver old_f,f@V1\n.symver new_f,f@@V2");
