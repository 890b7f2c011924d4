//! Where the calls of inlined copies begin. Compilers unroll, split and vectorise loops around a copy,
//! and an entry of debugging information can then stand for several copies of its code:
//!
//! - gcc marks each of them in the line table: a statement at the function's own name. All are probed.
//! - Others mark none. Then the first instruction of the copy is probed if each way into the copy leads
//!   over it once. Otherwise hits there are not the calls, which [`FunctionLocation::inexact`] tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::caches::ScopeKind;
use crate::dwarf::Dwarf;
use crate::flow::Flow;
use crate::functions::FunctionLocation;
use crate::lines::{LineRow, LineTable};
use crate::module::DebugFile;
use crate::unit::{Die, contains, number_of};

/// Maximum number of instructions that are looked at for the copies of a function in another one.
const MAX_WORK: usize = 100_000_000;

/// Why the hits of a location are not exactly the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inexact {
    /// The code of the copy is in several locations, not all of which are known.
    Several,
    /// A loop around the copy runs through it without its first instruction.
    Moved,
    /// A loop around the copy calculates several calls at once.
    Vectors,
    /// Several calls begin at the same instruction.
    Together,
    /// The first instruction is that of a loop of the function, too.
    Loop,
    /// A runtime system enters the function more than once for a call, and copies of it are unknown.
    Reentered,
    /// The copy lies in too much code.
    TooLarge,
}

impl std::fmt::Display for Inexact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Inexact::Several => {
                "the compiler made several copies of its code, not all of which are known"
            }
            Inexact::Moved => "the compiler moved a part of its code out of a loop",
            Inexact::Vectors => "a loop makes several calls at once, in vector registers",
            Inexact::Together => "several calls begin at one instruction",
            Inexact::Loop => BEGINS_WITH_LOOP,
            Inexact::Reentered => {
                "GHC enters it again after collections of garbage, and does not tell where it is inlined"
            }
            Inexact::TooLarge => "the function around it is too large to follow its instructions",
        })
    }
}

/// Why hits at the first instruction of a loop are not the calls.
pub const BEGINS_WITH_LOOP: &str = "it begins with a loop, each round of which is a hit";

/// An inlined copy of a function.
pub(crate) struct InlinedCopy {
    /// Its entry.
    pub die: Die,
    /// Its function.
    pub function: Arc<FunctionLocation>,
    /// Its code.
    pub code: Vec<(u64, u64)>,
    /// Where debugging information lets it begin.
    pub start: u64,
    /// The address that debugging information names, which need not be one of its code.
    pub named: Option<u64>,
    /// The start of the function with code around.
    pub around: u64,
}

/// Where a copy begins, and why hits there are not exactly the calls.
type Starts = (BTreeSet<u64>, Option<Inexact>);

impl InlinedCopy {
    fn has(&self, address: u64) -> bool {
        contains(&self.code, address)
    }
}

impl Dwarf {
    /// An inlined copy; `None` if it has no code.
    pub(crate) fn copy(&self, die: Die, function: Arc<FunctionLocation>) -> Option<InlinedCopy> {
        let (unit, entry) = self.entry(die)?;
        let code = self.code(die, &unit, &entry);
        let start = self.entry_pc(die, &unit, &entry, &code)?;
        let around = self.function_ranges(start);
        let named = self.address(die, &unit, &entry, gimli::DW_AT_entry_pc);
        Some(InlinedCopy {
            die,
            function,
            code,
            start,
            named: named.filter(|address| contains(&around, *address)),
            around: around.first().map_or(start, |r| r.0),
        })
    }
}

/// The starts of copies, function by function around them.
pub(crate) struct CopyStarts<'d> {
    dwarf: &'d Dwarf,
    /// The function around that was decoded last.
    around: Option<Around>,
}

/// A function with copies in it.
struct Around {
    start: u64,
    parts: Vec<(u64, u64)>,
    /// `None` if it cannot be decoded.
    flow: Option<Flow>,
    /// The instructions that are in loops.
    in_loops: BTreeSet<usize>,
}

impl<'d> CopyStarts<'d> {
    pub(crate) fn new(dwarf: &'d Dwarf) -> CopyStarts<'d> {
        let around = None;
        CopyStarts { dwarf, around }
    }

    /// Adds the locations of the copies of one function in another one.
    pub(crate) fn add(&mut self, group: &[InlinedCopy], locations: &mut Vec<FunctionLocation>) {
        let Some(first) = group.first() else { return };
        let around = match self.around.take() {
            Some(known) if known.start == first.around => known,
            _ => self.decode(first),
        };
        let marks = self.marks(group, &around);
        let large =
            around.flow.as_ref().map_or(0, |f| f.instructions.len()) * group.len() > MAX_WORK;
        let marked = |flow| self.marked(group, &marks, flow, &around);
        let starts = match &around.flow {
            Some(flow) if !large => marked(flow).unwrap_or_else(|| {
                let starts = group.iter().map(|c| self.first(flow, c, &around));
                starts.map(|(start, why)| ([start].into(), why)).collect()
            }),
            _ => {
                let why = large.then_some(Inexact::TooLarge);
                group.iter().map(|c| ([c.start].into(), why)).collect()
            }
        };
        for (copy, (addresses, inexact)) in group.iter().zip(starts) {
            let inexact = around.has_vectors(copy).or(inexact);
            locations.extend(addresses.into_iter().map(|start| FunctionLocation {
                die: copy.die,
                entry: start,
                body: start,
                inlined: true,
                inexact,
                ..FunctionLocation::clone(&copy.function)
            }));
        }
        self.around = Some(around);
    }

    fn decode(&self, copy: &InlinedCopy) -> Around {
        let parts = self.dwarf.function_ranges(copy.start);
        let start = parts.first().map_or(copy.start, |r| r.0);
        let flow = Flow::decode(&self.dwarf.main, &parts, start);
        let loops = flow.as_ref().map(|f| f.loops(&|_| true));
        Around {
            start: copy.around,
            parts,
            flow,
            in_loops: loops.into_iter().flatten().flatten().collect(),
        }
    }

    /// The starts of copies by marks; `None` if there are none.
    fn marked(
        &self,
        group: &[InlinedCopy],
        marks: &BTreeMap<u64, usize>,
        flow: &Flow,
        around: &Around,
    ) -> Option<Vec<Starts>> {
        let named = |c: &InlinedCopy| c.named.filter(|n| marks.contains_key(n));
        let by_copy = group.iter().map(|c| named(c).into_iter().collect());
        let mut by_copy: Vec<BTreeSet<u64>> = by_copy.collect();
        if by_copy.iter().all(BTreeSet::is_empty) {
            return None;
        }
        let mut calls = 0_usize;
        for (mark, count) in marks {
            let known = by_copy.iter().filter(|o| o.contains(mark)).count();
            let owner = (known == 0).then(|| self.owner(*mark, group));
            match owner {
                None => calls += *count,
                Some(Some(owner)) => {
                    by_copy[owner].insert(*mark);
                    calls += *count;
                }
                // That of a part of a function that was split.
                Some(None) => {}
            }
        }
        // A copy whose mark is gone.
        for (copy, marks) in group.iter().zip(&mut by_copy).filter(|o| o.1.is_empty()) {
            marks.insert(copy.start);
            calls += 1;
        }
        let settled = |(copy, marks): (&InlinedCopy, &BTreeSet<u64>)| -> BTreeSet<u64> {
            let is_inside = |n: usize| copy.has(flow.instructions[n].address);
            let inside = marks.iter().copied().filter(|m| copy.has(*m));
            let mut starts: BTreeSet<u64> = inside.collect();
            for &mark in marks.iter().filter(|m| !copy.has(**m)) {
                // Variables are known in the copy's own code.
                let beside = flow.at(mark).and_then(|n| flow.beside(n, &is_inside));
                let beside = beside
                    .map(|n| flow.instructions[n].address)
                    .filter(|b| !starts.contains(b));
                starts.insert(beside.unwrap_or(mark));
            }
            starts
        };
        let starts: Vec<BTreeSet<u64>> = group.iter().zip(&by_copy).map(settled).collect();
        let locations = starts.iter().map(BTreeSet::len).sum::<usize>();
        let together = (locations < calls).then_some(Inexact::Together);
        let why = |(copy, starts): (&InlinedCopy, &BTreeSet<u64>)| {
            let again = starts.iter().any(|a| around.is_in_loop_of(copy, *a));
            together.or(again.then_some(Inexact::Loop))
        };
        let why: Vec<_> = group.iter().zip(&starts).map(why).collect();
        Some(starts.into_iter().zip(why).collect())
    }

    /// The marks of calls of the copies' function, with the number of calls at each address.
    fn marks(&self, group: &[InlinedCopy], around: &Around) -> BTreeMap<u64, usize> {
        let mut marks = BTreeMap::new();
        let Some(copy) = group.first() else {
            return marks;
        };
        let function = &copy.function;
        let Some(table) = self.dwarf.lines(copy.die.part, copy.die.unit) else {
            return marks;
        };
        let column = self.column(function.die).map(|c| (function.line, c));
        let Some(location) = column.or_else(|| group.iter().find_map(|c| self.viewed(c, &table)))
        else {
            return marks;
        };
        let is_mark = |r: &&LineRow| {
            r.is_stmt
                && !r.end
                && (r.line, r.column) == location
                && table.file(u64::from(r.file)) == function.file.as_ref()
        };
        for (start, end) in &around.parts {
            for row in table.within(*start, *end).iter().filter(is_mark) {
                *marks.entry(row.address).or_default() += 1;
            }
        }
        let own_entry = around.entry_of(self.dwarf, function.die);
        if let Some(count) = own_entry.and_then(|entry| marks.get_mut(&entry)) {
            *count -= 1;
            marks.retain(|_, n| *n > 0);
        }
        marks
    }

    /// The column of a function's name, if debugging information has it.
    fn column(&self, function: Die) -> Option<u16> {
        let (_, entry) = self.dwarf.entry(function)?;
        let (_, value) = self
            .dwarf
            .attr(function, &entry, gimli::DW_AT_decl_column)?;
        let column = u16::try_from(value.udata_value()?).ok();
        column.filter(|c| *c != 0)
    }

    /// The line and column of a copy's mark, which gcc names by its location among the rows of its address:
    /// lambdas are not declared anywhere.
    fn viewed(&self, copy: &InlinedCopy, table: &LineTable) -> Option<(u32, u16)> {
        let (_, entry) = self.dwarf.entry(copy.die)?;
        let view = number_of(&entry, gimli::DW_AT_GNU_entry_view)?;
        let named = copy.named?;
        let rows = table.within(named, named + 1).iter().filter(|r| !r.end);
        let row = rows.into_iter().nth(usize::try_from(view).ok()?)?;
        (row.is_stmt && row.column != 0).then_some((row.line, row.column))
    }

    /// The copy that a mark belongs to: the innermost one around, or the next one behind. `None`: it is
    /// that of a part of a function that was split.
    fn owner(&self, mark: u64, group: &[InlinedCopy]) -> Option<usize> {
        let scopes = self.dwarf.scopes_at(mark);
        let origin_of = |die: Die| {
            let (_, entry) = self.dwarf.entry(die)?;
            self.dwarf.origin(die, &entry)
        };
        let function = group.first()?.function.die;
        let inlined = scopes.iter().filter(|s| s.kind == ScopeKind::Inlined);
        let mut same = inlined.rev().filter(|s| origin_of(s.die) == Some(function));
        if let Some(innermost) = same.next() {
            return group.iter().position(|c| c.die == innermost.die);
        }
        let next_start = |c: &InlinedCopy| c.code.iter().map(|r| r.0).filter(|s| *s >= mark).min();
        let next = |n: &usize| next_start(&group[*n]).unwrap_or(u64::MAX);
        (0..group.len()).min_by_key(next)
    }

    /// The first instruction of a copy without marks, and why hits there are not the calls.
    fn first(&self, flow: &Flow, copy: &InlinedCopy, around: &Around) -> (u64, Option<Inexact>) {
        let inside: Vec<bool> = flow
            .instructions
            .iter()
            .map(|i| copy.has(i.address))
            .collect();
        let reached = flow.reached(&|n| inside[n]);
        let start = match reached[..] {
            [one] if copy.named.is_none() => flow.instructions[one].address,
            _ => copy.start,
        };
        let Some(first) = flow.at(start) else {
            return (start, Some(Inexact::Several));
        };
        // No-operations in front of a loop around align it, and are executed once.
        let padding = flow.instructions[first..].iter();
        let padding = padding.take_while(|i| i.nop);
        let after_padding = first + padding.count();
        let in_own = |n: usize| around.is_in_loop_of(copy, flow.instructions[n].address);
        let first = match inside.get(after_padding) {
            Some(true) if !in_own(after_padding) => after_padding,
            _ => first,
        };
        let start = flow.instructions[first].address;
        if in_own(first) {
            return (start, Some(Inexact::Loop));
        }
        let ways = flow.reached(&|n| n == first || inside[n]);
        if ways.iter().any(|n| *n != first) {
            return (start, Some(Inexact::Several));
        }
        let mut own_loops = BTreeSet::new();
        for round in flow.loops(&|n| n != first) {
            let inside_count = round.iter().filter(|n| inside[**n]).count();
            if inside_count == round.len() {
                own_loops.extend(round);
            } else if inside_count > 0 {
                return (start, Some(Inexact::Moved));
            }
        }
        let again = self.repeats(copy, start, &|address| {
            flow.at(address).is_none_or(|n| own_loops.contains(&n))
        });
        (start, again.then_some(Inexact::Several))
    }

    /// Whether the statement with which a copy begins is in it again, behind another one and outside of
    /// its own loops.
    fn repeats(&self, copy: &InlinedCopy, start: u64, in_own_loop: &dyn Fn(u64) -> bool) -> bool {
        let Some(table) = self.dwarf.lines(copy.die.part, copy.die.unit) else {
            return false;
        };
        let Some(first) = table.row_at(start) else {
            return false;
        };
        let location = |r: &LineRow| (r.file, r.line, r.column);
        // Only gcc says so little of statements that one is new behind other code.
        let gcc = self.dwarf.is_of_gcc(copy.die);
        let mut other = false;
        for (n, (from, to)) in copy.code.iter().enumerate() {
            other |= gcc && n > 0 && *from > copy.code[n - 1].1;
            let rows = table.within(*from, *to).iter();
            for row in rows.filter(|r| r.address > start && r.line != 0 && !r.end) {
                if location(row) != location(first) {
                    other = true;
                } else if other && row.is_stmt && !in_own_loop(row.address) {
                    return true;
                }
            }
        }
        false
    }
}

impl Around {
    /// Where it begins, if it is this function, too.
    fn entry_of(&self, dwarf: &Dwarf, function: Die) -> Option<u64> {
        let scopes = dwarf.scopes_at(self.start);
        let scope = scopes.iter().find(|s| s.kind == ScopeKind::Function)?;
        let same = dwarf.outermost_origin(scope.die) == dwarf.outermost_origin(function);
        dwarf.start_of(scope.die).filter(|_| same)
    }

    /// Whether an instruction is in a loop of the copy itself.
    fn is_in_loop_of(&self, copy: &InlinedCopy, address: u64) -> bool {
        let Some(flow) = &self.flow else { return false };
        let Some(index) = flow.at(address).filter(|n| self.in_loops.contains(n)) else {
            return false;
        };
        let loops = flow.loops(&|n| copy.has(flow.instructions[n].address));
        loops.iter().any(|l| l.contains(&index))
    }

    /// Whether a copy in a loop calculates in vectors.
    fn has_vectors(&self, copy: &InlinedCopy) -> Option<Inexact> {
        let flow = self.flow.as_ref()?;
        let mut instructions = self.in_loops.iter().map(|n| &flow.instructions[*n]);
        instructions
            .any(|i| copy.has(i.address) && i.packed)
            .then_some(Inexact::Vectors)
    }
}

/// Whether the first instruction of a function is the start of a loop, too: each round is a hit.
#[must_use]
pub fn begins_with_loop(module: &DebugFile, entry: u64) -> bool {
    let dwarf = module.dwarf();
    let mut parts = dwarf.map_or_else(Vec::new, |d| d.function_ranges(entry));
    if !contains(&parts, entry) {
        parts = crate::exits::extent(module, entry).into_iter().collect();
    }
    let flow = Flow::decode(module.image(), &parts, entry);
    flow.is_some_and(|f| f.is_jumped_to(entry))
}
