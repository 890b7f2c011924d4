//! The values against what compilers and other libraries say.

use super::*;

#[test]
fn names_find_processors() {
    assert_eq!(Abi::named("arm64"), Some(&AARCH64));
    assert_eq!(Abi::named(std::env::consts::ARCH), Some(HOST));
    assert_eq!((Abi::named("riscv64"), Abi::of_machine(243)), (None, None));
    assert_eq!(Abi::of_machine(183), Some(&AARCH64));
    assert_eq!((Abi::of_machine(3), Abi::of_code(3)), (None, Some(&X86_64)));
}

#[test]
fn registers_have_offsets_among_saved_ones() {
    // rdi, rsp, rip, flags
    let found = [5, 7, 16, 49, 17].map(|register| X86_64.offset(register));
    assert_eq!(found, [Some(112), Some(152), Some(128), Some(144), None]);
    // x1, x29, sp, pc
    let found = [1, 29, 31, 32, 33].map(|register| AARCH64.offset(register));
    assert_eq!(found, [Some(8), Some(232), Some(248), Some(256), None]);
    for abi in ALL {
        let own = [abi.stack_pointer, abi.frame_pointer, abi.program_counter];
        let arguments = abi.calls.arguments.iter().chain(&abi.calls.results);
        let mut all = arguments.chain(&own).chain(&abi.link);
        assert!(all.all(|n| abi.offset(*n).is_some()), "{}", abi.name);
    }
}

#[test]
fn arguments_are_in_the_registers_of_the_convention() {
    let names = |abi: &Abi, names: &[&str]| -> Vec<u16> {
        let found = names.iter().map(|name| abi.register(name));
        found.map(|r| r.expect("a register").0).collect()
    };
    let of_c = names(&X86_64, &["rdi", "rsi", "rdx", "rcx", "r8", "r9"]);
    assert_eq!(of_c, X86_64.calls.arguments);
    let of_c = names(&AARCH64, &["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"]);
    assert_eq!(of_c, AARCH64.calls.arguments);
    // Of system calls: the first one stands apart, as its register has the result.
    let of_calls = names(&X86_64, &["rdi", "rsi", "rdx", "r10", "r8", "r9"]);
    let saved = |abi: &Abi, all: &[u16]| -> Vec<i16> {
        all.iter().filter_map(|n| abi.offset(*n)).collect()
    };
    assert_eq!(saved(&X86_64, &of_calls), X86_64.syscalls.arguments);
    let of_calls = names(&AARCH64, &["x1", "x2", "x3", "x4", "x5"]);
    assert_eq!(saved(&AARCH64, &of_calls), AARCH64.syscalls.arguments[1..]);
}

#[test]
fn names_of_registers_are_dwarfs() {
    use gimli::{AArch64, X86_64 as Amd64};
    for n in 0..=30 {
        let name = AArch64::register_name(gimli::Register(n)).expect("a name");
        assert_eq!(
            AARCH64.register(&name.to_lowercase()),
            Some((n, 0)),
            "{name}"
        );
    }
    assert_eq!(AArch64::SP.0, AARCH64.stack_pointer);
    assert_eq!(AARCH64.register("wsp"), Some((31, 0)));
    assert_eq!(AARCH64.register("x31"), None);
    for n in 0..16 {
        let name = Amd64::register_name(gimli::Register(n)).expect("a name");
        assert_eq!(X86_64.register(name), Some((n, 0)), "{name}");
    }
    assert_eq!(Amd64::RA.0, X86_64.program_counter);
    assert_eq!(
        (X86_64.register("ah"), X86_64.register("r16")),
        (Some((0, 8)), None)
    );
    assert_eq!(X86_64.register("r12d"), Some((12, 0)));
}

/// The pattern that code has, by whether the frame is made.
fn entry(abi: &Abi, code: &[u8]) -> Option<bool> {
    let mut word = [0; 4];
    let bytes = code.len().min(4);
    word[..bytes].copy_from_slice(&code[..bytes]);
    let word = u32::from_le_bytes(word);
    let mut known = abi.unwind.entry.iter();
    Some(known.find(|known| word & known.mask == known.code)?.pushed)
}

/// Bytes as clang 14 assembles them.
#[test]
fn first_instructions_of_functions_are_told() {
    let of_arm: [([u8; 4], Option<bool>); 9] = [
        ([0x3f, 0x23, 0x03, 0xd5], Some(false)), // paciasp
        ([0x5f, 0x24, 0x03, 0xd5], Some(false)), // bti c
        ([0xfd, 0x7b, 0xbf, 0xa9], Some(false)), // stp x29, x30, [sp, #-16]!
        ([0xfd, 0x7b, 0xbc, 0xa9], Some(false)), // stp x29, x30, [sp, #-64]!
        ([0xc0, 0x03, 0x5f, 0xd6], Some(false)), // ret
        ([0xfd, 0x03, 0x00, 0x91], Some(true)),  // mov x29, sp
        ([0xff, 0x83, 0x00, 0xd1], None),        // sub sp, sp, #32
        ([0xfd, 0x7b, 0xc2, 0xa8], None),        // ldp x29, x30, [sp], #32
        ([0x08, 0x04, 0x00, 0x0b], None),        // add w8, w0, w0, lsl #1
    ];
    for (code, expected) in of_arm {
        assert_eq!(entry(&AARCH64, &code), expected, "{code:02x?}");
    }
    assert_eq!(entry(&X86_64, &[0x55, 0x48, 0x89, 0xe5]), Some(false));
    assert_eq!(entry(&X86_64, &[0x48, 0x89, 0xe5, 0x90]), Some(true));
    assert_eq!(entry(&X86_64, &[0xf3, 0x0f, 0x1e, 0xfa]), Some(false));
    assert_eq!(entry(&X86_64, &[0x48, 0x83, 0xec, 0x10]), None);
    // mov x8, #139; svc #0
    let bytes = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    assert_eq!(AARCH64.unwind.signal_return, bytes);
}

#[test]
fn signal_frames_have_the_registers_in_order() {
    let frame = AARCH64.unwind.signal_frame;
    // struct rt_sigframe: siginfo, ucontext with uc_mcontext at 176, regs[29] behind the fault's address.
    assert_eq!(frame.frame_pointer, 128 + 176 + 8 + 29 * 8);
    assert_eq!(frame.link, Some(frame.frame_pointer + 8));
    assert_eq!(frame.stack_pointer, frame.frame_pointer + 16);
    assert_eq!(frame.program_counter, frame.frame_pointer + 24);
}
