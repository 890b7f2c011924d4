//! Globals in ordinary memory. Arrays keep insertion order: an unsorted `foreach` follows it, and a
//! wrapping array evicts the oldest element.

use super::array::MemArray;
use super::element::Element;
use super::env::Globals;
use super::foreach::ForeachIter;
use super::value::{Fault, Value};
use crate::stats::Stat;
use crate::{ElemTy, Global, GlobalId, GlobalKind, Init, SortSpec, StatsSpec, Ty};

#[derive(Debug, Clone)]
enum GlobalStore {
    Scalar(Ty, Value),
    Stats(StatsSpec, Stat),
    Array(ElemTy, MemArray),
}

/// All globals of a program in memory: for globals that only the controller touches, for the
/// base values of per-CPU ones, and for tests. Operations on a global of another kind (which
/// the verifier refuses) read as 0 and change nothing.
#[derive(Debug, Clone)]
pub struct MemGlobals {
    stores: Vec<GlobalStore>,
}

fn wrong_kind() -> Fault {
    Fault::from("operation on a global of another kind")
}

/// Adds to a number; returns the value before.
fn add(number: &mut Value, v: i64) -> i64 {
    let before = number.as_long();
    *number = Value::Long(before.wrapping_add(v));
    before
}

impl MemGlobals {
    /// The globals with their initial values.
    pub fn new(globals: &[Global]) -> MemGlobals {
        let stores = globals.iter().map(|g| match &g.kind {
            GlobalKind::Scalar(ty) => {
                let v = match &g.init {
                    Some(Init::Long(n)) => Value::Long(*n).truncated_to(*ty).0,
                    Some(Init::Str(s)) => Value::Str(s.clone()).truncated_to(*ty).0,
                    None => Value::zero(*ty),
                };
                GlobalStore::Scalar(*ty, v)
            }
            GlobalKind::Stats(spec) => GlobalStore::Stats(spec.clone(), Stat::new(spec)),
            GlobalKind::Array {
                keys,
                value,
                max,
                wrap,
            } => {
                let array = MemArray::new(keys.len(), value, *max, *wrap);
                GlobalStore::Array(value.clone(), array)
            }
        });
        MemGlobals {
            stores: stores.collect(),
        }
    }

    fn store(&mut self, g: GlobalId) -> Result<&mut GlobalStore, Fault> {
        self.stores.get_mut(g.index()).ok_or_else(wrong_kind)
    }

    fn scalar(&mut self, g: GlobalId) -> Result<(Ty, &mut Value), Fault> {
        match self.store(g)? {
            GlobalStore::Scalar(ty, v) => Ok((*ty, v)),
            _ => Err(wrong_kind()),
        }
    }

    /// An array of integers or strings.
    fn scalars(&mut self, g: GlobalId) -> Result<(Ty, &mut MemArray), Fault> {
        match self.store(g)? {
            GlobalStore::Array(ElemTy::Scalar(ty), a) => Ok((*ty, a)),
            _ => Err(wrong_kind()),
        }
    }

    fn any_array(&mut self, g: GlobalId) -> Result<&mut MemArray, Fault> {
        match self.store(g)? {
            GlobalStore::Array(_, a) => Ok(a),
            _ => Err(wrong_kind()),
        }
    }

    /// The array of a global; `None` for a scalar.
    pub fn array(&self, g: GlobalId) -> Option<&MemArray> {
        match self.stores.get(g.index()) {
            Some(GlobalStore::Array(_, a)) => Some(a),
            _ => None,
        }
    }

    /// Adds a whole statistic, as a drain of per-CPU deltas does.
    ///
    /// # Errors
    /// [`super::ARRAY_OVERFLOW`]; an error for a global of another kind.
    pub fn stat_merge(&mut self, g: GlobalId, keys: &[Value], delta: &Stat) -> Result<(), Fault> {
        match self.store(g)? {
            GlobalStore::Stats(_, s) => s.merge(delta),
            GlobalStore::Array(_, a) => {
                return a.merge(keys, delta)?.then_some(()).ok_or_else(wrong_kind);
            }
            GlobalStore::Scalar(..) => return Err(wrong_kind()),
        }
        Ok(())
    }
}

impl Globals for MemGlobals {
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault> {
        Ok(self.scalar(g)?.1.clone())
    }

    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault> {
        let (ty, old) = self.scalar(g)?;
        *old = v.truncated_to(ty).0;
        Ok(())
    }

    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault> {
        match self.scalar(g)? {
            (Ty::Long, number) => Ok(add(number, v)),
            _ => Err(wrong_kind()),
        }
    }

    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault> {
        let (ty, a) = self.scalars(g)?;
        Ok(a.value(keys).cloned().unwrap_or_else(|| Value::zero(ty)))
    }

    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault> {
        let (ty, a) = self.scalars(g)?;
        *a.value_mut(keys)?.ok_or_else(wrong_kind)? = v.truncated_to(ty).0;
        Ok(())
    }

    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault> {
        match self.scalars(g)? {
            (Ty::Long, a) => Ok(add(a.value_mut(keys)?.ok_or_else(wrong_kind)?, v)),
            _ => Err(wrong_kind()),
        }
    }

    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault> {
        let a = self.any_array(g)?;
        let exact: Option<Vec<Value>> = keys.iter().cloned().collect();
        Ok(exact.map_or_else(|| a.any(keys), |exact| a.has(&exact)))
    }

    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault> {
        let a = self.any_array(g)?;
        match keys.iter().cloned().collect::<Option<Vec<Value>>>() {
            Some(exact) => a.remove(&exact),
            None => a.remove_all(keys),
        }
        Ok(())
    }

    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault> {
        match self.store(g)? {
            GlobalStore::Scalar(ty, v) => *v = Value::zero(*ty),
            GlobalStore::Stats(spec, s) => *s = Stat::new(spec),
            GlobalStore::Array(_, a) => a.clear(),
        }
        Ok(())
    }

    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault> {
        match self.store(g)? {
            GlobalStore::Stats(spec, s) => s.add(spec.hist, v),
            GlobalStore::Array(_, a) => {
                return a.add(keys, v)?.then_some(()).ok_or_else(wrong_kind);
            }
            GlobalStore::Scalar(..) => return Err(wrong_kind()),
        }
        Ok(())
    }

    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault> {
        let s = match self.store(g)? {
            GlobalStore::Stats(_, s) => Some(s.clone()),
            GlobalStore::Array(ElemTy::Stats(_), a) => a.stat(keys),
            _ => return Err(wrong_kind()),
        };
        Ok(s.filter(|s| !s.is_empty()))
    }

    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        Ok(self.any_array(g)?.elements(slice))
    }

    fn iterate(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> Result<ForeachIter, Fault> {
        Ok(self.any_array(g)?.iterate(slice, sort, limit))
    }
}
