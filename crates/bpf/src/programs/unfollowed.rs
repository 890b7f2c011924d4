//! Counts the executions by which processes of the target lose their breakpoints: the kernel takes the
//! perf events of a process away when it executes a program with other rights (set-user-ID, file
//! capabilities), and breakpoints that follow the target are such events.

use spile_layout::shared;
use spile_lir::LirFunc;
use spile_lir::builder::build;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::op::AtomicOp;

use super::process_tree::location;

/// Name of the program.
const PROGRAM: &str = "p_unfollowed";

/// The program; `tree` is the location of the bits of [`super::process_tree`] in the shared area, and
/// `events` the offset of a task's perf events.
pub(crate) fn program(tree: u32, events: u32) -> LirFunc {
    let contract = "\
Counts a process of the target without perf events, while handlers may run.
ctx: the current task.";
    build(PROGRAM, contract, ["ctx"], |f, [ctx]| {
        let running = f.addr(MemoryOperand::State(shared::RUNNING));
        f.ret_if(running.load_u64(0).eq(0), 0);
        let process = f.helper(Helper::PidTgid, &[]) >> 32;
        let (word, bit) = location(f, tree, process);
        f.ret_if((word.load_u64(0) & bit).eq(0), 0);
        let read = f.slot(8);
        let field = ctx.load_u64(0) + events.cast_signed();
        f.helper(Helper::Read, &[read, f.number(8), field]);
        f.ret_if(read.load_u64(0).ne(0), 0);
        let count = f.addr(MemoryOperand::State(shared::UNFOLLOWED));
        count.atomic(AtomicOp::Add, 0, 1);
    })
}
