//! What a program is attached to: for each kind, the events that have it, and the kernel's type of the program. The
//! loader has the system calls.
//!
//! A location where the kernel calls a program that one system call attaches is a [`Hook`], which is data only.

use std::fmt;

use spile_ir::{
    CodeLocation, CodeProbe, Event, Handler, Netfilter, PerfScope, SamplingRate, Space, TraceEvent,
    Watch,
};

use crate::attach::kind;
use crate::target::{Target, TypedFunction};

/// The event that a program is attached to.
#[derive(Debug, Clone, PartialEq)]
pub enum Attach {
    /// Raw tracepoints: usually one, or several with the same handlers' code. The program's
    /// handlers are those of the first tracepoint, and count the hits of all. A process as host has `sys_enter`,
    /// `sys_exit`, and the names of [`spile_ir::TaskEvent`].
    RawTracepoint(Vec<String>),
    /// A trace event.
    TraceEvent(TraceEvent),
    /// Perf events: one, or several that hit the same program.
    Perf {
        /// The events.
        events: Vec<SampledEvent>,
        /// The tasks whose events count.
        scope: PerfScope,
    },
    /// A hook of the kernel.
    Hook(Hook),
    /// Every task switch. First the perf events of these types and configs are stored in the maps
    /// of their numbers (see [`crate::compiled::counter_map`]), with an entry for each CPU.
    Switch(Vec<(u32, u64)>),
    /// Locations in code. The attach cookie of each location is its number.
    Code {
        /// The locations.
        probe: CodeProbe,
        /// The attach kind.
        by: CodeAttach,
    },
    /// Accesses to memory.
    Watch(Watch),
    /// No event: the controller runs the program.
    OnDemand,
}

/// A perf event of which some occurrences are hits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledEvent {
    /// `perf_event_attr.type`
    pub ty: u32,
    /// `perf_event_attr.config`
    pub config: u64,
    /// The sampling period or frequency.
    pub sample: SamplingRate,
}

/// A location where the kernel calls programs, and acts on their results.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The type of its programs.
    pub program: ProgramType,
    /// The result with which the kernel goes on as if there were no program.
    pub go_on: i32,
    /// The words of `bpf_attr.link_create` after the flags; `None` if the program itself names the function that it is
    /// attached to.
    pub link: Option<Vec<u32>>,
    /// What an error of attaching says after the point.
    pub detail: String,
    /// What a kernel without support for the hook lacks.
    pub support: HookSupport,
}

/// What a hook needs of the kernel. Its text is the error of a kernel that lacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookSupport {
    /// The verb and the object of what its programs do.
    pub see: &'static str,
    /// The version and configuration of a kernel with support.
    pub needs: &'static str,
    /// Probe points that other kernels have as well.
    pub instead: &'static str,
    /// The security module that calls the programs, if one does. A kernel can be started without it, and then
    /// refuses the programs late or not at all.
    pub module: Option<&'static str>,
}

impl fmt::Display for HookSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HookSupport {
            see,
            needs,
            instead,
            ..
        } = self;
        write!(
            f,
            "this kernel does not let programs {see}: {needs}; {instead} are an alternative"
        )
    }
}

/// The attach kind of probes in code, which determines the program type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeAttach {
    /// One link for all locations of a file (uprobe.multi), or of the kernel (kprobe.multi).
    Multi,
    /// One link for functions of the kernel and their returns (kprobe.session).
    Session,
    /// A perf event for each location.
    Single,
    /// One location by fentry or fexit, the kinds with the smallest cost of a hit. Such programs see
    /// arguments and the result, but no registers.
    Trampoline(TypedFunction),
}

/// A kind of program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramType {
    /// Value of `enum bpf_prog_type`.
    pub ty: u32,
    /// Expected value of `enum bpf_attach_type`; 0 for none.
    pub attach_type: u32,
    /// The function of the kernel that the program is for.
    pub function: TargetFunction,
    /// The part of the program's name that identifies the attachment.
    pub name: String,
    /// Section name in the file, from which loaders of files derive the same types.
    pub section: String,
}

/// The function of the kernel that a program is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetFunction {
    /// None.
    None,
    /// By its number in the kernel's BTF.
    Id(u32),
    /// By its name.
    Name(String),
}

/// A value of `enum bpf_prog_type`, and one of `enum bpf_attach_type` or 0.
type Numbers = [u32; 2];
const KPROBE: Numbers = [2, 0];
const TRACEPOINT: Numbers = [5, 0];
const PERF_EVENT: Numbers = [7, 0];
const RAW_TRACEPOINT: Numbers = [17, 0];
const FENTRY: Numbers = [26, 24];
const FEXIT: Numbers = [26, 25];
const LSM_MAC: Numbers = [29, 27];
const KPROBE_MULTI: Numbers = [2, 42];
const NETFILTER: Numbers = [32, 45];
const UPROBE_MULTI: Numbers = [2, 48];
const KPROBE_SESSION: Numbers = [2, 56];

/// The subsystem of the trace events that all system calls pass.
pub(crate) const RAW_SYSCALLS: &str = "raw_syscalls";

impl Hook {
    /// The hook of an event; `None` if it has none.
    pub fn of(event: &Event) -> Option<Hook> {
        match event {
            Event::Netfilter(Netfilter { pf, hook, priority }) => Some(Hook {
                program: ProgramType::new(NETFILTER, "netfilter", "netfilter"),
                // NF_ACCEPT
                go_on: 1,
                link: Some(vec![*pf, *hook, priority.cast_unsigned()]),
                detail: format!(", priority {priority}"),
                support: HookSupport {
                    see: "see packets at the hooks of netfilter",
                    needs: "that needs Linux 6.4, built with CONFIG_NETFILTER_BPF_LINK",
                    instead: "tracepoints as kernel.trace(\"net:netif_receive_skb\")",
                    module: None,
                },
            }),
            Event::Lsm(name) => Some(Hook {
                program: ProgramType {
                    function: TargetFunction::Name(format!("bpf_lsm_{name}")),
                    ..ProgramType::new(LSM_MAC, "lsm", &format!("lsm/{name}"))
                },
                go_on: 0,
                link: None,
                detail: String::new(),
                support: HookSupport {
                    see: "see the decisions of security modules",
                    needs: "it has to be built with CONFIG_BPF_LSM and started with `bpf` in its list (the \
                            option lsm=..., see /sys/kernel/security/lsm)",
                    instead: "functions as kernel.function(\"security_file_open\")",
                    module: Some("bpf"),
                },
            }),
            _ => None,
        }
    }
}

impl ProgramType {
    fn new([ty, attach_type]: Numbers, name: &str, section: &str) -> ProgramType {
        ProgramType {
            ty,
            attach_type,
            function: TargetFunction::None,
            name: name.into(),
            section: section.into(),
        }
    }
}

impl Attach {
    /// The attachment of a handler; `None` in the controller.
    pub(crate) fn of(
        handler: &Handler,
        options: &Target,
        syscall_events: Option<[u64; 2]>,
    ) -> Option<Attach> {
        let syscalls = |name: &str, exit| match syscall_events {
            Some(ids) => Attach::TraceEvent(TraceEvent {
                system: RAW_SYSCALLS.into(),
                name: name.into(),
                id: ids[usize::from(exit)],
            }),
            None => Attach::RawTracepoint(vec![name.into()]),
        };
        Some(match &handler.event {
            Event::Tracepoint(name) => Attach::RawTracepoint(vec![name.to_string()]),
            Event::TraceEvent(event) => Attach::TraceEvent(event.clone()),
            Event::SysEnter(_) => syscalls("sys_enter", false),
            Event::SysExit(_) => syscalls("sys_exit", true),
            Event::Task(step) => Attach::RawTracepoint(vec![step.name().into()]),
            Event::Perf {
                ty,
                config,
                sample,
                scope,
            } => Attach::Perf {
                events: vec![SampledEvent {
                    ty: *ty,
                    config: *config,
                    sample: *sample,
                }],
                scope: *scope,
            },
            Event::Watch(watch) => Attach::Watch(watch.clone()),
            Event::Code(probe) => Attach::Code {
                by: kind::choose(probe, &handler.body, options),
                probe: probe.clone(),
            },
            event => Attach::Hook(Hook::of(event)?),
        })
    }

    /// The program type for this attachment.
    pub fn program_type(&self) -> ProgramType {
        match self {
            Attach::RawTracepoint(points) => {
                let first = points.first().map_or("", |p| p);
                let name = first.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
                ProgramType::new(RAW_TRACEPOINT, &name, &format!("raw_tp/{first}"))
            }
            Attach::OnDemand => ProgramType::new(RAW_TRACEPOINT, "demand", "raw_tp"),
            Attach::Switch(_) => ProgramType::new(RAW_TRACEPOINT, "switch", "raw_tp/sched_switch"),
            Attach::TraceEvent(TraceEvent { system, name, .. }) => {
                ProgramType::new(TRACEPOINT, name, &format!("tp/{system}/{name}"))
            }
            Attach::Perf { .. } => ProgramType::new(PERF_EVENT, "perf", "perf_event"),
            Attach::Watch(_) => ProgramType::new(PERF_EVENT, "watch", "perf_event"),
            Attach::Hook(hook) => hook.program.clone(),
            Attach::Code { probe, by } => code_type(probe, *by),
        }
    }

    /// The locations in code and their attach kind, if it is at such.
    pub fn code(&self) -> Option<(&CodeProbe, CodeAttach)> {
        match self {
            Attach::Code { probe, by } => Some((probe, *by)),
            _ => None,
        }
    }

    /// Whether one program serves both attachments; locations that are optional for one may be
    /// required for the other.
    pub(crate) fn same_location(&self, other: &Attach) -> bool {
        match (self.code(), other.code()) {
            (Some((a, by)), Some((b, other))) => {
                let target = |p: &CodeProbe| (p.space, p.ret, p.pid, p.tree);
                by == other && target(a) == target(b) && a.sites == b.sites
            }
            _ => self == other,
        }
    }

    /// Keeps a location optional only if it is optional for both.
    pub(crate) fn no_more_lenient_than(&mut self, other: &Attach) {
        if let (Attach::Code { probe, .. }, Attach::Code { probe: other, .. }) = (self, other) {
            probe.optional_sites = probe.optional_sites.min(other.optional_sites);
        }
    }
}

/// The program type for locations in code.
fn code_type(probe: &CodeProbe, by: CodeAttach) -> ProgramType {
    let name = match (probe.space, probe.ret) {
        (Space::Kernel, false) => "function",
        (Space::Kernel, true) => "return",
        (Space::User, false) => "ufunction",
        (Space::User, true) => "ureturn",
    };
    let function = match probe.sites.first().map(|s| &s.location) {
        Some(CodeLocation::Symbol { name, .. }) => name,
        _ => "",
    };
    let (numbers, section) = match by {
        CodeAttach::Trampoline(typed) => {
            let (numbers, kind) = [(FENTRY, "fentry"), (FEXIT, "fexit")][usize::from(probe.ret)];
            return ProgramType {
                function: TargetFunction::Id(typed.id),
                ..ProgramType::new(numbers, name, &format!("{kind}/{function}"))
            };
        }
        CodeAttach::Multi if probe.space == Space::User => (UPROBE_MULTI, "uprobe.multi"),
        CodeAttach::Multi => (KPROBE_MULTI, "kprobe.multi"),
        CodeAttach::Session => (KPROBE_SESSION, "kprobe.session"),
        CodeAttach::Single => (KPROBE, "kprobe"),
    };
    ProgramType::new(numbers, name, section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_says_what_a_kernel_without_it_lacks() {
        let netfilter = Netfilter {
            pf: 2,
            hook: 0,
            priority: 0,
        };
        let text = |event| Hook::of(&event).expect("a hook").support.to_string();
        assert_eq!(
            text(Event::Netfilter(netfilter)),
            "this kernel does not let programs see packets at the hooks of netfilter: that needs Linux 6.4, built \
             with CONFIG_NETFILTER_BPF_LINK; tracepoints as kernel.trace(\"net:netif_receive_skb\") are an alternative"
        );
        assert_eq!(
            text(Event::Lsm("file_open".into())),
            "this kernel does not let programs see the decisions of security modules: it has to be built with \
             CONFIG_BPF_LSM and started with `bpf` in its list (the option lsm=..., see /sys/kernel/security/lsm); \
             functions as kernel.function(\"security_file_open\") are an alternative"
        );
    }
}
