//! Deferred reads: strings of user memory that only the controller can read.
//!
//! If a page is not in memory, the kernel has to read it from its file or create it, for which a
//! handler cannot wait. The controller can, because it is an ordinary process that reads another
//! process's memory. A string that a handler only prints is therefore left to it. `user_defer` of the
//! run-time library ([`spile_lir::library::defer`]) immediately sends a record with the process and the
//! address, and puts a mark instead of the string, which the controller replaces when it prints.
//!
//! A string that a handler compares, stores or measures is never deferred: [`super::deferred_modes`] finds the
//! registers that are used only in output. All other reads fail, with the address.

use spile_cast::Cast;
use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::insn::Reg;
use spile_ebpf::isa::insn::{AluOp, Cond};
use spile_ir::{BlockId, Body, Inst, Reg as IrReg, StrId, Term, Ty, Val};
use spile_layout::plan::StateLayout;
use spile_layout::{Quote, RecordKind, RecordShape, SUBSTITUTE_SHIFT, percpu, shared};
use spile_lir::library::defer::{DeferLayout, FIELDS, MARK};
use spile_lir::library::routine::Routine;

use crate::compiled::{FORCE_WAKEUP, RING};
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::text::append;
use crate::target::Target;

/// Name of the subprogram.
pub(crate) const USER_DEFER: &str = "user_defer";

/// The constant that replaces a register's text if its read fails, provided that the `catch` does
/// nothing else, as that of `user_string2`.
fn substitute(body: &Body, id: BlockId, dst: IrReg) -> Option<StrId> {
    let block = body.blocks.get(id.index())?;
    let catch = body.blocks.get(block.catch?.index())?;
    if block.term != catch.term || !matches!(catch.term, Term::Jump(_)) {
        return None;
    }
    let insts = catch.insts.iter().map(|(i, _)| i);
    let mut noted = insts.filter(|i| !matches!(i, Inst::Tick { .. }));
    let (Some(Inst::Copy { dst: result, src }), None) = (noted.next(), noted.next()) else {
        return None;
    };
    let copied = Inst::Copy {
        dst: *result,
        src: Val::Reg(dst),
    };
    if *result != dst && !block.insts.iter().any(|(i, _)| *i == copied) {
        return None;
    }
    // Assigned once, a constant.
    let insts = || body.insts();
    match src {
        Val::Str(text) => Some(*text),
        Val::Reg(r) => {
            let mut sets = insts().filter(|i| i.dst() == Some(*r));
            match (sets.next(), sets.next()) {
                (
                    Some(Inst::Copy {
                        src: Val::Str(text),
                        ..
                    }),
                    None,
                ) => Some(*text),
                _ => None,
            }
        }
        Val::Imm(_) => None,
    }
}

/// Defines `user_defer(address, capacity, quote)` if the kernel supports it. The subprogram defers the
/// read and appends a mark to the text being built. It returns nonzero if the read cannot be
/// deferred.
pub(crate) fn use_user_defer(
    pool: &mut crate::lower::pool::Pool,
    plan: &StateLayout,
    options: &Target,
) -> Res<bool> {
    let o = &options.offsets;
    let (Some(task_id), Some(task_start), Some(task_program)) =
        (o.task_pid, o.task_start, o.task_exec_id)
    else {
        return Ok(false);
    };
    if plan.max_string <= MARK {
        return Ok(false);
    }
    let shape = pool.record(RecordShape::new(
        RecordKind::Deferred,
        vec![Ty::Long; FIELDS],
    ));
    let layout = DeferLayout {
        text: append::layout(plan),
        record: (plan.scratch.text + 4 * plan.max_string + 64).cast_signed(),
        count: percpu::DEFERRED,
        mark: shared::MARK,
        ring: RING,
        shape,
        wakeup: FORCE_WAKEUP,
        task_id,
        task_start,
        task_program,
    };
    pool.routine(USER_DEFER, Some(plan), |_| Ok(Routine::Defer(layout)))?;
    Ok(true)
}

impl HandlerCodegen<'_> {
    /// How the controller writes the text of a register whose read may be deferred.
    pub(crate) fn deferrable(&self, dst: IrReg) -> Option<Quote> {
        self.ctx.deferred(dst)
    }

    /// Defers a string if the result of a read says that the memory may exist, and puts the mark into the
    /// slot. The address is in `err_aux`. Goes to `read` if that succeeded, otherwise to `fail`.
    pub(crate) fn defer(
        &mut self,
        result: Reg,
        (off, width): (u32, u32),
        capacity: Val,
        (quote, dst): (Quote, IrReg),
        (read, fail): (Label, Label),
    ) -> Res {
        if width <= MARK || !use_user_defer(self.pool, self.plan, self.options)? {
            self.asm.jump(fail);
            return Ok(());
        }
        self.asm
            .jump_if(Cond::Ne, result, super::usermem::ABSENT, fail);
        self.begin_text(width);
        let capacity = self.text_capacity(capacity, width)?;
        let capacity = self.asm.alu_of(AluOp::Add, capacity, -1);
        let from = self.block_word(self.plan.scratch.err_aux);
        let instead = substitute(self.body, self.cur_block, dst);
        let instead = instead.map_or(0, |s| s.index().fit::<i64>() + 1);
        let how = quote as i64 | instead << SUBSTITUTE_SHIFT;
        let how = self.asm.constant(how);
        let args = [from.into(), capacity.into(), how.into()];
        let refused = self.asm.call_sub_with(USER_DEFER, &args);
        self.asm.jump_if(Cond::Ne, refused, 0, fail);
        self.end_text(off, width);
        self.asm.jump(read);
        Ok(())
    }

    /// 1 if strings in this text may be deferred, otherwise 0.
    pub(crate) fn may_defer(&self, dst: IrReg) -> i32 {
        i32::from(self.deferrable(dst) == Some(Quote::No))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_constants_stand_for_unreadable_memory() {
        let body = |catch: &str| {
            let text = format!(
                r#"limits maxaction=1000 maxaction_interruptible=10000 maxstringlen=511 maxmapentries=2048 maxerrors=0 maxskipped=100 maxnesting=10 maxtrylock=100
site @0 "unknown"
str s0 "x"
str s1 "none"
fmt f0 "%s\n"
handler "h" points 1 sys_enter(39) @0 {{
  regs r0: str512, r1: str512, r2: str8
  b0:
    r2 = copy s1
    jump b1
  b1: catch b2
    r0 = intr user_str(1, 511)
    r1 = copy r0
    jump b3
  b2:
{catch}
    jump b3
  b3:
    print out f0(r1)
    ret
}}
"#
            );
            let mut program = spile_ir::reader::read(&text).expect("a program");
            substitute(&program.handlers.remove(0).body, BlockId(1), IrReg(0))
        };
        assert_eq!(body("    tick 1\n    r1 = copy r2"), Some(StrId(1)));
        assert_eq!(body("    r1 = copy s0"), Some(StrId(0)));
        assert_eq!(body("    r1 = concat s0, s1"), None);
        assert_eq!(body("    print out f0(s0)\n    r1 = copy s0"), None);
        assert_eq!(body("    r2 = copy s0"), None);
    }
}
