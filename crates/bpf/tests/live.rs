//! Loads the objects into the running kernel with libbpf, and runs instructions as machine code, too. Skipped if BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod common;
#[path = "common/process.rs"]
mod process;

use std::sync::{Arc, Mutex, PoisonError};

use common::{COUNTER, RESULTS, line, program, spec};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, ObjectBuilder, PrintLevel, ProgramInput};
use libbpf_rs::{Object, RingBufferBuilder};
use process::Process;
use spile_bpf::object::elf::{LICENSE, ObjectSpec};
use spile_ebpf::isa::asm::{Asm, AsmFunction, Section};
use spile_ebpf::isa::insn::Reg::*;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Insn, Reg, Size, Swap, Width};

/// The messages of libbpf, which has one global log.
static LOG: Mutex<String> = Mutex::new(String::new());

fn log() -> std::sync::MutexGuard<'static, String> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load(spec: &ObjectSpec) -> libbpf_rs::Result<Object> {
    let keep = |_: PrintLevel, text: String| log().push_str(&text);
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let bytes = spec.write().expect("the object is complete");
    ObjectBuilder::default().open_memory(&bytes)?.load()
}

/// Skips the test if this process may not load programs.
fn need_privileges() {
    let functions = vec![program("raw_tp", common::empty("empty"))];
    let spec = ObjectSpec {
        programs: functions,
        license: LICENSE.into(),
        ..Default::default()
    };
    match load(&spec) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            spile_testing::skip("loading BPF programs is not permitted here")
        }
        other => {
            other.unwrap_or_else(|e| panic!("an empty program: {e}\n{}", log()));
        }
    }
}

/// Runs a raw-tracepoint program once with these arguments.
fn run(object: &mut Object, name: &str, args: [u64; 2]) -> u32 {
    let program = object
        .progs_mut()
        .find(|p| p.name() == name)
        .expect("program");
    let mut context: Vec<u8> = args.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..Default::default()
    };
    program.test_run(input).expect("test run").return_value
}

/// The content of `.bss`.
fn state(object: &Object) -> Vec<u8> {
    let bss = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(".bss"))
        .expect(".bss");
    bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .expect("look-up")
        .expect("element 0")
}

fn word(bytes: &[u8], offset: u32) -> u64 {
    let at = offset as usize;
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[test]
fn loads_and_runs() {
    need_privileges();
    let mut object = load(&spec()).unwrap_or_else(|e| panic!("{e}\n{}", log()));
    assert_eq!(run(&mut object, "on_enter", [0, 14]), 0);
    assert_eq!(run(&mut object, "on_enter", [0, 14]), 0);

    let bss = state(&object);
    assert_eq!(word(&bss, COUNTER), 2);
    assert_eq!(word(&bss, RESULTS), 14 * 3 + 1000, "multiply");
    assert_eq!(word(&bss, RESULTS + 8), 111, "callback");

    let counts = object
        .maps()
        .find(|m| m.name() == "counts")
        .expect("counts");
    let value = counts
        .lookup(&7u64.to_ne_bytes(), MapFlags::ANY)
        .expect("look-up");
    assert_eq!(value.map(|v| word(&v, 0)), Some(100));
    assert_eq!(
        counts.info().expect("info").info.btf_id,
        0,
        "hash maps have no types"
    );

    let records = Arc::new(Mutex::new(Vec::new()));
    let out = object.maps().find(|m| m.name() == "out").expect("out");
    let (seen, mut builder) = (Arc::clone(&records), RingBufferBuilder::new());
    let record = move |data: &[u8]| {
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((word(data, 0), word(data, 8)));
        0
    };
    builder.add(&out, record).expect("ring buffer");
    builder
        .build()
        .expect("ring buffer")
        .consume()
        .expect("records");
    assert_eq!(*records.lock().expect("records"), [(1042, 111); 2]);
}

#[test]
fn state_is_mappable() {
    need_privileges();
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let object = load(&spec()).unwrap_or_else(|e| panic!("{e}\n{}", log()));
    let find = |end: &str| {
        let map = object
            .maps()
            .find(|m| m.name().to_string_lossy().ends_with(end))
            .expect(end);
        map.info().expect("info").info
    };
    let bss = find(".bss");
    assert_eq!((bss.value_size, bss.max_entries), (common::BSS, 1));
    assert_eq!(bss.map_flags & BPF_F_MMAPABLE, BPF_F_MMAPABLE);
    assert_ne!(bss.btf_id, 0, "the kernel has its types");
    assert_eq!(find(".rodata").value_size, 16);
}

/// The log of a rejected program names the script's lines.
#[test]
fn the_log_of_a_rejected_program_names_script_lines() {
    need_privileges();
    let mut asm = Asm::new("broken", &["ctx"]);
    asm.source_line(&line(41, "probe begin {"));
    asm.mov(R0, 0);
    asm.source_line(&line(42, "  this_is_wrong()"));
    asm.mov(R0, R5);
    asm.exit();
    let function = asm.finish().expect("assembles");
    let programs = vec![program("raw_tp", function)];
    let spec = ObjectSpec {
        programs,
        license: LICENSE.into(),
        ..Default::default()
    };
    assert!(load(&spec).is_err());
    let log = log();
    assert!(log.contains("R5 !read_ok"), "{log}");
    assert!(log.contains("this_is_wrong()"), "{log}");
}

#[test]
fn kernel_functions() {
    need_privileges();
    let btf = spile_kernel::btf::Btf::vmlinux().expect("the kernel's types");
    let mut asm = Asm::new("in_section", &["ctx"]);
    for name in ["bpf_rcu_read_lock", "bpf_rcu_read_unlock"] {
        asm.call_kfunc(btf.find_func(name).expect("exists"));
    }
    asm.mov(R0, 5);
    asm.exit();
    let spec = ObjectSpec {
        programs: vec![program("raw_tp", asm.finish().expect("assembles"))],
        license: LICENSE.into(),
        ..Default::default()
    };
    let mut object = load(&spec).unwrap_or_else(|e| panic!("{e}\n{}", log()));
    assert_eq!(run(&mut object, "in_section", [0, 0]), 5);
}

/// The result of an operation according to the table. 32-bit operands are zero-extended.
fn model(width: Width, op: AluOp, a: u64, b: u64) -> u64 {
    let bits = if width == Width::W64 { 64 } else { 32 };
    let sx = |x: u64| {
        if width == Width::W64 {
            x as i64
        } else {
            i64::from(x as u32 as i32)
        }
    };
    let shift = (b % bits) as u32;
    let result = match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => sx(a).wrapping_div(sx(b)) as u64,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << shift,
        AluOp::Rsh => a >> shift,
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => sx(a).wrapping_rem(sx(b)) as u64,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Arsh => (sx(a) >> shift) as u64,
    };
    if width == Width::W64 {
        result
    } else {
        u64::from(result as u32)
    }
}

/// The truth of a condition according to the table.
fn holds(width: Width, cond: Cond, a: u64, b: u64) -> bool {
    let sx = |x: u64| {
        if width == Width::W64 {
            x as i64
        } else {
            i64::from(x as u32 as i32)
        }
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Set => a & b != 0,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Sgt => sx(a) > sx(b),
        Cond::Sge => sx(a) >= sx(b),
        Cond::Slt => sx(a) < sx(b),
        Cond::Sle => sx(a) <= sx(b),
    }
}

/// Code that stores its results in `.bss`, with the expected results.
struct Checks {
    asm: Asm,
    wanted: Vec<(String, u64)>,
}

impl Checks {
    fn new() -> Checks {
        let mut asm = Asm::new("checks", &["ctx"]);
        asm.ld_data(R9, Section::Bss, 0);
        // Unknown to the verifier, so that it cannot decide the conditions.
        asm.load(Size::DW, R8, R9, 0);
        Checks {
            asm,
            wanted: Vec::new(),
        }
    }

    fn store(&mut self, what: String, reg: Reg, wanted: u64) {
        let offset = 8 + 8 * self.wanted.len() as i16;
        self.asm.store(Size::DW, R9, offset, reg);
        self.wanted.push((what, wanted));
    }

    /// Runs the code in the kernel, and as machine code, and compares.
    fn check(mut self) {
        self.asm.mov(R0, 0);
        self.asm.exit();
        let function: AsmFunction = self.asm.finish().expect("assembles");
        let spec = ObjectSpec {
            bss_size: 32768,
            programs: vec![program("raw_tp", function)],
            license: LICENSE.into(),
            ..Default::default()
        };
        let mut object = load(&spec).unwrap_or_else(|e| panic!("{e}\n{}", log()));
        run(&mut object, "checks", [0, 0]);
        let process = Process::new(&spec).unwrap_or_else(|why| panic!("{why}"));
        process.run("checks", &mut [0, 0]);
        let hosts = [
            ("kernel", state(&object)),
            ("process", process.state_bytes()),
        ];
        for (host, bss) in hosts {
            for (i, (what, wanted)) in self.wanted.iter().enumerate() {
                let got = word(&bss, 8 + 8 * i as u32);
                assert_eq!(got, *wanted, "{what}, {host}");
            }
        }
    }
}

const PAIRS: [(u64, u64); 6] = [
    (7, 3),
    (-7i64 as u64, 3),
    (7, -3i64 as u64),
    (0x8000_0000_8000_0001, 0x1_0000_0021),
    (5, 0),
    (u64::MAX, u64::MAX),
];

/// Each operation in the kernel matches the table.
#[test]
fn operations() {
    need_privileges();
    let mut checks = Checks::new();
    for width in Width::ALL {
        let cut = |x: u64| {
            if width == Width::W64 {
                x
            } else {
                u64::from(x as u32)
            }
        };
        for &op in AluOp::ALL {
            for (a, b) in PAIRS {
                checks.asm.ld_imm64(R1, a);
                checks.asm.ld_imm64(R2, b);
                checks.asm.add(R1, R8);
                checks.asm.add(R2, R8);
                let insn = Insn::Alu {
                    width,
                    op,
                    dst: R1,
                    src: R2.into(),
                };
                checks.asm.emit(insn);
                let wanted = model(width, op, cut(a), cut(b));
                checks.store(format!("{insn} with {a:#x}, {b:#x}"), R1, wanted);
            }
        }
        checks.asm.ld_imm64(R1, 0x8899);
        checks.asm.emit(Insn::Neg { width, dst: R1 });
        checks.store("negation".into(), R1, cut(0x8899u64.wrapping_neg()));
        checks.asm.emit(Insn::MovSx {
            width,
            size: Size::B,
            dst: R2,
            src: R1,
        });
        checks.store("sign of a byte".into(), R2, 0x67);
    }
    checks.asm.ld_imm64(R1, 0x1122_3344_5566_7788);
    for (to, size, wanted) in [
        (Swap::Bswap, Size::DW, 0x8877_6655_4433_2211),
        (Swap::Be, Size::H, 0x1122),
        (Swap::Be, Size::W, 0x2211_0000),
        (Swap::Le, Size::H, 0),
    ] {
        checks.asm.swap(to, size, R1);
        checks.store(format!("{to:?} {size:?}"), R1, wanted);
    }
    checks.check();
}

/// Each condition jumps according to the table, its inverse in the other case.
#[test]
fn conditions() {
    need_privileges();
    let mut checks = Checks::new();
    for width in Width::ALL {
        let cut = |x: u64| {
            if width == Width::W64 {
                x
            } else {
                u64::from(x as u32)
            }
        };
        for &cond in Cond::ALL {
            for (a, b) in PAIRS {
                let wanted = holds(width, cond, cut(a), cut(b));
                if let Some(inverse) = cond.inverse() {
                    assert_ne!(holds(width, inverse, cut(a), cut(b)), wanted);
                }
                let asm = &mut checks.asm;
                asm.ld_imm64(R1, a);
                asm.ld_imm64(R2, b);
                asm.mov(R3, 1);
                let end = asm.label();
                match width {
                    Width::W64 => asm.jump_if(cond, R1, R2, end),
                    Width::W32 => asm.jump_if32(cond, R1, R2, end),
                }
                asm.mov(R3, 0);
                asm.bind(end);
                let what = format!("{width:?} {a:#x} {} {b:#x}", cond.sign());
                checks.store(what, R3, u64::from(wanted));
            }
        }
    }
    checks.check();
}

/// Atomic operations: the new value is in memory, the old value in the register.
#[test]
fn atomics() {
    need_privileges();
    let mut checks = Checks::new();
    let (old, arg) = (0b1100, 0b1010);
    let table = [
        (AtomicOp::Add, old + arg, arg),
        (AtomicOp::Or, old | arg, arg),
        (AtomicOp::And, old & arg, arg),
        (AtomicOp::Xor, old ^ arg, arg),
        (AtomicOp::FetchAdd, old + arg, old),
        (AtomicOp::FetchOr, old | arg, old),
        (AtomicOp::FetchAnd, old & arg, old),
        (AtomicOp::FetchXor, old ^ arg, old),
        (AtomicOp::Xchg, arg, old),
        (AtomicOp::CmpXchg, arg, arg),
    ];
    for width in Width::ALL {
        // 32-bit operations preserve the upper half in memory.
        let high = if width == Width::W32 {
            0x7700_0000_0000
        } else {
            0
        };
        for (op, memory, reg) in table {
            let asm = &mut checks.asm;
            asm.imm(R0, old as i64);
            asm.imm(R1, arg as i64);
            asm.ld_imm64(R2, old | high);
            asm.store(Size::DW, R10, -8, R2);
            match width {
                Width::W64 => asm.atomic(op, R10, -8, R1),
                Width::W32 => asm.atomic32(op, R10, -8, R1),
            }
            checks.store(format!("{width:?} {op:?} register"), R1, reg);
            checks.asm.load(Size::DW, R1, R10, -8);
            checks.store(format!("{width:?} {op:?} memory"), R1, memory | high);
            checks.store(format!("{width:?} {op:?} r0"), R0, old);
        }
    }
    checks.check();
}

/// Constants in one slot and in two, and sign-extending loads.
#[test]
fn constants() {
    need_privileges();
    let mut checks = Checks::new();
    for value in [
        0,
        -1,
        i64::from(i32::MIN),
        0xffff_ffff,
        0x8000_0000,
        1 << 32,
        i64::MIN,
    ] {
        checks.asm.imm(R1, value);
        checks.store(format!("{value:#x}"), R1, value as u64);
    }
    checks.asm.store(Size::DW, R10, -8, -2);
    for size in [Size::B, Size::H, Size::W] {
        checks.asm.load_sx(size, R1, R10, -8);
        checks.store(format!("signed {size:?}"), R1, -2i64 as u64);
    }
    checks.check();
}

/// Jumps over more than 32,767 slots.
#[test]
fn long_jumps() {
    need_privileges();
    let mut checks = Checks::new();
    let asm = &mut checks.asm;
    let (far, back, end) = (asm.label(), asm.label(), asm.label());
    asm.imm(R1, 1);
    asm.jump_if(Cond::Ne, R8, 1, far);
    asm.imm(R1, 2);
    asm.bind(back);
    asm.add(R1, 10);
    asm.jump_if(Cond::Eq, R8, 0, end);
    for _ in 0..40_000 {
        asm.add(R1, 1);
    }
    asm.jump_if(Cond::Eq, R8, 2, back);
    asm.bind(far);
    asm.add(R1, 100);
    asm.jump_if(Cond::Eq, R8, 0, back);
    asm.bind(end);
    checks.store("path".into(), R1, 111);
    checks.check();
}
