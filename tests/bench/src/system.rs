//! The cost of recording a whole machine for its users: calls, switches and interrupts without a
//! recording, and under `spile profile --system` and its peers, in turns.

use std::process::Command;
use std::time::Duration;

use crate::peers::{Armed, Tool, built, output};
use crate::profile::{compiled, env_number, trace_files};
use crate::{bpftrace_tool, median, named, report};

/// Default number of rounds; `SPILE_ROUNDS` overrides it.
const ROUNDS: usize = 10;
/// Time limit of a workload.
const LIMIT: Duration = Duration::from_secs(120);
/// Wait for tools that give no sign that they are armed.
const ARMS: Duration = Duration::from_secs(4);
/// Modes of `tests/programs/cost.c`, with the number in a run, and the name of one.
const WORK: [(&str, &str, &str); 3] = [
    ("calls", "200000", "a system call"),
    ("switches", "30000", "a switch, with a read and a write"),
    (
        "interrupts",
        "20000",
        "a call that interrupts another processor",
    ),
];
/// The sums of `--system` by processor and name, as a user of bpftrace would write them.
const BPFTRACE: &str = "tracepoint:raw_syscalls:sys_enter { @s[tid] = nsecs; } \
     tracepoint:raw_syscalls:sys_exit /@s[tid]/ { @calls[cpu, comm] = sum(nsecs - @s[tid]); delete(@s[tid]); } \
     tracepoint:irq_vectors:local_timer_entry, tracepoint:irq_vectors:reschedule_entry, \
     tracepoint:irq_vectors:call_function_entry, tracepoint:irq_vectors:call_function_single_entry, \
     tracepoint:irq:irq_handler_entry { @i[cpu] = nsecs; } \
     tracepoint:irq_vectors:local_timer_exit, tracepoint:irq_vectors:reschedule_exit, \
     tracepoint:irq_vectors:call_function_exit, tracepoint:irq_vectors:call_function_single_exit, \
     tracepoint:irq:irq_handler_exit /@i[cpu]/ { @irqs[cpu, comm] = sum(nsecs - @i[cpu]); @i[cpu] = 0; } \
     tracepoint:irq:softirq_entry { @f[cpu] = nsecs; } \
     tracepoint:irq:softirq_exit /@f[cpu]/ { @softirqs[cpu, comm] = sum(nsecs - @f[cpu]); } \
     tracepoint:sched:sched_switch { @runs[cpu, args->prev_comm] = sum(nsecs - @r[cpu]); @r[cpu] = nsecs; }";

/// Compiles the workload and measures.
pub(crate) fn run() {
    let Some(cost) = compiled("cost", "-pthread") else {
        return eprintln!("system: no C compiler");
    };
    trace_files();
    let silent = |name: &str, argv: &[&str]| Tool {
        armed: Armed::After(ARMS),
        ..Tool::new(name, argv, "")
    };
    let spile = built("spile").display().to_string();
    let tools = [
        silent(
            "spile profile --system",
            &[&spile, "profile", "--system", "-d", "3600"],
        ),
        silent("perf trace -a -s", &["perf", "trace", "-a", "-s"]),
        silent(
            "perf sched record",
            &["perf", "sched", "record", "-o", "/dev/null"],
        ),
        named(
            bpftrace_tool("bpftrace", BPFTRACE),
            "bpftrace, the same sums",
        ),
    ];
    let rounds = env_number("SPILE_ROUNDS", ROUNDS);
    // By tool and by kind of work.
    let mut plain = vec![Vec::new(); WORK.len()];
    let mut under = vec![vec![Vec::new(); WORK.len()]; tools.len()];
    let mut problems = Vec::new();
    let measure = |rows: &mut [Vec<f64>]| {
        for ((mode, number, _), row) in WORK.iter().zip(rows) {
            let mut command = Command::new(&cost);
            command.args([mode, number]);
            let text = output(command, LIMIT);
            row.extend(
                text.trim()
                    .strip_prefix("each ")
                    .and_then(|n| n.parse::<f64>().ok()),
            );
        }
    };
    for _ in 0..rounds {
        measure(&mut plain);
        for (tool, rows) in tools.iter().zip(&mut under) {
            if !tool.installed() {
                continue;
            }
            match tool.start() {
                Ok(running) => {
                    measure(rows);
                    running.stop();
                }
                Err(e) => problems.push(e),
            }
        }
    }
    report(problems);
    println!("a machine that is recorded as a whole, {rounds} rounds in turns: medians in ns,");
    println!("and the overhead of recording\n");
    for (at, (_, _, what)) in WORK.iter().enumerate() {
        let base = median(plain[at].clone());
        println!("{what:<42} {base:>9.0}");
        for (tool, rows) in tools.iter().zip(&under) {
            if rows[at].is_empty() {
                println!("  {:<40} not installed, or does not run here", tool.name);
                continue;
            }
            let took = median(rows[at].clone());
            println!("  {:<40} {took:>9.0} {:>+9.0}", tool.name, took - base);
        }
    }
    println!();
}
