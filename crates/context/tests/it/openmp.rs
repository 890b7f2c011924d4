//! OpenMP regions, waits and tasks, with libgomp and with LLVM's runtime.

use std::path::Path;

use spile_testing::skip;

use crate::build::{compile, line as source_line, shared};
use crate::watch::{Process, line, watch};

const SOURCE: &str = "context-openmp.c";

/// The program's directory, and the observed processes.
type Run = (tempfile::TempDir, Vec<Process>);

fn run(compiler: &str, args: &[&str], variables: &[(&str, &Path)]) -> Option<Run> {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("openmp");
    let flags = [&["-g", "-fopenmp"], args].concat();
    compile(compiler, &flags, SOURCE, &program)?;
    let seen = watch(&[program.to_str().expect("a name")], variables);
    Some((dir, seen))
}

/// Regions lead to their source lines.
fn lines(process: &Process) {
    let regions = process.all("outer/parallel");
    let first = regions.first().expect("regions");
    assert_eq!(line(first), source_line(SOURCE, "region"));
    let second = line(regions[1]);
    assert_eq!(second, source_line(SOURCE, "loop"));
    let barriers = process.all("outer/parallel/barrier");
    assert_eq!(line(barriers[0]), source_line(SOURCE, "barrier"));
    for task in process.all("outer/parallel/task") {
        assert_eq!(line(task), source_line(SOURCE, "task"));
    }
}

/// Properties that hold for every runtime.
fn check(seen: &[Process]) {
    let [process, child] = seen else {
        panic!("a process and its child: {seen:?}")
    };
    let at = |label: &str| process.paths(label);
    assert_eq!(at("outside"), [""]);
    assert_eq!(at("in-inner"), ["outer/inner"]);
    assert_eq!(at("thread"), [""]);
    for label in ["in-outer", "between", "in-outer-again"] {
        assert_eq!(at(label), ["outer"], "{label}");
    }
    for label in [
        "in-region",
        "after-barrier",
        "in-loop",
        "before-taskwait",
        "after-taskwait",
        "after-single",
        "in-section",
        "in-critical",
    ] {
        assert_eq!(at(label), ["outer/parallel"], "{label}");
    }
    assert_eq!(at("in-task"), ["outer/parallel/task"]);
    assert_eq!(at("end"), [""]);
    // Three threads were in the first region, each of them twice, under one number.
    let count = |label: &str| process.words.iter().filter(|w| w.0 == label).count();
    assert_eq!((count("in-region"), count("after-barrier")), (6, 6));
    assert_eq!((count("in-task"), count("in-taskloop")), (6, 20));
    let mut threads: Vec<u32> = process
        .words
        .iter()
        .filter(|w| w.0 == "in-region")
        .map(|w| w.2)
        .collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() >= 3);
    assert_eq!(process.all("outer/parallel").len(), 5);
    // Each thread in a region, including one in a forked child, announces its word exactly once.
    assert!(process.locations.len() >= threads.len(), "{process:?}");
    assert_eq!(child.locations.len(), 1, "{child:?}");

    assert_eq!(child.paths("in-child"), ["outer"]);
    assert_eq!(child.paths("in-child-region"), ["outer/child"]);
    // All regions that the child may return to were announced under its process number, too.
    assert_eq!(child.regions.len(), process.regions.len() + 1);
    for (path, kind) in [("outer", 0), ("outer/inner", 0), ("outer/child", 0)] {
        assert_eq!(child.region(path).kind, kind);
    }
}

fn kinds(process: &Process) {
    for region in process.regions.values() {
        let kind = match region.name.as_str() {
            "outer" | "inner" => 0,
            "parallel" => 1,
            "task" => 3,
            "taskloop" => continue,
            _ => 2,
        };
        assert_eq!(region.kind, kind, "{region:?}");
    }
}

#[test]
fn regions_of_gcc_s_openmp_are_announced() {
    for args in [&["-O2"][..], &["-O0"], &["-O2", "-fno-pie", "-no-pie"]] {
        let (_dir, seen) = run("gcc", args, &[]).unwrap_or_else(|| skip("gcc has no OpenMP"));
        check(&seen);
        lines(&seen[0]);
        kinds(&seen[0]);
        let paths = seen[0].paths("in-taskloop");
        assert_eq!(paths, ["outer/parallel/taskloop"]);
        // The end of each region is a barrier below it, at the region's line.
        let ends = seen[0].all("outer/parallel/implicit barrier");
        assert!(ends.len() >= 5);
        assert_eq!(line(ends[0]), source_line(SOURCE, "region"));
    }
}

/// With `LD_PRELOAD`, and with `OMP_TOOL_LIBRARIES` behind another tool.
#[test]
fn regions_of_llvm_s_openmp_are_announced() {
    let library = shared("context.so");
    let mut list = std::ffi::OsString::from("/not/there.so:");
    list.push(&library);
    let mut compilers = 0;
    for compiler in crate::build::CLANGS {
        for variables in [&[][..], &[("OMP_TOOL_LIBRARIES", Path::new(&list))]] {
            let Some((_dir, seen)) = run(compiler, &["-O2"], variables) else {
                continue;
            };
            check(&seen);
            lines(&seen[0]);
            kinds(&seen[0]);
            let paths = seen[0].paths("in-taskloop");
            assert_eq!(paths, ["outer/parallel/taskgroup/task"]);
            let first = seen[0].all("outer/parallel/implicit barrier")[0];
            assert_eq!(line(first), source_line(SOURCE, "region"));
            compilers += 1;
        }
    }
    if compilers == 0 {
        skip("no clang with OpenMP is installed");
    }
}

/// gcc's program with LLVM's runtime, which has the same entry points and reports their callers to
/// OMPT.
#[test]
fn regions_of_gcc_on_llvm_s_runtime_are_announced() {
    let Some(omp) = std::fs::read_dir("/usr/lib/x86_64-linux-gnu")
        .ok()
        .and_then(|dir| {
            let mut files = dir.flatten().map(|e| e.path());
            files.find(|p| p.ends_with("libomp.so.5"))
        })
    else {
        skip("libomp is not installed")
    };
    let preload = [shared("context.so"), omp]
        .map(|p| p.to_str().expect("a name").to_owned())
        .join(":");
    let preload = Path::new(&preload);
    let (_dir, seen) = run("gcc", &["-O2"], &[("LD_PRELOAD", preload)])
        .unwrap_or_else(|| skip("gcc has no OpenMP"));
    let process = &seen[0];
    for label in [
        "in-region",
        "after-barrier",
        "after-taskwait",
        "in-critical",
    ] {
        assert_eq!(process.paths(label), ["outer/parallel"], "{label}");
    }
    assert_eq!(process.paths("in-task"), ["outer/parallel/task"]);
    assert_eq!(process.paths("end"), [""]);
}
