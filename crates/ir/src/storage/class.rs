//! The storage classes.

/// The storage class of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// Memory of the controller.
    #[default]
    Controller,
    /// One copy for the kernel and the controller.
    Shared {
        /// Handlers that touch it must hold its lock, because some handler does more to it than one
        /// atomic step. Never set if only controller start-up (`begin`) writes it.
        lock: bool,
    },
    /// Per-CPU deltas in the kernel, the sum in the controller.
    PerCpu {
        /// Two generations, because the controller reads it while handlers run. With a single one,
        /// it is read only after all kernel programs are detached.
        double: bool,
    },
}
