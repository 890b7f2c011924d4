//! Random expressions. All operands are in parentheses where they need them; printing the script
//! drops redundant ones.

use crate::generate::{Func, Gen, Global, Holds, NUMBERS, Row, T, TEXTS};
use crate::switches::Switch::{self, *};

/// A row of a table.
const fn row(weight: u32, switch: Switch, write: fn(&mut Gen<'_>, u32) -> Option<String>) -> Row {
    Row {
        weight,
        switch,
        write,
    }
}

/// Numbers without operands.
const LONG_LEAVES: &[Row] = &[
    row(14, Always, number),
    row(30, Always, |g, _| g.local(T::Long)),
    row(6, Always, context),
    row(8, Always, |g, _| g.scalar(T::Long)),
];

/// All expressions of type number.
const LONGS: &[Row] = &[
    row(8, Always, number),
    row(22, Always, |g, _| g.local(T::Long)),
    row(6, Always, context),
    row(8, Always, |g, _| g.scalar(T::Long)),
    row(12, Always, |g, d| g.element(T::Long, d)),
    row(24, Always, arithmetic),
    row(8, Always, comparison),
    row(6, Always, text_comparison),
    row(7, Always, logic),
    row(5, Always, |g, d| g.choice(T::Long, d)),
    row(5, Always, unary),
    row(4, Always, |g, d| g.assignment(T::Long, d)),
    row(5, Always, compound),
    row(5, Always, increment),
    row(7, Always, membership),
    row(10, Always, extract),
    row(3, Variance, variance),
    row(4, Hist, bucket),
    row(3, Always, |g, d| g.apply("strlen", &[T::Str], d)),
    row(3, Always, |g, d| g.apply("stringat", &[T::Str, T::Long], d)),
    row(3, Always, |g, d| g.apply("isinstr", &[T::Str, T::Str], d)),
    row(1, Always, |g, d| g.apply("isdigit", &[T::Str], d)),
    row(3, Always, to_number),
    row(3, Strpos, |g, d| g.apply("strpos", &[T::Str, T::Str], d)),
    row(4, Regex, regex),
    row(1, Regex, |_, _| Some("ngroups()".into())),
    row(6, Always, |g, d| g.some_call(T::Long, d)),
];

/// Strings without operands.
const STR_LEAVES: &[Row] = &[
    row(20, Always, |g, _| Some(g.text_literal())),
    row(30, Always, |g, _| g.local(T::Str)),
    row(10, Always, |g, _| g.scalar(T::Str)),
];

/// All expressions of type string.
const STRS: &[Row] = &[
    row(14, Always, |g, _| Some(g.text_literal())),
    row(22, Always, |g, _| g.local(T::Str)),
    row(8, Always, |g, _| g.scalar(T::Str)),
    row(10, Always, |g, d| g.element(T::Str, d)),
    row(14, Always, concatenation),
    row(12, Always, |g, d| {
        let (format, args) = g.format(d);
        Some(format!("sprintf({format}{args})"))
    }),
    row(5, Always, sprint),
    row(8, Always, |g, d| {
        g.apply("substr", &[T::Str, T::Long, T::Long], d)
    }),
    row(5, Always, |g, d| g.choice(T::Str, d)),
    row(3, Always, |g, d| g.assignment(T::Str, d)),
    row(3, Always, append),
    row(2, Always, |g, d| g.apply("errno_str", &[T::Long], d)),
    row(4, Always, |g, d| g.some_call(T::Str, d)),
    row(4, Replace, |g, d| {
        g.apply("str_replace", &[T::Str, T::Str, T::Str], d)
    }),
    row(3, Tokenize, tokenize),
    row(2, Escapes, |g, d| g.apply("text_str", &[T::Str], d)),
    row(2, Escapes, |g, d| g.apply("string_quoted", &[T::Str], d)),
    row(2, Escapes, |g, d| {
        g.apply("text_strn", &[T::Str, T::Long, T::Long], d)
    }),
    row(3, Regex, |g, d| {
        let n = g.small(d);
        Some(format!("matched({n})"))
    }),
];

impl Gen<'_> {
    /// Chooses rows by weight until one can be written.
    pub(crate) fn choose(&mut self, rows: &[Row], d: u32) -> String {
        let on: Vec<&Row> = rows.iter().filter(|r| self.on.has(r.switch)).collect();
        let all: u32 = on.iter().map(|r| r.weight).sum();
        loop {
            let mut at = self.rng.below(all);
            let row = on.iter().find(|r| match at.checked_sub(r.weight) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            if let Some(text) = row.and_then(|r| (r.write)(self, d)) {
                return text;
            }
        }
    }

    /// An expression of height at most `d`, ready to be an operand.
    pub(crate) fn expr(&mut self, ty: T, d: u32) -> String {
        match (ty, d) {
            (T::Long, 0) => self.choose(LONG_LEAVES, 0),
            (T::Long, _) => self.choose(LONGS, d - 1),
            (T::Str, 0) => self.choose(STR_LEAVES, 0),
            (T::Str, _) => self.choose(STRS, d - 1),
        }
    }

    fn local(&mut self, ty: T) -> Option<String> {
        let names = self.local_names(ty).clone();
        (!names.is_empty()).then(|| names[self.rng.below(names.len() as u32) as usize].clone())
    }

    fn scalar(&mut self, ty: T) -> Option<String> {
        let g = self.global(|g| g.keys.is_empty() && g.holds == Holds::Scalar(ty))?;
        Some(g.name)
    }

    /// An element of an array, or the location of a statistic.
    pub(crate) fn location(&mut self, g: &Global, d: u32) -> String {
        if g.keys.is_empty() {
            return g.name.clone();
        }
        let keys: Vec<String> = g.keys.iter().map(|ty| self.key(*ty, d)).collect();
        format!("{}[{}]", g.name, keys.join(", "))
    }

    /// A location whose keys are literals.
    pub(crate) fn exact(&mut self, g: &Global) -> String {
        if g.keys.is_empty() {
            return g.name.clone();
        }
        let literal = |ty: &T| if *ty == T::Long { "1" } else { "\"a\"" };
        let keys: Vec<&str> = g.keys.iter().map(literal).collect();
        format!("{}[{}]", g.name, keys.join(", "))
    }

    /// A key, mostly one of a few values.
    pub(crate) fn key(&mut self, ty: T, d: u32) -> String {
        let d = d.min(2);
        match (ty, self.rng.below(10)) {
            (T::Long, 0..4) => self.rng.pick(&["0", "1", "2", "3"]).into(),
            (T::Long, 4..7) => self.small(d),
            (T::Str, 0..5) => self
                .rng
                .pick(&["\"k0\"", "\"k1\"", "\"k2\"", "\"\""])
                .into(),
            (T::Str, 5..7) => format!("(\"k\" . sprint({}))", self.small(d)),
            _ => self.expr(ty, d),
        }
    }

    /// A number that is mostly small.
    pub(crate) fn small(&mut self, d: u32) -> String {
        let n = self.expr(T::Long, d);
        let by = self.rng.pick(&["& 3", "& 7", "% 3", "% 5", "& 1"]);
        format!("({n} {by})")
    }

    fn element(&mut self, ty: T, d: u32) -> Option<String> {
        let g = self.global(|g| !g.keys.is_empty() && g.holds == Holds::Scalar(ty))?;
        Some(self.location(&g, d))
    }

    /// A string literal, sometimes as long as strings can be.
    pub(crate) fn text_literal(&mut self) -> String {
        if self.rng.chance(80) {
            return self.rng.pick(TEXTS).into();
        }
        let near = [
            7,
            8,
            15,
            16,
            23,
            63,
            64,
            self.width - 2,
            self.width - 1,
            self.width,
        ];
        let len = self.rng.pick(&near).min(1100);
        let start = self.rng.below(26) as usize;
        let letters = (0..len).map(|n| char::from(b'a' + ((start + n) % 26) as u8));
        format!("\"{}\"", letters.collect::<String>())
    }

    fn choice(&mut self, ty: T, d: u32) -> Option<String> {
        let (c, a, b) = (self.expr(T::Long, d), self.expr(ty, d), self.expr(ty, d));
        Some(format!("({c} ? {a} : {b})"))
    }

    /// An assignable location.
    pub(crate) fn target(&mut self, ty: T, d: u32) -> String {
        let name = if ty == T::Long { "l" } else { "s" };
        loop {
            let found = match self.rng.below(10) {
                0..4 => self.local(ty),
                4 | 5 => {
                    let name = format!("{name}{}", self.rng.below(4));
                    let names = self.local_names(ty);
                    if !names.contains(&name) {
                        names.push(name.clone());
                    }
                    Some(name)
                }
                6 | 7 => self.scalar(ty),
                _ => self
                    .changing(|g| !g.keys.is_empty() && g.holds == Holds::Scalar(ty))
                    .map(|g| self.location(&g, d)),
            };
            if let Some(location) = found {
                return location;
            }
        }
    }

    fn assignment(&mut self, ty: T, d: u32) -> Option<String> {
        let value = self.expr(ty, d);
        let location = self.target(ty, d);
        Some(format!("({location} = {value})"))
    }

    fn apply(&mut self, name: &str, params: &[T], d: u32) -> Option<String> {
        let args: Vec<String> = params
            .iter()
            .map(|ty| match (ty, self.rng.chance(60)) {
                (T::Long, true) => self.rng.pick(&["0", "1", "2", "5", "20", "-1"]).into(),
                _ => self.expr(*ty, d),
            })
            .collect();
        Some(format!("{name}({})", args.join(", ")))
    }

    /// A call of a function.
    pub(crate) fn call(&mut self, f: &Func, d: u32) -> String {
        let args: Vec<String> = f
            .params
            .iter()
            .map(|ty| match (ty, self.rng.chance(50)) {
                (T::Long, true) => self.small(d.min(1)),
                _ => self.expr(*ty, d.min(2)),
            })
            .collect();
        format!("{}({})", f.name, args.join(", "))
    }

    fn some_call(&mut self, ty: T, d: u32) -> Option<String> {
        let f = self.function_of(Some(ty))?;
        Some(self.call(&f, d))
    }

    /// A function with this result type.
    pub(crate) fn function_of(&mut self, ret: Option<T>) -> Option<Func> {
        // Calls in functions multiply.
        if self.unit.function.is_some() && self.rng.chance(60) {
            return None;
        }
        let walked = &self.unit.walked;
        let leaves = |f: &&Func| {
            walked.is_empty() || (!f.text.is_empty() && !walked.iter().any(|w| f.text.contains(w)))
        };
        let fit = self.funcs.iter().filter(|f| f.ret == ret).filter(leaves);
        let fit: Vec<Func> = fit.cloned().collect();
        (!fit.is_empty()).then(|| fit[self.rng.below(fit.len() as u32) as usize].clone())
    }

    /// A format and its arguments, each preceded by a comma.
    pub(crate) fn format(&mut self, d: u32) -> (String, String) {
        let (mut format, mut args) = (String::new(), String::new());
        for _ in 0..1 + self.rng.below(3) {
            format += self
                .rng
                .pick(&["", " ", "<", "|", "x=", "100%% ", "\\n", "\\t."]);
            let kind = self.rng.pick(&[
                "d", "d", "d", "s", "s", "s", "i", "u", "x", "X", "o", "p", "c", "b", "m", "M",
            ]);
            if let "m" | "M" = kind {
                if self.on.has(Memory) && self.rng.chance(20) {
                    format += &format!("%{}{kind}", self.rng.pick(&["", "4", ".2"]));
                    args += self.rng.pick(&[", 0", ", 16", ", 4000"]);
                }
                continue;
            }
            if kind == "b" {
                format += &format!("%{}b", self.rng.pick(&["1", "2", "4", "8"]));
                args += ", 0x4142434445464748";
                continue;
            }
            format += "%";
            for flag in ["0", "+", "-", " ", "#"] {
                if self.rng.chance(12) {
                    format += flag;
                }
            }
            for (dot, percent) in [("", 30), (".", 18)] {
                if !self.rng.chance(percent) {
                    continue;
                }
                format += dot;
                if self.rng.chance(35) {
                    format += "*";
                    let width = self.expr(T::Long, d.min(1));
                    args += &format!(", {width} % 40");
                } else {
                    let wide = self.rng.pick(&[1, 2, 5, 8, 20, 70]);
                    format += &wide.to_string();
                }
            }
            format += kind;
            args += ", ";
            args += &match kind {
                "s" => self.expr(T::Str, d),
                "c" => self
                    .rng
                    .pick(&["65", "97", "48 + (l0 & 7)", "255", "10", "0x141"])
                    .into(),
                _ => self.expr(T::Long, d),
            };
        }
        if args.contains("l0") && !self.unit.longs.iter().any(|n| n == "l0") {
            args = args.replace("l0", "5");
        }
        (format!("\"{format}\""), args)
    }
}

fn number(g: &mut Gen<'_>, _: u32) -> Option<String> {
    let n = match g.rng.chance(50) {
        true => g.rng.pick(NUMBERS).into(),
        false => g.rng.below(10).to_string(),
    };
    Some(if n.starts_with('-') {
        format!("({n})")
    } else {
        n
    })
}

fn context(g: &mut Gen<'_>, _: u32) -> Option<String> {
    g.unit.event.then(|| g.rng.pick(&["$a", "$b"]).into())
}

fn arithmetic(g: &mut Gen<'_>, d: u32) -> Option<String> {
    const OPS: &[&str] = &[
        "+", "+", "-", "-", "*", "*", "/", "%", "&", "|", "^", "<<", ">>", ">>>",
    ];
    let op = g.rng.pick(OPS);
    let a = g.expr(T::Long, d);
    // Division by zero is mostly avoided: little runs after it.
    let divides = matches!(op, "/" | "%");
    let b = match g.rng.below(8) {
        0..4 if divides => g.rng.pick(&["3", "7", "(-1)", "10"]).into(),
        4 | 5 if divides => format!("(1 + ({} & 7))", g.expr(T::Long, 0)),
        _ => g.expr(T::Long, d),
    };
    Some(format!("({a} {op} {b})"))
}

fn comparison(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let op = g.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
    Some(format!(
        "({} {op} {})",
        g.expr(T::Long, d),
        g.expr(T::Long, d)
    ))
}

fn text_comparison(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let op = g.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
    Some(format!(
        "({} {op} {})",
        g.expr(T::Str, d),
        g.expr(T::Str, d)
    ))
}

fn logic(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let op = g.rng.pick(&["&&", "||"]);
    Some(format!(
        "({} {op} {})",
        g.expr(T::Long, d),
        g.expr(T::Long, d)
    ))
}

fn unary(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let op = g.rng.pick(&["-", "!", "~", "+"]);
    Some(format!("({op} {})", g.expr(T::Long, d)))
}

fn compound(g: &mut Gen<'_>, d: u32) -> Option<String> {
    const OPS: &[&str] = &[
        "+=", "+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>=", "/=", "%=",
    ];
    let op = g.rng.pick(OPS);
    let value = g.expr(T::Long, d);
    Some(format!("({} {op} {value})", g.target(T::Long, d)))
}

fn increment(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let location = g.target(T::Long, d);
    let op = g.rng.pick(&["++", "--"]);
    Some(match g.rng.chance(50) {
        true => format!("({op}{location})"),
        false => format!("({location}{op})"),
    })
}

fn append(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let value = g.expr(T::Str, d);
    Some(format!("({} .= {value})", g.target(T::Str, d)))
}

fn concatenation(g: &mut Gen<'_>, d: u32) -> Option<String> {
    Some(format!("({} . {})", g.expr(T::Str, d), g.expr(T::Str, d)))
}

fn membership(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let array = g.global(|g| !g.keys.is_empty())?;
    Some(format!("([{}] in {})", g.pattern(&array, d), array.name))
}

/// The statistic of an extractor.
fn statistic(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let st = g.global(|g| matches!(g.holds, Holds::Stat(_)))?;
    Some(g.location(&st, d))
}

fn extract(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let what = g
        .rng
        .pick(&["count", "count", "sum", "sum", "min", "max", "avg"]);
    Some(format!("@{what}({})", statistic(g, d)?))
}

fn variance(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let shift = g.rng.pick(&["", "", ", 0", ", 3", ", 10", ", 62"]);
    Some(format!("@variance({}{shift})", statistic(g, d)?))
}

fn bucket(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let st = g.global(|g| matches!(g.holds, Holds::Stat(Some(_))))?;
    let Holds::Stat(Some(hist)) = st.holds.clone() else {
        return None;
    };
    let location = g.location(&st, d.min(1));
    let index = match g.rng.chance(60) {
        true => g.rng.pick(&["0", "1", "7", "64", "65", "70"]).into(),
        false => g.small(d.min(1)),
    };
    Some(format!("{}[{index}]", hist.replace('%', &location)))
}

fn to_number(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let base = g.rng.pick(&["0", "8", "10", "16"]);
    Some(format!("strtol({}, {base})", g.expr(T::Str, d)))
}

fn tokenize(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let from = match g.rng.chance(50) {
        true => "\"\"".into(),
        false => g.expr(T::Str, d),
    };
    let at = g.rng.pick(&["\" \"", "\",;\"", "\"ab\"", "\"\""]);
    Some(format!("tokenize({from}, {at})"))
}

fn regex(g: &mut Gen<'_>, d: u32) -> Option<String> {
    const PATTERNS: &[&str] = &[
        "a+b*",
        "^k[0-9]$",
        "(one|two) (t.o)",
        "[[:digit:]]+",
        "x{2,3}",
        "^(a|b)*$",
        "(h(e)(l+))o",
        "",
        ".",
        "[^a-z]",
        "(a*)(b|cd)?",
        "z$",
        "(e|ell|hell)o?",
        "\\\\.",
    ];
    let op = g.rng.pick(&["=~", "=~", "!~"]);
    let pattern = g.rng.pick(PATTERNS);
    Some(format!("({} {op} \"{pattern}\")", g.expr(T::Str, d)))
}

fn sprint(g: &mut Gen<'_>, d: u32) -> Option<String> {
    let mut args = Vec::new();
    for _ in 0..1 + g.rng.below(3) {
        let ty = g.ty();
        args.push(g.expr(ty, d));
    }
    // A delimiter needs two values.
    let several = args.len() > 1;
    let args = args.join(", ");
    Some(match g.rng.below(4) {
        0 => format!("sprintln({args})"),
        1 if several => format!("sprintd(\",\", {args})"),
        2 if several => format!("sprintdln(\" - \", {args})"),
        _ => format!("sprint({args})"),
    })
}
