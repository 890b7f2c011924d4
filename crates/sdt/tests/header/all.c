/* Every macro of spile/sdt.h, with arguments of every type. */
#if defined(USER_SEMAPHORES)
#define _SDT_HAS_SEMAPHORES 1
#endif
#include <spile/sdt.h>

#if defined(USER_SEMAPHORES)
unsigned short compat_none_semaphore __attribute__((section(".probes")));
unsigned short compat_three_semaphore __attribute__((section(".probes")));
#endif

enum negative { BELOW = -1, ABOVE };
enum positive { ZERO, ONE };

struct thing {
    char array[5];
    unsigned bits : 3;
};

#ifdef __cplusplus
extern "C"
#endif
int sites(char c, signed char sc, unsigned char uc, short s, unsigned short us, int i,
          unsigned u, long l, unsigned long ul, void *p, enum negative n, enum positive e,
          struct thing *t);

int sites(char c, signed char sc, unsigned char uc, short s, unsigned short us, int i,
          unsigned u, long l, unsigned long ul, void *p, enum negative n, enum positive e,
          struct thing *t)
{
    static const char text[] = "text";
    const volatile int kept = 3;
    SPILE_PROBE(types, none);
    SPILE_PROBE(types, one, sc);
    SPILE_PROBE(types, twelve, sc, uc, s, us, i, u, l, ul, p, n, e, t);
    SPILE_PROBE(types, odd, c, text, "literal", t->array, kept, 5, 5UL, &i, sites, p == 0);
    SPILE_PROBE(types, bits, t->bits);
    SPILE_PROBE_SEM(types, sem, i, u + 1);
    if (SPILE_PROBE_ENABLED(types, sem))
        SPILE_PROBE_SEM(types, sem_inside, i + 1);
    if (i > 100)
        SPILE_PROBE(types, statement);
    else
        SPILE_PROBE(types, statement, i);
#if !defined(USER_SEMAPHORES)
    STAP_PROBE1(compat, one, i);
    STAP_PROBE2(compat, two, i, l);
    STAP_PROBE4(compat, four, i, l, p, u);
    STAP_PROBE12(compat, twelve, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    STAP_PROBEV(compat, zero_v);
    STAP_PROBEV(compat, two_v, i, l);
    DTRACE_PROBE(compat, zero_d);
    DTRACE_PROBE6(compat, six_d, i, l, p, u, s, us);
#endif
    STAP_PROBE(compat, none);
    STAP_PROBE3(compat, three, i, l, p);
    return i;
}

/* In a function that is in a group of its own, as C++ has many. */
#ifdef __cplusplus
template <typename T> T generic(T value)
{
    SPILE_PROBE(types, generic, value);
    return value;
}
struct holder {
    int kept;
    int method() const
    {
        int const &reference = kept;
        SPILE_PROBE(types, method, this, reference, kept);
        return kept;
    }
};
#endif

int main(int argc, char **argv)
{
    struct thing t = {{1, 2, 3, 4, 5}, 6};
    (void)argv;
#ifdef __cplusplus
    holder h = {argc};
    if (generic(argc) + int(generic('x')) + h.method() == 0)
        return 1;
#endif
    return sites((char)-1, -2, 200, -4, 60000, argc, 4000000000U, -7, 8, &t, BELOW, ONE, &t) - argc;
}
