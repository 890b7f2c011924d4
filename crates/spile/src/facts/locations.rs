//! Locations of variables as the operations that a handler evaluates.

use spile_abi::HOST;
use spile_cast::Cast;
use spile_debuginfo::{CType, LocBinary, LocStep as Op, Location};
use spile_ir::BinOp;
use spile_sema::facts::{LocOp, LocationPiece, VarLocation};

use crate::machine;

/// Why a pointer has no value.
pub(super) const IMPLICIT: &str = "not accessible at this address: only what it points to is kept";

/// A value extended as its type requires.
pub(super) fn extend_to_type(mut ops: Vec<LocOp>, ty: &CType) -> Vec<LocOp> {
    if let CType::Int { size, signed, .. } | CType::Enum { size, signed } = *ty {
        extend(&mut ops, size, signed);
    }
    ops
}

/// Extends the low bytes of a register to 64 bits.
pub(super) fn extend(ops: &mut Vec<LocOp>, size: u8, signed: bool) {
    if size >= 8 {
        return;
    }
    let bits = 64 - 8 * i64::from(size);
    let back = if signed { BinOp::Shr } else { BinOp::UShr };
    ops.extend([BinOp::Shl, back].into_iter().flat_map(|op| with(op, bits)));
}

/// An operation with a constant.
pub(super) fn with(op: BinOp, constant: i64) -> [LocOp; 2] {
    [LocOp::Const(constant), LocOp::Bin(op)]
}

/// A load of a number without a sign.
pub(super) fn load(size: u8) -> LocOp {
    LocOp::Load {
        size,
        signed: false,
    }
}

/// The address of a word of the stack.
pub(super) fn on_stack(offset: i64) -> Vec<LocOp> {
    let [constant, add] = with(BinOp::Add, offset);
    vec![LocOp::Reg(HOST.stack_pointer), constant, add]
}

/// The location program in analysis' representation.
pub(super) fn program(ops: &[Op], bias: &[LocOp]) -> Vec<LocOp> {
    let mut out = Vec::new();
    for op in ops {
        match *op {
            Op::Reg(n) => out.push(LocOp::Reg(n)),
            Op::Const(n) => out.push(LocOp::Const(n)),
            Op::Bias => out.extend_from_slice(bias),
            Op::ThreadPointer => out.push(thread_pointer()),
            Op::Load { size } => out.push(load(size)),
            Op::Extend { size, signed } => extend(&mut out, size, signed),
            Op::Neg => out.push(LocOp::Neg),
            Op::Not => out.push(LocOp::Not),
            // With m of all ones for negative numbers and 0 for others: (x ^ m) - m.
            Op::Abs => out.extend([
                LocOp::Pick(0),
                LocOp::Const(63),
                LocOp::Bin(BinOp::Shr),
                LocOp::Pick(0),
                LocOp::Rot,
                LocOp::Bin(BinOp::Xor),
                LocOp::Swap,
                LocOp::Bin(BinOp::Sub),
            ]),
            Op::Binary(op) => out.push(LocOp::Bin(operator(op))),
        }
    }
    out
}

/// The current thread's pointer to its thread-local variables. Without the kernel's types nothing can
/// be probed.
fn thread_pointer() -> LocOp {
    LocOp::ThreadPointer(machine::thread_pointer().unwrap_or(0))
}

fn operator(op: LocBinary) -> BinOp {
    match op {
        LocBinary::Add => BinOp::Add,
        LocBinary::Sub => BinOp::Sub,
        LocBinary::Mul => BinOp::Mul,
        LocBinary::Div => BinOp::Div,
        LocBinary::Mod => BinOp::Mod,
        LocBinary::And => BinOp::And,
        LocBinary::Or => BinOp::Or,
        LocBinary::Xor => BinOp::Xor,
        LocBinary::Shl => BinOp::Shl,
        LocBinary::Shr => BinOp::UShr,
        LocBinary::Sar => BinOp::Shr,
        LocBinary::Eq => BinOp::Eq,
        LocBinary::Ne => BinOp::Ne,
        LocBinary::Lt => BinOp::Lt,
        LocBinary::Le => BinOp::Le,
        LocBinary::Gt => BinOp::Gt,
        LocBinary::Ge => BinOp::Ge,
    }
}

/// The pieces of a structure or an array, each of at most 8 bytes.
pub(super) fn locate_pieces(
    pieces: &[(u64, Option<Location>)],
    bias: &[LocOp],
) -> Vec<LocationPiece> {
    let mut located = Vec::new();
    for (size, piece) in pieces {
        let mut done = 0;
        while done < *size {
            let bytes = match *size - done {
                left @ 0..8 if !matches!(piece, Some(Location::Address(_))) => left,
                left => 1 << left.min(8).ilog2(),
            };
            let value = match piece {
                Some(Location::Value(ops)) if done == 0 => Ok(program(ops, bias)),
                Some(Location::Address(ops)) => {
                    let mut ops = program(ops, bias);
                    let offset = with(BinOp::Add, done.cast_signed());
                    ops.extend(offset.into_iter().filter(|_| done > 0));
                    ops.push(load(bytes.fit()));
                    Ok(ops)
                }
                Some(Location::Implicit { .. }) => Err(IMPLICIT.into()),
                Some(_) => Err("it is in a register of more than 8 bytes".into()),
                None => Err("not accessible at this address: optimised out".into()),
            };
            located.push(LocationPiece {
                bytes: bytes.fit(),
                value,
            });
            done += bytes;
        }
    }
    located
}

/// A value of at most 8 bytes from its pieces.
pub(super) fn join_pieces(
    pieces: &[(u64, Option<Location>)],
    bias: &[LocOp],
) -> Option<Vec<LocOp>> {
    let mut out: Vec<LocOp> = Vec::new();
    let mut offset = 0;
    for (size, piece) in pieces {
        let bytes = u8::try_from(*size)
            .ok()
            .filter(|s| matches!(s, 1 | 2 | 4 | 8))?;
        let first = out.is_empty();
        match piece.as_ref()? {
            Location::Address(ops) => {
                out.extend(program(ops, bias));
                out.push(load(bytes));
            }
            Location::Value(ops) => {
                out.extend(program(ops, bias));
                extend(&mut out, bytes, false);
            }
            Location::Pieces(_) | Location::Implicit { .. } => return None,
        }
        if !first {
            out.extend(with(BinOp::Shl, offset * 8));
            out.push(LocOp::Bin(BinOp::Or));
        }
        offset += i64::from(bytes);
    }
    (offset <= 8).then_some(out)
}

/// The location of a pointer to an object at a location, some bytes from its start.
pub(super) fn pointer_to(object: VarLocation, offset: i64) -> VarLocation {
    let pieces = match object {
        VarLocation::Address(mut ops) => {
            ops.extend(with(BinOp::Add, offset));
            return VarLocation::Value(ops);
        }
        VarLocation::Value(ops) => vec![LocationPiece {
            bytes: 8,
            value: Ok(ops),
        }],
        VarLocation::Pieces(pieces) => pieces,
        VarLocation::Pointee(_) => return VarLocation::Absent(IMPLICIT.into()),
        VarLocation::Absent(why) => return VarLocation::Absent(why),
    };
    let Ok(mut left) = u32::try_from(offset) else {
        return VarLocation::Absent(IMPLICIT.into());
    };
    let mut pointee = Vec::new();
    for mut piece in pieces {
        let cut = left.min(piece.bytes);
        left -= cut;
        piece.bytes -= cut;
        if let (Ok(ops), 1..) = (&mut piece.value, cut) {
            ops.extend(with(BinOp::UShr, 8 * i64::from(cut)));
        }
        pointee.extend(Some(piece).filter(|p| p.bytes > 0));
    }
    VarLocation::Pointee(pointee)
}
