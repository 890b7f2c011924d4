//! Numbers that a word of the language does not hold: floating point, integers of 128 bits, and bit
//! fields across words.

use spile_cast::Cast;
use spile_ir::fmt::ConvKind;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::wide::{FORM, WideNumber};
use spile_ir::{BinOp, Space};
use spile_syntax::ast::Span;
use spile_syntax::diag::Diagnostic;

use super::Resolver;
use super::pretty::PrettyText;
use crate::codes;
use crate::ctype::{CTy, FinalAccess, MemberWalk, TypeShape};
use crate::facts;
use crate::types::hir::*;
use crate::types::unify::Base;

/// In the key of a hidden function, instead of a depth: it checks that a word holds a number.
const CHECK: u8 = 2;

/// The kind of a type's numbers, where a word does not hold them as they are.
pub(super) fn wide_kind(shape: TypeShape) -> Option<WideNumber> {
    match shape {
        TypeShape::Int {
            size: 16, signed, ..
        } => Some(WideNumber::of_int(signed)),
        TypeShape::Float(size) => WideNumber::of_float(size),
        _ => None,
    }
}

impl Resolver<'_> {
    /// Appends the text of such a number from its words, the low one first.
    pub(super) fn append_wide(
        &mut self,
        text: &mut PrettyText,
        kind: WideNumber,
        (low, high): (HirExpr, Option<HirExpr>),
    ) {
        let span = text.span;
        let mut words = PrettyText::new(Space::Kernel, span);
        words.lit(&format!("{:x} ", kind as u8));
        words.conv(ConvKind::Hex, false, low);
        if let Some(high) = high {
            words.lit(" ");
            words.conv(ConvKind::Hex, false, high);
        }
        let words = self.sprint(words);
        let form = self.imm(FORM, span);
        let (f, args) = (Intrinsic::SymbolicForm, vec![form, words]);
        let number = self.str(HirExprKind::Intr { f, args }, span);
        text.append(number);
    }

    /// Appends the text of a floating-point number of at most 8 bytes from its bits.
    pub(super) fn append_float(&mut self, text: &mut PrettyText, size: u8, bits: HirExpr) {
        match WideNumber::of_float(size).filter(|kind| !kind.is_double_word()) {
            Some(kind) => self.append_wide(text, kind, (bits, None)),
            None => text.lit("?"),
        }
    }

    /// The text of the number of two words at which a walk ends.
    pub(super) fn wide_object(
        &mut self,
        base: HirExpr,
        walk: MemberWalk,
        ty: CTy,
        space: Space,
        span: Span,
    ) -> HirExpr {
        let last = FinalAccess::Address;
        let address = self.apply(base, MemberWalk { last, ..walk }, space, span);
        let mut text = PrettyText::new(space, span);
        self.pretty_object(&mut text, address, ty, 0);
        self.sprint(text)
    }

    /// The low word of a number of two, an error at run time where the number does not fit it.
    pub(super) fn word_of(
        &mut self,
        kind: WideNumber,
        (low, high): (HirExpr, HirExpr),
        span: Span,
    ) -> HirExpr {
        if kind == WideNumber::Extended {
            let text = "a number of 80 bits in floating point cannot be used as a word";
            let d = Diagnostic::error(codes::NOT_SCALAR, text).at(span);
            self.report(d.help("its text can: write `$` behind it"));
            return self.bad(span);
        }
        // 0 if the high word is what the low one implies.
        let implied = match kind {
            WideNumber::Signed => self.op_imm(BinOp::Shr, low.clone(), 63, span),
            _ => self.imm(0, span),
        };
        let lost = self.bin(BinOp::Xor, high, implied, span);
        let func = self.check_function(span);
        let args = vec![lost];
        let check = self.int(HirExprKind::Call { func, args }, span);
        self.bin(BinOp::Add, low, check, span)
    }

    /// The hidden function that returns 0 for 0, and fails for any other number.
    fn check_function(&mut self, span: Span) -> UnitIx {
        let key = (facts::LONG, CHECK);
        if let Some(unit) = self.pretty_units.get(&key) {
            return *unit;
        }
        let unit = self.hidden_function("word", span);
        self.pretty_units.insert(key, unit);
        let ret = self.types.fresh_of(Base::Long, span);
        if let UnitKind::Func { ret: result, .. } = &mut self.tree.units[unit.0].kind {
            *result = ret;
        }
        let text = b"the number has more than 64 bits; its text ($ behind the variable) has all";
        let text = self.string_imm(text, span);
        let fail = self.int(HirExprKind::Raise(Box::new(text)), span);
        let zero = self.imm(0, span);
        let statement = |kind| HirStmt { kind, span };
        let cond = self.parameter(unit, span);
        let then = vec![statement(HirStmtKind::Expr(fail))];
        let els = Vec::new();
        self.tree.units[unit.0].body = vec![
            statement(HirStmtKind::If { cond, then, els }),
            statement(HirStmtKind::Return(Some(zero))),
        ];
        unit
    }

    /// A bit field from the bytes at an address that have it; the first bit is below `shift` others.
    pub(super) fn crossing_field(
        &mut self,
        address: &HirExpr,
        (shift, width): (u8, u8),
        signed: bool,
        space: Space,
        span: Span,
    ) -> HirExpr {
        // No read leaves the structure.
        let bytes = i64::from((shift + width).div_ceil(8));
        let mut value: Option<HirExpr> = None;
        let mut done = 0;
        while done < bytes {
            let size = 1i64 << (bytes - done).min(8).ilog2();
            let part = self.op_imm(BinOp::Add, address.clone(), done, span);
            let part = self.load(space, part, size.fit::<u8>(), false, span);
            let by = 8 * done - i64::from(shift);
            let op = if by < 0 { BinOp::UShr } else { BinOp::Shl };
            let part = self.op_imm(op, part, by.abs(), span);
            value = Some(match value {
                None => part,
                Some(low) => self.bin(BinOp::Or, low, part, span),
            });
            done += size;
        }
        match value {
            Some(value) => self.extend(value, 0, width, signed, span),
            None => self.bad(span),
        }
    }
}
