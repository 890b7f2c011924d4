//! Tracepoints of the running kernel and their arguments; perf events by name.
//!
//! Each tracepoint NAME is in the kernel's BTF as a typedef `btf_trace_NAME` (the prototype of its
//! handler) and a function `__traceiter_NAME`, whose parameters have their names from the kernel's
//! source. Both start with a `void *` that belongs to the tracing itself and is left out here:
//! argument 0 is the first one that the tracepoint passes, word 0 of a raw tracepoint's context.
//!
//! Only tracefs knows the subsystem of a tracepoint (`sched` in `sched:sched_switch`). It need not
//! be mounted: see [`Tracefs`].

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::btf::{Btf, BtfKind, BtfTypeId, Type};
use spile_glob as glob;

const TYPEDEF: &str = "btf_trace_";
const ITERATOR: &str = "__traceiter_";

/// A tracepoint and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its name, as for `BPF_RAW_TRACEPOINT_OPEN`.
    pub name: String,
    /// Its arguments in order.
    pub args: Vec<TracepointParam>,
}

/// An argument of a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracepointParam {
    /// The name in the kernel's source; `argN` (from 1) where BTF has none.
    pub name: String,
    /// Its type in the kernel's BTF.
    pub ty: BtfTypeId,
}

/// Whether the kernel has a tracepoint of that name.
#[must_use]
pub fn exists(btf: &Btf, name: &str) -> bool {
    btf.find_typedef(&format!("{TYPEDEF}{name}")).is_some()
}

/// The tracepoint of that name.
#[must_use]
pub fn find(btf: &Btf, name: &str) -> Option<Tracepoint> {
    let handler = btf.find_typedef(&format!("{TYPEDEF}{name}"))?;
    let named = btf
        .find_func(&format!("{ITERATOR}{name}"))
        .and_then(|id| match btf.ty(id) {
            Type::Func { proto, .. } => Some(proto),
            _ => None,
        });
    let proto = named.or_else(|| btf.pointee(handler))?;
    let Type::FuncProto(proto) = btf.ty(proto) else {
        return None;
    };
    let args = proto
        .params()
        .skip(1)
        .enumerate()
        .map(|(i, p)| TracepointParam {
            name: if p.name.is_empty() {
                format!("arg{}", i + 1)
            } else {
                p.name.to_owned()
            },
            ty: p.ty,
        })
        .collect();
    Some(Tracepoint {
        name: name.to_owned(),
        args,
    })
}

/// The names of all tracepoints, sorted. Costs well under a millisecond.
#[must_use]
pub fn names(btf: &Btf) -> Vec<&str> {
    let mut names: Vec<&str> = btf
        .all(BtfKind::Typedef)
        .filter_map(|(_, name)| name.strip_prefix(TYPEDEF))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The names of tracepoints that match `name`, `pattern*` or `system:pattern`, sorted. tracefs is
/// read only when a subsystem is given.
///
/// # Errors
/// [`TracefsError`] if a subsystem is given and tracefs can't be read. A pattern without a match
/// gives an empty list.
pub fn matching(btf: &Btf, spec: &str) -> Result<Vec<String>, TracefsError> {
    let Some((system, pattern)) = spec.split_once(':') else {
        if !glob::is_pattern(spec) {
            return Ok(exists(btf, spec)
                .then(|| spec.to_owned())
                .into_iter()
                .collect());
        }
        let known = names(btf).into_iter();
        return Ok(known
            .filter(|n| glob::matches(spec, n))
            .map(str::to_owned)
            .collect());
    };
    let mut names_found = Tracefs::open()?.events(system, pattern)?;
    if names_found.len() > 2 {
        let known = names(btf);
        names_found.retain(|name| known.binary_search(&name.as_str()).is_ok());
    } else {
        names_found.retain(|name| exists(btf, name));
    }
    names_found.sort_unstable();
    names_found.dedup();
    Ok(names_found)
}

/// tracefs could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracefsError {
    /// The last action tried.
    pub action: &'static str,
    /// The reason.
    pub errno: Errno,
}

impl fmt::Display for TracefsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = crate::errno::describe_errno(self.errno);
        write!(f, "cannot read tracefs ({}): {why}", self.action)
    }
}

impl std::error::Error for TracefsError {}

/// tracefs, whether or not it is mounted anywhere.
///
/// If it is not in the usual locations, it is opened as a detached mount (`fsopen`, `fsmount`; Linux
/// 5.2), which no other process sees and which ends with this value. Closing such a mount takes
/// milliseconds, so a thread does it.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// Opens it.
    ///
    /// # Errors
    /// If neither a detached mount can be made nor a mounted tracefs found.
    pub fn open() -> Result<Tracefs, TracefsError> {
        let mounted = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let root = mounted.iter().find_map(|dir| {
            let root = open_dir(CWD, dir).ok()?;
            statat(&root, "events", AtFlags::empty()).ok()?;
            Some(root)
        });
        let root = root.map_or_else(|| detached_mount("tracefs"), Ok);
        Tracefs::mounted(root)
    }

    fn mounted(root: Result<OwnedFd, Errno>) -> Result<Tracefs, TracefsError> {
        root.map(|root| Tracefs { root })
            .map_err(|errno| TracefsError {
                action: "mount",
                errno,
            })
    }

    /// Opens it as a detached mount in which events can be defined.
    ///
    /// # Errors
    /// If no detached mount can be made.
    pub fn open_writable() -> Result<Tracefs, TracefsError> {
        Tracefs::mounted(mount_detached("tracefs", MountAttrFlags::empty()))
    }

    /// Closes it without waiting for the kernel.
    pub fn close(self) {
        crate::process::spawn_masked(move || drop(self.root));
    }

    /// The names of all subsystems, sorted.
    ///
    /// # Errors
    /// If `events` cannot be listed.
    pub fn systems(&self) -> Result<Vec<String>, TracefsError> {
        self.list("events")
    }

    /// Names of events that match `pattern` in subsystems that match `system`, in the order of
    /// subsystems. They include events that are not tracepoints (system calls, dynamic ones).
    ///
    /// # Errors
    /// If tracefs cannot be read. A missing subsystem has no events.
    pub fn events(&self, system: &str, pattern: &str) -> Result<Vec<String>, TracefsError> {
        if system.contains('/') || pattern.contains('/') {
            return Ok(Vec::new());
        }
        let systems = if glob::is_pattern(system) {
            self.systems()?
        } else {
            vec![system.to_owned()]
        };
        let mut events = Vec::new();
        for name in systems.iter().filter(|name| glob::matches(system, name)) {
            let dir = format!("events/{name}");
            if !glob::is_pattern(pattern) {
                if self.has(name, pattern) {
                    events.push(pattern.to_owned());
                }
                continue;
            }
            match self.list(&dir) {
                Ok(names) => events.extend(names.into_iter().filter(|n| glob::matches(pattern, n))),
                Err(e) if e.errno == Errno::NOENT => {}
                Err(e) => return Err(e),
            }
        }
        Ok(events)
    }

    /// The subsystem of an event, found by trying each; the alphabetically first.
    ///
    /// # Errors
    /// If tracefs cannot be read.
    pub fn system_of(&self, event: &str) -> Result<Option<String>, TracefsError> {
        let systems = self.systems()?;
        Ok(systems.into_iter().find(|system| self.has(system, event)))
    }

    /// Whether a subsystem has that event.
    pub fn has(&self, system: &str, event: &str) -> bool {
        let path = format!("events/{system}/{event}/enable");
        statat(&self.root, &path, AtFlags::empty()).is_ok()
    }

    /// The text of a file in it, such as `events/sched/sched_switch/format`.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn read(&self, path: &str) -> std::io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = String::new();
        File::from(openat(&self.root, path, flags, Mode::empty())?).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Appends lines to a file in it, such as `uprobe_events`, where each line is a request.
    ///
    /// # Errors
    /// Those of the requests; the requests before one that fails are done.
    pub fn append(&self, path: &str, text: &str) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let file = openat(&self.root, path, flags, Mode::empty())?;
        File::from(file).write_all(text.as_bytes())
    }

    /// Like [`Tracefs::read`], for files of megabytes, which are read fastest in large pieces.
    ///
    /// # Errors
    /// See [`Tracefs::read`].
    pub fn read_large(&self, path: &str) -> std::io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.root, path, flags, Mode::empty())?);
        let bytes = crate::sysfile::read_whole(file)?;
        String::from_utf8(bytes).map_err(std::io::Error::other)
    }

    /// The directories in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<String>, TracefsError> {
        let failed = |errno| TracefsError {
            action: "list events",
            errno,
        };
        let dir = open_dir(&self.root, path).map_err(failed)?;
        let mut names = Vec::new();
        for entry in Dir::new(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() == FileType::Directory && !name.starts_with('.') {
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// A file of debugfs; `None` where it cannot be read or does not exist.
pub(crate) fn debugfs(path: &str) -> Option<String> {
    read_of("debugfs", "/sys/kernel/debug", path)
}

/// The active security modules in their order (`/sys/kernel/security/lsm`); `None` where unknown.
pub fn security_modules() -> Option<Vec<String>> {
    let list = read_of("securityfs", "/sys/kernel/security", "lsm");
    Some(list?.trim().split(',').map(str::to_owned).collect())
}

/// A file of a file system of that type, or of the one that is mounted there.
fn read_of(fs: &str, mounted: &str, path: &str) -> Option<String> {
    let root = detached_mount(fs).or_else(|_| open_dir(CWD, mounted));
    let fs = Tracefs { root: root.ok()? };
    let text = fs.read_large(path).ok();
    fs.close();
    text
}

/// Makes a detached mount of a file system of that type, which nobody can write to, and returns its
/// root directory.
fn detached_mount(fs: &str) -> Result<OwnedFd, Errno> {
    mount_detached(fs, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

fn mount_detached(fs: &str, attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(fs, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn open_dir(parent: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    openat(
        parent,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::tests::testblob::Builder;

    fn sample() -> Btf {
        let mut b = Builder::new();
        let int = b.int("int", 4, true);
        let ptr = b.link(BtfKind::Ptr, "", 0);
        for name in ["one", "two"] {
            let proto = b.proto(0, &[("", ptr), ("", int)]);
            let to = b.link(BtfKind::Ptr, "", proto);
            b.link(BtfKind::Typedef, &format!("btf_trace_{name}"), to);
        }
        let named = b.proto(int, &[("__data", ptr), ("prev", int)]);
        b.link(BtfKind::Func, "__traceiter_one", named);
        Btf::parse(b.bytes()).expect("sound")
    }

    #[test]
    fn arguments_have_their_names() {
        let btf = sample();
        let one = find(&btf, "one").expect("one");
        assert_eq!(
            one.args,
            [TracepointParam {
                name: "prev".into(),
                ty: 1
            }]
        );
        let two = find(&btf, "two").expect("two");
        assert_eq!(
            two.args,
            [TracepointParam {
                name: "arg1".into(),
                ty: 1
            }]
        );
        assert_eq!(find(&btf, "three"), None);
    }

    #[test]
    fn wildcards_match_names_of_tracepoints() {
        let btf = sample();
        assert_eq!(names(&btf), ["one", "two"]);
        assert_eq!(matching(&btf, "t*").expect("no tracefs"), ["two"]);
        assert_eq!(matching(&btf, "one").expect("no tracefs"), ["one"]);
        assert!(matching(&btf, "zero").expect("no tracefs").is_empty());
    }

    #[test]
    fn tracepoints_of_the_running_kernel_have_arguments() {
        let btf = match Btf::vmlinux() {
            Ok(btf) => btf,
            Err(why) => spile_testing::skip!("{why}"),
        };
        assert!(names(btf).len() > 300);
        let switch = find(btf, "sched_switch").expect("sched_switch");
        let names: Vec<&str> = switch.args.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names[..3], ["preempt", "prev", "next"]);
        assert_eq!(btf.c_name(switch.args[1].ty), "struct task_struct *");
        let enter = find(btf, "sys_enter").expect("sys_enter");
        assert_eq!(enter.args[1].name, "id");
    }

    #[test]
    fn systems_are_listed_without_a_mount() {
        let Ok(btf) = Btf::vmlinux() else {
            spile_testing::skip!("no BTF");
        };
        let fs = match Tracefs::open() {
            Ok(fs) => fs,
            Err(why) => spile_testing::skip!("{why}"),
        };
        let before = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(
            fs.system_of("sched_switch").expect("readable").as_deref(),
            Some("sched")
        );
        assert_eq!(
            matching(btf, "sched:sched_switch").expect("readable"),
            ["sched_switch"]
        );
        assert!(
            matching(btf, "nosuch:sched_switch")
                .expect("readable")
                .is_empty()
        );
        assert!(matching(btf, "nosuch:*").expect("readable").is_empty());
        let all = matching(btf, "sched:*").expect("readable");
        assert!(all.contains(&"sched_wakeup".to_owned()) && all.len() > 10);
        assert!(
            matching(btf, "irq*:*")
                .expect("readable")
                .contains(&"irq_handler_entry".to_owned())
        );
        let after = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(before, after);
    }
}
