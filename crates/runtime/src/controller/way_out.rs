//! The ways out of limits that handlers reach: what the limit is, and how a script or an option raises
//! it. Each is said once, below the first error.

use spile_ir::interp::{AGGREGATE_OVERFLOW, ARRAY_OVERFLOW};
use spile_ir::{GlobalKind, HandlerId, Program, SiteId};

use crate::controller::{Controller, message};

/// Number of rounds of loops after which the kernel ends a handler.
const KERNEL_ROUNDS: u64 = 8_388_608;

/// What still bounds a kernel handler with a larger limit, or without one.
const KERNEL_BOUNDS: &str = "whatever MAXACTION is, the kernel runs no handler without an end: \
    there a hit is limited to 8,388,608 rounds of loops; begin, end and timer probes, which run \
    outside of the kernel, have no limit with --suppress-time-limits";

impl Controller {
    /// Says the way out of a limit that is the reason of an error, if it was not said before.
    pub(super) fn say_way_out(&mut self, error: &str, site: SiteId, handler: HandlerId) {
        let program = &self.env.globals.program;
        if let Some(text) = way_out(error, site, handler, program)
            && !self.quiet
            && self.env.ways_out_told.insert(text.clone())
        {
            self.out.warn(&text);
        }
    }
}

/// The way out of a limit that is the reason of an error.
fn way_out(error: &str, site: SiteId, handler: HandlerId, program: &Program) -> Option<String> {
    if error == message::MAXACTION {
        let event = program.handlers.get(handler.index()).map(|h| &h.event);
        return Some(actions(program, event.is_none_or(|e| e.is_compiled())));
    }
    if error == message::MAXNESTING {
        let limit = program.limits.maxnesting;
        return Some(format!(
            "calls nest at most {limit} deep (MAXNESTING): -D MAXNESTING={} allows more",
            limit.saturating_mul(10)
        ));
    }
    if error == ARRAY_OVERFLOW {
        // The error is near the identifier of the array: `identifier 'a' at FILE:1:2`.
        let near = program.trace(site, &[]);
        let name = near.first().and_then(|s| s.near.split('\'').nth(1));
        return Some(elements(program, name.unwrap_or_default()));
    }
    let name = error.strip_prefix(AGGREGATE_OVERFLOW)?;
    Some(elements(program, name))
}

/// MAXACTION as a limit.
fn actions(program: &Program, kernel: bool) -> String {
    let limits = &program.limits;
    let (name, limit, unlimited) = match kernel {
        true if limits.maxaction >= KERNEL_ROUNDS => return KERNEL_BOUNDS.into(),
        true => (
            "MAXACTION",
            limits.maxaction,
            "as many as the kernel allows",
        ),
        false => (
            "MAXACTION_INTERRUPTIBLE",
            limits.maxaction_interruptible,
            "any number",
        ),
    };
    let more = limit.saturating_mul(10);
    format!(
        "a handler runs at most {limit} statements ({name}): -D {name}={more} allows more, \
         --suppress-time-limits {unlimited}"
    )
}

/// The size of an array as a limit.
fn elements(program: &Program, name: &str) -> String {
    let named = program.globals.iter().find_map(|g| {
        let is_named = g.name.split('@').next() == Some(name);
        match g.kind {
            GlobalKind::Array { max, .. } if is_named => Some(max),
            _ => None,
        }
    });
    let Some(max) = named else {
        let max = program.limits.maxmapentries;
        let more = max.saturating_mul(10);
        return format!(
            "an array has space for {max} elements (MAXMAPENTRIES): -D MAXMAPENTRIES={more} has more"
        );
    };
    let more = max.saturating_mul(10);
    format!(
        "`{name}` has space for {max} elements: `global {name}[{more}]` has more, `global {name}%` drops the \
         oldest, and -D MAXMAPENTRIES={more} is for all arrays"
    )
}

#[cfg(test)]
mod tests {
    use spile_ir::storage::Storage;
    use spile_ir::{ElemTy, Event, Global, Handler, Site, StatsSpec, Ty};

    use super::*;

    fn program() -> Program {
        let array = |name: &str, value| Global {
            name: name.into(),
            kind: GlobalKind::Array {
                keys: vec![Ty::Long],
                value,
                max: 7,
                wrap: false,
            },
            init: None,
            storage: Storage::Controller,
            display: false,
            site: SiteId(0),
        };
        Program {
            globals: vec![
                array("a", ElemTy::Scalar(Ty::Long)),
                array("s@x.stp", ElemTy::Stats(StatsSpec::default())),
            ],
            ..Program::default()
        }
    }

    #[test]
    fn limits_have_a_way_out() {
        let mut program = program();
        program.sites.push(Site::at("identifier 'a' at x.stp:1:2"));
        let text =
            |error: &str, program: &Program| way_out(error, SiteId(0), HandlerId(0), program);
        let has = |error: &str, parts: &[&str]| {
            let text = text(error, &program).expect("a way out");
            parts
                .iter()
                .for_each(|p| assert!(text.contains(p), "{text}"));
        };
        has(
            ARRAY_OVERFLOW,
            &["7 elements", "global a[70]", "a%", "MAXMAPENTRIES"],
        );
        has("aggregation overflow in s", &["7 elements", "global s[70]"]);
        has(
            "aggregation overflow in t",
            &["2048 elements", "MAXMAPENTRIES=20480"],
        );
        has(message::MAXACTION, &["1000 statements", "MAXACTION=10000"]);
        has(message::MAXNESTING, &["-D MAXNESTING="]);
        assert_eq!(text("division by 0", &program), None);
        program.limits.maxaction = KERNEL_ROUNDS;
        assert_eq!(
            text(message::MAXACTION, &program).as_deref(),
            Some(KERNEL_BOUNDS)
        );
        program.handlers.push(Handler {
            point: "begin".into(),
            points: 1,
            event: Event::Begin(0),
            body: Default::default(),
            site: SiteId(0),
        });
        let text = text(message::MAXACTION, &program).expect("a way out");
        assert!(text.contains("MAXACTION_INTERRUPTIBLE=100000"), "{text}");
    }
}
