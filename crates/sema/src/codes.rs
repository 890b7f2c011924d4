//! The stable codes of the first half of analysis: probe points and C types.
//!
//! `E03xx` and `W03xx` probe points and context variables, `E04xx` C types. Those of the
//! second half are in [`crate::types::codes`].

use spile_syntax::code_table;

code_table! { PROBE_CODES:
    NO_SUCH_POINT = "E0301", "A probe point that neither a family nor an alias defines.";
    NO_MATCH = "E0302", "A pattern that matches no probe point.";
    BAD_ARGUMENT = "E0303", "A probe point component with a wrong, missing or unexpected argument.";
    BAD_SUFFIX = "E0304", "A component after a probe point that does not take it.";
    ALIAS_LOOP = "E0305", "An alias that is defined by itself.";
    FAMILY_NOT_THERE = "E0306", "A probe family of SystemTap that spile lacks.";
    NO_TRACEPOINT = "E0307", "A tracepoint that the running kernel does not have.";
    NO_SYSCALL = "E0308", "A system call that this architecture does not have.";
    NO_PERF_EVENT = "E0309", "A perf event that has no such name.";
    TOO_MANY_PROBES = "E0310", "Aliases that expand to too many probe points.";
    NO_PROBES = "E0311", "A script in which no probe point is left.";

    NO_LOCATION = "E0312", "A function, statement or marker that a program or the kernel does not have.";
    NO_MODULE = "E0313", "A program, process, library or kernel module that does not exist.";

    UNSEEN = "E0314", "A probe point whose events a session in its target's processes does not see (`--runtime=process`).";

    NO_TARGET = "E0320", "A context variable that the probe point does not have.";
    NO_CONTEXT = "E0321", "A context variable at a probe point that has none.";
    BAD_ENTRY = "E0322", "`@entry` outside of the return probe of a system call or a function.";
    ABSENT_VALUE = "E0323", "A variable whose value the compiler did not keep at the probed location.";
    TEXT_ONLY = "E0324", "A text form of an argument that only `argstr` has.";
    NO_COUNTER = "E0325", "A counter of `@perf` that no probe defines.";

    NOT_SET = "E0326", "A variable that an alias of SystemTap's library sets and spile's does not.";

    NO_TYPE = "E0401", "A C type that the kernel does not have.";
    NO_MEMBER = "E0402", "A member that a structure does not have.";
    NOT_STRUCT = "E0403", "`->` on a C type that is not a structure.";
    CANNOT_DEREF = "E0404", "A dereference of something that is not a pointer.";
    BAD_ADDRESS = "E0406", "The address of something that has none.";
    NOT_SCALAR = "E0407", "A C value that is neither a number nor an address.";
    NO_CONSTANT = "E0408", "An enumeration constant that the kernel does not have.";
    NO_VARIABLE = "E0409", "An unknown variable of the kernel.";

    RENAMED = "W0302", "A function or tracepoint under a name that the kernel no longer has.";
    OTHER_LOCATION = "W0303", "Another function or library is probed than the name alone says.";
    ALL_PROCESSES = "W0304", "Breakpoints in a library in all processes, for a question about one program.";
}
