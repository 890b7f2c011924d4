//! What a process answers in place of the kernel: tables, the ring, reads of memory, time and random numbers.
//!
//! In: where a thread's record has what the functions need, and numbers of system calls ([`HostFacts`]). Out: a module
//! of functions with the arguments and results of the kernel's helpers.
//!
//! Code and tables are in memory that several processes share. Their threads run these functions at once, and each can
//! be stopped or killed between any two instructions.
//!
//! | module | its functions |
//! |---|---|
//! | `hash` | hash tables and arrays |
//! | `ring` | records for the controller |
//! | `read` | copies of memory, of this process's own and of memory that may not be there |
//!
//! # Descriptions and words
//! A table is known by the address of its description ([`description`]), in memory that processes only read: sizes,
//! and distances in bytes from the description to what changes. So processes cannot mislead each other about sizes,
//! and an index that is read from shared memory is compared with them before it is used.
//!
//! # Primitives
//! LIR has no word for a few operations. They are functions of the host ([`PRIMITIVES`]).

mod hash;
mod read;
mod ring;

pub use hash::hash_of;

use crate::builder::{Builder, Scalar, build};
use crate::func::Module;
use crate::op::Size;

/// The functions that hosts have for this module, and the numbers of their parameters.
pub const PRIMITIVES: &[(&str, usize)] = &[
    (SYSTEM_CALL, 2),
    (CALL, 5),
    (THREAD, 0),
    (LOAD, 1),
    (IMAGE, 0),
];

/// `(number, arguments)`: a system call; `arguments` is the address of six words.
pub const SYSTEM_CALL: &str = "system_call";
/// `(function, a, b, c, d)`: calls a function by its address.
pub const CALL: &str = "call";
/// The address of the current thread's record.
pub const THREAD: &str = "thread";
/// `(address)`: the word at an address that others write. Other loads stay behind it, and it is never left out.
pub const LOAD: &str = "load";

/// The address of two words: the distance from there to the first byte of code and tables, and their bytes.
pub const IMAGE: &str = "image";

/// `(table, key)`: the address of the value, or 0.
pub const LOOKUP: &str = "host_lookup";
/// `(table, key, value, flags)`: 0, or a negative errno.
pub const UPDATE: &str = "host_update";
/// `(table, key)`: 0, or a negative errno.
pub const DELETE: &str = "host_delete";
/// `(table, function, context, flags)`: calls the function with each element; the number of calls.
pub const FOR_EACH: &str = "host_for_each";
/// `(ring, data, size, flags)`: 0, or a negative errno.
pub const OUTPUT: &str = "host_output";
/// `(ring, flags)`: the number of bytes that the reader has not taken yet.
pub const WAITING: &str = "host_waiting";
/// `(to, size, from)`: copies memory of the handler's own; other memory as [`READ`] does.
pub const COPY: &str = "host_copy";
/// `(to, size, from)`: copies a text of the handler's own; another one as [`READ_TEXT`] does.
pub const COPY_TEXT: &str = "host_copy_text";
/// `(to, size, from)`: copies memory that may not be there; 0, or a negative errno.
pub const READ: &str = "host_read";
/// `(to, size, from)`: copies a text that may not be there; the number of bytes with the NUL, or a negative errno.
pub const READ_TEXT: &str = "host_read_text";
/// `(thread)`: gives the processor to other threads; 0.
pub const YIELD: &str = "host_yield";
/// Nanoseconds of the monotonic clock.
pub const TIME: &str = "host_time";
/// A random number of 32 bits.
pub const RANDOM: &str = "host_random";

/// Offsets of words in the current thread's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordOffsets {
    /// 32 bits: the thread's number, as the controller knows it.
    pub thread: i16,
    /// 32 bits: the record's number.
    pub slot: i16,
    /// 32 bits: the process's number, as the process itself knows it.
    pub process: i16,
    /// The state of the random numbers, never 0.
    pub random: i16,
    /// The upper end of the stack, if it is the handlers' own, or 0.
    pub stack: i16,
    /// The address of a function like `clock_gettime` that needs no library (the vDSO's), or 0.
    pub clock: i16,
}

/// Offsets in a table's description, which is [`description::BYTES`] long. All are words.
pub mod description {
    /// [`HASH`] or [`ARRAY`].
    pub const KIND: i16 = 0;
    /// The largest number of elements; of a ring, its bytes, a power of two.
    pub const ENTRIES: i16 = 8;
    /// Bytes of a key, a multiple of 8.
    pub const KEY: i16 = 16;
    /// Bytes of a value, a multiple of 8; of one copy, if each record has its own.
    pub const VALUE: i16 = 24;
    /// Bytes of an element. In a hash table it is a link, the key and the value.
    pub const STRIDE: i16 = 32;
    /// The number of cells, less one. There is a power of two of them.
    pub const MASK: i16 = 40;
    /// Distance to the cells.
    pub const CELLS: i16 = 48;
    /// Distance to where element 0 would be: the first one has the number 1. Of an array and a ring, to the data.
    pub const ELEMENTS: i16 = 56;
    /// Distance to the words that change: those of `words` or `ring_words`.
    pub const WORDS: i16 = 64;
    /// Of a ring, the number of bits of a position in it.
    pub const SHIFT: i16 = 72;
    /// The same as [`VALUE`] if each record has its own copy of a value, one behind the other; otherwise 0.
    pub const OWN: i16 = 80;
    /// Bytes of all copies of a value if each record has its own; otherwise 0.
    pub const OTHERS: i16 = 88;
    /// Bytes of a description.
    pub const BYTES: usize = 128;

    /// An array.
    pub const ARRAY: i32 = 1;
    /// A hash table.
    pub const HASH: i32 = 2;
    /// A ring.
    pub const RING: i32 = 3;
}

/// Offsets of the words of a hash table that change.
pub mod words {
    /// Who changes the table: 0, or a thread's number with its record's number + 1 in the upper half.
    pub const LOCK: i16 = 0;
    /// The number of elements.
    pub const LIVE: i16 = 8;
    /// How many elements of the memory were ever given out.
    pub const GIVEN: i16 = 16;
    /// The first element of the list of free ones, or 0. [`FREE_LAST`] is the last one.
    pub const FREE_FIRST: i16 = 24;
    /// See [`FREE_FIRST`].
    pub const FREE_LAST: i16 = 32;
    /// Bytes of all words.
    pub const BYTES: usize = 64;
    /// A cell whose element was removed. A cell is 0, this, or the upper half of a hash with an element's number.
    pub const REMOVED: u64 = u64::MAX;
}

/// Offsets of the words of a ring that change.
pub mod ring_words {
    /// The position behind the last record.
    pub const PRODUCER: i16 = 0;
    /// The position up to which the reader took records.
    pub const CONSUMER: i16 = 64;
    /// 1 while the reader waits, a futex.
    pub const READER: i16 = 128;
    /// Bytes of all words.
    pub const BYTES: usize = 192;
    /// Set in a record's length until the record is complete.
    pub const BUSY: u32 = 1 << 31;
    /// Set in the length of a record that is none.
    pub const DISCARDED: u32 = 1 << 30;
}

/// Results of the functions, beside 0.
pub mod errno {
    /// There is no such element.
    pub const ENOENT: i32 = -2;
    /// The table is full.
    pub const E2BIG: i32 = -7;
    /// The ring has no space.
    pub const EAGAIN: i32 = -11;
    /// Memory is not there.
    pub const EFAULT: i32 = -14;
    /// The table stayed locked.
    pub const EBUSY: i32 = -16;
    /// The element exists.
    pub const EEXIST: i32 = -17;
    /// The arguments make no sense.
    pub const EINVAL: i32 = -22;
}

/// How often a thread tries to lock a table. Each attempt gives the processor to others, so that a holder goes on; one
/// that was killed without anybody to clean up after it must not stop the program.
pub const ATTEMPTS: i32 = 1 << 20;

/// Numbers of the processor's system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SystemCalls {
    pub sched_yield: i32,
    pub futex: i32,
    pub clock_gettime: i32,
    pub process_vm_readv: i32,
}

/// What the functions know of their host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFacts {
    /// The threads' records.
    pub record: RecordOffsets,
    /// System calls.
    pub calls: SystemCalls,
}

/// The functions.
pub fn module(host: &HostFacts) -> Module {
    let functions = vec![
        hash::lookup(host),
        hash::update(host),
        hash::delete(host),
        hash::for_each(host),
        ring::output(host),
        ring::waiting(),
        read::copy(host),
        read::copy_text(host),
        read::read(host),
        read::read_text(host),
        give_way(host),
        time(host),
        random(host),
    ];
    Module::from(functions).with_externs(PRIMITIVES)
}

/// The word at an address that others write.
fn load<'b>(f: &'b Builder, address: Scalar<'b>) -> Scalar<'b> {
    f.call(LOAD, &[address])
}

/// A system call. `memory` has space for six words.
fn system_call<'b>(
    f: &'b Builder,
    memory: Scalar<'b>,
    number: i32,
    args: &[Scalar<'b>],
) -> Scalar<'b> {
    for (offset, arg) in (0..).step_by(8).zip(args) {
        memory.store_u64(offset, *arg);
    }
    f.call(SYSTEM_CALL, &[f.number(number), memory])
}

fn give_way(host: &HostFacts) -> crate::func::LirFunc {
    build(
        YIELD,
        "Gives the processor to other threads; 0.",
        [],
        |f, []| {
            system_call(f, f.slot(48), host.calls.sched_yield, &[]);
            f.ret(0);
        },
    )
}

/// The time of the process's own function for it, which is the kernel's, or that of a system call.
fn time(host: &HostFacts) -> crate::func::LirFunc {
    /// `CLOCK_MONOTONIC`.
    const MONOTONIC: i32 = 1;
    const SECOND: i32 = 1_000_000_000;
    build(TIME, "Nanoseconds of the monotonic clock.", [], |f, []| {
        let clock = f.call(THREAD, &[]).load_u64(host.record.clock);
        let (time, memory) = (f.slot(16), f.slot(48));
        let which = f.number(MONOTONIC);
        f.if_else(
            clock.ne(0),
            || {
                f.call(CALL, &[clock, which, time, time, time]);
            },
            || {
                system_call(f, memory, host.calls.clock_gettime, &[which, time]);
            },
        );
        // The function wrote it.
        let [seconds, rest] = [0, 8].map(|offset| load(f, time + offset));
        f.ret(seconds * SECOND + rest);
    })
}

/// Xorshift (Marsaglia, 2003) with the shifts 13, 7 and 17.
fn random(host: &HostFacts) -> crate::func::LirFunc {
    build(RANDOM, "A random number of 32 bits.", [], |f, []| {
        let thread = f.call(THREAD, &[]);
        let x = thread.load_u64(host.record.random);
        let x = x ^ (x << 13);
        let x = x ^ (x >> 7);
        let x = x ^ (x << 17);
        thread.store_u64(host.record.random, x);
        f.ret((x >> 16).ext(crate::op::ExtOp::Zext, Size::U32));
    })
}
