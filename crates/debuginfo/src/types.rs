//! Types of the DWARF by small numbers: their kinds, members and names in C.

use std::sync::{Arc, MutexGuard, PoisonError};

use gimli::{AttributeValue, DwTag};
use spile_cast::Cast;

use crate::caches::{TypeId, TypeKey, TypeTable};
use crate::dwarf::Dwarf;
use crate::index::NameKind;
use crate::unit::{Die, Entry, MAX_CHAIN, constant, flag, number, number_of};

/// Maximum number of types with numbers, beyond that of any real file: a hostile file does not fill memory.
const MAX_TYPES: usize = 1 << 24;
/// Maximum nesting of anonymous members and base classes that is followed.
const MAX_NESTING: usize = 16;
/// Maximum number of members listed of one type.
const MAX_MEMBERS: usize = 1 << 16;

/// A type without typedefs and qualifiers.
pub type CType = spile_ctype::CType<TypeId>;

/// A signed number of 8 bytes.
const WORD: CType = CType::Int {
    size: 8,
    signed: true,
    char: false,
};

/// Names of numbers of 80 bits: of C, Fortran, Ada and D.
const X87: [&str; 5] = [
    "long double",
    "_Float64x",
    "real(kind=10)",
    "long_long_float",
    "real",
];

/// A character.
const CHAR: CType = CType::Int {
    size: 1,
    signed: false,
    char: true,
};

/// A member of a structure, seen from the structure that was asked.
pub type Member = spile_ctype::Member<TypeId>;

impl Dwarf {
    fn intern(&self, key: TypeKey) -> TypeId {
        let mut table = self.type_table();
        if let Some(&id) = table.ids.get(&key) {
            return id;
        }
        if table.keys.len() >= MAX_TYPES {
            return 0;
        }
        table.keys.push(key);
        let id = table.keys.len().fit::<TypeId>();
        table.ids.insert(key, id);
        id
    }

    fn key(&self, id: TypeId) -> Option<TypeKey> {
        let keys = &self.type_table().keys;
        keys.get((id as usize).checked_sub(1)?).copied()
    }

    fn type_table(&self) -> MutexGuard<'_, TypeTable> {
        let table = self.caches.types.lock();
        table.unwrap_or_else(PoisonError::into_inner)
    }

    /// The type of an entry (variable, member, function's result).
    #[must_use]
    pub fn type_of(&self, die: Die) -> TypeId {
        let entry = self.entry(die);
        entry.map_or(0, |(_, e)| self.target_of(die, &e))
    }

    pub(crate) fn type_die(&self, die: Die, entry: &Entry) -> Option<Die> {
        let (holder, value) = self.attr(die, entry, gimli::DW_AT_type)?;
        self.refer(holder, value)
    }

    /// The type itself without typedefs and qualifiers; its definition if there is one.
    pub(crate) fn strip(&self, die: Die) -> Option<(Die, Entry)> {
        let (die, entry) = self.unwrapped(die)??;
        let partial =
            flag(&entry, gimli::DW_AT_declaration) || entry.has_attr(gimli::DW_AT_signature);
        if partial
            && let Some(whole) = self.definition(die, &entry)
            && whole != die
        {
            let (_, entry) = self.entry(whole)?;
            return Some((whole, entry));
        }
        Some((die, entry))
    }

    /// The type itself without typedefs and qualifiers; `Some(None)` for void (`const void`).
    fn unwrapped(&self, mut die: Die) -> Option<Option<(Die, Entry)>> {
        for _ in 0..MAX_CHAIN * 2 {
            let (_, entry) = self.entry(die)?;
            if !is_wrapper(entry.tag()) {
                return Some(Some((die, entry)));
            }
            match self.type_die(die, &entry) {
                Some(wrapped) => die = wrapped,
                None => return Some(None),
            }
        }
        None
    }

    /// The definition of a type that is only declared here.
    fn definition(&self, die: Die, entry: &Entry) -> Option<Die> {
        if let Some(v) = entry.attr_value(gimli::DW_AT_signature) {
            return self.refer(die, v);
        }
        let name = self.name(die, entry)?;
        let kind = NameKind::of_type(entry.tag())?;
        let mut named = self.index().named(self, name);
        named.find(|f| f.kind == kind).map(|f| f.die)
    }

    /// The type without typedefs and qualifiers.
    #[must_use]
    pub fn ctype(&self, id: TypeId) -> CType {
        match self.key(id) {
            None if id == 0 => CType::Void,
            None => CType::Unknown,
            Some(TypeKey::Pointer(to)) => CType::Ptr(to),
            Some(TypeKey::Word) => WORD,
            Some(TypeKey::Part(size)) => CType::Float { size },
            Some(TypeKey::Char) => CHAR,
            Some(TypeKey::Dimension(die, n)) => self.array(die, n).unwrap_or(CType::Unknown),
            Some(TypeKey::Die(die)) => match self.strip(die) {
                Some((die, entry)) => self.describe(die, &entry).unwrap_or(CType::Unknown),
                None if matches!(self.unwrapped(die), Some(None)) => CType::Void,
                None => CType::Unknown,
            },
        }
    }

    pub(crate) fn describe(&self, die: Die, entry: &Entry) -> Option<CType> {
        let size = number_of(entry, gimli::DW_AT_byte_size);
        Some(match entry.tag() {
            gimli::DW_TAG_base_type if complex_part(entry).is_some() => CType::Struct {
                name: self.name(die, entry).unwrap_or("").into(),
                size: u32::try_from(size?).ok()?,
                union: false,
            },
            gimli::DW_TAG_base_type => match base(entry, u8::try_from(size?).ok()?) {
                CType::Float { size } if !has_layout(size, self.name(die, entry)?) => return None,
                ty => ty,
            },
            gimli::DW_TAG_pointer_type => CType::Ptr(self.target_of(die, entry)),
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                CType::Ref(self.target_of(die, entry))
            }
            gimli::DW_TAG_array_type => match self.strided(die, entry) {
                Some(strided) => strided,
                None => self.array(die, 0)?,
            },
            // A string whose length the running program has, has no type here.
            gimli::DW_TAG_string_type if !entry.has_attr(gimli::DW_AT_string_length) => {
                CType::Array {
                    elem: self.intern(TypeKey::Char),
                    count: u32::try_from(size?).ok()?,
                }
            }
            gimli::DW_TAG_ptr_to_member_type => self.member_pointer(die, entry),
            gimli::DW_TAG_subrange_type => self.range(die, entry)?,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                if flag(entry, gimli::DW_AT_declaration) {
                    return None;
                }
                if let Some((array, entry)) = self.array_of_pair(die, entry) {
                    return Some(self.pair(array, &entry));
                }
                CType::Struct {
                    name: self.name(die, entry).unwrap_or("").into(),
                    size: u32::try_from(size.unwrap_or(0)).ok()?,
                    union: entry.tag() == gimli::DW_TAG_union_type,
                }
            }
            gimli::DW_TAG_enumeration_type => {
                let under = self.type_die(die, entry).and_then(|d| self.strip(d));
                let under = under.and_then(|(d, e)| self.describe(d, &e));
                let signed = match under {
                    Some(CType::Int { signed, .. }) => signed,
                    _ => self.enum_values_of(die).iter().any(|v| v.1 < 0),
                };
                CType::Enum {
                    size: u8::try_from(size.unwrap_or(4)).ok()?,
                    signed,
                }
            }
            gimli::DW_TAG_subroutine_type => CType::Func,
            gimli::DW_TAG_unspecified_type => CType::Void,
            _ => return None,
        })
    }

    /// The type that a pointer, a reference or an array's entry names.
    pub(crate) fn target_of(&self, die: Die, entry: &Entry) -> TypeId {
        let to = self.type_die(die, entry);
        to.map_or(0, |d| self.intern(TypeKey::Die(d)))
    }

    /// A pointer to a member (Itanium ABI): of data its offset, of a function two words.
    fn member_pointer(&self, die: Die, entry: &Entry) -> CType {
        let to = self.type_die(die, entry).and_then(|d| self.strip(d));
        match to {
            Some((_, to)) if to.tag() == gimli::DW_TAG_subroutine_type => CType::Struct {
                name: "".into(),
                size: 16,
                union: false,
            },
            _ => WORD,
        }
    }

    /// The dimensions of an array.
    pub(crate) fn dimensions(&self, array: Die) -> Vec<(Die, Entry)> {
        let children = self.child_entries(array).take(32);
        let dimensions = children.filter(|(_, e)| e.tag() == gimli::DW_TAG_subrange_type);
        dimensions.collect()
    }

    /// An array without its first `skip` dimensions.
    fn array(&self, die: Die, skip: u8) -> Option<CType> {
        let (_, entry) = self.entry(die)?;
        let dimensions = self.dimensions(die);
        let counts: Vec<u32> = dimensions
            .iter()
            .map(|(d, e)| self.elements(*d, e))
            .collect();
        let i = usize::from(skip);
        let elem = if i + 1 < counts.len() {
            self.intern(TypeKey::Dimension(die, skip + 1))
        } else {
            self.target_of(die, &entry)
        };
        Some(CType::Array {
            elem,
            count: counts.get(i).copied().unwrap_or(0),
        })
    }

    /// The array without its first dimensions.
    pub(crate) fn dimension(&self, array: Die, skip: u8) -> TypeId {
        self.intern(TypeKey::Dimension(array, skip))
    }

    /// A signed number of 8 bytes.
    pub(crate) fn word(&self) -> TypeId {
        self.intern(TypeKey::Word)
    }

    /// The entry of an array, and how many of its dimensions the type lacks.
    pub(crate) fn array_of(&self, id: TypeId) -> Option<(Die, u8)> {
        match self.key(id)? {
            TypeKey::Dimension(die, skip) => Some((die, skip)),
            TypeKey::Die(die) => {
                let (die, entry) = self.strip(die)?;
                let array = self.array_of_pair(die, &entry);
                Some((array.map_or(die, |(array, _)| array), 0))
            }
            _ => None,
        }
    }

    /// Members in order; those of anonymous members and base classes are flattened.
    #[must_use]
    pub fn members(&self, id: TypeId) -> Vec<Member> {
        let mut members = Vec::new();
        if let Some((die, entry)) = self.definition_of(id) {
            if entry.tag() == gimli::DW_TAG_ptr_to_member_type {
                return self.words(&["__pfn", "__delta"]);
            }
            if let Some(size) = complex_part(&entry) {
                let parts = [("real", 0), ("imaginary", size)];
                let part = |(name, offset): (&str, u8)| Member {
                    name: name.into(),
                    bit_offset: 8 * u32::from(offset),
                    bit_size: 0,
                    ty: self.intern(TypeKey::Part(size)),
                };
                return parts.map(part).into();
            }
            self.add_members(die, 0, 0, &mut members);
        }
        members
    }

    /// Members of 8 bytes, which the debugging information does not describe.
    fn words(&self, names: &[&str]) -> Vec<Member> {
        let members = (0..).zip(names).map(|(n, name)| Member {
            name: (*name).into(),
            bit_offset: 64 * n,
            bit_size: 0,
            ty: self.intern(TypeKey::Word),
        });
        members.collect()
    }

    pub(crate) fn add_members(&self, die: Die, base: u32, depth: usize, members: &mut Vec<Member>) {
        if depth > MAX_NESTING {
            return;
        }
        for (child, entry) in self.child_entries(die) {
            if matches!(
                entry.tag(),
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant
            ) {
                self.add_members(child, base, depth + 1, members);
                continue;
            }
            let inherits = entry.tag() == gimli::DW_TAG_inheritance;
            let outside =
                flag(&entry, gimli::DW_AT_external) || flag(&entry, gimli::DW_AT_declaration);
            if members.len() >= MAX_MEMBERS
                || !(inherits || entry.tag() == gimli::DW_TAG_member)
                || outside
            {
                continue;
            }
            let Some(member) = self.member(child, &entry, base) else {
                continue;
            };
            if !inherits && !member.name.is_empty() {
                members.push(member);
                continue;
            }
            if let Some((inner, e)) = self.definition_of(member.ty)
                && NameKind::of_type(e.tag())
                    .is_some_and(|k| matches!(k, NameKind::Struct | NameKind::Union))
            {
                self.add_members(inner, member.bit_offset, depth + 1, members);
            }
        }
    }

    /// A member of a structure that begins at that bit.
    pub(crate) fn member(&self, die: Die, entry: &Entry, base: u32) -> Option<Member> {
        Some(Member {
            name: self.name(die, entry).unwrap_or("").into(),
            bit_offset: base.checked_add(self.bit_offset(die, entry)?)?,
            bit_size: number_of(entry, gimli::DW_AT_bit_size)
                .and_then(|b| u32::try_from(b).ok())
                .unwrap_or(0),
            ty: self.intern(TypeKey::Die(self.type_die(die, entry)?)),
        })
    }

    /// Offset of a member in bits from the start of the structure.
    fn bit_offset(&self, member: Die, entry: &Entry) -> Option<u32> {
        if let Some(bits) = number_of(entry, gimli::DW_AT_data_bit_offset) {
            return u32::try_from(bits).ok();
        }
        let bytes = match entry.attr_value(gimli::DW_AT_data_member_location) {
            None => 0,
            Some(AttributeValue::Exprloc(e)) => {
                // Old compilers: DW_OP_plus_uconst. Virtual bases depend on the object.
                let unit = self.unit(member.part, member.unit)?;
                let mut ops = e.operations(unit.encoding());
                match (ops.next().ok()??, ops.next().ok()?) {
                    (gimli::Operation::PlusConstant { value }, None) => value,
                    _ => return None,
                }
            }
            Some(v) => number(v)?,
        };
        let whole = u32::try_from(bytes.checked_mul(8)?).ok()?;
        // DWARF 2 and 3 count the bits of a field from the storage unit's most significant bit.
        let (Some(from_top), Some(bits)) = (
            number_of(entry, gimli::DW_AT_bit_offset),
            number_of(entry, gimli::DW_AT_bit_size),
        ) else {
            return Some(whole);
        };
        let storage = match number_of(entry, gimli::DW_AT_byte_size) {
            Some(s) => s,
            None => {
                let (_, e) = self.strip(self.type_die(member, entry)?)?;
                number_of(&e, gimli::DW_AT_byte_size)?
            }
        };
        // Negative for a field that goes on behind its storage unit, in packed structures.
        let from_top = from_top.cast_signed();
        let end = i64::try_from(storage)
            .ok()?
            .checked_mul(8)?
            .checked_sub(from_top)?;
        let first = i64::from(whole)
            .checked_add(end)?
            .checked_sub(i64::try_from(bits).ok()?)?;
        u32::try_from(first).ok()
    }

    /// The entry that defines a type.
    pub(crate) fn definition_of(&self, id: TypeId) -> Option<(Die, Entry)> {
        match self.key(id)? {
            TypeKey::Die(die) => self.strip(die),
            _ => None,
        }
    }

    /// The constants of an enumeration.
    #[must_use]
    pub fn enum_values(&self, id: TypeId) -> Vec<(Arc<str>, i64)> {
        let whole = self.definition_of(id);
        whole.map_or_else(Vec::new, |(die, _)| self.enum_values_of(die))
    }

    fn enum_values_of(&self, die: Die) -> Vec<(Arc<str>, i64)> {
        let children = self.child_entries(die);
        let constants = children.filter(|(_, e)| e.tag() == gimli::DW_TAG_enumerator);
        let constant = |(child, e): (Die, Entry)| {
            let value = e.attr_value(gimli::DW_AT_const_value)?;
            Some((self.name(child, &e)?.into(), constant(&value)?))
        };
        constants.filter_map(constant).collect()
    }

    /// A type by its name in C or C++: `struct x`, `union x`, `enum x`, `class x`, a typedef, a
    /// basic type with its words in any order, or a bare tag; each can be followed by `*`s.
    #[must_use]
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        let name = name.trim();
        if let Some(to) = name.strip_suffix('*') {
            let to = if to.trim() == "void" {
                0
            } else {
                self.type_named(to)?
            };
            return Some(self.intern(TypeKey::Pointer(to)));
        }
        let name = name.strip_prefix("const ").unwrap_or(name).trim();
        let (word, rest) = name.split_once(' ').unwrap_or(("", name));
        let rest = rest.trim();
        let kind = match word {
            "struct" | "class" => NameKind::Struct,
            "union" => NameKind::Union,
            "enum" => NameKind::Enum,
            _ => {
                let kinds = [
                    NameKind::Typedef,
                    NameKind::Base,
                    NameKind::Struct,
                    NameKind::Union,
                    NameKind::Enum,
                ];
                let mut spellings = vec![name.to_owned()];
                spellings.extend(basic_spellings(name));
                return spellings
                    .iter()
                    .find_map(|s| kinds.iter().find_map(|&k| self.find_type(s, k)));
            }
        };
        self.find_type(rest, kind)
    }

    /// The names of all types that have one, without basic types.
    #[must_use]
    pub fn type_names(&self) -> Vec<&str> {
        let kinds = [
            NameKind::Typedef,
            NameKind::Struct,
            NameKind::Union,
            NameKind::Enum,
        ];
        self.index().all(self, &kinds).map(|f| f.name).collect()
    }

    fn find_type(&self, name: &str, kind: NameKind) -> Option<TypeId> {
        let named = self.named(name, &[kind]).into_iter().next()?;
        Some(self.intern(TypeKey::Die(named.die)))
    }

    /// The type's name in C, typedefs kept.
    #[must_use]
    pub fn c_name(&self, id: TypeId) -> String {
        self.spell(id, String::new(), 0)
    }

    /// Spells a declaration around `inner`, the declarator built so far.
    fn spell(&self, id: TypeId, inner: String, depth: usize) -> String {
        let with = |name: &str| match inner.is_empty() || inner.starts_with('[') {
            true => format!("{name}{inner}"),
            false => format!("{name} {inner}"),
        };
        if depth > MAX_NESTING {
            return with("...");
        }
        let die = match self.key(id) {
            None if id == 0 => return with("void"),
            None => return with("?"),
            Some(TypeKey::Pointer(to)) => return self.spell(to, format!("*{inner}"), depth + 1),
            Some(TypeKey::Word) => return with("long"),
            Some(TypeKey::Char) => return with("char"),
            Some(TypeKey::Part(4)) => return with("float"),
            Some(TypeKey::Part(_)) => return with("double"),
            Some(TypeKey::Dimension(die, n)) => return self.spell_array(die, n, inner, depth),
            Some(TypeKey::Die(die)) => die,
        };
        let Some((_, entry)) = self.entry(die) else {
            return with("?");
        };
        let to = || self.target_of(die, &entry);
        let name = || {
            let name = self.name(die, &entry).or_else(|| {
                // The type's own unit has the name.
                let (whole, entry) = self.strip(die)?;
                self.name(whole, &entry)
            });
            name.unwrap_or("{...}")
        };
        match entry.tag() {
            gimli::DW_TAG_pointer_type => self.spell(to(), format!("*{inner}"), depth + 1),
            gimli::DW_TAG_reference_type => self.spell(to(), format!("&{inner}"), depth + 1),
            gimli::DW_TAG_rvalue_reference_type => {
                self.spell(to(), format!("&&{inner}"), depth + 1)
            }
            gimli::DW_TAG_array_type => self.spell_array(die, 0, inner, depth),
            gimli::DW_TAG_ptr_to_member_type => {
                let class = self.attr(die, &entry, gimli::DW_AT_containing_type);
                let class = class.and_then(|(holder, v)| self.refer(holder, v));
                let class = class.and_then(|d| self.name(d, &self.entry(d)?.1));
                self.spell(
                    to(),
                    format!("{}::*{inner}", class.unwrap_or("?")),
                    depth + 1,
                )
            }
            gimli::DW_TAG_const_type => self.qualified("const", to(), inner, depth),
            gimli::DW_TAG_volatile_type => self.qualified("volatile", to(), inner, depth),
            gimli::DW_TAG_restrict_type | gimli::DW_TAG_atomic_type => {
                self.spell(to(), inner, depth + 1)
            }
            gimli::DW_TAG_structure_type => with(&format!("struct {}", name())),
            gimli::DW_TAG_class_type => with(&format!("class {}", name())),
            gimli::DW_TAG_union_type => with(&format!("union {}", name())),
            gimli::DW_TAG_enumeration_type => with(&format!("enum {}", name())),
            gimli::DW_TAG_subroutine_type => {
                let inner = if inner.is_empty() {
                    String::new()
                } else {
                    format!("({inner})")
                };
                self.spell(to(), format!("{inner}(...)"), depth + 1)
            }
            _ => with(name()),
        }
    }

    fn qualified(&self, word: &str, to: TypeId, inner: String, depth: usize) -> String {
        // A pointer's qualifier follows its star.
        if matches!(self.entry_tag(to), Some(gimli::DW_TAG_pointer_type)) {
            let space = if inner.is_empty() { "" } else { " " };
            return self.spell(to, format!("{word}{space}{inner}"), depth + 1);
        }
        format!("{word} {}", self.spell(to, inner, depth + 1))
    }

    fn entry_tag(&self, id: TypeId) -> Option<DwTag> {
        match self.key(id)? {
            TypeKey::Die(die) => Some(self.entry(die)?.1.tag()),
            _ => None,
        }
    }

    fn spell_array(&self, die: Die, n: u8, inner: String, depth: usize) -> String {
        match self.array(die, n) {
            Some(CType::Array { elem, count }) => {
                let inner = if inner.starts_with(['*', '&']) {
                    format!("({inner})")
                } else {
                    inner
                };
                let count = if count == 0 {
                    String::new()
                } else {
                    count.to_string()
                };
                self.spell(elem, format!("{inner}[{count}]"), depth + 1)
            }
            _ => format!("?{inner}"),
        }
    }
}

/// The size of the two parts of a complex number; `None` for other types, and for those of
/// `long double`, which functions return in registers of their own.
fn complex_part(entry: &Entry) -> Option<u8> {
    let complex = AttributeValue::Encoding(gimli::DW_ATE_complex_float);
    match number_of(entry, gimli::DW_AT_byte_size) {
        Some(size @ (8 | 16)) if entry.attr_value(gimli::DW_AT_encoding) == Some(complex) => {
            Some(size.fit::<u8>() / 2)
        }
        _ => None,
    }
}

/// Whether a floating-point number of that many bytes has the layout that the size stands for: others
/// are of 128 bits (`__float128`), and of 16 with the exponent of 32 (`__bf16`).
fn has_layout(size: u8, name: &str) -> bool {
    match size {
        2 => !name.contains("bf16"),
        16 => X87.contains(&name),
        _ => true,
    }
}

fn base(entry: &Entry, size: u8) -> CType {
    let encoding = match entry.attr_value(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(e)) => e,
        _ => return CType::Unknown,
    };
    let int = |signed, char| match size {
        1 | 2 | 4 | 8 | 16 => CType::Int { size, signed, char },
        _ => CType::Unknown,
    };
    match encoding {
        gimli::DW_ATE_signed => int(true, false),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_boolean | gimli::DW_ATE_address => int(false, false),
        gimli::DW_ATE_signed_char => int(true, true),
        gimli::DW_ATE_unsigned_char => int(false, true),
        gimli::DW_ATE_UTF => int(false, size == 1),
        gimli::DW_ATE_float => CType::Float { size },
        _ => CType::Unknown,
    }
}

/// Entries that name or qualify another type.
fn is_wrapper(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_packed_type
            | gimli::DW_TAG_immutable_type
    )
}

/// The names that compilers use for a basic type that C can spell in several ways.
fn basic_spellings(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let count = |w| words.iter().filter(|x| **x == w).count();
    let type_words = ["long", "short", "int", "char", "unsigned", "signed"];
    if words.is_empty() || !words.iter().all(|w| type_words.contains(w)) {
        return Vec::new();
    }
    let sign = if count("unsigned") > 0 {
        "unsigned "
    } else {
        ""
    };
    if count("char") > 0 {
        let sign = if count("signed") > 0 { "signed " } else { sign };
        return vec![format!("{sign}char")];
    }
    let (gcc, clang) = match (count("long"), count("short")) {
        (0, 0) => (format!("{sign}int"), format!("{sign}int")),
        (1, _) => (format!("long {sign}int"), format!("{sign}long")),
        (0, _) => (format!("short {sign}int"), format!("{sign}short")),
        _ => (format!("long long {sign}int"), format!("{sign}long long")),
    };
    vec![gcc, clang]
}

#[cfg(test)]
mod tests {
    #[test]
    fn spellings_of_a_basic_type_are_equal() {
        for (name, wanted) in [
            ("unsigned long", "long unsigned int"),
            ("long unsigned int", "unsigned long"),
            ("short", "short int"),
            ("unsigned", "unsigned int"),
            ("long long unsigned", "long long unsigned int"),
            ("unsigned char", "unsigned char"),
        ] {
            assert!(
                super::basic_spellings(name).iter().any(|s| s == wanted),
                "{name}"
            );
        }
        assert!(super::basic_spellings("foo_t").is_empty());
    }
}
