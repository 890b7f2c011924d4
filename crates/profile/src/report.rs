//! Reports as text for a given width.

pub(crate) mod callpaths;
mod diff;
mod events;
mod latency;
mod noise;
mod objects;
mod peers;
mod placement;
mod places;
mod quiet;
mod system;
mod table;
mod tables;
mod text;
mod threads;
pub(crate) mod unfinished;
mod units;
pub(crate) mod view;

pub use diff::{diff, notes};
pub use noise::noise;
pub use objects::WaitObject;
pub use system::system;
pub use table::paragraph;
pub(crate) use text::head;
pub use text::{failed, text, text_of};
pub use threads::threads;
pub use units::{counted, time};
pub use view::View;
