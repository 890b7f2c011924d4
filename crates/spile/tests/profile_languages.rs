//! `spile profile` gives functions of each language the share of the processor that the program measures
//! itself. The programs are in `tests/programs/shares`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Records a program with these options. Compares the shares of its functions with that which it prints.
#[track_caller]
fn compare(options: &[&str], program: &[&str]) {
    // Node writes a log there.
    let folder = tempfile::tempdir().unwrap();
    let output = profile(options)
        .current_dir(folder.path())
        .arg("--")
        .args(program)
        .arg(SECONDS)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    compare_report(&printed, &String::from_utf8_lossy(&output.stderr));
}

/// The same for a program that prints the number of a process, when that runs.
#[track_caller]
fn compare_running(program: &[&str]) {
    let mut running = Command::new(program[0])
        .args(&program[1..])
        .arg(SECONDS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(running.stdout.take().unwrap());
    let mut text = String::new();
    printed.read_line(&mut text).unwrap();
    let mut command = profile(&["-v", "-p", text.trim()]);
    let mut recording = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut report = BufReader::new(recording.stderr.take().unwrap());
    let mut reported = String::new();
    while !reported.contains("starting run") && report.read_line(&mut reported).unwrap() > 0 {}
    // The program goes on.
    drop(running.stdin.take());
    report.read_to_string(&mut reported).unwrap();
    printed.read_to_string(&mut text).unwrap();
    recording.wait().unwrap();
    running.wait().unwrap();
    compare_report(&text, &reported);
}

fn profile(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
    command.args(["profile", "--json", "--freq", SAMPLES]);
    command.args(options);
    command
}

/// Compares the shares of functions, whose names end so, with that in the last line that the program printed.
#[track_caller]
fn compare_report(printed: &str, text: &str) {
    let own: f64 = printed.lines().last().unwrap().parse().unwrap();
    // Java reports its options before.
    let json = text.lines().find(|line| line.starts_with('{'));
    let report: Value = serde_json::from_str(json.unwrap_or(text)).expect(text);
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

/// A program in a language with an interpreter, also in a process that was forked in the recording, or before it.
fn interpreted(interpreter: &str, extension: &str) {
    let source = |name: &str| {
        let source = sources().join(name).with_extension(extension);
        source.display().to_string()
    };
    compare(&[], &[interpreter, &source("shares")]);
    compare(&[], &[interpreter, &source("forked")]);
    compare_running(&[interpreter, &source("forked")]);
}

#[test]
fn of_python() {
    interpreted("python3", "py");
}

#[test]
fn of_ruby() {
    interpreted("ruby", "rb");
}

#[test]
fn of_php() {
    interpreted("php", "php");
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

/// The output of a program that must succeed.
fn output(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect(program);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The share of `heavy` among the samples of both functions, in lines of a path and its samples.
fn share_in(folded: &str) -> f64 {
    let of = |function: &str| -> f64 {
        let is = |frame: &str| frame.split(' ').next() == Some(function);
        let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
        let paths = lines.filter(|(path, _)| path.split(';').any(is));
        paths.map(|(_, n)| n.parse::<f64>().expect(folded)).sum()
    };
    let (heavy, light) = (of("heavy"), of("light"));
    assert!(light > 0.0, "{folded}");
    heavy / (heavy + light)
}

/// perf and `spile profile` sample the same run. Each has some 8,000 samples: three standard deviations of the difference
/// between the shares would be 2 points if they took them apart.
#[test]
fn perf_has_the_same_shares() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (program, samples, recording) = (path("shares"), path("perf"), path("spile"));
    compile(&["cc", "-O2", "-o", &program, "shares.c"]);
    let spile = env!("CARGO_BIN_EXE_spile");
    #[rustfmt::skip]
    output("perf", &[
        "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", &samples, "--",
        spile, "profile", "--freq", "1999", "-o", &recording, "--", &program, "4",
    ]);
    #[rustfmt::skip]
    let perf = output("perf", &[
        "report", "-q", "--stdio", "-i", &samples, "--comm", "shares", "--sort", "sym", "-F", "sym,sample",
    ]);
    // "[.] heavy  2920"
    let lines = perf.lines().map(|line| {
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let theirs = share_in(&lines.collect::<Vec<_>>().join("\n"));
    let ours = share_in(&output(
        spile,
        &["report", "--export", "folded", &recording],
    ));
    assert!((theirs - ours).abs() < 0.02, "{theirs}, {ours}: {perf}");
}

/// py-spy reads the functions of Python from outside as well. It takes some 800 samples: three standard deviations of the
/// difference are 5 points. It says so if it falls behind with more.
#[test]
fn py_spy_has_the_same_shares() {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("py-spy");
    let tool = |name: &str| tools.join("bin").join(name).display().to_string();
    if !Path::new(&tool("py-spy")).exists() {
        output(
            "python3",
            &["-m", "venv", "--clear", tools.to_str().unwrap()],
        );
        output(&tool("pip"), &["install", "--quiet", "py-spy==0.4.3"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (samples, recording) = (path("py-spy"), path("spile"));
    let source = sources().join("shares.py").display().to_string();
    let spile = env!("CARGO_BIN_EXE_spile");
    #[rustfmt::skip]
    output(spile, &[
        "profile", "--freq", "999", "-o", &recording, "--",
        &tool("py-spy"), "record", "--rate", "200", "--function", "--format", "raw", "-o", &samples, "--",
        "python3", &source, "4",
    ]);
    let theirs = std::fs::read_to_string(&samples).unwrap();
    let ours = output(spile, &["report", "--export", "folded", &recording]);
    let (of_theirs, of_ours) = (share_in(&theirs), share_in(&ours));
    assert!(
        (of_theirs - of_ours).abs() < 0.05,
        "{of_theirs}, {of_ours}: {theirs}"
    );
}
