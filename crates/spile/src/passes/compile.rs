//! Passes 3 and 4: optimisation and storage classes, then eBPF for this machine, as an object or as text.

use std::rc::Rc;

use spile_abi::HOST;
use spile_bpf::compiled::Object;
use spile_bpf::object::dump;
use spile_bpf::object::elf::MapSpec;
use spile_bpf::target;
use spile_ir::{HostKind, Program, ProgramFacts};

use super::analyse::kernel_types;
use crate::cli::{Cli, Stage};
use crate::machine;
use crate::report::{Failure, fail, print_stderr, print_stdout};

/// Default size of the ring buffer.
const RING_BYTES: u32 = 4 << 20;

/// An object, and the machine that it was compiled for.
pub(super) type CompiledObject = (Object, target::Target);

/// Optimises and classifies storage; returns the reasons for each global's class.
pub(super) fn translate(cli: &Cli, program: &mut Program) -> Result<String, Failure> {
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

/// Whether code has the lines of its script. They cost time when the kernel loads them, so they are only in files and
/// after a rejection.
fn prints_lines(cli: &Cli) -> bool {
    cli.pass == Some(4) || cli.dump.is_some()
}

/// The compiler's target; `None` if the session's host runs no handler.
fn bpf_target(
    cli: &Cli,
    program: &Program,
    facts: &ProgramFacts,
) -> Result<Option<target::Target>, Failure> {
    let compiled = program.handlers.iter().any(|h| h.event.is_compiled());
    if cli.runtime.host() == HostKind::Process {
        let target = target::Target {
            timing: cli.timing,
            lines: prints_lines(cli),
            ..target::Target::process(HOST, spile_syscalls::of(HOST), ring_bytes(cli))
        };
        return Ok(compiled.then_some(target));
    }
    if !compiled && !program.follows_target() {
        return Ok(None);
    }
    // Another thread is often still reading the kernel's types, and would do this next.
    let _ = spile_kernel::machine::preempts();
    let btf = kernel_types()?;
    Ok(Some(target::Target {
        host: HostKind::Kernel,
        abi: HOST,
        cpus: machine::cpus(),
        ring_bytes: ring_bytes(cli),
        timing: cli.timing,
        lines: prints_lines(cli),
        offsets: machine::offsets(btf, facts),
        features: machine::bpf_features(btf, program, facts),
        syscalls: spile_syscalls::of(HOST),
        functions: machine::typed_functions(btf, program),
        share: None,
        resident: cli.resident,
    }))
}

/// Compiles the kernel handlers; `None` without any. `planned` is called with the maps of the object and
/// the bytes of its state memory before its code is generated.
pub(super) fn compile(
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

/// The smallest power of two that is at least the size in `-s`.
fn ring_bytes(cli: &Cli) -> u32 {
    match cli.buffer_mb {
        Some(mb) => (mb << 20).next_power_of_two(),
        None => RING_BYTES,
    }
}

/// Writes the object file; `name_it` prints its name, as `stap -p4` does.
pub(super) fn write_object(
    cli: &Cli,
    object: Option<&Object>,
    name_it: bool,
) -> Result<(), Failure> {
    let Some(object) = object else {
        if !cli.no_warnings {
            print_stderr("WARNING: no object is written: no handler runs in the kernel\n");
        }
        return Ok(());
    };
    let name = format!("{}.bpf.o", cli.module.as_deref().unwrap_or("spile"));
    let elf = object.spec.write().map_err(fail)?;
    std::fs::write(&name, elf).map_err(|e| fail(format_args!("{name}: {e}")))?;
    if name_it {
        print_stdout(format_args!("{name}\n"))
    } else {
        print_stderr(format_args!("Keeping the compiled object {name}\n"));
        Ok(())
    }
}

/// Prints the compiled object as text.
pub(super) fn dump(object: Option<&Object>, stage: Stage) -> Result<(), Failure> {
    let Some(object) = object else {
        return print_stdout("; no handler runs in the kernel\n");
    };
    match stage {
        Stage::Lir if object.lir.is_empty() => print_stdout("; no function of LIR is called\n"),
        Stage::Lir => print_stdout(object.lir.module()),
        Stage::Bpf => print_stdout(dump::listing(&object.spec).map_err(fail)?),
    }
}
