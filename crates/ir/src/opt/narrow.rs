//! Narrows string registers to the widest value ever written to them, so that frames and keys are
//! small. Values do not change.

use crate::analysis::dataflow::{self, Direction, InstOrTerm, Lattice, RegisterFacts};
use crate::fmt::{Conv, ConvKind, Count, Piece};
use crate::*;

/// The longest value of a register so far, in bytes.
#[derive(Debug, Clone, Copy)]
struct MaxLen(usize);

impl Lattice for MaxLen {
    fn join(&mut self, other: &MaxLen) -> bool {
        let longer = other.0 > self.0;
        self.0 = self.0.max(other.0);
        longer
    }
}

/// Runs the pass on a handler's body. (Callers write a function's parameters.)
pub fn run(program: &Program, body: &mut Body) {
    let cap = |ty: &Ty| match ty {
        Ty::Long => 0,
        Ty::Str(w) => usize::from(*w).max(1) - 1,
    };
    let caps: Vec<usize> = body.regs.iter().map(cap).collect();
    let start = vec![MaxLen(0); body.regs.len()];
    let longest = dataflow::registers(body, Direction::Forwards, start, |step, longest| {
        let bounded = |r: Reg, len: usize| MaxLen(len.min(caps[r.index()]));
        match step {
            // The restored value was in the register before.
            InstOrTerm::Inst(Inst::Restore { .. }) => {}
            InstOrTerm::Inst(inst) => {
                if let Some(dst) = inst.dst().filter(|dst| caps[dst.index()] > 0) {
                    let len = length(program, inst, longest);
                    longest.join(dst, &bounded(dst, len.unwrap_or(usize::MAX)));
                }
            }
            InstOrTerm::Term(term) => {
                term.for_each_dst(|r| longest.join(r, &bounded(r, usize::MAX)))
            }
        }
    });
    for (ty, MaxLen(len)) in body.regs.iter_mut().zip(longest) {
        if matches!(ty, Ty::Str(_)) {
            *ty = Ty::str_for_len(len).min(*ty);
        }
    }
}

/// The maximum length of an instruction's string result; `None` if it is not bounded.
fn length(program: &Program, inst: &Inst, longest: &RegisterFacts<MaxLen>) -> Option<usize> {
    let len_of = |v: &Val| match v {
        Val::Reg(r) => longest.get(*r).map(|l| l.0),
        Val::Str(s) => program.strings.get(s.index()).map(|s| s.len()),
        Val::Imm(_) => Some(0),
    };
    let value = |g: &GlobalId| match program.kind(*g)?.scalar()? {
        Ty::Str(width) => Some(usize::from(width).max(1) - 1),
        Ty::Long => None,
    };
    match inst {
        Inst::Copy { src, .. } => len_of(src),
        Inst::Concat { a, b, .. } => Some(len_of(a)? + len_of(b)?),
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
                        Piece::Conv(c) => conversion(c, &mut args, len_of)?,
                    },
                )
            })
        }
        Inst::Intr { f, args, .. } => {
            let constant = |n: usize| match args.get(n) {
                Some(Val::Imm(n)) => Some(*n),
                _ => None,
            };
            f.max_len(constant, |n| len_of(args.get(n)?))
        }
        _ => None,
    }
}

/// The maximum length of a conversion; takes its argument.
fn conversion<'v>(
    c: &Conv,
    args: &mut impl Iterator<Item = &'v Val>,
    len_of: impl Fn(&Val) -> Option<usize>,
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
            (len_of(arg)? * if c.alt { 4 } else { 1 }).min(precision.unwrap_or(usize::MAX))
        }
        ConvKind::Char => {
            if c.alt {
                4
            } else {
                1
            }
        }
        ConvKind::Binary | ConvKind::Mem | ConvKind::MemHex => return None,
        // 22 octal digits, and a sign or a prefix.
        _ => precision.unwrap_or(0).max(22) + 2,
    };
    Some(len.max(width))
}
