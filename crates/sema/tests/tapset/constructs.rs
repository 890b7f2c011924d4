//! Coverage of the language, measured: cases of `tests/cases` that compare output use every construct of the
//! grammar. The names of constructs follow from the syntax tree: a new variant does not compile without a name, and a
//! name that no case uses fails.
//!
//! The last part of `docs/language-coverage.md` has these names, with the handlers in which cases use them; `BLESS=1`
//! writes it anew. The table with all cases is written to `constructs.tsv` in cargo's folder for tests, `target/tmp`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use spile_sema::probe::list::{probe_types, typed_probe_types};
use spile_syntax::ast::*;
use spile_syntax::lexer::lex;
use spile_syntax::token::Tok;
use spile_syntax::visit::{Visitor, walk_expr, walk_probe_point, walk_stmt};
use spile_testing::files::root;
use spile_testing::rehearsal::Script;

use super::coverage::REHEARSED;
use super::*;

/// Section and name of a construct, as in the document.
type Name = (&'static str, String);

/// The names of the variants of an enum; those without a name are refused, and other tests show that.
macro_rules! names {
    ($function:ident($type:ty), $all:ident: $($pattern:pat $(if $guard:expr)? => $name:literal,)*) => {
        fn $function(of: &$type) -> &'static str {
            match of { $($pattern $(if $guard)? => $name,)* }
        }
        const $all: &[&str] = &[$($name),*];
    };
}

names! { statement(StmtKind), STATEMENTS:
    StmtKind::Empty => ";",
    StmtKind::Expr(_) => "an expression",
    StmtKind::Block(_) => "{ }",
    StmtKind::If { els: None, .. } => "if",
    StmtKind::If { .. } => "if else",
    StmtKind::While { .. } => "while",
    StmtKind::For { init: Some(_), cond: Some(_), step: Some(_), .. } => "for (a; b; c)",
    StmtKind::For { .. } => "for (;;), of which parts are left out",
    StmtKind::Foreach(_) => "foreach",
    StmtKind::Break => "break",
    StmtKind::Continue => "continue",
    StmtKind::Return(None) => "return",
    StmtKind::Return(Some(_)) => "return e",
    StmtKind::Next => "next",
    StmtKind::Try { var: None, .. } => "try catch",
    StmtKind::Try { .. } => "try catch (v)",
    StmtKind::Delete(Expr { kind: ExprKind::Var(_), .. }) => "delete a",
    StmtKind::Delete(Expr { kind: ExprKind::Index { keys, .. }, .. }) if keys.iter().any(is_any) => "delete a[x, *]",
    StmtKind::Delete(_) => "delete a[x, y]",
    StmtKind::Embedded(_) => "",
}

names! { expression(ExprKind), EXPRESSIONS:
    ExprKind::Num(_) => "numbers",
    ExprKind::Str(_) => "strings",
    ExprKind::Var(_) => "variables",
    ExprKind::Index { base, .. } if matches!(base.kind, ExprKind::Hist { .. }) => "@hist_log(s)[i]",
    ExprKind::Index { keys, .. } if keys.iter().any(is_any) => "a[x, *]",
    ExprKind::Index { .. } => "a[x]",
    ExprKind::Call { .. } => "f(x)",
    ExprKind::Unary(UnOp::Neg, _) => "-x",
    ExprKind::Unary(UnOp::Not, _) => "!x",
    ExprKind::Unary(UnOp::BitNot, _) => "~x",
    ExprKind::Unary(UnOp::Plus, _) => "+x",
    ExprKind::Binary(..) => "operators with two operands",
    ExprKind::Ternary(..) => "c ? x : y",
    ExprKind::Assign { op: None, .. } => "x = y",
    ExprKind::Assign { .. } => "assignments with an operator",
    ExprKind::StatAdd { .. } => "s <<< x",
    ExprKind::IncDec { prefix: true, inc: true, .. } => "++x",
    ExprKind::IncDec { prefix: true, .. } => "--x",
    ExprKind::IncDec { inc: true, .. } => "x++",
    ExprKind::IncDec { .. } => "x--",
    ExprKind::In { keys, .. } if keys.iter().any(is_any) => "[x, *] in a",
    ExprKind::In { keys, .. } if keys.len() > 1 => "[x, y] in a",
    ExprKind::In { .. } => "x in a",
    ExprKind::Match { negated: false, .. } => "s =~ \"regex\"",
    ExprKind::Match { .. } => "s !~ \"regex\"",
    ExprKind::Stat { params, .. } if !params.is_empty() => "@variance(s, n)",
    ExprKind::Stat { .. } => "extractors",
    ExprKind::Hist { kind: HistKind::Log, .. } => "@hist_log(s)",
    ExprKind::Hist { .. } => "@hist_linear(s, low, high, step)",
    ExprKind::Print { .. } => "print and its family",
    ExprKind::Target { addr_of: true, .. } => "&$v",
    ExprKind::Target { pretty: Pretty::Shallow, .. } => "$v$",
    ExprKind::Target { pretty: Pretty::Deep, .. } => "$v$$",
    ExprKind::Target { access, .. } if access.iter().any(|a| matches!(a, Access::Index(_))) => "$v[i]",
    ExprKind::Target { access, .. } if !access.is_empty() => "$v->member",
    ExprKind::Target { name, .. } if name.starts_with("$$") => "$$names of the event",
    ExprKind::Target { name, .. } if &**name == "$return" => "$return",
    ExprKind::Target { .. } => "$v",
    ExprKind::At { addr_of: true, .. } => "& of an @-operator",
    ExprKind::At { pretty: Pretty::Shallow | Pretty::Deep, .. } => "$ and $$ behind an @-operator",
    ExprKind::At { access, .. } if !access.is_empty() => "-> and [i] behind an @-operator",
    ExprKind::At { .. } => "@-operators",
    ExprKind::Arrow { addr_of: true, .. } => "&x->member",
    ExprKind::Arrow { pretty: Pretty::Shallow | Pretty::Deep, .. } => "x->member$ and x->member$$",
    ExprKind::Arrow { .. } => "x->member",
    ExprKind::Embedded(_) => "",
}

names! { binary(BinOp), BINARY:
    BinOp::Add => "+", BinOp::Sub => "-", BinOp::Mul => "*", BinOp::Div => "/", BinOp::Mod => "%",
    BinOp::Shl => "<<", BinOp::Shr => ">>", BinOp::UShr => ">>>", BinOp::And => "&", BinOp::Or => "|",
    BinOp::Xor => "^", BinOp::LogAnd => "&&", BinOp::LogOr => "||", BinOp::Lt => "<", BinOp::Le => "<=",
    BinOp::Gt => ">", BinOp::Ge => ">=", BinOp::Eq => "==", BinOp::Ne => "!=", BinOp::Concat => ".",
}

names! { extractor(StatOp), EXTRACTORS:
    StatOp::Count => "@count", StatOp::Sum => "@sum", StatOp::Min => "@min", StatOp::Max => "@max",
    StatOp::Avg => "@avg", StatOp::Variance => "@variance",
}

names! { at_operator(AtOp), AT_OPERATORS:
    AtOp::Var => "@var", AtOp::Cast => "@cast", AtOp::Defined => "@defined", AtOp::ProbeWrite => "@probewrite",
    AtOp::Entry => "@entry", AtOp::Perf => "@perf", AtOp::Enum => "@enum", AtOp::EnumName => "@enumname",
    AtOp::Const => "@const", AtOp::KRegister => "@kregister", AtOp::KDeref => "@kderef",
    AtOp::URegister => "@uregister", AtOp::UDeref => "@uderef",
}

names! { item(Item), ITEMS:
    Item::Probe(_) => "probe",
    Item::Alias(Alias { kind: AliasKind::Epilogue, .. }) => "probe a += p {}",
    Item::Alias(Alias { second: Some(_), .. }) => "probe a = p {prologue}, {epilogue}",
    Item::Alias(Alias { names, .. }) if names.len() > 1 => "probe a = b = p {}",
    Item::Alias(_) => "probe a = p {}",
    Item::Global(GlobalDecl { private: true, .. }) => "private global",
    Item::Global(_) => "global",
    Item::Function(Function { private: true, .. }) => "private function",
    Item::Function(Function { priority: Some(_), .. }) => "function f(x) : priority",
    Item::Function(Function { ret: Some(TypeName::Long), .. }) => "function f:long",
    Item::Function(Function { ret: Some(TypeName::String), .. }) => "function f:string",
    Item::Function(_) => "function f",
    Item::Embedded(_) => "",
}

names! { variable(GlobalVar), VARIABLES:
    GlobalVar { wrap: true, max: Some(_), .. } => "a%[n]",
    GlobalVar { wrap: true, .. } => "a%",
    GlobalVar { max: Some(_), .. } => "a[n]",
    GlobalVar { init: Some(Literal::Num(_)), .. } => "a = number",
    GlobalVar { init: Some(Literal::Str(_)), .. } => "a = \"string\"",
    GlobalVar { .. } => "a",
}

names! { sorted(Sort), SORTS:
    Sort { by: SortBy::Key(_), descending: false, .. } => "k+ in a",
    Sort { by: SortBy::Key(_), .. } => "k- in a",
    Sort { by: SortBy::Value, descending: false, .. } => "k in a+",
    Sort { by: SortBy::Value, .. } => "k in a-",
    Sort { descending: false, .. } => "k in a @extractor+",
    Sort { .. } => "k in a @extractor-",
}

/// Names of parts of a tree that are no variants.
#[rustfmt::skip]
const PARTS: &[(&str, &[&str])] = &[
    ("Statements", &[
        "foreach (k in a)", "foreach ([k, l] in a)", "foreach (v = k in a)", "foreach (k in a[x, *])",
        "foreach (k in a) limit e", "foreach (i in @hist_log(s))",
    ]),
    ("Top level", &["parameter x:long", "parameter x:string", "parameter x"]),
    ("Probe points", &["p ?", "p !", "p if (e)", "p(number)", "p(\"string\")", "p.*", "p.**", "p, q"]),
    ("Printing", &[
        "print", "println", "printd", "printdln", "printf", "print_char", "sprint", "sprintln", "sprintd",
        "sprintdln", "sprintf",
    ]),
    ("printf", &[
        "%b", "%c", "%d", "%i", "%m", "%M", "%o", "%p", "%s", "%u", "%x", "%X", "%%", "l", "width", "*",
        ".precision", ".*", "#", "0", "+", "-", "a space",
    ]),
    ("Context variables", &["$$vars", "$$parms", "$$locals", "$$return", "$$name", "$$provider", "$$system"]),
    ("Preprocessor", &[
        "%( c %? x %)", "%( c %? x %: y %)", "@define m %( x %)", "@define m(a) %( x %)", "$1", "@1", "$#", "@#",
        "kernel_v", "kernel_vr", "systemtap_v", "arch", "runtime", "systemtap_privilege", "guru_mode", "CONFIG_x",
    ]),
];

/// Beginnings of families that no rehearsed case uses and compares, and components that only they have.
const OPEN: &[(&str, &str)] = &[
    ("hw", "of perf.hw"),
    (
        "perf.hw",
        "virtual machines have no counters of the processor",
    ),
    (
        "perf.type.config",
        "the same, by number: other-events has refusals",
    ),
    (
        "perf.sw.NAME.hz",
        "other-events has perf.sw.NAME.sample, of the same code",
    ),
    (
        "perf.sw.NAME.process",
        "the process is a part of perf.sw.NAME.sample.process",
    ),
    ("data", "of kernel.data and process.data"),
    ("length", "of kernel.data and process.data"),
    ("rw", "of kernel.data and process.data"),
    (
        "kernel.data",
        "process-events: the shells wait for a process",
    ),
    (
        "process.data",
        "process-events: the shells wait for a process",
    ),
    (
        "procfs.umask.write",
        "other-events: the shells wait for a file",
    ),
    (
        "process.library.plt",
        "indirect: the shells wait for a process",
    ),
    (
        "nearest",
        "dwarf and kernel-debuginfo compare messages and listings",
    ),
    (
        "kernel.function.callee",
        "kernel-debuginfo compares listings",
    ),
    (
        "module.function.callee",
        "kernel-debuginfo compares listings",
    ),
    ("module.trace", "of the same code as module.tracepoint"),
    ("module.tracepoint", "modules: the shells wait for a module"),
    ("kprobe", "of the same code as kernel.function"),
    ("netfilter.pf.hook", "netfilter.hook.pf in the other order"),
    (
        "process.library.function.callee",
        "of the same code as process.function.callee",
    ),
    (
        "process.library.provider.mark",
        "of the same code as process.provider.mark",
    ),
    (
        "process.library.statement",
        "of the same code as process.statement",
    ),
    ("timer.profile.tick", "timer.profile by its other name"),
];

/// Begin and end of the measured part of the document.
const MARKS: [&str; 2] = ["<!-- measured -->\n", "<!-- end -->\n"];

fn is_any(key: &Key) -> bool {
    matches!(key, Key::Any(_))
}

/// All names.
fn all() -> BTreeSet<Name> {
    let of = |section: &'static str, names: &[&str]| {
        let names = names.iter().filter(|n| !n.is_empty());
        names
            .map(|n| (section, (*n).to_owned()))
            .collect::<Vec<_>>()
    };
    // What an operator and `=` are spelled together; comparisons end in the same character.
    let assigns = Tok::OPERATORS.iter().map(|(_, text)| *text).filter(|text| {
        let before = text.strip_suffix('=');
        before.is_some_and(|b| BINARY.contains(&b)) && !BINARY.contains(text)
    });
    let mut all = [
        of("Statements", STATEMENTS),
        of("Statements", SORTS),
        of("Expressions", EXPRESSIONS),
        of("Binary operators", BINARY),
        of("Statistics", EXTRACTORS),
        of("@-operators", AT_OPERATORS),
        of("Top level", ITEMS),
        of("Globals", VARIABLES),
        of("Assignments", &assigns.collect::<Vec<_>>()),
    ]
    .concat();
    all.extend(PARTS.iter().flat_map(|(section, names)| of(section, names)));
    all.extend(
        probe_types()
            .iter()
            .map(|t| ("Families of probe points", family(t))),
    );
    for point in typed_probe_types() {
        let words = family(&point);
        all.extend(
            words
                .split('.')
                .map(|w| ("Components of probe points", w.to_owned())),
        );
    }
    let open = |name: &str| {
        OPEN.iter().any(|(open, _)| {
            name.strip_prefix(open)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    all.retain(|(section, name)| !section.ends_with("probe points") || !open(name));
    all.into_iter().collect()
}

/// A family of points by the words of its components, without operands and options.
fn family(point: &str) -> String {
    let mut words = String::new();
    let mut depth = 0;
    for c in point.chars() {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        if depth == 0 && !")]".contains(c) {
            words.push(c);
        }
    }
    words
}

/// Where a handler runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    Controller,
    Kernel,
}

/// What cases use, and where.
#[derive(Default)]
struct Used {
    names: BTreeMap<Name, (BTreeSet<Where>, BTreeSet<String>)>,
}

/// Collects the constructs of a part of a script.
#[derive(Default)]
struct Constructs {
    names: BTreeSet<Name>,
    calls: BTreeSet<String>,
}

impl Constructs {
    fn add(&mut self, section: &'static str, name: impl Into<String>) {
        self.names.insert((section, name.into()));
    }

    fn print(&mut self, op: PrintOp, args: &[Expr]) {
        let PrintOp {
            to_string,
            format,
            delim,
            newline,
            char,
        } = op;
        let part = |is: bool, text: &'static str| if is { text } else { "" };
        let parts = [
            part(to_string, "s"),
            "print",
            part(format, "f"),
            part(delim, "d"),
            part(newline, "ln"),
            part(char, "_char"),
        ];
        self.add("Printing", parts.concat());
        if let (true, Some(ExprKind::Str(text))) = (format, args.first().map(|a| &a.kind)) {
            self.format(&String::from_utf8_lossy(text));
        }
    }

    fn format(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                continue;
            }
            let mut precision = false;
            while let Some(c) = chars.next() {
                let digits = matches!(c, '1'..='9') || precision && c == '0';
                match c {
                    '.' => precision = true,
                    '*' => self.add("printf", if precision { ".*" } else { "*" }),
                    _ if digits => {
                        self.add("printf", if precision { ".precision" } else { "width" })
                    }
                    ' ' => self.add("printf", "a space"),
                    '#' | '0' | '+' | '-' | 'l' => self.add("printf", c.to_string()),
                    _ => {
                        self.add("printf", format!("%{c}"));
                        break;
                    }
                }
                while digits && chars.next_if(char::is_ascii_digit).is_some() {}
            }
        }
    }

    fn foreach(&mut self, f: &Foreach) {
        let keys = if f.keys.len() > 1 {
            "foreach ([k, l] in a)"
        } else {
            "foreach (k in a)"
        };
        let parts = [
            (true, keys),
            (f.value.is_some(), "foreach (v = k in a)"),
            (f.slice.is_some(), "foreach (k in a[x, *])"),
            (f.limit.is_some(), "foreach (k in a) limit e"),
            (
                matches!(f.over, ForeachOver::Hist(_)),
                "foreach (i in @hist_log(s))",
            ),
        ];
        for (_, name) in parts.into_iter().filter(|p| p.0) {
            self.add("Statements", name);
        }
        if let Some(sort) = &f.sort {
            self.add("Statements", sorted(sort));
        }
    }

    fn item(&mut self, i: &Item) {
        self.add("Top level", item(i));
        match i {
            Item::Global(g) => g.vars.iter().for_each(|v| self.add("Globals", variable(v))),
            Item::Function(f) => {
                for (_, ty) in &f.params {
                    let name = match ty {
                        Some(TypeName::Long) => "parameter x:long",
                        Some(TypeName::String) => "parameter x:string",
                        None => "parameter x",
                    };
                    self.add("Top level", name);
                }
            }
            Item::Probe(p) if p.points.len() > 1 => self.add("Probe points", "p, q"),
            _ => {}
        }
    }
}

impl Visitor for Constructs {
    fn stmt(&mut self, s: &Stmt) {
        self.add("Statements", statement(&s.kind));
        if let StmtKind::Foreach(f) = &s.kind {
            self.foreach(f);
        }
        walk_stmt(self, s);
    }

    fn expr(&mut self, e: &Expr) {
        self.add("Expressions", expression(&e.kind));
        match &e.kind {
            ExprKind::Binary(op, ..) => self.add("Binary operators", binary(op)),
            ExprKind::Assign { op: Some(op), .. } => {
                self.add("Assignments", format!("{}=", binary(op)))
            }
            ExprKind::Stat { op, .. } => self.add("Statistics", extractor(op)),
            ExprKind::At { op, .. } => self.add("@-operators", at_operator(op)),
            ExprKind::Print { op, args } => self.print(*op, args),
            ExprKind::Target { name, .. } if name.starts_with("$$") => {
                self.add("Context variables", &**name)
            }
            ExprKind::Call { name, .. } => {
                self.calls.insert(name.name.to_string());
            }
            _ => {}
        }
        walk_expr(self, e);
    }

    fn probe_point(&mut self, p: &ProbePoint) {
        let has = |is: &dyn Fn(&Component) -> bool| p.components.iter().any(is);
        let parts = [
            (p.optional, "p ?"),
            (p.sufficient, "p !"),
            (p.condition.is_some(), "p if (e)"),
            (
                has(&|c| matches!(c.arg, Some(Literal::Num(_)))),
                "p(number)",
            ),
            (
                has(&|c| matches!(c.arg, Some(Literal::Str(_)))),
                "p(\"string\")",
            ),
            (
                has(&|c| c.name.contains('*') && !c.name.contains("**")),
                "p.*",
            ),
            (has(&|c| c.name.contains("**")), "p.**"),
        ];
        for (_, name) in parts.into_iter().filter(|p| p.0) {
            self.add("Probe points", name);
        }
        let mut words: Vec<&str> = p.components.iter().map(|c| &*c.name).collect();
        match &mut words[..] {
            [call, name, ..] if call.ends_with("syscall") => *name = "NAME",
            ["perf", "sw" | "hw", name, ..] => *name = "NAME",
            _ => {}
        }
        words
            .iter()
            .for_each(|w| self.add("Components of probe points", *w));
        // Options may follow a family.
        for end in 1..=words.len() {
            self.add("Families of probe points", words[..end].join("."));
        }
        walk_probe_point(self, p);
    }
}

/// The constructs of the preprocessor, which leaves nothing of them.
fn preprocessor(tokens: &[(Tok, &str)], used: &mut Constructs) {
    let kinds = |wanted: &[Tok]| {
        let same = |w: &[(Tok, &str)]| w.iter().map(|t| t.0).eq(wanted.iter().copied());
        tokens.windows(wanted.len()).any(same)
    };
    let has = |kind| tokens.iter().any(|t| t.0 == kind);
    let name = "Preprocessor";
    for (is, construct) in [
        (has(Tok::PpThen), "%( c %? x %)"),
        (has(Tok::PpElse), "%( c %? x %: y %)"),
        (has(Tok::Arg), "$1"),
        (has(Tok::ArgQuoted), "@1"),
        (has(Tok::ArgCount), "$#"),
        (has(Tok::ArgCountQuoted), "@#"),
    ] {
        if is {
            used.add(name, construct);
        }
    }
    if tokens.iter().any(|t| t.1 == "@define") {
        let plain = kinds(&[Tok::AtIdent, Tok::Ident, Tok::PpOpen]);
        used.add(
            name,
            if plain {
                "@define m %( x %)"
            } else {
                "@define m(a) %( x %)"
            },
        );
        if kinds(&[Tok::AtIdent, Tok::Ident, Tok::LParen]) {
            used.add(name, "@define m(a) %( x %)");
        }
    }
    // A condition ends with `%?`; the body of a macro does not.
    let marks = [Tok::PpOpen, Tok::PpClose, Tok::PpThen, Tok::PpElse];
    let mut parts = tokens.split_inclusive(|t| marks.contains(&t.0));
    for part in parts
        .by_ref()
        .filter(|p| p.last().is_some_and(|t| t.0 == Tok::PpThen))
    {
        for (_, text) in part.iter().filter(|t| t.0 == Tok::Ident) {
            used.add(
                name,
                if text.starts_with("CONFIG_") {
                    "CONFIG_x"
                } else {
                    text
                },
            );
        }
    }
}

/// Where the handlers of a probe run, by its first point. Aliases are left out.
fn location(points: &[ProbePoint]) -> Option<Where> {
    let words: Vec<&str> = points
        .first()?
        .components
        .iter()
        .map(|c| &*c.name)
        .collect();
    match words[..] {
        ["timer", "profile", ..] => Some(Where::Kernel),
        [
            "begin" | "end" | "error" | "oneshot" | "timer" | "input" | "procfs" | "prometheus",
            ..,
        ] => Some(Where::Controller),
        [
            "kernel" | "module" | "process" | "perf" | "kprobe" | "syscall_any",
            ..,
        ] => Some(Where::Kernel),
        [call, ..] if call.ends_with("syscall") => Some(Where::Kernel),
        _ => None,
    }
}

impl Used {
    fn add(&mut self, names: BTreeSet<Name>, location: Option<Where>, case: &str) {
        for name in names {
            let (locations, cases) = self.names.entry(name).or_default();
            locations.extend(location);
            cases.insert(case.to_owned());
        }
    }

    /// Takes a script. A function is used where the handlers that call it run.
    fn script(&mut self, parsed: &Parsed, script: &Script, case: &str) {
        let (mut sources, mut diags) = (parsed.sources.clone(), Diagnostics::new());
        let id = sources.add("case.stp", script.text.as_bytes().to_vec());
        let tokens = lex(&sources, id, &mut Diagnostics::new());
        let tokens: Vec<(Tok, &str)> = tokens
            .iter()
            .map(|t| (t.kind, sources.slice(t.span)))
            .collect();
        let mut outside = Constructs::default();
        preprocessor(&tokens, &mut outside);
        let mut environment = environment();
        environment.args = script.args.clone();
        environment.guru = true;
        let file = parse_file(&mut sources, id, &environment, &parsed.macros, &mut diags);
        let mut functions: BTreeMap<&str, Constructs> = BTreeMap::new();
        for i in &file.items {
            outside.item(i);
            if let Item::Function(Function {
                name,
                body: FnBody::Block(block),
                ..
            }) = i
            {
                functions.entry(&name.name).or_default().block(block);
            }
        }
        for i in &file.items {
            let (points, blocks) = match i {
                Item::Probe(p) => (&p.points, vec![&p.body]),
                Item::Alias(a) => (
                    &a.points,
                    std::iter::once(&a.body).chain(&a.second).collect(),
                ),
                _ => continue,
            };
            points.iter().for_each(|p| outside.probe_point(p));
            let mut used = Constructs::default();
            blocks.into_iter().for_each(|b| used.block(b));
            let mut seen = BTreeSet::new();
            while let Some(call) = used.calls.pop_first() {
                if let Some(f) = functions.get(&*call).filter(|_| seen.insert(call.clone())) {
                    used.names.extend(f.names.iter().cloned());
                    used.calls.extend(f.calls.iter().cloned());
                }
            }
            self.add(used.names, location(points), case);
        }
        self.add(outside.names, None, case);
    }
}

/// What the cases use that compare output, by the cases' names.
fn measure(all: &BTreeSet<Name>) -> Used {
    let files = files();
    let parsed = parsed(&files);
    let mut used = Used::default();
    for (case, _, script) in REHEARSED.iter() {
        used.script(&parsed, script, case);
    }
    used.names.retain(|(section, name), _| {
        !name.is_empty() && *section != "Families of probe points"
            || all.contains(&(*section, name.clone()))
    });
    used
}

/// The measured part of the document.
fn document(used: &Used, all: &BTreeSet<Name>) -> String {
    let mut text = String::new();
    let mut before = "";
    for name in all {
        let (section, construct) = name;
        if before != *section {
            let _ = write!(
                text,
                "\n### {section}\n\n| construct | handlers |\n|---|---|\n"
            );
            before = section;
        }
        let locations = used.names.get(name).map(|u| &u.0);
        let has = |location| locations.is_some_and(|p| p.contains(&location));
        let locations = match (has(Where::Controller), has(Where::Kernel)) {
            (true, true) => "controller, kernel",
            (true, false) => "controller",
            (false, true) => "kernel",
            (false, false) => "",
        };
        let _ = writeln!(
            text,
            "| `{}` | {locations} |",
            construct.replace('|', "\\|")
        );
    }
    text + "\n"
}

#[test]
fn every_construct_is_used_by_a_case_that_compares_output() {
    let all = all();
    let used = measure(&all);
    let mut table = String::new();
    for ((section, name), (_, cases)) in &used.names {
        let cases: Vec<&str> = cases.iter().map(|c| &**c).collect();
        let _ = writeln!(table, "{section}\t{name}\t{}", cases.join("\t"));
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("constructs.tsv");
    std::fs::write(path, table).unwrap();
    let missing: Vec<_> = all
        .iter()
        .filter(|n| !used.names.contains_key(*n))
        .collect();
    assert!(
        missing.is_empty(),
        "no case that compares output uses these constructs: {missing:#?}"
    );
    let unnamed: Vec<_> = used
        .names
        .keys()
        .filter(|n| PARTS.iter().any(|p| p.0 == n.0) && !all.contains(n))
        .collect();
    assert!(
        unnamed.is_empty(),
        "constructs without a name in PARTS: {unnamed:#?}"
    );

    let path = root().join("docs/language-coverage.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (part, after) = rest.split_once(MARKS[1]).unwrap();
    let measured = document(&used, &all);
    if std::env::var_os("BLESS").is_some() {
        let text = [before, MARKS[0], &measured, MARKS[1], after].concat();
        std::fs::write(path, text).unwrap();
    } else {
        let differs = part.lines().zip(measured.lines()).find(|(a, b)| a != b);
        assert!(
            part == measured,
            "docs/language-coverage.md is not what is measured (BLESS=1 writes it): {differs:?}"
        );
    }
}
