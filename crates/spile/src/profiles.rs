//! `spile report` and `spile diff`: reads profile files and writes reports.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use spile_profile::export::{FORMATS, Format};
use spile_profile::{Run, file, html, json, report as text};

use crate::cli;
use crate::report::{Failure, fail, say, tell};

/// Reads the files of a run; prints why files are not used.
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

/// Columns of the terminal behind an output; 80 if it is not a terminal.
pub fn width(output: impl std::os::fd::AsFd) -> usize {
    let size = terminal_size::terminal_size_of(output);
    size.map_or(80, |(width, _)| usize::from(width.0))
        .clamp(40, 400)
}

/// `spile report`.
pub fn report(cli: &cli::Report) -> Result<u8, Failure> {
    // Checked before files are read, which may take long.
    let format = match cli.export.as_deref() {
        Some("help") => {
            say(formats())?;
            return Ok(0);
        }
        Some(name) => Some(Format::named(name).ok_or_else(|| {
            fail(format_args!(
                "there is no format `{name}`; the formats are:\n{}",
                formats().trim_end()
            ))
        })?),
        None => None,
    };
    let run = read(&cli.paths, cli.run.as_deref())?;
    if let Some(format) = format {
        export(&run, format, cli.output.as_deref())?;
    } else if let Some(path) = &cli.html {
        put(path, html::html(&run).as_bytes())?;
    } else if cli.json {
        say(json::json(&run))?;
    } else if cli.threads {
        say(text::threads(&run))?;
    } else {
        say(text::text(&run, width(std::io::stdout()), cli.top))?;
    }
    Ok(0)
}

/// The formats, one on each line.
fn formats() -> String {
    let line = |f: &Format| format!("  {:<16} {}\n", f.name, f.what);
    FORMATS.iter().map(line).collect()
}

/// Writes an export to its destination.
fn export(run: &Run, format: &Format, to: Option<&Path>) -> Result<(), Failure> {
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
            let mut out = std::io::stdout().lock();
            if std::str::from_utf8(bytes).is_err() && out.is_terminal() {
                return Err(fail(format_args!(
                    "{} is not for terminals: give a file with -o, as -o {name}",
                    format.name
                )));
            }
            match out.write_all(bytes).and_then(|()| out.flush()) {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    Err(fail(format_args!("cannot write to standard output: {e}")))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|e| fail(format_args!("cannot write {}: {e}", path.display())))
}

/// `spile diff`.
pub fn diff(cli: &cli::Diff) -> Result<u8, Failure> {
    let one = |path: &Path| read(&[path.to_owned()], None);
    let (a, b) = (one(&cli.a)?, one(&cli.b)?);
    if cli.json {
        say(json::json_diff(&a, &b))?;
        return Ok(0);
    }
    say(text::diff(&a, &b, width(std::io::stdout()), cli.top))?;
    Ok(0)
}
