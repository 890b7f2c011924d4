//! Fusion of entry handlers into fexit programs. An fexit program sees the function's parameters
//! itself. Values that an entry handler would save are computed at the return instead, and the
//! entry needs no program.
//!
//! Analysis splits each return handler that uses values of the entry (`@entry`) in two: a handler
//! at the entry stores the values in arrays, and the other one takes them out. If fexit can attach
//! to the function, suits the handler otherwise, and the values depend only on parameters, the
//! return handler gets a copy of their calculations. Values that were read from memory have to be
//! those of the entry, and are left alone. So are a script's own arrays: their elements need not
//! belong to the call that returns.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ir::intrinsics::Intrinsic as I;
use spile_ir::opt::{copy_cse, dce, simplify_cfg};
use spile_ir::{
    BinOp, Block, Body, CodeProbe, Event, GlobalId, GlobalKind, HandlerId, Inst, Program, Reg,
    SiteId, Space, Term, Val,
};

use super::attachment::CodeAttach;
use super::kind;
use crate::target::Target;

/// Rewrites such handlers. Returns the program, and the entry handlers that became unnecessary.
pub(crate) fn rewrite<'p>(
    program: &'p Program,
    options: &Target,
) -> (Cow<'p, Program>, Vec<HandlerId>) {
    let mut out = Cow::Borrowed(program);
    let mut idle = Vec::new();
    if options.functions.is_empty() {
        return (out, idle);
    }
    for (entry, handler) in program.handlers.iter().enumerate() {
        let Some((ret, probe, kept)) = matching_return(program, entry) else {
            continue;
        };
        let mut body = kept.fused_body(&handler.body, &program.handlers[ret].body);
        let changed = out.to_mut();
        copy_cse::run(changed, &mut body, true);
        simplify_cfg::run(changed, &mut body);
        dce::run(changed, &mut body);
        if !matches!(
            kind::choose(probe, &body, options),
            CodeAttach::Trampoline(_)
        ) {
            continue;
        }
        changed.handlers[ret].body = body;
        changed.handlers[entry].body = empty_body();
        for (g, _) in &kept.arrays {
            // The array is unused now; its map becomes as small as possible.
            if let GlobalKind::Array { max, .. } = &mut changed.globals[g.index()].kind {
                *max = 1;
            }
        }
        idle.push(HandlerId(entry.fit()));
    }
    (out, idle)
}

fn empty_body() -> Body {
    Body {
        blocks: vec![Block {
            insts: Vec::new(),
            term: Term::Ret(None),
            catch: None,
        }],
        ..Body::default()
    }
}

/// What an entry handler saves.
struct SavedValues {
    /// The calculations, which depend only on parameters.
    insts: Vec<(Inst, SiteId)>,
    /// The arrays, and the value that each one gets.
    arrays: Vec<(GlobalId, Val)>,
}

/// The return handler that this entry handler works for, its event, and the saved values.
fn matching_return(program: &Program, index: usize) -> Option<(usize, &CodeProbe, SavedValues)> {
    let entry = &program.handlers[index];
    let Event::Code(probe) = &entry.event else {
        return None;
    };
    if probe.ret || probe.space != Space::Kernel {
        return None;
    }
    let saved = saved_values(&entry.body)?;
    let mut arrays = saved.arrays.iter().map(|(g, _)| *g);
    if !arrays.all(|g| program.globals[g.index()].saves_entry_values()) {
        return None;
    }
    let touches = |body: &Body| {
        let mut insts = body.insts();
        insts.any(|i| i.global().is_some_and(|g| saved.saves(g)))
    };
    if program.funcs.iter().any(|f| touches(&f.body)) {
        return None;
    }
    let mut others = (0..program.handlers.len()).filter(|n| *n != index);
    let user = others.find(|n| touches(&program.handlers[*n].body))?;
    if others.any(|n| touches(&program.handlers[n].body)) {
        return None;
    }
    let Event::Code(ret) = &program.handlers[user].event else {
        return None;
    };
    let same = CodeProbe {
        ret: true,
        ..probe.clone()
    };
    let takes = |inst: &Inst| match inst {
        Inst::AGet { .. } | Inst::AHas { .. } | Inst::ADel { .. } => true,
        inst => inst.global().is_none_or(|g| !saved.saves(g)),
    };
    let only = program.handlers[user].body.insts().all(takes);
    (*ret == same && only).then_some((user, ret, saved))
}

/// Analyses an entry handler; `None` if it does more than save values computed from parameters.
fn saved_values(body: &Body) -> Option<SavedValues> {
    let [block] = &*body.blocks else {
        return None;
    };
    if block.term != Term::Ret(None) {
        return None;
    }
    let mut saved = SavedValues {
        insts: Vec::new(),
        arrays: Vec::new(),
    };
    // Whether each register holds a value computed from parameters.
    let mut plain = vec![false; body.regs.len()];
    for (inst, site) in &block.insts {
        let mut made = true;
        inst.for_each_use(|v| made &= of_parameters(v, &plain));
        match inst {
            Inst::Tick { .. } => continue,
            Inst::ASet { g, val, .. } if of_parameters(*val, &plain) => {
                saved.arrays.push((*g, *val));
                continue;
            }
            Inst::Intr { f: I::CtxArg, .. } => {}
            Inst::Intr {
                f: I::Tid | I::CtxReg | I::CtxSite | I::CtxActivation,
                ..
            } => made = false,
            Inst::Bin { op, .. } if !matches!(op, BinOp::Div | BinOp::Mod) => {}
            Inst::Un { .. } | Inst::Copy { .. } => {}
            _ => return None,
        }
        let dst = inst.dst()?;
        // A saved value is copied at the end, so its register must not change.
        if saved.arrays.iter().any(|(_, v)| *v == Val::Reg(dst)) {
            return None;
        }
        *plain.get_mut(dst.index())? = made;
        if made {
            saved.insts.push((inst.clone(), *site));
        }
    }
    (!saved.arrays.is_empty()).then_some(saved)
}

fn of_parameters(val: Val, plain: &[bool]) -> bool {
    match val {
        Val::Reg(r) => plain.get(r.index()).is_some_and(|p| *p),
        Val::Imm(_) => true,
        Val::Str(_) => false,
    }
}

impl SavedValues {
    fn saves(&self, g: GlobalId) -> bool {
        self.arrays.iter().any(|(array, _)| *array == g)
    }

    /// The return handler's body, preceded by the calculations in new registers; their results
    /// replace the saved values.
    fn fused_body(&self, entry: &Body, ret: &Body) -> Body {
        let mut body = ret.clone();
        let first = body.regs.len().fit::<u32>();
        body.regs.extend(entry.regs.iter().copied());
        let moved = |r: Reg| Reg(r.0 + first);
        let values: FxHashMap<GlobalId, Val> = self
            .arrays
            .iter()
            .map(|(g, v)| match v {
                Val::Reg(r) => (*g, Val::Reg(moved(*r))),
                v => (*g, *v),
            })
            .collect();
        for block in &mut body.blocks {
            block.insts.retain_mut(|(inst, _)| {
                let Some(value) = inst.global().and_then(|g| values.get(&g)) else {
                    return true;
                };
                *inst = match inst {
                    Inst::AGet { dst, .. } => Inst::Copy {
                        dst: *dst,
                        src: *value,
                    },
                    Inst::AHas { dst, .. } => Inst::Copy {
                        dst: *dst,
                        src: Val::Imm(1),
                    },
                    _ => return false,
                };
                true
            });
        }
        let copies = self.insts.iter().cloned().map(|(mut inst, site)| {
            inst.dsts_mut(|r| *r = moved(*r));
            inst.uses_mut(|v| {
                if let Val::Reg(r) = v {
                    *r = moved(*r);
                }
            });
            (inst, site)
        });
        if let Some(start) = body.blocks.first_mut() {
            start.insts.splice(0..0, copies);
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Features, KernelOffsets, TypedFunction};

    const SCRIPT: &str = r#"
limits maxaction=1000 maxaction_interruptible=10000 maxstringlen=511 maxmapentries=2048 maxerrors=0 maxskipped=100 maxnesting=2 maxtrylock=100 maxbacktrace=20
site @0 "unknown"
global g0 "@entry0" [long, long] long max 8192 wrap shared lock @0
global g1 "n" long shared @0
handler "@entry of f" points 1 code(kernel, symbol "" "f" 0) @0 {
  regs r0: long, r1: long, r2: long, r3: long
  b0:
    tick 1 @0
    r0 = intr tid() @0
    r1 = intr ctx_reg(7) @0
    r2 = intr ctx_arg(1) @0
    r3 = shl r2, 32 @0
    aset g0[r0, r1], VALUE @0
    ret
}
handler "f.return" points 1 code(kernel return, symbol "" "f" 0) @0 {
  regs r0: long, r1: long, r2: long, r3: long, r4: long
  b0:
    r0 = intr tid() @0
    r1 = intr ctx_reg(7) @0
    r2 = aget g0[r0, r1] @0
    r3 = ahas g0[r0, r1] @0
    adel g0[r0, r1] @0
    branch r3, b2, b1
  b1:
    ret
  b2:
    r4 = intr ctx_ret() @0
    r4 = add r4, r2 @0
    gstore g1, r4 @0
    MORE
    ret
}
"#;

    fn rewritten(value: &str, more: &str) -> (String, usize) {
        rewrite_text(SCRIPT, value, more)
    }

    fn rewrite_text(script: &str, value: &str, more: &str) -> (String, usize) {
        let text = script.replace("VALUE", value).replace("MORE", more);
        let program = spile_ir::reader::read(&text).expect("it is right");
        let typed = TypedFunction {
            id: 7,
            params: 2,
            returns: true,
        };
        let options = Target {
            host: spile_ir::HostKind::Kernel,
            cpus: 1,
            ring_bytes: 4096,
            timing: false,
            lines: false,
            offsets: KernelOffsets::default(),
            features: Features::SINCE_6_9,
            syscalls: &[],
            functions: [("f".to_owned(), typed)].into(),
            share: None,
            abi: &spile_abi::X86_64,
            resident: false,
        };
        let (program, idle) = rewrite(&program, &options);
        (program.to_string(), idle.len())
    }

    #[test]
    fn parameters_need_nothing_at_the_entry() {
        let (text, idle) = rewritten("r3", "");
        assert_eq!(idle, 1);
        let ret = text.split("handler").nth(2).expect("a second handler");
        assert!(ret.contains("ctx_arg(1)") && ret.contains("shl"), "{text}");
        for gone in ["g0", "ctx_reg", "tid", "branch"] {
            assert!(!ret.contains(gone), "{gone}: {text}");
        }
    }

    #[test]
    fn arrays_of_the_script_keep_their_keys() {
        // A return handler can read an element that another call stored.
        let own = SCRIPT.replace("@entry0", "a");
        assert_eq!(rewrite_text(&own, "r3", "").1, 0);
    }

    #[test]
    fn other_values_are_kept_at_the_entry() {
        // Not from parameters; a register at the return; another access to the array.
        assert_eq!(rewritten("r1", "").1, 0);
        let register = "r4 = intr ctx_reg(3) @0\n    gstore g1, r4 @0";
        assert_eq!(rewritten("r3", register).1, 0);
        assert_eq!(rewritten("r3", "gclear g0 @0").1, 0);
    }
}
