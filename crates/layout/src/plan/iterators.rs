//! The iterators of kernel handlers: what each one iterates over, the parts of an element that it
//! needs, and the iterators that can use the same slot because they are never open together.
//!
//! `foreach` copies the matching elements of its array to entries of a map that belongs to the
//! array (and so to the holder of the array's lock). In front of each entry is a [`node`]; the nodes
//! form a heap ([`spile_lir::library::heap`]). Behind the node are the parts of the element that the loop
//! reads: first the text that is the sort key, if there is one.
//!
//! For each iterator that can be open together with others, a map has a slot with as many entries
//! as the array has elements. The buckets of a histogram are copied to the per-CPU area.

use std::collections::BTreeSet;

use spile_ir::analysis::dataflow::{self, Backward, Lattice};
use spile_ir::{
    Block, BlockId, Body, ElemTy, GlobalId, GlobalKind, Inst, IterId, Program, Reg, SortKey,
    SortSpec, Term, Ty, Val,
};
use spile_lir::library::heap::node;

use super::host::Res;

/// Words of an iterator in the per-CPU area.
pub mod state {
    /// Index of its slot's first entry.
    pub const BASE: u32 = 0;
    /// Number of nodes in the heap; for a histogram, of buckets that were copied.
    pub const SIZE: u32 = 8;
    /// Number of elements that are left; for a histogram, the next bucket.
    pub const LEFT: u32 = 16;
    /// Bytes of the words.
    pub const BYTES: u32 = 24;
}

/// A part of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementPart {
    /// A field of the key.
    Key(usize),
    /// The value; the count of a statistic.
    Value,
}

/// A part of an element that is copied to the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementField {
    /// The part.
    pub part: ElementPart,
    /// Its type.
    pub ty: Ty,
    /// Its offset in the entry.
    pub offset: u32,
}

/// The elements that an iterator iterates over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IterSource {
    /// The elements of an array.
    Array {
        /// The order; `None` for that of insertion.
        sort: Option<SortSpec>,
        /// The parts that are read, keys first: of two for one register the last one counts. The row
        /// begins with `text`.
        fields: Vec<ElementField>,
        /// The string that is the sort key.
        text: Option<ElementField>,
    },
    /// The buckets of a histogram; their number.
    Buckets(u32),
}

/// An iterator of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IteratorLayout {
    /// The global that it iterates over.
    pub g: GlobalId,
    /// The elements.
    pub source: IterSource,
    /// The index of its buffer, among those of its array or of all histograms.
    pub slot: u32,
    /// Whether the body calls a function that can start this iterator again. Each activation then has a
    /// buffer of its own.
    pub deep: bool,
}

impl IteratorLayout {
    /// Bytes of an entry in its map.
    pub fn entry(&self) -> u32 {
        match &self.source {
            IterSource::Array { fields, .. } => {
                node::SIZE + fields.iter().map(|f| f.ty.size()).sum::<u32>()
            }
            IterSource::Buckets(_) => 0,
        }
    }

    fn same_slot(&self, other: &IteratorLayout) -> bool {
        match (&self.source, &other.source) {
            (IterSource::Array { .. }, IterSource::Array { .. }) => self.g == other.g,
            (IterSource::Buckets(_), IterSource::Buckets(_)) => true,
            _ => false,
        }
    }
}

/// Arrays that record the order of insertion, because a `foreach` iterates over them or they are
/// printed at the end.
pub(crate) fn iterated(program: &Program) -> Vec<bool> {
    let mut out: Vec<bool> = program.globals.iter().map(|g| g.display).collect();
    for inst in program.bodies().flat_map(Body::insts) {
        if let Inst::IterNew { g, .. } = inst
            && let Some(it) = out.get_mut(g.index())
        {
            *it = true;
        }
    }
    out
}

/// The iterators of a body, by number; `None` for those that never start. The error is the reason
/// for a refusal.
pub(crate) fn iterators(program: &Program, body: &Body) -> Res<Vec<Option<IteratorLayout>>> {
    let mut iterators: Vec<Option<IteratorLayout>> = vec![None; body.iters as usize];
    for inst in body.insts() {
        let (it, source) = match inst {
            Inst::IterNew { it, g, sort, .. } => (*it, array(program, body, *it, *g, *sort)?),
            Inst::IterHist { it, g, .. } => {
                let spec = program.globals.get(g.index()).and_then(|g| g.kind.stats());
                let hist = spec.and_then(|s| s.hist);
                let hist = hist.ok_or("no histogram to iterate over")?;
                (*it, IterSource::Buckets(hist.buckets()))
            }
            _ => continue,
        };
        let new = IteratorLayout {
            g: inst.global().ok_or("an iterator over nothing")?,
            source,
            slot: 0,
            deep: false,
        };
        match iterators.get_mut(it.index()) {
            Some(Some(old)) if *old != new => {
                return Err("an iterator that iterates over two things".into());
            }
            Some(layout) => *layout = Some(new),
            None => return Err("an iterator that does not exist".into()),
        }
    }
    let open = open_in(body);
    assign_slots(body, &open, &mut iterators);
    let deep = around_calls(body, &open);
    for (i, layout) in iterators.iter_mut().enumerate() {
        if let Some(layout) = layout {
            layout.deep = deep.contains(&i);
        }
    }
    Ok(iterators)
}

fn array(
    program: &Program,
    body: &Body,
    it: IterId,
    g: GlobalId,
    sort: Option<SortSpec>,
) -> Res<IterSource> {
    let Some(GlobalKind::Array { keys, value, .. }) =
        program.globals.get(g.index()).map(|g| &g.kind)
    else {
        return Err("foreach over something that is no array".into());
    };
    let value = match value {
        ElemTy::Scalar(ty) => *ty,
        ElemTy::Stats(_) => Ty::Long,
    };
    let ty = |part: ElementPart| match part {
        ElementPart::Key(i) => keys.get(i).copied(),
        ElementPart::Value => Some(value),
    };
    let text = match sort.map(|s| s.by) {
        Some(SortKey::Key(i)) => Some(ElementPart::Key(i as usize)),
        Some(SortKey::Value) => Some(ElementPart::Value),
        Some(SortKey::Stat(_)) | None => None,
    };
    let text = text.filter(|p| matches!(ty(*p), Some(Ty::Str(_))));
    let mut wanted = parts_read(body, it);
    if let Some(part) = text {
        wanted.retain(|p| *p != part);
        wanted.insert(0, part);
    }
    let mut offset = node::SIZE;
    let mut fields = Vec::new();
    for part in wanted {
        let ty = ty(part).ok_or("an iterator with another number of keys")?;
        fields.push(ElementField { part, ty, offset });
        offset += ty.size();
    }
    let text = fields.iter().copied().find(|f| Some(f.part) == text);
    fields.sort_by_key(|field| field.part);
    Ok(IterSource::Array { sort, fields, text })
}

/// The parts of its elements that are read.
fn parts_read(body: &Body, it: IterId) -> Vec<ElementPart> {
    let mut read = vec![false; body.regs.len()];
    for block in &body.blocks {
        let mut mark = |v: Val| {
            if let Val::Reg(r) = v
                && let Some(location) = read.get_mut(r.index())
            {
                *location = true;
            }
        };
        block
            .insts
            .iter()
            .for_each(|(i, _)| i.for_each_use(&mut mark));
        block.term.for_each_use(&mut mark);
    }
    let is_read = |r: &Reg| read.get(r.index()) == Some(&true);
    let mut parts = Vec::new();
    for block in &body.blocks {
        let Term::IterNext {
            it: next,
            keys,
            value,
            ..
        } = &block.term
        else {
            continue;
        };
        if *next != it {
            continue;
        }
        let keys = keys.iter().enumerate().filter(|(_, r)| is_read(r));
        let keys = keys.map(|(i, _)| ElementPart::Key(i));
        let value = value.filter(is_read).map(|_| ElementPart::Value);
        for part in keys.chain(value) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts
}

/// Assigns different slots to iterators that can be open together. An iterator is open if its next
/// element can be requested without a new start.
fn assign_slots(body: &Body, open: &[OpenSet], iterators: &mut [Option<IteratorLayout>]) {
    let mut together = vec![BTreeSet::new(); iterators.len()];
    for_each_start(body, open, |it, open| {
        for other in open.iter().filter(|o| **o != it) {
            for (one, other) in [(it, *other), (*other, it)] {
                if let Some(others) = together.get_mut(one) {
                    others.insert(other);
                }
            }
        }
    });
    for i in 0..iterators.len() {
        let Some(layout) = &iterators[i] else {
            continue;
        };
        let before = (0..i).filter(|j| together[i].contains(j));
        let taken: Vec<u32> = before
            .filter_map(|j| iterators[j].as_ref().filter(|o| layout.same_slot(o)))
            .map(|other| other.slot)
            .collect();
        let slot = (0..).find(|slot| !taken.contains(slot)).unwrap_or(0);
        if let Some(layout) = &mut iterators[i] {
            layout.slot = slot;
        }
    }
}

/// Iterators whose next element can be requested before any start.
pub fn maybe_unstarted(body: &Body) -> Vec<usize> {
    let first = open_in(body).into_iter().next();
    first.map_or_else(Vec::new, |open| open.0.into_iter().collect())
}

/// Iterators that continue after a call of a recursive function.
fn around_calls(body: &Body, open: &[OpenSet]) -> BTreeSet<usize> {
    let blocks = body.blocks.iter().zip(open);
    // `Leave` is at the start of the block that the call returns to.
    let returns = blocks.filter(|(b, _)| b.insts.iter().any(|(i, _)| matches!(i, Inst::Leave)));
    returns.flat_map(|(_, open)| &open.0).copied().collect()
}

/// The iterators that are open at a program point.
#[derive(Debug, Clone, Default)]
struct OpenSet(BTreeSet<usize>);

impl Lattice for OpenSet {
    fn join(&mut self, other: &OpenSet) -> bool {
        let before = self.0.len();
        self.0.extend(&other.0);
        self.0.len() != before
    }
}

struct OpenIterators<'a>(&'a Body);

impl Backward for OpenIterators<'_> {
    type Fact = OpenSet;

    fn end_fact(&self) -> OpenSet {
        OpenSet::default()
    }

    fn block(&self, id: BlockId, fact: &mut OpenSet) {
        let block = &self.0.blocks[id.index()];
        scan_back(block, fact, &OpenSet::default(), |_, _| {});
    }
}

/// The iterators that are open at the start of each block.
fn open_in(body: &Body) -> Vec<OpenSet> {
    match body.iters {
        0 => vec![OpenSet::default(); body.blocks.len()],
        _ => dataflow::backward(body, &OpenIterators(body)),
    }
}

/// Calls `f` for each start of an iterator, with the iterators that are open at that point.
fn for_each_start(body: &Body, open: &[OpenSet], mut f: impl FnMut(usize, &BTreeSet<usize>)) {
    for block in &body.blocks {
        let mut set = OpenSet::default();
        for to in block.successors() {
            set.join(&open[to.index()]);
        }
        let caught = block.catch.map(|c| open[c.index()].clone());
        scan_back(block, &mut set, &caught.unwrap_or_default(), &mut f);
    }
}

/// The transfer function of a block, backwards: from the iterators that are open at its end to
/// those at its start. `caught`: those at the start of its catch block, which are open in the whole
/// block.
fn scan_back(
    block: &Block,
    open: &mut OpenSet,
    caught: &OpenSet,
    mut start: impl FnMut(usize, &BTreeSet<usize>),
) {
    if let Term::IterNext { it, .. } = block.term {
        open.0.insert(it.index());
    }
    for (inst, _) in block.insts.iter().rev() {
        if let Inst::IterNew { it, .. } | Inst::IterHist { it, .. } = inst {
            start(it.index(), &open.0);
            open.0.remove(&it.index());
            open.join(caught);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(iters: u32, code: &str) -> (Program, Vec<Option<IteratorLayout>>) {
        let text = format!(
            "site @0 \"\"\n\
             global g0 \"a\" [long, str16] long max 10 shared lock @0\n\
             global g1 \"b\" [long] stats(sum, hist_log) max 10 shared lock @0\n\
             handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  \
             regs r0: long, r1: str16, r2: long, r3: long, r4: str16\n  iters {iters}\n{code}\n}}\n"
        );
        let program = spile_ir::reader::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let all = iterators(&program, &program.handlers[0].body).unwrap();
        (program, all)
    }

    #[test]
    fn nested_iterators_have_own_slots_and_others_share() {
        let (program, all) = read(
            4,
            "  b0: iter i0 g0[] jump b1
               b1: r2 = next i0 [r0, r1] b2, b4
               b2: iter i1 g0[*, r1] desc key 1 jump b3
               b3: next i1 [r3, r4] b3, b1
               b4: iter i2 g0[] limit r2 jump b5
               b5: next i2 [r3, r4] b6, b7
               b6: iter_hist i3 g1[r3] jump b5
               b7: ret",
        );
        let slots: Vec<u32> = all.iter().flatten().map(|i| i.slot).collect();
        assert_eq!(slots, [0, 1, 0, 0]);
        let entries: Vec<u32> = all.iter().flatten().map(IteratorLayout::entry).collect();
        // The first one reads the string and the value; the others read the number, and the second
        // one sorts by the string.
        assert_eq!(entries, [24 + 16 + 8, 24 + 8 + 16, 24 + 8, 0]);
        assert_eq!(maybe_unstarted(&program.handlers[0].body), []);
        assert_eq!(iterated(&program), [true, false]);
    }

    #[test]
    fn iterator_that_continues_on_one_path_is_open() {
        let (program, all) = read(
            2,
            "  b0: iter i0 g0[] jump b1
               b1: r2 = next i1 [r0, r1] b2, b2
               b2: iter i1 g0[] jump b3
               b3: next i0 [r3, r4] b1, b4
               b4: ret",
        );
        let slots: Vec<u32> = all.iter().flatten().map(|i| i.slot).collect();
        assert_eq!(slots, [0, 1]);
        assert_eq!(maybe_unstarted(&program.handlers[0].body), [1]);
    }
}
