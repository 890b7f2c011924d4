//! Resumable loops: bodies whose number of iterations the verifier need not bound.
//!
//! The body becomes a callback that `bpf_loop` (Linux 5.17) calls repeatedly. One call is a *step*:
//! it runs until the body ends or takes a back edge. A back edge stores its target in a word of the
//! CPU's block and returns; the next step resumes there. Registers that are live at a resume point
//! are in the frame. The verifier knows nothing of their values and is done after one iteration.
//! MAXACTION ends a loop. `bpf_loop` makes at most 2^23 steps, which is beyond any useful limit and
//! is treated like MAXACTION.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, Label};
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{Cond, Size};
use spile_ir::{BlockId, Event};
use spile_layout::ErrorKind;

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::out_of_line::{BackEdge, OutOfLine};
use crate::lower::slots::{BLOCK, CTX, GEN, NR, TASK, TMP};
use crate::lower::syscalls::reads_number;

/// The limit on steps (the kernel's `BPF_MAX_LOOPS`).
const STEPS: i32 = 1 << 23;
/// Value of the resume word after the body has ended.
const ENDED: i32 = -1;
/// Stack slot that holds the per-CPU area while steps run.
const BLOCK_WORD: i16 = TMP[0];

impl HandlerCodegen<'_> {
    /// The label to jump to from the current block to reach `to`.
    pub(crate) fn branch_target(&mut self, to: BlockId) -> Label {
        let location = |b: BlockId| self.alloc.layout_index[b.index()];
        if self.alloc.resume.is_empty() || location(to) > location(self.cur_block) {
            return self.labels[to.index()];
        }
        let same = |c: &OutOfLine| match c {
            OutOfLine::BackEdge(b) if b.to == to => Some(b.label),
            _ => None,
        };
        if let Some(label) = self.out_of_line.iter().find_map(same) {
            return label;
        }
        let label = self.asm.label();
        self.out_of_line
            .push(OutOfLine::BackEdge(BackEdge { label, to }));
        label
    }

    /// Ends the step; the next one resumes at the edge's target.
    pub(crate) fn emit_back_edge(&mut self, back: BackEdge) {
        self.asm.bind(back.label);
        let number = self.alloc.resume.iter().position(|b| *b == back.to);
        debug_assert!(number.is_some(), "no step begins at {:?}", back.to);
        self.store(self.plan.scratch.resume, number.unwrap_or(0).fit::<i32>());
        self.asm.ret(0);
    }

    /// Runs the body from `first` on as a sequence of steps.
    pub(crate) fn emit_resumable_loop(&mut self, first: BlockId, order: &[BlockId]) -> Res {
        let name = format!("steps{}", self.handler.0);
        let mut asm = Asm::new(&name, &["index", "stack"]);
        let task_saved = self.task_saved;
        let mut body = self.sub_codegen(&mut asm);
        body.task_saved = task_saved;
        body.use_numbers(order);
        body.emit_step(first, order)?;
        let function = asm.finish()?;
        self.pool.subs.insert(name.clone(), function);

        let word = self.plan.scratch.resume;
        self.store(word, 0);
        self.asm.store(Size::DW, R10, BLOCK_WORD, BLOCK);
        self.asm.repeat_call(STEPS.into(), name.as_str(), TASK);
        let resume = self.block_word(word);
        self.site = self.program.handlers[self.handler.index()].site;
        self.catch = None;
        let fail = self.fail_label(ErrorKind::MaxAction);
        self.asm.jump_if(Cond::Ne, resume, ENDED, fail);
        self.asm.jump(self.done);
        Ok(())
    }

    /// Emits the callback: one step.
    fn emit_step(&mut self, first: BlockId, order: &[BlockId]) -> Res {
        let event = self.ctx.event();
        let call = matches!(event, Event::SysEnter(_) | Event::SysExit(_));
        let call = call && self.body.blocks.iter().any(reads_number);
        let slots = [
            (CTX, true),
            (GEN, self.uses_generation()),
            (NR, call),
            (TASK, self.task_saved),
        ];
        let [_, stack] = self.asm.parameters();
        for (slot, _) in slots.iter().filter(|s| s.1) {
            let value = self.asm.word(stack, slot - TASK);
            self.asm.store(Size::DW, R10, *slot, value);
        }
        self.asm.load(Size::DW, BLOCK, stack, BLOCK_WORD - TASK);
        let resume = self.block_word(self.plan.scratch.resume);
        let entry = self.labels[first.index()];
        for (i, b) in self.alloc.resume.iter().enumerate().skip(1) {
            if order.contains(b) {
                let label = self.labels[b.index()];
                self.asm.jump_if(Cond::Eq, resume, i.fit::<i32>(), label);
            }
        }
        self.asm.jump(entry);
        self.blocks(order)?;
        self.emit_out_of_line()?;
        self.asm.bind(self.done);
        self.store(self.plan.scratch.resume, ENDED);
        self.asm.ret(1);
        Ok(())
    }
}
