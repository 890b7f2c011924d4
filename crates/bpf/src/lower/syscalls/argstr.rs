//! System-call arguments as text.
//!
//! The table of system calls becomes rows in `.rodata`: six descriptors for each number, and a list
//! of names for each set of flags or values. The subprogram `put_arg` turns a descriptor and a
//! value into text, with one subprogram for each kind of piece. All of these are global
//! subprograms, which the verifier checks once. Checked again for each argument, string and name,
//! they exceeded its limit of a million instructions. User strings are quoted, with unprintable
//! bytes escaped. Text that does not fit is truncated and counted.

use std::ops::Range;

use spile_ir::{Event, NrSet, Reg as IrReg, Val};

use super::argparts::{self, MICRO, NARROW, TIMER};
use super::vector::{LoopCounter, put_vector};
use crate::isa::asm::{Asm, Function, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Size};
use crate::layout::Quote;
use crate::lower::event::usermem::{USER_TEXT, staging_area, use_user_text};
use crate::lower::event::{deferred, usermem};
use crate::lower::syscalls::arch;
use crate::lower::text::append::{append_number, append_text, flag};
use crate::lower::text::put::{ArgAppender, LITERAL, LITERALS, REST, kind};
use crate::lower::text::search;
use crate::lower::{HandlerCodegen, Res};
use crate::target::{ArgDesc, FlagTable, SyscallDesc};

/// Set in the descriptors of all arguments except for the first: a comma precedes them.
const FOLLOWS: u64 = 1 << 15;
/// Flags of `open` that make it use its mode: O_CREAT, and the bit that only O_TMPFILE has.
const CREATES: i32 = 0x40_0040;

/// Arguments of a system call.
const ARGS: usize = 6;
const ARGS_LONG: i64 = ARGS as i64;
/// Bytes of a row: six descriptors.
const ROW: i32 = 8 * ARGS as i32;
/// Bytes of a name's entry: mask, bits, name.
const ENTRY: i32 = 16 + NAME as i32;
const NAME: usize = 32;
/// The largest number of names in a list.
const MAX_NAMES: usize = 64;
/// `AT_FDCWD`.
const AT_FDCWD: i32 = -100;

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
        let end = self.bytes.len() + NAME;
        self.bytes.extend(name.bytes().take(NAME - 1));
        self.bytes.resize(end, 0);
    }

    /// Terminates a list with an empty name.
    fn finish(&mut self) {
        self.entry(0, 0, "");
    }

    /// Offset of a table's list.
    fn table(&mut self, table: &'static FlagTable, of: ListUse) -> u32 {
        let same = |k: &&(&'static str, ListUse, u32)| (k.0, k.1) == (table.name, of);
        if let Some(found) = self.known.iter().find(same) {
            return found.2;
        }
        let off = self.bytes.len() as u32;
        for flag in table.entries.iter().take(MAX_NAMES) {
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
        self.finish();
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
        self.finish();
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
                let bits = [(*narrow, NARROW), (*micro, MICRO), (*pair, TIMER)];
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
    lists.finish();
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
        let (rows, count, lists) = tables(&self.options.syscalls);
        let rows = self.pool.constant(&rows);
        let size = lists.bytes.len() as i32;
        let lists = self.pool.constant(&lists.bytes);
        self.put_subs(lists, size)?;
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
            self.load(R2, self.plan.scratch.tmp + 16 + 8 * i as u32);
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
        let to = self.plan.scratch.tmp as i16 + 16;
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
    /// Defines all subprograms for arguments as text.
    fn put_subs(&mut self, lists: u32, size: i32) -> Res {
        let plan = self.plan;
        let options = self.options;
        let pool = &mut *self.pool;
        pool.sub("append_text", |pool| append_text(plan, pool))?;
        for base in [8, 10, 16] {
            let name = format!("append_number_{base}");
            pool.sub(&name, |pool| append_number(plan, pool, base))?;
        }
        let texts: Vec<u8> = LITERALS
            .iter()
            .flat_map(|l| {
                let mut bytes = l.as_bytes().to_vec();
                bytes.resize(LITERAL as usize, 0);
                bytes
            })
            .collect();
        let texts = pool.constant(&texts);
        use_user_text(pool, plan, options)?;
        let defer = deferred::use_user_defer(pool, plan, options)?;
        let escape = search::use_escape(pool, plan, plan.max_string)?;
        let may_goto = options.features.may_goto;
        let put = |name: &str, params: &[&'static str]| ArgAppender::new(name, params, plan);
        pool.sub("put_literal", |_| {
            put_literal(put("put_literal", &["which"]), texts)
        })?;
        pool.sub("put_number", |_| {
            put_number(put("put_number", &["kind", "value"]))
        })?;
        pool.sub("put_escaped", |_| {
            put_escaped(put("put_escaped", &["from"]), &escape)
        })?;
        pool.sub("put_user", |_| {
            put_user(put("put_user", &["address"]), defer)
        })?;
        pool.sub("put_name", |_| {
            put_name(put("put_name", &["entry"]), lists, size)
        })?;
        pool.sub("put_entry", |_| {
            put_entry(put("put_entry", &["entry", "value"]), lists, size)
        })?;
        pool.sub("put_names", |_| {
            put_names(put("put_names", &["descriptor", "value"]), may_goto)
        })?;
        pool.sub("put_vector", |_| {
            put_vector(put("put_vector", &["address", "narrow"]), may_goto)
        })?;
        argparts::define_subs(pool, &put)?;
        pool.sub("put_arg", |_| {
            put_arg(put("put_arg", &["descriptor", "value"]))
        })
    }
}

/// `put_literal(which)`: appends a literal.
fn put_literal(mut p: ArgAppender<'_>, texts: u32) -> Result<Function, String> {
    p.asm.alu(AluOp::And, R7, LITERALS.len() as i32 - 1);
    p.asm.alu(AluOp::Mul, R7, LITERAL);
    p.asm.ld_data(R2, Section::Rodata, texts);
    p.asm.add(R2, R7);
    p.text(LITERAL);
    p.finish()
}

/// `put_number(kind, value)`: appends a number.
fn put_number(mut p: ArgAppender<'_>) -> Result<Function, String> {
    let kinds = [
        (kind::UNSIGNED, 10, 0),
        (kind::HEX, 16, flag::MARK),
        (kind::OCTAL, 8, flag::MARK),
        (kind::SIGNED, 10, flag::SIGNED),
    ];
    for (code, base, flags) in kinds {
        let no = p.asm.label();
        if code != kind::SIGNED {
            p.asm.jump_if(Cond::Ne, R7, code, no);
        }
        p.asm.mov(R1, -1);
        p.asm.mov(R2, R8);
        p.asm.mov(R3, flags);
        p.asm.mov(R4, 0);
        p.asm.call_sub(format!("append_number_{base}"));
        if code != kind::SIGNED {
            p.asm.jump(p.end);
            p.asm.bind(no);
        }
    }
    p.finish()
}

/// `put_escaped(from)`: appends the staged bytes from that one on, escaped.
fn put_escaped(mut p: ArgAppender<'_>, escape: &str) -> Result<Function, String> {
    let to = (p.plan.scratch.text + 3 * p.plan.max_string) as i32;
    let from = staging_area(p.plan) as i32;
    p.asm.jump_if(Cond::Gt, R7, 1, p.end);
    for (reg, off) in [(R1, from), (R2, to)] {
        p.asm.mov(reg, R6);
        p.asm.add(reg, off);
    }
    p.asm.add(R1, R7);
    p.asm.call_sub(escape);
    p.asm.mov(R2, R6);
    p.asm.add(R2, to);
    p.text(p.plan.max_string as i32);
    p.finish()
}

/// `put_user(address)`: appends the user string in quotes, or the address if it cannot be read.
fn put_user(mut p: ArgAppender<'_>, defer: bool) -> Result<Function, String> {
    let [bad, read] = std::array::from_fn(|_| p.asm.label());
    let (most, from) = (p.plan.max_string as i32, staging_area(p.plan) as i32);
    p.asm.jump_if(Cond::Eq, R7, 0, bad);
    let asm = &mut p.asm;
    // Skips the read if the text is full.
    asm.load(Size::DW, R3, R6, p.plan.scratch.text_pos as i16);
    asm.jump_if(Cond::Gt, R3, most, p.end);
    asm.mov(R1, R6);
    asm.add(R1, from);
    asm.mov(R2, most);
    asm.mov(R3, R7);
    asm.call(Helper::ProbeReadUserStr);
    asm.jump_if(Cond::Sge, R0, 0, read);
    asm.mov(R1, most - 1);
    asm.mov(R2, R7);
    asm.mov(R3, 0);
    asm.call_sub(USER_TEXT);
    asm.jump_if(Cond::Eq, R0, 0, read);
    if defer {
        asm.jump_if(Cond::Ne, R0, usermem::ABSENT, bad);
        asm.load(Size::DW, R1, R6, (p.plan.scratch.tmp + DEFER) as i16);
        asm.jump_if(Cond::Eq, R1, 0, bad);
        asm.mov(R1, R7);
        asm.mov(R2, most - 1);
        asm.mov(R3, Quote::Quoted as i32);
        asm.call_sub(deferred::USER_DEFER);
        asm.jump_if(Cond::Eq, R0, 0, p.end);
    }
    asm.jump(bad);
    asm.bind(read);
    p.literal("\"");
    p.asm.mov(R1, 0);
    p.asm.call_sub("put_escaped");
    p.literal("\"");
    p.asm.jump(p.end);
    p.asm.bind(bad);
    p.number(R7, kind::HEX);
    p.finish()
}

/// `r1` = the entry at the offset in r2, after a bounds check.
fn entry_offset(asm: &mut Asm, lists: u32, size: i32, bad: Label) {
    asm.jump_if(Cond::Gt, R2, (size - ENTRY).max(0), bad);
    asm.ld_data(R1, Section::Rodata, lists);
    asm.add(R1, R2);
}

/// `put_name(entry)`: appends the name of the entry at an offset of the lists.
fn put_name(mut p: ArgAppender<'_>, lists: u32, size: i32) -> Result<Function, String> {
    p.asm.mov(R2, R7);
    entry_offset(&mut p.asm, lists, size, p.end);
    p.asm.mov(R2, R1);
    p.asm.add(R2, 16);
    p.text(NAME as i32);
    p.finish()
}

/// Scratch word in front of the arguments: whether reads of strings may be deferred.
const DEFER: u32 = 8;
/// Scratch word behind [`REST`]: whether there was a name.
const ANY: u32 = 72;

/// `put_entry(entry, value)`: appends the name at an offset of the lists, with a separator, if it
/// is part of the value. Returns 1 at the end of the list.
fn put_entry(mut p: ArgAppender<'_>, lists: u32, size: i32) -> Result<Function, String> {
    let tmp = p.plan.scratch.tmp;
    let (rest, any) = ((tmp + REST) as i16, (tmp + ANY) as i16);
    let [last, first] = std::array::from_fn(|_| p.asm.label());
    let end = p.end;
    let asm = &mut p.asm;
    asm.mov(R2, R7);
    entry_offset(asm, lists, size, last);
    asm.load(Size::DW, R2, R1, 0);
    asm.load(Size::DW, R3, R1, 8);
    asm.jump_if(Cond::Eq, R2, 0, last);
    asm.alu(AluOp::And, R8, R2);
    asm.jump_if(Cond::Ne, R8, R3, end);
    // Bits that an earlier name covers are not named again.
    asm.load(Size::DW, R4, R6, rest);
    asm.mov(R5, R4);
    asm.alu(AluOp::And, R5, R3);
    asm.jump_if(Cond::Ne, R5, R3, end);
    asm.alu(AluOp::Xor, R2, -1);
    asm.alu(AluOp::And, R4, R2);
    asm.store(Size::DW, R6, rest, R4);
    asm.load(Size::DW, R1, R6, any);
    asm.jump_if(Cond::Eq, R1, 0, first);
    p.literal("|");
    let asm = &mut p.asm;
    asm.bind(first);
    asm.store(Size::DW, R6, any, 1);
    asm.mov(R1, R7);
    asm.call_sub("put_name");
    asm.jump(end);
    asm.bind(last);
    asm.mov(R0, 1);
    asm.exit();
    p.finish()
}

/// `put_names(descriptor, value)`: appends the names of a value from the descriptor's list.
fn put_names(mut p: ArgAppender<'_>, may_goto: bool) -> Result<Function, String> {
    let tmp = p.plan.scratch.tmp;
    let round = LoopCounter {
        may_goto,
        word: tmp as i16,
    };
    let (rest, any) = ((tmp + REST) as i16, (tmp + ANY) as i16);
    let [last, named, number, again] = std::array::from_fn(|_| p.asm.label());
    let asm = &mut p.asm;
    asm.store(Size::DW, R6, rest, R8);
    asm.store(Size::DW, R6, any, 0);
    round.init(asm);
    asm.bind(again);
    round.load(asm);
    asm.mov(R1, R7);
    asm.alu(AluOp::Rsh, R1, 16);
    asm.add(R1, R9);
    asm.mov(R2, R8);
    asm.call_sub("put_entry");
    asm.jump_if(Cond::Ne, R0, 0, last);
    round.next(asm, ENTRY, MAX_NAMES as i32 * ENTRY, (again, last));
    asm.bind(last);
    // Appends the bits that no name covers, or the whole value.
    asm.load(Size::DW, R1, R6, any);
    asm.jump_if(Cond::Ne, R1, 0, named);
    asm.alu(AluOp::And, R7, 255);
    asm.jump_if(Cond::Eq, R7, kind::ENUM, number);
    p.number(R8, kind::HEX);
    p.asm.jump(p.end);
    p.asm.bind(number);
    p.number(R8, kind::SIGNED);
    p.asm.jump(p.end);
    p.asm.bind(named);
    p.asm.load(Size::DW, R9, R6, rest);
    p.asm.jump_if(Cond::Eq, R9, 0, p.end);
    p.literal("|");
    p.number(R9, kind::HEX);
    p.finish()
}

/// `r1` = the argument whose index is in the descriptor in r7.
fn load_referenced_arg(p: &mut ArgAppender<'_>) {
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::Rsh, R1, 16);
    p.asm.alu(AluOp::And, R1, 7);
    p.asm.jump_if(Cond::Ge, R1, ARGS as i32, p.end);
    p.asm.alu(AluOp::Lsh, R1, 3);
    p.asm.add(R1, R6);
    p.asm.load(Size::DW, R1, R1, p.plan.scratch.tmp as i16 + 16);
}

/// Subprograms by kind, and their second parameter.
const SUBS: [(i32, &str, SecondParam); 9] = [
    (kind::USER_STR, "put_user", SecondParam::Nothing),
    (kind::ARGV, "put_vector", SecondParam::Number(0)),
    (kind::ARGV_4, "put_vector", SecondParam::Number(1)),
    (kind::FLAGS, "put_names", SecondParam::Descriptor),
    (kind::ENUM, "put_names", SecondParam::Descriptor),
    (kind::CHOICE, "put_names", SecondParam::Descriptor),
    (kind::TIME, "put_time", SecondParam::Descriptor),
    (kind::BUFFER, "put_buffer", SecondParam::Word),
    (kind::SOCKADDR, "put_sockaddr", SecondParam::Word),
];

enum SecondParam {
    Nothing,
    Number(i32),
    Descriptor,
    /// Another argument, as a second parameter.
    Word,
}

/// `put_arg(descriptor, value)`: appends an argument.
fn put_arg(mut p: ArgAppender<'_>) -> Result<Function, String> {
    let [signed, sized, cwd, shown, first] = std::array::from_fn(|_| p.asm.label());
    p.asm.mov(R9, R7);
    p.asm.alu(AluOp::And, R9, 255);
    p.asm.jump_if(Cond::Eq, R9, kind::SHOWN, p.end);
    // Without O_CREAT callers pass no mode, and its register holds anything.
    p.asm.jump_if(Cond::Ne, R9, kind::OPEN_MODE, shown);
    load_referenced_arg(&mut p);
    p.asm.alu(AluOp::And, R1, CREATES);
    p.asm.jump_if(Cond::Eq, R1, 0, p.end);
    p.asm.mov(R9, kind::OCTAL);
    p.asm.bind(shown);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, FOLLOWS as i32);
    p.asm.jump_if(Cond::Eq, R1, 0, first);
    p.literal(", ");
    p.asm.bind(first);
    // The value in its size, with sign extension for some kinds.
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::Rsh, R1, 8);
    p.asm.alu(AluOp::And, R1, 63);
    p.asm.alu(AluOp::Lsh, R8, R1);
    for code in [kind::SIGNED, kind::DIRFD, kind::ENUM] {
        p.asm.jump_if(Cond::Eq, R9, code, signed);
    }
    p.asm.alu(AluOp::Rsh, R8, R1);
    p.asm.jump(sized);
    p.asm.bind(signed);
    p.asm.alu(AluOp::Arsh, R8, R1);
    p.asm.bind(sized);
    put_value(&mut p, cwd);
    p.asm.bind(cwd);
    p.literal("AT_FDCWD");
    p.finish()
}

/// Appends value r8 of kind r9, by the descriptor in r7; goes to `cwd` if it is `AT_FDCWD`.
fn put_value(p: &mut ArgAppender<'_>, cwd: Label) {
    for (code, sub, beside) in SUBS {
        let no = p.asm.label();
        p.asm.jump_if(Cond::Ne, R9, code, no);
        match beside {
            SecondParam::Nothing => p.asm.mov(R1, R8),
            SecondParam::Number(n) => {
                p.asm.mov(R1, R8);
                p.asm.mov(R2, n);
            }
            SecondParam::Descriptor => {
                p.asm.mov(R1, R7);
                p.asm.mov(R2, R8);
            }
            SecondParam::Word => {
                load_referenced_arg(p);
                p.asm.mov(R2, R1);
                p.asm.mov(R1, R8);
            }
        }
        p.asm.call_sub(sub);
        p.asm.jump(p.end);
        p.asm.bind(no);
    }
    let [single, number] = [(); 2].map(|()| p.asm.label());
    p.asm.jump_if(Cond::Ne, R9, kind::PAIR, single);
    load_referenced_arg(p);
    p.asm.alu(AluOp::Lsh, R1, 32);
    p.asm.alu(AluOp::Or, R8, R1);
    p.asm.mov(R9, kind::SIGNED);
    p.asm.bind(single);
    p.asm.jump_if(Cond::Ne, R9, kind::DIRFD, number);
    p.asm.jump_if(Cond::Eq, R8, AT_FDCWD, cwd);
    p.asm.bind(number);
    p.asm.mov(R1, R9);
    p.asm.mov(R2, R8);
    p.asm.call_sub("put_number");
    p.asm.jump(p.end);
}
