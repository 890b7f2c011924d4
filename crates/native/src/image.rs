//! The image of a program: one file with its code, its constants, and the memory that processes share.
//!
//! ```text
//! text (read, execute) | constants (read): .rodata, descriptions of tables | shared (write): state, tables, records
//! ```
//! Whoever maps the areas one behind the other, at any address, can run its functions: code refers to everything
//! relative to itself. The file cannot change its size. Text and constants are for private mappings: what a process
//! changes there stays its own.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use spile_cast::Cast;
use spile_ebpf::isa::asm::AsmFunction;
use spile_lir::library::host::{description as is, ring_words, words};

use crate::code::{HostSymbol, NativeCode, Unlinked};
use crate::memory::{Area, MappedImage, Protection};
use crate::processor;
use crate::requests::Requests;
use crate::ring::{SharedRing, Space};
use crate::table::{Elements, Table};
use crate::translate::{TranslateError, translate};
use spile_layout::ThreadRecord;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedTableKind {
    /// A hash table.
    Hash,
    /// A hash table in which each record has its own copy of a value. An insertion clears the other copies. For the
    /// controller, a value is all copies in the order of the records, each padded to a multiple of 8 bytes.
    HashByRecord,
    /// An array, whose key is a number of 32 bits.
    Array,
    /// A ring of records. `entries` are its bytes, a power of two.
    Ring,
}

/// A table that functions refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedTableSpec {
    /// Its name in the functions.
    pub name: String,
    /// Its kind.
    pub kind: SharedTableKind,
    /// Bytes of a key; of a hash table, a multiple of 8.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// The largest number of elements.
    pub entries: u32,
}

/// What an image is made of.
pub struct ImageSpec<'a> {
    /// The functions.
    pub functions: Vec<&'a AsmFunction>,
    /// Contents of `.rodata`.
    pub constants: &'a [u8],
    /// Bytes of `.bss`.
    pub state: usize,
    /// The tables.
    pub tables: Vec<SharedTableSpec>,
    /// The number of records of threads. The functions have blocks for as many "processors".
    pub records: u32,
    /// Bytes of the stack that handlers of each record run on, a multiple of 16; 0 for none.
    pub stack: usize,
}

/// Bytes of the image, by their offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRegion {
    /// Offset of the first byte, in the file and in memory.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Why there is no image.
#[derive(Debug)]
pub enum ImageError {
    /// A function has no machine code.
    Translate(TranslateError),
    /// The image is too large.
    Unlinked(Unlinked),
    /// A process cannot have this table.
    Table(String),
    /// The system refused what the text says.
    System(&'static str, io::Error),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Translate(e) => e.fmt(f),
            ImageError::Unlinked(e) => e.fmt(f),
            ImageError::Table(name) => write!(f, "a process cannot have the table `{name}`"),
            ImageError::System(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// Where a table lies, for the controller.
#[derive(Debug, Clone)]
enum Place {
    Elements(Elements),
    Ring(Space),
}

/// The image, mapped in this process.
pub struct HostImage {
    file: OwnedFd,
    memory: Arc<MappedImage>,
    areas: [Area; 3],
    code: NativeCode,
    state: ImageRegion,
    records: ImageRegion,
    stacks: ImageRegion,
    tables: BTreeMap<String, Place>,
}

/// Gives out offsets, one behind the other.
struct Allocator(usize);

impl Allocator {
    fn take(&mut self, bytes: usize, align: usize) -> usize {
        let at = self.0.next_multiple_of(align);
        self.0 = at + bytes;
        at
    }
}

/// A table's place, from the allocator.
fn place(
    table: &SharedTableSpec,
    (page, records): (usize, u32),
    next: &mut Allocator,
) -> Result<Place, ImageError> {
    let [key, value, entries] = [table.key, table.value, table.entries].map(|n| n as usize);
    let refused = || Err(ImageError::Table(table.name.clone()));
    let padded = value.next_multiple_of(8);
    Ok(match table.kind {
        SharedTableKind::Ring => {
            if !entries.is_power_of_two() || entries < page {
                return refused();
            }
            Place::Ring(Space {
                words: next.take(ring_words::BYTES, 64),
                data: next.take(entries, page),
                bytes: entries,
                position: Arc::default(),
            })
        }
        SharedTableKind::Array => Place::Elements(Elements {
            entries,
            key,
            value,
            own: 0,
            stride: padded,
            cells: 0,
            mask: 0,
            words: 0,
            first: next.take((padded * entries).next_multiple_of(page), page),
            hash: false,
        }),
        SharedTableKind::Hash | SharedTableKind::HashByRecord => {
            let own = match table.kind {
                SharedTableKind::HashByRecord => padded,
                _ => 0,
            };
            let value = match own {
                0 => value,
                own => own * records as usize,
            };
            if !key.is_multiple_of(8) || key == 0 || entries == 0 {
                return refused();
            }
            let cells = (2 * entries).next_power_of_two();
            let stride = 8 + key + value.next_multiple_of(8);
            Place::Elements(Elements {
                entries,
                key,
                value,
                own,
                stride,
                words: next.take(words::BYTES, 64),
                cells: next.take(8 * cells, 64),
                mask: cells - 1,
                first: next.take(stride * entries, page),
                hash: true,
            })
        }
    })
}

/// The description of a table for the library, at an offset of the image.
fn description(place: &Place, at: usize) -> [u8; is::BYTES] {
    let mut bytes = [0; is::BYTES];
    let mut set = |word: i16, value: usize| {
        let word = word.fit::<usize>();
        bytes[word..word + 8].copy_from_slice(&(value as u64).to_le_bytes());
    };
    match place {
        Place::Elements(table) => {
            let kind = if table.hash { is::HASH } else { is::ARRAY };
            set(is::KIND, kind.fit());
            set(is::ENTRIES, table.entries);
            set(is::KEY, table.key);
            let value = table.value.next_multiple_of(8);
            let copy = if table.own == 0 { value } else { table.own };
            set(is::VALUE, copy);
            set(is::OWN, table.own);
            set(is::OTHERS, if table.own == 0 { 0 } else { value });
            set(is::STRIDE, table.stride);
            set(is::MASK, table.mask);
            set(is::CELLS, table.cells.wrapping_sub(at));
            // Numbers of a hash table's elements begin with 1.
            let before = if table.hash { table.stride } else { 0 };
            set(
                is::ELEMENTS,
                table.first.wrapping_sub(at).wrapping_sub(before),
            );
            set(is::WORDS, table.words.wrapping_sub(at));
        }
        Place::Ring(ring) => {
            set(is::KIND, is::RING.fit());
            set(is::ENTRIES, ring.bytes);
            set(is::SHIFT, ring.bytes.ilog2() as usize);
            set(is::ELEMENTS, ring.data.wrapping_sub(at));
            set(is::WORDS, ring.words.wrapping_sub(at));
        }
    }
    bytes
}

/// The file of an image, with text and constants. Its size is final.
fn file(bytes: usize, parts: [(usize, &[u8]); 2]) -> io::Result<OwnedFd> {
    let file = memfd_create("spile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    for (mut at, mut part) in parts {
        while !part.is_empty() {
            let written = rustix::io::pwrite(&file, part, at as u64)?;
            (at, part) = (at + written, &part[written..]);
        }
    }
    Ok(file)
}

impl HostImage {
    /// Makes an image, and maps it in this process.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn new(spec: &ImageSpec<'_>) -> Result<HostImage, ImageError> {
        let functions = spec.functions.iter().copied();
        let code = translate(functions).map_err(ImageError::Translate)?;
        let page = rustix::param::page_size();
        let pages = |bytes: usize| bytes.next_multiple_of(page);
        let mut next = Allocator(0);
        next.take(code.length(), 1);
        let constants = next.take(spec.constants.len(), page);
        let own = next.take(2 * size_of::<u64>(), 8);
        let descriptions = next.take(is::BYTES * spec.tables.len(), 64);
        let constants_end = next.0;
        let shared = next.take(0, page);
        let state = ImageRegion {
            offset: next.take(pages(spec.state), page),
            bytes: spec.state,
        };
        let mut tables = BTreeMap::new();
        let mut described = BTreeMap::new();
        let mut data = spec.constants.to_vec();
        data.resize(constants_end - constants, 0);
        for (table, at) in spec.tables.iter().zip((descriptions..).step_by(is::BYTES)) {
            let place = place(table, (page, spec.records), &mut next)?;
            let offset = at - constants;
            data[offset..offset + is::BYTES].copy_from_slice(&description(&place, at));
            described.insert(&*table.name, at);
            tables.insert(table.name.clone(), place);
        }
        let records = size_of::<ThreadRecord>() * spec.records as usize;
        let records = ImageRegion {
            offset: next.take(records, page),
            bytes: records,
        };
        let stacks = spec.stack * spec.records as usize;
        let stacks = ImageRegion {
            offset: next.take(stacks, page),
            bytes: stacks,
        };
        let end = next.take(0, page);
        // The distance to the beginning, and the length.
        let words = [own.wrapping_neg(), end].map(|word| (word as u64).to_le_bytes());
        data[own - constants..][..16].copy_from_slice(words.as_flattened());
        let text = code.link(|symbol| {
            let at = match symbol {
                HostSymbol::State => state.offset,
                HostSymbol::Constants => constants,
                HostSymbol::Image => own,
                HostSymbol::Map(name) => *described.get(&**name)?,
            };
            i64::try_from(at).ok()
        });
        let text = text.map_err(ImageError::Unlinked)?;
        let area = |offset, end, protection| Area {
            offset,
            bytes: end - offset,
            protection,
        };
        let areas = [
            area(0, constants, Protection::Execute),
            area(constants, shared, Protection::Read),
            area(shared, end, Protection::Write),
        ];
        let refused = |what| move |e| ImageError::System(what, e);
        let file = file(end, [(0, &text), (constants, &data)]);
        let file = file.map_err(refused("the memory of processes"))?;
        let memory = MappedImage::new(file.as_fd(), &areas).map_err(refused("mapping it"))?;
        let image = HostImage {
            file,
            memory: Arc::new(memory),
            areas,
            code,
            state,
            records,
            stacks,
            tables,
        };
        image.number_records();
        Ok(image)
    }

    /// Gives each record its number and a seed.
    fn number_records(&self) {
        for slot in 0..self.record_count() {
            let record = ThreadRecord {
                slot,
                random: (u64::from(slot) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                ..ThreadRecord::default()
            };
            self.set_record(slot, &record);
        }
    }

    /// The areas of the file, one behind the other, in the order in which they are mapped.
    #[must_use]
    pub fn areas(&self) -> [Area; 3] {
        self.areas
    }

    /// Bytes of all areas.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.areas.iter().map(|area| area.bytes).sum()
    }

    /// The address of the image in this process.
    #[must_use]
    pub fn address(&self) -> usize {
        self.memory.start().as_ptr().addr()
    }

    /// Offset of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        self.code.function(name)
    }

    /// The state memory (`.bss`). It has whole pages, so that the file can be mapped from there.
    #[must_use]
    pub fn state(&self) -> ImageRegion {
        self.state
    }

    /// The elements of an array, each padded to a multiple of 8 bytes. They have whole pages.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<ImageRegion> {
        match self.tables.get(name)? {
            Place::Elements(table) if !table.hash => Some(ImageRegion {
                offset: table.first,
                bytes: table.stride * table.entries,
            }),
            _ => None,
        }
    }

    /// A hash table or an array.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<Table> {
        match self.tables.get(name)? {
            Place::Elements(table) => Some(Table::new(Arc::clone(&self.memory), *table)),
            Place::Ring(_) => None,
        }
    }

    /// The reader of a ring. There is one reader.
    #[must_use]
    pub fn ring(&self, name: &str) -> Option<SharedRing> {
        match self.tables.get(name)? {
            Place::Ring(space) => Some(SharedRing::new(Arc::clone(&self.memory), space.clone())),
            Place::Elements(_) => None,
        }
    }

    /// Runs a function in this process, on behalf of the thread that a record describes: the record is nobody else's, and
    /// other processes cannot write it. False if there is no such function.
    pub fn run_for(&self, name: &str, record: &mut ThreadRecord, context: &mut [u64]) -> bool {
        let Some(offset) = self.code.function(name) else {
            return false;
        };
        let record: *mut ThreadRecord = record;
        // SAFETY: the code is that of a program, which was checked to access its context, its record and the image only,
        // whatever the image's tables have; context and record are borrowed for the call.
        unsafe {
            processor::enter(self.address() + offset, record.addr(), context.as_mut_ptr());
        }
        true
    }

    /// The requests of threads.
    #[must_use]
    pub fn requests(&self) -> Requests {
        let records = (0..self.record_count()).filter_map(|n| self.record_offset(n));
        Requests::new(Arc::clone(&self.memory), records.collect())
    }

    /// Cleans up after threads that died while they changed a table or wrote a record; returns how many things that
    /// were. `alive` gets a thread's number.
    pub fn recover_dead(&self, alive: impl Fn(u32) -> bool) -> usize {
        let names = self.tables.keys();
        let tables = names.clone().filter_map(|name| self.table(name));
        let rings = names.filter_map(|name| self.ring(name));
        tables.filter(|table| table.recover_dead(&alive)).count()
            + rings.map(|ring| ring.recover_dead(&alive)).sum::<usize>()
    }

    /// The number of records of threads.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        (self.records.bytes / size_of::<ThreadRecord>()).fit()
    }

    /// The records of threads, one behind the other.
    #[must_use]
    pub fn records(&self) -> ImageRegion {
        self.records
    }

    /// The stacks of the records, in the same order.
    #[must_use]
    pub fn stacks(&self) -> ImageRegion {
        self.stacks
    }

    /// Offset of a thread's record.
    #[must_use]
    pub fn record_offset(&self, number: u32) -> Option<usize> {
        let at = size_of::<ThreadRecord>() * number as usize;
        (at < self.records.bytes).then(|| self.records.offset + at)
    }

    /// A thread's record, which the thread may change meanwhile.
    #[must_use]
    pub fn record(&self, number: u32) -> Option<ThreadRecord> {
        self.memory.record(self.record_offset(number)?)
    }

    /// Writes a thread's record.
    pub fn set_record(&self, number: u32, record: &ThreadRecord) {
        if let Some(at) = self.record_offset(number) {
            self.memory.set_record(at, record);
        }
    }
}

/// The file, for others who map it.
impl AsFd for HostImage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
