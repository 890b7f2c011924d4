//! Listings of small handlers: the straight path determines the cost of a hit. `INSTA_UPDATE` works
//! as in insta's documentation; a change has to be an improvement.

use spile_bpf::compile;
use spile_ir::reader;

use crate::machine::options;

/// The code of a program's first handler, on a machine of two CPUs.
fn listing(text: &str) -> String {
    let program = reader::read(text).unwrap_or_else(|e| panic!("{e}"));
    let mut options = options();
    options.cpus = 2;
    options.lines = false;
    let compiled = compile(&program, &options).unwrap_or_else(|e| panic!("{e}"));
    compiled.spec.programs[0].function.listing()
}

fn handler(head: &str, regs: &str, code: &str) -> String {
    listing(&format!(
        "site @0 \"\"\nsite @1 \"operator '/' at x.stp:3:7\"\n{head}\n\
         handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long{regs}\n  b0:\n    \
         r0 = intr ctx_arg(0)\n{code}\n    ret\n}}\n"
    ))
}

#[test]
fn instructions_have_their_script_lines() {
    let text = "site @0 \"\"\nsite @1 \"operator '/' at x.stp:3:7\"\n\
                handler \"x\" points 1 tracepoint(\"x\") @1 {\n  regs r0: long\n  b0:\n    \
                r0 = intr ctx_arg(0) @1\n    r0 = div r0, r0 @1\n    ret\n}\n";
    let program = reader::read(text).unwrap_or_else(|e| panic!("{e}"));
    let compiled = compile(&program, &options()).unwrap_or_else(|e| panic!("{e}"));
    let listing = compiled.spec.programs[0].function.listing();
    let line = "; x.stp:3:7: operator '/' at x.stp:3:7\n";
    assert!(listing.contains(line), "{listing}");
}

#[test]
fn counter_listing_is_as_blessed() {
    insta::assert_snapshot!(handler(
        "global g0 \"n\" long percpu double @0",
        "",
        "    gadd g0, r0"
    ));
}

#[test]
fn statistics_by_key_listing_is_as_blessed() {
    insta::assert_snapshot!(handler(
        "global g0 \"a\" [long] stats(sum) max 100 percpu double @0",
        "",
        "    stat_add g0[r0], 1"
    ));
}

#[test]
fn locked_update_listing_is_as_blessed() {
    insta::assert_snapshot!(handler(
        "global g0 \"n\" long shared lock @0",
        ", r1: long",
        "    r1 = gload g0\n    r1 = div r1, r0 @1\n    gstore g0, r1"
    ));
}
