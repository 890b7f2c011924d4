//! One program for several tracepoints, or events of page faults: where all that is done at them came out the same, the kernel
//! checks, compiles and frees it once, which takes it half a millisecond a program.
//!
//! A processor runs a program once at a time, whichever of its tracepoints is hit; a hit meanwhile is turned
//! away. So only tracepoints share of which none can be hit while handlers of the others run, not even
//! those that find that they have nothing to do: those of interrupts, during which there are no others. Soft
//! interrupts, system calls and all else are interrupted by them. So do the ends of page faults. And those where nothing is done at all, where
//! nothing can be lost.

use spile_ir::{HandlerId, Inst, Program, Term};

use super::Group;
use crate::layout::Attach;
use crate::plan::takes_kernel_stack;

/// What is hit in interrupts of the processor alone, where interrupts are off, without `_entry` and
/// `_exit`: the system `irq_vectors` of x86 (arch/x86/include/asm/trace/irq_vectors.h; its other
/// events, of how vectors are given out, come at any time), and handlers of devices' interrupts.
const INTERRUPTS: [&str; 12] = [
    "call_function",
    "call_function_single",
    "deferred_error_apic",
    "error_apic",
    "irq_handler",
    "irq_work",
    "local_timer",
    "reschedule",
    "spurious_apic",
    "thermal_apic",
    "threshold_apic",
    "x86_platform_ipi",
];

/// `PERF_TYPE_SOFTWARE`, and of its events those of page faults that are over, of which a thread has one at
/// a time: `PERF_COUNT_SW_PAGE_FAULTS_MIN` and `_MAJ`.
const SOFTWARE: u32 = 1;
const FAULTS: [u64; 2] = [5, 6];

/// Whether a raw tracepoint is one of those.
fn of_interrupts(name: &str) -> bool {
    let what = name.strip_suffix("_entry");
    let what = what.or_else(|| name.strip_suffix("_exit"));
    what.is_some_and(|what| INTERRUPTS.contains(&what))
}

/// Has tracepoints where the same is done share a program, which is that of the first. Not wanted where
/// times are taken of each handler, nor in an object for files: there a section names one tracepoint.
pub(super) fn merge_identical(groups: &mut Vec<Group>, program: &Program) {
    let mut kept: Vec<Group> = Vec::with_capacity(groups.len());
    let mut idle_at = None;
    for group in std::mem::take(groups) {
        let Group { attach, handlers } = group;
        let idle = handlers.iter().all(|id| idle(program, *id));
        let idle = idle && matches!(attach, Attach::RawTracepoint(_));
        let at = match idle {
            true => idle_at,
            false => kept.iter().position(|g| {
                together(&g.attach, &attach) && same(program, &g.handlers, &handlers)
            }),
        };
        match (at.map(|at| &mut kept[at].attach), attach) {
            (Some(Attach::RawTracepoint(names)), Attach::RawTracepoint(more)) => names.extend(more),
            (Some(Attach::Perf { configs, .. }), Attach::Perf { configs: more, .. }) => {
                configs.extend(more);
            }
            (_, attach) => {
                if idle {
                    idle_at = Some(kept.len());
                }
                kept.push(Group { attach, handlers });
            }
        }
    }
    *groups = kept;
}

/// Whether a program may serve both.
fn together(a: &Attach, b: &Attach) -> bool {
    let first = |names: &[String]| names.first().is_some_and(|name| of_interrupts(name));
    let faults = |configs: &[u64]| configs.iter().all(|c| FAULTS.contains(c));
    match (a, b) {
        (Attach::RawTracepoint(a), Attach::RawTracepoint(b)) => first(a) && first(b),
        (
            Attach::Perf {
                ty: SOFTWARE,
                configs: a,
                sample,
                of,
            },
            Attach::Perf {
                ty: SOFTWARE,
                configs: b,
                sample: other,
                of: others,
            },
        ) => faults(a) && faults(b) && sample == other && of == others,
        _ => false,
    }
}

/// Whether a handler does nothing: it is no code, and no hit of it is turned away.
pub(crate) fn idle(program: &Program, id: HandlerId) -> bool {
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

/// Whether handlers do the same one by one. Code for the kernel's stack knows its tracepoint.
fn same(program: &Program, a: &[HandlerId], b: &[HandlerId]) -> bool {
    let body = |id: &HandlerId| &program.handlers[id.index()].body;
    let stack = |id: &HandlerId| {
        let mut insts = body(id).insts();
        insts.any(takes_kernel_stack)
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| body(a) == body(b) && !stack(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_interrupts() {
        for name in ["local_timer_entry", "reschedule_exit", "irq_handler_entry"] {
            assert!(of_interrupts(name), "{name}");
        }
        for name in [
            "softirq_entry",
            "softirq_exit",
            "irq_handler",
            "vector_alloc",
            "sys_exit",
        ] {
            assert!(!of_interrupts(name), "{name}");
        }
    }
}
