//! OTF2: an archive of a trace, as libotf2 3 reads and writes it (its sources, under the BSD licence,
//! are the format's definition: `OTF2_Buffer.h`, `OTF2_AnchorFile.c`, the writers of definitions and
//! events). A system-tree node a host, a location group a rank, a location a thread, a region a context, or a
//! system call in one.
//!
//! | file | what |
//! |---|---|
//! | `traces.otf2` | the anchor: sizes, numbers of definitions and locations |
//! | `traces.def` | definitions |
//! | `traces/N.def` | definitions of location N: none |
//! | `traces/N.evt` | events of location N |

use std::collections::{BTreeMap, HashMap};

use spile_cast::Cast;

use super::files::ExportFiles;
use crate::model::{Context, ContextKind, TimedEvent, thread_title};
use crate::run::{ContextIndex, Run, label, region_name};
use crate::timeline::timelines;

/// Size of a chunk in bytes. Files of definitions and events consist of chunks, each but the last
/// filled up to this size.
const EVENTS: usize = 1 << 20;
const DEFINITIONS: usize = 4 << 20;
/// Maximum length of a text in bytes: a record must fit into a chunk, with much to spare.
const LONGEST: usize = 4096;

/// Record kinds that all files share.
const END_OF_CHUNK: u8 = 0;
const END_OF_BUFFER: u8 = 1;
const END_OF_FILE: u8 = 2;
const CHUNK_HEADER: u8 = 3;
const TIMESTAMP: u8 = 5;
const LITTLE_ENDIAN: u8 = b'B';

/// Record kinds of definitions and events.
const CLOCK_PROPERTIES: u8 = 5;
const STRING: u8 = 10;
const SYSTEM_TREE_NODE: u8 = 12;
const LOCATION_GROUP: u8 = 13;
const LOCATION: u8 = 14;
const REGION: u8 = 15;
const ENTER: u8 = 12;
const LEAVE: u8 = 13;

/// Values of fields.
const NONE: u32 = u32::MAX;
const GROUP_IS_PROCESS: u8 = 1;
const LOCATION_IS_CPU_THREAD: u8 = 1;
/// Role of a region in files of version 1.0.
const REGION_IS_FUNCTION: u8 = 1;
/// Roles of regions.
const FUNCTION: u8 = 1;
const CODE: u8 = 4;
const PARALLEL: u8 = 5;
const BARRIER: u8 = 15;
const TASK: u8 = 20;
/// The roles of the library's waits (docs/profile-context.md), and of some functions of MPI.
const ROLES: [(&str, u8); 17] = [
    ("critical", 12),
    ("atomic", 14),
    ("implicit barrier", 16),
    ("ordered", 18),
    ("taskwait", 22),
    ("taskgroup", 22),
    ("MPI_Barrier", BARRIER),
    ("MPI_Bcast", 23),
    ("MPI_Scatter", 23),
    ("MPI_Gather", 24),
    ("MPI_Reduce", 24),
    ("MPI_Allgather", 25),
    ("MPI_Allreduce", 25),
    ("MPI_Alltoall", 25),
    ("MPI_Send", 28),
    ("MPI_Recv", 28),
    ("MPI_Sendrecv", 28),
];
/// Paradigms of regions.
const PARADIGM_USER: u8 = 1;
const PARADIGM_OPENMP: u8 = 3;
const PARADIGM_MPI: u8 = 4;

/// The bytes of a record.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u8(&mut self, n: u8) -> &mut Bytes {
        self.0.push(n);
        self
    }

    fn full<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Bytes {
        self.0.extend(bytes);
        self
    }

    /// A number of `width` bytes, written as its length and its bytes without leading zeros; 0 and
    /// the largest number take one byte.
    fn number(&mut self, n: u64, width: usize) -> &mut Bytes {
        let largest = u64::MAX >> (64 - width * 8);
        if n == 0 || n == largest {
            return self.u8(if n == 0 { 0 } else { 0xff });
        }
        let length = (64 - n.leading_zeros() as usize).div_ceil(8);
        self.0.push(length.fit::<u8>());
        self.0.extend(&n.to_le_bytes()[..length]);
        self
    }

    fn u32(&mut self, n: u32) -> &mut Bytes {
        self.number(n.into(), 4)
    }

    fn u64(&mut self, n: u64) -> &mut Bytes {
        self.number(n, 8)
    }

    fn text(&mut self, text: &str) -> &mut Bytes {
        let mut end = text.len().min(LONGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let bytes = text.as_bytes()[..end].iter().filter(|b| **b != 0);
        self.0.extend(bytes);
        self.u8(0)
    }
}

/// A file in chunks.
struct Chunks {
    size: usize,
    done: Vec<u8>,
    /// Start of the last chunk, and the number of its first record.
    begin: usize,
    records: u64,
    first: u64,
    /// The last time written.
    time: Option<u64>,
}

impl Chunks {
    fn new(size: usize) -> Chunks {
        let mut chunks = Chunks {
            size,
            done: Vec::new(),
            begin: 0,
            records: 0,
            first: 0,
            time: None,
        };
        chunks.open();
        chunks
    }

    fn open(&mut self) {
        self.begin = self.done.len();
        self.first = self.records;
        self.time = None;
        self.done.extend([CHUNK_HEADER, LITTLE_ENDIAN]);
        self.done.extend((self.first + 1).to_le_bytes());
        self.done.extend(0u64.to_le_bytes());
    }

    /// Writes the number of its last record to the chunk's header. (libotf2 leaves 0 in
    /// definitions.)
    fn close(&mut self) {
        let field = self.begin + 10;
        self.done[field..field + 8].copy_from_slice(&self.records.to_le_bytes());
    }

    /// Makes reserve for a record, for a time before it and the end mark after it.
    fn reserve(&mut self, length: usize) {
        if self.done.len() - self.begin + length + 16 > self.size {
            self.close();
            self.done.resize(self.begin + self.size, END_OF_CHUNK);
            self.open();
        }
    }

    /// A definition: kind, length, content.
    fn define(&mut self, kind: u8, content: &Bytes) {
        let length = content.0.len();
        self.reserve(length + 10);
        self.done.push(kind);
        match u8::try_from(length) {
            Ok(short) if short < u8::MAX => self.done.push(short),
            _ => {
                self.done.push(u8::MAX);
                self.done.extend((length as u64).to_le_bytes());
            }
        }
        self.done.extend(&content.0);
        self.records += 1;
    }

    /// An event whose only content is a region. Times must not decrease.
    fn event(&mut self, time: u64, kind: u8, region: u32) {
        let mut content = Bytes::default();
        content.u8(kind).u32(region);
        self.reserve(content.0.len());
        if self.time != Some(time) {
            self.done.push(TIMESTAMP);
            self.done.extend(time.to_le_bytes());
            self.time = Some(time);
        }
        self.done.extend(content.0);
        self.records += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        self.close();
        self.done.extend([END_OF_FILE, END_OF_BUFFER]);
        self.done
    }
}

/// Definitions.
struct Definitions {
    out: Chunks,
    strings: HashMap<String, u32>,
}

impl Definitions {
    fn string(&mut self, text: &str) -> u32 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.strings.len().fit::<u32>();
        self.strings.insert(text.to_owned(), number);
        let mut bytes = Bytes::default();
        bytes.u32(number).text(text);
        self.out.define(STRING, &bytes);
        number
    }

    fn node(&mut self, id: u32, host: &str) {
        let (name, class) = (self.string(host), self.string("node"));
        let mut bytes = Bytes::default();
        bytes.u32(id).u32(name).u32(class).u32(NONE);
        self.out.define(SYSTEM_TREE_NODE, &bytes);
    }

    fn group(&mut self, id: u32, name: &str, node: u32) {
        let name = self.string(name);
        let mut bytes = Bytes::default();
        bytes
            .u32(id)
            .u32(name)
            .u8(GROUP_IS_PROCESS)
            .u32(node)
            .u32(NONE);
        self.out.define(LOCATION_GROUP, &bytes);
    }

    fn location(&mut self, id: u64, name: &str, events: u64, group: u32) {
        let name = self.string(name);
        let mut bytes = Bytes::default();
        bytes
            .u64(id)
            .u32(name)
            .u8(LOCATION_IS_CPU_THREAD)
            .u64(events)
            .u32(group);
        self.out.define(LOCATION, &bytes);
    }

    fn region(&mut self, id: u32, region: &Region) {
        let name = self.string(&region.call);
        let within = self.string(&region.within);
        let file = self.string(&region.file);
        let (role, paradigm) = region.kind;
        let mut bytes = Bytes::default();
        // Name, description, the old role, parent; then the fields that version 1.1 added.
        bytes.u32(id).u32(name).u32(within).u8(REGION_IS_FUNCTION);
        bytes.u32(file).u32(region.line).u32(0);
        bytes.u32(name).u8(role).u8(paradigm).u32(0);
        self.out.define(REGION, &bytes);
    }
}

/// A context, or a system call in one.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Region {
    /// Role and paradigm.
    kind: (u8, u8),
    call: String,
    within: String,
    file: String,
    line: u32,
}

/// An archive.
pub(super) fn export(run: &Run) -> ExportFiles {
    let mut definitions = Definitions {
        out: Chunks::new(DEFINITIONS),
        strings: HashMap::new(),
    };
    let origin = run.origin();
    let ends = run.profiles.iter().map(|p| {
        let shift = p.header.started_unix_ns - origin;
        let events = p.events.iter().map(|e| e.end_ns.max(e.start_ns));
        shift.saturating_add(events.max().unwrap_or(0))
    });
    let length = ends.max().unwrap_or(0);
    let mut clock = Bytes::default();
    clock.u64(1_000_000_000).u64(0).u64(length).u64(origin);
    definitions.out.define(CLOCK_PROPERTIES, &clock);

    let mut files = Vec::new();
    let mut nodes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut regions: HashMap<Region, u32> = HashMap::new();
    let mut locations = 0;
    for (group, profile) in run.profiles.iter().enumerate() {
        let group = group.fit::<u32>();
        let host = profile.header.host.as_str();
        let next = nodes.len().fit::<u32>();
        let node = *nodes.entry(host).or_insert(next);
        if node == next {
            definitions.node(node, host);
        }
        definitions.group(group, &profile.title(), node);
        let shift = profile.header.started_unix_ns - origin;
        let contexts = ContextIndex::new(profile);
        for (tid, spans) in timelines(profile) {
            let mut out = Chunks::new(EVENTS);
            let mut open: Vec<(u64, u32)> = Vec::new();
            for span in &spans {
                let region = region(span.event, &contexts);
                let next = regions.len().fit::<u32>();
                let number = *regions.entry(region.clone()).or_insert(next);
                if number == next {
                    definitions.region(number, &region);
                }
                let start = span.start.saturating_add(shift);
                while let Some((end, region)) = open.pop_if(|(end, _)| *end <= start) {
                    out.event(end, LEAVE, region);
                }
                out.event(start, ENTER, number);
                open.push((span.end.saturating_add(shift), number));
            }
            while let Some((end, region)) = open.pop() {
                out.event(end, LEAVE, region);
            }
            let thread = profile.data.threads.iter().find(|t| t.tid == tid);
            let title = thread_title(tid, thread);
            definitions.location(locations, &title, out.records, group);
            files.push((format!("traces/{locations}.evt"), out.finish()));
            let none = Chunks::new(DEFINITIONS).finish();
            files.push((format!("traces/{locations}.def"), none));
            locations += 1;
        }
    }
    let number = definitions.out.records;
    files.push(("traces.def".to_owned(), definitions.out.finish()));
    files.push(("traces.otf2".to_owned(), anchor(run, locations, number)));
    files
}

fn region(event: &TimedEvent, contexts: &ContextIndex) -> Region {
    let row = contexts.row(event.context);
    let row = row.filter(|c| c.kind != ContextKind::Root);
    let name = match event.region() {
        // The location in the source has fields of its own.
        true if row.is_some_and(|c| c.line.is_some()) => region_name(event.context, row),
        true => label(event.context, row),
        false => event.call.clone(),
    };
    // The path without its own name.
    let mut within = contexts.path(event.context);
    if event.region() {
        within.pop();
    }
    Region {
        kind: match event.region() {
            true => kind(row),
            false => (FUNCTION, PARADIGM_USER),
        },
        // There is no other field for it that programs would show.
        call: match event.open {
            true => format!("{name} (unfinished)"),
            false => name,
        },
        within: within.join(crate::run::WITHIN),
        file: row
            .and_then(|c| c.file.clone().or(c.module.clone()))
            .unwrap_or_default(),
        line: row.and_then(|c| c.line).unwrap_or(0),
    }
}

/// Role and paradigm of a context.
fn kind(context: Option<&Context>) -> (u8, u8) {
    let Some(context) = context else {
        return (CODE, PARADIGM_USER);
    };
    let role = ROLES.iter().find(|(name, _)| *name == context.name);
    let role = |other| role.map_or(other, |(_, role)| *role);
    match context.kind {
        ContextKind::OmpRegion => (PARALLEL, PARADIGM_OPENMP),
        ContextKind::OmpBarrier => (role(BARRIER), PARADIGM_OPENMP),
        ContextKind::OmpTask => (TASK, PARADIGM_OPENMP),
        ContextKind::Mpi => (role(FUNCTION), PARADIGM_MPI),
        ContextKind::Root | ContextKind::Mark => (CODE, PARADIGM_USER),
    }
}

fn anchor(run: &Run, locations: u64, definitions: u64) -> Vec<u8> {
    /// Versions of the anchor, of the trace, and of the library that these files imitate.
    const VERSIONS: [u8; 5] = [3, 2, 3, 0, 0];
    /// Separate files, no compression.
    const SUBSTRATE: [u8; 2] = [1, 1];
    let header = run.profiles.first().map(|p| &p.header);
    let mut out = Bytes::default();
    out.u8(CHUNK_HEADER).u8(LITTLE_ENDIAN).text("OTF2");
    out.full(VERSIONS);
    out.full((EVENTS as u64).to_le_bytes());
    out.full((DEFINITIONS as u64).to_le_bytes());
    out.full(SUBSTRATE);
    out.full(locations.to_le_bytes());
    out.full(definitions.to_le_bytes());
    out.text(header.map_or("", |h| &h.host));
    out.text(concat!("spile ", env!("CARGO_PKG_VERSION")));
    out.text(&header.map(|h| h.command_line()).unwrap_or_default());
    let properties = 0u32;
    out.full(properties.to_le_bytes());
    out.full(run.origin().to_le_bytes());
    let (snapshots, thumbnails) = (0u32, 0u32);
    out.full(snapshots.to_le_bytes());
    out.full(thumbnails.to_le_bytes());
    out.u8(END_OF_FILE).u8(END_OF_BUFFER).u8(END_OF_CHUNK);
    out.0
}
