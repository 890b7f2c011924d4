# A variable in pieces of four bits, which no compiler of this project's tests makes: low in rbx, high in r12.
        .text
        .globl main, look
        .type look, @function
look:   nop
        ret
.Lend:
        .size look, .-look
        .type main, @function
main:   push %rbx
        push %r12
        mov $0x5, %ebx
        mov $0x3, %r12d
        call look
        pop %r12
        pop %rbx
        xor %eax, %eax
        ret
        .size main, .-main
        .section .debug_abbrev,"",@progbits
        .uleb128 1, 0x11                # compile unit
        .byte 1
        .uleb128 0x03, 0x08, 0x13, 0x05, 0x11, 0x01, 0x12, 0x07, 0, 0
        .uleb128 2, 0x2e                # subprogram
        .byte 1
        .uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0x3f, 0x19, 0, 0
        .uleb128 3, 0x34                # variable
        .byte 0
        .uleb128 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
        .uleb128 4, 0x24                # base type
        .byte 0
        .uleb128 0x03, 0x08, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0
        .byte 0
        .section .debug_info,"",@progbits
.Linfo: .long .Lstop - .Lstart
.Lstart:
        .value 4
        .long .debug_abbrev
        .byte 8
        .uleb128 1
        .asciz "odd-bits.s"
        .value 0x1d                     # C11
        .quad look, .Lend - look
        .uleb128 2
        .asciz "look"
        .quad look, .Lend - look
        .uleb128 3
        .asciz "x"
        .long .Lbyte - .Linfo
        .uleb128 .Lx_end - .Lx
.Lx:    .byte 0x53                      # rbx
        .byte 0x9d
        .uleb128 4, 0
        .byte 0x5c                      # r12
        .byte 0x9d
        .uleb128 4, 0
.Lx_end:
        .byte 0
.Lbyte: .uleb128 4
        .asciz "unsigned char"
        .byte 0x08, 1
        .byte 0
.Lstop:
        .section .note.GNU-stack,"",@progbits
