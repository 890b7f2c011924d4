//! `spile`: SystemTap scripts as eBPF. The command line; everything else is in the crates.

mod cli;
mod facts;
mod list;
mod machine;
mod passes;
mod report;
mod tapset;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use cli::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to the standard output and is a success.
            let wrong = e.use_stderr();
            if e.kind() == ErrorKind::UnknownArgument
                && let Some(ContextValue::String(option)) = e.get(ContextKind::InvalidArg)
                && let Some(text) = cli::absent(option)
            {
                report::fail(text).print(false);
                return ExitCode::FAILURE;
            }
            // A closed standard output or error leaves nothing to say.
            let _ = e.print();
            return ExitCode::from(u8::from(wrong));
        }
    };
    if cli.version {
        let said = report::say(format_args!(
            "spile {}, SystemTap language {}, {}\n",
            env!("CARGO_PKG_VERSION"),
            spile_syntax::preproc::SYSTEMTAP_VERSION,
            "MIT OR Apache-2.0, no warranty"
        ));
        return ExitCode::from(u8::from(said.is_err()));
    }
    let color = match cli.color.as_str() {
        "always" => true,
        "never" => false,
        _ => std::io::stderr().is_terminal(),
    };
    match passes::run(&cli, color) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(color);
            ExitCode::FAILURE
        }
    }
}
