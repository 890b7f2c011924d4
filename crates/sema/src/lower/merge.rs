//! Handlers of one probe that came out the same become one. Code has a handler for each way in
//! which its variables are found and typed; copies of a function in many compilation units have
//! types of their own, which read alike. So do the functions that analysis makes for such types.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;
use std::sync::Arc;

use spile_ir::{Body, CodePlace, CodeProbe, Event, Func, FuncId, Handler, Inst, Program, SiteId};

/// Has equal handlers of a probe be one. There is a pattern for each handler: its point where it serves
/// several.
pub(super) fn run(program: &mut Program, patterns: &[Arc<str>]) {
    functions(program);
    let mut seen = Seen::default();
    let mut kept = Vec::with_capacity(program.handlers.len());
    for (handler, pattern) in std::mem::take(&mut program.handlers)
        .into_iter()
        .zip(patterns)
    {
        seen.add(&mut kept, handler, pattern);
    }
    program.handlers = kept;
}

/// Of functions of one name that are the same the first is called; nobody calls the others then.
fn functions(program: &mut Program) {
    loop {
        let mut known: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut instead: HashMap<FuncId, FuncId> = HashMap::new();
        let mut names: HashMap<&str, u32> = HashMap::new();
        for f in &program.funcs {
            *names.entry(&f.name).or_default() += 1;
        }
        let several = |f: &&Func| names.get(&*f.name) > Some(&1);
        for (at, f) in program.funcs.iter().enumerate().filter(|(_, f)| several(f)) {
            let alike = known.entry(digest(&f.body)).or_default();
            match alike.iter().find(|i| program.funcs[**i] == *f) {
                Some(first) => {
                    instead.insert(FuncId(at as u32), FuncId(*first as u32));
                }
                None => alike.push(at),
            }
        }
        // Those that call them may be the same now.
        let mut changed = false;
        let handlers = program.handlers.iter_mut().map(|h| &mut h.body);
        for body in handlers.chain(program.funcs.iter_mut().map(|f| &mut f.body)) {
            for inst in body.insts_mut() {
                if let Inst::Call { func, .. } = inst
                    && let Some(first) = instead.get(func)
                {
                    *func = *first;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

/// Handlers by what they do.
#[derive(Default)]
struct Seen(HashMap<(SiteId, u64), Vec<usize>>);

impl Seen {
    /// Adds a handler, or its places to one that does the same; of several points that one has the
    /// pattern.
    fn add(&mut self, handlers: &mut Vec<Handler>, handler: Handler, pattern: &Arc<str>) {
        let Event::Code(probe) = &handler.event else {
            handlers.push(handler);
            return;
        };
        let alike = self
            .0
            .entry((handler.site, digest(&handler.body)))
            .or_default();
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
    let kind = |p: &CodeProbe| (p.space, p.ret, p.pid, p.tree, p.leave_out, p.at_exits());
    kind(a) == kind(b) && at_once(a) == at_once(b)
}

/// A number that is the same for the same bodies.
fn digest(body: &Body) -> u64 {
    struct Text(DefaultHasher);
    impl Write for Text {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            self.0.write(s.as_bytes());
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    // Hashing cannot fail.
    let _ = write!(text, "{body:?}");
    text.0.finish()
}
