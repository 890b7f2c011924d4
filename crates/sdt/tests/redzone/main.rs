//! A marker that is rewritten into a call must not damage a leaf function's red zone. The test
//! rewrites markers, for each compiler on this machine, and makes the kernel do so (Linux 6.18)
//! where uprobes are allowed.
#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};
use std::process::Command;

use spile_debuginfo::sdt;

mod uprobe;

const ROUNDS: &str = "500";

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/redzone")
        .join(file)
}

fn include() -> String {
    format!("-I{}/../../include", env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let out = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {text}{errors}");
    text
}

/// The C and C++ compilers on this machine.
fn compilers() -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for base in ["gcc", "g++", "clang", "clang++"] {
        let numbered = (9..25).map(|n| format!("{base}-{n}"));
        for name in std::iter::once(base.to_owned()).chain(numbered) {
            let Ok(version) = Command::new(&name).arg("-dumpversion").output() else {
                continue;
            };
            // `gcc` and `gcc-12` may be the same.
            let same = (base, version.stdout);
            if version.status.success() && !seen.contains(&same) {
                seen.push(same);
                found.push(name);
            }
        }
    }
    assert!(!found.is_empty(), "no C compiler");
    found
}

/// A built program, and the location of its marker.
struct Program {
    what: String,
    path: PathBuf,
    address: u64,
    offset: u64,
    semaphore: u64,
}

impl Program {
    /// A program with its marker.
    fn with_marker(what: String, path: PathBuf) -> Program {
        let bytes = std::fs::read(&path).expect("built");
        let all = sdt::markers(&bytes).expect("an ELF file");
        let found: Vec<_> = all.iter().filter(|m| m.provider == "redzone").collect();
        assert_eq!(found.len(), 1, "{what}");
        let marker = found[0];
        Program {
            what,
            path,
            address: marker.address,
            offset: marker.offset,
            semaphore: marker.semaphore,
        }
    }

    /// The negative control with its instruction. Its file is not position independent and has one
    /// code segment, in which the instruction is found by its bytes.
    fn bare(what: String, path: PathBuf) -> Program {
        let listing = run(Command::new("nm").arg(&path));
        let line = listing.lines().find(|l| l.ends_with(" leaf_site"));
        let address = line
            .and_then(|l| l.split(' ').next())
            .expect("the site's symbol");
        let address = u64::from_str_radix(address, 16).expect("an address");
        let bytes = std::fs::read(&path).expect("built");
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        let in_page =
            |at: usize| at as u64 % 4096 == address % 4096 && bytes[at..].starts_with(&nop);
        let locations: Vec<_> = (0..bytes.len() - 5).filter(|at| in_page(*at)).collect();
        assert_eq!(locations.len(), 1, "{what}");
        Program {
            what,
            path,
            address,
            offset: locations[0] as u64,
            semaphore: 0,
        }
    }

    fn damaged(&self, output: &str) -> u64 {
        let words: Vec<_> = output.split_whitespace().collect();
        assert_eq!(words[0], ROUNDS, "{}: {output}", self.what);
        words[2].parse().expect("a number")
    }

    /// Number of damaged rounds when the site is made a call by hand.
    fn damaged_by_call(&self) -> u64 {
        let site = format!("{:#x}", self.address);
        self.damaged(&run(Command::new(&self.path).args([ROUNDS, &site])))
    }

    /// Numbers of damaged rounds and of hits when the kernel probes the site; `None` where that is
    /// not allowed.
    fn damaged_by_kernel(&self) -> Option<(u64, u64)> {
        let probe = uprobe::Uprobe::open(&self.path, self.offset, self.semaphore).ok()?;
        let output = run(Command::new(&self.path).arg(ROUNDS));
        Some((self.damaged(&output), probe.hits()))
    }
}

/// Builds the C program; `None` if this compiler cannot.
fn c_program(dir: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let out = dir.join("leaf");
    let mut command = Command::new(compiler);
    if compiler.contains("++") {
        command.args(["-x", "c++"]);
    }
    command.args(options).arg(include());
    command.args(["-fno-pie", "-c", "-Wall", "-Wextra", "-Werror"]);
    let object = dir.join("leaf.o");
    run(command.arg(here("leaf.c")).arg("-o").arg(&object));
    // `leaf_patch` is C.
    let patch = dir.join("patch.o");
    let mut command = Command::new("cc");
    run(command
        .args(["-no-pie", "-fno-pie", "-c"])
        .arg(here("patch.c"))
        .arg("-o")
        .arg(&patch));
    let mut link = Command::new("cc");
    run(link
        .args(["-no-pie"])
        .args([&object, &patch])
        .arg("-o")
        .arg(&out));
    out
}

fn rust_program(dir: &Path, options: &[&str]) -> PathBuf {
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let library = dir.join("libspile_sdt.rlib");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let edition = ["--edition", "2024"];
    let mut command = Command::new(rustc);
    command
        .args(edition)
        .args(["--crate-type", "rlib", "--crate-name", "spile_sdt", "-O"]);
    run(command.arg(source).arg("-o").arg(&library));
    let patch = dir.join("patch.o");
    let mut command = Command::new("cc");
    run(command
        .args(["-fno-pie", "-c"])
        .arg(here("patch.c"))
        .arg("-o")
        .arg(&patch));
    let out = dir.join("leaf");
    let mut command = Command::new(rustc);
    command
        .args(edition)
        .args(["--check-cfg", "cfg(bare)", "-C", "relocation-model=static"]);
    command
        .args(options)
        .arg("--extern")
        .arg(format!("spile_sdt={}", library.display()));
    command
        .arg("-C")
        .arg(format!("link-arg={}", patch.display()));
    run(command.arg(here("leaf.rs")).arg("-o").arg(&out));
    out
}

/// The marker is safe when it becomes a call, and under a probe.
fn is_safe(program: &Program) {
    assert_eq!(program.damaged_by_call(), 0, "{}", program.what);
    match program.damaged_by_kernel() {
        Some((damaged, hits)) => {
            assert_eq!(
                (damaged, hits.to_string().as_str()),
                (0, ROUNDS),
                "{}",
                program.what
            );
        }
        None => println!("{}: no uprobes here", program.what),
    }
}

/// Without protection a call damages the red zone, so the test can detect it. The kernel's
/// behaviour depends on its version: 6.18 damages all rounds except the first.
fn is_unsafe(program: &Program) {
    let what = &program.what;
    assert_eq!(program.damaged_by_call().to_string(), ROUNDS, "{what}");
    if let Some((damaged, hits)) = program.damaged_by_kernel() {
        println!("{what}, bare: {hits} hits of the kernel's probe, {damaged} damaged");
        assert_eq!(hits.to_string(), ROUNDS, "{what}");
    }
}

#[test]
fn markers_of_the_header_keep_the_red_zone() {
    let dir = tempfile::tempdir().expect("a folder");
    for compiler in compilers() {
        let levels: &[&str] = match compiler.contains("++") {
            true => &["-O2"],
            false => &["-O0", "-O1", "-O2", "-Os"],
        };
        for level in levels {
            let level: &str = level;
            let mut variants: Vec<Vec<&str>> = vec![vec![level]];
            variants.push(vec![level, "-fno-omit-frame-pointer"]);
            if compiler.starts_with("clang") {
                variants.push(vec![level, "-DSPILE_SDT_NO_ASM_GOTO"]);
            }
            for options in variants {
                let what = format!("{compiler} {}", options.join(" "));
                let path = c_program(dir.path(), &compiler, &options);
                is_safe(&Program::with_marker(what, path));
            }
        }
        let path = c_program(dir.path(), &compiler, &["-O2", "-DBARE"]);
        is_unsafe(&Program::bare(format!("{compiler} -O2"), path));
    }
}

#[test]
fn markers_of_the_crate_keep_the_red_zone() {
    let dir = tempfile::tempdir().expect("a folder");
    for level in [
        "-Copt-level=1",
        "-Copt-level=2",
        "-Copt-level=3",
        "-Copt-level=s",
    ] {
        let path = rust_program(dir.path(), &[level]);
        is_safe(&Program::with_marker(format!("rustc {level}"), path));
    }
    let path = rust_program(dir.path(), &["-O", "--cfg", "bare"]);
    is_unsafe(&Program::bare("rustc -O".into(), path));
}
