//! From names in scripts to the files of programs and libraries.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use spile_debuginfo::{ElfSymbols, Image, dynamic};
use spile_glob as glob;
use spile_kernel::process;

/// Maximum number of libraries that a program is followed to.
const MAX_LIBRARIES: usize = 512;

/// Maximum number of symbolic links that are followed to one file, as in the kernel.
const MAX_LINKS: usize = 40;

/// The error for a process that does not exist.
pub(super) fn no_process(pid: u32) -> String {
    format!("cannot probe pid {pid}: there is no process {pid}")
}

/// The program of a process.
pub(super) fn of_process(pid: u32) -> Result<PathBuf, String> {
    if !process::exists(pid) {
        return Err(no_process(pid));
    }
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = process::executable(pid)
        .ok_or_else(|| format!("process {pid} has no program, or it may not be read"))?;
    // In another mount namespace the path is another file or none; so is the path of a deleted
    // file.
    let same = |path: &Path| same_file(path, &program);
    let inside = resolve_below(&root_of(pid), &path);
    Ok([path, inside]
        .into_iter()
        .find(|p| same(p))
        .unwrap_or(program))
}

fn same_file(a: &Path, b: &Path) -> bool {
    let identity = |p: &Path| p.metadata().ok().map(|m| (m.dev(), m.ino()));
    identity(a).is_some() && identity(a) == identity(b)
}

/// The root directory of a process.
fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// The file of a path below another root; symbolic links are resolved below that root too.
fn resolve_below(root: &Path, path: &Path) -> PathBuf {
    let parts = |path: &Path| -> Vec<PathBuf> {
        let wanted = |c: &Component<'_>| matches!(c, Component::Normal(_) | Component::ParentDir);
        let parts = path.components().rev().filter(wanted);
        parts.map(|c| c.as_os_str().into()).collect()
    };
    let mut todo = parts(path);
    let mut resolved = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part.as_os_str() == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&part);
        if let Ok(link) = root.join(&resolved).read_link()
            && links < MAX_LINKS
        {
            links += 1;
            resolved.pop();
            if link.is_absolute() {
                resolved = PathBuf::new();
            }
            todo.extend(parts(&link));
        }
    }
    root.join(resolved)
}

/// A path as a process sees it: the plain one where that is the same file.
pub(super) fn seen_by(pid: u32, path: &Path) -> PathBuf {
    let inside = resolve_below(&root_of(pid), path);
    match same_file(path, &inside) {
        true => path.to_owned(),
        false => inside,
    }
}

/// The files of a name below another root: a path, or a name in the usual directories.
fn named_below(root: &Path, name: &str) -> Result<Vec<PathBuf>, String> {
    let folders = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ];
    let mut files = match (name.contains('/'), glob::is_pattern(name)) {
        (true, true) => matching(&resolve_below(root, Path::new(name)).to_string_lossy()),
        (true, false) => vec![resolve_below(root, Path::new(name))],
        (false, _) => folders
            .iter()
            .map(|d| resolve_below(root, Path::new(d)).join(name))
            .collect(),
    };
    files.retain(|p| p.is_file());
    if !name.contains('/') {
        files.truncate(1);
    }
    match files.is_empty() {
        true => Err(format!(
            "cannot find executable `{name}` in {}",
            root.display()
        )),
        false => Ok(files),
    }
}

/// The libraries of a program that a name or a pattern matches: those that a process has mapped, or
/// those that the file needs by the rules of the dynamic linker of the system with the root
/// directory `root` (`None`: of this one).
pub(super) fn libraries(
    program: &Path,
    pid: Option<u32>,
    pattern: &str,
    root: Option<&Path>,
) -> Result<Vec<PathBuf>, String> {
    if pattern.contains('/') && !glob::is_pattern(pattern) {
        return match pid {
            None => find_by_name(pattern, root),
            Some(pid) => match seen_by(pid, Path::new(pattern)) {
                path if path.is_file() => Ok(vec![path]),
                _ => Err(format!("process {pid} has no file `{pattern}`")),
            },
        };
    }
    let files = match pid {
        Some(pid) => mapped_files(pid),
        None => needed(program, root),
    };
    let seen = |p: &PathBuf| match pid {
        Some(pid) => Some(seen_by(pid, p)).filter(|p| p.is_file()),
        None => p.canonicalize().ok(),
    };
    let fits = |path: &PathBuf| {
        let whole = path.to_string_lossy();
        let name = whole.rsplit('/').next().unwrap_or("");
        // `libc` stands for `libc.so.6`.
        glob::matches(pattern, &whole)
            || glob::matches(pattern, name)
            || name.split(".so").next() == Some(pattern)
    };
    let mut libraries: Vec<PathBuf> = files.iter().filter(|p| fits(p)).filter_map(seen).collect();
    libraries.sort();
    libraries.dedup();
    match libraries.is_empty() {
        // Libraries loaded later are in the usual directories.
        true if !glob::is_pattern(pattern) => {
            let path = library_in(&mut usual_folders(root), pattern);
            let path = path.and_then(|p| p.canonicalize().ok());
            path.map(|p| vec![p])
                .ok_or_else(|| format!("{} has no library `{pattern}`", program.display()))
        }
        true => Err(format!(
            "{} has no library that matches `{pattern}`",
            program.display()
        )),
        false => Ok(libraries),
    }
}

/// Files with code that a process has mapped, except its own program.
pub(super) fn mapped_files(pid: u32) -> Vec<PathBuf> {
    let program = process::executable(pid);
    let mappings = process::mappings(pid).unwrap_or_default().into_iter();
    let code = mappings.filter(|m| m.executable && m.path.starts_with('/'));
    let mut files: Vec<PathBuf> = code.map(|m| m.path.into()).collect();
    files.dedup();
    files.retain(|f| Some(f) != program.as_ref());
    files
}

/// All libraries that a file of the system with that root directory needs, directly or through
/// others.
pub(super) fn needed(program: &Path, root: Option<&Path>) -> Vec<PathBuf> {
    needed_or_missing(program, root).0
}

/// The same, all of them.
///
/// # Errors
/// The name of one that is not found.
pub(super) fn all_needed(program: &Path) -> Result<Vec<PathBuf>, String> {
    let (libraries, missing) = needed_or_missing(program, None);
    missing.map_or(Ok(libraries), Err)
}

/// The libraries that a file needs and that are found, and one that is not.
fn needed_or_missing(program: &Path, root: Option<&Path>) -> (Vec<PathBuf>, Option<String>) {
    let mut libraries: Vec<PathBuf> = Vec::new();
    let mut missing = None;
    let mut todo = vec![program.to_owned()];
    let mut seen = BTreeSet::new();
    let usual: Vec<PathBuf> = usual_folders(root).collect();
    while let Some(path) = todo.pop() {
        let Ok(image) = Image::open(&path) else {
            continue;
        };
        let needs = dynamic::needs(&image);
        let run_path = needs.folders_from(&path).into_iter();
        let run_path: Vec<PathBuf> = run_path.map(|folder| below(root, folder)).collect();
        for name in needs.libraries {
            if !seen.insert(name.clone()) {
                continue;
            }
            if libraries.len() >= MAX_LIBRARIES {
                missing = Some(name);
                continue;
            }
            let mut folders = run_path.iter().chain(&usual).cloned();
            match library_in(&mut folders, &name) {
                Some(file) => {
                    todo.push(file.clone());
                    libraries.push(file);
                }
                None => missing = Some(name),
            }
        }
    }
    (libraries, missing)
}

/// A directory of the system with that root directory. A path relative to the program (`$ORIGIN`) is
/// below it already.
fn below(root: Option<&Path>, folder: PathBuf) -> PathBuf {
    match root {
        Some(root) if !folder.starts_with(root) => resolve_below(root, &folder),
        _ => folder,
    }
}

/// The directories that the dynamic linker of the system with that root directory searches.
fn usual_folders(root: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    // The variable is about this system.
    let given = match root {
        None => std::env::var("LD_LIBRARY_PATH").unwrap_or_default(),
        Some(_) => String::new(),
    };
    let mut folders: Vec<PathBuf> = given
        .split(':')
        .filter(|d| !d.is_empty())
        .map(PathBuf::from)
        .collect();
    let mut files = vec![below(root, "/etc/ld.so.conf".into())];
    let more = std::fs::read_dir(below(root, "/etc/ld.so.conf.d".into()));
    let more = more.into_iter().flatten().filter_map(Result::ok);
    let mut more: Vec<PathBuf> = more.map(|e| e.path()).collect();
    more.sort();
    files.extend(more);
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let folder = |l: &&str| l.starts_with('/');
        folders.extend(
            text.lines()
                .map(str::trim)
                .filter(folder)
                .map(PathBuf::from),
        );
    }
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    let root = root.map(Path::to_owned);
    folders
        .into_iter()
        .map(move |folder| below(root.as_deref(), folder))
}

/// The libraries that programs load by the name of a path or a pattern that matches no file, because it is of
/// a system whose libraries are in other directories: `/lib*/libc.so*`. Empty if it is no path of a library
/// in a directory of the system.
pub(super) fn loaded_by_name(pattern: &str, root: Option<&Path>) -> Vec<PathBuf> {
    match system_library(pattern) {
        Some(name) => loaded(name, root),
        None => Vec::new(),
    }
}

/// The libraries whose names match a pattern, in the first of the dynamic linker's directories that has one.
fn loaded(name: &str, root: Option<&Path>) -> Vec<PathBuf> {
    let libraries = usual_folders(root).find_map(|folder| {
        let matches = matching(&folder.join(name).to_string_lossy()).into_iter();
        let matches: BTreeSet<PathBuf> = matches
            .filter(|path| Image::open(path).is_ok())
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        (!matches.is_empty()).then_some(matches)
    });
    libraries.unwrap_or_default().into_iter().collect()
}

/// The name in a path or a pattern of a library in the system's directories.
pub(super) fn system_library(pattern: &str) -> Option<&str> {
    let (folder, name) = pattern.rsplit_once('/')?;
    let system = ["/lib", "/usr/lib", "/usr/local/lib"];
    let system = system.iter().any(|s| folder.starts_with(s));
    (system && name.contains(".so")).then_some(name)
}

/// The C library beside one that is empty since its functions moved there (glibc 2.34).
pub(super) fn moved_to_libc(path: &Path) -> Option<PathBuf> {
    const EMPTY: [&str; 5] = ["libpthread", "libdl", "librt", "libutil", "libanl"];
    let name = path.file_name()?.to_str()?;
    let (stem, _) = name.split_once(".so")?;
    let image = Image::open(path).ok().filter(|_| EMPTY.contains(&stem))?;
    let libc = path.with_file_name("libc.so.6");
    let placeholder = |name: &str| name.contains("_version_placeholder") || name.starts_with('_');
    let exported = ElfSymbols::exported(&image);
    let mut functions = exported.functions();
    (functions.all(|s| placeholder(s.name)) && libc.is_file()).then_some(libc)
}

/// The library of that name in the first directory that has one. As the dynamic linker, it skips files for
/// programs of another kind, such as those of 32 bits.
fn library_in(folders: &mut dyn Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let mut locations = folders.map(|folder| folder.join(name));
    locations.find(|path| path.is_file() && Image::open(path).is_ok())
}

/// The files that a name or a pattern matches: a path, or a name that is searched in `$PATH`, or a
/// library's name, which is searched in the dynamic linker's directories too.
///
/// `root` is the root directory in which the name was written, if it is not this process's.
pub(super) fn find_by_name(name: &str, root: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    if let Some(root) = root {
        return named_below(root, name);
    }
    let is_library = name.contains(".so");
    let paths: Vec<PathBuf> = match (glob::is_pattern(name), name.contains('/')) {
        (true, true) => matching(name),
        (true, false) => {
            let programs = search_path().flat_map(|d| matching(&format!("{d}/{name}")));
            let libraries = match is_library {
                true => loaded(name, None),
                false => Vec::new(),
            };
            programs
                .filter(|p| executable(p))
                .chain(libraries)
                .collect()
        }
        (false, true) => vec![PathBuf::from(name)],
        (false, false) => {
            let mut programs = search_path().map(|d| Path::new(&d).join(name));
            let library = || library_in(&mut usual_folders(None).filter(|_| is_library), name);
            let program = programs.find(|p| executable(p)).or_else(library);
            program.into_iter().collect()
        }
    };
    let mut files = BTreeSet::new();
    let mut why = None;
    for path in paths {
        match path.canonicalize() {
            Ok(path) if path.is_file() => {
                files.insert(interpreter(&path).unwrap_or(path));
            }
            Ok(_) => why = Some("it is not a file".to_owned()),
            Err(e) => why = Some(e.to_string()),
        }
    }
    if !files.is_empty() {
        return Ok(files.into_iter().collect());
    }
    Err(match (why, name.contains('/')) {
        (Some(why), _) => format!("cannot find the program `{name}`: {why}"),
        (None, true) => format!("no program matches `{name}`"),
        (None, false) => format!("cannot find executable `{name}` in $PATH"),
    })
}

/// The interpreter of a script; the script itself has no code.
fn interpreter(path: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = [0; 256];
    let n = std::fs::File::open(path).ok()?.read(&mut head).ok()?;
    let line = head.get(..n)?.strip_prefix(b"#!")?;
    let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next()?);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    // `#!/usr/bin/env python3`
    let name = match Path::new(first).file_name() {
        Some(env) if env == "env" => words.find(|w| !w.starts_with('-'))?,
        _ => first,
    };
    let path = match name.contains('/') {
        true => PathBuf::from(name),
        false => search_path()
            .map(|d| Path::new(&d).join(name))
            .find(|p| p.is_file())?,
    };
    path.canonicalize().ok()
}

fn search_path() -> impl Iterator<Item = String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<String> = path.split(':').map(str::to_owned).collect();
    folders.into_iter().filter(|d| !d.is_empty())
}

/// Whether the file of a path can be run as a program.
fn executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
}

/// Programs and libraries whose paths match, component by component.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let start = if pattern.starts_with('/') { "/" } else { "." };
    let mut paths = vec![PathBuf::from(start)];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        paths = if glob::is_pattern(part) {
            let entries = |folder: PathBuf| std::fs::read_dir(folder).ok();
            paths
                .into_iter()
                .filter_map(entries)
                .flat_map(|entries| entries.filter_map(Result::ok))
                .filter(|e| glob::matches(part, &e.file_name().to_string_lossy()))
                .map(|e| e.path())
                .collect()
        } else {
            paths.into_iter().map(|p| p.join(part)).collect()
        };
    }
    // Libraries need not be executable: Debian's are not.
    paths.retain(|p| p.is_file());
    paths.retain(|p| {
        use std::io::Read;
        let mut magic = [0; 4];
        let read = std::fs::File::open(p).and_then(|mut f| f.read_exact(&mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    });
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_other_roots_are_followed_there() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().expect("made");
        let root = dir.path();
        for folder in ["opt/tool-1", "usr/bin"] {
            std::fs::create_dir_all(root.join(folder)).expect("made");
        }
        std::fs::write(root.join("opt/tool-1/run"), b"").expect("written");
        let link = |to: &str, at: &str| symlink(to, root.join(at)).expect("linked");
        link("/opt/tool-1", "opt/tool");
        link("/opt/tool/run", "usr/bin/run");
        link("../bin/run", "usr/bin/again");
        link("loop", "usr/bin/loop");
        link("../../../../opt", "usr/bin/out");
        let at = |path: &str| resolve_below(root, Path::new(path));
        for path in ["/usr/bin/run", "/usr/bin/again", "/usr/bin/out/tool/run"] {
            assert_eq!(at(path), root.join("opt/tool-1/run"), "{path}");
        }
        assert_eq!(at("/none/at/all"), root.join("none/at/all"));
        assert_eq!(at("/usr/bin/loop"), root.join("usr/bin/loop"));
    }

    #[test]
    fn libraries_in_other_directories_are_found() {
        for pattern in [
            "/lib*/libc.so*",
            "/lib128/libc.so.6",
            "/usr/lib99/libc.so.[0-9]",
        ] {
            let found = loaded_by_name(pattern, None);
            assert_eq!(found.len(), 1, "{pattern}: {found:?}");
            assert!(found[0].ends_with("libc.so.6"));
        }
        for pattern in [
            "/opt/lib/libc.so.6",
            "/lib/libnosuch.so*",
            "libc.so*",
            "/lib/firmware/x",
        ] {
            assert!(loaded_by_name(pattern, None).is_empty(), "{pattern}");
        }
        let libc = loaded_by_name("/lib/libc.so.6", None);
        assert_eq!(moved_to_libc(&libc[0]), None);
        let folder = tempfile::tempdir().expect("made");
        let copy = |from: &Path, name: &str| {
            std::fs::copy(from, folder.path().join(name)).expect("copied")
        };
        copy(&libc[0], "libc.so.6");
        copy(&libc[0], "libpthread.so.0");
        assert_eq!(
            moved_to_libc(&folder.path().join("libpthread.so.0")),
            None,
            "it has functions"
        );
        let empty = loaded_by_name("/lib/libpthread.so.0", None);
        if let [empty] = &*empty {
            copy(empty, "libdl.so.2");
            let moved = moved_to_libc(&folder.path().join("libdl.so.2"));
            assert_eq!(moved, Some(folder.path().join("libc.so.6")));
        }
    }

    #[test]
    fn names_are_looked_for() {
        let shell = find_by_name("sh", None).expect("a shell");
        assert!(shell[0].is_absolute());
        assert_eq!(find_by_name("/bin/sh", None).expect("a shell"), shell);
        assert!(!find_by_name("/bin/s[h]", None).expect("a shell").is_empty());
        assert!(find_by_name("no-such-program-at-all", None).is_err());
        assert!(find_by_name("/no/such/*", None).is_err());
        assert!(of_process(0).is_err());
    }

    #[test]
    fn a_pattern_finds_libraries_that_are_not_executable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("made");
        let library = dir.path().join("libone.so.1");
        std::fs::write(&library, b"\x7fELF").expect("written");
        std::fs::set_permissions(&library, PermissionsExt::from_mode(0o644)).expect("set");
        std::fs::write(dir.path().join("libone.so.text"), b"INPUT(x)").expect("written");
        let pattern = format!("{}/lib*.so.*", dir.path().display());
        let found = find_by_name(&pattern, None).expect("found");
        assert_eq!(found, [library.canonicalize().expect("there")]);
    }

    #[test]
    fn libraries_for_other_programs_are_skipped() {
        let root = tempfile::tempdir().expect("a folder");
        let own = of_process(std::process::id()).expect("this");
        let libc = libraries(&own, None, "libc", None).expect("a library");
        let folder = |name: &str| {
            let folder = root.path().join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            folder
        };
        let header = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x03\0\x01\0\0\0";
        std::fs::write(folder("lib32").join("libc.so.6"), header).expect("a file");
        std::fs::write(folder("etc/ld.so.conf.d").join("32.conf"), "/lib32\n").expect("a file");
        let other = folder("lib64").join("libc.so.6");
        std::fs::copy(&libc[0], &other).expect("a copy");
        for name in ["libc", "libc.so.6"] {
            let found = libraries(&own, None, name, Some(root.path()));
            let other = other.canonicalize().expect("it is there");
            assert_eq!(found, Ok(vec![other]), "{name}");
        }
    }

    #[test]
    fn libraries_are_looked_for() {
        let own = of_process(std::process::id()).expect("this");
        for pid in [None, Some(std::process::id())] {
            for name in ["libc", "libc.so.6", "*/libc.so*"] {
                let found = libraries(&own, pid, name, None).expect("a library");
                assert_eq!(found.len(), 1, "{name}: {found:?}");
            }
            assert!(libraries(&own, pid, "no-such-library", None).is_err());
        }
    }
}
