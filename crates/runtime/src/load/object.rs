//! Loads a compiled object into the kernel.
//!
//! In: the compiler's [`Object`], and maps that were created ahead. Out: [`KernelObject`], the
//! descriptors of its maps and programs by name.
//!
//! - Types come first, because some maps need them; then maps; then programs, whose instructions
//!   contain the maps' descriptors.
//! - As many threads as there are processors create large maps and load long programs: the verifier
//!   takes most of the time of a start.
//! - The lines of the kernel are read here if a handler looks them up.
//! - An error leaves nothing in the kernel: dropping closes the descriptors.
//!
//! Not done here: relocation (`spile_bpf::object::link`), messages about refusals, and attaching
//! (`load`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spile_bpf::layout::{Attach, CodeAttach, KERNEL_LINES_MAP, Object, ProgramInfo, critical};
use spile_bpf::object::elf::{ElfError, MapSpec, MapType, ObjectSpec};
use spile_bpf::object::link::{self, LinkedObject, MapRef};
use spile_kernel::bpf::{self, BpfError, Map, MapTypes, ProgSpec, load_btf, map_flag, map_freeze};
use spile_kernel::btf::Btf;

use crate::load::map_prealloc::{self, PremadeMaps, worth_a_thread};
use crate::load::parallel::{in_parallel, processors};
use crate::text::kernel_files::places::KernelLineTable;

/// Programs with fewer instructions are not worth a thread.
const WORTH_A_THREAD: usize = 500;
/// Names of the state memory and of the constants, in the style of a file's sections.
const BSS: &str = "spile.bss";
const RODATA: &str = "spile.rodata";

/// A loaded object.
pub(crate) struct KernelObject {
    /// The object's own maps.
    pub(crate) maps: HashMap<String, OwnedFd>,
    /// The state memory.
    pub(crate) state: Option<OwnedFd>,
    /// Programs.
    pub(crate) programs: HashMap<String, OwnedFd>,
    /// The error if the critical section could not be loaded; a session can do without it.
    pub(crate) uncritical: Option<BpfError>,
}

/// The reason why an object cannot be loaded.
pub(crate) enum LoadRefusal {
    /// The object is incomplete: a bug of the compiler.
    Incomplete(ElfError),
    /// The kernel refuses the types.
    Types(BpfError),
    /// The table of the kernel's lines cannot be created.
    KernelLines(io::Error),
    /// The kernel refuses to create this map.
    Map(String, BpfError),
    /// The kernel refuses this program.
    Program(String, BpfError),
}

/// Loads an object. Programs in `single` attach to places one by one, although the layout asks for
/// one link.
pub(crate) fn load(
    object: &Object,
    single: &[String],
    ahead: Option<PremadeMaps>,
) -> Result<KernelObject, LoadRefusal> {
    let mut linked = link::link(&object.spec).map_err(LoadRefusal::Incomplete)?;
    let btf = (!linked.btf.is_empty()).then(|| load_btf(&linked.btf));
    let btf = btf.transpose().map_err(LoadRefusal::Types)?;
    let mut maps = make_maps(&object.spec, &linked, btf.as_ref(), ahead)?;
    for program in &mut linked.programs {
        program.set_maps(|map| maps.get(&map).map_or(-1, AsRawFd::as_raw_fd));
    }
    let (programs, uncritical) = load_programs(object, &linked, btf.as_ref(), single)?;
    let state = maps.remove(&MapRef::Bss);
    let own = object.spec.maps.iter().enumerate();
    Ok(KernelObject {
        maps: own
            .filter_map(|(i, spec)| Some((spec.name.clone(), maps.remove(&MapRef::Map(i))?)))
            .collect(),
        state,
        programs,
        uncritical,
    })
}

/// All maps of an object: its own, the state memory and the constants.
fn map_specs(spec: &ObjectSpec) -> Vec<(MapRef, MapSpec)> {
    let data = |name: &str, bytes: usize, flags| MapSpec {
        name: name.into(),
        ty: MapType::Array,
        key_size: 4,
        value_size: u32::try_from(bytes).unwrap_or(u32::MAX),
        max_entries: 1,
        flags,
    };
    let own = spec.maps.iter().enumerate();
    let mut all: Vec<_> = own.map(|(i, m)| (MapRef::Map(i), m.clone())).collect();
    if spec.bss_size > 0 {
        let bss = data(BSS, spec.bss_size as usize, map_flag::MMAPABLE);
        all.push((MapRef::Bss, bss));
    }
    if !spec.rodata.is_empty() {
        let rodata = data(RODATA, spec.rodata.len(), map_flag::RDONLY_PROG);
        all.push((MapRef::Rodata, rodata));
    }
    all
}

fn make_maps(
    spec: &ObjectSpec,
    linked: &LinkedObject,
    btf: Option<&OwnedFd>,
    ahead: Option<PremadeMaps>,
) -> Result<HashMap<MapRef, OwnedFd>, LoadRefusal> {
    let mut ahead = ahead.map_or(Vec::new(), PremadeMaps::finish);
    let mut maps = HashMap::new();
    let mut missing = Vec::new();
    for (map, spec) in map_specs(spec) {
        if spec.name == KERNEL_LINES_MAP {
            let lines = KernelLineTable::of_machine().map(spec.flags);
            maps.insert(map, lines.map_err(LoadRefusal::KernelLines)?);
            continue;
        }
        match map_prealloc::take(&mut ahead, &spec) {
            Some(fd) => _ = maps.insert(map, fd),
            None => missing.push((map, spec)),
        }
    }
    let types = |map: MapRef| {
        let typed = linked.map_types.iter();
        let (_, [key, value]) = *typed.clone().find(|(i, _)| MapRef::Map(*i) == map)?;
        let btf = btf?.as_fd();
        Some(MapTypes { btf, key, value })
    };
    let large = missing
        .iter()
        .filter(|(_, s)| worth_a_thread(s.max_entries, s.value_size));
    let threads = large.count().min(processors());
    let made = in_parallel(missing, threads, |(map, spec)| {
        (map, map_prealloc::create_map(&spec, types(map)), spec.name)
    });
    for (map, fd, name) in made {
        maps.insert(map, fd.map_err(|e| LoadRefusal::Map(name, e))?);
    }
    if let Some(rodata) = maps.get(&MapRef::Rodata) {
        write_constants(rodata, &spec.rodata).map_err(|e| LoadRefusal::Map(RODATA.into(), e))?;
    }
    Ok(maps)
}

/// Writes the constants, which are frozen afterwards.
fn write_constants(map: &OwnedFd, bytes: &[u8]) -> Result<(), BpfError> {
    Map::new(map.as_fd())?.update(&0u32.to_ne_bytes(), bytes, 0)?;
    map_freeze(map.as_fd())
}

/// The program type, the expected attach type, and the BTF id of the target function; 0 for none.
fn kind(info: &ProgramInfo, single: &[String]) -> [u32; 3] {
    let kind = info.attach.program_type();
    let function = match &info.attach {
        Attach::Code {
            by: CodeAttach::Trampoline(typed),
            ..
        } => typed.id,
        // An unknown hook has id 0, which the kernel refuses.
        Attach::Lsm(hook) => Btf::vmlinux()
            .ok()
            .and_then(|btf| btf.find_func(&format!("bpf_lsm_{hook}")))
            .unwrap_or(0),
        _ => 0,
    };
    let attach_type = match single.contains(&info.name) {
        true => 0,
        false => kind.attach_type,
    };
    [kind.ty, attach_type, function]
}

fn load_programs(
    object: &Object,
    linked: &LinkedObject,
    btf: Option<&OwnedFd>,
    single: &[String],
) -> Result<(HashMap<String, OwnedFd>, Option<BpfError>), LoadRefusal> {
    let infos = &object.layout.programs;
    let mut specs: Vec<ProgSpec<'_>> = linked
        .programs
        .iter()
        .filter_map(|program| {
            let info = infos.iter().find(|info| info.name == program.name)?;
            let [ty, attach_type, attach_btf_id] = kind(info, single);
            Some(ProgSpec {
                ty,
                insns: &program.insns,
                name: &program.name,
                attach_type,
                attach_btf_id,
                btf: btf.map(AsFd::as_fd),
                functions: &program.functions,
                lines: &program.lines,
                ..ProgSpec::default()
            })
        })
        .collect();
    // The longest first, so that none of them is left for the end.
    specs.sort_by_key(|s| std::cmp::Reverse(s.insns.len()));
    let worth = specs.iter().filter(|s| s.insns.len() >= WORTH_A_THREAD);
    let threads = worth.count().min(processors());
    // After a failure the rest need not be loaded.
    let failed = AtomicBool::new(false);
    let outcomes = in_parallel(specs, threads, |spec| {
        if failed.load(Relaxed) {
            return None;
        }
        let outcome = bpf::load(&spec);
        let needed = spec.name != critical::PROGRAM;
        failed.fetch_or(needed && outcome.is_err(), Relaxed);
        Some((spec.name.to_owned(), outcome))
    });
    let (mut programs, mut uncritical) = (HashMap::new(), None);
    for (name, outcome) in outcomes.into_iter().flatten() {
        match outcome {
            Ok(fd) => _ = programs.insert(name, fd),
            Err(why) if name == critical::PROGRAM => uncritical = Some(why),
            Err(why) => return Err(LoadRefusal::Program(name, why)),
        }
    }
    Ok((programs, uncritical))
}
