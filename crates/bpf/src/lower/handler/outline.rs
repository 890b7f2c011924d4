//! Outlining: operations with helper calls become subprograms where there are many handlers or much
//! code.
//!
//! The kernel rewrites some helper calls into several instructions, and moves the rest of the
//! program for each one. With such calls in every handler, load time grows with the square of the
//! script: seconds for 850 handlers, measured on 6.18. A call costs a hit 1 to 2 ns.

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{Cond, Size};
use crate::layout::{PerCpuArray, RING, percpu, shared};
use crate::lower::handler::global_subprogram::FULL;
use crate::lower::{GEN, HandlerCodegen, Res};
use crate::plan::StateLayout;

/// Values that the subprogram of [`HandlerCodegen::element_outlined`] leaves in the first scratch
/// word.
const NO_MEMORY: i32 = 0;

impl HandlerCodegen<'_> {
    /// `r7` = this CPU's block, marked busy, with the locks taken. Goes to `out` if the handler may
    /// not run.
    pub(in crate::lower) fn enter_outlined(&mut self, locks: &[u32], out: Label) -> Res {
        let (plan, cpus) = (self.plan, self.options.cpus);
        // Events that an interrupt can bring use another counter.
        let held = !locks.is_empty() && self.own_hits() == percpu::SKIP_HELD;
        let name = with_locks(if held { "enter_held" } else { "enter" }, locks);
        self.define_global(&name, &["handler"], |g| {
            let (done, free) = (g.done, g.asm.label());
            g.shared(R1, shared::RUNNING);
            g.asm.load(Size::DW, R1, R1, 0);
            g.asm.jump_if(Cond::Eq, R1, 0, done);
            g.asm.load(Size::DW, R1, R7, percpu::BUSY as i16);
            g.asm.jump_if(Cond::Eq, R1, 0, free);
            g.count_skipped(done);
            g.asm.bind(free);
            g.asm.store(Size::DW, R7, percpu::BUSY as i16, R6);
            g.lock(locks, done)?;
            g.asm.call(Helper::GetSmpProcessorId);
            g.asm.add(R0, 1);
            g.asm.exit();
            Ok(())
        })?;
        self.asm.mov(R1, self.handler.0 as i32 + 1);
        self.asm.call_sub(name);
        self.asm.add(R0, -1);
        self.asm.jump_if(Cond::Ge, R0, cpus as i32, out);
        plan.block_of_cpu(self.asm, R7);
        Ok(())
    }

    /// Releases the locks, sends the output buffer and marks the processor idle.
    pub(in crate::lower) fn leave_outlined(&mut self, locks: &[u32]) -> Res {
        let name = with_locks("leave", locks);
        self.define_global(&name, &[], |g| {
            for lock in locks.iter().rev() {
                g.unlock(*lock);
            }
            g.flush();
            g.asm.store(Size::DW, R7, percpu::BUSY as i16, 0);
            Ok(())
        })?;
        self.asm.call_sub(name);
        Ok(())
    }

    /// Sends the output buffer. Clobbers r0 to r5.
    pub(in crate::lower) fn flush_outlined(&mut self) {
        let end = self.asm.label();
        self.load(R3, self.plan.scratch.out_pos);
        self.asm.jump_if(Cond::Eq, R3, 0, end);
        self.call_flush();
        self.asm.bind(end);
    }

    /// Sends the output buffer, which is not empty. Clobbers r0 to r5.
    pub(in crate::lower) fn call_flush(&mut self) {
        let plan = self.plan;
        // The function is constant and always assembles.
        let made = self.pool.sub("flush", |_| flush(plan));
        debug_assert!(made.is_ok(), "{made:?}");
        self.asm.call_sub("flush");
    }

    /// `r0` = element of a hash map by the key in the key buffer, or 0.
    pub(in crate::lower) fn look_up_outlined(&mut self, map: &str) -> Res {
        let name = format!("find_{map}");
        self.pool.sub(&name, |_| find(&name, map))?;
        self.block_addr(R1, self.plan.scratch.key);
        self.asm.call_sub(name);
        Ok(())
    }

    /// Calls [`HandlerCodegen::element_in_map`] as a subprogram.
    pub(in crate::lower) fn element_outlined(
        &mut self,
        array: &PerCpuArray,
        full: Option<Label>,
        (element, skip): (Label, Label),
    ) -> Res {
        let any = if full.is_some() { "" } else { "any_" };
        let name = format!("{any}element_{}", array.maps.first().map_or("", |m| m));
        if !self.pool.subs.contains_key(&name) {
            let mut asm = Asm::new(&name, &["block", "generation"]);
            let mut sub = self.sub_codegen(&mut asm);
            sub.element_sub(array, full.is_some())?;
            let function = asm.finish().map_err(|e| e.to_string())?;
            self.pool.subs.insert(name.clone(), function);
        }
        self.asm.mov(R1, R7);
        self.asm.mov(R2, 0);
        if array.double() {
            self.asm.load(Size::DW, R2, R10, GEN);
        }
        self.asm.call_sub(name);
        self.asm.mov(R1, R0);
        self.asm.jump_if(Cond::Ne, R1, 0, element);
        if let Some(full) = full {
            self.load(R1, self.plan.scratch.tmp);
            self.asm.jump_if(Cond::Eq, R1, FULL, full);
        }
        self.asm.jump(skip);
        Ok(())
    }

    /// The subprogram's code: returns the key's element, which it inserts if absent, or 0 with the
    /// reason in a scratch word.
    fn element_sub(&mut self, array: &PerCpuArray, can_be_full: bool) -> Res {
        let [element, skip, end] = std::array::from_fn(|_| self.asm.label());
        let full = can_be_full.then(|| self.asm.label());
        self.asm.mov(R7, R1);
        self.asm.store(Size::DW, R10, GEN, R2);
        self.element_in_map(array, full, (element, skip))?;
        let tmp = self.plan.scratch.tmp;
        if let Some(full) = full {
            self.asm.bind(full);
            self.store(tmp, FULL);
            self.asm.mov(R0, 0);
            self.asm.jump(end);
        }
        self.asm.bind(skip);
        self.store(tmp, NO_MEMORY);
        self.asm.mov(R0, 0);
        self.asm.jump(end);
        self.asm.bind(element);
        self.asm.mov(R0, R1);
        self.asm.bind(end);
        self.asm.exit();
        Ok(())
    }
}

/// The name of a subprogram, by the locks that it takes.
fn with_locks(name: &str, locks: &[u32]) -> String {
    locks.iter().fold(name.into(), |n, l| format!("{n}_{l}"))
}

/// `find(key)`: returns the element, or 0.
fn find(name: &str, map: &str) -> Result<Function, String> {
    let mut asm = Asm::new(name, &["key"]);
    asm.mov(R2, R1);
    asm.ld_map(R1, map);
    asm.call(Helper::MapLookupElem);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// `flush()`: sends this CPU's output buffer on behalf of the running handler.
fn flush(plan: &StateLayout) -> Result<Function, String> {
    let mut asm = Asm::new("flush", &[]);
    asm.mark_separate();
    let end = asm.label();
    let size = plan.scratch.out_size as i32;
    plan.cpu_block(&mut asm, R7, end);
    asm.load(Size::DW, R8, R7, percpu::BUSY as i16);
    asm.add(R8, -1);
    asm.mov(R6, R7);
    asm.add(R6, plan.scratch.out_pos as i32);
    asm.load(Size::DW, R3, R6, 0);
    asm.jump_if(Cond::Eq, R3, 0, end);
    asm.jump_if(Cond::Gt, R3, size, end);
    asm.mov(R2, R7);
    asm.add(R2, plan.scratch.out as i32);
    asm.store(Size::W, R2, 0, R8);
    asm.store(Size::W, R2, 4, R3);
    asm.ld_data(R4, Section::Bss, shared::WAKE);
    asm.load(Size::DW, R4, R4, 0);
    asm.ld_map(R1, RING);
    asm.call(Helper::RingbufOutput);
    asm.store(Size::DW, R6, 0, 0);
    asm.jump_if(Cond::Eq, R0, 0, end);
    asm.load(Size::DW, R1, R7, percpu::LOST_OUTPUT as i16);
    asm.add(R1, 1);
    asm.store(Size::DW, R7, percpu::LOST_OUTPUT as i16, R1);
    asm.bind(end);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
