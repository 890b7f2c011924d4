/*
 * spile/sdt.h - static markers for C and C++.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 *     #include <spile/sdt.h>
 *
 *     SPILE_PROBE(shop, sold)                     a marker without arguments
 *     SPILE_PROBE(shop, sold, item, price)        ... with up to 12
 *     SPILE_PROBE_SEM(shop, sold, item, price)    ... and with a semaphore, which
 *     if (SPILE_PROBE_ENABLED(shop, sold)) ...    tests whether a tracer is attached
 *
 * Arguments are integers, enumerators, booleans and pointers (arrays decay) of 1,
 * 2, 4 or 8 bytes. Each is evaluated once. STAP_PROBEn and DTRACE_PROBEn are other
 * names for the same macros, which existing code uses.
 *
 * A marker is one no-operation in the code and a note in the section
 * .note.stapsdt, which gives the addresses of the marker and of its arguments.
 * perf, bpftrace, gdb and SystemTap read this format. A marker runs no code and
 * links nothing.
 *
 * On x86-64 the no-operation has five bytes. Linux 6.18 and later replaces it by a
 * call while the marker is probed. A call writes below the stack pointer, where a
 * leaf function may keep data (the "red zone"). A function with a marker must
 * therefore have no red zone; SPILE_SDT_EMIT below ensures this.
 */
#ifndef SPILE_SDT_H
#define SPILE_SDT_H 1

#if defined(__GNUC__)
#pragma GCC system_header
#else
#error "spile/sdt.h needs gcc or clang"
#endif

/* ---- the processor ---- */

#if defined(__LP64__) || defined(_LP64)
#define SPILE_SDT_WORD ".8byte "
#else
#define SPILE_SDT_WORD ".4byte "
#endif

#if defined(__x86_64__) || defined(__i386__)
#define SPILE_SDT_NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#else
#define SPILE_SDT_NOP "nop"
#endif

/* Places for an argument. gcc chooses the cheapest one: a constant, memory or a
 * register. clang would copy each argument to memory if it were allowed. */
#if defined(__clang__) && !defined(__i386__)
#define SPILE_SDT_WHERE "nr"
#else
#define SPILE_SDT_WHERE "nor"
#endif

/*
 * SPILE_SDT_EMIT(text, inputs) emits the assembler text such that the surrounding
 * function has no red zone. Only leaf functions have one, and the text claims that
 * it may jump to a call. The jump never happens; the call takes two to five bytes
 * behind the function's end. (A clobber of the stack pointer changes nothing in gcc
 * and clang, and the clobber "redzone" exists since gcc 15.) clang before version 9
 * has no asm goto; there, a variable that needs an aligned stack has this effect.
 */
#if !defined(__x86_64__) || defined(__ILP32__)
#define SPILE_SDT_EMIT(text, ...) \
    __extension__({ __asm__ __volatile__(text : : __VA_ARGS__ : "memory"); })
#elif !defined(SPILE_SDT_NO_ASM_GOTO) && (!defined(__clang__) || __clang_major__ >= 9)
#if defined(__cplusplus) && __cplusplus >= 201703L
#define SPILE_SDT_NOEXCEPT noexcept
#else
#define SPILE_SDT_NOEXCEPT
#endif
#define SPILE_SDT_EMIT(text, ...) \
    __extension__({ \
        __label__ spile_sdt_never; \
        __asm__ goto(text : : __VA_ARGS__ : "memory" : spile_sdt_never); \
        if (0) { \
            void (*spile_sdt_fn)(void) SPILE_SDT_NOEXCEPT; \
        spile_sdt_never: \
            __asm__("" : "=r"(spile_sdt_fn)); \
            spile_sdt_fn(); \
            __builtin_unreachable(); \
        } \
    })
#else
#define SPILE_SDT_EMIT(text, ...) \
    __extension__({ \
        char spile_sdt_pad[32] __attribute__((aligned(32))); \
        __asm__ __volatile__(text : "=m"(spile_sdt_pad) : __VA_ARGS__ : "memory"); \
    })
#endif

/* ---- the size of an argument in bytes, negative where it is signed ---- */

#if defined(__cplusplus)
extern "C++" {
template <typename T> struct spile_sdt_size {
    enum { value = T(-1) < T(1) ? -int(sizeof(T)) : int(sizeof(T)) };
};
template <> struct spile_sdt_size<bool> { enum { value = 1 }; };
template <typename T> struct spile_sdt_size<T *> { enum { value = sizeof(T *) }; };
#if __cplusplus >= 201103L
template <> struct spile_sdt_size<decltype(nullptr)> { enum { value = sizeof(void *) }; };
#endif
/* Takes arguments by value: arrays decay, and bit-fields and packed members are allowed. */
template <typename T> __attribute__((__always_inline__)) inline T spile_sdt_value(T v)
{
    return v;
}
}
#define SPILE_SDT_VALUE(x) (spile_sdt_value(x))
#define SPILE_SDT_SIZE(x) (int(spile_sdt_size<__typeof__(SPILE_SDT_VALUE(x))>::value))
#else
/* The comma turns an array into a pointer and keeps the type of small integers.
 * Class 5 contains pointers, which constants cannot compare. */
#define SPILE_SDT_VALUE(x) ((void)0, (x))
#define SPILE_SDT_INTEGER(x) \
    __typeof__(__builtin_choose_expr( \
        __builtin_classify_type(x) == 5, 0UL, SPILE_SDT_VALUE(x)))
#define SPILE_SDT_SIZE(x) \
    ((SPILE_SDT_INTEGER(x)) - 1 < (SPILE_SDT_INTEGER(x))1 \
         ? -(int)sizeof(__typeof__(SPILE_SDT_VALUE(x))) \
         : (int)sizeof(__typeof__(SPILE_SDT_VALUE(x))))
#endif

/* ---- the record ---- */

#define SPILE_SDT_STR_(x) #x
#define SPILE_SDT_STR(x) SPILE_SDT_STR_(x)
#define SPILE_SDT_SEM_NAME(provider, name) \
    SPILE_SDT_STR(provider) "_" SPILE_SDT_STR(name) "_semaphore"

/* Consumers compute from this address how far prelink moved the file. All objects of
 * a link share it. */
#define SPILE_SDT_BASE \
    ".ifndef _.stapsdt.base\n" \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n" \
    ".hidden _.stapsdt.base\n" \
    "_.stapsdt.base: .space 1\n" \
    ".size _.stapsdt.base, 1\n" \
    ".popsection\n" \
    ".endif\n"

/* A semaphore without a definition elsewhere: all objects that name it share it. */
#define SPILE_SDT_SEM_DEFINE(sem) \
    ".ifndef " sem "\n" \
    ".pushsection .probes,\"awG\",\"progbits\"," sem ",comdat\n" \
    ".balign 2\n" \
    ".weak " sem "\n" \
    ".hidden " sem "\n" \
    ".type " sem ", STT_OBJECT\n" \
    ".size " sem ", 2\n" \
    sem ": .2byte 0\n" \
    ".popsection\n" \
    ".endif\n"

#define SPILE_SDT_TEXT(provider, name, define, sem, args) \
    "990: " SPILE_SDT_NOP "\n" \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n" \
    ".balign 4\n" \
    ".4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n" \
    "992: .balign 4\n" \
    "993: " SPILE_SDT_WORD "990b\n" \
    SPILE_SDT_WORD "_.stapsdt.base\n" \
    SPILE_SDT_WORD sem "\n" \
    ".asciz \"" SPILE_SDT_STR(provider) "\"\n" \
    ".asciz \"" SPILE_SDT_STR(name) "\"\n" \
    ".asciz \"" args "\"\n" \
    "994: .balign 4\n" \
    ".popsection\n" \
    SPILE_SDT_BASE define

/* ---- arguments ---- */

#define SPILE_SDT_T1 "%c[s1]@%[a1]"
#define SPILE_SDT_T2 SPILE_SDT_T1 " %c[s2]@%[a2]"
#define SPILE_SDT_T3 SPILE_SDT_T2 " %c[s3]@%[a3]"
#define SPILE_SDT_T4 SPILE_SDT_T3 " %c[s4]@%[a4]"
#define SPILE_SDT_T5 SPILE_SDT_T4 " %c[s5]@%[a5]"
#define SPILE_SDT_T6 SPILE_SDT_T5 " %c[s6]@%[a6]"
#define SPILE_SDT_T7 SPILE_SDT_T6 " %c[s7]@%[a7]"
#define SPILE_SDT_T8 SPILE_SDT_T7 " %c[s8]@%[a8]"
#define SPILE_SDT_T9 SPILE_SDT_T8 " %c[s9]@%[a9]"
#define SPILE_SDT_T10 SPILE_SDT_T9 " %c[s10]@%[a10]"
#define SPILE_SDT_T11 SPILE_SDT_T10 " %c[s11]@%[a11]"
#define SPILE_SDT_T12 SPILE_SDT_T11 " %c[s12]@%[a12]"

#define SPILE_SDT_I(n, x) \
    [s##n] "n"(SPILE_SDT_SIZE(x)), [a##n] SPILE_SDT_WHERE(SPILE_SDT_VALUE(x))
#define SPILE_SDT_I1(a) SPILE_SDT_I(1, a)
#define SPILE_SDT_I2(a, b) SPILE_SDT_I1(a), SPILE_SDT_I(2, b)
#define SPILE_SDT_I3(a, b, c) SPILE_SDT_I2(a, b), SPILE_SDT_I(3, c)
#define SPILE_SDT_I4(a, b, c, d) SPILE_SDT_I3(a, b, c), SPILE_SDT_I(4, d)
#define SPILE_SDT_I5(a, b, c, d, e) SPILE_SDT_I4(a, b, c, d), SPILE_SDT_I(5, e)
#define SPILE_SDT_I6(a, b, c, d, e, f) SPILE_SDT_I5(a, b, c, d, e), SPILE_SDT_I(6, f)
#define SPILE_SDT_I7(a, b, c, d, e, f, g) SPILE_SDT_I6(a, b, c, d, e, f), SPILE_SDT_I(7, g)
#define SPILE_SDT_I8(a, b, c, d, e, f, g, h) \
    SPILE_SDT_I7(a, b, c, d, e, f, g), SPILE_SDT_I(8, h)
#define SPILE_SDT_I9(a, b, c, d, e, f, g, h, i) \
    SPILE_SDT_I8(a, b, c, d, e, f, g, h), SPILE_SDT_I(9, i)
#define SPILE_SDT_I10(a, b, c, d, e, f, g, h, i, j) \
    SPILE_SDT_I9(a, b, c, d, e, f, g, h, i), SPILE_SDT_I(10, j)
#define SPILE_SDT_I11(a, b, c, d, e, f, g, h, i, j, k) \
    SPILE_SDT_I10(a, b, c, d, e, f, g, h, i, j), SPILE_SDT_I(11, k)
#define SPILE_SDT_I12(a, b, c, d, e, f, g, h, i, j, k, l) \
    SPILE_SDT_I11(a, b, c, d, e, f, g, h, i, j, k), SPILE_SDT_I(12, l)

/* An empty input, for markers without arguments. */
#define SPILE_SDT_NONE [s0] "n"(0)

#define SPILE_SDT_0(def, sem, p, n) \
    SPILE_SDT_EMIT(SPILE_SDT_TEXT(p, n, def, sem, ""), SPILE_SDT_NONE)
#define SPILE_SDT_N(count, def, sem, p, n, ...) \
    SPILE_SDT_EMIT(SPILE_SDT_TEXT(p, n, def, sem, SPILE_SDT_T##count), \
                   SPILE_SDT_I##count(__VA_ARGS__))
#define SPILE_SDT_1(def, sem, p, ...) SPILE_SDT_N(1, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_2(def, sem, p, ...) SPILE_SDT_N(2, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_3(def, sem, p, ...) SPILE_SDT_N(3, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_4(def, sem, p, ...) SPILE_SDT_N(4, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_5(def, sem, p, ...) SPILE_SDT_N(5, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_6(def, sem, p, ...) SPILE_SDT_N(6, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_7(def, sem, p, ...) SPILE_SDT_N(7, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_8(def, sem, p, ...) SPILE_SDT_N(8, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_9(def, sem, p, ...) SPILE_SDT_N(9, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_10(def, sem, p, ...) SPILE_SDT_N(10, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_11(def, sem, p, ...) SPILE_SDT_N(11, def, sem, p, __VA_ARGS__)
#define SPILE_SDT_12(def, sem, p, ...) SPILE_SDT_N(12, def, sem, p, __VA_ARGS__)

/* Counts the arguments after the marker's name. */
#define SPILE_SDT_COUNT(...) \
    SPILE_SDT_COUNT_(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define SPILE_SDT_COUNT_(n, a, b, c, d, e, f, g, h, i, j, k, l, count, ...) count
#define SPILE_SDT_PASTE(a, b) SPILE_SDT_PASTE_(a, b)
#define SPILE_SDT_PASTE_(a, b) a##b

/* ---- the macros for programs ---- */

/** A marker: SPILE_PROBE(provider, name, up to 12 arguments). */
#define SPILE_PROBE(provider, ...) \
    SPILE_SDT_PASTE(SPILE_SDT_, SPILE_SDT_COUNT(__VA_ARGS__))("", "0", provider, __VA_ARGS__)

/** The same with a semaphore, which the kernel counts up while the marker is probed. */
#define SPILE_PROBE_SEM(provider, ...) \
    SPILE_SDT_PASTE(SPILE_SDT_SEM_, SPILE_SDT_COUNT(__VA_ARGS__))(provider, __VA_ARGS__)

#define SPILE_SDT_SEM_0(p, n) \
    SPILE_SDT_0(SPILE_SDT_SEM_DEFINE(SPILE_SDT_SEM_NAME(p, n)), SPILE_SDT_SEM_NAME(p, n), p, n)
#define SPILE_SDT_SEM_N(count, p, n, ...) \
    SPILE_SDT_N(count, SPILE_SDT_SEM_DEFINE(SPILE_SDT_SEM_NAME(p, n)), \
                SPILE_SDT_SEM_NAME(p, n), p, n, __VA_ARGS__)
#define SPILE_SDT_SEM_1(p, ...) SPILE_SDT_SEM_N(1, p, __VA_ARGS__)
#define SPILE_SDT_SEM_2(p, ...) SPILE_SDT_SEM_N(2, p, __VA_ARGS__)
#define SPILE_SDT_SEM_3(p, ...) SPILE_SDT_SEM_N(3, p, __VA_ARGS__)
#define SPILE_SDT_SEM_4(p, ...) SPILE_SDT_SEM_N(4, p, __VA_ARGS__)
#define SPILE_SDT_SEM_5(p, ...) SPILE_SDT_SEM_N(5, p, __VA_ARGS__)
#define SPILE_SDT_SEM_6(p, ...) SPILE_SDT_SEM_N(6, p, __VA_ARGS__)
#define SPILE_SDT_SEM_7(p, ...) SPILE_SDT_SEM_N(7, p, __VA_ARGS__)
#define SPILE_SDT_SEM_8(p, ...) SPILE_SDT_SEM_N(8, p, __VA_ARGS__)
#define SPILE_SDT_SEM_9(p, ...) SPILE_SDT_SEM_N(9, p, __VA_ARGS__)
#define SPILE_SDT_SEM_10(p, ...) SPILE_SDT_SEM_N(10, p, __VA_ARGS__)
#define SPILE_SDT_SEM_11(p, ...) SPILE_SDT_SEM_N(11, p, __VA_ARGS__)
#define SPILE_SDT_SEM_12(p, ...) SPILE_SDT_SEM_N(12, p, __VA_ARGS__)

/** Whether a marker of SPILE_PROBE_SEM with this name is probed: 1 or 0. */
#define SPILE_PROBE_ENABLED(provider, name) \
    __extension__({ \
        extern volatile unsigned short SPILE_SDT_PASTE(spile_sdt_sem_, __LINE__) \
            __asm__(SPILE_SDT_SEM_NAME(provider, name)) \
            __attribute__((__visibility__("hidden"))); \
        __asm__ __volatile__(SPILE_SDT_SEM_DEFINE(SPILE_SDT_SEM_NAME(provider, name))); \
        (int)__builtin_expect(SPILE_SDT_PASTE(spile_sdt_sem_, __LINE__) != 0, 0); \
    })

/* ---- the names of SystemTap's and DTrace's headers ---- */

#if !defined(SPILE_SDT_NO_COMPAT) && !defined(STAP_PROBE) && !defined(DTRACE_PROBE)

/* As in those headers, a file uses semaphores for all of its markers or for none, and the program
 * defines them. */
#if defined(_SDT_HAS_SEMAPHORES)
#define SPILE_SDT_STAP_SEM(p, n) SPILE_SDT_SEM_NAME(p, n)
#else
#define SPILE_SDT_STAP_SEM(p, n) "0"
#endif

#define STAP_PROBE(p, n) SPILE_SDT_0("", SPILE_SDT_STAP_SEM(p, n), p, n)
#define SPILE_SDT_STAP(count, p, n, ...) \
    SPILE_SDT_N(count, "", SPILE_SDT_STAP_SEM(p, n), p, n, __VA_ARGS__)
#define STAP_PROBE1(p, n, ...) SPILE_SDT_STAP(1, p, n, __VA_ARGS__)
#define STAP_PROBE2(p, n, ...) SPILE_SDT_STAP(2, p, n, __VA_ARGS__)
#define STAP_PROBE3(p, n, ...) SPILE_SDT_STAP(3, p, n, __VA_ARGS__)
#define STAP_PROBE4(p, n, ...) SPILE_SDT_STAP(4, p, n, __VA_ARGS__)
#define STAP_PROBE5(p, n, ...) SPILE_SDT_STAP(5, p, n, __VA_ARGS__)
#define STAP_PROBE6(p, n, ...) SPILE_SDT_STAP(6, p, n, __VA_ARGS__)
#define STAP_PROBE7(p, n, ...) SPILE_SDT_STAP(7, p, n, __VA_ARGS__)
#define STAP_PROBE8(p, n, ...) SPILE_SDT_STAP(8, p, n, __VA_ARGS__)
#define STAP_PROBE9(p, n, ...) SPILE_SDT_STAP(9, p, n, __VA_ARGS__)
#define STAP_PROBE10(p, n, ...) SPILE_SDT_STAP(10, p, n, __VA_ARGS__)
#define STAP_PROBE11(p, n, ...) SPILE_SDT_STAP(11, p, n, __VA_ARGS__)
#define STAP_PROBE12(p, n, ...) SPILE_SDT_STAP(12, p, n, __VA_ARGS__)
#define SPILE_SDT_STAP_0(p, n) STAP_PROBE(p, n)
#define SPILE_SDT_STAP_1(p, ...) STAP_PROBE1(p, __VA_ARGS__)
#define SPILE_SDT_STAP_2(p, ...) STAP_PROBE2(p, __VA_ARGS__)
#define SPILE_SDT_STAP_3(p, ...) STAP_PROBE3(p, __VA_ARGS__)
#define SPILE_SDT_STAP_4(p, ...) STAP_PROBE4(p, __VA_ARGS__)
#define SPILE_SDT_STAP_5(p, ...) STAP_PROBE5(p, __VA_ARGS__)
#define SPILE_SDT_STAP_6(p, ...) STAP_PROBE6(p, __VA_ARGS__)
#define SPILE_SDT_STAP_7(p, ...) STAP_PROBE7(p, __VA_ARGS__)
#define SPILE_SDT_STAP_8(p, ...) STAP_PROBE8(p, __VA_ARGS__)
#define SPILE_SDT_STAP_9(p, ...) STAP_PROBE9(p, __VA_ARGS__)
#define SPILE_SDT_STAP_10(p, ...) STAP_PROBE10(p, __VA_ARGS__)
#define SPILE_SDT_STAP_11(p, ...) STAP_PROBE11(p, __VA_ARGS__)
#define SPILE_SDT_STAP_12(p, ...) STAP_PROBE12(p, __VA_ARGS__)
#define STAP_PROBEV(provider, ...) \
    SPILE_SDT_PASTE(SPILE_SDT_STAP_, SPILE_SDT_COUNT(__VA_ARGS__))(provider, __VA_ARGS__)

#define DTRACE_PROBE(p, n) STAP_PROBE(p, n)
#define DTRACE_PROBE1(p, n, ...) STAP_PROBE1(p, n, __VA_ARGS__)
#define DTRACE_PROBE2(p, n, ...) STAP_PROBE2(p, n, __VA_ARGS__)
#define DTRACE_PROBE3(p, n, ...) STAP_PROBE3(p, n, __VA_ARGS__)
#define DTRACE_PROBE4(p, n, ...) STAP_PROBE4(p, n, __VA_ARGS__)
#define DTRACE_PROBE5(p, n, ...) STAP_PROBE5(p, n, __VA_ARGS__)
#define DTRACE_PROBE6(p, n, ...) STAP_PROBE6(p, n, __VA_ARGS__)
#define DTRACE_PROBE7(p, n, ...) STAP_PROBE7(p, n, __VA_ARGS__)
#define DTRACE_PROBE8(p, n, ...) STAP_PROBE8(p, n, __VA_ARGS__)
#define DTRACE_PROBE9(p, n, ...) STAP_PROBE9(p, n, __VA_ARGS__)
#define DTRACE_PROBE10(p, n, ...) STAP_PROBE10(p, n, __VA_ARGS__)
#define DTRACE_PROBE11(p, n, ...) STAP_PROBE11(p, n, __VA_ARGS__)
#define DTRACE_PROBE12(p, n, ...) STAP_PROBE12(p, n, __VA_ARGS__)

#endif

#endif /* SPILE_SDT_H */
