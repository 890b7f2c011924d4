//! The files of another kernel, for `-r`: its types and symbols replace the running kernel's.

use std::sync::{Mutex, OnceLock, PoisonError};

/// The other kernel's data, until they are taken.
struct ForeignKernel {
    btf: Mutex<Option<Vec<u8>>>,
    symbols: Mutex<String>,
}

static OTHER: OnceLock<ForeignKernel> = OnceLock::new();

/// Replaces the running kernel's types and symbols: `btf` is the other kernel's raw type
/// information, if it has any, `symbols` a text in the format of `/proc/kallsyms`. To be called
/// once, before anything is looked up.
pub fn activate(btf: Option<Vec<u8>>, symbols: String) {
    let _ = OTHER.set(ForeignKernel {
        btf: Mutex::new(btf),
        symbols: Mutex::new(symbols),
    });
}

/// Whether another kernel replaces the running one.
#[must_use]
pub fn is_active() -> bool {
    OTHER.get().is_some()
}

/// The other kernel's raw type information for the cache of BTF, which takes it: `Some(None)` if it has none.
pub(crate) fn btf() -> Option<Option<Vec<u8>>> {
    OTHER.get().map(|other| taken(&other.btf))
}

/// The other kernel's symbols for the cache of symbols, which takes them.
pub(crate) fn symbols() -> Option<String> {
    OTHER.get().map(|other| taken(&other.symbols))
}

fn taken<T: Default>(data: &Mutex<T>) -> T {
    std::mem::take(&mut *data.lock().unwrap_or_else(PoisonError::into_inner))
}
