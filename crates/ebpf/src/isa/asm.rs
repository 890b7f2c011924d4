//! The assembler: builds one [`AsmFunction`] instruction by instruction.
//!
//! Jumps go to [`Label`]s, bound before or after. References that only the loader can resolve
//! (maps, data sections, other functions) become [`Reloc`]s, which the linker follows and the ELF
//! writer turns into ELF relocations. Each instruction can carry a comment and a position in the
//! script. The comment is shown in [`AsmFunction::listing`]; the position goes into the object's line
//! information, so that the verifier's log names the script line.
//!
//! Positions everywhere are *slots* of 8 bytes from the function's start: the numbers that the
//! verifier's log and `bpftool prog dump` print for the first function of a program.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use spile_cast::Cast;

use crate::isa::helpers::Helper;
use crate::isa::insn::{AluOp, AtomicOp, Callee, Cond, ImmKind, Insn, Reg, Size, Src, Swap, Width};
use crate::isa::sequences::{CALLER_SAVED, Sequence};

mod arguments;
mod virtual_registers;

pub use arguments::{ARGUMENTS, CallArg};

/// The target of jumps in a function.
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

/// The target of a reference outside of the function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelocTarget {
    /// `LdImm64`: a map, by name.
    Map(Arc<str>),
    /// `LdImm64`: an address in a data section, in bytes from its start.
    Data(Section, u32),
    /// `Call`: a subprogram, by name.
    Call(Arc<str>),
    /// `LdImm64`: the address of a subprogram, by name, for helpers that call back.
    Func(Arc<str>),
}

impl fmt::Display for RelocTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelocTarget::Map(name) => write!(f, "map {name}"),
            RelocTarget::Data(Section::Bss, off) => write!(f, ".bss+{off}"),
            RelocTarget::Data(Section::Rodata, off) => write!(f, ".rodata+{off}"),
            RelocTarget::Call(name) | RelocTarget::Func(name) => f.write_str(name),
        }
    }
}

/// A reference that the loader resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloc {
    /// Slot of the instruction.
    pub slot: u32,
    /// The target.
    pub target: RelocTarget,
}

/// A position in the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// File name as shown to users.
    pub file: Arc<str>,
    /// Text of the line.
    pub text: Arc<str>,
    /// Line number, from 1 (the format has 22 bits).
    pub line: u32,
    /// Column number, from 1 (the format has 10 bits); 0 for none.
    pub column: u32,
}

/// An assembled function. Its lists are sorted by slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AsmFunction {
    /// Symbol name, unique in the object, a C identifier.
    pub name: String,
    /// Names of its parameters (64-bit each), at most 5. A program has one, the context.
    pub params: Vec<Cow<'static, str>>,
    /// The instructions; jumps are resolved.
    pub insns: Vec<Insn>,
    /// References.
    pub relocs: Vec<Reloc>,
    /// Comments for the listing; a slot can have several.
    pub comments: Vec<(u32, Cow<'static, str>)>,
    /// Positions in the script; each one applies to the instructions from its slot on.
    pub lines: Vec<(u32, SourceLine)>,
    /// Whether it is a global subprogram, which the verifier checks once for all values of its
    /// parameters, not at each call. All parameters are numbers.
    pub separate: bool,
}

/// Slots of a short jump's range that are reserved for instructions that the kernel inserts when it
/// rewrites calls.
const MARGIN: i16 = 8192;

/// The distance as a short jump, if it is in range even after the kernel's rewriting.
fn short_distance(distance: i32) -> Option<i16> {
    let short = i16::try_from(distance).ok()?;
    (short.unsigned_abs() <= (i16::MAX - MARGIN).unsigned_abs()).then_some(short)
}

impl AsmFunction {
    /// Length in slots.
    pub fn slots(&self) -> u32 {
        self.insns.iter().map(Insn::slots).sum()
    }

    /// The instructions with their slots.
    pub fn by_slot(&self) -> impl Iterator<Item = (usize, &Insn)> {
        self.insns.iter().scan(0, |next, insn| {
            let slot = *next;
            *next += insn.slots() as usize;
            Some((slot, insn))
        })
    }

    /// The instructions as text: one per line with its slot and its references, below its script
    /// line and comments.
    pub fn listing(&self) -> String {
        self.listing_at(0)
    }

    /// The same, with the slots of a program in which the function begins at `start`.
    pub fn listing_at(&self, start: u32) -> String {
        let mut out = format!("{}({}):\n", self.name, self.params.join(", "));
        let mut comments = self.comments.iter().peekable();
        let mut lines = self.lines.iter().peekable();
        let mut relocs = self.relocs.iter().peekable();
        let mut slot = 0;
        for insn in &self.insns {
            // Writing to a String does not fail.
            while let Some((_, line)) = lines.next_if(|(s, _)| *s <= slot) {
                let _ = writeln!(
                    out,
                    "; {}:{}:{}: {}",
                    line.file, line.line, line.column, line.text
                );
            }
            while let Some((_, text)) = comments.next_if(|(s, _)| *s <= slot) {
                let _ = writeln!(out, "    ; {text}");
            }
            let _ = write!(out, "{:6}: {insn}", start + slot);
            while let Some(reloc) = relocs.next_if(|r| r.slot <= slot) {
                let _ = write!(out, "  <{}>", reloc.target);
            }
            out.push('\n');
            slot += insn.slots();
        }
        out
    }
}

/// The reason why a function cannot be assembled: an error of the code generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsmError {
    /// A jump cannot be encoded.
    Jump {
        /// The function.
        function: String,
        /// Slot of the jump.
        slot: u32,
        /// What is wrong with it: [`UNBOUND_LABEL`], [`PAST_END`] or [`TOO_LONG`].
        problem: &'static str,
    },
    /// A sequence needs more registers or stack words than there are.
    Registers {
        /// The function.
        function: String,
        /// What is missing.
        resource: &'static str,
    },
}

/// The jump's label is not bound.
pub const UNBOUND_LABEL: &str = "to an unbound label";
/// The jump leads behind the function's last instruction.
pub const PAST_END: &str = "past the function's end";
/// A `may_goto` is more than 32,767 slots away from its target.
pub const TOO_LONG: &str = "is too long";

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsmError::Jump {
                function,
                slot,
                problem,
            } => write!(f, "{function}: the jump at {slot} {problem}"),
            AsmError::Registers { function, resource } => {
                write!(
                    f,
                    "{function}: a sequence needs more {resource} than there are"
                )
            }
        }
    }
}

impl std::error::Error for AsmError {}

const UNBOUND: u32 = u32::MAX;
/// The stack words for spilled registers, unless the caller has others.
const SPILL_WORDS: &[i16] = &[-8, -16, -24, -32, -40, -48, -56, -64];

/// A jump whose distance is not resolved yet.
#[derive(Debug, Clone, Copy)]
struct Fixup {
    /// Index in `insns`.
    index: u32,
    slot: u32,
    label: Label,
}

/// Builds a [`AsmFunction`].
#[derive(Debug)]
pub struct Asm {
    function: AsmFunction,
    /// Slot of the next instruction.
    here: u32,
    /// Slot at which a label was bound last; initially a number that no slot has.
    bound: u32,
    labels: Vec<u32>,
    fixups: Vec<Fixup>,
    sequences: Vec<Sequence>,
    /// Index of the sequence that the next instruction belongs to.
    current: usize,
    /// Number of the first instruction of the sequence's current piece.
    piece: u32,
    /// Index of the sequence of the piece in front of it.
    ended: usize,
    /// Stack words for spilled registers.
    spill_words: &'static [i16],
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
    mov(dst: Reg, src: impl Into<Src>) => Insn::mov(dst, src);
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
        Insn::Call { callee: Callee::Helper, target: helper.id().cast_signed() };
    /// Returns with r0.
    exit() => Insn::Exit {};
}

/// A replacement for an instruction by itself: a shift for a multiplication by a power of two. An
/// `and` with -1 stays: it detaches a number from the register that it was copied from, about which
/// the verifier would otherwise learn facts that multiply paths.
pub fn strength_reduced(insn: &Insn) -> Option<Option<Insn>> {
    match *insn {
        Insn::Alu {
            width: Width::W64,
            op: AluOp::Mul,
            dst,
            src: Src::Imm(by),
        } if by > 0 && by.count_ones() == 1 => Some((by > 1).then_some(Insn::Alu {
            width: Width::W64,
            op: AluOp::Lsh,
            dst,
            src: Src::Imm(by.trailing_zeros().cast_signed()),
        })),
        _ => None,
    }
}

/// A replacement for an instruction behind another one, with no label in between: for a load of a stack
/// word that was just stored, or a move back.
fn merged(last: &Insn, insn: &Insn) -> Option<Option<Insn>> {
    if let (Some((a, b)), Some((dst, src))) = (last.moved(), insn.moved()) {
        return (a == src && b == dst).then_some(None);
    }
    match (last, insn) {
        (
            Insn::Store {
                size: Size::DW,
                base: Reg::R10,
                off,
                src: Src::Reg(from),
            },
            Insn::Load {
                size: Size::DW,
                dst,
                base: Reg::R10,
                off: loaded,
            },
        ) if off == loaded => Some((from != dst).then_some(Insn::mov(*dst, *from))),
        _ => None,
    }
}

impl Asm {
    /// Starts a function with these parameters.
    pub fn new(name: impl Into<String>, params: &[&'static str]) -> Asm {
        let params = params.iter().map(|p| Cow::Borrowed(*p)).collect();
        Asm {
            function: AsmFunction {
                name: name.into(),
                params,
                ..AsmFunction::default()
            },
            here: 0,
            bound: UNBOUND,
            labels: Vec::new(),
            fixups: Vec::new(),
            sequences: vec![Sequence {
                free: CALLER_SAVED,
                result: 0,
                virtuals: 0,
                pieces: Vec::new(),
                words: SPILL_WORDS,
            }],
            current: 0,
            piece: 0,
            ended: 0,
            spill_words: SPILL_WORDS,
        }
    }

    /// Marks the function as [`AsmFunction::separate`].
    pub fn mark_separate(&mut self) {
        self.function.separate = true;
    }

    /// Number of instructions so far.
    pub fn count(&self) -> usize {
        self.function.insns.len()
    }

    /// The registers that instructions from this number on change, as a bit for each.
    pub fn changed_since(&self, first: usize) -> u16 {
        let insns = self.function.insns.get(first..).unwrap_or_default();
        insns
            .iter()
            .fold(0, |changed, insn| changed | insn.changes())
    }

    /// Appends an instruction unchanged.
    pub fn emit(&mut self, insn: Insn) {
        let insn = match self.peephole(&insn) {
            Some(None) => return,
            Some(Some(simpler)) => simpler,
            None => insn,
        };
        self.here += insn.slots();
        self.function.insns.push(insn);
    }

    /// A replacement for an instruction. `Some(None)` omits it.
    fn peephole(&self, insn: &Insn) -> Option<Option<Insn>> {
        match self.bound == self.here {
            true => strength_reduced(insn),
            false => self.after_last(insn).or_else(|| strength_reduced(insn)),
        }
    }

    /// A replacement for an instruction, from the one before it, with no label in between.
    fn after_last(&self, insn: &Insn) -> Option<Option<Insn>> {
        // The names of virtual registers repeat in each sequence.
        let last = self.function.insns.last()?;
        if self.piece as usize == self.function.insns.len() && last.has_virtual() {
            return None;
        }
        merged(last, insn)
    }

    /// `dst = imm` in one slot if it fits, otherwise in two.
    pub fn imm(&mut self, dst: Reg, imm: i64) {
        match i32::try_from(imm) {
            Ok(imm) => self.mov(dst, imm),
            Err(_) => match u32::try_from(imm) {
                // 32-bit moves zero-extend, so one slot is enough for these constants.
                Ok(imm) => self.mov32(dst, imm.cast_signed()),
                Err(_) => self.ld_imm64(dst, imm.cast_unsigned()),
            },
        }
    }

    /// Attaches a comment to the next instruction.
    pub fn comment(&mut self, text: impl Into<Cow<'static, str>>) {
        self.function.comments.push((self.here, text.into()));
    }

    /// Attributes the following instructions to that position. Repeating a position is free.
    pub fn source_line(&mut self, line: &SourceLine) {
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
        Label(self.labels.len().fit::<u32>() - 1)
    }

    /// New labels, not yet bound.
    pub fn labels<const N: usize>(&mut self) -> [Label; N] {
        std::array::from_fn(|_| self.label())
    }

    /// Binds a label to the next instruction. Binding it again moves it.
    pub fn bind(&mut self, label: Label) {
        // Omits a jump to the next instruction; the kernel would remove them one by one.
        let last = self.function.insns.len().fit::<u32>();
        let jump = |f: &&Fixup| f.label.0 == label.0 && f.index + 1 == last;
        if self.fixups.last().filter(jump).is_some()
            && matches!(self.function.insns.last(), Some(Insn::Goto { .. }))
        {
            let end = self.here;
            self.function.insns.pop();
            self.fixups.pop();
            self.here -= 1;
            self.shorten_piece();
            let lines = self.function.lines.iter_mut().map(|(slot, _)| slot);
            for slot in self.labels.iter_mut().chain(lines) {
                if *slot == end {
                    *slot = self.here;
                }
            }
            // The kernel accepts one position for each instruction: the last one counts.
            let lines = &mut self.function.lines;
            if let [.., (a, _), (b, _)] = lines[..]
                && a == b
            {
                lines.remove(lines.len() - 2);
            }
        }
        self.bind_here(label);
    }

    fn bind_here(&mut self, label: Label) {
        self.labels[label.0 as usize] = self.here;
        self.bound = self.here;
    }

    fn fixup(&mut self, label: Label, insn: Insn) {
        let index = self.function.insns.len().fit::<u32>();
        self.fixups.push(Fixup {
            index,
            slot: self.here,
            label,
        });
        self.emit(insn);
    }

    /// Jumps unconditionally.
    pub fn jump(&mut self, label: Label) {
        self.fixup(label, Insn::Goto { off: 0 });
    }

    /// Jumps if `dst cond src`, 64 bits.
    pub fn jump_if(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        self.jump_of_width(Width::W64, cond, (dst, src.into()), label);
    }

    /// Jumps if `dst cond src`, low halves.
    pub fn jump_if32(&mut self, cond: Cond, dst: Reg, src: impl Into<Src>, label: Label) {
        self.jump_of_width(Width::W32, cond, (dst, src.into()), label);
    }

    fn jump_of_width(&mut self, width: Width, cond: Cond, (dst, src): (Reg, Src), label: Label) {
        let jump = Insn::Jump {
            width,
            cond,
            dst,
            src,
            off: 0,
        };
        self.fixup(label, jump);
    }

    /// `dst = value`, unless `dst cond bound`.
    pub fn mov_unless(
        &mut self,
        cond: Cond,
        dst: Reg,
        bound: impl Into<Src>,
        value: impl Into<Src>,
    ) {
        let kept = self.label();
        self.jump_if(cond, dst, bound, kept);
        self.mov(dst, value);
        self.bind(kept);
    }

    /// Jumps if the loop's budget is used up (Linux 6.9).
    pub fn may_goto(&mut self, label: Label) {
        self.fixup(label, Insn::MayGoto { off: 0 });
    }

    fn reloc(&mut self, target: RelocTarget, insn: Insn) {
        self.function.relocs.push(Reloc {
            slot: self.here,
            target,
        });
        self.emit(insn);
    }

    fn address(&mut self, dst: Reg, target: RelocTarget) {
        let (kind, imm) = (ImmKind::Plain, 0);
        self.reloc(target, Insn::LdImm64 { dst, kind, imm });
    }

    /// `dst` = the map of that name.
    pub fn ld_map(&mut self, dst: Reg, name: impl Into<Arc<str>>) {
        self.address(dst, RelocTarget::Map(name.into()));
    }

    /// `dst` = address of a byte in a data section.
    pub fn ld_data(&mut self, dst: Reg, section: Section, offset: u32) {
        self.address(dst, RelocTarget::Data(section, offset));
    }

    /// `dst` = address of a subprogram, for `bpf_for_each_map_elem` and `bpf_loop`.
    pub fn ld_func(&mut self, dst: Reg, name: impl Into<Arc<str>>) {
        self.address(dst, RelocTarget::Func(name.into()));
    }

    /// Calls a subprogram of the object.
    pub fn call_sub(&mut self, name: impl Into<Arc<str>>) {
        let insn = Insn::Call {
            callee: Callee::Subprogram,
            target: -1,
        };
        self.reloc(RelocTarget::Call(name.into()), insn);
    }

    /// Inserts the code of a function instead of a call: its returns lead behind it. The function has no
    /// references, and clobbers what a call clobbers.
    pub fn insert(&mut self, function: &AsmFunction) {
        debug_assert!(function.relocs.is_empty(), "{}", function.name);
        let end = self.label();
        // Its jumps have labels here, because later steps may move the code.
        let mut labels = vec![None; function.slots() as usize + 1];
        for (slot, insn) in function.by_slot() {
            if let Some(off) = insn.jump() {
                labels[slot.strict_add_signed(off) + 1].get_or_insert_with(|| self.label());
            }
        }
        let last = function.insns.len().saturating_sub(1);
        for (i, (slot, insn)) in function.by_slot().enumerate() {
            if let Some(label) = labels[slot] {
                self.bind_here(label);
            }
            match (insn.jump(), insn) {
                (Some(off), _) => {
                    if let Some(label) = labels[slot.strict_add_signed(off) + 1] {
                        self.fixup(label, *insn);
                    }
                }
                (None, Insn::Exit {}) if i == last => {}
                (None, Insn::Exit {}) => self.jump(end),
                (None, insn) => self.emit(*insn),
            }
        }
        self.bind_here(end);
    }

    /// Calls a kernel function by its id in the kernel's BTF.
    pub fn call_kfunc(&mut self, id: u32) {
        self.emit(Insn::Call {
            callee: Callee::Kfunc,
            target: id.cast_signed(),
        });
    }

    /// Resolves the jumps. Distances beyond 16 bits become `gotol` (a conditional jump: a jump over
    /// a `gotol`).
    pub fn finish(mut self) -> Result<AsmFunction, AsmError> {
        self.allocate()?;
        while self.lengthen() {}
        let insns = &mut self.function.insns;
        for &Fixup { index, slot, label } in &self.fixups {
            let target = self.labels.get(label.0 as usize);
            let target = *target.unwrap_or(&UNBOUND);
            let bad = |problem| AsmError::Jump {
                function: self.function.name.clone(),
                slot,
                problem,
            };
            if target == UNBOUND {
                return Err(bad(UNBOUND_LABEL));
            }
            if target >= self.here {
                return Err(bad(PAST_END));
            }
            let distance = distance(slot, target);
            match (&mut insns[index as usize], short_distance(distance)) {
                (
                    Insn::Goto { off } | Insn::MayGoto { off } | Insn::Jump { off, .. },
                    Some(short),
                ) => *off = short,
                (Insn::GotoLong { off }, _) => *off = distance,
                (jump @ Insn::Goto { .. }, None) => *jump = Insn::GotoLong { off: distance },
                _ => return Err(bad(TOO_LONG)),
            }
        }
        Ok(self.function)
    }

    /// Replaces each conditional jump that is out of range by `if cond +1; goto +1; gotol label`.
    /// This moves all later code, so the caller repeats it until it returns false.
    fn lengthen(&mut self) -> bool {
        let far: Vec<usize> = (0..self.fixups.len())
            .filter(|&i| {
                let Fixup { index, slot, label } = self.fixups[i];
                let is_cond = matches!(self.function.insns[index as usize], Insn::Jump { .. });
                let target = self.labels[label.0 as usize];
                is_cond && target != UNBOUND && short_distance(distance(slot, target)).is_none()
            })
            .collect();
        if far.is_empty() {
            return false;
        }
        // Each lengthened jump moves the slots behind it by two.
        let slots: Vec<u32> = far.iter().map(|&i| self.fixups[i].slot).collect();
        let moved = |slot: u32| slot + 2 * slots.partition_point(|&a| a < slot).fit::<u32>();
        let old = std::mem::take(&mut self.function.insns);
        let mut far_indexes = far.iter().map(|&i| self.fixups[i].index).peekable();
        for (index, mut insn) in old.into_iter().enumerate() {
            let is_far = far_indexes.next_if_eq(&index.fit::<u32>()).is_some();
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
        let relocs = self.function.relocs.iter_mut().map(|r| &mut r.slot);
        let bound = self.labels.iter_mut().filter(|l| **l != UNBOUND);
        let comments = self.function.comments.iter_mut().map(|c| &mut c.0);
        let lines = self.function.lines.iter_mut().map(|l| &mut l.0);
        relocs
            .chain(bound)
            .chain(comments)
            .chain(lines)
            .for_each(|slot| *slot = moved(*slot));
        self.here = moved(self.here);
        true
    }
}

/// Distance of a one-slot jump at `slot` to `target`.
fn distance(slot: u32, target: u32) -> i32 {
    (i64::from(target) - i64::from(slot) - 1).fit::<i32>()
}
