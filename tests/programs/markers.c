/* Markers with known values, for tests/cases/markers.toml.
 *
 * markers types COUNT   markers with arguments of all types
 * markers places COUNT  one marker at three places, each with its arguments elsewhere
 * markers enabled       prints whether a tracer is attached
 * markers told          waits until a tracer is attached, and prints that
 * markers wait          waits until a tracer is attached, and hits the marker until it detaches
 */
#include <spile/sdt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum sign { MINUS = -1, PLUS = 1 };

static const char text[] = "a text";

__attribute__((noinline)) static void types(signed char c, unsigned char uc, short s,
                                            unsigned short us, int i, unsigned u, long l,
                                            unsigned long ul, void *p, enum sign e)
{
    SPILE_PROBE(types, all, c, uc, s, us, i, u, l, ul, p, e, 12, 'x');
    SPILE_PROBE(types, none);
    SPILE_PROBE(types, string__end, text, "literal");
    STAP_PROBE2(other, all, us, text);
}

__attribute__((noinline)) static int places(int a, int *b)
{
    SPILE_PROBE(types, place, a, *b);
    if (a > 1)
        SPILE_PROBE(types, place, 100 + a, *b);
    SPILE_PROBE(types, place, *b, a);
    return a + *b;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int count = argc > 2 ? atoi(argv[2]) : 1, i;
    for (i = 1; i <= count; i++) {
        int value = -i;
        if (strcmp(what, "types") == 0)
            types(-2, 200, -4, 60000, -5, 4000000000U, -7, 8, (void *)0x1234, MINUS);
        else if (strcmp(what, "places") == 0)
            places(i, &value);
        else if (strcmp(what, "enabled") == 0)
            printf("enabled %d\n", SPILE_PROBE_ENABLED(types, sem));
        while ((strcmp(what, "wait") == 0 || strcmp(what, "told") == 0)
               && !SPILE_PROBE_ENABLED(types, sem))
            usleep(1000);
        if (strcmp(what, "told") == 0)
            printf("told\n");
        do {
            SPILE_PROBE_SEM(types, sem, i);
        } while (strcmp(what, "wait") == 0 && SPILE_PROBE_ENABLED(types, sem)
                 && usleep(1000) == 0);
    }
    return 0;
}
