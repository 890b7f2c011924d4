/*
 * spile/region.h - names for parts of a program in C and C++, for `spile profile`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 *     #include <spile/region.h>
 *
 *     SPILE_REGION_BEGIN("assembly");
 *     ...
 *     SPILE_REGION_END();
 *
 * What a thread does between the two is told as "assembly" in the profile, below the region that
 * the thread was in. Regions nest; each beginning has its end in the same thread, in any function.
 * Names are string literals. Threads that are made inside begin outside of all regions.
 *
 *     {
 *         SPILE_REGION("assembly");
 *         ...
 *     }
 *
 * SPILE_REGION() lasts to the end of the block that it is in, however the block is left: by return,
 * by a C++ exception. It also ends what began within and has no end because an exception or longjmp()
 * passed that by.
 *
 * `spile profile` loads the library behind this by itself. Without it a region is two tests of a
 * pointer; nothing is linked.
 */
#ifndef SPILE_REGION_H
#define SPILE_REGION_H 1

#if !defined(__GNUC__)
#error "spile/region.h needs gcc or clang"
#endif

#if defined(__cplusplus)
extern "C" {
#endif
extern __attribute__((__weak__)) void spile_region_begin(const char *name);
extern __attribute__((__weak__)) void spile_region_end(void);
extern __attribute__((__weak__)) unsigned spile_region_enter(const char *name);
extern __attribute__((__weak__)) void spile_region_leave(unsigned before);
#if defined(__cplusplus)
}
#endif

/*
 * SPILE_REGION_ADDRESS(function, place) reads the address of a weak function from the table that
 * the dynamic linker fills. A compiler's own way may be a constant, which the linker makes zero in
 * programs that are not position-independent.
 */
#if defined(__x86_64__) && defined(__LP64__)
#define SPILE_REGION_ADDRESS(function, place)                                                      \
    __asm__(".weak " #function "\n\tmovq " #function "@GOTPCREL(%%rip), %0" : "=r"(place))
#elif defined(__aarch64__)
#define SPILE_REGION_ADDRESS(function, place)                                                      \
    __asm__(".weak " #function "\n\tadrp %0, :got:" #function "\n\tldr %0, [%0, :got_lo12:" #function "]" : "=r"(place))
#else
#define SPILE_REGION_ADDRESS(function, place) ((place) = (function))
#endif

#define SPILE_REGION_BEGIN(name)                                                                   \
    do {                                                                                           \
        void (*spile_region_)(const char *);                                                       \
        SPILE_REGION_ADDRESS(spile_region_begin, spile_region_);                                   \
        if (spile_region_)                                                                         \
            spile_region_("" name "");                                                             \
    } while (0)

#define SPILE_REGION_END()                                                                         \
    do {                                                                                           \
        void (*spile_region_)(void);                                                               \
        SPILE_REGION_ADDRESS(spile_region_end, spile_region_);                                     \
        if (spile_region_)                                                                         \
            spile_region_();                                                                       \
    } while (0)

static __inline__ __attribute__((__unused__)) void spile_region_leave_(unsigned *before)
{
    void (*place)(unsigned);
    SPILE_REGION_ADDRESS(spile_region_leave, place);
    if (place)
        place(*before);
}

#define SPILE_REGION_JOIN_(a, b) a##b
#define SPILE_REGION_JOIN(a, b) SPILE_REGION_JOIN_(a, b)
#define SPILE_REGION(name)                                                                         \
    __attribute__((__cleanup__(spile_region_leave_), __unused__)) unsigned SPILE_REGION_JOIN(      \
        spile_region_, __LINE__) = __extension__({                                                 \
        unsigned (*spile_region_)(const char *);                                                   \
        SPILE_REGION_ADDRESS(spile_region_enter, spile_region_);                                   \
        spile_region_ ? spile_region_("" name "") : 0;                                             \
    })

#endif
