//! The operations as tables, each with its name in the text form and its meaning.
//!
//! The meaning is that of eBPF (RFC 9669): arithmetic wraps, a division by zero gives 0, a remainder
//! by zero gives the dividend, the amount of a shift is taken modulo the width, and a 32-bit result
//! is extended with zeros. No operation traps. Words in memory are little endian.

use spile_cast::Cast;

/// Defines an enum with a name for each variant.
macro_rules! named {
    ($($(#[$m:meta])* $ty:ident { $($(#[$vm:meta])* $v:ident = $name:literal,)* })*) => {$(
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $ty {
            $($(#[$vm])* #[doc = concat!("\n\nText: `", $name, "`.")] $v,)*
        }

        impl $ty {
            /// All of them, in the table's order.
            pub const ALL: &[$ty] = &[$($ty::$v),*];

            /// The name in the text form.
            pub fn name(self) -> &'static str {
                match self { $($ty::$v => $name),* }
            }

            /// The one with this name.
            pub fn by_name(name: &str) -> Option<$ty> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
    )*};
}
pub(crate) use named;

named! {
    /// Arithmetic with two operands.
    AluOp {
        /// Addition.
        Add = "add",
        /// Subtraction.
        Sub = "sub",
        /// Multiplication.
        Mul = "mul",
        /// Unsigned division.
        Div = "div",
        /// Signed division, rounds to zero (Linux 6.6).
        Sdiv = "sdiv",
        /// Unsigned remainder.
        Mod = "mod",
        /// Signed remainder, has the dividend's sign (Linux 6.6).
        Smod = "smod",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Shift left.
        Lsh = "lsh",
        /// Shift right, zeros come in.
        Rsh = "rsh",
        /// Shift right, copies of the sign come in.
        Arsh = "arsh",
    }

    /// Condition of a branch.
    Cond {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Unsigned greater.
        Gt = "gt",
        /// Unsigned greater or equal.
        Ge = "ge",
        /// Unsigned less.
        Lt = "lt",
        /// Unsigned less or equal.
        Le = "le",
        /// Signed greater.
        Sgt = "sgt",
        /// Signed greater or equal.
        Sge = "sge",
        /// Signed less.
        Slt = "slt",
        /// Signed less or equal.
        Sle = "sle",
        /// Some bit in common.
        Set = "set",
    }

    /// Size of a memory access or of a part of a register.
    Size {
        /// 1 byte.
        U8 = "u8",
        /// 2 bytes.
        U16 = "u16",
        /// 4 bytes.
        U32 = "u32",
        /// 8 bytes.
        U64 = "u64",
    }

    /// Width of arithmetic or of a comparison.
    Width {
        /// The low halves.
        W32 = "32",
        /// Whole registers.
        W64 = "64",
    }

    /// Atomic operation on 4 or 8 bytes of memory. All but the first four give the old value.
    AtomicOp {
        /// Addition.
        Add = "atomic_add",
        /// Bitwise or.
        Or = "atomic_or",
        /// Bitwise and.
        And = "atomic_and",
        /// Bitwise exclusive or.
        Xor = "atomic_xor",
        /// Addition.
        FetchAdd = "fetch_add",
        /// Bitwise or.
        FetchOr = "fetch_or",
        /// Bitwise and.
        FetchAnd = "fetch_and",
        /// Bitwise exclusive or.
        FetchXor = "fetch_xor",
        /// Stores the operand.
        Xchg = "xchg",
        /// Stores the operand if memory equals the expected value.
        CmpXchg = "cmpxchg",
    }

    /// A conversion of the low bytes of a value.
    ExtOp {
        /// Extended with zeros.
        Zext = "zext",
        /// Extended with the sign (Linux 6.6; before, two shifts).
        Sext = "sext",
        /// Bytes in the opposite order, extended with zeros; not of one byte.
        Swap = "swap",
    }
}

impl Size {
    /// The size in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Size::U8 => 1,
            Size::U16 => 2,
            Size::U32 => 4,
            Size::U64 => 8,
        }
    }

    /// The low bytes of a word.
    pub fn truncate(self, x: u64) -> u64 {
        x & (u64::MAX >> (64 - 8 * self.bytes()))
    }

    /// The low bytes of a word, extended with their sign.
    pub fn sign_extend(self, x: u64) -> u64 {
        let unused = 64 - 8 * self.bytes();
        ((x << unused).cast_signed() >> unused).cast_unsigned()
    }
}

impl Width {
    fn operand(self, x: u64) -> u64 {
        match self {
            Width::W32 => Size::U32.truncate(x),
            Width::W64 => x,
        }
    }

    fn signed(self, x: u64) -> i64 {
        match self {
            Width::W32 => Size::U32.sign_extend(x).cast_signed(),
            Width::W64 => x.cast_signed(),
        }
    }

    /// The size of a value of this width.
    pub fn size(self) -> Size {
        match self {
            Width::W32 => Size::U32,
            Width::W64 => Size::U64,
        }
    }
}

impl AtomicOp {
    /// Whether the operation gives the old value.
    pub fn fetches(self) -> bool {
        !matches!(
            self,
            AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor
        )
    }
}

impl AluOp {
    /// The result.
    pub fn evaluate(self, width: Width, a: u64, b: u64) -> u64 {
        let (a, b) = (width.operand(a), width.operand(b));
        let (sa, sb) = (width.signed(a), width.signed(b));
        let shift = b.low32() & (8 * width.size().bytes() - 1);
        let result = match self {
            AluOp::Add => a.wrapping_add(b),
            AluOp::Sub => a.wrapping_sub(b),
            AluOp::Mul => a.wrapping_mul(b),
            AluOp::Div => a.checked_div(b).unwrap_or(0),
            AluOp::Sdiv if b == 0 => 0,
            AluOp::Sdiv => sa.wrapping_div(sb).cast_unsigned(),
            AluOp::Mod => a.checked_rem(b).unwrap_or(a),
            AluOp::Smod if b == 0 => a,
            AluOp::Smod => sa.wrapping_rem(sb).cast_unsigned(),
            AluOp::And => a & b,
            AluOp::Or => a | b,
            AluOp::Xor => a ^ b,
            AluOp::Lsh => a << shift,
            AluOp::Rsh => a >> shift,
            AluOp::Arsh => (sa >> shift).cast_unsigned(),
        };
        width.operand(result)
    }
}

impl Cond {
    /// Whether the condition holds.
    pub fn holds(self, width: Width, a: u64, b: u64) -> bool {
        let (a, b) = (width.operand(a), width.operand(b));
        let (sa, sb) = (width.signed(a), width.signed(b));
        match self {
            Cond::Eq => a == b,
            Cond::Ne => a != b,
            Cond::Gt => a > b,
            Cond::Ge => a >= b,
            Cond::Lt => a < b,
            Cond::Le => a <= b,
            Cond::Sgt => sa > sb,
            Cond::Sge => sa >= sb,
            Cond::Slt => sa < sb,
            Cond::Sle => sa <= sb,
            Cond::Set => a & b != 0,
        }
    }
}

impl ExtOp {
    /// The result for the low `size` bytes of `x`.
    pub fn evaluate(self, size: Size, x: u64) -> u64 {
        match self {
            ExtOp::Zext => size.truncate(x),
            ExtOp::Sext => size.sign_extend(x),
            ExtOp::Swap => x.swap_bytes() >> (64 - 8 * size.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The facts are those of RFC 9669.
    #[test]
    fn corner_cases_are_those_of_the_standard() {
        use AluOp::*;
        use Width::*;
        let rows = [
            (Div, W64, 7, 0, 0),
            (Mod, W64, 7, 0, 7),
            (Mod, W32, u64::MAX, 0, 0xffff_ffff),
            (Sdiv, W64, i64::MIN as u64, u64::MAX, i64::MIN as u64),
            (Sdiv, W32, 0x8000_0000, 0xffff_ffff, 0x8000_0000),
            (Smod, W64, (-13i64) as u64, 3, (-1i64) as u64),
            (Lsh, W64, 1, 65, 2),
            (Arsh, W32, 0x8000_0000, 31, 0xffff_ffff),
            (Add, W32, 0xffff_ffff, 1, 0),
        ];
        for (op, width, a, b, result) in rows {
            assert_eq!(op.evaluate(width, a, b), result, "{op:?} {width:?} {a} {b}");
        }
        assert!(Cond::Slt.holds(W32, 0xffff_ffff, 0));
        assert!(!Cond::Slt.holds(W64, 0xffff_ffff, 0));
        assert_eq!(ExtOp::Swap.evaluate(Size::U16, 0x1234), 0x3412);
        assert_eq!(ExtOp::Sext.evaluate(Size::U8, 0x80), (-128i64) as u64);
    }
}
