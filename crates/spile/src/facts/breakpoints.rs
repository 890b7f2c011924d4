//! The one check that all locations in programs pass: whether a breakpoint may go there.

use std::path::Path;
use std::sync::Arc;

use spile_cast::Cast;
use spile_debuginfo::DebugFile as File;
use spile_debuginfo::breakpoints::{Breakpoints, LocationUse};
use spile_debuginfo::uprobes::KernelVersion;
use spile_ir::{CodeLocation, Exit, Exits};
use spile_sema::facts::{CodeQuery, FoundLocation};

use super::location_notes::LocationNotes;

/// The decisions about breakpoints so far.
pub(crate) struct BreakpointDecisions {
    kernel: KernelVersion,
    /// Locations that match and were left out.
    pub left_out: LocationNotes,
}

impl BreakpointDecisions {
    /// For breakpoints by the kernel of that release.
    pub(crate) fn new(release: &str) -> BreakpointDecisions {
        BreakpointDecisions {
            kernel: KernelVersion::of_release(release),
            left_out: LocationNotes::default(),
        }
    }

    /// The locations of a file at which a breakpoint does not change what the program does. Entries of
    /// functions may be moved to an instruction that means the same; `moved` describes the location
    /// there. Other locations are left out.
    ///
    /// # Errors
    /// When none of the locations is left.
    pub(crate) fn harmless(
        &self,
        path: &Path,
        file: &File,
        query: &CodeQuery,
        locations: Vec<FoundLocation>,
        moved: impl Fn(FoundLocation, u64) -> FoundLocation,
    ) -> Result<Vec<FoundLocation>, String> {
        let mut breakpoints = Breakpoints::new(file, self.kernel);
        let (mut harmless, mut refused) = (Vec::new(), Vec::new());
        for location in locations {
            match check(&mut breakpoints, file, &location, usage(query, &location)) {
                Ok(to) if to == location.address => harmless.push(location),
                Ok(to) => harmless.push(move_location(file, moved(location, to), to)),
                Err(why) => refused.push((location.name, why)),
            }
        }
        if let ([], [(_, why), ..]) = (&*harmless, &*refused) {
            return Err(format!(
                "a breakpoint would change the program: {why}; {WAY_OUT}"
            ));
        }
        let refused = refused.iter();
        self.left_out
            .add(refused.map(|(name, why)| format!("{name} in {}: {why}", path.display())));
        Ok(harmless)
    }
}

/// What to do about a location that is refused.
const WAY_OUT: &str =
    "probe another line of the function, or a function that calls it or is called by it";

/// What a location means in a query.
fn usage(query: &CodeQuery, location: &FoundLocation) -> LocationUse {
    match query {
        CodeQuery::Mark { .. } => LocationUse::Marker,
        // The test of the callers is bound to the address.
        CodeQuery::Function { part: None, .. }
            if !location.inlined && location.callers.is_none() =>
        {
            LocationUse::Entry
        }
        _ => LocationUse::Exact,
    }
}

/// The address to probe for a location, whose return instructions are checked, too.
fn check(
    breakpoints: &mut Breakpoints<'_>,
    file: &File,
    location: &FoundLocation,
    usage: LocationUse,
) -> Result<u64, String> {
    let to = breakpoints.check(location.address, usage)?;
    for exit in location.exits.iter().flat_map(|e| &e.instructions) {
        let address = file.image().address_of_offset(exit.offset);
        let address = address.ok_or("a return instruction is not in the file")?;
        breakpoints.check(address, LocationUse::Exact)?;
    }
    Ok(to)
}

/// A location that was moved to an address: where it is in the file, and the distances of its return
/// instructions from there.
fn move_location(file: &File, location: FoundLocation, to: u64) -> FoundLocation {
    let distance = to.wrapping_sub(location.address).low32().cast_signed();
    let offset = file.image().file_offset(to);
    let exits = location.exits.map(|exits| {
        let moved = exits.instructions.iter().map(|exit| Exit {
            distance: exit.distance - distance,
            ..*exit
        });
        Arc::new(Exits {
            instructions: moved.collect(),
            ..*exits
        })
    });
    let code = match (location.location, offset) {
        (CodeLocation::File { path, .. }, Some(offset)) => CodeLocation::File { path, offset },
        (other, _) => other,
    };
    FoundLocation {
        location: code,
        address: to,
        exits,
        ..location
    }
}
