//! `arm PATTERN MOST SINGLE`: measures attaching an empty program by one link to up to MOST
//! functions of the kernel that match, and to SINGLE of them one by one, and detaching it. Both are
//! measured in one run, because times of different runs are not comparable.
//!
//! `arm start NAME ROUNDS COMMAND...`: the median time until a command, which must keep running,
//! prints `armed`.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use spile_kernel::bpf::{self, ProgSpec, attach_type, insn, prog_type};
use spile_kernel::functions::Functions;
use spile_kernel::perf::{PerfEvent, ProbeLocation};

fn program(attach_type: u32) -> OwnedFd {
    let spec = ProgSpec {
        ty: prog_type::KPROBE,
        insns: &[insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)],
        name: "empty",
        attach_type,
        ..ProgSpec::default()
    };
    bpf::load(&spec).unwrap_or_else(|e| fail(&e.to_string()))
}

fn fail(why: &str) -> ! {
    eprintln!("arm: {why}");
    std::process::exit(1)
}

/// Attaches by `how`, and prints the times of attaching and detaching.
fn measure<T>(what: &str, count: usize, how: impl FnOnce() -> T) {
    let start = Instant::now();
    let held = how();
    let armed = start.elapsed();
    let start = Instant::now();
    drop(held);
    let gone = start.elapsed();
    println!("{count} functions {what}: attached in {armed:.1?}, detached in {gone:.1?}");
}

/// Milliseconds until the command is armed.
fn start(command: &[String]) -> f64 {
    let start = Instant::now();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| fail(&format!("{}: {e}", command[0])));
    let mut lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let armed = lines
        .iter_mut()
        .flatten()
        .map_while(Result::ok)
        .any(|l| l == "armed");
    let took = start.elapsed();
    // The signal is the one that ends a session.
    let pid = child.id().to_string();
    let _ = Command::new("kill").args(["-INT", &pid]).status();
    let _ = child.wait();
    if !armed {
        fail("the command did not say `armed`");
    }
    took.as_secs_f64() * 1e3
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, name, rounds, command @ ..] = &*args
        && word == "start"
        && let (Ok(rounds @ 1..), false) = (rounds.parse::<usize>(), command.is_empty())
    {
        let mut times: Vec<f64> = (0..rounds).map(|_| start(command)).collect();
        times.sort_by(f64::total_cmp);
        return println!("{name}: armed in {:.1} ms", times[rounds / 2]);
    }
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    let (Some(pattern), Some(most), Some(single)) = (args.get(1), number(2), number(3)) else {
        fail("usage: arm PATTERN MOST SINGLE | arm start NAME ROUNDS COMMAND...")
    };
    let start = Instant::now();
    let all = Functions::kernel().unwrap_or_else(|e| fail(&e.to_string()));
    let found = all.matching(None, pattern).functions;
    let addresses: Vec<u64> = found
        .iter()
        .filter(|f| f.traced)
        .map(|f| f.address)
        .collect();
    println!("{} functions found in {:.1?}", found.len(), start.elapsed());

    let many = &addresses[..most.min(addresses.len())];
    let cookies = vec![0; many.len()];
    let multi = program(attach_type::KPROBE_MULTI);
    measure("by one link", many.len(), || {
        let functions = bpf::KernelFunctions::Addresses(many);
        let link = bpf::kprobe_multi(multi.as_fd(), functions, &cookies, bpf::AttachPoints::Entry);
        link.map_err(|e| eprintln!("arm: {e}"))
    });

    let few = &addresses[..single.min(addresses.len())];
    let plain = program(0);
    let one = |at: &u64| {
        let event = PerfEvent::open_at(&ProbeLocation::Address(*at), false, None).ok()?;
        let link = bpf::perf_link(plain.as_fd(), event.as_fd(), 0).ok()?;
        Some((link, event))
    };
    measure("one by one", few.len(), || {
        few.iter().filter_map(one).collect::<Vec<_>>()
    });
}
