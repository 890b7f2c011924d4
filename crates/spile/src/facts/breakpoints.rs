//! The one check that all places in programs pass: whether a breakpoint may go there.

use std::path::Path;
use std::sync::Arc;

use spile_cast::Cast;
use spile_debuginfo::DebugFile as File;
use spile_debuginfo::breakpoints::{Breakpoints, PlaceUse};
use spile_debuginfo::uprobes::KernelVersion;
use spile_ir::{CodePlace, Exit, Exits};
use spile_sema::facts::{CodeQuery, FoundPlace};

use super::place_notes::PlaceNotes;

/// The decisions about breakpoints so far.
pub(crate) struct BreakpointDecisions {
    kernel: KernelVersion,
    /// Places that match and were left out.
    pub left_out: PlaceNotes,
}

impl BreakpointDecisions {
    /// For breakpoints by the kernel of that release.
    pub(crate) fn new(release: &str) -> BreakpointDecisions {
        BreakpointDecisions {
            kernel: KernelVersion::of_release(release),
            left_out: PlaceNotes::default(),
        }
    }

    /// The places of a file at which a breakpoint does not change what the program does. Entries of
    /// functions may be moved to an instruction that means the same; `moved` describes the place
    /// there. Other places are left out.
    ///
    /// # Errors
    /// When none of the places is left.
    pub(crate) fn harmless(
        &self,
        path: &Path,
        file: &File,
        query: &CodeQuery,
        found: Vec<FoundPlace>,
        moved: impl Fn(FoundPlace, u64) -> FoundPlace,
    ) -> Result<Vec<FoundPlace>, String> {
        let mut breakpoints = Breakpoints::new(file, self.kernel);
        let (mut harmless, mut refused) = (Vec::new(), Vec::new());
        for place in found {
            match check(&mut breakpoints, file, &place, usage(query, &place)) {
                Ok(to) if to == place.address => harmless.push(place),
                Ok(to) => harmless.push(move_place(file, moved(place, to), to)),
                Err(why) => refused.push((place.name, why)),
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

/// What to do about a place that is refused.
const WAY_OUT: &str =
    "probe another line of the function, or a function that calls it or is called by it";

/// What a place means in a query.
fn usage(query: &CodeQuery, place: &FoundPlace) -> PlaceUse {
    match query {
        CodeQuery::Mark { .. } => PlaceUse::Marker,
        // The test of the callers is bound to the address.
        CodeQuery::Function { part: None, .. } if !place.inlined && place.callers.is_none() => {
            PlaceUse::Entry
        }
        _ => PlaceUse::Exact,
    }
}

/// The address to probe for a place, whose return instructions are checked, too.
fn check(
    breakpoints: &mut Breakpoints<'_>,
    file: &File,
    place: &FoundPlace,
    usage: PlaceUse,
) -> Result<u64, String> {
    let to = breakpoints.check(place.address, usage)?;
    for exit in place.exits.iter().flat_map(|e| &e.at) {
        let at = file.image().address_of_offset(exit.offset);
        let at = at.ok_or("a return instruction is not in the file")?;
        breakpoints.check(at, PlaceUse::Exact)?;
    }
    Ok(to)
}

/// A place that was moved to an address: where it is in the file, and the distances of its return
/// instructions from there.
fn move_place(file: &File, place: FoundPlace, to: u64) -> FoundPlace {
    let distance = to.wrapping_sub(place.address).low32().cast_signed();
    let offset = file.image().file_offset(to);
    let exits = place.exits.map(|exits| {
        let at = exits.at.iter().map(|exit| Exit {
            distance: exit.distance - distance,
            ..*exit
        });
        Arc::new(Exits {
            at: at.collect(),
            ..*exits
        })
    });
    let there = match (place.place, offset) {
        (CodePlace::File { path, .. }, Some(offset)) => CodePlace::File { path, offset },
        (other, _) => other,
    };
    FoundPlace {
        place: there,
        address: to,
        exits,
        ..place
    }
}
