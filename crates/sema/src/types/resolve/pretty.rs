//! `$x$` and `$x$$`: a structure as text, `{.pid=1, .comm="init", .se={...}}`.
//!
//! A hidden function, one for each type and depth, makes a structure's text from its address; it
//! gives `ERROR` where memory cannot be read. `$` shows the structure's own members, `$$` also
//! those of inner structures. Deeper members, and text past the length of a string, are `...`.

use spile_cast::Cast;
use spile_ir::fmt::{Conv, ConvKind, Format, Piece};
use spile_ir::intrinsics::Intrinsic;
use spile_ir::wide::WideNumber;
use spile_ir::{BinOp, Space, Stream};
use spile_syntax::ast::{Pretty, Span};

use super::Resolver;
use super::wide::wide_kind;
use crate::ctype::{CBase, CTy, TypeShape};
use crate::facts::{self, CTypeId, Member};
use crate::types::hir::*;
use crate::types::unify::Base;

/// Maximum number of bytes shown of a string in a structure.
pub(super) const TEXT: i64 = 63;
/// Maximum number of elements shown of an array.
pub(super) const ELEMENTS: u32 = 8;
/// Length at which no more text is added; a string ends there or before.
const LONGEST_LINE: usize = 480;

/// A text under construction.
pub(super) struct PrettyText {
    /// The memory that its objects are in.
    pub space: Space,
    /// The location of the expression whose text it is.
    pub span: Span,
    lit: String,
    pieces: Vec<Piece>,
    args: Vec<HirExpr>,
    /// The minimum length so far.
    len: usize,
}

impl PrettyText {
    pub(super) fn new(space: Space, span: Span) -> PrettyText {
        PrettyText {
            space,
            span,
            lit: String::new(),
            pieces: Vec::new(),
            args: Vec::new(),
            len: 0,
        }
    }

    pub(super) fn lit(&mut self, text: &str) {
        self.lit.push_str(text);
        self.len += text.len();
    }

    pub(super) fn conv(&mut self, kind: ConvKind, alt: bool, arg: HirExpr) {
        self.flush();
        let plain = plain_conversion(kind);
        self.pieces.push(Piece::Conv(Conv { alt, ..plain }));
        self.args.push(arg);
        self.len += 1;
    }

    /// Appends a text.
    pub(super) fn append(&mut self, string: HirExpr) {
        self.conv(ConvKind::Str, false, string);
    }

    fn flush(&mut self) {
        if !self.lit.is_empty() {
            let lit = std::mem::take(&mut self.lit);
            self.pieces.push(Piece::Lit(lit.into_bytes().into()));
        }
    }

    fn full(&self) -> bool {
        self.len > LONGEST_LINE
    }
}

/// The form in which a variable is shown.
pub(super) enum ShownForm {
    /// The variable does not exist.
    Nothing,
    /// Its value, or a structure's address.
    Value(HirExpr),
    /// A ready text.
    Text(HirExpr),
}

/// Number of levels of members that are shown.
fn level_count(pretty: Pretty) -> u8 {
    match pretty {
        Pretty::None => 0,
        Pretty::Shallow => 1,
        Pretty::Deep => 2,
    }
}

/// An object, or a part of one, that lies in the pieces of a value.
#[derive(Clone, Copy)]
struct PieceObject {
    ty: CTy,
    /// The bit of the value at which it begins.
    first: u32,
    /// The width in bits of a bit field, otherwise 0.
    width: u32,
}

/// What reads a string in a space.
fn string_reader(space: Space) -> Intrinsic {
    match space {
        Space::Kernel => Intrinsic::KernelStr,
        Space::User => Intrinsic::UserStr,
    }
}

/// The conversion of an integer.
fn conversion(signed: bool) -> ConvKind {
    match signed {
        true => ConvKind::Dec,
        false => ConvKind::Unsigned,
    }
}

impl Resolver<'_> {
    /// The text of a value of this C type.
    pub(super) fn pretty(
        &mut self,
        value: HirExpr,
        ty: CTy,
        space: Space,
        pretty: Pretty,
        span: Span,
    ) -> HirExpr {
        let mut text = PrettyText::new(space, span);
        self.pretty_value(&mut text, value, ty, level_count(pretty));
        self.sprint(text)
    }

    /// `name=text name=text`
    pub(super) fn pretty_list(
        &mut self,
        list: Vec<(std::sync::Arc<str>, ShownForm, CTy, Space)>,
        pretty: Pretty,
        span: Span,
    ) -> HirExpr {
        let mut text = PrettyText::new(Space::Kernel, span);
        for (n, (name, value, ty, space)) in list.into_iter().enumerate() {
            text.space = space;
            text.lit(if n > 0 { " " } else { "" });
            text.lit(&format!("{name}="));
            match (value, pretty) {
                (ShownForm::Nothing, _) => text.lit("?"),
                (ShownForm::Text(shown), _) => text.conv(ConvKind::Str, false, shown),
                (ShownForm::Value(value), Pretty::None)
                    if matches!(ty.shape(self.facts), TypeShape::Float(_)) =>
                {
                    self.pretty_value(&mut text, value, ty, 0);
                }
                (ShownForm::Value(value), Pretty::None) => text.conv(ConvKind::Hex, true, value),
                (ShownForm::Value(value), _) => {
                    self.pretty_value(&mut text, value, ty, level_count(pretty));
                }
            }
        }
        self.sprint(text)
    }

    /// The text of an object that lies in registers.
    pub(super) fn pretty_in_pieces(
        &mut self,
        pieces: &[facts::LocationPiece],
        ty: CTy,
        space: Space,
        pretty: Pretty,
        span: Span,
    ) -> HirExpr {
        let mut text = PrettyText::new(space, span);
        let (first, width) = (0, 0);
        let object = PieceObject { ty, first, width };
        self.pieces_object(&mut text, pieces, object, level_count(pretty));
        self.sprint(text)
    }

    /// Appends an object that lies in pieces.
    fn pieces_object(
        &mut self,
        text: &mut PrettyText,
        pieces: &[facts::LocationPiece],
        PieceObject { ty, first, width }: PieceObject,
        depth: u8,
    ) {
        let span = text.span;
        let (bits, signed) = match ty.shape(self.facts) {
            TypeShape::Int { size, signed, .. } if width == 0 => (8 * u32::from(size), signed),
            TypeShape::Int { signed, .. } => (width, signed),
            TypeShape::Ptr(_) | TypeShape::Ref(_) => (64, false),
            TypeShape::Struct(id, _) => {
                let object = |m: &Member| PieceObject {
                    ty: CTy::id(m.ty),
                    first: first.saturating_add(m.bit_offset),
                    width: m.bit_size,
                };
                if let (Some(variants), 1..) = (self.facts.variants(id), depth) {
                    let mut number = |this: &mut Self, text: &PrettyText, m: &Member| {
                        let size = CTy::id(m.ty).size(this.facts)?;
                        let bits = (object(m).first, u32::try_from(8 * size).ok()?);
                        this.bits(pieces, bits, false, text.space, span)?.ok()
                    };
                    let mut append = |this: &mut Self, text: &mut PrettyText, m: &Member| {
                        this.pieces_object(text, pieces, object(m), depth);
                    };
                    return self.append_variant(text, &variants, &mut number, &mut append);
                }
                return self.members(text, id, depth, |this, text, m| {
                    this.pieces_object(text, pieces, object(m), depth - 1);
                });
            }
            TypeShape::Array { elem, count } => {
                return self.elements(text, (elem, count), depth, |this, text, offset| {
                    let bit = u32::try_from(offset).unwrap_or(u32::MAX).saturating_mul(8);
                    let object = PieceObject {
                        ty: elem,
                        first: first.saturating_add(bit),
                        width: 0,
                    };
                    this.pieces_object(text, pieces, object, depth - 1);
                });
            }
            TypeShape::Float(size) => (8 * u32::from(size), false),
            TypeShape::Strided { .. } | TypeShape::Other => (0, false),
        };
        let value = match bits {
            1..=64 => self.bits(pieces, (first, bits), signed, text.space, span),
            128 => {
                let kind = wide_kind(ty.shape(self.facts));
                let mut word = |bit| self.bits(pieces, (bit, 64), false, text.space, span)?.ok();
                match (kind, word(first), word(first.saturating_add(64))) {
                    (Some(kind), Some(low), Some(high)) => {
                        return self.append_wide(text, kind, (low, Some(high)));
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match (value, ty.shape(self.facts)) {
            (Some(Ok(value)), TypeShape::Ptr(to)) => self.append_pointer(text, value, to),
            (Some(Ok(value)), TypeShape::Ref(_)) => text.conv(ConvKind::Pointer, false, value),
            (Some(Ok(value)), TypeShape::Float(size)) => self.append_float(text, size, value),
            (Some(Ok(value)), _) => text.conv(conversion(signed), false, value),
            _ => text.lit("?"),
        }
    }

    /// Appends the elements of an array; `append` takes the offset of each in bytes. What has no number of
    /// elements (`int rows[]`) is `[...]`.
    fn elements(
        &mut self,
        text: &mut PrettyText,
        (elem, count): (CTy, u32),
        depth: u8,
        mut append: impl FnMut(&mut Self, &mut PrettyText, i64),
    ) {
        let size = elem.size(self.facts).and_then(|n| i64::try_from(n).ok());
        let Some(size) = size.filter(|_| depth > 0 && count > 0) else {
            return text.lit("[...]");
        };
        text.lit("[");
        for n in 0..count.min(ELEMENTS) {
            text.lit(if n > 0 { ", " } else { "" });
            if text.full() {
                break;
            }
            append(self, text, size.saturating_mul(n.into()));
        }
        text.lit(if count > ELEMENTS { ", ...]" } else { "]" });
    }

    /// Appends the members of a structure, each with its name and value.
    fn members(
        &mut self,
        text: &mut PrettyText,
        id: CTypeId,
        depth: u8,
        mut value: impl FnMut(&mut Self, &mut PrettyText, &Member),
    ) {
        if depth == 0 {
            return text.lit("{...}");
        }
        text.lit("{");
        for (n, m) in self.facts.members(id).into_iter().enumerate() {
            text.lit(if n > 0 { ", " } else { "" });
            if text.full() {
                text.lit("...");
                break;
            }
            text.lit(&format!(".{}=", m.name));
            value(self, text, &m);
        }
        text.lit("}");
    }

    pub(super) fn sprint(&mut self, mut text: PrettyText) -> HirExpr {
        text.flush();
        let PrettyText {
            pieces, args, span, ..
        } = text;
        self.tree.formats.push(Format { pieces });
        let form = PrintForm::Format(self.tree.formats.len() - 1);
        let kind = HirExprKind::Print {
            stream: Stream::Out,
            to_string: true,
            form,
            args,
        };
        self.str(kind, span)
    }

    /// Appends a value in a register; pointers to structures and strings are followed.
    fn pretty_value(&mut self, text: &mut PrettyText, value: HirExpr, ty: CTy, depth: u8) {
        match ty.shape(self.facts) {
            TypeShape::Int { signed, .. } => text.conv(conversion(signed), false, value),
            TypeShape::Ptr(to) => match to.shape(self.facts) {
                TypeShape::Struct(..) => self.append_object(text, value, to, depth),
                _ => self.append_pointer(text, value, to),
            },
            // A structure or an array, by its address.
            TypeShape::Struct(..) | TypeShape::Array { .. } => {
                self.append_object(text, value, ty, depth);
            }
            TypeShape::Ref(to) => self.append_object(text, value, to, depth),
            TypeShape::Strided { .. } => text.lit("[...]"),
            TypeShape::Float(size) => self.append_float(text, size, value),
            TypeShape::Other => text.conv(ConvKind::Pointer, false, value),
        }
    }

    /// Appends the object at an address, `ERROR` where it cannot be read.
    fn append_object(&mut self, text: &mut PrettyText, address: HirExpr, ty: CTy, depth: u8) {
        match ty.base {
            CBase::Id(id) if ty.ptrs == 0 => {
                let func = self.object_text(id, text.space, depth, text.span);
                let args = vec![address];
                let call = self.str(HirExprKind::Call { func, args }, text.span);
                text.append(call);
            }
            _ => self.pretty_object(text, address, ty, depth),
        }
    }

    /// Appends a pointer: a string from memory, in quotes, or an address.
    fn append_pointer(&mut self, text: &mut PrettyText, addr: HirExpr, to: CTy) {
        let TypeShape::Int { char: true, .. } = to.shape(self.facts) else {
            return text.conv(ConvKind::Pointer, false, addr);
        };
        let func = self.text_function(string_reader(text.space), text.span);
        let args = vec![addr];
        let call = self.str(HirExprKind::Call { func, args }, text.span);
        text.append(call);
    }

    /// The string at an address, of at most that many bytes.
    pub(super) fn read_string(
        &mut self,
        space: Space,
        address: HirExpr,
        limit: HirExpr,
        span: Span,
    ) -> HirExpr {
        let (f, args) = (string_reader(space), vec![address, limit]);
        self.str(HirExprKind::Intr { f, args }, span)
    }

    /// The hidden function that makes an object's text.
    fn object_text(&mut self, id: CTypeId, space: Space, depth: u8, span: Span) -> UnitIx {
        // Depths are small.
        let key = (id, depth | u8::from(space == Space::User) << 7);
        if let Some(unit) = self.pretty_units.get(&key) {
            return *unit;
        }
        let unit = self.hidden_function("pretty", span);
        self.pretty_units.insert(key, unit);
        let mut text = PrettyText::new(space, span);
        let addr = self.parameter(unit, span);
        self.pretty_object(&mut text, addr, CTy::id(id), depth);
        let value = self.sprint(text);
        self.return_or_error(unit, value, "ERROR", span);
        unit
    }

    /// The hidden function that reads a string and quotes it. A null address gives `0x0`.
    fn text_function(&mut self, f: Intrinsic, span: Span) -> UnitIx {
        let key = (facts::LONG, (f == Intrinsic::UserStr).into());
        if let Some(unit) = self.pretty_units.get(&key) {
            return *unit;
        }
        let unit = self.hidden_function("pretty_text", span);
        self.pretty_units.insert(key, unit);
        let addr = self.parameter(unit, span);
        let limit = self.imm(TEXT, span);
        let args = vec![addr, limit];
        let read = self.str(HirExprKind::Intr { f, args }, span);
        let value = self.quoted(read, span);
        let null = self.string_imm(b"0x0", span);
        let addr = self.parameter(unit, span);
        let value = self.choose(addr, [value, null], span);
        self.return_or_error(unit, value, "<unknown>", span);
        unit
    }

    /// A string in quotes.
    pub(super) fn quoted(&mut self, string: HirExpr, span: Span) -> HirExpr {
        let mut text = PrettyText::new(Space::Kernel, span);
        text.lit("\"");
        text.append(string);
        text.lit("\"");
        self.sprint(text)
    }

    /// A function from one number to a string; its body is added later.
    pub(super) fn hidden_function(&mut self, name: &str, span: Span) -> UnitIx {
        let ty = self.types.fresh_of(Base::Long, span);
        let ret = self.types.fresh_of(Base::Str, span);
        self.tree.units.push(Unit {
            name: name.into(),
            span,
            user: false,
            kind: UnitKind::Func {
                params: vec![LocalIx(0)],
                ret,
                has_value: true,
                next_alt: None,
            },
            locals: vec![Local {
                name: "addr".into(),
                span,
                ty,
                param: true,
                read: true,
                written: true,
                bound: true,
            }],
            body: Vec::new(),
        });
        UnitIx(self.tree.units.len() - 1)
    }

    pub(super) fn parameter(&mut self, unit: UnitIx, span: Span) -> HirExpr {
        let ty = self.tree.units[unit.0].locals[0].ty;
        LValue::Local(LocalIx(0)).read(ty, span)
    }

    /// `try { return value } catch { return error }`
    fn return_or_error(&mut self, unit: UnitIx, value: HirExpr, error: &str, span: Span) {
        let error = self.string_imm(error.as_bytes(), span);
        let ret = |e| {
            let kind = HirStmtKind::Return(Some(e));
            HirStmt { kind, span }
        };
        let kind = HirStmtKind::Try {
            body: vec![ret(value)],
            var: None,
            handler: vec![ret(error)],
        };
        self.tree.units[unit.0].body = vec![HirStmt { kind, span }];
    }

    /// Appends the members of a structure at an address.
    fn pretty_struct(&mut self, text: &mut PrettyText, addr: &HirExpr, id: CTypeId, depth: u8) {
        let span = text.span;
        if let (Some(variants), 1..) = (self.facts.variants(id), depth) {
            let mut number = |this: &mut Self, text: &PrettyText, m: &Member| {
                let TypeShape::Int { size, .. } = CTy::id(m.ty).shape(this.facts) else {
                    return None;
                };
                let address = this.offset(addr, i64::from(m.bit_offset / 8), span);
                Some(this.load_shown(text, address, size, false))
            };
            let mut append = |this: &mut Self, text: &mut PrettyText, m: &Member| {
                let address = this.offset(addr, i64::from(m.bit_offset / 8), span);
                this.append_object(text, address, CTy::id(m.ty), depth);
            };
            return self.append_variant(text, &variants, &mut number, &mut append);
        }
        self.members(text, id, depth, |this, text, m| {
            this.pretty_member(text, addr, m, depth - 1);
        });
    }

    fn pretty_member(&mut self, text: &mut PrettyText, addr: &HirExpr, m: &Member, depth: u8) {
        let (ty, span) = (CTy::id(m.ty), text.span);
        if m.bit_size == 0 {
            let address = self.offset(addr, i64::from(m.bit_offset / 8), span);
            return self.pretty_object(text, address, ty, depth);
        }
        let TypeShape::Int { size, signed, .. } = ty.shape(self.facts) else {
            return text.lit("?");
        };
        // The field's storage unit: the word of its own type, or the bytes from its first one.
        let word = u32::from(size.clamp(1, 8)) * 8;
        let width = m.bit_size.min(64) as u8;
        let value = if m.bit_offset % word + m.bit_size <= word {
            let start = m.bit_offset / word * word;
            let address = self.offset(addr, i64::from(start / 8), span);
            let raw = self.load_shown(text, address, size.min(8), false);
            self.extend(raw, (m.bit_offset - start).fit::<u8>(), width, signed, span)
        } else {
            let address = self.offset(addr, i64::from(m.bit_offset / 8), span);
            let shift = (m.bit_offset % 8) as u8;
            self.crossing_field(&address, (shift, width), signed, text.space, span)
        };
        text.conv(conversion(signed), false, value);
    }

    /// Reads an integer in the memory of a text's objects.
    fn load_shown(
        &mut self,
        text: &PrettyText,
        address: HirExpr,
        size: u8,
        signed: bool,
    ) -> HirExpr {
        self.load(text.space, address, size, signed, text.span)
    }

    /// Appends an object in memory.
    pub(super) fn pretty_object(
        &mut self,
        text: &mut PrettyText,
        address: HirExpr,
        ty: CTy,
        depth: u8,
    ) {
        match ty.shape(self.facts) {
            shape if wide_kind(shape.clone()).is_some_and(WideNumber::is_double_word) => {
                let high = self.offset(&address, 8, text.span);
                let high = self.load_shown(text, high, 8, false);
                let low = self.load_shown(text, address, 8, false);
                if let Some(kind) = wide_kind(shape) {
                    self.append_wide(text, kind, (low, Some(high)));
                }
            }
            TypeShape::Float(size @ (2 | 4 | 8)) => {
                let value = self.load_shown(text, address, size, false);
                self.append_float(text, size, value);
            }
            TypeShape::Float(_) => text.lit("?"),
            TypeShape::Int { size, signed, .. } => {
                let value = self.load_shown(text, address, size, signed);
                text.conv(conversion(signed), false, value);
            }
            TypeShape::Ptr(to) => {
                let value = self.load_shown(text, address, 8, false);
                self.append_pointer(text, value, to);
            }
            // The object itself could contain a reference to its structure.
            TypeShape::Ref(_) => {
                let value = self.load_shown(text, address, 8, false);
                text.conv(ConvKind::Pointer, false, value);
            }
            TypeShape::Array { elem, count } => {
                self.pretty_array(text, address, (elem, count), depth)
            }
            TypeShape::Struct(id, _) => self.pretty_struct(text, &address, id, depth),
            TypeShape::Strided { .. } => text.lit("[...]"),
            TypeShape::Other => text.lit("?"),
        }
    }

    fn pretty_array(
        &mut self,
        text: &mut PrettyText,
        address: HirExpr,
        (elem, count): (CTy, u32),
        depth: u8,
    ) {
        let span = text.span;
        if let TypeShape::Int { char: true, .. } = elem.shape(self.facts) {
            text.lit("\"");
            // An array without a number of elements (`char name[]`) ends at its NUL byte.
            let limit = match count {
                0 => TEXT,
                _ => TEXT.min(count.into()),
            };
            let limit = self.imm(limit, span);
            let read = self.read_string(text.space, address, limit, span);
            text.append(read);
            return text.lit("\"");
        }
        self.elements(text, (elem, count), depth, |this, text, offset| {
            let address = this.offset(&address, offset, span);
            this.pretty_object(text, address, elem, depth - 1);
        });
    }

    fn offset(&mut self, addr: &HirExpr, n: i64, span: Span) -> HirExpr {
        self.op_imm(BinOp::Add, addr.clone(), n, span)
    }
}
