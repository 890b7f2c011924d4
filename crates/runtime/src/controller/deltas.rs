//! The final drain of the kernel's deltas, and the report of elements that did not fit.

use std::rc::Rc;

use spile_ir::GlobalId;
use spile_ir::interp::{Fault, overflow};

use super::Controller;
use crate::controller::message;
use crate::shared::kernel_state::KernelState;

impl Controller {
    /// Reports the elements that a drain could not store.
    pub(super) fn report_unstored(&mut self, result: Result<Vec<(GlobalId, u64)>, Fault>) {
        let program = Rc::clone(&self.env.globals.program);
        match result {
            Ok(full) => {
                for (g, missed) in full {
                    self.losses.overflows += missed;
                    if let Some(global) = program.globals.get(g.index()) {
                        let text = overflow(global);
                        let line =
                            message::error_line(&text, global.site, &[], (None, &[]), &program);
                        self.error_line(&line);
                    }
                }
            }
            Err(e) => self.fatal(&e.to_string()),
        }
    }

    /// Takes the last deltas, after all kernel handlers were detached.
    pub fn final_drain(&mut self) {
        let globals = &mut self.env.globals;
        let Some(kernel) = &mut globals.kernel else {
            return;
        };
        let drained = kernel.final_drain(&globals.program, &mut globals.mem, &|key, ty| {
            globals.texts.symbolic.key(key, ty)
        });
        self.report_unstored(drained);
    }

    /// Drops the kernel's half of the session.
    pub fn take_kernel(&mut self) -> Option<KernelState> {
        self.env.globals.kernel.take()
    }
}
