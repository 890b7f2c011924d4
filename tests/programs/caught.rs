//! Panics that are caught pass through functions that return at other times.
use std::hint::black_box;

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn thirds(n: u64) -> u64 {
    if black_box(n) % 3 == 0 {
        std::panic::resume_unwind(Box::new(n));
    }
    n + 1
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn passes(n: u64) -> u64 {
    black_box(thirds(n)) * 2
}

fn main() {
    let (mut returned, mut caught, mut sum) = (0, 0, 0);
    for n in 0..3000 {
        match std::panic::catch_unwind(|| passes(n)) {
            Ok(value) => {
                returned += 1;
                sum += value;
            }
            Err(_) => caught += 1,
        }
    }
    println!("returned {returned} caught {caught} sum {sum}");
}
