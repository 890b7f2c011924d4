//! Objects loaded in the kernel before and after a case.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use spile_kernel::bpf::{ObjectKind, ids};

/// Time limit for the kernel to free unused objects, and for other tracers on the machine, which
/// can have started meanwhile, to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ids of programs and maps.
pub(crate) struct Loaded(BTreeSet<(&'static str, u32)>);

/// The loaded objects; empty without the privilege to list them.
pub(crate) fn loaded() -> Loaded {
    let kinds = [("program", ObjectKind::Prog), ("map", ObjectKind::Map)];
    let all = kinds.into_iter().flat_map(|(name, kind)| {
        ids(kind)
            .unwrap_or_default()
            .into_iter()
            .map(move |id| (name, id))
    });
    Loaded(all.collect())
}

/// Fails when an object remains that did not exist before.
pub(crate) fn none_left(before: &Loaded) -> Result<(), String> {
    let mut new: BTreeSet<_> = loaded().0.difference(&before.0).copied().collect();
    let until = Instant::now() + PATIENCE;
    while !new.is_empty() {
        if Instant::now() > until {
            return Err(format!("left in the kernel: {new:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
        let now = loaded().0;
        new.retain(|object| now.contains(object));
    }
    Ok(())
}
