//! `--example NAME`: example scripts of spile and of SystemTap by their names.

use std::path::{Path, PathBuf};

use spile_syntax::diag::suggest;

use crate::report::{Failure, fail};

/// The folder of spile's example scripts, beside the folder of the program.
const OWN_EXAMPLES: &str = "share/spile/examples";

/// The folders of example scripts: of spile, and of SystemTap.
const EXAMPLES: [&str; 4] = [
    "/usr/share/spile/examples",
    "/usr/local/share/spile/examples",
    "/usr/share/systemtap/examples",
    "/usr/local/share/systemtap/examples",
];

/// The path of an example script by its name, in these folders and those below them.
///
/// # Errors
/// There is no example of that name, or there are several.
pub(crate) fn example(name: &str) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(fail("--example: give the name of an example"));
    }
    // Below another prefix than the usual ones.
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent);
    let installed = prefix.map(|p| p.join(OWN_EXAMPLES).to_string_lossy().into_owned());
    let mut folders: Vec<&str> = installed.as_deref().into_iter().chain(EXAMPLES).collect();
    folders.dedup();
    example_in(&folders, name)
}

/// The examples of a name below a folder, with or without `.stp`, in order.
fn examples_below(folder: &str, name: &str) -> Vec<PathBuf> {
    let with_suffix = format!("{name}.stp");
    files_below(folder, |path| {
        path.ends_with(name) || path.ends_with(&with_suffix)
    })
}

/// The name of an example that a mistyped one is similar to, as a question.
fn did_you_mean(folders: &[&str], name: &str) -> String {
    let is_script = |path: &Path| path.extension().is_some_and(|e| e == "stp");
    let scripts = folders.iter().flat_map(|f| files_below(f, is_script));
    let names = scripts.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect();
    let bare = name.strip_suffix(".stp").unwrap_or(name);
    match suggest(bare, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}? "),
        None => String::new(),
    }
}

/// The wanted files below a folder, in order.
fn files_below(folder: &str, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut todo = vec![PathBuf::from(folder)];
    while let Some(folder) = todo.pop() {
        // A folder that is not there has no examples.
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                todo.push(path);
            } else if wanted(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn example_in(folders: &[&str], name: &str) -> Result<PathBuf, Failure> {
    // The first folder that has one counts: the program's own is in front.
    let paths = folders.iter().map(|folder| examples_below(folder, name));
    let examples = paths.into_iter().find(|examples| !examples.is_empty());
    let examples = examples.unwrap_or_default();
    match &examples[..] {
        [path] => Ok(path.clone()),
        [] => Err(fail(format_args!(
            "--example {name}: not below {}; {}SystemTap's examples are in the package systemtap-doc or \
             systemtap-client",
            folders.join(" or "),
            did_you_mean(folders, name)
        ))),
        several => {
            let paths: Vec<_> = several.iter().map(|p| p.display().to_string()).collect();
            let paths = paths.join(" ");
            Err(fail(format_args!(
                "--example {name}: there are {paths}: name a folder as well"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_by_the_end_of_their_path() {
        let folder = std::env::temp_dir().join(format!("spile-examples-{}", std::process::id()));
        for path in ["io/one.stp", "io/two.stp", "net/two.stp"] {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let text = folder.to_string_lossy().into_owned();
        let find =
            |name: &str| example_in(&[&text, "/no/such"], name).map_err(|e| format!("{e:?}"));
        assert_eq!(find("one.stp"), Ok(folder.join("io/one.stp")));
        assert_eq!(find("net/two.stp"), Ok(folder.join("net/two.stp")));
        assert_eq!(find("one"), find("one.stp"));
        assert_eq!(find("io/two"), find("io/two.stp"));
        assert!(find("two.stp").unwrap_err().contains("there are"));
        assert!(find("e.stp").unwrap_err().contains("systemtap-doc"));
        for name in ["onn", "onn.stp"] {
            assert!(find(name).unwrap_err().contains("did you mean one?"));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
