//! Another kernel than the running one, for `-r`: its types and symbols are looked at instead.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::btf::{Btf, BtfError};
use crate::symbols::{SymbolError, Symbols};

/// What is known of it, until it is asked for.
struct Other {
    btf: Mutex<Option<Result<Btf, BtfError>>>,
    symbols: Mutex<Option<Result<Symbols, SymbolError>>>,
}

static OTHER: OnceLock<Other> = OnceLock::new();

/// From now on types and symbols are those of a kernel that does not run: `btf` is its raw type
/// information where it has any, `symbols` a text in the format of `/proc/kallsyms`. It has to be
/// called before anything is looked up, and once.
pub fn look_at(btf: Option<Vec<u8>>, symbols: String) {
    let none = || BtfError::Format("the kernel of -r has no BTF".into());
    let btf = btf.ok_or_else(none).and_then(Btf::parse);
    let _ = OTHER.set(Other {
        btf: Mutex::new(Some(btf)),
        symbols: Mutex::new(Some(Symbols::parse(symbols))),
    });
}

/// Whether it is another kernel that is looked at.
#[must_use]
pub fn is() -> bool {
    OTHER.get().is_some()
}

/// Its types, for who keeps them.
pub(crate) fn btf() -> Option<Result<Btf, BtfError>> {
    let mut btf = OTHER
        .get()?
        .btf
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    btf.take()
}

/// Its symbols, for who keeps them.
pub(crate) fn symbols() -> Option<Result<Symbols, SymbolError>> {
    let other = OTHER.get()?;
    let mut symbols = other.symbols.lock().unwrap_or_else(PoisonError::into_inner);
    symbols.take()
}
