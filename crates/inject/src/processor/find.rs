//! The routine of entry code that finds the record of a thread, or makes it one, where the short way in the entry did
//! not find it.
//!
//! A thread's key is the address of its thread structure plus 1, if a word of this structure has its number (glibc,
//! musl). That word is the *proof* of the record: another thread with the same structure later, or a child of `fork`,
//! has another number there. Other threads have their number as the key, and ask the kernel for it at each hit.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, dword_ptr, eax, ebp, ecx, edi, edx, esi, ptr,
    qword_ptr, r8, r9, r9d, r10, r11, r12, r13, r14, r14d, r15, rax, rbp, rbx, rcx, rdi, rdx,
    registers::gpr8::al, registers::gpr8::r9b, rsi, rsp,
};
use spile_cast::Cast;
use spile_layout::thread_record::ThreadRecord;

use crate::place::Place;
use crate::processor::assembly::{address, field};
use crate::processor::calls;
use crate::processor::entry::hashed;

/// Offsets in thread structures at which C libraries have the thread's number: musl, glibc.
const NUMBER_AT: [i32; 2] = [0x30, 0x2d0];

/// All but rax, rcx and r15, which the entry has saved.
const SAVED: [AsmRegister64; 12] = [rdx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, rbx, rbp];

/// Operation of `arch_prctl`.
const ARCH_GET_FS: i32 = 0x1003;

/// The bit of a key that is a thread's number. Addresses do not have it.
const NUMBER_BIT: u32 = 63;

/// How often threads without a record look for records of threads that have ended, or whose turn it is not, for an
/// owner that has ended: once in this number plus one of times.
const SELDOM: i32 = 63;

const NO_SUCH_THREAD: i32 = -libc::ESRCH;
const RECORD: i32 = 1 << ThreadRecord::SIZE_BITS;

/// Labels of the routine.
struct Labels {
    ask: CodeLabel,
    keyed: CodeLabel,
    full: CodeLabel,
    fill: CodeLabel,
    /// A record of its own was found.
    found: CodeLabel,
    /// The same, to be filled in.
    taken: CodeLabel,
    /// The overflow record, to be filled in. It is busy already.
    turn: CodeLabel,
    /// It runs a handler in the overflow record.
    nested: CodeLabel,
}

/// The routine at an address. It returns 0 in eax and the record in r15; or 1, if the record is busy for this hit; or -1,
/// if the hit is skipped. rbx has the thread structure, rbp the thread's number, r12 the key, r13 the proof, r14 the
/// process's number.
pub(crate) fn find(place: &Place, at: u64) -> Result<Vec<u8>, IcedError> {
    let mut code = CodeAssembler::new(64)?;
    let a = &mut code;
    let mut labels = Labels {
        ask: a.create_label(),
        keyed: a.create_label(),
        full: a.create_label(),
        fill: a.create_label(),
        found: a.create_label(),
        taken: a.create_label(),
        turn: a.create_label(),
        nested: a.create_label(),
    };
    for register in SAVED {
        a.push(register)?;
    }
    if !place.exact {
        by_structure(a, place, &labels)?;
    }
    a.set_label(&mut labels.ask)?;
    call(a, libc::SYS_gettid)?;
    a.mov(rbp, rax)?;
    a.mov(r12, rbp)?;
    a.bts(r12, NUMBER_BIT)?;
    address(a, r13, place.zero())?;
    if !place.exact {
        prove(a, place, &labels)?;
    }
    a.set_label(&mut labels.keyed)?;
    probe(a, place, &labels)?;
    a.set_label(&mut labels.full)?;
    sweep(a, place, &labels)?;
    take_turns(a, place, &labels)?;

    a.set_label(&mut labels.taken)?;
    a.mov(qword_ptr(r15 + field!(busy)), 0)?;
    for call in 0..calls::OPEN_CALLS {
        a.mov(qword_ptr(r15 + field!(calls) + call * calls::OPEN_CALL), 0)?;
    }
    a.call(labels.fill)?;
    a.mov(qword_ptr(r15 + field!(owner)), r12)?;
    a.set_label(&mut labels.found)?;
    leave(a, 0)?;
    a.set_label(&mut labels.turn)?;
    a.call(labels.fill)?;
    leave(a, 1)?;
    a.set_label(&mut labels.nested)?;
    a.lock().inc(qword_ptr(r15 + field!(skipped)))?;
    leave(a, -1)?;
    a.set_label(&mut labels.fill)?;
    fill(a, place)?;
    a.assemble(at)
}

fn leave(a: &mut CodeAssembler, result: i32) -> Result<(), IcedError> {
    for register in SAVED.into_iter().rev() {
        a.pop(register)?;
    }
    a.mov(eax, result)?;
    a.ret()
}

/// A system call without arguments, or with those that are in their registers. Changes rcx and r11.
fn call(a: &mut CodeAssembler, number: i64) -> Result<(), IcedError> {
    a.mov(eax, number.fit::<i32>())?;
    a.syscall()
}

/// The next record, the first one after the last. Changes rax.
fn next(a: &mut CodeAssembler, place: &Place) -> Result<(), IcedError> {
    let mut inside = a.create_label();
    a.add(r15, RECORD)?;
    address(a, rax, place.overflow())?;
    a.cmp(r15, rax)?;
    a.jb(inside)?;
    address(a, r15, place.records())?;
    a.set_label(&mut inside)?;
    a.nop()
}

/// Looks for a record with a proof, without asking the kernel.
fn by_structure(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    let (mut again, mut other) = (a.create_label(), a.create_label());
    match place.base_readable {
        true => a.rdfsbase(rbx)?,
        false => {
            a.sub(rsp, 16)?;
            a.mov(edi, ARCH_GET_FS)?;
            a.mov(rsi, rsp)?;
            call(a, libc::SYS_arch_prctl)?;
            a.mov(rbx, qword_ptr(rsp))?;
            a.add(rsp, 16)?;
        }
    }
    address(a, rcx, place.process)?;
    a.mov(r14d, dword_ptr(rcx))?;
    a.test(r14d, r14d)?;
    a.je(labels.ask)?;
    a.mov(rcx, rbx)?;
    hashed(a, place)?;
    a.lea(r12, ptr(rbx + 1))?;
    a.mov(r9d, place.threads.slots)?;
    a.set_label(&mut again)?;
    a.mov(rax, qword_ptr(r15 + field!(owner)))?;
    a.test(rax, rax)?;
    a.je(labels.ask)?;
    a.cmp(rax, r12)?;
    a.jne(other)?;
    a.cmp(dword_ptr(r15 + field!(tgid)), r14d)?;
    a.jne(other)?;
    a.mov(rdx, qword_ptr(r15 + field!(proof)))?;
    a.mov(edx, dword_ptr(rdx))?;
    a.cmp(dword_ptr(r15 + field!(tid)), edx)?;
    a.je(labels.found)?;
    a.set_label(&mut other)?;
    next(a, place)?;
    a.dec(r9d)?;
    a.jne(again)
}

/// Looks for the thread's number in its structure: the key and the proof, if it is there.
fn prove(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    let mut proven = a.create_label();
    a.test(rbx, rbx)?;
    a.je(labels.keyed)?;
    // The first word of the structure is its own address. Go's has none.
    a.cmp(qword_ptr(rbx), rbx)?;
    a.jne(labels.keyed)?;
    let [musl, glibc] = NUMBER_AT;
    a.lea(rcx, ptr(rbx + musl))?;
    a.cmp(dword_ptr(rcx), ebp)?;
    a.je(proven)?;
    // There, a structure of musl can have ended, and its memory as well: the kernel compares.
    a.lea(rdi, ptr(rbx + glibc))?;
    a.mov(esi, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG)?;
    a.mov(edx, ebp)?;
    address(a, r10, place.zero())?;
    call(a, libc::SYS_futex)?;
    a.cmp(eax, -libc::ETIMEDOUT)?;
    a.jne(labels.keyed)?;
    a.mov(rcx, rdi)?;
    a.set_label(&mut proven)?;
    a.mov(r13, rcx)?;
    a.lea(r12, ptr(rbx + 1))?;
    call(a, libc::SYS_getpid)?;
    a.mov(r14d, eax)?;
    address(a, rcx, place.process)?;
    a.mov(dword_ptr(rcx), r14d)
}

/// Looks for the record of the key, or a free one.
fn probe(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    let (mut again, mut claim, mut own, mut same, mut other) = (
        a.create_label(),
        a.create_label(),
        a.create_label(),
        a.create_label(),
        a.create_label(),
    );
    a.mov(rcx, r12)?;
    hashed(a, place)?;
    a.mov(r9d, place.threads.slots)?;
    a.set_label(&mut again)?;
    a.mov(rax, qword_ptr(r15 + field!(owner)))?;
    a.test(rax, rax)?;
    a.je(claim)?;
    a.cmp(rax, r12)?;
    a.jne(other)?;
    // Processes can have structures at the same address.
    a.test(r12, r12)?;
    a.js(own)?;
    a.cmp(dword_ptr(r15 + field!(tgid)), r14d)?;
    a.jne(other)?;
    a.jmp(same)?;
    // A program that this thread executed before had the record at another address.
    a.set_label(&mut own)?;
    a.cmp(qword_ptr(r15 + field!(own)), r15)?;
    a.jne(claim)?;
    a.set_label(&mut same)?;
    a.cmp(dword_ptr(r15 + field!(tid)), ebp)?;
    a.je(labels.found)?;
    // Of a thread that had this structure before.
    a.set_label(&mut claim)?;
    a.mov(ecx, ThreadRecord::CLAIMED.fit::<i32>())?;
    a.lock().cmpxchg(qword_ptr(r15 + field!(owner)), rcx)?;
    a.jne(again)?;
    a.jmp(labels.taken)?;
    a.set_label(&mut other)?;
    next(a, place)?;
    a.dec(r9d)?;
    a.jne(again)
}

/// All records are owned: counts that, and looks for an owner that has ended.
fn sweep(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    let (mut again, mut other, mut end) = (a.create_label(), a.create_label(), a.create_label());
    let ended = |a: &mut CodeAssembler| {
        a.mov(edi, dword_ptr(r15 + field!(tgid)))?;
        a.mov(esi, dword_ptr(r15 + field!(tid)))?;
        a.xor(edx, edx)?;
        call(a, libc::SYS_tgkill)?;
        a.cmp(eax, NO_SUCH_THREAD)
    };
    address(a, r15, place.overflow())?;
    a.mov(eax, 1)?;
    a.lock().xadd(qword_ptr(r15 + field!(owner)), rax)?;
    a.test(eax, SELDOM)?;
    a.jne(end)?;
    address(a, r15, place.records())?;
    a.mov(r9d, place.threads.slots)?;
    a.set_label(&mut again)?;
    a.mov(r8, qword_ptr(r15 + field!(owner)))?;
    a.cmp(r8, ThreadRecord::CLAIMED.fit::<i32>())?;
    a.je(other)?;
    ended(a)?;
    a.jne(other)?;
    a.mov(rax, r8)?;
    a.mov(ecx, ThreadRecord::CLAIMED.fit::<i32>())?;
    a.lock().cmpxchg(qword_ptr(r15 + field!(owner)), rcx)?;
    a.jne(other)?;
    // Only now nobody else fills it in.
    ended(a)?;
    a.je(labels.taken)?;
    a.mov(qword_ptr(r15 + field!(owner)), r8)?;
    a.set_label(&mut other)?;
    next(a, place)?;
    a.dec(r9d)?;
    a.jne(again)?;
    a.set_label(&mut end)?;
    a.nop()
}

/// Waits for the overflow record.
fn take_turns(a: &mut CodeAssembler, place: &Place, labels: &Labels) -> Result<(), IcedError> {
    let mut again = a.create_label();
    address(a, r15, place.overflow())?;
    a.xor(r9d, r9d)?;
    a.set_label(&mut again)?;
    a.xor(eax, eax)?;
    a.lock().cmpxchg(qword_ptr(r15 + field!(busy)), rbp)?;
    a.je(labels.turn)?;
    a.cmp(rax, rbp)?;
    a.je(labels.nested)?;
    a.mov(r8, rax)?;
    call(a, libc::SYS_sched_yield)?;
    a.inc(r9d)?;
    a.test(r9b, SELDOM)?;
    a.jne(again)?;
    a.mov(rdi, r8)?;
    a.xor(esi, esi)?;
    call(a, libc::SYS_tkill)?;
    a.cmp(eax, NO_SUCH_THREAD)?;
    a.jne(again)?;
    a.mov(rax, r8)?;
    a.lock().cmpxchg(qword_ptr(r15 + field!(busy)), rbp)?;
    a.jne(again)?;
    a.jmp(labels.turn)
}

/// Fills in a record. Its owner and whether it is busy stay.
fn fill(a: &mut CodeAssembler, place: &Place) -> Result<(), IcedError> {
    let asked = [
        (libc::SYS_getpid, field!(tgid)),
        (libc::SYS_getppid, field!(ppid)),
        (libc::SYS_getuid, field!(uid)),
        (libc::SYS_geteuid, field!(euid)),
        (libc::SYS_getgid, field!(gid)),
        (libc::SYS_getegid, field!(egid)),
        (libc::SYS_getpgrp, field!(pgrp)),
        (libc::SYS_getsid, field!(session)),
    ];
    a.mov(dword_ptr(r15 + field!(tid)), ebp)?;
    for (number, field) in asked {
        a.xor(edi, edi)?;
        call(a, number)?;
        a.mov(dword_ptr(r15 + field), eax)?;
    }
    a.mov(edi, libc::PR_GET_NAME)?;
    a.lea(rsi, ptr(r15 + field!(comm)))?;
    call(a, libc::SYS_prctl)?;
    a.mov(rax, r15)?;
    address(a, rcx, place.records())?;
    a.sub(rax, rcx)?;
    a.shr(rax, ThreadRecord::SIZE_BITS)?;
    a.mov(dword_ptr(r15 + field!(slot)), eax)?;
    a.imul_3(rax, rax, place.threads.stack.fit::<i32>())?;
    address(a, rcx, place.stacks() + place.threads.stack)?;
    a.add(rax, rcx)?;
    a.mov(qword_ptr(r15 + field!(stack)), rax)?;
    a.mov(qword_ptr(r15 + field!(proof)), r13)?;
    a.mov(qword_ptr(r15 + field!(own)), r15)?;
    let facts = &place.facts;
    let [[arguments, arguments_end], [device, inode]] = [facts.arguments, facts.program];
    for (value, field) in [
        (facts.clock, field!(clock)),
        (facts.task_size, field!(task_size)),
        (arguments, field!(arguments)),
        (arguments_end, field!(arguments) + 8),
        (device, field!(program)),
        (inode, field!(program) + 8),
    ] {
        a.mov(rax, value)?;
        a.mov(qword_ptr(r15 + field), rax)?;
    }
    a.rdtsc()?;
    a.shl(rdx, 32)?;
    a.or(rax, rdx)?;
    a.imul_2(rax, rbp)?;
    a.or(al, 1)?;
    a.mov(qword_ptr(r15 + field!(random)), rax)?;
    a.ret()
}
