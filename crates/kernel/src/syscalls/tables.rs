//! The tables, as the build script writes them.

use super::model::*;

include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));
