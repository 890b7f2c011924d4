//! The object for tests of the writers, with one of everything.

use std::sync::Arc;

use spile_bpf::object::elf::{LICENSE, MapSpec, MapType, ObjectSpec, ProgramSpec};
use spile_ebpf::isa::asm::{Asm, AsmFunction, Section, SourceLine};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::*;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Size};

/// Size of `.bss`: above the limit of small maps, to show that it adds nothing to the file.
pub(crate) const BSS: u32 = 8 << 20;
/// Offset of the counter in `.bss`.
pub(crate) const COUNTER: u32 = BSS - 8;
/// Offset of the results in `.bss`: that of `multiply`, then that of the iteration over the map.
pub(crate) const RESULTS: u32 = 4096;

/// A line of a pretended script.
pub(crate) fn line(line: u32, text: &str) -> SourceLine {
    let (file, text): (Arc<str>, Arc<str>) = ("count.stp".into(), text.into());
    SourceLine {
        file,
        text,
        line,
        column: 3,
    }
}

/// A map of 64-bit keys and values.
fn map(name: &str, ty: MapType, size: u32, max_entries: u32) -> MapSpec {
    MapSpec {
        name: name.into(),
        ty,
        key_size: size,
        value_size: size,
        max_entries,
        flags: 0,
    }
}

/// `map[key] = value` for constants, through the stack.
fn update(asm: &mut Asm, map: &str, key: i32, value: i32) {
    asm.store(Size::DW, R10, -8, key);
    asm.store(Size::DW, R10, -16, value);
    asm.ld_map(R1, map);
    asm.mov(R2, R10);
    asm.add(R2, -8);
    asm.mov(R3, R10);
    asm.add(R3, -16);
    asm.mov(R4, 0);
    asm.call(Helper::MapUpdateElem);
}

/// The main program: counts, fills `counts`, sums it with a callback, calls a subprogram, sends a
/// record.
fn main_program() -> AsmFunction {
    let mut asm = Asm::new("on_enter", &["ctx"]);
    asm.source_line(&line(1, "probe syscall.read {"));
    asm.load(Size::DW, R6, R1, 8);
    asm.mov(R7, 1);
    asm.ld_data(R1, Section::Bss, COUNTER);
    asm.comment("hits++");
    asm.atomic(AtomicOp::Add, R1, 0, R7);
    asm.source_line(&line(2, "  counts[7] = 100"));
    update(&mut asm, "counts", 7, 100);
    update(&mut asm, "counts", 8, 11);
    update(&mut asm, "percpu", 1, 1);
    asm.source_line(&line(3, "  foreach (k in counts) s += counts[k]"));
    asm.store(Size::DW, R10, -24, 0);
    asm.ld_map(R1, "counts");
    asm.ld_func(R2, "add_value");
    asm.mov(R3, R10);
    asm.add(R3, -24);
    asm.mov(R4, 0);
    asm.call(Helper::ForEachMapElem);
    asm.load(Size::DW, R8, R10, -24);
    asm.source_line(&line(4, "  x = multiply($fd, 3)"));
    asm.mov(R1, R6);
    asm.mov(R2, 3);
    asm.call_sub("multiply");
    asm.ld_data(R1, Section::Bss, RESULTS);
    asm.store(Size::DW, R1, 0, R0);
    asm.store(Size::DW, R1, 8, R8);
    let quiet = asm.label();
    asm.jump_if(Cond::Eq, R0, 0, quiet);
    asm.source_line(&line(5, "  println(x)"));
    asm.ld_map(R1, "out");
    asm.ld_data(R2, Section::Bss, RESULTS);
    asm.mov(R3, 16);
    asm.mov(R4, 0);
    asm.call(Helper::RingbufOutput);
    asm.bind(quiet);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().unwrap()
}

/// `multiply(a, b)`: a * b + the second word of `.rodata`.
fn multiply() -> AsmFunction {
    let mut asm = Asm::new("multiply", &["a", "b"]);
    asm.source_line(&line(8, "function multiply(a, b) { return a * b + 1000 }"));
    asm.mov(R0, R1);
    asm.alu(AluOp::Mul, R0, R2);
    asm.ld_data(R3, Section::Rodata, 8);
    asm.load(Size::DW, R3, R3, 0);
    asm.add(R0, R3);
    asm.exit();
    asm.finish().unwrap()
}

/// Callback: adds the value to the context. Has no source lines.
fn add_value() -> AsmFunction {
    let mut asm = Asm::new("add_value", &["map", "key", "value", "sum"]);
    asm.load(Size::DW, R1, R3, 0);
    asm.load(Size::DW, R2, R4, 0);
    asm.add(R2, R1);
    asm.store(Size::DW, R4, 0, R2);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().unwrap()
}

/// A program that only returns.
pub(crate) fn empty(name: &str) -> AsmFunction {
    let mut asm = Asm::new(name, &["ctx"]);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().unwrap()
}

/// A program in a section.
pub(crate) fn program(section: &str, function: AsmFunction) -> ProgramSpec {
    ProgramSpec {
        section: section.into(),
        function,
    }
}

/// The object.
pub(crate) fn spec() -> ObjectSpec {
    ObjectSpec {
        maps: vec![
            map("counts", MapType::Hash, 8, 128),
            map("percpu", MapType::PercpuHash, 8, 128),
            map("out", MapType::Ringbuf, 0, 4096),
        ],
        bss_size: BSS,
        rodata: [0u64, 1000].iter().flat_map(|w| w.to_le_bytes()).collect(),
        programs: vec![
            program("raw_tp/sys_enter", main_program()),
            program("perf_event", empty("tick")),
            program("perf_event", empty("tock")),
        ],
        subprograms: vec![add_value(), multiply()],
        license: LICENSE.into(),
    }
}
