//! The interpreter: runs verified functions in tests, without a kernel.
//!
//! Memory consists of regions with large gaps between them. Each access is checked: it lies in one
//! region, a stack slot was written before and is aligned, constant data are not written. Helpers
//! are the caller's ([`Host`]). A run ends after a number of steps.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use spile_cast::Cast;

use crate::cfg::{Cfg, CfgNode};
use crate::func::{
    JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopForm, MemoryOperand, Module, Operand,
    SlotId, Value,
};
use crate::helpers::Helper;
use crate::op::{AtomicOp, Size};
use crate::verify::HostLimits;

/// The reason why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trap {
    /// An access outside of all regions: address and size.
    Outside(u64, u32),
    /// A write to constant data.
    ReadOnly(u64),
    /// A read of bytes of a stack slot that were not written.
    Unwritten(u64),
    /// An access to a stack slot, or an atomic one, that is not aligned.
    Unaligned(u64),
    /// A value above the bound that the code promises, and the bound.
    Bound(u64, u32),
    /// An open loop that goes on behind its bound.
    Open(u32),
    /// More calls than a `repeat` may do.
    Repeat(u64),
    /// Too many steps.
    Steps,
    /// Too many functions in one another.
    Depth,
    /// No function, data or location of that name, or another number of arguments.
    Missing(String),
    /// A helper's error.
    Helper(String),
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trap::Outside(at, size) => write!(f, "{size} bytes at {at:#x} are in no region"),
            Trap::ReadOnly(at) => write!(f, "a write to constant data at {at:#x}"),
            Trap::Unwritten(at) => write!(f, "a read of unwritten stack at {at:#x}"),
            Trap::Unaligned(at) => write!(f, "an access that is not aligned at {at:#x}"),
            Trap::Bound(x, max) => write!(f, "{x} is above its bound {max}"),
            Trap::Open(max) => write!(f, "an open loop of more than {max} iterations"),
            Trap::Repeat(n) => write!(f, "{n} calls of one repeat"),
            Trap::Steps => write!(f, "too many steps"),
            Trap::Depth => write!(f, "too many functions in one another"),
            Trap::Missing(what) | Trap::Helper(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Trap {}

/// The use of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory of the caller.
    Memory,
    /// Constant data.
    Constant,
    /// A stack slot, which must be written before it is read.
    Stack,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    kind: RegionKind,
    written: Vec<bool>,
}

/// All regions.
#[derive(Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u64, Region>,
    made: u64,
}

/// The distance of regions.
const GAP: u64 = 1 << 32;
/// What the addresses of regions begin with: most bytes of them are not zero, as in a kernel.
const BASE: u64 = 0xffff_8881_0203_0400;

impl Memory {
    /// Adds a region; returns its address.
    pub fn add(&mut self, bytes: Vec<u8>, kind: RegionKind) -> u64 {
        self.made += 1;
        let base = BASE + self.made * GAP;
        let written = vec![kind != RegionKind::Stack; bytes.len()];
        let region = Region {
            bytes,
            kind,
            written,
        };
        self.regions.insert(base, region);
        base
    }

    /// The bytes of a region.
    pub fn region(&self, base: u64) -> Option<&[u8]> {
        self.regions.get(&base).map(|r| &*r.bytes)
    }

    /// The region of an access, and its offset there.
    fn find(&mut self, at: u64, size: usize) -> Result<(&mut Region, usize), Trap> {
        let outside = Trap::Outside(at, size.fit::<u32>());
        let (base, region) = self
            .regions
            .range_mut(..=at)
            .next_back()
            .ok_or(outside.clone())?;
        let offset = usize::try_from(at - base).unwrap_or(usize::MAX);
        let end = offset.checked_add(size);
        match end.is_some_and(|end| end <= region.bytes.len()) {
            true => Ok((region, offset)),
            false => Err(outside),
        }
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// Those of an access.
    pub fn read(&mut self, at: u64, size: usize) -> Result<&[u8], Trap> {
        let (region, offset) = self.find(at, size)?;
        let range = offset..offset + size;
        match region.written[range.clone()].iter().all(|w| *w) {
            true => Ok(&region.bytes[range]),
            false => Err(Trap::Unwritten(at)),
        }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of an access.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Trap> {
        let (region, offset) = self.find(at, bytes.len())?;
        if region.kind == RegionKind::Constant {
            return Err(Trap::ReadOnly(at));
        }
        let range = offset..offset + bytes.len();
        region.written[range.clone()].fill(true);
        region.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn aligned(&mut self, at: u64, size: Size, atomic: bool) -> Result<(), Trap> {
        let (region, offset) = self.find(at, size.bytes() as usize)?;
        let must = atomic || region.kind == RegionKind::Stack;
        match must && offset % size.bytes() as usize != 0 {
            true => Err(Trap::Unaligned(at)),
            false => Ok(()),
        }
    }

    fn load(&mut self, at: u64, size: Size) -> Result<u64, Trap> {
        self.aligned(at, size, false)?;
        let mut word = [0; 8];
        let bytes = self.read(at, size.bytes() as usize)?;
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    fn store(&mut self, at: u64, size: Size, x: u64) -> Result<(), Trap> {
        self.aligned(at, size, false)?;
        self.write(at, &x.to_le_bytes()[..size.bytes() as usize])
    }
}

/// The environment of the code.
pub trait Host {
    /// Answers a helper.
    ///
    /// # Errors
    /// Stops the run.
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap>;

    /// The address of a per-CPU area, of state or of a map.
    fn location(&mut self, of: &MemoryOperand) -> Option<u64>;

    /// The addresses of the key and the value of each element of a map, for [`Helper::ForEach`].
    ///
    /// # Errors
    /// Stops the run.
    fn elements(&mut self, map: u64) -> Result<Vec<[u64; 2]>, Trap> {
        Err(Trap::Helper(format!("no elements of the map at {map:#x}")))
    }

    /// What another processor does in front of an atomic operation on that address.
    ///
    /// # Errors
    /// Stops the run.
    fn before_atomic(&mut self, memory: &mut Memory, at: u64) -> Result<(), Trap> {
        let _ = (memory, at);
        Ok(())
    }

    /// The limits of the host that the environment stands for.
    fn limits(&self) -> HostLimits {
        HostLimits::NONE
    }

    /// Runs a function that the module declares.
    ///
    /// # Errors
    /// Stops the run.
    fn call(&mut self, memory: &mut Memory, name: &str, args: &[u64]) -> Result<u64, Trap> {
        let _ = (memory, args);
        Err(Trap::Missing(format!("no function @{name} of the host")))
    }
}

/// A host without helpers and memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn helper(&mut self, _: &mut Memory, helper: Helper, _: &[u64]) -> Result<u64, Trap> {
        let message = format!("no helper {}", helper.name());
        Err(Trap::Helper(message))
    }

    fn location(&mut self, _: &MemoryOperand) -> Option<u64> {
        None
    }
}

/// The functions of a module, ready to run.
#[derive(Debug)]
pub struct Machine<'m> {
    module: &'m Module,
    /// For each called function, the jumps back to headers.
    back: Vec<Option<HashSet<(CfgNode, usize)>>>,
    data: Vec<u64>,
    /// The memory.
    pub memory: Memory,
    /// Steps that are left.
    pub steps: u64,
}

/// The address of a module's first function; no memory is there.
const FUNCTIONS: u64 = 0xffff_0000_0000_0000;

/// Depth of calls, those of functions that a host inlines included.
const DEPTH: u32 = 64;

impl<'m> Machine<'m> {
    /// Makes a machine for a verified module that runs at most that number of instructions.
    pub fn new(module: &'m Module, steps: u64) -> Machine<'m> {
        let mut memory = Memory::default();
        let constant =
            |d: &crate::func::ConstantData| memory.add(d.bytes.clone(), RegionKind::Constant);
        let data = module.data.iter().map(constant).collect();
        Machine {
            module,
            back: vec![None; module.funcs.len()],
            data,
            memory,
            steps,
        }
    }

    /// The indexes of the functions that ran so far.
    pub fn called(&self) -> impl Iterator<Item = usize> {
        let ran = self.back.iter().enumerate();
        ran.filter(|(_, back)| back.is_some())
            .map(|(index, _)| index)
    }

    /// Runs a function.
    ///
    /// # Errors
    /// Why it stopped.
    pub fn run(&mut self, name: &str, args: &[u64], host: &mut dyn Host) -> Result<u64, Trap> {
        self.call(name, args, host, 0)
    }

    fn call(
        &mut self,
        name: &str,
        args: &[u64],
        host: &mut dyn Host,
        depth: u32,
    ) -> Result<u64, Trap> {
        let module = self.module;
        let missing = || Trap::Missing(format!("no function @{name}({})", args.len()));
        let index = module.funcs.iter().position(|f| f.name == name);
        let index = index.ok_or_else(missing)?;
        let func = &module.funcs[index];
        if func.params().len() != args.len() {
            return Err(missing());
        }
        if depth >= DEPTH {
            return Err(Trap::Depth);
        }
        self.back[index].get_or_insert_with(|| back_edges(func));
        let slots = func.slots.iter().map(|s| vec![0; *s as usize]);
        let slots: Vec<u64> = slots
            .map(|s| self.memory.add(s, RegionKind::Stack))
            .collect();
        let mut values = vec![0; func.values.len()];
        for (v, arg) in func.params().iter().zip(args) {
            values[v.index()] = *arg;
        }
        let mut activation = Activation {
            machine: self,
            host,
            func,
            index,
            depth,
            values,
            slots,
            arrivals: vec![0; func.blocks.len()],
        };
        let result = activation.run();
        let slots = std::mem::take(&mut activation.slots);
        for slot in slots {
            self.memory.regions.remove(&slot);
        }
        result
    }
}

fn back_edges(func: &LirFunc) -> HashSet<(CfgNode, usize)> {
    let cfg = Cfg::new(func);
    let headers = 0..func.blocks.len();
    let edges = headers.flat_map(|h| {
        cfg.latches(h)
            .map(move |from| (from, h))
            .collect::<Vec<_>>()
    });
    edges.collect()
}

/// One call of a function.
struct Activation<'a, 'm> {
    machine: &'a mut Machine<'m>,
    host: &'a mut dyn Host,
    func: &'m LirFunc,
    index: usize,
    depth: u32,
    values: Vec<u64>,
    slots: Vec<u64>,
    /// Number of arrivals at each header since its loop was entered.
    arrivals: Vec<u32>,
}

impl<'m> Activation<'_, 'm> {
    fn run(&mut self) -> Result<u64, Trap> {
        let mut at = 0;
        loop {
            let func = self.func;
            let block: &'m LirBlock = func
                .blocks
                .get(at)
                .ok_or(Trap::Missing("no block".into()))?;
            if let Some(bound) = &block.bound {
                self.arrivals[at] += 1;
                if self.arrivals[at] > bound.max {
                    if bound.form == LoopForm::Open {
                        return Err(Trap::Open(bound.max));
                    }
                    at = self.enter_block(&bound.exhausted, CfgNode::entry(at));
                    self.step()?;
                    continue;
                }
            }
            for inst in &block.insts {
                self.step()?;
                self.inst(inst)?;
            }
            self.step()?;
            let from = CfgNode::body(at);
            at = match &block.term {
                LirTerm::Jump(to) => self.enter_block(to, from),
                LirTerm::Branch {
                    cond,
                    width,
                    a,
                    b,
                    then,
                    els,
                } => match cond.holds(*width, self.get(*a), self.operand(*b)) {
                    true => self.enter_block(then, from),
                    false => self.enter_block(els, from),
                },
                LirTerm::Ret(v) => return Ok(self.operand(*v)),
            };
        }
    }

    fn step(&mut self) -> Result<(), Trap> {
        self.machine.steps = self.machine.steps.checked_sub(1).ok_or(Trap::Steps)?;
        Ok(())
    }

    fn get(&self, v: Value) -> u64 {
        self.values.get(v.index()).copied().unwrap_or(0)
    }

    fn set(&mut self, v: Value, x: u64) {
        if let Some(value) = self.values.get_mut(v.index()) {
            *value = x;
        }
    }

    fn operand(&self, v: Operand) -> u64 {
        match v {
            Operand::Value(v) => self.get(v),
            Operand::Imm(n) => i64::from(n).cast_unsigned(),
        }
    }

    /// Hands over the arguments; returns the block.
    fn enter_block(&mut self, to: &JumpTarget, from: CfgNode) -> usize {
        let block = to.block.index();
        let args: Vec<u64> = to.args.iter().map(|v| self.get(*v)).collect();
        let params = self.func.blocks.get(block).map_or(&[][..], |b| &b.params);
        for (param, arg) in params.iter().zip(args) {
            self.set(*param, arg);
        }
        let back = self.machine.back[self.index].as_ref();
        if !back.is_some_and(|back| back.contains(&(from, block)))
            && let Some(arrivals) = self.arrivals.get_mut(block)
        {
            *arrivals = 0;
        }
        block
    }

    fn at(&self, base: Value, off: i16) -> u64 {
        self.get(base).wrapping_add(i64::from(off).cast_unsigned())
    }

    fn location(&mut self, of: &MemoryOperand) -> Result<u64, Trap> {
        let missing = || Trap::Missing(format!("no {of}"));
        match of {
            MemoryOperand::Slot(SlotId(slot), off) => {
                let base = self.slots.get(*slot as usize).ok_or_else(missing)?;
                Ok(base + u64::from(*off))
            }
            MemoryOperand::Data(name, off) => {
                let data = &self.machine.module.data;
                let found = data.iter().position(|d| d.name == *name);
                Ok(self.machine.data[found.ok_or_else(missing)?] + u64::from(*off))
            }
            MemoryOperand::Func(name) => {
                let funcs = &self.machine.module.funcs;
                let found = funcs.iter().position(|f| f.name == *name);
                Ok(FUNCTIONS + found.ok_or_else(missing)? as u64)
            }
            _ => self.host.location(of).ok_or_else(missing),
        }
    }

    fn inst(&mut self, inst: &LirInst) -> Result<(), Trap> {
        let result = match inst {
            LirInst::Const { imm, .. } => imm.cast_unsigned(),
            LirInst::Alu {
                width, op, a, b, ..
            } => op.evaluate(*width, self.get(*a), self.operand(*b)),
            LirInst::Ext { op, size, a, .. } => op.evaluate(*size, self.get(*a)),
            LirInst::Load {
                size,
                signed,
                base,
                off,
                ..
            } => {
                let at = self.at(*base, *off);
                let word = self.machine.memory.load(at, *size)?;
                if *signed {
                    size.sign_extend(word)
                } else {
                    word
                }
            }
            LirInst::Store {
                size,
                base,
                off,
                src,
            } => {
                let (at, x) = (self.at(*base, *off), self.operand(*src));
                return self.machine.memory.store(at, *size, x);
            }
            LirInst::Atomic { .. } => self.atomic(inst)?,
            LirInst::Bound { a, max, .. } => match self.get(*a) {
                x if x > u64::from(*max) => return Err(Trap::Bound(x, *max)),
                x => x,
            },
            LirInst::Opaque { a, .. } => self.get(*a),
            LirInst::Addr { location, .. } => self.location(location)?,
            LirInst::Helper { helper, args, .. } => {
                let args: Vec<u64> = args.iter().map(|v| self.get(*v)).collect();
                self.helper(*helper, &args)?
            }
            LirInst::Call { func, args, .. } => {
                let args: Vec<u64> = args.iter().map(|v| self.get(*v)).collect();
                match self.machine.module.externs.iter().any(|e| e.name == *func) {
                    true => self.host.call(&mut self.machine.memory, func, &args)?,
                    false => self.machine.call(func, &args, self.host, self.depth + 1)?,
                }
            }
            LirInst::Repeat {
                times,
                func,
                context,
                ..
            } => self.repeat(self.get(*times), func, self.get(*context))?,
        };
        if let Some(dst) = inst.dst() {
            self.set(dst, result);
        }
        Ok(())
    }

    /// Asks the host, and calls the function of helpers that take one.
    fn helper(&mut self, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        if let (Helper::ForEach, [map, function, context, _]) = (helper, args) {
            let elements = self.host.elements(*map)?;
            for (n, [key, value]) in elements.iter().enumerate() {
                if self.callback(*function, &[*map, *key, *value, *context])? != 0 {
                    return Ok(n as u64 + 1);
                }
            }
            return Ok(elements.len() as u64);
        }
        self.host.helper(&mut self.machine.memory, helper, args)
    }

    /// Calls a function by its address.
    fn callback(&mut self, function: u64, args: &[u64]) -> Result<u64, Trap> {
        let module = self.machine.module;
        let index = function.wrapping_sub(FUNCTIONS).fit::<usize>();
        let missing = || Trap::Missing(format!("no function at {function:#x}"));
        let func = module.funcs.get(index).ok_or_else(missing)?;
        self.machine
            .call(&func.name, args, self.host, self.depth + 1)
    }

    fn repeat(&mut self, times: u64, func: &str, context: u64) -> Result<u64, Trap> {
        if times > u64::from(self.host.limits().iterations) {
            return Err(Trap::Repeat(times));
        }
        for i in 0..times {
            let args = [i, context];
            let stop = self.machine.call(func, &args, self.host, self.depth + 1)?;
            if stop != 0 {
                return Ok(i + 1);
            }
        }
        Ok(times)
    }

    fn atomic(&mut self, inst: &LirInst) -> Result<u64, Trap> {
        let LirInst::Atomic {
            op,
            width,
            base,
            off,
            expected,
            src,
            ..
        } = inst
        else {
            return Ok(0);
        };
        let (at, size) = (self.at(*base, *off), width.size());
        let memory = &mut self.machine.memory;
        self.host.before_atomic(memory, at)?;
        memory.aligned(at, size, true)?;
        let old = memory.load(at, size)?;
        let x = self.get(*src);
        let new = match op {
            AtomicOp::Add | AtomicOp::FetchAdd => old.wrapping_add(x),
            AtomicOp::Or | AtomicOp::FetchOr => old | x,
            AtomicOp::And | AtomicOp::FetchAnd => old & x,
            AtomicOp::Xor | AtomicOp::FetchXor => old ^ x,
            AtomicOp::Xchg => x,
            AtomicOp::CmpXchg => {
                let expected = expected.map_or(0, |e| self.get(e));
                match size.truncate(expected) == old {
                    true => x,
                    false => old,
                }
            }
        };
        self.machine.memory.store(at, size, new)?;
        Ok(old)
    }
}
