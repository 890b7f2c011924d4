//! Names of generated code, as just-in-time compilers write them to `/tmp/perf-PID.map` for `perf` and
//! similar tools: one line for each piece of code, with its address, its size and its name.
//!
//! The compiler appends lines while the program runs, and places new code where code was dropped. So
//! the file is read on from where the last reading ended, and a line replaces what earlier lines said
//! about its addresses.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use spile_cast::Cast;

/// Limit on the size of a file.
const MOST: u64 = 64 << 20;

/// A piece of generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JitSymbol {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) name: String,
}

/// The names of a process's generated code.
#[derive(Default)]
pub struct JitNames {
    /// Owner of the process and its number in its own PID namespace, once known: the process may have
    /// ended when the file is read again.
    owner: Option<u32>,
    inner_pid: Option<String>,
    /// Device and inode of the file, and how much of it was read.
    file: (u64, u64),
    read: u64,
    /// Number of lines that are not `START SIZE NAME`.
    pub(super) bad: u64,
    symbols: Vec<JitSymbol>,
    /// By their starts, which do not overlap: their ends, and the indexes of the symbols.
    ranges: BTreeMap<u64, (u64, usize)>,
}

impl JitNames {
    /// The names that a process, which may have ended, has written until now.
    #[must_use]
    pub fn of(process: u32) -> JitNames {
        let mut names = JitNames::default();
        names.reread(process.into());
        names
    }

    /// The name of the code at an address.
    #[must_use]
    pub fn name(&self, addr: u64) -> Option<&str> {
        self.find(addr).map(|symbol| &*symbol.name)
    }

    /// The code at an address.
    pub(super) fn find(&self, addr: u64) -> Option<&JitSymbol> {
        let (_, &(end, index)) = self.ranges.range(..=addr).next_back()?;
        self.symbols.get(index).filter(|_| addr < end)
    }

    /// Reads what was added to the file of a process.
    pub(super) fn reread(&mut self, process: u64) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let inner_pid = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
        if let Some(pid) = inner_pid.and_then(|l| l.split_whitespace().next_back()) {
            self.inner_pid = Some(pid.to_owned());
        }
        if let Ok(process) = fs::metadata(format!("/proc/{process}")) {
            self.owner = Some(process.uid());
        }
        // In its own namespaces, if it still exists.
        let inner = self.inner_pid.as_ref().map(|pid| {
            let root = format!("/proc/{process}/root");
            (root, format!("tmp/perf-{pid}.map"))
        });
        let outer = ("/".to_owned(), format!("tmp/perf-{process}.map"));
        for (root, path) in inner.into_iter().chain([outer]) {
            if let Some(file) = names_file(Path::new(&root), &path, self.owner) {
                return self.read_on(&file);
            }
        }
    }

    fn read_on(&mut self, file: &fs::File) {
        let Ok(is) = file.metadata() else {
            return;
        };
        let id = (is.dev(), is.ino());
        if id != self.file || is.len() < self.read {
            *self = JitNames {
                owner: self.owner,
                inner_pid: self.inner_pid.take(),
                bad: self.bad,
                file: id,
                ..JitNames::default()
            };
        }
        let length = is.len().min(MOST) - self.read.min(MOST);
        let mut text = vec![0; length.fit::<usize>()];
        if file.read_exact_at(&mut text, self.read).is_err() {
            return;
        }
        // The last line may still be incomplete.
        let end = text
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        self.read += end.fit::<u64>();
        for line in String::from_utf8_lossy(&text[..end]).lines() {
            match symbol(line) {
                Some(symbol) => self.add(symbol),
                None => self.bad += 1,
            }
        }
    }

    fn add(&mut self, symbol: JitSymbol) {
        let (start, end) = (symbol.start, symbol.start.saturating_add(symbol.size));
        if start == end {
            return;
        }
        for place in [start, end] {
            self.split(place);
        }
        let replaced: Vec<u64> = self.ranges.range(start..end).map(|r| *r.0).collect();
        for old in replaced {
            self.ranges.remove(&old);
        }
        self.ranges.insert(start, (end, self.symbols.len()));
        self.symbols.push(symbol);
    }

    /// Splits the range around an address there.
    fn split(&mut self, place: u64) {
        let Some((_, range)) = self.ranges.range_mut(..place).next_back() else {
            return;
        };
        if range.0 > place {
            let behind = *range;
            range.0 = place;
            self.ranges.insert(place, behind);
        }
    }
}

/// Parses a line: start and size in hexadecimal digits, and the name.
fn symbol(line: &str) -> Option<JitSymbol> {
    let hex = |w: &str| u64::from_str_radix(w.strip_prefix("0x").unwrap_or(w), 16).ok();
    let mut words = line.splitn(3, ' ');
    Some(JitSymbol {
        start: hex(words.next()?)?,
        size: hex(words.next()?)?,
        name: words.next()?.to_owned(),
    })
}

/// Opens the file with a program's names. Everybody can write to `/tmp`: the opened file must
/// belong to the process's owner or to root, have only one name, and not be a symbolic link. Links
/// in the path stay within the process's root.
fn names_file(root: &Path, path: &str, owner: Option<u32>) -> Option<fs::File> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
    let root = open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(&root, path, OFlags::RDONLY | flags, Mode::empty(), within).ok()?;
    let file = fs::File::from(file);
    let is = file.metadata().ok()?;
    let mine = rustix::process::geteuid().as_raw();
    let is_owned = [Some(0), Some(mine), owner].contains(&Some(is.uid()));
    (is.is_file() && is.nlink() == 1 && is_owned).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_names_are_their_owners() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let dir = tempfile::tempdir().expect("made");
        let root = dir.path();
        fs::create_dir_all(root.join("tmp")).expect("made");
        let map = root.join("tmp/perf-1.map");
        let there = |owner| names_file(root, "tmp/perf-1.map", owner).is_some();
        let mine = rustix::process::geteuid().as_raw();
        assert!(!there(None));

        fs::write(&map, "1000 10 f\n").expect("written");
        assert!(there(Some(mine)) && there(Some(77)), "mine");
        fs::hard_link(&map, root.join("tmp/again")).expect("linked");
        assert!(!there(Some(mine)), "a file with another name");
        fs::remove_file(&map).expect("there");

        symlink(root.join("tmp/again"), &map).expect("linked");
        assert!(!there(Some(mine)), "a link");
        fs::remove_file(&map).expect("there");

        let pipe = rustix::fs::mknodat(
            rustix::fs::CWD,
            &map,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o666),
            0,
        );
        pipe.expect("a pipe");
        assert!(!there(Some(mine)), "a pipe, without a wait for a writer");
        fs::remove_file(&map).expect("there");

        // Directories of the path may be links, which stay below the process's own root.
        fs::rename(root.join("tmp"), root.join("elsewhere")).expect("moved");
        symlink("/elsewhere", root.join("tmp")).expect("linked");
        fs::write(root.join("elsewhere/perf-1.map"), "").expect("written");
        assert!(there(Some(mine)));

        // Only root can change owners.
        if mine == 0 {
            let map = root.join("elsewhere/perf-1.map");
            chown(&map, Some(65534), None).expect("given");
            fs::set_permissions(&map, fs::Permissions::from_mode(0o644)).expect("set");
            assert!(there(Some(65534)));
            assert!(!there(Some(1000)) && !there(None), "another user's");
        }
    }

    #[test]
    fn names_are_read_on_and_replaced() {
        let dir = tempfile::tempdir().expect("made");
        let path = dir.path().join("map");
        let mut names = JitNames::default();
        let mut read = |text: &str| {
            fs::write(&path, text).expect("written");
            names.read_on(&fs::File::open(&path).expect("there"));
            let at = [0x7f00, 0x7f0f, 0x7f10, 0x8004, 0x8008, 0x801f];
            let found = at.map(|addr| names.find(addr));
            let texts =
                found.map(|s| s.map_or("-".into(), |s| format!("{}@{:x}", s.name, s.start)));
            (texts.join(" "), names.bad)
        };
        let first = "7f00 10 a b\nzz 1 c\n0x8000 0x20 d\n\n1 2\n7f10 1 cut";
        let want = "a b@7f00 a b@7f00 - d@8000 d@8000 d@8000";
        assert_eq!(read(first), (want.to_owned(), 3));
        // The last line is complete now. Code within `d`, and in the place of the end of `a b`.
        let more = format!("{first}\n8004 4 e\n7f08 8 f\nffffffffffffffff 10 end\n5 0 none\n");
        let want = "a b@7f00 f@7f08 cut@7f10 e@8004 d@8000 d@8000";
        assert_eq!(read(&more), (want.to_owned(), 3));
        // Another program of the process began anew.
        let want = "- - - g@8000 g@8000 -";
        assert_eq!(read("8000 10 g\n"), (want.to_owned(), 3));
    }
}
