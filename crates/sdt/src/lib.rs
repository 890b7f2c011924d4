//! Static markers for Rust programs: the notes that spile, perf, bpftrace, gdb and
//! SystemTap read, as `spile/sdt.h` makes them for C.
//!
//! ```
//! let (item, price) = (7_u32, 250_i64);
//! spile_sdt::probe!(shop, sold, item, price);
//! if spile_sdt::probe_enabled!(shop, listed) {
//!     let text = format!("{item}\0");
//!     spile_sdt::probe!(shop, listed, text.as_ptr());
//! }
//! ```
//!
//! A marker is one no-operation in the code. Every marker has a semaphore, which the kernel
//! increments while it is probed; [`probe_enabled!`] reads it.
//!
//! On x86-64 the no-operation has five bytes, and Linux from 6.18 on replaces that of a
//! probed marker by a call, which writes below the stack pointer. Assembler text without
//! the option `nostack` may use the stack, so the compiler keeps nothing there.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]
#![no_std]

/// A type of marker arguments: integers, `bool`, `char`, pointers and references (as addresses).
pub trait Arg {
    /// Size in bytes for the note, negative if the number is signed.
    const SIZE: i32;
    /// The value in a register; bits above its size are unspecified.
    fn register(self) -> u64;
}

/// Size of an address in bytes.
const WORD: i32 = (usize::BITS / 8).cast_signed();

macro_rules! integers {
    ($($t:ty: $unsigned:ty, $size:expr),*) => {$(
        impl Arg for $t {
            const SIZE: i32 = $size;
            #[inline(always)]
            #[allow(
                clippy::cast_sign_loss,
                clippy::cast_lossless,
                reason = "one row for each type"
            )]
            fn register(self) -> u64 {
                // Zero-extension costs nothing; the reader of a signed number sign-extends it.
                self as $unsigned as u64
            }
        }
    )*};
}

integers!(
    bool: u8, 1, u8: u8, 1, u16: u16, 2, u32: u32, 4, u64: u64, 8,
    i8: u8, -1, i16: u16, -2, i32: u32, -4, i64: u64, -8,
    usize: usize, WORD, isize: usize, -WORD
);

impl Arg for char {
    const SIZE: i32 = 4;
    #[inline(always)]
    fn register(self) -> u64 {
        u64::from(u32::from(self))
    }
}

impl<T> Arg for *const T {
    const SIZE: i32 = WORD;
    #[inline(always)]
    fn register(self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Arg for *mut T {
    const SIZE: i32 = WORD;
    #[inline(always)]
    fn register(self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Arg for &T {
    const SIZE: i32 = WORD;
    #[inline(always)]
    fn register(self) -> u64 {
        core::ptr::from_ref(self).register()
    }
}

impl<T> Arg for &mut T {
    const SIZE: i32 = WORD;
    #[inline(always)]
    fn register(self) -> u64 {
        core::ptr::from_mut(self).register()
    }
}

/// A marker: `probe!(provider, name, up to 12 arguments)`; see [`Arg`] for their types.
///
/// Arguments are evaluated once, whether the marker is probed or not.
#[macro_export]
macro_rules! probe {
    ($provider:ident, $name:ident $(, $arg:expr)* $(,)?) => {
        $crate::__arguments!($provider $name []
            [(A "{}@{}") (B " {}@{}") (C " {}@{}") (D " {}@{}") (E " {}@{}") (F " {}@{}")
             (G " {}@{}") (H " {}@{}") (I " {}@{}") (J " {}@{}") (K " {}@{}") (L " {}@{}")]
            $($arg),*)
    };
}

/// Whether a marker with this name is currently probed in this process.
#[macro_export]
macro_rules! probe_enabled {
    ($provider:ident, $name:ident) => {{
        let count: u32;
        // SAFETY: it reads two bytes that the text itself locations.
        unsafe {
            $crate::__asm_load!(
                concat!(stringify!($provider), "_", stringify!($name), "_semaphore"),
                $crate::__semaphore!($provider $name),
                count
            );
        }
        count != 0
    }};
}

/// Gives each argument its letter, then places the marker.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    ($p:ident $n:ident [$($done:tt)*] [($l:ident $text:literal) $($ls:tt)*]
     $arg:expr $(, $more:expr)*) => {
        $crate::__arguments!($p $n [$($done)* ($l $text $arg)] [$($ls)*] $($more),*)
    };
    ($p:ident $n:ident [$(($l:ident $text:literal $arg:expr))*] [$($ls:tt)*]) => {{
        #[inline(always)]
        #[allow(non_snake_case, clippy::too_many_arguments, clippy::inline_always)]
        fn site<$($l: $crate::Arg),*>($($l: $l),*) {
            // SAFETY: the text is a no-operation and data in other sections.
            unsafe {
                $crate::__asm!(
                    $crate::__note!($p $n concat!($($text),*)),
                    $(const <$l as $crate::Arg>::SIZE, in(reg) $crate::Arg::register($l),)*
                );
            }
        }
        site($($arg),*)
    }};
    ($p:ident $n:ident [$($done:tt)*] [] $($more:expr),+) => {
        compile_error!("a marker has at most 12 arguments")
    };
}

/// The assembler text of a marker.
#[doc(hidden)]
#[macro_export]
macro_rules! __note {
    ($p:ident $n:ident $args:expr) => {
        concat!(
            "990: ", $crate::__nop!(), "\n",
            ".pushsection .note.stapsdt,\"?\",\"note\"\n",
            ".balign 4\n",
            ".4byte 992f-991f, 994f-993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b, _.stapsdt.base, ",
            stringify!($p), "_", stringify!($n), "_semaphore\n",
            ".asciz \"", stringify!($p), "\"\n",
            ".asciz \"", stringify!($n), "\"\n",
            ".asciz \"", $args, "\"\n",
            "994: .balign 4\n",
            ".popsection\n",
            ".ifndef _.stapsdt.base\n",
            ".pushsection .stapsdt.base,\"aGR\",\"progbits\",.stapsdt.base,comdat\n",
            ".weak _.stapsdt.base\n",
            ".hidden _.stapsdt.base\n",
            "_.stapsdt.base: .space 1\n",
            ".size _.stapsdt.base, 1\n",
            ".popsection\n",
            ".endif\n",
            $crate::__semaphore!($p $n)
        )
    };
}

/// The assembler text of a semaphore; all locations that name it share it.
#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore {
    ($p:ident $n:ident) => {
        $crate::__semaphore!(concat!(stringify!($p), "_", stringify!($n), "_semaphore"))
    };
    ($symbol:expr) => {
        concat!(
            ".ifndef ",
            $symbol,
            "\n",
            ".pushsection .probes,\"awGR\",\"progbits\",",
            $symbol,
            ",comdat\n",
            ".balign 2\n",
            ".weak ",
            $symbol,
            "\n",
            ".hidden ",
            $symbol,
            "\n",
            ".type ",
            $symbol,
            ", STT_OBJECT\n",
            ".size ",
            $symbol,
            ", 2\n",
            $symbol,
            ": .2byte 0\n",
            ".popsection\n",
            ".endif\n"
        )
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    //! The parts that depend on the processor.

    /// The no-operation of a marker.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __nop {
        () => {
            ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
        };
    }

    /// Assembler text whose operands are printed in the form of notes.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __asm {
        ($($operand:tt)*) => {
            ::core::arch::asm!($($operand)* options(att_syntax, preserves_flags))
        };
    }

    /// Loads two bytes.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __asm_load {
        ($symbol:expr, $define:expr, $to:ident) => {
            ::core::arch::asm!(
                concat!($define, "movzwl ", $symbol, "(%rip), {0:e}"),
                out(reg) $to,
                options(att_syntax, nostack, readonly, preserves_flags)
            )
        };
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    //! The parts that depend on the processor.

    /// The no-operation of a marker.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __nop {
        () => {
            "nop"
        };
    }

    /// Assembler text whose operands are printed in the form of notes.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __asm {
        ($($operand:tt)*) => {
            ::core::arch::asm!($($operand)* options(preserves_flags))
        };
    }

    /// Loads two bytes.
    #[doc(hidden)]
    #[macro_export]
    macro_rules! __asm_load {
        ($symbol:expr, $define:expr, $to:ident) => {
            ::core::arch::asm!(
                concat!(
                    $define,
                    "adrp {0:x}, ", $symbol, "\n",
                    "ldrh {0:w}, [{0:x}, :lo12:", $symbol, "]"
                ),
                out(reg) $to,
                options(nostack, readonly, preserves_flags)
            )
        };
    }
}
