//! Writes the compiled script as a relocatable BPF ELF object that libbpf, bpftool and
//! llvm-objdump read.
//!
//! | section | what |
//! |---|---|
//! | `.text` | subprograms: static ones are verified in the context of each caller, global ones once |
//! | one per [`ProgramSpec::section`] | the programs of that section, one after the other |
//! | `license` | the licence that the kernel asks for |
//! | `.maps` | one zeroed struct a map; its BTF type says what the map is |
//! | `.rodata` | constants |
//! | `.bss` | size of the state memory, no contents |
//! | `.BTF`, `.BTF.ext` | types; functions and source lines by instruction |
//!
//! References follow libbpf's rules: a map by its symbol; data by the section's symbol with
//! the offset in the instruction; a subprogram by the section symbol of `.text` with the
//! location in the instruction (for a call in slots, less one; for an address in bytes).
//!
//! The same input gives the same bytes.

use std::fmt;
use std::ops::Range;

use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};
use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ebpf::isa::asm::{AsmFunction, RelocTarget, Section};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{Callee, ImmKind, Insn};

use crate::object::btf::{self, BtfBuilder, ExtSection, Linkage};
use crate::object::debug_info;

/// Name of the variable that covers `.bss`.
pub const STATE: &str = "spile_state";
/// Name of the variable that covers `.rodata`.
pub const TABLES: &str = "spile_tables";
/// The licence that allows programs all helpers.
pub const LICENSE: &str = "Dual MIT/GPL";

/// Kinds of maps, with the kernel's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapType {
    /// Hash table.
    Hash = 1,
    /// Array.
    Array = 2,
    /// Perf events, one for each CPU.
    PerfEventArray = 4,
    /// Hash table with a value for each CPU.
    PercpuHash = 5,
    /// Array with a value for each CPU.
    PercpuArray = 6,
    /// A value for each task, freed with the task. In spile's maps the key is an `int`, the value
    /// is an array of 64-bit words, and `max_entries` is 0.
    TaskStorage = 29,
    /// Ring buffer; no key and value, `max_entries` is its size in bytes.
    Ringbuf = 27,
}

/// A map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSpec {
    /// Name, a C identifier. The kernel shows the first 15 characters.
    pub name: String,
    /// Kind of the map.
    pub ty: MapType,
    /// Bytes of a key; 0 if the kind has none.
    pub key_size: u32,
    /// Bytes of a value; 0 if the kind has none.
    pub value_size: u32,
    /// Limit on the number of entries.
    pub max_entries: u32,
    /// `BPF_F_*` flags of map creation.
    pub flags: u32,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Section name, from which loaders of files derive type and attach point: `raw_tp/sys_enter`,
    /// `perf_event`. Several programs may share a section.
    pub section: String,
    /// The code, with the context as its only parameter.
    pub function: AsmFunction,
}

/// The content of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectSpec {
    /// Maps.
    pub maps: Vec<MapSpec>,
    /// Bytes of `.bss`; 0 for none.
    pub bss_size: u32,
    /// Contents of `.rodata`; empty for none.
    pub rodata: Vec<u8>,
    /// Programs, in the order of the symbol table.
    pub programs: Vec<ProgramSpec>,
    /// Functions that programs or other functions call, or that helpers call back.
    pub subprograms: Vec<AsmFunction>,
    /// Licence, usually [`LICENSE`].
    pub license: String,
}

impl ObjectSpec {
    /// Whether a program may read the registers of the interrupted thread: it, or a function that it can call, asks for them.
    pub fn reads_registers(&self, program: &str) -> bool {
        let asks = |function: &AsmFunction| {
            let of_task = Helper::TaskPtRegs.id().cast_signed();
            function.insns.iter().any(|insn| match insn {
                Insn::Call { callee, target } => *callee == Callee::Helper && *target == of_task,
                _ => false,
            })
        };
        let mut programs = self.programs.iter().map(|program| &program.function);
        let own = programs.find(|function| function.name == program);
        own.is_none_or(asks) || self.subprograms.iter().any(asks)
    }
}

/// The reason why an object cannot be written: an error of the code generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElfError {
    /// Two symbols have this name.
    Duplicate(String),
    /// The name is no valid symbol: empty, or not a C identifier.
    BadName(String),
    /// A function (first) refers to a symbol (second) that is not in the object.
    Undefined(String, String),
    /// A function (first) has a reference at a slot (second) whose instruction cannot hold it.
    BadReloc(String, u32),
    /// The section name is reserved for the object, or empty.
    BadSection(String),
    /// The ELF library reported an error.
    Write(String),
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElfError::Duplicate(name) => write!(f, "`{name}` is defined twice"),
            ElfError::BadName(name) => write!(f, "`{name}` cannot be a symbol name"),
            ElfError::Undefined(func, name) => {
                write!(f, "{func} refers to `{name}`, which is not in the object")
            }
            ElfError::BadReloc(func, slot) => write!(f, "{func}: bad reference at slot {slot}"),
            ElfError::BadSection(name) => write!(f, "a program's section cannot be `{name}`"),
            ElfError::Write(message) => write!(f, "cannot write the object: {message}"),
        }
    }
}

impl std::error::Error for ElfError {}

impl ObjectSpec {
    /// Number of instruction slots of all functions; 64-bit constants take two, as in the kernel.
    pub fn slots(&self) -> u32 {
        let programs = self.programs.iter().map(|p| &p.function);
        let functions = programs.chain(&self.subprograms);
        functions.map(AsmFunction::slots).sum()
    }

    /// The ELF file's bytes.
    pub fn write(&self) -> Result<Vec<u8>, ElfError> {
        self.check_names()?;
        let mut writer = ElfWriter::new();
        writer.data(self)?;
        writer.maps(self);
        writer.code(self)?;
        writer.finish()
    }

    /// Checks that all symbol names are distinct and valid.
    pub(crate) fn check_names(&self) -> Result<(), ElfError> {
        let programs = self.programs.iter().map(|p| &*p.function.name);
        let names = programs
            .chain(self.subprograms.iter().map(|f| &*f.name))
            .chain(self.maps.iter().map(|m| &*m.name))
            .chain([STATE, TABLES]);
        let mut seen = rustc_hash::FxHashSet::default();
        for name in names {
            let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.chars().all(letter)
                || name.starts_with(|c: char| c.is_ascii_digit())
                || name.is_empty()
            {
                return Err(ElfError::BadName(name.into()));
            }
            if !seen.insert(name) {
                return Err(ElfError::Duplicate(name.into()));
            }
        }
        const OWN: [&str; 8] = [
            "", ".text", "license", ".maps", ".rodata", ".bss", ".BTF", ".BTF.ext",
        ];
        match self
            .programs
            .iter()
            .find(|p| OWN.contains(&&*p.section) || p.section.contains('\0'))
        {
            Some(program) => Err(ElfError::BadSection(program.section.clone())),
            None => Ok(()),
        }
    }
}

/// The target of a reference.
#[derive(Clone, Copy)]
struct RefTarget {
    symbol: SymbolId,
    /// Distance in bytes from the symbol, stored in the instruction.
    addend: u32,
}

/// A code section: its functions with their byte offsets.
struct CodeSection<'s> {
    name: &'s str,
    functions: Vec<(u32, &'s AsmFunction)>,
    size: u32,
}

impl<'s> CodeSection<'s> {
    fn new(name: &'s str) -> Self {
        CodeSection {
            name,
            functions: Vec::new(),
            size: 0,
        }
    }

    fn push(&mut self, function: &'s AsmFunction) {
        self.functions.push((self.size, function));
        self.size += function.slots() * 8;
    }
}

struct ElfWriter<'s> {
    object: Object<'s>,
    btf: BtfBuilder,
    ext: Vec<ExtSection>,
    maps: FxHashMap<&'s str, RefTarget>,
    functions: FxHashMap<&'s str, RefTarget>,
    /// Data sections with their sizes.
    bss: Option<(RefTarget, u32)>,
    rodata: Option<(RefTarget, u32)>,
}

impl<'s> ElfWriter<'s> {
    fn new() -> ElfWriter<'s> {
        ElfWriter {
            object: Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little),
            btf: BtfBuilder::new(),
            ext: Vec::new(),
            maps: FxHashMap::default(),
            functions: FxHashMap::default(),
            bss: None,
            rodata: None,
        }
    }

    fn section(&mut self, name: &str, kind: SectionKind) -> SectionId {
        self.object
            .add_section(Vec::new(), name.as_bytes().to_vec(), kind)
    }

    fn symbol(
        &mut self,
        name: &str,
        kind: SymbolKind,
        scope: SymbolScope,
        section: SectionId,
        bytes: Range<u32>,
    ) -> SymbolId {
        self.object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: u64::from(bytes.start),
            size: u64::from(bytes.end - bytes.start),
            kind,
            scope,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        })
    }

    /// `license`, `.rodata` and `.bss`.
    fn data(&mut self, spec: &'s ObjectSpec) -> Result<(), ElfError> {
        let license = self.section("license", SectionKind::Data);
        self.object
            .append_section_data(license, spec.license.as_bytes(), 1);
        self.object.append_section_data(license, &[0], 1);
        if !spec.rodata.is_empty() {
            let size = u32::try_from(spec.rodata.len())
                .map_err(|_| ElfError::Write(".rodata has 4 GB or more".into()))?;
            let id = self.section(".rodata", SectionKind::ReadOnlyData);
            self.object.set_section_data(id, spec.rodata.as_slice(), 8);
            self.rodata = Some(self.data_section(".rodata", TABLES, id, size));
        }
        if spec.bss_size > 0 {
            let id = self.section(".bss", SectionKind::UninitializedData);
            self.object
                .append_section_bss(id, u64::from(spec.bss_size), 8);
            self.bss = Some(self.data_section(".bss", STATE, id, spec.bss_size));
        }
        Ok(())
    }

    /// Symbol and BTF of a data section with a single variable. The variable has to be global for
    /// libbpf to make the map mmap-able.
    fn data_section(
        &mut self,
        section: &str,
        var: &str,
        id: SectionId,
        size: u32,
    ) -> (RefTarget, u32) {
        self.symbol(var, SymbolKind::Data, SymbolScope::Dynamic, id, 0..size);
        let byte = self.btf.int("char", 1, true);
        let array = self.btf.array(byte, size);
        let var = self.btf.var(var, array, Linkage::Global);
        self.btf.datasec(section, size, &[(var, 0, size)]);
        let symbol = self.object.section_symbol(id);
        (RefTarget { symbol, addend: 0 }, size)
    }

    fn maps(&mut self, spec: &'s ObjectSpec) {
        if spec.maps.is_empty() {
            return;
        }
        let id = self.section(".maps", SectionKind::Data);
        let mut vars = Vec::with_capacity(spec.maps.len());
        let mut end = 0;
        for map in &spec.maps {
            let mut properties = vec![("type", map.ty as u32)];
            let optional = [
                ("key_size", map.key_size),
                ("value_size", map.value_size),
                ("max_entries", map.max_entries),
                ("map_flags", map.flags),
            ];
            properties.extend(optional.into_iter().filter(|(_, value)| *value != 0));
            // The kernel needs the types of these maps.
            let types = debug_info::map_types(&mut self.btf, map);
            let types = types.map(|(key, value)| vec![("key", key), ("value", value)]);
            let types = types.unwrap_or_default();
            let (ty, size) = self.btf.map_struct(&properties, &types);
            vars.push((self.btf.var(&map.name, ty, Linkage::Global), end, size));
            let (kind, scope) = (SymbolKind::Data, SymbolScope::Dynamic);
            let symbol = self.symbol(&map.name, kind, scope, id, end..end + size);
            self.maps.insert(&map.name, RefTarget { symbol, addend: 0 });
            end += size;
        }
        self.object.set_section_data(id, vec![0; end as usize], 8);
        self.btf.datasec(".maps", end, &vars);
    }

    /// The code sections. Offsets are assigned first, because functions refer to later ones.
    fn code(&mut self, spec: &'s ObjectSpec) -> Result<(), ElfError> {
        let mut text = CodeSection::new(".text");
        spec.subprograms.iter().for_each(|f| text.push(f));
        if !text.functions.is_empty() {
            let id = self.section(".text", SectionKind::Text);
            let symbol = self.object.section_symbol(id);
            for (addend, function) in &text.functions {
                self.functions.insert(
                    &function.name,
                    RefTarget {
                        symbol,
                        addend: *addend,
                    },
                );
            }
            self.code_section(&text, id, false)?;
        }
        let mut sections: Vec<CodeSection> = Vec::new();
        let mut index = FxHashMap::default();
        for program in &spec.programs {
            let section_index = *index.entry(&*program.section).or_insert_with(|| {
                sections.push(CodeSection::new(&program.section));
                sections.len() - 1
            });
            sections[section_index].push(&program.function);
        }
        for section in &sections {
            let id = self.section(section.name, SectionKind::Text);
            self.code_section(section, id, true)?;
        }
        Ok(())
    }

    fn code_section(
        &mut self,
        section: &CodeSection<'s>,
        id: SectionId,
        programs: bool,
    ) -> Result<(), ElfError> {
        let mut bytes = Vec::with_capacity(section.size as usize);
        let mut relocs = Vec::new();
        let name = self.btf.string(section.name);
        let mut ext = ExtSection {
            name,
            funcs: Vec::new(),
            lines: Vec::new(),
        };
        for &(start, function) in &section.functions {
            let scope = if programs || function.separate {
                SymbolScope::Dynamic
            } else {
                SymbolScope::Compilation
            };
            let ty = debug_info::function_type(&mut self.btf, function, programs);
            ext.funcs.push((start, ty));
            debug_info::lines(&mut self.btf, function, start, 8, &mut ext.lines);
            self.function(function, &mut bytes, &mut relocs)?;
            let end = bytes.len().fit::<u32>();
            self.symbol(&function.name, SymbolKind::Text, scope, id, start..end);
        }
        self.object.set_section_data(id, bytes, 8);
        for reloc in relocs {
            self.object
                .add_relocation(id, reloc)
                .map_err(|e| ElfError::Write(e.to_string()))?;
        }
        self.ext.push(ext);
        Ok(())
    }

    /// Appends a function's code and collects its relocations.
    fn function(
        &self,
        function: &AsmFunction,
        bytes: &mut Vec<u8>,
        out: &mut Vec<Relocation>,
    ) -> Result<(), ElfError> {
        encode(function, bytes, |insn, target, offset| {
            let location = self.location(function, target)?;
            let r_type = refer(insn, target, location.addend);
            Ok(r_type.map(|r_type| {
                out.push(Relocation {
                    offset: offset as u64,
                    symbol: location.symbol,
                    addend: 0,
                    flags: RelocationFlags::Elf { r_type },
                });
            }))
        })
    }

    fn location(
        &self,
        function: &AsmFunction,
        target: &RelocTarget,
    ) -> Result<RefTarget, ElfError> {
        let target_location = match target {
            RelocTarget::Map(name) => self.maps.get(&**name).copied(),
            RelocTarget::Call(name) | RelocTarget::Func(name) => {
                self.functions.get(&**name).copied()
            }
            RelocTarget::Data(section, addend) => {
                let data = match section {
                    Section::Bss => self.bss,
                    Section::Rodata => self.rodata,
                };
                let inside = data.filter(|(_, size)| addend < size);
                inside.map(|(location, _)| RefTarget {
                    addend: *addend,
                    ..location
                })
            }
        };
        target_location
            .ok_or_else(|| ElfError::Undefined(function.name.clone(), target.to_string()))
    }

    fn finish(mut self) -> Result<Vec<u8>, ElfError> {
        let id = self.section(".BTF", SectionKind::Other);
        self.object.set_section_data(id, self.btf.write(), 4);
        let id = self.section(".BTF.ext", SectionKind::Other);
        self.object.set_section_data(id, btf::ext(&self.ext), 4);
        self.object
            .write()
            .map_err(|e| ElfError::Write(e.to_string()))
    }
}

/// Appends a function's code. `refer` changes each instruction with a reference, at an offset of the bytes;
/// it returns `None` if the instruction cannot hold the reference.
pub(crate) fn encode(
    function: &AsmFunction,
    bytes: &mut Vec<u8>,
    mut refer: impl FnMut(&mut Insn, &RelocTarget, usize) -> Result<Option<()>, ElfError>,
) -> Result<(), ElfError> {
    let bad = |slot| ElfError::BadReloc(function.name.clone(), slot);
    let mut relocs = function.relocs.iter().peekable();
    let mut slot = 0;
    for insn in &function.insns {
        let mut insn = *insn;
        if let Some(reloc) = relocs.next_if(|r| r.slot == slot) {
            refer(&mut insn, &reloc.target, bytes.len())?.ok_or_else(|| bad(slot))?;
        }
        insn.encode(bytes);
        slot += insn.slots();
    }
    relocs.next().map_or(Ok(()), |left| Err(bad(left.slot)))
}

/// Stores the addend of a reference in its instruction and returns the relocation's type. `None` if
/// the instruction cannot hold the reference.
fn refer(
    insn: &mut Insn,
    target: &RelocTarget,
    addend: u32,
) -> Option<object::elf::RelocationType> {
    match (insn, target) {
        (Insn::LdImm64 { imm, .. }, RelocTarget::Map(_) | RelocTarget::Data(..)) => {
            *imm = u64::from(addend);
            Some(elf::R_BPF_64_64)
        }
        (Insn::LdImm64 { kind, imm, .. }, RelocTarget::Func(_)) => {
            *kind = ImmKind::Func;
            *imm = u64::from(addend);
            Some(elf::R_BPF_64_64)
        }
        (Insn::Call { target: imm, .. }, RelocTarget::Call(_)) => {
            *imm = (addend / 8).cast_signed() - 1;
            Some(elf::R_BPF_64_32)
        }
        _ => None,
    }
}
