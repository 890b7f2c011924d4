//! Numbers that a word of the language does not hold, as text: floating point and 128 bits. The
//! digits are those of gdb: as many as identify the number, rounded exactly.

use spile_cast::Cast;

/// The number of this form among those of the intrinsic `symbolic`.
pub const FORM: i64 = 22;

/// The base of large numbers: a limb has nine decimal digits.
const LIMB: u32 = 1_000_000_000;

/// The kind of such a number, whose data are 64-bit words, the least significant one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WideNumber {
    /// IEEE 754, 16 bits.
    Half,
    /// IEEE 754, 32 bits.
    Single,
    /// IEEE 754, 64 bits.
    Double,
    /// The x87's 80 bits, in two words.
    Extended,
    /// A signed integer of 128 bits.
    Signed,
    /// An unsigned integer of 128 bits.
    Unsigned,
}

/// The layout of a floating-point number.
struct Layout {
    /// Bits of the fraction behind an implied 1, or with its 1 if `explicit`.
    fraction: u32,
    exponent: u32,
    explicit: bool,
}

impl WideNumber {
    const ALL: [WideNumber; 6] = [
        WideNumber::Half,
        WideNumber::Single,
        WideNumber::Double,
        WideNumber::Extended,
        WideNumber::Signed,
        WideNumber::Unsigned,
    ];

    /// The kind by its position in the enumeration, as a mark's data have it.
    #[must_use]
    pub fn by_number(n: u64) -> Option<WideNumber> {
        Self::ALL.get(usize::try_from(n).ok()?).copied()
    }

    /// A floating-point number of that many bytes.
    #[must_use]
    pub fn of_float(size: u8) -> Option<WideNumber> {
        Some(match size {
            2 => WideNumber::Half,
            4 => WideNumber::Single,
            8 => WideNumber::Double,
            16 => WideNumber::Extended,
            _ => return None,
        })
    }

    /// An integer of 128 bits.
    #[must_use]
    pub fn of_int(signed: bool) -> WideNumber {
        match signed {
            true => WideNumber::Signed,
            false => WideNumber::Unsigned,
        }
    }

    /// Whether it has two words.
    #[must_use]
    pub fn is_double_word(self) -> bool {
        matches!(self, Self::Extended | Self::Signed | Self::Unsigned)
    }

    /// The text as gdb prints it: `%g` with as many digits as identify the number.
    #[must_use]
    pub fn text(self, words: &[u64]) -> String {
        let word = |n: usize| words.get(n).copied().unwrap_or(0);
        let whole = u128::from(word(1)) << 64 | u128::from(word(0));
        let (fraction, exponent, explicit) = match self {
            WideNumber::Signed => return whole.cast_signed().to_string(),
            WideNumber::Unsigned => return whole.to_string(),
            WideNumber::Half => (10, 5, false),
            WideNumber::Single => (23, 8, false),
            WideNumber::Double => (52, 11, false),
            WideNumber::Extended => (64, 15, true),
        };
        let layout = Layout {
            fraction,
            exponent,
            explicit,
        };
        layout.text(whole)
    }
}

impl Layout {
    fn text(&self, bits: u128) -> String {
        let part = |from: u32, width: u32| (bits >> from & ((1 << width) - 1)).low64();
        let (fraction, exponent) = (
            part(0, self.fraction),
            part(self.fraction, self.exponent).fit::<i32>(),
        );
        let sign = match part(self.fraction + self.exponent, 1) {
            1 => "-",
            _ => "",
        };
        let (most, bias) = ((1 << self.exponent) - 1, (1 << (self.exponent - 1)) - 1);
        let implied = match self.explicit {
            true => 0,
            false => 1u64 << self.fraction,
        };
        // The bits behind the leading one.
        let fraction_bits = self.fraction - u32::from(self.explicit);
        if exponent == most {
            return match fraction & !(u64::from(self.explicit) << 63) {
                0 => format!("{sign}inf"),
                _ => format!("{sign}nan({fraction:#x})"),
            };
        }
        let mantissa = match exponent {
            0 => fraction,
            _ => fraction | implied,
        };
        if mantissa == 0 {
            return format!("{sign}0");
        }
        // 1 + the digits that a number of that many bits needs, rounded up.
        let digits = (f64::from(fraction_bits + 1) * std::f64::consts::LOG10_2).ceil();
        let precision = 1 + spile_cast::whole(digits).fit::<usize>();
        let power = exponent.max(1) - bias - fraction_bits.cast_signed();
        format!("{sign}{}", general(mantissa, power, precision))
    }
}

/// `mantissa * 2^power` as `%.{precision}g`, rounded to the nearest, halves to the even digit.
fn general(mantissa: u64, power: i32, precision: usize) -> String {
    // As a whole number whose last `point` digits are behind the decimal point:
    // m * 2^-n = m * 5^n / 10^n.
    let mut limbs: Vec<u32> = Vec::new();
    let mut rest = mantissa;
    while rest > 0 {
        limbs.push((rest % u64::from(LIMB)).fit::<u32>());
        rest /= u64::from(LIMB);
    }
    let (factor, point) = match power {
        0.. => (2u32, 0),
        _ => (5, power.unsigned_abs() as usize),
    };
    let mut left = power.unsigned_abs();
    while left > 0 {
        // 5^13 is the largest power below 2^32.
        let step = left.min(13);
        multiply(&mut limbs, factor.pow(step));
        left -= step;
    }
    let mut decimal = String::new();
    for (n, limb) in limbs.iter().rev().enumerate() {
        match n {
            0 => decimal.push_str(&limb.to_string()),
            _ => decimal.push_str(&format!("{limb:09}")),
        }
    }
    // The exponent of the first digit.
    let mut exponent = decimal.len().fit::<i64>() - 1 - point.fit::<i64>();
    let mut digits: Vec<u8> = decimal.bytes().take(precision).collect();
    let (next, below) = decimal
        .as_bytes()
        .split_at(precision.min(decimal.len()))
        .1
        .split_first()
        .map_or((b'0', &[][..]), |(d, b)| (*d, b));
    let more = below.iter().any(|d| *d != b'0');
    let odd = digits.last().is_some_and(|d| d % 2 == 1);
    if next > b'5' || (next == b'5' && (more || odd)) {
        let nines = digits.iter().rev().take_while(|d| **d == b'9').count();
        let end = digits.len() - nines;
        digits[end..].fill(b'0');
        match end {
            0 => {
                digits.insert(0, b'1');
                exponent += 1;
            }
            _ => digits[end - 1] += 1,
        }
    }
    let significant = digits.iter().rposition(|d| *d != b'0').map_or(1, |n| n + 1);
    digits.truncate(significant);
    let digits = String::from_utf8_lossy(&digits).into_owned();
    let with_point = |whole: usize| match digits.len() > whole {
        true => format!("{}.{}", &digits[..whole], &digits[whole..]),
        false => format!("{digits:0<whole$}"),
    };
    match exponent {
        -4..0 => format!("0.{}{digits}", "0".repeat((-exponent - 1).fit::<usize>())),
        0.. if exponent.fit::<usize>() < precision => with_point(exponent.fit::<usize>() + 1),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", with_point(1), exponent.abs())
        }
    }
}

fn multiply(limbs: &mut Vec<u32>, by: u32) {
    let mut carry = 0;
    for limb in limbs.iter_mut() {
        let product = u64::from(*limb) * u64::from(by) + carry;
        *limb = (product % u64::from(LIMB)).fit::<u32>();
        carry = product / u64::from(LIMB);
    }
    if carry > 0 {
        limbs.push(carry.fit::<u32>());
    }
}

#[cfg(test)]
mod tests {
    use super::WideNumber as W;

    #[test]
    fn texts_are_those_of_gdb() {
        let double = |x: f64| W::Double.text(&[x.to_bits()]);
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (2.5, "2.5"),
            (-3.0, "-3"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e300, "1.0000000000000001e+300"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456.0, "123456"),
            (-1e-7, "-9.9999999999999995e-08"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan(0x8000000000000)"),
            (99_999_999_999_999_999.0, "1e+17"),
        ] {
            assert_eq!(double(number), text);
        }
        let single = |x: f32| W::Single.text(&[u64::from(x.to_bits())]);
        assert_eq!(single(-0.1), "-0.100000001");
        assert_eq!(single(16_777_216.0), "16777216");
        assert_eq!(W::Half.text(&[0x3e00]), "1.5");
        assert_eq!(W::Half.text(&[0x2e66]), "0.099976");
        // 0.1 as `long double`.
        let tenth = [0xcccc_cccc_cccc_cccd, 0x3ffb];
        assert_eq!(W::Extended.text(&tenth), "0.100000000000000000001");
        assert_eq!(W::Extended.text(&[1 << 63, 0xbfff]), "-1");
    }

    #[test]
    fn integers_have_all_digits() {
        assert_eq!(W::Signed.text(&[u64::MAX - 4, u64::MAX]), "-5");
        let most = "340282366920938463463374607431768211455";
        assert_eq!(W::Unsigned.text(&[u64::MAX, u64::MAX]), most);
    }
}
