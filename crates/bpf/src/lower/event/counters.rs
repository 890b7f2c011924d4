//! Counters of `@perf`: the number of hardware or software events in each thread.
//!
//! A perf event on each CPU counts for all threads. At every task switch a program adds the count
//! since the last switch to the thread that leaves, in task storage of the kernel. The current
//! thread's count is the stored value plus the count since the last switch.

use spile_cast::Cast;
use spile_ebpf::isa::insn::Cond;
use spile_ir::{Inst, Intrinsic, Program, Reg as IrReg, Val};

use spile_layout::ErrorKind;
use spile_lir::builder::{Builder, Scalar as Value, build};
use spile_lir::func::{LirFunc, MemoryOperand, Module};
use spile_lir::helpers::Helper;

use crate::compiled::counter_map;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::object::elf::{MapSpec, MapType};

/// Map with each CPU's counters at its last switch.
const BASE_MAP: &str = "counted";
/// Task storage of each thread: the number of switches, then the counters.
const TASK_MAP: &str = "counts";
/// The kernel's `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: u64 = 0xffff_ffff;
/// The kernel's `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const CREATE: u64 = 1;
/// The kernel's `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// Results from this value on, as unsigned numbers, are negated error codes.
const ERRORS: i32 = -4096;
/// `-ENOMEM`
const NO_MEMORY: i32 = -12;
/// Attempts to read a counter without a task switch in between.
const TRIES: u32 = 4;

/// Type and config of a perf event.
pub(crate) type CounterConfig = (u32, u64);

/// The counters that kernel handlers read, in the order of their first use.
pub(crate) fn counters(program: &Program) -> Vec<CounterConfig> {
    let mut configs = Vec::new();
    for body in program.kernel_bodies() {
        for inst in body.insts() {
            if let Inst::Intr { f, args, .. } = inst
                && *f == Intrinsic::PerfCount
                && let Some(counter) = counter(args)
                && !configs.contains(&counter)
            {
                configs.push(counter);
            }
        }
    }
    configs
}

fn counter(args: &[Val]) -> Option<CounterConfig> {
    match args {
        [Val::Imm(ty), Val::Imm(config)] => {
            Some((u32::try_from(*ty).ok()?, config.cast_unsigned()))
        }
        _ => None,
    }
}

/// The maps of the counters.
pub(crate) fn maps(count: usize, cpus: u32) -> Vec<MapSpec> {
    if count == 0 {
        return Vec::new();
    }
    let bytes = 8 * count.fit::<u32>();
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

/// The value of the processor's counter, or an error.
fn count_of(f: &Builder, n: usize) -> Value<'_> {
    let events = f.addr(MemoryOperand::Map(counter_map(n)));
    f.helper(Helper::EventCount, &[events, f.constant(CURRENT_CPU)])
}

/// The processor's counters at its last switch, or 0.
fn base(f: &Builder) -> Value<'_> {
    let key = f.slot(8);
    key.store_u64(0, 0);
    let map = f.addr(MemoryOperand::Map(BASE_MAP.into()));
    f.helper(Helper::MapLookup, &[map, key])
}

/// The current thread's task storage, or 0.
fn task(f: &Builder) -> Value<'_> {
    let current = f.helper(Helper::Task, &[]);
    let map = f.addr(MemoryOperand::Map(TASK_MAP.into()));
    let args = [map, current, f.constant(0), f.constant(CREATE)];
    f.helper(Helper::TaskStorage, &args)
}

/// Offset of a counter in a processor's counters; a thread's counters start one word later.
fn counter_offset(n: usize) -> i16 {
    8 * n.fit::<i16>()
}

/// The program that runs at task switches.
pub(crate) fn switch_handler(name: &str, count: usize) -> LirFunc {
    let contract = "\
Adds what happened since the processor's last switch to the counters of the thread that leaves.
ctx: not read.";
    build(name, contract, ["ctx"], |f, _| {
        let thread = task(f);
        let base = base(f);
        f.ret_if(base.eq(0), 0);
        for n in 0..count {
            f.block(|next| {
                let now = count_of(f, n);
                next.leave_if(now.gt(ERRORS));
                let before = base.load_u64(counter_offset(n));
                base.store_u64(counter_offset(n), now);
                next.leave_if(thread.eq(0));
                let offset = 8 + counter_offset(n);
                thread.store_u64(offset, thread.load_u64(offset) + (now - before));
            });
        }
        f.if_(thread.ne(0), || {
            thread.store_u64(0, thread.load_u64(0) + 1);
        });
    })
}

/// The function that reads a counter.
fn read_counter(name: &str, n: usize) -> LirFunc {
    let contract = "\
The current thread's count, or a negative errno as a number. It reads again if the thread was switched out
between two reads, which then do not belong together.
Cost: three helper calls for each attempt.";
    build(name, contract, [], |f, []| {
        let thread = task(f);
        f.ret_if(thread.eq(0), NO_MEMORY);
        let sum = f.var("sum", 0);
        f.repeat_inline(TRIES, || {
            let switches = thread.load_u64(0);
            let now = count_of(f, n);
            f.ret_if(now.gt(ERRORS), now);
            let base = base(f);
            f.ret_if(base.eq(0), NO_MEMORY);
            let earlier = thread.load_u64(8 + counter_offset(n));
            sum.set(now - base.load_u64(counter_offset(n)) + earlier);
            f.break_if(switches.eq(thread.load_u64(0)));
        });
        f.ret(sum);
    })
}

impl HandlerCodegen<'_> {
    /// `dst` = the current thread's count.
    pub(crate) fn perf_count(&mut self, dst: Option<IrReg>, args: &[Val]) -> Res {
        let configs = counters(self.program);
        let n = counter(args).and_then(|c| configs.iter().position(|have| *have == c));
        let n = n.ok_or("a counter that is no constant")?;
        let name = format!("count{n}");
        self.pool
            .define_module(Module::from(read_counter(&name, n)))?;
        let fail = self.fail_label(ErrorKind::Counter);
        let count = self.asm.call_sub_with(name, &[]);
        self.asm.jump_if(Cond::Gt, count, ERRORS, fail);
        match dst {
            Some(dst) => self.def_int(dst, count),
            None => Ok(()),
        }
    }
}
