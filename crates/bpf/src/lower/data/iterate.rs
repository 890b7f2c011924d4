//! Iterators: `foreach` over arrays and over the buckets of histograms.
//!
//! A start iterates over the array's hash map with `bpf_for_each_map_elem`, whose callback copies
//! the matching elements (see [`spile_layout::plan::iterators`]), and builds a heap of the copies. A step
//! removes the heap's first node. The iterator's state is in the per-CPU area, as plain numbers.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{CallArg, Label};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{BlockId, Extract, GlobalId, IterId, Reg as IrReg, SortKey, SortSpec, Ty, Val};
use spile_layout::plan::SnapshotMap;
use spile_layout::plan::iterators::{
    ElementPart, IterSource, IteratorLayout, maybe_unstarted, state,
};
use spile_layout::{GlobalLocation, SEQUENCE, ValueLayout};
use spile_lir::library::heap::{HeapLayout, HeapOrder, words};
use spile_lir::library::iterations::{
    CopiedPart, CopyLayout, ElementOffset, KeyFields, SortWord, Statistic, copy,
};
use spile_lir::library::routine::Routine;
use spile_lir::library::statistics::bucket;

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{BLOCK, TMP, block_at};

impl HandlerCodegen<'_> {
    fn iterator(&self, it: IterId) -> Res<IteratorLayout> {
        let iterators = self.plan.iterators.get(self.handler.index());
        match iterators.and_then(|a| a.get(it.index())) {
            Some(Some(foreach)) => Ok(foreach.clone()),
            _ => Err("an iterator that never starts".into()),
        }
    }

    /// Offset in the per-CPU area of a word of an iterator.
    fn state(&self, it: IterId, word: u32) -> u32 {
        self.plan.scratch.iterators + it.0 * state::BYTES + word
    }

    fn scratch_words(&self, word: i16) -> u32 {
        self.plan.scratch.tmp + word.fit::<u32>()
    }

    fn snapshot(&self, g: GlobalId) -> Res<SnapshotMap> {
        match self.plan.snapshots.get(g.index()) {
            Some(Some(snapshot)) => Ok(snapshot.clone()),
            _ => Err("an array without space for copies".into()),
        }
    }

    /// Saves the iterators that are open around calls in the current activation, or restores them.
    pub(crate) fn save_iterators(&mut self, back: bool) {
        let iterators = self.plan.iterators.get(self.handler.index());
        let deep = iterators.into_iter().flatten().enumerate();
        let deep: Vec<u32> = deep
            .filter(|(_, f)| f.as_ref().is_some_and(|f| f.deep))
            .map(|(i, _)| i.fit::<u32>())
            .collect();
        let start = spile_layout::plan::saved_bytes(self.body);
        for (n, it) in deep.into_iter().enumerate() {
            let saved = self.saved_addr(start + n.fit::<u32>() * state::BYTES);
            for word in (0..state::BYTES).step_by(8) {
                let off = self.state(IterId(it), word);
                if back {
                    let value = self.asm.word(saved, word.fit());
                    self.store(off, value);
                } else {
                    let value = self.block_word(off);
                    self.asm.store(Size::DW, saved, word.fit(), value);
                }
            }
        }
    }

    /// Clears iterators that may be used before they start: they have no elements.
    pub(crate) fn clear_unstarted_iterators(&mut self) {
        for it in maybe_unstarted(self.body) {
            let words = [state::SIZE, state::LEFT];
            for word in words {
                let off = self.state(IterId(it.fit()), word);
                self.store(off, 0);
            }
        }
    }

    pub(crate) fn iter_new(
        &mut self,
        it: IterId,
        g: GlobalId,
        slice: &[Option<Val>],
        limit: Option<Val>,
    ) -> Res {
        let features = self.options.features;
        if !(features.for_each && features.bpf_loop) {
            return Err(LowerError::unsupported(
                "foreach in a kernel handler needs bpf_loop (Linux 5.17)",
            ));
        }
        let foreach = self.iterator(it)?;
        let snapshot = self.snapshot(g)?;
        let GlobalLocation::Hash {
            map,
            keys: types,
            seq: true,
            value,
            ..
        } = self.ctx.location(g)?
        else {
            return Err(
                "iterating over an array over which only the controller can iterate".into(),
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
        let fields = types.iter().zip(slice);
        let fields = KeyFields(fields.map(|(t, k)| (t.size(), k.is_some())).collect());
        let layout = self.copy_layout(it, (fields, &value), &foreach, &snapshot)?;
        let name = layout.name.clone();
        if let SortWord::Statistic(_, Statistic::Variance(..)) = layout.word {
            self.variance_sub()?;
        }
        self.pool.define_once(&name, None, || copy(&layout))?;
        self.asm.store(Size::DW, R10, TMP[2], BLOCK);
        self.iterate_over(&map, &name);
        let size = self.block_word(self.state(it, state::SIZE));
        self.heap("make", size, it, &foreach, &snapshot.map)?;
        self.asm.bind(none);
        Ok(())
    }

    /// The callback that copies the elements of an array.
    fn copy_layout(
        &self,
        it: IterId,
        (fields, value): (KeyFields, &ValueLayout),
        foreach: &IteratorLayout,
        snapshot: &SnapshotMap,
    ) -> Res<CopyLayout> {
        let IterSource::Array {
            sort,
            fields: copied,
            text,
        } = &foreach.source
        else {
            return Err("a copy of buckets".into());
        };
        let part = |part: ElementPart| match part {
            ElementPart::Key(i) => {
                ElementOffset::Key(fields.0[..i].iter().map(|(bytes, _)| bytes).sum())
            }
            ElementPart::Value => match value {
                ValueLayout::Scalar(_) => ElementOffset::Value(SEQUENCE),
                ValueLayout::Stats(agg) => ElementOffset::Value(SEQUENCE + agg.count),
            },
        };
        let word = match text {
            Some(text) => SortWord::Text(part(text.part)),
            None => sort_word(*sort, part, value)?,
        };
        let parts = copied.iter().map(|field| CopiedPart {
            from: part(field.part),
            to: field.offset,
            bytes: field.ty.size(),
        });
        let parts = parts.collect();
        let given = |(_, given): &(u32, bool)| if *given { 'k' } else { 'x' };
        let mask: String = fields.0.iter().map(given).collect();
        Ok(CopyLayout {
            name: format!("copy_{}_{}_{mask}", self.handler.0, it.0),
            fields,
            key: self.plan.scratch.key,
            base: self.state(it, state::BASE),
            size: self.state(it, state::SIZE),
            map: snapshot.map.clone(),
            entries: snapshot.entries,
            parts,
            word,
            descending: sort.is_some_and(|sort| sort.descending),
        })
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
            .imm(base, i64::from(foreach.slot * snapshot.entries));
        if foreach.deep {
            let depth = self.block_word(self.plan.scratch.depth);
            let stride = snapshot.slots * snapshot.entries;
            self.asm.alu(AluOp::Mul, depth, stride);
            self.asm.add(base, depth);
        }
        self.store(self.state(it, state::BASE), base);
        self.store(self.state(it, state::SIZE), 0);
        match limit {
            None => self.store(left, -1),
            Some(limit) => {
                let limit = self.number_copy(limit)?;
                self.asm.mov_unless(Cond::Sgt, limit, 0, 0);
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
        let IterSource::Array { sort, text, .. } = &foreach.source else {
            return Err("a heap of buckets".into());
        };
        let texts = text.map(|_| match sort.is_some_and(|s| s.descending) {
            false => HeapOrder::Up,
            true => HeapOrder::Down,
        });
        let layout = HeapLayout {
            map: map.into(),
            texts,
        };
        let name = layout.name(what);
        self.pool
            .routine(&name, None, |_| Ok(Routine::Heap(layout)))?;
        self.store(self.scratch_words(words::SIZE), size);
        let base = self.block_word(self.state(it, state::BASE));
        self.store(self.scratch_words(words::BASE), base);
        let mut args = vec![block_at(self.plan.scratch.tmp)];
        if let Some(text) = text {
            self.pool.library("order")?;
            args.push((text.ty.size().cast_signed() / 8).into());
        }
        Ok(self.asm.call_sub_with(name, &args))
    }

    /// Fetches the next element and goes to `body`, or to `done`.
    fn iter_next(&mut self, it: IterId, keys: &[IrReg], value: Option<IrReg>, done: Label) -> Res {
        let foreach = self.iterator(it)?;
        let fields = match &foreach.source {
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
        let args = [CallArg::Map((&*snapshot.map).into()), block_at(key)];
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
                    let number = self.asm.word(row, field.offset.fit());
                    self.def_int(dst, number)?;
                }
                Ty::Str(from) => {
                    let Some((off, width)) = self.slot(dst)? else {
                        continue;
                    };
                    self.asm.add(row, field.offset);
                    self.fill_from(off, width, (row, from.into()));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn iter_hist(&mut self, it: IterId, g: GlobalId, keys: &[Val]) -> Res {
        if !self.options.features.bpf_loop {
            return Err(LowerError::unsupported(
                "foreach in a kernel handler needs bpf_loop (Linux 5.17)",
            ));
        }
        let foreach = self.iterator(it)?;
        let missing = self.asm.label();
        self.store(self.state(it, state::SIZE), 0);
        self.store(self.state(it, state::LEFT), 0);
        let (address, agg) = self.statistic(g, keys, missing)?;
        let (off, n) = agg.hist.ok_or("a statistic without a histogram")?;
        self.asm.add(address, off);
        let slot = self.bucket_slot(&foreach);
        self.copy_memory(slot.into(), 8 * n, address.into());
        self.store(self.state(it, state::SIZE), n);
        self.asm.bind(missing);
        Ok(())
    }

    /// The address of a histogram's copy.
    fn bucket_slot(&mut self, foreach: &IteratorLayout) -> Reg {
        let scratch = self.plan.scratch;
        let slot = self.block_address(scratch.buckets + foreach.slot * scratch.bucket_slot);
        if foreach.deep {
            let depth = self.block_word(scratch.depth);
            // Always false; bounds the index for the verifier.
            self.asm.jump_if(Cond::Gt, depth, self.nesting(), self.done);
            self.asm.alu(AluOp::Mul, depth, scratch.bucket_slots);
            self.asm.add(slot, depth);
        }
        slot
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
        let slot = self.bucket_slot(foreach);
        let words = block_at(self.plan.scratch.tmp);
        let args = [slot.into(), buckets.into(), words];
        self.asm.call_sub_with("next_bucket", &args);
        let next = self.block_word(self.scratch_words(bucket::NEXT));
        self.store(left, next);
        let count = self.block_word(self.scratch_words(bucket::COUNT));
        self.asm.jump_if(Cond::Eq, count, 0, done);
        // The value last: it counts if the key has the same register.
        if let Some(key) = keys.first() {
            let bucket = self.block_word(left);
            self.asm.add(bucket, -1);
            self.def_int(*key, bucket)?;
        }
        if let Some(value) = value {
            self.def_int(value, count)?;
        }
        Ok(())
    }

    /// Ends a block: goes to `body` with the next element, or to `done`.
    pub(crate) fn iter_term(
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

/// What entries are sorted by.
fn sort_word(
    sort: Option<SortSpec>,
    part: impl Fn(ElementPart) -> ElementOffset,
    value: &ValueLayout,
) -> Res<SortWord> {
    let Some(sort) = sort else {
        return Ok(SortWord::Sequence);
    };
    Ok(match (sort.by, value) {
        (SortKey::Stat(what), ValueLayout::Stats(agg)) => {
            let word = |off: Option<u32>| {
                off.map(|o| SEQUENCE + o)
                    .ok_or("a statistic does not keep that")
            };
            let statistic = match what {
                Extract::Count => Statistic::Word(SEQUENCE + agg.count),
                Extract::Sum => Statistic::Word(word(agg.sum)?),
                Extract::Min => Statistic::Word(word(agg.min)?),
                Extract::Max => Statistic::Word(word(agg.max)?),
                Extract::Avg => Statistic::Average(word(agg.sum)?),
                Extract::Variance => Statistic::Variance(word(agg.sum)?, word(agg.sumsq)?),
            };
            SortWord::Statistic(SEQUENCE + agg.count, statistic)
        }
        (SortKey::Key(i), _) => SortWord::Number(part(ElementPart::Key(i as usize))),
        _ => SortWord::Number(part(ElementPart::Value)),
    })
}
