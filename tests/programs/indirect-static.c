/* Copies 1234 bytes 500 times, and calls a function with clones as often. */
#include <signal.h>
#include <string.h>

void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static char from[5000], to[5000];
static long numbers[8];

__attribute__((noinline, target_clones("avx2", "sse4.2", "default"))) long counted(long *x, int n) {
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * i;
    return sum;
}

int main(int argc, char **argv) {
    long sum = 0;
    if (argc > 1)
        raise(SIGSTOP);
    for (int i = 0; i < 500; i++) {
        copy(to, from, 1234);
        sum += counted(numbers, 8);
    }
    return sum;
}
