//! The text form of a program, which [`crate::reader`] reads back.
//!
//! ```text
//! limits maxaction=1000 maxaction_interruptible=10000 ...
//! site @1 "identifier 'x' at a.stp:1:3"
//! str s0 "hello"
//! table t0 "errno" "" "EPERM"
//! regex re0 "^a+" find
//! fmt f0 "%d %s\n"
//! global g0 "n" long = 5 shared lock display @1
//! global g1 "a" [long, str16] stats(sum, hist_log) max 2048 wrap percpu double @0
//! func fn0 "f" (r0, r1) long {
//!   regs r0: long, r1: str16
//!   b0: catch b1
//!     r0 = add r0, 5 @1
//!     ret r0
//! }
//! handler "begin" points 1 begin(0) @1 { ... }
//! ```
//! An id is the letters of its kind and its index. Entries stand in the order of their indexes.
//! Strings are quoted as in Rust byte strings (`\n`, `\"`, `\\`, `\x1b`). Comments go from `;`
//! to the end of the line. `@n` after an instruction is its site, left out when it is 0.

use std::fmt::{Display, Formatter, Result};

use crate::form::Quoted;
use crate::storage::Storage;
use crate::*;

impl Display for Ty {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Ty::Long => f.write_str("long"),
            Ty::Str(w) => write!(f, "str{w}"),
        }
    }
}

/// Items separated by `, `.
struct List<I>(I);

impl<I: Iterator<Item: Display> + Clone> Display for List<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, item) in self.0.clone().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            item.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if !self.regs.is_empty() {
            let regs = self
                .regs
                .iter()
                .enumerate()
                .map(|(i, t)| format!("r{i}: {t}"));
            writeln!(f, "  regs {}", List(regs))?;
        }
        if self.iters != 0 {
            writeln!(f, "  iters {}", self.iters)?;
        }
        for (i, block) in self.blocks.iter().enumerate() {
            write!(f, "  b{i}:")?;
            match block.catch {
                Some(c) => writeln!(f, " catch {c}")?,
                None => writeln!(f)?,
            }
            for (inst, site) in &block.insts {
                write!(f, "    {inst}")?;
                match site {
                    SiteId(0) => writeln!(f)?,
                    site => writeln!(f, " {site}")?,
                }
            }
            writeln!(f, "    {}", block.term)?;
        }
        Ok(())
    }
}

impl Display for StatsSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut parts = Vec::new();
        for (on, word) in [
            (self.sum, "sum"),
            (self.min, "min"),
            (self.max, "max"),
            (self.variance, "variance"),
        ] {
            if on {
                parts.push(word.to_string());
            }
        }
        match self.hist {
            None => {}
            Some(Hist::Log) => parts.push("hist_log".into()),
            Some(Hist::Linear { low, high, step }) => {
                parts.push(format!("hist_linear {low} {high} {step}"));
            }
        }
        write!(f, "stats({})", List(parts.iter()))
    }
}

impl Display for GlobalKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            GlobalKind::Scalar(ty) => ty.fmt(f),
            GlobalKind::Stats(spec) => spec.fmt(f),
            GlobalKind::Array {
                keys,
                value,
                max,
                wrap,
            } => {
                write!(f, "[{}] ", List(keys.iter()))?;
                match value {
                    ElemTy::Scalar(ty) => ty.fmt(f)?,
                    ElemTy::Stats(spec) => spec.fmt(f)?,
                }
                write!(f, " max {max}{}", if *wrap { " wrap" } else { "" })
            }
        }
    }
}

impl Display for Storage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Storage::Controller => "controller",
            Storage::Shared { lock: false } => "shared",
            Storage::Shared { lock: true } => "shared lock",
            Storage::PerCpu { double: false } => "percpu",
            Storage::PerCpu { double: true } => "percpu double",
        })
    }
}

impl Display for Limits {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("limits")?;
        let mut copy = self.clone();
        for (name, n) in crate::reader::limit_fields(&mut copy) {
            write!(f, " {name}={n}")?;
        }
        Ok(())
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.limits != Limits::default() {
            writeln!(f, "{}", self.limits)?;
        }
        for (i, s) in self.sites.iter().enumerate() {
            write!(f, "site @{i} {}", Quoted(s.near.as_bytes()))?;
            s.caller.iter().try_for_each(|c| write!(f, " called {c}"))?;
            writeln!(f, "{}", if s.library { " library" } else { "" })?;
        }
        for (i, s) in self.strings.iter().enumerate() {
            writeln!(f, "str s{i} {}", Quoted(s))?;
        }
        for (i, t) in self.tables.iter().enumerate() {
            write!(f, "table t{i} {}", Quoted(t.name.as_bytes()))?;
            t.entries
                .iter()
                .try_for_each(|e| write!(f, " {}", Quoted(e)))?;
            writeln!(f)?;
        }
        for (i, r) in self.regexes.iter().enumerate() {
            let find = if r.finds() { " find" } else { "" };
            writeln!(f, "regex re{i} {}{find}", Quoted(&r.pattern))?;
        }
        for (i, format) in self.formats.iter().enumerate() {
            writeln!(f, "fmt f{i} {}", Quoted(&format.to_bytes()))?;
        }
        for (i, g) in self.globals.iter().enumerate() {
            write!(f, "global g{i} {} {}", Quoted(g.name.as_bytes()), g.kind)?;
            match &g.init {
                None => {}
                Some(Init::Long(n)) => write!(f, " = {n}")?,
                Some(Init::Str(s)) => write!(f, " = {}", Quoted(s))?,
            }
            let display = if g.display { " display" } else { "" };
            writeln!(f, " {}{display} {}", g.storage, g.site)?;
        }
        for (i, func) in self.funcs.iter().enumerate() {
            let params = List(func.params.iter());
            write!(f, "func fn{i} {} ({params})", Quoted(func.name.as_bytes()))?;
            func.ret.iter().try_for_each(|t| write!(f, " {t}"))?;
            writeln!(f, " {{\n{}}}", func.body)?;
        }
        for h in &self.handlers {
            let (point, points) = (Quoted(h.point.as_bytes()), h.points);
            writeln!(
                f,
                "handler {point} points {points} {} {} {{\n{}}}",
                h.event, h.site, h.body
            )?;
        }
        Ok(())
    }
}
