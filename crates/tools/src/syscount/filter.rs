//! The filter of `spile syscount`: options become the numbers that the kernel handlers compare.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use spile_cast::Cast;
use spile_kernel::btf::Btf;
use spile_kernel::cgroup::hierarchies;
use spile_kernel::process::of_thread;
use spile_runtime::machine::kernel_memory::KernelMemory;
use spile_runtime::machine::pid_namespace::PidMap;

use spile_plain::messages::{Failure, fail};

/// Inode number of the initial cgroup namespace (`PROC_CGROUP_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xeffffffb;

/// The process id as handlers see it.
pub(super) fn process(pid: u32) -> Result<u32, Failure> {
    match of_thread(pid) {
        Some(leader) if leader == pid => Ok(PidMap::now().to_machine(pid)),
        Some(leader) => Err(fail(format_args!(
            "-p {pid}: this is a thread of process {leader}; give -t {pid} or -p {leader}"
        ))),
        None => Err(fail(format_args!("-p {pid}: there is no such process"))),
    }
}

/// The id of a thread, and that of its process, as handlers see them.
pub(super) fn thread(tid: u32, pid: Option<u32>) -> Result<(u32, u32), Failure> {
    let leader =
        of_thread(tid).ok_or_else(|| fail(format_args!("-t {tid}: there is no such thread")))?;
    match pid {
        Some(pid) if pid != leader => Err(fail(format_args!(
            "-t {tid}: this is a thread of process {leader} and not of {pid} (-p)"
        ))),
        // In a PID namespace only the first thread's number is known.
        _ if tid != leader && PidMap::now().to_machine(leader) != leader => {
            Err(fail(format_args!(
                "-t {tid}: in a PID namespace spile knows only first threads by number; give -p {leader}"
            )))
        }
        _ => Ok((PidMap::now().to_machine(tid), leader)),
    }
}

/// A thread's name as the kernel keeps it.
pub(super) fn comm(name: &str) -> Result<&str, Failure> {
    match name.len() {
        0 => Err(fail("--comm: the name is empty")),
        1..=15 => Ok(name),
        _ => Err(fail(format_args!(
            "--comm {name}: the kernel keeps 15 bytes of a name; give `{}`",
            String::from_utf8_lossy(&name.as_bytes()[..15])
        ))),
    }
}

/// A control group by its directory, or by its path below the root of control groups: its id, and
/// its depth below the root.
pub(super) fn cgroup(path: &str) -> Result<(u64, u64), Failure> {
    let wrong = |why: &str| fail(format_args!("--cgroup {path}: {why}"));
    let version_2 = hierarchies().into_iter().find(|tree| tree.id == 0);
    let root = version_2.map(|tree| tree.root).ok_or_else(|| {
        wrong("control groups of version 2 are not mounted here (mount -t cgroup2 none DIR)")
    })?;
    let below = root.join(path.trim_start_matches('/'));
    let folder = match Path::new(path).canonicalize() {
        Ok(folder) if folder.starts_with(&root) => folder,
        other => match (below.canonicalize(), other) {
            (Ok(folder), _) if folder.starts_with(&root) => folder,
            (_, Ok(_)) => {
                let root = root.display();
                return Err(wrong(&format!(
                    "this is not a control group of version 2; these are below {root}"
                )));
            }
            _ => return Err(wrong("there is no such control group")),
        },
    };
    let stat = std::fs::metadata(&folder).map_err(|e| wrong(&e.to_string()))?;
    if !stat.is_dir() {
        return Err(wrong("this is a file; give its folder"));
    }
    let depth = folder
        .strip_prefix(&root)
        .map_or(0, |p| p.components().count());
    let outer =
        outer_levels().ok_or_else(|| wrong("the levels above this namespace are unknown"))?;
    Ok((stat.ino(), outer + depth as u64))
}

/// Number of levels of control groups above the root that this process sees.
fn outer_levels() -> Option<u64> {
    let namespace = std::fs::metadata("/proc/self/ns/cgroup").ok();
    if namespace.is_none_or(|m| m.ino() == FIRST_NAMESPACE) {
        return Some(0);
    }
    let path = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|l| l.strip_prefix("0::"))?;
    let seen = Path::new(path.trim_start_matches('/')).components().count();
    (own_level()?).checked_sub(seen as u64)
}

/// The depth of this process's control group in the kernel's tree.
fn own_level() -> Option<u64> {
    let btf = Btf::vmlinux().ok()?;
    let offset = |structure: &str, name: &str| {
        let member = btf.member(btf.find_struct(structure)?, name)?;
        Some(u64::from(member.bit_offset / 8))
    };
    let memory = KernelMemory::open().ok()?;
    let task = memory.current_task().ok()?;
    let sets = memory.word(task + offset("task_struct", "cgroups")?)?;
    let group = memory.word(sets + offset("css_set", "dfl_cgrp")?)?;
    Some(u64::from(
        memory.word(group + offset("cgroup", "level")?)?.low32(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_processes_and_names_are_refused() {
        let here = std::process::id();
        assert_eq!(of_thread(here), Some(here));
        assert!(process(u32::MAX).is_err() && thread(u32::MAX, None).is_err());
        assert!(thread(here, Some(1)).is_err());
        assert!(comm("").is_err() && comm("0123456789abcdef").is_err());
        assert_eq!(comm("sh").ok(), Some("sh"));
    }
}
