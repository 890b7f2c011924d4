//! Additions to co-located elements, which lie next to those of another array, their host (see
//! `spile_ir::storage::colocated`). A word of the per-CPU area holds the slot of the host's last
//! addition.

use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::insn::{Cond, Reg};
use spile_ir::{GlobalId, Val};
use spile_layout::{PerCpuArray, percpu};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::KeyWord;
use crate::lower::out_of_line::{CacheMiss, OutOfLine};

impl HandlerCodegen<'_> {
    /// Adds to the element that is co-located with the host's last addition.
    pub(crate) fn colocated_add(&mut self, g: GlobalId, words: Vec<KeyWord>, val: Val) -> Res {
        let array = self.per_cpu_array(g)?;
        let colocated = array.colocated;
        let word = colocated
            .host
            .and_then(|host| self.plan.colocations.word(host));
        let word = word.ok_or("an array beside none")?;
        let [entry, hit, element, skip] = self.asm.labels();
        let address = self.block_word(word);
        self.asm.jump_if(Cond::Ge, address, array.slots, entry);
        self.out_of_line.push(OutOfLine::Miss(CacheMiss {
            sequence: self.asm.sequence(),
            address,
            entry,
            hit,
            element,
            skip,
            full: None,
            g,
            words,
            val,
        }));
        self.slot_at(address, array.slot_size, array.gen_stride);
        self.asm
            .add(address, array.cache + 8 + array.key_size + colocated.offset);
        self.asm.bind(element);
        self.update(address, &array.value, val)?;
        self.asm.bind(skip);
        Ok(())
    }

    /// Adds to a co-located element in the map, with its key in the key buffer.
    pub(crate) fn colocated_add_in_map(&mut self, g: GlobalId, val: Val) -> Res {
        let array = self.per_cpu_array(g)?;
        let skip = self.asm.label();
        let address = self.colocated_in_map(&array, skip);
        self.update(address, &array.value, val)?;
        self.asm.bind(skip);
        Ok(())
    }

    /// The address of the co-located element in the map's value for the key in the key buffer. The key is
    /// never inserted: if there was no memory for the host's element, no co-located element exists.
    pub(crate) fn colocated_in_map(&mut self, array: &PerCpuArray, skip: Label) -> Reg {
        let present = self.asm.label();
        let address = self.lookup(array);
        self.asm.jump_if(Cond::Ne, address, 0, present);
        self.count(percpu::NO_MEMORY);
        self.asm.jump(skip);
        self.asm.bind(present);
        self.asm.add(address, array.colocated.offset);
        address
    }
}
