//! The flame graph of the page in headless Chromium: its numbers are those of the text report, and it
//! searches, zooms and filters by clicks and keys.

use spile_profile::answer::{By, Finding, findings};
use spile_profile::report::{View, text, time};
use spile_profile::{
    Activity, CallTotals, Frame, Ns, Run, Sample, SampleRate, StackFrame, Thread, TimeParts,
    WaitKind,
};
use spile_profile::{Profile, TimePart};

use super::page::{numbers, strings, visit_by};
use super::testgen::Random;

const MS: Ns = 1_000_000;
/// Number of threads of the large run.
const THREADS: u32 = 500;

fn frame(function: &str, line: u32) -> Frame {
    Frame::new(StackFrame {
        function: function.to_owned(),
        module: Some("busy".to_owned()),
        file: Some("/src/busy.c".to_owned()),
        line: Some(line),
    })
}

/// A thread with its time in user mode and blocked in a call, in milliseconds.
fn thread(profile: &mut Profile, tid: u32, name: &str, user: Ns, (call, blocked): (&str, Ns)) {
    profile.data.threads.push(Thread {
        tid,
        pid: 1,
        name: name.to_owned(),
        ended_ns: Some((user + blocked + 10) * MS),
        parts: TimeParts {
            user: user * MS,
            blocked: blocked * MS,
            runnable: 9 * MS,
            syscall_cpu: MS,
            ..TimeParts::default()
        },
        ..Thread::default()
    });
    profile.data.calls.push(CallTotals {
        tid,
        call: call.to_owned(),
        count: 7,
        total: (blocked + 1) * MS,
        blocked: blocked * MS,
        cpu: MS,
        ..CallTotals::default()
    });
}

fn sample(profile: &mut Profile, tid: u32, call: &str, count: u64, frames: &[(&str, u32)]) {
    let blocked = !call.is_empty();
    let (activity, ns) = match blocked {
        true => (Activity::Blocked, count * MS),
        false => (Activity::User, 0),
    };
    let frames = frames.iter().map(|(name, line)| frame(name, *line));
    profile.data.samples.push(Sample {
        tid,
        activity,
        call: call.to_owned(),
        frames: frames.collect(),
        count,
        ns,
        ..Sample::default()
    });
}

/// Two threads that compute and wait for a lock, one that writes, one that only sleeps.
fn sampled() -> Run {
    let mut profile = Profile::default();
    profile.header.command = vec!["./busy".to_owned(), "a b".to_owned()];
    profile.header.pid = Some(1);
    profile.header.options.samples = Some(SampleRate {
        event: "cpu-clock".to_owned(),
        hz: 99,
    });
    profile.data.at_ns = 2_000 * MS;
    for tid in [1, 2] {
        thread(&mut profile, tid, "worker", 300, ("futex", 600));
        sample(&mut profile, tid, "", 20, &[("crunch", 12), ("main", 30)]);
        sample(&mut profile, tid, "", 10, &[("polish", 17), ("main", 31)]);
        let lock = [("__lll_lock_wait", 5), ("worker", 21), ("main", 32)];
        sample(&mut profile, tid, "futex", 600, &lock);
    }
    thread(&mut profile, 3, "writer", 40, ("fsync", 500));
    sample(&mut profile, 3, "", 5, &[("0x6478b", 1), ("main", 33)]);
    sample(&mut profile, 3, "fsync", 500, &[("save", 44), ("main", 33)]);
    let inner = Frame::make_mut(&mut profile.data.samples[6].frames[0]);
    (inner.line, inner.file) = (None, None);
    thread(&mut profile, 4, "sleeper", 0, ("poll", 1_900));
    Run::new(vec![profile])
}

/// What a user does with the flame graph.
const HANDS: &str = r##"
const { canvas, ui } = graph;
const number = name => Number(canvas.dataset[name]);
const text = what => [...document.querySelectorAll(what)].map(node => node.textContent);
const key = (key, target = document.body) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const write = (field, text) => { field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); };
const names = () => Array.from(graph.tree.at, (frame, i) => graph.tree.total[i] > 0 && i ? data.flame.frames[frame][0] : "");
const frame = name => names().indexOf(name);
const point = i => {
  const box = canvas.getBoundingClientRect(), spot = graph.place(i);
  return { clientX: box.left + spot.x, clientY: box.top + spot.y, bubbles: true };
};
const click = i => canvas.dispatchEvent(new MouseEvent("click", point(i)));
found.ready = document.body.dataset.ready;
found.head = [text("h1")[0] + ": " + text(".facts")[0], ...text(".sentences li"), ...text(".lines li")];
found.whole = number("whole");
found.names = names().filter(name => name);
found.parts = graph.tree.sums.subarray(0, STATES.length);
found.parts = Array.from(found.parts);

// Search by keys.
key("/");
found.focus = document.activeElement === ui.search;
found.matches = {};
for (const name of ["^crunch$", "crunch|polish", "LOCK_wait", "main|crunch", "busy\\+0x", "nothing"]) {
  write(ui.search, name);
  found.matches[name] = number("matched");
}
found.said = graph.matched.textContent;
write(ui.search, "(");
found.bad = ui.search.classList.contains("bad");
write(ui.search, "polish");
key("Enter", ui.search);
found.next = canvas.dataset.picked;
key("Escape", ui.search);
found.cleared = ui.search.value === "" && number("matched") === 0;
key("Escape");

// Zoom by clicks and keys.
click(frame("crunch"));
found.top = [canvas.dataset.top, number("time"), Math.round(graph.place(frame("crunch")).wide) === canvas.clientWidth];
found.way = text(".way button");
click(frame("crunch"));
found.again = canvas.dataset.top;
click(frame("save"));
key("Escape");
found.back = canvas.dataset.top;
canvas.focus();
for (const name of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"]) key(name, canvas);
found.walked = canvas.dataset.top;
key("0");

// What the pointer says.
canvas.dispatchEvent(new PointerEvent("pointermove", point(frame("worker"))));
found.tip = tip.innerText;
canvas.dispatchEvent(new PointerEvent("pointerleave"));

// Callers below.
key("i");
found.inverted = [number("whole"), (graph.tree.kids[0] || []).map(i => [names()[i], graph.tree.total[i]])];
key("i");

// Threads, sleepers, states.
write(ui.only, "worker");
found.workers = number("whole");
write(ui.only, "3 writer");
found.one = number("whole");
write(ui.only, "");
ui.sleepers.click();
found.sleepers = number("whole");
ui.sleepers.click();
const entry = name => [...document.querySelectorAll("#legend button")].find(b => b.textContent.startsWith(name));
entry("waiting for a lock").click();
found.withoutLocks = number("whole");
entry("on a CPU").click();
found.onCpu = number("whole");
entry("all").click();
found.allStates = number("whole");

// A sentence, and a row of a table.
document.querySelector(".sentences li").click();
found.sentence = [ui.search.value, number("matched")];
const table = title => [...document.querySelectorAll("section")].find(s => s.firstChild.textContent === title);
table("Threads").querySelectorAll("tbody tr")[2].click();
found.row = [ui.only.value, number("whole")];
write(ui.only, "");

// Tables.
const RealBlob = Blob;
window.Blob = function (parts, options) { found.csv = parts[0]; return new RealBlob(parts, options); };
const places = table("Places");
found.heads = [...places.querySelectorAll("th")].map(h => h.textContent);
found.places = [...places.querySelectorAll("tbody tr")].map(row => row.children[1].textContent);
write(places.querySelector("input"), "crunch|save");
found.rows = Number(places.querySelector("table").dataset.rows);
[...places.querySelectorAll("button")].find(b => b.textContent === "CSV").click();
"##;

fn of(findings: &[Finding], function: &str) -> Ns {
    let with = findings.iter().filter(|f| f.function == function);
    with.map(|f| f.ns).sum()
}

#[test]
fn its_numbers_are_those_of_the_text_report() {
    let run = sampled();
    let (summary, findings) = (run.summary(), findings(&run, By::Function));
    let found = visit_by(&run, HANDS, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    let report = text(&run, &View::new(1000, 8)).replace('`', "");
    let head = report.split("\n\n").next().unwrap_or_default();
    assert_eq!(strings(&found["head"]), head.lines().collect::<Vec<_>>());
    let whole = summary.total.wall;
    assert_eq!(found["whole"], whole);
    assert_eq!(found["matches"]["^crunch$"], of(&findings, "crunch"));
    assert_eq!(found["matches"]["crunch|polish"], 600 * MS);
    // (Within a match, another one adds nothing.)
    assert_eq!(found["matches"]["main|crunch"], (2 * 900 + 540) * MS);
    let lock = findings
        .iter()
        .find(|f| f.wait == Some(WaitKind::Lock))
        .expect("a lock");
    assert_eq!(found["matches"]["LOCK_wait"], lock.ns);
    assert_eq!(found["matches"]["busy\\+0x"], 40 * MS);
    assert_eq!(found["said"], "0.0% of the time, 0 ns, in 0 frames");
    let parts = numbers(&found["parts"]);
    let blocked = summary.total.part(TimePart::Blocked);
    assert_eq!(parts[0], summary.total.part(TimePart::User));
    assert_eq!(parts[1], summary.total.part(TimePart::SyscallCpu));
    assert_eq!(parts[3], summary.total.part(TimePart::Runnable));
    assert_eq!(parts[4..6], [lock.ns, blocked - lock.ns]);
    assert_eq!(parts.iter().sum::<u64>(), whole);
    let times: Vec<String> = findings.iter().map(|f| time(f.ns)).collect();
    assert_eq!(strings(&found["places"]), times);
    let names = strings(&found["names"]);
    assert!(names.contains(&"busy+0x6478b"), "{names:?}");
}

#[test]
fn it_searches_zooms_and_filters() {
    let run = sampled();
    let found = visit_by(&run, HANDS, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    for what in ["focus", "bad", "cleared"] {
        assert_eq!(found[what], true, "{what}: {found}");
    }
    let whole = run.summary().total.wall;
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(found["next"], "polish");
    assert_eq!(found["top"], json("[\"crunch\", 400000000, true]"));
    assert_eq!(found["way"], json("[\"all\", \"main\", \"crunch\"]"));
    assert_eq!(found["again"], "all");
    assert_eq!(found["back"], "all");
    assert_eq!(found["walked"], "save", "{found}");
    let tip = found["tip"].as_str().expect("text");
    for said in ["worker", "busy.c:21", "1.20 s", "waiting for a lock"] {
        assert!(tip.contains(said), "{said}: {tip}");
    }
    let inverted = &found["inverted"];
    assert_eq!(inverted[0], whole);
    let roots = inverted[1].to_string();
    assert!(roots.contains("[\"crunch\",400000000]"), "{roots}");
    assert!(!roots.contains("main"), "{roots}");
    assert_eq!(found["workers"], 2 * 910 * MS);
    assert_eq!(found["one"], 550 * MS);
    assert_eq!(found["sleepers"], whole + 1_910 * MS);
    assert_eq!(found["withoutLocks"], whole - 1_200 * MS);
    assert_eq!(found["onCpu"], (640 + 3) * MS);
    assert_eq!(found["allStates"], whole);
    assert_eq!(
        found["sentence"],
        json("[\"^__lll_lock_wait$\", 1200000000]")
    );
    assert_eq!(found["row"], json("[\"3 writer\", 550000000]"));
    assert_eq!(found["rows"], 2);
    let csv = found["csv"].as_str().expect("text");
    assert!(csv.starts_with("place,time (ns),share,"), "{csv}");
    assert!(csv.contains("\r\ncrunch,400000000,"), "{csv}");
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

/// Many threads on a thousand paths of 40 functions, each thread on twenty of them.
fn many() -> Run {
    let mut profile = sampled().profiles.remove(0);
    let mut random = Random::new(7);
    for tid in 100..100 + THREADS {
        thread(&mut profile, tid, "worker", 300, ("futex", 600));
        for _ in 0..20 {
            let path = random.below(1000);
            let depth = random.between(10, 40);
            // Paths have beginnings in common.
            let mut frames: Vec<(String, u32)> = (0..depth)
                .map(|level| (format!("level_{level}_{}", path >> (10 - level.min(10))), 1))
                .collect();
            frames.reverse();
            let frames: Vec<(&str, u32)> = frames.iter().map(|(f, l)| (&**f, *l)).collect();
            let count = random.between(1, 30);
            sample(&mut profile, tid, "", count, &frames);
        }
    }
    Run::new(vec![profile])
}

/// Opens a page and zooms, each time until the picture is there.
const STOPWATCH: &str = r##"
found.opened = performance.now();
found.whole = Number(graph.canvas.dataset.whole);
found.threads = document.querySelectorAll("table tbody tr").length;
const zooms = [];
for (let i = 0; i < 40; i++) {
  const kids = graph.tree.at.map((_, n) => n).filter(n => graph.tree.total[n] > graph.tree.total[0] / 300);
  const began = performance.now();
  graph.zoom(i % 2 ? 0 : kids[i * 7 % kids.length]);
  graph.canvas.getContext("2d").getImageData(0, 0, 1, 1);
  zooms.push(performance.now() - began);
}
zooms.sort((a, b) => a - b);
found.zoom = zooms[20];
found.slowest = zooms[39];
found.drawn = Number(graph.canvas.dataset.drawn);
"##;

#[test]
fn many_threads_are_one_picture() {
    let run = many();
    let found = visit_by(&run, STOPWATCH, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["whole"], run.summary().total.wall);
    // (What it took depends on the machine.)
    println!("milliseconds: {found}");
}

/// Takes the first region.
const IN_REGION: &str = r##"
found.all = Number(graph.canvas.dataset.whole);
const { regions } = graph.ui;
regions.value = regions.options[1].value;
regions.dispatchEvent(new Event("input"));
found.region = regions.selectedOptions[0].textContent;
found.inside = Number(graph.canvas.dataset.whole);
found.top = graph.tree.kids[0].map(i => data.flame.frames[graph.tree.at[i]][0]);
"##;

#[test]
fn it_shows_one_region() {
    let run = Run::new(vec![super::testgen::example(0, 1, 4)]);
    let found = visit_by(&run, IN_REGION, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["all"], run.summary().total.wall);
    assert_eq!(found["top"], serde_json::json!([found["region"]]));
    let inside = found["inside"].as_u64();
    assert!(
        inside > Some(0) && inside < found["all"].as_u64(),
        "{found}"
    );
}
