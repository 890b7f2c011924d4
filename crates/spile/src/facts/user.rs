//! Programs and libraries with code: what a script means by `process`, and what was asked of
//! each file. `paths` finds them, `dwarf` says what is in them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::{Die, Module as File, Search};
use spile_sema::facts::{FoundModule, Module, ModuleQuery};

use super::paths;

/// What `process` without a name means.
#[derive(Debug, Clone, Default)]
pub enum Target {
    /// Nothing.
    #[default]
    None,
    /// The program of this command (`-c`).
    Command(String),
    /// This process (`-x`).
    Pid(u32),
}

/// Files with code.
pub struct Programs {
    target: Target,
    search: Search,
    files: Mutex<Vec<Arc<Opened>>>,
}

/// A file that was asked about. The numbers of its types have its place in the list, plus one,
/// in their top bits.
pub(super) struct Opened {
    pub path: Arc<str>,
    pub number: u32,
    pub file: File,
    /// Places that were given out, by their numbers.
    pub places: Mutex<Vec<Place>>,
}

/// A place that was given out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Where it is probed.
    pub address: u64,
    /// Where the parameters of the function can be read.
    pub body: u64,
    /// The function or inlined instance.
    pub die: Option<Die>,
}

/// Files have numbers below this; modules of the kernel have the others.
const MOST_FILES: usize = 127;

impl Programs {
    /// For a run with that target.
    pub fn new(target: Target) -> Programs {
        Programs {
            target,
            search: Search::from_env(),
            files: Mutex::default(),
        }
    }

    /// The file of that path, opened once.
    pub(super) fn file(&self, path: &str) -> Result<Arc<Opened>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.iter().find(|f| *f.path == *path) {
            return Ok(file.clone());
        }
        let file = File::open(Path::new(path), &self.search).map_err(|e| e.to_string())?;
        let opened = Arc::new(Opened {
            path: path.into(),
            // Beyond, files have places and no types.
            number: if files.len() < MOST_FILES {
                files.len() as u32 + 1
            } else {
                0
            },
            file,
            places: Mutex::default(),
        });
        files.push(opened.clone());
        Ok(opened)
    }

    /// The file whose types have that number.
    pub(super) fn numbered(&self, number: u32) -> Option<Arc<Opened>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(number.checked_sub(1)? as usize).cloned()
    }

    /// As `Facts::modules`, for programs.
    pub fn modules(&self, query: &ModuleQuery) -> Result<Vec<FoundModule>, String> {
        let of = |path: &Path, pid| FoundModule {
            module: Module::File(path.to_string_lossy().into()),
            pid,
        };
        let named = |name: &str| -> Result<Vec<FoundModule>, String> {
            let found = paths::named(name)?;
            // With -x everything is about one process.
            let pid = match self.target {
                Target::Pid(pid) => Some(pid),
                _ => None,
            };
            Ok(found.iter().map(|p| of(p, pid)).collect())
        };
        match query {
            ModuleQuery::Path(name) => named(name),
            ModuleQuery::Pid(pid) => Ok(vec![of(&paths::of_process(*pid)?, Some(*pid))]),
            ModuleQuery::Target => match &self.target {
                Target::None => Err("`process` without a name is the one of -c or -x".into()),
                Target::Pid(pid) => Ok(vec![of(&paths::of_process(*pid)?, Some(*pid))]),
                Target::Command(command) => named(command.split_whitespace().next().unwrap_or("")),
            },
            ModuleQuery::Library {
                of: Module::File(path),
                pid,
                name,
            } => {
                let found = paths::libraries(Path::new(&**path), *pid, name)?;
                Ok(found.iter().map(|p| of(p, *pid)).collect())
            }
            ModuleQuery::Library { of, .. } => Err(format!("{of} has no libraries")),
            ModuleQuery::KernelModule(name) => Err(format!("{name} is a module of the kernel")),
        }
    }
}
