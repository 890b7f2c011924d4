//! C types of the kernel and of its modules from BTF, in one space of numbers.
//!
//! The top 8 bits of a number name the owner: 0 is the kernel, its modules count down from 255, and
//! files with debugging information count up from 1. A module's BTF extends the kernel's: types
//! shared with the kernel have the kernel's numbers.

use std::sync::{Arc, Mutex, PoisonError};

use spile_kernel::btf::{Btf, Composite, Type};
use spile_sema::facts::{CType, CTypeId, Member};

/// Position of the owner in a number.
const SHIFT: u32 = 24;
/// Kernel modules have owner numbers from here to 255.
const FIRST_MODULE: u32 = 128;

/// The types of the running kernel.
#[derive(Default)]
pub struct KernelTypes {
    /// Modules that were queried; `None` where a module has no BTF.
    modules: Mutex<Vec<(Arc<str>, Option<&'static Btf>)>>,
}

/// The BTF of the kernel or of one module, and the owner of its own types.
#[derive(Clone, Copy)]
pub struct Types {
    /// The types.
    pub btf: &'static Btf,
    tag: u32,
}

impl Types {
    /// A type number of this BTF in the common space.
    pub fn outside(&self, id: u32) -> CTypeId {
        match id < self.btf.first() {
            true => id,
            false => id | self.tag,
        }
    }

    fn composite(c: Composite<'_>, union: bool) -> CType {
        CType::Struct {
            name: c.name.into(),
            size: c.size,
            union,
        }
    }

    fn ctype(&self, id: u32) -> CType {
        match self.btf.ty(self.btf.strip(id)) {
            Type::Void => CType::Void,
            // Compilers do not mark characters: a one-byte integer whose name contains `char` is
            // one.
            Type::Int(i) => CType::Int {
                size: i.size as u8,
                signed: i.signed,
                char: i.is_char || (i.size == 1 && i.name.contains("char")),
            },
            Type::Ptr(to) => CType::Ptr(self.outside(to)),
            Type::Array { elem, len } => CType::Array {
                elem: self.outside(elem),
                count: len,
            },
            Type::Struct(c) => Types::composite(c, false),
            Type::Union(c) => Types::composite(c, true),
            Type::Enum(e) => CType::Enum {
                size: e.size as u8,
                signed: e.signed,
            },
            Type::Func { .. } | Type::FuncProto(_) => CType::Func,
            _ => CType::Unknown,
        }
    }

    fn member(&self, id: u32, name: &str) -> Option<Member> {
        let m = self.btf.member(id, name)?;
        Some(Member {
            name: name.into(),
            bit_offset: m.bit_offset,
            bit_size: m.bit_size,
            ty: self.outside(m.ty),
        })
    }
}

impl KernelTypes {
    /// The kernel's own types; without BTF every look-up finds nothing.
    pub fn kernel() -> Option<Types> {
        let btf = Btf::vmlinux().ok()?;
        Some(Types { btf, tag: 0 })
    }

    /// The types of a module.
    pub fn module(&self, name: &str) -> Option<Types> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match modules.iter().position(|m| *m.0 == *name) {
            Some(at) => at,
            None => {
                let btf = Btf::module(name).ok().map(|btf| &*Box::leak(Box::new(btf)));
                modules.push((name.into(), btf));
                modules.len() - 1
            }
        };
        let number = 255u32.checked_sub(at as u32)?;
        (number >= FIRST_MODULE).then_some(())?;
        Some(Types {
            btf: modules[at].1?,
            tag: number << SHIFT,
        })
    }

    /// The types of the modules that were queried.
    pub fn opened(&self) -> Vec<Types> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let types = |(at, (_, btf)): (usize, &(Arc<str>, Option<&'static Btf>))| {
            let number = 255u32.checked_sub(at as u32)?;
            Some(Types {
                btf: (*btf)?,
                tag: number << SHIFT,
            })
        };
        modules.iter().enumerate().filter_map(types).collect()
    }

    /// The owner of a type, and its number there.
    fn of(&self, id: CTypeId) -> Option<(Types, u32)> {
        let number = id >> SHIFT;
        let own = id & ((1 << SHIFT) - 1);
        if number == 0 {
            return Some((KernelTypes::kernel()?, own));
        }
        let at = 255 - number as usize;
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let types = Types {
            btf: modules.get(at)?.1?,
            tag: number << SHIFT,
        };
        Some((types, own))
    }

    /// See `Facts::ctype`.
    pub fn ctype(&self, id: CTypeId) -> CType {
        self.of(id)
            .map_or(CType::Unknown, |(types, id)| types.ctype(id))
    }

    /// See `Facts::c_name`.
    pub fn c_name(&self, id: CTypeId) -> String {
        self.of(id)
            .map_or_else(|| "?".into(), |(types, id)| types.btf.c_name(id))
    }

    /// See `Facts::member`.
    pub fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        let (types, id) = self.of(id)?;
        types.member(id, name)
    }

    /// See `Facts::members`.
    pub fn members(&self, id: CTypeId) -> Vec<Member> {
        let Some((types, id)) = self.of(id) else {
            return Vec::new();
        };
        let names = types.btf.member_names(id);
        names
            .into_iter()
            .filter_map(|name| types.member(id, name))
            .collect()
    }

    /// See `Facts::enum_values`.
    pub fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)> {
        let Some((types, id)) = self.of(id) else {
            return Vec::new();
        };
        match types.btf.ty(types.btf.strip(id)) {
            Type::Enum(e) => e.values().map(|v| (v.name.into(), v.value)).collect(),
            _ => Vec::new(),
        }
    }

    /// A type by name, in the kernel or in a module.
    pub fn by_name(types: Types, name: &str) -> Option<CTypeId> {
        let btf = types.btf;
        btf.find_type(name)
            .or_else(|| btf.find_struct(name))
            .or_else(|| btf.find_union(name))
            .or_else(|| btf.find_enum(name))
            .map(|id| types.outside(id))
    }
}
