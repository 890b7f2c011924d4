//! `arm PATTERN MOST SINGLE`: how long it takes to attach an empty program to up to MOST
//! functions of the kernel that match, by one link, and to SINGLE of them one by one; and to detach
//! it. Both in one run, because times of different runs are not comparable.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use spile_kernel::bpf::{self, ProgSpec, attach_type, insn, prog_type};
use spile_kernel::functions::Functions;
use spile_kernel::perf::{PerfEvent, Place};

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

/// Attaches by `how`, and tells how long that and the end of it took.
fn measure<T>(what: &str, count: usize, how: impl FnOnce() -> T) {
    let start = Instant::now();
    let held = how();
    let armed = start.elapsed();
    let start = Instant::now();
    drop(held);
    let gone = start.elapsed();
    println!("{count} functions {what}: attached in {armed:.1?}, detached in {gone:.1?}");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    let (Some(pattern), Some(most), Some(single)) = (args.get(1), number(2), number(3)) else {
        fail("usage: arm PATTERN MOST SINGLE")
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
        let functions = bpf::Functions::Addresses(many);
        let link = bpf::kprobe_multi(multi.as_fd(), functions, &cookies, false);
        link.map_err(|e| eprintln!("arm: {e}"))
    });

    let few = &addresses[..single.min(addresses.len())];
    let plain = program(0);
    let one = |at: &u64| {
        let event = PerfEvent::open_at(&Place::Address(*at), false, None).ok()?;
        let link = bpf::perf_link(plain.as_fd(), event.as_fd(), 0).ok()?;
        Some((link, event))
    };
    measure("one by one", few.len(), || {
        few.iter().filter_map(one).collect::<Vec<_>>()
    });
}
