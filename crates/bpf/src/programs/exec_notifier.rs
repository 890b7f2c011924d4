//! Announces each `execve` to the controller: a watch on the memory of all processes that run a
//! program has to watch new ones too.
//!
//! A program at `sched_process_exec` sends a record, whether or not handlers may run.

use spile_layout::percpu;
use spile_lir::LirFunc;
use spile_lir::builder::build;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::op::{AtomicOp, Size};

use crate::compiled::{FORCE_WAKEUP, RING};

/// Name of the program.
const PROGRAM: &str = "p_executed";
/// Size of a record: header, shape, two numbers.
const RECORD: i32 = 32;

/// The program; `shape` is that of its records.
pub(crate) fn program(shape: u32) -> LirFunc {
    let contract = "\
Sends a record with the number of the current process and the time, or counts that it is lost.
ctx: not read.";
    build(PROGRAM, contract, ["ctx"], |f, _| {
        let record = f.slot(RECORD.cast_unsigned());
        record.store_bytes(Size::U32, 0, 0);
        record.store_bytes(Size::U32, 4, RECORD);
        record.store_u64(8, shape.cast_signed());
        record.store_u64(16, f.helper(Helper::PidTgid, &[]) >> 32);
        record.store_u64(24, f.helper(Helper::TimeNs, &[]));
        let ring = f.addr(MemoryOperand::Map(RING.into()));
        let [size, flags] = [RECORD, FORCE_WAKEUP].map(|n| f.number(n));
        let lost = f.helper(Helper::Output, &[ring, record, size, flags]);
        f.if_(lost.ne(0), || {
            let count = f.addr(MemoryOperand::Cpu(percpu::LOST_OUTPUT));
            count.atomic(AtomicOp::Add, 0, 1);
        });
    })
}
