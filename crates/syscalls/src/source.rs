//! Writes values of the tables as Rust, for the build script.

use std::fmt::Write as _;

use super::model::{
    ArgKind, ArgVariants, Case, FieldKind, Flag, FlagTable, NumberBase, ResultForm, Structure,
    StructureField, StructureText, Syscall, SyscallArg, SyscallVariable,
};
use super::parse::{Named, Tables};

/// A value that can be written as an expression.
trait Source {
    /// Appends the expression; a reference to a structure or to flags names its location in their table.
    fn write(&self, out: &mut String, named: Named);
}

/// What [`write`](std::fmt::Write) to a `String` returns is never an error.
macro_rules! append {
    ($out:expr, $($arg:tt)*) => { let _ = write!($out, $($arg)*); };
}

macro_rules! debug_is_source {
    ($($ty:ty),*) => { $(
        impl Source for $ty {
            fn write(&self, out: &mut String, _: Named) {
                append!(out, "{self:?}");
            }
        }
    )* };
}
debug_is_source!(u8, u32, u64, i64, bool, &str);

macro_rules! source {
    ($(struct $struct:ident { $($field:ident),* })* $(enum $enum:ident { $($variant:ident $(($value:ident))?),* })*) => {
        $(impl Source for $struct {
            fn write(&self, out: &mut String, named: Named) {
                let $struct { $($field),* } = self;
                out.push_str(concat!(stringify!($struct), " { "));
                $(
                    out.push_str(concat!(stringify!($field), ": "));
                    $field.write(out, named);
                    out.push_str(", ");
                )*
                out.push('}');
            }
        })*
        $(impl Source for $enum {
            fn write(&self, out: &mut String, named: Named) {
                let _ = named;
                match self {
                    $($enum::$variant $(($value))? => {
                        out.push_str(concat!(stringify!($enum), "::", stringify!($variant)));
                        $(
                            out.push('(');
                            $value.write(out, named);
                            out.push(')');
                        )?
                    })*
                }
            }
        })*
    };
}

source! {
    struct SyscallArg { name, kernel_name, word, kind, bits, signed }
    struct Case { values, args, variants }
    struct StructureField { offset, kind, bits, shift }
    struct Flag { name, value, mask }
    struct FlagTable { name, decimal, wide, octal, number, flags }
    struct Structure { name, null, size, texts }
    struct StructureText { when, fields, end }
    struct Syscall { nr, name, probe, point, bare, entry, ret, args, variants, variables }
    struct SyscallVariable { name, text, at_return, value }
    struct ArgVariants { word, mask, cases, others }
    enum ArgKind {
        Int(n), Uint(n), Hex(n), Mode, Ptr, Str, Argv, Envp, Signal, DirFd, Flags(t), Choice(t), Buf(n),
        Sockaddr(n), Timespec(n), Timeval(n), Itimerspec(n), Itimerval(n), Struct(s), Braced(s), Packed(s),
        Bytes(n), Result(n), Pair(b), Blocks, Unseen
    }
    enum NumberBase { Signed, Unsigned, Hex }
    enum FieldKind { Value(k), Micro, Nano, Date }
    enum ResultForm { Int, Hex, Octal, Never }
}

macro_rules! reference_is_source {
    ($($ty:ident of $table:ident is $name:literal),*) => { $(
        impl Source for &$ty {
            fn write(&self, out: &mut String, named: Named) {
                let index = named.$table.iter().position(|entry| std::ptr::eq(entry, *self));
                append!(out, concat!("&", $name, "[{}]"), index.expect("one of the table"));
            }
        }
    )* };
}
reference_is_source!(Structure of structures is "STRUCTURES", FlagTable of flags is "FLAGS");

impl Source for &ArgVariants {
    fn write(&self, out: &mut String, named: Named) {
        out.push('&');
        (**self).write(out, named);
    }
}

impl<T: Source> Source for Option<T> {
    fn write(&self, out: &mut String, named: Named) {
        match self {
            Some(value) => {
                out.push_str("Some(");
                value.write(out, named);
                out.push(')');
            }
            None => out.push_str("None"),
        }
    }
}

impl<T: Source> Source for &[T] {
    fn write(&self, out: &mut String, named: Named) {
        out.push_str("&[");
        for value in *self {
            value.write(out, named);
            out.push(',');
        }
        out.push(']');
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn write(&self, out: &mut String, named: Named) {
        out.push('(');
        self.0.write(out, named);
        out.push(',');
        self.1.write(out, named);
        out.push(')');
    }
}

/// The tables as statics.
pub(crate) fn source(tables: &Tables) -> String {
    let mut out = String::new();
    let mut table = |name: &str, ty: &str, values: &dyn Source| {
        append!(out, "pub(super) static {name}: &[{ty}] = ");
        values.write(&mut out, tables.named);
        out.push_str(";\n");
    };
    table("FLAGS", "FlagTable", &tables.named.flags);
    table("STRUCTURES", "Structure", &tables.named.structures);
    let calls = tables.calls.iter();
    let calls: Vec<_> = calls.map(|(name, calls)| (*name, &calls[..])).collect();
    table("CALLS", "(&str, &[Syscall])", &&calls[..]);
    out
}
