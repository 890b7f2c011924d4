//! Attaches programs to locations in code. Where the kernel supports it, one link covers all locations of
//! a file or of the kernel (there for entries, returns or both); otherwise a perf event covers each
//! location. Fentry and fexit cover one function of the kernel.
//!
//! A link is made for all its locations or for none. If the kernel refuses one, a bisection finds the
//! locations that cannot be probed; these are left out and counted.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use spile_bpf::compiled::CodeAttach;
use spile_ir::{CodeLocation, CodeProbe, OptionalSites, Space};
use spile_kernel::bpf::{
    AttachPoints, BpfError, KernelFunctions, UprobeMulti, kprobe_multi, perf_link,
    raw_tracepoint_open, uprobe_multi,
};
use spile_kernel::features::{self, Feature};
use spile_kernel::perf::{PerfEvent, ProbeLocation};

use crate::attach::arming::{Arming, PartSize};
use crate::attach::followed::Following;
use crate::attach::links::Links;
use crate::attach::site::{AttachSite, RefusedLocation, location_error, refused_location, sites};
use crate::error::Error;
use crate::machine::parallel::in_parallel;

/// Attaches a program to all locations that can be probed.
///
/// # Errors
/// [`Error::Attach`] if there is no such location, unless the other locations of a pattern are enough;
/// [`Error::Stopped`] after a request to end the session.
pub(crate) fn attach(
    probe: &CodeProbe,
    (by, followed): (CodeAttach, bool),
    program: BorrowedFd<'_>,
    links: &mut Links,
    arming: &Arming,
) -> Result<(), Error> {
    let (attached, left_out) = (links.fds.len(), links.refused.len());
    let sites = sites(probe);
    match by {
        _ if followed => attach_followed(probe, &sites, program, links, arming)?,
        CodeAttach::Single => {
            for site in &sites {
                arming.check()?;
                arming.advance(1);
                match attach_single(probe, *site, program) {
                    Ok((link, event)) => {
                        links.fds.push(link);
                        links.events.push(event);
                    }
                    Err(why) => links.refused.push(refused_location(site, why)),
                }
            }
        }
        CodeAttach::Multi | CodeAttach::Session => {
            let session = by == CodeAttach::Session;
            for group in by_file(&sites) {
                let link = |part: &[AttachSite<'_>]| attach_multi(probe, session, part, program);
                // The kernel changes its own functions all at once, but programs location by location.
                let parts = (probe.space == Space::User).then(PartSize::first);
                link_by_bisection(&group, parts, &link, links, arming)?;
            }
        }
        CodeAttach::Trampoline(_) => match (raw_tracepoint_open(None, program), &sites[..]) {
            (Ok(link), _) => links.fds.push(link),
            (Err(why), [site, ..]) => links
                .refused
                .push(refused_location(site, location_error(why))),
            (Err(_), []) => {}
        },
    }
    if links.fds.len() > attached || sites.is_empty() {
        return Ok(());
    }
    // Kernel functions that cannot be attached together may be attachable one by one.
    let again = by == CodeAttach::Multi && probe.space == Space::Kernel;
    let of_locations = |r: &RefusedLocation| {
        r.why
            .raw_os_error()
            .is_none_or(|e| !NOT_OF_LOCATIONS.contains(&e))
    };
    if probe.optional_sites != OptionalSites::Single
        && !again
        && links.refused[left_out..].iter().all(of_locations)
    {
        return Ok(());
    }
    match (links.refused.drain(left_out..).next(), probe.pid) {
        (Some(first), Some(pid)) if first.why.raw_os_error() == Some(libc::ESRCH) => {
            let why = io::Error::other(format!("process {pid} has ended"));
            Err(Error::Attach(first.location, why))
        }
        (Some(first), _) => Err(Error::Attach(first.location, first.why)),
        (None, _) => Ok(()),
    }
}

/// Attaches a program to locations in the memory of the target's processes.
fn attach_followed(
    probe: &CodeProbe,
    sites: &[AttachSite<'_>],
    program: BorrowedFd<'_>,
    links: &mut Links,
    arming: &Arming,
) -> Result<(), Error> {
    let Some(following) = links.following.take() else {
        return Ok(());
    };
    let returns = probe.ret && !probe.at_exits();
    let link = |part: &[AttachSite<'_>]| following.link(part, returns, program);
    let mut done = Ok(());
    let files = by_file(sites);
    for set in files.iter().flat_map(|f| Following::sets(f)) {
        done = done.and_then(|()| link_by_bisection(&set, None, &link, links, arming));
    }
    let failure = following.failure();
    links.following = Some(following);
    match failure {
        Some(errno) => Err(Error::Attach("the target's processes".into(), errno.into())),
        None => done,
    }
}

/// Errors that are not about a location: privileges, resources, a process that has ended.
const NOT_OF_LOCATIONS: [i32; 6] = [
    libc::EPERM,
    libc::EACCES,
    libc::ENOMEM,
    libc::EMFILE,
    libc::ENFILE,
    libc::ESRCH,
];

/// Groups locations for links: one for each file; kernel locations in one or two, by address or by name.
fn by_file<'p>(sites: &[AttachSite<'p>]) -> Vec<Vec<AttachSite<'p>>> {
    let mut files: BTreeMap<&str, Vec<AttachSite<'p>>> = BTreeMap::new();
    for site in sites {
        let file = match &site.site.location {
            CodeLocation::File { path, .. } => path,
            CodeLocation::Symbol { .. } => "",
            CodeLocation::Address(_) | CodeLocation::Traced(_) => ".",
        };
        files.entry(file).or_default().push(*site);
    }
    files.into_values().collect()
}

/// Makes a link to locations, or refuses it.
type LinkFn<'f> = dyn Fn(&[AttachSite<'_>]) -> Result<OwnedFd, BpfError> + Sync + 'f;

/// Links all locations, in parts of a size that is given or at once. If the kernel refuses some locations,
/// bisects and links the others.
fn link_by_bisection(
    sites: &[AttachSite<'_>],
    mut parts: Option<PartSize>,
    link: &LinkFn<'_>,
    links: &mut Links,
    arming: &Arming,
) -> Result<(), Error> {
    let mut failed = Vec::new();
    let mut rest = sites;
    while !rest.is_empty() {
        arming.check()?;
        let size = parts.as_ref().map_or(rest.len(), PartSize::get);
        let (part, others) = rest.split_at(size.min(rest.len()));
        let since = Instant::now();
        let linked = link(part);
        if let Some(size) = &mut parts {
            size.learn(part.len(), since.elapsed());
        }
        match linked {
            Ok(fd) => {
                links.fds.push(fd);
                arming.advance(part.len());
            }
            Err(why) => {
                // No location of the file can be probed.
                let none = is_fatal(&why, &part[0].site.location);
                failed.push((part, why));
                if none {
                    break;
                }
            }
        }
        rest = others;
    }
    bisect(failed, link, links, arming)
}

/// Links the locations of parts that the kernel refused, without those that it refuses alone. A refused
/// link waits until no processor runs its program; links at the same time share one wait.
fn bisect(
    mut failed: Vec<(&[AttachSite<'_>], BpfError)>,
    link: &LinkFn<'_>,
    links: &mut Links,
    arming: &Arming,
) -> Result<(), Error> {
    /// Limit on the links at the same time, for which a signal waits.
    const TOGETHER: usize = 16;
    let mut refused = Vec::new();
    while !failed.is_empty() {
        let mut halves = Vec::new();
        for (part, why) in std::mem::take(&mut failed) {
            if part.len() == 1 || is_fatal(&why, &part[0].site.location) {
                refused.push((part, why));
                arming.advance(part.len());
                continue;
            }
            let (low, high) = part.split_at(part.len() / 2);
            halves.extend([low, high]);
        }
        for some in halves.chunks(TOGETHER) {
            arming.check()?;
            for (part, linked) in in_parallel(some.to_vec(), TOGETHER, |p| (p, link(p))) {
                match linked {
                    Ok(fd) => {
                        links.fds.push(fd);
                        arming.advance(part.len());
                    }
                    Err(why) => failed.push((part, why)),
                }
            }
        }
    }
    // In the order of the locations, which are parts of one list.
    refused.sort_by_key(|(part, _)| part.as_ptr().addr());
    let refused = refused.into_iter();
    let refused = refused.map(|(part, why)| refused_location(&part[0], location_error(why)));
    links.refused.extend(refused);
    Ok(())
}

/// Whether an error is not about single locations. For functions by name, `ESRCH` means that ftrace
/// lacks one of them.
fn is_fatal(why: &BpfError, location: &CodeLocation) -> bool {
    let named = matches!(location, CodeLocation::Symbol { .. });
    let codes = [libc::EPERM, libc::EACCES, libc::ENOMEM];
    why.errno()
        .map(|e| e.raw_os_error())
        .is_some_and(|e| codes.contains(&e) || (e == libc::ESRCH && !named))
}

fn attach_multi(
    probe: &CodeProbe,
    session: bool,
    sites: &[AttachSite<'_>],
    program: BorrowedFd<'_>,
) -> Result<OwnedFd, BpfError> {
    let cookies: Vec<u64> = sites.iter().map(|s| s.cookie).collect();
    let mut offsets = Vec::with_capacity(sites.len());
    let mut semaphores: Vec<u64> = sites.iter().map(|s| s.site.semaphore).collect();
    if semaphores.iter().all(|s| *s == 0) {
        semaphores.clear();
    }
    let (mut names, mut file) = (Vec::new(), None);
    for site in sites {
        match &site.site.location {
            CodeLocation::File { path, offset } => {
                file = Some(path);
                offsets.push(site.exit.unwrap_or(*offset));
            }
            CodeLocation::Address(address) | CodeLocation::Traced(address) => {
                offsets.push(*address);
            }
            CodeLocation::Symbol { name, .. } => names.push(&**name),
        }
    }
    let functions = match names.is_empty() {
        true => KernelFunctions::Addresses(&offsets),
        false => KernelFunctions::Names(&names),
    };
    match file {
        Some(path) => uprobe_multi(
            program,
            &UprobeMulti {
                path,
                offsets: &offsets,
                semaphores: &semaphores,
                cookies: &cookies,
                ret: probe.ret && !probe.at_exits(),
                pid: probe.pid,
            },
        ),
        None => {
            let points = match (session, probe.ret) {
                (true, _) => AttachPoints::Both,
                (false, true) => AttachPoints::Return,
                (false, false) => AttachPoints::Entry,
            };
            kprobe_multi(program, functions, &cookies, points)
        }
    }
}

fn attach_single(
    probe: &CodeProbe,
    site: AttachSite<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<(OwnedFd, PerfEvent)> {
    let named;
    let target = site.location_text();
    let location = match &target {
        CodeLocation::File { path, offset } => ProbeLocation::File {
            path,
            offset: *offset,
            semaphore: site.site.semaphore,
        },
        CodeLocation::Symbol {
            module,
            name,
            offset,
        } => {
            named = match module {
                Some(module) => format!("{module}:{name}"),
                None => name.to_string(),
            };
            ProbeLocation::Function {
                name: &named,
                offset: *offset,
            }
        }
        CodeLocation::Address(address) | CodeLocation::Traced(address) => {
            ProbeLocation::Address(*address)
        }
    };
    let event = PerfEvent::open_at(&location, probe.ret && !probe.at_exits(), probe.pid)
        .map_err(|e| no_kprobe(probe.space, e.errno.into()))?;
    let link = perf_link(program, event.as_fd(), site.cookie).map_err(location_error)?;
    Ok((link, event))
}

/// The meaning of error numbers for single probes.
fn no_kprobe(space: Space, why: io::Error) -> io::Error {
    let missing = why.raw_os_error() == Some(libc::ENOENT);
    let (feature, options) = match space {
        Space::Kernel => (Feature::Kprobes, "CONFIG_KPROBES and CONFIG_KPROBE_EVENTS"),
        Space::User => (Feature::Uprobes, "CONFIG_UPROBES and CONFIG_UPROBE_EVENTS"),
    };
    if missing && !features::has(feature).is_available() {
        let what = match space {
            Space::Kernel => "its own functions",
            Space::User => "programs",
        };
        return io::Error::other(format!(
            "this kernel has no probes in {what}: it would have to be built with {options} \
             (`spile --check` shows which probes work here)"
        ));
    }
    let text = match (space, why.raw_os_error()) {
        (Space::Kernel, Some(libc::EINVAL)) => "the kernel forbids probing it",
        (Space::Kernel, Some(libc::EILSEQ)) => "no instruction begins there",
        (Space::Kernel, Some(libc::EADDRNOTAVAIL)) => {
            "several functions have this name; a pattern such as `[x]name` matches them all"
        }
        _ => return why,
    };
    io::Error::other(text)
}

#[cfg(test)]
mod tests {
    use spile_ir::CodeSite;
    use spile_kernel::bpf::{Command, Errno};

    use super::*;
    use crate::attach::site::refusal_warning;

    fn site(offset: u64) -> CodeSite {
        CodeSite {
            location: CodeLocation::File {
                path: "/x".into(),
                offset,
            },
            semaphore: 0,
            number: 0,
            exits: None,
        }
    }

    #[test]
    fn locations_that_are_refused_are_left_out() {
        let all: Vec<CodeSite> = (0..100).map(site).collect();
        let site = |(cookie, site)| AttachSite {
            cookie,
            site,
            exit: None,
        };
        let sites: Vec<AttachSite<'_>> = (0..).zip(&all).map(site).collect();
        let bad = [3, 50, 51, 99];
        let seen = std::sync::Mutex::new(Vec::new());
        let link = |part: &[AttachSite<'_>]| {
            if part.iter().any(|s| bad.contains(&s.cookie)) {
                let errno = Errno::INVAL;
                let command = Command::LinkCreate;
                return Err(BpfError::Call { command, errno });
            }
            let mut seen = seen.lock().expect("no panic");
            seen.extend(part.iter().map(|s| s.cookie));
            Ok(std::fs::File::open("/dev/null").expect("a file").into())
        };
        let good: Vec<u64> = (0..100).filter(|n| !bad.contains(n)).collect();
        let mut links = Links::default();
        for parts in [None, Some(PartSize::first())] {
            links = Links::default();
            let arming = Arming::new(None);
            link_by_bisection(&sites, parts, &link, &mut links, &arming).expect("not stopped");
            assert_eq!(links.refused().len(), bad.len());
            let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
            seen.sort_unstable();
            assert_eq!(seen, good);
        }
        let text = refusal_warning(links.refused()).expect("a text");
        assert!(
            text.starts_with("4 locations are left out: /x at offset 0x3"),
            "{text}"
        );
    }
}
