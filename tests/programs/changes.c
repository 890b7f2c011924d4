// A program whose variables, memory and signals a script changes. It prints their values.

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct pair {
    char small;
    short middle;
    int number;
    long large;
    unsigned flag : 3;
    struct pair *next;
};

volatile int shared = 1;
static struct pair last = {1, 1, 1, 1, 1, 0};
static char text[16] = "before";
static volatile sig_atomic_t caught;

static void on_signal(int number) { caught = number; }

__attribute__((noinline)) int add(volatile int amount, struct pair *pair, char *name) {
    volatile int local = 10;
    /* here */ local += amount;
    (void)pair;
    (void)name;
    return local;
}

int main(void) {
    struct pair first = {1, 1, 1, 1, 1, &last};
    signal(SIGUSR1, on_signal);
    // Written first, so that the process has its own copies of these pages.
    shared = 1;
    last.number = 1;
    text[6] = 0;
    int sum = add(5, &first, text);
    printf("sum %d shared %d\n", sum, shared);
    printf("first %d %d %d %ld\n", first.small, first.middle, first.number, first.large);
    printf("last %d %ld text %s caught %d\n", last.number, last.large, text, (int)caught);
    return 0;
}
