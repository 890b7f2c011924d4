//! Reports as text for a given width.

mod callpaths;
mod diff;
mod latency;
mod noise;
mod places;
mod system;
mod table;
mod tables;
mod text;
mod threads;
mod units;

pub use diff::{ComparedValues, Differences, diff, differences};
pub use noise::noise;
pub use system::system;
pub use table::paragraph;
pub use text::{failed, head, text};
pub use threads::threads;
pub use units::time;
