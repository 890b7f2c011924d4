//! What a session reports about itself: losses and costs.
//!
//! In: counters of the state memory and of the controller. Out: lines for standard error.
//!
//! | module | its one job |
//! |---|---|
//! | [`losses`] | counts everything that a session lost or skipped |
//! | [`cost`] | the hits and run times of each probe (`-t`) |

pub mod cost;
pub mod losses;
