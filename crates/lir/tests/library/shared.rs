//! The functions that are the same for all callers.

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::Module;
use spile_lir::library::eviction::{DROP_OLD, OLDEST};
use spile_lir::library::{self, CHUNK};

use super::forms::{Arg, REMOVED, forms, number, properties, slot, text};

/// Runs a function in both forms; gives the result and the memory afterwards.
pub(crate) fn run(name: &str, args: &[Arg]) -> (u64, Vec<Vec<u8>>) {
    let module = || library::only(name).expect("there is such a function");
    forms(name, module).run(name, args)
}

fn order(ordering: std::cmp::Ordering) -> u64 {
    (ordering as i64).cast_unsigned()
}

#[test]
fn functions_are_found_by_name() {
    for func in &library::module().funcs {
        let only = library::only(&func.name).unwrap_or_default();
        assert_eq!(only.funcs, std::slice::from_ref(func));
    }
    assert_eq!(library::only("no such"), None::<Module>);
}

properties! {
    also the_longest_texts_are_within_loop_bounds;
    also the_largest_histogram_is_within_loop_bounds;

    1000 cases: fn compare_orders_texts_as_rust_does(a in text(300), b in text(300), common in text(200)) {
        let (a, b) = ([common.clone(), a].concat(), [common, b].concat());
        let chunk = 8 * CHUNK as usize;
        let size = (a.len().max(b.len()) + 1).next_multiple_of(chunk);
        let args = [Arg::Memory(slot(&a, size)), Arg::Memory(slot(&b, size)), number(size / chunk)];
        prop_assert_eq!(run("compare", &args).0, order(a.cmp(&b)));
        let same = [args[0].clone(), args[0].clone(), args[2].clone()];
        prop_assert_eq!(run("compare", &same).0, 0);
    }

    1000 cases: fn texts_in_slots_of_all_widths_have_an_order(
        common in text(80), ends in [text(20), text(20)], words in 1..14usize, behind in any::<[u8; 2]>(),
    ) {
        let texts = [0, 1].map(|n| {
            let mut text = [b"the same", &common[..], &ends[n]].concat();
            text.truncate(8 * words - 1);
            text
        });
        // What is behind the slots is no part of the texts.
        let args = [0, 1].map(|n| Arg::Memory([slot(&texts[n], 8 * words), vec![behind[n]; 16]].concat()));
        let found = run("order", &[args[0].clone(), args[1].clone(), number(words)]).0;
        prop_assert_eq!(found, (texts[0].cmp(&texts[1]) as i64 + 1).cast_unsigned());
    }

    1000 cases: fn copy_keeps_what_fits(from in text(100), words in 1..14usize, least in 0..14usize) {
        let size = 8 * words;
        let from_slot = slot(&from, 8 * least);
        let to = vec![0xee; size];
        let args = [Arg::Memory(to), number(size), Arg::Memory(from_slot.clone()), number(from_slot.len())];
        let (cut, memory) = run("copy", &args);
        let mut expected = from.clone();
        expected.truncate(size - 1);
        prop_assert_eq!(cut, u64::from(from.len() > size - 1));
        expected.resize(size, 0);
        prop_assert_eq!(&memory[0], &expected);
        prop_assert_eq!(&memory[1], &from_slot);
    }

    1000 cases: fn length_ends_at_the_first_nul(text in text(300), more in 0..5usize) {
        let bytes = slot(&text, text.len() / 8 * 8 + 8 * more);
        let size = bytes.len();
        prop_assert_eq!(run("length", &[Arg::Memory(bytes), number(size)]).0, text.len() as u64);
    }

    1000 cases: fn decimal_prints_digits_as_rust_does(n in any::<u64>(), shift in 0..64u32) {
        for n in [n, n >> shift, 10u64.saturating_pow(shift).wrapping_sub(n & 1)] {
            let (digits, memory) = run("decimal", &[Arg::Memory(vec![0xee; 24]), Arg::Number(n)]);
            prop_assert_eq!(&memory[0], &format!("{n:024}").into_bytes());
            prop_assert_eq!(digits, n.to_string().len() as u64);
        }
    }

    1000 cases: fn hex_prints_digits_as_rust_does(n in any::<u64>(), shift in 0..64u32) {
        for (n, ten) in [(n, b'a'), (n >> shift, b'A'), (0, b'a')] {
            let args = [Arg::Memory(vec![0xee; 16]), Arg::Number(n), number(ten.into())];
            let (digits, memory) = run("hex", &args);
            let expected = if ten == b'a' { format!("{n:016x}") } else { format!("{n:016X}") };
            prop_assert_eq!(&memory[0], &expected.into_bytes());
            prop_assert_eq!(digits, format!("{n:x}").len() as u64);
        }
    }

    1000 cases: fn division_rounds_to_zero(a in any::<i64>(), b in any::<i64>(), shifts in [0..64u32, 0..64u32]) {
        let (a, b) = (a >> shifts[0], b >> shifts[1]);
        for a in [a, i64::MIN, i64::MAX] {
            for b in [b, -1, 1, i64::MIN].into_iter().filter(|b| *b != 0) {
                let args = [a, b].map(|n| Arg::Number(n.cast_unsigned()));
                prop_assert_eq!(run("divide", &args).0, a.wrapping_div(b).cast_unsigned());
                prop_assert_eq!(run("modulo", &args).0, a.wrapping_rem(b).cast_unsigned());
            }
        }
    }

    1000 cases: fn variance_is_exact(
        count in any::<u64>(),
        sum in any::<i64>(),
        squares in any::<u128>(),
        shifts in [0..64u32, 0..64u32, 0..128u32],
        values in vec(any::<i64>(), 1..20),
        shift in 0..64u32,
    ) {
        check_variance(count >> shifts[0], sum >> shifts[1], squares >> shifts[2])?;
        // Numbers that a program could have added: their variance fits into a word.
        let values = values.iter().map(|v| (sum >> 5 >> (shifts[1] % 32)) + (v >> 24 >> (shift % 32)));
        let count_of = values.len() as u64;
        let squares_of = values.clone().map(|v| u128::from(v.unsigned_abs()).pow(2)).sum();
        check_variance(count_of, values.sum(), squares_of)?;
        let count = (count >> shifts[0]).max(2);
        let (count, squares) = match shift % 3 {
            // A quotient near the largest one, or at a power of two.
            0 => (count, (u128::from(count - 1) << (63 - shift % 2)).wrapping_sub(squares & 1)),
            1 => (count, u128::from(count - 1) << (shifts[2] % 64)),
            // A numerator that has some bits more than the quotient may have.
            _ => ((1 << 63) + u64::from(shift), squares),
        };
        check_variance(count, if shift > 40 { sum } else { 0 }, squares)?;
    }

    1000 cases: fn squares_add_up_exactly(sum in any::<u128>(), v in any::<i64>(), shifts in [0..128u32, 0..64u32]) {
        let (sum, v) = (sum >> shifts[0], v >> shifts[1]);
        for sum in [sum, !sum, u128::from(u64::MAX) - (sum >> 64)] {
            for v in [v, v.wrapping_neg(), i64::MIN] {
                let args = [Arg::Memory(sum.to_le_bytes().to_vec()), Arg::Number(v.cast_unsigned())];
                let (_, memory) = run("add_square", &args);
                let square = u128::from(v.unsigned_abs()).pow(2);
                prop_assert_eq!(&memory[0], &sum.wrapping_add(square).to_le_bytes(), "{} {}", sum, v);
            }
        }
    }

    1000 cases: fn logarithmic_buckets_are_numbers_of_bits(v in any::<i64>(), shift in 0..64u32) {
        for v in [v >> shift, 1 << shift, (1i64 << shift).wrapping_sub(1), i64::MIN >> shift, 0] {
            let bits = v.unsigned_abs().checked_ilog2().map_or(0, |n| u64::from(n) + 1);
            let bucket = if v < 0 { 64 - bits } else { 64 + bits };
            prop_assert_eq!(run("log_bucket", &[Arg::Number(v.cast_unsigned())]).0, bucket, "{}", v);
        }
    }

    1000 cases: fn old_elements_are_found_and_removed(
        sequence in prop_oneof![Just(0u64), 1..9u64, any::<u64>()],
        limit in prop_oneof![1..9u64, any::<u64>()],
    ) {
        for limit in [limit, sequence, sequence.wrapping_sub(1), sequence.wrapping_add(1)] {
            let word = |n: u64| Arg::Memory(n.to_le_bytes().to_vec());
            let args = [Arg::Number(1), Arg::Number(2), word(sequence), word(limit)];
            let (_, memory) = run(OLDEST, &args);
            let least = if sequence == 0 { limit } else { limit.min(sequence) };
            prop_assert_eq!(&memory[1], &least.to_le_bytes());
            REMOVED.set(Vec::new());
            run(DROP_OLD, &args);
            let removed = sequence != 0 && sequence <= limit;
            let all = REMOVED.take();
            prop_assert!(all.iter().all(|pair| *pair == [1, 2]));
            prop_assert_eq!(!all.is_empty(), removed, "{} {}", sequence, limit);
        }
    }

    1000 cases: fn buckets_that_are_not_empty_are_found(
        buckets in vec(prop_oneof![2 => Just(0u64), 1 => Just(1 << 40), 1 => any::<u64>()], 0..70),
        from in 0..80u64,
    ) {
        let bytes = buckets.iter().flat_map(|n| n.to_le_bytes()).collect();
        let words = [from.to_le_bytes(), [0xee; 8]].concat();
        let args = [Arg::Memory(bytes), number(buckets.len()), Arg::Memory(words)];
        let (_, memory) = run("next_bucket", &args);
        let mut rest = (0u64..).zip(&buckets).skip_while(|(i, _)| *i < from);
        let found = rest.find(|(_, n)| **n != 0).map(|(i, n)| (i + 1, *n));
        let (next, count) = found.unwrap_or((from.max(buckets.len() as u64), 0));
        prop_assert_eq!(&memory[1], &[next, count].map(u64::to_le_bytes).concat());
    }

    1000 cases: fn strtol_agrees_with_the_kernel_s(
        text in prop_oneof![
            "-?(0[xX])?[0-9a-fA-FgGzZ:@` +-]{0,24}",
            "[-,]?[01]?[xXyY]?[019afAF/:`g@G]{0,3}",
        ],
        base in prop_oneof![
            2 => Just(0u64), 1 => Just(8), 1 => Just(10), 2 => Just(16), 1 => prop_oneof![Just(1), Just(17)], 1 => 0..40u64, 1 => any::<u64>()
        ],
    ) {
        let bytes = slot(text.as_bytes(), 0);
        let size = bytes.len();
        let args = [Arg::Memory(bytes), number(size), Arg::Number(base)];
        prop_assert_eq!(run("strtol", &args).0, simple_strtol(&text, base as u32), "{} {}", text, base);
    }
}

/// The product of numbers of 64-bit words, low word first, by the rule of the school.
fn product(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut to = vec![0; a.len() + b.len()];
    for (i, x) in a.iter().enumerate() {
        let mut carry = 0u128;
        for (j, y) in b.iter().enumerate() {
            carry += u128::from(*x) * u128::from(*y) + u128::from(to[i + j]);
            to[i + j] = carry as u64;
            carry >>= 64;
        }
        to[i + b.len()] = carry as u64;
    }
    to
}

/// Whether a number is below another one.
fn below(a: &[u64], b: &[u64]) -> bool {
    let digit = |n: &[u64], i| n.get(i).copied().unwrap_or(0);
    let most = a.len().max(b.len());
    let differ = (0..most).rev().find(|i| digit(a, *i) != digit(b, *i));
    differ.is_some_and(|i| digit(a, i) < digit(b, i))
}

/// Checks a variance by multiplying: the quotient is the largest number whose product with the
/// divisor, and the square of the sum, are no more than the count times the squares.
fn check_variance(count: u64, sum: i64, squares: u128) -> Result<(), TestCaseError> {
    let words = [squares as u64, (squares >> 64) as u64];
    let args = [
        Arg::Number(count),
        Arg::Number(sum.cast_unsigned()),
        Arg::Number(words[0]),
        Arg::Number(words[1]),
    ];
    let got = run("variance", &args).0;
    if count < 2 {
        prop_assert_eq!(got, 0);
        return Ok(());
    }
    let all = product(&[count], &words);
    let square = product(&[sum.unsigned_abs()], &[sum.unsigned_abs()]);
    let divisor = product(&[count], &[count - 1]);
    // Whether divisor * quotient + square <= all.
    let fits = |quotient: u64| {
        let mut total = product(&divisor, &[quotient]);
        total.push(0);
        let mut carry = 0u128;
        for (i, word) in total.iter_mut().enumerate() {
            carry += u128::from(*word) + u128::from(square.get(i).copied().unwrap_or(0));
            *word = carry as u64;
            carry >>= 64;
        }
        !below(&all, &total)
    };
    let largest = i64::MAX.cast_unsigned();
    prop_assert!(got <= largest);
    prop_assert!(got == 0 || fits(got), "{} is too large", got);
    prop_assert!(got == largest || !fits(got + 1), "{} is too small", got);
    Ok(())
}

/// The grammar of the kernel's `simple_strtol`, by characters.
fn simple_strtol(text: &str, base: u32) -> u64 {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let after_mark = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let (base, digits) = match (base, after_mark) {
        (16, Some(rest)) => (16, rest),
        (0, Some(rest)) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, rest),
        (0, _) if text.starts_with('0') => (8, text),
        (0, _) => (10, text),
        (base, _) => (base, text),
    };
    let mut n = 0u64;
    for c in digits.chars() {
        match c.to_digit(16) {
            Some(d) if d < base => n = n.wrapping_mul(base.into()).wrapping_add(d.into()),
            _ => break,
        }
    }
    if negative { n.wrapping_neg() } else { n }
}

/// The longest texts: the bounds of the loops are large enough.
#[test]
fn the_longest_texts_are_within_loop_bounds() {
    let text = vec![b'x'; 4103];
    let bytes = slot(&text, 0);
    let long = [Arg::Memory(bytes.clone()), number(4104)];
    assert_eq!(run("length", &long).0, 4103);
    let mut other = text.clone();
    other[4102] = b'y';
    let args = [
        Arg::Memory(slot(&text, 129 * 32)),
        Arg::Memory(slot(&other, 129 * 32)),
        number(129),
    ];
    assert_eq!(run("compare", &args).0, order(text.cmp(&other)));
    let to = Arg::Memory(vec![1; 4104]);
    let (cut, memory) = run("copy", &[to, number(4104), long[0].clone(), number(4104)]);
    assert_eq!((cut, &memory[0]), (0, &bytes));
    let digits = [vec![b'0'; 4102], vec![b'7']].concat();
    let digits = [Arg::Memory(slot(&digits, 0)), number(4104), number(10)];
    assert_eq!(run("strtol", &digits).0, 7);
}

#[test]
fn the_largest_histogram_is_within_loop_bounds() {
    let mut bytes = vec![0; 8 << 13];
    bytes[(8 << 13) - 1] = 1;
    let args = [
        Arg::Memory(bytes),
        number(1 << 13),
        Arg::Memory(vec![0; 16]),
    ];
    let (_, memory) = run("next_bucket", &args);
    assert_eq!(
        memory[1],
        [1u64 << 13, 1 << 56].map(u64::to_le_bytes).concat()
    );
}
