//! A uprobe that only counts: a perf event, without BPF.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Size of `struct perf_event_attr` in its fifth version.
const ATTR_SIZE: u32 = 112;

/// An armed probe; dropping it ends it.
pub(crate) struct Uprobe {
    /// A counter for each processor.
    counters: Vec<File>,
}

impl Uprobe {
    /// Probes all processes at `offset` of the file at `path`; `semaphore` is the file offset
    /// of the marker's semaphore or 0.
    pub(crate) fn open(path: &Path, offset: u64, semaphore: u64) -> io::Result<Uprobe> {
        let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let kind: u32 = kind.trim().parse().map_err(io::Error::other)?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut attr = [0_u8; ATTR_SIZE as usize];
        attr[0..4].copy_from_slice(&kind.to_ne_bytes());
        attr[4..8].copy_from_slice(&ATTR_SIZE.to_ne_bytes());
        // The upper half of `config` is the semaphore; `config1` the path, `config2` the offset.
        attr[8..16].copy_from_slice(&(semaphore << 32).to_ne_bytes());
        attr[56..64].copy_from_slice(&(path.as_ptr() as u64).to_ne_bytes());
        attr[64..72].copy_from_slice(&offset.to_ne_bytes());
        let online = std::fs::read_dir("/sys/devices/system/cpu")?.flatten();
        let cpus = online.filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            name.strip_prefix("cpu")?.parse::<i32>().ok()
        });
        let mut counters = Vec::new();
        for cpu in cpus {
            // SAFETY: `attr` and the path it points to live over the call.
            let fd = unsafe {
                libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, cpu, -1, 0_u64)
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel has just given this descriptor to us.
            counters.push(unsafe { File::from_raw_fd(fd as RawFd) });
        }
        Ok(Uprobe { counters })
    }

    /// Number of hits so far.
    pub(crate) fn hits(&self) -> u64 {
        let read = |mut file: &File| {
            let mut word = [0; 8];
            file.read_exact(&mut word).expect("a counter");
            u64::from_ne_bytes(word)
        };
        self.counters.iter().map(read).sum()
    }
}
