//! Machine code and what it refers to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What code refers to outside of itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostSymbol {
    /// The state memory (`.bss`).
    State,
    /// Constants (`.rodata`).
    Constants,
    /// The description of the image.
    Image,
    /// A map: the description that the library gets for it.
    Map(Arc<str>),
}

impl fmt::Display for HostSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSymbol::State => f.write_str("the state memory"),
            HostSymbol::Constants => f.write_str("constants"),
            HostSymbol::Image => f.write_str("the image's description"),
            HostSymbol::Map(name) => write!(f, "the map {name}"),
        }
    }
}

/// A reference: four bytes that are the distance to a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Position of the four bytes.
    pub(crate) at: usize,
    /// Added to the symbol's address.
    pub(crate) addend: i64,
    pub(crate) to: HostSymbol,
}

/// Machine code of several functions.
#[derive(Debug, Clone, Default)]
pub struct NativeCode {
    pub(crate) bytes: Vec<u8>,
    pub(crate) functions: BTreeMap<String, usize>,
    pub(crate) references: Vec<Reference>,
}

impl NativeCode {
    /// The position of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        self.functions.get(name).copied()
    }

    /// Puts a function behind the others; returns its position.
    pub(crate) fn function_at_end(&mut self, name: &str, code: &[u8]) -> usize {
        let start = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(start, 0xcc);
        self.bytes.extend_from_slice(code);
        self.functions.insert(name.into(), start);
        start
    }

    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The code, for symbols at these distances from its first byte. It has no addresses of its own, so it is the
    /// same at any place.
    ///
    /// # Errors
    /// A symbol has no distance, or is more than 2 GB away.
    pub fn link(&self, distance: impl Fn(&HostSymbol) -> Option<i64>) -> Result<Vec<u8>, Unlinked> {
        let mut bytes = self.bytes.clone();
        for Reference { at, addend, to } in &self.references {
            let unlinked = || Unlinked(to.clone());
            let target = distance(to).ok_or_else(unlinked)?;
            let distance = i64::try_from(*at)
                .ok()
                .and_then(|at| target.checked_sub(at));
            let distance = distance.and_then(|d| d.checked_add(*addend));
            let distance = distance.and_then(|d| i32::try_from(d).ok());
            let distance = distance.ok_or_else(unlinked)?;
            bytes[*at..*at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// A symbol that has no address, or is too far from the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlinked(pub HostSymbol);

impl fmt::Display for Unlinked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine code cannot reach {}", self.0)
    }
}

impl std::error::Error for Unlinked {}
