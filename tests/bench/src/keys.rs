//! Arrays of many keys: the cost of a key's first and later hits, the memory, and the whole run
//! with the keys of most hits at its end, compared with bpftrace.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::peers::{Tool, built};
use crate::{SAY, bpftrace_tool, median, millis, named, report, spile};

/// Numbers of keys, each with its number of measurements.
const SIZES: [(u64, usize); 4] = [(100, 9), (20_000, 9), (200_000, 7), (1_000_000, 5)];
/// Number of times that the workload goes through the keys.
const ROUNDS: usize = 3;
/// Additional capacity for calls of other processes.
const OTHERS: u64 = 4096;
/// Number of keys for which the default capacity is enough.
const FEW: u64 = 1000;
/// Time limit for the end of a tool.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The measurements of a run.
struct Run {
    /// Nanoseconds of a call with a new key, and with an existing one.
    insert: f64,
    hit: f64,
    /// Peak memory in megabytes, of the process and of its maps.
    memory: f64,
    /// Milliseconds from start to end.
    whole: f64,
}

/// Measures and prints a table for each size.
pub(crate) fn run() {
    println!(
        "\narrays of many keys: `a[fd] <<< 1` at close(fd), {ROUNDS} times through N numbers; medians"
    );
    for (keys, times) in SIZES {
        let tools = tools(keys);
        let mut problems = Vec::new();
        let mut rows: Vec<Vec<Run>> = tools.iter().map(|_| Vec::new()).collect();
        let mut bare: Vec<(f64, f64)> = Vec::new();
        for _ in 0..times {
            bare.extend(load(keys));
            for (tool, row) in tools.iter().zip(&mut rows) {
                match tool.installed().then(|| measure(tool, keys)) {
                    Some(Ok(run)) => row.push(run),
                    Some(Err(e)) => problems.push(e),
                    None => problems.push(format!("{} is not installed", tool.name)),
                }
            }
        }
        report(problems);
        table(keys, &bare, &tools, &rows);
    }
}

fn tools(keys: u64) -> [Tool; 2] {
    let capacity = match keys > FEW {
        true => (format!("[{}]", keys + OTHERS), keys + OTHERS),
        false => (String::new(), OTHERS),
    };
    let script = format!(
        "global a{} probe syscall.close {{ a[fd] <<< 1 }} \
         probe end {{ foreach (k in a- limit 10) println(k, \" \", @count(a[k])) }}",
        capacity.0
    );
    let program = "tracepoint:syscalls:sys_enter_close { @[args.fd] = count(); } \
                   END { print(@, 10); clear(@); }";
    let mut peer = bpftrace_tool("bpftrace", program);
    let variable = format!("BPFTRACE_MAX_MAP_KEYS={}", capacity.1);
    if peer.installed() {
        peer.argv.splice(0..0, ["env".into(), variable]);
    }
    [named(spile(&["-e", &script, "-E", SAY]), "spile"), peer]
}

fn measure(tool: &Tool, keys: u64) -> Result<Run, String> {
    let running = tool.start()?;
    let begin = Instant::now();
    let times = load(keys);
    let loaded = begin.elapsed();
    let pid = running.id();
    let (maps, mapped) = (map_bytes(pid), mapped_bytes(pid));
    let armed = running.armed;
    let cost = running.stop_within(END_LIMIT);
    let (insert, hit) = times.ok_or("the workload has failed")?;
    let process = (cost.peak_kb << 10).saturating_sub(mapped);
    Ok(Run {
        insert,
        hit,
        memory: (process + maps) as f64 / f64::from(1 << 20),
        whole: millis(armed + loaded + cost.tear_down),
    })
}

/// Runs the workload on the last processor: nanoseconds of a call in the first round, and the
/// minimum of the others.
fn load(keys: u64) -> Option<(f64, f64)> {
    let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let out = Command::new("taskset")
        .args(["-c", &last.to_string()])
        .arg(built("load"))
        .args(["keys", &keys.to_string(), &ROUNDS.to_string()])
        .output()
        .expect("taskset (util-linux) runs the workload");
    let text = String::from_utf8_lossy(&out.stderr);
    let mut times = text.split_whitespace().map_while(|n| n.parse::<f64>().ok());
    let first = times.next()?;
    Some((first, times.reduce(f64::min)?))
}

/// Bytes of the maps that a process has open, as the kernel reports them.
fn map_bytes(pid: u32) -> u64 {
    let mut maps: Vec<(u64, u64)> = Vec::new();
    for file in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(bytes)) = (field("map_id:"), field("memlock:")) {
            maps.push((id, bytes));
        }
    }
    // A map can have several descriptors.
    maps.sort();
    maps.dedup();
    maps.iter().map(|(_, bytes)| bytes).sum()
}

/// Bytes of maps that also count as the process's memory, because it has mapped them.
fn mapped_bytes(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/smaps");
    let text = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
    let (mut map, mut bytes) = (false, 0);
    for line in text.lines() {
        if line.split(' ').next().is_some_and(|w| w.contains('-')) {
            map = line.contains("bpf-map");
        } else if let (true, Some(size)) = (map, line.strip_prefix("Rss:")) {
            let kilobytes = size.trim().trim_end_matches(" kB").parse::<u64>();
            bytes += kilobytes.unwrap_or(0) << 10;
        }
    }
    bytes
}

fn table(keys: u64, bare: &[(f64, f64)], tools: &[Tool], rows: &[Vec<Run>]) {
    let middle = |values: Vec<f64>| median(values);
    let floor = (
        middle(bare.iter().map(|b| b.0).collect()),
        middle(bare.iter().map(|b| b.1).collect()),
    );
    println!("{keys} keys, {} times", bare.len());
    println!(
        "{:<12} {:>12} {:>12} {:>12} {:>12}",
        "", "insert ns", "hit ns", "memory MB", "whole ms"
    );
    println!("{:<12} {:>12.1} {:>12.1}", "untraced", floor.0, floor.1);
    let column = |row: &[Run], f: &dyn Fn(&Run) -> f64| middle(row.iter().map(f).collect());
    let columns: [&dyn Fn(&Run) -> f64; 4] = [
        &|r| r.insert - floor.0,
        &|r| r.hit - floor.1,
        &|r| r.memory,
        &|r| r.whole,
    ];
    for (tool, row) in tools.iter().zip(rows).filter(|(_, row)| !row.is_empty()) {
        let cells = columns.map(|f| format!("{:>12.1}", column(row, f)));
        println!("{:<12} {}", tool.name, cells.join(" "));
    }
    // In turns, so that disturbances affect both.
    if let [ours, theirs] = rows {
        let ratio = |f: &dyn Fn(&Run) -> f64| {
            middle(ours.iter().zip(theirs).map(|(a, b)| f(a) / f(b)).collect())
        };
        let cells = columns.map(|f| format!("{:>12.2}", ratio(f)));
        println!("{:<12} {}", "ratio", cells.join(" "));
    }
}
