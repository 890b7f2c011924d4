//! Where regions are of libraries that have no lines or no symbols: binutils find the place in what the library was
//! before, and all that reports say has it. The program is `tests/programs/regions-library.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

use spile_profile::file::read_path;
use spile_profile::model::{Context, ContextKind, Profile};

mod common;
use common::compiled_by;
use common::regions::include;

/// The library, as the program finds it; its like with all that debugging needs; and the program.
struct Built {
    dir: tempfile::TempDir,
    whole: PathBuf,
    program: PathBuf,
}

impl Built {
    /// `after`: a command that changes the library.
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

    /// Function and line of an address in the library, as binutils have them.
    fn found(&self, address: u64) -> (String, u32) {
        let mut command = Command::new("addr2line");
        command.args(["-f", "-e"]).arg(&self.whole);
        let out = command.arg(format!("{address:#x}")).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let (function, place) = text.trim_end().split_once('\n').expect("two lines");
        let line = place.rsplit(':').next().unwrap();
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

/// The regions of a kind, each with its place in the library.
fn places(profile: &Profile, kind: ContextKind) -> Vec<(&Context, u64)> {
    let of_kind = profile.data.contexts.iter().filter(|c| c.kind == kind);
    let place = of_kind.map(|c| {
        let module = c.module.as_deref().unwrap_or_default();
        assert!(module.ends_with("/libsolver.so"), "{c:?}");
        assert_eq!((c.file.as_deref(), c.line), (None, None), "{c:?}");
        (c, c.address.expect("an address"))
    });
    place.collect()
}

/// Each report and export has the places of the regions, by the library's name and the address there.
fn in_all_reports(built: &Built, file: &Path, places: &[u64]) {
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
        for place in places {
            // (A table of 80 columns cuts the library's name.)
            let library = if format == "text" { "" } else { "libsolver.so" };
            let wanted = format!("{library}+{place:#x}");
            assert!(text.contains(&wanted), "{format}: no {wanted}: {text}");
        }
    }
}

#[test]
fn regions_of_a_library_without_symbols() {
    for compiler in ["gcc", "clang"] {
        let built = Built::new(compiler, &["strip", "-s"]);
        let (file, profile) = built.traced();
        let regions = places(&profile, ContextKind::OmpRegion);
        let mut all: Vec<u64> = regions.iter().map(|r| r.1).collect();
        // Two regions, and not one: they differ in their places only.
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
        let marks = places(&profile, ContextKind::Mark);
        assert_eq!(marks[0].0.name, "solving");
        assert_eq!(
            built.found(marks[0].1),
            ("solve".to_owned(), line_of("// mark"))
        );
        all.extend(marks.iter().map(|m| m.1));
        in_all_reports(&built, &file, &all);
    }
}

/// With symbols and no lines a region has its function's name, and its place in the file.
#[test]
fn regions_of_a_library_without_debugging_information() {
    for compiler in ["gcc", "clang"] {
        let built = Built::new(compiler, &["strip", "-g"]);
        let (file, profile) = built.traced();
        let regions = places(&profile, ContextKind::OmpRegion);
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
