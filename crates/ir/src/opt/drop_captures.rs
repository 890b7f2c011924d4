//! Drops captures that nothing reads: a test for a match is far cheaper than a match with its
//! position.

use crate::*;

/// Runs the pass.
pub fn run(program: &mut Program) {
    if program.regexes.is_empty() {
        return;
    }
    let facts = ProgramFacts::new(program);
    // A function's match may be for any of its callers.
    let functions_ask = facts.funcs().any(BodyFacts::asks_of_match);
    let anyone = functions_ask || facts.handlers().any(BodyFacts::asks_of_match);
    for (handler, facts) in program.handlers.iter_mut().zip(facts.handlers()) {
        if !(facts.asks_of_match() || functions_ask && facts.calls) {
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
