//! Text of kernel stacks, and positions in the kernel's source, for handlers that inspect it. The
//! run-time library writes the same text as the controller ([`spile_lir::library::stacks`]).

use spile_ebpf::isa::asm::CallArg;
use spile_ir::Val;
use spile_layout::SymbolicForm;
use spile_lir::library::stacks::{self, line, location};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;

fn form_flags(form: SymbolicForm) -> i32 {
    match form {
        SymbolicForm::KernelSimple => 0,
        SymbolicForm::KernelFile => location::FILE,
        SymbolicForm::KernelLine => location::NUMBER,
        form if form.by_kernel_lines() => location::FILE | location::NUMBER,
        _ => line::LINE,
    }
}

impl HandlerCodegen<'_> {
    /// Appends the frames in the buffer from `first` on, with the text that a mark stands for.
    pub(super) fn append_kernel_lines(&mut self, form: SymbolicForm, first: Val) -> Res {
        let (plan, pool) = (self.plan, &mut *self.pool);
        pool.use_stack_text("kernel_line", plan)?;
        pool.use_stack_text("kernel_frame_line", plan)?;
        pool.use_stack_text("kernel_frame_lines", plan)?;
        let first = self.unknown(first)?;
        let args = [form_flags(form).into(), first.into(), form.piece().into()];
        self.asm.call_sub_with("kernel_frame_lines", &args);
        Ok(())
    }

    /// Appends the lines, or the positions in the source, of the addresses in a text of the block.
    pub(super) fn append_lines_of(&mut self, form: SymbolicForm, addresses: &StrOperand) -> Res {
        let StrOperand::Slot { off, width } = addresses else {
            return Err("a text that is not in the block".into());
        };
        let (plan, pool) = (self.plan, &mut *self.pool);
        let one = if form.by_kernel_lines() {
            pool.use_append_number(plan, 10)?;
            pool.use_stack_text("kernel_location", plan)?;
            "kernel_location"
        } else {
            pool.use_stack_text("kernel_line", plan)?;
            "kernel_line"
        };
        let (word, whole) = (format!("{one}_of_word"), format!("{one}s_of_{width}"));
        pool.use_stack_text(&word, plan)?;
        pool.use_stack_text_of(&whole, plan, |layout| stacks::of_text(layout, one, *width))?;
        let args = [off.cast_signed(), form_flags(form)].map(CallArg::from);
        self.asm.call_sub_with(whole, &args);
        Ok(())
    }
}
