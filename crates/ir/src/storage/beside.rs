//! Which arrays have their elements beside those of another: see the parent module, "Elements side by
//! side".

use std::collections::BTreeMap;

use super::Storage;
use crate::analysis::dataflow::{self, Exit, Forward, Lattice};
use crate::*;

/// By array: with which keys it was added to last, on every way here.
type Added<'p> = BTreeMap<GlobalId, &'p [Val]>;

/// By global: the array beside whose elements its own can lie, if there is one. That array is beside
/// none itself. Asked after [`super::classify`].
pub fn beside(program: &Program) -> Vec<Option<GlobalId>> {
    // Arrays that have been added to by the same key before, wherever this is added to.
    let mut before: Vec<Option<Vec<GlobalId>>> = vec![None; program.globals.len()];
    for body in program.kernel_bodies() {
        look(body, &mut |g, with| {
            let Some(all) = before.get_mut(g.index()) else {
                return;
            };
            match all {
                Some(all) => all.retain(|a| with.contains(a)),
                None => *all = Some(with.to_vec()),
            }
        });
    }
    let before: Vec<Vec<GlobalId>> = (0..)
        .zip(before)
        .map(|(g, all)| {
            let all = all.unwrap_or_default().into_iter();
            all.filter(|to| fit(program, *to, GlobalId(g))).collect()
        })
        .collect();
    let alone = |g: &&GlobalId| before[g.index()].is_empty();
    let to = |all: &Vec<GlobalId>| all.iter().find(alone).copied();
    before.iter().map(to).collect()
}

/// Whether elements of `g` can lie beside those of `to`. (A statistic without a value is no element;
/// of a number nothing would say so.)
fn fit(program: &Program, to: GlobalId, g: GlobalId) -> bool {
    let [to, g] = [to, g].map(|g| &program.globals[g.index()]);
    let array = |g: &Global| match &g.kind {
        GlobalKind::Array {
            keys,
            max,
            wrap: false,
            ..
        } => Some((keys.clone(), *max)),
        _ => None,
    };
    let statistic = matches!(
        g.kind,
        GlobalKind::Array {
            value: ElemTy::Stats(_),
            ..
        }
    );
    let per_cpu = matches!(g.storage, Storage::PerCpu { .. });
    statistic && per_cpu && g.storage == to.storage && array(g).is_some() && array(g) == array(to)
}

/// Goes through a body; tells of each addition to an array to which others there was one by the same
/// key before, with none by another key since.
fn look<'p>(body: &'p Body, tell: &mut dyn FnMut(GlobalId, &[GlobalId])) {
    let starts = dataflow::forward(body, &Additions(body));
    for (block, start) in body.blocks.iter().zip(starts) {
        if let Some(mut added) = start {
            through(block, &mut added, tell);
        }
    }
}

impl<'p> Lattice for Added<'p> {
    fn join(&mut self, other: &Added<'p>) -> bool {
        let before = self.len();
        self.retain(|g, keys| other.get(g) == Some(keys));
        self.len() != before
    }
}

struct Additions<'p>(&'p Body);

impl<'p> Forward for Additions<'p> {
    type Fact = Added<'p>;

    fn entry(&self) -> Added<'p> {
        Added::new()
    }

    fn block(&self, id: BlockId, start: &Added<'p>) -> Exit<Added<'p>> {
        let mut end = start.clone();
        through(&self.0.blocks[id.index()], &mut end, &mut |_, _| {});
        // What was added to before the block and has its keys yet would hold, too: nobody needs it.
        let anywhere = Added::new();
        Exit { end, anywhere }
    }
}

/// Goes through a block.
fn through<'p>(
    block: &'p Block,
    added: &mut Added<'p>,
    tell: &mut dyn FnMut(GlobalId, &[GlobalId]),
) {
    for (inst, _) in &block.insts {
        match inst {
            Inst::StatAdd { g, keys, .. } | Inst::AAdd { g, keys, .. } => {
                let same = |(to, with): &(&GlobalId, &&[Val])| *to != g && ***with == **keys;
                let same: Vec<_> = added.iter().filter(same).map(|(to, _)| *to).collect();
                tell(*g, &same);
                added.insert(*g, keys);
            }
            // A function may add to anything.
            Inst::Call { .. } => added.clear(),
            _ => {}
        }
        if let Some(dst) = inst.dst() {
            forget(added, dst);
        }
    }
    block.term.for_each_dst(|dst| forget(added, dst));
}

/// A register has another value from here on.
fn forget(added: &mut Added<'_>, reg: Reg) {
    added.retain(|_, keys| !keys.contains(&Val::Reg(reg)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrays beside others, of `a`, `b`, `c` by a number, all statistics, `n` a number, and `d`
    /// with room for fewer; of a handler with this code, after `r0 = intr tid()`.
    fn of(code: &str) -> Vec<(u32, u32)> {
        let text = format!(
            "site @0 \"\" str s0 \"k\"\n\
             global g0 \"a\" [long] stats(sum) max 9 controller @0\n\
             global g1 \"b\" [long] stats() max 9 controller @0\n\
             global g2 \"c\" [long] stats(max) max 9 controller @0\n\
             global g3 \"n\" [long] long max 9 controller @0\n\
             global g4 \"d\" [long] stats() max 8 controller @0\n\
             func fn0 \"f\" () {{ b0: aadd g3[7], 1 ret }}\n\
             handler \"k\" points 1 sys_enter(all) @0 {{ regs r0: long, r1: long b0: r0 = intr tid() \
             r1 = intr pid() {code} }}\n"
        );
        let mut program = reader::read(&text).unwrap();
        super::super::classify(&mut program);
        let found = beside(&program).into_iter().enumerate();
        found
            .filter_map(|(g, to)| Some((g as u32, to?.0)))
            .collect()
    }

    #[test]
    fn by_the_same_key_on_every_way() {
        let a = "stat_add g0[r0], 5";
        assert_eq!(
            of(&format!("{a} stat_add g1[r0], 1 stat_add g2[r0], 1 ret")),
            [(1, 0), (2, 0)]
        );
        // In one case only, but there always.
        let sometimes = "branch r1, b1, b2 b1: stat_add g1[r0], 1 jump b2 b2: ret";
        assert_eq!(of(&format!("{a} {sometimes}")), [(1, 0)]);
        // Not on every way.
        let other = format!("branch r1, b1, b2 b1: {a} jump b2 b2: stat_add g1[r0], 1 ret");
        assert_eq!(of(&other), []);
        // Once without.
        assert_eq!(
            of(&format!("stat_add g1[r0], 1 {a} stat_add g1[r0], 1 ret")),
            [(0, 1)]
        );
        // Behind a loop's start nothing is known of what comes around.
        let round = format!(
            "{a} jump b1 b1: stat_add g1[r0], 1 stat_add g0[r1], 1 branch r1, b1, b2 b2: ret"
        );
        assert_eq!(of(&round), []);
    }

    #[test]
    fn not_by_another_key_or_another_value() {
        let a = "stat_add g0[r0], 5";
        assert_eq!(of(&format!("{a} stat_add g1[r1], 1 ret")), []);
        assert_eq!(
            of(&format!("{a} stat_add g0[r1], 1 stat_add g1[r0], 1 ret")),
            []
        );
        assert_eq!(
            of(&format!("{a} r0 = intr cpu() stat_add g1[r0], 1 ret")),
            []
        );
        assert_eq!(of(&format!("{a} call fn0() @0 stat_add g1[r0], 1 ret")), []);
    }

    #[test]
    fn only_statistics_of_equal_room() {
        // (A number has elements for others to lie beside.)
        assert_eq!(of("aadd g3[r0], 1 stat_add g0[r0], 1 ret"), [(0, 3)]);
        assert_eq!(of("stat_add g0[r0], 1 aadd g3[r0], 1 ret"), []);
        assert_eq!(of("stat_add g0[r0], 1 stat_add g4[r0], 1 ret"), []);
    }
}
