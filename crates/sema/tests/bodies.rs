//! Bodies to IR: names, types, widths, lowering.

mod support;

use spile_ir::*;
use support::{Run, run, run_with};

fn program(script: &str) -> Program {
    let Run {
        analysis,
        diags,
        sources,
    } = run(script);
    match analysis {
        Some(a) => {
            spile_ir::verify::verify(&a.program).unwrap();
            a.program
        }
        None => panic!("{}", diags.render(&sources, false)),
    }
}

fn text(p: &Program) -> String {
    p.to_string()
}

fn global<'a>(p: &'a Program, name: &str) -> &'a Global {
    p.globals.iter().find(|g| &*g.name == name).unwrap()
}

#[test]
fn statistics_by_process_lower_as_blessed() {
    let p = program(
        r#"
        global calls
        probe syscall.x { calls[execname()] <<< 1 }
        probe end { foreach (name in calls- limit 5) printf("%-10d %s\n", @sum(calls[name]), name) }
        "#,
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn control_flow_lowers_as_blessed() {
    let p = program(
        r#"
        global seen, total = 3
        probe begin {
            for (i = 0; i < 3; i++) { if (i == 1) continue; total += i }
            while (1) { if (total++ > 5 && i || !total) break }
            try { x = 1 / total; seen[x, "a"]-- } catch (msg) { println(msg, 2) }
            y = (total ? "yes" : "no") . "!"
            print(y)
            if (["b", 1] in nothing) delete nothing["b", *]
            delete seen
        }
        global nothing
        probe end { nothing["b", 1] = 2; println(seen[1, "a"]) }
        "#
        .replace("println(msg, 2)", "printdln(\"-\", msg, 2)")
        .as_str(),
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn walks_of_members_lower_as_blessed() {
    let p = program(
        r#"
        probe kernel.trace("sched_switch") {
            printf("%d %d %d %s %d %d", $prev->parent->pid, $prev->flags, $prio,
                   task_comm($prev), @defined($nothing) ? $nothing : 7, @var("jiffies"))
            println($$parms, $prev->comm)
            println(@enumname($state), &$prev->pid)
        }
        "#
        .replace(
            "println($$parms, $prev->comm)",
            "printdln(\"\", $$parms, $prev->comm)",
        )
        .replace(
            "println(@enumname($state), &$prev->pid)",
            "printd(\" \", @enumname($state), &$prev->pid)",
        )
        .as_str(),
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn functions_lower_as_blessed() {
    let p = program(
        r#"
        function f(x) { if (x > 3) next; return "small" }
        function f(x) { return "large" }
        function f(x, y) { return x + y }
        function where() { println(pp()) }
        function fact(n) { return n > 1 ? n * fact(n - 1) : 1 }
        probe begin { println(f(2)); println(f(2, 3)); where(); println(fact(5)) }
        "#,
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn entry_values_lower_as_blessed() {
    let p = program(
        r#"
        global t
        probe syscall.read.return { t <<< now() - @entry(now()); println(@entry($fd)) }
        probe end { print(@hist_log(t)); println(@avg(t)) }
        "#,
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn widths_are_tight() {
    let p = program(
        r#"
        global by_name, joined, grown, sized, part, wide
        probe syscall.x {
            by_name[execname()]++
            joined[execname() . ":" . sprint(pid())] = "abc"
            sized[sprintf("%5.5s|%d", execname(), 1)]++
            part = substr(kernel_string(1), 0, 8)
            wide = kernel_string(1)
        }
        probe begin { while (i++ < 3) s = s . "x"; grown[s] = 1 }
        probe end { println(wide . part); foreach (j in joined) println(joined[j]) foreach (k in grown) println(k) }
        "#,
    );
    let key = |name: &str| match &global(&p, name).kind {
        GlobalKind::Array { keys, .. } => keys[0],
        other => panic!("{other:?}"),
    };
    assert_eq!(key("by_name"), Ty::Str(16));
    assert_eq!(key("joined"), Ty::Str(40));
    assert_eq!(key("sized"), Ty::Str(32));
    assert_eq!(key("grown"), Ty::Str(512));
    assert_eq!(global(&p, "part").kind, GlobalKind::Scalar(Ty::Str(16)));
    assert_eq!(global(&p, "wide").kind, GlobalKind::Scalar(Ty::Str(512)));
    assert!(global(&p, "by_name").display && !global(&p, "wide").display);
}

#[test]
fn library_aliases_cost_only_what_is_used() {
    let p = program(
        r#"probe kernel.trace("x") { a = task_comm($prev); b = task_pid($prev); c = b + 1; println(b) }"#,
    );
    let insts = p.handlers[1].body.insts();
    let calls = insts.filter(|i| matches!(i, Inst::Call { .. })).count();
    assert_eq!(calls, 1, "{}", text(&p));
    assert_eq!(p.funcs.len(), 1);
}

#[test]
fn statistics_keep_what_is_extracted() {
    let p = program(
        r#"
        global a, b, c, d
        probe begin { a <<< 1; b <<< 1; c <<< 1; d[1] <<< 2 }
        probe end { println(@avg(a)); println(@min(b)); print(@hist_linear(b, 0, 10, 2))
                    foreach (k in d @max-) println(@count(d[k])) }
        "#,
    );
    let spec = |name: &str| match &global(&p, name).kind {
        GlobalKind::Stats(s)
        | GlobalKind::Array {
            value: ElemTy::Stats(s),
            ..
        } => s.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        spec("a"),
        StatsSpec {
            sum: true,
            ..Default::default()
        }
    );
    let hist = Some(Hist::Linear {
        low: 0,
        high: 10,
        step: 2,
    });
    assert_eq!(
        spec("b"),
        StatsSpec {
            min: true,
            hist,
            ..Default::default()
        }
    );
    assert_eq!(
        spec("c"),
        StatsSpec {
            sum: true,
            min: true,
            max: true,
            ..Default::default()
        }
    );
    assert_eq!(
        spec("d"),
        StatsSpec {
            max: true,
            ..Default::default()
        }
    );
}

#[test]
fn options_set_limits_and_globals() {
    let options = spile_sema::analyse::AnalysisOptions {
        defines: vec![
            ("MAXMAPENTRIES".into(), "100".into()),
            ("MAXACTION".into(), "7".into()),
        ],
        globals: vec![("n".into(), "-0x10".into()), ("s".into(), "12".into())],
        display: false,
        ..Default::default()
    };
    let r = run_with("global n, s = \"a\", a probe begin { a[n] = s }", &options);
    let p = r.analysis.unwrap().program;
    assert_eq!(global(&p, "n").init, Some(Init::Long(-16)));
    assert_eq!(
        global(&p, "s").init,
        Some(Init::Str(b"12".as_slice().into()))
    );
    assert!(!global(&p, "a").display);
    assert!(matches!(
        global(&p, "a").kind,
        GlobalKind::Array { max: 100, .. }
    ));
    assert_eq!(
        (p.limits.maxaction, p.limits.maxaction_interruptible),
        (7, 70)
    );
}

#[test]
fn types_are_dumped_as_blessed() {
    let r = run(r#"
        global a, s
        function f(x) { return x . "!" }
        probe begin { n = 1; a[n, f("q")] = 2; s <<< n }
        probe end { foreach ([i, j] in a) println(j) }
        "#);
    insta::assert_snapshot!(r.analysis.unwrap().dump);
}

#[test]
fn errors_name_the_operator() {
    let p = program("probe begin { println(1 / __x()) } function __x() { return 0 }");
    let near: Vec<&str> = p.sites.iter().map(|s| &*s.near).collect();
    assert!(near.contains(&"operator '/' at test.stp:1:25"), "{near:?}");
}

#[test]
fn values_move_to_their_use_in_kernel_handlers() {
    let p = program(
        r#"probe kernel.trace("x") {
            name = task_comm($prev)
            before = later
            later = 5
            clock = now()
            if ($prio > 1) next
            printf("%s %d %d %d", name, before, later, clock)
        }"#,
    );
    insta::assert_snapshot!(text(&p));
}

#[test]
fn what_several_locations_read_is_computed_behind_the_tests() {
    let p = program(
        r#"probe kernel.trace("x") {
            name = task_comm($prev)
            if ($prio > 1) next
            if ($prio < 0) println(name)
            for (i = 0; i < 3; i++) println(name, i)
        }"#,
    );
    let calls = |b: &Block| {
        let call = |(i, _): &&(Inst, _)| matches!(i, Inst::Call { .. });
        b.insts.iter().filter(call).count()
    };
    let calls: Vec<_> = p
        .handlers
        .last()
        .unwrap()
        .body
        .blocks
        .iter()
        .map(calls)
        .collect();
    assert_eq!(
        (calls[0], calls.iter().sum::<usize>()),
        (0, 1),
        "{}",
        text(&p)
    );
}

#[test]
fn a_choice_for_its_effect_is_not_dropped() {
    let p = program(
        r#"
        function a() { println(1); return "x" }
        function b() { println(2) }
        probe begin { pid() > 1 ? a() : b(); pid() > 1 && b() }
        "#,
    );
    assert_eq!(p.funcs.len(), 3);
}

#[test]
fn large_scripts_take_time_in_proportion() {
    let mut script = String::new();
    for n in 0..3000 {
        script.push_str(&format!(
            "global g{n}\nfunction f{n}(x) {{ return f{}(x . \"a\") }}\n",
            n + 1
        ));
    }
    script.push_str("function f3000(x) { return x }\nprobe begin {\n");
    for n in 0..20_000 {
        script.push_str(&format!("x{} = x{n} + 1\n", n + 1));
    }
    script.push_str("println(f0(\"a\")); println(x20000) }\n");
    let start = std::time::Instant::now();
    program(&script);
    // A guard against quadratic passes, not a measurement: it takes a second; quadratic passes take
    // many minutes.
    assert!(
        start.elapsed() < std::time::Duration::from_secs(300),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn each_entry_expression_has_one_array() {
    let p =
        program("probe syscall.read.return { a = @entry(now()); b = @entry($fd); println(a + b) }");
    assert_eq!(
        p.globals.iter().filter(|g| g.saves_entry_values()).count(),
        2
    );
}
