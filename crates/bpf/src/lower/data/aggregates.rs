//! Statistics, and arrays kept as per-CPU deltas.
//!
//! The straight path of `a[keys] <<< v` and `a[keys] += v` on a per-CPU array has no helper
//! call: hash the key's words, look into the slot of the direct-mapped cache, compare the key
//! word by word, update in place. A miss goes out of line: see [`HandlerCodegen::emit_miss`].

use spile_ir::{ElemTy, GlobalId, GlobalKind, Hist, Ty, Val};

use crate::isa::asm::{Label, Section};
use crate::isa::helpers::errno::{E2BIG, EEXIST};
use crate::isa::helpers::{Helper, NOEXIST};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size, Src};
use crate::layout::{AggLayout, GOLDEN, GlobalPlace, PerCpuArray, SEQUENCE, ValueLayout, percpu};
use crate::lower::operand::KeyWord;
use crate::lower::out_of_line::{CacheMiss, OutOfLine};
use crate::lower::{GEN, HandlerCodegen, Res, StrOperand, TMP, UNROLL};
use crate::plan::lanes;
use crate::plan::outlining::Op;

/// Value of the word for the last updated slot when the element is in the map instead.
const NO_SLOT: i32 = -1;
/// Up to this number of key words, each comparison gets its own jump.
const JUMPS: usize = 8;

impl HandlerCodegen<'_> {
    /// The place of an array that is stored as per-CPU deltas.
    pub(in crate::lower) fn per_cpu_array(&self, g: GlobalId) -> Res<PerCpuArray> {
        match self.ctx.place(g)? {
            GlobalPlace::PerCpuArray(array) => Ok(array),
            _ => Err("not a per-CPU array".into()),
        }
    }

    pub(in crate::lower) fn is_stats(&self, g: GlobalId) -> bool {
        matches!(
            self.program.globals.get(g.index()).map(|g| &g.kind),
            Some(
                GlobalKind::Stats(_)
                    | GlobalKind::Array {
                        value: ElemTy::Stats(_),
                        ..
                    }
            )
        )
    }

    /// The words of a key. A string wider than its field is truncated in the key buffer first.
    fn key_words(&mut self, types: &[Ty], keys: &[Val]) -> Res<Vec<KeyWord>> {
        if types.len() != keys.len() {
            return Err("a key with the wrong number of fields".into());
        }
        let mut words = Vec::new();
        for (ty, key) in types.iter().zip(keys) {
            match ty {
                Ty::Long => words.push(KeyWord::Long(*key)),
                Ty::Str(width) => {
                    let width = u32::from(*width);
                    let mut text = self.text(*key)?;
                    if text.width() > width {
                        let off = self.plan.scratch.key + 8 * words.len() as u32;
                        self.copy_text(off, width, &text)?;
                        text = StrOperand::Slot { off, width };
                    }
                    words.extend((0..width / 8).map(|i| KeyWord::Text(text.clone(), i)));
                }
            }
        }
        Ok(words)
    }

    fn key_word(&mut self, word: &KeyWord, scratch: crate::isa::insn::Reg) -> Res<Src> {
        match word {
            KeyWord::Long(v) => self.use_int(*v, scratch),
            KeyWord::Text(text, i) => Ok(self.text_word(scratch, text, *i)),
        }
    }

    /// Writes a key to the key buffer.
    pub(in crate::lower) fn build_key(&mut self, types: &[Ty], keys: &[Val]) -> Res {
        let words = self.key_words(types, keys)?;
        self.store_key(&words)
    }

    pub(in crate::lower) fn store_key(&mut self, words: &[KeyWord]) -> Res {
        let key = self.plan.scratch.key;
        let mut copied = 0;
        for (i, word) in words.iter().enumerate() {
            if i < copied {
                continue;
            }
            let to = key + 8 * i as u32;
            if let KeyWord::Text(text, 0) = word {
                let same = |(j, w): (usize, &KeyWord)| matches!(w, KeyWord::Text(_, k) if *k as usize == j);
                let wide = words[i..]
                    .iter()
                    .enumerate()
                    .take_while(|(j, w)| same((*j, w)));
                let wide = wide.count();
                if wide > UNROLL as usize {
                    self.copy_text(to, 8 * wide as u32, text)?;
                    copied = i + wide;
                    continue;
                }
            }
            if matches!(word, KeyWord::Text(StrOperand::Slot { off, .. }, j) if off + 8 * j == to) {
                continue;
            }
            let src = self.key_word(word, R1)?;
            self.store(to, src);
        }
        Ok(())
    }

    pub(in crate::lower) fn stat_add(&mut self, g: GlobalId, keys: &[Val], val: Val) -> Res {
        match self.ctx.place(g)? {
            GlobalPlace::Stats { offset, agg } => {
                self.shared(R1, offset);
                self.update(&ValueLayout::Stats(agg), val)
            }
            GlobalPlace::PerCpuScalar { .. } => self.per_cpu_scalar_add(g, val),
            GlobalPlace::PerCpuArray(_) => self.per_cpu_array_add(g, keys, val),
            GlobalPlace::Hash {
                keys: types, value, ..
            } => {
                self.build_key(&types, keys)?;
                self.with_element("add", g, val, |c, val, (full, skip)| {
                    c.hash_element(g, full, skip)?;
                    c.update(&value, val)
                })
            }
            GlobalPlace::Scalar { .. } => Err("a statistic is stored as a scalar".into()),
        }
    }

    /// `[r1 + offset of this generation] += val`, for a scalar.
    pub(in crate::lower) fn per_cpu_scalar_add(&mut self, g: GlobalId, val: Val) -> Res {
        let GlobalPlace::PerCpuScalar {
            offset,
            gen_stride,
            value,
        } = self.ctx.place(g)?
        else {
            return Err("not a per-CPU scalar".into());
        };
        if let (0, ValueLayout::Scalar(_)) = (gen_stride, &value) {
            let v = self.use_int(val, R3)?;
            let (base, disp) = self.block_operand(R1, offset, 8);
            self.asm.load(Size::DW, R2, base, disp);
            self.asm.alu(AluOp::Add, R2, v);
            self.asm.store(Size::DW, base, disp, R2);
            return Ok(());
        }
        self.block_addr(R1, offset);
        self.of_generation(gen_stride);
        self.update(&value, val)
    }

    pub(in crate::lower) fn per_cpu_array_add(
        &mut self,
        g: GlobalId,
        keys: &[Val],
        val: Val,
    ) -> Res {
        let array = self.per_cpu_array(g)?;
        if array.key_size > 30_000 {
            return Err("a key of more than 30,000 bytes".into());
        }
        let words = self.key_words(&array.keys, keys)?;
        if array.colocated.of.is_some() {
            return self.colocated_add(g, words, val);
        }
        if self.adds_global(g) {
            self.store_key(&words)?;
            return self.per_cpu_global(g, val, array.double());
        }
        let full = self.full_label(g);
        self.cached_add(g, words, val, full)
    }

    /// Adds to the element of the key in the key buffer.
    pub(in crate::lower) fn array_add_here(
        &mut self,
        g: GlobalId,
        val: Val,
        full: Option<Label>,
    ) -> Res {
        let PerCpuArray {
            key_size,
            colocated,
            ..
        } = self.per_cpu_array(g)?;
        if colocated.of.is_some() {
            return self.colocated_add_in_map(g, val);
        }
        let text = StrOperand::Slot {
            off: self.plan.scratch.key,
            width: key_size,
        };
        let words = (0..key_size / 8).map(|i| KeyWord::Text(text.clone(), i));
        self.cached_add(g, words.collect(), val, full)
    }

    /// Adds to the element of a key, by way of the cache.
    fn cached_add(
        &mut self,
        g: GlobalId,
        words: Vec<KeyWord>,
        val: Val,
        full: Option<Label>,
    ) -> Res {
        let array = self.per_cpu_array(g)?;
        let PerCpuArray {
            cache,
            gen_stride,
            slots,
            slot_size,
            key_size,
            ..
        } = array;
        let value = array.value.clone();
        if slots == 0 {
            let (element, skip) = (self.asm.label(), self.asm.label());
            self.store_key(&words)?;
            match self.outlined(Op::Element) {
                true => self.element_outlined(&array, full, (element, skip))?,
                false => self.element_in_map(&array, full, (element, skip))?,
            }
            self.asm.bind(element);
            self.update(&value, val)?;
            self.asm.bind(skip);
            return Ok(());
        }
        self.hash(&words, slots)?;
        if let Some(word) = self.plan.colocations.word(g) {
            self.store(word, R1);
        }
        self.slot_at(slot_size, gen_stride);
        self.asm.add(R1, cache as i32);
        let [entry, hit, element, skip] = [(); 4].map(|()| self.asm.label());
        self.asm.load(Size::DW, R2, R1, 0);
        self.asm.jump_if(Cond::Eq, R2, 0, entry);
        self.compare_key(&words, entry)?;
        self.out_of_line.push(OutOfLine::Miss(CacheMiss {
            entry,
            hit,
            element,
            skip,
            full,
            g,
            words,
            val,
        }));
        self.asm.bind(hit);
        self.asm.add(R1, 8 + key_size as i32);
        self.asm.bind(element);
        self.update(&value, val)?;
        self.asm.bind(skip);
        Ok(())
    }

    /// `r1` = address of slot number r1, relative to the cache's offset. Clobbers r2.
    pub(in crate::lower) fn slot_at(&mut self, slot_size: u32, gen_stride: u32) {
        self.asm.alu(AluOp::Mul, R1, slot_size as i32);
        self.of_generation(gen_stride);
        self.asm.add(R1, R7);
    }

    /// `r1` += offset of this generation. Clobbers r2.
    fn of_generation(&mut self, gen_stride: u32) {
        if gen_stride > 0 {
            self.asm.load(Size::DW, R2, R10, GEN);
            self.asm.alu(AluOp::Mul, R2, gen_stride as i32);
            self.asm.add(R1, R2);
        }
    }

    /// Compares the key in slot r1, and goes to `other` if it differs. Long keys are compared with
    /// one jump: the verifier limits the number of jumps.
    fn compare_key(&mut self, words: &[KeyWord], other: Label) -> Res {
        let (first, rest) = words.split_at(words.len().min(JUMPS));
        for (i, word) in first.iter().enumerate() {
            self.asm.load(Size::DW, R2, R1, 8 + 8 * i as i16);
            let src = self.key_word(word, R3)?;
            self.asm.jump_if(Cond::Ne, R2, src, other);
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.asm.mov(R4, 0);
        for (i, word) in rest.iter().enumerate() {
            self.asm.load(Size::DW, R2, R1, 8 + 8 * (JUMPS + i) as i16);
            let src = self.key_word(word, R3)?;
            self.asm.alu(AluOp::Xor, R2, src);
            self.asm.alu(AluOp::Or, R4, R2);
        }
        self.asm.jump_if(Cond::Ne, R4, 0, other);
        Ok(())
    }

    /// `r1` = slot number of a key. Clobbers r2 and r3.
    fn hash(&mut self, words: &[KeyWord], slots: u32) -> Res {
        let bits = slots.ilog2();
        if bits == 0 {
            self.asm.mov(R1, 0);
            return Ok(());
        }
        self.product(words)?;
        self.asm.alu(AluOp::Rsh, R1, 64 - bits as i32);
        if self.plan.outlining.is_large() && words.iter().any(|w| !matches!(w, KeyWord::Text(..))) {
            // Hides the value from the verifier, which would otherwise follow one path for each way
            // to compute the key's numbers.
            self.forget_bounds(R1);
            self.asm.alu(AluOp::And, R1, slots as i32 - 1);
        }
        Ok(())
    }

    /// `r1` = the words of a key mixed into one, whose high bits select the slot. Clobbers r2 and
    /// r3.
    fn product(&mut self, words: &[KeyWord]) -> Res {
        self.asm.ld_imm64(R3, GOLDEN);
        for (i, word) in words.iter().enumerate() {
            if i == 0 {
                match self.key_word(word, R1)? {
                    Src::Reg(R1) => {}
                    src => self.asm.mov(R1, src),
                }
                continue;
            }
            self.asm.alu(AluOp::Mul, R1, R3);
            self.asm.mov(R2, R1);
            self.asm.alu(AluOp::Rsh, R2, 29);
            self.asm.alu(AluOp::Xor, R1, R2);
            let src = self.key_word(word, R2)?;
            self.asm.alu(AluOp::Xor, R1, src);
        }
        self.asm.alu(AluOp::Mul, R1, R3);
        Ok(())
    }

    /// `r1` = the map of this generation. Clobbers r0.
    fn generation_map(&mut self, maps: &[String]) {
        let end = self.asm.label();
        if let [first, second] = maps {
            let other = self.asm.label();
            self.asm.load(Size::DW, R0, R10, GEN);
            self.asm.jump_if(Cond::Ne, R0, 0, other);
            self.asm.ld_map(R1, &**first);
            self.asm.jump(end);
            self.asm.bind(other);
            self.asm.ld_map(R1, &**second);
        } else if let [only] = maps {
            self.asm.ld_map(R1, &**only);
        }
        self.asm.bind(end);
    }

    /// `r3` = address of `size` zero bytes, a value's initial content.
    fn zero_value(&mut self, size: u32) -> Res {
        if size <= crate::lower::pool::RUN {
            let zeros = self.pool.byte_run(0);
            self.asm.ld_data(R3, Section::Rodata, zeros);
            return Ok(());
        }
        let zeros = self.pool.constant(&vec![0; size as usize]);
        self.asm.ld_data(R3, Section::Rodata, zeros);
        Ok(())
    }

    /// Handles a miss. The key takes a free slot until the next drain, and is also inserted into
    /// the map with a delta of zero, so that the map's size is the array's size. If the slot is
    /// occupied, the update goes to the map.
    pub(in crate::lower) fn emit_miss(&mut self, miss: CacheMiss) -> Res {
        let array = self.per_cpu_array(miss.g)?;
        let PerCpuArray {
            key_size,
            colocated,
            spilt,
            ..
        } = array;
        if let Some(large) = array.large {
            return self.large_miss(&miss, &array, large);
        }
        if self.outlined(Op::Miss) {
            // The global subprogram repeats the whole addition.
            self.asm.bind(miss.entry);
            self.current = Some(miss.g);
            self.store_key(&miss.words)?;
            self.per_cpu_or(miss.full, miss.g, miss.val, array.double())?;
            self.asm.jump(miss.skip);
            return Ok(());
        }
        let ways = (miss.element, miss.skip);
        if colocated.of.is_some() {
            self.asm.bind(miss.entry);
            self.store_key(&miss.words)?;
            self.colocated_in_map(&array, miss.skip);
            self.asm.jump(miss.element);
            return Ok(());
        }
        let taken = self.asm.label();
        self.asm.bind(miss.entry);
        self.asm.store(Size::DW, R10, TMP[0], R1);
        self.store_key(&miss.words)?;
        self.asm.load(Size::DW, R1, R10, TMP[0]);
        self.asm.load(Size::DW, R2, R1, 0);
        self.asm.jump_if(Cond::Ne, R2, 0, taken);
        self.insert_zero(&array)?;
        // The kernel can be out of preallocated memory: an interrupt refills it, and has to wait
        // while interrupts are off. The slot alone then holds the key, and nothing is lost.
        if let Some(full) = miss.full {
            self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        }
        self.install(key_size, colocated.size)?;
        self.asm.load(Size::DW, R1, R10, TMP[0]);
        self.asm.jump(miss.hit);

        self.asm.bind(taken);
        if let Some(word) = self.plan.colocations.word(miss.g) {
            self.store(word, NO_SLOT);
        }
        if let Some(word) = spilt {
            self.block_addr(R1, word);
            if array.double() {
                self.asm.load(Size::DW, R2, R10, GEN);
                self.asm.alu(AluOp::Lsh, R2, 3);
                self.asm.add(R1, R2);
            }
            self.asm.store(Size::DW, R1, 0, 1);
        }
        self.element_in_map(&array, miss.full, ways)
    }

    /// Goes to `element` with r1 = element of the key in the key buffer, inserted if absent.
    /// Without memory, counts the loss and goes to `skip`.
    pub(in crate::lower) fn element_in_map(
        &mut self,
        array: &PerCpuArray,
        full: Option<Label>,
        (element, skip): (Label, Label),
    ) -> Res {
        let [refused, no_memory, again] = [(); 3].map(|()| self.asm.label());
        self.lookup(array);
        self.asm.mov(R1, R0);
        self.asm.jump_if(Cond::Ne, R1, 0, element);
        self.insert_zero(array)?;
        self.asm.jump_if(Cond::Eq, R0, 0, again);
        self.asm.jump_if32(Cond::Ne, R0, EEXIST, refused);
        self.asm.bind(again);
        self.lookup(array);
        self.asm.mov(R1, R0);
        self.asm.jump_if(Cond::Ne, R1, 0, element);
        // In an array that wraps, another processor has evicted the element.
        self.asm.jump(if array.wraps { skip } else { no_memory });

        self.asm.bind(refused);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        }
        self.asm.bind(no_memory);
        self.count(percpu::NO_MEMORY);
        self.asm.jump(skip);
        Ok(())
    }

    /// `r0` = this processor's element of the key in the key buffer, or 0.
    pub(in crate::lower) fn lookup(&mut self, array: &PerCpuArray) {
        self.generation_map(&array.maps);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
        let size = array.colocated.size;
        if lanes(self.plan.cpus, size, array.wraps).is_none() {
            return;
        }
        let [known, end] = [(); 2].map(|()| self.asm.label());
        self.asm.jump_if(Cond::Eq, R0, 0, end);
        self.asm.store(Size::DW, R10, TMP[1], R0);
        self.asm.call(Helper::GetSmpProcessorId);
        // Always false; bounds the index for the verifier.
        self.asm.jump_if(Cond::Lt, R0, self.plan.cpus as i32, known);
        self.asm.mov(R0, 0);
        self.asm.jump(end);
        self.asm.bind(known);
        self.asm.alu(AluOp::Mul, R0, size as i32);
        self.asm.load(Size::DW, R1, R10, TMP[1]);
        self.asm.add(R1, R0);
        self.asm.mov(R0, R1);
        if array.wraps {
            self.asm.add(R0, SEQUENCE as i32);
        }
        self.asm.bind(end);
    }

    /// Inserts the key in the key buffer with a zero value; r0 is the helper's result.
    fn insert_zero(&mut self, array: &PerCpuArray) -> Res {
        if !array.wraps {
            return self.try_insert(array);
        }
        let end = self.asm.label();
        self.insert_evicting(&array.maps, array.max, |sub| sub.try_insert(array))?;
        self.asm.jump_if(Cond::Ne, R0, 0, end);
        self.generation_map(&array.maps);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
        self.asm.jump_if(Cond::Eq, R0, 0, end);
        self.next_sequence(R2);
        self.asm.store(Size::DW, R0, 0, R2);
        self.asm.mov(R0, 0);
        self.asm.bind(end);
        Ok(())
    }

    fn try_insert(&mut self, array: &PerCpuArray) -> Res {
        let size = array.colocated.size;
        self.generation_map(&array.maps);
        self.block_addr(R2, self.plan.scratch.key);
        self.zero_value(lanes(self.plan.cpus, size, array.wraps).unwrap_or(size))?;
        self.asm.mov(R4, NOEXIST);
        self.asm.call(Helper::MapUpdateElem);
        Ok(())
    }

    /// Assigns the slot at `TMP[0]` to the key, with a zero element.
    pub(in crate::lower) fn install(&mut self, key_size: u32, size: u32) -> Res {
        self.asm.load(Size::DW, R4, R10, TMP[0]);
        for i in (0..key_size).step_by(8) {
            self.load(R1, self.plan.scratch.key + i);
            self.asm.store(Size::DW, R4, 8 + i as i16, R1);
        }
        self.asm.store(Size::DW, R4, 0, 1);
        if size <= 128 {
            for i in (0..size).step_by(8) {
                self.asm.store(Size::DW, R4, (8 + key_size + i) as i16, 0);
            }
            return Ok(());
        }
        self.asm.mov(R1, R4);
        self.asm.add(R1, 8 + key_size as i32);
        self.asm.mov(R2, size as i32);
        self.zero_value(size)?;
        self.asm.call(Helper::ProbeReadKernel);
        Ok(())
    }

    /// Adds a value to the element at r1. Clobbers r0 to r5.
    pub(in crate::lower) fn update(&mut self, layout: &ValueLayout, val: Val) -> Res {
        match layout {
            ValueLayout::Scalar(_) => {
                let v = self.use_int(val, R3)?;
                self.asm.load(Size::DW, R2, R1, 0);
                self.asm.alu(AluOp::Add, R2, v);
                self.asm.store(Size::DW, R1, 0, R2);
                Ok(())
            }
            ValueLayout::Stats(agg) => self.update_stats(agg, val),
        }
    }

    fn update_stats(&mut self, agg: &AggLayout, val: Val) -> Res {
        let v = self.use_int(val, R3)?;
        let at = |o: u32| o as i16;
        self.asm.load(Size::DW, R2, R1, at(agg.count));
        if agg.min.is_some() || agg.max.is_some() {
            let (first, end) = (self.asm.label(), self.asm.label());
            let v = match v {
                Src::Reg(r) => r,
                Src::Imm(n) => {
                    self.asm.mov(R3, n);
                    R3
                }
            };
            self.asm.jump_if(Cond::Eq, R2, 0, first);
            for (off, keep) in [(agg.min, Cond::Sle), (agg.max, Cond::Sge)] {
                let Some(off) = off else { continue };
                let next = self.asm.label();
                self.asm.load(Size::DW, R4, R1, at(off));
                self.asm.jump_if(keep, R4, v, next);
                self.asm.store(Size::DW, R1, at(off), v);
                self.asm.bind(next);
            }
            self.asm.jump(end);
            self.asm.bind(first);
            for off in [agg.min, agg.max].into_iter().flatten() {
                self.asm.store(Size::DW, R1, at(off), v);
            }
            self.asm.bind(end);
        }
        self.asm.add(R2, 1);
        self.asm.store(Size::DW, R1, at(agg.count), R2);
        if let Some(sum) = agg.sum {
            self.asm.load(Size::DW, R2, R1, at(sum));
            self.asm.alu(AluOp::Add, R2, v);
            self.asm.store(Size::DW, R1, at(sum), R2);
        }
        if agg.sumsq.is_none() && agg.hist.is_none() {
            return Ok(());
        }
        self.asm.store(Size::DW, R10, TMP[1], R1);
        if let Some(off) = agg.sumsq {
            self.pool.library("add_square")?;
            self.asm.add(R1, off as i32);
            self.use_in(val, R2)?;
            self.asm.call_sub("add_square");
        }
        if let Some((off, buckets)) = agg.hist {
            self.bucket(val, buckets, self.hist_of(agg)?)?;
            self.asm.load(Size::DW, R1, R10, TMP[1]);
            self.asm.alu(AluOp::Lsh, R2, 3);
            self.asm.add(R1, R2);
            self.asm.load(Size::DW, R2, R1, at(off));
            self.asm.add(R2, 1);
            self.asm.store(Size::DW, R1, at(off), R2);
        }
        Ok(())
    }

    /// The histogram of the current global, found by its layout: the number of buckets is
    /// ambiguous.
    fn hist_of(&self, agg: &AggLayout) -> Res<Hist> {
        let spec = self
            .current
            .and_then(|g| match &self.program.globals.get(g.index())?.kind {
                GlobalKind::Stats(spec) => spec.hist,
                GlobalKind::Array {
                    value: ElemTy::Stats(spec),
                    ..
                } => spec.hist,
                _ => None,
            });
        match spec {
            Some(hist) if agg.hist.is_some_and(|(_, n)| n == hist.buckets()) => Ok(hist),
            _ => Err("a histogram without its parameters".into()),
        }
    }

    /// `r2` = index of a value's bucket.
    fn bucket(&mut self, val: Val, buckets: u32, hist: Hist) -> Res {
        match hist {
            Hist::Log => {
                self.pool.library("log_bucket")?;
                self.use_in(val, R1)?;
                self.asm.call_sub("log_bucket");
                self.asm.mov(R2, R0);
                // Always true; bounds the index for the verifier.
                self.asm.alu(AluOp::And, R2, 127);
            }
            Hist::Linear { low, step, .. } => {
                let (inside, end) = (self.asm.label(), self.asm.label());
                self.use_in(val, R1)?;
                self.asm.imm(R3, low);
                self.asm.mov(R2, 0);
                self.asm.jump_if(Cond::Slt, R1, R3, end);
                self.asm.alu(AluOp::Sub, R1, R3);
                self.asm.imm(R3, step.max(1));
                self.asm.alu(AluOp::Div, R1, R3);
                self.asm.mov(R2, buckets as i32 - 1);
                self.asm.jump_if(Cond::Ge, R1, buckets as i32 - 2, end);
                self.asm.bind(inside);
                self.asm.mov(R2, R1);
                self.asm.add(R2, 1);
                self.asm.bind(end);
            }
        }
        Ok(())
    }
}
