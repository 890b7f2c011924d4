//! Shell completions: a script for bash, zsh or fish, generated from the definition of the command
//! line.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use spile_tools::profile::ProfileCommand;
use spile_tools::profiles::{Diff, Report};
use spile_tools::syscount::Syscount;

use crate::cli::{Attach, Cli, Fmt, Lsp, Stop};

/// The whole command line. The program itself checks the first argument for a subcommand (see
/// `main.rs`), because any other argument is a script.
fn command() -> Command {
    let subcommands = [
        ("fmt", Fmt::command()),
        ("lsp", Lsp::command()),
        ("attach", Attach::command()),
        ("stop", Stop::command()),
        ("report", Report::command()),
        ("diff", Diff::command()),
        ("profile", ProfileCommand::command()),
        ("syscount", Syscount::command()),
    ];
    let mut command = Cli::command().disable_help_subcommand(true);
    for (name, subcommand) in subcommands {
        command = command.subcommand(subcommand.name(name).bin_name(format!("spile {name}")));
    }
    command
}

/// The completion script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    let mut out = Vec::new();
    generate(shell, &mut command(), "spile", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_subcommands_and_options() {
        command().debug_assert();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in [
                "profile",
                "syscount",
                "suppress-handler-errors",
                "prometheus",
            ] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
    }
}
