//! Rows of `tools/system.stp`, and the account made from them.

use std::collections::{BTreeMap, HashMap};

use crate::rows::Fields;
use crate::{FromRows, add_losses};
use spile_kernel::process;
use spile_profile::system::{
    Cpu, Interrupt, InterruptKind, Process, ProcessPart, System, SystemFunction,
};

/// Numbers of soft interrupts (`enum` in the kernel's `include/linux/interrupt.h`).
const SOFT: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// The processor's own interrupts, in the order of the scripts.
const VECTORS: [&str; 9] = [
    "local timer",
    "rescheduling",
    "function call",
    "function call (single)",
    "irq_work",
    "thermal event",
    "platform IPI",
    "APIC error",
    "spurious",
];
/// The scripts' numbers of the first vector and of the first device.
const VECTOR: u64 = 100;
const DEVICE: u64 = 1000;

/// The kind and name of an interrupt by its number in the scripts.
pub(super) fn interrupt(number: u64) -> (InterruptKind, String) {
    let named = |names: &[&str], n: u64| {
        let name = usize::try_from(n).ok().and_then(|n| names.get(n));
        name.map_or_else(|| n.to_string(), |name| (*name).to_owned())
    };
    match number {
        n if n >= DEVICE => (InterruptKind::Device, device(n - DEVICE)),
        n if n >= VECTOR => (InterruptKind::Vector, named(&VECTORS, n - VECTOR)),
        n => (InterruptKind::Softirq, named(&SOFT, n)),
    }
}

/// The names of an interrupt's handlers, or its number.
fn device(irq: u64) -> String {
    let actions = std::fs::read_to_string(format!("/sys/kernel/irq/{irq}/actions"));
    match actions.as_deref().map(str::trim) {
        Ok(names) if !names.is_empty() => names.to_owned(),
        _ => format!("irq {irq}"),
    }
}

/// The state that the rows so far built up.
#[derive(Default)]
pub(super) struct MachineBuilder {
    cpus: BTreeMap<u32, CpuBounds>,
    /// By process and kind of time.
    times: Vec<(u32, i64, u64, u64)>,
    processes: BTreeMap<u32, Process>,
    interrupts: Vec<Interrupt>,
    names: HashMap<u64, (InterruptKind, String)>,
    functions: Vec<SystemFunction>,
    /// The time of the latest event on any processor.
    latest: u64,
    started_unix_ns: u64,
    broken: u64,
}

/// Begin and end of a processor's account.
#[derive(Default)]
struct CpuBounds {
    began: u64,
    ended: Option<u64>,
    /// Where no mark ended it: the time of its last event, and whether a process ran then.
    last: u64,
    busy: bool,
    cpu: Cpu,
}

impl FromRows for MachineBuilder {
    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()> {
        match name {
            "cpu" => {
                let (cpu, began, unix) = (f.integer()?, f.integer()?, f.integer()?);
                self.cpus.entry(cpu).or_default().began = began;
                if self.started_unix_ns == 0 {
                    self.started_unix_ns = unix;
                }
            }
            "done" => {
                let (cpu, ended) = (f.integer()?, f.integer()?);
                self.cpus.get_mut(&cpu)?.ended = Some(ended);
            }
            "last" => {
                let (cpu, since, busy) = (f.integer()?, f.integer()?, f.flag()?);
                let bounds = self.cpus.get_mut(&cpu)?;
                (bounds.last, bounds.busy) = (since, busy);
                self.latest = self.latest.max(since);
            }
            "task" => {
                let (pid, ppid, kernel) = (f.integer()?, f.integer()?, f.flag()?);
                let name = spile_plain::name(&f.string()?).into_owned();
                let process = self.process(pid);
                (process.ppid, process.kernel, process.name) = (ppid, kernel, name);
            }
            "time" => {
                let time = (f.integer()?, f.integer()?, f.integer()?, f.integer()?);
                self.times.push(time);
            }
            "hits" => self.hits(
                f.integer()?,
                f.integer()?,
                f.integer()?,
                [f.integer()?, f.integer()?, f.integer()?],
            ),
            "wait" => {
                let (cpu, pid): (u32, u32) = (f.integer()?, f.integer()?);
                let (count, ns): (u64, u64) = (f.integer()?, f.integer()?);
                self.cpus.get_mut(&cpu)?.cpu.switches += count;
                if pid > 0 {
                    let process = self.process(pid);
                    process.switches += count;
                    process.waiting += ns;
                }
            }
            "moved" => {
                let (cpu, pid): (u32, u32) = (f.integer()?, f.integer()?);
                let count: u64 = f.integer()?;
                if let Some(bounds) = self.cpus.get_mut(&cpu) {
                    bounds.cpu.migrations += count;
                }
                self.process(pid).migrations += count;
            }
            "function" => self.function(f)?,
            "end" => self.broken = f.integer()?,
            _ => return None,
        }
        Some(())
    }
}

impl MachineBuilder {
    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| Process {
            pid,
            ..Process::default()
        })
    }

    fn hits(&mut self, cpu: u32, pid: u32, number: u64, [count, ns, max]: [u64; 3]) {
        let named = self.names.entry(number);
        let (kind, name) = named.or_insert_with(|| interrupt(number)).clone();
        if let Some(bounds) = self.cpus.get_mut(&cpu) {
            *match kind {
                InterruptKind::Softirq => &mut bounds.cpu.softirq,
                _ => &mut bounds.cpu.irq,
            } += ns;
        }
        if pid > 0 {
            let process = self.process(pid);
            let (hits, time) = match kind {
                InterruptKind::Softirq => (&mut process.softirq, &mut process.softirq_ns),
                _ => (&mut process.irq, &mut process.irq_ns),
            };
            *hits += count;
            *time += ns;
        }
        // One row for each process that it hit.
        let rows = self.interrupts.iter_mut();
        let same = |i: &&mut Interrupt| i.cpu == cpu && i.kind == kind && i.name == name;
        match rows.rev().find(same) {
            Some(interrupt) => {
                interrupt.count += count;
                interrupt.ns += ns;
                interrupt.max = interrupt.max.max(max);
            }
            None => self.interrupts.push(Interrupt {
                kind,
                name,
                cpu,
                count,
                ns,
                max,
            }),
        }
    }

    fn function(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (pid, part) = (f.integer()?, f.integer::<u64>()?);
        let part = match part {
            0 => ProcessPart::User,
            1 => ProcessPart::System,
            2 => ProcessPart::Faults,
            5 => ProcessPart::Interrupts,
            _ => return None,
        };
        let mut text = || Some(Some(f.string()?.into_owned()).filter(|text| !text.is_empty()));
        let (call, function, file) = (text()?, text()?.unwrap_or_default(), text()?);
        self.functions.push(SystemFunction {
            pid,
            function,
            file,
            part,
            call,
            samples: f.integer()?,
            ns: 0,
        });
        Some(())
    }

    /// Divides the time of each part of a process by the samples in it.
    fn divide(&mut self) {
        let mut all: HashMap<_, u64> = HashMap::new();
        for function in &self.functions {
            *all.entry((function.pid, function.part)).or_default() += function.samples;
        }
        for function in &mut self.functions {
            let process = self.processes.get(&function.pid);
            let time = process.map_or(0, |process| process.part(function.part));
            let of = u128::from(all[&(function.pid, function.part)].max(1));
            let ns = u128::from(time) * u128::from(function.samples) / of;
            function.ns = u64::try_from(ns).unwrap_or(u64::MAX);
        }
    }

    /// The final account.
    pub(super) fn finish(mut self) -> System {
        for (cpu, pid, kind, ns) in std::mem::take(&mut self.times) {
            self.time(cpu, pid, kind, ns);
        }
        self.divide();
        let latest = self.latest;
        let mut cpus = Vec::new();
        for (number, bounds) in self.cpus {
            let ended = bounds.ended.unwrap_or_else(|| latest.max(bounds.last));
            let mut cpu = bounds.cpu;
            cpu.cpu = number;
            cpu.wall = ended.saturating_sub(bounds.began);
            if bounds.ended.is_none() && !bounds.busy {
                cpu.idle += ended.saturating_sub(bounds.last);
            }
            cpus.push(cpu);
        }
        for process in self.processes.values_mut().filter(|p| p.name.is_empty()) {
            // It ran all the time.
            match process::stat(process.pid) {
                Some(stat) => {
                    process.kernel = process.pid == 2 || stat.ppid == 2;
                    (process.name, process.ppid) = (stat.comm, stat.ppid);
                }
                None => process.name = "?".to_owned(),
            }
        }
        let mut lost = BTreeMap::new();
        let broken =
            "missing beginnings or ends of interrupts; their time counts to the surrounding part";
        add_losses(&mut lost, [(self.broken, broken)]);
        let ran = |p: &Process| p.cpu() > 0 || p.waiting > 0 || p.irq + p.softirq > 0;
        System {
            started_unix_ns: self.started_unix_ns,
            cpus,
            interrupts: self.interrupts,
            functions: self.functions,
            processes: self.processes.into_values().filter(ran).collect(),
            lost,
            ..System::default()
        }
    }

    /// Adds a time between two events. `what`: 0 in the program, 1 in system calls, 2 in page
    /// faults, 3 idle, 4 not seen.
    fn time(&mut self, cpu: u32, pid: i64, kind: u64, ns: u64) {
        if let Some(CpuBounds { cpu, .. }) = self.cpus.get_mut(&cpu) {
            let part = match kind {
                0 => &mut cpu.user,
                1 => &mut cpu.system,
                2 => &mut cpu.faults,
                3 => &mut cpu.idle,
                _ => &mut cpu.unseen,
            };
            *part += ns;
        }
        let Ok(pid) = u32::try_from(pid) else { return };
        if pid == 0 {
            return;
        }
        let process = self.process(pid);
        *match kind {
            0 => &mut process.user,
            1 => &mut process.system,
            2 => &mut process.faults,
            _ => &mut process.unseen,
        } += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Built;
    use crate::rows::with_row;

    #[test]
    fn rows_become_an_account() {
        let mut rows = Built::<MachineBuilder>::default();
        for row in [
            "cpu 0 1000 7",
            "cpu 1 1100 8",
            "task 20 1 0 \"a\tb\"",
            "time 0 20 0 500",
            "time 0 20 1 300",
            "time 0 -1 4 10",
            "hits 0 20 7 2 50 30",
            "hits 0 0 7 1 40 40",
            "hits 0 20 100 3 100 60",
            "wait 0 20 4 77",
            "wait 0 0 3 0",
            "moved 1 20 2",
            "function 20 0 \"\" \"crunch\" \"/bin/a\" 3",
            "function 20 0 \"\" \"other\" \"/bin/a\" 1",
            "function 20 1 \"read\" \"copy\" \"\" 2",
            "function 20 5 \"\" \"tick\" \"\" 1",
            "done 0 2000",
            "last 0 0 1",
            "last 1 1900 0",
            "end 0",
        ] {
            with_row(row, |row| rows.row(row));
        }
        assert!(rows.ended);
        assert_eq!(rows.malformed, 0);
        let system = rows.state.finish();
        assert_eq!(system.lost, BTreeMap::new());
        let cpu = &system.cpus[0];
        assert_eq!((cpu.wall, cpu.user, cpu.system), (1000, 500, 300));
        assert_eq!((cpu.irq, cpu.softirq, cpu.unseen), (100, 90, 10));
        assert_eq!((cpu.switches, cpu.residual()), (7, 0));
        // No mark ended it, and it was idle: its account goes to the last event on any processor.
        assert_eq!((system.cpus[1].wall, system.cpus[1].idle), (800, 0));
        let process = &system.processes[0];
        // A tab does not reach the terminal.
        assert_eq!((process.pid, process.name.as_str()), (20, "a\\011b"));
        assert_eq!((process.cpu(), process.waiting), (800, 77));
        assert_eq!(
            (process.irq, process.softirq, process.migrations),
            (3, 2, 2)
        );
        let sched = &system.interrupts[0];
        assert_eq!(
            (sched.name.as_str(), sched.count, sched.max),
            ("SCHED", 3, 40)
        );
        assert_eq!(system.interrupts[1].name, "local timer");
        let times: Vec<_> = system
            .functions
            .iter()
            .map(|f| (f.ns, f.call.as_deref()))
            .collect();
        assert_eq!(
            times,
            [(375, None), (125, None), (300, Some("read")), (150, None)]
        );
    }

    #[test]
    fn malformed_rows_are_counted() {
        let mut rows = Built::<MachineBuilder>::default();
        for row in ["", "cpu", "time 0 x 0 1", "done 9 1", "nothing 1"] {
            with_row(row, |row| rows.row(row));
        }
        assert_eq!((rows.malformed, rows.ended), (5, false));
    }
}
