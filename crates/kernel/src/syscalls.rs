//! The system calls of x86-64 and of i386 programs (compat), as data.
//!
//! `data/syscalls.tsv` has numbers, names, arguments and their form in `argstr`; `data/flags.tsv`
//! has the names of flags. `data/structures.tsv` has structures that arguments point to,
//! `data/variants.tsv` arguments whose form depends on the value of another one, and `data/variables.tsv`
//! the variables besides the arguments. Each table is parsed at its first query, in some 0.2 ms.
//!
//! An argument has two names: the tapset's (`syscall.openat` has `dfd`) and the kernel's own
//! parameter (for `$`-variables). Names derived from the tapset's, such as `flags_str`, follow one
//! rule: see [`Arg::form`].

mod variables;
mod variants;

use std::fmt::Write as _;
use std::sync::OnceLock;

pub use variables::{Variable, variables};
pub use variants::{Case, Field, FieldKind, Structure, Variants, structure, variants};

/// The highest number in the tables.
pub const MAX_NR: u32 = 469;

const TABLE: &str = include_str!("../data/syscalls.tsv");
const FLAGS: &str = include_str!("../data/flags.tsv");

/// A table of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Abi {
    /// 64-bit calls.
    X86_64,
    /// Calls of 32-bit programs (`int 0x80`, and `sysenter` there): 32-bit words, other numbers,
    /// and some other arguments.
    I386,
}

/// A system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syscall {
    /// Its table.
    pub abi: Abi,
    /// Its number there.
    pub nr: u32,
    /// Its own name (`__NR_name`), which `syscall_any` reports.
    pub name: &'static str,
    /// The tapset's probe point and its `name`: `fstatat` for `newfstatat`.
    pub probe: &'static str,
    /// A further probe point that it hits: `pipe` for `pipe2`, whose name stays its own.
    pub point: &'static str,
    /// The word of the argument with which it has the name of `point` if it is 0: the flags of `signalfd4`.
    pub bare: Option<u8>,
    /// The kernel's function without its `sys_`: `newfstat` for `fstat`.
    pub entry: &'static str,
    /// The form of its result.
    pub ret: ResultForm,
    /// Its arguments in order.
    pub args: Box<[Arg]>,
}

/// The form of a result. A result from -4095 to -1 is always an error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultForm {
    /// In decimal.
    Int,
    /// In hexadecimal: an address.
    Hex,
    /// In octal: a file mode.
    Octal,
    /// It never returns.
    Never,
}

/// An argument of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg {
    /// The name that the tapset uses, such as `buf_uaddr`.
    pub name: &'static str,
    /// The kernel's parameter, such as `buf`.
    pub kernel_name: &'static str,
    /// Index of its argument word, from 0; an [`ArgKind::Pair`] takes this word and the next.
    pub word: u8,
    /// Its kind.
    pub kind: ArgKind,
    /// Number of significant low bits of the word, as the kernel declares its parameter. The rest
    /// may contain anything.
    pub bits: u8,
    /// Whether those bits are sign-extended to the value.
    pub signed: bool,
}

/// The kind of an argument, which decides its form in `argstr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// Signed, in decimal, of this number of bits: `int`, `int16`, `long`.
    Int(u8),
    /// Unsigned, in decimal: `uint`, `ulong`.
    Uint(u8),
    /// In hexadecimal: `hex32`, `hex`.
    Hex(u8),
    /// A file mode, in octal: `mode`, `mode32`.
    Mode,
    /// An address, shown as such: `ptr`.
    Ptr,
    /// A string in user space, shown quoted: `str`.
    Str,
    /// A vector of strings in user space, shown one by one: `argv`.
    Argv,
    /// A vector of strings, shown by its number of elements: `envp`.
    Envp,
    /// The number of a signal, shown by name: `signal`.
    Signal,
    /// A directory's descriptor, or `AT_FDCWD`: `dirfd`.
    DirFd,
    /// A set of flags: `|table`, `|table:u` where it is unsigned, or `|table:64` where it is an
    /// unsigned long.
    Flags(&'static str),
    /// One of several values: `=table`, with the same suffixes.
    Choice(&'static str),
    /// Bytes in user space, shown as a quoted string; the argument word of that index has their
    /// number: `buf2`.
    Buf(u8),
    /// A `struct sockaddr`; the argument word of that index has its length: `sockaddr2`.
    Sockaddr(u8),
    /// A `struct timespec` whose fields have this number of bits: `timespec`.
    Timespec(u8),
    /// A `struct timeval` whose fields have this number of bits: `timeval`.
    Timeval(u8),
    /// A `struct itimerspec` whose fields have this number of bits: `itimerspec`.
    Itimerspec(u8),
    /// A `struct itimerval` whose fields have this number of bits: `itimerval`.
    Itimerval(u8),
    /// A structure in user space, shown by its fields ([`structure`]): `{name}`, and `{name}:64` where programs
    /// of 32 bits have that of 64 bits.
    Struct(&'static Structure),
    /// The same with braces around it, which the variable of its text does not have: `{{name}}`.
    Braced(&'static Structure),
    /// A number that is shown by its bits, as the fields of a structure: `[name]`.
    Packed(&'static Structure),
    /// Bytes as `Buf`, with hexadecimal escapes: `bytes3`.
    Bytes(u8),
    /// A number of this many bits in hexadecimal, in brackets: `result`.
    Result(u8),
    /// A 64-bit number in two 32-bit words, the low one first: `pair`, `pairu` and `pairx`.
    Pair(Base),
    /// A number of blocks of 4096 bytes, shown in bytes: `blocks`.
    Blocks,
    /// A signed number that `argstr` leaves out: `unseen`, `unseen32`.
    Unseen,
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// In decimal, with a sign.
    Signed,
    /// In decimal, without a sign.
    Unsigned,
    /// In hexadecimal.
    Hex,
}

/// The form in which a variable gives an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgForm {
    /// The number itself, sign- or zero-extended by its kind.
    Value,
    /// The text as in `argstr`.
    Text,
    /// The string itself, without quotes.
    Unquoted,
    /// The address that was passed.
    Address,
}

impl Arg {
    /// Whether `argstr` shows it as more than a number.
    #[must_use]
    pub fn has_text(&self) -> bool {
        !matches!(
            self.kind,
            ArgKind::Int(_)
                | ArgKind::Uint(_)
                | ArgKind::Hex(_)
                | ArgKind::Mode
                | ArgKind::Ptr
                | ArgKind::Pair(_)
                | ArgKind::Blocks
                | ArgKind::Unseen
        )
    }

    /// The form in which the tapset's variable `name` gives this argument;
    /// `None` if it belongs to another.
    ///
    /// With BASE for the argument's name less `_uaddr` or `_str`: a number has
    /// its name (value) and, if it is shown as more than a number, `BASE_str`
    /// (text); a signal `BASE_name` too. A string or
    /// vector of strings has BASE and `BASE_str` (text), and `BASE_uaddr` (address),
    /// a string `BASE_unquoted` and `BASE_str_unquoted`.
    #[must_use]
    pub fn form(&self, name: &str) -> Option<ArgForm> {
        let base = self.name.strip_suffix("_uaddr").unwrap_or(self.name);
        let base = base.strip_suffix("_str").unwrap_or(base);
        let suffix = name.strip_prefix(base)?;
        match self.kind {
            ArgKind::Str | ArgKind::Argv | ArgKind::Envp => match suffix {
                "" | "_str" => Some(ArgForm::Text),
                "_unquoted" | "_str_unquoted" if self.kind == ArgKind::Str => {
                    Some(ArgForm::Unquoted)
                }
                "_uaddr" => Some(ArgForm::Address),
                _ => None,
            },
            _ if name == self.name => Some(ArgForm::Value),
            // Their text is the number again, so the tapset has none either.
            ArgKind::Int(_)
            | ArgKind::Uint(_)
            | ArgKind::Hex(_)
            | ArgKind::Mode
            | ArgKind::Ptr
            | ArgKind::Pair(_)
            | ArgKind::Blocks
            | ArgKind::Unseen => None,
            ArgKind::Signal if suffix == "_name" => Some(ArgForm::Text),
            _ if suffix == "_str" => Some(ArgForm::Text),
            _ => None,
        }
    }
}

impl Syscall {
    /// The argument that a variable of the tapset gives, and the form.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(&Arg, ArgForm)> {
        let exact = self.args.iter().find(|arg| arg.name == name);
        let mut all = exact.into_iter().chain(self.args.iter());
        all.find_map(|arg| Some((arg, arg.form(name)?)))
    }

    /// The argument whose kernel parameter has that name (`$name`).
    #[must_use]
    pub fn kernel_argument(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.kernel_name == name)
    }

    /// Whether a probe point `syscall.NAME` selects this call: by its own name or the tapset's;
    /// `compat_NAME` selects calls of 32-bit programs only.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        if [self.name, self.probe, self.point].contains(&name) {
            return true;
        }
        self.abi == Abi::I386
            && name.strip_prefix("compat_").is_some_and(|rest| {
                let rest = rest.strip_prefix("sys_").unwrap_or(rest);
                [self.name, self.probe, self.point].contains(&rest)
            })
    }
}

/// Names of the values that an argument can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagTable {
    /// The name by which arguments refer to it.
    pub name: &'static str,
    /// Choices without a name are shown in decimal, instead of hexadecimal.
    pub decimal: bool,
    /// What has no name of an `int` is shown with its sign extended to 64 bits.
    pub wide: bool,
    /// In a set: the bits that are shown in octal if they have no name, such as permissions.
    pub octal: u64,
    /// In a set: the bits that are always shown, in decimal.
    pub number: u64,
    /// The flags in display order.
    pub flags: Box<[Flag]>,
}

/// A named value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Such as `O_RDONLY`.
    pub name: &'static str,
    /// The value.
    pub value: i64,
    /// In a set: the bits that must equal `value` for the flag to be set.
    pub mask: i64,
}

impl FlagTable {
    /// A single choice by name; a number if it has none.
    #[must_use]
    pub fn show_choice(&self, value: i64) -> String {
        match self.flags.iter().find(|flag| flag.value == value) {
            Some(flag) => flag.name.to_owned(),
            None if self.decimal => value.to_string(),
            None => format!("{value:#x}"),
        }
    }

    /// A set of flags joined by `|`, with unnamed bits in hexadecimal, or in octal where the table says
    /// so. A flag whose bits are all in another flag that is set is left out.
    #[must_use]
    pub fn show_set(&self, value: i64) -> String {
        let mut text = String::new();
        let mut rest = value;
        let there = |flag: &Flag| value & flag.mask == flag.value;
        for flag in self.flags.iter().filter(|flag| there(flag)) {
            let within = |other: &Flag| {
                other.mask != flag.mask && other.mask & flag.mask == flag.mask && there(other)
            };
            if self
                .flags
                .iter()
                .any(|other| other.value != 0 && within(other))
            {
                continue;
            }
            rest &= !flag.mask;
            if !text.is_empty() {
                text.push('|');
            }
            text.push_str(flag.name);
        }
        let permissions = rest & self.octal.cast_signed();
        let number = rest & self.number.cast_signed();
        let high = rest & !permissions & !number;
        let mut add = |number: &str| {
            let bar = if text.is_empty() { "" } else { "|" };
            let _ = write!(text, "{bar}{number}");
        };
        if high != 0 {
            add(&format!("{high:#x}"));
        }
        if self.number != 0 {
            add(&number.to_string());
        }
        if permissions != 0 {
            add(&format!("0{permissions:o}"));
        }
        if text.is_empty() {
            text.push_str(if self.octal == 0 { "0x0" } else { "0" });
        }
        text
    }
}

/// One table of system calls, with the index of each number in it.
struct CallTable {
    calls: Vec<Syscall>,
    by_nr: Vec<u16>,
}

fn table(abi: Abi) -> &'static CallTable {
    static TABLES: [OnceLock<CallTable>; 2] = [OnceLock::new(), OnceLock::new()];
    TABLES[abi as usize].get_or_init(|| {
        let calls = parse(abi);
        let mut by_nr = vec![u16::MAX; MAX_NR as usize + 1];
        for (i, call) in calls.iter().enumerate() {
            if let Some(slot) = by_nr.get_mut(call.nr as usize) {
                *slot = i as u16;
            }
        }
        CallTable { calls, by_nr }
    })
}

/// All calls of a table, in the order of numbers.
#[must_use]
pub fn all(abi: Abi) -> &'static [Syscall] {
    &table(abi).calls
}

/// The call of that number; `None` for numbers without one.
#[must_use]
pub fn by_nr(abi: Abi, nr: u32) -> Option<&'static Syscall> {
    let table = table(abi);
    table.calls.get(usize::from(*table.by_nr.get(nr as usize)?))
}

/// The calls that `syscall.NAME` selects (see [`Syscall::is_called`]): more than one where the
/// tapset joins several, such as `stat` and `stat64` of i386.
pub fn by_name(abi: Abi, name: &str) -> impl Iterator<Item = &'static Syscall> {
    all(abi).iter().filter(move |call| call.is_called(name))
}

/// Calls that SystemTap has probe points of, and neither table a number for.
pub fn without_number() -> impl Iterator<Item = &'static str> {
    lines(TABLE).filter_map(|line| line.strip_prefix("-\t-\t")?.split('\t').next())
}

/// A table of flags by its name.
#[must_use]
pub fn flag_table(name: &str) -> Option<&'static FlagTable> {
    static TABLES: OnceLock<Vec<FlagTable>> = OnceLock::new();
    TABLES
        .get_or_init(parse_flags)
        .iter()
        .find(|table| table.name == name)
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn parse(abi: Abi) -> Vec<Syscall> {
    let mut calls: Vec<Syscall> = lines(TABLE)
        .filter_map(|line| parse_call(abi, line))
        .collect();
    calls.sort_by_key(|call| call.nr);
    calls
}

fn parse_call(abi: Abi, line: &'static str) -> Option<Syscall> {
    let mut columns = line.split('\t');
    let numbers = [columns.next()?, columns.next()?];
    let nr = numbers[abi as usize].parse().ok()?;
    let names = columns.next()?;
    let (names, entry) = names
        .split_once('@')
        .map_or((names, None), |(n, e)| (n, Some(e)));
    let (names, point) = names
        .split_once('<')
        .map_or((names, None), |(n, p)| (n, Some(p)));
    let (point, bare) = point
        .and_then(|p| p.split_once('?'))
        .map_or((point, None), |(p, arg)| (Some(p), Some(arg)));
    let (name, probe) = names.split_once('=').unwrap_or((names, names));
    let ret = match columns.next()? {
        "d" => ResultForm::Int,
        "x" => ResultForm::Hex,
        "o" => ResultForm::Octal,
        "-" => ResultForm::Never,
        _ => return None,
    };
    let word = variants::word_bits(abi);
    let time = variants::time_bits(abi, nr);
    let mut at = 0;
    let args = columns
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .map(|text| {
            let arg = parse_arg(text, at, word, time)?;
            at += if matches!(arg.kind, ArgKind::Pair(_)) {
                2
            } else {
                1
            };
            Some(arg)
        })
        .collect::<Option<Box<[Arg]>>>()?;
    let bare = match bare {
        Some(name) => Some(args.iter().find(|arg| arg.name == name)?.word),
        None => None,
    };
    Some(Syscall {
        abi,
        nr,
        name,
        probe,
        point: point.unwrap_or(probe),
        bare,
        entry: entry.unwrap_or(name),
        ret,
        args,
    })
}

fn parse_arg(text: &'static str, at: u8, word: u8, time: u8) -> Option<Arg> {
    let (names, kind) = text.split_once(':')?;
    let (name, kernel_name) = names.split_once('/').unwrap_or((names, names));
    let (kind, bits, signed) = parse_kind(kind, word, time)?;
    Some(Arg {
        name,
        kernel_name,
        word: at,
        kind,
        bits,
        signed,
    })
}

/// A kind with the number of significant bits and whether they are signed.
fn parse_kind(kind: &'static str, word: u8, time: u8) -> Option<(ArgKind, u8, bool)> {
    let (kind, long) = kind
        .strip_suffix(":64")
        .map_or((kind, false), |kind| (kind, true));
    let (kind, unsigned) = kind
        .strip_suffix(":u")
        .map_or((kind, long), |kind| (kind, true));
    let native = if long { word } else { 32 };
    Some(match kind {
        "int" => (ArgKind::Int(32), 32, true),
        "int16" => (ArgKind::Int(16), 16, true),
        "long" => (ArgKind::Int(word), word, true),
        "uint" => (ArgKind::Uint(32), 32, false),
        "ulong" => (ArgKind::Uint(word), word, false),
        "hex32" => (ArgKind::Hex(32), 32, false),
        "hex" => (ArgKind::Hex(word), word, false),
        "mode" => (ArgKind::Mode, 32, false),
        "mode32" => (ArgKind::Mode, 32, false),
        "ptr" => (ArgKind::Ptr, word, false),
        "str" => (ArgKind::Str, word, false),
        "argv" => (ArgKind::Argv, word, false),
        "envp" => (ArgKind::Envp, word, false),
        "signal" => (ArgKind::Signal, 32, true),
        "dirfd" => (ArgKind::DirFd, 32, true),
        "timespec" => (ArgKind::Timespec(time), word, false),
        "timeval" => (ArgKind::Timeval(time), word, false),
        "itimerspec" => (ArgKind::Itimerspec(time), word, false),
        "itimerval" => (ArgKind::Itimerval(time), word, false),
        "pair" => (ArgKind::Pair(Base::Signed), 64, true),
        "pairu" => (ArgKind::Pair(Base::Unsigned), 64, false),
        "pairx" => (ArgKind::Pair(Base::Hex), 64, false),
        "blocks" => (ArgKind::Blocks, word, false),
        "result" => (ArgKind::Result(word), word, false),
        "unseen" => (ArgKind::Unseen, word, true),
        "unseen32" => (ArgKind::Unseen, 32, true),
        other => {
            if let Some(table) = other.strip_prefix('|') {
                (ArgKind::Flags(table), native, !unsigned)
            } else if let Some(table) = other.strip_prefix('=') {
                (ArgKind::Choice(table), native, !unsigned)
            } else if let Some(name) = other.strip_prefix("{{") {
                let of = structure(name.strip_suffix("}}")?, word)?;
                (ArgKind::Braced(of), word, false)
            } else if let Some(name) = other.strip_prefix('{') {
                // Without fields for programs of this kind it is an address.
                let found = structure(name.strip_suffix('}')?, if long { 64 } else { word });
                (found.map_or(ArgKind::Ptr, ArgKind::Struct), word, false)
            } else if let Some(name) = other.strip_prefix('[') {
                let of = structure(name.strip_suffix(']')?, 64)?;
                (ArgKind::Packed(of), 32, !unsigned)
            } else if let Some(len) = other.strip_prefix("bytes") {
                (ArgKind::Bytes(len.parse().ok()?), word, false)
            } else if let Some(len) = other.strip_prefix("buf") {
                (ArgKind::Buf(len.parse().ok()?), word, false)
            } else {
                let len = other.strip_prefix("sockaddr")?.parse().ok()?;
                (ArgKind::Sockaddr(len), word, false)
            }
        }
    })
}

fn parse_flags() -> Vec<FlagTable> {
    lines(FLAGS)
        .filter_map(|line| {
            let (name, flags) = line.split_once('\t')?;
            let (name, suffix) = name.split_once(':').unwrap_or((name, ""));
            let bits = |prefix: char| match suffix.strip_prefix(prefix) {
                Some("") | None => Some(0),
                Some(bits) => u64::from_str_radix(bits, 8).ok(),
            };
            let flags = flags
                .split_ascii_whitespace()
                .map(parse_flag)
                .collect::<Option<_>>()?;
            Some(FlagTable {
                name,
                decimal: suffix == "d",
                wide: suffix == "w",
                octal: bits('o')?,
                number: bits('d')?,
                flags,
            })
        })
        .collect()
}

fn parse_flag(text: &'static str) -> Option<Flag> {
    let (name, value) = text.split_once('=')?;
    let (value, mask) = value
        .split_once('/')
        .map_or((value, None), |(v, m)| (v, Some(m)));
    let value = number(value)?;
    let mask = mask.map_or(Some(value), number)?;
    // A bare zero names a choice; in a set it would always be there.
    let mask = if mask == 0 { -1 } else { mask };
    Some(Flag { name, value, mask })
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
