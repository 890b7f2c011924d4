//! Syntax tree to typed program: probe points, names, types, lowering to IR. No I/O.
//!
//! | module | what |
//! |---|---|
//! | [`facts`] | facts about the machine |
//! | [`library`] | the files of a run, indexed |
//! | [`missing`] | names that only SystemTap's library has |
//! | [`families`], [`probe`] | probe points to handlers with their contexts |
//! | [`ids`] | maps of user and group ids between namespaces |
//! | [`ctype`] | C types and walks through structures |
//! | `inputs` | the input of analysis |
//! | [`types`] | names and types of bodies |
//! | [`check`] | placement: the operations allowed in each handler |
//! | [`lower`] | resolved bodies to IR |
//! | [`analyse`] | bodies to a program, as one call |
//! | [`dump`] | the text of `-p2` |
//! | [`codes`] | diagnostic codes of probe points and C types |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod analyse;
pub mod check;
pub mod codes;
pub mod ctype;
pub mod dump;
pub mod facts;
pub mod families;
pub mod ids;
mod inputs;
pub mod library;
pub mod lower;
pub mod missing;
pub mod probe;
pub mod types;
