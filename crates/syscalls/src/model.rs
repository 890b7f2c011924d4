//! What the tables of system calls contain.

/// The first number of calls of 32-bit programs: `NrSet::COMPAT`.
pub(crate) const COMPAT: u32 = 1024;

/// The first number of the calls that `socketcall` stands for, by its first argument: `NrSet::PARTS`.
pub(crate) const SOCKETCALL: u32 = COMPAT + 512;

/// The first number of the calls that `ipc` stands for, by its first argument: `NrSet::IPC_PARTS`. For
/// `msgrcv` in its newer form, with all arguments in registers, 16 is added.
pub(crate) const IPC: u32 = SOCKETCALL + 32;

/// A system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syscall {
    /// Its number as in `NrSet`: the native one, or `NrSet::COMPAT` plus that of 32-bit programs, or that
    /// of a part.
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
    pub args: &'static [SyscallArg],
    /// Other forms of the arguments in `argstr`, by the value of one of them.
    pub variants: Option<&'static ArgVariants>,
    /// Its variables besides the arguments and their texts.
    pub variables: &'static [SyscallVariable],
}

/// A variable of a system call that is no argument and no text of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SyscallVariable {
    /// Its name.
    pub name: &'static str,
    /// Whether it is a string.
    pub text: bool,
    /// Whether only return handlers have it.
    pub at_return: bool,
    /// Its value: a number, a text in quotes, another variable of the call, or a function of the library
    /// with such values.
    pub value: &'static str,
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
pub struct SyscallArg {
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
    Flags(&'static FlagTable),
    /// One of several values: `=table`, with the same suffixes.
    Choice(&'static FlagTable),
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
    Pair(NumberBase),
    /// A number of blocks of 4096 bytes, shown in bytes: `blocks`.
    Blocks,
    /// A signed number that `argstr` leaves out: `unseen`, `unseen32`.
    Unseen,
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberBase {
    /// In decimal, with a sign.
    Signed,
    /// In decimal, without a sign.
    Unsigned,
    /// In hexadecimal.
    Hex,
}

/// The kind of an argument as far as it affects the value in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArgValueKind {
    /// An integer.
    Int {
        /// Size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether it is signed.
        signed: bool,
    },
    /// The number of a signal.
    Signal,
    /// An address in user space; the value is the address.
    Ptr,
    /// The address of a string in user space; the value is the quoted string.
    Str,
    /// The address of a vector of strings in user space, which only `argstr` shows as text.
    StrVec,
    /// A 64-bit number in this 32-bit word (the low half) and the next.
    Pair,
    /// An unsigned number of blocks of 4096 bytes, of this many bytes; the value is in bytes.
    Blocks(u8),
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
    /// The name of a signal.
    SignalName,
    /// A text that only SystemTap makes.
    TextOnly,
}

impl ResultForm {
    /// The base in which the result is printed.
    #[must_use]
    pub fn base(self) -> u8 {
        match self {
            ResultForm::Hex => 16,
            ResultForm::Octal => 8,
            ResultForm::Int | ResultForm::Never => 10,
        }
    }
}

impl SyscallArg {
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

    /// The kind of its value in a script.
    #[must_use]
    pub fn value_kind(&self) -> ArgValueKind {
        let size = self.bits.div_ceil(8);
        match self.kind {
            ArgKind::Signal => ArgValueKind::Signal,
            ArgKind::Str => ArgValueKind::Str,
            ArgKind::Argv | ArgKind::Envp => ArgValueKind::StrVec,
            ArgKind::Pair(_) => ArgValueKind::Pair,
            ArgKind::Blocks => ArgValueKind::Blocks(size),
            ArgKind::Ptr
            | ArgKind::Buf(_)
            | ArgKind::Sockaddr(_)
            | ArgKind::Timespec(_)
            | ArgKind::Timeval(_)
            | ArgKind::Itimerspec(_)
            | ArgKind::Itimerval(_) => ArgValueKind::Ptr,
            _ => ArgValueKind::Int {
                size,
                signed: self.signed,
            },
        }
    }

    /// The form in which the tapset's variable `name` gives this argument;
    /// `None` if it belongs to another.
    ///
    /// With BASE for the argument's name less `_uaddr` or `_str`: a number has
    /// its name (value) and `BASE_str` (text, which only SystemTap has if `argstr` shows the number);
    /// a signal `BASE_name` too. A string or
    /// vector of strings has BASE and `BASE_str` (text), and `BASE_uaddr` (address),
    /// a string `BASE_unquoted` and `BASE_str_unquoted`.
    #[must_use]
    pub fn form(&self, name: &str) -> Option<ArgForm> {
        let base = self.name.strip_suffix("_uaddr").unwrap_or(self.name);
        let base = base.strip_suffix("_str").unwrap_or(base);
        let suffix = name.strip_prefix(base)?;
        let strings = matches!(self.kind, ArgKind::Str | ArgKind::Argv | ArgKind::Envp);
        Some(match suffix {
            "" | "_str" if strings => ArgForm::Text,
            "_unquoted" | "_str_unquoted" if self.kind == ArgKind::Str => ArgForm::Unquoted,
            "_unquoted" | "_str_unquoted" if strings => ArgForm::TextOnly,
            "_uaddr" if strings => ArgForm::Address,
            _ if strings => return None,
            _ if name == self.name => ArgForm::Value,
            "_name" if self.kind == ArgKind::Signal => ArgForm::SignalName,
            "_str" if self.has_text() => ArgForm::Text,
            "_str" => ArgForm::TextOnly,
            _ => return None,
        })
    }
}

impl Syscall {
    /// The argument that a variable of the tapset gives, and the form.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(&SyscallArg, ArgForm)> {
        let exact = self.args.iter().find(|arg| arg.name == name);
        let mut args_in_order = exact.into_iter().chain(self.args.iter());
        args_in_order.find_map(|arg| Some((arg, arg.form(name)?)))
    }

    /// Whether it belongs to the table of 32-bit programs.
    #[must_use]
    pub fn is_compat(&self) -> bool {
        self.nr >= COMPAT
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
    /// The flags in display order: a name for several bits comes before names for some of them, which are
    /// then left out.
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

/// The forms of a call's arguments by the value of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgVariants {
    /// The word of the argument that decides.
    pub word: u8,
    /// The bits of that argument that select a case.
    pub mask: u64,
    /// The arguments that `argstr` has for some values.
    pub cases: &'static [Case],
    /// The arguments for all other values, if not those of the call.
    pub others: Option<&'static [SyscallArg]>,
}

/// The arguments that `argstr` has for some values of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The values.
    pub values: &'static [u64],
    /// The arguments.
    pub args: &'static [SyscallArg],
    /// Other forms of these arguments by the value of a second one.
    pub variants: Option<ArgVariants>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructureText {
    /// Fields and the values that they must have.
    pub when: &'static [(StructureField, u64)],
    /// Texts, and the fields behind them.
    pub fields: &'static [(&'static str, StructureField)],
    /// The text at the end.
    pub end: &'static str,
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StructureField {
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
