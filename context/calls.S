/*
 * Trampolines: an interposed function sets the thread's word, calls the next function with the same
 * arguments of any type, and restores the word. Arguments in registers are preserved, those on the
 * stack are copied: 16 words, more than any function of calls.def has (the rest of the copy is the
 * caller's frame). No function has floating-point arguments or results. `struct call` in context.h
 * is the frame from before the arguments on.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
        .text
        .set entry, 0

#if defined(__x86_64__)
/* The entry's number is passed in a caller-saved register. */
.macro ENTRY symbol
        .globl \symbol
        .type \symbol, @function
        .balign 16
\symbol:
        .cfi_startproc
        endbr64
        movl $entry, %r11d
        jmp trampoline
        .cfi_endproc
        .size \symbol, . - \symbol
        .set entry, entry + 1
.endm

        .type trampoline, @function
        .balign 16
trampoline:
        .cfi_startproc
        pushq %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq $224, %rsp
        movq %rdi, -48(%rbp)
        movq %rsi, -40(%rbp)
        movq %rdx, -32(%rbp)
        movq %rcx, -24(%rbp)
        movq %r8, -16(%rbp)
        movq %r9, -8(%rbp)
        movl %r11d, %edi
        movq 8(%rbp), %rsi
        leaq -88(%rbp), %rdx
        call context_call
        movq %rax, %r11
        .set at, 0
        .rept 8
        movups 16 + at(%rbp), %xmm8
        movups %xmm8, at(%rsp)
        .set at, at + 16
        .endr
        movq -48(%rbp), %rdi
        movq -40(%rbp), %rsi
        movq -32(%rbp), %rdx
        movq -24(%rbp), %rcx
        movq -16(%rbp), %r8
        movq -8(%rbp), %r9
        /* Number of variadic arguments in vector registers: none. */
        xorl %eax, %eax
        testq %r11, %r11
        js 1f
        call *%r11
        movq %rax, -96(%rbp)
        leaq -88(%rbp), %rdi
        movl %eax, %esi
        call context_called
        movq -96(%rbp), %rax
        .cfi_remember_state
        leave
        .cfi_def_cfa %rsp, 8
        ret
        /* Marked: its caller has to be the program, so the trampoline jumps. */
1:      .cfi_restore_state
        btrq $63, %r11
        leave
        .cfi_def_cfa %rsp, 8
        jmp *%r11
        .cfi_endproc
        .size trampoline, . - trampoline

#elif defined(__aarch64__)
.macro ENTRY symbol
        .globl \symbol
        .type \symbol, %function
        .balign 16
\symbol:
        .cfi_startproc
        hint #34
        mov w16, #entry
        b trampoline
        .cfi_endproc
        .size \symbol, . - \symbol
        .set entry, entry + 1
.endm

        .type trampoline, %function
        .balign 16
trampoline:
        .cfi_startproc
        stp x29, x30, [sp, #-128]!
        .cfi_def_cfa_offset 128
        .cfi_offset 29, -128
        .cfi_offset 30, -120
        mov x29, sp
        .cfi_def_cfa_register 29
        stp x0, x1, [x29, #16]
        stp x2, x3, [x29, #32]
        stp x4, x5, [x29, #48]
        stp x6, x7, [x29, #64]
        mov w0, w16
        mov x1, x30
        mov x2, x29
        bl context_call
        mov x16, x0
        sub sp, sp, #128
        .set at, 0
        .rept 4
        ldp q16, q17, [x29, #128 + at]
        stp q16, q17, [sp, #at]
        .set at, at + 32
        .endr
        ldp x0, x1, [x29, #16]
        ldp x2, x3, [x29, #32]
        ldp x4, x5, [x29, #48]
        ldp x6, x7, [x29, #64]
        tbnz x16, #63, 1f
        blr x16
        str x0, [x29, #120]
        mov w1, w0
        mov x0, x29
        bl context_called
        ldr x0, [x29, #120]
        .cfi_remember_state
        mov sp, x29
        ldp x29, x30, [sp], #128
        .cfi_def_cfa 31, 0
        .cfi_restore 29
        .cfi_restore 30
        ret
        /* Marked: its caller has to be the program, so the trampoline jumps. */
1:      .cfi_restore_state
        and x16, x16, #0x7fffffffffffffff
        mov sp, x29
        ldp x29, x30, [sp], #128
        .cfi_def_cfa 31, 0
        .cfi_restore 29
        .cfi_restore 30
        br x16
        .cfi_endproc
        .size trampoline, . - trampoline
#endif

/* `NAMES` symbols for each call, in the order of calls.c: C, Fortran, Fortran's module mpi_f08 of
 * OpenMPI and of MPICH, and the name that a tool's MPI_* calls. Such a tool can be part of the
 * program, whose MPI_* no library can interpose. */
#define GOMP(symbol, text) ENTRY symbol; .set entry, entry + 4
#define MPI(name, fortran, ...)                                                                    \
        ENTRY MPI_##name;                                                                          \
        ENTRY mpi_##fortran##_;                                                                    \
        ENTRY mpi_##fortran##_f08_;                                                                \
        ENTRY mpi_##fortran##_f08ts_;                                                              \
        ENTRY PMPI_##name
#include "calls.def"

        .section .note.GNU-stack, "", %progbits
