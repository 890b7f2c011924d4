//! Runs the second half of analysis on a script, with hand-made probes.

// Each test file uses only a part of it.
#![allow(dead_code, unused_imports)]

use std::sync::Arc;

use spile_bpf::target::{Features, KernelOffsets, NumberPath, Target as BpfOptions};
use spile_ir::intrinsics::TaskNumber;
use spile_ir::{Event, NrSet};
use spile_machine::{FakeMachine, INT, STATE, TASK_PTR};
use spile_sema::analyse::{Analysis, AnalysisOptions, Inputs, analyse_bodies};
use spile_sema::ctype::CTy;
use spile_sema::library::Library;
use spile_sema::probe::{
    HandlerContext, HandlerKind, HandlerPart, ProbeHandler, TargetSource, TargetVar,
};
use spile_syntax::ast::{self, FileId, Literal};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::parse_file;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

/// A small library.
pub(crate) const TAPSET: &str = r#"
global __hits
probe begin(-5) { __hits["start"] = 1 }
function execname:string() { return __execname() }
function pid:long() { return __pid() }
function tid:long() { return __tid() }
function exit() { __exit() }
function pp:string() { return __pp() }
function now:long() { return __real_ns() }
function error(msg:string) { __error(msg) }
function warn(msg:string) { __warn(msg) }
function log(msg:string) { println(msg) }
function errno_str:string(n:long) { return __table("errno", n) }
function arg:long(n:long) { return __reg_arg(n) }
function ftrace(msg:string) { __ftrace(msg) }
function argstr:string() { return __sys_argstr() }
function task_pid:long(task:long) { return @cast(task, "task_struct")->pid }
function task_comm:string(task:long) { return __kernel_str(&@cast(task, "task_struct")->comm, 15) }
function kernel_string:string(a:long) { return __kernel_str(a, 511) }
function hit:long(name:string) { return __hits[name] }
function kernel_string_n:string(a:long, n:long) { return __kernel_str(a, n) }
function user_long:long(a:long) { try { return @uderef(8, a) } catch { return 0 } }
function substr:string(s:string, start:long, len:long) { return __substr(s, start, len) }
"#;

/// The result of a run.
pub(crate) struct Run {
    pub analysis: Option<Analysis>,
    pub diags: Diagnostics,
    pub sources: Sources,
}

/// Analyses a script.
pub(crate) fn run(script: &str) -> Run {
    run_with(script, &AnalysisOptions::default())
}

pub(crate) fn run_with(script: &str, options: &AnalysisOptions) -> Run {
    run_lib(TAPSET, script, options)
}

/// Like [`run`], with another library.
pub(crate) fn run_lib(tapset: &str, script: &str, options: &AnalysisOptions) -> Run {
    run_on(&FakeMachine::new(), tapset, script, options)
}

/// Like [`run_lib`], on a machine.
pub(crate) fn run_on(
    facts: &FakeMachine,
    tapset: &str,
    script: &str,
    options: &AnalysisOptions,
) -> Run {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let mut env = PreprocEnv::new("6.12.0", "x86_64");
    // The parser's refusals have tests in its crate.
    env.guru = true;
    let macros = MacroLibrary::new();
    let mut library = Library::new();
    let mut parse = |name: &str, text: &str, user: bool| {
        let content = text.as_bytes().to_vec();
        let id = match user {
            true => sources.add(name, content),
            false => sources.add_built_in(name, content),
        };
        let file = parse_file(&mut sources, id, &env, &macros, &mut diags);
        let probes = derive(&file, id);
        library.add(id, file, user);
        probes
    };
    let mut tapset = Some(parse("lib.stp", tapset, false));
    let handlers = parse("test.stp", script, true);
    assert!(!diags.has_errors(), "{}", diags.render(&sources, false));
    let inputs = Inputs {
        library: &library,
        sources: &sources,
        facts,
        tables: &|name| {
            (name == "errno").then(|| {
                ["", "EPERM", "ENOENT"]
                    .map(|s| s.as_bytes().into())
                    .to_vec()
            })
        },
        options,
    };
    let mut pull = |_: FileId, _: &mut Diagnostics| tapset.take().unwrap_or_default();
    let analysis = analyse_bodies(&inputs, handlers, &mut pull, &mut diags).ok();
    Run {
        analysis,
        diags,
        sources,
    }
}

fn derive(file: &ast::File, id: FileId) -> Vec<ProbeHandler> {
    let mut out = Vec::new();
    for item in &file.items {
        let ast::Item::Probe(p) = item else { continue };
        let body = Arc::new(p.body.clone());
        for point in &p.points {
            let (event, ctx) = event(point);
            let text: Vec<&str> = point.components.iter().map(|c| &*c.name).collect();
            out.push(ProbeHandler {
                event,
                point: text.join(".").into(),
                name: text.join(".").into(),
                pattern: text.join(".").into(),
                conditions: point
                    .condition
                    .iter()
                    .map(|c| (Arc::new((**c).clone()), id))
                    .collect(),
                parts: vec![HandlerPart {
                    body: body.clone(),
                    file: id,
                }],
                ctx,
                span: p.span,
                points: 1,
            });
        }
    }
    out
}

fn event(p: &ast::ProbePoint) -> (Event, HandlerContext) {
    let target = |name: &str, source, ty| TargetVar {
        name: name.into(),
        source,
        ty,
        kind: spile_sema::facts::VarKind::Parameter,
    };
    let order = match p.components[0].arg {
        Some(Literal::Num(n)) => n,
        _ => 0,
    };
    let names: Vec<&str> = p.components.iter().map(|c| &*c.name).collect();
    match names.as_slice() {
        ["begin"] => (
            Event::Begin(order),
            HandlerContext::empty(HandlerKind::Controller),
        ),
        ["end"] => (
            Event::End(order),
            HandlerContext::empty(HandlerKind::Controller),
        ),
        ["never"] => (Event::Never, HandlerContext::empty(HandlerKind::Controller)),
        ["timer", ..] => (
            Event::Timer {
                period_ns: 1_000_000_000,
                randomize_ns: 0,
            },
            HandlerContext::empty(HandlerKind::Controller),
        ),
        ["kernel", ..] => {
            let mut c = HandlerContext::empty(HandlerKind::Tracepoint);
            c.name = Some("sched_switch".into());
            c.targets = vec![
                target("prev", TargetSource::CtxArg(1), CTy::id(TASK_PTR)),
                target("state", TargetSource::CtxArg(3), CTy::id(STATE)),
                target("prio", TargetSource::CtxArg(4), CTy::id(INT)),
            ];
            (Event::Tracepoint("sched_switch".into()), c)
        }
        ["netfilter", ..] => {
            let mut c = HandlerContext::empty(HandlerKind::Tracepoint);
            c.targets = vec![target("verdict", TargetSource::Verdict, CTy::int(4, true))];
            let (pf, hook, priority) = (2, 1, 0);
            (
                Event::Netfilter(spile_ir::Netfilter { pf, hook, priority }),
                c,
            )
        }
        ["syscall", .., "return"] => {
            let mut c = HandlerContext::empty(HandlerKind::SysExit);
            c.targets = vec![
                target("fd", TargetSource::SysArg(0), CTy::int(4, true)),
                target("return", TargetSource::SysRet, CTy::int(8, true)),
            ];
            (Event::SysExit(NrSet::All), c)
        }
        _ => {
            let mut c = HandlerContext::empty(HandlerKind::SysEnter);
            c.targets = vec![target("fd", TargetSource::SysArg(0), CTy::int(4, true))];
            (Event::SysEnter(NrSet::All), c)
        }
    }
}

/// The ways to numbers of tasks on that machine.
const TASK_NUMBERS: &[(TaskNumber, &[u32], u8)] = &[
    (TaskNumber::Ppid, &[1272, 1260], 4),
    (TaskNumber::Pgrp, &[1928, 360, 96], 4),
    (TaskNumber::Sid, &[1928, 368, 96], 4),
    (TaskNumber::Uid, &[1800, 8], 4),
    (TaskNumber::Euid, &[1800, 24], 4),
    (TaskNumber::Gid, &[1800, 12], 4),
    (TaskNumber::Egid, &[1800, 28], 4),
    (TaskNumber::UserNsLevel, &[1800, 136, 224], 4),
    (TaskNumber::TaskSpace, &[1120, 336], 8),
];

/// A machine for the code generator.
pub(crate) fn bpf_options() -> BpfOptions {
    BpfOptions {
        host: spile_ir::HostKind::Kernel,
        cpus: 4,
        ring_bytes: 1 << 20,
        timing: false,
        share: None,
        abi: &spile_abi::X86_64,
        resident: false,
        offsets: KernelOffsets {
            task_numbers: Vec::new(),
            task_pid: Some(1256),
            task_tgid: Some(1260),
            task_utask: Some(2496),
            task_perf_events: Some(2400),
            task_comm: Some(1832),
            task_mm: Some(1120),
            mm_arg_start: Some(320),
            mm_arg_end: Some(328),
            numbers: TASK_NUMBERS
                .iter()
                .map(|(which, steps, bytes)| {
                    let (steps, bytes) = (steps.to_vec(), *bytes);
                    (*which, NumberPath { steps, bytes })
                })
                .collect(),
            task_ti_status: Some(16),
            pages: None,
            uprobe: Some(spile_bpf::target::UprobeOffsets {
                task_utask: 2496,
                utask_vaddr: 104,
                hit_location: 0,
                location_argument: 264,
                argument_value: 8,
            }),
            unwind: Some(spile_bpf::target::UnwindOffsets {
                mapping: spile_bpf::target::MappingOffsets {
                    task_mm: 8,
                    mm_root: 24,
                    vma_start: 40,
                    vma_end: 48,
                },
                task_tgid: 16,
                mm_vdso: 32,
                vma_pgoff: 56,
                vma_file: 64,
                vma_flags: 68,
                file_inode: 72,
                file_dentry: 80,
                inode_ino: 88,
                inode_sb: 96,
                sb_dev: 104,
                dentry_parent: 112,
                dentry_name: 120,
                returns: None,
            }),
            task_start: None,
            task_exec_id: None,
        },
        features: Features::SINCE_6_9,
        lines: false,
        syscalls: &[],
        functions: Default::default(),
    }
}
