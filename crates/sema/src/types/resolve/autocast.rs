//! C types of plain values: a variable or a call has the type of what was stored or returned, so that
//! `task_current()->pid` needs no `@cast`.
//!
//! What a later handler stores in an array is not known yet where an earlier one reads it. Then the
//! script is resolved again, with the [`ElementTypes`] of the time before.

use rustc_hash::FxHashMap;
use spile_syntax::ast::Span;

use super::{FnDecl, Resolver};
use crate::ctype::{CBase, CTy, TypeShape};
use crate::facts::TypeFacts;
use crate::types::hir::*;

/// C types of what a script stores in arrays, by the locations of their declarations.
pub type ElementTypes = FxHashMap<Span, Vec<CTy>>;

/// Where the C type of a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The type itself.
    Type(CTy),
    /// The result of a function, whose body is resolved when the type is needed.
    Call(UnitIx),
}

/// Why a value has no C type.
pub(super) enum NoType {
    /// Nothing gives it one.
    Unknown,
    /// It is a global variable, which any probe can set.
    Global,
    /// What gives it one does not agree.
    Two(CTy, CTy),
}

impl NoType {
    /// The reason, for messages.
    pub(super) fn reason(&self, facts: &dyn TypeFacts) -> String {
        match self {
            NoType::Unknown => "the C type of this value is not known".into(),
            NoType::Global => "a global variable has no C type, since any probe can set it".into(),
            NoType::Two(a, b) => {
                let shown = |ty: &CTy| match ty.base {
                    CBase::Id(id) => format!("`{}` of {}", ty.spell(facts), facts.type_home(id)),
                    CBase::Int { .. } => format!("`{}`", ty.spell(facts)),
                };
                let (a, b) = (shown(a), shown(b));
                format!("this value can have two C types, {a} and {b}")
            }
        }
    }
}

/// Whether two C types are the same: integers of one form, or types of one name of one program.
pub(super) fn same(a: CTy, b: CTy, facts: &dyn TypeFacts) -> bool {
    if a == b {
        return true;
    }
    let home = |ty: CTy| match ty.base {
        CBase::Id(id) => Some(facts.type_home(id)),
        CBase::Int { .. } => None,
    };
    match (a.shape(facts), b.shape(facts)) {
        (TypeShape::Ptr(a), TypeShape::Ptr(b)) => same(a, b, facts),
        (TypeShape::Int { .. }, TypeShape::Int { .. }) => a.shape(facts) == b.shape(facts),
        (TypeShape::Float(a), TypeShape::Float(b)) => a == b,
        (TypeShape::Struct(..), TypeShape::Struct(..)) | (TypeShape::Other, TypeShape::Other) => {
            home(a) == home(b) && a.spell(facts) == b.spell(facts)
        }
        _ => false,
    }
}

/// The type that these origins give, if all give the same and no function has a say.
pub(super) fn known(origins: &[Origin], facts: &dyn TypeFacts) -> Option<CTy> {
    let Some(&Origin::Type(first)) = origins.first() else {
        return None;
    };
    let agrees = |o: &Origin| matches!(o, Origin::Type(ty) if same(first, *ty, facts));
    origins.iter().all(agrees).then_some(first)
}

impl Resolver<'_> {
    /// Notes what may give a variable's value its C type.
    pub(super) fn note_origins(&mut self, lvalue: &LValue, rhs: &HirExpr, cty: Option<CTy>) {
        let mut origins = Vec::new();
        self.origins(rhs, cty, &mut origins);
        if origins.is_empty() {
            return;
        }
        let noted = match lvalue {
            LValue::Local(ix) => self.cur.ctypes.entry(*ix).or_default(),
            LValue::Elem(g, _) => {
                self.stored(*g);
                self.global_ctypes.entry(*g).or_default()
            }
            LValue::Scalar(_) => return,
        };
        for origin in origins {
            if !noted.contains(&origin) {
                noted.push(origin);
            }
        }
    }

    /// Adds the origins of a value's type; those of a variable are what was stored there.
    pub(super) fn origins(&mut self, value: &HirExpr, cty: Option<CTy>, out: &mut Vec<Origin>) {
        if let Some(cty) = cty {
            out.push(Origin::Type(cty));
            return;
        }
        match &value.kind {
            HirExprKind::Call { func, .. } => out.push(Origin::Call(*func)),
            HirExprKind::Read(LValue::Local(ix)) => {
                out.extend(self.cur.ctypes.get(ix).into_iter().flatten());
            }
            HirExprKind::Read(LValue::Elem(g, _)) => {
                let stored = self.stored(*g).to_vec();
                self.elements_asked
                    .entry(*g)
                    .or_insert_with(|| stored.clone());
                out.extend(stored);
            }
            HirExprKind::Ternary(_, a, b) => {
                self.origins(a, None, out);
                self.origins(b, None, out);
            }
            HirExprKind::Assign { rhs, op: None, .. } => self.origins(rhs, None, out),
            _ => {}
        }
    }

    /// The C type that `->` after this value follows.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn type_of_value(
        &mut self,
        value: &HirExpr,
        cty: Option<CTy>,
    ) -> Result<CTy, NoType> {
        let mut origins = Vec::new();
        self.origins(value, cty, &mut origins);
        let types = self.types_of(origins);
        let Some((first, others)) = types.split_first() else {
            return Err(match value.kind {
                HirExprKind::Read(LValue::Scalar(_)) => NoType::Global,
                _ => NoType::Unknown,
            });
        };
        match others.iter().find(|ty| !same(*first, **ty, self.facts)) {
            Some(other) => Err(NoType::Two(*first, *other)),
            None => Ok(*first),
        }
    }

    /// The types that origins give.
    fn types_of(&mut self, mut open: Vec<Origin>) -> Vec<CTy> {
        open.reverse();
        let (mut types, mut seen) = (Vec::new(), Vec::new());
        while let Some(origin) = open.pop() {
            match origin {
                Origin::Type(cty) if !types.contains(&cty) => types.push(cty),
                Origin::Call(unit) if !seen.contains(&unit) => {
                    seen.push(unit);
                    open.extend(self.results_of(unit).into_iter().rev());
                }
                _ => {}
            }
        }
        types
    }

    /// The origins of the elements of an array, so far.
    fn stored(&mut self, g: GlobalIx) -> &[Origin] {
        let declared = self.tree.globals[g.0].span;
        let before = || {
            let known = self.settings.elements.get(&declared);
            let known = known.into_iter().flatten().copied();
            known.map(Origin::Type).collect()
        };
        self.global_ctypes.entry(g).or_insert_with(before)
    }

    /// The types of all elements, if a handler asked for one before it was stored.
    pub(super) fn late_elements(&mut self) -> Option<ElementTypes> {
        let asked = std::mem::take(&mut self.elements_asked);
        let mut late = false;
        for (g, then) in asked {
            let now = self.stored(g).to_vec();
            late |= self.types_of(now) != self.types_of(then);
        }
        let elements = late.then(|| std::mem::take(&mut self.global_ctypes))?;
        let types = elements
            .into_iter()
            .map(|(g, stored)| (self.tree.globals[g.0].span, self.types_of(stored)));
        Some(types.collect())
    }

    /// The origins of a function's result. A body that still waits is resolved now.
    fn results_of(&mut self, unit: UnitIx) -> Vec<Origin> {
        let of_unit = |(key, d): (&usize, &FnDecl)| (d.unit == unit).then_some(*key);
        let Some(key) = self.functions.iter().find_map(of_unit) else {
            return Vec::new();
        };
        if let Some(index) = self.queue.iter().position(|k| *k == key) {
            self.queue.remove(index);
            let outer = std::mem::take(&mut self.cur);
            let trial = std::mem::take(&mut self.trial);
            let failed = std::mem::take(&mut self.trial_failed);
            self.function(key);
            (self.trial, self.trial_failed) = (trial, failed);
            self.cur = outer;
        }
        let decl = self.functions.get(&key);
        let mut origins = decl.map(|d| d.results.clone()).unwrap_or_default();
        // The next body of the same signature.
        if let UnitKind::Func {
            next_alt: Some(next),
            ..
        } = &self.tree.units[unit.0].kind
        {
            origins.push(Origin::Call(*next));
        }
        origins
    }
}
