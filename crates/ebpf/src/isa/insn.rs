//! The eBPF instruction set as one table.
//!
//! `isa!` is written once, below. From it come the operation enums with their codes and signs, the
//! [`Insn`] enum, its encoder ([`Insn::encode`]), its text (`Display`, in the style of llvm-objdump
//! and of the verifier's log) and the documentation of each form. The decoder ([`Insn::decode`], in
//! [`crate::isa::disasm`]) goes the other way through the same operation tables.
//!
//! Source of facts: RFC 9669 and `Documentation/bpf/standardization/instruction-set.rst`.
//! An instruction is one 8-byte *slot*, `LdImm64` two. Jump distances count slots from the
//! instruction after the jump.

use std::fmt;

use spile_cast::Cast;

/// Instruction classes (low three bits of the opcode).
pub(crate) mod class {
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU32: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}
/// The operand is a register rather than the immediate (ALU and JMP classes).
pub(crate) const X: u8 = 0x08;
pub(crate) const MODE_MEM: u8 = 0x60;
pub(crate) const MODE_MEMSX: u8 = 0x80;
pub(crate) const MODE_ATOMIC: u8 = 0xc0;
pub(crate) const LD_IMM64: u8 = 0x18;
pub(crate) const NEG: u8 = 0x80;
pub(crate) const END: u8 = 0xd0;
pub(crate) const CALL: u8 = 0x80;
pub(crate) const EXIT: u8 = 0x90;
pub(crate) const JCOND: u8 = 0xe0;

/// A register. `r0` return value, `r1`-`r5` arguments (clobbered by calls), `r6`-`r9` callee-saved,
/// `r10` frame pointer (read only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
    /// A virtual register of a sequence, before allocation.
    Virtual(u16),
}

impl Reg {
    /// All machine registers, in order.
    pub const ALL: [Reg; 11] = [
        Reg::R0,
        Reg::R1,
        Reg::R2,
        Reg::R3,
        Reg::R4,
        Reg::R5,
        Reg::R6,
        Reg::R7,
        Reg::R8,
        Reg::R9,
        Reg::R10,
    ];

    /// The register with this number, 0 to 10.
    pub fn new(number: u8) -> Option<Reg> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The register's number. Virtual registers have one that no instruction can name.
    pub fn number(self) -> u8 {
        match self {
            Reg::R0 => 0,
            Reg::R1 => 1,
            Reg::R2 => 2,
            Reg::R3 => 3,
            Reg::R4 => 4,
            Reg::R5 => 5,
            Reg::R6 => 6,
            Reg::R7 => 7,
            Reg::R8 => 8,
            Reg::R9 => 9,
            Reg::R10 => 10,
            Reg::Virtual(_) => 15,
        }
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reg::Virtual(v) => write!(f, "v{v}"),
            reg => write!(f, "r{}", reg.number()),
        }
    }
}

/// How an instruction uses a register operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Read, then written.
    Update,
}

/// The second operand of arithmetic, conditions and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Src {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended to the operation's width.
    Imm(i32),
}

impl Src {
    fn flag(self) -> u8 {
        if matches!(self, Src::Reg(_)) { X } else { 0 }
    }
    fn reg(self) -> u8 {
        if let Src::Reg(r) = self {
            r.number()
        } else {
            0
        }
    }
    fn imm(self) -> i32 {
        if let Src::Imm(i) = self { i } else { 0 }
    }
}

impl From<Reg> for Src {
    fn from(r: Reg) -> Src {
        Src::Reg(r)
    }
}

impl From<i32> for Src {
    fn from(i: i32) -> Src {
        Src::Imm(i)
    }
}

/// An offset or a size: all that code uses are below 2 GB, where the sign makes no difference.
impl From<u32> for Src {
    fn from(n: u32) -> Src {
        debug_assert!(i32::try_from(n).is_ok(), "{n}");
        Src::Imm(n.cast_signed())
    }
}

/// Width of arithmetic or of a comparison. 32-bit results are zero-extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// Low halves, printed as `w1`.
    W32,
    /// Whole registers.
    W64,
}

impl Width {
    /// Both widths.
    pub const ALL: [Width; 2] = [Width::W32, Width::W64];

    fn alu(self) -> u8 {
        [class::ALU32, class::ALU64][self as usize]
    }
    fn jmp(self) -> u8 {
        [class::JMP32, class::JMP][self as usize]
    }
    pub(crate) fn bits(self) -> u8 {
        if self == Width::W64 { 64 } else { 32 }
    }
    /// The size of its values.
    pub fn size(self) -> Size {
        [Size::W, Size::DW][self as usize]
    }
}

/// Prints a register or constant as an operand of this width.
struct OperandText<T>(Width, T);

impl fmt::Display for OperandText<Reg> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.0 == Width::W64 { 'r' } else { 'w' };
        write!(f, "{letter}{}", self.1.number())
    }
}

impl fmt::Display for OperandText<Src> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Src::Reg(r) => OperandText(self.0, r).fmt(f),
            Src::Imm(i) => i.fmt(f),
        }
    }
}

/// Prints a base register and a displacement: `r10 - 8`.
struct MemText(Reg, i16);

impl fmt::Display for MemText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.1 < 0 { '-' } else { '+' };
        write!(f, "{} {sign} {}", self.0, self.1.unsigned_abs())
    }
}

/// An instruction slot with the kernel's fields, before it is laid out in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RawInsn {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

impl RawInsn {
    fn new(code: u8, dst: Reg, src: u8, off: i16, imm: i32) -> RawInsn {
        RawInsn {
            code,
            dst: dst.number(),
            src,
            off,
            imm,
        }
    }

    fn bytes(self) -> [u8; 8] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        let regs = self.dst | self.src << 4;
        [
            self.code, regs, off[0], off[1], imm[0], imm[1], imm[2], imm[3],
        ]
    }

    pub(crate) fn read(b: [u8; 8]) -> RawInsn {
        RawInsn {
            code: b[0],
            dst: b[1] & 15,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}

/// The table. `ops` are the operations with their code (type given in parentheses) and sign;
/// `forms` are the instructions: fields, first slot, text.
macro_rules! isa {
    (
        ops {
            $($(#[$om:meta])* $op:ident ($code:ty) {
                $($(#[$vm:meta])* $v:ident = $c:expr, $sign:literal;)*
            })*
        }
        forms {
            $($(#[$fm:meta])* $form:ident { $($(#[$am:meta])* $field:ident : $ty:ty),* }
                => $raw:expr, $text:literal $(, $arg:expr)*;)*
        }
    ) => {
        $(
            $(#[$om])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $op {
                $($(#[$vm])* #[doc = concat!("\n\nSign: `", $sign, "`.")] $v),*
            }

            impl $op {
                /// All operations, in the table's order.
                pub const ALL: &[$op] = &[$($op::$v),*];

                pub(crate) fn code(self) -> $code {
                    match self { $($op::$v => $c),* }
                }

                /// The operator's text.
                pub fn sign(self) -> &'static str {
                    match self { $($op::$v => $sign),* }
                }

                pub(crate) fn from_code(code: $code) -> Option<$op> {
                    Self::ALL.iter().copied().find(|op| op.code() == code)
                }
            }
        )*

        /// An instruction. Jump distances are in slots, memory offsets in bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Insn {
            $($(#[$fm])* $form { $($(#[$am])* #[allow(missing_docs)] $field: $ty),* }),*
        }

        impl Insn {
            #[allow(unused_variables)]
            pub(crate) fn raw(self) -> RawInsn {
                match self { $(Insn::$form { $($field),* } => $raw),* }
            }
        }

        impl fmt::Display for Insn {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Insn::$form { $($field),* } => write!(f, $text $(, $arg)*)),* }
            }
        }
    };
}

isa! {
    ops {
        /// Arithmetic with two operands. The code is the operation's bits and the offset field,
        /// which distinguishes signed from unsigned division (cpu v4, Linux 6.6).
        AluOp((u8, i16)) {
            /// Addition, wraps.
            Add = (0x00, 0), "+=";
            /// Subtraction, wraps.
            Sub = (0x10, 0), "-=";
            /// Multiplication, wraps.
            Mul = (0x20, 0), "*=";
            /// Unsigned division; 0 if the divisor is 0.
            Div = (0x30, 0), "/=";
            /// Signed division, rounds to zero.
            Sdiv = (0x30, 1), "s/=";
            /// Bitwise or.
            Or = (0x40, 0), "|=";
            /// Bitwise and.
            And = (0x50, 0), "&=";
            /// Shift left; the amount is masked to the width.
            Lsh = (0x60, 0), "<<=";
            /// Shift right, zeros come in.
            Rsh = (0x70, 0), ">>=";
            /// Unsigned remainder; unchanged if the divisor is 0.
            Mod = (0x90, 0), "%=";
            /// Signed remainder, has the dividend's sign.
            Smod = (0x90, 1), "s%=";
            /// Bitwise exclusive or.
            Xor = (0xa0, 0), "^=";
            /// Copy.
            Mov = (0xb0, 0), "=";
            /// Shift right, copies of the sign come in.
            Arsh = (0xc0, 0), "s>>=";
        }

        /// Condition of a jump.
        Cond(u8) {
            /// Equal.
            Eq = 0x10, "==";
            /// Unsigned greater.
            Gt = 0x20, ">";
            /// Unsigned greater or equal.
            Ge = 0x30, ">=";
            /// Some bit in common.
            Set = 0x40, "&";
            /// Not equal.
            Ne = 0x50, "!=";
            /// Signed greater.
            Sgt = 0x60, "s>";
            /// Signed greater or equal.
            Sge = 0x70, "s>=";
            /// Unsigned less.
            Lt = 0xa0, "<";
            /// Unsigned less or equal.
            Le = 0xb0, "<=";
            /// Signed less.
            Slt = 0xc0, "s<";
            /// Signed less or equal.
            Sle = 0xd0, "s<=";
        }

        /// Size of a memory access.
        Size(u8) {
            /// 1 byte.
            B = 0x10, "u8";
            /// 2 bytes.
            H = 0x08, "u16";
            /// 4 bytes.
            W = 0x00, "u32";
            /// 8 bytes.
            DW = 0x18, "u64";
        }

        /// Atomic operation of a register on memory; the code is in the immediate field.
        AtomicOp(i32) {
            /// Addition.
            Add = 0x00, "+=";
            /// Bitwise or.
            Or = 0x40, "|=";
            /// Bitwise and.
            And = 0x50, "&=";
            /// Bitwise exclusive or.
            Xor = 0xa0, "^=";
            /// Addition, old value to the register (this and the following: Linux 5.12).
            FetchAdd = 0x01, "atomic_fetch_add";
            /// Bitwise or, old value to the register.
            FetchOr = 0x41, "atomic_fetch_or";
            /// Bitwise and, old value to the register.
            FetchAnd = 0x51, "atomic_fetch_and";
            /// Bitwise exclusive or, old value to the register.
            FetchXor = 0xa1, "atomic_fetch_xor";
            /// Exchange of register and memory.
            Xchg = 0xe1, "xchg";
            /// Stores the register if memory equals r0; r0 gets the old value.
            CmpXchg = 0xf1, "cmpxchg";
        }

        /// Byte order conversion: opcode (class and source bit).
        Swap(u8) {
            /// Host to little endian and back: only truncates on little-endian machines.
            Le = 0xd4, "le";
            /// Host to big endian and back.
            Be = 0xdc, "be";
            /// Unconditional swap (cpu v4, Linux 6.6).
            Bswap = 0xd7, "bswap";
        }

        /// What the 64-bit immediate of `LdImm64` means: the source register field.
        ImmKind(u8) {
            /// A number, or with a relocation the value that the loader computes.
            Plain = 0, "";
            /// Low word: file descriptor of a map.
            MapFd = 1, "map_fd";
            /// Low word: file descriptor of a map; high word: offset into its first value.
            MapValue = 2, "map_value";
            /// BTF id of a kernel variable.
            BtfVar = 3, "btf_var";
            /// Low word: distance in slots from the next instruction to the subprogram whose
            /// address is loaded.
            Func = 4, "func";
            /// Low word: index of a map.
            MapIdx = 5, "map_idx";
            /// Low word: index of a map; high word: offset into its first value.
            MapIdxValue = 6, "map_idx_value";
        }

        /// The target of a call: the source register field.
        Callee(u8) {
            /// The kernel's helper with that number.
            Helper = 0, "";
            /// The subprogram at this distance in slots from the next instruction.
            Subprogram = 1, "pc";
            /// The kernel function with that BTF id.
            Kfunc = 2, "kfunc";
        }
    }
    forms {
        /// `dst = dst op src`.
        Alu { width: Width, op: AluOp, dst: Reg, src: Src } =>
            RawInsn::new(width.alu() | op.code().0 | src.flag(), dst, src.reg(), op.code().1, src.imm()),
            "{} {} {}", OperandText(width, dst), op.sign(), OperandText(width, src);

        /// `dst = -dst`.
        Neg { width: Width, dst: Reg } =>
            RawInsn::new(width.alu() | NEG, dst, 0, 0, 0),
            "{} = -{}", OperandText(width, dst), OperandText(width, dst);

        /// `dst` = the low `size` bytes of `src`, sign-extended (cpu v4, Linux 6.6).
        MovSx { width: Width, size: Size, dst: Reg, src: Reg } =>
            RawInsn::new(width.alu() | AluOp::Mov.code().0 | X, dst, src.number(), bits(size), 0),
            "{} = (s{}){}", OperandText(width, dst), bits(size), OperandText(width, src);

        /// `dst` = its low `size` bytes in another byte order, zero-extended; `size` not `B`.
        Swap { to: Swap, size: Size, dst: Reg } =>
            RawInsn::new(to.code(), dst, 0, 0, i32::from(bits(size))),
            "{} = {}{} {}", dst, to.sign(), bits(size), dst;

        /// `dst` = a 64-bit constant or address; two slots.
        LdImm64 { dst: Reg, kind: ImmKind, imm: u64 } =>
            RawInsn::new(LD_IMM64, dst, kind.code(), 0, imm.low32().cast_signed()),
            "{} = {}", dst, Imm64(kind, imm);

        /// `dst` = memory, zero-extended.
        Load { size: Size, dst: Reg, base: Reg, off: i16 } =>
            RawInsn::new(class::LDX | MODE_MEM | size.code(), dst, base.number(), off, 0),
            "{} = *({} *)({})", dst, size.sign(), MemText(base, off);

        /// `dst` = memory, sign-extended; `size` not `DW` (cpu v4, Linux 6.6).
        LoadSx { size: Size, dst: Reg, base: Reg, off: i16 } =>
            RawInsn::new(class::LDX | MODE_MEMSX | size.code(), dst, base.number(), off, 0),
            "{} = *(s{} *)({})", dst, bits(size), MemText(base, off);

        /// Memory = register or constant.
        Store { size: Size, base: Reg, off: i16, src: Src } => {
            let class = if src.flag() == X { class::STX } else { class::ST };
            RawInsn::new(class | MODE_MEM | size.code(), base, src.reg(), off, src.imm())
        }, "*({} *)({}) = {}", size.sign(), MemText(base, off), OperandText(Width::W64, src);

        /// An atomic operation on 4 or 8 bytes.
        Atomic { width: Width, op: AtomicOp, base: Reg, off: i16, src: Reg } =>
            RawInsn::new(
                class::STX | MODE_ATOMIC | width.size().code(), base, src.number(), off, op.code()),
            "{}", AtomicText(width, op, MemText(base, off), src);

        /// Jump if `dst cond src`.
        Jump { width: Width, cond: Cond, dst: Reg, src: Src, off: i16 } =>
            RawInsn::new(width.jmp() | cond.code() | src.flag(), dst, src.reg(), off, src.imm()),
            "if {} {} {} goto {:+}", OperandText(width, dst), cond.sign(), OperandText(width, src), off;

        /// Jump unconditionally.
        Goto { off: i16 } => RawInsn { code: class::JMP, off, ..RawInsn::default() }, "goto {:+}", off;

        /// Jump unconditionally, with a 32-bit distance (cpu v4, Linux 6.6).
        GotoLong { off: i32 } =>
            RawInsn { code: class::JMP32, imm: off, ..RawInsn::default() }, "gotol {:+}", off;

        /// Jump if the loop's budget is used up (Linux 6.9).
        MayGoto { off: i16 } =>
            RawInsn { code: class::JMP | JCOND, off, ..RawInsn::default() }, "may_goto {:+}", off;

        /// Call; arguments in r1-r5, result in r0.
        Call { callee: Callee, target: i32 } =>
            RawInsn { code: class::JMP | CALL, src: callee.code(), imm: target, ..RawInsn::default() },
            "call {}", CallText(callee, target);

        /// Return from the program or subprogram with r0.
        Exit {} => RawInsn { code: class::JMP | EXIT, ..RawInsn::default() }, "exit";
    }
}

/// The size's bits in the opcode.
pub(crate) fn bits(size: Size) -> i16 {
    i16::from(size.bytes()) * 8
}

impl Size {
    /// The size in bytes.
    pub fn bytes(self) -> u8 {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::DW => 8,
        }
    }

    /// The size with this number of bytes.
    pub fn from_bytes(bytes: u32) -> Option<Size> {
        Self::ALL
            .iter()
            .copied()
            .find(|s| u32::from(s.bytes()) == bytes)
    }
}

impl AtomicOp {
    /// Whether the operation gives the old value.
    pub fn fetches(self) -> bool {
        use AtomicOp::{Add, And, Or, Xor};
        !matches!(self, Add | Or | And | Xor)
    }
}

impl Cond {
    /// The negated condition; `None` for [`Cond::Set`].
    pub fn inverse(self) -> Option<Cond> {
        Some(match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::Gt => Cond::Le,
            Cond::Le => Cond::Gt,
            Cond::Ge => Cond::Lt,
            Cond::Lt => Cond::Ge,
            Cond::Sgt => Cond::Sle,
            Cond::Sle => Cond::Sgt,
            Cond::Sge => Cond::Slt,
            Cond::Slt => Cond::Sge,
            Cond::Set => return None,
        })
    }
}

struct Imm64(ImmKind, u64);

impl fmt::Display for Imm64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.1.low32(), (self.1 >> 32) as u32);
        let name = self.0.sign();
        match self.0 {
            ImmKind::Plain => write!(f, "{:#x} ll", self.1),
            ImmKind::MapValue | ImmKind::MapIdxValue => write!(f, "{name}[{low}][0]+{high}"),
            ImmKind::Func => write!(f, "{name}[{:+}]", low.cast_signed()),
            ImmKind::MapFd | ImmKind::BtfVar | ImmKind::MapIdx => write!(f, "{name}[{low}]"),
        }
    }
}

struct AtomicText(Width, AtomicOp, MemText, Reg);

impl fmt::Display for AtomicText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtomicText(width, op, ref mem, src) = *self;
        let (name, ty, bits) = (op.sign(), width.size().sign(), width.bits());
        let src = OperandText(width, src);
        match op {
            op if !op.fetches() => write!(f, "lock *({ty} *)({mem}) {name} {src}"),
            AtomicOp::Xchg => write!(f, "{src} = {name}_{bits}({mem}, {src})"),
            AtomicOp::CmpXchg => {
                let r0 = OperandText(width, Reg::R0);
                write!(f, "{r0} = {name}_{bits}({mem}, {r0}, {src})")
            }
            _ => write!(f, "{src} = {name}(({ty} *)({mem}), {src})"),
        }
    }
}

struct CallText(Callee, i32);

impl fmt::Display for CallText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.1;
        match self.0 {
            Callee::Helper => match u32::try_from(target)
                .ok()
                .and_then(crate::isa::helpers::by_id)
            {
                Some(helper) => write!(f, "{}#{target}", helper.name),
                None => write!(f, "{target}"),
            },
            Callee::Subprogram => write!(f, "pc{target:+}"),
            Callee::Kfunc => write!(f, "kfunc#{target}"),
        }
    }
}

impl Insn {
    /// Number of 8-byte slots: 1, or 2 for `LdImm64`.
    pub fn slots(&self) -> u32 {
        if matches!(self, Insn::LdImm64 { .. }) {
            2
        } else {
            1
        }
    }

    /// Calls `f` with each register operand. `r0` of `cmpxchg` and `exit`, and the registers of calls,
    /// are none.
    pub(crate) fn for_each_operand(&mut self, f: &mut impl FnMut(&mut Reg, Access)) {
        let source = |src: &mut Src, f: &mut dyn FnMut(&mut Reg, Access)| {
            if let Src::Reg(reg) = src {
                f(reg, Access::Read);
            }
        };
        match self {
            Insn::Alu { op, dst, src, .. } => {
                source(src, f);
                let mov = *op == AluOp::Mov;
                f(dst, if mov { Access::Write } else { Access::Update });
            }
            Insn::Neg { dst, .. } | Insn::Swap { dst, .. } => f(dst, Access::Update),
            Insn::MovSx { dst, src, .. } => {
                f(src, Access::Read);
                f(dst, Access::Write);
            }
            Insn::LdImm64 { dst, .. } => f(dst, Access::Write),
            Insn::Load { dst, base, .. } | Insn::LoadSx { dst, base, .. } => {
                f(base, Access::Read);
                f(dst, Access::Write);
            }
            Insn::Store { base, src, .. } => {
                f(base, Access::Read);
                source(src, f);
            }
            Insn::Atomic { op, base, src, .. } => {
                f(base, Access::Read);
                let update = op.fetches() && *op != AtomicOp::CmpXchg;
                f(src, if update { Access::Update } else { Access::Read });
            }
            Insn::Jump { dst, src, .. } => {
                f(dst, Access::Read);
                source(src, f);
            }
            Insn::Goto { .. }
            | Insn::GotoLong { .. }
            | Insn::MayGoto { .. }
            | Insn::Call { .. }
            | Insn::Exit {} => {}
        }
    }

    /// `dst = src`, 64 bits.
    pub(crate) fn mov(dst: Reg, src: impl Into<Src>) -> Insn {
        Insn::Alu {
            width: Width::W64,
            op: AluOp::Mov,
            dst,
            src: src.into(),
        }
    }

    /// The registers of a 64-bit move: to, from.
    pub(crate) fn moved(&self) -> Option<(Reg, Reg)> {
        match *self {
            Insn::Alu {
                width: Width::W64,
                op: AluOp::Mov,
                dst,
                src: Src::Reg(src),
            } => Some((dst, src)),
            _ => None,
        }
    }

    /// The distance of a short jump.
    pub(crate) fn jump(&self) -> Option<isize> {
        match *self {
            Insn::Goto { off } | Insn::MayGoto { off } | Insn::Jump { off, .. } => Some(off.into()),
            _ => None,
        }
    }

    /// Whether an operand is a virtual register.
    pub(crate) fn has_virtual(&self) -> bool {
        let (mut insn, mut has_virtual) = (*self, false);
        insn.for_each_operand(&mut |reg, _| has_virtual |= matches!(reg, Reg::Virtual(_)));
        has_virtual
    }

    /// The machine registers that it changes, as a bit for each.
    pub(crate) fn changes(&self) -> u16 {
        let mut changes = match self {
            Insn::Call { .. } => 0b11_1111,
            Insn::Atomic {
                op: AtomicOp::CmpXchg,
                ..
            } => 1,
            _ => 0,
        };
        let mut insn = *self;
        insn.for_each_operand(&mut |reg, access| {
            if access != Access::Read && !matches!(reg, Reg::Virtual(_)) {
                changes |= 1 << reg.number();
            }
        });
        changes
    }

    /// Appends the encoded bytes, little endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.raw().bytes());
        if let Insn::LdImm64 { imm, .. } = self {
            let high = RawInsn {
                imm: ((imm >> 32) as u32).cast_signed(),
                ..RawInsn::default()
            };
            out.extend_from_slice(&high.bytes());
        }
    }
}
