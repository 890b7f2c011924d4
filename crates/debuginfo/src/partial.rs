//! Parts of functions. A call is one hit, also where compilers spread it over several functions:
//!
//! - gcc splits `if (n < 5) return n; …` into a first part, which it inlines, and the rest in a
//!   function `f.part.0`, which it may inline into the first part in turn. Both have the abstract
//!   entry of `f`.
//! - For `delete p`, the deleting destructor calls the destructor of the same name. In classes with
//!   virtual bases, the destructor of complete objects calls that of base objects with some compilers.
//!
//! Recursion is something else: an inlined copy of `f` in a copy of `f` is a new call if the source
//! has that call. That of a part is not in the source, so gcc puts it at the name of `f` in its
//! definition, where no call can be.

use std::collections::{HashMap, HashSet};

use gimli::UnitOffset;
use object::LittleEndian;
use object::read::elf::Sym;

use crate::dwarf::Dwarf;
use crate::unit::{Die, Entry, R, Unit, number_of};

impl Dwarf {
    /// Whether an inlined copy of a function, directly inside code of the same function, goes on with
    /// the call that this code belongs to.
    pub(crate) fn continues(&self, copy: &Entry, function: Die) -> bool {
        let Some(call) = number_of(copy, gimli::DW_AT_call_line) else {
            return true;
        };
        let Some((_, declared)) = self.entry(function) else {
            return false;
        };
        let declared_number = |name| {
            let (_, value) = self.attr(function, &declared, name)?;
            value.udata_value()
        };
        if declared_number(gimli::DW_AT_decl_line) != Some(call) {
            return false;
        }
        let columns = number_of(copy, gimli::DW_AT_call_column)
            .zip(declared_number(gimli::DW_AT_decl_column));
        match columns {
            Some((call, declared)) => call == declared,
            // A function on a single line may call itself there; calls in the source have entries.
            None => !copy.has_attr(gimli::DW_AT_entry_pc),
        }
    }

    /// Whether a function with code, of which this is the name, is entered only in the course of
    /// another call of that name.
    pub(crate) fn is_part(&self, die: Die, unit: &Unit, name: R) -> bool {
        let parts = self.caches.split.get_or_init(|| self.split_parts());
        if parts.is_empty() {
            return false;
        }
        let Ok(entry) = unit.entry(UnitOffset(die.offset)) else {
            return false;
        };
        let destructor = name.slice().first() == Some(&b'~');
        if !destructor && !entry.has_attr(gimli::DW_AT_abstract_origin) {
            return false;
        }
        let code = self.code(die, unit, &entry);
        let start = self.entry_pc(die, unit, &entry, &code);
        start.is_some_and(|start| parts.contains(&start))
    }

    /// The addresses of functions that are entered in the course of another call of their name only.
    /// Their symbols say it.
    fn split_parts(&self) -> HashSet<u64> {
        let debug = &self.part(0).image;
        let mut addresses = HashSet::new();
        for image in [&self.main, debug] {
            let table = image.elf().elf_symbol_table();
            // By class: the destructors of complete and of base objects.
            let mut complete = HashMap::new();
            let mut base = HashMap::new();
            for symbol in table.iter() {
                let name = symbol.name(LittleEndian, table.strings());
                let Some(name) = name.ok().and_then(|n| std::str::from_utf8(n).ok()) else {
                    continue;
                };
                let address = image.symbol_address(symbol);
                if name.contains(".part.") || name.ends_with("D0Ev") {
                    addresses.insert(address);
                } else if let Some(class) = name.strip_suffix("D1Ev") {
                    let size = symbol.st_size(LittleEndian);
                    complete.insert(class, (address, address.saturating_add(size)));
                } else if let Some(class) = name.strip_suffix("D2Ev") {
                    base.insert(class, address);
                }
            }
            let calls = |(class, code): &(&str, (u64, u64))| {
                let base = base.get(class).filter(|b| **b != code.0);
                base.is_some_and(|b| self.goes_to(*code, *b))
            };
            addresses.extend(complete.into_iter().filter(calls).map(|(_, code)| code.0));
            if !table.is_empty() {
                break;
            }
        }
        addresses
    }

    /// Whether an instruction of some code calls or jumps to an address.
    fn goes_to(&self, (start, end): (u64, u64), address: u64) -> bool {
        let code = crate::exits::instructions(&self.main, start, end);
        code.iter().any(|i| i.control.target() == Some(address))
    }
}
