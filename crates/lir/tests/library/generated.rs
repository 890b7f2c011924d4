//! The functions that are made for the widths of their slots.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use spile_lir::func::Module;
use spile_lir::helpers::Helper;
use spile_lir::library::search::{self, Replace, token};
use spile_lir::library::{decimal, hex_bytes, quote, unicode};
use spile_lir::op::Size;

use super::forms::{Arg, forms, number, properties, slot, text};

/// A text cut to what a slot of `wide` bytes has space for.
fn cut(mut text: Vec<u8>, wide: u32) -> Vec<u8> {
    text.truncate(wide as usize - 1);
    text
}

/// A slot of `wide` bytes with a text, and other bytes behind it.
fn slot_and_more(text: &[u8], wide: u32, more: usize) -> Arg {
    let mut bytes = text.to_vec();
    bytes.resize(wide as usize, 0);
    bytes.resize(wide as usize + more, b'a');
    Arg::Memory(bytes)
}

/// Part of a text, as a text to find there.
fn part_of(text: &[u8], from: u16, len: usize) -> Vec<u8> {
    let from = usize::from(from) % (text.len() + 1);
    text[from..(from + len).min(text.len())].to_vec()
}

/// Bytes of the slot of a number.
const FP_SLOT: u32 = 2048;

/// The floating-point number of a text.
fn to_fp(text: &str) -> f64 {
    let forms = forms("string_to_fp", || {
        Module::from(decimal::string_to_fp(FP_SLOT))
    });
    let args = [
        slot_and_more(text.as_bytes(), FP_SLOT, 4),
        Arg::Memory(vec![0xee; decimal::AREA as usize]),
    ];
    f64::from_bits(forms.run("string_to_fp", &args).0)
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

/// The decimal digits of `number * 2^exponent`, and how many of them are behind the point.
fn exact(number: u64, exponent: i32) -> (String, usize) {
    // Limbs of nine digits, the lowest first.
    let mut limbs = vec![
        number % 1_000_000_000,
        number / 1_000_000_000 % 1_000_000_000,
        number / 1_000_000_000_000_000_000,
    ];
    let factor = if exponent < 0 { 5 } else { 2 };
    for _ in 0..exponent.unsigned_abs() {
        let mut carry = 0;
        for limb in &mut limbs {
            let product = *limb * factor + carry;
            (*limb, carry) = (product % 1_000_000_000, product / 1_000_000_000);
        }
        if carry > 0 {
            limbs.push(carry);
        }
    }
    let digits: String = limbs
        .iter()
        .rev()
        .map(|limb| format!("{limb:09}"))
        .collect();
    (digits, exponent.min(0).unsigned_abs() as usize)
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
fn replaced(text: &[u8], part: &[u8], new: &[u8], capacity: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() && out.len() < capacity {
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
        let args = [
            slot_and_more(&text, 4096, 8),
            number(4095),
            Arg::Memory(slot(part, 0)),
            number(part.len()),
        ];
        forms("find_4096_8", || Module::from(search::find(4096, 8)))
            .run("find_4096_8", &args)
            .0
    };
    assert_eq!(
        (run(b"xx"), run(b"xy"), run(b"y"), run(b"yy")),
        (1, 4094, 4095, 0)
    );
}

/// A reference for escapes: the letters of C, octal otherwise, characters by their numbers.
pub(crate) fn escapes(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
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
pub(crate) fn table() -> Vec<u8> {
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
pub(crate) fn any_text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        3 => "[ -~]{1,9}".prop_map(String::into_bytes),
        2 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
        1 => vec(any::<u8>(), 1..4),
        1 => any::<char>().prop_map(|c| c.to_string().into_bytes()[..1].to_vec()),
        1 => Just(vec![0xed, 0xa0, 0x80]),
        1 => Just(vec![0xf4, 0x90, 0x80, 0x80]),
        1 => Just(vec![0xe0, 0x9f, 0x80]),
    ];
    vec(part, 0..8).prop_map(move |parts| {
        let mut text = parts.concat();
        text.truncate(most);
        text
    })
}

/// The longest length that a function has space for, and a limit.
fn limits() -> impl Strategy<Value = (u32, usize)> {
    let limit = |most: u32| {
        let limits = prop_oneof![Just(most as usize), 4..=(most as usize).min(80)];
        (Just(most), limits)
    };
    prop_oneof![limit(600), limit(48)]
}

properties! {
    also the_longest_text_is_within_loop_bounds;
    also midpoints_and_limits_are_rounded_as_by_rust;

    // Each takes 40 ms.
    60 cases: fn midpoints_are_rounded_to_even(bits in prop_oneof![any::<u64>(), any::<u64>().prop_map(|b| b >> 12), 0..64u64]) {
        let bits = bits & (u64::MAX >> 1);
        let (exponent, low) = (bits >> 52, bits & ((1 << 52) - 1));
        prop_assume!(exponent < 0x7fe);
        let hidden = if exponent == 0 { 0 } else { 1 << 52 };
        let scale = exponent.max(1) as i32 - 1075;
        let (digits, behind) = exact(2 * (low | hidden) + 1, scale - 1);
        let digits = format!("{}{digits}", "0".repeat(behind));
        let (whole, fraction) = digits.split_at(digits.len() - behind);
        let below = format!("{}4{}", &fraction[..fraction.len().saturating_sub(1)], "9".repeat(20));
        for fraction in [fraction.to_owned(), format!("{fraction}{}1", "0".repeat(20)), below] {
            let whole = whole.trim_start_matches('0');
            assert_fp(&format!("0{whole}.{fraction}"), "");
        }
    }

    3000 cases: fn find_gives_the_first_location(
        widths in (select(vec![16u32, 88]), select(vec![8u32, 24, 32, 64])),
        text in text(88), part in text(64), from in any::<u16>(), len in prop_oneof![0..8usize, 0..70usize],
        changed in prop_oneof![Just(0usize), 0..64usize],
    ) {
        let (wide, part_wide) = widths;
        let text = cut(text, wide);
        // Two of three parts come from the text, one of them with another byte at some location.
        let some = cut(part_of(&text, from, len), part_wide);
        let mut other = some.clone();
        if let Some(byte) = other.iter_mut().rev().nth(changed) {
            *byte ^= 3;
        }
        for part in [cut(part, part_wide), some, other] {
            let location = match part.len() {
                0 => Some(0),
                n => text.windows(n).position(|w| w == part),
            };
            let name = format!("find_{wide}_{part_wide}");
            let args = [
                slot_and_more(&text, wide, part_wide as usize),
                number(text.len()),
                slot_and_more(&part, part_wide, 0),
                number(part.len()),
            ];
            let make = || Module::from(search::find(wide, part_wide));
            let found = forms(&name, make).run(&name, &args).0;
            prop_assert_eq!(found, location.map_or(0, |p| p as u64 + 1));
        }
    }

    3000 cases: fn replace_takes_each_occurrence(
        widths in (select(vec![16u32, 88]), select(vec![8u32, 24, 64]), select(vec![8u32, 24])),
        capacity in select(vec![24u32, 4096]),
        text in text(88), part in text(64), new in text(24),
        from in any::<u16>(), len in prop_oneof![3 => 0..4usize, 2 => 0..70usize], changed in 0..64usize,
    ) {
        let widths = Replace { text: widths.0, part: widths.1, new: widths.2, capacity };
        let (text, new) = (cut(text, widths.text), cut(new, widths.new));
        let some = cut(part_of(&text, from, len), widths.part);
        // A part of the text with one byte changed.
        let mut other = some.clone();
        if let Some(byte) = other.iter_mut().rev().nth(changed) {
            *byte ^= 3;
        }
        for part in [cut(part, widths.part), some, other] {
            let name = format!("replace_{}_{}_{}", widths.text, widths.part, widths.new);
            let size = (capacity + widths.new) as usize;
            let args = [
                slot_and_more(&text, widths.text, widths.part as usize),
                slot_and_more(&part, widths.part, 0),
                number(part.len()),
                slot_and_more(&new, widths.new, 0),
                Arg::Memory(vec![0; size]),
            ];
            let forms = forms(&format!("{name} {capacity}"), || Module::from(search::replace(widths)));
            let (length, memory) = forms.run(&name, &args);
            let mut expected = replaced(&text, &part, &new, capacity as usize);
            prop_assert_eq!(length, expected.len() as u64);
            expected.resize(size, 0);
            prop_assert_eq!(&memory[3], &expected);
        }
    }

    1000 cases: fn tokens_are_what_split_gives(
        widths in (select(vec![8u32, 24, 32, 64]), select(vec![16u32, 64])),
        text in prop_oneof![3 => "[ab,; ]{0,60}", 1 => "[ab,]{60,80}"],
        delimiters in "[,; b]{0,4}", more in 0..80usize,
    ) {
        let (wide, most) = widths;
        // Other delimiters in front, which the text does not have.
        let most_more = (wide as usize - 1).saturating_sub(delimiters.len());
        let delimiters = format!("{}{delimiters}", "x".repeat(more.min(most_more)));
        let text = &text[..text.len().min(most as usize - 1)];
        let name = format!("token_{wide}");
        let forms = forms(&format!("{name} {most}"), || Module::from(search::next_token(wide, most)));
        let is = |c: char| delimiters.contains(c);
        let expected: Vec<&str> = text.split(is).filter(|t| !t.is_empty()).collect();
        let mut found = Vec::new();
        let mut from = 0u64;
        loop {
            let mut words = vec![0xee; 32];
            words[token::FROM as usize..][..8].copy_from_slice(&from.to_le_bytes());
            let args = [
                slot_and_more(text.as_bytes(), most, 0),
                slot_and_more(delimiters.as_bytes(), wide, 0),
                Arg::Memory(words),
            ];
            let (_, memory) = forms.run(&name, &args);
            let word = |at: i16| {
                let bytes = &memory[2][at as usize..at as usize + 8];
                i64::from_le_bytes(bytes.try_into().expect("8 bytes"))
            };
            let (start, end, next) = (word(token::START), word(token::END), word(token::NEXT));
            let from_before = std::mem::replace(&mut from, next as u64);
            prop_assert_eq!(&memory[2][..8], &from_before.to_le_bytes());
            if start < 0 {
                prop_assert_eq!(start, -1);
                break;
            }
            found.push(&text[start as usize..end as usize]);
            // The delimiter behind a token is skipped, the NUL is not.
            prop_assert_eq!(next, end + i64::from((end as usize) < text.len()));
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(from, text.len() as u64);
    }

    /// A slot without a NUL ends at its width.
    200 cases: fn tokens_end_with_the_slot(text in "[a,]{16}", from in 0..17u64) {
        let words = [from, 9, 9, 9].map(u64::to_le_bytes).concat();
        let args = [Arg::Memory(text.clone().into_bytes()), slot_and_more(b",", 8, 0), Arg::Memory(words)];
        let forms = forms("token_8 16", || Module::from(search::next_token(8, 16)));
        let memory = forms.run("token_8", &args).1;
        let rest = &text[from as usize..];
        let start = rest.find('a').map_or(-1, |at| (from + at as u64).cast_signed());
        let begun = usize::try_from(start).unwrap_or(16);
        let end = text[begun..].find(',').map_or(16, |at| begun + at);
        let next = (end + 1).min(16);
        let expected = [start, end as i64, next as i64].map(i64::to_le_bytes).concat();
        prop_assert_eq!(&memory[2][8..], &expected);
    }

    500 cases: fn numbers_are_read_back(bits in any::<u64>(), behind in "(x|e|\\.|)") {
        let n = f64::from_bits(bits);
        if n.is_finite() {
            assert_fp(&format!("{n:e}"), if behind == "." { "" } else { &behind });
        }
    }

    2000 cases: fn digits_are_rounded_as_by_rust(text in "[ \t]{0,2}[+-]?[0-9]{1,25}(\\.[0-9]{0,25})?(e[+-]?[0-9]{1,3})?") {
        assert_fp(&text, "");
    }

    300 cases: fn escapes_are_those_of_c(text in any_text(63), buffer in select(vec![600u32, 1, 9, 40, 63])) {
        let text: Vec<u8> = text.into_iter().filter(|b| *b != 0).collect();
        let forms = forms(&format!("escape_64 {buffer}"), || quote::escape(64, buffer, &table()));
        let size = (buffer as usize + 16).max(64);
        let args = [slot_and_more(&text, 64, 8), Arg::Memory(vec![0xee; size])];
        let (result, memory) = forms.run("escape_64", &args);
        prop_assert_eq!(result, 0);
        let mut expected = Vec::new();
        let plain = escapes(&text).iter().all(|(bytes, e)| *bytes == 1 && e.len() == 1);
        for (_, escape) in escapes(&text) {
            if plain || expected.len() <= buffer as usize {
                expected.extend(escape);
            }
        }
        expected.push(0);
        // The copy of the empty text has a NUL; otherwise the last escape has one behind it.
        prop_assert_eq!(&memory[1][..expected.len()], &expected);
    }

    300 cases: fn a_quoted_text_keeps_its_limit(text in any_text(64), quoted in any::<bool>(), behind in any::<u8>(), limits in limits()) {
        let (most, limit) = limits;
        let forms = forms(&format!("quote_64 {most}"), || quote::quote(64, most, &table()));
        let size = most as usize + 16;
        // Bytes behind the text are no part of it, even if they would end its last character.
        let mut bytes = text.clone();
        bytes.resize(72, behind);
        let args = [
            Arg::Memory(bytes),
            Arg::Memory(vec![0; size]),
            number(text.len()),
            number(limit),
            number(quoted.into()),
        ];
        let (result, memory) = forms.run("quote_64", &args);
        prop_assert_eq!(result, 0);
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
        expected.resize(size, 0);
        prop_assert_eq!(&memory[1], &expected);
    }

    300 cases: fn bytes_have_two_digits_each(bytes in vec(any::<u8>(), 0..40)) {
                let mut buffer = bytes.clone();
        buffer.resize(44, 0xee);
        let args = [Arg::Memory(buffer), Arg::Memory(vec![0; 88]), number(bytes.len())];
        let memory = forms("hex_bytes", || Module::from(hex_bytes(40))).run("hex_bytes", &args).1;
        let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        prop_assert_eq!(&memory[1][..digits.len()], digits.as_bytes());
    }

    300 cases: fn units_become_the_characters_that_rust_decodes(text in "\\PC{0,12}", last in select(vec!["", "\u{7f}", "\u{80}", "\u{7ff}", "\u{800}", "\u{ffff}", "\u{10000}", "\u{10ffff}"]), broken in prop_oneof![4 => Just(0u32), 1 => 0xd800..0xe000u32], end in any::<bool>(), buffer in select(vec![512usize, 8, 9, 12, 19, 40])) {
        let text = text + last;
        let utf16: Vec<u8> = text.encode_utf16().chain((broken > 0).then_some(broken as u16))
            .flat_map(u16::to_le_bytes).collect();
        let utf32: Vec<u8> = text.chars().map(|c| c as u32).chain((broken > 0).then_some(broken))
            .flat_map(u32::to_le_bytes).collect();
        for (unit, mut bytes) in [(Size::U16, utf16), (Size::U32, utf32)] {
            if end {
                bytes.resize(bytes.len() + unit.bytes() as usize, 0);
            }
            let make = || Module::from(unicode::utf("utf", Helper::Read, unit, buffer as u32));
            let args = [Arg::Memory(bytes), Arg::Memory(vec![0; buffer])];
            let (status, memory) = forms(&format!("utf {unit:?} {buffer}"), make).run("utf", &args);
            let mut expected = String::new();
            let full = text.chars().any(|c| {
                let fits = expected.len() + c.len_utf8() < buffer;
                if fits {
                    expected.push(c);
                }
                !fits
            });
            let high = unit == Size::U16 && (0xd800..0xdc00).contains(&broken);
            let wanted = match (full, broken) {
                (true, _) => unicode::status::READ,
                // A high surrogate may be a character for which there is no space.
                (_, 1..) if high && end && expected.len() + 4 >= buffer => unicode::status::READ,
                (_, 1..) if high && end => unicode::status::INVALID,
                (_, 1..) if high => unicode::status::FAULT,
                (_, 1..) => unicode::status::INVALID,
                (_, 0) if end => unicode::status::READ,
                (_, 0) => unicode::status::FAULT,
            };
            prop_assert!(memory[1].starts_with(expected.as_bytes()));
            prop_assert!(memory[1][expected.len()..].iter().all(|b| *b == 0));
            prop_assert_eq!(status as i32, wanted, "{:?} {:x} {}", text, broken, end);
        }
    }
}
