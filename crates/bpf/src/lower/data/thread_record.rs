//! Arrays that are fields of one record per thread (see `spile_ir::storage::thread_records`). A handler
//! looks a record up once and saves its address on the stack.
//!
//! The stack slot is exact: it holds the address, or 0 if the thread has no record. The verifier
//! learns at the first test which one it is, and follows two paths in total rather than two for
//! each access.

use spile_ir::analysis::dataflow::{self, ExitFacts, Forward, Lattice};
use spile_ir::storage::ThreadIdRegs;
use spile_ir::{Block, BlockId, Body, GlobalId, Inst, Reg as IrReg, Term, Val};

use crate::isa::asm::Label;
use crate::isa::helpers::Helper;
use crate::isa::helpers::errno::{E2BIG, EEXIST};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Src};
use crate::layout::{self, GlobalPlace, ThreadSlots, percpu};
use crate::lower::data::thread_record_slots::key_of;
use crate::lower::{HandlerCodegen, Res, THREAD_RECORDS};

/// An array that is a field of the thread record.
pub(in crate::lower) struct FieldRef {
    pub g: GlobalId,
    pub map: String,
    at: i16,
    /// The field's presence bit, as a mask.
    mask: i32,
    pub record: u32,
    pub front: Option<ThreadSlots>,
}

/// Facts about thread records at one program point, as a bit for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::lower) struct RecordState {
    /// The record was looked up, so its slot is valid.
    found: u8,
    /// The record exists: it was written to, or a read returned a number other than 0.
    there: u8,
}

impl RecordState {
    /// The meet of two facts: what holds on both paths.
    fn meet(self, other: RecordState) -> RecordState {
        RecordState {
            found: self.found & other.found,
            there: self.there & other.there,
        }
    }

    /// The transfer function of an access; `which` is `None` if the record's address is not saved.
    fn apply_access(&mut self, inst: &Inst, which: Option<usize>) {
        let bit = which.map_or(0, |which| 1 << which);
        self.found |= bit;
        match inst {
            Inst::ASet { .. } | Inst::AAdd { .. } => self.there |= bit,
            Inst::ADel { .. } if bit == 0 => self.there = 0,
            Inst::ADel { .. } => self.there &= !bit,
            _ => {}
        }
    }
}

/// Facts about thread records in a body.
pub(in crate::lower) struct RecordFacts {
    threads: ThreadIdRegs,
    /// The facts at the start of each block.
    seen: Vec<RecordState>,
}

impl RecordFacts {
    /// Computes the facts; `fields` tests whether a global is a field.
    fn of(body: &Body, fields: impl Fn(GlobalId) -> bool) -> RecordFacts {
        let mut accesses = Accesses {
            body,
            threads: ThreadIdRegs::of(body),
            fields,
            tests: Vec::new(),
        };
        let tests = body
            .blocks
            .iter()
            .map(|block| accesses.tested_records(block));
        accesses.tests = tests.collect();
        let starts = dataflow::forward(body, &accesses).into_iter();
        RecordFacts {
            seen: starts.map(Option::unwrap_or_default).collect(),
            threads: accesses.threads,
        }
    }
}

impl Lattice for RecordState {
    fn join(&mut self, other: &RecordState) -> bool {
        let both = self.meet(*other);
        std::mem::replace(self, both) != both
    }
}

/// The dataflow analysis of a body's accesses to record fields.
struct Accesses<'a, F> {
    body: &'a Body,
    threads: ThreadIdRegs,
    fields: F,
    /// For each block, the records that exist if its branch finds a nonzero number.
    tests: Vec<u8>,
}

impl<F: Fn(GlobalId) -> bool> Accesses<'_, F> {
    /// Whether an instruction accesses a field, and the index of the thread if it is one of
    /// [`ThreadIdRegs`].
    fn access(&self, inst: &Inst) -> Option<Option<usize>> {
        inst.global().filter(|g| (self.fields)(*g))?;
        Some(key_of(inst).and_then(|key| self.threads.which(key)))
    }

    /// The records that exist if the number that the block's branch tests is not 0.
    fn tested_records(&self, block: &Block) -> u8 {
        let Term::Branch {
            cond: Val::Reg(cond),
            ..
        } = block.term
        else {
            return 0;
        };
        let mut there = 0;
        for (inst, _) in &block.insts {
            match inst {
                Inst::ADel { .. } => there = 0,
                Inst::AGet { dst, .. } | Inst::AHas { dst, .. } if *dst == cond => {
                    let which = self.access(inst).flatten();
                    there = which.map_or(0, |which| 1 << which);
                }
                _ if inst.dst() == Some(cond) => there = 0,
                _ => {}
            }
        }
        there
    }
}

impl<F: Fn(GlobalId) -> bool> Forward for Accesses<'_, F> {
    type Fact = RecordState;

    fn entry(&self) -> RecordState {
        RecordState::default()
    }

    fn block(&self, id: BlockId, start: &RecordState) -> ExitFacts<RecordState> {
        let (mut end, mut anywhere) = (*start, *start);
        for (inst, _) in &self.body.blocks[id.index()].insts {
            if let Some(which) = self.access(inst) {
                end.apply_access(inst, which);
                anywhere = anywhere.meet(end);
            }
        }
        ExitFacts { end, anywhere }
    }

    fn jump(&self, id: BlockId, to: BlockId, fact: &mut RecordState) {
        if let Term::Branch { then, els, .. } = self.body.blocks[id.index()].term
            && then == to
            && els != to
        {
            fact.there |= self.tests[id.index()];
        }
    }
}

impl HandlerCodegen<'_> {
    /// The array's field in the thread record, if it has one.
    pub(in crate::lower) fn field(&self, g: GlobalId) -> Res<Option<FieldRef>> {
        let GlobalPlace::Hash {
            map,
            field: Some(field),
            ..
        } = self.place(g)?
        else {
            return Ok(None);
        };
        let layout::ThreadField {
            at,
            bit,
            record,
            front,
        } = field;
        Ok(Some(FieldRef {
            g,
            map,
            at: i16::try_from(at).map_err(|_| "a record of more than 32 KB")?,
            mask: 1 << bit,
            record,
            front,
        }))
    }

    fn facts(&self) -> &RecordFacts {
        let is = |g: GlobalId| matches!(self.field(g), Ok(Some(_)));
        self.records.get_or_init(|| RecordFacts::of(self.body, is))
    }

    /// Sets the facts for the start of a block. Resumable loops have none, because no stack
    /// outlives a step.
    pub(in crate::lower) fn begin_block_facts(&mut self) {
        let BlockId(at) = self.cur_block;
        self.record_state = Some(match self.alloc.resume.is_empty() {
            true => self.facts().seen[at as usize],
            false => RecordState::default(),
        });
    }

    /// The index of the thread whose record a key selects.
    pub(in crate::lower) fn thread_index(&self, key: Val) -> Option<usize> {
        self.facts().threads.which(key)
    }

    /// The index of the thread that a key selects, if its record's address is saved.
    fn thread_of(&self, key: Val) -> Option<usize> {
        let keeps = self.alloc.resume.is_empty();
        self.facts().threads.which(key).filter(|_| keeps)
    }

    /// Notes whether a record exists after an access.
    fn note_record(&mut self, key: Val, there: bool) {
        if let (Some(which), Some(seen)) = (self.thread_of(key), &mut self.record_state) {
            seen.there &= !(1 << which);
            seen.there |= u8::from(there) << which;
        }
    }

    /// Whether a record is certain to exist.
    fn record_exists(&self, key: Val) -> bool {
        let which = self.thread_of(key);
        which.is_some_and(|which| {
            self.record_state
                .is_some_and(|s| s.found & s.there & 1 << which != 0)
        })
    }

    /// `r0` = the address of the record. Goes to `none` if the record does not exist.
    fn record_or_jump(&mut self, field: &FieldRef, key: Val, none: Label) -> Res {
        // The verifier may not know that the record exists, so its test needs a target.
        let none = if self.record_exists(key) {
            self.done
        } else {
            none
        };
        self.record(field, key)?;
        self.asm.jump_if(Cond::Eq, R0, 0, none);
        Ok(())
    }

    /// `r0` = the address of the record, or 0.
    fn record(&mut self, field: &FieldRef, key: Val) -> Res {
        match self.thread_of(key) {
            Some(which) if self.record_state.is_some_and(|s| s.found & 1 << which != 0) => {
                self.asm.load(Size::DW, R0, R10, THREAD_RECORDS[which]);
                Ok(())
            }
            _ => self.record_looked_up(field, key),
        }
    }

    /// `r0` = the address of the record by a look-up, or 0.
    fn record_looked_up(&mut self, field: &FieldRef, key: Val) -> Res {
        if let Some(front) = field.front {
            self.record_in_slot(field, front, key)?;
            self.save_record(key);
            return Ok(());
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        self.record_of_key(field, key);
        Ok(())
    }

    /// `r0` = the address of the record for the key in the key buffer, or 0.
    fn record_of_key(&mut self, field: &FieldRef, key: Val) {
        self.asm.ld_map(R1, &*field.map);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
        self.save_record(key);
    }

    /// Saves the record's address from r0.
    fn save_record(&mut self, key: Val) {
        if let Some(which) = self.thread_of(key) {
            self.asm.store(Size::DW, R10, THREAD_RECORDS[which], R0);
            if let Some(seen) = &mut self.record_state {
                seen.found |= 1 << which;
            }
        }
    }

    /// `r1` = the address of the record, created if absent. If there is no memory, the loss is
    /// counted and the handler ends: later reads would take 0 for the record's values, and the
    /// verifier would follow the rest twice.
    fn record_created(&mut self, field: &FieldRef, key: Val) -> Res {
        let (found, end) = (self.asm.label(), self.done);
        if self.record_exists(key) {
            self.record_or_jump(field, key, end)?;
            self.asm.mov(R1, R0);
            return Ok(());
        }
        self.record(field, key)?;
        self.asm.jump_if(Cond::Ne, R0, 0, found);
        if let Some(front) = field.front {
            self.create_in_slot(field, front, key)?;
            self.save_record(key);
            self.asm.jump_if(Cond::Eq, R0, 0, end);
            self.asm.bind(found);
            self.asm.mov(R1, R0);
            self.note_record(key, true);
            return Ok(());
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        let full = self.full_label(field.g);
        if self.uses_subprograms() {
            let name = format!("make_{}", field.map);
            self.call_global_or_full(full, &name, &[], |sub, full| {
                sub.create_record(field, sub.done, full)
            })?;
        } else {
            let made = self.asm.label();
            self.create_record(field, made, full)?;
            self.asm.jump(end);
            self.asm.bind(made);
        }
        self.record_of_key(field, key);
        self.asm.jump_if(Cond::Eq, R0, 0, end);
        self.asm.bind(found);
        self.asm.mov(R1, R0);
        self.note_record(key, true);
        Ok(())
    }

    /// Inserts an empty record and goes to `made`, or counts the lack of memory.
    fn create_record(&mut self, field: &FieldRef, made: Label, full: Option<Label>) -> Res {
        self.insert(&field.map, false, field.record)?;
        self.asm.jump_if(Cond::Eq, R0, 0, made);
        self.asm.jump_if32(Cond::Eq, R0, EEXIST, made);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        }
        self.count(percpu::NO_MEMORY);
        Ok(())
    }

    /// Sets the field's presence bit in the record at r1. Clobbers r0.
    fn field_present(&mut self, field: &FieldRef) {
        self.asm.load(Size::DW, R0, R1, 0);
        self.asm.alu(AluOp::Or, R0, field.mask);
        self.asm.store(Size::DW, R1, 0, R0);
    }

    pub(in crate::lower) fn field_get(
        &mut self,
        dst: IrReg,
        field: &FieldRef,
        keys: &[Val],
    ) -> Res {
        let none = self.asm.label();
        self.record_or_jump(field, single_key(keys)?, none)?;
        self.asm.load(Size::DW, R0, R0, field.at);
        self.asm.bind(none);
        self.def_int(dst, R0)
    }

    pub(in crate::lower) fn field_set(&mut self, field: &FieldRef, keys: &[Val], val: Val) -> Res {
        self.record_created(field, single_key(keys)?)?;
        let v = self.use_int(val, R2)?;
        self.asm.store(Size::DW, R1, field.at, v);
        self.field_present(field);
        Ok(())
    }

    pub(in crate::lower) fn field_add(
        &mut self,
        field: &FieldRef,
        keys: &[Val],
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        self.record_created(field, single_key(keys)?)?;
        self.use_in(val, R2)?;
        self.asm.load(Size::DW, R3, R1, field.at);
        self.asm.add(R2, R3);
        self.asm.store(Size::DW, R1, field.at, R2);
        self.field_present(field);
        match old {
            Some(old) => self.def_int(old, R3),
            None => Ok(()),
        }
    }

    pub(in crate::lower) fn field_has(
        &mut self,
        dst: IrReg,
        field: &FieldRef,
        keys: &[Option<Val>],
    ) -> Res {
        let end = self.asm.label();
        self.record_or_jump(field, given_key(keys)?, end)?;
        self.asm.load(Size::DW, R0, R0, 0);
        self.asm
            .alu(AluOp::Rsh, R0, field.mask.trailing_zeros() as i32);
        self.asm.alu(AluOp::And, R0, 1);
        self.asm.bind(end);
        self.def_int(dst, R0)
    }

    pub(in crate::lower) fn field_delete(&mut self, field: &FieldRef, keys: &[Option<Val>]) -> Res {
        let end = self.asm.label();
        let key = given_key(keys)?;
        self.record_or_jump(field, key, end)?;
        self.note_record(key, false);
        self.asm.store(Size::DW, R0, field.at, 0);
        self.asm.load(Size::DW, R1, R0, 0);
        self.asm.alu(AluOp::And, R1, !field.mask);
        self.asm.store(Size::DW, R0, 0, R1);
        self.asm.jump_if(Cond::Ne, R1, 0, end);
        if field.front.is_some() {
            self.free_slot(field);
        } else {
            self.build_key(&[spile_ir::Ty::Long], &[key])?;
            self.asm.ld_map(R1, &*field.map);
            self.block_addr(R2, self.plan.scratch.key);
            self.asm.call(Helper::MapDeleteElem);
        }
        if let Some(which) = self.thread_of(key) {
            self.asm
                .store(Size::DW, R10, THREAD_RECORDS[which], Src::Imm(0));
        }
        self.asm.bind(end);
        Ok(())
    }
}

fn single_key(keys: &[Val]) -> Res<Val> {
    match keys {
        [key] => Ok(*key),
        _ => Err("a record with several keys".into()),
    }
}

fn given_key(keys: &[Option<Val>]) -> Res<Val> {
    match keys {
        [Some(key)] => Ok(*key),
        _ => Err("a slice of records".into()),
    }
}
