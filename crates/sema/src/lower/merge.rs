//! Merges handlers of one probe that turned out identical. Code probes have a handler for each
//! combination of variable locations and types. Copies of a function in many compilation units have
//! types of their own, which generate the same code. The same holds for the functions that analysis
//! makes for such types.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ir::{Body, CodeProbe, Event, Func, FuncId, Handler, Inst, Program, SiteId};

use crate::probe::code::at_once;

/// Merges identical handlers of a probe. `patterns` has an entry for each handler: its point where
/// it serves several.
pub(super) fn run(program: &mut Program, patterns: &[Arc<str>]) {
    functions(program);
    let mut by_body = HandlersByBody::default();
    let mut merged = Vec::with_capacity(program.handlers.len());
    for (handler, pattern) in std::mem::take(&mut program.handlers)
        .into_iter()
        .zip(patterns)
    {
        by_body.add(&mut merged, handler, pattern);
    }
    program.handlers = merged;
}

/// Of identical functions with one name the first is called; the others lose their callers.
fn functions(program: &mut Program) {
    loop {
        let mut by_hash: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        let mut instead: FxHashMap<FuncId, FuncId> = FxHashMap::default();
        let mut names: FxHashMap<&str, u32> = FxHashMap::default();
        for f in &program.funcs {
            *names.entry(&f.name).or_default() += 1;
        }
        let several = |f: &&Func| names.get(&*f.name) > Some(&1);
        for (index, f) in program.funcs.iter().enumerate().filter(|(_, f)| several(f)) {
            let same_digest = by_hash.entry(digest(&f.body)).or_default();
            match same_digest.iter().find(|i| program.funcs[**i] == *f) {
                Some(first) => {
                    instead.insert(FuncId(index.fit()), FuncId(first.fit()));
                }
                None => same_digest.push(index),
            }
        }
        // Their callers may have become identical.
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

/// Handlers by their code.
#[derive(Default)]
struct HandlersByBody(FxHashMap<(SiteId, u64), Vec<usize>>);

impl HandlersByBody {
    /// Adds a handler, or its locations to an identical one, which then has the pattern as its point.
    fn add(&mut self, handlers: &mut Vec<Handler>, handler: Handler, pattern: &Arc<str>) {
        let Event::Code(probe) = &handler.event else {
            handlers.push(handler);
            return;
        };
        let same_digest = self
            .0
            .entry((handler.site, digest(&handler.body)))
            .or_default();
        for index in &*same_digest {
            let Some(first) = handlers.get_mut(*index).filter(|h| h.body == handler.body) else {
                continue;
            };
            let Event::Code(locations) = &mut first.event else {
                continue;
            };
            if !can_attach_together(locations, probe) {
                continue;
            }
            locations.sites.extend(probe.sites.iter().cloned());
            first.points += handler.points;
            if first.point != handler.point {
                first.point = pattern.clone();
            }
            return;
        }
        same_digest.push(handlers.len());
        handlers.push(handler);
    }
}

/// Whether the locations of two probes can be attached together, as one probe.
fn can_attach_together(a: &CodeProbe, b: &CodeProbe) -> bool {
    let at_once = |p: &CodeProbe| p.sites.iter().all(|s| at_once(&s.location));
    let kind = |p: &CodeProbe| {
        (
            p.space,
            p.ret,
            p.pid,
            p.tree,
            p.optional_sites,
            p.at_exits(),
            p.shares_exits(),
        )
    };
    kind(a) == kind(b) && at_once(a) == at_once(b)
}

/// A hash of a body.
fn digest(body: &Body) -> u64 {
    struct HashWriter(DefaultHasher);
    impl Write for HashWriter {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            self.0.write(s.as_bytes());
            Ok(())
        }
    }
    let mut text = HashWriter(DefaultHasher::new());
    // Hashing cannot fail.
    let _ = write!(text, "{body:?}");
    text.0.finish()
}
