//! Functions and closures inside functions.

use std::hint::black_box;

#[inline(never)]
fn each(f: &dyn Fn(i32) -> i32, n: i32) -> i32 {
    (0..n).map(f).sum()
}

#[inline(never)]
fn outer(n: i32) -> i32 {
    #[inline(never)]
    fn inner(x: i32) -> i32 {
        black_box(x) + 1
    }
    let k = black_box(3);
    let body = |x: i32| -> i32 { black_box(x) + k };
    each(black_box(&body), n) + inner(n)
}

fn main() {
    println!("{}", outer(5) + outer(2));
}
