//! `cargo xtask programs`: programs whose packages in Debian lack what long cases need, built from Debian's sources into
//! `target/programs`: Tcl with markers, and bash with debugging information.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::packages;

/// The suite that has the sources.
const SUITE: &str = "bookworm";
/// The package with `dtrace` and the header of markers.
const MARKERS: &str = "systemtap-sdt-dev";

/// A program, and how it is built.
struct Recipe {
    /// Its folder in `target/programs`.
    name: &'static str,
    /// Its source package.
    source: &'static str,
    /// The folder of the source with its `configure`.
    within: &'static str,
    /// The arguments of `configure`, and of `make`.
    options: &'static [&'static str],
    make: &'static [&'static str],
    /// What is kept: files and folders of the source.
    kept: &'static [&'static str],
}

const RECIPES: [Recipe; 2] = [
    Recipe {
        name: "tcl",
        source: "tcl8.6",
        within: "unix",
        options: &["--enable-dtrace"],
        make: &["binaries"],
        kept: &["unix/libtcl8.6.so", "unix/tclsh", "library"],
    },
    // Without optimisation parameters are in memory, which cases write to on more kernels than registers.
    Recipe {
        name: "bash",
        source: "bash",
        within: ".",
        options: &["--without-bash-malloc", "CFLAGS=-g -O0"],
        make: &[],
        kept: &["bash"],
    },
];

/// Where the programs are. Guests have them at the same path.
pub(crate) fn folder() -> PathBuf {
    crate::root().join("target/programs")
}

/// Builds what is not there yet.
pub fn run() -> ExitCode {
    for recipe in &RECIPES {
        let ready = folder().join(recipe.name);
        if ready.exists() {
            continue;
        }
        eprintln!("building {} from Debian's source", recipe.name);
        if let Err(why) = build(recipe, &ready) {
            eprintln!("programs: {}: {why}", recipe.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn build(recipe: &Recipe, ready: &Path) -> Result<(), String> {
    let dir = folder().join(format!("{}.part", recipe.name));
    let mirror = packages::mirror(None)?;
    let work = packages::prepare(&dir, &mirror, SUITE, &["deb", "deb-src"])?;
    packages::download(&work, &[MARKERS.to_owned()])?;
    packages::source(&work, recipe.source)?;
    let (debs, root) = (work.join("debs"), work.join("files"));
    let named = |part: &str| {
        let all = fs::read_dir(&debs).into_iter().flatten().flatten();
        let mut all = all.map(|entry| entry.path());
        let found = all.find(|path| path.to_string_lossy().contains(part));
        found.ok_or_else(|| format!("apt fetched no {part}"))
    };
    let mut unpack = Command::new("dpkg-deb");
    packages::output(unpack.arg("-x").arg(named(MARKERS)?).arg(&root))?;
    let source = work.join("source");
    fs::create_dir_all(&source).map_err(|e| e.to_string())?;
    let mut unpack = Command::new("tar");
    let unpack = unpack
        .args(["--strip-components=1", "-xf"])
        .arg(named(".orig.tar")?);
    packages::output(unpack.arg("-C").arg(&source))?;
    let at = source.join(recipe.within);
    let here = |program: &str| {
        let include = root.join("usr/include");
        let own = include.join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .current_dir(&at)
            .env("CPATH", format!("{}:{}", include.display(), own.display()))
            .env("PATH", format!("{}:{path}", root.join("usr/bin").display()));
        command
    };
    packages::output(here("./configure").args(recipe.options))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    packages::output(
        here("make")
            .arg(format!("-j{processors}"))
            .args(recipe.make),
    )?;
    let new = dir.join("new");
    fs::create_dir_all(&new).map_err(|e| e.to_string())?;
    let mut keep = Command::new("cp");
    packages::output(
        keep.arg("-r")
            .args(recipe.kept.iter().map(|k| source.join(k)))
            .arg(&new),
    )?;
    fs::rename(&new, ready).map_err(|e| format!("{}: {e}", ready.display()))?;
    fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))
}
