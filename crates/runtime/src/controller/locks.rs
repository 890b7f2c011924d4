//! The locks of a controller handler.

use spile_ir::GlobalId;
use spile_ir::interp::Fault;

use super::Controller;
use crate::shared::critical_section::CopyFailure;
use crate::shared::handler_effects::HandlerEffects;
use crate::shared::kernel_state::RawValue;
use crate::shared::realtime_guard::RealtimeGuard;

impl Controller {
    /// Takes the locks at real-time priority, and returns the guard of the priority. `None` if a
    /// lock was not available, which is counted.
    pub(super) fn lock(&mut self, needs: &HandlerEffects) -> Option<Option<RealtimeGuard>> {
        if needs.locks.is_empty() {
            return Some(None);
        }
        let urgent = RealtimeGuard::begin();
        let Some(Err(global)) = self.kernel().map(|k| k.lock(needs)) else {
            return Some(urgent);
        };
        self.missed(global);
        None
    }

    /// The globals that the handler copies and takes. `None` if a lock was not available, which is
    /// counted.
    pub(super) fn copies(
        &mut self,
        needs: &HandlerEffects,
    ) -> Option<Result<Vec<(GlobalId, RawValue)>, Fault>> {
        let copies = self.kernel().map(|k| k.copies(needs));
        match copies.unwrap_or(Err(CopyFailure::Unable)) {
            Ok(values) => Some(Ok(values)),
            Err(CopyFailure::Busy(global)) => {
                self.missed(global);
                None
            }
            Err(CopyFailure::Unable) => {
                let urgent = self.lock(needs)?;
                let values = self.env.globals.snapshot(needs);
                Some(self.unlock(needs, urgent).and(values))
            }
        }
    }

    /// Counts a handler that did not run because a lock was not available.
    fn missed(&mut self, global: GlobalId) {
        let global = self.env.globals.program.globals.get(global.index());
        let name = global.map(|g| g.name.clone());
        self.losses
            .controller_missed(name.as_deref().unwrap_or("?"));
    }

    /// Writes back changes of arrays, releases the locks, and then drops the priority with which
    /// they were held.
    pub(super) fn unlock(
        &self,
        needs: &HandlerEffects,
        urgent: Option<RealtimeGuard>,
    ) -> Result<(), Fault> {
        let mut written = Ok(());
        if let Some(kernel) = self.kernel() {
            written = kernel.write_back(needs);
            kernel.unlock(needs);
        }
        drop(urgent);
        written
    }

    /// Puts back globals that a handler took but did not empty; counts them as lost if the locks
    /// are not available.
    pub(super) fn put_back(
        &mut self,
        needs: &HandlerEffects,
        left: &[GlobalId],
    ) -> Result<(), Fault> {
        let Some(urgent) = self.lock(needs) else {
            return Ok(());
        };
        let put = self.env.globals.put_back(left);
        self.unlock(needs, urgent).and(put)
    }
}
