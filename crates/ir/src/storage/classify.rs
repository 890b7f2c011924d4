//! The decision on storage classes; see the parent module for the rules.

use std::collections::BTreeMap;

use spile_cast::Cast;

use super::class::Storage;
use super::thread_ownership::{Owner, Ownership};
use crate::*;

/// The reason for each global's storage class, one line each, for `-v`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// The lines in the order of the globals.
    pub lines: Vec<GlobalExplanation>,
}

/// The line of a global.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalExplanation {
    /// Its name.
    pub name: String,
    /// Its class.
    pub storage: Storage,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{}: {} ({})", line.name, line.storage, line.why)?;
        }
        Ok(())
    }
}

/// An instruction of a handler (or of a function that it calls) on a global.
struct Access<'p> {
    g: GlobalId,
    inst: &'p Inst,
    /// Whether it can run more than once in a run of the handler.
    repeated: bool,
    /// The owner of the elements with its first key, if known.
    owner: Option<Owner>,
}

struct HandlerUse<'p> {
    handler: &'p Handler,
    accesses: Vec<Access<'p>>,
}

impl HandlerUse<'_> {
    fn kernel(&self) -> bool {
        self.handler.event.is_compiled()
    }

    fn running(&self) -> bool {
        !matches!(
            self.handler.event,
            Event::Begin(_) | Event::End(_) | Event::Error(_)
        )
    }

    fn accesses_to(&self, g: GlobalId) -> impl Iterator<Item = &Access<'_>> {
        self.accesses.iter().filter(move |a| a.g == g)
    }
}

/// Sets [`Global::storage`] of all globals and returns the reasons. `old` results that nobody reads
/// are dropped first, so that they do not count as reads.
pub fn classify(program: &mut Program) -> Explanation {
    drop_unused_old(program);
    let uses = uses(program);
    let mut classes: Vec<(Storage, String)> = (0..program.globals.len())
        .map(|g| class_of(&uses, GlobalId(g.fit())))
        .collect();
    locks(program, &uses, &mut classes);
    while let Some(g) = torn_with(&uses, &classes) {
        classes[g].0 = Storage::Shared { lock: false };
        locks(program, &uses, &mut classes);
    }
    let mut out = Explanation::default();
    for (global, (storage, why)) in program.globals.iter_mut().zip(classes) {
        global.storage = storage;
        out.lines.push(GlobalExplanation {
            name: global.name.to_string(),
            storage,
            why,
        });
    }
    out
}

/// Maximum number of fields of a record: each has a bit in the word that says which are set.
const MAX_FIELDS: usize = 31;

/// The arrays that can be fields of one thread record, in order; empty if there would be only one.
/// Requires [`classify`].
pub fn thread_records(program: &Program) -> Vec<GlobalId> {
    let uses = uses(program);
    let running: Vec<&HandlerUse<'_>> = uses.iter().filter(|u| u.running()).collect();
    let mut iterated = vec![false; program.globals.len()];
    for u in &uses {
        for a in &u.accesses {
            iterated[a.g.index()] |= matches!(a.inst, Inst::IterNew { .. });
        }
    }
    // All arrays of a record have space for the same number of threads.
    let mut by_capacity: BTreeMap<u32, Vec<GlobalId>> = BTreeMap::new();
    for (g, global) in program.globals.iter().enumerate() {
        let GlobalKind::Array {
            keys,
            value: ElemTy::Scalar(Ty::Long),
            max,
            wrap: false,
        } = &global.kind
        else {
            continue;
        };
        let free = global.storage == (Storage::Shared { lock: false });
        if free && **keys == [Ty::Long] && !iterated[g] {
            let id = GlobalId(g.fit());
            let facts = GlobalUse::new(program, &running, id);
            if facts.written && facts.owner == Some(Owner::Thread) {
                by_capacity.entry(*max).or_default().push(id);
            }
        }
    }
    let mut most = by_capacity
        .into_values()
        .max_by_key(Vec::len)
        .filter(|fields| fields.len() > 1)
        .unwrap_or_default();
    most.truncate(MAX_FIELDS);
    most
}

/// Drops the `old` results of additions that no instruction reads.
fn drop_unused_old(program: &mut Program) {
    for body in program.bodies_mut() {
        let mut read = analysis::liveness::RegSet::new(body.regs.len());
        for block in &body.blocks {
            let mut add = |v: Val| {
                if let Val::Reg(r) = v {
                    read.insert(r);
                }
            };
            block
                .insts
                .iter()
                .for_each(|(i, _)| i.for_each_use(&mut add));
            block.term.for_each_use(&mut add);
        }
        for inst in body.insts_mut() {
            if let Inst::GAdd { old, .. } | Inst::AAdd { old, .. } = inst
                && old.is_some_and(|r| !read.contains(r))
            {
                *old = None;
            }
        }
    }
}

fn uses(program: &Program) -> Vec<HandlerUse<'_>> {
    let handlers = program
        .handlers
        .iter()
        .filter(|h| !matches!(h.event, Event::Never | Event::Counter { .. }));
    handlers
        .map(|handler| {
            let mut accesses = Vec::new();
            let mut called = vec![false; program.funcs.len()];
            let mut todo = body_accesses(&handler.body, Some(&handler.event), &mut accesses);
            while let Some(f) = todo.pop() {
                if let Some(func) = program.funcs.get(f.index())
                    && !std::mem::replace(&mut called[f.index()], true)
                {
                    // A function can be called from several locations: count it as repeated.
                    todo.extend(body_accesses(&func.body, None, &mut accesses));
                }
            }
            // The verifier refuses ids out of range; here they must only do no harm.
            accesses.retain(|a| a.g.index() < program.globals.len());
            HandlerUse { handler, accesses }
        })
        .collect()
}

/// Collects the accesses of the body of a handler of that event, or of a function; returns the
/// functions that it calls.
fn body_accesses<'p>(
    body: &'p Body,
    event: Option<&Event>,
    out: &mut Vec<Access<'p>>,
) -> Vec<FuncId> {
    let repeated = event.is_none();
    let looping = looping_blocks(body);
    let owned = event.map(|event| Ownership::new(event, body));
    let mut called = Vec::new();
    for (i, block) in body.blocks.iter().enumerate() {
        for (inst, _) in &block.insts {
            if let Inst::Call { func, .. } = inst {
                called.push(*func);
            }
            let Some(g) = inst.global() else { continue };
            let first = match inst {
                Inst::IterNew { .. } => None,
                _ => inst.pattern().first().copied().flatten(),
            };
            out.push(Access {
                g,
                inst,
                repeated: repeated || looping[i],
                owner: owned
                    .as_ref()
                    .zip(first)
                    .and_then(|(o, key)| o.holds(i, key)),
            });
        }
    }
    called
}

/// The blocks from which a path leads back to themselves.
fn looping_blocks(body: &Body) -> Vec<bool> {
    let n = body.blocks.len();
    if !has_loop(body) {
        return vec![false; n];
    }
    (0..n)
        .map(|start| {
            let mut seen = vec![false; n];
            let mut stack: Vec<BlockId> = body.blocks[start].successors().collect();
            while let Some(b) = stack.pop() {
                if b.index() == start {
                    return true;
                }
                if b.index() < n && !std::mem::replace(&mut seen[b.index()], true) {
                    stack.extend(body.blocks[b.index()].successors());
                }
            }
            false
        })
        .collect()
}

/// Whether the body has a loop: whether blocks remain after repeatedly removing those without
/// predecessors.
fn has_loop(body: &Body) -> bool {
    let n = body.blocks.len();
    let mut into = vec![0usize; n];
    let successors = |b: &Block| b.successors().filter(move |to| to.index() < n);
    for to in body.blocks.iter().flat_map(successors) {
        into[to.index()] += 1;
    }
    let mut free: Vec<usize> = (0..n).filter(|b| into[*b] == 0).collect();
    let mut taken = 0;
    while let Some(b) = free.pop() {
        taken += 1;
        for to in successors(&body.blocks[b]) {
            into[to.index()] -= 1;
            if into[to.index()] == 0 {
                free.push(to.index());
            }
        }
    }
    taken < n
}

fn class_of(uses: &[HandlerUse<'_>], g: GlobalId) -> (Storage, String) {
    let mut kernel = uses
        .iter()
        .filter(|u| u.kernel())
        .flat_map(|u| u.accesses_to(g))
        .peekable();
    if kernel.peek().is_none() {
        return (Storage::Controller, "no kernel handler touches it".into());
    }
    if kernel.all(|a| a.inst.add_only()) {
        let reader = uses
            .iter()
            .find(|u| u.running() && !u.kernel() && u.accesses_to(g).next().is_some());
        let why = match reader {
            Some(u) => format!(
                "kernel handlers only add to it, `{}` reads it",
                u.handler.point
            ),
            None => "kernel handlers only add to it".to_string(),
        };
        return (
            Storage::PerCpu {
                double: reader.is_some(),
            },
            why,
        );
    }
    (Storage::Shared { lock: false }, String::new())
}

/// A per-CPU global that some handlers of the kernel and of the controller both touch together with
/// one locked global. Its deltas are drained before the lock is taken, so an action of a kernel
/// handler in between would be visible in one and not in the other.
fn torn_with(uses: &[HandlerUse<'_>], classes: &[(Storage, String)]) -> Option<usize> {
    let is = |g: usize, class: Storage| classes[g].0 == class;
    let touches = |u: &HandlerUse<'_>, g: usize| u.accesses_to(GlobalId(g.fit())).next().is_some();
    let meet = |g: usize, locked: usize| {
        let both = |u: &&HandlerUse<'_>| u.running() && touches(u, g) && touches(u, locked);
        uses.iter().filter(both).any(HandlerUse::kernel)
            && uses.iter().filter(both).any(|u| !u.kernel())
    };
    let locked: Vec<usize> = (0..classes.len())
        .filter(|g| is(*g, Storage::Shared { lock: true }))
        .collect();
    (0..classes.len())
        .filter(|g| is(*g, Storage::PerCpu { double: true }))
        .find(|g| locked.iter().any(|l| meet(*g, *l)))
}

/// Decides [`Storage::Shared::lock`] and fills in the reasons.
fn locks(program: &Program, uses: &[HandlerUse<'_>], classes: &mut [(Storage, String)]) {
    let running: Vec<&HandlerUse<'_>> = uses.iter().filter(|u| u.running()).collect();
    let facts: Vec<GlobalUse> = (0..classes.len())
        .map(|g| GlobalUse::new(program, &running, GlobalId(g.fit())))
        .collect();
    let contended: Vec<bool> = classes
        .iter_mut()
        .zip(&facts)
        .map(|((storage, why), f)| {
            if !matches!(storage, Storage::Shared { .. }) {
                return false;
            }
            let free = match () {
                () if f.iterated => None,
                () if !f.written => Some("nothing writes it while handlers run"),
                () => f.owner.map(|owner| match owner {
                    Owner::Thread => "each thread touches its own elements only",
                    Owner::Processor => "each processor touches its own elements only",
                    Owner::Call => "each call has an element of its own",
                }),
            };
            *why = free
                .unwrap_or("every handler takes one atomic step")
                .to_string();
            free.is_none()
        })
        .collect();
    for u in &running {
        let touched: Vec<&Access<'_>> = u
            .accesses
            .iter()
            .filter(|a| contended[a.g.index()])
            .collect();
        let simple = match &touched[..] {
            [] => true,
            [a] => !a.repeated && facts[a.g.index()].atomic(program, a, u.kernel()),
            _ => false,
        };
        if simple {
            continue;
        }
        let several = touched.iter().any(|a| a.g != touched[0].g);
        for a in &touched {
            let (storage, why) = &mut classes[a.g.index()];
            *storage = Storage::Shared { lock: true };
            let action = if several {
                "it with other globals"
            } else {
                "it in more than one step"
            };
            *why = format!("`{}` touches {action}", u.handler.point);
        }
    }
}

/// The use of a global by running handlers.
struct GlobalUse {
    written: bool,
    /// A kernel handler iterates over it: the copies of its elements belong to the holder of the
    /// lock.
    iterated: bool,
    /// The owner of rule 2.
    owner: Option<Owner>,
    /// A running handler of the controller changes it.
    replaces: bool,
    deletes: bool,
    only_stores: bool,
}

impl GlobalUse {
    fn new(program: &Program, running: &[&HandlerUse<'_>], g: GlobalId) -> GlobalUse {
        let wraps = matches!(
            program.globals[g.index()].kind,
            GlobalKind::Array { wrap: true, .. }
        );
        let accesses = || {
            running
                .iter()
                .flat_map(|u| u.accesses_to(g).map(|a| (u.kernel(), a)))
        };
        let store = |a: &Access<'_>| matches!(a.inst, Inst::ASet { .. });
        GlobalUse {
            written: accesses().any(|(_, a)| a.inst.writes_global()),
            iterated: accesses()
                .any(|(kernel, a)| kernel && matches!(a.inst, Inst::IterNew { .. })),
            owner: match accesses().next() {
                _ if program.globals[g.index()].saves_entry_values() => Some(Owner::Call),
                Some((_, first)) if !wraps => first
                    .owner
                    .filter(|_| accesses().all(|(_, a)| a.owner == first.owner)),
                _ => None,
            },
            replaces: accesses().any(|(kernel, a)| !kernel && a.inst.writes_global()),
            deletes: accesses()
                .any(|(_, a)| matches!(a.inst, Inst::ADel { .. } | Inst::GClear { .. })),
            only_stores: accesses().all(|(kernel, a)| kernel && store(a)),
        }
    }

    /// Whether an access is atomic in itself.
    fn atomic(&self, program: &Program, a: &Access<'_>, kernel: bool) -> bool {
        match &program.globals[a.g.index()].kind {
            GlobalKind::Scalar(ty) => *ty == Ty::Long,
            GlobalKind::Stats(_) => false,
            GlobalKind::Array { value, wrap, .. } => {
                if *wrap || self.deletes || *value != ElemTy::Scalar(Ty::Long) {
                    return false;
                }
                // A store of a kernel handler changes elements in place, one of the controller
                // replaces them.
                let in_place = !self.replaces;
                match a.inst {
                    Inst::ASet { .. } => self.only_stores || in_place,
                    Inst::AAdd { .. } => kernel && in_place,
                    Inst::AGet { .. } => in_place,
                    Inst::AHas { keys, .. } => in_place && keys.iter().all(Option::is_some),
                    _ => false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
