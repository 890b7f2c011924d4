//! Locks: words that are 0 while nobody holds them.

use super::module_of;
use crate::builder::build;
use crate::func::{Func, MAX_REPEAT, Module};
use crate::helpers::Helper;

/// The function's name.
pub const TRY_LOCK: &str = "try_lock";
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

/// The function that waits for a lock that is held.
const WAIT_LOCK: &str = "wait_lock";

/// `try_lock`, and `wait_lock`, so that the usual way needs no registers that calls preserve.
pub fn try_lock(patience: Patience) -> Module {
    let contract = "\
Takes a lock; returns `GOT`, `OWN` or 0. The controller's own threads do not wait for it: its system calls,
page faults and interrupts come to handlers as well.
word: the lock's address; if the controller holds it, the upper half is its process number. holder: what to
store.
Cost: an exchange, 4 instructions; if the lock is held, a call and an exchange for each further attempt.";
    let try_lock = build(
        TRY_LOCK,
        contract,
        ["word", "holder"],
        |f, [word, holder]| {
            let was = word.compare_exchange(0, 0, holder);
            f.ret_if(was.eq(0), GOT);
            f.ret(f.call(WAIT_LOCK, &[word, holder, was]));
        },
    );
    module_of(vec![try_lock, wait_lock(patience)])
}

fn wait_lock(patience: Patience) -> Func {
    let contract = "\
Waits for a lock and takes it; returns `GOT`, `OWN` or 0.
word, holder: see `try_lock`. was: what the word contained.
Cost: an exchange for each attempt.";
    build(WAIT_LOCK, contract, ["word", "holder", "was"], |f, p| {
        let [word, holder, was] = p;
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
    })
}
