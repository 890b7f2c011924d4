//! Deduplication: one program for several tracepoints, or perf events, whose handlers
//! compiled to the same code. The kernel then checks, compiles and frees the program once, which
//! takes it half a millisecond per program, and up to 20 for those that unwind stacks.
//!
//! A processor runs a program only once at a time, whichever of its tracepoints is hit; a hit in
//! the meantime is turned away. Tracepoints therefore share a program only if none of them can be
//! hit while handlers of the others run, including handlers that find nothing to do. This holds for
//! interrupts, during which no other interrupt runs; soft interrupts, system calls and everything
//! else can be interrupted. It also holds for handlers that do nothing, which have nothing to lose.
//! Perf events lose nothing either: while a program of one runs on a processor, the kernel turns
//! away the hits of all others there.

use spile_abi::Abi;
use spile_ir::{HandlerId, Inst, Program, Term};
use spile_layout::takes_kernel_stack;

use super::Group;
use super::attachment::Attach;

/// Whether a raw tracepoint is hit only in interrupts, with interrupts off.
fn of_interrupts(abi: &Abi, name: &str) -> bool {
    let interrupt = name.strip_suffix("_entry");
    let interrupt = interrupt.or_else(|| name.strip_suffix("_exit"));
    interrupt.is_some_and(|interrupt| abi.kernel.interrupts.contains(&interrupt))
}

/// Merges groups with the same code into the first one. Callers skip this for per-handler times,
/// and for objects in files, where a section names one tracepoint.
pub(super) fn merge_identical(groups: &mut Vec<Group>, program: &Program, abi: &Abi) {
    let mut merged: Vec<Group> = Vec::with_capacity(groups.len());
    let mut idle_at = None;
    for group in std::mem::take(groups) {
        let Group { attach, handlers } = group;
        let idle = handlers.iter().all(|id| does_nothing(program, *id));
        let idle = idle && matches!(attach, Attach::RawTracepoint(_));
        let index = match idle {
            true => idle_at,
            false => merged.iter().position(|g| {
                can_share_program(&g.attach, &attach, abi)
                    && have_same_bodies(program, &g.handlers, &handlers, &attach)
            }),
        };
        match (index.map(|index| &mut merged[index].attach), attach) {
            (Some(Attach::RawTracepoint(names)), Attach::RawTracepoint(more)) => names.extend(more),
            (Some(Attach::Perf { events, .. }), Attach::Perf { events: more, .. }) => {
                events.extend(more);
            }
            (_, attach) => {
                if idle {
                    idle_at = Some(merged.len());
                }
                merged.push(Group { attach, handlers });
            }
        }
    }
    *groups = merged;
}

/// Whether one program may serve both attachments.
fn can_share_program(a: &Attach, b: &Attach, abi: &Abi) -> bool {
    let first = |names: &[String]| names.first().is_some_and(|name| of_interrupts(abi, name));
    match (a, b) {
        (Attach::RawTracepoint(a), Attach::RawTracepoint(b)) => first(a) && first(b),
        (Attach::Perf { scope: a, .. }, Attach::Perf { scope: b, .. }) => a == b,
        _ => false,
    }
}

/// Whether a handler does nothing: it has no code, and none of its hits is turned away.
pub(crate) fn does_nothing(program: &Program, id: HandlerId) -> bool {
    let ticks = |insts: &[(Inst, _)]| {
        let n = |(i, _): &(Inst, _)| match i {
            Inst::Tick { n } => Some(u64::from(*n)),
            _ => None,
        };
        insts.iter().map(n).sum::<Option<u64>>()
    };
    match &program.handlers[id.index()].body.blocks[..] {
        [one] => {
            let few = ticks(&one.insts).is_some_and(|n| n <= program.limits.maxaction);
            few && matches!(one.term, Term::Ret(_))
        }
        _ => false,
    }
}

/// Whether the handlers have the same bodies, in order. At tracepoints, code that takes the kernel's
/// stack depends on the tracepoint.
fn have_same_bodies(program: &Program, a: &[HandlerId], b: &[HandlerId], attach: &Attach) -> bool {
    let perf = matches!(attach, Attach::Perf { .. });
    let body = |id: &HandlerId| &program.handlers[id.index()].body;
    let stack = |id: &HandlerId| {
        let mut insts = body(id).insts();
        insts.any(takes_kernel_stack)
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| body(a) == body(b) && (perf || !stack(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_exits_of_interrupts_are_points_of_interrupts() {
        for name in ["local_timer_entry", "reschedule_exit", "irq_handler_entry"] {
            assert!(of_interrupts(&spile_abi::X86_64, name), "{name}");
        }
        for name in [
            "softirq_entry",
            "softirq_exit",
            "irq_handler",
            "vector_alloc",
            "sys_exit",
        ] {
            assert!(!of_interrupts(&spile_abi::X86_64, name), "{name}");
        }
    }
}
