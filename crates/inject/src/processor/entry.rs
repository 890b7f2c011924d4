//! Entry code: what a hooked function jumps to. It saves registers, finds the record of the thread, runs the handler
//! on the record's stack, restores all, and goes on with the copy of the displaced instructions.

use iced_x86::code_asm::AsmRegister64;
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, ptr, qword_ptr, r8, r9, r10, r11, r12, r13, r14,
    r15, rax, rbp, rbx, rcx, rdi, rdx, registers::gpr8::al, rsi, rsp,
};
use iced_x86::{Code, IcedError, Register};
use spile_cast::i32_of;
use spile_layout::thread_record::{HIT_REGISTERS, ThreadRecord};

use crate::image::{FunctionHook, PlaceKind};
use crate::place::Place;
use crate::processor::assembly::{RED_ZONE, address, field, load};
use crate::processor::registers::PtRegs;
use crate::processor::requests::{self, Request};
use crate::processor::{calls, cancellable};

/// Multiplies the bits of a thread structure's address, the low ones of which are zero.
pub(crate) const GOLDEN: i32 = 0x9e37_79b9_u32.cast_signed();
pub(crate) const ALIGNED_BITS: u32 = 6;

/// What entry code pushes: rcx, rax, r15, flags.
const PUSHED: i32 = 4 * 8;
/// The block of registers, which keeps the stack aligned.
const BLOCK: i32 = i32_of(PtRegs::WORDS.next_multiple_of(2) * 8);
const _: () = assert!(BLOCK as u64 == HIT_REGISTERS);

/// Selectors of code and data, and the flag that lets interrupts in.
const USER_CODE: i32 = 0x33;
const USER_DATA: i32 = 0x2b;
const INTERRUPTS: i32 = 0x202;

/// Registers that handlers change. Those that are pushed are not among them.
const CHANGED: [(PtRegs, AsmRegister64); 7] = [
    (PtRegs::Rdx, rdx),
    (PtRegs::Rsi, rsi),
    (PtRegs::Rdi, rdi),
    (PtRegs::R8, r8),
    (PtRegs::R9, r9),
    (PtRegs::R10, r10),
    (PtRegs::R11, r11),
];

const KEPT: [(PtRegs, AsmRegister64); 5] = [
    (PtRegs::Rbx, rbx),
    (PtRegs::Rbp, rbp),
    (PtRegs::R12, r12),
    (PtRegs::R13, r13),
    (PtRegs::R14, r14),
];

/// Registers that are pushed, by their distance from the stack pointer.
const ON_STACK: [(PtRegs, i32); 3] = [(PtRegs::R15, 8), (PtRegs::Rax, 16), (PtRegs::Rcx, 24)];

/// Registers that are in the record, by their distance from its beginning.
pub(super) const SAVED_AT: [(PtRegs, i32); 2] = [
    (PtRegs::R15, field!(saved)),
    (PtRegs::Rax, field!(saved) + 8),
];

/// The entry code of a place's hooks at an address. `find` is the address of the routine that finds a record.
pub(crate) fn entry(
    place: &Place,
    hooks: &[&FunctionHook],
    at: u64,
    find: u64,
) -> Result<Vec<u8>, IcedError> {
    if hooks
        .iter()
        .all(|hook| hook.kind != PlaceKind::Instruction && !hook.through)
    {
        return calls::entry(place, hooks, at, find);
    }
    let mut code = CodeAssembler::new(64)?;
    let a = &mut code;
    let mut labels = Labels {
        found: a.create_label(),
        entered: a.create_label(),
        slow: a.create_label(),
        nested: a.create_label(),
        leave: a.create_label(),
        done: a.create_label(),
    };
    a.lea(rsp, ptr(rsp - RED_ZONE))?;
    for register in [rcx, rax, r15] {
        a.push(register)?;
    }
    // pushf and popf take several times as long.
    a.lahf()?;
    a.seto(al)?;
    a.push(rax)?;
    look_up(a, place, &labels)?;
    a.set_label(&mut labels.found)?;
    a.cmp(qword_ptr(r15 + field!(busy)), 0)?;
    a.jne(labels.nested)?;
    a.mov(qword_ptr(r15 + field!(busy)), rsp)?;
    a.set_label(&mut labels.entered)?;
    run(a, place, hooks, SavedBy::Pushing)?;
    a.set_label(&mut labels.leave)?;
    a.pop(rax)?;
    a.pop(r15)?;
    // The sum overflows where the flag was set.
    a.add(al, 127)?;
    a.sahf()?;
    a.pop(rax)?;
    a.pop(rcx)?;
    a.lea(rsp, ptr(rsp + RED_ZONE))?;
    a.jmp(labels.done)?;
    a.set_label(&mut labels.nested)?;
    a.inc(qword_ptr(r15 + field!(skipped)))?;
    a.jmp(labels.leave)?;
    a.set_label(&mut labels.slow)?;
    a.call(find)?;
    a.test(eax, eax)?;
    a.je(labels.found)?;
    a.jns(labels.entered)?;
    a.jmp(labels.leave)?;
    a.set_label(&mut labels.done)?;
    a.zero_bytes()?;
    a.assemble(at)
}

struct Labels {
    found: CodeLabel,
    entered: CodeLabel,
    slow: CodeLabel,
    nested: CodeLabel,
    leave: CodeLabel,
    done: CodeLabel,
}

/// Puts the address of the thread's record in r15, and its key in rcx.
fn look_up(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    if place.exact {
        return a.jmp(labels.slow);
    }
    // The process's number is zero until a thread has proven that structures have their address in their first word, and
    // in a child until it asks. To ask the processor for the address (`rdfsbase`) takes 4 ns.
    load(a, Code::Mov_r32_rm32, Register::EAX, place.process)?;
    a.test(eax, eax)?;
    a.je(labels.slow)?;
    a.mov(rcx, qword_ptr(0).fs())?;
    hashed(a, place)?;
    a.inc(rcx)?;
    a.cmp(qword_ptr(r15 + field!(owner)), rcx)?;
    a.jne(labels.slow)?;
    load(a, Code::Mov_r32_rm32, Register::EAX, place.process)?;
    a.cmp(dword_ptr(r15 + field!(tgid)), eax)?;
    a.jne(labels.slow)?;
    a.mov(rax, qword_ptr(r15 + field!(proof)))?;
    a.mov(eax, dword_ptr(rax))?;
    a.cmp(dword_ptr(r15 + field!(tid)), eax)?;
    a.jne(labels.slow)
}

/// Puts the address of the first record for the address in rcx into r15. Changes rax.
pub(crate) fn hashed(a: &mut CodeAssembler, place: &Place) -> Result<(), IcedError> {
    a.mov(rax, rcx)?;
    a.shr(rax, ALIGNED_BITS)?;
    a.imul_3(eax, eax, GOLDEN)?;
    // Of one record, the first is the only one.
    a.shr(rax, 32 - place.threads.slots.ilog2())?;
    a.shl(rax, ThreadRecord::SIZE_BITS)?;
    address(a, r15, place.records())?;
    a.add(r15, rax)
}

/// How entry code has saved the registers that it needs itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SavedBy {
    /// They are on the stack, with flags.
    Pushing,
    /// They are in the record, and flags are not kept.
    Record,
}

/// Runs the handlers. The stack pointer is at what was pushed, and again afterwards.
pub(super) fn run(
    a: &mut CodeAssembler,
    place: &Place,
    hooks: &[&FunctionHook],
    saved: SavedBy,
) -> Result<(), IcedError> {
    // An argument of the call that is to come is in a register that entry code changes.
    let argument = |hook: &FunctionHook| if hook.through { PtRegs::Rcx.bit() } else { 0 };
    let reads = hooks
        .iter()
        .fold(0, |reads, hook| reads | hook.reads | argument(hook));
    let read = |register: PtRegs| reads & register.bit() != 0;
    let word = |register: PtRegs| qword_ptr(rax - BLOCK + register.offset());
    a.mov(rax, qword_ptr(r15 + field!(stack)))?;
    for (register, from) in CHANGED {
        a.mov(word(register), from)?;
    }
    for (register, from) in KEPT.into_iter().filter(|r| read(r.0)) {
        a.mov(word(register), from)?;
    }
    let pushed = ON_STACK.map(|(register, from)| (register, qword_ptr(rsp + from)));
    let in_record = SAVED_AT.map(|(register, from)| (register, qword_ptr(r15 + from)));
    let elsewhere = match saved {
        SavedBy::Pushing => &pushed[..],
        SavedBy::Record => &in_record,
    };
    for (register, from) in elsewhere.iter().filter(|r| read(r.0)) {
        a.mov(rcx, *from)?;
        a.mov(word(*register), rcx)?;
    }
    let constants = [
        (PtRegs::Eflags, INTERRUPTS),
        (PtRegs::OrigRax, -1),
        (PtRegs::Cs, USER_CODE),
        (PtRegs::Ss, USER_DATA),
    ];
    for (register, value) in constants.into_iter().filter(|r| read(r.0)) {
        a.mov(word(register), value)?;
    }
    if let (true, Some(hook)) = (read(PtRegs::Rip), hooks.first()) {
        a.mov(rcx, hook.place())?;
        a.mov(word(PtRegs::Rip), rcx)?;
    }
    if saved == SavedBy::Pushing && read(PtRegs::Eflags) {
        // The flags of lahf, in their places; the one of seto is bit 11.
        a.mov(rcx, qword_ptr(rsp))?;
        a.shl(ecx, 24)?;
        a.shr(ecx, 13)?;
        a.mov(word(PtRegs::Eflags), rcx)?;
        a.mov(rcx, qword_ptr(rsp))?;
        a.shr(ecx, 8)?;
        a.and(ecx, 0xd5)?;
        a.or(ecx, INTERRUPTS)?;
        a.or(word(PtRegs::Eflags), rcx)?;
    }
    let below = match saved {
        SavedBy::Pushing => PUSHED + RED_ZONE,
        SavedBy::Record => 0,
    };
    a.lea(rcx, ptr(rsp + below))?;
    a.mov(word(PtRegs::Rsp), rcx)?;
    a.lea(rsp, ptr(rax - BLOCK))?;
    call_handlers(a, place, (hooks, reads))?;
    for (register, to) in CHANGED {
        a.mov(to, qword_ptr(rsp + register.offset()))?;
    }
    a.mov(rsp, qword_ptr(rsp + PtRegs::Rsp.offset()))?;
    a.lea(rsp, ptr(rsp - below))?;
    if saved == SavedBy::Pushing {
        // From here on a signal's handler may use the record and its stack.
        a.mov(qword_ptr(r15 + field!(busy)), 0)?;
    }
    Ok(())
}

/// Calls the handlers. The stack pointer is at the registers, and again afterwards.
fn call_handlers(
    a: &mut CodeAssembler,
    place: &Place,
    (hooks, reads): (&[&FunctionHook], u32),
) -> Result<(), IcedError> {
    let mut end = a.create_label();
    let is_call = |hook: &&&FunctionHook| hook.kind != PlaceKind::Instruction;
    if let Some(first) = hooks.iter().find(is_call) {
        calls::prepare(a, (first, reads), end)?;
    }
    let asks = hooks.iter().find_map(|hook| Request::of(hook.kind));
    let (mut pause, mut behind) = (a.create_label(), a.create_label());
    // What comes in front of a call does not belong to the time of the call.
    if asks == Some(Request::Execute) {
        requests::request(a, place, Request::Execute, pause)?;
    }
    let has_handler = |hook: &&&FunctionHook| {
        Request::of(hook.kind).is_none() && hook.kind != PlaceKind::CallOnly
    };
    for hook in hooks.iter().filter(has_handler) {
        match i32::try_from(hook.cookie.cast_signed()) {
            Ok(cookie) => a.mov(qword_ptr(r15 + field!(cookie)), cookie)?,
            Err(_) => {
                a.mov(rcx, hook.cookie)?;
                a.mov(qword_ptr(r15 + field!(cookie)), rcx)?;
            }
        }
        a.mov(rdi, rsp)?;
        match hook.kind {
            PlaceKind::Instruction => a.call(place.image + hook.handler)?,
            _ => calls::call(a, hook, place.image + hook.handler)?,
        }
    }
    if hooks.iter().any(|hook| hook.through) {
        cancellable::back(a)?;
    }
    match asks {
        Some(Request::Execute) => requests::forget(a)?,
        Some(Request::Mapped) => requests::request(a, place, Request::Mapped, pause)?,
        None => {}
    }
    if asks.is_some() {
        a.jmp(behind)?;
        a.set_label(&mut pause)?;
        a.dq(&requests::PAUSE)?;
        a.set_label(&mut behind)?;
        a.nop()?;
    }
    a.set_label(&mut end)?;
    a.nop()
}
