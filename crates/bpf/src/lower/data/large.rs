//! Elements of large arrays (see [`LargeLayout`]). One subprogram for each array finds or creates the
//! element of a key that is not in the cache, and adds to it.

use crate::isa::asm::Label;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size};
use crate::layout::{GOLDEN, LargeLayout, PerCpuArray, ValueLayout};
use crate::lower::handler::global_subprogram::FIRST;
use crate::lower::out_of_line::CacheMiss;
use crate::lower::{BLOCK, GEN, HandlerCodegen, Res, TMP};

/// Stack slots: the offset of the free cache slot in the CPU's block, or 0; the hash; the value to
/// add; the array map's key.
const SLOT: i16 = TMP[0];
const HASH: i16 = TMP[1];
const VALUE: i16 = TMP[2];
const GENERATION: i16 = TMP[3];

/// Binary logarithm of the number of cells that are probed.
const LOOKS_BITS: i32 = (LargeLayout::WINDOW * LargeLayout::PLACES).ilog2() as i32;

/// Labels of the subprogram.
struct Labels {
    /// r1: a free cell (r3 = 0), or the key's last cell, with its content in r3.
    absent: Label,
    /// r3: the content of cell r1.
    check: Label,
    /// r4: the key's room.
    found: Label,
}

impl HandlerCodegen<'_> {
    /// Handles a miss in the cache of a large array.
    pub(in crate::lower) fn large_miss(
        &mut self,
        miss: &CacheMiss,
        array: &PerCpuArray,
        large: LargeLayout,
    ) -> Res {
        let (taken, skip) = (self.asm.label(), miss.skip);
        self.asm.bind(miss.entry);
        self.current = Some(miss.g);
        let slot = self.asm.copy(miss.at);
        self.store_key(&miss.words)?;
        let val = self.number(miss.val)?;
        let off = self.asm.alu_of(AluOp::Sub, slot, BLOCK);
        let other = self.asm.word(slot, 0);
        self.asm.jump_if(Cond::Eq, other, 0, taken);
        self.asm.mov(off, 0);
        self.asm.bind(taken);
        let name = format!("put_{}", miss.g.0);
        let generation = self.generation(array.double());
        let args = [
            ("value", val.into()),
            ("generation", generation),
            ("slot", off.into()),
        ];
        self.call_global_or_full(miss.full, &name, args, |sub, params, full| {
            let full = full.ok_or("a large array that wraps")?;
            for (to, from) in [R6, R8, R9].into_iter().zip(params) {
                sub.asm.mov(to, from);
            }
            sub.large_insert(array, large, full)
        })?;
        self.asm.jump(skip);
        Ok(())
    }

    /// The subprogram: adds r6 to generation r8, and to cache slot r9 if that is free.
    fn large_insert(&mut self, array: &PerCpuArray, large: LargeLayout, full: Label) -> Res {
        let done = self.done;
        self.asm.store(Size::DW, R10, VALUE, R6);
        self.asm.store(Size::DW, R10, SLOT, R9);
        match array.double() {
            true => {
                self.asm.alu(AluOp::And, R8, 1);
                // Older verifiers forget a word on the stack that a helper was given.
                self.asm.store(Size::DW, R10, GEN, R8);
                self.asm.store(Size::DW, R10, GENERATION, R8);
            }
            false => self.asm.store(Size::DW, R10, GENERATION, 0),
        }
        self.asm
            .ld_map(R1, array.maps.first().ok_or("no map")?.as_str());
        self.asm.mov(R2, R10);
        self.asm.add(R2, i32::from(GENERATION));
        self.asm.call(Helper::MapLookupElem);
        self.asm.jump_if(Cond::Eq, R0, 0, done);
        self.asm.mov(R8, R0);

        let parts = Labels {
            absent: self.asm.label(),
            check: self.asm.label(),
            found: self.asm.label(),
        };
        self.probe(array, large, (&parts, full));
        self.insert_key(array, large, (&parts, full));

        self.asm.bind(parts.found);
        self.add_to_slot_or_r4(array)
    }

    /// Probes the cells of the key in the key buffer. Clobbers r0 to r6 and r9.
    fn probe(&mut self, array: &PerCpuArray, large: LargeLayout, (parts, full): (&Labels, Label)) {
        let [place, probe, next, nowhere] = [(); 4].map(|()| self.asm.label());
        let last = self.plan.scratch.key + array.key_size - 8;
        self.hash_of_large(array.key_size);
        // With `may_goto` as the back edge, the verifier does not know the number of probed cells.
        // All iterations look equal to it, and it follows only one.
        match self.options.features.may_goto {
            true => self.asm.load(Size::DW, R6, R8, LargeLayout::ZERO as i16),
            false => self.asm.mov(R6, 0),
        }

        self.asm.bind(place);
        self.asm.store(Size::DW, R10, HASH, R1);
        self.load(R2, last);
        // r5: the tag; r9: the first cell.
        self.asm.mov(R5, R2);
        self.asm.alu(AluOp::Lsh, R5, LargeLayout::TAG_BITS as i32);
        self.asm.alu(AluOp::Xor, R5, R1);
        self.asm.alu32(AluOp::And, R5, LargeLayout::TAG as i32);
        self.asm.mov(R9, R1);
        self.asm.alu(AluOp::Rsh, R9, 32);
        self.asm.alu(AluOp::Mul, R9, large.groups as i32);
        self.asm.alu(AluOp::Rsh, R9, 32);
        self.asm
            .alu(AluOp::Lsh, R9, LargeLayout::GROUP_BITS as i32 + 2);
        self.asm.add(R9, R8);
        self.asm.alu(AluOp::Rsh, R1, LargeLayout::CELL_BITS as i32);
        self.asm.alu(AluOp::Xor, R1, R2);
        self.asm.alu(AluOp::And, R1, LargeLayout::GROUP as i32 - 1);
        self.asm.alu(AluOp::Lsh, R1, 2);
        self.asm.add(R9, R1);

        self.asm.bind(probe);
        self.asm.mov(R1, R6);
        self.asm.alu(AluOp::And, R1, LargeLayout::WINDOW as i32 - 1);
        self.asm.alu(AluOp::Lsh, R1, 2);
        self.asm.add(R1, R9);
        self.asm.add(R1, LargeLayout::CELLS as i32);
        self.asm.load(Size::W, R3, R1, 0);
        self.asm.jump_if(Cond::Eq, R3, 0, parts.absent);
        self.asm.bind(parts.check);
        self.asm.mov(R4, R3);
        self.asm.alu(AluOp::Xor, R4, R5);
        // A different tag also leads here.
        self.asm.jump_if(Cond::Gt, R4, large.rooms as i32, next);
        self.large_room(R4, large);
        for i in (0..array.key_size).step_by(8) {
            self.asm.load(Size::DW, R0, R4, i as i16);
            self.load(R2, self.plan.scratch.key + i);
            self.asm.jump_if(Cond::Ne, R0, R2, next);
        }
        self.asm.jump(parts.found);

        self.asm.bind(next);
        self.asm.add(R6, 1);
        self.asm.mov(R2, R6);
        self.asm.alu(AluOp::And, R2, LargeLayout::WINDOW as i32 - 1);
        let again = self.asm.label();
        self.asm.jump_if(Cond::Eq, R2, 0, again);
        self.loop_to(probe, full);
        self.asm.bind(again);
        self.all_probed();
        self.asm.jump_if(Cond::Ne, R2, 0, nowhere);
        self.asm.load(Size::DW, R1, R10, HASH);
        self.asm.mov(R2, R1);
        self.asm.alu(AluOp::Rsh, R2, 32);
        self.asm.alu(AluOp::Xor, R1, R2);
        self.load(R2, last);
        self.asm.add(R1, R2);
        self.asm.ld_imm64(R2, GOLDEN);
        self.asm.alu(AluOp::Mul, R1, R2);
        self.loop_to(place, full);
        self.asm.bind(nowhere);
    }

    /// `r2` = nonzero if all cells were probed. The verifier learns nothing about r6 from this, so
    /// all paths look equal to it.
    fn all_probed(&mut self) {
        self.asm.mov(R2, R6);
        self.asm.alu(AluOp::Rsh, R2, LOOKS_BITS);
    }

    /// `r1` = the first hash of the key in the key buffer. Clobbers r2 and r3.
    fn hash_of_large(&mut self, key_size: u32) {
        let key = self.plan.scratch.key;
        self.asm.ld_imm64(R3, GOLDEN);
        for i in (0..key_size).step_by(8) {
            let to = if i == 0 { R1 } else { R2 };
            self.load(to, key + i);
            let last = i + 8 == key_size;
            if last {
                self.asm.alu(AluOp::Rsh, to, LargeLayout::GROUP_BITS as i32);
            }
            if i > 0 {
                self.asm.alu(AluOp::Xor, R1, R2);
            }
            self.asm.alu(AluOp::Mul, R1, R3);
            if !last {
                self.asm.mov(R2, R1);
                self.asm.alu(AluOp::Rsh, R2, 29);
                self.asm.alu(AluOp::Xor, R1, R2);
            }
        }
    }

    /// `reg` = address of room number `reg`.
    fn large_room(&mut self, reg: Reg, large: LargeLayout) {
        self.asm.alu(AluOp::Mul, reg, large.room as i32);
        self.asm.add(reg, R8);
        self.asm
            .add(reg, (large.rooms_offset() - large.room) as i32);
    }

    /// Jumps back. The loop's own counter ends it; `out` is the exit that the verifier needs.
    fn loop_to(&mut self, back: Label, out: Label) {
        if self.options.features.may_goto {
            self.asm.may_goto(out);
        }
        self.asm.jump(back);
    }

    /// Inserts the key into cell r1, which contained r3; `r4` = the key's room.
    fn insert_key(
        &mut self,
        array: &PerCpuArray,
        large: LargeLayout,
        (parts, full): (&Labels, Label),
    ) {
        let [have, linked, no_more, raced] = [(); 4].map(|()| self.asm.label());
        // The last probed cell can hold another key.
        self.asm.load(Size::W, R3, R1, 0);
        self.asm.bind(parts.absent);
        self.asm.load(Size::DW, R2, R8, LargeLayout::LIVE as i16);
        self.asm.jump_if(Cond::Ge, R2, array.max as i32, no_more);
        self.spare_room(R4, array, large);
        self.asm.load(Size::W, R2, R4, 0);
        self.asm.jump_if(Cond::Ne, R2, 0, have);
        self.asm.mov(R2, 1);
        self.asm
            .atomic(AtomicOp::FetchAdd, R8, LargeLayout::GIVEN as i16, R2);
        self.asm.add(R2, 1);
        self.asm.store(Size::W, R4, 0, R2);
        self.asm.store(Size::W, R4, 4, 1);
        self.asm.bind(have);
        self.asm.jump_if(Cond::Gt, R2, large.rooms as i32, full);
        self.asm.mov(R4, R2);
        self.large_room(R4, large);
        for i in (0..array.key_size).step_by(8) {
            self.load(R0, self.plan.scratch.key + i);
            self.asm.store(Size::DW, R4, i as i16, R0);
        }
        self.asm.alu(AluOp::Or, R2, R5);
        self.asm.mov(R0, R3);
        self.asm.atomic32(AtomicOp::CmpXchg, R1, 0, R2);
        self.asm.jump_if(Cond::Eq, R0, R3, linked);
        // Another processor took the cell, perhaps for the same key. At the last cell the reserved
        // room stays unused.
        self.all_probed();
        self.asm.jump_if(Cond::Eq, R2, 0, raced);
        self.asm.bind(linked);
        self.spare_room(R1, array, large);
        self.asm.store(Size::W, R1, 0, 0);
        self.asm.mov(R1, 1);
        self.asm
            .atomic(AtomicOp::Add, R8, LargeLayout::LIVE as i16, R1);
        self.asm.jump(parts.found);

        // The array is full, unless its last room was given to this key.
        self.asm.bind(no_more);
        self.asm.load(Size::W, R0, R1, 0);
        self.asm.jump_if(Cond::Eq, R0, R3, full);
        self.all_probed();
        self.asm.jump_if(Cond::Ne, R2, 0, full);
        self.asm.bind(raced);
        self.asm.mov(R3, R0);
        self.loop_to(parts.check, full);
    }

    /// `to` = address of this generation's spare room. Clobbers r0.
    fn spare_room(&mut self, to: Reg, array: &PerCpuArray, large: LargeLayout) {
        self.block_addr(to, large.spare);
        if array.double() {
            self.asm.load(Size::DW, R0, R10, GEN);
            self.asm.alu(AluOp::Lsh, R0, 3);
            self.asm.add(to, R0);
        }
    }

    /// Adds to the key's slot in the cache if that is free, else to the element in room r4.
    fn add_to_slot_or_r4(&mut self, array: &PerCpuArray) -> Res {
        let [taken, end] = [(); 2].map(|()| self.asm.label());
        self.asm.load(Size::DW, R6, R10, VALUE);
        self.asm.load(Size::DW, R1, R10, SLOT);
        self.asm.jump_if(Cond::Eq, R1, 0, taken);
        let generations = if array.double() { 2 } else { 1 };
        let slots = generations * array.slots * array.slot_size;
        self.bound_argument(R1, array.cache + slots - array.slot_size);
        self.asm.add(R1, R7);
        self.asm.store(Size::DW, R10, SLOT, R1);
        let slot = self.asm.word(R10, SLOT);
        self.install(slot, array.key_size, array.value.size());
        self.asm.add(slot, 8 + array.key_size as i32);
        self.update(slot, &array.value, FIRST)?;
        self.asm.jump(end);
        self.asm.bind(taken);
        self.asm.mov(R1, R4);
        self.asm.add(R1, array.key_size as i32);
        self.add_atomically(&array.value);
        self.asm.bind(end);
        Ok(())
    }

    /// Adds r6 to the element at r1.
    fn add_atomically(&mut self, value: &ValueLayout) {
        match value {
            ValueLayout::Scalar(_) => self.asm.atomic(AtomicOp::Add, R1, 0, R6),
            ValueLayout::Stats(agg) => {
                self.asm.mov(R2, 1);
                self.asm.atomic(AtomicOp::Add, R1, agg.count as i16, R2);
                if let Some(sum) = agg.sum {
                    self.asm.atomic(AtomicOp::Add, R1, sum as i16, R6);
                }
            }
        }
    }
}
