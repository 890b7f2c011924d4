//! Conversion of decimal text to floating-point numbers: thousands of texts, including midpoints
//! between two numbers and their neighbours. Interpreter and kernel have to give the same bits as
//! the standard library's parser.

use std::fmt::Write;

use spile_ir::interp::string_to_fp;
use spile_ir::testgen::Rng;
use spile_ir::{Program, reader};

use crate::machine::HostKind;

const WRITTEN: &[&str] = &[
    "",
    " ",
    "x",
    "-",
    "+",
    ".",
    "-.",
    "e5",
    "0",
    "-0",
    "0.0e999",
    "1",
    "-1",
    "+1",
    " \t-12.5xyz",
    "1.",
    ".5",
    "5.e3",
    "1e",
    "1e+",
    "1e-",
    "1ee5",
    "1.5.5",
    "1..5",
    "--1",
    "3.14",
    "2.71828",
    "1e5",
    "1E-5",
    "00001.5000",
    "0.000001",
    "inf",
    "-Infinity",
    "INF",
    "in",
    "i",
    "nan",
    "-NaN(1)",
    "na",
    "1e308",
    "1e309",
    "1.7976931348623157e308",
    "1.7976931348623158e308",
    "1.7976931348623159e308",
    "179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880",
    "2.2250738585072014e-308",
    "2.2250738585072011e-308",
    "2.225073858507201136057409796709131975934819546351645648023426109724822222021076945516529523908135087914149158913039621106870086438694594645527657207407820621743379988141063267329253552286881372149012981122451451889849057222307285255133155755015914397476397983411801999323962548289017107081850690630666655994938275772572015763062690663332647565300009245888316433037779791869612049497390377829704905051080609940730262937128958950003583799967207254304360284078895771796150945516748243471030702609144621572289880258182545180325707018860872113128079512233426288368622321503775666622503982534335974568884423900265498198385487948292206894721689831099698365846814022854243330660339850886445804001034933970427567186443383770486037861622771738545623065874679014086723327636718751234567890123456789012345678901e-308",
    "4.9406564584124654e-324",
    "2.4703282292062327e-324",
    "2.4703282292062328e-324",
    "1e-325",
    "1e-400",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "9007199254740993",
    "9007199254740993.00000000000000000000000000000000000001",
    "9007199254740992.99999999999999999999999999999999999999",
    "123456789012345678901234567890",
    "8.98846567431158e307",
    "6.631236871469758276785396630275967e-4",
    "0.500000000000000166533453693773481063544750213623046875",
    "9223372036854775807",
    "18446744073709551615",
    "1.0000000000000002220446049250313080847263336181640625",
];

/// The text of a midpoint between two numbers, or of a close neighbour.
fn halfway(rng: &mut Rng) -> String {
    // Halves of 54-bit numbers are integers times 10^-k times a power of 5, and therefore exact
    // decimals: `{:.N}` writes all digits.
    let bits = u64::from(rng.below(u32::MAX)) << 21 ^ u64::from(rng.below(u32::MAX));
    let odd = (bits & ((1 << 53) - 1)) | (1 << 53) | 1;
    // The sum of a 53-bit number and half its last place, digit by digit.
    let shift = rng.below(80);
    let whole = u128::from(odd) << (shift % 60);
    let mut text = whole.to_string();
    if rng.chance(50) {
        // Division by 2^k adds k digits behind the point.
        let k = 1 + rng.below(60);
        text = divided(whole, k);
    } else {
        text.push_str(".0");
    }
    match rng.below(4) {
        0 => {}
        1 => text.push_str("00000000000000000000000000000000001"),
        2 => {
            text.push_str(&"0".repeat(rng.below(300) as usize));
            text.push('1');
        }
        _ => {
            // Decrements the last digit, and appends nines.
            let last = text.pop().unwrap_or('0');
            match last {
                '1'..='9' => {
                    text.push(char::from(last as u8 - 1));
                    text.push_str("99999999999999999999999999999999");
                }
                _ => text.push(last),
            }
        }
    }
    text
}

/// `n / 2^k` with all its digits.
fn divided(n: u128, k: u32) -> String {
    let mut text = format!("{}.", n >> k);
    let mut rest = n & ((1 << k) - 1);
    for _ in 0..k {
        rest *= 10;
        let _ = write!(text, "{}", rest >> k);
        rest &= (1 << k) - 1;
    }
    text
}

fn random(rng: &mut Rng) -> String {
    let word =
        |rng: &mut Rng| u64::from(rng.below(u32::MAX)) << 32 | u64::from(rng.below(u32::MAX));
    let sign = if rng.chance(20) { "-" } else { "" };
    let any = |rng: &mut Rng| f64::from_bits(word(rng) & 0x7fef_ffff_ffff_ffff);
    let text = match rng.below(8) {
        0 => halfway(rng),
        1 => format!("{:e}", any(rng)),
        2 => format!("{:.*e}", rng.below(40) as usize, any(rng)),
        3 => format!(
            "{:.30}",
            f64::from_bits((word(rng) >> 12) | (1000 + u64::from(rng.below(60))) << 52)
        ),
        // Subnormal numbers.
        4 => format!(
            "{:.*e}",
            rng.below(30) as usize,
            f64::from_bits(word(rng) >> (12 + rng.below(50)))
        ),
        5 => format!("{}e{}", word(rng), i64::from(rng.below(700)) - 350),
        6 => format!("{}.{}", word(rng) >> rng.below(64), word(rng)),
        _ => {
            let digits: String = (0..1 + rng.below(400))
                .map(|_| char::from(b'0' + rng.below(10) as u8))
                .collect();
            let at = rng.below(digits.len() as u32) as usize;
            let e = i64::from(rng.below(700)) - 350;
            format!("{}.{}e{e}", &digits[..at], &digits[at..])
        }
    };
    format!("{sign}{text}")
}

/// The standard library's result, if it accepts all of the text.
fn parsed(text: &str) -> Option<i64> {
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then(|| number.to_bits() as i64)
}

/// Compares texts by number, each in a run of its own.
fn compare(texts: &[String], limit: usize) {
    let mut script = format!(
        "limits maxerrors=1000 maxstringlen={limit}\nsite @0 \"\"\nsite @1 \"x\"\ntable t0 \"texts\""
    );
    texts.iter().for_each(|t| {
        let _ = write!(script, " {t:?}");
    });
    let width = limit.next_multiple_of(8);
    let _ = write!(
        script,
        "\nfmt f0 \"%d\\n\"\nhandler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long, \
         r1: str{width}, r2: long\n  b0:\n    r0 = intr ctx_arg(0)\n    r1 = table t0, r0\n    \
         r2 = intr str_to_fp(r1)\n    print out f0(r2)\n    ret\n}}\n"
    );
    let program = reader::read(&script).unwrap_or_else(|e| panic!("{e}\n{script}"));
    for host in HostKind::ALL {
        compare_in(host, &program, texts);
    }
}

fn compare_in(host: HostKind, program: &Program, texts: &[String]) {
    let mut kernel = host.load(program);
    for n in 0..texts.len() as u64 {
        host.go_to(n);
        kernel.run(&[n, 0]);
    }
    let outcome = kernel.outcome();
    let mut lines = outcome.out.lines();
    for text in texts {
        let got: i64 = lines.next().expect("a line").parse().expect("a number");
        let want = string_to_fp(text.as_bytes());
        assert_eq!(got as u64, want as u64, "{text} {:x} {want:x}", got);
        if let Some(parsed) = parsed(text) {
            assert_eq!(parsed, want, "{text}");
        }
    }
}

#[test]
fn decimals_are_rounded_as_by_the_standard_library() {
    let mut rng = Rng::new(11);
    let mut texts: Vec<String> = WRITTEN.iter().map(|t| (*t).to_owned()).collect();
    texts.extend((0..4000).map(|_| random(&mut rng)));
    let (short, long): (Vec<String>, Vec<String>) = texts.into_iter().partition(|t| t.len() < 64);
    compare(&short, 63);
    compare(&long, 1023);
}

#[test]
fn thousands_of_digits_are_rounded_correctly() {
    let mut texts = Vec::new();
    for digits in [700, 766, 767, 768, 769, 770, 1000, 3000, 4000] {
        // Half of the smallest number has 751 digits; more digits follow.
        let half = "2.4703282292062327208299161334447804187".to_owned();
        texts.push(format!("{half}{}e-324", "3".repeat(digits - half.len())));
        texts.push(format!("1.{}1", "0".repeat(digits)));
        // The midpoint above 1, and a nonzero digit far behind it.
        let above = "1.00000000000000011102230246251565404236316680908203125";
        texts.push(format!("{above}{}", "0".repeat(digits)));
        texts.push(format!("{above}{}1", "0".repeat(digits)));
        texts.push(format!("0.{}1e{digits}", "0".repeat(digits)));
        texts.push(format!("1{}e-{digits}", "0".repeat(digits)));
        texts.push(format!(
            "9007199254740993{}1e-{}",
            "0".repeat(digits),
            digits + 1
        ));
        texts.push(format!("4.9e{}", "9".repeat(digits)));
    }
    compare(&texts, 4095);
}
