// A program whose functions print their arguments, which a script sets in registers.
#include <stdio.h>

#define FUNCTION __attribute__((noinline, noclone))

FUNCTION void wide(long a, long b, long c, unsigned long d, unsigned long e, long f) {
    printf("%ld %ld %ld %lu %lu %ld\n", a, b, c, d, e, f);
}
FUNCTION void first(unsigned long a) { printf("%lu\n", a); }

int main(void) {
    wide(10, 20, 30, 40, 50, 60);
    first(10);
    return 0;
}
