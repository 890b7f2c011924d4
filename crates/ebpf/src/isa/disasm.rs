//! The disassembler: bytes to instructions ([`Insn::decode`]), and to text with one instruction per
//! line.

use std::fmt::{self, Write as _};

use crate::isa::insn::{
    AluOp, AtomicOp, CALL, Callee, Cond, END, EXIT, ImmKind, Insn, JCOND, LD_IMM64, MODE_ATOMIC,
    MODE_MEM, MODE_MEMSX, NEG, RawInsn, Reg, Size, Src, Swap, Width, X, bits, class,
};

/// Decodes the instructions in `code`, with the slot of each. Ends after an error.
pub fn decode(code: &[u8]) -> impl Iterator<Item = Result<(u32, Insn), DecodeError>> + '_ {
    let mut rest = code;
    let mut slot = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match Insn::decode(rest) {
            Ok(insn) => {
                let start = slot;
                slot += insn.slots();
                rest = rest.get(insn.slots() as usize * 8..).unwrap_or_default();
                Some(Ok((start, insn)))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}

/// A listing of `code`; ends with the error if something is not an instruction.
pub fn text(code: &[u8]) -> String {
    let mut out = String::new();
    for item in decode(code) {
        // Writing to a String does not fail.
        let _ = match item {
            Ok((slot, insn)) => writeln!(out, "{slot:6}: {insn}"),
            Err(error) => writeln!(out, "        {error}"),
        };
    }
    out
}

/// The reason why bytes are not an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer bytes than the instruction needs.
    Short,
    /// An unknown instruction; the opcode.
    Unknown(u8),
    /// A reserved field that is not zero, or an invalid register or code; the opcode.
    Field(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Short => write!(f, "instruction cut short"),
            DecodeError::Unknown(code) => write!(f, "unknown opcode {code:#04x}"),
            DecodeError::Field(code) => write!(f, "bad field in instruction {code:#04x}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Insn {
    /// Decodes the instruction at the start of `bytes`. Every field must be as [`Insn::encode`]
    /// writes it: fields without a meaning must be 0.
    pub fn decode(bytes: &[u8]) -> Result<Insn, DecodeError> {
        let first = bytes.first_chunk::<8>().ok_or(DecodeError::Short)?;
        let raw = RawInsn::read(*first);
        let dst = Reg::new(raw.dst).ok_or(DecodeError::Field(raw.code))?;
        let src = Reg::new(raw.src).ok_or(DecodeError::Field(raw.code))?;
        let insn = if raw.code == LD_IMM64 {
            decode_imm64(&raw, dst, bytes)?
        } else {
            decode_form(&raw, dst, src).ok_or(DecodeError::Unknown(raw.code))?
        };
        if insn.raw() == raw {
            Ok(insn)
        } else {
            Err(DecodeError::Field(raw.code))
        }
    }
}

fn decode_imm64(raw: &RawInsn, dst: Reg, bytes: &[u8]) -> Result<Insn, DecodeError> {
    let second = bytes
        .get(8..)
        .and_then(|b| b.first_chunk::<8>())
        .ok_or(DecodeError::Short)?;
    let high = RawInsn::read(*second);
    let kind = ImmKind::from_code(raw.src).ok_or(DecodeError::Field(raw.code))?;
    if (RawInsn {
        imm: high.imm,
        ..RawInsn::default()
    }) != high
    {
        return Err(DecodeError::Field(raw.code));
    }
    let imm = u64::from(high.imm.cast_unsigned()) << 32 | u64::from(raw.imm.cast_unsigned());
    Ok(Insn::LdImm64 { dst, kind, imm })
}

/// Decodes a one-slot instruction; the caller checks unused fields.
fn decode_form(raw: &RawInsn, dst: Reg, src: Reg) -> Option<Insn> {
    let RawInsn { code, off, imm, .. } = *raw;
    let operand = if code & X != 0 {
        Src::Reg(src)
    } else {
        Src::Imm(imm)
    };
    let size = Size::from_code(code & 0x18);
    match code & 7 {
        class::LDX => match code & 0xe0 {
            MODE_MEM => Some(Insn::Load {
                size: size?,
                dst,
                base: src,
                off,
            }),
            MODE_MEMSX if size != Some(Size::DW) => Some(Insn::LoadSx {
                size: size?,
                dst,
                base: src,
                off,
            }),
            _ => None,
        },
        class::ST if code & 0xe0 == MODE_MEM => Some(Insn::Store {
            size: size?,
            base: dst,
            off,
            src: Src::Imm(imm),
        }),
        class::STX => match code & 0xe0 {
            MODE_MEM => Some(Insn::Store {
                size: size?,
                base: dst,
                off,
                src: Src::Reg(src),
            }),
            MODE_ATOMIC => {
                let width = Width::ALL.into_iter().find(|w| Some(w.size()) == size)?;
                Some(Insn::Atomic {
                    width,
                    op: AtomicOp::from_code(imm)?,
                    base: dst,
                    off,
                    src,
                })
            }
            _ => None,
        },
        class::ALU32 | class::ALU64 => decode_alu(raw, dst, src, operand),
        class::JMP | class::JMP32 => decode_jump(raw, dst, operand),
        _ => None,
    }
}

/// The width of an operation by its class. `wide` is the class of 64 bits.
fn width(code: u8, wide: u8) -> Width {
    match code & 7 == wide {
        true => Width::W64,
        false => Width::W32,
    }
}

fn decode_alu(raw: &RawInsn, dst: Reg, src: Reg, operand: Src) -> Option<Insn> {
    let RawInsn { code, off, imm, .. } = *raw;
    let op = code & 0xf0;
    let width = width(code, class::ALU64);
    match op {
        END => {
            let size = Size::from_bytes(u32::try_from(imm).ok()? / 8)?;
            let to = Swap::from_code(code)?;
            (size != Size::B).then_some(Insn::Swap { to, size, dst })
        }
        NEG => Some(Insn::Neg { width, dst }),
        _ if code & (X | 0xf0) == AluOp::Mov.code().0 | X && off != 0 => {
            let size = Size::from_bytes(u32::try_from(off).ok()? / 8)?;
            (bits(size) < i16::from(width.bits())).then_some(Insn::MovSx {
                width,
                size,
                dst,
                src,
            })
        }
        _ => Some(Insn::Alu {
            width,
            op: AluOp::from_code((op, off))?,
            dst,
            src: operand,
        }),
    }
}

fn decode_jump(raw: &RawInsn, dst: Reg, operand: Src) -> Option<Insn> {
    let RawInsn { code, off, imm, .. } = *raw;
    const JA_LONG: u8 = class::JMP32;
    const CALL_CODE: u8 = class::JMP | CALL;
    const EXIT_CODE: u8 = class::JMP | EXIT;
    const MAY_GOTO: u8 = class::JMP | JCOND;
    Some(match code {
        class::JMP => Insn::Goto { off },
        JA_LONG => Insn::GotoLong { off: imm },
        CALL_CODE => Insn::Call {
            callee: Callee::from_code(raw.src)?,
            target: imm,
        },
        EXIT_CODE => Insn::Exit {},
        MAY_GOTO => Insn::MayGoto { off },
        _ => Insn::Jump {
            width: width(code, class::JMP),
            cond: Cond::from_code(code & 0xf0)?,
            dst,
            src: operand,
            off,
        },
    })
}
