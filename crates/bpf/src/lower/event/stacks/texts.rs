//! The run-time library's functions that write texts of stacks ([`spile_lir::library::stacks`]).

use spile_layout::plan::{StackBuffer, StateLayout};
use spile_layout::{
    KERNEL_LINES_MAP, LINE_ROWS_MAP, NAMES_MAP, SYMBOL_ROWS_MAP, SYMBOLS_MAP, percpu,
};
use spile_lir::Module;
use spile_lir::library::routine::Routine;
use spile_lir::library::stacks::{StackLayout, StackText};

use crate::error::{LowerError, Res};
use crate::lower::pool::Pool;
use crate::lower::text::append;

/// An offset for what an object does not have and no function of it uses: templates have no 0.
const NOWHERE: u32 = 8;
/// The frames of a stack, where an object has none and no function of it uses their number: the usual
/// number has templates.
const FRAMES: u32 = 20;

/// Where the functions find what they need. An object without stacks has only functions that take
/// addresses, which need no space.
fn layout(plan: &StateLayout) -> StackLayout {
    let buffer = plan.stacks.as_ref();
    let location = |field: fn(&StackBuffer) -> u32| buffer.map_or(NOWHERE, field);
    StackLayout {
        text: append::layout(plan),
        most: buffer.map_or(FRAMES, |r| r.most),
        frames: location(|r| r.frames),
        count: location(|r| r.count),
        first: location(|r| r.first),
        unwind: location(|r| r.user.unwrap_or(NOWHERE)),
        words: plan.scratch.tmp + 8,
        texts: plan.scratch.out,
        ranges: location(|r| r.words.offset),
        lines: buffer.is_some_and(|r| r.words.lines),
        symbols: SYMBOLS_MAP,
        symbol_rows: SYMBOL_ROWS_MAP,
        names: NAMES_MAP,
        line_rows: LINE_ROWS_MAP,
        kernel_lines: KERNEL_LINES_MAP,
        cut_stacks: percpu::CUT_STACKS,
        truncated: percpu::TRUNCATED,
        unnamed: percpu::UNNAMED,
    }
}

impl Pool {
    /// Defines a function that writes texts of stacks, unless the object has it.
    pub(crate) fn use_stack_text(&mut self, name: &str, plan: &StateLayout) -> Res {
        self.use_append_hex(plan)?;
        self.routine(name, Some(plan), |_| {
            let text = StackText::named(name, layout(plan));
            let text =
                text.ok_or_else(|| LowerError::malformed(format!("the library has no {name}")))?;
            Ok(Routine::StackText(text))
        })
    }

    /// The same for a function that is made for its caller.
    pub(crate) fn use_stack_text_of(
        &mut self,
        name: &str,
        plan: &StateLayout,
        make: impl FnOnce(&StackLayout) -> Module,
    ) -> Res {
        self.use_append_hex(plan)?;
        self.define_once(name, Some(plan), || make(&layout(plan)))
    }
}
