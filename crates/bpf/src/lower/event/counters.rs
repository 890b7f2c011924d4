//! Counters of `@perf`: the number of hardware or software events in each thread.
//!
//! A perf event on each CPU counts for all threads. At every task switch a program adds the count
//! since the last switch to the thread that leaves, in task storage of the kernel. The current
//! thread's count is the stored value plus the count since the last switch.

use spile_ir::{Inst, Intrinsic, Program, Reg as IrReg, Val};

use crate::isa::asm::{Asm, Function};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{Cond, Size};
use crate::layout::{ErrorKind, counter_map};
use crate::lower::{HandlerCodegen, Res};
use crate::object::elf::{MapSpec, MapType};

/// Map with each CPU's counters at its last switch.
const BASE_MAP: &str = "counted";
/// Task storage of each thread: the number of switches, then the counters.
const TASK_MAP: &str = "counts";
/// The kernel's `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: i64 = 0xffff_ffff;
/// The kernel's `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const CREATE: i32 = 1;
/// The kernel's `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// Results from this value on, as unsigned numbers, are negated error codes.
const ERRORS: i32 = -4096;
/// `-ENOMEM`
const NO_MEMORY: i32 = -12;
/// Attempts to read a counter without a task switch in between.
const TRIES: i32 = 4;

/// Type and config of a perf event.
pub(crate) type CounterConfig = (u32, u64);

/// The counters that kernel handlers read, in the order of their first use.
pub(crate) fn counters(program: &Program) -> Vec<CounterConfig> {
    let mut all = Vec::new();
    for body in program.kernel_bodies() {
        for inst in body.insts() {
            if let Inst::Intr { f, args, .. } = inst
                && *f == Intrinsic::PerfCount
                && let Some(counter) = counter(args)
                && !all.contains(&counter)
            {
                all.push(counter);
            }
        }
    }
    all
}

fn counter(args: &[Val]) -> Option<CounterConfig> {
    match args {
        [Val::Imm(ty), Val::Imm(config)] => Some((u32::try_from(*ty).ok()?, *config as u64)),
        _ => None,
    }
}

/// The maps of the counters.
pub(crate) fn maps(count: usize, cpus: u32) -> Vec<MapSpec> {
    if count == 0 {
        return Vec::new();
    }
    let bytes = 8 * count as u32;
    let map = |name: &str, ty, value_size, max_entries, flags| MapSpec {
        name: name.into(),
        ty,
        key_size: 4,
        value_size,
        max_entries,
        flags,
    };
    let events = |n| map(&counter_map(n), MapType::PerfEventArray, 4, cpus, 0);
    let mut maps: Vec<MapSpec> = (0..count).map(events).collect();
    maps.push(map(BASE_MAP, MapType::PercpuArray, bytes, 1, 0));
    maps.push(map(
        TASK_MAP,
        MapType::TaskStorage,
        8 + bytes,
        0,
        NO_PREALLOC,
    ));
    maps
}

/// `r0` = value of the CPU's counter, or an error.
fn read_event(asm: &mut Asm, n: usize) {
    asm.ld_map(R1, counter_map(n));
    asm.imm(R2, CURRENT_CPU);
    asm.call(Helper::PerfEventRead);
}

/// `r0` = the CPU's counters at its last switch, or 0. Clobbers the stack's top word.
fn base(asm: &mut Asm) {
    asm.store(Size::DW, R10, -8, 0);
    asm.ld_map(R1, BASE_MAP);
    asm.mov(R2, R10);
    asm.add(R2, -8);
    asm.call(Helper::MapLookupElem);
}

/// `r0` = the current thread's task storage, or 0.
fn task(asm: &mut Asm) {
    asm.call(Helper::GetCurrentTaskBtf);
    asm.ld_map(R1, TASK_MAP);
    asm.mov(R2, R0);
    asm.mov(R3, 0);
    asm.mov(R4, CREATE);
    asm.call(Helper::TaskStorageGet);
}

/// Offset of a counter in a CPU's counters; a thread's counters start one word later.
fn counter_offset(n: usize) -> i16 {
    8 * n as i16
}

/// The program that runs at task switches.
pub(crate) fn switch_handler(name: &str, count: usize) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["ctx"]);
    let out = asm.label();
    task(&mut asm);
    // r7: the thread's counters; r8: those of the CPU.
    asm.mov(R7, R0);
    base(&mut asm);
    asm.jump_if(Cond::Eq, R0, 0, out);
    asm.mov(R8, R0);
    for n in 0..count {
        let next = asm.label();
        read_event(&mut asm, n);
        asm.jump_if(Cond::Gt, R0, ERRORS, next);
        asm.load(Size::DW, R2, R8, counter_offset(n));
        asm.store(Size::DW, R8, counter_offset(n), R0);
        asm.jump_if(Cond::Eq, R7, 0, next);
        asm.alu(crate::isa::insn::AluOp::Sub, R0, R2);
        asm.load(Size::DW, R1, R7, 8 + counter_offset(n));
        asm.add(R1, R0);
        asm.store(Size::DW, R7, 8 + counter_offset(n), R1);
        asm.bind(next);
    }
    asm.jump_if(Cond::Eq, R7, 0, out);
    asm.load(Size::DW, R1, R7, 0);
    asm.add(R1, 1);
    asm.store(Size::DW, R7, 0, R1);
    asm.bind(out);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// A subprogram that returns the current thread's count, or an error. It reads again if the thread
/// was switched out between two reads, which then do not belong together.
fn read_sub(name: &str, n: usize) -> Result<Function, String> {
    let mut asm = Asm::new(name, &[]);
    let (out, none) = (asm.label(), asm.label());
    task(&mut asm);
    asm.jump_if(Cond::Eq, R0, 0, none);
    asm.mov(R7, R0);
    for _ in 0..TRIES {
        let again = asm.label();
        // r9: number of switches; r6: number of events.
        asm.load(Size::DW, R9, R7, 0);
        read_event(&mut asm, n);
        asm.jump_if(Cond::Gt, R0, ERRORS, out);
        asm.mov(R6, R0);
        base(&mut asm);
        asm.jump_if(Cond::Eq, R0, 0, none);
        asm.load(Size::DW, R1, R0, counter_offset(n));
        asm.alu(crate::isa::insn::AluOp::Sub, R6, R1);
        asm.load(Size::DW, R1, R7, 8 + counter_offset(n));
        asm.add(R6, R1);
        asm.load(Size::DW, R1, R7, 0);
        asm.jump_if(Cond::Ne, R1, R9, again);
        asm.mov(R0, R6);
        asm.jump(out);
        asm.bind(again);
    }
    asm.mov(R0, R6);
    asm.jump(out);
    asm.bind(none);
    asm.mov(R0, NO_MEMORY);
    asm.bind(out);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

impl HandlerCodegen<'_> {
    /// `dst` = the current thread's count.
    pub(in crate::lower) fn perf_count(&mut self, dst: Option<IrReg>, args: &[Val]) -> Res {
        let all = counters(self.program);
        let n = counter(args).and_then(|c| all.iter().position(|have| *have == c));
        let n = n.ok_or("a counter that is no constant")?;
        let name = format!("count{n}");
        self.pool.sub(&name, |_| read_sub(&name, n))?;
        let fail = self.fail_label(ErrorKind::Counter);
        self.asm.call_sub(name);
        self.asm.jump_if(Cond::Gt, R0, ERRORS, fail);
        match dst {
            Some(dst) => self.def_int(dst, R0),
            None => Ok(()),
        }
    }
}
