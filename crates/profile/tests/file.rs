//! Files: a reader reads what the writer wrote, and the intact part of damaged files.

mod testgen;

use proptest::prelude::*;
use spile_profile::file::{FileNote, UnusableFile, Writer, find, name, read};
use spile_profile::{Header, Profile};

/// A file with `accounts` of increasing size, and the position after each account's line.
fn written(profile: &Profile, accounts: usize) -> (Vec<u8>, Vec<usize>) {
    let mut file = Vec::new();
    let mut ends = Vec::new();
    let mut done = 0;
    for number in 1..=accounts {
        // Each prefix of a recording is a recording.
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &profile.header).expect("memory");
        for account in 1..=number {
            let upto = profile.events.len() * account / accounts;
            let from = profile.events.len() * (account - 1) / accounts;
            writer.events(&profile.events[from..upto]).expect("memory");
            writer.snapshot(&at(profile, account)).expect("memory");
        }
        if number == accounts {
            let end = profile.end.clone().unwrap_or_default();
            writer.end(&end).expect("memory");
            let last = bytes.iter().rposition(|b| *b == b'{').expect("a line");
            let line = bytes[..last].iter().rposition(|b| *b == b'\n');
            ends.push(line.expect("lines"));
        } else {
            ends.push(bytes.len() - 1);
        }
        done = bytes.len();
        file = bytes;
    }
    assert_eq!(done, file.len());
    (file, ends)
}

/// The account with number `account`.
fn at(profile: &Profile, account: usize) -> spile_profile::Snapshot {
    let mut data = profile.data.clone();
    data.at_ns = account as u64;
    data.calls.truncate(account * 2);
    data
}

#[test]
fn what_is_written_is_read() {
    let profile = testgen::example(1, 4, 4);
    let (file, _) = written(&profile, 3);
    let got = read(&file[..]).expect("a profile");
    assert_eq!(got.accounts, 3);
    assert_eq!(got.notes, []);
    assert_eq!(got.profile.header, profile.header);
    assert_eq!(got.profile.data, at(&profile, 3));
    assert_eq!(got.profile.events, profile.events);
    assert_eq!(got.profile.end, profile.end);
}

#[test]
fn the_example_closes() {
    for rank in 0..4 {
        let profile = testgen::example(rank, 4, 5);
        for thread in &profile.data.threads {
            let wall = thread.wall(profile.data.at_ns);
            let residual = thread.residual(profile.data.at_ns);
            assert_eq!(thread.accounted() as i64 + residual, wall as i64);
            assert!(residual.unsigned_abs() < wall / 100, "{thread:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_profile_is_read_as_it_was_written(seed: u64, size in 1u64..12) {
        let mut profile = testgen::random(seed, size);
        profile.end.get_or_insert_default();
        let mut writer = Writer::new(Vec::new(), &profile.header).expect("memory");
        writer.events(&profile.events).expect("memory");
        writer.snapshot(&profile.data).expect("memory");
        let file = writer.end(profile.end.as_ref().expect("an end")).expect("memory");
        let got = read(&file[..]).expect("a profile");
        prop_assert_eq!(got.profile, profile);
        prop_assert_eq!(got.notes, vec![]);
    }

    #[test]
    fn any_prefix_gives_its_last_whole_account(seed: u64, cut in 0.0..1.0f64) {
        let profile = testgen::random(seed, 6);
        let (file, ends) = written(&profile, 4);
        let cut = (file.len() as f64 * cut) as usize;
        let whole = ends.iter().filter(|e| **e <= cut).count();
        let first = file.iter().position(|b| *b == b'\n').expect("lines");
        match read(&file[..cut]) {
            Err(UnusableFile::Empty) => prop_assert_eq!(cut, 0),
            Err(UnusableFile::Foreign | UnusableFile::Header(_)) => prop_assert!(cut < first),
            Err(e) => prop_assert!(false, "{}", e),
            Ok(got) => {
                prop_assert_eq!(got.accounts, whole as u64);
                if whole > 0 {
                    prop_assert_eq!(got.profile.data, at(&profile, whole));
                }
                let complete = got.profile.end.is_some();
                let expected = if complete { vec![] } else { vec![FileNote::Truncated(whole as u64)] };
                prop_assert_eq!(got.notes, expected);
            }
        }
    }

    #[test]
    fn damaged_accounts_are_reported_and_skipped(seed: u64, location in 0.0..1.0f64, byte: u8) {
        let profile = testgen::random(seed, 6);
        let (mut file, _) = written(&profile, 4);
        let location = (file.len() as f64 * location) as usize;
        file[location] = byte;
        // No panic, and never more accounts than there are.
        if let Ok(got) = read(&file[..]) {
            prop_assert!(got.accounts <= 4);
        }
    }

    #[test]
    fn any_bytes_are_read(bytes: Vec<u8>) {
        let _ = read(&bytes[..]);
        let header = serde_json::to_string(&serde_json::json!({"header": Header::default()}));
        let mut file = header.expect("json").into_bytes();
        file.push(b'\n');
        file.extend(bytes);
        prop_assert!(read(&file[..]).is_ok());
    }
}

#[test]
fn a_damaged_line_spoils_its_account_only() {
    let profile = testgen::example(0, 1, 2);
    let (file, ends) = written(&profile, 3);
    let mut text = String::from_utf8(file).expect("text");
    let line = text[..ends[1]].rfind("{\"snapshot").expect("a line");
    text.insert(line - 5, '\0');
    let got = read(text.as_bytes()).expect("a profile");
    assert_eq!(got.accounts, 2);
    assert_eq!(got.profile.data, at(&profile, 3));
    assert!(
        matches!(
            got.notes[..],
            [FileNote::Damaged(_), FileNote::Incomplete(2)]
        ),
        "{:?}",
        got.notes
    );
}

#[test]
fn rows_of_later_releases_are_passed_over() {
    let file = br#"{"header":{"format":"spile-profile","version":1,"run":"a","host":"b","started_unix_ns":0,"later":[]}}
{"later":{"a":1}}
{"context":{"id":1,"kind":"later"}}
{"snapshot":{"number":1,"rows":2,"at_ns":5}}
{"end":{"at_ns":5}}
"#;
    let got = read(&file[..]).expect("a profile");
    assert_eq!(got.accounts, 1);
    assert_eq!(got.notes, [FileNote::Unknown("later".to_owned(), 1)]);
}

#[test]
fn names_of_files_are_safe() {
    let profile = testgen::example(2, 4, 1);
    assert_eq!(name("spile", &profile.header), "spile.node2.00002.spile");
    let header = Header {
        host: "a/b c".to_owned(),
        pid: Some(12),
        ..Header::default()
    };
    assert_eq!(name("../x", &header), "___x.a_b_c.12.spile");
}

/// A later run without any account does not take precedence over a complete one.
#[test]
fn a_run_without_an_account_is_not_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = testgen::example(0, 1, 1);
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    };
    put("whole.spile", &written(&profile, 1).0);
    profile.header.run = "later".to_owned();
    profile.header.started_unix_ns += 1;
    let (bytes, _) = written(&profile, 1);
    put("cut.spile", &bytes[..bytes.len() / 2]);
    let found = find(&[folder.path().to_owned()], None);
    assert_eq!(found.profiles.len(), 1);
    assert!(found.profiles[0].0.ends_with("whole.spile"));
    assert_eq!(found.said.len(), 2, "{:?}", found.said);
    let found = find(&[folder.path().to_owned()], Some("later"));
    assert!(found.profiles[0].0.ends_with("cut.spile"));
}

#[test]
fn a_folder_of_all_sorts_gives_its_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    };
    for rank in [1, 0, 2] {
        let profile = testgen::example(rank, 3, 2);
        let (file, ends) = written(&profile, 3);
        let file = if rank == 2 {
            &file[..ends[1] + 9]
        } else {
            &file
        };
        put(&name("pi", &profile.header), file);
    }
    let mut other = testgen::example(0, 1, 1);
    other.header.run = "another".to_owned();
    put("other.spile", &written(&other, 1).0);
    put("empty.spile", b"");
    put("foreign.spile", b"\x7fELF");
    put("json.spile", b"{}\n");
    put(
        "version.spile",
        br#"{"header":{"format":"spile-profile","version":2}}"#,
    );
    put("cut.spile", br#"{"header":{"format":"spile-pro"#);
    put("notes.txt", b"nothing to us");
    let nothing = folder.path().join("nothing.d");
    std::fs::create_dir(&nothing).expect("a folder");

    let location = |p: &str| folder.path().join(p);
    let found = find(
        &[
            folder.path().to_owned(),
            nothing,
            location("gone"),
            location("other.spile"),
        ],
        None,
    );
    let ranks: Vec<_> = found.profiles.iter().map(|(_, p)| p.title()).collect();
    assert_eq!(ranks, ["rank 0", "rank 1", "rank 2"]);
    let root = format!("{}/", folder.path().display());
    let said: Vec<_> = found.said.iter().map(|s| s.replace(&root, "")).collect();
    assert_eq!(
        said,
        [
            "nothing.d: no file in it ends in .spile",
            "cut.spile: has a damaged first line: EOF while parsing a string at line 1 column 30",
            "empty.spile: is empty",
            "foreign.spile: is not a profile of spile",
            "json.spile: is not a profile of spile",
            "pi.node2.00002.spile: is truncated (is the recorder still running?); its last complete checkpoint, number 2, is used",
            "version.spile: has version 2 of the format; this spile reads version 1",
            "gone: cannot be read: No such file or directory (os error 2)",
            "other.spile: belongs to run another, not to slurm-1234.0, and is not used (--run chooses)",
        ]
    );
    let found = find(&[folder.path().to_owned()], Some("ano"));
    assert_eq!(found.profiles.len(), 1);
    let found = find(&[folder.path().to_owned()], Some("x"));
    assert_eq!(found.profiles.len(), 0);
    assert!(
        found
            .said
            .contains(&"no file belongs to a run `x`".to_owned())
    );
}
