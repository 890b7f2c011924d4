//! Matches that nobody asks about: they need not say where they are, which is much less work.

use crate::*;

/// Runs the pass.
pub fn run(program: &mut Program) {
    let asks = |body: &Body| {
        let mut insts = body.insts();
        insts.any(|i| {
            matches!(
                i,
                Inst::Intr {
                    f: Intrinsic::MatchGroups | Intrinsic::MatchGroup,
                    ..
                }
            )
        })
    };
    let calls = |body: &Body| {
        let mut insts = body.insts();
        insts.any(|i| matches!(i, Inst::Call { .. }))
    };
    // Functions match for whoever calls them.
    let functions_ask = program.funcs.iter().any(|f| asks(&f.body));
    let anyone = program.bodies().any(asks);
    for handler in &mut program.handlers {
        if !(asks(&handler.body) || functions_ask && calls(&handler.body)) {
            forget(&mut handler.body);
        }
    }
    if !anyone {
        program.funcs.iter_mut().for_each(|f| forget(&mut f.body));
    }
}

fn forget(body: &mut Body) {
    for inst in body.insts_mut() {
        if let Inst::Regex { keep, .. } = inst {
            *keep = false;
        }
    }
}
