//! Stacks of programs agree with gdb's: with and without frame pointers, of C, C++ and Rust, of a
//! static program, and of one from Debian. Both tools run the program without address
//! randomisation, so that code addresses are equal, and both stop at the probe.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of frames of a stack.
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

/// Through a signal frame, in a thread of its own; as deep as the argument says.
const MORE: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int down(int n) { volatile int r = n ? down(n - 1) : target(n); return r + 1; }
static int depth;
static void handler(int s) { down(depth); }
__attribute__((noinline)) static int interrupted(void) { volatile int r = raise(SIGUSR1); return r + 1; }
static void *run(void *p) { volatile int r = interrupted(); return r ? p : 0; }
int main(int argc, char **argv) {
  pthread_t t;
  depth = argc > 1 ? atoi(argv[1]) : 0;
  signal(SIGUSR1, handler);
  pthread_create(&t, 0, run, 0);
  pthread_join(t, 0);
  return 0;
}
"#;

/// A library that is loaded later, and calls back.
const LOADED: &str = "__attribute__((noinline)) int through(int (*f)(int), int n) { volatile int r = f(n); return r + 1; }";
const LOADS: &str = r#"
#include <dlfcn.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int back(int n) { volatile int r = target(n); return r + 1; }
int main(int argc, char **argv) {
  void *l = dlopen(argv[1], RTLD_NOW);
  int (*f)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(l, "through");
  volatile int r = f(back, argc);
  return r == 77;
}
"#;

/// Code in anonymous memory: it calls its argument, with a frame pointer.
const MADE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
int main(void) {
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x31, 0xff, 0xff, 0xd0, 0x5d, 0xc3};
  unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(p + 64, code, sizeof code);
  char name[64];
  sprintf(name, "/tmp/perf-%d.map", getpid());
  FILE *f = fopen(name, "w");
  fprintf(f, "%lx %lx made code\n", (unsigned long)p + 64, (unsigned long)sizeof code);
  fclose(f);
  int (*made)(int (*)(int)) = (int (*)(int (*)(int)))(p + 64);
  volatile int r = made(target);
  return r == 77;
}
"#;

/// A directory that is removed on drop.
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
        let said = String::from_utf8_lossy(&done.stderr);
        spile_testing::skip_variant(format_args!("{name}: {}", said.trim()));
        return None;
    }
    Some(out)
}

/// A probe point, options, and more lines of the script.
type Probe<'a> = (&'a str, &'a [&'a str], &'a str);

fn words(text: &str) -> Vec<String> {
    let hex = |w: &&str| w.starts_with("0x") && w[2..].bytes().all(|b| b.is_ascii_hexdigit());
    text.split_whitespace()
        .filter(hex)
        .map(str::to_owned)
        .collect()
}

/// The addresses that gdb shows; 0 for a signal frame, for which it shows none.
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
        "set print thread-events off",
        "handle SIGUSR1 nostop noprint pass",
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
        .filter_map(|l| match words(l).into_iter().next() {
            Some(w) => u64::from_str_radix(&w[2..], 16).ok(),
            None => l.contains("<signal handler called>").then_some(0),
        })
        .collect();
    assert!(
        !frames.is_empty(),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    frames
}

/// The addresses that a script prints at the first hit, and its other output.
fn spile(command: &[String], (point, options, more): Probe<'_>) -> (Vec<u64>, String) {
    let script = format!(
        "global n probe {point} {{ if (pid() == target() && n++ == 0) \
         {{ println(ubacktrace()); print_ubacktrace() }} }} {more}"
    );
    let command = format!("setarch -R {}", command.join(" "));
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["-e", &script, "-c", &command])
        .args(options)
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

/// A directory for programs, in which they can be traced and compared.
fn workshop(name: &str) -> Dir {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !["gdb", "cc", "c++", "setarch"].into_iter().all(found) {
        spile_testing::skip("gdb, a compiler or setarch is missing");
    }
    if !rustix::process::geteuid().is_root() {
        spile_testing::skip("not root");
    }
    let name = format!("spile-{name}-{}", std::process::id());
    let dir = Dir(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&dir.0).expect("a directory");
    dir
}

#[test]
fn stacks_are_those_of_gdb() {
    let dir = workshop("stacks");
    let d = &dir.0;
    let without = ["cc", "-O2", "-fomit-frame-pointer"];
    let with = ["cc", "-O2", "-fno-omit-frame-pointer"];
    let fixed = ["cc", "-O2", "-static", "-fomit-frame-pointer"];
    let cpp = ["c++", "-O2", "-std=c++17"];
    // The Rust library has debugging information, which makes gdb show inlined functions.
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
        compare(&[path], &["break *target"], (&point, &[], ""));
        compared += 1;
    }
    assert!(compared >= 2);
    let system = Path::new("/usr/bin/python3");
    if let Ok(python) = system.canonicalize() {
        let script = d.join("ppid.py");
        let text = "import os\ndef f(n):\n  return n and f(n - 1) or os.getppid()\nf(2)\n";
        std::fs::write(&script, text).expect("a file");
        let command = [python.as_path(), &script].map(|p| p.display().to_string());
        compare(
            &command,
            &["catch syscall getppid"],
            ("syscall.getppid", &[], ""),
        );
    }
}

/// Signals, threads, libraries loaded later, generated code, programs without symbols or tables,
/// and frames whose return is probed too.
#[test]
fn stacks_by_other_ways_are_those_of_gdb() {
    let dir = workshop("ways");
    let d = &dir.0;
    let at = |path: &Path| format!("process(\"{}\").function(\"target\")", path.display());
    let stop = ["break *target"];
    let without: &[&str] = &["-O2", "-fomit-frame-pointer"];
    let pie: &[&str] = &["-O2", "-fomit-frame-pointer", "-static-pie"];
    let stripped: &[&str] = &["-O2", "-fomit-frame-pointer", "-rdynamic", "-s"];
    let bare: &[&str] = &[
        "-O2",
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let deep: &[&str] = &["-D", "MAXBACKTRACE=80", "-D", "MAXSTRINGLEN=2048"];
    for (name, flags, options) in [
        ("more", without, &[][..]),
        ("deep", without, deep),
        ("pie", pie, &[]),
        ("stripped", stripped, &[]),
        ("bare", bare, &[]),
    ] {
        let compiler = [&["cc"], flags].concat();
        let Some(program) = build(d, name, MORE, &format!("{name}.c"), &compiler) else {
            continue;
        };
        let path = program.display().to_string();
        let depth = if options.is_empty() { "2" } else { "50" };
        let command = [path.clone(), depth.into()];
        if name == "bare" {
            let names = names_of(&command, &at(&program));
            let first = ["target", "down", "down", "down"];
            assert!(names.starts_with(&first.map(str::to_owned)), "{names:?}");
            let both = ["interrupted", "run"].map(str::to_owned);
            assert!(names.windows(2).any(|w| w == both), "{names:?}");
            continue;
        }
        let text = compare(&command, &stop, (&at(&program), options, ""));
        assert!(!text.contains("cut to their limit"), "{text}");
        let returns =
            format!("probe process(\"{path}\").function(\"down\").return {{ m++ }} global m");
        compare(&command, &stop, (&at(&program), options, &returns));
    }
    let library = build(
        d,
        "loaded.so",
        LOADED,
        "loaded.c",
        &["cc", "-O2", "-shared", "-fPIC"],
    );
    let loads = build(d, "loads", LOADS, "loads.c", &["cc", "-O2"]);
    if let (Some(library), Some(loads)) = (library, loads) {
        let command = [&loads, &library].map(|p| p.display().to_string());
        compare(&command, &stop, (&at(&loads), &[], ""));
    }
    if let Some(made) = build(d, "made", MADE, "made.c", &["cc", "-O2"]) {
        let command = [made.display().to_string()];
        let names = names_of(&command, &at(&made));
        let first = ["target", "made code", "main"].map(str::to_owned);
        assert!(names.starts_with(&first), "{names:?}");
    }
}

/// The names of the functions of a stack, where gdb has to guess without tables and knows less.
fn names_of(command: &[String], point: &str) -> Vec<String> {
    let (_, text) = spile(command, (point, &[], ""));
    let names = text.lines().filter_map(|l| l.split_once(" : "));
    names
        .filter_map(|(_, l)| Some(l.split_once('+')?.0.to_owned()))
        .collect()
}

fn compare(command: &[String], stop: &[&str], probe: Probe<'_>) -> String {
    let expected = gdb(command, stop);
    let (mut frames, text) = spile(command, probe);
    let most = if probe.1.is_empty() {
        FRAMES
    } else {
        usize::MAX
    };
    let expected = &expected[..expected.len().min(most)];
    for (frame, wanted) in frames.iter_mut().zip(expected) {
        *frame = if *wanted == 0 { 0 } else { *frame };
    }
    let hex = |f: &[u64]| f.iter().map(|a| format!("{a:#x} ")).collect::<String>();
    assert_eq!(hex(&frames), hex(expected), "{command:?}\n{text}");
    text
}
