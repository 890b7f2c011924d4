//! Members of structures that lie in registers: finds the piece with the member, shifts and cuts
//! it.

use std::sync::Arc;

use spile_ir::{BinOp, Space};
use spile_syntax::ast::{Access, Span};

use super::Resolver;
use crate::ctype::{CTy, TypeShape, WalkBase};
use crate::facts::{LocationPiece, VarLocation};
use crate::probe::TargetSource;
use crate::types::hir::Expr;

/// The value of a member, and the accesses that remain.
type PieceValue<'a> = Result<((Expr, WalkBase), &'a [Access]), Arc<str>>;

impl Resolver<'_> {
    /// The member that the first accesses name in a structure in pieces; `None` where the structure
    /// is not in pieces, or no member is named.
    pub(super) fn member_in_pieces<'a>(
        &mut self,
        source: &TargetSource,
        ty: CTy,
        access: &'a [Access],
        space: Space,
        span: Span,
    ) -> Option<PieceValue<'a>> {
        let pieces = Self::pieces(source)?;
        let (mut ty, mut rest) = (ty, access);
        let (mut first, mut width) = (0, 0);
        while let (TypeShape::Struct(id, _), Some((Access::Member(name), behind))) =
            (ty.shape(self.facts), rest.split_first())
        {
            let member = self.facts.member(id, &name.name)?;
            first += member.bit_offset;
            width = member.bit_size;
            (ty, rest) = (CTy::id(member.ty), behind);
        }
        let (size, signed) = match ty.shape(self.facts) {
            TypeShape::Int { size, signed, .. } if size <= 8 => (8 * u32::from(size), signed),
            TypeShape::Ptr(_) | TypeShape::Ref(_) => (64, false),
            _ => return None,
        };
        if width == 0 {
            width = size;
        }
        let value = self.bits(pieces, (first, width), signed, space, span)?;
        Some(value.map(|value| ((value, WalkBase::Value(ty)), rest)))
    }

    /// The pieces of a variable that lies in pieces.
    pub(super) fn pieces(source: &TargetSource) -> Option<&[LocationPiece]> {
        match source {
            TargetSource::Loc(loc) => match &**loc {
                VarLocation::Pieces(pieces) => Some(pieces),
                _ => None,
            },
            _ => None,
        }
    }

    /// A number made of pieces, by its first bit and its width in bits. `None` where a piece's
    /// location is too complex.
    pub(super) fn bits(
        &mut self,
        pieces: &[LocationPiece],
        (first, width): (u32, u32),
        signed: bool,
        space: Space,
        span: Span,
    ) -> Option<Result<Expr, Arc<str>>> {
        let mut start = 0;
        for piece in pieces {
            let end = start + 8 * piece.bytes;
            if first >= start && first + width <= end {
                let ops = match &piece.value {
                    Ok(ops) => ops,
                    Err(why) => return Some(Err(why.clone())),
                };
                let whole = self.evaluate_location(ops, space, span)?;
                // Shift to the top and back, which extends the value as its type does.
                let up = i64::from(64 - width - (first - start));
                let top = self.op_imm(BinOp::Shl, whole, up, span);
                let back = if signed { BinOp::Shr } else { BinOp::UShr };
                let value = self.op_imm(back, top, i64::from(64 - width), span);
                return Some(Ok(value));
            }
            start = end;
        }
        Some(Err("it is in several places at once".into()))
    }
}
