// Functions that an exception leaves in some calls, and that return in others. Prints how often `deep`
// returned, and the sum of its results.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

extern "C" {
__attribute__((noipa)) void fails(int n) {
    if (n % 3 == 0)
        throw std::string("three");
}

__attribute__((noipa)) long twice(int n) {
    fails(n);
    asm volatile("");
    return 2L * n;
}

// Recursive: an exception of the innermost call passes through all calls.
__attribute__((noipa)) long deep(int n, int left) {
    long sum = left == 0 ? twice(n) : deep(n, left - 1);
    asm volatile("");
    return sum + 1;
}

// No exception can pass through this function.
__attribute__((noipa)) int leaf(int n) { return n / 3; }

// Returns where another function returns: a tail call.
__attribute__((noipa)) long jumps(int n) { return twice(n + 1); }
}

static void work(int rounds, long *returned, long *sum, int deepest) {
    for (int i = 1; i <= rounds; i++) {
        try {
            int left = i % 60 == 0 ? deepest : leaf(i) % 5;
            long value = deep(i, left);
            // Each inner call returned one less.
            *sum += (left + 1) * value - left * (left + 1) / 2;
            *returned += left + 1;
        } catch (const std::string &) {
        }
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    long returned[2] = {}, sum[2] = {};
    std::thread other(work, rounds, &returned[1], &sum[1], 9000);
    work(rounds, &returned[0], &sum[0], 7000);
    other.join();
    try {
        jumps(3);
    } catch (const std::string &) {
    }
    printf("deep returned %ld sum %ld\n", returned[0] + returned[1], sum[0] + sum[1]);
}
