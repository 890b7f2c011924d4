//! One line of documentation on each word of the language itself, for hovers and completions.

/// A word with its documentation.
pub(crate) struct Doc {
    pub word: &'static str,
    /// Its syntax.
    pub usage: &'static str,
    pub doc: &'static str,
}

macro_rules! words {
    ($($name:ident: $($word:literal $usage:literal $doc:literal;)*)*) => {
        $(pub(crate) const $name: &[Doc] = &[$(Doc { word: $word, usage: $usage, doc: $doc }),*];)*
    };
}

words! {
    // Words that begin items.
    ITEMS:
    "probe" "probe POINT, ... { ... }" "runs the handler each time a point is reached";
    "global" "global a, b[100], c%[100] = 3" "variables that all handlers see";
    "function" "function f:string(a:long) { ... }" "a function; types can be left out";
    "private" "private global, private function" "visible in this file only";
    // Words of statements.
    STATEMENTS:
    "if" "if (c) a else b" "runs one of two statements";
    "else" "if (c) a else b" "runs one of two statements";
    "for" "for (init; cond; step) a" "a loop, bounded by MAXACTION";
    "while" "while (c) a" "a loop, bounded by MAXACTION";
    "foreach" "foreach (v = [k-, l] in array limit 10) a" "iterates over an array; + and - sort by a column";
    "in" "[k, l] in array" "whether the array has the element";
    "limit" "foreach (k in array limit 10)" "visits at most that number of elements";
    "return" "return e" "leaves the function";
    "delete" "delete x" "removes an element, a slice or all of an array, or clears a variable";
    "break" "break" "leaves the loop";
    "continue" "continue" "continues with the next iteration";
    "next" "next" "leaves the handler; in a function: goes on with its next body";
    "try" "try { ... } catch (text) { ... }" "catches errors of its block";
    "catch" "try { ... } catch (text) { ... }" "runs after an error in the block";
    "string" "function f:string()" "the type of strings";
    "long" "function f:long()" "the type of 64-bit numbers";
    // Operators that begin with `@`.
    OPERATORS:
    "@count" "@count(s)" "the number of values of a statistic";
    "@sum" "@sum(s)" "the sum of a statistic";
    "@min" "@min(s)" "the least value of a statistic";
    "@max" "@max(s)" "the greatest value of a statistic";
    "@avg" "@avg(s)" "the average of a statistic";
    "@variance" "@variance(s[, shift])" "the variance of a statistic";
    "@hist_log" "@hist_log(s)" "a histogram with powers of two";
    "@hist_linear" "@hist_linear(s, low, high, width)" "a histogram with buckets of one width";
    "@var" "@var(\"name\"[, \"module\"])" "a variable of the kernel";
    "@cast" "@cast(address, \"type\"[, \"module\"])" "an address as a pointer to a type";
    "@defined" "@defined(e)" "whether e can be resolved, decided before the run";
    "@probewrite" "@probewrite(v)" "whether the handler writes the variable";
    "@entry" "@entry(e)" "in a return probe: the value of e at entry";
    "@perf" "@perf(\"name\")" "a perf counter";
    "@enum" "@enum(\"NAME\"[, \"module\"])" "the value of an enumeration constant";
    "@enumname" "@enumname(value, \"enum\")" "the name of an enumeration constant";
    "@const" "@const(\"NAME\")" "the value of a constant of C";
    "@kregister" "@kregister(n)" "a register of the kernel";
    "@kderef" "@kderef(size, address)" "a number in the kernel's memory";
    "@uregister" "@uregister(n)" "a register of the program";
    "@uderef" "@uderef(size, address)" "a number in the program's memory";
    "@define" "@define name(a, b) %( ... %)" "defines a macro";
    // Functions that are part of the language.
    PRINTS:
    "print" "print(e, ...)" "prints values";
    "println" "println(e, ...)" "prints values and a newline";
    "printd" "printd(delimiter, e, ...)" "prints values with a delimiter between them";
    "printdln" "printdln(delimiter, e, ...)" "prints values with a delimiter between them, and a newline";
    "printf" "printf(format, e, ...)" "prints values by a format: %d %x %s %c %p %b %m %M ...";
    "print_char" "print_char(c)" "prints a byte";
    "sprint" "sprint(e, ...)" "values as text";
    "sprintln" "sprintln(e, ...)" "values and a newline as text";
    "sprintd" "sprintd(delimiter, e, ...)" "values with a delimiter between them as text";
    "sprintdln" "sprintdln(delimiter, e, ...)" "values with a delimiter between them and a newline as text";
    "sprintf" "sprintf(format, e, ...)" "values by a format as text";
    // Context variables that every probe with `$` variables has.
    CONTEXT:
    "$$vars" "$$vars" "all variables of the point as text";
    "$$parms" "$$parms" "the parameters of the point as text";
    "$$locals" "$$locals" "the local variables of the point as text";
    "$$return" "$$return" "in a return probe: the result as text";
    "$$system" "$$system" "the system of the tracepoint";
    "$$name" "$$name" "the name of the tracepoint or system call";
}

/// The documentation of a word.
pub(crate) fn find(word: &str) -> Option<&'static Doc> {
    let tables = [ITEMS, STATEMENTS, OPERATORS, PRINTS, CONTEXT];
    tables.into_iter().flatten().find(|d| d.word == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spile_syntax::token::Tok;

    #[test]
    fn the_words_are_those_of_the_parser() {
        for d in ITEMS.iter().chain(STATEMENTS) {
            assert!(
                Tok::keyword(d.word).is_some_and(Tok::is_keyword),
                "{}",
                d.word
            );
        }
        for name in spile_syntax::parser::at_ops::operator_names() {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(find("@cast").is_some() && find("nothing").is_none());
    }
}
