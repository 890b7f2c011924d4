//! Texts of stacks and addresses, for handlers that look into the text. The host's controller writes
//! the same texts from marks.
//!
//! In: addresses of frames in a buffer of the per-CPU area, files and offsets of user frames
//! ([`super::unwind`]), and tables of names and lines ([`rows`]). Out: functions that append to the text
//! in the block ([`super::append`]). Each finds the block itself and has numbers as parameters, so that
//! a host can make them global: the kernel's verifier then follows each one once.
//!
//! | module | its functions |
//! |---|---|
//! | `texts` | what the functions are written with |
//! | `rows` | rows of the tables that they search |
//! | `buffer` | the frames of the kernel's stack: which are the probe's own, their addresses |
//! | `frames` | frames of user stacks in marks |
//! | `names` | user symbols, their files and lines |
//! | `lines` | lines of kernel addresses |
//! | `locations` | positions in the kernel's source |
//!
//! A handler's loop in front of them leaves five of the kernel's eight frames: `kernel_lines_of_N`, its
//! loop, `kernel_line_of_word`, `kernel_line` and `append_hex`.

mod buffer;
mod frames;
mod lines;
mod locations;
mod names;
pub mod rows;
mod texts;

pub use buffer::address;
pub use frames::frame;
pub use lines::{line, of_text};
pub use locations::location;
pub use names::part;
pub use texts::{OWN_FRAMES, StackLayout};

use crate::func::Module;

/// Builds a module with one function.
type BuildText = fn(&StackLayout) -> Module;

/// The functions that depend on the layout only, by name. [`of_text`] is made for the width of a text.
const FUNCTIONS: &[(&str, BuildText)] = &[
    ("append_frame", frames::append_frame),
    ("append_frames", frames::append_frames),
    ("append_file", names::append_file),
    ("append_location", names::append_location),
    (WITH_LOCATIONS, names::append_symbol),
    ("append_symbols", names::append_symbols),
    ("find_symbol", names::find_symbol),
    ("stack_first", buffer::stack_first),
    ("append_address", buffer::append_address),
    ("append_stack", buffer::append_stack),
    ("kernel_line", lines::kernel_line),
    ("kernel_frame_line", lines::kernel_frame_line),
    ("kernel_frame_lines", lines::kernel_frame_lines),
    ("kernel_location", locations::kernel_location),
    ("kernel_line_of_word", |layout| {
        lines::of_word(layout, "kernel_line")
    }),
    ("kernel_location_of_word", |layout| {
        lines::of_word(layout, "kernel_location")
    }),
];

/// The only function that [`StackLayout::lines`] changes.
const WITH_LOCATIONS: &str = "append_symbol";

/// A function of this module, with the layout that it is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackText {
    name: &'static str,
    /// The layout.
    pub layout: StackLayout,
}

impl StackText {
    /// The function of that name; `None` if there is none.
    pub fn named(name: &str, mut layout: StackLayout) -> Option<StackText> {
        let (name, _) = FUNCTIONS.iter().find(|(n, _)| *n == name)?;
        layout.lines &= *name == WITH_LOCATIONS;
        Some(StackText { name, layout })
    }

    /// All functions for this layout.
    pub fn all(layout: &StackLayout) -> impl Iterator<Item = StackText> {
        FUNCTIONS
            .iter()
            .filter_map(|(name, _)| StackText::named(name, layout.clone()))
    }

    /// The module with the function.
    pub fn module(&self) -> Module {
        let function = FUNCTIONS.iter().find(|(name, _)| *name == self.name);
        function.map_or_else(Module::default, |(_, make)| make(&self.layout))
    }
}
