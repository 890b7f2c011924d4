//! Synthetic profiles with consistent numbers: a fixed example, an OpenMP program of several ranks,
//! and random ones.

use std::collections::BTreeMap;

use spile_cast::Cast;

use spile_profile::model::*;

/// A generator of random numbers (xorshift64*), the same on all machines.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator with a seed, which may be any number.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) >> 16;
        high.checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high - 1`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }
}

/// A call in the example: name, number of calls, mean time on a processor, mean time asleep.
type CallSample = (&'static str, u64, Ns, Ns);

const MAIN: &[CallSample] = &[
    ("execve", 1, 410_000, 180_000),
    ("openat", 41, 5_200, 0),
    ("read", 64, 3_100, 21_000),
    ("mmap", 58, 4_400, 0),
    ("munmap", 6, 9_100, 0),
    ("clone3", 3, 31_000, 0),
    ("write", 12, 8_700, 2_600),
];
const WORKER: &[CallSample] = &[
    ("set_robust_list", 1, 300, 0),
    ("rseq", 1, 260, 0),
    ("mmap", 4, 3_900, 0),
    ("sched_yield", 37, 420, 0),
];

/// Rank `rank` of `ranks` of an OpenMP program with `threads` threads, on two nodes. It has two
/// parallel regions, the second with work that is uneven over ranks and threads, a barrier in each,
/// and MPI calls of the first thread; with stacks and a trace.
pub(crate) fn example(rank: u32, ranks: u32, threads: u32) -> Profile {
    let mut random = Random::new(u64::from(rank) + 7);
    let pid = 4_000 + rank * 100;
    let wall = 2_000_000_000;
    let nodes = if ranks > 1 { 2 } else { 1 };
    let per_node = ranks.div_ceil(nodes);
    let mut profile = Profile {
        header: Header {
            run: "slurm-1234.0".to_owned(),
            host: format!("node{}", rank / per_node + 1),
            kernel: "6.12.1".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 4,
            spile: "0.1.0".to_owned(),
            command: vec!["./pi".to_owned(), "100000000".to_owned()],
            pid: Some(pid),
            started_unix_ns: 1_790_000_000_000_000_000 + u64::from(rank) * 1_300_000,
            rank: (ranks > 1).then(|| Rank {
                rank,
                size: Some(ranks),
                local_rank: Some(rank % per_node),
                local_size: Some(per_node),
                launcher: Launcher::Slurm,
                job: Some("1234.0".to_owned()),
            }),
            options: Options {
                stacks: true,
                trace: true,
                histograms: true,
                futexes: true,
                ..Options::default()
            },
            ..Header::default()
        },
        ..Profile::default()
    };
    profile.data.at_ns = wall + 4_000_000;
    profile.data.contexts = contexts();
    profile.data.processes.push(Process {
        pid,
        ppid: pid - 1,
        comm: "pi".to_owned(),
        exe: "/home/user/pi".to_owned(),
        started_ns: 0,
        ended_ns: Some(wall),
        linked_statically: false,
        status: Some(0),
    });
    for number in 0..threads {
        let uneven = 1 + u64::from(number) + u64::from(rank);
        thread(&mut profile, &mut random, pid, number, uneven, wall);
    }
    profile.data.futexes.push(futex(&profile, pid));
    profile.end = Some(RecordingEnd {
        at_ns: profile.data.at_ns,
        status: Some(0),
    });
    profile.events.sort_by_key(|e| (e.tid, e.end_ns));
    profile
}

fn contexts() -> Vec<Context> {
    let context = |id, parent, kind, name: &str, line: Option<u32>| Context {
        id,
        parent,
        kind,
        name: name.to_owned(),
        file: line.map(|_| "pi.c".to_owned()),
        line,
        ..Context::default()
    };
    vec![
        context(1, None, ContextKind::OmpRegion, "main", Some(21)),
        context(2, Some(1), ContextKind::OmpBarrier, "main", Some(21)),
        context(3, None, ContextKind::OmpRegion, "reduce", Some(48)),
        context(4, Some(3), ContextKind::OmpBarrier, "reduce", Some(48)),
        context(5, None, ContextKind::Mpi, "MPI_Allreduce", None),
    ]
}

/// A futex's wait, and the calls of the MPI library: the context, the call, the functions on the
/// path.
const LOCATIONS: [(u32, CallSample, &[&str]); 3] = [
    (
        2,
        ("futex", 20, 2_400, 1_100_000),
        &["syscall", "gomp_barrier_wait", "main._omp_fn.0"],
    ),
    (
        4,
        ("futex", 30, 2_400, 2_900_000),
        &["syscall", "gomp_barrier_wait", "reduce._omp_fn.1"],
    ),
    (
        5,
        ("poll", 9, 6_500, 4_700_000),
        &["poll", "opal_progress", "PMPI_Allreduce", "main"],
    ),
];

fn thread(
    profile: &mut Profile,
    random: &mut Random,
    pid: u32,
    number: u32,
    uneven: u64,
    wall: Ns,
) {
    let tid = pid + number;
    let started_ns = u64::from(number) * 40_000;
    let mut row = Thread {
        migrations: None,
        node_pages: None,
        tid,
        pid,
        name: "pi".to_owned(),
        started_ns,
        ended_ns: (number != 3).then_some(wall - u64::from(number) * 10_000),
        parts: faults_and_interrupts(random, number),
    };
    let mut clock = started_ns + 1_000_000;
    for (context, (name, count, cpu, asleep), frames) in calls_of_thread(number, uneven) {
        let call = many(random, tid, context, name, count, cpu, asleep);
        if context != ROOT {
            profile.data.context_times.push(time_of_context(&call));
        }
        row.parts.syscall_cpu += call.cpu;
        row.parts.blocked += call.blocked;
        row.parts.runnable += call.runnable;
        add_events(profile, &call, &mut clock);
        profile.data.stacks.push(Stack {
            tid,
            context,
            call: name.to_owned(),
            frames: frames.iter().map(|f| frame(f)).collect(),
            count,
            ns: call.total,
        });
        profile.data.calls.push(call);
    }
    if number == 3 {
        // It waits forever, and the process ends meanwhile.
        let so_far = 71_000_000;
        row.parts.blocked += so_far;
        profile.data.calls.push(CallTotals {
            tid,
            call: "ppoll".to_owned(),
            unfinished: Some(so_far),
            ..CallTotals::default()
        });
    }
    row.parts.runnable += random.between(2_000_000, 3_000_000);
    let rest = row.wall(profile.data.at_ns) - row.accounted();
    row.parts.user = rest - rest / 400;
    profile.data.threads.push(row);
}

/// The calls of a thread: the context, the call, the functions on the path.
fn calls_of_thread(number: u32, uneven: u64) -> Vec<(u32, CallSample, &'static [&'static str])> {
    let usual = if number == 0 { MAIN } else { WORKER };
    let mut calls: Vec<_> = usual
        .iter()
        .map(|sample| (ROOT, *sample, &["main"][..]))
        .collect();
    for (context, sample, frames) in LOCATIONS {
        if context != 5 || number == 0 {
            let (call, count, cpu, asleep) = sample;
            calls.push((context, (call, count, cpu, asleep / uneven), frames));
        }
    }
    calls
}

/// The parts of a thread's time that do not follow from its calls.
fn faults_and_interrupts(random: &mut Random, number: u32) -> TimeParts {
    TimeParts {
        fault_minor: Times {
            count: 140,
            ns: random.between(90_000, 140_000),
        },
        fault_major: Times {
            count: u64::from(number == 0),
            ns: if number == 0 { 810_000 } else { 0 },
        },
        irq: Times {
            count: 500,
            ns: 1_000_000 + random.below(50_000),
        },
        softirq: Times {
            count: 60,
            ns: 240_000 + random.below(9_000),
        },
        ..TimeParts::default()
    }
}

/// The time of a call's context: the calls, and the program in between.
fn time_of_context(call: &CallTotals) -> ContextTime {
    let parts = TimeParts {
        user: 40_000 * call.count,
        syscall_cpu: call.cpu,
        blocked: call.blocked,
        runnable: call.runnable,
        ..TimeParts::default()
    };
    ContextTime {
        tid: call.tid,
        context: call.context,
        entries: call.count,
        wall: parts.sum(),
        parts,
        peers: Vec::new(),
    }
}

/// Adds the first calls to the trace, from `clock` on, with their regions.
fn add_events(profile: &mut Profile, call: &CallTotals, clock: &mut Ns) {
    let (tid, context) = (call.tid, call.context);
    let first = profile.events.len();
    for _ in 0..call.count.min(12) {
        let length = call.total / call.count;
        profile.events.push(TimedEvent {
            tid,
            context,
            call: call.call.clone(),
            start_ns: *clock,
            end_ns: *clock + length,
            ..TimedEvent::default()
        });
        *clock += length + 200_000;
    }
    // A time in the context for each call, and one around all of them for a barrier's region.
    let region = |context, (start_ns, end_ns): (Ns, Ns)| TimedEvent {
        tid,
        context,
        call: REGION.to_owned(),
        start_ns,
        end_ns,
        ..TimedEvent::default()
    };
    let around = profile.events[first..]
        .iter()
        .map(|e| (e.start_ns - 20_000, e.end_ns + 20_000));
    let mut around: Vec<_> = around.map(|span| region(context, span)).collect();
    if let (2 | 4, Some(first), Some(last)) = (context, around.first(), around.last()) {
        let span = (first.start_ns - 60_000, last.end_ns + 60_000);
        around.push(region(context - 1, span));
    }
    if context != ROOT {
        profile.events.extend(around);
    }
}

fn many(
    random: &mut Random,
    tid: u32,
    context: u32,
    name: &str,
    count: u64,
    cpu: Ns,
    asleep: Ns,
) -> CallTotals {
    let mut call = CallTotals {
        tid,
        context,
        call: name.to_owned(),
        count,
        min: u64::MAX,
        ..CallTotals::default()
    };
    let mut histogram = Vec::new();
    for _ in 0..count {
        let cpu = random.between(cpu / 2, cpu * 3 / 2 + 1);
        let asleep = random.between(asleep / 2, asleep * 3 / 2 + 1);
        let runnable = if asleep > 0 {
            random.between(1_000, 9_000)
        } else {
            0
        };
        let all = cpu + asleep + runnable;
        call.cpu += cpu;
        call.blocked += asleep;
        call.runnable += runnable;
        call.total += all;
        call.min = call.min.min(all);
        call.max = call.max.max(all);
        let bucket = all.max(1).ilog2() as usize;
        histogram.resize(histogram.len().max(bucket + 1), 0);
        histogram[bucket] += 1;
    }
    if matches!(name, "read" | "write") {
        call.bytes = count * 832;
    }
    call.errors = match name {
        "openat" => BTreeMap::from([("ENOENT".to_owned(), 17)]),
        "futex" => BTreeMap::from([("EAGAIN".to_owned(), count / 8)]),
        _ => BTreeMap::new(),
    };
    call.errors.retain(|_, n| *n > 0);
    call.histogram = Some(histogram);
    call
}

fn frame(function: &str) -> Frame {
    let module = match function {
        "syscall" | "poll" => "libc.so.6",
        f if f.starts_with("gomp") => "libgomp.so.1",
        f if f.starts_with("opal") => "libopen-pal.so.40",
        f if f.starts_with("PMPI") => "libmpi.so.40",
        _ => "pi",
    };
    Frame::new(StackFrame {
        function: function.to_owned(),
        module: Some(module.to_owned()),
        file: (module == "pi").then(|| "pi.c".to_owned()),
        line: (module == "pi").then_some(21),
    })
}

fn futex(profile: &Profile, pid: u32) -> Futex {
    let waits = profile.data.calls.iter().filter(|c| c.call == "futex");
    let (count, ns, max) = waits.fold((0, 0, 0), |(count, ns, max), call| {
        (count + call.count, ns + call.blocked, call.max.max(max))
    });
    Futex {
        pid,
        address: 0x5555_5555_8040,
        context: 2,
        name: None,
        waits: count,
        ns,
        max,
        wakes: profile
            .data
            .threads
            .iter()
            .map(|t| Wake {
                waker: pid,
                woken: t.tid,
                count: 50,
                ns: ns / profile.data.threads.len() as u64,
            })
            .collect(),
    }
}

/// Names with characters that break formats.
const NAMES: [&str; 8] = [
    "read",
    "futex",
    "a b",
    "a;b",
    "\"quoted\"",
    "<i>&amp;</i>",
    "Ω\u{301} → 日本",
    "",
];

/// A random profile: names that break formats, numbers near the limits, calls in contexts without a
/// row, calls of threads without a row.
pub(crate) fn random(seed: u64, size: u64) -> Profile {
    let random = &mut Random::new(seed);
    let mut profile = Profile {
        header: Header {
            run: format!("run{}", random.below(3)),
            host: text(random),
            pid: (random.below(2) == 0).then(|| number(random).low32()),
            command: vec![text(random), text(random)],
            rank: (random.below(2) == 0).then(|| Rank {
                rank: random.below(4).fit(),
                size: None,
                local_rank: None,
                local_size: None,
                launcher: Launcher::Pmix,
                job: None,
            }),
            ..Header::default()
        },
        ..Profile::default()
    };
    let data = &mut profile.data;
    data.at_ns = number(random);
    for i in 0..random.below(size) {
        data.contexts
            .push(random_context(random, i.fit::<u32>() + 1, size));
    }
    for i in 0..random.below(size) {
        data.threads.push(random_thread(random, i.fit::<u32>()));
    }
    for _ in 0..random.below(size) {
        data.context_times.push(random_context_time(random, size));
        data.calls.push(random_call(random, size));
        data.stacks.push(random_stack(random, size));
        data.ends.push(random_ends(random, size));
        profile.events.push(random_event(random, size));
    }
    if random.below(2) == 0 {
        data.lost.insert(text(random), number(random));
        profile.end = Some(RecordingEnd {
            at_ns: number(random),
            status: Some(number(random).low32().cast_signed()),
        });
    }
    profile
}

fn random_context(random: &mut Random, id: u32, size: u64) -> Context {
    Context {
        id,
        parent: (random.below(2) == 0).then(|| random.below(size).fit::<u32>()),
        kind: ContextKind::Mark,
        name: text(random),
        module: (random.below(2) == 0).then(|| text(random)),
        address: (random.below(2) == 0).then(|| number(random)),
        ..Context::default()
    }
}

fn random_thread(random: &mut Random, tid: u32) -> Thread {
    Thread {
        migrations: None,
        node_pages: None,
        tid,
        pid: random.below(3).fit(),
        name: text(random),
        started_ns: number(random),
        ended_ns: (random.below(2) == 0).then(|| number(random)),
        parts: TimeParts {
            user: number(random),
            blocked: number(random),
            ..TimeParts::default()
        },
    }
}

fn random_context_time(random: &mut Random, size: u64) -> ContextTime {
    ContextTime {
        tid: random.below(size).fit(),
        context: random.below(size).fit(),
        entries: number(random),
        wall: number(random),
        parts: TimeParts {
            user: number(random),
            runnable: number(random),
            ..TimeParts::default()
        },
        peers: (0..random.below(3))
            .map(|_| PeerTime {
                ranks: (0..random.below(3).fit()).collect(),
                calls: number(random),
                wall: number(random),
            })
            .collect(),
    }
}

fn random_call(random: &mut Random, size: u64) -> CallTotals {
    CallTotals {
        tid: random.below(size).fit(),
        context: random.below(size).fit(),
        call: text(random),
        count: number(random),
        total: number(random),
        max: number(random),
        errors: BTreeMap::from([(text(random), number(random))]),
        histogram: Some(vec![number(random); random.below(70).fit::<usize>()]),
        unfinished: (random.below(4) == 0).then(|| number(random)),
        ..CallTotals::default()
    }
}

fn random_stack(random: &mut Random, size: u64) -> Stack {
    Stack {
        tid: random.below(size).fit(),
        call: text(random),
        frames: (0..random.below(4)).map(|_| frame(&text(random))).collect(),
        count: number(random),
        ns: number(random),
        ..Stack::default()
    }
}

fn random_ends(random: &mut Random, size: u64) -> BothEnds {
    let mut wait = || {
        (random.below(3) > 0).then(|| Wait {
            call: text(random),
            object: (random.below(2) == 0).then(|| text(random)),
            frames: (0..random.below(3)).map(|_| frame(&text(random))).collect(),
        })
    };
    let (begin, end) = (wait(), wait());
    BothEnds {
        tid: random.below(size).fit(),
        begin,
        end,
    }
}

fn random_event(random: &mut Random, size: u64) -> TimedEvent {
    TimedEvent {
        tid: random.below(size).fit(),
        context: random.below(size).fit(),
        call: text(random),
        start_ns: number(random),
        end_ns: number(random),
        ret: number(random).cast_signed(),
        open: random.below(4) == 0,
        waker: (random.below(3) == 0).then(|| random.below(size).fit()),
    }
}

fn text(random: &mut Random) -> String {
    NAMES[random.below(NAMES.len() as u64).fit::<usize>()].to_owned()
}

fn number(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(3),
        1 => random.below(1 << 40),
        2 => u64::MAX - random.below(3),
        _ => random.below(1_000_000),
    }
}
