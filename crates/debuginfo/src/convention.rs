//! The calling convention for return values, of processors that classify each word of a structure.

use gimli::AttributeValue;

use crate::caches::TypeId;
use crate::dwarf::Dwarf;
use crate::types::CType;
use crate::unit::{Die, Entry, flag, number_of, root};

/// Size of a register in bytes.
const WORD: u32 = 8;
/// Maximum nesting of members, and maximum number of members: structures of 16 bytes have no more.
const MAX_NESTING: usize = 16;
const MAX_MEMBERS: usize = 256;

/// Languages whose compilers follow the convention.
const KEPT_BY: [gimli::DwLang; 14] = [
    gimli::DW_LANG_C89,
    gimli::DW_LANG_C,
    gimli::DW_LANG_C99,
    gimli::DW_LANG_C11,
    gimli::DW_LANG_C17,
    gimli::DW_LANG_C_plus_plus,
    gimli::DW_LANG_C_plus_plus_03,
    gimli::DW_LANG_C_plus_plus_11,
    gimli::DW_LANG_C_plus_plus_14,
    gimli::DW_LANG_C_plus_plus_17,
    gimli::DW_LANG_C_plus_plus_20,
    gimli::DW_LANG_ObjC,
    gimli::DW_LANG_ObjC_plus_plus,
    gimli::DW_LANG_Fortran08,
];

/// The content of a return register, for a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnWord {
    /// These eight bytes are in the next integer register.
    Integer,
    /// They are in a floating point register.
    Float,
    /// They are padding.
    Nothing,
}

/// The way in which a structure is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReturnConvention {
    /// In registers, eight bytes in each.
    Registers(Vec<ReturnWord>),
    /// In memory; its address is an additional first parameter.
    Memory,
    /// Unknown.
    Unknown,
}

impl Dwarf {
    /// The way in which a function returns a structure of a type.
    #[must_use]
    pub fn return_convention(&self, function: Die, ty: TypeId) -> ReturnConvention {
        let calls = self.main.abi().map(|abi| &abi.calls);
        let (Some(calls), CType::Struct { size, .. }) =
            (calls.filter(|calls| calls.classifies_words), self.ctype(ty))
        else {
            return ReturnConvention::Unknown;
        };
        let class = self.definition_of(ty);
        if size > calls.in_registers || class.is_some_and(|(d, e)| self.by_reference(d, &e, 0)) {
            return ReturnConvention::Memory;
        }
        if !self.keeps_convention(function) {
            return ReturnConvention::Unknown;
        }
        let mut words = vec![ReturnWord::Nothing; size.div_ceil(WORD) as usize];
        let mut left = MAX_MEMBERS;
        match self.classify(ty, 0, &mut words, &mut left, 0) {
            Some(true) => ReturnConvention::Registers(words),
            Some(false) => ReturnConvention::Memory,
            None => ReturnConvention::Unknown,
        }
    }

    /// Whether C++ copies or destroys objects of a class by code of its own: then they are returned
    /// in memory. The compiler states it, or it follows from the declarations.
    fn by_reference(&self, class: Die, entry: &Entry, depth: usize) -> bool {
        if let Some(AttributeValue::CallingConvention(by)) =
            entry.attr_value(gimli::DW_AT_calling_convention)
        {
            return by == gimli::DW_CC_pass_by_reference;
        }
        let name = self.name(class, entry).unwrap_or("");
        self.child_entries(class).any(|(child, e)| match e.tag() {
            gimli::DW_TAG_subprogram => {
                e.has_attr(gimli::DW_AT_virtuality) || self.copies(child, &e, class, name)
            }
            gimli::DW_TAG_inheritance if e.has_attr(gimli::DW_AT_virtuality) => true,
            gimli::DW_TAG_inheritance | gimli::DW_TAG_member => {
                // Static members are not part of the object; they are declarations of their own.
                let inner = self
                    .element(child, &e)
                    .filter(|_| depth < MAX_NESTING && !flag(&e, gimli::DW_AT_external));
                inner.is_some_and(|(d, e)| is_class(&e) && self.by_reference(d, &e, depth + 1))
            }
            _ => false,
        })
    }

    /// The type of a member, or of the elements of an array.
    fn element(&self, die: Die, entry: &Entry) -> Option<(Die, Entry)> {
        let mut element = self.strip(self.type_die(die, entry)?)?;
        for _ in 0..MAX_NESTING {
            if element.1.tag() != gimli::DW_TAG_array_type {
                break;
            }
            element = self.strip(self.type_die(element.0, &element.1)?)?;
        }
        Some(element)
    }

    /// Whether a function of a class is a user-provided destructor, or a user-provided copy or move
    /// constructor.
    fn copies(&self, die: Die, entry: &Entry, class: Die, class_name: &str) -> bool {
        let trivial = flag(entry, gimli::DW_AT_artificial)
            || flag(entry, gimli::DW_AT_deleted)
            || number_of(entry, gimli::DW_AT_defaulted).is_some_and(|how| how == 1);
        let Some(name) = self.name(die, entry).filter(|_| !trivial) else {
            return false;
        };
        if name.starts_with('~') {
            return true;
        }
        if Some(name) != class_name.split('<').next() {
            return false;
        }
        let given = self.child_entries(die).filter(|(_, e)| {
            e.tag() == gimli::DW_TAG_formal_parameter && !flag(e, gimli::DW_AT_artificial)
        });
        let given: Vec<_> = given.take(2).collect();
        let [(parameter, e)] = &given[..] else {
            return false;
        };
        self.type_die(*parameter, e)
            .and_then(|d| Some((d, self.entry(d)?.1)))
            .filter(|(_, e)| {
                let tags = [
                    gimli::DW_TAG_reference_type,
                    gimli::DW_TAG_rvalue_reference_type,
                ];
                tags.contains(&e.tag())
            })
            .and_then(|(d, e)| self.strip(self.type_die(d, &e)?))
            .is_some_and(|(d, e)| d == class || self.name(d, &e) == Some(class_name))
    }

    fn keeps_convention(&self, function: Die) -> bool {
        self.language(function).is_none_or(|l| KEPT_BY.contains(&l))
    }

    /// Whether gcc made an entry's unit.
    pub(crate) fn is_of_gcc(&self, die: Die) -> bool {
        let Some(unit) = self.unit(die.part, die.unit) else {
            return false;
        };
        let by = root(&unit).and_then(|e| e.attr_value(gimli::DW_AT_producer));
        let forms = self.forms(die.part, die.unit);
        let by = by.and_then(|v| forms.attr_string(&unit, v).ok());
        by.is_some_and(|name| name.slice().starts_with(b"GNU "))
    }

    /// Classifies each word of an object at an offset in bits. `Some(false)`: in a packed
    /// structure, which is in memory as a whole. `None`: unknown, or too large.
    fn classify(
        &self,
        ty: TypeId,
        offset: u32,
        words: &mut [ReturnWord],
        left: &mut usize,
        depth: usize,
    ) -> Option<bool> {
        *left = left.checked_sub(1)?;
        if depth > MAX_NESTING {
            return None;
        }
        let (kind, size) = match self.ctype(ty) {
            CType::Int { size, .. } | CType::Enum { size, .. } => {
                (ReturnWord::Integer, u32::from(size))
            }
            CType::Ptr(_) | CType::Ref(_) => (ReturnWord::Integer, WORD),
            CType::Float { size } => (ReturnWord::Float, u32::from(size)),
            CType::Array { elem, count } => {
                for n in 0..count {
                    let step = n.checked_mul(self.bytes(elem, depth)?)?.checked_mul(8)?;
                    let offset = offset.checked_add(step)?;
                    if !self.classify(elem, offset, words, left, depth + 1)? {
                        return Some(false);
                    }
                }
                return Some(true);
            }
            CType::Struct { .. } => {
                for m in self.members(ty) {
                    let offset = offset.checked_add(m.bit_offset)?;
                    if m.bit_size > 0 {
                        let last = offset.checked_add(m.bit_size - 1)?;
                        classify_bits(words, offset, last, ReturnWord::Integer)?;
                    } else if !self.classify(m.ty, offset, words, left, depth + 1)? {
                        return Some(false);
                    }
                }
                return Some(true);
            }
            CType::Strided { .. } | CType::Void | CType::Func | CType::Unknown => return None,
        };
        let bits = size.checked_mul(8).filter(|b| *b > 0)?;
        if !offset.is_multiple_of(bits) {
            return Some(false);
        }
        classify_bits(words, offset, offset.checked_add(bits - 1)?, kind)?;
        Some(true)
    }

    /// Size of an element in bytes.
    fn bytes(&self, ty: TypeId, depth: usize) -> Option<u32> {
        Some(match self.ctype(ty) {
            CType::Int { size, .. } | CType::Enum { size, .. } | CType::Float { size } => {
                size.into()
            }
            CType::Ptr(_) | CType::Ref(_) => WORD,
            CType::Struct { size, .. } => size,
            CType::Array { elem, count } if depth < MAX_NESTING => {
                self.bytes(elem, depth + 1)?.checked_mul(count)?
            }
            _ => return None,
        })
    }
}

fn is_class(entry: &Entry) -> bool {
    let tags = [
        gimli::DW_TAG_structure_type,
        gimli::DW_TAG_class_type,
        gimli::DW_TAG_union_type,
    ];
    tags.contains(&entry.tag())
}

/// Classifies a range of bits; integers take precedence over floating point.
fn classify_bits(words: &mut [ReturnWord], first: u32, last: u32, kind: ReturnWord) -> Option<()> {
    let bits = 8 * WORD;
    for word in words.get_mut((first / bits) as usize..=(last / bits) as usize)? {
        if *word != ReturnWord::Integer {
            *word = kind;
        }
    }
    Some(())
}
