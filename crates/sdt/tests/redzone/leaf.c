/* A leaf function with a marker and words that fill the red zone's upper end. */
#include <stdio.h>
#include <stdlib.h>

#ifdef BARE
/* The negative control: the marker's instruction without what protects the red zone. */
#define MARKER(seed) __asm__ __volatile__( \
    ".globl leaf_site\nleaf_site: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00" : : "r"(seed))
#else
#include <spile/sdt.h>
#define MARKER(seed) SPILE_PROBE_SEM(redzone, leaf, seed, kept)
#endif

#ifdef __cplusplus
extern "C"
#endif
int leaf_patch(void *site);

/* clang unrolls the loops and keeps fewer words below the stack pointer, gcc leaves the
 * first place empty where the number is even. */
#if defined(__clang__)
#define KEPT 8
#else
#define KEPT 15
#endif

#if !defined(__clang__)
__attribute__((noclone))
#endif
__attribute__((noinline)) static long leaf(long seed)
{
    volatile long kept[KEPT];
    long i, wrong = 0;
    for (i = 0; i < KEPT; i++)
        kept[i] = seed + i;
    MARKER(seed);
    for (i = 0; i < KEPT; i++)
        wrong += kept[i] != seed + i;
    return wrong;
}

/* ROUNDS [SITE]: with an address, the site's no-operation becomes a call first. */
int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1, damaged = 0, i;
    if (argc > 2 && leaf_patch((void *)strtoul(argv[2], NULL, 0)) != 0)
        return 1;
    for (i = 0; i < rounds; i++)
        damaged += leaf(i * 7919) != 0;
    printf("%ld rounds, %ld damaged\n", rounds, damaged);
    return 0;
}
