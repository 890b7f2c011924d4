//! Values of variables agree with gdb's: programs in C, C++, Fortran, Ada and Rust, by several compilers,
//! levels of optimisation and forms of debugging information.
//!
//! A source in `tests/programs/values` has a line with the comment `here`, and lines of the form
//! `//: SPILE ~ GDB`. They pair an expression of a script with one of gdb. Both tools stop at the same
//! address. A value must be gdb's, or analysis must say why there is none; where gdb has none, spile
//! has none. Texts (`$x$`) are compared with what gdb prints, in the form of spile's texts
//! (`{.a=1}` for `{a = 1}`); a GDB in quotes is the text itself.
//!
//! `SPILE_LONG=1` takes all compilers, levels and forms; `SPILE_LONG=2/6` the second sixth of them.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reasons for which a value that gdb has can be missing: they need the caller's frame, registers
/// that the kernel does not save, an object that is in no memory, a pair of pointers in two locations, or the
/// length of a row, which clang leaves out for parameters and optimisation can remove.
const REASONS: [&str; 7] = [
    "in several locations at once",
    "only known when the function was entered",
    "only what it points to is kept",
    "floating point or vector register",
    "only the caller knows it",
    "the size of",
    "the number of elements of",
];

/// A directory that is removed on drop.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn workshop(name: &str) -> Dir {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !["gdb", "setarch"].into_iter().all(found) {
        spile_testing::skip("gdb or setarch is missing");
    }
    if !rustix::process::geteuid().is_root() {
        spile_testing::skip("not root");
    }
    let name = format!("spile-values-{name}-{}", std::process::id());
    let dir = Dir(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&dir.0).expect("a directory");
    dir
}

/// How a comment begins in C, Fortran and Ada.
const COMMENTS: [&str; 3] = ["//", "!", "--"];

/// A source and what it asks.
struct Source {
    path: PathBuf,
    /// The marked line.
    line: usize,
    /// Expressions of spile and of gdb.
    asked: Vec<(String, String)>,
}

fn source(name: &str) -> Source {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("tests/programs/values").join(name);
    let path = path.canonicalize().expect("a source");
    let text = std::fs::read_to_string(&path).expect("a source");
    let here = |l: &str| COMMENTS.iter().any(|c| l.ends_with(&format!("{c} here")));
    let line = 1 + text.lines().position(here).expect("a marked line");
    let asked = text.lines().filter_map(|l| {
        let rest = COMMENTS
            .iter()
            .find_map(|c| l.strip_prefix(c)?.strip_prefix(": "))?;
        let (spile, gdb) = rest.split_once(" ~ ")?;
        Some((spile.to_owned(), gdb.to_owned()))
    });
    let asked: Vec<_> = asked.collect();
    assert!(!asked.is_empty(), "{name}");
    Source { path, line, asked }
}

/// What is done with a program after it was built, by words that follow the compiler's options.
const STEPS: [(&str, &str); 5] = [
    (
        // llvm-dwp 14 takes less than a second, or never ends.
        "+dwp",
        "timeout 20 llvm-dwp -e program -o program.dwp && rm *.dwo",
    ),
    ("+gnudwp", "dwp -e program -o program.dwp && rm *.dwo"),
    (
        "+link",
        "objcopy --only-keep-debug program program.debug && \
      objcopy --strip-all --add-gnu-debuglink=program.debug program",
    ),
    ("+dwz", "dwz program"),
    ("+alt", "cp program other && dwz -m shared program other"),
];

/// Seconds for a compiler, a tool or gdb with one program.
const LIMIT: &str = "120";

/// The tool that may not end: llvm-dwp 14 with some programs of DWARF 5. Its variant is left out.
const ENDLESS: &str = "+dwp";

/// A command that ends by itself, or after [`LIMIT`].
fn limited(tool: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(tool);
    command
}

/// Fails where a command reached its limit, except for what may.
fn ended(out: &Output, what: &str) {
    let late = out.status.code() == Some(124);
    assert!(!late, "{what}: does not end within {LIMIT} s");
}

/// Compiles in the directory, in which split debugging information stays. `None`: the compiler or
/// another tool is not there, or does not have the option.
fn build(dir: &Path, source: &Source, compiler: &str) -> Option<PathBuf> {
    for old in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(old.path());
    }
    let out = dir.join("program");
    let (steps, words): (Vec<&str>, Vec<&str>) = compiler
        .split_whitespace()
        .partition(|w| w.starts_with('+'));
    let run = |command: &mut Command, step: &str| {
        let done = command.current_dir(dir).output().ok()?;
        if step == ENDLESS && done.status.code() == Some(124) {
            spile_testing::skip_variant(format_args!("{compiler}: llvm-dwp does not end"));
            return None;
        }
        ended(&done, compiler);
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            spile_testing::skip_variant(format_args!("{compiler}: {}", said.trim()));
        }
        done.status.success().then_some(())
    };
    let (first, rest) = words.split_first()?;
    let mut compile = limited(first);
    compile.args(rest).arg("-o").arg(&out).arg(&source.path);
    run(&mut compile, "")?;
    for step in steps {
        let known = STEPS.iter().find(|s| s.0 == step);
        run(limited("sh").args(["-ec", known.expect("a step").1]), step)?;
    }
    Some(out)
}

/// The options of the same code with its debugging information in the program. gdb 13 reads only parts
/// of what is split off: no location lists of clang's, no thread-local variables of gcc's, no packages
/// of DWARF 5.
fn unsplit(compiler: &str) -> Option<String> {
    let whole = ["-gsplit-dwarf", "-C split-debuginfo=packed"]
        .iter()
        .fold(compiler.to_owned(), |c, option| c.replace(option, ""));
    let first = whole.split(" +").next().unwrap_or_default();
    (whole != compiler).then(|| first.to_owned())
}

/// Whether gdb, too, finds no code in the line.
fn without_code(program: &Path, source: &Source) -> bool {
    let file = source.path.file_name().expect("a name").display();
    let line = format!("info line {file}:{}", source.line);
    let out = limited("gdb")
        .args(["-nx", "-batch", "-ex", &line])
        .arg(program)
        .output()
        .expect("gdb");
    String::from_utf8_lossy(&out.stdout).contains("contains no code")
}

/// What a tool says of each expression.
type Values = BTreeMap<usize, String>;

fn values(text: &str) -> Values {
    let value = |l: &str| {
        let (n, value) = l.strip_prefix('#')?.split_once(' ')?;
        Some((n.parse().ok()?, value.trim().to_owned()))
    };
    text.lines().filter_map(value).collect()
}

/// Whether an expression is a text.
fn is_text(expression: &str) -> bool {
    expression.ends_with('$')
}

/// A text in a form that both tools' texts have: without the marks of members and of arrays, the first index of
/// Ada's arrays (`(-1 => 4, 5)`), and the blanks at the end that Fortran's strings have.
fn plain(text: &str) -> String {
    let text = text.trim_matches('"').trim_end();
    let first_index = text.strip_prefix('(').and_then(|t| t.split_once(" => "));
    let text = first_index.map_or(text, |(_, elements)| elements);
    let text = text
        .replace(" = ", "=")
        .replace("{.", "{")
        .replace(", .", ", ");
    text.replace(['[', '('], "{")
        .replace([']', ')'], "}")
        .trim_start_matches('{')
        .into()
}

/// The values at the first hit, and its address. A value that does not exist is `?`.
fn spile(program: &Path, source: &Source) -> (Values, Option<u64>, String) {
    let (file, line) = (source.path.file_name().expect("a name"), source.line);
    let file = file.display();
    let at = format!(
        "process(\"{}\").statement(\"*@{file}:{line}\")",
        program.display()
    );
    let mut body = String::from("printf(\"at %x\\n\", uaddr())\n");
    for (n, (e, _)) in source.asked.iter().enumerate() {
        let as_ = if is_text(e) { "%s" } else { "%d" };
        let _ = writeln!(
            body,
            "try {{ if (@defined({e})) printf(\"#{n} {as_}\\n\", {e}) else println(\"#{n} ?\") }} \
             catch (m) {{ println(\"#{n} !\", m) }}"
        );
    }
    let script =
        format!("global n probe {at} {{ if (pid() == target() && n++ == 0) {{ {body} }} }}");
    let out = limited(env!("CARGO_BIN_EXE_spile"))
        .args(["-D", "MAXACTION=100000", "-e", &script, "-c"])
        .arg(format!("env -i setarch -R {}", program.display()))
        .output()
        .expect("spile");
    ended(&out, "spile");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let address = text.lines().find_map(|l| l.strip_prefix("at "));
    let address = address.and_then(|a| u64::from_str_radix(a, 16).ok());
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (values(&text), address, errors)
}

/// Why expressions have no value: the errors of one script that uses all of them.
fn reasons(program: &Path, source: &Source, lacking: &[usize]) -> Values {
    if lacking.is_empty() {
        return Values::new();
    }
    let file = source.path.file_name().expect("a name").display();
    let (at, line) = (program.display(), source.line);
    let mut script = format!("probe process(\"{at}\").statement(\"*@{file}:{line}\") {{");
    for n in lacking {
        let _ = write!(script, "\nprintln({})", source.asked[*n].0);
    }
    let out = limited(env!("CARGO_BIN_EXE_spile"))
        .args(["-p2", "-e", &(script + "\n}")])
        .output()
        .expect("spile");
    ended(&out, "spile -p2");
    let text = String::from_utf8_lossy(&out.stderr);
    let locations = text.lines().zip(text.lines().skip(1));
    let found = locations.filter_map(|(error, location)| {
        let line = location.trim().strip_prefix("--> <input>:")?;
        let line: usize = line.split_once(':')?.0.parse().ok()?;
        Some((*lacking.get(line.checked_sub(2)?)?, error.to_owned()))
    });
    found.collect()
}

fn gdb(program: &Path, source: &Source, address: u64) -> Values {
    let language = source.path.extension().and_then(|e| e.to_str());
    let number = |e: &str| match language {
        Some("rs") => format!("({e}) as i64"),
        Some("f90" | "adb") => e.to_owned(),
        _ => format!("(long)({e})"),
    };
    let mut commands =
        format!("set width 0\nset exec-wrapper env -i\nstarti\nbreak *{address:#x}\ncontinue\n");
    for (n, (own, e)) in source.asked.iter().enumerate() {
        let output = match e.strip_prefix('"') {
            Some(text) => format!("echo {}", text.trim_end_matches('"')),
            None if is_text(own) => format!("output {e}"),
            None => format!("output/d {}", number(e)),
        };
        let _ = write!(commands, "printf \"\\n#{n} \"\n{output}\n");
    }
    let mut gdb = limited("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    // It has errors of its own about structures in pieces, and shall go on.
    for about in ["quit no", "corefile no"] {
        gdb.args(["-iex", &format!("maint set internal-error {about}")]);
    }
    // Commands of a file end at the first error.
    for line in commands.lines() {
        gdb.args(["-ex", line]);
    }
    let out = gdb.arg(program).output().expect("gdb");
    ended(&out, "gdb");
    let mut found = values(&String::from_utf8_lossy(&out.stdout));
    if String::from_utf8_lossy(&out.stderr).contains("internal-error") {
        for value in found.values_mut().filter(|v| v.is_empty()) {
            *value = "internal-error".into();
        }
    }
    found
}

/// Whether the debugging information has no mark for a value that is in no memory, so that LLVM gives
/// the value as an address. gdb cannot read there either; it is not asked where the test has the text.
fn unmarked(compiler: &str) -> bool {
    let versions = ["dwarf-2", "dwarf-3", "dwarf-version=2", "dwarf-version=3"];
    versions.iter().any(|v| compiler.contains(v))
}

/// What a comparison found.
enum Outcome {
    /// Both have the value, or none has.
    Equal,
    /// Only gdb has it; the reason is one of [`REASONS`], or that the compiler removed a part.
    Lacking(&'static str),
    Differs(String),
}

/// Compares a value. `why` is the reason where spile has none.
fn compared(expression: &str, own: &str, theirs: Option<&str>, why: &str) -> Outcome {
    let text = is_text(expression);
    let number = |v: &str| v.parse::<i128>().is_ok();
    let broken = theirs.is_some_and(|v| v.contains("internal-error"));
    let known = theirs.filter(|v| match text {
        _ if broken => false,
        true => !v.is_empty() && !v.contains('<'),
        false => number(v),
    });
    let found = match text {
        true => own != "?" && !own.starts_with('!'),
        false => number(own),
    };
    let shown = theirs.unwrap_or("an error");
    match (found, known) {
        (true, None) if broken => Outcome::Equal,
        (true, Some(theirs)) if own == theirs => Outcome::Equal,
        (true, Some(theirs)) if text && plain(own) == plain(theirs) => Outcome::Equal,
        (false, None) if own == "?" && why.starts_with("error[") => Outcome::Equal,
        // See [`unmarked`].
        (false, None) if own.starts_with("!read fault") => Outcome::Equal,
        (false, None) if own == "?" => Outcome::Differs(format!("{expression}: no reason: {why}")),
        (false, Some(theirs)) if own == "?" => {
            // Of structures in pieces gdb shows parts that no piece describes as 0.
            let undescribed = theirs == "0" && why.contains("optimised out");
            match REASONS.iter().find(|r| why.contains(**r)) {
                Some(reason) => Outcome::Lacking(reason),
                None if undescribed => Outcome::Lacking("optimised out"),
                None => Outcome::Differs(format!("{expression}: {why}, gdb: {shown}")),
            }
        }
        _ => Outcome::Differs(format!("{expression}: {own}, gdb: {shown}")),
    }
}

/// Compares all values of a source.
fn compare(dir: &Path, name: &str, compilers: &[String]) {
    let source = source(name);
    let (mut differences, mut equal, mut builds) = (Vec::new(), 0, 0);
    let mut lacking = BTreeMap::<&str, usize>::new();
    for compiler in compilers {
        let Some(program) = build(dir, &source, compiler) else {
            continue;
        };
        let (own, address, errors) = spile(&program, &source);
        builds += 1;
        if address.is_none() && without_code(&program, &source) {
            spile_testing::skip_variant(format_args!("{compiler}: the marked line has no code"));
            continue;
        }
        let Some(address) = address else {
            differences.push(format!("{compiler}: no hit: {errors}"));
            continue;
        };
        let nothing = |n: &usize| own.get(n).is_some_and(|v| v == "?");
        let without: Vec<usize> = (0..source.asked.len()).filter(nothing).collect();
        let whys = reasons(&program, &source, &without);
        let whole = unsplit(compiler);
        let split = whole.is_some();
        if let Some(whole) = whole {
            build(dir, &source, &whole).expect("the program with debugging information of its own");
        }
        let theirs = gdb(&program, &source, address);
        for (n, (expression, answer)) in source.asked.iter().enumerate() {
            let mine = own.get(&n).map_or("nothing", |v| &**v);
            let fault = unmarked(compiler) && mine.starts_with("!read fault");
            let asked = !(fault && answer.starts_with('"'));
            let their = theirs.get(&n).map(|v| &**v).filter(|_| asked);
            let why = whys.get(&n).map_or("no error", |v| &**v);
            // GCC writes no pointers to what is in no memory into split debugging information.
            if split
                && !compiler.starts_with("clang")
                && mine == "?"
                && why.contains("optimised out")
            {
                *lacking.entry("split").or_default() += 1;
                continue;
            }
            match compared(expression, mine, their, why) {
                Outcome::Equal => equal += usize::from(mine != "?"),
                Outcome::Lacking(reason) => *lacking.entry(reason).or_default() += 1,
                Outcome::Differs(difference) => {
                    let difference = format!("{compiler}: {difference}");
                    println!("{difference}");
                    differences.push(difference);
                }
            }
        }
    }
    println!("{name}: {equal} values of {builds} builds are gdb's, only gdb has: {lacking:?}");
    assert!(
        differences.is_empty(),
        "{name}:\n{}",
        differences.join("\n")
    );
    assert!(builds == 0 || equal >= builds, "{name}: {equal}");
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|c| (*c).to_owned()).collect()
}

/// All compilers with all levels and versions, and other forms of debugging information.
fn all(compilers: &[&str]) -> Vec<String> {
    let mut list = Vec::new();
    for compiler in compilers {
        for level in ["-O0", "-Og", "-O1", "-O2", "-O3"] {
            for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
                list.push(format!("{compiler} {level} {version}"));
            }
        }
        // Type units of DWARF 5 that were split off are unknown to gdb 13.
        for form in [
            "-gz=zlib",
            "-gz=zstd",
            "-gsplit-dwarf",
            "-gsplit-dwarf +dwp",
            "-gsplit-dwarf -gz",
            "-gsplit-dwarf +link",
            "-gdwarf-4 -gsplit-dwarf",
            "-gdwarf-4 -gsplit-dwarf +dwp",
            "-gdwarf-4 -gsplit-dwarf +gnudwp",
            "-gdwarf-4 -gsplit-dwarf -fdebug-types-section",
            "-gdwarf-4 -gsplit-dwarf -fdebug-types-section +dwp",
            "-gdwarf-4 -fdebug-types-section",
            "-fdebug-types-section",
            "-gdwarf64",
            "-flto -no-pie",
            "-flto=thin -no-pie",
            "-gdwarf-4 +dwz",
            "+dwz",
            "+alt",
            "+link",
        ] {
            list.push(format!("{compiler} -g -O2 {form}"));
            list.push(format!("{compiler} -g -O0 {form}"));
        }
    }
    list
}

/// The compilers of a test: some in each run; all of them, or a part, in the long form.
fn chosen(some: &[&str], all: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let long = std::env::var("SPILE_LONG").unwrap_or_default();
    if long == "1" {
        return all();
    }
    let Some((part, of)) = long.split_once('/') else {
        return owned(some);
    };
    let (part, of): (usize, usize) = (part.parse().expect("N/M"), of.parse().expect("N/M"));
    let all = all().into_iter().skip(part.checked_sub(1).expect("1/M"));
    all.step_by(of).collect()
}

#[test]
fn fields_and_parameters_of_c_are_those_of_gdb() {
    let dir = workshop("fields");
    let some = [
        "gcc -g -O0",
        "gcc -g -O2",
        "clang -g -O1 -gdwarf-4",
        "gcc -g -Og -gdwarf-2",
        "gcc -g -O2 -gsplit-dwarf",
        "clang -gdwarf-4 -O1 -gsplit-dwarf",
    ];
    compare(
        &dir.0,
        "fields.c",
        &chosen(&some, || all(&["gcc", "clang"])),
    );
}

#[test]
fn optimised_locals_are_those_of_gdb() {
    let dir = workshop("loops");
    let some = ["gcc -g -O1", "gcc -g -O3", "clang -g -O2"];
    compare(&dir.0, "loops.c", &chosen(&some, || all(&["gcc", "clang"])));
}

#[test]
fn forms_of_types_and_locations_are_those_of_gdb() {
    let dir = workshop("forms");
    let some = [
        "gcc -g -O0",
        "gcc -g -O2",
        "gcc -g -O2 -gsplit-dwarf",
        "clang -g -O1",
    ];
    compare(&dir.0, "forms.c", &chosen(&some, || all(&["gcc", "clang"])));
}

#[test]
fn references_and_members_of_cpp_are_those_of_gdb() {
    let dir = workshop("classes");
    let some = [
        "g++ -g -O0",
        "g++ -g -O2 -gdwarf-4",
        "clang++ -g -O0",
        "clang++ -g -O2",
        "g++ -gdwarf-4 -O2 -gsplit-dwarf -fdebug-types-section +gnudwp",
        "clang++ -gdwarf-4 -O2 -gsplit-dwarf +dwp",
    ];
    compare(
        &dir.0,
        "classes.cc",
        &chosen(&some, || all(&["g++", "clang++"])),
    );
}

#[test]
fn arrays_of_fortran_are_those_of_gdb() {
    let dir = workshop("arrays");
    let some = ["gfortran -g -O0", "gfortran -g -O2"];
    compare(&dir.0, "arrays.f90", &chosen(&some, || all(&["gfortran"])));
}

#[test]
fn arrays_and_ranges_of_ada_are_those_of_gdb() {
    let dir = workshop("ranges");
    let some = ["gnatmake -f -g -O0", "gnatmake -f -g -O2"];
    compare(
        &dir.0,
        "ranges.adb",
        &chosen(&some, || all(&["gnatmake -f"])),
    );
}

#[test]
fn values_of_rust_are_those_of_gdb() {
    let dir = workshop("variants");
    let some = [
        "rustc -g",
        "rustc -g -O",
        "rustc -g -O -C split-debuginfo=unpacked",
        "rustc -g -C split-debuginfo=packed",
    ];
    let all = || {
        let mut list = Vec::new();
        for level in ["0", "1", "2", "3", "s"] {
            let rustc = format!("rustc -g -C opt-level={level}");
            for version in ["2", "3", "4", "5"] {
                list.push(format!(
                    "{rustc} -Z unstable-options -C dwarf-version={version}"
                ));
                list.push(format!("{rustc} -C dwarf-version={version}"));
            }
            for split in ["unpacked", "packed"] {
                list.push(format!("{rustc} -C split-debuginfo={split}"));
            }
        }
        list
    };
    compare(&dir.0, "variants.rs", &chosen(&some, all));
}
