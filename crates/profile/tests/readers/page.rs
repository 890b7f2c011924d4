//! The page in headless Chromium: everything is drawn, tables sort, the time line zooms, nothing is
//! loaded from elsewhere. The test also saves a picture. The flame graph has tests of its own.

use std::path::Path;

use spile_profile::html::html;
use spile_profile::model::{BLOCKED, CountedEvent, EventCount, StackFrame};
use spile_profile::report::{View, text};
use spile_profile::{Profile, Run, TimedEvent};

use super::browser::browser;
use super::testgen;

/// The actions of a user, appended to the page's own program.
const HANDS: &str = r##"
const all = what => [...document.querySelectorAll(what)];
found.ready = document.body.dataset.ready;
found.sections = all("h2").map(h => h.textContent);
const calls = all("section").find(s => s.firstChild.textContent === "Calls");
if (calls) {
  const column = name => [...calls.querySelectorAll("th")].findIndex(h => h.textContent === name);
  const cells = i => [...calls.querySelectorAll("tbody tr")].map(r => r.children[i].textContent);
  const press = name => calls.querySelectorAll("th")[column(name)].firstChild.click();
  const count = text => Number(text.replaceAll(",", ""));
  found.calls = cells(0);
  press("call");
  found.byName = cells(0);
  press("calls");
  found.byCount = cells(column("calls")).map(count);
  press("calls");
  found.byCountUp = cells(column("calls")).map(count);
}
found.bars = all(".bar").length;
found.histograms = all(".histogram").length;
found.histogramBars = all(".histogram i").filter(b => b.getBoundingClientRect().height > 0).length;
const line = document.getElementById("timeline");
if (line) {
  const before = Number(line.dataset.to) - Number(line.dataset.from);
  const box = line.getBoundingClientRect();
  const location = { clientX: box.left + box.width / 2, clientY: box.top + 30, bubbles: true };
  line.dispatchEvent(new WheelEvent("wheel", { deltaY: -500, ctrlKey: true, cancelable: true, ...location }));
  found.closer = Number(line.dataset.to) - Number(line.dataset.from) < before;
  line.dispatchEvent(new MouseEvent("dblclick", location));
  found.whole = Number(line.dataset.to) - Number(line.dataset.from) === before;
  const pixels = line.getContext("2d").getImageData(0, 0, line.width, line.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  found.colours = colours.size;
}
found.images = all("img, i > *").length;
found.wide = document.documentElement.scrollWidth <= innerWidth;
found.asked = performance.getEntriesByType("resource").map(e => e.name);
"##;

/// The frame around a user's actions.
const BEFORE: &str = r##"<script>
"use strict";
const found = {};
try {
"##;
const BEHIND: &str = r##"
} catch (e) { errors.push(e.stack); }
found.errors = errors;
const out = document.createElement("pre");
out.id = "found";
out.textContent = ["FOUND", JSON.stringify(found), "END"].join("");
document.body.append(out);
</script>"##;

/// The content of a run's page after a user's actions.
fn visit(run: &Run) -> serde_json::Value {
    visit_by(run, HANDS, 1280)
}

/// The result of these actions on a screen of that width.
pub(super) fn visit_by(run: &Run, hands: &str, width: u32) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let watch = "<script>window.errors = []; addEventListener('error', e => errors.push(e.message));</script>";
    let page = html(run)
        .replacen("<head>", &format!("<head>{watch}"), 1)
        .replacen("</body>", &format!("{BEFORE}{hands}{BEHIND}</body>"), 1);
    std::fs::write(&path, page).expect("a file");
    let size = format!("--window-size={width},2400");
    let out = browser(
        folder.path(),
        // Zooms are done at once.
        &["--dump-dom", "--force-prefers-reduced-motion", &size],
        path.to_str().expect("a path"),
    );
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let found = text
        .rsplit("FOUND")
        .next()
        .and_then(|t| t.split("END").next());
    let found = found.unwrap_or_default();
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {found}"))
}

fn four() -> Run {
    Run::new((0..4).map(|rank| testgen::example(rank, 4, 4)).collect())
}

pub(super) fn strings(value: &serde_json::Value) -> Vec<&str> {
    let all = value.as_array().expect("a list").iter();
    all.map(|v| v.as_str().expect("text")).collect()
}

pub(super) fn numbers(value: &serde_json::Value) -> Vec<u64> {
    let all = value.as_array().expect("a list").iter();
    all.map(|v| v.as_u64().expect("a number")).collect()
}

#[test]
fn everything_is_there_and_works() {
    let run = four();
    let found = visit(&run);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["asked"], serde_json::json!([]));
    assert_eq!(found["ready"], "yes");
    assert_eq!(
        strings(&found["sections"]),
        [
            "Time line",
            "All wall time by call path",
            "Functions",
            "Calls",
            "Regions",
            "Calls by region",
            "Futexes",
            "Nodes",
            "Ranks",
            "Threads",
        ]
    );
    // Of a node or a rank each, of a thread, and of a function in the stacks.
    assert_eq!(found["bars"], 2 + 4 + 16 + 8);
    let summary = run.summary();
    let by_time: Vec<_> = summary.calls.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(strings(&found["calls"]), by_time);
    let mut by_name = by_time.clone();
    by_name.sort_unstable();
    assert_eq!(strings(&found["byName"]), by_name);
    let mut by_count: Vec<_> = summary.calls.iter().map(|c| c.count).collect();
    by_count.sort_unstable();
    assert_eq!(numbers(&found["byCountUp"]), by_count);
    by_count.reverse();
    assert_eq!(numbers(&found["byCount"]), by_count);
    for what in ["closer", "whole", "wide"] {
        assert_eq!(found[what], true, "{what}");
    }
    assert!(found["histograms"].as_u64() > Some(10), "{found}");
    assert!(
        found["histogramBars"].as_u64() >= found["histograms"].as_u64(),
        "{found}"
    );
    assert!(found["colours"].as_u64() > Some(4), "{found}");
}

#[test]
fn names_are_text_and_numbers_may_be_odd() {
    for seed in 0..4 {
        let run = Run::new(vec![testgen::random(seed, 9), testgen::random(seed + 9, 9)]);
        let found = visit(&run);
        assert_eq!(found["errors"], serde_json::json!([]), "{seed}");
        assert_eq!(found["ready"], "yes", "{seed}");
        assert_eq!(found["images"], 0, "{seed}");
    }
    let mut profile = testgen::example(0, 1, 1);
    profile.header.command = vec!["</title></script><img src=x>@DATA@@PROGRAM@".to_owned()];
    profile.data.calls[0].call = "</script><script>throw 1</script><img src=x>".to_owned();
    let found = visit(&Run::new(vec![profile]));
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["images"], 0);
    assert_eq!(visit(&Run::new(vec![Profile::default()]))["ready"], "yes");
}

/// Reads the time line at several zooms: for each lane the mean share of the colour that is not its
/// base, by the colours of its points.
const EYES: &str = r##"
// Names in lanes would hide their colours.
CanvasRenderingContext2D.prototype.fillText = () => {};
const line = document.getElementById("timeline");
const lanes = JSON.parse(line.dataset.lanes);
const scale = Number(line.dataset.scale), left = Number(line.dataset.left);
const box = line.getBoundingClientRect();
const middle = { clientX: box.left + (left / scale + box.width) / 2, clientY: box.top + 30, bubbles: true };
const rgb = text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
found.views = [];
for (const factor of [1, 10, 10, 10, 5]) {
  const deltaY = -Math.log(factor) / Math.log(1.0015);
  line.dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey: true, cancelable: true, ...middle }));
  const view = { from: Number(line.dataset.from), to: Number(line.dataset.to), shares: [] };
  for (const [kind, y, high] of lanes) {
    if (kind !== "call") continue;
    const wide = line.width - left;
    const pixels = line.getContext("2d").getImageData(left, y * scale, wide, high * scale).data;
    const base = rgb(STATES[USER].colour), call = rgb(STATES[KERNEL].colour);
    // The position of each point between the two colours.
    const way = call.map((c, i) => c - base[i]);
    const whole = way.reduce((sum, w) => sum + w * w, 0);
    let sum = 0, off = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      const at = base.map((b, c) => pixels[i + c] - b);
      const share = at.reduce((sum, a, c) => sum + a * way[c], 0) / whole;
      off = Math.max(off, ...at.map((a, c) => Math.abs(a - share * way[c])));
      sum += share;
    }
    view.shares.push(sum / (pixels.length / 4));
    // (There are only these two colours.)
    view.off = Math.max(view.off || 0, off);
  }
  found.views.push(view);
}
found.legend = document.getElementById("legend").textContent;
found.leftOut = data.trace.leftOut;
"##;

/// A thread that computes and calls `clock_gettime` each 100 us, for 1 us in the first half and for
/// 25 us in the second.
fn computes(calls: u64) -> Run {
    let mut profile = testgen::example(0, 1, 2);
    profile.events.clear();
    let all = calls * 100_000;
    profile.data.at_ns = all;
    for (thread, length) in profile.data.threads.iter_mut().zip([1_000, 25_000]) {
        (thread.started_ns, thread.ended_ns) = (0, Some(all));
        profile.events.extend((0..calls).map(|n| TimedEvent {
            tid: thread.tid,
            call: "clock_gettime".to_owned(),
            start_ns: n * 100_000 + 50_000,
            end_ns: n * 100_000 + 50_000 + length,
            ..TimedEvent::default()
        }));
    }
    Run::new(vec![profile])
}

#[test]
fn short_calls_have_the_share_of_the_picture_that_they_have_of_time() {
    // The second has more calls than a page shows one by one.
    for (calls, left_out) in [(20_000, 0), (120_000, 40_000)] {
        let found = visit_by(&computes(calls), EYES, 1280);
        assert_eq!(found["errors"], serde_json::json!([]), "{calls}");
        assert_eq!(found["leftOut"], left_out);
        let views = found["views"].as_array().expect("a list");
        assert_eq!(views.len(), 5);
        for view in views {
            let shares = view["shares"].as_array().expect("a list");
            let shares: Vec<f64> = shares.iter().filter_map(|s| s.as_f64()).collect();
            // The window may contain one call more or less than the mean.
            let periods = (view["to"].as_f64().unwrap() - view["from"].as_f64().unwrap()) / 1e5;
            for (found, wanted) in shares.iter().zip([0.01, 0.25]) {
                let slack = 0.004 + wanted / periods;
                assert!((found - wanted).abs() <= slack, "{calls}: {wanted}: {view}");
            }
            assert!(view["off"].as_f64() < Some(3.0), "{view}");
        }
        let legend = found["legend"].to_string();
        for meaning in [
            "running: program",
            "running: kernel",
            "blocked",
            "waiting for a CPU",
        ] {
            assert!(legend.contains(meaning), "{legend}");
        }
    }
}

/// Looks at the arrows of wakeups: how many there are, what is painted where the first one is, and what the page says of
/// the first wait.
const POINTS: &str = r##"
const line = document.getElementById("timeline");
const wanted = document.getElementById("wakeups");
const lanes = JSON.parse(line.dataset.lanes).filter(l => l[0] === "call");
const scale = Number(line.dataset.scale), left = Number(line.dataset.left) / scale;
const box = line.getBoundingClientRect();
const x = ns => left + (box.width - left) * (ns - line.dataset.from) / (line.dataset.to - line.dataset.from);
// Whether the text's colour is at a time, in the middle of a lane or below it.
const painted = (ns, y) => {
  const pixels = line.getContext("2d").getImageData(Math.round((x(ns) - 1) * scale), Math.round(y * scale), 3, 1).data;
  for (let i = 0; i < pixels.length; i += 4) if (Math.max(...pixels.slice(i, i + 3)) < 90 && pixels[i + 3] > 200) return true;
  return false;
};
const look = () => ({
  wakeups: Number(line.dataset.wakeups), arrows: Number(line.dataset.arrows),
  hint: wanted.closest(".tools").textContent,
  path: lanes.map(([, y, high]) => painted(1e6, y + high + 1)),
});
found.hidden = wanted.parentNode.hidden;
found.first = look();
wanted.click();
found.off = look();
line.dispatchEvent(new KeyboardEvent("keydown", { key: "w", cancelable: true, bubbles: true }));
found.again = look();
const y = lanes[2] ? lanes[2][1] + 5 : 0;
line.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + x(5e5), clientY: box.top + y, bubbles: true }));
found.said = tip.textContent;
line.dispatchEvent(new WheelEvent("wheel", { deltaY: -2500, ctrlKey: true, cancelable: true, clientX: box.left + x(1e6), clientY: box.top + 30, bubbles: true }));
found.closer = look();
"##;

/// Four threads. The third waits `waits` times in a call of a millisecond, in turn until the first one wakes it, and
/// until a thread does that the page does not know.
fn wakes(waits: u64) -> Run {
    let mut profile = testgen::example(0, 1, 4);
    let tids: Vec<u32> = profile.data.threads.iter().map(|t| t.tid).collect();
    profile.events.clear();
    profile.data.at_ns = waits * 2_000_000;
    for thread in &mut profile.data.threads {
        (thread.started_ns, thread.ended_ns) = (0, Some(waits * 2_000_000));
        profile.events.push(TimedEvent {
            tid: thread.tid,
            call: "getpid".to_owned(),
            end_ns: 10,
            ..TimedEvent::default()
        });
    }
    for n in 0..waits {
        let wait = TimedEvent {
            tid: tids[2],
            call: "futex".to_owned(),
            start_ns: n * 2_000_000 + 100_000,
            end_ns: n * 2_000_000 + 1_000_000,
            ..TimedEvent::default()
        };
        profile.events.push(TimedEvent {
            call: BLOCKED.to_owned(),
            waker: Some(if n % 2 == 0 { tids[0] } else { 77 }),
            ..wait.clone()
        });
        profile.events.push(wait);
    }
    Run::new(vec![profile])
}

#[test]
fn arrows_show_who_ended_a_wait() {
    let found = visit_by(&wakes(9), POINTS, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    assert_eq!(found["hidden"], false);
    for view in ["first", "again"] {
        // Those of the unknown thread lead from nowhere.
        assert_eq!(found[view]["arrows"], 5, "{found}");
        // Below the first two lanes: from the first thread to the third.
        let path = [true, true, false, false];
        assert_eq!(found[view]["path"], serde_json::json!(path), "{found}");
        assert!(found[view]["hint"].to_string().contains("5 in view"));
    }
    assert_eq!(found["off"]["arrows"], 0);
    assert_eq!(
        found["off"]["path"],
        serde_json::json!([false, false, false, false])
    );
    let said = found["said"].as_str().expect("a text");
    assert!(said.ends_with("\nwoken by 4000 pi"), "{said}");
    // Too many at first.
    let found = visit_by(&wakes(1200), POINTS, 1280);
    assert_eq!(found["errors"], serde_json::json!([]));
    let first = &found["first"];
    assert_eq!(first["wakeups"], 600);
    assert_eq!(first["arrows"], 0);
    let hint = first["hint"].to_string();
    assert!(hint.contains("600 in view: zoom in"), "{hint}");
    let closer = found["closer"]["arrows"].as_u64().expect("a number");
    assert!((1..50).contains(&closer), "{found}");
    // Without wakeups there is nothing to choose.
    assert_eq!(visit_by(&computes(5), POINTS, 1280)["hidden"], true);
}

/// Measures the widths of all elements.
const RULER: &str = r##"
found.page = [document.documentElement.scrollWidth, innerWidth];
found.tables = [...document.querySelectorAll("table")].map(t => [t.offsetWidth, t.parentNode.clientWidth, Number(t.dataset.columns), t.tHead.rows[0].cells.length]);
found.lanes = JSON.parse(document.getElementById("timeline").dataset.lanes).map(l => l[0]);
const more = [...document.querySelectorAll(".tools > button")].filter(b => /more columns?$/.test(b.textContent) && !b.hidden);
found.more = more.length;
if (more.length) {
  const grid = more[0].closest("section").querySelector("table");
  more[0].click();
  found.shown = grid.tHead.rows[0].cells.length === Number(grid.dataset.columns) && more[0].hidden;
}
"##;

#[test]
fn tables_are_within_the_page() {
    let run = four();
    for width in [600, 1400] {
        let found = visit_by(&run, RULER, width);
        assert_eq!(found["errors"], serde_json::json!([]));
        let page = numbers(&found["page"]);
        assert!(page[0] <= page[1] && page[1] <= width.into(), "{found}");
        let tables = found["tables"].as_array().expect("a list");
        assert!(tables.len() > 5);
        for table in tables.iter().map(numbers) {
            assert!(table[0] <= table[1], "{width}: {found}");
            // A wide screen shows all columns; those that a narrow one hides can be shown on
            // request.
            assert!(
                table[2] >= 4 && (width < 1400 || table[2] == table[3]),
                "{width}: {found}"
            );
        }
        assert_eq!(found["more"].as_u64() > Some(0), width < 1400, "{found}");
        assert!(found["shown"].as_bool().unwrap_or(true));
        // Two lanes of regions are above each thread's calls.
        let lanes = strings(&found["lanes"]);
        assert_eq!(lanes[..4], ["region", "region", "call", "off"]);
    }
}

#[test]
fn there_is_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    std::fs::write(&page, html(&four())).expect("a file");
    // The picture stays for inspection.
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    let option = format!("--screenshot={}", picture.display());
    browser(folder.path(), &[&option], page.to_str().expect("a path"));
    let bytes = std::fs::read(&picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG"));
    // An empty page of that size has some kilobytes.
    assert!(bytes.len() > 50_000, "{} bytes", bytes.len());
}

/// Returns the rows of the tables of counted events, and the text above the tables.
const EVENTS: &str = r##"
const sections = [...document.querySelectorAll("section")].filter(s => s.firstChild.textContent.startsWith("Events"));
found.tables = sections.map(s => [s.firstChild.textContent, ...[...s.querySelectorAll("tr")].map(r => [...r.cells].map(c => c.textContent).join("|"))]);
found.said = sections[0].querySelector(".note").textContent;
sections[0].querySelector("tbody tr").click();
found.search = document.querySelector("#flame input").value;
"##;

/// A run that counted events in two functions and two regions.
fn counts() -> Run {
    let mut profile = testgen::example(0, 1, 2);
    let period = |event: &str, period| CountedEvent {
        event: event.to_owned(),
        period,
    };
    profile.header.options.counted = vec![
        period("page-faults", 101),
        period("cycles", 20),
        period("instructions", 10),
        period("cpu-clock", 1_000_000),
    ];
    let regions = profile.data.contexts.iter().take(2);
    let regions: Vec<u32> = regions.map(|c| c.id).chain([0]).collect();
    let rows = [
        ("sweep", 0, "page-faults", 31),
        ("sweep", 1, "cycles", 400),
        ("sweep", 1, "instructions", 600),
        ("fill", 2, "page-faults", 7),
        ("fill", 2, "cpu-clock", 12),
    ];
    for (function, region, event, samples) in rows {
        let frame = StackFrame {
            function: function.to_owned(),
            module: Some("pi".to_owned()),
            file: Some("pi.c".to_owned()),
            line: Some(7),
        };
        profile.data.event_counts.push(EventCount {
            tid: profile.data.threads[0].tid,
            context: regions[region],
            event: event.to_owned(),
            frames: vec![frame.into()],
            samples,
            ..EventCount::default()
        });
    }
    Run::new(vec![profile])
}

#[test]
fn counted_events_are_those_of_the_text() {
    let run = counts();
    for width in [600, 2000] {
        let found = visit_by(&run, EVENTS, width);
        assert_eq!(found["errors"], serde_json::json!([]));
        // As the text has them: without commas, a dash where nothing was counted, the innermost region.
        let like_text = |row: &str| {
            let cells = row.replace(',', "");
            let mut cells = cells.split('|');
            let name = cells.next().unwrap_or_default();
            let name = name.rsplit(" > ").next().unwrap_or_default();
            let cells = cells.map(|cell| if cell.is_empty() { "-" } else { cell });
            let words: Vec<&str> = std::iter::once(name).chain(cells).collect();
            words.join(" ")
        };
        let text = text(&run, &View::new(200, 50));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let tables = found["tables"].as_array().expect("a list");
        let rows = tables.iter().map(|table| strings(table).len());
        assert_eq!(rows.collect::<Vec<_>>(), [2 + 2, 2 + 3], "{found}");
        for row in tables.iter().flat_map(strings) {
            assert!(lines.contains(&like_text(row)), "{row}: {text}");
        }
        let said = found["said"].as_str().expect("a text").replace(',', "");
        let (said, _) = said.split_once(". ").expect("two sentences");
        assert!(
            words(&text.replace(',', "")).contains(said),
            "{said}: {text}"
        );
        assert_eq!(found["search"], "^sweep$");
    }
}
