//! The passes of a run: 1 parse, 2 analyse, 3 translate, 4 compile, 5 run.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use spile_bpf::layout::Object;
use spile_bpf::object::dump;
use spile_bpf::object::elf::MapSpec;
use spile_ir::{Bytes, Program, ProgramFacts};
use spile_kernel::btf::{Btf, VMLINUX};
use spile_kernel::process::IdRange;
use spile_kernel::{machine as host, names, process, resources};
use spile_runtime::TargetProcess;
use spile_runtime::io::child::WatchedProcess;
use spile_runtime::io::output;
use spile_runtime::load::map_prealloc::PremadeMaps;
use spile_runtime::session;
use spile_sema::analyse::{self, Analysis, IdMap, Inputs, UserIds};
use spile_sema::codes;
use spile_sema::library::Library;
use spile_syntax::diag::{Diagnostic, Diagnostics};
use spile_syntax::parser::parse_script;
use spile_syntax::preproc::{KernelConfig, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

use crate::cli::{Cli, Stage};
use crate::facts::KernelFacts;
use crate::facts::kernel_debug::TargetKernel;
use crate::report::{Failure, Stopwatch, fail, say, tell, tell_lines, tell_raw};
use crate::{list, machine, tapset};

/// Maximum length of a script in bytes. (The longest of SystemTap's examples has 20 KB.)
const MAX_SCRIPT: u64 = 4 << 20;

/// Default size of the ring buffer.
const RING_BYTES: u32 = 4 << 20;

/// The script's texts and arguments.
#[derive(Clone)]
pub(crate) struct ScriptInput {
    /// Names for messages, each with its text.
    pub texts: Vec<(String, Vec<u8>)>,
    /// `$1`, `@1`, ...
    pub args: Vec<String>,
}

/// The outcome of the passes.
pub(crate) enum PassesOutcome {
    /// No session: a listing or the output of a pass was printed; with the exit status.
    Shown(u8),
    /// A session ran.
    Ran(Box<session::Outcome>),
}

impl PassesOutcome {
    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            PassesOutcome::Shown(code) => *code,
            PassesOutcome::Ran(outcome) => outcome.exit_code.clamp(0, 255) as u8,
        }
    }
}

/// The state that all passes share.
pub(crate) struct Frontend {
    /// All files.
    pub sources: Sources,
    /// The diagnostics so far.
    pub diags: Diagnostics,
    /// The parsed files.
    pub library: Library,
    /// Facts about the machine.
    pub facts: KernelFacts,
    /// The user's files in the form that `-p1` prints.
    pretty: String,
    /// The run is for a kernel other than the running one.
    other: bool,
}

/// Runs the command; the result is the exit status.
pub(crate) fn run(cli: &Cli, color: bool) -> Result<u8, Failure> {
    let script = if list::wanted(cli) {
        None
    } else {
        Some(script(cli)?)
    };
    Ok(drive(cli, script, color, |_| {})?.code())
}

/// Runs the passes over a script, or makes a listing without one. `change` can modify the session's
/// options at the end.
pub(crate) fn drive(
    cli: &Cli,
    script: Option<ScriptInput>,
    color: bool,
    change: impl FnOnce(&mut session::Options),
) -> Result<PassesOutcome, Failure> {
    let mut watch = Stopwatch::start([1, 2, 3, 4, 5].map(|pass| cli.tells(pass)));
    resources::check().map_err(fail)?;
    let held = (script.is_some() && cli.pass != Some(1))
        .then(|| begin_early(cli))
        .flatten();
    let mut front = parse(cli, script)?;
    watch.pass(1, "parsed user script");
    if list::wanted(cli) {
        return list::run(cli, &mut front, color).map(PassesOutcome::Shown);
    }
    let last = last_pass(cli, &front);
    let failed = |what: &'static str| move |_: &Failure| tell(format_args!("{what} failed.\n"));
    front
        .report(cli, color)
        .inspect_err(failed("Pass 1: parse"))?;
    if last == 1 {
        return shown(&front.pretty);
    }
    let analysis = analyse(cli, &mut front)?;
    check_types(cli, &mut front, color)?;
    front
        .report(cli, color)
        .inspect_err(failed("Pass 2: analysis"))?;
    let analysis = analysis.ok_or(Failure::Reported)?;
    watch.pass(2, counts(&analysis.program, &front));
    tell_what_is_left_out(cli, &analysis, &front);
    if last == 2 {
        return shown(&analysis.dump);
    }
    front.facts.analysed();
    let mut program = analysis.program;
    let explanation = translate(cli, &mut program)?;
    watch.pass(
        3,
        format_args!("translated {} handler(s)", program.handlers.len()),
    );
    if cli.tells(3) {
        tell(&explanation);
    }
    if last == 3 {
        return shown(&program);
    }
    let facts = Rc::new(ProgramFacts::new(&program));
    let mut ahead = None;
    let planned = |maps: &[MapSpec], state| {
        ahead = (last == 5).then(|| PremadeMaps::begin(maps, state));
    };
    let compiled = compile(cli, &program, &facts, planned)?;
    let object = compiled.as_ref().map(|(object, _)| object);
    let size = object.map(|o| format!("compiled to eBPF: {} instructions", o.spec.slots()));
    let nothing = || "nothing to compile: no handler runs in the kernel".to_owned();
    watch.pass(4, size.unwrap_or_else(nothing));
    if let Some(stage) = cli.dump {
        return dump(object, stage).map(|()| PassesOutcome::Shown(0));
    }
    if last == 4 || cli.keep {
        write_object(cli, object, last == 4)?;
    }
    if last == 4 {
        return Ok(PassesOutcome::Shown(0));
    }
    let read_files = front.facts.read_files();
    let change = |options: &mut session::Options| {
        (options.suspended_child, options.ahead) = (held, ahead);
        options.facts = Some(facts);
        change(options);
    };
    let outcome = execute(cli, program, compiled, read_files, change)?;
    watch.pass(5, "run completed");
    // The process is about to end: freeing the trees would take a millisecond for nothing. The same
    // holds for the session's data.
    std::mem::forget(front);
    Ok(PassesOutcome::Ran(Box::new(outcome)))
}

/// The end of a run whose last pass prints its output.
fn shown(output: impl std::fmt::Display) -> Result<PassesOutcome, Failure> {
    say(output)?;
    Ok(PassesOutcome::Shown(0))
}

/// Begins work that needs no script: reading the kernel's types, and the command of `-c`, which stops
/// before its `execve`.
fn begin_early(cli: &Cli) -> Option<WatchedProcess> {
    // The command forks before there is memory that it would share.
    let runs = cli.dump.is_none() && matches!(cli.pass, None | Some(5));
    let held = match (runs, &cli.release, &cli.command) {
        (true, None, Some(command)) => WatchedProcess::start(command).ok(),
        _ => None,
    };
    process::large_heap();
    // With -r, types of another kernel are needed.
    if cli.release.is_none() {
        process::spawn_masked(machine::preread);
    }
    held
}

/// The last pass of the run.
fn last_pass(cli: &Cli, front: &Frontend) -> u8 {
    let last = cli.pass.unwrap_or(if cli.dump.is_some() { 4 } else { 5 });
    if front.other && last > 4 {
        tell("the kernel of -r is not running: the last pass is 4\n");
        return 4;
    }
    last
}

/// If analysis found errors and the running kernel's types cannot be read, says so in place of the
/// errors that follow from it: without types, tracepoints and structures are never found, and that
/// is no mistake of the script.
fn check_types(cli: &Cli, front: &mut Frontend, color: bool) -> Result<(), Failure> {
    if front.diags.has_errors()
        && !front.other
        && let Err(failure) = kernel_types()
    {
        let for_want = |d: &Diagnostic| WANT_TYPES.contains(&d.code);
        if front.diags.drop_errors(for_want) > 0 {
            let _ = front.report(cli, color);
            return Err(failure);
        }
    }
    Ok(())
}

/// The size of an analysed script, for `-v`.
fn counts(program: &Program, front: &Frontend) -> String {
    format!(
        "analyzed script: {} probe(s), {} function(s), {} global(s), {} library script(s)",
        program.handlers.len(),
        program.funcs.len(),
        program.globals.len(),
        front.library.files_read()
    )
}

/// Names the parts of a script that have no effect or were left out.
fn tell_what_is_left_out(cli: &Cli, analysis: &Analysis, front: &Frontend) {
    let verbose = cli.tells(2);
    if verbose && front.facts.left_out() > 0 {
        tell(format_args!(
            "{} functions that match are left out: the kernel forbids probing them, or \
             ftrace does not trace them\n",
            front.facts.left_out()
        ));
    }
    let without = front.facts.without_returns();
    if let [first, ..] = &*without
        && !cli.no_warnings
    {
        tell(format_args!(
            "WARNING: {} function(s) that match are left out, because their returns cannot be \
             probed: {first}{}\n",
            without.len(),
            if without.len() > 1 { ", ..." } else { "" }
        ));
    }
    let limited = |h: &spile_ir::Handler| h.event.in_kernel() && h.point.contains(".maxactive(");
    if verbose && analysis.program.handlers.iter().any(limited) {
        tell(
            ".maxactive(N) has no effect: the kernel decides how many calls can wait for their return at \
             a time; the account counts the returns that it missed\n",
        );
    }
    if verbose {
        tell(&analysis.removed);
    }
}

/// The meaning of `process` without a name.
fn target(cli: &Cli) -> Result<TargetProcess, Failure> {
    Ok(match (&cli.command, cli.pid) {
        (Some(command), _) => TargetProcess::Command(command.clone()),
        (None, Some(pid)) if i32::try_from(pid).is_err() => {
            return Err(fail(format_args!("-x {pid}: no such process")));
        }
        (None, Some(pid)) => TargetProcess::Pid(pid),
        (None, None) => TargetProcess::None,
    })
}

/// Reads a script up to the maximum length.
pub(crate) fn read_limited(mut from: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    from.by_ref()
        .take(MAX_SCRIPT + 1)
        .read_to_end(&mut text)
        .map_err(|e| fail(format_args!("{name}: {e}")))?;
    if text.len() as u64 > MAX_SCRIPT {
        return Err(fail(format_args!(
            "{name}: longer than {} MB; that is not a script",
            MAX_SCRIPT >> 20
        )));
    }
    Ok(text)
}

fn script(cli: &Cli) -> Result<ScriptInput, Failure> {
    let mut args = cli.rest.clone();
    let mut texts = Vec::new();
    if let Some(text) = &cli.script {
        texts.push(("<input>".to_owned(), text.clone().into_bytes()));
    } else if cli.extra.is_empty() || !args.is_empty() {
        if args.is_empty() {
            return Err(fail(
                "no script: give a file, or -e SCRIPT (spile -h for help)",
            ));
        }
        let name = args.remove(0);
        let text = if name == "-" {
            read_limited(std::io::stdin(), "standard input")?
        } else {
            let file = std::fs::File::open(&name).map_err(|e| fail(format_args!("{name}: {e}")))?;
            read_limited(file, &name)?
        };
        texts.push((name, text));
    }
    for (i, text) in cli.extra.iter().enumerate() {
        texts.push((format!("<-E {}>", i + 1), text.clone().into_bytes()));
    }
    Ok(ScriptInput { texts, args })
}

/// The running kernel's configuration, read when a script first asks.
struct HostConfig;

impl KernelConfig for HostConfig {
    fn get(&self, name: &str) -> Option<String> {
        host::config(name).map(|v| v.trim_matches('"').to_owned())
    }

    fn is_available(&self) -> bool {
        host::has_config()
    }
}

/// The last value that `-D` gives for NAME.
pub(crate) fn define(defines: &[String], name: &str) -> Option<u32> {
    let values = defines.iter().rev().filter_map(|d| d.split_once('='));
    values.into_iter().find(|(n, _)| *n == name)?.1.parse().ok()
}

/// The environment of the preprocessor on this machine.
pub(crate) fn preproc_env(release: &str) -> PreprocEnv {
    PreprocEnv::new(release, std::env::consts::ARCH).with_config(HostConfig)
}

/// The kernel that `-r` names: a release, or a build directory.
fn kernel(cli: &Cli) -> Result<TargetKernel, Failure> {
    let running = host::release();
    let Some(named) = &cli.release else {
        return Ok(TargetKernel {
            release: running,
            ..TargetKernel::default()
        });
    };
    let build = match named.contains('/') {
        true => PathBuf::from(named),
        false => Path::new("/lib/modules").join(named).join("build"),
    };
    let file = build.join("include/config/kernel.release");
    let release = match (std::fs::read_to_string(&file), named.contains('/')) {
        (Ok(text), _) => text.trim().to_owned(),
        (Err(_), false) => named.clone(),
        (Err(e), true) => return Err(fail(format_args!("-r {named}: {}: {e}", file.display()))),
    };
    Ok(TargetKernel {
        other: release != running,
        build: Some(build),
        release,
    })
}

/// Parses the script, and makes the tapset ready.
fn parse(cli: &Cli, script: Option<ScriptInput>) -> Result<Frontend, Failure> {
    let kernel = kernel(cli)?;
    let (release, other) = (kernel.release.clone(), kernel.other);
    let script = script.unwrap_or(ScriptInput {
        texts: Vec::new(),
        args: Vec::new(),
    });
    let mut env = preproc_env(&release).with_args(script.args.clone());
    env.guru = cli.guru;
    if let Some(version) = &cli.compatible {
        env.systemtap_version = version.clone();
    }
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let mut library = Library::new();
    // The script's files come first, so that its messages do.
    let add = |(name, text): &(String, Vec<u8>)| sources.add(name.clone(), text.clone());
    let user: Vec<_> = script.texts.iter().map(add).collect();
    let lib = tapset::open(&mut sources, &env, &cli.include, &cli.defines, &mut diags)
        .map_err(|u| fail(format_args!("{}: {}", u.path.display(), u.error)))?;
    let mut pretty = String::new();
    for file in user {
        let tree = parse_script(&mut sources, file, &env, &lib.macros, &mut diags);
        if cli.pass == Some(1) {
            pretty.push_str(&pretty::file(&tree));
        }
        library.add(file, tree, true);
    }
    lib.add_to(&mut library, &mut sources, env, &mut diags);
    Ok(Frontend {
        sources,
        diags,
        library,
        facts: KernelFacts::new(&release)
            .with_target(target(cli)?, cli.target_namespaces, cli.unsafe_returns)
            .with_kernel(kernel)
            .map_err(fail)?,
        pretty,
        other,
    })
}

/// The user namespace of a process, or spile's own.
fn user_ids(process: Option<u32>) -> UserIds {
    let Some([users, groups]) = spile_kernel::process::id_maps(process) else {
        return UserIds::default();
    };
    let map = |ranges: Vec<IdRange>, others| IdMap {
        ranges: ranges
            .iter()
            .map(|r| (r.inside, r.outside, r.count))
            .collect(),
        others,
    };
    let [user, group] = spile_kernel::process::overflow_ids();
    UserIds {
        users: map(users, user),
        groups: map(groups, group),
    }
}

impl Frontend {
    /// Prints the diagnostics so far; an error among them ends the run.
    pub(crate) fn report(&mut self, cli: &Cli, color: bool) -> Result<(), Failure> {
        if cli.no_warnings {
            self.diags.drop_warnings();
        }
        let diags = std::mem::take(&mut self.diags);
        if !diags.is_empty() {
            tell_raw(&diags.render(&self.sources, color));
        }
        if diags.has_errors() {
            return Err(Failure::Reported);
        }
        if cli.warnings_are_errors && diags.warning_count() > 0 {
            return Err(fail("warnings are errors (-W)"));
        }
        Ok(())
    }
}

/// `NAME=VALUE` options as pairs.
pub(crate) fn pairs(options: &[String], letter: char) -> Result<Vec<(String, String)>, Failure> {
    options
        .iter()
        .map(|text| match text.split_once('=') {
            Some((name, value)) => Ok((name.into(), value.into())),
            None if letter == 'D' => Ok((text.clone(), "1".into())),
            None => Err(fail(format_args!("-{letter} {text}: expected NAME=VALUE"))),
        })
        .collect()
}

/// From the parsed files to a program; none where there are errors, which are in the diagnostics.
fn analyse(cli: &Cli, front: &mut Frontend) -> Result<Option<Analysis>, Failure> {
    let mut defines = pairs(&cli.defines, 'D')?;
    if cli.suppress_handler_errors {
        for limit in ["MAXERRORS", "MAXSKIPPED"] {
            defines.push((limit.into(), u64::MAX.to_string()));
        }
    }
    let globals = pairs(&cli.globals, 'G')?;
    let options = analyse::Options {
        defines,
        globals,
        display: !cli.no_global_var_display,
        session_name: session_name(cli),
        session_pid: std::process::id().into(),
        session_uid: spile_kernel::process::own_uid().into(),
        target_pidns: match spile_kernel::process::pid_namespace(cli.target_namespaces) {
            Some(inode) => inode.cast_signed(),
            None => {
                let pid = cli.target_namespaces.unwrap_or_default();
                return Err(fail(format_args!(
                    "--target-namespaces={pid}: no such process"
                )));
            }
        },
        target_users: user_ids(cli.target_namespaces),
        no_time_limits: cli.suppress_time_limits,
        skip_badvars: cli.skip_badvars,
        guru: cli.guru,
    };
    let Frontend {
        sources,
        diags,
        library,
        facts,
        ..
    } = front;
    let inputs = Inputs {
        library,
        sources,
        facts,
        tables: &table,
        options: &options,
    };
    let analysis = analyse::analyse(&inputs, diags).ok();
    diags.append(library.read_errors());
    Ok(analysis)
}

/// The constant tables of tapset functions, except those of system calls: texts by number.
pub(crate) fn table(name: &str) -> Option<Vec<Bytes>> {
    let indexed = |pairs: &mut dyn Iterator<Item = (u32, String)>| {
        let mut table: Vec<Bytes> = Vec::new();
        for (i, text) in pairs {
            let i = i as usize;
            if table.len() <= i {
                table.resize(i + 1, Bytes::from(&b""[..]));
            }
            // The first of several synonyms is the name.
            if table[i].is_empty() {
                table[i] = text.as_bytes().into();
            }
        }
        table
    };
    match name {
        "errno" => Some(indexed(
            &mut names::all_errors().map(|(n, t)| (n, t.to_owned())),
        )),
        "cpu" => Some(indexed(
            &mut spile_kernel::machine::online_cpus()
                .into_iter()
                .map(|cpu| (cpu, "online".to_owned())),
        )),
        "signal" => {
            Some(indexed(&mut (1..=64).filter_map(|n| {
                Some((n, names::signal_name(n)?.into_owned()))
            })))
        }
        "hz" => Some(vec![
            spile_kernel::machine::hz().to_string().as_bytes().into(),
        ]),
        // Choices, such as socket types, and of sets the bits that stand for a choice.
        name => spile_kernel::syscalls::flag_table(name).map(|table| {
            let small = table.flags.iter().filter_map(|flag| {
                let number = u32::try_from(flag.value).ok().filter(|n| *n < 1024)?;
                Some((number, flag.name.to_owned()))
            });
            indexed(&mut { small })
        }),
    }
}

/// Optimises and classifies storage; returns the reasons for each global's class.
fn translate(cli: &Cli, program: &mut Program) -> Result<String, Failure> {
    let before = size(program);
    spile_ir::opt::optimise(program, !cli.unoptimised);
    if !cli.unoptimised {
        spile_ir::opt::trim_stats::run(program);
    }
    let explanation = spile_ir::storage::classify(program);
    let after = size(program);
    if cfg!(debug_assertions)
        && let Err(errors) = spile_ir::verify::verify(program)
    {
        let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
        return Err(fail(format_args!("internal error: {}", text.join("; "))));
    }
    let how = if cli.unoptimised {
        "inlined"
    } else {
        "optimised"
    };
    Ok(format!(
        "{explanation}{how}: {} instructions of the intermediate form became {}\n",
        before, after
    ))
}

/// Number of instructions of a program.
fn size(program: &Program) -> usize {
    let handlers = program.handlers.iter().map(|h| &h.body);
    let bodies = handlers.chain(program.funcs.iter().map(|f| &f.body));
    bodies
        .flat_map(|b| &b.blocks)
        .map(|b| b.insts.len() + 1)
        .sum()
}

/// Errors that are expected where the kernel's types cannot be read.
const WANT_TYPES: [&str; 4] = [
    codes::NO_TRACEPOINT,
    codes::NO_TYPE,
    codes::NO_CONSTANT,
    codes::NO_VARIABLE,
];

/// The running kernel's BTF.
pub(crate) fn kernel_types() -> Result<&'static Btf, Failure> {
    Btf::vmlinux().map_err(|e| {
        let there = |path: &str| Path::new(path).exists();
        let way_out = match (there(VMLINUX), there("/sys/kernel")) {
            (true, _) => "",
            (false, true) => {
                ": a kernel with CONFIG_DEBUG_INFO_BTF=y is needed for probes in the kernel"
            }
            (false, false) => ": /sys is missing, mount -t sysfs sysfs /sys",
        };
        fail(format_args!(
            "the kernel's own types cannot be read ({e}){way_out}"
        ))
    })
}

/// The compiler's target; `None` if no handler runs in the kernel.
fn bpf_target(
    cli: &Cli,
    program: &Program,
    facts: &ProgramFacts,
) -> Result<Option<spile_bpf::target::Options>, Failure> {
    let in_kernel = program.handlers.iter().any(|h| h.event.in_kernel());
    if !in_kernel && !program.follows_target() {
        return Ok(None);
    }
    let btf = kernel_types()?;
    Ok(Some(spile_bpf::target::Options {
        arch: machine::arch(),
        cpus: machine::cpus(),
        ring_bytes: ring_bytes(cli),
        timing: cli.timing,
        // Line information costs time when the kernel loads it, so it is only in files and after a
        // rejection.
        lines: cli.pass == Some(4) || cli.dump.is_some(),
        offsets: machine::offsets(btf, facts),
        features: machine::bpf_features(btf, program),
        syscalls: machine::syscall_descs(),
        functions: machine::typed_functions(btf, program),
        share: None,
        resident: cli.resident,
    }))
}

/// An object, and the machine that it was compiled for.
type CompiledObject = (Object, spile_bpf::target::Options);

/// Compiles the kernel handlers; `None` without any. `planned` is called with the maps of the object and the bytes of its
/// state memory before its code is generated.
fn compile(
    cli: &Cli,
    program: &Program,
    facts: &Rc<ProgramFacts>,
    planned: impl FnOnce(&[MapSpec], u32),
) -> Result<Option<CompiledObject>, Failure> {
    let Some(target) = bpf_target(cli, program, facts)? else {
        return Ok(None);
    };
    let object = spile_bpf::compile_planned(program, facts, &target, planned).map_err(fail)?;
    Ok(Some((object, target)))
}

/// The files of `-d`; kernel modules are searched without being named.
fn objects(cli: &Cli) -> Result<Vec<PathBuf>, Failure> {
    let file = |path: &PathBuf| match path.canonicalize() {
        Ok(path) => Some(Ok(path)),
        Err(_) if path.components().count() == 1 => None,
        Err(e) => Some(Err(fail(format_args!("-d {}: {e}", path.display())))),
    };
    cli.objects.iter().filter_map(file).collect()
}

/// The smallest power of two that is at least the size in `-s`.
fn ring_bytes(cli: &Cli) -> u32 {
    match cli.buffer_mb {
        Some(mb) => (mb << 20).next_power_of_two(),
        None => RING_BYTES,
    }
}

/// Writes the object file; `name_it` prints its name, as `stap -p4` does.
fn write_object(cli: &Cli, object: Option<&Object>, name_it: bool) -> Result<(), Failure> {
    let Some(object) = object else {
        if !cli.no_warnings {
            tell("WARNING: no object is written: no handler runs in the kernel\n");
        }
        return Ok(());
    };
    let name = format!("{}.bpf.o", cli.module.as_deref().unwrap_or("spile"));
    let elf = object.spec.write().map_err(fail)?;
    std::fs::write(&name, elf).map_err(|e| fail(format_args!("{name}: {e}")))?;
    if name_it {
        say(format_args!("{name}\n"))
    } else {
        tell(format_args!("Keeping the compiled object {name}\n"));
        Ok(())
    }
}

/// Prints the compiled object as text.
fn dump(object: Option<&Object>, stage: Stage) -> Result<(), Failure> {
    let Some(object) = object else {
        return say("; no handler runs in the kernel\n");
    };
    match stage {
        Stage::Lir if object.lir.funcs.is_empty() => say("; no function of LIR is called\n"),
        Stage::Lir => say(&object.lir),
        Stage::Bpf => say(dump::listing(&object.spec).map_err(fail)?),
    }
}

/// The session's name: that of `-m`, or a unique one.
fn session_name(cli: &Cli) -> String {
    let own = || format!("spile_{}", std::process::id());
    cli.module.clone().unwrap_or_else(own)
}

fn execute(
    cli: &Cli,
    program: Program,
    compiled: Option<CompiledObject>,
    read_files: Vec<(PathBuf, spile_runtime::FileState)>,
    change: impl FnOnce(&mut session::Options),
) -> Result<session::Outcome, Failure> {
    let timeout = match cli.timeout {
        None => None,
        Some(secs) => Some(
            Duration::try_from_secs_f64(secs).map_err(|e| fail(format_args!("-T {secs}: {e}")))?,
        ),
    };
    let verbose = cli.tells(5);
    let (object, machine) = compiled.unzip();
    let machine = machine.map(Rc::new);
    let otherwise = |change: fn(&mut spile_bpf::target::Options)| {
        let machine = machine.clone()?;
        let again = move |program: &Program| {
            let mut machine = (*machine).clone();
            change(&mut machine);
            spile_bpf::compile(program, &machine).ok()
        };
        Some(Box::new(again) as session::CompileFn)
    };
    let mut options = session::Options {
        target: target(cli)?,
        output: match &cli.output {
            Some(file) => output::OutputTarget::File(file.clone()),
            None => output::OutputTarget::Stdout,
        },
        looked_at: read_files,
        timeout,
        rest: cli.rest_between,
        name: session_name(cli),
        objects: objects(cli)?,
        prometheus: cli.prometheus.clone(),
        timing: cli.timing,
        quiet: cli.no_warnings,
        suppress_errors: cli.suppress_handler_errors,
        display_globals: !cli.no_global_var_display,
        armed: verbose.then(|| -> session::OnArmed {
            Box::new(|late| {
                tell_lines(late);
                tell("Pass 5: starting run.\n");
            })
        }),
        with_lines: otherwise(|machine| machine.lines = true),
        fallback: otherwise(|machine| {
            machine.functions.clear();
            machine.features.kprobe_session = None;
        }),
        ..session::Options::default()
    };
    change(&mut options);
    let mut session = session::Session::new(program, object.as_ref(), options).map_err(fail)?;
    if verbose {
        tell_lines(session.attach_kinds());
    }
    if let (true, Some(path)) = (verbose, session.files_path()) {
        tell(format_args!("Files are in {path}\n"));
    }
    if let (Some(asked), Some(addr)) = (&cli.prometheus, session.prometheus_addr())
        && (verbose || asked.ends_with(":0"))
    {
        tell(format_args!("Metrics are at http://{addr}/metrics\n"));
    }
    let outcome = session.run().map_err(fail)?;
    session.leak();
    std::mem::forget((object, machine));
    Ok(outcome)
}
