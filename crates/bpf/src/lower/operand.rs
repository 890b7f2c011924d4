//! Operands of instructions.

use spile_ebpf::isa::insn::Cond;
use spile_ir::{BinOp, Ty, Val};

/// A string operand.
#[derive(Debug, Clone)]
pub(crate) enum StrOperand {
    /// A slot of this CPU's area.
    Slot { off: u32, width: u32 },
    /// A constant.
    Const { bytes: spile_ir::Bytes },
}

impl StrOperand {
    /// A constant.
    pub(crate) fn literal(text: impl AsRef<[u8]>) -> StrOperand {
        StrOperand::Const {
            bytes: text.as_ref().into(),
        }
    }

    /// Bytes of the operand's slot.
    pub(crate) fn width(&self) -> u32 {
        match self {
            StrOperand::Slot { width, .. } => *width,
            StrOperand::Const { bytes } => Ty::str_for_len(bytes.len()).size(),
        }
    }

    /// KeyWord `i` of a constant, padded with zeros.
    pub(crate) fn const_word(bytes: &[u8], i: u32) -> u64 {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes.iter().skip(i as usize * 8)) {
            *to = *from;
        }
        u64::from_ne_bytes(word)
    }
}

/// One 64-bit word of a key.
#[derive(Debug, Clone)]
pub(crate) enum KeyWord {
    Long(Val),
    Text(StrOperand, u32),
}

/// Maps a comparison to the condition of a jump; `None` for other operations.
pub(crate) fn condition(op: BinOp) -> Option<Cond> {
    Some(match op {
        BinOp::Eq => Cond::Eq,
        BinOp::Ne => Cond::Ne,
        BinOp::Lt => Cond::Slt,
        BinOp::Le => Cond::Sle,
        BinOp::Gt => Cond::Sgt,
        BinOp::Ge => Cond::Sge,
        _ => return None,
    })
}
