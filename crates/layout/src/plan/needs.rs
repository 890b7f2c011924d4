//! The sizes of buffers that the handlers of a program need.

use spile_cast::Cast;
use spile_ir::fmt::MAX_MEM;
use spile_ir::{Body, BodyFacts, Inst, Intrinsic, MAX_CALLERS, Program, ProgramFacts, Ty, Val};
use spile_lir::library::regex::area;
use spile_lir::library::{decimal, unwind};

use super::iterators::state;
use super::scratch::longest_string;
use crate::fields::{field_types, piece_size, reads_into_text};

/// The sizes of buffers in each per-CPU area.
#[derive(Debug, Clone, Default)]
pub(super) struct LayoutInputs {
    /// Bytes of the largest output record.
    pub piece: u32,
    /// Bytes of saved data of one activation.
    pub saved: u32,
    /// Bytes of the work area of conversions of decimal text; 0 without any.
    pub decimal: u32,
    /// Bytes of the memory that is read for one text; 0 without any.
    pub memory: u32,
    /// Bytes of the last match of a regular expression; 0 if no match is kept.
    pub last_match: u32,
    /// Length of the longest string whose match is kept, or 0.
    pub matched: u32,
    /// Bytes of the state of an unwind through a user stack.
    pub user_unwind: u32,
}

/// The sizes for a program.
pub(super) fn needs(program: &Program, facts: &ProgramFacts) -> LayoutInputs {
    let reads = program.kernel_insts().any(|i| reads_into_text(program, i));
    let saved = program.kernel_handlers().map(|h| saved_max(&h.body));
    let converts = facts.kernel_handlers().any(|f| f.uses(Intrinsic::StrToFp));
    let matched = max_matched_len(program, facts, longest_string(program));
    LayoutInputs {
        piece: largest_piece(program),
        saved: saved.max().unwrap_or(0),
        decimal: if converts { decimal::AREA } else { 0 },
        memory: if reads { MAX_MEM.fit::<u32>() + 8 } else { 0 },
        last_match: if matched > 0 { area::size(matched) } else { 0 },
        matched,
        user_unwind: unwind::buffer(program.limits.maxbacktrace),
    }
}

/// Bytes of the largest output record.
fn largest_piece(program: &Program) -> u32 {
    let max = Ty::str_for_len(program.limits.maxstringlen as usize);
    let mut largest = piece_size(&rethrown_fields(max), 0);
    for handler in program.kernel_handlers() {
        for inst in handler.body.insts() {
            let piece = match inst {
                Inst::Print { args, fmt, .. } => {
                    let types = |a| program.type_of(&handler.body, a).unwrap_or(max);
                    piece_size(&field_types(program, *fmt, args, types), 0)
                }
                Inst::PrintHist { g, .. } => {
                    let spec = program.globals.get(g.index()).and_then(|g| g.kind.stats());
                    let hist = spec.and_then(|s| s.hist);
                    piece_size(&[], hist.map_or(0, |h| h.buckets()))
                }
                _ => continue,
            };
            largest = largest.max(piece);
        }
    }
    largest
}

/// The fields of a [`crate::RecordKind::Rethrown`]; `max` is the type of the longest string.
pub fn rethrown_fields(max: Ty) -> Vec<Ty> {
    [vec![Ty::Long; 3 + MAX_CALLERS + 1], vec![max]].concat()
}

/// Bytes of registers that an activation of this body saves.
pub fn saved_bytes(body: &Body) -> u32 {
    let end = |inst: &Inst| match inst {
        Inst::Save {
            src: Val::Reg(r),
            offset,
        } => offset + body.regs[r.index()].size(),
        _ => 0,
    };
    let insts = body.insts();
    insts.map(end).max().unwrap_or(0)
}

/// Bytes that an activation of this body saves at most: registers, then iterators.
fn saved_max(body: &Body) -> u32 {
    let mut insts = body.insts();
    match insts.any(|i| matches!(i, Inst::Enter)) {
        true => saved_bytes(body) + body.iters * state::BYTES,
        false => 0,
    }
}

/// Length of the longest text whose match is kept, or 0. A constant can be longer than other
/// strings.
fn max_matched_len(program: &Program, facts: &ProgramFacts, max_string: u32) -> u32 {
    let insts = program.kernel_bodies().flat_map(|b| b.insts());
    let size = |inst: &Inst| match inst {
        Inst::Regex {
            keep: true,
            text: Val::Str(id),
            ..
        } => {
            let constant = program.strings.get(id.index());
            let size = constant.map_or(0, |bytes| Ty::str_for_len(bytes.len()).size());
            Some(size.max(max_string))
        }
        Inst::Regex { keep: true, .. } => Some(max_string),
        _ => None,
    };
    let asks = facts.kernel_bodies().any(BodyFacts::asks_of_match);
    insts
        .filter_map(size)
        .chain(asks.then_some(max_string))
        .max()
        .unwrap_or(0)
}
