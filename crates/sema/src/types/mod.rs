//! From syntax trees to the resolved tree: names, types, string widths.
//!
//! In: the handlers of [`crate::probe`] and the library's functions. Out: [`hir`], without names to
//! resolve and with a type at every expression. Invariant: no pass after `resolve` asks about the
//! machine. What may run where is checked in [`crate::check`]; no IR is made here.
//!
//! | file | what |
//! |---|---|
//! | `absent` | makes errors of operations that controller handlers lack |
//! | `codes` | diagnostic codes of this half |
//! | `hir` | the resolved tree |
//! | `unify` | type variables |
//! | `resolve` | the walk that makes the tree |
//! | `near` | names similar to that of a variable without a value |
//! | `dead_stores` | removes variables and stores that nothing reads; warns about unused ones |
//! | `regexes` | compiles regular expressions |
//! | `sink` | moves predefined values to where they are used |
//! | `width` | string widths |

pub mod absent;
pub mod codes;
pub mod dead_stores;
pub mod hir;
mod near;
pub mod regexes;
pub mod resolve;
pub mod sink;
pub mod unify;
pub mod width;
