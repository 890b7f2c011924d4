//! An object's maps, made while its code is still being generated: the kernel takes as long for large
//! ones as all of the code takes.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::OpenObject;
use spile_bpf::elf::MapSpec;
use spile_bpf::layout::KERNEL_LINES_MAP;
use spile_kernel::bpf;

use crate::error::Error;
use crate::kernel_files::places::Places;
use crate::side_by_side::{Begun, begin, processors, side_by_side};

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
            let made = bpf::map_create(&bpf::MapSpec {
                ty: spec.ty as u32,
                key_size: spec.key_size,
                value_size: spec.value_size,
                max_entries: spec.max_entries,
                flags: spec.flags,
                name: &spec.name,
            });
            (spec, made.ok())
        }))
    }

    /// Those that there are, when all are made.
    pub(crate) fn finish(self) -> Vec<Made> {
        self.0.finish()
    }
}

/// Takes the map that libbpf would make like this from those that were made.
pub(crate) fn take(made: &mut Vec<Made>, like: &bpf::MapSpec<'_>) -> Option<OwnedFd> {
    let same = |spec: &MapSpec| {
        let numbers = [spec.key_size, spec.value_size, spec.max_entries, spec.flags];
        let wanted = [like.key_size, like.value_size, like.max_entries, like.flags];
        spec.name == like.name && spec.ty as u32 == like.ty && numbers == wanted
    };
    let at = made
        .iter()
        .position(|(spec, fd)| fd.is_some() && same(spec))?;
    made.swap_remove(at).1
}

/// Gives libbpf new maps that have no contents yet: tables are made several at a time, and state
/// memory is zero already, which libbpf would fill with zeros from a mapping that has to be paged in
/// for that (2 ms for 300 KB). Where this fails libbpf makes the map, and says what is wrong. Those
/// that were begun before are taken first.
///
/// The lines of the kernel are read here, where a handler looks them up.
pub(crate) fn provide(open: &mut OpenObject, ahead: Option<Tables>) -> Result<(), Error> {
    let mut ahead = ahead.map_or(Vec::new(), Tables::finish);
    // Sections of the object other than this one have contents.
    let empty = |name: &str| !name.contains('.') || name.ends_with(".bss");
    let mut maps: Vec<_> = open.maps_mut().collect();
    let names: Vec<String> = maps
        .iter()
        .map(|m| m.name().to_string_lossy().into_owned())
        .collect();
    let specs: Vec<(usize, bpf::MapSpec<'_>)> = (maps.iter().zip(&names).enumerate())
        .filter(|(_, (_, name))| empty(name))
        .map(|(i, (map, name))| {
            let spec = bpf::MapSpec {
                ty: map.map_type() as u32,
                key_size: map.key_size(),
                value_size: map.value_size(),
                max_entries: map.max_entries(),
                flags: map.map_flags(),
                name,
            };
            (i, spec)
        })
        .collect();
    let mut made = Vec::new();
    let mut missing = Vec::new();
    for (i, spec) in specs {
        if spec.name == KERNEL_LINES_MAP {
            let map = Places::of_machine().map(spec.flags);
            let map =
                map.map_err(|e| Error::System("making the table of the kernel's lines", e))?;
            made.push((i, Ok(map)));
            continue;
        }
        match take(&mut ahead, &spec) {
            Some(fd) => made.push((i, Ok(fd))),
            None => missing.push((i, spec)),
        }
    }
    let large = missing
        .iter()
        .filter(|s| worth_a_thread(s.1.max_entries, s.1.value_size));
    let threads = large.count().min(processors());
    let rest = side_by_side(missing, threads, |(i, spec)| (i, bpf::map_create(&spec)));
    made.extend(rest);
    for (i, fd) in made {
        if let Ok(fd) = fd {
            // A map that is not taken is closed again.
            let _ = maps[i].reuse_fd(fd.as_fd());
        }
    }
    Ok(())
}
