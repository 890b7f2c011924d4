//! Conversions of formats, and the fields of output records, as operands.

use spile_ebpf::isa::insn::Src;
pub(crate) use spile_layout::fields::{MemoryArg, SizeOperand, field_types, of_args, piece_size};

use crate::lower::operand::StrOperand;

/// A conversion's width (not negative if constant), precision (negative for none) and alignment.
#[derive(Clone, Copy)]
pub(crate) struct FieldSpec {
    pub width: SizeOperand,
    pub precision: SizeOperand,
    pub left: bool,
}

/// A field of an output record.
pub(crate) enum OutputField {
    Long(Src),
    Text(StrOperand),
    Memory(MemoryArg),
}
