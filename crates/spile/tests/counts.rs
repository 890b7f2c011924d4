//! Counts of functions are those that the programs print themselves: programs in C, C++, Fortran, Rust,
//! Go, Ada, D, OCaml, Haskell and Zig, by several compilers, levels of optimisation and forms of
//! debugging information.
//!
//! A source in `tests/programs/counts` has lines `: FUNCTION = COUNTER` and `: FUNCTION = COUNTER, RETURNS`,
//! in a comment. The program prints `COUNTER NUMBER`. `|` stands between names by several compilers;
//! `recursion` for RETURNS: the compiler may make the recursion a loop, which nothing tells. A count must
//! be exact, or a warning or an error must name the function and the reason.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory that is removed on drop.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A function, and the names of what the program prints.
struct Counted {
    names: Vec<String>,
    calls: String,
    /// Where not all calls return.
    returns: Option<String>,
    recursion: bool,
}

/// The ways to ask for a function.
const WAYS: [&str; 5] = ["", "@file", ".call", ".inline", ".return"];

fn counted(text: &str) -> Vec<Counted> {
    let line = |l: &str| {
        let l = l.trim().trim_end_matches("*)").trim_end();
        let comment = ["//: ", "!: ", "--: ", "(*: "];
        let l = comment.iter().find_map(|c| l.strip_prefix(c))?;
        let (names, counters) = l.split_once(" = ")?;
        let mut counters = counters.split(", ").map(str::to_owned);
        let calls = counters.next()?;
        let more = counters.next();
        Some(Counted {
            names: names.split('|').map(str::to_owned).collect(),
            calls,
            recursion: more.as_deref() == Some("recursion"),
            returns: more.filter(|m| m != "recursion"),
        })
    };
    text.lines().filter_map(line).collect()
}

/// A source, the compilers, and how many functions they count without a warning, at least.
struct Source {
    name: &'static str,
    text: String,
    path: PathBuf,
}

fn source(name: &'static str) -> Source {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("tests/programs/counts").join(name);
    let path = path.canonicalize().expect("a source");
    let text = std::fs::read_to_string(&path).expect("a source");
    Source { name, text, path }
}

/// Compiles in the directory. `+debug` moves the debugging information to a separate file. `None`: the
/// compiler is not there, or does not have the option.
fn build(dir: &Path, source: &Source, compiler: &str) -> Option<PathBuf> {
    let out = dir.join("program");
    let mut words = compiler.split_whitespace();
    let first = words.next()?;
    // Some put their files beside the source.
    let here = dir.join(source.name);
    std::fs::copy(&source.path, &here).expect("a copy");
    let mut command = Command::new(first);
    command.args(words.filter(|w| !w.starts_with('+')));
    match first {
        "ldc2" => command.arg(format!("-of={}", out.display())),
        "zig" => command.arg(format!("-femit-bin={}", out.display())),
        _ => command.arg("-o").arg(&out),
    };
    let cache = dir.join("cache");
    command.env("GOCACHE", &cache).env("GO111MODULE", "off");
    command.env("ZIG_GLOBAL_CACHE_DIR", &cache);
    command.env("ZIG_LOCAL_CACHE_DIR", cache);
    let done = command.arg(&here).current_dir(dir).output();
    let Ok(done) = done else {
        spile_testing::skip_variant(format_args!("there is no {first}"));
        return None;
    };
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        spile_testing::skip_variant(format_args!("{compiler}: {}", said.trim()));
        return None;
    }
    if compiler.contains("+debug") {
        let split = "objcopy --only-keep-debug program program.debug && strip program && \
                     objcopy --add-gnu-debuglink=program.debug program";
        let mut shell = Command::new("sh");
        let done = shell.args(["-c", split]).current_dir(dir).status();
        assert!(done.is_ok_and(|s| s.success()), "{compiler}");
    }
    Some(out)
}

fn spile(arguments: &[&str]) -> Output {
    let mut spile = Command::new(env!("CARGO_BIN_EXE_spile"));
    spile.args(arguments).output().expect("spile")
}

/// What runs the handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Kernel,
    /// The program itself, for an ordinary user.
    Process,
}

impl Runtime {
    /// A number of users and groups that owns nothing.
    const NOBODY: u32 = 65534;

    /// Runs a script. Everybody may read what is in the folder.
    fn run(self, dir: &Path, arguments: &[&str]) -> Output {
        if self == Runtime::Kernel {
            return spile(arguments);
        }
        let own = dir.join("spile");
        if !own.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_spile"), &own).expect("a copy");
        }
        let mut spile = Command::new(own);
        spile.uid(Runtime::NOBODY).gid(Runtime::NOBODY);
        let spile = spile.arg("--runtime=process").args(arguments);
        spile.current_dir(dir).output().expect("spile")
    }
}

/// The point of a function in a program.
fn point(program: &str, file: &str, name: &str, way: &str) -> String {
    match way {
        "@file" => format!("process(\"{program}\").function(\"{name}@{file}\")"),
        _ => format!("process(\"{program}\").function(\"{name}\"){way}"),
    }
}

/// The hits of each function by each way, what the program prints, and the warnings.
struct Hits {
    by_way: Vec<[u64; WAYS.len()]>,
    printed: BTreeMap<String, u64>,
    warnings: String,
}

fn hits(runtime: Runtime, program: &Path, file: &str, all: &[Counted]) -> Hits {
    let dir = program.parent().expect("a folder");
    let program = program.display().to_string();
    let mut script = String::from("global n\nprobe begin { }\n");
    for (f, counted) in all.iter().enumerate() {
        for (w, way) in WAYS.iter().enumerate() {
            let points = counted.names.iter();
            let points: Vec<_> = points
                .map(|name| format!("{} ?", point(&program, file, name, way)))
                .collect();
            let _ = writeln!(script, "probe {} {{ n[{f}, {w}]++ }}", points.join(", "));
        }
    }
    script.push_str("probe end { foreach ([f, w] in n) printf(\"#%d %d %d\\n\", f, w, n[f, w]) }");
    let out = runtime.run(dir, &["-v", "-e", &script, "-c", &program]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let warnings = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{text}{warnings}");
    let mut found = Hits {
        by_way: vec![[0; WAYS.len()]; all.len()],
        printed: BTreeMap::new(),
        warnings,
    };
    for line in text.lines() {
        let words: Vec<&str> = line.trim_start_matches('#').split_whitespace().collect();
        let number = |n: usize| words[n].parse::<u64>().expect("a number");
        match words.len() {
            3 if line.starts_with('#') => {
                found.by_way[number(0) as usize][number(1) as usize] = number(2);
            }
            2 => {
                found.printed.insert(words[0].to_owned(), number(1));
            }
            _ => {}
        }
    }
    found
}

/// Whether spile says why the count of a function by one way is not exact.
fn is_explained(program: &str, file: &str, hits: &Hits, counted: &Counted, way: &str) -> bool {
    let named = |name: &str| {
        let last = name.rsplit("::").next().unwrap_or(name);
        let last = last
            .trim_matches('*')
            .split(['<', '*'])
            .next()
            .unwrap_or("");
        let about = |l: &str| {
            let before = l.split_once(&format!(" in {program}: "));
            let named = before.is_some_and(|(before, _)| before.contains(last));
            named || l.contains(&format!("{last}: at "))
        };
        hits.warnings.lines().any(about)
    };
    let refused = |name: &String| {
        let script = format!("probe {} {{ }}", point(program, file, name, way));
        let out = spile(&["-p2", "-e", &script]);
        String::from_utf8_lossy(&out.stderr).contains("error[E0312]")
    };
    // Warnings are about functions, whatever the way.
    counted.names.iter().any(|n| named(n)) || counted.names.iter().all(refused)
}

/// How many counts are exact or have a reason, and the wrong ones.
#[derive(Default)]
struct Comparison {
    exact: usize,
    explained: usize,
    wrong: Vec<String>,
}

/// Compares the counts of a program.
fn compare_in(runtime: Runtime, program: &Path, name: &str, all: &[Counted]) -> Comparison {
    let hits = hits(runtime, program, name, all);
    let path = program.display().to_string();
    let mut comparison = Comparison::default();
    for (counted, found) in all.iter().zip(&hits.by_way) {
        let printed = |n: &str| hits.printed.get(n).copied();
        let calls = printed(&counted.calls).expect("a counter");
        let [whole, in_file, call, inline, returned] = *found;
        let returns = counted.returns.as_deref().and_then(printed);
        let sums = [
            ("", whole, calls),
            ("@file", in_file, calls),
            (".inline", call + inline, calls),
            (".return", returned, returns.unwrap_or(call)),
        ];
        for (way, is, should) in sums {
            let looped = counted.recursion && is < should;
            if is == should {
                comparison.exact += 1;
            } else if looped || is_explained(&path, name, &hits, counted, way) {
                comparison.explained += 1;
            } else {
                let function = counted.names.join("|");
                let difference = format!("{function}{way}: {is} of {should}");
                println!("{difference}\n{}", hits.warnings);
                comparison.wrong.push(difference);
            }
        }
    }
    comparison
}

/// Compares the counts of a source by all compilers.
fn compare(name: &'static str, compilers: &[String]) {
    if !rustix::process::geteuid().is_root() {
        spile_testing::skip("not root");
    }
    let dir = Dir(std::env::temp_dir().join(format!("spile-counts-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).expect("a directory");
    let source = source(name);
    let all = counted(&source.text);
    assert!(!all.is_empty(), "{name}");
    let (mut wrong, mut exact, mut explained) = (Vec::new(), 0, 0);
    for compiler in compilers {
        let Some(program) = build(&dir.0, &source, compiler) else {
            continue;
        };
        for runtime in [Runtime::Kernel, Runtime::Process] {
            let found = compare_in(runtime, &program, name, &all);
            exact += found.exact;
            explained += found.explained;
            let compiled = |text: String| format!("{compiler}: {runtime:?}: {text}");
            wrong.extend(found.wrong.into_iter().map(compiled));
        }
    }
    println!("{name}: {exact} counts are exact, {explained} have a reason");
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    let most = exact >= explained || name.ends_with(".hs");
    assert!(most, "{name}: {exact}, {explained}");
}

/// The builds of a test: some in each run, with `SPILE_LONG=1` all compilers with all levels and forms.
fn builds(some: &[&str], compilers: &[&str]) -> Vec<String> {
    if std::env::var("SPILE_LONG").as_deref() != Ok("1") {
        return some.iter().map(|c| (*c).to_owned()).collect();
    }
    let mut list = Vec::new();
    for compiler in compilers {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            list.push(format!("{compiler} -g {level}"));
        }
        for form in [
            "-gdwarf-2",
            "-gdwarf-3",
            "-gdwarf-4",
            "-gz",
            "-flto",
            "+debug",
        ] {
            list.push(format!("{compiler} -g -O2 {form}"));
        }
    }
    list
}

/// Compilers with options of their own, which only the long form runs.
fn long(list: &[&str]) -> Vec<String> {
    match std::env::var("SPILE_LONG").as_deref() {
        Ok("1") => list.iter().map(|c| (*c).to_owned()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn functions_of_c_are_counted_exactly() {
    let some = [
        "gcc -g -O0",
        "gcc -g -O2",
        "gcc -g -O3 +debug",
        "clang -g -O2 -gdwarf-4",
    ];
    compare("plain.c", &builds(&some, &["gcc", "clang"]));
}

#[test]
fn functions_of_cpp_are_counted_exactly() {
    let some = [
        "g++ -g -O2",
        "g++ -g -O1",
        "g++ -g -O3",
        "g++ -g -O2 -gdwarf-2",
        "clang++ -g -O0",
        "clang++ -g -O1",
        "clang++ -g -O2",
    ];
    compare("objects.cc", &builds(&some, &["g++", "clang++"]));
}

#[test]
fn functions_of_fortran_are_counted_exactly() {
    let some = ["gfortran -g -O0", "gfortran -g -O2"];
    compare("routines.f90", &builds(&some, &["gfortran"]));
}

#[test]
fn functions_of_rust_are_counted_exactly() {
    let mut list = vec!["rustc -g".to_owned(), "rustc -g -O".to_owned()];
    list.extend(long(&[
        "rustc -g -C opt-level=1",
        "rustc -g -C opt-level=3 -C lto=fat",
    ]));
    compare("closures.rs", &list);
}

#[test]
fn functions_of_go_are_counted_exactly() {
    compare(
        "routines.go",
        &["go build".to_owned(), "go build -gcflags=-N".to_owned()],
    );
}

#[test]
fn parallel_regions_are_counted_exactly() {
    let some = ["gcc -g -O2 -fopenmp"];
    let mut list = builds(&some, &[]);
    list.extend(long(&[
        "gcc -g -O0 -fopenmp",
        "gcc -g -O3 -flto -fopenmp",
        "gcc -g -O2 -fopenmp",
        "clang -g -O0 -fopenmp",
        "clang -g -O2 -fopenmp",
        "clang -g -O2 -gdwarf-4 -fopenmp",
    ]));
    compare("parallel.c", &list);
}

#[test]
fn functions_of_other_languages_are_counted_exactly() {
    let ada = ["-O0", "-O1", "-O2", "-O3"].map(|o| format!("gnatmake -q -f -g {o}"));
    compare("nested.adb", &long(&ada.each_ref().map(String::as_str)));
    let d = [
        "gdc -g -O0",
        "gdc -g -O2",
        "gdc -g -O3",
        "ldc2 -g -O0",
        "ldc2 -g -O2",
    ];
    compare("objects.d", &long(&d));
    compare("closures.ml", &long(&["ocamlopt -g"]));
    let zig = ["Debug", "ReleaseSafe", "ReleaseFast", "ReleaseSmall"];
    let zig = zig.map(|o| format!("zig build-exe -lc -fno-strip -O {o}"));
    compare("functions.zig", &long(&zig.each_ref().map(String::as_str)));
}

/// GHC's functions are no calls: they are begun again, inlined in silence, and go on by jumps.
#[test]
fn functions_of_haskell_are_explained() {
    let ghc = long(&["ghc -g -O0", "ghc -g -O1", "ghc -g -O2"]);
    compare("functions.hs", &ghc);
}
