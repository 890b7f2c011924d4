//! Finds the debugging information of a kernel and of its modules.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::find::{DEBUG_ROOT, SearchPaths, hex};
use crate::image::Image;

/// `NT_GNU_BUILD_ID`
const NOTE_BUILD_ID: u32 = 3;
/// Maximum number of directories searched for a module.
const MAX_FOLDERS: usize = 20_000;

/// The kernel or module to find.
#[derive(Debug, Clone, Copy)]
pub struct KernelQuery<'a> {
    /// The kernel's release, as in `uname -r`.
    pub release: &'a str,
    /// The module's name; `None` for the kernel itself.
    pub module: Option<&'a str>,
    /// Its build-id, if known: files with another one are refused.
    pub build_id: Option<&'a [u8]>,
    /// The kernel's build directory (`-r DIR`).
    pub build: Option<&'a Path>,
}

impl SearchPaths {
    /// The file with the debugging information of a kernel or module. `remote`: debuginfod servers
    /// are asked if it is not on this machine.
    ///
    /// # Errors
    /// The locations that were searched, and why files there were refused.
    pub fn kernel(&self, wanted: &KernelQuery<'_>, remote: bool) -> Result<Image, Vec<String>> {
        let mut notes = Vec::new();
        for path in self.kernel_paths(wanted) {
            match open(&path, wanted.build_id) {
                Ok(image) => return Ok(image),
                Err(Some(why)) => notes.push(why),
                Err(None) => notes.push(path.display().to_string()),
            }
        }
        match wanted.build_id {
            Some(id) if remote => self.download(id, &mut notes).ok_or(notes),
            _ => Err(notes),
        }
    }

    /// Paths in the order of preference.
    fn kernel_paths(&self, wanted: &KernelQuery<'_>) -> Vec<PathBuf> {
        let release = wanted.release;
        let mut paths = Vec::new();
        if let Some(build) = wanted.build {
            match wanted.module {
                Some(module) => paths.extend(self.listed.files(build, module)),
                None => paths.push(build.join("vmlinux")),
            }
        }
        if let Some(id) = wanted.build_id {
            paths.extend(self.by_build_id(id, ".debug"));
        }
        for root in self.roots() {
            let debug = root.join(DEBUG_ROOT);
            let modules = format!("lib/modules/{release}");
            match wanted.module {
                Some(module) => {
                    for folder in [debug.join(&modules), root.join(&modules)] {
                        paths.extend(self.listed.files(&folder, module));
                    }
                }
                None => paths.extend([
                    debug.join(format!("boot/vmlinux-{release}")),
                    debug.join(&modules).join("vmlinux"),
                    root.join(&modules).join("build/vmlinux"),
                    root.join(format!("boot/vmlinux-{release}")),
                ]),
            }
        }
        paths
    }
}

/// Opens a file if it is the right one; otherwise the reason, if it exists.
fn open(path: &Path, build_id: Option<&[u8]>) -> Result<Image, Option<String>> {
    if !path.exists() {
        return Err(None);
    }
    let image = Image::open(path).map_err(|e| Some(e.to_string()))?;
    let wrong = |why: &str| Err(Some(format!("{}: {why}", path.display())));
    match (build_id, image.build_id()) {
        (Some(wanted), Some(has)) if wanted != has => {
            return wrong(&format!(
                "is of another build (build-id {}, wanted {})",
                hex(has),
                hex(wanted)
            ));
        }
        (Some(_), None) => {
            return wrong("has no build-id, so it cannot be matched with the kernel");
        }
        _ => {}
    }
    match image.has_section(".debug_info") || image.has_section(".zdebug_info") {
        true => Ok(image),
        false => wrong("has no debugging information"),
    }
}

/// Files by the names of their modules.
type ByModule = HashMap<String, Vec<PathBuf>>;

/// A cache of the module files in directories: each directory is listed once.
#[derive(Debug, Clone, Default)]
pub struct ModuleListings(Arc<Mutex<HashMap<PathBuf, ByModule>>>);

impl ModuleListings {
    /// Files of a module in a directory and below it.
    fn files(&self, folder: &Path, module: &str) -> Vec<PathBuf> {
        let mut listings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let files = listings.entry(folder.to_owned());
        let files = files.or_insert_with(|| modules_below(folder));
        files.get(module).cloned().unwrap_or_default()
    }
}

/// Files of modules in a directory and below it. The kernel writes `_` for `-`.
fn modules_below(folder: &Path) -> ByModule {
    let module = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str)?;
        let stem = name
            .strip_suffix(".ko.debug")
            .or_else(|| name.strip_suffix(".ko"))?;
        Some(stem.replace('-', "_"))
    };
    let mut files = ByModule::new();
    let mut folders = vec![folder.to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Symbolic links lead to the sources, and in circles.
            match entry.file_type() {
                Ok(t) if t.is_dir() && seen < MAX_FOLDERS => folders.push(path),
                Ok(t) if !t.is_dir() => {
                    if let Some(module) = module(&path) {
                        files.entry(module).or_default().push(path);
                    }
                }
                _ => {}
            }
        }
    }
    files.values_mut().for_each(|paths| paths.sort());
    files
}

/// The build-id in the notes that the kernel exposes about itself (`/sys/kernel/notes`) and its
/// modules.
#[must_use]
pub fn build_id_of_notes(mut notes: &[u8]) -> Option<&[u8]> {
    const PADDED: usize = 4;
    loop {
        let word = |n: usize| {
            let bytes = notes.get(n * 4..n * 4 + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (name, desc, kind) = (word(0)? as usize, word(1)? as usize, word(2)?);
        let body = notes.get(12..)?;
        let text = body.get(..name)?;
        let from = name.checked_next_multiple_of(PADDED)?;
        let data = body.get(from..from.checked_add(desc)?)?;
        if kind == NOTE_BUILD_ID && text == b"GNU\0" && !data.is_empty() {
            return Some(data);
        }
        let next = from.checked_add(desc.checked_next_multiple_of(PADDED)?)?;
        notes = body.get(next..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_read_from_notes() {
        let note = |name: &[u8], kind: u32, data: &[u8]| {
            let mut bytes = Vec::new();
            for n in [name.len() as u32, data.len() as u32, kind] {
                bytes.extend(n.to_ne_bytes());
            }
            for part in [name, data] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let all = [
            note(b"Linux\0", 3, b"odd"),
            note(b"GNU\0", 1, &[9; 6]),
            note(b"GNU\0", 3, &[7; 20]),
        ]
        .concat();
        assert_eq!(build_id_of_notes(&all), Some(&[7; 20][..]));
        for end in 0..all.len() {
            assert_eq!(build_id_of_notes(&all[..end]), None);
        }
        assert_eq!(build_id_of_notes(&[0xff; 64]), None);
    }
}
