//! Preparation of a session before handlers run: the process to follow, and the files that scripts serve.

use spile_ir::{Event, Procfs, Program, ProgramFacts};

use crate::error::Error;
use crate::io::child::WatchedProcess;
use crate::io::procfs::FileSpec;
use crate::options::TargetProcess;
use crate::text::deferred::DeferredTexts;

/// The files of a program's `procfs` probes without duplicates, with the permissions that the
/// probes grant.
pub(crate) fn files(program: &Program) -> Vec<FileSpec> {
    let mut specs: Vec<FileSpec> = Vec::new();
    for handler in &program.handlers {
        let Event::Procfs(file) = &handler.event else {
            continue;
        };
        let position = specs.iter().position(|s| s.path == file.path);
        let index = position.unwrap_or(specs.len());
        if position.is_none() {
            specs.push(FileSpec {
                path: file.path.clone(),
                read: false,
                write: false,
                mode: 0,
            });
        }
        let spec = &mut specs[index];
        spec.read |= !file.write;
        spec.write |= file.write;
        spec.mode |= mode(file);
    }
    specs
}

/// Access for the owner only, minus the permissions that the probe clears.
fn mode(file: &Procfs) -> u16 {
    let everybody = if file.write { 0o222 } else { 0o444 };
    everybody & !file.umask.unwrap_or(0o077)
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
