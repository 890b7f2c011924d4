//! Statistics, and arrays kept as per-CPU deltas.
//!
//! The straight path of `a[keys] <<< v` and `a[keys] += v` on a per-CPU array has no helper
//! call: hash the key's words, look into the slot of the direct-mapped cache, compare the key
//! word by word, update in place. A miss goes out of line: see [`HandlerCodegen::emit_miss`].

use spile_cast::Cast;
use spile_ebpf::isa::asm::{CallArg, Label};
use spile_ebpf::isa::helpers::errno::{E2BIG, EEXIST};
use spile_ebpf::isa::helpers::{Helper, NOEXIST};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ir::{ElemTy, GlobalId, GlobalKind, Hist, Ty, Val};
use spile_layout::plan::lanes;
use spile_layout::{AggLayout, GOLDEN, GlobalLocation, PerCpuArray, SEQUENCE, ValueLayout, percpu};

use crate::error::{LowerError, Res};
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::KeyWord;
use crate::lower::operand::StrOperand;
use crate::lower::out_of_line::{CacheMiss, OutOfLine, WrapTest};
use crate::lower::slots::{BLOCK, GEN, UNROLL, block_at};

/// Value of the word for the last updated slot when the element is in the map instead.
const NO_SLOT: i32 = -1;
/// Constants below this never make a sum pass 64 bits: one processor would need 2^48 additions.
const SMALL: u32 = 1 << 15;
/// Up to this number of key words, each comparison gets its own jump.
const JUMPS: usize = 8;

impl HandlerCodegen<'_> {
    /// The location of an array that is stored as per-CPU deltas.
    pub(crate) fn per_cpu_array(&self, g: GlobalId) -> Res<PerCpuArray> {
        match self.ctx.location(g)? {
            GlobalLocation::PerCpuArray(array) => Ok(array),
            _ => Err("not a per-CPU array".into()),
        }
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
                        let off = self.plan.scratch.key + 8 * words.len().fit::<u32>();
                        self.copy_text(off, width, &text)?;
                        text = StrOperand::Slot { off, width };
                    }
                    words.extend((0..width / 8).map(|i| KeyWord::Text(text.clone(), i)));
                }
            }
        }
        Ok(words)
    }

    fn key_word(&mut self, word: &KeyWord) -> Res<Src> {
        match word {
            KeyWord::Long(v) => self.number(*v),
            KeyWord::Text(text, i) => Ok(self.text_word(text, *i)),
        }
    }

    /// Writes a key to the key buffer.
    pub(crate) fn build_key(&mut self, types: &[Ty], keys: &[Val]) -> Res {
        let words = self.key_words(types, keys)?;
        self.store_key(&words)
    }

    pub(crate) fn store_key(&mut self, words: &[KeyWord]) -> Res {
        let key = self.plan.scratch.key;
        let mut copied = 0;
        for (i, word) in words.iter().enumerate() {
            if i < copied {
                continue;
            }
            let to = key + 8 * i.fit::<u32>();
            if let KeyWord::Text(text, 0) = word {
                let same = |(j, w): (usize, &KeyWord)| matches!(w, KeyWord::Text(_, k) if *k as usize == j);
                let wide = words[i..]
                    .iter()
                    .enumerate()
                    .take_while(|(j, w)| same((*j, w)));
                let wide = wide.count();
                if wide > UNROLL as usize {
                    self.copy_text(to, 8 * wide.fit::<u32>(), text)?;
                    copied = i + wide;
                    continue;
                }
            }
            if matches!(word, KeyWord::Text(StrOperand::Slot { off, .. }, j) if off + 8 * j == to) {
                continue;
            }
            let src = self.key_word(word)?;
            self.store(to, src);
        }
        Ok(())
    }

    pub(crate) fn stat_add(&mut self, g: GlobalId, keys: &[Val], val: Val) -> Res {
        match self.ctx.location(g)? {
            GlobalLocation::Stats { offset, agg } => {
                let address = self.shared_address(offset);
                self.update(address, &ValueLayout::Stats(agg), val)
            }
            GlobalLocation::PerCpuScalar { .. } => self.per_cpu_scalar_add(g, val),
            GlobalLocation::PerCpuArray(_) => self.per_cpu_array_add(g, keys, val),
            GlobalLocation::Hash {
                keys: types, value, ..
            } => {
                self.build_key(&types, keys)?;
                self.with_element("add", g, val, |c, val, (full, skip)| {
                    let address = c.hash_element(g, full, skip)?;
                    c.update(address, &value, val)
                })
            }
            GlobalLocation::Scalar { .. } => Err("a statistic is stored as a scalar".into()),
        }
    }

    /// Adds to this generation of a scalar.
    pub(crate) fn per_cpu_scalar_add(&mut self, g: GlobalId, val: Val) -> Res {
        let GlobalLocation::PerCpuScalar {
            offset,
            gen_stride,
            value,
        } = self.ctx.location(g)?
        else {
            return Err("not a per-CPU scalar".into());
        };
        if let (0, ValueLayout::Scalar(_)) = (gen_stride, &value) {
            let v = self.number(val)?;
            let (base, disp) = self.block_operand(offset, 8);
            self.add_to_word(base, disp, v);
            return Ok(());
        }
        let address = self.block_address(offset);
        self.of_generation(address, gen_stride);
        self.update(address, &value, val)
    }

    pub(crate) fn per_cpu_array_add(&mut self, g: GlobalId, keys: &[Val], val: Val) -> Res {
        let array = self.per_cpu_array(g)?;
        if array.key_size > 30_000 {
            return Err(LowerError::too_large("a key of more than 30,000 bytes"));
        }
        let words = self.key_words(&array.keys, keys)?;
        if array.colocated.host.is_some() {
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
    pub(crate) fn array_add_here(&mut self, g: GlobalId, val: Val, full: Option<Label>) -> Res {
        let array = self.per_cpu_array(g)?;
        if array.colocated.host.is_some() {
            return self.colocated_add_in_map(g, val);
        }
        let text = StrOperand::Slot {
            off: self.plan.scratch.key,
            width: array.key_size,
        };
        let words = (0..array.key_size / 8).map(|i| KeyWord::Text(text.clone(), i));
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
        if array.slots == 0 {
            let skip = self.asm.label();
            self.store_key(&words)?;
            let address = match self.outlined() {
                true => self.element_outlined(&array, full, skip)?,
                false => self.element_in_map(&array, full, skip)?,
            };
            self.update(address, &array.value, val)?;
            self.asm.bind(skip);
            return Ok(());
        }
        let address = self.hash(&words, array.slots)?;
        if let Some(word) = self.plan.colocations.word(g) {
            self.store(word, address);
        }
        self.slot_at(address, array.slot_size, array.gen_stride);
        self.asm.add(address, array.cache);
        let [entry, hit, element, skip] = self.asm.labels();
        let taken = self.asm.word(address, 0);
        self.asm.jump_if(Cond::Eq, taken, 0, entry);
        self.compare_key(address, &words, entry)?;
        self.out_of_line.push(OutOfLine::Miss(CacheMiss {
            sequence: self.asm.sequence(),
            address,
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
        self.asm.add(address, 8 + array.key_size);
        self.asm.bind(element);
        self.update(address, &array.value, val)?;
        self.asm.bind(skip);
        Ok(())
    }

    /// `slot` = the address of the slot of that number, relative to the cache's offset.
    pub(crate) fn slot_at(&mut self, slot: Reg, slot_size: u32, gen_stride: u32) {
        self.asm.alu(AluOp::Mul, slot, slot_size);
        self.of_generation(slot, gen_stride);
        self.asm.add(slot, BLOCK);
    }

    /// `address` += offset of this generation.
    fn of_generation(&mut self, address: Reg, gen_stride: u32) {
        if gen_stride > 0 {
            let generation = self.asm.word(R10, GEN);
            self.asm.alu(AluOp::Mul, generation, gen_stride);
            self.asm.add(address, generation);
        }
    }

    /// Compares the key in a slot, and goes to `other` if it differs. Long keys are compared with
    /// one jump: the verifier limits the number of jumps.
    fn compare_key(&mut self, slot: Reg, words: &[KeyWord], other: Label) -> Res {
        let (first, rest) = words.split_at(words.len().min(JUMPS));
        for (i, word) in first.iter().enumerate() {
            let stored = self.asm.word(slot, 8 + 8 * i.fit::<i16>());
            let src = self.key_word(word)?;
            self.asm.jump_if(Cond::Ne, stored, src, other);
        }
        if rest.is_empty() {
            return Ok(());
        }
        let different = self.asm.copy(0);
        for (i, word) in rest.iter().enumerate() {
            let stored = self.asm.word(slot, 8 + 8 * (JUMPS + i).fit::<i16>());
            let src = self.key_word(word)?;
            self.asm.alu(AluOp::Xor, stored, src);
            self.asm.alu(AluOp::Or, different, stored);
        }
        self.asm.jump_if(Cond::Ne, different, 0, other);
        Ok(())
    }

    /// The slot number of a key.
    fn hash(&mut self, words: &[KeyWord], slots: u32) -> Res<Reg> {
        let bits = slots.ilog2();
        if bits == 0 {
            return Ok(self.asm.copy(0));
        }
        let slot = self.product(words)?;
        self.asm.alu(AluOp::Rsh, slot, 64 - bits);
        if self.plan.outlining.is_large() && words.iter().any(|w| !matches!(w, KeyWord::Text(..))) {
            // Hides the value from the verifier, which would otherwise follow one path for each way
            // to compute the key's numbers.
            self.forget_bounds(slot);
            self.asm.alu(AluOp::And, slot, slots - 1);
        }
        Ok(slot)
    }

    /// The words of a key mixed into one, whose high bits select the slot.
    fn product(&mut self, words: &[KeyWord]) -> Res<Reg> {
        let (golden, product) = (self.asm.new_reg(), self.asm.new_reg());
        self.asm.ld_imm64(golden, GOLDEN);
        for (i, word) in words.iter().enumerate() {
            if i == 0 {
                let word = self.key_word(word)?;
                self.asm.mov(product, word);
                continue;
            }
            self.asm.alu(AluOp::Mul, product, golden);
            let high = self.asm.alu_of(AluOp::Rsh, product, 29);
            self.asm.alu(AluOp::Xor, product, high);
            let src = self.key_word(word)?;
            self.asm.alu(AluOp::Xor, product, src);
        }
        self.asm.alu(AluOp::Mul, product, golden);
        Ok(product)
    }

    /// The map of this generation.
    fn generation_map(&mut self, maps: &[String]) -> CallArg {
        match maps {
            [first, second] => {
                let [other, end] = self.asm.labels();
                let (map, generation) = (self.asm.new_reg(), self.asm.word(R10, GEN));
                self.asm.jump_if(Cond::Ne, generation, 0, other);
                self.asm.ld_map(map, &**first);
                self.asm.jump(end);
                self.asm.bind(other);
                self.asm.ld_map(map, &**second);
                self.asm.bind(end);
                map.into()
            }
            maps => CallArg::Map(maps.first().map_or("", |m| m).into()),
        }
    }

    /// Handles a miss. The key takes a free slot until the next drain, and is also inserted into
    /// the map with a delta of zero, so that the map's size is the array's size. If the slot is
    /// occupied, the update goes to the map.
    pub(crate) fn emit_miss(&mut self, miss: CacheMiss) -> Res {
        let array = self.per_cpu_array(miss.g)?;
        self.asm.resume_sequence(miss.sequence);
        if let Some(large) = array.large {
            return self.large_miss(&miss, &array, large);
        }
        if self.outlined() {
            // The global subprogram repeats the whole addition.
            self.asm.bind(miss.entry);
            self.current = Some(miss.g);
            self.store_key(&miss.words)?;
            self.per_cpu_or(miss.full, miss.g, miss.val, array.double())?;
            self.asm.jump(miss.skip);
            return Ok(());
        }
        if array.colocated.host.is_some() {
            self.asm.bind(miss.entry);
            self.store_key(&miss.words)?;
            let address = self.colocated_in_map(&array, miss.skip);
            self.asm.mov(miss.address, address);
            self.asm.jump(miss.element);
            return Ok(());
        }
        let taken = self.asm.label();
        self.asm.bind(miss.entry);
        let slot = self.asm.copy(miss.address);
        self.store_key(&miss.words)?;
        let other = self.asm.word(slot, 0);
        self.asm.jump_if(Cond::Ne, other, 0, taken);
        let result = self.insert_zero(&array)?;
        // The kernel can be out of preallocated memory: an interrupt refills it, and has to wait
        // while interrupts are off. The slot alone then holds the key, and nothing is lost.
        if let Some(full) = miss.full {
            self.asm.jump_if32(Cond::Eq, result, E2BIG, full);
        }
        self.install(slot, array.key_size, array.colocated.size);
        self.asm.mov(miss.address, slot);
        self.asm.jump(miss.hit);

        self.asm.bind(taken);
        if let Some(word) = self.plan.colocations.word(miss.g) {
            self.store(word, NO_SLOT);
        }
        if let Some(word) = array.spilt {
            let counter = self.block_address(word);
            if array.double() {
                let generation = self.asm.word(R10, GEN);
                self.asm.alu(AluOp::Lsh, generation, 3);
                self.asm.add(counter, generation);
            }
            self.asm.store(Size::DW, counter, 0, 1);
        }
        let address = self.element_in_map(&array, miss.full, miss.skip)?;
        self.asm.mov(miss.address, address);
        self.asm.jump(miss.element);
        Ok(())
    }

    /// The address of the element of the key in the key buffer, inserted if absent. Without memory,
    /// counts the loss and goes to `skip`.
    pub(crate) fn element_in_map(
        &mut self,
        array: &PerCpuArray,
        full: Option<Label>,
        skip: Label,
    ) -> Res<Reg> {
        let [present, refused, no_memory, again] = self.asm.labels();
        let address = self.lookup(array);
        self.asm.jump_if(Cond::Ne, address, 0, present);
        let result = self.insert_zero(array)?;
        self.asm.jump_if(Cond::Eq, result, 0, again);
        self.asm.jump_if32(Cond::Ne, result, EEXIST, refused);
        self.asm.bind(again);
        let inserted = self.lookup(array);
        self.asm.mov(address, inserted);
        self.asm.jump_if(Cond::Ne, address, 0, present);
        // In an array that wraps, another processor has evicted the element.
        self.asm.jump(if array.wraps { skip } else { no_memory });

        self.asm.bind(refused);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, result, E2BIG, full);
        }
        self.asm.bind(no_memory);
        self.count(percpu::NO_MEMORY);
        self.asm.jump(skip);
        self.asm.bind(present);
        Ok(address)
    }

    /// The address of this processor's element of the key in the key buffer, or 0.
    pub(crate) fn lookup(&mut self, array: &PerCpuArray) -> Reg {
        let address = self.lookup_row(array);
        let size = array.colocated.size;
        if lanes(self.plan.layout.cpus, size, array.wraps).is_none() {
            return address;
        }
        let [known, end] = self.asm.labels();
        self.asm.jump_if(Cond::Eq, address, 0, end);
        let row = self.asm.copy(address);
        let cpu = self.asm.call_with(Helper::GetSmpProcessorId, &[]);
        // Always true; bounds the index for the verifier.
        self.asm
            .jump_if(Cond::Lt, cpu, self.plan.layout.cpus, known);
        self.asm.mov(address, 0);
        self.asm.jump(end);
        self.asm.bind(known);
        self.asm.alu(AluOp::Mul, cpu, size);
        self.asm.mov(address, row);
        self.asm.add(address, cpu);
        if array.wraps {
            self.asm.add(address, SEQUENCE);
        }
        self.asm.bind(end);
        address
    }

    /// The address of the map's value for the key in the key buffer, or 0.
    fn lookup_row(&mut self, array: &PerCpuArray) -> Reg {
        let args = [
            self.generation_map(&array.maps),
            block_at(self.plan.scratch.key),
        ];
        self.asm.call_with(Helper::MapLookupElem, &args)
    }

    /// Inserts the key in the key buffer with a zero value. Returns the helper's result.
    fn insert_zero(&mut self, array: &PerCpuArray) -> Res<Reg> {
        if !array.wraps {
            return Ok(self.try_insert(array));
        }
        let end = self.asm.label();
        let evicting = |sub: &mut HandlerCodegen<'_>| sub.try_insert(array);
        let result = self.insert_evicting(&array.maps, array.max, None, evicting)?;
        self.asm.jump_if(Cond::Ne, result, 0, end);
        let row = self.lookup_row(array);
        self.asm.mov(result, row);
        self.asm.jump_if(Cond::Eq, row, 0, end);
        let number = self.next_sequence();
        self.asm.store(Size::DW, row, 0, number);
        self.asm.mov(result, 0);
        self.asm.bind(end);
        Ok(result)
    }

    fn try_insert(&mut self, array: &PerCpuArray) -> Reg {
        let size = array.colocated.size;
        let size = lanes(self.plan.layout.cpus, size, array.wraps).unwrap_or(size);
        let args = [
            self.generation_map(&array.maps),
            block_at(self.plan.scratch.key),
            CallArg::Constant(self.pool.zeros(size)),
            NOEXIST.into(),
        ];
        self.asm.call_with(Helper::MapUpdateElem, &args)
    }

    /// Assigns a slot to the key in the key buffer, with a zero element.
    fn install(&mut self, slot: Reg, key_size: u32, size: u32) {
        for i in (0..key_size).step_by(8) {
            let word = self.block_word(self.plan.scratch.key + i);
            self.asm.store(Size::DW, slot, 8 + i.fit::<i16>(), word);
        }
        self.asm.store(Size::DW, slot, 0, 1);
        if size <= 128 {
            for i in (0..size).step_by(8) {
                self.asm.store(Size::DW, slot, (8 + key_size + i).fit(), 0);
            }
            return;
        }
        let element = self
            .asm
            .alu_of(AluOp::Add, slot, 8 + key_size.cast_signed());
        self.zero_memory(element.into(), size);
    }

    /// Adds a value to the element at an address.
    pub(crate) fn update(&mut self, address: Reg, layout: &ValueLayout, val: Val) -> Res {
        match layout {
            ValueLayout::Scalar(_) => {
                let v = self.number(val)?;
                self.add_to_word(address, 0, v);
                Ok(())
            }
            ValueLayout::Stats(agg) => self.update_stats(address, agg, val),
        }
    }

    /// Adds to a word of memory.
    pub(crate) fn add_to_word(&mut self, base: Reg, off: i16, v: Src) {
        let sum = self.asm.word(base, off);
        self.asm.alu(AluOp::Add, sum, v);
        self.asm.store(Size::DW, base, off, sum);
    }

    /// Adds to the sum of a statistic. Sums that pass 64 bits are counted: a sum can do so only if it is
    /// negative before or after, which is one test here.
    fn add_to_sum(&mut self, base: Reg, off: i16, v: Src) {
        if matches!(v, Src::Imm(n) if n.unsigned_abs() < SMALL) {
            return self.add_to_word(base, off, v);
        }
        let [entry, end] = self.asm.labels();
        let sum = self.asm.word(base, off);
        let signs = self.asm.copy(sum);
        self.asm.alu(AluOp::Add, sum, v);
        self.asm.store(Size::DW, base, off, sum);
        self.asm.alu(AluOp::Or, signs, sum);
        self.asm.jump_if(Cond::Slt, signs, 0, entry);
        self.asm.bind(end);
        self.out_of_line.push(OutOfLine::Wrap(WrapTest {
            sequence: self.asm.sequence(),
            entry,
            end,
            sum,
            added: v,
        }));
    }

    /// Counts a sum that passed 64 bits: the sign before and that of what was added differ from its sign.
    pub(crate) fn emit_wrap_test(&mut self, test: &WrapTest) -> Res {
        let counter = self.plan.layout.wraps.ok_or("no counter of wrapped sums")?;
        self.asm.resume_sequence(test.sequence);
        self.asm.bind(test.entry);
        let before = self.asm.copy(test.sum);
        self.asm.alu(AluOp::Sub, before, test.added);
        self.asm.alu(AluOp::Xor, before, test.sum);
        let added = self.asm.copy(test.added);
        self.asm.alu(AluOp::Xor, added, test.sum);
        self.asm.alu(AluOp::And, before, added);
        self.asm.jump_if(Cond::Sge, before, 0, test.end);
        self.count(counter);
        self.asm.jump(test.end);
        Ok(())
    }

    fn update_stats(&mut self, address: Reg, agg: &AggLayout, val: Val) -> Res {
        let off = |o: u32| o.fit::<i16>();
        let mut v = self.number(val)?;
        let count = self.asm.word(address, off(agg.count));
        if agg.min.is_some() || agg.max.is_some() {
            let [first, end] = self.asm.labels();
            let number = match v {
                Src::Reg(reg) => reg,
                Src::Imm(n) => self.asm.copy(n),
            };
            v = number.into();
            self.asm.jump_if(Cond::Eq, count, 0, first);
            for (field, keep) in [(agg.min, Cond::Sle), (agg.max, Cond::Sge)] {
                let Some(field) = field else { continue };
                let next = self.asm.label();
                let extreme = self.asm.word(address, off(field));
                self.asm.jump_if(keep, extreme, number, next);
                self.asm.store(Size::DW, address, off(field), number);
                self.asm.bind(next);
            }
            self.asm.jump(end);
            self.asm.bind(first);
            for field in [agg.min, agg.max].into_iter().flatten() {
                self.asm.store(Size::DW, address, off(field), number);
            }
            self.asm.bind(end);
        }
        self.asm.add(count, 1);
        self.asm.store(Size::DW, address, off(agg.count), count);
        if let Some(sum) = agg.sum {
            self.add_to_sum(address, off(sum), v);
        }
        // What a call outlives goes to the stack here, not at each of its changes.
        let kept = self.asm.copy(address);
        if let Some(sumsq) = agg.sumsq {
            self.pool.library("add_square")?;
            let sumsq = self.asm.alu_of(AluOp::Add, address, sumsq);
            let v = self.number(val)?;
            self.asm
                .call_sub_with("add_square", &[sumsq.into(), v.into()]);
        }
        if let Some((field, buckets)) = agg.hist {
            let bucket = self.bucket(val, buckets, self.hist_of(agg)?)?;
            self.asm.alu(AluOp::Lsh, bucket, 3);
            self.asm.add(bucket, kept);
            self.add_to_word(bucket, off(field), 1.into());
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

    /// The index of a value's bucket.
    fn bucket(&mut self, val: Val, buckets: u32, hist: Hist) -> Res<Reg> {
        match hist {
            Hist::Log => {
                self.pool.library("log_bucket")?;
                let v = self.number(val)?;
                let bucket = self.asm.call_sub_with("log_bucket", &[v.into()]);
                // Always true; bounds the index for the verifier.
                self.asm.alu(AluOp::And, bucket, 127);
                Ok(bucket)
            }
            Hist::Linear { low, step, .. } => {
                let end = self.asm.label();
                let (v, limit, bucket) = (
                    self.number_copy(val)?,
                    self.asm.new_reg(),
                    self.asm.new_reg(),
                );
                self.asm.imm(limit, low);
                self.asm.mov(bucket, 0);
                self.asm.jump_if(Cond::Slt, v, limit, end);
                self.asm.alu(AluOp::Sub, v, limit);
                self.asm.imm(limit, step.max(1));
                self.asm.alu(AluOp::Div, v, limit);
                self.asm.mov(bucket, buckets - 1);
                self.asm.jump_if(Cond::Ge, v, buckets - 2, end);
                self.asm.mov(bucket, v);
                self.asm.add(bucket, 1);
                self.asm.bind(end);
                Ok(bucket)
            }
        }
    }
}
