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

use crate::fmt::Format;
use crate::form::{Form, Printer, display, form};
use crate::regex::Regex;
use crate::storage::Storage;
use crate::token::{Reader, Res};
use crate::*;

form! {
    struct Site { near caller["called"] library["library"] }
    struct ConstTable { name entries[""] }
    struct Global { name kind init["="] storage display["display"] site }
    struct Handler { point "points" points event["(", ")"] site body }
}

form! {
    enum Init { Str "" (string), Long "" (number) }
    enum Storage {
        Controller "controller",
        Shared "shared" { lock["lock"] },
        PerCpu "percpu" { double["double"] },
    }
    enum ElemTy "`str` and a number" { Stats "stats" (spec), Scalar "" (ty) }
    enum GlobalKind "`str` and a number" {
        Array "" { keys[" [", "]"], value "max", max, wrap["wrap"] },
        Stats "stats" (spec),
        Scalar "" (ty),
    }
    enum Hist "a part of a statistic" { Log "hist_log", Linear "hist_linear" { low, high, step } }
}

display! { Ty Storage }

impl Form for Ty {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        match self {
            Ty::Long => p.word("long"),
            Ty::Str(width) => p.item(format_args!("str{width}")),
        }
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Ty>> {
        if r.opt("long") {
            return Ok(Some(Ty::Long));
        }
        match r.opt_id("str").map(u16::try_from).transpose() {
            Ok(width) => Ok(width.map(Ty::Str)),
            Err(_) => r.error("a string width"),
        }
    }

    fn expected(_: &[&str]) -> String {
        "`str` and a number".into()
    }
}

impl Form for StatsSpec {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        let mut comma = "";
        p.word("(")?;
        for (word, on) in self.clone().flags() {
            if *on {
                p.word(std::mem::replace(&mut comma, ","))?;
                p.word(word)?;
            }
        }
        self.hist.print(&[comma], p)?;
        p.word(")")
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<StatsSpec> {
        let mut spec = StatsSpec::default();
        r.want("(")?;
        while !r.opt(")") {
            if spec != StatsSpec::default() {
                r.want(",")?;
            }
            if let Some((_, on)) = spec.flags().into_iter().find(|(word, _)| r.opt(word)) {
                *on = true;
            } else {
                spec.hist = Some(Hist::read(&[], r)?);
            }
        }
        Ok(spec)
    }
}

impl StatsSpec {
    /// The values that are kept or not, by their words.
    fn flags(&mut self) -> [(&'static str, &mut bool); 4] {
        [
            ("sum", &mut self.sum),
            ("min", &mut self.min),
            ("max", &mut self.max),
            ("variance", &mut self.variance),
        ]
    }
}

impl Form for Regex {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        self.pattern.print(&[], p)?;
        self.finds().print(&["find"], p)
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Regex> {
        let pattern = r.bytes()?;
        Regex::new(&pattern, r.opt("find"))
            .or_else(|e| r.error(&format!("a regular expression before here ({})", e.message)))
    }
}

impl Form for Format {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        Bytes::from(self.to_bytes()).print(&[], p)
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Format> {
        let text = r.bytes()?;
        Format::parse(&text).or_else(|e| r.error(&format!("a format before here ({e})")))
    }
}

impl Form for Func {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        self.name.print(&[], p)?;
        self.params.print(&[" (", ")"], p)?;
        self.ret.print(&[], p)?;
        self.body.print(&[], p)
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Func> {
        Ok(Func {
            name: Form::read(&[], r)?,
            params: Form::read(&["(", ")"], r)?,
            ret: Form::read(&[], r)?,
            // Set by `mark_recursive` after the whole program is read.
            recursive: false,
            body: Form::read(&[], r)?,
        })
    }
}

impl Form for Body {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        p.item(format_args!("{{\n{self}}}"))
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Body> {
        let mut body = Body::default();
        r.want("{")?;
        if r.opt("regs") {
            while body.regs.is_empty() || r.opt(",") {
                r.index("r", body.regs.len())?;
                r.want(":")?;
                body.regs.push(Form::read(&[], r)?);
            }
        }
        body.iters = Form::read(&["iters"], r)?;
        while !r.opt("}") {
            r.index("b", body.blocks.len())?;
            r.want(":")?;
            body.blocks.push(read_block(r)?);
        }
        Ok(body)
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, ty) in self.regs.iter().enumerate() {
            write!(f, "{} r{i}: {ty}", if i == 0 { "  regs" } else { "," })?;
        }
        f.write_str(if self.regs.is_empty() { "" } else { "\n" })?;
        if self.iters != 0 {
            writeln!(f, "  iters {}", self.iters)?;
        }
        for (i, block) in self.blocks.iter().enumerate() {
            write!(f, "  b{i}:")?;
            block
                .catch
                .iter()
                .try_for_each(|c| write!(f, " catch {c}"))?;
            writeln!(f)?;
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

fn read_block(r: &mut Reader) -> Res<Block> {
    let catch = Form::read(&["catch"], r)?;
    let mut insts = Vec::new();
    loop {
        let dst = Reg::opt(&[], r)?;
        if dst.is_some() {
            r.want("=")?;
        }
        if let Some(term) = Term::read(r, dst)? {
            return Ok(Block { insts, term, catch });
        }
        match Inst::read(r, dst)? {
            Some(inst) => insts.push((inst, SiteId::opt(&[], r)?.unwrap_or(SiteId(0)))),
            None => return r.error("an instruction"),
        }
    }
}

/// Prints the entries of a table.
fn entries<T: Form>(f: &mut Formatter<'_>, start: &str, entries: &[T]) -> Result {
    for (i, entry) in entries.iter().enumerate() {
        write!(f, "{start}{i} ")?;
        entry.print(&[], &mut Printer::new(f))?;
        writeln!(f)?;
    }
    Ok(())
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.limits != Limits::default() {
            writeln!(f, "{}", self.limits)?;
        }
        entries(f, "site @", &self.sites)?;
        entries(f, "str s", &self.strings)?;
        entries(f, "table t", &self.tables)?;
        entries(f, "regex re", &self.regexes)?;
        entries(f, "fmt f", &self.formats)?;
        entries(f, "global g", &self.globals)?;
        entries(f, "func fn", &self.funcs)?;
        for handler in &self.handlers {
            f.write_str("handler ")?;
            handler.print(&[], &mut Printer::new(f))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
