//! States that had not ended when their thread ended, or when the recording did.

use spile_profile::model::{BLOCKED, CallParts, Ns, PREEMPTED, Snapshot, Thread, TimedEvent};

use super::builder::{LiveThread, ProfileBuilder, REUSED, SingleCall, TimeOwner, call_parts};
use super::locations::name_generated_code;
use crate::rows::Fields;
use crate::{MALFORMED, add_losses};

/// Whether a call ends its thread by design.
fn ends_a_thread(call: &str) -> bool {
    matches!(call, "exit" | "exit_group")
}

/// A loss: samples without a place.
const UNPLACED: &str = "samples whose place is not known: the table of places was full";

impl ProfileBuilder {
    pub(super) fn is_open(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let thread = self.thread(f.integer()?);
        self.open.push(LiveThread {
            state: f.integer()?,
            call: f.string()?.into_owned(),
            total: f.ns()?,
            waited: f.ns()?,
            off: f.ns()?,
            taken: f.ns()?,
            owner: TimeOwner {
                thread,
                region: f.integer()?,
            },
            ready: f.flag()?,
        });
        Some(())
    }

    pub(super) fn is_cut(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let name = f.string()?.into_owned();
        let end = f.integer().map(|when| self.since(when))?;
        let total = f.ns()?;
        let parts = call_parts(total, f)?;
        if self.trace {
            let span = (end.saturating_sub(total), end);
            self.add_event(owner, &name, span)?.open = true;
        }
        self.cuts.push(SingleCall {
            owner,
            name,
            total,
            parts,
        });
        Some(())
    }

    /// Adds the calls that were cut short so far to an account.
    pub(super) fn add_cuts(&mut self) {
        let cuts = std::mem::take(&mut self.cuts);
        for cut in &cuts {
            self.add_unfinished(cut.owner, &cut.name, cut.total, cut.parts);
        }
        self.cuts = cuts;
    }

    /// Adds an unfinished call: to its thread, to its region, and to the calls.
    fn add_unfinished(&mut self, owner: TimeOwner, name: &str, total: Ns, parts: CallParts) {
        if let Some(call) = self.with_time(owner, name, parts) {
            call.unfinished = Some(total);
            call.unfinished_parts = Some(parts);
        }
    }

    /// The final account, completed by the states that were open. `at_end` gives the system call
    /// that a thread (process, thread) is in, where its entry was not recorded. `threads` are all
    /// threads of a process that existed before; a thread without any event was in one call, or
    /// ran, the whole time. The last events of a trace are in [`ProfileBuilder::events`] then.
    pub(crate) fn finish(
        &mut self,
        threads: &[(u32, u32)],
        at_end: impl Fn(u32, u32) -> Option<String>,
    ) -> Snapshot {
        for open in std::mem::take(&mut self.open) {
            self.close(&open, &at_end);
        }
        for (pid, tid) in threads {
            if !self.earlier_threads.contains_key(tid) {
                self.add_unobserved(*pid, *tid, at_end(*pid, *tid));
            }
        }
        self.read_names_again();
        self.intervals_stay_open();
        add_losses(
            &mut self.snapshot.lost,
            [(self.malformed, MALFORMED), (self.unplaced, UNPLACED)],
        );
        let mut snapshot = std::mem::take(&mut self.snapshot);
        name_generated_code(&mut snapshot);
        self.sort(&mut snapshot);
        snapshot
    }

    /// Adds a thread without any event.
    fn add_unobserved(&mut self, pid: u32, tid: u32, call: Option<String>) {
        let end = self.snapshot.at_ns;
        let since = self.entered.get(&pid).copied().unwrap_or(0);
        let wall = end.saturating_sub(since);
        self.snapshot.threads.push(Thread {
            tid,
            pid,
            started_ns: since,
            ..Thread::default()
        });
        let thread = self.snapshot.threads.len() - 1;
        self.look_up(thread, tid);
        match call {
            Some(call) => {
                let parts = CallParts {
                    blocked: wall,
                    ..CallParts::default()
                };
                let owner = TimeOwner { thread, region: 0 };
                self.add_unfinished(owner, &call, wall, parts);
                if self.trace {
                    self.events.push(TimedEvent {
                        tid,
                        call,
                        start_ns: since,
                        end_ns: end,
                        open: true,
                        ..TimedEvent::default()
                    });
                }
            }
            None => self.snapshot.threads[thread].parts.user = wall,
        }
    }

    /// Adds the state of a thread at the end of the recording.
    fn close(
        &mut self,
        open: &LiveThread,
        at_end: &impl Fn(u32, u32) -> Option<String>,
    ) -> Option<()> {
        let now = self.snapshot.at_ns;
        let thread = self.snapshot.threads.get_mut(open.owner.thread)?;
        let (mut total, mut off) = (open.total, open.off);
        if let Some(renamed) = self.renamed.get(&thread.tid).copied()
            && thread.ended_ns.is_none()
        {
            // It goes on as its leader.
            thread.ended_ns = Some(renamed);
            total = total.saturating_sub(now.saturating_sub(renamed));
            off = 0;
        }
        let over = thread.ended_ns.is_none() && self.ended_process == Some(thread.pid);
        if over {
            thread.ended_ns = Some(now);
        }
        let away = (open.waited + off).min(total);
        let running = total.saturating_sub(away).saturating_sub(open.taken);
        let call = match open.state {
            0 => None,
            1 => Some(open.call.clone()),
            -1 => Some("(start)".to_owned()),
            _ => at_end(thread.pid, thread.tid % REUSED),
        };
        let end = thread.ended_ns.unwrap_or(now);
        let ended = over && call.as_deref().is_some_and(ends_a_thread);
        if self.trace {
            let off = (off > 0).then_some((if open.ready { PREEMPTED } else { BLOCKED }, off));
            let call = call.as_deref().map(|call| (call, total));
            for (name, length) in call.into_iter().chain(off) {
                let span = (end.saturating_sub(length), end);
                if let Some(event) = self.add_event(open.owner, name, span) {
                    event.open = !ended;
                }
            }
        }
        let Some(call) = call else {
            let parts = &mut self.snapshot.threads.get_mut(open.owner.thread)?.parts;
            parts.user += running;
            parts.runnable += away;
            // (If the thread was off its processor for part of it, the rest is the program's.)
            return self.in_context(open.owner, |parts| parts.runnable += off.min(away));
        };
        let parts = CallParts {
            cpu: running,
            blocked: away,
            runnable: 0,
            taken: total - running - away,
        };
        self.add_unfinished(open.owner, &call, total, parts);
        if ended {
            let (tid, context) = self.numbers(open.owner)?;
            self.of_calls(tid, context, &call).end();
        }
        Some(())
    }
}
