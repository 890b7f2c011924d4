//! The ways through a function's instructions: what is reached from where, and what is in a loop.

use std::collections::BTreeSet;

use spile_cast::Cast;

use crate::code::{Control, Instruction};
use crate::exits::code;
use crate::image::Image;

/// Maximum number of instructions of a function.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// A function's instructions with the ways between them.
pub(crate) struct Flow {
    /// By address.
    pub instructions: Vec<Instruction>,
    /// For each instruction those that can be next.
    next: Vec<[Option<u32>; 2]>,
    /// The first instruction that is executed.
    first: usize,
    /// Instructions that no known way leads to, if there are jumps to computed addresses.
    computed: Vec<usize>,
    /// Instructions that jumps lead to.
    targets: BTreeSet<u32>,
}

/// Instructions that form a loop, by number: each can be reached from each other.
pub(crate) type Loop = Vec<usize>;

impl Flow {
    /// Decodes a function. `None`: it is too large, not all of its code is in the file, or the
    /// processor's instructions are not known.
    pub(crate) fn decode(image: &Image, parts: &[(u64, u64)], entry: u64) -> Option<Flow> {
        let decode = image.instructions()?.decode;
        let mut instructions = Vec::new();
        for (start, end) in parts {
            let bytes = code(image, *start, *end)?;
            instructions.extend(decode(bytes, *start, MAX_INSTRUCTIONS));
        }
        instructions.sort_by_key(|i| i.address);
        if instructions.len() > MAX_INSTRUCTIONS {
            return None;
        }
        let mut flow = Flow {
            next: Vec::new(),
            first: 0,
            computed: Vec::new(),
            targets: BTreeSet::new(),
            instructions,
        };
        flow.first = flow.at(entry)?;
        flow.next = flow.instructions.iter().map(|i| flow.after(i)).collect();
        flow.targets = flow.next.iter().filter_map(|n| n[1]).collect();
        let jumps = |i: &Instruction| i.control == Control::Computed;
        if flow.instructions.iter().any(jumps) {
            let known: BTreeSet<u32> = flow.next.iter().flatten().flatten().copied().collect();
            let unknown = (0..flow.instructions.len()).filter(|n| !known.contains(&n.fit::<u32>()));
            flow.computed = unknown.collect();
        }
        Some(flow)
    }

    /// The number of the instruction at an address.
    pub(crate) fn at(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, |i| i.address)
            .ok()
    }

    fn after(&self, i: &Instruction) -> [Option<u32>; 2] {
        let number = |address| Some(self.at(address)?.fit::<u32>());
        let (on, to) = match i.control {
            Control::Branch(to) => (true, Some(to)),
            Control::Jump(to) => (false, Some(to)),
            Control::Stop | Control::Computed | Control::Invalid => (false, None),
            Control::Next | Control::Call(_) | Control::Transaction(_) => (true, None),
        };
        let on = on.then(|| number(i.next)).flatten();
        let to = to.and_then(number);
        [on, to]
    }

    /// The nearest instruction that is `wanted` and executed exactly as often as another one, with which
    /// it is in a run without jumps: the one behind, or else the one before.
    pub(crate) fn beside(&self, from: usize, wanted: &dyn Fn(usize) -> bool) -> Option<usize> {
        let goes_on = |n: &usize| {
            let n = *n;
            self.next[n] == [Some(n.fit::<u32>() + 1), None]
                && !self.targets.contains(&(n.fit::<u32>() + 1))
        };
        let after = (from..self.instructions.len())
            .take_while(goes_on)
            .map(|n| n + 1);
        let before = (0..from).rev().take_while(goes_on);
        after.chain(before).find(|n| wanted(*n))
    }

    /// Whether a jump leads to an instruction.
    pub(crate) fn is_jumped_to(&self, address: u64) -> bool {
        let Some(index) = self.at(address) else {
            return false;
        };
        let jumps = self.next.iter().zip(&self.instructions);
        jumps
            .into_iter()
            .any(|(next, i)| next[1] == Some(index.fit::<u32>()) && i.address >= address)
    }

    /// Follows the function from its start, and gives the first `wanted` instruction on each path.
    pub(crate) fn reached(&self, wanted: &dyn Fn(usize) -> bool) -> Vec<usize> {
        let mut seen = vec![false; self.instructions.len()];
        let mut first_wanted = Vec::new();
        let mut todo = vec![self.first];
        let mut jumped = false;
        while let Some(n) = todo.pop() {
            if std::mem::replace(&mut seen[n], true) {
                continue;
            }
            if wanted(n) {
                first_wanted.push(n);
                continue;
            }
            todo.extend(self.next[n].iter().flatten().map(|n| *n as usize));
            if !jumped && self.instructions[n].control == Control::Computed {
                jumped = true;
                todo.extend(&self.computed);
            }
        }
        first_wanted
    }

    /// The loops among the instructions that `inside` has (the strongly connected components, by
    /// Tarjan's algorithm).
    pub(crate) fn loops(&self, inside: &dyn Fn(usize) -> bool) -> Vec<Loop> {
        let mut search = Search {
            low: vec![0; self.instructions.len()],
            open: Vec::new(),
            count: 0,
            loops: Vec::new(),
        };
        for n in 0..self.instructions.len() {
            if inside(n) && search.low[n] == 0 {
                search.from(self, n, inside);
            }
        }
        search.loops
    }

    fn follows_itself(&self, n: usize) -> bool {
        self.next[n].contains(&Some(n.fit::<u32>()))
    }
}

/// The state of Tarjan's algorithm.
struct Search {
    /// The smallest number of an open instruction that is reached; 0: not seen; [`CLOSED`].
    low: Vec<u32>,
    open: Vec<usize>,
    count: u32,
    loops: Vec<Loop>,
}

const CLOSED: u32 = u32::MAX;

impl Search {
    fn from(&mut self, flow: &Flow, start: usize, inside: &dyn Fn(usize) -> bool) {
        // The way to the current instruction: its number, order, and the next edge to take.
        let mut way: Vec<(usize, u32, usize)> = Vec::new();
        self.enter(start, &mut way);
        while let Some((n, order, edge)) = way.last_mut() {
            let (n, order) = (*n, *order);
            if let Some(next) = flow.next[n].get(*edge) {
                *edge += 1;
                let Some(to) = next.map(|t| t as usize).filter(|t| inside(*t)) else {
                    continue;
                };
                match self.low[to] {
                    0 => self.enter(to, &mut way),
                    CLOSED => {}
                    low => self.low[n] = self.low[n].min(low),
                }
                continue;
            }
            way.pop();
            if let Some((before, ..)) = way.last() {
                self.low[*before] = self.low[*before].min(self.low[n]);
            }
            if self.low[n] == order {
                self.close(flow, n);
            }
        }
    }

    fn enter(&mut self, n: usize, way: &mut Vec<(usize, u32, usize)>) {
        self.count += 1;
        self.low[n] = self.count;
        self.open.push(n);
        way.push((n, self.count, 0));
    }

    fn close(&mut self, flow: &Flow, n: usize) {
        let from = self.open.iter().rposition(|o| *o == n).unwrap_or(0);
        let closed = self.open.split_off(from);
        for n in &closed {
            self.low[*n] = CLOSED;
        }
        if closed.len() > 1 || flow.follows_itself(n) {
            self.loops.push(closed);
        }
    }
}
