//! Programs without OpenMP and MPI, modules, marks, limits, and the library's exports.

use std::io::Read;
use std::process::{Command, Output};

use crate::build::{compile, shared};
use crate::watch::watch;

fn with_library(program: &[&str]) -> Output {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    command.env("LD_PRELOAD", shared("context.so"));
    command.env("OMP_TOOL_LIBRARIES", shared("context.so"));
    command.output().expect(program[0])
}

#[test]
fn other_programs_are_undisturbed() {
    let programs: &[&[&str]] = &[
        &["true"],
        &["sh", "-c", "echo a; (exit 3); echo $?; echo b | cat"],
        &["bash", "-c", "x=$(echo c); echo $x; exec ls /"],
        &[
            "python3",
            "-c",
            "import os, threading; os.fork() or os._exit(0); os.wait(); print(1)",
        ],
        // A set-user-ID program: the dynamic linker preloads nothing into it.
        &["su", "--version"],
        &["ldconfig", "-V"],
    ];
    for program in programs {
        if Command::new(program[0])
            .args(&program[1..])
            .output()
            .is_err()
        {
            continue;
        }
        let plain = Command::new(program[0])
            .args(&program[1..])
            .output()
            .expect(program[0]);
        let with = with_library(program);
        assert_eq!(with, plain, "{program:?}");
    }
}

/// Without regions nothing is announced, not even by forked children; and forks copy few mappings:
/// code, data that is read-only after linking, and data.
#[test]
fn forks_without_regions_announce_nothing() {
    let seen = watch(&["sh", "-c", "(exit 3); true | true"], &[]);
    assert!(seen.iter().all(|p| p.locations.is_empty()), "{seen:?}");
    let maps = with_library(&["cat", "/proc/self/maps"]);
    let maps = String::from_utf8(maps.stdout).expect("text");
    let ours = maps.lines().filter(|l| l.ends_with("/context.so"));
    let ours: Vec<&str> = ours.collect();
    assert_eq!(ours.len(), 2, "{maps}");
    assert!(!ours.iter().any(|l| l.contains(" rwx")), "{maps}");
}

/// A fork copies the entries of its pages there, so that look-ups in a child are no page faults.
#[test]
fn symbols_are_looked_up_among_the_data() {
    let mut command = Command::new("readelf");
    command.arg("-SW").arg(shared("context.so"));
    let out = command.output().expect("readelf");
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    let at = |name| out.find(name).expect(&out);
    assert!(at(" .dynamic ") < at(" .gnu.hash "), "{out}");
    assert!(at(" .gnu.hash ") < at(" .bss "), "{out}");
}

#[test]
fn exports_only_what_has_to_be_interposed() {
    let symbols = |option: &str| {
        let mut command = Command::new("nm");
        command.args(["-D", option]).arg(shared("context.so"));
        let out = command
            .output()
            .expect("nm, of binutils as gcc's assembler");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let prefixes = [
        "GOMP_",
        "MPI_",
        "PMPI_",
        "mpi_",
        "spile_region_",
        "ompt_start_tool",
    ];
    let mut count = 0;
    for line in symbols("--defined-only").lines() {
        let name = line.rsplit(' ').next().expect(line);
        assert!(prefixes.iter().any(|k| name.starts_with(k)), "{line}");
        count += 1;
    }
    assert!(count > 1000, "{count}");
    for line in symbols("--undefined-only").lines() {
        assert!(line.trim_start().starts_with("w "), "not weak: {line}");
    }
    let mut command = Command::new("readelf");
    command.arg("-d").arg(shared("context.so"));
    let out = command.output().expect("readelf");
    assert!(!String::from_utf8_lossy(&out.stdout).contains("NEEDED"));
}

/// Modules that are opened with separate scopes.
#[test]
fn modules_opened_with_separate_scopes_have_regions() {
    let dir = tempfile::tempdir().expect("a folder");
    let opens = dir.path().join("opens");
    compile("gcc", &["-ldl"], "context-opens.c", &opens).expect("gcc");
    let mut args = vec![opens.to_str().expect("a name").to_owned()];
    for (name, compiler) in [
        ("a", "gcc"),
        ("b", "gcc"),
        ("c", "clang-14"),
        ("d", "clang-19"),
    ] {
        let module = dir.path().join(format!("{name}.so"));
        let flags = ["-g", "-fopenmp", "-shared", "-fPIC"];
        if compile(compiler, &flags, "context-module.c", &module).is_some() {
            args.push(module.to_str().expect("a name").to_owned());
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let seen = watch(&args, &[]);
    assert_eq!(seen[0].paths("in-module"), ["parallel"]);
    assert_eq!(seen[0].all("parallel").len(), args.len() - 1);
}

#[test]
fn regions_beyond_the_bounds_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("many");
    compile("gcc", &["-O2"], "context-many.c", &program).expect("gcc");
    let seen = watch(&[program.to_str().expect("a name")], &[]);
    let process = &seen[0];
    assert_eq!(process.regions.len(), 65535);
    assert_eq!(process.paths("deep"), ["recursive/step"]);
    assert_eq!(process.paths("after-recursion"), [""]);
    assert_eq!(process.paths("first"), ["around/0"]);
    // Regions without a number count for the surrounding region.
    assert_eq!(process.paths("last"), ["around"]);
    assert_eq!(process.paths("around"), ["around"]);
    assert_eq!(process.paths("end"), [""]);
    assert_eq!(process.refused[..4], [1, 2, 4, 8]);
}

/// The header in all language standards, and in programs without a dynamic linker.
#[test]
fn regions_of_the_header_do_nothing_without_the_library() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("marks");
    let warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
    for compiler in [
        "gcc",
        "clang",
        "clang-14",
        "clang-19",
        "g++",
        "clang++",
        "clang++-19",
    ] {
        let cxx = compiler.contains("++");
        let standards: &[&str] = match cxx {
            true => &["-std=gnu++98", "-std=c++17", "-std=c++20"],
            false => &["-std=gnu89", "-std=gnu99", "-std=gnu17"],
        };
        let language = if cxx { "-xc++" } else { "-xc" };
        for (standard, link) in standards.iter().zip(["-pie", "-no-pie", "-static"]) {
            let code = if link == "-pie" { "-fPIE" } else { "-fno-pie" };
            let flags = [&[language, standard, link, code, "-O1"][..], &warnings].concat();
            let source = crate::build::source("context-marks.c");
            let built = Command::new(compiler)
                .args(&flags)
                .arg(source)
                .arg("-o")
                .arg(&program)
                .output();
            let Ok(built) = built else {
                continue;
            };
            assert!(built.status.success(), "{compiler} {flags:?}: {built:?}");
            let plain = Command::new(&program).output().expect("the program");
            assert!(plain.status.success(), "{compiler} {flags:?}");
            if link != "-static" {
                let seen = watch(&[program.to_str().expect("a name")], &[]);
                assert_eq!(seen[0].paths("in"), ["here"], "{compiler} {flags:?}");
                assert_eq!(seen[0].paths("out"), [""]);
            }
        }
    }
}

/// Without a reader each thread fills its ring once, and counts the changes that do not fit.
#[test]
fn changes_that_nobody_takes_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("times");
    let include = format!("-I{}/../../include", env!("CARGO_MANIFEST_DIR"));
    let args = ["-O1", "-pthread", &include];
    if compile("gcc", &args, "region-times.c", &program).is_none() {
        spile_testing::skip("gcc is not installed");
    }
    for (front, rings) in [("", 0), ("+", 8)] {
        let folder = dir.path().join(format!("files{rings}"));
        std::fs::create_dir(&folder).expect("a folder");
        let done = Command::new(&program)
            .args(["fast", "50000"])
            .env("LD_PRELOAD", shared("context.so"))
            .env("SPILE_REGIONS", format!("{front}{}", folder.display()))
            .status();
        assert!(done.expect("it starts").success());
        // One file, although eight threads enter their first region at once.
        let files: Vec<_> = std::fs::read_dir(&folder).expect("there").collect();
        let [Ok(file)] = &files[..] else {
            panic!("one file: {files:?}")
        };
        let mut file = std::fs::File::open(file.path()).expect("there");
        let mut chunk = vec![0; 65_600];
        let mut found = 0;
        // Eight threads have one chunk for counts, and up to 16 for changes.
        for _ in 0..8 * 17 {
            file.read_exact(&mut chunk).expect("as large as that");
            let word = |n: usize| {
                let bytes = chunk[n * 8..n * 8 + 8].try_into().expect("eight");
                u64::from_le_bytes(bytes)
            };
            let [written, lost, taken, first] = [4, 5, 6, 7].map(word);
            if first > 0 {
                assert_eq!((written, lost, taken), (65_536, 100_000 - 65_536, 0));
                found += 1;
            }
        }
        assert_eq!(found, rings);
    }
}
