//! Names of user symbols, for handlers that inspect them. The run-time library finds a frame's file and
//! symbol in tables that the controller loads with the file (see [`spile_layout::symbol_row`]),
//! and writes the same text as the controller ([`spile_lir::library::stacks`]).

use spile_ebpf::isa::asm::CallArg;
use spile_ir::marks::BodyId;
use spile_ir::{Reg as IrReg, Val};
use spile_layout::SymbolicForm;
use spile_lir::library::stacks::part;

use super::unwinds;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;

/// The parts that a form consists of.
fn form_parts(form: SymbolicForm) -> i32 {
    use part::{AT, BASE, END, FILE, LINE, LOCATION, MODULE, NUMBER, OFFSET, ONLY, SIZE, STACK};
    match form {
        SymbolicForm::UserLines => LINE | OFFSET | SIZE | MODULE | END | STACK,
        SymbolicForm::UserSimple => OFFSET | BASE | END | STACK,
        SymbolicForm::UserBrief => OFFSET | END | STACK,
        SymbolicForm::UserData => OFFSET | SIZE | MODULE,
        SymbolicForm::UserModule => ONLY,
        SymbolicForm::UserFileLines => AT | form_parts(SymbolicForm::UserLines),
        SymbolicForm::UserSimpleLines => AT | form_parts(SymbolicForm::UserSimple),
        SymbolicForm::UserFileLine => FILE | NUMBER,
        SymbolicForm::UserFile => FILE,
        SymbolicForm::UserLine => NUMBER,
        SymbolicForm::UserLocation => LOCATION,
        _ => 0,
    }
}

impl HandlerCodegen<'_> {
    /// Whether the handler makes the text for this register itself.
    pub(crate) fn makes_text(&self, dst: IrReg) -> bool {
        self.plan
            .marks
            .made_in_kernel(BodyId::Handler(self.handler.index()), dst)
    }

    /// Appends a frame of the buffer.
    pub(super) fn append_symbol(&mut self, form: SymbolicForm, index: u32) -> Res {
        self.use_append_symbol()?;
        let args = [index.cast_signed(), form_parts(form)].map(CallArg::from);
        self.asm.call_sub_with("append_symbol", &args);
        Ok(())
    }

    /// Appends the frames from `first` on, with the text that a mark stands for.
    pub(super) fn append_symbols(&mut self, form: SymbolicForm, first: Val) -> Res {
        self.use_append_symbol()?;
        self.pool.use_stack_text("append_symbols", self.plan)?;
        let first = self.unknown(first)?;
        let args = [form_parts(form).into(), first.into(), form.piece().into()];
        self.asm.call_sub_with("append_symbols", &args);
        Ok(())
    }

    fn use_append_symbol(&mut self) -> Res {
        let (plan, options) = (self.plan, self.options);
        let (buffer, ..) = unwinds(plan, options)?;
        let pool = &mut *self.pool;
        pool.use_stack_text("find_symbol", plan)?;
        pool.use_stack_text("append_file", plan)?;
        if buffer.words.lines {
            pool.use_append_number(plan, 10)?;
            pool.use_stack_text("append_location", plan)?;
        }
        pool.use_stack_text("append_symbol", plan)
    }
}
