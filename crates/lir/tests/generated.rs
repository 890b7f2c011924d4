//! The functions of the library that are made for the widths of their slots, against Rust.

#[path = "common/library.rs"]
mod common;

use common::{Arg, Forms, number, slot, text};
use proptest::prelude::*;
use spile_lir::helpers::Helper;
use spile_lir::library::decimal;
use spile_lir::library::module_with;
use spile_lir::library::search::{self, Replace, token};
use spile_lir::library::{quote, unicode};
use spile_lir::op::Size;

/// Bytes of the slot of a text.
fn wide(text: &[u8]) -> u32 {
    (text.len() / 8 * 8 + 8) as u32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn find_gives_the_first_place(text in text(80), part in text(30), from in any::<u16>(), len in 0..30usize) {
        // Half of the parts come from the text.
        let from = usize::from(from) % (text.len() + 1);
        let some = text[from..(from + len).min(text.len())].to_vec();
        for part in [part, some] {
            let place = match part.len() {
                0 => Some(0),
                n => text.windows(n).position(|w| w == part),
            };
            let func = search::find(wide(&text), wide(&part));
            let args = [
                Arg::Memory(slot(&text, text.len() + 64)),
                number(text.len()),
                Arg::Memory(slot(&part, 0)),
                number(part.len()),
            ];
            let found = Forms::new(&module_with(func.clone())).run(&func.name, &args).0;
            prop_assert_eq!(found, place.map_or(0, |p| p as u64 + 1));
        }
    }

    #[test]
    fn replace_takes_each_occurrence(text in text(80), part in text(20), new in text(20), from in any::<u16>(), len in 0..4usize) {
        let from = usize::from(from) % (text.len() + 1);
        let some = text[from..(from + len).min(text.len())].to_vec();
        for part in [part, some] {
            for room in [4096, 24] {
                let widths = Replace { text: wide(&text), part: wide(&part), new: wide(&new), room };
                let func = search::replace(widths);
                let args = [
                    Arg::Memory(slot(&text, text.len() + 64)),
                    Arg::Memory(slot(&part, 0)),
                    number(part.len()),
                    Arg::Memory(slot(&new, 0)),
                    Arg::Memory(vec![0; 4096 + 64]),
                ];
                let (length, memory) = Forms::new(&module_with(func.clone())).run(&func.name, &args);
                let expected = replaced(&text, &part, &new, room as usize);
                prop_assert_eq!(&memory[3][..expected.len()], &expected);
                prop_assert_eq!(length, expected.len() as u64);
            }
        }
    }

    #[test]
    fn tokens_are_what_split_gives(text in "[ab,; ]{0,60}", delimiters in "[,; b]{0,4}", more in 0..40usize) {
        // Other delimiters in front, which the text does not have.
        let delimiters = format!("{}{delimiters}", "xyz!".repeat(more / 4));
        let most = wide(text.as_bytes());
        let func = search::next_token(wide(delimiters.as_bytes()), most);
        let forms = Forms::new(&module_with(func.clone()));
        let is = |c: char| delimiters.contains(c);
        let expected: Vec<&str> = text.split(is).filter(|t| !t.is_empty()).collect();
        let mut found = Vec::new();
        let mut from = 0u64;
        loop {
            let mut words = vec![0xee; 32];
            words[token::FROM as usize..][..8].copy_from_slice(&from.to_le_bytes());
            let args = [
                Arg::Memory(slot(text.as_bytes(), 0)),
                Arg::Memory(slot(delimiters.as_bytes(), 0)),
                Arg::Memory(words),
            ];
            let (_, memory) = forms.run(&func.name, &args);
            let word = |at: i16| {
                let bytes = &memory[2][at as usize..at as usize + 8];
                i64::from_le_bytes(bytes.try_into().expect("8 bytes"))
            };
            let (start, end, next) = (word(token::START), word(token::END), word(token::NEXT));
            from = next as u64;
            if start < 0 {
                break;
            }
            found.push(&text[start as usize..end as usize]);
            // The delimiter behind a token is skipped, the NUL is not.
            prop_assert_eq!(next, end + i64::from((end as usize) < text.len()));
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(from, text.len() as u64);
    }
}

/// The floating-point number of a text.
fn to_fp(text: &str) -> f64 {
    use std::sync::LazyLock;
    static FORMS: LazyLock<Forms> =
        LazyLock::new(|| Forms::new(&module_with(decimal::string_to_fp(2048))));
    let args = [
        Arg::Memory(slot(text.as_bytes(), 2056)),
        Arg::Memory(vec![0xee; decimal::ROOM as usize]),
    ];
    f64::from_bits(FORMS.run("string_to_fp", &args).0)
}

/// Rust rounds as the C library does; a number ends where no more fits its grammar.
fn assert_fp(number: &str, behind: &str) {
    let expected: f64 = number.trim_start().parse().expect("a number");
    let found = to_fp(&format!("{number}{behind}"));
    assert_eq!(
        found.to_bits(),
        expected.to_bits(),
        "{number}{behind}: {found} {expected}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_read_back(bits in any::<u64>(), behind in "(x|e|\\.|)") {
        let n = f64::from_bits(bits);
        if n.is_finite() {
            assert_fp(&format!("{n:e}"), if behind == "." { "" } else { &behind });
        }
    }

    #[test]
    fn digits_are_rounded_as_by_rust(text in "[ \t]{0,2}[+-]?[0-9]{1,25}(\\.[0-9]{0,25})?(e[+-]?[0-9]{1,3})?") {
        assert_fp(&text, "");
    }
}

/// Midpoints between two numbers, the limits, and what is no number.
#[test]
fn midpoints_and_limits_are_rounded_as_by_rust() {
    for n in [
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        1.0 / 3.0,
        9_007_199_254_740_993.0,
        -0.0,
    ] {
        let long = format!("{n:.1100}");
        assert_fp(&long, "");
        assert_fp(&format!("{long}1"), "");
    }
    let half = format!("{:.1080}", f64::from_bits(1));
    for text in [
        "9007199254740993",
        "9007199254740992.99999",
        "9007199254740993.0000000000000000000000001",
        "1e309",
        "1e-400",
        "179769313486231580793728971405303415e273",
        "2.4703282292062327208e-324",
        "2.4703282292062328e-324",
        ".5",
        "5.",
        "0.000e99999999",
        "-0",
        "1e99999999",
        "1e-99999999",
        &half,
    ] {
        assert_fp(text, "");
    }
    for text in ["", "x", "-", "+.", "e5", ".", "--1"] {
        assert_eq!(to_fp(text).to_bits(), 0, "{text}");
    }
    assert_eq!(to_fp("1..5"), 1.0);
    assert_eq!(to_fp("\n\u{b} -InFinite"), f64::NEG_INFINITY);
    assert!(to_fp("NaN").is_nan());
}

/// A text with each part replaced, up to the length from which nothing is appended.
fn replaced(text: &[u8], part: &[u8], new: &[u8], room: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() && out.len() < room {
        if !part.is_empty() && text[at..].starts_with(part) {
            out.extend(new);
            at += part.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// The longest text: the bounds of the loops are large enough.
#[test]
fn the_longest_text_is_within_loop_bounds() {
    let mut text = vec![b'x'; 4095];
    text[4094] = b'y';
    let run = |part: &[u8]| {
        let func = search::find(4096, 8);
        let args = [
            Arg::Memory(slot(&text, 4112)),
            number(4095),
            Arg::Memory(slot(part, 0)),
            number(part.len()),
        ];
        Forms::new(&module_with(func)).run("find_4096_8", &args).0
    };
    assert_eq!(
        (run(b"xx"), run(b"xy"), run(b"y"), run(b"yy")),
        (1, 4094, 4095, 0)
    );
}

/// A reference for escapes: the letters of C, octal otherwise, characters by their numbers.
fn escapes(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let most = (text.len() - at).min(4);
        let valid = (2..=most).find_map(|n| std::str::from_utf8(&text[at..at + n]).ok());
        let character = valid
            .and_then(|s| s.chars().next())
            .filter(|c| !c.is_ascii());
        let (bytes, escape) = match character {
            Some(c) if c > '\u{ffff}' => (c.len_utf8(), format!("\\U{:08X}", c as u32)),
            Some(c) => (c.len_utf8(), format!("\\u{:04X}", c as u32)),
            None => (1, escaped_byte(text[at])),
        };
        out.push((bytes, escape.into_bytes()));
        at += bytes;
    }
    out
}

fn escaped_byte(byte: u8) -> String {
    match byte {
        b'"' | b'\\' => format!("\\{}", byte as char),
        b' '..=b'~' => (byte as char).to_string(),
        7..=13 => format!("\\{}", b"abtnvfr"[byte as usize - 7] as char),
        _ => format!("\\{byte:03o}"),
    }
}

/// The table that the caller gives.
fn table() -> Vec<u8> {
    let row = |byte| {
        let mut row = escaped_byte(byte).into_bytes();
        let length = row.len() as u8;
        row.resize(8, 0);
        row[4] = length;
        row
    };
    (0..=255u8).flat_map(row).collect()
}

/// Bytes, characters and texts of both.
fn any_text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        3 => "[ -~]{1,9}".prop_map(String::into_bytes),
        2 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
        1 => any::<char>().prop_map(|c| c.to_string().into_bytes()[..1].to_vec()),
        1 => Just(vec![0xed, 0xa0, 0x80]),
        1 => Just(vec![0xf4, 0x90, 0x80, 0x80]),
        1 => Just(vec![0xe0, 0x9f, 0x80]),
    ];
    prop::collection::vec(part, 0..8).prop_map(move |parts| {
        let mut text = parts.concat();
        text.truncate(most);
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn escapes_are_those_of_c(text in any_text(63), room in prop_oneof![Just(600u32), 1..100u32]) {
        use std::sync::LazyLock;
        let text: Vec<u8> = text.into_iter().filter(|b| *b != 0).collect();
        static WHOLE: LazyLock<Forms> = LazyLock::new(|| Forms::new(&quote::escape(64, 600, &table())));
        let small;
        let forms = match room {
            600 => &*WHOLE,
            _ => {
                small = Forms::new(&quote::escape(64, room, &table()));
                &small
            }
        };
        let args = [Arg::Memory(slot(&text, 72)), Arg::Memory(vec![0xee; 700])];
        let memory = forms.run("escape_64", &args).1;
        let mut expected = Vec::new();
        let plain = escapes(&text).iter().all(|(bytes, e)| *bytes == 1 && e.len() == 1);
        for (_, escape) in escapes(&text) {
            if plain || expected.len() <= room as usize {
                expected.extend(escape);
            }
        }
        expected.push(0);
        // The copy of the empty text has a NUL; otherwise the last escape has one behind it.
        prop_assert_eq!(&memory[1][..expected.len()], &expected);
    }

    #[test]
    fn a_quoted_text_keeps_its_limit(text in any_text(64), quoted in any::<bool>(), limit in prop_oneof![Just(600usize), 4..80usize]) {
        use std::sync::LazyLock;
        static FORMS: LazyLock<Forms> = LazyLock::new(|| Forms::new(&quote::quote(64, 600, &table())));
        let mut bytes = text.clone();
        bytes.resize(72, 0);
        let args = [
            Arg::Memory(bytes),
            Arg::Memory(vec![0; 700]),
            number(text.len()),
            number(limit),
            number(quoted.into()),
        ];
        let memory = FORMS.run("quote_64", &args).1;
        let mut expected = if quoted { vec![b'"'] } else { Vec::new() };
        let (mut kept, mut cut) = (1, false);
        for (_, escape) in escapes(&text) {
            if expected.len() + escape.len() > limit {
                cut = true;
                break;
            }
            expected.extend(escape);
            if expected.len() + 3 <= limit {
                kept = expected.len();
            }
        }
        if quoted && cut {
            expected.truncate(kept);
            expected.extend(b"\"...");
        } else if quoted {
            expected.push(b'"');
        }
        expected.resize(700, 0);
        prop_assert_eq!(&memory[1], &expected);
    }

    #[test]
    fn bytes_have_two_digits_each(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let func = spile_lir::library::hex_bytes(40);
        let mut room = bytes.clone();
        room.resize(44, 0xee);
        let args = [Arg::Memory(room), Arg::Memory(vec![0; 88]), number(bytes.len())];
        let memory = Forms::new(&module_with(func)).run("hex_bytes", &args).1;
        let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        prop_assert_eq!(&memory[1][..digits.len()], digits.as_bytes());
    }

    #[test]
    fn units_become_the_characters_that_rust_decodes(text in "\\PC{0,12}", broken in prop_oneof![4 => Just(0u32), 1 => 0xd800..0xe000u32], end in any::<bool>(), room in prop_oneof![Just(512usize), 8..40usize]) {
        let utf16: Vec<u8> = text.encode_utf16().chain((broken > 0).then_some(broken as u16))
            .flat_map(u16::to_le_bytes).collect();
        let utf32: Vec<u8> = text.chars().map(|c| c as u32).chain((broken > 0).then_some(broken))
            .flat_map(u32::to_le_bytes).collect();
        for (unit, mut bytes) in [(Size::U16, utf16), (Size::U32, utf32)] {
            if end {
                bytes.resize(bytes.len() + unit.bytes() as usize, 0);
            }
            let func = unicode::utf("utf", Helper::Read, unit, room as u32);
            let args = [Arg::Memory(bytes), Arg::Memory(vec![0; 600])];
            let (status, memory) = Forms::new(&module_with(func)).run("utf", &args);
            let mut expected = String::new();
            let full = text.chars().any(|c| {
                let fits = expected.len() + c.len_utf8() < room;
                if fits {
                    expected.push(c);
                }
                !fits
            });
            let high = unit == Size::U16 && (0xd800..0xdc00).contains(&broken);
            let wanted = match (full, broken) {
                (true, _) => unicode::status::READ,
                // A high surrogate may be a character for which there is no room.
                (_, 1..) if high && end && expected.len() + 4 >= room => unicode::status::READ,
                (_, 1..) if high && end => unicode::status::INVALID,
                (_, 1..) if high => unicode::status::FAULT,
                (_, 1..) => unicode::status::INVALID,
                (_, 0) if end => unicode::status::READ,
                (_, 0) => unicode::status::FAULT,
            };
            prop_assert_eq!(&memory[1][..=expected.len()], [expected.as_bytes(), &[0]].concat());
            prop_assert_eq!(status as i32, wanted, "{:?} {:x} {}", text, broken, end);
        }
    }
}
