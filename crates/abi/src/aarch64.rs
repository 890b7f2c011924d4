//! 64-bit ARM. No session has run there yet; unit tests hold the value.
//!
//! Sources: the procedure call standard (AAPCS64) and its DWARF supplement (AADWARF64);
//! `arch/arm64/include/asm/ptrace.h`, `arch/arm64/include/uapi/asm/ptrace.h`,
//! `arch/arm64/include/uapi/asm/sigcontext.h` and `arch/arm64/kernel/signal.c` of Linux;
//! `cmd/compile/abi-internal.md` of Go.

use crate::{
    Abi, Convention, KernelSupport, NumberedRegisters, Relocations, SavedRegisters, SignalFrame,
    SyscallConvention, UnwindPatterns, entry, register,
};

const FP: u16 = 29;
const LR: u16 = 30;
const SP: u16 = 31;
const PC: u16 = 32;

/// Offset of x0 in a signal frame: siginfo (128), the context's head and signal mask (176), the fault's address.
const SIGNAL_REGISTERS: i32 = 128 + 176 + 8;

/// Registers of a signal frame follow each other as in `struct user_pt_regs`.
const fn in_signal_frame(register: u16) -> i32 {
    SIGNAL_REGISTERS + 8 * register as i32
}

/// 64-bit ARM.
pub static AARCH64: Abi = Abi {
    name: "aarch64",
    script_name: "arm64",
    machine: 183,
    compat_machine: None,
    multiarch: "aarch64-linux-gnu",
    // _PAGE_END(VA_BITS_MIN), with 48 bits
    kernel_image: 0xffff_8000_0000_0000,

    stack_pointer: SP,
    frame_pointer: FP,
    program_counter: PC,
    link: Some(LR),
    goroutine: 28,
    static_link: 18,
    names: &[
        register(SP, 0, &["sp", "wsp"]),
        register(FP, 0, &["fp"]),
        register(LR, 0, &["lr"]),
    ],
    numbered: NumberedRegisters {
        prefixes: &['x', 'w'],
        numbers: (0, 30),
        parts: &[],
    },

    calls: Convention {
        arguments: &[0, 1, 2, 3, 4, 5, 6, 7],
        results: [0, 1],
        popped: 0,
        in_registers: 16,
        // Homogeneous aggregates of floating-point numbers are classified as a whole, and x8 has the address of
        // a larger result.
        classifies_words: false,
    },
    saved: SavedRegisters {
        // x0 to x30, the stack pointer, the program counter
        offsets: &{
            let mut offsets = [0; 33];
            let mut n = 0;
            while n < 33 {
                offsets[n] = spile_cast::i16_of(8 * n);
                n += 1;
            }
            offsets
        },
        more: &[],
        // pstate; PSR_MODE_MASK with PSR_MODE32_BIT; EL0t
        mode: 264,
        level: 0x1f,
        user_level: 0,
        compat_mode: None,
        // struct user_pt_regs
        perf_size: 272,
    },
    syscalls: SyscallConvention {
        // orig_x0, x1 to x5
        arguments: [272, 8, 16, 24, 32, 40],
        // syscallno
        number: 280,
        sigreturn: 139,
        other_abi: 0,
        compat: None,
    },
    unwind: UnwindPatterns {
        signal_frame: SignalFrame {
            frame_pointer: in_signal_frame(FP),
            stack_pointer: in_signal_frame(SP),
            program_counter: in_signal_frame(PC),
            link: Some(in_signal_frame(LR)),
        },
        // mov x8, #139; svc #0
        signal_return: &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
        signal_return_name: "__kernel_rt_sigreturn",
        // paciasp; bti c; ret; stp x29, x30, [sp, #-N]!; behind it, mov x29, sp
        entry: &[
            entry(0xffff_ffff, 0xd503_233f, false),
            entry(0xffff_ffff, 0xd503_245f, false),
            entry(0xffff_ffff, 0xd65f_03c0, false),
            entry(0xffe0_7fff, 0xa9a0_7bfd, false),
            entry(0xffff_ffff, 0x9100_03fd, true),
        ],
        entry_bytes: 4,
    },
    relocations: Relocations {
        symbol: [257, 1025, 1026],
        relative: 1027,
        chosen: 1032,
        tls_module: 1028,
        tls_distance: 1030,
    },
    kernel: KernelSupport {
        reads_programs: false,
        checks_casts: false,
        // A running thread has it in tpidr_el0.
        thread_pointer: None,
        // Interrupts of high priority (pseudo-NMI) interrupt handlers of others.
        interrupts: &[],
    },
};
