//! The files of another kernel, for `-r`: its types and symbols replace the running kernel's.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::btf::{Btf, BtfError};
use crate::symbols::{SymbolError, Symbols};

/// The other kernel's data, until they are taken.
struct ForeignKernel {
    btf: Mutex<Option<Result<Btf, BtfError>>>,
    symbols: Mutex<Option<Result<Symbols, SymbolError>>>,
}

static OTHER: OnceLock<ForeignKernel> = OnceLock::new();

/// Replaces the running kernel's types and symbols: `btf` is the other kernel's raw type
/// information, if it has any, `symbols` a text in the format of `/proc/kallsyms`. To be called
/// once, before anything is looked up.
pub fn activate(btf: Option<Vec<u8>>, symbols: String) {
    let none = || BtfError::Format("the kernel of -r has no BTF".into());
    let btf = btf.ok_or_else(none).and_then(Btf::parse);
    let _ = OTHER.set(ForeignKernel {
        btf: Mutex::new(Some(btf)),
        symbols: Mutex::new(Some(Symbols::parse(symbols))),
    });
}

/// Whether another kernel replaces the running one.
#[must_use]
pub fn is_active() -> bool {
    OTHER.get().is_some()
}

/// The other kernel's types, for the cache of BTF.
pub(crate) fn btf() -> Option<Result<Btf, BtfError>> {
    let mut btf = OTHER
        .get()?
        .btf
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    btf.take()
}

/// The other kernel's symbols, for the cache of symbols.
pub(crate) fn symbols() -> Option<Result<Symbols, SymbolError>> {
    let other = OTHER.get()?;
    let mut symbols = other.symbols.lock().unwrap_or_else(PoisonError::into_inner);
    symbols.take()
}
