//! The readers of a pipe.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// `KCMP_FILE`: compares whether two descriptors share one open file description.
const KCMP_FILE: i32 = 0;
/// Mask of the access mode in an open file's flags; write-only.
const ACCESS: u32 = 3;
const WRITE_ONLY: u32 = 1;

/// Number of other processes' open descriptions for reading, as far as this process may see them.
pub(super) fn count(pipe: &OwnedFd) -> usize {
    let Ok(stat) = rustix::fs::fstat(pipe) else {
        return 0;
    };
    let mut descriptors: Vec<(i32, i32)> = Vec::new();
    let this_process = std::process::id().cast_signed();
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse::<i32>().ok();
    let list = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    for process in list("/proc".into()) {
        let Some(pid) = number(&process.file_name()).filter(|pid| *pid != this_process) else {
            continue;
        };
        for file in list(format!("/proc/{pid}/fd")) {
            let Some(fd) = number(&file.file_name()) else {
                continue;
            };
            let same = |m: fs::Metadata| m.dev() == stat.st_dev && m.ino() == stat.st_ino;
            if fs::metadata(file.path()).is_ok_and(same) && reads(pid, fd) {
                descriptors.push((pid, fd));
            }
        }
    }
    let first = |index: &usize| {
        !(0..*index).any(|before| one_open(descriptors[before], descriptors[*index]))
    };
    (0..descriptors.len()).filter(first).count()
}

/// Whether a descriptor is readable.
fn reads(pid: i32, fd: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = text.lines().find_map(|l| l.strip_prefix("flags:"));
    let flags = flags.and_then(|f| u32::from_str_radix(f.trim(), 8).ok());
    flags.is_some_and(|f| f & ACCESS != WRITE_ONLY)
}

/// Whether two descriptors share an open file description, by duplication or inheritance. True if
/// that cannot be determined.
fn one_open(a: (i32, i32), b: (i32, i32)) -> bool {
    // SAFETY: the call takes plain numbers.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, a.0, b.0, KCMP_FILE, a.1, b.1) };
    order <= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn own_end_is_not_counted() {
        let (read, _write) = std::io::pipe().unwrap();
        assert_eq!(count(&read.into()), 0);
    }

    #[test]
    fn duplicates_are_one() {
        let (read, write) = std::io::pipe().unwrap();
        let own = std::process::id() as i32;
        let again = read.try_clone().unwrap();
        assert!(one_open((own, read.as_raw_fd()), (own, again.as_raw_fd())));
        assert!(reads(own, read.as_raw_fd()) && !reads(own, write.as_raw_fd()));
    }
}
