//! What several formats say of a location or sample.

use std::borrow::Cow;

use crate::paths::{LocationKind, PathLocation, PathSample};

impl PathLocation {
    /// The binary that has the code: a file, or "[kernel]" or a module of it, also in brackets.
    pub(super) fn binary(&self) -> Option<Cow<'_, str>> {
        match (self.kind, self.module.as_deref()) {
            (LocationKind::Call, None) => Some("[kernel]".into()),
            (LocationKind::Kernel, module) => {
                Some(format!("[{}]", module.unwrap_or("kernel")).into())
            }
            (_, module) => module.map(Cow::Borrowed),
        }
    }
}

impl PathSample {
    /// Number of calls; 0 of other samples.
    pub(super) fn calls(&self) -> u64 {
        if self.is_call() { self.count } else { 0 }
    }
}
