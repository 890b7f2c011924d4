//! Analyses that passes use.
//!
//! In: a well-formed [`crate::Body`] (its blocks and registers exist). Out: facts as values. Nothing
//! here changes a body.
//!
//! | module | what |
//! |---|---|
//! | [`order`] | the order in which passes go through blocks |
//! | [`dataflow`] | the one engine of fixpoints: facts of locations, forwards and backwards, and of registers |
//! | [`liveness`] | which registers are still read, at the borders of each block |
//! | [`body_facts`] | facts about a body, found by one pass |

pub mod body_facts;
pub mod dataflow;
pub mod liveness;
pub mod order;
