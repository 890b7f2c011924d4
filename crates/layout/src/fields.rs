//! The arguments of formats, and the fields of output records.

use spile_cast::Cast;
use spile_ir::fmt::{Conv, ConvKind, Count, Format, MAX_MEM, Piece};
use spile_ir::{FormatId, Inst, Intrinsic, Program, Space, Ty, Val};

/// A width or precision: a constant, or an argument.
#[derive(Debug, Clone, Copy)]
pub enum SizeOperand {
    /// The constant.
    Known(i32),
    /// The argument.
    At(Val),
}

/// Memory whose address is an argument of a format.
#[derive(Debug, Clone, Copy)]
pub struct MemoryArg {
    /// Its address space.
    pub space: Space,
    /// Its address.
    pub addr: Val,
    /// Its length in bytes.
    pub len: SizeOperand,
}

impl MemoryArg {
    /// The memory that a conversion `%m` or `%M` reads.
    pub fn new(c: &Conv, addr: Val, len: SizeOperand) -> MemoryArg {
        let space = if c.alt { Space::User } else { Space::Kernel };
        MemoryArg { space, addr, len }
    }
}

/// For each argument of a format, the memory that it points to.
pub fn of_args(format: &Format, args: &[Val]) -> Vec<Option<MemoryArg>> {
    let mut out = Vec::new();
    for piece in &format.pieces {
        let Piece::Conv(c) = piece else { continue };
        let mut len = match c.precision {
            Count::Fixed(n) => SizeOperand::Known(n.cast_signed()),
            _ => SizeOperand::Known(-1),
        };
        if c.width == Count::Arg {
            out.push(None);
        }
        if c.precision == Count::Arg {
            len = args.get(out.len()).map_or(len, |v| SizeOperand::At(*v));
            out.push(None);
        }
        let addr = args.get(out.len()).copied();
        let reads = matches!(c.kind, ConvKind::Mem | ConvKind::MemHex);
        out.push(addr.filter(|_| reads).map(|a| MemoryArg::new(c, a, len)));
    }
    out.resize(args.len(), None);
    out
}

/// Types of a record's fields for a format; memory is a byte field.
pub fn field_types(
    program: &Program,
    fmt: FormatId,
    args: &[Val],
    mut ty: impl FnMut(Val) -> Ty,
) -> Vec<Ty> {
    let memory = match program.formats.get(fmt.index()) {
        Some(format) => of_args(format, args),
        None => vec![None; args.len()],
    };
    let field = |(arg, memory): (&Val, Option<MemoryArg>)| match memory {
        Some(m) => {
            let most = match m.len {
                SizeOperand::Known(n) => n.clamp(1, MAX_MEM.fit::<i32>()),
                SizeOperand::At(_) => MAX_MEM.fit::<i32>(),
            };
            Ty::Str(most.cast_unsigned().next_multiple_of(8).fit())
        }
        None => ty(*arg),
    };
    args.iter().zip(memory).map(field).collect()
}

/// Whether an instruction formats memory into a string.
pub fn reads_into_text(program: &Program, inst: &Inst) -> bool {
    match inst {
        Inst::Sprint { fmt, .. } => {
            let format = program.formats.get(fmt.index());
            format.is_some_and(spile_ir::visit::reads_memory)
        }
        Inst::Intr { f, .. } => matches!(f, Intrinsic::KernelQuoted | Intrinsic::UserQuoted),
        _ => false,
    }
}

/// The largest size in bytes of a record with these fields and number of words.
pub fn piece_size(fields: &[Ty], words: u32) -> u32 {
    let field = |ty: &Ty| match ty {
        Ty::Long => 8,
        Ty::Str(w) => 8 + u32::from(*w),
    };
    8 + fields.iter().map(field).sum::<u32>() + 8 * words
}
