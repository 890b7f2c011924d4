//! Scalars in the shared block, and arrays in hash maps.
//!
//! Elements change in place, through the pointer that the look-up returns. A new element is first
//! inserted with a zero value. Wrapping arrays, and arrays that a `foreach` walks, keep a sequence
//! number in front of each element. When a wrapping array is full, one walk finds the smallest
//! number and another deletes the elements that are almost as old.

use spile_ir::{GlobalId, Reg as IrReg, Ty, Val};
use spile_lir::library::eviction::{DROP_OLD, OLDEST};

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::errno::{E2BIG, EEXIST};
use crate::isa::helpers::{Helper, NOEXIST};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size, Src};
use crate::layout::{GlobalPlace, ValueLayout, percpu, shared};
use crate::lower::{GEN, HandlerCodegen, Res, StrOperand, TMP, UNROLL};
use crate::plan::EVICT;
use crate::plan::outlining::Op;

/// Insertion attempts when other processors take the room that eviction made.
const TRIES: i32 = 16;

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn global_load(&mut self, dst: IrReg, g: GlobalId) -> Res {
        let GlobalPlace::Scalar { offset, ty } = self.ctx.place(g)? else {
            return Err("reading a global that only the controller can read".into());
        };
        match ty {
            Ty::Long => {
                let result = self.result(dst, Src::Imm(0));
                self.shared(result, offset);
                self.asm.load(Size::DW, result, result, 0);
                self.def_int(dst, result)
            }
            Ty::Str(width) => {
                self.shared(R3, offset);
                self.text_from_r3(dst, width.into())
            }
        }
    }

    /// `dst` = the string of `from` bytes at r3.
    fn text_from_r3(&mut self, dst: IrReg, from: u32) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        self.fill_from_r3(off, width, from);
        Ok(())
    }

    /// The slot of `width` bytes = the string of `from` bytes at r3.
    pub(in crate::lower) fn fill_from_r3(&mut self, off: u32, width: u32, from: u32) {
        let bytes = from.min(width);
        if bytes <= UNROLL * 8 {
            let (to, disp) = self.block_operand(R2, off, bytes);
            for i in (0..bytes as i16).step_by(8) {
                self.asm.load(Size::DW, R1, R3, i);
                self.asm.store(Size::DW, to, disp + i, R1);
            }
        } else {
            self.block_addr(R1, off);
            self.asm.mov(R2, bytes as i32);
            self.asm.call(Helper::ProbeReadKernel);
        }
        if from > width {
            self.truncate(off, width);
        }
        if width > bytes {
            self.fill_zero(off + bytes, width - bytes);
        }
    }

    pub(in crate::lower) fn global_store(&mut self, g: GlobalId, val: Val) -> Res {
        let GlobalPlace::Scalar { offset, ty } = self.ctx.place(g)? else {
            return Err("setting a global that only the controller can set".into());
        };
        match ty {
            Ty::Long => {
                let v = self.use_or_temp(val, 0)?;
                let at = self.temp(1);
                self.shared(at, offset);
                self.asm.store(Size::DW, at, 0, v);
                Ok(())
            }
            Ty::Str(width) => {
                let text = self.truncated_to(val, width.into())?;
                self.shared(R4, offset);
                self.text_to_r4(&text, width.into())
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

    /// Copies a string to the `width` bytes at r4.
    fn text_to_r4(&mut self, text: &StrOperand, width: u32) -> Res {
        if width <= UNROLL * 8 {
            for i in 0..width / 8 {
                let src = if i * 8 < text.width() {
                    self.text_word(R1, text, i)
                } else {
                    Src::Imm(0)
                };
                self.asm.store(Size::DW, R4, 8 * i as i16, src);
            }
            return Ok(());
        }
        // Clears the rest first: the pointer does not survive a call.
        let bytes = text.width().min(width);
        if bytes < width {
            self.asm.store(Size::DW, R10, TMP[3], R4);
            let zeros = self.pool.byte_run(0);
            self.asm.mov(R1, R4);
            self.asm.add(R1, bytes as i32);
            self.asm.mov(R2, (width - bytes) as i32);
            self.asm.ld_data(R3, Section::Rodata, zeros);
            self.asm.call(Helper::ProbeReadKernel);
            self.asm.load(Size::DW, R4, R10, TMP[3]);
        }
        self.text_addr(R3, text);
        self.asm.mov(R1, R4);
        self.asm.mov(R2, bytes as i32);
        self.asm.call(Helper::ProbeReadKernel);
        Ok(())
    }

    pub(in crate::lower) fn global_add(
        &mut self,
        g: GlobalId,
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        match (self.ctx.place(g)?, old) {
            (GlobalPlace::PerCpuScalar { .. }, None) => self.per_cpu_scalar_add(g, val),
            (
                GlobalPlace::Scalar {
                    offset,
                    ty: Ty::Long,
                },
                old,
            ) => {
                self.use_in(val, R2)?;
                self.shared(R1, offset);
                self.atomic_add(old)
            }
            _ => Err("adding to a global that cannot be added to here".into()),
        }
    }

    /// `[r1] += r2`, atomically.
    fn atomic_add(&mut self, old: Option<IrReg>) -> Res {
        match old {
            None => self.asm.atomic(AtomicOp::Add, R1, 0, R2),
            Some(old) => {
                self.asm.atomic(AtomicOp::FetchAdd, R1, 0, R2);
                return self.def_int(old, R2);
            }
        }
        Ok(())
    }

    pub(in crate::lower) fn global_clear(&mut self, g: GlobalId) -> Res {
        let zero = |gen_: &mut Self, offset: u32, bytes: u32| {
            gen_.shared(R4, offset);
            let empty = StrOperand::Const {
                bytes: (*b"").into(),
            };
            gen_.text_to_r4(&empty, bytes)
        };
        match self.ctx.place(g)? {
            GlobalPlace::Scalar { offset, ty } => zero(self, offset, ty.size()),
            GlobalPlace::Stats { offset, agg } => zero(self, offset, agg.size),
            GlobalPlace::Hash { keys, .. } => {
                let all = vec![None; keys.len()];
                self.array_delete(g, &all)
            }
            _ => Err("emptying a global that only the controller can empty".into()),
        }
    }

    /// `r0` = the element's value (with its sequence number) or null.
    pub(in crate::lower) fn look_up(&mut self, map: &str) -> Res {
        if self.outlined(Op::LookUp) {
            return self.look_up_outlined(map);
        }
        self.asm.ld_map(R1, map);
        self.block_addr(R2, self.plan.scratch.key);
        self.asm.call(Helper::MapLookupElem);
        Ok(())
    }

    pub(in crate::lower) fn array_get(&mut self, dst: IrReg, g: GlobalId, keys: &[Val]) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_get(dst, &field, keys);
        }
        let GlobalPlace::Hash {
            map,
            keys: types,
            seq,
            value: ValueLayout::Scalar(ty),
            ..
        } = self.ctx.place(g)?
        else {
            return Err("reading an array that only the controller can read".into());
        };
        let skip = if seq { 8 } else { 0 };
        let (none, end) = (self.asm.label(), self.asm.label());
        self.build_key(&types, keys)?;
        if ty == Ty::Long {
            self.read_element("get", g, |c| {
                let none = c.asm.label();
                c.look_up(&map)?;
                c.asm.jump_if(Cond::Eq, R0, 0, none);
                c.asm.load(Size::DW, R0, R0, skip);
                c.asm.bind(none);
                Ok(())
            })?;
            return self.def_int(dst, R0);
        }
        if self.outlined(Op::Read)
            && let Some((off, width)) = self.slot(dst)?
            && ty.size() == width
            && self.get_text_global(g, &map, skip, (off, width))?
        {
            return Ok(());
        }
        self.look_up(&map)?;
        self.asm.jump_if(Cond::Eq, R0, 0, none);
        self.asm.mov(R3, R0);
        self.asm.add(R3, i32::from(skip));
        self.text_from_r3(dst, ty.size())?;
        self.asm.jump(end);
        self.asm.bind(none);
        if let Some((off, width)) = self.slot(dst)? {
            self.fill_zero(off, width);
        }
        self.asm.bind(end);
        Ok(())
    }

    pub(in crate::lower) fn array_set(&mut self, g: GlobalId, keys: &[Val], val: Val) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_set(&field, keys, val);
        }
        let GlobalPlace::Hash {
            keys: types,
            value: ValueLayout::Scalar(ty),
            ..
        } = self.ctx.place(g)?
        else {
            return Err("setting an array that only the controller can set".into());
        };
        self.build_key(&types, keys)?;
        match ty {
            Ty::Long => self.with_element("set", g, val, |c, val, (full, skip)| {
                c.hash_element(g, full, skip)?;
                let v = c.use_int(val, R2)?;
                c.asm.store(Size::DW, R1, 0, v);
                Ok(())
            }),
            Ty::Str(width)
                if self.outlined(Op::Write) && u32::from(width) <= self.plan.max_string =>
            {
                self.set_text_global(g, val, width.into())
            }
            Ty::Str(width) => {
                let skip = self.asm.label();
                let full = self.full_label(g);
                self.hash_element(g, full, skip)?;
                self.asm.store(Size::DW, R10, TMP[2], R1);
                let text = self.truncated_to(val, width.into())?;
                self.asm.load(Size::DW, R4, R10, TMP[2]);
                self.text_to_r4(&text, width.into())?;
                self.asm.bind(skip);
                Ok(())
            }
        }
    }

    pub(in crate::lower) fn array_add(
        &mut self,
        g: GlobalId,
        keys: &[Val],
        val: Val,
        old: Option<IrReg>,
    ) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_add(&field, keys, val, old);
        }
        match self.ctx.place(g)? {
            GlobalPlace::PerCpuArray(_) if old.is_none() => self.per_cpu_array_add(g, keys, val),
            GlobalPlace::Hash {
                keys: types,
                value: ValueLayout::Scalar(Ty::Long),
                ..
            } => {
                self.build_key(&types, keys)?;
                let Some(old) = old else {
                    return self.with_element("add", g, val, |c, val, (full, skip)| {
                        c.hash_element(g, full, skip)?;
                        let val = c.use_in_reg(val, R2)?;
                        c.asm.atomic(AtomicOp::Add, R1, 0, val);
                        Ok(())
                    });
                };
                // The old value leaves the subprogram in memory, since the result says whether the array
                // is full.
                let tmp = self.plan.scratch.tmp;
                self.with_element("exchange", g, val, |c, val, (full, skip)| {
                    c.store(tmp, 0);
                    c.hash_element(g, full, skip)?;
                    c.use_in(val, R2)?;
                    c.asm.atomic(AtomicOp::FetchAdd, R1, 0, R2);
                    c.store(tmp, R2);
                    Ok(())
                })?;
                self.load(R1, tmp);
                self.def_int(old, R1)
            }
            _ => Err("adding to an array that cannot be added to here".into()),
        }
    }

    /// `r1` = the element of the key in the key buffer, inserted if absent. A full array goes to
    /// `full` or evicts its oldest elements. Without memory, counts the loss and goes to `skip`.
    pub(in crate::lower) fn hash_element(
        &mut self,
        g: GlobalId,
        full: Option<Label>,
        skip: Label,
    ) -> Res {
        let GlobalPlace::Hash {
            map,
            seq,
            wrap,
            value,
            max,
            ..
        } = self.ctx.place(g)?
        else {
            return Err("not an array in a hash map".into());
        };
        let [found, again] = [(); 2].map(|()| self.asm.label());
        self.look_up(&map)?;
        self.asm.jump_if(Cond::Ne, R0, 0, found);
        let size = value.size() + if seq { 8 } else { 0 };
        match wrap {
            true => self.insert_evicting(std::slice::from_ref(&map), max, |sub| {
                sub.insert(&map, seq, size)
            })?,
            false => self.insert(&map, seq, size)?,
        }
        self.asm.jump_if(Cond::Eq, R0, 0, again);
        self.asm.jump_if32(Cond::Eq, R0, EEXIST, again);
        if let Some(full) = full {
            self.asm.jump_if32(Cond::Eq, R0, E2BIG, full);
        }
        self.count(percpu::NO_MEMORY);
        self.asm.jump(skip);
        self.asm.bind(again);
        // Stored after the insertion, so that a reader of an unchanged word misses no element.
        if let Some(fresh) = self
            .plan
            .critical
            .as_ref()
            .and_then(|c| c.insertions_word(g))
        {
            self.shared(R1, fresh);
            self.asm.store(Size::DW, R1, 0, 1);
        }
        self.look_up(&map)?;
        self.asm.jump_if(Cond::Eq, R0, 0, skip);
        self.asm.bind(found);
        self.asm.mov(R1, R0);
        if seq {
            self.asm.add(R1, 8);
        }
        Ok(())
    }

    /// Inserts the key with a zero value (and its sequence number); r0 is the helper's result.
    pub(in crate::lower) fn insert(&mut self, map: &str, seq: bool, size: u32) -> Res {
        let value = self.plan.scratch.value;
        if seq {
            self.fill_zero(value, size);
            self.next_sequence(R2);
            self.store(value, R2);
        }
        self.asm.ld_map(R1, map);
        self.block_addr(R2, self.plan.scratch.key);
        if seq {
            self.block_addr(R3, value);
        } else {
            let zeros = if size <= crate::lower::pool::RUN {
                self.pool.byte_run(0)
            } else {
                self.pool.constant(&vec![0; size as usize])
            };
            self.asm.ld_data(R3, Section::Rodata, zeros);
        }
        self.asm.mov(R4, NOEXIST);
        self.asm.call(Helper::MapUpdateElem);
        Ok(())
    }

    /// `to` = the next sequence number, starting at 1. Clobbers r1.
    pub(in crate::lower) fn next_sequence(&mut self, to: Reg) {
        self.shared(R1, shared::SEQ);
        self.asm.mov(to, 1);
        self.asm.atomic(AtomicOp::FetchAdd, R1, 0, to);
        self.asm.add(to, 1);
    }

    /// Inserts a key with `insert`, which leaves the helper's result. A full map of a wrapping
    /// array first loses its oldest elements, and one more each time another processor took the
    /// room. Always a global subprogram: the verifier may follow all attempts, with two walks each.
    pub(in crate::lower) fn insert_evicting(
        &mut self,
        maps: &[String],
        max: u32,
        insert: impl FnOnce(&mut HandlerCodegen<'_>) -> Res,
    ) -> Res {
        let name = format!("insert_{}", maps.first().map_or("", |m| m));
        self.define_global(&name, &["generation"], |g| {
            let [again, end] = [(); 2].map(|()| g.asm.label());
            g.bound_argument(R6, 1);
            g.asm.store(Size::DW, R10, GEN, R6);
            g.asm.store(Size::DW, R10, TMP[3], -1);
            g.asm.bind(again);
            insert(g)?;
            g.asm.jump_if32(Cond::Ne, R0, E2BIG, end);
            g.asm.load(Size::DW, R1, R10, TMP[3]);
            g.asm.add(R1, 1);
            // With unbounded loops the verifier need not know the number of attempts, and checks
            // one of them.
            let unbound = g.options.features.may_goto;
            if unbound {
                g.forget_bounds(R1);
            }
            g.asm.store(Size::DW, R10, TMP[3], R1);
            g.asm.jump_if(Cond::Eq, R1, TRIES, end);
            g.evict(maps, max)?;
            if unbound {
                g.asm.may_goto(end);
            }
            g.asm.jump(again);
            g.asm.bind(end);
            g.asm.exit();
            Ok(())
        })?;
        self.asm.mov(R1, 0);
        if maps.len() > 1 {
            self.asm.load(Size::DW, R1, R10, GEN);
        }
        self.asm.call_sub(name);
        Ok(())
    }

    /// Evicts the oldest elements of a wrapping array's map of this generation, and `TMP[3]`
    /// further ones.
    fn evict(&mut self, maps: &[String], max: u32) -> Res {
        self.asm.imm(R1, i64::MAX);
        self.asm.store(Size::DW, R10, TMP[2], R1);
        for (step, name) in [OLDEST, DROP_OLD].into_iter().enumerate() {
            self.pool.library(name)?;
            if step == 1 {
                self.asm.load(Size::DW, R1, R10, TMP[2]);
                self.asm.load(Size::DW, R2, R10, TMP[3]);
                self.asm.add(R1, R2);
                self.asm.add(R1, (max / EVICT) as i32);
                self.asm.store(Size::DW, R10, TMP[2], R1);
            }
            self.walk(maps, name);
        }
        Ok(())
    }

    /// Calls [`HandlerCodegen::walk_in`] for this generation's map. Linux 6.1 allows one map at
    /// each call site.
    fn walk(&mut self, maps: &[String], callback: &str) {
        let end = self.asm.label();
        if let [first, second] = maps {
            let other = self.asm.label();
            self.asm.load(Size::DW, R0, R10, GEN);
            self.asm.jump_if(Cond::Ne, R0, 0, other);
            self.walk_in(first, callback);
            self.asm.jump(end);
            self.asm.bind(other);
            self.walk_in(second, callback);
        } else if let [only] = maps {
            self.walk_in(only, callback);
        }
        self.asm.bind(end);
    }

    /// Calls the callback for each element of the map, with the address of `TMP[2]`, which `TMP[1]`
    /// follows.
    pub(in crate::lower) fn walk_in(&mut self, map: &str, callback: &str) {
        self.asm.ld_map(R1, map);
        self.asm.ld_func(R2, callback);
        self.asm.mov(R3, R10);
        self.asm.add(R3, i32::from(TMP[2]));
        self.asm.mov(R4, 0);
        self.asm.call(Helper::ForEachMapElem);
    }

    pub(in crate::lower) fn array_has(
        &mut self,
        dst: IrReg,
        g: GlobalId,
        keys: &[Option<Val>],
    ) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_has(dst, &field, keys);
        }
        let GlobalPlace::Hash {
            map, keys: types, ..
        } = self.ctx.place(g)?
        else {
            return Err("asking an array that only the controller can ask".into());
        };
        if let Some(exact) = keys.iter().copied().collect::<Option<Vec<Val>>>() {
            self.build_key(&types, &exact)?;
            self.read_element("has", g, |c| {
                let none = c.asm.label();
                c.look_up(&map)?;
                c.asm.jump_if(Cond::Eq, R0, 0, none);
                c.asm.mov(R0, 1);
                c.asm.bind(none);
                Ok(())
            })?;
            return self.def_int(dst, R0);
        }
        self.walk_slice(g, &map, &types, keys, false)?;
        self.asm.load(Size::DW, R0, R10, TMP[1]);
        self.def_int(dst, R0)
    }

    pub(in crate::lower) fn array_delete(&mut self, g: GlobalId, keys: &[Option<Val>]) -> Res {
        if let Some(field) = self.ctx.field(g)? {
            return self.field_delete(&field, keys);
        }
        let GlobalPlace::Hash {
            map, keys: types, ..
        } = self.ctx.place(g)?
        else {
            return Err("deleting from an array that only the controller can change".into());
        };
        if let Some(exact) = keys.iter().copied().collect::<Option<Vec<Val>>>() {
            self.build_key(&types, &exact)?;
            self.asm.ld_map(R1, &*map);
            self.block_addr(R2, self.plan.scratch.key);
            self.asm.call(Helper::MapDeleteElem);
            return Ok(());
        }
        self.walk_slice(g, &map, &types, keys, true)
    }

    /// Walks over the elements that match the given fields: deletes them, or sets `TMP[1]` to 1 and
    /// stops.
    fn walk_slice(
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
            .map(|(t, k)| (*t, k.is_some()))
            .collect();
        self.pool.sub(&name, |_| slice(&name, &fields, delete))?;
        self.block_addr(R1, self.plan.scratch.key);
        self.asm.store(Size::DW, R10, TMP[2], R1);
        self.asm.store(Size::DW, R10, TMP[1], 0);
        self.walk_in(map, &name);
        Ok(())
    }

    /// Writes the given fields of a key to the key buffer.
    pub(in crate::lower) fn build_slice(&mut self, types: &[Ty], keys: &[Option<Val>]) -> Res {
        let mut off = self.plan.scratch.key;
        for (ty, key) in types.iter().zip(keys) {
            match (ty, key) {
                (Ty::Long, Some(key)) => {
                    let v = self.use_int(*key, R1)?;
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

/// Goes to `other` if a given field of the key at `key` differs from that of the wanted key, which is
/// at offset `from` of `wanted`. Clobbers r0, r3, r6.
pub(in crate::lower) fn same_fields(
    asm: &mut Asm,
    fields: &[(Ty, bool)],
    key: Reg,
    wanted: Reg,
    from: i32,
    other: Label,
) -> Res {
    let mut off = 0i32;
    for (ty, given) in fields {
        let size = ty.size() as i32;
        for at in (off..off + size).step_by(8).filter(|_| *given) {
            let there = i16::try_from(from + at).map_err(|_| "a key of more than 32 KB")?;
            asm.load(Size::DW, R0, key, at as i16);
            asm.load(Size::DW, R3, wanted, there);
            if at == off {
                asm.jump_if(Cond::Ne, R0, R3, other);
                asm.mov(R6, 0);
                continue;
            }
            // One jump for all words: the verifier limits the number of jumps.
            asm.alu(AluOp::Xor, R0, R3);
            asm.alu(AluOp::Or, R6, R0);
        }
        if *given && size > 8 {
            asm.jump_if(Cond::Ne, R6, 0, other);
        }
        off += size;
    }
    Ok(())
}

/// Callback of a walk over a slice; its context holds the addresses of the wanted key and of the
/// answer.
fn slice(name: &str, fields: &[(Ty, bool)], delete: bool) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["map", "key", "value", "wanted"]);
    let other = asm.label();
    asm.load(Size::DW, R5, R4, 0);
    same_fields(&mut asm, fields, R2, R5, 0, other)?;
    if delete {
        asm.call(Helper::MapDeleteElem);
    } else {
        asm.store(Size::DW, R4, 8, 1);
        asm.mov(R0, 1);
        asm.exit();
        if fields.iter().all(|(_, given)| !given) {
            // The first element decides: code behind would be unreachable, which the verifier
            // refuses.
            return asm.finish().map_err(|e| e.to_string());
        }
    }
    asm.bind(other);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
