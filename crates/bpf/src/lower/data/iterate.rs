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
use crate::isa::insn::Reg::R10;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Swap};
use crate::layout::{AggLayout, GlobalPlace, ValueLayout};
use crate::lower::handler::global_subprogram::FREE;
use crate::lower::{Arg, BLOCK, HandlerCodegen, Res, TMP, UNROLL};
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
            let saved = self.saved_addr(at + n as u32 * state::BYTES);
            for word in (0..state::BYTES).step_by(8) {
                let off = self.state(IterId(it), word);
                if back {
                    let value = self.asm.word(saved, word as i16);
                    self.store(off, value);
                } else {
                    let value = self.block_word(off);
                    self.asm.store(Size::DW, saved, word as i16, value);
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
        self.asm.store(Size::DW, R10, TMP[2], BLOCK);
        self.walk_in(&map, &name);
        let size = self.block_word(self.state(it, state::SIZE));
        self.heap("make", size, it, &foreach, &snapshot.map)?;
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
        let base = self.asm.new_reg();
        self.asm
            .imm(base, i64::from(foreach.room * snapshot.entries));
        if foreach.deep {
            let depth = self.block_word(self.plan.scratch.depth);
            let stride = snapshot.rooms * snapshot.entries;
            self.asm.alu(AluOp::Mul, depth, stride as i32);
            self.asm.add(base, depth);
        }
        self.store(self.state(it, state::BASE), base);
        self.store(self.state(it, state::SIZE), 0);
        match limit {
            None => self.store(left, -1),
            Some(limit) => {
                let limit = self.number_copy(limit)?;
                let some = self.asm.label();
                self.asm.jump_if(Cond::Sgt, limit, 0, some);
                self.asm.mov(limit, 0);
                self.asm.bind(some);
                self.store(left, limit);
                self.asm.jump_if(Cond::Eq, limit, 0, none);
            }
        }
        Ok(())
    }

    /// Calls `make` or `take` on the heap of an iterator's entries, of which there are `size`.
    fn heap(
        &mut self,
        what: &str,
        size: Reg,
        it: IterId,
        foreach: &IteratorLayout,
        map: &str,
    ) -> Res<Reg> {
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
        self.store(self.scratch_words(words::SIZE), size);
        let base = self.block_word(self.state(it, state::BASE));
        self.store(self.scratch_words(words::BASE), base);
        let mut args = vec![Arg::Block(self.plan.scratch.tmp)];
        if let Some(text) = text {
            self.pool.library("order")?;
            args.push((text.ty.size() as i32 / 8).into());
        }
        Ok(self.asm.call_sub_with(name, &args))
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
        let [_, nodes] = [left, size].map(|word| {
            let count = self.block_word(word);
            self.asm.jump_if(Cond::Eq, count, 0, done);
            self.asm.add(count, -1);
            self.store(word, count);
            count
        });
        let entry = self.heap("take", nodes, it, &foreach, &snapshot.map)?;
        if fields.is_empty() {
            return Ok(());
        }
        let key = self.scratch_words(words::KEY);
        let base = self.block_word(base);
        self.asm.add(entry, base);
        self.store(key, entry);
        let args = [Arg::Map((&*snapshot.map).into()), Arg::Block(key)];
        let row = self.asm.call_with(Helper::MapLookupElem, &args);
        self.asm.jump_if(Cond::Eq, row, 0, done);
        self.asm.store(Size::DW, R10, TMP[0], row);
        for field in fields {
            let dst = match field.part {
                ElementPart::Key(i) => keys.get(i).copied(),
                ElementPart::Value => value,
            };
            let Some(dst) = dst else { continue };
            let row = self.asm.word(R10, TMP[0]);
            match field.ty {
                Ty::Long => {
                    let number = self.asm.word(row, field.at as i16);
                    self.def_int(dst, number)?;
                }
                Ty::Str(from) => {
                    let Some((off, width)) = self.slot(dst)? else {
                        continue;
                    };
                    self.asm.add(row, field.at as i32);
                    self.fill_from(off, width, (row, from.into()));
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
        let (at, agg) = self.statistic(g, keys, missing)?;
        let (off, n) = agg.hist.ok_or("a statistic without a histogram")?;
        self.asm.add(at, off as i32);
        let room = self.bucket_room(&foreach);
        self.copy_memory(room.into(), 8 * n, at.into());
        self.store(self.state(it, state::SIZE), n as i32);
        self.asm.bind(missing);
        Ok(())
    }

    /// The address of a histogram's copy.
    fn bucket_room(&mut self, foreach: &IteratorLayout) -> Reg {
        let scratch = self.plan.scratch;
        let room = self.block_address(scratch.buckets + foreach.room * scratch.bucket_room);
        if foreach.deep {
            let depth = self.block_word(scratch.depth);
            // Always false; bounds the index for the verifier.
            self.asm.jump_if(Cond::Gt, depth, self.nesting(), self.done);
            self.asm.alu(AluOp::Mul, depth, scratch.bucket_rooms as i32);
            self.asm.add(room, depth);
        }
        room
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
        let next = self.block_word(left);
        self.store(self.scratch_words(bucket::NEXT), next);
        let size = self.block_word(size);
        self.asm.jump_if(Cond::Eq, size, 0, done);
        let room = self.bucket_room(foreach);
        let words = Arg::Block(self.plan.scratch.tmp);
        let args = [room.into(), (buckets as i32).into(), words];
        self.asm.call_sub_with("next_bucket", &args);
        let next = self.block_word(self.scratch_words(bucket::NEXT));
        self.store(left, next);
        let count = self.block_word(self.scratch_words(bucket::COUNT));
        self.asm.jump_if(Cond::Eq, count, 0, done);
        if let Some(value) = value {
            self.def_int(value, count)?;
        }
        if let Some(key) = keys.first() {
            let bucket = self.block_word(left);
            self.asm.add(bucket, -1);
            self.def_int(*key, bucket)?;
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
        asm.begin_sequence(FREE);
        let other = asm.label();
        let [_, key, value, slot] = asm.parameters();
        let element = Element { key, value };
        asm.load(Size::DW, BLOCK, slot, 0);
        let wanted: Vec<(Ty, bool)> = self
            .types
            .iter()
            .copied()
            .zip(self.given.iter().copied())
            .collect();
        same_fields(&mut asm, &wanted, key, (BLOCK, self.key as i32), other)?;
        let size = at(self.state + state::SIZE)?;
        let entry = asm.word(BLOCK, size);
        // Always false: there are at most as many elements as the array holds.
        asm.jump_if(Cond::Ge, entry, self.snapshot.entries as i32, other);
        let base = asm.word(BLOCK, at(self.state + state::BASE)?);
        asm.add(entry, base);
        asm.store(Size::W, R10, -8, entry);
        let args = [Arg::Map((&*self.snapshot.map).into()), Arg::Word(-8)];
        let to = asm.call_with(Helper::MapLookupElem, &args);
        asm.jump_if(Cond::Eq, to, 0, other);
        for field in fields {
            self.copy(&mut asm, element, field, to);
        }
        let word = self.word(&mut asm, element, *sort, *text)?;
        asm.store(Size::DW, to, node::WORD, word);
        let sequence = asm.word(value, 0);
        asm.store(Size::DW, to, node::SEQ, sequence);
        let entry = asm.word(BLOCK, size);
        asm.store(Size::DW, to, node::ENTRY, entry);
        asm.add(entry, 1);
        asm.store(Size::DW, BLOCK, size, entry);
        asm.bind(other);
        asm.ret(0);
        asm.finish().map_err(|e| e.to_string())
    }

    /// Register and offset of a part of the element.
    fn part_location(&self, of: Element, part: ElementPart) -> (Reg, u32) {
        match part {
            ElementPart::Key(i) => (of.key, self.types[..i].iter().map(|t| t.size()).sum()),
            ElementPart::Value => match self.value {
                ValueLayout::Scalar(_) => (of.value, 8),
                ValueLayout::Stats(agg) => (of.value, 8 + agg.count),
            },
        }
    }

    /// Copies a part to an entry.
    fn copy(&self, asm: &mut Asm, of: Element, field: &ElementField, to: Reg) {
        let (base, off) = self.part_location(of, field.part);
        let bytes = field.ty.size();
        if bytes <= UNROLL * 8 {
            for i in (0..bytes).step_by(8) {
                let word = asm.word(base, (off + i) as i16);
                asm.store(Size::DW, to, (field.at + i) as i16, word);
            }
            return;
        }
        let to = asm.alu_of(AluOp::Add, to, field.at as i32);
        let from = asm.alu_of(AluOp::Add, base, off as i32);
        let args = [to.into(), (bytes as i32).into(), from.into()];
        asm.call_with(Helper::ProbeReadKernel, &args);
    }

    /// The sort word of the element.
    fn word(
        &self,
        asm: &mut Asm,
        of: Element,
        sort: Option<SortSpec>,
        text: Option<ElementField>,
    ) -> Res<Reg> {
        let Some(sort) = sort else {
            return Ok(asm.word(of.value, 0));
        };
        let word;
        if let Some(field) = text {
            let (base, off) = self.part_location(of, field.part);
            word = asm.word(base, off as i16);
            asm.swap(Swap::Be, Size::DW, word);
        } else {
            word = match (sort.by, self.value) {
                (SortKey::Stat(what), ValueLayout::Stats(agg)) => {
                    self.extract(asm, of.value, what, agg)?
                }
                (by, _) => {
                    let part = match by {
                        SortKey::Key(i) => ElementPart::Key(i as usize),
                        _ => ElementPart::Value,
                    };
                    let (base, off) = self.part_location(of, part);
                    asm.word(base, off as i16)
                }
            };
            let sign = asm.new_reg();
            asm.ld_imm64(sign, 1 << 63);
            asm.alu(AluOp::Xor, word, sign);
        }
        if sort.descending {
            asm.alu(AluOp::Xor, word, -1);
        }
        Ok(word)
    }

    /// An extractor's value for the statistic behind an element's sequence number, 0 if it is empty.
    fn extract(&self, asm: &mut Asm, at: Reg, what: Extract, agg: &AggLayout) -> Res<Reg> {
        let word = |off: Option<u32>| {
            off.map(|o| 8 + o as i16)
                .ok_or("a statistic does not keep that")
        };
        let empty = asm.label();
        let result = asm.word(at, 8 + agg.count as i16);
        asm.jump_if(Cond::Eq, result, 0, empty);
        match what {
            Extract::Count => {}
            Extract::Sum => asm.load(Size::DW, result, at, word(agg.sum)?),
            Extract::Min => asm.load(Size::DW, result, at, word(agg.min)?),
            Extract::Max => asm.load(Size::DW, result, at, word(agg.max)?),
            Extract::Avg => {
                let count = asm.copy(result);
                asm.load(Size::DW, result, at, word(agg.sum)?);
                super::extract::divide_signed(asm, result, count);
            }
            Extract::Variance => {
                let statistic = asm.alu_of(AluOp::Add, at, 8);
                let variance = super::extract::variance(asm, statistic, agg)?;
                asm.mov(result, variance);
            }
        }
        asm.bind(empty);
        Ok(result)
    }
}

/// The addresses of an element's key, and of its value with the sequence number.
#[derive(Clone, Copy)]
struct Element {
    key: Reg,
    value: Reg,
}
