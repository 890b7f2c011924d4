//! Code as analysis asks about it: modules, places in them, variables there.

use std::sync::Arc;

use spile_ir::{CodePlace, Exits};

use super::CTypeId;

/// Something that has code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Module {
    /// The kernel itself.
    Kernel,
    /// A module of the kernel, by name.
    KernelModule(Arc<str>),
    /// A program or a library, by the path of its ELF file.
    File(Arc<str>),
}

impl std::fmt::Display for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Module::Kernel => f.write_str("the kernel"),
            Module::KernelModule(name) => write!(f, "the module {name}"),
            Module::File(path) => f.write_str(path),
        }
    }
}

/// How a script names modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleQuery {
    /// `module("PATTERN")`
    KernelModule(Arc<str>),
    /// `process("PATTERN")`: a path, or a name that is looked for in `$PATH`.
    Path(Arc<str>),
    /// `process(PID)`
    Pid(u32),
    /// `process`: the program of `-c` or `-x`.
    Target,
    /// `library("PATTERN")` of a program: a path, or the start of a name (`libc`).
    Library {
        /// The program.
        of: Module,
        /// Its process, where the script names one.
        pid: Option<u32>,
        /// The pattern.
        name: Arc<str>,
    },
}

/// A module that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundModule {
    /// It.
    pub module: Module,
    /// The process in which it was found, where one was looked at.
    pub pid: Option<u32>,
}

/// Where a variable is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPlace {
    /// Its address in the running kernel or process.
    pub address: u64,
    /// Bytes; 0 where not known.
    pub size: u64,
}

/// What the kernel knows a file by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device as `super_block.s_dev` has it.
    pub device: u64,
    /// The number of the inode.
    pub inode: u64,
}

/// Which functions are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionKind {
    /// Functions and inlined copies of them.
    Any,
    /// Functions that are called, at their first instruction.
    Call,
    /// Functions that are called and can be called from other files, at their first instruction.
    Exported,
    /// Inlined copies.
    Inline,
    /// Functions that are called, for their return.
    Return,
}

/// Lines of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lines {
    /// Not said.
    Any,
    /// `:N`, `:N-M`, `:A,B-C`: from and to of each part.
    Absolute(Vec<(u32, u32)>),
    /// `+N` lines from the function's own.
    Relative(u32),
    /// `:*`
    All,
}

/// Which places are meant. Patterns are of `*`, `?` and `[...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeQuery {
    /// `function("NAME@FILE:LINES")`
    Function {
        /// Pattern of names.
        name: Arc<str>,
        /// Pattern of files: the end of a path.
        file: Option<Arc<str>>,
        /// The function's lines.
        lines: Lines,
        /// Which of them.
        kind: FunctionKind,
        /// `.callee("NAME")`: functions that these call.
        callee: Option<Arc<str>>,
    },
    /// `statement("NAME@FILE:LINES")`
    Statement {
        /// Pattern of names of functions.
        name: Arc<str>,
        /// Pattern of files.
        file: Option<Arc<str>>,
        /// The lines.
        lines: Lines,
        /// `.nearest`: the next line that has code will do.
        nearest: bool,
    },
    /// `statement(ADDRESS)`; `absolute`: nothing is asked of debugging information.
    Address {
        /// The address, as the module's symbols have it.
        address: u64,
        /// `.absolute`
        absolute: bool,
    },
    /// `provider("P").mark("M")`
    Mark {
        /// Pattern of providers.
        provider: Option<Arc<str>>,
        /// Pattern of names.
        name: Arc<str>,
    },
    /// `.plt("PATTERN")`: calls into libraries.
    Plt(Arc<str>),
}

/// A place that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlace {
    /// By which [`super::Facts::place_variables`] knows it, within its module.
    pub id: u64,
    /// The function, or the marker.
    pub name: Arc<str>,
    /// The source file, where known.
    pub file: Option<Arc<str>>,
    /// Its line; 0 where not known.
    pub line: u32,
    /// Of a marker: its provider.
    pub provider: Option<Arc<str>>,
    /// It is in an inlined copy of the function: nothing returns from it.
    pub inlined: bool,
    /// Where it is.
    pub place: CodePlace,
    /// Its address as the module's symbols have it.
    pub address: u64,
    /// File offset of the marker's semaphore; 0 for none.
    pub semaphore: u64,
    /// Of a return: the instructions to probe, where the kernel's way could kill the program.
    pub exits: Option<Arc<Exits>>,
}

/// What a variable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VarKind {
    /// A parameter of the function, an argument of the marker.
    Parameter,
    /// A local variable.
    Local,
    /// A variable of the whole module.
    Global,
    /// What the function returns.
    Return,
}

/// A variable at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name without `$`.
    pub name: Arc<str>,
    /// Its type.
    pub ty: CTypeId,
    /// What it is.
    pub kind: VarKind,
    /// Where it is.
    pub loc: Loc,
}

/// Where a variable is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Loc {
    /// The program leaves its value.
    Value(Vec<LocOp>),
    /// The program leaves its address, in the memory of the probed code.
    Address(Vec<LocOp>),
    /// A structure in pieces, as registers hold it, the first first.
    Pieces(Vec<Piece>),
    /// Nowhere, and why.
    Absent(Arc<str>),
}

/// A part of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its bytes, at most 8.
    pub bytes: u32,
    /// The program leaves its value; or why there is none.
    pub value: Result<Vec<LocOp>, Arc<str>>,
}

/// A step of a location program: it takes numbers of 64 bits from a stack and leaves some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocOp {
    /// Leaves register n by DWARF's numbers.
    Reg(u16),
    /// Leaves argument n (from 0) of the function, of a kind of probe that has them apart.
    Arg(u8),
    /// Leaves the result of the function, of returns.
    Ret,
    /// Leaves the number of the current processor.
    Cpu,
    /// Leaves a number.
    Const(i64),
    /// Leaves how far the probed module is from where it was linked; n is the program counter
    /// by DWARF's numbers.
    Bias(u16),
    /// Takes an address, leaves what is there.
    Load {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
        /// Extended with its sign.
        signed: bool,
    },
    /// Takes b, then a, and leaves `a op b`.
    Bin(spile_ir::BinOp),
    /// Takes a number, leaves it negated.
    Neg,
    /// Takes a number, leaves its complement.
    Not,
    /// Leaves a copy of the number that is n below the top.
    Pick(u8),
    /// Takes the top away.
    Drop,
    /// The two top ones change places.
    Swap,
    /// The top goes below the two under it.
    Rot,
}
