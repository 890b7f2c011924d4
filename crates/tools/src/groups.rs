//! Control groups and containers by name, as `--cgroup` and `--container` take them.
//!
//! A container is found by its id in the paths of its processes' control groups, so no daemon is asked. Names come
//! from the files that Docker, Podman and Kubernetes keep; without those files, only ids are known.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use spile_kernel::cgroup::{self, Hierarchy};
use spile_kernel::process;
use spile_plain::messages::{Failure, fail};

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The number of its tree, see [`Hierarchy::id`].
    pub(crate) tree: u32,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Its number, which is the inode of its folder.
    pub(crate) id: u64,
}

impl Group {
    /// Its processes and those of the groups below it, without this one.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        members(&self.folder)
    }
}

/// The processes of a control group, without this one.
fn members(folder: &Path) -> BTreeSet<u32> {
    let mut processes = cgroup::processes(folder);
    processes.remove(&std::process::id());
    processes
}

/// Length of a container's id in hexadecimal digits.
const ID: usize = 64;
/// Length of the shortest part of an id that stands for the whole, as `docker ps` prints it.
const SHORT_ID: usize = 12;
/// Number of names in a message at most.
const NAMES: usize = 8;

/// The control group that `text` means: a folder, a path below the root of a tree of control groups, or the last
/// parts of such a path.
pub(crate) fn cgroup(text: &str) -> Result<Group, Failure> {
    let wrong = |why: &str| fail(format_args!("--cgroup {text}: {why}"));
    let trees = cgroup::hierarchies();
    if trees.is_empty() {
        return Err(wrong(
            "control groups are not mounted here (mount -t cgroup2 none DIR)",
        ));
    }
    let mut found = by_path(text, &trees);
    if found.is_empty() {
        found = by_end(text, &trees);
        let paths: BTreeSet<&Path> = found.iter().map(|f| &*f.path).collect();
        if paths.len() > 1 {
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            return Err(wrong(&format!("several control groups: {}", some(&paths))));
        }
    }
    if found.is_empty() {
        return Err(wrong(&no_group(text, &trees)));
    }
    occupied(found).ok_or_else(|| wrong("this control group has no processes"))
}

/// The control group of a container: by its name, or by the first digits of its id.
pub(crate) fn container(text: &str) -> Result<Group, Failure> {
    let wrong = |why: &str| fail(format_args!("--container {text}: {why}"));
    let trees = cgroup::hierarchies();
    let running = containers(&trees, process::all().into_iter().filter_map(paths_of));
    let names = names(Path::new("/"));
    let named = names
        .get(text)
        .cloned()
        .into_iter()
        .collect::<Vec<String>>();
    let ids: Vec<&String> = match named.is_empty() {
        false => running.keys().filter(|id| named.contains(id)).collect(),
        true => matching(text, running.keys()),
    };
    match &ids[..] {
        [id] => {
            occupied(running[*id].clone()).ok_or_else(|| wrong("this container has no processes"))
        }
        [] if !named.is_empty() => Err(wrong("this container does not run")),
        [] => {
            let shown: Vec<String> = running.keys().map(|id| label(id, &names)).collect();
            Err(wrong(&match shown.is_empty() {
                true => "there is no such container; none runs here".to_owned(),
                false => format!(
                    "there is no such container; these run: {}",
                    some(&nearest(text, shown))
                ),
            }))
        }
        several => {
            let shown: Vec<String> = several.iter().map(|id| label(id, &names)).collect();
            Err(wrong(&format!("several containers: {}", some(&shown))))
        }
    }
}

/// A folder in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    tree: u32,
    folder: PathBuf,
    /// The folder below the root of the tree.
    path: PathBuf,
}

fn found(tree: &Hierarchy, folder: PathBuf) -> Option<Found> {
    let path = folder.strip_prefix(&tree.root).ok()?.to_owned();
    Some(Found {
        tree: tree.id,
        folder,
        path,
    })
}

/// The groups of that folder, or of that path in each tree.
fn by_path(text: &str, trees: &[Hierarchy]) -> Vec<Found> {
    if let Ok(folder) = Path::new(text).canonicalize()
        && text.contains('/')
        && let Some(group) = trees.iter().find_map(|t| found(t, folder.clone()))
    {
        return vec![group];
    }
    let below = text.trim_start_matches('/');
    let groups = trees.iter().filter_map(|tree| {
        let folder = tree.root.join(below).canonicalize().ok()?;
        found(tree, folder).filter(|f| f.folder.is_dir())
    });
    groups.collect()
}

/// The groups whose paths end with `text`.
fn by_end(text: &str, trees: &[Hierarchy]) -> Vec<Found> {
    let text = Path::new(text.trim_matches('/'));
    let all = trees.iter().flat_map(|tree| {
        cgroup::folders(&tree.root)
            .into_iter()
            .map(move |f| (tree, f))
    });
    // Services and scopes of systemd are known without their kind, too.
    let ends = |folder: &Path| {
        folder.ends_with(text)
            || folder
                .extension()
                .is_some_and(|e| e == "service" || e == "scope" || e == "slice")
                && folder.with_extension("").ends_with(text)
    };
    all.filter(|(_, folder)| ends(folder))
        .filter_map(|(tree, folder)| found(tree, folder))
        .collect()
}

/// The first of these folders of one group in several trees that has processes.
fn occupied(found: Vec<Found>) -> Option<Group> {
    found.into_iter().find_map(|f| {
        let id = f.folder.metadata().ok()?.ino();
        (!members(&f.folder).is_empty()).then_some(Group {
            tree: f.tree,
            folder: f.folder,
            id,
        })
    })
}

/// The message of a group that does not exist.
fn no_group(text: &str, trees: &[Hierarchy]) -> String {
    let all = trees.iter().flat_map(|tree| {
        let folders = cgroup::folders(&tree.root).into_iter();
        folders.filter_map(|f| Some(f.strip_prefix(&tree.root).ok()?.to_str()?.to_owned()))
    });
    let all: BTreeSet<String> = all.filter(|path| !path.is_empty()).collect();
    match nearest(text, all.into_iter().collect()) {
        near if near.is_empty() => "there is no such control group".to_owned(),
        near => format!(
            "there is no such control group; the nearest are {}",
            some(&near)
        ),
    }
}

/// At most [`NAMES`] names, the most similar first.
fn nearest(text: &str, mut names: Vec<String>) -> Vec<String> {
    let wanted = text.trim_matches('/').to_lowercase();
    names.sort_by_cached_key(|name| {
        let name = name.to_lowercase();
        let last = name.rsplit('/').next().unwrap_or(&name);
        distance(&wanted, &name).min(distance(&wanted, last))
    });
    names.truncate(NAMES);
    names
}

/// Number of characters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Names in a message.
fn some(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMES)].join(", ");
    if names.len() > NAMES {
        text += ", ...";
    }
    text
}

/// The text of `/proc/PID/cgroup`.
fn paths_of(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
}

/// The running containers by id or name, with their control group in each tree. `processes` are the texts of
/// `/proc/PID/cgroup`.
fn containers(
    trees: &[Hierarchy],
    processes: impl Iterator<Item = String>,
) -> BTreeMap<String, Vec<Found>> {
    let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for line in processes
        .collect::<BTreeSet<String>>()
        .iter()
        .flat_map(|t| t.lines())
    {
        let mut parts = line.splitn(3, ':');
        let (Some(tree), Some(path)) = (parts.next(), parts.nth(1)) else {
            continue;
        };
        let Some(tree) = trees.iter().find(|t| t.id.to_string() == tree) else {
            continue;
        };
        let mut folder = tree.root.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            folder.push(part);
            if let Some(id) = container_id(part) {
                let groups = all.entry(id.to_owned()).or_default();
                if let Some(group) = found(tree, folder).filter(|f| !groups.contains(f)) {
                    let at = groups.partition_point(|g| g.tree < group.tree);
                    groups.insert(at, group);
                }
                break;
            }
        }
    }
    all
}

/// The container that a folder of control groups is for: `ID`, `docker-ID.scope`, `cri-containerd-ID.scope`,
/// `lxc.payload.NAME`, `machine-NAME.scope` and the like.
fn container_id(folder: &str) -> Option<&str> {
    let name = folder.strip_suffix(".scope").unwrap_or(folder);
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return Some(name);
    }
    if folder != name
        && let Some(name) = name.strip_prefix("machine-")
    {
        return Some(name);
    }
    let id = name.rsplit(['-', ':']).next()?;
    let is_id = id.len() == ID && id.bytes().all(|b| b.is_ascii_hexdigit());
    // Podman's monitor of a container is not in it.
    (is_id && !name.starts_with("libpod-conmon-")).then_some(id)
}

/// The ids that a text means: an id, or the first digits of one.
fn matching<'a>(text: &str, ids: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let ids: Vec<&String> = ids.filter(|id| id.starts_with(text)).collect();
    match ids.iter().find(|id| **id == text) {
        Some(id) => vec![id],
        None if text.is_empty() => Vec::new(),
        None => ids,
    }
}

/// The ids of containers by name, from the files of Docker, Podman and Kubernetes.
fn names(root: &Path) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let json = |path: &Path| -> Option<Value> {
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    };
    let entries = |folder: &str| {
        let folder = std::fs::read_dir(root.join(folder));
        folder.into_iter().flatten().flatten().map(|e| e.path())
    };
    for folder in entries("var/lib/docker/containers") {
        let config = json(&folder.join("config.v2.json")).unwrap_or_default();
        if let (Some(id), Some(name)) = (config["ID"].as_str(), config["Name"].as_str()) {
            names.insert(name.trim_start_matches('/').to_owned(), id.to_owned());
        }
    }
    let podman = "var/lib/containers/storage/overlay-containers/containers.json";
    for container in json(&root.join(podman))
        .iter()
        .filter_map(Value::as_array)
        .flatten()
    {
        let id = container["id"].as_str().unwrap_or_default();
        for name in container["names"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            names.insert(name.to_owned(), id.to_owned());
        }
    }
    // POD_NAMESPACE_CONTAINER-ID.log
    for log in entries("var/log/containers") {
        let name = log
            .file_stem()
            .and_then(|n| n.to_str())
            .and_then(|n| n.rsplit_once('-'));
        if let Some((name, id)) = name
            && let [pod, _, container] = name.split('_').collect::<Vec<_>>()[..]
        {
            names.insert(format!("{pod}/{container}"), id.to_owned());
        }
    }
    names
}

/// A container in a message: its name, or the beginning of its id.
fn label(id: &str, names: &BTreeMap<String, String>) -> String {
    let name = names.iter().find(|(_, of)| *of == id);
    name.map_or_else(
        || match container_id(id) {
            Some(_) => id.chars().take(SHORT_ID).collect(),
            None => id.to_owned(),
        },
        |(name, _)| name.clone(),
    )
}

#[cfg(test)]
mod tests;
