//! Emitted LIR against the interpreter: random functions and the library's, run by the kernel.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use spile_bpf::object::elf::{LICENSE, ObjectSpec, ProgramSpec};
use spile_bpf::object::link::{MapRef, link};
use spile_ebpf::emit::{CpuBlocks, EmitError, LIMITS, ObjectSymbols, emit};
use spile_ebpf::isa::asm::{Asm, AsmFunction, Section};
use spile_ebpf::isa::insn::Reg::*;
use spile_ebpf::isa::insn::Size;
use spile_kernel::bpf::{
    BpfError, Errno, Map, MapAttr, ProgSpec, load, load_btf, map_create, map_flag, map_freeze,
    map_type, prog_type, test_run,
};
use spile_kernel::features;
use spile_lir::builder::build;
use spile_lir::interp::{Machine, NoHost, RegionKind};
use spile_lir::{Module, library, reader, testgen};

/// The state memory: the result, the numbers of the arguments, then memory.
const RESULT: u32 = 0;
const NUMBERS: u32 = 8;
const MEMORY: u32 = 64;
const STATE: u32 = 64 << 10;

/// An argument: a number, or the address of a part of the memory.
#[derive(Debug, Clone, Copy)]
enum Arg {
    /// A number that the verifier does not know.
    Number(u64),
    /// A number that the verifier knows.
    Constant(i32),
    /// An offset in the memory.
    Address(u32),
}

/// The program: calls the function with the arguments, and stores the result.
fn program(name: &str, args: &[Arg]) -> AsmFunction {
    let mut asm = Asm::new("on_test", &["ctx"]);
    for (i, (arg, reg)) in args.iter().zip([R1, R2, R3, R4, R5]).enumerate() {
        match arg {
            Arg::Constant(n) => asm.mov(reg, *n),
            Arg::Address(at) => asm.ld_data(reg, Section::Bss, MEMORY + at),
            Arg::Number(_) => {
                asm.ld_data(reg, Section::Bss, NUMBERS + 8 * i as u32);
                asm.load(Size::DW, reg, reg, 0);
            }
        }
    }
    asm.call_sub(name);
    asm.ld_data(R1, Section::Bss, RESULT);
    asm.store(Size::DW, R1, 0, R0);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().expect("assembles")
}

/// Why a function cannot run in the kernel.
#[derive(Debug)]
enum Refused {
    /// It has no code.
    Emit(EmitError),
    /// The verifier gives up after 1,000,000 instructions. Branches in nested loops have more paths.
    Paths,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Emit(e) => e.fmt(f),
            Refused::Paths => f.write_str("too many paths for the verifier"),
        }
    }
}

/// A function in the kernel.
struct Loaded {
    program: OwnedFd,
    state: OwnedFd,
    args: Vec<Arg>,
}

impl Loaded {
    /// Loads a module. With `may_goto`, the kernel stops its open loops.
    fn new(module: &Module, name: &str, args: &[Arg], may_goto: bool) -> Result<Loaded, Refused> {
        let mut around = ObjectSymbols::default();
        let mut rodata = Vec::new();
        for data in &module.data {
            around.data.insert(data.name.clone(), rodata.len() as u32);
            rodata.extend(&data.bytes);
            rodata.resize(rodata.len().next_multiple_of(8), 0);
        }
        around.cpu_blocks = Some(CpuBlocks {
            first: MEMORY,
            stride: 64,
            count: 256,
        });
        around.may_goto = may_goto;
        let subprograms = emit(module, &around).map_err(Refused::Emit)?;
        let listings: String = subprograms.iter().map(AsmFunction::listing).collect();
        let spec = ObjectSpec {
            bss_size: STATE,
            rodata,
            programs: vec![ProgramSpec {
                section: "raw_tp".into(),
                function: program(name, args),
            }],
            subprograms,
            license: LICENSE.into(),
            ..ObjectSpec::default()
        };
        let mut linked = link(&spec).unwrap_or_else(|e| panic!("{e}"));
        let btf = load_btf(&linked.btf).unwrap_or_else(|e| panic!("{e}"));
        let (state, constants) = (
            map(STATE, 0),
            map(spec.rodata.len().max(8) as u32, map_flag::RDONLY_PROG),
        );
        if !spec.rodata.is_empty() {
            write(&constants, &spec.rodata);
            map_freeze(constants.as_fd()).expect("freezes");
        }
        let program = &mut linked.programs[0];
        program.set_maps(|map| match map {
            MapRef::Rodata => constants.as_raw_fd(),
            _ => state.as_raw_fd(),
        });
        let spec = ProgSpec {
            ty: prog_type::RAW_TRACEPOINT,
            insns: &program.insns,
            name: "emitted",
            btf: Some(btf.as_fd()),
            functions: &program.functions,
            ..ProgSpec::default()
        };
        let program = match load(&spec) {
            Ok(program) => program,
            Err(BpfError::Rejected { errno, .. }) if errno == Errno::TOOBIG => {
                return Err(Refused::Paths);
            }
            Err(e) => {
                let log = e.to_string();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(60)..].join("\n");
                panic!("{end}\n{module}\n{listings}")
            }
        };
        Ok(Loaded {
            program,
            state,
            args: args.to_vec(),
        })
    }

    /// Runs it on this memory; gives the result and the memory afterwards.
    fn run(&self, memory: &[u8]) -> (u64, Vec<u8>) {
        let mut state = vec![0; STATE as usize];
        for (i, arg) in self.args.iter().enumerate() {
            if let Arg::Number(n) = arg {
                let at = NUMBERS as usize + 8 * i;
                state[at..at + 8].copy_from_slice(&n.to_le_bytes());
            }
        }
        let memory_at = MEMORY as usize..MEMORY as usize + memory.len();
        state[memory_at.clone()].copy_from_slice(memory);
        write(&self.state, &state);
        test_run(self.program.as_fd(), &mut [0; 2], None).expect("runs");
        let map = Map::new(self.state.as_fd()).expect("a map");
        assert!(map.lookup(&0u32.to_ne_bytes(), &mut state).expect("reads"));
        let result = state[..8].try_into().expect("8 bytes");
        (u64::from_le_bytes(result), state[memory_at].to_vec())
    }
}

fn map(size: u32, flags: u32) -> OwnedFd {
    let spec = MapAttr {
        ty: map_type::ARRAY,
        key_size: 4,
        value_size: size,
        max_entries: 1,
        flags,
        ..MapAttr::default()
    };
    map_create(&spec).unwrap_or_else(|e| panic!("{e}"))
}

fn write(map: &OwnedFd, bytes: &[u8]) {
    let map = Map::new(map.as_fd()).expect("a map");
    map.update(&0u32.to_ne_bytes(), bytes, 0).expect("writes");
}

/// Skips the test if this process may not load programs.
fn need_privileges() {
    let spec = MapAttr {
        ty: map_type::RINGBUF,
        max_entries: 4096,
        ..MapAttr::default()
    };
    if map_create(&spec).is_err() {
        spile_testing::skip("loading BPF programs is not permitted here");
    }
}

/// The same in the interpreter.
fn interpret(module: &Module, name: &str, args: &[Arg], memory: &[u8]) -> (u64, Vec<u8>) {
    let mut machine = Machine::new(module, 10_000_000);
    let base = machine.memory.add(memory.to_vec(), RegionKind::Memory);
    let value = |arg: &Arg| match arg {
        Arg::Number(n) => *n,
        Arg::Constant(n) => i64::from(*n).cast_unsigned(),
        Arg::Address(at) => base + u64::from(*at),
    };
    let args: Vec<u64> = args.iter().map(value).collect();
    let result = machine.run(name, &args, &mut NoHost);
    let result = result.unwrap_or_else(|e| panic!("{e}\n{module}"));
    let after = machine.memory.region(base).expect("stays");
    (result, after.to_vec())
}

#[test]
fn random_functions_run_as_interpreted() {
    need_privileges();
    let config = ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let inputs = (
        vec(any::<u32>(), 0..90),
        vec(any::<u8>(), testgen::REGION as usize),
        any::<[u64; 2]>(),
    );
    let mut runner = TestRunner::new(config);
    let (run, large) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&inputs, |(numbers, region, [a, b])| {
        let module = testgen::module(&numbers, true);
        let args = [Arg::Address(0), Arg::Number(a), Arg::Number(b)];
        let loaded = match Loaded::new(&module, "random", &args, false) {
            // Too many values at once for the stack, or too many paths.
            Err(Refused::Emit(EmitError::Loop(_) | EmitError::Frame(..)) | Refused::Paths) => {
                large.set(large.get() + 1);
                return Ok(());
            }
            other => other.map_err(|e| TestCaseError::fail(e.to_string()))?,
        };
        run.set(run.get() + 1);
        let expected = interpret(&module, "random", &args, &region);
        let found = loaded.run(&region);
        prop_assert!(found == expected, "{found:?} {expected:?}\n{module}");
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    assert!(run > large, "{run:?} run, {large:?} too large");
}

/// Runs a function of the library on a memory of its own, in the kernel and in the interpreter.
fn library(name: &str, args: &[Arg], memories: &[Vec<u8>]) {
    function(library::module(), name, args, memories);
}

/// The same for a function of another module.
fn function(module: &Module, name: &str, args: &[Arg], memories: &[Vec<u8>]) {
    let loaded = Loaded::new(module, name, args, false).unwrap_or_else(|e| panic!("{e}"));
    for memory in memories {
        let expected = interpret(module, name, args, memory);
        assert!(loaded.run(memory) == expected, "{name} {args:?}");
    }
}

/// A text at a location.
fn put(memory: &mut [u8], at: u32, text: &[u8]) {
    memory[at as usize..at as usize + text.len()].copy_from_slice(text);
}

/// Two texts with a long common beginning, 8,192 bytes apart.
fn pairs() -> Vec<Vec<u8>> {
    let long = "abcabcab".repeat(511);
    let pair = |a: &str, b: &str| {
        let mut memory = vec![0; 24 << 10];
        put(&mut memory, 0, a.as_bytes());
        put(&mut memory, 8192, b.as_bytes());
        memory
    };
    vec![
        pair("", ""),
        pair("a", "b"),
        pair("bcab", "cab"),
        pair(&long, &long),
        pair(&long, &long[..4000]),
        pair(&long[..300], &format!("{}x", &long[..300])),
        pair(&format!("{long}xy"), "cabxy"),
        pair(
            &format!("{}y", &long[..2000]),
            &format!("{}y", &long[1003..1200]),
        ),
    ]
}

#[test]
fn text_functions_of_the_library_run_as_interpreted() {
    need_privileges();
    let (a, b) = (Arg::Address(0), Arg::Address(8192));
    for chunks in [1, 16, 128] {
        library("compare", &[a, b, Arg::Constant(chunks)], &pairs());
    }
    for (size, have) in [(64, 4096), (4096, 64), (4096, 4096), (8, 8)] {
        let args = [
            Arg::Address(16384),
            Arg::Constant(size),
            a,
            Arg::Constant(have),
        ];
        library("copy", &args, &pairs());
    }
    for size in [8, 512, 4096] {
        library("length", &[a, Arg::Constant(size)], &pairs());
    }
    for memory in pairs() {
        let [text, part] = [&memory[..8192], &memory[8192..16384]];
        let [length, part_length] = [text, part].map(|t| t.iter().position(|c| *c == 0));
        let number = |n: Option<usize>| Arg::Number(n.unwrap_or(0) as u64);
        let args = [a, number(length), b, number(part_length)];
        for (wide, part) in [(8192, 4096), (4096, 16), (4096, 8)] {
            let find = library::search::find(wide, part);
            let name = find.name.clone();
            if length.is_some_and(|n| n < wide as usize)
                && part_length.is_some_and(|n| n < part as usize)
            {
                function(
                    &Module::from(find),
                    &name,
                    &args,
                    std::slice::from_ref(&memory),
                );
            }
        }
    }
}

#[test]
fn number_functions_of_the_library_run_as_interpreted() {
    need_privileges();
    let buffer = [vec![0xee; 32]];
    for n in [
        0,
        7,
        10,
        99,
        12345678,
        100_000_000,
        1 << 32,
        u64::MAX,
        i64::MAX as u64,
    ] {
        library("decimal", &[Arg::Address(0), Arg::Number(n)], &buffer);
        let args = [
            Arg::Address(0),
            Arg::Number(n),
            Arg::Constant(i32::from(b'A')),
        ];
        library("hex", &args, &buffer);
    }
    let texts = [
        "",
        "-",
        "0",
        "0x",
        "0xg",
        "-0x7fF",
        "0755",
        "99999999999999999999",
        "-12z",
        "ff",
    ];
    let texts = texts.map(|t| {
        let mut memory = vec![0; 4096];
        put(&mut memory, 0, t.as_bytes());
        memory
    });
    for base in [0, 8, 10, 16, 36] {
        for size in [24, 4096] {
            let args = [Arg::Address(0), Arg::Constant(size), Arg::Number(base)];
            library("strtol", &args, &texts);
        }
    }
}

/// Features that random functions lack: helpers, the per-CPU area, bounds that are no mask.
#[test]
fn addresses_and_helpers_run_as_interpreted() {
    need_privileges();
    let text = "\
func @f(%memory, %n) stack 8 {
a:
  %block = cpu 8
  %old = load u64 %block + 0
  %m = bound %n, 4294967294
  %k = bound %n, 1000
  %new = add %m, %k
  store u64 %block + 0, %new
  %again = cpu 8
  %read = load u64 %again + 0
  %s = slot 0 + 0
  %size = const 8
  %status = helper read(%s, %size, %block)
  %copy = load u64 %s + 0
  %zero = const 0
  %fault = helper read(%s, %size, %zero)
  %negative = sext u32 %fault
  if slt %negative, 0 then good else bad
good:
  %sum = add %read, %copy
  %all = add %sum, %old
  %x = cmpxchg 64 %memory + 0, %zero, %all
  %r = add %x, %all
  ret %r
bad:
  ret %status
}";
    let module = reader::read(text).unwrap_or_else(|e| panic!("{e}"));
    spile_lir::verify::verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}"));
    let args = [Arg::Address(0), Arg::Number(700)];
    let loaded = Loaded::new(&module, "f", &args, false).unwrap_or_else(|e| panic!("{e}"));
    // The block of the first processor begins with the memory of the test.
    let memory = vec![0; 32 << 10];
    let (result, after) = loaded.run(&memory);
    assert_eq!(result, 2 * 1400);
    assert_eq!(after[..8], 2800u64.to_le_bytes());
    let blocks = after
        .chunks(64)
        .filter(|b| b[8..16] == 1400u64.to_le_bytes());
    assert_eq!(blocks.count(), 1);
}

/// An open loop of more iterations than the verifier follows.
#[test]
fn open_loops_leave_themselves() {
    need_privileges();
    let func = build("f", "", ["memory", "n"], |f, [memory, n]| {
        // The verifier does not know the counter, and learns nothing about it.
        let (at, sum) = (
            f.var("at", f.number(0).opaque()),
            f.var("sum", memory.load_u64(0)),
        );
        f.repeat_open(100_000, || {
            f.break_if(at.eq(n));
            sum.set(sum + at.get());
            at.set(at + 1);
        });
        f.ret(sum);
    });
    let module = Module::from(func);
    spile_lir::verify::verify(&module, &LIMITS).unwrap_or_else(|e| panic!("{e}"));
    let memory = [5u64.to_le_bytes().to_vec(), vec![0; 32]].concat();
    let has = features::has(features::Feature::MayGoto).is_available();
    // Without the kernel's help the verifier follows each of few iterations.
    for (n, may_goto) in [(90_000, true), (3, false)] {
        if may_goto && !has {
            continue;
        }
        let args = [Arg::Address(0), Arg::Number(n)];
        let mut module = module.clone();
        if !may_goto {
            let bounds = module.funcs[0].blocks.iter_mut();
            let bounds = bounds.filter_map(|b| b.bound.as_mut());
            bounds.for_each(|bound| bound.max = bound.max.min(20));
        }
        let loaded = Loaded::new(&module, "f", &args, may_goto).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(loaded.run(&memory).0, 5 + n * (n - 1) / 2);
    }
}
