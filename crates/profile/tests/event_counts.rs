//! Counted events of two ranks, by function and region.

use spile_profile::json::json;
use spile_profile::model::*;
use spile_profile::report::{View, text};
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
