//! Code of the run-time library that is emitted when spile is built.
//!
//! ```text
//! build:    samples ──extract (emit twice, compare)──► templates ──write──► Rust
//! run time: a request ──shape──► its template ──link (fill numbers in)──► functions
//! ```
//! In: a request, and where the object has the processors' blocks and the constants. Out: the functions
//! that the emitter would write. Only numbers differ between requests of one shape: offsets in the
//! processor's block, in the kernel's structures and in the object's data. A request of another shape
//! (longer strings, another number of frames) has no template, and its functions are emitted at run time.
//!
//! | module | its one job |
//! |---|---|
//! | [`template`] | the data; fills numbers in |
//! | [`samples`] | the requests that have templates |
//! | [`extract`] | makes templates |
//! | [`write`] | writes templates as Rust |

pub mod extract;
pub mod samples;
pub mod template;
pub mod write;

/// What code knows of the processors' blocks: a number below a power of two has another bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Nothing.
    None,
    /// That their number is a power of two.
    PowerOfTwo,
    /// That it is not.
    Other,
}
