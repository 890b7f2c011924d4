//! A small machine, and scripts run up to their resolved probes.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::fmt::Write;
use std::sync::Arc;

use spile_ir::{Event, NrSet};
use spile_sema::facts::*;
use spile_sema::library::Library;
use spile_sema::probe::{Derived, resolve_script};
use spile_syntax::ast::FileId;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_probe_points};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

pub const LONG: CTypeId = 1;
pub const INT: CTypeId = 2;
pub const TASK: CTypeId = 3;
pub const TASK_PTR: CTypeId = 4;
pub const CHAR: CTypeId = 5;
pub const COMM: CTypeId = 6;
pub const UINT: CTypeId = 7;
pub const BOOL: CTypeId = 8;
pub const LIST: CTypeId = 9;
pub const LIST_PTR: CTypeId = 10;
pub const TASKS: CTypeId = 11;
pub const FWD: CTypeId = 12;
pub const FWD_PTR: CTypeId = 13;

/// The machine.
pub struct Machine {
    calls: Vec<SysCall>,
}

impl Machine {
    pub fn new() -> Machine {
        use SysArgKind::*;
        let int = Int {
            size: 4,
            signed: true,
        };
        let long = Int {
            size: 8,
            signed: true,
        };
        let ulong = Int {
            size: 8,
            signed: false,
        };
        let u32_ = Int {
            size: 4,
            signed: false,
        };
        let arg = |(var, kernel, kind): (&'static str, &'static str, SysArgKind), word| SysArg {
            var,
            kernel,
            word,
            kind,
        };
        let call = |nr, name, probe, args: &[(&'static str, &'static str, SysArgKind)]| SysCall {
            nr,
            name,
            probe,
            args: args.iter().zip(0..).map(|(a, w)| arg(*a, w)).collect(),
        };
        let c = NrSet::COMPAT;
        let read = |count| {
            [
                ("fd", "fd", int),
                ("buf_uaddr", "buf", Ptr),
                ("count", "count", count),
            ]
        };
        let open = [
            ("filename", "filename", Str),
            ("flags", "flags", int),
            ("mode", "mode", u32_),
        ];
        let kill = [("pid", "pid", int), ("sig", "sig", Signal)];
        Machine {
            calls: vec![
                call(0, "read", "read", &read(ulong)),
                call(1, "write", "write", &read(ulong)),
                call(2, "open", "open", &open),
                call(3, "close", "close", &[("fd", "fd", int)]),
                call(
                    8,
                    "lseek",
                    "lseek",
                    &[("fildes", "fd", int), ("offset", "offset", long)],
                ),
                call(39, "getpid", "getpid", &[]),
                call(
                    59,
                    "execve",
                    "execve",
                    &[("filename", "filename", Str), ("argv_str", "argv", StrVec)],
                ),
                call(62, "kill", "kill", &kill),
                call(
                    262,
                    "newfstatat",
                    "fstatat",
                    &[("dirfd", "dfd", int), ("path", "filename", Str)],
                ),
                call(c + 3, "read", "read", &read(u32_)),
                call(c + 4, "write", "write", &read(u32_)),
                call(c + 5, "open", "open", &open),
                call(
                    c + 300,
                    "fstatat64",
                    "fstatat",
                    &[("dirfd", "dfd", int), ("path", "filename", Str)],
                ),
            ],
        }
    }
}

const TRACEPOINTS: &[(&str, &str)] = &[
    ("sched_process_exit", "sched"),
    ("sched_process_fork", "sched"),
    ("sched_switch", "sched"),
    ("signal_generate", "signal"),
];

impl Facts for Machine {
    fn tracepoints(&self, glob: &str) -> Vec<Arc<str>> {
        let fits = |n: &&str| spile_sema::probe::pattern::matches(glob, n, false);
        TRACEPOINTS
            .iter()
            .map(|(n, _)| *n)
            .filter(fits)
            .map(Into::into)
            .collect()
    }
    fn tracepoint_system(&self, name: &str) -> Option<Arc<str>> {
        TRACEPOINTS
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, s)| (*s).into())
    }
    fn tracepoint_args(&self, name: &str) -> Option<Vec<TracepointArg>> {
        let arg = |name: &str, ty| TracepointArg {
            name: name.into(),
            ty,
        };
        match name {
            "sched_switch" => Some(vec![
                arg("preempt", BOOL),
                arg("prev", TASK_PTR),
                arg("next", TASK_PTR),
                arg("prev_state", UINT),
            ]),
            "sched_process_fork" => Some(vec![arg("parent", TASK_PTR), arg("child", TASK_PTR)]),
            "sched_process_exit" => Some(vec![arg("p", TASK_PTR)]),
            _ => None,
        }
    }
    fn ctype(&self, id: CTypeId) -> CType {
        match id {
            LONG => CType::Int {
                size: 8,
                signed: true,
                char: false,
            },
            INT => CType::Int {
                size: 4,
                signed: true,
                char: false,
            },
            UINT => CType::Int {
                size: 4,
                signed: false,
                char: false,
            },
            BOOL => CType::Int {
                size: 1,
                signed: false,
                char: false,
            },
            CHAR => CType::Int {
                size: 1,
                signed: true,
                char: true,
            },
            TASK => CType::Struct {
                name: "task_struct".into(),
                size: 128,
                union: false,
            },
            LIST => CType::Struct {
                name: "list_head".into(),
                size: 16,
                union: false,
            },
            TASK_PTR => CType::Ptr(TASK),
            LIST_PTR => CType::Ptr(LIST),
            FWD_PTR => CType::Ptr(FWD),
            COMM => CType::Array {
                elem: CHAR,
                count: 16,
            },
            TASKS => CType::Array {
                elem: TASK_PTR,
                count: 4,
            },
            _ => CType::Unknown,
        }
    }
    fn c_name(&self, id: CTypeId) -> String {
        let name = match id {
            LONG => "long int",
            INT => "int",
            UINT => "unsigned int",
            BOOL => "_Bool",
            CHAR => "char",
            TASK => "struct task_struct",
            TASK_PTR => "struct task_struct *",
            LIST => "struct list_head",
            LIST_PTR => "struct list_head *",
            COMM => "char[16]",
            TASKS => "struct task_struct *[4]",
            FWD_PTR => "struct secret *",
            _ => "struct secret",
        };
        name.to_owned()
    }
    fn type_by_name(&self, name: &str) -> Option<CTypeId> {
        match name {
            "task_struct" | "struct task_struct" => Some(TASK),
            "list_head" | "struct list_head" => Some(LIST),
            "pid_t" => Some(INT),
            _ => None,
        }
    }
    fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        self.members(id).into_iter().find(|m| &*m.name == name)
    }
    fn members(&self, id: CTypeId) -> Vec<Member> {
        let m = |name: &str, bit_offset, bit_size, ty| Member {
            name: name.into(),
            bit_offset,
            bit_size,
            ty,
        };
        match id {
            TASK => vec![
                m("pid", 0, 0, INT),
                m("in_iowait", 37, 1, UINT),
                m("wide", 60, 10, INT),
                m("parent", 128, 0, TASK_PTR),
                m("comm", 192, 0, COMM),
                m("tasks", 320, 0, LIST),
                m("peers", 448, 0, TASKS),
                m("secret", 704, 0, FWD_PTR),
            ],
            LIST => vec![m("next", 0, 0, LIST_PTR), m("prev", 64, 0, LIST_PTR)],
            _ => Vec::new(),
        }
    }
    fn enum_constant(&self, _: &str) -> Option<i64> {
        None
    }
    fn enum_values(&self, _: CTypeId) -> Vec<(Arc<str>, i64)> {
        Vec::new()
    }
    fn variable(&self, _: &str) -> Option<KernelVar> {
        None
    }
    fn symbol_exists(&self, _: &str) -> bool {
        false
    }
    fn syscalls(&self) -> &[SysCall] {
        &self.calls
    }
    fn perf_events(&self) -> Vec<PerfEvent> {
        let e = |group, name: &str, ty, config| PerfEvent {
            group,
            name: name.into(),
            ty,
            config,
        };
        vec![
            e("sw", "cpu_clock", 1, 0),
            e("sw", "page_faults", 1, 2),
            e("hw", "cpu_cycles", 0, 0),
        ]
    }
    fn hz(&self) -> u64 {
        250
    }
    fn arch(&self) -> &str {
        "x86_64"
    }
    fn release(&self) -> &str {
        "6.12.0"
    }
}

/// A small library.
const TAPSET: &str = r#"
global hidden
probe oneshot = begin { }, { exit() }
probe scheduler.cpu_off = kernel.trace("sched_switch") { task_prev = $prev; name = "cpu_off" }
probe scheduler.cpu_on = kernel.trace("sched_switch") { task = $next }
probe scheduler.exit = kernel.trace("sched_process_exit") { task = $p }
probe scheduler.gone = kernel.trace("sched_never_was") { }
probe kprocess.exec = syscall.execve { }
probe io.read = syscall.read { depth = 1 }
probe io.read.return = syscall.read.return { depth = 2 }
probe io.write = syscall.write { depth = 3 }
probe outer = middle if (outer_on) { a = 1 }
probe middle = inner { b = 2 }
probe middle2 += inner { e = 5 }
probe inner = begin { c = 3 }
global outer_on
probe loop = loop2 {}
probe loop2 = loop {}
probe first_there = kernel.trace("nothing")!, kernel.trace("sched_switch")!, kernel.trace("signal_generate") {}
function exit() { __exit() }
private function secret() { hidden = 1 }
function helper:long(a:long, b:string) { return 1 }
function helper:long(a:long) { return 1 }
probe begin(-7) { hidden = 2 }
"#;

/// A script up to its resolved probes.
pub struct Script {
    pub lib: Library,
    pub sources: Sources,
    pub diags: Diagnostics,
    pub derived: Vec<Derived>,
    pub user: FileId,
    pub tapset: FileId,
}

pub fn resolve(text: &str) -> Script {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let macros = MacroLibrary::new();
    let mut lib = Library::new();
    let user = sources.add("script.stp", text.as_bytes().to_vec());
    let file = parse_file(&mut sources, user, &env, &macros, &mut diags);
    lib.add(user, file, true);
    let tapset = sources.add("tapset.stp", TAPSET.as_bytes().to_vec());
    let file = parse_file(&mut sources, tapset, &env, &macros, &mut diags);
    lib.add(tapset, file, false);
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    let derived = resolve_script(&lib, &Machine::new(), &mut diags);
    Script {
        lib,
        sources,
        diags,
        derived,
        user,
        tapset,
    }
}

impl Script {
    /// All diagnostics as pictures.
    pub fn errors(&self) -> String {
        self.diags.render(&self.sources, false)
    }

    /// The probe points of some text.
    pub fn points(&mut self, text: &str) -> Vec<spile_syntax::ast::ProbePoint> {
        parse_probe_points(&mut self.sources, "-l", text, &mut self.diags)
    }

    /// The handlers, one to a few lines each.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for d in &self.derived {
            let _ = writeln!(out, "{} pn={} points={}", d.point, d.name, d.points);
            let _ = writeln!(out, "  on {}", event(&d.event));
            for (c, _) in &d.conditions {
                let _ = writeln!(out, "  if {}", pretty::expr(c));
            }
            for v in &d.ctx.vars {
                let _ = writeln!(out, "  {} = {}", v.name, pretty::expr(&v.init));
            }
            for t in &d.ctx.targets {
                let ty = t.ty.spell(&Machine::new());
                let _ = writeln!(out, "  ${} = {:?}: {ty}", t.name, t.source);
            }
            for p in &d.parts {
                let stmts: Vec<String> = p.body.stmts.iter().map(pretty::stmt).collect();
                let _ = writeln!(out, "  {{ {} }}", stmts.join(" ").replace('\n', " "));
            }
        }
        out
    }
}

fn event(e: &Event) -> String {
    let nrs = |n: &NrSet| match n {
        NrSet::All => "all".to_owned(),
        NrSet::List(l) => format!("{l:?}"),
    };
    match e {
        Event::SysEnter(n) => format!("enter {}", nrs(n)),
        Event::SysExit(n) => format!("exit {}", nrs(n)),
        other => format!("{other:?}"),
    }
}
