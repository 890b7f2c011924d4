//! A leaf function with a marker and eight words that fit into the red zone.

#![cfg_attr(bare, allow(named_asm_labels))]

use std::hint::black_box;
use std::ptr::{read_volatile, write_volatile};

unsafe extern "C" {
    fn leaf_patch(site: *mut u8) -> i32;
}

#[cfg(bare)]
macro_rules! marker {
    ($seed:expr) => {
        // `nostack` is the promise that a call breaks.
        std::arch::asm!(
            ".globl leaf_site",
            "leaf_site: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
            options(nostack)
        )
    };
}

#[cfg(not(bare))]
macro_rules! marker {
    ($seed:expr) => {
        spile_sdt::probe!(redzone, leaf, $seed)
    };
}

#[inline(never)]
fn leaf(seed: i64) -> i64 {
    let mut kept = [0_i64; 8];
    let at = &raw mut kept;
    // SAFETY: all locations are in the array.
    unsafe {
        for i in 0..8 {
            write_volatile(at.cast::<i64>().add(i), seed + i as i64);
        }
        marker!(seed);
        let mut wrong = 0;
        for i in 0..8 {
            wrong += i64::from(read_volatile(at.cast::<i64>().add(i)) != seed + i as i64);
        }
        wrong
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: i64 = args.next().map_or(1, |a| a.parse().expect("a number"));
    if let Some(site) = args.next() {
        let site = usize::from_str_radix(site.trim_start_matches("0x"), 16).expect("an address");
        // SAFETY: the test passes the marker's address.
        assert_eq!(unsafe { leaf_patch(site as *mut u8) }, 0);
    }
    let damaged = (0..rounds).filter(|i| leaf(black_box(i * 7919)) != 0).count();
    println!("{rounds} rounds, {damaged} damaged");
}
