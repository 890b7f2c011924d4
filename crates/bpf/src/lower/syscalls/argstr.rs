//! System-call arguments as text.
//!
//! The table of system calls becomes rows in `.rodata`: six descriptors for each number, further rows
//! for calls whose arguments depend on the value of one of them, and a list of names for each set of flags
//! or values. The function `put_arg` turns a descriptor and a value into text. It is one of the run-time library ([`spile_lir::library::arguments`]), like those that
//! it calls. All of them are global subprograms, which the verifier checks once. Checked again for
//! each argument, string and name, they exceeded its limit of a million instructions. User strings
//! are quoted, with unprintable bytes escaped. Text that does not fit is truncated and counted.

use std::ops::Range;

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, CallArg, Label};
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size};
use spile_ir::{Event, NrSet, Reg as IrReg, Val};
use spile_layout::Quote;
use spile_lir::func::ConstantData;
use spile_lir::library::arguments::{
    ARGS, ArgumentLayout, BRACES, DECIMAL, DeferredReads, ENTRY, FOLLOWS, MAX_NAMES, NAME, NAMES,
    PAIR_BASE, kind, structure, time, variant,
};
use spile_lir::library::routine::Routine;
use spile_syscalls::{
    ArgKind, ArgVariants, FieldKind, FlagTable, NumberBase, Structure, StructureField, Syscall,
    SyscallArg as SysArg,
};

use crate::error::Res;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::event::usermem::{staging_area, use_user_text};
use crate::lower::event::{deferred, usermem};
use crate::lower::pool::SyscallRows;
use crate::lower::slots::BLOCK;
use crate::lower::text::append::flag;
use crate::lower::text::escapes::escape_table;
use crate::lower::text::quote;

const ARGS_LONG: i64 = spile_cast::i64_of(ARGS);
/// Words of a row: six descriptors, the list of other rows, and the bits of the argument that decides.
const ROW_WORDS: usize = ARGS + 2;
/// Bytes of a row.
const ROW: i32 = 8 * spile_cast::i32_of(ROW_WORDS);
/// Scratch word in front of the arguments: whether reads of strings may be deferred.
const DEFER: u32 = 8;
/// First scratch word of the arguments.
const WORDS: u32 = 16;
/// Scratch word behind the arguments: the row of descriptors.
const CHOSEN: u32 = WORDS + 8 * spile_cast::u32_of(ARGS);

/// Names of the signals from 0 on (`signal(7)`; the same on all processors of [`spile_abi::ALL`]).
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
    structures: Vec<(&'static str, u32)>,
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
    fn table(&mut self, table: &'static FlagTable, list_use: ListUse) -> u32 {
        let same = |k: &&(&'static str, ListUse, u32)| (k.0, k.1) == (table.name, list_use);
        if let Some(list) = self.known.iter().find(same) {
            return list.2;
        }
        let off = self.bytes.len().fit::<u32>();
        debug_assert!(table.flags.len() <= MAX_NAMES as usize, "{}", table.name);
        for flag in table.flags.iter().take(MAX_NAMES as usize) {
            let value = flag.value.cast_unsigned();
            let (mask, bits) = match list_use {
                ListUse::Flags => (flag.mask.cast_unsigned(), value),
                // Extended as the argument's value is.
                ListUse::Choice(4, true) => (
                    u64::MAX,
                    i64::from(value.low32().cast_signed()).cast_unsigned(),
                ),
                ListUse::Choice(4, false) => (u64::MAX, u64::from(value.low32())),
                ListUse::Choice(..) => (u64::MAX, value),
            };
            if mask != 0 {
                self.entry(mask, bits, flag.name);
            }
        }
        self.finish(match table.number {
            0 => table.octal,
            number => number | DECIMAL,
        });
        self.known.push((table.name, list_use, off));
        off
    }

    fn signals(&mut self) -> u32 {
        const KEY: &str = "signals";
        if let Some(list) = self.known.iter().find(|k| k.0 == KEY) {
            return list.2;
        }
        let off = self.bytes.len().fit::<u32>();
        for (i, name) in SIGNALS.split_whitespace().enumerate() {
            self.entry(u64::MAX, i as u64, name);
        }
        self.finish(0);
        self.known.push((KEY, ListUse::Choice(4, false), off));
        off
    }

    /// The descriptor of a structure, without the list of its fields.
    fn structure(&mut self, kind: i32, structure: &'static Structure) -> u64 {
        let known = self
            .structures
            .iter()
            .find(|s| s.0 == structure.name)
            .map(|s| s.1);
        let off = known.unwrap_or_else(|| self.fields(structure));
        kind.fit::<u64>()
            | u64::from(off) << 16
            | u64::from(structure.size) << structure::SIZE
            | u64::from(structure.null) << structure::NULL
    }

    /// Offset of the list of a structure's fields.
    fn fields(&mut self, structure: &'static Structure) -> u32 {
        // The names of fields come first.
        let descriptors: Vec<Vec<u64>> = structure
            .texts
            .iter()
            .map(|text| text.fields.iter().map(|f| self.field(&f.1)).collect())
            .collect();
        let off = self.bytes.len().fit::<u32>();
        let pieces = |text: &str| text.len().div_ceil(NAME as usize - 1).max(1);
        for (text, descriptors) in structure.texts.iter().zip(descriptors) {
            let fields: usize = text.fields.iter().map(|f| pieces(f.0)).sum();
            let mut left = text.when.len() + fields + pieces(text.end);
            for (field, value) in text.when {
                left -= 1;
                let skip = (left * ENTRY as usize) as u64;
                let word = field_word(field) | skip << structure::SKIP;
                let test = with_bits(structure::TEST as u64, field.bits);
                self.entry(test, word, "");
                let offset = self.bytes.len() - NAME as usize;
                self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
            }
            for ((before, field), descriptor) in text.fields.iter().zip(descriptors) {
                self.pieces(before, descriptor, field_word(field));
            }
            self.pieces(text.end, 0, 0);
        }
        self.structures.push((structure.name, off));
        off
    }

    /// The descriptor of a field.
    fn field(&mut self, field: &StructureField) -> u64 {
        let descriptor = match field.kind {
            FieldKind::Value(kind) => self.descriptor(kind, field.bits, true),
            FieldKind::Micro => sized(kind::MICROSECONDS, field.bits),
            FieldKind::Nano => sized(kind::NANOSECONDS, field.bits),
            FieldKind::Date => sized(kind::DATE, field.bits),
        };
        match field.bits {
            // What is no number has no width.
            0 => descriptor,
            bits => with_bits(descriptor, bits),
        }
    }

    /// A text in as many entries as it needs; the last one has a field.
    fn pieces(&mut self, mut text: &'static str, descriptor: u64, location: u64) {
        while let Some((head, tail)) = text.split_at_checked(NAME as usize - 1)
            && !tail.is_empty()
        {
            self.entry(kind::SHOWN as u64, 0, head);
            text = tail;
        }
        self.entry(descriptor, location, text);
    }

    /// A descriptor: the kind, the number of upper bits to drop from the value, and the list.
    fn descriptor(&mut self, arg_kind: ArgKind, bits: u8, signed: bool) -> u64 {
        let listed = |kind: i32, bits: u8, off: u32| sized(kind, bits) | u64::from(off) << 16;
        let with = |kind: i32, more: u8| sized(kind, 64) | u64::from(more) << 16;
        let time =
            |bits: u8, more: u8| with(kind::TIME, more | if bits == 32 { time::NARROW } else { 0 });
        match arg_kind {
            ArgKind::Int(bits) => sized(kind::SIGNED, bits),
            ArgKind::Uint(bits) => sized(kind::UNSIGNED, bits),
            ArgKind::Hex(bits) => sized(kind::HEX, bits),
            ArgKind::Ptr => sized(kind::HEX, 64),
            ArgKind::Mode => sized(kind::OCTAL, 32),
            ArgKind::Str => sized(kind::USER_STR, 64),
            ArgKind::Argv | ArgKind::Envp if bits == 32 => sized(kind::ARGV_4, 64),
            ArgKind::Argv | ArgKind::Envp => sized(kind::ARGV, 64),
            ArgKind::DirFd => sized(kind::DIRFD, 32),
            ArgKind::Signal => listed(kind::CHOICE, 32, self.signals()),
            // What has no name is printed with its sign extended to 64 bits.
            ArgKind::Flags(t) if t.wide && bits == 32 && signed => {
                listed(kind::WIDE, 32, self.table(t, ListUse::Flags))
            }
            ArgKind::Choice(t) if t.wide && bits == 32 && signed => {
                listed(kind::WIDE, 32, self.table(t, ListUse::Choice(4, true)))
            }
            ArgKind::Flags(t) => listed(kind::FLAGS, bits, self.table(t, ListUse::Flags)),
            ArgKind::Choice(t) => {
                let kind = if t.decimal { kind::ENUM } else { kind::CHOICE };
                let list_use = ListUse::Choice(bits.div_ceil(8), t.decimal);
                listed(kind, bits, self.table(t, list_use))
            }
            ArgKind::Pair(base) => {
                let base = match base {
                    NumberBase::Signed => kind::SIGNED,
                    NumberBase::Unsigned => kind::UNSIGNED,
                    NumberBase::Hex => kind::HEX,
                };
                sized(kind::PAIR, 32) | base.fit::<u64>() << PAIR_BASE
            }
            ArgKind::Blocks => sized(kind::BLOCKS, bits),
            ArgKind::Unseen => kind::SHOWN as u64,
            ArgKind::Buf(word) => with(kind::BUFFER, word),
            ArgKind::Bytes(word) => with(kind::BYTES, word),
            ArgKind::Sockaddr(word) => with(kind::SOCKADDR, word),
            ArgKind::Struct(structure) => self.structure(kind::STRUCT, structure),
            ArgKind::Braced(structure) => self.structure(kind::STRUCT, structure) | BRACES,
            ArgKind::Packed(structure) => self.structure(kind::PACKED, structure),
            ArgKind::Result(bits) => sized(kind::RESULT, bits),
            ArgKind::Timespec(bits) => time(bits, 0),
            ArgKind::Timeval(bits) => time(bits, time::MICRO),
            ArgKind::Itimerspec(bits) => time(bits, time::TIMER),
            ArgKind::Itimerval(bits) => time(bits, time::MICRO | time::TIMER),
        }
    }
}

/// A descriptor of a value with this many bits, of whole bytes.
fn sized(kind: i32, bits: u8) -> u64 {
    with_bits(kind.fit::<u64>(), bits.clamp(1, 64).next_multiple_of(8))
}

/// A descriptor of a value with this many bits.
fn with_bits(descriptor: u64, bits: u8) -> u64 {
    descriptor & !(0x3f << 8) | u64::from(64 - u32::from(bits.clamp(1, 64))) << 8
}

/// The second word of a field's entry.
fn field_word(field: &StructureField) -> u64 {
    u64::from(field.offset) | u64::from(field.shift) << structure::SHIFT
}

/// The rows of descriptors, their number, and the lists.
fn tables(syscalls: &[Syscall]) -> (Vec<u8>, u32, NameLists) {
    let most = 2 * NrSet::COMPAT;
    let rows = syscalls
        .iter()
        .map(|s| s.nr + 1)
        .filter(|n| *n <= most)
        .max();
    let rows = rows.unwrap_or(0);
    let mut words = vec![0u64; rows as usize * ROW_WORDS];
    let mut lists = NameLists::default();
    for s in syscalls.iter().filter(|s| s.nr < rows) {
        let start = s.nr as usize * ROW_WORDS;
        let others = s.variants.and_then(|variants| variants.others);
        let args = row(others.unwrap_or(s.args), &mut lists);
        words[start..start + ARGS].copy_from_slice(&args);
        if let Some(variants) = s.variants {
            let cases = cases(variants, &mut words, &mut lists);
            words[start + ARGS] = cases;
            words[start + ARGS + 1] = variants.mask;
        }
    }
    lists.finish(0);
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes());
    (bytes.collect(), rows, lists)
}

/// The descriptors of arguments.
fn row(args: &[SysArg], lists: &mut NameLists) -> [u64; ARGS] {
    let mut row = [0; ARGS];
    let mut shown = false;
    let mut before = None;
    for arg in args {
        let follows = if shown { FOLLOWS } else { 0 };
        shown |= arg.kind != ArgKind::Unseen;
        let index = usize::from(arg.word);
        let Some(word) = row.get_mut(index) else {
            break;
        };
        let other = |word: usize| (word as u64) << 16;
        let descriptor = match (before, arg.kind) {
            // Printed only if the flags in front of it use it.
            (Some(ArgKind::Flags(t)), ArgKind::Mode) if t.name == "open" => {
                sized(kind::OPEN_MODE, 32) | other(index.saturating_sub(1))
            }
            (_, arg_kind @ ArgKind::Pair(_)) => {
                lists.descriptor(arg_kind, arg.bits, arg.signed) | other(index + 1)
            }
            (_, arg_kind) => lists.descriptor(arg_kind, arg.bits, arg.signed),
        };
        *word = descriptor | follows;
        before = Some(arg.kind);
        // A pair takes two words.
        if matches!(arg.kind, ArgKind::Pair(_))
            && let Some(word) = row.get_mut(index + 1)
        {
            *word = kind::SHOWN as u64;
        }
    }
    row
}

/// Appends rows for the values of an argument; returns the description of the list of values.
fn cases(arg_variants: &ArgVariants, words: &mut Vec<u64>, lists: &mut NameLists) -> u64 {
    let mut values = Vec::new();
    for case in arg_variants.cases {
        let start = words.len();
        words.extend(row(case.args, lists));
        words.extend([0, 0]);
        if let Some(variants) = &case.variants {
            let cases = cases(variants, words, lists);
            words[start + ARGS] = cases;
            words[start + ARGS + 1] = variants.mask;
        }
        let row = (start / ROW_WORDS) as u64;
        values.extend(case.values.iter().map(|value| (*value, row)));
    }
    values.truncate(variant::MAX_VALUES as usize);
    let off = lists.bytes.len() as u64;
    for (value, row) in &values {
        lists.entry(*value, *row, "");
    }
    off | (values.len() as u64) << variant::COUNT | u64::from(arg_variants.word) << variant::WORD
}

impl HandlerCodegen<'_> {
    pub(crate) fn sys_argstr(&mut self, dst: IrReg) -> Res {
        self.arg_texts(dst, 0..ARGS)
    }

    /// `dst` = the text of one argument.
    pub(crate) fn sys_argtext(&mut self, dst: IrReg, n: Val) -> Res {
        match n {
            Val::Imm(n @ 0..ARGS_LONG) => {
                self.arg_texts(dst, n.fit::<usize>()..n.fit::<usize>() + 1)
            }
            _ => Err("the number of a system call's argument is not a constant below 6".into()),
        }
    }

    fn arg_texts(&mut self, dst: IrReg, words: Range<usize>) -> Res {
        let event = self.ctx.event();
        if !matches!(event, Event::SysEnter(_)) {
            return Err("argstr in another event than the entry to a system call".into());
        }
        let Some((off, width)) = self.slot(dst)? else {
            return Ok(());
        };
        let single = words.len() == 1;
        let rows = self.syscall_rows()?;
        self.all_args()?;
        let may = self.may_defer(dst);
        self.store(self.plan.scratch.tmp + DEFER, may);
        self.begin_text(width);
        let end = self.asm.label();
        self.choose_row(rows, end);
        for i in words {
            let descriptor = self.descriptor(rows, i, end);
            if single {
                self.asm
                    .alu(AluOp::And, descriptor, !(FOLLOWS | BRACES).fit::<i32>());
            }
            let value = self.block_word(self.plan.scratch.tmp + WORDS + 8 * i.fit::<u32>());
            let args = [descriptor.into(), value.into()];
            self.asm.call_sub_with("put_arg", &args);
        }
        self.asm.bind(end);
        self.end_text(off, width);
        Ok(())
    }

    /// Stores the row of the call's descriptors for the values of its arguments; goes to `end` if the table
    /// lacks the call.
    fn choose_row(&mut self, rows: SyscallRows, end: Label) {
        let chosen = (self.plan.scratch.tmp + CHOSEN).fit::<i16>();
        let fixed = self.asm.label();
        let number = self.call_number();
        self.asm.jump_if(Cond::Ge, number, rows.calls, end);
        self.asm.store(Size::DW, BLOCK, chosen, number);
        // The row of one argument's value can depend on a second argument.
        for _ in 0..2 {
            let number = self.block_word(self.plan.scratch.tmp + CHOSEN);
            self.asm.jump_if(Cond::Ge, number, rows.count, fixed);
            let row = self.row(rows, number);
            let [values, mask] =
                [ARGS, ARGS + 1].map(|word| self.asm.word(row, 8 * word.fit::<i16>()));
            self.asm.jump_if(Cond::Eq, values, 0, fixed);
            let args = [values, mask, number].map(CallArg::from);
            let variant = self.asm.call_sub_with("variant_row", &args);
            self.asm.store(Size::DW, BLOCK, chosen, variant);
        }
        self.asm.bind(fixed);
    }

    /// The address of a row.
    fn row(&mut self, rows: SyscallRows, number: Reg) -> Reg {
        let row = self.asm.address_of(&CallArg::Constant(rows.offset));
        let off = self.asm.alu_of(AluOp::Mul, number, ROW);
        self.asm.add(row, off);
        row
    }

    /// The descriptor of argument i; goes to `end` if the call has no such argument.
    fn descriptor(&mut self, rows: SyscallRows, i: usize, end: Label) -> Reg {
        let number = self.block_word(self.plan.scratch.tmp + CHOSEN);
        self.asm.jump_if(Cond::Ge, number, rows.count, end);
        let row = self.row(rows, number);
        let descriptor = self.asm.word(row, 8 * i.fit::<i16>());
        self.asm.jump_if(Cond::Eq, descriptor, 0, end);
        descriptor
    }

    /// Stores all six arguments in the scratch words from the third on.
    fn all_args(&mut self) -> Res {
        let [native, end] = self.asm.labels();
        let to = (self.plan.scratch.tmp + WORDS).fit::<i16>();
        let regs = self.regs()?;
        let number = self.call_number();
        self.asm.jump_if(Cond::Slt, number, NrSet::COMPAT, native);
        let store = |asm: &mut Asm, size, offsets: [i16; 6]| {
            for (i, off) in offsets.into_iter().enumerate() {
                let arg = asm.read(size, regs, off);
                asm.store(Size::DW, BLOCK, to + 8 * i.fit::<i16>(), arg);
            }
        };
        match self.sees_parts() {
            true => {
                for i in 0..ARGS {
                    let word = self.asm.copy(regs);
                    self.compat_word(number, word, i);
                    self.asm
                        .store(Size::DW, BLOCK, to + 8 * i.fit::<i16>(), word);
                }
            }
            false => store(self.asm, Size::W, self.compat_arguments()),
        }
        self.asm.jump(end);
        self.asm.bind(native);
        store(self.asm, Size::DW, self.options.abi.syscalls.arguments);
        self.asm.bind(end);
        Ok(())
    }
}

impl HandlerCodegen<'_> {
    /// Offset and number of the rows of system calls, with which the object gets `put_arg`.
    fn syscall_rows(&mut self) -> Res<SyscallRows> {
        if let Some(made) = self.pool.syscall_rows {
            return Ok(made);
        }
        let (rows, calls, lists) = tables(self.options.syscalls);
        let made = SyscallRows {
            count: rows.len().fit::<u32>() / ROW.cast_unsigned(),
            offset: self.pool.constant(&rows),
            calls,
        };
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
            quote: quote::sub(pool, plan.max_string, plan.max_string)?,
            signed: flag::SIGNED,
            mark: flag::MARK,
            defer: defer.then_some(DeferredReads {
                allowed: offset(scratch.tmp + DEFER),
                absent: usermem::ABSENT,
                quoted: Quote::Quoted as i32,
            }),
        };
        pool.routine_with("put_arg", Some(plan), |_| {
            let size = names.len().fit::<i32>();
            let names = ConstantData {
                name: NAMES.into(),
                bytes: names,
            };
            let given = vec![names, escape_table()];
            Ok((Routine::Arguments(layout, size), given))
        })
    }
}
