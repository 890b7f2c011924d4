//! Requests of threads: entry code asks spile for hooks in a program or in a library, and waits for an answer.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edx, esi, ptr, r10, r15, rcx, rdi,
};
use spile_cast::Cast;
use spile_layout::thread_record::ThreadRecord;

use crate::image::{EXECUTES, PlaceKind};
use crate::place::Place;
use crate::processor::assembly::{address, field, word};
use crate::processor::registers::PtRegs;

/// Seconds that a thread waits to be followed.
pub(super) const PAUSE: [u64; 2] = [5, 0];

/// The highest number of an error.
const ERRORS: i32 = 4095;

/// A number that no thread has: the kernel's are smaller.
const NOBODY: i32 = i32::MAX;

/// What a thread asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// To be followed into the program that it is about to execute.
    Execute,
    /// To have hooks in the code that it has mapped.
    Mapped,
}

impl Request {
    /// In a request, the highest bit.
    const MAPPED_BIT: i32 = ThreadRecord::MAPPED.cast_signed();

    /// In the number of requests.
    const UNANSWERED_BIT: i32 = ThreadRecord::UNANSWERED.cast_signed();

    /// The request of a place.
    pub(super) fn of(kind: PlaceKind) -> Option<Request> {
        match kind {
            PlaceKind::Execute(_) => Some(Request::Execute),
            PlaceKind::Mapped(_) => Some(Request::Mapped),
            _ => None,
        }
    }
}

/// Asks, and waits for an answer, for as long as the two words at `pause` say. Nobody waits again after that, until spile shows that it is there. Changes
/// what handlers change.
pub(super) fn request(
    a: &mut CodeAssembler,
    place: &Place,
    request: Request,
    pause: CodeLabel,
) -> Result<(), IcedError> {
    let (mut ask, mut wait, mut end) = (a.create_label(), a.create_label(), a.create_label());
    match request {
        Request::Execute => {
            if_executes(a, ask)?;
            a.jmp(end)?;
        }
        Request::Mapped => {
            a.cmp(word(PtRegs::Rax), -ERRORS)?;
            a.jae(end)?;
            a.test(word(PtRegs::Rdx), libc::PROT_EXEC)?;
            a.je(end)?;
            a.mov(rcx, word(PtRegs::R8))?;
            a.test(ecx, ecx)?;
            a.js(end)?;
        }
    }
    a.set_label(&mut ask)?;
    address(a, rdi, place.overflow())?;
    a.cmp(dword_ptr(rdi + field!(requests)), 0)?;
    a.js(end)?;
    system_call(a, libc::SYS_gettid)?;
    if request == Request::Mapped {
        a.or(eax, Request::MAPPED_BIT)?;
    }
    a.mov(dword_ptr(r15 + field!(request)), eax)?;
    a.mov(edx, 1)?;
    address(a, rdi, place.overflow())?;
    a.lea(rdi, ptr(rdi + field!(requests)))?;
    a.lock().inc(dword_ptr(rdi))?;
    a.mov(esi, libc::FUTEX_WAKE)?;
    system_call(a, libc::SYS_futex)?;
    a.lea(rdi, ptr(r15 + field!(request)))?;
    a.mov(esi, libc::FUTEX_WAIT)?;
    a.lea(r10, ptr(pause))?;
    a.set_label(&mut wait)?;
    a.mov(edx, dword_ptr(rdi))?;
    a.test(edx, edx)?;
    a.je(end)?;
    system_call(a, libc::SYS_futex)?;
    // A signal's handler ran meanwhile.
    a.cmp(eax, -libc::EINTR)?;
    a.je(wait)?;
    a.mov(dword_ptr(r15 + field!(request)), 0)?;
    a.cmp(eax, -libc::ETIMEDOUT)?;
    a.jne(end)?;
    address(a, rdi, place.overflow())?;
    a.lock()
        .or(dword_ptr(rdi + field!(requests)), Request::UNANSWERED_BIT)?;
    a.set_label(&mut end)?;
    a.nop()
}

/// Goes to a label if the call executes a program.
fn if_executes(a: &mut CodeAssembler, to: CodeLabel) -> Result<(), IcedError> {
    for number in EXECUTES {
        a.cmp(word(PtRegs::OrigRax), number.fit::<i32>())?;
        a.je(to)?;
    }
    Ok(())
}

/// Makes the record nobody's, if the thread is about to execute a program: it has the same number there, and the addresses
/// in the record are wrong.
pub(super) fn forget(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let (mut executes, mut end) = (a.create_label(), a.create_label());
    if_executes(a, executes)?;
    a.jmp(end)?;
    a.set_label(&mut executes)?;
    a.mov(dword_ptr(r15 + field!(tid)), NOBODY)?;
    a.set_label(&mut end)?;
    a.nop()
}

fn system_call(a: &mut CodeAssembler, number: i64) -> Result<(), IcedError> {
    a.mov(eax, number.fit::<i32>())?;
    a.syscall()
}
