//! An object's maps, made while its code is still being generated: the kernel takes as long for large
//! ones as all of the code takes.

use std::os::fd::OwnedFd;

use spile_bpf::object::elf::MapSpec;
use spile_kernel::bpf::{self, BpfError, MapTypes};

use crate::load::parallel::{Begun, begin, processors};

/// A table with room for so many elements is worth a thread: its buckets take a millisecond.
const MANY_ELEMENTS: u32 = 32 << 10;
/// The same of an array of so many bytes.
const MANY_BYTES: u64 = 2 << 20;

/// Whether a map of so many elements of so many bytes is worth a thread.
pub(crate) fn worth_a_thread(elements: u32, bytes: u32) -> bool {
    elements >= MANY_ELEMENTS || u64::from(elements) * u64::from(bytes) >= MANY_BYTES
}

/// A map as it was asked for; none where the kernel refuses it.
type Made = (MapSpec, Option<OwnedFd>);

/// Maps that are being made.
pub struct Tables(Begun<MapSpec, Made>);

impl Tables {
    /// Begins to make them: the large ones first, by threads where there are processors for them.
    pub fn begin(specs: &[MapSpec]) -> Tables {
        let mut specs = specs.to_vec();
        let bytes = |s: &MapSpec| u64::from(s.max_entries) * u64::from(16 + s.value_size);
        specs.sort_by_key(|s| std::cmp::Reverse(bytes(s)));
        let large = specs
            .iter()
            .filter(|s| worth_a_thread(s.max_entries, s.value_size));
        let threads = large.count().min(processors() - 1);
        Tables(begin(specs, threads, |spec| {
            let made = make(&spec, None);
            (spec, made.ok())
        }))
    }

    /// Those that there are, when all are made.
    pub(crate) fn finish(self) -> Vec<Made> {
        self.0.finish()
    }
}

/// Takes a map like this from those that were made.
pub(crate) fn take(made: &mut Vec<Made>, like: &MapSpec) -> Option<OwnedFd> {
    let at = made
        .iter()
        .position(|(spec, fd)| fd.is_some() && spec == like)?;
    made.swap_remove(at).1
}

/// Makes a map.
pub(crate) fn make(spec: &MapSpec, types: Option<MapTypes<'_>>) -> Result<OwnedFd, BpfError> {
    bpf::map_create(&bpf::MapSpec {
        ty: spec.ty as u32,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: spec.max_entries,
        flags: spec.flags,
        name: &spec.name,
        types,
    })
}
