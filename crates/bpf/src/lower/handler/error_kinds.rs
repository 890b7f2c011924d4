//! The kinds of errors that instructions raise.

use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Inst, Program};
use spile_layout::ErrorKind;

/// The kinds of errors that an instruction can raise itself; a call of a function has those of the
/// function's own instructions. `MaxAction` is that of the body
/// ([`crate::lower::body_context::BodyContext::ticking`]).
pub(crate) fn kinds(inst: &Inst, program: &Program) -> Vec<ErrorKind> {
    use ErrorKind::*;
    if !inst.fallible(program) {
        return Vec::new();
    }
    match inst {
        Inst::Bin { .. } => vec![DivisionByZero],
        Inst::ASet { g, .. } | Inst::AAdd { g, .. } | Inst::StatAdd { g, .. } => vec![Overflow(*g)],
        // `%m` and `%M`: the address, and the number of bytes.
        Inst::Sprint { .. } | Inst::Print { .. } => vec![ReadFault, Raised],
        Inst::StatGet { .. } | Inst::PrintHist { .. } => vec![EmptyAggregate],
        Inst::HistGet { .. } => vec![HistIndex],
        Inst::Load { .. } => vec![ReadFault],
        Inst::Raise { .. } => vec![Raised],
        Inst::Enter => vec![MaxNesting],
        Inst::Intr { f, .. } => match f {
            Intrinsic::PerfCount => vec![Counter],
            Intrinsic::VerdictSet => vec![Verdict],
            Intrinsic::DecisionSet => vec![Decision],
            Intrinsic::UserStore | Intrinsic::UserStoreText => vec![WriteFault],
            Intrinsic::SendSignal => vec![Signal],
            // The text itself can be invalid.
            Intrinsic::KernelUtf => vec![KernelStrFault, Raised],
            Intrinsic::UserUtf => vec![UserStrFault, Raised],
            _ => vec![KernelStrFault, UserStrFault],
        },
        _ => Vec::new(),
    }
}
