//! How handlers are attached: decided once, before code is generated.
//!
//! ```text
//! program ─► fexit_fusion ─► groups: an attachment and its handlers, in the order of handlers
//!                              │ attachment: what an event is attached to
//!                              │ kind: for locations in code, the best kind of program
//!                              ├─► merge_into_sessions: a function and its return are one program
//!                              └─► dedup: tracepoints with the same handlers are one program
//! ```
//!
//! In: the program, and the features of the kernel ([`Target`]). Out: the [`AttachPlan`], in which
//! each kernel handler with an effect is in one group, and the program as `fexit_fusion` changed
//! it. Not done here: attaching (the loader), and the code of programs.

use spile_cast::Cast;
use spile_ir::{CodeProbe, Event, HandlerId, Program, SamplingRate, Space};

use crate::attach::attachment::{Attach, CodeAttach};
use crate::target::{SessionKfuncs, Target};

pub(crate) mod attachment;
pub(crate) mod dedup;
pub(crate) mod fexit_fusion;
pub(crate) mod kind;

/// The handlers of one BPF program, and how it is attached.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The attachment.
    pub attach: Attach,
    /// The handlers, in the order in which they run.
    pub handlers: Vec<HandlerId>,
}

/// The BPF programs that the handlers become.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttachPlan {
    /// The groups, in the order of the programs in the object.
    pub(crate) groups: Vec<Group>,
    /// For each handler, whether it runs on a trampoline, which provides no registers.
    on_trampoline: Vec<bool>,
    /// Numbers of the trace events for system-call entries and exits, if they are used instead of
    /// the raw tracepoints.
    pub(crate) syscall_events: Option<[u64; 2]>,
}

impl AttachPlan {
    /// Groups the handlers of a program, except for the `idle` ones that `fexit_fusion` made
    /// unnecessary.
    pub(crate) fn new(program: &Program, options: &Target, idle: &[HandlerId]) -> AttachPlan {
        let syscall_events = syscall_events(program, options);
        let mut groups = groups(program, options, syscall_events, idle);
        merge_into_sessions(&mut groups, program, options);
        let mut on_trampoline = vec![false; program.handlers.len()];
        let fast = |g: &&Group| matches!(g.attach.code(), Some((_, CodeAttach::Trampoline(_))));
        for id in groups.iter().filter(fast).flat_map(|g| &g.handlers) {
            on_trampoline[id.index()] = true;
        }
        // Not with per-handler times, nor in an object for a file, where a section names one
        // tracepoint.
        if !options.timing && !options.lines {
            dedup::merge_identical(&mut groups, program, options.abi);
        }
        AttachPlan {
            groups,
            on_trampoline,
            syscall_events,
        }
    }

    /// Whether a handler runs on a trampoline.
    pub(crate) fn on_trampoline(&self, id: HandlerId) -> bool {
        self.on_trampoline[id.index()]
    }
}

/// One group for each attachment, in the order of its first handler.
fn groups(
    program: &Program,
    options: &Target,
    syscall_events: Option<[u64; 2]>,
    idle: &[HandlerId],
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (i, handler) in program.handlers.iter().enumerate() {
        let id = HandlerId(i.fit());
        if idle.contains(&id) {
            continue;
        }
        let Some(attach) = Attach::of(handler, options, syscall_events) else {
            continue;
        };
        match groups.iter_mut().find(|g| g.attach.same_location(&attach)) {
            Some(group) => {
                group.attach.no_more_lenient_than(&attach);
                group.handlers.push(id);
            }
            None => groups.push(Group {
                attach,
                handlers: vec![id],
            }),
        }
    }
    groups
}

/// Merges programs at functions with those at their returns if both are attached in one step.
fn merge_into_sessions(groups: &mut Vec<Group>, program: &Program, options: &Target) {
    let Some(session) = options.features.kprobe_session else {
        return;
    };
    let at_once = |attach: &Attach, ret: bool| {
        let kernel = |p: &CodeProbe| p.space == Space::Kernel && p.ret == ret;
        matches!(attach.code(), Some((probe, CodeAttach::Multi)) if kernel(probe))
    };
    for index in 0..groups.len() {
        let at_return = Some(&groups[index].attach).filter(|attach| at_once(attach, true));
        let Some((probe, _)) = at_return.and_then(Attach::code) else {
            continue;
        };
        let entry = Attach::Code {
            probe: CodeProbe {
                ret: false,
                ..probe.clone()
            },
            by: CodeAttach::Multi,
        };
        let Some(other) = groups.iter().position(|g| g.attach.same_location(&entry)) else {
            continue;
        };
        let (joins, stays): (Vec<_>, Vec<_>) = std::mem::take(&mut groups[other].handlers)
            .into_iter()
            .partition(|id| can_join_session(program, *id, session));
        groups[other].handlers = stays;
        if !joins.is_empty() {
            let group = &mut groups[index];
            group.handlers.splice(0..0, joins);
            if let Attach::Code { by, .. } = &mut group.attach {
                *by = CodeAttach::Session;
            }
        }
    }
    groups.retain(|g| !g.handlers.is_empty() || !at_once(&g.attach, false));
}

/// Whether an entry handler loses no hit in a session. The entry half of a return handler never
/// does.
fn can_join_session(program: &Program, id: HandlerId, session: SessionKfuncs) -> bool {
    session.all_entries || program.handlers[id.index()].point.starts_with('@')
}

/// The trace events of system calls, if they are better than the raw tracepoints. While a program
/// of a trace event runs, the kernel drops samples of perf events on that processor without
/// counting them. The raw tracepoints are used if the script counts such events.
fn syscall_events(program: &Program, options: &Target) -> Option<[u64; 2]> {
    let any = program.handlers.iter().any(|h| interrupts(&h.event));
    options.features.syscall_events.filter(|_| !any)
}

/// Whether this perf event can arrive while a handler runs with preemption off, and counts: clock,
/// hardware and watchpoint events can. The kernel's own software events, such as page faults and
/// context switches, cannot happen to a thread at that time. Samples at a frequency only estimate,
/// and those that would hit a handler say nothing about programs.
fn interrupts(event: &Event) -> bool {
    // PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK of PERF_TYPE_SOFTWARE.
    match event {
        Event::Perf {
            sample: SamplingRate::Freq(_),
            ..
        } => false,
        Event::Perf { ty: 1, config, .. } => matches!(config, 0 | 1),
        Event::Perf { .. } | Event::Watch(_) => true,
        _ => false,
    }
}
