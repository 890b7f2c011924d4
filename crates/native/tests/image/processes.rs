//! Threads of two processes that use the same tables and the same ring at once, and processes that are killed.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spile_lir::library::host::errno;

use crate::world::{Bytes, ENTRIES, RING, TABLE, World, at};

/// A child that runs code of its own; killed and awaited when dropped.
struct Child(libc::pid_t);

impl Child {
    fn new(code: impl FnOnce()) -> Child {
        // SAFETY: the child only runs handlers and threads of its own, and ends without the parent's destructors.
        match unsafe { libc::fork() } {
            0 => {
                code();
                // SAFETY: it is the end.
                unsafe { libc::_exit(0) }
            }
            child => {
                assert!(child > 0, "no child");
                Child(child)
            }
        }
    }

    fn kill(&self) {
        // SAFETY: it is a child that was not awaited.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.wait();
    }

    /// Waits until it has ended; gives its status.
    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: the same.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs code in four threads of this process and in four of a child, each with a record's number.
fn in_two_processes(world: &World, code: impl Fn(u32) + Sync) {
    let four = |first: u32| {
        std::thread::scope(|scope| {
            for number in first..first + 4 {
                let code = &code;
                scope.spawn(move || {
                    world.identify(number);
                    code(number);
                });
            }
        });
    };
    let child = Child::new(|| four(0));
    four(4);
    assert_eq!(child.wait(), 0);
    std::mem::forget(child);
}

fn words_of(a: u64, b: u64) -> [u64; 5] {
    [a, b, 0, 0, 0]
}

#[test]
fn all_threads_count_in_the_same_elements() {
    const ROUNDS: u64 = 4000;
    let world = World::new();
    in_two_processes(&world, |number| {
        for round in 0..ROUNDS {
            // All insert the same keys at about the same time.
            let key = round / 40;
            world.run_as(number, "count", &mut words_of(key, 1 + u64::from(number)));
        }
    });
    let table = world.image.table(TABLE).expect("a table");
    let entries = table.entries().expect("entries");
    assert_eq!(entries.len() as u64, ROUNDS / 40);
    let each = 40u64 * (1..=8).sum::<u64>();
    for (key, value) in &entries {
        assert_eq!(value[..], each.to_ne_bytes(), "{key:?}");
        assert_eq!(table.get(key).expect("a key").as_ref(), Some(value));
    }
}

/// Whether keys are inserted and removed once each: a key that is in two elements is removed twice.
#[test]
fn a_key_is_removed_as_often_as_it_was_inserted() {
    const ROUNDS: u64 = 20_000;
    let world = World::new();
    // Each thread sends the sums of what it did.
    in_two_processes(&world, |number| {
        let mut sums = BTreeMap::new();
        let mut random = u64::from(number) + 1;
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let key = (random >> 40) % 6;
            let sum: &mut i64 = sums.entry(key).or_default();
            let mut words = [0, at(&key), at(&random), 1, 0];
            match random >> 62 {
                0 | 1 => match world.run_as(number, "update", &mut words).cast_signed() {
                    0 => *sum += 1,
                    other => assert_eq!(other, errno::EEXIST.into()),
                },
                2 => match world.run_as(number, "delete", &mut words).cast_signed() {
                    0 => *sum -= 1,
                    other => assert_eq!(other, errno::ENOENT.into()),
                },
                _ => {
                    // A walk that meets others' insertions and removals.
                    let mut words = [0; 5];
                    if random >> 56 == 0xff {
                        assert!(world.run_as(number, "look", &mut words) <= u64::from(ENTRIES));
                    }
                }
            }
        }
        let sums: Vec<u8> = (0..6)
            .flat_map(|key| sums.get(&key).copied().unwrap_or(0).to_ne_bytes())
            .collect();
        let mut words = [0, at(&sums[..]), sums.len() as u64, 0, 0];
        assert_eq!(world.run_as(number, "output", &mut words), 0);
    });
    let mut total = [0; 6];
    let mut ring = world.image.ring(RING).expect("a ring");
    let read = ring.consume(usize::MAX, |record| {
        let (sums, _) = record.as_chunks::<8>();
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += i64::from_ne_bytes(*sum);
        }
    });
    assert_eq!(read, 8);
    let table = world.image.table(TABLE).expect("a table");
    let entries = table.entries().expect("entries");
    for (key, total) in (0u64..).zip(total) {
        let found = entries.iter().filter(|(k, _)| k[..] == key.to_ne_bytes());
        assert_eq!(found.count() as i64, total, "key {key}");
    }
}

#[test]
fn each_record_arrives_once_and_in_its_threads_order() {
    const ROUNDS: u64 = 20_000;
    let world = World::new();
    let mut ring = world.image.ring(RING).expect("a ring");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut next = [0u64; 8];
            loop {
                ring.consume(usize::MAX, |record| {
                    let (words, rest) = record.as_chunks::<8>();
                    let [number, round] = [0, 1].map(|n| u64::from_ne_bytes(words[n]));
                    assert_eq!(record.len() as u64, 16 + (number + round) % 50);
                    assert!(
                        words[2..]
                            .as_flattened()
                            .iter()
                            .chain(rest)
                            .all(|b| *b == 7)
                    );
                    assert_eq!(next[number as usize], round);
                    next[number as usize] += 1;
                });
                assert!(!ring.is_damaged());
                if next == [ROUNDS; 8] {
                    break;
                }
                assert!(
                    ring.wait(Duration::from_mins(1)).expect("waits"),
                    "{next:?}"
                );
            }
        });
        in_two_processes(&world, |number| {
            let mut record = [7u8; 66];
            record[..8].copy_from_slice(&u64::from(number).to_ne_bytes());
            for round in 0..ROUNDS {
                record[8..16].copy_from_slice(&round.to_ne_bytes());
                let size = 16 + (u64::from(number) + round) % 50;
                while world.run_as(number, "output", &mut [0, at(&record), size, 0, 0]) != 0 {
                    std::thread::yield_now();
                }
            }
        });
        reader.join().expect("the reader");
    });
}

fn alive(thread: u32) -> bool {
    // SAFETY: signal 0 is none.
    unsafe { libc::kill(thread.cast_signed(), 0) == 0 }
}

/// A child changes the table without end, and is killed somewhere.
#[test]
fn a_table_survives_the_death_of_a_thread_that_changes_it() {
    let world = World::new();
    let table = world.image.table(TABLE).expect("a table");
    for round in 0..50 {
        let child = Child::new(|| {
            world.identify(0);
            for key in (0..u64::MAX).map(|n| n % 90) {
                world.run_as(0, "update", &mut [0, at(&key), at(&(3 * key)), 0, 0]);
                world.run_as(0, "delete", &mut [0, at(&(90 - key)), 0, 0, 0]);
            }
        });
        while table.entries().expect("entries").is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(round));
        child.kill();
        std::mem::forget(child);
        world.image.recover_dead(alive);
        assert_eq!(world.image.recover_dead(alive), 0);
        for (key, value) in table.drain().expect("not locked") {
            let [key, value] = [key, value].map(|b| u64::from_ne_bytes(b.try_into().expect("8")));
            assert_eq!(value, 3 * key);
        }
        // All of the table's space is there.
        world.identify(0);
        for key in 1000..1000 + u64::from(ENTRIES) {
            assert_eq!(world.run("update", [0, at(&key), at(&0u64), 1]), 0);
        }
        let full = world.run("update", [0, at(&1u64), at(&0u64), 1]);
        assert_eq!(full, errno::E2BIG.into());
        table.drain().expect("not locked");
    }
}

/// The end of memory: copies across it are deadly.
fn end_of_memory() -> u64 {
    let page = rustix::param::page_size();
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let (none, flags) = (std::ptr::null_mut(), rustix::mm::MapFlags::PRIVATE);
    // SAFETY: new memory, whose second half is taken away before anybody uses it.
    unsafe {
        let start = rustix::mm::mmap_anonymous(none, 2 * page, access, flags).expect("memory");
        rustix::mm::munmap(start.byte_add(page), page).expect("mapped");
        (start.addr() + page) as u64
    }
}

/// A child that dies in the middle of a handler, of memory that is not there.
fn dies_in(world: &World, name: &str, mut words: [u64; 5]) {
    let child = Child::new(|| {
        world.identify(0);
        world.run_as(0, name, &mut words);
    });
    assert!(libc::WIFSIGNALED(child.wait()));
    std::mem::forget(child);
}

#[test]
fn a_record_of_a_dead_thread_is_passed() {
    let world = World::new();
    let mut ring = world.image.ring(RING).expect("a ring");
    let end = end_of_memory();
    for round in 0..100u64 {
        let output = |word: u64| world.run("output", [0, at(&word), 8, 0]);
        assert_eq!(output(round), 0);
        dies_in(&world, "output", [0, end - 8 * (round % 4), 300, 0, 0]);
        world.identify(0);
        assert_eq!(output(round + 1), 0);
        let mut all: Vec<u8> = Vec::new();
        // The unfinished record holds up the one behind it.
        assert_eq!(ring.consume(usize::MAX, |record| all.extend(record)), 1);
        assert_eq!(world.image.recover_dead(|_| true), 0);
        assert_eq!(world.image.recover_dead(alive), 1);
        assert_eq!(ring.consume(usize::MAX, |record| all.extend(record)), 1);
        assert_eq!(all, [round, round + 1].map(u64::to_ne_bytes).as_flattened());
        assert_eq!(world.run("waiting", [0, 0]), 0);
    }
}

#[test]
fn the_lock_of_a_dead_thread_is_released() {
    let world = World::new();
    let table = world.image.table(TABLE).expect("a table");
    let end = end_of_memory();
    for key in 0..u64::from(ENTRIES) {
        // It has taken an element when it dies.
        dies_in(&world, "update", [0, at(&key), end, 0, 0]);
        let word = key.to_ne_bytes();
        assert_eq!(table.get(&word).expect("no lock"), None);
        assert_eq!(world.image.recover_dead(|_| true), 0);
        assert_eq!(world.image.recover_dead(alive), 1);
        assert!(table.set(&word, &word).expect("not locked"));
    }
    assert_eq!(table.entries().expect("entries").len(), ENTRIES as usize);
}

/// A thread that nobody cleans up after does not stop others for ever.
#[test]
fn a_lock_that_stays_is_an_error() {
    let world = World::new();
    let table = world.image.table(TABLE).expect("a table");
    // The words of the first table are behind the state, which has one page.
    let memory = Bytes::of(&world);
    let lock = &memory.words()[rustix::param::page_size() / 8];
    lock.store((1 << 40) | 77, Ordering::SeqCst);
    let key = 1u64.to_ne_bytes();
    assert!(table.set(&key, &key).is_err());
    assert_eq!(world.image.recover_dead(|thread| thread == 77), 0);
    assert_eq!(
        world.run("update", [0, at(&key), at(&key), 0]),
        errno::EBUSY.into()
    );
    assert_eq!(world.run("lookup", [0, at(&key)]), 0);
    assert_eq!(world.image.recover_dead(|_| false), 1);
    assert!(table.set(&key, &key).expect("not locked"));
    assert_eq!(lock.load(Ordering::SeqCst), 0);
}
