//! What the tables of system calls contain.

use std::fmt::Write as _;

/// A table of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Abi {
    /// 64-bit calls.
    X86_64,
    /// Calls of 32-bit programs (`int 0x80`, and `sysenter` there): 32-bit words, other numbers,
    /// and some other arguments.
    I386,
}

/// From this number on the 32-bit table has the calls that `socketcall` stands for, by its first argument.
pub const SOCKETCALL: u32 = 512;

/// From this number on the 32-bit table has the calls that `ipc` stands for, by its first argument. For
/// `msgrcv` in its newer form, with all arguments in registers, 16 is added.
pub const IPC: u32 = SOCKETCALL + 32;

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
    pub args: &'static [Arg],
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
            // Its text is the number again, so the tapset has none either.
            _ if !self.has_text() => None,
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
    pub flags: &'static [Flag],
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

/// The forms of a call's arguments by the value of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variants {
    /// The word of the argument that decides.
    pub word: u8,
    /// Its bits that count.
    pub mask: u64,
    /// The arguments that `argstr` has for some values.
    pub cases: &'static [Case],
    /// The arguments for all other values, if not those of the call.
    pub others: Option<&'static [Arg]>,
}

/// The arguments that `argstr` has for some values of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The values.
    pub values: &'static [u64],
    /// The arguments.
    pub args: &'static [Arg],
    /// Other forms of these arguments by the value of a second one.
    pub variants: Option<Variants>,
}

/// A structure in user space.
#[derive(Debug, PartialEq, Eq)]
pub struct Structure {
    /// Its name in the table, which ends with `.32` or `.64` where the programs differ.
    pub name: &'static str,
    /// Whether a null pointer is shown as `NULL`.
    pub null: bool,
    /// Bytes up to the end of the last field.
    pub size: u8,
    /// The texts that it may have: the first whose condition holds.
    pub texts: &'static [StructureText],
}

/// The text of a structure.
#[derive(Debug, PartialEq, Eq)]
pub struct StructureText {
    /// Fields and the values that they must have.
    pub when: &'static [(Field, u64)],
    /// Texts, and the fields behind them.
    pub fields: &'static [(&'static str, Field)],
    /// The text at the end.
    pub end: &'static str,
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes.
    pub offset: u8,
    /// How it is shown.
    pub kind: FieldKind,
    /// Its bits.
    pub bits: u8,
    /// The bits below it, if it is a bit field.
    pub shift: u8,
}

/// How a field is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// As an argument.
    Value(ArgKind),
    /// As a fraction of a second with six digits.
    Micro,
    /// The same with nine digits.
    Nano,
    /// As the date and time of a number of seconds since 1970.
    Date,
}
