//! Locks: words that are 0 while nobody holds them.

use super::NO_BOUND;
use crate::builder::build;
use crate::func::{LoopForm, MemoryOperand, Module};
use crate::helpers::Helper;

/// The function's name.
pub const WAIT_LOCK: &str = "wait_lock";
/// Result: the lock was taken.
pub const GOT: i32 = 1;
/// Result: the controller holds the lock, and this thread belongs to it.
pub const OWN: i32 = 2;

/// Attempts where the kernel's verifier follows each one.
const INLINE_ATTEMPTS: u32 = 100;

/// What a lock that is held does to those who wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiters {
    /// They are processors. One of the controller's threads does not wait for the controller.
    Processors,
    /// They are threads, and so are the holders: each attempt gives the processor away.
    Threads,
}

/// `wait_lock`, for a lock that an exchange found held, in the first `words` words of the shared state.
/// It waits that many nanoseconds. The kernel's verifier follows an open loop and a callback once; without
/// both, there are a hundred attempts at most.
pub fn wait_lock(nanoseconds: u32, form: LoopForm, words: u32, waiters: Waiters) -> Module {
    let contract = "\
Waits for a lock and takes it; returns `GOT`, `OWN` or 0. Nobody waits for himself: system calls, page faults and
interrupts of the controller's own threads come to handlers as well, and a signal of a thread that holds a lock.
lock: its number among the words of the shared state. holder: what to store, among threads below the thread's number. was: what the lock's word
contained; the upper half is the holder's number, if it has one: a process's, or among threads a thread's.
Cost: an exchange and a look at the clock for each attempt.";
    let params = ["lock", "holder", "was"];
    let wait_lock = build(WAIT_LOCK, contract, params, |f, [lock, holder, was]| {
        let owner = was >> 32;
        let holder = match waiters {
            Waiters::Processors => {
                f.if_(owner.ne(0), || {
                    let process = f.helper(Helper::PidTgid, &[]) >> 32;
                    f.ret_if(process.eq(owner), OWN);
                });
                holder
            }
            Waiters::Threads => {
                let upper = f.helper(Helper::PidTgid, &[]) << 32;
                f.ret_if((upper >> 32).eq(owner), OWN);
                holder + upper
            }
        };
        let end = f.helper(Helper::TimeNs, &[]) + nanoseconds.cast_signed();
        let attempt = || {
            // Always false: it bounds the address, which a callback cannot take from outside.
            f.ret_if(lock.ge(words.cast_signed()), 0);
            let word = f.addr(MemoryOperand::State(0)) + (lock << 3);
            let other = word.compare_exchange(0, 0, holder);
            f.ret_if(other.eq(0), GOT);
            if waiters == Waiters::Threads {
                f.helper(Helper::Yield, &[other]);
            }
            f.break_if(f.helper(Helper::TimeNs, &[]).gt(end));
        };
        match form {
            LoopForm::Open => f.repeat_open(NO_BOUND, attempt),
            LoopForm::Callback => f.repeat(NO_BOUND, attempt),
            LoopForm::Inline => f.repeat_inline(INLINE_ATTEMPTS, attempt),
        }
        f.ret(0);
    });
    Module::from(vec![wait_lock])
}
