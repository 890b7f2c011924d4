//! Outlining: operations with helper calls become subprograms where there are many handlers or much
//! code.
//!
//! The kernel rewrites some helper calls into several instructions, and moves the rest of the
//! program for each one. With such calls in every handler, load time grows with the square of the
//! script: seconds for 850 handlers, measured on 6.18. A call costs a hit 1 to 2 ns.

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, Label};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{Cond, Reg, Size};
use spile_layout::{PerCpuArray, percpu, shared};
use spile_lir::library::iterations;
use spile_lir::library::output::{FLUSH, FlushLayout};
use spile_lir::library::routine::Routine;

use crate::compiled::RING;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::handler::global_subprogram::FULL;
use crate::lower::slots::{BLOCK, GEN, block_at};

/// Values that the subprogram of [`HandlerCodegen::element_outlined`] leaves in the first scratch
/// word.
const NO_MEMORY: i32 = 0;

impl HandlerCodegen<'_> {
    /// `r7` = this CPU's area, marked busy, with the locks taken. Goes to `out` if the handler may
    /// not run.
    pub(crate) fn enter_outlined(&mut self, locks: &[u32], out: Label) -> Res {
        let (plan, cpus) = (self.plan, self.options.cpus);
        // Events that an interrupt can bring use another counter.
        let held = !locks.is_empty() && self.own_hits() == percpu::SKIP_HELD;
        let name = with_locks(if held { "enter_held" } else { "enter" }, locks);
        self.define_global(&name, ["handler"], |g, [handler]| {
            let (done, free) = (g.done, g.asm.label());
            let running = g.shared_address(shared::RUNNING);
            g.asm.load(Size::DW, running, running, 0);
            g.asm.jump_if(Cond::Eq, running, 0, done);
            let busy = g.asm.word(BLOCK, percpu::BUSY.fit());
            g.asm.jump_if(Cond::Eq, busy, 0, free);
            g.count_skipped(busy, done);
            g.asm.bind(free);
            g.asm.store(Size::DW, BLOCK, percpu::BUSY.fit(), handler);
            g.lock(locks, done)?;
            let cpu = g.asm.call_with(Helper::GetSmpProcessorId, &[]);
            g.asm.add(cpu, 1);
            g.asm.ret(cpu);
            Ok(())
        })?;
        let handler = self.handler.0.cast_signed() + 1;
        let cpu = self.asm.call_sub_with(name, &[handler.into()]);
        self.asm.add(cpu, -1);
        self.asm.jump_if(Cond::Ge, cpu, cpus, out);
        plan.block_of_cpu(self.asm, cpu, BLOCK);
        Ok(())
    }

    /// Releases the locks, sends the output buffer and marks the processor idle.
    pub(crate) fn leave_outlined(&mut self, locks: &[u32]) -> Res {
        let name = with_locks("leave", locks);
        self.define_global(&name, [], |g, []| {
            for lock in locks.iter().rev() {
                g.unlock(*lock);
            }
            g.flush();
            g.asm.store(Size::DW, BLOCK, percpu::BUSY.fit(), 0);
            Ok(())
        })?;
        self.asm.call_sub(name);
        Ok(())
    }

    /// Sends the output buffer.
    pub(crate) fn flush_outlined(&mut self) {
        let end = self.asm.label();
        let position = self.block_word(self.plan.scratch.out_pos);
        self.asm.jump_if(Cond::Eq, position, 0, end);
        self.call_flush();
        self.asm.bind(end);
    }

    /// Sends the output buffer, which is not empty.
    pub(crate) fn call_flush(&mut self) {
        let plan = self.plan;
        let layout = FlushLayout {
            running: percpu::BUSY,
            position: plan.scratch.out_pos,
            buffer: plan.scratch.out,
            size: plan.scratch.out_size,
            ring: RING,
            wake: shared::WAKE,
            lost: percpu::LOST_OUTPUT,
        };
        let routine = Ok(Routine::Flush(layout));
        let made = self.pool.routine(FLUSH, Some(plan), |_| routine);
        debug_assert!(made.is_ok(), "{made:?}");
        self.asm.call_sub_with(FLUSH, &[]);
    }

    /// The address of the value for the key in the key buffer, or 0.
    pub(crate) fn look_up_outlined(&mut self, map: &str) -> Res<Reg> {
        let name = format!("find_{map}");
        self.pool
            .define_once(&name, None, || iterations::find(&name, map))?;
        let key = block_at(self.plan.scratch.key);
        Ok(self.asm.call_sub_with(name, &[key]))
    }

    /// Calls [`HandlerCodegen::element_in_map`] as a subprogram.
    pub(crate) fn element_outlined(
        &mut self,
        array: &PerCpuArray,
        full: Option<Label>,
        skip: Label,
    ) -> Res<Reg> {
        let any = if full.is_some() { "" } else { "any_" };
        let name = format!("{any}element_{}", array.maps.first().map_or("", |m| m));
        if !self.pool.subs.contains_key(&name) {
            let mut asm = Asm::new(&name, &["block", "generation"]);
            let mut sub = self.sub_codegen(&mut asm);
            sub.element_sub(array, full.is_some())?;
            let function = asm.finish()?;
            self.pool.subs.insert(name.clone(), function);
        }
        let element = self.asm.label();
        let args = [BLOCK.into(), self.generation(array.double())];
        let address = self.asm.call_sub_with(name, &args);
        self.asm.jump_if(Cond::Ne, address, 0, element);
        if let Some(full) = full {
            let reason = self.block_word(self.plan.scratch.tmp);
            self.asm.jump_if(Cond::Eq, reason, FULL, full);
        }
        self.asm.jump(skip);
        self.asm.bind(element);
        Ok(address)
    }

    /// The subprogram's code: returns the key's element, which it inserts if absent, or 0 with the
    /// reason in a scratch word.
    fn element_sub(&mut self, array: &PerCpuArray, can_be_full: bool) -> Res {
        let skip = self.asm.label();
        let full = can_be_full.then(|| self.asm.label());
        let [block, generation] = self.asm.parameters();
        self.asm.mov(BLOCK, block);
        self.asm.store(Size::DW, R10, GEN, generation);
        let address = self.element_in_map(array, full, skip)?;
        self.asm.ret(address);
        let tmp = self.plan.scratch.tmp;
        if let Some(full) = full {
            self.asm.bind(full);
            self.store(tmp, FULL);
            self.asm.ret(0);
        }
        self.asm.bind(skip);
        self.store(tmp, NO_MEMORY);
        self.asm.ret(0);
        Ok(())
    }
}

/// The name of a subprogram, by the locks that it takes.
fn with_locks(name: &str, locks: &[u32]) -> String {
    locks.iter().fold(name.into(), |n, l| format!("{n}_{l}"))
}
