//! Constant globals: reads of a global that nothing writes become its initial value. So `-G`
//! settings cost nothing at run time, and code that they turn off disappears.

use crate::*;

/// Runs the pass; returns for each handler whether it read such a global.
pub fn run(program: &mut Program) -> Vec<bool> {
    let values = values(program);
    let mut handlers = std::mem::take(&mut program.handlers);
    let read = handlers.iter_mut().map(|h| fold(&mut h.body, &values));
    let read = read.collect();
    program.handlers = handlers;
    for func in &mut program.funcs {
        fold(&mut func.body, &values);
    }
    read
}

/// Removes kernel handlers that have nothing left to do and that read a constant global (`read`):
/// the setting turned them off, so their events need not be attached.
pub(crate) fn drop_disabled_handlers(program: &mut Program, read: &[bool]) {
    let idle = |h: &Handler| {
        let start = h.body.blocks.first();
        let nothing = |(i, _): &(Inst, SiteId)| matches!(i, Inst::Tick { .. });
        h.event.is_compiled()
            && start
                .is_some_and(|b| matches!(b.term, Term::Ret(None)) && b.insts.iter().all(nothing))
    };
    let mut read = read.iter();
    program
        .handlers
        .retain(|h| !(read.next() == Some(&true) && idle(h)));
}

/// The value of each scalar that is never written.
fn values(program: &mut Program) -> Vec<Option<Val>> {
    let mut written = vec![false; program.globals.len()];
    for inst in program.bodies().flat_map(Body::insts) {
        if let Some(g) = inst.global().filter(|_| inst.writes_global())
            && let Some(written) = written.get_mut(g.index())
        {
            *written = true;
        }
    }
    let constant = |(g, written): (&Global, bool)| match (&g.kind, &g.init) {
        (GlobalKind::Scalar(_), _) if written => None,
        (GlobalKind::Scalar(Ty::Long), Some(Init::Long(n))) => Some(Init::Long(*n)),
        (GlobalKind::Scalar(Ty::Long), None) => Some(Init::Long(0)),
        (GlobalKind::Scalar(Ty::Str(_)), None) => Some(Init::Str(Bytes::from(&b""[..]))),
        (GlobalKind::Scalar(Ty::Str(width)), Some(Init::Str(string))) => Some(string)
            .filter(|s| s.len() < usize::from(*width))
            .cloned()
            .map(Init::Str),
        _ => None,
    };
    let constants: Vec<_> = program.globals.iter().zip(written).map(constant).collect();
    let value = |init| match init {
        Init::Long(n) => Val::Imm(n),
        Init::Str(string) => Val::Str(program.intern(&string)),
    };
    let mut value = value;
    constants.into_iter().map(|i| i.map(&mut value)).collect()
}

fn fold(body: &mut Body, values: &[Option<Val>]) -> bool {
    let mut any = false;
    for inst in body.insts_mut() {
        if let Inst::GLoad { dst, g } = *inst
            && let Some(src) = values.get(g.index()).copied().flatten()
        {
            *inst = Inst::Copy { dst, src };
            any = true;
        }
    }
    any
}
