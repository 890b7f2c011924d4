//! What a layout depends on besides the program, and why there is none.

use std::fmt;

/// The result of a step of planning.
pub(super) type Res<T = ()> = Result<T, PlanError>;

/// The reason why a program has no layout.
#[derive(Debug, Clone)]
pub enum PlanError {
    /// An instruction that the passes before should not have let through.
    Malformed(&'static str),
    /// It exceeds a limit.
    TooLarge(String),
}

impl From<&'static str> for PlanError {
    fn from(message: &'static str) -> PlanError {
        PlanError::Malformed(message)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Malformed(message) => f.write_str(message),
            PlanError::TooLarge(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for PlanError {}

/// What a layout depends on besides the program.
#[derive(Debug, Clone, Copy)]
pub struct HostParams {
    /// Number of per-CPU areas.
    pub cpus: u32,
    /// Whether run times are recorded for each handler (`-t`).
    pub timing: bool,
    /// Bytes of the registers and strings that a handler keeps in its per-CPU area, the maximum over all
    /// handlers.
    pub frame: u32,
    /// How the host runs the controller's critical section; `None` if it cannot.
    pub critical: Option<CriticalParams>,
}

/// How a host runs the controller's critical section.
#[derive(Debug, Clone, Copy)]
pub struct CriticalParams {
    /// See [`crate::critical::CriticalLayout::interrupts_off`].
    pub interrupts_off: bool,
    /// Whether the section looks up keys that the controller lists: see [`crate::critical::KeyListWords`].
    pub key_lists: bool,
}
