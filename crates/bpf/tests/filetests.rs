//! Code generation, file by file: `tests/filetests/**/*.ir` has a program in text form, and after a
//! line `; ----` the code that it becomes, as comments. With `BLESS=1` the code is written anew:
//! read the difference.
//!
//! The machine is made up, so the code is the same everywhere. A line `; share` in the program
//! makes handlers share subprograms. Subprograms appear as their length, and those that a line `;
//! show NAME` names appear whole.
//!
//! Each file in `crates/bpf/src/lower` has its file test, at the same path.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use spile_bpf::compile;
use spile_bpf::target::{
    Features, KernelOffsets, MappingOffsets, NumberPath, Target, UnwindOffsets,
};
use spile_ebpf::isa::asm::AsmFunction;
use spile_ir::intrinsics::TaskNumber;
use spile_ir::{reader, verify};
use spile_syscalls::fake::{arg, call};
use spile_syscalls::{ArgKind, Syscall};
use spile_testing::files::below;
use spile_testing::libtest_mimic::{Arguments, Failed};
use spile_testing::trial;

const MARK: &str = "; ----\n";

/// Files without instructions of their own, or whose code no small program has.
const WITHOUT: &[(&str, &str)] = &[
    ("mod", "only modules"),
    ("data/mod", "only modules"),
    ("event/mod", "only modules"),
    ("handler/error_kinds", "only data"),
    ("handler/mod", "only modules"),
    ("text/mod", "only modules"),
    ("body_context", "computes facts"),
    ("codegen", "operands, which all tests have"),
    ("lir_sources", "only data"),
    ("needs", "computes sizes"),
    ("operand", "only data"),
    ("out_of_line", "only data"),
    ("pool", "constants and subprograms, which all tests have"),
    (
        "shapes",
        "how instructions use registers, which all tests show",
    ),
    ("slots", "only constants"),
    ("arguments", "calls, which all tests have"),
    ("values", "operands, which all tests have"),
    ("data/thread_record_facts", "computes facts"),
    ("event/deferred_modes", "computes facts"),
    ("text/escapes", "a table of bytes"),
    ("text/fields", "only data"),
    ("text/put", "the parts of all subprograms that append"),
];

fn options(share: Option<bool>) -> Target {
    Target {
        abi: &spile_abi::X86_64,
        host: spile_ir::HostKind::Kernel,
        cpus: 2,
        ring_bytes: 1 << 20,
        timing: false,
        lines: false,
        offsets: KernelOffsets {
            task_pid: Some(1000),
            task_tgid: Some(1004),
            task_comm: Some(1200),
            numbers: HashMap::from([(
                TaskNumber::Ppid,
                NumberPath {
                    steps: vec![1016, 1004],
                    bytes: 4,
                },
            )]),
            task_mm: Some(904),
            mm_arg_start: Some(376),
            mm_arg_end: Some(384),
            unwind: Some(unwind()),
            ..KernelOffsets::default()
        },
        features: Features::SINCE_6_9,
        syscalls: &SYSCALLS,
        functions: BTreeMap::new(),
        share,
        resident: false,
    }
}

/// Made-up offsets.
fn unwind() -> UnwindOffsets {
    UnwindOffsets {
        mapping: MappingOffsets {
            task_mm: 904,
            mm_root: 64,
            vma_start: 0,
            vma_end: 8,
        },
        task_tgid: 1004,
        mm_vdso: 1024,
        vma_pgoff: 120,
        vma_file: 128,
        vma_flags: 32,
        file_inode: 40,
        file_dentry: 72,
        inode_ino: 64,
        inode_sb: 40,
        sb_dev: 16,
        dentry_parent: 24,
        dentry_name: 40,
        returns: None,
    }
}

static SYSCALLS: [Syscall; 3] = [
    call(3, "close", &[arg(0, "", ArgKind::Int(32))]),
    call(
        42,
        "connect",
        &[
            arg(0, "", ArgKind::Int(32)),
            arg(1, "", ArgKind::Sockaddr(2)),
            arg(2, "", ArgKind::Int(32)),
        ],
    ),
    call(
        59,
        "execve",
        &[arg(0, "", ArgKind::Str), arg(1, "", ArgKind::Argv)],
    ),
];

/// The code of a program, or the reason why there is none.
fn code(source: &str) -> Result<String, String> {
    let program = reader::read(source).map_err(|e| e.to_string())?;
    verify::verify(&program).map_err(|e| format!("{e:?}"))?;
    let directives = |name: &str| -> Vec<&str> {
        let lines = source.lines().filter_map(|l| l.strip_prefix("; "));
        lines
            .filter_map(|l| l.strip_prefix(name))
            .map(str::trim)
            .collect()
    };
    let share = (!directives("share").is_empty()).then_some(true);
    let object = compile(&program, &options(share)).map_err(|e| e.to_string())?;
    let mut out = String::new();
    for program in &object.spec.programs {
        out.push_str(&program.function.listing());
    }
    let shown = directives("show ");
    let missing = |name: &&&str| !object.spec.subprograms.iter().any(|f| f.name == **name);
    if let Some(name) = shown.iter().find(missing) {
        let names: Vec<_> = object.spec.subprograms.iter().map(|f| &*f.name).collect();
        return Err(format!("no subprogram `{name}`, only {}", names.join(", ")));
    }
    for function in &object.spec.subprograms {
        // Where a leading test turns hits away, the body is a subprogram.
        let number = function.name.strip_prefix('h').unwrap_or_default();
        let body = number.parse::<u32>().is_ok();
        match body || shown.contains(&&*function.name) {
            true => out.push_str(&function.listing()),
            false => length(function, &mut out),
        }
    }
    Ok(out)
}

fn length(function: &AsmFunction, out: &mut String) {
    let params: Vec<&str> = function.params.iter().map(|p| &**p).collect();
    let (name, insns) = (&function.name, function.insns.len());
    let _ = writeln!(out, "{name}({}): {insns} instructions", params.join(", "));
}

fn check(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let source = text.split(MARK).next().unwrap_or_default();
    let code = code(source)?;
    let lines = code
        .lines()
        .map(|l| format!("; {l}").trim_end().to_owned() + "\n");
    let want = format!("{source}{MARK}{}", lines.collect::<String>());
    if want == text {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, want)?;
        return Ok(());
    }
    Err(difference(&text, &want).into())
}

/// The lines that differ, in the order of both.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(rest)
        .take_while(same)
        .count();
    let mut out = String::from("other code; BLESS=1 writes it down\n");
    for (sign, lines) in [
        ("-", &old[head..old.len() - tail]),
        ("+", &new[head..new.len() - tail]),
    ] {
        for line in lines {
            let _ = writeln!(out, "{sign} {line}");
        }
    }
    out
}

/// The paths of files below a folder, without their extension.
fn names(folder: &Path, extension: &str) -> Vec<String> {
    let name = |path: PathBuf| {
        let inner = path.strip_prefix(folder).expect("below").with_extension("");
        inner.display().to_string()
    };
    below(folder, &[extension]).into_iter().map(name).collect()
}

fn every_module_has_a_test(tests: &Path) -> Result<(), Failed> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lower");
    let (modules, tests) = (names(&sources, "rs"), names(tests, "ir"));
    let excused = |name: &String| WITHOUT.iter().any(|(w, _)| w == name);
    let has = |name: &String| {
        let plain = name.strip_suffix("/mod").unwrap_or(name);
        tests.iter().any(|t| t == plain || t == name)
    };
    let wrong = modules.iter().filter(|m| has(m) == excused(m));
    match wrong.collect::<Vec<_>>() {
        wrong if wrong.is_empty() => Ok(()),
        wrong => {
            Err(format!("without a file test, or with one and a reason for none: {wrong:?}").into())
        }
    }
}

fn main() -> std::process::ExitCode {
    let args = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let mut trials = Vec::new();
    for (path, name) in below(&folder, &["ir"])
        .into_iter()
        .zip(names(&folder, "ir"))
    {
        trials.push(trial(name, move || check(&path)));
    }
    trials.push(trial("every module has a test", move || {
        every_module_has_a_test(&folder)
    }));
    spile_testing::conclude(&args, trials)
}
