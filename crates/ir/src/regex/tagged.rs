//! Finders: automata whose states know the best path to each node, with tables that give the
//! predecessor of that path and its tags.
//!
//! A state is a list of nodes ("slots"). For each pair of them it has which of their best paths is
//! preferred so far (`better`), and how far out each path has come since the two parted (`out`):
//! the depth of the outermost part that both are still in. Of two paths the better one has left
//! fewer parts, as a part that is left later is longer. If they are equal in this, the earlier
//! preference decides; if they part right here, the order of the node's alternatives.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;
use spile_cast::Cast;

use super::error::Error;
use super::nfa::{Nfa, Node, NodeId};
use super::scan::{self, Scanner, merge, representatives};

/// Maximum number of states before equal ones are merged.
const MAX_STATES: usize = 3000;
/// Maximum number of steps of the whole construction.
const MAX_WORK: usize = 4_000_000;
/// Maximum number of entries: rows, lists and tags are identified by the index of their first
/// entry, in 16 bits.
const MAX_ENTRIES: usize = 65_000;

/// No slot accepts.
pub const NO_SLOT: u16 = 0xffff;

/// An operation on a tag: its number times two, plus one if the tag is forgotten instead of set. A
/// tag is a group's number, from 0 for the first one, times two, plus one for its end.
pub type Op = u8;

/// Tables that find a match and its groups. Rows and lists are identified by the index of their
/// first entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finder {
    /// Number of groups.
    pub groups: u32,
    /// Matches begin at position 0 only.
    pub anchored: bool,
    /// Backward scanner that finds where matches begin.
    pub reverse: Scanner,
    /// Number of entries of a row of `next`: one for each class of bytes, then the slot that
    /// accepts at any location, with in the upper half the one that accepts at the string's end
    /// ([`NO_SLOT`]: none).
    pub columns: u32,
    /// This row and those after it accept at any location.
    pub accept: u16,
    /// The first row at position 0, elsewhere.
    pub start: [u16; 2],
    /// The lists of the first rows: their tags are at the start of the match.
    pub start_list: [u16; 2],
    /// By row and class: the next row, and in the upper half the list. Row 0 has no successors and
    /// accepts nothing.
    pub next: Vec<u32>,
    /// Lists: for each slot of the next row its slot in this row, and in the upper half the index
    /// of its operations.
    pub lists: Vec<u32>,
    /// Operations: their number, then each one. Index 0 has none.
    pub ops: Vec<u8>,
}

/// Makes the tables.
///
/// # Errors
/// They would be too large.
pub(super) fn finder(nfa: &Nfa, groups: u32) -> Result<Finder, Error> {
    let reverse = scan::reverse(nfa)?;
    let mut b = Builder::new(nfa);
    let starts = [b.initial(true)?, b.initial(false)?];
    let mut state = 0;
    while state < b.states.len() {
        b.transitions(state)?;
        state += 1;
    }
    b.table(groups, reverse, starts)
}

/// The end of a path: the node, and for [`Node::Accept`] whether only at the string's end.
type Slot = (NodeId, bool);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TaggedState {
    slots: Vec<Slot>,
    /// For slot `i` against slot `j` at `i * slots + j`.
    better: Vec<i8>,
    out: Vec<u16>,
}

/// A step of a path within one position.
#[derive(Debug, Clone, Copy)]
struct PathStep {
    parent: u32,
    /// Number of steps before it.
    level: u32,
    /// Its depth, and the minimum depth since the previous position.
    depth: u16,
    out: u16,
    /// The alternative taken at the fork before it.
    rank: u8,
    /// The node reached.
    node: NodeId,
    /// The slot that the path started from.
    origin: u16,
}

/// A flag next to those of repetitions: the path has passed `$`.
const PASSED_END: u64 = 1 << 63;

struct Builder<'a> {
    nfa: &'a Nfa,
    states: Vec<TaggedState>,
    index: FxHashMap<TaggedState, usize>,
    /// By state and class: the next state and its list.
    rows: Vec<Vec<(usize, u32)>>,
    lists: Vec<u32>,
    list_index: FxHashMap<Vec<u32>, u32>,
    ops: Vec<u8>,
    ops_index: FxHashMap<Vec<Op>, u32>,
    bytes: Vec<u8>,
    work: usize,
}

/// The paths of one position.
struct Closure<'a> {
    nfa: &'a Nfa,
    from: Option<&'a TaggedState>,
    steps: Vec<PathStep>,
    /// The best path to a node with this set of begun repetitions.
    best: FxHashMap<(NodeId, u64), u32>,
    /// The best path to a slot.
    best_to_slot: FxHashMap<Slot, u32>,
}

impl Closure<'_> {
    fn root(&mut self, origin: u16, depth: u16, node: NodeId) -> u32 {
        self.steps.push(PathStep {
            parent: u32::MAX,
            level: 0,
            depth,
            out: depth,
            rank: 0,
            node,
            origin,
        });
        self.steps.len().fit::<u32>() - 1
    }

    fn step(&mut self, parent: u32, rank: u8, depth: u16, node: NodeId) -> u32 {
        let p = self.steps[parent as usize];
        self.steps.push(PathStep {
            parent,
            level: p.level + 1,
            depth,
            out: p.out.min(depth),
            rank,
            node,
            origin: p.origin,
        });
        self.steps.len().fit::<u32>() - 1
    }

    /// How far out each of two paths has come since they parted, and which one is better.
    fn compare(&self, a: u32, b: u32) -> (u16, u16, Ordering) {
        let (sa, sb) = (self.steps[a as usize], self.steps[b as usize]);
        let (out_a, out_b, even) = match self.from {
            Some(from) if sa.origin != sb.origin => {
                let n = from.slots.len();
                let (i, j) = (usize::from(sa.origin), usize::from(sb.origin));
                (
                    from.out[i * n + j].min(sa.out),
                    from.out[j * n + i].min(sb.out),
                    from.better[i * n + j].cmp(&0),
                )
            }
            _ => self.compare_at_split(a, b),
        };
        // The deeper path is in longer parts.
        (out_a, out_b, out_b.cmp(&out_a).then(even))
    }

    fn compare_at_split(&self, a: u32, b: u32) -> (u16, u16, Ordering) {
        let step = |i: u32| &self.steps[i as usize];
        let (mut a, mut b) = (a, b);
        let (mut out_a, mut out_b) = (u16::MAX, u16::MAX);
        let (mut rank_a, mut rank_b) = (0, 0);
        while a != b {
            if step(a).level >= step(b).level {
                out_a = out_a.min(step(a).depth);
                rank_a = step(a).rank;
                a = step(a).parent;
            } else {
                out_b = out_b.min(step(b).depth);
                rank_b = step(b).rank;
                b = step(b).parent;
            }
        }
        let split = step(a).depth;
        (out_a.min(split), out_b.min(split), rank_a.cmp(&rank_b))
    }

    /// Stores the better path.
    fn keep_better<K: std::hash::Hash + Eq>(
        &self,
        map: &FxHashMap<K, u32>,
        key: &K,
        path: u32,
    ) -> bool {
        map.get(key)
            .is_none_or(|old| self.compare(path, *old).2 == Ordering::Less)
    }

    fn reach(&mut self, slot: Slot, path: u32) {
        if self.keep_better(&self.best_to_slot, &slot, path) {
            self.best_to_slot.insert(slot, path);
        }
    }

    /// Follows every path from a root.
    fn explore(&mut self, root: u32, begin: bool, work: &mut usize) -> Result<(), Error> {
        let mut todo = vec![(root, 0u64)];
        while let Some((path, flags)) = todo.pop() {
            *work += 1;
            if *work > MAX_WORK {
                return Err(Error::large("too many paths through it are equivalent"));
            }
            let PathStep { node, depth, .. } = self.steps[path as usize];
            let key = (node, flags);
            if !self.keep_better(&self.best, &key, path) {
                continue;
            }
            self.best.insert(key, path);
            let nfa = self.nfa;
            match &nfa.nodes[node as usize] {
                Node::Accept => {
                    if flags & PASSED_END == 0 {
                        self.reach((node, false), path);
                    }
                    self.reach((node, true), path);
                }
                Node::Byte(..) => {
                    if flags & PASSED_END == 0 {
                        self.reach((node, false), path);
                    }
                }
                Node::Fork(ways) => {
                    for (rank, way) in ways.iter().enumerate().rev() {
                        let rank = rank.min(255).fit::<u8>();
                        todo.push((self.step(path, rank, depth, *way), flags));
                    }
                }
                Node::Depth(d, next) => {
                    todo.push((self.step(path, 0, d.fit::<u16>(), *next), flags));
                }
                Node::Tag(_, next) | Node::Forget(_, next) => {
                    todo.push((self.step(path, 0, depth, *next), flags));
                }
                Node::Round { id, first, next } => {
                    let bit = (1 + u64::from(*first)) << (2 * id);
                    todo.push((self.step(path, 0, depth, *next), flags | bit));
                }
                Node::RoundEnd { id, again, exit } => {
                    let empty = flags >> (2 * id) & 3;
                    let flags = flags & !(3 << (2 * id));
                    if empty != 1 {
                        todo.push((self.step(path, 1, depth, *exit), flags));
                    }
                    if let (0, Some(again)) = (empty, again) {
                        todo.push((self.step(path, 0, depth, *again), flags));
                    }
                }
                Node::Begin(next) => {
                    if begin {
                        todo.push((self.step(path, 0, depth, *next), flags));
                    }
                }
                Node::End(next) => {
                    todo.push((self.step(path, 0, depth, *next), flags | PASSED_END));
                }
            }
        }
        Ok(())
    }

    /// The operations of a path, the last one for each tag.
    fn ops(&self, path: u32) -> Vec<Op> {
        let mut seen = 0u64;
        let mut ops = Vec::new();
        let mut add = |tag: u32, forget: bool| {
            let tag = tag - 2;
            if seen >> tag & 1 == 0 {
                seen |= 1 << tag;
                ops.push((tag * 2 + u32::from(forget)).fit::<Op>());
            }
        };
        let mut current = self.steps[path as usize].parent;
        while current != u32::MAX {
            let step = &self.steps[current as usize];
            match &self.nfa.nodes[step.node as usize] {
                Node::Tag(tag, _) => add(*tag, false),
                Node::Forget(tags, _) => tags.iter().for_each(|t| add(*t, true)),
                _ => {}
            }
            current = step.parent;
        }
        ops.sort_unstable();
        ops
    }
}

impl<'a> Builder<'a> {
    fn new(nfa: &'a Nfa) -> Builder<'a> {
        let dead = TaggedState {
            slots: Vec::new(),
            better: Vec::new(),
            out: Vec::new(),
        };
        Builder {
            nfa,
            states: vec![dead.clone()],
            index: FxHashMap::from_iter([(dead, 0)]),
            rows: Vec::new(),
            lists: Vec::new(),
            list_index: FxHashMap::default(),
            ops: vec![0],
            ops_index: FxHashMap::from_iter([(Vec::new(), 0)]),
            bytes: representatives(nfa),
            work: 0,
        }
    }

    fn closure<'s>(nfa: &'s Nfa, from: Option<&'s TaggedState>) -> Closure<'s> {
        Closure {
            nfa,
            from,
            steps: Vec::new(),
            best: FxHashMap::default(),
            best_to_slot: FxHashMap::default(),
        }
    }

    /// The state before the first byte, and its list.
    fn initial(&mut self, begin: bool) -> Result<(usize, u32), Error> {
        let mut c = Self::closure(self.nfa, None);
        let root = c.root(0, 0, self.nfa.start);
        c.explore(root, begin, &mut self.work)?;
        let made = Self::successor(&c);
        self.state(made)
    }

    fn transitions(&mut self, index: usize) -> Result<(), Error> {
        let state = self.states[index].clone();
        let mut row = Vec::with_capacity(self.bytes.len());
        for byte in self.bytes.clone() {
            let mut c = Self::closure(self.nfa, Some(&state));
            for (i, (node, _)) in state.slots.iter().enumerate() {
                if let Node::Byte(set, next) = &self.nfa.nodes[*node as usize]
                    && set.contains(byte)
                {
                    let n = state.slots.len();
                    let depth = state.out[i * n + i];
                    let root = c.root(i.fit::<u16>(), depth, *next);
                    c.explore(root, false, &mut self.work)?;
                }
            }
            let made = Self::successor(&c);
            row.push(self.state(made)?);
        }
        self.rows.push(row);
        Ok(())
    }

    /// The state that a closure reaches, and the operations of its paths.
    fn successor(c: &Closure<'_>) -> (TaggedState, Vec<(u16, Vec<Op>)>) {
        let mut slots: Vec<Slot> = c.best_to_slot.keys().copied().collect();
        slots.sort_unstable();
        let n = slots.len();
        let paths: Vec<u32> = slots.iter().map(|s| c.best_to_slot[s]).collect();
        let (mut better, mut out) = (vec![0; n * n], vec![0; n * n]);
        let accept = |i: usize| matches!(c.nfa.nodes[slots[i].0 as usize], Node::Accept);
        for i in (0..n).filter(|i| !accept(*i)) {
            // A path compared with itself: its depth.
            out[i * n + i] = c.steps[paths[i] as usize].depth;
            for j in (0..i).filter(|j| !accept(*j)) {
                let (a, b, order) = c.compare(paths[i], paths[j]);
                out[i * n + j] = a;
                out[j * n + i] = b;
                better[i * n + j] = order as i8;
                better[j * n + i] = order.reverse() as i8;
            }
        }
        let from = |p: &u32| (c.steps[*p as usize].origin, c.ops(*p));
        let did = paths.iter().map(from).collect();
        let state = TaggedState { slots, better, out };
        (state, did)
    }

    fn state(
        &mut self,
        (state, did): (TaggedState, Vec<(u16, Vec<Op>)>),
    ) -> Result<(usize, u32), Error> {
        self.work += state.out.len();
        if self.states.len() > MAX_STATES || self.work > MAX_WORK {
            return Err(Error::large("its table would have too many states"));
        }
        let mut list = Vec::with_capacity(did.len());
        for (origin, ops) in did {
            let number = match self.ops_index.get(&ops) {
                Some(n) => *n,
                None => {
                    let n = self.ops.len().fit::<u32>();
                    self.ops.push(ops.len().fit::<u8>());
                    self.ops.extend(&ops);
                    self.ops_index.insert(ops, n);
                    n
                }
            };
            list.push(u32::from(origin) | number << 16);
        }
        let list = match self.list_index.get(&list) {
            Some(start) => *start,
            None => {
                let start = self.lists.len().fit::<u32>();
                self.lists.extend(&list);
                self.list_index.insert(list, start);
                start
            }
        };
        if self.lists.len() > MAX_ENTRIES || self.ops.len() > MAX_ENTRIES {
            return Err(Error::large("its table would have too many states"));
        }
        let next = self.states.len();
        let to = *self.index.entry(state.clone()).or_insert(next);
        if to == next {
            self.states.push(state);
        }
        Ok((to, list))
    }

    /// Merges equal states and writes the table.
    fn table(
        self,
        groups: u32,
        reverse: Scanner,
        starts: [(usize, u32); 2],
    ) -> Result<Finder, Error> {
        let slot = |s: &TaggedState, end: bool| {
            let index = s.slots.iter().position(|s| *s == (0, end));
            index.map_or(NO_SLOT, |i| i.fit::<u16>())
        };
        let accepts = |s: &TaggedState| u32::from(slot(s, false)) | u32::from(slot(s, true)) << 16;
        let mut kinds: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        let kind_of = |(s, row): (&TaggedState, &Vec<(usize, u32)>)| {
            let mut key = vec![accepts(s)];
            // A list of a dead transition is irrelevant.
            key.extend(
                row.iter()
                    .map(|(to, list)| if *to == 0 { 0 } else { *list }),
            );
            let next = kinds.len().fit::<u32>();
            *kinds.entry(key).or_insert(next)
        };
        let kinds: Vec<u32> = self.states.iter().zip(&self.rows).map(kind_of).collect();
        let targets: Vec<Vec<usize>> = self
            .rows
            .iter()
            .map(|r| r.iter().map(|(to, _)| *to).collect())
            .collect();
        // State 0 comes first, so it is block 0.
        let block = merge(&targets, kinds);
        let count = block.iter().max().map_or(0, |b| b + 1);
        let columns = self.bytes.len() + 1;
        if count * columns > MAX_ENTRIES {
            return Err(Error::large("its table would have too many states"));
        }
        // Rows that accept at any location are the last ones.
        let inner = |b: &usize| {
            let member = block.iter().position(|x| x == b).unwrap_or(0);
            slot(&self.states[member], false) == NO_SLOT
        };
        let (mut order, accepting): (Vec<usize>, Vec<usize>) = (0..count).partition(inner);
        let refusing = order.len();
        order.extend(accepting);
        let mut location = vec![0; count];
        order.iter().enumerate().for_each(|(i, b)| location[*b] = i);
        let block: Vec<usize> = block.iter().map(|b| location[*b]).collect();
        let mut next = vec![0; count * columns];
        let row = |b: usize| (b * columns).fit::<u32>();
        for (i, b) in block.iter().enumerate() {
            let to = &mut next[b * columns..(b + 1) * columns];
            for (cell, (state, list)) in to.iter_mut().zip(&self.rows[i]) {
                let list = if *state == 0 { 0 } else { *list };
                *cell = row(block[*state]) | list << 16;
            }
            to[columns - 1] = accepts(&self.states[i]);
        }
        Ok(Finder {
            groups,
            anchored: !reverse.accepts_inside(),
            reverse,
            columns: columns.fit(),
            accept: row(refusing).fit(),
            start: starts.map(|(s, _)| row(block[s]).fit::<u16>()),
            start_list: starts.map(|(_, l)| l.fit::<u16>()),
            next,
            lists: self.lists,
            ops: self.ops,
        })
    }
}
