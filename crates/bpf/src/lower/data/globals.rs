//! Scalars in the shared area, and arrays in hash maps.
//!
//! Elements change in place, through the pointer that the look-up returns. A new element is first
//! inserted with a zero value. Wrapping arrays, and arrays over which a `foreach` iterates, keep a sequence
//! number in front of each element. When a wrapping array is full, one iteration finds the smallest
//! number and another deletes the elements that are almost as old.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{CallArg, Label};
use spile_ebpf::isa::helpers::errno::{E2BIG, EEXIST};
use spile_ebpf::isa::helpers::{Helper, NOEXIST};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size, Src};
use spile_ir::{GlobalId, Reg as IrReg, Ty, Val};
use spile_layout::plan::EVICT;
use spile_layout::{GlobalLocation, ValueLayout, percpu, shared};
use spile_lir::library::eviction::{DROP_OLD, OLDEST};
use spile_lir::library::iterations::{KeyFields, Slice, slice};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::slots::{GEN, TMP, UNROLL, block_at};

/// Insertion attempts when other processors take the slot that eviction made.
const TRIES: i32 = 16;

impl HandlerCodegen<'_> {
    pub(crate) fn global_load(&mut self, dst: IrReg, g: GlobalId) -> Res {
        let GlobalLocation::Scalar { offset, ty } = self.ctx.location(g)? else {
            return Err("reading a global that only the controller can read".into());
        };
        match ty {
            Ty::Long => {
                let word = self.shared_address(offset);
                self.asm.load(Size::DW, word, word, 0);
                self.def_int(dst, word)
            }
            Ty::Str(width) => {
                let from = self.shared_address(offset);
                self.text_from(dst, from, width.into())
            }
        }
    }

    /// `dst` = the string of `bytes` bytes at an address.
    fn text_from(&mut self, dst: IrReg, from: Reg, bytes: u32) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.fill_from(off, width, (from, bytes));
        Ok(())
    }

    /// The slot of `width` bytes = the string of `available` bytes at an address.
    pub(crate) fn fill_from(&mut self, off: u32, width: u32, (from, available): (Reg, u32)) {
        let bytes = available.min(width);
        if bytes <= UNROLL * 8 {
            let (to, disp) = self.block_operand(off, bytes);
            for i in (0..bytes.fit::<i16>()).step_by(8) {
                let word = self.asm.word(from, i);
                self.asm.store(Size::DW, to, disp + i, word);
            }
        } else {
            self.copy_memory(block_at(off), bytes, from.into());
        }
        if available > width {
            self.truncate(off, width);
        }
        if width > bytes {
            self.fill_zero(off + bytes, width - bytes);
        }
    }

    pub(crate) fn global_store(&mut self, g: GlobalId, val: Val) -> Res {
        let GlobalLocation::Scalar { offset, ty } = self.ctx.location(g)? else {
            return Err("setting a global that only the controller can set".into());
        };
        match ty {
            Ty::Long => {
                let v = self.number(val)?;
                let address = self.shared_address(offset);
                self.asm.store(Size::DW, address, 0, v);
                Ok(())
            }
            Ty::Str(width) => {
                let text = self.truncated_to(val, width.into())?;
                let to = self.shared_address(offset);
                self.text_to(&text, to, width.into());
                Ok(())
            }
        }
    }

    /// A string of at most `width` bytes; a wider one is truncated in the value buffer.
    fn truncated_to(&mut self, val: Val, width: u32) -> Res<StrOperand> {
        let text = self.text(val)?;
        if text.width() <= width {
            return Ok(text);
        }
        let off = self.plan.scratch.value + 8;
        self.copy_text(off, width, &text)?;
        Ok(StrOperand::Slot { off, width })
    }

    /// Copies a string to `width` bytes at an address.
    fn text_to(&mut self, text: &StrOperand, to: Reg, width: u32) {
        if width <= UNROLL * 8 {
            for i in 0..width / 8 {
                let src = self.text_word(text, i);
                self.asm.store(Size::DW, to, 8 * i.fit::<i16>(), src);
            }
            return;
        }
        let bytes = text.width().min(width);
        if bytes < width {
            let rest = self.asm.alu_of(AluOp::Add, to, bytes);
            self.zero_memory(rest.into(), width - bytes);
        }
        let from = self.text_arg(text);
        self.copy_memory(to.into(), bytes, from);
    }

    pub(crate) fn global_add(&mut self, g: GlobalId, val: Val, old: Option<IrReg>) -> Res {
        match (self.ctx.location(g)?, old) {
            (GlobalLocation::PerCpuScalar { .. }, None) => self.per_cpu_scalar_add(g, val),
            (
                GlobalLocation::Scalar {
                    offset,
                    ty: Ty::Long,
                },
                old,
            ) => {
                let address = self.shared_address(offset);
                self.atomic_add(address, val, old)
            }
            _ => Err("adding to a global that cannot be added to here".into()),
        }
    }

    /// Adds to a word atomically.
    fn atomic_add(&mut self, address: Reg, val: Val, old: Option<IrReg>) -> Res {
        let Some(old) = old else {
            let val = self.number_in_reg(val)?;
            self.asm.atomic(AtomicOp::Add, address, 0, val);
            return Ok(());
        };
        let val = self.number_copy(val)?;
        self.asm.atomic(AtomicOp::FetchAdd, address, 0, val);
        self.def_int(old, val)
    }

    pub(crate) fn global_clear(&mut self, g: GlobalId) -> Res {
        let zero = |gen_: &mut Self, offset: u32, bytes: u32| {
            let to = gen_.shared_address(offset);
            let empty = StrOperand::literal("");
            gen_.text_to(&empty, to, bytes);
        };
        match self.ctx.location(g)? {
            GlobalLocation::Scalar { offset, ty } => {
                zero(self, offset, ty.size());
                Ok(())
            }
            GlobalLocation::Stats { offset, agg } => {
                zero(self, offset, agg.size);
                Ok(())
            }
            GlobalLocation::Hash { keys, .. } => {
                let every = vec![None; keys.len()];
                self.array_delete(g, &every)
            }
            _ => Err("emptying a global that only the controller can empty".into()),
        }
    }

    /// The address of the value (with its sequence number) of the key in the key buffer, or 0.
    pub(crate) fn look_up(&mut self, map: &str) -> Res<Reg> {
        if self.outlined() {
            return self.look_up_outlined(map);
        }
        Ok(self.map_call(Helper::MapLookupElem, map))
    }

    /// Calls a helper that takes a map and the key in the key buffer.
    pub(crate) fn map_call(&mut self, helper: Helper, map: &str) -> Reg {
        let key = block_at(self.plan.scratch.key);
        self.asm.call_with(helper, &[CallArg::Map(map.into()), key])
    }

    pub(crate) fn array_get(&mut self, dst: IrReg, g: GlobalId, keys: &[Val]) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_get(dst, &field, keys);
        }
        let GlobalLocation::Hash {
            map,
            keys: types,
            seq,
            value: ValueLayout::Scalar(ty),
            ..
        } = self.ctx.location(g)?
        else {
            return Err("reading an array that only the controller can read".into());
        };
        let skip = if seq { 8 } else { 0 };
        let [none, end] = self.asm.labels();
        self.build_key(&types, keys)?;
        if ty == Ty::Long {
            let value = self.read_element("get", g, |c| {
                let none = c.asm.label();
                let value = c.look_up(&map)?;
                c.asm.jump_if(Cond::Eq, value, 0, none);
                c.asm.load(Size::DW, value, value, skip);
                c.asm.bind(none);
                Ok(value)
            })?;
            return self.def_int(dst, value);
        }
        if self.outlined()
            && let Some((off, width)) = self.slot(dst)?
            && ty.size() == width
            && self.get_text_global(g, &map, skip, (off, width))?
        {
            return Ok(());
        }
        let value = self.look_up(&map)?;
        self.asm.jump_if(Cond::Eq, value, 0, none);
        self.asm.add(value, i32::from(skip));
        self.text_from(dst, value, ty.size())?;
        self.asm.jump(end);
        self.asm.bind(none);
        if let Some((off, width)) = self.slot(dst)? {
            self.fill_zero(off, width);
        }
        self.asm.bind(end);
        Ok(())
    }

    pub(crate) fn array_set(&mut self, g: GlobalId, keys: &[Val], val: Val) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_set(&field, keys, val);
        }
        let GlobalLocation::Hash {
            keys: types,
            value: ValueLayout::Scalar(ty),
            ..
        } = self.ctx.location(g)?
        else {
            return Err("setting an array that only the controller can set".into());
        };
        self.build_key(&types, keys)?;
        match ty {
            Ty::Long => self.with_element("set", g, val, |c, val, (full, skip)| {
                let address = c.hash_element(g, full, skip)?;
                let v = c.number(val)?;
                c.asm.store(Size::DW, address, 0, v);
                Ok(())
            }),
            Ty::Str(width) if self.outlined() && u32::from(width) <= self.plan.max_string => {
                self.set_text_global(g, val, width.into())
            }
            Ty::Str(width) => {
                let skip = self.asm.label();
                let full = self.full_label(g);
                let address = self.hash_element(g, full, skip)?;
                let text = self.truncated_to(val, width.into())?;
                self.text_to(&text, address, width.into());
                self.asm.bind(skip);
                Ok(())
            }
        }
    }

    pub(crate) fn array_add(
        &mut self,
        g: GlobalId,
        keys: &[Val],
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_add(&field, keys, val, old);
        }
        match self.ctx.location(g)? {
            GlobalLocation::PerCpuArray(_) if old.is_none() => self.per_cpu_array_add(g, keys, val),
            GlobalLocation::Hash {
                keys: types,
                value: ValueLayout::Scalar(Ty::Long),
                ..
            } => {
                self.build_key(&types, keys)?;
                let Some(old) = old else {
                    return self.with_element("add", g, val, |c, val, (full, skip)| {
                        let address = c.hash_element(g, full, skip)?;
                        c.atomic_add(address, val, None)
                    });
                };
                // The old value leaves the subprogram in memory, since the result says whether the array
                // is full.
                let tmp = self.plan.scratch.tmp;
                self.with_element("exchange", g, val, |c, val, (full, skip)| {
                    c.store(tmp, 0);
                    let address = c.hash_element(g, full, skip)?;
                    let val = c.number_copy(val)?;
                    c.asm.atomic(AtomicOp::FetchAdd, address, 0, val);
                    c.store(tmp, val);
                    Ok(())
                })?;
                let before = self.block_word(tmp);
                self.def_int(old, before)
            }
            _ => Err("adding to an array that cannot be added to here".into()),
        }
    }

    /// The address of the element of the key in the key buffer, inserted if absent. A full array goes to
    /// `full` or evicts its oldest elements. Without memory, counts the loss and goes to `skip`.
    pub(crate) fn hash_element(
        &mut self,
        g: GlobalId,
        full: Option<Label>,
        skip: Label,
    ) -> Res<Reg> {
        let GlobalLocation::Hash {
            map,
            seq,
            wrap,
            value,
            max,
            ..
        } = self.ctx.location(g)?
        else {
            return Err("not an array in a hash map".into());
        };
        let [present, again] = self.asm.labels();
        let address = self.look_up(&map)?;
        self.asm.jump_if(Cond::Ne, address, 0, present);
        let size = value.size() + if seq { 8 } else { 0 };
        let global = self.program.globals.get(g.index());
        let evictions = global.is_some_and(spile_ir::Global::saves_entry_values);
        let evictions = self.plan.layout.evictions.filter(|_| evictions);
        let result = match wrap {
            true => self.insert_evicting(std::slice::from_ref(&map), max, evictions, |sub| {
                sub.insert(&map, seq, size)
            })?,
            false => self.insert(&map, seq, size),
        };
        self.asm.jump_if(Cond::Eq, result, 0, again);
        self.asm.jump_if32(Cond::Eq, result, EEXIST, again);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, result, E2BIG, full);
        }
        self.count(percpu::NO_MEMORY);
        self.asm.jump(skip);
        self.asm.bind(again);
        // Stored after the insertion, so that a reader of an unchanged word misses no element.
        if let Some(fresh) = self
            .plan
            .layout
            .critical
            .as_ref()
            .and_then(|c| c.insertions_word(g))
        {
            let fresh = self.shared_address(fresh);
            self.asm.store(Size::DW, fresh, 0, 1);
        }
        let inserted = self.look_up(&map)?;
        self.asm.mov(address, inserted);
        self.asm.jump_if(Cond::Eq, address, 0, skip);
        self.asm.bind(present);
        if seq {
            self.asm.add(address, 8);
        }
        Ok(address)
    }

    /// Inserts the key with a zero value (and its sequence number). Returns the helper's result.
    pub(crate) fn insert(&mut self, map: &str, seq: bool, size: u32) -> Reg {
        let value = self.plan.scratch.value;
        let from = match seq {
            true => {
                self.fill_zero(value, size);
                let number = self.next_sequence();
                self.store(value, number);
                block_at(value)
            }
            false => CallArg::Constant(self.pool.zeros(size)),
        };
        let key = block_at(self.plan.scratch.key);
        let args = [CallArg::Map(map.into()), key, from, NOEXIST.into()];
        self.asm.call_with(Helper::MapUpdateElem, &args)
    }

    /// The next sequence number, starting at 1.
    pub(crate) fn next_sequence(&mut self) -> Reg {
        let (counter, number) = (self.shared_address(shared::SEQ), self.asm.copy(1));
        self.asm.atomic(AtomicOp::FetchAdd, counter, 0, number);
        self.asm.add(number, 1);
        number
    }

    /// Inserts a key with `insert`, which leaves the helper's result. A full map of a wrapping
    /// array first loses its oldest elements, and one more each time another processor took the
    /// slot. `evictions` is the offset of a counter of this, if it is counted.
    /// Always a global subprogram: the verifier may follow all attempts, with two iterations each.
    pub(crate) fn insert_evicting(
        &mut self,
        maps: &[String],
        max: u32,
        evictions: Option<u32>,
        insert: impl FnOnce(&mut HandlerCodegen<'_>) -> Reg,
    ) -> Res<Reg> {
        let name = format!("insert_{}", maps.first().map_or("", |m| m));
        self.define_global(&name, ["generation"], |g, [generation]| {
            let [again, end] = g.asm.labels();
            g.bound_argument(generation, 1);
            g.asm.store(Size::DW, R10, GEN, generation);
            g.asm.store(Size::DW, R10, TMP[3], -1);
            g.asm.bind(again);
            let result = insert(g);
            g.asm.jump_if32(Cond::Ne, result, E2BIG, end);
            let tries = g.asm.word(R10, TMP[3]);
            g.asm.add(tries, 1);
            // With unbounded loops the verifier need not know the number of attempts, and checks
            // one of them.
            let unbound = g.options.features.may_goto;
            if unbound {
                g.forget_bounds(tries);
            }
            g.asm.store(Size::DW, R10, TMP[3], tries);
            g.asm.jump_if(Cond::Eq, tries, TRIES, end);
            if let Some(counter) = evictions {
                g.count(counter);
            }
            g.evict(maps, max)?;
            if unbound {
                g.asm.may_goto(end);
            }
            g.asm.jump(again);
            g.asm.bind(end);
            g.asm.ret(result);
            Ok(())
        })?;
        let generation = match maps.len() {
            0 | 1 => Src::Imm(0),
            _ => self.asm.word(R10, GEN).into(),
        };
        Ok(self.asm.call_sub_with(name, &[generation.into()]))
    }

    /// Evicts the oldest elements of a wrapping array's map of this generation, and `TMP[3]`
    /// further ones.
    fn evict(&mut self, maps: &[String], max: u32) -> Res {
        let most = self.asm.new_reg();
        self.asm.imm(most, i64::MAX);
        self.asm.store(Size::DW, R10, TMP[2], most);
        for (step, name) in [OLDEST, DROP_OLD].into_iter().enumerate() {
            self.pool.library(name)?;
            if step == 1 {
                let [until, tries] = [2, 3].map(|i: usize| self.asm.word(R10, TMP[i]));
                self.asm.add(until, tries);
                self.asm.add(until, max / EVICT);
                self.asm.store(Size::DW, R10, TMP[2], until);
            }
            self.iterate(maps, name);
        }
        Ok(())
    }

    /// Calls [`HandlerCodegen::iterate_over`] for this generation's map. Linux 6.1 allows one map at
    /// each call site.
    fn iterate(&mut self, maps: &[String], callback: &str) {
        let end = self.asm.label();
        if let [first, second] = maps {
            let other = self.asm.label();
            let generation = self.asm.word(R10, GEN);
            self.asm.jump_if(Cond::Ne, generation, 0, other);
            self.iterate_over(first, callback);
            self.asm.jump(end);
            self.asm.bind(other);
            self.iterate_over(second, callback);
        } else if let [only] = maps {
            self.iterate_over(only, callback);
        }
        self.asm.bind(end);
    }

    /// Calls the callback for each element of the map, with the address of `TMP[2]`, which `TMP[1]`
    /// follows.
    pub(crate) fn iterate_over(&mut self, map: &str, callback: &str) {
        let (map, callback) = (CallArg::Map(map.into()), CallArg::Callback(callback.into()));
        let args = [map, callback, CallArg::Word(TMP[2]), 0.into()];
        self.asm.call_with(Helper::ForEachMapElem, &args);
    }

    pub(crate) fn array_has(&mut self, dst: IrReg, g: GlobalId, keys: &[Option<Val>]) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_has(dst, &field, keys);
        }
        let GlobalLocation::Hash {
            map, keys: types, ..
        } = self.ctx.location(g)?
        else {
            return Err("asking an array that only the controller can ask".into());
        };
        if let Some(exact) = keys.iter().copied().collect::<Option<Vec<Val>>>() {
            self.build_key(&types, &exact)?;
            let present = self.read_element("has", g, |c| {
                let none = c.asm.label();
                let present = c.look_up(&map)?;
                c.asm.jump_if(Cond::Eq, present, 0, none);
                c.asm.mov(present, 1);
                c.asm.bind(none);
                Ok(present)
            })?;
            return self.def_int(dst, present);
        }
        self.iterate_slice(g, &map, &types, keys, false)?;
        let present = self.asm.word(R10, TMP[1]);
        self.def_int(dst, present)
    }

    pub(crate) fn array_delete(&mut self, g: GlobalId, keys: &[Option<Val>]) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_delete(&field, keys);
        }
        let GlobalLocation::Hash {
            map, keys: types, ..
        } = self.ctx.location(g)?
        else {
            return Err("deleting from an array that only the controller can change".into());
        };
        if let Some(exact) = keys.iter().copied().collect::<Option<Vec<Val>>>() {
            self.build_key(&types, &exact)?;
            self.map_call(Helper::MapDeleteElem, &map);
            return Ok(());
        }
        self.iterate_slice(g, &map, &types, keys, true)
    }

    /// Iterates over the elements that match the given fields: deletes them, or sets `TMP[1]` to 1 and
    /// stops.
    fn iterate_slice(
        &mut self,
        g: GlobalId,
        map: &str,
        types: &[Ty],
        keys: &[Option<Val>],
        delete: bool,
    ) -> Res {
        if types.len() != keys.len() {
            return Err("a key with the wrong number of fields".into());
        }
        self.build_slice(types, keys)?;
        let mask: String = keys
            .iter()
            .map(|k| if k.is_some() { 'k' } else { 'x' })
            .collect();
        let name = format!("{}_{}_{mask}", if delete { "delete" } else { "has" }, g.0);
        let fields: Vec<_> = types
            .iter()
            .zip(keys)
            .map(|(t, k)| (t.size(), k.is_some()))
            .collect();
        let action = match delete {
            true => Slice::Remove,
            false => Slice::Find,
        };
        self.pool
            .define_once(&name, None, || slice(&name, &KeyFields(fields), action))?;
        let key = self.block_address(self.plan.scratch.key);
        self.asm.store(Size::DW, R10, TMP[2], key);
        self.asm.store(Size::DW, R10, TMP[1], 0);
        self.iterate_over(map, &name);
        Ok(())
    }

    /// Writes the given fields of a key to the key buffer.
    pub(crate) fn build_slice(&mut self, types: &[Ty], keys: &[Option<Val>]) -> Res {
        let mut off = self.plan.scratch.key;
        for (ty, key) in types.iter().zip(keys) {
            match (ty, key) {
                (Ty::Long, Some(key)) => {
                    let v = self.number(*key)?;
                    self.store(off, v);
                }
                (Ty::Str(width), Some(key)) => {
                    let text = self.text(*key)?;
                    self.copy_text(off, (*width).into(), &text)?;
                }
                (_, None) => {}
            }
            off += ty.size();
        }
        Ok(())
    }
}
