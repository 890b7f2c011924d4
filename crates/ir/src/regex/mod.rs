//! Regular expressions: POSIX extended ones, compiled to tables that the interpreter and the
//! generated code follow in the same way.
//!
//! In: an expression's text. Out: tables, or an error with the location. Invariant: a match by the
//! tables takes time linear in the text, whatever the expression. Texts are not known here; the
//! code that follows them in the kernel is made by `bpf`.
//!
//! | file | what |
//! |---|---|
//! | `parser` | the expression as a tree |
//! | `nfa` | the tree as an automaton with marks for groups and parts |
//! | `scan` | tables that only tell whether, or where, a match begins |
//! | `tagged` | tables that find a match and its groups |
//! | `compiled` | an expression with its tables |
//! | `exec` | following them |
//! | `error` | why an expression cannot be compiled |
//!
//! # Which match
//! The leftmost match, and of those the longest. Then each part of the expression, from left to
//! right and outer ones first, takes as much as it can ("subpatterns" of POSIX). Of two ways with
//! the same lengths, the first alternative wins, and a round of a repetition wins over none. A
//! round is empty only if it must be, or if it is the only one. A group reports its last round, and
//! nothing if the last round of the enclosing part skipped it. This is the order of Okui and Suzuki
//! ("Disambiguation in regular expression matching via position automata with augmented
//! transitions"). glibc departs from it in groups; `crates/ir/tests/regex.rs` has the cases.
//!
//! # How groups are found
//! Online tagged automata copy registers at every byte. Here each transition instead has, for each
//! path in its target, the best predecessor and the tags on the way. Matching records the
//! transitions taken; when the match's end is known, one pass back over them meets every tag's last
//! value first.
//!
//! 1. Backwards over the string: the first position where a match begins (`Finder::reverse`;
//!    left out where only position 0 can be).
//! 2. Forwards from there: the longest match, noting transitions.
//! 3. Back over the notes: the groups (left out where there are none).
//!
//! Where nobody reads the match, one forward scan that stops at the first end is enough
//! (`Compiled::test`).

mod compiled;
mod error;
mod exec;
mod nfa;
mod parser;
mod scan;
mod tagged;

pub use compiled::{Compiled, MAX_GROUPS, Regex};
pub use error::Error;
pub use exec::Match;
pub use parser::{Ast, ByteSet, parse};
pub use scan::Scanner;
pub use tagged::{Finder, NO_SLOT, Op};
