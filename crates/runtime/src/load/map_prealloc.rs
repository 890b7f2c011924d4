//! Creates an object's maps while its code is still being generated: large maps take the kernel as
//! long as all of the code takes to compile.

use std::os::fd::OwnedFd;

use spile_bpf::object::elf::{MapSpec, MapType};
use spile_kernel::bpf::{self, BpfError, MapTypes, map_flag};

use crate::machine::parallel::{Pending, begin, processors};

/// A table with this number of elements is worth a thread: creating its buckets takes a
/// millisecond.
const MANY_ELEMENTS: u32 = 32 << 10;
/// An array with this number of bytes is worth a thread.
const MANY_BYTES: u64 = 2 << 20;
/// The name of the state memory, in the style of a file's sections.
const BSS: &str = "spile.bss";

/// Whether creating a map of this size is worth a thread.
pub(crate) fn worth_a_thread(elements: u32, bytes: u32) -> bool {
    elements >= MANY_ELEMENTS || u64::from(elements) * u64::from(bytes) >= MANY_BYTES
}

/// The state memory, if the object has any.
pub(crate) fn state_memory(bytes: u32) -> Option<MapSpec> {
    (bytes > 0).then(|| data_map(BSS, bytes, map_flag::MMAPABLE))
}

/// A map of one element.
pub(crate) fn data_map(name: &str, bytes: u32, flags: u32) -> MapSpec {
    MapSpec {
        name: name.into(),
        ty: MapType::Array,
        key_size: 4,
        value_size: bytes,
        max_entries: 1,
        flags,
    }
}

/// A specification with its map; `None` if the kernel refused it.
type CreatedMap = (MapSpec, Option<OwnedFd>);

/// Maps that are being created.
pub struct PremadeMaps(Pending<MapSpec, CreatedMap>);

impl PremadeMaps {
    /// Starts to create the maps of a plan and the state memory with `state` bytes, the large ones
    /// first, in threads if there are several processors.
    pub fn begin(plan: &[MapSpec], state: u32) -> PremadeMaps {
        let mut specs = plan.to_vec();
        specs.extend(state_memory(state));
        let bytes = |s: &MapSpec| u64::from(s.max_entries) * u64::from(16 + s.value_size);
        specs.sort_by_key(|s| std::cmp::Reverse(bytes(s)));
        let large = specs
            .iter()
            .filter(|s| worth_a_thread(s.max_entries, s.value_size));
        let threads = large.count().min(processors() - 1);
        PremadeMaps(begin(specs, threads, |spec| {
            let made = create_map(&spec, None);
            (spec, made.ok())
        }))
    }

    /// Waits for all maps and returns them.
    pub(crate) fn finish(self) -> Vec<CreatedMap> {
        self.0.finish()
    }
}

/// Takes a map with this specification from those that were created.
pub(crate) fn take(made: &mut Vec<CreatedMap>, like: &MapSpec) -> Option<OwnedFd> {
    let index = made
        .iter()
        .position(|(spec, fd)| fd.is_some() && spec == like)?;
    made.swap_remove(index).1
}

/// Creates a map.
pub(crate) fn create_map(spec: &MapSpec, types: Option<MapTypes<'_>>) -> Result<OwnedFd, BpfError> {
    bpf::map_create(&bpf::MapAttr {
        ty: spec.ty as u32,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: spec.max_entries,
        flags: spec.flags,
        name: &spec.name,
        types,
    })
}
