//! `--check`: the probe points and features that work on this machine, and why others do not. Each
//! answer is found by trying, not by versions; the kernel's configuration only gives the reason.

use std::fmt::Write as _;

use spile_kernel::bpf::prog_type;
use spile_kernel::features::{self, Availability, Feature};
use spile_kernel::machine;
use spile_kernel::symbols::Symbols;
use spile_kernel::tracepoints::Tracefs;

/// The machine to check.
pub(crate) trait CheckedMachine {
    /// Kernel and processor.
    fn name(&self) -> String;
    /// Whether a feature is available.
    fn has(&self, requirement: Requirement) -> Availability;
    /// Whether a configuration option of the kernel is set; `None` where the configuration is
    /// unknown.
    fn option(&self, name: &str) -> Option<bool>;
}

/// The requirement of a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Only spile itself.
    Nothing,
    /// A feature of the kernel.
    Feature(Feature),
    /// Tracepoint names: tracefs.
    Tracefs,
    /// The kernel's symbols, with their addresses.
    Symbols,
    /// The kernel's configuration.
    Config,
}

/// A row: its subject, its requirement, and what it needs of the kernel: options, and a release that is
/// later than the oldest supported one.
struct CheckRow {
    subject: &'static str,
    requirement: Requirement,
    needs: &'static [&'static str],
}

const fn row(
    subject: &'static str,
    requirement: Requirement,
    needs: &'static [&'static str],
) -> CheckRow {
    CheckRow {
        subject,
        requirement,
        needs,
    }
}

const fn feature(feature: Feature) -> Requirement {
    Requirement::Feature(feature)
}

impl CheckRow {
    /// Whether it also needs BPF programs: features of the kernel do, apart from those that BPF programs need.
    fn needs_bpf(&self) -> bool {
        let basic = [feature(Feature::Bpf), feature(Feature::Btf)];
        matches!(self.requirement, Requirement::Feature(_)) && !basic.contains(&self.requirement)
    }
}

/// The parts of the table.
#[rustfmt::skip]
const TABLE: [(&str, &[CheckRow]); 3] = [
    (
        "Requirements of all probes in the kernel",
        &[
            row(
                "BPF programs, and the privilege to load them",
                feature(Feature::Bpf),
                &["CONFIG_BPF_SYSCALL", "CONFIG_BPF_EVENTS"],
            ),
            row("the kernel's types (BTF)", feature(Feature::Btf), &["CONFIG_DEBUG_INFO_BTF"]),
        ],
    ),
    (
        "Probe points",
        &[
            row("begin, end, timer.s and .ms, procfs, input, prometheus", Requirement::Nothing, &[]),
            row(
                "syscall.*, kernel.trace, scheduler.*, process.begin",
                feature(Feature::ProgType(prog_type::RAW_TRACEPOINT)),
                &["CONFIG_TRACEPOINTS", "CONFIG_FTRACE_SYSCALLS"],
            ),
            row("timer.profile, perf.sw.*", feature(Feature::PerfClock), &["CONFIG_PERF_EVENTS"]),
            row(
                "perf.hw.*: the processor's counters",
                feature(Feature::PerfHardware),
                &["CONFIG_PERF_EVENTS", "a processor that shows its counters"],
            ),
            row(
                "kernel.function, module().function, vfs.*, tcp.*",
                feature(Feature::Kprobes),
                &["CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS"],
            ),
            row(
                "process().function, .statement, .mark, .plt",
                feature(Feature::Uprobes),
                &["CONFIG_UPROBES", "CONFIG_UPROBE_EVENTS"],
            ),
            row(
                "kernel.data, process.data: debug registers",
                feature(Feature::Breakpoints),
                &["CONFIG_HAVE_HW_BREAKPOINT"],
            ),
            row("netfilter.*", feature(Feature::Netfilter), &["Linux 6.4", "CONFIG_NETFILTER_BPF_LINK"]),
            row(
                "lsm",
                feature(Feature::Lsm),
                &["CONFIG_BPF_LSM", "`bpf` in the option lsm=... at its start"],
            ),
        ],
    ),
    (
        "Features that make probes cheaper or give more information",
        &[
            row(
                "many functions of the kernel by one link",
                feature(Feature::KprobeMulti),
                &["CONFIG_FPROBE"],
            ),
            row(
                "one function of the kernel by fentry",
                feature(Feature::Fentry),
                &[
                    "CONFIG_FUNCTION_TRACER",
                    "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
                ],
            ),
            row(
                "many locations of a program by one link",
                feature(Feature::UprobeMulti),
                &["Linux 6.6", "CONFIG_UPROBE_EVENTS"],
            ),
            row("-t: times of probes", feature(Feature::Stats), &[]),
            row("names and arguments of tracepoints (tracefs)", Requirement::Tracefs, &["CONFIG_TRACING"]),
            row(
                "names of the kernel's addresses",
                Requirement::Symbols,
                &["CONFIG_KALLSYMS", "root, or kptr_restrict = 0"],
            ),
            row(
                "CONFIG_... in conditions of scripts",
                Requirement::Config,
                &["CONFIG_IKCONFIG_PROC, or /boot/config-RELEASE"],
            ),
        ],
    ),
];

/// Width of the first column.
const WIDTH: usize = 56;

/// The table for a machine.
pub(crate) fn table(machine: &dyn CheckedMachine) -> String {
    let mut out = format!("{}\n", machine.name());
    let base = machine.has(feature(Feature::Bpf));
    for (title, rows) in TABLE {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{title}");
        for row in rows {
            let answer = match (&base, row.needs_bpf()) {
                (Availability::Yes, _) | (_, false) => machine.has(row.requirement),
                (Availability::No, true) => Availability::No,
                (Availability::Unknown(_), true) => Availability::Unknown(String::new()),
            };
            let (word, why) = match answer {
                Availability::Yes => ("yes", String::new()),
                Availability::No if row.needs_bpf() && base.is_unavailable() => {
                    ("no", "needs BPF programs".into())
                }
                Availability::No => ("no", reason(machine, row)),
                Availability::Unknown(why) if why.is_empty() => ("?", "needs BPF programs".into()),
                // Every feature of the table is allowed to root, so this one is refused.
                Availability::Unknown(why) if row.needs_bpf() => ("no", why),
                Availability::Unknown(why) => ("?", why),
            };
            let line = format!("  {:WIDTH$} {word:4} {why}", row.subject);
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    out
}

/// Why the kernel lacks it: the options that are not set, or those that it needs.
fn reason(machine: &dyn CheckedMachine, row: &CheckRow) -> String {
    let set = |need: &str| match need.starts_with("CONFIG_") {
        true => machine.option(need),
        false => None,
    };
    let lacks = |need: &&&str| set(need) == Some(false);
    let missing: Vec<&str> = row.needs.iter().filter(lacks).copied().collect();
    if !missing.is_empty() {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        return format!("{} {verb} not set", missing.join(", "));
    }
    let needs = row.needs.iter().filter(|n| set(n).is_none());
    let needs: Vec<&str> = needs.copied().collect();
    match needs.is_empty() {
        true => String::new(),
        false => format!("needs {}", needs.join(", ")),
    }
}

/// The running machine.
pub(crate) struct RunningMachine;

impl CheckedMachine for RunningMachine {
    fn name(&self) -> String {
        format!("Linux {}, {}", machine::release(), std::env::consts::ARCH)
    }

    fn has(&self, requirement: Requirement) -> Availability {
        match requirement {
            Requirement::Nothing => Availability::Yes,
            Requirement::Feature(feature) => features::has(feature),
            Requirement::Tracefs => match Tracefs::open() {
                Ok(_) => Availability::Yes,
                Err(why) => Availability::Unknown(why.to_string()),
            },
            Requirement::Symbols => match Symbols::kernel() {
                Ok(_) => Availability::Yes,
                Err(why) => Availability::Unknown(why.to_string()),
            },
            Requirement::Config => match machine::has_config() {
                true => Availability::Yes,
                false => Availability::No,
            },
        }
    }

    fn option(&self, name: &str) -> Option<bool> {
        machine::has_config().then(|| machine::config(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that always gives one answer, and whose kernel lacks options with this prefix.
    struct FakeMachine {
        answer: fn(Requirement) -> Availability,
        lacks: &'static str,
    }

    impl CheckedMachine for FakeMachine {
        fn name(&self) -> String {
            "Linux".into()
        }

        fn has(&self, what: Requirement) -> Availability {
            match what {
                Requirement::Nothing => Availability::Yes,
                what => (self.answer)(what),
            }
        }

        fn option(&self, name: &str) -> Option<bool> {
            let lacks = !self.lacks.is_empty() && name.starts_with(self.lacks);
            lacks.then_some(false)
        }
    }

    fn line<'t>(table: &'t str, start: &str) -> &'t str {
        let mut lines = table.lines().map(str::trim);
        lines.find(|l| l.starts_with(start)).unwrap_or("")
    }

    #[test]
    fn unknown_answers_are_no_failures() {
        let fake = FakeMachine {
            answer: |_| Availability::Unknown("not permitted".into()),
            lacks: "",
        };
        let table = table(&fake);
        assert!(
            line(&table, "BPF programs").ends_with("?    not permitted"),
            "{table}"
        );
        assert!(line(&table, "begin").ends_with("yes"), "{table}");
        for row in ["kernel.function", "syscall", "lsm", "-t"] {
            assert!(
                line(&table, row).ends_with("?    needs BPF programs"),
                "{table}"
            );
        }
    }

    #[test]
    fn options_that_are_not_set_are_named() {
        let no = |what| match what {
            Requirement::Feature(Feature::Kprobes | Feature::Netfilter | Feature::Fentry) => {
                Availability::No
            }
            _ => Availability::Yes,
        };
        let fake = FakeMachine {
            answer: no,
            lacks: "CONFIG_KPROBE",
        };
        let table = table(&fake);
        let functions = "no   CONFIG_KPROBES, CONFIG_KPROBE_EVENTS are not set";
        assert!(
            line(&table, "kernel.function").ends_with(functions),
            "{table}"
        );
        let netfilter = "no   needs Linux 6.4, CONFIG_NETFILTER_BPF_LINK";
        assert!(line(&table, "netfilter").ends_with(netfilter), "{table}");
        assert!(
            line(&table, "process().function").ends_with("yes"),
            "{table}"
        );
    }

    #[test]
    fn a_kernel_without_bpf_says_which_option_is_missing() {
        let fake = FakeMachine {
            answer: |_| Availability::No,
            lacks: "CONFIG_BPF_SYSCALL",
        };
        let table = table(&fake);
        let bpf = "no   CONFIG_BPF_SYSCALL is not set";
        assert!(line(&table, "BPF programs").ends_with(bpf), "{table}");
        assert!(
            line(&table, "lsm").ends_with("no   needs BPF programs"),
            "{table}"
        );
    }
}
