//! Announces each `execve` to the controller: a watch on the memory of all processes that run a
//! program has to watch new ones too.
//!
//! A program at `sched_process_exec` sends a record, whether or not handlers may run.

use crate::isa::asm::Asm;
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Size};
use crate::layout::{Attach, ProgramInfo, RING, percpu, shared};
use crate::object::elf::ProgramSpec;
use crate::plan::StateLayout;

/// The tracepoint: the new program's memory is in place, and none of its instructions has run yet.
const EXEC: &str = "sched_process_exec";
/// Size of a record: header, shape, two numbers.
const RECORD: i16 = 32;

/// The program; `shape` is that of its records.
///
/// # Errors
/// The reason why it cannot be made.
pub(crate) fn emit(plan: &StateLayout, shape: u32) -> Result<(ProgramSpec, ProgramInfo), String> {
    let name = "p_executed";
    let mut asm = Asm::new(name, &["ctx"]);
    let out = asm.label();
    asm.store(Size::W, R10, -RECORD, 0);
    asm.store(Size::W, R10, 4 - RECORD, i32::from(RECORD));
    asm.store(Size::DW, R10, 8 - RECORD, shape as i32);
    asm.call(Helper::GetCurrentPidTgid);
    asm.alu(AluOp::Rsh, R0, 32);
    asm.store(Size::DW, R10, 16 - RECORD, R0);
    asm.call(Helper::KtimeGetNs);
    asm.store(Size::DW, R10, 24 - RECORD, R0);
    asm.ld_map(R1, RING);
    asm.mov(R2, R10);
    asm.add(R2, -i32::from(RECORD));
    asm.mov(R3, i32::from(RECORD));
    asm.mov(R4, shared::FORCE_WAKEUP);
    asm.call(Helper::RingbufOutput);
    asm.jump_if(Cond::Eq, R0, 0, out);
    plan.cpu_block(&mut asm, R1, out);
    asm.mov(R2, 1);
    asm.atomic(AtomicOp::Add, R1, percpu::LOST_OUTPUT as i16, R2);
    asm.bind(out);
    asm.mov(R0, 0);
    asm.exit();
    let function = asm.finish().map_err(|e| e.to_string())?;
    let spec = ProgramSpec {
        section: format!("raw_tp/{EXEC}"),
        function,
    };
    let info = ProgramInfo {
        name: name.into(),
        attach: Attach::RawTracepoint(vec![EXEC.into()]),
        handlers: Vec::new(),
        idle: false,
    };
    Ok((spec, info))
}
