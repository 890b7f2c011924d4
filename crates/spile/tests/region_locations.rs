//! Locations of regions in libraries without lines or symbols: binutils find the location in the original
//! library, and all reports show it. The program is `tests/programs/regions-library.c`. Also the
//! messages where regions are unavailable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spile_profile::file::read_path;
use spile_profile::model::{Context, ContextKind, Profile};

mod common;
use common::regions::include;
use common::{compiled, compiled_by};

/// The library as the program finds it, the original with debugging information, and the program.
struct Built {
    dir: tempfile::TempDir,
    whole: PathBuf,
    program: PathBuf,
}

impl Built {
    /// `after` is a command that changes the library.
    fn new(compiler: &str, after: &[&str]) -> Built {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole.so");
        let common = ["-fopenmp", &include()];
        let shared = [&common[..], &["-shared", "-fPIC"]].concat();
        compiled_by(compiler, "regions-library", &whole, &shared);
        let library = dir.path().join("libsolver.so");
        std::fs::copy(&whole, &library).unwrap();
        let (command, options) = after.split_first().unwrap();
        let done = Command::new(command).args(options).arg(&library).status();
        assert!(done.unwrap().success());
        let program = dir.path().join("program");
        let at = format!("-L{}", dir.path().display());
        let path = format!("-Wl,-rpath,{}", dir.path().display());
        let link = [&common[..], &["-DMAIN", &at, &path, "-lsolver"]].concat();
        compiled_by(compiler, "regions-library", &program, &link);
        Built {
            dir,
            whole,
            program,
        }
    }

    fn traced(&self) -> (PathBuf, Profile) {
        let file = self.dir.path().join("p.spile");
        let output = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["profile", "--trace", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&self.program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let profile = read_path(&file).unwrap().profile;
        (file, profile)
    }

    /// Function and line of an address in the library, by binutils.
    fn found(&self, address: u64) -> (String, u32) {
        let mut command = Command::new("addr2line");
        command.args(["-f", "-e"]).arg(&self.whole);
        let out = command.arg(format!("{address:#x}")).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let (function, location) = text.trim_end().split_once('\n').expect("two lines");
        let line = location.rsplit(':').next().unwrap();
        let line = line.split(' ').next().unwrap();
        (function.to_owned(), line.parse().unwrap_or(0))
    }
}

fn line_of(what: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("../../tests/programs/regions-library.c");
    let text = std::fs::read_to_string(source).unwrap();
    1 + text.lines().position(|l| l.contains(what)).unwrap() as u32
}

/// The regions of a kind, each with its location in the library.
fn locations(profile: &Profile, kind: ContextKind) -> Vec<(&Context, u64)> {
    let of_kind = profile.data.contexts.iter().filter(|c| c.kind == kind);
    let location = of_kind.map(|c| {
        let module = c.module.as_deref().unwrap_or_default();
        assert!(module.ends_with("/libsolver.so"), "{c:?}");
        assert_eq!((c.file.as_deref(), c.line), (None, None), "{c:?}");
        (c, c.address.expect("an address"))
    });
    location.collect()
}

/// Each report and export has the locations of the regions: the library's name and the address in it.
fn in_all_reports(built: &Built, file: &Path, locations: &[u64]) {
    let spile = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
        let out = command.arg("report").arg(file).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {out:?}");
        out.stdout
    };
    let at = built.dir.path().join("export");
    let to = at.to_str().unwrap();
    let mut texts = vec![
        ("text", spile(&["--top", "50"])),
        ("json", spile(&["--json"])),
    ];
    spile(&["--html", to]);
    texts.push(("html", std::fs::read(&at).unwrap()));
    for format in [
        "tau",
        "hatchet",
        "hatchet-literal",
        "folded",
        "speedscope",
        "firefox",
        "otlp",
        "chrome",
        "otf2",
    ] {
        let _ = std::fs::remove_file(&at);
        spile(&["--export", format, "-o", to]);
        let mut all = Vec::new();
        if at.is_dir() {
            for part in std::fs::read_dir(&at).unwrap().flatten() {
                all.extend(std::fs::read(part.path()).unwrap_or_default());
            }
            std::fs::remove_dir_all(&at).unwrap();
        } else {
            all = std::fs::read(&at).unwrap();
        }
        texts.push((format, all));
    }
    for (format, text) in texts {
        let text = String::from_utf8_lossy(&text);
        for location in locations {
            // (A table of 80 columns cuts the library's name.)
            let library = if format == "text" { "" } else { "libsolver.so" };
            let wanted = format!("{library}+{location:#x}");
            assert!(text.contains(&wanted), "{format}: no {wanted}: {text}");
        }
    }
}

#[test]
fn regions_of_a_library_without_symbols_have_locations_in_the_file() {
    for compiler in ["gcc", "clang"] {
        let built = Built::new(compiler, &["strip", "-s"]);
        let (file, profile) = built.traced();
        let regions = locations(&profile, ContextKind::OmpRegion);
        let mut all: Vec<u64> = regions.iter().map(|r| r.1).collect();
        // Two regions, not one: they differ only instead.
        let mut lines: Vec<u32> = all.iter().map(|at| built.found(*at).1).collect();
        lines.sort_unstable();
        for (line, what) in lines.iter().zip(["first region", "second region"]) {
            let pragma = line_of(what);
            assert!((pragma..pragma + 2).contains(line), "{compiler} {lines:?}");
        }
        assert_eq!(lines.len(), 2, "{compiler}");
        assert!(
            regions.iter().all(|(c, _)| c.name == "parallel"),
            "{compiler}"
        );
        let marks = locations(&profile, ContextKind::Mark);
        assert_eq!(marks[0].0.name, "solving");
        assert_eq!(
            built.found(marks[0].1),
            ("solve".to_owned(), line_of("// mark"))
        );
        all.extend(marks.iter().map(|m| m.1));
        in_all_reports(&built, &file, &all);
    }
}

/// With symbols but without lines, a region has its function's name and its location in the file.
#[test]
fn regions_without_debugging_information_have_names_of_functions() {
    for compiler in ["gcc", "clang"] {
        let built = Built::new(compiler, &["strip", "-g"]);
        let (file, profile) = built.traced();
        let regions = locations(&profile, ContextKind::OmpRegion);
        assert_eq!(regions.len(), 2, "{compiler}");
        for (region, address) in &regions {
            let (function, _) = built.found(*address);
            let function = function.split("._omp_fn").next().unwrap();
            assert_eq!(region.name, function, "{compiler}");
        }
        let all: Vec<u64> = regions.iter().map(|r| r.1).collect();
        in_all_reports(&built, &file, &all);
    }
}

/// A process that was already running has not loaded the library that reports regions: text, JSON, file and
/// page say so, and name the libraries that suggest that it has regions.
#[test]
fn a_process_that_ran_already_has_no_regions() {
    let options = ["-fopenmp", "-Wl,--no-as-needed"];
    let program = compiled("lives", "lives-openmp", &options);
    let mut child = Command::new(program)
        .arg("ready")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    let pid = child.id();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let library = maps.lines().find_map(|line| {
        let file = line.rsplit('/').next()?;
        file.starts_with("libgomp").then_some(file)
    });
    let has = format!(
        "regions of OpenMP (the process has {}), calls of MPI, named regions: ",
        library.expect("the library")
    );
    let why = format!("(`spile profile -- CMD`), and process {pid} was already running");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let spile = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
        let out = command.args(args).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
        text.replace("\n  ", " ")
    };
    let pid = pid.to_string();
    let path = file.to_str().unwrap();
    let attach = ["profile", "-d", "0.1", "-p", &pid];
    let said = spile(&[&attach[..], &["-o", path]].concat());
    assert!(
        said.contains(&format!("\nNot reported: {has}")) && said.contains(&why),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&spile(&["report", "--json", path])).unwrap();
    let told = json["recordings"][0]["regions_missing"]
        .as_str()
        .expect("a reason");
    assert!(told.starts_with(&has) && told.ends_with(&why), "{told}");
    let page = dir.path().join("page.html");
    spile(&["report", path, "--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().contains(&has));
    // Users who disable regions need no message.
    let said = spile(&[&attach[..], &["--no-regions"]].concat());
    assert!(!said.contains("Not told"), "{said}");
    let said = spile(&["profile", "--json", "--", "true"]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(json["recordings"][0]["regions_missing"].is_null(), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Programs into which no library can be loaded are named once, however often they run.
#[test]
fn statically_linked_programs_have_regions() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source.c");
    // The program's file is read while it runs.
    let text = "#include <stdio.h>\n#include <unistd.h>\n\
                int main(void) { puts(PART); usleep(300000); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    for (name, option, part) in [
        ("plain", "-static", "MPI_Init"),
        ("pie", "-static-pie", "OMP_NUM_THREADS"),
        ("linked", "-pie", "MPI_Init"),
        ("without", "-static", "none"),
    ] {
        let mut compiler = Command::new("cc");
        compiler.arg(format!("-DPART=\"{part}\""));
        compiler.arg(option).arg("-o").arg(dir.path().join(name));
        assert!(
            compiler.arg(&source).status().unwrap().success(),
            "{option}"
        );
    }
    let told = |script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
        command.args(["profile", "--json", "--", "sh", "-c", script]);
        let out = command.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let json: serde_json::Value = serde_json::from_str(&said).expect(&said);
        json["recordings"][0]["regions_missing"].clone()
    };
    let both = told("./plain; ./linked; ./pie; ./plain; true");
    let both = both.as_str().expect("a reason");
    for part in [
        "plain (process ",
        "pie (process ",
        "they are linked statically",
    ] {
        assert_eq!(both.matches(part).count(), 1, "{both}");
    }
    assert!(
        !both.contains("linked (") && !both.contains("sh ("),
        "{both}"
    );
    assert!(told("./linked; ./without; true").is_null());
    // A program that runs another one is judged by the last.
    assert!(told("exec ./linked").is_null());
    let last = told("exec ./pie");
    assert!(
        last.as_str()
            .is_some_and(|t| t.contains("it is linked statically")),
        "{last}"
    );
}
