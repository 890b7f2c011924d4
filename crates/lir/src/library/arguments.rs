//! Arguments of system calls as text.
//!
//! A *descriptor* says how a word is written ([`kind`], and what the kind needs); the functions append
//! to the text that is being built in the processor's block. Each function finds the block itself, so
//! that a host can make them global: the kernel's verifier then follows each one once, and not again
//! for each argument. What cannot be read is written as its address, or as `{...}`. A text that does
//! not fit is cut by the host's `append_text`.
//!
//! Functions of the host:
//!
//! | function | what it does |
//! |---|---|
//! | `append_text(block, text, size, width)` | appends the text in a slot of `size` bytes |
//! | `append_number_8`, `_10`, `_16` `(precision, value, flags, width)` | append a number |
//! | `user_text(size, address, raw)` | reads memory of the program that is not mapped yet into the staging area; 0, or why not |
//! | `user_defer(address, size, how)` | leaves the read to the controller; 0, or why not |
//! | `escape_N(from, to)` | writes a text with escapes (`Layout::escape`) |
//! | `quote_N(from, to, count, limit, quoted)` | quotes bytes (`Layout::quote`) |

use crate::builder::{Builder, Test, Val, build};
use crate::func::{Data, Extern, Func, Module, Place};
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

/// Bit of a descriptor: a comma precedes the argument.
pub const FOLLOWS: u64 = 1 << 15;
/// Arguments of a system call.
pub const ARGS: usize = 6;
/// Bytes of an entry in a list of names: mask, bits, name. A list ends with a mask of 0.
pub const ENTRY: u32 = 16 + NAME;
/// Bytes of a name.
pub const NAME: u32 = 32;
/// The largest number of names in a list.
pub const MAX_NAMES: u32 = 64;
/// The largest number of texts of a vector that are written.
pub const MAX_ARGV: u32 = 16;
/// Length of a buffer's text with its quotes: `syscall_string_trunc` of SystemTap.
pub const BUFFER: i32 = 50;

/// Flags of `open` that make it use its mode: `O_CREAT`, and the bit that only `O_TMPFILE` has.
const CREATES: i32 = 0x40_0040;
const AT_FDCWD: i32 = -100;
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
/// Sizes of `struct sockaddr_in` and `sockaddr_in6`, and of `sun_path`.
const SOCKADDR_IN: i32 = 16;
const SOCKADDR_IN6: i32 = 28;
const UNIX_PATH: i32 = 108;

/// The texts around the values; a mask bounds the index.
const LITERALS: [&str; 32] = [
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
    "}",
    "{AF_INET, ",
    "{AF_INET6, ",
    "{AF_UNIX, ",
    "{...}",
    "\\000",
    ",",
    "{unknown address family (",
    ")}",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];
/// Bytes of a literal with its NUL, padded.
const LITERAL: i32 = 32;

/// Where the host has what the functions need. Offsets are those of bytes in the processor's block.
#[derive(Debug, Clone)]
pub struct Layout {
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
    /// The name of `escape_N`.
    pub escape: String,
    /// The name of `quote_N`.
    pub quote: String,
    /// Flags of `append_number_N`: with a sign.
    pub signed: i32,
    /// Flags of `append_number_N`: with the mark of its base.
    pub mark: i32,
    /// How reads of texts are deferred, if the host can do this.
    pub defer: Option<Defer>,
}

/// Deferred reads.
#[derive(Debug, Clone)]
pub struct Defer {
    /// The word that says whether this text's reads may be deferred.
    pub allowed: i32,
    /// The result of `user_text` for memory that the program has and the kernel must fetch first.
    pub absent: i32,
    /// The argument of `user_defer` for a text in quotes.
    pub quoted: i32,
}

/// The functions, with the lists of names.
pub fn module(layout: &Layout, names: Vec<u8>) -> Module {
    let last = (names.len() as i32 - ENTRY as i32).max(0);
    let padded = |text: &&str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(LITERAL as usize, 0);
        bytes
    };
    let literals = LITERALS.iter().flat_map(padded).collect();
    let data = |name: &str, bytes| Data {
        name: name.into(),
        bytes,
    };
    let externs = [
        ("append_text", 4),
        ("append_number_8", 4),
        ("append_number_10", 4),
        ("append_number_16", 4),
        ("user_text", 3),
        ("user_defer", 3),
        (&layout.escape, 2),
        (&layout.quote, 5),
    ];
    Module {
        externs: externs
            .iter()
            .map(|(name, params)| Extern {
                name: (*name).into(),
                params: *params,
            })
            .collect(),
        data: vec![data("literals", literals), data("names", names)],
        funcs: vec![
            put_literal(layout),
            put_number(layout),
            put_escaped(layout),
            put_user(layout),
            put_name(layout, last),
            put_names(layout, last),
            put_vector(layout),
            put_moment(layout),
            put_time(layout),
            put_buffer(layout),
            put_inet6(layout),
            put_unix(layout),
            put_sockaddr(layout),
            put_arg(layout),
        ],
    }
}

/// What the functions are written with.
#[derive(Clone, Copy)]
struct Texts<'a, 'b> {
    f: &'b Builder,
    at: &'a Layout,
    block: Val<'b>,
}

/// Builds a function; `code` gets its parameters.
fn texts<const N: usize>(
    layout: &Layout,
    (name, contract): (&str, &str),
    params: [&str; N],
    code: impl for<'b> FnOnce(Texts<'_, 'b>, [Val<'b>; N]),
) -> Func {
    build(name, contract, &params, |f, p| {
        if let Ok(p) = <[Val<'_>; N]>::try_from(p) {
            let block = f.addr(Place::Cpu(0));
            let at = layout;
            code(Texts { f, at, block }, p);
        }
    })
}

impl<'b> Texts<'_, 'b> {
    /// Appends a literal.
    fn literal(&self, text: &str) {
        let which = LITERALS.iter().position(|l| *l == text);
        debug_assert!(which.is_some(), "no literal {text}");
        let which = self.number(which.unwrap_or(LITERALS.len() - 1) as i32);
        self.f.call("put_literal", &[which]);
    }

    /// A constant.
    fn number(&self, n: i32) -> Val<'b> {
        self.f.constant(i64::from(n).cast_unsigned())
    }

    /// Appends a number in the format of a kind.
    fn put(&self, kind: i32, value: Val<'b>) {
        self.f.call("put_number", &[self.number(kind), value]);
    }

    /// Appends a number with leading zeros.
    fn padded(&self, base: i32, value: Val<'b>, digits: i32) {
        let flags = if base == 10 { self.at.signed } else { 0 };
        let [digits, flags, width] = [digits, flags, 0].map(|n| self.number(n));
        let args = [digits, value, flags, width];
        self.f.call(&format!("append_number_{base}"), &args);
    }

    /// Appends the text in a slot.
    fn text(&self, from: Val<'b>, size: i32) {
        let [size, width] = [size, 0].map(|n| self.number(n));
        self.f.call("append_text", &[self.block, from, size, width]);
    }

    /// The address of a byte of the staging area.
    fn staged(&self, byte: i32) -> Val<'b> {
        self.block + (self.at.staging + byte)
    }

    /// Reads bytes of the program into the staging area. Runs `bad`, and returns, if it cannot.
    fn read(&self, size: Val<'b>, address: Val<'b>, bad: impl FnOnce()) {
        let f = self.f;
        let status = f.helper(Helper::ReadUser, &[self.staged(0), size, address]);
        f.when(status.ne(0), || {
            let status = f.call("user_text", &[size, address, self.number(1)]);
            f.when(status.ne(0), || {
                bad();
                f.ret(0);
            });
        });
    }

    /// Appends a literal, and returns, if a comparison holds.
    fn literal_if(&self, test: Test<'b>, text: &str) {
        self.f.when(test, || {
            self.literal(text);
            self.f.ret(0);
        });
    }

    /// The staged number of 16 bits in network byte order.
    fn network_u16(&self, byte: i32) -> Val<'b> {
        self.staged(byte).load_u16(0).ext(ExtOp::Swap, Size::U16)
    }

    /// The argument whose index is in a descriptor.
    fn referenced(&self, descriptor: Val<'b>) -> Val<'b> {
        let index = (descriptor >> 16) & 7;
        self.f.ret_if(index.ge(ARGS as i32), 0);
        (self.block + (index << 3) + self.at.arguments).load_u64(0)
    }
}

fn put_literal(layout: &Layout) -> Func {
    let contract = "\
Appends a text that surrounds values.
which: its index.
Cost: that of append_text for 32 bytes.";
    texts(
        layout,
        ("put_literal", contract),
        ["which"],
        |t, [which]| {
            let index = which & (LITERALS.len() as i32 - 1);
            t.text(t.f.data("literals") + (index * LITERAL), LITERAL);
        },
    )
}

fn put_number(layout: &Layout) -> Func {
    let contract = "\
Appends a number.
kind: how, as in a descriptor; decimal with sign for other kinds. value: the number.
Cost: that of append_number.";
    texts(
        layout,
        ("put_number", contract),
        ["kind", "value"],
        |t, [kind, value]| {
            let append = |base: i32, flags: i32| {
                let [precision, flags, width] = [-1, flags, 0].map(|n| t.number(n));
                let args = [precision, value, flags, width];
                t.f.call(&format!("append_number_{base}"), &args);
            };
            let kinds = [
                (kind::UNSIGNED, 10, 0),
                (kind::HEX, 16, layout.mark),
                (kind::OCTAL, 8, layout.mark),
            ];
            for (code, base, flags) in kinds {
                t.f.when(kind.eq(code), || {
                    append(base, flags);
                    t.f.ret(0);
                });
            }
            append(10, layout.signed);
        },
    )
}

fn put_escaped(layout: &Layout) -> Func {
    let contract = "\
Appends the staged text with escapes.
from: its first byte in the staging area, 0 or 1.
Cost: those of the escapes and of append_text.";
    texts(layout, ("put_escaped", contract), ["from"], |t, [from]| {
        let to = t.block + layout.quoted;
        let args = [t.staged(0) + from.bound(1), to];
        t.f.call(&layout.escape, &args);
        t.text(to, layout.most);
    })
}

fn put_user(layout: &Layout) -> Func {
    let contract = "\
Appends a text of the program in quotes, or its address if it cannot be read.
address: of the text; 0 is written as 0x0.
Cost: a read of up to the longest text, and put_escaped.";
    texts(
        layout,
        ("put_user", contract),
        ["address"],
        |t, [address]| {
            let f = t.f;
            let bad = || {
                t.put(kind::HEX, address);
                f.ret(0);
            };
            f.when(address.eq(0), bad);
            // A text that is full needs no read.
            f.ret_if((t.block + layout.length).load_u64(0).gt(layout.most), 0);
            let args = [t.staged(0), t.number(layout.most), address];
            let length = f.helper(Helper::ReadUserText, &args);
            f.when(length.slt(0), || {
                let room = t.number(layout.most - 1);
                let status = f.call("user_text", &[room, address, t.number(0)]);
                f.when(status.ne(0), || {
                    if let Some(defer) = &layout.defer {
                        f.when(status.eq(defer.absent), || {
                            let allowed = (t.block + defer.allowed).load_u64(0);
                            f.when(allowed.ne(0), || {
                                let args = [address, room, t.number(defer.quoted)];
                                f.ret_if(f.call("user_defer", &args).eq(0), 0);
                            });
                        });
                    }
                    bad();
                });
            });
            t.literal("\"");
            f.call("put_escaped", &[t.number(0)]);
            t.literal("\"");
        },
    )
}

fn put_name(layout: &Layout, last: i32) -> Func {
    let contract = "\
Appends the name of an entry.
entry: its offset in the lists.
Cost: that of append_text for 32 bytes.";
    texts(layout, ("put_name", contract), ["entry"], |t, [entry]| {
        t.f.ret_if(entry.gt(last), 0);
        t.text(t.f.data("names") + entry + 16, NAME as i32);
    })
}

fn put_names(layout: &Layout, last: i32) -> Func {
    let contract = "\
Appends the names of a value, with what no name covers.
descriptor: has the offset of the list from bit 16 on. value: the value.
Cost: an iteration for each name of the list.";
    let params = ["descriptor", "value"];
    texts(
        layout,
        ("put_names", contract),
        params,
        |t, [descriptor, value]| {
            let f = t.f;
            let rest = f.var("rest", value);
            let named = f.var("named", 0);
            let entry = f.var("entry", descriptor >> 16);
            f.repeat(MAX_NAMES + 1, || {
                f.break_if(entry.gt(last));
                let row = f.data("names") + entry;
                let (mask, bits) = (row.load_u64(0), row.load_u64(8));
                f.break_if(mask.eq(0));
                // Bits that an earlier name covers are not named again.
                f.when((value & mask).eq(bits), || {
                    f.when((rest & bits).eq(bits), || {
                        rest.set(rest & (mask ^ -1));
                        f.when(named.ne(0), || t.literal("|"));
                        named.set(1);
                        f.call("put_name", &[entry.get()]);
                    });
                });
                entry.set(entry + ENTRY as i32);
            });
            f.when(named.eq(0), || {
                let decimal = (descriptor & 255).eq(kind::ENUM);
                f.when_else(
                    decimal,
                    || t.put(kind::SIGNED, value),
                    || t.put(kind::HEX, value),
                );
                f.ret(0);
            });
            f.ret_if(rest.eq(0), 0);
            t.literal("|");
            t.put(kind::HEX, rest.get());
        },
    )
}

fn put_vector(layout: &Layout) -> Func {
    let contract = "\
Appends the texts of a vector of addresses that ends with 0, at most 16 of them. An element that cannot
be read is written as its address and ends the list.
address: of the vector. narrow: 1 for addresses of 32 bits, else 0.
Cost: put_user for each text.";
    let params = ["address", "narrow"];
    texts(
        layout,
        ("put_vector", contract),
        params,
        |t, [address, narrow]| {
            let f = t.f;
            let narrow = narrow & 1;
            // The kernel's verifier learns no range from a shift by a variable.
            let bytes = t.number(8) - (narrow << 2);
            t.literal("[");
            t.f.when(address.eq(0), || {
                t.literal("]");
                f.ret(0);
            });
            let at = f.var("at", address);
            let count = f.var("count", 0);
            f.repeat(MAX_ARGV, || {
                let bytes = bytes.bound(8);
                let args = [t.staged(0), bytes, at.get()];
                f.when(f.helper(Helper::ReadUser, &args).ne(0), || {
                    let status = f.call("user_text", &[bytes, at.get(), t.number(1)]);
                    f.when(status.ne(0), || {
                        f.when(count.ne(0), || t.literal(", "));
                        t.put(kind::HEX, at.get());
                        f.break_();
                    });
                });
                let unused = narrow << 5;
                let text = (t.staged(0).load_u64(0) << unused) >> unused;
                f.break_if(text.eq(0));
                f.when(count.ne(0), || t.literal(", "));
                f.call("put_user", &[text]);
                at.set(at + bytes);
                count.set(count + 1);
            });
            f.when(count.eq(MAX_ARGV as i32), || t.literal(", ..."));
            t.literal("]");
        },
    )
}

fn put_moment(layout: &Layout) -> Func {
    let contract = "\
Appends a staged time in seconds, with the digits of its fraction.
from: byte of the staging area, at most 16. bits: those of the descriptor.
Cost: two numbers.";
    texts(
        layout,
        ("put_moment", contract),
        ["from", "bits"],
        |t, [from, bits]| {
            let f = t.f;
            let here = t.staged(0) + from.bound(31);
            let [seconds, fraction] = ["seconds", "fraction"].map(|name| f.var(name, 0));
            f.when_else(
                (bits & i32::from(time::NARROW)).ne(0),
                || {
                    seconds.set(here.load_s32(0));
                    fraction.set(here.load_s32(4));
                },
                || {
                    seconds.set(here.load_u64(0));
                    fraction.set(here.load_u64(8));
                },
            );
            let fraction = fraction.get();
            t.put(kind::SIGNED, seconds.get());
            t.literal(".");
            f.when_else(
                (bits & i32::from(time::MICRO | time::TIMER)).ne(0),
                || t.padded(10, fraction, 6),
                || t.padded(10, fraction, 9),
            );
        },
    )
}

fn put_time(layout: &Layout) -> Func {
    let contract = "\
Appends `[1.000000002]`, or interval and value of a timer.
descriptor: has the bits of `time` from bit 16 on. address: of the time.
Cost: a read and two numbers, for a timer four.";
    let params = ["descriptor", "address"];
    texts(
        layout,
        ("put_time", contract),
        params,
        |t, [descriptor, address]| {
            let f = t.f;
            t.literal_if(address.eq(0), "NULL");
            let bits = descriptor >> 16;
            let moment = t.number(16) - ((bits & i32::from(time::NARROW)) << 3);
            let timer = (bits >> 2) & 1;
            let bad = || t.put(kind::HEX, address);
            t.read((moment << timer).bound(63), address, bad);
            t.literal("[");
            f.call("put_moment", &[t.number(0), bits]);
            f.when(timer.ne(0), || {
                t.literal(",");
                f.call("put_moment", &[moment, bits]);
            });
            t.literal("]");
        },
    )
}

fn put_buffer(layout: &Layout) -> Func {
    let contract = "\
Appends bytes of the program in quotes, cut to 50 characters, or their address if they cannot be read.
address, length: of the bytes.
Cost: a read of up to 50 bytes and their quoting.";
    let params = ["address", "length"];
    texts(
        layout,
        ("put_buffer", contract),
        params,
        |t, [address, length]| {
            let f = t.f;
            let bad = || t.put(kind::HEX, address);
            f.when(address.eq(0), || {
                bad();
                f.ret(0);
            });
            let count = f.var("count", length);
            f.when(length.gt(BUFFER), || count.set(BUFFER));
            let count = count.get().bound(63);
            f.when(count.ne(0), || t.read(count, address, bad));
            let quoted = t.block + layout.quoted;
            for word in 0..8 {
                quoted.store_u64(8 * word, 0);
            }
            let [limit, marks] = [BUFFER - 1, 1].map(|n| t.number(n));
            let args = [t.staged(0), quoted, count, limit, marks];
            f.call(&layout.quote, &args);
            t.text(quoted, BUFFER + 8);
        },
    )
}

fn put_inet6(layout: &Layout) -> Func {
    let contract = "\
Appends the eight groups of the address in the staged `struct sockaddr_in6`.
Cost: eight numbers.";
    texts(layout, ("put_inet6", contract), [], |t, []| {
        for group in 0..8 {
            if group > 0 {
                t.literal(":");
            }
            t.padded(16, t.network_u16(8 + 2 * group), 4);
        }
    })
}

fn put_unix(layout: &Layout) -> Func {
    let contract = "\
Appends the path of a `struct sockaddr_un`, or the name of an abstract socket.
address, length: of the structure.
Cost: a read and put_escaped.";
    let params = ["address", "length"];
    texts(
        layout,
        ("put_unix", contract),
        params,
        |t, [address, length]| {
            let f = t.f;
            // At least one byte and a following one.
            t.literal_if(length.lt(4), "{...}");
            let size = f.var("size", length - 2);
            f.when(size.gt(UNIX_PATH), || size.set(UNIX_PATH));
            let size = size.get().bound(127);
            t.read(size, address + 2, || t.literal("{...}"));
            // The path need not end with a NUL.
            (t.staged(0) + size).store_u8(0, 0);
            t.literal("{AF_UNIX, ");
            t.literal("\"");
            let from = f.var("from", 0);
            f.when(t.staged(0).load_u8(0).eq(0), || {
                t.literal("\\000");
                from.set(1);
            });
            f.call("put_escaped", &[from.get()]);
            t.literal("\"");
            t.literal("}");
        },
    )
}

fn put_sockaddr(layout: &Layout) -> Func {
    let contract = "\
Appends `{AF_INET, 127.0.0.1, 80}`, or `{...}` if it cannot be read.
address, length: of the structure; of the length the low 32 bits count.
Cost: two reads and up to nine numbers.";
    let params = ["address", "length"];
    texts(
        layout,
        ("put_sockaddr", contract),
        params,
        |t, [address, length]| {
            let f = t.f;
            let bad = || t.literal("{...}");
            t.literal_if(address.eq(0), "NULL");
            let length = length.ext(ExtOp::Zext, Size::U32);
            t.literal_if(length.lt(2), "{...}");
            t.read(t.number(2), address, bad);
            let family = t.staged(0).load_u16(0);
            let port = || {
                t.literal(", ");
                t.put(kind::SIGNED, t.network_u16(2));
                t.literal("}");
                f.ret(0);
            };
            f.when(family.eq(AF_INET), || {
                t.literal_if(length.ne(SOCKADDR_IN), "{...}");
                t.read(t.number(SOCKADDR_IN), address, bad);
                t.literal("{AF_INET, ");
                for byte in 0..4 {
                    if byte > 0 {
                        t.literal(".");
                    }
                    t.put(kind::SIGNED, t.staged(4 + byte).load_u8(0));
                }
                port();
            });
            f.when(family.eq(AF_INET6), || {
                t.literal_if(length.ne(SOCKADDR_IN6), "{...}");
                t.read(t.number(SOCKADDR_IN6), address, bad);
                t.literal("{AF_INET6, ");
                f.call("put_inet6", &[]);
                port();
            });
            f.when(family.eq(AF_UNIX), || {
                f.call("put_unix", &[address, length]);
                f.ret(0);
            });
            t.literal("{unknown address family (");
            t.put(kind::SIGNED, family);
            t.literal(")}");
        },
    )
}

/// The second parameter of a kind's function.
enum Second {
    None,
    Number(i32),
    /// The descriptor comes first.
    Descriptor,
    /// The argument that the descriptor refers to.
    Referenced,
}

/// Kinds with a function of their own.
const FUNCTIONS: [(i32, &str, Second); 9] = [
    (kind::USER_STR, "put_user", Second::None),
    (kind::ARGV, "put_vector", Second::Number(0)),
    (kind::ARGV_4, "put_vector", Second::Number(1)),
    (kind::FLAGS, "put_names", Second::Descriptor),
    (kind::ENUM, "put_names", Second::Descriptor),
    (kind::CHOICE, "put_names", Second::Descriptor),
    (kind::TIME, "put_time", Second::Descriptor),
    (kind::BUFFER, "put_buffer", Second::Referenced),
    (kind::SOCKADDR, "put_sockaddr", Second::Referenced),
];

fn put_arg(layout: &Layout) -> Func {
    let contract = "\
Appends an argument, with a comma in front of it unless it is the first one.
descriptor: how. value: the word.
Cost: that of the kind's function.";
    let params = ["descriptor", "value"];
    texts(
        layout,
        ("put_arg", contract),
        params,
        |t, [descriptor, word]| {
            let f = t.f;
            let kind = f.var("kind", descriptor & 255);
            f.ret_if(kind.eq(kind::SHOWN), 0);
            // Without O_CREAT callers pass no mode, and its register holds anything.
            f.when(kind.eq(kind::OPEN_MODE), || {
                f.ret_if((t.referenced(descriptor) & CREATES).eq(0), 0);
                kind.set(kind::OCTAL);
            });
            f.when(descriptor.has(FOLLOWS as i32), || t.literal(", "));
            // The value in its size, with sign extension for some kinds. There is no branch, which
            // the kernel's verifier would follow in front of all that comes below.
            let unused = (descriptor >> 8) & 63;
            let high = word << unused;
            let kinds = [kind::SIGNED, kind::DIRFD, kind::ENUM];
            let kinds = kinds.iter().fold(0u64, |mask, kind| mask | 1 << kind);
            let all = t.number(0) - ((f.constant(kinds) >> kind) & 1);
            let sign = high.alu(Width::W64, AluOp::Arsh, unused) & all;
            let value = f.var("value", (high >> unused) | sign);
            for (code, function, second) in FUNCTIONS {
                f.when(kind.eq(code), || {
                    let value = value.get();
                    match second {
                        Second::None => f.call(function, &[value]),
                        Second::Number(n) => f.call(function, &[value, t.number(n)]),
                        Second::Descriptor => f.call(function, &[descriptor, value]),
                        Second::Referenced => {
                            let other = t.referenced(descriptor);
                            f.call(function, &[value, other])
                        }
                    };
                    f.ret(0);
                });
            }
            f.when(kind.eq(kind::PAIR), || {
                value.set(value | (t.referenced(descriptor) << 32));
                kind.set(kind::SIGNED);
            });
            f.when(kind.eq(kind::DIRFD), || {
                t.literal_if(value.eq(AT_FDCWD), "AT_FDCWD");
            });
            f.call("put_number", &[kind.get(), value.get()]);
        },
    )
}
