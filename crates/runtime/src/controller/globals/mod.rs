//! Operations on globals by storage class. Globals of the controller are in ordinary memory, with
//! the per-CPU deltas already drained into it. Globals that it shares with the kernel are words of
//! the state memory, or need system calls on a hash map.
//!
//! In: operations of the interpreter, on values. Out: the same values, in whichever memory the
//! layout gives the global. Invariant: the caller holds the locks that the handler needs, and has
//! drained the deltas. No lock is taken here.

mod hash;

use std::sync::atomic::Ordering;

use spile_bpf::layout::{GlobalPlace, ValueLayout};
use spile_ir::interp::{Cell, Element, Fault, MemGlobals, Value};
use spile_ir::stats::Stat;
use spile_ir::{ElemTy, GlobalId, GlobalKind, Hist, Program, StatsSpec, Ty};

use crate::shared::kernel_state::KernelState;
pub use hash::MarkTexts;
use hash::{HashArray, system};

/// All globals of a program.
pub struct Globals<'a> {
    /// The program.
    pub program: &'a Program,
    /// The kernel's half of the session, if there is one.
    pub kernel: Option<&'a KernelState>,
    /// The values of the controller's globals.
    pub mem: &'a mut MemGlobals,
    /// Globals that are read from a copy in `mem`, see [`Globals::copy`].
    pub copied: &'a [GlobalId],
    /// The texts that marks in keys stand for.
    pub texts: &'a MarkTexts,
}

/// The value of a global at one moment, in the kernel's form.
pub enum RawValue {
    /// A number, a string or a statistic.
    Cell(Cell),
    /// Keys and values of a hash map.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
}

impl<'a> Globals<'a> {
    /// The place of a global that is shared with the kernel.
    fn shared(&self, g: GlobalId) -> Option<(&'a KernelState, &'a GlobalPlace)> {
        let kernel = self.kernel.filter(|_| !self.copied.contains(&g))?;
        Some((kernel, &kernel.shared(g)?.place))
    }

    /// The current value of a shared global. The global's lock is held, so decoding is left for
    /// later.
    pub fn raw(&self, g: GlobalId) -> Result<Option<RawValue>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(Some(RawValue::Entries(
                hash.table.entries().map_err(system)?,
            )));
        }
        let layout = match self.shared(g) {
            Some((_, GlobalPlace::Scalar { offset, ty })) => (*offset, ValueLayout::Scalar(*ty)),
            Some((_, GlobalPlace::Stats { offset, agg })) => {
                (*offset, ValueLayout::Stats(agg.clone()))
            }
            _ => return Ok(None),
        };
        let kernel = self.kernel.map(|k| k.state().get(layout.0, &layout.1));
        Ok(kernel.map(RawValue::Cell))
    }

    /// Reads the value like [`Globals::raw`], and empties the global.
    pub fn take(&self, g: GlobalId) -> Result<Option<RawValue>, Fault> {
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
    pub fn put_back(&mut self, g: GlobalId) -> Result<(), Fault> {
        match self.program.globals.get(g.index()).map(|g| &g.kind) {
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
    pub fn copy(&mut self, g: GlobalId, raw: RawValue) -> Result<(), Fault> {
        let elements = match raw {
            RawValue::Cell(cell) => vec![(Vec::new(), cell)],
            RawValue::Entries(entries) => {
                let Some(hash) = self.hash(g) else {
                    return Ok(());
                };
                let found = hash.decode(entries, &[]);
                found
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

    fn hash(&self, g: GlobalId) -> Option<HashArray<'a>> {
        let (kernel, place) = self.shared(g)?;
        let GlobalPlace::Hash {
            keys,
            seq,
            wrap,
            value,
            ..
        } = place
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

    /// The value of a missing element of an array.
    fn zero(&self, g: GlobalId) -> Cell {
        match self.program.globals.get(g.index()).map(|g| &g.kind) {
            Some(
                GlobalKind::Array {
                    value: ElemTy::Scalar(ty),
                    ..
                }
                | GlobalKind::Scalar(ty),
            ) => Cell::Scalar(Value::zero(*ty)),
            Some(
                GlobalKind::Array {
                    value: ElemTy::Stats(spec),
                    ..
                }
                | GlobalKind::Stats(spec),
            ) => Cell::Stats(Stat::new(spec)),
            None => Cell::Scalar(Value::Long(0)),
        }
    }

    fn hist(&self, g: GlobalId) -> Option<Hist> {
        let spec: &StatsSpec = match &self.program.globals.get(g.index())?.kind {
            GlobalKind::Array {
                value: ElemTy::Stats(spec),
                ..
            }
            | GlobalKind::Stats(spec) => spec,
            _ => return None,
        };
        spec.hist
    }

    /// Reads a scalar.
    pub fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        match self.shared(g) {
            Some((kernel, GlobalPlace::Scalar { offset, ty })) => Ok(kernel
                .state()
                .get(*offset, &ValueLayout::Scalar(*ty))
                .value()),
            _ => self.mem.gload(g),
        }
    }

    /// Sets a scalar.
    pub fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        match self.shared(g) {
            Some((kernel, GlobalPlace::Scalar { offset, ty })) => {
                let cell = Cell::Scalar(v.truncated_to(*ty).0);
                kernel
                    .state()
                    .set(*offset, &ValueLayout::Scalar(*ty), &cell);
                Ok(())
            }
            _ => self.mem.gstore(g, v),
        }
    }

    /// Adds to a number atomically; returns the old value.
    pub fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        match self.shared(g) {
            Some((
                kernel,
                GlobalPlace::Scalar {
                    offset,
                    ty: Ty::Long,
                },
            )) => Ok(kernel
                .state()
                .shared(*offset)
                .fetch_add(v as u64, Ordering::AcqRel) as i64),
            _ => self.mem.gadd(g, v),
        }
    }

    /// Reads an element.
    pub fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        match self.hash(g) {
            Some(mut hash) => Ok(hash.get(keys)?.unwrap_or_else(|| self.zero(g)).value()),
            None => self.mem.aget(g, keys),
        }
    }

    /// Sets an element.
    pub fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        match self.hash(g) {
            Some(mut hash) => hash.set(keys, &Cell::Scalar(v)),
            None => self.mem.aset(g, keys, v),
        }
    }

    /// Adds to an element.
    pub fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        match self.hash(g) {
            Some(mut hash) => {
                let before = hash.get(keys)?.map_or(0, |c| c.value().as_long());
                hash.set(keys, &Cell::Scalar(Value::Long(before.wrapping_add(v))))?;
                Ok(before)
            }
            None => self.mem.aadd(g, keys, v),
        }
    }

    /// Whether an element matches.
    pub fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        match self.hash(g) {
            Some(mut hash) => match exact(keys) {
                Some(keys) => Ok(hash.get(&keys)?.is_some()),
                None => Ok(!hash.elements(keys)?.is_empty()),
            },
            None => self.mem.ahas(g, keys),
        }
    }

    /// Deletes the elements that match.
    pub fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        let Some(mut hash) = self.hash(g) else {
            return self.mem.adel(g, keys);
        };
        let gone = match exact(keys) {
            Some(keys) => vec![keys],
            None => {
                let found = hash.elements(keys)?;
                found.iter().map(|e| e.keys.to_vec()).collect()
            }
        };
        gone.iter().try_for_each(|keys| hash.remove(keys))
    }

    /// Empties an array or a statistic, sets a scalar to 0 or "".
    pub fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        if let Some(mut hash) = self.hash(g) {
            return hash.table.drain().map(drop).map_err(system);
        }
        match self.clear_shared(g) {
            true => Ok(()),
            false => self.mem.gclear(g),
        }
    }

    /// Clears a scalar or a statistic in the shared block; false for other globals.
    fn clear_shared(&self, g: GlobalId) -> bool {
        let (kernel, offset, layout) = match self.shared(g) {
            Some((kernel, GlobalPlace::Scalar { offset, ty })) => {
                (kernel, *offset, ValueLayout::Scalar(*ty))
            }
            Some((kernel, GlobalPlace::Stats { offset, agg })) => {
                (kernel, *offset, ValueLayout::Stats(agg.clone()))
            }
            _ => return false,
        };
        kernel.state().set(offset, &layout, &self.zero(g));
        true
    }

    /// Adds a value to a statistic.
    pub fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        let hist = self.hist(g);
        match self.stat_change(g, keys, &mut |s| s.add(hist, v))? {
            true => Ok(()),
            false => self.mem.stat_add(g, keys, v),
        }
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
        let mut add = |cell: Option<Cell>, zero: Cell| {
            let mut cell = cell.unwrap_or(zero);
            if let Cell::Stats(s) = &mut cell {
                change(s);
            }
            cell
        };
        if let Some(mut hash) = self.hash(g) {
            let sum = add(hash.get(keys)?, self.zero(g));
            return hash.set(keys, &sum).map(|()| true);
        }
        match self.shared(g) {
            Some((kernel, GlobalPlace::Stats { offset, agg })) => {
                let layout = ValueLayout::Stats(agg.clone());
                let sum = add(Some(kernel.state().get(*offset, &layout)), self.zero(g));
                kernel.state().set(*offset, &layout, &sum);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// A copy of a statistic; `None` if it is missing or empty.
    pub fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        let cell = match (self.hash(g), self.shared(g)) {
            (Some(mut hash), _) => hash.get(keys)?,
            (None, Some((kernel, GlobalPlace::Stats { offset, agg }))) => Some(
                kernel
                    .state()
                    .get(*offset, &ValueLayout::Stats(agg.clone())),
            ),
            _ => return self.mem.stat_get(g, keys),
        };
        Ok(match cell {
            Some(Cell::Stats(s)) if !s.is_empty() => Some(s),
            _ => None,
        })
    }

    /// Whether an array's elements are in a map of the kernel, rather than in a copy.
    pub fn in_kernel(&self, g: GlobalId) -> bool {
        self.hash(g).is_some()
    }

    /// A copy of the matching elements.
    pub fn elements(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
    ) -> Result<Vec<Element>, Fault> {
        match self.hash(g) {
            Some(mut hash) => hash.elements(slice),
            None => self.mem.elements(g, slice),
        }
    }
}

/// The keys of a pattern without `*`.
fn exact(keys: &[Option<Value>]) -> Option<Vec<Value>> {
    keys.iter().cloned().collect()
}

#[cfg(test)]
mod tests;
