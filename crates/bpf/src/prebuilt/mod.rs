//! Code of the run-time library that was emitted when spile was built.
//!
//! ```text
//! build:    samples ──extract (emit twice, compare)──► templates, as Rust
//! run time: a request ──find (same shape)──► its template ──link (fill numbers in)──► functions
//! ```
//! In: a request, and where the object has the processors' blocks and the constants. Out: the functions
//! that the emitter would write. Only numbers differ between requests of one shape: offsets in the
//! processor's block, in the kernel's structures and in the object's data. A request of another shape
//! (longer strings, another number of frames) has no template, and its functions are emitted at run time.
//! Debug builds compare each linked function with the emitter's.
//!
//! | module | its one job |
//! |---|---|
//! | `template` | the data; fills numbers in |
//! | `samples` | the requests that have templates |
//! | `extract` | makes templates; the build script and tests have it |
//! | `write` | writes templates as Rust; the build script has it |
//! | `find` | finds the template of a request; the crate has it, `cfg(built)` |

#[cfg(any(test, not(built)))]
pub(crate) mod extract;
#[cfg(built)]
mod find;
mod samples;
pub(crate) mod template;
#[cfg(not(built))]
pub(crate) mod write;

#[cfg(test)]
mod tests;

#[cfg(built)]
pub(crate) use self::{find::find, template::Template};

/// What code knows of the processors' blocks: a number below a power of two has another bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// Nothing.
    None,
    /// That their number is a power of two.
    PowerOfTwo,
    /// That it is not.
    Other,
}
