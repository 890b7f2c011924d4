//! C types of the kernel and of its modules, as BTF has them. A module's BTF continues the kernel's: types
//! that it shares with the kernel have the kernel's numbers.

use std::sync::{Arc, Mutex, PoisonError};

use spile_cast::Cast;
use spile_kernel::btf::{Btf, Type};
use spile_sema::facts::{CType, CTypeId, Member, TypeHome};
use spile_syntax::diag::suggest;

/// The types of the running kernel.
#[derive(Default)]
pub(crate) struct KernelTypes {
    /// Modules that were queried; `None` where a module has no BTF.
    modules: Mutex<Vec<(Arc<str>, Option<Types>)>>,
}

/// The BTF of the kernel or of one module.
#[derive(Clone, Copy)]
pub(crate) struct Types {
    /// The types.
    pub btf: &'static Btf,
    home: TypeHome,
}

impl Types {
    /// A type number of this BTF in the common space.
    pub(crate) fn common_id(&self, id: u32) -> CTypeId {
        match id < self.btf.first() {
            true => CTypeId::kernel(id),
            false => CTypeId::new(self.home, id),
        }
    }

    fn member(&self, id: u32, name: &str) -> Option<Member> {
        let member = self.btf.member(id, name)?;
        Some(member.map(|ty| self.common_id(ty)))
    }
}

impl KernelTypes {
    /// The kernel's own types; without BTF every look-up finds nothing.
    pub(crate) fn kernel() -> Option<Types> {
        let btf = Btf::vmlinux().ok()?;
        Some(Types {
            btf,
            home: TypeHome::Kernel,
        })
    }

    /// The types of the kernel, or of a module.
    pub(crate) fn of(&self, module: Option<&str>) -> Option<Types> {
        match module {
            Some(name) => self.module(name),
            None => KernelTypes::kernel(),
        }
    }

    /// The types of a module.
    pub(crate) fn module(&self, name: &str) -> Option<Types> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, types)) = modules.iter().find(|m| *m.0 == *name) {
            return *types;
        }
        let home = TypeHome::KernelModule(modules.len().fit());
        let btf = Btf::module(name).ok().map(|btf| &*Box::leak(Box::new(btf)));
        let types = btf.map(|btf| Types { btf, home });
        modules.push((name.into(), types));
        types
    }

    /// The types of the modules that were queried.
    pub(crate) fn opened(&self) -> Vec<Types> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.iter().filter_map(|m| m.1).collect()
    }

    /// The types that a number is one of.
    fn by_id(&self, id: CTypeId) -> Option<Types> {
        match id.home {
            TypeHome::Kernel => KernelTypes::kernel(),
            TypeHome::KernelModule(index) => {
                let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
                modules.get(index as usize)?.1
            }
            TypeHome::File(_) | TypeHome::Builtin => None,
        }
    }

    /// See `TypeFacts::ctype`.
    pub(crate) fn ctype(&self, id: CTypeId) -> CType {
        let Some(types) = self.by_id(id) else {
            return match id {
                CTypeId::VOID => CType::Void,
                _ => CType::Unknown,
            };
        };
        let ty = types.btf.ctype(id.number);
        ty.map(|ty| types.common_id(ty))
    }

    /// See `TypeFacts::c_name`.
    pub(crate) fn c_name(&self, id: CTypeId) -> String {
        if id == CTypeId::VOID {
            return "void".into();
        }
        self.by_id(id)
            .map_or_else(|| "?".into(), |types| types.btf.c_name(id.number))
    }

    /// See `TypeFacts::member`.
    pub(crate) fn member(&self, id: CTypeId, name: &str) -> Option<Member> {
        self.by_id(id)?.member(id.number, name)
    }

    /// See `TypeFacts::members`.
    pub(crate) fn members(&self, id: CTypeId) -> Vec<Member> {
        let Some(types) = self.by_id(id) else {
            return Vec::new();
        };
        let names = types.btf.member_names(id.number);
        names
            .into_iter()
            .filter_map(|name| types.member(id.number, name))
            .collect()
    }

    /// See `TypeFacts::enum_values`.
    pub(crate) fn enum_values(&self, id: CTypeId) -> Vec<(Arc<str>, i64)> {
        let Some(types) = self.by_id(id) else {
            return Vec::new();
        };
        match types.btf.ty(types.btf.strip(id.number)) {
            Type::Enum(e) => e.values().map(|v| (v.name.into(), v.value)).collect(),
            _ => Vec::new(),
        }
    }

    /// A type by name, in the kernel or in a module.
    pub(crate) fn by_name(types: Types, name: &str) -> Option<CTypeId> {
        let btf = types.btf;
        btf.find_type(name)
            .or_else(|| btf.find_struct(name))
            .or_else(|| btf.find_union(name))
            .or_else(|| btf.find_enum(name))
            .map(|id| types.common_id(id))
    }

    /// The name of a structure, union, enumeration or typedef that is most similar to `name`.
    pub(crate) fn similar(types: Types, name: &str) -> Option<String> {
        use spile_kernel::btf::BtfKind::{Enum, Enum64, Struct, Typedef, Union};
        let btf = types.btf;
        let named = [Struct, Union, Enum, Enum64, Typedef];
        let ids = 1..btf.len().fit::<u32>();
        let ids = ids.filter(|id| btf.kind(*id).is_some_and(|kind| named.contains(&kind)));
        similar_type(name, ids.map(|id| btf.name(id)))
    }
}

/// The most similar of the `names` of types, with the word that stands before `name`.
pub(super) fn similar_type<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let words = ["struct", "union", "enum", "class"];
    let (word, tag) = match name.trim().split_once(' ') {
        Some((word, tag)) if words.contains(&word) => (word, tag.trim()),
        _ => ("", name.trim()),
    };
    let near = suggest(tag, names)?;
    Some(format!("{word} {near}").trim().to_owned())
}
