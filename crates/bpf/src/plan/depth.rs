//! How deep calls go: the kernel gives a program and what it calls eight frames in all
//! (`MAX_CALL_FRAMES`), those of callbacks among them. And how long a program is with what it calls.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::isa::asm::{Function, Target};
use crate::object::elf::ObjectSpec;

/// Most frames of a program.
pub const MOST: usize = 8;

/// The longest chain of calls in an object, from a program on.
pub fn deepest(spec: &ObjectSpec) -> Vec<&str> {
    let subs = spec.subprograms.iter().map(|f| (f.name.as_str(), f));
    let mut known = Known {
        subs: subs.collect(),
        chains: HashMap::new(),
    };
    let chains = spec.programs.iter().map(|p| known.chain(&p.function));
    chains.max_by_key(Vec::len).unwrap_or_default()
}

/// Instruction slots of a program with all that it calls, and how many subprograms those are.
pub fn size(program: &Function, subs: &BTreeMap<String, Function>) -> (usize, usize) {
    let mut seen = HashSet::new();
    let mut todo = vec![program];
    let mut slots = 0;
    while let Some(f) = todo.pop() {
        slots += f.slots() as usize;
        todo.extend(called(f).filter_map(|name| subs.get(name).filter(|_| seen.insert(name))));
    }
    (slots, seen.len())
}

/// The subprograms that a function mentions.
fn called(f: &Function) -> impl Iterator<Item = &str> {
    f.relocs.iter().filter_map(|r| match &r.target {
        Target::Call(name) | Target::Func(name) => Some(&**name),
        _ => None,
    })
}

struct Known<'a> {
    subs: HashMap<&'a str, &'a Function>,
    chains: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Known<'a> {
    fn chain(&mut self, f: &'a Function) -> Vec<&'a str> {
        if let Some(chain) = self.chains.get(f.name.as_str()) {
            return chain.clone();
        }
        // What calls itself ends there.
        self.chains.insert(&f.name, vec![&f.name]);
        let called: Vec<&Function> = called(f)
            .filter_map(|name| self.subs.get(name).copied())
            .collect();
        let below = called.into_iter().map(|f| self.chain(f));
        let below = below.max_by_key(Vec::len).unwrap_or_default();
        let chain = [vec![f.name.as_str()], below].concat();
        self.chains.insert(&f.name, chain.clone());
        chain
    }
}
