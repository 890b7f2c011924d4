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
 * The profile reports the time of the thread between the two macros as "assembly", below the region
 * that surrounds it. Regions nest. Each region ends in the thread in which it began, in any function.
 * Names are string literals. Threads that start inside a region begin outside of all regions.
 *
 *     {
 *         SPILE_REGION("assembly");
 *         ...
 *     }
 *
 * A SPILE_REGION() lasts to the end of its block, also if a return or a C++ exception leaves the
 * block. It also ends inner regions whose end an exception or longjmp() skipped.
 *
 * `spile profile` loads the library that implements regions. Without the library a region costs two
 * tests of a pointer, and the program links nothing.
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
 * the dynamic linker fills. Compilers may use a constant instead, which the linker sets to zero in
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
