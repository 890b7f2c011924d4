//! `spile report` and `spile diff`: files of profiles, and what is made of them.

use std::path::{Path, PathBuf};

use spile_profile::{Run, file, report as text};

use crate::cli;
use crate::report::{Failure, fail, say, tell};

/// Reads the files of a run; says of those that are not used why.
fn read(paths: &[PathBuf], run: Option<&str>) -> Result<Run, Failure> {
    let found = file::find(paths, run);
    for line in &found.said {
        tell(format_args!("WARNING: {line}\n"));
    }
    if found.profiles.is_empty() {
        return Err(fail("there is no profile to report"));
    }
    let profiles = found.profiles.into_iter();
    Ok(Run::new(profiles.map(|(_, profile)| profile).collect()))
}

/// Columns of the terminal that the standard output is, 80 where it is none.
fn width() -> usize {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map_or(80, |(width, _)| usize::from(width.0))
        .clamp(40, 400)
}

/// `spile report`.
pub fn report(cli: &cli::Report) -> Result<u8, Failure> {
    let run = read(&cli.paths, cli.run.as_deref())?;
    if cli.threads {
        say(text::threads(&run))?;
    } else {
        say(text::text(&run, width(), cli.top))?;
    }
    Ok(0)
}

/// `spile diff`.
pub fn diff(cli: &cli::Diff) -> Result<u8, Failure> {
    let one = |path: &Path| read(&[path.to_owned()], None);
    let (a, b) = (one(&cli.a)?, one(&cli.b)?);
    say(text::diff(&a, &b, width(), cli.top))?;
    Ok(0)
}
