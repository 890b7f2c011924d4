//! Lists of what is loaded in the kernel, before and after a case.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use spile_kernel::bpf::{ObjectKind, ids};

/// How long the kernel may take to free what nobody uses, and how long other tracers of the
/// machine, which can have started meanwhile, may run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ids of programs and maps.
pub struct Loaded(BTreeSet<(&'static str, u32)>);

/// What is loaded now; nothing where one may not ask.
pub fn loaded() -> Loaded {
    let kinds = [("program", ObjectKind::Prog), ("map", ObjectKind::Map)];
    let all = kinds.into_iter().flat_map(|(name, kind)| {
        ids(kind)
            .unwrap_or_default()
            .into_iter()
            .map(move |id| (name, id))
    });
    Loaded(all.collect())
}

/// Fails when something stays that was not there before.
pub fn none_left(before: &Loaded) -> Result<(), String> {
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
