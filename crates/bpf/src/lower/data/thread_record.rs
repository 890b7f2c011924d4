//! Arrays that are fields of one record per thread (see `spile_ir::storage::thread_records`). A handler
//! looks a record up once and saves its address on the stack.
//!
//! The stack slot is exact: it holds the address, or 0 if the thread has no record. The verifier
//! learns at the first test which one it is, and follows two paths in total rather than two for
//! each access.

use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::helpers::errno::{E2BIG, EEXIST};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::{BlockId, Reg as IrReg, Val};
use spile_layout::percpu;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::data::thread_record_facts::{FieldRef, RecordState};
use crate::lower::slots::THREAD_RECORDS;

impl HandlerCodegen<'_> {
    /// Sets the facts for the start of a block. Resumable loops have none, because no stack
    /// outlives a step.
    pub(crate) fn begin_block_facts(&mut self) {
        let BlockId(block) = self.cur_block;
        self.record_state = Some(match self.alloc.resume.is_empty() {
            true => self.ctx.records().seen[block as usize],
            false => RecordState::default(),
        });
    }

    /// The index of the thread whose record a key selects.
    pub(crate) fn thread_index(&self, key: Val) -> Option<usize> {
        self.ctx.records().threads.thread_index(key)
    }

    /// The index of the thread that a key selects, if its record's address is saved.
    fn thread_of(&self, key: Val) -> Option<usize> {
        let keeps = self.alloc.resume.is_empty();
        self.thread_index(key).filter(|_| keeps)
    }

    /// Notes whether a record exists after an access.
    fn note_record(&mut self, key: Val, exists: bool) {
        if let (Some(thread), Some(seen)) = (self.thread_of(key), &mut self.record_state) {
            seen.note(1 << thread, exists);
        }
    }

    /// Whether a record's address is saved, and whether the record is then certain to exist.
    fn known_record(&self, key: Val) -> (bool, bool) {
        match (self.thread_of(key), self.record_state) {
            (Some(thread), Some(state)) => state.knows(thread),
            _ => (false, false),
        }
    }

    /// Whether a record is certain to exist.
    fn record_exists(&self, key: Val) -> bool {
        self.known_record(key) == (true, true)
    }

    /// The address of the record, which may be changed. Goes to `none` with 0 if the record does not
    /// exist.
    fn record_or_jump(&mut self, field: &FieldRef, key: Val, none: Label) -> Res<Reg> {
        let thread = self.thread_of(key);
        let tested = |s: RecordState| thread.is_some_and(|thread| s.tested & 1 << thread != 0);
        if self.record_state.is_some_and(tested) {
            return self.record(field, key);
        }
        let exists = self.record_exists(key);
        let record = self.record(field, key)?;
        if exists {
            // The verifier may not know that the record exists, so the test needs a target.
            self.asm.jump_if(Cond::Eq, record, 0, self.done);
            self.note_record(key, true);
        } else {
            self.asm.jump_if(Cond::Eq, record, 0, none);
        }
        Ok(record)
    }

    /// The address of the record, or 0.
    fn record(&mut self, field: &FieldRef, key: Val) -> Res<Reg> {
        match self.thread_of(key) {
            Some(thread) if self.known_record(key).0 => {
                Ok(self.asm.word(R10, THREAD_RECORDS[thread]))
            }
            _ => self.record_looked_up(field, key),
        }
    }

    /// The address of the record by a look-up, or 0.
    fn record_looked_up(&mut self, field: &FieldRef, key: Val) -> Res<Reg> {
        if let Some(front) = field.front {
            let record = self.record_in_slot(field, front, key)?;
            self.save_record(key, record);
            return Ok(record);
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        Ok(self.record_of_key(field, key))
    }

    /// The address of the record for the key in the key buffer, or 0.
    fn record_of_key(&mut self, field: &FieldRef, key: Val) -> Reg {
        let record = self.map_call(Helper::MapLookupElem, &field.map);
        self.save_record(key, record);
        record
    }

    /// Saves the record's address.
    fn save_record(&mut self, key: Val, record: Reg) {
        if let Some(thread) = self.thread_of(key) {
            self.asm
                .store(Size::DW, R10, THREAD_RECORDS[thread], record);
            if let Some(seen) = &mut self.record_state {
                seen.saved |= 1 << thread;
            }
        }
    }

    /// The address of the record, created if absent. If there is no memory, the loss is
    /// counted and the handler ends: later reads would take 0 for the record's values, and the
    /// verifier would follow the rest twice.
    fn record_created(&mut self, field: &FieldRef, key: Val) -> Res<Reg> {
        let (present, end) = (self.asm.label(), self.done);
        if self.record_exists(key) {
            return self.record_or_jump(field, key, end);
        }
        let record = self.record(field, key)?;
        self.asm.jump_if(Cond::Ne, record, 0, present);
        if let Some(front) = field.front {
            let made = self.create_in_slot(field, front, key)?;
            self.save_record(key, made);
            self.asm.mov(record, made);
            self.asm.jump_if(Cond::Eq, record, 0, end);
            self.asm.bind(present);
            self.note_record(key, true);
            return Ok(record);
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        let full = self.full_label(field.g);
        if self.outlined() {
            let name = format!("make_{}", field.map);
            self.call_global_or_full(full, &name, [], |sub, [], full| {
                sub.create_record(field, sub.done, full);
                Ok(())
            })?;
        } else {
            let made = self.asm.label();
            self.create_record(field, made, full);
            self.asm.jump(end);
            self.asm.bind(made);
        }
        let made = self.record_of_key(field, key);
        self.asm.mov(record, made);
        self.asm.jump_if(Cond::Eq, record, 0, end);
        self.asm.bind(present);
        self.note_record(key, true);
        Ok(record)
    }

    /// Inserts an empty record and goes to `made`, or counts the lack of memory.
    fn create_record(&mut self, field: &FieldRef, made: Label, full: Option<Label>) {
        let result = self.insert(&field.map, false, field.record);
        self.asm.jump_if(Cond::Eq, result, 0, made);
        self.asm.jump_if32(Cond::Eq, result, EEXIST, made);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, result, E2BIG, full);
        }
        self.count(percpu::NO_MEMORY);
    }

    /// Sets the field's presence bit in a record.
    fn field_present(&mut self, field: &FieldRef, record: Reg) {
        let present = self.asm.word(record, 0);
        self.asm.alu(AluOp::Or, present, field.mask);
        self.asm.store(Size::DW, record, 0, present);
    }

    pub(crate) fn field_get(&mut self, dst: IrReg, field: &FieldRef, keys: &[Val]) -> Res {
        let none = self.asm.label();
        let key = single_key(keys)?;
        let record = self.record_or_jump(field, key, none)?;
        self.asm.load(Size::DW, record, record, field.offset);
        self.asm.bind(none);
        self.def_int(dst, record)
    }

    pub(crate) fn field_set(&mut self, field: &FieldRef, keys: &[Val], val: Val) -> Res {
        let key = single_key(keys)?;
        let record = self.record_created(field, key)?;
        let v = self.number(val)?;
        self.asm.store(Size::DW, record, field.offset, v);
        self.field_present(field, record);
        Ok(())
    }

    pub(crate) fn field_add(
        &mut self,
        field: &FieldRef,
        keys: &[Val],
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        let key = single_key(keys)?;
        let record = self.record_created(field, key)?;
        let v = self.number(val)?;
        let before = self.asm.word(record, field.offset);
        let sum = self.asm.alu_of(AluOp::Add, before, v);
        self.asm.store(Size::DW, record, field.offset, sum);
        self.field_present(field, record);
        match old {
            Some(old) => self.def_int(old, before),
            None => Ok(()),
        }
    }

    pub(crate) fn field_has(&mut self, dst: IrReg, field: &FieldRef, keys: &[Option<Val>]) -> Res {
        let end = self.asm.label();
        let key = given_key(keys)?;
        let record = self.record_or_jump(field, key, end)?;
        self.asm.load(Size::DW, record, record, 0);
        self.asm
            .alu(AluOp::Rsh, record, field.mask.trailing_zeros());
        self.asm.alu(AluOp::And, record, 1);
        self.asm.bind(end);
        self.def_int(dst, record)
    }

    pub(crate) fn field_delete(&mut self, field: &FieldRef, keys: &[Option<Val>]) -> Res {
        let end = self.asm.label();
        let key = given_key(keys)?;
        let record = self.record_or_jump(field, key, end)?;
        self.note_record(key, false);
        self.asm.store(Size::DW, record, field.offset, 0);
        let present = self.asm.word(record, 0);
        self.asm.alu(AluOp::And, present, !field.mask);
        self.asm.store(Size::DW, record, 0, present);
        self.asm.jump_if(Cond::Ne, present, 0, end);
        if field.front.is_some() {
            self.free_slot(field, record);
        } else {
            self.build_key(&[spile_ir::Ty::Long], &[key])?;
            self.map_call(Helper::MapDeleteElem, &field.map);
        }
        if let Some(thread) = self.thread_of(key) {
            self.asm
                .store(Size::DW, R10, THREAD_RECORDS[thread], Src::Imm(0));
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
