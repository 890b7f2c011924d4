//! Writer of BTF, the type information that libbpf and the kernel read: `.BTF` ([`BtfBuilder`]) and
//! `.BTF.ext` ([`ext`]).
//!
//! libbpf takes maps from it: a map is a variable in the `.maps` data section whose struct type
//! encodes the map's properties, see [`BtfBuilder::map_struct`]. The kernel takes the names of functions
//! from it, which callbacks need, and the source lines for the verifier's log.
//!
//! Equal strings and equal types are stored once. Ids follow the order of the calls, so equal calls
//! give equal bytes.
//!
//! Source of facts: `Documentation/bpf/btf.rst`.

use rustc_hash::FxHashMap;
use spile_cast::Cast;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: u32 = 24;

/// Kinds of types (bits 24-28 of a type's info word).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const CONST: u32 = 10;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
}

/// The id of a type. `VOID` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BuiltTypeId(u32);

impl BuiltTypeId {
    /// The id as the kernel numbers the types of one BTF.
    pub fn number(self) -> u32 {
        self.0
    }

    /// No type: the result of a function that returns nothing, or the target of a `void *`.
    pub const VOID: BuiltTypeId = BuiltTypeId(0);
}

/// A string, as its offset in the string section. 0 is the empty string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StrId(u32);

/// The visibility of a function or variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// Visible in the object only. A static function is verified for each of its callers.
    Static = 0,
    /// Visible to the loader too.
    Global = 1,
    /// Defined elsewhere.
    Extern = 2,
}

/// Types under construction.
#[derive(Debug)]
pub struct BtfBuilder {
    types: Vec<u8>,
    count: u32,
    known: FxHashMap<Vec<u32>, BuiltTypeId>,
    strings: Vec<u8>,
    offsets: FxHashMap<Box<str>, StrId>,
}

impl Default for BtfBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BtfBuilder {
    /// An empty set of types, except for void.
    pub fn new() -> BtfBuilder {
        BtfBuilder {
            types: Vec::new(),
            count: 0,
            known: FxHashMap::default(),
            strings: vec![0],
            offsets: FxHashMap::from_iter([("".into(), StrId(0))]),
        }
    }

    /// The id of a string, which is cut at its first NUL: the format cannot hold one.
    pub fn string(&mut self, text: &str) -> StrId {
        let text = text.split('\0').next().unwrap_or_default();
        if let Some(id) = self.offsets.get(text) {
            return *id;
        }
        let id = StrId(self.strings.len().fit());
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.offsets.insert(text.into(), id);
        id
    }

    /// Adds a type with these words: name, kind, number of parts, size or type, the rest.
    fn add(
        &mut self,
        name: &str,
        kind: u32,
        parts: usize,
        third: u32,
        rest: &[u32],
    ) -> BuiltTypeId {
        let mut words = vec![self.string(name).0, kind << 24 | parts.fit::<u32>(), third];
        words.extend_from_slice(rest);
        if let Some(id) = self.known.get(&words) {
            return *id;
        }
        self.types
            .extend(words.iter().flat_map(|w| w.to_le_bytes()));
        self.count += 1;
        let id = BuiltTypeId(self.count);
        self.known.insert(words, id);
        id
    }

    /// An integer of `bytes` bytes.
    pub fn int(&mut self, name: &str, bytes: u32, signed: bool) -> BuiltTypeId {
        self.add(
            name,
            kind::INT,
            0,
            bytes,
            &[(u32::from(signed) << 24) | (bytes * 8)],
        )
    }

    /// A pointer.
    pub fn ptr(&mut self, to: BuiltTypeId) -> BuiltTypeId {
        self.add("", kind::PTR, 0, to.0, &[])
    }

    /// The type with `const`.
    pub fn constant(&mut self, target: BuiltTypeId) -> BuiltTypeId {
        self.add("", kind::CONST, 0, target.0, &[])
    }

    /// An array.
    pub fn array(&mut self, element: BuiltTypeId, len: u32) -> BuiltTypeId {
        let index = self.int("int", 4, true);
        self.add("", kind::ARRAY, 0, 0, &[element.0, index.0, len])
    }

    /// A struct of `bytes`; members are name, type, offset in bytes. Empty name: anonymous.
    pub fn structure(
        &mut self,
        name: &str,
        bytes: u32,
        members: &[(&str, BuiltTypeId, u32)],
    ) -> BuiltTypeId {
        let mut rest = Vec::with_capacity(members.len() * 3);
        for (name, ty, offset) in members {
            rest.extend([self.string(name).0, ty.0, offset * 8]);
        }
        self.add(name, kind::STRUCT, members.len(), bytes, &rest)
    }

    /// The type of a function; parameters are name and type.
    pub fn func_proto(
        &mut self,
        result: BuiltTypeId,
        params: &[(&str, BuiltTypeId)],
    ) -> BuiltTypeId {
        let mut rest = Vec::with_capacity(params.len() * 2);
        for (name, ty) in params {
            rest.extend([self.string(name).0, ty.0]);
        }
        self.add("", kind::FUNC_PROTO, params.len(), result.0, &rest)
    }

    /// A function of type `proto`.
    pub fn func(&mut self, name: &str, proto: BuiltTypeId, linkage: Linkage) -> BuiltTypeId {
        self.add(name, kind::FUNC, linkage as usize, proto.0, &[])
    }

    /// A variable.
    pub fn var(&mut self, name: &str, ty: BuiltTypeId, linkage: Linkage) -> BuiltTypeId {
        self.add(name, kind::VAR, 0, ty.0, &[linkage as u32])
    }

    /// A data section of `bytes` with its variables: variable, offset, size.
    pub fn datasec(
        &mut self,
        name: &str,
        bytes: u32,
        vars: &[(BuiltTypeId, u32, u32)],
    ) -> BuiltTypeId {
        let rest: Vec<u32> = vars
            .iter()
            .flat_map(|(var, off, len)| [var.0, *off, *len])
            .collect();
        self.add(name, kind::DATASEC, vars.len(), bytes, &rest)
    }

    /// The struct that describes a map's numeric properties to libbpf, and its size in bytes. A
    /// number is encoded as a pointer to an array of that many elements (`__uint` in libbpf's
    /// headers); elements are bytes, so that all 32-bit numbers are possible. A type is encoded as
    /// a pointer to it (`__type`).
    pub(crate) fn map_struct(
        &mut self,
        properties: &[(&str, u32)],
        types: &[(&str, BuiltTypeId)],
    ) -> (BuiltTypeId, u32) {
        let byte = self.int("char", 1, true);
        let mut members = Vec::with_capacity(properties.len());
        for (i, (name, value)) in properties.iter().enumerate() {
            let array = self.array(byte, *value);
            members.push((*name, self.ptr(array), i.fit::<u32>() * 8));
        }
        for (name, ty) in types {
            members.push((*name, self.ptr(*ty), members.len().fit::<u32>() * 8));
        }
        let bytes = members.len().fit::<u32>() * 8;
        (self.structure("", bytes, &members), bytes)
    }

    /// The contents of `.BTF`.
    pub fn write(&self) -> Vec<u8> {
        let mut out = header();
        let (types, strings) = (
            self.types.len().fit::<u32>(),
            self.strings.len().fit::<u32>(),
        );
        put(&mut out, &[0, types, types, strings]);
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}

/// Magic, version, flags and header length: the start of both sections.
fn header() -> Vec<u8> {
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend([VERSION, 0]);
    put(&mut out, &[HEADER]);
    out
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
}

/// A source line of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineInfo {
    /// Position of the instruction: its byte offset in the section for `.BTF.ext`, its slot in the
    /// program for the kernel.
    pub offset: u32,
    /// File name.
    pub file: StrId,
    /// Text of the source line.
    pub text: StrId,
    /// Line number, at most 22 bits.
    pub line: u32,
    /// Column number, at most 10 bits.
    pub column: u32,
}

impl LineInfo {
    /// The words of the kernel's `struct bpf_line_info`.
    pub(crate) fn words(&self) -> [u32; 4] {
        const LINE_MAX: u32 = (1 << 22) - 1;
        const COLUMN_MAX: u32 = (1 << 10) - 1;
        let location = self.line.min(LINE_MAX) << 10 | self.column.min(COLUMN_MAX);
        [self.offset, self.file.0, self.text.0, location]
    }
}

/// The records of `.BTF.ext` for one code section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtSection {
    /// The section's name.
    pub name: StrId,
    /// The section's functions: byte offset and `FUNC` type, in order.
    pub funcs: Vec<(u32, BuiltTypeId)>,
    /// The section's lines, in order. The kernel requires one at the start of each function, or
    /// none in the whole object.
    pub lines: Vec<LineInfo>,
}

/// The contents of `.BTF.ext`.
pub(crate) fn ext(sections: &[ExtSection]) -> Vec<u8> {
    // The sizes of a record, and the records of each section.
    let (mut funcs, mut lines) = (vec![8], vec![16]);
    for section in sections {
        if !section.funcs.is_empty() {
            funcs.extend([section.name.0, section.funcs.len().fit()]);
            funcs.extend(
                section
                    .funcs
                    .iter()
                    .flat_map(|(offset, ty)| [*offset, ty.0]),
            );
        }
        if !section.lines.is_empty() {
            lines.extend([section.name.0, section.lines.len().fit()]);
            lines.extend(section.lines.iter().flat_map(LineInfo::words));
        }
    }
    // A part without records also has no record size.
    for part in [&mut funcs, &mut lines] {
        if part.len() == 1 {
            part.clear();
        }
    }
    let [funcs_size, lines_size] = [&funcs, &lines].map(|part| 4 * part.len().fit::<u32>());
    let mut out = header();
    put(&mut out, &[0, funcs_size, funcs_size, lines_size]);
    put(&mut out, &funcs);
    put(&mut out, &lines);
    out
}
