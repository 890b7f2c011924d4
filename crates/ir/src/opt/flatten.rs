//! Calls without a stack: what inlining leaves of a kernel handler's calls (recursion, and
//! functions too large to copy) becomes jumps, so that a handler is one body.
//!
//! Each function called is copied once into the handler, as a *region* of its blocks. A call
//! writes its arguments to the region's parameters and its number to the region's return
//! register, and jumps there; a `ret` jumps to the way back of that number. Where the function
//! can call itself, the call begins an activation (`Enter`), keeps there the caller's registers
//! that are read later (`Save`), and takes them back afterwards (`Restore`, `Leave`).
//!
//! An error that the function does not catch goes to the region's *unwind* block, which does the
//! same on another way back and fails again (`Rethrow`) at the location of the call.

use spile_cast::Cast;

use super::inline::{calls, clear_registers, direct_calls, reached, shift_inst, shift_term};
use crate::analysis::liveness::Liveness;
use crate::*;

/// Runs the pass on all kernel handlers. Returns the numbers of the handlers that it flattened.
pub fn run(program: &mut Program) -> Vec<usize> {
    let todo: Vec<usize> = (0..program.handlers.len())
        .filter(|h| {
            let handler = &program.handlers[*h];
            handler.event.is_compiled() && !calls(&handler.body).is_empty()
        })
        .collect();
    if todo.is_empty() {
        return todo;
    }
    let empty = program.intern(b"");
    let reach = reachable_calls(program);
    for h in &todo {
        let body = std::mem::take(&mut program.handlers[*h].body);
        program.handlers[*h].body = FlatBody::new(body, program, &reach, empty).add_dispatch();
    }
    todo
}

/// By function: the functions that it can reach through one or more calls.
fn reachable_calls(program: &Program) -> Vec<Vec<bool>> {
    let direct = direct_calls(program);
    let from = |start: &Vec<usize>| reached(start.clone(), &direct);
    direct.iter().map(from).collect()
}

/// A function's copy in the handler.
struct InlinedRegion {
    func: usize,
    reg0: u32,
    /// The region's first block.
    entry: BlockId,
    /// The register with the number of the call to return to.
    number: Reg,
    result: Option<Reg>,
    /// The blocks that dispatch a `ret`, and an error.
    returns: BlockId,
    unwind: BlockId,
    /// The return blocks of each call, by number: after a result, after an error.
    ways: Vec<(BlockId, BlockId)>,
}

struct FlatBody<'a> {
    program: &'a Program,
    reach: &'a [Vec<bool>],
    empty: StrId,
    body: Body,
    regions: Vec<InlinedRegion>,
}

/// A call and its surroundings.
struct CallSite {
    dst: Option<Reg>,
    args: Vec<Val>,
    site: SiteId,
    /// Index of the callee's region.
    callee: usize,
    /// The caller's registers that are live after the call; empty where the callee cannot reach the
    /// caller again.
    saved: Vec<Reg>,
}

impl<'a> FlatBody<'a> {
    fn new(body: Body, program: &'a Program, reach: &'a [Vec<bool>], empty: StrId) -> FlatBody<'a> {
        let mut todo = calls(&body);
        let handler_blocks = body.blocks.len();
        let mut flat = FlatBody {
            program,
            reach,
            empty,
            body,
            regions: Vec::new(),
        };
        while let Some(f) = todo.pop() {
            if f < program.funcs.len() && flat.regions.iter().all(|r| r.func != f) {
                flat.add_region(f);
                todo.extend(calls(&program.funcs[f].body));
            }
        }
        // The liveness is that of the bodies before any call is replaced.
        let live = Liveness::new(&flat.body);
        flat.replace_calls(0..handler_blocks, None, &live);
        for r in 0..flat.regions.len() {
            let region = &flat.regions[r];
            let first = region.entry.index();
            let blocks = first..first + program.funcs[region.func].body.blocks.len();
            let live = Liveness::new(&program.funcs[region.func].body);
            flat.replace_calls(blocks, Some(r), &live);
        }
        flat
    }

    fn reg(&mut self, ty: Ty) -> Reg {
        self.body.regs.push(ty);
        Reg(self.body.regs.len().fit::<u32>() - 1)
    }

    fn block(&mut self, insts: Vec<(Inst, SiteId)>, term: Term, catch: Option<BlockId>) -> BlockId {
        self.body.blocks.push(Block { insts, term, catch });
        BlockId(self.body.blocks.len().fit::<u32>() - 1)
    }

    /// Copies a function's blocks into the handler.
    fn add_region(&mut self, f: usize) {
        let func = &self.program.funcs[f];
        let (reg0, iter0) = (self.body.regs.len().fit::<u32>(), self.body.iters);
        self.body.regs.extend(&func.body.regs);
        self.body.iters += func.body.iters;
        let number = self.reg(Ty::Long);
        let result = func.ret.map(|ty| self.reg(ty));
        let returns = self.block(Vec::new(), Term::EndHandler, None);
        let unwind = self.block(Vec::new(), Term::EndHandler, None);
        let entry = BlockId(self.body.blocks.len().fit());
        for block in &func.body.blocks {
            let mut block = block.clone();
            let catch = block.catch.map(|c| BlockId(c.0 + entry.0));
            block.catch = Some(catch.unwrap_or(unwind));
            for (inst, _) in &mut block.insts {
                shift_inst(inst, reg0, iter0);
            }
            shift_term(&mut block.term, reg0, iter0, entry.0);
            if let Term::Ret(v) = block.term {
                if let (Some(dst), Some(src)) = (result, v) {
                    block.insts.push((Inst::Copy { dst, src }, SiteId(0)));
                }
                block.term = Term::Jump(returns);
            }
            self.body.blocks.push(block);
        }
        self.regions.push(InlinedRegion {
            func: f,
            reg0,
            entry,
            number,
            result,
            returns,
            unwind,
            ways: Vec::new(),
        });
    }

    /// Replaces the calls in these blocks of a region, or of the handler itself. `live` is the
    /// liveness of the function's (or the handler's) original body.
    fn replace_calls(
        &mut self,
        blocks: std::ops::Range<usize>,
        owner: Option<usize>,
        live: &Liveness,
    ) {
        for b in blocks.clone() {
            let mut saved = match owner {
                Some(r) => self.live_at_calls(r, b - blocks.start, live),
                None => Vec::new(),
            }
            .into_iter();
            let catch = self.body.blocks[b].catch;
            let term = self.body.blocks[b].term.clone();
            let mut current = b;
            for (inst, site) in std::mem::take(&mut self.body.blocks[b].insts) {
                let Inst::Call { dst, func, args } = inst else {
                    self.body.blocks[current].insts.push((inst, site));
                    continue;
                };
                let Some(callee) = self.regions.iter().position(|r| r.func == func.index()) else {
                    continue;
                };
                let call = CallSite {
                    dst,
                    args,
                    site,
                    callee,
                    saved: saved.next().unwrap_or_default(),
                };
                current = self.replace_call(current, call, catch, owner).index();
            }
            self.body.blocks[current].term = term;
        }
    }

    /// For each call in a block of a region: the registers of the handler's body that are live
    /// after it. Empty where the callee cannot reach this region again.
    fn live_at_calls(&self, region: usize, block: usize, live: &Liveness) -> Vec<Vec<Reg>> {
        let region = &self.regions[region];
        let block = &self.program.funcs[region.func].body.blocks[block];
        let mut set = live.live_out(block);
        live.step_term(block, &mut set);
        let mut saved = Vec::new();
        for (inst, _) in block.insts.iter().rev() {
            if let Inst::Call { func, dst, .. } = inst {
                let again = self.reach.get(func.index());
                let again = again.is_some_and(|r| r[region.func]);
                let kept = set.iter().filter(|r| again && Some(*r) != *dst);
                let mut kept: Vec<Reg> = kept.map(|r| Reg(r.0 + region.reg0)).collect();
                if again {
                    kept.push(region.number);
                }
                saved.push(kept);
            }
            live.step(block, inst, &mut set);
        }
        saved.reverse();
        saved
    }

    /// Ends the block `from` with a jump to the callee; returns the block where the caller goes on.
    fn replace_call(
        &mut self,
        from: usize,
        call: CallSite,
        catch: Option<BlockId>,
        owner: Option<usize>,
    ) -> BlockId {
        let region = &self.regions[call.callee];
        let func = &self.program.funcs[region.func];
        let (entry, number, result, reg0) =
            (region.entry, region.number, region.result, region.reg0);
        let way = region.ways.len().fit::<i64>();
        let mut args = call.args;
        let mut insts = Vec::new();
        if owner == Some(call.callee) {
            // The parameters are the caller's own registers, so all are read before one is written.
            for arg in &mut args {
                if let Val::Reg(r) = *arg {
                    let dst = self.reg(self.body.regs[r.index()]);
                    insts.push(Inst::Copy { dst, src: *arg });
                    *arg = Val::Reg(dst);
                }
            }
        }
        let (mut kept, mut back) = (Vec::new(), Vec::new());
        let mut offset = 0;
        for r in &call.saved {
            let (src, dst) = (Val::Reg(*r), *r);
            kept.push(Inst::Save { src, offset });
            back.push(Inst::Restore { dst, offset });
            offset += self.body.regs[r.index()].size();
        }
        if func.recursive {
            insts.push(Inst::Enter);
            back.push(Inst::Leave);
        }
        insts.extend(kept);
        clear_registers(func, reg0, self.empty, |inst| insts.push(inst));
        for (p, src) in func.params.iter().zip(args) {
            let dst = Reg(p.0 + reg0);
            insts.push(Inst::Copy { dst, src });
        }
        insts.push(Inst::Copy {
            dst: number,
            src: Val::Imm(way),
        });
        let site = call.site;
        let placed = |insts: Vec<Inst>| insts.into_iter().map(|i| (i, site)).collect::<Vec<_>>();
        self.body.blocks[from].insts.extend(placed(insts));
        self.body.blocks[from].term = Term::Jump(entry);

        let mut unwound = back.clone();
        unwound.push(Inst::Rethrow);
        if let (Some(dst), Some(result)) = (call.dst, result) {
            let src = Val::Reg(result);
            back.push(Inst::Copy { dst, src });
        }
        let after = self.block(placed(back), Term::EndHandler, catch);
        let failed = self.block(placed(unwound), Term::EndHandler, catch);
        self.regions[call.callee].ways.push((after, failed));
        after
    }

    /// Makes the blocks that dispatch returns.
    fn add_dispatch(mut self) -> Body {
        for region in std::mem::take(&mut self.regions) {
            let (after, failed): (Vec<_>, Vec<_>) = region.ways.iter().copied().unzip();
            for (start, ways) in [(region.returns, after), (region.unwind, failed)] {
                self.dispatch(start, region.number, &ways);
            }
        }
        self.body
    }

    /// Jumps from the block `start` to the return block whose number is in a register.
    fn dispatch(&mut self, start: BlockId, number: Reg, ways: &[BlockId]) {
        let mut current = start;
        for (i, way) in ways.iter().enumerate() {
            if i + 1 == ways.len() {
                self.body.blocks[current.index()].term = Term::Jump(*way);
                break;
            }
            let dst = self.reg(Ty::Long);
            let (a, b) = (Val::Reg(number), Val::Imm(i.fit()));
            let op = BinOp::Eq;
            let next = self.block(Vec::new(), Term::EndHandler, None);
            let block = &mut self.body.blocks[current.index()];
            block.insts.push((Inst::Bin { dst, op, a, b }, SiteId(0)));
            block.term = Term::Branch {
                cond: Val::Reg(dst),
                then: *way,
                els: next,
            };
            current = next;
        }
    }
}
