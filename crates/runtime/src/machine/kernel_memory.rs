//! Reads kernel memory for controller handlers. A short program copies from an address into an
//! array map; it is loaded at the first read and run on demand (`BPF_PROG_TEST_RUN`). It is not
//! part of a script, so scripts without kernel handlers can use it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use spile_cast::Cast;
use spile_kernel::bpf::{
    self, BpfError, Map, MapAttr, ProgSpec, insn, map_type, prog_type, test_run,
};

/// Limit on the bytes of one read.
const MOST: usize = 4096;

/// The loaded program and its map.
pub struct KernelMemory {
    program: OwnedFd,
    map: Map<OwnedFd>,
}

impl KernelMemory {
    /// Loads the program.
    pub fn open() -> Result<KernelMemory, BpfError> {
        let map = bpf::map_create(&MapAttr {
            ty: map_type::ARRAY,
            key_size: 4,
            value_size: MOST.fit(),
            max_entries: 1,
            name: "spile_kmem",
            ..MapAttr::default()
        })?;
        /// Source register of a 64-bit load that yields the address of a map's first value.
        const PSEUDO_MAP_VALUE: u8 = 2;
        /// `bpf_probe_read_kernel`
        const PROBE_READ_KERNEL: i32 = 113;
        /// `bpf_get_current_task`
        const GET_CURRENT_TASK: i32 = 35;
        /// `bpf_jiffies64`
        const JIFFIES: i32 = 118;
        let value = |register| {
            let fd = map.as_fd().as_raw_fd();
            insn(0x18, register, PSEUDO_MAP_VALUE, 0, fd)
        };
        let insns = [
            insn(0x79, 3, 1, 0, 0),                 // r3 = *(u64 *)(r1 + 0)
            insn(0x79, 2, 1, 8, 0),                 // r2 = *(u64 *)(r1 + 8)
            insn(0x15, 2, 0, 7, 0),                 // if r2 == 0 goto +7
            insn(0x25, 2, 0, 4, MOST.fit::<i32>()), // if r2 > MOST goto +4
            value(1),                               // r1 = value of the map
            insn(0, 0, 0, 0, 0),
            insn(0x85, 0, 0, 0, PROBE_READ_KERNEL), // r0 = call
            insn(0x95, 0, 0, 0, 0),                 // exit
            insn(0xb7, 0, 0, 0, -1),                // r0 = -1
            insn(0x95, 0, 0, 0, 0),                 // exit
            value(6),                               // r6 = value of the map
            insn(0, 0, 0, 0, 0),
            insn(0x85, 0, 0, 0, GET_CURRENT_TASK), // r0 = call
            insn(0x7b, 6, 0, 0, 0),                // *(u64 *)(r6 + 0) = r0
            insn(0x85, 0, 0, 0, JIFFIES),          // r0 = call
            insn(0x7b, 6, 0, 8, 0),                // *(u64 *)(r6 + 8) = r0
            insn(0xb7, 0, 0, 0, 0),                // r0 = 0
            insn(0x95, 0, 0, 0, 0),                // exit
        ];
        let program = bpf::load(&ProgSpec {
            ty: prog_type::RAW_TRACEPOINT,
            insns: &insns,
            name: "spile_kmem",
            ..ProgSpec::default()
        })?;
        Ok(KernelMemory {
            program,
            map: Map::new(map)?,
        })
    }

    /// Address of this thread's `task_struct`.
    pub fn current_task(&self) -> Result<u64, BpfError> {
        self.reported(0)
    }

    /// The kernel's `jiffies`.
    pub fn jiffies(&self) -> Result<u64, BpfError> {
        self.reported(8)
    }

    /// A word that the program reports without reading an address.
    fn reported(&self, offset: u32) -> Result<u64, BpfError> {
        let mut value = vec![0; MOST];
        test_run(self.program.as_fd(), &mut [0, 0], None)?;
        self.map.lookup(&0u32.to_ne_bytes(), &mut value)?;
        let word = value[offset as usize..].first_chunk();
        Ok(word.map_or(0, |word| u64::from_ne_bytes(*word)))
    }

    /// The word at a kernel address; `None` if it cannot be read.
    pub fn word(&self, addr: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(addr, &mut word)
            .unwrap_or(false)
            .then(|| u64::from_ne_bytes(word))
    }

    /// Fills `buf` from a kernel address; false when it cannot be read.
    pub fn read(&self, addr: u64, buf: &mut [u8]) -> Result<bool, BpfError> {
        let mut address = addr;
        let mut value = vec![0; MOST];
        for part in buf.chunks_mut(MOST) {
            let done = test_run(
                self.program.as_fd(),
                &mut [address, part.len() as u64],
                None,
            )?;
            if done.retval != 0 {
                return Ok(false);
            }
            self.map.lookup(&0u32.to_ne_bytes(), &mut value)?;
            part.copy_from_slice(&value[..part.len()]);
            address = address.wrapping_add(part.len() as u64);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_memory_is_read() {
        let memory = match KernelMemory::open() {
            Ok(memory) => memory,
            Err(e) => spile_testing::skip!("cannot load BPF programs: {e}"),
        };
        let Ok(btf) = spile_kernel::btf::Btf::vmlinux() else {
            spile_testing::skip("no BTF");
        };
        let task = btf.find_struct("task_struct").unwrap();
        let name = btf.member(task, "comm").unwrap().bit_offset / 8;
        let at = memory.current_task().unwrap() + u64::from(name);
        let expected = std::fs::read("/proc/thread-self/comm").unwrap();
        let expected = expected.strip_suffix(b"\n").unwrap();
        let mut text = vec![0; expected.len()];
        assert!(memory.read(at, &mut text).unwrap());
        assert_eq!(text, expected);
        assert!(!memory.read(16, &mut text).unwrap());
    }
}
