//! Every diagnostic of the second half of analysis, each with a script that causes it.

mod support;

use spile_machine::FakeMachine;
use spile_sema::analyse::AnalysisOptions;
use spile_sema::types::codes::BODY_CODES;
use support::{TAPSET, run, run_lib, run_on, run_with};

/// A script and the code that it must give.
const CASES: &[(&str, &str)] = &[
    ("E0501", "probe begin { println(excename()) }"),
    (
        "E0502",
        "global count probe begin { cuont[1] = 2; count[1] = 1 }",
    ),
    (
        "E0503",
        "function f(a) { return a } probe begin { println(f(1, 2)) }",
    ),
    (
        "E0504",
        "global x probe begin { x = 1 } probe end { x = \"a\" println(x) }",
    ),
    ("E0505", "probe begin { println(x) }"),
    (
        "E0506",
        "global a probe begin { a[1] = 2; println(a[1, 2]) }",
    ),
    (
        "E0507",
        "global a probe begin { a[1,2,3,4,5,6,7,8,9,10] = 2 }",
    ),
    ("E0510", "probe begin { printf(\"%y\", 1) }"),
    ("E0511", "probe begin { printf(\"%d\", 1, 2) }"),
    ("E0512", "probe begin { break }"),
    (
        "E0514",
        "function f() { println(1) } probe begin { println(f()) }",
    ),
    (
        "E0515",
        "global s probe begin { s <<< 1; println(@count(s)); println(s) }",
    ),
    (
        "E0516",
        "global s probe begin { s <<< 1; print(@hist_log(s)); print(@hist_linear(s,1,9,1)) }",
    ),
    (
        "E0517",
        "global s probe begin { s <<< 1; foreach ([a, b] in @hist_log(s)) println(a + b) }",
    ),
    (
        "E0518",
        "global a probe begin { a[1] = 2; foreach (k in a) delete a[k] }",
    ),
    ("E0519", "global n probe begin if (n++) { println(n) }"),
    (
        "E0531",
        "probe netfilter.hook(\"NF_INET_LOCAL_IN\").pf(\"NFPROTO_IPV4\") { $verdict = 0 }",
    ),
    ("E0521", "function f() %{ int x; %} probe begin { f() }"),
    ("E0532", "probe timer.s(1) if (pid() == 1) { println(1) }"),
    (
        "W0508",
        "function f(a) { return a } function f(b) { return 2 } probe begin { println(f(1)) }",
    ),
    ("E0527", "global a[99999999] probe begin { a[1] = 1 }"),
    ("E0528", "probe begin { x = 1; println(x->pid) }"),
    (
        "E0603",
        "function show(a) { ftrace(sprint(a)) }\nprobe syscall.x { show(1) }",
    ),
    (
        "E0604",
        "probe kernel.trace(\"sched_switch\") { println(argstr()) }",
    ),
    ("W0509", "probe begin { println(argstr()) }"),
    ("W0510", "probe begin { x = 1 } probe end, begin(2) { }"),
    (
        "E0606",
        "function f(n) { return arg(n) }
probe syscall.x { x = 3; println(f(x)); println(f(2)) println(f(7)) }",
    ),
    ("E0529", "probe begin { if (\"a\" =~ \"a(b\") exit() }"),
    (
        "E0530",
        "probe begin { if (\"a\" !~ \"(a{1,200}){200}\") exit() }",
    ),
    ("W0501", "probe begin { println(x + 1) }"),
    ("W0502", "probe begin { x = 1; println(2) }"),
    ("W0503", "global s probe begin { s <<< 1; @count(s) }"),
    (
        "W0504",
        "function f() { println(1) } probe begin { exit() }",
    ),
];

/// More invalid scripts, for the rendered diagnostics.
const MORE: &[&str] = &[
    "probe begin { println($x) }",
    "probe kernel.trace(\"x\") { println($perv) println($prev->piid) }",
    "probe syscall.read { println(@entry(1)) }",
    "probe begin { println(@perf(\"cycles\")) }",
    "probe begin { if (\"a\" =~ \"[z-a]\") println(1) }",
    "probe begin { if (\"a\" =~ \"a\\\\1\") println(1) }",
    "probe begin { if (\"a\" =~ \"a|*b\" || \"b\" !~ \"[[:alfa:]]\") println(1) }",
    "probe begin { if (1 =~ \"a\") println(1) }",
    "global s probe begin { t <<< 1; println(@count(t)) }",
    "probe begin { println(user_long(1)) }",
    "probe kernel.trace(\"x\") { println(argstr()) }",
    "global a probe begin { a[1] = \"x\"; a[\"y\"] = \"z\" } probe end { println(a[1]) }",
    "probe begin { println(1 . 2) }",
    "function f(x:string) { return x } probe begin { println(f(1)) }",
    "probe begin { __exit() }",
    "probe begin { if (@defined($foo)) { println(1) } } probe end { x = 1; \"unused\" }",
    "global g probe begin { g = task_current(); println(g->pid) }",
    "probe kernel.statement(4096).absolute, process(1).statement(4096).absolute { println(1) }",
];

#[test]
fn every_code_has_a_case() {
    for (code, script) in CASES {
        let r = run(script);
        let got: Vec<&str> = r.diags.iter().map(|d| d.code).collect();
        assert!(got.contains(code), "{code}: {script}: {got:?}");
        assert_eq!(r.analysis.is_none(), code.starts_with('E'), "{script}");
    }
    // These come from the command line, from several files or from library files.
    let others = [
        "E0508", "E0522", "E0526", "E0605", "W0505", "W0506", "W0507", "W0511",
    ];
    for c in BODY_CODES {
        let has_case = CASES.iter().any(|(code, _)| *code == c.code) || others.contains(&c.code);
        assert!(has_case, "{} has no case", c.code);
    }
}

#[test]
fn diagnostics_are_shown_as_blessed() {
    let mut out = String::new();
    for script in CASES.iter().map(|(_, s)| s).chain(MORE) {
        let r = run(script);
        out.push_str(&r.diags.render(&r.sources, false));
        out.push('\n');
    }
    insta::assert_snapshot!(out);
}

#[test]
fn what_only_the_kernel_has_is_refused_in_processes() {
    let mut out = String::new();
    for script in [
        "probe syscall.read { println(task_pid(1)) }",
        "probe syscall.read { println(kernel_string(1)) }",
        "function name() { return kernel_string(1) } probe syscall.read { println(name()) }",
        "probe syscall.read { println(@cast(1, \"task_struct\")->pid) }",
        "probe syscall.read { println(pid(), tid(), execname(), argstr(), user_long(1), now()) }",
        // The controller may.
        "probe begin { println(kernel_string(1)) }",
    ] {
        let machine = FakeMachine::new().in_process();
        let r = run_on(&machine, TAPSET, script, &AnalysisOptions::default());
        out.push_str(&r.diags.render(&r.sources, false));
        out.push('\n');
    }
    insta::assert_snapshot!(out);
}

#[test]
fn mistakes_in_the_library_are_reported() {
    for bad in [
        "__nothing()",
        "__strlen()",
        "__table(\"nothing\", 1)",
        "__table(1)",
    ] {
        let lib = format!("function broken:long() {{ println({bad}) return 1 }}");
        let r = run_lib(
            &lib,
            "probe begin { println(broken()) }",
            &AnalysisOptions::default(),
        );
        let got: Vec<&str> = r.diags.iter().map(|d| d.code).collect();
        assert!(got.contains(&"E0522"), "{bad}: {got:?}");
    }
}

#[test]
fn wrong_options_are_reported() {
    let options = AnalysisOptions {
        defines: vec![
            ("MAXACTION".into(), "x".into()),
            ("MAXMAPENTRIE".into(), "1".into()),
        ],
        globals: vec![("cuont".into(), "1".into())],
        ..Default::default()
    };
    let r = run_with("global count probe begin { count = 1 }", &options);
    let got: Vec<&str> = r.diags.iter().map(|d| d.code).collect();
    assert_eq!(got, ["E0526", "W0505", "E0526"]);
}
