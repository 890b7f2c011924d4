//! Exports of a sampled profile: the readers find the times of functions, of the kernel and of waits,
//! which add up to the threads' measured times.

use std::collections::BTreeMap;

use spile_profile::model::*;

use super::firefox::Firefox;
use super::page::visit_by;
use super::*;

const S: Ns = 1_000_000_000;

fn frame(function: &str, module: &str, line: u32) -> Frame {
    Frame::new(StackFrame {
        function: function.to_owned(),
        module: Some(module.to_owned()),
        file: (line > 0).then(|| "busy.c".to_owned()),
        line: (line > 0).then_some(line),
    })
}

/// Stacks that begin with a function of the program, which `main` called.
fn sample(activity: Activity, call: &str, function: &str, kernel: &str) -> Sample {
    let mut kernel = vec![frame(kernel, "kernel", 0)];
    kernel.retain(|f| !f.function.is_empty());
    Sample {
        tid: 1,
        activity,
        call: call.to_owned(),
        kernel,
        frames: vec![frame(function, "busy", 12), frame("main", "busy", 40)],
        count: 1,
        ..Sample::default()
    }
}

fn call(tid: u32, name: &str, count: u64, cpu: Ns, blocked: Ns) -> CallTotals {
    CallTotals {
        tid,
        call: name.to_owned(),
        count,
        total: cpu + blocked,
        cpu,
        blocked,
        ..CallTotals::default()
    }
}

/// A thread that computes and reads, and one that waits for a lock. 0.05 s are unknown.
fn sampled() -> Run {
    let times = |ns| Times { count: 1, ns };
    let mut profile = Profile::default();
    profile.header.command = vec!["./busy".to_owned()];
    profile.header.host = "node1".to_owned();
    profile.header.pid = Some(1);
    profile.header.options.samples = Some(SampleRate {
        event: "cpu-clock".to_owned(),
        hz: 99,
    });
    let data = &mut profile.data;
    data.at_ns = 8 * S;
    for (tid, user, syscall_cpu, blocked) in [(1, 4 * S, S, 2 * S), (2, S / 10, S / 10, 3 * S)] {
        data.threads.push(Thread {
            tid,
            pid: 1,
            name: "busy".to_owned(),
            ended_ns: Some(8 * S),
            parts: TimeParts {
                user,
                syscall_cpu,
                blocked,
                runnable: S / 2,
                fault_minor: times(S / 4),
                irq: times(S / 5),
                ..TimeParts::default()
            },
            ..Thread::default()
        });
    }
    data.calls = vec![
        call(1, "read", 7, S, 2 * S),
        call(2, "futex", 3, S / 10, 3 * S),
        call(2, "getpid", 5, 0, 0),
    ];
    let crunch = Sample {
        count: 3,
        ..sample(Activity::User, "", "crunch", "")
    };
    let waiter = Sample {
        tid: 2,
        ns: 3 * S,
        ..sample(Activity::Blocked, "futex", "waiter", "")
    };
    data.samples = vec![
        crunch,
        sample(Activity::User, "", "other", ""),
        sample(Activity::Call, "read", "reader", "vfs_read"),
        sample(Activity::Blocked, "read", "reader", ""),
        sample(Activity::Fault, "", "toucher", "clear_page"),
        waiter,
    ];
    Run::new(vec![profile])
}

/// What the parts of [`sampled`] say of the innermost locations.
fn own() -> BTreeMap<String, Ns> {
    let own = [
        ("crunch", 3 * S),
        ("other", S),
        ("vfs_read", S),
        ("(blocked)", 5 * S),
        ("(waiting for a CPU)", S),
        ("(minor page faults)", S / 2),
        ("(interrupts)", S / 5 * 2),
        ("(user code)", S / 10),
        ("futex", S / 10),
    ];
    own.map(|(name, ns)| (name.to_owned(), ns)).into()
}

/// What they say of some locations with those that they called.
const WITHIN: [(&str, Ns); 6] = [
    ("main", 10 * S + S / 4),
    ("reader", 3 * S),
    ("read", 3 * S),
    ("waiter", 3 * S),
    ("futex", 3 * S + S / 10),
    ("toucher", S / 4),
];

/// The threads' measured time.
fn measured(run: &Run) -> Ns {
    let threads = run.profiles.iter().flat_map(|p| &p.data.threads);
    threads.map(|t| t.parts.sum()).sum()
}

#[test]
fn parts_add_up() {
    assert_eq!(own().values().sum::<Ns>(), measured(&sampled()));
}

#[test]
fn trees_have_samples() {
    let run = sampled();
    for (format, unit) in [("hatchet", 1), ("hatchet-literal", 1), ("tau", 1000)] {
        let found = check(&run, format);
        let own = own()
            .into_iter()
            .map(|(name, ns)| (name, ns / unit))
            .collect();
        same(&found, &own, 0);
        assert_eq!(found["inclusive"], 16 * S / unit, "{format}");
        assert_eq!(found["lines"]["crunch"], 12, "{format}: {found}");
    }
}

#[test]
fn flame_graphs_have_samples() {
    let run = sampled();
    let (name, bytes) = file(&run, "folded");
    let shown: BTreeMap<_, _> = browser::speedscope(&name, &bytes).into_iter().collect();
    for (name, ns) in own() {
        assert_eq!(shown[&name].replace(',', ""), ns.to_string(), "{name}");
    }
    let found = check(&run, "speedscope");
    same(&found, &own(), 0);
    let sums = found["exclusive"].as_object().expect("sums").values();
    let sum: Option<u64> = sums.map(Value::as_u64).sum();
    assert_eq!(sum, Some(measured(&run)));
}

/// The rows of `go tool pprof -top`: own and whole numbers by name, and the sum of the former.
fn pprof(run: &Run, options: &[&str]) -> (BTreeMap<String, (String, String)>, String) {
    let options = [&["-top", "-unit=ns", "-nodecount=0"], options].concat();
    let text = super::pprof(run, &options);
    let sum = text
        .lines()
        .find_map(|l| l.strip_prefix("Showing nodes accounting for "));
    let sum = sum.and_then(|l| l.split(',').next()).unwrap_or_default();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (numbers, name) = cells.split_at_checked(5)?;
        let number = |at: usize| numbers[at].trim_end_matches("ns").to_owned();
        Some((name.join(" "), (number(0), number(3))))
    };
    let rows = text.lines().skip_while(|l| !l.contains("flat%")).skip(1);
    (
        rows.filter_map(row).collect(),
        sum.trim_end_matches("ns").to_owned(),
    )
}

#[test]
fn pprof_has_samples() {
    let run = sampled();
    let (rows, sum) = pprof(&run, &["-nodefraction=0"]);
    assert_eq!(sum, measured(&run).to_string());
    for (name, ns) in own() {
        assert_eq!(rows[&name].0, ns.to_string(), "{name}");
    }
    for (name, ns) in WITHIN {
        assert_eq!(rows[name].1, ns.to_string(), "{name}");
    }
    // All calls count once, also those that took no time.
    let (rows, sum) = pprof(&run, &["-nodefraction=0", "-sample_index=calls"]);
    assert_eq!(sum, "15");
    for (name, count) in [
        ("read", "7"),
        ("futex", "3"),
        ("getpid", "5"),
        ("reader", "7"),
    ] {
        assert_eq!(rows[name].1, count, "{name}");
    }
    let (_, blocked) = pprof(&run, &["-tagfocus=state=blocked"]);
    assert_eq!(blocked, (5 * S).to_string());
    let (_, second) = pprof(&run, &["-tagfocus=thread=2 busy", "-nodefraction=0"]);
    assert_eq!(
        second,
        run.profiles[0].data.threads[1].parts.sum().to_string()
    );
    let raw = super::pprof(&run, &["-raw"]);
    for mapping in ["1: 0x0/0x0/0x0 busy ", " 0x0/0x0/0x0 [kernel] "] {
        assert!(raw.contains(mapping), "{mapping} in {raw}");
    }
}

/// What the page's table of functions has, and the first row as it is shown.
const FUNCTIONS: &str = r##"
found.functions = functions().rows.map(f => [f.name, f.own, f.time]);
const table = [...document.querySelectorAll("section")].find(s => s.firstChild.textContent === "Functions");
found.rows = Number(table.querySelector("table").dataset.rows);
table.querySelector("tbody tr").click();
found.search = document.querySelector("#flame input").value;
"##;

#[test]
fn the_page_has_functions_with_what_they_called() {
    let found = visit_by(&sampled(), FUNCTIONS, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    let rows = found["functions"].as_array().expect("a list");
    assert_eq!(found["rows"], rows.len());
    let row = |name: &str| rows.iter().find(|row| row[0] == name);
    let mut compared = 0;
    for (index, (name, ns)) in own().into_iter().map(|row| (1, row)).chain(
        WITHIN
            .iter()
            .map(|(name, ns)| (2, ((*name).to_owned(), *ns))),
    ) {
        // The table has functions of the program; states are colours.
        let Some(row) = row(&name) else { continue };
        assert_eq!(row[index], ns, "{name}: {found}");
        compared += 1;
    }
    assert!(compared >= 4, "{found}");
    assert_eq!(
        found["search"],
        format!("^{}$", rows[0][0].as_str().expect("text"))
    );
}

#[test]
fn the_firefox_profiler_has_samples() {
    let run = sampled();
    let folder = tempfile::tempdir().expect("a folder");
    let firefox = Firefox::read(&put(&run, "firefox", folder.path()));
    let mut sums: BTreeMap<String, (Ns, Ns)> = BTreeMap::new();
    for (name, handle) in firefox.threads() {
        assert!(["1 busy", "2 busy"].contains(&&*name), "{name}");
        for (name, own, within) in firefox.functions(&handle) {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + own, sum.1 + within);
        }
    }
    assert_eq!(sums.values().map(|s| s.0).sum::<Ns>(), measured(&run));
    let by_name = |name: &str| {
        sums.iter()
            .find(|(key, _)| key.rsplit('!').next() == Some(name))
    };
    for (name, ns) in own() {
        assert_eq!(
            by_name(&name).map(|(_, s)| s.0),
            Some(ns),
            "{name}: {sums:?}"
        );
    }
    for (name, ns) in WITHIN {
        assert_eq!(
            by_name(name).map(|(_, s)| s.1),
            Some(ns),
            "{name}: {sums:?}"
        );
    }
    assert!(sums.contains_key("busy!crunch") && sums.contains_key("[kernel]!vfs_read"));
    let first = ["thread", "samples", "--include-idle", "--thread", "t-0"];
    let categories = firefox.ask(&first)["categoryBreakdown"]["categories"].take();
    let of = |name: &str| {
        let rows = categories.as_array().expect("categories");
        let row = rows.iter().find(|row| row["name"] == name);
        row.and_then(|row| row["samples"].as_f64())
    };
    assert_eq!(of("user code"), Some(4000.0), "{categories}");
    assert_eq!(of("system calls on a CPU"), Some(1000.0), "{categories}");
    assert_eq!(of("blocked"), Some(2000.0), "{categories}");
    assert_eq!(of("minor page faults"), Some(250.0), "{categories}");
}

#[test]
fn the_firefox_profiler_has_traces() {
    let run = four();
    let folder = tempfile::tempdir().expect("a folder");
    let firefox = Firefox::read(&put(&run, "firefox", folder.path()));
    let threads = firefox.threads();
    assert_eq!(threads.len(), 12);
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut events = 0;
    for (_, handle) in threads {
        for (name, length) in firefox.markers(&handle) {
            let name = name.split(" (").next().unwrap_or_default();
            *sums.entry(name.to_owned()).or_default() += length;
            events += 1;
        }
    }
    assert_eq!(
        events,
        run.profiles.iter().map(|p| p.events.len()).sum::<usize>()
    );
    for (name, ns) in by_event(&run) {
        assert!(
            sums[&name].abs_diff(ns) < 100,
            "{name}: {} for {ns}",
            sums[&name]
        );
    }
}

#[test]
fn odd_profiles_are_read() {
    for sampled in [false, true] {
        let mut run = odd(0);
        for profile in &mut run.profiles {
            profile.header.options.samples = sampled.then(|| SampleRate {
                event: String::new(),
                hz: 0,
            });
        }
        check(&run, "otlp");
        let folder = tempfile::tempdir().expect("a folder");
        let firefox = Firefox::read(&put(&run, "firefox", folder.path()));
        let threads = firefox.threads();
        assert!(!threads.is_empty());
        for (_, handle) in &threads[..threads.len().min(3)] {
            firefox.functions(handle);
        }
    }
}

#[test]
fn opentelemetry_has_samples() {
    let run = sampled();
    let found = check(&run, "otlp");
    same(&found, &own(), 0);
    for (name, ns) in WITHIN {
        assert_eq!(found["inclusive"][name], ns, "{name}: {found}");
    }
    for (place, ns) in [
        ("crunch busy.c:12 busy", 3 * S),
        ("vfs_read :0 [kernel]", S),
    ] {
        assert_eq!(found["places"][place], ns, "{place}: {found}");
    }
    for (thread, row) in ["pid 1 1 busy", "pid 1 2 busy"]
        .into_iter()
        .zip(&run.profiles[0].data.threads)
    {
        assert_eq!(found["threads"][thread], row.parts.sum(), "{found}");
    }
    assert_eq!(found["states"]["blocked"], 5 * S);
    assert_eq!(found["states"]["user code"], 4 * S + S / 10);
    assert_eq!(found["calls"]["pid 1"], 15);
}
