//! Members of structures that are in registers: the piece that has the member, shifted and cut.

use std::sync::Arc;

use spile_ir::{BinOp, Space};
use spile_syntax::ast::{Access, Span};

use super::Resolver;
use crate::ctype::{CTy, From, Shape};
use crate::facts::Loc;
use crate::probe::TargetSource;
use crate::types::hir::Expr;

/// What a member is, and the accesses that are left to go on with.
type Found<'a> = Result<((Expr, From), &'a [Access]), Arc<str>>;

impl Resolver<'_> {
    /// The member that the first accesses name of a structure in pieces; `None` where it is in no
    /// pieces, or none is named.
    pub(super) fn member_in_pieces<'a>(
        &mut self,
        source: &TargetSource,
        ty: CTy,
        access: &'a [Access],
        space: Space,
        span: Span,
    ) -> Option<Found<'a>> {
        let TargetSource::Loc(loc) = source else {
            return None;
        };
        let Loc::Pieces(pieces) = &**loc else {
            return None;
        };
        let (mut ty, mut rest) = (ty, access);
        let (mut first, mut width) = (0, 0);
        while let (Shape::Struct(id, _), Some((Access::Member(name), behind))) =
            (ty.shape(self.facts), rest.split_first())
        {
            let member = self.facts.member(id, &name.name)?;
            first += member.bit_offset;
            width = member.bit_size;
            (ty, rest) = (CTy::id(member.ty), behind);
        }
        let (size, signed) = match ty.shape(self.facts) {
            Shape::Int { size, signed, .. } if size <= 8 => (8 * u32::from(size), signed),
            Shape::Ptr(_) => (64, false),
            _ => return None,
        };
        if width == 0 {
            width = size;
        }
        let mut start = 0;
        for piece in pieces {
            let end = start + 8 * piece.bytes;
            if first >= start && first + width <= end {
                let Some(ops) = &piece.value else {
                    return Some(Err("optimised out".into()));
                };
                let whole = self.leaves(ops, space, span)?;
                // To the top, and back with what the type extends it by.
                let up = i64::from(64 - width - (first - start));
                let top = self.op_imm(BinOp::Shl, whole, up, span);
                let back = if signed { BinOp::Shr } else { BinOp::UShr };
                let value = self.op_imm(back, top, i64::from(64 - width), span);
                return Some(Ok(((value, From::Value(ty)), rest)));
            }
            start = end;
        }
        Some(Err("it is in several places at once".into()))
    }
}
