//! Conversions between integers that can lose bits, named by what happens to the bits. The operator
//! `as` does not say whether a loss is meant.
//!
//! - [`Cast::fit`]: the number is known to fit, such as a count of items in memory.
//! - [`Cast::low32`] and its kin: the low bits are meant, the others are cut off.
//! - `cast_signed` and `cast_unsigned` of the standard library: the same bits, read the other way.
//! - `try_from` of the standard library: input decides whether the number fits.
//! - [`u32_of`] and its kin: the number fits, in the value of a constant.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::fmt::Display;

// Addresses, and lengths of files, of 64 bits are indexes. `fit` checks nothing there.
const _: () = assert!(usize::BITS == 64);

/// Conversions of an integer, by what happens to its bits.
pub trait Cast: Copy + Display {
    /// The number as another type that has it.
    ///
    /// # Panics
    /// If the type does not have it: a wrong number would be worse.
    #[inline]
    #[must_use]
    #[track_caller]
    fn fit<T: TryFrom<Self>>(self) -> T {
        match T::try_from(self) {
            Ok(n) => n,
            Err(_) => refuse(&self, std::any::type_name::<T>()),
        }
    }

    /// The low 64 bits, in two's complement.
    #[must_use]
    fn low64(self) -> u64;

    /// The low 32 bits, in two's complement.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the meaning of the name")]
    fn low32(self) -> u32 {
        self.low64() as u32
    }

    /// The low 16 bits, in two's complement.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the meaning of the name")]
    fn low16(self) -> u16 {
        self.low64() as u16
    }

    /// The low 8 bits, in two's complement.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the meaning of the name")]
    fn low8(self) -> u8 {
        self.low64() as u8
    }
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Cast for $ty {
            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_lossless,
                reason = "the meaning of the name"
            )]
            fn low64(self) -> u64 {
                self as u64
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

#[cold]
#[inline(never)]
#[track_caller]
fn refuse(n: &dyn Display, ty: &str) -> ! {
    panic!("{n} does not fit into {ty}")
}

/// The whole part of a number that is not negative, or the nearest number of the type.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the operator gives the nearest number"
)]
pub fn whole(n: f64) -> u64 {
    n as u64
}

macro_rules! constants {
    ($($name:ident $ty:ident)*) => {$(
        /// A size in the value of a constant. It does not compile if the type does not have it.
        ///
        /// # Panics
        /// As [`Cast::fit`].
        #[must_use]
        #[track_caller]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "checked before"
        )]
        pub const fn $name(n: usize) -> $ty {
            assert!(n <= $ty::MAX as usize);
            n as $ty
        }
    )*};
}

constants! { u32_of u32 u16_of u16 u8_of u8 i64_of i64 i32_of i32 i16_of i16 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_fit_are_the_same() {
        assert_eq!(7usize.fit::<u32>(), 7);
        assert_eq!(u32::MAX.fit::<u64>(), 0xffff_ffff);
        assert_eq!((-128i64).fit::<i8>(), -128);
        assert_eq!(u64::MAX.fit::<usize>(), usize::MAX);
    }

    #[test]
    #[should_panic(expected = "-1 does not fit into usize")]
    fn others_are_refused() {
        let _ = (-1i64).fit::<usize>();
    }

    #[test]
    fn low_bits_are_those_of_twos_complement() {
        assert_eq!(0x1_2345_6789u64.low32(), 0x2345_6789);
        assert_eq!((-2i32).low64(), u64::MAX - 1);
        assert_eq!((-2i128).low16(), 0xfffe);
        assert_eq!(0x1234u16.low8(), 0x34);
    }

    #[test]
    fn whole_parts_are_the_nearest() {
        assert_eq!(
            [-1.5, 0.9, 1.9, 1e30, f64::NAN].map(whole),
            [0, 0, 1, u64::MAX, 0]
        );
    }

    #[test]
    fn constants_fit() {
        const ALL: (u32, u16, u8, i32, i16) =
            (u32_of(7), u16_of(7), u8_of(7), i32_of(7), i16_of(7));
        assert_eq!(ALL, (7, 7, 7, 7, 7));
    }
}
