//! Random modules for tests, from a list of random numbers, so that a smaller list gives a smaller
//! module.
//!
//! A function is a chain of statements of the builder: arithmetic over variables, memory of a stack
//! slot and of a region, branches and loops. All of them are legal and end; only offsets are masked
//! so that accesses stay inside.

use spile_cast::Cast;

use crate::builder::{Builder, Scalar, Var, build};
use crate::func::{ConstantData, LirFunc, Module};
use crate::op::{AluOp, ExtOp, Size, Width};

/// Size in bytes of the region whose address is the first parameter of each function, and of the
/// constant `@table`.
pub const REGION: u32 = 64;

/// Gives numbers, and zeros where there are no more.
#[derive(Debug)]
struct Dice<'n>(&'n [u32]);

impl Dice<'_> {
    fn below(&mut self, n: usize) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first as usize % n.max(1)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number that is often at an edge.
    fn number(&mut self) -> u64 {
        let edges = [
            0,
            1,
            7,
            63,
            64,
            255,
            1 << 31,
            u64::MAX,
            1 << 63,
            u64::MAX >> 1,
        ];
        match self.below(3) {
            0 => self.pick(&edges),
            1 => self.below(100) as u64,
            _ => (self.below(usize::MAX) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }
}

struct Gen<'b, 'd, 'n> {
    f: &'b Builder,
    dice: &'d mut Dice<'n>,
    vars: Vec<Var<'b>>,
    region: Scalar<'b>,
    slot: Scalar<'b>,
    table: Scalar<'b>,
    /// Operations of newer kernels.
    newer: bool,
}

impl<'b> Gen<'b, '_, '_> {
    fn val(&mut self) -> Scalar<'b> {
        let at = self.dice.below(self.vars.len() + 1);
        match self.vars.get(at) {
            Some(var) => var.get(),
            None => self.f.constant(self.dice.number()),
        }
    }

    fn var(&mut self) -> Var<'b> {
        let at = self.dice.below(self.vars.len());
        self.vars[at]
    }

    fn arithmetic(&mut self) {
        let (to, a, b) = (self.var(), self.val(), self.val());
        let op = self.dice.pick(AluOp::ALL);
        let op = match op {
            AluOp::Sdiv if !self.newer => AluOp::Div,
            AluOp::Smod if !self.newer => AluOp::Mod,
            op => op,
        };
        let width = self.dice.pick(Width::ALL);
        let small = self.dice.below(200).fit::<i32>() - 100;
        to.set(match self.dice.below(2) {
            // Constant amounts beyond the width, and constant zero divisors, are errors in the kernel.
            0 => a.alu(width, op, small.rem_euclid(31) + 1),
            _ => a.alu(width, op, b),
        });
    }

    fn extension(&mut self) {
        let (to, a) = (self.var(), self.val());
        let op = self.dice.pick(ExtOp::ALL);
        let size = self.dice.pick(Size::ALL);
        let size = match (op, size) {
            (ExtOp::Swap, Size::U8) => Size::U16,
            (_, size) => size,
        };
        to.set(a.ext(op, size));
    }

    /// The address of an aligned word of the slot, or of any byte of the region, with 8 bytes there.
    fn memory(&mut self, writable: bool) -> Scalar<'b> {
        let at = self.val();
        match self.dice.below(if writable { 2 } else { 3 }) {
            0 => self.slot + 8 * self.dice.below(REGION as usize / 8).fit::<i32>(),
            1 => self.region + (at & 31),
            _ => self.table + (at & 31),
        }
    }

    fn access(&mut self) {
        let to = self.var();
        match self.dice.below(5) {
            0 => to.set(self.memory(false).load_u64(0)),
            1 => to.set(self.memory(false).load_u8(3)),
            2 => {
                let v = self.val();
                self.memory(true).store_u64(0, v);
            }
            3 => {
                let v = self.val();
                self.memory(true).store_u8(5, v);
            }
            _ => {
                let v = self.val();
                to.set(self.region.fetch_add(8, v));
            }
        }
    }

    fn statement(&mut self, depth: u32) {
        let f = self.f;
        match self.dice.below(if depth > 0 { 9 } else { 6 }) {
            0..=2 => self.arithmetic(),
            3 => self.extension(),
            4 => self.access(),
            5 => {
                let (to, v) = (self.var(), self.val());
                to.set(match self.dice.below(2) {
                    0 => (v & 255).bound(255 + self.dice.below(9).fit::<u32>()),
                    _ => v.opaque(),
                });
            }
            6 => {
                let (a, b) = (self.val(), self.val());
                let test = match self.dice.below(4) {
                    0 => a.lt(b),
                    1 => a.slt(b),
                    2 => a.has(b),
                    _ => a.eq(self.dice.below(3).fit::<i32>()),
                };
                let this = std::cell::RefCell::new(self);
                f.if_else(
                    test,
                    || this.borrow_mut().statements(depth - 1),
                    || this.borrow_mut().statements(depth - 1),
                );
            }
            7 => {
                let max = 1 + self.dice.below(6).fit::<u32>();
                let form = self.dice.below(6);
                let mut code = || {
                    self.statements(depth - 1);
                    let (a, b) = (self.val(), self.val());
                    f.break_if(a.sgt(b));
                };
                match form {
                    0 | 1 => f.repeat_inline(max, code),
                    2 => {
                        let left = f.var("left", f.number(max.cast_signed()).opaque());
                        f.repeat_open(max + 1, || {
                            f.break_if(left.eq(0));
                            left.set(left - 1);
                            code();
                        });
                    }
                    _ => f.repeat(max, code),
                }
            }
            _ => {
                let (a, b) = (self.val(), self.val());
                f.if_(a.eq(b), || match self.dice.below(3) {
                    0 => f.ret(a),
                    1 => f.continue_(),
                    _ => f.break_(),
                });
            }
        }
    }

    fn statements(&mut self, depth: u32) {
        for _ in 0..1 + self.dice.below(5) {
            self.statement(depth);
        }
    }
}

/// A random function `@random(region, a, b)`; `newer` allows operations that kernels before 6.6 lack.
pub fn function(numbers: &[u32], newer: bool) -> LirFunc {
    build("random", "", ["region", "a", "b"], |f, p| {
        let slot = f.slot(REGION);
        for word in 0..REGION.fit::<i16>() / 8 {
            slot.store_u64(8 * word, i32::from(word));
        }
        let mut vars = vec![f.var("a", p[1]), f.var("b", p[2])];
        vars.extend((0..3).map(|i| f.var("x", i)));
        let mut dice = Dice(numbers);
        let count = 2 + dice.below(12);
        let mut g = Gen {
            f,
            dice: &mut dice,
            vars,
            region: p[0],
            slot,
            table: f.data("table"),
            newer,
        };
        for _ in 0..count {
            g.statement(3);
        }
        let sum = g
            .vars
            .iter()
            .skip(1)
            .fold(g.vars[0].get(), |a, v| a * 31 + *v);
        f.ret(sum);
    })
}

/// A module with a random function.
pub fn module(numbers: &[u32], newer: bool) -> Module {
    let bytes = (0..REGION).map(|i| (i * 37 + 11).low8()).collect();
    Module {
        data: vec![ConstantData {
            name: "table".into(),
            bytes,
        }],
        funcs: vec![function(numbers, newer)],
        ..Module::default()
    }
}
