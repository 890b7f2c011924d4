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

use std::fmt::{Display, Formatter, Result, Write};

use crate::storage::Storage;
use crate::*;

/// Bytes in quotes.
pub(crate) struct Quoted<'a>(pub &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_char('"')?;
        for b in self.0 {
            match b {
                b'"' => f.write_str("\\\"")?,
                b'\\' => f.write_str("\\\\")?,
                b'\n' => f.write_str("\\n")?,
                b'\t' => f.write_str("\\t")?,
                b' '..=b'~' => f.write_char(char::from(*b))?,
                _ => write!(f, "\\x{b:02x}")?,
            }
        }
        f.write_char('"')
    }
}

macro_rules! id_display {
    ($($ty:ident $prefix:literal),*) => {$(
        impl Display for $ty {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}
id_display!(Reg "r", BlockId "b", GlobalId "g", FuncId "fn", FormatId "f", StrId "s", TableId "t", RegexId "re", SiteId "@", IterId "i");

impl Display for Ty {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Ty::Long => f.write_str("long"),
            Ty::Str(w) => write!(f, "str{w}"),
        }
    }
}

impl Display for Val {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Val::Reg(r) => r.fmt(f),
            Val::Imm(n) => n.fmt(f),
            Val::Str(s) => s.fmt(f),
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

/// Operators and their words in the text form.
macro_rules! words {
    ($table:ident: $ty:ident { $($var:ident $word:literal),* $(,)? }) => {
        pub(crate) const $table: &[($ty, &str)] = &[$(($ty::$var, $word)),*];
        impl Display for $ty {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.write_str(match self { $($ty::$var => $word),* })
            }
        }
    };
}
words!(EXTRACTS: Extract {
    Count "count", Sum "sum", Min "min", Max "max", Avg "avg", Variance "variance",
});
words!(SPACES: Space { Kernel "kernel", User "user" });
words!(STREAMS: Stream { Out "out", Warn "warn", System "system", NextFile "next_file" });

fn keys(keys: &[Val]) -> String {
    format!("[{}]", List(keys.iter()))
}

fn pattern(keys: &[Option<Val>]) -> String {
    let keys = keys
        .iter()
        .map(|k| k.map_or("*".to_string(), |k| k.to_string()));
    format!("[{}]", List(keys))
}

/// An operand that can be absent, after its word.
fn option(word: &str, value: Option<impl Display>) -> String {
    value.map_or(String::new(), |v| format!(" {word}{v}"))
}

fn old(r: &Option<Reg>) -> String {
    r.map_or(String::new(), |r| format!("{r} = "))
}

impl Display for SortSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(if self.descending { "desc " } else { "asc " })?;
        match self.by {
            SortKey::Key(n) => write!(f, "key {n}"),
            SortKey::Value => f.write_str("value"),
            SortKey::Stat(what) => write!(f, "{what}"),
        }
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Inst::Copy { dst, src } => write!(f, "{dst} = copy {src}"),
            Inst::Un { dst, op, a } => write!(f, "{dst} = {op} {a}"),
            Inst::Bin { dst, op, a, b } => write!(f, "{dst} = {op} {a}, {b}"),
            Inst::StrCmp { dst, op, a, b } => write!(f, "{dst} = {op} {a}, {b}"),
            Inst::Concat { dst, a, b } => write!(f, "{dst} = concat {a}, {b}"),
            Inst::TableGet { dst, table, idx } => write!(f, "{dst} = table {table}, {idx}"),
            Inst::Regex {
                dst,
                re,
                text,
                keep,
            } => {
                let keep = if *keep { " keep" } else { "" };
                write!(f, "{dst} = match {re}, {text}{keep}")
            }
            Inst::Sprint { dst, fmt, args } => {
                write!(f, "{dst} = sprint {fmt}({})", List(args.iter()))
            }
            Inst::Print { stream, fmt, args } => {
                write!(f, "print {stream} {fmt}({})", List(args.iter()))
            }
            Inst::PrintHist { dst, g, keys: k } => {
                write!(f, "{}print_hist {g}{}", old(dst), keys(k))
            }
            Inst::Intr { dst, f: intr, args } => {
                write!(
                    f,
                    "{}intr {}({})",
                    old(dst),
                    intr.info().name,
                    List(args.iter())
                )
            }
            Inst::GLoad { dst, g } => write!(f, "{dst} = gload {g}"),
            Inst::GStore { g, val } => write!(f, "gstore {g}, {val}"),
            Inst::GAdd { g, val, old: o } => write!(f, "{}gadd {g}, {val}", old(o)),
            Inst::AGet { dst, g, keys: k } => write!(f, "{dst} = aget {g}{}", keys(k)),
            Inst::ASet { g, keys: k, val } => write!(f, "aset {g}{}, {val}", keys(k)),
            Inst::AAdd {
                g,
                keys: k,
                val,
                old: o,
            } => {
                write!(f, "{}aadd {g}{}, {val}", old(o), keys(k))
            }
            Inst::AHas { dst, g, keys } => write!(f, "{dst} = ahas {g}{}", pattern(keys)),
            Inst::ADel { g, keys } => write!(f, "adel {g}{}", pattern(keys)),
            Inst::GClear { g } => write!(f, "gclear {g}"),
            Inst::StatAdd { g, keys: k, val } => write!(f, "stat_add {g}{}, {val}", keys(k)),
            Inst::StatGet {
                dst,
                g,
                keys: k,
                what,
                shift,
            } => {
                let shift = option("shift ", Some(shift).filter(|n| **n != 0));
                write!(f, "{dst} = stat_get {what} {g}{}{shift}", keys(k))
            }
            Inst::HistGet {
                dst,
                g,
                keys: k,
                idx,
            } => {
                write!(f, "{dst} = hist_get {g}{}, {idx}", keys(k))
            }
            Inst::IterNew {
                it,
                g,
                slice,
                sort,
                limit,
            } => {
                let (order, limit) = (option("", *sort), option("limit ", *limit));
                write!(f, "iter {it} {g}{}{order}{limit}", pattern(slice))
            }
            Inst::IterHist { it, g, keys: k } => write!(f, "iter_hist {it} {g}{}", keys(k)),
            Inst::Load {
                dst,
                space,
                addr,
                size,
                signed,
            } => {
                let (sign, bits) = (if *signed { "s" } else { "u" }, u32::from(*size) * 8);
                write!(f, "{dst} = load {space} {sign}{bits} {addr}")
            }
            Inst::Raise { msg } => write!(f, "raise {msg}"),
            Inst::CatchMsg { dst } => write!(f, "{dst} = catch_msg"),
            Inst::Call { dst, func, args } => {
                write!(f, "{}call {func}({})", old(dst), List(args.iter()))
            }
            Inst::Tick { n } => write!(f, "tick {n}"),
            Inst::Enter => write!(f, "enter"),
            Inst::Leave => write!(f, "leave"),
            Inst::Save { src, at } => write!(f, "save {src}, {at}"),
            Inst::Restore { dst, at } => write!(f, "{dst} = restore {at}"),
            Inst::Rethrow => write!(f, "rethrow"),
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Term::Jump(b) => write!(f, "jump {b}"),
            Term::Branch { cond, then, els } => write!(f, "branch {cond}, {then}, {els}"),
            Term::IterNext {
                it,
                keys,
                value,
                body,
                done,
            } => {
                write!(f, "{}next {it} [{}] ", old(value), List(keys.iter()))?;
                write!(f, "{body}, {done}")
            }
            Term::Ret(None) => f.write_str("ret"),
            Term::Ret(Some(v)) => write!(f, "ret {v}"),
            Term::EndHandler => f.write_str("end_handler"),
        }
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

impl Display for NrSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            NrSet::All => f.write_str("all"),
            NrSet::List(nrs) => List(nrs.iter()).fmt(f),
        }
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Event::Begin(n) => write!(f, "begin({n})"),
            Event::End(n) => write!(f, "end({n})"),
            Event::Error(n) => write!(f, "error({n})"),
            Event::Never => f.write_str("never"),
            Event::Timer {
                period_ns,
                randomize_ns,
            } => {
                write!(f, "timer({period_ns}, {randomize_ns})")
            }
            Event::Prometheus => f.write_str("prometheus"),
            Event::InputLine => f.write_str("input_line"),
            Event::InputChar => f.write_str("input_char"),
            Event::Present { threads: false } => f.write_str("present_processes"),
            Event::Present { threads: true } => f.write_str("present_threads"),
            Event::Tracepoint(name) => write!(f, "tracepoint({})", Quoted(name.as_bytes())),
            Event::TraceEvent(event) => {
                let [system, name] = [&event.system, &event.name].map(|s| Quoted(s.as_bytes()));
                write!(f, "trace_event({system}, {name}, {})", event.id)
            }
            Event::SysEnter(nrs) => write!(f, "sys_enter({nrs})"),
            Event::SysExit(nrs) => write!(f, "sys_exit({nrs})"),
            Event::Procfs(file) => {
                let access = if file.write { "write" } else { "read" };
                let path = Quoted(file.path.as_bytes());
                write!(f, "procfs({access} {path} {}", file.maxsize)?;
                if let Some(umask) = file.umask {
                    write!(f, " umask {umask}")?;
                }
                f.write_str(")")
            }
            Event::Counter { name, ty, config } => {
                write!(f, "counter({}, {ty}, {config})", Quoted(name.as_bytes()))
            }
            Event::Perf {
                ty,
                config,
                sample,
                of,
            } => {
                write!(f, "perf({ty}, {config}, ")?;
                match sample {
                    SamplingRate::Period(n) => write!(f, "period {n}")?,
                    SamplingRate::Freq(n) => write!(f, "freq {n}")?,
                }
                match of {
                    PerfScope::All => f.write_str(")"),
                    PerfScope::Target => f.write_str(" target)"),
                    PerfScope::Process(pid) => write!(f, " pid {pid})"),
                }
            }
            Event::Code(probe) => probe.fmt(f),
            Event::Netfilter(n) => write!(f, "netfilter({}, {}, {})", n.pf, n.hook, n.priority),
            Event::Lsm(name) => write!(f, "lsm({})", Quoted(name.as_bytes())),
            Event::Watch(w) => {
                let access = if w.reads { "rw" } else { "write" };
                write!(f, "watch({access} {} {}", w.address, w.length)?;
                match &w.of {
                    WatchOwner::Kernel => {}
                    WatchOwner::Process(pid) => write!(f, " pid {pid}")?,
                    WatchOwner::Program(path) => write!(f, " of {}", Quoted(path.as_bytes()))?,
                }
                f.write_str(")")
            }
        }
    }
}

impl Display for CodeProbe {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self.space {
            Space::Kernel => "code(kernel",
            Space::User => "code(user",
        })?;
        if self.ret {
            f.write_str(" return")?;
        }
        if let Some(pid) = self.pid {
            write!(f, " pid {pid}")?;
        }
        if self.tree {
            f.write_str(" tree")?;
        }
        f.write_str(match self.optional_sites {
            OptionalSites::Single => "",
            OptionalSites::Group => " some",
            OptionalSites::All => " optional",
        })?;
        for (n, site) in self.sites.iter().enumerate() {
            match &site.location {
                CodeLocation::Symbol {
                    module,
                    name,
                    offset,
                } => {
                    let module = module.as_deref().unwrap_or("").as_bytes();
                    let (module, name) = (Quoted(module), Quoted(name.as_bytes()));
                    write!(f, ", symbol {module} {name} {offset}")?;
                }
                CodeLocation::Address(at) => write!(f, ", address {at}")?,
                CodeLocation::Traced(at) => write!(f, ", traced {at}")?,
                CodeLocation::File { path, offset } => {
                    write!(f, ", file {} {offset}", Quoted(path.as_bytes()))?;
                }
            }
            if site.semaphore != 0 {
                write!(f, " semaphore {}", site.semaphore)?;
            }
            if site.number as usize != n {
                write!(f, " number {}", site.number)?;
            }
            if let Some(exits) = &site.exits {
                f.write_str(if exits.goroutines { " goroutines" } else { "" })?;
                f.write_str(if exits.shared { " shared" } else { "" })?;
                for exit in &exits.at {
                    write!(f, " exit {} {}", exit.offset, exit.distance)?;
                }
            }
        }
        f.write_str(")")
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
