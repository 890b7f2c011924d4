//! Functions that append to a text against Rust's formatting, on random texts, numbers, widths and
//! precisions. A text that gets longer than the longest one keeps its beginning.

use std::rc::Rc;

use proptest::prelude::*;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::append::{self, AppendLayout, DIGITS, MAX_COUNT, flag};

use super::forms::{Forms, Reads, forms, properties, text};

const LENGTH: usize = 0;
const DIGITS_AT: usize = 8;
/// Not a multiple of 8, so that nothing relies on it.
const MOST: usize = 100;
const TEXT: usize = DIGITS_AT + DIGITS as usize;
const BLOCK: usize = TEXT + 3 * MOST + 64;

fn layout() -> AppendLayout {
    AppendLayout {
        length: LENGTH as i32,
        text: TEXT as i32,
        most: MOST as i32,
        digits: DIGITS_AT as i32,
    }
}

/// The function of that name.
fn function(name: &str) -> Rc<Forms> {
    forms(&format!("{name} {MOST}"), || {
        let at = layout();
        match name {
            "append_text" => append::append_text(at),
            "append_bytes" => append::append_bytes(at),
            "append_hex" => append::append_hex(at),
            "append_number_8" => append::append_number(at, 8),
            "append_number_10" => append::append_number(at, 10),
            _ => append::append_number(at, 16),
        }
    })
}

/// The host: a per-CPU area, and helpers that copy.
struct Block(u64);

impl Host for Block {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        Reads.helper(memory, helper, args)
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.0 + u64::from(*off)),
            _ => None,
        }
    }
}

/// Runs a function behind a text. The block is its first argument if `text` is given, which is the
/// second one. Gives the text up to its NUL, at most the longest one, and whether it is full.
fn appended(name: &str, before: &str, text: Option<&[u8]>, args: &[u64]) -> (Vec<u8>, bool) {
    function(name).same(10_000, |mut machine| {
        let mut bytes = vec![0; BLOCK];
        bytes[LENGTH..][..8].copy_from_slice(&(before.len() as u64).to_le_bytes());
        // What earlier numbers left there.
        bytes[DIGITS_AT..][..24].fill(b'7');
        bytes[TEXT..][..before.len()].copy_from_slice(before.as_bytes());
        let block = machine.memory.add(bytes, RegionKind::Memory);
        let mut all = Vec::new();
        if let Some(text) = text {
            all.extend([block, machine.memory.add(text.to_vec(), RegionKind::Memory)]);
        }
        all.extend(args);
        let result = machine.run(name, &all, &mut Block(block));
        assert_eq!(result, Ok(0), "{name}");
        let bytes = machine.memory.region(block).unwrap_or_default();
        let mut length = [0; 8];
        length.copy_from_slice(&bytes[LENGTH..][..8]);
        let length = u64::from_le_bytes(length) as usize;
        assert!(bytes[DIGITS_AT + 24..TEXT].iter().all(|b| *b == 0));
        let found = &bytes[TEXT..][..MOST];
        let end = found.iter().position(|b| *b == 0).unwrap_or(MOST);
        // The length is that of the text, unless it is full.
        assert!(length > MOST || length >= end, "{length} {end}");
        (found[..end].to_vec(), length > MOST)
    })
}

/// The text with more behind it, cut, as [`appended`] gives it.
fn with(before: &str, more: &[u8]) -> Vec<u8> {
    let mut text = [before.as_bytes(), more].concat();
    text.truncate(MOST);
    text
}

/// Spaces up to the width, on the right if it is negative.
fn padded(text: &[u8], width: i64) -> Vec<u8> {
    let count = |n: i64| usize::try_from(n.min(MAX_COUNT.into())).unwrap_or(0);
    let spaces = |n: i64| vec![b' '; count(n).saturating_sub(text.len())];
    let left = spaces(width);
    let right = spaces(width.checked_neg().unwrap_or(i64::MAX));
    [&left, text, &right].concat()
}

/// A number as C writes it, but `0` fills up to the width whatever the precision is.
fn number(base: u32, precision: i64, value: u64, flags: i32, width: i64) -> Vec<u8> {
    let has = |bit| flags & bit != 0;
    let signed = has(flag::SIGNED) && base == 10;
    let negative = signed && value.cast_signed() < 0;
    let size = if negative {
        value.wrapping_neg()
    } else {
        value
    };
    let digits = match base {
        8 => format!("{size:o}"),
        16 if has(flag::UPPER) => format!("{size:X}"),
        16 => format!("{size:x}"),
        _ => format!("{size}"),
    };
    let prefix = match (base, has(flag::MARK)) {
        (10, _) if negative => "-".to_owned(),
        (10, _) => match (flags >> flag::SIGN_SHIFT) as u8 {
            0 => String::new(),
            sign => char::from(sign).to_string(),
        },
        (8, true) => "0".into(),
        (16, true) if has(flag::UPPER) => "0X".into(),
        (16, true) => "0x".into(),
        _ => String::new(),
    };
    let least = usize::try_from(precision.min(MAX_COUNT.into())).unwrap_or(0);
    let mut zeros = least.saturating_sub(digits.len());
    if has(flag::ZERO) && width > 0 {
        let columns = width.min(MAX_COUNT.into()) as usize;
        zeros += columns.saturating_sub(prefix.len() + zeros + digits.len());
    }
    padded(
        format!("{prefix}{}{digits}", "0".repeat(zeros)).as_bytes(),
        width,
    )
}

/// Only a text that is longer than the longest one is full.
fn check_full(full: bool, length: usize) -> Result<(), TestCaseError> {
    prop_assert!(!full || length > MOST, "{length}");
    Ok(())
}

fn widths() -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => Just(0),
        4 => -40..40i64,
        1 => -200..200i64,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(65_536), Just(-65_537), any::<i64>()],
    ]
}

fn before() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[a-z]{0,20}", 2 => "[a-z]{70,99}", 1 => "[a-z]{100,101}"]
}

properties! {
    3000 cases: fn texts_are_padded(before in before(), text in text(60), size in 1..64usize, width in widths()) {
        let mut slot = text.clone();
        slot.resize(64, 0);
        let args = [size as u64, width.cast_unsigned()];
        let (found, full) = appended("append_text", &before, Some(&slot), &args);
        let text = &text[..text.len().min(size - 1)];
        let expected = with(&before, &padded(text, width));
        check_full(full, before.len() + padded(text, width).len())?;
        prop_assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
    }

    800 cases: fn numbers_are_those_of_rust(
        before in before(),
        value in any::<u64>(),
        shift in 0..64u32,
        precision in prop_oneof![3 => Just(-1i64), 2 => widths()],
        width in widths(),
        bits in 0..16i32,
        sign in prop_oneof![Just(0), Just(b'+'), Just(b' ')],
    ) {
        let powers = [10u64.saturating_pow(shift / 3).wrapping_sub(value & 1), 8u64.saturating_pow(shift / 3) - (value & 1)];
        for value in [value >> shift, (value.cast_signed() >> shift).cast_unsigned(), powers[0], powers[1]] {
            for base in [8, 10, 16] {
                let bit = |n: i32, flag: i32| if bits >> n & 1 == 1 { flag } else { 0 };
                let mut flags = bit(0, flag::ZERO) | bit(1, flag::MARK) | bit(2, flag::UPPER);
                if base == 10 {
                    flags |= bit(3, flag::SIGNED) | i32::from(sign) << flag::SIGN_SHIFT;
                }
                let args = [precision.cast_unsigned(), value, flags as u64, width.cast_unsigned()];
                let (found, full) = appended(&format!("append_number_{base}"), &before, None, &args);
                let more = number(base, precision, value, flags, width);
                check_full(full, before.len() + more.len())?;
                let expected = with(&before, &more);
                prop_assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected), "{} {} {}", base, value, flags);
            }
        }
    }

    3000 cases: fn addresses_are_hexadecimal(before in before(), value in any::<u64>(), shift in 0..64u32, mark in any::<bool>()) {
        let value = value >> shift;
        let args = [value, if mark { flag::MARK as u64 } else { 0 }];
        let (found, full) = appended("append_hex", &before, None, &args);
        let more = if mark { format!("{value:#x}") } else { format!("{value:x}") };
        prop_assert_eq!(full, before.len() + more.len() > MOST);
        prop_assert_eq!(found, with(&before, more.as_bytes()));
    }

    3000 cases: fn bytes_end_at_a_zero(
        before in before(),
        value in any::<u64>(),
        hole in 0..12u32,
        sizes in [prop_oneof![-10..10i64, any::<i64>()], prop_oneof![3 => -10..10i64, 1 => any::<i64>()]],
    ) {
        let [precision, width] = sizes;
        let value = if hole < 8 { value & !(0xff << (8 * hole)) } else { value };
        let args = [value, precision.cast_unsigned(), width.cast_unsigned()];
        let (found, full) = appended("append_bytes", &before, None, &args);
        let sizes = [precision.max(0).cast_unsigned(), width.unsigned_abs()];
        let size = sizes.iter().find(|n| [1, 2, 4, 8].contains(*n)).map_or(8, |n| *n as usize);
        let mut bytes = value.to_le_bytes()[..size].to_vec();
        let fill = (width.unsigned_abs() as usize).saturating_sub(size);
        // The first column is a NUL.
        if width > 0 && fill > 0 {
            bytes.clear();
        }
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        prop_assert_eq!(full, end < size || fill > 0 || before.len() + end > MOST);
        prop_assert_eq!(found, with(&before, &bytes[..end]));
    }
}
