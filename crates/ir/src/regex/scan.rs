//! Scanners: plain automata, whose states are sets of nodes, with few states. The forward scanner
//! tells whether there is a match; the backward scanner tells where matches begin.

use rustc_hash::FxHashMap;
use spile_cast::Cast;

use super::error::Error;
use super::nfa::{Nfa, Node, NodeId};

/// Maximum number of states before equal ones are merged.
const MAX_STATES: usize = 4000;
/// Maximum number of entries of a table: rows are identified by the index of their first entry, in
/// 16 bits.
const MAX_ENTRIES: usize = 65_000;

/// A table of transitions. Rows are identified by the index of their first entry. Row 0 never
/// accepts again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanner {
    /// Number of entries of a row: one for each class of bytes, the last one for the string's edge.
    pub columns: u32,
    /// The start row.
    pub start: u16,
    /// This row and those after it accept.
    pub accept: u16,
    /// The next row by row and class.
    pub next: Vec<u16>,
}

impl Scanner {
    /// Column of the string's edge.
    pub fn edge(&self) -> u32 {
        self.columns - 1
    }

    /// Whether any state accepts before the edge.
    pub(crate) fn accepts_inside(&self) -> bool {
        let row = |r: usize| r * self.columns as usize;
        let rows = self.next.len() / self.columns as usize;
        // The row that the edge leads to on acceptance has no other predecessor.
        let inside = |r: usize| &self.next[row(r)..row(r) + self.columns as usize - 1];
        self.start >= self.accept || (0..rows).any(|r| inside(r).iter().any(|n| *n >= self.accept))
    }
}

/// A set of nodes.
type Set = Vec<u64>;

fn has(set: &Set, n: NodeId) -> bool {
    set[n as usize / 64] >> (n % 64) & 1 == 1
}

fn put(set: &mut Set, n: NodeId) -> bool {
    let (word, bit) = (&mut set[n as usize / 64], 1 << (n % 64));
    let new = *word & bit == 0;
    *word |= bit;
    new
}

/// An automaton as edges: those that consume no byte, with their conditions, and those that do.
struct Graph {
    /// The successors of each node, or the predecessors.
    plain: Vec<Vec<NodeId>>,
    begin: Vec<Vec<NodeId>>,
    end: Vec<Vec<NodeId>>,
    /// Node reached by the byte, start node, and the node whose set counts.
    bytes: Vec<Vec<(NodeId, NodeId)>>,
}

impl Graph {
    fn new(nfa: &Nfa, back: bool) -> Graph {
        let n = nfa.nodes.len();
        let mut g = Graph {
            plain: vec![Vec::new(); n],
            begin: vec![Vec::new(); n],
            end: vec![Vec::new(); n],
            bytes: vec![Vec::new(); n],
        };
        for (i, node) in nfa.nodes.iter().enumerate() {
            let i = i.fit::<NodeId>();
            let edge = |list: &mut Vec<Vec<NodeId>>, to: NodeId| {
                let (from, to) = if back { (to, i) } else { (i, to) };
                list[from as usize].push(to);
            };
            match node {
                Node::Byte(_, to) => {
                    let (from, to) = if back { (*to, i) } else { (i, *to) };
                    g.bytes[from as usize].push((to, i));
                }
                Node::Fork(ways) => ways.iter().for_each(|w| edge(&mut g.plain, *w)),
                Node::Depth(_, to) | Node::Tag(_, to) | Node::Forget(_, to) => {
                    edge(&mut g.plain, *to);
                }
                Node::Round { next, .. } => edge(&mut g.plain, *next),
                Node::RoundEnd { again, exit, .. } => {
                    again.iter().for_each(|a| edge(&mut g.plain, *a));
                    edge(&mut g.plain, *exit);
                }
                Node::Begin(to) => edge(&mut g.begin, *to),
                Node::End(to) => edge(&mut g.end, *to),
                Node::Accept => {}
            }
        }
        g
    }

    /// Adds the nodes reachable without a byte.
    fn epsilon_closure(&self, set: &mut Set, mut todo: Vec<NodeId>, begin: bool, end: bool) {
        todo.retain(|n| put(set, *n));
        self.extend_closure(set, &mut todo, begin, end);
    }

    /// Adds the nodes reachable from nodes already in the set.
    fn extend_closure(&self, set: &mut Set, todo: &mut Vec<NodeId>, begin: bool, end: bool) {
        while let Some(n) = todo.pop() {
            let n = n as usize;
            let more = self.plain[n]
                .iter()
                .chain(self.begin[n].iter().filter(|_| begin))
                .chain(self.end[n].iter().filter(|_| end));
            for m in more {
                if put(set, *m) {
                    todo.push(*m);
                }
            }
        }
    }

    fn members(set: &Set) -> Vec<NodeId> {
        let n = set.len().fit::<NodeId>() * 64;
        (0..n).filter(|n| has(set, *n)).collect()
    }
}

/// The forward scanner from the string's start: accepts at the first end of a match.
///
/// # Errors
/// Too many states.
pub(super) fn forward(nfa: &Nfa) -> Result<Scanner, Error> {
    scanner(nfa, false)
}

/// The backward scanner from the string's end: accepts where a match begins.
///
/// # Errors
/// Too many states.
pub(super) fn reverse(nfa: &Nfa) -> Result<Scanner, Error> {
    scanner(nfa, true)
}

fn scanner(nfa: &Nfa, back: bool) -> Result<Scanner, Error> {
    let g = Graph::new(nfa, back);
    let (source, goal) = if back { (0, nfa.start) } else { (nfa.start, 0) };
    let words = nfa.nodes.len().div_ceil(64);
    let representative = representatives(nfa);
    // Only the first state is at an edge itself; the direction tells which one.
    let close = |set: &mut Set, from: Vec<NodeId>, first: bool| {
        g.epsilon_closure(set, from, first && !back, first && back);
    };
    let mut first = vec![0; words];
    close(&mut first, vec![source], true);
    // These nodes are in all states, as a match may begin anywhere.
    let mut always = vec![0; words];
    close(&mut always, vec![source], false);
    let (mut next, mut todo) = (always.clone(), Vec::new());
    let mut states = vec![first.clone()];
    // The first state is separate: its closure may pass its edge.
    let mut index: FxHashMap<Set, usize> = FxHashMap::default();
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut edges: Vec<bool> = Vec::new();
    let mut current = 0;
    while current < states.len() {
        let mut at_edge = states[current].clone();
        let members = Graph::members(&at_edge);
        let bytes = members.iter().flat_map(|n| &g.bytes[*n as usize]);
        let steps: Vec<_> = bytes
            .filter_map(|(to, node)| match &nfa.nodes[*node as usize] {
                Node::Byte(set, _) => Some((*to, set)),
                _ => None,
            })
            .collect();
        let mut fresh = vec![0; words];
        // The closure passes the other edge; at the first state both.
        g.epsilon_closure(
            &mut fresh,
            members,
            current == 0 || back,
            current == 0 || !back,
        );
        at_edge.iter_mut().zip(&fresh).for_each(|(a, b)| *a |= b);
        edges.push(has(&at_edge, goal));
        let mut row = Vec::with_capacity(nfa.class_count);
        for byte in &representative {
            next.copy_from_slice(&always);
            let taken = steps.iter().filter(|(_, set)| set.contains(*byte));
            todo.extend(taken.map(|(to, _)| *to).filter(|to| put(&mut next, *to)));
            g.extend_closure(&mut next, &mut todo, false, false);
            let to = match index.get(&next) {
                Some(to) => *to,
                None => {
                    let to = states.len();
                    if to >= MAX_STATES {
                        return Err(Error::large("its table would have too many states"));
                    }
                    index.insert(next.clone(), to);
                    states.push(next.clone());
                    to
                }
            };
            row.push(to);
        }
        rows.push(row);
        current += 1;
    }
    let accepts: Vec<bool> = states.iter().map(|s| has(s, goal)).collect();
    minimize(nfa.class_count, rows, &accepts, &edges, !back)
}

/// A byte of each class.
pub(super) fn representatives(nfa: &Nfa) -> Vec<u8> {
    (0..nfa.class_count)
        .map(|c| {
            let in_class = |b: &u8| usize::from(nfa.classes[usize::from(*b)]) == c;
            (0..=255).find(in_class).unwrap_or(0)
        })
        .collect()
}

/// Merges equal states and writes the table. State 0 is the start. `once`: transitions of accepting
/// states do not matter.
fn minimize(
    classes: usize,
    mut rows: Vec<Vec<usize>>,
    accepts: &[bool],
    edges: &[bool],
    once: bool,
) -> Result<Scanner, Error> {
    let n = rows.len();
    // Two more states after the edge: no and yes.
    let (no, yes) = (n, n + 1);
    for (i, row) in rows.iter_mut().enumerate() {
        if once && accepts[i] {
            row.iter_mut().for_each(|to| *to = yes);
        }
        row.push(if edges[i] || accepts[i] { yes } else { no });
    }
    rows.push(vec![no; classes + 1]);
    rows.push(vec![if once { yes } else { no }; classes + 1]);
    let kinds = (0..n + 2).map(|i| u32::from(i == yes || i < n && accepts[i]));
    let block = merge(&rows, kinds.collect());
    let columns = classes + 1;
    // Rows in order: the dead one, those that do not accept, those that do.
    let count = block.iter().max().map_or(0, |b| b + 1);
    let mut order: Vec<usize> = vec![usize::MAX; count];
    let mut member = vec![0; count];
    block.iter().enumerate().for_each(|(i, b)| member[*b] = i);
    let accepting = |b: usize| member[b] == yes || member[b] < n && accepts[member[b]];
    let mut location = 0;
    let mut take = |b: usize, order: &mut Vec<usize>| {
        if order[b] == usize::MAX {
            order[b] = location;
            location += 1;
        }
    };
    take(block[no], &mut order);
    (0..count)
        .filter(|b| !accepting(*b))
        .for_each(|b| take(b, &mut order));
    let refusing = order.iter().filter(|o| **o != usize::MAX).count();
    (0..count).for_each(|b| take(b, &mut order));
    if count * columns > MAX_ENTRIES {
        return Err(Error::large("its table would have too many states"));
    }
    let mut next = vec![0; count * columns];
    for b in 0..count {
        for (c, to) in rows[member[b]].iter().enumerate() {
            next[order[b] * columns + c] = (order[block[*to]] * columns).fit::<u16>();
        }
    }
    Ok(Scanner {
        columns: columns.fit(),
        start: (order[block[0]] * columns).fit(),
        accept: (refusing * columns).fit(),
        next,
    })
}

/// Blocks of states that no string distinguishes, by refinement of `kinds`.
pub(super) fn merge(rows: &[Vec<usize>], kinds: Vec<u32>) -> Vec<usize> {
    let mut block: Vec<usize> = kinds.iter().map(|k| *k as usize).collect();
    let mut count = 0;
    let mut key: Vec<u32> = Vec::new();
    let mut index: FxHashMap<Vec<u32>, usize> =
        FxHashMap::with_capacity_and_hasher(rows.len(), Default::default());
    loop {
        index.clear();
        let mut new = Vec::with_capacity(block.len());
        for (i, row) in rows.iter().enumerate() {
            key.clear();
            key.push(block[i].fit::<u32>());
            key.extend(row.iter().map(|to| block[*to].fit::<u32>()));
            let next = index.len();
            new.push(match index.get(&key) {
                Some(block) => *block,
                None => *index.entry(key.clone()).or_insert(next),
            });
        }
        let distinct = index.len();
        block = new;
        if distinct == count {
            return block;
        }
        count = distinct;
    }
}
