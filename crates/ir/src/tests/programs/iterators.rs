//! Iterators of random programs.

use spile_cast::Cast;

use super::*;

/// The global that an iterator iterates over, and the order.
pub(super) type IteratorSpec = (GlobalId, Option<SortSpec>);

impl Generator {
    /// A global to iterate over, with an order.
    pub(super) fn iterator(&mut self) -> Option<IteratorSpec> {
        let n = self.rng.below(self.p.globals.len().fit::<u32>());
        if self.uses[n as usize] != GlobalUse::All {
            return None;
        }
        let kind = self.p.globals[n as usize].kind.clone();
        if let Some(spec) = kind.stats()
            && spec.hist.is_some()
            && self.rng.chance(50)
        {
            return Some((GlobalId(n), None));
        }
        let GlobalKind::Array { keys, value, .. } = kind else {
            return None;
        };
        let mut by = vec![SortKey::Value];
        by.extend((0..keys.len().fit::<u32>()).map(SortKey::Key));
        if let ElemTy::Stats(spec) = value {
            by.extend(extractors(&spec).into_iter().map(SortKey::Stat));
        }
        let sort = SortSpec {
            by: self.rng.pick(&by),
            descending: self.rng.chance(50),
        };
        Some((GlobalId(n), self.rng.chance(75).then_some(sort)))
    }

    /// Whether an iterator iterates over histogram buckets; then it is not sorted, and its global
    /// has a histogram.
    fn buckets(&self, it: usize) -> bool {
        let (g, sort) = self.iterators[it];
        let kind = &self.p.globals[g.index()].kind;
        sort.is_none() && kind.stats().is_some_and(|s| s.hist.is_some())
    }

    /// Starts an iterator.
    pub(super) fn iter_new(&mut self, it: u32) -> Inst {
        let (g, sort) = self.iterators[it as usize];
        let keys = match self.p.globals[g.index()].kind.clone() {
            GlobalKind::Array { keys, .. } => self.keys(&keys),
            _ => Vec::new(),
        };
        let iter = IterId(it);
        if self.buckets(it as usize) {
            return Inst::IterHist { it: iter, g, keys };
        }
        let slice = match self.rng.chance(40) {
            true => self.slice(&keys),
            false => Vec::new(),
        };
        Inst::IterNew {
            it: iter,
            g,
            slice,
            sort,
            limit: self.rng.chance(30).then(|| self.long()),
        }
    }

    /// Fetches the next element of some iterator.
    pub(super) fn iter_next(&mut self, body: BlockId, done: BlockId) -> Term {
        let it = self.rng.below(self.iterators.len().fit::<u32>());
        let kind = &self.p.globals[self.iterators[it as usize].0.index()].kind;
        let (types, value) = match kind.clone() {
            GlobalKind::Array { keys, value, .. } if !self.buckets(it as usize) => match value {
                ElemTy::Scalar(ty) => (keys, ty),
                ElemTy::Stats(_) => (keys, Ty::Long),
            },
            _ => (vec![Ty::Long], Ty::Long),
        };
        let reg = |g: &mut Generator, ty: &Ty| match ty {
            Ty::Long => g.long_reg(),
            Ty::Str(_) => g.str_reg(),
        };
        Term::IterNext {
            it: IterId(it),
            keys: types.iter().map(|t| reg(self, t)).collect(),
            value: self.rng.chance(70).then(|| reg(self, &value)),
            body,
            done,
        }
    }

    /// Starts the iterators of a body in its first block, because the optimiser may find that no
    /// path leads to another start.
    pub(super) fn start_all(&mut self, body: &mut Body) {
        for it in 0..self.iterators.len().fit::<u32>() {
            let start = self.iter_new(it);
            body.blocks[0].insts.push((start, SiteId(0)));
        }
    }
}

/// The extractors of a statistic.
pub(super) fn extractors(spec: &StatsSpec) -> Vec<Extract> {
    let all = [
        (true, Extract::Count),
        (spec.sum, Extract::Sum),
        (spec.sum, Extract::Avg),
        (spec.min, Extract::Min),
        (spec.max, Extract::Max),
        (spec.variance, Extract::Variance),
    ];
    all.iter()
        .filter(|(has, _)| *has)
        .map(|(_, e)| *e)
        .collect()
}
