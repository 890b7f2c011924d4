//! The stable codes of the second half of analysis: names, types, checks.
//!
//! `E05xx` names and types, `E06xx` placement, `W05xx` warnings.

use spile_syntax::code_table;

code_table! { BODY_CODES:
    UNKNOWN_FUNCTION = "E0501", "A call of a function that neither the script nor the library has.";
    UNKNOWN_ARRAY = "E0502", "An indexed variable that is not declared `global`.";
    ARGUMENT_COUNT = "E0503", "A call with a number of arguments that no form of the function takes.";
    TYPE_MISMATCH = "E0504", "Two uses of one value need different types.";
    UNRESOLVED_TYPE = "E0505", "A variable whose type, number or string, cannot be inferred.";
    INDEX_COUNT = "E0506", "An array is used with different numbers of indexes.";
    TOO_MANY_KEYS = "E0507", "An array has more than nine indexes.";
    DUPLICATE_GLOBAL = "E0508", "A global variable is declared twice.";
    BAD_FORMAT = "E0510", "A malformed conversion in a format.";
    FORMAT_ARGUMENTS = "E0511", "A format needs more or fewer arguments than are given.";
    OUTSIDE_LOOP = "E0512", "`break` or `continue` outside a loop.";
    NO_VALUE = "E0514", "An expression without a value is used as a value.";
    NOT_A_STATISTIC = "E0515", "A statistic is needed here.";
    HISTOGRAM_CONFLICT = "E0516", "One statistic is used with two different histograms.";
    FOREACH_KEYS = "E0517", "`foreach` has a number of key variables that the array does not have.";
    FOREACH_CHANGES = "E0518", "An array is modified inside a `foreach` over it.";
    CONDITION_CHANGES = "E0519", "The condition of a probe point modifies a variable.";
    NOT_SUPPORTED = "E0521", "A part of the language that is not available.";
    INTRINSIC = "E0522", "A wrong use of an internal operation in a library file.";
    UNKNOWN_OPTION = "E0526", "An option names a variable or limit that does not exist.";
    BAD_OPERAND = "E0527", "An operand that is out of range or has to be a literal.";
    TYPED_OPERAND = "E0528", "`->` on a value whose C type is not known.";
    BAD_REGEX = "E0529", "A malformed regular expression.";
    LARGE_REGEX = "E0530", "A regular expression whose tables would be too large.";
    NEEDS_GURU = "E0531", "An operation with an effect on the system, outside guru mode (`-g`).";

    CONDITION_READS = "E0532", "The condition of a probe point uses something other than global variables.";

    KERNEL_UNAVAILABLE = "E0603", "An operation that only controller handlers can perform.";
    NO_EVENT = "E0604", "An operation that needs the current kernel event, in a handler that has none.";
    ONLY_KERNEL = "E0605", "An operation that only the kernel has, in a handler that runs in a process (`--runtime=process`).";
    KERNEL_CONSTANT = "E0606", "An operand that has to be a constant in a kernel handler.";

    NEVER_ASSIGNED = "W0501", "A variable is read and never assigned.";
    UNUSED_VARIABLE = "W0502", "A variable is never read.";
    NO_EFFECT = "W0503", "A statement has no effect.";
    UNUSED_FUNCTION = "W0504", "A function is never called.";
    OPTION_WITHOUT_EFFECT = "W0505", "A limit of `-D` without effect, or out of its range.";
    BAD_VARIABLE = "W0506", "A missing variable, replaced by 0 (`--skip-badvars`).";
    UNREACHED = "W0508", "A body of a function that runs for no call.";
    FAILS_HERE = "W0509", "An operation that a handler of the controller lacks, and that fails when it runs.";
    EMPTY_PROBE = "W0510", "A probe that does nothing.";
    DEPRECATED = "W0511", "A function of earlier releases of SystemTap only (`--check-version`).";
    NOT_PRESENT = "W0507", "A probe of processes asks for a value that existing processes lack.";
}
