//! Loads a compiled object into the kernel.
//!
//! In: the compiler's [`Object`], and maps that were created ahead. Out: [`MappedObject`] and then
//! [`KernelPrograms`], the descriptors of its maps and programs by name.
//!
//! - Types come first, because some maps need them; then maps; then programs, whose instructions
//!   contain the maps' descriptors.
//! - As many threads as there are processors create large maps and load long programs: the verifier
//!   takes most of the time of a start.
//! - The lines of the kernel are read here if a handler looks them up.
//! - A program that is alone at its tracepoints is attached by the thread that loaded it: attaching
//!   takes the kernel 0.1 ms for each tracepoint, during which other programs load.
//! - An error leaves nothing in the kernel: dropping closes the descriptors.
//!
//! Not done here: relocation (`spile_bpf::object::link`), messages about refusals, and all other
//! attaching (`load`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spile_bpf::compiled::{Attach, CRITICAL_PROGRAM, Object, ProgramInfo, TargetFunction};
use spile_bpf::object::elf::{ElfError, MapSpec, ObjectSpec};
use spile_bpf::object::link::{self, LinkedObject, MapRef};
use spile_cast::Cast;
use spile_kernel::bpf::{
    self, BpfError, Map, MapTypes, ProgSpec, load_btf, map_flag, map_freeze, raw_tracepoint_open,
};
use spile_kernel::btf::Btf;
use spile_layout::KERNEL_LINES_MAP;

use crate::error::to_io_error;
use crate::load::map_prealloc::{self, PremadeMaps, data_map, state_memory, worth_a_thread};
use crate::machine::parallel::{in_parallel, processors};
use crate::text::kernel_files::locations::KernelLineTable;
use crate::text::user_files::names::write;

/// Programs with fewer instructions are not worth a thread.
const WORTH_A_THREAD: usize = 500;
/// The number of instructions that take the kernel as long to verify as one tracepoint to attach to.
const POINT_INSNS: usize = 60;
/// The tracepoint of switches between tasks.
const SWITCH: &str = "sched_switch";
/// The name of the constants, in the style of a file's sections.
const RODATA: &str = "spile.rodata";

/// An object whose maps are in the kernel, and whose programs are not yet.
pub(crate) struct MappedObject<'a> {
    object: &'a Object,
    linked: LinkedObject,
    btf: Option<OwnedFd>,
    /// The object's own maps.
    pub(crate) maps: HashMap<String, OwnedFd>,
    /// The state memory.
    pub(crate) state: Option<OwnedFd>,
    /// The constants; the programs hold them later.
    _rodata: Option<OwnedFd>,
}

/// The loaded programs of an object.
#[derive(Default)]
pub(crate) struct KernelPrograms {
    /// Programs.
    pub(crate) programs: HashMap<String, OwnedFd>,
    /// The links of programs that are attached already.
    pub(crate) points: HashMap<String, PointLinks>,
    /// The error if the critical section could not be loaded; a session can do without it.
    pub(crate) uncritical: Option<BpfError>,
}

/// A program's links to its tracepoints, or the error with the name of the tracepoint.
pub(crate) type PointLinks = Result<Vec<OwnedFd>, (String, BpfError)>;

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

impl MappedObject<'_> {
    /// Links an object and makes its maps.
    pub(crate) fn new(
        object: &Object,
        ahead: Option<PremadeMaps>,
    ) -> Result<MappedObject<'_>, LoadRefusal> {
        let mut linked = link::link(&object.spec).map_err(LoadRefusal::Incomplete)?;
        let btf = (!linked.btf.is_empty()).then(|| load_btf(&linked.btf));
        let btf = btf.transpose().map_err(LoadRefusal::Types)?;
        let mut maps = make_maps(&object.spec, &linked, btf.as_ref(), ahead)?;
        for program in &mut linked.programs {
            program.set_maps(|map| maps.get(&map).map_or(-1, AsRawFd::as_raw_fd));
        }
        let (state, rodata) = (maps.remove(&MapRef::Bss), maps.remove(&MapRef::Rodata));
        let maps_of_object = object.spec.maps.iter().enumerate();
        let maps_of_object = maps_of_object
            .filter_map(|(i, spec)| Some((spec.name.clone(), maps.remove(&MapRef::Map(i))?)));
        Ok(MappedObject {
            object,
            linked,
            btf,
            maps: maps_of_object.collect(),
            state,
            _rodata: rodata,
        })
    }
}

/// All maps of an object: its own, the state memory and the constants.
fn map_specs(spec: &ObjectSpec) -> Vec<(MapRef, MapSpec)> {
    let maps_of_object = spec.maps.iter().enumerate();
    let mut specs: Vec<_> = maps_of_object
        .map(|(i, m)| (MapRef::Map(i), m.clone()))
        .collect();
    specs.extend(state_memory(spec.bss_size).map(|bss| (MapRef::Bss, bss)));
    if !spec.rodata.is_empty() {
        let bytes = u32::try_from(spec.rodata.len()).unwrap_or(u32::MAX);
        let rodata = data_map(RODATA, bytes, map_flag::RDONLY_PROG);
        specs.push((MapRef::Rodata, rodata));
    }
    specs
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
            let lines = make_table(spec, &KernelLineTable::of_machine().words());
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

/// Makes the map of a table with these words, whatever its number of elements.
fn make_table(spec: MapSpec, words: &[u64]) -> io::Result<OwnedFd> {
    let elements = size_of_val(words).div_ceil(spec.value_size as usize);
    let spec = MapSpec {
        max_entries: elements.fit(),
        ..spec
    };
    let map = map_prealloc::create_map(&spec, None).map_err(to_io_error)?;
    write(&map.try_clone()?.into(), 0, words.iter().copied())?;
    Ok(map)
}

/// Writes the constants, which are frozen afterwards.
fn write_constants(map: &OwnedFd, bytes: &[u8]) -> Result<(), BpfError> {
    Map::new(map.as_fd())?.update(&0u32.to_ne_bytes(), bytes, 0)?;
    map_freeze(map.as_fd())
}

/// The program type, the expected attach type, and the BTF id of the target function; 0 for none.
fn kind(info: &ProgramInfo, single: &[String]) -> [u32; 3] {
    let kind = info.attach.program_type();
    let function = match &kind.function {
        TargetFunction::None => 0,
        TargetFunction::Id(id) => *id,
        // An unknown function has id 0, which the kernel refuses.
        TargetFunction::Name(name) => Btf::vmlinux()
            .ok()
            .and_then(|btf| btf.find_func(name))
            .unwrap_or(0),
    };
    let attach_type = match single.contains(&info.name) {
        true => 0,
        false => kind.attach_type,
    };
    [kind.ty, attach_type, function]
}

/// The tracepoints of each program that is alone at all of them. The order of attaching decides which
/// of several programs at a tracepoint runs first, so those have to wait for each other.
fn lone_points(infos: &[ProgramInfo]) -> HashMap<&str, &[String]> {
    let mut users: HashMap<&str, usize> = HashMap::new();
    for info in infos {
        match &info.attach {
            Attach::RawTracepoint(names) => {
                for name in names {
                    *users.entry(name).or_default() += 1;
                }
            }
            Attach::Switch(_) => *users.entry(SWITCH).or_default() += 1,
            _ => {}
        }
    }
    let lone = infos.iter().filter_map(|info| match &info.attach {
        Attach::RawTracepoint(names) => Some((&*info.name, &**names)),
        _ => None,
    });
    lone.filter(|(_, names)| names.iter().all(|name| users[&**name] == 1))
        .collect()
}

/// Attaches a program to tracepoints.
pub(crate) fn attach_to(names: &[String], program: BorrowedFd<'_>) -> PointLinks {
    let open = |name: &String| {
        let link = raw_tracepoint_open(Some(name), program);
        link.map_err(|why| (name.clone(), why))
    };
    names.iter().map(open).collect()
}

/// Loads the programs of an object. Programs in `single` attach to locations one by one, although the
/// object asks for one link. With `attach`, those that are alone at their tracepoints are attached as
/// well; the state memory has to be ready for them.
pub(crate) fn load_programs(
    mapped: &MappedObject<'_>,
    single: &[String],
    attach: bool,
) -> Result<KernelPrograms, LoadRefusal> {
    let infos = &mapped.object.programs;
    let points = match attach {
        true => lone_points(infos),
        false => HashMap::new(),
    };
    let mut specs: Vec<ProgSpec<'_>> = mapped
        .linked
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
                btf: mapped.btf.as_ref().map(AsFd::as_fd),
                functions: &program.functions,
                lines: &program.lines,
                ..ProgSpec::default()
            })
        })
        .collect();
    // The longest first, so that none of them is left for the end.
    let work = |s: &ProgSpec<'_>| {
        let points = points.get(s.name).map_or(0, |names| names.len());
        s.insns.len() + points * POINT_INSNS
    };
    specs.sort_by_key(|s| std::cmp::Reverse(work(s)));
    let worth = specs.iter().filter(|s| s.insns.len() >= WORTH_A_THREAD);
    let threads = worth.count().min(processors());
    // After a failure the rest need not be loaded.
    let failed = AtomicBool::new(false);
    let outcomes = in_parallel(specs, threads, |spec| {
        if failed.load(Relaxed) {
            return None;
        }
        let outcome = bpf::load(&spec);
        let needed = spec.name != CRITICAL_PROGRAM;
        failed.fetch_or(needed && outcome.is_err(), Relaxed);
        let names = points.get(spec.name);
        let links = names.and_then(|names| Some(attach_to(names, outcome.as_ref().ok()?.as_fd())));
        Some((spec.name.to_owned(), outcome, links))
    });
    let mut loaded = KernelPrograms::default();
    for (name, outcome, links) in outcomes.into_iter().flatten() {
        loaded
            .points
            .extend(links.map(|links| (name.clone(), links)));
        match outcome {
            Ok(fd) => _ = loaded.programs.insert(name, fd),
            Err(why) if name == CRITICAL_PROGRAM => loaded.uncritical = Some(why),
            Err(why) => return Err(LoadRefusal::Program(name, why)),
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, attach: Attach) -> ProgramInfo {
        ProgramInfo {
            name: name.into(),
            attach,
            handlers: Vec::new(),
            idle: false,
        }
    }

    #[test]
    fn programs_that_are_alone_at_their_tracepoints() {
        let points = |names: &[&str]| {
            Attach::RawTracepoint(names.iter().map(|name| (*name).to_owned()).collect())
        };
        let lone = |infos: &[ProgramInfo]| {
            let mut names: Vec<_> = lone_points(infos).into_keys().map(str::to_owned).collect();
            names.sort();
            names
        };
        let mut infos = vec![
            program("a", points(&["sys_enter"])),
            program("b", points(&["irq_entry", "softirq_entry"])),
            program("c", points(&["sched_switch"])),
            program("d", Attach::OnDemand),
        ];
        assert_eq!(lone(&infos), ["a", "b", "c"]);
        // The order of these two is that of the script, and the counters' program is at switches.
        infos.push(program("e", points(&["softirq_entry", "sys_exit"])));
        infos.push(program("f", Attach::Switch(Vec::new())));
        assert_eq!(lone(&infos), ["a"]);
    }
}
