//! Frames of stacks, of which equal ones are one: large recordings have millions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::{Frame, StackFrame};

/// The distinct frames of some recordings.
#[derive(Debug, Default)]
pub struct SharedFrames(HashSet<Frame>);

impl SharedFrames {
    /// A frame.
    pub fn frame(&mut self, frame: StackFrame) -> Frame {
        self.shared(frame.into())
    }

    /// The frames of a stack.
    pub fn stack(&mut self, frames: Vec<StackFrame>) -> Vec<Frame> {
        let frames = frames.into_iter();
        frames.map(|frame| self.shared(frame.into())).collect()
    }

    /// Forgets all frames if there are more than `most`.
    pub(crate) fn limit(&mut self, most: usize) {
        if self.0.len() > most {
            self.0.clear();
        }
    }

    /// Replaces the frames of a stack by equal ones of earlier stacks.
    pub(crate) fn share(&mut self, frames: &mut Vec<Frame>) {
        frames.shrink_to_fit();
        for frame in frames {
            *frame = self.shared(std::mem::take(frame));
        }
    }

    fn shared(&mut self, frame: Frame) -> Frame {
        if let Some(known) = self.0.get(&frame) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&frame));
        frame
    }
}

/// Values by frame. They are found by the frame's address, which is faster than by its names.
#[derive(Debug)]
pub(crate) struct ByFrame<V> {
    /// With the frame itself, so that no other one gets its address.
    values: HashMap<*const StackFrame, (Frame, V)>,
}

impl<V> Default for ByFrame<V> {
    fn default() -> ByFrame<V> {
        ByFrame {
            values: HashMap::new(),
        }
    }
}

impl<V: Copy> ByFrame<V> {
    /// The value of a frame, which `make` makes at first.
    pub(crate) fn get(&mut self, frame: &Frame, make: impl FnOnce(&StackFrame) -> V) -> V {
        let entry = self.values.entry(Arc::as_ptr(frame));
        entry.or_insert_with(|| (Arc::clone(frame), make(frame))).1
    }
}
