//! Dispatch from a system call's number to its handlers.
//!
//! The handlers of one program run in script order. A script with hundreds of handlers (`syscall.*`
//! with probe-specific code) would test hundreds of sets at each hit. Consecutive handlers with
//! disjoint sets are therefore reached through a search tree: ten comparisons for the nine hundred
//! numbers of both tables.

use rustc_hash::FxHashSet;
use spile_ebpf::isa::asm::{Asm, CallArg, Label};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{Cond, Reg};
use spile_ir::{HandlerId, NrSet};

use crate::lower::slots::passed;
use crate::lower::syscalls::unlinked_number;

/// Up to this number of keys, comparisons are linear.
const LINEAR: usize = 3;

/// The handlers in one subprogram.
pub(crate) struct HandlerSub {
    /// Name of the subprogram.
    pub name: String,
    /// The handlers, in running order.
    pub handlers: Vec<HandlerId>,
    /// Numbers of the system calls that some handler probes; `None`: all events.
    pub numbers: Option<Vec<u32>>,
}

impl HandlerSub {
    /// Emits the call of the subprogram.
    pub(crate) fn emit_call(&self, asm: &mut Asm, number: bool) {
        let args: Vec<CallArg> = passed(number)
            .map(|slot| asm.word(R10, slot).into())
            .collect();
        asm.call_sub_with(self.name.as_str(), &args);
    }

    /// The numbers in order, if there are more than a linear search takes.
    pub(crate) fn many(&self) -> Option<NrSet> {
        let mut list = self.numbers.clone()?;
        list.sort_unstable();
        list.dedup();
        (list.len() > LINEAR).then_some(NrSet::List(list))
    }
}

/// Splits consecutive parts into runs, in which at most one part matches a number. A part for all
/// numbers is a run by itself.
pub(crate) fn runs(parts: &[HandlerSub]) -> Vec<&[HandlerSub]> {
    let mut runs = Vec::new();
    let (mut start, mut taken) = (0, FxHashSet::<u32>::default());
    for (i, part) in parts.iter().enumerate() {
        let apart = part
            .numbers
            .as_ref()
            .is_some_and(|n| n.iter().all(|nr| !taken.contains(nr)));
        let after_any = i > start && parts[i - 1].numbers.is_none();
        if i > start && (!apart || after_any) {
            runs.push(&parts[start..i]);
            start = i;
            taken.clear();
        }
        taken.extend(part.numbers.iter().flatten());
    }
    if start < parts.len() {
        runs.push(&parts[start..]);
    }
    runs
}

/// Calls the run's part that matches the number on the stack.
pub(crate) fn emit(asm: &mut Asm, run: &[HandlerSub], number: bool) {
    let end = asm.label();
    let labels: Vec<Label> = run.iter().map(|_| asm.label()).collect();
    let mut keys: Vec<(u32, Label)> = run
        .iter()
        .zip(&labels)
        .flat_map(|(p, l)| p.numbers.iter().flatten().map(|nr| (*nr, *l)))
        .collect();
    keys.sort_unstable_by_key(|k| k.0);
    keys.dedup_by_key(|k| k.0);
    if !keys.is_empty() {
        let number = unlinked_number(asm);
        tree(asm, number, &keys, end);
    }
    for (part, label) in run.iter().zip(labels) {
        asm.bind(label);
        part.emit_call(asm, number);
        asm.jump(end);
    }
    asm.bind(end);
}

/// Goes to the label of a key, or to `end` if there is none.
fn tree(asm: &mut Asm, key: Reg, keys: &[(u32, Label)], end: Label) {
    if keys.len() <= LINEAR {
        for (nr, label) in keys {
            asm.jump_if(Cond::Eq, key, *nr, *label);
        }
        asm.jump(end);
        return;
    }
    let (low, high) = keys.split_at(keys.len() / 2);
    let upper = asm.label();
    asm.jump_if(Cond::Ge, key, high[0].0, upper);
    tree(asm, key, low, end);
    asm.bind(upper);
    tree(asm, key, high, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(numbers: Option<&[u32]>) -> HandlerSub {
        HandlerSub {
            name: String::new(),
            handlers: Vec::new(),
            numbers: numbers.map(<[u32]>::to_vec),
        }
    }

    #[test]
    fn ranges_do_not_overlap() {
        let sets: [Option<&[u32]>; 7] = [
            Some(&[1, 2]),
            Some(&[3]),
            Some(&[2, 4]),
            None,
            None,
            Some(&[5]),
            Some(&[6]),
        ];
        let parts: Vec<HandlerSub> = sets.into_iter().map(part).collect();
        let lengths: Vec<usize> = runs(&parts).iter().map(|r| r.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 1, 2]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn the_tree_reaches_every_key() {
        for n in [1u32, 2, 3, 4, 7, 100] {
            let mut asm = Asm::new("t", &["ctx"]);
            let end = asm.label();
            let keys: Vec<_> = (0..n).map(|i| (i * 3, asm.label())).collect();
            let key = asm.new_reg();
            tree(&mut asm, key, &keys, end);
            for (_, label) in &keys {
                asm.bind(*label);
            }
            asm.bind(end);
            asm.exit();
            let function = asm.finish().expect("all labels are bound");
            let compared = function
                .listing()
                .lines()
                .filter(|l| l.contains("=="))
                .count();
            assert_eq!(compared, n as usize);
        }
    }
}
