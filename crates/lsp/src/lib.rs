//! The language server: answers an editor's queries about scripts over the protocol LSP.
//!
//! | module | what |
//! |---|---|
//! | [`workspace`] | the server's environment: the tapset, the machine, the locations of tapset files
//! |
//! | `text` | documents: positions of the protocol, edits |
//! | `analysis` | a document after all passes of analysis |
//! | `cursor` | the context of a location, by tokens, in any text |
//! | `docs` | one line on each keyword, operator and built-in function |
//! | `complete`, `hover`, `goto`, `symbols`, `diagnostics` | the answers |
//! | [`server`] | the protocol |
//!
//! No I/O except the connection's: facts about the machine and locations of files come in as values
//! and traits, as everywhere in analysis.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod analysis;
mod complete;
mod cursor;
mod diagnostics;
mod docs;
mod goto;
mod hover;
pub mod server;
mod symbols;
mod text;
pub mod workspace;
