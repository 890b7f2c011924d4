//! The code generator compiles every kernel handler that analysis accepts; analysis refuses all
//! others, with a location.

mod support;

use spile_bpf::target::Target;
use spile_ir::Program;
use spile_ir::intrinsics::{Intrinsic, ValueKind};
use spile_machine::FakeMachine;
use spile_sema::analyse::AnalysisOptions;
use support::{Run, TAPSET, bpf_options, run, run_on};

/// Probe points of all kinds of kernel events.
const POINTS: &[&str] = &[
    "kernel.trace(\"sched_switch\")",
    "syscall.read",
    "syscall.read.return",
    "perf.sw.cpu_clock",
];

/// Compiles as the command line does, optimised or not.
fn compile(program: &Program, target: &Target, optimised: bool) -> Result<(), String> {
    let mut program = program.clone();
    spile_ir::opt::optimise(&mut program, optimised);
    spile_ir::storage::classify(&mut program);
    spile_ir::verify::verify(&program).map_err(|e| format!("{e:?}"))?;
    let compiled = spile_bpf::compile(&program, target);
    compiled.map(|_| ()).map_err(|e| e.to_string())
}

/// Whether analysis accepts a script; then the generator must compile it.
fn allowed(r: &Run, target: &Target, what: &str, wrong: &mut Vec<String>) -> bool {
    let Some(a) = &r.analysis else {
        let placed = r.diags.iter().all(|d| d.primary.is_some());
        if !placed {
            wrong.push(format!("{what}: refused without a location"));
        }
        return false;
    };
    for optimised in [true, false] {
        if let Err(e) = compile(&a.program, target, optimised) {
            wrong.push(format!("{what} (optimised: {optimised}): {e}"));
        }
    }
    true
}

#[test]
fn intrinsics_are_allowed_where_the_table_says() {
    let count = try_intrinsics(&FakeMachine::new(), POINTS, &bpf_options());
    assert!(count > 200, "{count}");
}

#[test]
fn intrinsics_of_processes_are_allowed_where_the_table_says() {
    let machine = FakeMachine::new().in_process();
    let target = Target::process(&spile_abi::X86_64, &[], 1 << 20);
    let points = ["syscall.read", "syscall.read.return"];
    let count = try_intrinsics(&machine, &points, &target);
    assert!(count > 150, "{count}");
}

/// Uses each intrinsic at each point; the number of uses that analysis accepts.
fn try_intrinsics(machine: &FakeMachine, points: &[&str], target: &Target) -> usize {
    let mut wrong = Vec::new();
    let mut count = 0;
    for f in Intrinsic::ALL {
        let info = f.info();
        let args: Vec<&str> = info
            .params
            .iter()
            .map(|k| match k {
                ValueKind::Long => "2",
                ValueKind::Str => "execname()",
            })
            .collect();
        let call = format!("__{}({})", info.name, args.join(", "));
        let (lib, uses): (_, &[&str]) = match info.ret {
            Some(k) => {
                let ty = if k == ValueKind::Str {
                    "string"
                } else {
                    "long"
                };
                let lib = format!("{TAPSET} function it:{ty}() {{ return {call} }}");
                (
                    lib,
                    &["println(it())", "if (pid()) x = it(); y[x] = x", "it()"],
                )
            }
            None => (
                format!("{TAPSET} function it() {{ {call} }}"),
                &["it() it()", "if (pid()) it()"],
            ),
        };
        for (point, body) in points.iter().flat_map(|p| uses.iter().map(move |u| (p, u))) {
            let script = format!("global y probe {point} {{ {body} }}");
            let r = run_on(machine, &lib, &script, &AnalysisOptions::default());
            let what = format!("{call} in {point}, {body}");
            count += usize::from(allowed(&r, target, &what, &mut wrong));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

/// Bodies of kernel handlers with the globals that they need. The flag says that analysis has to
/// accept them.
const BODIES: &[(bool, &str, &str)] = &[
    (
        true,
        "a, b",
        "a = 1; b = \"x\"; if (a && b == \"x\") a += 2; println(a, b)",
    ),
    (
        true,
        "a",
        "a++; ++a; a--; --a; a <<= 1; a >>= 1; a |= 1; a &= 3; a ^= 1; a %= 7; a /= 2; a *= 3; a -= 1; println(a)",
    ),
    (
        true,
        "a",
        "a[1, \"x\", 3, execname(), 5, 6, 7, 8] = pid(); println(a[1, \"x\", 3, \"y\", 5, 6, 7, 8])",
    ),
    (true, "a", "a[pid()] .= \"x\"; println(a[1])"),
    (
        true,
        "a",
        "if ([1, 2] in a) delete a[1, 2]; a[1, 2] = 3; delete a",
    ),
    (
        true,
        "a",
        "a[1, 2] = 3; delete a[*, 2]; delete a[1, *]; println([*, 2] in a)",
    ),
    (
        true,
        "s",
        "s <<< 1; println(@count(s), @sum(s)); if (@count(s)) printdln(\" \", @min(s), @max(s), @avg(s)); delete s",
    ),
    (
        true,
        "s",
        "s[execname(), pid()] <<< pid(); println(@count(s[\"x\", 1])); delete s",
    ),
    (true, "", "try { error(\"x\") } catch (m) { println(m) }"),
    (true, "", "try { println(1 / pid()) } catch { next }"),
    (
        true,
        "",
        "x = pid() ? \"a\" : \"b\"; y = x . \"c\"; y .= sprint(pid()); println(y, x < y, x == y)",
    ),
    (
        true,
        "",
        "printf(\"%5d|%-5d|%05d|%+d|% d|%#x|%#o|%X|%i|%u|%p|%c|%%|%s|%-9s|%.3s|%9.3s\", 1, pid(), 3, 4, 5, 6, 7, 8, 9, 10, 11, 65, execname(), \"b\", execname(), \"c\")",
    ),
    (
        true,
        "",
        "printf(\"%*d|%.*d|%*.*s|%-*s\", 5, pid(), 3, 4, 5, 2, execname(), 7, \"x\")",
    ),
    (
        true,
        "",
        "printf(\"%b%1b%2b%4b%8b|%#s|%#c\", 1, 2, 3, 4, 5, execname(), 7)",
    ),
    (
        true,
        "",
        "print_char(65); printd(\",\", 1, execname()); println(sprintln(1), sprintd(\"-\", 1, \"x\"))",
    ),
    (
        true,
        "",
        "println(sprintf(\"%5d|%-5d|%05d|%+d|% d|%#x|%#o|%X|%p|%c|%s|%-9s|%.3s|%5.2d\", 1, pid(), 3, 4, 5, 6, 7, 8, 11, 65, execname(), \"b\", execname(), 9))",
    ),
    (
        true,
        "",
        "println(sprintf(\"%*s|%-*s\", 5, execname(), pid(), \"x\"))",
    ),
    (
        true,
        "",
        "println(sprintf(\"%5c|%-5c\", 65, pid()), substr(execname(), 1, pid()))",
    ),
    (
        true,
        "",
        "println(kernel_string(pid()), @kderef(4, pid()), user_long(pid()))",
    ),
    (true, "a", "a[sprintf(\"%d-%s\", pid(), execname())]++"),
    (true, "a%[10]", "a[pid()] = 1; println(a[1])"),
    (true, "a%[10], s%", "a[pid()]++; s[pid()] <<< 1"),
    (
        true,
        "",
        "if (pid() == 1) next; if (tid() != 2 && pid() > 3 || execname() != \"x\") println(1)",
    ),
    (true, "a", "println(a++ + --a, a = 5, a += 2)"),
    (
        true,
        "",
        "println(1 << pid(), pid() >> 3, pid() >>> tid(), -pid(), ~pid(), !pid(), pid() % 3, 7 % pid())",
    ),
    (true, "", "println(pp(), pn_())"),
    (true, "", "println(f(1), f(2))"),
    (
        true,
        "",
        "println(errno_str(2), errno_str(pid()), errno_str(-5))",
    ),
    (true, "", "println(kernel_string_n(pid(), tid()))"),
    (
        true,
        "",
        "warn(\"x\"); log(execname()); error(execname() . \"!\")",
    ),
    (true, "", "for (i = 0; i < 3; i++) println(i)"),
    (true, "", "while (pid()) { println(1); break }"),
    (true, "a", "foreach (k in a) println(k); a[1] = 2"),
    (true, "s", "s <<< 1; println(@variance(s))"),
    (true, "s", "s <<< 1; println(@variance(s, 3))"),
    (true, "s", "s <<< 1; print(@hist_log(s))"),
    (true, "s", "s <<< 1; println(@hist_linear(s, 1, 9, 1)[2])"),
    (true, "s", "s <<< 1; foreach (b in @hist_log(s)) println(b)"),
    (true, "", "println(fact(3))"),
    (true, "", "printf(\"%4m\", 1)"),
    (true, "", "printf(\"%4M\", 1)"),
    (true, "", "println(sprintf(\"%4m\", 1))"),
    (true, "", "println(sprintf(\"%4b\", 1))"),
    (true, "", "println(sprintf(\"%.*s\", 3, execname()))"),
    (true, "", "println(sprintf(\"%*d\", 3, pid()))"),
    (true, "", "println(sprintf(\"%#s\", execname()))"),
    (true, "", "println(sprintf(\"%#c\", pid()))"),
    (false, "", "ftrace(\"x\")"),
    (false, "", "println(arg(pid()))"),
];

/// Texts of structures.
#[test]
fn pretty_prints_are_allowed_where_they_can_run() {
    let mut wrong = Vec::new();
    for body in [
        "println($prev$)",
        "println($prev$$)",
        "println($prev->parent$)",
        "println($prev->comm$, $prev->flags$, $prio$, $state$)",
        "printf(\"%s|%s|%s|%s\", $$parms, $$parms$, $$vars$$, $$parms$$)",
        "println(@cast(1, \"task_struct\")$, @var(\"jiffies\")$)",
        "t = $prev; println(t->parent$$)",
    ] {
        let script = format!("probe kernel.trace(\"sched_switch\") {{ {body} }}");
        let r = run(&script);
        if !allowed(&r, &bpf_options(), body, &mut wrong) {
            wrong.push(r.diags.render(&r.sources, false));
        }
    }
    let r = run("probe syscall.read { println($fd$, $$parms$) }");
    assert!(
        allowed(&r, &bpf_options(), "syscall", &mut wrong) && wrong.is_empty(),
        "{}",
        wrong.join("\n")
    );
}

#[test]
fn constructs_are_allowed_where_they_can_run() {
    let mut wrong = Vec::new();
    for (must, globals, body) in BODIES {
        let mut globals = match *globals {
            "" => String::new(),
            g => format!("global {g}"),
        };
        globals.push_str(
            "
            function f(x) { if (x > 1) next; return \"one\" }
            function f(x) { return \"more\" }
            function fact(n) { return n < 2 ? 1 : n * fact(n - 1) }
            function pn_() { return pp() }",
        );
        for point in POINTS {
            let script = format!("{globals}\nprobe {point} {{ {body} }}");
            let r = run(&script);
            let passed = allowed(&r, &bpf_options(), &format!("{point}: {body}"), &mut wrong);
            if *must && !passed {
                wrong.push(format!("refused: {}", r.diags.render(&r.sources, false)));
            }
            if !must && passed && !wrong.iter().any(|w| w.contains(body)) {
                // The generator can compile it, so analysis may accept it.
                wrong.push(format!("allowed and compiled: {body}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
