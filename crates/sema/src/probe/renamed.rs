//! Functions and tracepoints of the kernel that have other names today, for scripts that name the old ones.

use spile_syntax::ast::{Component, Literal};

/// A name that kernels no longer have.
struct Renamed {
    /// The component of probe points that names it.
    kind: &'static str,
    old: &'static str,
    /// What does its work today, the newest first. Arguments that both have mean the same; a name with other arguments is
    /// no row.
    now: &'static [&'static str],
    /// The release of Linux from which on the old name is gone.
    since: &'static str,
}

/// Source of the rows: the history of the kernel.
const RENAMED: &[Renamed] = &[
    function("__vfs_read", &["vfs_read"], "5.8"),
    function("__vfs_write", &["vfs_write"], "5.8"),
    function("clear_huge_page", &["folio_zero_user"], "6.11"),
    function("copy_user_huge_page", &["copy_user_large_folio"], "6.5"),
    function(
        "split_huge_page",
        &[
            "__folio_split",
            "split_huge_page_to_list_to_order",
            "split_huge_page_to_list",
        ],
        "4.5",
    ),
    function("tcp_transmit_skb", &["__tcp_transmit_skb"], "4.19"),
    tracepoint("mm_vmscan_writepage", &["mm_vmscan_write_folio"], "5.18"),
];

const fn function(old: &'static str, now: &'static [&'static str], since: &'static str) -> Renamed {
    Renamed {
        kind: "function",
        old,
        now,
        since,
    }
}

const fn tracepoint(
    old: &'static str,
    now: &'static [&'static str],
    since: &'static str,
) -> Renamed {
    Renamed {
        kind: "trace",
        old,
        now,
        since,
    }
}

/// A probe point with the name of today.
pub(super) struct Today {
    pub comps: Vec<Component>,
    pub old: &'static str,
    pub now: &'static str,
    pub since: &'static str,
}

/// The point with each of the names that its function or tracepoint has had since.
pub(super) fn of_today(comps: &[Component]) -> Vec<Today> {
    let [family, named, ..] = comps else {
        return Vec::new();
    };
    let Some(Literal::Str(given)) = &named.arg else {
        return Vec::new();
    };
    if !matches!(&*family.name, "kernel" | "kprobe") {
        return Vec::new();
    }
    let row = RENAMED.iter().find(|r| {
        let bytes: &[u8] = given;
        r.kind == &*named.name && r.old.as_bytes() == bytes
    });
    let today = |row: &Renamed, now: &'static str| {
        let mut comps = comps.to_vec();
        comps[1].arg = Some(Literal::Str(now.as_bytes().into()));
        Today {
            comps,
            old: row.old,
            now,
            since: row.since,
        }
    };
    row.map_or_else(Vec::new, |row| {
        row.now.iter().map(|now| today(row, now)).collect()
    })
}
