//! System-call arguments as text.
//!
//! The table of system calls becomes rows in `.rodata`: six descriptors for each number, and a list
//! of names for each set of flags or values. The function `put_arg` turns a descriptor and a value
//! into text. It is one of the run-time library ([`spile_lir::library::arguments`]), like those that
//! it calls. All of them are global subprograms, which the verifier checks once. Checked again for
//! each argument, string and name, they exceeded its limit of a million instructions. User strings
//! are quoted, with unprintable bytes escaped. Text that does not fit is truncated and counted.

use std::ops::Range;

use spile_ir::{Event, NrSet, Reg as IrReg, Val};

use spile_lir::func::ConstantData;
use spile_lir::library::arguments::{
    ARGS, ArgumentLayout, DeferredReads, ENTRY, FOLLOWS, MAX_NAMES, NAME, NAMES, kind, time,
};
use spile_lir::library::routine::Routine;

use crate::isa::asm::{Label, Section};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::Quote;
use crate::lower::event::usermem::{staging_area, use_user_text};
use crate::lower::event::{deferred, usermem};
use crate::lower::syscalls::arch;
use crate::lower::text::append::flag;
use crate::lower::text::escapes::escape_table;
use crate::lower::text::quote;
use crate::lower::{HandlerCodegen, Res};
use crate::target::{ArgDesc, FlagTable, SyscallDesc};

const ARGS_LONG: i64 = ARGS as i64;
/// Bytes of a row: six descriptors.
const ROW: i32 = 8 * ARGS as i32;
/// Scratch word in front of the arguments: whether reads of strings may be deferred.
const DEFER: u32 = 8;
/// First scratch word of the arguments.
const WORDS: u32 = 16;

/// Names of the signals from 0 on (x86-64, `signal(7)`).
const SIGNALS: &str = "SIG_0 SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 \
SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN \
SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO/SIGPOLL SIGPWR SIGSYS";

/// How a list of names is read: as flags, or as one value with a width in bytes and a sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListUse {
    Flags,
    Choice(u8, bool),
}

/// The lists of names as they are laid out in `.rodata`, one after the other.
#[derive(Default)]
struct NameLists {
    bytes: Vec<u8>,
    known: Vec<(&'static str, ListUse, u32)>,
}

impl NameLists {
    fn entry(&mut self, mask: u64, bits: u64, name: &str) {
        self.bytes.extend(mask.to_ne_bytes());
        self.bytes.extend(bits.to_ne_bytes());
        let end = self.bytes.len() + NAME as usize;
        self.bytes.extend(name.bytes().take(NAME as usize - 1));
        self.bytes.resize(end, 0);
        debug_assert_eq!(end % ENTRY as usize, 0);
    }

    /// Terminates a list with an empty name. The rest of flags has these bits in octal.
    fn finish(&mut self, octal: u64) {
        self.entry(0, octal, "");
    }

    /// Offset of a table's list.
    fn table(&mut self, table: &'static FlagTable, of: ListUse) -> u32 {
        let same = |k: &&(&'static str, ListUse, u32)| (k.0, k.1) == (table.name, of);
        if let Some(found) = self.known.iter().find(same) {
            return found.2;
        }
        let off = self.bytes.len() as u32;
        for flag in table.entries.iter().take(MAX_NAMES as usize) {
            let (mask, bits) = match of {
                ListUse::Flags => (flag.mask, flag.bits),
                // Extended as the argument's value is.
                ListUse::Choice(4, true) => (u64::MAX, flag.bits as i32 as i64 as u64),
                ListUse::Choice(4, false) => (u64::MAX, u64::from(flag.bits as u32)),
                ListUse::Choice(..) => (u64::MAX, flag.bits),
            };
            if mask != 0 {
                self.entry(mask, bits, flag.name);
            }
        }
        self.finish(table.octal);
        self.known.push((table.name, of, off));
        off
    }

    fn signals(&mut self) -> u32 {
        const KEY: &str = "signals";
        if let Some(found) = self.known.iter().find(|k| k.0 == KEY) {
            return found.2;
        }
        let off = self.bytes.len() as u32;
        for (i, name) in SIGNALS.split_whitespace().enumerate() {
            self.entry(u64::MAX, i as u64, name);
        }
        self.finish(0);
        self.known.push((KEY, ListUse::Choice(4, false), off));
        off
    }

    /// A descriptor: the kind, the number of upper bits to drop from the value, and the list.
    fn descriptor(&mut self, arg: &ArgDesc) -> u64 {
        let sized = |kind: i32, size: u8| {
            kind as u64 | u64::from(64 - 8 * u32::from(size.clamp(1, 8))) << 8
        };
        let listed = |kind: i32, size: u8, off: u32| sized(kind, size) | u64::from(off) << 16;
        let with = |kind: i32, more: u8| sized(kind, 8) | u64::from(more) << 16;
        match arg {
            ArgDesc::Int(n) => sized(kind::SIGNED, *n),
            ArgDesc::Uint(n) => sized(kind::UNSIGNED, *n),
            ArgDesc::Hex(n) => sized(kind::HEX, *n),
            ArgDesc::Octal => sized(kind::OCTAL, 4),
            ArgDesc::UserStr => sized(kind::USER_STR, 8),
            ArgDesc::Dirfd => sized(kind::DIRFD, 4),
            ArgDesc::Signal => listed(kind::CHOICE, 4, self.signals()),
            ArgDesc::Flags(t, size) => listed(kind::FLAGS, *size, self.table(t, ListUse::Flags)),
            ArgDesc::Enum(t, size, decimal) => {
                let kind = if *decimal { kind::ENUM } else { kind::CHOICE };
                listed(kind, *size, self.table(t, ListUse::Choice(*size, *decimal)))
            }
            ArgDesc::Pair => sized(kind::PAIR, 4),
            ArgDesc::Unseen => kind::SHOWN as u64,
            ArgDesc::Argv(4) => sized(kind::ARGV_4, 8),
            ArgDesc::Argv(_) => sized(kind::ARGV, 8),
            ArgDesc::Buffer(word) => with(kind::BUFFER, *word),
            ArgDesc::Sockaddr(word) => with(kind::SOCKADDR, *word),
            ArgDesc::Time {
                narrow,
                micro,
                pair,
            } => {
                let bits = [
                    (*narrow, time::NARROW),
                    (*micro, time::MICRO),
                    (*pair, time::TIMER),
                ];
                let bits = bits.iter().filter(|(there, _)| *there);
                with(kind::TIME, bits.map(|(_, bit)| bit).sum())
            }
            ArgDesc::OpenMode => sized(kind::OPEN_MODE, 4),
        }
    }
}

/// The rows of descriptors, their number, and the lists.
fn tables(syscalls: &[SyscallDesc]) -> (Vec<u8>, u32, NameLists) {
    let most = 2 * NrSet::COMPAT;
    let rows = syscalls
        .iter()
        .map(|s| s.nr + 1)
        .filter(|n| *n <= most)
        .max()
        .unwrap_or(0);
    let mut words = vec![0u64; rows as usize * ARGS];
    let mut lists = NameLists::default();
    for s in syscalls.iter().filter(|s| s.nr < rows) {
        let row = &mut words[s.nr as usize * ARGS..][..ARGS];
        // A pair takes two words.
        let mut at = 0;
        for arg in &s.args {
            let follows = if at > 0 { FOLLOWS } else { 0 };
            // The index of another argument, for kinds that depend on it.
            let other = match arg {
                ArgDesc::OpenMode => (at as u64).saturating_sub(1) << 16,
                ArgDesc::Pair => (at as u64 + 1) << 16,
                _ => 0,
            };
            let Some(word) = row.get_mut(at) else { break };
            *word = lists.descriptor(arg) | follows | other;
            at += 1;
            if *arg == ArgDesc::Pair
                && let Some(word) = row.get_mut(at)
            {
                *word = kind::SHOWN as u64;
                at += 1;
            }
        }
    }
    lists.finish(0);
    (
        words.iter().flat_map(|w| w.to_ne_bytes()).collect(),
        rows,
        lists,
    )
}

impl HandlerCodegen<'_> {
    pub(in crate::lower) fn sys_argstr(&mut self, dst: IrReg) -> Res {
        self.arg_texts(dst, 0..ARGS)
    }

    /// `dst` = the text of one argument.
    pub(in crate::lower) fn sys_argtext(&mut self, dst: IrReg, n: Val) -> Res {
        match n {
            Val::Imm(n @ 0..ARGS_LONG) => self.arg_texts(dst, n as usize..n as usize + 1),
            _ => Err("the number of a system call's argument is not a constant below 6".into()),
        }
    }

    fn arg_texts(&mut self, dst: IrReg, words: Range<usize>) -> Res {
        let event = &self.program.handlers[self.handler.index()].event;
        if !matches!(event, Event::SysEnter(_)) {
            return Err("argstr in another event than the entry to a system call".into());
        }
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let single = words.len() == 1;
        let (rows, count) = self.syscall_rows()?;
        self.all_args()?;
        let may = self.may_defer(dst);
        self.store(self.plan.scratch.tmp + DEFER, may);
        self.begin_text(width);
        let end = self.asm.label();
        for i in words {
            self.descriptor(rows, count, i, end);
            if single {
                self.asm.alu(AluOp::And, R2, !(FOLLOWS as i32));
            }
            self.asm.mov(R1, R2);
            self.load(R2, self.plan.scratch.tmp + WORDS + 8 * i as u32);
            self.asm.call_sub("put_arg");
        }
        self.asm.bind(end);
        self.end_text(off, width);
        Ok(())
    }

    /// `r2` = descriptor of argument i; goes to `end` if the call has no such argument.
    fn descriptor(&mut self, rows: u32, count: u32, i: usize, end: Label) {
        self.call_number(R1);
        self.asm.jump_if(Cond::Ge, R1, count as i32, end);
        self.asm.alu(AluOp::Mul, R1, ROW);
        self.asm.ld_data(R3, Section::Rodata, rows);
        self.asm.add(R3, R1);
        self.asm.load(Size::DW, R2, R3, 8 * i as i16);
        self.asm.jump_if(Cond::Eq, R2, 0, end);
    }

    /// Stores all six arguments in the scratch words from the third on.
    fn all_args(&mut self) -> Res {
        let (native, end) = (self.asm.label(), self.asm.label());
        let to = (self.plan.scratch.tmp + WORDS) as i16;
        self.regs()?;
        self.call_number(R1);
        self.asm
            .jump_if(Cond::Slt, R1, NrSet::COMPAT as i32, native);
        for (i, off) in arch::ARGS_COMPAT.into_iter().enumerate() {
            self.asm.load(Size::W, R1, R0, off);
            self.asm.store(Size::DW, R7, to + 8 * i as i16, R1);
        }
        self.asm.jump(end);
        self.asm.bind(native);
        for (i, off) in arch::ARGS.into_iter().enumerate() {
            self.asm.load(Size::DW, R1, R0, off);
            self.asm.store(Size::DW, R7, to + 8 * i as i16, R1);
        }
        self.asm.bind(end);
        Ok(())
    }
}

impl HandlerCodegen<'_> {
    /// Offset and number of the rows of system calls, with which the object gets `put_arg`.
    fn syscall_rows(&mut self) -> Res<(u32, u32)> {
        if let Some(made) = self.pool.syscall_rows {
            return Ok(made);
        }
        let (rows, count, lists) = tables(&self.options.syscalls);
        let made = (self.pool.constant(&rows), count);
        self.pool.syscall_rows = Some(made);
        self.use_put_arg(lists.bytes)?;
        Ok(made)
    }

    /// Defines `put_arg` and what it calls.
    fn use_put_arg(&mut self, names: Vec<u8>) -> Res {
        let plan = self.plan;
        let options = self.options;
        let pool = &mut *self.pool;
        pool.use_append_text(plan)?;
        for base in [8, 10, 16] {
            pool.use_append_number(plan, base)?;
        }
        use_user_text(pool, plan, options)?;
        let defer = deferred::use_user_defer(pool, plan, options)?;
        let scratch = &plan.scratch;
        let offset = |offset: u32| offset.cast_signed();
        let layout = ArgumentLayout {
            length: offset(scratch.text_pos),
            most: offset(plan.max_string),
            arguments: offset(scratch.tmp + WORDS),
            staging: offset(staging_area(plan)),
            quoted: offset(scratch.text + 3 * plan.max_string),
            quote: quote::sub(pool, plan.max_string)?,
            signed: flag::SIGNED,
            mark: flag::MARK,
            defer: defer.then_some(DeferredReads {
                allowed: offset(scratch.tmp + DEFER),
                absent: usermem::ABSENT,
                quoted: Quote::Quoted as i32,
            }),
        };
        pool.routine("put_arg", Some(plan), |_| {
            let size = names.len() as i32;
            let names = ConstantData {
                name: NAMES.into(),
                bytes: names,
            };
            let given = vec![names, escape_table()];
            Ok((Routine::Arguments(layout, size), given))
        })
    }
}
