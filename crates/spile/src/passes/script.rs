//! The script of a run and its options: files, standard input, arguments, `NAME=VALUE` pairs, the
//! target and the session's name.

use std::io::Read;

use spile_runtime::TargetProcess;

use crate::cli::Cli;
use crate::report::{Failure, fail};

/// Maximum length of a script in bytes. (The longest of SystemTap's examples has 20 KB.)
const MAX_SCRIPT: u64 = 4 << 20;

/// The script's texts and arguments.
#[derive(Clone, Default)]
pub(crate) struct ScriptInput {
    /// Names for messages, each with its text.
    pub texts: Vec<(String, Vec<u8>)>,
    /// `$1`, `@1`, ...
    pub args: Vec<String>,
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

pub(super) fn script(cli: &Cli) -> Result<ScriptInput, Failure> {
    let mut args = cli.rest.clone();
    let mut texts = Vec::new();
    if let Some(path) = &cli.script_file {
        if cli.script.is_some() {
            return Err(fail(
                "run: the script is written at the prompt, so -e does not go with it",
            ));
        }
        let failed = |e| fail(format_args!("{}: {e}", path.display()));
        let file = std::fs::File::open(path).map_err(failed)?;
        texts.push(("<input>".to_owned(), read_limited(file, "<input>")?));
    } else if let Some(text) = &cli.script {
        texts.push(("<input>".to_owned(), text.clone().into_bytes()));
    } else if cli.extra.is_empty() || !args.is_empty() {
        if args.is_empty() {
            return Err(fail(
                "no script: give a file, or -e SCRIPT (spile -h for help)",
            ));
        }
        let mut name = args.remove(0);
        if cli.example {
            name = crate::examples::example(&name)?.display().to_string();
        }
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

/// The last value that `-D` gives for NAME.
pub(crate) fn define(defines: &[String], name: &str) -> Option<u32> {
    let values = defines.iter().rev().filter_map(|d| d.split_once('='));
    values.into_iter().find(|(n, _)| *n == name)?.1.parse().ok()
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

/// The meaning of `process` without a name.
pub(super) fn target(cli: &Cli) -> Result<TargetProcess, Failure> {
    Ok(match (&cli.command, cli.pid) {
        (Some(command), _) => TargetProcess::Command(command.clone()),
        (None, Some(pid)) if i32::try_from(pid).is_err() => {
            return Err(fail(format_args!("-x {pid}: no such process")));
        }
        (None, Some(pid)) => TargetProcess::Pid(pid),
        (None, None) => TargetProcess::None,
    })
}

/// The session's name: that of `-m`, or a unique one.
pub(super) fn session_name(cli: &Cli) -> String {
    let unique = || format!("spile_{}", std::process::id());
    cli.module.clone().unwrap_or_else(unique)
}
