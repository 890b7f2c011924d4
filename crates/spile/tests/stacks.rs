//! Stacks of programs are those that gdb sees: with frame pointers and without, of C, C++ and
//! Rust, of a static program, and of one as Debian ships it. Both run the program without address
//! randomisation, so that the addresses of code are the same, and both stop where the probe is.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Most frames of a stack.
const FRAMES: usize = 20;

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int three(int n) { char b[100]; sprintf(b, "%d", n); return target(n) + b[0]; }
__attribute__((noinline)) int two(int n) { return three(n * 2) + 3; }
__attribute__((noinline)) int one(int n) { return two(n + 1) * 2; }
int compare(const void *a, const void *b) { return one(*(int *)a) - one(*(int *)b); }
int main(void) { int v[3] = {3, 1, 2}; qsort(v, 3, sizeof *v, compare); return 0; }
"#;

const CPP: &str = r#"
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
extern "C" __attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
template <typename T, int N> struct Deep {
  __attribute__((noinline)) static int go(const T &x, std::function<int(int)> f) {
    volatile int r = Deep<std::vector<T>, N - 1>::go(std::vector<T>(2, x), f); return r + 1;
  }
};
template <typename T> struct Deep<T, 0> {
  __attribute__((noinline)) static int go(const T &x, std::function<int(int)> f) {
    volatile int r = f((int)x.size()); return r + 1;
  }
};
int main() {
  std::map<std::string, int> m{{"a", 1}, {"b", 2}};
  std::for_each(m.begin(), m.end(), [](auto &p) {
    Deep<std::string, 5>::go(p.first, [&](int n) { volatile int r = target(n + p.second); return r + 1; });
  });
  return 0;
}
"#;

const RUST: &str = r#"
#[no_mangle]
#[inline(never)]
pub extern "C" fn target(n: i32) -> i32 { std::hint::black_box(n) + 1 }
trait Step { fn step(&self, n: i32) -> i32; }
struct A; struct B(Box<dyn Step>);
impl Step for A { #[inline(never)] fn step(&self, n: i32) -> i32 { std::hint::black_box(target(n)) + 1 } }
impl Step for B { #[inline(never)] fn step(&self, n: i32) -> i32 { std::hint::black_box(self.0.step(n + 1)) + 1 } }
fn main() {
    let steps: Vec<Box<dyn Step>> = vec![Box::new(B(Box::new(B(Box::new(A)))))];
    let sum: i32 = steps.iter().map(|s| std::hint::black_box(s.step(1))).sum();
    std::process::exit(i32::from(std::hint::black_box(sum) == 77));
}
"#;

/// A directory that is removed.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build(dir: &Path, name: &str, source: &str, file: &str, compiler: &[&str]) -> Option<PathBuf> {
    let source_path = dir.join(file);
    std::fs::write(&source_path, source).expect("a file");
    let out = dir.join(name);
    let (program, args) = compiler.split_first()?;
    let done = Command::new(program)
        .args(args)
        .arg("-o")
        .arg(&out)
        .arg(&source_path)
        .output()
        .ok()?;
    if !done.status.success() {
        println!(
            "skipped {name}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        return None;
    }
    Some(out)
}

fn words(text: &str) -> Vec<String> {
    let hex = |w: &&str| w.starts_with("0x") && w[2..].bytes().all(|b| b.is_ascii_hexdigit());
    text.split_whitespace()
        .filter(hex)
        .map(str::to_owned)
        .collect()
}

/// The addresses that gdb shows.
fn gdb(command: &[String], stop: &[&str]) -> Vec<u64> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    // Without debugging information it shows no inlined functions, which have no frames.
    gdb.args(["-iex", "set debug-file-directory /nowhere"]);
    for line in [
        "set confirm off",
        "set breakpoint pending on",
        "set disable-randomization on",
        "set backtrace past-main on",
        "set print frame-info short-location",
        "set print inferior-events off",
    ] {
        gdb.args(["-ex", line]);
    }
    for line in stop {
        gdb.args(["-ex", line]);
    }
    for line in ["run", "bt -frame-info location-and-address"] {
        gdb.args(["-ex", line]);
    }
    let out = gdb.arg("--args").args(command).output().expect("gdb");
    let text = String::from_utf8_lossy(&out.stdout);
    let frames: Vec<u64> = text
        .lines()
        .filter(|l| l.starts_with('#'))
        .filter_map(|l| words(l).into_iter().next())
        .filter_map(|w| u64::from_str_radix(&w[2..], 16).ok())
        .collect();
    assert!(
        !frames.is_empty(),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    frames
}

/// The addresses that a script prints at the first hit, and what else it printed.
fn spile(command: &[String], point: &str) -> (Vec<u64>, String) {
    let script = format!(
        "global n probe {point} {{ if (pid() == target() && n++ == 0) \
         {{ println(ubacktrace()); print_ubacktrace() }} }}"
    );
    let command = format!("setarch -R {}", command.join(" "));
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["-e", &script, "-c", &command])
        .output()
        .expect("spile");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    let first = text.lines().find(|l| l.starts_with("0x")).unwrap_or("");
    let frames = words(first)
        .iter()
        .filter_map(|w| u64::from_str_radix(&w[2..], 16).ok())
        .collect();
    (frames, text + &errors)
}

#[test]
fn as_gdb_sees_them() {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !["gdb", "cc", "c++", "setarch"].into_iter().all(found) {
        return println!("skipped: gdb, a compiler or setarch is missing");
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: not root");
    }
    let dir = Dir(std::env::temp_dir().join(format!("spile-stacks-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).expect("a directory");
    let d = &dir.0;
    let without = ["cc", "-O2", "-fomit-frame-pointer"];
    let with = ["cc", "-O2", "-fno-omit-frame-pointer"];
    let fixed = ["cc", "-O2", "-static", "-fomit-frame-pointer"];
    let cpp = ["c++", "-O2", "-std=c++17"];
    // The library brings debugging information, which makes gdb show inlined functions.
    let rust = ["rustc", "-O", "-C", "strip=debuginfo", "--edition", "2021"];
    let programs = [
        build(d, "without", C, "without.c", &without),
        build(d, "with", C, "with.c", &with),
        build(d, "fixed", C, "fixed.c", &fixed),
        build(d, "deep", CPP, "deep.cc", &cpp),
        build(d, "rust", RUST, "rust.rs", &rust),
    ];
    let mut compared = 0;
    for program in programs.into_iter().flatten() {
        let path = program.display().to_string();
        let point = format!("process(\"{path}\").function(\"target\")");
        compare(&[path], &["break *target"], &point);
        compared += 1;
    }
    assert!(compared >= 2);
    let system = Path::new("/usr/bin/python3");
    if let Ok(python) = system.canonicalize() {
        let script = d.join("ppid.py");
        let text = "import os\ndef f(n):\n  return n and f(n - 1) or os.getppid()\nf(2)\n";
        std::fs::write(&script, text).expect("a file");
        let command = [python.as_path(), &script].map(|p| p.display().to_string());
        compare(&command, &["catch syscall getppid"], "syscall.getppid");
    }
}

fn compare(command: &[String], stop: &[&str], point: &str) {
    let expected = gdb(command, stop);
    let (frames, text) = spile(command, point);
    let expected = &expected[..expected.len().min(FRAMES)];
    let hex = |f: &[u64]| f.iter().map(|a| format!("{a:#x} ")).collect::<String>();
    assert_eq!(hex(&frames), hex(expected), "{command:?}\n{text}");
}
