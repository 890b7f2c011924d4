//! The tables, as the build script writes them.

use spile_ir::NrSet;

use super::model::*;

include!(concat!(env!("OUT_DIR"), "/syscalls.rs"));

// The build script numbers calls as sets of handlers do.
const _: () = assert!(
    COMPAT == NrSet::COMPAT && SOCKETCALL == NrSet::PARTS && IPC == NrSet::IPC_PARTS,
    "the numbers of `NrSet`"
);
