//! The attach kind of probes in code: the cheapest kind of program of this kernel that offers what
//! the handler uses.

use spile_ir::intrinsics::Intrinsic as I;
use spile_ir::{
    Body, CodeLocation, CodeProbe, CodeSite, Event, HandlerId, Inst, Program, Space, Val,
};

use super::attachment::CodeAttach;
use crate::target::{Target, TypedFunction};

/// Chooses the attach kind for these locations in code.
pub(crate) fn choose(probe: &CodeProbe, body: &Body, options: &Target) -> CodeAttach {
    if let Some(typed) = trampoline(probe, body, options) {
        return CodeAttach::Trampoline(typed);
    }
    let location = |site: &CodeSite| match (&site.location, probe.space) {
        (CodeLocation::File { .. }, Space::User) => options.features.uprobe_multi,
        (CodeLocation::Symbol { offset: 0, .. } | CodeLocation::Traced(_), Space::Kernel) => {
            options.features.kprobe_multi
        }
        _ => false,
    };
    match probe.sites.iter().all(location) {
        true => CodeAttach::Multi,
        false => CodeAttach::Single,
    }
}

/// Whether a handler runs at the return of a function.
pub(crate) fn at_return(program: &Program, id: HandlerId) -> bool {
    let event = &program.handlers[id.index()].event;
    matches!(event, Event::Code(probe) if probe.ret)
}

/// The function's BTF entry, if there is one and the handler needs no registers.
fn trampoline(probe: &CodeProbe, body: &Body, options: &Target) -> Option<TypedFunction> {
    let (Space::Kernel, [site]) = (probe.space, &*probe.sites) else {
        return None;
    };
    let CodeLocation::Symbol {
        module: None,
        name,
        offset: 0,
    } = &site.location
    else {
        return None;
    };
    let typed = *options.functions.get(&**name)?;
    let mut insts = body.insts();
    let served = insts.all(|inst| match inst {
        Inst::Intr { f, args, .. } => works_on_trampoline(typed, probe.ret, *f, args),
        _ => true,
    });
    (served && (typed.returns || !probe.ret)).then_some(typed)
}

/// Whether a program on a trampoline can evaluate the intrinsic.
fn works_on_trampoline(function: TypedFunction, ret: bool, f: I, args: &[Val]) -> bool {
    let argument = |first: i64| match args {
        [Val::Imm(n)] => (first..first + i64::from(function.params)).contains(n),
        _ => false,
    };
    match f {
        // At a return, only `fexit_fusion` produces it.
        I::CtxArg => argument(0),
        I::RegArg => !ret && argument(1),
        f => !f.info().registers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Features, KernelOffsets};
    use spile_ir::{Block, SiteId, Term};

    fn options(functions: &[(&str, TypedFunction)]) -> Target {
        let named = |(name, typed): &(&str, TypedFunction)| ((*name).to_owned(), *typed);
        Target {
            host: spile_ir::HostKind::Kernel,
            cpus: 1,
            ring_bytes: 4096,
            timing: false,
            lines: false,
            offsets: KernelOffsets::default(),
            features: Features {
                uprobe_multi: false,
                ..Features::SINCE_6_9
            },
            syscalls: &[],
            functions: functions.iter().map(named).collect(),
            share: None,
            abi: &spile_abi::X86_64,
            resident: false,
        }
    }

    fn asks(f: I, args: &[Val]) -> Body {
        let (dst, args) = (None, args.to_vec());
        let inst = (Inst::Intr { dst, f, args }, SiteId(0));
        Body {
            blocks: vec![Block {
                catch: None,
                insts: vec![inst],
                term: Term::Ret(None),
            }],
            ..Body::default()
        }
    }

    #[test]
    fn chooses_the_cheapest_kind_that_works() {
        let typed = |returns| TypedFunction {
            id: 7,
            params: 2,
            returns,
        };
        let options = options(&[("f", typed(true)), ("exit", typed(false))]);
        let site = |location| CodeSite {
            location,
            semaphore: 0,
            number: 0,
            exits: None,
        };
        let symbol = |name: &str| {
            site(CodeLocation::Symbol {
                module: None,
                name: name.into(),
                offset: 0,
            })
        };
        let probe = |ret, sites: Vec<CodeSite>| CodeProbe {
            space: Space::Kernel,
            ret,
            pid: None,
            tree: false,
            optional_sites: Default::default(),
            sites,
        };
        let by = |probe: &CodeProbe, f, args: &[Val]| choose(probe, &asks(f, args), &options);
        let (entry, ret) = (
            probe(false, vec![symbol("f")]),
            probe(true, vec![symbol("f")]),
        );
        let fast = CodeAttach::Trampoline(typed(true));
        assert_eq!(by(&entry, I::CtxArg, &[Val::Imm(1)]), fast);
        assert_eq!(by(&entry, I::RegArg, &[Val::Imm(2)]), fast);
        assert_eq!(by(&ret, I::CtxRet, &[]), fast);
        let section = |probe: &CodeProbe| {
            let (probe, by) = (probe.clone(), fast);
            crate::attach::attachment::Attach::Code { probe, by }
                .program_type()
                .section
        };
        assert_eq!(section(&entry), "fentry/f");
        assert_eq!(section(&ret), "fexit/f");
        assert_eq!(by(&ret, I::CtxArg, &[Val::Imm(0)]), fast);
        // A parameter beyond the last; the register of a parameter at the return; registers; a
        // stack.
        for (probe, f, args) in [
            (&entry, I::CtxArg, &[Val::Imm(2)][..]),
            (&ret, I::RegArg, &[Val::Imm(1)]),
            (&entry, I::CtxReg, &[Val::Imm(7)]),
            (&entry, I::KernelStack, &[Val::Imm(-1)]),
        ] {
            assert_eq!(by(probe, f, args), CodeAttach::Multi, "{f:?}");
        }
        let never = probe(true, vec![symbol("exit")]);
        assert_eq!(by(&never, I::CtxSite, &[]), CodeAttach::Multi);
        let two = probe(false, vec![symbol("f"), symbol("exit")]);
        assert_eq!(by(&two, I::CtxSite, &[]), CodeAttach::Multi);
        let address = probe(false, vec![site(CodeLocation::Address(0x1000))]);
        assert_eq!(by(&address, I::CtxSite, &[]), CodeAttach::Single);
    }
}
