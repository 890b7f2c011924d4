//! Reports as text for a given width.

mod callpaths;
mod diff;
mod events;
mod latency;
mod migrations;
mod noise;
mod objects;
mod places;
mod quiet;
mod system;
mod table;
mod tables;
mod text;
mod threads;
mod unfinished;
mod units;

pub(crate) use callpaths::CallPaths;
pub use diff::{diff, notes};
pub use noise::noise;
pub use objects::WaitObject;
pub use system::system;
pub use table::paragraph;
pub(crate) use text::head;
pub use text::{View, failed, text, text_of};
pub use threads::threads;
pub(crate) use unfinished::UnfinishedCalls;
pub use units::{counted, time};
