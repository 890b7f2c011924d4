//! Variables visible at a location, and their locations there.

use std::collections::HashSet;
use std::sync::Arc;

use gimli::AttributeValue;

use crate::caches::TypeId;
use crate::caches::{Scope, ScopeKind};
use crate::dwarf::Dwarf;
use crate::enclosing::{OuterFrame, Reached};
use crate::functions::Pattern;
use crate::index::NameKind;
use crate::lines::path_matches;
use crate::loc_program::{LocStep, Location, Unavailable};
use crate::location::LocContext;
use crate::types::CType;
use crate::unit::{self, Die, Entry};

/// Maximum number of variables listed at one location.
const MAX_VARIABLES: usize = 4096;

/// A variable by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DwarfVariable {
    /// Its name.
    pub name: Arc<str>,
    /// Its entry.
    pub die: Die,
    /// Whether it is a parameter.
    pub parameter: bool,
    /// Its type as declared.
    pub ty: TypeId,
    /// How a nested function reaches it, if it is a variable of a function around.
    pub(crate) reached: Option<Reached>,
}

impl DwarfVariable {
    /// Whether it is a variable of a function around the nested one.
    #[must_use]
    pub fn is_outer(&self) -> bool {
        self.reached.is_some()
    }
}

impl Dwarf {
    /// Parameters and locals visible to code at an address, inner ones first, those of one scope in
    /// their order. `function` is the function or inlined instance that the address is probed for; `None`
    /// means the innermost one. Variables of functions around a nested function follow.
    #[must_use]
    pub fn variables(&self, address: u64, function: Option<Die>) -> Vec<DwarfVariable> {
        let mut variables = self.own_variables(address, function);
        if let Some(function) = function.or_else(|| self.function_at(address)) {
            let mut outer = self.enclosing_variables(address, function);
            outer.retain(|o| !variables.iter().any(|v| v.name == o.name));
            variables.extend(outer);
        }
        variables
    }

    pub(crate) fn own_variables(&self, address: u64, function: Option<Die>) -> Vec<DwarfVariable> {
        let chain = self.scopes_at(address);
        let mut variables: Vec<DwarfVariable> = Vec::new();
        let mut scopes: Vec<Scope> = Dwarf::own_scopes(&chain, function).to_vec();
        // The instance does not contain the address: its own variables.
        if let (true, Some(die)) = (scopes.is_empty(), function) {
            scopes.push(Scope {
                kind: ScopeKind::Inlined,
                die,
            });
        }
        for scope in scopes.iter().rev() {
            let first = variables.len();
            self.list(scope, &mut variables);
            // A variable of an outer scope that an inner one hides.
            let inner: HashSet<Arc<str>> =
                variables[..first].iter().map(|v| v.name.clone()).collect();
            let mut index = 0;
            variables.retain(|v| {
                index += 1;
                index <= first || !inner.contains(&v.name)
            });
        }
        if let Some(die) = function {
            self.release_visited(die);
        }
        variables
    }

    pub(crate) fn list(&self, scope: &Scope, variables: &mut Vec<DwarfVariable>) {
        let mut seen = HashSet::new();
        for (child, entry) in self.child_entries(scope.die) {
            seen.extend(self.origin(child, &entry));
            self.take(child, &entry, variables);
        }
        // Variables that the compiler left out of the instance, to report them.
        for die in self.origins(scope.die).skip(1).take(2) {
            for (child, entry) in self.child_entries(die) {
                if !seen.contains(&child) {
                    self.take(child, &entry, variables);
                }
            }
        }
    }

    fn take(&self, die: Die, entry: &Entry, variables: &mut Vec<DwarfVariable>) {
        let parameter = match entry.tag() {
            gimli::DW_TAG_formal_parameter => true,
            gimli::DW_TAG_variable => false,
            _ => return,
        };
        let Some(name) = self.name(die, entry) else {
            return;
        };
        if variables.len() < MAX_VARIABLES && !variables.iter().any(|v| v.die == die) {
            variables.push(DwarfVariable {
                parameter,
                ..self.new_variable(name, die)
            });
        }
    }

    /// A variable by name at an address: a parameter or local, a static variable of the unit, or a
    /// global one of the module.
    #[must_use]
    pub fn variable(
        &self,
        name: &str,
        address: u64,
        function: Option<Die>,
    ) -> Option<DwarfVariable> {
        let local = self
            .variables(address, function)
            .into_iter()
            .find(|v| &*v.name == name);
        local.or_else(|| {
            let unit = function.map(|d| d.unit).or_else(|| self.unit_at(address));
            let globals: Vec<_> = self.globals(name);
            let same = globals.iter().find(|v| Some(v.die.unit) == unit).cloned();
            same.or_else(|| globals.into_iter().next())
        })
    }

    /// A variable with static storage, by name and by a pattern for (an end of) its unit's path.
    #[must_use]
    pub fn global(&self, name: &str, unit: Option<Pattern<'_>>) -> Option<DwarfVariable> {
        let in_unit = |v: &DwarfVariable| {
            unit.is_none_or(|p| {
                let declared = self
                    .entry(v.die)
                    .map(|(_, e)| self.declaration_location(v.die, &e).0);
                let unit = self.unit_path(v.die);
                let fits = |path: &str| path_matches(path, &|t| p.matches(t));
                unit.is_some_and(|u| fits(&u)) || declared.flatten().is_some_and(|f| fits(&f))
            })
        };
        self.globals(name).into_iter().find(in_unit)
    }

    /// A variable by its entry, which may have no name.
    #[must_use]
    pub fn variable_at(&self, die: Die) -> DwarfVariable {
        let name = self.entry(die).and_then(|(_, e)| self.name(die, &e));
        self.new_variable(name.unwrap_or(""), die)
    }

    fn globals(&self, name: &str) -> Vec<DwarfVariable> {
        let entries = self.named(name, &[NameKind::Variable]).into_iter();
        entries.map(|f| self.new_variable(f.name, f.die)).collect()
    }

    fn new_variable(&self, name: &str, die: Die) -> DwarfVariable {
        DwarfVariable {
            name: name.into(),
            die,
            parameter: false,
            ty: self.type_of(die),
            reached: None,
        }
    }

    /// The path of the source file of a unit.
    pub(crate) fn unit_path(&self, die: Die) -> Option<String> {
        let unit = self.unit(die.part, die.unit)?;
        let text = |r: crate::unit::R| String::from_utf8_lossy(r.slice()).into_owned();
        let name = unit.name.map(text)?;
        Some(match unit.comp_dir.map(text) {
            Some(dir) if !name.starts_with('/') => format!("{dir}/{name}"),
            _ => name,
        })
    }

    /// The location of a variable before the instruction at an address executes.
    ///
    /// # Errors
    /// When it has no location or cannot be read, with the reason.
    pub fn locate(&self, variable: &DwarfVariable, address: u64) -> Result<Location, Unavailable> {
        match variable.reached {
            Some(reached) => self.locate_enclosing(variable, reached, address),
            None => self.locate_in(variable, address, None),
        }
    }

    /// The location of a variable; `outer` is the function that has it, with its frame base, if it
    /// is not one at the address.
    pub(crate) fn locate_in(
        &self,
        variable: &DwarfVariable,
        address: u64,
        outer: Option<(Die, &OuterFrame)>,
    ) -> Result<Location, Unavailable> {
        let (_, entry) = self
            .entry(variable.die)
            .ok_or_else(Unavailable::optimised)?;
        if let Some((_, value)) = self.attr(variable.die, &entry, gimli::DW_AT_const_value) {
            return constant(value).map(|location| self.widened(location, variable.ty));
        }
        let (holder, value) = self
            .attr(variable.die, &entry, gimli::DW_AT_location)
            .ok_or_else(Unavailable::optimised)?;
        self.evaluate_at(holder, value, address, outer)
    }

    /// What an attribute of an entry is at an address.
    pub(crate) fn locate_attribute(
        &self,
        die: Die,
        value: AttributeValue<crate::unit::R>,
        address: u64,
    ) -> Result<Location, Unavailable> {
        self.evaluate_at(die, value, address, None)
    }

    fn evaluate_at(
        &self,
        holder: Die,
        value: AttributeValue<crate::unit::R>,
        address: u64,
        outer: Option<(Die, &OuterFrame)>,
    ) -> Result<Location, Unavailable> {
        let unit = self
            .unit(holder.part, holder.unit)
            .ok_or_else(Unavailable::optimised)?;
        let chain = self.scopes_at(address);
        let function = outer.map(|o| o.0).or(chain.first().map(|s| s.die));
        let context = LocContext {
            dwarf: self,
            die: holder,
            unit: &unit,
            pc: address,
            function,
            at_entry: outer.is_none() && function.and_then(|f| self.start_of(f)) == Some(address),
            outer: outer.map(|o| o.1),
        };
        context.attribute(value)
    }
}

impl Dwarf {
    /// A constant in the words of its type: a word is enough for a small one of 128 bits.
    fn widened(&self, constant: Location, ty: TypeId) -> Location {
        match (&constant, self.ctype(ty)) {
            (Location::Value(ops), CType::Int { size: 16, .. }) => match ops[..] {
                [LocStep::Const(low)] => Location::known(&i128::from(low).to_le_bytes()),
                _ => constant,
            },
            _ => constant,
        }
    }
}

fn constant(value: AttributeValue<crate::unit::R>) -> Result<Location, Unavailable> {
    if let Some(n) = unit::constant(&value) {
        return Ok(Location::known(&n.to_le_bytes()));
    }
    match value {
        AttributeValue::Data16(n) => Ok(Location::known(&n.to_le_bytes())),
        AttributeValue::Block(b) => Ok(Location::known(b.slice())),
        _ => Unavailable::because("it is a constant without a number"),
    }
}
