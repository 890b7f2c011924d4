//! The directory of a session's files, `/var/tmp/spile-USER/NAME`. It belongs to the user, and
//! nobody else can write to it. It is locked while the session lives. The directory of a killed
//! session is taken over if it contains only pipes and marked files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;

/// Parent of the users' directories.
const PARENT: &str = "/var/tmp";
/// Name of a pipe before it is renamed into location.
pub(super) const NEW: &str = ".new";
/// Modification time of a session's empty files, their mark.
const MARK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// Limit on the depth of directories to search.
const DEPTH: usize = 32;

/// The location of a file.
pub(super) struct FileLocation {
    /// Its directory.
    pub directory: OwnedFd,
    /// Its name in the directory.
    pub name: String,
}

/// The directory.
pub(super) struct Directory {
    path: String,
    name: String,
    user_directory: OwnedFd,
    session_directory: OwnedFd,
    /// Paths of the subdirectories that were created.
    created: BTreeSet<Vec<String>>,
}

type PathResult<T> = Result<T, (String, io::Error)>;

impl Directory {
    /// Creates the directory.
    ///
    /// # Errors
    /// The path, and the reason.
    pub(super) fn new(name: &str) -> PathResult<Directory> {
        let uid = rustix::process::geteuid().as_raw();
        let users = format!("{PARENT}/spile-{}", user_name(uid));
        let path = format!("{users}/{name}");
        let fail = |path: &str| {
            let path = path.to_owned();
            move |e: io::Error| (path, e)
        };
        let strange = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if name.is_empty() || name.starts_with('.') || name.contains(strange) {
            let why = io::Error::other("this is not a valid name for a directory");
            return Err((path, why));
        }
        let parent = open_at(rustix::fs::CWD, PARENT).map_err(|e| (PARENT.into(), e.into()))?;
        let base = format!("spile-{}", user_name(uid));
        let both = || {
            let user = open_or_create(&parent, &base).map_err(fail(&users))?;
            let session = create_locked(&user, name).map_err(fail(&path))?;
            Ok((user, session))
        };
        let (user_directory, session_directory) = match both() {
            // Another session just ended, and removed the user's directory.
            Err((_, e)) if e.kind() == io::ErrorKind::NotFound => both()?,
            made => made?,
        };
        // Nothing is removed if any entry is not ours.
        clear(&session_directory, false, 0).map_err(fail(&path))?;
        clear(&session_directory, true, 0).map_err(fail(&path))?;
        Ok(Directory {
            path,
            name: name.into(),
            user_directory,
            session_directory,
            created: BTreeSet::new(),
        })
    }

    /// Its path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The location of a file; creates the directories on the path.
    ///
    /// # Errors
    /// A directory cannot be created.
    pub(super) fn location(&mut self, path: &str) -> io::Result<FileLocation> {
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap_or_default().to_owned();
        if name == NEW {
            return Err(io::Error::other("the session uses this name itself"));
        }
        let mut directory = self.session_directory.try_clone()?;
        let mut parents = Vec::new();
        for part in parts {
            directory = open_or_create(&directory, part)?;
            parents.push(part.to_owned());
            self.created.insert(parents.clone());
        }
        Ok(FileLocation { directory, name })
    }

    /// Removes the files and all directories that are empty afterwards. Directories with other
    /// content stay.
    pub(super) fn remove(&self, locations: &[FileLocation]) {
        for location in locations {
            for name in [&*location.name, NEW] {
                let _ = rustix::fs::unlinkat(&location.directory, name, AtFlags::empty());
            }
        }
        for path in self.created.iter().rev() {
            let path = path.join("/");
            let _ = rustix::fs::unlinkat(&self.session_directory, path, AtFlags::REMOVEDIR);
        }
        let gone = rustix::fs::unlinkat(&self.user_directory, &*self.name, AtFlags::REMOVEDIR);
        if gone.is_ok() {
            // Fails if there are directories of other sessions.
            let _ = fs::remove_dir(self.path.trim_end_matches(&*self.name));
        } else {
            crate::io::output::warn(&format!(
                "{} has files of others and is not removed",
                self.path
            ));
        }
    }
}

fn open_at(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Opens or creates a directory that only its owner, this user, can write to.
fn open_or_create(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let mode = Mode::from_bits_truncate(0o755);
    let new = match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    let directory = open_at(parent, name)?;
    if new {
        // Independent of the umask: files have their own permissions.
        rustix::fs::fchmod(&directory, mode)?;
    }
    let stat = rustix::fs::fstat(&directory)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other("others can write to it"));
    }
    Ok(directory)
}

/// Creates and locks the directory of that name, and checks that it still exists.
fn create_locked(user: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    for wait in [1, 10, 100, 0] {
        let directory = open_or_create(user, name)?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if still_names(user, name, &directory) => return Ok(directory),
            // Another session that tests the lock may have just removed the directory, or be about
            // to.
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
        std::thread::sleep(Duration::from_millis(wait));
    }
    Err(io::Error::other(
        "another session has it; `-m NAME` gives this one another name",
    ))
}

/// Whether that name still refers to this directory.
fn still_names(user: &OwnedFd, name: &str, directory: &OwnedFd) -> bool {
    let named = rustix::fs::statat(user, name, AtFlags::SYMLINK_NOFOLLOW);
    match (named, rustix::fs::fstat(directory)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Removes the directories of this user's killed sessions: those that are unlocked, and contain
/// only pipes, marked files and directories.
pub fn remove_abandoned() {
    let uid = rustix::process::geteuid().as_raw();
    let Ok(parent) = open_at(rustix::fs::CWD, PARENT) else {
        return;
    };
    let base = format!("spile-{}", user_name(uid));
    let Ok(user) = open_at(&parent, &base) else {
        return;
    };
    let is_private =
        rustix::fs::fstat(&user).is_ok_and(|s| s.st_uid == uid && s.st_mode & 0o022 == 0);
    let Ok(entries) = Dir::read_from(&user) else {
        return;
    };
    for entry in entries.flatten().filter(|_| is_private) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            // An entry that cannot be removed stays.
            let _ = remove_if_abandoned(&user, &name);
        }
    }
    // Fails if there are directories of other sessions.
    let _ = rustix::fs::unlinkat(&parent, &*base, AtFlags::REMOVEDIR);
}

fn remove_if_abandoned(user: &OwnedFd, name: &str) -> io::Result<()> {
    let left = open_at(user, name)?;
    rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive)?;
    clear(&left, false, 0)?;
    clear(&left, true, 0)?;
    Ok(rustix::fs::unlinkat(user, name, AtFlags::REMOVEDIR)?)
}

/// Marks an empty file as a session's, by a modification time at the epoch.
pub(super) fn mark(file: &OwnedFd) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: MARK,
        last_modification: MARK,
    };
    rustix::fs::futimens(file, &times)
}

fn is_marked(stat: &Stat) -> bool {
    stat.st_mtime == 0 && stat.st_mtime_nsec == 0
}

/// Checks that a directory contains only pipes, marked files and directories; with `remove`,
/// removes them.
fn clear(directory: &OwnedFd, remove: bool, depth: usize) -> io::Result<()> {
    if depth > DEPTH {
        return Err(io::Error::other("it is too deep to be a session's"));
    }
    let entries: Vec<_> = Dir::read_from(directory)?.collect::<Result<_, _>>()?;
    for entry in entries {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => AtFlags::empty(),
            // A file with content has no name any more.
            FileType::RegularFile
                if stat.st_size == 0 && (is_marked(&stat) || name.to_bytes() == NEW.as_bytes()) =>
            {
                AtFlags::empty()
            }
            FileType::Directory => {
                let inner = open_at(directory, &name.to_string_lossy())?;
                clear(&inner, remove, depth + 1)?;
                AtFlags::REMOVEDIR
            }
            _ => {
                let name = name.to_string_lossy();
                let text = format!("`{name}` in it is not a session's; remove it first");
                return Err(io::Error::other(text));
            }
        };
        if remove {
            rustix::fs::unlinkat(directory, name, flags)?;
        }
    }
    Ok(())
}

/// The user's name, or the number if there is no name.
fn user_name(uid: u32) -> String {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        (id.parse() == Ok(uid) && !name.is_empty() && name.chars().all(plain)).then_some(name)
    });
    name.map_or(uid.to_string(), str::to_owned)
}
