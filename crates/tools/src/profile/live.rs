//! `--live`: what the recorded threads did in the last second, as tables that are refreshed in place, or printed one
//! after the other where there is no terminal.

mod interval;
mod tables;
mod view;

use std::cell::RefCell;
use std::fs::File;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::rc::Rc;

use spile_plain::messages::{Failure, fail};
use spile_profile::model::{Header, Profile, Snapshot};
use spile_runtime::machine::pid_namespace::PidMap;

use self::view::LiveTables;
use super::rows::{ProfileBuilder, ThreadTimes, ThreadsNow};
use super::running::Running;
use super::waiting;
use crate::ToolRun;
use crate::profiles::width;
use crate::screen::{Live, keyboard_source};

/// What is shown while the recording goes on.
pub(super) struct LiveProfile {
    header: Header,
    /// What runs already, whose threads have to be looked for.
    running: Option<Rc<Running>>,
    times: Rc<RefCell<ThreadTimes>>,
    last: Snapshot,
    /// What threads did when the account began whose rows come; `None` between accounts.
    at_work: Option<ThreadsNow>,
    shown: Shown,
    /// What the command prints meanwhile.
    output: Option<File>,
}

/// Where the tables go.
enum Shown {
    Terminal(Rc<RefCell<LiveTables>>, Rc<RefCell<Live>>),
    /// Standard output, with that many rows of each table.
    Printed(usize),
}

impl LiveProfile {
    /// Prepares the run: accounts at each interval, and the keyboard.
    pub(super) fn prepare(
        interval: u32,
        top: usize,
        running: Option<&Rc<Running>>,
        header: &Header,
        tool: &mut ToolRun,
    ) -> Result<LiveProfile, Failure> {
        tool.set("checkpoint", interval);
        // All intervals have the same length.
        tool.set("growth", i64::MAX);
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let times = Rc::new(RefCell::new(ThreadTimes::default()));
        let of_command = !header.command.is_empty();
        let mut output = None;
        let shown = match terminal {
            false => Shown::Printed(top),
            true => {
                if of_command {
                    output = Some(redirect(tool)?);
                }
                let view = LiveTables::new(header, of_command);
                let view = Rc::new(RefCell::new(view));
                Shown::Terminal(view.clone(), Live::new(view))
            }
        };
        if let Shown::Terminal(_, live) = &shown {
            let keyboard = keyboard_source(live).map_err(|e| fail(format_args!("--live: {e}")))?;
            tool.outside = Some(keyboard);
        }
        let (attached, noted) = (running.cloned(), Rc::clone(&times));
        let terminal = match &shown {
            Shown::Terminal(_, live) => Some(Rc::clone(live)),
            Shown::Printed(_) => None,
        };
        let before = tool.armed.take();
        tool.armed = Some(Box::new(move |kinds| {
            if let Some(before) = before {
                before(kinds);
            }
            let listed = attached.map(|r| r.threads(std::iter::empty()));
            for (pid, tid) in listed.into_iter().flatten() {
                if let Some(now) = waiting::look_at(pid, tid) {
                    noted.borrow_mut().before(tid, &now);
                }
            }
            if let Some(live) = terminal {
                live.borrow_mut().open();
            }
        }));
        Ok(LiveProfile {
            header: header.clone(),
            running: running.cloned(),
            times,
            last: Snapshot::default(),
            at_work: None,
            shown,
            output,
        })
    }

    /// Notes what threads do, if a row of that name is the first of an account.
    pub(super) fn row(&mut self, name: &str, rows: &ProfileBuilder) {
        if !ProfileBuilder::is_of_account(name) || self.at_work.is_some() {
            return;
        }
        let mut at_work = ThreadsNow::new();
        if PidMap::match_handlers() {
            for (pid, tid) in rows.live_threads().chain(self.listed(rows)) {
                let now = || waiting::look_at(pid, tid);
                if !at_work.contains_key(&tid)
                    && let Some(now) = now()
                {
                    at_work.insert(tid, now);
                }
            }
        }
        self.at_work = Some(at_work);
    }

    /// The threads of what ran before.
    fn listed(&self, rows: &ProfileBuilder) -> Vec<(u32, u32)> {
        let running = self.running.as_ref();
        running.map_or_else(Vec::new, |r| r.threads(rows.entered_processes()))
    }

    /// Shows what happened since the last account. `Break` ends the session.
    pub(super) fn account(&mut self, rows: &ProfileBuilder, out: &mut Vec<u8>) -> ControlFlow<()> {
        let at_work = self.at_work.take().unwrap_or_default();
        let mut listed = self.listed(rows);
        let over = self.running.as_ref().is_some_and(|r| r.is_over());
        listed.retain(|(_, tid)| at_work.contains_key(tid));
        let now = rows.now(&mut self.times.borrow_mut(), &listed, &at_work);
        let profile = interval::between(&self.header, &self.last, &now);
        self.last = now;
        let shown = self.show(profile, out);
        // A terminal's view has no watcher of the control group.
        match over {
            true => ControlFlow::Break(()),
            false => shown,
        }
    }

    fn show(&mut self, profile: Profile, out: &mut Vec<u8>) -> ControlFlow<()> {
        let elapsed = self.last.at_ns;
        match &self.shown {
            Shown::Terminal(view, live) => {
                view.borrow_mut().take(profile, elapsed);
                live.borrow_mut().draw()
            }
            Shown::Printed(top) => {
                let width = width(std::io::stdout());
                out.extend(tables::print(profile, elapsed, (width, *top)).into_bytes());
                ControlFlow::Continue(())
            }
        }
    }

    /// Restores the terminal, and prints what the command printed.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        if let Shown::Terminal(_, live) = &self.shown
            && let Some(failed) = live.borrow_mut().close()
        {
            return Err(failed);
        }
        if let Some(output) = &mut self.output {
            use std::io::{Seek, SeekFrom};
            let rewound = output.seek(SeekFrom::Start(0));
            // A closed standard output is no failure of the recording.
            let _ = rewound.and_then(|_| std::io::copy(output, &mut std::io::stdout()));
        }
        Ok(())
    }
}

/// Sends what the command prints to a file, because it would disturb the view, and gives it no keyboard.
fn redirect(tool: &mut ToolRun) -> Result<File, Failure> {
    let wrong = |e: std::io::Error| fail(format_args!("--live: a file for the output: {e}"));
    let (file, path) = tempfile::NamedTempFile::new().map_err(wrong)?.into_parts();
    if let spile_runtime::TargetProcess::Command(command) = &mut tool.target {
        // Another way to the file, which has no name any more when the command starts.
        let own = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            std::os::fd::AsRawFd::as_raw_fd(&file)
        );
        *command = format!("exec {command} </dev/null >>{own} 2>&1");
    }
    drop(path);
    Ok(file)
}
