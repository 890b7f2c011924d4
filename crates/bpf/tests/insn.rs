//! The instruction table: encoder against decoder, and both against LLVM.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::process::Command;

use proptest::prelude::*;
use spile_ebpf::isa::disasm::{self, DecodeError};
use spile_ebpf::isa::insn::{
    AluOp, AtomicOp, Callee, Cond, ImmKind, Insn, Reg, Size, Src, Swap, Width,
};

fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn reg() -> impl Strategy<Value = Reg> {
    any_of(&Reg::ALL)
}

fn width() -> impl Strategy<Value = Width> {
    any_of(&Width::ALL)
}

fn size() -> impl Strategy<Value = Size> {
    any_of(Size::ALL)
}

fn src() -> impl Strategy<Value = Src> {
    prop_oneof![reg().prop_map(Src::Reg), any::<i32>().prop_map(Src::Imm)]
}

/// Any valid instruction.
fn insn() -> impl Strategy<Value = Insn> {
    let off = any::<i16>;
    prop_oneof![
        (width(), any_of(AluOp::ALL), reg(), src()).prop_map(|(width, op, dst, src)| Insn::Alu {
            width,
            op,
            dst,
            src
        }),
        (width(), reg()).prop_map(|(width, dst)| Insn::Neg { width, dst }),
        (width(), size(), reg(), reg())
            .prop_filter("narrower", |(width, size, ..)| {
                size.bytes() < if *width == Width::W64 { 8 } else { 4 }
            })
            .prop_map(|(width, size, dst, src)| Insn::MovSx {
                width,
                size,
                dst,
                src
            }),
        (any_of(Swap::ALL), any_of(&Size::ALL[1..]), reg())
            .prop_map(|(to, size, dst)| Insn::Swap { to, size, dst }),
        (reg(), any_of(ImmKind::ALL), any::<u64>()).prop_map(|(dst, kind, imm)| Insn::LdImm64 {
            dst,
            kind,
            imm
        }),
        (size(), reg(), reg(), off()).prop_map(|(size, dst, base, off)| Insn::Load {
            size,
            dst,
            base,
            off
        }),
        (any_of(&Size::ALL[..3]), reg(), reg(), off()).prop_map(|(size, dst, base, off)| {
            Insn::LoadSx {
                size,
                dst,
                base,
                off,
            }
        }),
        (size(), reg(), off(), src()).prop_map(|(size, base, off, src)| Insn::Store {
            size,
            base,
            off,
            src
        }),
        (width(), any_of(AtomicOp::ALL), reg(), off(), reg()).prop_map(
            |(width, op, base, off, src)| Insn::Atomic {
                width,
                op,
                base,
                off,
                src
            }
        ),
        (width(), any_of(Cond::ALL), reg(), src(), off()).prop_map(
            |(width, cond, dst, src, off)| Insn::Jump {
                width,
                cond,
                dst,
                src,
                off
            }
        ),
        off().prop_map(|off| Insn::Goto { off }),
        any::<i32>().prop_map(|off| Insn::GotoLong { off }),
        off().prop_map(|off| Insn::MayGoto { off }),
        (any_of(Callee::ALL), any::<i32>())
            .prop_map(|(callee, target)| Insn::Call { callee, target }),
        Just(Insn::Exit {}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn decode_inverts_encode(insn in insn()) {
        let mut bytes = Vec::new();
        insn.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), insn.slots() as usize * 8);
        prop_assert_eq!(Insn::decode(&bytes), Ok(insn));
        prop_assert_eq!(Insn::decode(&bytes[..bytes.len() - 1]), Err(DecodeError::Short));
    }

    /// Decoded bytes encode to the same bytes, and any bytes have a text.
    #[test]
    fn encode_inverts_decode(bytes in proptest::collection::vec(any::<u8>(), 16)) {
        if let Ok(insn) = Insn::decode(&bytes) {
            let mut again = Vec::new();
            insn.encode(&mut again);
            prop_assert_eq!(&bytes[..again.len()], &again[..]);
        }
        prop_assert!(!disasm::text(&bytes).is_empty());
    }

    /// Valid instructions with at most one damaged byte.
    #[test]
    fn damaged_instructions_are_refused_or_encode_again(insn in insn(), at in 0usize..16, to in any::<u8>()) {
        let mut bytes = Vec::new();
        insn.encode(&mut bytes);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
        if let Ok(insn) = Insn::decode(&bytes) {
            let mut again = Vec::new();
            insn.encode(&mut again);
            prop_assert_eq!(&bytes[..again.len()], &again[..]);
        }
    }
}

/// The text of one instruction of each form.
#[test]
fn each_form_of_instruction_has_its_text() {
    use Reg::*;
    let (w64, w32) = (Width::W64, Width::W32);
    let alu = |width, op, src| Insn::Alu {
        width,
        op,
        dst: R1,
        src,
    };
    let atomic = |width, op| Insn::Atomic {
        width,
        op,
        base: R1,
        off: 0,
        src: R2,
    };
    let imm = |kind| Insn::LdImm64 {
        dst: R1,
        kind,
        imm: 0x2_0000_0007,
    };
    let call = |callee, target| Insn::Call { callee, target };
    let jump = |width, src, off| Insn::Jump {
        width,
        cond: Cond::Sgt,
        dst: R1,
        src,
        off,
    };
    let table = [
        (alu(w64, AluOp::Mov, Src::Imm(-5)), "r1 = -5"),
        (alu(w32, AluOp::Add, Src::Reg(R2)), "w1 += w2"),
        (alu(w64, AluOp::Sdiv, Src::Reg(R2)), "r1 s/= r2"),
        (alu(w64, AluOp::Arsh, Src::Imm(3)), "r1 s>>= 3"),
        (
            Insn::Neg {
                width: w32,
                dst: R3,
            },
            "w3 = -w3",
        ),
        (
            Insn::MovSx {
                width: w64,
                size: Size::B,
                dst: R1,
                src: R2,
            },
            "r1 = (s8)r2",
        ),
        (
            Insn::Swap {
                to: Swap::Be,
                size: Size::H,
                dst: R1,
            },
            "r1 = be16 r1",
        ),
        (imm(ImmKind::Plain), "r1 = 0x200000007 ll"),
        (imm(ImmKind::MapFd), "r1 = map_fd[7]"),
        (imm(ImmKind::MapValue), "r1 = map_value[7][0]+2"),
        (imm(ImmKind::Func), "r1 = func[+7]"),
        (
            Insn::Load {
                size: Size::DW,
                dst: R1,
                base: R10,
                off: -8,
            },
            "r1 = *(u64 *)(r10 - 8)",
        ),
        (
            Insn::LoadSx {
                size: Size::W,
                dst: R1,
                base: R2,
                off: 4,
            },
            "r1 = *(s32 *)(r2 + 4)",
        ),
        (
            Insn::Store {
                size: Size::B,
                base: R1,
                off: i16::MIN,
                src: Src::Imm(-1),
            },
            "*(u8 *)(r1 - 32768) = -1",
        ),
        (atomic(w64, AtomicOp::Add), "lock *(u64 *)(r1 + 0) += r2"),
        (
            atomic(w32, AtomicOp::FetchAdd),
            "w2 = atomic_fetch_add((u32 *)(r1 + 0), w2)",
        ),
        (atomic(w64, AtomicOp::Xchg), "r2 = xchg_64(r1 + 0, r2)"),
        (
            atomic(w32, AtomicOp::CmpXchg),
            "w0 = cmpxchg_32(r1 + 0, w0, w2)",
        ),
        (jump(w64, Src::Reg(R2), 5), "if r1 s> r2 goto +5"),
        (jump(w32, Src::Imm(-1), -5), "if w1 s> -1 goto -5"),
        (Insn::Goto { off: 0 }, "goto +0"),
        (Insn::GotoLong { off: 70000 }, "gotol +70000"),
        (Insn::MayGoto { off: 2 }, "may_goto +2"),
        (call(Callee::Helper, 1), "call bpf_map_lookup_elem#1"),
        (call(Callee::Helper, -3), "call -3"),
        (call(Callee::Subprogram, -3), "call pc-3"),
        (call(Callee::Kfunc, 77), "call kfunc#77"),
        (Insn::Exit {}, "exit"),
    ];
    for (insn, text) in table {
        assert_eq!(insn.to_string(), text);
    }
}

#[test]
fn bad_fields_and_opcodes_are_refused() {
    let bad = |bytes: [u8; 8]| Insn::decode(&bytes);
    assert_eq!(
        bad([0x95, 1, 0, 0, 0, 0, 0, 0]),
        Err(DecodeError::Field(0x95))
    );
    assert_eq!(
        bad([0xb7, 11, 0, 0, 0, 0, 0, 0]),
        Err(DecodeError::Field(0xb7))
    );
    assert_eq!(
        bad([0xff, 0, 0, 0, 0, 0, 0, 0]),
        Err(DecodeError::Unknown(0xff))
    );
    assert_eq!(bad([0x18, 0, 0, 0, 0, 0, 0, 0]), Err(DecodeError::Short));
    assert_eq!(
        disasm::text(&[0x95, 0, 0]),
        "        instruction cut short\n"
    );
}

/// The forms that LLVM 14 knows (cpu v3), with every operation, size and width.
fn forms_of_llvm_14() -> Vec<Insn> {
    use Reg::*;
    let mut all = Vec::new();
    let operands = [Src::Reg(R3), Src::Imm(-7)];
    for width in Width::ALL {
        for src in operands {
            let ops = AluOp::ALL
                .iter()
                .filter(|op| !matches!(op, AluOp::Sdiv | AluOp::Smod));
            all.extend(ops.map(|&op| Insn::Alu {
                width,
                op,
                dst: R1,
                src,
            }));
            let off = 12;
            all.extend(Cond::ALL.iter().map(|&cond| Insn::Jump {
                width,
                cond,
                dst: R1,
                src,
                off,
            }));
        }
        all.push(Insn::Neg { width, dst: R4 });
    }
    // Version 14 misreads 32-bit atomics.
    let (width, base) = (Width::W64, R10);
    let ops = AtomicOp::ALL.iter();
    all.extend(ops.map(|&op| Insn::Atomic {
        width,
        op,
        base,
        off: -16,
        src: R5,
    }));
    for &size in Size::ALL {
        all.push(Insn::Load {
            size,
            dst: R2,
            base: R1,
            off: 32767,
        });
        all.push(Insn::Store {
            size,
            base: R10,
            off: -8,
            src: Src::Reg(R9),
        });
        if size != Size::B {
            all.extend([Swap::Be, Swap::Le].map(|to| Insn::Swap { to, size, dst: R7 }));
        }
    }
    for imm in [0, u64::MAX, 0x1234_5678_9abc_def0] {
        all.push(Insn::LdImm64 {
            dst: R6,
            kind: ImmKind::Plain,
            imm,
        });
    }
    all.extend([
        Insn::Goto { off: -3 },
        Insn::Call {
            callee: Callee::Helper,
            target: 5,
        },
        Insn::Exit {},
    ]);
    all
}

/// Removes differences between versions of LLVM and us: names of helpers, labels of jumps, the base
/// of long constants.
fn normal(text: &str) -> String {
    let text = text.split(" <").next().unwrap_or_default().trim();
    if let Some((dst, number)) = text.strip_suffix(" ll").and_then(|t| t.split_once(" = ")) {
        let value = match number.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => number.parse::<i64>().ok().map(|n| n as u64),
        };
        return format!("{dst} = {value:?} ll");
    }
    match text.split_once('#') {
        Some((_, number)) if text.starts_with("call") => format!("call {number}"),
        _ => text.to_string(),
    }
}

/// llvm-objdump decodes the same instructions, except for those that version 14 does not know.
#[test]
fn llvm_agrees() {
    use spile_bpf::object::elf::{LICENSE, ObjectSpec, ProgramSpec};
    use spile_ebpf::isa::asm::Asm;
    let forms = forms_of_llvm_14();
    let mut asm = Asm::new("forms", &["ctx"]);
    forms.iter().for_each(|insn| asm.emit(*insn));
    let function = asm.finish().expect("no labels");
    let program = ProgramSpec {
        section: "raw_tp".into(),
        function,
    };
    let spec = ObjectSpec {
        programs: vec![program],
        license: LICENSE.into(),
        ..Default::default()
    };
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join("forms.bpf.o");
    std::fs::write(&path, spec.write().expect("complete")).expect("written");
    let args = ["-d", "--no-show-raw-insn", "--mcpu=v3"];
    let output = match Command::new("llvm-objdump").args(args).arg(&path).output() {
        Ok(output) => output,
        Err(e) => spile_testing::skip!("llvm-objdump: {e}"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let slots: Vec<&str> = text.lines().filter_map(instruction).collect();
    assert_eq!(slots.len(), forms.len(), "{text}");
    let recognised = slots
        .iter()
        .zip(&forms)
        .filter(|(theirs, _)| **theirs != "<unknown>");
    let mut compared = 0;
    for (theirs, insn) in recognised {
        assert_eq!(normal(theirs), normal(&insn.to_string()));
        compared += 1;
    }
    assert!(compared > 100, "{text}");
}

/// The instruction in a line `SLOT:\tTEXT`.
fn instruction(line: &str) -> Option<&str> {
    let (slot, text) = line.split_once(":\t")?;
    slot.trim().parse::<u32>().ok()?;
    Some(text)
}
