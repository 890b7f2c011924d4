//! Arrays whose number of elements only the running program has.

use spile_ctype::ObjectOp;
use spile_ir::{BinOp, Space};
use spile_syntax::ast::{self, Access, Pretty, Span};

use super::Resolver;
use super::pretty::{ELEMENTS, PrettyText, TEXT};
use super::target::Suffix;
use crate::codes as probe_codes;
use crate::ctype::{CBase, CTy, FinalAccess, MemberWalk, TypeShape, WalkBase, WalkStep};
use crate::facts::CTypeId;
use crate::probe::TargetVar;
use crate::types::hir::*;

impl Resolver<'_> {
    /// The text of an array of one dimension that only the running program can count: `[1, 2, 3]`.
    pub(super) fn counted_text(
        &mut self,
        (base, from): (&HirExpr, WalkBase),
        walk: &MemberWalk,
        suffix: Suffix<'_>,
        space: Space,
        span: Span,
    ) -> Option<HirExpr> {
        if suffix.pretty == Pretty::None || suffix.addr_of {
            return None;
        }
        let (elem, count) = match walk.shown.shape(self.facts) {
            TypeShape::Array { elem, count: 0 } => {
                let CBase::Id(array) = walk.shown.base else {
                    return None;
                };
                self.count_variable(array)?;
                let count = self.run_time_count(array.number, walk.shown, space, span)?;
                (elem, count)
            }
            TypeShape::Strided { elem, counts, .. } if counts.len() == 1 => {
                let mut steps = walk.steps.clone();
                steps.pop_if(|s| matches!(s, WalkStep::Strided { .. }));
                let object = MemberWalk {
                    steps,
                    last: FinalAccess::Address,
                    ..walk.clone()
                };
                let object = self.apply(base.clone(), object, space, span);
                let count = counts.first()?.clone()?;
                let count = self.of_object(&count, (&object, walk.shown), space, span);
                (elem, count)
            }
            _ => return None,
        };
        let element = |this: &mut Self, n: u32, addr_of, pretty| {
            let kind = ast::ExprKind::Num(n.into());
            let index = ast::Expr { kind, span };
            let mut access = suffix.access.to_vec();
            access.push(Access::Index(index));
            let element = Suffix {
                access: &access,
                addr_of,
                pretty,
            };
            let walked = this.walk(base.clone(), from, element, space, span);
            walked.map_or_else(|| this.bad(span), |(value, _)| value)
        };
        match (elem.shape(self.facts), suffix.pretty) {
            (TypeShape::Int { char: true, .. }, _) => {
                let first = element(self, 0, true, Pretty::None);
                return Some(self.counted_string(first, &count, space, span));
            }
            // Levels count as in other arrays.
            (TypeShape::Struct(..), Pretty::Shallow) => return None,
            _ => {}
        }
        let mut text = PrettyText::new(space, span);
        text.lit("[");
        for n in 0..ELEMENTS {
            let shown = element(self, n, false, Pretty::Shallow);
            let mut one = PrettyText::new(space, span);
            one.lit(if n > 0 { ", " } else { "" });
            one.append(shown);
            let one = self.sprint(one);
            let none = self.string_imm(b"", span);
            let part = self.above(&count, n.into(), [one, none], span);
            text.append(part);
        }
        let more = self.string_imm(b", ...]", span);
        let end = self.string_imm(b"]", span);
        let part = self.above(&count, ELEMENTS.into(), [more, end], span);
        text.append(part);
        Some(self.sprint(text))
    }

    /// The text of a string by the address of its first character and its length: `"abc"`.
    fn counted_string(
        &mut self,
        first: HirExpr,
        count: &HirExpr,
        space: Space,
        span: Span,
    ) -> HirExpr {
        let limit = self.imm(TEXT, span);
        let shown = self.above(count, TEXT, [limit, count.clone()], span);
        let read = self.read_string(space, first, shown, span);
        let none = self.string_imm(b"", span);
        let read = self.above(count, 0, [read, none], span);
        self.quoted(read, span)
    }

    /// The first value where a number is above a limit, else the second one.
    fn above(&mut self, n: &HirExpr, limit: i64, values: [HirExpr; 2], span: Span) -> HirExpr {
        let limit = self.imm(limit, span);
        let above = self.bin(BinOp::Gt, n.clone(), limit, span);
        self.choose(above, values, span)
    }

    /// The hidden variable that counts an array here.
    fn count_variable(&self, array: CTypeId) -> Option<TargetVar> {
        let targets = &self.cur.ctx.as_ref()?.targets;
        let counts = |t: &&TargetVar| t.ty == CTy::id(array) && t.is_count();
        targets.iter().find(counts).cloned()
    }

    /// The number of elements that the running program has for an array.
    fn run_time_count(
        &mut self,
        array: u32,
        beside: CTy,
        space: Space,
        span: Span,
    ) -> Option<HirExpr> {
        let CBase::Id(beside) = beside.base else {
            return None;
        };
        let id = CTypeId::new(beside.home, array);
        let array = CTy::id(id);
        let count = match self.count_variable(id) {
            Some(count) => self.source(&count.source, CTy::LONG, space, span),
            None => {
                let text = format!("the size of `{}` is not known", array.spell(self.facts));
                return self.refuse(probe_codes::CANNOT_DEREF, span, text);
            }
        };
        match count {
            Ok((value, _)) => Some(value),
            Err(why) => {
                let what = format!("the number of elements of `{}`", array.spell(self.facts));
                self.absent(&what, &why, span)
            }
        }
    }

    /// The value of a program about the object at an address; 0 where it is malformed.
    pub(super) fn of_object(
        &mut self,
        ops: &[ObjectOp],
        (object, ty): (&HirExpr, CTy),
        space: Space,
        span: Span,
    ) -> HirExpr {
        let mut stack: Vec<HirExpr> = Vec::new();
        for op in ops {
            let made = match *op {
                ObjectOp::Object => object.clone(),
                ObjectOp::Const(n) => self.imm(n, span),
                ObjectOp::Load { size, signed } => match stack.pop() {
                    Some(address) => self.load(space, address, size, signed, span),
                    None => break,
                },
                ObjectOp::Count(array) => match self.run_time_count(array, ty, space, span) {
                    Some(count) => count,
                    None => return self.bad(span),
                },
                ObjectOp::Add | ObjectOp::Sub | ObjectOp::Mul => {
                    let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else {
                        break;
                    };
                    let op = match op {
                        ObjectOp::Add => BinOp::Add,
                        ObjectOp::Sub => BinOp::Sub,
                        _ => BinOp::Mul,
                    };
                    self.bin(op, a, b, span)
                }
            };
            stack.push(made);
        }
        stack.pop().unwrap_or_else(|| self.imm(0, span))
    }
}
