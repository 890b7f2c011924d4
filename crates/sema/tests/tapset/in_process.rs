//! The library where the target's processes are the host: a function compiles to what a process has, or is refused
//! with a location.

use spile_bpf::compiled::Object;
use spile_bpf::object::elf::MapType;
use spile_bpf::target::Target;
use spile_ebpf::isa::helpers::OF_PROCESS;
use spile_ebpf::isa::insn::{Callee, Insn};

use super::*;

/// Points that a process sees.
const SEEN: [&str; 6] = [
    "syscall.read",
    "syscall.read.return",
    "process(\"/x\").function(\"f\")",
    "process(\"/x\").function(\"f\").return",
    "process.begin",
    "process.thread.end",
];

/// Functions that scripts use most. Each works at one of the points.
const COMMON: &[&str] = &[
    "addr",
    "cmdline_str",
    "cpu",
    "egid",
    "errno_str",
    "euid",
    "execname",
    "exit",
    "get_cycles",
    "gid",
    "gettimeofday_ms",
    "gettimeofday_ns",
    "gettimeofday_s",
    "gettimeofday_us",
    "int_arg",
    "is_myproc",
    "isinstr",
    "jiffies",
    "long_arg",
    "pgrp",
    "pid",
    "pn",
    "pointer_arg",
    "pp",
    "ppid",
    "ppfunc",
    "probefunc",
    "randint",
    "returnstr",
    "returnval",
    "sid",
    "str_replace",
    "strlen",
    "strtol",
    "substr",
    "target",
    "target_set_pid",
    "thread_indent",
    "tid",
    "tokenize",
    "tz_ctime",
    "u_register",
    "uid",
    "ulong_arg",
    "user_int",
    "user_long",
    "user_string",
    "user_string_quoted",
    "usrdev2kerndev",
];

/// What the handlers of an object call that a process does not have.
fn foreign(object: &Object) -> Vec<String> {
    let programs = object.spec.programs.iter().map(|p| &p.function);
    let functions = programs.chain(&object.spec.subprograms);
    let insns = functions.flat_map(|f| f.insns.iter());
    let calls = insns.filter_map(|insn| match insn {
        Insn::Call { callee, target } => Some((*callee, target.cast_unsigned())),
        _ => None,
    });
    let here = |helper: u32| OF_PROCESS.iter().any(|h| h.id() == helper);
    let foreign = calls.filter(|(callee, target)| match callee {
        Callee::Helper => !here(*target),
        Callee::Subprogram => false,
        Callee::Kfunc => true,
    });
    let foreign = foreign.map(|call| format!("{call:?}"));
    let known = [
        MapType::Array,
        MapType::Hash,
        MapType::PercpuHash,
        MapType::Ringbuf,
    ];
    let maps = object.spec.maps.iter().filter(|m| !known.contains(&m.ty));
    foreign
        .chain(maps.map(|m| format!("map {}", m.name)))
        .collect()
}

/// The library and the machine of a session in processes.
fn in_process() -> (Parsed, FakeMachine) {
    let files = files();
    let mut env = environment();
    env.runtime = "process".into();
    (parsed_in(&files, &env), machine(&files).in_process())
}

/// Analyses and compiles a script; the errors of the script, or what is wrong with its code.
fn compiled((parsed, facts): &(Parsed, FakeMachine), script: &str) -> Result<Vec<String>, String> {
    let mut p = run(parsed, facts, script)?.program;
    spile_ir::opt::optimise(&mut p, true);
    spile_ir::storage::classify(&mut p);
    spile_ir::verify::verify(&p).unwrap_or_else(|e| panic!("{script}: {e:?}"));
    let target = Target::process(
        &spile_abi::X86_64,
        spile_syscalls::of(&spile_abi::X86_64),
        1 << 20,
    );
    let wrong = match spile_bpf::compile(&p, &target) {
        Ok(object) => foreign(&object),
        Err(e) => vec![e.to_string()],
    };
    Ok(wrong
        .into_iter()
        .map(|what| format!("{script}: {what}"))
        .collect())
}

#[test]
fn functions_use_what_a_process_has() {
    let host = in_process();
    let (mut wrong, mut works, mut refused) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (_, item) in items(&files()) {
        let Item::Function(f) = item else { continue };
        if f.name.name.starts_with("__") {
            continue;
        }
        for point in SEEN {
            let script = format!("probe {point} {{ {} }}", sample_call(&f));
            match compiled(&host, &script) {
                Ok(more) => {
                    wrong.extend(more);
                    works.insert(f.name.name.to_string());
                }
                Err(text) if text.contains("E0605") => {
                    assert!(text.contains("only available in the kernel"), "{text}");
                    refused.insert(f.name.name.to_string());
                }
                Err(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lacking: Vec<_> = COMMON
        .iter()
        .filter(|name| !works.contains(**name))
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
    for name in [
        "task_current",
        "kernel_string",
        "print_backtrace",
        "pexecname",
    ] {
        assert!(refused.contains(name), "{name}");
    }
}

#[test]
fn scripts_use_what_a_process_has() {
    let host = in_process();
    for script in [
        "probe syscall.* { println(name, argstr) }",
        "probe nd_syscall.* { println(name, argstr) } probe nd_syscall.*.return { println(retstr) }",
        "global n, t probe syscall.read { n[execname(), pid()] <<< 1; t[tid()] = gettimeofday_ns() } \
         probe syscall.read.return { if (tid() in t) { println(gettimeofday_ns() - t[tid()]); delete t[tid()] } } \
         probe end { foreach ([name, p] in n- limit 5) println(name, @count(n[name, p])) }",
        "global a, s probe process(\"/x\").function(\"f\") { a[pid()] = execname(); s .= \"x\" \
         foreach (p in a) println(a[p], s) }",
        "probe process(\"/x\").function(\"f\").return { println(@entry(gettimeofday_us()), $$return) }",
        "probe process.begin, process.end, process.thread.begin, process.thread.end { println(pn(), tid()) }",
        "probe process.syscall, process.syscall.return, process(1).begin { println(pid()) }",
        "probe perf.sw.cpu_clock.process(1) { println(execname()) }",
        "global n probe timer.profile { n[execname()] <<< 1 } probe timer.s(1) { print(@count(n[\"x\"])) }",
        "probe process(\"/x\").function(\"f\") { raise(10); set_user_int(1, 2) }",
    ] {
        match compiled(&host, script) {
            Ok(wrong) => assert!(wrong.is_empty(), "{}", wrong.join("\n")),
            Err(text) => panic!("{script}: {text}"),
        }
    }
}
