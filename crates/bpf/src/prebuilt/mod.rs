//! The templates of [`spile_ebpf::prebuilt`], which the build script wrote.
//!
//! In: a request to the run-time library, and where the object has the processors' blocks. Out: its template, if
//! there is one. Debug builds compare each linked function with the emitter's.
//!
//! | module | its one job |
//! |---|---|
//! | `find` | the templates, and the one of a request |

mod find;
#[cfg(test)]
mod tests;

pub(crate) use find::find;
