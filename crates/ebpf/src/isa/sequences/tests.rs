//! Random sequences compute the same in machine registers as in virtual ones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::isa::asm::{Asm, AsmFunction, CallArg, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::{AluOp, Callee, Cond, Insn, Reg, Src};
use crate::isa::sequences::CALLER_SAVED;

/// Virtual registers of a program.
const REGS: usize = 9;
/// The stack word behind those for spilled registers, where programs leave their results.
const RESULTS: i16 = -200;
/// The helpers that programs call, with the number of their arguments.
const HELPERS: [Helper; 4] = [
    Helper::KtimeGetNs,
    Helper::GetFuncIp,
    Helper::MapLookupElem,
    Helper::ProbeReadKernel,
];

/// An operation on virtual registers, by their numbers.
#[derive(Debug, Clone)]
enum Op {
    Set(usize, i32),
    Copy(usize, usize),
    Alu(AluOp, usize, usize),
    AluImm(AluOp, usize, i32),
    /// Calls the helper that takes this number of arguments.
    Call(usize, Vec<usize>),
    /// Skips operations if a register is larger than a constant; `true`: they lie behind the function.
    If(usize, i32, Vec<Op>, bool),
    /// Repeats operations.
    Repeat(u8, Vec<Op>),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reg = || 0..REGS;
    let alu = || {
        prop_oneof![
            Just(AluOp::Add),
            Just(AluOp::Sub),
            Just(AluOp::Xor),
            Just(AluOp::Mul)
        ]
    };
    let args = proptest::collection::vec(0..REGS, 0..4);
    let op = prop_oneof![
        (reg(), any::<i32>()).prop_map(|(r, n)| Op::Set(r, n)),
        (reg(), reg()).prop_map(|(a, b)| Op::Copy(a, b)),
        (alu(), reg(), reg()).prop_map(|(op, a, b)| Op::Alu(op, a, b)),
        (alu(), reg(), any::<i32>()).prop_map(|(op, a, n)| Op::AluImm(op, a, n)),
        (reg(), args).prop_map(|(r, args)| Op::Call(r, args)),
    ];
    let nested = op.prop_recursive(3, 40, 6, |inner| {
        let body = proptest::collection::vec(inner, 1..6);
        prop_oneof![
            (0..REGS, any::<i32>(), body.clone(), any::<bool>())
                .prop_map(|(r, n, body, apart)| Op::If(r, n, body, apart)),
            (1..4u8, body).prop_map(|(n, body)| Op::Repeat(n, body)),
        ]
    });
    proptest::collection::vec(nested, 1..25)
}

fn arithmetic(op: AluOp, a: u64, b: u64) -> u64 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Xor => a ^ b,
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Mov => b,
        op => panic!("no program has {op:?}"),
    }
}

/// What a helper returns.
fn called(args: &[u64]) -> u64 {
    let mix = |sum: u64, arg: &u64| (sum.rotate_left(7) ^ arg).wrapping_mul(0x9e37_79b9);
    args.iter().fold(args.len() as u64 + 1, mix)
}

/// Runs operations on virtual registers.
fn run(ops: &[Op], regs: &mut [u64; REGS]) {
    for op in ops {
        match op {
            Op::Set(r, n) => regs[*r] = i64::from(*n) as u64,
            Op::Copy(a, b) => regs[*a] = regs[*b],
            Op::Alu(op, a, b) => regs[*a] = arithmetic(*op, regs[*a], regs[*b]),
            Op::AluImm(op, a, n) => regs[*a] = arithmetic(*op, regs[*a], i64::from(*n) as u64),
            Op::Call(r, args) => {
                let args: Vec<u64> = args.iter().map(|arg| regs[*arg]).collect();
                regs[*r] = called(&args);
            }
            Op::If(r, n, body, _) => {
                if regs[*r] as i64 <= i64::from(*n) {
                    run(body, regs);
                }
            }
            Op::Repeat(n, body) => (0..*n).for_each(|_| run(body, regs)),
        }
    }
}

/// Operations that lie behind the function, with their label and where they return to.
type Apart<'a> = Vec<(&'a [Op], Label, Label)>;

fn emit<'a>(asm: &mut Asm, ops: &'a [Op], regs: &[Reg], apart: &mut Apart<'a>) {
    for op in ops {
        match op {
            Op::Set(r, n) => asm.mov(regs[*r], *n),
            Op::Copy(a, b) => asm.mov(regs[*a], regs[*b]),
            Op::Alu(op, a, b) => asm.alu(*op, regs[*a], regs[*b]),
            Op::AluImm(op, a, n) => asm.alu(*op, regs[*a], *n),
            Op::Call(r, args) => {
                let args: Vec<CallArg> = args.iter().map(|arg| regs[*arg].into()).collect();
                let result = asm.call_with(HELPERS[args.len()], &args);
                asm.mov(regs[*r], result);
            }
            Op::If(r, n, body, true) => {
                let [there, back] = [(); 2].map(|()| asm.label());
                asm.jump_if(Cond::Sle, regs[*r], *n, there);
                asm.bind(back);
                apart.push((body, there, back));
            }
            Op::If(r, n, body, false) => {
                let end = asm.label();
                asm.jump_if(Cond::Sgt, regs[*r], *n, end);
                emit(asm, body, regs, apart);
                asm.bind(end);
            }
            Op::Repeat(n, body) => {
                let again = asm.label();
                let left = asm.copy(i32::from(*n));
                asm.bind(again);
                emit(asm, body, regs, apart);
                asm.add(left, -1);
                asm.jump_if(Cond::Ne, left, 0, again);
            }
        }
    }
}

/// A function with these operations, which stores its registers as results.
fn function(ops: &[Op], free: u16) -> Option<AsmFunction> {
    const WORDS: &[i16] = &[
        -8, -16, -24, -32, -40, -48, -56, -64, -72, -80, -88, -96, -104, -112, -120, -128,
    ];
    let mut asm = Asm::new("f", &[]);
    asm.set_spill_words(WORDS);
    let sequence = asm.begin_sequence(free);
    let regs: Vec<Reg> = (0..REGS).map(|r| asm.copy(r as i32)).collect();
    let mut apart = Vec::new();
    emit(&mut asm, ops, &regs, &mut apart);
    for (r, reg) in regs.iter().enumerate() {
        let size = crate::isa::insn::Size::DW;
        asm.store(size, Reg::R10, RESULTS - 8 * r as i16, *reg);
    }
    asm.ret(0);
    while let Some((body, there, back)) = apart.pop() {
        // Another sequence lies between the pieces.
        asm.begin_sequence(CALLER_SAVED);
        let other = asm.copy(1);
        asm.ret(other);
        asm.resume_sequence(sequence);
        asm.bind(there);
        emit(&mut asm, body, &regs, &mut apart);
        asm.jump(back);
    }
    asm.finish().ok()
}

/// Runs a function's code, and returns its stack.
fn execute(function: &AsmFunction) -> BTreeMap<i16, u64> {
    let (mut regs, mut stack) = ([0xdead_u64; 11], BTreeMap::new());
    let mut at = 0;
    loop {
        let value = |src: Src, regs: &[u64; 11]| match src {
            Src::Reg(reg) => regs[usize::from(reg.number())],
            Src::Imm(n) => i64::from(n) as u64,
        };
        let next = at + 1;
        at = next;
        match function.insns[next - 1] {
            Insn::Alu { op, dst, src, .. } => {
                let dst = usize::from(dst.number());
                regs[dst] = arithmetic(op, regs[dst], value(src, &regs));
            }
            Insn::Load { dst, off, .. } => regs[usize::from(dst.number())] = stack[&off],
            Insn::Store { off, src, .. } => {
                stack.insert(off, value(src, &regs));
            }
            Insn::Jump {
                cond,
                dst,
                src,
                off,
                ..
            } => {
                let (a, b) = (regs[usize::from(dst.number())], value(src, &regs));
                let taken = match cond {
                    Cond::Ne => a != b,
                    Cond::Sgt => a as i64 > b as i64,
                    Cond::Sle => a as i64 <= b as i64,
                    cond => panic!("no program has {cond:?}"),
                };
                if taken {
                    at = next.strict_add_signed(isize::from(off));
                }
            }
            Insn::Goto { off } => at = next.strict_add_signed(isize::from(off)),
            Insn::Call {
                callee: Callee::Helper,
                target,
            } => {
                let count = HELPERS.iter().position(|h| h.id() as i32 == target);
                let args = &regs[1..=count.expect("a helper")];
                let result = called(args);
                regs[..6].fill(0xbad);
                regs[0] = result;
            }
            Insn::Exit {} => return stack,
            insn => panic!("no program has {insn}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn machine_registers_compute_what_virtual_ones_do(ops in ops(), preserved in any::<bool>()) {
        let free = CALLER_SAVED | if preserved { 1 << 6 | 1 << 8 | 1 << 9 } else { 0 };
        let function = function(&ops, free).expect("there are enough stack words");
        let mut expected = std::array::from_fn(|r| r as u64);
        run(&ops, &mut expected);
        let stack = execute(&function);
        let results: Vec<u64> = (0..REGS).map(|r| stack[&(RESULTS - 8 * r as i16)]).collect();
        prop_assert_eq!(results, expected.to_vec(), "{}", function.listing());
    }
}

/// The load may not become a move from the register that only the straight path stored, although the
/// copy that the label leads to becomes nothing.
#[test]
fn a_label_holds_where_the_copy_behind_it_vanishes() {
    let size = crate::isa::insn::Size::DW;
    let mut asm = Asm::new("f", &[]);
    asm.begin_sequence(CALLER_SAVED);
    let there = asm.label();
    let [word, chosen] = [RESULTS, RESULTS - 8];
    asm.store(size, Reg::R10, word, 1);
    let number = asm.copy(2);
    asm.jump_if(Cond::Ne, number, 3, there);
    asm.store(size, Reg::R10, word, number);
    asm.bind(there);
    let same = asm.copy(number);
    let loaded = asm.new_reg();
    asm.load(size, loaded, Reg::R10, word);
    asm.store(size, Reg::R10, chosen, loaded);
    asm.store(size, Reg::R10, chosen - 8, same);
    asm.ret(0);
    let function = asm.finish().expect("there are enough registers");
    let stack = execute(&function);
    assert_eq!(
        [stack[&chosen], stack[&(chosen - 8)]],
        [1, 2],
        "{}",
        function.listing()
    );
}
