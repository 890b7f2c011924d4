//! The rooms that the code of a program needs, which the plan then places.

use spile_cast::Cast;
use spile_ir::fmt::MAX_MEM;
use spile_ir::marks::Marks;
use spile_ir::{Inst, Program, ProgramFacts, Ty};
use spile_lir::library::unwind;

use super::handler::calls::{fields as rethrown_fields, saved_max};
use super::text::fields::{field_types, piece_size, reads_into_text};
use super::text::{decimal, regex};
use crate::attach::AttachPlan;
use crate::plan::LayoutInputs;
use crate::regalloc::Allocation;

/// The needs of a program whose handlers have these allocations.
pub(crate) fn needs(
    program: &Program,
    facts: &ProgramFacts,
    allocs: &[Option<Allocation>],
    marks: Marks,
    attach: AttachPlan,
) -> LayoutInputs {
    let max_string = Ty::str_for_len(program.limits.maxstringlen as usize).size();
    let reads = program.kernel_insts().any(|i| reads_into_text(program, i));
    let saved = program.kernel_handlers().map(|h| saved_max(&h.body));
    LayoutInputs {
        frame: allocs.iter().flatten().map(|a| a.frame).max().unwrap_or(0),
        piece: largest_piece(program),
        saved: saved.max().unwrap_or(0),
        decimal: decimal::room(program.kernel_insts()),
        memory: if reads { MAX_MEM.fit::<u32>() + 8 } else { 0 },
        last_match: regex::room(program, facts, max_string),
        user_unwind: unwind::buffer(program.limits.maxbacktrace),
        marks,
        attach,
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
