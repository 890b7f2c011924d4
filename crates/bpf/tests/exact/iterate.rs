//! `foreach` and reading of statistics. Expectations are exact where they prove more than the
//! agreement of interpreter and kernel.

use crate::directed::{run, script};

/// Unrolled steps of an iterator: each one that yields an element continues with the code. The
/// blocks follow block `start`, whose number is given.
fn rounds_after(block: usize, start: &str, step: &str, each: &str, rounds: usize) -> String {
    let first = block + 1;
    let mut text = format!("{start}\n    jump b{first}\n");
    let done = first + 2 * rounds;
    for next in (first..done).step_by(2) {
        let (body, then) = (next + 1, next + 2);
        text += &format!("  b{next}: {step} b{body}, b{done}\n  b{body}: {each} jump b{then}\n");
    }
    text += &format!("  b{done}:");
    text
}

fn rounds(start: &str, step: &str, each: &str, rounds: usize) -> String {
    rounds_after(0, start, step, each, rounds)
}

const LONGS: [(i64, i64); 9] = [
    (5, 50),
    (-1, 50),
    (i64::MIN, 0),
    (i64::MAX, -3),
    (7, i64::MIN),
    (0, 50),
    (8, i64::MAX),
    (6, 1),
    (-9, 1),
];

fn args() -> Vec<[i64; 2]> {
    LONGS.map(|(k, v)| [k, v]).to_vec()
}

#[test]
fn numbers_are_visited_in_every_order() {
    for (sort, limit) in [
        ("", ""),
        (" asc key 0", ""),
        (" desc key 0", ""),
        (" asc value", ""),
        (" desc value", ""),
        ("", " limit 3"),
        (" desc value", " limit 3"),
        (" desc value", " limit -3"),
        (" desc value", " limit r0"),
    ] {
        let head = "fmt f0 \"%d=%d \"\nfmt f1 \"\\n\"\n\
                    global g0 \"a\" [long] long max 10 shared lock @0";
        let code = rounds(
            &format!("aset g0[r0], r1 @1\n    iter i0 g0[]{sort}{limit}"),
            "r3 = next i0 [r2]",
            "print out f0(r2, r3)",
            10,
        );
        let code = format!("{code} print out f1()");
        let text = script(head, ", r2: long, r3: long\n  iters 1", &code);
        let outcome = run(&text, &args());
        let last = outcome.out.lines().last().unwrap().to_string();
        match (sort, limit) {
            ("", "") => assert_eq!(
                last.split('=').next(),
                Some("5"),
                "the oldest comes first: {last}"
            ),
            (" desc value", " limit 3") => {
                assert_eq!(last, "8=9223372036854775807 5=50 -1=50 ");
            }
            _ => {}
        }
    }
}

const TEXTS: &[&str] = &[
    "",
    "a",
    "hello",
    "12345678",
    "123456789",
    "12345678 and then some more, b",
    "12345678 and then some more, a",
    "\u{ff}",
];

/// [`TEXTS`] as a table, and code that sets `r4` to the text with the number in `r0`.
fn texts() -> (String, String) {
    let entries: Vec<_> = TEXTS.iter().map(|t| format!("{t:?}")).collect();
    let head = format!("table t0 \"texts\" {}\n", entries.join(" "));
    (head, "r4 = table t0, r0".into())
}

#[test]
fn strings_are_visited_in_every_order() {
    let args: Vec<_> = [3, 1, 7, 5, 0, 6, 2, 4].map(|n| [n, n % 3]).to_vec();
    for width in [16, 40, 512] {
        for (sort, limit) in [
            ("", ""),
            (" asc key 0", ""),
            (" desc key 0", ""),
            (" asc key 1", ""),
            (" desc value", ""),
            (" asc value", ""),
            (" asc value", " limit 2"),
        ] {
            let (texts, pick) = texts();
            let head = format!(
                "{texts}fmt f0 \"%s,%d=%s \"\nfmt f1 \"\\n\"\n\
                 global g0 \"a\" [str{width}, long] str40 max 10 shared lock @0"
            );
            let code = rounds(
                &format!("{pick}\n    aset g0[r4, r1], r4 @1\n    iter i0 g0[]{sort}{limit}"),
                "r3 = next i0 [r2, r5]",
                "print out f0(r2, r5, r3)",
                8,
            );
            let regs = ", r2: str24, r3: str40, r4: str40, r5: long\n  iters 1";
            let text = script(&head, regs, &format!("{code} print out f1()"));
            run(&text, &args);
        }
    }
}

#[test]
fn only_elements_of_the_slice_are_visited() {
    let args: Vec<_> = (0..12).map(|n| [n % 4, n / 4]).collect();
    for (slice, sort) in [
        ("*, *", ""),
        ("r0, *", ""),
        ("*, r1", " desc key 0"),
        ("r0, r1", ""),
        ("7, *", ""),
    ] {
        let head = "fmt f0 \"%d,%d=%d \"\nfmt f1 \"\\n\"\n\
                    global g0 \"a\" [long, long] long max 12 shared lock @0";
        let code = rounds(
            &format!("aset g0[r0, r1], r0 @1\n    iter i0 g0[{slice}]{sort} limit 5"),
            "r3 = next i0 [r2, r4]",
            "print out f0(r2, r4, r3)",
            6,
        );
        let regs = ", r2: long, r3: long, r4: long\n  iters 1";
        let text = script(head, regs, &format!("{code} print out f1()"));
        run(&text, &args);
    }
}

#[test]
fn statistics_are_sorted_by_every_extractor() {
    for sort in ["value", "count", "sum", "min", "max", "avg", "variance"] {
        for way in ["asc", "desc"] {
            let head = "fmt f0 \"%d=%d \"\nfmt f1 \"\\n\"\n\
                        global g0 \"a\" [long] stats(sum, min, max, variance) max 10 shared lock @0";
            let code = rounds(
                &format!("stat_add g0[r0], r1 @1\n    iter i0 g0[] {way} {sort}"),
                "r3 = next i0 [r2]",
                "print out f0(r2, r3)",
                6,
            );
            let text = script(
                head,
                ", r2: long, r3: long\n  iters 1",
                &format!("{code} print out f1()"),
            );
            let mut args: Vec<_> = (0..20).map(|n| [n * n % 5, n * 7 % 11 - 5]).collect();
            args.extend([[1, i64::MIN], [2, i64::MAX], [3, 1 << 40], [3, -1 << 41]]);
            run(&text, &args);
        }
    }
}

#[test]
fn nested_iterators_are_independent() {
    // An outer loop of two iterations. Each runs an inner loop over the same array, which deletes
    // and inserts elements; neither loop sees the changes.
    let head = "fmt f0 \"%d(%d) \"\nfmt f1 \"\\n\"\n\
                global g0 \"a\" [long] long max 10 shared lock @0";
    let code = "aset g0[r0], r1 @1\n    iter i0 g0[] desc key 0\n    jump b1\n  \
        b1: next i0 [r2] b2, b9\n  \
        b2: iter i1 g0[] jump b3\n  \
        b3: r4 = next i1 [r3] b4, b5\n  \
        b4: print out f0(r2, r3) adel g0[r3] aadd g0[100], r4 @1 jump b5\n  \
        b5: next i0 [r2] b6, b9\n  \
        b6: iter i1 g0[] limit 2 jump b7\n  \
        b7: next i1 [r3] b8, b9\n  \
        b8: print out f0(r2, r3) jump b9\n  \
        b9: next i1 [r3] b10, b11\n  \
        b10: print out f0(r2, r3) jump b11\n  \
        b11: print out f1()";
    let regs = ", r2: long, r3: long, r4: long\n  iters 2";
    let args: Vec<_> = (0..6).map(|n| [n, n + 10]).collect();
    run(&script(head, regs, code), &args);
}

#[test]
fn large_elements_are_copied_whole() {
    let head = "fmt f0 \"%s %d\\n\"\nstr s0 \"x\"\n\
                global g0 \"a\" [str512, long] str512 max 10 shared lock @0";
    let code = rounds(
        "r2 = sprint f0(s0, r0)\n    aset g0[r2, r0], r2 @1\n    iter i0 g0[] asc value",
        "r3 = next i0 [r2, r4]",
        "print out f0(r3, r4)",
        6,
    );
    let regs = ", r2: str512, r3: str512, r4: long\n  iters 1";
    let args: Vec<_> = [3, 5, 1, 2, 4].map(|n| [n, 0]).to_vec();
    run(&script(head, regs, &code), &args);
}

#[test]
fn only_buckets_that_are_not_empty_are_visited() {
    for hist in ["hist_log", "hist_linear -8 8 4"] {
        for (kind, key) in [("", ""), ("[long] ", "0")] {
            let max = if kind.is_empty() { "" } else { " max 4" };
            let head = format!(
                "fmt f0 \"%d=%d \"\nfmt f1 \"\\n\"\n\
                 global g0 \"a\" {kind}stats({hist}){max} shared lock @0"
            );
            let code = rounds(
                &format!("stat_add g0[{key}], r0 @1\n    iter_hist i0 g0[{key}]"),
                "r3 = next i0 [r2]",
                "print out f0(r2, r3) stat_add g0[KEY], r2 @1",
                14,
            )
            .replace("KEY", key);
            let text = script(
                &head,
                ", r2: long, r3: long\n  iters 1",
                &format!("{code} print out f1()"),
            );
            run(&text, &args());
        }
    }
}

#[test]
fn histograms_are_read_and_drawn() {
    for hist in ["hist_log", "hist_linear -8 8 4"] {
        for (kind, key) in [("", ""), ("[long] ", "r1")] {
            let max = if kind.is_empty() { "" } else { " max 20" };
            let head = format!(
                "fmt f0 \"%d=%d\\n\"\nfmt f1 \"!\\n\"\n\
                 global g0 \"a\" {kind}stats({hist}){max} shared lock @0"
            );
            // An empty and a non-empty statistic; with a constant; out of range, caught and
            // uncaught.
            let code = format!(
                "r2 = hist_get g0[{key}], 3 @1\n    print out f0(r2, r2)\n    \
                 jump b1\n  \
                 b1: catch b2 print_hist g0[{key}] @1 jump b3\n  \
                 b2: print out f1() jump b3\n  \
                 b3: catch b4 stat_add g0[{key}], r0 @1 print_hist g0[{key}] @1 \
                 r2 = hist_get g0[{key}], r0 @1 print out f0(r0, r2) jump b5\n  \
                 b4: print out f1() jump b5\n  \
                 b5: r2 = hist_get g0[{key}], r0 @1 print out f0(r0, r2)"
            );
            let text = script(&head, ", r2: long", &code);
            let mut args: Vec<_> = args();
            args.extend((0..130).map(|n| [n, 1]));
            let outcome = run(&text, &args);
            assert!(outcome.out.contains("value |-"), "{}", outcome.out);
            let (error, _) = outcome.errors.first().unwrap();
            assert_eq!(error, "histogram index out of range");
        }
    }
}

#[test]
fn variance_is_exact() {
    let numbers = [
        0,
        1,
        -1,
        7,
        1000,
        -1000,
        1 << 20,
        (1 << 31) - 1,
        1 << 32,
        -(1 << 32) - 5,
        1 << 40,
        (1 << 61) + 12345,
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
    ];
    let head = "fmt f0 \"%d \"\n\
                global g0 \"a\" [long] stats(variance) max 100 shared lock @0\n\
                global g1 \"b\" stats(sum, variance) shared lock @0";
    let code = "stat_add g0[r0], r1 @1\n    stat_add g1[], r1\n    \
                r2 = stat_get variance g0[r0] @1\n    print out f0(r2)\n    \
                r2 = stat_get variance g1[] @1\n    print out f0(r2)\n    \
                r2 = stat_get variance g0[99] @1";
    let mut args = Vec::new();
    let mut n = 0;
    for a in numbers {
        for b in numbers {
            for c in [3, a, b.wrapping_sub(a)] {
                n += 1;
                args.extend([[n % 40, a], [n % 40, b], [n % 40, c]]);
            }
        }
    }
    let outcome = run(&script(head, ", r2: long", code), &args);
    assert_eq!(outcome.errors.len(), args.len());
    assert_eq!(outcome.errors[0].0, "empty aggregate");
    assert!(outcome.out.starts_with("0 0 0 0 "), "{}", outcome.out);
}

#[test]
fn a_large_array_is_visited_whole() {
    for sort in [" desc value", " asc key 0", ""] {
        let head = "fmt f0 \"%d=%d \"\nglobal g0 \"a\" [long] long max 5000 shared lock @0";
        // The last element has the number 0 and starts the loop.
        let code = rounds_after(
            1,
            &format!("aset g0[r0], r1 @1\n    branch r0, b42, b1\n  b1: iter i0 g0[]{sort}"),
            "r3 = next i0 [r2]",
            "print out f0(r2, r3)",
            20,
        );
        let text = script(head, ", r2: long, r3: long\n  iters 1", &code);
        let args: Vec<_> = (1..=4000)
            .map(|n| [n, n * 7919 % 4001])
            .chain([[0, 0]])
            .collect();
        let outcome = run(&text, &args);
        assert_eq!(outcome.out.split_whitespace().count(), 20);
    }
}
