//! Locations to attach to, and those that the kernel refused.

use std::io;

use spile_ir::{CodeLocation, CodeProbe, CodeSite};
use spile_kernel::bpf::BpfError;
use spile_kernel::symbols::Symbols;

use crate::error::to_io_error;

/// A location with its cookie: the site's number, and in the upper half the distance from the
/// function's first instruction.
#[derive(Clone, Copy)]
pub(crate) struct AttachSite<'p> {
    pub(crate) cookie: u64,
    pub(crate) site: &'p CodeSite,
    /// The probed return instruction, as an offset in the file.
    pub(crate) exit: Option<u64>,
}

impl AttachSite<'_> {
    /// The offset in the file, or the address in the kernel; 0 for a function's name.
    pub(crate) fn offset(&self) -> u64 {
        match (&self.site.location, self.exit) {
            (_, Some(offset)) => offset,
            (CodeLocation::File { offset, .. }, None) => *offset,
            (CodeLocation::Address(address) | CodeLocation::Traced(address), None) => *address,
            (CodeLocation::Symbol { .. }, None) => 0,
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.site.location {
            CodeLocation::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Offset of the marker's semaphore in the file; 0 for none.
    pub(crate) fn semaphore(&self) -> u64 {
        self.site.semaphore
    }

    /// The location to attach to.
    pub(crate) fn location_text(&self) -> CodeLocation {
        match (&self.site.location, self.exit) {
            (CodeLocation::File { path, .. }, Some(offset)) => CodeLocation::File {
                path: path.clone(),
                offset,
            },
            (location, _) => location.clone(),
        }
    }
}

/// The locations of a probe; for a probe at return instructions, these instructions.
pub(crate) fn sites(probe: &CodeProbe) -> Vec<AttachSite<'_>> {
    let mut attach_sites = Vec::new();
    for site in &probe.sites {
        let number = u64::from(site.number);
        match site.exits.as_ref().filter(|_| probe.ret) {
            None => attach_sites.push(AttachSite {
                cookie: number,
                site,
                exit: None,
            }),
            Some(exits) => attach_sites.extend(exits.instructions.iter().map(|exit| AttachSite {
                cookie: number | u64::from(exit.distance.cast_unsigned()) << 32,
                site,
                exit: Some(exit.offset),
            })),
        }
    }
    attach_sites
}

/// Number of locations that a program is attached to, if none is refused.
pub(crate) fn count(probe: &CodeProbe) -> usize {
    sites(probe).len()
}

/// A location that the kernel refused.
#[derive(Debug)]
pub struct RefusedLocation {
    /// The location, for messages.
    pub location: String,
    /// The kernel's error.
    pub why: io::Error,
}

/// The warning about locations that were left out.
pub(crate) fn refusal_warning(refused: &[RefusedLocation]) -> Option<String> {
    let first = refused.first()?;
    let text = format!("{} cannot be probed: {}", first.location, first.why);
    Some(match refused.len() {
        1 => text,
        n => format!("{n} locations are left out: {text}"),
    })
}

/// The location with the kernel's error.
pub(crate) fn refused_location(site: &AttachSite<'_>, why: io::Error) -> RefusedLocation {
    let location = match &site.location_text() {
        CodeLocation::File { path, offset } => format!("{path} at offset {offset:#x}"),
        CodeLocation::Symbol {
            name, offset: 0, ..
        } => format!("function {name}"),
        CodeLocation::Symbol { name, offset, .. } => format!("function {name}+{offset:#x}"),
        CodeLocation::Address(address) => format!("address {address:#x}"),
        CodeLocation::Traced(address) => match Symbols::kernel().map(|s| s.describe(*address)) {
            Ok(name) => format!("function {name}"),
            Err(_) => format!("function at {address:#x}"),
        },
    };
    RefusedLocation { location, why }
}

/// The error of an attachment to a location.
pub(crate) fn location_error(why: BpfError) -> io::Error {
    /// The kernel's own `ENOTSUPP`, for which the C library has no text.
    const ENOTSUPP: i32 = 524;
    match why {
        BpfError::Call { errno, .. } if errno.raw_os_error() == ENOTSUPP => io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel cannot probe this instruction",
        ),
        why => to_io_error(why),
    }
}
