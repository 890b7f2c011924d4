//! The one rule of trust for files that no argument of the command line names: only root and this user
//! can change them, or the meaning of their paths. It holds for directories of the cache, whose files
//! are trusted and loaded into programs, for files of options, and for libraries of scripts that the
//! environment names: under `sudo -E` the environment is that of another user.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Makes a directory for this user alone, if it does not exist, and returns its path without
/// symbolic links. From then on only root and this user can change its content, or the meaning of
/// the path, so a file that was checked there is the one that is opened later.
///
/// # Errors
/// When it cannot be made, belongs to another user, or others may change it or a directory above.
pub fn own_folder(path: &Path) -> io::Result<PathBuf> {
    own_folder_at(path).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => {
            let text = "so its files are not used (XDG_CACHE_HOME can name another folder)";
            io::Error::new(e.kind(), format!("{e}, {text}"))
        }
        _ => e,
    })
}

fn own_folder_at(path: &Path) -> io::Result<PathBuf> {
    // The directories above are checked before anything is made there.
    let existing = path.ancestors().find(|p| p.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    let mut real = existing.canonicalize()?;
    check_ancestors(&real)?;
    if existing != path {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        real = path.canonicalize()?;
        check_ancestors(&real)?;
    }
    let path = real;
    let folder = path.symlink_metadata()?;
    if folder.uid() != user() {
        return Err(refusal(&path, ANOTHERS));
    }
    match others_write(&folder) {
        true => Err(refusal(&path, WRITABLE)),
        false => Ok(path),
    }
}

/// The path without symbolic links of a file, or of a folder with all that is below it, if only root and
/// this user can change any of it. Nobody else can then put another one instead.
///
/// # Errors
/// When something belongs to another user, can be written by others, cannot be read, or is neither a
/// file nor a folder; the error names it. [`io::ErrorKind::NotFound`] if there is no such path.
pub fn own_tree(path: &Path) -> io::Result<PathBuf> {
    let whole = path.canonicalize()?;
    let (mut todo, mut seen) = (vec![whole.clone()], BTreeSet::new());
    while let Some(path) = todo.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let named = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => e,
            kind => io::Error::new(kind, format!("{}: {e}", path.display())),
        };
        check_ancestors(path.parent().unwrap_or(Path::new("/"))).map_err(named)?;
        let metadata = path.symlink_metadata().map_err(named)?;
        if metadata.uid() != user() && metadata.uid() != 0 {
            return Err(refusal(&path, ANOTHERS));
        }
        if others_write(&metadata) {
            return Err(refusal(&path, WRITABLE));
        }
        if metadata.is_dir() {
            for entry in path.read_dir().map_err(named)? {
                todo.push(entry?.path().canonicalize().map_err(named)?);
            }
        } else if !metadata.is_file() {
            return Err(refusal(&path, "is neither a file nor a folder"));
        }
    }
    Ok(whole)
}

/// Whether an existing directory, or the one that it would be made in, is as [`own_folder`]
/// requires.
#[must_use]
pub fn is_own(path: &Path) -> bool {
    let existing = path.ancestors().find(|p| p.exists());
    let Some(existing) = existing.and_then(|p| p.canonicalize().ok()) else {
        return false;
    };
    let trusted = |m: Metadata| {
        let whole = !path.exists() || (m.uid() == user() || m.uid() == 0) && !others_write(&m);
        m.is_dir() && whole
    };
    check_ancestors(&existing).is_ok() && existing.symlink_metadata().is_ok_and(trusted)
}

/// [`is_own`], cached for each path: only this user and root can change the answer.
pub(crate) fn is_own_once(path: &Path) -> bool {
    static KNOWN: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());
    let mut checked = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = checked.get(path) {
        return *answer;
    }
    let answer = is_own(path);
    checked.insert(path.to_owned(), answer);
    answer
}

/// Whether only this user and root can change the meaning of a path without symbolic links: from
/// the root downwards, nobody else can rename the next component.
fn check_ancestors(path: &Path) -> io::Result<()> {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    let user = user();
    for part in parts {
        let folder = part.symlink_metadata()?;
        if !folder.is_dir() {
            return Err(refusal(part, "is not a folder"));
        }
        if folder.uid() != user && folder.uid() != 0 {
            return Err(refusal(part, ANOTHERS));
        }
        // In directories such as /tmp, only owners rename.
        const STICKY: u32 = 0o1000;
        if others_write(&folder) && folder.mode() & STICKY == 0 {
            return Err(refusal(part, WRITABLE));
        }
    }
    Ok(())
}

/// Whether users other than the owner may write. A group whose number is the user's own has no
/// other members: distributions with a group for each user make files writable by the group.
fn others_write(folder: &Metadata) -> bool {
    let mode = folder.mode();
    let private = || {
        let user = user();
        folder.gid() == user && rustix::process::getegid().as_raw() == user
    };
    mode & 0o002 != 0 || mode & 0o020 != 0 && !private()
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

const ANOTHERS: &str = "belongs to another user";
const WRITABLE: &str = "can be written by other users";

fn refusal(path: &Path, why: &str) -> io::Error {
    let text = format!("{} {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn files_that_others_may_change_are_not_trusted() {
        let dir = tempfile::tempdir().expect("made");
        let root = dir.path().canonicalize().expect("there");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        };
        let why = |path: &Path| own_tree(path).expect_err("refused").to_string();
        let (tree, below) = (root.join("tree"), root.join("tree/below"));
        let file = below.join("file");
        fs::create_dir_all(&below).expect("made");
        fs::write(&file, "").expect("written");
        assert_eq!(own_tree(&tree).expect("own"), tree);
        assert_eq!(own_tree(&file).expect("own"), file);
        let none = own_tree(&root.join("none")).expect_err("nothing there");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);

        for (at, at_file) in [(&file, &file), (&below, &below), (&tree, &tree)] {
            let before = at.metadata().expect("there").mode();
            mode(at, 0o777);
            for path in [&tree, &file] {
                let text = format!("{} can be written by other users", at_file.display());
                assert_eq!(why(path), text);
            }
            mode(at, before);
        }
        // What a link leads to counts.
        let elsewhere = root.join("elsewhere");
        fs::write(&elsewhere, "").expect("written");
        symlink(&elsewhere, below.join("link")).expect("made");
        assert!(own_tree(&tree).is_ok());
        mode(&elsewhere, 0o666);
        assert!(why(&tree).starts_with(&elsewhere.display().to_string()));
        fs::remove_file(below.join("link")).expect("removed");
        symlink(&tree, below.join("up")).expect("made");
        assert!(own_tree(&tree).is_ok(), "a circle ends");

        let pipe = below.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("made");
        assert!(why(&tree).ends_with("pipe is neither a file nor a folder"));
        fs::remove_file(pipe).expect("removed");
        if user() == 0 {
            chown(&file, Some(65534), None).expect("given");
            assert!(why(&tree).ends_with("file belongs to another user"));
        }
    }

    #[test]
    fn folders_that_others_may_change_are_not_trusted() {
        let dir = tempfile::tempdir().expect("made");
        let root = dir.path().canonicalize().expect("there");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        };
        let cache = root.join("a/b/cache");
        assert!(is_own(&cache));
        assert_eq!(own_folder(&cache).expect("made"), cache);
        assert!(is_own(&cache));
        assert_eq!(cache.metadata().expect("there").mode() & 0o777, 0o700);

        mode(&cache, 0o777);
        assert!(!is_own(&cache) && own_folder(&cache).is_err());
        mode(&cache, 0o1777);
        assert!(!is_own(&cache) && own_folder(&cache).is_err(), "sticky");
        mode(&cache, 0o755);
        assert!(is_own(&cache) && own_folder(&cache).is_ok());

        // Above it, another user could replace it.
        mode(&root.join("a"), 0o777);
        assert!(!is_own(&cache) && own_folder(&cache).is_err());
        assert!(!is_own(&root.join("a/new/cache")));
        assert!(own_folder(&root.join("a/new/cache")).is_err());
        assert!(!root.join("a/new").exists());
        mode(&root.join("a"), 0o1777);
        assert!(is_own(&cache) && own_folder(&cache).is_ok());

        // A symbolic link is resolved.
        symlink(root.join("a"), root.join("link")).expect("made");
        let through = own_folder(&root.join("link/b/cache"));
        assert_eq!(through.expect("the same"), cache);

        // Only root can change owners.
        if user() == 0 {
            chown(&cache, Some(65534), None).expect("given");
            assert!(!is_own(&cache) && own_folder(&cache).is_err());
            chown(&cache, Some(0), None).expect("taken");
            chown(root.join("a/b"), Some(65534), None).expect("given");
            assert!(!is_own(&cache) && own_folder(&cache).is_err());
        }
        fs::write(root.join("file"), "").expect("written");
        assert!(own_folder(&root.join("file")).is_err());
    }
}
