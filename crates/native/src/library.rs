//! The run-time library of a process, and how code reaches it: helpers as functions, primitives as instructions.

use spile_ebpf::emit::{EmitError, ObjectSymbols, emit};
use spile_ebpf::isa::asm::AsmFunction;
use spile_ebpf::isa::helpers::Helper;
use spile_lir::library::host::{self, HostFacts};

use crate::{processor, thread};

/// A primitive of the library. Its number takes the place of a kernel function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Primitive {
    /// [`processor::SYSTEM_CALL`].
    SystemCall,
    /// A call of a function by its address.
    Call,
    /// The address of the thread's record.
    Thread,
    /// A load that is never left out.
    Load,
    /// The address of the image's description.
    Image,
}

impl Primitive {
    const ALL: [(Primitive, &str); 5] = [
        (Primitive::SystemCall, host::SYSTEM_CALL),
        (Primitive::Call, host::CALL),
        (Primitive::Thread, host::THREAD),
        (Primitive::Load, host::LOAD),
        (Primitive::Image, host::IMAGE),
    ];

    /// The primitive with this number, from 1 on.
    pub(crate) fn of(number: i32) -> Option<Primitive> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Primitive::ALL.get(index).map(|(primitive, _)| *primitive)
    }
}

/// The name of the function that answers a helper.
pub(crate) fn answer(helper: u32) -> Option<&'static str> {
    const ANSWERS: [(Helper, &str); 13] = [
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
        (Helper::Yield, host::YIELD),
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
    let host = HostFacts {
        record: thread::OFFSETS,
        calls: processor::SYSTEM_CALLS,
    };
    emit(&host::module(&host), &around)
}
