//! Facts about code: modules, locations in them, and the variables there.

use std::sync::Arc;

use spile_ir::{CodeLocation, Exits};

use super::CTypeId;

/// A unit of code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ProbeModule {
    /// The kernel itself.
    Kernel,
    /// A module of the kernel, by name.
    KernelModule(Arc<str>),
    /// A program or a library, by the path of its ELF file.
    File(Arc<str>),
}

impl std::fmt::Display for ProbeModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProbeModule::Kernel => f.write_str("the kernel"),
            ProbeModule::KernelModule(name) => write!(f, "the module {name}"),
            ProbeModule::File(path) => f.write_str(path),
        }
    }
}

/// The way in which a script names modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleQuery {
    /// `module("PATTERN")`
    KernelModule(Arc<str>),
    /// The types of C headers that are included together, by their names without the brackets.
    Headers(Arc<[Arc<str>]>),
    /// `process("PATTERN")`: a path, or a name that is searched in `$PATH`.
    Path(Arc<str>),
    /// `process(PID)`
    Pid(u32),
    /// `process`: the program of `-c` or `-x`.
    Target,
    /// `library("PATTERN")` of a program: a path, or the start of a name (`libc`).
    Library {
        /// The program.
        program: ProbeModule,
        /// Its process, where the script names one.
        pid: Option<u32>,
        /// The pattern.
        name: Arc<str>,
    },
}

/// A module that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundModule {
    /// The module.
    pub module: ProbeModule,
    /// The process in which it was found, where a process was searched.
    pub pid: Option<u32>,
}

/// The location of a variable in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataLocation {
    /// Its address in the running kernel or process.
    pub address: u64,
    /// Size in bytes; 0 where unknown.
    pub size: u64,
}

/// The kernel's identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device as `super_block.s_dev` has it.
    pub device: u64,
    /// The number of the inode.
    pub inode: u64,
}

/// The functions that a query selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionKind {
    /// Functions and their inlined copies.
    Any,
    /// Out-of-line functions, at their first instruction.
    Call,
    /// Out-of-line functions with external linkage, at their first instruction.
    Exported,
    /// Inlined copies.
    Inline,
    /// Out-of-line functions, at their return.
    Return,
}

/// The lines that a query selects in a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinePattern {
    /// Not given.
    Any,
    /// `:N`, `:N-M`, `:A,B-C`: first and last line of each range.
    Absolute(Vec<(u32, u32)>),
    /// `+N` lines from the function's own.
    Relative(u32),
    /// `:*`
    All,
}

/// A part of a function, by a pattern of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionPart {
    /// `.callee("NAME")`, `.callees(N)`: the functions that it calls.
    Callees {
        /// Their names.
        name: Arc<str>,
        /// The number of calls on the way to them, at most.
        depth: u32,
    },
    /// `.label("NAME")`: labels in its code.
    Label(Arc<str>),
}

/// The locations that a query selects. Patterns consist of `*`, `?` and `[...]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeQuery {
    /// `function("NAME@FILE:LINES")`
    Function {
        /// Pattern of function names.
        name: Arc<str>,
        /// Pattern of source files: the end of a path.
        file: Option<Arc<str>>,
        /// The lines.
        lines: LinePattern,
        /// The kind of functions.
        kind: FunctionKind,
        /// A part of these functions.
        part: Option<FunctionPart>,
    },
    /// `statement("NAME@FILE:LINES")`
    Statement {
        /// Pattern of names of functions.
        name: Arc<str>,
        /// Pattern of files.
        file: Option<Arc<str>>,
        /// The lines.
        lines: LinePattern,
        /// `.nearest`: the next line with code, if the line has none.
        nearest: bool,
    },
    /// `statement(ADDRESS)`. With `absolute`, debugging information is not used.
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
        /// Pattern of marker names.
        name: Arc<str>,
    },
    /// `.plt("PATTERN")`: calls into libraries.
    Plt(Arc<str>),
}

/// A location that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLocation {
    /// The id for [`super::CodeFacts::location_variables`], unique within the module.
    pub id: u64,
    /// The function, or the marker.
    pub name: Arc<str>,
    /// The source file, where known.
    pub file: Option<Arc<str>>,
    /// The source line; 0 where unknown.
    pub line: u32,
    /// The provider, for a marker.
    pub provider: Option<Arc<str>>,
    /// The label, for a label in the function.
    pub label: Option<Arc<str>>,
    /// The location is in an inlined copy of the function, which has no return.
    pub inlined: bool,
    /// The location of the code.
    pub location: CodeLocation,
    /// Its address as the module's symbols have it.
    pub address: u64,
    /// File offset of the marker's semaphore; 0 for none.
    pub semaphore: u64,
    /// For a return: the return instructions to probe; `None` leaves the return to the kernel.
    pub exits: Option<Arc<Exits>>,
    /// For a callee: whether its callers are those that the point names, as a number.
    pub callers: Option<Arc<VarLocation>>,
    /// Why hits there are not exactly the calls of the function.
    pub inexact: Option<Arc<str>>,
}

impl FoundLocation {
    /// A location at an address of which nothing else is known: no source, label, semaphore or exits.
    #[must_use]
    pub fn new(id: u64, name: Arc<str>, location: CodeLocation, address: u64) -> FoundLocation {
        FoundLocation {
            id,
            name,
            file: None,
            line: 0,
            provider: None,
            label: None,
            inlined: false,
            location,
            address,
            semaphore: 0,
            exits: None,
            callers: None,
            inexact: None,
        }
    }
}

/// The kind of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VarKind {
    /// A parameter of the function, or an argument of the marker.
    Parameter,
    /// A local variable.
    Local,
    /// A variable of a function around a nested one.
    Outer,
    /// A global variable of the module.
    Global,
    /// The function's return value.
    Return,
}

/// A variable at a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name without `$`.
    pub name: Arc<str>,
    /// Its type.
    pub ty: CTypeId,
    /// Its kind.
    pub kind: VarKind,
    /// Its location.
    pub loc: VarLocation,
}

/// The mark before a variable's name: the number of elements of an array in its type, which is the type
/// of this entry. No script can write it.
pub const COUNT_OF: char = '(';

/// The location of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VarLocation {
    /// The location program leaves the value.
    Value(Vec<LocOp>),
    /// The location program leaves the address, in the memory of the probed code.
    Address(Vec<LocOp>),
    /// A structure in pieces, as registers hold it, in order.
    Pieces(Vec<LocationPiece>),
    /// A pointer or a reference without a value, and the object that it refers to.
    Pointee(Vec<LocationPiece>),
    /// No location, with the reason.
    Absent(Arc<str>),
}

/// A part of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocationPiece {
    /// Size in bytes, at most 8.
    pub bytes: u32,
    /// The location program that leaves its value, or the reason why there is none.
    pub value: Result<Vec<LocOp>, Arc<str>>,
}

/// A step of a location program: a stack machine on 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocOp {
    /// Pushes register n by DWARF's numbers.
    Reg(u16),
    /// Pushes argument n (from 0) of the function, for probes that have arguments apart from
    /// registers.
    Arg(u8),
    /// Pushes the return value of the function, at returns.
    Ret,
    /// Pushes the address of the trace event's record.
    Record,
    /// Pushes the number of the current processor.
    Cpu,
    /// Pushes address n of the stack, from 0, the program counter.
    Frame(u8),
    /// Pushes a constant.
    Const(i64),
    /// Pushes the load bias of the probed module; n is the program counter by DWARF's numbers.
    Bias(u16),
    /// Pushes the current thread's pointer to its thread-local variables; n is its offset in
    /// `task_struct`.
    ThreadPointer(u32),
    /// Pops an address, pushes the value there.
    Load {
        /// Size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether the value is sign-extended.
        signed: bool,
    },
    /// Pops b, then a, and pushes `a op b`.
    Bin(spile_ir::BinOp),
    /// Negates the top.
    Neg,
    /// Replaces the top by its bitwise complement.
    Not,
    /// Pushes a copy of the number that is n below the top.
    Pick(u8),
    /// Pops the top.
    Drop,
    /// Swaps the two topmost numbers.
    Swap,
    /// Moves the top below the two numbers under it.
    Rot,
}
