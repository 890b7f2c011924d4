//! Automatic display: globals that are written and never read print themselves at the end, in
//! SystemTap's formats.

use std::cmp::Reverse;
use std::rc::Rc;

use spile_cast::Cast;
use spile_ir::fmt::escape_text;
use spile_ir::interp::{Cell, Element, Globals, Value};
use spile_ir::stats::Stat;
use spile_ir::{ElemTy, Extract, GlobalId, GlobalKind, StatsSpec};

use crate::controller::globals::SessionGlobals;

/// The text of all globals to display.
pub fn text(globals: &mut SessionGlobals) -> Vec<u8> {
    let mut out = Vec::new();
    let program = Rc::clone(&globals.program);
    let numbered = program.globals.iter().enumerate();
    for (i, global) in numbered.filter(|(_, g)| g.display) {
        // A private global's name contains its file behind the `@`.
        let name = global.name.split('@').next().unwrap_or_default();
        // A read error was reported where it occurred.
        let _ = display(globals, GlobalId(i.fit()), name, &global.kind, &mut out);
    }
    out
}

fn display(
    globals: &mut SessionGlobals,
    g: GlobalId,
    name: &str,
    kind: &GlobalKind,
    out: &mut Vec<u8>,
) -> Result<(), spile_ir::interp::Fault> {
    match kind {
        GlobalKind::Scalar(_) => {
            let value = Cell::Scalar(globals.gload(g)?);
            append_line(name, &[], &rendered(globals, value), None, out);
        }
        GlobalKind::Stats(spec) => match globals.stat_get(g, &[])? {
            Some(stat) if stat.extract(Extract::Count).is_ok_and(|n| n > 0) => {
                let cell = rendered(globals, Cell::Stats(stat));
                append_line(name, &[], &cell, Some(spec), out);
            }
            _ => out.extend_from_slice(format!("{name} @count=0\n").as_bytes()),
        },
        GlobalKind::Array { value, .. } => {
            let spec = match value {
                ElemTy::Stats(spec) => Some(spec),
                ElemTy::Scalar(_) => None,
            };
            let mut elements = globals.elements(g, &[])?;
            for e in &mut elements {
                e.cell = rendered(globals, e.cell.clone());
            }
            elements.sort_by_key(|e: &Element| Reverse(e.cell.value()));
            for e in &elements {
                append_line(name, &e.keys, &e.cell, spec, out);
            }
        }
    }
    Ok(())
}

/// A value with its marks replaced by their texts, and with its sum as far as it is known.
fn rendered(globals: &mut SessionGlobals, cell: Cell) -> Cell {
    match cell {
        Cell::Scalar(Value::Str(s)) => {
            let text = globals.texts.symbolic.render(&s);
            Cell::Scalar(Value::from(&*text))
        }
        Cell::Stats(mut stat) => {
            match stat.exact_sum(globals.sums_wrapped()) {
                Some(sum) => stat.sum = sum,
                // A sum that is not kept is 0.
                None => globals.inexact += u64::from(stat.sum != 0),
            }
            Cell::Stats(stat)
        }
        other => other,
    }
}

/// `name=5`, `name["k",1]="v"`, `name @count=...`, with a histogram below.
fn append_line(
    name: &str,
    keys: &[Value],
    cell: &Cell,
    spec: Option<&StatsSpec>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(name.as_bytes());
    for (i, key) in keys.iter().enumerate() {
        out.push(if i == 0 { b'[' } else { b',' });
        append_value(key, out);
    }
    if !keys.is_empty() {
        out.push(b']');
    }
    match cell {
        Cell::Scalar(v) => {
            out.push(b'=');
            append_value(v, out);
            out.push(b'\n');
        }
        Cell::Stats(stat) => {
            statistic(stat, spec, out);
            if let Some(hist) = spec.and_then(|s| s.hist) {
                out.extend_from_slice(hist.draw(&stat.buckets).as_bytes());
            }
        }
    }
}

fn append_value(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Long(n) => out.extend_from_slice(n.to_string().as_bytes()),
        Value::Str(s) => {
            out.push(b'"');
            out.extend_from_slice(&escape_text(s));
            out.push(b'"');
        }
    }
}

/// Only values that the statistic computes are printed.
fn statistic(stat: &Stat, spec: Option<&StatsSpec>, out: &mut Vec<u8>) {
    let kept = |f: fn(&StatsSpec) -> bool| spec.is_none_or(f);
    let parts = [
        ("count", Extract::Count, true),
        ("min", Extract::Min, kept(|s| s.min)),
        ("max", Extract::Max, kept(|s| s.max)),
        ("sum", Extract::Sum, kept(StatsSpec::keeps_sum)),
        ("avg", Extract::Avg, kept(StatsSpec::keeps_sum)),
    ];
    for (name, extract, _) in parts.into_iter().filter(|(_, _, kept)| *kept) {
        let n = match extract {
            Extract::Sum => stat.sum,
            _ => stat
                .extract_exactly(extract, false)
                .map_or(0, |(n, _)| n.into()),
        };
        out.extend_from_slice(format!(" @{name}={n}").as_bytes());
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_displayed_by_kind() {
        let mut stat = Stat::default();
        stat.add(None, 4);
        let spec = StatsSpec {
            sum: true,
            min: true,
            max: true,
            ..StatsSpec::default()
        };
        let count_only = StatsSpec::default();
        let stats = Cell::Stats(stat);
        let keys = [Value::from("a\"b"), Value::Long(-1)];
        let cases = [
            (&[][..], Cell::Scalar(5.into()), None, "x=5\n"),
            (&[], Cell::Scalar("v\n".into()), None, "x=\"v\\n\"\n"),
            (&keys, Cell::Scalar(7.into()), None, "x[\"a\\\"b\",-1]=7\n"),
            (
                &[],
                stats.clone(),
                Some(&spec),
                "x @count=1 @min=4 @max=4 @sum=4 @avg=4\n",
            ),
            (&keys[1..], stats, Some(&count_only), "x[-1] @count=1\n"),
        ];
        for (keys, cell, spec, text) in cases {
            let mut out = Vec::new();
            append_line("x", keys, &cell, spec, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
