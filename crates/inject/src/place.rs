//! Where in a process's memory the image goes.
//!
//! ```text
//! base    the process's page: its number, and a zero; read and written, empty in a child
//!         entry code, of this process
//! image   the image, shared with other processes
//! ```

use crate::error::Error;
use crate::image::{ProcessImage, RecordSlots};
use crate::process::{Mapping, ProcessFacts};
use crate::processor::{PAGE, base_readable};

/// How far a jump reaches, less what the length of instructions may take.
const REACH: u64 = (1 << 31) - (1 << 16);

/// The name of the file with entry code, which the process's mappings show.
pub(crate) const ENTRY_FILE: &str = "spile-entry";

/// Distance to a heap or a stack, which grow.
const GROWTH: u64 = 1 << 28;
const LOWEST: u64 = 1 << 20;
const HIGHEST: u64 = (1 << 47) - PAGE;

/// Addresses in a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The page that is the process's own.
    pub(crate) process: u64,
    /// Entry code.
    pub(crate) code: u64,
    pub(crate) image: u64,
    pub(crate) end: u64,
    pub(crate) threads: RecordSlots,
    pub(crate) exact: bool,
    /// What records of its threads have.
    pub(crate) facts: ProcessFacts,
    /// Whether programs can read the address of their thread structure.
    pub(crate) base_readable: bool,
}

impl Place {
    /// A place for an image and `code` bytes of entry code, within reach of as many of these functions as possible.
    pub(crate) fn find(
        maps: &[Mapping],
        image: &ProcessImage,
        code: u64,
        functions: &[u64],
        facts: ProcessFacts,
    ) -> Result<Place, Error> {
        let code = code.next_multiple_of(PAGE);
        let length = PAGE + code + image.length().next_multiple_of(PAGE);
        let base = room(maps, length, functions).ok_or(Error::NoRoom)?;
        Ok(Place {
            process: base,
            code: base + PAGE,
            image: base + PAGE + code,
            end: base + length,
            threads: image.threads,
            exact: image.exact,
            facts,
            base_readable: base_readable(),
        })
    }

    /// All of it, as a mapping that is to come.
    pub(crate) fn mapping(&self) -> Mapping {
        Mapping {
            start: self.process,
            end: self.end,
            offset: 0,
            readable: true,
            executable: true,
            inode: 0,
            path: ENTRY_FILE.to_owned(),
        }
    }

    /// Two words of the process's page that are zero.
    pub(crate) fn zero(&self) -> u64 {
        self.process + 8
    }

    pub(crate) fn records(&self) -> u64 {
        self.image + self.threads.records
    }

    pub(crate) fn overflow(&self) -> u64 {
        self.records()
            + (u64::from(self.threads.slots)
                << spile_layout::thread_record::ThreadRecord::SIZE_BITS)
    }

    pub(crate) fn stacks(&self) -> u64 {
        self.image + self.threads.stacks
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.process..self.end).contains(&address)
    }

    /// The top of the record's stack that an address is in.
    pub(crate) fn top(&self, address: u64) -> Option<u64> {
        let (stack, count) = (self.threads.stack, u64::from(self.threads.slots) + 1);
        let offset = address.checked_sub(self.stacks())?;
        (offset < stack * count).then(|| self.stacks() + (offset / stack + 1) * stack)
    }

    pub(crate) fn reaches(&self, function: u64) -> bool {
        reaches(self.process, self.end - self.process, function)
    }
}

fn reaches(base: u64, length: u64, function: u64) -> bool {
    (base + length).abs_diff(function) < REACH && base.abs_diff(function) < REACH
}

/// A free range that reaches most functions, and of those the nearest.
fn room(maps: &[Mapping], length: u64, functions: &[u64]) -> Option<u64> {
    let grows = |m: &Mapping| m.path.starts_with("[heap") || m.path.starts_with("[stack");
    let end = Mapping {
        start: HIGHEST,
        end: HIGHEST,
        offset: 0,
        readable: false,
        executable: false,
        inode: 0,
        path: String::new(),
    };
    let mut low = LOWEST;
    let mut candidates = Vec::new();
    for mapping in maps.iter().filter(|m| m.start < HIGHEST).chain([&end]) {
        let growth = if grows(mapping) { GROWTH } else { 0 };
        let high = mapping.start.saturating_sub(growth);
        // The end of a gap is free for longer than its beginning, where a heap grows.
        let nearest = functions
            .iter()
            .map(|f| f.saturating_add(REACH - length - PAGE) & !(PAGE - 1));
        let places = nearest
            .map(|n| n.min(high.saturating_sub(length)))
            .chain([low]);
        candidates.extend(places.filter(|p| *p >= low && p.saturating_add(length) <= high));
        low = mapping.end
            + if grows(mapping) || mapping.path.is_empty() {
                GROWTH
            } else {
                0
            };
        low = low.max(LOWEST);
    }
    let reached = |base: u64| {
        functions
            .iter()
            .filter(|f| reaches(base, length, **f))
            .count()
    };
    let first = *functions.first()?;
    candidates
        .into_iter()
        .filter(|c| reached(*c) > 0)
        .max_by_key(|c| (reached(*c), std::cmp::Reverse(c.abs_diff(first))))
}
