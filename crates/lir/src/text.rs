//! The text form of a module, which [`crate::reader`] reads back.
//!
//! ```text
//! extern @append_text(4)
//!
//! data @digits "0123456789abcdef"
//!
//! ; The number of bytes in front of the first NUL. This comment is the contract.
//! func @length(%text, %most) stack 16, 8 {
//! entry:
//!   %zero = const 0
//!   jump next(%zero)
//! next(%i): loop 4096 else end(%i)
//!   %at = add %text, %i
//!   %byte = load u8 %at + 0
//!   %i1 = add %i, 1
//!   if eq %byte, 0 then end(%i) else next(%i1)
//! end(%n):
//!   ret %n
//! }
//! ```
//! | instruction | text |
//! |---|---|
//! | constant | `%x = const -5` |
//! | arithmetic, 64 and 32 bits | `%x = add %a, 5`, `%x = lsh32 %a, %b` |
//! | low bytes | `%x = zext u8 %a`, `%x = sext u32 %a`, `%x = swap u64 %a` |
//! | memory | `%x = load u8 %a + 4`, `%x = load s8 %a - 4`, `store u32 %a + 0, 7` |
//! | atomic, 64 or 32 bits | `atomic_add 64 %a + 0, %b`, `%old = cmpxchg 32 %a + 0, %expected, %new` |
//! | hints for the verifier | `%x = bound %a, 4095`, `%x = opaque %a` |
//! | addresses | `%x = slot 0 + 8`, `%x = cpu 128`, `%x = state 64`, `%x = map @m`, `%x = data @d + 4` |
//! | calls | `%x = helper time_ns()`, `%x = call @f(%a, %b)`, `%n = repeat %times, @f, %context` |
//! | ends of blocks | `jump b(%x)`, `if lt %a, 5 then b(%x) else c`, `if32 ...`, `ret %x` |
//!
//! `extern` declares a function of the host with its number of parameters.
//!
//! In constant data, `\x00` is a byte, `\{40}` behind a byte repeats it until there are 40, and several
//! strings follow one another.
//!
//! Names consist of letters, digits, `_` and `.`. A comment goes from `;` to the end of the line.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::func::{
    ConstantData, Extern, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopForm, MemoryOperand,
    Module, Operand, Value,
};
use crate::op::{Size, Width};

/// A part of a function, which is printed with the function's names.
struct InFunc<'a, T>(&'a LirFunc, T);

impl Display for InFunc<'_, Value> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.values.get(self.1.index()) {
            Some(name) => write!(f, "%{name}"),
            None => write!(f, "%?{}", self.1.0),
        }
    }
}

impl Display for InFunc<'_, Operand> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Operand::Value(v) => InFunc(self.0, v).fmt(f),
            Operand::Imm(n) => n.fmt(f),
        }
    }
}

impl Display for InFunc<'_, &[Value]> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, v) in self.1.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{}", InFunc(self.0, *v))?;
        }
        Ok(())
    }
}

impl Display for InFunc<'_, &JumpTarget> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.blocks.get(self.1.block.index()) {
            Some(block) => f.write_str(&block.name)?,
            None => write!(f, "?{}", self.1.block.0)?,
        }
        if self.1.args.is_empty() {
            return Ok(());
        }
        write!(f, "({})", InFunc(self.0, &*self.1.args))
    }
}

/// A base and a displacement.
impl Display for InFunc<'_, (Value, i16)> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (base, off) = self.1;
        let sign = if off < 0 { '-' } else { '+' };
        write!(f, "{} {sign} {}", InFunc(self.0, base), off.unsigned_abs())
    }
}

fn suffix(width: Width) -> &'static str {
    match width {
        Width::W32 => "32",
        Width::W64 => "",
    }
}

/// The name of a load's size.
pub(crate) fn signed_name(size: Size) -> &'static str {
    match size {
        Size::U8 => "s8",
        Size::U16 => "s16",
        Size::U32 => "s32",
        Size::U64 => "s64",
    }
}

impl Display for MemoryOperand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MemoryOperand::Slot(slot, off) => write!(f, "slot {} + {off}", slot.0),
            MemoryOperand::Cpu(off) => write!(f, "cpu {off}"),
            MemoryOperand::State(off) => write!(f, "state {off}"),
            MemoryOperand::Map(name) => write!(f, "map @{name}"),
            MemoryOperand::Func(name) => write!(f, "func @{name}"),
            MemoryOperand::Data(name, off) => write!(f, "data @{name} + {off}"),
        }
    }
}

impl Display for InFunc<'_, &LirInst> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let func = self.0;
        if let Some(dst) = self.1.dst() {
            write!(f, "{} = ", InFunc(func, dst))?;
        }
        match self.1 {
            LirInst::Const { imm, .. } => write!(f, "const {imm}"),
            LirInst::Alu {
                width, op, a, b, ..
            } => {
                let (name, width) = (op.name(), suffix(*width));
                let (a, b) = (InFunc(func, *a), InFunc(func, *b));
                write!(f, "{name}{width} {a}, {b}")
            }
            LirInst::Ext { op, size, a, .. } => {
                write!(f, "{} {} {}", op.name(), size.name(), InFunc(func, *a))
            }
            LirInst::Load {
                size,
                signed,
                base,
                off,
                ..
            } => {
                let name = if *signed {
                    signed_name(*size)
                } else {
                    size.name()
                };
                write!(f, "load {name} {}", InFunc(func, (*base, *off)))
            }
            LirInst::Store {
                size,
                base,
                off,
                src,
            } => {
                let (address, src) = (InFunc(func, (*base, *off)), InFunc(func, *src));
                write!(f, "store {} {address}, {src}", size.name())
            }
            LirInst::Atomic {
                op,
                width,
                base,
                off,
                expected,
                src,
                ..
            } => {
                let address = InFunc(func, (*base, *off));
                write!(f, "{} {} {address}, ", op.name(), width.name())?;
                if let Some(expected) = expected {
                    write!(f, "{}, ", InFunc(func, *expected))?;
                }
                InFunc(func, *src).fmt(f)
            }
            LirInst::Bound { a, max, .. } => write!(f, "bound {}, {max}", InFunc(func, *a)),
            LirInst::Opaque { a, .. } => write!(f, "opaque {}", InFunc(func, *a)),
            LirInst::Addr { location, .. } => location.fmt(f),
            LirInst::Helper { helper, args, .. } => {
                write!(f, "helper {}({})", helper.name(), InFunc(func, &**args))
            }
            LirInst::Call {
                func: name, args, ..
            } => {
                write!(f, "call @{name}({})", InFunc(func, &**args))
            }
            LirInst::Repeat {
                times,
                func: name,
                context,
                ..
            } => {
                let (times, context) = (InFunc(func, *times), InFunc(func, *context));
                write!(f, "repeat {times}, @{name}, {context}")
            }
        }
    }
}

impl Display for InFunc<'_, &LirTerm> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let func = self.0;
        match self.1 {
            LirTerm::Jump(to) => write!(f, "jump {}", InFunc(func, to)),
            LirTerm::Branch {
                cond,
                width,
                a,
                b,
                then,
                els,
            } => {
                let (a, b) = (InFunc(func, *a), InFunc(func, *b));
                let (then, els) = (InFunc(func, then), InFunc(func, els));
                let (cond, width) = (cond.name(), suffix(*width));
                write!(f, "if{width} {cond} {a}, {b} then {then} else {els}")
            }
            LirTerm::Ret(v) => write!(f, "ret {}", InFunc(func, *v)),
        }
    }
}

impl InFunc<'_, &LirBlock> {
    fn write(&self, f: &mut Formatter<'_>, first: bool) -> fmt::Result {
        let InFunc(func, block) = self;
        f.write_str(&block.name)?;
        if !block.params.is_empty() && !first {
            write!(f, "({})", InFunc(func, &*block.params))?;
        }
        f.write_char(':')?;
        if let Some(bound) = &block.bound {
            let form = match bound.form {
                LoopForm::Callback => "",
                LoopForm::Inline => " inline",
                LoopForm::Open => " open",
            };
            let exhausted = InFunc(func, &bound.exhausted);
            write!(f, " loop {}{form} else {exhausted}", bound.max)?;
        }
        f.write_char('\n')?;
        for inst in &block.insts {
            writeln!(f, "  {}", InFunc(func, inst))?;
        }
        writeln!(f, "  {}", InFunc(func, &block.term))
    }
}

impl Display for LirFunc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in self.contract.lines() {
            writeln!(f, "{}", format!("; {line}").trim_end())?;
        }
        write!(f, "func @{}({})", self.name, InFunc(self, self.params()))?;
        for (i, size) in self.slots.iter().enumerate() {
            write!(f, "{} {size}", if i == 0 { " stack" } else { "," })?;
        }
        writeln!(f, " {{")?;
        for (i, block) in self.blocks.iter().enumerate() {
            InFunc(self, block).write(f, i == 0)?;
        }
        writeln!(f, "}}")
    }
}

/// Number of bytes of constant data in a line.
const DATA_LINE: usize = 80;
/// Length from which on equal bytes are written as a repetition.
const RUN: usize = 8;

impl Display for ConstantData {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "data @{}", self.name)?;
        let short = self.bytes.len() <= DATA_LINE;
        let mut used = 0;
        f.write_str(if short { " \"" } else { "\n  \"" })?;
        for run in self.bytes.chunk_by(|a, b| a == b) {
            // A run is as long in the text as two bytes.
            let len = if run.len() < RUN { run.len() } else { 2 };
            if used > 0 && used + len > DATA_LINE && !short {
                f.write_str("\"\n  \"")?;
                used = 0;
            }
            used += len;
            match run {
                [byte, ..] if run.len() >= RUN => {
                    write_byte(f, *byte)?;
                    write!(f, "\\{{{}}}", run.len())?;
                }
                run => run.iter().try_for_each(|byte| write_byte(f, *byte))?,
            }
        }
        writeln!(f, "\"")
    }
}

fn write_byte(f: &mut Formatter<'_>, byte: u8) -> fmt::Result {
    match byte {
        b'"' => f.write_str("\\\""),
        b'\\' => f.write_str("\\\\"),
        b' '..=b'~' => f.write_char(char::from(byte)),
        _ => write!(f, "\\x{byte:02x}"),
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for Extern { name, params } in &self.externs {
            writeln!(f, "extern @{name}({params})")?;
        }
        for (i, data) in self.data.iter().enumerate() {
            if i > 0 || !self.externs.is_empty() {
                f.write_char('\n')?;
            }
            data.fmt(f)?;
        }
        for (i, func) in self.funcs.iter().enumerate() {
            if i > 0 || !self.data.is_empty() || !self.externs.is_empty() {
                f.write_char('\n')?;
            }
            func.fmt(f)?;
        }
        Ok(())
    }
}

impl LirFunc {
    /// An instruction as text, for messages.
    pub fn show(&self, inst: &LirInst) -> String {
        InFunc(self, inst).to_string()
    }

    /// The end of a block as text, for messages.
    pub fn show_term(&self, term: &LirTerm) -> String {
        InFunc(self, term).to_string()
    }
}
