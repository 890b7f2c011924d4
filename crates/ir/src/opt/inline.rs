//! Inlining of function calls.
//!
//! In kernel handlers every call that is not part of a recursion is replaced by the function's
//! code (what is left is [`flatten`](super::flatten)'s). Controller handlers keep calls of large
//! functions.
//!
//! The block with the call is cut in two. The callee's registers, blocks and iterators are
//! appended to the caller's; its `ret`s become jumps to the second half. A callee block without
//! a `catch` gets the call block's. A callee starts with all its registers 0 or "", so the
//! copy clears those that can be read before they are written, since a call in a loop finds
//! the values of the round before.

use rustc_hash::FxHashMap;
use spile_cast::Cast;

use crate::analysis::liveness::Liveness;
use crate::*;

/// Functions with at most this many instructions are inlined into controller handlers.
const SMALL: usize = 12;
/// Maximum number of instructions that a body can grow to by inlining.
const MAX_INSTS: usize = 200_000;

/// By function: the functions that it calls.
pub(super) fn direct_calls(program: &Program) -> Vec<Vec<usize>> {
    program.funcs.iter().map(|f| calls(&f.body)).collect()
}

/// By function: whether it is among these or is reached from them through calls.
pub(super) fn reached(mut stack: Vec<usize>, direct: &[Vec<usize>]) -> Vec<bool> {
    let mut seen = vec![false; direct.len()];
    while let Some(f) = stack.pop() {
        if f < seen.len() && !std::mem::replace(&mut seen[f], true) {
            stack.extend(&direct[f]);
        }
    }
    seen
}

/// The functions that can call themselves, directly or through others.
pub fn recursive(program: &Program) -> Vec<FuncId> {
    let direct = direct_calls(program);
    let funcs = (0..direct.len()).filter(|f| reached(direct[*f].clone(), &direct)[*f]);
    funcs.map(|f| FuncId(f.fit())).collect()
}

/// Sets [`Func::recursive`].
pub fn mark_recursive(program: &mut Program) {
    for f in recursive(program) {
        program.funcs[f.index()].recursive = true;
    }
}

/// Indexes of the functions that a body calls.
pub(super) fn calls(body: &Body) -> Vec<usize> {
    let insts = body.insts();
    insts
        .filter_map(|i| match i {
            Inst::Call { func, .. } => Some(func.index()),
            _ => None,
        })
        .collect()
}

/// Inlines calls: into functions and kernel handlers all that are not recursive, into controller
/// handlers the small ones. Functions without callers stay in the table, so that ids do not change,
/// with an empty body.
pub fn inline(program: &mut Program) {
    if program.funcs.is_empty() {
        return;
    }
    let empty = program.intern(b"");
    mark_recursive(program);
    let recursive: Vec<bool> = program.funcs.iter().map(|f| f.recursive).collect();
    let mut sites = SiteTable {
        list: std::mem::take(&mut program.sites),
        inlined: FxHashMap::default(),
    };
    // Callees first, so that each function is complete when it is copied.
    let mut done = recursive.clone();
    for start in 0..program.funcs.len() {
        let mut stack = vec![start];
        while let Some(&f) = stack.last() {
            let open: Vec<usize> = match program.funcs.get(f) {
                Some(func) if !done[f] => calls(&func.body)
                    .into_iter()
                    .filter(|c| done.get(*c) == Some(&false))
                    .collect(),
                _ => Vec::new(),
            };
            if open.is_empty() {
                stack.pop();
                if !done[f] {
                    done[f] = true;
                    let body = std::mem::take(&mut program.funcs[f].body);
                    let callees = Callees {
                        recursive: &recursive,
                        size: usize::MAX,
                    };
                    program.funcs[f].body = inline_body(body, program, callees, empty, &mut sites);
                }
            } else {
                stack.extend(open);
            }
        }
    }
    for i in 0..program.handlers.len() {
        let size = if program.handlers[i].event.is_compiled() {
            usize::MAX
        } else {
            SMALL
        };
        let body = std::mem::take(&mut program.handlers[i].body);
        let callees = Callees {
            recursive: &recursive,
            size,
        };
        program.handlers[i].body = inline_body(body, program, callees, empty, &mut sites);
    }
    program.sites = sites.list;
    drop_uncalled(program, empty);
}

fn size(body: &Body) -> usize {
    body.blocks.iter().map(|b| b.insts.len() + 1).sum()
}

/// Empties the bodies of functions that no handler reaches.
fn drop_uncalled(program: &mut Program, empty: StrId) {
    let handlers = program.handlers.iter().flat_map(|h| calls(&h.body));
    let called = reached(handlers.collect(), &direct_calls(program));
    for (func, called) in program.funcs.iter_mut().zip(called) {
        if !called {
            let value = func.ret.map(|ty| match ty {
                Ty::Long => Val::Imm(0),
                Ty::Str(_) => Val::Str(empty),
            });
            let params = func
                .params
                .iter()
                .map(|p| func.body.regs.get(p.index()).copied());
            let regs = params.map(|t| t.unwrap_or(Ty::Long)).collect();
            func.params = (0..func.params.len().fit::<u32>()).map(Reg).collect();
            let block = Block {
                insts: Vec::new(),
                term: Term::Ret(value),
                catch: None,
            };
            func.body = Body {
                regs,
                blocks: vec![block],
                iters: 0,
            };
        }
    }
}

/// The program's sites, and those made for inlined code.
struct SiteTable {
    list: Vec<Site>,
    inlined: FxHashMap<(SiteId, SiteId), SiteId>,
}

impl SiteTable {
    /// The site of a function's code inlined at `call`.
    fn inlined_site(&mut self, site: SiteId, call: SiteId) -> SiteId {
        if let Some(id) = self.inlined.get(&(site, call)) {
            return *id;
        }
        let Some(mut new) = self.list.get(site.index()).cloned() else {
            return site;
        };
        new.caller = Some(match new.caller {
            Some(outer) => self.inlined_site(outer, call),
            None => call,
        });
        self.list.push(new);
        let id = SiteId(self.list.len().fit::<u32>() - 1);
        self.inlined.insert((site, call), id);
        id
    }
}

/// The functions whose calls are replaced.
#[derive(Clone, Copy)]
struct Callees<'a> {
    /// By function: not these.
    recursive: &'a [bool],
    /// Maximum number of instructions.
    size: usize,
}

impl Callees<'_> {
    fn contain(self, program: &Program, func: FuncId) -> bool {
        program.funcs.get(func.index()).is_some_and(|f| {
            !self.recursive[func.index()] && size(&f.body) <= self.size && !f.body.blocks.is_empty()
        })
    }
}

/// Replaces the calls of `callees` in a body.
fn inline_body(
    mut body: Body,
    program: &Program,
    callees: Callees<'_>,
    empty: StrId,
    sites: &mut SiteTable,
) -> Body {
    let mut b = 0;
    while b < body.blocks.len() {
        let call = body.blocks[b].insts.iter().position(|(i, _)| match i {
            Inst::Call { func, .. } => callees.contain(program, *func) && size(&body) < MAX_INSTS,
            _ => false,
        });
        match call {
            // The second half and the callee's copy are later blocks. Callees are complete (or too
            // large to copy), so only the second half has calls left.
            Some(index) => splice(&mut body, (b, index), program, empty, sites),
            None => b += 1,
        }
    }
    body
}

/// Replaces the call at `body.blocks[b].insts[index]`.
fn splice(
    body: &mut Body,
    (b, index): (usize, usize),
    program: &Program,
    empty: StrId,
    sites: &mut SiteTable,
) {
    let catch = body.blocks[b].catch;
    let rest = body.blocks[b].insts.split_off(index + 1);
    let Some((Inst::Call { dst, func, args }, site)) = body.blocks[b].insts.pop() else {
        return;
    };
    let func = &program.funcs[func.index()];
    let (reg0, iter0) = (body.regs.len().fit::<u32>(), body.iters);
    let block0 = body.blocks.len().fit::<u32>() + 1;
    let after = BlockId(body.blocks.len().fit());
    body.regs.extend(&func.body.regs);
    body.iters += func.body.iters;

    let term = std::mem::replace(&mut body.blocks[b].term, Term::Jump(BlockId(block0)));
    let insts = &mut body.blocks[b].insts;
    clear_registers(func, reg0, empty, |inst| insts.push((inst, site)));
    for (p, a) in func.params.iter().zip(args) {
        insts.push((
            Inst::Copy {
                dst: Reg(p.0 + reg0),
                src: a,
            },
            site,
        ));
    }
    body.blocks.push(Block {
        insts: rest,
        term,
        catch,
    });
    for block in &func.body.blocks {
        let mut block = block.clone();
        block.catch = block.catch.map(|c| BlockId(c.0 + block0)).or(catch);
        for (inst, inner) in &mut block.insts {
            if inst.fallible(program) {
                *inner = sites.inlined_site(*inner, site);
            }
            shift_inst(inst, reg0, iter0);
        }
        shift_term(&mut block.term, reg0, iter0, block0);
        if let Term::Ret(v) = block.term {
            if let (Some(dst), Some(src)) = (dst, v) {
                block.insts.push((Inst::Copy { dst, src }, site));
            }
            block.term = Term::Jump(after);
        }
        body.blocks.push(block);
    }
}

/// Copies that clear the registers that a function reads before it writes them, as a fresh
/// activation finds them. Register numbers are shifted by `reg0`.
pub(super) fn clear_registers(func: &Func, reg0: u32, empty: StrId, mut push: impl FnMut(Inst)) {
    for r in Liveness::new(&func.body).live_in(BlockId(0)) {
        let src = match func.body.regs.get(r.index()) {
            Some(Ty::Long) => Val::Imm(0),
            Some(Ty::Str(_)) => Val::Str(empty),
            None => continue,
        };
        if !func.params.contains(&r) {
            let dst = Reg(r.0 + reg0);
            push(Inst::Copy { dst, src });
        }
    }
}

pub(super) fn shift_inst(inst: &mut Inst, reg0: u32, iter0: u32) {
    inst.dsts_mut(|r| r.0 += reg0);
    inst.uses_mut(|v| shift_val(v, reg0));
    if let Inst::IterNew { it, .. } | Inst::IterHist { it, .. } = inst {
        it.0 += iter0;
    }
}

pub(super) fn shift_term(term: &mut Term, reg0: u32, iter0: u32, block0: u32) {
    term.uses_mut(|v| shift_val(v, reg0));
    term.dsts_mut(|r| r.0 += reg0);
    term.targets_mut(|b| b.0 += block0);
    if let Term::IterNext { it, .. } = term {
        it.0 += iter0;
    }
}

fn shift_val(v: &mut Val, reg0: u32) {
    if let Val::Reg(r) = v {
        r.0 += reg0;
    }
}
