//! The operators of the IR. A row is all that the IR says of one: its name, its word in the text form,
//! which the reader takes too, and its result, for the interpreter and for constant folding.

use spile_cast::Cast;

/// Defines an enum whose variants are words of the text form, from rows `NAME "word"`.
macro_rules! words {
    ($($(#[$doc:meta])* $ty:ident $expected:literal { $($(#[$of:meta])* $name:ident $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum $ty { $($(#[$of])* $name),* }

        $crate::form::form! { enum $ty $expected { $($name $word),* } }
        $crate::form::display! { $ty }
    )*};
}
pub(crate) use words;

/// Defines an enum of operators from rows `NAME "word" result`.
macro_rules! operators {
    ($($(#[$doc:meta])* $ty:ident($($arg:ident: $of:ty),*) -> $out:ty {
        $($name:ident $word:literal $result:expr,)*
    })*) => {$(
        words! { $(#[$doc])* $ty "an operator" { $($name $word),* } }

        impl $ty {
            /// All of them.
            pub const ALL: &[$ty] = &[$($ty::$name),*];

            /// The result of the operator.
            pub fn eval(self, $($arg: $of),*) -> $out {
                match self { $($ty::$name => $result),* }
            }
        }
    )*};
}

operators! {
    /// Two-operand integer operations; comparisons are signed and give 0 or 1. A division by 0 has no
    /// result.
    BinOp(a: i64, b: i64) -> Option<i64> {
        Add "add" Some(a.wrapping_add(b)),
        Sub "sub" Some(a.wrapping_sub(b)),
        Mul "mul" Some(a.wrapping_mul(b)),
        Div "div" (b != 0).then(|| a.wrapping_div(b)),
        Mod "mod" (b != 0).then(|| a.wrapping_rem(b)),
        And "and" Some(a & b),
        Or "or" Some(a | b),
        Xor "xor" Some(a ^ b),
        Shl "shl" Some(a.wrapping_shl(b.low32())),
        Shr "shr" Some(a.wrapping_shr(b.low32())),
        UShr "ushr" Some(a.cast_unsigned().wrapping_shr(b.low32()).cast_signed()),
        Eq "eq" Some(i64::from(a == b)),
        Ne "ne" Some(i64::from(a != b)),
        Lt "lt" Some(i64::from(a < b)),
        Le "le" Some(i64::from(a <= b)),
        Gt "gt" Some(i64::from(a > b)),
        Ge "ge" Some(i64::from(a >= b)),
    }

    /// Comparisons of strings, byte by byte; 0 or 1.
    CmpOp(a: &[u8], b: &[u8]) -> bool {
        Eq "str_eq" a == b,
        Ne "str_ne" a != b,
        Lt "str_lt" a < b,
        Le "str_le" a <= b,
        Gt "str_gt" a > b,
        Ge "str_ge" a >= b,
    }

    /// One-operand integer operations. `Not` is logical.
    UnOp(a: i64) -> i64 {
        Neg "neg" a.wrapping_neg(),
        Not "not" i64::from(a == 0),
        BitNot "bitnot" !a,
    }
}
