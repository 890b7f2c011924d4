//! What threads waited for at the ends of a recording.

use serde::{Deserialize, Serialize};

use super::Frame;

/// What a thread that existed before the recording waited for at both ends of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BothEnds {
    /// The thread.
    pub tid: u32,
    /// Shortly before the recording; `None` if it ran, or in files of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Wait>,
    /// When the recording had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Wait>,
}

/// A system call that a thread is in, with its stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The system call.
    pub call: String,
    /// What it waits for, see [`crate::model::Sample::object`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Frames of the program, from the innermost to `main`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
}
