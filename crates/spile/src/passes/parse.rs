//! Pass 1: the script's files as trees, with the library and the facts about the machine.

use std::path::{Path, PathBuf};

use spile_ir::HostKind;
use spile_kernel::machine as host;
use spile_sema::library::Library;
use spile_syntax::ast::{File, FileId, Item, ProbePoint};
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::{Definitions, parse_part, parse_pattern, parse_script};
use spile_syntax::preproc::{KernelConfig, MacroLibrary, PreprocEnv, RUNTIME};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

use super::script::{ScriptInput, target};
use crate::cli::Cli;
use crate::facts::KernelFacts;
use crate::facts::kernel_debug::TargetKernel;
use crate::facts::user::Root;
use crate::report::{Failure, fail, print_stderr_raw};
use crate::tapset;

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
    pub pretty: String,
    /// The points that a listing (`-l`, `-L`) asks for.
    pub pattern: Vec<ProbePoint>,
    /// The run is for a kernel other than the running one.
    pub other: bool,
}

impl Frontend {
    /// Prints the diagnostics so far; an error among them ends the run.
    pub(crate) fn report(&mut self, cli: &Cli, color: bool) -> Result<(), Failure> {
        if cli.no_warnings {
            self.diags.drop_warnings();
        }
        let diags = std::mem::take(&mut self.diags);
        if !diags.is_empty() {
            print_stderr_raw(&diags.render(&self.sources, color));
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

/// The environment of the preprocessor on this machine.
pub(crate) fn preproc_env(release: &str) -> PreprocEnv {
    PreprocEnv::new(release, std::env::consts::ARCH).with_config(HostConfig)
}

/// The environment of the preprocessor for a script with these arguments.
fn script_env(cli: &Cli, release: &str, args: Vec<String>) -> Result<PreprocEnv, Failure> {
    let mut env = preproc_env(release).with_args(args);
    env.guru = cli.guru;
    env.runtime = match cli.runtime.host() {
        HostKind::Kernel => RUNTIME.into(),
        HostKind::Process => "process".into(),
    };
    env.check_version = cli.check_version;
    if let Some(version) = &cli.compatible {
        if !env.has_version(version) {
            let latest = &env.systemtap_version;
            return Err(fail(format_args!(
                "--compatible={version}: the language is that of version {latest}, and of none after it"
            )));
        }
        env.systemtap_version = version.clone();
    }
    Ok(env)
}

/// A script in parts that are parsed as they come.
pub(crate) struct Parts {
    /// The parts, and the files of the library.
    pub sources: Sources,
    env: PreprocEnv,
    macros: MacroLibrary,
    before: Definitions,
}

impl Parts {
    /// A script without parts.
    pub(crate) fn new(cli: &Cli) -> Result<Self, Failure> {
        let env = script_env(cli, &kernel(cli)?.release, cli.rest.clone())?;
        let mut sources = Sources::new();
        // A run shows what is wrong with the library.
        let mut unheard = Diagnostics::new();
        let (include, defines) = (&cli.include, &cli.defines);
        let tapset = tapset::open(&mut sources, &env, include, defines, &mut unheard)?;
        Ok(Self {
            sources,
            env,
            macros: tapset.macros,
            before: Definitions::default(),
        })
    }

    /// Parses the next part, which counts if it has no errors; its file, and what is wrong.
    pub(crate) fn parse(&mut self, name: &str, text: &str) -> (FileId, Diagnostics) {
        let mut diags = Diagnostics::new();
        let file = self.sources.add(name, text.as_bytes().to_vec());
        let (env, before) = (&self.env, &mut self.before);
        parse_part(
            &mut self.sources,
            file,
            env,
            &self.macros,
            before,
            &mut diags,
        );
        (file, diags)
    }

    /// Forgets all parts.
    pub(crate) fn clear(&mut self) {
        self.before = Definitions::default();
    }
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
        false => {
            let root = cli.sysroot.as_deref().unwrap_or(Path::new("/"));
            root.join("lib/modules").join(named).join("build")
        }
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

/// The root directory of programs, if it is not this process's.
fn root(cli: &Cli) -> Result<Option<Root>, Failure> {
    let Some(named) = &cli.sysroot else {
        return Ok(cli.target_namespaces.map(Root::of_process));
    };
    let wrong =
        |why: &dyn std::fmt::Display| fail(format_args!("--sysroot={}: {why}", named.display()));
    let folder = named.canonicalize().map_err(|e| wrong(&e))?;
    match folder.is_dir() {
        true => Ok(Some(Root::system(folder))),
        false => Err(wrong(&"not a directory")),
    }
}

/// Parses the script, and makes the tapset ready.
pub(crate) fn parse(cli: &Cli, script: Option<ScriptInput>) -> Result<Frontend, Failure> {
    let kernel = kernel(cli)?;
    let (release, other) = (kernel.release.clone(), kernel.other);
    let script = script.unwrap_or_default();
    let env = script_env(cli, &release, script.args.clone())?;
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let mut library = Library::new();
    // The script's files come first, so that its messages do.
    let add = |(name, text): &(String, Vec<u8>)| sources.add(name.clone(), text.clone());
    let user: Vec<_> = script.texts.iter().map(add).collect();
    let lib = tapset::open(&mut sources, &env, &cli.include, &cli.defines, &mut diags)?;
    let mut pretty = String::new();
    for file in user {
        let tree = parse_script(&mut sources, file, &env, &lib.macros, &mut diags);
        if cli.pass == Some(1) {
            pretty.push_str(&pretty::file(&tree));
        }
        library.add(file, tree, true);
    }
    let mut listed = Vec::new();
    if let Some(text) = cli.list_vars.as_ref().or(cli.list.as_ref()) {
        let file = sources.add("<pattern>", text.as_bytes().to_vec());
        let tree = parse_pattern(&mut sources, file, &env, &lib.macros, &mut diags);
        listed = probe_points(&tree);
        library.add(file, tree, true);
    }
    lib.add_to(&mut library, &mut sources, env, &mut diags);
    Ok(Frontend {
        sources,
        diags,
        library,
        facts: KernelFacts::new(&release)
            .with_target(target(cli)?, root(cli)?, cli.unsafe_returns)
            .with_host(cli.runtime.host())
            .with_kernel(kernel)
            .map_err(fail)?,
        pretty,
        pattern: listed,
        other,
    })
}

/// The points of a file's probes.
fn probe_points(file: &File) -> Vec<ProbePoint> {
    let points = file.items.iter().filter_map(|item| match item {
        Item::Probe(probe) => Some(&probe.points),
        _ => None,
    });
    points.flatten().cloned().collect()
}
