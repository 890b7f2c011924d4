//! The controller's critical section: a program that takes the locks of globals, copies their
//! values, empties those that the controller takes, and releases the locks.
//!
//! A thread that holds a lock can be switched out, interrupted, or wait for a run queue that the
//! handler's processor keeps locked; a handler that waits for the lock then waits in vain. The
//! controller therefore takes no locks itself: it has the kernel run this program
//! (`BPF_PROG_TEST_RUN`),
//! with interrupts off. Only a non-maskable interrupt or the hypervisor can interrupt it.
//! Since 6.14 a program can turn interrupts off. On older kernels the controller has it run on
//! another processor, in an interrupt. That costs some microseconds more, and the other processor's
//! time.
//!
//! A handler that is interrupted there, or was switched out, may hold one of the locks, and
//! continues only afterwards. The program then gives up at once, and the controller tries again. No
//! other handler of that processor runs in the meantime (its busy word is [`BUSY`]).

use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Cond, Reg, Size};
use crate::layout::critical::{
    BUSY, CopyPlace, CriticalLayout, ENTRY, LockedGlobal, PROGRAM, answer, request,
};
use crate::layout::{Attach, HELD, ProgramInfo, percpu};
use crate::lower::handler::entry::attempts;
use crate::object::elf::ProgramSpec;
use crate::plan::StateLayout;
use crate::target::InterruptKfuncs;

/// Attempts to take a lock that a handler on another processor holds.
const TRIES: i32 = 64;
/// Limit on the bytes that are copied word by word; a helper copies more.
const FEW_BYTES: u32 = 64;

/// Stack slot: bits of the globals to copy ([`request::WANTED`]).
const WANTED: i16 = -8;
/// Stack slot: bits of the globals to empty ([`request::TAKEN`]).
const TAKEN: i16 = -16;
/// Stack slot: nonzero while the current array is emptied.
const EMPTIED: i16 = -24;
/// Stack slot: the processor's busy word before the section.
const BEFORE: i16 = -32;
/// Stack slot: the interrupt flags that the kernel saves.
const INTERRUPTS: i16 = -40;

/// The program and its subprograms.
///
/// # Errors
/// The reason why it cannot be made.
pub(crate) fn program(
    critical: &CriticalLayout,
    plan: &StateLayout,
    interrupts: Option<InterruptKfuncs>,
) -> Result<(ProgramSpec, ProgramInfo, Vec<Function>), String> {
    let mut subs = vec![try_lock()?];
    for guarded in &critical.globals {
        if let CopyPlace::Elements { known, .. } = &guarded.copy {
            subs.push(one_element(guarded)?);
            if known.is_some() {
                subs.push(one_key(guarded)?);
            }
        }
    }
    let info = ProgramInfo {
        name: PROGRAM.into(),
        attach: Attach::OnDemand,
        handlers: Vec::new(),
        idle: false,
    };
    let spec = ProgramSpec {
        section: "raw_tp".into(),
        function: section(critical, plan, interrupts)?,
    };
    Ok((spec, info, subs))
}

/// `dst` = address in the shared block.
fn shared(asm: &mut Asm, dst: Reg, at: u32) {
    asm.ld_data(dst, Section::Bss, at);
}

/// Goes to `no` if the bit of a global is not set in a word of the stack. Clobbers r1.
fn jump_unless(asm: &mut Asm, slot: i16, n: usize, no: Label) {
    asm.load(Size::DW, R1, R10, slot);
    asm.alu(AluOp::And, R1, 1 << n);
    asm.jump_if(Cond::Eq, R1, 0, no);
}

/// Calls the kernel function that turns interrupts off or restores them, if the kernel has it.
fn set_interrupts(asm: &mut Asm, function: Option<u32>) {
    if let Some(function) = function {
        asm.mov(R1, R10);
        asm.add(R1, i32::from(INTERRUPTS));
        asm.call_kfunc(function);
    }
}

fn section(
    critical: &CriticalLayout,
    plan: &StateLayout,
    interrupts: Option<InterruptKfuncs>,
) -> Result<Function, String> {
    let mut asm = Asm::new(PROGRAM, &["ctx"]);
    let [known, interrupted, entered] = std::array::from_fn(|_| asm.label());
    for (word, slot) in [(request::WANTED, WANTED), (request::TAKEN, TAKEN)] {
        asm.load(Size::DW, R2, R1, 8 * word as i16);
        asm.store(Size::DW, R10, slot, R2);
    }
    asm.call(Helper::GetSmpProcessorId);
    asm.jump_if(Cond::Lt, R0, plan.cpus as i32, known);
    asm.mov(R0, 0);
    asm.exit();
    asm.bind(known);
    plan.block_of_cpu(&mut asm, R7);
    set_interrupts(&mut asm, interrupts.map(|i| i.save));
    asm.load(Size::DW, R8, R7, percpu::BUSY as i16);
    asm.store(Size::DW, R10, BEFORE, R8);
    asm.jump_if(Cond::Ne, R8, 0, interrupted);
    asm.store(Size::DW, R7, percpu::BUSY as i16, BUSY);
    asm.mov(R6, TRIES);
    asm.jump(entered);
    // The handler that was interrupted here releases its locks only after the section.
    asm.bind(interrupted);
    asm.mov(R6, 1);
    asm.bind(entered);
    let count = critical.globals.len();
    let missed: Vec<Label> = (0..count).map(|_| asm.label()).collect();
    let unlocked: Vec<Label> = (0..=count).map(|_| asm.label()).collect();
    for (n, guarded) in critical.globals.iter().enumerate() {
        let next = asm.label();
        jump_unless(&mut asm, WANTED, n, next);
        shared(&mut asm, R1, guarded.lock);
        asm.mov(R2, R6);
        asm.call_sub(LOCK);
        asm.jump_if(Cond::Eq, R0, 0, missed[n]);
        asm.bind(next);
    }
    for (n, guarded) in critical.globals.iter().enumerate() {
        let next = asm.label();
        jump_unless(&mut asm, WANTED, n, next);
        copy(&mut asm, n, guarded, next);
        asm.bind(next);
    }
    asm.mov(R9, answer::DONE);
    asm.jump(unlocked[count]);
    for (n, missed) in missed.into_iter().enumerate() {
        asm.bind(missed);
        asm.mov(R9, answer::BUSY);
        asm.jump(unlocked[n]);
    }
    for (n, guarded) in critical.globals.iter().enumerate().rev() {
        asm.bind(unlocked[n + 1]);
        jump_unless(&mut asm, WANTED, n, unlocked[n]);
        shared(&mut asm, R1, guarded.lock);
        asm.mov(R2, 0);
        asm.atomic(AtomicOp::Xchg, R1, 0, R2);
    }
    asm.bind(unlocked[0]);
    asm.load(Size::DW, R8, R10, BEFORE);
    asm.store(Size::DW, R7, percpu::BUSY as i16, R8);
    set_interrupts(&mut asm, interrupts.map(|i| i.restore));
    asm.mov(R0, R9);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Copies a global, and empties it if the controller takes it. Preserves r6 to r9.
fn copy(asm: &mut Asm, n: usize, guarded: &LockedGlobal, next: Label) {
    match &guarded.copy {
        CopyPlace::Words { from, to, value } => {
            let size = value.size();
            shared(asm, R3, *from);
            shared(asm, R1, *to);
            words_or_bytes(asm, R3, 0, size);
            jump_unless(asm, TAKEN, n, next);
            shared(asm, R3, *from);
            for at in (0..size).step_by(8) {
                asm.store(Size::DW, R3, at as i16, 0);
            }
        }
        CopyPlace::Elements {
            from,
            count,
            max,
            known,
            ..
        } => {
            asm.load(Size::DW, R1, R10, TAKEN);
            asm.alu(AluOp::And, R1, 1 << n);
            asm.store(Size::DW, R10, EMPTIED, R1);
            let walk = asm.label();
            if let Some(known) = known {
                shared(asm, R1, known.fresh);
                asm.load(Size::DW, R1, R1, 0);
                asm.jump_if(Cond::Ne, R1, 0, walk);
                shared(asm, R1, known.keys);
                asm.load(Size::DW, R1, R1, 0);
                asm.jump_if(Cond::Gt, R1, *max as i32, walk);
                shared(asm, R2, *count);
                asm.store(Size::DW, R2, 0, R1);
                asm.loop_call(key_name(guarded), EMPTIED);
                asm.jump(next);
            }
            asm.bind(walk);
            shared(asm, R1, *count);
            asm.store(Size::DW, R1, 0, 0);
            asm.ld_map(R1, &**from);
            asm.ld_func(R2, element_name(guarded));
            asm.mov(R3, R10);
            asm.add(R3, i32::from(EMPTIED));
            asm.mov(R4, 0);
            asm.call(Helper::ForEachMapElem);
        }
    }
}

const LOCK: &str = "critical_lock";

/// `critical_lock(word, tries)`: returns 1 if the lock was taken, else 0.
fn try_lock() -> Result<Function, String> {
    let mut asm = Asm::new(LOCK, &["word", "tries"]);
    let got = asm.label();
    asm.mov(R3, HELD);
    attempts(&mut asm, [R1, R3, R2], got);
    asm.finish().map_err(|e| e.to_string())
}

/// `r0` = the entry at an index of a map of copies; goes to `none` if there is none.
fn entry_of(asm: &mut Asm, copies: &str, index: Reg, none: Label) {
    asm.store(Size::W, R10, -8, index);
    asm.ld_map(R1, copies);
    asm.mov(R2, R10);
    asm.add(R2, -8);
    asm.call(Helper::MapLookupElem);
    asm.jump_if(Cond::Eq, R0, 0, none);
}

fn element_name(guarded: &LockedGlobal) -> String {
    format!("critical_{}", guarded.global.0)
}

/// `critical_N(map, key, value, slot)`: copies an element, and deletes it if the slot is nonzero.
fn one_element(guarded: &LockedGlobal) -> Result<Function, String> {
    let CopyPlace::Elements {
        to,
        count,
        key,
        value,
        max,
        ..
    } = &guarded.copy
    else {
        return Err("no array".into());
    };
    let mut asm = Asm::new(element_name(guarded), &["map", "key", "value", "slot"]);
    let end = asm.label();
    for (kept, from) in [(R6, R1), (R7, R2), (R8, R3), (R9, R4)] {
        asm.mov(kept, from);
    }
    shared(&mut asm, R1, *count);
    asm.load(Size::DW, R2, R1, 0);
    // Always false, because an array has no more elements than its limit: it bounds the index.
    asm.jump_if(Cond::Ge, R2, *max as i32, end);
    entry_of(&mut asm, to, R2, end);
    asm.store(Size::DW, R10, -16, R0);
    asm.store(Size::DW, R0, 0, 1);
    for (from, at, size) in [(R7, ENTRY, *key), (R8, ENTRY + *key, *value)] {
        asm.load(Size::DW, R1, R10, -16);
        words_or_bytes(&mut asm, from, at, size);
    }
    shared(&mut asm, R1, *count);
    asm.load(Size::DW, R2, R1, 0);
    asm.add(R2, 1);
    asm.store(Size::DW, R1, 0, R2);
    asm.load(Size::DW, R1, R9, 0);
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.mov(R1, R6);
    asm.mov(R2, R7);
    asm.call(Helper::MapDeleteElem);
    asm.bind(end);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}

/// Copies words from `from` to an offset from r1; larger amounts with a helper call, which clobbers
/// r0 to r5.
fn words_or_bytes(asm: &mut Asm, from: Reg, at: u32, size: u32) {
    if size <= FEW_BYTES {
        for off in (0..size).step_by(8) {
            asm.load(Size::DW, R2, from, off as i16);
            asm.store(Size::DW, R1, (at + off) as i16, R2);
        }
    } else {
        if at > 0 {
            asm.add(R1, at as i32);
        }
        asm.mov(R2, size as i32);
        if from != R3 {
            asm.mov(R3, from);
        }
        asm.call(Helper::ProbeReadKernel);
    }
}

fn key_name(guarded: &LockedGlobal) -> String {
    format!("critical_key_{}", guarded.global.0)
}

/// `critical_key_N(index, slot)`: copies the element whose key the controller wrote to that entry,
/// and deletes it if the slot is nonzero.
fn one_key(guarded: &LockedGlobal) -> Result<Function, String> {
    let CopyPlace::Elements {
        from,
        to,
        key,
        value,
        ..
    } = &guarded.copy
    else {
        return Err("no array".into());
    };
    let mut asm = Asm::new(key_name(guarded), &["index", "slot"]);
    let end = asm.label();
    asm.mov(R9, R2);
    entry_of(&mut asm, to, R1, end);
    asm.mov(R6, R0);
    asm.store(Size::DW, R6, 0, 0);
    asm.ld_map(R1, &**from);
    asm.mov(R2, R6);
    asm.add(R2, ENTRY as i32);
    asm.call(Helper::MapLookupElem);
    asm.jump_if(Cond::Eq, R0, 0, end);
    asm.mov(R8, R0);
    asm.store(Size::DW, R6, 0, 1);
    asm.mov(R1, R6);
    words_or_bytes(&mut asm, R8, ENTRY + *key, *value);
    asm.load(Size::DW, R1, R9, 0);
    asm.jump_if(Cond::Eq, R1, 0, end);
    asm.ld_map(R1, &**from);
    asm.mov(R2, R6);
    asm.add(R2, ENTRY as i32);
    asm.call(Helper::MapDeleteElem);
    asm.bind(end);
    asm.mov(R0, 0);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
