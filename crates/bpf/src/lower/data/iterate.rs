//! Iterators: `foreach` over arrays and over the buckets of histograms.
//!
//! A start walks through the array's hash map with `bpf_for_each_map_elem`, whose callback copies
//! the matching elements (see [`crate::plan::iterators`]), and builds a heap of the copies. A step
//! removes the heap's first node. The iterator's state is in the CPU's block, as plain numbers.

use spile_ir::{BlockId, Extract, GlobalId, IterId, Reg as IrReg, SortKey, SortSpec, Ty, Val};

use spile_lir::library::heap::{Direction, HeapLayout, node, words};
use spile_lir::library::routine::Routine;
use spile_lir::library::statistics::bucket;

use super::globals::same_fields;
use crate::isa::asm::{Asm, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Swap};
use crate::layout::{AggLayout, GlobalPlace, ValueLayout};
use crate::lower::{HandlerCodegen, Res, TMP, UNROLL};
use crate::plan::SnapshotMap;
use crate::plan::iterators::{
    ElementField, ElementPart, IterSource, IteratorLayout, maybe_unstarted, state,
};

impl HandlerCodegen<'_> {
    fn iterator(&self, it: IterId) -> Res<IteratorLayout> {
        let all = self.plan.iterators.get(self.handler.index());
        match all.and_then(|a| a.get(it.index())) {
            Some(Some(foreach)) => Ok(foreach.clone()),
            _ => Err("an iterator that never starts".into()),
        }
    }

    /// Offset in the CPU's block of a word of an iterator.
    fn state(&self, it: IterId, word: u32) -> u32 {
        self.plan.scratch.iterators + it.0 * state::BYTES + word
    }

    fn scratch_words(&self, word: i16) -> u32 {
        self.plan.scratch.tmp + word as u32
    }

    fn snapshot(&self, g: GlobalId) -> Res<SnapshotMap> {
        match self.plan.snapshots.get(g.index()) {
            Some(Some(snapshot)) => Ok(snapshot.clone()),
            _ => Err("an array without room for copies".into()),
        }
    }

    /// Saves the iterators that are open around calls in the current activation, or restores them.
    pub(in crate::lower) fn save_iterators(&mut self, back: bool) {
        let all = self.plan.iterators.get(self.handler.index());
        let deep = all.into_iter().flatten().enumerate();
        let deep: Vec<u32> = deep
            .filter(|(_, f)| f.as_ref().is_some_and(|f| f.deep))
            .map(|(i, _)| i as u32)
            .collect();
        let at = crate::lower::handler::calls::saved_bytes(self.body);
        for (n, it) in deep.into_iter().enumerate() {
            self.saved_addr(R2, at + n as u32 * state::BYTES);
            for word in (0..state::BYTES).step_by(8) {
                let off = self.state(IterId(it), word);
                if back {
                    self.asm.load(Size::DW, R1, R2, word as i16);
                    self.store(off, R1);
                } else {
                    self.load(R1, off);
                    self.asm.store(Size::DW, R2, word as i16, R1);
                }
            }
        }
    }

    /// Clears iterators that may be used before they start: they have no elements.
    pub(in crate::lower) fn clear_unstarted_iterators(&mut self) {
        for it in maybe_unstarted(self.body) {
            let words = [state::SIZE, state::LEFT];
            for word in words {
                let off = self.state(IterId(it as u32), word);
                self.store(off, 0);
            }
        }
    }

    pub(in crate::lower) fn iter_new(
        &mut self,
        it: IterId,
        g: GlobalId,
        slice: &[Option<Val>],
        limit: Option<Val>,
    ) -> Res {
        let features = self.options.features;
        if !(features.for_each && features.bpf_loop) {
            return Err("foreach in a kernel handler needs bpf_loop (Linux 5.17)".into());
        }
        let foreach = self.iterator(it)?;
        let snapshot = self.snapshot(g)?;
        let GlobalPlace::Hash {
            map,
            keys: types,
            seq: true,
            value,
            ..
        } = self.ctx.place(g)?
        else {
            return Err(
                "walking through an array that only the controller can walk through".into(),
            );
        };
        let every = vec![None; types.len()];
        let slice = if slice.is_empty() { &every } else { slice };
        if types.len() != slice.len() {
            return Err("a key with the wrong number of fields".into());
        }
        let none = self.asm.label();
        // Comes first, because it can count a truncated string.
        self.build_slice(&types, slice)?;
        self.begin_iterator(it, &foreach, &snapshot, limit, none)?;
        let mask: String = slice
            .iter()
            .map(|k| if k.is_some() { 'k' } else { 'x' })
            .collect();
        let name = format!("copy_{}_{}_{mask}", self.handler.0, it.0);
        let copy = CopyCallback {
            name: &name,
            types: &types,
            given: slice.iter().map(Option::is_some).collect(),
            key: self.plan.scratch.key,
            state: self.plan.scratch.iterators + it.0 * state::BYTES,
            value: &value,
            foreach: &foreach,
            snapshot: &snapshot,
        };
        if let IterSource::Array {
            sort:
                Some(SortSpec {
                    by: SortKey::Stat(Extract::Variance),
                    ..
                }),
            ..
        } = &foreach.walk
        {
            self.variance_sub()?;
        }
        self.pool.sub(&name, |_| copy.callback())?;
        self.asm.store(Size::DW, R10, TMP[2], R7);
        self.walk_in(&map, &name);
        self.load(R1, self.state(it, state::SIZE));
        self.heap("make", it, &foreach, &snapshot.map)?;
        self.asm.bind(none);
        Ok(())
    }

    /// Sets the words of an iterator that has no elements yet; goes to `none` if the limit lets none
    /// through.
    fn begin_iterator(
        &mut self,
        it: IterId,
        foreach: &IteratorLayout,
        snapshot: &SnapshotMap,
        limit: Option<Val>,
        none: Label,
    ) -> Res {
        let left = self.state(it, state::LEFT);
        self.asm.imm(R1, i64::from(foreach.room * snapshot.entries));
        if foreach.deep {
            self.load(R2, self.plan.scratch.depth);
            let stride = snapshot.rooms * snapshot.entries;
            self.asm.alu(AluOp::Mul, R2, stride as i32);
            self.asm.add(R1, R2);
        }
        self.store(self.state(it, state::BASE), R1);
        self.store(self.state(it, state::SIZE), 0);
        match limit {
            None => self.store(left, -1),
            Some(limit) => {
                self.use_in(limit, R1)?;
                let some = self.asm.label();
                self.asm.jump_if(Cond::Sgt, R1, 0, some);
                self.asm.mov(R1, 0);
                self.asm.bind(some);
                self.store(left, R1);
                self.asm.jump_if(Cond::Eq, R1, 0, none);
            }
        }
        Ok(())
    }

    /// Calls `make` or `take` on the heap of an iterator's entries; the result is in r0. The number of nodes
    /// is in r1.
    fn heap(&mut self, what: &str, it: IterId, foreach: &IteratorLayout, map: &str) -> Res {
        let IterSource::Array { sort, text, .. } = &foreach.walk else {
            return Err("a heap of buckets".into());
        };
        let texts = text.map(|_| match sort.is_some_and(|s| s.descending) {
            false => Direction::Up,
            true => Direction::Down,
        });
        let layout = HeapLayout {
            map: map.into(),
            texts,
        };
        let name = layout.name(what);
        self.pool
            .routine(&name, None, |_| Ok((Routine::Heap(layout), Vec::new())))?;
        self.store(self.scratch_words(words::SIZE), R1);
        self.load(R1, self.state(it, state::BASE));
        self.store(self.scratch_words(words::BASE), R1);
        self.block_addr(R1, self.plan.scratch.tmp);
        if let Some(text) = text {
            self.pool.library("order")?;
            self.asm.mov(R2, text.ty.size() as i32 / 8);
        }
        self.asm.call_sub(name);
        Ok(())
    }

    /// Fetches the next element and goes to `body`, or to `done`.
    fn iter_next(&mut self, it: IterId, keys: &[IrReg], value: Option<IrReg>, done: Label) -> Res {
        let foreach = self.iterator(it)?;
        let fields = match &foreach.walk {
            IterSource::Buckets(n) => {
                return self.next_bucket(it, &foreach, *n, (keys, value), done);
            }
            IterSource::Array { fields, .. } => fields.clone(),
        };
        let snapshot = self.snapshot(foreach.g)?;
        let (base, size, left) = (
            self.state(it, state::BASE),
            self.state(it, state::SIZE),
            self.state(it, state::LEFT),
        );
        self.load(R1, left);
        self.asm.jump_if(Cond::Eq, R1, 0, done);
        self.asm.add(R1, -1);
        self.store(left, R1);
        self.load(R1, size);
        self.asm.jump_if(Cond::Eq, R1, 0, done);
        self.asm.add(R1, -1);
        self.store(size, R1);
        self.heap("take", it, &foreach, &snapshot.map)?;
        if fields.is_empty() {
            return Ok(());
        }
        let key = self.scratch_words(words::KEY);
        self.load(R1, base);
        self.asm.add(R0, R1);
        self.store(key, R0);
        self.asm.ld_map(R1, &*snapshot.map);
        self.block_addr(R2, key);
        self.asm.call(Helper::MapLookupElem);
        self.asm.jump_if(Cond::Eq, R0, 0, done);
        self.asm.store(Size::DW, R10, TMP[0], R0);
        for field in fields {
            let dst = match field.part {
                ElementPart::Key(i) => keys.get(i).copied(),
                ElementPart::Value => value,
            };
            let Some(dst) = dst else { continue };
            self.asm.load(Size::DW, R3, R10, TMP[0]);
            match field.ty {
                Ty::Long => {
                    self.asm.load(Size::DW, R0, R3, field.at as i16);
                    self.def_int(dst, R0)?;
                }
                Ty::Str(from) => {
                    let Some((off, width)) = self.slot(dst)? else {
                        continue;
                    };
                    self.asm.add(R3, field.at as i32);
                    self.fill_from_r3(off, width, from.into());
                }
            }
        }
        Ok(())
    }

    pub(in crate::lower) fn iter_hist(&mut self, it: IterId, g: GlobalId, keys: &[Val]) -> Res {
        if !self.options.features.bpf_loop {
            return Err("foreach in a kernel handler needs bpf_loop (Linux 5.17)".into());
        }
        let foreach = self.iterator(it)?;
        let missing = self.asm.label();
        self.store(self.state(it, state::SIZE), 0);
        self.store(self.state(it, state::LEFT), 0);
        let agg = self.statistic(g, keys, missing)?;
        let (off, n) = agg.hist.ok_or("a statistic without a histogram")?;
        self.asm.mov(R3, R1);
        self.asm.add(R3, off as i32);
        self.bucket_room(&foreach);
        self.asm.mov(R2, 8 * n as i32);
        self.asm.call(Helper::ProbeReadKernel);
        self.store(self.state(it, state::SIZE), n as i32);
        self.asm.bind(missing);
        Ok(())
    }

    /// `r1` = address of a histogram's copy. Clobbers r2.
    fn bucket_room(&mut self, foreach: &IteratorLayout) {
        let scratch = self.plan.scratch;
        self.block_addr(R1, scratch.buckets + foreach.room * scratch.bucket_room);
        if foreach.deep {
            self.load(R2, scratch.depth);
            // Always false; bounds the index for the verifier.
            self.asm.jump_if(Cond::Gt, R2, self.nesting(), self.done);
            self.asm.alu(AluOp::Mul, R2, scratch.bucket_rooms as i32);
            self.asm.add(R1, R2);
        }
    }

    /// Fetches the next bucket that is not empty.
    fn next_bucket(
        &mut self,
        it: IterId,
        foreach: &IteratorLayout,
        buckets: u32,
        (keys, value): (&[IrReg], Option<IrReg>),
        done: Label,
    ) -> Res {
        self.pool.library("next_bucket")?;
        let (size, left) = (self.state(it, state::SIZE), self.state(it, state::LEFT));
        self.load(R1, left);
        self.store(self.scratch_words(bucket::NEXT), R1);
        self.load(R1, size);
        self.asm.jump_if(Cond::Eq, R1, 0, done);
        self.bucket_room(foreach);
        self.asm.mov(R2, buckets as i32);
        self.block_addr(R3, self.plan.scratch.tmp);
        self.asm.call_sub("next_bucket");
        self.load(R1, self.scratch_words(bucket::NEXT));
        self.store(left, R1);
        self.load(R1, self.scratch_words(bucket::COUNT));
        self.asm.jump_if(Cond::Eq, R1, 0, done);
        if let Some(value) = value {
            self.def_int(value, R1)?;
        }
        if let Some(key) = keys.first() {
            self.load(R0, left);
            self.asm.add(R0, -1);
            self.def_int(*key, R0)?;
        }
        Ok(())
    }

    /// Ends a block: goes to `body` with the next element, or to `done`.
    pub(in crate::lower) fn iter_term(
        &mut self,
        it: IterId,
        keys: &[IrReg],
        value: Option<IrReg>,
        (body, done): (BlockId, BlockId),
        next: Option<BlockId>,
    ) -> Res {
        let out = self.branch_target(done);
        self.iter_next(it, keys, value, out)?;
        self.branch_to(body, next);
        Ok(())
    }
}

/// Parameters of the callback that copies elements.
struct CopyCallback<'a> {
    name: &'a str,
    types: &'a [Ty],
    /// For each field of the key, whether it has to match the key buffer.
    given: Vec<bool>,
    /// Offsets in the CPU's block.
    key: u32,
    state: u32,
    value: &'a ValueLayout,
    foreach: &'a IteratorLayout,
    snapshot: &'a SnapshotMap,
}

impl CopyCallback<'_> {
    /// `copy(map, key, value, slot)`: `slot` holds the address of the CPU's block.
    fn callback(&self) -> Result<Function, String> {
        let IterSource::Array { sort, fields, text } = &self.foreach.walk else {
            return Err("a copy of buckets".into());
        };
        let at = |off: u32| i16::try_from(off).map_err(|_| "an iterator that is far away");
        let mut asm = Asm::new(self.name, &["map", "key", "value", "slot"]);
        let other = asm.label();
        asm.mov(R8, R2);
        asm.mov(R9, R3);
        asm.load(Size::DW, R7, R4, 0);
        let wanted: Vec<(Ty, bool)> = self
            .types
            .iter()
            .copied()
            .zip(self.given.iter().copied())
            .collect();
        same_fields(&mut asm, &wanted, R8, R7, self.key as i32, other)?;
        let size = at(self.state + state::SIZE)?;
        asm.load(Size::DW, R1, R7, size);
        // Always false: there are at most as many elements as the array holds.
        asm.jump_if(Cond::Ge, R1, self.snapshot.entries as i32, other);
        asm.load(Size::DW, R2, R7, at(self.state + state::BASE)?);
        asm.add(R1, R2);
        asm.store(Size::W, R10, -8, R1);
        asm.ld_map(R1, &*self.snapshot.map);
        asm.mov(R2, R10);
        asm.add(R2, -8);
        asm.call(Helper::MapLookupElem);
        asm.jump_if(Cond::Eq, R0, 0, other);
        asm.mov(R6, R0);
        for field in fields {
            self.copy(&mut asm, field)?;
        }
        self.word(&mut asm, *sort, *text)?;
        asm.store(Size::DW, R6, node::WORD, R0);
        asm.load(Size::DW, R1, R9, 0);
        asm.store(Size::DW, R6, node::SEQ, R1);
        asm.load(Size::DW, R1, R7, size);
        asm.store(Size::DW, R6, node::ENTRY, R1);
        asm.add(R1, 1);
        asm.store(Size::DW, R7, size, R1);
        asm.bind(other);
        asm.mov(R0, 0);
        asm.exit();
        asm.finish().map_err(|e| e.to_string())
    }

    /// Register and offset of a part of the element: r8 is the key, r9 the value with its sequence
    /// number.
    fn part_location(&self, part: ElementPart) -> (crate::isa::insn::Reg, u32) {
        match part {
            ElementPart::Key(i) => (R8, self.types[..i].iter().map(|t| t.size()).sum()),
            ElementPart::Value => match self.value {
                ValueLayout::Scalar(_) => (R9, 8),
                ValueLayout::Stats(agg) => (R9, 8 + agg.count),
            },
        }
    }

    /// Copies a part to entry r6.
    fn copy(&self, asm: &mut Asm, field: &ElementField) -> Res {
        let (base, off) = self.part_location(field.part);
        let bytes = field.ty.size();
        if bytes <= UNROLL * 8 {
            for i in (0..bytes).step_by(8) {
                asm.load(Size::DW, R1, base, (off + i) as i16);
                asm.store(Size::DW, R6, (field.at + i) as i16, R1);
            }
            return Ok(());
        }
        asm.mov(R1, R6);
        asm.add(R1, field.at as i32);
        asm.mov(R2, bytes as i32);
        asm.mov(R3, base);
        asm.add(R3, off as i32);
        asm.call(Helper::ProbeReadKernel);
        Ok(())
    }

    /// `r0` = the sort word of the element.
    fn word(&self, asm: &mut Asm, sort: Option<SortSpec>, text: Option<ElementField>) -> Res {
        let Some(sort) = sort else {
            asm.load(Size::DW, R0, R9, 0);
            return Ok(());
        };
        if let Some(field) = text {
            let (base, off) = self.part_location(field.part);
            asm.load(Size::DW, R0, base, off as i16);
            asm.swap(Swap::Be, Size::DW, R0);
        } else {
            match (sort.by, self.value) {
                (SortKey::Stat(what), ValueLayout::Stats(agg)) => {
                    self.extract(asm, what, agg)?;
                }
                (by, _) => {
                    let part = match by {
                        SortKey::Key(i) => ElementPart::Key(i as usize),
                        _ => ElementPart::Value,
                    };
                    let (base, off) = self.part_location(part);
                    asm.load(Size::DW, R0, base, off as i16);
                }
            }
            asm.ld_imm64(R1, 1 << 63);
            asm.alu(AluOp::Xor, R0, R1);
        }
        if sort.descending {
            asm.alu(AluOp::Xor, R0, -1);
        }
        Ok(())
    }

    /// `r0` = an extractor's value for the statistic, 0 if it is empty.
    fn extract(&self, asm: &mut Asm, what: Extract, agg: &AggLayout) -> Res {
        let word = |off: Option<u32>| {
            off.map(|o| 8 + o as i16)
                .ok_or("a statistic does not keep that")
        };
        let empty = asm.label();
        asm.load(Size::DW, R0, R9, 8 + agg.count as i16);
        asm.jump_if(Cond::Eq, R0, 0, empty);
        match what {
            Extract::Count => {}
            Extract::Sum => asm.load(Size::DW, R0, R9, word(agg.sum)?),
            Extract::Min => asm.load(Size::DW, R0, R9, word(agg.min)?),
            Extract::Max => asm.load(Size::DW, R0, R9, word(agg.max)?),
            Extract::Avg => {
                asm.mov(R2, R0);
                asm.load(Size::DW, R0, R9, word(agg.sum)?);
                super::extract::divide_signed(asm);
            }
            Extract::Variance => {
                asm.mov(R1, R9);
                asm.add(R1, 8);
                super::extract::variance(asm, agg)?;
            }
        }
        asm.bind(empty);
        Ok(())
    }
}
