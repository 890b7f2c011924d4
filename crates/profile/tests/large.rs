//! Large and hostile recordings: cut ones, many stacks, numbers at the limits.

mod testgen;

use std::collections::HashSet;

use proptest::prelude::*;
use spile_profile::file::{Writer, read};
use spile_profile::html::{html, html_diff};
use spile_profile::json::{json, json_diff};
use spile_profile::model::*;
use spile_profile::paths::PathSample;
use spile_profile::report::{View, diff, text, threads};
use spile_profile::{Profile, Run};

/// A file with a profile.
fn bytes(profile: &Profile) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &profile.header).expect("memory");
    writer.events(&profile.events).expect("memory");
    writer.snapshot(&profile.data).expect("memory");
    let end = profile.end.clone().unwrap_or_default();
    writer.end(&end).expect("memory")
}

/// A profile of one thread. Its samples hit this number of functions, each with 20 callers.
fn sampled(functions: u64) -> Profile {
    let mut profile = testgen::example(0, 1, 1);
    profile.header.options.samples = Some(SampleRate {
        event: "cpu-clock".to_owned(),
        hz: 99,
    });
    profile.data.stacks.clear();
    let tid = profile.data.threads[0].tid;
    let frame = |function: String| {
        Frame::new(StackFrame {
            function,
            module: Some("pi".to_owned()),
            file: Some("pi.c".to_owned()),
            line: Some(7),
        })
    };
    for number in 0..functions {
        let callers =
            (0..20u64).map(|depth| frame(format!("caller{}_{depth}", number >> depth.min(10))));
        profile.data.samples.push(Sample {
            tid,
            frames: std::iter::once(frame(format!("f{number}")))
                .chain(callers)
                .collect(),
            count: 1 + number % 3,
            ..Sample::default()
        });
    }
    profile
}

/// All reports of a run.
fn report(run: Run) -> String {
    let mut all = text(&run, &View::new(80, 5)) + &threads(&run) + &json(&run) + &html(&run);
    let both = [run];
    all += &diff(&both, &both, 80, 5);
    all += &json_diff(&both, &both);
    all + &html_diff(&both, &both)
}

#[test]
fn many_stacks_are_reported() {
    let profile = sampled(20_000);
    let user = profile.data.threads[0].parts.user;
    let file = bytes(&profile);
    let got = read(&file[..]).expect("a profile");
    assert_eq!(got.profile.data.samples.len(), 20_000);
    let frames = got.profile.data.samples.iter().flat_map(|s| &s.frames);
    let distinct: HashSet<&Frame> = frames.clone().collect();
    let in_memory: HashSet<*const StackFrame> = frames.map(Frame::as_ptr).collect();
    assert_eq!(in_memory.len(), distinct.len(), "equal frames are one");
    let both = [Run::new(vec![got.profile])];
    let paths = spile_profile::paths::threads(&both[0].profiles[0]);
    let in_user = |s: &&PathSample| s.part == Some(TimePart::User);
    let shares: u64 = paths[0].samples.iter().filter(in_user).map(|s| s.ns).sum();
    assert_eq!(shares, user, "shares add up to the measured time");
    // Its page has the widest functions.
    let page = html_diff(&both, &both);
    assert!(page.len() < 3 << 20, "{}", page.len());
}

/// A recording that is cut anywhere has its last whole account, or none.
#[test]
fn a_cut_recording_is_reported() {
    let file = bytes(&sampled(300));
    for cut in (1..file.len()).step_by(file.len() / 17) {
        if let Ok(got) = read(&file[..cut]) {
            report(Run::new(vec![got.profile]));
        }
    }
}

/// Sample rows with numbers at the limits, of threads, contexts and calls that no other row has, and
/// contexts that enclose each other.
fn hostile() -> impl Strategy<Value = Profile> {
    let activity = prop::sample::select(vec![
        Activity::User,
        Activity::Call,
        Activity::Fault,
        Activity::Blocked,
    ]);
    let number = prop_oneof![
        Just(0),
        Just(1),
        0..1_000_000u64,
        Just(u64::MAX),
        Just(u64::MAX - 1)
    ];
    let name = prop::sample::select(vec![
        "",
        "read",
        "0x7f",
        "pthread_mutex_lock",
        "a;b <i>",
        "main",
    ]);
    let sample = (
        0..4u32,
        0..5u32,
        activity,
        name.clone(),
        prop::collection::vec(name, 0..4),
        number.clone(),
        number,
    );
    let sample = sample.prop_map(|(tid, context, activity, call, frames, count, ns)| {
        let frame = |function: &str| {
            Frame::new(StackFrame {
                function: function.to_owned(),
                ..StackFrame::default()
            })
        };
        Sample {
            tid,
            context,
            activity,
            call: call.to_owned(),
            futex: ns.is_multiple_of(2).then_some(ns),
            object: frames.last().map(|name| (*name).to_string()),
            kernel: frames.iter().skip(2).map(|f| frame(f)).collect(),
            frames: frames.iter().map(|f| frame(f)).collect(),
            count,
            ns,
        }
    });
    (any::<u64>(), prop::collection::vec(sample, 0..12)).prop_map(|(seed, samples)| {
        let mut profile = testgen::random(seed, 6);
        profile.header.options.samples = Some(SampleRate {
            event: String::new(),
            hz: 0,
        });
        profile.data.samples = samples;
        for id in 1..4 {
            profile.data.contexts.push(Context {
                id,
                parent: Some(id % 3 + 1),
                name: "circle".to_owned(),
                ..Context::default()
            });
        }
        profile
    })
}

proptest! {
    #[test]
    fn hostile_samples_are_reported(a in hostile(), b in hostile()) {
        let file = bytes(&a);
        let got = read(&file[..]).expect("a profile");
        prop_assert_eq!(&got.profile.data.samples, &a.data.samples);
        let [a, b] = [a, b].map(|profile| Run::new(vec![profile]));
        for run in [&a, &b] {
            text(run, &View::new(80, 5));
            json(run);
            html(run);
        }
        for (from, to) in [(vec![a.clone()], vec![b.clone()]), (vec![a.clone(), b.clone()], vec![b])] {
            diff(&from, &to, 80, 5);
            json_diff(&from, &to);
            html_diff(&from, &to);
        }
    }
}
