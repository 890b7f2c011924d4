//! Substrings of wide strings: search, replacement and tokenising with substrings and delimiters
//! too long for inline comparison.

use std::fmt::Write;

use spile_ir::reader;

use crate::directed::{load, run};
use crate::machine::go_to;

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % n
    }
}

/// Texts; substrings of them, some changed in their last byte; delimiters, the last of which occurs
/// in the texts.
fn tables(dice: &mut Dice, longest: usize) -> [Vec<String>; 3] {
    let (mut texts, mut parts, mut delims) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..12 {
        let period = 1 + dice.below(40);
        let unit: String = (0..period)
            .map(|_| ["a", "b", "c"][dice.below(3)])
            .collect();
        let mut text = unit.repeat(longest / period + 1);
        text.truncate(longest - dice.below(9));
        let length = match n % 3 {
            0 => 56 + dice.below(24),
            1 => 8 * (8 + dice.below(20)),
            _ => 60 + dice.below(longest - 60),
        };
        let from = dice.below(text.len());
        let mut part = text[from..(from + length).min(text.len())].to_owned();
        if dice.below(2) == 0 {
            part.pop();
            part.push(['a', 'x'][dice.below(2)]);
        }
        let strange: String = (0..dice.below(longest - 1))
            .map(|i| "xyz01-"[i % 6..].chars().next().unwrap_or('x'))
            .collect();
        delims.push(strange + ["a", "b", "ab", "x"][dice.below(4)]);
        texts.push(text);
        parts.push(part);
    }
    [texts, parts, delims]
}

/// A handler that searches text r0 for substring r1, replaces it, and splits the text at
/// delimiters.
fn script(tables: &[Vec<String>; 3], limit: usize, times: usize) -> String {
    let mut head = format!(
        "limits maxerrors=1000 maxstringlen={limit}\nsite @0 \"\"\nsite @1 \"x\"\nstr s0 \"<>\"\nstr s1 \"\"\n"
    );
    for (i, (table, name)) in tables.iter().zip(["texts", "parts", "delims"]).enumerate() {
        let list: Vec<String> = table.iter().map(|s| format!("{s:?}")).collect();
        let _ = writeln!(head, "table t{i} {name:?} {}", list.join(" "));
    }
    head.push_str("fmt f0 \"%d %d %s\\n\"\nfmt f1 \"%s %d|\"\n");
    let mut code = String::new();
    for _ in 0..times {
        code.push_str(
            "    r6 = intr strpos(r2, r3)\n    r7 = intr isinstr(r2, r3)\n    \
             r5 = intr str_replace(r2, r3, s0)\n    print out f0(r6, r7, r5)\n    \
             r5 = intr tokenize(r2, r4)\n    r6 = intr strlen(r5)\n    print out f1(r5, r6)\n    \
             r5 = intr tokenize(s1, r4)\n    r6 = intr strlen(r5)\n    print out f1(r5, r6)\n",
        );
    }
    let wide = limit + 1;
    format!(
        "{head}handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long, r1: long, \
         r2: str{wide}, r3: str{wide}, r4: str{wide}, r5: str{wide}, r6: long, r7: long\n  b0:\n    \
         r0 = intr ctx_arg(0)\n    r1 = intr ctx_arg(1)\n    r2 = table t0, r0\n    \
         r3 = table t1, r1\n    r4 = table t2, r1\n{code}    ret\n}}\n"
    )
}

#[test]
fn texts_longer_than_the_inline_comparison_are_compared() {
    let mut dice = Dice(7);
    for limit in [127, 511, 4095] {
        let tables = tables(&mut dice, limit);
        let pairs = (0..12).flat_map(|a| [[a, a], [a, (a + 1) % 12]]);
        run(&script(&tables, limit, 1), &pairs.collect::<Vec<_>>());
    }
}

/// The verifier allows 8,192 jumps in a row.
#[test]
fn many_text_functions_in_one_handler_pass_the_verifier() {
    let tables = tables(&mut Dice(3), 4095);
    let text = script(&tables, 4095, 6);
    let program = reader::read(&text).unwrap_or_else(|e| panic!("{e}"));
    let kernel = load(&program);
    go_to(0);
    kernel.run(&[0, 0]);
}
