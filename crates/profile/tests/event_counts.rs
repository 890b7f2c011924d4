//! Counted events of two ranks, by function and region.

use spile_profile::json::{json, json_diff};
use spile_profile::model::*;
use spile_profile::report::{View, diff, text};
use spile_profile::{Profile, Run};

/// A row: the context, the event, the function with its line, and the samples.
struct Row(u32, &'static str, &'static str, u64);

fn rank(number: u32, rows: &[Row]) -> Profile {
    let mut profile = Profile::default();
    profile.header.rank = Some(Rank {
        rank: number,
        size: Some(2),
        local_rank: None,
        local_size: None,
        launcher: Launcher::OpenMpi,
        job: None,
    });
    let counted = |event: &str, period| CountedEvent {
        event: event.to_owned(),
        period,
    };
    profile.header.options.counted = vec![
        counted("cycles", 10_000_000),
        counted("instructions", 20_000_000),
        counted("page-faults", 101),
    ];
    let data = &mut profile.data;
    data.contexts.push(Context {
        id: 1,
        kind: ContextKind::Mark,
        name: "solve".to_owned(),
        ..Context::default()
    });
    for Row(context, event, function, samples) in rows {
        let frame = StackFrame {
            function: (*function).to_owned(),
            module: Some("heat".to_owned()),
            file: Some("heat.c".to_owned()),
            line: Some(7),
        };
        data.event_counts.push(EventCount {
            tid: 1,
            context: *context,
            event: (*event).to_owned(),
            kernel: Vec::new(),
            frames: vec![frame.into()],
            samples: *samples,
        });
    }
    data.threads.push(Thread {
        tid: 1,
        pid: 1,
        ..Thread::default()
    });
    profile
}

fn run() -> Run {
    Run::new(vec![
        rank(
            0,
            &[
                Row(1, "cycles", "sweep", 300),
                Row(1, "instructions", "sweep", 75),
                Row(0, "page-faults", "fill", 90),
            ],
        ),
        rank(
            1,
            &[
                Row(1, "cycles", "sweep", 100),
                Row(0, "page-faults", "fill", 10),
                // Not of the header: a damaged file.
                Row(0, "branches", "fill", 10),
            ],
        ),
    ])
}

#[test]
fn ranks_are_added_up() {
    let text = text(&run(), &View::new(80, 10));
    let from = text.find("Estimated events").unwrap();
    let to = text.find("Where the time went").unwrap();
    insta::assert_snapshot!(&text[from..to]);
}

/// B has more page faults in `fill`, outside of regions; `sweep` has the same number of cycles.
#[test]
fn changes_are_those_by_more_than_the_noise() {
    let counted = |faults: u64| {
        let profile = rank(
            0,
            &[
                Row(1, "cycles", "sweep", 300),
                Row(0, "page-faults", "fill", faults),
                Row(1, "page-faults", "sweep", 100),
            ],
        );
        Run::new(vec![profile])
    };
    let (a, b) = (counted(100), counted(200));
    let (set_a, set_b) = (std::slice::from_ref(&a), std::slice::from_ref(&b));
    let compared: serde_json::Value = serde_json::from_str(&json_diff(set_a, set_b)).unwrap();
    let faults = &compared["events"]["page-faults"];
    // 1 % of the 300 samples of B.
    assert_eq!(faults["least"], 300);
    let row = |list: &str, name: &str| {
        let rows = faults[list].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    for (list, name, other) in [
        ("functions", "fill", "sweep"),
        ("regions", "outside of regions", "solve"),
    ] {
        let fill = row(list, name);
        assert_eq!(
            fill["a"],
            serde_json::json!({"events": 10_100, "samples": 100})
        );
        assert_eq!(
            fill["b"],
            serde_json::json!({"events": 20_200, "samples": 200})
        );
        // The errors of binomial distributions, half of 200 and two thirds of 300 samples, and one sample each.
        let samples = (200.0 * 0.25 + 300.0 * 2.0 / 9.0 + 2.0f64).sqrt();
        let noise = fill["noise"].as_f64().unwrap();
        assert!((noise - 2.576 * 101.0 * samples).abs() < 2.0, "{noise}");
        assert_eq!(
            (&fill["changed"], &row(list, other)["changed"]),
            (&true.into(), &false.into())
        );
    }
    let text = diff(set_a, set_b, 80, 10);
    let from = text.find("Events\n").unwrap();
    insta::assert_snapshot!(&text[from..]);

    // What only one side has is not compared.
    let mut other = rank(0, &[Row(0, "page-faults", "fill", 100)]);
    other.header.options.counted.remove(0);
    other.header.options.no_regions = true;
    other.data.contexts.clear();
    let other = [Run::new(vec![other])];
    let compared: serde_json::Value = serde_json::from_str(&json_diff(set_a, &other)).unwrap();
    let events = compared["events"].as_object().unwrap();
    assert_eq!(
        events.keys().collect::<Vec<_>>(),
        ["instructions", "page-faults"]
    );
    assert_eq!(events["page-faults"]["regions"], serde_json::json!([]));
    assert_eq!(
        compared["notes"][1],
        "only events that all recordings counted are compared: A cycles instructions page-faults; \
         B instructions page-faults"
    );
}

#[test]
fn the_numbers_are_those_of_json() {
    let report: serde_json::Value = serde_json::from_str(&json(&run())).unwrap();
    let events = &report["events"];
    assert_eq!(
        events["all"]["cycles"],
        serde_json::json!({"events": 4_000_000_000_u64, "samples": 400})
    );
    assert_eq!(events["functions"][0]["function"], "sweep");
    assert_eq!(events["regions"][1]["name"], "outside of regions");
    assert_eq!(
        events["regions"][1]["counts"]["page-faults"]["events"],
        10_100
    );
}
