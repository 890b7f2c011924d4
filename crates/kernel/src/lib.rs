//! The running kernel as values.
//!
//! All information about the kernel, and all requests to its BPF, go through this crate. It is
//! lazy: nothing is opened, mapped or parsed before the first query that needs it.
//!
//! * [`btf`]: types of the kernel, by an index over its BTF.
//! * [`bpf`]: the one funnel for `bpf(2)`.
//! * [`cgroup`]: control groups and their processes.
//! * [`features`]: what this kernel's BPF can do: yes, no, could not tell.
//! * [`functions`]: functions by name, which can be probed, their parameters.
//! * [`machine`]: CPUs, clocks, release and configuration.
//! * [`mapping`]: memory that is mapped from a descriptor.
//! * [`errno`]: error numbers in messages.
//! * [`foreign_kernel`]: the files of another kernel, read instead of the running one.
//! * [`perf`]: events of `perf_event_open(2)`; [`perf_stream`]: their records.
//! * [`process`]: questions about one process.
//! * [`symbols`]: the symbols of kernel and modules.
//! * [`sigbus`]: files that become shorter while they are mapped.
//! * [`tracepoints`]: tracepoints with their arguments; perf events by name.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

#[cfg(test)]
#[macro_use]
extern crate spile_testing;
#[cfg(test)]
spile_testing::main!();

pub mod bpf;
pub mod btf;
pub mod cgroup;
pub mod cycles;
pub mod errno;
pub mod features;
pub mod foreign_kernel;
pub mod functions;
pub mod machine;
pub mod mapping;
pub mod nfs;
pub mod perf;
pub mod perf_stream;
pub mod process;
pub mod resources;
pub mod sigbus;
pub mod symbols;
mod sysfile;
pub mod trace_format;
pub mod tracepoints;
