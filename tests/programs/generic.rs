//! Generic functions and methods of traits in Rust.
mod shop {
    pub trait Priced { fn price(&self, times: u64) -> u64; }
    pub struct Apple(pub u64);
    pub struct Pear { pub cents: u32 }
    impl Priced for Apple { #[inline(never)] fn price(&self, times: u64) -> u64 { self.0 * times } }
    impl Priced for Pear { #[inline(never)] fn price(&self, times: u64) -> u64 { u64::from(self.cents) * times } }
    #[inline(never)]
    pub fn largest<T: Copy + PartialOrd>(all: &[T]) -> T {
        let mut most = all[0];
        for x in all { if *x > most { most = *x; } }
        most
    }
    #[inline(never)]
    pub fn total(all: &[&dyn Priced]) -> u64 { all.iter().map(|p| p.price(2)).sum() }
}
fn main() {
    let n = std::hint::black_box(3u64);
    let a = shop::largest(&[n, 9, 4]);
    let b = shop::largest(&[n as i8, -9, 4]);
    let t = shop::total(&[&shop::Apple(a), &shop::Pear { cents: b as u32 }]);
    std::process::exit(i32::from(t == 0));
}
