//! What a summary shows, as its reader asks for it.

use super::objects::WaitObject;
use crate::answer::By;

/// What a summary shows.
#[derive(Debug, Clone)]
pub struct View {
    /// Number of columns at most.
    pub width: usize,
    /// Number of rows of each table at most.
    pub top: usize,
    /// What makes a row of the table of places.
    pub by: By,
    /// Tables that are shown even if they have less than 5 % of the time.
    pub objects: Vec<WaitObject>,
}

impl View {
    /// The default view, of that size.
    pub fn new(width: usize, top: usize) -> View {
        View {
            width,
            top,
            by: By::default(),
            objects: Vec::new(),
        }
    }
}
