//! The library's floating-point functions, which use integer arithmetic only, compared with the
//! processor's: the same bits for random numbers of all kinds.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use spile_ir::testgen::Rng;

fn random(rng: &mut Rng) -> f64 {
    let mut word = || u64::from(rng.below(u32::MAX)) << 32 | u64::from(rng.below(u32::MAX));
    let (bits, small, kind) = (word(), word(), word() % 10);
    f64::from_bits(match kind {
        0 => [
            0.0,
            -0.0,
            1.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::NAN,
            0.5,
        ][(bits % 9) as usize]
            .to_bits(),
        // Subnormal ones.
        1 => bits & 0x800f_ffff_ffff_ffff,
        // Few bits, so that results are halfway cases.
        2 => (bits & 0x8000_0000_0000_0000) | ((1000 + small % 60) << 52) | (small >> 60 << 48),
        // Near 1: sums cancel, products are halfway.
        3..=6 => (bits & 0x800f_ffff_ffff_ffff) | ((1000 + small % 60) << 52),
        _ => bits,
    })
}

/// A single bit pattern for all NaNs.
fn one_nan(x: f64) -> i64 {
    if x.is_nan() {
        i64::MIN
    } else {
        x.to_bits() as i64
    }
}

/// The remainder to the nearest quotient, where the quotient is small enough to be exact.
fn remainder(a: f64, b: f64) -> Option<f64> {
    let exact = a.is_finite() && b.is_finite() && b != 0.0 && (a / b).abs() < 1e15;
    exact.then(|| {
        let r = a % b;
        let odd = ((a - r) / b).round() % 2.0 != 0.0;
        let (half, size) = (r.abs() * 2.0, b.abs());
        if half > size || (half == size && odd) {
            let r = r.abs() - size;
            if a.is_sign_negative() { -r } else { r }
        } else {
            r
        }
    })
}

/// The output of the script below for each line of two numbers.
const SCRIPT: &str = r#"
function n(x) { return (x & 0x7fffffffffffffff) > 0x7ff0000000000000 ? 0x8000000000000000 : x }
probe input.line {
  if (line == "end\n") exit()
  a = strtol(tokenize(line, " "), 10)
  b = strtol(tokenize("", " "), 10)
  printf("%d %d %d %d %d ", n(fp_add(a, b)), n(fp_sub(a, b)), n(fp_mul(a, b)), n(fp_div(a, b)), n(fp_sqrt(a)))
  printdln(" ", fp_eq(a, b), fp_lt(a, b), fp_le(a, b), fp_to_long(a, 1, 0), n(fp_rem(a, b)))
}"#;

#[test]
fn results_have_the_same_bits_as_the_processor_s() {
    let mut rng = Rng::new(4);
    let pairs: Vec<_> = (0..3000)
        .map(|_| (random(&mut rng), random(&mut rng)))
        .collect();
    let mut input = String::new();
    for (a, b) in &pairs {
        let (a, b) = (a.to_bits() as i64, b.to_bits() as i64);
        writeln!(input, "{a} {b}").expect("a string");
    }
    input.push_str("end\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["--suppress-time-limits", "-e", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("spile runs");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let out = child.wait_with_output().expect("its output");
    writer.join().expect("no panic").expect("all is read");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{:?} {text}", out.status);
    let mut lines = text.lines();
    for (a, b) in pairs {
        let got: Vec<i64> = lines
            .next()
            .expect("a line a pair")
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let long = match a {
            _ if a.is_nan() || a.abs() >= 9_223_372_036_854_775_808.0 => i64::MIN,
            _ => a as i64,
        };
        let want = [
            one_nan(a + b),
            one_nan(a - b),
            one_nan(a * b),
            one_nan(a / b),
            one_nan(a.sqrt()),
            i64::from(a == b),
            i64::from(a < b),
            i64::from(a <= b),
            long,
            remainder(a, b).map_or(got[9], one_nan),
        ];
        assert_eq!(got, want, "{a:e} {b:e}");
    }
}
