//! Thread records in the shared block (see [`ThreadSlots`]), which handlers find without a helper
//! call. The subprograms here serve the few threads whose slot another thread occupies, and records
//! that do not exist yet.

use spile_ir::Val;

use crate::isa::helpers::Helper;
use crate::isa::helpers::errno::{E2BIG, EEXIST};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size, Src};
use crate::layout::{ThreadSlots, percpu};
use crate::lower::data::thread_record_facts::{FieldRef, key_of};
use crate::lower::{HandlerCodegen, Res};

/// Names of the subprograms for records outside of their slot. This one only searches the map.
const LOOK: &str = "look_record";
const MAKE: &str = "make_record";

impl HandlerCodegen<'_> {
    /// `r0` = the address of a thread's record, or 0.
    pub(in crate::lower) fn record_in_slot(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        key: Val,
    ) -> Res {
        let (end, which) = (self.asm.label(), self.room_of(key)?);
        self.use_in(key, R1)?;
        self.slot_of(front, R0, R1);
        self.asm.add(R1, 1);
        self.asm.load(Size::DW, R2, R0, field.record as i16);
        // The verifier follows the other path first, and its state then covers this one.
        self.asm.jump_if(Cond::Eq, R2, R1, end);
        self.shared(R2, front.spilt);
        self.asm.load(Size::DW, R2, R2, 0);
        self.asm.mov(R0, 0);
        self.asm.jump_if(Cond::Eq, R2, 0, end);
        self.call_record(field, front, (which, LOOK))?;
        self.room_at(front);
        self.asm.bind(end);
        Ok(())
    }

    /// `r0` = the address of a thread's record, created if absent. Without memory the handler ends.
    pub(in crate::lower) fn create_in_slot(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        key: Val,
    ) -> Res {
        let (which, full) = (self.room_of(key)?, self.full_label(field.g));
        self.use_in(key, R1)?;
        self.asm.add(R1, 1);
        self.call_record(field, front, (which, MAKE))?;
        if let Some(full) = full {
            let code = self.full_code(front);
            self.asm.jump_if(Cond::Eq, R0, code, full);
        }
        self.room_at(front);
        Ok(())
    }

    /// At the handler's end, writes back the records that it changed as copies.
    pub(in crate::lower) fn write_back_records(&mut self) -> Res {
        for (which, (field, front)) in self.rooms_used()? {
            let end = self.asm.label();
            self.load(R1, front.lent + 8 * which);
            self.asm.jump_if(Cond::Eq, R1, 0, end);
            self.define_global("write_back_record", &["room"], |sub| {
                sub.write_back(&field, front);
                Ok(())
            })?;
            self.asm.mov(R1, which as i32);
            self.asm.call_sub("write_back_record");
            self.asm.bind(end);
        }
        Ok(())
    }

    /// The threads whose records the handler accesses, each with one of the fields.
    fn rooms_used(&self) -> Res<Vec<(u32, (FieldRef, ThreadSlots))>> {
        let mut used = std::collections::BTreeMap::new();
        for inst in self.body.insts() {
            let Some(g) = inst.global() else { continue };
            let Some(field) = self.ctx.field(g)? else {
                continue;
            };
            if let (Some(front), Some(key)) = (field.front, key_of(inst)) {
                used.insert(self.room_of(key)?, (field, front));
            }
        }
        Ok(used.into_iter().collect())
    }

    /// The index of this processor's room for the thread that a key selects.
    fn room_of(&self, key: Val) -> Res<u32> {
        let which = self.thread_index(key);
        Ok(which.ok_or("a record of a thread that does not run here")? as u32)
    }

    /// `to` = the address of a thread's slot. Preserves `thread`.
    fn slot_of(&mut self, front: ThreadSlots, to: Reg, thread: Reg) {
        self.shared(to, front.at);
        self.asm.mov(R2, thread);
        self.asm.alu(AluOp::And, R2, front.slots as i32 - 1);
        self.asm.alu(AluOp::Mul, R2, front.stride as i32);
        self.asm.add(to, R2);
    }

    /// `r0` = the address of slot or room number r0, or 0 if the number is out of range.
    fn room_at(&mut self, front: ThreadSlots) {
        let end = self.asm.label();
        self.asm.mov(R1, R0);
        self.asm.mov(R0, 0);
        let all = front.all(self.options.cpus) as i32;
        self.asm.jump_if(Cond::Ge, R1, all, end);
        self.asm.alu(AluOp::Mul, R1, front.stride as i32);
        self.shared(R0, front.at);
        self.asm.add(R0, R1);
        self.asm.bind(end);
    }

    /// The subprogram's result if there is no record, or no memory for one (which is counted).
    fn none_code(&self, front: ThreadSlots) -> i32 {
        front.all(self.options.cpus) as i32
    }

    /// The subprogram's result if the array is full.
    fn full_code(&self, front: ThreadSlots) -> i32 {
        self.none_code(front) + 1
    }

    /// Calls the subprogram for the record of owner r1: `r0` = the number of the slot or room.
    fn call_record(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        (which, how): (u32, &'static str),
    ) -> Res {
        self.define_global(how, &["owner", "room"], |sub| {
            sub.record_sub(field, front, how)
        })?;
        self.asm.mov(R2, which as i32);
        self.asm.call_sub(how);
        Ok(())
    }

    /// In a subprogram: `r9` = the number of this processor's room r8, `r8` = the address of the
    /// word with the room's owner.
    fn own_room(&mut self, front: ThreadSlots) {
        let done = self.done;
        self.bound_argument(R8, ThreadSlots::ROOMS - 1);
        self.plan.cpu_number(self.asm, done);
        self.asm.mov(R9, R0);
        self.asm.alu(AluOp::Mul, R9, ThreadSlots::ROOMS as i32);
        self.asm.add(R9, R8);
        self.asm.add(R9, front.slots as i32);
        self.asm.alu(AluOp::Lsh, R8, 3);
        self.asm.add(R8, R7);
        self.asm.add(R8, front.lent as i32);
    }

    /// In a subprogram: `to` = the address of room r9. Clobbers r0.
    fn own_room_at(&mut self, front: ThreadSlots, to: Reg) {
        self.asm.mov(R0, R9);
        self.asm.alu(AluOp::Mul, R0, front.stride as i32);
        self.shared(to, front.at);
        self.asm.add(to, R0);
    }

    /// In a subprogram: `r0` = the record of owner r6 in the map, or 0.
    fn record_in_map(&mut self, field: &FieldRef) {
        self.key_of_owner();
        self.asm.ld_map(R1, &*field.map);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
    }

    /// In a subprogram: writes the thread of owner r6 to the key buffer.
    fn key_of_owner(&mut self) {
        self.asm.mov(R1, R6);
        self.asm.add(R1, -1);
        self.store(self.plan.scratch.key, R1);
    }

    /// The subprogram that copies the record of owner r6 from the map to room r8 and returns the
    /// room's number.
    fn record_sub(&mut self, field: &FieldRef, front: ThreadSlots, how: &str) -> Res {
        let [copied, none] = [(); 2].map(|()| self.asm.label());
        if how == MAKE {
            self.put_record(field, front)?;
        }
        self.own_room(front);
        self.asm.load(Size::DW, R1, R8, 0);
        self.asm.jump_if(Cond::Eq, R1, R6, copied);
        self.record_in_map(field);
        self.asm.jump_if(Cond::Eq, R0, 0, none);
        self.asm.mov(R3, R0);
        self.own_room_at(front, R1);
        self.asm.mov(R2, field.record as i32);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.store(Size::DW, R8, 0, R6);
        self.asm.bind(copied);
        self.return_value(R9);

        self.asm.bind(none);
        self.return_value(self.none_code(front));
        Ok(())
    }

    /// In a subprogram: creates the record of owner r6. Returns the number of the thread's slot if
    /// the slot is free; otherwise continues with the record in the map.
    fn put_record(&mut self, field: &FieldRef, front: ThreadSlots) -> Res {
        let [taken, full, memory, there] = [(); 4].map(|()| self.asm.label());
        self.asm.mov(R9, R6);
        self.asm.add(R9, -1);
        self.slot_of(front, R3, R9);
        self.asm.alu(AluOp::And, R9, front.slots as i32 - 1);
        self.asm.mov(R0, 0);
        self.asm.mov(R1, R6);
        self.asm
            .atomic(AtomicOp::CmpXchg, R3, field.record as i16, R1);
        self.asm.jump_if(Cond::Ne, R0, 0, taken);
        self.return_value(R9);
        self.asm.bind(memory);
        self.count(percpu::NO_MEMORY);
        self.return_value(self.none_code(front));
        self.asm.bind(full);
        self.return_value(self.full_code(front));
        self.asm.bind(taken);
        self.key_of_owner();
        self.insert(&field.map, false, field.record)?;
        self.asm.jump_if32(Cond::Eq, R0, EEXIST, there);
        self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        self.asm.jump_if32(Cond::Ne, R0, 0, memory);
        self.shared(R1, front.spilt);
        self.asm.mov(R2, 1);
        self.asm.atomic(AtomicOp::Add, R1, 0, R2);
        self.asm.bind(there);
        Ok(())
    }

    /// The subprogram that copies the record in room r6 back to the map, or deletes it from the map
    /// if no field is present.
    fn write_back(&mut self, field: &FieldRef, front: ThreadSlots) {
        let (done, empty) = (self.done, self.asm.label());
        self.asm.mov(R8, R6);
        self.own_room(front);
        self.asm.load(Size::DW, R6, R8, 0);
        self.asm.jump_if(Cond::Eq, R6, 0, done);
        self.asm.store(Size::DW, R8, 0, 0);
        self.record_in_map(field);
        self.asm.jump_if(Cond::Eq, R0, 0, done);
        self.asm.mov(R1, R0);
        self.own_room_at(front, R3);
        self.asm.load(Size::DW, R2, R3, 0);
        self.asm.jump_if(Cond::Eq, R2, 0, empty);
        self.asm.mov(R2, field.record as i32);
        self.asm.call(Helper::ProbeReadKernel);
        self.asm.jump(done);
        self.asm.bind(empty);
        self.asm.ld_map(R1, &*field.map);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapDeleteElem);
        self.asm.jump_if32(Cond::Ne, R0, 0, done);
        self.shared(R1, front.spilt);
        self.asm.mov(R2, -1);
        self.asm.atomic(AtomicOp::Add, R1, 0, R2);
    }

    /// Frees the slot of the record at r0, which has no fields left. An atomic exchange makes the
    /// empty record visible to the slot's next owner. In a room the word has no meaning. Clobbers
    /// r1.
    pub(in crate::lower) fn free_slot(&mut self, field: &FieldRef) {
        self.asm.mov(R1, Src::Imm(0));
        self.asm.atomic(AtomicOp::Xchg, R0, field.record as i16, R1);
    }
}
