//! The needs of a program's code, which code generation passes to the plan.

use spile_ir::marks::Marks;

use crate::attach::AttachPlan;

/// The sizes of rooms that code generation uses, and the decisions made before the plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayoutInputs {
    /// Bytes of frame slots, the maximum over all handlers.
    pub frame: u32,
    /// Bytes of the largest output record.
    pub piece: u32,
    /// Bytes of saved data of one activation.
    pub saved: u32,
    /// Bytes of the work area of conversions of decimal text; 0 without any.
    pub decimal: u32,
    /// Bytes of the memory that is read for one text; 0 without any.
    pub memory: u32,
    /// Bytes of the last match of a regular expression; 0 if no match is kept.
    pub last_match: u32,
    /// Bytes of the state of a unwind through a user stack.
    pub user_unwind: u32,
    /// Texts with symbols, and those that handlers make themselves.
    pub marks: Marks,
    /// How the handlers are attached.
    pub attach: AttachPlan,
}
