//! Deferred reads: strings of user memory that only the controller can read.
//!
//! If a page is not in memory, the kernel has to read it from its file or create it, for which a
//! handler cannot wait. The controller can, because it is an ordinary process that reads another
//! process's memory. A string that a handler only prints is therefore left to it. `user_defer`
//! immediately sends a record with the process and the address, and puts a mark in place of the
//! string, which the controller replaces when it prints. The mark is a secret word of the session,
//! the read's number in hex, and a semicolon. No text of a process can be mistaken for one, because
//! the word is random.
//!
//! A string that a handler compares, stores or measures is never deferred: [`super::deferred_modes`] finds the
//! registers that are used only in output. All other reads fail, with the address.

use spile_ir::{BlockId, Body, Inst, Reg as IrReg, StrId, Term, Ty, Val};

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::layout::{Quote, RING, RecordKind, RecordShape, SUBSTITUTE_SHIFT, percpu, shared};
use crate::lower::text::put::ArgAppender;
use crate::lower::{HandlerCodegen, Res};
use crate::plan::StateLayout;
use crate::target::Options;

/// Name of the subprogram.
pub(in crate::lower) const USER_DEFER: &str = "user_defer";
/// The largest size of a mark: word, number, semicolon.
const MARK: u32 = 33;
/// Hexadecimal digits of the read's number.
const DIGITS: i16 = 16;
/// Fields of the record of a deferred read, all numbers.
const FIELDS: usize = 8;
/// Size of such a record: header, shape, fields.
const RECORD: i16 = 16 + 8 * FIELDS as i16;
/// Position of the processor's number within the read's number.
const CPU_SHIFT: i32 = 40;

/// The constant that replaces a register's text if its read fails, provided that the `catch` does
/// nothing else, as that of `user_string2`.
fn substitute(body: &Body, here: BlockId, dst: IrReg) -> Option<StrId> {
    let block = body.blocks.get(here.index())?;
    let catch = body.blocks.get(block.catch?.index())?;
    if block.term != catch.term || !matches!(catch.term, Term::Jump(_)) {
        return None;
    }
    let insts = catch.insts.iter().map(|(i, _)| i);
    let mut of_note = insts.filter(|i| !matches!(i, Inst::Tick { .. }));
    let (Some(Inst::Copy { dst: result, src }), None) = (of_note.next(), of_note.next()) else {
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
    let all = || body.insts();
    match src {
        Val::Str(text) => Some(*text),
        Val::Reg(r) => {
            let mut sets = all().filter(|i| i.dst() == Some(*r));
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

/// Defines `user_defer(address, room, quote)` if the kernel supports it. The subprogram defers the
/// read and appends a mark to the text being built. It returns nonzero if the read cannot be
/// deferred.
pub(in crate::lower) fn use_user_defer(
    pool: &mut crate::lower::Pool,
    plan: &StateLayout,
    options: &Options,
) -> Res<bool> {
    let o = &options.offsets;
    let fields = [o.task_pid, o.task_start, o.task_exec_id];
    let [Some(tid), Some(start), Some(exec)] =
        fields.map(|f| f.and_then(|f| i16::try_from(f).ok()))
    else {
        return Ok(false);
    };
    pool.use_append_text(plan)?;
    let shape = pool.record(RecordShape {
        what: RecordKind::Deferred,
        fields: vec![Ty::Long; FIELDS],
        words: 0,
    });
    pool.sub(USER_DEFER, |_| {
        let p = ArgAppender::new(USER_DEFER, &["address", "room", "quote"], plan);
        user_defer(p, shape, [tid, start, exec])
    })?;
    Ok(true)
}

impl HandlerCodegen<'_> {
    /// How the controller writes the text of a register whose read may be deferred.
    pub(in crate::lower) fn deferrable(&self, dst: IrReg) -> Option<Quote> {
        self.ctx.deferred(dst)
    }

    /// Defers a string if `r0` says that the memory may exist, and puts the mark into the slot. The
    /// address is in `err_aux`. Goes to `read` if that succeeded, otherwise to `fail`.
    pub(in crate::lower) fn defer(
        &mut self,
        (off, width): (u32, u32),
        room: Val,
        (quote, dst): (Quote, IrReg),
        (read, fail): (Label, Label),
    ) -> Res {
        if width <= MARK || !use_user_defer(self.pool, self.plan, self.options)? {
            self.asm.jump(fail);
            return Ok(());
        }
        self.asm.jump_if(Cond::Ne, R0, super::usermem::ABSENT, fail);
        self.begin_text(width);
        self.room_into(room, width)?;
        self.asm.add(R2, -1);
        self.load(R1, self.plan.scratch.err_aux);
        let instead = substitute(self.body, self.cur_block, dst);
        let instead = instead.map_or(0, |s| s.index() as i64 + 1);
        let how = quote as i64 | instead << SUBSTITUTE_SHIFT;
        self.asm.imm(R3, how);
        self.asm.call_sub(USER_DEFER);
        self.asm.jump_if(Cond::Ne, R0, 0, fail);
        self.end_text(off, width);
        self.asm.jump(read);
        Ok(())
    }

    /// 1 if strings in this text may be deferred, otherwise 0.
    pub(in crate::lower) fn may_defer(&self, dst: IrReg) -> i32 {
        i32::from(self.deferrable(dst) == Some(Quote::No))
    }
}

/// `user_defer(address, room, quote)`: r7 and r8 are the first two arguments.
fn user_defer(mut p: ArgAppender<'_>, shape: u32, [tid, start, exec]: [i16; 3]) -> Res<Function> {
    let failed = p.asm.label();
    let at = (p.plan.scratch.text + 4 * p.plan.max_string + 64) as i32;
    let asm = &mut p.asm;
    // r9: the record.
    asm.mov(R2, R9);
    asm.mov(R9, R6);
    asm.add(R9, at);
    let field = |n: i16| 16 + 8 * n;
    asm.store(Size::DW, R9, field(3), R2);
    asm.store(Size::DW, R9, field(1), R7);
    asm.store(Size::DW, R9, field(2), R8);
    asm.store(Size::W, R9, 0, 0);
    asm.store(Size::W, R9, 4, i32::from(RECORD));
    asm.store(Size::DW, R9, 8, shape as i32);
    // Without the session's word the controller would not recognise the mark.
    asm.ld_data(R7, Section::Bss, shared::MARK);
    asm.load(Size::DW, R1, R7, 0);
    asm.jump_if(Cond::Eq, R1, 0, failed);
    asm.call(Helper::GetSmpProcessorId);
    asm.alu(AluOp::Lsh, R0, CPU_SHIFT);
    let count = percpu::DEFERRED as i16;
    asm.load(Size::DW, R8, R6, count);
    asm.add(R8, 1);
    asm.store(Size::DW, R6, count, R8);
    asm.add(R8, R0);
    asm.store(Size::DW, R9, field(0), R8);
    asm.call(Helper::GetCurrentTaskBtf);
    asm.load(Size::W, R1, R0, tid);
    asm.store(Size::DW, R9, field(5), R1);
    asm.load(Size::DW, R1, R0, start);
    asm.store(Size::DW, R9, field(6), R1);
    asm.load(Size::DW, R1, R0, exec);
    asm.store(Size::DW, R9, field(7), R1);
    asm.call(Helper::GetCurrentTask);
    asm.store(Size::DW, R9, field(4), R0);
    asm.ld_map(R1, RING);
    asm.mov(R2, R9);
    asm.mov(R3, i32::from(RECORD));
    asm.mov(R4, shared::FORCE_WAKEUP);
    asm.call(Helper::RingbufOutput);
    asm.jump_if(Cond::Ne, R0, 0, failed);
    p.asm.mov(R2, R7);
    p.text(16 + 1);
    let digits = p.plan.scratch.digits as i16;
    hex(&mut p.asm, R8, R6, digits);
    p.asm.mov(R2, R6);
    p.asm.add(R2, i32::from(digits));
    p.text(DIGITS as i32 + 2);
    p.asm.jump(p.end);
    p.asm.bind(failed);
    p.asm.mov(R0, 1);
    p.asm.exit();
    p.finish()
}

/// Writes a number's hex digits, a semicolon and a NUL to `base + at`. The code has no jumps,
/// because the verifier follows every path. Clobbers r1 and r2.
fn hex(asm: &mut Asm, number: Reg, base: Reg, at: i16) {
    for i in 0..DIGITS {
        asm.mov(R1, number);
        asm.alu(AluOp::Rsh, R1, i32::from(4 * (DIGITS - 1 - i)));
        asm.alu(AluOp::And, R1, 15);
        // Adding 6 carries into the next digit from 10 on; `a` is 39 above `'0' + 10`.
        asm.mov(R2, R1);
        asm.add(R2, 6);
        asm.alu(AluOp::Rsh, R2, 4);
        asm.alu(AluOp::Mul, R2, i32::from(b'a' - b'0' - 10));
        asm.add(R1, R2);
        asm.add(R1, i32::from(b'0'));
        asm.store(Size::B, base, at + i, R1);
    }
    asm.store(Size::B, base, at + DIGITS, i32::from(b';'));
    asm.store(Size::B, base, at + DIGITS + 1, 0);
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
