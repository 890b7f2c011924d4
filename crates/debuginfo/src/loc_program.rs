//! Programs that compute locations and values.

use crate::unit::Die;

/// One step. Numbers are 64-bit words; operators take their operands from the stack, the
/// right one on top, and leave the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocStep {
    /// The value of a register by its DWARF number.
    Reg(u16),
    /// A constant.
    Const(i64),
    /// The load bias of the module: its load address less the linked one.
    Bias,
    /// The current thread's pointer to its block of thread-local variables.
    ThreadPointer,
    /// Replaces an address by the memory content there, zero-extended.
    Load {
        /// Size in bytes: 1, 2, 4 or 8.
        size: u8,
    },
    /// Keeps the low bytes of a number and extends them.
    Extend {
        /// Size in bytes: 1, 2, 4.
        size: u8,
        /// Whether to sign-extend.
        signed: bool,
    },
    /// An operator of two operands.
    Binary(LocBinary),
    /// `-x`
    Neg,
    /// `~x`
    Not,
    /// `|x|`
    Abs,
}

/// Operators of [`LocStep::Binary`]; comparisons are signed and give 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum LocBinary {
    Add,
    Sub,
    Mul,
    /// Signed.
    Div,
    /// Unsigned.
    Mod,
    And,
    Or,
    Xor,
    Shl,
    /// Logical.
    Shr,
    /// Arithmetic.
    Sar,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The location of a variable at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In memory at the address that the program computes.
    Address(Vec<LocStep>),
    /// The value that the program computes; its low bytes if the variable is narrower.
    Value(Vec<LocStep>),
    /// In pieces with their sizes in bytes, in order. `None`: that piece is lost.
    Pieces(Vec<(u64, Option<Location>)>),
    /// A pointer that is in no memory; the object to which it points is known.
    Implicit {
        /// The entry of the object.
        to: Die,
        /// The distance in bytes from its start.
        offset: i64,
    },
}

/// Maximum number of words of a known value.
const MAX_WORDS: usize = 512;

impl Location {
    /// A value with these bytes, in words of 8 bytes where it has more.
    pub(crate) fn known(bytes: &[u8]) -> Location {
        if bytes.len() <= 8 {
            return Location::Value(vec![LocStep::Const(little_endian(bytes))]);
        }
        let words = bytes.chunks(8).take(MAX_WORDS);
        let words = words.map(|word| (word.len() as u64, Some(Location::known(word))));
        Location::Pieces(words.collect())
    }
}

/// Up to 8 bytes as a number.
pub(crate) fn little_endian(bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    for (w, b) in word.iter_mut().zip(bytes) {
        *w = *b;
    }
    i64::from_le_bytes(word)
}

/// The reason why a variable cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub String);

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Unavailable {
        Unavailable(reason.into())
    }

    /// An error with that reason.
    pub(crate) fn because<T>(reason: impl Into<String>) -> Result<T, Unavailable> {
        Err(Unavailable::new(reason))
    }

    pub(crate) fn optimised() -> Unavailable {
        // SystemTap's words, followed by the reason.
        Unavailable::new("not accessible at this address: optimised out")
    }

    pub(crate) fn damaged() -> Unavailable {
        Unavailable::new("its location cannot be decoded")
    }
}
