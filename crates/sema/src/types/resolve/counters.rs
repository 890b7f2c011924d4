//! The counters of `@perf`, by name.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_ir::Event;

use crate::probe::ProbeHandler;

/// A named perf event.
pub(super) struct Counter {
    pub(super) ty: u32,
    pub(super) config: u64,
    /// The program whose events it counts, where the script names one.
    pub(super) program: Option<Arc<str>>,
}

/// The counters by their names.
pub(super) type NamedCounters = FxHashMap<String, Counter>;

/// The counters of a script.
pub(super) fn counters(handlers: &[ProbeHandler]) -> NamedCounters {
    let counter = |d: &ProbeHandler| match &d.event {
        Event::Counter { name, ty, config } => {
            let program = d.ctx.name.clone();
            let (ty, config) = (*ty, *config);
            let counter = Counter {
                ty,
                config,
                program,
            };
            Some((name.to_string(), counter))
        }
        _ => None,
    };
    handlers.iter().filter_map(counter).collect()
}
