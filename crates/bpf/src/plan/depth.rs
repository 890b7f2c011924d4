//! The depth of calls, and the length of programs. The kernel allows a program and its callees
//! eight frames in total (`MAX_CALL_FRAMES`), including those of callbacks.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use spile_ebpf::isa::asm::{AsmFunction, RelocTarget};

use crate::object::elf::ObjectSpec;

/// Limit on the frames of a program.
pub(crate) const MOST: usize = 8;

/// The longest chain of calls in an object, starting with a program.
pub(crate) fn deepest(spec: &ObjectSpec) -> Vec<&str> {
    let mut call_chains = CallChains::new(spec.subprograms.iter());
    let chains = spec
        .programs
        .iter()
        .map(|p| call_chains.longest_chain(&p.function));
    chains.max_by_key(Vec::len).unwrap_or_default()
}

/// Whether a program's longest chain of calls has more frames than the kernel allows.
pub(crate) fn is_too_deep(program: &AsmFunction, subs: &BTreeMap<String, AsmFunction>) -> bool {
    CallChains::new(subs.values()).longest_chain(program).len() > MOST
}

/// Instruction slots of a program with all its callees, and the number of callees.
pub(crate) fn size(program: &AsmFunction, subs: &BTreeMap<String, AsmFunction>) -> (usize, usize) {
    let mut seen = FxHashSet::default();
    let mut todo = vec![program];
    let mut slots = 0;
    while let Some(f) = todo.pop() {
        slots += f.slots() as usize;
        todo.extend(called(f).filter_map(|name| subs.get(name).filter(|_| seen.insert(name))));
    }
    (slots, seen.len())
}

/// The subprograms that a function refers to.
fn called(f: &AsmFunction) -> impl Iterator<Item = &str> {
    f.relocs.iter().filter_map(|r| match &r.target {
        RelocTarget::Call(name) | RelocTarget::Func(name) => Some(&**name),
        _ => None,
    })
}

struct CallChains<'a> {
    subs: FxHashMap<&'a str, &'a AsmFunction>,
    chains: FxHashMap<&'a str, Vec<&'a str>>,
}

impl<'a> CallChains<'a> {
    fn new(subs: impl Iterator<Item = &'a AsmFunction>) -> CallChains<'a> {
        CallChains {
            subs: subs.map(|f| (f.name.as_str(), f)).collect(),
            chains: FxHashMap::default(),
        }
    }

    fn longest_chain(&mut self, f: &'a AsmFunction) -> Vec<&'a str> {
        if let Some(chain) = self.chains.get(f.name.as_str()) {
            return chain.clone();
        }
        // Recursion ends the chain.
        self.chains.insert(&f.name, vec![&f.name]);
        let called: Vec<&AsmFunction> = called(f)
            .filter_map(|name| self.subs.get(name).copied())
            .collect();
        let below = called.into_iter().map(|f| self.longest_chain(f));
        let below = below.max_by_key(Vec::len).unwrap_or_default();
        let chain = [vec![f.name.as_str()], below].concat();
        self.chains.insert(&f.name, chain.clone());
        chain
    }
}
