//! Maps: creating, reading and writing by descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::attr::Attr;
use super::error::{BpfError, Command};
use super::info::{MapInfo, map_info};
use crate::machine;

/// Types of maps that this project uses, numbered as in the kernel.
#[allow(missing_docs)]
pub mod map_type {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const PERCPU_CGROUP_STORAGE: u32 = 21;
    pub const RINGBUF: u32 = 27;
    pub const TASK_STORAGE: u32 = 29;
}

/// Flags of map creation.
#[allow(missing_docs)] // each is the kernel's own word
pub mod map_flag {
    pub const RDONLY_PROG: u32 = 1 << 7;
    pub const MMAPABLE: u32 = 1 << 10;
}

/// The properties of a new map.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapAttr<'a> {
    /// One of [`map_type`].
    pub ty: u32,
    /// Size of a key in bytes; 0 for a ring buffer.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Maximum number of entries; size in bytes for a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_...`
    pub flags: u32,
    /// Name for tools; up to 15 bytes.
    pub name: &'a str,
    /// BTF types of key and value, which a few kinds of maps need.
    pub types: Option<MapTypes<'a>>,
}

/// BTF types of a map's key and value.
#[derive(Debug, Clone, Copy)]
pub struct MapTypes<'a> {
    /// The BTF that has them.
    pub btf: BorrowedFd<'a>,
    /// Type id of the key.
    pub key: u32,
    /// Type id of the value.
    pub value: u32,
}

/// Creates a map.
///
/// # Errors
/// [`BpfError::Call`].
pub fn map_create(spec: &MapAttr<'_>) -> Result<OwnedFd, BpfError> {
    let mut attr = Attr::new()
        .u32(0, spec.ty)
        .u32(4, spec.key_size)
        .u32(8, spec.value_size)
        .u32(12, spec.max_entries)
        .u32(16, spec.flags)
        .name(28, spec.name);
    if let Some(types) = spec.types {
        attr = attr
            .fd(48, types.btf)
            .u32(52, types.key)
            .u32(56, types.value);
    }
    // SAFETY: the attribute holds no pointers; the command returns a descriptor.
    unsafe { attr.open(Command::MapCreate) }
}

/// Forbids writing to a map by `bpf(2)`. For a map that programs cannot write either
/// ([`map_flag::RDONLY_PROG`]), the verifier then treats the values as constants.
///
/// # Errors
/// [`BpfError::Call`].
pub fn map_freeze(map: BorrowedFd<'_>) -> Result<(), BpfError> {
    let mut attr = Attr::new().fd(0, map);
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.call(Command::MapFreeze) }.map(drop)
}

/// A map with its sizes, so that keys and values can be checked.
#[derive(Debug)]
pub struct Map<F> {
    fd: F,
    info: MapInfo,
    /// Length of a value as a look-up returns it.
    value_len: usize,
}

/// The result of a batched command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchResult {
    /// Number of entries read or deleted.
    pub count: usize,
    /// Whether the end of the map was reached.
    pub done: bool,
}

impl<F: AsFd> Map<F> {
    /// Asks the kernel for the sizes of the map behind a descriptor.
    ///
    /// # Errors
    /// [`BpfError::Call`], also for a descriptor that is not a map's.
    pub fn new(fd: F) -> Result<Map<F>, BpfError> {
        let info = map_info(fd.as_fd())?;
        let size = info.value_size as usize;
        // Per-CPU maps give one value for each possible CPU, each padded to 8 bytes.
        let value_len = match info.ty {
            map_type::PERCPU_HASH
            | map_type::PERCPU_ARRAY
            | map_type::LRU_PERCPU_HASH
            | map_type::PERCPU_CGROUP_STORAGE => {
                size.next_multiple_of(8) * machine::possible_cpus().len()
            }
            _ => size,
        };
        Ok(Map {
            fd,
            info,
            value_len,
        })
    }

    /// The kernel's information about the map.
    #[must_use]
    pub fn info(&self) -> &MapInfo {
        &self.info
    }

    /// Length of a key in bytes.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.info.key_size as usize
    }

    /// Length of a value in bytes as it is read and written; for a per-CPU map, the values of all
    /// possible CPUs, each padded to 8.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    fn checked(&self, key: usize, value: Option<usize>) -> Result<(), BpfError> {
        if key != self.key_len() {
            return Err(BpfError::Argument("a key of another size than the map's"));
        }
        if value.is_some_and(|len| len != self.value_len) {
            return Err(BpfError::Argument("a value of another size than the map's"));
        }
        Ok(())
    }

    /// Reads the value of a key; `false` if the map has none.
    ///
    /// # Errors
    /// [`BpfError`].
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<bool, BpfError> {
        self.checked(key.len(), Some(value.len()))?;
        let mut attr = Attr::new()
            .fd(0, self.fd.as_fd())
            .input(8, key)
            .output(16, value);
        // SAFETY: key and value have the map's sizes, as just checked.
        present(unsafe { attr.call(Command::MapLookupElem) })
    }

    /// Writes the value of a key; flags are 0, `BPF_NOEXIST` (1) or `BPF_EXIST` (2).
    ///
    /// # Errors
    /// [`BpfError`]; `E2BIG` where the map is full.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), BpfError> {
        self.checked(key.len(), Some(value.len()))?;
        let mut attr = Attr::new()
            .fd(0, self.fd.as_fd())
            .input(8, key)
            .input(16, value)
            .u64(24, flags);
        // SAFETY: key and value have the map's sizes, as just checked.
        unsafe { attr.call(Command::MapUpdateElem) }.map(drop)
    }

    /// Deletes a key; `false` if the map had none.
    ///
    /// # Errors
    /// [`BpfError`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, BpfError> {
        self.checked(key.len(), None)?;
        let mut attr = Attr::new().fd(0, self.fd.as_fd()).input(8, key);
        // SAFETY: the key has the map's size, as just checked.
        present(unsafe { attr.call(Command::MapDeleteElem) })
    }

    /// Reads many entries at once, from the start or after an earlier batch; with `delete`, also
    /// removes them. `cursor` holds the position between calls; the first call takes an empty one.
    /// Buffers consist of entries one after another.
    ///
    /// # Errors
    /// [`BpfError`]; `ENOSPC` where a bucket of a hash map holds more entries
    /// than the buffers: call again with larger ones.
    pub fn batch(
        &self,
        cursor: &mut Vec<u8>,
        keys: &mut [u8],
        values: &mut [u8],
        delete: bool,
    ) -> Result<BatchResult, BpfError> {
        let most = self.entries(keys.len(), Some(values.len()))?;
        // Hash maps keep a bucket's number (4 bytes) here, arrays a key.
        let mut after = vec![0; self.key_len().max(8)];
        let mut attr = Attr::new()
            .output(8, &mut after)
            .output(16, keys)
            .output(24, values)
            .u32(32, most)
            .fd(36, self.fd.as_fd());
        if !cursor.is_empty() {
            cursor.resize(self.key_len().max(8), 0);
            attr = attr.input(0, cursor);
        }
        let command = if delete {
            Command::MapLookupAndDeleteBatch
        } else {
            Command::MapLookupBatch
        };
        // SAFETY: there is space for `most` entries; cursors are at least as long
        // as a key and as a bucket's number.
        let more = present(unsafe { attr.call(command) })?;
        let batch = BatchResult {
            count: attr.get(32) as usize,
            done: !more,
        };
        *cursor = after;
        Ok(batch)
    }

    /// Deletes many keys at once, which lie one after another in `keys`; stops at the first missing
    /// one (`done` is then false).
    ///
    /// # Errors
    /// [`BpfError`].
    pub fn delete_batch(&self, keys: &[u8]) -> Result<BatchResult, BpfError> {
        let count = self.entries(keys.len(), None)?;
        let mut attr = Attr::new()
            .input(16, keys)
            .u32(32, count)
            .fd(36, self.fd.as_fd());
        // SAFETY: `keys` holds `count` keys.
        let done = present(unsafe { attr.call(Command::MapDeleteBatch) })?;
        let count = if done { count } else { attr.get(32) };
        Ok(BatchResult {
            count: count as usize,
            done,
        })
    }

    /// Sets many entries at once, keys one after another in `keys`, values in `values`; stops at
    /// the first one that is refused.
    ///
    /// # Errors
    /// [`BpfError`]; `E2BIG` where the map is full.
    pub fn update_batch(&self, keys: &[u8], values: &[u8]) -> Result<(), BpfError> {
        let count = self.entries(keys.len(), Some(values.len()))?;
        let mut attr = Attr::new()
            .input(16, keys)
            .input(24, values)
            .u32(32, count)
            .fd(36, self.fd.as_fd());
        // SAFETY: there are `count` keys and values.
        unsafe { attr.call(Command::MapUpdateBatch) }.map(drop)
    }

    /// The number of entries for which the buffers have space.
    fn entries(&self, keys: usize, values: Option<usize>) -> Result<u32, BpfError> {
        let by_keys = keys.checked_div(self.key_len()).unwrap_or(0);
        let by_values = match values {
            Some(len) => len.checked_div(self.value_len).unwrap_or(0),
            None => by_keys,
        };
        match u32::try_from(by_keys.min(by_values)) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(BpfError::Argument("buffers that hold no entry")),
        }
    }
}

/// Turns "no such entry" into `false`.
pub(super) fn present(result: Result<i32, BpfError>) -> Result<bool, BpfError> {
    match result {
        Ok(_) => Ok(true),
        Err(e) if e.errno() == Some(Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}
