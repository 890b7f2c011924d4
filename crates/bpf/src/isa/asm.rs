//! The assembler: builds one [`Function`] instruction by instruction.
//!
//! Jumps go to [`Label`]s, bound before or after. What only the loader knows (maps, data
//! sections, other functions) is left to [`Reloc`]s that the linker follows and the ELF writer
//! turns into ELF relocations. Each instruction can carry a comment and a place in the script: the comment
//! shows in [`Function::listing`], the place goes into the object's line information, so that
//! the verifier's log names the script line.
//!
//! Positions everywhere are *slots* of 8 bytes from the function's start: the numbers that
//! the verifier's log and `bpftool prog dump` print for the first function of a program.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, AtomicOp, Callee, Cond, ImmKind, Insn, Reg, Size, Src, Swap, Width};

/// A place in a function that jumps go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label(u32);

/// A data section of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// `.bss`: zeroed, writable, the state memory.
    Bss,
    /// `.rodata`: constants.
    Rodata,
}

/// What an instruction refers to outside its function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `LdImm64`: a map, by name.
    Map(Arc<str>),
    /// `LdImm64`: an address in a data section, in bytes from its start.
    Data(Section, u32),
    /// `Call`: a subprogram, by name.
    Call(Arc<str>),
    /// `LdImm64`: the address of a subprogram, by name, for helpers that call back.
    Func(Arc<str>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Map(name) => write!(f, "map {name}"),
            Target::Data(Section::Bss, off) => write!(f, ".bss+{off}"),
            Target::Data(Section::Rodata, off) => write!(f, ".rodata+{off}"),
            Target::Call(name) | Target::Func(name) => f.write_str(name),
        }
    }
}

/// A reference to be filled in by the loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloc {
    /// The instruction.
    pub slot: u32,
    /// What it refers to.
    pub target: Target,
}

/// A place in the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// File name as shown to the user.
    pub file: Arc<str>,
    /// Text of the line.
    pub text: Arc<str>,
    /// Line, from 1 (the format keeps 22 bits).
    pub line: u32,
    /// Column, from 1 (the format keeps 10 bits); 0 for none.
    pub column: u32,
}

/// An assembled function. The lists beside the instructions are sorted by slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Function {
    /// Symbol name, unique in the object, a C identifier.
    pub name: String,
    /// Names of its parameters (64-bit each), at most 5. A program has one, the context.
    pub params: Vec<Cow<'static, str>>,
    /// The instructions; jumps are resolved.
    pub insns: Vec<Insn>,
    /// References.
    pub relocs: Vec<Reloc>,
    /// Comments for the listing; several at one slot stand one under the other.
    pub comments: Vec<(u32, Cow<'static, str>)>,
    /// Where in the script the instructions from that slot on come from.
    pub lines: Vec<(u32, SourceLine)>,
    /// A subprogram that the verifier checks once, for all values of its parameters, and not
    /// anew for each call. All parameters are numbers.
    pub separate: bool,
}

/// Slots that a short jump leaves for what the kernel puts in between when it rewrites calls.
const ROOM: i16 = 8192;

/// A distance that a short jump reaches, also after the kernel's rewriting.
fn near(distance: i32) -> Option<i16> {
    let short = i16::try_from(distance).ok()?;
    (short.unsigned_abs() <= (i16::MAX - ROOM).unsigned_abs()).then_some(short)
}

impl Function {
    /// Length in slots.
    pub fn slots(&self) -> u32 {
        self.insns.iter().map(Insn::slots).sum()
    }

    /// Whether it has a jump that needs Linux 6.6 (`gotol`).
    pub fn has_long_jump(&self) -> bool {
        self.insns
            .iter()
            .any(|i| matches!(i, Insn::GotoLong { .. }))
    }

    /// The instructions as text, one a line with its slot, under the script lines and
    /// comments they belong to, followed by what they refer to.
    pub fn listing(&self) -> String {
        let mut out = format!("{}({}):\n", self.name, self.params.join(", "));
        let mut comments = self.comments.iter().peekable();
        let mut lines = self.lines.iter().peekable();
        let mut relocs = self.relocs.iter().peekable();
        let mut slot = 0;
        for insn in &self.insns {
            // Writing to a String does not fail.
            while let Some((_, at)) = lines.next_if(|(s, _)| *s <= slot) {
                let _ = writeln!(out, "; {}:{}:{}: {}", at.file, at.line, at.column, at.text);
            }
            while let Some((_, text)) = comments.next_if(|(s, _)| *s <= slot) {
                let _ = writeln!(out, "    ; {text}");
            }
            let _ = write!(out, "{slot:6}: {insn}");
            while let Some(reloc) = relocs.next_if(|r| r.slot <= slot) {
                let _ = write!(out, "  <{}>", reloc.target);
            }
            out.push('\n');
            slot += insn.slots();
        }
        out
    }
}

/// Why a function cannot be assembled. These are errors of the code generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsmError {
    /// A jump at that slot of the function goes to a label that was never bound.
    Unbound {
        /// Function name.
        function: String,
        /// The jump.
        slot: u32,
    },
    /// A jump at that slot goes behind the last instruction.
    PastEnd {
        /// Function name.
        function: String,
        /// The jump.
        slot: u32,
    },
    /// A `may_goto` at that slot is more than 32,767 slots from its target.
    OutOfRange {
        /// Function name.
        function: String,
        /// The jump.
        slot: u32,
    },
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, slot, what) = match self {
            AsmError::Unbound { function, slot } => (function, slot, "to an unbound label"),
            AsmError::PastEnd { function, slot } => (function, slot, "past the function's end"),
            AsmError::OutOfRange { function, slot } => (function, slot, "is too long"),
        };
        write!(f, "{function}: the jump at {slot} {what}")
    }
}

impl std::error::Error for AsmError {}

const UNBOUND: u32 = u32::MAX;

/// A jump whose distance is still to be filled in.
#[derive(Debug, Clone, Copy)]
struct Fixup {
    /// Index in `insns`.
    index: u32,
    slot: u32,
    label: Label,
}

/// Builds a [`Function`].
#[derive(Debug, Default)]
pub struct Asm {
    function: Function,
    /// Slot of the next instruction.
    here: u32,
    /// Where a label was bound last; no slot has that number before.
    bound: u32,
    labels: Vec<u32>,
    fixups: Vec<Fixup>,
}

/// A chain of one-line emitters over [`Asm::emit`].
macro_rules! emitters {
    ($($(#[$m:meta])* $name:ident ( $($arg:ident : $ty:ty),* ) => $insn:expr;)*) => {
        impl Asm {
            $($(#[$m])* pub fn $name(&mut self, $($arg: $ty),*) {
                self.emit($insn);
            })*
        }
    };
}

emitters! {
    /// `dst = src`.
    mov(dst: Reg, src: impl Into<Src>) =>
        Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: src.into() };
    /// `dst = src`, low half, zero-extended.
    mov32(dst: Reg, src: impl Into<Src>) =>
        Insn::Alu { width: Width::W32, op: AluOp::Mov, dst, src: src.into() };
    /// `dst = dst op src`, 64 bits.
    alu(op: AluOp, dst: Reg, src: impl Into<Src>) =>
        Insn::Alu { width: Width::W64, op, dst, src: src.into() };
    /// `dst = dst op src`, 32 bits, zero-extended.
    alu32(op: AluOp, dst: Reg, src: impl Into<Src>) =>
        Insn::Alu { width: Width::W32, op, dst, src: src.into() };
    /// `dst += src`.
    add(dst: Reg, src: impl Into<Src>) =>
        Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src: src.into() };
    /// `dst = -dst`.
    neg(dst: Reg) => Insn::Neg { width: Width::W64, dst };
    /// `dst` = low `size` bytes of `src`, sign-extended to 64 bits (Linux 6.6).
    mov_sx(size: Size, dst: Reg, src: Reg) => Insn::MovSx { width: Width::W64, size, dst, src };
    /// Byte order of the low `size` bytes of `dst`.
    swap(to: Swap, size: Size, dst: Reg) => Insn::Swap { to, size, dst };
    /// `dst = imm`, always in two slots.
    ld_imm64(dst: Reg, imm: u64) => Insn::LdImm64 { dst, kind: ImmKind::Plain, imm };
    /// `dst = *(base + off)`, zero-extended.
    load(size: Size, dst: Reg, base: Reg, off: i16) => Insn::Load { size, dst, base, off };
    /// `dst = *(base + off)`, sign-extended (Linux 6.6).
    load_sx(size: Size, dst: Reg, base: Reg, off: i16) => Insn::LoadSx { size, dst, base, off };
    /// `*(base + off) = src`.
    store(size: Size, base: Reg, off: i16, src: impl Into<Src>) =>
        Insn::Store { size, base, off, src: src.into() };
    /// Atomic operation on the 8 bytes at `base + off`.
    atomic(op: AtomicOp, base: Reg, off: i16, src: Reg) =>
        Insn::Atomic { width: Width::W64, op, base, off, src };
    /// Atomic operation on the 4 bytes at `base + off`.
    atomic32(op: AtomicOp, base: Reg, off: i16, src: Reg) =>
        Insn::Atomic { width: Width::W32, op, base, off, src };
    /// Calls a helper.
    call(helper: Helper) =>
        Insn::Call { callee: Callee::Helper, target: helper.id() as i32 };
    /// Returns with r0.
    exit() => Insn::Exit {};
}

impl Asm {
    /// Starts a function with these parameters.
    pub fn new(name: impl Into<String>, params: &[&'static str]) -> Asm {
        let params = params.iter().map(|p| Cow::Borrowed(*p)).collect();
        Asm {
            function: Function {
                name: name.into(),
                params,
                ..Function::default()
            },
            ..Asm::default()
        }
    }

    /// Marks the function as [`Function::separate`].
    pub fn separate(&mut self) {
        self.function.separate = true;
    }

    /// Slot of the next instruction.
    pub fn here(&self) -> u32 {
        self.here
    }

    /// Appends an instruction as it is.
    pub fn emit(&mut self, insn: Insn) {
        let insn = match self.known(&insn) {
            Some(None) => return,
            Some(Some(simpler)) => simpler,
            None => insn,
        };
        self.here += insn.slots();
        self.function.insns.push(insn);
    }

    /// What an instruction can be made because of the one before it, where nothing jumps in
    /// between: a word of the stack that was just stored is not read, a move is not moved back.
    fn known(&self, insn: &Insn) -> Option<Option<Insn>> {
        if self.bound == self.here {
            return None;
        }
        let (from, to) = match (self.function.insns.last()?, insn) {
            (
                Insn::Store {
                    size: Size::DW,
                    base: Reg::R10,
                    off,
                    src: Src::Reg(src),
                },
                Insn::Load {
                    size: Size::DW,
                    dst,
                    base: Reg::R10,
                    off: there,
                },
            ) if off == there => (*src, *dst),
            (
                Insn::Alu {
                    width: Width::W64,
                    op: AluOp::Mov,
                    dst: a,
                    src: Src::Reg(b),
                },
                Insn::Alu {
                    width: Width::W64,
                    op: AluOp::Mov,
                    dst,
                    src: Src::Reg(src),
                },
            ) if a == src && b == dst => return Some(None),
            _ => return None,
        };
        Some((from != to).then_some(Insn::Alu {
            width: Width::W64,
            op: AluOp::Mov,
            dst: to,
            src: Src::Reg(from),
        }))
    }

    /// Has the last instruction load or move into another register, where that is all it does to
    /// the first, which nobody reads any more.
    pub(crate) fn retarget(&mut self, from: Reg, to: Reg) -> bool {
        if self.bound == self.here {
            return false;
        }
        match self.function.insns.last_mut() {
            Some(
                Insn::Load { dst, .. }
                | Insn::Alu {
                    op: AluOp::Mov,
                    dst,
                    ..
                },
            ) if *dst == from => *dst = to,
            _ => return false,
        }
        true
    }

    /// `dst = imm` in one slot where it fits, otherwise two.
    pub fn imm(&mut self, dst: Reg, imm: i64) {
        match i32::try_from(imm) {
            Ok(imm) => self.mov(dst, imm),
            Err(_) => match u32::try_from(imm) {
                // 32-bit moves zero-extend: one slot for what would need two.
                Ok(imm) => self.mov32(dst, imm as i32),
                Err(_) => self.ld_imm64(dst, imm as u64),
            },
        }
    }

    /// A comment on the next instruction.
    pub fn comment(&mut self, text: impl Into<Cow<'static, str>>) {
        self.function.comments.push((self.here, text.into()));
    }

    /// The instructions from here on come from that place. Repeating the place is free.
    pub fn line(&mut self, line: &SourceLine) {
        let lines = &mut self.function.lines;
        if let Some((slot, last)) = lines.last_mut() {
            if last == line {
                return;
            }
            if *slot == self.here {
                *last = line.clone();
                return;
            }
        }
        lines.push((self.here, line.clone()));
    }

    /// A new label, not yet bound.
    pub fn label(&mut self) -> Label {
        self.labels.push(UNBOUND);
        Label(self.labels.len() as u32 - 1)
    }

    /// The label's place is the next instruction. Binding again moves it.
    pub fn bind(&mut self, label: Label) {
        // A jump to the next instruction is none. (The kernel takes them out one by one.)
        let last = self.function.insns.len() as u32;
        let jump = |f: &&Fixup| f.label.0 == label.0 && f.index + 1 == last;
        if self.fixups.last().filter(jump).is_some()
            && matches!(self.function.insns.last(), Some(Insn::Goto { .. }))
        {
            let behind = self.here;
            self.function.insns.pop();
            self.fixups.pop();
            self.here -= 1;
            let lines = self.function.lines.iter_mut().map(|(at, _)| at);
            for at in self.labels.iter_mut().chain(lines) {
                if *at == behind {
                    *at = self.here;
                }
            }
            // The kernel takes one place an instruction: of two, the one that is in force.
            let lines = &mut self.function.lines;
            if let [.., (a, _), (b, _)] = lines[..]
                && a == b
            {
                lines.remove(lines.len() - 2);
            }
        }
        self.labels[label.0 as usize] = self.here;
        self.bound = self.here;
    }

    fn fixup(&mut self, label: Label, insn: Insn) {
        let index = self.function.insns.len() as u32;
        self.fixups.push(Fixup {
            index,
            slot: self.here,
            label,
        });
        self.emit(insn);
    }

    /// Jumps always.
    pub fn jump(&mut self, label: Label) {
        self.fixup(label, Insn::Goto { off: 0 });
    }

    /// Jumps if `dst cond src`, 64 bits.
    pub fn jump_if(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        let src = src.into();
        self.fixup(
            label,
            Insn::Jump {
                width: Width::W64,
                cond,
                dst,
                src,
                off: 0,
            },
        );
    }

    /// Jumps if `dst cond src`, low halves.
    pub fn jump_if32(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        let src = src.into();
        self.fixup(
            label,
            Insn::Jump {
                width: Width::W32,
                cond,
                dst,
                src,
                off: 0,
            },
        );
    }

    /// Jumps when the loop's budget is used up (Linux 6.9).
    pub fn may_goto(&mut self, label: Label) {
        self.fixup(label, Insn::MayGoto { off: 0 });
    }

    fn reloc(&mut self, target: Target, insn: Insn) {
        self.function.relocs.push(Reloc {
            slot: self.here,
            target,
        });
        self.emit(insn);
    }

    fn address(&mut self, dst: Reg, target: Target) {
        self.reloc(
            target,
            Insn::LdImm64 {
                dst,
                kind: ImmKind::Plain,
                imm: 0,
            },
        );
    }

    /// `dst` = the map of that name.
    pub fn ld_map(&mut self, dst: Reg, name: impl Into<Arc<str>>) {
        self.address(dst, Target::Map(name.into()));
    }

    /// `dst` = address of a byte in a data section.
    pub fn ld_data(&mut self, dst: Reg, section: Section, offset: u32) {
        self.address(dst, Target::Data(section, offset));
    }

    /// `dst` = address of a subprogram, for `bpf_for_each_map_elem` and `bpf_loop`.
    pub fn ld_func(&mut self, dst: Reg, name: impl Into<Arc<str>>) {
        self.address(dst, Target::Func(name.into()));
    }

    /// Calls a subprogram at most so often as r1 says, until it returns 1, with the address of the
    /// stack at `context` as its second argument (`bpf_loop`). Loses r0-r5.
    pub fn each(&mut self, callback: impl Into<Arc<str>>, context: i16) {
        self.ld_func(R2, callback);
        self.mov(R3, R10);
        self.add(R3, i32::from(context));
        self.mov(R4, 0);
        self.call(Helper::Loop);
    }

    /// Calls a subprogram of the object.
    pub fn call_sub(&mut self, name: impl Into<Arc<str>>) {
        let insn = Insn::Call {
            callee: Callee::Subprogram,
            target: -1,
        };
        self.reloc(Target::Call(name.into()), insn);
    }

    /// Calls a kernel function by its id in the kernel's BTF.
    pub fn call_kfunc(&mut self, id: u32) {
        self.emit(Insn::Call {
            callee: Callee::Kfunc,
            target: id as i32,
        });
    }

    /// Resolves the jumps. Those that do not fit 16 bits become `gotol` (a condition: jump
    /// over a `gotol`); [`Function::has_long_jump`] tells.
    pub fn finish(mut self) -> Result<Function, AsmError> {
        while self.lengthen() {}
        let insns = &mut self.function.insns;
        let name = &self.function.name;
        for &Fixup { index, slot, label } in &self.fixups {
            let target = self
                .labels
                .get(label.0 as usize)
                .copied()
                .unwrap_or(UNBOUND);
            if target == UNBOUND {
                return Err(AsmError::Unbound {
                    function: name.clone(),
                    slot,
                });
            }
            if target >= self.here {
                return Err(AsmError::PastEnd {
                    function: name.clone(),
                    slot,
                });
            }
            let distance = distance(slot, target);
            match (&mut insns[index as usize], near(distance)) {
                (
                    Insn::Goto { off } | Insn::MayGoto { off } | Insn::Jump { off, .. },
                    Some(short),
                ) => *off = short,
                (Insn::GotoLong { off }, _) => *off = distance,
                (jump @ Insn::Goto { .. }, None) => *jump = Insn::GotoLong { off: distance },
                _ => {
                    return Err(AsmError::OutOfRange {
                        function: name.clone(),
                        slot,
                    });
                }
            }
        }
        Ok(self.function)
    }

    /// Replaces each condition that does not reach by `if cond +1; goto +1; gotol label`.
    /// Moves all behind it, so it has to be called until nothing is left; true if it
    /// did something.
    fn lengthen(&mut self) -> bool {
        let far: Vec<usize> = (0..self.fixups.len())
            .filter(|&i| {
                let Fixup { index, slot, label } = self.fixups[i];
                let is_cond = matches!(self.function.insns[index as usize], Insn::Jump { .. });
                let target = self.labels[label.0 as usize];
                is_cond && target != UNBOUND && near(distance(slot, target)).is_none()
            })
            .collect();
        if far.is_empty() {
            return false;
        }
        // Slots behind a lengthened jump move by two for each one before them.
        let at: Vec<u32> = far.iter().map(|&i| self.fixups[i].slot).collect();
        let moved = |slot: u32| slot + 2 * at.partition_point(|&a| a < slot) as u32;
        let old = std::mem::take(&mut self.function.insns);
        let mut far_indexes = far.iter().map(|&i| self.fixups[i].index).peekable();
        for (index, mut insn) in old.into_iter().enumerate() {
            let is_far = far_indexes.next_if_eq(&(index as u32)).is_some();
            if let (true, Insn::Jump { off, .. }) = (is_far, &mut insn) {
                *off = 1;
                let over = [insn, Insn::Goto { off: 1 }, Insn::GotoLong { off: 0 }];
                self.function.insns.extend(over);
            } else {
                self.function.insns.push(insn);
            }
        }
        let mut far = far.into_iter().peekable();
        let mut before = 0;
        for (i, fixup) in self.fixups.iter_mut().enumerate() {
            fixup.index += before;
            fixup.slot = moved(fixup.slot);
            if far.next_if_eq(&i).is_some() {
                fixup.index += 2;
                fixup.slot += 2;
                before += 2;
            }
        }
        self.labels
            .iter_mut()
            .filter(|l| **l != UNBOUND)
            .for_each(|l| *l = moved(*l));
        self.function
            .relocs
            .iter_mut()
            .for_each(|r| r.slot = moved(r.slot));
        self.function
            .comments
            .iter_mut()
            .for_each(|(s, _)| *s = moved(*s));
        self.function
            .lines
            .iter_mut()
            .for_each(|(s, _)| *s = moved(*s));
        self.here = moved(self.here);
        true
    }
}

/// Distance of a one-slot jump at `slot` to `target`.
fn distance(slot: u32, target: u32) -> i32 {
    (i64::from(target) - i64::from(slot) - 1) as i32
}
