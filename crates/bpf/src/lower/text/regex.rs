//! Regular expressions: the tables of [`spile_ir::regex`] in `.rodata`, walked by `bpf_loop`.
//!
//! Each expression has a subprogram that puts the addresses and sizes of its tables on the stack
//! and calls the walks. The walks' callbacks serve all expressions. Sizes are constants for the
//! verifier. Rows, positions and slots go through words of the CPU's block, so that the verifier
//! knows nothing about them and follows each callback once. Every index is compared with the
//! table's size; for a correct table the comparison never fails.
//!
//! The walk is assembly and no function of the run-time library. As LIR the test for a match had 325
//! verified instructions (321 here) and took the same time for a text of 16 bytes, but 12 % more for one of
//! 100 bytes: a step keeps row and position in words that are stored twice, so that the verifier forgets
//! them, and the next step waits for both stores.

use spile_ir::regex::{Finder, MAX_GROUPS, NO_SLOT, Scanner};
use spile_ir::{BodyFacts, Inst, Program, ProgramFacts, Reg as IrReg, RegexId, Ty, Val};

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::layout::percpu;
use crate::lower::pool::Pool;
use crate::lower::{Arg, HandlerCodegen, Res, StrOperand};

/// Offsets of the words and buffers of a match in the CPU's block.
mod area {
    /// Number of groups of the last match; -1: no match, -2: nothing matched yet.
    pub(super) const STATE: i16 = 0;
    /// The current row.
    pub(super) const ROW: i16 = 8;
    /// The current position.
    pub(super) const POS: i16 = 16;
    /// The current slot.
    pub(super) const SLOT: i16 = 24;
    /// Start and end of the match, -1 for none; the groups follow.
    pub(super) const START: i16 = 32;
    pub(super) const END: i16 = 40;
    /// Start and end of each group.
    pub(super) const TAGS: i16 = 48;
    /// The string.
    pub(super) const TEXT: i32 = TAGS as i32 + 16 * super::MAX_GROUPS as i32;
}

/// Values of a tag: not reached yet, and discarded.
const OPEN: i32 = -2;
const NONE: i32 = -1;

/// Stack slots of a subprogram that callbacks read.
mod slot {
    /// The match area.
    pub(super) const AREA: i16 = 0;
    /// The string.
    pub(super) const TEXT: i16 = 8;
    /// The byte classes.
    pub(super) const CLASSES: i16 = 16;
    /// The current table, its last entry, and the first accepting row.
    pub(super) const TABLE: i16 = 24;
    pub(super) const LAST: i16 = 32;
    pub(super) const ACCEPT: i16 = 40;
    /// The largest length of a string, or the number of iterations.
    pub(super) const BOUND: i16 = 48;
    /// The per-position notes.
    pub(super) const NOTES: i16 = 56;
    /// The tag operations, and the last one.
    pub(super) const OPS: i16 = 64;
    pub(super) const OPS_LAST: i16 = 72;
    pub(super) const SIZE: i16 = 80;
}

/// Bytes that one call of a callback processes.
const CHUNK: i32 = 8;
const STEPS: i32 = 4;

/// Bytes of each CPU's block for matches; 0 if the program keeps no match.
pub(crate) fn room(program: &Program, facts: &ProgramFacts, max_string: u32) -> u32 {
    match max_matched_len(program, facts, max_string) {
        0 => 0,
        // A note takes two bytes.
        most => area::TEXT as u32 + 3 * (most + 16),
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
    let asked = facts.kernel_bodies().any(BodyFacts::asks_of_match);
    let asked = asked.then_some(max_string);
    insts.filter_map(size).chain(asked).max().unwrap_or(0)
}

impl HandlerCodegen<'_> {
    /// Resets the match at a handler's entry.
    pub(in crate::lower) fn forget_match(&mut self) {
        if self.facts.asks_of_match() {
            let last = self.block_address(self.plan.scratch.last_match);
            self.asm.store(Size::DW, last, area::STATE, -2);
        }
    }

    /// `dst` = 1 if the text matches.
    pub(in crate::lower) fn regex(
        &mut self,
        dst: IrReg,
        re: RegexId,
        text: Val,
        keep: bool,
    ) -> Res {
        let regex = self.program.regexes.get(re.index());
        let regex = regex.ok_or("no such regular expression")?;
        let text = self.text(text)?;
        let compiled = regex.compiled.clone();
        if keep {
            let finder = compiled.find.as_ref().ok_or("a match without its place")?;
            return self.find_match(dst, re, &compiled.classes, finder, &text);
        }
        if let StrOperand::Const { bytes } = &text {
            return self.def_int(dst, i32::from(regex.is_match(bytes)));
        }
        if compiled.test.start >= compiled.test.accept {
            return self.def_int(dst, 1);
        }
        self.needs_loop("a regular expression")?;
        let name = format!("match_{}", re.0);
        self.pool.sub("match_at", |_| match_at())?;
        self.pool.sub(&name, |pool| {
            match_sub(&name, pool, &compiled.classes, &compiled.test)
        })?;
        let chunks = Arg::from(text.width() as i32 / CHUNK);
        let args = [
            self.text_arg(&text),
            Arg::Block(self.plan.scratch.tmp),
            chunks,
        ];
        let matches = self.asm.call_sub_with(name, &args);
        self.def_int(dst, matches)
    }

    fn find_match(
        &mut self,
        dst: IrReg,
        re: RegexId,
        classes: &[u8; 256],
        finder: &Finder,
        text: &StrOperand,
    ) -> Res {
        self.needs_loop("a regular expression")?;
        let last = self.plan.scratch.last_match;
        let max = max_matched_len(self.program, &self.plan.facts, self.plan.max_string);
        let name = format!("find_{}", re.0);
        self.pool.sub("find_back", |_| find_back())?;
        self.pool.sub("find_on", |_| find_on())?;
        self.pool.sub("find_tags", |_| find_tags())?;
        self.pool.sub("find_ops", |_| find_ops())?;
        self.pool.sub(&name, |pool| {
            find_sub(&name, pool, classes, finder, max as i32)
        })?;
        // The copied text is kept for its groups, and ends with a NUL.
        let most = Arg::from(text.width().min(max) as i32);
        let args = [
            Arg::Block(last + area::TEXT as u32),
            most,
            self.text_arg(text),
        ];
        let bytes = self.asm.call_with(Helper::ProbeReadKernelStr, &args);
        let args = [Arg::Block(last), bytes.into()];
        let matches = self.asm.call_sub_with(name, &args);
        self.def_int(dst, matches)
    }

    /// The number of groups of the last match, or the reason for none.
    pub(in crate::lower) fn match_groups(&mut self) -> Reg {
        let last = self.block_address(self.plan.scratch.last_match);
        self.asm.word(last, area::STATE)
    }

    /// `dst` = text of a group.
    pub(in crate::lower) fn match_group(&mut self, dst: IrReg, n: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let last = self.plan.scratch.last_match;
        let max = max_matched_len(self.program, &self.plan.facts, self.plan.max_string) as i32;
        let (end, fits) = (self.asm.label(), self.asm.label());
        self.fill_zero(off, width);
        let group = self.number_copy(n)?;
        let found = self.block_address(last);
        let groups = self.asm.word(found, area::STATE);
        let asm = &mut *self.asm;
        asm.jump_if(Cond::Gt, group, MAX_GROUPS as i32, end);
        asm.jump_if(Cond::Sgt, group, groups, end);
        asm.alu(AluOp::Lsh, group, 4);
        asm.add(group, found);
        let [start, bytes] = [area::START, area::END].map(|at| asm.word(group, at));
        asm.jump_if(Cond::Ge, start, max, end);
        asm.jump_if(Cond::Ge, bytes, max, end);
        asm.alu(AluOp::Sub, bytes, start);
        asm.jump_if(Cond::Sle, bytes, width as i32 - 1, fits);
        asm.mov(bytes, width as i32 - 1);
        self.count(percpu::TRUNCATED);
        self.asm.bind(fits);
        self.asm.jump_if(Cond::Sle, bytes, 0, end);
        self.asm.add(found, area::TEXT);
        self.asm.add(found, start);
        let args = [Arg::Block(off), bytes.into(), found.into()];
        self.asm.call_with(Helper::ProbeReadKernel, &args);
        self.asm.bind(end);
        Ok(())
    }
}

fn finish(asm: Asm) -> Result<Function, String> {
    asm.finish().map_err(|e| e.to_string())
}

/// Offset in `.rodata` of a table of 16-bit or 32-bit entries.
fn table<const N: usize>(pool: &mut Pool, entries: impl Iterator<Item = [u8; N]>) -> u32 {
    let bytes: Vec<u8> = entries.flatten().collect();
    pool.constant(&bytes)
}

/// Stores to a slot of the subprogram's own stack.
fn put(asm: &mut Asm, at: i16, src: impl Into<Src>) {
    asm.store(Size::DW, R10, at - slot::SIZE, src);
}

fn put_data(asm: &mut Asm, at: i16, off: u32) {
    asm.ld_data(R1, Section::Rodata, off);
    put(asm, at, R1);
}

/// Makes a scanner's table the current one.
fn put_scanner(asm: &mut Asm, pool: &mut Pool, s: &Scanner) {
    let off = table(pool, s.next.iter().map(|n| n.to_ne_bytes()));
    put_data(asm, slot::TABLE, off);
    put(asm, slot::LAST, s.next.len() as i32 - 1);
    put(asm, slot::ACCEPT, i32::from(s.accept));
}

/// `row` = table entry of the row at a constant column; goes to `out` past the end. Clobbers r1.
fn column(asm: &mut Asm, row: Reg, column: i32, size: Size, out: Label) {
    asm.add(row, column);
    asm.load(Size::DW, R1, R10, slot::LAST - slot::SIZE);
    asm.jump_if(Cond::Gt, row, R1, out);
    asm.alu(AluOp::Lsh, row, if size == Size::H { 1 } else { 2 });
    asm.load(Size::DW, R1, R10, slot::TABLE - slot::SIZE);
    asm.add(R1, row);
    asm.load(size, row, R1, 0);
}

/// `match(text, words, chunks)`: returns 1 or 0.
fn match_sub(
    name: &str,
    pool: &mut Pool,
    classes: &[u8; 256],
    s: &Scanner,
) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["text", "words", "chunks"]);
    let (no, yes) = (asm.label(), asm.label());
    asm.mov(R6, R2);
    put(&mut asm, slot::AREA, R2);
    put(&mut asm, slot::TEXT, R1);
    put(&mut asm, slot::BOUND, R3);
    asm.mov(R7, R3);
    put_data(&mut asm, slot::CLASSES, pool.constant(classes));
    put_scanner(&mut asm, pool, s);
    asm.store(Size::DW, R6, area::ROW, i32::from(s.start));
    asm.repeat_call(R7.into(), "match_at", -slot::SIZE);
    asm.load(Size::DW, R7, R6, area::ROW);
    asm.jump_if(Cond::Ge, R7, i32::from(s.accept), yes);
    column(&mut asm, R7, s.edge() as i32, Size::H, no);
    asm.jump_if(Cond::Ge, R7, i32::from(s.accept), yes);
    asm.bind(no);
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(yes);
    asm.mov(R0, 1);
    asm.exit();
    finish(asm)
}

/// `row` = index of the row and the class of byte r0; goes to `out` if it is outside of the table.
/// The classes are at `classes`, the last index is in `last`. Clobbers r0 and `spare`.
fn load_class(asm: &mut Asm, row: Reg, classes: Reg, last: Reg, spare: Reg, out: Label) {
    asm.mov(spare, classes);
    asm.add(spare, R0);
    asm.load(Size::B, R0, spare, 0);
    asm.add(row, R0);
    asm.jump_if(Cond::Gt, row, last, out);
}

/// Processes a chunk of bytes; stops at the string's end, or in an accepting row.
fn match_at() -> Result<Function, String> {
    let mut asm = Asm::new("match_at", &["index", "slots"]);
    let (stop, end) = (asm.label(), asm.label());
    asm.load(Size::DW, R3, R2, slot::BOUND);
    asm.jump_if(Cond::Ge, R1, R3, stop);
    asm.load(Size::DW, R6, R2, slot::AREA);
    asm.load(Size::DW, R3, R6, area::ROW);
    asm.load(Size::DW, R7, R2, slot::TEXT);
    asm.alu(AluOp::Lsh, R1, 3);
    asm.add(R7, R1);
    asm.load(Size::DW, R4, R2, slot::TABLE);
    asm.load(Size::DW, R5, R2, slot::CLASSES);
    asm.load(Size::DW, R8, R2, slot::LAST);
    asm.load(Size::DW, R9, R2, slot::ACCEPT);
    for i in 0..CHUNK as i16 {
        asm.load(Size::B, R0, R7, i);
        asm.jump_if(Cond::Eq, R0, 0, end);
        load_class(&mut asm, R3, R5, R8, R1, stop);
        asm.alu(AluOp::Lsh, R3, 1);
        asm.mov(R1, R4);
        asm.add(R1, R3);
        asm.load(Size::H, R3, R1, 0);
        asm.jump_if(Cond::Ge, R3, R9, end);
    }
    asm.store(Size::DW, R6, area::ROW, R3);
    asm.jump_if(Cond::Eq, R3, 0, stop);
    go_on_or_end(asm, end, stop)
}

/// `find(area, length + 1)`: returns 1 or 0, and fills the area.
fn find_sub(
    name: &str,
    pool: &mut Pool,
    classes: &[u8; 256],
    f: &Finder,
    max: i32,
) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["area", "length"]);
    let no = asm.label();
    let fits = asm.label();
    asm.mov(R6, R1);
    asm.mov(R7, R2);
    asm.store(Size::DW, R6, area::STATE, -1);
    asm.jump_if(Cond::Sgt, R7, 0, fits);
    asm.mov(R7, 1);
    asm.bind(fits);
    asm.add(R7, -1);
    put(&mut asm, slot::AREA, R6);
    asm.add(R1, area::TEXT);
    put(&mut asm, slot::TEXT, R1);
    asm.add(R1, max + 8);
    put(&mut asm, slot::NOTES, R1);
    put(&mut asm, slot::BOUND, max);
    put_data(&mut asm, slot::CLASSES, pool.constant(classes));
    for tag in 0..2 * f.groups as i16 {
        asm.store(Size::DW, R6, area::TAGS + 8 * tag, OPEN);
    }
    find_start(&mut asm, pool, f, no);
    find_end(&mut asm, pool, f, no);
    if f.groups > 0 {
        find_groups(&mut asm, pool, f, no);
    }
    asm.store(Size::DW, R6, area::STATE, f.groups as i32);
    asm.mov(R0, 1);
    asm.exit();
    asm.bind(no);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}

/// Computes START, where the match begins. r6 is the area, r7 the string's length.
fn find_start(asm: &mut Asm, pool: &mut Pool, f: &Finder, no: Label) {
    let s = &f.reverse;
    if f.anchored {
        asm.store(Size::DW, R6, area::START, 0);
        return;
    }
    let inside = asm.label();
    put_scanner(asm, pool, s);
    asm.store(Size::DW, R6, area::START, NONE);
    if s.start >= s.accept {
        asm.store(Size::DW, R6, area::START, R7);
    }
    asm.store(Size::DW, R6, area::ROW, i32::from(s.start));
    asm.store(Size::DW, R6, area::POS, R7);
    asm.mov(R1, R7);
    asm.alu(AluOp::Rsh, R1, STEPS.ilog2() as i32);
    asm.add(R1, 1);
    asm.repeat_call(R1.into(), "find_back", -slot::SIZE);
    asm.load(Size::DW, R2, R6, area::ROW);
    column(asm, R2, s.edge() as i32, Size::H, no);
    asm.jump_if(Cond::Lt, R2, i32::from(s.accept), inside);
    asm.store(Size::DW, R6, area::START, 0);
    asm.bind(inside);
    asm.load(Size::DW, R1, R6, area::START);
    asm.jump_if(Cond::Eq, R1, NONE, no);
}

/// Starts a scan's callback: the area in r6, row in r3, position in r7; r4, r5, r8 and r9 from the
/// slots. Returns the labels of its ends as well.
fn scan(name: &str) -> (Asm, Label, Label) {
    let mut asm = Asm::new(name, &["index", "slots"]);
    let (stop, end) = (asm.label(), asm.label());
    asm.load(Size::DW, R6, R2, slot::AREA);
    asm.load(Size::DW, R3, R6, area::ROW);
    asm.load(Size::DW, R7, R6, area::POS);
    asm.load(Size::DW, R4, R2, slot::TABLE);
    asm.load(Size::DW, R5, R2, slot::CLASSES);
    asm.load(Size::DW, R8, R2, slot::LAST);
    asm.load(Size::DW, R9, R2, slot::ACCEPT);
    (asm, end, stop)
}

/// Ends a scan's callback: saves row r3 and position r7 for the next call, and at `end` the row.
fn scanned(mut asm: Asm, end: Label, stop: Label) -> Result<Function, String> {
    asm.store(Size::DW, R6, area::ROW, R3);
    asm.store(Size::DW, R6, area::POS, R7);
    go_on_or_end(asm, end, stop)
}

/// Ends a callback: continues the loop; at `end` saves row r3; `end` and `stop` end the loop.
fn go_on_or_end(mut asm: Asm, end: Label, stop: Label) -> Result<Function, String> {
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(end);
    asm.store(Size::DW, R6, area::ROW, R3);
    asm.bind(stop);
    asm.mov(R0, 1);
    asm.exit();
    finish(asm)
}

/// Processes bytes backwards from the end, and notes where a match can begin.
fn find_back() -> Result<Function, String> {
    let (mut asm, end, stop) = scan("find_back");
    for _ in 0..STEPS {
        let on = asm.label();
        asm.jump_if(Cond::Eq, R7, 0, end);
        asm.add(R7, -1);
        asm.load(Size::DW, R1, R2, slot::BOUND);
        asm.jump_if(Cond::Ge, R7, R1, stop);
        asm.load(Size::DW, R1, R2, slot::TEXT);
        asm.add(R1, R7);
        asm.load(Size::B, R0, R1, 0);
        load_class(&mut asm, R3, R5, R8, R1, stop);
        asm.alu(AluOp::Lsh, R3, 1);
        asm.mov(R1, R4);
        asm.add(R1, R3);
        asm.load(Size::H, R3, R1, 0);
        asm.jump_if(Cond::Lt, R3, R9, on);
        asm.store(Size::DW, R6, area::START, R7);
        asm.bind(on);
    }
    scanned(asm, end, stop)
}

/// Computes END and SLOT: the longest match from START on, and the path that ends it.
fn find_end(asm: &mut Asm, pool: &mut Pool, f: &Finder, no: Label) {
    let (other, go, inside, found) = (asm.label(), asm.label(), asm.label(), asm.label());
    let off = table(pool, f.next.iter().map(|n| n.to_ne_bytes()));
    put_data(asm, slot::TABLE, off);
    put(asm, slot::LAST, f.next.len() as i32 - 1);
    put(asm, slot::ACCEPT, i32::from(f.accept));
    asm.store(Size::DW, R6, area::END, NONE);
    asm.load(Size::DW, R1, R6, area::START);
    asm.store(Size::DW, R6, area::POS, R1);
    asm.jump_if(Cond::Ne, R1, 0, other);
    asm.store(Size::DW, R6, area::ROW, i32::from(f.start[0]));
    asm.jump(go);
    asm.bind(other);
    asm.store(Size::DW, R6, area::ROW, i32::from(f.start[1]));
    asm.bind(go);
    asm.mov(R1, R7);
    asm.alu(AluOp::Rsh, R1, STEPS.ilog2() as i32);
    asm.add(R1, 1);
    asm.repeat_call(R1.into(), "find_on", -slot::SIZE);
    // More paths can end at the string's end. A row without transitions has none.
    asm.load(Size::DW, R2, R6, area::ROW);
    column(asm, R2, f.columns as i32 - 1, Size::W, no);
    asm.alu(AluOp::Rsh, R2, 16);
    asm.jump_if(Cond::Eq, R2, i32::from(NO_SLOT), inside);
    asm.store(Size::DW, R6, area::END, R7);
    asm.jump(found);
    asm.bind(inside);
    asm.load(Size::DW, R1, R6, area::END);
    asm.jump_if(Cond::Eq, R1, NONE, no);
    asm.load(Size::DW, R2, R6, area::SLOT);
    column(asm, R2, f.columns as i32 - 1, Size::W, no);
    asm.alu(AluOp::And, R2, 0xffff);
    asm.bind(found);
    asm.store(Size::DW, R6, area::SLOT, R2);
}

/// Processes bytes from the start; notes lists, and the last accepting row in END and SLOT.
fn find_on() -> Result<Function, String> {
    let (mut asm, end, stop) = scan("find_on");
    for _ in 0..STEPS {
        let on = asm.label();
        asm.jump_if(Cond::Lt, R3, R9, on);
        asm.store(Size::DW, R6, area::END, R7);
        asm.store(Size::DW, R6, area::SLOT, R3);
        asm.bind(on);
        asm.load(Size::DW, R1, R2, slot::BOUND);
        asm.jump_if(Cond::Ge, R7, R1, stop);
        asm.load(Size::DW, R1, R2, slot::TEXT);
        asm.add(R1, R7);
        asm.load(Size::B, R0, R1, 0);
        asm.jump_if(Cond::Eq, R0, 0, end);
        load_class(&mut asm, R3, R5, R8, R1, stop);
        asm.alu(AluOp::Lsh, R3, 2);
        asm.mov(R1, R4);
        asm.add(R1, R3);
        asm.load(Size::H, R3, R1, 0);
        asm.load(Size::H, R0, R1, 2);
        asm.load(Size::DW, R1, R2, slot::NOTES);
        asm.add(R1, R7);
        asm.add(R1, R7);
        asm.store(Size::H, R1, 0, R0);
        asm.add(R7, 1);
        asm.jump_if(Cond::Eq, R3, 0, end);
    }
    scanned(asm, end, stop)
}

/// Computes the groups, backwards from END to START.
fn find_groups(asm: &mut Asm, pool: &mut Pool, f: &Finder, no: Label) {
    let (other, go) = (asm.label(), asm.label());
    let off = table(pool, f.lists.iter().map(|n| n.to_ne_bytes()));
    put_data(asm, slot::TABLE, off);
    put(asm, slot::LAST, f.lists.len() as i32 - 1);
    put_data(asm, slot::OPS, pool.constant(&f.ops));
    put(asm, slot::OPS_LAST, f.ops.len() as i32 - 1);
    asm.load(Size::DW, R1, R6, area::END);
    asm.store(Size::DW, R6, area::POS, R1);
    asm.load(Size::DW, R2, R6, area::START);
    asm.alu(AluOp::Sub, R1, R2);
    asm.repeat_call(R1.into(), "find_tags", -slot::SIZE);
    // Applies the tags before the first byte.
    asm.load(Size::DW, R2, R6, area::SLOT);
    asm.load(Size::DW, R3, R6, area::START);
    asm.jump_if(Cond::Ne, R3, 0, other);
    asm.add(R2, i32::from(f.start_list[0]));
    asm.jump(go);
    asm.bind(other);
    asm.add(R2, i32::from(f.start_list[1]));
    asm.bind(go);
    column(asm, R2, 0, Size::W, no);
    asm.alu(AluOp::Rsh, R2, 16);
    asm.mov(R1, R10);
    asm.add(R1, -i32::from(slot::SIZE));
    asm.call_sub("find_ops");
}

/// Follows one transition backwards: the previous slot, and the tags on the transition.
fn find_tags() -> Result<Function, String> {
    let mut asm = Asm::new("find_tags", &["index", "slots"]);
    let (stop, plain) = (asm.label(), asm.label());
    asm.load(Size::DW, R6, R2, slot::AREA);
    asm.load(Size::DW, R7, R6, area::POS);
    asm.add(R7, -1);
    asm.load(Size::DW, R1, R2, slot::BOUND);
    asm.jump_if(Cond::Ge, R7, R1, stop);
    asm.load(Size::DW, R1, R2, slot::NOTES);
    asm.add(R1, R7);
    asm.add(R1, R7);
    asm.load(Size::H, R4, R1, 0);
    asm.load(Size::DW, R1, R6, area::SLOT);
    asm.add(R4, R1);
    asm.load(Size::DW, R1, R2, slot::LAST);
    asm.jump_if(Cond::Gt, R4, R1, stop);
    asm.alu(AluOp::Lsh, R4, 2);
    asm.load(Size::DW, R1, R2, slot::TABLE);
    asm.add(R1, R4);
    asm.load(Size::H, R4, R1, 0);
    asm.store(Size::DW, R6, area::SLOT, R4);
    asm.store(Size::DW, R6, area::POS, R7);
    asm.load(Size::H, R4, R1, 2);
    asm.jump_if(Cond::Eq, R4, 0, plain);
    asm.mov(R1, R2);
    asm.mov(R2, R4);
    asm.mov(R3, R7);
    asm.add(R3, 1);
    asm.call_sub("find_ops");
    asm.bind(plain);
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(stop);
    asm.mov(R0, 1);
    asm.exit();
    finish(asm)
}

/// `ops(slots, number, position)`: sets or discards tags that were not reached yet.
fn find_ops() -> Result<Function, String> {
    let mut asm = Asm::new("find_ops", &["slots", "number", "position"]);
    let (again, next, stop, set) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(Size::DW, R6, R1, slot::AREA);
    asm.load(Size::DW, R7, R1, slot::OPS);
    asm.load(Size::DW, R8, R1, slot::OPS_LAST);
    asm.jump_if(Cond::Gt, R2, R8, stop);
    asm.mov(R4, R7);
    asm.add(R4, R2);
    asm.load(Size::B, R5, R4, 0);
    asm.mov(R9, 0);
    asm.bind(again);
    asm.jump_if(Cond::Ge, R9, R5, stop);
    asm.jump_if(Cond::Ge, R9, 2 * MAX_GROUPS as i32, stop);
    asm.add(R9, 1);
    asm.add(R2, 1);
    asm.jump_if(Cond::Gt, R2, R8, stop);
    asm.mov(R4, R7);
    asm.add(R4, R2);
    asm.load(Size::B, R0, R4, 0);
    asm.mov(R1, R0);
    asm.alu(AluOp::Rsh, R0, 1);
    asm.jump_if(Cond::Ge, R0, 2 * MAX_GROUPS as i32, stop);
    asm.alu(AluOp::Lsh, R0, 3);
    asm.mov(R4, R6);
    asm.add(R4, R0);
    asm.load(Size::DW, R0, R4, area::TAGS);
    asm.jump_if(Cond::Ne, R0, OPEN, next);
    asm.alu(AluOp::And, R1, 1);
    asm.jump_if(Cond::Eq, R1, 0, set);
    asm.store(Size::DW, R4, area::TAGS, NONE);
    asm.jump(again);
    asm.bind(set);
    asm.store(Size::DW, R4, area::TAGS, R3);
    asm.bind(next);
    asm.jump(again);
    asm.bind(stop);
    asm.mov(R0, 0);
    asm.exit();
    finish(asm)
}
