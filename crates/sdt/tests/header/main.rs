//! `spile/sdt.h` with each compiler on this machine: it compiles without warnings in all standards,
//! and the notes describe the arguments.

use std::path::Path;
use std::process::Command;

use spile_debuginfo::sdt::{self, ArgLocation, Marker};

const C: [&str; 6] = ["gnu89", "c99", "gnu99", "c11", "c17", "gnu17"];
const CXX: [&str; 5] = ["c++98", "c++11", "c++14", "c++17", "c++20"];

/// The compilers on this machine, including those with version numbers.
fn compilers(base: &str) -> Vec<String> {
    let numbered = (9..25).rev().map(|n| format!("{base}-{n}"));
    std::iter::once(base.to_owned())
        .chain(numbered)
        .filter(|name| {
            let version = Command::new(name).arg("--version").output();
            version.is_ok_and(|o| o.status.success())
        })
        .take(2)
        .collect()
}

/// Builds and runs the program, and reads its markers.
fn markers(compiler: &str, options: &[&str]) -> Vec<Marker> {
    let dir = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = dir.path().join("all");
    let mut command = Command::new(compiler);
    command.args(options);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg("-I").arg(root.join("../../include")).arg("-x");
    command.arg(if compiler.contains("++") { "c++" } else { "c" });
    command
        .arg(root.join("tests/header/all.c"))
        .arg("-o")
        .arg(&out);
    let built = command.output().expect("the compiler runs");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{command:?}: {errors}");
    let ran = Command::new(&out).status().expect("it runs");
    assert!(ran.success(), "{command:?}: {ran}");
    let bytes = std::fs::read(&out).expect("built");
    let found = sdt::markers(&bytes).expect("an ELF file");
    for m in &found {
        for o in &m.args {
            assert!(
                !matches!(o.location, ArgLocation::Unreadable(_)),
                "{}: {:?}",
                m.name,
                o.location
            );
        }
        if cfg!(target_arch = "x86_64") {
            let at = usize::try_from(m.offset).expect("an offset");
            assert_eq!(bytes[at..at + 5], [0x0f, 0x1f, 0x44, 0, 0], "{}", m.name);
        }
    }
    found
}

/// Sizes of the arguments of all sites of a marker, negative where signed.
fn sizes(all: &[Marker], provider: &str, name: &str) -> Vec<Vec<i32>> {
    let sites = all
        .iter()
        .filter(|m| m.provider == provider && m.name == name);
    let sized = |o: &sdt::MarkerArg| i32::from(o.size) * if o.signed { -1 } else { 1 };
    sites.map(|m| m.args.iter().map(sized).collect()).collect()
}

fn check(all: &[Marker], cxx: bool) {
    let one = |name: &str| {
        let mut found = sizes(all, "types", name);
        assert_eq!(found.len(), 1, "{name}");
        found.remove(0)
    };
    assert_eq!(one("none"), [0; 0]);
    assert_eq!(one("one"), [-1]);
    let twelve = one("twelve");
    assert_eq!(twelve[..10], [-1, 1, -2, 2, -4, 4, -8, 8, 8, -4]);
    assert_eq!((twelve[10].abs(), twelve[11]), (4, 8));
    let odd = one("odd");
    assert_eq!(odd[1..9], [8, 8, 8, -4, -4, 8, 8, 8]);
    assert_eq!(one("sem"), [-4, 4]);
    assert_eq!(sizes(all, "types", "statement").len(), 2);
    let site = |name| all.iter().find(|m| m.name == name).expect("the marker");
    assert_ne!(site("sem").semaphore, 0);
    assert_eq!(site("one").semaphore, 0);
    if cxx {
        let mut generic = sizes(all, "types", "generic").concat();
        generic.sort_unstable();
        generic.dedup();
        assert_eq!(generic, [-4, -1]);
        assert_eq!(one("method"), [8, -4, -4]);
    }
}

#[test]
fn markers_of_c_programs_are_found() {
    for compiler in compilers("gcc").into_iter().chain(compilers("clang")) {
        for standard in C {
            for level in ["-O0", "-O2"] {
                let standard = format!("-std={standard}");
                let all = markers(&compiler, &[&standard, level]);
                check(&all, false);
                for (name, count) in [("six_d", 6), ("twelve", 12), ("two_v", 2), ("zero_v", 0)] {
                    assert_eq!(sizes(&all, "compat", name)[0].len(), count, "{name}");
                }
            }
        }
        check(&markers(&compiler, &["-Os", "-fPIC", "-flto"]), false);
    }
}

#[test]
fn markers_of_cxx_programs_are_found() {
    for compiler in compilers("g++").into_iter().chain(compilers("clang++")) {
        for standard in CXX {
            let standard = format!("-std={standard}");
            check(&markers(&compiler, &[&standard, "-O2"]), true);
        }
        check(&markers(&compiler, &["-O0"]), true);
    }
}

/// Semaphores that the program defines itself, as headers made by `dtrace -h` do.
#[test]
fn semaphores_that_the_program_defines_are_used() {
    for compiler in compilers("gcc").into_iter().chain(compilers("clang")) {
        let all = markers(&compiler, &["-O2", "-DUSER_SEMAPHORES"]);
        let of = |name: &str| {
            let found = all
                .iter()
                .find(|m| m.provider == "compat" && m.name == name);
            found.expect("the marker").semaphore
        };
        assert!(of("none") != 0 && of("three") != 0 && of("none") != of("three"));
    }
}
