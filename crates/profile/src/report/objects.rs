//! Tables of what threads waited for: locks, files, the network.

use std::collections::HashMap;

use super::table::{TextTable, section};
use super::units::{percent, time};
use crate::answer::{Finding, matters};
use crate::model::Ns;
use crate::run::Summary;

/// A kind of objects that threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitObject {
    /// Locks of the program.
    Lock,
    /// Files, pipes and devices.
    File,
    /// Sockets.
    Socket,
}

impl WaitObject {
    const ALL: [WaitObject; 3] = [WaitObject::Lock, WaitObject::File, WaitObject::Socket];

    /// The kind of what a finding waits for.
    fn of(finding: &Finding) -> Option<WaitObject> {
        let object = finding.object.as_deref();
        match object? {
            _ if finding.is_lock() => Some(WaitObject::Lock),
            // A child, or a variable with a condition or a semaphore.
            _ if finding.own_wait().is_some() => None,
            // A variable with a futex that is no lock.
            _ if finding
                .call
                .as_deref()
                .is_some_and(|call| call.starts_with("futex")) =>
            {
                None
            }
            name if name.ends_with("socket") => Some(WaitObject::Socket),
            // An address and a port.
            name if !name.starts_with('/') && name.contains(':') => Some(WaitObject::Socket),
            _ => Some(WaitObject::File),
        }
    }

    fn title(self) -> &'static str {
        match self {
            WaitObject::Lock => "Locks",
            WaitObject::File => "Files",
            WaitObject::Socket => "Network",
        }
    }

    fn head(self) -> &'static str {
        match self {
            WaitObject::Lock => "lock",
            WaitObject::File => "file",
            WaitObject::Socket => "peer",
        }
    }
}

/// The time and the largest place of an object.
struct Object<'a> {
    ns: Ns,
    threads: u64,
    largest: &'a Finding,
}

/// A table for each kind of objects that is asked for, or that has 5 % of the whole time.
pub(super) fn objects(
    findings: &[Finding],
    summary: &Summary,
    asked: &[WaitObject],
    width: usize,
    top: usize,
) -> String {
    let mut out = String::new();
    for kind in WaitObject::ALL {
        let some = findings.iter().filter(|f| WaitObject::of(f) == Some(kind));
        let mut objects: HashMap<&str, Object<'_>> = HashMap::new();
        for f in some {
            let name = f.object.as_deref().unwrap_or_default();
            let object = objects.entry(name).or_insert(Object {
                ns: 0,
                threads: 0,
                largest: f,
            });
            object.ns = object.ns.saturating_add(f.ns);
            object.threads = object.threads.max(f.threads);
        }
        let all = objects
            .values()
            .fold(0, |sum: Ns, o| sum.saturating_add(o.ns));
        if all > 0 && (asked.contains(&kind) || matters(all, summary.total.wall)) {
            out += &table(kind, objects, summary, width, top);
        } else if asked.contains(&kind) {
            out += &format!("\n{}\nno waits of a millisecond or more\n", kind.title());
        }
    }
    out
}

fn table(
    kind: WaitObject,
    objects: HashMap<&str, Object<'_>>,
    summary: &Summary,
    width: usize,
    top: usize,
) -> String {
    let mut rows: Vec<(&str, Object<'_>)> = objects.into_iter().collect();
    rows.sort_by(|a, b| (b.1.ns, a.0).cmp(&(a.1.ns, b.0)));
    let mut table = TextTable::new(&[
        (kind.head(), 0),
        ("waited", 0),
        ("share", 0),
        ("threads", 3),
        ("mostly in", 1),
        ("released by", 2),
    ]);
    for (name, object) in rows.iter().take(top) {
        let f = object.largest;
        let call = f.call.as_deref().unwrap_or("page fault");
        let function = match (&*f.function, &f.location) {
            ("", _) => "-".to_owned(),
            (name, Some(line)) if line.contains(':') => format!("{name} ({line})"),
            (name, _) => name.to_owned(),
        };
        table.rows.push(vec![
            (*name).to_owned(),
            time(object.ns),
            percent(object.ns as f64, summary.total.wall as f64),
            object.threads.to_string(),
            match kind {
                WaitObject::Lock => function,
                WaitObject::File | WaitObject::Socket => format!("{call} in {function}"),
            },
            f.holder
                .clone()
                .unwrap_or_else(|| "-".to_owned())
                .replace('`', ""),
        ]);
    }
    section(kind.title(), &table, width, rows.len().saturating_sub(top))
}
