//! Arguments of system calls as text.
//!
//! In: where the host has what the functions need ([`ArgumentLayout`]), and its lists of names. Out: a module;
//! its `put_arg` is what the host calls. Not done here: the descriptors of system calls, which the
//! host's table has.
//!
//! A *descriptor* says how a word is written ([`kind`], and what the kind needs); the functions append
//! to the text that is being built in the per-CPU area. Each function finds the block itself, so
//! that a host can make them global: the kernel's verifier then follows each one once, and not again
//! for each argument. What cannot be read is written as its address, or as `{...}`. A text that does
//! not fit is cut by the host's `append_text`.
//!
//! | module | its functions |
//! |---|---|
//! | `values` | numbers, names and the texts around them |
//! | `memory` | texts, vectors, times and bytes in the program's memory |
//! | `sockets` | addresses of sockets |
//! | `dates` | date and time |
//! | `structures` | structures in the program's memory, by a list of their fields |
//! | `variants` | which descriptors a call has that depend on the value of an argument |
//!
//! Functions of the host:
//!
//! | function | what it does |
//! |---|---|
//! | `append_text(block, text, size, width)` | appends the text in a slot of `size` bytes |
//! | `append_number_8`, `_10`, `_16` `(precision, value, flags, width)` | append a number |
//! | `user_text(size, address, raw)` | reads memory of the program that is not mapped yet into the staging area; 0, or why not |
//! | `user_defer(address, size, how)` | leaves the read to the controller; 0, or why not |
//! | `quote_N(from, to, count, limit, quoted)` | quotes bytes (`Layout::quote`) |

use spile_cast::Cast;

mod dates;
mod memory;
mod sockets;
mod structures;
mod values;
mod variants;

use super::area::{AreaCode, AreaLayout, function};
use super::quote;
use crate::builder::{Comparison, Scalar};
use crate::func::{LirFunc, Module};
use crate::helpers::Helper;
use crate::op::{AluOp, ExtOp, Size, Width};

/// Kinds of descriptors, in the low byte.
pub mod kind {
    /// A decimal number with sign.
    pub const SIGNED: i32 = 1;
    /// A decimal number without sign.
    pub const UNSIGNED: i32 = 2;
    /// A hexadecimal number.
    pub const HEX: i32 = 3;
    /// An octal number.
    pub const OCTAL: i32 = 4;
    /// The address of a text of the program.
    pub const USER_STR: i32 = 5;
    /// A file descriptor, or `AT_FDCWD`.
    pub const DIRFD: i32 = 6;
    /// Flags: names for bits, in a list.
    pub const FLAGS: i32 = 7;
    /// A name for the value, in a list; a decimal number if there is none.
    pub const ENUM: i32 = 8;
    /// The address of a vector of texts.
    pub const ARGV: i32 = 9;
    /// The mode of `open`, which the flags in another argument may say is absent.
    pub const OPEN_MODE: i32 = 10;
    /// The second word of a pair, which is written with the first.
    pub const SHOWN: i32 = 11;
    /// The lower half of a number of 64 bits; another argument is the upper one.
    pub const PAIR: i32 = 12;
    /// As `ENUM`, but a hexadecimal number if there is no name.
    pub const CHOICE: i32 = 13;
    /// The address of a time.
    pub const TIME: i32 = 14;
    /// The address of bytes; another argument is their number.
    pub const BUFFER: i32 = 15;
    /// The address of a socket's address; another argument is its length.
    pub const SOCKADDR: i32 = 16;
    /// As `ARGV`, with pointers of 32 bits.
    pub const ARGV_4: i32 = 17;
    /// The address of a structure; a list has its fields ([`super::structure`]).
    pub const STRUCT: i32 = 18;
    /// A fraction of a second in microseconds, with leading zeros.
    pub const MICROSECONDS: i32 = 19;
    /// A fraction of a second in nanoseconds, with leading zeros.
    pub const NANOSECONDS: i32 = 20;
    /// The address of bytes with hexadecimal escapes; another argument is their number.
    pub const BYTES: i32 = 21;
    /// A number in brackets, in hexadecimal: where a result goes.
    pub const RESULT: i32 = 22;
    /// As `STRUCT`, but the word has the bits of the fields itself.
    pub const PACKED: i32 = 23;
    /// A number of seconds since 1970, as date and time.
    pub const DATE: i32 = 24;
    /// A number of blocks of 4096 bytes, which is written in bytes.
    pub const BLOCKS: i32 = 25;
    /// As `FLAGS` and `CHOICE`, with the sign extended to 64 bits.
    pub const WIDE: i32 = 26;
}

/// Bits of a descriptor from bit 16 on, for [`kind::TIME`].
pub mod time {
    /// Fields of 32 bits.
    pub const NARROW: u8 = 1;
    /// Microseconds, not nanoseconds.
    pub const MICRO: u8 = 2;
    /// Two times, interval and value, in microseconds.
    pub const TIMER: u8 = 4;
}

/// The descriptor of a structure, and the list of its fields.
///
/// An entry of the list has the size of a name's. Its first word is the descriptor of a field, its second one
/// the field's offset and what is below a bit field ([`SHIFT`]), and the text of its name precedes the field. The list ends with an entry whose
/// descriptor is 0; its text comes last.
pub mod structure {
    /// Bits of the descriptor from here on: bytes of the structure, at most [`MOST`].
    pub const SIZE: u32 = 40;
    /// Bit of the descriptor: the address 0 is written as `NULL`, not as `0x0`.
    pub const NULL: u32 = 56;
    /// Mask of the list's offset, which begins at bit 16 of the descriptor.
    pub const LIST: i32 = 0xff_ffff;
    /// The kind of an entry that stands for a test: unless the field equals the first eight bytes of the entry's
    /// text, the list goes on at the entry that is [`SKIP`] bytes further.
    pub const TEST: i32 = 255;
    /// Bits of the second word of such an entry from here on: how many bytes to skip.
    pub const SKIP: u32 = 16;
    /// Bits of the second word from here on: how many bits are below the field in its first eight bytes.
    pub const SHIFT: u32 = 8;
    /// The largest size of a structure.
    pub const MOST: u32 = 127;
    /// The largest number of entries in a list.
    pub const MAX_FIELDS: u32 = 32;
}

/// The list of the values of an argument for which a call has other descriptors.
///
/// An entry of the list has the size of a name's. Its first word is a value, its second one the row of
/// descriptors.
pub mod variant {
    /// Mask of the list's offset.
    pub const LIST: i32 = 0xff_ffff;
    /// Bits of the description from here on: the number of entries.
    pub const COUNT: u32 = 24;
    /// Bits of the description from here on: the index of the argument.
    pub const WORD: u32 = 32;
    /// The largest number of values.
    pub const MAX_VALUES: u32 = 128;
}

/// Decimal instead of octal in the last entry of a list of flags.
pub const DECIMAL: u64 = 1 << 63;

/// Bit of a descriptor: a comma precedes the argument.
pub const FOLLOWS: u64 = 1 << 15;
/// Bit of the descriptor of a [`kind::STRUCT`]: braces surround the text.
pub const BRACES: u64 = 1 << 14;
/// Bits of a descriptor of [`kind::PAIR`] from here on: the kind of the whole number.
pub const PAIR_BASE: u32 = 24;
/// Arguments of a system call.
pub const ARGS: usize = 6;
/// Name of the constant with the lists of names, which the caller gives.
pub const NAMES: &str = "names";
/// Bytes of an entry in a list of names: mask, bits, name. A list ends with a mask of 0; the bits of
/// this entry are those that flags without a name are written with in octal, such as permissions.
pub const ENTRY: u32 = 16 + NAME;
/// Bytes of a name.
pub const NAME: u32 = 56;
/// The largest number of names in a list.
pub const MAX_NAMES: u32 = 80;
/// The largest number of texts of a vector that are written.
pub const MAX_ARGV: u32 = 16;
/// Length of a buffer's text with its quotes: `syscall_string_trunc` of SystemTap.
pub const BUFFER: i32 = 50;

/// The flag of `open` with which SystemTap shows the mode. `O_TMPFILE` uses it as well.
const O_CREAT: i32 = 0x40;
const AT_FDCWD: i32 = -100;

/// The texts around the values; a mask bounds the index.
const LITERALS: [&str; 30] = [
    ", ",
    "|",
    "\"",
    "[",
    "]",
    ", ...",
    "AT_FDCWD",
    "NULL",
    ".",
    ":",
    "{",
    "}",
    "{AF_INET, ",
    "{AF_INET6, ",
    "{AF_UNIX, ",
    "{...}",
    "\\000",
    ",",
    "{unknown sockaddr with sa=",
    "{unknown sockaddr with salen=",
    ", salen=",
    "{AF_NETLINK, pid=",
    ", groups=",
    "{AF_PACKET, proto=",
    ", ind=",
    ", hatype=",
    ", pkttype=",
    ", halen=",
    ", addr=",
    " ",
];
/// Slots for literals; those behind the last one are empty.
const LOCATIONS: i32 = 32;
/// Bytes of a literal with its NUL, padded.
const LITERAL: i32 = 32;

/// Where the host has what the functions need. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentLayout {
    /// The word with the length of the text so far.
    pub length: i32,
    /// Bytes of the longest text with its NUL.
    pub most: i32,
    /// The six words of the arguments.
    pub arguments: i32,
    /// The staging area, where `user_text` writes too: `most` bytes, and a word behind.
    pub staging: i32,
    /// Memory for texts with escapes: `most` bytes, and 16 more.
    pub quoted: i32,
    /// The name of `quote_N`.
    pub quote: String,
    /// Flags of `append_number_N`: with a sign.
    pub signed: i32,
    /// Flags of `append_number_N`: with the mark of its base.
    pub mark: i32,
    /// How reads of texts are deferred, if the host can do this.
    pub defer: Option<DeferredReads>,
}

/// Deferred reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredReads {
    /// The word that says whether this text's reads may be deferred.
    pub allowed: i32,
    /// The result of `user_text` for memory that the program has and the kernel must fetch first.
    pub absent: i32,
    /// The argument of `user_defer` for a text in quotes.
    pub quoted: i32,
}

/// The functions, with the lists of names and the table of escapes ([`super::quote`]).
pub fn module(layout: &ArgumentLayout, names: Vec<u8>, escapes: &[u8]) -> Module {
    let last = (names.len().fit::<i32>() - ENTRY.cast_signed()).max(0);
    let padded = |text: &&str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(LITERAL as usize, 0);
        bytes
    };
    let mut literals: Vec<u8> = LITERALS.iter().flat_map(padded).collect();
    literals.resize((LOCATIONS * LITERAL) as usize, 0);
    let funcs = vec![
        values::put_literal(layout),
        values::put_number(layout),
        memory::put_escaped(layout),
        memory::put_user(layout),
        values::put_name(layout, last),
        values::put_names(layout, last),
        memory::put_vector(layout),
        memory::put_moment(layout),
        memory::put_time(layout),
        memory::put_buffer(layout),
        sockets::put_inet6(layout),
        sockets::put_unix(layout),
        sockets::put_link(layout),
        sockets::put_sockaddr(layout),
        memory::put_bytes(layout),
        dates::put_date(layout),
        structures::put_field(layout),
        structures::put_struct(layout, last),
        variants::variant_row(layout, last),
        put_arg(layout),
    ];
    Module::from(funcs)
        .with_externs(&[
            ("append_text", 4),
            ("append_number_8", 4),
            ("append_number_10", 4),
            ("append_number_16", 4),
            ("user_text", 3),
            ("user_defer", 3),
            (&layout.quote, 5),
        ])
        .with_data("literals", literals)
        .with_data(NAMES, names)
        .with_data(dates::TABLE, dates::table())
        .with_data(quote::ESCAPES, escapes)
}

impl AreaLayout for ArgumentLayout {}

/// What the functions are written with.
type ArgumentAppender<'a, 'b> = AreaCode<'a, 'b, ArgumentLayout>;

impl<'b> ArgumentAppender<'_, 'b> {
    /// Appends a literal.
    fn literal(&self, text: &str) {
        let index = LITERALS.iter().position(|l| *l == text);
        debug_assert!(index.is_some(), "no literal {text}");
        let index = self
            .f
            .number(index.map_or(LOCATIONS - 1, |n| n.fit::<i32>()));
        self.f.call("put_literal", &[index]);
    }

    /// Appends a number in the format of a kind.
    fn put(&self, kind: i32, value: Scalar<'b>) {
        self.f.call("put_number", &[self.f.number(kind), value]);
    }

    /// Appends a number with leading zeros.
    fn padded(&self, base: i32, value: Scalar<'b>, digits: i32) {
        let flags = if base == 10 { self.layout.signed } else { 0 };
        let [digits, flags, width] = [digits, flags, 0].map(|n| self.f.number(n));
        let args = [digits, value, flags, width];
        self.f.call(&format!("append_number_{base}"), &args);
    }

    /// Appends the text in a slot.
    fn text(&self, from: Scalar<'b>, size: i32) {
        let [size, width] = [size, 0].map(|n| self.f.number(n));
        self.f.call("append_text", &[self.block, from, size, width]);
    }

    /// The value, or `most` if it is larger, with a bound.
    fn at_most(&self, value: Scalar<'b>, most: i32) -> Scalar<'b> {
        let bound = (most.cast_unsigned() + 1).next_power_of_two() - 1;
        self.f.at_most(value, most).bound(bound)
    }

    /// The address of a byte of the staging area.
    fn staged(&self, byte: i32) -> Scalar<'b> {
        self.block + (self.layout.staging + byte)
    }

    /// Reads bytes of the program into the staging area. Runs `bad`, and returns, if it cannot.
    fn read(&self, size: Scalar<'b>, address: Scalar<'b>, bad: impl FnOnce()) {
        let f = self.f;
        let status = f.helper(Helper::ReadUser, &[self.staged(0), size, address]);
        f.if_(status.ne(0), || {
            let status = f.call("user_text", &[size, address, self.f.number(1)]);
            f.if_(status.ne(0), || {
                bad();
                f.ret(0);
            });
        });
    }

    /// Appends a literal, and returns, if a comparison holds.
    fn literal_if(&self, test: Comparison<'b>, text: &str) {
        self.f.if_(test, || {
            self.literal(text);
            self.f.ret(0);
        });
    }

    /// The staged number of 16 bits in network byte order.
    fn network_u16(&self, byte: i32) -> Scalar<'b> {
        self.staged(byte).load_u16(0).ext(ExtOp::Swap, Size::U16)
    }

    /// The value of a word in the size that its descriptor says, with sign extension for some kinds. There
    /// is no branch, which the kernel's verifier would follow in front of all that comes below.
    fn sized(&self, descriptor: Scalar<'b>, kind: Scalar<'b>, word: Scalar<'b>) -> Scalar<'b> {
        let unused = (descriptor >> 8) & 63;
        let high = word << unused;
        let kinds = [
            kind::SIGNED,
            kind::DIRFD,
            kind::ENUM,
            kind::DATE,
            kind::WIDE,
        ];
        let kinds = kinds.iter().fold(0u64, |mask, kind| mask | 1 << kind);
        let signed_mask = self.f.number(0) - ((self.f.constant(kinds) >> (kind & 63)) & 1);
        let sign = high.alu(Width::W64, AluOp::Arsh, unused) & signed_mask;
        (high >> unused) | sign
    }

    /// Appends a value that is no address, and returns.
    fn plain(&self, descriptor: Scalar<'b>, kind: Scalar<'b>, value: Scalar<'b>) {
        let f = self.f;
        f.if_(self.named(kind).ne(0), || {
            f.call("put_names", &[descriptor, value]);
            f.ret(0);
        });
        self.number(kind, value);
    }

    /// Appends a value that has no names, and returns.
    fn number(&self, kind: Scalar<'b>, value: Scalar<'b>) {
        let f = self.f;
        for (code, digits) in [(kind::MICROSECONDS, 6), (kind::NANOSECONDS, 9)] {
            f.if_(kind.eq(code), || {
                self.padded(10, value, digits);
                f.ret(0);
            });
        }
        f.if_(kind.eq(kind::RESULT), || {
            self.literal("[");
            self.put(kind::HEX, value);
            self.literal("]");
            f.ret(0);
        });
        f.call("put_number", &[kind, value]);
    }

    /// 1 if values of a kind have names, else 0.
    fn named(&self, kind: Scalar<'b>) -> Scalar<'b> {
        let kinds = [kind::FLAGS, kind::ENUM, kind::CHOICE, kind::WIDE];
        let kinds = kinds.iter().fold(0u64, |mask, kind| mask | 1 << kind);
        (self.f.constant(kinds) >> (kind & 63)) & 1
    }

    /// The argument whose index is in a descriptor.
    fn referenced(&self, descriptor: Scalar<'b>) -> Scalar<'b> {
        let index = (descriptor >> 16) & 7;
        self.f.ret_if(index.ge(ARGS.fit::<i32>()), 0);
        (self.block + (index << 3) + self.layout.arguments).load_u64(0)
    }
}

/// The second parameter of a kind's function.
enum SecondParam {
    None,
    Number(i32),
    /// The descriptor comes first.
    Descriptor,
    /// The argument that the descriptor refers to.
    Referenced,
}

/// Kinds with a function of their own.
const FUNCTIONS: [(i32, &str, SecondParam); 9] = [
    (kind::USER_STR, "put_user", SecondParam::None),
    (kind::ARGV, "put_vector", SecondParam::Number(0)),
    (kind::ARGV_4, "put_vector", SecondParam::Number(1)),
    (kind::TIME, "put_time", SecondParam::Descriptor),
    (kind::BUFFER, "put_buffer", SecondParam::Referenced),
    (kind::SOCKADDR, "put_sockaddr", SecondParam::Referenced),
    (kind::BYTES, "put_bytes", SecondParam::Referenced),
    (kind::STRUCT, "put_struct", SecondParam::Descriptor),
    (kind::PACKED, "put_struct", SecondParam::Descriptor),
];

fn put_arg(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends an argument, with a comma in front of it unless it is the first one.
descriptor: how. value: the word.
Cost: that of the kind's function.";
    let params = ["descriptor", "value"];
    let name = ("put_arg", contract);
    function(layout, name, params, |t, [descriptor, word]| {
        let f = t.f;
        let kind = f.var("kind", descriptor & 255);
        f.ret_if(kind.eq(kind::SHOWN), 0);
        // Without O_CREAT callers pass no mode, and its register holds anything.
        f.if_(kind.eq(kind::OPEN_MODE), || {
            f.ret_if((t.referenced(descriptor) & O_CREAT).eq(0), 0);
            kind.set(kind::OCTAL);
        });
        f.if_(descriptor.has(FOLLOWS.fit::<i32>()), || t.literal(", "));
        let brace = |text| f.if_(descriptor.has(BRACES.fit::<i32>()), || t.literal(text));
        for (code, function, second) in FUNCTIONS {
            f.if_(kind.eq(code), || {
                if code == kind::STRUCT {
                    brace("{");
                }
                match second {
                    SecondParam::None => f.call(function, &[word]),
                    SecondParam::Number(n) => f.call(function, &[word, t.f.number(n)]),
                    SecondParam::Descriptor => f.call(function, &[descriptor, word]),
                    SecondParam::Referenced => {
                        let other = t.referenced(descriptor);
                        f.call(function, &[word, other])
                    }
                };
                if code == kind::STRUCT {
                    brace("}");
                }
                f.ret(0);
            });
        }
        let value = f.var("value", t.sized(descriptor, kind.get(), word));
        f.if_(kind.eq(kind::PAIR), || {
            value.set(value | (t.referenced(descriptor) << 32));
            kind.set((descriptor >> PAIR_BASE.cast_signed()) & 255);
        });
        f.if_(kind.eq(kind::BLOCKS), || {
            value.set(value << 12);
            kind.set(kind::SIGNED);
        });
        f.if_(kind.eq(kind::DIRFD), || {
            t.literal_if(value.eq(AT_FDCWD), "AT_FDCWD");
        });
        t.plain(descriptor, kind.get(), value.get());
    })
}
