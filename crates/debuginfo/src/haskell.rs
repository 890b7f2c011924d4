//! Functions of Haskell. GHC describes each piece of code by an entry of its own, with the name of the
//! binding in the source that it was made from: the function itself, which other modules can name, and
//! closures, expressions that are evaluated later, and continuations in it, which they cannot.

use std::collections::{HashMap, HashSet};

use crate::copies::Inexact;
use crate::dwarf::Dwarf;
use crate::functions::FunctionLocation;

impl Dwarf {
    /// Leaves out the pieces of functions of Haskell whose beginning is known, and marks the others: GHC
    /// begins a function again after a collection of garbage, and inlines without a word.
    pub(crate) fn keep_haskell_entries(&self, locations: &mut Vec<FunctionLocation>) {
        let mut units = HashMap::new();
        let is_haskell = |p: &FunctionLocation| {
            let unit = units.entry((p.die.part, p.die.unit));
            *unit.or_insert_with(|| self.language(p.die) == Some(gimli::DW_LANG_Haskell))
        };
        let haskell: Vec<bool> = locations.iter().map(is_haskell).collect();
        if !haskell.contains(&true) {
            return;
        }
        let of_haskell = locations.iter().zip(&haskell).filter(|p| *p.1);
        let entries = of_haskell.filter(|p| p.0.external);
        let known: HashSet<_> = entries.map(|(p, _)| (p.die.unit, p.name.clone())).collect();
        let mut haskell = haskell.into_iter();
        locations.retain_mut(|p| {
            if haskell.next() != Some(true) {
                return true;
            }
            p.inexact = Some(Inexact::Reentered);
            p.external || !known.contains(&(p.die.unit, p.name.clone()))
        });
    }
}
