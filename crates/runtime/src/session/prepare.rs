//! Preparation of a session before handlers run: the process to follow, user files for stacks, the
//! files that scripts serve.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use spile_bpf::layout::{
    FILES_MAP, LINE_ROWS_MAP, Layout, NAMES_MAP, Object, ROWS_MAP, SYMBOL_ROWS_MAP, SYMBOLS_MAP,
};
use spile_ir::{CodePlace, Event, Procfs, Program, ProgramFacts};
use spile_kernel::bpf::Ring;

use crate::attach::code;
use crate::attach::staleness::Staleness;
use crate::error::Error;
use crate::io::child::WatchedProcess;
use crate::io::output;
use crate::io::procfs::FileSpec;
use crate::load::{self, Links, LoadedObject};
use crate::session::events::Signals;
use crate::session::options::{Options, TargetProcess};
use crate::shared::kernel_state::KernelState;
use crate::shared::state::StateMemory;
use crate::shared::{init, process_tree};
use crate::text::deferred::DeferredTexts;
use crate::text::symbolic;
use crate::text::user_files::UserFiles;
use crate::text::user_files::names::NameTables;

/// The files of a program's `procfs` probes without duplicates, with the permissions that the
/// probes grant.
pub(crate) fn files(program: &Program) -> Vec<FileSpec> {
    let mut specs: Vec<FileSpec> = Vec::new();
    for handler in &program.handlers {
        let Event::Procfs(file) = &handler.event else {
            continue;
        };
        let position = specs.iter().position(|s| s.path == file.path);
        let at = position.unwrap_or(specs.len());
        if position.is_none() {
            specs.push(FileSpec {
                path: file.path.clone(),
                read: false,
                write: false,
                mode: 0,
            });
        }
        let spec = &mut specs[at];
        spec.read |= !file.write;
        spec.write |= file.write;
        spec.mode |= mode(file);
    }
    specs
}

/// Access for the owner only, minus the permissions that the probe clears.
fn mode(file: &Procfs) -> u16 {
    let all = if file.write { 0o222 } else { 0o444 };
    all & !file.umask.unwrap_or(0o077)
}

/// Finds the process to follow, or starts the command unless it is already forked. With `traced`, a
/// command stops at its `execve`.
pub(crate) fn follow(
    target: &TargetProcess,
    suspended_child: Option<WatchedProcess>,
    traced: bool,
) -> Result<Option<WatchedProcess>, Error> {
    if let (TargetProcess::Command(_), Some(held)) = (target, suspended_child) {
        return Ok(Some(held.traced(traced)));
    }
    match target {
        TargetProcess::None => Ok(None),
        TargetProcess::Pid(pid) => WatchedProcess::follow(i32::try_from(*pid).unwrap_or(0))
            .map(Some)
            .map_err(|e| Error::NoProcess(*pid, e)),
        TargetProcess::Command(command) => WatchedProcess::start(command)
            .map(|started| Some(started.traced(traced)))
            .map_err(|e| Error::Command(command.clone(), e)),
    }
}

/// The texts that handlers leave to the controller, if the program has any.
pub(super) fn deferred_texts(in_kernel: bool, facts: &ProgramFacts) -> Option<DeferredTexts> {
    let marks = facts.reads_user() || facts.makes_marks() || facts.takes_user_stacks();
    (in_kernel && marks).then(DeferredTexts::new).flatten()
}

/// The part of a session in the kernel, loaded and attached; nothing for a program without kernel
/// handlers.
#[derive(Default)]
pub(super) struct KernelPart {
    pub links: Option<Links>,
    pub ring: Option<Ring>,
    pub state: Option<KernelState>,
    /// The files whose symbols the kernel's handlers look up.
    pub user_files: Option<UserFiles>,
}

/// What the part of a session in the kernel is made of.
pub(super) struct KernelSource<'a> {
    /// `None` for a program without kernel handlers.
    pub object: Option<&'a Object>,
    pub program: &'a Program,
    /// The number of the process to follow, or 0.
    pub target: i64,
    pub deferred: Option<&'a DeferredTexts>,
    /// The files that are probed: those that have changed meanwhile are an error.
    pub probed: &'a Staleness,
    pub signals: &'a Rc<Signals>,
}

impl KernelPart {
    /// Loads and attaches the object, if there is one; its handlers are still disabled.
    pub(super) fn load(from: KernelSource<'_>, options: &mut Options) -> Result<KernelPart, Error> {
        let KernelSource {
            object: Some(object),
            program,
            target,
            deferred,
            probed,
            signals,
        } = from
        else {
            return Ok(KernelPart::default());
        };
        let initialise = |state: &StateMemory| {
            initialise(state, &object.layout, target, deferred);
        };
        let pid = u32::try_from(target).ok().filter(|pid| *pid > 0);
        let (ahead, fallback) = (options.ahead.take(), options.fallback.take());
        let with_lines = options.with_lines.take();
        let ((loaded, state, links), plain) = LoadedObject::start_any(
            object,
            program,
            pid,
            (ahead, fallback),
            initialise,
            Some(signals),
        )
        .map_err(|e| load::with_script_line(e, program, with_lines))?;
        let tree = object.layout.tree;
        let object = plain.as_ref().unwrap_or(object);
        probed.unchanged()?;
        if let (Some(at), TargetProcess::Pid(pid)) = (tree, &options.target) {
            process_tree::mark_descendants(&state, at, *pid);
        }
        let user_files = user_files(&loaded, &state, &object.layout, program, options)?;
        if let (false, Some(text)) = (options.quiet, code::refusal_warning(links.refused())) {
            output::warn(&text);
        }
        Ok(KernelPart {
            links: Some(links),
            ring: loaded.ring()?,
            state: Some(KernelState::new(loaded, state, object)?),
            user_files,
        })
    }
}

/// The user files, if user stacks are taken. If stacks are walked, they include the files that are
/// probed or followed.
fn user_files(
    loaded: &LoadedObject,
    state: &StateMemory,
    layout: &Layout,
    program: &Program,
    options: &Options,
) -> Result<Option<UserFiles>, Error> {
    let Some(stacks) = &layout.stacks else {
        return Ok(None);
    };
    let Some(next) = stacks.files else {
        return Ok(None);
    };
    let maps = (loaded.map_fd(FILES_MAP)?, loaded.map_fd(ROWS_MAP)?);
    let mut names = None;
    if stacks.symbols {
        let [of_files, rows, texts] =
            [SYMBOLS_MAP, SYMBOL_ROWS_MAP, NAMES_MAP].map(|map| loaded.map_fd(map));
        let lines = stacks.lines.then(|| loaded.map_fd(LINE_ROWS_MAP));
        names = NameTables::new([of_files?, rows?, texts?], lines.transpose()?);
    }
    let Some(mut files) = UserFiles::new(maps, stacks.rows, names) else {
        return Ok(None);
    };
    // Other files are announced when a stack contains them.
    if !stacks.rows && !stacks.symbols {
        return Ok(Some(files));
    }
    let mut paths = options.objects.clone();
    for handler in &program.handlers {
        if let Event::Code(probe) = &handler.event {
            paths.extend(probe.sites.iter().filter_map(|s| match &s.place {
                CodePlace::File { path, .. } => Some(PathBuf::from(&**path)),
                _ => None,
            }));
        }
    }
    match &options.target {
        TargetProcess::Pid(pid) => paths.extend(crate::text::user_files::mapped_files(*pid)),
        TargetProcess::Command(command) => {
            paths.extend(crate::text::user_files::programs_of(command))
        }
        TargetProcess::None => {}
    }
    paths.sort();
    paths.dedup();
    files.preload(paths, &mut || {
        state.shared(next).fetch_add(1, Ordering::Relaxed) + 1
    });
    Ok(Some(files))
}

/// Fills the state memory before a program runs.
fn initialise(state: &StateMemory, layout: &Layout, target: i64, deferred: Option<&DeferredTexts>) {
    init::set_shared_words(state, target);
    if let (Some(at), Ok(pid @ 1..)) = (layout.tree, u32::try_from(target)) {
        process_tree::insert(state, at, pid);
    }
    if let Some(words) = layout.stacks.as_ref().filter(|w| w.kernel) {
        symbolic::set_stack_words(state, words);
    }
    if layout.pages {
        init::set_page_words(state);
    }
    init::set_mark(state, deferred);
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::{Handler, SiteId};

    #[test]
    fn procfs_probes_of_one_path_share_a_file() {
        let handler = |write, umask| Handler {
            point: "procfs".into(),
            points: 1,
            event: Event::Procfs(Procfs {
                path: "command".into(),
                write,
                maxsize: 0,
                umask,
            }),
            body: Default::default(),
            site: SiteId(0),
        };
        let of = |handlers: Vec<Handler>| {
            let program = Program {
                handlers,
                ..Program::default()
            };
            let specs = files(&program);
            assert_eq!(specs.len(), 1);
            (specs[0].read, specs[0].write, specs[0].mode)
        };
        assert_eq!(of(vec![handler(false, None)]), (true, false, 0o400));
        assert_eq!(of(vec![handler(true, None)]), (false, true, 0o200));
        let both = vec![handler(true, None), handler(false, None)];
        assert_eq!(of(both), (true, true, 0o600));
        assert_eq!(of(vec![handler(false, Some(0o040))]), (true, false, 0o404));
        let both = vec![handler(true, Some(0o022)), handler(false, Some(0))];
        assert_eq!(of(both), (true, true, 0o644));
    }
}
