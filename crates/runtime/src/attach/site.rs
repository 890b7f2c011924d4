//! Places to attach to, and those that the kernel refused.

use std::io;

use spile_ir::{CodePlace, CodeProbe, CodeSite};
use spile_kernel::bpf::BpfError;
use spile_kernel::symbols::Symbols;

use crate::error::to_io_error;

/// A place with its cookie: the site's number, and in the upper half the distance from the
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
        match (&self.site.place, self.exit) {
            (_, Some(offset)) => offset,
            (CodePlace::File { offset, .. }, None) => *offset,
            (CodePlace::Address(at) | CodePlace::Traced(at), None) => *at,
            (CodePlace::Symbol { .. }, None) => 0,
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.site.place {
            CodePlace::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Offset of the marker's semaphore in the file; 0 for none.
    pub(crate) fn semaphore(&self) -> u64 {
        self.site.semaphore
    }

    /// The place to attach to.
    pub(crate) fn place_text(&self) -> CodePlace {
        match (&self.site.place, self.exit) {
            (CodePlace::File { path, .. }, Some(offset)) => CodePlace::File {
                path: path.clone(),
                offset,
            },
            (place, _) => place.clone(),
        }
    }
}

/// The places of a probe; for a probe at return instructions, these instructions.
pub(crate) fn sites(probe: &CodeProbe) -> Vec<AttachSite<'_>> {
    let mut all = Vec::new();
    for site in &probe.sites {
        let number = u64::from(site.number);
        match site.exits.as_ref().filter(|_| probe.ret) {
            None => all.push(AttachSite {
                cookie: number,
                site,
                exit: None,
            }),
            Some(exits) => all.extend(exits.at.iter().map(|exit| AttachSite {
                cookie: number | u64::from(exit.distance.cast_unsigned()) << 32,
                site,
                exit: Some(exit.offset),
            })),
        }
    }
    all
}

/// Number of places that a program is attached to, if none is refused.
pub(crate) fn count(probe: &CodeProbe) -> usize {
    sites(probe).len()
}

/// A place that the kernel refused.
#[derive(Debug)]
pub struct RefusedPlace {
    /// The place, for messages.
    pub place: String,
    /// The kernel's error.
    pub why: io::Error,
}

/// The warning about places that were left out.
pub(crate) fn refusal_warning(refused: &[RefusedPlace]) -> Option<String> {
    let first = refused.first()?;
    let text = format!("{} cannot be probed: {}", first.place, first.why);
    Some(match refused.len() {
        1 => text,
        n => format!("{n} places are left out: {text}"),
    })
}

/// The place with the kernel's error.
pub(crate) fn refused_place(site: &AttachSite<'_>, why: io::Error) -> RefusedPlace {
    let place = match &site.place_text() {
        CodePlace::File { path, offset } => format!("{path} at offset {offset:#x}"),
        CodePlace::Symbol {
            name, offset: 0, ..
        } => format!("function {name}"),
        CodePlace::Symbol { name, offset, .. } => format!("function {name}+{offset:#x}"),
        CodePlace::Address(at) => format!("address {at:#x}"),
        CodePlace::Traced(at) => match Symbols::kernel().map(|s| s.describe(*at)) {
            Ok(name) => format!("function {name}"),
            Err(_) => format!("function at {at:#x}"),
        },
    };
    RefusedPlace { place, why }
}

/// The error of an attachment to a place.
pub(crate) fn place_error(why: BpfError) -> io::Error {
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
