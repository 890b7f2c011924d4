//! Instruction selection: the code of one handler.
//!
//! In: the body of a handler, the location of each of its registers, and the plan of the shared
//! memory. Out: a function of the assembler, and the subprograms that it calls. The attach kind of
//! a handler and the location of a global are decided elsewhere: in [`crate::attach`] and
//! [`crate::plan`].
//!
//! | module | its one job |
//! |---|---|
//! | [`codegen`], `operand`, `slots` | the generator of a function, its operands, the fixed part of the stack |
//! | [`body_context`] | what is known of a body before its code is generated, computed once |
//! | `select`, `out_of_line` | blocks, jumps and the dispatch of instructions; code off the straight path |
//! | `arguments` | arguments of calls, and values in new virtual registers |
//! | `values` | operands of the IR in virtual registers, and copies of memory |
//! | `shapes` | how the code of each instruction uses registers |
//! | [`pool`], [`lir_sources`] | constants, subprograms and record shapes of an object; its functions of LIR |
//! | [`handler`] | numbers, calls, errors, loops, a handler's beginning and end, shared subprograms |
//! | [`data`] | globals, arrays, aggregates, `foreach` |
//! | [`text`] | strings, formats, output |
//! | [`event`] | the event's context, the current task, the machine |
//! | `syscalls` | numbers, arguments and results of system calls, and their text |
//!
//! # Registers
//! Code computes in virtual registers. Those of an instruction, or of a whole subprogram, are one sequence,
//! which is allocated on its own when the function is finished (see [`spile_ebpf::isa::sequences`]). `r7` is this
//! CPU's block while the body runs. Numbers live in the other registers, on the stack or in the frame (see
//! [`crate::regalloc`]): the shape of an instruction says how many registers are free for its sequence.
//! A virtual register that finds no register is stored at each write and loaded at each read. Code that
//! keeps a value across a call therefore copies it first if it writes the value often.
//! The top 72 bytes of the stack hold the context, the generation, the system call's number, five
//! scratch words and the current task.
//!
//! # Strings
//! A string fills its slot: zeros follow its bytes, up to the slot's width. Copies, comparisons and
//! hashes therefore work on whole words and never look for the end.
//!
//! # The verifier
//! The verifier follows every path. Paths that leave different constants in registers would
//! multiply; such values go through a scratch word of the per-CPU area, which makes them unknown
//! numbers.

pub(crate) mod body_context;
pub(crate) mod codegen;
pub(crate) mod data;
pub(crate) mod event;
pub(crate) mod handler;
pub(crate) mod lir_sources;
pub(crate) mod operand;
mod out_of_line;
pub(crate) mod pool;
mod select;
mod shapes;
pub(crate) mod slots;
pub(crate) mod syscalls;
pub(crate) mod text;
mod values;
