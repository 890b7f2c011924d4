//! Globals in ordinary memory. Arrays keep the order in which elements came: an unsorted
//! `foreach` goes through them so, and a wrapping array gives up the oldest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Fault, Value};
use crate::stats::Stat;
use crate::{ElemTy, Global, GlobalId, GlobalKind, Init, StatsSpec, Ty};

/// The message of a full array that does not wrap.
pub const ARRAY_OVERFLOW: &str = "Array overflow, check MAXMAPENTRIES";

/// An element's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// A number or a string.
    Scalar(Value),
    /// A statistic.
    Stats(Stat),
}

impl Cell {
    /// What `foreach (v = ...)` gives: the value, or a statistic's count.
    pub fn value(&self) -> Value {
        match self {
            Cell::Scalar(v) => v.clone(),
            Cell::Stats(s) => Value::Long(s.count as i64),
        }
    }
}

/// A copy of an element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its keys.
    pub keys: Arc<[Value]>,
    /// Its value.
    pub cell: Cell,
}

/// An array in memory.
#[derive(Debug, Clone, Default)]
pub struct MemArray {
    cells: HashMap<Arc<[Value]>, (u64, Cell)>,
    order: BTreeMap<u64, Arc<[Value]>>,
    next: u64,
    max: usize,
    wrap: bool,
}

impl MemArray {
    /// An empty one for at most `max` elements.
    pub fn new(max: u32, wrap: bool) -> MemArray {
        MemArray {
            max: max as usize,
            wrap,
            ..MemArray::default()
        }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// An element's value.
    pub fn get(&self, keys: &[Value]) -> Option<&Cell> {
        self.cells.get(keys).map(|(_, c)| c)
    }

    /// An element's value, added as `new()` when it is missing.
    ///
    /// # Errors
    /// `Array overflow, check MAXMAPENTRIES` when it is full and does not wrap.
    pub fn entry(
        &mut self,
        keys: &[Value],
        new: impl FnOnce() -> Cell,
    ) -> Result<&mut Cell, Fault> {
        if !self.cells.contains_key(keys) {
            if self.cells.len() >= self.max {
                if !self.wrap {
                    return Err(ARRAY_OVERFLOW.into());
                }
                if let Some((_, oldest)) = self.order.pop_first() {
                    self.cells.remove(&oldest);
                }
            }
            let keys: Arc<[Value]> = keys.into();
            self.order.insert(self.next, keys.clone());
            self.cells.insert(keys, (self.next, new()));
            self.next += 1;
        }
        match self.cells.get_mut(keys) {
            Some((_, cell)) => Ok(cell),
            None => Err(ARRAY_OVERFLOW.into()),
        }
    }

    /// Deletes an element.
    pub fn remove(&mut self, keys: &[Value]) {
        if let Some((seq, _)) = self.cells.remove(keys) {
            self.order.remove(&seq);
        }
    }

    /// Deletes all elements.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.order.clear();
    }

    /// The elements in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<[Value]>, &Cell)> {
        self.order
            .values()
            .filter_map(|k| self.cells.get(k).map(|(_, c)| (k, c)))
    }
}

/// Whether keys match a pattern; `None` is `*`, and an empty pattern matches everything.
pub fn matches(pattern: &[Option<Value>], keys: &[Value]) -> bool {
    pattern
        .iter()
        .zip(keys)
        .all(|(p, k)| p.as_ref().is_none_or(|p| p == k))
}

#[derive(Debug, Clone)]
enum Store {
    Scalar(Ty, Value),
    Stats(StatsSpec, Stat),
    Array(ElemTy, MemArray),
}

/// All globals of a program in memory: for globals that only the controller touches, for the
/// base values of per-CPU ones, and for tests. Operations on a global of another kind (which
/// the verifier refuses) read as 0 and change nothing.
#[derive(Debug, Clone)]
pub struct MemGlobals {
    stores: Vec<Store>,
}

fn wrong_kind() -> Fault {
    Fault::from("operation on a global of another kind")
}

impl MemGlobals {
    /// The globals with their initial values.
    pub fn new(globals: &[Global]) -> MemGlobals {
        let stores = globals.iter().map(|g| match &g.kind {
            GlobalKind::Scalar(ty) => {
                let v = match &g.init {
                    Some(Init::Long(n)) => Value::Long(*n).fit(*ty).0,
                    Some(Init::Str(s)) => Value::Str(s.clone()).fit(*ty).0,
                    None => Value::zero(*ty),
                };
                Store::Scalar(*ty, v)
            }
            GlobalKind::Stats(spec) => Store::Stats(spec.clone(), Stat::new(spec)),
            GlobalKind::Array {
                value, max, wrap, ..
            } => Store::Array(value.clone(), MemArray::new(*max, *wrap)),
        });
        MemGlobals {
            stores: stores.collect(),
        }
    }

    fn store(&mut self, g: GlobalId) -> Result<&mut Store, Fault> {
        self.stores.get_mut(g.index()).ok_or_else(wrong_kind)
    }

    /// The array of a global; `None` for a scalar.
    pub fn array(&self, g: GlobalId) -> Option<&MemArray> {
        match self.stores.get(g.index()) {
            Some(Store::Array(_, a)) => Some(a),
            _ => None,
        }
    }

    /// [`super::Env::gload`].
    ///
    /// # Errors
    /// Only for a global of another kind, as for all functions here that name no error.
    pub fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        match self.store(g)? {
            Store::Scalar(_, v) => Ok(v.clone()),
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::gstore`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        match self.store(g)? {
            Store::Scalar(ty, old) => *old = v.fit(*ty).0,
            _ => return Err(wrong_kind()),
        }
        Ok(())
    }

    /// [`super::Env::gadd`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        match self.store(g)? {
            Store::Scalar(Ty::Long, old) => {
                let before = old.as_long();
                *old = Value::Long(before.wrapping_add(v));
                Ok(before)
            }
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::aget`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        match self.store(g)? {
            Store::Array(ElemTy::Scalar(ty), a) => {
                Ok(a.get(keys).map_or_else(|| Value::zero(*ty), Cell::value))
            }
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::aset`].
    ///
    /// # Errors
    /// [`ARRAY_OVERFLOW`].
    pub fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        match self.store(g)? {
            Store::Array(ElemTy::Scalar(ty), a) => {
                let ty = *ty;
                *a.entry(keys, || Cell::Scalar(Value::zero(ty)))? = Cell::Scalar(v.fit(ty).0);
                Ok(())
            }
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::aadd`].
    ///
    /// # Errors
    /// [`ARRAY_OVERFLOW`].
    pub fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        match self.store(g)? {
            Store::Array(ElemTy::Scalar(Ty::Long), a) => {
                let cell = a.entry(keys, || Cell::Scalar(Value::Long(0)))?;
                let before = cell.value().as_long();
                *cell = Cell::Scalar(Value::Long(before.wrapping_add(v)));
                Ok(before)
            }
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::ahas`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        let Store::Array(_, a) = self.store(g)? else {
            return Err(wrong_kind());
        };
        Ok(match keys.iter().cloned().collect::<Option<Vec<Value>>>() {
            Some(exact) => a.get(&exact).is_some(),
            None => a.iter().any(|(k, _)| matches(keys, k)),
        })
    }

    /// [`super::Env::adel`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        let Store::Array(_, a) = self.store(g)? else {
            return Err(wrong_kind());
        };
        match keys.iter().cloned().collect::<Option<Vec<Value>>>() {
            Some(exact) => a.remove(&exact),
            None => {
                let gone: Vec<_> = a
                    .iter()
                    .filter(|(k, _)| matches(keys, k))
                    .map(|(k, _)| k.clone())
                    .collect();
                gone.iter().for_each(|k| a.remove(k));
            }
        }
        Ok(())
    }

    /// [`super::Env::gclear`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        match self.store(g)? {
            Store::Scalar(ty, v) => *v = Value::zero(*ty),
            Store::Stats(spec, s) => *s = Stat::new(spec),
            Store::Array(_, a) => a.clear(),
        }
        Ok(())
    }

    /// The statistic to add to, made when it is missing.
    fn stat_mut(&mut self, g: GlobalId, keys: &[Value]) -> Result<(&StatsSpec, &mut Stat), Fault> {
        match self.store(g)? {
            Store::Stats(spec, s) => Ok((spec, s)),
            Store::Array(ElemTy::Stats(spec), a) => {
                match a.entry(keys, || Cell::Stats(Stat::new(spec)))? {
                    Cell::Stats(s) => Ok((spec, s)),
                    Cell::Scalar(_) => Err(wrong_kind()),
                }
            }
            _ => Err(wrong_kind()),
        }
    }

    /// [`super::Env::stat_add`].
    ///
    /// # Errors
    /// [`ARRAY_OVERFLOW`].
    pub fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        let (spec, s) = self.stat_mut(g, keys)?;
        s.add(spec.hist, v);
        Ok(())
    }

    /// Adds a whole statistic, as a drain of per-CPU deltas does.
    ///
    /// # Errors
    /// [`ARRAY_OVERFLOW`].
    pub fn stat_merge(&mut self, g: GlobalId, keys: &[Value], delta: &Stat) -> Result<(), Fault> {
        self.stat_mut(g, keys)?.1.merge(delta);
        Ok(())
    }

    /// [`super::Env::stat_get`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        let s = match self.store(g)? {
            Store::Stats(_, s) => Some(&*s),
            Store::Array(ElemTy::Stats(_), a) => match a.get(keys) {
                Some(Cell::Stats(s)) => Some(s),
                _ => None,
            },
            _ => return Err(wrong_kind()),
        };
        Ok(s.filter(|s| !s.is_empty()).cloned())
    }

    /// [`super::Env::elements`].
    ///
    /// # Errors
    /// See [`MemGlobals::gload`].
    pub fn elements(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
    ) -> Result<Vec<Element>, Fault> {
        let Store::Array(_, a) = self.store(g)? else {
            return Err(wrong_kind());
        };
        Ok(a.iter()
            .filter(|(k, _)| matches(slice, k))
            .map(|(k, c)| Element {
                keys: k.clone(),
                cell: c.clone(),
            })
            .collect())
    }
}
