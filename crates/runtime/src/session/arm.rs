//! The steps between `begin` and the first hit of an ordinary event.

use spile_ir::Event;
use spile_kernel::machine::boottime_ns;

use super::{Session, system};
use crate::error::Error;
use crate::machine::existing_tasks;
use crate::shared::process_tree;

impl Session {
    /// Enables kernel handlers; starts timers, the commands of `begin` and the command of `-c`.
    pub(super) fn arm(&mut self) -> Result<(), Error> {
        self.controller.out.flush();
        let since = boottime_ns();
        self.mark_group();
        if let Some(kernel) = self.controller.kernel() {
            kernel.state().set_running(true);
        }
        // Handlers see the processes that enter from now on.
        self.mark_group();
        let attached_before = self.attach_kinds().len();
        self.raise_semaphores()?;
        self.run_for_existing_tasks(since.unsigned_abs());
        if let Some(armed) = self.options.armed.take() {
            armed(&self.attach_kinds()[attached_before..]);
        }
        if let Some(background) = &mut self.options.background {
            background.announce();
            self.controller.out.join_messages();
        }
        for (timer, _) in &self.timers {
            let started = timer.start(self.controller.random());
            started.map_err(system("a timer"))?;
        }
        self.controller.start_commands();
        self.release_command()
    }

    /// Follows the processes that are in the session's control group.
    fn mark_group(&self) {
        let kernel = self.controller.kernel();
        let tree = kernel.and_then(|k| Some((k.state(), k.layout().tree?)));
        if let (Some((state, offset)), Some(group)) = (tree, &self.options.group) {
            process_tree::mark_group(state, offset, group);
        }
    }

    /// Releases the command. If its memory is watched, the watch covers it from its first
    /// instruction.
    fn release_command(&mut self) -> Result<(), Error> {
        let Some(watched) = &mut self.watched else {
            return Ok(());
        };
        watched.release();
        let mut done = Ok(());
        if watched.wait_for_exec_stop()
            && let Some(backend) = &mut self.backend
        {
            done = backend.watch_command(watched.pid().unsigned_abs());
        }
        if done.is_err() {
            watched.kill();
        }
        watched.resume();
        done
    }

    /// Watches memory of a process that called `execve` at this time, if it is one of those to
    /// watch.
    pub(super) fn watch_new(&mut self, pid: u32, ns: u64) {
        let Some(backend) = &mut self.backend else {
            return;
        };
        if let Err(e) = backend.watch_executed(pid, ns) {
            self.warn(&format!("process {pid} is not watched: {e}"));
        }
    }

    /// Attaches markers with semaphores. Programs take a raised semaphore as a promise that a
    /// tracer listens, so handlers are enabled before.
    fn raise_semaphores(&mut self) -> Result<(), Error> {
        let Some(backend) = &mut self.backend else {
            return Ok(());
        };
        let warning = backend.attach_visible(&self.program, &self.signals)?;
        self.probed.unchanged()?;
        if let Some(text) = warning {
            self.warn(&text);
        }
        Ok(())
    }

    /// Runs the handlers for existing processes, those that are older than the time from which the
    /// kernel reports new ones.
    fn run_for_existing_tasks(&mut self, since: u64) {
        let wanted = |threads| self.has_event(|e| *e == Event::Present { threads });
        let threads = wanted(true);
        if !threads && !wanted(false) {
            return;
        }
        let Some(tasks) = existing_tasks::all(threads, since) else {
            let text = "existing processes are unknown: kernel memory cannot be read";
            return self.warn(text);
        };
        // The command of `-c` has not called `execve` yet.
        let waits = self.watched.as_ref().is_some_and(|w| !w.released());
        let waiting = self.controller.target().filter(|_| waits);
        for task in tasks {
            if waiting == Some(i64::from(task.pid)) {
                continue;
            }
            let threads = task.tid != task.pid;
            self.consume();
            let mut task = Some(task);
            for id in self.ids(|e| *e == Event::Present { threads }) {
                if self.is_over() {
                    return;
                }
                task = task.and_then(|task| self.controller.run_for(id, task));
            }
        }
    }
}
