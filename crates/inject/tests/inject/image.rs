//! An image with handlers that count.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use iced_x86::code_asm::{
    CodeAssembler, dword_ptr, eax, qword_ptr, r8, r9, r10, r11, r15, rax, rcx, rdi, rdx, rsi,
};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use spile_inject::{AreaAccess, ImageArea, ProcessImage, PtRegs, RecordSlots};
use spile_layout::thread_record::ThreadRecord;

const CODE: u64 = 4096;
const COUNTERS: u64 = CODE;
const COUNTERS_LENGTH: u64 = 1 << 16;
const RECORDS: u64 = COUNTERS + COUNTERS_LENGTH;
const STACK: u64 = 1 << 16;

/// Counters, as offsets in the shared memory.
const COUNT: u64 = 0;
const SUM: u64 = 8;
const STRANGE: u64 = 16;
const BY_SLOT: u64 = 1024;
const REGISTERS: u64 = 8192;

/// A file in memory with three handlers.
pub(crate) struct Counting {
    file: OwnedFd,
    areas: Vec<ImageArea>,
    threads: RecordSlots,
    exact: bool,
    memory: *mut u8,
    length: usize,
    /// Adds 1.
    pub(crate) count: u64,
    /// Sums the first argument, and counts by record, and hits whose record has another number than the kernel.
    pub(crate) look: u64,
    /// Copies all registers.
    pub(crate) copy: u64,
}

impl Counting {
    pub(crate) fn new() -> Counting {
        Counting::with_slots(64)
    }

    pub(crate) fn with_slots(slots: u32) -> Counting {
        let records = u64::from(slots + 1) * size_of::<ThreadRecord>() as u64;
        let stacks = (RECORDS + records).next_multiple_of(4096);
        let length = stacks + STACK * u64::from(slots + 1);
        let file = memfd_create("image", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, length).unwrap();
        let (mut code, look, copy) = code().unwrap();
        code.resize(CODE as usize, 0xcc);
        rustix::io::write(&file, &code).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                length as usize,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
            .unwrap()
        };
        Counting {
            file,
            areas: vec![
                ImageArea {
                    offset: 0,
                    length: CODE,
                    access: AreaAccess::Code,
                },
                ImageArea {
                    offset: CODE,
                    length: length - CODE,
                    access: AreaAccess::Shared,
                },
            ],
            threads: RecordSlots {
                records: RECORDS,
                slots,
                stacks,
                stack: STACK,
            },
            exact: false,
            memory: memory.cast(),
            length: length as usize,
            count: 0,
            look,
            copy,
        }
    }

    pub(crate) fn exact(mut self) -> Counting {
        self.exact = true;
        self
    }

    pub(crate) fn image(&self) -> ProcessImage<'_> {
        ProcessImage {
            file: self.file.as_fd(),
            areas: &self.areas,
            threads: self.threads,
            clock: None,
            exact: self.exact,
        }
    }

    fn word(&self, offset: u64) -> u64 {
        // SAFETY: inside the mapping, aligned; the target writes atomically.
        unsafe { &*self.memory.add(offset as usize).cast::<AtomicU64>() }.load(Ordering::SeqCst)
    }

    /// Hits of all hooks.
    pub(crate) fn hits(&self) -> u64 {
        self.word(COUNTERS + COUNT)
    }

    /// Sum of their first arguments.
    pub(crate) fn sum(&self) -> u64 {
        self.word(COUNTERS + SUM)
    }

    /// Hits in whose record the number of the thread was wrong.
    pub(crate) fn strange(&self) -> u64 {
        self.word(COUNTERS + STRANGE)
    }

    /// Hits by record, the overflow record last.
    pub(crate) fn by_slot(&self) -> Vec<u64> {
        let all = 0..=u64::from(self.threads.slots);
        all.map(|slot| self.word(COUNTERS + BY_SLOT + slot * 8))
            .collect()
    }

    /// The registers of the last hit of `copy`.
    pub(crate) fn registers(&self) -> Vec<u64> {
        let words = 0..PtRegs::WORDS as u64;
        words
            .map(|i| self.word(COUNTERS + REGISTERS + i * 8))
            .collect()
    }

    /// The records, the overflow record last.
    pub(crate) fn records(&self) -> Vec<ThreadRecord> {
        let first = self
            .memory
            .wrapping_add(RECORDS as usize)
            .cast::<ThreadRecord>();
        // SAFETY: inside the mapping; the target rests.
        (0..=self.threads.slots as usize)
            .map(|i| unsafe { first.add(i).read_volatile() })
            .collect()
    }

    /// Hits that were skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.records().iter().map(|r| r.skipped).sum()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length.
        unsafe { munmap(self.memory.cast(), self.length).unwrap() };
    }
}

/// The handlers, and the offsets of the second and the third one.
fn code() -> Result<(Vec<u8>, u64, u64), IcedError> {
    let mut count = CodeAssembler::new(64)?;
    let rip = |a: &mut CodeAssembler, code, offset: u64| {
        let at = MemoryOperand::with_base_displ(Register::RIP, (COUNTERS + offset) as i64);
        let instruction = match code {
            Code::Lea_r64_m => Instruction::with2(code, Register::RCX, at)?,
            Code::Inc_rm64 => Instruction::with1(code, at)?,
            _ => Instruction::with2(code, at, Register::RAX)?,
        };
        if code != Code::Lea_r64_m {
            let _ = a.lock();
        }
        a.add_instruction(instruction)
    };
    rip(&mut count, Code::Inc_rm64, COUNT)?;
    count.ret()?;
    let mut code = count.assemble(0)?;
    code.resize(code.len().next_multiple_of(16), 0xcc);
    let look = code.len() as u64;
    let mut a = CodeAssembler::new(64)?;
    let mut equal = a.create_label();
    a.mov(rax, qword_ptr(rdi + PtRegs::Rdi as i32 * 8))?;
    rip(&mut a, Code::Add_rm64_r64, SUM)?;
    rip(&mut a, Code::Inc_rm64, COUNT)?;
    a.mov(
        eax,
        dword_ptr(r15 + std::mem::offset_of!(ThreadRecord, slot) as i32),
    )?;
    rip(&mut a, Code::Lea_r64_m, BY_SLOT)?;
    a.lock().inc(qword_ptr(rcx + rax * 8))?;
    a.mov(eax, libc::SYS_gettid as i32)?;
    a.syscall()?;
    a.cmp(
        dword_ptr(r15 + std::mem::offset_of!(ThreadRecord, tid) as i32),
        eax,
    )?;
    a.je(equal)?;
    rip(&mut a, Code::Inc_rm64, STRANGE)?;
    a.set_label(&mut equal)?;
    for register in [rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11] {
        a.mov(register, 0x1234_5678_9abc_def0u64)?;
    }
    a.add(rax, rax)?;
    a.ret()?;
    code.extend(a.assemble(look)?);
    code.resize(code.len().next_multiple_of(16), 0xcc);
    let copy = code.len() as u64;
    let mut a = CodeAssembler::new(64)?;
    rip(&mut a, Code::Lea_r64_m, REGISTERS)?;
    a.mov(rsi, rdi)?;
    a.mov(rdi, rcx)?;
    a.mov(rcx, PtRegs::WORDS as u64)?;
    a.rep().movsq()?;
    rip(&mut a, Code::Inc_rm64, COUNT)?;
    a.ret()?;
    code.extend(a.assemble(copy)?);
    Ok((code, look, copy))
}
