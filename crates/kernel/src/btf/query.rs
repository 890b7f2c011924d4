//! Queries that walk from type to type. A damaged blob may contain cycles, so each walk is bounded.

use spile_ctype::CType;

use super::{Btf, BtfTypeId, Composite, Type};

/// Longest chain of qualifiers, typedefs or inner structs that is followed.
const MAX_DEPTH: u32 = 64;
/// Maximum number of types that one query visits.
const MAX_VISITS: u32 = 10_000;

/// A member, seen from the struct that was asked.
pub type Member = spile_ctype::Member<BtfTypeId>;

impl Btf {
    /// A type without its typedefs and qualifiers.
    #[must_use]
    pub fn ctype(&self, id: BtfTypeId) -> CType<BtfTypeId> {
        let composite = |body: Composite<'_>, union| CType::Struct {
            name: body.name.into(),
            size: body.size,
            union,
        };
        // No compiler makes a larger number.
        let sized = |size: u32, ty: &dyn Fn(u8) -> CType<BtfTypeId>| {
            u8::try_from(size).map_or(CType::Unknown, ty)
        };
        match self.ty(self.strip(id)) {
            Type::Void => CType::Void,
            // Compilers do not mark characters: any one-byte integer called char is one.
            Type::Int(i) => sized(i.size, &|size| CType::Int {
                size,
                signed: i.signed,
                char: i.is_char || (i.size == 1 && i.name.contains("char")),
            }),
            Type::Float { size, .. } => sized(size, &|size| CType::Float { size }),
            Type::Ptr(to) => CType::Ptr(to),
            Type::Array { elem, len } => CType::Array { elem, count: len },
            Type::Struct(body) => composite(body, false),
            Type::Union(body) => composite(body, true),
            Type::Enum(e) => sized(e.size, &|size| CType::Enum {
                size,
                signed: e.signed,
            }),
            Type::Func { .. } | Type::FuncProto(_) => CType::Func,
            _ => CType::Unknown,
        }
    }

    /// Follows typedefs, `const`, `volatile`, `restrict` and type tags to the
    /// type underneath.
    #[must_use]
    pub fn strip(&self, id: BtfTypeId) -> BtfTypeId {
        self.follow(id, true)
    }

    /// Like [`Btf::strip`], but stops at a typedef.
    #[must_use]
    pub fn strip_qualifiers(&self, id: BtfTypeId) -> BtfTypeId {
        self.follow(id, false)
    }

    fn follow(&self, mut id: BtfTypeId, typedefs: bool) -> BtfTypeId {
        for _ in 0..MAX_DEPTH {
            id = match self.ty(id) {
                Type::Volatile(ty) | Type::Const(ty) | Type::Restrict(ty) => ty,
                Type::TypeTag { ty, .. } => ty,
                Type::Typedef { ty, .. } if typedefs => ty,
                _ => return id,
            };
        }
        0
    }

    /// The struct or union under typedefs and qualifiers.
    #[must_use]
    pub fn composite(&self, id: BtfTypeId) -> Option<Composite<'_>> {
        match self.ty(self.strip(id)) {
            Type::Struct(body) | Type::Union(body) => Some(body),
            _ => None,
        }
    }

    /// The type that a pointer points to, seen through typedefs and qualifiers.
    #[must_use]
    pub fn pointee(&self, id: BtfTypeId) -> Option<BtfTypeId> {
        match self.ty(self.strip(id)) {
            Type::Ptr(to) => Some(to),
            _ => None,
        }
    }

    /// Finds a member by name in a struct or union (typedefs and qualifiers are
    /// seen through), also within its anonymous inner structs and unions.
    #[must_use]
    pub fn member(&self, id: BtfTypeId, name: &str) -> Option<Member> {
        if name.is_empty() {
            return None;
        }
        self.member_within(id, name, MAX_DEPTH, &mut { MAX_VISITS })
    }

    /// Offset in bytes of a member of a structure, by their names.
    #[must_use]
    pub fn offset_of(&self, structure: &str, member: &str) -> Option<u64> {
        let member = self.member(self.find_struct(structure)?, member)?;
        Some(u64::from(member.bit_offset / 8))
    }

    fn member_within(
        &self,
        id: BtfTypeId,
        name: &str,
        depth: u32,
        left: &mut u32,
    ) -> Option<Member> {
        *left = left.checked_sub(1)?;
        let body = self.composite(id)?;
        if let Some(m) = body.own_member(name) {
            return Some(Member {
                name: name.into(),
                bit_offset: m.bit_offset,
                bit_size: m.bit_size,
                ty: m.ty,
            });
        }
        let depth = depth.checked_sub(1)?;
        body.anonymous().find_map(|inner| {
            let mut member = self.member_within(inner.ty, name, depth, left)?;
            member.bit_offset = member.bit_offset.checked_add(inner.bit_offset)?;
            Some(member)
        })
    }

    /// All member names of a struct, including those of anonymous inner ones, for suggestions and
    /// listings.
    #[must_use]
    pub fn member_names(&self, id: BtfTypeId) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_names(id, &mut names, 8);
        names
    }

    fn collect_names<'a>(&'a self, id: BtfTypeId, names: &mut Vec<&'a str>, depth: u32) {
        const MOST: usize = 4096;
        let Some(body) = self.composite(id) else {
            return;
        };
        for m in body.members() {
            if names.len() >= MOST {
                return;
            }
            if !m.name.is_empty() {
                names.push(m.name);
            } else if depth > 0 {
                self.collect_names(m.ty, names, depth - 1);
            }
        }
    }

    /// Offset and size in bytes of the integer members of a struct, in order, including those of
    /// inner structs, without those of unions and arrays.
    #[must_use]
    pub fn numbers(&self, id: BtfTypeId) -> Vec<(u32, u32)> {
        let mut integers = Vec::new();
        self.numbers_within(id, 0, &mut { MAX_VISITS }, &mut integers);
        integers.sort_unstable();
        integers
    }

    fn numbers_within(
        &self,
        id: BtfTypeId,
        offset: u32,
        left: &mut u32,
        integers: &mut Vec<(u32, u32)>,
    ) {
        let Type::Struct(body) = self.ty(id) else {
            return;
        };
        for member in body.members().filter(|m| m.bit_size == 0) {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let (inner, offset) = (
                self.strip(member.ty),
                offset.saturating_add(member.bit_offset / 8),
            );
            match self.ty(inner) {
                Type::Int(int) => integers.push((offset, int.size)),
                Type::Enum(e) => integers.push((offset, e.size)),
                Type::Struct(_) => self.numbers_within(inner, offset, left, integers),
                _ => {}
            }
        }
    }

    /// Size of a value in bytes; `None` for void, functions, types that are only declared, and
    /// arrays too large to be real.
    #[must_use]
    pub fn size_of(&self, id: BtfTypeId) -> Option<u64> {
        self.size_within(id, MAX_DEPTH)
    }

    fn size_within(&self, id: BtfTypeId, depth: u32) -> Option<u64> {
        match self.ty(self.strip(id)) {
            Type::Int(int) => Some(int.size.into()),
            Type::Ptr(_) => Some(size_of::<usize>() as u64),
            Type::Array { elem, len } => {
                let elem = self.size_within(elem, depth.checked_sub(1)?)?;
                elem.checked_mul(len.into())
            }
            Type::Struct(body) | Type::Union(body) => Some(body.size.into()),
            Type::Enum(e) => Some(e.size.into()),
            Type::Float { size, .. } => Some(size.into()),
            Type::Var { ty, .. } => self.size_within(ty, depth.checked_sub(1)?),
            _ => None,
        }
    }

    /// The C spelling of a type: `struct task_struct *`, `const char *`,
    /// `int (*)(void *)`, `char[16]`.
    #[must_use]
    pub fn c_name(&self, id: BtfTypeId) -> String {
        self.c_declaration(id, "")
    }

    /// The C declaration of `name` with that type: `char comm[16]`.
    #[must_use]
    pub fn c_declaration(&self, id: BtfTypeId, name: &str) -> String {
        self.declare(id, name.to_owned(), MAX_DEPTH, &mut { MAX_VISITS })
    }

    /// Wraps `inner`, a declarator built so far, into the type `id`.
    fn declare(&self, id: BtfTypeId, inner: String, depth: u32, left: &mut u32) -> String {
        let (Some(depth), true) = (depth.checked_sub(1), *left > 0) else {
            return join("...", &inner);
        };
        *left -= 1;
        match self.ty(id) {
            Type::Void => join("void", &inner),
            Type::Int(int) => join(int.name, &inner),
            Type::Float { name, .. } | Type::Typedef { name, .. } => join(name, &inner),
            Type::Struct(body) => join(&tagged("struct", body.name), &inner),
            Type::Union(body) => join(&tagged("union", body.name), &inner),
            Type::Enum(e) => join(&tagged("enum", e.name), &inner),
            Type::Fwd { name, is_union } => join(
                &tagged(if is_union { "union" } else { "struct" }, name),
                &inner,
            ),
            Type::Ptr(to) => match self.ty(self.strip_qualifiers(to)) {
                Type::Array { .. } | Type::FuncProto(_) => {
                    self.declare(to, format!("(*{inner})"), depth, left)
                }
                _ => self.declare(to, format!("*{inner}"), depth, left),
            },
            Type::Array { elem, len } => self.declare(elem, format!("{inner}[{len}]"), depth, left),
            Type::FuncProto(proto) => {
                let mut params: Vec<String> = proto
                    .params()
                    .map(|p| match p.ty {
                        0 => "...".to_owned(),
                        ty => self.declare(ty, p.name.to_owned(), depth.min(8), left),
                    })
                    .collect();
                if params.is_empty() {
                    params.push("void".to_owned());
                }
                self.declare(
                    proto.ret,
                    format!("{inner}({})", params.join(", ")),
                    depth,
                    left,
                )
            }
            Type::Volatile(to) => self.qualify("volatile", to, inner, depth, left),
            Type::Const(to) => self.qualify("const", to, inner, depth, left),
            Type::Restrict(to) => self.qualify("restrict", to, inner, depth, left),
            Type::TypeTag { ty, .. } | Type::DeclTag { ty, .. } => {
                self.declare(ty, inner, depth, left)
            }
            Type::Func { name, proto } => {
                self.declare(proto, format!("{name}{inner}"), depth, left)
            }
            Type::Var { name, ty } => self.declare(ty, format!("{name}{inner}"), depth, left),
            Type::Datasec { name, .. } => join(name, &inner),
        }
    }

    /// A pointer's qualifier follows the star, any other precedes the type.
    fn qualify(
        &self,
        word: &str,
        to: BtfTypeId,
        inner: String,
        depth: u32,
        left: &mut u32,
    ) -> String {
        match self.ty(to) {
            Type::Ptr(_) => self.declare(to, join(word, &inner), depth, left),
            _ => format!("{word} {}", self.declare(to, inner, depth, left)),
        }
    }
}

fn join(base: &str, inner: &str) -> String {
    match inner.chars().next() {
        None => base.to_owned(),
        Some('[') => format!("{base}{inner}"),
        Some(_) => format!("{base} {inner}"),
    }
}

fn tagged(tag: &str, name: &str) -> String {
    if name.is_empty() {
        format!("{tag} {{...}}")
    } else {
        format!("{tag} {name}")
    }
}
