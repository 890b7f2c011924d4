//! Machine instructions over values, with the registers that they demand: what the register
//! allocator sees.
//!
//! The operands of an instruction are the values that it reads, in the order of its fields, then the
//! one that it defines. Edges between a block with several ends and a block with several beginnings
//! get a block of their own, for moves.

use regalloc2::{
    Block as BlockIndex, Inst as InstIndex, InstRange, Operand as Reg, PReg, PRegSet, RegClass,
    VReg,
};
use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_lir::LirFunc;
use spile_lir::cfg::{Cfg, CfgNode};
use spile_lir::func::{JumpTarget, LirInst, LirTerm, MemoryOperand, Operand, Value};
use spile_lir::helpers::Helper;
use spile_lir::op::{AluOp, AtomicOp, Cond, ExtOp, Size, Width};

/// A machine instruction. `None` for an operand means that it is a value in a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MachineOp {
    /// The parameters, in r1 and up.
    Params,
    Jump,
    Branch {
        cond: Cond,
        width: Width,
        b: Option<i32>,
    },
    Ret(Option<i32>),
    /// Leaves an open loop by the second edge if the kernel stops it.
    MayGoto,
    Const(i64),
    Addr(MemoryOperand),
    Move(Width),
    Alu {
        width: Width,
        op: AluOp,
        b: Option<i32>,
    },
    /// Shifts left and right, which extends the low bytes.
    Extend {
        size: Size,
        signed: bool,
    },
    Swap(Size),
    Load {
        size: Size,
        signed: bool,
        frame: Option<i16>,
        off: i16,
    },
    Store {
        size: Size,
        frame: Option<i16>,
        off: i16,
        src: Option<i32>,
    },
    Atomic {
        op: AtomicOp,
        width: Width,
        off: i16,
    },
    Bound(u32),
    Opaque,
    Helper(Helper),
    Call(String),
    Repeat(String),
}

/// An instruction with its operands and clobbers.
#[derive(Debug)]
pub(super) struct SelectedInst {
    pub op: MachineOp,
    pub operands: Vec<Reg>,
    pub clobbers: PRegSet,
}

/// A block.
#[derive(Debug, Default)]
pub(super) struct SelectedBlock {
    insts: std::ops::Range<usize>,
    pub succs: Vec<BlockIndex>,
    preds: Vec<BlockIndex>,
    params: Vec<VReg>,
    /// Arguments for each successor.
    args: Vec<Vec<VReg>>,
}

/// A function for the register allocator.
#[derive(Debug)]
pub(super) struct SelectedFunc {
    pub insts: Vec<SelectedInst>,
    pub blocks: Vec<SelectedBlock>,
    values: usize,
    /// Displacements of stack slots from the frame's end.
    pub slots: Vec<i16>,
    /// Displacement of the word of `opaque`, if there is one.
    pub scratch: Option<i16>,
    /// Bytes of the frame without spilled values.
    pub frame: u32,
}

fn vreg(v: Value) -> VReg {
    VReg::new(v.index(), RegClass::Int)
}

fn preg(number: usize) -> PReg {
    PReg::new(number, RegClass::Int)
}

/// r0 to r5.
fn call_clobbers() -> PRegSet {
    (0..6).map(preg).collect()
}

/// Selects the instructions of a prepared function whose loops are callbacks or jumps back.
pub(super) fn select(func: &LirFunc) -> SelectedFunc {
    let mut frame = 0u32;
    let mut slots = Vec::new();
    for size in &func.slots {
        frame += size;
        slots.push(-frame.fit::<i16>());
    }
    let insts = || func.blocks.iter().flat_map(|b| &b.insts);
    let scratch = insts()
        .any(|i| matches!(i, LirInst::Opaque { .. }))
        .then(|| {
            frame += 8;
            -frame.fit::<i16>()
        });
    let in_frame = in_frame(func, &slots);
    let mut select = Selector {
        func,
        in_frame,
        code: SelectedFunc {
            insts: Vec::new(),
            blocks: Vec::new(),
            values: func.values.len(),
            slots,
            scratch,
            frame,
        },
    };
    select.blocks();
    select.code
}

/// The jumps back of open loops, which the kernel can stop.
struct Stops<'f> {
    func: &'f LirFunc,
    /// The blocks that jump back, each with the header.
    latches: Vec<(usize, usize)>,
}

impl<'f> Stops<'f> {
    fn new(func: &'f LirFunc, cfg: &Cfg) -> Stops<'f> {
        let headers = cfg.blocks().filter(|b| func.blocks[*b].bound.is_some());
        let latches = headers.flat_map(|header| {
            let latches = cfg
                .latches(header)
                .filter(|l| *l == CfgNode::body(l.block()));
            latches.map(move |latch| (latch.block(), header))
        });
        Stops {
            func,
            latches: latches.collect(),
        }
    }

    /// Where a jump goes if the kernel stops the loop; `None` if it does not jump back.
    fn of(&self, from: usize, to: &JumpTarget) -> Option<JumpTarget> {
        let target = to.block.index();
        if !self.latches.contains(&(from, target)) {
            return None;
        }
        let header = &self.func.blocks[target];
        let mut stop = header.bound.as_ref()?.exhausted.clone();
        for arg in &mut stop.args {
            if let Some(n) = header.params.iter().position(|param| param == arg) {
                *arg = to.args[n];
            }
        }
        Some(stop)
    }
}

/// Addresses of the frame that only loads and stores use: their displacements.
fn in_frame(func: &LirFunc, slots: &[i16]) -> FxHashMap<Value, i16> {
    let mut offsets = FxHashMap::default();
    let mut others = Vec::new();
    for block in &func.blocks {
        for inst in &block.insts {
            match inst {
                LirInst::Addr {
                    dst,
                    location: MemoryOperand::Slot(slot, off),
                } => {
                    let offset = slots
                        .get(slot.index())
                        .map(|start| start + off.fit::<i16>());
                    offsets.extend(offset.map(|offset| (*dst, offset)));
                }
                LirInst::Load { .. } => {}
                LirInst::Store { src, .. } => others.extend(src.value()),
                inst => inst.for_each_use(|v| others.push(*v)),
            }
        }
        block.term.for_each_use(|v| others.push(*v));
        others.extend(block.edges().into_iter().flat_map(|t| &t.args));
    }
    offsets.retain(|v, _| !others.contains(v));
    offsets
}

struct Selector<'f> {
    func: &'f LirFunc,
    /// See [`in_frame`].
    in_frame: FxHashMap<Value, i16>,
    code: SelectedFunc,
}

impl Selector<'_> {
    fn blocks(&mut self) {
        let func = self.func;
        let cfg = Cfg::new(func);
        let order: Vec<usize> = cfg.blocks().collect();
        let stops = Stops::new(func, &cfg);
        let open = |b: usize, t: &JumpTarget| stops.of(b, t);
        let mut preds = vec![0; func.blocks.len()];
        for b in &order {
            for target in func.blocks[*b].term.targets() {
                preds[target.block.index()] += 1;
                if let Some(stop) = open(*b, target) {
                    preds[stop.block.index()] += 1;
                }
            }
        }
        // The blocks of each edge, which lie behind its source: none, one for its moves, or those of an
        // open loop's jump back.
        let edges = |b: usize| -> Vec<usize> {
            let term = &func.blocks[b].term;
            let several = matches!(term, LirTerm::Branch { .. });
            let blocks = |t: &JumpTarget| match open(b, t) {
                Some(_) => 3,
                None => usize::from(several && (preds[t.block.index()] > 1 || !t.args.is_empty())),
            };
            term.targets().into_iter().map(blocks).collect()
        };
        let mut number = vec![0; func.blocks.len()];
        let mut next = 0;
        for b in &order {
            number[*b] = next;
            next += 1 + edges(*b).iter().sum::<usize>();
        }
        let index = |t: &JumpTarget| BlockIndex::new(number[t.block.index()]);
        let args = |t: &JumpTarget| -> Vec<VReg> { t.args.iter().map(|v| vreg(*v)).collect() };
        for b in &order {
            let block = &func.blocks[*b];
            let start = self.code.insts.len();
            let mut section = SelectedBlock::default();
            match number[*b] {
                0 => self.params(),
                _ => section.params = block.params.iter().map(|v| vreg(*v)).collect(),
            }
            block.insts.iter().for_each(|inst| self.inst(inst));
            self.term(&block.term);
            section.insts = start..self.code.insts.len();
            let first = self.code.blocks.len() + 1;
            let mut edge_blocks = Vec::new();
            for (target, blocks) in block.term.targets().into_iter().zip(edges(*b)) {
                if blocks == 0 {
                    section.succs.push(index(target));
                    section.args.push(args(target));
                    continue;
                }
                let edge = first + edge_blocks.len();
                section.succs.push(BlockIndex::new(edge));
                section.args.push(Vec::new());
                let mut jumps = vec![target.clone()];
                if let Some(stop) = open(*b, target) {
                    let ways = [1, 2].map(|n| BlockIndex::new(edge + n));
                    edge_blocks.push((MachineOp::MayGoto, ways.to_vec(), vec![Vec::new(); 2]));
                    jumps.push(stop);
                }
                for jump in &jumps {
                    edge_blocks.push((MachineOp::Jump, vec![index(jump)], vec![args(jump)]));
                }
            }
            self.code.blocks.push(section);
            for (op, succs, args) in edge_blocks {
                let start = self.code.insts.len();
                self.add(op, Vec::new());
                self.code.blocks.push(SelectedBlock {
                    insts: start..start + 1,
                    succs,
                    args,
                    ..SelectedBlock::default()
                });
            }
        }
        self.predecessors();
    }

    /// Notes the predecessors of all blocks.
    fn predecessors(&mut self) {
        for i in 0..self.code.blocks.len() {
            for to in self.code.blocks[i].succs.clone() {
                self.code.blocks[to.index()].preds.push(BlockIndex::new(i));
            }
        }
    }

    fn add(&mut self, op: MachineOp, operands: Vec<Reg>) {
        self.add_clobbering(op, operands, PRegSet::empty());
    }

    fn add_clobbering(&mut self, op: MachineOp, operands: Vec<Reg>, clobbers: PRegSet) {
        self.code.insts.push(SelectedInst {
            op,
            operands,
            clobbers,
        });
    }

    fn params(&mut self) {
        let params = self.func.params().iter().zip(1..);
        let defs = params.map(|(v, n)| Reg::reg_fixed_def(vreg(*v), preg(n)));
        self.add(MachineOp::Params, defs.collect());
    }

    fn term(&mut self, term: &LirTerm) {
        match term {
            LirTerm::Jump(_) => self.add(MachineOp::Jump, Vec::new()),
            LirTerm::Branch {
                cond, width, a, b, ..
            } => {
                let (imm, mut operands) = (imm(b), uses([*a]));
                operands.extend(b.value().map(|v| Reg::reg_use(vreg(*v))));
                let op = MachineOp::Branch {
                    cond: *cond,
                    width: *width,
                    b: imm,
                };
                self.add(op, operands);
            }
            LirTerm::Ret(v) => {
                let value = v.value().map(|v| Reg::reg_fixed_use(vreg(*v), preg(0)));
                self.add(MachineOp::Ret(imm(v)), value.into_iter().collect());
            }
        }
    }

    /// An instruction that changes its first operand into its result.
    fn in_place(&mut self, op: MachineOp, read: impl IntoIterator<Item = Value>, dst: Value) {
        let mut operands = uses(read);
        operands.push(Reg::reg_reuse_def(vreg(dst), 0));
        self.add(op, operands);
    }

    fn plain(&mut self, op: MachineOp, read: impl IntoIterator<Item = Value>, dst: Value) {
        let mut operands = uses(read);
        operands.push(Reg::reg_def(vreg(dst)));
        self.add(op, operands);
    }

    fn inst(&mut self, inst: &LirInst) {
        match inst {
            LirInst::Const { dst, imm } => self.plain(MachineOp::Const(*imm), [], *dst),
            LirInst::Alu {
                dst,
                width,
                op,
                a,
                b,
            } => {
                let (width, op, imm) = (*width, *op, imm(b));
                let read = [*a].into_iter().chain(b.value().copied());
                self.in_place(MachineOp::Alu { width, op, b: imm }, read, *dst);
            }
            LirInst::Ext { dst, op, size, a } => self.extension(*dst, (*op, *size), *a),
            LirInst::Load {
                dst,
                size,
                signed,
                base,
                off,
            } => {
                let (size, signed, frame) = (*size, *signed, self.in_frame.get(base).copied());
                let op = MachineOp::Load {
                    size,
                    signed,
                    frame,
                    off: *off,
                };
                self.plain(op, frame.is_none().then_some(*base), *dst);
            }
            LirInst::Store {
                size,
                base,
                off,
                src,
            } => {
                let frame = self.in_frame.get(base).copied();
                let op = MachineOp::Store {
                    size: *size,
                    frame,
                    off: *off,
                    src: imm(src),
                };
                let base = frame.is_none().then_some(*base);
                self.add(op, uses(base.into_iter().chain(src.value().copied())));
            }
            LirInst::Atomic { .. } => self.atomic(inst),
            LirInst::Bound { dst, a, max } => self.in_place(MachineOp::Bound(*max), [*a], *dst),
            LirInst::Opaque { dst, a } => self.plain(MachineOp::Opaque, [*a], *dst),
            LirInst::Addr { dst, .. } if self.in_frame.contains_key(dst) => {}
            LirInst::Addr { dst, location } => {
                self.plain(MachineOp::Addr(location.clone()), [], *dst)
            }
            LirInst::Helper { dst, helper, args } => {
                self.call(MachineOp::Helper(*helper), args, *dst)
            }
            LirInst::Call { dst, func, args } => {
                self.call(MachineOp::Call(func.clone()), args, Some(*dst));
            }
            LirInst::Repeat {
                dst,
                times,
                func,
                context,
            } => {
                // r2 and r4 are the step's address and flags.
                let args = [(times, 1), (context, 3)];
                let operands = args.map(|(v, n)| Reg::reg_fixed_use(vreg(*v), preg(n)));
                let op = MachineOp::Repeat(func.clone());
                self.add_call(op, operands.to_vec(), Some(*dst));
            }
        }
    }

    fn call(&mut self, op: MachineOp, args: &[Value], dst: Option<Value>) {
        let fixed = args.iter().zip(1..);
        let operands = fixed.map(|(v, n)| Reg::reg_fixed_use(vreg(*v), preg(n)));
        self.add_call(op, operands.collect(), dst);
    }

    fn add_call(&mut self, op: MachineOp, mut operands: Vec<Reg>, dst: Option<Value>) {
        let mut clobbers = call_clobbers();
        if let Some(dst) = dst {
            operands.push(Reg::reg_fixed_def(vreg(dst), preg(0)));
            clobbers.remove(preg(0));
        }
        self.add_clobbering(op, operands, clobbers);
    }

    fn atomic(&mut self, inst: &LirInst) {
        let LirInst::Atomic {
            dst,
            op,
            width,
            base,
            off,
            expected,
            src,
        } = inst
        else {
            return;
        };
        let mut operands = uses([*base, *src]);
        match (dst, expected) {
            (Some(dst), Some(expected)) => operands.extend([
                Reg::reg_fixed_use(vreg(*expected), preg(0)),
                Reg::reg_fixed_def(vreg(*dst), preg(0)),
            ]),
            (Some(dst), None) => operands.push(Reg::reg_reuse_def(vreg(*dst), 1)),
            (None, _) => {}
        }
        let (op, width, off) = (*op, *width, *off);
        self.add(MachineOp::Atomic { op, width, off }, operands);
    }

    fn extension(&mut self, dst: Value, (op, size): (ExtOp, Size), a: Value) {
        let signed = op == ExtOp::Sext;
        match (op, size) {
            (ExtOp::Swap, _) => self.in_place(MachineOp::Swap(size), [a], dst),
            (_, Size::U64) => self.plain(MachineOp::Move(Width::W64), [a], dst),
            (ExtOp::Zext, Size::U32) => self.plain(MachineOp::Move(Width::W32), [a], dst),
            _ => self.in_place(MachineOp::Extend { size, signed }, [a], dst),
        }
    }
}

fn imm(operand: &Operand) -> Option<i32> {
    match operand {
        Operand::Imm(n) => Some(*n),
        Operand::Value(_) => None,
    }
}

fn uses(values: impl IntoIterator<Item = Value>) -> Vec<Reg> {
    values.into_iter().map(|v| Reg::reg_use(vreg(v))).collect()
}

impl regalloc2::Function for SelectedFunc {
    fn num_insts(&self) -> usize {
        self.insts.len()
    }

    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn entry_block(&self) -> BlockIndex {
        BlockIndex::new(0)
    }

    fn block_insns(&self, block: BlockIndex) -> InstRange {
        let range = &self.blocks[block.index()].insts;
        InstRange::new(InstIndex::new(range.start), InstIndex::new(range.end))
    }

    fn block_succs(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.blocks[block.index()].succs
    }

    fn block_preds(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.blocks[block.index()].preds
    }

    fn block_params(&self, block: BlockIndex) -> &[VReg] {
        &self.blocks[block.index()].params
    }

    fn is_ret(&self, inst: InstIndex) -> bool {
        matches!(self.insts[inst.index()].op, MachineOp::Ret(_))
    }

    fn is_branch(&self, inst: InstIndex) -> bool {
        matches!(
            self.insts[inst.index()].op,
            MachineOp::Jump | MachineOp::MayGoto | MachineOp::Branch { .. }
        )
    }

    fn branch_blockparams(&self, block: BlockIndex, _: InstIndex, succ: usize) -> &[VReg] {
        &self.blocks[block.index()].args[succ]
    }

    fn inst_operands(&self, inst: InstIndex) -> &[Reg] {
        &self.insts[inst.index()].operands
    }

    fn inst_clobbers(&self, inst: InstIndex) -> PRegSet {
        self.insts[inst.index()].clobbers
    }

    fn num_vregs(&self) -> usize {
        self.values
    }

    fn spillslot_size(&self, _: RegClass) -> usize {
        1
    }
}
