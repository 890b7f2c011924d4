//! Variables of the functions around a nested one. Its frame has the static link, from which
//! `DW_AT_static_link` computes the frame base of the function around; a function inlined into the
//! one around it is in the same frame.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gimli::{AttributeValue, Operation};

use crate::caches::ScopesAround;
use crate::caches::{Scope, ScopeKind};
use crate::dwarf::Dwarf;
use crate::loc_program::{LocBinary, LocStep, Location, Unavailable};
use crate::location::LocContext;
use crate::unit::{Die, Entry, Unit};
use crate::variables::DwarfVariable;

/// Maximum nesting that is followed.
const MAX_DEPTH: usize = 128;

/// How a function reaches a variable of one around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The nested function, or its inlined instance.
    from: Die,
    /// The function around, or its instance, that has the variable.
    function: Die,
}

/// The frame base of a function around, or why it is not known.
pub(crate) type OuterFrame = Result<Vec<LocStep>, Unavailable>;

impl Dwarf {
    /// Variables of the functions around a function, inner ones first.
    pub(crate) fn enclosing_variables(&self, address: u64, nested: Die) -> Vec<DwarfVariable> {
        let mut variables: Vec<DwarfVariable> = Vec::new();
        let mut hidden: HashSet<Arc<str>> = HashSet::new();
        let mut add = |mut more: Vec<DwarfVariable>, function: Die| {
            more.retain(|v| hidden.insert(v.name.clone()));
            variables.extend(more.into_iter().map(|v| DwarfVariable {
                parameter: false,
                reached: Some(Reached {
                    from: nested,
                    function,
                }),
                ..v
            }));
        };
        let around = self.scopes_around(nested);
        let mut blocks = Vec::new();
        for scope in around {
            blocks.push(scope);
            if scope.kind == ScopeKind::Block {
                continue;
            }
            let function = self.instance_around(address, nested, scope.die);
            match function {
                // It is in the same frame.
                Some(die) => add(self.own_variables(address, Some(die)), die),
                None => {
                    let mut list = Vec::new();
                    blocks.iter().for_each(|b| self.list(b, &mut list));
                    add(list, scope.die);
                }
            }
            blocks.clear();
        }
        variables
    }

    /// Location of a variable of a function around.
    pub(crate) fn locate_enclosing(
        &self,
        variable: &DwarfVariable,
        reached: Reached,
        address: u64,
    ) -> Result<Location, Unavailable> {
        let around = self.scopes_at(address);
        if around.iter().any(|s| s.die == reached.function) {
            return self.locate_in(variable, address, None);
        }
        let frame = self.outer_frame(reached, address);
        self.locate_in(variable, address, Some((reached.function, &frame)))
    }

    /// The scopes around a function that are in another function or are it, innermost first.
    fn scopes_around(&self, function: Die) -> Vec<Scope> {
        let nested = |die: Die| self.nested(die)?.get(&die.offset).cloned();
        self.origins(function)
            .take(4)
            .find_map(nested)
            .unwrap_or_default()
    }

    /// The function or instance with the abstract entry of `function` whose code at an address the
    /// function `nested` is inlined into.
    fn instance_around(&self, address: u64, nested: Die, function: Die) -> Option<Die> {
        let chain = self.scopes_at(address);
        let inside = chain.iter().position(|s| s.die == nested)?;
        let origin = self.outermost_origin(function);
        let mut outer = chain[..inside].iter().rev();
        let same =
            |s: &&Scope| s.kind != ScopeKind::Block && self.outermost_origin(s.die) == origin;
        Some(outer.find(same)?.die)
    }

    /// The frame base of a function around, followed by the static links from function to function.
    fn outer_frame(&self, reached: Reached, address: u64) -> OuterFrame {
        let mut function = reached.from;
        let mut frame: Option<OuterFrame> = None;
        for scope in self.scopes_around(reached.from) {
            if scope.kind == ScopeKind::Block {
                continue;
            }
            let (unit, entry) = self.entry(function).ok_or_else(Unavailable::optimised)?;
            frame = Some(self.static_link(function, &unit, &entry, address, frame.as_ref()));
            function = scope.die;
            if function == reached.function {
                break;
            }
        }
        let name = self
            .entry(function)
            .and_then(|(_, e)| self.name(function, &e));
        let place = format!("it is in the frame of `{}`", name.unwrap_or("?"));
        match frame {
            Some(Ok(frame)) => Ok(frame),
            Some(Err(Unavailable(why))) => Err(Unavailable(format!("{place}, and {why}"))),
            None => Err(Unavailable(format!("{place}, which is not known here"))),
        }
    }

    /// The frame base of the function around a function, whose own frame base is `frame` if it is
    /// itself around the location.
    fn static_link(
        &self,
        function: Die,
        unit: &Unit,
        entry: &Entry,
        address: u64,
        frame: Option<&OuterFrame>,
    ) -> OuterFrame {
        let value = entry.attr_value(gimli::DW_AT_static_link);
        let Some(value) = value else {
            return Unavailable::because(
                "debugging information has no static link (DW_AT_static_link) that leads there",
            );
        };
        let mut context = LocContext {
            dwarf: self,
            die: function,
            unit,
            pc: address,
            function: Some(function),
            at_entry: frame.is_none() && self.start_of(function) == Some(address),
            outer: frame,
        };
        let register = self.main.abi().map(|abi| LocStep::Reg(abi.static_link));
        let base = Ok(register.iter().copied().collect());
        let stored = stored_link(unit, value);
        if context.at_entry && stored && register.is_some() {
            context.outer = Some(&base);
        }
        let (Location::Address(mut ops) | Location::Value(mut ops)) = context.attribute(value)?
        else {
            return Unavailable::because("its static link is in pieces");
        };
        // The first instructions store the register that the expression loads.
        if let [
            link,
            LocStep::Const(_),
            LocStep::Binary(LocBinary::Add),
            LocStep::Load { size: 8 },
            ..,
        ] = ops[..]
            && Some(link) == register
            && context.at_entry
            && stored
        {
            ops.drain(1..4);
        }
        Ok(ops)
    }

    fn nested(&self, die: Die) -> Option<Arc<ScopesAround>> {
        self.caches.nested.get_or_make((die.part, die.unit), || {
            let mut nested = HashMap::new();
            let _ = list_nested(die, &*self.unit(die.part, die.unit)?, &mut nested);
            Some(Arc::new(nested))
        })
    }
}

/// Finds the functions of a unit that are in other functions.
fn list_nested(any: Die, unit: &Unit, nested: &mut ScopesAround) -> Option<()> {
    let mut raw = unit.entries_raw(None).ok()?;
    // The entries around, with their depth.
    let mut around: Vec<(isize, Scope)> = Vec::new();
    while !raw.is_empty() {
        let (depth, offset) = (raw.next_depth(), raw.next_offset().0);
        let Some(abbrev) = raw.read_abbreviation().ok()? else {
            continue;
        };
        raw.skip_attributes(abbrev.attributes()).ok()?;
        while around.pop_if(|a| a.0 >= depth).is_some() {}
        let function = abbrev.tag() == gimli::DW_TAG_subprogram;
        if function && !around.is_empty() {
            nested.insert(offset, around.iter().rev().map(|a| a.1).collect());
        }
        let kind = match abbrev.tag() {
            _ if !abbrev.has_children() || around.len() >= MAX_DEPTH => continue,
            gimli::DW_TAG_subprogram => ScopeKind::Function,
            gimli::DW_TAG_inlined_subroutine => ScopeKind::Inlined,
            gimli::DW_TAG_lexical_block => ScopeKind::Block,
            _ => continue,
        };
        let die = any.with_offset(offset);
        around.push((depth, Scope { kind, die }));
    }
    Some(())
}

/// Whether a static link is loaded from the function's own frame.
fn stored_link(unit: &Unit, value: AttributeValue<crate::unit::R>) -> bool {
    let Some(expression) = value.exprloc_value() else {
        return false;
    };
    let mut ops = expression.operations(unit.encoding());
    let mut next = || ops.next().ok().flatten();
    matches!(
        (next(), next()),
        (
            Some(Operation::FrameOffset { .. }),
            Some(Operation::Deref { size: 8, .. })
        )
    )
}
