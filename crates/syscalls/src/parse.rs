//! Reads the tables of `data`, for the build script. What is read stays for the rest of the process.

use spile_abi::{AARCH64, X86_64};

use super::model::{
    ArgKind, ArgVariants, COMPAT, Case, FieldKind, Flag, FlagTable, IPC, NumberBase, ResultForm,
    SOCKETCALL, Structure, StructureField, StructureText, Syscall, SyscallArg, SyscallVariable,
};

/// A file with its name.
type File = (&'static str, &'static str);

const CALLS: File = ("syscalls.tsv", include_str!("../data/syscalls.tsv"));
const FLAGS: File = ("flags.tsv", include_str!("../data/flags.tsv"));
const STRUCTURES: File = ("structures.tsv", include_str!("../data/structures.tsv"));
const VARIANTS: File = ("variants.tsv", include_str!("../data/variants.tsv"));
const VARIABLES: File = ("variables.tsv", include_str!("../data/variables.tsv"));

/// The kinds of programs, in the order of the columns of numbers in `syscalls.tsv`.
static ABIS: [ProgramKind; 3] = [
    ProgramKind {
        column: 0,
        table: X86_64.name,
        word: 64,
        base: 0,
    },
    ProgramKind {
        column: 1,
        table: X86_64.name,
        word: 32,
        base: COMPAT,
    },
    ProgramKind {
        column: 2,
        table: AARCH64.name,
        word: 64,
        base: 0,
    },
];

/// The numbers and words of a kind of program.
#[derive(Clone, Copy)]
struct ProgramKind {
    /// The column of its numbers.
    column: usize,
    /// The name of its processor.
    table: &'static str,
    /// Bits of a long.
    word: u8,
    /// The first number there.
    base: u32,
}

/// The tables that kinds of arguments refer to.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    /// Sorted by name.
    pub(crate) flags: &'static [FlagTable],
    pub(crate) structures: &'static [Structure],
    /// The processor whose calls refer to them.
    processor: &'static str,
}

/// All tables.
pub(crate) struct Tables {
    pub(crate) named: Named,
    /// The calls of each processor in the order of numbers, by its name.
    pub(crate) calls: Vec<(&'static str, Vec<Syscall>)>,
}

/// Reads the tables.
///
/// # Errors
/// A line that has another form than its file says, or a line of `variants.tsv` or `variables.tsv` for calls
/// that do not exist.
pub(crate) fn tables() -> Result<Tables, String> {
    let mut flags = rows(FLAGS, parse_flag_table)?;
    flags.sort_by_key(|table| table.name);
    for index in 0..flags.len() {
        let specific = flags[index].clone();
        if let Some((base, _)) = specific.name.split_once('@') {
            let base = flags.iter().find(|table| table.name == base);
            flags[index] = with_own(base.ok_or_else(|| format!("no table {base:?}"))?, specific);
        }
    }
    let mut named = Named {
        flags: flags.leak(),
        structures: &[],
        processor: X86_64.name,
    };
    let mut structures = Vec::new();
    rows(STRUCTURES, |line| {
        parse_structure(line, named, &mut structures)
    })?;
    named.structures = structures.leak();
    let mut calls: Vec<OpenCall> = Vec::new();
    for abi in ABIS {
        named.processor = abi.table;
        let parsed = rows(CALLS, |line| parse_calls(abi, line, named))?;
        calls.extend(parsed.into_iter().flatten());
    }
    calls.sort_by_key(|open| (open.abi.table, open.call.nr));
    rows(VARIANTS, |line| {
        let name = line.split('\t').next()?;
        let mut matched = false;
        for open in &mut calls {
            if [open.call.name, open.call.probe].contains(&name) {
                named.processor = open.abi.table;
                parse_variant(open, line, named)?;
                matched = true;
            }
        }
        matched.then_some(())
    })?;
    rows(VARIABLES, |line| parse_variable(line, &mut calls))?;
    let mut tables: Vec<(&str, Vec<Syscall>)> = Vec::new();
    for open in calls {
        let OpenCall { call, abi } = open;
        match tables.last_mut().filter(|(table, _)| *table == abi.table) {
            Some((_, calls)) => calls.push(call),
            None => tables.push((abi.table, vec![call])),
        }
    }
    Ok(Tables {
        named,
        calls: tables,
    })
}

/// A call whose variants and variables are still read, and its kind of programs.
struct OpenCall {
    call: Syscall,
    abi: ProgramKind,
}

/// Appends to a list that stays for the rest of the process.
fn push<T: Clone>(list: &mut &'static [T], item: T) {
    *list = [*list, &[item]].concat().leak();
}

/// Reads each line of a file.
fn rows<T>(
    (name, text): File,
    mut read: impl FnMut(&'static str) -> Option<T>,
) -> Result<Vec<T>, String> {
    lines(text)
        .map(|line| {
            read(line).ok_or_else(|| format!("{name}: this line is not understood: {line}"))
        })
        .collect()
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// A row's calls in this table: none, one, or one for each number.
fn parse_calls(abi: ProgramKind, line: &'static str, named: Named) -> Option<Vec<OpenCall>> {
    let mut columns = line.splitn(ABIS.len() + 1, '\t');
    let numbers = columns.nth(abi.column)?.split(',').filter(|n| *n != "-");
    let rest = columns.nth(ABIS.len() - abi.column - 1)?;
    let call = |number| {
        Some(OpenCall {
            call: parse_call(abi, parse_number(abi, number)?, rest, named)?,
            abi,
        })
    };
    numbers.map(call).collect()
}

/// A number of the table of calls: `s3` is a part of `socketcall`, `i2` one of `ipc`.
fn parse_number(abi: ProgramKind, text: &str) -> Option<u32> {
    let digits = text.trim_start_matches(['s', 'i']);
    let base = match text.strip_suffix(digits)? {
        "" => abi.base,
        "s" => SOCKETCALL,
        _ => IPC,
    };
    Some(base + digits.parse::<u32>().ok()?)
}

/// The call of that number: the columns behind the numbers.
fn parse_call(abi: ProgramKind, nr: u32, line: &'static str, named: Named) -> Option<Syscall> {
    let mut columns = line.split('\t');
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
    let bits = (abi.word, time_bits(abi, nr));
    let mut word = 0;
    let args = columns
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .map(|text| {
            let arg = parse_arg(text, word, bits, named)?;
            word += if matches!(arg.kind, ArgKind::Pair(_)) {
                2
            } else {
                1
            };
            Some(arg)
        })
        .collect::<Option<Vec<SyscallArg>>>()?;
    let bare = match bare {
        Some(name) => Some(args.iter().find(|arg| arg.name == name)?.word),
        None => None,
    };
    Some(Syscall {
        nr,
        name,
        probe,
        point: point.unwrap_or(probe),
        bare,
        entry: entry.unwrap_or(name),
        ret,
        args: args.leak(),
        variants: None,
        variables: &[],
    })
}

fn parse_arg(text: &'static str, word: u8, bits: (u8, u8), named: Named) -> Option<SyscallArg> {
    let (names, kind) = text.split_once(':')?;
    let (name, kernel_name) = names.split_once('/').unwrap_or((names, names));
    let (kind, bits, signed) = parse_kind(kind, bits, named)?;
    Some(SyscallArg {
        name,
        kernel_name,
        word,
        kind,
        bits,
        signed,
    })
}

/// A kind with the number of significant bits and whether they are signed. `word` and `time` are the bits of
/// a long and of a time's fields.
fn parse_kind(
    kind: &'static str,
    (word, time): (u8, u8),
    named: Named,
) -> Option<(ArgKind, u8, bool)> {
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
        "pair" => (ArgKind::Pair(NumberBase::Signed), 64, true),
        "pairu" => (ArgKind::Pair(NumberBase::Unsigned), 64, false),
        "pairx" => (ArgKind::Pair(NumberBase::Hex), 64, false),
        "blocks" => (ArgKind::Blocks, word, false),
        "result" => (ArgKind::Result(word), word, false),
        "unseen" => (ArgKind::Unseen, word, true),
        "unseen32" => (ArgKind::Unseen, 32, true),
        other => {
            if let Some(table) = other.strip_prefix('|') {
                (ArgKind::Flags(find_flags(named, table)?), native, !unsigned)
            } else if let Some(table) = other.strip_prefix('=') {
                (
                    ArgKind::Choice(find_flags(named, table)?),
                    native,
                    !unsigned,
                )
            } else if let Some(name) = other.strip_prefix("{{") {
                let structure = find_structure(named, name.strip_suffix("}}")?, word)?;
                (ArgKind::Braced(structure), word, false)
            } else if let Some(name) = other.strip_prefix('{') {
                // Without fields for programs of this kind it is an address.
                let structure =
                    find_structure(named, name.strip_suffix('}')?, if long { 64 } else { word });
                (structure.map_or(ArgKind::Ptr, ArgKind::Struct), word, false)
            } else if let Some(name) = other.strip_prefix('[') {
                let structure = find_structure(named, name.strip_suffix(']')?, 64)?;
                (ArgKind::Packed(structure), 32, !unsigned)
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

fn parse_flag_table(line: &'static str) -> Option<FlagTable> {
    let (name, flags) = line.split_once('\t')?;
    let (name, suffix) = name.split_once(':').unwrap_or((name, ""));
    let bits = |prefix: char| match suffix.strip_prefix(prefix) {
        Some("") | None => Some(0),
        Some(bits) => u64::from_str_radix(bits, 8).ok(),
    };
    let flags = flags.split_ascii_whitespace().map(parse_flag);
    let mut ordered: Vec<Flag> = Vec::new();
    for flag in flags {
        let flag = flag?;
        let part_of = |f: &Flag| f.mask != flag.mask && f.mask & flag.mask == f.mask;
        let index = ordered.iter().position(part_of).unwrap_or(ordered.len());
        ordered.insert(index, flag);
    }
    Some(FlagTable {
        name,
        decimal: suffix == "d",
        wide: suffix == "w",
        octal: bits('o')?,
        number: bits('d')?,
        flags: ordered.leak(),
    })
}

/// The table of all processors with the rows of one: `specific` replaces flags of the same name, adds others, and
/// leaves out those with a minus in front.
fn with_own(base: &FlagTable, specific: FlagTable) -> FlagTable {
    let mut flags = base.flags.to_vec();
    for flag in specific.flags {
        let name = flag.name.trim_start_matches('-');
        let index = flags.iter().position(|f| f.name == name);
        flags.retain(|f| f.name != name);
        if flag.name == name {
            flags.insert(index.unwrap_or(flags.len()), *flag);
        }
    }
    FlagTable {
        name: specific.name,
        flags: flags.leak(),
        ..base.clone()
    }
}

fn parse_flag(text: &'static str) -> Option<Flag> {
    let (name, value) = match text.split_once('=') {
        Some(both) => both,
        None => (text.starts_with('-').then_some(text)?, "0"),
    };
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

/// Reads a line of a call's forms.
fn parse_variant(open: &mut OpenCall, line: &'static str, named: Named) -> Option<()> {
    let args = open.call.args;
    let bits = (open.abi.word, time_bits(open.abi, open.call.nr));
    let mut columns = line.split('\t').skip(1);
    let mut selectors = columns.next()?.split_ascii_whitespace();
    let (first, second) = (selectors.next()?, selectors.next());
    let (values, kinds) = (columns.next()?, columns.next()?);
    let case = |by: &Decider, args| {
        Some(Case {
            values: by.values(values)?.leak(),
            args: parse_kinds(args, kinds, bits, named)?,
            variants: None,
        })
    };
    // A second argument decides where the first one has a value.
    let Some(second) = second else {
        let by = Decider::of(args, first)?;
        let case = case(&by, args)?;
        let mut known = open.call.variants.cloned().unwrap_or_else(|| by.variants());
        match values == "*" {
            true => known.others = Some(case.args),
            false if case.values.is_empty() => {}
            false => push(&mut known.cases, case),
        }
        open.call.variants = Some(Box::leak(known.into()));
        return Some(());
    };
    let (first, value) = first.split_once('=')?;
    let value = Decider::of(args, first)?.value(value)?;
    let mut known = open.call.variants?.clone();
    let mut cases = known.cases.to_vec();
    let outer = cases.iter_mut().find(|case| case.values.contains(&value))?;
    let by = Decider::of(outer.args, second)?;
    let case = case(&by, outer.args)?;
    let inner = outer.variants.get_or_insert_with(|| by.variants());
    push(&mut inner.cases, case);
    known.cases = cases.leak();
    open.call.variants = Some(Box::leak(known.into()));
    Some(())
}

/// The first arguments with these kinds; `.` is the kind that one has.
fn parse_kinds(
    args: &[SyscallArg],
    kinds: &'static str,
    bits: (u8, u8),
    named: Named,
) -> Option<&'static [SyscallArg]> {
    let arg = |(arg, kind): (&SyscallArg, &'static str)| {
        let mut arg = *arg;
        if kind != "." {
            (arg.kind, arg.bits, arg.signed) = parse_kind(kind, bits, named)?;
        }
        Some(arg)
    };
    let args = args.iter().zip(kinds.split_ascii_whitespace()).map(arg);
    Some(args.collect::<Option<Vec<SyscallArg>>>()?.leak())
}

/// The argument that decides.
struct Decider {
    word: u8,
    mask: u64,
    names: Option<&'static FlagTable>,
}

impl Decider {
    /// `NAME`, or `NAME/MASK`.
    fn of(args: &[SyscallArg], selector: &str) -> Option<Decider> {
        let (name, mask) = selector.split_once('/').unwrap_or((selector, ""));
        let by = args.iter().find(|arg| arg.name == name)?;
        Some(Decider {
            word: by.word,
            mask: match mask {
                "" => u64::MAX >> (64 - u32::from(by.bits)),
                mask => number(mask)?.cast_unsigned(),
            },
            names: match by.kind {
                ArgKind::Flags(t) | ArgKind::Choice(t) => Some(t),
                _ => None,
            },
        })
    }

    /// A value by its name, or as a number.
    fn value(&self, text: &str) -> Option<u64> {
        let mut flags = self.names.iter().flat_map(|table| table.flags);
        let named = flags.find(|flag| flag.name == text);
        let value = named.map_or_else(|| number(text), |f| Some(f.value))?;
        Some(value.cast_unsigned() & self.mask)
    }

    /// Values by names or as numbers; `*` is none. A table of one processor may lack names.
    fn values(&self, text: &str) -> Option<Vec<u64>> {
        let values = text.split_ascii_whitespace().filter(|v| *v != "*");
        let may_lack_names = self.names.is_some_and(|table| table.name.contains('@'));
        let values = values.map(|v| self.value(v));
        values.filter(|v| !may_lack_names || v.is_some()).collect()
    }

    fn variants(&self) -> ArgVariants {
        ArgVariants {
            word: self.word,
            mask: self.mask,
            cases: &[],
            others: None,
        }
    }
}

/// Bits of a call's times. From 403 on, i386 has the calls with 64-bit time.
fn time_bits(abi: ProgramKind, nr: u32) -> u8 {
    let long = abi.word == 64 || (COMPAT + 403..SOCKETCALL).contains(&nr);
    if long { 64 } else { 32 }
}

fn find_flags(named: Named, name: &str) -> Option<&'static FlagTable> {
    let of_processor = |table: &&FlagTable| {
        let processor = table.name.strip_prefix(name)?.strip_prefix('@')?;
        (processor == named.processor).then_some(())
    };
    let mut tables = named.flags.iter();
    let of_processor = tables.clone().find(|table| of_processor(table).is_some());
    of_processor.or_else(|| tables.find(|table| table.name == name))
}

/// A structure by its name, as programs with longs of `word` bits have it.
fn find_structure(named: Named, name: &str, word: u8) -> Option<&'static Structure> {
    let sized = if word == 64 { ".64" } else { ".32" };
    let mut structures = named.structures.iter();
    structures.find(|s| match s.name.strip_prefix(name) {
        Some(rest) => rest.is_empty() || rest == sized,
        None => false,
    })
}

fn parse_structure(line: &'static str, named: Named, table: &mut Vec<Structure>) -> Option<()> {
    let (name, text) = line.split_once('\t')?;
    let (name, when) = name
        .split_once('?')
        .map_or((name, None), |(n, w)| (n, Some(w)));
    let (name, null) = name.strip_suffix('!').map_or((name, false), |n| (n, true));
    let test = |test: &'static str| {
        let (field, value) = test.split_once('=')?;
        let field = parse_field(field, named)?;
        let unused = 64 - u32::from(field.bits);
        let value = number(value)?.cast_unsigned() << unused;
        Some((field, value >> unused))
    };
    let when = when.iter().flat_map(|w| w.split('&')).map(test);
    let when = when.collect::<Option<Vec<_>>>()?;
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((before, field)) = rest.split_once('<') {
        let (field, after) = field.split_once('>')?;
        fields.push((before, parse_field(field, named)?));
        rest = after;
    }
    let ends = fields
        .iter()
        .map(|(_, f)| f)
        .chain(when.iter().map(|(f, _)| f));
    let end = |field: &StructureField| field.offset + (field.shift + field.bits).div_ceil(8);
    let size = ends.map(end).max().unwrap_or(1);
    let text = StructureText {
        when: when.leak(),
        fields: fields.leak(),
        end: rest,
    };
    match table.iter_mut().find(|s| s.name == name) {
        Some(known) => {
            known.size = known.size.max(size);
            push(&mut known.texts, text);
        }
        None => table.push(Structure {
            name,
            null,
            size,
            texts: vec![text].leak(),
        }),
    }
    Some(())
}

/// `OFFSET:KIND`, with the kinds of arguments and some more; `OFFSET+SHIFT/BITS:KIND` for a bit field.
fn parse_field(text: &'static str, named: Named) -> Option<StructureField> {
    let (offset, kind) = text.split_once(':')?;
    let (offset, part) = offset
        .split_once('+')
        .map_or((offset, None), |(o, part)| (o, part.split_once('/')));
    let value = |kind| (FieldKind::Value(kind), 0);
    let (kind, bits) = match kind {
        "u8" => value(ArgKind::Uint(8)),
        "u16" => value(ArgKind::Uint(16)),
        "u32" => value(ArgKind::Uint(32)),
        "u64" => value(ArgKind::Uint(64)),
        "i32" => value(ArgKind::Int(32)),
        "i64" => value(ArgKind::Int(64)),
        "x32" => value(ArgKind::Hex(32)),
        "x64" => value(ArgKind::Hex(64)),
        "micro32" => (FieldKind::Micro, 32),
        "micro64" => (FieldKind::Micro, 64),
        "nano32" => (FieldKind::Nano, 32),
        "nano64" => (FieldKind::Nano, 64),
        "date32" => (FieldKind::Date, 32),
        "date64" => (FieldKind::Date, 64),
        other => {
            let (kind, bits, _) = parse_kind(other, (64, 64), named)?;
            (FieldKind::Value(kind), bits)
        }
    };
    let bits = match kind {
        FieldKind::Value(ArgKind::Uint(n) | ArgKind::Int(n) | ArgKind::Hex(n)) => n,
        _ => bits,
    };
    let (shift, bits) = match part {
        Some((shift, bits)) => (shift.parse().ok()?, bits.parse().ok()?),
        None => (0, bits),
    };
    Some(StructureField {
        offset: offset.parse().ok()?,
        kind,
        bits,
        shift,
    })
}

/// Gives the variable of a line to its calls. The first line of a name counts, and arguments come before.
fn parse_variable(line: &'static str, open_calls: &mut [OpenCall]) -> Option<()> {
    let mut columns = line.split('\t');
    let calls = columns.next()?;
    let (name, kind) = columns.next()?.split_once(':')?;
    let text = match kind {
        "string" => true,
        "long" => false,
        _ => return None,
    };
    let value = columns.next()?;
    for selector in calls.split_ascii_whitespace() {
        let bare = selector.strip_suffix(".return");
        let variable = SyscallVariable {
            name,
            text,
            at_return: bare.is_some(),
            value,
        };
        let selector = bare.unwrap_or(selector);
        let compat = selector.strip_prefix("compat_");
        let of_name = |open: &OpenCall| {
            let has_name = |name| open.call.name == name || open.call.entry == name;
            has_name(compat.unwrap_or(selector)) && (compat.is_none() || open.call.is_compat())
        };
        let mut matched = false;
        for open in open_calls.iter_mut().filter(|open| of_name(open)) {
            matched = true;
            let known = open.call.variables.iter().any(|v| v.name == name);
            if !known && !open.call.args.iter().any(|a| a.name == name) {
                push(&mut open.call.variables, variable);
            }
        }
        matched.then_some(())?;
    }
    Some(())
}
