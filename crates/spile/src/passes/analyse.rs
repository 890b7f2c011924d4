//! Pass 2: from trees to a program, with the tables and ids of this machine.

use std::path::Path;

use spile_abi::names;
use spile_ir::{Bytes, HostKind, Program};
use spile_kernel::btf::{Btf, VMLINUX};
use spile_kernel::nfs;
use spile_kernel::process::IdRange;
use spile_sema::analyse::{self, Analysis, Inputs};
use spile_sema::codes;
use spile_sema::ids::{IdMap, UserIds};
use spile_syntax::diag::Diagnostic;

use super::parse::Frontend;
use super::script::{pairs, session_name};
use crate::cli::Cli;
use crate::report::{Failure, fail, print_stderr};

/// Errors that are expected where the kernel's types cannot be read.
const WANT_TYPES: [&str; 4] = [
    codes::NO_TRACEPOINT,
    codes::NO_TYPE,
    codes::NO_CONSTANT,
    codes::NO_VARIABLE,
];

/// From the parsed files to a program; none where there are errors, which are in the diagnostics.
pub(super) fn analyse(cli: &Cli, front: &mut Frontend) -> Result<Option<Analysis>, Failure> {
    let mut defines = pairs(&cli.defines, 'D')?;
    if cli.suppress_handler_errors {
        for limit in ["MAXERRORS", "MAXSKIPPED"] {
            defines.push((limit.into(), u64::MAX.to_string()));
        }
    }
    let globals = pairs(&cli.globals, 'G')?;
    let options = analyse::AnalysisOptions {
        defines,
        globals,
        display: !cli.no_global_var_display,
        session_name: session_name(cli),
        keep_unused: cli.unoptimised,
        session_pid: spile_runtime::machine::pid_namespace::own_pid().into(),
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
        check_version: cli.check_version,
        counts_hits: cli.timing,
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

/// If analysis found errors and the running kernel's types cannot be read, says so instead of the
/// errors that follow from it: without types, tracepoints and structures are never found, and that
/// is no mistake of the script.
pub(super) fn check_types(cli: &Cli, front: &mut Frontend, color: bool) -> Result<(), Failure> {
    if front.diags.has_errors()
        && !front.other
        && cli.runtime.host() == HostKind::Kernel
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

/// The running kernel's BTF.
pub(crate) fn kernel_types() -> Result<&'static Btf, Failure> {
    Btf::vmlinux().map_err(|e| {
        let exists = |path: &str| Path::new(path).exists();
        let way_out = match (exists(VMLINUX), exists("/sys/kernel")) {
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

/// The constant tables of tapset functions, except those of system calls: texts by number.
pub(crate) fn table(name: &str) -> Option<Vec<Bytes>> {
    Some(match name {
        "errno" => indexed(names::all_errors()),
        "cpu" => {
            let cpus = spile_kernel::machine::online_cpus();
            indexed(cpus.into_iter().map(|cpu| (cpu, "online")))
        }
        "signal" => indexed((1..=64).filter_map(|n| Some((n, names::signal_name(n)?)))),
        "hz" => vec![spile_kernel::machine::hz().to_string().as_bytes().into()],
        "nfs" => indexed(nfs::FIRST.iter().copied()),
        // From 10000 on, as the numbers of a table lie close together.
        "nfs from 10000" => indexed((1..).zip(nfs::SECOND)),
        // Choices, such as socket types, and of sets the bits that stand for a choice.
        name => {
            let flags = spile_syscalls::flag_table(name)?.flags.iter();
            indexed(flags.filter_map(|flag| {
                let number = u32::try_from(flag.value).ok().filter(|n| *n < 1024)?;
                Some((number, flag.name))
            }))
        }
    })
}

/// A table of texts by number.
fn indexed<T: AsRef<str>>(texts: impl IntoIterator<Item = (u32, T)>) -> Vec<Bytes> {
    let mut table: Vec<Bytes> = Vec::new();
    for (number, text) in texts {
        let number = number as usize;
        if table.len() <= number {
            table.resize(number + 1, Bytes::from(&b""[..]));
        }
        // The first of several synonyms is the name.
        if table[number].is_empty() {
            table[number] = text.as_ref().as_bytes().into();
        }
    }
    table
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

/// Names the parts of a script that have no effect or were left out.
pub(super) fn report_unused_parts(cli: &Cli, analysis: &Analysis, front: &Frontend) {
    let verbose = cli.is_verbose(2);
    if verbose && front.facts.left_out() > 0 {
        print_stderr(format_args!(
            "{} functions that match are left out: the kernel forbids probing them, or \
             ftrace does not trace them\n",
            front.facts.left_out()
        ));
    }
    if !cli.no_warnings {
        for (why, locations) in front.facts.location_notes() {
            report_left_out(why, &locations, verbose);
        }
    }
    let limited = |h: &spile_ir::Handler| h.event.is_compiled() && h.point.contains(".maxactive(");
    if verbose && analysis.program.handlers.iter().any(limited) {
        print_stderr(
            ".maxactive(N) has no effect: the kernel decides how many calls can wait for their return at \
             a time; the account counts the returns that it missed\n",
        );
    }
    if verbose {
        print_stderr(&analysis.removed);
    }
}

/// Warns of locations that match and are left out, with the first of them, or all.
fn report_left_out(why: &str, left_out: &[String], verbose: bool) {
    let count = left_out.len();
    match left_out {
        [] => {}
        [one] => print_stderr(format_args!("WARNING: 1 {why}: {one}\n")),
        [first, ..] if !verbose => print_stderr(format_args!(
            "WARNING: {count} {why}: {first}, ... (-v shows all)\n"
        )),
        _ => {
            print_stderr(format_args!("WARNING: {count} {why}:\n"));
            for one in left_out {
                print_stderr(format_args!("  {one}\n"));
            }
        }
    }
}

/// The size of an analysed script, for `-v`.
pub(super) fn counts(program: &Program, front: &Frontend) -> String {
    format!(
        "analyzed script: {} probe(s), {} function(s), {} global(s), {} library script(s)",
        program.handlers.len(),
        program.funcs.len(),
        program.globals.len(),
        front.library.files_read()
    )
}
