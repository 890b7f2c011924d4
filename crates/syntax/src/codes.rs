//! The stable codes of syntax and preprocessor diagnostics, with one line of documentation each.
//!
//! `E01xx` syntax, `E02xx` preprocessor, `W01xx` warnings of both. Other crates have tables of the
//! same form.

/// A code and its documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeDoc {
    /// `E0101`
    pub code: &'static str,
    /// Its meaning in one line.
    pub doc: &'static str,
}

/// Makes the constants and the table from one list.
#[macro_export]
macro_rules! code_table {
    ($table:ident: $($name:ident = $code:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: &str = $code;)*
        /// Every code of this table, in order.
        pub const $table: &[$crate::codes::CodeDoc] =
            &[$($crate::codes::CodeDoc { code: $code, doc: $doc }),*];
    };
}

code_table! { SYNTAX_CODES:
    BAD_CHAR = "E0101", "A character that no token can begin with.";
    BAD_UTF8 = "E0102", "A byte outside comments that is not valid UTF-8.";
    NUL_BYTE = "E0103", "The file contains a NUL byte.";
    UNTERMINATED_STRING = "E0104", "A string literal does not end on its line.";
    UNTERMINATED_COMMENT = "E0105", "A `/*` comment has no `*/`.";
    UNTERMINATED_EMBEDDED = "E0106", "Embedded C `%{` has no `%}`.";
    BAD_NUMBER = "E0107", "A number that is malformed or does not fit in 64 bits.";
    FLOAT_LITERAL = "E0108", "The language has no floating-point literals.";
    TOO_LARGE = "E0109", "The source file is larger than 8 MiB.";
    UNEXPECTED = "E0110", "A token that the grammar does not allow here.";
    UNCLOSED = "E0111", "A bracket, brace or parenthesis is never closed.";
    TOO_DEEP = "E0112", "Statements or expressions are nested too deeply.";
    NOT_ASSIGNABLE = "E0113", "The left side of an assignment, or the operand of `++`, cannot be assigned to.";
    LITERAL_WANTED = "E0114", "A literal is required here.";
    UNKNOWN_OPERATOR = "E0115", "A name after `@` that is neither an operator nor a macro.";
    BAD_PROBE_POINT = "E0116", "A malformed probe point.";
    OPERAND_COUNT = "E0117", "An operator has the wrong number of operands.";
    RESERVED_NAME = "E0118", "A keyword or built-in name is used as a name.";
    BAD_TYPE = "E0120", "The only types that can be written are `long` and `string`.";
    STRAY_STAR = "E0121", "`*` as an index outside `in`, `delete` and `foreach` slices.";
    TOO_MANY_POINTS = "E0122", "Braces in one probe expand to too many probe points.";
    NOT_FORMATTED = "E0123", "A script that `spile fmt` leaves as it is.";
    NEEDS_GURU = "E0124", "Embedded C, `@kderef` or `@kregister` in a script outside guru mode (`-g`).";
    BAD_DECLARATION = "E0125", "A declaration that names something twice, or an array without elements or with an initial value.";
    NEEDS_VERSION = "E0126", "A construct that the version of `--compatible` does not have.";
    EMPTY_SCRIPT = "E0127", "A script that has nothing in it.";
    OUTSIDE_FUNCTION = "E0128", "`return` outside a function.";
    ARG_RANGE = "E0201", "A command line argument that was not given.";
    BAD_DEFINE = "E0202", "A malformed `@define`.";
    MACRO_ARGS = "E0203", "A macro is used with the wrong number of arguments.";
    MACRO_RECURSION = "E0204", "A macro uses itself.";
    MACRO_TOO_LARGE = "E0205", "Macro expansion nests too deeply or gives too many tokens.";
    BAD_CONDITION = "E0206", "A malformed `%( ... %? ... %: ... %)`.";
    UNKNOWN_CONDITION = "E0207", "The left side of a preprocessor condition is unknown.";
    CONDITION_TYPES = "E0208", "The two sides of a preprocessor condition cannot be compared.";
    UNCLOSED_CONDITION = "E0209", "`%(` has no `%)`.";
    STRAY_CONDITION = "E0210", "`%?`, `%:` or `%)` without `%(`.";
    NOT_A_DEFINE = "E0211", "A macro library may only contain `@define`.";
    MACRO_TWICE = "E0212", "A macro is defined twice.";
    UNKNOWN_ESCAPE = "W0101", "A `\\` before a character that is no escape; the `\\` is dropped.";
    CONFIG_UNKNOWN = "W0102", "A condition on a kernel option where the kernel's configuration cannot be read.";
    PRECEDENCE = "W0103", "An operator without parentheses whose operands are easily misread, as in `a & b == c`.";
    LEFT_OUT = "W0104", "A file of `-I` that does not parse and is left out.";
    VERSION_DEPENDENT = "W0105", "A part of the script that depends on the version of SystemTap (`--check-version`).";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_ordered() {
        let errors = SYNTAX_CODES.iter().map(|c| c.code);
        assert!(errors.clone().zip(errors.skip(1)).all(|(a, b)| a < b));
    }
}
