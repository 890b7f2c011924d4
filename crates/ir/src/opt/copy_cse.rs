//! Constant and copy propagation, and elimination of common subexpressions.
//!
//! Blocks are visited in reverse post-order. A block starts with the facts that hold at the ends of
//! all its predecessors; with none where a jump back or an error leads to it. All registers of a
//! handler are 0 or "" when it starts.

use std::rc::Rc;

use spile_cast::Cast;

use crate::analysis::liveness::Liveness;
use crate::analysis::order::reverse_post_order;
use crate::*;

/// The facts at a point: copies, and available expressions.
#[derive(Debug, Clone, Default)]
struct AvailableExprs {
    /// Registers that hold the same value as an operand, sorted by register.
    copies: Vec<(Reg, Val)>,
    /// Values that are computed and still held: the instruction (with the register it wrote).
    exprs: Vec<(Rc<Inst>, Reg)>,
}

impl AvailableExprs {
    /// Drops the facts that depend on a register's old value.
    fn written(&mut self, r: Reg) {
        let v = Val::Reg(r);
        self.copies.retain(|(k, c)| *k != r && *c != v);
        self.exprs.retain(|(inst, dst)| {
            let mut uses = *dst == r;
            inst.for_each_use(|u| uses |= u == v);
            !uses
        });
    }

    /// Drops reads of a global; of all globals for `None`.
    fn global_written(&mut self, g: Option<GlobalId>) {
        self.exprs.retain(|(inst, _)| match (inst.global(), g) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(h), Some(g)) => h != g,
        });
    }

    /// Drops what was read of the event: the handler has set a register of the program.
    fn register_set(&mut self) {
        let of_event =
            |inst: &Inst| matches!(inst, Inst::Intr { f, .. } if f.info().need.is_some());
        self.exprs.retain(|(inst, _)| !of_event(inst));
    }

    fn resolve(&self, v: &mut Val) {
        if let Val::Reg(r) = v
            && let Some(known) = self.copy(*r)
        {
            *v = known;
        }
    }

    /// The operand with the same value as a register.
    fn copy(&self, r: Reg) -> Option<Val> {
        let index = self.copies.binary_search_by_key(&r, |(k, _)| *k).ok()?;
        Some(self.copies[index].1)
    }

    /// Notes the value of a register without facts.
    fn note_value(&mut self, r: Reg, v: Val) {
        let index = self.copies.partition_point(|(k, _)| *k < r);
        self.copies.insert(index, (r, v));
    }

    /// The instruction that computed a register's value.
    fn def(&self, v: Val) -> Option<&Inst> {
        self.exprs
            .iter()
            .find(|(_, d)| Val::Reg(*d) == v)
            .map(|(i, _)| &**i)
    }
}

/// Maximum number of expressions; the search is linear.
const MAX_EXPRS: usize = 64;

/// Runs the pass on a body, whose registers are 0 or "" at the start if `zeroed`.
pub fn run(program: &mut Program, body: &mut Body, zeroed: bool) {
    let preds = body.predecessors();
    let mut ends: Vec<Option<AvailableExprs>> = vec![None; body.blocks.len()];
    // For each block, how many blocks still ask for the facts at its end.
    let mut asked: Vec<u32> = body
        .blocks
        .iter()
        .map(|b| b.successors().count().fit::<u32>())
        .collect();
    for b in reverse_post_order(body) {
        let from = &preds[b];
        let mut available = match from.is_empty() && zeroed {
            true => at_start(program, body),
            false => meet_predecessors(body, b, from, &mut ends, &mut asked),
        };
        block(program, body, b, &mut available);
        ends[b.index()] = Some(available);
    }
}

/// The facts about registers when a handler starts.
fn at_start(program: &mut Program, body: &Body) -> AvailableExprs {
    let mut available = AvailableExprs::default();
    let live = Liveness::new(body);
    for r in live.live_in(BlockId(0)) {
        let value = match body.regs.get(r.index()) {
            Some(Ty::Long) => Val::Imm(0),
            Some(Ty::Str(_)) => Val::Str(program.intern(b"")),
            None => continue,
        };
        available.note_value(r, value);
    }
    available
}

/// The facts that hold at the ends of all predecessors.
fn meet_predecessors(
    body: &Body,
    b: BlockId,
    from: &[BlockId],
    ends: &mut [Option<AvailableExprs>],
    asked: &mut [u32],
) -> AvailableExprs {
    let mut common = None::<AvailableExprs>;
    for p in from {
        let end = &mut ends[p.index()];
        let asked = &mut asked[p.index()];
        *asked = asked.saturating_sub(1);
        let (Some(end), false) = (end, body.blocks[p.index()].catch == Some(b)) else {
            return AvailableExprs::default();
        };
        match &mut common {
            None if *asked == 0 => common = Some(std::mem::take(end)),
            None => common = Some(end.clone()),
            Some(known) => {
                known.copies.retain(|(r, v)| end.copy(*r) == Some(*v));
                known
                    .exprs
                    .retain(|e| end.exprs.iter().any(|f| same_expression(e, f)));
            }
        }
    }
    common.unwrap_or_default()
}

fn block(program: &mut Program, body: &mut Body, b: BlockId, known: &mut AvailableExprs) {
    let mut insts = std::mem::take(&mut body.blocks[b.index()].insts);
    for (inst, _) in &mut insts {
        // A saved register is restored with its own width.
        if !matches!(inst, Inst::Save { .. }) {
            inst.uses_mut(|v| known.resolve(v));
        }
        if let Some(new) = simplify(program, known, inst) {
            *inst = new;
        }
        let same = known.exprs.iter().find(|(e, r)| {
            equal(e, inst)
                && inst
                    .dst()
                    .is_some_and(|d| type_of(body, d) == type_of(body, *r))
        });
        if let (Some((_, r)), Some(dst)) = (same, inst.dst()) {
            *inst = Inst::Copy {
                dst,
                src: Val::Reg(*r),
            };
        }
        transfer(program, body, known, inst);
    }
    let block = &mut body.blocks[b.index()];
    block.insts = insts;
    block.term.uses_mut(|v| known.resolve(v));
    if let Term::Branch { cond, then, els } = &mut block.term {
        match known.def(*cond) {
            Some(Inst::Un {
                op: UnOp::Not, a, ..
            }) => {
                *cond = *a;
                std::mem::swap(then, els);
            }
            Some(Inst::Bin {
                op: BinOp::Ne,
                a,
                b: Val::Imm(0),
                ..
            }) => *cond = *a,
            Some(Inst::Bin {
                op: BinOp::Eq,
                a,
                b: Val::Imm(0),
                ..
            }) => {
                *cond = *a;
                std::mem::swap(then, els);
            }
            _ => {}
        }
    }
    block.term.for_each_dst(|r| known.written(r));
}

fn type_of(body: &Body, r: Reg) -> Option<Ty> {
    body.regs.get(r.index()).copied()
}

/// Whether two expressions are the same instruction's, in the same register.
fn same_expression((a, r): &(Rc<Inst>, Reg), (b, s): &(Rc<Inst>, Reg)) -> bool {
    r == s && (Rc::ptr_eq(a, b) || a == b)
}

/// Whether two instructions are the same except for the register they write.
fn equal(a: &Inst, b: &Inst) -> bool {
    // Most differ in kind or in their first operands, which is found without a copy.
    if std::mem::discriminant(a) != std::mem::discriminant(b) || operands(a) != operands(b) {
        return false;
    }
    let mut b = b.clone();
    if let Some(r) = a.dst() {
        b.dsts_mut(|d| *d = r);
    }
    *a == b
}

/// The first operands of an instruction.
fn operands(inst: &Inst) -> [Option<Val>; 3] {
    let mut first = [None; 3];
    let mut free = first.iter_mut();
    inst.for_each_use(|v| {
        if let Some(location) = free.next() {
            *location = Some(v);
        }
    });
    first
}

/// Adds the facts after an instruction.
fn transfer(program: &Program, body: &Body, known: &mut AvailableExprs, inst: &Inst) {
    match inst {
        Inst::Call { .. } => {
            known.global_written(None);
            known.register_set();
        }
        Inst::Intr {
            f: Intrinsic::RegisterStore,
            ..
        } => known.register_set(),
        _ if inst.writes_global() => known.global_written(inst.global()),
        _ => {}
    }
    let Some(dst) = inst.dst() else { return };
    known.written(dst);
    if let Inst::Copy { src, .. } = inst {
        if *src != Val::Reg(dst) && keeps_whole_value(program, body, *src, dst) {
            known.note_value(dst, *src);
        }
        return;
    }
    let mut overwrites = false;
    inst.for_each_use(|v| overwrites |= v == Val::Reg(dst));
    let changes = matches!(inst, Inst::CatchMsg { .. } | Inst::Restore { .. });
    let reread = inst.removable(program) && !changes;
    if reread && !overwrites {
        if known.exprs.len() == MAX_EXPRS {
            known.exprs.remove(0);
        }
        known.exprs.push((Rc::new(inst.clone()), dst));
    }
}

/// Whether a copy of `src` to `dst` keeps the whole value.
fn keeps_whole_value(program: &Program, body: &Body, src: Val, dst: Reg) -> bool {
    let (Some(from), Some(to)) = (program.type_of(body, src), type_of(body, dst)) else {
        return false;
    };
    match src {
        Val::Str(s) => !program.strings[s.index()].contains(&0) && from.size() <= to.size(),
        _ => from.size() <= to.size(),
    }
}

fn copy(dst: Reg, src: Val) -> Option<Inst> {
    Some(Inst::Copy { dst, src })
}

/// A simpler instruction with the same effect.
fn simplify(program: &mut Program, known: &AvailableExprs, inst: &Inst) -> Option<Inst> {
    match inst {
        Inst::Un { .. } | Inst::Bin { .. } => simplify_integer(known, inst),
        _ => simplify_string(program, inst),
    }
}

/// Simplifies an operation on integers.
fn simplify_integer(known: &AvailableExprs, inst: &Inst) -> Option<Inst> {
    match inst {
        Inst::Un {
            dst,
            op,
            a: Val::Imm(n),
        } => copy(*dst, Val::Imm(op.eval(*n))),
        Inst::Un {
            dst,
            op: UnOp::Not,
            a,
        } => match known.def(*a) {
            Some(Inst::Bin { op, a, b, .. }) => {
                let op = opposite(*op)?;
                Some(Inst::Bin {
                    dst: *dst,
                    op,
                    a: *a,
                    b: *b,
                })
            }
            _ => None,
        },
        Inst::Bin {
            dst,
            op,
            a: Val::Imm(a),
            b: Val::Imm(b),
        } => copy(*dst, Val::Imm(op.eval(*a, *b)?)),
        Inst::Bin { dst, op, a, b } => simplify_binary(*dst, *op, *a, *b),
        _ => None,
    }
}

/// Simplifies an operation on constant strings.
fn simplify_string(program: &mut Program, inst: &Inst) -> Option<Inst> {
    let constant = |program: &Program, v: &Val| match v {
        Val::Str(s) => program.strings.get(s.index()).cloned(),
        _ => None,
    };
    let imm = |dst: &Reg, n: i64| copy(*dst, Val::Imm(n));
    match inst {
        Inst::StrCmp { dst, op, a, b } if a == b => imm(dst, i64::from(op.eval(b"", b""))),
        Inst::StrCmp { dst, op, a, b } => {
            let (a, b) = (constant(program, a)?, constant(program, b)?);
            imm(dst, i64::from(op.eval(&a, &b)))
        }
        Inst::Concat { dst, a, b } => {
            let (x, y) = (constant(program, a), constant(program, b));
            let src = match (&x, &y) {
                (Some(x), _) if x.is_empty() => *b,
                (_, Some(y)) if y.is_empty() => *a,
                (Some(x), Some(y)) => Val::Str(program.intern(&[&x[..], &y[..]].concat())),
                _ => return None,
            };
            copy(*dst, src)
        }
        Inst::TableGet {
            dst,
            table,
            idx: Val::Imm(n),
        } => {
            let entries = &program.tables.get(table.index())?.entries;
            let entry = usize::try_from(*n)
                .ok()
                .and_then(|i| entries.get(i))
                .cloned();
            let src = Val::Str(program.intern(&entry.unwrap_or_default()));
            copy(*dst, src)
        }
        Inst::Regex {
            dst,
            re,
            text,
            keep: false,
        } => {
            let string = constant(program, text)?;
            imm(
                dst,
                program.regexes.get(re.index())?.is_match(&string).into(),
            )
        }
        Inst::Intr {
            dst: Some(dst),
            f: Intrinsic::Strlen,
            args,
        } => {
            let string = constant(program, args.first()?)?;
            (!string.contains(&0)).then_some(Inst::Copy {
                dst: *dst,
                src: Val::Imm(string.len().fit()),
            })
        }
        _ => None,
    }
}

/// The comparison that is true where `op` is false.
fn opposite(op: BinOp) -> Option<BinOp> {
    Some(match op {
        BinOp::Eq => BinOp::Ne,
        BinOp::Ne => BinOp::Eq,
        BinOp::Lt => BinOp::Ge,
        BinOp::Ge => BinOp::Lt,
        BinOp::Gt => BinOp::Le,
        BinOp::Le => BinOp::Gt,
        _ => return None,
    })
}

/// Identities with one constant, or with the same operand twice. The constant of a commutative
/// operation goes to the right.
fn simplify_binary(dst: Reg, op: BinOp, a: Val, b: Val) -> Option<Inst> {
    use BinOp::*;
    let copy = |src| copy(dst, src);
    match (op, a, b) {
        (Add | Sub | Or | Xor | Shl | Shr | UShr, a, Val::Imm(0)) => copy(a),
        (Mul | Div, a, Val::Imm(1)) | (And, a, Val::Imm(-1)) => copy(a),
        (Mul | And, _, Val::Imm(0)) | (Mod, _, Val::Imm(1)) => copy(Val::Imm(0)),
        (Add | Mul | And | Or | Xor | Eq | Ne, Val::Imm(_), b) => Some(Inst::Bin {
            dst,
            op,
            a: b,
            b: a,
        }),
        (And | Or, a, b) if a == b => copy(a),
        (Sub | Xor | Ne | Lt | Gt, a, b) if a == b => copy(Val::Imm(0)),
        (Eq | Le | Ge, a, b) if a == b => copy(Val::Imm(1)),
        _ => None,
    }
}
