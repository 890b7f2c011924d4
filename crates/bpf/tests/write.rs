//! Errors of the assembler and the ELF writer, and their speed.

mod common;

use std::time::Instant;

use common::{empty, program, spec};
use spile_bpf::object::elf::{ElfError, LICENSE, ObjectSpec, STATE};
use spile_ebpf::isa::asm::{
    Asm, AsmError, AsmFunction, PAST_END, Reloc, RelocTarget, Section, TOO_LONG, UNBOUND_LABEL,
};
use spile_ebpf::isa::insn::Reg::*;
use spile_ebpf::isa::insn::{AluOp, Cond, Insn, Size, Src, Width};

/// Whether a function has a jump that needs Linux 6.6.
fn has_long_jump(function: &AsmFunction) -> bool {
    let mut insns = function.insns.iter();
    insns.any(|i| matches!(i, Insn::GotoLong { .. }))
}

#[test]
fn labels_forward_and_back() {
    let mut asm = Asm::new("f", &["ctx"]);
    let (top, end) = (asm.label(), asm.label());
    asm.bind(top);
    asm.ld_imm64(R1, 1 << 40);
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.jump_if32(Cond::Slt, R1, R2, top);
    asm.may_goto(end);
    asm.jump(top);
    asm.bind(end);
    asm.exit();
    let function = asm.finish().expect("all bound");
    assert_eq!(function.slots(), 7);
    assert!(!has_long_jump(&function));
    let text = function.listing();
    let wanted = "f(ctx):
     0: r1 = 0x10000000000 ll
     2: if r1 == 0 goto +3
     3: if w1 s< w2 goto -4
     4: may_goto +1
     5: goto -6
     6: exit
";
    assert_eq!(text, wanted);
}

#[test]
fn bad_labels() {
    let jump = |bind: bool| {
        let mut asm = Asm::new("f", &[]);
        let label = asm.label();
        asm.mov(R0, 0);
        asm.jump_if(Cond::Eq, R0, 0, label);
        if bind {
            asm.bind(label);
        }
        asm.finish()
    };
    let error = |problem| AsmError::Jump {
        function: "f".to_string(),
        slot: 1,
        problem,
    };
    assert_eq!(jump(false), Err(error(UNBOUND_LABEL)));
    assert_eq!(jump(true), Err(error(PAST_END)));
    let mut asm = Asm::new("f", &[]);
    let label = asm.label();
    asm.mov(R0, 0);
    asm.may_goto(label);
    (0..40_000).for_each(|_| asm.mov(R0, 0));
    asm.bind(label);
    asm.exit();
    assert_eq!(asm.finish(), Err(error(TOO_LONG)));
}

/// Lengthened jumps move the code behind them, and nothing else.
#[test]
fn lengthened() {
    let mut asm = Asm::new("f", &[]);
    let (start, end) = (asm.label(), asm.label());
    asm.bind(start);
    asm.comment("first");
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.comment("second");
    asm.jump_if(Cond::Ne, R1, 0, end);
    asm.source_line(&common::line(7, "counter++"));
    asm.ld_data(R1, Section::Bss, 8);
    (0..33_000).for_each(|_| asm.mov(R0, 0));
    asm.jump(start);
    asm.comment("last");
    asm.bind(end);
    asm.exit();
    let function = asm.finish().expect("all bound");
    assert!(has_long_jump(&function));
    let head = [
        Insn::Jump {
            width: Width::W64,
            cond: Cond::Eq,
            dst: R1,
            src: Src::Imm(0),
            off: 1,
        },
        Insn::Goto { off: 1 },
        Insn::GotoLong { off: 33_006 },
        Insn::Jump {
            width: Width::W64,
            cond: Cond::Ne,
            dst: R1,
            src: Src::Imm(0),
            off: 1,
        },
        Insn::Goto { off: 1 },
        Insn::GotoLong { off: 33_003 },
    ];
    assert_eq!(function.insns[..6], head);
    assert_eq!(
        function.relocs,
        [Reloc {
            slot: 6,
            target: RelocTarget::Data(Section::Bss, 8)
        }]
    );
    assert_eq!(function.lines[0].0, 6);
    let slots: Vec<u32> = function.comments.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [0, 3, 33_009]);
    assert_eq!(
        function.insns[function.insns.len() - 2..],
        [Insn::GotoLong { off: -33_009 }, Insn::Exit {}]
    );
}

#[test]
fn listing_has_lines_comments_and_references() {
    let main = &spec().programs[0].function;
    let text = main.listing();
    let start = "on_enter(ctx):
; count.stp:1:3: probe syscall.read {
     0: r6 = *(u64 *)(r1 + 8)
     1: r7 = 1
     2: r1 = 0x0 ll  <.bss+8388600>
    ; hits++
     4: lock *(u64 *)(r1 + 0) += r7
; count.stp:2:3:   counts[7] = 100
     5: *(u64 *)(r10 - 8) = 7
";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("call pc-1  <multiply>"), "{text}");
    assert!(text.contains("<map counts>"), "{text}");
}

/// An object of one program.
fn with(function: AsmFunction) -> ObjectSpec {
    let programs = vec![program("raw_tp", function)];
    ObjectSpec {
        programs,
        license: LICENSE.into(),
        ..Default::default()
    }
}

#[test]
fn names_are_checked() {
    for name in ["", "1st", "a-b", "a.b", "ä"] {
        assert_eq!(
            with(empty(name)).write(),
            Err(ElfError::BadName(name.into()))
        );
    }
    let mut twice = with(empty("f"));
    twice.subprograms.push(empty("f"));
    assert_eq!(twice.write(), Err(ElfError::Duplicate("f".into())));
    assert_eq!(
        with(empty(STATE)).write(),
        Err(ElfError::Duplicate(STATE.into()))
    );
    for section in ["", ".text", ".BTF", "a\0b"] {
        let mut spec = with(empty("f"));
        spec.programs[0].section = section.into();
        assert_eq!(spec.write(), Err(ElfError::BadSection(section.into())));
    }
}

#[test]
fn references_are_checked() {
    type Emit = fn(&mut Asm);
    let undefined: [(Emit, &str); 4] = [
        (|a| a.ld_map(R1, "m"), "map m"),
        (|a| a.ld_data(R1, Section::Bss, 8), ".bss+8"),
        (|a| a.ld_data(R1, Section::Rodata, 0), ".rodata+0"),
        (|a| a.call_sub("sub"), "sub"),
    ];
    for (emit, what) in undefined {
        let mut asm = Asm::new("f", &["ctx"]);
        emit(&mut asm);
        asm.exit();
        let spec = with(asm.finish().expect("assembles"));
        assert_eq!(
            spec.write(),
            Err(ElfError::Undefined("f".into(), what.into()))
        );
    }
    // One byte too far.
    let mut asm = Asm::new("f", &["ctx"]);
    asm.ld_data(R1, Section::Bss, 8);
    asm.exit();
    let spec = ObjectSpec {
        bss_size: 8,
        ..with(asm.finish().expect("assembles"))
    };
    let error = ElfError::Undefined("f".into(), ".bss+8".into());
    assert_eq!(spec.write(), Err(error));
    // At an instruction that cannot hold it, inside of one, and behind the end.
    for slot in [0, 2, 9] {
        let mut asm = Asm::new("f", &["ctx"]);
        asm.mov(R0, 0);
        asm.ld_imm64(R1, 0);
        asm.exit();
        let mut function = asm.finish().expect("assembles");
        function.relocs.push(Reloc {
            slot,
            target: RelocTarget::Data(Section::Bss, 0),
        });
        let spec = ObjectSpec {
            bss_size: 8,
            ..with(function)
        };
        assert_eq!(spec.write(), Err(ElfError::BadReloc("f".into(), slot)));
    }
}

/// 20,000 instructions with lines, comments and references, as in a big script.
fn big() -> Vec<u8> {
    let mut asm = Asm::new("big", &["ctx"]);
    let lines: Vec<_> = (0..100)
        .map(|n| common::line(n, "  counts[execname()] <<< 1"))
        .collect();
    let end = asm.label();
    for i in 0..2_500 {
        asm.source_line(&lines[i / 25]);
        asm.comment("a statement");
        asm.ld_data(R1, Section::Bss, 8);
        asm.load(Size::DW, R2, R1, 0);
        asm.add(R2, 1);
        asm.alu(AluOp::And, R2, 0xff);
        asm.store(Size::DW, R1, 0, R2);
        asm.jump_if(Cond::Eq, R2, 0, end);
        asm.mov(R0, R2);
        asm.neg(R0);
    }
    asm.bind(end);
    asm.exit();
    let spec = ObjectSpec {
        bss_size: 4096,
        ..with(asm.finish().expect("assembles"))
    };
    spec.write().expect("complete")
}

/// Prints the time; limits are checked by the benchmark.
#[test]
fn big_programs() {
    let start = Instant::now();
    assert!(big().len() > 160_000);
    println!("20,000 instructions: {:?}", start.elapsed());
}
