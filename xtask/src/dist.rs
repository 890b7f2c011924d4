//! `cargo xtask dist`: builds one static executable, and packages of it. The executable is checked
//! (size, no interpreter, no libraries) and run in a root file system that contains only the
//! executable, `/proc` and `/sys`; the packages are checked with the programs of their
//! distributions, where these are installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use spile_bench::printed;

use crate::cargo;

/// Maximum size of the executable in bytes. The translator to machine code (Cranelift) and the entry code (iced-x86) of
/// handlers in processes are 3,200,000 of them.
const MOST: u64 = 16_000_000;
/// The programs that make packages, with versions that are known to work. They are installed below
/// the target directory if they are missing.
const TOOLS: [(&str, &str); 2] = [("cargo-deb", "3.8.0"), ("cargo-generate-rpm", "0.21.1")];
/// Compiler flags: a static C library; addresses that are fixed, as `crates/spile/build.rs` has them for other
/// builds; one copy of functions with the same code; and no symbols, which the profile alone keeps because the
/// program's package has its own level of optimisation.
const STATIC: &str = "-C strip=symbols -C target-feature=+crt-static -C relocation-model=static -C llvm-args=-inline-threshold=10 -C link-arg=-Wl,--icf=all";
/// Exit status of a script that cannot run here.
const CANNOT: i32 = 77;

/// PROGRAM FOLDER: runs a session in an empty file system, which is mounted at the folder, until it
/// has seen a file being opened.
const ALONE: &str = r#"
    mount -t tmpfs none "$2" && mkdir "$2/proc" "$2/sys" &&
        mount -o bind /proc "$2/proc" && mount -o bind /sys "$2/sys" &&
        cp "$1" "$2/spile" || exit 77
    while sleep 0.1; do cat /seen-by-spile; done >/dev/null 2>&1 &
    chroot "$2" /spile -T 60 -e '
        global opens
        probe begin { printf("%s begins\n", execname()) }
        probe syscall.openat { if (isinstr(filename, "seen-by-spile")) opens++ }
        probe timer.ms(50) { if (opens) exit() }
        probe end { printf("%d seen\n", opens > 0) }' >"$2/out"
    status=$?
    kill $!
    cat "$2/out"
    [ $status = 0 ] && [ "$(cat "$2/out")" = "spile begins
1 seen" ]"#;

/// ROOT FOLDER PACKAGE: installs a package in a root file system, and runs the installed program.
const INSTALLED: &str = r#"
    set -e
    mount -t tmpfs none "$2"
    mkdir "$2/upper" "$2/work" "$2/root"
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$2/root"
    mount --rbind /proc "$2/root/proc"
    mount --rbind /sys "$2/root/sys"
    mount --rbind /dev "$2/root/dev"
    cp "$3" "$2/root/spile.deb"
    chroot "$2/root" sh -ec '
        . /etc/os-release
        dpkg -i /spile.deb >/dev/null
        for path in $(dpkg -L spile); do [ -e "$path" ] || echo "$path is not installed"; done
        opened=$(spile -e "global opens
            probe syscall.openat { if (pid() == target()) opens++ }
            probe end { printf(\"%d\", opens > 0) }" -c "cat /etc/os-release" | tail -n 1)
        [ "$opened" = 1 ]
        spile profile -- ls / 2>&1 >/dev/null | grep -q "threads. time"
        dpkg -r spile >/dev/null 2>&1
        test ! -e /usr/bin/spile
        echo "  $PRETTY_NAME: installed, run and removed"'"#;

/// FOLDER PACKAGE: installs an RPM package in an empty file system, which is mounted at the folder, runs
/// the installed program there, and removes the package. The package must require nothing but features
/// of RPM itself.
const INSTALLED_RPM: &str = r#"
    mount -t tmpfs none "$1" || exit 77
    set -e
    needed=$(rpm -qp --requires "$2" | grep -v "^rpmlib(" || true)
    [ -z "$needed" ] || { echo "the package requires $needed"; exit 1; }
    rpm --root "$1" --install "$2"
    rpm --root "$1" --verify spile
    mkdir "$1/proc" "$1/sys"
    mount -o bind /proc "$1/proc"
    mount -o bind /sys "$1/sys"
    said=$(chroot "$1" /usr/bin/spile -e 'probe begin { println("installed") exit() }')
    [ "$said" = installed ]
    rpm --root "$1" --erase spile
    [ ! -e "$1/usr/bin/spile" ]"#;

const USAGE: &str = "\
usage: cargo xtask dist [OPTION]...
Makes target/packages/spile-VERSION-ARCH, a static executable, and a .deb and an .rpm beside it.
  --no-packages  the executable alone
  --vm           run it in guests with other kernels as well, see cargo xtask vm
  --in FOLDER    install the .deb on top of this Debian root file system, which stays unchanged, and run it";

/// The options of the command line.
struct Options {
    packages: bool,
    vm: bool,
    userlands: Vec<PathBuf>,
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options {
        packages: true,
        vm: false,
        userlands: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--no-packages" => options.packages = false,
            "--vm" => options.vm = true,
            "--in" => options.userlands.push(args.next()?.into()),
            _ => return None,
        }
    }
    (options.packages || options.userlands.is_empty()).then_some(options)
}

/// Builds, checks and packages; fails at the first failed check.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some(options) = parse(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match all(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("dist: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all(options: &Options) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("no workspace")?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let out = root.join("target/packages");
    // Removes the files of an earlier run.
    let _ = fs::remove_dir_all(&out);
    let tree = out.join("root");
    fs::create_dir_all(&tree).map_err(|e| format!("{}: {e}", out.display()))?;

    let built = build(root, &target)?;
    let name = format!(
        "spile-{}-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let spile = out.join(name);
    fs::copy(&built, &spile).map_err(|e| format!("{}: {e}", built.display()))?;
    examine(&spile)?;
    runs_alone(&spile)?;
    let path = |p: &Path| p.display().to_string();
    succeeds(
        Command::new("make")
            .current_dir(root)
            .args(["-s", "install", "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", path(&tree)))
            .arg(format!("SPILE={}", path(&spile))),
    )?;
    if options.packages {
        for (tool, version) in TOOLS {
            let tool = installed(root, tool, version)?;
            package(root, &tool, &target, &out)?;
        }
        look_at_packages(&out)?;
    }
    for userland in &options.userlands {
        runs_installed(&out, userland)?;
    }
    if options.vm {
        runs_in_guests(root, &spile)?;
    }
    println!("in {}:", out.display());
    for file in files(&out)? {
        let bytes = fs::metadata(&file).map_or(0, |m| m.len());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        println!("{:>8.1} MB  {name}", bytes as f64 / 1e6);
    }
    Ok(())
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let mut files: Vec<PathBuf> = paths.filter(|p| p.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Runs a command that must succeed.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{name} failed: {status}")),
    }
}

/// Builds the executable, with a static C library.
fn build(root: &Path, target: &str) -> Result<PathBuf, String> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    // An explicit target keeps the flags from build scripts and macros.
    succeeds(
        cargo()
            .current_dir(root)
            .args(["build", "--locked", "-p", "spile", "--bin", "spile"])
            .args(["--profile", "dist", "--target", target])
            .args(["--target-dir", "target"])
            .env("RUSTFLAGS", format!("{flags} {STATIC}")),
    )?;
    Ok(root.join(format!("target/{target}/dist/spile")))
}

/// Checks its size, and that it needs no other files at load time.
fn examine(spile: &Path) -> Result<(), String> {
    let bytes = fs::read(spile).map_err(|e| format!("{}: {e}", spile.display()))?;
    let size = bytes.len() as u64;
    if size >= MOST {
        return Err(format!("it has {size} bytes; the limit is {MOST}"));
    }
    let loaded = load_time_needs(&bytes).ok_or("it is not a 64-bit ELF file")?;
    match loaded.is_empty() {
        true => Ok(()),
        false => Err(format!("it needs {}", loaded.join(", "))),
    }
}

/// The parts of an executable that make the kernel or a dynamic linker load other files.
fn load_time_needs(elf: &[u8]) -> Option<Vec<&'static str>> {
    const INTERPRETER: u64 = 3;
    const DYNAMIC: u64 = 2;
    const NEEDED: u64 = 1;
    let number = |offset: usize, bytes: usize| {
        let word = elf.get(offset..offset.checked_add(bytes)?)?;
        let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
        Some(word.iter().rev().fold(0, fold))
    };
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut needs = Vec::new();
    for i in 0..count {
        let header = usize::try_from(first + i * size).ok()?;
        let (from, len) = (number(header + 8, 8)?, number(header + 32, 8)?);
        match number(header, 4)? {
            INTERPRETER => needs.push("an interpreter"),
            DYNAMIC => {
                let entries = (from..from + len).step_by(16);
                let mut tags = entries.map_while(|entry| number(usize::try_from(entry).ok()?, 8));
                if tags.any(|tag| tag == NEEDED) {
                    needs.push("libraries");
                }
            }
            _ => {}
        }
    }
    Some(needs)
}

/// Runs it as root in a file system that contains only itself, `/proc` and `/sys`.
fn runs_alone(spile: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| format!("a folder: {e}"))?;
    in_own_mounts("an empty file system", ALONE, [spile, folder.path()])
}

/// Runs a script in a new mount namespace; without root, prints that it was skipped.
fn in_own_mounts(what: &str, script: &str, args: [&Path; 2]) -> Result<(), String> {
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args(args)
        .output()
        .map_err(|e| format!("unshare: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    if out.status.code() == Some(CANNOT) || !privileged() {
        println!("{what}: skipped, needs root");
        return Ok(());
    }
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!("{what}: {}, {said}", out.status))
}

/// Runs it in guests with other kernels.
fn runs_in_guests(root: &Path, spile: &Path) -> Result<(), String> {
    let line = format!(
        "sh -c '{}' sh /bin/spile /mnt",
        ALONE.replace('\'', r"'\''")
    );
    succeeds(
        cargo()
            .current_dir(root)
            .args(["run", "--quiet", "-p", "xtask", "--", "vm", "--spile"])
            .arg(spile)
            .args(["--sh", &line]),
    )
}

/// Installs the Debian package in a root file system, such as `debootstrap` makes, whose files stay
/// unchanged, and runs the program there.
fn runs_installed(out: &Path, userland: &Path) -> Result<(), String> {
    let mut debs = files(out)?;
    debs.retain(|f| f.extension().is_some_and(|e| e == "deb"));
    let folder = tempfile::tempdir().map_err(|e| format!("a folder: {e}"))?;
    println!("in {}:", userland.display());
    succeeds(
        Command::new("unshare")
            .args(["--mount", "sh", "-c", INSTALLED, "sh"])
            .args([userland, folder.path()])
            .args(debs),
    )
}

fn privileged() -> bool {
    // SAFETY: asks for a number, touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// A cargo tool, installed below the target directory if it is missing.
fn installed(root: &Path, tool: &str, version: &str) -> Result<PathBuf, String> {
    let tools = root.join("target/tools");
    let path = tools.join("bin").join(tool);
    if path.exists() {
        return Ok(path);
    }
    println!("installing {tool} {version} below {}", tools.display());
    let mut cargo = cargo();
    cargo.args(["install", "--quiet", "--locked", "--debug"]);
    cargo
        .args(["--version", version, tool, "--root"])
        .arg(&tools);
    succeeds(&mut cargo)?;
    Ok(path)
}

/// Makes a package of the installed tree; `crates/spile/Cargo.toml` lists its files.
fn package(root: &Path, tool: &Path, target: &str, out: &Path) -> Result<(), String> {
    let mut command = Command::new(tool);
    command.current_dir(root).stdout(Stdio::null());
    match tool.ends_with("cargo-deb") {
        true => command.args(["deb", "-p", "spile", "--no-build", "--no-strip", "--quiet"]),
        false => command.args(["generate-rpm", "-p", "crates/spile"]),
    };
    command.args(["--target", target]);
    succeeds(command.arg("--output").arg(format!("{}/", out.display())))
}

/// Checks the packages with the programs of their distributions.
fn look_at_packages(out: &Path) -> Result<(), String> {
    let tree = out.join("root");
    for file in files(out)? {
        let name = file.display().to_string();
        let listing = match file.extension().and_then(|e| e.to_str()) {
            Some("deb") => printed(Command::new("dpkg-deb").args(["--contents", &name])),
            Some("rpm") => printed(Command::new("rpm").args(["-qlp", &name])),
            _ => continue,
        };
        let Some(listing) = listing else {
            println!("{name}: not checked, dpkg-deb or rpm is missing");
            continue;
        };
        for path in installed_files(&tree)? {
            // Names of folders differ, and manual pages are compressed.
            let file = path.rsplit('/').next().unwrap_or_default();
            if !listing.contains(&format!("/{file}")) {
                return Err(format!("{name} lacks {path}:\n{listing}"));
            }
        }
        if name.ends_with(".rpm") {
            installs_from_rpm(&file)?;
        }
    }
    Ok(())
}

/// Installs the RPM package in an empty root file system, verifies it, and runs the program.
fn installs_from_rpm(package: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| format!("a folder: {e}"))?;
    let what = format!("installing {}", package.display());
    in_own_mounts(&what, INSTALLED_RPM, [folder.path(), package])
}

/// The files of a tree, relative to it.
fn installed_files(tree: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for path in entries.filter_map(|e| Some(e.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(path) = path.strip_prefix(tree) {
                files.push(path.display().to_string());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_an_executable_are_found() {
        let own = std::env::current_exe().expect("path");
        let elf = fs::read(own).expect("the test itself");
        let loaded = load_time_needs(&elf).expect("ELF");
        let is_static = cfg!(target_feature = "crt-static");
        assert_eq!(loaded.is_empty(), is_static, "{loaded:?}");
        assert_eq!(load_time_needs(&elf[..40]), None);
        assert_eq!(load_time_needs(b"#!/bin/sh\n"), None);
    }
}
