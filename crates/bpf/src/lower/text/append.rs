//! Functions of the run-time library that append to the text being built. An object has those that its
//! code calls.

use spile_lir::library::append::AppendLayout;
use spile_lir::library::routine::Routine;

use spile_layout::plan::StateLayout;
pub(crate) use spile_lir::library::append::{MAX_COUNT, flag};

use crate::error::Res;
use crate::lower::pool::Pool;

/// Appends a text at an address. Each call is verified with its width, and the padding only if there is
/// one.
pub(crate) const APPEND_TEXT: &str = "append_text";
/// Appends an address; a global subprogram, as those below are.
pub(crate) const APPEND_HEX: &str = "append_hex";
/// Appends the bytes of a number.
pub(crate) const APPEND_BYTES: &str = "append_bytes";

/// The name of the function that appends a number in a base: 8, 10 or 16.
pub(crate) fn append_number(base: u32) -> String {
    format!("append_number_{base}")
}

/// Where the functions find the text.
pub(crate) fn layout(plan: &StateLayout) -> AppendLayout {
    let offset = |offset: u32| offset.cast_signed();
    AppendLayout {
        length: offset(plan.scratch.text_pos),
        text: offset(plan.scratch.text),
        most: offset(plan.max_string),
        digits: offset(plan.scratch.digits),
    }
}

impl Pool {
    /// Defines [`APPEND_TEXT`].
    pub(crate) fn use_append_text(&mut self, plan: &StateLayout) -> Res {
        self.routine(APPEND_TEXT, None, |_| Ok(Routine::AppendText(layout(plan))))
    }

    /// Defines [`APPEND_HEX`].
    pub(crate) fn use_append_hex(&mut self, plan: &StateLayout) -> Res {
        self.routine(APPEND_HEX, Some(plan), |_| {
            Ok(Routine::AppendHex(layout(plan)))
        })
    }

    /// Defines [`APPEND_BYTES`].
    pub(crate) fn use_append_bytes(&mut self, plan: &StateLayout) -> Res {
        self.routine(APPEND_BYTES, Some(plan), |_| {
            Ok(Routine::AppendBytes(layout(plan)))
        })
    }

    /// Defines the function that [`append_number`] names.
    pub(crate) fn use_append_number(&mut self, plan: &StateLayout, base: u32) -> Res {
        self.routine(&append_number(base), Some(plan), |_| {
            Ok(Routine::AppendNumber(layout(plan), base))
        })
    }
}
