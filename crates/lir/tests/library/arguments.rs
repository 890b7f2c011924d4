//! The texts of system calls' arguments against Rust, on random arguments, as the functions are
//! written and with their loops as callbacks. The host appends to a string, and has a program with
//! memory that is mapped, and memory that only `user_text` gets at.

use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::arguments::{
    ArgumentLayout, BRACES, BUFFER, DeferredReads, ENTRY, FOLLOWS, MAX_ARGV, PAIR_BASE, kind,
    module, structure, time, variant,
};

use super::forms::{Forms, forms, properties};
use super::generated::{any_text, escapes, table};

const LENGTH: usize = 0;
const ALLOWED: usize = 8;
const ARGUMENTS: usize = 16;
const STAGING: usize = 64;
const MOST: usize = 128;
const QUOTED: usize = STAGING + MOST + 8;
const BLOCK: usize = QUOTED + MOST + 16;

const SIGNED: u64 = 1;
const MARK: u64 = 32;
/// A result of `user_text`: the controller can read the memory.
const ABSENT: u64 = 1;

/// The lists of names: flags at 0, values behind them, then flags with permissions.
const FLAGS: &[(u64, u64, &str)] = &[
    (3, 0, "RDONLY"),
    (3, 1, "WRONLY"),
    (0x1010, 0x1010, "SYNC"),
    (0x1000, 0x1000, "DSYNC"),
    (0x40, 0x40, "CREAT"),
];
const VALUES: &[(u64, u64, &str)] = &[
    (u64::MAX, 0, "ZERO"),
    (u64::MAX, 7, "SEVEN"),
    (u64::MAX, u64::MAX, "MINUS"),
];

/// A name as long as fits in an entry.
const LONG: &str = "REGISTER_PRIVATE_EXPEDITED_SYNC_CORE_AND_NINETEEN_MORE";
const CREATION: &[(u64, u64, &str)] = &[(0x200, 0x200, LONG), (0x400, 0x400, "EXCL")];
/// Flags with a number among them, behind the rows of values, and the bits of the number.
const TAGGED: &[(u64, u64, &str)] = &[(0x1_0000, 0x1_0000, "ONE"), (0x2_0000, 0x2_0000, "TWO")];
const TAGS: u64 = 0xffff;
/// The bits that such flags have in octal.
const PERMISSIONS: u64 = 0o777;

fn layout() -> ArgumentLayout {
    ArgumentLayout {
        length: LENGTH as i32,
        most: MOST as i32,
        arguments: ARGUMENTS as i32,
        staging: STAGING as i32,
        quoted: QUOTED as i32,
        quote: "quote".into(),
        signed: SIGNED as i32,
        mark: MARK as i32,
        defer: Some(DeferredReads {
            allowed: ALLOWED as i32,
            absent: ABSENT as i32,
            quoted: 2,
        }),
    }
}

fn names() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (list, octal) in [(FLAGS, 0), (VALUES, 0), (CREATION, PERMISSIONS)] {
        for (mask, bits, name) in list.iter().chain(&[(0, octal, "")]) {
            bytes.extend(mask.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(ENTRY as usize), 0);
        }
    }
    // A structure: 8 bytes that are 7, or a number of 4 bytes at 4 with a name of its value.
    let size = u64::from(ENTRY);
    let word = |kind: i32, bytes: u64| kind as u64 | (64 - 8 * bytes) << 8;
    let mut entry = |words: [u64; 2], text: &[u8]| {
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.extend(text);
        bytes.resize(bytes.len().next_multiple_of(ENTRY as usize), 0);
    };
    let test = word(structure::TEST, 8);
    entry([test, size << structure::SKIP], &7u64.to_le_bytes());
    entry([0, 0], b"{seven}");
    let values = (FLAGS.len() + 1) as u64 * size;
    entry([word(kind::SIGNED, 4), 4], b"{a=");
    entry([word(kind::ENUM, 8) | values << 16, 0], b", b=");
    entry([0, 0], b"}");
    // The values of an argument with their rows, and a row of another list.
    for (value, row) in ROWS.iter().chain(&[BEHIND]) {
        entry([*value, *row], b"");
    }
    // Bit fields of four bytes, and a date behind them.
    let bits = |kind: i32, bits: u64| kind as u64 | (64 - bits) << 8;
    let location = |offset: u64, shift: u64| offset | shift << structure::SHIFT;
    entry(
        [bits(kind::CHOICE, 3) | values << 16, location(0, 28)],
        b"{",
    );
    entry([bits(kind::SIGNED, 12), location(0, 12)], b", ");
    entry([bits(kind::UNSIGNED, 12), location(1, 4)], b", ");
    entry([word(kind::DATE, 4), location(4, 0)], b", ");
    entry([0, 0], b"}");
    for (mask, bits, name) in TAGGED {
        entry([*mask, *bits], name.as_bytes());
    }
    entry([0, 1 << 63 | TAGS], b"");
    bytes
}

/// Offset of the bit fields.
fn bits_at() -> u64 {
    structure_at() + (6 + ROWS.len() as u64) * u64::from(ENTRY)
}

/// Day of the week, month, day, time and year of a number of seconds since 1970, counted day by day.
fn date(seconds: i64) -> String {
    let leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let days = seconds.div_euclid(86_400);
    let mut left = days;
    let mut year = 1970;
    let length = |y: i64| if leap(y) { 366 } else { 365 };
    while left < 0 {
        year -= 1;
        left += length(year);
    }
    while left >= length(year) {
        left -= length(year);
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let months = [
        ("Jan", 31),
        ("Feb", february),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let mut months = months.into_iter();
    let month = months.find(|(_, length)| {
        let here = left < *length;
        left -= if here { 0 } else { *length };
        here
    });
    let month = month.expect("a month").0;
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let day = week[days.rem_euclid(7) as usize];
    let time = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!(
        "{day} {month} {:2} {hour:02}:{minute:02}:{second:02} {year}",
        left + 1
    )
}

/// Offset of the structure.
fn structure_at() -> u64 {
    let lists = FLAGS.len() + VALUES.len() + CREATION.len() + 3;
    lists as u64 * u64::from(ENTRY)
}

/// Values of an argument, and their rows.
const ROWS: &[(u64, u64)] = &[(0, 100), (3, 101), (0x7f, 102)];
/// A value that is in no list of these.
const BEHIND: (u64, u64) = (0x55, 200);

fn functions() -> Rc<Forms> {
    forms("arguments", || module(&layout(), names(), &table()))
}

/// Memory of the program.
#[derive(Debug, Clone)]
struct Mapping {
    at: u64,
    bytes: Vec<u8>,
    /// Whether a helper can read it; `user_text` can otherwise.
    mapped: bool,
}

/// The host.
#[derive(Debug, Default)]
struct Recorder {
    block: u64,
    program: Vec<Mapping>,
    text: Vec<u8>,
    deferred: Vec<u64>,
}

impl Recorder {
    /// As many of the bytes at an address as there are, if they are `mapped`.
    fn bytes(&self, at: u64, size: u64, mapped: bool) -> Option<&[u8]> {
        let of = |m: &Mapping| {
            let offset = at.checked_sub(m.at)? as usize;
            (m.mapped == mapped && offset < m.bytes.len()).then_some(offset)
        };
        let (mapping, offset) = self.program.iter().find_map(|m| Some((m, of(m)?)))?;
        let end = mapping.bytes.len().min(offset + size as usize);
        Some(&mapping.bytes[offset..end])
    }
}

/// The bytes in front of the first NUL.
fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

impl Host for Recorder {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let [to, size, from] = *args else {
            return Err(Trap::Helper(format!("{helper:?}")));
        };
        if helper == Helper::ReadText {
            let end = self.block + STAGING as u64 + MOST as u64;
            let bytes = memory.read(from, size.min(end - from) as usize)?;
            let text = [until_nul(bytes), &[0]].concat();
            return memory.write(to, &text).map(|()| text.len() as u64);
        }
        let efault = (-14i64).cast_unsigned();
        let Some(bytes) = self.bytes(from, size, true) else {
            return Ok(efault);
        };
        match helper {
            Helper::ReadUser if bytes.len() < size as usize => Ok(efault),
            Helper::ReadUser => memory.write(to, bytes).map(|()| 0),
            Helper::ReadUserText => {
                let mut text = until_nul(bytes).to_vec();
                text.truncate(size as usize - 1);
                text.push(0);
                memory.write(to, &text)?;
                Ok(text.len() as u64)
            }
            other => Err(Trap::Helper(format!("{other:?}"))),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            _ => None,
        }
    }

    fn call(&mut self, memory: &mut Memory, name: &str, args: &[u64]) -> Result<u64, Trap> {
        match (name, args) {
            ("append_text", [block, text, size, 0]) if *block == self.block => {
                let bytes = memory.read(*text, *size as usize)?.to_vec();
                self.text.extend(until_nul(&bytes));
            }
            ("user_text", [size, address, raw @ 0..=1]) => {
                let absent = self.deferred.contains(address);
                let Some(bytes) = self.bytes(*address, *size, false) else {
                    return Ok(if absent { ABSENT } else { 2 });
                };
                if *raw == 1 && bytes.len() < *size as usize {
                    return Ok(2);
                }
                let bytes = if *raw == 1 { bytes } else { until_nul(bytes) };
                let bytes = [bytes, &[0]].concat();
                memory.write(self.block + STAGING as u64, &bytes)?;
            }
            ("user_defer", [address, _, 2]) => {
                self.text.extend(format!("<{address:x}>").bytes());
            }
            ("quote", [from, to, count, limit, 1]) => {
                let bytes = memory.read(*from, *count as usize)?.to_vec();
                // As many as are appended.
                let buffer = memory.read(*to, *limit as usize + 9)?;
                assert!(buffer.iter().all(|b| *b == 0), "no zeros for a quoted text");
                let text = [b"\"", &*bytes, b"\""].concat();
                let most = text.len().min(*limit as usize + 1);
                memory.write(*to, &text[..most])?;
            }
            (number, [precision, value, flags, 0]) => {
                let digits = (*precision as i64).max(0) as usize;
                let mark = flags & MARK != 0;
                let only = MARK
                    | if number == "append_number_10" {
                        SIGNED
                    } else {
                        0
                    };
                assert_eq!(flags & !only, 0, "{number}: flags");
                let text = match (number, flags & SIGNED != 0) {
                    ("append_number_10", true) => match value.cast_signed() {
                        n if n < 0 => format!("-{:0digits$}", n.unsigned_abs()),
                        n => format!("{n:0digits$}"),
                    },
                    ("append_number_10", false) => format!("{value}"),
                    ("append_number_8", _) if mark => format!("0{value:o}"),
                    ("append_number_16", _) if mark => format!("{value:#x}"),
                    ("append_number_16", _) => format!("{value:0digits$x}"),
                    other => return Err(Trap::Missing(format!("{other:?}"))),
                };
                self.text.extend(text.bytes());
            }
            other => return Err(Trap::Missing(format!("{other:?}"))),
        }
        Ok(0)
    }
}

/// What surrounds an argument.
#[derive(Clone, Default)]
struct Given {
    program: Vec<Mapping>,
    deferred: Vec<u64>,
    allowed: bool,
    /// The six arguments.
    words: [u64; 6],
    /// The length of the text so far.
    length: u64,
}

/// The text of an argument.
fn text(descriptor: u64, value: u64, given: &Given) -> String {
    functions().same(100_000, |mut machine| {
        let mut bytes = vec![0xa5; BLOCK];
        let mut word = |at: usize, n: u64| bytes[at..at + 8].copy_from_slice(&n.to_le_bytes());
        word(LENGTH, given.length);
        word(ALLOWED, given.allowed.into());
        for (i, n) in given.words.into_iter().enumerate() {
            word(ARGUMENTS + 8 * i, n);
        }
        let mut host = Recorder {
            block: machine.memory.add(bytes, RegionKind::Memory),
            program: given.program.clone(),
            deferred: given.deferred.clone(),
            ..Recorder::default()
        };
        let result = machine.run("put_arg", &[descriptor, value], &mut host);
        assert_eq!(result, Ok(0), "{descriptor:#x} {value:#x}");
        String::from_utf8(host.text).expect("text")
    })
}

/// Describes a value of `bytes` bytes.
fn sized(kind: i32, bytes: u64) -> u64 {
    kind as u64 | (64 - 8 * bytes) << 8
}

/// A descriptor with more from bit 16 on.
fn with(kind: i32, bytes: u64, more: usize) -> u64 {
    sized(kind, bytes) | (more as u64) << 16
}

/// The low `bytes` bytes of a number, extended with their sign.
fn signed(value: u64, bytes: u64) -> i64 {
    let unused = 64 - 8 * bytes;
    (value << unused).cast_signed() >> unused
}

fn unsigned(value: u64, bytes: u64) -> u64 {
    let unused = 64 - 8 * bytes;
    value << unused >> unused
}

fn mapping(at: u64, bytes: Vec<u8>, mapped: bool) -> Given {
    Given {
        program: vec![Mapping { at, bytes, mapped }],
        ..Given::default()
    }
}

const AT: u64 = 0x7f00_0000_1000;

fn bytes_of_value() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1u64), Just(2), Just(4), Just(8)]
}

/// Numbers, small ones often.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..300u64,
        (0..300u64).prop_map(|n| n.wrapping_neg())
    ]
}

fn letters(most: usize) -> impl Strategy<Value = String> {
    vec(b'a'..=b'z', 0..most).prop_map(|b| String::from_utf8(b).expect("letters"))
}

#[test]
fn functions_of_structures_know_null() {
    let of = |null: u64| kind::STRUCT as u64 | structure_at() << 16 | 8 << structure::SIZE | null;
    assert_eq!(text(of(0), 0, &Given::default()), "0x0");
    let null = 1 << structure::NULL;
    assert_eq!(text(of(null), 0, &Given::default()), "NULL");
}

properties! {
    also functions_of_structures_know_null;

    500 cases: fn numbers(value in any_number(), bytes in bytes_of_value(), follows in any::<bool>()) {
        let comma = if follows { FOLLOWS } else { 0 };
        let before = if follows { ", " } else { "" };
        let short = unsigned(value, bytes);
        let rows = [
            (kind::SIGNED, signed(value, bytes).to_string()),
            (kind::UNSIGNED, short.to_string()),
            (kind::HEX, format!("{short:#x}")),
            (kind::OCTAL, format!("0{short:o}")),
        ];
        for (kind, number) in rows {
            let got = text(sized(kind, bytes) | comma, value, &Given::default());
            prop_assert_eq!(got, format!("{before}{number}"));
        }
        prop_assert_eq!(text(kind::SHOWN as u64 | comma, value, &Given::default()), "");
    }

    500 cases: fn directories_and_pairs(value in prop_oneof![any_number(), Just(0xffff_ff9c)], high in any::<u32>()) {
        let fd = signed(value, 4);
        let name = if fd == -100 { "AT_FDCWD".to_owned() } else { fd.to_string() };
        prop_assert_eq!(text(sized(kind::DIRFD, 4), value, &Given::default()), name);

        let mut given = Given::default();
        given.words[3] = high.into();
        let pair = (u64::from(high) << 32 | unsigned(value, 4)).cast_signed();
        let bases = [
            (kind::SIGNED, pair.to_string()),
            (kind::UNSIGNED, pair.cast_unsigned().to_string()),
            (kind::HEX, format!("{pair:#x}")),
        ];
        for (base, want) in bases {
            let descriptor = with(kind::PAIR, 4, 3) | (base as u64) << PAIR_BASE;
            prop_assert_eq!(text(descriptor, value, &given), want);
        }
    }

    /// An open without O_CREAT has no mode, and no comma for it.
    500 cases: fn modes(flags in any_number(), mode in 0..0o10000u64) {
        let mut given = Given::default();
        given.words[1] = flags;
        let creates = flags & 0x40 != 0;
        let wanted = if creates { format!(", 0{mode:o}") } else { String::new() };
        let descriptor = with(kind::OPEN_MODE, 4, 1) | FOLLOWS;
        prop_assert_eq!(text(descriptor, mode, &given), wanted);
    }

    500 cases: fn names_of_flags(value in prop_oneof![0..0x2000u64, any::<u64>()], bytes in bytes_of_value()) {
        let wide = signed(value, bytes).cast_unsigned();
        for (kind, value_of_size) in [(kind::FLAGS, unsigned(value, bytes)), (kind::WIDE, wide)] {
            let (mut rest, mut found) = (value_of_size, Vec::new());
            for (mask, bits, name) in FLAGS {
                if value_of_size & mask == *bits && rest & bits == *bits {
                    rest &= !mask;
                    found.push((*name).to_owned());
                }
            }
            if found.is_empty() || rest != 0 {
                found.push(format!("{rest:#x}"));
            }
            let got = text(with(kind, bytes, 0), value, &Given::default());
            prop_assert_eq!(got, found.join("|"));
        }
    }

    500 cases: fn permissions_in_flags(value in prop_oneof![0..0x2000u64, any::<u64>(), any::<u64>().prop_map(|n| n & !PERMISSIONS)]) {
        let mut found: Vec<String> = (CREATION.iter().filter(|(mask, ..)| value & mask != 0))
            .map(|(.., name)| (*name).to_owned())
            .collect();
        let named = CREATION.iter().fold(0, |all, (mask, ..)| all | mask);
        let rest = value & !named & !PERMISSIONS;
        if rest != 0 {
            found.push(format!("{rest:#x}"));
        }
        let permissions = value & PERMISSIONS;
        if permissions != 0 || found.is_empty() {
            found.push(format!("0{permissions:o}"));
        }
        let list = (FLAGS.len() + VALUES.len() + 2) * ENTRY as usize;
        let got = text(with(kind::FLAGS, 8, list), value, &Given::default());
        prop_assert_eq!(got, found.join("|"));
    }

    500 cases: fn numbers_in_flags(
        tag in prop_oneof![Just(0u64), Just(7), any::<u16>().prop_map(u64::from)],
        flags in 0..4u64, high in prop_oneof![Just(0u64), any::<u64>()],
    ) {
        let high = high >> 18 << 18;
        let value = high | flags << 16 | tag;
        let named = TAGGED.iter().filter(|(mask, ..)| value & mask != 0);
        let mut found: Vec<String> = named.map(|(.., name)| (*name).to_owned()).collect();
        if high != 0 {
            found.push(format!("{high:#x}"));
        }
        found.push(tag.to_string());
        let list = structure_at() + (11 + ROWS.len() as u64) * u64::from(ENTRY);
        let got = text(with(kind::FLAGS, 8, list as usize), value, &Given::default());
        prop_assert_eq!(got, found.join("|"));
    }

    500 cases: fn names_of_values(value in prop_oneof![0..10u64, Just(u64::MAX), any::<u64>()]) {
        let list = (FLAGS.len() + 1) * ENTRY as usize;
        let named = VALUES.iter().find(|v| v.1 == value).map(|v| v.2.to_owned());
        let rows = [
            (kind::ENUM, value.cast_signed().to_string()),
            (kind::CHOICE, format!("{value:#x}")),
        ];
        for (kind, number) in rows {
            let got = text(with(kind, 8, list), value, &Given::default());
            prop_assert_eq!(got, named.clone().unwrap_or(number));
        }
        // Behind the last list there are no names.
        let behind = text(with(kind::CHOICE, 8, 1 << 20), value, &Given::default());
        prop_assert_eq!(behind, format!("{value:#x}"));
    }

    500 cases: fn texts_of_the_program(
        content in prop_oneof!["[a-z\"]{0,60}".prop_map(String::into_bytes), any_text(24)],
        mapped in any::<bool>(),
        length in prop_oneof![Just(0u64), Just(MOST as u64), Just(MOST as u64 + 1)],
    ) {
        let content = until_nul(&content);
        let given = mapping(AT, [content, b"\0xyz"].concat(), mapped);
        let descriptor = sized(kind::USER_STR, 8);
        let escaped: Vec<u8> = escapes(content).into_iter().flat_map(|(_, escape)| escape).collect();
        let escaped = String::from_utf8(escaped).expect("ASCII");
        let full = Given { length, ..given.clone() };
        let wanted = if length > MOST as u64 { String::new() } else { format!("\"{escaped}\"") };
        prop_assert_eq!(text(descriptor, AT, &full), wanted);
        prop_assert_eq!(text(descriptor, 0, &given), "0x0");
        prop_assert_eq!(text(descriptor, AT - 1, &given), format!("{:#x}", AT - 1));
        // The controller reads what it may.
        for allowed in [false, true] {
            let given = Given { deferred: vec![AT - 1], allowed, ..mapping(AT, vec![0], mapped) };
            let wanted = if allowed { format!("<{:x}>", AT - 1) } else { format!("{:#x}", AT - 1) };
            prop_assert_eq!(text(descriptor, AT - 1, &given), wanted);
        }
    }

    500 cases: fn vectors(texts in vec(letters(6), 0..20), narrow in any::<bool>(), mapped in any::<bool>(), ends in any::<bool>()) {
        let at = 0x7f00_1000;
        let (mut pointers, mut bytes) = (Vec::new(), Vec::new());
        let size = if narrow { 4 } else { 8 };
        let strings = at + 0x1000;
        for t in &texts {
            let pointer: u64 = strings + bytes.len() as u64;
            pointers.extend(&pointer.to_le_bytes()[..size]);
            bytes.extend(t.bytes().chain([0]));
        }
        // Without its end the vector runs into memory that does not exist.
        let last = at + pointers.len() as u64;
        if ends {
            pointers.extend(&[0; 8][..size]);
        }
        let mut given = mapping(at, pointers, mapped);
        given.program.push(Mapping { at: strings, bytes, mapped: true });
        let most = MAX_ARGV as usize;
        let mut wanted: Vec<String> = texts.iter().take(most).map(|t| format!("\"{t}\"")).collect();
        match (texts.len() >= most, ends) {
            (true, _) => wanted.push("...".into()),
            (false, false) => wanted.push(format!("{last:#x}")),
            (false, true) => {}
        }
        let kind = if narrow { kind::ARGV_4 } else { kind::ARGV };
        prop_assert_eq!(text(sized(kind, 8), at, &given), format!("[{}]", wanted.join(", ")));
        prop_assert_eq!(text(sized(kind, 8), 0, &given), "[]");
    }

    500 cases: fn times(numbers in [any::<i32>(); 4], narrow in any::<bool>(), micro in any::<bool>(), timer in any::<bool>(), mapped in any::<bool>()) {
        let bits = [(narrow, time::NARROW), (micro, time::MICRO), (timer, time::TIMER)];
        let bits: u8 = bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        let fields: Vec<u8> = numbers.iter().flat_map(|n| match narrow {
            true => n.to_le_bytes().to_vec(),
            false => i64::from(*n).to_le_bytes().to_vec(),
        }).collect();
        let digits = if micro || timer { 6 } else { 9 };
        let fraction = |n: i32| match n < 0 {
            true => format!("-{:0digits$}", n.unsigned_abs()),
            false => format!("{n:0digits$}"),
        };
        let [a, b, c, d] = numbers;
        let one = format!("{a}.{}", fraction(b));
        let wanted = match timer {
            true => format!("[{one},{c}.{}]", fraction(d)),
            false => format!("[{one}]"),
        };
        let descriptor = with(kind::TIME, 8, bits.into());
        let given = mapping(AT, fields, mapped);
        prop_assert_eq!(text(descriptor, AT, &given), wanted);
        prop_assert_eq!(text(descriptor, 0, &given), "NULL");
        prop_assert_eq!(text(descriptor, 9, &given), "0x9");
    }

    500 cases: fn buffers(content in letters(80), mapped in any::<bool>()) {
        let mut given = mapping(AT, content.clone().into_bytes(), mapped);
        given.words[2] = content.len() as u64;
        let quoted = format!("\"{content}\"");
        let most = quoted.len().min(BUFFER as usize);
        let descriptor = with(kind::BUFFER, 8, 2);
        prop_assert_eq!(text(descriptor, AT, &given), &quoted[..most]);
        prop_assert_eq!(text(descriptor, 0, &given), "0x0");
        given.words[2] = content.len() as u64 + 1;
        if content.len() < BUFFER as usize {
            prop_assert_eq!(text(descriptor, AT, &given), format!("{AT:#x}"));
        }
    }

    500 cases: fn addresses_of_sockets(ip in any::<[u8; 4]>(), ip6 in any::<[u8; 16]>(), port in any::<u16>(), family in prop_oneof![Just(0u16), Just(0x300), 11..=u16::MAX], mapped in any::<bool>()) {
        let of = |bytes: Vec<u8>, length: usize| {
            let mut given = mapping(AT, bytes, mapped);
            // An int: the upper half does not count.
            given.words[4] = length as u64 | 7 << 32;
            text(with(kind::SOCKADDR, 8, 4), AT, &given)
        };
        let inet = [&2u16.to_le_bytes()[..], &port.to_be_bytes(), &ip, &[0; 8]].concat();
        let [a, b, c, d] = ip;
        prop_assert_eq!(of(inet.clone(), 16), format!("{{AF_INET, {a}.{b}.{c}.{d}, {port}}}"));
        prop_assert_eq!(of(inet.clone(), 15), "{unknown sockaddr with sa=2, salen=15}");
        prop_assert_eq!(of(inet, 200), "{unknown sockaddr with sa=2, salen=128}");

        let inet6 = [&10u16.to_le_bytes()[..], &port.to_be_bytes(), &[0; 4], &ip6, &[0; 4]].concat();
        let groups: Vec<String> = ip6.chunks(2).map(|g| format!("{:02x}{:02x}", g[0], g[1])).collect();
        prop_assert_eq!(of(inet6, 28), format!("{{AF_INET6, {}, {port}}}", groups.join(":")));

        let other = [family.to_le_bytes(), [0; 2]].concat();
        prop_assert_eq!(of(other, 4), format!("{{unknown sockaddr with sa={family}, salen=4}}"));
        prop_assert_eq!(of(vec![1], 1), "{unknown sockaddr with salen=1}");
        prop_assert_eq!(of(vec![1], 2), "{...}");
        prop_assert_eq!(text(with(kind::SOCKADDR, 8, 4), 0, &Given::default()), "NULL");
    }

    500 cases: fn other_sockets(pid in any::<i32>(), groups in any::<u32>(), protocol in any::<u16>(), types in any::<[u8; 4]>(), link in any::<u64>(), mapped in any::<bool>()) {
        let of = |parts: &[&[u8]]| {
            let bytes = parts.concat();
            let mut given = mapping(AT, bytes.clone(), mapped);
            given.words[4] = bytes.len() as u64;
            text(with(kind::SOCKADDR, 8, 4), AT, &given)
        };
        let (number, mask) = (pid.to_le_bytes(), groups.to_le_bytes());
        let netlink = format!("{{AF_NETLINK, pid={pid}, groups={groups:08x}}}");
        prop_assert_eq!(of(&[&[16, 0], &[0, 0], &number, &mask]), netlink);
        let [a, b, packet, length] = types;
        let hardware = u16::from_le_bytes([a, b]);
        let want = format!(
            "{{AF_PACKET, proto={protocol}, ind={pid}, hatype={hardware}, pkttype={packet}, halen={length}, addr={link:#x}}}"
        );
        let packed = [&[17, 0][..], &protocol.to_le_bytes(), &number, &types, &link.to_le_bytes()];
        prop_assert_eq!(of(&packed), want);
    }

    500 cases: fn bit_fields_and_dates(value in any_number(), low in any::<u32>(), seconds in any::<i32>()) {
        let size = 8u64 << structure::SIZE;
        let name = match low >> 28 & 7 {
            0 => "ZERO".to_owned(),
            7 => "SEVEN".to_owned(),
            n => format!("{n:#x}"),
        };
        let middle = ((low << 8).cast_signed() >> 20, low >> 12 & 0xfff);
        let date = date(seconds.into());
        let want = format!("{{{name}, {}, {}, {date}}}", middle.0, middle.1);
        let word = u64::from(low) | u64::from(seconds.cast_unsigned()) << 32;
        let given = mapping(AT, word.to_le_bytes().to_vec(), true);
        let read = kind::STRUCT as u64 | bits_at() << 16 | size;
        prop_assert_eq!(text(read, AT, &given), &*want);
        // The word itself has the fields.
        let packed = kind::PACKED as u64 | bits_at() << 16 | size;
        prop_assert_eq!(text(packed, word, &Given::default()), want);
        let bytes = unsigned(value, 4) << 12;
        prop_assert_eq!(text(sized(kind::BLOCKS, 4), value, &Given::default()), bytes.to_string());
    }

    500 cases: fn paths_of_sockets(path in letters(110), hidden in any::<bool>()) {
        let name = if hidden { format!("\0{path}") } else { path.clone() };
        let bytes = [&1u16.to_le_bytes()[..], name.as_bytes()].concat();
        let length = bytes.len();
        let mut given = mapping(AT, [&*bytes, &[b'!'; 120]].concat(), true);
        given.words[1] = length as u64;
        let shown = &path[..path.len().min(if hidden { 107 } else { 108 })];
        let wanted = match (length < 4, hidden) {
            (true, _) => format!("{{unknown sockaddr with sa=1, salen={length}}}"),
            (false, true) => format!("{{AF_UNIX, \"\\000{shown}\"}}"),
            (false, false) => format!("{{AF_UNIX, \"{shown}\"}}"),
        };
        prop_assert_eq!(text(with(kind::SOCKADDR, 8, 1), AT, &given), wanted);
    }

    500 cases: fn structures(
        content in prop_oneof![Just(7u64), Just(0), any::<u64>()],
        there in any::<bool>(),
        mapped in any::<bool>(),
    ) {
        let given = mapping(if there { AT } else { AT + 1 }, content.to_le_bytes().to_vec(), mapped);
        let descriptor = kind::STRUCT as u64 | structure_at() << 16 | 8 << structure::SIZE;
        let name = VALUES.iter().find(|(_, value, _)| *value == content);
        let name = name.map_or(content.cast_signed().to_string(), |n| n.2.to_owned());
        let want = match (there, content) {
            (false, _) => format!("{AT:#x}"),
            (true, 7) => "{seven}".to_owned(),
            (true, _) => format!("{{a={}, b={name}}}", (content >> 32) as u32 as i32),
        };
        prop_assert_eq!(text(descriptor | BRACES, AT, &given), format!("{{{want}}}"));
        prop_assert_eq!(text(descriptor, AT, &given), want);
    }

    500 cases: fn bytes_in_hexadecimal(
        content in vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'"'), Just(0x7f), any::<u8>()], 0..60),
        mapped in any::<bool>(),
    ) {
        let mut given = mapping(AT, content.clone(), mapped);
        given.words[2] = content.len() as u64;
        let shown = &content[..content.len().min(BUFFER as usize)];
        let printable = |byte: u8| (b' '..=b'~').contains(&byte);
        let cut = match shown {
            [.., before, 0] if printable(*before) => &shown[..shown.len() - 1],
            _ => shown,
        };
        let one = |byte: &u8| match printable(*byte) {
            true => char::from(*byte).to_string(),
            false => format!("\\x{byte:02x}"),
        };
        let want = match content.len() {
            0 => format!("{AT:#x}"),
            _ => format!("\"{}\"", cut.iter().map(one).collect::<String>()),
        };
        // A text of the machine is longer than all of them.
        prop_assume!(want.len() + 8 < MOST);
        prop_assert_eq!(text(with(kind::BYTES, 8, 2), AT, &given), want);
    }

    500 cases: fn rows_by_the_value_of_an_argument(
        value in prop_oneof![Just(0u64), Just(3), Just(0x7f), Just(BEHIND.0), any::<u64>()],
        mask in prop_oneof![Just(0x7fu64), Just(u64::MAX)],
        word in 0..8usize,
    ) {
        let list = structure_at() + 5 * u64::from(ENTRY);
        let count = ROWS.len() as u64;
        let cases = list | count << variant::COUNT | (word as u64) << variant::WORD;
        let found = ROWS.iter().find(|(of, _)| *of == value & mask);
        let want = match word {
            0..6 => found.map_or(9, |(_, row)| *row),
            _ => 9,
        };
        for mut machine in functions().machines(100_000) {
            let mut bytes = vec![0xa5; BLOCK];
            if word < 6 {
                bytes[ARGUMENTS + 8 * word..][..8].copy_from_slice(&value.to_le_bytes());
            }
            let block = machine.memory.add(bytes, RegionKind::Memory);
            let mut host = Recorder { block, ..Recorder::default() };
            prop_assert_eq!(machine.run("variant_row", &[cases, mask, 9], &mut host), Ok(want));
        }
    }
}
