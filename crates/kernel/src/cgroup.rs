//! Control groups: where their folders are, and which processes are in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Limit on the folders of a tree that are looked at.
const MOST: usize = 100_000;

/// A mounted tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The kernel's number of it, as in `/proc/PID/cgroup`: 0 for version 2.
    pub id: u32,
    /// Where it is mounted.
    pub root: PathBuf,
}

/// The mounted trees, that of version 2 first.
#[must_use]
pub fn hierarchies() -> Vec<Hierarchy> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// The trees in these mounts. `own` has the numbers of the trees, as `/proc/PID/cgroup` has them.
fn parse(mounts: &str, own: &str) -> Vec<Hierarchy> {
    // The options of a mount of version 1 contain the controllers, or the name of the tree.
    let numbered = own.lines().filter_map(|line| {
        let (id, rest) = line.split_once(':')?;
        Some((id.parse().ok()?, rest.split_once(':')?.0))
    });
    let numbered: Vec<(u32, &str)> = numbered.collect();
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else {
            continue;
        };
        let Some(path) = place.split(' ').nth(4) else {
            continue;
        };
        let mut kind = kind.split(' ');
        let id = match (kind.next(), kind.nth(1)) {
            (Some("cgroup2"), _) => Some(0),
            (Some("cgroup"), Some(options)) => {
                let has = |name: &str| options.split(',').any(|option| option == name);
                let of = |names: &str| !names.is_empty() && names.split(',').all(has);
                numbered.iter().find(|(_, n)| of(n)).map(|(id, _)| *id)
            }
            _ => None,
        };
        if let Some(id) = id.filter(|id| found.iter().all(|f| f.id != *id)) {
            let root = path.replace("\\040", " ").replace("\\134", "\\");
            let at = found.partition_point(|f| f.id < id);
            found.insert(
                at,
                Hierarchy {
                    id,
                    root: root.into(),
                },
            );
        }
    }
    found
}

/// The folders of a control group and of those below it, itself first.
#[must_use]
pub fn folders(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).filter(|_| next < MOST) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let inner = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        let inner: Vec<PathBuf> = inner.map(|e| e.path()).collect();
        found.extend(inner);
        next += 1;
    }
    found
}

/// The processes of a control group and of those below it, by their numbers here.
#[must_use]
pub fn processes(group: &Path) -> BTreeSet<u32> {
    let texts = folders(group).into_iter();
    // A folder of threads has no such list: its processes are in one above.
    let texts = texts.filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok());
    let mut found = BTreeSet::new();
    for text in texts {
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    // Processes outside of this PID namespace.
    found.remove(&0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_trees_are_found_with_their_numbers() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                      41 31 0:38 / /my\\040groups rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
                      42 31 0:38 / /again rw - cgroup2 cgroup2 rw\n";
        let own = "9:name=systemd:/\n4:cpu,cpuacct:/a\n0::/\n";
        let found: Vec<(u32, PathBuf)> = parse(mounts, own)
            .into_iter()
            .map(|h| (h.id, h.root))
            .collect();
        let root = |path: &str| PathBuf::from(path);
        assert_eq!(
            found,
            [
                (0, root("/my groups")),
                (4, root("/sys/fs/cgroup/cpu")),
                (9, root("/sys/fs/cgroup/systemd")),
            ]
        );
        assert!(parse("\nx - \n1 2 3 4 5 - cgroup c rw", "").is_empty());
    }

    #[test]
    fn folders_and_processes_of_a_group_are_found() {
        let name = format!("spile-cgroup-{}", std::process::id());
        let group = &std::env::temp_dir().join(name);
        let inner = group.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(group.join("cgroup.procs"), "7\n0\n").unwrap();
        fs::write(inner.join("cgroup.procs"), "12\n7\n").unwrap();
        assert_eq!(folders(group).len(), 3);
        assert_eq!(processes(group), BTreeSet::from([7, 12]));
        fs::remove_dir_all(group).unwrap();
        assert!(processes(group).is_empty());
    }
}
