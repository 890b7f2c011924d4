//! Co-located arrays: those whose elements can lie next to another array's. See the parent module,
//! "Co-located elements".

use std::collections::BTreeMap;

use super::class::Storage;
use crate::analysis::dataflow::{self, ExitFacts, Forward, Lattice};
use crate::*;

/// By array: the keys of the last addition to it, the same on every path here.
type LastAdditions<'p> = BTreeMap<GlobalId, &'p [Val]>;

/// By global: the host array with whose elements its own can be co-located, if there is one. A host
/// is not co-located itself. Requires [`super::classify`].
pub fn colocated(program: &Program) -> Vec<Option<GlobalId>> {
    // For each array: the arrays that were added to by the same key before every addition to it.
    let mut before: Vec<Option<Vec<GlobalId>>> = vec![None; program.globals.len()];
    for body in program.kernel_bodies() {
        analyse_body(body, &mut |g, with| {
            let Some(hosts) = before.get_mut(g.index()) else {
                return;
            };
            match hosts {
                Some(hosts) => hosts.retain(|a| with.contains(a)),
                None => *hosts = Some(with.to_vec()),
            }
        });
    }
    let before: Vec<Vec<GlobalId>> = (0..)
        .zip(before)
        .map(|(g, hosts)| {
            let hosts = hosts.unwrap_or_default().into_iter();
            hosts
                .filter(|to| can_colocate(program, *to, GlobalId(g)))
                .collect()
        })
        .collect();
    let alone = |g: &&GlobalId| before[g.index()].is_empty();
    let host = |hosts: &Vec<GlobalId>| hosts.iter().find(alone).copied();
    before.iter().map(host).collect()
}

/// Whether elements of `g` can be co-located with those of `to`. (A statistic without values counts
/// as no element; a number has no such mark.)
fn can_colocate(program: &Program, to: GlobalId, g: GlobalId) -> bool {
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

/// Analyses a body; reports for each addition to an array the arrays that were added to by the same
/// key before, without an addition by another key since.
fn analyse_body<'p>(body: &'p Body, tell: &mut dyn FnMut(GlobalId, &[GlobalId])) {
    let starts = dataflow::forward(body, &Additions(body));
    for (block, start) in body.blocks.iter().zip(starts) {
        if let Some(mut added) = start {
            transfer(block, &mut added, tell);
        }
    }
}

impl<'p> Lattice for LastAdditions<'p> {
    fn join(&mut self, other: &LastAdditions<'p>) -> bool {
        let before = self.len();
        self.retain(|g, keys| other.get(g) == Some(keys));
        self.len() != before
    }
}

struct Additions<'p>(&'p Body);

impl<'p> Forward for Additions<'p> {
    type Fact = LastAdditions<'p>;

    fn entry(&self) -> LastAdditions<'p> {
        LastAdditions::new()
    }

    fn block(&self, id: BlockId, start: &LastAdditions<'p>) -> ExitFacts<LastAdditions<'p>> {
        let mut end = start.clone();
        transfer(&self.0.blocks[id.index()], &mut end, &mut |_, _| {});
        // Additions before the block whose keys are unchanged would hold, too, but nobody needs
        // them.
        let anywhere = LastAdditions::new();
        ExitFacts { end, anywhere }
    }
}

/// Applies the effect of a block.
fn transfer<'p>(
    block: &'p Block,
    added: &mut LastAdditions<'p>,
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
            // The function may add to any array.
            Inst::Call { .. } => added.clear(),
            _ => {}
        }
        if let Some(dst) = inst.dst() {
            kill(added, dst);
        }
    }
    block.term.for_each_dst(|dst| kill(added, dst));
}

/// Forgets additions whose key is in a register that changes.
fn kill(added: &mut LastAdditions<'_>, reg: Reg) {
    added.retain(|_, keys| !keys.contains(&Val::Reg(reg)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The co-located arrays of a program with one handler of this code, after `r0 = intr tid()`.
    /// `a`, `b`, `c` have a number as key and are statistics, `n` is of numbers, and `d` has space
    /// for fewer elements.
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
        let found = colocated(&program).into_iter().enumerate();
        found
            .filter_map(|(g, to)| Some((g as u32, to?.0)))
            .collect()
    }

    #[test]
    fn additions_of_the_same_key_are_colocated() {
        let a = "stat_add g0[r0], 5";
        assert_eq!(
            of(&format!("{a} stat_add g1[r0], 1 stat_add g2[r0], 1 ret")),
            [(1, 0), (2, 0)]
        );
        // The addition to the guest depends on a branch, but always follows the other.
        let sometimes = "branch r1, b1, b2 b1: stat_add g1[r0], 1 jump b2 b2: ret";
        assert_eq!(of(&format!("{a} {sometimes}")), [(1, 0)]);
        // Not on every path.
        let other = format!("branch r1, b1, b2 b1: {a} jump b2 b2: stat_add g1[r0], 1 ret");
        assert_eq!(of(&other), []);
        // One addition without the other.
        assert_eq!(
            of(&format!("stat_add g1[r0], 1 {a} stat_add g1[r0], 1 ret")),
            [(0, 1)]
        );
        // At a loop's start nothing is known about the path from its end.
        let round = format!(
            "{a} jump b1 b1: stat_add g1[r0], 1 stat_add g0[r1], 1 branch r1, b1, b2 b2: ret"
        );
        assert_eq!(of(&round), []);
    }

    #[test]
    fn additions_of_another_key_are_not_colocated() {
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
    fn only_statistics_of_equal_capacity_are_colocated() {
        // (An array of numbers has elements that can host others.)
        assert_eq!(of("aadd g3[r0], 1 stat_add g0[r0], 1 ret"), [(0, 3)]);
        assert_eq!(of("stat_add g0[r0], 1 aadd g3[r0], 1 ret"), []);
        assert_eq!(of("stat_add g0[r0], 1 stat_add g4[r0], 1 ret"), []);
    }
}
