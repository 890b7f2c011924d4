//! Measures the cost of queries to the running kernel at start-up: `cargo run --release -p
//! spile-kernel --example lookup_times`.

use std::time::Instant;

use spile_kernel::bpf::prog_type;
use spile_kernel::btf::Btf;
use spile_kernel::features::{self, Feature, helper};
use spile_kernel::symbols::Symbols;
use spile_kernel::{machine, tracepoints};

/// Look-ups of a script with one tracepoint and some fields of `task_struct`.
fn script() -> Option<()> {
    let btf = Btf::open(spile_kernel::btf::VMLINUX).ok()?;
    let tracepoint = tracepoints::find(&btf, "sched_switch")?;
    let task = btf.pointee(tracepoint.args.get(1)?.ty)?;
    for field in [
        "pid",
        "tgid",
        "comm",
        "real_parent",
        "utime",
        "__state",
        "start_time",
    ] {
        let member = btf.member(task, field)?;
        btf.size_of(member.ty)?;
    }
    btf.find_struct("task_struct").map(|_| ())
}

/// Times one thing done once.
fn once<T>(what: &str, job: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = job();
    println!("{what}: {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

fn main() {
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            if script().is_none() {
                println!("this kernel's BTF has not what is measured here");
            }
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    println!("first {:.2} ms", times[0]);
    times.sort_by(f64::total_cmp);
    println!(
        "median {:.2} ms, best {:.2} ms",
        times[times.len() / 2],
        times[0]
    );

    if let Ok(btf) = once("index alone", || Btf::open(spile_kernel::btf::VMLINUX)) {
        once("all names of tracepoints", || {
            tracepoints::names(&btf).len()
        });
        once("a constant", || btf.constant("pid_type", "PIDTYPE_TGID"));
        once("an absent name", || btf.find_func("nosuch_function_name"));
        let found = once("sched:*, by tracefs", || {
            tracepoints::matching(&btf, "sched:*")
        });
        println!("  {:?}", found.map(|names| names.len()));
    }
    once("HZ", machine::hz);
    once("BPF at all", || features::has(Feature::Bpf));
    once("may_goto", || features::has(Feature::MayGoto));
    once("a helper", || {
        features::has(Feature::Helper(prog_type::RAW_TRACEPOINT, helper::LOOP))
    });
    let symbols = once("symbols, read and indexed", Symbols::kernel);
    if let Ok(symbols) = symbols {
        println!("  {} symbols", symbols.len());
        let address = once("a symbol by name", || symbols.address_of("schedule"));
        once("a symbol by address", || {
            symbols.resolve(address.unwrap_or(0)).is_some()
        });
        once("functions by pattern", || {
            symbols.functions("tcp_*").count()
        });
    }
}
