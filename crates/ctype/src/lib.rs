//! C types, shared by all who read or use them: the kernel's BTF, the DWARF of programs, and
//! analysis. These number types differently, so the number is a parameter `T`; it stands for a type
//! as declared, with typedefs and qualifiers.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::sync::Arc;

/// A C type with `typedef`, `const`, `volatile`, `restrict` and type tags removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CType<T> {
    /// `void`
    Void,
    /// An integer, `_Bool` included.
    Int {
        /// Size in bytes: 1, 2, 4, 8 or 16.
        size: u8,
        /// Whether it is signed.
        signed: bool,
        /// `char` of any sign (arrays of it are strings).
        char: bool,
    },
    /// Floating point.
    Float {
        /// Size in bytes.
        size: u8,
    },
    /// A pointer to the type.
    Ptr(T),
    /// A reference to the type, as C++ has it: in memory and in registers, its address.
    Ref(T),
    /// An array.
    Array {
        /// Type of an element.
        elem: T,
        /// Number of elements; 0 for a flexible array member and if unknown.
        count: u32,
    },
    /// An array whose location and steps its object has, as Fortran's descriptors do, or whose first index
    /// steps least.
    Strided {
        /// Type of an element.
        elem: T,
        /// The address of the first element.
        data: Arc<[ObjectOp]>,
        /// For each dimension the distance of neighbours in bytes.
        strides: Arc<[Arc<[ObjectOp]>]>,
        /// For each dimension the number of elements, where it has an end.
        counts: Arc<[Option<Arc<[ObjectOp]>>]>,
    },
    /// A structure, class or union with known members.
    Struct {
        /// Its tag, empty when it has none.
        name: Arc<str>,
        /// Size in bytes.
        size: u32,
        /// Whether it is a union.
        union: bool,
    },
    /// An enumeration.
    Enum {
        /// Size in bytes.
        size: u8,
        /// Whether it is signed.
        signed: bool,
    },
    /// A function.
    Func,
    /// A structure that is only declared, or any other type without a value.
    Unknown,
}

/// A step of a program about an object: a stack machine on 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectOp {
    /// Pushes the object's address.
    Object,
    /// Pushes a constant.
    Const(i64),
    /// Pops an address, pushes the integer there.
    Load {
        /// 1, 2, 4 or 8 bytes.
        size: u8,
        /// Whether the integer has a sign.
        signed: bool,
    },
    /// Pops b, then a, and pushes `a + b`.
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// Pushes the number of elements that the running program has for the array with that type number,
    /// among the types of the file.
    Count(u32),
}

impl<T> CType<T> {
    /// The same type with other type numbers.
    pub fn map<U>(self, number: impl FnOnce(T) -> U) -> CType<U> {
        match self {
            CType::Void => CType::Void,
            CType::Int { size, signed, char } => CType::Int { size, signed, char },
            CType::Float { size } => CType::Float { size },
            CType::Ptr(to) => CType::Ptr(number(to)),
            CType::Ref(to) => CType::Ref(number(to)),
            CType::Array { elem, count } => CType::Array {
                elem: number(elem),
                count,
            },
            CType::Strided {
                elem,
                data,
                strides,
                counts,
            } => CType::Strided {
                elem: number(elem),
                data,
                strides,
                counts,
            },
            CType::Struct { name, size, union } => CType::Struct { name, size, union },
            CType::Enum { size, signed } => CType::Enum { size, signed },
            CType::Func => CType::Func,
            CType::Unknown => CType::Unknown,
        }
    }
}

/// A member of a structure, relative to the structure in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<T> {
    /// Its name.
    pub name: Arc<str>,
    /// Offset in bits from the start of that structure.
    pub bit_offset: u32,
    /// Width of a bit-field in bits; 0 for an ordinary member.
    pub bit_size: u32,
    /// Its type as declared.
    pub ty: T,
}

impl<T> Member<T> {
    /// The same member with other type numbers.
    pub fn map<U>(self, number: impl FnOnce(T) -> U) -> Member<U> {
        Member {
            name: self.name,
            bit_offset: self.bit_offset,
            bit_size: self.bit_size,
            ty: number(self.ty),
        }
    }
}

/// A structure of which one of several variants is there, as Rust's enumerations are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variants<T> {
    /// The number that selects the variant; without it, there is one variant.
    pub discriminant: Option<Member<T>>,
    /// The variants.
    pub variants: Vec<Variant<T>>,
}

/// A variant of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant<T> {
    /// The discriminant's value; `None`: all values that no other variant has.
    pub value: Option<i64>,
    /// Its members.
    pub members: Vec<Member<T>>,
}

impl<T> Variants<T> {
    /// The same variants with other type numbers.
    pub fn map<U>(self, number: impl Fn(T) -> U) -> Variants<U> {
        let variant = |v: Variant<T>| Variant {
            value: v.value,
            members: v.members.into_iter().map(|m| m.map(&number)).collect(),
        };
        Variants {
            discriminant: self.discriminant.map(|m| m.map(&number)),
            variants: self.variants.into_iter().map(variant).collect(),
        }
    }
}
