//! The text of `-p2`: globals, functions and probes with their types.

use std::fmt::Write;

use crate::types::hir::{Tree, Unit, UnitKind};
use crate::types::unify::{Base, TyVar, Types};

fn name(types: &Types, v: TyVar) -> &'static str {
    match types.get(v) {
        Some(Base::Long) => "long",
        Some(Base::Str) => "string",
        Some(Base::Stats) => "stat",
        None => "unknown",
    }
}

fn locals(out: &mut String, types: &Types, u: &Unit) {
    let mut shown = u
        .locals
        .iter()
        .filter(|l| !l.param && !l.name.starts_with('@') && (l.read || l.written))
        .peekable();
    if shown.peek().is_some() {
        out.push_str("  # locals\n");
    }
    for l in shown {
        let _ = writeln!(out, "  {}:{}", l.name, name(types, l.ty));
    }
}

/// The text of `-p2`. Writing to a string cannot fail.
pub fn dump(tree: &Tree, types: &Types) -> String {
    let mut out = String::new();
    let globals: Vec<_> = tree
        .globals
        .iter()
        .filter(|g| (g.read || g.written) && !g.synthetic)
        .collect();
    if !globals.is_empty() {
        out.push_str("# globals\n");
    }
    for g in globals {
        let _ = write!(out, "{}:{}", g.unique, name(types, g.value));
        if let Some(keys) = g.keys.as_ref().filter(|k| !k.is_empty()) {
            let keys: Vec<&str> = keys.iter().map(|k| name(types, *k)).collect();
            let _ = write!(out, " [{}]", keys.join(", "));
        }
        out.push('\n');
    }
    let mut functions = String::new();
    let mut probes = String::new();
    for u in tree.units.iter().filter(|u| !u.name.starts_with('@')) {
        match &u.kind {
            UnitKind::Func {
                params,
                ret,
                has_value,
                ..
            } => {
                let result = if *has_value {
                    name(types, *ret)
                } else {
                    "unknown"
                };
                let params: Vec<String> = params
                    .iter()
                    .map(|p| &u.locals[p.0])
                    .map(|l| format!("{}:{}", l.name, name(types, l.ty)))
                    .collect();
                let _ = writeln!(functions, "{}:{result} ({})", u.name, params.join(", "));
                locals(&mut functions, types, u);
            }
            UnitKind::Handler { point, name, .. } => {
                let _ = writeln!(probes, "{point} /* <- {name} */");
                locals(&mut probes, types, u);
            }
        }
    }
    for (title, text) in [("# functions\n", functions), ("# probes\n", probes)] {
        if !text.is_empty() {
            out.push_str(title);
            out.push_str(&text);
        }
    }
    out
}
