//! Widths of string registers: no wider than the widest value ever written to them, so that
//! frames and keys are small. Values do not change.

use crate::fmt::{Conv, ConvKind, Count, Piece};
use crate::*;

/// Runs the pass on a handler's body (a function's parameters are written by its callers).
pub fn run(program: &Program, body: &mut Body) {
    let cap = |ty: &Ty| match ty {
        Ty::Long => 0,
        Ty::Str(w) => usize::from(*w).max(1) - 1,
    };
    // The longest value of each register so far, in bytes; grows until nothing changes.
    let caps: Vec<usize> = body.regs.iter().map(cap).collect();
    let mut longest = vec![0usize; body.regs.len()];
    let mut changed = true;
    while changed {
        changed = false;
        let mut write = |r: Reg, len: usize, longest: &mut [usize]| {
            let len = len.min(caps[r.index()]);
            if len > longest[r.index()] {
                longest[r.index()] = len;
                changed = true;
            }
        };
        for block in &body.blocks {
            for (inst, _) in &block.insts {
                // What is restored was in the register before.
                if let Some(dst) = inst.dst()
                    && !matches!(inst, Inst::Restore { .. })
                    && caps[dst.index()] > 0
                {
                    let len = length(program, inst, &longest);
                    write(dst, len.unwrap_or(usize::MAX), &mut longest);
                }
            }
            block
                .term
                .for_each_dst(|r| write(r, usize::MAX, &mut longest));
        }
    }
    for (ty, len) in body.regs.iter_mut().zip(longest) {
        if matches!(ty, Ty::Str(_)) {
            *ty = Ty::str_for_len(len).min(*ty);
        }
    }
}

/// The longest string that an instruction can give; `None` when it is not bounded.
fn length(program: &Program, inst: &Inst, longest: &[usize]) -> Option<usize> {
    let of = |v: &Val| match v {
        Val::Reg(r) => longest.get(r.index()).copied(),
        Val::Str(s) => program.strings.get(s.index()).map(|s| s.len()),
        Val::Imm(_) => Some(0),
    };
    let value = |g: &GlobalId| match &program.globals.get(g.index())?.kind {
        GlobalKind::Scalar(Ty::Str(w))
        | GlobalKind::Array {
            value: ElemTy::Scalar(Ty::Str(w)),
            ..
        } => Some(usize::from(*w).max(1) - 1),
        _ => None,
    };
    match inst {
        Inst::Copy { src, .. } => of(src),
        Inst::Concat { a, b, .. } => Some(of(a)? + of(b)?),
        Inst::TableGet { table, .. } => program
            .tables
            .get(table.index())?
            .entries
            .iter()
            .map(|e| e.len())
            .max(),
        Inst::GLoad { g, .. } | Inst::AGet { g, .. } => value(g),
        Inst::Sprint { fmt, args, .. } => {
            let mut args = args.iter();
            let pieces = &program.formats.get(fmt.index())?.pieces;
            pieces.iter().try_fold(0usize, |sum, piece| {
                Some(
                    sum + match piece {
                        Piece::Lit(text) => text.len(),
                        Piece::Conv(c) => conversion(c, &mut args, of)?,
                    },
                )
            })
        }
        Inst::Intr {
            f: Intrinsic::Substr,
            args,
            ..
        } => match &args[..] {
            [s, _, Val::Imm(n)] => Some(of(s)?.min(usize::try_from(*n).unwrap_or(0))),
            [s, ..] => of(s),
            [] => None,
        },
        Inst::Intr { f, args, .. } => {
            use Intrinsic::{KernelBuf, KernelStr, UserBuf, UserStr};
            match (f, &args[..]) {
                (KernelStr | UserStr | KernelBuf | UserBuf, [_, Val::Imm(n)]) => {
                    usize::try_from(*n).ok()
                }
                _ => (f.info().max_len != 0).then_some(usize::from(f.info().max_len)),
            }
        }
        _ => None,
    }
}

/// The longest text of a conversion; takes its argument.
fn conversion<'v>(
    c: &Conv,
    args: &mut impl Iterator<Item = &'v Val>,
    of: impl Fn(&Val) -> Option<usize>,
) -> Option<usize> {
    let fixed = |c: Count| match c {
        Count::None => Some(None),
        Count::Fixed(n) => Some(Some(n as usize)),
        Count::Arg => None,
    };
    let (width, precision) = (fixed(c.width)?.unwrap_or(0), fixed(c.precision)?);
    let arg = args.next()?;
    let len = match c.kind {
        // An escaped byte takes up to four.
        ConvKind::Str => {
            (of(arg)? * if c.alt { 4 } else { 1 }).min(precision.unwrap_or(usize::MAX))
        }
        ConvKind::Char => {
            if c.alt {
                4
            } else {
                1
            }
        }
        ConvKind::Binary | ConvKind::Mem | ConvKind::MemHex => return None,
        // 22 octal digits, a sign or a mark.
        _ => precision.unwrap_or(0).max(22) + 2,
    };
    Some(len.max(width))
}
