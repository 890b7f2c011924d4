//! Handlers of one probe that came out the same become one. Code has a handler for each way in
//! which its variables are found and typed; copies of a function in many compilation units have
//! types of their own, which read alike.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;
use std::sync::Arc;

use spile_ir::{CodePlace, CodeProbe, Event, Handler, SiteId};

/// Handlers by what they do.
#[derive(Default)]
pub(super) struct Seen(HashMap<(SiteId, u64), Vec<usize>>);

impl Seen {
    /// Adds a handler, or its places to one that does the same; of several points that one has the
    /// pattern.
    pub fn add(&mut self, handlers: &mut Vec<Handler>, handler: Handler, pattern: &Arc<str>) {
        let Event::Code(probe) = &handler.event else {
            handlers.push(handler);
            return;
        };
        let alike = self.0.entry((handler.site, digest(&handler))).or_default();
        for at in &*alike {
            let Some(first) = handlers.get_mut(*at).filter(|h| h.body == handler.body) else {
                continue;
            };
            let Event::Code(places) = &mut first.event else {
                continue;
            };
            if !together(places, probe) {
                continue;
            }
            places.sites.extend(probe.sites.iter().cloned());
            first.points += handler.points;
            if first.point != handler.point {
                first.point = pattern.clone();
            }
            return;
        }
        alike.push(handlers.len());
        handlers.push(handler);
    }
}

/// Whether the places of two probes can be those of one, attached by the same means.
fn together(a: &CodeProbe, b: &CodeProbe) -> bool {
    let at_once = |p: &CodeProbe| {
        p.sites.iter().all(|s| {
            let place = &s.place;
            matches!(
                place,
                CodePlace::Symbol { offset: 0, .. } | CodePlace::Traced(_)
            )
        })
    };
    (a.space, a.ret, a.pid, a.tree) == (b.space, b.ret, b.pid, b.tree) && at_once(a) == at_once(b)
}

/// A number that is the same for the same bodies.
fn digest(handler: &Handler) -> u64 {
    struct Text(DefaultHasher);
    impl Write for Text {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            self.0.write(s.as_bytes());
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    // Hashing cannot fail.
    let _ = write!(text, "{:?}", handler.body);
    text.0.finish()
}
