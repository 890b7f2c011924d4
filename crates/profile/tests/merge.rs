//! Reports of files that are merged one by one equal those of all profiles together.

mod testgen;

use std::fs::File;
use std::path::Path;

use proptest::prelude::*;
use spile_profile::answer::By;
use spile_profile::file::{Writer, find_accounts, merge, name};
use spile_profile::json::{json, json_of};
use spile_profile::report::{View, text, text_of};
use spile_profile::{Profile, Run};

/// Writes a profile to a folder.
fn put(folder: &Path, profile: &Profile) {
    let file = File::create(folder.join(name("app", &profile.header))).expect("a file");
    let mut writer = Writer::new(file, &profile.header).expect("a header");
    writer.snapshot(&profile.data).expect("an account");
    writer
        .end(&profile.end.clone().unwrap_or_default())
        .expect("an end");
}

/// Compares the reports, and gives the messages about files.
fn compare(folder: &Path, run: Option<&str>) -> Vec<String> {
    let paths = [folder.to_owned()];
    let found = find_accounts(&paths, run);
    let profiles = found.profiles.into_iter().map(|(_, profile)| profile);
    let whole = Run::new(profiles.collect());
    for by in By::ALL {
        let view = View {
            by: by.0,
            ..View::new(90, 9)
        };
        let (merged, said) = merge(&paths, run, Some(&view));
        assert_eq!(said, found.said);
        let Some(merged) = merged else {
            assert!(whole.profiles.is_empty());
            continue;
        };
        assert_eq!(merged.summary, whole.summary());
        assert_eq!(text_of(&merged, &view), text(&whole, &view));
    }
    if let (Some(merged), _) = merge(&paths, run, None) {
        assert_eq!(json_of(&merged), json(&whole));
    }
    found.said
}

#[test]
fn ranks_are_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in 0..12 {
        put(folder.path(), &testgen::example(rank, 12, 3));
    }
    assert_eq!(compare(folder.path(), None), [""; 0]);
    let (merged, _) = merge(&[folder.path().to_owned()], None, None);
    let run = merged.expect("a run").run;
    let ranks = run.profiles.iter().map(Profile::title);
    assert!(ranks.eq((0..12).map(|rank| format!("rank {rank}"))));
    // The rows are not kept.
    let rows = run.profiles.iter();
    assert!(
        rows.map(|p| p.data.threads.len() + p.data.calls.len())
            .all(|n| n == 0)
    );
}

#[test]
fn one_of_several_runs_is_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in 0..5 {
        let mut profile = testgen::example(rank, 5, 2);
        if rank > 2 {
            profile.header.run = "other-7.0".to_owned();
        }
        put(folder.path(), &profile);
    }
    std::fs::write(folder.path().join("a.spile"), "nothing").expect("a file");
    std::fs::write(folder.path().join("b.spile"), "").expect("a file");
    let cut = folder.path().join("app.node1.00000.spile");
    let whole = std::fs::read(&cut).expect("a file");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    // Two files of each run have an account; the later run is chosen.
    assert_eq!(compare(folder.path(), None).len(), 6);
    assert_eq!(compare(folder.path(), Some("other")).len(), 6);
    assert_eq!(compare(folder.path(), Some("slurm")).len(), 5);
    assert_eq!(compare(folder.path(), Some("none")).len(), 4);
    let nowhere = tempfile::tempdir().expect("a folder");
    assert_eq!(compare(nowhere.path(), None).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Sums of any numbers are not those in another order, because they saturate.
    #[test]
    fn any_files_are_merged(seeds in prop::collection::vec(any::<u64>(), 0..5)) {
        let folder = tempfile::tempdir().expect("a folder");
        for (rank, seed) in (0..).zip(&seeds) {
            let mut profile = testgen::random(*seed, 6);
            let example = testgen::example(rank, 5, 1).header;
            profile.header.run = example.run;
            profile.header.rank = example.rank;
            put(folder.path(), &profile);
        }
        let view = View::new(90, 9);
        let (merged, said) = merge(&[folder.path().to_owned()], None, Some(&view));
        prop_assert_eq!(said.is_empty(), !seeds.is_empty());
        if let Some(merged) = merged {
            text_of(&merged, &view);
            json_of(&merged);
        }
    }

    #[test]
    fn any_number_of_ranks_is_merged(threads in prop::collection::vec(0u32..5, 0..20)) {
        let folder = tempfile::tempdir().expect("a folder");
        let ranks = threads.len().try_into().expect("a number");
        for (rank, threads) in (0..).zip(threads) {
            let mut profile = testgen::example(rank, ranks, threads.max(1));
            if threads == 0 {
                profile.data = spile_profile::Snapshot::default();
            }
            put(folder.path(), &profile);
        }
        compare(folder.path(), None);
    }
}
