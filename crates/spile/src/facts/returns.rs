//! The way in which returns of functions of programs are caught: at their return instructions, and
//! at those of functions that they jump to, which return instead.
//!
//! A probe never kills its target, and the kernel's own uretprobe can. It replaces the return
//! address of the call. Exceptions, `longjmp`, ends of threads, coroutines and signal handlers on a
//! stack of their own then end the program. So a uretprobe is only used where the return
//! instructions are not all known and nothing of that kind can happen in the program.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::tail_calls::ExitFinder;
use spile_debuginfo::{DebugFile as File, Image, stack_hazards};
use spile_ir::{Exit, Exits};
use spile_kernel::machine::{self, Version};
use spile_sema::facts::FoundLocation;

use super::location_notes::LocationNotes;
use super::paths;

/// The kernels whose uretprobe makes a system call that a seccomp filter can punish by death.
const SYSCALL_IS_FILTERED: std::ops::Range<Version> = Version::new(6, 11)..Version::new(6, 14);

/// The decisions about returns so far.
#[derive(Default)]
pub(crate) struct ReturnDecisions {
    /// Leave all returns to the kernel.
    pub take_risks: bool,
    /// By file: the processes that it is probed in; `None` for all.
    users: Mutex<BTreeMap<PathBuf, BTreeSet<Option<u32>>>>,
    /// By file: why a uretprobe could kill a program that has it.
    hazards: Mutex<HashMap<PathBuf, Option<String>>>,
    /// Functions that match and were left out.
    pub left_out: LocationNotes,
}

impl ReturnDecisions {
    /// Notes that code of a file is probed in a process, or in all.
    pub(crate) fn runs_in(&self, file: &Path, pid: Option<u32>) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(file.to_owned()).or_default().insert(pid);
    }

    /// Probes functions of a file at their returns in a way that does not harm the program.
    /// Functions without such a way are left out, and so are those that never return.
    ///
    /// # Errors
    /// When none of the functions has such a way.
    pub(crate) fn safe_returns(
        &self,
        path: &Path,
        file: &File,
        locations: Vec<FoundLocation>,
    ) -> Result<Vec<FoundLocation>, String> {
        if self.take_risks {
            return Ok(locations);
        }
        let finder = ExitFinder::new(file);
        let mut harm: Option<Option<String>> = None;
        let (mut safe, mut refused, mut endless) = (Vec::new(), Vec::new(), None);
        for location in locations {
            match exits(file, &finder, &location) {
                Ok(exits) if exits.instructions.is_empty() => endless = Some(location.name),
                Ok(exits) => safe.push(FoundLocation {
                    exits: Some(Arc::new(exits)),
                    ..location
                }),
                Err(reason) => match harm.get_or_insert_with(|| self.harm(path)) {
                    None => safe.push(location),
                    Some(harm) => refused.push((
                        location.name,
                        format!(
                            "{reason}; and the kernel's return probe can kill the program: {harm}"
                        ),
                    )),
                },
            }
        }
        match (&*safe, &*refused, endless) {
            ([], [(_, reason), ..], _) => {
                return Err(format!(
                    "its return instructions are not all known: {reason}. --unsafe-returns takes the risk"
                ));
            }
            ([], [], Some(name)) => return Err(format!("`{name}` never returns")),
            _ => {}
        }
        let refused = refused.iter().map(|(name, why)| format!("{name}: {why}"));
        self.left_out.add(refused);
        Ok(safe)
    }

    /// Why a uretprobe in a file could kill a program; `None` if it is harmless in all programs
    /// that it is probed in.
    fn harm(&self, path: &Path) -> Option<String> {
        if SYSCALL_IS_FILTERED.contains(&machine::version()) {
            return Some("on this kernel a seccomp filter can forbid it".into());
        }
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let users = users.get(path).cloned().unwrap_or_default();
        if users.is_empty() {
            return self.harm_in(path, None);
        }
        users.iter().find_map(|pid| self.harm_in(path, *pid))
    }

    /// The same for one process, or for all.
    fn harm_in(&self, path: &Path, pid: Option<u32>) -> Option<String> {
        let files = match pid {
            Some(pid) => {
                let program = paths::of_process(pid).ok();
                let mut files: Vec<PathBuf> = program.into_iter().collect();
                files.extend(paths::mapped_files(pid));
                files
            }
            None => {
                match Image::open(path) {
                    Ok(image) if image.is_program() => {}
                    _ => return Some("any program can use this library".into()),
                }
                if let Some(preloaded) = preloaded() {
                    return Some(preloaded);
                }
                match paths::all_needed(path) {
                    Ok(mut files) => {
                        files.push(path.to_owned());
                        files
                    }
                    Err(missing) => return Some(format!("its library {missing} is not found")),
                }
            }
        };
        files.iter().find_map(|file| {
            let hazard = self.hazard(file)?;
            Some(format!("{}: {hazard}", file.display()))
        })
    }

    fn hazard(&self, path: &Path) -> Option<String> {
        let mut hazards = self.hazards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hazards.get(path) {
            return known.clone();
        }
        let hazard = match Image::open(path) {
            Ok(image) => stack_hazards::hazard(&image),
            Err(_) => Some("it cannot be read".into()),
        };
        hazards.insert(path.to_owned(), hazard.clone());
        hazard
    }
}

/// Libraries that programs have without needing them.
fn preloaded() -> Option<String> {
    let file = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    if !file.trim().is_empty() {
        return Some("/etc/ld.so.preload adds libraries".into());
    }
    let variable = std::env::var_os("LD_PRELOAD").is_some_and(|v| !v.is_empty());
    variable.then(|| "LD_PRELOAD adds libraries".into())
}

/// The instructions by which a function returns.
fn exits(file: &File, finder: &ExitFinder<'_>, location: &FoundLocation) -> Result<Exits, String> {
    // Functions of C and of the linker have no package in their names.
    let goroutines = file.image().is_go() && location.name.contains('.');
    if goroutines && !hands_over_goroutine(file) {
        return Err("it was built by Go before 1.18".into());
    }
    let locations = finder.return_locations(location.address)?;
    let exit = |address: &u64| {
        let distance = address.wrapping_sub(location.address).cast_signed();
        Some(Exit {
            offset: file.image().file_offset(*address)?,
            distance: i32::try_from(distance).ok()?,
        })
    };
    let addresses = locations.in_function.iter().chain(&locations.shared);
    let instructions: Option<Vec<Exit>> = addresses.map(exit).collect();
    Ok(Exits {
        instructions: instructions.ok_or("its parts are too far apart")?,
        goroutines,
        shared: !locations.shared.is_empty(),
    })
}

/// Whether functions have their goroutine in a register, as since Go 1.17; since Go 1.18 the file
/// itself has the version (`debug/buildinfo`).
fn hands_over_goroutine(file: &File) -> bool {
    const INLINE: u8 = 2;
    let info = file.image().bytes_of(".go.buildinfo").unwrap_or_default();
    info.starts_with(b"\xff Go buildinf:") && info.get(15).is_some_and(|f| f & INLINE != 0)
}
