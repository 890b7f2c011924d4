//! Loads a compiled object and attaches its programs. Everything lives in descriptors of this
//! process: nothing is pinned, so nothing stays behind however the process ends.
//!
//! In: the compiler's object. Out: [`LoadedObject`], then [`Links`], which detach when they are dropped.
//! A refusal by the verifier becomes an error that names the line of the script.
//!
//! | module | its one job |
//! |---|---|
//! | `object` | loads maps and programs into the kernel |
//! | [`tables`] | the object's maps as the controller's tables, and its critical section |
//! | [`map_prealloc`] | creates maps while code is still being generated |

pub mod map_prealloc;
pub(crate) mod object;
pub mod tables;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use spile_bpf::compiled::{
    Attach, CodeAttach, HookSupport, Object, ProgramInfo, RING, SampledEvent, counter_map,
};
use spile_ir::{
    CodeProbe, Handler, HandlerId, OptionalSites, Program, SiteId, Space, TraceEvent, WatchOwner,
};
use spile_kernel::bpf::{BpfError, Errno, Ring, hook_link, prog_info, raw_tracepoint_open};
use spile_kernel::perf::EventSpec;
use spile_kernel::resources::{remedy, reserve_open_files};
use spile_kernel::tracepoints::security_modules;

use crate::attach::arming::Arming;
use crate::attach::code;
use crate::attach::followed::{self, Following};
pub use crate::attach::links::Links;
use crate::attach::perf_events;
use crate::attach::site::{self, RefusedLocation};
use crate::attach::summary::AttachSummary;
use crate::error::Error;
use crate::load::map_prealloc::PremadeMaps;
use crate::load::object::{KernelPrograms, LoadRefusal, MappedObject, PointLinks};
use crate::machine::pid_namespace::PidMap;
use crate::machine::signals::Signals;
use crate::shared::state::{HostMemory, StateMemory};

/// Limit on the lines of a verifier's log in a message.
const LOG_LINES: usize = 25;

/// Compiles a program; `None` on failure.
pub type CompileFn = Box<dyn FnOnce(&Program) -> Option<Object>>;

/// A loaded object.
pub struct LoadedObject {
    maps: HashMap<String, OwnedFd>,
    programs: HashMap<String, OwnedFd>,
    /// Links of programs that were attached when they were loaded. Attaching moves them to the session.
    points: RefCell<HashMap<String, PointLinks>>,
    /// Bytes of the ring buffer.
    ring_bytes: u32,
    infos: Vec<ProgramInfo>,
    /// Programs that attach to locations one by one, although the object asks for one link.
    single: Vec<String>,
    /// Programs that attach in the memory of the target's processes only.
    followed: Vec<String>,
    /// The reason why the kernel refused the critical section; the controller then takes the locks
    /// itself.
    uncritical: Option<String>,
}

/// A loaded object, its state memory, and its attachments.
pub type StartedObject = (LoadedObject, StateMemory, Links);

impl LoadedObject {
    /// Makes an object's maps, calls back to prepare its state memory, and loads and attaches its programs.
    /// Functions that cannot be attached together with others, because ftrace does not have them, may be
    /// attachable alone, which needs another program type: everything is then loaded again, once for all of
    /// them. The target is the process that the session follows.
    pub fn start(
        object: &Object,
        program: &Program,
        target: Option<u32>,
        mut ahead: Option<PremadeMaps>,
        prepare: impl Fn(&StateMemory),
        signals: Option<&Rc<Signals>>,
    ) -> Result<StartedObject, Error> {
        let mut single = Vec::new();
        let mut followed = match target {
            Some(_) => followed::programs(object),
            None => Vec::new(),
        };
        loop {
            let prepare = Some(&prepare as &dyn Fn(&StateMemory));
            let apart = (single.clone(), followed.clone());
            let (loaded, state) =
                LoadedObject::load(object, program, apart, ahead.take(), prepare)?;
            match loaded.attach_for(program, target, signals) {
                Ok(links) => return Ok((loaded, state, links)),
                Err((_, why @ Error::Stopped { .. })) => return Err(why),
                // The kernel cannot follow processes: all have the breakpoints.
                Err(_) if !followed.is_empty() => followed.clear(),
                Err((alone, why)) if alone.is_empty() => return Err(why),
                Err((alone, _)) => single.extend(alone),
            }
        }
    }

    /// Starts as [`LoadedObject::start`] does. If the kernel refuses fentry, fexit or a session, the
    /// object is compiled again without them, and returned as well. Some of its maps can be created
    /// ahead.
    pub fn start_any(
        object: &Object,
        program: &Program,
        pid: Option<u32>,
        (ahead, without): (Option<PremadeMaps>, Option<CompileFn>),
        prepare: impl Fn(&StateMemory),
        signals: Option<&Rc<Signals>>,
    ) -> Result<(StartedObject, Option<Object>), Error> {
        let first = LoadedObject::start(object, program, pid, ahead, &prepare, signals);
        let special = |p: &ProgramInfo| {
            let by = p.attach.code().map(|(_, by)| by);
            matches!(by, Some(CodeAttach::Trampoline(_) | CodeAttach::Session))
        };
        let stopped = matches!(first, Err(Error::Stopped { .. }));
        let refused = first.is_err() && !stopped && object.programs.iter().any(special);
        let plain = without.filter(|_| refused).and_then(|c| c(program));
        match plain {
            Some(plain) => {
                let started = LoadedObject::start(&plain, program, pid, None, &prepare, signals)?;
                Ok((started, Some(plain)))
            }
            None => Ok((first?, None)),
        }
    }

    /// Loads an object and maps its state memory. The program is used for messages only.
    pub fn new(object: &Object, program: &Program) -> Result<(LoadedObject, StateMemory), Error> {
        LoadedObject::load(object, program, Default::default(), None, None)
    }

    /// Loads an object. If the state memory is prepared here, programs can be attached as soon as they
    /// are loaded.
    fn load(
        object: &Object,
        program: &Program,
        (single, followed): (Vec<String>, Vec<String>),
        ahead: Option<PremadeMaps>,
        prepare: Option<&dyn Fn(&StateMemory)>,
    ) -> Result<(LoadedObject, StateMemory), Error> {
        if let Some((support, module)) = object.programs.iter().find_map(called_by_module)
            && security_modules().is_some_and(|active| active.iter().all(|name| name != module))
        {
            return Err(Error::NoHook(support.to_string()));
        }
        let refused = |refusal| explain(refusal, &object.programs, program);
        let mut mapped = MappedObject::new(object, ahead).map_err(refused)?;
        let bss = mapped.state.take();
        let bss = bss.ok_or_else(|| Error::Internal("the object has no state memory".into()))?;
        // Programs refer to the descriptor until they are loaded.
        let bss = HostMemory::from(bss);
        let state = StateMemory::map(&object.layout, &bss, object.spec.bss_size as usize)?;
        if let Some(prepare) = prepare {
            prepare(&state);
        }
        let unlinked = [&single[..], &followed].concat();
        let loaded = object::load_programs(&mapped, &unlinked, prepare.is_some());
        let KernelPrograms {
            programs,
            points,
            uncritical,
        } = loaded.map_err(refused)?;
        let ring = object.spec.maps.iter().find(|m| m.name == RING);
        let loaded = LoadedObject {
            maps: mapped.maps,
            programs,
            points: RefCell::new(points),
            ring_bytes: ring.map_or(0, |m| m.max_entries),
            infos: object.programs.clone(),
            single,
            followed,
            uncritical: uncritical.map(|why| why.to_string()),
        };
        Ok((loaded, state))
    }

    /// A duplicate of a map's descriptor.
    pub fn map_fd(&self, name: &str) -> Result<OwnedFd, Error> {
        let map = self.maps.get(name);
        let map = map.ok_or_else(|| Error::Internal(format!("the object has no map {name}")))?;
        map.try_clone()
            .map_err(|e| Error::System("duplicating a map", e))
    }

    /// The ring buffer; `None` if the object has none.
    pub fn ring(&self) -> Result<Option<Ring>, Error> {
        if !self.maps.contains_key(RING) {
            return Ok(None);
        }
        let ring = Ring::new(self.map_fd(RING)?, self.ring_bytes);
        let ring = ring.map_err(|e| Error::System("opening the ring buffer", e))?;
        Ok(Some(ring))
    }

    /// Calls a function with the descriptor of a program.
    pub fn with_program<T>(
        &self,
        name: &str,
        f: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<T, Error> {
        let program = self.programs.get(name);
        let program =
            program.ok_or_else(|| Error::Internal(format!("the object has no program {name}")))?;
        Ok(f(program.as_fd()))
    }

    /// Hits that the kernel itself skipped because the same program was running on the CPU.
    pub fn kernel_misses(&self) -> u64 {
        let idle = self.infos.iter().filter(|p| p.idle);
        let idle: Vec<&str> = idle.map(|p| &*p.name).collect();
        let counted = |name: &String| !idle.contains(&&**name);
        let programs = self.programs.iter().filter(|(name, _)| counted(name));
        programs
            .map(|(_, p)| prog_info(p.as_fd()).map_or(0, |info| info.recursion_misses))
            .sum()
    }

    /// Whether a program is attached to many kernel functions with one link.
    fn at_once(&self, name: &str) -> bool {
        self.infos.iter().any(|p| {
            let kernel = |probe: &CodeProbe| probe.space == Space::Kernel;
            p.name == name
                && !self.single.contains(&p.name)
                && matches!(p.attach.code(), Some((probe, CodeAttach::Multi)) if kernel(probe))
        })
    }

    /// Attaches all programs except for those of markers with semaphores.
    pub fn attach(&self) -> Result<Links, Error> {
        self.attach_for(&Program::default(), None, None)
            .map_err(|(_, why)| why)
    }

    /// Attaches as [`LoadedObject::attach`] does, for a script; an error has the names of the programs
    /// whose functions may be attachable alone.
    fn attach_for(
        &self,
        program: &Program,
        target: Option<u32>,
        signals: Option<&Rc<Signals>>,
    ) -> Result<Links, (Vec<String>, Error)> {
        let mut links = Links::default();
        let arming = Arming::new(signals.cloned());
        links.following = self.following(target).map_err(|why| (Vec::new(), why))?;
        self.attach_some(program, target, (&mut links, &arming), |info| !raises(info))?;
        follow(&links).map_err(|why| (Vec::new(), why))?;
        let why = self.uncritical.iter().filter_map(|why| why.lines().next());
        let lines =
            why.map(|why| format!("handlers of the controller take locks themselves: {why}"));
        links.attach_kinds.extend(lines);
        Ok(links)
    }

    /// The processes to follow, if programs do.
    fn following(&self, target: Option<u32>) -> Result<Option<Following>, Error> {
        let Some(target) = target.filter(|_| !self.followed.is_empty()) else {
            return Ok(None);
        };
        let target = PidMap::now().to_namespace(target);
        let following = Following::new(target);
        following.map(Some).map_err(cannot_follow)
    }

    /// Attaches the markers with semaphores. From then on programs can see that they are observed,
    /// so the session already runs.
    pub fn attach_raising(
        &self,
        program: &Program,
        links: &mut Links,
        signals: &Rc<Signals>,
    ) -> Result<(), Error> {
        let arming = Arming::new(Some(Rc::clone(signals)));
        self.attach_some(program, None, (links, &arming), raises)
            .map_err(|(_, why)| why)?;
        follow(links)
    }

    /// Watches the memory of a process that has just called `execve`.
    pub fn watch_in(&self, process: u32, links: &mut Links) -> Result<(), Error> {
        for info in &self.infos {
            if let Attach::Watch(watch) = &info.attach
                && let WatchOwner::Program(path) = &watch.owner
            {
                let only = Some(process);
                self.with_program(&info.name, |fd| {
                    perf_events::watch_program(watch, path, only, fd, &mut links.processes)
                })??;
            }
        }
        Ok(())
    }

    /// Whether there are markers with semaphores.
    pub fn raises_semaphores(&self) -> bool {
        self.infos.iter().any(raises)
    }

    fn attach_some(
        &self,
        program: &Program,
        target: Option<u32>,
        (links, arming): (&mut Links, &Arming),
        wanted: impl Fn(&ProgramInfo) -> bool,
    ) -> Result<(), (Vec<String>, Error)> {
        let mut reached = ProbeResults::default();
        let mut alone = Vec::new();
        let mut first_refusal = None;
        let attached = |p: &&ProgramInfo| p.attach != Attach::OnDemand && wanted(p);
        let at_code = self.infos.iter().filter(attached);
        let at_code = at_code.filter_map(|info| info.attach.code());
        let locations = at_code.map(|(probe, _)| site::count(probe)).sum();
        arming.add(locations);
        // Without links for many locations, each has an event and a link.
        reserve_open_files(2 * locations);
        for info in self.infos.iter().filter(attached) {
            let single = self.single.contains(&info.name);
            let handler = |id: &HandlerId| program.handlers.get(id.index());
            // Handlers that analysis added come first, and name the probe that they serve.
            let handlers: Vec<&Handler> = info.handlers.iter().filter_map(handler).collect();
            let script_handlers = || {
                handlers
                    .iter()
                    .copied()
                    .filter(|h| !h.point.starts_with('@'))
            };
            let first = script_handlers().next().or(handlers.first().copied());
            let how = AttachParams {
                loaded: self,
                arming,
                followed: self.followed.contains(&info.name),
                single,
                target,
                probe: first.map(|h| h.site),
                point: first.map_or("", |h| &h.point),
                last: script_handlers()
                    .next_back()
                    .map(|h| &*h.point)
                    .filter(|last| first.is_none_or(|h| *h.point != **last)),
            };
            let (before, left_out) = (links.len(), links.refused.len());
            let done = self
                .with_program(&info.name, |fd| attach(info, &how, fd, links))
                .and_then(|done| done);
            match done {
                Ok(()) => {}
                Err(why @ Error::Attach(..)) if self.at_once(&info.name) => {
                    alone.push(info.name.clone());
                    first_refusal.get_or_insert(why);
                    continue;
                }
                Err(why) => return Err((Vec::new(), why)),
            }
            let refused = (links.refused.len() > left_out).then_some(left_out);
            let is_optional = |(p, _): (&CodeProbe, _)| p.optional_sites == OptionalSites::All;
            let optional = info.attach.code().is_some_and(is_optional);
            let done = optional || links.len() > before;
            reached.program(how.probe, done, (&info.name, refused));
        }
        if let Some(why) = first_refusal {
            return Err((alone, why));
        }
        if let Some((name, refused)) = reached.first_failure() {
            let RefusedLocation { location, why } = links.refused.swap_remove(refused);
            alone.extend(self.at_once(name).then(|| name.to_owned()));
            return Err((alone, Error::Attach(location, why)));
        }
        let summaries = std::mem::take(&mut links.unreported);
        links.attach_kinds.extend(AttachSummary::lines(summaries));
        Ok(())
    }
}

/// The results for the programs of each probe. Some programs of a pattern may have no location that
/// can be probed, but not all.
#[derive(Default)]
struct ProbeResults<'n>(HashMap<Option<SiteId>, ProbeResult<'n>>);

/// Whether a program of the probe is attached or optional; the first unattached program with its
/// first refusal.
type ProbeResult<'n> = (bool, Option<(&'n str, usize)>);

impl<'n> ProbeResults<'n> {
    fn program(
        &mut self,
        probe: Option<SiteId>,
        yes: bool,
        (name, index): (&'n str, Option<usize>),
    ) {
        let result = self.0.entry(probe).or_default();
        result.0 |= yes;
        result.1 = result.1.or(index.map(|index| (name, index)));
    }

    /// The first refusal of a probe without any attachment.
    fn first_failure(&self) -> Option<(&'n str, usize)> {
        let none = self.0.values().filter(|(any, _)| !any);
        none.filter_map(|(_, first)| *first)
            .min_by_key(|(_, index)| *index)
    }
}

/// Whether attaching a program is visible to the probed programs, by their semaphores.
fn raises(info: &ProgramInfo) -> bool {
    let raising = |(probe, _): (&CodeProbe, _)| probe.sites.iter().any(|s| s.semaphore != 0);
    info.attach.code().is_some_and(raising)
}

/// What the hook of a program needs of the kernel, if it is at one.
fn hook_support(info: &ProgramInfo) -> Option<HookSupport> {
    match &info.attach {
        Attach::Hook(hook) => Some(hook.support),
        _ => None,
    }
}

/// The security module that calls a program, and what the program's hook needs of the kernel.
fn called_by_module(info: &ProgramInfo) -> Option<(HookSupport, &'static str)> {
    let support = hook_support(info)?;
    Some((support, support.module?))
}

/// The error of a load; a rejection by the verifier gets its position in the script.
pub(crate) fn with_script_line(
    error: Error,
    program: &Program,
    with_lines: Option<CompileFn>,
) -> Error {
    if !matches!(error, Error::Rejected { .. }) {
        return error;
    }
    let again = with_lines.and_then(|compile| compile(program));
    let again = again.and_then(|object| LoadedObject::new(&object, program).err());
    again.unwrap_or(error)
}

/// Parameters of attaching a program.
struct AttachParams<'a> {
    loaded: &'a LoadedObject,
    arming: &'a Arming,
    /// Attaches in the memory of the target's processes only.
    followed: bool,
    /// Attaches to locations one by one, although the object asks for one link.
    single: bool,
    /// The session's target.
    target: Option<u32>,
    /// The probe in the script.
    probe: Option<SiteId>,
    /// The first probe point of the program, and the last, if it is another.
    point: &'a str,
    last: Option<&'a str>,
}

fn attach(
    info: &ProgramInfo,
    how: &AttachParams<'_>,
    fd: BorrowedFd<'_>,
    links: &mut Links,
) -> Result<(), Error> {
    match &info.attach {
        Attach::RawTracepoint(names) => {
            let opened = how.loaded.points.borrow_mut().remove(&info.name);
            let opened = opened.unwrap_or_else(|| object::attach_to(names, fd));
            let opened =
                opened.map_err(|(name, e)| Error::attach(format!("tracepoint {name}"), e))?;
            links.points.extend(opened);
        }
        Attach::TraceEvent(TraceEvent { system, name, id }) => {
            let (event, link) = perf_events::trace_event(*id, fd)
                .map_err(|e| Error::Attach(format!("trace event {system}:{name}"), e))?;
            links.fds.push(link);
            links.events.push(event);
        }
        Attach::Perf { events, scope } => {
            let tasks = perf_events::tasks(*scope, how.target);
            for SampledEvent { ty, config, sample } in events.iter().copied() {
                let event = EventSpec { ty, config };
                let to = match perf_events::close_blocks(event) {
                    true => &mut links.events,
                    false => &mut links.counted,
                };
                perf_events::sample(event, sample, tasks, fd, to)?;
            }
        }
        Attach::Switch(counters) => {
            for (n, (ty, config)) in counters.iter().enumerate() {
                let map = how.loaded.map_fd(&counter_map(n))?;
                let event = EventSpec {
                    ty: *ty,
                    config: *config,
                };
                perf_events::count(event, map, &mut links.counted)?;
            }
            let link = raw_tracepoint_open(Some("sched_switch"), fd);
            let event_name = || "switches of tasks".to_owned();
            links
                .points
                .push(link.map_err(|e| Error::attach(event_name(), e))?);
        }
        Attach::Code { probe, by } => attach_code(probe, *by, how, fd, links)?,
        Attach::Hook(hook) => {
            let link = match &hook.link {
                Some(words) => hook_link(fd, hook.program.attach_type, words),
                None => raw_tracepoint_open(None, fd),
            };
            let event_name = || format!("{}{}", how.point, hook.detail);
            links
                .fds
                .push(link.map_err(|e| Error::attach(event_name(), e))?);
        }
        Attach::Watch(watch) => perf_events::watch(watch, fd, links)?,
        Attach::OnDemand => {}
    }
    Ok(())
}

/// Attaches a program to locations in code, and notes how for `-v`.
fn attach_code(
    probe: &CodeProbe,
    by: CodeAttach,
    how: &AttachParams<'_>,
    fd: BorrowedFd<'_>,
    links: &mut Links,
) -> Result<(), Error> {
    let by = if how.single { CodeAttach::Single } else { by };
    let (fds, refused) = (links.fds.len(), links.refused.len());
    let by = (by, how.followed);
    code::attach(probe, by, fd, links, how.arming)?;
    if probe.ret {
        links.returns.extend(fds..links.fds.len());
    }
    let left_out = links.refused.len() - refused;
    // A session has an entry and a return.
    let last = how.last.filter(|_| by.0 == CodeAttach::Session);
    let last = last.map_or(String::new(), |p| format!(", {p}"));
    let name = (how.probe, format!("{}{last}", how.point));
    links
        .unreported
        .push(AttachSummary::for_program(name, probe, by, left_out));
    Ok(())
}

/// Follows the target's processes, if programs do.
fn follow(links: &Links) -> Result<(), Error> {
    let followed = links.following.as_ref().map(Following::follow_all);
    followed.unwrap_or(Ok(())).map_err(cannot_follow)
}

fn cannot_follow(errno: Errno) -> Error {
    Error::Attach("the target's processes".into(), errno.into())
}

/// Whether the error is caused by a limit of this process or of the machine.
fn is_limit(e: &io::Error) -> bool {
    // EAGAIN has other causes here.
    let again = e.raw_os_error() == Some(libc::EAGAIN);
    !again && remedy(e).is_some()
}

/// The message for an object that cannot be loaded.
fn explain(refusal: LoadRefusal, infos: &[ProgramInfo], program: &Program) -> Error {
    let (object_part, why) = match refusal {
        LoadRefusal::Program(name, why) => return refusal_error(&name, why, infos, program),
        LoadRefusal::Incomplete(why) => return Error::Internal(why.to_string()),
        LoadRefusal::KernelLines(why) => {
            return Error::System("making the table of the kernel's lines", why);
        }
        LoadRefusal::Types(why) => ("the script's types".to_owned(), why),
        LoadRefusal::Map(name, why) => (format!("the map {name}"), why),
    };
    kernel_error(
        "making maps in the kernel",
        &why,
        format!("refuses {object_part}"),
    )
}

/// The error of a call to the kernel in a step; `what` follows "the kernel" where the reason is none of the user's.
fn kernel_error(step: &'static str, why: &BpfError, what: String) -> Error {
    match why.errno() {
        Some(errno) if is_limit(&errno.into()) => Error::System(step, errno.into()),
        Some(Errno::PERM | Errno::ACCESS) => Error::Privileges,
        Some(Errno::NOSYS) => Error::NoBpf,
        _ => Error::Internal(format!("the kernel {what}: {why}")),
    }
}

/// The message for a program that the kernel refuses.
fn refusal_error(name: &str, why: BpfError, infos: &[ProgramInfo], program: &Program) -> Error {
    const STEP: &str = "loading programs into the kernel";
    let limited = why.errno().is_some_and(|errno| is_limit(&errno.into()));
    if let BpfError::Rejected { log, .. } = &why
        && !limited
    {
        // A map has no descriptor: the process has none left.
        return match rustix::stdio::stdin().try_clone_to_owned() {
            Err(e) if is_limit(&e) => Error::System(STEP, e),
            _ => rejection(name, log, infos, program),
        };
    }
    let refused = infos.iter().find(|info| info.name == name);
    let missing =
        |support: &HookSupport| support.module.is_some() || why.errno() == Some(Errno::INVAL);
    match refused.and_then(hook_support).filter(missing) {
        Some(support) if !limited => Error::NoHook(support.to_string()),
        _ => kernel_error(STEP, &why, format!("does not load program {name}")),
    }
}

/// The message for a rejection by the verifier.
fn rejection(name: &str, log: &str, infos: &[ProgramInfo], program: &Program) -> Error {
    let handlers = infos
        .iter()
        .find(|p| p.name == name)
        .into_iter()
        .flat_map(|p| &p.handlers)
        .filter_map(|id| program.handlers.get(id.index()))
        .map(|h| {
            let near = program.sites.get(h.site.index()).map_or("", |s| &s.near);
            format!("probe {} {near}", h.point).trim_end().to_owned()
        })
        .collect();
    Error::Rejected {
        program: name.to_owned(),
        handlers,
        location: script_location(log),
        log: last_lines(log.trim(), LOG_LINES),
    }
}

/// The script position that the log names last: `; identifier 'x' at a.stp:1:2 @ a.stp:1`.
fn script_location(log: &str) -> Option<String> {
    let line = log
        .lines()
        .filter_map(|l| l.strip_prefix("; "))
        .next_back()?;
    let location = line
        .rsplit_once(" @ ")
        .map_or(line, |(location, _)| location);
    (!location.trim().is_empty()).then(|| location.trim().to_owned())
}

fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_bpf::compiled::Hook;
    use spile_ir::{Event, Handler, Site, SiteId};

    #[test]
    fn a_probe_that_is_attached_nowhere_is_reported() {
        let (a, b) = (Some(SiteId(1)), Some(SiteId(2)));
        let mut reached = ProbeResults::default();
        reached.program(a, false, ("p0", Some(0)));
        reached.program(b, false, ("p1", Some(1)));
        assert_eq!(reached.first_failure(), Some(("p0", 0)));
        reached.program(a, true, ("p2", None));
        assert_eq!(reached.first_failure(), Some(("p1", 1)));
        reached.program(b, true, ("p3", Some(2)));
        assert_eq!(reached.first_failure(), None);
    }

    #[test]
    fn a_kernel_without_a_hook_says_what_it_lacks() {
        let hook = Hook::of(&Event::Lsm("file_open".into())).expect("a hook");
        let refused = |module, errno| {
            let mut hook = hook.clone();
            hook.support.module = module;
            let info = ProgramInfo {
                name: "p".into(),
                attach: Attach::Hook(hook),
                handlers: Vec::new(),
                idle: false,
            };
            let command = spile_kernel::bpf::Command::ProgLoad;
            let why = BpfError::Call { command, errno };
            refusal_error("p", why, &[info], &Program::default())
        };
        let lacks = hook.support.to_string();
        for (module, errno) in [
            (None, Errno::INVAL),
            (Some("bpf"), Errno::INVAL),
            (Some("bpf"), Errno::PERM),
        ] {
            assert_eq!(refused(module, errno).to_string(), lacks);
        }
        assert!(matches!(refused(None, Errno::PERM), Error::Privileges));
    }

    #[test]
    fn rejections_name_the_handler() {
        let infos = [ProgramInfo {
            name: "tp_0".into(),
            attach: Attach::RawTracepoint(vec!["x".into()]),
            handlers: vec![HandlerId(0)],
            idle: false,
        }];
        let program = Program {
            sites: vec![Site::default(), Site::at("keyword at a.stp:1:1")],
            handlers: vec![Handler {
                point: "kernel.trace(\"x\")".into(),
                points: 1,
                event: Event::Never,
                body: Default::default(),
                site: SiteId(1),
            }],
            ..Program::default()
        };
        let log = "; operator '+' at a.stp:1:9 @ a.stp:1\n0: r1 = 0\nR1 !read_ok\n";
        let Error::Rejected {
            program,
            handlers,
            location,
            log,
        } = rejection("tp_0", log, &infos, &program)
        else {
            panic!("no rejection seen")
        };
        assert_eq!(program, "tp_0");
        assert_eq!(handlers, ["probe kernel.trace(\"x\") keyword at a.stp:1:1"]);
        assert_eq!(location.as_deref(), Some("operator '+' at a.stp:1:9"));
        assert!(log.ends_with("\n0: r1 = 0\nR1 !read_ok"), "{log}");
        // Logs without lines, and in the form of older kernels.
        assert_eq!(script_location("0: r1 = 0\n; \n1: exit"), None);
        let older = script_location("; call at b.stp:2:1\n0: exit");
        assert_eq!(older.as_deref(), Some("call at b.stp:2:1"));
    }
}
