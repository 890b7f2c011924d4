//! The view of one BTF type: an enum that borrows from the blob.

use super::Btf;

/// The number of a type in its blob; 0 is `void`.
pub type BtfTypeId = u32;

/// The kinds of records, numbered as in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // each is the format's own word
pub enum BtfKind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    Datasec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

/// The kinds in the order of their numbers, with the bytes that each has after the 12-byte header of a record:
/// always, and for each of the `vlen` entries.
const KINDS: [(BtfKind, Trailer); 19] = [
    (BtfKind::Int, t(4, 0)),
    (BtfKind::Ptr, t(0, 0)),
    (BtfKind::Array, t(12, 0)),
    (BtfKind::Struct, t(0, 12)),
    (BtfKind::Union, t(0, 12)),
    (BtfKind::Enum, t(0, 8)),
    (BtfKind::Fwd, t(0, 0)),
    (BtfKind::Typedef, t(0, 0)),
    (BtfKind::Volatile, t(0, 0)),
    (BtfKind::Const, t(0, 0)),
    (BtfKind::Restrict, t(0, 0)),
    (BtfKind::Func, t(0, 0)), // its vlen is the linkage
    (BtfKind::FuncProto, t(0, 8)),
    (BtfKind::Var, t(4, 0)),
    (BtfKind::Datasec, t(0, 12)),
    (BtfKind::Float, t(0, 0)),
    (BtfKind::DeclTag, t(4, 0)),
    (BtfKind::TypeTag, t(0, 0)),
    (BtfKind::Enum64, t(0, 12)),
];

/// Sizes of the data after the 12-byte header of a record.
pub(super) struct Trailer {
    /// Bytes that the kind always has.
    pub(super) once: usize,
    /// Bytes for each of the `vlen` entries.
    pub(super) each: usize,
}

const fn t(once: usize, each: usize) -> Trailer {
    Trailer { once, each }
}

/// The row of a kind by its number; `None` if it is unknown.
fn row(kind: u8) -> Option<&'static (BtfKind, Trailer)> {
    KINDS.get(usize::from(kind).checked_sub(1)?)
}

impl BtfKind {
    pub(super) fn from_raw(raw: u8) -> Option<BtfKind> {
        row(raw).map(|(kind, _)| *kind)
    }
}

/// The data after the header of a record of that kind; `None` if the kind is unknown.
pub(super) fn trailer(kind: u8) -> Option<&'static Trailer> {
    row(kind).map(|(_, trailer)| trailer)
}

/// The 32-bit word at `offset`; 0 outside of the bytes.
pub(super) fn word(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map_or(0, |w| u32::from_ne_bytes(*w))
}

/// One type, as a view into the blob.
#[derive(Debug, Clone, Copy)]
pub enum Type<'a> {
    /// `void`, and any id outside of a damaged blob.
    Void,
    /// A basic integer type.
    Int(Int<'a>),
    /// A pointer to the type.
    Ptr(BtfTypeId),
    /// An array of `len` elements of `elem`.
    Array {
        /// Type of an element.
        elem: BtfTypeId,
        /// Number of elements; 0 for a flexible array member.
        len: u32,
    },
    /// `struct`.
    Struct(Composite<'a>),
    /// `union`.
    Union(Composite<'a>),
    /// `enum`, of 32 or 64 bits.
    Enum(Enum<'a>),
    /// A `struct` or `union` that is only declared.
    Fwd {
        /// Its tag.
        name: &'a str,
        /// Whether it is a union.
        is_union: bool,
    },
    /// `typedef`.
    Typedef {
        /// The new name.
        name: &'a str,
        /// The type that it names.
        ty: BtfTypeId,
    },
    /// `volatile` type.
    Volatile(BtfTypeId),
    /// `const` type.
    Const(BtfTypeId),
    /// `restrict` pointer.
    Restrict(BtfTypeId),
    /// A function.
    Func {
        /// Its name.
        name: &'a str,
        /// Its prototype, a [`Type::FuncProto`].
        proto: BtfTypeId,
    },
    /// The type of a function.
    FuncProto(FuncProto<'a>),
    /// A variable.
    Var {
        /// Its name.
        name: &'a str,
        /// Its type.
        ty: BtfTypeId,
    },
    /// A section of variables.
    Datasec {
        /// Such as `.data..percpu`.
        name: &'a str,
        /// Size in bytes.
        size: u32,
    },
    /// A floating-point type.
    Float {
        /// Such as `double`.
        name: &'a str,
        /// Size in bytes.
        size: u32,
    },
    /// An attribute of a declaration.
    DeclTag {
        /// Its text.
        name: &'a str,
        /// The type that it is on.
        ty: BtfTypeId,
        /// The member or parameter that it applies to; -1 for the type itself.
        component: i32,
    },
    /// An attribute of a type, such as `user` or `rcu`.
    TypeTag {
        /// Its text.
        name: &'a str,
        /// The type that it qualifies.
        ty: BtfTypeId,
    },
}

/// A basic integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int<'a> {
    /// Such as `long unsigned int`.
    pub name: &'a str,
    /// Size in bytes.
    pub size: u32,
    /// Width of the value in bits; less than the storage only in old bit-field encodings.
    pub bits: u32,
    /// Whether the value is signed.
    pub signed: bool,
    /// Whether it is marked as a character (compilers rarely do).
    pub is_char: bool,
    /// Whether it is `_Bool`.
    pub is_bool: bool,
}

/// A `struct` or `union`.
#[derive(Debug, Clone, Copy)]
pub struct Composite<'a> {
    /// Its tag, empty if anonymous.
    pub name: &'a str,
    /// Size in bytes.
    pub size: u32,
    btf: &'a Btf,
    entries: &'a [u8],
    bit_fields: bool,
}

/// A member as its own struct records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMember<'a> {
    /// Empty for an anonymous struct or union.
    pub name: &'a str,
    /// Its type.
    pub ty: BtfTypeId,
    /// Bits from the start of this struct.
    pub bit_offset: u32,
    /// Bits of a bit-field; 0 for an ordinary member.
    pub bit_size: u32,
}

impl<'a> Composite<'a> {
    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() / 12
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The members in order; anonymous inner structs are members without a name.
    pub fn members(&self) -> impl Iterator<Item = RawMember<'a>> + use<'a> {
        let this = *self;
        this.entries.chunks_exact(12).map(move |e| this.member(e))
    }

    /// The members of that name in this struct itself.
    fn named<'n>(&self, name: &'n str) -> impl Iterator<Item = RawMember<'a>> + use<'a, 'n> {
        let this = *self;
        let entries = this.entries.chunks_exact(12);
        entries
            .filter(move |e| this.btf.string_is(word(e, 0), name))
            .map(move |e| this.member(e))
    }

    fn member(&self, entry: &'a [u8]) -> RawMember<'a> {
        let packed = word(entry, 8);
        let (bit_offset, bit_size) = if self.bit_fields {
            (packed & 0xff_ffff, packed >> 24)
        } else {
            (packed, 0)
        };
        RawMember {
            name: self.btf.string(word(entry, 0)),
            ty: word(entry, 4),
            bit_offset,
            bit_size,
        }
    }

    /// The member of that name in this struct itself.
    pub(super) fn own_member(&self, name: &str) -> Option<RawMember<'a>> {
        self.named(name).next()
    }

    /// Members without a name: inner anonymous structs and unions, and padding.
    pub(super) fn anonymous(&self) -> impl Iterator<Item = RawMember<'a>> + use<'a> {
        self.named("")
    }
}

/// An enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Enum<'a> {
    /// Its tag, empty if anonymous.
    pub name: &'a str,
    /// Size in bytes.
    pub size: u32,
    /// Whether its values are signed.
    pub signed: bool,
    btf: &'a Btf,
    entries: &'a [u8],
    stride: usize,
}

/// A constant of an enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnumValue<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value; an unsigned 64-bit value is shown as the same 64 bits.
    pub value: i64,
}

impl<'a> Enum<'a> {
    /// The constants in order.
    pub fn values(&self) -> impl Iterator<Item = EnumValue<'a>> + use<'a> {
        let this = *self;
        this.entries
            .chunks_exact(this.stride)
            .map(move |e| this.value(e))
    }

    fn value(&self, entry: &'a [u8]) -> EnumValue<'a> {
        let low = word(entry, 4);
        let value = match (self.stride, self.signed) {
            (12, _) => (u64::from(word(entry, 8)) << 32 | u64::from(low)).cast_signed(),
            (_, true) => i64::from(low.cast_signed()),
            (_, false) => i64::from(low),
        };
        EnumValue {
            name: self.btf.string(word(entry, 0)),
            value,
        }
    }

    /// The constant whose name is at one of the offsets.
    pub(super) fn values_by_offset(&self, offsets: &[u32]) -> Option<EnumValue<'a>> {
        self.entries
            .chunks_exact(self.stride)
            .find(|e| offsets.contains(&word(e, 0)))
            .map(|e| self.value(e))
    }
}

/// The type of a function.
#[derive(Debug, Clone, Copy)]
pub struct FuncProto<'a> {
    /// The return type; 0 for none.
    pub ret: BtfTypeId,
    btf: &'a Btf,
    entries: &'a [u8],
}

/// A parameter of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param<'a> {
    /// Its name; empty in the prototype of a pointer.
    pub name: &'a str,
    /// Its type; 0 stands for `...` at the end.
    pub ty: BtfTypeId,
}

impl<'a> FuncProto<'a> {
    /// The parameters in order.
    pub fn params(&self) -> impl ExactSizeIterator<Item = Param<'a>> + use<'a> {
        let btf = self.btf;
        self.entries.chunks_exact(8).map(move |e| Param {
            name: btf.string(word(e, 0)),
            ty: word(e, 4),
        })
    }
}

impl Btf {
    /// The view of a type. An id outside of the blob reads as [`Type::Void`]:
    /// only a damaged blob has such ids.
    #[must_use]
    pub fn ty(&self, id: BtfTypeId) -> Type<'_> {
        if let Err(base) = self.location(id) {
            return base.ty(id);
        }
        let (Some(kind), Some(record)) = (self.kind(id), self.record(id)) else {
            return Type::Void;
        };
        let info = word(record, 4);
        let flag = info >> 31 != 0;
        let size = word(record, 8); // or the id of the type referred to
        let name = self.string(word(record, 0));
        let (_, fixed) = &KINDS[kind as usize - 1];
        let first = 12 + fixed.once;
        // `scan` made sure that all entries lie within the blob.
        let entries = record
            .get(first..first + fixed.each * (info & 0xffff) as usize)
            .unwrap_or_default();
        match kind {
            BtfKind::Int => Type::Int(int(name, size, word(record, 12))),
            BtfKind::Ptr => Type::Ptr(size),
            BtfKind::Array => Type::Array {
                elem: word(record, 12),
                len: word(record, 20),
            },
            BtfKind::Struct | BtfKind::Union => {
                let body = Composite {
                    name,
                    size,
                    btf: self,
                    entries,
                    bit_fields: flag,
                };
                if kind == BtfKind::Struct {
                    Type::Struct(body)
                } else {
                    Type::Union(body)
                }
            }
            BtfKind::Enum | BtfKind::Enum64 => Type::Enum(Enum {
                name,
                size,
                signed: flag,
                btf: self,
                entries,
                stride: fixed.each,
            }),
            BtfKind::Fwd => Type::Fwd {
                name,
                is_union: flag,
            },
            BtfKind::Typedef => Type::Typedef { name, ty: size },
            BtfKind::Volatile => Type::Volatile(size),
            BtfKind::Const => Type::Const(size),
            BtfKind::Restrict => Type::Restrict(size),
            BtfKind::Func => Type::Func { name, proto: size },
            BtfKind::FuncProto => Type::FuncProto(FuncProto {
                ret: size,
                btf: self,
                entries,
            }),
            BtfKind::Var => Type::Var { name, ty: size },
            BtfKind::Datasec => Type::Datasec { name, size },
            BtfKind::Float => Type::Float { name, size },
            BtfKind::DeclTag => Type::DeclTag {
                name,
                ty: size,
                component: word(record, 12).cast_signed(),
            },
            BtfKind::TypeTag => Type::TypeTag { name, ty: size },
        }
    }
}

/// Decodes the extra word of an integer: encoding, offset (unused since
/// bit-fields carry their own) and bits.
fn int(name: &str, size: u32, extra: u32) -> Int<'_> {
    let encoding = extra >> 24 & 0xf;
    Int {
        name,
        size,
        bits: extra & 0xff,
        signed: encoding & 1 != 0,
        is_char: encoding & 2 != 0,
        is_bool: encoding & 4 != 0,
    }
}
