//! Probe points to handlers: families, aliases, wildcards, contexts, diagnostics.

mod fake;

use fake::{FakeMachine, resolve, resolve_on};
use spile_sema::probe::list;

fn handlers(script: &str) -> String {
    let s = resolve(script);
    assert!(!s.diags.has_errors(), "{}", s.errors());
    s.text()
}

fn errors(script: &str) -> String {
    resolve(script).errors()
}

#[test]
fn families_resolve_as_blessed() {
    insta::assert_snapshot!(handlers(
        r#"
        probe begin {} probe begin(-5) {} probe end {} probe end(3) {} probe error {}
        probe never {} probe prometheus {} probe input.char, input.line {}
        probe timer.s(1), timer.sec(1), timer.ms(5).randomize(2), timer.us(7), timer.ns(9) {}
        probe timer.jiffies(10), timer.hz(50), timer.profile, timer.profile.tick {}
        probe timer.profile.freq.hz(97) {}
        probe perf.sw.cpu_clock, perf.hw.cpu_cycles.sample(500), perf.type(1).config(2).hz(10) {}
        "#
    ));
}

#[test]
fn tracepoints_resolve_as_blessed() {
    insta::assert_snapshot!(handlers(
        r#"
        probe kernel.trace("sched_switch") { println($prev) }
        probe kernel.trace("sched:sched_process_*") { println($$vars) }
        probe kernel.trace("s*l:*") {}
        "#
    ));
}

#[test]
fn one_rule_holds_for_all_patterns() {
    let plain = handlers(r#"probe kernel.trace("sched:sched_switch") {}"#);
    for point in [
        r#"kernel.trace("s*d:sched_sw?tch")"#,
        r#"kernel.trace("s\\ch*:sched_switch")"#,
        r#"kernel.trace("sch[!a]d:sched\\_swi[r-t]ch")"#,
    ] {
        assert_eq!(handlers(&format!("probe {point} {{}}")), plain, "{point}");
    }
}

#[test]
fn system_calls_resolve_as_blessed() {
    insta::assert_snapshot!(handlers(
        r#"
        probe syscall.open { println(name, filename, flags, argstr, $mode) }
        probe nd_syscall.read.return { println(name, retval, retstr, count) }
        probe tp_syscall.kill { println(sig_name, sig) }
        probe syscall.compat_open { println(filename_unquoted, filename_uaddr) }
        probe syscall_any { println(name, syscall_nr) }
        probe syscall_any.return { errno = retval; println(name, errno) }
        probe syscall.close.return { println(errno) }
        probe syscall.close.return { errno = 3; fd = 4; println(errno, fd) }
        "#
        .replace(
            "println(name, filename, flags, argstr, $mode)",
            "printd(\" \", name, filename, flags, argstr, $mode)"
        )
        .replace("println(", "printd(\" \", \"\", ")
        .as_str()
    ));
}

#[test]
fn system_calls_share_handlers() {
    insta::assert_snapshot!(handlers(
        r#"
        global name_of, count
        probe syscall.* { name_of[tid()] = argstr }
        probe syscall.*.return { count[name] <<< retval }
        probe syscall.* { if (fd == 3) next; if (@defined($count)) println($count) }
        probe syscall.{read,open} { println(pp()) }
        probe syscall.* { println($$vars) }
        "#
    ));
}

#[test]
fn points_that_only_systemtap_has_are_refused() {
    let mut text = String::new();
    for script in [
        "probe scheduler.cpu_off { println(idle) }",
        "probe scheduler.cpu_off { idle = 1; println(idle) }",
        "probe scheduler.cpu_on { println(idle) }",
        "probe scheduler.cpu_off if (idle) { }",
        "probe outer, scheduler.cpu* { println(task_next) }",
        "probe mine = scheduler.cpu_off { x = idle } probe mine { println(x) }",
        "probe nd_syscall.read { println(buf_text) }",
        "probe syscall.* { println(buf_text) }",
        "probe syscall.*.return { println(buf_text) }",
        "probe syscall.open { println(buf_text) }",
    ] {
        text.push_str(&format!("--- {script}\n{}", errors(script)));
    }
    insta::assert_snapshot!(text);
}

/// `pp()` is the point that was hit, also in a function of the script.
#[test]
fn functions_know_the_point_that_was_hit() {
    for call in ["println(pp())", "outer()"] {
        let text = handlers(&format!(
            "function inner() {{ println(pp()) }} function outer() {{ if (1) inner() }}
             probe syscall.{{read,open}} {{ {call} }} probe kernel.trace(\"sched_switch\") {{ {call} }}"
        ));
        let points = [
            "syscall.read ",
            "syscall.open ",
            "kernel.trace(\"sched:sched_switch\") ",
        ];
        assert!(points.iter().all(|p| text.contains(p)), "{text}");
    }
}

#[test]
fn a_global_is_no_predefined_variable() {
    let text = handlers("global name probe syscall.read { println(name) name = argstr }");
    assert!(
        !text.contains("name = \"read\"") && text.contains("argstr = "),
        "{text}"
    );
}

#[test]
fn aliases_resolve_as_blessed() {
    insta::assert_snapshot!(handlers(
        r#"
        probe outer if (x) { u = 0 }
        probe middle2 { u = 1 }
        probe oneshot { println("hello") }
        probe scheduler.cpu_on, scheduler.exit { println(task) }
        probe kprocess.exec { println(filename) }
        probe first_there { }
        "#
    ));
}

#[test]
fn wildcards_over_aliases_resolve_as_blessed() {
    insta::assert_snapshot!(handlers(
        r#"
        probe scheduler.* {}
        probe io.*.return {}
        probe io.** {}
        probe *.read {}
        probe perf.sw.* {}
        probe timer.prof* {}
        "#
    ));
}

/// The alias is no loop: its point means the family's.
#[test]
fn an_alias_adds_to_the_family_of_its_name() {
    let s = resolve(
        "probe syscall.read = syscall.read { extra = 1 } probe syscall.read { println(extra) }",
    );
    assert!(s.diags.is_empty(), "{}", s.errors());
    assert_eq!((s.derived.len(), s.derived[0].parts.len()), (1, 2));
    assert!(
        resolve("probe circle = circle { } probe circle { }")
            .errors()
            .contains("E0305")
    );
}

#[test]
fn optional_points_may_be_missing() {
    let s = resolve(
        r#"probe kernel.trace("gone")?, syscall.nothing ?, nothing.at.all?, begin {} probe never_was ? {}"#,
    );
    assert!(s.diags.is_empty(), "{}", s.errors());
    assert_eq!(s.derived.len(), 1);
}

#[test]
fn sufficient_points_end_the_search() {
    let s = resolve(r#"probe nothing!, begin!, end! {}"#);
    assert_eq!(s.text().lines().next(), Some("begin pn=begin points=1"));
    assert_eq!(s.derived.len(), 1);
}

#[test]
fn probes_of_a_library_file_are_resolved() {
    let mut s = resolve("probe begin {}");
    let m = FakeMachine::new();
    let derived = spile_sema::probe::resolve_file(&s.lib, &m, s.tapset, &mut s.diags);
    assert_eq!(derived.len(), 1);
    assert_eq!(&*derived[0].point, "begin(-7)");
}

#[test]
fn private_names_are_visible_in_their_file() {
    let s = resolve("global mine function helper(a) { return 2 } function own() {} probe begin {}");
    assert!(s.lib.global("mine", s.user).is_some() && s.lib.global("mine", s.tapset).is_none());
    assert!(s.lib.global("hidden", s.user).is_some() && s.lib.global("hidden", s.tapset).is_some());
    assert!(s.lib.functions("secret", s.user).is_empty());
    assert_eq!(s.lib.functions("secret", s.tapset).len(), 1);
    assert!(s.lib.functions("own", s.tapset).is_empty());
    let helpers = s.lib.functions("helper", s.user);
    let seen: Vec<(bool, usize)> = helpers
        .iter()
        .map(|(file, f)| (*file == s.user, f.params.len()))
        .collect();
    assert_eq!(seen, [(true, 1), (false, 2)]);
}

#[test]
fn wrong_points_are_reported_as_blessed() {
    let scripts = [
        "probe beginn {}",
        "probe timer.s {}",
        "probe timer.s(\"x\") {}",
        "probe timer.s(0) {}",
        "probe timer.ms(5).randomize(9) {}",
        "probe timer.weeks(2) {}",
        "probe begin.return {}",
        "probe syscall.opne {}",
        "probe syscall.zz* {}",
        "probe kernel.trace(\"sched_swich\") {}",
        "probe kernel.trace(\"nothing*\") {}",
        "probe kernel.trace(5) {}",
        "probe kernel.function(\"vfs_read\") {}",
        "probe process(\"/bin/ls\").mark(\"x\") {}",
        "probe perf.sw.cpu_clok {}",
        "probe loop {}",
        "probe scheduler.cpu_onn {}",
        "probe scheduler.gone {}",
        "probe nothing.* {}",
        "probe netfilter.*.* {}",
        "probe vfs.read.return {}",
        "probe syscall.execve { println(argv_str) }",
        "function f() {}",
    ];
    let mut out = String::new();
    for s in scripts {
        out.push_str(&errors(s));
        out.push('\n');
    }
    insta::assert_snapshot!(out);
}

#[test]
fn a_session_in_processes_sees_their_events() {
    let scripts = [
        "probe kernel.trace(\"sched_switch\") {}",
        "probe kernel.function(\"vfs_read\").return {}",
        "probe scheduler.cpu_on {}",
        "probe netfilter.hook(\"NF_INET_LOCAL_IN\").pf(\"NFPROTO_IPV4\") {}",
        "probe lsm(\"file_open\") {}",
        "probe kernel.data(4096).write {}",
        "probe process(1).data(4096).write {}",
        "probe perf.sw.cpu_clock {}",
        "probe perf.sw.cpu_clock.sample(7), perf.hw.cpu_cycles {}",
        "probe perf.type(1).config(2) {}",
        "probe kernel.trace(\"sched_switch\")? {}",
    ];
    let processes = FakeMachine::new().in_process();
    let mut out = String::new();
    for s in scripts {
        out.push_str(&resolve_on(&processes, s).errors());
        out.push('\n');
    }
    for s in [
        "probe begin, timer.s(1), timer.profile, procfs(\"x\").read, input.line {}",
        "probe syscall.read, syscall.read.return, syscall_any {}",
        "probe perf.sw.cpu_clock.process(7) {}",
    ] {
        let script = resolve_on(&processes, s);
        out.push_str(&script.errors());
        let events = script.derived.iter();
        events.for_each(|d| out.push_str(&format!("{}: {}\n", d.point, d.event)));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn a_session_in_processes_needs_a_target() {
    let machine = FakeMachine::new().in_process().without_target();
    let errors = |text: &str| resolve_on(&machine, text).errors();
    let text = errors("probe syscall.read {}");
    assert!(
        text.contains("E0314") && text.contains("`-c COMMAND`"),
        "{text}"
    );
    assert_eq!(errors("probe begin, timer.s(1), end {}"), "");
}

#[test]
fn names_of_earlier_kernels_stand_for_those_of_today() {
    let renamed = |points: &str| {
        let s = resolve(&format!("probe {points} {{}}"));
        let warned = s.errors().contains("W0302") && !s.diags.has_errors();
        (s.text().contains("mm_vmscan_write_folio"), warned)
    };
    let old = r#"kernel.trace("mm_vmscan_writepage")"#;
    let unknown = r#"kernel.trace("never_was")"#;
    assert_eq!(renamed(old), (true, true));
    assert_eq!(renamed(&format!("{old}!, {unknown}")), (true, true));
    // Nothing fails here, so nothing stands for anything.
    assert_eq!(renamed(&format!("{old}?, begin")), (false, false));
    assert_eq!(renamed(&format!("{old}!, begin")), (false, false));
    // The error is about what the script says.
    let text = errors(&format!("probe {old}, {unknown} {{}}"));
    assert!(
        text.contains("no tracepoint `mm_vmscan_writepage`"),
        "{text}"
    );
}

#[test]
fn several_errors_in_one_run() {
    let s = resolve("probe beginn, endd {} probe timer.s {} probe begin {}");
    assert_eq!(s.diags.error_count(), 3);
}

#[test]
fn wildcards_stand_for_what_follows_an_alias() {
    let same = |pattern: &str, point: &str| {
        let line = |point: &str| handlers(&format!("{ALIASES} probe {point} {{}}"));
        let named = line(pattern).replace(&format!("name={pattern}"), &format!("name={point}"));
        let (named, plain) = (named.replace(pattern, point), line(point));
        assert_eq!(named, plain, "{pattern}");
    };
    const ALIASES: &str = "probe mine = syscall.open {} probe mine.inner = syscall.read {}";
    same("mine.ret*", "mine.return");
    same(
        "syscall.open.return.maxact*(10)",
        "syscall.open.return.maxactive(10)",
    );
    same("mine.re*.max*(10)", "mine.return.maxactive(10)");
    // The alias's own names come first.
    same("mine.in*", "mine.inner");
    for wrong in [
        "mine.x*",
        "syscall.open.return.maxact*",
        "syscall.open.return.mix*(1)",
    ] {
        let said = errors(&format!("{ALIASES} probe {wrong} {{}}"));
        assert!(said.contains("E0302"), "{wrong}: {said}");
    }
}

#[test]
fn netfilter_takes_numbers_as_text() {
    let location = |hook: &str, pf: &str| {
        let point = format!("netfilter.hook(\"{hook}\").pf(\"{pf}\")");
        let s = resolve(&format!("probe {point} {{}}"));
        match &s.derived[..] {
            [one] => Ok(format!("{:?}", one.event)),
            _ => Err(s.errors()),
        }
    };
    let named = location("NF_INET_LOCAL_IN", "NFPROTO_IPV6");
    assert!(named.is_ok(), "{named:?}");
    assert_eq!(location("1", "10"), named);
    assert_eq!(location("NF_IP6_LOCAL_IN", "10"), named);
    for (hook, pf) in [
        ("5", "2"),
        ("-1", "2"),
        ("1", "3"),
        ("1", "99"),
        ("NF_WARP", "2"),
    ] {
        let said = location(hook, pf).expect_err(hook);
        assert!(said.contains("E0303"), "{said}");
    }
}

#[test]
fn optional_points_that_match_nothing_are_named() {
    let said =
        errors("probe a.b = syscall.nothing?, syscall.no_such? {} probe a.*, syscall.gone? {}");
    assert!(said.contains("E0311"), "{said}");
    assert!(
        said.contains("`syscall.gone`, `syscall.no_such`, `syscall.nothing`"),
        "{said}"
    );
    let script = "probe a.b = syscall.nothing? {} probe a.* {} probe begin {}";
    assert!(handlers(script).contains("begin"));
    let many: Vec<String> = (0..10).map(|i| format!("syscall.no{i}?")).collect();
    let said = errors(&format!("probe {} {{}}", many.join(", ")));
    assert!(said.contains("`syscall.no7`, 2 others"), "{said}");
}

#[test]
fn aliases_that_explode_are_refused() {
    let mut script = String::from("probe begin {} probe a0 = begin, end {}\n");
    for i in 1..40 {
        script.push_str(&format!("probe a{i} = a{}, a{} {{}}\n", i - 1, i - 1));
    }
    script.push_str("probe a39 {}");
    let text = errors(&script);
    assert!(text.contains("E0310"), "{text}");
}

#[test]
fn points_are_listed_as_blessed() {
    let mut s = resolve("probe begin {}");
    let m = FakeMachine::new();
    let mut out = String::new();
    for pattern in [
        "syscall.*",
        "scheduler.*",
        "kernel.trace(\"sched*\")",
        "syscall_any*",
        "begin",
        "**.return",
    ] {
        let points = s.points(pattern);
        for l in list::list(&s.lib, &m, &points, true, &mut s.diags) {
            out.push_str(&l.long_line());
            out.push('\n');
        }
        out.push('\n');
    }
    assert!(s.diags.is_empty(), "{}", s.errors());
    insta::assert_snapshot!(out);
    insta::assert_snapshot!("listings_aliases", list::probe_aliases(&s.lib).join("\n"));
    insta::assert_snapshot!("listings_functions", list::functions(&s.lib).join("\n"));
    insta::assert_snapshot!("listings_types", list::probe_types().join("\n"));
}

/// A handler reads the arguments of a tracepoint, or the fields of its record.
#[test]
fn fields_of_records_are_variables_of_tracepoints() {
    let record = "on TraceEvent(";
    for (body, of_record) in [
        ("println($next_pid)", true),
        ("println(kernel_string($next_comm), $prev_state)", true),
        ("if (@defined($next_comm)) println(1)", true),
        ("println($prev_state, $arg1)", false),
        ("println($next->pid)", false),
        ("println($$vars)", false),
        // The argument is there, so the field is not.
        (
            "println(@defined($next_pid) ? $next_pid : $next->pid)",
            false,
        ),
    ] {
        let text = handlers(&format!(
            "probe kernel.trace(\"sched_switch\") {{ {body} }}"
        ));
        assert_eq!(text.contains(record), of_record, "{body}: {text}");
    }
}
