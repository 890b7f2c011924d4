//! The verifier of modules.
//!
//! # Invariants
//! Each one is a variant of [`Invariant`], and has a test that violates it.
//!
//! | invariant | what holds |
//! |---|---|
//! | `Names` | Names consist of letters, digits, `_` and `.`, and are unique: of functions with those of the host, of data, of a function's blocks, of its values. |
//! | `Ids` | Blocks, values and stack slots exist. |
//! | `Entry` | A function has a first block, no jump goes there, and it has no more parameters than the host allows ([`HostLimits`]), as has a function of the host. |
//! | `Reachable` | Each block is reachable. |
//! | `Definition` | Each value has one definition, and no name is without one. |
//! | `Dominance` | All paths to the use of a value lead through its definition. |
//! | `Arguments` | A target has one argument for each parameter of its block. |
//! | `Shapes` | A swap has at least 2 bytes, a load with sign at most 4; an atomic operation has a result if and only if it gives the old value, and an expected value if and only if it is `cmpxchg`. |
//! | `Slots` | A stack slot has a multiple of 8 bytes, all together no more than the host allows, and an address lies in its slot. |
//! | `Data` | Data exist, and an address lies in them. |
//! | `Helpers` | A helper has its number of arguments, and a result only if its row says so. |
//! | `Calls` | A called function is in the module or declared, and has that number of parameters; that of `repeat` is in the module and has 2. |
//! | `Recursion` | No function calls itself, not even through others. |
//! | `Bounds` | A block has a bound if and only if it is the header of a loop; the bound is from 1 to what the host allows, and `exhausted` leaves the loop. |
//! | `Loops` | A loop is entered only through its header. |

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::cfg::{Cfg, CfgNode};
use crate::func::{LirFunc, LirInst, MemoryOperand, Module, Value};
use crate::op::{AtomicOp, ExtOp, Size};

/// The invariants, which the module's documentation describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Invariant {
    Names,
    Ids,
    Entry,
    Reachable,
    Definition,
    Dominance,
    Arguments,
    Shapes,
    Slots,
    Data,
    Helpers,
    Calls,
    Recursion,
    Bounds,
    Loops,
}

/// The limits of a host on the functions that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimits {
    /// Bytes of all stack slots of a function.
    pub stack: u32,
    /// Parameters of a function.
    pub params: usize,
    /// Iterations of a loop, and calls of one [`Inst::Repeat`].
    pub iterations: u32,
}

impl HostLimits {
    /// A host without limits, as one that runs machine code is.
    pub const NONE: HostLimits = HostLimits {
        stack: u32::MAX,
        params: usize::MAX,
        iterations: u32::MAX,
    };
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Function, block and instruction, as far as there are any.
    pub location: String,
    /// The error message.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({:?})",
            self.location, self.message, self.invariant
        )
    }
}

impl std::error::Error for Violation {}

type Res = Result<(), Violation>;

/// Checks a module for a host with these limits.
///
/// # Errors
/// The first violated invariant.
pub fn verify(module: &Module, limits: &HostLimits) -> Result<(), Violation> {
    let top = |name: &str| ErrorLocation {
        func: None,
        location: format!("@{name}"),
    };
    let mut names = HashSet::new();
    for data in &module.data {
        top(&data.name).name(&data.name, &mut names)?;
    }
    let mut names = HashSet::new();
    for declared in &module.externs {
        let location = top(&declared.name);
        location.name(&declared.name, &mut names)?;
        location.params(declared.params, limits)?;
    }
    for func in &module.funcs {
        top(&func.name).name(&func.name, &mut names)?;
    }
    for func in &module.funcs {
        function(module, func, limits)?;
    }
    recursion(module)
}

fn legal(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
    !name.is_empty() && name.bytes().all(legal)
}

/// A location for messages.
struct ErrorLocation<'a> {
    func: Option<&'a LirFunc>,
    location: String,
}

impl ErrorLocation<'_> {
    fn fail(&self, invariant: Invariant, message: impl Into<String>) -> Res {
        Err(Violation {
            invariant,
            location: self.location.clone(),
            message: message.into(),
        })
    }

    fn name<'n>(&self, name: &'n str, seen: &mut HashSet<&'n str>) -> Res {
        if !legal(name) {
            return self.fail(Invariant::Names, format!("`{name}` is no name"));
        }
        if !seen.insert(name) {
            return self.fail(Invariant::Names, format!("a second `{name}`"));
        }
        Ok(())
    }

    fn params(&self, count: usize, limits: &HostLimits) -> Res {
        let message = || format!("more than {} parameters", limits.params);
        match count > limits.params {
            true => self.fail(Invariant::Entry, message()),
            false => Ok(()),
        }
    }

    fn value(&self, v: Value) -> Res {
        match self.func.and_then(|f| f.values.get(v.index())) {
            Some(_) => Ok(()),
            None => self.fail(Invariant::Ids, format!("no value {}", v.0)),
        }
    }
}

fn at_block(func: &LirFunc, block: usize) -> ErrorLocation<'_> {
    let name = func.blocks.get(block).map_or("?", |b| &b.name);
    ErrorLocation {
        func: Some(func),
        location: format!("@{}: {name}", func.name),
    }
}

fn at_inst<'a>(func: &'a LirFunc, block: usize, inst: &LirInst) -> ErrorLocation<'a> {
    let mut location = at_block(func, block);
    location.location = format!("{}: {}", location.location, func.show(inst));
    location
}

fn function(module: &Module, func: &LirFunc, limits: &HostLimits) -> Res {
    names_and_ids(func, limits)?;
    let cfg = Cfg::new(func);
    for i in 0..func.blocks.len() {
        if !cfg.reachable(i) {
            return at_block(func, i).fail(Invariant::Reachable, "the block is never reached");
        }
    }
    arguments(func)?;
    for (i, block) in func.blocks.iter().enumerate() {
        for inst in &block.insts {
            instruction(module, func, (i, inst))?;
        }
    }
    loops(func, &cfg, limits)?;
    let defs = definitions(func)?;
    uses(func, &cfg, &defs)
}

fn names_and_ids(func: &LirFunc, limits: &HostLimits) -> Res {
    let location = ErrorLocation {
        func: Some(func),
        location: format!("@{}", func.name),
    };
    if func.blocks.is_empty() {
        return location.fail(Invariant::Entry, "a function needs a block");
    }
    location.params(func.params().len(), limits)?;
    let mut total = 0u32;
    for size in &func.slots {
        total = total.saturating_add(*size);
        if *size == 0 || size % 8 != 0 || total > limits.stack {
            let message = format!("a slot of {size} bytes, {total} in all");
            return location.fail(Invariant::Slots, message);
        }
    }
    let mut names = HashSet::new();
    for block in &func.blocks {
        location.name(&block.name, &mut names)?;
    }
    let mut names = HashSet::new();
    for name in &func.values {
        location.name(name, &mut names)?;
    }
    for (i, block) in func.blocks.iter().enumerate() {
        let location = at_block(func, i);
        for edge in block.edges() {
            match edge.block.index() {
                0 => return location.fail(Invariant::Entry, "a jump to the first block"),
                b if b >= func.blocks.len() => {
                    return location.fail(Invariant::Ids, format!("no block {b}"));
                }
                _ => edge.args.iter().try_for_each(|v| location.value(*v))?,
            }
        }
        block.params.iter().try_for_each(|v| location.value(*v))?;
        let mut used = Vec::new();
        for inst in &block.insts {
            inst.for_each_use(|v| used.push(*v));
            used.extend(inst.dst());
        }
        block.term.for_each_use(|v| used.push(*v));
        used.iter().try_for_each(|v| location.value(*v))?;
    }
    Ok(())
}

fn arguments(func: &LirFunc) -> Res {
    for (i, block) in func.blocks.iter().enumerate() {
        for edge in block.edges() {
            let target = &func.blocks[edge.block.index()];
            if edge.args.len() != target.params.len() {
                let message = format!(
                    "{} arguments for the {} parameters of {}",
                    edge.args.len(),
                    target.params.len(),
                    target.name
                );
                return at_block(func, i).fail(Invariant::Arguments, message);
            }
        }
    }
    Ok(())
}

fn instruction(module: &Module, func: &LirFunc, (block, inst): (usize, &LirInst)) -> Res {
    let violation = shapes(inst)
        .or_else(|| address(module, func, inst))
        .or_else(|| calls(module, inst));
    match violation {
        Some((invariant, message)) => at_inst(func, block, inst).fail(invariant, message),
        None => Ok(()),
    }
}

/// A violated invariant and the message.
type Found = Option<(Invariant, &'static str)>;

fn shapes(inst: &LirInst) -> Found {
    let wrong = match inst {
        LirInst::Ext {
            op: ExtOp::Swap,
            size: Size::U8,
            ..
        } => "a swap of one byte",
        LirInst::Load {
            size: Size::U64,
            signed: true,
            ..
        } => "a load of 8 bytes has no sign",
        LirInst::Atomic { dst, op, .. } if dst.is_some() != op.fetches() => {
            "the old value is missing, or not given"
        }
        LirInst::Atomic { op, expected, .. }
            if expected.is_some() != (*op == AtomicOp::CmpXchg) =>
        {
            "the expected value is missing, or unused"
        }
        _ => return None,
    };
    Some((Invariant::Shapes, wrong))
}

fn address(module: &Module, func: &LirFunc, inst: &LirInst) -> Found {
    let LirInst::Addr { location, .. } = inst else {
        return None;
    };
    match location {
        MemoryOperand::Slot(slot, off) => match func.slots.get(slot.index()) {
            None => Some((Invariant::Ids, "no such slot")),
            Some(size) => (off >= size).then_some((Invariant::Slots, "behind the slot's end")),
        },
        MemoryOperand::Data(name, off) => match module.data(name) {
            None => Some((Invariant::Data, "no such data")),
            Some(data) => {
                let outside = *off as usize >= data.bytes.len();
                outside.then_some((Invariant::Data, "behind the end of the data"))
            }
        },
        MemoryOperand::Map(name) => {
            (!legal(name)).then_some((Invariant::Names, "the map has no legal name"))
        }
        MemoryOperand::Func(name) => {
            (module.func(name).is_none()).then_some((Invariant::Calls, "no such function"))
        }
        MemoryOperand::Cpu(_) | MemoryOperand::State(_) => None,
    }
}

fn calls(module: &Module, inst: &LirInst) -> Found {
    match inst {
        LirInst::Helper { dst, helper, args } => {
            let info = helper.info();
            if args.len() != info.args {
                return Some((Invariant::Helpers, "another number of arguments"));
            }
            let none = dst.is_some() && !info.result;
            none.then_some((Invariant::Helpers, "the helper has no result"))
        }
        LirInst::Call { func, args, .. } => match module.params(func) {
            None => Some((Invariant::Calls, "no such function")),
            Some(n) => {
                (n != args.len()).then_some((Invariant::Calls, "another number of parameters"))
            }
        },
        LirInst::Repeat { func, .. } => match module.func(func) {
            None => Some((Invariant::Calls, "no such function")),
            Some(f) => (f.params().len() != 2)
                .then_some((Invariant::Calls, "the function needs two parameters")),
        },
        _ => None,
    }
}

/// The functions that a function calls.
pub(crate) fn callees(func: &LirFunc) -> impl Iterator<Item = &str> {
    let insts = func.blocks.iter().flat_map(|b| &b.insts);
    insts.filter_map(|i| match i {
        LirInst::Call { func, .. } | LirInst::Repeat { func, .. } => Some(&**func),
        _ => None,
    })
}

fn recursion(module: &Module) -> Res {
    // Functions whose callees are all done are done; the rest call each other in a cycle.
    let mut left: HashMap<&str, Vec<&str>> = HashMap::new();
    for func in &module.funcs {
        left.insert(&func.name, callees(func).collect());
    }
    loop {
        let done: Vec<&str> = left
            .iter()
            .filter(|(_, calls)| calls.iter().all(|c| !left.contains_key(c)))
            .map(|(name, _)| *name)
            .collect();
        if done.is_empty() {
            break;
        }
        done.iter().for_each(|name| drop(left.remove(name)));
    }
    match left.keys().min() {
        None => Ok(()),
        Some(name) => ErrorLocation {
            func: None,
            location: format!("@{name}"),
        }
        .fail(Invariant::Recursion, "the function can call itself"),
    }
}

fn loops(func: &LirFunc, cfg: &Cfg, limits: &HostLimits) -> Res {
    for (i, block) in func.blocks.iter().enumerate() {
        let block_location = at_block(func, i);
        let body = cfg.body(i);
        if body.is_empty() != block.bound.is_none() {
            let message = match body.is_empty() {
                true => "a bound without a jump back",
                false => "a loop without a bound",
            };
            return block_location.fail(Invariant::Bounds, message);
        }
        if let Some(bound) = &block.bound {
            if bound.max == 0 || bound.max > limits.iterations {
                let message = format!("not from 1 to {}", limits.iterations);
                return block_location.fail(Invariant::Bounds, message);
            }
            if body.contains(&CfgNode::entry(bound.exhausted.block.index())) {
                return block_location.fail(Invariant::Bounds, "the bound does not leave the loop");
            }
        }
    }
    // Without the jumps back to headers, a reducible graph has no cycle: each edge leads on in the
    // order of the nodes.
    let order: Vec<usize> = cfg.blocks().collect();
    let mut location = vec![0; func.blocks.len()];
    order.iter().enumerate().for_each(|(i, b)| location[*b] = i);
    for i in 0..func.blocks.len() {
        for from in cfg.preds(i) {
            let back = location[from.block()] >= location[i];
            if back && !cfg.dominates(CfgNode::entry(i), *from) {
                let message = "a jump into the middle of a loop";
                return at_block(func, i).fail(Invariant::Loops, message);
            }
        }
    }
    Ok(())
}

/// Where a value is defined: its node, and the number of instructions in front of its definition
/// there.
type ProgramPoint = (CfgNode, usize);

fn definitions(func: &LirFunc) -> Result<Vec<ProgramPoint>, Violation> {
    let mut defs: Vec<Option<ProgramPoint>> = vec![None; func.values.len()];
    for (i, block) in func.blocks.iter().enumerate() {
        let params = block.params.iter().map(|v| (*v, (CfgNode::entry(i), 0)));
        let insts = block.insts.iter().enumerate();
        let insts = insts.filter_map(|(n, inst)| Some((inst.dst()?, (CfgNode::body(i), n + 1))));
        for (v, def) in params.chain(insts) {
            if defs[v.index()].replace(def).is_some() {
                let message = format!("a second definition of %{}", func.values[v.index()]);
                at_block(func, i).fail(Invariant::Definition, message)?;
            }
        }
    }
    let mut points = Vec::with_capacity(defs.len());
    for (def, name) in defs.iter().zip(&func.values) {
        match def {
            Some(def) => points.push(*def),
            None => {
                let message = format!("no definition of %{name}");
                at_block(func, 0).fail(Invariant::Definition, message)?;
            }
        }
    }
    Ok(points)
}

/// A use of a value.
struct ValueUse {
    value: Value,
    /// Its node, and the number of instructions in front of it there. An argument of an edge is used
    /// where the edge begins.
    point: ProgramPoint,
}

/// All uses in a block.
fn uses_in(func: &LirFunc, block: usize) -> Vec<ValueUse> {
    let body = CfgNode::body(block);
    let mut uses = Vec::new();
    let b = &func.blocks[block];
    let mut add = |&value: &Value, point| uses.push(ValueUse { value, point });
    for (n, inst) in b.insts.iter().enumerate() {
        inst.for_each_use(|v| add(v, (body, n)));
    }
    let end = (body, b.insts.len());
    b.term.for_each_use(|v| add(v, end));
    let args = b.term.targets().into_iter().flat_map(|t| &t.args);
    args.for_each(|v| add(v, end));
    let args = b.bound.iter().flat_map(|b| &b.exhausted.args);
    args.for_each(|v| add(v, (CfgNode::entry(block), 0)));
    uses
}

fn uses(func: &LirFunc, cfg: &Cfg, defs: &[ProgramPoint]) -> Res {
    for block in 0..func.blocks.len() {
        for ValueUse { value, point } in uses_in(func, block) {
            let (node, before) = defs[value.index()];
            let name = &func.values[value.index()];
            let holds = match node == point.0 {
                true => before <= point.1,
                false => cfg.dominates(node, point.0),
            };
            if !holds {
                let message = format!("%{name} is not defined on all paths to its use");
                return at_block(func, block).fail(Invariant::Dominance, message);
            }
        }
    }
    Ok(())
}
