//! `cargo xtask vm`: the end-to-end cases and random scripts on other kernels. Debian's kernels are
//! fetched with apt's own configuration, and booted under qemu with an initramfs that has the tests
//! at the paths of this machine.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod cpio;
mod guest;
mod image;
mod measure;
mod packages;
pub mod programs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::root;
use packages::Kernel;

/// Number of random scripts for each kernel in a short run, and with `--all`.
const SCRIPTS: [u64; 2] = [8, 300];

const USAGE: &str = "\
usage: cargo xtask vm [OPTION]... [TEST]...
Runs the cases that are meant for virtual machines; with TEST, those of all cases whose names
contain one of these words.
  --kernel LIST  of 6.1, 6.12, newest (default: all three, separated by commas)
  --all          all cases, and more random scripts
  --debuginfo    with the kernel's debugging information, the cases that need it; 6.1 unless said
  --programs     with compilers and other programs of this machine (Debian), the cases that need them
  --bench        no tests: what attaching to functions of the kernel costs; newest unless said
  --scripts N    so many random scripts; 0: none
  --seed S       the first of them
  --sh LINE      no tests: a shell's command line in the guest; spile and load are commands there
  --spile FILE   with --sh: this static executable is spile there, and nothing is built
  --mirror URI   where Debian's packages are, if apt has no source of them";

/// The options of the command line.
struct Options {
    kernels: Vec<String>,
    all: bool,
    debuginfo: bool,
    programs: bool,
    bench: bool,
    scripts: Option<u64>,
    seed: u64,
    sh: Option<String>,
    spile: Option<PathBuf>,
    mirror: Option<String>,
    tests: Vec<String>,
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        kernels: packages::KERNELS.map(|k| k.0.to_owned()).to_vec(),
        all: false,
        debuginfo: false,
        programs: false,
        bench: false,
        scripts: None,
        seed: 0,
        sh: None,
        spile: None,
        mirror: None,
        tests: Vec::new(),
    };
    let mut named = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or(format!("{arg} needs a value"));
        let number = |s: String| s.parse().map_err(|_| format!("{arg} {s}: not a number"));
        match arg.as_str() {
            "--kernel" => {
                named = true;
                options.kernels = value()?.split(',').map(str::to_owned).collect();
            }
            "--debuginfo" => options.debuginfo = true,
            "--programs" => options.programs = true,
            "--bench" => options.bench = true,
            "--all" => options.all = true,
            "--scripts" => options.scripts = Some(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--sh" => options.sh = Some(value()?),
            "--spile" => options.spile = Some(value()?.into()),
            "--mirror" => options.mirror = Some(value()?),
            flag if flag.starts_with('-') => return Err(format!("no option {flag}")),
            test => options.tests.push(test.to_owned()),
        }
    }
    if options.spile.is_some() && options.sh.is_none() {
        return Err("--spile needs --sh".into());
    }
    if options.bench && !named {
        options.kernels.drain(..options.kernels.len() - 1);
    }
    if options.debuginfo {
        if !named {
            options.kernels.truncate(1);
        }
        if options.tests.is_empty() {
            options.tests.push("kernel-debuginfo::".into());
        }
    }
    Ok(options)
}

impl Options {
    /// The commands of the guest, one on each line; `run` is a function of its init.
    fn job(&self, built: &Built) -> String {
        if let Some(line) = &self.sh {
            return format!("run {line}\n");
        }
        let set = if self.all || !self.tests.is_empty() {
            "all"
        } else {
            "short"
        };
        let e2e = quoted(&built.e2e.display().to_string());
        let mut job = format!("export SPILE_VM={set}\n");
        // The tests take only one filter.
        if self.tests.is_empty() {
            job += &format!("run {e2e}\n");
        }
        for test in &self.tests {
            job += &format!("run {e2e} {}\n", quoted(test));
        }
        let scripts = match (self.scripts, self.tests.is_empty()) {
            (Some(n), _) => n,
            (None, true) => SCRIPTS[usize::from(self.all)],
            (None, false) => 0,
        };
        if scripts > 0 {
            job += &format!(
                "export SPILE_SOAK={scripts} SPILE_SEED={}\nrun {}\n",
                self.seed,
                quoted(&built.differential.display().to_string())
            );
        }
        job
    }
}

/// A word quoted for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The programs that go into the image.
pub(crate) struct Built {
    e2e: PathBuf,
    differential: PathBuf,
    spile: PathBuf,
    /// All programs: the tests' and the workload programs.
    programs: Vec<PathBuf>,
}

impl Built {
    /// Only this executable, which exists already.
    fn only(spile: &Path) -> Result<Built, String> {
        let path = spile.canonicalize();
        let path = path.map_err(|e| format!("{}: {e}", spile.display()))?;
        Ok(Built {
            e2e: PathBuf::new(),
            differential: PathBuf::new(),
            spile: path.clone(),
            programs: vec![path],
        })
    }
}

/// The profile in `Cargo.toml` for programs that run under emulation.
const PROFILE: &str = "vm";

/// Builds the tests as static programs, so that the image needs no libraries. An explicit target
/// gives them a directory of their own, so that nothing else is rebuilt.
fn build() -> Result<Built, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags += " -C target-feature=+crt-static";
    let cargo = |what: &[&str]| {
        text_of(
            Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
                .current_dir(image::root())
                .args(what)
                .args(["--message-format=json-render-diagnostics", "-p", "spile"])
                .args(["--profile", PROFILE, "--target", &target])
                .env("RUSTFLAGS", &flags),
        )
    };
    let tests = [
        "test",
        "--no-run",
        "--test",
        "e2e",
        "--test",
        "differential",
    ];
    let messages = cargo(&tests)? + &cargo(&["build", "--bins", "-p", "spile-workloads"])?;
    let programs: BTreeMap<String, PathBuf> = messages.lines().filter_map(program).collect();
    let find = |name: &str| {
        let found = programs.get(name).cloned();
        found.ok_or(format!("cargo built no {name}"))
    };
    Ok(Built {
        e2e: find("e2e")?,
        differential: find("differential")?,
        spile: find("spile")?,
        programs: programs.into_values().collect(),
    })
}

/// Name and path of a program, from a message of cargo's.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let name = message["target"]["name"].as_str()?;
    Some((name.into(), message["executable"].as_str()?.into()))
}

/// The output of a command; an error if it fails. Its standard error goes to the terminal.
fn text_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("{name}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{name} failed: {}", out.status)),
    }
}

/// Runs the job on all wanted kernels, up to `at_once` of them at a time. Returns whether all passed.
fn all(options: &Options, at_once: usize) -> Result<bool, String> {
    let mirror = packages::mirror(options.mirror.as_deref())?;
    let kernels: Vec<Result<Kernel, String>> = std::thread::scope(|s| {
        let fetches: Vec<_> = options
            .kernels
            .iter()
            .map(|name| {
                s.spawn(|| {
                    let mut kernel = packages::kernel(name, &mirror)?;
                    if options.debuginfo {
                        packages::add_debuginfo(&mut kernel, name, &mirror)?;
                    }
                    Ok(kernel)
                })
            })
            .collect();
        fetches
            .into_iter()
            .map(|f| f.join().unwrap_or_else(|_| Err("fetching panicked".into())))
            .collect()
    });
    let kernels: Vec<Kernel> = kernels.into_iter().collect::<Result<_, _>>()?;
    let built = match &options.spile {
        Some(file) => Built::only(file)?,
        None => build()?,
    };
    let job = match options.bench {
        true => measure::job(&built)?,
        false => options.job(&built),
    };
    // Before the guests are busy.
    let here = match options.bench {
        true => measure::on_this_machine(&built)?,
        false => Vec::new(),
    };
    let extra = match options.programs {
        true => image::programs()?,
        false => Vec::new(),
    };
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..at_once.min(kernels.len()) {
            s.spawn(|| {
                while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = image::build(kernel, &built, &extra, &job)
                        .and_then(|image| guest::run(kernel, &image, kernels.len() == 1));
                    match (result, failed.lock()) {
                        (Err(why), Ok(mut failed)) => {
                            failed.push(format!("{}: {why}", kernel.release));
                        }
                        (Ok(lines), _) => print!("{}", measure::compare(&here, &lines)),
                        _ => {}
                    }
                }
            });
        }
    });
    // Printed last, so that failures are at the end of the output.
    let failed = failed.into_inner().unwrap_or_default();
    failed.iter().for_each(|why| eprintln!("{why}"));
    Ok(failed.is_empty())
}

/// The short run on all kernels, one after the other: their names, and whether all tests passed.
pub fn short() -> Result<(String, bool), String> {
    let options = parse(&[])?;
    let passed = all(&options, 1)?;
    Ok((options.kernels.join(", "), passed))
}

/// Runs the cases on all wanted kernels; the status is zero if all pass on all of them.
pub fn run(args: &[String]) {
    let options = parse(args).unwrap_or_else(|why| {
        eprintln!("{why}\n{USAGE}");
        std::process::exit(2);
    });
    // Cases run one after the other, so a guest mostly uses one processor.
    let at_once = match options.bench {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from),
    };
    match all(&options, at_once) {
        Ok(true) => println!("all passed on {}", options.kernels.join(", ")),
        Ok(false) => std::process::exit(1),
        Err(why) => {
            eprintln!("vm: {why}");
            std::process::exit(1);
        }
    }
}
