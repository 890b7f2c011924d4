//! The page, in Chromium without a window: everything is drawn, tables sort, the flame graph and the
//! time line zoom, nothing is asked for from elsewhere, and there is a picture.

use std::path::Path;

use spile_profile::html::html;
use spile_profile::{Profile, Run, testgen};

use super::browser::browser;

/// What is put behind the page's own program: a user's hands.
const HANDS: &str = r##"<script>
"use strict";
const found = {};
try {
const all = what => [...document.querySelectorAll(what)];
found.ready = document.body.dataset.ready;
found.head = document.getElementById("head").textContent.split("\n").length;
found.bars = all(".bar").length;
found.pieces = all(".bar span").length;
found.sections = all("h2").map(h => h.textContent);
const calls = all("section").find(s => s.firstChild.textContent === "Calls");
if (calls) {
  const column = name => [...calls.querySelectorAll("th")].findIndex(h => h.textContent === name);
  const cells = i => [...calls.querySelectorAll("tbody tr")].map(r => r.children[i].textContent);
  const press = name => calls.querySelectorAll("th")[column(name)].firstChild.click();
  found.calls = cells(0);
  press("call");
  found.byName = cells(0);
  press("calls");
  found.byCount = cells(column("calls")).map(Number);
  press("calls");
  found.byCountUp = cells(column("calls")).map(Number);
}
found.histograms = all(".histogram").length;
found.histogramBars = all(".histogram i").filter(b => b.getBoundingClientRect().height > 0).length;
const flame = document.getElementById("flame");
if (flame) {
  found.flame = flame.children.length;
  const region = [...flame.children].find(c => c.dataset.kind === "region");
  if (region) {
    const name = region.textContent;
    region.click();
    found.zoomed = flame.children[0].textContent === name && flame.children[0].style.width === "100%";
    flame.children[0].click();
    found.back = flame.children.length;
  }
}
const line = document.getElementById("timeline");
if (line) {
  const before = Number(line.dataset.to) - Number(line.dataset.from);
  const box = line.getBoundingClientRect();
  const place = { clientX: box.left + box.width / 2, clientY: box.top + 30, bubbles: true };
  line.dispatchEvent(new WheelEvent("wheel", { deltaY: -500, cancelable: true, ...place }));
  found.closer = Number(line.dataset.to) - Number(line.dataset.from) < before;
  line.dispatchEvent(new MouseEvent("dblclick", place));
  found.whole = Number(line.dataset.to) - Number(line.dataset.from) === before;
  const pixels = line.getContext("2d").getImageData(0, 0, line.width, line.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  found.colours = colours.size;
}
found.images = all("img, i > *").length;
found.wide = document.documentElement.scrollWidth <= innerWidth;
found.asked = performance.getEntriesByType("resource").map(e => e.name);
} catch (e) { errors.push(e.stack); }
found.errors = errors;
const out = document.createElement("pre");
out.id = "found";
out.textContent = ["FOUND", JSON.stringify(found), "END"].join("");
document.body.append(out);
</script>"##;

/// What is on the page of a run after a user was there.
fn visit(run: &Run) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    let watch = "<script>window.errors = []; addEventListener('error', e => errors.push(e.message));</script>";
    let page = html(run)
        .replacen("<head>", &format!("<head>{watch}"), 1)
        .replacen("</body>", &format!("{HANDS}</body>"), 1);
    std::fs::write(&path, page).expect("a file");
    let out = browser(
        folder.path(),
        &["--dump-dom"],
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

fn strings(value: &serde_json::Value) -> Vec<&str> {
    let all = value.as_array().expect("a list").iter();
    all.map(|v| v.as_str().expect("text")).collect()
}

fn numbers(value: &serde_json::Value) -> Vec<u64> {
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
            "Where the time of each rank went",
            "Where the time of each thread went",
            "Time line",
            "Time by call path",
            "Calls",
            "Regions",
            "Calls by region",
            "Futexes",
            "Nodes",
            "Ranks",
            "Threads",
        ]
    );
    assert_eq!(found["bars"], 20);
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
    for what in ["zoomed", "closer", "whole", "wide"] {
        assert_eq!(found[what], true, "{what}");
    }
    assert!(found["histograms"].as_u64() > Some(10), "{found}");
    assert!(
        found["histogramBars"].as_u64() >= found["histograms"].as_u64(),
        "{found}"
    );
    assert_eq!(found["flame"], found["back"]);
    assert!(found["colours"].as_u64() > Some(5), "{found}");
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

#[test]
fn there_is_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    std::fs::write(&page, html(&four())).expect("a file");
    // It stays, for whoever wants to see it.
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    let option = format!("--screenshot={}", picture.display());
    browser(folder.path(), &[&option], page.to_str().expect("a path"));
    let bytes = std::fs::read(&picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG"));
    // An empty page of that size is some kilobytes.
    assert!(bytes.len() > 50_000, "{} bytes", bytes.len());
}
