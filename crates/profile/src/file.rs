//! Profile files: JSON Lines. Each line is an object with one key, which is the kind of row.
//!
//! ```text
//! {"header":{"format":"spile-profile","version":1,...}}
//! {"thread":{...}}                   rows of the first account, in any order
//! {"call":{...}}
//! {"snapshot":{"number":1,"rows":2,"at_ns":1000000000}}
//! {"event":{...}}                    trace: stands once, before or between accounts
//! {"thread":{...}}                   the second account, which replaces the first
//! {"call":{...}}
//! {"snapshot":{"number":2,"rows":2,"at_ns":2000000000}}
//! {"end":{"at_ns":2000000000,"status":0}}
//! ```
//!
//! A reader counts rows of unknown kinds as rows of accounts, and skips them. An account counts
//! if its `snapshot` line exists and is preceded by as many rows as it says, so a file that was
//! cut short anywhere still has its last complete account.

mod find;
mod merge;
mod reader;
mod row;
mod writer;

pub use find::{FoundProfiles, find, find_accounts, find_runs};
pub use merge::merge;
pub use reader::{FileNote, ReadProfile, UnusableFile, read, read_path};
pub use row::EXTENSION;
pub use writer::{Writer, name};
