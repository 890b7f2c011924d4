//! `spile report` and `spile diff` as a user starts them, on files of synthetic runs. They need no
//! privilege.

#[allow(dead_code, reason = "what only tests of the reports use")]
#[path = "../../profile/tests/testgen/mod.rs"]
mod testgen;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use spile_profile::Profile;
use spile_profile::file::{Writer, name};
use spile_profile::model::Options;

fn spile(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(args)
        .output()
        .expect("spile starts")
}

/// The output and the messages of a successful run.
fn good(args: &[&str]) -> (String, String) {
    let out = spile(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&out.stderr);
    assert!(out.status.success(), "{args:?}: {said}");
    (text(&out.stdout), said)
}

fn put(folder: &Path, profile: &Profile) {
    let mut writer = Writer::new(Vec::new(), &profile.header).expect("memory");
    writer.events(&profile.events).expect("memory");
    writer.snapshot(&profile.data).expect("memory");
    let end = profile.end.clone().unwrap_or_default();
    let bytes = writer.end(&end).expect("memory");
    std::fs::write(folder.join(name("pi", &profile.header)), bytes).expect("a file");
}

/// A folder with the files of a run of that many ranks.
fn run(ranks: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in 0..ranks {
        put(folder.path(), &testgen::example(rank, ranks, 3));
    }
    folder
}

#[test]
fn ranks_become_one_report() {
    let folder = run(4);
    let path = folder.path().to_str().expect("a path");
    std::fs::write(folder.path().join("x.spile"), "").expect("a file");
    let (text, said) = good(&["report", path]);
    assert!(text.starts_with("./pi 100000000: 2.00 s, 4 ranks, 2 nodes, 12 threads"));
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert_eq!(said, format!("WARNING: {path}/x.spile: is empty\n"));

    let (text, _) = good(&["report", "--threads", path]);
    assert_eq!(text.matches("----- TID ").count(), 12);
}

#[test]
fn two_runs_are_compared() {
    let (a, b) = (run(1), run(2));
    let path = |folder: &tempfile::TempDir| folder.path().to_str().expect("a path").to_owned();
    let (text, said) = good(&["diff", &path(&a), &path(&b)]);
    assert!(text.contains("threads 3 -> 6"), "{text}");
    assert_eq!(said, "");
}

/// A folder with several runs is a set, whose spread is the noise.
#[test]
fn sets_of_runs_are_compared() {
    let set = |user: [u64; 3]| {
        let folder = tempfile::tempdir().expect("a folder");
        for (run, user) in (0u32..).zip(user) {
            let mut profile = testgen::example(0, 1, 1);
            profile.header.run = format!("run-{run}");
            profile.header.pid = Some(run + 1);
            profile.data.threads[0].parts.user = user;
            put(folder.path(), &profile);
        }
        folder
    };
    let (a, b) = (
        set([100_000_000, 101_000_000, 102_000_000]),
        set([200_000_000, 201_000_000, 202_000_000]),
    );
    let path = |folder: &tempfile::TempDir| folder.path().to_str().expect("a path").to_owned();
    let (text, said) = good(&["diff", &path(&a), &path(&b)]);
    assert_eq!(said, "");
    assert!(text.starts_with("A (3 runs) -> B (3 runs): "), "{text}");
    assert!(text.contains("spread of 3 and 3 runs"), "{text}");
    let (json, _) = good(&["diff", "--json", &path(&a), &path(&b)]);
    let diff: Value = serde_json::from_str(&json).expect("JSON");
    let places = diff["places"].as_array().expect("a list");
    let changed: Vec<_> = places.iter().filter(|p| p["changed"] == true).collect();
    assert_eq!(
        (changed.len(), &changed[0]["part"]),
        (1, &"user".into()),
        "{changed:?}"
    );
    let noise = number(changed[0], "/noise");
    // The error is 1 ms * sqrt(2 / 3), with 4 degrees of freedom.
    assert!((3_700_000..3_820_000).contains(&noise), "{noise}");
    let page = format!("{}/page.html", path(&a));
    good(&["diff", "--html", &page, &path(&a), &path(&b)]);
    let page = std::fs::read_to_string(page).expect("text");
    assert!(page.contains("A (3 runs)"));
    assert_eq!(
        page.matches("./pi 100000000").count(),
        2,
        "the title and the heading"
    );
    assert!(!page.contains("@TITLE@"));
}

/// A number of an object.
fn number(value: &Value, path: &str) -> i64 {
    let found = value.pointer(path).and_then(Value::as_i64);
    found.unwrap_or_else(|| panic!("{path}: {value}"))
}

/// The parts of a row plus the residual are its time.
#[track_caller]
fn closes(row: &Value) {
    let parts = row["parts"].as_object().expect("parts");
    let sum: i64 = parts.values().filter_map(Value::as_i64).sum();
    assert_eq!(
        sum + number(row, "/residual"),
        number(row, "/time"),
        "{row}"
    );
}

#[test]
fn reports_are_printed_as_json() {
    let folder = run(4);
    let path = folder.path().to_str().expect("a path");
    let (text, said) = good(&["report", "--json", path]);
    assert_eq!((text.lines().count(), &*said), (1, ""));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["format"], "spile-report");
    assert_eq!(report["command"][0], "./pi");
    closes(&report["all"]);
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    for row in [list("ranks"), list("nodes"), list("threads")].concat() {
        closes(&row);
    }
    let time = |rows: &[Value]| rows.iter().map(|r| number(r, "/time")).sum::<i64>();
    assert_eq!((list("ranks").len(), list("nodes").len()), (4, 2));
    for name in ["ranks", "nodes", "threads"] {
        assert_eq!(time(&list(name)), number(&report, "/all/time"), "{name}");
    }
    for call in [list("calls"), list("calls_by_region")].concat() {
        let parts = ["/cpu", "/blocked", "/runnable", "/taken"];
        let sum: i64 = parts.iter().map(|part| number(&call, part)).sum();
        assert_eq!(sum, number(&call, "/time"), "{call}");
    }
    // Each thread except the first of each rank makes 37.
    let calls = list("calls");
    let yields = calls.iter().find(|c| c["name"] == "sched_yield");
    assert_eq!(number(yields.expect("a call"), "/count"), 4 * 2 * 37);
    for other in ["--threads", "--html=x"] {
        assert!(!spile(&["report", "--json", other, path]).status.success());
    }
}

#[test]
fn options_in_which_recordings_differ_are_named() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |folder: &tempfile::TempDir| folder.path().to_str().expect("a path").to_owned();
    let mut profile = testgen::example(0, 1, 3);
    put(a.path(), &profile);
    let (same, _) = good(&["diff", &path(&a), &path(&a)]);
    assert!(!same.contains("NOTE"), "{same}");
    // Regions are compared, and have not changed.
    assert!(!same.contains("\nRegions"), "{same}");
    let (json, _) = good(&["diff", "--json", &path(&a), &path(&a)]);
    let compared: Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        compared["regions"]
            .as_array()
            .is_some_and(|rows| rows.len() > 1)
    );

    profile.header.options = Options {
        no_regions: true,
        ..Options::default()
    };
    profile.header.kernel = "6.1".to_owned();
    profile.data.contexts.clear();
    profile.data.context_times.clear();
    put(b.path(), &profile);
    let (text, _) = good(&["diff", &path(&a), &path(&b)]);
    let text = text.replace("\n  ", " ");
    for note in [
        "NOTE: recorded with different options: A --futexes --latency --no-samples --stacks --trace; B --no-regions --no-samples\n",
        "NOTE: recorded with different kernels: A 6.12.1; B 6.1\n",
    ] {
        assert!(text.contains(note), "{text}");
    }
    assert!(!text.contains("\nRegions"), "{text}");

    let (text, _) = good(&["diff", "--json", &path(&a), &path(&b)]);
    let diff: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(diff["format"], "spile-diff");
    assert_eq!(diff["notes"].as_array().map(Vec::len), Some(2));
    for row in diff["calls"].as_array().expect("a list") {
        assert_eq!(row["a"], row["b"], "the same calls");
    }
    closes(&diff["a"]["all"]);
}

/// A rank prints no summary, so it has no JSON either.
#[test]
fn ranks_print_no_json() {
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--json", "--", "true"])
        .envs([("PMI_RANK", "0"), ("PMI_SIZE", "1")])
        .output()
        .expect("spile starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("spile report --json"), "{said}");
}

#[test]
fn all_exports_and_the_page_are_written() {
    let folder = run(2);
    let path = folder.path().to_str().expect("a path");
    let at = |name: &str| format!("{path}/{name}");

    let (formats, _) = good(&["report", "--export", "help"]);
    for line in formats.lines() {
        let name = line.split_whitespace().next().expect("a name");
        let to = at(name);
        good(&["report", path, "--export", name, "-o", &to]);
        assert!(Path::new(&to).exists(), "{name}");
    }
    assert!(Path::new(&at("tau/profile.1.0.2")).exists());
    assert!(Path::new(&at("otf2/traces/5.evt")).exists());
    let (folded, _) = good(&["report", path, "--export", "folded"]);
    assert_eq!(
        folded.as_bytes(),
        std::fs::read(at("folded")).expect("a file")
    );

    let page = at("page.html");
    let (out, _) = good(&["report", path, "--html", &page]);
    assert_eq!(out, "");
    let page = std::fs::read_to_string(page).expect("text");
    assert!(page.contains("slurm-1234.0"));

    for (args, what) in [
        (
            ["--export", "x"],
            "ERROR: there is no format `x`; the formats are:\n  tau ",
        ),
        (
            ["--export", "tau"],
            "ERROR: tau is a folder: name it with -o\n",
        ),
        (
            ["--html", "/nonexistent/x"],
            "ERROR: cannot write /nonexistent/x: ",
        ),
    ] {
        let out = spile(&[&["report", path], &args[..]].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.starts_with(what), "{said}");
    }
}

/// A copy that ended early, or a file of a recorder that was killed.
#[test]
fn a_file_that_is_cut_is_reported_with_a_reason() {
    let folder = run(1);
    let path = folder.path().to_str().expect("a path");
    let file = std::fs::read_dir(folder.path()).expect("a folder").next();
    let file = file.expect("a file").expect("a file").path();
    let whole = std::fs::read(&file).expect("a file");
    let page = format!("{path}/page.html");
    for (length, why) in [
        (0, "is empty"),
        (10, "has a damaged first line"),
        (
            whole.len() / 2,
            "is truncated before its first complete checkpoint",
        ),
        (
            whole.len() - 10,
            "is truncated (is the recorder still running?); its last complete checkpoint",
        ),
    ] {
        std::fs::write(&file, &whole[..length]).expect("a file");
        for args in [
            ["report", path].as_slice(),
            &["report", path, "--json"],
            &["report", path, "--html", &page],
            &["report", path, "--export", "folded"],
            &["diff", path, path],
        ] {
            let out = spile(args);
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains(why), "{length} {args:?}: {said}");
            // Without an account there is nothing to compare.
            let fails = length <= 10 || (args[0] == "diff" && why.ends_with("checkpoint"));
            let fails = fails && !why.contains("last complete");
            assert_eq!(
                out.status.code(),
                Some(i32::from(fails)),
                "{length} {args:?}: {said}"
            );
        }
    }
}

#[test]
fn an_empty_folder_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path");
    for args in [["report", path].as_slice(), &["diff", path, path]] {
        let out = spile(args);
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&out.stderr),
            format!(
                "WARNING: {path}: no file in it ends in .spile\n\
                 ERROR: there is no profile to report\n"
            )
        );
    }
}
