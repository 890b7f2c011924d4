//! Writes values of the tables as Rust, for the build script.

use std::fmt::Write as _;

use super::model::{
    Abi, Arg, ArgKind, Base, Case, Field, FieldKind, Flag, FlagTable, ResultForm, Structure,
    StructureText, Syscall, Variants,
};
use super::parse::Tables;

/// A value that can be written as an expression.
trait Source {
    /// Appends the expression; a reference to a structure names its place in `all`.
    fn write(&self, out: &mut String, all: &[Structure]);
}

/// What [`write`](std::fmt::Write) to a `String` returns is never an error.
macro_rules! append {
    ($out:expr, $($arg:tt)*) => { let _ = write!($out, $($arg)*); };
}

macro_rules! debug_is_source {
    ($($ty:ty),*) => { $(
        impl Source for $ty {
            fn write(&self, out: &mut String, _: &[Structure]) {
                append!(out, "{self:?}");
            }
        }
    )* };
}
debug_is_source!(u8, u32, u64, i64, bool, &str);

macro_rules! source {
    ($(struct $struct:ident { $($field:ident),* })* $(enum $enum:ident { $($variant:ident $(($of:ident))?),* })*) => {
        $(impl Source for $struct {
            fn write(&self, out: &mut String, all: &[Structure]) {
                let $struct { $($field),* } = self;
                out.push_str(concat!(stringify!($struct), " { "));
                $(
                    out.push_str(concat!(stringify!($field), ": "));
                    $field.write(out, all);
                    out.push_str(", ");
                )*
                out.push('}');
            }
        })*
        $(impl Source for $enum {
            fn write(&self, out: &mut String, all: &[Structure]) {
                let _ = all;
                match self {
                    $($enum::$variant $(($of))? => {
                        out.push_str(concat!(stringify!($enum), "::", stringify!($variant)));
                        $(
                            out.push('(');
                            $of.write(out, all);
                            out.push(')');
                        )?
                    })*
                }
            }
        })*
    };
}

source! {
    struct Arg { name, kernel_name, word, kind, bits, signed }
    struct Case { values, args, variants }
    struct Field { offset, kind, bits, shift }
    struct Flag { name, value, mask }
    struct FlagTable { name, decimal, wide, octal, number, flags }
    struct Structure { name, null, size, texts }
    struct StructureText { when, fields, end }
    struct Syscall { abi, nr, name, probe, point, bare, entry, ret, args }
    struct Variants { word, mask, cases, others }
    enum Abi { X86_64, I386 }
    enum ArgKind {
        Int(n), Uint(n), Hex(n), Mode, Ptr, Str, Argv, Envp, Signal, DirFd, Flags(t), Choice(t), Buf(n),
        Sockaddr(n), Timespec(n), Timeval(n), Itimerspec(n), Itimerval(n), Struct(s), Braced(s), Packed(s),
        Bytes(n), Result(n), Pair(b), Blocks, Unseen
    }
    enum Base { Signed, Unsigned, Hex }
    enum FieldKind { Value(k), Micro, Nano, Date }
    enum ResultForm { Int, Hex, Octal, Never }
}

impl Source for &Structure {
    fn write(&self, out: &mut String, all: &[Structure]) {
        let at = all.iter().position(|s| std::ptr::eq(s, *self));
        append!(out, "&STRUCTURES[{}]", at.expect("one of the table"));
    }
}

impl<T: Source> Source for Option<T> {
    fn write(&self, out: &mut String, all: &[Structure]) {
        match self {
            Some(value) => {
                out.push_str("Some(");
                value.write(out, all);
                out.push(')');
            }
            None => out.push_str("None"),
        }
    }
}

impl<T: Source> Source for &[T] {
    fn write(&self, out: &mut String, all: &[Structure]) {
        out.push_str("&[");
        for value in *self {
            value.write(out, all);
            out.push(',');
        }
        out.push(']');
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn write(&self, out: &mut String, all: &[Structure]) {
        out.push('(');
        self.0.write(out, all);
        out.push(',');
        self.1.write(out, all);
        out.push(')');
    }
}

/// The tables as statics.
pub(crate) fn source(tables: &Tables) -> String {
    let mut out = String::new();
    let mut table = |name: &str, ty: &str, values: &dyn Source| {
        append!(out, "pub(super) static {name}: &[{ty}] = ");
        values.write(&mut out, tables.structures);
        out.push_str(";\n");
    };
    table("FLAGS", "FlagTable", &tables.flags);
    table("STRUCTURES", "Structure", &tables.structures);
    for (abi, name) in ["X86_64", "I386"].into_iter().enumerate() {
        table(&format!("{name}_CALLS"), "Syscall", &&*tables.calls[abi]);
        table(
            &format!("{name}_VARIANTS"),
            "(u32, Variants)",
            &&*tables.variants[abi],
        );
    }
    out
}
