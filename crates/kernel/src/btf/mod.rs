//! An index over a BTF blob, such as `/sys/kernel/btf/vmlinux`.
//!
//! In: the bytes of a blob. Out: answers to questions about its types. Types that programs define
//! (DWARF) are not read here, and no type is changed.
//!
//! The kernel's blob holds some 120,000 types in 5 MB. Turning it into heap
//! objects costs more than the whole start-up budget, so nothing of it is
//! copied: one pass over the type records notes where each record starts, and
//! every question reads the blob itself. A look-up by name goes through a table
//! of hashes of names.
//!
//! * [`Btf`]: opening, the pass, look-ups by name.
//! * `index`: types by the hashes of their names.
//! * `types`: the view of one type ([`Type`]) and its lists.
//! * `query`: questions that walk types: `strip`, `member`, `size_of`, C names.
//!
//! The format is the kernel's `Documentation/bpf/btf.rst`. A blob is never
//! trusted: what leads outside of it reads as absent, never as a panic.

use spile_cast::Cast;

mod index;
mod query;
mod types;

#[cfg(test)]
pub(crate) mod tests;

pub use query::Member;
pub use types::{
    BtfKind, BtfTypeId, Composite, Enum, EnumValue, FuncProto, Int, Param, RawMember, Type,
};

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sysfile::Blob;

/// The running kernel's own BTF.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// The directory with the BTF of its modules.
const MODULES: &str = "/sys/kernel/btf";

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;

/// Why a BTF blob could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BtfError {
    /// The file could not be opened or read (path, errno text). Absent on a
    /// kernel built without `CONFIG_DEBUG_INFO_BTF`.
    Io(PathBuf, String),
    /// The blob is not BTF, or is damaged; says where and how.
    Format(String),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BtfError::Io(path, why) => write!(f, "cannot read BTF from {}: {why}", path.display()),
            BtfError::Format(why) => write!(f, "malformed BTF: {why}"),
        }
    }
}

impl std::error::Error for BtfError {}

/// An indexed BTF blob. Cheap to share between threads; ids are those of the
/// kernel (0 is `void`).
pub struct Btf {
    blob: Blob,
    /// Offset in the blob of the record of each id; slot 0 is unused.
    records: Vec<u32>,
    strings: (usize, usize),
    /// Its types by the hashes of their names, without functions that are not [`early`].
    index: index::TypeIndex,
    /// All functions by the hashes of their names, made after many queries.
    functions: OnceLock<index::TypeIndex>,
    /// Number of queries for functions that are not early.
    asked: AtomicU32,
    /// The BTF that a module's extends: the module's ids and strings begin where the base's end.
    base: Option<&'static Btf>,
}

/// Number of function look-ups that search all strings (0.1 ms each) before an index of all
/// functions is made, which takes as long as fifteen searches.
const BY_SEARCH: u32 = 4;

/// Whether a name has a prefix of the functions that scripts without function probes need: the
/// handlers of tracepoints, which have the names of their arguments, and kfuncs.
fn early(name: &[u8]) -> bool {
    name.starts_with(b"__traceiter_") || name.starts_with(b"bpf_")
}

/// The name's offset and the kind in a record; zeros for `void`, which has no record.
fn head(blob: &[u8], offset: u32) -> (u32, u8) {
    let record = blob
        .get(offset as usize..)
        .and_then(|r| r.first_chunk::<8>());
    match record.filter(|_| offset != 0) {
        Some(r) => (types::word(r, 0), (types::word(r, 4) >> 24 & 0x1f) as u8),
        None => (0, 0),
    }
}

impl fmt::Debug for Btf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Btf({} types)", self.len())
    }
}

impl Btf {
    /// The running kernel's BTF, opened at the first call and kept.
    ///
    /// # Errors
    /// See [`Btf::open`]; the error is kept as well.
    pub fn vmlinux() -> Result<&'static Btf, &'static BtfError> {
        static KERNEL: OnceLock<Result<Btf, BtfError>> = OnceLock::new();
        KERNEL
            .get_or_init(|| match crate::foreign_kernel::btf() {
                None => Btf::open(VMLINUX),
                Some(Some(blob)) => Btf::parse(blob),
                Some(None) => Err(BtfError::Format("the kernel of -r has no BTF".into())),
            })
            .as_ref()
    }

    /// Opens a file of raw BTF. The kernel's own is mapped where it allows that
    /// (since 6.16); any other file could change under a mapping and is read.
    ///
    /// # Errors
    /// [`BtfError::Io`] if it cannot be read, [`BtfError::Format`] if it is not BTF.
    pub fn open(path: impl AsRef<Path>) -> Result<Btf, BtfError> {
        Btf::open_over(path.as_ref(), None)
    }

    /// The BTF of a loaded module, which extends the kernel's.
    ///
    /// # Errors
    /// See [`Btf::open`].
    pub fn module(name: &str) -> Result<Btf, BtfError> {
        let base = Btf::vmlinux().map_err(Clone::clone)?;
        if name.contains('/') {
            return Err(BtfError::Format(format!("`{name}` is not a module's name")));
        }
        Btf::open_over(Path::new(&format!("{MODULES}/{name}")), Some(base))
    }

    fn open_over(path: &Path, base: Option<&'static Btf>) -> Result<Btf, BtfError> {
        let io =
            |e: std::io::Error| BtfError::Io(path.to_owned(), crate::resources::error_text(&e));
        let mut file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len().fit::<usize>();
        let fixed = path.starts_with("/sys/kernel/btf");
        let blob = match fixed.then(|| Blob::map(&file, len)).flatten() {
            Some(blob) => blob,
            None => {
                let mut bytes = Vec::with_capacity(len + 1);
                file.read_to_end(&mut bytes).map_err(io)?;
                Blob::from(bytes)
            }
        };
        Btf::index(blob, base)
    }

    /// Indexes raw BTF held in memory.
    ///
    /// # Errors
    /// [`BtfError::Format`] if the bytes are not BTF of this byte order.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Btf, BtfError> {
        Btf::index(Blob::from(bytes.into()), None)
    }

    fn index(blob: Blob, base: Option<&'static Btf>) -> Result<Btf, BtfError> {
        let bad = |why: &str| Err(BtfError::Format(why.to_owned()));
        let bytes: &[u8] = &blob;
        if bytes.len() < HEADER_LEN {
            return bad("shorter than its header");
        }
        let magic = u16::from_ne_bytes([bytes[0], bytes[1]]);
        if magic == MAGIC.swap_bytes() {
            return bad("written for the other byte order");
        }
        if magic != MAGIC {
            return bad("wrong magic number");
        }
        let word = |offset: usize| types::word(bytes, offset) as usize;
        let header = word(4);
        let (types_off, types_len, str_off, str_len) = (word(8), word(12), word(16), word(20));
        let within = |off: usize, len: usize| {
            let start = header.checked_add(off)?;
            let end = start.checked_add(len)?;
            (header >= HEADER_LEN && end <= bytes.len() && end <= u32::MAX as usize)
                .then_some((start, end))
        };
        let Some(strings) = within(str_off, str_len) else {
            return bad("its strings lie outside of it");
        };
        let Some((first, end)) = within(types_off, types_len) else {
            return bad("its types lie outside of it");
        };
        // The strings of a module follow those of its base, so no empty string comes first.
        let closed = match base {
            None => strings.0 != strings.1 && bytes[strings.0] == 0 && bytes[strings.1 - 1] == 0,
            Some(_) => strings.0 == strings.1 || bytes[strings.1 - 1] == 0,
        };
        if !closed {
            return bad("its string section is not bounded by NUL bytes");
        }
        // A record with its name and members takes some 28 bytes in kernels' BTF.
        let guess = types_len / 24 + 1;
        let mut btf = Btf {
            records: Vec::with_capacity(guess),
            strings,
            index: index::TypeIndex::default(),
            functions: OnceLock::new(),
            asked: AtomicU32::new(0),
            base,
            blob,
        };
        let named = btf.scan(first, end)?;
        btf.index = btf.indexed(named.iter().copied());
        Ok(btf)
    }

    /// An index of these types, which have names.
    fn indexed(&self, types: impl ExactSizeIterator<Item = u32>) -> index::TypeIndex {
        let mut index = index::TypeIndex::for_names(types.len());
        for ix in types {
            let (name, _) = self.own_head(ix as usize);
            index.add(self.string_and_more(name), ix as usize);
        }
        index
    }

    /// The one pass over the records in `first..end` of the blob; returns the types for the index.
    fn scan(&mut self, first: usize, end: usize) -> Result<Vec<u32>, BtfError> {
        let mut named = Vec::new();
        let bytes = &self.blob[..end];
        let start = self.first();
        if start == 0 {
            self.records.push(0);
        }
        let mut offset = first;
        while offset < end {
            let id = start + self.records.len().fit::<BtfTypeId>();
            let cut = || BtfError::Format(format!("type {id} is cut short"));
            let record = bytes[offset..].first_chunk::<12>().ok_or_else(cut)?;
            let info = types::word(record, 4);
            let kind = (info >> 24 & 0x1f) as u8;
            let Some(fixed) = types::trailer(kind) else {
                return Err(BtfError::Format(format!(
                    "type {id} has the unknown kind {kind}"
                )));
            };
            let len = 12 + fixed.once + fixed.each * (info & 0xffff) as usize;
            if end - offset < len {
                return Err(cut());
            }
            let name = types::word(record, 0);
            // Half of all types are functions, and few are looked up.
            let function = kind == BtfKind::Func as u8;
            if name != 0 && (!function || early(self.string_and_more(name))) {
                named.push(self.records.len().fit::<u32>());
            }
            self.records.push(offset.fit::<u32>());
            offset += len;
        }
        Ok(named)
    }

    /// The name's offset and the kind of one of its own types.
    fn own_head(&self, ix: usize) -> (u32, u8) {
        self.records
            .get(ix)
            .map_or((0, 0), |offset| head(&self.blob, *offset))
    }

    /// Number of types, including `void` and those of the base: every id is below it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first() as usize + self.records.len()
    }

    /// The first id of its own types: 0 without a base.
    #[must_use]
    pub fn first(&self) -> BtfTypeId {
        self.base.map_or(0, |base| base.len().fit::<BtfTypeId>())
    }

    /// Length of its own strings in bytes.
    fn string_bytes(&self) -> u32 {
        (self.strings.1 - self.strings.0).fit::<u32>()
    }

    /// Offset at which its own strings begin.
    fn first_string(&self) -> u32 {
        self.base
            .map_or(0, |base| base.first_string() + base.string_bytes())
    }

    /// The index of an own id; `Err` with the base if the id belongs to the base.
    fn location(&self, id: BtfTypeId) -> Result<usize, &'static Btf> {
        match (self.base, id.checked_sub(self.first())) {
            (Some(base), None) => Err(base),
            (_, index) => Ok(index.unwrap_or(id) as usize),
        }
    }

    /// Whether there is no type except `void`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The kind of a type; `None` for void and for ids outside of the blob.
    #[must_use]
    pub fn kind(&self, id: BtfTypeId) -> Option<BtfKind> {
        match self.location(id) {
            Err(base) => base.kind(id),
            Ok(ix) => BtfKind::from_raw(self.own_head(ix).1),
        }
    }

    /// The name of a type, empty if it has none.
    #[must_use]
    pub fn name(&self, id: BtfTypeId) -> &str {
        match self.location(id) {
            Err(base) => base.name(id),
            Ok(ix) => self.string(self.own_head(ix).0),
        }
    }

    /// The first type of that kind and name, in the order of ids.
    #[must_use]
    pub fn find(&self, kind: BtfKind, name: &str) -> Option<BtfTypeId> {
        self.find_all(kind, name).next()
    }

    /// All types of that kind and name, in the order of ids: different compilation units may each
    /// have had their own `struct NAME`.
    pub fn find_all(&self, kind: BtfKind, name: &str) -> impl Iterator<Item = BtfTypeId> {
        let below: Vec<BtfTypeId> = match self.base {
            Some(base) => base.find_all(kind, name).collect(),
            None => Vec::new(),
        };
        below.into_iter().chain(self.find_own(kind, name))
    }

    /// Like [`Btf::find_all`], without the types of the base.
    fn find_own(&self, kind: BtfKind, name: &str) -> impl Iterator<Item = BtfTypeId> {
        let first = self.first();
        let fits = move |ix: &usize| {
            let (name_offset, own_kind) = self.own_head(*ix);
            own_kind == kind as u8 && self.string_is(name_offset, name)
        };
        // Types without a name cannot be looked up.
        let named = !name.is_empty() && !name.contains('\0');
        let late = named && kind == BtfKind::Func && !early(name.as_bytes());
        let searched = late && self.asked.fetch_add(1, Ordering::Relaxed) < BY_SEARCH;
        let index = match late {
            true if searched => None,
            true => Some(self.functions.get_or_init(|| self.all_functions())),
            false => Some(&self.index).filter(|_| named),
        };
        let indexed = index
            .into_iter()
            .flat_map(move |index| index.matching(name));
        let by_search = Some(name).filter(|_| searched).into_iter();
        let by_search = by_search.flat_map(move |name| self.search(kind, name));
        by_search
            .chain(indexed.filter(fits))
            .map(move |ix| first + ix.fit::<BtfTypeId>())
    }

    /// An index of all functions.
    fn all_functions(&self) -> index::TypeIndex {
        let indexes = 0..self.records.len().fit::<u32>();
        let functions = indexes.filter(|ix| self.own_head(*ix as usize).1 == BtfKind::Func as u8);
        let functions: Vec<u32> = functions.collect();
        self.indexed(functions.into_iter())
    }

    /// Types of that kind and name, found without the index.
    fn search(&self, kind: BtfKind, name: &str) -> impl Iterator<Item = usize> + use<'_> {
        let offsets = self.string_offsets(name);
        (0..self.records.len()).filter(move |ix| {
            let (name_offset, own_kind) = self.own_head(*ix);
            own_kind == kind as u8 && offsets.contains(&name_offset)
        })
    }

    /// `struct NAME`.
    #[must_use]
    pub fn find_struct(&self, name: &str) -> Option<BtfTypeId> {
        self.find(BtfKind::Struct, name)
    }

    /// `union NAME`.
    #[must_use]
    pub fn find_union(&self, name: &str) -> Option<BtfTypeId> {
        self.find(BtfKind::Union, name)
    }

    /// `enum NAME`, of either width.
    #[must_use]
    pub fn find_enum(&self, name: &str) -> Option<BtfTypeId> {
        self.find(BtfKind::Enum, name)
            .or_else(|| self.find(BtfKind::Enum64, name))
    }

    /// `typedef … NAME`.
    #[must_use]
    pub fn find_typedef(&self, name: &str) -> Option<BtfTypeId> {
        self.find(BtfKind::Typedef, name)
    }

    /// The function NAME; its type is a [`Type::Func`] that leads to a prototype.
    #[must_use]
    pub fn find_func(&self, name: &str) -> Option<BtfTypeId> {
        self.find(BtfKind::Func, name)
    }

    /// Resolves a type name in C: `struct task_struct`, `union u`, `enum e`, `pid_t`, `unsigned
    /// int`. A bare name is tried as typedef, basic type, struct, union and enum, in this order.
    #[must_use]
    pub fn find_type(&self, spelling: &str) -> Option<BtfTypeId> {
        let spelling = spelling.trim();
        if let Some((tag, name)) = spelling.split_once(char::is_whitespace) {
            let name = name.trim_start();
            match tag {
                "struct" => return self.find_struct(name),
                "union" => return self.find_union(name),
                "enum" => return self.find_enum(name),
                _ => {}
            }
        }
        [
            BtfKind::Typedef,
            BtfKind::Int,
            BtfKind::Struct,
            BtfKind::Union,
            BtfKind::Enum,
            BtfKind::Enum64,
            BtfKind::Float,
        ]
        .into_iter()
        .find_map(|kind| self.find(kind, spelling))
    }

    /// All types of one kind with their names, in the order of ids, without those of the base.
    pub fn all(&self, kind: BtfKind) -> impl Iterator<Item = (BtfTypeId, &str)> + '_ {
        let first = self.first();
        let heads = (0..self.records.len()).map(|ix| (ix, self.own_head(ix)));
        heads
            .filter(move |(_, head)| head.1 == kind as u8)
            .map(move |(ix, head)| (first + ix.fit::<BtfTypeId>(), self.string(head.0)))
    }

    /// The value of an enumerator of a named enumeration (`pid_type`, `PIDTYPE_PGID`), without a
    /// search.
    #[must_use]
    pub fn constant(&self, enumeration: &str, name: &str) -> Option<i64> {
        match self.ty(self.find_enum(enumeration)?) {
            Type::Enum(e) => e.values().find(|v| v.name == name).map(|v| v.value),
            _ => None,
        }
    }

    /// The value of an enumerator of any enumeration, such as `TASK_COMM_LEN`; the first one if
    /// several have it.
    #[must_use]
    pub fn enum_value(&self, name: &str) -> Option<i64> {
        if let Some(value) = self.base.and_then(|base| base.enum_value(name)) {
            return Some(value);
        }
        let offsets = self.string_offsets(name);
        if offsets.is_empty() {
            return None;
        }
        let enums = (0..self.records.len()).filter(|ix| {
            let kind = self.own_head(*ix).1;
            kind == BtfKind::Enum as u8 || kind == BtfKind::Enum64 as u8
        });
        let first = self.first();
        enums
            .map(|ix| self.ty(first + ix.fit::<BtfTypeId>()))
            .find_map(|ty| match ty {
                Type::Enum(e) => e.values_by_offset(&offsets).map(|v| v.value),
                _ => None,
            })
    }

    /// The NUL-terminated string at an offset of the string section; empty if
    /// it lies outside or is not UTF-8.
    pub(crate) fn string(&self, off: u32) -> &str {
        let rest = self.string_and_more(off);
        let len = memchr::memchr(0, rest).unwrap_or(0);
        std::str::from_utf8(&rest[..len]).unwrap_or("")
    }

    /// The rest of the string section from an offset on; empty outside of it.
    fn string_and_more(&self, off: u32) -> &[u8] {
        let off = match (self.base, off.checked_sub(self.first_string())) {
            (Some(base), None) => return base.string_and_more(off),
            (_, offset) => offset.unwrap_or(off),
        };
        let table = &self.blob[self.strings.0..self.strings.1];
        table.get(off as usize..).unwrap_or_default()
    }

    /// Whether the string at `off` is `name`, without a search for its end.
    pub(crate) fn string_is(&self, off: u32, name: &str) -> bool {
        let rest = self.string_and_more(off).strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Offsets of all strings equal to `name`: one in a deduplicated blob.
    /// Writers of BTF store names whole, so tails of longer names don't count.
    fn string_offsets(&self, name: &str) -> Vec<u32> {
        if name.is_empty() || name.contains('\0') {
            return Vec::new();
        }
        let table = &self.blob[self.strings.0..self.strings.1];
        let first = self.first_string();
        let mut needle = Vec::with_capacity(name.len() + 2);
        needle.push(0);
        needle.extend_from_slice(name.as_bytes());
        needle.push(0);
        let mut offsets: Vec<u32> = memchr::memmem::find_iter(table, &needle)
            .map(|offset| first + offset.fit::<u32>() + 1)
            .collect();
        if let Some(base) = self.base {
            offsets.extend(base.string_offsets(name));
            // The very first string has no byte before it.
            if table.starts_with(&needle[1..]) {
                offsets.push(first);
            }
        }
        offsets
    }

    /// The bytes of the record of `id`, from its head to the end of the blob.
    pub(crate) fn record(&self, id: BtfTypeId) -> Option<&[u8]> {
        if id == 0 {
            return None;
        }
        match self.location(id) {
            Err(base) => base.record(id),
            Ok(ix) => self.blob.get(*self.records.get(ix)? as usize..),
        }
    }
}
