//! Reports as text for a given width.

mod callpaths;
mod diff;
mod events;
mod latency;
mod migrations;
mod noise;
mod objects;
mod places;
mod system;
mod table;
mod tables;
mod text;
mod threads;
mod units;

pub use diff::{diff, notes};
pub use noise::noise;
pub use objects::WaitObject;
pub use system::system;
pub use table::paragraph;
pub use text::{View, failed, head, text};
pub use threads::threads;
pub use units::{counted, time};
