//! Small tables for tests.

use crate::{ArgKind, ResultForm, Syscall, SyscallArg};

/// An argument of a 64-bit program.
pub const fn arg(word: u8, name: &'static str, kind: ArgKind) -> SyscallArg {
    let (bits, signed) = match kind {
        ArgKind::Int(bits) => (bits, true),
        ArgKind::Uint(bits) | ArgKind::Hex(bits) => (bits, false),
        ArgKind::Signal | ArgKind::DirFd | ArgKind::Flags(_) | ArgKind::Choice(_) => (32, true),
        ArgKind::Mode => (32, false),
        _ => (64, false),
    };
    SyscallArg {
        name,
        kernel_name: name,
        word,
        kind,
        bits,
        signed,
    }
}

/// A call with the same name everywhere, and a result in decimal.
pub const fn call(nr: u32, name: &'static str, args: &'static [SyscallArg]) -> Syscall {
    Syscall {
        nr,
        name,
        probe: name,
        point: name,
        bare: None,
        entry: name,
        ret: ResultForm::Int,
        args,
        variants: None,
        variables: &[],
    }
}
