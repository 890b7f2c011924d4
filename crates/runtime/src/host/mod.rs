//! The host that runs a session's kernel handlers, as the session sees it.
//!
//! In: a program and its object's layout. Out: [`Started`]: memory that handlers and the controller share,
//! and the [`Backend`] with the attachments. The kernel is one host (`kernel`). In tests the
//! session runs on a second one (`tests::simulated`), whose handlers run in the interpreter, and which fails on
//! request.
//!
//! A backend attaches, hands over records, counts what it loses, and detaches. Globals and words of the
//! state memory are no calls of the trait: the layout is the contract for these, whoever runs the handlers.

pub(crate) mod kernel;
mod process;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::rc::Rc;

use spile_ir::Program;

use crate::attach::staleness::Staleness;
use crate::error::Error;
use crate::machine::signals::Signals;
use crate::options::SessionOptions;
use crate::shared::kernel_state::KernelState;
use crate::text::deferred::DeferredTexts;
use crate::text::user_files::UserFiles;

/// The host of a session's kernel handlers, with the handlers in its form.
pub struct SessionHost<'o>(pub(crate) Box<dyn Host + 'o>);

/// A host that can start a program's handlers.
pub(crate) trait Host {
    /// Whether a command has to stop at its `execve`, so that the host gets into it ([`Backend::watch_command`]).
    fn stops_command(&self) -> bool {
        false
    }

    /// Loads and attaches; handlers are disabled until [`crate::shared::state::StateMemory::set_running`].
    ///
    /// # Errors
    /// Why the host refuses the program. Nothing stays behind.
    fn start(
        self: Box<Self>,
        how: StartParams<'_>,
        options: &mut SessionOptions,
    ) -> Result<Started, Error>;
}

/// What a host starts, besides its own object.
pub(crate) struct StartParams<'a> {
    pub program: &'a Program,
    /// The number of the process to follow, or 0.
    pub target: i64,
    pub deferred: Option<&'a DeferredTexts>,
    /// The probed files: one that has changed since its locations were resolved is an error.
    pub probed: &'a Staleness,
    /// A request to end stops the start.
    pub signals: &'a Rc<Signals>,
}

/// A started program.
pub(crate) struct Started {
    pub backend: Box<dyn Backend>,
    pub memory: KernelState,
    /// The files whose symbols handlers look up.
    pub user_files: Option<UserFiles>,
}

/// A program's attachments and records. Dropping it detaches.
pub(crate) trait Backend {
    /// The attach kinds of probes in code, one line each.
    fn attach_kinds(&self) -> &[String];

    /// Attaches what probed programs can see, such as markers with semaphores. Handlers are enabled already.
    /// Returns a warning about locations that were left out.
    ///
    /// # Errors
    /// The host refuses an attachment that no other can replace, or a signal ended the session.
    fn attach_visible(
        &mut self,
        program: &Program,
        signals: &Rc<Signals>,
    ) -> Result<Option<String>, Error>;

    /// Watches memory of the command, or gets into it. It has not run an instruction yet.
    ///
    /// # Errors
    /// The host refuses to.
    fn watch_command(&mut self, pid: u32) -> Result<(), Error>;

    /// Watches memory of a process that called `execve` at this time on the monotonic clock, if it is one of
    /// those to watch.
    ///
    /// # Errors
    /// The host refuses to watch it.
    fn watch_executed(&mut self, pid: u32, ns: u64) -> Result<(), Error>;

    /// A descriptor that is readable when records wait; `None` if handlers send none.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Takes records, oldest first, at most this many.
    fn take_records(&mut self, most: usize, take: &mut dyn FnMut(&[u8]));

    /// Runs handlers of what has happened, where they run later than it happens.
    fn settle(&mut self) {}

    /// Detaches. Slow parts may go on in the background until the backend is dropped.
    fn detach(&mut self);

    /// Hits that the host did not deliver, so far.
    fn losses(&self) -> HostLosses;

    /// Leaves everything to the end of this process, which frees it faster.
    fn leak(self: Box<Self>);
}

/// Hits that a host did not deliver to handlers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostLosses {
    /// Hits at entries and events, mostly while the same program ran on the processor.
    pub entries: u64,
    /// Hits at returns of functions.
    pub returns: u64,
    /// Executions by which processes of the target lost their breakpoints.
    pub unfollowed: u64,
}
