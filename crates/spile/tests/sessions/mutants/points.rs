//! Probe points that can replace each other: a handler finds the same context there, or analysis
//! reports what is missing.

use spile_ir::testgen::Rng;
use spile_syntax::ast::{Item, Literal, ProbePoint};

use crate::shrink::parse;

/// Families: prefixes of their points, and points of them.
const FAMILIES: &[(&[&str], &[&str])] = &[
    (
        &["begin", "end", "error"],
        &[
            "begin",
            "end",
            "error",
            "begin(-5)",
            "end(7)",
            "begin, end",
            "timer.ms(7)",
        ],
    ),
    (
        &["timer", "perf"],
        &[
            "timer.ms(1)",
            "timer.ms(3)",
            "timer.ms(20)",
            "timer.us(500)",
            "timer.jiffies(2)",
            "timer.hz(300)",
            "timer.profile",
            "timer.ms(5).randomize(3)",
            "perf.sw.cpu_clock.sample(1000000)",
            "perf.sw.context_switches",
            "perf.sw.page_faults",
            "timer.ms(4), end",
            "timer.profile, timer.ms(9)",
        ],
    ),
    (
        &["syscall", "nd_syscall", "syscall_any"],
        &[
            "syscall.*",
            "nd_syscall.*",
            "syscall_any",
            "syscall_any.return",
            "syscall.*.return",
            "syscall.read",
            "syscall.write.return",
            "syscall.openat",
            "syscall.openat.return",
            "syscall.getppid",
            "syscall.{close,read,write,mmap,munmap}",
            "syscall.clone*, syscall.execve",
            "syscall.kill",
            "syscall.get*",
            "syscall.getppid, syscall.getppid, syscall.getppid, syscall.getppid, syscall.getppid",
            "syscall.getppid, timer.ms(3)",
            "kernel.trace(\"sys_enter\")",
        ],
    ),
    (
        &["kernel", "module"],
        &[
            "kernel.trace(\"sched_switch\")",
            "kernel.trace(\"sched:sched_process_*\")",
            "kernel.trace(\"sys_enter\")",
            "kernel.trace(\"raw_syscalls:sys_exit\")",
            "kernel.trace(\"sched_wakeup\")",
            "kernel.trace(\"signal_*\")",
            "kernel.trace(\"kmem:*\")",
            "kernel.trace(\"irq:*\")",
        ],
    ),
    (
        &[
            "scheduler",
            "kprocess",
            "vm",
            "signal",
            "ioblock",
            "irq_handler",
            "softirq",
            "vfs",
            "netdev",
            "socket",
            "tcp",
            "ioscheduler",
            "kmem",
            "workqueue",
        ],
        &[
            "scheduler.ctxswitch",
            "scheduler.cpu_on",
            "scheduler.cpu_off",
            "scheduler.wakeup",
            "scheduler.process_fork",
            "kprocess.create",
            "kprocess.exit",
            "kprocess.exec",
            "signal.send",
            "irq_handler.entry",
            "softirq.entry",
            "softirq.exit",
            "vm.pagefault",
            "vm.mmap",
        ],
    ),
    (
        &["process"],
        &[
            "process.begin",
            "process.end",
            "process.thread.begin",
            "process.thread.end",
            "process.syscall",
            "process.syscall.return",
        ],
    ),
];

/// The points of a text.
pub(super) fn points(text: &str) -> Vec<ProbePoint> {
    let file = parse(&format!("probe {text} {{ }}")).unwrap_or_default();
    match file.items.into_iter().next() {
        Some(Item::Probe(p)) => p.points,
        _ => Vec::new(),
    }
}

/// Other points of the same family.
pub(super) fn others(point: &ProbePoint, rng: &mut Rng) -> Option<Vec<ProbePoint>> {
    let first = &*point.components.first()?.name;
    let (_, all) = FAMILIES
        .iter()
        .find(|(begins, _)| begins.iter().any(|b| first.starts_with(b)))?;
    Some(points(rng.pick(all)))
}

/// Any point at all.
pub(super) fn any(rng: &mut Rng) -> Vec<ProbePoint> {
    let (_, all) = rng.pick(FAMILIES);
    points(rng.pick(all))
}

/// Makes slow timers fast, so that they run in a short session.
pub(super) fn quicken(point: &mut ProbePoint, rng: &mut Rng) {
    let slow = ["s", "sec", "ms", "msec"];
    let [timer, unit, ..] = &mut point.components[..] else {
        return;
    };
    if &*timer.name == "timer" && slow.contains(&&*unit.name) {
        unit.name = "ms".into();
        unit.arg = Some(Literal::Num(i64::from(rng.pick(&[1, 3, 5, 10, 20, 40]))));
    }
}
