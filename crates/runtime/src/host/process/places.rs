//! The places to hook: in files, by the object; in a process, by its mappings.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use spile_bpf::compiled::{Attach, Object, ProgramInfo};
use spile_debuginfo::{DebugFile, SearchPaths};
use spile_inject::{FunctionHook, PlaceKind, PtRegs, Refusal};
use spile_ir::{CodeProbe, OptionalSites, Program};
use spile_kernel::process::Mapping;

use super::calls::CallHooks;
use super::event_programs::EventPrograms;
use super::image::SharedImage;
use crate::attach::site::{self, RefusedLocation};
use crate::error::Error;

/// A place in a file that leads to a handler.
#[derive(Debug, Clone)]
pub(super) struct FileHook {
    path: String,
    /// Offset in the file.
    offset: u64,
    /// What the script calls it, for messages.
    name: String,
    /// Why it cannot be hooked in any process.
    unknown: Option<&'static str>,
    /// The only process that the script means.
    process: Option<u32>,
    optional: bool,
    /// Bytes of the function, and the place's distance from its first one.
    size: u64,
    distance: u64,
    /// The marker's semaphore, by its distance in memory from the place.
    semaphore: Option<i64>,
    /// Offset of the handler in the image.
    handler: u64,
    cookie: u64,
}

impl FileHook {
    fn refused(&self, why: impl ToString) -> RefusedLocation {
        RefusedLocation {
            location: format!("{} in {}", self.name, self.path),
            why: io::Error::other(why.to_string()),
        }
    }
}

/// The places of an object in files, those of system calls, and the programs of other events.
///
/// # Errors
/// An event that processes do not see yet.
pub(super) fn hooks(
    object: &Object,
    image: &SharedImage,
    script: &Program,
) -> Result<(Vec<FileHook>, CallHooks, EventPrograms), Error> {
    let mut hooks = Vec::new();
    let mut calls = CallHooks::default();
    let mut events = EventPrograms::default();
    let mut functions = Functions::default();
    for program in object.programs.iter().filter(|program| !program.idle) {
        let handler = image.function(&program.name)?;
        match &program.attach {
            Attach::Code { probe, .. } => {
                let first = program.handlers.first();
                let point = first.map_or("", |id| &script.handlers[id.index()].point);
                let how = (name_of(point), handler);
                hooks.extend(of_probe(probe, how, &mut functions));
            }
            Attach::RawTracepoint(names)
                if calls.add(
                    names,
                    (program, handler),
                    object.spec.reads_registers(&program.name),
                    script,
                ) => {}
            Attach::RawTracepoint(names) if events.step(names, &program.name) => {}
            Attach::Perf { events: all, .. } => events.sample(all, &program.name),
            _ => return Err(Error::NoProcessEvent(event_of(program))),
        }
    }
    Ok((hooks, calls, events))
}

/// The event of a program, for messages.
fn event_of(program: &ProgramInfo) -> String {
    match &program.attach {
        Attach::RawTracepoint(names) => names.first().map_or("", |name| name).replace('_', " "),
        _ => program.name.clone(),
    }
}

/// The name in a probe point: what its last text says up to the file. `None` for a pattern.
fn name_of(point: &str) -> Option<&str> {
    let text = point.rsplit('"').nth(1)?;
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    (!name.contains(['*', '?', '['])).then_some(name)
}

fn of_probe(
    probe: &CodeProbe,
    (name, handler): (Option<&str>, u64),
    functions: &mut Functions,
) -> Vec<FileHook> {
    let unknown = probe.ret && !probe.at_exits();
    let unknown = unknown.then_some("its return instructions are not known");
    let sites = site::sites(probe);
    let hooks = sites.iter().filter_map(|site| {
        let path = site.path()?;
        let function = functions.at(path, site.offset());
        let named = name.map(str::to_owned).or(function.name);
        Some(FileHook {
            path: path.to_owned(),
            offset: site.offset(),
            name: named.unwrap_or_else(|| format!("offset {:#x}", site.offset())),
            unknown,
            process: probe.pid,
            optional: probe.optional_sites == OptionalSites::All,
            size: function.size,
            distance: function.distance,
            semaphore: functions.between(path, site.offset(), site.semaphore()),
            handler,
            cookie: site.cookie,
        })
    });
    hooks.collect()
}

/// The functions of files.
#[derive(Default)]
struct Functions(HashMap<String, Option<DebugFile>>);

impl Functions {
    fn file(&mut self, path: &str) -> Option<&DebugFile> {
        let file = self.0.entry(path.to_owned());
        let open = || DebugFile::open(Path::new(path), &SearchPaths::from_env()).ok();
        file.or_insert_with(open).as_ref()
    }

    /// The distance in memory from an offset to that of a semaphore, which is 0 for none.
    fn between(&mut self, path: &str, offset: u64, semaphore: u64) -> Option<i64> {
        let image = self.file(path).filter(|_| semaphore != 0)?.image();
        let [from, to] = [offset, semaphore].map(|offset| image.address_of_offset(offset));
        Some(to?.wrapping_sub(from?).cast_signed())
    }

    /// The function at an offset.
    fn at(&mut self, path: &str, offset: u64) -> FunctionAt {
        let found = self.file(path).and_then(|file| {
            let address = file.image().address_of_offset(offset)?;
            file.symbols().function_at(address)
        });
        let Some((symbol, distance)) = found else {
            return FunctionAt {
                name: None,
                size: 1,
                distance: 0,
            };
        };
        let short = spile_debuginfo::demangle::short_name(symbol.name);
        FunctionAt {
            name: Some(short.unwrap_or_else(|| symbol.name.to_owned())),
            size: symbol.size.max(distance + 1),
            distance,
        }
    }
}

/// The function at a place. Of code without a name nothing is known but that it is there.
struct FunctionAt {
    name: Option<String>,
    size: u64,
    /// The place's distance from its first byte.
    distance: u64,
}

/// A hook with its place in the file.
pub(super) type PlacedHook<'h> = (&'h FileHook, FunctionHook);

/// Whether a mapping has the code of a place.
fn has(map: &Mapping, hook: &FileHook) -> bool {
    let offsets = map.offset..map.offset + (map.end - map.start);
    map.executable && map.path == hook.path && offsets.contains(&hook.offset)
}

/// The places that a process has in these mappings, and those that are not meant there. The hooks at these indexes are
/// added to `seen`.
pub(super) fn in_maps<'h>(
    pid: u32,
    hooks: &'h [FileHook],
    maps: &[Mapping],
    seen: &mut BTreeSet<usize>,
) -> (Vec<PlacedHook<'h>>, Vec<RefusedLocation>) {
    let (mut placed, mut refused) = (Vec::new(), Vec::new());
    for (index, hook) in hooks.iter().enumerate() {
        let mut here = maps.iter().filter(|map| has(map, hook)).peekable();
        if here.peek().is_none() {
            continue;
        }
        seen.insert(index);
        if let Some(why) = hook.unknown {
            refused.push(hook.refused(why));
            continue;
        }
        if let Some(other) = hook.process.filter(|process| *process != pid) {
            refused
                .push(hook.refused(format!("it is of process {other}, and the target is {pid}")));
            continue;
        }
        placed.extend(here.map(|map| {
            let function = FunctionHook {
                address: map.start + (hook.offset - map.offset) - hook.distance,
                size: hook.size,
                offset: hook.distance,
                kind: PlaceKind::Instruction,
                through: false,
                ends: false,
                handler: hook.handler,
                cookie: hook.cookie,
                reads: PtRegs::ALL,
            };
            (hook, function)
        }));
    }
    (placed, refused)
}

/// The places that no process had, and that the script needs.
pub(super) fn missing(hooks: &[FileHook], seen: &BTreeSet<usize>) -> Vec<RefusedLocation> {
    let others = hooks.iter().enumerate();
    let others = others.filter(|(index, hook)| !seen.contains(index) && !hook.optional);
    others
        .map(|(_, hook)| hook.refused("no process of the target had it in its memory"))
        .collect()
}

/// The addresses of the semaphores of these places, except for those that could not be hooked.
pub(super) fn semaphores(hooks: &[PlacedHook<'_>], refused: &[(u64, Refusal)]) -> BTreeSet<u64> {
    let is_hooked = |placed: &FunctionHook| refused.iter().all(|(at, _)| *at != placed.place());
    let hooked = hooks.iter().filter(|(_, placed)| is_hooked(placed));
    let address =
        |(hook, placed): &PlacedHook<'_>| Some(placed.place().wrapping_add_signed(hook.semaphore?));
    hooked.filter_map(address).collect()
}

/// Places that are named one by one in warnings.
const NAMED: usize = 20;

/// The warnings about places that are left out.
pub(super) fn warnings(refused: &[RefusedLocation]) -> impl Iterator<Item = String> + '_ {
    let named = refused.iter().take(NAMED);
    let named = named.map(|place| format!("{}: {}; it is left out", place.location, place.why));
    let others = refused.len().saturating_sub(NAMED);
    named.chain((others > 0).then(|| format!("{others} more places are left out")))
}

/// The places that could not be hooked, with their reasons.
pub(super) fn refused(
    refusals: &[(u64, Refusal)],
    hooks: &[PlacedHook<'_>],
) -> Vec<RefusedLocation> {
    let place = |(address, why): &(u64, Refusal)| {
        let (hook, _) = hooks.iter().find(|(_, hook)| hook.place() == *address)?;
        Some(hook.refused(why))
    };
    refusals.iter().filter_map(place).collect()
}
