//! A fake machine, and scripts resolved up to their probes.

// Each test file uses only a part of it.
#![allow(dead_code)]

use std::fmt::Write;

use spile_ir::{Event, NrSet};
use spile_sema::library::Library;
use spile_sema::missing::Missing;
use spile_sema::probe::{ProbeHandler, resolve_script};
use spile_syntax::ast::FileId;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{parse_file, parse_probe_points};
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

pub(crate) use spile_machine::*;

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

/// Names of SystemTap's library that it lacks.
static MISSING: Missing = Missing::new(
    "\
# A comment.
scheduler.cpu_off\ttask_next idle\tthe kernel does not say
syscall.read\tbuf_text\tthere is `argstr`
syscall.read.return\tbuf_text\tthere is `argstr`
",
);

/// A script with its probes resolved.
pub(crate) struct Script {
    pub lib: Library,
    pub sources: Sources,
    pub diags: Diagnostics,
    pub derived: Vec<ProbeHandler>,
    pub user: FileId,
    pub tapset: FileId,
}

pub(crate) fn resolve(text: &str) -> Script {
    resolve_on(&FakeMachine::new(), text)
}

/// Resolves the probes of a script on a machine.
pub(crate) fn resolve_on(facts: &FakeMachine, text: &str) -> Script {
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let macros = MacroLibrary::new();
    let mut lib = Library::new();
    lib.set_missing(&MISSING);
    let user = sources.add("script.stp", text.as_bytes().to_vec());
    let file = parse_file(&mut sources, user, &env, &macros, &mut diags);
    lib.add(user, file, true);
    let tapset = sources.add_built_in("tapset.stp", TAPSET.as_bytes().to_vec());
    let file = parse_file(&mut sources, tapset, &env, &macros, &mut diags);
    lib.add(tapset, file, false);
    assert!(diags.is_empty(), "{}", diags.render(&sources, false));
    let derived = resolve_script(&lib, facts, &mut diags);
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
    /// All diagnostics, rendered.
    pub(crate) fn errors(&self) -> String {
        self.diags.render(&self.sources, false)
    }

    /// The probe points of some text.
    pub(crate) fn points(&mut self, text: &str) -> Vec<spile_syntax::ast::ProbePoint> {
        parse_probe_points(&mut self.sources, "-l", text, &mut self.diags)
    }

    /// The handlers, one to a few lines each.
    pub(crate) fn text(&self) -> String {
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
                let ty = t.ty.spell(&FakeMachine::new());
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
