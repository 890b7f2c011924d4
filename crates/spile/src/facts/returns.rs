//! Returns of functions of programs. Where the kernel's uretprobe could kill the program, the
//! return instructions are probed instead.
//!
//! A uretprobe replaces the return address. Unwinders of exceptions find no caller there and end
//! the program; so does Go, which moves stacks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::exits::{self, TailJump};
use spile_debuginfo::{Module as File, SearchPaths, exceptions};
use spile_ir::{Exit, Exits};
use spile_sema::facts::FoundPlace;

use super::paths;

/// The decisions about returns so far.
#[derive(Default)]
pub(crate) struct ReturnDecisions {
    /// Leave all returns to the kernel.
    pub take_risks: bool,
    /// By file: what runs its code, as far as the script says.
    users: Mutex<BTreeMap<PathBuf, BTreeSet<CodeUser>>>,
    /// By file: the routine by which it catches exceptions.
    caught: Mutex<HashMap<PathBuf, Option<String>>>,
    left_out: Mutex<Vec<String>>,
}

/// A user of a file's code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CodeUser {
    /// Processes of this program.
    Program(PathBuf),
    /// This process.
    Process(u32),
}

/// The address ranges of a returning function.
type Ranges = Vec<(u64, u64)>;

impl ReturnDecisions {
    /// Notes that code of a file runs there.
    pub(crate) fn runs_in(&self, file: &Path, user: CodeUser) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(file.to_owned()).or_default().insert(user);
    }

    /// Functions that match and were left out, with the reason.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let all = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// Probes functions of a file at their returns in a way that does not harm the program.
    /// Functions without such a way are left out.
    ///
    /// # Errors
    /// When none of the functions has such a way.
    pub(crate) fn safe_returns(
        &self,
        path: &Path,
        file: &File,
        found: Vec<FoundPlace>,
        code: impl Fn(&FoundPlace) -> Ranges,
    ) -> Result<Vec<FoundPlace>, String> {
        if self.take_risks {
            return Ok(found);
        }
        let go = file.image().is_go();
        let why = match go {
            true => Some("a program in Go moves its stacks".to_owned()),
            false => self.exceptions_through(path),
        };
        let Some(why) = why else {
            return Ok(found);
        };
        let (mut safe, mut refused) = (Vec::new(), Vec::new());
        for place in found {
            match instructions(file, &place, &code(&place), go) {
                Ok(exits) => safe.push(FoundPlace { exits, ..place }),
                Err(reason) => refused.push((place.name, reason)),
            }
        }
        if let ([], [(_, reason), ..]) = (&*safe, &*refused) {
            return Err(format!(
                "{why}, so it could die of the kernel's return probe; its return instructions \
                 cannot be probed instead: {reason}. --unsafe-returns takes the risk"
            ));
        }
        let refused = refused.iter().map(|(name, why)| format!("{name}: {why}"));
        let mut all = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        for text in refused {
            // Analysis can ask for a point more than once.
            if !all.contains(&text) {
                all.push(text);
            }
        }
        Ok(safe)
    }

    /// Why exceptions could pass through frames of a file's functions: the file, a library that it
    /// needs, or a program that runs it catches exceptions.
    fn exceptions_through(&self, path: &Path) -> Option<String> {
        let mut files = vec![path.to_owned()];
        files.extend(paths::needed(path, None));
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        for user in users.get(path).into_iter().flatten() {
            match user {
                CodeUser::Program(program) => {
                    files.push(program.clone());
                    files.extend(paths::needed(program, None));
                }
                CodeUser::Process(pid) => {
                    files.extend(paths::of_process(*pid));
                    files.extend(paths::mapped_files(*pid));
                }
            }
        }
        drop(users);
        files.iter().find_map(|file| {
            let routine = self.caught_by(file)?;
            Some(format!("{} catches exceptions ({routine})", file.display()))
        })
    }

    fn caught_by(&self, path: &Path) -> Option<String> {
        let mut all = self.caught.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(path) {
            return known.clone();
        }
        let file = File::open(path, &SearchPaths::default()).ok();
        let caught = file.and_then(|f| exceptions::caught_by(&f));
        all.insert(path.to_owned(), caught.clone());
        caught
    }
}

/// The instructions by which a function returns; `None` where a uretprobe is harmless: nothing
/// passes through a function without calls.
fn instructions(
    file: &File,
    place: &FoundPlace,
    code: &[(u64, u64)],
    go: bool,
) -> Result<Option<Arc<Exits>>, String> {
    // Functions of C and of the linker have no package in their names.
    let goroutines = go && place.name.contains('.');
    if goroutines && !hands_over_goroutine(file) {
        return Err("it was built by Go before 1.18".into());
    }
    let exits = exits::find(file, place.address, code)?;
    if let [jump, ..] = *exits.jumps {
        return Err(tail_jump_message(file, jump));
    }
    if !exits.calls && !go {
        return Ok(None);
    }
    if exits.returns.is_empty() {
        return Err("it never returns".into());
    }
    let exit = |address: &u64| {
        let distance = address.wrapping_sub(place.address) as i64;
        Some(Exit {
            offset: file.image().file_offset(*address)?,
            distance: i32::try_from(distance).ok()?,
        })
    };
    let at: Option<Vec<Exit>> = exits.returns.iter().map(exit).collect();
    let at = at.ok_or("its parts are too far apart")?;
    Ok(Some(Arc::new(Exits { at, goroutines })))
}

/// The message for a function that leaves by a jump to another one.
fn tail_jump_message(file: &File, jump: TailJump) -> String {
    let to = match jump.to.map(|to| (file.symbols().function_at(to), to)) {
        Some((Some((symbol, 0)), _)) => format!("`{}`", symbol.name),
        Some((_, to)) => format!("{to:#x}"),
        None => "an address that it computes".into(),
    };
    format!(
        "at {:#x} it ends with a jump to {to}, which returns in its place",
        jump.at
    )
}

/// Whether functions have their goroutine in a register, as since Go 1.17; since Go 1.18 the file
/// itself has the version (`debug/buildinfo`).
fn hands_over_goroutine(file: &File) -> bool {
    const INLINE: u8 = 2;
    let info = file.image().bytes_of(".go.buildinfo").unwrap_or_default();
    info.starts_with(b"\xff Go buildinf:") && info.get(15).is_some_and(|f| f & INLINE != 0)
}
