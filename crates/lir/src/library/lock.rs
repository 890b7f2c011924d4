//! Locks: words that are 0 while nobody holds them.

use super::module_of;
use crate::builder::build;
use crate::func::{MAX_REPEAT, MemoryPlace, Module};
use crate::helpers::Helper;

/// The function's name.
pub const WAIT_LOCK: &str = "wait_lock";
/// Result: the lock was taken.
pub const GOT: i32 = 1;
/// Result: the controller holds the lock, and this thread belongs to it.
pub const OWN: i32 = 2;

/// How long a lock is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// That many more attempts without a pause, each of which the kernel's verifier follows.
    Attempts(u32),
    /// That many nanoseconds, where loops need no bound. Time ends the loop rather than a counter, so the
    /// verifier follows it once.
    Nanoseconds(u32),
}

/// `wait_lock`, for a lock that an exchange found held, in the first `words` words of the shared state.
pub fn wait_lock(patience: Patience, words: u32) -> Module {
    let contract = "\
Waits for a lock and takes it; returns `GOT`, `OWN` or 0. The controller's own threads do not wait for it: its
system calls, page faults and interrupts come to handlers as well.
lock: its number among the words of the shared state. holder: what to store. was: what the lock's word
contained; if the controller holds it, the upper half is its process number.
Cost: an exchange for each attempt.";
    let params = ["lock", "holder", "was"];
    let wait_lock = build(WAIT_LOCK, contract, params, |f, [lock, holder, was]| {
        // Always false: it bounds the address.
        f.ret_if(lock.ge(words.cast_signed()), 0);
        let word = f.addr(MemoryPlace::State(0)) + (lock << 3);
        let owner = was >> 32;
        f.if_(owner.ne(0), || {
            let process = f.helper(Helper::PidTgid, &[]) >> 32;
            f.ret_if(process.eq(owner), OWN);
        });
        let attempt = || f.ret_if(word.compare_exchange(0, 0, holder).eq(0), GOT);
        match patience {
            Patience::Attempts(more) => f.repeat_inline(more, attempt),
            Patience::Nanoseconds(most) => {
                let end = f.helper(Helper::TimeNs, &[]) + most.cast_signed();
                f.repeat_open(MAX_REPEAT, || {
                    attempt();
                    f.break_if(f.helper(Helper::TimeNs, &[]).gt(end));
                });
            }
        }
        f.ret(0);
    });
    module_of(vec![wait_lock])
}
