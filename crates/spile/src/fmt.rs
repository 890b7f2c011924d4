//! `spile fmt`: formats files in place, or standard input to standard output.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use spile_kernel::machine as host;
use spile_syntax::diag::Diagnostics;
use spile_syntax::fmt::format_script;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::source::Sources;

use crate::cli::Fmt;
use crate::passes::parse::preproc_env;
use crate::passes::script::read_limited;
use crate::report::{Failure, fail, print_stderr, print_stdout};
use crate::tapset;

/// The name of standard input in messages.
const STDIN: &str = "<standard input>";

/// The formatter's input besides the text.
struct Formatter {
    sources: Sources,
    env: PreprocEnv,
    macros: MacroLibrary,
    color: bool,
}

/// Runs the command; the result is the exit status.
pub(crate) fn run(cli: &Fmt, color: bool) -> Result<u8, Failure> {
    let env = preproc_env(&host::release());
    let mut sources = Sources::new();
    let mut diags = Diagnostics::new();
    let lib = tapset::open(&mut sources, &env, &cli.include, &[], &mut diags)?;
    let mut f = Formatter {
        sources,
        env,
        macros: lib.macros,
        color,
    };
    let stdin = ["-".to_owned()];
    let files = match &cli.files[..] {
        [] => &stdin[..],
        files => files,
    };
    let (mut failed, mut changes) = (false, false);
    for name in files {
        match f.file(name, cli.check) {
            Ok(changed) => changes |= changed,
            Err(e) => {
                // The other files are formatted all the same.
                e.print(color);
                failed = true;
            }
        }
    }
    Ok(u8::from(failed || cli.check && changes))
}

impl Formatter {
    /// Formats one file; returns whether it changed.
    fn file(&mut self, name: &str, check: bool) -> Result<bool, Failure> {
        if name == "-" {
            let text = read_limited(io::stdin(), STDIN)?;
            let out = self.format(STDIN, &text)?;
            if check {
                return self.named(STDIN, out != text);
            }
            let done = io::stdout().lock().write_all(&out);
            done.map_err(|e| fail(format_args!("cannot write to standard output: {e}")))?;
            return Ok(out != text);
        }
        let unreadable = |e: io::Error| fail(format_args!("{name}: {e}"));
        let file = File::open(name).map_err(unreadable)?;
        let text = read_limited(&file, name)?;
        let out = self.format(name, &text)?;
        if out == text {
            return Ok(false);
        }
        if !check {
            replace(Path::new(name), &file, &out).map_err(unreadable)?;
            return Ok(true);
        }
        self.named(name, true)
    }

    fn named(&self, name: &str, changed: bool) -> Result<bool, Failure> {
        if changed {
            print_stdout(format_args!("{name}\n"))?;
        }
        Ok(changed)
    }

    fn format(&mut self, name: &str, text: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut diags = Diagnostics::new();
        let file = self.sources.add(name, text.to_vec());
        let out = format_script(
            &mut self.sources,
            file,
            text,
            &self.env,
            &self.macros,
            &mut diags,
        );
        if !diags.is_empty() {
            print_stderr(diags.render(&self.sources, self.color));
        }
        out.ok_or(Failure::Reported)
    }
}

/// Replaces a file's text atomically; owner and mode stay.
fn replace(path: &Path, old: &File, text: &[u8]) -> io::Result<()> {
    // A symbolic link stays one.
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text)?;
    let meta = old.metadata()?;
    let made = new.as_file().metadata()?;
    if (meta.uid(), meta.gid()) != (made.uid(), made.gid()) {
        fchown(new.as_file(), Some(meta.uid()), Some(meta.gid()))?;
    }
    new.as_file().set_permissions(meta.permissions())?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    Ok(())
}
