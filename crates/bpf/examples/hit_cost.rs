//! Measures the cost of a hit: nanoseconds that handlers on `sys_enter` add to a `getppid()`,
//! compared with an empty program. Run as root, pinned to a processor. Each number is the minimum
//! over many short rounds in which the programs alternate.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use spile_bpf::compile;
use spile_bpf::target::{Features, KernelOffsets, Target};
use spile_ir::reader;
use spile_kernel::btf::Btf;
use spile_layout::shared;

const CALLS: u32 = 100_000;
const ROUNDS: usize = 40;

fn main() {
    let options = options();
    let handlers = [
        ("empty", "", "ret"),
        (
            "a[execname()] <<< 1",
            "global g0 \"a\" [str16] stats(sum) max 2048 percpu double @0\n",
            "r0 = intr execname()\n stat_add g0[r0], 1\n ret",
        ),
        (
            "a[execname()]++",
            "global g0 \"a\" [str16] long max 2048 percpu double @0\n",
            "r0 = intr execname()\n aadd g0[r0], 1\n ret",
        ),
        (
            "if (pid() != target()) next",
            "global g0 \"a\" [str16] stats(sum) max 2048 percpu double @0\n",
            "r1 = intr pid()\n r2 = intr target()\n r3 = ne r1, r2\n branch r3, b1, b2\n\
             b1:\n ret\n b2:\n r0 = intr execname()\n stat_add g0[r0], 1\n ret",
        ),
        (
            "a[pid(), execname()] <<< syscall_nr",
            "global g0 \"a\" [long, str16] stats(sum, min, max) max 2048 percpu double @0\n",
            "r0 = intr execname()\n r1 = intr pid()\n r2 = intr sys_nr()\n stat_add g0[r1, r0], r2\n ret",
        ),
    ];
    let mut subjects: Vec<Subject> = handlers
        .into_iter()
        .enumerate()
        .map(|(i, (name, global, code))| subject(&options, i == 0, name, global, code))
        .collect();
    let mut untraced = f64::MAX;
    for _ in 0..ROUNDS {
        untraced = untraced.min(call_ns());
        for subject in &mut subjects {
            let program = subject.object.progs_mut().next().expect("program");
            let _link = program.attach_raw_tracepoint("sys_enter").expect("attach");
            subject.least = subject.least.min(call_ns());
        }
    }
    println!("{untraced:>8.1}  no program");
    let floor = subjects[0].least;
    for s in subjects {
        println!(
            "{:>8.1}  {}: {:+.1} over empty, {} slots, loaded in {:.1?}",
            s.least,
            s.name,
            s.least - floor,
            s.slots,
            s.load
        );
    }
}

/// A loaded program, and its best time so far.
struct Subject {
    name: &'static str,
    object: Object,
    slots: u32,
    load: Duration,
    least: f64,
}

fn subject(options: &Target, empty: bool, name: &'static str, global: &str, code: &str) -> Subject {
    let text = format!(
        "site @0 \"\"\n{global}handler \"x\" points 1 sys_enter(all) @0 {{\n\
         regs r0: str16, r1: long, r2: long, r3: long\n b0:\n {code}\n }}\n"
    );
    let program = reader::read(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut compiled = compile(&program, options).unwrap_or_else(|e| panic!("{e}"));
    if empty {
        let function = &mut compiled.spec.programs[0].function;
        function.insns.drain(..function.insns.len() - 2);
        function.relocs.clear();
    }
    let programs = &compiled.spec.programs;
    let slots = programs.iter().map(|p| p.function.slots()).sum();
    if std::env::args().any(|a| a == "--listing") {
        println!("{}", programs[0].function.listing());
    }
    let elf = compiled.spec.write().expect("complete");
    let started = Instant::now();
    let object = ObjectBuilder::default()
        .open_memory(&elf)
        .and_then(|o| o.load())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let load = started.elapsed();
    if let Some(state) = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(".bss"))
    {
        let key = 0u32.to_ne_bytes();
        let found = state.lookup(&key, MapFlags::ANY).expect("state");
        let mut words = found.expect("element");
        words[shared::RUNNING as usize] = 1;
        state.update(&key, &words, MapFlags::ANY).expect("state");
    }
    Subject {
        name,
        object,
        slots,
        load,
        least: f64::MAX,
    }
}

/// Nanoseconds of a `getppid()`.
fn call_ns() -> f64 {
    let started = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(std::os::unix::process::parent_id());
    }
    started.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn options() -> Target {
    let btf = Btf::vmlinux().expect("BTF of the kernel");
    let of = |ty: &str, member: &str| {
        let id = btf.find_struct(ty)?;
        btf.member(id, member).map(|m| m.bit_offset / 8)
    };
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible
        .trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|n| n.parse::<u32>().ok());
    Target {
        host: spile_ir::HostKind::Kernel,
        cpus: last.unwrap_or(0) + 1,
        ring_bytes: 1 << 18,
        timing: false,
        lines: false,
        offsets: KernelOffsets {
            task_pid: of("task_struct", "pid"),
            task_tgid: of("task_struct", "tgid"),
            task_comm: of("task_struct", "comm"),
            task_ti_status: of("thread_info", "status"),
            ..KernelOffsets::default()
        },
        features: Features {
            may_goto: false,
            ..Features::SINCE_6_9
        },
        syscalls: &[],
        functions: Default::default(),
        share: None,
        abi: spile_abi::HOST,
        resident: false,
    }
}
