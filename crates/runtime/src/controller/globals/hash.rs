//! Arrays that the controller shares with kernel handlers. If keys contain marks, elements whose
//! keys have the same text are one element here.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use spile_cast::Cast;
use spile_ir::interp::{ARRAY_OVERFLOW, Cell, Element, Fault, Value, matches};
use spile_ir::marks::Marks;
use spile_ir::{GlobalId, GlobalKind, Inst, Program, Ty};
use spile_layout::{ValueLayout, shared};

use crate::shared::kernel_state::KernelState;
use crate::shared::maps::ByteTable;
use crate::shared::state::{cell_bytes, key_bytes, read_cell, read_keys, word_of};
use crate::text::symbolic::Symbolizer;

/// The raw keys in a map, by the keys with their texts.
type KeyAliases = HashMap<Vec<Value>, Vec<Vec<u8>>>;

/// The texts that the marks in a program's keys stand for.
#[derive(Default)]
pub struct MarkTexts {
    /// Renders the texts.
    pub symbolic: Symbolizer,
    /// Arrays whose keys can contain marks, and whether kernel handlers only add to their elements.
    arrays: HashMap<GlobalId, bool>,
    /// Aliases that were found since the current handler started.
    aliases: RefCell<HashMap<GlobalId, KeyAliases>>,
}

impl MarkTexts {
    /// Without marks, for strings of at most `longest` bytes.
    pub fn of_strings(longest: usize) -> MarkTexts {
        MarkTexts {
            symbolic: Symbolizer::without_marks(longest),
            ..MarkTexts::default()
        }
    }

    /// Notes the arrays of a program that marks can reach.
    pub fn register(&mut self, program: &Program, marks: &Marks) {
        let mut arrays = HashMap::new();
        for (i, global) in program.globals.iter().enumerate() {
            let g = GlobalId(i.fit());
            if matches!(global.kind, GlobalKind::Array { .. }) && marks.in_keys(g) {
                let stores = |i: &Inst| matches!(i, Inst::ASet { g: to, .. } if *to == g);
                let mut insts = program.kernel_handlers().flat_map(|h| h.body.insts());
                let stored = insts.any(stores);
                arrays.insert(g, !stored);
            }
        }
        self.arrays = arrays;
    }

    /// Whether keys of an array can contain marks.
    pub fn marks(&self, g: GlobalId) -> bool {
        self.arrays.contains_key(&g)
    }

    /// The texts for the keys of one array.
    pub(super) fn for_array(&self, g: GlobalId) -> Option<ArrayTexts<'_>> {
        let adds = *self.arrays.get(&g)?;
        Some(ArrayTexts {
            marks: self,
            g,
            adds,
        })
    }

    /// The text of a string that contains a mark; `None` for any other value.
    pub fn text(&self, v: &Value) -> Option<Value> {
        match self.symbolic.render(v.as_bytes()) {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(Value::from(&text[..])),
        }
    }

    /// Starts a handler: the maps may have changed.
    pub fn begin(&self) {
        self.aliases.borrow_mut().clear();
    }
}

/// The texts for the keys of one array.
#[derive(Clone, Copy)]
pub(super) struct ArrayTexts<'a> {
    marks: &'a MarkTexts,
    g: GlobalId,
    adds: bool,
}

impl ArrayTexts<'_> {
    fn keys(&self, types: &[Ty], mut keys: Vec<Value>) -> Vec<Value> {
        for (key, ty) in keys.iter_mut().zip(types) {
            if let Value::Str(_) = key
                && let Some((text, _)) = self.marks.symbolic.key(key, *ty)
            {
                *key = text;
            }
        }
        keys
    }

    /// Merges two elements with the same text; of two stored values, the later one is kept.
    fn merge(&self, old: &mut Cell, young: Cell) {
        match (&mut *old, young) {
            (Cell::Scalar(Value::Long(a)), Cell::Scalar(Value::Long(b))) if self.adds => {
                *a = a.wrapping_add(b);
            }
            (Cell::Stats(a), Cell::Stats(b)) => a.merge(&b),
            (old, young) => *old = young,
        }
    }
}

/// A hash map with the data that is needed to read it.
pub(super) struct HashArray<'a> {
    pub kernel: &'a KernelState,
    pub table: std::cell::RefMut<'a, Box<dyn ByteTable>>,
    pub types: &'a [Ty],
    pub seq: bool,
    pub wrap: bool,
    pub value: &'a ValueLayout,
    /// The texts of keys, if they can contain marks.
    pub texts: Option<ArrayTexts<'a>>,
}

pub(super) fn system(e: std::io::Error) -> Fault {
    Fault::from(format!("reading a map: {e}"))
}

impl HashArray<'_> {
    /// Bytes in front of the element in a value.
    fn skip(&self) -> usize {
        if self.seq { 8 } else { 0 }
    }

    fn cell(&self, value: &[u8]) -> Cell {
        let element = value.get(self.skip()..).unwrap_or_default();
        read_cell(self.value, |o| word_of(element, o))
    }

    /// The raw keys in the map whose texts equal these keys.
    fn raw(&mut self, keys: &[Value]) -> Result<Vec<Vec<u8>>, Fault> {
        let Some(texts) = &self.texts else {
            return Ok(vec![key_bytes(self.types, keys)]);
        };
        let mut aliases = texts.marks.aliases.borrow_mut();
        let aliases_of_array = match aliases.entry(texts.g) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(location) => {
                let mut by_text = KeyAliases::new();
                for (key, _) in self.table.entries().map_err(system)? {
                    let as_text = texts.keys(self.types, read_keys(self.types, &key));
                    by_text.entry(as_text).or_default().push(key);
                }
                location.insert(by_text)
            }
        };
        let raw_keys = aliases_of_array.get(keys);
        Ok(raw_keys
            .cloned()
            .unwrap_or_else(|| vec![key_bytes(self.types, keys)]))
    }

    /// Reads an element.
    pub(super) fn get(&mut self, keys: &[Value]) -> Result<Option<Cell>, Fault> {
        let mut merged: Option<Cell> = None;
        for key in self.raw(keys)? {
            let value = self.table.get(&key).map_err(system)?;
            match (&mut merged, value.map(|v| self.cell(&v))) {
                (Some(sum), Some(cell)) => {
                    if let Some(texts) = &self.texts {
                        texts.merge(sum, cell);
                    }
                }
                (none, Some(cell)) => *none = Some(cell),
                _ => {}
            }
        }
        Ok(merged)
    }

    /// Sets an element.
    pub(super) fn set(&mut self, keys: &[Value], cell: &Cell) -> Result<(), Fault> {
        let mut raw = self.raw(keys)?.into_iter();
        let Some(key) = raw.next() else {
            return Ok(());
        };
        for other in raw {
            self.table.remove(&other).map_err(system)?;
        }
        self.set_raw(&key, cell)?;
        if let Some(texts) = &self.texts {
            let mut aliases = texts.marks.aliases.borrow_mut();
            let of_array = aliases.entry(texts.g).or_default();
            of_array.insert(keys.to_vec(), vec![key]);
        }
        Ok(())
    }

    fn set_raw(&mut self, key: &[u8], cell: &Cell) -> Result<(), Fault> {
        let mut value = Vec::new();
        if self.seq {
            // An element keeps its age; a new one is the youngest.
            let old = self.table.get(key).map_err(system)?;
            let next = || {
                let last = self.kernel.state().shared(shared::SEQ);
                last.fetch_add(1, Ordering::Relaxed) + 1
            };
            let age = old.map_or_else(next, |v| word_of(&v, 0));
            value.extend(age.to_ne_bytes());
        }
        value.extend(cell_bytes(cell, self.value));
        while !self.table.set(key, &value).map_err(system)? {
            if !self.wrap || !self.evict()? {
                return Err(ARRAY_OVERFLOW.into());
            }
        }
        Ok(())
    }

    /// Removes an element.
    pub(super) fn remove(&mut self, keys: &[Value]) -> Result<(), Fault> {
        for key in self.raw(keys)? {
            self.table.remove(&key).map_err(system)?;
        }
        Ok(())
    }

    /// Removes the oldest element; false if there is none.
    fn evict(&mut self) -> Result<bool, Fault> {
        let entries = self.table.entries().map_err(system)?;
        let Some((key, _)) = entries.iter().min_by_key(|(_, v)| word_of(v, 0)) else {
            return Ok(false);
        };
        self.table.remove(key).map_err(system)?;
        Ok(true)
    }

    /// The matching elements, ordered by age if it is recorded, otherwise by key, so that the order
    /// is reproducible.
    pub(super) fn elements(&mut self, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault> {
        let entries = self.table.entries().map_err(system)?;
        Ok(self.decode(entries, slice))
    }

    /// The matching elements among these entries.
    pub(super) fn decode(
        &self,
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        slice: &[Option<Value>],
    ) -> Vec<Element> {
        let mut aged: Vec<(u64, Element)> = entries
            .into_iter()
            .map(|(key, value)| {
                let keys = read_keys(self.types, &key);
                let keys = match &self.texts {
                    Some(texts) => texts.keys(self.types, keys),
                    None => keys,
                };
                let keys: Arc<[Value]> = keys.into();
                let age = if self.seq { word_of(&value, 0) } else { 0 };
                let cell = self.cell(&value);
                (age, Element { keys, cell })
            })
            .filter(|(_, e)| matches(slice, &e.keys))
            .collect();
        aged.sort_by(|a, b| (a.0, &a.1.keys).cmp(&(b.0, &b.1.keys)));
        let mut elements: Vec<Element> = Vec::with_capacity(aged.len());
        let mut first: HashMap<Arc<[Value]>, usize> = HashMap::new();
        for (_, element) in aged {
            let Some(texts) = &self.texts else {
                elements.push(element);
                continue;
            };
            match first.get(&element.keys) {
                Some(index) => texts.merge(&mut elements[*index].cell, element.cell),
                None => {
                    first.insert(element.keys.clone(), elements.len());
                    elements.push(element);
                }
            }
        }
        elements
    }
}
