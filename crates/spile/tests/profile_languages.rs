//! `spile profile` gives functions of each language the share of the processor that the program measures
//! itself. The programs are in `tests/programs/shares`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The seconds for which a program computes, and the samples of one: 998 in all. Four standard deviations
/// of a share of 75 % are 5.5 points.
const SECONDS: &str = "2";
const SAMPLES: &str = "499";
const POINTS: f64 = 0.055;

/// The folder of the programs.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/shares")
}

/// Runs a compiler in the folder of the programs.
fn compile(words: &[&str]) {
    let mut command = Command::new(words[0]);
    let status = command.args(&words[1..]).current_dir(sources()).status();
    assert!(status.expect(words[0]).success(), "{words:?}");
}

/// Records a program with these options. Compares the shares of its functions, whose names end so, with
/// that which it prints.
#[track_caller]
fn compare(options: &[&str], program: &[&str]) {
    // Node writes a log there.
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .current_dir(folder.path())
        .args(["profile", "--json", "--freq", SAMPLES])
        .args(options)
        .arg("--")
        .args(program)
        .arg(SECONDS)
        .output()
        .unwrap();
    let own: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // Java reports its options before.
    let json = text.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(json.unwrap_or(&text)).expect(&text);
    // The names of generated code.
    let pid = &report["recordings"][0]["pid"];
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let running = |name: &str| -> u64 {
        let is = |place: &&Value| {
            let function = place["function"].as_str().unwrap_or_default();
            let caller = place["caller"].as_str().unwrap_or_default();
            place["part"] == "user" && (function.ends_with(name) || caller.ends_with(name))
        };
        let places = report["places"].as_array().unwrap().iter().filter(is);
        places.map(|place| place["time"].as_u64().unwrap()).sum()
    };
    let (heavy, light) = (running("heavy"), running("light"));
    let share = heavy as f64 / (heavy + light) as f64;
    assert!((share - own).abs() < POINTS, "{share} of {own}: {text}");
}

/// A compiled program in a folder that is removed at the end.
fn compiled(compiler: &[&str], source: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shares").display().to_string();
    compile(&[compiler, &["-o", &program, source]].concat());
    compare(&[], &[&program]);
}

#[test]
fn of_c() {
    compiled(&["cc", "-O2"], "shares.c");
}

#[test]
fn of_cpp() {
    compiled(&["c++", "-O2"], "shares.cc");
}

#[test]
fn of_rust() {
    compiled(&["rustc", "--edition", "2024", "-O"], "shares.rs");
}

#[test]
fn of_go() {
    compiled(&["go", "build"], "shares.go");
}

#[test]
fn of_python() {
    let source = sources().join("shares.py");
    compare(&[], &["python3", source.to_str().unwrap()]);
}

#[test]
fn of_ruby() {
    let source = sources().join("shares.rb");
    compare(&[], &["ruby", source.to_str().unwrap()]);
}

#[test]
fn of_php() {
    let source = sources().join("shares.php");
    compare(&[], &["php", source.to_str().unwrap()]);
}

#[test]
fn of_javascript() {
    let source = sources().join("shares.js");
    compare(
        &[],
        &["node", "--perf-basic-prof", source.to_str().unwrap()],
    );
}

#[test]
fn of_java() {
    let folder = tempfile::tempdir().unwrap();
    let classes = folder.path().display().to_string();
    compile(&["javac", "-d", &classes, "Shares.java"]);
    // A compiler's inlining is not in the map of its code.
    let quiet = "-XX:CompileCommand=quiet";
    let functions = "-XX:CompileCommand=dontinline,Shares::*";
    compare(
        &["--java"],
        &["java", quiet, functions, "-cp", &classes, "Shares"],
    );
}

/// perf and `spile profile` sample the same run. Each has some 8,000 samples: three standard deviations of the difference
/// between the shares would be 2 points if they took them apart.
#[test]
fn perf_has_the_same_shares() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (program, samples, recording) = (path("shares"), path("perf"), path("spile"));
    compile(&["cc", "-O2", "-o", &program, "shares.c"]);
    let text = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().expect(program);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let spile = env!("CARGO_BIN_EXE_spile");
    #[rustfmt::skip]
    text("perf", &[
        "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", &samples, "--",
        spile, "profile", "--freq", "1999", "-o", &recording, "--", &program, "4",
    ]);
    #[rustfmt::skip]
    let perf = text("perf", &[
        "report", "-q", "--stdio", "-i", &samples, "--comm", "shares", "--sort", "sym", "-F", "sample,sym",
    ]);
    let folded = text(spile, &["report", "--export", "folded", &recording]);
    let of_perf = |function: &str| {
        let mut lines = perf.lines().map(|line| line.split_whitespace());
        let line = lines.find(|line| line.clone().last() == Some(function));
        line.and_then(|mut line| line.next()?.parse::<f64>().ok())
    };
    let of_spile = |function: &str| {
        let of_path = |line: &str| {
            let (path, ns) = line.rsplit_once(' ')?;
            let is = path.split(';').any(|frame| frame == function);
            is.then(|| ns.parse::<f64>().ok())?
        };
        Some(folded.lines().filter_map(of_path).sum())
    };
    let share = |of: &dyn Fn(&str) -> Option<f64>| {
        let [heavy, light] = ["heavy", "light"].map(|name| of(name).expect(&perf));
        heavy / (heavy + light)
    };
    let (theirs, ours) = (share(&of_perf), share(&of_spile));
    assert!((theirs - ours).abs() < 0.02, "{theirs}, {ours}: {folded}");
}
