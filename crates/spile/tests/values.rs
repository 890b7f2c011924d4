//! Values of variables agree with gdb's: programs in C, C++, Fortran and Rust, by several compilers,
//! levels of optimisation and forms of debugging information.
//!
//! A source in `tests/programs/values` has a line with the comment `here`, and lines of the form
//! `//: SPILE ~ GDB`. They pair an expression of a script with one of gdb. Both tools stop at the same
//! address. A value must be gdb's, or analysis must say why there is none; where gdb has none, spile
//! has none. Texts (`$x$`) are compared with what gdb prints, in the form of spile's texts
//! (`{.a=1}` for `{a = 1}`); a GDB in quotes is the text itself.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reasons for which a value that gdb has can be missing: they need the caller's frame, registers
/// that the kernel does not save, an object that is in no memory, or the length of a row that only the
/// running program has.
const REASONS: [&str; 5] = [
    "only known when the function was entered",
    "only what it points to is kept",
    "floating point or vector register",
    "only the caller knows it",
    "the size of",
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
    let here = |l: &str| l.ends_with("// here") || l.ends_with("! here");
    let line = 1 + text.lines().position(here).expect("a marked line");
    let asked = text.lines().filter_map(|l| {
        let rest = l.strip_prefix("//: ").or_else(|| l.strip_prefix("!: "))?;
        let (spile, gdb) = rest.split_once(" ~ ")?;
        Some((spile.to_owned(), gdb.to_owned()))
    });
    let asked: Vec<_> = asked.collect();
    assert!(!asked.is_empty(), "{name}");
    Source { path, line, asked }
}

/// What is done with a program after it was built, by words that follow the compiler's options.
const STEPS: [(&str, &str); 5] = [
    ("+dwp", "llvm-dwp -e program -o program.dwp && rm *.dwo"),
    ("+gnudwp", "dwp -e program -o program.dwp && rm *.dwo"),
    (
        "+link",
        "objcopy --only-keep-debug program program.debug && \
      objcopy --strip-all --add-gnu-debuglink=program.debug program",
    ),
    ("+dwz", "dwz program"),
    ("+alt", "cp program other && dwz -m shared program other"),
];

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
    let run = |command: &mut Command| {
        let done = command.current_dir(dir).output().ok()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            spile_testing::skip_variant(format_args!("{compiler}: {}", said.trim()));
        }
        done.status.success().then_some(())
    };
    let (first, rest) = words.split_first()?;
    run(Command::new(first)
        .args(rest)
        .arg("-o")
        .arg(&out)
        .arg(&source.path))?;
    for step in steps {
        let known = STEPS.iter().find(|s| s.0 == step);
        run(Command::new("sh").args(["-ec", known.expect("a step").1]))?;
    }
    Some(out)
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

/// A text in a form that both tools' texts have: without the marks of members, and without the blanks at
/// the end that Fortran's strings have.
fn plain(text: &str) -> String {
    let text = text.trim_matches('"').trim_end().replace(" = ", "=");
    text.replace("{.", "{").replace(", .", ", ")
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
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["-D", "MAXACTION=100000", "-e", &script, "-c"])
        .arg(format!("env -i setarch -R {}", program.display()))
        .output()
        .expect("spile");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let address = text.lines().find_map(|l| l.strip_prefix("at "));
    let address = address.and_then(|a| u64::from_str_radix(a, 16).ok());
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (values(&text), address, errors)
}

/// Why an expression has no value.
fn reason(program: &Path, source: &Source, expression: &str) -> String {
    let file = source.path.file_name().expect("a name").display();
    let (program, line) = (program.display(), source.line);
    let script = format!(
        "probe process(\"{program}\").statement(\"*@{file}:{line}\") {{ println({expression}) }}"
    );
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["-p2", "-e", &script])
        .output()
        .expect("spile");
    let text = String::from_utf8_lossy(&out.stderr);
    text.lines().next().unwrap_or("").to_owned()
}

fn gdb(program: &Path, source: &Source, address: u64) -> Values {
    let language = source.path.extension().and_then(|e| e.to_str());
    let number = |e: &str| match language {
        Some("rs") => format!("({e}) as i64"),
        Some("f90") => e.to_owned(),
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
    let mut gdb = Command::new("gdb");
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
    let mut found = values(&String::from_utf8_lossy(&out.stdout));
    if String::from_utf8_lossy(&out.stderr).contains("internal-error") {
        for value in found.values_mut().filter(|v| v.is_empty()) {
            *value = "internal-error".into();
        }
    }
    found
}

/// A difference, or `None`: gdb's value, or none with a reason.
fn differs(
    program: &Path,
    source: &Source,
    n: usize,
    own: &str,
    theirs: Option<&str>,
) -> Option<String> {
    let (expression, _) = &source.asked[n];
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
    match (found, known) {
        (true, None) if broken => return None,
        (true, Some(theirs)) if own == theirs => return None,
        (true, Some(theirs)) if text && plain(own) == plain(theirs) => return None,
        (false, None) if own == "?" => {
            let why = reason(program, source, expression);
            return (!why.starts_with("error[")).then(|| format!("{expression}: no reason: {why}"));
        }
        (false, Some(_)) if own == "?" => {
            let why = reason(program, source, expression);
            // Of structures in pieces gdb shows parts that no piece describes as 0.
            let undescribed = known == Some("0") && why.contains("optimised out");
            if undescribed || REASONS.iter().any(|r| why.contains(r)) {
                return None;
            }
            return Some(format!(
                "{expression}: {why}, gdb: {}",
                theirs.unwrap_or("")
            ));
        }
        _ => {}
    }
    Some(format!(
        "{expression}: {own}, gdb: {}",
        theirs.unwrap_or("an error")
    ))
}

/// Compares all values of a source; the number that both know.
fn compare(dir: &Path, name: &str, compilers: &[String]) {
    let source = source(name);
    let (mut differences, mut equal, mut builds) = (Vec::new(), 0, 0);
    for compiler in compilers {
        let Some(program) = build(dir, &source, compiler) else {
            continue;
        };
        let (own, address, errors) = spile(&program, &source);
        builds += 1;
        let Some(address) = address else {
            differences.push(format!("{compiler}: no hit: {errors}"));
            continue;
        };
        let theirs = gdb(&program, &source, address);
        for n in 0..source.asked.len() {
            let mine = own.get(&n).map_or("nothing", |v| &**v);
            let their = theirs.get(&n).map(|v| &**v);
            match differs(&program, &source, n, mine, their) {
                Some(difference) => {
                    let difference = format!("{compiler}: {difference}");
                    println!("{difference}");
                    differences.push(difference);
                }
                None => equal += usize::from(mine != "?"),
            }
        }
    }
    println!("{name}: {equal} values of {builds} builds are gdb's");
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
            // gdb 13 reads no packages that llvm-dwp makes of gcc's DWARF 5, and llvm-dwp may hang.
            if form == "-gsplit-dwarf +dwp" && !compiler.starts_with("clang") {
                continue;
            }
            list.push(format!("{compiler} -g -O2 {form}"));
            list.push(format!("{compiler} -g -O0 {form}"));
        }
    }
    list
}

/// The compilers of a test: some in each run, all of them with `SPILE_LONG=1`.
fn chosen(some: &[&str], compilers: &[&str]) -> Vec<String> {
    match std::env::var("SPILE_LONG").as_deref() {
        Ok("1") => all(compilers),
        _ => owned(some),
    }
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
    compare(&dir.0, "fields.c", &chosen(&some, &["gcc", "clang"]));
}

#[test]
fn optimised_locals_are_those_of_gdb() {
    let dir = workshop("loops");
    let some = ["gcc -g -O1", "gcc -g -O3", "clang -g -O2"];
    compare(&dir.0, "loops.c", &chosen(&some, &["gcc", "clang"]));
}

#[test]
fn forms_of_types_and_locations_are_those_of_gdb() {
    let dir = workshop("forms");
    let some = ["gcc -g -O0", "gcc -g -O2", "clang -g -O1"];
    compare(&dir.0, "forms.c", &chosen(&some, &["gcc", "clang"]));
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
    compare(&dir.0, "classes.cc", &chosen(&some, &["g++", "clang++"]));
}

#[test]
fn arrays_of_fortran_are_those_of_gdb() {
    let dir = workshop("arrays");
    let some = ["gfortran -g -O0", "gfortran -g -O2"];
    compare(&dir.0, "arrays.f90", &chosen(&some, &["gfortran"]));
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
    let mut list = owned(&some);
    if std::env::var("SPILE_LONG").as_deref() == Ok("1") {
        for level in ["0", "1", "2", "3", "s"] {
            for version in ["2", "3", "4", "5"] {
                list.push(format!(
                    "rustc -g -C opt-level={level} -Z unstable-options -C dwarf-version={version}"
                ));
                list.push(format!(
                    "rustc -g -C opt-level={level} -C dwarf-version={version}"
                ));
            }
            for split in ["unpacked", "packed"] {
                list.push(format!(
                    "rustc -g -C opt-level={level} -C split-debuginfo={split}"
                ));
            }
        }
    }
    compare(&dir.0, "variants.rs", &list);
}
