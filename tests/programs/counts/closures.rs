//! Generic functions, closures, methods, traits and drops of Rust.

#![allow(non_upper_case_globals)]
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};
#[rustfmt::skip]
macro_rules! counters { ($($n:ident)*) => { $(static $n: AtomicI64 = AtomicI64::new(0);)*
    fn show() { $(println!("{} {}", stringify!($n), $n.load(Ordering::Relaxed));)* } } }
#[rustfmt::skip]
macro_rules! hit { ($n:ident) => { $n.store($n.load(Ordering::Relaxed) + 1, Ordering::Relaxed) } }
counters!(n_add n_inner n_generic n_method n_trait n_drop n_closure n_fact);
//: closures::add = n_add
#[inline(never)]
fn add(a: i64, b: i64) -> i64 {
    hit!(n_add); // at n_add
    black_box(a) + b
}
//: closures::outer::inner = n_inner
#[inline(never)]
fn outer(k: i64) -> i64 {
    fn inner(x: i64) -> i64 {
        hit!(n_inner);
        black_box(x) + 1
    }
    (0..k).map(inner).sum::<i64>() + inner(k)
}
//: closures::generic<*> = n_generic
#[inline(never)]
fn generic<T: Copy>(x: T) -> T {
    hit!(n_generic);
    black_box(x)
}
struct Point(i64);
//: closures::Point::method = n_method
impl Point {
    fn method(&self) -> i64 {
        hit!(n_method);
        black_box(self.0)
    }
}
trait Speak {
    fn speak(&self) -> i64;
}
//: closures::{impl#*}::speak = n_trait
impl Speak for Point {
    fn speak(&self) -> i64 {
        hit!(n_trait);
        self.0
    }
}
//: closures::{impl#*}::drop = n_drop
impl Drop for Point {
    fn drop(&mut self) {
        hit!(n_drop);
        black_box(self.0);
    }
}
//: closures::closes::{closure#0} = n_closure
#[inline(never)]
fn closes(k: i64) -> i64 {
    (0..k)
        .map(|x| {
            hit!(n_closure);
            black_box(x) * k
        })
        .sum()
}
//: closures::fact = n_fact, recursion
fn fact(n: i64) -> i64 {
    hit!(n_fact);
    if n <= 1 { 1 } else { n * fact(n - 1) }
}
fn main() {
    let mut sum = 0;
    for i in 0..11 {
        sum += add(i, 3) + outer(i) + generic(i) + generic(3i32) as i64 + closes(i) + fact(i);
        let p = Point(i);
        sum += p.method();
        let b: Box<dyn Speak> = Box::new(Point(i));
        sum += black_box(b).speak();
    }
    black_box(sum);
    show();
}
