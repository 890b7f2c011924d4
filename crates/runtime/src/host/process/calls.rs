//! The places of system calls in a process, and the handlers that they lead to.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use spile_bpf::compiled::ProgramInfo;
use spile_debuginfo::{ElfSymbols, Image, cfi};
use spile_inject::{CallNumber, CallSite, Fate, FunctionHook, PlaceKind, PtRegs, Refusal};
use spile_ir::{Event, NrSet, Program};
use spile_kernel::process::Mapping;

use crate::attach::site::RefusedLocation;
use crate::error::Error;

/// A program that runs at system calls.
#[derive(Debug)]
struct CallProgram {
    /// Offset of the handler in the image.
    handler: u64,
    /// The registers that it reads, as in [`FunctionHook::reads`].
    reads: u32,
    /// The calls; `None` for all.
    numbers: Option<BTreeSet<u32>>,
}

impl CallProgram {
    fn sees(&self, number: CallNumber) -> bool {
        match (number, &self.numbers) {
            (CallNumber::Is(number), Some(numbers)) => numbers.contains(&number),
            _ => true,
        }
    }
}

/// The programs that run in front of system calls and behind them.
#[derive(Debug, Default)]
pub(super) struct CallHooks {
    calls: Vec<CallProgram>,
    returns: Vec<CallProgram>,
}

/// The places of system calls in a mapping.
#[derive(Debug)]
pub(super) struct CallPlaces {
    path: String,
    /// Those at which the script sees something.
    sites: Vec<CallSite>,
    pub(super) hooks: Vec<FunctionHook>,
}

impl CallHooks {
    /// Adds a program, if it runs at one of these tracepoints. Returns whether it does.
    pub(super) fn add(
        &mut self,
        names: &[String],
        (program, handler): (&ProgramInfo, u64),
        reads_registers: bool,
        script: &Program,
    ) -> bool {
        let events = program.handlers.iter();
        let events = events.map(|id| &script.handlers[id.index()].event);
        let numbers = events.map(|event| match event {
            Event::SysEnter(NrSet::List(list)) | Event::SysExit(NrSet::List(list)) => {
                Some(list.iter().copied())
            }
            _ => None,
        });
        let numbers: Option<Vec<_>> = numbers.collect();
        let numbers: Option<BTreeSet<u32>> = numbers.map(|all| all.into_iter().flatten().collect());
        let mut added = false;
        for (name, programs) in [
            ("sys_enter", &mut self.calls),
            ("sys_exit", &mut self.returns),
        ] {
            if names.iter().any(|other| other == name) {
                added = true;
                let numbers = numbers.clone();
                let reads = match reads_registers {
                    true => PtRegs::ALL,
                    false => PtRegs::OF_CALL,
                };
                programs.push(CallProgram {
                    handler,
                    reads,
                    numbers,
                });
            }
        }
        added
    }

    fn sees(&self, number: CallNumber) -> bool {
        let mut all = self.calls.iter().chain(&self.returns);
        all.any(|program| program.sees(number))
    }

    /// The places in a mapping of a file.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn places(&self, pid: u32, map: &Mapping) -> Result<CallPlaces, Error> {
        let file = MappedFile::open(map);
        let bounds = |at| file.as_ref()?.bounds(at);
        let sites = spile_inject::call_sites(pid, map.start..map.end, bounds);
        let mut sites = sites.map_err(|e| Error::Enter(pid, e.to_string()))?;
        let asks = |site: &CallSite| site.number.may_execute() || site.number.maps();
        sites.retain(|site| self.sees(site.number) || asks(site));
        let hooks = sites.iter().flat_map(|site| self.at(site)).collect();
        // Where the number is not known, hardly anybody executes a program.
        let is_executed = |site: &CallSite| site.number != CallNumber::InRegister;
        sites.retain(|site| self.sees(site.number) || is_executed(site));
        Ok(CallPlaces {
            path: map.path.clone(),
            hooks,
            sites,
        })
    }

    /// The hooks of a place.
    fn at(&self, site: &CallSite) -> Vec<FunctionHook> {
        let hook = |kind, offset, (handler, reads)| FunctionHook {
            address: site.function,
            size: site.size.max(offset + 1),
            offset,
            kind,
            through: site.through && offset == site.offset,
            ends: site.fate == Fate::Ends,
            handler,
            cookie: 0,
            reads,
        };
        let seen = |programs: &'_ [CallProgram]| {
            let seen = programs.iter().filter(|program| program.sees(site.number));
            seen.map(|program| (program.handler, program.reads))
                .collect::<Vec<(u64, u32)>>()
        };
        let none = (0, PtRegs::OF_CALL);
        let (calls, mut returns) = (seen(&self.calls), seen(&self.returns));
        let mut hooks = Vec::new();
        if calls.is_empty() && !returns.is_empty() && site.number == CallNumber::InRegister {
            hooks.push(hook(PlaceKind::CallOnly, site.offset, none));
        }
        let call = |handler| hook(PlaceKind::Call(site.number), site.offset, handler);
        hooks.extend(calls.into_iter().map(call));
        if site.number.may_execute() && !site.through {
            hooks.push(hook(PlaceKind::Execute(site.number), site.offset, none));
        }
        returns.retain(|_| site.fate == Fate::Returns);
        let back = |handler| hook(PlaceKind::Return(site.number), site.behind(), handler);
        hooks.extend(returns.into_iter().map(back));
        if site.number.maps() && site.fate == Fate::Returns {
            hooks.push(hook(PlaceKind::Mapped(site.number), site.behind(), none));
        }
        hooks
    }
}

impl CallPlaces {
    /// The places that cannot be hooked, in one line for each reason.
    pub(super) fn refused(&self, refused: &[(u64, Refusal)]) -> Vec<RefusedLocation> {
        let mut reasons: HashMap<String, BTreeSet<u64>> = HashMap::new();
        let refusals: HashMap<u64, Refusal> = refused.iter().copied().collect();
        for site in &self.sites {
            let places = [site.offset, site.behind()].map(|offset| site.function + offset);
            let why = places.iter().find_map(|place| refusals.get(place));
            if let Some(why) = why {
                reasons
                    .entry(why.to_string())
                    .or_default()
                    .insert(places[0]);
            }
        }
        let location = |(why, places): (String, BTreeSet<u64>)| RefusedLocation {
            location: format!(
                "{} of {} places of system calls in {}",
                places.len(),
                self.sites.len(),
                self.path
            ),
            why: std::io::Error::other(why),
        };
        let mut all: Vec<RefusedLocation> = reasons.into_iter().map(location).collect();
        all.sort_by(|a, b| a.location.cmp(&b.location));
        all
    }
}

/// A file in the memory of a process.
struct MappedFile {
    image: Image,
    /// What is added to the file's addresses.
    bias: u64,
    /// Start and end of the functions that have symbols, in order.
    symbols: OnceCell<Vec<(u64, u64)>>,
}

impl MappedFile {
    fn open(map: &Mapping) -> Option<MappedFile> {
        let image = Image::open(Path::new(&map.path)).ok()?;
        let address = image.address_of_offset(map.offset)?;
        Some(MappedFile {
            bias: map.start.wrapping_sub(address),
            image,
            symbols: OnceCell::new(),
        })
    }

    /// The function with a symbol at an address of the file.
    fn named(&self, address: u64) -> Option<(u64, u64)> {
        let all = self.symbols.get_or_init(|| {
            let symbols = ElfSymbols::new(&[&self.image]);
            let functions = symbols.functions();
            functions
                .map(|f| (f.address, f.address.saturating_add(f.size)))
                .collect()
        });
        let index = all.partition_point(|(start, _)| *start <= address);
        all.get(index.checked_sub(1)?).copied()
    }

    /// The function at an address of the process.
    fn bounds(&self, at: u64) -> Option<Range<u64>> {
        let address = at.wrapping_sub(self.bias);
        let described = cfi::function_at(&self.image, address);
        let (start, end) = described.or_else(|| self.named(address))?;
        (address < end).then(|| start.wrapping_add(self.bias)..end.wrapping_add(self.bias))
    }
}
