//! The state memory: the words that BPF programs and the controller share (see
//! [`spile_layout`]). The kernel writes them while they are read here, so every access is
//! atomic; only the mapping itself needs unsafe code.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spile_cast::Cast;
use spile_ir::Ty;
use spile_ir::interp::{Cell, Value};
use spile_ir::stats::Stat;
use spile_kernel::mapping::{MapAccess, MappedPages};
use spile_layout::{
    AggLayout, GlobalLocation, Layout, PerCpuArray, ValueLayout, counters, percpu, shared,
};

use crate::error::Error;
use crate::machine::pid_namespace;

/// Reads a statistic with a function from byte offset to word. Fields that the layout does not have
/// get the values of an empty statistic.
pub fn read_stats(layout: &AggLayout, word: impl Fn(u32) -> u64) -> Stat {
    let mut stat = Stat {
        count: word(layout.count),
        ..Stat::default()
    };
    if let Some((first, n)) = layout.hist {
        stat.buckets = (0..n).map(|i| word(first + 8 * i)).collect();
    }
    // Minimum and maximum are undefined in an empty one.
    if stat.count == 0 {
        return stat;
    }
    stat.sum = layout
        .sum
        .map_or(stat.sum, |o| word(o).cast_signed().into());
    stat.min = layout.min.map_or(stat.min, |o| word(o).cast_signed());
    stat.max = layout.max.map_or(stat.max, |o| word(o).cast_signed());
    let wide = |o: u32| u128::from(word(o)) | u128::from(word(o + 8)) << 64;
    stat.sumsq = layout.sumsq.map_or(stat.sumsq, wide);
    stat
}

/// Passes the words of a statistic, by byte offset, to a function.
pub fn write_stats(stat: &Stat, layout: &AggLayout, mut store: impl FnMut(u32, u64)) {
    let empty = stat.count == 0;
    let or_zero = |v: i64| if empty { 0 } else { v.cast_unsigned() };
    store(layout.count, stat.count);
    let words = [
        (layout.sum, stat.sum.low64()),
        (layout.min, or_zero(stat.min)),
        (layout.max, or_zero(stat.max)),
    ];
    for (offset, word) in words {
        if let Some(offset) = offset {
            store(offset, word);
        }
    }
    if let Some(offset) = layout.sumsq {
        store(offset, stat.sumsq.low64());
        store(offset + 8, (stat.sumsq >> 64) as u64);
    }
    if let Some((first, n)) = layout.hist {
        for i in 0..n {
            store(
                first + 8 * i,
                stat.buckets.get(i as usize).copied().unwrap_or(0),
            );
        }
    }
}

/// Reads an element or a scalar of this layout.
pub fn read_cell(layout: &ValueLayout, word: impl Fn(u32) -> u64) -> Cell {
    match layout {
        ValueLayout::Scalar(ty) => Cell::Scalar(read_value(*ty, word)),
        ValueLayout::Stats(agg) => Cell::Stats(read_stats(agg, word)),
    }
}

/// The words of an element or a scalar.
pub fn cell_bytes(cell: &Cell, layout: &ValueLayout) -> Vec<u8> {
    let mut bytes = vec![0; layout.size() as usize];
    match (cell, layout) {
        (Cell::Stats(s), ValueLayout::Stats(agg)) => write_stats(s, agg, |offset, word| {
            let offset = offset as usize;
            if let Some(location) = bytes.get_mut(offset..offset + 8) {
                location.copy_from_slice(&word.to_ne_bytes());
            }
        }),
        (Cell::Scalar(v), ValueLayout::Scalar(ty)) => return value_bytes(v, *ty),
        // Layout and program come from the same compiler and agree.
        _ => {}
    }
    bytes
}

/// The bytes of a number or of a string with its padding.
pub fn value_bytes(value: &Value, ty: Ty) -> Vec<u8> {
    let mut bytes = vec![0; ty.size() as usize];
    match value {
        Value::Long(n) => bytes[..8].copy_from_slice(&n.to_ne_bytes()),
        Value::Str(s) => {
            let n = s.len().min(bytes.len().saturating_sub(1));
            bytes[..n].copy_from_slice(&s[..n]);
        }
    }
    bytes
}

/// Reads a number or a string.
fn read_value(ty: Ty, word: impl Fn(u32) -> u64) -> Value {
    let Ty::Str(width) = ty else {
        return Value::Long(word(0).cast_signed());
    };
    let mut bytes = Vec::new();
    for offset in (0..u32::from(width)).step_by(8) {
        let part = word(offset).to_ne_bytes();
        match part.iter().position(|&b| b == 0) {
            Some(end) => {
                bytes.extend_from_slice(&part[..end]);
                break;
            }
            None => bytes.extend_from_slice(&part),
        }
    }
    Value::from(&bytes[..])
}

/// The keys that a byte string contains, one after the other.
pub fn read_keys(types: &[Ty], bytes: &[u8]) -> Vec<Value> {
    let mut offset = 0;
    types
        .iter()
        .map(|ty| {
            let rest = bytes.get(offset..).unwrap_or_default();
            offset += ty.size() as usize;
            read_value(*ty, |o| word_of(rest, o))
        })
        .collect()
}

/// The bytes of keys, one after the other.
pub fn key_bytes(types: &[Ty], keys: &[Value]) -> Vec<u8> {
    types
        .iter()
        .zip(keys)
        .flat_map(|(ty, key)| value_bytes(key, *ty))
        .collect()
}

/// The 64-bit word at a byte offset; 0 past the end.
pub fn word_of(bytes: &[u8], offset: u32) -> u64 {
    let offset = offset as usize;
    match bytes.get(offset..offset + 8) {
        Some(b) => u64::from_ne_bytes(b.try_into().unwrap_or_default()),
        None => 0,
    }
}

/// Memory that contains the words: the elements of an array of the kernel.
pub(crate) struct WordMemory(MappedPages);

/// Memory that a host shares: the elements of an array map, or a part of a file in memory.
#[derive(Debug)]
pub struct HostMemory {
    file: OwnedFd,
    /// Where it begins in the file, a multiple of the page size.
    start: u64,
}

impl HostMemory {
    /// The memory from an offset of a file on, which is a multiple of the page size.
    pub fn new(file: OwnedFd, start: u64) -> HostMemory {
        HostMemory { file, start }
    }

    /// Maps `bytes` bytes from offset `from` on; both are multiples of the page size.
    pub(crate) fn map(&self, from: u64, bytes: usize) -> io::Result<WordMemory> {
        MappedPages::new(&self.file, self.start + from, bytes, MapAccess::Write).map(WordMemory)
    }
}

/// The elements of an array map.
impl From<OwnedFd> for HostMemory {
    fn from(map: OwnedFd) -> HostMemory {
        HostMemory::new(map, 0)
    }
}

impl WordMemory {
    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let (start, words) = (self.0.start().cast(), self.0.bytes() / 8);
        // SAFETY: the mapping has that many words, lives as long as self, and is only ever
        // accessed through atomics here.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), words) }
    }
}

/// The state memory of one object.
pub struct StateMemory {
    memory: WordMemory,
    shared_size: u32,
    stride: u32,
    cpus: u32,
}

impl StateMemory {
    /// Size in bytes that a layout requires.
    pub fn size(layout: &Layout) -> usize {
        layout.shared_size as usize + layout.cpu_stride as usize * layout.cpus as usize
    }

    /// Maps memory with `len` bytes.
    ///
    /// # Errors
    /// The layout is invalid, or the memory cannot be mapped.
    pub fn map(layout: &Layout, memory: &HostMemory, len: usize) -> Result<StateMemory, Error> {
        check(layout, len)?;
        // The kernel maps whole pages.
        let bytes = len.next_multiple_of(rustix::param::page_size());
        let memory = memory
            .map(0, bytes)
            .map_err(|e| Error::System("mapping the state memory", e))?;
        Ok(StateMemory {
            memory,
            shared_size: layout.shared_size,
            stride: layout.cpu_stride,
            cpus: layout.cpus,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Number of per-CPU areas.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// A word of the shared area.
    pub fn shared(&self, offset: u32) -> &AtomicU64 {
        &self.words()[offset as usize / 8]
    }

    /// A word of a per-CPU area.
    pub fn cpu(&self, cpu: u32, offset: u32) -> &AtomicU64 {
        let block = self.shared_size as usize + cpu as usize * self.stride as usize;
        &self.words()[(block + offset as usize) / 8]
    }

    /// The sum over all CPUs of a word in their blocks.
    pub fn sum(&self, offset: u32) -> u64 {
        (0..self.cpus)
            .map(|cpu| self.cpu(cpu, offset).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    /// A value in the shared area.
    pub fn get(&self, offset: u32, layout: &ValueLayout) -> Cell {
        read_cell(layout, |o| self.shared(offset + o).load(Ordering::Relaxed))
    }

    /// Stores a value in the shared area.
    pub fn set(&self, offset: u32, layout: &ValueLayout, cell: &Cell) {
        let bytes = cell_bytes(cell, layout);
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            self.shared(offset + 8 * i.fit::<u32>())
                .store(word, Ordering::Relaxed);
        }
    }

    /// Reads and zeroes a value of a per-CPU area.
    pub fn take(&self, cpu: u32, offset: u32, layout: &ValueLayout) -> Cell {
        let value = read_cell(layout, |o| {
            self.cpu(cpu, offset + o).load(Ordering::Relaxed)
        });
        self.zero(cpu, offset, layout.size());
        value
    }

    /// Zeros bytes of a per-CPU area.
    pub fn zero(&self, cpu: u32, offset: u32, size: u32) {
        for o in (0..size).step_by(8) {
            self.cpu(cpu, offset + o).store(0, Ordering::Relaxed);
        }
    }

    /// Reads bytes of a per-CPU area.
    pub fn bytes(&self, cpu: u32, offset: u32, size: u32) -> Vec<u8> {
        (0..size)
            .step_by(8)
            .flat_map(|o| {
                self.cpu(cpu, offset + o)
                    .load(Ordering::Relaxed)
                    .to_ne_bytes()
            })
            .collect()
    }

    /// Takes the lock at `offset`; false after `timeout`. The holder is a handler that runs for
    /// microseconds, so the wait spins at first.
    pub fn lock(&self, offset: u32, timeout: Duration) -> bool {
        let word = self.shared(offset);
        // Kernel handlers write a small number; they recognise their own process in the upper half.
        let holder = u64::from(pid_namespace::own_pid()) << 32;
        let since = Instant::now();
        for turn in 0u32.. {
            if word
                .compare_exchange(0, holder, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
            if turn < 200 {
                std::hint::spin_loop();
            } else if since.elapsed() >= timeout {
                return false;
            } else {
                std::thread::yield_now();
            }
        }
        false
    }

    /// Releases the lock at `offset`.
    pub fn unlock(&self, offset: u32) {
        self.shared(offset).store(0, Ordering::Release);
    }

    /// Enables or disables kernel handlers.
    pub fn set_running(&self, on: bool) {
        self.shared(shared::RUNNING)
            .store(u64::from(on), Ordering::SeqCst);
    }

    /// Whether kernel handlers may run.
    pub fn running(&self) -> bool {
        self.shared(shared::RUNNING).load(Ordering::SeqCst) != 0
    }

    /// Whether a handler called `exit()`.
    pub fn exit_wanted(&self) -> bool {
        self.shared(shared::EXIT).load(Ordering::Acquire) != 0
    }

    /// Makes handlers that start from now on use the other generation; returns the previous one.
    pub fn flip(&self) -> u32 {
        (self
            .shared(shared::GENERATION)
            .fetch_xor(1, Ordering::SeqCst)
            & 1) as u32
    }

    /// The current generation.
    pub fn generation(&self) -> u32 {
        (self.shared(shared::GENERATION).load(Ordering::SeqCst) & 1) as u32
    }

    /// Whether a handler runs on this CPU.
    pub fn busy(&self, cpu: u32) -> bool {
        self.cpu(cpu, percpu::BUSY).load(Ordering::Acquire) != 0
    }
}

/// Checks that everything in a layout lies inside of the memory.
fn check(layout: &Layout, len: usize) -> Result<(), Error> {
    let bad = |what: &str| {
        let why = format!("the object's layout is wrong: {what}");
        Err(Error::Internal(why))
    };
    if layout.shared_size < shared::END || !layout.shared_size.is_multiple_of(8) {
        return bad("shared area");
    }
    if layout.cpu_stride < percpu::END || !layout.cpu_stride.is_multiple_of(8) || layout.cpus == 0 {
        return bad("per-CPU areas");
    }
    if StateMemory::size(layout) > len {
        return bad("state memory is too small");
    }
    let fits = |offset: u32, size: u32, limit: u32| {
        offset.is_multiple_of(8) && u64::from(offset) + u64::from(size) <= u64::from(limit)
    };
    for global in layout.globals.iter().flatten() {
        if global
            .lock
            .is_some_and(|offset| !fits(offset, 8, layout.shared_size))
        {
            return bad("lock");
        }
        let ok = match &global.location {
            GlobalLocation::Scalar { offset, ty } => fits(*offset, ty.size(), layout.shared_size),
            GlobalLocation::Stats { offset, agg } => fits(*offset, agg.size, layout.shared_size),
            GlobalLocation::Hash { .. } => true,
            GlobalLocation::PerCpuScalar {
                offset,
                gen_stride,
                value,
            } => fits(
                offset.saturating_add(*gen_stride),
                value.size(),
                layout.cpu_stride,
            ),
            GlobalLocation::PerCpuArray(
                array @ PerCpuArray {
                    cache,
                    gen_stride,
                    slots,
                    slot_size,
                    key_size,
                    value,
                    colocated,
                    spilt,
                    large,
                    ..
                },
            ) => {
                let words = [*spilt, large.map(|large| large.spare)];
                let generations = if array.double() { 2 } else { 1 };
                words
                    .into_iter()
                    .flatten()
                    .all(|offset| fits(offset, 8 * generations, layout.cpu_stride))
                    && large.is_none_or(|l| l.slot_size == key_size + value.size())
                    && colocated.offset.saturating_add(value.size()) <= colocated.size
                    && key_size.saturating_add(colocated.size) <= slot_size.saturating_sub(8)
                    && fits(
                        cache.saturating_add(*gen_stride),
                        slots.saturating_mul(*slot_size),
                        layout.cpu_stride,
                    )
            }
        };
        if !ok {
            return bad("global");
        }
    }
    for handler in layout.handlers.iter().flatten() {
        if !fits(handler.counters, counters::HITS + 8, layout.cpu_stride) {
            return bad("handler counters");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_layout::GlobalLayout;

    /// A layout with one global.
    pub(crate) fn layout(location: GlobalLocation) -> Layout {
        Layout {
            shared_size: 256,
            cpu_stride: 1024,
            cpus: 2,
            globals: vec![Some(GlobalLayout {
                lock: Some(shared::END),
                location,
            })],
            handlers: vec![None],
            ..Layout::default()
        }
    }

    fn agg() -> AggLayout {
        AggLayout {
            count: 0,
            sum: Some(8),
            min: None,
            max: Some(16),
            sumsq: Some(24),
            hist: Some((40, 3)),
            size: 64,
        }
    }

    #[test]
    fn values_survive() {
        let state = StateMemory::in_memory(&layout(GlobalLocation::Scalar {
            offset: 136,
            ty: Ty::Long,
        }))
        .unwrap();
        let stats = Stat {
            count: 2,
            sum: -5,
            max: 9,
            sumsq: u128::MAX - 7,
            buckets: vec![1, 0, 1],
            ..Stat::default()
        };
        for (layout, value) in [
            (ValueLayout::Scalar(Ty::Long), Cell::Scalar(Value::Long(-3))),
            (
                ValueLayout::Scalar(Ty::Str(16)),
                Cell::Scalar("eleven char".into()),
            ),
            (ValueLayout::Scalar(Ty::Str(8)), Cell::Scalar("".into())),
            (ValueLayout::Stats(agg()), Cell::Stats(stats)),
        ] {
            state.set(136, &layout, &value);
            assert_eq!(state.get(136, &layout), value);
            let bytes = cell_bytes(&value, &layout);
            assert_eq!(read_cell(&layout, |o| word_of(&bytes, o)), value);
        }
    }

    #[test]
    fn long_strings_are_cut() {
        assert_eq!(value_bytes(&"123456789".into(), Ty::Str(8)), b"1234567\0");
        let types = [Ty::Str(8), Ty::Long];
        let keys = [Value::from("ab"), Value::Long(-2)];
        assert_eq!(read_keys(&types, &key_bytes(&types, &keys)), keys);
    }

    #[test]
    fn locks_exclude() {
        let state = StateMemory::in_memory(&layout(GlobalLocation::Scalar {
            offset: 136,
            ty: Ty::Long,
        }))
        .unwrap();
        assert!(state.lock(shared::END, Duration::from_millis(1)));
        assert!(!state.lock(shared::END, Duration::from_millis(1)));
        state.unlock(shared::END);
        assert!(state.lock(shared::END, Duration::from_millis(1)));
    }

    #[test]
    fn generations_alternate() {
        let state = StateMemory::in_memory(&layout(GlobalLocation::Scalar {
            offset: 136,
            ty: Ty::Long,
        }))
        .unwrap();
        assert_eq!(
            (state.generation(), state.flip(), state.generation()),
            (0, 0, 1)
        );
        assert_eq!((state.flip(), state.generation()), (1, 0));
    }

    #[test]
    fn wrong_layouts_are_refused() {
        let ok = layout(GlobalLocation::Scalar {
            offset: 136,
            ty: Ty::Long,
        });
        assert!(StateMemory::in_memory(&ok).is_ok());
        let mut small = ok.clone();
        small.shared_size = 64;
        let mut none = ok.clone();
        none.cpus = 0;
        let value = ValueLayout::Scalar(Ty::Long);
        for bad in [
            small,
            none,
            layout(GlobalLocation::Scalar {
                offset: 256,
                ty: Ty::Long,
            }),
            layout(GlobalLocation::Scalar {
                offset: 250,
                ty: Ty::Long,
            }),
            layout(GlobalLocation::Stats {
                offset: 200,
                agg: agg(),
            }),
            layout(GlobalLocation::PerCpuScalar {
                offset: 1016,
                gen_stride: 8,
                value,
            }),
        ] {
            assert!(StateMemory::in_memory(&bad).is_err());
        }
    }
}
