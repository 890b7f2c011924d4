//! Stacks of user programs: `user_walk` goes from frame to frame, one `user_frame` after the
//! other.
//!
//! Each address is looked up in the tree of the process's mappings (`user_map`; no lock: RCU
//! keeps the tree while a tracing program runs, and what is found is checked), which gives the
//! file and the place in it. Files are known by device and inode in the map [`FILES_MAP`], with the
//! number by which the controller knows them, and where in the map [`ROWS_MAP`] the file's unwind
//! rows are, once the controller has loaded them. A file that is seen for the first time is told
//! to the controller at once, with the names that lead to it, so that programs which ended by the
//! time they are printed have names too.
//!
//! `user_step` finds the row of the address and with it the caller's registers. Where no row is,
//! frame pointers are followed; that is counted where there may be rows.
//!
//! Facts: `struct maple_range_64`, `struct maple_arange_64` and the marks in pointers to nodes
//! from `include/linux/maple_tree.h` (6.1 and later, 64 bits); the frame of a signal from
//! `arch/x86/include/uapi/asm/ucontext.h`.

use super::argstr::Put;
use super::stacks::{put_byte, put_hex};
use super::{Gen, Pool, Res};
use crate::asm::{Asm, Function, Label, Section};
use crate::helpers::Helper;
use crate::insn::{AluOp, AtomicOp, Cond, Reg, Reg::*, Size, Src};
use crate::layout::{FILE_NAME, FILE_NAMES, Options, RecordShape, RecordWhat, UnwindOffsets, VDSO};
use crate::layout::{FILES_MAP, ROWS_MAP, percpu, unwind_row};
use crate::plan::{MAX_BACKTRACE, Plan, StackRoom};
use spile_ir::{Ty, Val};

/// Numbers in a record of a new file, in front of its names.
const FILE_FIELDS: usize = 6;
/// Levels of a tree of mappings that are gone down.
const LEVELS: u32 = 8;
/// Halvings of a search among rows: [`crate::layout::MAX_ROWS`] of a file.
const HALVINGS: u32 = 22;

/// What a CPU's block has for a walk, as offsets from [`StackRoom::user`].
mod at {
    use super::{FILE_FIELDS, MAX_BACKTRACE};
    use crate::layout::{FILE_NAME, FILE_NAMES};
    pub const IP: u32 = 0;
    pub const SP: u32 = 8;
    pub const BP: u32 = 16;
    /// The frame was interrupted, and did not call.
    pub const EXACT: u32 = 24;
    /// Frames so far.
    pub const N: u32 = 32;
    /// The address that is looked up: of the call, not behind it.
    pub const ADDR: u32 = 40;
    /// The mapping it is in, and what makes an address in it an offset in the file.
    pub const START: u32 = 48;
    pub const END: u32 = 56;
    pub const OFF: u32 = 64;
    /// The file's number, its first row, how many.
    pub const FILE: u32 = 72;
    pub const FIRST: u32 = 80;
    pub const ROWS: u32 = 88;
    /// Entry of the tree.
    pub const ENTRY: u32 = 96;
    pub const LO: u32 = 104;
    pub const HI: u32 = 112;
    pub const MID: u32 = 120;
    /// Key and value of a file.
    pub const KEY: u32 = 128;
    pub const VALUE: u32 = 144;
    /// What is read.
    pub const READ: u32 = 168;
    pub const TGID: u32 = 184;
    pub const VDSO: u32 = 192;
    pub const NODE: u32 = 208;
    pub const FILES: u32 = NODE + 256;
    pub const OFFSETS: u32 = FILES + 8 * MAX_BACKTRACE;
    pub const RECORD: u32 = OFFSETS + 8 * MAX_BACKTRACE;
    pub const RECORD_SIZE: u32 = 16 + 8 * FILE_FIELDS as u32 + (FILE_NAMES * FILE_NAME) as u32;
    pub const SIZE: u32 = RECORD + RECORD_SIZE;
}

/// Bytes that walks need in each CPU's block.
pub(crate) const ROOM: u32 = at::SIZE;

/// Makes sure of the subprograms.
fn use_walk(pool: &mut Pool, plan: &Plan, options: &Options) -> Res {
    let room = plan.stacks.as_ref().and_then(|r| Some((r, r.user?)));
    let (Some((room, base)), Some(offsets)) = (room, &options.offsets.unwind) else {
        return Err("stacks of programs need fields that this kernel's BTF does not have".into());
    };
    let new = |name| Walk {
        p: Put::new(name, &[], plan, options.cpus),
        base: base as i16,
        room,
        o: offsets,
    };
    pool.sub("maple_down", |_| new("maple_down").maple_down())?;
    let words = RecordShape {
        what: RecordWhat::File,
        fields: vec![Ty::Long; FILE_FIELDS + FILE_NAMES * FILE_NAME / 8],
        words: 0,
    };
    let shape = pool.record(words);
    pool.sub("user_file", |_| {
        let p = Put::new("user_file", &["file"], plan, options.cpus);
        new("user_file").with(p).user_file(shape)
    })?;
    pool.sub("user_map", |_| new("user_map").user_map())?;
    pool.sub("user_step", |_| new("user_step").user_step())?;
    pool.sub("user_frame", |_| new("user_frame").user_frame())?;
    pool.sub("user_walk", |_| new("user_walk").user_walk())
}

impl Gen<'_> {
    /// Fills the room with the current program's stack.
    pub(super) fn take_user_stack(&mut self) -> Res {
        use_walk(self.pool, self.plan, self.options)?;
        self.asm.call_sub("user_walk");
        Ok(())
    }

    /// `r0` = address `n` of the current program's stack, or 0.
    pub(super) fn user_frame(&mut self, n: Val) -> Res {
        self.take_user_stack()?;
        self.frame_of_room(n)
    }

    /// `dst` = the first `n` addresses of the current program's stack.
    pub(super) fn user_stack(&mut self, dst: spile_ir::Reg, n: Val) -> Res {
        let Some(slot) = self.slot(dst)? else {
            return Ok(());
        };
        self.take_user_stack()?;
        self.stack_text(n, slot)
    }

    /// `dst` = a mark for the current program's stack, or for an address in it.
    pub(super) fn user_symbolic(&mut self, dst: spile_ir::Reg, form: Val, addr: Val) -> Res {
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let form = super::stacks::symbolic_form(form);
        use_walk(self.pool, self.plan, self.options)?;
        if form.of_stack() {
            self.asm.call_sub("user_walk");
        } else {
            let (plan, options) = (self.plan, self.options);
            let room = plan.stacks.clone().ok_or("no room for stacks")?;
            let base = room.user.ok_or("no room for stacks of programs")?;
            let offsets = options.offsets.unwind.as_ref().ok_or("no offsets")?;
            self.pool.sub("user_address", |_| {
                let w = Walk {
                    p: Put::new("user_address", &["address"], plan, options.cpus),
                    base: base as i16,
                    room: &room,
                    o: offsets,
                };
                w.user_address()
            })?;
            self.long_into(addr, R1)?;
            self.forget(R1);
            self.asm.call_sub("user_address");
        }
        let (plan, options) = (self.plan, self.options);
        let room = plan.stacks.clone().ok_or("no room for stacks")?;
        let base = room.user.ok_or("no room for stacks of programs")?;
        self.pool.sub("append_number_16", |pool| {
            super::append::append_number(plan, pool, 16)
        })?;
        self.pool.sub("append_frames", |_| {
            let p = Put::new("append_frames", &["full"], plan, options.cpus);
            append_frames(p, base as i16, &room)
        })?;
        self.begin_text(width);
        self.begin_mark(form)?;
        self.asm.mov(R1, i32::from(form.full()));
        self.asm.call_sub("append_frames");
        self.append_text(&super::stacks::literal(";"), 0, None)?;
        self.end_text(off, width);
        Ok(())
    }
}

/// A subprogram of a walk: r6 is the CPU's block.
struct Walk<'a> {
    p: Put<'a>,
    base: i16,
    room: &'a StackRoom,
    o: &'a UnwindOffsets,
}

impl<'a> Walk<'a> {
    fn with(self, p: Put<'a>) -> Walk<'a> {
        Walk { p, ..self }
    }

    fn asm(&mut self) -> &mut Asm {
        &mut self.p.asm
    }

    fn get(&mut self, to: Reg, field: u32) {
        let at = self.base + field as i16;
        self.p.asm.load(Size::DW, to, R6, at);
    }

    fn set(&mut self, field: u32, src: impl Into<Src>) {
        let at = self.base + field as i16;
        self.p.asm.store(Size::DW, R6, at, src);
    }

    /// `to` = address of a field.
    fn addr(&mut self, to: Reg, field: u32) {
        let at = i32::from(self.base) + field as i32;
        self.p.asm.mov(to, R6);
        self.p.asm.add(to, at);
    }

    /// `to` = word at `base + off` in the kernel's memory. Loses r0-r5.
    fn word(&mut self, to: Reg, base: Reg, off: u32, fail: Label) {
        self.p.asm.mov(R3, base);
        self.p.asm.add(R3, off as i32);
        self.addr(R1, at::READ);
        self.p.asm.mov(R2, 8);
        self.p.asm.call(Helper::ProbeReadKernel);
        self.p.asm.jump_if(Cond::Ne, R0, 0, fail);
        self.get(to, at::READ);
    }

    /// Reads so many bytes at r3 of the program's memory. Loses r0-r5.
    fn user(&mut self, bytes: i32, fail: Label) {
        self.addr(R1, at::READ);
        self.p.asm.mov(R2, bytes);
        self.p.asm.call(Helper::ProbeReadUser);
        self.p.asm.jump_if(Cond::Ne, R0, 0, fail);
    }

    /// Ends with 0, and behind the label with 1.
    fn two_ends(mut self, one: Label) -> Res<Function> {
        let end = self.p.end;
        self.asm().jump(end);
        self.asm().bind(one);
        self.asm().mov(R0, 1);
        self.asm().exit();
        self.p.finish()
    }

    /// `user_walk()`: fills the room.
    fn user_walk(mut self) -> Res<Function> {
        let (count, first) = (self.room.count as i16, self.room.first as i16);
        let end = self.p.end;
        let native = self.asm().label();
        let o = self.o;
        self.asm().store(Size::DW, R6, count, 0);
        self.asm().store(Size::DW, R6, first, 0);
        for field in [at::N, at::START, at::END, at::EXACT] {
            self.set(field, 0);
        }
        self.asm().call(Helper::GetCurrentTaskBtf);
        self.asm().mov(R7, R0);
        self.asm().load(Size::DW, R1, R7, o.task_mm as i16);
        self.asm().jump_if(Cond::Eq, R1, 0, end);
        self.asm().load(Size::W, R1, R7, o.task_tgid as i16);
        self.set(at::TGID, R1);
        self.asm().mov(R1, R7);
        self.asm().call(Helper::TaskPtRegs);
        self.asm().mov(R7, R0);
        self.asm().load(Size::DW, R1, R7, o.regs_cs as i16);
        self.asm().alu(AluOp::And, R1, 0xffff);
        self.asm().mov(R2, R1);
        self.asm().alu(AluOp::And, R2, 3);
        self.asm().jump_if(Cond::Ne, R2, 3, end);
        for (off, field) in [
            (o.regs_ip, at::IP),
            (o.regs_sp, at::SP),
            (o.regs_bp, at::BP),
        ] {
            self.asm().load(Size::DW, R2, R7, off as i16);
            self.set(field, R2);
        }
        // The segment of 32-bit code: its frames are not followed.
        self.asm().jump_if(Cond::Ne, R1, 0x23, native);
        self.set(at::SP, -1);
        self.asm().bind(native);
        for _ in 0..MAX_BACKTRACE {
            self.asm().call_sub("user_frame");
            self.asm().jump_if(Cond::Ne, R0, 0, end);
        }
        self.p.finish()
    }

    /// `user_frame()`: notes a frame and finds the next; not 0 at the end.
    fn user_frame(mut self) -> Res<Function> {
        let [stop, exact, look, known] = std::array::from_fn(|_| self.p.asm.label());
        let (frames, count) = (self.room.frames, self.room.count as i16);
        self.get(R7, at::IP);
        self.asm().jump_if(Cond::Eq, R7, 0, stop);
        self.asm().mov(R8, R7);
        self.get(R1, at::N);
        self.asm().jump_if(Cond::Eq, R1, 0, exact);
        self.get(R1, at::EXACT);
        self.asm().jump_if(Cond::Ne, R1, 0, exact);
        self.asm().add(R8, -1);
        self.asm().bind(exact);
        self.set(at::ADDR, R8);
        self.get(R1, at::START);
        self.asm().jump_if(Cond::Gt, R1, R8, look);
        self.get(R1, at::END);
        self.asm().jump_if(Cond::Gt, R1, R8, known);
        self.asm().bind(look);
        self.asm().call_sub("user_map");
        self.asm().bind(known);
        self.get(R1, at::N);
        self.asm().jump_if(Cond::Ge, R1, MAX_BACKTRACE as i32, stop);
        self.asm().mov(R3, R1);
        self.asm().alu(AluOp::Lsh, R3, 3);
        self.asm().add(R3, R6);
        self.asm().store(Size::DW, R3, frames as i16, R7);
        self.get(R4, at::FILE);
        let (files, offsets) = (at::FILES as i16, at::OFFSETS as i16);
        let base = self.base;
        self.asm().store(Size::DW, R3, base + files, R4);
        self.get(R4, at::OFF);
        self.asm().add(R4, R7);
        self.asm().store(Size::DW, R3, base + offsets, R4);
        self.asm().add(R1, 1);
        self.set(at::N, R1);
        self.asm().alu(AluOp::Lsh, R1, 3);
        self.asm().store(Size::DW, R6, count, R1);
        self.asm().call_sub("user_step");
        self.asm().jump_if(Cond::Ne, R0, 0, stop);
        self.two_ends(stop)
    }

    /// `maple_down()`: from a node of the tree to the entry for the address; not 0 where that is
    /// no node: the type in a node's pointer says so, of the tree's leaves.
    fn maple_down(mut self) -> Res<Function> {
        let [leaf, none, range, arange] = std::array::from_fn(|_| self.p.asm.label());
        self.get(R7, at::ENTRY);
        self.asm().mov(R8, R7);
        self.asm().alu(AluOp::Rsh, R8, 3);
        self.asm().alu(AluOp::And, R8, 15);
        self.asm().alu(AluOp::And, R7, -256);
        self.addr(R1, at::NODE);
        self.asm().mov(R2, 256);
        self.asm().mov(R3, R7);
        self.asm().call(Helper::ProbeReadKernel);
        self.asm().jump_if(Cond::Ne, R0, 0, none);
        // Pivots are the last addresses of whole pages; 0 behind the last one. Pages are
        // counted from -1, so that 0 is the largest.
        self.get(R9, at::ADDR);
        self.asm().alu(AluOp::Rsh, R9, 12);
        self.asm().add(R9, -1);
        self.asm().ld_imm64(R3, (1 << 52) - 1);
        self.asm().jump_if(Cond::Eq, R8, 3, arange);
        self.asm().jump_if(Cond::Eq, R8, 2, range);
        self.asm().jump_if(Cond::Eq, R8, 1, range);
        self.asm().jump(none);
        for (label, pivots, slots) in [(range, 15, 128), (arange, 9, 80)] {
            self.asm().bind(label);
            self.asm().mov(R1, 0);
            for i in 0..pivots {
                self.get(R2, at::NODE + 8 + 8 * i);
                self.asm().alu(AluOp::Rsh, R2, 12);
                self.asm().add(R2, -1);
                self.asm().alu(AluOp::And, R2, R3);
                self.asm().alu(AluOp::Sub, R2, R9);
                self.asm().alu(AluOp::Rsh, R2, 63);
                self.asm().add(R1, R2);
            }
            self.asm().alu(AluOp::And, R1, 15);
            self.asm().alu(AluOp::Lsh, R1, 3);
            self.asm().add(R1, R6);
            let slot = self.base + (at::NODE + slots) as i16;
            self.asm().load(Size::DW, R2, R1, slot);
            self.set(at::ENTRY, R2);
            self.asm().jump_if(Cond::Eq, R8, 1, leaf);
            self.asm().mov(R0, 0);
            self.asm().exit();
        }
        self.asm().bind(none);
        self.set(at::ENTRY, 0);
        self.asm().bind(leaf);
        self.asm().mov(R0, 1);
        self.asm().exit();
        self.p.finish()
    }

    /// `user_map()`: the mapping and the file of the address; nothing where there is none.
    fn user_map(mut self) -> Res<Function> {
        let [found, named, fresh, full] = std::array::from_fn(|_| self.p.asm.label());
        let (o, end) = (self.o, self.p.end);
        for field in [at::START, at::END, at::OFF, at::FILE, at::ROWS] {
            self.set(field, 0);
        }
        self.asm().call(Helper::GetCurrentTaskBtf);
        self.asm().load(Size::DW, R7, R0, o.task_mm as i16);
        self.asm().jump_if(Cond::Eq, R7, 0, end);
        self.word(R8, R7, o.mm_root, end);
        self.set(at::ENTRY, R8);
        // The root says of itself that it is a node.
        self.asm().alu(AluOp::And, R8, 3);
        self.asm().jump_if(Cond::Ne, R8, 2, end);
        self.word(R8, R7, o.mm_vdso, end);
        self.set(at::VDSO, R8);
        for _ in 0..LEVELS {
            self.asm().call_sub("maple_down");
            self.asm().jump_if(Cond::Ne, R0, 0, found);
        }
        self.asm().jump(end);
        self.asm().bind(found);
        self.get(R7, at::ENTRY);
        self.asm().jump_if(Cond::Eq, R7, 0, end);
        self.word(R9, R7, o.vma_start, end);
        self.word(R8, R7, o.vma_end, end);
        self.get(R1, at::ADDR);
        self.asm().jump_if(Cond::Gt, R9, R1, end);
        self.asm().jump_if(Cond::Le, R8, R1, end);
        self.set(at::START, R9);
        self.set(at::END, R8);
        self.word(R8, R7, o.vma_pgoff, end);
        self.asm().alu(AluOp::Lsh, R8, 12);
        self.asm().alu(AluOp::Sub, R8, R9);
        self.set(at::OFF, R8);
        self.word(R7, R7, o.vma_file, end);
        let file = self.asm().label();
        self.asm().jump_if(Cond::Ne, R7, 0, file);
        self.get(R1, at::VDSO);
        self.asm().jump_if(Cond::Ne, R1, R9, end);
        self.set(at::FILE, VDSO as i32);
        self.asm().neg(R9);
        self.set(at::OFF, R9);
        self.asm().jump(end);
        self.asm().bind(file);
        self.word(R8, R7, o.file_inode, end);
        self.word(R9, R8, o.inode_ino, end);
        self.set(at::KEY + 8, R9);
        self.word(R9, R8, o.inode_sb, end);
        self.word(R9, R9, o.sb_dev, end);
        self.asm().mov32(R9, R9);
        self.set(at::KEY, R9);
        self.look_up(named);
        // The next number.
        let next = self.room.next_file;
        self.asm().ld_data(R1, Section::Bss, next);
        self.asm().mov(R8, 1);
        self.asm().atomic(AtomicOp::FetchAdd, R1, 0, R8);
        self.asm().add(R8, 1);
        self.set(at::VALUE, R8);
        self.set(at::VALUE + 8, 0);
        self.set(at::VALUE + 16, 0);
        self.asm().ld_map(R1, FILES_MAP);
        self.addr(R2, at::KEY);
        self.addr(R3, at::VALUE);
        self.asm().mov(R4, 1);
        self.asm().call(Helper::MapUpdateElem);
        self.asm().jump_if(Cond::Eq, R0, 0, fresh);
        // Another processor was first, or there is no room.
        self.look_up(named);
        self.asm().jump(full);
        self.asm().bind(fresh);
        self.set(at::FILE, R8);
        self.asm().mov(R1, R7);
        self.asm().call_sub("user_file");
        self.asm().jump(end);
        self.asm().bind(full);
        let lost = percpu::NO_MEMORY as i16;
        self.asm().load(Size::DW, R1, R6, lost);
        self.asm().add(R1, 1);
        self.asm().store(Size::DW, R6, lost, R1);
        self.asm().jump(end);
        self.asm().bind(named);
        for (from, field) in [(0, at::FILE), (8, at::FIRST), (16, at::ROWS)] {
            self.asm().load(Size::DW, R1, R0, from);
            self.set(field, R1);
        }
        self.p.finish()
    }

    fn look_up(&mut self, found: Label) {
        self.asm().ld_map(R1, FILES_MAP);
        self.addr(R2, at::KEY);
        self.asm().call(Helper::MapLookupElem);
        self.asm().jump_if(Cond::Ne, R0, 0, found);
    }

    /// `user_file(file)`: tells the controller of a file.
    fn user_file(mut self, shape: u32) -> Res<Function> {
        let [send, sent] = std::array::from_fn(|_| self.p.asm.label());
        let o = self.o;
        let field = |n: u32| at::RECORD + 16 + 8 * n;
        let base = self.base;
        let header = base + at::RECORD as i16;
        self.asm().store(Size::W, R6, header, 0);
        self.asm()
            .store(Size::W, R6, header + 4, at::RECORD_SIZE as i32);
        self.set(at::RECORD + 8, shape as i32);
        let known = [at::FILE, at::TGID, at::START, at::END, at::KEY, at::KEY + 8];
        for (i, from) in known.into_iter().enumerate() {
            self.get(R1, from);
            self.set(field(i as u32), R1);
        }
        let name = |i: usize| field(FILE_FIELDS as u32) + (i * FILE_NAME) as u32;
        for i in 0..FILE_NAMES {
            self.set(name(i), 0);
        }
        self.word(R7, R7, o.file_dentry, send);
        for i in 0..FILE_NAMES {
            // The root is its own parent.
            self.word(R8, R7, o.dentry_parent, send);
            self.asm().jump_if(Cond::Eq, R8, R7, send);
            self.word(R9, R7, o.dentry_name, send);
            self.addr(R1, name(i));
            self.asm().mov(R2, FILE_NAME as i32);
            self.asm().mov(R3, R9);
            self.asm().call(Helper::ProbeReadKernelStr);
            self.asm().mov(R7, R8);
        }
        self.asm().bind(send);
        self.asm().ld_map(R1, super::RING);
        self.addr(R2, at::RECORD);
        self.asm().mov(R3, at::RECORD_SIZE as i32);
        self.asm().mov(R4, 0);
        self.asm().call(Helper::RingbufOutput);
        self.asm().jump_if(Cond::Eq, R0, 0, sent);
        let lost = percpu::LOST_OUTPUT as i16;
        self.asm().load(Size::DW, R1, R6, lost);
        self.asm().add(R1, 1);
        self.asm().store(Size::DW, R6, lost, R1);
        self.asm().bind(sent);
        self.p.finish()
    }

    /// `user_address(address)`: makes it the only frame.
    fn user_address(mut self) -> Res<Function> {
        let (frames, count) = (self.room.frames as i16, self.room.count as i16);
        let end = self.p.end;
        self.set(at::N, 0);
        self.asm().store(Size::DW, R6, count, 0);
        self.asm().call(Helper::GetCurrentTaskBtf);
        let tgid = self.o.task_tgid as i16;
        self.asm().load(Size::W, R1, R0, tgid);
        self.set(at::TGID, R1);
        self.set(at::ADDR, R7);
        self.asm().store(Size::DW, R6, frames, R7);
        self.asm().call_sub("user_map");
        self.get(R1, at::FILE);
        self.set(at::FILES, R1);
        self.get(R1, at::OFF);
        self.asm().add(R1, R7);
        self.set(at::OFFSETS, R1);
        self.set(at::N, 1);
        self.asm().jump(end);
        self.p.finish()
    }

    /// `r0` = the row with the index in that field; `guess` where there is none.
    fn row(&mut self, index: u32, guess: Label) {
        self.asm().ld_map(R1, ROWS_MAP);
        self.addr(R2, index);
        self.asm().call(Helper::MapLookupElem);
        self.asm().jump_if(Cond::Eq, R0, 0, guess);
    }

    /// `user_step()`: the caller's registers; not 0 at the end of the stack.
    fn user_step(mut self) -> Res<Function> {
        let [stop, guess, chain, found, taken] = std::array::from_fn(|_| self.p.asm.label());
        self.get(R1, at::ROWS);
        self.asm().jump_if(Cond::Eq, R1, 0, guess);
        self.get(R2, at::FIRST);
        self.set(at::LO, R2);
        self.asm().add(R1, R2);
        self.set(at::HI, R1);
        self.get(R7, at::ADDR);
        self.get(R1, at::OFF);
        self.asm().add(R7, R1);
        for _ in 0..HALVINGS {
            let [high, next] = std::array::from_fn(|_| self.p.asm.label());
            self.get(R1, at::LO);
            self.get(R2, at::HI);
            self.asm().mov(R3, R1);
            self.asm().add(R3, 1);
            self.asm().jump_if(Cond::Ge, R3, R2, found);
            self.asm().add(R1, R2);
            self.asm().alu(AluOp::Rsh, R1, 1);
            self.set(at::MID, R1);
            self.row(at::MID, chain);
            self.asm().load(Size::W, R1, R0, unwind_row::START);
            self.get(R2, at::MID);
            self.asm().jump_if(Cond::Gt, R1, R7, high);
            self.set(at::LO, R2);
            self.asm().jump(next);
            self.asm().bind(high);
            self.set(at::HI, R2);
            self.asm().bind(next);
        }
        self.asm().bind(found);
        self.row(at::LO, chain);
        self.asm().load(Size::W, R1, R0, unwind_row::START);
        self.asm().jump_if(Cond::Gt, R1, R7, chain);
        self.follow(chain, stop, taken);
        self.asm().bind(guess);
        // Rows may be on their way.
        self.get(R1, at::FILE);
        self.asm().jump_if(Cond::Eq, R1, 0, chain);
        self.asm().jump_if(Cond::Eq, R1, VDSO as i32, chain);
        let guessed = percpu::GUESSED as i16;
        self.asm().load(Size::DW, R1, R6, guessed);
        self.asm().add(R1, 1);
        self.asm().store(Size::DW, R6, guessed, R1);
        self.asm().bind(chain);
        self.frame_pointers(stop);
        self.asm().bind(taken);
        self.two_ends(stop)
    }

    /// By the row at r0.
    fn follow(&mut self, chain: Label, stop: Label, taken: Label) {
        use unwind_row::kind;
        let [bp, rsp, plt, later, signal, deref, cfa, same] =
            std::array::from_fn(|_| self.p.asm.label());
        self.asm().load(Size::B, R8, R0, unwind_row::KIND);
        self.asm().load(Size::B, R7, R0, unwind_row::RBP);
        self.asm().load(Size::H, R9, R0, unwind_row::CFA);
        self.asm().alu(AluOp::Lsh, R9, 48);
        self.asm().alu(AluOp::Arsh, R9, 48);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::NONE), chain);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::END), stop);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::SIGNAL), signal);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::PLT), plt);
        self.asm().alu(AluOp::Lsh, R9, 3);
        self.asm().jump_if(Cond::Eq, R8, i32::from(kind::RBP), bp);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::AT_RBP), bp);
        self.get(R1, at::SP);
        self.asm().jump(rsp);
        self.asm().bind(bp);
        self.get(R1, at::BP);
        self.asm().bind(rsp);
        self.asm().add(R9, R1);
        self.asm()
            .jump_if(Cond::Eq, R8, i32::from(kind::AT_RBP), deref);
        self.asm()
            .jump_if(Cond::Ne, R8, i32::from(kind::AT_RSP), cfa);
        self.asm().bind(deref);
        self.asm().mov(R3, R9);
        self.user(8, stop);
        self.get(R9, at::READ);
        self.asm().jump(cfa);
        self.asm().bind(plt);
        self.get(R1, at::IP);
        self.asm().alu(AluOp::And, R1, 15);
        self.get(R2, at::SP);
        self.asm().add(R2, 8);
        self.asm().jump_if(Cond::Lt, R1, R9, later);
        self.asm().add(R2, 8);
        self.asm().bind(later);
        self.asm().mov(R9, R2);
        self.asm().bind(cfa);
        // Callers are above.
        self.get(R1, at::SP);
        self.asm().jump_if(Cond::Le, R9, R1, stop);
        self.asm().jump_if(Cond::Eq, R7, 0, same);
        self.asm().alu(AluOp::Lsh, R7, 3);
        self.asm().mov(R3, R9);
        self.asm().alu(AluOp::Sub, R3, R7);
        self.user(8, stop);
        self.get(R1, at::READ);
        self.set(at::BP, R1);
        self.asm().bind(same);
        self.asm().mov(R3, R9);
        self.asm().add(R3, -8);
        self.user(8, stop);
        self.set(at::SP, R9);
        self.get(R1, at::READ);
        self.set(at::IP, R1);
        self.set(at::EXACT, 0);
        self.asm().jump(taken);
        // The interrupted registers lie in the frame of a signal.
        self.asm().bind(signal);
        for (off, field) in [(120, at::BP), (168, at::IP), (160, at::SP)] {
            self.get(R3, at::SP);
            self.asm().add(R3, off);
            self.user(8, stop);
            self.get(R1, at::READ);
            self.set(field, R1);
        }
        self.set(at::EXACT, 1);
        self.asm().jump(taken);
    }

    /// By frame pointers. The first frame may not have made its own yet.
    fn frame_pointers(&mut self, stop: Label) {
        let [made, entry, pushed, end] = std::array::from_fn(|_| self.p.asm.label());
        let innermost = self.asm().label();
        self.get(R1, at::N);
        self.asm().jump_if(Cond::Eq, R1, 1, innermost);
        self.get(R1, at::EXACT);
        self.asm().jump_if(Cond::Eq, R1, 0, made);
        self.asm().bind(innermost);
        self.get(R3, at::IP);
        self.user(5, made);
        self.get(R7, at::READ);
        for (mask, code, label) in CODE {
            self.asm().mov(R1, R7);
            self.asm().mov32(R1, R1);
            self.asm().alu32(AluOp::And, R1, mask as i32);
            self.asm().mov32(R2, code as i32);
            self.asm()
                .jump_if(Cond::Eq, R1, R2, if label { pushed } else { entry });
        }
        self.asm().bind(made);
        self.get(R7, at::BP);
        self.get(R1, at::SP);
        self.asm().jump_if(Cond::Lt, R7, R1, stop);
        self.asm().mov(R1, R7);
        self.asm().alu(AluOp::And, R1, 7);
        self.asm().jump_if(Cond::Ne, R1, 0, stop);
        self.asm().jump(end);
        self.asm().bind(pushed);
        self.get(R7, at::SP);
        self.asm().bind(end);
        self.asm().mov(R3, R7);
        self.user(16, stop);
        self.asm().add(R7, 16);
        self.set(at::SP, R7);
        self.get(R1, at::READ);
        self.set(at::BP, R1);
        self.get(R1, at::READ + 8);
        self.set(at::IP, R1);
        let done = self.asm().label();
        self.asm().jump(done);
        self.asm().bind(entry);
        self.get(R7, at::SP);
        self.asm().mov(R3, R7);
        self.user(8, stop);
        self.asm().add(R7, 8);
        self.set(at::SP, R7);
        self.get(R1, at::READ);
        self.set(at::IP, R1);
        self.asm().bind(done);
        self.set(at::EXACT, 0);
    }
}

/// First instructions of functions: `push %rbp`, `endbr64`, `ret`; and behind the push
/// `mov %rsp,%rbp`. Mask, code, whether the frame pointer is pushed.
const CODE: [(u32, u32, bool); 4] = [
    (0xff, 0x55, false),
    (0xffff_ffff, 0xfa1e_0ff3, false),
    (0xff, 0xc3, false),
    (0xff_ffff, 0xe5_8948, true),
];

/// `append_frames(full)`: appends frames as `FILE.OFFSET`, in full with the address in front; of
/// those in no file the address, 0 and the process. All in hex.
fn append_frames(mut p: Put<'_>, base: i16, room: &StackRoom) -> Res<Function> {
    for i in 0..MAX_BACKTRACE {
        let [full, file, anonymous, next] = std::array::from_fn(|_| p.asm.label());
        let word = |at: u32| base + (at + 8 * i) as i16;
        p.asm.load(Size::DW, R1, R6, base + at::N as i16);
        p.asm.jump_if(Cond::Le, R1, i as i32, p.end);
        if i > 0 {
            put_byte(&mut p, b' ');
        }
        p.asm.load(Size::DW, R8, R6, word(at::FILES));
        p.asm.jump_if(Cond::Eq, R8, 0, full);
        p.asm.jump_if(Cond::Eq, R7, 0, file);
        p.asm.bind(full);
        p.asm.load(Size::DW, R9, R6, (room.frames + 8 * i) as i16);
        put_hex(&mut p, R9, 0);
        put_byte(&mut p, b'.');
        p.asm.bind(file);
        put_hex(&mut p, R8, 0);
        put_byte(&mut p, b'.');
        p.asm.jump_if(Cond::Eq, R8, 0, anonymous);
        p.asm.load(Size::DW, R9, R6, word(at::OFFSETS));
        put_hex(&mut p, R9, 0);
        p.asm.jump(next);
        p.asm.bind(anonymous);
        p.asm.load(Size::DW, R9, R6, base + at::TGID as i16);
        put_hex(&mut p, R9, 0);
        p.asm.bind(next);
    }
    p.finish()
}
