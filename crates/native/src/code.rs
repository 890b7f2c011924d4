//! Machine code and what it refers to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What code refers to outside of itself. The host has an address for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostSymbol {
    /// The state memory (`.bss`).
    State,
    /// Constants (`.rodata`).
    Constants,
    /// A map: the value that helpers get for it.
    Map(Arc<str>),
    /// A helper, by the kernel's number: a function of the C convention with five words and one as the result.
    Helper(u32),
}

impl fmt::Display for HostSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSymbol::State => f.write_str("the state memory"),
            HostSymbol::Constants => f.write_str("constants"),
            HostSymbol::Map(name) => write!(f, "the map {name}"),
            HostSymbol::Helper(number) => write!(f, "the helper {number}"),
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

/// A way to a function that can be anywhere: `jmp *(%rip)`, and its address.
const FAR_JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const FAR: usize = FAR_JUMP.len() + size_of::<u64>();

impl NativeCode {
    /// The position of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        self.functions.get(name).copied()
    }

    /// The helpers that it calls.
    fn helpers(&self) -> BTreeMap<u32, usize> {
        let numbers = self.references.iter().filter_map(|r| match r.to {
            HostSymbol::Helper(number) => Some((number, 0)),
            _ => None,
        });
        let mut helpers: BTreeMap<u32, usize> = numbers.collect();
        let end = self.bytes.len().next_multiple_of(16);
        for (position, at) in helpers.values_mut().zip((end..).step_by(FAR)) {
            *position = at;
        }
        helpers
    }

    /// Length in bytes of what [`NativeCode::link`] gives.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len().next_multiple_of(16) + self.helpers().len() * FAR
    }

    /// The code for the address `base`, with a way to each helper behind it. `address` has the addresses of symbols.
    ///
    /// # Errors
    /// A symbol has no address, or is more than 2 GB away and no helper.
    pub fn link(
        &self,
        base: u64,
        address: impl Fn(&HostSymbol) -> Option<u64>,
    ) -> Result<Vec<u8>, Unlinked> {
        let helpers = self.helpers();
        let address = |symbol: &HostSymbol| address(symbol).ok_or_else(|| Unlinked(symbol.clone()));
        let mut bytes = self.bytes.clone();
        bytes.resize(self.length(), 0xcc);
        for (number, at) in &helpers {
            let to = address(&HostSymbol::Helper(*number))?;
            let jump = [&FAR_JUMP[..], &to.to_le_bytes()].concat();
            bytes[*at..*at + FAR].copy_from_slice(&jump);
        }
        for Reference { at, addend, to } in &self.references {
            let target = match to {
                HostSymbol::Helper(number) => base + helpers[number] as u64,
                symbol => address(symbol)?,
            };
            let from = base + *at as u64;
            let distance = target
                .wrapping_sub(from)
                .cast_signed()
                .wrapping_add(*addend);
            let distance = i32::try_from(distance).map_err(|_| Unlinked(to.clone()))?;
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
