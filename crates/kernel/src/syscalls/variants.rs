//! Arguments whose form depends on the value of another argument, and structures that arguments point to.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{Abi, Arg, ArgKind, FlagTable, Syscall, all, flag_table, lines, number, parse_kind};

const VARIANTS: &str = include_str!("../../data/variants.tsv");
const STRUCTURES: &str = include_str!("../../data/structures.tsv");

/// The forms of a call's arguments by the value of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variants {
    /// The word of the argument that decides.
    pub word: u8,
    /// Its bits that count.
    pub mask: u64,
    /// The arguments that `argstr` has for some values.
    pub cases: Vec<Case>,
    /// The arguments for all other values, if not those of the call.
    pub others: Option<Vec<Arg>>,
}

/// The arguments that `argstr` has for some values of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The values.
    pub values: Vec<u64>,
    /// The arguments.
    pub args: Vec<Arg>,
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
    pub texts: Vec<StructureText>,
}

/// The text of a structure.
#[derive(Debug, PartialEq, Eq)]
pub struct StructureText {
    /// Fields and the values that they must have.
    pub when: Vec<(Field, u64)>,
    /// Texts, and the fields behind them.
    pub fields: Vec<(&'static str, Field)>,
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

impl Field {
    /// The offset behind it, in bytes.
    fn end(&self) -> u8 {
        self.offset + (self.shift + self.bits).div_ceil(8)
    }
}

/// The forms of a call's arguments that depend on a value; `None` if all are fixed.
#[must_use]
pub fn variants(call: &Syscall) -> Option<&'static Variants> {
    static TABLES: [OnceLock<HashMap<u32, Variants>>; 2] = [OnceLock::new(), OnceLock::new()];
    let table = TABLES[call.abi as usize].get_or_init(|| {
        let mut rows: HashMap<&str, Vec<&'static str>> = HashMap::new();
        for line in lines(VARIANTS) {
            let name = line.split('\t').next().unwrap_or("");
            rows.entry(name).or_default().push(line);
        }
        let mut table = HashMap::new();
        for call in all(call.abi) {
            let by_probe = Some(call.probe).filter(|probe| *probe != call.name);
            let names = std::iter::once(call.name).chain(by_probe);
            for line in names.filter_map(|name| rows.get(name)).flatten() {
                let _ = parse_variant(call, line, &mut table);
            }
        }
        table
    });
    table.get(&call.nr)
}

pub(super) fn parse_variant(
    call: &Syscall,
    line: &'static str,
    table: &mut HashMap<u32, Variants>,
) -> Option<()> {
    let mut columns = line.split('\t').skip(1);
    let mut selectors = columns.next()?.split_ascii_whitespace();
    let (first, second) = (selectors.next()?, selectors.next());
    let (values, kinds) = (columns.next()?, columns.next()?);
    // A second argument decides where the first one has a value.
    let Some(second) = second else {
        let by = Decider::of(&call.args, first)?;
        let case = by.case(call, &call.args, values, kinds)?;
        let known = table.entry(call.nr).or_insert_with(|| by.variants());
        match values == "*" {
            true => known.others = Some(case.args),
            false => known.cases.push(case),
        }
        return Some(());
    };
    let (first, value) = first.split_once('=')?;
    let value = Decider::of(&call.args, first)?.value(value)?;
    let cases = &mut table.get_mut(&call.nr)?.cases;
    let outer = cases.iter_mut().find(|case| case.values.contains(&value))?;
    let by = Decider::of(&outer.args, second)?;
    let case = by.case(call, &outer.args, values, kinds)?;
    let inner = outer.variants.get_or_insert_with(|| by.variants());
    inner.cases.push(case);
    Some(())
}

/// The argument that decides.
struct Decider {
    word: u8,
    mask: u64,
    names: Option<&'static FlagTable>,
}

impl Decider {
    /// `NAME`, or `NAME/MASK`.
    fn of(args: &[Arg], selector: &str) -> Option<Decider> {
        let (name, mask) = selector.split_once('/').unwrap_or((selector, ""));
        let by = args.iter().find(|arg| arg.name == name)?;
        Some(Decider {
            word: by.word,
            mask: match mask {
                "" => u64::MAX >> (64 - u32::from(by.bits)),
                mask => number(mask)?.cast_unsigned(),
            },
            names: match by.kind {
                ArgKind::Flags(t) | ArgKind::Choice(t) => flag_table(t),
                _ => None,
            },
        })
    }

    /// A value by its name, or as a number.
    fn value(&self, text: &str) -> Option<u64> {
        let mut flags = self.names.iter().flat_map(|table| &table.flags);
        let named = flags.find(|flag| flag.name == text);
        let value = named.map_or_else(|| number(text), |f| Some(f.value))?;
        Some(value.cast_unsigned() & self.mask)
    }

    /// The case of some values, of which `*` is none, with these kinds of the arguments.
    fn case(
        &self,
        call: &Syscall,
        args: &[Arg],
        values: &str,
        kinds: &'static str,
    ) -> Option<Case> {
        let values = values.split_ascii_whitespace().filter(|v| *v != "*");
        let (word, time) = (word_bits(call.abi), time_bits(call.abi, call.nr));
        let kinds = kinds.split_ascii_whitespace();
        let arg = |(arg, kind): (&Arg, &'static str)| {
            let mut arg = *arg;
            if kind != "." {
                (arg.kind, arg.bits, arg.signed) = parse_kind(kind, word, time)?;
            }
            Some(arg)
        };
        Some(Case {
            values: values.map(|v| self.value(v)).collect::<Option<_>>()?,
            args: args.iter().zip(kinds).map(arg).collect::<Option<_>>()?,
            variants: None,
        })
    }

    fn variants(&self) -> Variants {
        Variants {
            word: self.word,
            mask: self.mask,
            cases: Vec::new(),
            others: None,
        }
    }
}

/// Bits of a long.
pub(super) fn word_bits(abi: Abi) -> u8 {
    if abi == Abi::X86_64 { 64 } else { 32 }
}

/// Bits of a call's times. From 403 on, i386 has the calls with 64-bit time.
pub(super) fn time_bits(abi: Abi, nr: u32) -> u8 {
    if abi == Abi::I386 && nr < 403 { 32 } else { 64 }
}

/// A structure by its name, as programs with longs of `word` bits have it.
#[must_use]
pub fn structure(name: &str, word: u8) -> Option<&'static Structure> {
    static TABLE: OnceLock<Vec<Structure>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: Vec<Structure> = Vec::new();
        for line in lines(STRUCTURES) {
            let _ = parse_structure(line, &mut table);
        }
        table
    });
    let sized = if word == 64 { ".64" } else { ".32" };
    table.iter().find(|s| match s.name.strip_prefix(name) {
        Some(rest) => rest.is_empty() || rest == sized,
        None => false,
    })
}

pub(super) fn parse_structure(line: &'static str, table: &mut Vec<Structure>) -> Option<()> {
    let (name, text) = line.split_once('\t')?;
    let (name, when) = name
        .split_once('?')
        .map_or((name, None), |(n, w)| (n, Some(w)));
    let (name, null) = name.strip_suffix('!').map_or((name, false), |n| (n, true));
    let test = |test: &'static str| {
        let (field, value) = test.split_once('=')?;
        let field = parse_field(field)?;
        let unused = 64 - u32::from(field.bits);
        let value = number(value)?.cast_unsigned() << unused;
        Some((field, value >> unused))
    };
    let when = when.iter().flat_map(|w| w.split('&')).map(test);
    let when = when.collect::<Option<Vec<_>>>()?;
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((before, field)) = rest.split_once('<') {
        let (field, behind) = field.split_once('>')?;
        fields.push((before, parse_field(field)?));
        rest = behind;
    }
    let ends = fields
        .iter()
        .map(|(_, f)| f)
        .chain(when.iter().map(|(f, _)| f));
    let size = ends.map(Field::end).max().unwrap_or(1);
    let text = StructureText {
        when,
        fields,
        end: rest,
    };
    match table.iter_mut().find(|s| s.name == name) {
        Some(known) => {
            known.size = known.size.max(size);
            known.texts.push(text);
        }
        None => table.push(Structure {
            name,
            null,
            size,
            texts: vec![text],
        }),
    }
    Some(())
}

/// `OFFSET:KIND`, with the kinds of arguments and some more; `OFFSET+SHIFT/BITS:KIND` for a bit field.
fn parse_field(text: &'static str) -> Option<Field> {
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
            let (kind, bits, _) = parse_kind(other, 64, 64)?;
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
    Some(Field {
        offset: offset.parse().ok()?,
        kind,
        bits,
        shift,
    })
}

/// The lines of the tables that nothing understands.
#[cfg(test)]
pub(super) fn unknown_lines() -> Vec<&'static str> {
    let mut table = Vec::new();
    let structures = lines(STRUCTURES).filter(|line| parse_structure(line, &mut table).is_none());
    let mut unknown: Vec<&'static str> = structures.collect();
    let mut table = HashMap::new();
    unknown.extend(lines(VARIANTS).filter(|line| {
        let name = line.split('\t').next().unwrap_or("");
        let mut calls = [Abi::X86_64, Abi::I386].iter().flat_map(|abi| all(*abi));
        let call = calls.find(|c| c.name == name || c.probe == name);
        call.is_none_or(|call| parse_variant(call, line, &mut table).is_none())
    }));
    unknown
}
