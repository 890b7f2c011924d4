//! `kernel.data` and `process.data`: memory that the processor's debug registers watch.

use spile_cast::Cast;
use spile_ir::{Event, Watch, WatchOwner};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::{DiagResult, Diagnostic};
use spile_syntax::pretty::point_text;

use super::kinds::PointMatch;
use crate::codes;
use crate::facts::{CodeFacts, DataLocation, Facts, ModuleQuery, ProbeModule};
use crate::probe::handler::HandlerKind;
use crate::probe::point::{bad_argument, modules, named, number_of, process_number};

/// Maximum number of bytes that a debug register watches.
const MOST: u64 = 8;

/// The owners of the memory that the first component names; for a pattern, all programs that match.
fn owners(facts: &dyn CodeFacts, first: &Component) -> DiagResult<Vec<WatchOwner>> {
    match (&*first.name, &first.arg) {
        ("process", Some(Literal::Num(_))) => Ok(vec![WatchOwner::Process(process_number(first)?)]),
        ("process", Some(Literal::Str(s))) => {
            let path = String::from_utf8_lossy(s).into();
            let programs = modules(facts, &ModuleQuery::Path(path), first)?;
            let owners = programs
                .into_iter()
                .filter_map(|m| match (m.pid, m.module) {
                    (Some(pid), _) => Some(WatchOwner::Process(pid)),
                    (None, ProbeModule::File(path)) => Some(WatchOwner::Program(path)),
                    _ => None,
                });
            Ok(owners.collect())
        }
        _ => Ok(vec![WatchOwner::Kernel]),
    }
}

/// The watches that a point means.
pub(super) fn resolve(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<PointMatch>> {
    let (Some(data), Some(first)) = (named(comps, "data"), comps.first()) else {
        return Ok(Vec::new());
    };
    let owners = owners(facts, first)?;
    let mut hits = Vec::new();
    for owner in owners {
        let event = Event::Watch(watch(facts, comps, data, owner)?);
        hits.extend(PointMatch::plain(
            event,
            point_text(comps),
            HandlerKind::Perf,
        ));
    }
    Ok(hits)
}

/// The watch on the memory of one owner.
fn watch(
    facts: &dyn CodeFacts,
    comps: &[Component],
    data: &Component,
    owner: WatchOwner,
) -> DiagResult<Watch> {
    let location = match &data.arg {
        Some(Literal::Num(n)) => DataLocation {
            address: n.cast_unsigned(),
            size: 0,
        },
        Some(Literal::Str(s)) => facts
            .data_location(&owner, &String::from_utf8_lossy(s))
            .map_err(|why| Box::new(Diagnostic::error(codes::NO_LOCATION, why).at(data.span)))?,
        None => return Err(bad_argument(data, "an address or the name of a variable")),
    };
    let length = match named(comps, "length") {
        Some(c) => match number_of(c) {
            Some(n @ (1 | 2 | 4 | 8)) => n,
            _ => return Err(bad_argument(c, "1, 2, 4 or 8 bytes")),
        },
        None => natural_size(location),
    };
    if !location.address.is_multiple_of(length) {
        let text = format!(
            "the address {:#x} is not a multiple of the {length} bytes that are watched",
            location.address
        );
        let d = Diagnostic::error(codes::BAD_ARGUMENT, text).at(data.span);
        return d.help("`.length(1)` watches one byte").err();
    }
    Ok(Watch {
        address: location.address,
        length: length.fit(),
        reads: named(comps, "rw").is_some(),
        owner,
    })
}

/// The number of bytes to watch: as much of a variable as possible; for an address four bytes, or
/// fewer if it is not aligned.
fn natural_size(location: DataLocation) -> u64 {
    let most = match location.size {
        0 => 4,
        size => size.min(MOST),
    };
    let fits = |n: &u64| *n <= most && location.address.is_multiple_of(*n);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_watched_data_are_natural() {
        let of = |address, size| natural_size(DataLocation { address, size });
        assert_eq!(of(0x1000, 0), 4);
        assert_eq!(of(0x1002, 0), 2);
        assert_eq!(of(0x1001, 0), 1);
        assert_eq!(of(0x1000, 100), 8);
        assert_eq!(of(0x1004, 100), 4);
        assert_eq!(of(0x1000, 1), 1);
        assert_eq!(of(0x1000, 3), 2);
    }
}
