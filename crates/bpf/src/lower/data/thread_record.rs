//! Arrays that are fields of one record a thread (see `spile_ir::storage::records`): the record is
//! looked up once in a handler, its address is kept on the stack.
//!
//! What a slot has is exact: the address, or 0 where the thread has no record. So the verifier, which
//! learns at the first test which it is, follows two ways and not one for each access.

use spile_ir::analysis::dataflow::{self, Exit, Forward, Lattice};
use spile_ir::storage::Threads;
use spile_ir::{Block, BlockId, Body, GlobalId, Inst, Reg as IrReg, Term, Val};

use crate::isa::asm::Label;
use crate::isa::helpers::Helper;
use crate::isa::helpers::errno::{E2BIG, EEXIST};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Src};
use crate::layout::{self, Front, Place, percpu};
use crate::lower::data::thread_record_slots::key_of;
use crate::lower::{Gen, RECORDS, Res};

/// An array that is a field.
pub(in crate::lower) struct Field {
    pub g: GlobalId,
    pub map: String,
    at: i16,
    /// Its bit, as a mask.
    mask: i32,
    pub record: u32,
    pub front: Option<Front>,
}

/// What is known of the records of threads at a place, a bit for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::lower) struct Seen {
    /// Was looked up: its slot has the address.
    found: u8,
    /// Is there: it was written to, or gave a number that is not 0.
    there: u8,
}

impl Seen {
    /// What holds on both ways.
    fn both(self, other: Seen) -> Seen {
        Seen {
            found: self.found & other.found,
            there: self.there & other.there,
        }
    }

    /// An access to a record; `None` to one of which nothing is kept.
    fn access(&mut self, inst: &Inst, which: Option<usize>) {
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

/// What is known of records in a body.
pub(in crate::lower) struct Known {
    threads: Threads,
    /// By block, at its start.
    seen: Vec<Seen>,
}

impl Known {
    /// Looks through a body; `fields` says which globals are fields.
    fn of(body: &Body, fields: impl Fn(GlobalId) -> bool) -> Known {
        let mut accesses = Accesses {
            body,
            threads: Threads::of(body),
            fields,
            tests: Vec::new(),
        };
        let tests = body.blocks.iter().map(|block| accesses.test(block));
        accesses.tests = tests.collect();
        let starts = dataflow::forward(body, &accesses).into_iter();
        Known {
            seen: starts.map(Option::unwrap_or_default).collect(),
            threads: accesses.threads,
        }
    }
}

impl Lattice for Seen {
    fn join(&mut self, other: &Seen) -> bool {
        let both = self.both(*other);
        std::mem::replace(self, both) != both
    }
}

/// The accesses of a body to fields of records.
struct Accesses<'a, F> {
    body: &'a Body,
    threads: Threads,
    fields: F,
    /// By block: which records are there if its branch finds a number that is not 0.
    tests: Vec<u8>,
}

impl<F: Fn(GlobalId) -> bool> Accesses<'_, F> {
    /// Whether an instruction accesses a field, and of which thread's record, if that is known.
    fn access(&self, inst: &Inst) -> Option<Option<usize>> {
        inst.global().filter(|g| (self.fields)(*g))?;
        Some(key_of(inst).and_then(|key| self.threads.which(key)))
    }

    /// Which records are there if the number that the block's branch tests is not 0.
    fn test(&self, block: &Block) -> u8 {
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
    type Fact = Seen;

    fn entry(&self) -> Seen {
        Seen::default()
    }

    fn block(&self, id: BlockId, start: &Seen) -> Exit<Seen> {
        let (mut end, mut anywhere) = (*start, *start);
        for (inst, _) in &self.body.blocks[id.index()].insts {
            if let Some(which) = self.access(inst) {
                end.access(inst, which);
                anywhere = anywhere.both(end);
            }
        }
        Exit { end, anywhere }
    }

    fn jump(&self, id: BlockId, to: BlockId, fact: &mut Seen) {
        if let Term::Branch { then, els, .. } = self.body.blocks[id.index()].term
            && then == to
            && els != to
        {
            fact.there |= self.tests[id.index()];
        }
    }
}

impl Gen<'_> {
    /// The field that an array is, if it is one.
    pub(in crate::lower) fn field(&self, g: GlobalId) -> Res<Option<Field>> {
        let Place::Hash {
            map,
            field: Some(field),
            ..
        } = self.place(g)?
        else {
            return Ok(None);
        };
        let layout::Field {
            at,
            bit,
            record,
            front,
        } = field;
        Ok(Some(Field {
            g,
            map,
            at: i16::try_from(at).map_err(|_| "a record of more than 32 KB")?,
            mask: 1 << bit,
            record,
            front,
        }))
    }

    fn known(&self) -> &Known {
        let is = |g: GlobalId| matches!(self.field(g), Ok(Some(_)));
        self.records.get_or_init(|| Known::of(self.body, is))
    }

    /// At the start of a block. (What runs in steps has no stack that outlives one.)
    pub(in crate::lower) fn begin_seen(&mut self) {
        let BlockId(at) = self.here;
        self.seen = Some(match self.alloc.resume.is_empty() {
            true => self.known().seen[at as usize],
            false => Seen::default(),
        });
    }

    /// Which thread's record a key means.
    pub(in crate::lower) fn which_thread(&self, key: Val) -> Option<usize> {
        self.known().threads.which(key)
    }

    /// Which thread's record a key means, if its address is kept.
    fn thread_of(&self, key: Val) -> Option<usize> {
        let keeps = self.alloc.resume.is_empty();
        self.known().threads.which(key).filter(|_| keeps)
    }

    /// What a record's access says of whether it is there.
    fn now_there(&mut self, key: Val, there: bool) {
        if let (Some(which), Some(seen)) = (self.thread_of(key), &mut self.seen) {
            seen.there &= !(1 << which);
            seen.there |= u8::from(there) << which;
        }
    }

    /// Whether a record is known to be there.
    fn is_there(&self, key: Val) -> bool {
        let which = self.thread_of(key);
        which.is_some_and(|which| {
            self.seen
                .is_some_and(|s| s.found & s.there & 1 << which != 0)
        })
    }

    /// `r0` = the address of the record; goes to `none` where there is none.
    fn record_or(&mut self, field: &Field, key: Val, none: Label) -> Res {
        // (The verifier may not know it: then nothing leads on from there.)
        let none = if self.is_there(key) { self.done } else { none };
        self.record(field, key)?;
        self.asm.jump_if(Cond::Eq, R0, 0, none);
        Ok(())
    }

    /// `r0` = the address of the record, or 0.
    fn record(&mut self, field: &Field, key: Val) -> Res {
        match self.thread_of(key) {
            Some(which) if self.seen.is_some_and(|s| s.found & 1 << which != 0) => {
                self.asm.load(Size::DW, R0, R10, RECORDS[which]);
                Ok(())
            }
            _ => self.record_anew(field, key),
        }
    }

    /// The same by a look-up.
    fn record_anew(&mut self, field: &Field, key: Val) -> Res {
        if let Some(front) = field.front {
            self.record_in_front(field, front, key)?;
            self.keep_record(key);
            return Ok(());
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        self.record_of_key(field, key);
        Ok(())
    }

    /// The same of the key in the key buffer.
    fn record_of_key(&mut self, field: &Field, key: Val) {
        self.asm.ld_map(R1, &*field.map);
        self.addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
        self.keep_record(key);
    }

    /// The address r0 of the record is kept.
    fn keep_record(&mut self, key: Val) {
        if let Some(which) = self.thread_of(key) {
            self.asm.store(Size::DW, R10, RECORDS[which], R0);
            if let Some(seen) = &mut self.seen {
                seen.found |= 1 << which;
            }
        }
    }

    /// `r1` = the address of the record, which is made if there is none. For want of memory (which is
    /// counted) the handler ends: what follows would take 0 for what the record should have, and the
    /// verifier would follow it twice.
    fn record_made(&mut self, field: &Field, key: Val) -> Res {
        let (found, end) = (self.asm.label(), self.done);
        if self.is_there(key) {
            self.record_or(field, key, end)?;
            self.asm.mov(R1, R0);
            return Ok(());
        }
        self.record(field, key)?;
        self.asm.jump_if(Cond::Ne, R0, 0, found);
        if let Some(front) = field.front {
            self.make_in_front(field, front, key)?;
            self.keep_record(key);
            self.asm.jump_if(Cond::Eq, R0, 0, end);
            self.asm.bind(found);
            self.asm.mov(R1, R0);
            self.now_there(key, true);
            return Ok(());
        }
        self.build_key(&[spile_ir::Ty::Long], &[key])?;
        let full = self.full_label(field.g);
        if self.shares() {
            let name = format!("make_{}", field.map);
            self.once_or_full(full, &name, &[], |sub, full| {
                sub.make(field, sub.done, full)
            })?;
        } else {
            let made = self.asm.label();
            self.make(field, made, full)?;
            self.asm.jump(end);
            self.asm.bind(made);
        }
        self.record_of_key(field, key);
        self.asm.jump_if(Cond::Eq, R0, 0, end);
        self.asm.bind(found);
        self.asm.mov(R1, R0);
        self.now_there(key, true);
        Ok(())
    }

    /// Puts in a record without fields and goes to `made`, or counts that there is no memory.
    fn make(&mut self, field: &Field, made: Label, full: Option<Label>) -> Res {
        self.insert(&field.map, false, field.record)?;
        self.asm.jump_if(Cond::Eq, R0, 0, made);
        self.asm.jump_if32(Cond::Eq, R0, EEXIST, made);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        }
        self.count(percpu::NO_MEMORY);
        Ok(())
    }

    /// The field of the record at r1 is there; loses r0.
    fn present(&mut self, field: &Field) {
        self.asm.load(Size::DW, R0, R1, 0);
        self.asm.alu(AluOp::Or, R0, field.mask);
        self.asm.store(Size::DW, R1, 0, R0);
    }

    pub(in crate::lower) fn field_get(&mut self, dst: IrReg, field: &Field, keys: &[Val]) -> Res {
        let none = self.asm.label();
        self.record_or(field, one(keys)?, none)?;
        self.asm.load(Size::DW, R0, R0, field.at);
        self.asm.bind(none);
        self.set_long(dst, R0)
    }

    pub(in crate::lower) fn field_set(&mut self, field: &Field, keys: &[Val], val: Val) -> Res {
        self.record_made(field, one(keys)?)?;
        let v = self.long(val, R2)?;
        self.asm.store(Size::DW, R1, field.at, v);
        self.present(field);
        Ok(())
    }

    pub(in crate::lower) fn field_add(
        &mut self,
        field: &Field,
        keys: &[Val],
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        self.record_made(field, one(keys)?)?;
        self.long_into(val, R2)?;
        self.asm.load(Size::DW, R3, R1, field.at);
        self.asm.add(R2, R3);
        self.asm.store(Size::DW, R1, field.at, R2);
        self.present(field);
        match old {
            Some(old) => self.set_long(old, R3),
            None => Ok(()),
        }
    }

    pub(in crate::lower) fn field_has(
        &mut self,
        dst: IrReg,
        field: &Field,
        keys: &[Option<Val>],
    ) -> Res {
        let end = self.asm.label();
        self.record_or(field, given(keys)?, end)?;
        self.asm.load(Size::DW, R0, R0, 0);
        self.asm
            .alu(AluOp::Rsh, R0, field.mask.trailing_zeros() as i32);
        self.asm.alu(AluOp::And, R0, 1);
        self.asm.bind(end);
        self.set_long(dst, R0)
    }

    pub(in crate::lower) fn field_delete(&mut self, field: &Field, keys: &[Option<Val>]) -> Res {
        let end = self.asm.label();
        let key = given(keys)?;
        self.record_or(field, key, end)?;
        self.now_there(key, false);
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
            self.addr(R2, self.plan.scratch.key);
            self.asm.call(Helper::MapDeleteElem);
        }
        if let Some(which) = self.thread_of(key) {
            self.asm.store(Size::DW, R10, RECORDS[which], Src::Imm(0));
        }
        self.asm.bind(end);
        Ok(())
    }
}

fn one(keys: &[Val]) -> Res<Val> {
    match keys {
        [key] => Ok(*key),
        _ => Err("a record with several keys".into()),
    }
}

fn given(keys: &[Option<Val>]) -> Res<Val> {
    match keys {
        [Some(key)] => Ok(*key),
        _ => Err("a slice of records".into()),
    }
}
