//! Types of C headers (`@cast(p, "tm", "<time.h>")`): the machine's C compiler makes a file whose debugging
//! information has them. Files are in the user's cache, named by the preprocessed header.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use spile_debuginfo::trust;
use spile_sema::facts::{FoundModule, ProbeModule};
use tempfile::NamedTempFile;

/// The C compiler. Its name is POSIX's, and compilers of all makers have the options.
const COMPILER: &str = "cc";

/// Options for a file that has all types of its source.
const LINKED: [&str; 5] = [
    "-g",
    "-fno-eliminate-unused-debug-types",
    "-shared",
    "-fPIC",
    "-nostdlib",
];

/// The file with the types of headers, which are included in this order.
///
/// # Errors
/// Why there is none: no compiler, no such header, no cache.
pub(crate) fn module(headers: &[Arc<str>]) -> Result<FoundModule, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let mut text = String::new();
    for header in headers {
        if header.is_empty() || !header.chars().all(legal) {
            return Err(format!("`<{header}>` is not the name of a header"));
        }
        text.push_str(&format!("#include <{header}>\n"));
    }
    let header = &*headers.join("><");
    let expanded = compile(header, &["-E"], None, &text)?;
    let folder = folder(header)?;
    let path = folder.join(format!("{:016x}.so", hash(&expanded.stdout)));
    if !path.exists() {
        let new = NamedTempFile::new_in(folder).map_err(|e| unusable(header, e))?;
        let new = new.into_temp_path();
        // Linked, as debugging information in an object file lacks its addresses and offsets.
        compile(header, &LINKED, Some(&new), &text)?;
        new.persist(&path).map_err(|e| unusable(header, e.error))?;
    }
    let module = ProbeModule::File(Arc::from(path.to_string_lossy()));
    Ok(FoundModule { module, pid: None })
}

/// Runs the compiler on a text; with `out`, it writes that file.
fn compile(
    header: &str,
    options: &[&str],
    out: Option<&Path>,
    text: &str,
) -> Result<Output, String> {
    let mut command = Command::new(COMPILER);
    command.args(options).args(["-x", "c", "-"]);
    // Its messages are read, whatever the user's language.
    command.env("LC_ALL", "C");
    if let Some(out) = out {
        command.arg("-o").arg(out);
    }
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = pipes.spawn().and_then(|mut child| {
        // Dropped after the write, so that the compiler sees its end.
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        child.wait_with_output()
    });
    let output = run.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!(
            "the types of `<{header}>` need a C compiler, and there is no `{COMPILER}`: install one, or name a \
             program with debugging information instead of the header"
        ),
        _ => format!("the types of `<{header}>` need a C compiler: `{COMPILER}`: {e}"),
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let first = messages.lines().find(|l| l.contains("error"));
    let first = first.unwrap_or("it failed");
    Err(format!(
        "`{COMPILER}` does not compile `<{header}>`: {first}"
    ))
}

/// The directory of the files, in the user's cache.
fn folder(header: &str) -> Result<PathBuf, String> {
    let cache = crate::lsp::cache_dir("headers").ok_or_else(|| {
        format!("the types of `<{header}>` go into the user's cache: set HOME or XDG_CACHE_HOME")
    })?;
    trust::own_folder(&cache).map_err(|e| unusable(header, e))
}

fn unusable(header: &str, e: std::io::Error) -> String {
    format!("the types of `<{header}>` cannot be kept in the user's cache: {e}")
}

/// A number for a content. Another version of Rust may give another number, and the header is compiled
/// once more.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_headers_cannot_hold_other_text() {
        for name in ["", "a\nb", "a> #error <b", "a b"] {
            let why = module(&["time.h".into(), name.into()]).expect_err(name);
            assert!(why.ends_with("is not the name of a header"), "{why}");
        }
    }
}
