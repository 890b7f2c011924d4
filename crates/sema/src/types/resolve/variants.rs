//! The text of structures of which one of several variants is there, as Rust's enumerations are:
//! `Square{.side=8}`.

use spile_ir::BinOp;

use super::Resolver;
use super::pretty::PrettyText;
use crate::ctype::{CTy, TypeShape};
use crate::facts::{Member, Variants};
use crate::types::hir::*;

/// Maximum number of variants of a structure whose text is made.
const MOST: usize = 48;

impl Resolver<'_> {
    /// Appends the variant that is there. `number` reads the discriminant, unsigned; `append` appends
    /// a member, other than a structure without members.
    pub(super) fn append_variant(
        &mut self,
        text: &mut PrettyText,
        variants: &Variants,
        number: &mut dyn FnMut(&mut Self, &PrettyText, &Member) -> Option<HirExpr>,
        append: &mut dyn FnMut(&mut Self, &mut PrettyText, &Member),
    ) {
        let span = text.span;
        let discriminant = variants.discriminant.as_ref().and_then(|member| {
            let bits = self.discriminant_bits(member)?;
            Some((number(self, text, member)?, bits))
        });
        if variants.variants.len() > MOST
            || (discriminant.is_none() && variants.variants.len() != 1)
        {
            return text.lit("{...}");
        }
        // The conditional expression grows from its last alternative: the variant for all other values.
        let (known, other): (Vec<_>, Vec<_>) =
            variants.variants.iter().partition(|v| v.value.is_some());
        let mut whole =
            (other.is_empty() && discriminant.is_some()).then(|| self.string_imm(b"?", span));
        for variant in other.into_iter().chain(known) {
            let mut shown = PrettyText::new(text.space, span);
            for (n, member) in variant.members.iter().enumerate() {
                shown.lit(if n > 0 { ", " } else { "" });
                shown.lit(&member.name);
                if !self.is_empty(member) {
                    append(self, &mut shown, member);
                }
            }
            let shown = self.sprint(shown);
            whole = Some(match (whole, variant.value, &discriminant) {
                (Some(rest), Some(value), Some((number, bits))) => {
                    let value = value.cast_unsigned() & (u64::MAX >> (64 - bits));
                    let value = self.imm(value.cast_signed(), span);
                    let equal = self.bin(BinOp::Eq, number.clone(), value, span);
                    self.choose(equal, [shown, rest], span)
                }
                _ => shown,
            });
        }
        if let Some(whole) = whole {
            text.append(whole);
        }
    }

    /// The width of a discriminant that a word holds.
    fn discriminant_bits(&self, member: &Member) -> Option<u32> {
        match CTy::id(member.ty).shape(self.facts) {
            TypeShape::Int {
                size: size @ (1 | 2 | 4 | 8),
                ..
            } => Some(8 * u32::from(size)),
            _ => None,
        }
    }

    /// Whether a member is a structure without members.
    fn is_empty(&self, member: &Member) -> bool {
        match CTy::id(member.ty).shape(self.facts) {
            TypeShape::Struct(id, _) => {
                self.facts.members(id).is_empty() && self.facts.variants(id).is_none()
            }
            _ => false,
        }
    }
}
