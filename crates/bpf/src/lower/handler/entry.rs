//! The code around a handler's body: dispatch, the pure prefix, entry checks, locks, counters and
//! the exit.

use spile_cast::Cast;
use spile_ebpf::isa::asm::Label;
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::R10;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size, Src};
use spile_ir::{BlockId, Event, GlobalId, HostKind, Space};
use spile_layout::{GlobalLocation, HELD, counters, critical, percpu, shared};
use spile_lir::func::LoopForm;
use spile_lir::library::lock::{GOT, OWN, WAIT_LOCK, Waiters, wait_lock};

use crate::attach::attachment::Hook;
use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::slots::{BLOCK, GEN, VERDICT};
use crate::regalloc::Location;
use crate::target::PreemptionKfuncs;

/// The largest number of tries to take a lock (MAXTRYLOCK): 200 ms, as long as the controller waits, and
/// less than the 250 ms after which the kernel stops a loop.
const MAX_TRIES: u32 = 20_000;

/// Nanoseconds allowed for each attempt to take a lock (TRYLOCKDELAY).
const TRYLOCK_DELAY_NS: u32 = 10_000;

/// Values that are on the stack where a handler begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EntryState {
    /// The system call's number.
    pub number: bool,
    /// The number is there only behind the leading tests.
    pub late: bool,
    /// The current task.
    pub task: bool,
    /// The number is computed where it is used (see [`BodyContext::reads_number_late`]).
    pub asked: bool,
}

impl HandlerCodegen<'_> {
    /// Emits the whole handler. The context and, for system-call events, the number are on the
    /// stack. The code ends at `out`, which the caller binds. `wanted`: the caller has already
    /// filtered out events that the handler does not handle.
    pub(crate) fn handler(&mut self, out: Label, wanted: bool) -> Res {
        let event = self.ctx.event();
        if let (Event::SysEnter(set) | Event::SysExit(set), false) = (event, wanted) {
            self.dispatch(set, out);
        }
        self.prepare()?;
        let first = self.prefix(out)?;
        self.emit_from(first, out)
    }

    /// Sets up everything that the blocks rely on.
    pub(crate) fn prepare(&mut self) -> Res {
        for r in self.alloc.undefined.clone() {
            if matches!(self.location(r), Location::Reg(_) | Location::Stack(_)) {
                self.def_int(r, 0)?;
            }
        }
        Ok(())
    }

    /// Emits the handler from block `first` on.
    pub(crate) fn emit_from(&mut self, first: BlockId, out: Label) -> Res {
        let order = self.ctx.reachable(first);
        self.save_task_once(&order);
        let preemption = self.preemption();
        let end = match preemption {
            Some(_) => self.asm.label(),
            None => out,
        };
        if let Some(p) = preemption {
            self.asm.call_kfunc(p.off);
        }
        self.enter(end)?;
        self.clear_undefined()?;
        self.clear_tokens();
        self.use_numbers(&order);
        match self.alloc.resume.is_empty() {
            true => self.blocks(&order)?,
            false => self.emit_resumable_loop(first, &order)?,
        }
        self.emit_out_of_line()?;
        self.asm.bind(self.done);
        self.exit()?;
        if let Some(p) = preemption {
            self.asm.bind(end);
            self.asm.call_kfunc(p.on);
        }
        Ok(())
    }

    /// Uses the final locations of numbers, in the code of these blocks.
    pub(crate) fn use_numbers(&mut self, order: &[BlockId]) {
        self.numbers = self.ctx.numbers(order);
        if let Some(numbers) = self.numbers {
            self.locations = &numbers.locations;
        }
    }

    /// How to disable preemption at probes in user code, where BPF programs run preemptibly. A
    /// thread switched out inside a handler leaves the processor marked busy and its locks taken,
    /// so every hit there is skipped until the thread runs again: thousands in one time slice.
    ///
    /// Tracepoint programs are preemptible too since 6.19, but disabling preemption would not help
    /// there: the kernel itself skips a program that another thread is in, and would switch as soon
    /// as preemption is enabled again.
    fn preemption(&self) -> Option<PreemptionKfuncs> {
        let event = self.ctx.event();
        let user = matches!(event, Event::Code(probe) if probe.space == Space::User);
        self.options.features.preemption.filter(|_| user)
    }

    /// Loads the current task once if several instructions use it.
    fn save_task_once(&mut self, order: &[BlockId]) {
        if self.late_number || self.ctx.task_wanted(order) > 1 {
            self.save_task();
        }
    }

    /// Offsets in the shared area of the locks that this handler takes, in the global order.
    fn locks(&self) -> Vec<u32> {
        let touched = |g: usize| self.facts.touches(GlobalId(g.fit()));
        let globals = self.plan.layout.globals.iter().enumerate();
        globals
            .filter_map(|(i, g)| g.as_ref()?.lock.filter(|_| touched(i)))
            .collect()
    }

    pub(crate) fn uses_generation(&self) -> bool {
        self.facts.globals().any(|g| {
            let layout = self
                .plan
                .layout
                .globals
                .get(g.index())
                .and_then(Option::as_ref);
            layout.is_some_and(|l| match &l.location {
                GlobalLocation::PerCpuScalar { gen_stride, .. } => *gen_stride > 0,
                GlobalLocation::PerCpuArray(array) => array.double(),
                _ => false,
            })
        })
    }

    /// Checks that the handler may run, and counts the reason if not.
    fn enter(&mut self, out: Label) -> Res {
        let plan = self.plan;
        let locks = self.locks();
        if plan.outlining.shares_entry() {
            self.enter_outlined(&locks, out)?;
        } else {
            self.enter_inline(out);
            self.lock(&locks, out)?;
        }
        let hits = self.counters() + counters::HITS;
        let (base, disp) = self.block_operand(hits, 8);
        self.add_to_word(base, disp, 1.into());
        if self.options.timing {
            let now = self.asm.call_with(Helper::KtimeGetNs, &[]);
            self.store(plan.scratch.start, now);
        }
        if self.uses_generation() {
            let generation = self.shared_address(shared::GENERATION);
            self.asm.load(Size::DW, generation, generation, 0);
            self.asm.alu(AluOp::And, generation, 1);
            self.asm.store(Size::DW, R10, GEN, generation);
        }
        if self.facts.catches_message {
            // Outside of a catch block the error message is "", not that of an earlier hit.
            self.store(plan.scratch.err_id, 0);
        }
        if self.facts.enters {
            self.store(plan.scratch.depth, 0);
        }
        if self.facts.sets_verdict() {
            let hook = Hook::of(self.event());
            self.store(plan.scratch.verdict, hook.map_or(0, |h| h.go_on));
        }
        self.forget_match();
        if self.ctx.ticking {
            let n = i32::try_from(self.program.limits.maxaction).unwrap_or(i32::MAX);
            self.store(plan.scratch.ticks, n);
        }
        Ok(())
    }

    /// Finds this CPU's area and marks it busy.
    fn enter_inline(&mut self, out: Label) {
        let free = self.asm.label();
        let running = self.shared_address(shared::RUNNING);
        self.asm.load(Size::DW, running, running, 0);
        self.asm.jump_if(Cond::Eq, running, 0, out);
        self.plan.cpu_block(self.asm, BLOCK, out);
        let busy = self.asm.word(BLOCK, percpu::BUSY.fit());
        self.asm.jump_if(Cond::Eq, busy, 0, free);
        self.count_skipped(busy, out);
        self.asm.bind(free);
        let busy = self.handler.0.cast_signed() + 1;
        self.asm.store(Size::DW, BLOCK, percpu::BUSY.fit(), busy);
    }

    /// Counts a hit on a busy processor, whose busy word is given, and goes to `out`.
    pub(crate) fn count_skipped(&mut self, busy: Reg, out: Label) {
        if self.plan.layout.critical.is_some() {
            let handler = self.asm.label();
            self.asm.jump_if(Cond::Ne, busy, critical::BUSY, handler);
            self.count(percpu::SKIP_HELD);
            self.asm.jump(out);
            self.asm.bind(handler);
        }
        self.count(percpu::SKIP_REENTRANT);
        self.asm.jump(out);
    }

    fn counters(&self) -> u32 {
        match self.plan.layout.handlers.get(self.handler.index()) {
            Some(Some(info)) => info.counters,
            _ => percpu::END,
        }
    }

    /// Takes the locks in order. If one cannot be taken, releases the others and skips the hit.
    pub(crate) fn lock(&mut self, locks: &[u32], out: Label) -> Res {
        if locks.is_empty() {
            return Ok(());
        }
        let most = TRYLOCK_DELAY_NS * self.program.limits.maxtrylock.clamp(1, MAX_TRIES);
        let (features, plan) = (&self.options.features, self.plan);
        let waiters = match self.options.host {
            HostKind::Kernel => Waiters::Processors,
            HostKind::Process => Waiters::Threads,
        };
        let form = match (features.may_goto, features.bpf_loop) {
            (true, _) => LoopForm::Open,
            (_, true) => LoopForm::Callback,
            _ => LoopForm::Inline,
        };
        self.pool.define_once(WAIT_LOCK, Some(plan), || {
            wait_lock(most, form, plan.layout.shared_size / 8, waiters)
        })?;
        let result = self.asm.new_reg();
        let mut attempts = Vec::new();
        for lock in locks {
            let [held, taken, missed] = self.asm.labels();
            let holder = self.lock_holder();
            let (word, holder) = (self.shared_address(*lock), self.asm.copy(holder));
            let was = self.asm.compare_exchange((word, 0), 0, holder);
            self.asm.jump_if(Cond::Ne, was, 0, held);
            self.asm.bind(taken);
            attempts.push((*lock, was, held, taken, missed));
        }
        let locked = self.asm.label();
        self.asm.jump(locked);
        for (lock, was, held, taken, missed) in &attempts {
            self.asm.bind(*held);
            let number = lock.cast_signed() / 8;
            let args = [number.into(), HELD.into(), (*was).into()];
            let waited = self.asm.call_sub_with(WAIT_LOCK, &args);
            self.asm.mov(result, waited);
            self.asm.jump_if(Cond::Eq, result, GOT, *taken);
            self.asm.jump(*missed);
        }
        for (i, (.., missed)) in attempts.iter().enumerate().rev() {
            self.asm.bind(*missed);
            if i > 0 {
                self.unlock(attempts[i - 1].0);
            }
        }
        let [own_hit, skipped] = self.asm.labels();
        self.asm.jump_if(Cond::Eq, result, OWN, own_hit);
        self.count(percpu::SKIP_LOCK);
        self.asm.jump(skipped);
        self.asm.bind(own_hit);
        self.count(self.own_hits());
        self.asm.bind(skipped);
        self.asm.store(Size::DW, BLOCK, percpu::BUSY.fit(), 0);
        self.asm.jump(out);
        self.asm.bind(locked);
        Ok(())
    }

    /// What a handler stores in its locks. A thread can be switched out, end, or be interrupted by a signal while it
    /// holds one, so its number is in the upper half.
    fn lock_holder(&mut self) -> Src {
        if self.options.host == HostKind::Kernel {
            return HELD.into();
        }
        let thread = self.asm.call_with(Helper::GetCurrentPidTgid, &[]);
        self.asm.alu(AluOp::Lsh, thread, 32);
        self.asm.add(thread, HELD);
        thread.into()
    }

    /// The counter for hits in the controller's own threads while it holds locks. Hits that an
    /// interrupt or a task switch brings are counted separately, because they need not belong to
    /// the controller.
    pub(crate) fn own_hits(&self) -> u32 {
        match self.ctx.event() {
            Event::Tracepoint(name) if !name.starts_with("page_fault") => percpu::SKIP_HELD,
            Event::TraceEvent(event) if !event.name.starts_with("page_fault") => percpu::SKIP_HELD,
            Event::Code(probe) if probe.space == Space::Kernel => percpu::SKIP_HELD,
            Event::Netfilter(_) => percpu::SKIP_HELD,
            _ => percpu::SKIP_OWN,
        }
    }

    /// Releases a lock by an atomic exchange, which orders all earlier writes before it.
    pub(crate) fn unlock(&mut self, lock: u32) {
        let (lock, free) = (self.shared_address(lock), self.asm.copy(0));
        self.asm.atomic(AtomicOp::Xchg, lock, 0, free);
    }

    /// Zeroes frame registers that may be read before they are written.
    fn clear_undefined(&mut self) -> Res {
        self.clear_unstarted_iterators();
        for r in self.alloc.undefined.clone() {
            if let Location::Frame(off) = self.location(r) {
                let bytes = self.body.regs[r.index()].size();
                self.fill_zero(self.plan.scratch.frame + off, bytes);
            }
        }
        Ok(())
    }

    /// Releases the locks, sends the output and records the time.
    fn exit(&mut self) -> Res {
        if self.facts.sets_verdict() {
            // Once this handler has left the per-CPU area, an interrupt's handler can reuse it.
            let verdict = self.block_word(self.plan.scratch.verdict);
            self.asm.store(Size::DW, R10, VERDICT, verdict);
        }
        self.write_back_records()?;
        let locks = self.locks();
        let sends = self.facts.prints || self.facts.fails || self.facts.ticks && self.ctx.ticking;
        if self.plan.outlining.shares_entry()
            && !self.options.timing
            && (sends || !locks.is_empty())
        {
            return self.leave_outlined(&locks);
        }
        if sends && self.plan.outlining.is_large() && !locks.is_empty() {
            self.unlock_and_flush(&locks);
        } else {
            self.unlock_all(&locks);
            if sends {
                self.flush();
            }
        }
        if self.options.timing {
            self.timing();
        }
        self.asm.store(Size::DW, BLOCK, percpu::BUSY.fit(), 0);
        Ok(())
    }

    /// Releases the locks and sends the output. All failure paths of a handler lead here, and a
    /// large handler has thousands. So the code begins with a branch: the verifier saves states only
    /// there, eight instructions apart at least, and otherwise follows each path into the code
    /// behind (on 6.18, 49,800 instead of 41,500 instructions for a handler of 1,000 lines).
    fn unlock_and_flush(&mut self, locks: &[u32]) {
        let [silent, end] = self.asm.labels();
        let position = self.block_word(self.plan.scratch.out_pos);
        self.asm.jump_if(Cond::Eq, position, 0, silent);
        self.unlock_all(locks);
        self.call_flush();
        self.asm.jump(end);
        self.asm.bind(silent);
        self.unlock_all(locks);
        self.asm.bind(end);
    }

    fn unlock_all(&mut self, locks: &[u32]) {
        locks.iter().rev().for_each(|lock| self.unlock(*lock));
    }

    fn timing(&mut self) {
        let time = self.asm.call_with(Helper::KtimeGetNs, &[]);
        let (base, first) = self.block_operand(self.counters(), counters::SIZE);
        let [sum, least, most, square] = [
            counters::TIME_SUM,
            counters::TIME_MIN,
            counters::TIME_MAX,
            counters::TIME_SQ,
        ]
        .map(|off| first + off.fit::<i16>());
        let start = self.block_word(self.plan.scratch.start);
        self.asm.alu(AluOp::Sub, time, start);
        let [store_min, no_min, no_max] = self.asm.labels();
        self.add_to_word(base, sum, time.into());
        let minimum = self.asm.word(base, least);
        self.asm.jump_if(Cond::Eq, minimum, 0, store_min);
        self.asm.jump_if(Cond::Le, minimum, time, no_min);
        self.asm.bind(store_min);
        self.asm.store(Size::DW, base, least, time);
        self.asm.bind(no_min);
        let maximum = self.asm.word(base, most);
        self.asm.jump_if(Cond::Ge, maximum, time, no_max);
        self.asm.store(Size::DW, base, most, time);
        self.asm.bind(no_max);
        self.asm.alu(AluOp::Mul, time, time);
        self.add_to_word(base, square, time.into());
    }
}
