//! The program type of each attach kind: the kernel's numbers, and the section name from which
//! loaders of files derive the same.

use spile_ir::{CodeLocation, Space};

use crate::compiled::{Attach, CodeAttach};

/// A kind of program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramType {
    /// Value of `enum bpf_prog_type`.
    pub ty: u32,
    /// Expected value of `enum bpf_attach_type`; 0 for none.
    pub attach_type: u32,
    /// Section name in the file.
    pub section: String,
}

/// Values of `enum bpf_prog_type`.
mod ty {
    pub(super) const KPROBE: u32 = 2;
    pub(super) const TRACEPOINT: u32 = 5;
    pub(super) const PERF_EVENT: u32 = 7;
    pub(super) const RAW_TRACEPOINT: u32 = 17;
    pub(super) const TRACING: u32 = 26;
    pub(super) const LSM: u32 = 29;
    pub(super) const NETFILTER: u32 = 32;
}

/// Values of `enum bpf_attach_type`.
mod attach {
    pub(super) const TRACE_FENTRY: u32 = 24;
    pub(super) const TRACE_FEXIT: u32 = 25;
    pub(super) const LSM_MAC: u32 = 27;
    pub(super) const TRACE_KPROBE_MULTI: u32 = 42;
    pub(super) const NETFILTER: u32 = 45;
    pub(super) const TRACE_UPROBE_MULTI: u32 = 48;
    pub(super) const TRACE_KPROBE_SESSION: u32 = 56;
}

impl Attach {
    /// The program type for this attachment.
    pub fn program_type(&self) -> ProgramType {
        let (ty, attach_type, section) = match self {
            Attach::RawTracepoint(points) => {
                let first = points.first().map_or("", |p| p);
                (ty::RAW_TRACEPOINT, 0, format!("raw_tp/{first}"))
            }
            Attach::OnDemand => (ty::RAW_TRACEPOINT, 0, "raw_tp".into()),
            Attach::Switch(_) => (ty::RAW_TRACEPOINT, 0, "raw_tp/sched_switch".into()),
            Attach::TraceEvent(event) => {
                let section = format!("tp/{}/{}", event.system, event.name);
                (ty::TRACEPOINT, 0, section)
            }
            Attach::Perf { .. } | Attach::Watch(_) => (ty::PERF_EVENT, 0, "perf_event".into()),
            Attach::Netfilter(_) => (ty::NETFILTER, attach::NETFILTER, "netfilter".into()),
            Attach::Lsm(hook) => (ty::LSM, attach::LSM_MAC, format!("lsm/{hook}")),
            Attach::Code { probe, by } => {
                let name = match probe.sites.first().map(|s| &s.location) {
                    Some(CodeLocation::Symbol { name, .. }) => name,
                    _ => "",
                };
                match (by, probe.space) {
                    (CodeAttach::Trampoline(_), _) if probe.ret => {
                        (ty::TRACING, attach::TRACE_FEXIT, format!("fexit/{name}"))
                    }
                    (CodeAttach::Trampoline(_), _) => {
                        (ty::TRACING, attach::TRACE_FENTRY, format!("fentry/{name}"))
                    }
                    (CodeAttach::Multi, Space::User) => (
                        ty::KPROBE,
                        attach::TRACE_UPROBE_MULTI,
                        "uprobe.multi".into(),
                    ),
                    (CodeAttach::Multi, Space::Kernel) => (
                        ty::KPROBE,
                        attach::TRACE_KPROBE_MULTI,
                        "kprobe.multi".into(),
                    ),
                    (CodeAttach::Session, _) => (
                        ty::KPROBE,
                        attach::TRACE_KPROBE_SESSION,
                        "kprobe.session".into(),
                    ),
                    (CodeAttach::Single, _) => (ty::KPROBE, 0, "kprobe".into()),
                }
            }
        };
        ProgramType {
            ty,
            attach_type,
            section,
        }
    }
}
