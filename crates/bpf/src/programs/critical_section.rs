//! The controller's critical section: a program that takes the locks of globals, copies their
//! values, empties those that the controller takes, and releases the locks.
//!
//! A thread that holds a lock can be switched out, interrupted, or wait for a run queue that the
//! handler's processor keeps locked; a handler that waits for the lock then waits in vain. The
//! controller therefore takes no locks itself: it has the kernel run this program
//! (`BPF_PROG_TEST_RUN`),
//! with interrupts off. Only a non-maskable interrupt or the hypervisor can interrupt it.
//! Since 6.14 a program can turn interrupts off. On older kernels the controller has it run on
//! another processor, in an interrupt. That costs some microseconds more, and the other processor's
//! time.
//!
//! A handler that is interrupted there, or was switched out, may hold one of the locks, and
//! continues only afterwards. The program then gives up at once, and the controller tries again. No
//! other handler of that processor runs in the meantime (its busy word is [`BUSY`]).

use std::ops::Deref;

use spile_cast::Cast;
use spile_layout::critical::{
    BUSY, CopyLocation, CriticalLayout, ENTRY, ElementCopies, LockedGlobal, answer, request,
};
use spile_layout::{HELD, percpu};
use spile_lir::builder::{BlockExit, Builder, Scalar, build};
use spile_lir::func::{Extern, MemoryOperand};
use spile_lir::helpers::Helper;
use spile_lir::op::Size;
use spile_lir::{LirFunc, Module};

use crate::compiled::CRITICAL_PROGRAM;

/// Attempts to take a lock that a handler on another processor holds.
const TRIES: u32 = 64;
/// Limit on the bytes that are copied word by word; a helper copies more.
const FEW_BYTES: u32 = 64;

/// The kernel's function that turns interrupts off, and saves their flags at an address.
pub(crate) const SAVE: &str = "bpf_local_irq_save";
/// The kernel's function that restores the flags.
pub(crate) const RESTORE: &str = "bpf_local_irq_restore";
/// The function that takes a lock.
const LOCK: &str = "critical_lock";

/// The program, and the functions that it calls.
pub(crate) fn module(critical: &CriticalLayout) -> Module {
    let mut funcs = vec![section(critical), try_lock()];
    for guarded in &critical.globals {
        if let Some(elements) = Elements::of(guarded) {
            funcs.push(elements.copy_one());
            if elements.known.is_some() {
                funcs.push(elements.copy_known());
            }
        }
    }
    let switches = [SAVE, RESTORE].map(|name| Extern {
        name: name.into(),
        params: 1,
    });
    let switches = switches.into_iter().filter(|_| critical.interrupts_off);
    Module {
        funcs,
        externs: switches.collect(),
        ..Module::default()
    }
}

fn state(f: &Builder, offset: u32) -> Scalar<'_> {
    f.addr(MemoryOperand::State(offset))
}

fn section(critical: &CriticalLayout) -> LirFunc {
    let contract = "\
Copies the globals that the controller wants under their locks, and empties those that it takes.
ctx: the words of the request. Returns whether the copies are complete: a lock can be held.
Cost: an exchange for each lock, and a copy of each value.";
    build(CRITICAL_PROGRAM, contract, ["ctx"], |f, [ctx]| {
        let word = |n: usize| ctx.load_u64(8 * n.fit::<i16>());
        let (wanted, taken) = (word(request::WANTED), word(request::TAKEN));
        let flags = f.slot(8);
        if critical.interrupts_off {
            f.call(SAVE, &[flags]);
        }
        let busy = f.addr(MemoryOperand::Cpu(percpu::BUSY));
        let before = busy.load_u64(0);
        // The handler that was interrupted here releases its locks only after the section.
        let tries = f.var("tries", 1);
        f.if_(before.eq(0), || {
            busy.store_u64(0, BUSY);
            tries.set(TRIES.cast_signed());
        });
        let section = Section {
            f,
            critical,
            wanted,
            taken,
            tries: tries.get(),
            emptied: f.slot(8),
        };
        let result = f.var("result", answer::BUSY);
        section.under_locks(&mut Vec::new(), &|| result.set(answer::DONE));
        busy.store_u64(0, before);
        if critical.interrupts_off {
            f.call(RESTORE, &[flags]);
        }
        f.ret(result);
    })
}

/// What the code of the program has.
struct Section<'a, 'b> {
    f: &'b Builder,
    critical: &'a CriticalLayout,
    /// Bits of the globals to copy ([`request::WANTED`]).
    wanted: Scalar<'b>,
    /// Bits of the globals to empty ([`request::TAKEN`]).
    taken: Scalar<'b>,
    /// The number of attempts to take a lock.
    tries: Scalar<'b>,
    /// A word: nonzero while the current array is emptied.
    emptied: Scalar<'b>,
}

impl<'b> Section<'_, 'b> {
    /// Takes all locks and copies the globals, then runs `copied`, and releases the locks in the opposite
    /// order. A lock that cannot be taken leads to the release of those in front of it: a location for each,
    /// so the verifier follows each release once.
    fn under_locks(&self, missed: &mut Vec<BlockExit<'b>>, copied: &dyn Fn()) {
        self.f.block(|exit| {
            let n = missed.len();
            missed.push(exit);
            let Some(guarded) = self.critical.globals.get(n) else {
                self.take_locks(missed);
                self.copy_all();
                copied();
                return;
            };
            self.under_locks(missed, copied);
            self.if_wanted(n, || {
                state(self.f, guarded.lock).exchange(0, 0);
            });
        });
    }

    /// Runs code if the controller wants the global.
    fn if_wanted(&self, n: usize, code: impl FnOnce()) {
        self.f.if_((self.wanted & (1 << n)).ne(0), code);
    }

    fn take_locks(&self, missed: &[BlockExit<'b>]) {
        for (n, guarded) in self.critical.globals.iter().enumerate() {
            self.if_wanted(n, || {
                let lock = state(self.f, guarded.lock);
                let got = self.f.call(LOCK, &[lock, self.tries]);
                missed[n].leave_if(got.eq(0));
            });
        }
    }

    fn copy_all(&self) {
        for (n, guarded) in self.critical.globals.iter().enumerate() {
            let taken = self.taken & (1 << n);
            self.if_wanted(n, || match &guarded.copy {
                CopyLocation::Words { from, to, value } => {
                    self.words((*from, *to), value.size(), taken);
                }
                CopyLocation::Elements(_) => {
                    if let Some(elements) = Elements::of(guarded) {
                        self.emptied.store_u64(0, taken);
                        self.elements(&elements);
                    }
                }
            });
        }
    }

    /// Copies a scalar or statistic, and empties it if it is taken.
    fn words(&self, (from, to): (u32, u32), size: u32, taken: Scalar<'b>) {
        let f = self.f;
        copy(f, (state(f, to), 0), state(f, from), size);
        f.if_(taken.ne(0), || {
            let from = state(f, from);
            for offset in (0..size).step_by(8) {
                from.store_u64(offset.fit(), 0);
            }
        });
    }

    /// Copies an array, by the list of its keys or by an iteration.
    fn elements(&self, array: &Elements<'_>) {
        let f = self.f;
        f.block(|done| {
            if let Some(known) = array.known {
                f.block(|iteration| {
                    iteration.leave_if(state(f, known.fresh).load_u64(0).ne(0));
                    let keys = state(f, known.keys).load_u64(0);
                    iteration.leave_if(keys.gt(array.max.cast_signed()));
                    state(f, array.count).store_u64(0, keys);
                    f.repeat_call(keys, &array.key_function(), self.emptied);
                    done.leave();
                });
            }
            state(f, array.count).store_u64(0, 0);
            let map = f.addr(MemoryOperand::Map(array.from.clone()));
            let function = f.addr(MemoryOperand::Func(array.element_function()));
            f.helper(
                Helper::ForEach,
                &[map, function, self.emptied, f.constant(0)],
            );
        });
    }
}

/// `critical_lock(word, tries)`.
fn try_lock() -> LirFunc {
    let contract = "\
Takes a lock; returns 1, or 0 if others hold it.
word: the lock's address. tries: the number of attempts.
Cost: an exchange for each attempt.";
    build(LOCK, contract, ["word", "tries"], |f, [word, tries]| {
        let left = f.var("left", tries.opaque());
        f.repeat_open(TRIES, || {
            f.ret_if(word.compare_exchange(0, 0, HELD).eq(0), 1);
            left.set(left - 1);
            f.break_if(left.eq(0));
        });
        f.ret(0);
    })
}

/// An array whose elements are copied.
struct Elements<'a> {
    /// The number of the global, for the names of functions.
    number: u32,
    copies: &'a ElementCopies,
}

impl Deref for Elements<'_> {
    type Target = ElementCopies;

    fn deref(&self) -> &ElementCopies {
        self.copies
    }
}

impl<'a> Elements<'a> {
    fn of(guarded: &'a LockedGlobal) -> Option<Elements<'a>> {
        match &guarded.copy {
            CopyLocation::Elements(copies) => Some(Elements {
                number: guarded.global.0,
                copies,
            }),
            CopyLocation::Words { .. } => None,
        }
    }

    fn element_function(&self) -> String {
        format!("critical_{}", self.number)
    }

    fn key_function(&self) -> String {
        format!("critical_key_{}", self.number)
    }

    /// The copy at an index; returns if there is none.
    fn entry<'b>(&self, f: &'b Builder, index: Scalar<'b>) -> Scalar<'b> {
        let key = f.slot(8);
        key.store_bytes(Size::U32, 0, index);
        let copies = f.addr(MemoryOperand::Map(self.to.clone()));
        let entry = f.helper(Helper::MapLookup, &[copies, key]);
        f.ret_if(entry.eq(0), 0);
        entry
    }

    /// The callback for each element.
    fn copy_one(&self) -> LirFunc {
        let contract = "\
Copies an element, and removes it if the array is taken. Returns 0.
map: the array. key, value: the element. taken: a word that is nonzero if the array is taken.
Cost: a look-up, and the copy.";
        let params = ["map", "key", "value", "taken"];
        build(&self.element_function(), contract, params, |f, p| {
            let [map, key, value, taken] = p;
            let index = state(f, self.count).load_u64(0);
            // Always false, because an array has no more elements than its limit: it bounds the index.
            f.ret_if(index.ge(self.max.cast_signed()), 0);
            let entry = self.entry(f, index);
            entry.store_u64(0, 1);
            copy(f, (entry, ENTRY), key, self.key);
            copy(f, (entry, ENTRY + self.key), value, self.value);
            state(f, self.count).store_u64(0, index + 1);
            f.if_(taken.load_u64(0).ne(0), || {
                f.helper(Helper::MapDelete, &[map, key]);
            });
        })
    }

    /// The callback for each key that the controller wrote to an entry.
    fn copy_known(&self) -> LirFunc {
        let contract = "\
Copies the element with the key in an entry, and removes it if the array is taken. The entry's first word
says whether there is an element. Returns 0.
index: the entry's. taken: a word that is nonzero if the array is taken.
Cost: two look-ups, and the copy of the value.";
        let params = ["index", "taken"];
        build(
            &self.key_function(),
            contract,
            params,
            |f, [index, taken]| {
                let entry = self.entry(f, index);
                entry.store_u64(0, 0);
                let array = || f.addr(MemoryOperand::Map(self.from.clone()));
                let key = entry + ENTRY.cast_signed();
                let value = f.helper(Helper::MapLookup, &[array(), key]);
                f.ret_if(value.eq(0), 0);
                entry.store_u64(0, 1);
                copy(f, (entry, ENTRY + self.key), value, self.value);
                f.if_(taken.load_u64(0).ne(0), || {
                    f.helper(Helper::MapDelete, &[array(), key]);
                });
            },
        )
    }
}

/// Copies words to an offset from an address; larger amounts with a helper call.
fn copy<'b>(f: &'b Builder, (to, offset): (Scalar<'b>, u32), from: Scalar<'b>, size: u32) {
    if size <= FEW_BYTES {
        for off in (0..size).step_by(8) {
            to.store_u64((offset + off).fit(), from.load_u64(off.fit()));
        }
    } else {
        let to = to + offset.cast_signed();
        f.helper(Helper::Read, &[to, f.number(size.cast_signed()), from]);
    }
}
