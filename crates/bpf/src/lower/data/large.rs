//! Elements of large arrays (see [`LargeLayout`]). One function for each array finds or creates the element
//! of a key that is not in the cache, and adds to it.

use spile_ebpf::isa::insn::{AluOp, Cond};
use spile_layout::{LargeLayout, PerCpuArray, ValueLayout};
use spile_lir::library::large::{FULL, PutLayout, put};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::out_of_line::CacheMiss;
use crate::lower::slots::BLOCK;

impl HandlerCodegen<'_> {
    /// Handles a miss in the cache of a large array.
    pub(crate) fn large_miss(
        &mut self,
        miss: &CacheMiss,
        array: &PerCpuArray,
        large: LargeLayout,
    ) -> Res {
        let (taken, skip) = (self.asm.label(), miss.skip);
        self.asm.bind(miss.entry);
        self.current = Some(miss.g);
        let slot = self.asm.copy(miss.address);
        self.store_key(&miss.words)?;
        let val = self.number(miss.val)?;
        let off = self.asm.alu_of(AluOp::Sub, slot, BLOCK);
        let other = self.asm.word(slot, 0);
        self.asm.jump_if(Cond::Eq, other, 0, taken);
        self.asm.mov(off, 0);
        self.asm.bind(taken);
        let layout = self.put_layout(format!("put_{}", miss.g.0), array, large)?;
        let plan = self.plan;
        self.pool
            .define_once(&layout.name, Some(plan), || put(&layout))?;
        let args = [val.into(), self.generation(array.double()), off.into()];
        let result = self.asm.call_sub_with(layout.name, &args);
        let full = miss.full.ok_or("a large array that wraps")?;
        self.asm.jump_if(Cond::Eq, result, FULL, full);
        self.asm.jump(skip);
        Ok(())
    }

    fn put_layout(&self, name: String, array: &PerCpuArray, large: LargeLayout) -> Res<PutLayout> {
        let generations = if array.double() { 2 } else { 1 };
        let (count, sum) = match &array.value {
            ValueLayout::Scalar(_) => (None, Some(0)),
            ValueLayout::Stats(agg) => (Some(agg.count), agg.sum),
        };
        Ok(PutLayout {
            name,
            map: array.maps.first().ok_or("no map")?.clone(),
            double: array.double(),
            large,
            max: array.max,
            key: self.plan.scratch.key,
            key_size: array.key_size,
            last_slot: array.cache + (generations * array.slots - 1) * array.slot_size,
            value_size: array.value.size(),
            count,
            sum,
            wraps: self.plan.layout.wraps.filter(|_| count.is_some()),
        })
    }
}
