//! A case for each rule. Programs are written in the text form with some shorthand.

use super::*;

/// Classifies a program of `n: long`, `m: long`, `a: [long] long`, `s: stats`, `x: [str16] stats`,
/// `w: string`, `p: [long] long wrap`, with one register of each type; handlers are `event: lines`.
/// Returns the class of global `g`.
fn class(g: &str, handlers: &[(&str, &str)]) -> String {
    let bodies: Vec<(&str, String)> = handlers
        .iter()
        .map(|(event, code)| (*event, format!("b0: {code}")))
        .collect();
    let bodies: Vec<(&str, &str)> = bodies.iter().map(|(e, b)| (*e, &**b)).collect();
    class_of_bodies(g, &bodies)
}

/// Like [`class`], for handlers given with the head of their body.
fn class_of_bodies(g: &str, handlers: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "site @0 \"\"\nstr s0 \"k\"\n\
         global g0 \"n\" long controller @0\n\
         global g1 \"m\" long controller @0\n\
         global g2 \"a\" [long] long max 9 controller @0\n\
         global g3 \"s\" stats() controller @0\n\
         global g4 \"x\" [str16] stats() max 9 controller @0\n\
         global g5 \"w\" str64 controller @0\n\
         global g6 \"p\" [long] long max 9 wrap controller @0\n",
    );
    for (event, code) in handlers {
        text.push_str(&format!(
            "handler \"h\" points 1 {event} @0 {{ regs r0: long, r1: long, r2: str64, r3: long, r4: long \
             {code} ret }}\n"
        ));
    }
    let mut program = reader::read(&text).unwrap();
    let explanation = classify(&mut program);
    let line = explanation.lines.iter().find(|l| l.name == g).unwrap();
    assert!(!line.why.is_empty());
    line.storage.to_string()
}

#[test]
fn arrays_of_equal_keys_become_fields_of_one_record() {
    let text = |end: &str, key: &str| {
        format!(
            "site @0 \"\" \n\
             global g0 \"a\" [long] long max 9 controller @0\n\
             global g1 \"b\" [long] long max 9 controller @0\n\
             global g2 \"c\" [long] long max 8 controller @0\n\
             global g3 \"d\" [long] long max 9 controller @0\n\
             handler \"k\" points 1 sys_enter(all) @0 {{ regs r0: long, r1: long b0: r0 = intr tid() \
             r1 = aget g1[r0] aset g0[r0], r1 aset g1[r0], 2 aset g2[r0], 3 aset g3[{key}], 4 ret }}\n\
             handler \"e\" points 1 end(0) @0 {{ regs r0: long {end} }}\n"
        )
    };
    let of = |text: &str| {
        let mut program = reader::read(text).unwrap();
        classify(&mut program);
        thread_records(&program)
    };
    let ids = |ids: &[u32]| ids.iter().map(|g| GlobalId(*g)).collect::<Vec<_>>();
    // An array with space for fewer elements would be another record, with a single field.
    assert_eq!(of(&text("b0: ret", "r0")), ids(&[0, 1, 3]));
    // An array that others touch is not a field.
    assert_eq!(of(&text("b0: ret", "r1")), ids(&[0, 1]));
    // Nor is one that over which a handler iterates.
    let iterates = "iters 1 b0: iter i0 g0[] jump b1 b1: next i0 [r0] b2, b3 b2: jump b1 b3: ret";
    assert_eq!(of(&text(iterates, "r0")), ids(&[1, 3]));
}

const K: &str = "sys_enter(all)";
const K2: &str = "sys_exit(all)";
const SWITCH: &str = "tracepoint(\"sched_switch\")";
const T: &str = "timer(5, 0)";
const B: &str = "begin(0)";
const E: &str = "end(0)";

#[test]
fn globals_without_kernel_handlers_are_controller_only() {
    assert_eq!(
        class(
            "n",
            &[(B, "gstore g0, 1"), (T, "r0 = gload g0 gstore g0, r0")]
        ),
        "controller"
    );
    assert_eq!(
        class("n", &[("never", "gstore g0, 1"), (K, "tick 1")]),
        "controller"
    );
}

#[test]
fn add_only_is_per_cpu() {
    let add = (K, "gadd g0, 1");
    assert_eq!(class("n", &[add]), "percpu");
    assert_eq!(class("n", &[add, (E, "r0 = gload g0")]), "percpu");
    assert_eq!(class("n", &[add, (B, "gstore g0, 4")]), "percpu");
    assert_eq!(class("n", &[add, (T, "r0 = gload g0")]), "percpu double");
    assert_eq!(class("n", &[add, (T, "gclear g0")]), "percpu double");
    assert_eq!(
        class(
            "x",
            &[(K, "stat_add g4[s0], 1"), ("prometheus", "gclear g4")]
        ),
        "percpu double"
    );
    assert_eq!(
        class("s", &[(K, "stat_add g3[], 1"), (K2, "stat_add g3[], 2")]),
        "percpu"
    );
    assert_eq!(class("a", &[(K, "aadd g2[1], 1")]), "percpu");
    // A result that nobody reads is not a read.
    assert_eq!(class("n", &[(K, "r0 = gadd g0, 1")]), "percpu");
    assert_eq!(
        class("n", &[(K, "r0 = gadd g0, 1 gstore g1, r0")]),
        "shared lock"
    );
}

#[test]
fn single_atomic_steps_need_no_lock() {
    assert_eq!(class("n", &[(K, "gstore g0, 1")]), "shared");
    assert_eq!(
        class("n", &[(K, "gstore g0, 1"), (K2, "r0 = gload g0")]),
        "shared"
    );
    assert_eq!(
        class("n", &[(K, "gadd g0, 1"), (K2, "r0 = gload g0")]),
        "shared"
    );
    assert_eq!(
        class("n", &[(K, "r0 = gload g0"), (T, "r0 = gadd g0, 1")]),
        "shared"
    );
    assert_eq!(
        class("a", &[(K, "aadd g2[1], 1"), (K2, "r0 = aget g2[1]")]),
        "shared"
    );
    assert_eq!(class("a", &[(K, "aset g2[1], 1")]), "shared");
}

#[test]
fn iterations_in_the_kernel_need_a_lock() {
    let iterates = "iters 1 b0: iter i0 g2[]";
    let class = |handlers: &[(&str, &str)]| class_of_bodies("a", handlers);
    // Even if nothing writes while handlers run.
    assert_eq!(
        class(&[(B, "b0: aset g2[1], 1"), (K, iterates)]),
        "shared lock"
    );
    assert_eq!(
        class(&[(K2, "b0: aadd g2[1], 1"), (K, iterates)]),
        "shared lock"
    );
    // In the controller it is an ordinary access.
    assert_eq!(
        class(&[(K2, "b0: aadd g2[1], 1"), (T, iterates)]),
        "percpu double"
    );
    assert_eq!(class(&[(B, iterates), (T, iterates)]), "controller");
}

#[test]
fn compound_touches_need_a_lock() {
    assert_eq!(
        class("n", &[(K, "r0 = gload g0 gstore g0, r0")]),
        "shared lock"
    );
    assert_eq!(
        class(
            "n",
            &[(K, "gstore g0, 1"), (K2, "r0 = gload g0 r1 = gload g0")]
        ),
        "shared lock"
    );
    assert_eq!(
        class("a", &[(K, "r0 = aget g2[1] aset g2[1], r0")]),
        "shared lock"
    );
    // The plain reader must take the other handler's locks too, so the class says so.
    let two = [(K, "gstore g0, 1 gstore g1, 1"), (K2, "r0 = gload g0")];
    assert_eq!(class("n", &two), "shared lock");
    assert_eq!(class("m", &[two[0], (K2, "r0 = gload g1")]), "shared lock");
    // In a loop.
    assert_eq!(
        class("n", &[(K, "gstore g0, 1 jump b0 b1:")]),
        "shared lock"
    );
}

#[test]
fn globals_that_running_handlers_only_read_need_no_lock() {
    let read = (K, "r0 = gload g0 r1 = gload g0 r1 = gload g1");
    assert_eq!(class("n", &[read]), "shared");
    assert_eq!(
        class("n", &[read, (B, "gstore g0, 1 gstore g1, 1")]),
        "shared"
    );
    assert_eq!(class("n", &[read, (E, "gstore g0, 1")]), "shared");
    assert_eq!(class("n", &[read, (T, "gstore g0, 1")]), "shared lock");
    assert_eq!(
        class("w", &[(K, "r2 = gload g5"), (B, "gstore g5, s0")]),
        "shared"
    );
}

#[test]
fn what_is_not_one_word_needs_a_lock() {
    assert_eq!(class("w", &[(K, "gstore g5, s0")]), "shared lock");
    assert_eq!(
        class(
            "s",
            &[(K, "stat_add g3[], 1"), (K2, "r0 = stat_get count g3[]")]
        ),
        "shared lock"
    );
    // A store in the kernel changes the element in place, a store of the controller replaces it.
    let get = (K2, "r0 = aget g2[1]");
    assert_eq!(class("a", &[(K, "aset g2[1], 1"), get]), "shared");
    assert_eq!(class("a", &[(T, "aset g2[1], 1"), get]), "shared lock");
    assert_eq!(
        class("a", &[(K, "aset g2[1], 1 r0 = aget g2[1]"), get]),
        "shared lock"
    );
    assert_eq!(
        class("a", &[(K, "r0 = aget g2[1]"), (K2, "adel g2[1]")]),
        "shared lock"
    );
    assert_eq!(
        class(
            "a",
            &[
                (K, "r0 = aadd g2[1], 1 print out f0(r0)"),
                (T, "aset g2[1], 2")
            ]
        ),
        "shared lock"
    );
    assert_eq!(
        class("a", &[(K, "aset g2[1], 1"), (T, "iter i0 g2[]")]),
        "shared lock"
    );
    assert_eq!(class("p", &[(K, "aset g6[1], 1")]), "shared lock");
}

#[test]
fn elements_of_own_thread_need_no_lock() {
    let set = (K, "r0 = intr tid() aset g2[r0], 1");
    let get = (
        K2,
        "r0 = intr tid() r1 = copy r0 r0 = aget g2[r1] adel g2[r1]",
    );
    // r0 is not always the thread's id in `get`, but r1 is a copy of it: refused.
    assert_eq!(class("a", &[set, get]), "shared lock");
    let get = (K2, "r0 = intr tid() r1 = aget g2[r0] adel g2[r0]");
    assert_eq!(class("a", &[set, get]), "shared");
    assert_eq!(class("a", &[set, get, (E, "gclear g2")]), "shared");
    assert_eq!(class("a", &[set, get, (T, "gclear g2")]), "shared lock");
    assert_eq!(
        class("a", &[set, get, ("sys_exit(1)", "adel g2[*]")]),
        "shared lock"
    );
    assert_eq!(
        class("a", &[(K, "r0 = intr pid() aset g2[r0], 1 aset g2[r0], 2")]),
        "shared lock"
    );
    // Another global in the same handler does not matter.
    let both = (
        K2,
        "r0 = intr tid() r1 = aget g2[r0] adel g2[r0] gstore g0, r1",
    );
    assert_eq!(class("a", &[set, both]), "shared");
    assert_eq!(class("n", &[set, both, (T, "r0 = gload g0")]), "shared");
    // Idle threads all have the id 0.
    let idle = (SWITCH, set.1);
    assert_eq!(class("a", &[idle, get]), "shared lock");
    // Wrapping arrays lose elements to other threads.
    let wrap = (K, "r0 = intr tid() r1 = aget g6[r0] aset g6[r0], 1");
    assert_eq!(class("p", &[wrap]), "shared lock");
    // A register that is read before it is written is 0 for every thread.
    let early = (K, "aset g2[r0], 1 r1 = aget g2[r0] r0 = intr tid()");
    assert_eq!(class("a", &[early]), "shared lock");
}

#[test]
fn values_saved_at_entries_need_no_lock() {
    let entry = "r0 = intr tid() r1 = intr ctx_reg(7) aset g0[r0, r1], r2";
    let ret = "r0 = intr tid() r1 = intr ctx_reg(7) r2 = aget g0[r0, r1] \
               r3 = ahas g0[r0, r1] adel g0[r0, r1] gadd g1, r2";
    for (name, class) in [("@entry0", "shared"), ("kept", "shared lock")] {
        let mut text = format!(
            "site @0 \"\"\nglobal g0 \"{name}\" [long, long] long max 9 wrap controller @0\n\
             global g1 \"n\" long controller @0\n"
        );
        for (event, code) in [("", entry), (" return", ret)] {
            text.push_str(&format!(
                "handler \"h\" points 1 code(kernel{event}, traced 4096) @0 {{ \
                 regs r0: long, r1: long, r2: long, r3: long b0: {code} ret }}\n"
            ));
        }
        let mut program = reader::read(&text).unwrap();
        let line = &classify(&mut program).lines[0];
        assert_eq!(line.storage.to_string(), class);
    }
}

#[test]
fn elements_of_threads_that_are_not_idle_need_no_lock() {
    // Both threads of a switch, each tested not to be the idle one, and system calls.
    let switch = |tested: &str, key: &str| {
        let code = format!(
            "b0: r0 = intr tid() r1 = intr next_tid() {tested} \
             b1: r4 = aget g2[{key}] aset g2[{key}], 7 jump b2 b2:"
        );
        let get = "b0: r0 = intr tid() r1 = aget g2[r0] adel g2[r0]";
        class_of_bodies("a", &[(SWITCH, &code), (K2, get)])
    };
    assert_eq!(switch("branch r0, b1, b2", "r0"), "shared");
    assert_eq!(switch("branch r1, b1, b2", "r1"), "shared");
    for (test, to) in [
        ("not r0", "b2, b1"),
        ("eq r0, 0", "b2, b1"),
        ("ne r0, 0", "b1, b2"),
        ("gt r0, 0", "b1, b2"),
        ("le r0, 0", "b2, b1"),
    ] {
        let tested = |to| format!("r3 = {test} branch r3, {to}");
        let wrong = if to == "b1, b2" { "b2, b1" } else { "b1, b2" };
        assert_eq!(switch(&tested(to), "r0"), "shared", "{test}");
        assert_eq!(switch(&tested(wrong), "r0"), "shared lock", "{test}");
    }
    // A test of one id says nothing about the other, nor does a test that can be bypassed.
    assert_eq!(switch("branch r0, b1, b2", "r1"), "shared lock");
    assert_eq!(switch("branch r1, b1, b1", "r1"), "shared lock");
    assert_eq!(
        switch("r3 = ne r0, 1 branch r3, b1, b2", "r0"),
        "shared lock"
    );
}

#[test]
fn elements_of_own_processor_need_no_lock() {
    let set = (SWITCH, "r0 = intr cpu() aset g2[r0], 1");
    let get = (K2, "r0 = intr cpu() r1 = aget g2[r0] adel g2[r0]");
    assert_eq!(class("a", &[set, get]), "shared");
    assert_eq!(class("a", &[set, get, (T, "gclear g2")]), "shared lock");
    // A thread's id can be the number of a processor.
    let tid = (K, "r0 = intr tid() aset g2[r0], 1");
    assert_eq!(class("a", &[set, get, tid]), "shared lock");
}

#[test]
fn what_is_read_with_a_locked_global_is_locked_too() {
    let both = (K, "r0 = gload g0 gstore g0, 7 aadd g2[1], r0");
    let reads = (T, "r0 = gload g0 gstore g0, 0 r1 = aget g2[1] gclear g2");
    assert_eq!(class("n", &[both, reads]), "shared lock");
    assert_eq!(class("a", &[both, reads]), "shared lock");
    // Read alone it stays per-CPU, and also if it is read only at the end.
    assert_eq!(class("a", &[both, (T, "gclear g2")]), "percpu double");
    let at_end = (E, "r0 = gload g0 r1 = aget g2[1]");
    assert_eq!(class("a", &[both, at_end]), "percpu");
}
