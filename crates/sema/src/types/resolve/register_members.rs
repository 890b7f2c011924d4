//! Members of structures, and elements of arrays, that lie in registers: joins the pieces with the
//! member, shifts and cuts them.

use std::sync::Arc;

use spile_ir::{BinOp, Space};
use spile_syntax::ast::{Access, Span};

use super::Resolver;
use super::wide::wide_kind;
use crate::ctype::{CTy, TypeShape, WalkBase, constant};
use crate::facts::{LocationPiece, VarLocation};
use crate::probe::TargetSource;
use crate::types::hir::HirExpr;

/// The value of a member, and the accesses that remain.
type PieceValue<'a> = Result<((HirExpr, WalkBase), &'a [Access]), Arc<str>>;

impl Resolver<'_> {
    /// The member that the first accesses name in an object in pieces; `None` where the object is
    /// not in pieces, or no member is named.
    pub(super) fn member_in_pieces<'a>(
        &mut self,
        source: &TargetSource,
        ty: CTy,
        access: &'a [Access],
        space: Space,
        span: Span,
    ) -> Option<PieceValue<'a>> {
        let (pieces, mut ty, mut rest) = match (Self::pieces(source), access.split_first()) {
            (Some(pieces), _) => (pieces, ty, access),
            (None, Some((first, behind))) => {
                let (pieces, to) = self.pointee(source, ty)?;
                match first {
                    Access::Member(_) => (pieces, to, access),
                    Access::Index(n) if constant(n) == Some(0) => (pieces, to, behind),
                    Access::Index(_) => return None,
                }
            }
            (None, None) => return None,
        };
        let (mut first, mut width) = (0, 0);
        while let Some((step, behind)) = rest.split_first() {
            match (ty.shape(self.facts), step) {
                (TypeShape::Struct(id, _), Access::Member(name)) => {
                    let member = self.facts.member(id, &name.name)?;
                    first += member.bit_offset;
                    width = member.bit_size;
                    ty = CTy::id(member.ty);
                }
                (TypeShape::Array { elem, .. }, Access::Index(n)) => {
                    let Some(n) = constant(n).and_then(|n| u32::try_from(n).ok()) else {
                        return Some(Err(
                            "it is in registers, where only a constant can index it".into(),
                        ));
                    };
                    let size = elem.size(self.facts)?.checked_mul(8)?;
                    let step = u32::try_from(size).ok()?.checked_mul(n)?;
                    first = first.checked_add(step)?;
                    ty = elem;
                }
                _ => break,
            }
            rest = behind;
        }
        let (size, signed) = match ty.shape(self.facts) {
            TypeShape::Int { size, signed, .. } if size <= 8 => (8 * u32::from(size), signed),
            TypeShape::Ptr(_) | TypeShape::Ref(_) => (64, false),
            TypeShape::Float(size) if size <= 8 => (8 * u32::from(size), false),
            TypeShape::Int { size: 16, .. } if width == 0 => {
                let value = self.wide_in_pieces(pieces, (ty, first), space, span)?;
                return Some(value.map(|value| ((value, WalkBase::Value(CTy::LONG)), rest)));
            }
            _ => return None,
        };
        if width == 0 {
            width = size;
        }
        let value = self.bits(pieces, (first, width), signed, space, span)?;
        Some(value.map(|value| ((value, WalkBase::Value(ty)), rest)))
    }

    /// A number of 128 bits in pieces, where a word holds it.
    fn wide_in_pieces(
        &mut self,
        pieces: &[LocationPiece],
        (ty, first): (CTy, u32),
        space: Space,
        span: Span,
    ) -> Option<Result<HirExpr, Arc<str>>> {
        let kind = wide_kind(ty.shape(self.facts))?;
        let low = self.bits(pieces, (first, 64), false, space, span)?;
        let high = self.bits(pieces, (first.checked_add(64)?, 64), false, space, span)?;
        Some(low.and_then(|low| Ok(self.word_of(kind, (low, high?), span))))
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

    /// The object in pieces to which a pointer or a reference points that has no value itself, and
    /// its type.
    pub(super) fn pointee<'s>(
        &self,
        source: &'s TargetSource,
        ty: CTy,
    ) -> Option<(&'s [LocationPiece], CTy)> {
        let TargetSource::Loc(loc) = source else {
            return None;
        };
        match (&**loc, ty.shape(self.facts)) {
            (VarLocation::Pointee(pieces), TypeShape::Ptr(to) | TypeShape::Ref(to)) => {
                Some((pieces, to))
            }
            _ => None,
        }
    }

    /// The object whose text a variable that lies in pieces has, and its type.
    pub(super) fn shown_in_pieces<'s>(
        &self,
        source: &'s TargetSource,
        ty: CTy,
    ) -> Option<(&'s [LocationPiece], CTy)> {
        if let Some(pieces) = Self::pieces(source) {
            return Some((pieces, ty));
        }
        let (pieces, to) = self.pointee(source, ty)?;
        let by_object = matches!(to.shape(self.facts), TypeShape::Struct(..))
            || matches!(ty.shape(self.facts), TypeShape::Ref(_));
        by_object.then_some((pieces, to))
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
    ) -> Option<Result<HirExpr, Arc<str>>> {
        let last = first.checked_add(width)?;
        let (mut start, mut joined, mut end) = (0, None, first);
        for piece in pieces {
            let piece_end = start + 8 * piece.bytes;
            let (from, to) = (first.max(start), last.min(piece_end));
            if from < to {
                let ops = match &piece.value {
                    Ok(ops) => ops,
                    Err(why) => return Some(Err(why.clone())),
                };
                let whole = self.evaluate_location(ops, space, span)?;
                // Shift to the top and back, which extends the last part as the type does.
                let top = i64::from(64 - (to - start));
                let down = i64::from(64 - (to - from));
                let back = match signed && to == last {
                    true => BinOp::Shr,
                    false => BinOp::UShr,
                };
                let part = self.op_imm(BinOp::Shl, whole, top, span);
                let part = self.op_imm(back, part, down, span);
                let part = self.op_imm(BinOp::Shl, part, i64::from(from - first), span);
                joined = Some(match joined {
                    None => part,
                    Some(low) => self.bin(BinOp::Or, low, part, span),
                });
                end = to;
            }
            start = piece_end;
        }
        match joined {
            Some(value) if end == last => Some(Ok(value)),
            _ => Some(Err("not accessible at this address: optimised out".into())),
        }
    }
}
