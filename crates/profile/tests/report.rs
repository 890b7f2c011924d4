//! Reports: snapshots of the example's, and that they fit any width.

mod testgen;

use proptest::prelude::*;
use serde_json::Value;
use spile_profile::html::html;
use spile_profile::json::json;
use spile_profile::model::RecordingEnd;
use spile_profile::report::{View, diff, text, threads, time};
use spile_profile::{Profile, Run};
use unicode_width::UnicodeWidthStr as _;

fn one() -> Run {
    Run::new(vec![testgen::example(0, 1, 4)])
}

fn four() -> Run {
    Run::new((0..4).map(|rank| testgen::example(rank, 4, 4)).collect())
}

#[test]
fn one_process_is_reported_as_blessed() {
    insta::assert_snapshot!(text(&one(), &View::new(100, 8)));
}

#[test]
fn four_ranks_fit_into_80_columns() {
    insta::assert_snapshot!(text(&four(), &View::new(80, 8)));
}

/// Text and page list the ranks that failed, in the order of their ends.
#[test]
fn ranks_that_failed_are_listed() {
    let mut run = four();
    assert!(!text(&run, &View::new(80, 8)).contains("Failed"));
    for (rank, at_ns, status) in [(1, 2_000_000_000, 3 << 8), (2, 1_000_000_000, 9)] {
        run.profiles[rank].end = Some(RecordingEnd {
            at_ns,
            status: Some(status),
        });
    }
    let said = "Failed, the first to end first: rank 2 by signal 9 after 1.00 s, rank 1 with status 3 after 2.00 s";
    assert!(text(&run, &View::new(200, 8)).contains(said));
    assert!(html(&run).contains(&format!("\"failed\":\"{said}\"")));
    assert!(html(&four()).contains("\"failed\":null"));
}

#[test]
fn an_empty_run_is_reported() {
    insta::assert_snapshot!(text(&Run::new(vec![Profile::default()]), &View::new(80, 8)));
    text(&Run::default(), &View::new(80, 8));
    diff(&[Run::default()], &[Run::default()], 80, 8);
    diff(&[], &[], 80, 8);
}

#[test]
fn the_table_of_threads_is_as_blessed() {
    let run = Run::new((0..2).map(|rank| testgen::example(rank, 2, 2)).collect());
    let mut table = threads(&run);
    insta::assert_snapshot!(table);
    table = threads(&one());
    assert!(
        table.contains("\nppoll (unfinished) | 71000000\n"),
        "{table}"
    );
    assert!(!table.contains("====="));
}

#[test]
fn two_runs_are_compared_as_blessed() {
    let (a, mut b) = (one(), one());
    b.profiles[0].data.calls.retain(|c| c.call != "mmap");
    for call in &mut b.profiles[0].data.calls {
        if call.call == "futex" {
            call.total *= 2;
        }
    }
    for time in &mut b.profiles[0].data.context_times {
        time.wall *= u64::from(time.context);
    }
    insta::assert_snapshot!(diff(&[a], &[b], 80, 8));
}

#[test]
fn totals_are_those_of_the_rows() {
    let run = four();
    let summary = run.summary();
    let calls = || run.profiles.iter().flat_map(|p| &p.data.calls);
    let all: u64 = calls().map(|c| c.time()).sum();
    assert_eq!(summary.in_calls(), all);
    let regions: u64 = summary.regions.iter().map(|r| r.time()).sum();
    assert_eq!(regions, all);
    for group in summary.calls.iter().chain(&summary.regions) {
        assert_eq!(group.per_unit.iter().sum::<u64>(), group.time());
        let uneven = group.imbalance().expect("time");
        assert!((1.0..=4.0).contains(&uneven), "{group:?}");
        if !group.histogram.is_empty() {
            assert_eq!(group.histogram.iter().sum::<u64>(), group.count);
        }
    }
    let wall = summary.total.parts.iter().sum::<u64>() as i64 + summary.total.residual;
    assert_eq!(wall as u64, summary.total.wall);
    let critical = summary.critical().expect("several");
    let most = summary.units.iter().map(|u| u.busiest.0).max();
    assert_eq!(Some(critical.busiest.0), most);
}

#[test]
fn commands_are_those_of_a_shell() {
    let mut run = one();
    run.profiles[0].header.command = ["sh", "-c", "sleep 1", ""].map(str::to_owned).to_vec();
    let text = text(&run, &View::new(100, 8));
    assert!(text.starts_with("sh -c 'sleep 1' '': 2.00 s, "), "{text}");
}

/// The page shows the report that `--json` prints.
#[test]
fn the_page_has_the_report_as_json() {
    for run in [one(), four(), Run::new(Vec::new())] {
        let page = html(&run);
        let (_, data) = page.split_once("id=\"data\">").expect("data");
        let (data, _) = data.split_once("</script>").expect("the end of the data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        let report: Value = serde_json::from_str(&json(&run)).expect("JSON");
        assert_eq!(data["report"], report);
        let parts = data["parts"].as_array().expect("parts");
        for part in parts {
            let key = part["key"].as_str().expect("a key");
            assert!(report["all"]["parts"][key].is_number(), "{key}");
        }
        assert_eq!(
            report["all"]["parts"].as_object().map(|o| o.len()),
            Some(parts.len())
        );
    }
}

#[test]
fn times_have_units() {
    let cases = [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (999_400, "999 us"),
        (999_949, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (1_000_000_000, "1.00 s"),
        (123_456_000_000_000, "123456 s"),
    ];
    for (ns, text) in cases {
        assert_eq!(time(ns), text);
    }
}

proptest! {
    #[test]
    fn every_line_fits(seeds in prop::collection::vec(any::<u64>(), 0..4), width in 64usize..200) {
        let run = Run::new(seeds.iter().map(|s| testgen::random(*s, 9)).collect());
        let other = Run::new(seeds.iter().map(|s| testgen::random(s.wrapping_add(1), 9)).collect());
        let all = text(&run, &View::new(width, 5)) + &threads(&run) + &diff(&[run], &[other], width, 5);
        for line in all.lines() {
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
            let long = line.width() > width && !line.contains(" | ");
            prop_assert!(!long, "{width}: {line}");
        }
    }
}
