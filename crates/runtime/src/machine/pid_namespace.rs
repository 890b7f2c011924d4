//! Process numbers when spile runs in a PID namespace. `/proc`, `-x` and `fork` use the namespace's
//! numbers, kernel handlers use machine-wide ones.

use std::collections::HashMap;
use std::sync::OnceLock;

use spile_cast::Cast;
use spile_kernel::btf::Btf;
use spile_kernel::process;

use crate::machine::kernel_memory::KernelMemory;

/// Inode number of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL: u64 = 0xeffffffc;
/// Limit on the tasks to look at: the kernel's own limit.
const MOST: usize = 4 << 20;

/// Maps process numbers of spile's namespace to machine-wide ones.
pub struct PidMap(Option<HashMap<u32, u32>>);

impl PidMap {
    /// The mapping at this moment.
    pub fn now() -> PidMap {
        PidMap((!PidMap::match_handlers()).then(|| all().unwrap_or_default()))
    }

    /// Whether spile's numbers are the ones that handlers see.
    pub fn match_handlers() -> bool {
        process::pid_namespace(None).is_none_or(|inode| inode == INITIAL)
    }

    /// The machine-wide number of a process; the same number if there is no other.
    pub fn to_machine(&self, pid: u32) -> u32 {
        let machine_wide = self.0.as_ref().and_then(|numbers| numbers.get(&pid));
        machine_wide.copied().unwrap_or(pid)
    }

    /// The number in spile's namespace of a process with a machine-wide number; the same number if
    /// there is no other.
    pub fn to_namespace(&self, pid: u32) -> u32 {
        let mut numbers = self.0.iter().flatten();
        numbers
            .find(|(_, outside)| **outside == pid)
            .map_or(pid, |(inside, _)| *inside)
    }
}

/// This process's number as handlers see it.
pub fn own_pid() -> u32 {
    static OWN: OnceLock<u32> = OnceLock::new();
    *OWN.get_or_init(|| {
        let told = || {
            let btf = Btf::vmlinux().ok()?;
            let tgid = btf.offset_of("task_struct", "tgid")?;
            let memory = KernelMemory::open().ok()?;
            let address = memory.current_task().ok()? + tgid;
            memory.word(address).map(|word| word.low32())
        };
        let number = std::process::id();
        match PidMap::match_handlers() {
            true => number,
            false => told().unwrap_or(number),
        }
    })
}

/// All processes of our namespace, from the kernel's list.
fn all() -> Option<HashMap<u32, u32>> {
    let btf = Btf::vmlinux().ok()?;
    let offset = |structure, member| btf.offset_of(structure, member);
    let tasks = offset("task_struct", "tasks")?;
    let (tgid, pid) = (
        offset("task_struct", "tgid")?,
        offset("task_struct", "thread_pid")?,
    );
    let (level, numbers) = (offset("pid", "level")?, offset("pid", "numbers")?);
    let (nr, ns) = (offset("upid", "nr")?, offset("upid", "ns")?);
    let step = btf.size_of(btf.find_struct("upid")?)?;
    let memory = KernelMemory::open().ok()?;
    // The list contains the first thread of each process.
    let this_process =
        memory.word(memory.current_task().ok()? + offset("task_struct", "group_leader")?)?;
    let low = |address: u64| memory.word(address).map(|word| word.low32());
    // Our number in our own namespace, which is the deepest one.
    let own_pid = memory.word(this_process + pid)?;
    let depth = u64::from(low(own_pid + level)?);
    let own_ns = memory.word(own_pid + numbers + depth * step + ns)?;
    let mut processes = HashMap::new();
    let mut task = this_process;
    for _ in 0..MOST {
        // The idle task has no number.
        if let Some(pid) = memory.word(task + pid).filter(|p| *p != 0)
            && u64::from(low(pid + level)?) >= depth
            && memory.word(pid + numbers + depth * step + ns)? == own_ns
        {
            processes.insert(low(pid + numbers + depth * step + nr)?, low(task + tgid)?);
        }
        task = memory.word(task + tasks)?.wrapping_sub(tasks);
        if task == this_process {
            break;
        }
    }
    Some(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_its_numbers_in_the_namespace() {
        let here = std::process::id();
        let Some(all) = all() else {
            spile_testing::skip!("kernel memory cannot be read");
        };
        // In the initial namespace both are equal.
        if process::pid_namespace(None) == Some(INITIAL) {
            assert_eq!(all.get(&here), Some(&here));
            assert!(all.iter().all(|(inside, outside)| inside == outside));
        }
        assert!(all.contains_key(&here));
        assert_eq!(PidMap(Some(all)).to_machine(u32::MAX), u32::MAX);
        assert_eq!(PidMap(None).to_machine(5), 5);
    }
}
