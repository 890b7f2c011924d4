//! Raising and catching errors, and the messages of caught errors.

use spile_cast::Cast;
use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Src};
use spile_ir::{Reg as IrReg, Ty, Val};
use spile_layout::{ErrorKind, RecordKind, RecordShape, shared};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::out_of_line::{FailurePath, OutOfLine};
use crate::lower::text::fields::OutputField;

impl HandlerCodegen<'_> {
    /// The jump target for an error at the current instruction. The caller has put the address of a
    /// fault into the scratch word `err_aux`, or the text of `error()` into `err_text`.
    pub(crate) fn fail_label(&mut self, kind: ErrorKind) -> Label {
        let catch = self.catch.map(|c| (c, self.branch_target(c)));
        let same = |c: &OutOfLine| match c {
            OutOfLine::Fail(f) if f.kind == kind && f.site == self.site && f.catch == catch => {
                Some(f.label)
            }
            _ => None,
        };
        if let Some(label) = self.out_of_line.iter().find_map(same) {
            return label;
        }
        let label = self.asm.label();
        self.out_of_line.push(OutOfLine::Fail(FailurePath {
            label,
            kind,
            site: self.site,
            catch,
        }));
        label
    }

    /// Fails unconditionally. The code behind stays reachable for the verifier.
    pub(crate) fn fail_now(&mut self, kind: ErrorKind) {
        let label = self.fail_label(kind);
        self.jump_opaque(label);
    }

    /// Jumps unconditionally. The code behind stays reachable for the verifier.
    pub(crate) fn jump_opaque(&mut self, label: Label) {
        let zero = self.asm.copy(0);
        self.asm.jump_if(Cond::Eq, zero, 0, label);
    }

    /// Sets the address or number of an error.
    pub(crate) fn set_aux(&mut self, value: impl Into<Src>) {
        self.store(self.plan.scratch.err_aux, value);
    }

    /// Emits a failure path.
    pub(crate) fn emit_fail(&mut self, fail: FailurePath) -> Res {
        self.asm.bind(fail.label);
        self.line(fail.site);
        if let Some((_, label)) = fail.catch {
            let id = self.error_id(fail.kind)?;
            self.store(self.plan.scratch.err_id, id);
            if self.facts.rethrows {
                self.store(self.plan.scratch.err_site, fail.site.0);
                self.store(self.plan.scratch.err_callers, 0);
            }
            self.asm.jump(label);
            return Ok(());
        }
        let field = fail.kind.field(self.plan.max_string);
        let record = self.pool.record(RecordShape::new(
            RecordKind::Error {
                kind: fail.kind,
                site: fail.site,
                handler: self.handler,
            },
            field.into_iter().collect(),
        ));
        if self.outlined() {
            return self.error_global(record, field);
        }
        self.error_piece(record.into(), field)?;
        self.count_error();
        self.asm.jump(self.done);
        Ok(())
    }

    /// Appends the record of an error to the output.
    pub(crate) fn error_piece(&mut self, record: Src, field: Option<Ty>) -> Res {
        let fields: Vec<Ty> = field.into_iter().collect();
        self.piece_of((record, 0), &fields, &mut |g, i| {
            debug_assert_eq!(i, 0);
            let scratch = &g.plan.scratch;
            Ok(match field {
                Some(Ty::Str(_)) => OutputField::Text(StrOperand::Slot {
                    off: scratch.err_text,
                    width: g.plan.max_string,
                }),
                _ => OutputField::Long(g.block_word(scratch.err_aux).into()),
            })
        })
    }

    /// Counts an error, and ends the session after too many.
    pub(crate) fn count_error(&mut self) {
        let (state, earlier) = (self.shared_address(0), self.asm.copy(1));
        self.asm.atomic(
            AtomicOp::FetchAdd,
            state,
            shared::ERRORS.fit::<i16>(),
            earlier,
        );
        let most = i64::try_from(self.program.limits.maxerrors).unwrap_or(i64::MAX);
        if most > 0 {
            let limit = self.asm.new_reg();
            self.asm.imm(limit, most);
            self.asm.jump_if(Cond::Lt, earlier, limit, self.done);
        }
        self.end_session(state);
    }

    /// The number that identifies an error in catch blocks: its index in the body's `error_kinds`,
    /// plus one.
    fn error_id(&self, kind: ErrorKind) -> Res<i32> {
        let index = self.ctx.error_kinds().iter().position(|k| *k == kind);
        index
            .map(|i| i.fit::<i32>() + 1)
            .ok_or("an unknown error".into())
    }

    pub(crate) fn raise(&mut self, msg: Val) -> Res {
        let text = self.text(msg)?;
        self.copy_text(self.plan.scratch.err_text, self.plan.max_string, &text)?;
        self.fail_now(ErrorKind::Raised);
        Ok(())
    }

    /// `dst` = message of the error that led to this catch block. The kind is a run-time value.
    pub(crate) fn catch_msg(&mut self, dst: IrReg) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let kinds = self.ctx.error_kinds().to_vec();
        let end = self.asm.label();
        for (i, kind) in kinds.into_iter().enumerate() {
            let next = self.asm.label();
            let id = self.block_word(self.plan.scratch.err_id);
            self.asm.jump_if(Cond::Ne, id, i.fit::<i32>() + 1, next);
            let message = kind.message(self.program).into_bytes();
            match kind.field(self.plan.max_string) {
                Some(Ty::Str(_)) => {
                    let text = StrOperand::Slot {
                        off: self.plan.scratch.err_text,
                        width: self.plan.max_string,
                    };
                    self.copy_text(off, width, &text)?;
                }
                Some(Ty::Long) => self.build_message(off, width, &message)?,
                None => {
                    let bytes = message.into();
                    self.copy_text(off, width, &StrOperand::Const { bytes })?;
                }
            }
            self.asm.jump(end);
            self.asm.bind(next);
        }
        self.fill_zero(off, width);
        self.asm.bind(end);
        Ok(())
    }

    pub(crate) fn tick(&mut self, n: u32) -> Res {
        if !self.ctx.ticking || n == 0 {
            return Ok(());
        }
        let fail = self.fail_label(ErrorKind::MaxAction);
        let ticks = self.block_word(self.plan.scratch.ticks);
        self.asm.alu(AluOp::Sub, ticks, n);
        self.store(self.plan.scratch.ticks, ticks);
        self.asm.jump_if(Cond::Slt, ticks, 0, fail);
        Ok(())
    }
}
