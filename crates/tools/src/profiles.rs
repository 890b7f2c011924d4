//! `spile report` and `spile diff`: reads profile files and writes reports.

use std::fs::Permissions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use spile_profile::answer::By;
use spile_profile::export::{ExportFormat, FORMATS};
use spile_profile::report::{View, WaitObject};
use spile_profile::{MergedRun, Run, file, html, json, report as text};

use clap::Parser;
use spile_plain::messages::{Failure, fail, print_stderr, print_stdout, write_stdout};

/// Reports where the time of a recorded command went.
#[derive(Debug, Parser)]
#[command(
    name = "spile report",
    bin_name = "spile report",
    after_help = "The files of one run, such as those of its ranks, become one report. In a folder, \
                  spile reads the files whose names end in .spile."
)]
pub struct Report {
    /// Print the system calls of each thread and their time in nanoseconds
    #[arg(long, conflicts_with_all = ["html", "export"])]
    pub threads: bool,
    /// Print the report as one line of JSON
    #[arg(long, conflicts_with_all = ["html", "export", "threads"])]
    pub json: bool,
    /// Write the report as one page for a browser
    #[arg(long, value_name = "FILE", conflicts_with = "export")]
    pub html: Option<PathBuf>,
    /// Write the profile in a format of other tools (`help` lists them)
    #[arg(long, value_name = "FORMAT")]
    pub export: Option<String>,
    /// Write the export to PATH; an export of one file goes to standard output by default
    #[arg(short = 'o', value_name = "PATH", requires = "export")]
    pub output: Option<PathBuf>,
    /// Print at most N rows of each table
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
    /// What the summary shows.
    #[command(flatten)]
    pub view: ViewOptions,
    /// Report the run whose number begins with RUN, if there are several
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Recorded files and folders
    #[arg(value_name = "FILE|DIR", required_unless_present = "export")]
    pub paths: Vec<PathBuf>,
}

/// Says what changed between two recorded runs, or two sets of runs, by more than the noise.
#[derive(Debug, Parser)]
#[command(
    name = "spile diff",
    bin_name = "spile diff",
    after_help = "A folder with recordings of several runs is a set of runs, whose spread is the noise. \
                  `spile profile -r 10 -o DIR -- CMD` records one."
)]
pub struct Diff {
    /// Print the differences as one line of JSON
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write the differences as a flame graph for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print at most N rows of each table
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
    /// The first run or set of runs, a file or a folder
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second one
    #[arg(value_name = "B")]
    pub b: PathBuf,
}

/// What a summary shows.
#[derive(Debug, Default, clap::Args)]
pub struct ViewOptions {
    /// Add up the time of places by function, line, module, thread, region or rank
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = by())]
    by: By,
    /// Show which locks threads waited for, even if that took little of the time
    #[arg(long)]
    locks: bool,
    /// Show which files threads waited for, even if that took little of the time
    #[arg(long)]
    files: bool,
    /// Show which peers threads waited for, even if that took little of the time
    #[arg(long)]
    net: bool,
}

/// The parser of `--by`.
fn by() -> impl TypedValueParser<Value = By> {
    let names = PossibleValuesParser::new(By::ALL.map(|(_, name)| name));
    names.map(|name| {
        let named = By::ALL.into_iter().find(|(_, n)| *n == name);
        named.map_or(By::default(), |(by, _)| by)
    })
}

impl ViewOptions {
    /// The view of that size.
    pub(crate) fn view(&self, width: usize, top: usize) -> View {
        let kinds = [
            (WaitObject::Lock, self.locks),
            (WaitObject::File, self.files),
            (WaitObject::Socket, self.net),
        ];
        let asked = kinds.into_iter().filter(|(_, asked)| *asked);
        View {
            by: self.by,
            objects: asked.map(|(kind, _)| kind).collect(),
            ..View::new(width, top)
        }
    }
}

/// Reads the files of a run, with or without their traces; prints why files are not used.
fn read(paths: &[PathBuf], run: Option<&str>, trace: bool) -> Result<Run, Failure> {
    let recorded = match trace {
        true => file::find(paths, run),
        false => file::find_accounts(paths, run),
    };
    warn(&recorded.said);
    if recorded.profiles.is_empty() {
        return Err(fail(NO_PROFILE));
    }
    let profiles = recorded.profiles.into_iter();
    Ok(Run::new(profiles.map(|(_, profile)| profile).collect()))
}

/// Reads the files of a run and merges them for a report; prints why files are not used.
fn merge(cli: &Report, view: Option<&View>) -> Result<MergedRun, Failure> {
    let (merged, said) = file::merge(&cli.paths, cli.run.as_deref(), view);
    warn(&said);
    merged.ok_or_else(|| fail(NO_PROFILE))
}

const NO_PROFILE: &str = "there is no profile to report";

fn warn(said: &[String]) {
    for line in said {
        print_stderr(format_args!("WARNING: {line}\n"));
    }
}

/// Columns of the terminal behind an output; 80 if it is not a terminal.
pub fn width(output: impl std::os::fd::AsFd) -> usize {
    let size = terminal_size::terminal_size_of(output);
    size.map_or(80, |(width, _)| usize::from(width.0))
        .clamp(40, 400)
}

/// `spile report`.
pub fn report(cli: &Report) -> Result<u8, Failure> {
    // Checked before files are read, which may take long.
    let format = match cli.export.as_deref() {
        Some("help") => {
            print_stdout(formats())?;
            return Ok(0);
        }
        Some(name) => Some(ExportFormat::named(name).ok_or_else(|| {
            fail(format_args!(
                "there is no format `{name}`; the formats are:\n{}",
                formats().trim_end()
            ))
        })?),
        None => None,
    };
    let read = |trace| read(&cli.paths, cli.run.as_deref(), trace);
    if let Some(format) = format {
        export(&read(true)?, format, cli.output.as_deref())?;
    } else if let Some(path) = &cli.html {
        put(path, html::html(&read(true)?).as_bytes())?;
    } else if cli.json {
        print_stdout(json::json_of(&merge(cli, None)?))?;
    } else if cli.threads {
        print_stdout(text::threads(&read(false)?))?;
    } else {
        let view = cli.view.view(width(std::io::stdout()), cli.top);
        print_stdout(text::text_of(&merge(cli, Some(&view))?, &view))?;
    }
    Ok(0)
}

/// The formats, one on each line.
fn formats() -> String {
    let line = |f: &ExportFormat| format!("  {:<16} {}\n", f.name, f.what);
    FORMATS.iter().map(line).collect()
}

/// Writes an export to its destination.
fn export(run: &Run, format: &ExportFormat, to: Option<&Path>) -> Result<(), Failure> {
    let files = format.export(run).map_err(fail)?;
    match (to, &files[..]) {
        (Some(folder), _) if format.folder => {
            for (name, bytes) in &files {
                let path = folder.join(name);
                let parent = path.parent().unwrap_or(folder);
                std::fs::create_dir_all(parent)
                    .map_err(|e| fail(format_args!("cannot make {}: {e}", parent.display())))?;
                put(&path, bytes)?;
            }
            Ok(())
        }
        (None, _) if format.folder => Err(fail(format_args!(
            "{} is a folder: name it with -o",
            format.name
        ))),
        (Some(path), [(_, bytes)]) => put(path, bytes),
        (_, [(name, bytes)]) => {
            if std::str::from_utf8(bytes).is_err() && std::io::stdout().is_terminal() {
                return Err(fail(format_args!(
                    "{} is not for terminals: give a file with -o, as -o {name}",
                    format.name
                )));
            }
            write_stdout(bytes)
        }
        _ => Ok(()),
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_whole(path, bytes).map_err(|e| fail(format_args!("cannot write {}: {e}", path.display())))
}

/// Writes a file as a whole, or leaves what was there. Pipes, devices and links stay what they are.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = path.symlink_metadata().ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return std::fs::write(path, bytes);
    }
    let permissions = old.map_or_else(|| Permissions::from_mode(0o666), |old| old.permissions());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let new = tempfile::Builder::new()
        .permissions(permissions)
        .tempfile_in(folder.unwrap_or(Path::new(".")));
    // The folder can be another's.
    let Ok(mut new) = new else {
        return std::fs::write(path, bytes);
    };
    new.write_all(bytes)?;
    new.persist(path)?;
    Ok(())
}

/// `spile diff`.
pub fn diff(cli: &Diff) -> Result<u8, Failure> {
    let runs = |path: &Path| {
        let (runs, said) = file::find_runs(&[path.to_owned()]);
        warn(&said);
        match runs.is_empty() {
            true => Err(fail(NO_PROFILE)),
            false => Ok(runs),
        }
    };
    let (a, b) = (runs(&cli.a)?, runs(&cli.b)?);
    if let Some(path) = &cli.html {
        put(path, html::html_diff(&a, &b).as_bytes())?;
    } else if cli.json {
        print_stdout(json::json_diff(&a, &b))?;
    } else {
        print_stdout(text::diff(&a, &b, width(std::io::stdout()), cli.top))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_whole_and_keep_their_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        write_whole(&path, b"one").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(mode(), 0o640);

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert!(link.symlink_metadata().unwrap().is_symlink());

        assert!(write_whole(Path::new("/dev/full"), b"four").is_err());
        assert!(write_whole(&folder.path().join("no/page"), b"five").is_err());
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2);
    }
}
