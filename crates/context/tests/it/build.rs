//! Compiles test programs with the available compilers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Names that clang has in Debian.
pub(crate) const CLANGS: [&str; 3] = ["clang", "clang-14", "clang-19"];

/// The directory that all tests of a run share, with the library and the watcher.
static SHARED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("context.so"), spile_context::library()).expect("writable");
    let watcher = dir.path().join("watch");
    compile("gcc", &["-O1", "-Wall"], "context-watch.c", &watcher).expect("gcc");
    dir
});

/// A file in the shared directory: `context.so`, `watch`.
pub(crate) fn shared(name: &str) -> PathBuf {
    SHARED.path().join(name)
}

/// A file in `tests/programs`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(name)
}

/// Compiles a file of `tests/programs`; `None` if the compiler or a library is missing.
pub(crate) fn compile(compiler: &str, args: &[&str], name: &str, to: &Path) -> Option<()> {
    let dir = to.parent().expect("a folder");
    let mut command = Command::new(compiler);
    command.current_dir(dir).arg(source(name)).args(args);
    let done = command.arg("-o").arg(to).stdin(Stdio::null()).output();
    match done {
        Ok(out) if out.status.success() => Some(()),
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            // A missing library is no failure of ours; a compile error is.
            let missing = said.contains("cannot find") || said.contains("unable to find library");
            assert!(missing, "{compiler} {args:?} {name}: {said}");
            None
        }
        Err(_) => None,
    }
}

/// The line with the comment `LINE name` in a file of `tests/programs`.
pub(crate) fn line(file: &str, name: &str) -> u32 {
    let text = std::fs::read_to_string(source(file)).expect("a source");
    let mark = format!("LINE {name} ");
    let at = text.lines().position(|l| l.contains(&mark)).expect(name);
    u32::try_from(at).expect("short") + 1
}
