//! Entry code of system calls: what handlers get in front of the instruction and behind it.
//!
//! Nothing is pushed on the stack of the program: right before a thread ends, its stack can be unmapped or somebody
//! else's. The call changes two registers, which are free for the search of the record. Flags are not kept.
//!
//! The number of a call is a constant of its place, or is in the register in front of the instruction and nowhere behind
//! it. So such a call is kept in the record of the thread until it returns, by its stack pointer: the handler of a signal
//! can make others meanwhile.

use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, ptr, qword_ptr, r8, r11,
    r11d, r15, rax, rcx, rdi, rdx, rsp,
};
use iced_x86::{Code, IcedError, Register};
use spile_cast::{Cast, i32_of};
use spile_layout::thread_record::{OpenCall, ThreadRecord};

use crate::image::{CallNumber, EXECUTES, FunctionHook, PlaceKind};
use crate::place::Place;
use crate::processor::assembly::{RED_ZONE, address, field, load, word};
use crate::processor::cancellable;
use crate::processor::entry::{ALIGNED_BITS, GOLDEN, SAVED_AT, SavedBy, run};
use crate::processor::registers::PtRegs;

/// Length of the instruction.
const CALL: u64 = 2;
/// What the register of the result has in front of a call.
const NO_RESULT: i32 = -libc::ENOSYS;
/// Bytes of the context: the address of the registers, and a word.
const CONTEXT: i32 = 16;

/// Values of [`OpenCall::stack`] below every address.
const RETURNED: i32 = 1;
pub(super) const OPEN_CALL: i32 = i32_of(size_of::<OpenCall>());
const NUMBER: i32 = i32_of(std::mem::offset_of!(OpenCall, number));
pub(super) const OPEN_CALLS: i32 = {
    let record = std::mem::offset_of!(ThreadRecord, saved);
    i32_of(record - std::mem::offset_of!(ThreadRecord, calls)) / OPEN_CALL
};

/// The entry code of a place whose hooks are all of system calls, see [`crate::processor::entry::entry`].
pub(super) fn entry(
    place: &Place,
    hooks: &[&FunctionHook],
    at: u64,
    find: u64,
) -> Result<Vec<u8>, IcedError> {
    let mut code = CodeAssembler::new(64)?;
    let a = &mut code;
    let (mut found, mut entered, mut slow) = (a.create_label(), a.create_label(), a.create_label());
    let (mut nested, mut done, mut records) =
        (a.create_label(), a.create_label(), a.create_label());
    if_asking(a, hooks, done)?;
    match hooks.iter().find(|hook| hook.ends) {
        Some(hook) => {
            search_by_number(a, place, slow)?;
            rebuild(a, hook)?;
        }
        None => look_up(a, place, (slow, records))?,
    }
    a.set_label(&mut found)?;
    a.cmp(qword_ptr(r11 + field!(busy)), 0)?;
    a.jne(nested)?;
    a.mov(qword_ptr(r11 + field!(busy)), rsp)?;
    a.set_label(&mut entered)?;
    let [(_, kept), (_, result)] = SAVED_AT;
    a.mov(qword_ptr(r11 + kept), r15)?;
    a.mov(qword_ptr(r11 + result), rax)?;
    a.mov(r15, r11)?;
    run(a, place, hooks, SavedBy::Record)?;
    a.mov(rax, qword_ptr(r15 + result))?;
    a.mov(rcx, r15)?;
    a.mov(r15, qword_ptr(rcx + kept))?;
    // From here on a signal's handler may use the record and its stack.
    a.mov(qword_ptr(rcx + field!(busy)), 0)?;
    a.jmp(done)?;
    a.set_label(&mut nested)?;
    a.inc(qword_ptr(r11 + field!(skipped)))?;
    a.jmp(done)?;
    a.set_label(&mut slow)?;
    match hooks.iter().find(|hook| hook.ends) {
        Some(hook) => {
            address(a, r11, place.overflow())?;
            a.lock().inc(qword_ptr(r11 + field!(skipped)))?;
            rebuild(a, hook)?;
            a.jmp(done)?;
        }
        None => {
            find_slowly(a, find)?;
            a.js(done)?;
            a.je(found)?;
            a.jmp(entered)?;
        }
    }
    a.set_label(&mut records)?;
    a.dq(&[place.records()])?;
    a.set_label(&mut done)?;
    a.zero_bytes()?;
    a.assemble(at)
}

/// Where nothing but a request can follow, goes to `done` unless the call is one for it.
fn if_asking(
    a: &mut CodeAssembler,
    hooks: &[&FunctionHook],
    done: CodeLabel,
) -> Result<(), IcedError> {
    let mut go_on = a.create_label();
    let is_execute = |hook: &&FunctionHook| hook.kind == PlaceKind::Execute(CallNumber::InRegister);
    if hooks.iter().all(is_execute) {
        for number in EXECUTES {
            a.cmp(rax, number.fit::<i32>())?;
            a.je(go_on)?;
        }
        a.jmp(done)?;
    } else if hooks
        .iter()
        .all(|hook| matches!(hook.kind, PlaceKind::Mapped(_)))
    {
        a.test(edx, libc::PROT_EXEC)?;
        a.jne(go_on)?;
        a.jmp(done)?;
    }
    a.set_label(&mut go_on)?;
    a.nop()
}

/// Calls the routine that finds a record, on the program's stack. Puts the record into r11, and compares the result with 0.
fn find_slowly(a: &mut CodeAssembler, find: u64) -> Result<(), IcedError> {
    a.lea(rsp, ptr(rsp - RED_ZONE))?;
    a.push(rax)?;
    a.push(r15)?;
    a.call(find)?;
    a.mov(r11, r15)?;
    a.mov(ecx, eax)?;
    a.pop(r15)?;
    a.pop(rax)?;
    a.lea(rsp, ptr(rsp + RED_ZONE))?;
    a.test(ecx, ecx)
}

/// Puts the address of the thread's record into r11, or goes to `none`, for a thread whose structure may be gone. Changes
/// rax and rcx.
fn search_by_number(
    a: &mut CodeAssembler,
    place: &Place,
    none: CodeLabel,
) -> Result<(), IcedError> {
    let (mut again, mut next, mut found) = (a.create_label(), a.create_label(), a.create_label());
    a.mov(eax, libc::SYS_gettid.fit::<i32>())?;
    a.syscall()?;
    address(a, r11, place.records())?;
    a.mov(ecx, place.threads.slots)?;
    a.set_label(&mut again)?;
    a.cmp(dword_ptr(r11 + field!(tid)), eax)?;
    a.jne(next)?;
    a.cmp(
        qword_ptr(r11 + field!(owner)),
        ThreadRecord::CLAIMED.fit::<i32>(),
    )?;
    a.ja(found)?;
    a.set_label(&mut next)?;
    a.add(r11, 1 << ThreadRecord::SIZE_BITS)?;
    a.dec(ecx)?;
    a.jne(again)?;
    a.jmp(none)?;
    a.set_label(&mut found)?;
    a.nop()
}

/// Puts the number of a call back into its register.
fn rebuild(a: &mut CodeAssembler, hook: &FunctionHook) -> Result<(), IcedError> {
    match hook.kind {
        PlaceKind::Call(CallNumber::Is(number)) => a.mov(eax, number),
        // Only calls with a known number end a thread.
        _ => a.ud2(),
    }
}

/// Puts the address of the thread's record into r11, or goes to `slow`. Changes rcx. `records` is where the address of the
/// first record stands.
fn look_up(
    a: &mut CodeAssembler,
    place: &Place,
    (slow, records): (CodeLabel, CodeLabel),
) -> Result<(), IcedError> {
    if place.exact {
        return a.jmp(slow);
    }
    load(a, Code::Mov_r32_rm32, Register::ECX, place.process)?;
    a.test(ecx, ecx)?;
    a.je(slow)?;
    a.mov(rcx, qword_ptr(0).fs())?;
    a.mov(r11, rcx)?;
    a.shr(r11, ALIGNED_BITS)?;
    a.imul_3(r11d, r11d, GOLDEN)?;
    a.shr(r11, 32 - place.threads.slots.ilog2())?;
    a.shl(r11, ThreadRecord::SIZE_BITS)?;
    a.add(r11, qword_ptr(records))?;
    a.inc(rcx)?;
    a.cmp(qword_ptr(r11 + field!(owner)), rcx)?;
    a.jne(slow)?;
    load(a, Code::Mov_r32_rm32, Register::ECX, place.process)?;
    a.cmp(dword_ptr(r11 + field!(tgid)), ecx)?;
    a.jne(slow)?;
    a.mov(rcx, qword_ptr(r11 + field!(proof)))?;
    a.mov(ecx, dword_ptr(rcx))?;
    a.cmp(dword_ptr(r11 + field!(tid)), ecx)?;
    a.jne(slow)
}

/// Makes the registers what the kernel has at the call, as far as handlers read them (`reads`), and goes to `skip` if its number is not known.
pub(super) fn prepare(
    a: &mut CodeAssembler,
    (hook, reads): (&FunctionHook, u32),
    skip: CodeLabel,
) -> Result<(), IcedError> {
    if hook.through {
        cancellable::to_call(a)?;
    }
    let behind = match hook.kind {
        PlaceKind::Return(_) | PlaceKind::Mapped(_) => hook.place(),
        _ => hook.place() + CALL,
    };
    if reads & PtRegs::Rip.bit() != 0 {
        a.mov(rcx, behind)?;
        a.mov(word(PtRegs::Rip), rcx)?;
        a.mov(word(PtRegs::Rcx), rcx)?;
    }
    match hook.kind {
        PlaceKind::Instruction => return Ok(()),
        PlaceKind::Call(CallNumber::Is(number))
        | PlaceKind::Execute(CallNumber::Is(number))
        | PlaceKind::Mapped(CallNumber::Is(number))
        | PlaceKind::Return(CallNumber::Is(number)) => a.mov(ecx, number)?,
        PlaceKind::Execute(CallNumber::InRegister) => a.mov(rcx, word(PtRegs::Rax))?,
        PlaceKind::Call(CallNumber::InRegister) | PlaceKind::CallOnly => {
            a.mov(
                rcx,
                word(if hook.through {
                    PtRegs::OrigRax
                } else {
                    PtRegs::Rax
                }),
            )?;
            keep(a)?;
        }
        PlaceKind::Return(CallNumber::InRegister) => take(a, skip)?,
        // Without its number, the call is not known to map.
        PlaceKind::Mapped(CallNumber::InRegister) => return a.jmp(skip),
    }
    a.mov(word(PtRegs::OrigRax), rcx)?;
    match hook.kind {
        PlaceKind::Return(_) | PlaceKind::Mapped(_) => a.zero_bytes(),
        _ => a.mov(word(PtRegs::Rax), NO_RESULT),
    }
}

/// Calls a handler. Its word is the number of the call, or its result.
pub(super) fn call(
    a: &mut CodeAssembler,
    hook: &FunctionHook,
    handler: u64,
) -> Result<(), IcedError> {
    let told = match hook.kind {
        PlaceKind::Return(_) => PtRegs::Rax,
        _ => PtRegs::OrigRax,
    };
    a.mov(rax, word(told))?;
    a.mov(rcx, rsp)?;
    let below = CONTEXT
        + if hook.through {
            cancellable::KEPT_BYTES
        } else {
            0
        };
    a.lea(rsp, ptr(rsp - below))?;
    a.mov(qword_ptr(rsp), rcx)?;
    a.mov(qword_ptr(rsp + 8), rax)?;
    a.mov(rdi, rsp)?;
    a.call(handler)?;
    a.lea(rsp, ptr(rsp + below))
}

/// Looks for an open call; rdx is at the one for which `found` jumps away, or behind the last.
fn search(
    a: &mut CodeAssembler,
    mut found: impl FnMut(&mut CodeAssembler, AsmRegister64) -> Result<(), IcedError>,
) -> Result<(), IcedError> {
    a.lea(rdx, ptr(r15 + field!(calls)))?;
    for n in 0..OPEN_CALLS {
        found(a, rdx)?;
        if n + 1 < OPEN_CALLS {
            a.add(rdx, OPEN_CALL)?;
        }
    }
    Ok(())
}

/// Looks for the open call with this stack pointer, which it puts into r8, and goes to `found` with its address in rdx.
fn search_open(a: &mut CodeAssembler, found: CodeLabel) -> Result<(), IcedError> {
    a.mov(r8, word(PtRegs::Rsp))?;
    search(a, |a, call| {
        a.cmp(qword_ptr(call), r8)?;
        a.je(found)
    })
}

/// Keeps the call with the number in rcx, in place of one with the same stack pointer, of one that has returned, or of the
/// last one. Changes rdx and r8.
fn keep(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut here = a.create_label();
    search_open(a, here)?;
    search(a, |a, call| {
        a.cmp(qword_ptr(call), RETURNED)?;
        a.jbe(here)
    })?;
    a.set_label(&mut here)?;
    a.mov(qword_ptr(rdx), r8)?;
    a.mov(qword_ptr(rdx + NUMBER), rcx)
}

/// Puts the number of the call that returns into rcx. Without one it goes to `skip`, and counts that, unless the thread
/// has made no call so far: it was in this one before. Changes rdx and r8.
fn take(a: &mut CodeAssembler, skip: CodeLabel) -> Result<(), IcedError> {
    let mut here = a.create_label();
    search_open(a, here)?;
    a.cmp(qword_ptr(r15 + field!(calls)), 0)?;
    a.je(skip)?;
    a.lock().inc(qword_ptr(r15 + field!(skipped)))?;
    a.jmp(skip)?;
    a.set_label(&mut here)?;
    a.mov(rcx, qword_ptr(rdx + NUMBER))?;
    a.mov(qword_ptr(rdx), RETURNED)
}
