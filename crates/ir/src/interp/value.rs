//! Values of the language, and errors.

use std::borrow::Cow;

use crate::{Bytes, SiteId, Ty};

/// An integer or a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A 64-bit integer.
    Long(i64),
    /// A string: bytes without a NUL.
    Str(Bytes),
}

impl Value {
    /// The initial value of a register or a global of this type.
    pub fn zero(ty: Ty) -> Value {
        match ty {
            Ty::Long => Value::Long(0),
            Ty::Str(_) => Value::Str(Bytes::default()),
        }
    }

    /// The integer; 0 for a string.
    pub fn as_long(&self) -> i64 {
        match self {
            Value::Long(n) => *n,
            Value::Str(_) => 0,
        }
    }

    /// The string; "" for an integer.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Value::Long(_) => b"",
            Value::Str(s) => s,
        }
    }

    /// The value after a store to a location of type `ty`: a string ends at its first NUL and is cut
    /// to the location's width. The flag tells whether the width cut bytes off.
    pub fn truncated_to(self, ty: Ty) -> (Value, bool) {
        match (self, ty) {
            (Value::Str(s), Ty::Str(width)) => {
                let len = s.iter().position(|b| *b == 0).unwrap_or(s.len());
                let capacity = usize::from(width.max(1)) - 1;
                if len <= capacity && len == s.len() {
                    return (Value::Str(s), false);
                }
                (Value::Str(s[..len.min(capacity)].into()), len > capacity)
            }
            (Value::Long(n), Ty::Long) => (Value::Long(n), false),
            // The verifier refuses programs that get here.
            (_, ty) => (Value::zero(ty), false),
        }
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Long(n)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::Str(s.as_bytes().into())
    }
}

impl From<&[u8]> for Value {
    fn from(s: &[u8]) -> Value {
        Value::Str(s.into())
    }
}

/// The error of an operation: the message that `catch` gives to the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(Cow<'static, [u8]>);

impl Fault {
    /// The message's bytes.
    pub fn message(&self) -> &[u8] {
        &self.0
    }
}

impl From<&'static str> for Fault {
    fn from(s: &'static str) -> Fault {
        Fault(Cow::Borrowed(s.as_bytes()))
    }
}

impl From<String> for Fault {
    fn from(s: String) -> Fault {
        Fault(Cow::Owned(s.into_bytes()))
    }
}

impl From<Vec<u8>> for Fault {
    fn from(s: Vec<u8>) -> Fault {
        Fault(Cow::Owned(s))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Fault {}

/// An error that ended a handler. The caller writes it as `MESSAGE near SITE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// The error.
    pub message: Fault,
    /// The statement that failed.
    pub site: SiteId,
    /// The calls in progress at that statement, innermost first.
    pub callers: Vec<SiteId>,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.message.fmt(f)
    }
}

impl std::error::Error for ScriptError {}
