//! Where a breakpoint may go: only where an instruction is proved to begin, and where the kernel is
//! known to execute it rightly ([`crate::uprobes`]).
//!
//! An instruction begins where a function does: by debugging information, a symbol, or an entry of
//! the unwind tables. Other addresses (statements, labels, markers, return instructions) are claims,
//! which decoding from the function's start confirms.

use std::collections::{BTreeSet, HashMap};

use crate::cfi;
use crate::code::{Control, ProbedInstruction};
use crate::exits::{code, instructions};
use crate::module::DebugFile;
use crate::plt;
use crate::symbols::{ElfSymbol, SymbolKind};
use crate::uprobes::{KernelVersion, Verdict};

/// Maximum number of instructions that an entry is moved by.
const MAX_SKIPPED: usize = 8;

/// What a location means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationUse {
    /// The entry of a function. An instruction behind it means the same as long as no argument was
    /// changed.
    Entry,
    /// This instruction and no other.
    Exact,
    /// A static marker: a no-operation.
    Marker,
}

/// The code from one linked address to another.
type Range = (u64, u64);

/// The checks of locations in one file.
pub struct Breakpoints<'m> {
    module: &'m DebugFile,
    kernel: KernelVersion,
    /// Functions that were decoded, by their start: the addresses of their instructions in order.
    decoded: HashMap<u64, Decoded>,
    /// The entries of the procedure linkage table, once they are asked for.
    stubs: Option<BTreeSet<u64>>,
}

/// A range of code, decoded.
#[derive(Default)]
struct Decoded {
    /// The addresses of the instructions in order.
    starts: Vec<u64>,
    /// The targets of its jumps.
    targets: BTreeSet<u64>,
    /// It calls other functions, and so keeps its data above the stack pointer.
    calls: bool,
    /// It jumps to computed addresses.
    computed: bool,
}

impl<'m> Breakpoints<'m> {
    /// For breakpoints in a file by a kernel.
    #[must_use]
    pub fn new(module: &'m DebugFile, kernel: KernelVersion) -> Breakpoints<'m> {
        Breakpoints {
            module,
            kernel,
            decoded: HashMap::new(),
            stubs: None,
        }
    }

    /// The address of the instruction to probe for a location: its own, or for an entry perhaps one
    /// behind it.
    ///
    /// # Errors
    /// Why no breakpoint may go there.
    pub fn check(&mut self, address: u64, location: LocationUse) -> Result<u64, String> {
        if self.module.image().instructions().is_none() {
            return Ok(address);
        }
        let range = self.range_of(address);
        self.begins(address, range, location)?;
        let i = self.instruction(address)?;
        let why = match self.verdict_at(&i, range) {
            Verdict::Right | Verdict::OverwritesRedZone => return Ok(address),
            Verdict::Refused(why) | Verdict::Wrong(why) => why,
        };
        if location == LocationUse::Entry
            && let Some(range) = range
            && let Some(behind) = self.behind(address, range)
        {
            return Ok(behind);
        }
        Err(format!(
            "at {address:#x} there is `{}`, which {} {why}",
            i.name, self.kernel
        ))
    }

    /// The verdict about an instruction, with what the function around it says about the red zone.
    fn verdict_at(&mut self, i: &ProbedInstruction, range: Option<Range>) -> Verdict {
        let (verdict, address) = (i.verdict, i.instruction.address);
        // A function that begins has nothing there yet.
        if verdict != Verdict::OverwritesRedZone || self.is_start(address) {
            return verdict;
        }
        match range {
            Some(range) if range.0 == address || self.decode(range).calls => verdict,
            _ => Verdict::Wrong(
                "replaces by a call, which overwrites data of functions that call no other",
            ),
        }
    }

    /// Checks that an instruction begins at an address.
    fn begins(
        &mut self,
        address: u64,
        range: Option<Range>,
        location: LocationUse,
    ) -> Result<(), String> {
        let decoded = |range| self.decode(range).starts.binary_search(&address).is_ok();
        if range.is_some_and(decoded) || self.is_start(address) {
            return Ok(());
        }
        let Some(range) = range else {
            // The assembler itself wrote the address of a marker, if it has what a marker has.
            let nop = |i: ProbedInstruction| i.instruction.nop;
            let instruction = self.instruction(address);
            return match location == LocationUse::Marker && instruction.is_ok_and(nop) {
                true => Ok(()),
                false => Err(format!(
                    "nothing says in which function {address:#x} is, so no instruction is known to \
                     begin there; a file with symbols or unwind tables says it"
                )),
            };
        };
        let starts = &self.decode(range).starts;
        let position = starts.partition_point(|start| *start < address);
        let near = position.checked_sub(1).and_then(|i| starts.get(i));
        let near: Vec<String> = near
            .into_iter()
            .chain(starts.get(position))
            .map(|a| format!("{a:#x}"))
            .collect();
        Err(format!(
            "no instruction begins at {address:#x}: decoded from the function's start, the nearest \
             ones begin at {}",
            near.join(" and ")
        ))
    }

    /// Whether a function begins there.
    fn is_start(&mut self, address: u64) -> bool {
        let function = |s: &ElfSymbol<'_>| {
            matches!(s.kind, SymbolKind::Func | SymbolKind::IFunc) && (s.typed || !s.is_local())
        };
        let image = self.module.image();
        self.module.symbols().starting_at(address).any(function)
            || cfi::function_at(image, address).is_some_and(|f| f.0 == address)
            || self
                .stubs
                .get_or_insert_with(|| plt::entries(image).iter().map(|p| p.address).collect())
                .contains(&address)
    }

    /// The part of a function that contains an address.
    fn range_of(&self, address: u64) -> Option<Range> {
        let inside = |r: &Range| (r.0..r.1).contains(&address);
        let described = self.module.dwarf().and_then(|dwarf| {
            let ranges = dwarf.function_ranges(address);
            ranges.into_iter().find(inside)
        });
        let named = || {
            let (symbol, _) = self.module.symbols().function_at(address)?;
            let end = symbol.address.checked_add(symbol.size)?;
            let typed = symbol.typed || !symbol.is_local();
            Some((symbol.address, end)).filter(|r| typed && inside(r))
        };
        let unwound = || cfi::function_at(self.module.image(), address).filter(inside);
        described.or_else(named).or_else(unwound)
    }

    /// Decodes a part of a function, up to the first byte that is no instruction.
    fn decode(&mut self, range: Range) -> &Decoded {
        let module = self.module;
        self.decoded.entry(range.0).or_insert_with(|| {
            let mut decoded = Decoded::default();
            let instructions_of_part = instructions(module.image(), range.0, range.1).into_iter();
            for i in instructions_of_part.take_while(|i| i.control != Control::Invalid) {
                decoded.starts.push(i.address);
                match i.control {
                    Control::Call(_) => decoded.calls = true,
                    Control::Computed => decoded.computed = true,
                    Control::Branch(to) | Control::Jump(to) | Control::Transaction(to) => {
                        decoded.targets.insert(to);
                    }
                    Control::Next | Control::Stop | Control::Invalid => {}
                }
            }
            decoded
        })
    }

    fn instruction(&self, address: u64) -> Result<ProbedInstruction, String> {
        let image = self.module.image();
        let known = image
            .instructions()
            .ok_or("its instructions are not known")?;
        let available = (1..=known.longest)
            .rev()
            .find_map(|n| code(image, address, address.checked_add(n)?));
        let bytes = available.filter(|_| image.is_code(address));
        let bytes = bytes.ok_or_else(|| format!("the file has no code at {address:#x}"))?;
        (known.examine)(bytes, address, self.kernel)
            .ok_or_else(|| format!("there is no instruction at {address:#x}"))
    }

    /// The first instruction behind an entry that can be probed instead: those before it change
    /// neither arguments nor memory, and nothing jumps between.
    fn behind(&mut self, address: u64, range: Range) -> Option<u64> {
        let mut current = address;
        for _ in 0..MAX_SKIPPED {
            let i = self.instruction(current).ok()?;
            let right = self.verdict_at(&i, Some(range)) == Verdict::Right;
            if right && current != address {
                let only = self.is_only_entry([address, current], range);
                return only.then_some(current);
            }
            if !i.leaves_arguments {
                return None;
            }
            current = i.instruction.next;
        }
        None
    }

    /// Whether code runs from one address to the other each time, and comes to the other only so.
    fn is_only_entry(&mut self, [from, to]: [u64; 2], range: Range) -> bool {
        if (from + 1..=to).any(|a| self.is_start(a)) {
            return false;
        }
        let mut ranges = match self.module.dwarf() {
            Some(dwarf) => dwarf.function_ranges(from),
            None => Vec::new(),
        };
        if !ranges.contains(&range) {
            ranges.push(range);
        }
        ranges.into_iter().all(|range| {
            let part = self.decode(range);
            !part.computed && part.targets.range(from + 1..=to).next().is_none()
        })
    }
}
