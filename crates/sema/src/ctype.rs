//! C types of expressions, and walks through structures.
//!
//! A walk turns `$x->a->b[i].c` into a list of [`WalkStep`]s from a base value, and a final operation.
//! All functions are pure functions of [`Facts`].
//!
//! During a walk, a position is either a value in a register or the address of an object in memory;
//! [`WalkStep::Deref`] follows pointers in memory.

use std::sync::Arc;

use spile_cast::Cast;
use spile_ctype::ObjectOp;
use spile_ir::wide::WideNumber;
use spile_syntax::ast::{Access, Expr, ExprKind, Ident, Span, UnOp};
use spile_syntax::diag::{DiagResult, Diagnostic};

use crate::codes;
use crate::facts::{CType, CTypeId, LONG, TypeFacts, TypeHome};

/// A C type: a type of the kernel's type information or a plain integer, and levels of pointers
/// around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CTy {
    /// The innermost type.
    pub base: CBase,
    /// Number of levels of pointers around it.
    pub ptrs: u8,
}

/// The innermost type of a [`CTy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CBase {
    /// A type of the kernel (it can be a pointer itself).
    Id(CTypeId),
    /// An integer.
    Int {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
        /// `char`: arrays of it are strings.
        char: bool,
    },
}

/// The outermost layer of a C type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeShape {
    /// An integer or enumeration.
    Int {
        /// Bytes.
        size: u8,
        /// Sign.
        signed: bool,
        /// `char`
        char: bool,
    },
    /// A pointer.
    Ptr(CTy),
    /// A reference of C++, whose value is an address.
    Ref(CTy),
    /// An array.
    Array {
        /// Element.
        elem: CTy,
        /// Number of elements; 0 if unknown.
        count: u32,
    },
    /// An array with steps of its own: see [`CType::Strided`].
    Strided {
        /// Element.
        elem: CTy,
        /// The address of the first element.
        data: Arc<[ObjectOp]>,
        /// For each dimension the distance of neighbours in bytes.
        strides: Arc<[Arc<[ObjectOp]>]>,
        /// For each dimension the number of elements, where it has an end.
        counts: Arc<[Option<Arc<[ObjectOp]>>]>,
    },
    /// Floating point, by its size in bytes.
    Float(u8),
    /// A structure or union; its type and size in bytes.
    Struct(CTypeId, u32),
    /// `void`, functions, and structures that are only declared.
    Other,
}

impl CTy {
    /// A 64-bit signed number.
    pub const LONG: CTy = CTy::int(8, true);

    /// A type of the kernel.
    pub const fn id(id: CTypeId) -> CTy {
        if matches!(id.home, TypeHome::Builtin) && id.number == LONG.number {
            return CTy::LONG;
        }
        CTy {
            base: CBase::Id(id),
            ptrs: 0,
        }
    }

    /// An integer of 1, 2, 4 or 8 bytes.
    pub const fn int(size: u8, signed: bool) -> CTy {
        CTy {
            base: CBase::Int {
                size,
                signed,
                char: false,
            },
            ptrs: 0,
        }
    }

    /// A pointer to this type.
    #[must_use]
    pub const fn pointer(self) -> CTy {
        CTy {
            ptrs: self.ptrs.saturating_add(1),
            ..self
        }
    }

    /// The outermost layer.
    pub fn shape(self, facts: &dyn TypeFacts) -> TypeShape {
        if self.ptrs > 0 {
            return TypeShape::Ptr(CTy {
                ptrs: self.ptrs - 1,
                ..self
            });
        }
        match self.base {
            CBase::Int { size, signed, char } => TypeShape::Int { size, signed, char },
            CBase::Id(id) => match facts.ctype(id) {
                CType::Int { size, signed, char } => TypeShape::Int { size, signed, char },
                CType::Enum { size, signed } => TypeShape::Int {
                    size,
                    signed,
                    char: false,
                },
                CType::Ptr(to) => TypeShape::Ptr(CTy::id(to)),
                CType::Ref(to) => TypeShape::Ref(CTy::id(to)),
                CType::Array { elem, count } => TypeShape::Array {
                    elem: CTy::id(elem),
                    count,
                },
                CType::Strided {
                    elem,
                    data,
                    strides,
                    counts,
                } => TypeShape::Strided {
                    elem: CTy::id(elem),
                    data,
                    strides,
                    counts,
                },
                CType::Struct { size, .. } => TypeShape::Struct(id, size),
                CType::Float { size } => TypeShape::Float(size),
                CType::Void | CType::Func | CType::Unknown => TypeShape::Other,
            },
        }
    }

    /// The type that a reference refers to; any other type itself.
    #[must_use]
    pub fn referred(self, facts: &dyn TypeFacts) -> CTy {
        match self.shape(facts) {
            TypeShape::Ref(to) => to,
            _ => self,
        }
    }

    /// Size of a value in bytes; `None` where it has no size.
    pub fn size(self, facts: &dyn TypeFacts) -> Option<u64> {
        match self.shape(facts) {
            TypeShape::Int { size, .. } | TypeShape::Float(size) => Some(size.into()),
            TypeShape::Ptr(_) | TypeShape::Ref(_) => Some(8),
            TypeShape::Struct(_, size) => Some(size.into()),
            TypeShape::Array { elem, count } => {
                // Arrays of arrays end after a few levels in sound type information.
                elem.size_within(facts, 8)?.checked_mul(count.into())
            }
            TypeShape::Strided { .. } | TypeShape::Other => None,
        }
    }

    fn size_within(self, facts: &dyn TypeFacts, depth: u32) -> Option<u64> {
        match self.shape(facts) {
            TypeShape::Array { elem, count } => elem
                .size_within(facts, depth.checked_sub(1)?)?
                .checked_mul(count.into()),
            _ => self.size(facts),
        }
    }

    /// The type's name in C.
    pub fn spell(self, facts: &dyn TypeFacts) -> String {
        let mut text = match self.base {
            CBase::Id(id) => facts.c_name(id),
            CBase::Int { char: true, .. } => "char".to_owned(),
            CBase::Int { size, signed, .. } => {
                let word = match size {
                    1 => "char",
                    2 => "short",
                    4 => "int",
                    _ => "long",
                };
                match signed {
                    true => word.to_owned(),
                    false => format!("unsigned {word}"),
                }
            }
        };
        if self.ptrs > 0 {
            if !text.ends_with('*') {
                text.push(' ');
            }
            text.extend(std::iter::repeat_n('*', self.ptrs.into()));
        }
        text
    }
}

/// A type from the text that `@cast` takes: `task_struct`, `struct task_struct *`,
/// `unsigned long`. `None` when the kernel has no such type.
pub fn parse_type(facts: &dyn TypeFacts, text: &str) -> Option<CTy> {
    parse_type_with(text, |name| facts.type_by_name(name))
}

/// Like [`parse_type`]; `named` looks up types that have names.
pub fn parse_type_with(text: &str, named: impl FnOnce(&str) -> Option<CTypeId>) -> Option<CTy> {
    let mut ptrs: u8 = 0;
    let mut words: Vec<&str> = Vec::new();
    for piece in text.split_inclusive('*') {
        let (body, star) = match piece.strip_suffix('*') {
            Some(body) => (body, true),
            None => (piece, false),
        };
        for word in body.split_whitespace() {
            match word {
                "const" | "volatile" | "restrict" | "__user" | "__rcu" => {}
                _ if ptrs > 0 => return None,
                _ => words.push(word),
            }
        }
        if star {
            ptrs = ptrs.checked_add(1)?;
        }
    }
    let base = match basic_type(&words) {
        Some(base) => base,
        None if words.is_empty() => return None,
        None => CBase::Id(named(&words.join(" "))?),
    };
    Some(CTy { base, ptrs })
}

/// A basic type such as `unsigned long int`, its words in any order.
fn basic_type(words: &[&str]) -> Option<CBase> {
    let count = |w: &str| words.iter().filter(|x| **x == w).count();
    let type_words = ["unsigned", "signed", "long", "short", "int", "char"];
    if words.is_empty() || !words.iter().all(|w| type_words.contains(w)) {
        return None;
    }
    let size = match (count("char"), count("short"), count("long")) {
        (1, 0, 0) => 1,
        (0, 1, 0) => 2,
        (0, 0, 0) => 4,
        (0, 0, 1 | 2) => 8,
        _ => return None,
    };
    Some(CBase::Int {
        size,
        signed: count("unsigned") == 0,
        char: size == 1,
    })
}

/// Maximum number of arrays in one another.
const MAX_ARRAYS: u32 = 8;

/// One step of a walk. The walk's value starts as the base's value (a number or an address).
#[derive(Debug, Clone, PartialEq)]
pub enum WalkStep {
    /// `v += n`
    Add(i64),
    /// `v += expr * scale`, where `expr` is an expression of the script.
    Index {
        /// The index.
        expr: Box<Expr>,
        /// Size of an element in bytes.
        scale: u32,
    },
    /// `v = *(u64 *)v`: follows a pointer that lies in memory.
    Deref,
    /// `v = data(v) + expr * stride(v) + ...`: elements of [`TypeShape::Strided`].
    Strided {
        /// The address of the first element, from the object's.
        data: Arc<[ObjectOp]>,
        /// The indexes, each with the distance of neighbours.
        terms: Vec<(Box<Expr>, Arc<[ObjectOp]>)>,
        /// The array, or a type beside it: where [`ObjectOp::Count`] numbers types.
        array: CTy,
    },
}

/// The final operation of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalAccess {
    /// The value itself: its low `size` bytes, extended to 64 bits (unchanged for 8).
    Value {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// Reads `size` bytes at the address.
    Load {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Sign.
        signed: bool,
    },
    /// Reads `size` bytes at the address, unsigned, then takes `width` bits from bit `shift`
    /// on and extends them.
    BitField {
        /// Bytes to read: 1, 2, 4 or 8.
        size: u8,
        /// Bits to the right of the field.
        shift: u8,
        /// Bits of the field, at least 1; `shift + width <= size * 8`.
        width: u8,
        /// Sign.
        signed: bool,
    },
    /// Reads the bytes at the address that have the field, and takes `width` bits from
    /// bit `shift` on: a field that no aligned word holds.
    CrossingField {
        /// Bits to the right of the field, less than 8.
        shift: u8,
        /// Bits of the field, 1 to 64.
        width: u8,
        /// Sign.
        signed: bool,
    },
    /// The two words at the address: as a number the low one where the number fits it, as text all.
    Wide(WideNumber),
    /// The address is the result: for `&`, a structure, or an array.
    Address,
}

/// A walk from a base value.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberWalk {
    /// The steps in order; neighbouring [`WalkStep::Add`]s are merged, and none adds 0.
    pub steps: Vec<WalkStep>,
    /// The final operation.
    pub last: FinalAccess,
    /// The C type of the result: for [`FinalAccess::Address`] a pointer (to the structure, or to an
    /// element of the array), otherwise the object's own type.
    pub ty: CTy,
    /// The C type for the result's text, `$x$`: an array's own type.
    pub shown: CTy,
}

/// The base of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkBase {
    /// A value of the type.
    Value(CTy),
    /// The address of an object of the type.
    Object(CTy),
    /// The address of the first of several objects of the type, over which a first index goes:
    /// `@cast(p, "t")[1]`.
    Objects(CTy),
}

/// A position during a walk.
#[derive(Clone, Copy, PartialEq)]
enum WalkPosition {
    Value(CTy),
    Object(CTy),
    BitField {
        bits: u32,
        width: u32,
        ty: CTy,
    },
    /// An array with steps of its own, after some of its indexes.
    Strided {
        ty: CTy,
        indexes: usize,
    },
}

/// Walks from a base through `access`; with `addr_of` the result is the address of the last object.
///
/// # Errors
/// A diagnostic at the first access that is not possible.
pub fn walk(
    facts: &dyn TypeFacts,
    from: WalkBase,
    access: &[Access],
    addr_of: bool,
    span: Span,
) -> DiagResult<MemberWalk> {
    let mut w = Walker {
        facts,
        steps: Vec::new(),
    };
    let mut position = match from {
        WalkBase::Value(ty) => WalkPosition::Value(ty),
        WalkBase::Object(ty) | WalkBase::Objects(ty) => WalkPosition::Object(ty),
    };
    for (n, a) in access.iter().enumerate() {
        position = match a {
            Access::Member(name) => w.member(position, name)?,
            Access::Index(e) => {
                let over_objects = n == 0 && matches!(from, WalkBase::Objects(_));
                w.index(position, e, over_objects, span)?
            }
        };
    }
    w.finish(position, addr_of, span)
}

struct Walker<'a> {
    facts: &'a dyn TypeFacts,
    steps: Vec<WalkStep>,
}

impl Walker<'_> {
    fn add(&mut self, n: i64) {
        match self.steps.last_mut() {
            Some(WalkStep::Add(m)) => {
                *m = m.wrapping_add(n);
                if *m == 0 {
                    self.steps.pop();
                }
            }
            _ if n == 0 => {}
            _ => self.steps.push(WalkStep::Add(n)),
        }
    }

    /// The object that a reference stands for; any other position itself.
    fn referred(&mut self, position: WalkPosition) -> WalkPosition {
        let (WalkPosition::Value(ty) | WalkPosition::Object(ty)) = position else {
            return position;
        };
        let TypeShape::Ref(to) = ty.shape(self.facts) else {
            return position;
        };
        if let WalkPosition::Object(_) = position {
            self.steps.push(WalkStep::Deref);
        }
        WalkPosition::Object(to)
    }

    fn member(&mut self, position: WalkPosition, name: &Ident) -> DiagResult<WalkPosition> {
        let (holder, ty) = match self.referred(position) {
            WalkPosition::Object(ty) => match ty.shape(self.facts) {
                TypeShape::Ptr(to) => {
                    self.steps.push(WalkStep::Deref);
                    (to, ty)
                }
                _ => (ty, ty),
            },
            WalkPosition::Value(ty) => match ty.shape(self.facts) {
                TypeShape::Ptr(to) => (to, ty),
                _ => return self.not_struct(ty, name),
            },
            WalkPosition::BitField { ty, .. } | WalkPosition::Strided { ty, .. } => {
                return self.not_struct(ty, name);
            }
        };
        let TypeShape::Struct(id, _) = holder.shape(self.facts) else {
            return self.not_struct(ty, name);
        };
        let Some(m) = self.facts.member(id, &name.name) else {
            return self.no_member(id, name);
        };
        let ty = CTy::id(m.ty);
        if m.bit_size == 0 {
            self.add(i64::from(m.bit_offset / 8));
            return Ok(WalkPosition::Object(ty));
        }
        Ok(WalkPosition::BitField {
            bits: m.bit_offset,
            width: m.bit_size,
            ty,
        })
    }

    fn index(
        &mut self,
        position: WalkPosition,
        e: &Expr,
        over: bool,
        span: Span,
    ) -> DiagResult<WalkPosition> {
        let refuse = |ty: CTy| {
            let text = format!("cannot index a value of type `{}`", ty.spell(self.facts));
            let d = Diagnostic::error(codes::CANNOT_DEREF, text);
            d.label(e.span, "not a pointer or an array").err()
        };
        let referred = self.referred(position);
        if let Some(next) = self.index_strided(referred, e, over) {
            return Ok(next);
        }
        // `r[0]` of a reference to a number or a structure is that object, as it is of a pointer.
        let of_reference = |ty: CTy| {
            use TypeShape::{Array, Ptr, Strided};
            let shape = ty.shape(self.facts);
            referred != position && !matches!(shape, Ptr(_) | Array { .. } | Strided { .. })
        };
        let elem = match referred {
            WalkPosition::Object(ty) if over || of_reference(ty) => ty,
            WalkPosition::Object(ty) => match ty.shape(self.facts) {
                TypeShape::Ptr(to) => {
                    self.steps.push(WalkStep::Deref);
                    to
                }
                TypeShape::Array { elem, .. } => elem,
                _ => return refuse(ty),
            },
            WalkPosition::Value(ty) => match ty.shape(self.facts) {
                TypeShape::Ptr(to) => to,
                _ => return refuse(ty),
            },
            WalkPosition::BitField { ty, .. } | WalkPosition::Strided { ty, .. } => {
                return refuse(ty);
            }
        };
        let known = |size: &u64| {
            // A number of elements that only the running program has is 0.
            *size > 0 || !matches!(elem.shape(self.facts), TypeShape::Array { .. })
        };
        let size = elem.size(self.facts).filter(known);
        if size.is_none()
            && let Some(step) = self.counted_size(elem, MAX_ARRAYS)
        {
            self.steps.push(WalkStep::Strided {
                data: [ObjectOp::Object].into(),
                terms: vec![(Box::new(e.clone()), step.into())],
                array: elem,
            });
            return Ok(WalkPosition::Object(elem));
        }
        let Some(scale) = size.and_then(|s| u32::try_from(s).ok()) else {
            let text = format!("the size of `{}` is not known", elem.spell(self.facts));
            return Diagnostic::error(codes::CANNOT_DEREF, text).at(span).err();
        };
        match constant(e) {
            Some(i) => self.add(i.wrapping_mul(scale.into())),
            None => self.steps.push(WalkStep::Index {
                expr: Box::new(e.clone()),
                scale,
            }),
        }
        Ok(WalkPosition::Object(elem))
    }

    /// The size of an array whose number of elements only the running program has.
    fn counted_size(&self, ty: CTy, depth: u32) -> Option<Vec<ObjectOp>> {
        let TypeShape::Array { elem, count } = ty.shape(self.facts) else {
            let size = ty.size(self.facts)?;
            return Some(vec![ObjectOp::Const(i64::try_from(size).ok()?)]);
        };
        let mut size = self.counted_size(elem, depth.checked_sub(1)?)?;
        let count = match (count, ty.base) {
            (0, CBase::Id(id)) => ObjectOp::Count(id.number),
            _ => ObjectOp::Const(count.into()),
        };
        size.extend([count, ObjectOp::Mul]);
        Some(size)
    }

    /// The next index of an array with steps of its own; `None` for other positions.
    fn index_strided(
        &mut self,
        position: WalkPosition,
        e: &Expr,
        over: bool,
    ) -> Option<WalkPosition> {
        let (ty, indexes) = match position {
            WalkPosition::Object(ty) if !over => (ty, 0),
            WalkPosition::Strided { ty, indexes } => (ty, indexes),
            _ => return None,
        };
        let TypeShape::Strided {
            elem,
            data,
            strides,
            ..
        } = ty.shape(self.facts)
        else {
            return None;
        };
        let term = (Box::new(e.clone()), strides.get(indexes)?.clone());
        match self.steps.last_mut() {
            Some(WalkStep::Strided { terms, .. }) if indexes > 0 => terms.push(term),
            _ => self.steps.push(WalkStep::Strided {
                data,
                terms: vec![term],
                array: ty,
            }),
        }
        Some(match indexes + 1 < strides.len() {
            true => WalkPosition::Strided {
                ty,
                indexes: indexes + 1,
            },
            false => WalkPosition::Object(elem),
        })
    }

    fn finish(
        mut self,
        mut position: WalkPosition,
        addr_of: bool,
        span: Span,
    ) -> DiagResult<MemberWalk> {
        if addr_of {
            position = self.referred(position);
        }
        let shown = match position {
            WalkPosition::Value(ty) | WalkPosition::Object(ty) if !addr_of => Some(ty),
            _ => None,
        };
        let (last, ty) = match (position, addr_of) {
            (WalkPosition::Object(ty), true) => (FinalAccess::Address, ty.pointer()),
            (WalkPosition::Value(_), true) => {
                let d = Diagnostic::error(codes::BAD_ADDRESS, "this value has no address");
                let d = d.label(span, "is in no memory");
                return d.help("take the address of a member: `&$x->member`").err();
            }
            (WalkPosition::Strided { ty, .. }, _) => match ty.shape(self.facts) {
                TypeShape::Strided { elem, .. } => (FinalAccess::Address, elem.pointer()),
                _ => return self.not_scalar(ty, span),
            },
            (WalkPosition::BitField { .. }, true) => {
                let d = Diagnostic::error(codes::BAD_ADDRESS, "a bit-field has no address");
                return d.at(span).err();
            }
            (WalkPosition::Object(ty), false) => self.whole(ty, span)?,
            (WalkPosition::Value(ty), false) => match scalar(&ty.shape(self.facts)) {
                Some((size, signed)) => (FinalAccess::Value { size, signed }, ty),
                None => return self.not_scalar(ty, span),
            },
            (WalkPosition::BitField { bits, width, ty }, false) => {
                let Some(last) = self.bit_field(bits, width, ty) else {
                    return self.not_scalar(ty, span);
                };
                (last, ty)
            }
        };
        Ok(MemberWalk {
            steps: self.steps,
            last,
            ty,
            shown: shown.unwrap_or(ty),
        })
    }

    /// How a whole object in memory is read, and as which type.
    fn whole(&mut self, ty: CTy, span: Span) -> DiagResult<(FinalAccess, CTy)> {
        let shape = ty.shape(self.facts);
        if let Some((size, signed)) = scalar(&shape) {
            return Ok((FinalAccess::Load { size, signed }, ty));
        }
        Ok(match shape {
            TypeShape::Int {
                size: 16, signed, ..
            } => (FinalAccess::Wide(WideNumber::of_int(signed)), ty),
            TypeShape::Float(16) => (FinalAccess::Wide(WideNumber::Extended), ty),
            TypeShape::Struct(..) => (FinalAccess::Address, ty.pointer()),
            TypeShape::Array { elem, .. } => (FinalAccess::Address, elem.pointer()),
            TypeShape::Strided { elem, data, .. } => {
                let terms = Vec::new();
                self.steps.push(WalkStep::Strided {
                    data,
                    terms,
                    array: ty,
                });
                (FinalAccess::Address, elem.pointer())
            }
            _ => return self.not_scalar(ty, span),
        })
    }

    /// Chooses the bytes to read: aligned to their size, so that no read leaves the structure.
    fn bit_field(&mut self, bits: u32, width: u32, ty: CTy) -> Option<FinalAccess> {
        let signed = matches!(ty.shape(self.facts), TypeShape::Int { signed: true, .. });
        let aligned = [8u32, 16, 32, 64].into_iter().find_map(|unit| {
            let shift = bits % unit;
            if shift + width > unit || width == 0 {
                return None;
            }
            self.add(i64::from((bits - shift) / 8));
            Some(FinalAccess::BitField {
                size: (unit / 8).fit(),
                shift: shift.fit(),
                width: width.fit(),
                signed,
            })
        });
        if aligned.is_none() && matches!(width, 1..=64) {
            self.add(i64::from(bits / 8));
            return Some(FinalAccess::CrossingField {
                shift: (bits % 8) as u8,
                width: width.fit(),
                signed,
            });
        }
        aligned
    }

    fn not_struct<T>(&self, ty: CTy, name: &Ident) -> DiagResult<T> {
        let home = match ty.base {
            CBase::Id(id) => self.facts.type_home(id),
            _ => "the kernel".into(),
        };
        let label = format!("not a structure, or {home} lacks its members");
        let d = without_member(codes::NOT_STRUCT, name, &ty.spell(self.facts));
        d.label(name.span, label).err()
    }

    fn no_member<T>(&self, id: CTypeId, name: &Ident) -> DiagResult<T> {
        let members = self.facts.members(id);
        let label = match &*self.facts.type_home(id) {
            "the kernel" => "no such member in this kernel".into(),
            home => format!("no such member in {home}"),
        };
        let d = without_member(codes::NO_MEMBER, name, &self.facts.c_name(id));
        let d = d.label(name.span, label);
        d.did_you_mean(&name.name, members.iter().map(|m| &*m.name))
            .err()
    }

    fn not_scalar<T>(&self, ty: CTy, span: Span) -> DiagResult<T> {
        let text = format!("a value of type `{}` cannot be used", ty.spell(self.facts));
        let d = Diagnostic::error(codes::NOT_SCALAR, text);
        d.label(span, "neither a number nor an address").err()
    }
}

fn without_member(code: &'static str, name: &Ident, ty: &str) -> Diagnostic {
    let text = format!("unable to find member `{}` for `{ty}`", name.name);
    Diagnostic::error(code, text)
}

/// The value of a constant index.
pub(crate) fn constant(e: &Expr) -> Option<i64> {
    match &e.kind {
        ExprKind::Num(n) => Some(*n),
        ExprKind::Unary(UnOp::Neg, inner) => match inner.kind {
            ExprKind::Num(n) => Some(n.wrapping_neg()),
            _ => None,
        },
        _ => None,
    }
}

/// Size in bytes and signedness of a type that one word holds. A number in floating point is its bits.
fn scalar(shape: &TypeShape) -> Option<(u8, bool)> {
    match *shape {
        TypeShape::Int {
            size: size @ (1 | 2 | 4 | 8),
            signed,
            ..
        } => Some((size, signed)),
        TypeShape::Float(size @ (2 | 4 | 8)) => Some((size, false)),
        TypeShape::Ptr(_) | TypeShape::Ref(_) => Some((8, false)),
        _ => None,
    }
}
