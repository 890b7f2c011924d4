//! As shares.c.

use std::hint::black_box;

#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Time) -> i32;
}

fn now() -> f64 {
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the time is writable. 2 is CLOCK_PROCESS_CPUTIME_ID.
    unsafe { clock_gettime(2, &mut time) };
    time.seconds as f64 + time.nanoseconds as f64 / 1e9
}

#[inline(never)]
fn heavy(n: i64) -> i64 {
    (0..n).fold(1, |s: i64, i| (s * 31 + i) % 1000003)
}

#[inline(never)]
fn light(n: i64) -> i64 {
    (0..n).fold(2, |s: i64, i| (s * 17 + i) % 1000033)
}

fn main() {
    let end: f64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let (mut spent, mut a) = ([0.0; 2], now());
    while a < end {
        black_box(heavy(black_box(300_000)));
        let b = now();
        spent[0] += b - a;
        black_box(light(black_box(100_000)));
        a = now();
        spent[1] += a - b;
    }
    println!("{}", spent[0] / (spent[0] + spent[1]));
}
