//! Listings: `-l`, `-L`, `--dump-functions`, `--dump-probe-aliases`, `--dump-probe-types`.

use spile_kernel::{functions, process};
use spile_sema::probe::list;

use crate::cli::Cli;
use crate::passes::parse::Frontend;
use crate::report::{Failure, fail, print_stdout};

/// Whether the command line asks for a listing.
pub(crate) fn is_requested(cli: &Cli) -> bool {
    cli.list.is_some()
        || cli.list_vars.is_some()
        || cli.dump_functions
        || cli.dump_probe_aliases
        || cli.dump_probe_types
}

/// Begins to read the kernel's functions if the listing is of all families (`*.*`), some of whose
/// aliases are over functions that only the kernel's symbols have or lack.
pub(crate) fn begin_early(cli: &Cli) {
    let pattern = cli.list_vars.as_ref().or(cli.list.as_ref());
    let families = pattern.and_then(|p| p.split('.').next());
    // With -r, functions of another kernel are needed.
    if cli.release.is_none() && families.is_some_and(spile_glob::is_pattern) {
        process::spawn_masked(functions::preread);
    }
}

/// Prints the listing; fails when nothing matches.
pub(crate) fn run(cli: &Cli, front: &mut Frontend, color: bool) -> Result<u8, Failure> {
    front.report(cli, color)?;
    let lines = if cli.dump_functions {
        list::functions(&front.library)
    } else if cli.dump_probe_aliases {
        list::probe_aliases(&front.library)
    } else if cli.dump_probe_types {
        list::typed_probe_types()
    } else {
        points(cli, front, color)?
    };
    let lines = lines.iter().map(|l| format!("{}\n", spile_plain::name(l)));
    print_stdout(lines.collect::<String>())?;
    Ok(0)
}

fn points(cli: &Cli, front: &mut Frontend, color: bool) -> Result<Vec<String>, Failure> {
    let long = cli.list_vars.is_some();
    let Some(pattern) = cli.list_vars.as_ref().or(cli.list.as_ref()) else {
        return Ok(Vec::new());
    };
    let Frontend {
        diags,
        library,
        facts,
        pattern: points,
        ..
    } = front;
    let listed = list::list(library, facts, points, long, diags);
    front.report(cli, color)?;
    if listed.is_empty() {
        return Err(fail(format_args!("no probe point matches {pattern}")));
    }
    // Like stap, pointers are written without a blank.
    let line = |l: list::ListedPoint| match long {
        true => l.long_line().replace(" *", "*"),
        false => l.point,
    };
    Ok(listed.into_iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_points_are_listed_with_argument_types() {
        let types = list::typed_probe_types();
        for line in [
            "begin",
            "begin(number)",
            "kernel.trace(string)",
            "timer.profile",
            "process.plt.return",
            "process(number).function(string).call",
        ] {
            assert!(types.iter().any(|t| t == line), "{line}: {types:?}");
        }
        assert!(!types.concat().contains(['[', '|']));
    }
}
