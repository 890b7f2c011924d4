//! x86-64, with its 32-bit programs.
//!
//! Sources: the System V ABI, AMD64 supplement (registers, calls, PLT); `arch/x86/include/asm/ptrace.h`,
//! `arch/x86/include/uapi/asm/ucontext.h`, `arch/x86/include/asm/thread_info.h` of Linux;
//! `cmd/compile/abi-internal.md` of Go.

use crate::{
    Abi, CompatCalls, Convention, KernelSupport, NumberedRegisters, Relocations, SavedRegisters,
    SignalFrame, SyscallConvention, UnwindPatterns, entry, register,
};

const RAX: u16 = 0;
const RDX: u16 = 1;
const RCX: u16 = 2;
const RBX: u16 = 3;
const RSI: u16 = 4;
const RDI: u16 = 5;
const RBP: u16 = 6;
const RSP: u16 = 7;
/// The return address column.
const RIP: u16 = 16;

/// x86-64.
pub static X86_64: Abi = Abi {
    name: "x86_64",
    script_name: "x86_64",
    machine: 62,
    compat_machine: Some(3),
    multiarch: "x86_64-linux-gnu",
    // __START_KERNEL_map
    kernel_image: 0xffff_ffff_8000_0000,

    stack_pointer: RSP,
    frame_pointer: RBP,
    program_counter: RIP,
    link: None,
    goroutine: 14,
    static_link: 10,
    names: &[
        register(RAX, 0, &["rax", "eax", "ax", "al"]),
        register(RDX, 0, &["rdx", "edx", "dx", "dl"]),
        register(RCX, 0, &["rcx", "ecx", "cx", "cl"]),
        register(RBX, 0, &["rbx", "ebx", "bx", "bl"]),
        register(RSI, 0, &["rsi", "esi", "si", "sil"]),
        register(RDI, 0, &["rdi", "edi", "di", "dil"]),
        register(RBP, 0, &["rbp", "ebp", "bp", "bpl"]),
        register(RSP, 0, &["rsp", "esp", "sp", "spl"]),
        register(RAX, 8, &["ah"]),
        register(RDX, 8, &["dh"]),
        register(RCX, 8, &["ch"]),
        register(RBX, 8, &["bh"]),
        register(RIP, 0, &["rip", "eip"]),
    ],
    numbered: NumberedRegisters {
        prefixes: &['r'],
        numbers: (8, 15),
        parts: &['d', 'w', 'b', 'l'],
    },

    calls: Convention {
        arguments: &[RDI, RSI, RDX, RCX, 8, 9],
        results: [RAX, RDX],
        popped: 8,
        in_registers: 16,
        classifies_words: true,
    },
    saved: SavedRegisters {
        offsets: &[
            80, 96, 88, 40, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0, 128,
        ],
        // Flags, cs, ss; 63 is our own number for the value of rax before a system call.
        more: &[(49, 144), (51, 136), (52, 160), (63, 120)],
        // cs
        mode: 136,
        level: 3,
        user_level: 3,
        compat_mode: Some(0x23),
        perf_size: 168,
    },
    syscalls: SyscallConvention {
        // di, si, dx, r10, r8, r9
        arguments: [112, 104, 96, 56, 72, 64],
        number: 120,
        sigreturn: 15,
        // __X32_SYSCALL_BIT
        other_abi: 0x4000_0000,
        compat: Some(CompatCalls {
            // bx, cx, dx, si, di, bp
            arguments: [40, 88, 96, 104, 112, 32],
            // TS_COMPAT
            status: 2,
            sigreturn: 173,
        }),
    },
    unwind: UnwindPatterns {
        // The handler's return has popped the address of its restorer: struct ucontext is on top.
        signal_frame: SignalFrame {
            frame_pointer: 120,
            stack_pointer: 160,
            program_counter: 168,
            link: None,
        },
        // mov $15,%rax; syscall
        signal_return: &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
        signal_return_name: "__restore_rt",
        // push %rbp; endbr64; ret; behind the push, mov %rsp,%rbp
        entry: &[
            entry(0xff, 0x55, false),
            entry(0xffff_ffff, 0xfa1e_0ff3, false),
            entry(0xff, 0xc3, false),
            entry(0xff_ffff, 0xe5_8948, true),
        ],
        entry_bytes: 5,
    },
    relocations: Relocations {
        symbol: [1, 6, 7],
        relative: 8,
        chosen: 37,
        tls_module: 16,
        tls_distance: 18,
    },
    kernel: KernelSupport {
        reads_programs: true,
        checks_casts: true,
        thread_pointer: Some(&["thread", "fsbase"]),
        // The trace system irq_vectors (arch/x86/include/asm/trace/irq_vectors.h; its other events, about the
        // assignment of vectors, come at any time), and handlers of device interrupts.
        interrupts: &[
            "call_function",
            "call_function_single",
            "deferred_error_apic",
            "error_apic",
            "irq_handler",
            "irq_work",
            "local_timer",
            "reschedule",
            "spurious_apic",
            "thermal_apic",
            "threshold_apic",
            "x86_platform_ipi",
        ],
    },
};
