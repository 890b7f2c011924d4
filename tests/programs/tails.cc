// `tails COUNT`: functions that leave by a jump to another one, which returns in their place, and
// which is called by others too. Prints how often each function returned.
#include <cstdio>
#include <cstdlib>

extern "C" {
#define FUNCTION __attribute__((noipa))
static int n_ends, n_twice, n_thrice, n_chooses, n_throws, n_through;

// Returns itself.
FUNCTION long ends(long n) {
    n_ends++;
    return n < 0 ? 0 : n + 1;
}

// Jumps to `ends`.
FUNCTION long twice(long n) { return ends(2 * n); }

// Jumps to `twice`, which jumps on.
FUNCTION long thrice(long n) { return twice(n + n / 2); }

// Returns, or jumps to one of two.
FUNCTION long chooses(long n) {
    if (n % 3 == 0)
        return 7;
    return n % 3 == 1 ? twice(n) : ends(n);
}

// Returns or throws.
FUNCTION long throws(long n) {
    if (n % 2)
        throw n;
    n_throws++;
    return n;
}

// Jumps to `throws`: where that throws, this call does not return either, and `throws` itself is
// called next with the same stack.
FUNCTION long through(long n) { return throws(n + 1); }

// Jumps to where nobody knows.
FUNCTION long anywhere(long (*f)(long), long n) { return f(n); }
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 10, sum = 0;
    for (long i = 0; i < count; i++) {
        sum += ends(i) + twice(i) + thrice(i) + chooses(i) + anywhere(ends, i);
        n_twice++;
        n_thrice++;
        n_chooses++;
        n_twice += 1 + (i % 3 == 1);
        try {
            sum += through(i);
            n_through++;
        } catch (long n) {
            sum += n;
        }
        sum += throws(2 * i);
    }
    printf("chooses %d\nends %d\nthrice %d\nthrough %d\nthrows %d\ntwice %d\nsum %ld\n", n_chooses, n_ends,
           n_thrice, n_through, n_throws, n_twice, sum);
}
