// A program whose variables are in registers, which a script sets. It prints what it computed.
#include <stdio.h>

#define FUNCTION __attribute__((noinline, noclone))

FUNCTION int work(int n, unsigned char c, long l, const char *s) {
    __asm__ volatile("" ::: "memory");
    return n * 2 + c + (int)l + *s;
}
FUNCTION short half(int n) { return (short)n; }
FUNCTION const char *text(int n) { return n ? "one" : "none"; }

int main(void) {
    int sum = work(1, 2, 3, "\1");
    int small = half(5);
    printf("work %d half %d text %s\n", sum, small, text(1));
    return 0;
}
