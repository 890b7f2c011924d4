//! The bits of the target's process tree that kernel handlers read: sets those of the target and of
//! its existing descendants. A program in the kernel sets those of later descendants.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use spile_kernel::{cgroup, process};
use spile_layout::TREE_BYTES;

use crate::machine::pid_namespace::PidMap;
use crate::shared::state::StateMemory;

/// Sets the bit of a process; the bits are at `offset` of the shared area.
pub(crate) fn insert(state: &StateMemory, offset: u32, pid: u32) {
    if let Some((word, bit)) = location(offset, pid) {
        state.shared(word).fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether the bit of a process is set.
pub(crate) fn contains(state: &StateMemory, offset: u32, pid: i64) -> bool {
    let location = u32::try_from(pid)
        .ok()
        .and_then(|pid| location(offset, pid));
    location.is_some_and(|(word, bit)| state.shared(word).load(Ordering::Relaxed) & bit != 0)
}

fn location(offset: u32, pid: u32) -> Option<(u32, u64)> {
    (pid < 8 * TREE_BYTES).then(|| (offset + pid / 64 * 8, 1 << (pid % 64)))
}

/// Sets the bits of the existing descendants of a process. The kernel already follows forks: a
/// process that is forked in the meantime gets its bit there, or in the next round. The search ends
/// with a round that finds nothing.
pub(crate) fn mark_descendants(state: &StateMemory, offset: u32, target: u32) {
    process::descendants(target, |pids| {
        let numbers = PidMap::now();
        for pid in pids {
            insert(state, offset, numbers.to_machine(*pid));
        }
    });
}

/// Sets the bits of the processes that are in a control group, without this one. The search ends
/// with a round that finds nothing.
pub(crate) fn mark_group(state: &StateMemory, offset: u32, group: &Path) {
    let mut known = BTreeSet::from([std::process::id()]);
    loop {
        let members = cgroup::processes(group);
        if members.is_subset(&known) {
            return;
        }
        let numbers = PidMap::now();
        for pid in members.difference(&known) {
            insert(state, offset, numbers.to_machine(*pid));
        }
        known.extend(members);
    }
}
