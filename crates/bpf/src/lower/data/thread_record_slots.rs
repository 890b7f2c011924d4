//! Thread records in the shared area (see [`ThreadSlots`]), which handlers find without a helper
//! call. The subprograms here serve the few threads whose slot another thread occupies, and records
//! that do not exist yet.

use spile_cast::Cast;
use spile_ebpf::isa::asm::CallArg;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::helpers::errno::{E2BIG, EEXIST};
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size};
use spile_ir::Val;
use spile_layout::{ThreadSlots, percpu};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::data::thread_record_facts::{FieldRef, key_of};
use crate::lower::slots::BLOCK;

/// Names of the subprograms for records outside of their slot. This one only searches the map.
const LOOK: &str = "look_record";
const MAKE: &str = "make_record";

impl HandlerCodegen<'_> {
    /// The address of a thread's record, or 0.
    pub(crate) fn record_in_slot(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        key: Val,
    ) -> Res<Reg> {
        let (end, index) = (self.asm.label(), self.buffer_of(key)?);
        let owner = self.number_copy(key)?;
        let record = self.slot_of(front, owner);
        self.asm.add(owner, 1);
        let current = self.asm.word(record, field.record.fit());
        // The verifier follows the other path first, and its state then covers this one.
        self.asm.jump_if(Cond::Eq, current, owner, end);
        let spilt = self.shared_address(front.spilt);
        self.asm.load(Size::DW, spilt, spilt, 0);
        self.asm.mov(record, 0);
        self.asm.jump_if(Cond::Eq, spilt, 0, end);
        let number = self.call_record(field, front, owner, (index, LOOK))?;
        self.buffer_at(front, number, record);
        self.asm.bind(end);
        Ok(record)
    }

    /// The address of a thread's record, created if absent. Without memory the handler ends.
    pub(crate) fn create_in_slot(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        key: Val,
    ) -> Res<Reg> {
        let (index, full) = (self.buffer_of(key)?, self.full_label(field.g));
        let owner = self.number_copy(key)?;
        self.asm.add(owner, 1);
        let number = self.call_record(field, front, owner, (index, MAKE))?;
        if let Some(full) = full {
            let code = self.full_code(front);
            self.asm.jump_if(Cond::Eq, number, code, full);
        }
        let record = self.asm.new_reg();
        self.buffer_at(front, number, record);
        Ok(record)
    }

    /// At the handler's end, writes back the records that it changed as copies.
    pub(crate) fn write_back_records(&mut self) -> Res {
        for (index, (field, front)) in self.buffers_used()? {
            let end = self.asm.label();
            let lent = self.block_word(front.lent + 8 * index);
            self.asm.jump_if(Cond::Eq, lent, 0, end);
            let name = "write_back_record";
            self.define_global(name, ["buffer"], |sub, [buffer]| {
                sub.write_back(&field, front, buffer);
                Ok(())
            })?;
            let buffer = CallArg::from(index);
            self.asm.call_sub_with(name, &[buffer]);
            self.asm.bind(end);
        }
        Ok(())
    }

    /// The threads whose records the handler accesses, each with one of the fields.
    fn buffers_used(&self) -> Res<Vec<(u32, (FieldRef, ThreadSlots))>> {
        let mut used = std::collections::BTreeMap::new();
        for inst in self.body.insts() {
            let Some(g) = inst.global() else { continue };
            let Some(field) = self.ctx.field(g)? else {
                continue;
            };
            if let (Some(front), Some(key)) = (field.front, key_of(inst)) {
                used.insert(self.buffer_of(key)?, (field, front));
            }
        }
        Ok(used.into_iter().collect())
    }

    /// The index of this processor's buffer for the thread that a key selects.
    fn buffer_of(&self, key: Val) -> Res<u32> {
        let index = self.thread_index(key);
        Ok(index
            .ok_or("a record of a thread that does not run here")?
            .fit::<u32>())
    }

    /// The address of a thread's slot.
    fn slot_of(&mut self, front: ThreadSlots, thread: Reg) -> Reg {
        let slot = self.shared_address(front.offset);
        let off = self
            .asm
            .alu_of(AluOp::And, thread, front.slots.cast_signed() - 1);
        self.asm.alu(AluOp::Mul, off, front.stride);
        self.asm.add(slot, off);
        slot
    }

    /// `to` = the address of the slot or buffer of that number, or 0 if the number is out of range.
    fn buffer_at(&mut self, front: ThreadSlots, number: Reg, to: Reg) {
        let end = self.asm.label();
        self.asm.mov(to, 0);
        let count = front.all(self.options.cpus).cast_signed();
        self.asm.jump_if(Cond::Ge, number, count, end);
        self.asm.alu(AluOp::Mul, number, front.stride);
        self.asm.set(to, &CallArg::Shared(front.offset));
        self.asm.add(to, number);
        self.asm.bind(end);
    }

    /// The subprogram's result if there is no record, or no memory for one (which is counted).
    fn none_code(&self, front: ThreadSlots) -> i32 {
        front.all(self.options.cpus).cast_signed()
    }

    /// The subprogram's result if the array is full.
    fn full_code(&self, front: ThreadSlots) -> i32 {
        self.none_code(front) + 1
    }

    /// Calls the subprogram for the record of an owner. Returns the number of the slot or buffer.
    fn call_record(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        owner: Reg,
        (index, how): (u32, &'static str),
    ) -> Res<Reg> {
        self.define_global(how, ["owner", "buffer"], |sub, [owner, buffer]| {
            sub.record_sub(field, front, (owner, buffer), how);
            Ok(())
        })?;
        let args = [owner.into(), index.into()];
        Ok(self.asm.call_sub_with(how, &args))
    }

    /// In a subprogram: the number of this processor's buffer, and the address of the word with the buffer's
    /// owner.
    fn own_buffer(&mut self, front: ThreadSlots, buffer: Reg) -> (Reg, Reg) {
        let done = self.done;
        self.bound_argument(buffer, ThreadSlots::BUFFERS - 1);
        let number = self.plan.cpu_number(self.asm, done);
        self.asm.alu(AluOp::Mul, number, ThreadSlots::BUFFERS);
        self.asm.add(number, buffer);
        self.asm.add(number, front.slots);
        let owner = self.asm.alu_of(AluOp::Lsh, buffer, 3);
        self.asm.add(owner, BLOCK);
        self.asm.add(owner, front.lent);
        (number, owner)
    }

    /// In a subprogram: the address of a buffer.
    fn own_buffer_at(&mut self, front: ThreadSlots, number: Reg) -> Reg {
        let buffer = self.shared_address(front.offset);
        let off = self
            .asm
            .alu_of(AluOp::Mul, number, front.stride.cast_signed());
        self.asm.add(buffer, off);
        buffer
    }

    /// In a subprogram: the record of an owner in the map, or 0.
    fn record_in_map(&mut self, field: &FieldRef, owner: Reg) -> Reg {
        self.key_of_owner(owner);
        self.map_call(Helper::MapLookupElem, &field.map)
    }

    /// In a subprogram: writes the thread of an owner to the key buffer.
    fn key_of_owner(&mut self, owner: Reg) {
        let thread = self.asm.alu_of(AluOp::Add, owner, -1);
        self.store(self.plan.scratch.key, thread);
    }

    /// The subprogram that copies the record of an owner from the map to a buffer and returns the
    /// buffer's number.
    fn record_sub(
        &mut self,
        field: &FieldRef,
        front: ThreadSlots,
        (owner, buffer): (Reg, Reg),
        how: &str,
    ) {
        let [copied, none] = self.asm.labels();
        if how == MAKE {
            self.put_record(field, front, owner);
        }
        let (number, lent) = self.own_buffer(front, buffer);
        let now = self.asm.word(lent, 0);
        self.asm.jump_if(Cond::Eq, now, owner, copied);
        let record = self.record_in_map(field, owner);
        self.asm.jump_if(Cond::Eq, record, 0, none);
        let to = self.own_buffer_at(front, number);
        self.copy_memory(to.into(), field.record, record.into());
        self.asm.store(Size::DW, lent, 0, owner);
        self.asm.bind(copied);
        self.asm.ret(number);

        self.asm.bind(none);
        self.asm.ret(self.none_code(front));
    }

    /// In a subprogram: creates the record of an owner. Returns the number of the thread's slot if
    /// the slot is free; otherwise continues with the record in the map.
    fn put_record(&mut self, field: &FieldRef, front: ThreadSlots, owner: Reg) {
        let [taken, full, memory, present] = self.asm.labels();
        let number = self.asm.alu_of(AluOp::Add, owner, -1);
        let slot = self.slot_of(front, number);
        self.asm.alu(AluOp::And, number, front.slots - 1);
        let old = self
            .asm
            .compare_exchange((slot, field.record.fit::<i16>()), 0, owner);
        self.asm.jump_if(Cond::Ne, old, 0, taken);
        self.asm.ret(number);
        self.asm.bind(memory);
        self.count(percpu::NO_MEMORY);
        self.asm.ret(self.none_code(front));
        self.asm.bind(full);
        self.asm.ret(self.full_code(front));
        self.asm.bind(taken);
        self.key_of_owner(owner);
        let result = self.insert(&field.map, false, field.record);
        self.asm.jump_if32(Cond::Eq, result, EEXIST, present);
        self.asm.jump_if32(Cond::Eq, result, E2BIG, full);
        self.asm.jump_if32(Cond::Ne, result, 0, memory);
        self.count_spilt(front, 1);
        self.asm.bind(present);
    }

    /// In a subprogram: adds to the number of records outside of their slots.
    fn count_spilt(&mut self, front: ThreadSlots, by: i32) {
        let (spilt, by) = (self.shared_address(front.spilt), self.asm.copy(by));
        self.asm.atomic(AtomicOp::Add, spilt, 0, by);
    }

    /// The subprogram that copies the record in a buffer back to the map, or deletes it from the map
    /// if no field is present.
    fn write_back(&mut self, field: &FieldRef, front: ThreadSlots, buffer: Reg) {
        let (done, empty) = (self.done, self.asm.label());
        let (number, lent) = self.own_buffer(front, buffer);
        let owner = self.asm.word(lent, 0);
        self.asm.jump_if(Cond::Eq, owner, 0, done);
        self.asm.store(Size::DW, lent, 0, 0);
        let record = self.record_in_map(field, owner);
        self.asm.jump_if(Cond::Eq, record, 0, done);
        let from = self.own_buffer_at(front, number);
        let present = self.asm.word(from, 0);
        self.asm.jump_if(Cond::Eq, present, 0, empty);
        self.copy_memory(record.into(), field.record, from.into());
        self.asm.jump(done);
        self.asm.bind(empty);
        let result = self.map_call(Helper::MapDeleteElem, &field.map);
        self.asm.jump_if32(Cond::Ne, result, 0, done);
        self.count_spilt(front, -1);
    }

    /// Frees the slot of a record that has no fields left. An atomic exchange makes the empty record
    /// visible to the slot's next owner. In a buffer the word has no meaning.
    pub(crate) fn free_slot(&mut self, field: &FieldRef, record: Reg) {
        let free = self.asm.copy(0);
        self.asm
            .atomic(AtomicOp::Xchg, record, field.record.fit(), free);
    }
}
