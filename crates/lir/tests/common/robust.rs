//! Arbitrary bytes through reader, verifier, printer and interpreter. Tests and the fuzz target use
//! it.

use spile_lir::interp::{Machine, NoHost};
use spile_lir::reader::read;
use spile_lir::simplify::simplify;
use spile_lir::verify::{HostLimits, verify};

/// Stacks that the interpreter has memory for.
pub(crate) const LIMITS: HostLimits = HostLimits {
    stack: 512,
    ..HostLimits::NONE
};

/// Panics if a stage does, or if what was accepted is not read back.
pub(crate) fn all_stages(text: &[u8]) {
    let Ok(mut module) = read(&String::from_utf8_lossy(text)) else {
        return;
    };
    let printed = module.to_string();
    let accepted = verify(&module, &LIMITS).is_ok();
    if !accepted {
        return;
    }
    let back = read(&printed).expect("the printed text is read back");
    assert_eq!(back.to_string(), printed);
    for func in &module.funcs {
        let mut machine = Machine::new(&module, 5_000);
        let args = vec![1; func.params().len()];
        // The result depends on the input; only a panic is a failure.
        let _ = machine.run(&func.name, &args, &mut NoHost);
    }
    module.funcs.iter_mut().for_each(simplify);
    verify(&module, &LIMITS).expect("simplified code is valid");
}
