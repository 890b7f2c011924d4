/* Calls `chosen` 500 times, `same` 100 times, the old `f` 25 and the new one 50 times. */
#include <signal.h>

long chosen(long), same(long), f(long), old(long);
__asm__(".symver old,f@V1");

int main(int argc, char **argv) {
    long sum = 0;
    if (argc > 1) {
        sum = chosen(0); /* Lazy binding chooses now. */
        raise(SIGSTOP);
    }
    for (int i = 0; i < 500; i++) {
        sum += chosen(i);
        if (i % 5 == 0)
            sum += same(i);
        if (i % 10 == 0)
            sum += f(i);
        if (i % 20 == 0)
            sum += old(i);
    }
    return sum == 0;
}
