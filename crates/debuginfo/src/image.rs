//! One ELF file: segments, sections, and the notes that identify it and its debugging information.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, ElfSection64, FileHeader, ProgramHeader, Sym};
use object::{LittleEndian, Object, ObjectSection, elf};
use spile_abi::Abi;

use crate::error::Error;
use crate::map::{Blob, MappedFile};
use crate::unlinked::{PlacedSection, SectionLayout};

pub(crate) type Elf = ElfFile64<'static, LittleEndian>;

/// Maximum size of an unpacked section; a larger claim is taken for damage.
const MAX_UNPACKED: u64 = 4 << 30;
/// Maximum compression ratio; no compressor in use packs tighter, so a larger claim is damage.
const MAX_RATIO: u64 = 1 << 15;

/// A loaded part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First address as linked.
    pub address: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Size in the file in bytes.
    pub file_size: u64,
    /// Size in memory in bytes.
    pub mem_size: u64,
    /// Whether it is executable.
    pub executable: bool,
}

/// The distance of a number from the start of a range, if it is in it.
fn distance(number: u64, start: u64, size: u64) -> Option<u64> {
    number.checked_sub(start).filter(|d| *d < size)
}

/// A 64-bit little-endian ELF file.
pub struct Image {
    // Points into `blob`; declared before it, so dropped before it.
    elf: Elf,
    segments: Vec<Segment>,
    /// For a relocatable file.
    layout: Option<SectionLayout>,
    blob: Blob,
    path: PathBuf,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Image").field(&self.path).finish()
    }
}

impl Image {
    /// Maps a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a 64-bit little-endian ELF file.
    pub fn open(path: &Path) -> Result<Image, Error> {
        let map = MappedFile::open(path).map_err(|e| Error::new(path, e))?;
        Image::new(Blob::Map(map), path)
    }

    /// Parses the bytes of an ELF file.
    ///
    /// # Errors
    /// When they are not a 64-bit little-endian ELF file.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Image, Error> {
        Image::new(Blob::Heap(bytes), path)
    }

    fn new(blob: Blob, path: &Path) -> Result<Image, Error> {
        // SAFETY: `elf` is private, is stored beside the blob, and what it gives out is
        // bound to `&self` by every public function.
        let bytes = unsafe { blob.forever() };
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Error::new(path, "not an ELF file"));
        }
        if bytes.get(4..6) != Some(&[2, 1]) {
            return Err(Error::new(path, "not a 64-bit little-endian ELF file"));
        }
        let elf =
            Elf::parse(bytes).map_err(|e| Error::new(path, format!("damaged ELF file: {e}")))?;
        let unlinked = elf.elf_header().e_type(LittleEndian) == elf::ET_REL;
        let layout = unlinked.then(|| SectionLayout::new(&elf));
        let segments = match &layout {
            Some(layout) => layout.segments(),
            None => segments(&elf),
        };
        Ok(Image {
            elf,
            segments,
            layout,
            blob,
            path: path.into(),
        })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parsed file. References from it must not outlive the image.
    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// The processor; `None` if it is none of [`spile_abi::ALL`].
    #[must_use]
    pub fn abi(&self) -> Option<&'static Abi> {
        Abi::of_machine(self.elf.elf_header().e_machine(LittleEndian).0)
    }

    /// Whether it can be loaded at another address than the linked one (PIE, shared library).
    #[must_use]
    pub fn position_independent(&self) -> bool {
        self.elf.elf_header().e_type(LittleEndian) == elf::ET_DYN
    }

    /// Whether it has an interpreter or is linked to an address: a program, not a library.
    #[must_use]
    pub fn is_program(&self) -> bool {
        !self.position_independent()
            || self
                .elf
                .elf_program_headers()
                .iter()
                .any(|p| p.p_type(LittleEndian) == elf::PT_INTERP)
    }

    /// The loaded segments.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// File offset of a linked address, as uprobes need it.
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        let mut segments = self.segments.iter();
        segments.find_map(|s| {
            s.offset
                .checked_add(distance(address, s.address, s.file_size)?)
        })
    }

    /// Whether it is a Go program, also if it is stripped.
    #[must_use]
    pub fn is_go(&self) -> bool {
        self.has_section(".gopclntab") || self.has_section(".note.go.buildid")
    }

    /// Linked address of a file offset; that of the executable segment if several contain it.
    #[must_use]
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| distance(offset, s.offset, s.file_size).is_some();
        let segments = || self.segments.iter().filter(inside);
        let code = segments().find(|s| s.executable);
        let segment = code.or_else(|| segments().next())?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Linked address in the part of a segment after its file content (`.bss`), by the offset that
    /// it would have in the file.
    #[must_use]
    pub fn address_behind(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|s| {
            let distance = offset.checked_sub(s.offset)?;
            let inside = (s.file_size..s.mem_size).contains(&distance);
            inside.then(|| s.address.checked_add(distance)).flatten()
        })
    }

    /// The file's bytes of the loaded segments at a linked address.
    #[must_use]
    pub fn bytes_at(&self, address: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(self.file_offset(address)?).ok()?;
        self.bytes().get(from..from.checked_add(len)?)
    }

    /// Whether a linked address is in executable code. Files of debugging information omit the code
    /// itself.
    #[must_use]
    pub fn is_code(&self, address: u64) -> bool {
        let inside =
            |s: &Segment| distance(address, s.address, s.file_size.max(s.mem_size)).is_some();
        self.segments.iter().any(|s| s.executable && inside(s))
    }

    /// The loaded sections of a relocatable file (a kernel module) with their assigned addresses.
    /// Every address of such a file is one of these.
    #[must_use]
    pub fn placed_sections(&self) -> &[PlacedSection] {
        self.layout.as_ref().map_or(&[], |l| &l.sections)
    }

    /// The address of a symbol.
    pub(crate) fn symbol_address(&self, symbol: &elf::Sym64<LittleEndian>) -> u64 {
        let value = symbol.st_value(LittleEndian);
        match &self.layout {
            Some(layout) => layout.symbol(symbol).unwrap_or(value),
            None => value,
        }
    }

    /// The build-id.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.elf
            .build_id()
            .ok()
            .flatten()
            .filter(|id| !id.is_empty())
    }

    /// `.gnu_debuglink`: the name of the separate file and its checksum.
    #[must_use]
    pub fn debug_link(&self) -> Option<(&str, u32)> {
        let (name, crc) = self.elf.gnu_debuglink().ok().flatten()?;
        Some((std::str::from_utf8(name).ok()?, crc))
    }

    /// `.gnu_debugaltlink`: the path of the file with the shared part, and its build-id.
    #[must_use]
    pub fn alt_link(&self) -> Option<(&str, &[u8])> {
        let (name, id) = self.elf.gnu_debugaltlink().ok().flatten()?;
        Some((std::str::from_utf8(name).ok()?, id))
    }

    /// A section's bytes, decompressed if necessary; `None` if it is missing or damaged.
    pub(crate) fn section(&self, name: &str) -> Option<Cow<'static, [u8]>> {
        self.unpack(&self.elf.section_by_name(name)?)
    }

    /// The bytes of all sections of a name, one after the other. A file that was not linked has each
    /// type unit in a section of its own.
    pub(crate) fn joined_sections(&self, name: &str) -> Option<Cow<'static, [u8]>> {
        let named = |s: &ElfSection64<'static, '_, LittleEndian>| s.name() == Ok(name);
        let mut sections = self.elf.sections().filter(named);
        let mut joined = self.unpack(&sections.next()?)?;
        for more in sections {
            joined.to_mut().extend_from_slice(&self.unpack(&more)?);
        }
        Some(joined)
    }

    fn unpack(
        &self,
        section: &ElfSection64<'static, '_, LittleEndian>,
    ) -> Option<Cow<'static, [u8]>> {
        let data = section.compressed_data().ok()?;
        let most = MAX_UNPACKED.min((data.data.len() as u64 + 64).saturating_mul(MAX_RATIO));
        if data.uncompressed_size > most {
            return None;
        }
        let bytes = data.decompress().ok()?;
        Some(match &self.layout {
            Some(layout) => layout.relocated(&self.elf, section, bytes),
            None => bytes,
        })
    }

    /// A copy of a section's bytes.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        self.section(name).map(Cow::into_owned)
    }

    /// Address and bytes of a loaded section.
    pub(crate) fn loaded_section(&self, name: &str) -> Option<(u64, &'static [u8])> {
        if self.layout.is_some() {
            return None; // it has to be relocated
        }
        let section = self.elf.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    }

    /// Whether a section exists.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.elf.section_by_name(name).is_some_and(|s| s.size() > 0)
    }

    /// Bytes of the whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.blob.bytes()
    }

    /// See [`Blob::state`].
    pub(crate) fn state(&self) -> [u64; 2] {
        self.blob.state()
    }

    /// Releases the memory of a part of the file; it is read again when needed.
    pub(crate) fn release(&self, part: &[u8]) {
        self.blob.release(part);
    }
}

fn segments(elf: &Elf) -> Vec<Segment> {
    let e = LittleEndian;
    let loaded = elf
        .elf_program_headers()
        .iter()
        .filter(|p| p.p_type(e) == elf::PT_LOAD);
    loaded
        .map(|p| Segment {
            address: p.p_vaddr(e),
            offset: p.p_offset(e),
            file_size: p.p_filesz(e),
            mem_size: p.p_memsz(e),
            executable: p.p_flags(e).contains(elf::PF_X),
        })
        .collect()
}
