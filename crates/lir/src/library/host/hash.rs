//! Hash tables and arrays in memory that processes share.
//!
//! # How a hash table works
//! A power of two of *cells*, at least twice as many as elements, says where elements are: a cell is empty (0), has
//! the number of an element with the upper half of its key's hash, or had one that was removed (`REMOVED`). A key's
//! cells are those from its hash on, up to the first empty one. Elements never move, so that their addresses stay.
//!
//! Look-ups take no lock. Whoever inserts or removes holds the table's lock, and changes one cell by one store:
//!
//! - *No key twice.* An insertion searches all of the key's cells, up to the empty one, before it uses the first that
//!   had another key. No other thread inserts in between, so reuse cannot race with a second insertion of the key.
//! - *No key lost.* A cell becomes empty only if the next one is empty: no key's cells go on behind it then. So from
//!   the first cell of a key to its element there never is an empty one, and a look-up that began at any time finds
//!   an element that stays in the table.
//! - *No wrong element.* The element is complete before its cell is stored. One that is given back can get another
//!   key while a look-up compares; so the look-up takes the cell again after a match. A cell that is the same has
//!   an element whose key has the same hash, or that was not changed. What was removed is used again after others,
//!   because handlers may still have the address.
//! - *Death.* A thread that is killed while it holds the lock has changed a cell or not. The rest (the count, the list
//!   of what was given back) follows from the cells, and the controller computes it again before it releases the lock.

use super::{
    ATTEMPTS, CALL, DELETE, FOR_EACH, HostFacts, LOOKUP, THREAD, UPDATE, description as is, errno,
    load, system_call, words,
};
use crate::builder::{Builder, Scalar, Var, build};
use crate::func::LirFunc;
use crate::library::NO_BOUND;
use crate::op::Size;

/// A large odd number close to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The upper half of a word.
const UPPER: u64 = 0xffff_ffff << 32;
/// While fewer elements were given back, new ones are taken: handlers may have an address for a while.
const SPARE: i32 = 32;
/// The link in front of an element's key.
const LINK: i32 = 8;

/// The hash of a key, by its words.
pub fn hash_of(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| {
        let product = (hash ^ word).wrapping_mul(GOLDEN);
        product ^ (product >> 29)
    })
}

/// A table, in a function's code.
struct Table<'b> {
    f: &'b Builder,
    at: Scalar<'b>,
}

/// The state of a search.
struct Search<'b> {
    /// The upper half of the key's hash.
    tag: Scalar<'b>,
    /// The cell's position.
    position: Var<'b>,
    /// The address of the first cell that can take the key.
    free: Var<'b>,
    /// The element, or 0.
    element: Var<'b>,
    /// The cell's content.
    content: Var<'b>,
}

impl<'b> Table<'b> {
    fn get(&self, what: i16) -> Scalar<'b> {
        self.at.load_u64(what)
    }

    fn words(&self) -> Scalar<'b> {
        self.at + self.get(is::WORDS)
    }

    /// The address of an element. Numbers begin with 1.
    fn element(&self, number: Scalar<'b>) -> Scalar<'b> {
        self.at + self.get(is::ELEMENTS) + number * self.get(is::STRIDE)
    }

    fn cell(&self, position: impl crate::builder::IntoOperand<'b>) -> Scalar<'b> {
        let position = position.val(self.f) & self.get(is::MASK);
        self.at + self.get(is::CELLS) + (position << 3)
    }

    /// Runs code for each word of `bytes` bytes, with its offset.
    fn each_word(&self, bytes: Scalar<'b>, code: impl FnOnce(Scalar<'b>)) {
        let offset = self.f.var("offset", 0);
        self.f.repeat_open(NO_BOUND, || {
            self.f.break_if(offset.ge(bytes));
            code(offset.get());
            offset.set(offset + 8);
        });
    }

    fn hash(&self, key: Scalar<'b>) -> Scalar<'b> {
        let hash = self.f.var("hash", 0);
        self.each_word(self.get(is::KEY), |offset| {
            let word = (key + offset).load_u64(0);
            let product = (hash ^ word) * GOLDEN;
            hash.set(product ^ (product >> 29));
        });
        hash.get()
    }

    /// Searches the cells of a key.
    fn search(&self, key: Scalar<'b>) -> Search<'b> {
        let f = self.f;
        let (entries, bytes) = (self.get(is::ENTRIES), self.get(is::KEY));
        let hash = self.hash(key);
        let search = Search {
            tag: hash & UPPER,
            position: f.var("position", hash & self.get(is::MASK)),
            free: f.var("free", 0),
            element: f.var("element", 0),
            content: f.var("content", 0),
        };
        let end = search.position + self.get(is::MASK);
        f.block(|done| {
            f.repeat_open(NO_BOUND, || {
                let cell = self.cell(search.position);
                search.content.set(load(f, cell));
                f.if_(search.content.eq(0), || {
                    f.if_(search.free.eq(0), || search.free.set(cell));
                    done.leave();
                });
                f.if_(search.content.eq(words::REMOVED), || {
                    f.if_(search.free.eq(0), || search.free.set(cell));
                });
                f.block(|other| {
                    let number = search.content ^ search.tag;
                    other.leave_if((number - 1).ge(entries));
                    let element = self.element(number);
                    self.each_word(bytes, |offset| {
                        let (ours, theirs) = (key + offset, element + offset + LINK);
                        other.leave_if(ours.load_u64(0).ne(theirs.load_u64(0)));
                    });
                    other.leave_if(load(f, cell).ne(search.content));
                    search.element.set(element);
                    done.leave();
                });
                done.leave_if(search.position.eq(end));
                search.position.set(search.position + 1);
            });
        });
        search
    }

    /// Takes the table's lock, or returns from the function.
    fn lock(&self, host: &HostFacts) {
        let f = self.f;
        let thread = f.call(THREAD, &[]);
        let slot = thread.load_bytes(Size::U32, host.record.slot) + 1;
        let owner = (slot << 32) | thread.load_bytes(Size::U32, host.record.thread);
        let (words, memory) = (self.words(), f.slot(48));
        let left = f.var("left", ATTEMPTS);
        f.repeat_open(NO_BOUND, || {
            f.break_if(words.compare_exchange(words::LOCK, 0, owner).eq(0));
            left.set(left - 1);
            f.ret_if(left.eq(0), errno::EBUSY);
            system_call(f, memory, host.calls.sched_yield, &[]);
        });
    }

    /// Releases the lock, and returns a result.
    fn unlock(&self, result: i32) {
        self.words().store_u64(words::LOCK, 0);
        self.f.ret(result);
    }

    /// The address of this record's copy of a value, or of the value that all share.
    fn own(&self, host: &HostFacts, value: Scalar<'b>) -> Scalar<'b> {
        let slot = self
            .f
            .call(THREAD, &[])
            .load_bytes(Size::U32, host.record.slot);
        value + slot * self.get(is::OWN)
    }

    /// Copies a value.
    fn copy(&self, to: Scalar<'b>, from: Scalar<'b>, bytes: i16) {
        self.each_word(self.get(bytes), |offset| {
            (to + offset).store_u64(0, (from + offset).load_u64(0));
        });
    }

    /// The number of an element that nobody uses; releases the lock and returns from the function if there is none.
    fn take(&self) -> Scalar<'b> {
        let (f, words) = (self.f, self.words());
        let entries = self.get(is::ENTRIES);
        let given = words.load_u64(words::GIVEN);
        let number = f.var("number", given + 1);
        f.block(|taken| {
            f.if_((given - words.load_u64(words::LIVE)).lt(SPARE), || {
                f.if_(given.lt(entries), || {
                    words.store_u64(words::GIVEN, number);
                    taken.leave();
                });
            });
            number.set(words.load_u64(words::FREE_FIRST));
            f.if_((number - 1).ge(entries), || self.unlock(errno::E2BIG));
            let next = self.element(number.get()).load_u64(0);
            words.store_u64(words::FREE_FIRST, next);
            f.if_(next.eq(0), || words.store_u64(words::FREE_LAST, 0));
        });
        number.get()
    }

    /// Gives an element back, behind the others.
    fn give(&self, number: Scalar<'b>) {
        let (f, words) = (self.f, self.words());
        self.element(number).store_u64(0, 0);
        let last = words.load_u64(words::FREE_LAST);
        f.if_else(
            (last - 1).lt(self.get(is::ENTRIES)),
            || self.element(last).store_u64(0, number),
            || words.store_u64(words::FREE_FIRST, number),
        );
        words.store_u64(words::FREE_LAST, number);
        words.store_u64(words::LIVE, words.load_u64(words::LIVE) - 1);
    }
}

/// The address of an array's element; returns `none` from the function if there is none.
fn array_element<'b>(table: &Table<'b>, key: Scalar<'b>, none: i32) -> Scalar<'b> {
    let index = key.load_bytes(Size::U32, 0);
    table.f.ret_if(index.ge(table.get(is::ENTRIES)), none);
    table.element(index)
}

pub(super) fn lookup(host: &HostFacts) -> LirFunc {
    let contract = "\
The address of the value that a table has for a key, or 0. Takes no lock.
Cost: about 30 instructions for a key of one word.";
    build(LOOKUP, contract, ["table", "key"], |f, [at, key]| {
        let table = Table { f, at };
        f.if_(table.get(is::KIND).eq(is::ARRAY), || {
            f.ret(array_element(&table, key, 0));
        });
        let element = table.search(key).element;
        f.ret_if(element.eq(0), 0);
        f.ret(table.own(host, element + LINK + table.get(is::KEY)));
    })
}

pub(super) fn update(host: &HostFacts) -> LirFunc {
    let contract = "\
Sets the value of a key. flags: 1 to only insert. 0, `EEXIST`, `E2BIG` if the table is full, or `EBUSY`.";
    let params = ["table", "key", "value", "flags"];
    build(UPDATE, contract, params, |f, [at, key, value, flags]| {
        let table = Table { f, at };
        f.if_(table.get(is::KIND).eq(is::ARRAY), || {
            let element = array_element(&table, key, errno::E2BIG);
            f.ret_if(flags.has(1), errno::EEXIST);
            table.copy(element, value, is::VALUE);
            f.ret(0);
        });
        table.lock(host);
        let search = table.search(key);
        f.if_(search.element.ne(0), || {
            f.if_(flags.has(1), || table.unlock(errno::EEXIST));
            let to = search.element.get() + LINK + table.get(is::KEY);
            table.copy(table.own(host, to), value, is::VALUE);
            table.unlock(0);
        });
        f.if_(search.free.eq(0), || table.unlock(errno::E2BIG));
        let number = table.take();
        let to = table.element(number) + LINK;
        table.copy(to, key, is::KEY);
        let first = to + table.get(is::KEY);
        // The copies of other records.
        table.each_word(table.get(is::OTHERS), |offset| {
            (first + offset).store_u64(0, 0);
        });
        table.copy(table.own(host, first), value, is::VALUE);
        // From here on it is in the table.
        search.free.get().store_u64(0, search.tag | number);
        let words = table.words();
        words.store_u64(words::LIVE, words.load_u64(words::LIVE) + 1);
        table.unlock(0);
    })
}

pub(super) fn delete(host: &HostFacts) -> LirFunc {
    let contract = "Removes a key: 0, `ENOENT`, or `EBUSY`.";
    build(DELETE, contract, ["table", "key"], |f, [at, key]| {
        let table = Table { f, at };
        f.ret_if(table.get(is::KIND).eq(is::ARRAY), errno::EINVAL);
        table.lock(host);
        let search = table.search(key);
        f.if_(search.element.eq(0), || table.unlock(errno::ENOENT));
        let position = search.position;
        f.if_else(
            load(f, table.cell(position + 1)).ne(0),
            || table.cell(position).store_u64(0, words::REMOVED),
            || {
                // This one and those in front of it that had elements are empty now, from the last one on.
                let first = position - table.get(is::MASK);
                f.repeat_open(NO_BOUND, || {
                    table.cell(position).store_u64(0, 0);
                    f.break_if(position.eq(first));
                    position.set(position - 1);
                    let before = load(f, table.cell(position));
                    f.break_if(before.ne(words::REMOVED));
                });
            },
        );
        table.give(search.content ^ search.tag);
        table.unlock(0);
    })
}

pub(super) fn for_each(host: &HostFacts) -> LirFunc {
    let contract = "\
Calls `function(table, key, value, context)` for each element, until it returns something else than 0; the number of
calls. The function may remove its element. Elements that come or go meanwhile may be passed or not.";
    let params = ["table", "function", "context", "flags"];
    build(
        FOR_EACH,
        contract,
        params,
        |f, [at, function, context, _]| {
            let table = Table { f, at };
            f.ret_if(table.get(is::KIND).eq(is::ARRAY), errno::EINVAL);
            let (position, calls) = (f.var("position", 0), f.var("calls", 0));
            f.repeat_open(NO_BOUND, || {
                f.break_if(position.gt(table.get(is::MASK)));
                let content = load(f, table.cell(position));
                position.set(position + 1);
                let number = content & u64::from(u32::MAX);
                f.if_((number - 1).lt(table.get(is::ENTRIES)), || {
                    calls.set(calls + 1);
                    let key = table.element(number) + LINK;
                    let value = table.own(host, key + table.get(is::KEY));
                    let stop = f.call(CALL, &[function, at, key, value, context]);
                    f.ret_if(stop.ne(0), calls);
                });
            });
            f.ret(calls);
        },
    )
}
