//! The end of the kernel's side: its last deltas, and what did not fit.

use std::rc::Rc;

use spile_ir::GlobalId;
use spile_ir::interp::Fault;

use super::Controller;
use crate::controller::message;
use crate::shared::kernel_state::Kernel;

impl Controller {
    /// Reports what a drain could not keep.
    pub(super) fn drained(&mut self, result: Result<Vec<(GlobalId, u64)>, Fault>) {
        let program = Rc::clone(&self.world.program);
        match result {
            Ok(full) => {
                for (g, missed) in full {
                    self.account.overflows += missed;
                    if let Some(global) = program.globals.get(g.index()) {
                        let text = message::overflow(&global.name, &global.kind);
                        let line =
                            message::error_line(&text, global.site, &[], (None, &[]), &program);
                        self.error_line(&line);
                    }
                }
            }
            Err(e) => self.fatal(&e.to_string()),
        }
    }

    /// All kernel handlers are detached: takes their last deltas.
    pub fn kernel_is_off(&mut self) {
        let world = &mut self.world;
        let Some(kernel) = &mut world.kernel else {
            return;
        };
        let drained = kernel.off(&world.program, &mut world.mem, &world.texts.symbolic);
        self.drained(drained);
    }

    /// Gives up everything in the kernel.
    pub fn take_kernel(&mut self) -> Option<Kernel> {
        self.world.kernel.take()
    }
}
