//! Functions of the kernel and of its modules, and their parameters, for analysis.
//!
//! This module uses BTF and symbols. Source files, lines, inlined copies and local variables come
//! from debugging information.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spile_abi::HOST;
use spile_cast::Cast;
use spile_debuginfo::ReturnWord;
use spile_ir::CodeLocation;
use spile_kernel::btf::{Btf, Type};
use spile_kernel::functions::{self, FunctionMatches, Functions, KernelFunction, signature};
use spile_kernel::symbols::Symbols;
use spile_sema::facts::{
    CodeQuery, FoundLocation, FoundModule, FunctionKind, LinePattern, LocOp, LocationPiece,
    ProbeModule, VarKind, VarLocation, Variable,
};

use super::convention::in_registers;
use super::locations::on_stack;
use super::types::{KernelTypes, Types};

/// Flag in [`FoundLocation::id`], above a BTF number: the rest is the reason why there are no
/// variables.
const WHY: u64 = 1 << 32;
const REASONS: [&str; 5] = [
    "the kernel's type information lacks this function",
    "several functions have this name, and the kernel's type information does not distinguish them",
    "the compiler changed the parameters of this copy of the function",
    "an address alone does not determine its function and the contents of registers",
    "the module has no type information",
];
#[derive(Clone, Copy)]
enum Unprobeable {
    Unknown,
    Shared,
    Copy,
    Address,
    NoTypes,
}

/// The error for a module that is not loaded, with the way out.
fn not_loaded(name: &str) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let folder = format!("/lib/modules/{}", release.trim());
    let listed = |list: &str| {
        let list = std::fs::read_to_string(format!("{folder}/{list}")).unwrap_or_default();
        list.lines().any(|line| is_module(line, name))
    };
    // A path would not be below the folder.
    let shown = !name.contains('/') && Path::new("/sys/module").join(name).exists();
    let way_out = if listed("modules.builtin") || shown {
        format!(": this kernel has it built in, so write `kernel` for `module(\"{name}\")`")
    } else if listed("modules.dep") {
        format!(": load it first, by `modprobe {name}`")
    } else {
        format!(", and {folder} has none of that name")
    };
    format!("no module `{name}` is loaded in the kernel{way_out}")
}

/// Whether a line of a list of modules (`kernel/net/bridge/bridge.ko.xz: ...`) is about a module, by its name
/// in the kernel's spelling.
fn is_module(line: &str, name: &str) -> bool {
    let path = line.split(':').next().unwrap_or("");
    let file = path.rsplit('/').next().unwrap_or("");
    let stem = file.split_once(".ko").map_or("", |(stem, _)| stem);
    stem.replace('-', "_") == name
}

/// Flag in [`FoundLocation::id`], above an index into the kernel's symbols: the BTF number is looked
/// up when it is needed.
const LATER: u64 = 1 << 40;
/// Maximum number of functions that are looked up one by one.
const FEW: usize = 4;

/// Caches of the kernel's code, and the number of functions left out.
#[derive(Default)]
pub(crate) struct KernelCode {
    left_out: AtomicUsize,
    /// The functions of the BTF that was used last.
    ids: Mutex<Option<(&'static Btf, HashMap<&'static str, u32>)>>,
}

type LocationResult = Result<Vec<FoundLocation>, String>;

impl KernelCode {
    /// Number of functions that were left out of answers because they cannot be probed.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The loaded kernel modules that match.
    pub(crate) fn modules(&self, pattern: &str) -> Result<Vec<FoundModule>, String> {
        let loaded = std::fs::read_to_string("/proc/modules").unwrap_or_default();
        // The kernel's spelling of names.
        let pattern = pattern.replace('-', "_");
        let module = |name: &str| FoundModule {
            module: ProbeModule::KernelModule(name.into()),
            pid: None,
        };
        if spile_kernel::foreign_kernel::is_active() && !spile_glob::is_pattern(&pattern) {
            return Ok(vec![module(&pattern)]);
        }
        let modules: Vec<FoundModule> = loaded
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|name| spile_glob::matches(&pattern, name))
            .map(module)
            .collect();
        match modules.is_empty() {
            true if spile_glob::is_pattern(&pattern) => {
                Err(format!("no module `{pattern}` is loaded in the kernel"))
            }
            true => Err(not_loaded(&pattern)),
            false => Ok(modules),
        }
    }

    /// The locations in the kernel, or in a module of it, that a query matches. The query is not one
    /// that [`needs_source`].
    pub(crate) fn locations(
        &self,
        types: &KernelTypes,
        module: Option<&str>,
        query: &CodeQuery,
    ) -> LocationResult {
        match query {
            CodeQuery::Function { name, kind, .. } => {
                self.functions(types, module, name, *kind == FunctionKind::Exported)
            }
            CodeQuery::Statement { name, .. } => self.functions(types, module, name, false),
            CodeQuery::Address { address, .. } => Ok(vec![at_address(*address)]),
            CodeQuery::Mark { .. } | CodeQuery::Plt(_) => Ok(Vec::new()),
        }
    }

    fn functions(
        &self,
        types: &KernelTypes,
        module: Option<&str>,
        name: &str,
        exported: bool,
    ) -> LocationResult {
        // A single function of the kernel that may be probed. Several of one name, and copies, are
        // probed by address.
        let kernel = KernelTypes::kernel();
        let id = |module_types: Types, name: &str| match signature(module_types.btf, name) {
            Some(matched) => u64::from(matched.id),
            None => no_variables(Unprobeable::Unknown),
        };
        if module.is_none()
            && !exported
            && let Some(kernel) = kernel
            && !spile_glob::is_pattern(name)
            && !is_hidden(name)
            // The kernel's own check also accepts functions of modules, which its types lack.
            && kernel.btf.find_func(name).is_some()
            && functions::can_be_probed(name)
        {
            return Ok(vec![location(name, id(kernel, name), named(None, name))]);
        }
        let functions = Functions::kernel().map_err(ToString::to_string)?;
        let FunctionMatches {
            functions,
            left_out,
        } = functions.matching(module, name);
        self.left_out.fetch_add(left_out, Ordering::Relaxed);
        if functions.is_empty() && left_out > 0 {
            return Err(match left_out {
                1 => "the kernel forbids probing it".to_owned(),
                n => format!("the kernel forbids probing the {n} functions that match"),
            });
        }
        let module_types = types.of(module);
        let many = functions.len() > FEW;
        let id = |f: &KernelFunction<'_>| match module_types {
            None => no_variables(Unprobeable::NoTypes),
            // Only functions whose variables are used are looked up.
            Some(_) if many => LATER + u64::from(f.name_id),
            Some(module_types) => id(module_types, f.name),
        };
        let matched = functions.iter().filter(|f| !exported || f.global);
        Ok(matched.map(|f| function(f, id)).collect())
    }

    /// The BTF number of one of many functions.
    fn btf_number(&self, types: Types, name: &str) -> Option<u32> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        // Queries go through one module after the other, so one table is enough.
        let current = ids
            .as_ref()
            .is_some_and(|(btf, _)| std::ptr::eq(*btf, types.btf));
        if !current {
            *ids = Some((types.btf, functions::ids(types.btf)));
        }
        ids.as_ref()?.1.get(name).copied()
    }

    /// The variables at the entry or the return of a function.
    pub(crate) fn variables(
        &self,
        types: &KernelTypes,
        module: Option<&str>,
        id: u64,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let module_types = types.of(module);
        let why = (id / WHY) as usize;
        if let Some(reason) = why.checked_sub(1).and_then(|n| REASONS.get(n)) {
            return Err((*reason).to_owned());
        }
        let module_types = module_types.ok_or(REASONS[Unprobeable::NoTypes as usize])?;
        let id = match id.checked_sub(LATER) {
            None => id.fit::<u32>(),
            Some(index) => Functions::kernel()
                .ok()
                .and_then(|functions| {
                    self.btf_number(module_types, functions.name_at(index.fit::<u32>())?)
                })
                .ok_or(REASONS[Unprobeable::Unknown as usize])?,
        };
        Ok(parameters(module_types, id, ret))
    }
}

/// Whether a query is about source files, lines or inlined copies, which only debugging information
/// has, or about an address from before the kernel was relocated.
pub(crate) fn needs_source(query: &CodeQuery) -> bool {
    match query {
        CodeQuery::Function {
            file,
            lines,
            kind,
            part,
            ..
        } => {
            file.is_some()
                || *lines != LinePattern::Any
                || part.is_some()
                || *kind == FunctionKind::Inline
        }
        CodeQuery::Statement { file, lines, .. } => file.is_some() || *lines != LinePattern::Any,
        CodeQuery::Address { absolute, .. } => !absolute,
        CodeQuery::Mark { .. } | CodeQuery::Plt(_) => false,
    }
}

fn no_variables(why: Unprobeable) -> u64 {
    WHY * (why as u64 + 1)
}

/// Names in BTF of functions that cannot be probed by name.
fn is_hidden(name: &str) -> bool {
    name.starts_with("__pfx_") || name.starts_with("__cfi_")
}

fn named(module: Option<&str>, name: &str) -> CodeLocation {
    CodeLocation::Symbol {
        module: module.map(Into::into),
        name: name.into(),
        offset: 0,
    }
}

fn location(name: &str, id: u64, location: CodeLocation) -> FoundLocation {
    FoundLocation::new(id, name.into(), location, 0)
}

fn function(f: &KernelFunction<'_>, id: impl Fn(&KernelFunction<'_>) -> u64) -> FoundLocation {
    let id = match f.shared {
        true => no_variables(Unprobeable::Shared),
        false if !f.as_declared() => no_variables(Unprobeable::Copy),
        false => id(f),
    };
    let code = match f.traced {
        _ if spile_kernel::foreign_kernel::is_active() => named(f.module, f.symbol),
        true => CodeLocation::Traced(f.address),
        false => CodeLocation::Address(f.address),
    };
    FoundLocation {
        address: f.address,
        ..location(f.name, id, code)
    }
}

fn at_address(address: u64) -> FoundLocation {
    let name: Arc<str> = match Symbols::kernel() {
        Ok(symbols) => symbols
            .resolve(address)
            .map_or_else(|| format!("{address:#x}").into(), |(s, _)| s.name.into()),
        Err(_) => format!("{address:#x}").into(),
    };
    FoundLocation {
        address,
        ..location(
            &name,
            no_variables(Unprobeable::Address),
            CodeLocation::Address(address),
        )
    }
}

/// The class of a parameter.
enum ParamClass {
    /// Passed in this number of registers.
    Registers(usize),
    /// Passed in this number of bytes of the stack.
    Stack(u64),
}

/// The class by the System V convention: structures of up to 16 bytes are passed in registers, as
/// the kernel has no floating point; larger ones on the stack.
fn class(types: &Types, ty: u32) -> ParamClass {
    let size = types.btf.size_of(ty).unwrap_or(8);
    match size {
        0 => ParamClass::Registers(0),
        1..=8 => ParamClass::Registers(1),
        9..=16 => ParamClass::Registers(2),
        _ => ParamClass::Stack(size.next_multiple_of(8)),
    }
}

fn parameters(types: Types, id: u32, ret: bool) -> Vec<Variable> {
    let Type::Func { proto, .. } = types.btf.ty(id) else {
        return Vec::new();
    };
    let Type::FuncProto(proto) = types.btf.ty(proto) else {
        return Vec::new();
    };
    let mut list = Vec::new();
    let word = |n: usize| LocationPiece {
        bytes: 8,
        value: Ok(vec![LocOp::Arg(n.fit::<u8>())]),
    };
    let mut used = 0;
    let calls = &HOST.calls;
    // Offset above the return address.
    let mut stack = calls.popped;
    for (n, p) in proto.params().enumerate() {
        if p.ty == 0 {
            break; // what follows is not named
        }
        let composite = types.btf.composite(p.ty).is_some();
        let loc = match class(&types, p.ty) {
            ParamClass::Registers(0) => VarLocation::Absent("it takes no memory".into()),
            ParamClass::Registers(words) if used + words <= calls.arguments.len() => {
                let first = used;
                used += words;
                match (composite, words) {
                    (false, 1) => VarLocation::Value(vec![LocOp::Arg(first.fit::<u8>())]),
                    _ => VarLocation::Pieces((first..used).map(word).collect()),
                }
            }
            ParamClass::Registers(words) => stack_slot(&mut stack, 8 * words.fit::<i64>()),
            ParamClass::Stack(bytes) => stack_slot(&mut stack, bytes.cast_signed()),
        };
        let name: Arc<str> = match p.name {
            "" => format!("arg{}", n + 1).into(),
            name => name.into(),
        };
        list.push(Variable {
            name,
            ty: types.common_id(p.ty),
            kind: VarKind::Parameter,
            loc,
        });
    }
    if ret && proto.ret != 0 {
        let whole = types.btf.composite(proto.ret).is_none();
        list.push(Variable {
            name: "return".into(),
            ty: types.common_id(proto.ret),
            kind: VarKind::Return,
            loc: match (whole, class(&types, proto.ret)) {
                (true, _) => VarLocation::Value(vec![LocOp::Ret]),
                (false, ParamClass::Registers(words)) => {
                    in_registers(&vec![ReturnWord::Integer; words])
                }
                (false, ParamClass::Stack(_)) => VarLocation::Address(vec![LocOp::Ret]),
            },
        });
    }
    list
}

fn stack_slot(stack: &mut i64, bytes: i64) -> VarLocation {
    let offset = *stack;
    *stack += bytes;
    VarLocation::Address(on_stack(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_module_that_is_built_in() {
        assert!(!not_loaded("/dev/null").contains("built in"));
    }

    fn query(name: &str, kind: FunctionKind) -> CodeQuery {
        CodeQuery::Function {
            name: name.into(),
            file: None,
            lines: LinePattern::Any,
            kind,
            part: None,
        }
    }

    #[test]
    fn functions_of_the_running_kernel_have_locations() {
        let (code, types) = (KernelCode::default(), KernelTypes::default());
        let kernel = KernelTypes::kernel().expect("the running kernel has BTF");
        let read = query("vfs_read", FunctionKind::Return);
        let found = code.locations(&types, None, &read).expect("known");
        let [one] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(one.location, named(None, "vfs_read"));
        let vars = code.variables(&types, None, one.id, true).expect("known");
        let names: Vec<&str> = vars.iter().map(|v| &*v.name).collect();
        assert_eq!(names, ["file", "buf", "count", "pos", "return"]);
        assert_eq!(vars[3].loc, VarLocation::Value(vec![LocOp::Arg(3)]));
        assert_eq!(vars[4].loc, VarLocation::Value(vec![LocOp::Ret]));
        assert_eq!(kernel.btf.c_name(vars[0].ty.number), "struct file *");
        assert!(needs_source(&query("vfs_read", FunctionKind::Inline)) && !needs_source(&read));
        assert!(code.modules("nosuch_module").is_err());
        for why in 1..=REASONS.len() as u64 {
            assert!(code.variables(&types, None, why * WHY, false).is_err());
        }
    }
}
