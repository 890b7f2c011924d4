//! Where handlers find what they know of their thread: its record ([`ThreadRecord`]) takes the place of the kernel's
//! task. Its address is in a register while a handler runs ([`crate::processor`]).

use std::mem::offset_of;

use spile_layout::ThreadRecord;
use spile_lir::library::host::RecordOffsets;

/// Offsets of a record's fields, as code has them.
pub(crate) mod at {
    use super::{ThreadRecord, offset, offset_of};

    /// The upper half of the word is the process's number.
    pub(crate) const TID: i32 = offset(offset_of!(ThreadRecord, tid)) as i32;
    /// The upper half of the word is the group.
    pub(crate) const UID: i32 = offset(offset_of!(ThreadRecord, uid)) as i32;
    pub(crate) const SLOT: i32 = offset(offset_of!(ThreadRecord, slot)) as i32;
    pub(crate) const COMM: i32 = offset(offset_of!(ThreadRecord, comm)) as i32;
    pub(crate) const STACK: i32 = offset(offset_of!(ThreadRecord, stack)) as i32;
    pub(crate) const COOKIE: i32 = offset(offset_of!(ThreadRecord, cookie)) as i32;
}

/// An offset in a record.
const fn offset(offset: usize) -> i16 {
    spile_cast::i16_of(offset)
}

const _: () = {
    assert!(offset_of!(ThreadRecord, tid).is_multiple_of(8));
    assert!(offset_of!(ThreadRecord, tgid) == offset_of!(ThreadRecord, tid) + 4);
    assert!(offset_of!(ThreadRecord, uid).is_multiple_of(8));
    assert!(offset_of!(ThreadRecord, gid) == offset_of!(ThreadRecord, uid) + 4);
};

/// What the run-time library needs of a record.
pub(crate) const OFFSETS: RecordOffsets = RecordOffsets {
    thread: offset(offset_of!(ThreadRecord, tid)),
    slot: offset(offset_of!(ThreadRecord, slot)),
    process: offset(offset_of!(ThreadRecord, tgid)),
    random: offset(offset_of!(ThreadRecord, random)),
    stack: offset(offset_of!(ThreadRecord, stack)),
    clock: offset(offset_of!(ThreadRecord, clock)),
};
