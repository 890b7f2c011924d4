//! Links an object in memory: joins each program with the subprograms that it reaches, as the
//! kernel expects. libbpf does the same with the file that `elf` writes.
//!
//! In: an [`ObjectSpec`]. Out: [`LinkedObject`], whose programs lack only the descriptors of maps, which
//! [`LinkedProgram::set_maps`] inserts.
//!
//! - A program's subprograms follow it in the order of their first reference, depth first. libbpf
//!   uses the same order, so that both ways give the kernel the same instructions
//!   (`crates/bpf/tests/link.rs`).
//! - Positions are slots of the program, not of one function.
//! - All programs share one BTF, with the types of functions and of maps whose types the kernel
//!   needs. A program without script lines has no line records.
//!
//! Not done here: maps and system calls (`spile-runtime`).

use rustc_hash::{FxHashMap, FxHashSet};
use spile_cast::Cast;
use spile_ebpf::isa::asm::{AsmFunction, RelocTarget, Section};
use spile_ebpf::isa::insn::{Callee, ImmKind, Insn};

use crate::object::btf::{BtfBuilder, BuiltTypeId};
use crate::object::debug_info;
use crate::object::elf::{ElfError, ObjectSpec, encode};

/// A map that an instruction refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapRef {
    /// An index into [`ObjectSpec::maps`].
    Map(usize),
    /// The state memory.
    Bss,
    /// The constants.
    Rodata,
}

/// A linked object.
#[derive(Debug, Default)]
pub struct LinkedObject {
    /// BTF of all programs and maps; empty if there are none.
    pub btf: Vec<u8>,
    /// The programs, in the order of [`ObjectSpec::programs`].
    pub programs: Vec<LinkedProgram>,
    /// Type ids of key and value in that BTF, for the maps (by index) that need them.
    pub map_types: Vec<(usize, [u32; 2])>,
}

/// A program with all subprograms that it reaches.
#[derive(Debug, Default)]
pub struct LinkedProgram {
    /// Its name.
    pub name: String,
    /// The instructions, one word for each slot.
    pub insns: Vec<u64>,
    /// Functions: slot and type in the BTF (`struct bpf_func_info`).
    pub functions: Vec<[u32; 2]>,
    /// Lines of the script (`struct bpf_line_info`).
    pub lines: Vec<[u32; 4]>,
    /// The slots that need the descriptor of a map.
    maps: Vec<(usize, MapRef)>,
}

impl LinkedProgram {
    /// Inserts the descriptors of maps.
    pub fn set_maps(&mut self, descriptor: impl Fn(MapRef) -> i32) {
        for &(slot, map) in &self.maps {
            set_imm(&mut self.insns[slot], descriptor(map));
        }
    }
}

/// Stores the immediate, the upper half of an instruction's word.
fn set_imm(insn: &mut u64, imm: i32) {
    *insn = *insn & 0xffff_ffff | u64::from(imm.cast_unsigned()) << 32;
}

/// Links an object.
///
/// # Errors
/// As [`ObjectSpec::write`]: errors of the code generator.
pub fn link(spec: &ObjectSpec) -> Result<LinkedObject, ElfError> {
    spec.check_names()?;
    let maps = spec.maps.iter().enumerate();
    let mut linker = Linker {
        spec,
        btf: BtfBuilder::new(),
        types: FxHashMap::default(),
        maps: maps.clone().map(|(i, m)| (&*m.name, i)).collect(),
        functions: by_name(spec),
    };
    let programs = spec.programs.iter().map(|p| linker.program(&p.function));
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    let mut btf = linker.btf;
    let typed = maps.filter_map(|(i, map)| {
        let (key, value) = debug_info::map_types(&mut btf, map)?;
        Some((i, [key.number(), value.number()]))
    });
    let map_types: Vec<_> = typed.collect();
    let needed = !programs.is_empty() || !map_types.is_empty();
    Ok(LinkedObject {
        btf: if needed { btf.write() } else { Vec::new() },
        programs,
        map_types,
    })
}

/// The subprograms of an object by name.
pub(crate) fn by_name(spec: &ObjectSpec) -> FxHashMap<&str, &AsmFunction> {
    spec.subprograms.iter().map(|f| (&*f.name, f)).collect()
}

struct Linker<'s> {
    spec: &'s ObjectSpec,
    btf: BtfBuilder,
    /// Type ids of the functions of the current program.
    types: FxHashMap<&'s str, BuiltTypeId>,
    maps: FxHashMap<&'s str, usize>,
    functions: FxHashMap<&'s str, &'s AsmFunction>,
}

/// The functions of a program with the slot at which each begins: the program itself, then what it
/// refers to, in the order of the first reference, depth first.
///
/// # Errors
/// A reference to a function that the object lacks.
pub(crate) fn members<'s>(
    functions: &FxHashMap<&str, &'s AsmFunction>,
    main: &'s AsmFunction,
) -> Result<Vec<(&'s AsmFunction, u32)>, ElfError> {
    let mut members = vec![(main, 0)];
    let mut end = main.slots();
    let mut seen: FxHashSet<&str> = FxHashSet::default();
    let mut open = vec![(main, main.relocs.iter())];
    while let Some((from, relocs)) = open.last_mut() {
        let Some(reloc) = relocs.next() else {
            open.pop();
            continue;
        };
        let (RelocTarget::Call(name) | RelocTarget::Func(name)) = &reloc.target else {
            continue;
        };
        let undefined = || ElfError::Undefined(from.name.clone(), name.to_string());
        let callee = *functions.get(&**name).ok_or_else(undefined)?;
        if seen.insert(&callee.name) {
            members.push((callee, end));
            end += callee.slots();
            open.push((callee, callee.relocs.iter()));
        }
    }
    Ok(members)
}

impl<'s> Linker<'s> {
    fn program(&mut self, main: &'s AsmFunction) -> Result<LinkedProgram, ElfError> {
        let mut program = LinkedProgram {
            name: main.name.clone(),
            ..LinkedProgram::default()
        };
        let members = members(&self.functions, main)?;
        // The program itself has no name that a function could refer to.
        let starts = members.iter().skip(1).map(|(f, start)| (&*f.name, *start));
        let starts: FxHashMap<&str, u32> = starts.collect();
        for (i, (function, start)) in members.iter().enumerate() {
            self.append(&mut program, function, i == 0)?;
            for reloc in &function.relocs {
                let slot = start + reloc.slot;
                let (RelocTarget::Call(name) | RelocTarget::Func(name)) = &reloc.target else {
                    self.data(&mut program, function, &reloc.target, slot as usize)?;
                    continue;
                };
                let undefined = || ElfError::Undefined(function.name.clone(), name.to_string());
                let callee = *starts.get(&**name).ok_or_else(undefined)?;
                let distance = i64::from(callee) - i64::from(slot) - 1;
                set_imm(&mut program.insns[slot as usize], distance.fit::<i32>());
            }
        }
        if members.iter().any(|(f, _)| !f.lines.is_empty()) {
            let mut lines = Vec::new();
            for (function, start) in members {
                debug_info::lines(&mut self.btf, function, start, 1, &mut lines);
            }
            program.lines = lines.iter().map(|l| l.words()).collect();
        }
        Ok(program)
    }

    /// Appends the code of a function.
    fn append(
        &mut self,
        program: &mut LinkedProgram,
        function: &'s AsmFunction,
        main: bool,
    ) -> Result<(), ElfError> {
        let start = program.insns.len().fit::<u32>();
        let ty = *(self.types.entry(&function.name))
            .or_insert_with(|| debug_info::function_type(&mut self.btf, function, main));
        program.functions.push([start, ty.number()]);
        let mut bytes = Vec::with_capacity(function.slots() as usize * 8);
        encode(function, &mut bytes, |insn, target, _| {
            Ok(refer(insn, target))
        })?;
        let (words, _) = bytes.as_chunks();
        program
            .insns
            .extend(words.iter().map(|w| u64::from_le_bytes(*w)));
        Ok(())
    }

    /// Notes a reference to a map or to data; its descriptor is inserted later.
    fn data(
        &self,
        program: &mut LinkedProgram,
        from: &AsmFunction,
        target: &RelocTarget,
        slot: usize,
    ) -> Result<(), ElfError> {
        let map = match target {
            RelocTarget::Map(name) => self.maps.get(&**name).map(|i| MapRef::Map(*i)),
            RelocTarget::Data(Section::Bss, offset) => {
                (*offset < self.spec.bss_size).then_some(MapRef::Bss)
            }
            RelocTarget::Data(Section::Rodata, offset) => {
                ((*offset as usize) < self.spec.rodata.len()).then_some(MapRef::Rodata)
            }
            RelocTarget::Call(_) | RelocTarget::Func(_) => None,
        };
        let undefined = || ElfError::Undefined(from.name.clone(), target.to_string());
        program.maps.push((slot, map.ok_or_else(undefined)?));
        Ok(())
    }
}

/// Sets the kind of reference in an instruction. `None` if it cannot hold the reference.
fn refer(insn: &mut Insn, target: &RelocTarget) -> Option<()> {
    match (insn, target) {
        (Insn::LdImm64 { kind, imm, .. }, RelocTarget::Map(_)) => {
            (*kind, *imm) = (ImmKind::MapFd, 0);
        }
        (Insn::LdImm64 { kind, imm, .. }, RelocTarget::Data(_, offset)) => {
            (*kind, *imm) = (ImmKind::MapValue, u64::from(*offset) << 32);
        }
        (Insn::LdImm64 { kind, imm, .. }, RelocTarget::Func(_)) => {
            (*kind, *imm) = (ImmKind::Func, 0);
        }
        (
            Insn::Call {
                callee: Callee::Subprogram,
                ..
            },
            RelocTarget::Call(_),
        ) => {}
        _ => return None,
    }
    Some(())
}
