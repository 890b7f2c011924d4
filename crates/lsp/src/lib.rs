//! The language server: answers an editor's queries about scripts over the protocol LSP.
//!
//! | module | what |
//! |---|---|
//! | [`workspace`] | what the server is given: the tapset, the machine, where tapset files are |
//! | `text` | documents: positions of the protocol, edits |
//! | `analysis` | a document after all passes of analysis |
//! | `cursor` | what stands at a place, by tokens, however broken the text is |
//! | `docs` | one line on each keyword, operator and built-in function |
//! | `complete`, `hover`, `goto`, `symbols`, `diagnostics` | the answers |
//! | [`server`] | the protocol |
//!
//! No I/O except the connection's: facts about the machine and places of files come in as values
//! and traits, as everywhere in analysis.

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
