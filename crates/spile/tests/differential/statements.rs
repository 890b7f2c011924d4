//! Random statements.

use crate::generate::{Gen, Global, Holds, Row, T};
use crate::switches::Switch::{self, *};

const fn row(weight: u32, switch: Switch, write: fn(&mut Gen<'_>, u32) -> Option<String>) -> Row {
    Row {
        weight,
        switch,
        write,
    }
}

/// Maximum nesting of blocks.
const DEPTH: u32 = 5;

const STATEMENTS: &[Row] = &[
    row(20, Always, assign),
    row(8, Always, compound),
    row(6, Always, count),
    row(12, Always, aggregate),
    row(12, Always, print),
    row(3, Always, print_plain),
    row(10, Always, branch),
    row(4, Always, block),
    row(9, Always, attempt),
    row(2, Always, raise),
    row(2, Always, divide),
    row(5, Always, delete),
    row(4, Always, call),
    row(2, Always, effect),
    row(2, Always, leave),
    row(1, Always, |_, _| Some(";\n".into())),
    row(2, Always, warn),
    row(1, Always, assert),
    row(9, Loops, repeat),
    row(6, Loops, repeat_while),
    row(5, Loops, jump),
    row(1, Loops, forever),
    row(14, Foreach, foreach),
    row(3, Hist, foreach_bucket),
    row(3, Hist, print_hist),
];

impl Gen<'_> {
    /// Statements of a block, within the budget.
    pub(crate) fn statements(&mut self) -> String {
        let mut out = String::new();
        let most = 1 + self.rng.below(if self.unit.depth == 0 { 60 } else { 5 });
        for _ in 0..most {
            if self.unit.budget == 0 {
                break;
            }
            self.unit.budget -= 1;
            let d = self.rng.pick(&[1, 2, 2, 3]);
            out += &self.choose(STATEMENTS, d);
        }
        out
    }

    /// A block in braces. Its assignments are known afterwards too: locals belong to the handler.
    fn nested(&mut self) -> String {
        self.unit.depth += 1;
        let body = self.statements();
        self.unit.depth -= 1;
        format!("{{\n{body}}}")
    }

    /// Keys of which some, but not all, are `*`.
    pub(crate) fn pattern(&mut self, g: &Global, d: u32) -> String {
        let stars = self.rng.chance(30);
        let mut keys: Vec<String> = g.keys.iter().map(|ty| self.key(*ty, d)).collect();
        if stars && keys.len() > 1 {
            let kept = self.rng.below(keys.len() as u32) as usize;
            for (n, key) in keys.iter_mut().enumerate() {
                if n != kept && self.rng.chance(70) {
                    *key = "*".into();
                }
            }
        }
        keys.join(", ")
    }

    /// The name of a new local for a loop.
    fn counter(&mut self) -> String {
        self.unit.counters += 1;
        format!("c{}", self.unit.counters)
    }

    /// A block in a loop.
    fn in_loop(&mut self) -> String {
        self.unit.loops += 1;
        let body = self.nested();
        self.unit.loops -= 1;
        body
    }

    /// A block that runs for each element of a global.
    fn walking(&mut self, name: &str) -> String {
        self.unit.walked.push(name.into());
        let body = self.in_loop();
        self.unit.walked.pop();
        body
    }
}

fn deep(g: &Gen<'_>) -> bool {
    g.unit.depth >= DEPTH
}

fn assign(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let ty = g.ty();
    let value = g.expr(ty, d);
    Some(format!("{} = {value};\n", g.target(ty, d)))
}

fn compound(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if g.rng.chance(30) {
        let value = g.expr(T::Str, d);
        return Some(format!("{} .= {value};\n", g.target(T::Str, d)));
    }
    let op = g
        .rng
        .pick(&["+=", "+=", "-=", "*=", "|=", "^=", "&=", ">>=", "<<="]);
    let value = g.expr(T::Long, d);
    Some(format!("{} {op} {value};\n", g.target(T::Long, d)))
}

fn count(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let op = g.rng.pick(&["++", "--"]);
    let array = g.changing(|g| g.holds == Holds::Scalar(T::Long))?;
    Some(format!("{}{op};\n", g.location(&array, d)))
}

fn aggregate(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let st = g.changing(|g| matches!(g.holds, Holds::Stat(_)))?;
    let value = g.expr(T::Long, d);
    Some(format!("{} <<< {value};\n", g.location(&st, d)))
}

fn print(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let (format, args) = g.format(d);
    Some(format!("printf({format}{args});\n"))
}

fn print_plain(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let mut args = Vec::new();
    for _ in 0..1 + g.rng.below(3) {
        let ty = g.ty();
        args.push(g.expr(ty, d));
    }
    // A delimiter needs two values.
    let several = args.len() > 1;
    let args = args.join(", ");
    Some(match g.rng.below(5) {
        0 => format!("print({args})\n"),
        1 if several => format!("printd(\"; \", {args})\n"),
        2 if several => format!("printdln(\"\", {args})\n"),
        3 => "print_char(65)\n".into(),
        _ => format!("println({args})\n"),
    })
}

fn branch(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let cond = g.expr(T::Long, d);
    let then = g.nested();
    Some(match g.rng.chance(50) {
        true => format!("if ({cond}) {then} else {}\n", g.nested()),
        false => format!("if ({cond}) {then}\n"),
    })
}

fn block(g: &mut Gen<'_>, _: u32) -> Option<String> {
    (!deep(g)).then(|| g.nested() + "\n")
}

fn attempt(g: &mut Gen<'_>, _: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let body = g.nested();
    if g.rng.chance(30) {
        return Some(format!("try {body} catch {}\n", g.nested()));
    }
    let var = format!("s{}", g.rng.below(4));
    if !g.unit.strs.contains(&var) {
        g.unit.strs.push(var.clone());
    }
    let shown = match g.rng.chance(60) {
        true => format!("println(\"caught \", {var})\n"),
        false => String::new(),
    };
    let handler = g.nested().replacen("{\n", &format!("{{\n{shown}"), 1);
    Some(format!("try {body} catch ({var}) {handler}\n"))
}

fn raise(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let text = g.expr(T::Str, d);
    if g.rng.chance(50) {
        return Some(format!("error({text})\n"));
    }
    let cond = g.expr(T::Long, d);
    Some(format!("if ({cond}) error({text})\n"))
}

fn divide(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let (a, b) = (g.expr(T::Long, d), g.small(1));
    let op = g.rng.pick(&["/", "%"]);
    Some(format!("{} = {a} {op} {b};\n", g.target(T::Long, 0)))
}

fn delete(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let what = g.changing(|_| true)?;
    if what.keys.is_empty() || g.rng.chance(20) {
        return Some(format!("delete {};\n", what.name));
    }
    Some(format!("delete {}[{}];\n", what.name, g.pattern(&what, d)))
}

fn call(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let ret = g.rng.pick(&[None, None, Some(T::Long), Some(T::Str)]);
    let f = g.function_of(ret)?;
    Some(g.call(&f, d) + ";\n")
}

/// An expression for its effect alone.
fn effect(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let ty = g.ty();
    let value = g.expr(ty, d);
    Some(format!("({value});\n"))
}

/// The end of the handler or the function, mostly under a condition.
fn leave(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let way = match g.unit.function {
        None => "next".to_owned(),
        Some(_) if g.unit.next && g.rng.chance(70) => "next".into(),
        Some(_) if g.rng.chance(5) => "next".into(),
        Some(Some(ty)) => format!("return {}", g.expr(ty, d)),
        Some(None) => "return".into(),
    };
    let cond = g.expr(T::Long, d);
    Some(format!("if ({cond}) {way};\n"))
}

fn warn(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let name = g.rng.pick(&["warn", "log"]);
    Some(format!("{name}({})\n", g.expr(T::Str, d)))
}

fn assert(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let cond = g.expr(T::Long, d);
    Some(match g.rng.chance(50) {
        true => format!("assert({cond})\n"),
        false => format!("assert({cond}, {})\n", g.expr(T::Str, d)),
    })
}

fn repeat(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let c = g.counter();
    let limit = match g.rng.chance(70) {
        true => g.rng.pick(&["1", "2", "3", "5", "9"]).into(),
        false => g.small(d.min(1)),
    };
    g.unit.longs.push(c.clone());
    let body = g.in_loop();
    let step = g.rng.pick(&["++", "++", " += 2", "++"]);
    Some(format!("for ({c} = 0; {c} < {limit}; {c}{step}) {body}\n"))
}

fn repeat_while(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let c = g.counter();
    let limit = g.rng.pick(&["1", "2", "4", "7"]);
    let more = match g.rng.chance(40) {
        true => format!(" && {}", g.expr(T::Long, d)),
        false => String::new(),
    };
    let body = g.in_loop();
    g.unit.longs.push(c.clone());
    Some(format!("{c} = 0\nwhile ({c}++ < {limit}{more}) {body}\n"))
}

fn jump(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if g.unit.loops == 0 {
        return None;
    }
    let word = g.rng.pick(&["break", "continue"]);
    let cond = g.expr(T::Long, d);
    Some(format!("if ({cond}) {word};\n"))
}

/// A loop that MAXACTION, or a statement in it, ends.
fn forever(g: &mut Gen<'_>, _: u32) -> Option<String> {
    if deep(g) || g.unit.loops > 0 {
        return None;
    }
    let body = g.in_loop();
    Some(match g.rng.chance(50) {
        true => format!("while (1) {body}\n"),
        false => format!("try {{ for (;;) {body} }} catch {{ println(\"stopped\") }}\n"),
    })
}

fn foreach(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let array = g.global(|g| !g.keys.is_empty())?;
    let mut names = Vec::new();
    for ty in &array.keys {
        let name = g.counter();
        let name = if *ty == T::Long {
            name
        } else {
            name.replace('c', "d")
        };
        names.push((name, *ty));
    }
    let value = g.rng.chance(40).then(|| g.counter());
    let value_ty = match array.holds {
        Holds::Scalar(ty) => ty,
        Holds::Stat(_) => T::Long,
    };
    let sorted = g.rng.below(names.len() as u32 * 2 + 3) as usize;
    let mark = g.rng.pick(&["+", "-", "-"]);
    let mut keys: Vec<String> = names.iter().map(|(n, _)| n.clone()).collect();
    if let Some(key) = keys.get_mut(sorted) {
        *key += mark;
    }
    let slice = match g.rng.chance(25) && names.len() > 1 {
        true => format!("[{}]", g.pattern(&array, d.min(1))),
        false => String::new(),
    };
    let order = match (sorted == names.len(), &array.holds) {
        (false, _) => String::new(),
        (true, Holds::Scalar(_)) => mark.into(),
        (true, Holds::Stat(_)) => {
            let by = g
                .rng
                .pick(&["", " @count", " @sum", " @min", " @max", " @avg"]);
            format!("{by}{mark}")
        }
    };
    let limit = match g.rng.chance(35) {
        true => format!(" limit {}", g.small(d.min(1))),
        false => String::new(),
    };
    for (name, ty) in names {
        g.local_names(ty).push(name);
    }
    if let Some(name) = &value {
        g.local_names(value_ty).push(name.clone());
    }
    let body = g.walking(&array.name);
    let value = value.map(|v| format!("{v} = ")).unwrap_or_default();
    let keys = match keys.len() {
        1 => keys.remove(0),
        _ => format!("[{}]", keys.join(", ")),
    };
    Some(format!(
        "foreach ({value}{keys} in {}{slice}{order}{limit}) {body}\n",
        array.name
    ))
}

fn foreach_bucket(g: &mut Gen<'_>, d: u32) -> Option<String> {
    if deep(g) {
        return None;
    }
    let st = g.global(|g| matches!(g.holds, Holds::Stat(Some(_))))?;
    let Holds::Stat(Some(hist)) = &st.holds else {
        return None;
    };
    let hist = hist.replace('%', &g.location(&st, d.min(1)));
    let (key, value) = (g.counter(), g.counter());
    g.unit.longs.extend([key.clone(), value.clone()]);
    let body = g.walking(&st.name);
    Some(format!("foreach ({value} = {key} in {hist}) {body}\n"))
}

fn print_hist(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let st = g.global(|g| matches!(g.holds, Holds::Stat(Some(_))))?;
    let Holds::Stat(Some(hist)) = &st.holds else {
        return None;
    };
    let hist = hist.replace('%', &g.location(&st, d.min(1)));
    let name = g.rng.pick(&["print", "println"]);
    Some(format!("{name}({hist})\n"))
}
