//! Regular expressions, generated and written ones, on generated and written texts, as a test and
//! with all groups. The kernel has to agree with the interpreter, which its own tests compare with
//! glibc.

use std::fmt::Write;

use spile_ir::reader;
use spile_ir::regex::Regex;

use crate::machine::HostKind;
use crate::random::{comparable, difference};
use crate::world::World;

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.roll(list.len() as u64) as usize]
    }

    fn text(&mut self) -> String {
        let len = self.roll(14);
        (0..len)
            .map(|_| self.pick(&["a", "a", "a", "b", "b", "c", "/"]))
            .collect()
    }

    fn pattern(&mut self, depth: u32) -> String {
        let mut out = String::new();
        for i in 0..1 + self.roll(3) {
            if i > 0 && self.roll(3) == 0 {
                out.push('|');
            }
            if depth > 0 && self.roll(2) == 0 {
                let inner = self.pattern(depth - 1);
                let _ = write!(out, "({inner})");
            } else {
                out.push_str(
                    self.pick(&["a", "b", "c", "a", "[ab]", ".", "^a", "b$", "()", "[^/]"]),
                );
            }
            if !out.ends_with('$') {
                out.push_str(self.pick(&["", "", "", "*", "+", "?", "{1,2}", "{2}"]));
            }
        }
        out
    }
}

const PATTERNS: &[&str] = &[
    "^/home/[a-z]+/(.*)\\.c$",
    "(foo|foobar)(bar)?",
    "([0-9]{1,3})\\.([0-9]{1,3})\\.([0-9]{1,3})\\.([0-9]{1,3})",
    "([[:alpha:]_][[:alnum:]_]*)=([^ ]*)",
    "$",
    "^",
    "^$",
    "b",
    "([^/]*)/([^/]*)$",
    "(((((((((((((((((((((((((((((((a)b)c)))))))))))))))))))))))))))))",
];

const TEXTS: &[&str] = &[
    "/home/someone/src/kernel/sched/core.c",
    "a foobar",
    "at 10.0.12.255:80",
    "x 1a= key=value rest",
    "",
    "a",
    "abc",
    "a text that is longer than sixty-four bytes and so takes more than some words of any slot: abc/end",
];

/// Texts by number, and a handler that matches text r0 with all patterns and prints the results.
fn script(patterns: &[String], texts: &[String], limits: &str) -> String {
    let mut head = format!("limits maxerrors=1000 {limits}\nsite @0 \"\"\nsite @1 \"x\"\n");
    let quoted = |s: &String| format!("{:?}", s);
    let list: Vec<String> = texts.iter().map(quoted).collect();
    let _ = writeln!(head, "table t0 \"texts\" {}", list.join(" "));
    for (i, p) in patterns.iter().enumerate() {
        let _ = writeln!(head, "regex re{i} {p:?} find");
    }
    head.push_str("fmt f0 \"%d %d %d\"\nfmt f1 \"(%s)\"\n");
    let mut code = String::from("    r1 = table t0, r0\n");
    for (i, p) in patterns.iter().enumerate() {
        let groups = Regex::new(p.as_bytes(), false).map_or(0, |r| r.groups);
        let _ = writeln!(code, "    r2 = match re{i}, r1");
        let _ = writeln!(code, "    r3 = match re{i}, r1 keep");
        code.push_str("    r4 = intr match_groups()\n    print out f0(r2, r3, r4)\n");
        for g in 0..=groups + 1 {
            let _ = writeln!(code, "    r5 = intr match_group({g})");
            code.push_str("    print out f1(r5)\n");
        }
        // Truncated to the register, and selected by a register.
        code.push_str("    r6 = intr match_group(r3)\n    print out f1(r6)\n");
    }
    format!(
        "{head}handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long, r1: str512, \
         r2: long, r3: long, r4: long, r5: str512, r6: str8\n  b0:\n    \
         r4 = intr match_groups()\n    print out f0(r4, r4, r4)\n    \
         r0 = intr ctx_arg(0)\n{code}    ret\n}}\n"
    )
}

fn run(text: &str, count: usize) {
    let program = reader::read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for host in HostKind::ALL {
        let mut kernel = host.load(&program);
        let mut world = World::new(&program);
        for n in 0..count as u64 {
            host.go_to(n);
            kernel.run(&[n, 0]);
            world.run(&[n, 0]);
        }
        let got = comparable(&program, kernel.outcome());
        let want = comparable(&program, world.outcome());
        let same = got.out == want.out && got.errors == want.errors;
        let why = difference(&got, &want, kernel.errors());
        assert!(same, "{host:?}: {why}\n{text}");
    }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn random_patterns_match_as_in_the_interpreter() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut texts = strings(TEXTS);
    texts.extend((0..40).map(|_| dice.text()));
    run(&script(&strings(PATTERNS), &texts, ""), texts.len());
    for _ in 0..6 {
        let mut patterns = Vec::new();
        while patterns.len() < 8 {
            let pattern = dice.pattern(3);
            if Regex::new(pattern.as_bytes(), true).is_ok() {
                patterns.push(pattern);
            }
        }
        run(&script(&patterns, &texts, ""), texts.len());
    }
}

#[test]
fn the_longest_strings_match_as_in_the_interpreter() {
    let long = format!("{}key=value/{}", "ab".repeat(1000), "c/".repeat(1030));
    let mut texts = vec![
        long.clone(),
        "a".repeat(4095),
        format!("{}x", &long[..4000]),
    ];
    texts.push(String::new());
    let patterns = strings(&["([a-z]+)=(v[a-z]*)/(.*/)*", "x$", "^(a|b)*k", "(a*)*$"]);
    let text = script(&patterns, &texts, "maxstringlen=4095").replace("str512", "str4096");
    run(&text, texts.len());
}
