//! Arithmetic that is no single operation of all hosts.

use crate::builder::{Scalar, build};
use crate::func::LirFunc;
use crate::op::{AluOp, Width};

/// -1 if a number is negative, else 0.
fn sign(x: Scalar<'_>) -> Scalar<'_> {
    x.alu(Width::W64, AluOp::Arsh, 63)
}

/// The number without its sign. For the smallest one this is 2^63, which unsigned operations treat
/// correctly.
fn magnitude(x: Scalar<'_>) -> Scalar<'_> {
    let sign = sign(x);
    (x ^ sign) - sign
}

/// The quotient of a number with a sign and one without, rounded to zero.
pub(super) fn quotient<'b>(a: Scalar<'b>, b: Scalar<'b>) -> Scalar<'b> {
    let sign = sign(a);
    ((magnitude(a) / b) ^ sign) - sign
}

pub(super) fn divide() -> LirFunc {
    let contract = "\
The quotient of numbers with signs, rounded to zero, modulo 2^64.
a, b: the numbers; b is not 0.
Cost: 13 instructions. Signed division itself needs Linux 6.6.";
    build("divide", contract, ["a", "b"], |f, p| {
        let [a, b] = p;
        let sign = sign(a ^ b);
        f.ret(((magnitude(a) / magnitude(b)) ^ sign) - sign);
    })
}

pub(super) fn modulo() -> LirFunc {
    let contract = "\
The remainder of numbers with signs, with the sign of the dividend.
a, b: the numbers; b is not 0.
Cost: 12 instructions.";
    build("modulo", contract, ["a", "b"], |f, p| {
        let [a, b] = p;
        let sign = sign(a);
        f.ret(((magnitude(a) % magnitude(b)) ^ sign) - sign);
    })
}
