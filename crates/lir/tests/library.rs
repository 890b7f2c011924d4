//! Each function of the library against Rust, on random inputs, as it is written and with its loops
//! as callbacks.

#[path = "common/library.rs"]
mod common;
#[path = "common/heap.rs"]
mod heap;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use common::{Arg, REMOVED, number, run_in, slot, text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use spile_lir::Module;
use spile_lir::library::eviction::{DROP_OLD, OLDEST};
use spile_lir::library::{self, CHUNK};
use spile_lir::mutate;
use spile_lir::repeat::outline;
use spile_lir::verify::verify;

/// The functions that are the same for all callers, and those of heaps.
static LIBRARY: LazyLock<Module> = LazyLock::new(|| {
    let mut all = library::module().clone();
    all.funcs.extend(heap::modules().flat_map(|m| m.funcs));
    all
});

/// The library with its loops as callbacks.
static OUTLINED: LazyLock<Module> = LazyLock::new(|| {
    let mut module = LIBRARY.clone();
    outline(&mut module).unwrap_or_else(|e| panic!("{e}"));
    verify(&module).unwrap_or_else(|e| panic!("{e}"));
    module
});

thread_local! {
    /// The module that replaces the library in [`run`].
    static MUTANT: RefCell<Option<Module>> = const { RefCell::new(None) };
}

/// Runs a function in both forms, which must agree; gives the result and the memory afterwards.
fn run(name: &str, args: &[Arg]) -> (u64, Vec<Vec<u8>>) {
    let mutant = MUTANT.with_borrow(|m| m.as_ref().map(|module| run_in(module, name, args)));
    mutant.unwrap_or_else(|| {
        let a = run_in(&LIBRARY, name, args);
        assert_eq!(
            a,
            run_in(&OUTLINED, name, args),
            "{name}: loops and callbacks"
        );
        a
    })
}

/// The configuration of a property; with a mutant the inputs are always the same.
fn config() -> ProptestConfig {
    let mutant = MUTANT.with_borrow(Option::is_some);
    ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        max_shrink_iters: if mutant { 0 } else { u32::MAX },
        rng_seed: if mutant {
            RngSeed::Fixed(1)
        } else {
            RngSeed::Random
        },
        ..ProptestConfig::default()
    }
}

fn order(ordering: std::cmp::Ordering) -> u64 {
    (ordering as i64).cast_unsigned()
}

#[test]
fn all_functions_are_valid_and_documented() {
    let module = &*LIBRARY;
    verify(module).unwrap_or_else(|e| panic!("{e}"));
    for func in &module.funcs {
        let parts = func
            .contract
            .split_once('\n')
            .map(|(_, rest)| rest.contains("Cost: "));
        assert_eq!(
            parts,
            Some(true),
            "@{}: what it does, arguments, cost",
            func.name
        );
    }
    for func in &module.funcs {
        assert!(tests_of(&func.name).is_some(), "@{}: no tests", func.name);
    }
    for func in &library::module().funcs {
        let only = library::only(&func.name).unwrap_or_default();
        assert_eq!(only.funcs, std::slice::from_ref(func));
    }
    assert_eq!(library::only("no such"), None);
    let back = spile_lir::reader::read(&module.to_string()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(back.to_string(), module.to_string());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn compare_orders_texts_as_rust_does(a in text(300), b in text(300), common in text(200)) {
        let (a, b) = ([common.clone(), a].concat(), [common, b].concat());
        let chunk = 8 * CHUNK as usize;
        let size = (a.len().max(b.len()) + 1).next_multiple_of(chunk);
        let args = [Arg::Memory(slot(&a, size)), Arg::Memory(slot(&b, size)), number(size / chunk)];
        prop_assert_eq!(run("compare", &args).0, order(a.cmp(&b)));
        let same = [args[0].clone(), args[0].clone(), args[2].clone()];
        prop_assert_eq!(run("compare", &same).0, 0);
    }

    #[test]
    fn copy_keeps_what_fits(from in text(100), words in 1..14usize, least in 0..14usize) {
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

    #[test]
    fn length_ends_at_the_first_nul(text in text(300), more in 0..5usize) {
        let bytes = slot(&text, text.len() / 8 * 8 + 8 * more);
        let size = bytes.len();
        prop_assert_eq!(run("length", &[Arg::Memory(bytes), number(size)]).0, text.len() as u64);
    }

    #[test]
    fn decimal_prints_digits_as_rust_does(n in any::<u64>(), shift in 0..64u32) {
        for n in [n, n >> shift, 10u64.saturating_pow(shift).wrapping_sub(n & 1)] {
            let (digits, memory) = run("decimal", &[Arg::Memory(vec![0xee; 24]), Arg::Number(n)]);
            prop_assert_eq!(&memory[0], &format!("{n:024}").into_bytes());
            prop_assert_eq!(digits, n.to_string().len() as u64);
        }
    }

    #[test]
    fn hex_prints_digits_as_rust_does(n in any::<u64>(), shift in 0..64u32) {
        for (n, ten) in [(n, b'a'), (n >> shift, b'A'), (0, b'a')] {
            let args = [Arg::Memory(vec![0xee; 16]), Arg::Number(n), number(ten.into())];
            let (digits, memory) = run("hex", &args);
            let expected = if ten == b'a' { format!("{n:016x}") } else { format!("{n:016X}") };
            prop_assert_eq!(&memory[0], &expected.into_bytes());
            prop_assert_eq!(digits, format!("{n:x}").len() as u64);
        }
    }

    #[test]
    fn division_rounds_to_zero(a in any::<i64>(), b in any::<i64>(), shifts in [0..64u32, 0..64u32]) {
        let (a, b) = (a >> shifts[0], b >> shifts[1]);
        for a in [a, i64::MIN, i64::MAX] {
            for b in [b, -1, 1, i64::MIN].into_iter().filter(|b| *b != 0) {
                let args = [a, b].map(|n| Arg::Number(n.cast_unsigned()));
                prop_assert_eq!(run("divide", &args).0, a.wrapping_div(b).cast_unsigned());
                prop_assert_eq!(run("modulo", &args).0, a.wrapping_rem(b).cast_unsigned());
            }
        }
    }

    #[test]
    fn variance_is_exact(
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

    #[test]
    fn squares_add_up_exactly(sum in any::<u128>(), v in any::<i64>(), shifts in [0..128u32, 0..64u32]) {
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

    #[test]
    fn logarithmic_buckets_are_numbers_of_bits(v in any::<i64>(), shift in 0..64u32) {
        for v in [v >> shift, 1 << shift, (1i64 << shift).wrapping_sub(1), i64::MIN >> shift, 0] {
            let bits = v.unsigned_abs().checked_ilog2().map_or(0, |n| u64::from(n) + 1);
            let bucket = if v < 0 { 64 - bits } else { 64 + bits };
            prop_assert_eq!(run("log_bucket", &[Arg::Number(v.cast_unsigned())]).0, bucket, "{}", v);
        }
    }

    #[test]
    fn old_elements_are_found_and_removed(
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

    #[test]
    fn buckets_that_are_not_empty_are_found(
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

    #[test]
    fn strtol_agrees_with_the_kernel_s(
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

type Tests = &'static [fn()];

/// The tests of each function.
const TESTS: &[(&str, Tests)] = &[
    (
        "compare",
        &[
            the_longest_texts_are_within_loop_bounds,
            compare_orders_texts_as_rust_does,
        ],
    ),
    (
        "copy",
        &[
            the_longest_texts_are_within_loop_bounds,
            copy_keeps_what_fits,
        ],
    ),
    (
        "length",
        &[
            the_longest_texts_are_within_loop_bounds,
            length_ends_at_the_first_nul,
        ],
    ),
    ("decimal", &[decimal_prints_digits_as_rust_does]),
    ("hex", &[hex_prints_digits_as_rust_does]),
    (
        "strtol",
        &[
            the_longest_texts_are_within_loop_bounds,
            strtol_agrees_with_the_kernel_s,
        ],
    ),
    ("divide", &[division_rounds_to_zero]),
    ("modulo", &[division_rounds_to_zero]),
    ("variance", &[variance_is_exact]),
    ("add_square", &[squares_add_up_exactly]),
    ("log_bucket", &[logarithmic_buckets_are_numbers_of_bits]),
    (OLDEST, &[old_elements_are_found_and_removed]),
    (DROP_OLD, &[old_elements_are_found_and_removed]),
    (
        "next_bucket",
        &[
            the_largest_histogram_is_within_loop_bounds,
            buckets_that_are_not_empty_are_found,
        ],
    ),
];

/// The tests of a function.
fn tests_of(name: &str) -> Option<Tests> {
    let mut all = TESTS.iter().chain(heap::TESTS);
    all.find(|(of, _)| *of == name).map(|(_, tests)| *tests)
}

/// Changes single operations of the library. The tests of the function must find the change:
/// `MUTANTS=200 cargo test -p spile-lir --test library mutants -- --nocapture` tries 200 changes and prints
/// those that no test finds. `SEED=N` chooses others.
///
/// The changes that live mean the same: guards that only the kernel's verifier needs, an exit that only
/// saves iterations, bits of a word of flags that nobody reads, and the first of the three parts of a
/// decimal number, which has four digits only.
#[test]
fn mutants_are_found() {
    let number = |name: &str, default: u64| {
        let value = std::env::var(name).ok();
        value.map_or(default, |v| v.parse().expect("a number"))
    };
    let (count, mut random) = (number("MUTANTS", 30) as usize, number("SEED", 1));
    let mut mutants = Vec::new();
    for (i, func) in LIBRARY.funcs.iter().enumerate() {
        for mutant in mutate::mutants(func) {
            let mut module = LIBRARY.clone();
            module.funcs[i] = mutant.func;
            if verify(&module).is_ok() {
                mutants.push((&*func.name, mutant.change, module));
            }
        }
    }
    let all = mutants.len();
    // The panics of this thread are expected; those of other tests are printed.
    let (here, print) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != here {
            print(panic);
        }
    }));
    let (mut tried, mut alive) = (0, Vec::new());
    while tried < count && !mutants.is_empty() {
        // A step of SplitMix64.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let (name, change, module) = mutants.swap_remove(x as usize % mutants.len());
        let tests = tests_of(name);
        MUTANT.set(Some(module));
        let mut tests = tests.unwrap_or_default().iter();
        if tests.all(|test| catch_unwind(AssertUnwindSafe(test)).is_ok()) {
            alive.push(change);
        }
        tried += 1;
    }
    MUTANT.set(None);
    drop(std::panic::take_hook());
    println!("{tried} of {all} mutants, {} live", alive.len());
    alive.iter().for_each(|change| println!("  {change}"));
    assert!(10 * alive.len() <= tried, "more than a tenth live");
}
