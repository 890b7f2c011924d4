//! Elements of large arrays (see [`Large`]): one subprogram an array finds or makes the element of a key
//! that is not in the cache, and adds to it.

use spile_ir::{GlobalId, Val};

use super::aggregates::{Miss, Word};
use super::once::FIRST;
use super::{GEN, Gen, Res, TMP, Text};
use crate::asm::Label;
use crate::helpers::Helper;
use crate::insn::{AluOp, AtomicOp, Cond, Reg::*, Size};
use crate::layout::{GOLDEN, Large, PerCpuArray, ValueLayout};

/// So many rooms of a chain are looked at; a key that is not among them gets another.
const CHAIN: i32 = 16;
/// So often a chain is looked through again when another processor has changed it.
const TRIES: i32 = 4;

/// Stack slots: the slot of the cache, the room that was given out, the chain's first room, tries.
const SLOT: i16 = TMP[0];
const GIVEN: i16 = TMP[1];
const HEAD: i16 = TMP[2];
const TRIED: i16 = TMP[3];
/// The array map's key.
const ZERO: i16 = TMP[4];

impl Gen<'_> {
    /// A miss in the cache of a large array.
    pub(super) fn large_miss(&mut self, miss: &Miss, array: &PerCpuArray, large: Large) -> Res {
        self.asm.bind(miss.entry);
        self.current = Some(miss.g);
        self.store_key(&miss.words)?;
        self.large_add(miss.g, miss.val, (array, large), miss.full)?;
        self.asm.jump(miss.skip);
        Ok(())
    }

    /// Adds to the element of the key in the key buffer.
    fn large_add(
        &mut self,
        g: GlobalId,
        val: Val,
        (array, large): (&PerCpuArray, Large),
        full: Option<Label>,
    ) -> Res {
        self.long_into(val, R1)?;
        match array.double() {
            true => self.asm.load(Size::DW, R2, R10, GEN),
            false => self.asm.mov(R2, 0),
        }
        let name = format!("put_{}", g.0);
        self.once_or_full(full, &name, &["value", "generation"], |sub, full| {
            sub.asm.alu(AluOp::And, R8, 1);
            sub.asm.store(Size::DW, R10, GEN, R8);
            sub.large_put(array, large, full)
        })
    }

    /// The subprogram: r6 is added.
    fn large_put(&mut self, array: &PerCpuArray, large: Large, full: Option<Label>) -> Res {
        let [again, absent, have, found, linked, ready] = [(); 6].map(|()| self.asm.label());
        let done = self.done;
        let text = Text::Slot {
            off: self.plan.scratch.key,
            width: array.key_size,
        };
        let words: Vec<_> = (0..array.key_size / 8)
            .map(|i| Word::Text(text.clone(), i))
            .collect();
        self.chain_to_r9(&words, array.slots, large)?;
        self.memory_to_r8(&array.maps);
        self.asm.add(R9, R8);
        self.asm.store(Size::DW, R10, GIVEN, 0);
        self.zero_of_loops(R1);
        self.asm.store(Size::DW, R10, TRIED, R1);

        self.asm.bind(again);
        self.asm.load(Size::W, R3, R9, 0);
        self.asm.store(Size::DW, R10, HEAD, R3);
        self.walk_chain(array.key_size, large, (found, absent));

        self.asm.bind(absent);
        self.asm.load(Size::DW, R1, R10, GIVEN);
        self.asm.jump_if(Cond::Ne, R1, 0, have);
        self.give_room((array.max, large), (again, full))?;

        self.asm.bind(have);
        self.asm.jump_if(Cond::Gt, R1, large.rooms as i32, done);
        self.large_room(R4, R1, large);
        for i in (0..array.key_size).step_by(8) {
            self.load(R2, self.plan.scratch.key + i);
            self.asm.store(Size::DW, R4, (Large::KEY + i) as i16, R2);
        }
        self.asm.load(Size::DW, R0, R10, HEAD);
        self.asm.mov(R2, R0);
        self.asm.store(Size::W, R4, 0, R0);
        self.asm.atomic32(AtomicOp::CmpXchg, R9, 0, R1);
        self.asm.jump_if(Cond::Eq, R0, R2, linked);
        // Another processor was faster, perhaps with the same key. The last time the room stays outside.
        self.try_again(again, linked);

        self.asm.bind(found);
        self.asm.load(Size::DW, R1, R10, GIVEN);
        self.asm.jump_if(Cond::Eq, R1, 0, ready);
        self.spare_to_r2(large);
        self.asm.store(Size::DW, R2, 0, R1);
        self.settle(Large::NEW);
        self.asm.jump(ready);

        self.asm.bind(linked);
        self.settle(Large::UNSETTLED);
        self.asm.bind(ready);
        self.asm.mov(R9, R4);
        self.add_to_slot_or_r9(array)
    }

    /// `r9` = where the head of the key's chain is, from the memory's start; the stack has the slot of
    /// the cache.
    fn chain_to_r9(&mut self, words: &[Word], slots: u32, large: Large) -> Res {
        self.product(words)?;
        self.asm.mov(R2, R1);
        self.asm.alu(AluOp::Rsh, R2, 64 - slots.ilog2() as i32);
        self.asm.store(Size::DW, R10, SLOT, R2);
        self.asm.mov(R2, R1);
        self.asm.alu(AluOp::Rsh, R2, 32);
        self.asm.alu(AluOp::Xor, R1, R2);
        self.asm.ld_imm64(R3, GOLDEN);
        self.asm.alu(AluOp::Mul, R1, R3);
        self.asm.alu(AluOp::Rsh, R1, 64 - large.bits as i32);
        self.asm.alu(AluOp::Lsh, R1, 2);
        self.asm.mov(R9, R1);
        self.asm.add(R9, Large::HEADS as i32);
        Ok(())
    }

    /// `r8` = this generation's memory. Each map has a look-up of its own, which the kernel makes code of.
    fn memory_to_r8(&mut self, maps: &[String]) {
        let (there, done) = (self.asm.label(), self.done);
        self.asm.store(Size::DW, R10, ZERO, 0);
        for (n, map) in maps.iter().enumerate() {
            let other = self.asm.label();
            if n + 1 < maps.len() {
                self.asm.load(Size::DW, R0, R10, GEN);
                self.asm.jump_if(Cond::Ne, R0, n as i32, other);
            }
            self.asm.ld_map(R1, &**map);
            self.asm.mov(R2, R10);
            self.asm.add(R2, i32::from(ZERO));
            self.asm.call(Helper::MapLookupElem);
            if n + 1 < maps.len() {
                self.asm.jump(there);
            }
            self.asm.bind(other);
        }
        self.asm.bind(there);
        self.asm.jump_if(Cond::Eq, R0, 0, done);
        self.asm.mov(R8, R0);
    }

    /// `to` = the room of that number.
    fn large_room(&mut self, to: crate::insn::Reg, number: crate::insn::Reg, large: Large) {
        self.asm.mov(to, number);
        self.asm.alu(AluOp::Mul, to, large.room as i32);
        self.asm.add(to, R8);
        self.asm.add(to, (large.rooms_at() - large.room) as i32);
    }

    /// Looks for the key in the chain that begins with room r3: `r4` = its room.
    fn walk_chain(&mut self, key_size: u32, large: Large, (found, absent): (Label, Label)) {
        let [walk, next] = [(); 2].map(|()| self.asm.label());
        let done = self.done;
        self.zero_of_loops(R0);
        self.asm.bind(walk);
        self.asm.jump_if(Cond::Eq, R3, 0, absent);
        self.asm.jump_if(Cond::Ge, R0, CHAIN, absent);
        self.asm.jump_if(Cond::Gt, R3, large.rooms as i32, done);
        self.large_room(R4, R3, large);
        for i in (0..key_size).step_by(8) {
            self.asm.load(Size::DW, R5, R4, (Large::KEY + i) as i16);
            self.load(R2, self.plan.scratch.key + i);
            self.asm.jump_if(Cond::Ne, R5, R2, next);
        }
        self.asm.jump(found);
        self.asm.bind(next);
        self.asm.load(Size::W, R3, R4, 0);
        self.asm.add(R0, 1);
        self.loop_to(walk, absent);
    }

    /// `to` = 0, the first value of a loop's counter. Where a jump back can be a `may_goto`, the verifier
    /// does not know the value, so that all rounds are alike to it and it follows one of them.
    fn zero_of_loops(&mut self, to: crate::insn::Reg) {
        match self.options.features.may_goto {
            true => self.asm.load(Size::DW, to, R8, Large::ZERO as i16),
            false => self.asm.mov(to, 0),
        }
    }

    /// Jumps back. The loop's own counter ends it; `out` is for the verifier.
    fn loop_to(&mut self, back: Label, out: Label) {
        if self.options.features.may_goto {
            self.asm.may_goto(out);
        }
        self.asm.jump(back);
    }

    /// `r1` = a room for a new element, which `GIVEN` has as well.
    fn give_room(
        &mut self,
        (max, large): (u32, Large),
        (again, full): (Label, Option<Label>),
    ) -> Res {
        let full = full.ok_or("a large array that wraps")?;
        let [retry, none, room_for, given] = [(); 4].map(|()| self.asm.label());
        self.asm.ld_imm64(R1, Large::NEW);
        self.asm
            .atomic(AtomicOp::FetchAdd, R8, Large::LIVE as i16, R1);
        self.asm.mov32(R2, R1);
        self.asm.jump_if(Cond::Lt, R2, max as i32, room_for);
        // Another processor may be about to put in the same key, or to give its room back: that is waited
        // for. If it takes long nobody knows whether the array is full, until all is added up.
        self.asm.load(Size::DW, R2, R10, TRIED);
        self.asm.add(R2, 1);
        self.asm.store(Size::DW, R10, TRIED, R2);
        self.asm.jump_if(Cond::Lt, R2, TRIES, retry);
        self.asm.alu(AluOp::Rsh, R1, 32);
        self.asm.jump_if(Cond::Ne, R1, 0, room_for);
        self.asm.bind(none);
        self.settle(Large::NEW);
        self.asm.jump(full);
        self.asm.bind(retry);
        self.settle(Large::NEW);
        self.loop_to(again, full);

        self.asm.bind(room_for);
        self.spare_to_r2(large);
        self.asm.load(Size::DW, R1, R2, 0);
        self.asm.store(Size::DW, R2, 0, 0);
        self.asm.jump_if(Cond::Ne, R1, 0, given);
        self.asm.mov(R1, 1);
        self.asm
            .atomic(AtomicOp::FetchAdd, R8, Large::GIVEN as i16, R1);
        self.asm.add(R1, 1);
        self.asm.jump_if(Cond::Gt, R1, large.rooms as i32, none);
        self.asm.bind(given);
        self.asm.store(Size::DW, R10, GIVEN, R1);
        Ok(())
    }

    /// Takes this from the number of elements. Loses r1.
    fn settle(&mut self, part: u64) {
        self.asm.ld_imm64(R1, part.wrapping_neg());
        self.asm.atomic(AtomicOp::Add, R8, Large::LIVE as i16, R1);
    }

    /// Goes back as long as there are tries left. Loses r1.
    fn try_again(&mut self, again: Label, out: Label) {
        self.asm.load(Size::DW, R1, R10, TRIED);
        self.asm.add(R1, 1);
        self.asm.store(Size::DW, R10, TRIED, R1);
        self.asm.jump_if(Cond::Ge, R1, TRIES, out);
        self.loop_to(again, out);
    }

    /// `r2` = address of this generation's spare room. Loses r3.
    fn spare_to_r2(&mut self, large: Large) {
        self.asm.load(Size::DW, R3, R10, GEN);
        self.asm.alu(AluOp::Lsh, R3, 3);
        self.addr(R2, large.spare);
        self.asm.add(R2, R3);
    }

    /// Adds r6 to the key's slot in the cache, if that is free, or else to the element in the room r9.
    fn add_to_slot_or_r9(&mut self, array: &PerCpuArray) -> Res {
        let [taken, end] = [(); 2].map(|()| self.asm.label());
        self.asm.load(Size::DW, R1, R10, SLOT);
        self.asm.alu(AluOp::And, R1, array.slots as i32 - 1);
        self.slot_at(array.slot_size, array.gen_stride);
        self.asm.add(R1, array.cache as i32);
        self.asm.load(Size::DW, R2, R1, 0);
        self.asm.jump_if(Cond::Ne, R2, 0, taken);
        self.asm.store(Size::DW, R10, TMP[0], R1);
        self.install(array.key_size, array.value.size())?;
        self.asm.load(Size::DW, R1, R10, TMP[0]);
        self.asm.add(R1, 8 + array.key_size as i32);
        self.update(&array.value, FIRST)?;
        self.asm.jump(end);
        self.asm.bind(taken);
        self.asm.mov(R1, R9);
        self.asm.add(R1, (Large::KEY + array.key_size) as i32);
        self.add_atomically(&array.value);
        self.asm.bind(end);
        Ok(())
    }

    /// Adds r6 to the element r1.
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
