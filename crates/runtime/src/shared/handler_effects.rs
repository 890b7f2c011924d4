//! The effects of each controller handler, computed once: the locks that it must hold, and whether
//! per-CPU deltas must be drained before it runs.

use spile_ir::storage::{Storage, access_sets, takes};
use spile_ir::{Body, GlobalId, Program};
use spile_layout::Layout;

/// The effects of a handler on globals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandlerEffects {
    /// The globals to lock with the offset of their lock word, in the global locking order.
    pub locks: Vec<(GlobalId, u32)>,
    /// Whether it changes none of these globals except for those that it takes, so that a copy made
    /// under the locks is enough.
    pub copies: bool,
    /// The globals that it empties on every path, and does not change otherwise.
    pub taken: Vec<GlobalId>,
    /// Whether it accesses a global whose per-CPU deltas are read while handlers run.
    pub drain: bool,
}

/// The effects of each handler, in the program's order.
pub fn of_program(program: &Program, layout: Option<&Layout>) -> Vec<HandlerEffects> {
    let Some(layout) = layout else {
        return vec![HandlerEffects::default(); program.handlers.len()];
    };
    program
        .handlers
        .iter()
        .map(|h| of_body(program, layout, &h.body))
        .collect()
}

fn of_body(program: &Program, layout: &Layout, body: &Body) -> HandlerEffects {
    let (globals, changed) = access_sets(program, body);
    let mut needs = HandlerEffects::default();
    for id in globals {
        let Some(global) = program.globals.get(id.index()) else {
            continue;
        };
        match global.storage {
            Storage::Shared { lock: true } => {
                let location = layout.globals.get(id.index()).and_then(Option::as_ref);
                if let Some(lock) = location.and_then(|p| p.lock) {
                    needs.locks.push((id, lock));
                }
            }
            Storage::PerCpu { double } => needs.drain |= double,
            Storage::Shared { lock: false } | Storage::Controller => {}
        }
    }
    let locked = needs.locks.iter().map(|(g, _)| *g);
    let taken: Vec<GlobalId> = locked.filter(|g| changed.contains(g)).collect();
    let copies = taken.iter().all(|g| takes(program, body, *g));
    if copies && !needs.locks.is_empty() {
        (needs.copies, needs.taken) = (true, taken);
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_ir::{
        Block, Event, Func, FuncId, Global, GlobalKind, Handler, Inst, SiteId, Term, Ty,
    };
    use spile_layout::{GlobalLayout, GlobalLocation};

    fn body(insts: Vec<Inst>) -> Body {
        let insts = insts.into_iter().map(|i| (i, SiteId(0))).collect();
        Body {
            blocks: vec![Block {
                insts,
                term: Term::Ret(None),
                catch: None,
            }],
            ..Body::default()
        }
    }

    #[test]
    fn functions_count_and_locks_are_sorted() {
        let global = |storage| Global {
            name: "g".into(),
            kind: GlobalKind::Scalar(Ty::Long),
            init: None,
            storage,
            display: false,
            site: SiteId(0),
        };
        let clear = |g| Inst::GClear { g: GlobalId(g) };
        let call = Inst::Call {
            dst: None,
            func: FuncId(0),
            args: vec![],
        };
        let locked = Storage::Shared { lock: true };
        let program = Program {
            globals: vec![
                global(locked),
                global(locked),
                global(Storage::Shared { lock: false }),
                global(Storage::PerCpu { double: true }),
            ],
            funcs: vec![Func {
                name: "f".into(),
                params: vec![],
                ret: None,
                recursive: false,
                body: body(vec![clear(0), call.clone(), clear(3)]),
            }],
            handlers: vec![
                Handler {
                    point: "begin".into(),
                    points: 1,
                    event: Event::Begin(0),
                    body: body(vec![clear(1), clear(2), call]),
                    site: SiteId(0),
                },
                Handler {
                    point: "end".into(),
                    points: 1,
                    event: Event::End(0),
                    body: body(vec![]),
                    site: SiteId(0),
                },
            ],
            ..Program::default()
        };
        let location = |lock| {
            Some(GlobalLayout {
                lock,
                location: GlobalLocation::Scalar {
                    offset: 128,
                    ty: Ty::Long,
                },
            })
        };
        let layout = Layout {
            shared_size: 256,
            cpu_stride: 128,
            cpus: 1,
            globals: vec![
                location(Some(136)),
                location(Some(144)),
                location(None),
                location(None),
            ],
            ..Layout::default()
        };
        let needs = of_program(&program, Some(&layout));
        assert_eq!(needs[0].locks, [(GlobalId(0), 136), (GlobalId(1), 144)]);
        assert!(needs[0].drain);
        assert!(!needs[0].copies, "a function changes one of them");
        assert_eq!(needs[1], HandlerEffects::default());
        assert_eq!(of_program(&program, None)[0], HandlerEffects::default());
    }
}
