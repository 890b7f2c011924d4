//! Operations on globals by storage class. Globals of the controller are in ordinary memory, with
//! the per-CPU deltas already drained into it. Globals that it shares with the kernel are words of
//! the state memory, or need system calls on a hash map.

mod hash;

use std::sync::atomic::Ordering;

use spile_bpf::layout::{GlobalPlace, ValueLayout};
use spile_ir::interp::{Cell, Element, Fault, MemGlobals, Value};
use spile_ir::stats::Stat;
use spile_ir::{ElemTy, GlobalId, GlobalKind, Hist, Program, StatsSpec, Ty};

use crate::shared::kernel_state::KernelState;
pub use hash::Texts;
use hash::{Hash, system};

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
    pub texts: &'a Texts,
}

/// The value of a global at one moment, in the kernel's form.
pub enum Raw {
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
    pub fn raw(&self, g: GlobalId) -> Result<Option<Raw>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(Some(Raw::Entries(hash.table.entries().map_err(system)?)));
        }
        let layout = match self.shared(g) {
            Some((_, GlobalPlace::Scalar { offset, ty })) => (*offset, ValueLayout::Scalar(*ty)),
            Some((_, GlobalPlace::Stats { offset, agg })) => {
                (*offset, ValueLayout::Stats(agg.clone()))
            }
            _ => return Ok(None),
        };
        let kernel = self.kernel.map(|k| k.state().get(layout.0, &layout.1));
        Ok(kernel.map(Raw::Cell))
    }

    /// Reads the value like [`Globals::raw`], and empties the global.
    pub fn take(&self, g: GlobalId) -> Result<Option<Raw>, Fault> {
        if let Some(mut hash) = self.hash(g) {
            return Ok(Some(Raw::Entries(hash.table.drain().map_err(system)?)));
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
    pub fn copy(&mut self, g: GlobalId, raw: Raw) -> Result<(), Fault> {
        let elements = match raw {
            Raw::Cell(cell) => vec![(Vec::new(), cell)],
            Raw::Entries(entries) => {
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

    fn hash(&self, g: GlobalId) -> Option<Hash<'a>> {
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
        Some(Hash {
            kernel,
            table,
            types: keys,
            seq: *seq,
            wrap: *wrap,
            value,
            texts: self.texts.of(g),
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
                let cell = Cell::Scalar(v.fit(*ty).0);
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
mod tests {
    use super::*;
    use crate::shared::kernel_state::BoxedTable;
    use crate::shared::maps::PlainMap;
    use crate::shared::state::{key_bytes, word_of};
    use crate::text::symbolic::Symbolizer;
    use spile_bpf::layout::{AggLayout, Colocation, GlobalLayout, Layout, PerCpuArray};
    use spile_ir::interp::ARRAY_OVERFLOW;
    use spile_ir::storage::Storage;
    use spile_ir::{Global, Init, SiteId};
    use std::cell::RefCell;

    fn global(kind: GlobalKind, storage: Storage) -> Global {
        Global {
            name: "g".into(),
            kind,
            init: None,
            storage,
            display: false,
            site: SiteId(0),
        }
    }

    fn spec() -> StatsSpec {
        StatsSpec {
            sum: true,
            max: true,
            ..StatsSpec::default()
        }
    }

    fn agg() -> AggLayout {
        AggLayout {
            count: 0,
            sum: Some(8),
            min: None,
            max: Some(16),
            sumsq: None,
            hist: None,
            size: 24,
        }
    }

    const LOCKED: Storage = Storage::Shared { lock: true };
    const NUMBER: GlobalId = GlobalId(0);
    const TEXT: GlobalId = GlobalId(1);
    const STATS: GlobalId = GlobalId(2);
    const ARRAY: GlobalId = GlobalId(3);
    const WRAP: GlobalId = GlobalId(4);
    const DELTAS: GlobalId = GlobalId(5);
    const OWN: GlobalId = GlobalId(6);
    const STAT_ARRAY: GlobalId = GlobalId(7);

    fn array(value: ElemTy, max: u32, wrap: bool) -> GlobalKind {
        GlobalKind::Array {
            keys: vec![Ty::Str(16), Ty::Long],
            value,
            max,
            wrap,
        }
    }

    fn program() -> Program {
        let long = || ElemTy::Scalar(Ty::Long);
        let mut number = global(
            GlobalKind::Scalar(Ty::Long),
            Storage::Shared { lock: false },
        );
        number.init = Some(Init::Long(40));
        Program {
            globals: vec![
                number,
                global(GlobalKind::Scalar(Ty::Str(16)), LOCKED),
                global(GlobalKind::Stats(spec()), LOCKED),
                global(array(long(), 3, false), LOCKED),
                global(array(long(), 3, true), LOCKED),
                global(array(long(), 3, false), Storage::PerCpu { double: true }),
                global(array(long(), 3, false), Storage::Controller),
                global(array(ElemTy::Stats(spec()), 3, false), LOCKED),
            ],
            ..Program::default()
        }
    }

    /// The program's globals in plain memory instead of the kernel's.
    fn kernel() -> KernelState {
        let keys = vec![Ty::Str(16), Ty::Long];
        let hash = |seq, value| GlobalPlace::Hash {
            map: "m".into(),
            key_size: 24,
            keys: keys.clone(),
            seq,
            wrap: seq,
            value,
            max: 3,
            field: None,
        };
        let long = || ValueLayout::Scalar(Ty::Long);
        let deltas = GlobalPlace::PerCpuArray(PerCpuArray {
            cache: 64,
            gen_stride: 512,
            slots: 4,
            slot_size: 40,
            maps: vec!["m0".into(), "m1".into()],
            key_size: 24,
            keys: keys.clone(),
            value: long(),
            colocated: Colocation {
                of: None,
                at: 0,
                size: 8,
            },
            spilt: None,
            max: 3,
            wraps: false,
            large: None,
        });
        let places = [
            GlobalPlace::Scalar {
                offset: 128,
                ty: Ty::Long,
            },
            GlobalPlace::Scalar {
                offset: 136,
                ty: Ty::Str(16),
            },
            GlobalPlace::Stats {
                offset: 152,
                agg: agg(),
            },
            hash(false, long()),
            hash(true, long()),
            deltas,
        ];
        let place = |place| Some(GlobalLayout { lock: None, place });
        let mut globals: Vec<_> = places.into_iter().map(place).collect();
        globals.push(None);
        globals.push(place(hash(false, ValueLayout::Stats(agg()))));
        let layout = Layout {
            shared_size: 256,
            cpu_stride: 2048,
            cpus: 2,
            globals,
            handlers: vec![],
            programs: vec![],
            records: vec![],
            stacks: None,
            tree: None,
            pages: false,
            critical: None,
        };
        let table = || -> BoxedTable {
            RefCell::new(Box::new(PlainMap {
                max: 3,
                ..PlainMap::default()
            }))
        };
        let counts = [0, 0, 0, 1, 1, 2, 0, 1];
        let tables = counts
            .iter()
            .map(|n| (0..*n).map(|_| table()).collect())
            .collect();
        KernelState::plain(&layout, tables)
    }

    fn key(name: &str, n: i64) -> Vec<Value> {
        vec![name.into(), n.into()]
    }

    fn some(keys: &[Value]) -> Vec<Option<Value>> {
        keys.iter().cloned().map(Some).collect()
    }

    /// Runs with the globals of [`program`] and [`kernel`].
    fn with(f: impl FnOnce(&mut Globals<'_>)) {
        let (program, kernel) = (program(), kernel());
        kernel.initialise(&program);
        let mut mem = MemGlobals::new(&program.globals);
        f(&mut Globals {
            program: &program,
            kernel: Some(&kernel),
            mem: &mut mem,
            copied: &[],
            texts: &Texts::default(),
        });
    }

    #[test]
    fn shared_scalars_are_words() {
        with(|g| {
            assert_eq!(g.gload(NUMBER).unwrap(), Value::Long(40));
            assert_eq!(g.gadd(NUMBER, 2).unwrap(), 40);
            assert_eq!(
                g.kernel
                    .unwrap()
                    .state()
                    .shared(128)
                    .load(Ordering::Relaxed),
                42
            );
            g.gstore(TEXT, "a text that is far too long".into())
                .unwrap();
            assert_eq!(g.gload(TEXT).unwrap(), "a text that is ".into());
            g.gclear(TEXT).unwrap();
            assert_eq!(g.gload(TEXT).unwrap(), "".into());
            assert_eq!(g.stat_get(STATS, &[]).unwrap(), None);
            g.stat_add(STATS, &[], -4).unwrap();
            g.stat_add(STATS, &[], -6).unwrap();
            let stat = g.stat_get(STATS, &[]).unwrap().unwrap();
            assert_eq!((stat.count, stat.sum, stat.max), (2, -10, -4));
        });
    }

    #[test]
    fn arrays_behave_the_same_wherever_they_are() {
        for id in [ARRAY, OWN, DELTAS] {
            with(|g| {
                g.aset(id, &key("a", 1), 5.into()).unwrap();
                assert_eq!(g.aadd(id, &key("a", 1), 2).unwrap(), 5);
                assert_eq!(g.aadd(id, &key("b", 1), 1).unwrap(), 0);
                g.aset(id, &key("b", 2), 9.into()).unwrap();
                let full = g.aset(id, &key("c", 1), 1.into()).unwrap_err();
                assert_eq!(full.message(), ARRAY_OVERFLOW.as_bytes());
                assert_eq!(g.aget(id, &key("a", 1)).unwrap(), 7.into());
                assert_eq!(g.aget(id, &key("z", 1)).unwrap(), 0.into());
                assert!(g.ahas(id, &some(&key("b", 2))).unwrap());
                assert!(g.ahas(id, &[None, Some(2.into())]).unwrap());
                assert!(!g.ahas(id, &[Some("a".into()), Some(2.into())]).unwrap());
                let slice = [Some("b".into()), None];
                let keys: Vec<_> = g
                    .elements(id, &slice)
                    .unwrap()
                    .iter()
                    .map(|e| e.keys.to_vec())
                    .collect();
                assert_eq!(keys, [key("b", 1), key("b", 2)]);
                g.adel(id, &slice).unwrap();
                assert_eq!(g.elements(id, &[]).unwrap().len(), 1);
                g.adel(id, &some(&key("a", 1))).unwrap();
                assert!(g.elements(id, &[]).unwrap().is_empty());
                g.aset(id, &key("a", 1), 5.into()).unwrap();
                g.gclear(id).unwrap();
                assert!(g.elements(id, &[]).unwrap().is_empty());
            });
        }
    }

    #[test]
    fn wrapping_arrays_give_up_the_oldest() {
        with(|g| {
            for n in [0, 1, 2, 0, 3, 4] {
                // An update, here of 0, does not make an element younger.
                g.aset(WRAP, &key("k", n), n.into()).unwrap();
            }
            let left: Vec<_> = g
                .elements(WRAP, &[])
                .unwrap()
                .iter()
                .map(|e| e.keys[1].as_long())
                .collect();
            assert_eq!(left, [2, 3, 4]);
            g.aset(WRAP, &key("k", 2), 22.into()).unwrap();
            assert_eq!(g.aget(WRAP, &key("k", 2)).unwrap(), 22.into());
        });
    }

    #[test]
    fn statistics_in_a_map() {
        with(|g| {
            assert_eq!(g.stat_get(STAT_ARRAY, &key("a", 1)).unwrap(), None);
            g.stat_add(STAT_ARRAY, &key("a", 1), 3).unwrap();
            g.stat_add(STAT_ARRAY, &key("a", 1), 4).unwrap();
            let stat = g.stat_get(STAT_ARRAY, &key("a", 1)).unwrap().unwrap();
            assert_eq!((stat.count, stat.sum, stat.max), (2, 7, 4));
        });
    }

    #[test]
    fn drains_move_deltas_and_report_what_does_not_fit() {
        let (program, mut kernel) = (program(), kernel());
        let mut mem = MemGlobals::new(&program.globals);
        let hit = |kernel: &KernelState, cpu: u32, slot: u32, n: i64, by: u64| {
            let at = 64 + kernel.state().generation() * 512 + slot * 40;
            let key = key_bytes(&[Ty::Str(16), Ty::Long], &key("k", n));
            kernel.state().cpu(cpu, at).store(1, Ordering::Relaxed);
            for o in (0..24).step_by(8) {
                let word = word_of(&key, o);
                kernel
                    .state()
                    .cpu(cpu, at + 8 + o)
                    .store(word, Ordering::Relaxed);
            }
            kernel
                .state()
                .cpu(cpu, at + 32)
                .fetch_add(by, Ordering::Relaxed);
        };
        hit(&kernel, 0, 0, 1, 5);
        hit(&kernel, 1, 3, 1, 6);
        assert_eq!(
            kernel
                .drain(&program, &mut mem, &Symbolizer::default())
                .unwrap(),
            []
        );
        hit(&kernel, 1, 2, 1, 10);
        for n in 2..5 {
            hit(&kernel, 0, n as u32 - 2, n, 1);
        }
        assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 11.into());
        assert_eq!(
            kernel
                .drain(&program, &mut mem, &Symbolizer::default())
                .unwrap(),
            [(DELTAS, 1)]
        );
        assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 21.into());
        hit(&kernel, 0, 0, 1, 100);
        assert_eq!(
            kernel
                .final_drain(&program, &mut mem, &Symbolizer::default())
                .unwrap(),
            []
        );
        assert_eq!(mem.aget(DELTAS, &key("k", 1)).unwrap(), 121.into());
        assert_eq!(
            kernel
                .drain(&program, &mut mem, &Symbolizer::default())
                .unwrap(),
            []
        );
    }
}
