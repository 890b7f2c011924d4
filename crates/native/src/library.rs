//! The run-time library of a process, and how code reaches it: helpers as functions, primitives as instructions.

use spile_ebpf::emit::{EmitError, ObjectSymbols, emit};
use spile_ebpf::isa::asm::AsmFunction;
use spile_ebpf::isa::helpers::Helper;
use spile_lir::library::host;

use crate::thread;

/// A primitive of the library. Its number takes the place of a kernel function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Primitive {
    /// [`SYSTEM_CALL`].
    SystemCall,
    /// A call of a function by its address.
    Call,
    /// The address of the thread's record.
    Thread,
    /// A load that is never left out.
    Load,
}

impl Primitive {
    const ALL: [(Primitive, &str); 4] = [
        (Primitive::SystemCall, host::SYSTEM_CALL),
        (Primitive::Call, host::CALL),
        (Primitive::Thread, host::THREAD),
        (Primitive::Load, host::LOAD),
    ];

    /// The primitive with this number, from 1 on.
    pub(crate) fn of(number: i32) -> Option<Primitive> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Primitive::ALL.get(index).map(|(primitive, _)| *primitive)
    }
}

/// A system call, in the C convention: its number, and the address of six words.
///
/// ```text
/// mov %rdi,%rax; mov %rsi,%r11; mov (%r11),%rdi; mov 8(%r11),%rsi; mov 16(%r11),%rdx
/// mov 24(%r11),%r10; mov 32(%r11),%r8; mov 40(%r11),%r9; syscall; ret
/// ```
#[rustfmt::skip]
pub(crate) const SYSTEM_CALL: [u8; 32] = [
    0x48, 0x89, 0xf8, 0x49, 0x89, 0xf3, 0x49, 0x8b, 0x3b, 0x49, 0x8b, 0x73, 0x08, 0x49, 0x8b, 0x53, 0x10,
    0x4d, 0x8b, 0x53, 0x18, 0x4d, 0x8b, 0x43, 0x20, 0x4d, 0x8b, 0x4b, 0x28, 0x0f, 0x05, 0xc3,
];

/// The name of the function that answers a helper.
pub(crate) fn answer(helper: u32) -> Option<&'static str> {
    const ANSWERS: [(Helper, &str); 12] = [
        (Helper::MapLookupElem, host::LOOKUP),
        (Helper::MapUpdateElem, host::UPDATE),
        (Helper::MapDeleteElem, host::DELETE),
        (Helper::ForEachMapElem, host::FOR_EACH),
        (Helper::RingbufOutput, host::OUTPUT),
        (Helper::RingbufQuery, host::WAITING),
        (Helper::ProbeReadKernel, host::COPY),
        (Helper::ProbeReadKernelStr, host::COPY_TEXT),
        (Helper::ProbeReadUser, host::READ),
        (Helper::ProbeReadUserStr, host::READ_TEXT),
        (Helper::KtimeGetNs, host::TIME),
        (Helper::GetPrandomU32, host::RANDOM),
    ];
    let answer = ANSWERS.iter().find(|(of, _)| of.id() == helper);
    answer.map(|(_, name)| *name)
}

/// The functions of the library.
///
/// # Errors
/// Never, unless the library has a mistake.
pub(crate) fn functions() -> Result<Vec<AsmFunction>, EmitError> {
    let numbers = Primitive::ALL.iter().zip(1..);
    let around = ObjectSymbols {
        kfuncs: numbers
            .map(|((_, name), number)| ((*name).into(), number))
            .collect(),
        may_goto: true,
        ..ObjectSymbols::default()
    };
    emit(&host::module(&thread::OFFSETS), &around)
}
