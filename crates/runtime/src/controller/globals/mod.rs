//! Operations on globals by storage class. Globals of the controller are in ordinary memory, with
//! the per-CPU deltas already drained into it. Globals that it shares with the kernel are words of
//! the state memory, or need system calls on a hash map.
//!
//! In: operations of the interpreter, on values. Out: the same values, in whichever memory the
//! layout gives the global. Invariant: the caller holds the locks that the handler needs, and has
//! drained the deltas. No lock is taken here.

mod hash;

use std::rc::Rc;
use std::sync::atomic::Ordering;

use spile_cast::Cast;
use spile_ir::interp::{
    Cell, Element, Fault, ForeachIter, Globals, MemGlobals, Value, iterate_elements,
};
use spile_ir::stats::Stat;
use spile_ir::{
    ElemTy, Extract, GlobalId, GlobalKind, Program, SortKey, SortSpec, Ty, UNSEEN_ENTRIES,
};
use spile_layout::{GlobalLocation, Layout, ValueLayout};

use crate::report::losses::LossReport;
use crate::shared::handler_effects::HandlerEffects;
use crate::shared::kernel_state::{KernelState, RawValue};
use crate::shared::state::StateMemory;
pub use hash::MarkTexts;
use hash::{HashArray, system};

/// All globals of a program.
pub struct SessionGlobals {
    /// The program.
    pub program: Rc<Program>,
    /// The kernel's half of the session, if there is one.
    pub kernel: Option<KernelState>,
    /// The values of the controller's globals.
    pub mem: MemGlobals,
    /// The texts that marks in keys stand for, and texts of stacks and symbols.
    pub texts: MarkTexts,
    /// Globals that the current handler reads from a copy in `mem`.
    copied: Vec<GlobalId>,
    /// Those copied globals that the handler has emptied.
    emptied: Vec<GlobalId>,
    /// Whether a handler of the controller made a sum in the kernel's form pass 64 bits.
    wrapped: bool,
    /// Values of statistics that were read and are wrong or may be, because a sum passed 64 bits.
    pub inexact: u64,
}

impl SessionGlobals {
    /// The globals with their initial values.
    pub fn new(
        program: Rc<Program>,
        kernel: Option<KernelState>,
        texts: MarkTexts,
    ) -> SessionGlobals {
        SessionGlobals {
            mem: MemGlobals::new(&program.globals),
            program,
            kernel,
            texts,
            copied: Vec::new(),
            emptied: Vec::new(),
            wrapped: false,
            inexact: 0,
        }
    }

    /// A counter of the kernel's handlers.
    fn kernel_count(&self, offset: impl FnOnce(&Layout) -> Option<u32>) -> u64 {
        let kernel = self.kernel.as_ref();
        let count = kernel.and_then(|k| Some(k.state().sum(offset(k.layout())?)));
        count.unwrap_or(0)
    }

    /// Whether a sum of a statistic in the kernel's form passed 64 bits.
    pub fn sums_wrapped(&self) -> bool {
        self.wrapped || self.kernel_count(|l| l.wraps) > 0
    }

    /// Whether sums of an array can be above 64 bits.
    fn has_large_sums(&self, g: GlobalId) -> bool {
        self.sums_wrapped() || self.mem.array(g).is_some_and(|a| !a.sums_fit())
    }

    /// Adds the values of statistics that may be wrong, and the returns whose entries were dropped, to the
    /// loss report.
    pub fn count_losses(&mut self, losses: &mut LossReport) {
        let in_handlers = |l: &Layout| l.wraps.filter(|_| l.handlers_read_sums());
        losses.inexact = self.inexact + self.kernel_count(in_handlers);
        let named = |g: &spile_ir::Global| &*g.name == UNSEEN_ENTRIES;
        let unseen = self.program.globals.iter().position(named);
        if let Some(g) = unseen.filter(|_| self.kernel_count(|l| l.evictions) > 0) {
            let count = self.gload(GlobalId(g.fit()));
            losses.unseen = count.map_or(0, |n| n.as_long().cast_unsigned());
        }
    }

    /// The location of a global that is shared with the kernel.
    fn shared(&self, g: GlobalId) -> Option<(&KernelState, &GlobalLocation)> {
        let kernel = self.kernel.as_ref().filter(|_| !self.copied.contains(&g))?;
        Some((kernel, &kernel.shared(g)?.location))
    }

    /// The values of the locked globals at one moment. Those that the handler takes are empty
    /// afterwards.
    pub fn snapshot(&mut self, needs: &HandlerEffects) -> Result<Vec<(GlobalId, RawValue)>, Fault> {
        let mut values = Vec::new();
        for (g, _) in needs.locks.iter().filter(|(g, _)| !needs.taken.contains(g)) {
            values.extend(self.raw(*g)?.map(|raw| (*g, raw)));
        }
        for g in &needs.taken {
            values.extend(self.take(*g)?.map(|raw| (*g, raw)));
        }
        Ok(values)
    }

    /// Globals that the handler took but did not empty, because an error ended it.
    pub fn unemptied(&self, needs: &HandlerEffects) -> Vec<GlobalId> {
        let left = |g: &&GlobalId| self.copied.contains(g) && !self.emptied.contains(g);
        needs.taken.iter().filter(left).copied().collect()
    }

    /// Puts these globals back, merging them with newer values.
    pub fn put_back(&mut self, left: &[GlobalId]) -> Result<(), Fault> {
        self.copied.retain(|g| !left.contains(g));
        left.iter().try_for_each(|g| {
            self.merge_back(*g)?;
            self.mem.gclear(*g)
        })
    }

    /// Gives the handler copies of globals. It reads the copies while the kernel changes the originals.
    pub fn copy(&mut self, values: Vec<(GlobalId, RawValue)>) -> Result<(), Fault> {
        let ids: Vec<GlobalId> = values.iter().map(|(g, _)| *g).collect();
        for (g, raw) in values {
            self.copy_one(g, raw)?;
        }
        self.copied = ids;
        Ok(())
    }

    /// Drops the copies.
    pub fn drop_copies(&mut self) {
        self.emptied.clear();
        for g in std::mem::take(&mut self.copied) {
            // Cannot fail: the copied global exists.
            let _ = self.mem.gclear(g);
        }
    }

    /// Moves per-CPU deltas into the controller's values.
    pub fn drain(&mut self) -> Result<Vec<(GlobalId, u64)>, Fault> {
        match &mut self.kernel {
            Some(kernel) => kernel.drain(&self.program, &mut self.mem, &|key, ty| {
                self.texts.symbolic.key(key, ty)
            }),
            None => Ok(Vec::new()),
        }
    }

    /// The memory, location and layout of a scalar or a statistic that is shared with the kernel.
    fn shared_value(&self, g: GlobalId) -> Option<(&StateMemory, u32, ValueLayout)> {
        let (kernel, location) = self.shared(g)?;
        let (offset, layout) = match location {
            GlobalLocation::Scalar { offset, ty } => (*offset, ValueLayout::Scalar(*ty)),
            GlobalLocation::Stats { offset, agg } => (*offset, ValueLayout::Stats(agg.clone())),
            _ => return None,
        };
        Some((kernel.state(), offset, layout))
    }

    /// The current value of a shared global. The global's lock is held, so decoding is left for
    /// later.
    fn raw(&self, g: GlobalId) -> Result<Option<RawValue>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            let entries = hash.table.entries().map_err(system)?;
            return Ok(Some(RawValue::Entries(entries)));
        }
        let value = self.shared_value(g);
        Ok(value.map(|(state, offset, layout)| RawValue::Cell(state.get(offset, &layout))))
    }

    /// Reads the value like [`SessionGlobals::raw`], and empties the global.
    fn take(&self, g: GlobalId) -> Result<Option<RawValue>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(Some(RawValue::Entries(hash.table.drain().map_err(system)?)));
        }
        let raw = self.raw(g)?;
        if raw.is_some() {
            self.clear_shared(g);
        }
        Ok(raw)
    }

    /// Adds the value in `mem` to the kernel's current value; of strings the newer one is kept.
    fn merge_back(&mut self, g: GlobalId) -> Result<(), Fault> {
        match self.kind(g) {
            Some(GlobalKind::Scalar(Ty::Long)) => {
                let n = self.mem.gload(g)?.as_long();
                self.gadd(g, n).map(drop)
            }
            Some(GlobalKind::Scalar(Ty::Str(_))) => match self.gload(g)?.as_bytes() {
                b"" => {
                    let text = self.mem.gload(g)?;
                    self.gstore(g, text)
                }
                _ => Ok(()),
            },
            Some(GlobalKind::Stats(_)) => match self.mem.stat_get(g, &[])? {
                Some(stat) => self.stat_merge(g, &[], &stat),
                None => Ok(()),
            },
            Some(GlobalKind::Array { .. }) => {
                let elements = self.mem.elements(g, &[])?;
                elements.into_iter().try_for_each(|e| match &e.cell {
                    Cell::Stats(stat) => self.stat_merge(g, &e.keys, stat),
                    Cell::Scalar(Value::Long(n)) => self.aadd(g, &e.keys, *n).map(drop),
                    Cell::Scalar(text) => {
                        let keys: Vec<_> = e.keys.iter().cloned().map(Some).collect();
                        match self.ahas(g, &keys)? {
                            true => Ok(()),
                            false => self.aset(g, &e.keys, text.clone()),
                        }
                    }
                })
            }
            None => Ok(()),
        }
    }

    /// Replaces the value in `mem` by the kernel's.
    fn copy_one(&mut self, g: GlobalId, raw: RawValue) -> Result<(), Fault> {
        let elements = match raw {
            RawValue::Cell(cell) => vec![(Vec::new(), cell)],
            RawValue::Entries(entries) => {
                let Some(hash) = self.hash(g) else {
                    return Ok(());
                };
                let decoded = hash.decode(entries, &[]);
                decoded
                    .into_iter()
                    .map(|e| (e.keys.to_vec(), e.cell))
                    .collect()
            }
        };
        self.mem.gclear(g)?;
        for (keys, cell) in elements {
            match cell {
                Cell::Stats(s) => self.mem.stat_merge(g, &keys, &s)?,
                Cell::Scalar(v) if keys.is_empty() => self.mem.gstore(g, v)?,
                Cell::Scalar(v) => self.mem.aset(g, &keys, v)?,
            }
        }
        Ok(())
    }

    fn hash(&self, g: GlobalId) -> Option<HashArray<'_>> {
        let (kernel, location) = self.shared(g)?;
        let GlobalLocation::Hash {
            keys,
            seq,
            wrap,
            value,
            ..
        } = location
        else {
            return None;
        };
        let table = kernel.table(g)?.borrow_mut();
        Some(HashArray {
            kernel,
            table,
            types: keys,
            seq: *seq,
            wrap: *wrap,
            value,
            texts: self.texts.for_array(g),
        })
    }

    fn kind(&self, g: GlobalId) -> Option<&GlobalKind> {
        self.program.globals.get(g.index()).map(|g| &g.kind)
    }

    /// The value of a missing element of an array.
    fn zero(&self, g: GlobalId) -> Cell {
        let kind = self.kind(g);
        if let Some(spec) = kind.and_then(GlobalKind::stats) {
            return Cell::Stats(Stat::new(spec));
        }
        Cell::Scalar(match kind {
            Some(
                GlobalKind::Array {
                    value: ElemTy::Scalar(ty),
                    ..
                }
                | GlobalKind::Scalar(ty),
            ) => Value::zero(*ty),
            _ => Value::Long(0),
        })
    }

    /// Clears a scalar or a statistic in the shared area; false for other globals.
    fn clear_shared(&self, g: GlobalId) -> bool {
        let Some((state, offset, layout)) = self.shared_value(g) else {
            return false;
        };
        state.set(offset, &layout, &self.zero(g));
        true
    }

    /// Merges a statistic into an element.
    fn stat_merge(&mut self, g: GlobalId, keys: &[Value], stat: &Stat) -> Result<(), Fault> {
        match self.stat_change(g, keys, &mut |s| s.merge(stat))? {
            true => Ok(()),
            false => self.mem.stat_merge(g, keys, stat),
        }
    }

    /// Changes a statistic in place, if it is shared.
    fn stat_change(
        &mut self,
        g: GlobalId,
        keys: &[Value],
        change: &mut dyn FnMut(&mut Stat),
    ) -> Result<bool, Fault> {
        let mut wrapped = false;
        let mut add = |cell: Option<Cell>, zero: Cell| {
            let mut cell = cell.unwrap_or(zero);
            if let Cell::Stats(s) = &mut cell {
                change(s);
                wrapped |= i64::try_from(s.sum).is_err();
            }
            cell
        };
        let changed = match (self.hash(g), self.shared_value(g)) {
            (Some(mut hash), _) => {
                let sum = add(hash.get(keys)?, self.zero(g));
                hash.set(keys, &sum)?;
                true
            }
            (None, Some((state, offset, layout))) => {
                let sum = add(Some(state.get(offset, &layout)), self.zero(g));
                state.set(offset, &layout, &sum);
                true
            }
            (None, None) => false,
        };
        self.wrapped |= wrapped;
        Ok(changed)
    }
}

impl Globals for SessionGlobals {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        match self.shared_value(g) {
            Some((state, offset, layout)) => Ok(state.get(offset, &layout).value()),
            None => self.mem.gload(g),
        }
    }

    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        // A copy is changed in no other way.
        self.emptied.extend(self.copied.contains(&g).then_some(g));
        match self.shared_value(g) {
            Some((state, offset, ValueLayout::Scalar(ty))) => {
                let cell = Cell::Scalar(v.truncated_to(ty).0);
                state.set(offset, &ValueLayout::Scalar(ty), &cell);
                Ok(())
            }
            _ => self.mem.gstore(g, v),
        }
    }

    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        match self.shared_value(g) {
            Some((state, offset, ValueLayout::Scalar(Ty::Long))) => {
                let word = state.shared(offset);
                let before = word.fetch_add(v.cast_unsigned(), Ordering::AcqRel);
                Ok(before.cast_signed())
            }
            _ => self.mem.gadd(g, v),
        }
    }

    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(hash.get(keys)?.unwrap_or_else(|| self.zero(g)).value());
        }
        self.mem.aget(g, keys)
    }

    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        if let Some(mut hash) = self.hash(g) {
            return hash.set(keys, &Cell::Scalar(v));
        }
        self.mem.aset(g, keys, v)
    }

    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        if let Some(mut hash) = self.hash(g) {
            let before = hash.get(keys)?.map_or(0, |c| c.value().as_long());
            hash.set(keys, &Cell::Scalar(Value::Long(before.wrapping_add(v))))?;
            return Ok(before);
        }
        self.mem.aadd(g, keys, v)
    }

    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(match exact(keys) {
                Some(keys) => hash.get(&keys)?.is_some(),
                None => !hash.elements(keys)?.is_empty(),
            });
        }
        self.mem.ahas(g, keys)
    }

    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        let Some(mut hash) = self.hash(g) else {
            return self.mem.adel(g, keys);
        };
        let gone = match exact(keys) {
            Some(keys) => vec![keys],
            None => {
                let elements = hash.elements(keys)?;
                elements.iter().map(|e| e.keys.to_vec()).collect()
            }
        };
        gone.iter().try_for_each(|keys| hash.remove(keys))
    }

    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        self.emptied.extend(self.copied.contains(&g).then_some(g));
        if let Some(mut hash) = self.hash(g) {
            return hash.table.drain().map(drop).map_err(system);
        }
        match self.clear_shared(g) {
            true => Ok(()),
            false => self.mem.gclear(g),
        }
    }

    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        let hist = self
            .kind(g)
            .and_then(GlobalKind::stats)
            .and_then(|s| s.hist);
        match self.stat_change(g, keys, &mut |s| s.add(hist, v))? {
            true => Ok(()),
            false => self.mem.stat_add(g, keys, v),
        }
    }

    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        let cell = if let Some(mut hash) = self.hash(g) {
            hash.get(keys)?
        } else if let Some((state, offset, layout)) = self.shared_value(g) {
            Some(state.get(offset, &layout))
        } else {
            return self.mem.stat_get(g, keys);
        };
        Ok(match cell {
            Some(Cell::Stats(s)) if !s.is_empty() => Some(s),
            _ => None,
        })
    }

    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return hash.elements(slice);
        }
        self.mem.elements(g, slice)
    }

    fn iterate(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> Result<ForeachIter, Fault> {
        // Values with marks are sorted by their texts.
        let by_text = sort.is_some_and(|s| s.by == SortKey::Value)
            && matches!(
                self.kind(g),
                Some(GlobalKind::Array {
                    value: ElemTy::Scalar(Ty::Str(_)),
                    ..
                })
            );
        // Sums above 64 bits are compared whole.
        let by_sum = sort.is_some_and(|s| of_sum(s.by)) && self.has_large_sums(g);
        if by_text || by_sum || self.hash(g).is_some() {
            let elements = self.elements(g, slice)?;
            let wrapped = self.sums_wrapped();
            let unknown = |e: &&Element| match &e.cell {
                Cell::Stats(s) => s.exact_sum(wrapped).is_none(),
                Cell::Scalar(_) => false,
            };
            if by_sum {
                self.inexact += elements.iter().filter(unknown).count() as u64;
            }
            let extract = |s: &Stat, what| s.sort_key(what, wrapped);
            let text = |v: &Value| self.texts.text(v);
            return Ok(iterate_elements(elements, sort, limit, extract, text));
        }
        self.mem.iterate(g, slice, sort, limit)
    }
}

/// Whether a sum decides the order.
fn of_sum(by: SortKey) -> bool {
    matches!(
        by,
        SortKey::Stat(Extract::Sum | Extract::Avg | Extract::Variance)
    )
}

/// The keys of a pattern without `*`.
fn exact(keys: &[Option<Value>]) -> Option<Vec<Value>> {
    keys.iter().cloned().collect()
}

#[cfg(test)]
mod tests;
