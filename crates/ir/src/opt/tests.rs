//! Optimised programs behave as they did before.

use proptest::prelude::*;

use super::*;
use crate::interp::testenv::TestEnv;
use crate::interp::{Globals, run};
use crate::testgen::{self, Config};
use crate::*;

/// The outcome of a run: output, the error, and the globals at the end.
fn outcome(p: &Program) -> String {
    let mut env = TestEnv::new(p);
    let mut end = String::new();
    for h in 0..p.handlers.len() {
        // The second run starts with the globals that the first one left.
        for _ in 0..2 {
            let result = run(p, HandlerId(h as u32), &mut env);
            let location = |e: &crate::interp::ScriptError| -> Vec<String> {
                let locations = p.trace(e.site, &e.callers);
                locations.iter().map(|s| s.near.to_string()).collect()
            };
            let result = result.map_err(|e| (location(&e), e.message));
            end.push_str(&format!("{result:?}\n"));
        }
    }
    for (i, g) in p.globals.iter().enumerate() {
        let id = GlobalId(i as u32);
        match g.kind {
            GlobalKind::Scalar(_) => end.push_str(&format!("{:?}\n", env.globals.gload(id))),
            GlobalKind::Stats(_) => end.push_str(&format!("{:?}\n", env.globals.stat_get(id, &[]))),
            GlobalKind::Array { .. } => {
                end.push_str(&format!("{:?}\n", env.globals.elements(id, &[])))
            }
        }
    }
    format!("{}\n{end}", String::from_utf8_lossy(&env.out))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn optimised_programs_have_the_same_results(seed in any::<u64>(), size in 1u32..80, kernel: bool) {
        let before = testgen::program(seed, Config { kernel, size });
        prop_assert_eq!(verify::verify(&before), Ok(()), "{}", before);
        let want = outcome(&before);
        for on in [false, true] {
            let mut after = before.clone();
            optimise(&mut after, on);
            prop_assert_eq!(verify::verify(&after), Ok(()), "{}", &after);
            prop_assert_eq!(outcome(&after), want.clone(), "{}\n->\n{}", before, &after);
        }
    }

    #[test]
    fn printed_programs_read_back_equal(seed in any::<u64>(), size in 1u32..60, kernel: bool) {
        let p = testgen::program(seed, Config { kernel, size });
        let text = p.to_string();
        prop_assert_eq!(reader::read(&text), Ok(p), "{}", text);
    }

    #[test]
    fn reader_takes_any_text(text in "[a-z0-9@\"\\[\\](){},:=* -]{0,80}") {
        let _ = reader::read(&text);
    }
}

fn read(text: &str) -> Program {
    let p = reader::read(text).unwrap();
    verify::verify(&p).unwrap();
    p
}

#[test]
fn recursion_is_found_and_flattened() {
    let p = read(
        "func fn0 \"a\" () { b0: call fn1() ret }
         func fn1 \"b\" () { b0: call fn0() ret }
         func fn2 \"c\" () { b0: call fn0() ret }
         func fn3 \"d\" () { b0: call fn3() ret }
         handler \"k\" points 1 sys_enter(all) @0 { b0: call fn2() call fn3() ret }",
    );
    assert_eq!(recursive(&p), [FuncId(0), FuncId(1), FuncId(3)]);
    let mut q = p.clone();
    optimise(&mut q, true);
    let text = q.handlers[0].body.to_string();
    assert!(!text.contains("call"), "{text}");
    // The handler calls a, a calls b, b calls a; nothing calls d.
    assert_eq!(text.matches("    enter").count(), 3, "{text}");
}

#[test]
fn kernel_handlers_have_no_calls_left() {
    let mut p = read(
        "func fn0 \"f\" (r0) long { regs r0: long, r1: long b0: r1 = add r1, r0 ret r1 }
         func fn1 \"g\" (r0) long { regs r0: long b0: r0 = call fn0(r0) branch r0, b1, b2
           b1: end_handler b2: ret 5 }
         handler \"k\" points 1 sys_enter(all) @0 { regs r0: long b0: r0 = call fn1(3) ret }",
    );
    inline(&mut p);
    assert!(!p.handlers[0].body.to_string().contains("call"));
    assert_eq!(p.funcs[0].body.blocks.len(), 1);
    verify::verify(&p).unwrap();
}

#[test]
fn statistics_keep_only_values_that_are_read() {
    let mut p = read(
        "site @0 \"\"
         global g0 \"setting\" long controller @0
         global g1 \"a\" [long] stats(sum, min, max, hist_log) max 5 controller @0
         global g2 \"b\" stats(sum, min, variance) controller @0
         handler \"k\" points 1 sys_enter(all) @0 { b0: stat_add g1[1], 2 stat_add g2[], 3 ret }
         handler \"e\" points 1 end(0) @0 { regs r0: long
           b0: r0 = gload g0 branch r0, b1, b2
           b1: r0 = hist_get g1[1], 3 ret
           b2: r0 = stat_get max g1[1] r0 = stat_get avg g2[] ret }",
    );
    optimise(&mut p, true);
    trim_stats::run(&mut p);
    verify::verify(&p).unwrap();
    let text = p.to_string();
    assert!(text.contains("\"a\" [long] stats(max)"), "{text}");
    assert!(text.contains("\"b\" stats(sum)"), "{text}");
}

#[test]
fn load_add_store_is_fused() {
    let mut p = read(
        "global g0 \"n\" long controller @0
         global g1 \"a\" [long] long max 5 controller @0
         handler \"k\" points 1 sys_enter(all) @0 { regs r0: long, r1: long, r2: long
           b0: r2 = intr tid() r0 = gload g0 r1 = add r0, 1 gstore g0, r1
           r0 = aget g1[r2] r1 = sub r0, 3 aset g1[r2], r1 ret }",
    );
    optimise(&mut p, true);
    let text = p.handlers[0].body.to_string();
    assert!(
        text.contains("  gadd g0, 1") && text.contains("  aadd g1[r2], -3"),
        "{text}"
    );
    assert_eq!(p.handlers[0].body.blocks[0].insts.len(), 3, "{text}");
}

#[test]
fn strings_are_narrowed() {
    let mut p = read(
        "str s0 \"abc\"
         fmt f0 \"%s:%d\"
         fmt f1 \"%s%s%s\"
         handler \"k\" points 1 sys_enter(all) @0 { regs r0: str512, r1: str512, r2: str512
           b0: r0 = intr execname() r1 = concat r0, s0 r2 = sprint f0(r1, 5)
           print out f1(r0, r1, r2) ret }",
    );
    optimise(&mut p, true);
    let regs = &p.handlers[0].body.regs;
    // Lengths 15, 15 + 3 and 18 + 1 + 24 bytes.
    assert_eq!(regs[..], [Ty::Str(16), Ty::Str(24), Ty::Str(48)]);
}
