//! Random scripts: declarations, functions and probes. The same seed gives the same script.
//! Expressions and statements have files of their own, with a function for each construct and a
//! table of weights.

use std::fmt::Write as _;

use spile_ir::testgen::Rng;

use crate::switches::{Switch, Switches};

/// Boundary values.
pub(crate) const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "8",
    "63",
    "64",
    "65",
    "255",
    "-64",
    "0x7fffffff",
    "0x80000000",
    "-0x80000000",
    "0xffffffff",
    "1000000007",
    "0x10000000000",
    "0x7fffffffffffffff",
    "-0x7fffffffffffffff",
    "0x8000000000000000",
    "-2",
    "1000",
];

/// Short strings; some look like numbers, some are keys that collide.
pub(crate) const TEXTS: &[&str] = &[
    "\"\"",
    "\"a\"",
    "\"b\"",
    "\"k0\"",
    "\"k1\"",
    "\"k2\"",
    "\"hello\"",
    "\"0x1f\"",
    "\"-12\"",
    "\"  077\"",
    "\"99999999999999999999\"",
    "\"1234567\"",
    "\"12345678\"",
    "\"fifteen bytes..\"",
    "\"sixteen bytes...\"",
    "\"a\\tb\\nc\\\"d\\\\\"",
    "\"\\xff\\001z\"",
    "\"one two,three;four\"",
];

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum T {
    Long,
    Str,
}

/// The content of a global.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Holds {
    Scalar(T),
    /// With the histogram that the script may read, as `@hist_log(%)`.
    Stat(Option<String>),
}

/// A global variable.
#[derive(Clone, Debug)]
pub(crate) struct Global {
    pub name: String,
    /// Its keys; empty for a scalar.
    pub keys: Vec<T>,
    pub holds: Holds,
    /// The text after its name in the declaration.
    declared: String,
}

/// A function that may be called.
#[derive(Clone, Debug)]
pub(crate) struct Func {
    pub name: String,
    pub params: Vec<T>,
    pub ret: Option<T>,
    /// The text of its bodies; empty while they are being written.
    pub text: String,
}

/// The generator's state of the handler or function being written.
#[derive(Default)]
pub(crate) struct Unit {
    /// Locals that have been assigned.
    pub longs: Vec<String>,
    pub strs: Vec<String>,
    /// The function being written, with its result type.
    pub function: Option<Option<T>>,
    /// Whether the event's arguments can be read.
    pub event: bool,
    /// Number of enclosing loops.
    pub loops: u32,
    /// Globals that an enclosing `foreach` walks, which must not be modified.
    pub walked: Vec<String>,
    /// Number of enclosing blocks.
    pub depth: u32,
    /// Whether `next` can go on with another body of the function.
    pub next: bool,
    /// Number of loop counters in use.
    pub counters: u32,
    /// Number of statements left.
    pub budget: u32,
}

/// A script and its limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    pub text: String,
    pub defines: Vec<(String, String)>,
}

/// The generator's state.
pub(crate) struct Gen<'s> {
    pub rng: Rng,
    pub on: &'s Switches,
    pub globals: Vec<Global>,
    pub funcs: Vec<Func>,
    pub unit: Unit,
    /// The value of MAXSTRINGLEN.
    pub width: usize,
}

/// A row of a table of constructs: its weight, its requirement, and its writer. `None`: not
/// possible here, another row is chosen.
pub(crate) struct Row {
    pub weight: u32,
    pub switch: Switch,
    pub write: fn(&mut Gen<'_>, u32) -> Option<String>,
}

/// The script of a seed.
pub(crate) fn script(seed: u64, on: &Switches) -> Script {
    let mut g = Gen {
        rng: Rng::new(seed),
        on,
        globals: Vec::new(),
        funcs: Vec::new(),
        unit: Unit::default(),
        width: 512,
    };
    let defines = g.limits();
    g.declare();
    let mut out = String::new();
    for global in &g.globals {
        let _ = writeln!(out, "global {}{}", global.name, global.declared);
    }
    out += &g.functions();
    let size = g.rng.pick(&[4, 8, 8, 12, 12, 25, 40]);
    let handlers = g.rng.pick(&[1, 1, 1, 2, 3]);
    for _ in 0..handlers {
        let condition = match g.rng.chance(12) {
            true => format!(" if ({})", g.condition()),
            false => String::new(),
        };
        let body = g.handler(size / handlers);
        let _ = writeln!(
            out,
            "probe kernel.trace(\"numbers\"){condition} {{\n{body}}}"
        );
    }
    out += &g.anchors();
    Script { text: out, defines }
}

impl Gen<'_> {
    fn limits(&mut self) -> Vec<(String, String)> {
        self.width = self.rng.pick(&[512, 512, 512, 64, 128, 32, 16, 1024]);
        let mut defines = vec![("MAXERRORS", "1000000".to_owned())];
        if self.width != 512 {
            defines.push(("MAXSTRINGLEN", self.width.to_string()));
        }
        if self.rng.chance(20) {
            defines.push(("MAXACTION", self.rng.pick(&["30", "100", "250"]).into()));
        }
        defines.push((
            "MAXMAPENTRIES",
            self.rng.pick(&["3", "5", "12", "60"]).into(),
        ));
        if self.rng.chance(15) {
            defines.push(("MAXNESTING", self.rng.pick(&["3", "6"]).into()));
        }
        let text = defines.into_iter().map(|(n, v)| (n.to_owned(), v));
        text.collect()
    }

    pub(crate) fn ty(&mut self) -> T {
        self.rng.pick(&[T::Long, T::Long, T::Str])
    }

    fn hist(&mut self) -> Option<String> {
        let linear = [
            "@hist_linear(%, 0, 20, 3)",
            "@hist_linear(%, -10, 10, 1)",
            "@hist_linear(%, -0x8000000000000000, -0x7fffffffffffff00, 50)",
        ];
        match self.rng.below(3) {
            0 => Some("@hist_log(%)".into()),
            1 => Some(self.rng.pick(&linear).into()),
            _ => None,
        }
    }

    fn declare(&mut self) {
        let count = 2 + self.rng.below(7);
        for n in 0..count {
            let array = self.rng.chance(60);
            let keys: Vec<T> = match array {
                true => {
                    let keys = self.rng.pick(&[1, 1, 1, 2, 2, 3, 8]);
                    (0..keys).map(|_| self.ty()).collect()
                }
                false => Vec::new(),
            };
            let holds = match self.rng.below(10) {
                0..5 => Holds::Scalar(T::Long),
                5..7 => Holds::Scalar(T::Str),
                _ => Holds::Stat(self.hist()),
            };
            let mut declared = String::new();
            if array {
                if self.rng.chance(25) {
                    declared += "%";
                }
                if self.rng.chance(60) {
                    let _ = write!(declared, "[{}]", self.rng.pick(&[1, 2, 3, 4, 4, 8, 100]));
                }
            } else if self.rng.chance(40) {
                match holds {
                    Holds::Scalar(T::Long) => {
                        let _ = write!(declared, " = {}", self.rng.pick(NUMBERS));
                    }
                    Holds::Scalar(T::Str) => {
                        let _ = write!(declared, " = {}", self.rng.pick(TEXTS));
                    }
                    Holds::Stat(_) => {}
                }
            }
            let kind = match (&holds, array) {
                (Holds::Stat(_), true) => "as",
                (Holds::Stat(_), false) => "st",
                (_, true) => "arr",
                (_, false) => "g",
            };
            self.globals.push(Global {
                name: format!("{kind}{n}"),
                keys,
                holds,
                declared,
            });
        }
    }

    /// A random global for which `fits` is true.
    pub(crate) fn global(&mut self, fits: impl Fn(&Global) -> bool) -> Option<Global> {
        let all: Vec<&Global> = self.globals.iter().filter(|g| fits(g)).collect();
        if all.is_empty() {
            return None;
        }
        Some(all[self.rng.below(all.len() as u32) as usize].clone())
    }

    /// A random global for which `fits` is true and that may be modified here.
    pub(crate) fn changing(&mut self, fits: impl Fn(&Global) -> bool) -> Option<Global> {
        let walked = self.unit.walked.clone();
        self.global(|g| fits(g) && !walked.contains(&g.name))
    }

    /// The condition of a probe point's `if`, which can use only globals.
    fn condition(&mut self) -> String {
        let unit = std::mem::take(&mut self.unit);
        let text = match self.global(|g| g.keys.is_empty() && g.holds == Holds::Scalar(T::Long)) {
            Some(g) => format!("{} {} 3", g.name, self.rng.pick(&["<", ">", "!=", "&"])),
            None => self.rng.pick(&["0", "1"]).into(),
        };
        self.unit = unit;
        text
    }

    fn handler(&mut self, size: u32) -> String {
        self.unit = Unit {
            budget: size,
            event: true,
            ..Unit::default()
        };
        let mut out = String::new();
        for (name, value) in [("l0", "$a"), ("l1", "$b")] {
            if self.rng.chance(70) {
                let _ = writeln!(out, "{name} = {value};");
                self.unit.longs.push(name.into());
            }
        }
        if self.rng.chance(60) {
            let _ = writeln!(out, "s0 = {};", self.text_literal());
            self.unit.strs.push("s0".into());
        }
        out += &self.statements();
        match self.rng.chance(70) {
            true => out += &self.show_all(),
            false => out += &self.type_all(),
        }
        out
    }

    /// Decides the types of locals that only dead branches assign.
    fn type_all(&mut self) -> String {
        let all = |names: &[String], op: &str, what: &str| match names.is_empty() {
            true => String::new(),
            false => format!("{}{what};\n", names.join(op)),
        };
        all(&self.unit.longs, " | ", " | 0") + &all(&self.unit.strs, " . ", " . \"\"")
    }

    /// Prints all locals.
    fn show_all(&mut self) -> String {
        let (mut format, mut args) = (String::new(), String::new());
        for (names, conversion) in [(&self.unit.longs, "%d "), (&self.unit.strs, "[%s]")] {
            for name in names {
                format += conversion;
                let _ = write!(args, ", {name}");
            }
        }
        format!("printf(\"{format}\\n\"{args})\n")
    }

    /// Functions; each calls only earlier ones, except the recursive ones.
    fn functions(&mut self) -> String {
        let mut out = String::new();
        for n in 0..self.rng.pick(&[0, 0, 1, 2, 3]) {
            let ret = match self.rng.below(5) {
                0 => None,
                1 | 2 => Some(T::Str),
                _ => Some(T::Long),
            };
            let params: Vec<T> = (0..self.rng.below(4)).map(|_| self.ty()).collect();
            let f = Func {
                name: format!("f{n}"),
                params,
                ret,
                text: String::new(),
            };
            let recursive = self.on.has(Switch::Recursion) && self.rng.chance(40);
            let others = match self.rng.below(5) {
                // A second body, on which `next` of the first goes on.
                0 => vec![(f.clone(), true), (f.clone(), false)],
                // A different number of parameters.
                1 => {
                    let mut more = f.clone();
                    more.params.push(T::Long);
                    vec![(f.clone(), false), (more, false)]
                }
                _ => vec![(f.clone(), false)],
            };
            let start = out.len();
            for (m, (f, next)) in others.iter().enumerate() {
                let priority = (others.len() > 1 && others[0].0.params == others[1].0.params)
                    .then(|| format!(" : {}", m + 1));
                out += &self.function(f, priority.as_deref().unwrap_or(""), *next, recursive);
            }
            for (mut f, _) in others {
                let same_signature = |k: &Func| k.name == f.name && k.params == f.params;
                f.text = out[start..].to_owned();
                if !self.funcs.iter().any(same_signature) {
                    self.funcs.push(f);
                }
            }
        }
        out
    }

    fn function(&mut self, f: &Func, priority: &str, next: bool, recursive: bool) -> String {
        let size = self.rng.pick(&[1, 2, 4, 8]);
        self.unit = Unit {
            function: Some(f.ret),
            budget: size,
            next,
            ..Unit::default()
        };
        let mut params = Vec::new();
        for (n, ty) in f.params.iter().enumerate() {
            let (name, spelled) = match ty {
                T::Long => (format!("p{n}"), "long"),
                T::Str => (format!("q{n}"), "string"),
            };
            // Calls decide a type that is not written.
            params.push(match self.rng.chance(70) {
                true => format!("{name}:{spelled}"),
                false => name.clone(),
            });
            self.local_names(*ty).push(name);
        }
        let ret = match f.ret {
            Some(T::Long) => ":long",
            Some(T::Str) => ":string",
            None => "",
        };
        let mut body = String::new();
        if recursive {
            body += &self.way_out(f);
            // Registered from here on, for its own calls.
            self.funcs.push(f.clone());
        }
        body += &self.statements();
        body += &self.type_all();
        if let Some(ty) = f.ret {
            let _ = writeln!(body, "return {}", self.expr(ty, 2));
        }
        if recursive {
            self.funcs.pop();
        }
        let params = params.join(", ");
        format!(
            "function {}{ret}({params}){priority} {{\n{body}}}\n",
            f.name
        )
    }

    /// The end of a recursion, mostly long before MAXNESTING.
    fn way_out(&mut self, f: &Func) -> String {
        let value = match f.ret {
            Some(ty) => format!(" {}", self.expr(ty, 0)),
            None => String::new(),
        };
        match f.params.iter().position(|t| *t == T::Long) {
            Some(n) => format!("if (p{n}-- <= 0 || p{n} > 12) return{value};\n"),
            None => match self.global(|g| g.keys.is_empty() && g.holds == Holds::Scalar(T::Long)) {
                Some(g) => format!("if ({}++ & 3) return{value};\n", g.name),
                None => format!("return{value};\n"),
            },
        }
    }

    /// The locals of a type.
    pub(crate) fn local_names(&mut self, ty: T) -> &mut Vec<String> {
        match ty {
            T::Long => &mut self.unit.longs,
            T::Str => &mut self.unit.strs,
        }
    }

    /// A probe that never runs and uses every global and function, so that all have their types and
    /// statistics keep the values that are read here; sometimes one that runs in the controller.
    fn anchors(&mut self) -> String {
        self.unit = Unit::default();
        let mut out = String::new();
        for g in self.globals.clone() {
            let location = self.exact(&g);
            let _ = match &g.holds {
                Holds::Scalar(T::Long) => writeln!(out, "{location} = 1;"),
                Holds::Scalar(T::Str) => writeln!(out, "{location} = \"a\";"),
                Holds::Stat(hist) => {
                    let _ = writeln!(out, "{location} <<< 1");
                    for what in ["@sum", "@min", "@max", "@avg", "@variance"] {
                        if self.rng.chance(35) {
                            let _ = writeln!(out, "println({what}({location}))");
                        }
                    }
                    let shown = hist.as_ref().filter(|_| self.rng.chance(50));
                    match shown {
                        Some(h) => writeln!(out, "print({})", h.replace('%', &location)),
                        None => Ok(()),
                    }
                }
            };
        }
        for f in self.funcs.clone() {
            let _ = writeln!(out, "{}", self.call(&f, 0));
        }
        let mut text = format!("probe never {{\n{out}}}\n");
        if self.rng.chance(25) {
            let mut shown = String::new();
            for g in self.globals.clone() {
                if self.rng.chance(30) && g.holds == Holds::Scalar(T::Long) {
                    let location = self.exact(&g);
                    let _ = writeln!(shown, "println({location})");
                }
            }
            let _ = write!(text, "probe timer.s(1) {{\n{shown}}}\n");
        }
        text
    }
}
