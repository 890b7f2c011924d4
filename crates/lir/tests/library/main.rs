//! Each function of the library against Rust, on random inputs, as it is written and with its loops as
//! callbacks; and the tests against mutants of the functions.
//!
//! | module | its functions |
//! |---|---|
//! | `shared` | those that are the same for all callers |
//! | `generated` | those that are made for the widths of slots |
//! | `process` | the library's `cmdline`, `lock` and `output` |
//! | `iterations`, `heap`, `large`, `append`, `defer`, `arguments`, `regex`, `stacks`, `unwind`, `usermem` | the library's modules of these names |
//! | `forms` | what runs them, records them and exchanges them |
//! | `kernel` | structures of the kernel in memory |
//! | `mutants` | changes single operations, which the tests must find |

mod append;
mod arguments;
mod defer;
mod forms;
mod generated;
mod heap;
mod iterations;
mod kernel;
mod large;
mod mutants;
mod process;
mod regex;
mod shared;
mod stacks;
mod unwind;
mod usermem;
