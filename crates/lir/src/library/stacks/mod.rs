//! Texts of stacks and addresses, for handlers that look into the text. The host's controller writes
//! the same texts from marks.
//!
//! In: addresses of frames in a room of the processor's block, files and offsets of user frames
//! ([`super::unwind`]), and tables of names and lines ([`rows`]). Out: functions that append to the text
//! in the block ([`super::append`]). Each finds the block itself and has numbers as parameters, so that
//! a host can make them global: the kernel's verifier then follows each one once.
//!
//! | module | its functions |
//! |---|---|
//! | `texts` | what the functions are written with |
//! | `rows` | rows of the tables that they search |
//! | `room` | the frames of the kernel's stack: which are the probe's own, their addresses |
//! | `frames` | frames of user stacks in marks |
//! | `names` | user symbols, their files and lines |
//! | `lines` | lines of kernel addresses |
//! | `places` | positions in the kernel's source |
//!
//! A handler's loop in front of them leaves five of the kernel's eight frames: `kernel_lines_of_N`, its
//! loop, `kernel_line_of_word`, `kernel_line` and `append_hex`.

mod frames;
mod lines;
mod names;
mod places;
mod room;
pub mod rows;
mod texts;

pub use frames::{append_frame, append_frames, frame};
pub use lines::{kernel_frame_line, kernel_frame_lines, kernel_line, line, of_text, of_word};
pub use names::{append_file, append_place, append_symbol, append_symbols, find_symbol, part};
pub use places::{kernel_place, place};
pub use room::{address, append_address, append_stack, stack_first};
pub use texts::{OWN_FRAMES, StackLayout};
