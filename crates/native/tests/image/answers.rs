//! What helpers answer, and what the controller sees of it.

use spile_lir::library::host::errno;

use crate::world::{ARRAY, ENTRIES, PAIRS, RING, RING_BYTES, TABLE, World, at, at_mut};

const NOEXIST: u64 = 1;

fn code(code: i32) -> i64 {
    code.into()
}

fn update(world: &World, key: u64, value: u64, flags: u64) -> i64 {
    world.run("update", [0, at(&key), at(&value), flags])
}

fn lookup(world: &World, key: u64) -> Option<u64> {
    let value = world.run("lookup", [0, at(&key)]) as u64 as *const u64;
    // SAFETY: it is an address within the image, or null.
    unsafe { value.as_ref().copied() }
}

#[test]
fn hash_tables_answer_as_the_kernels() {
    let world = World::new();
    let table = world.image.table(TABLE).expect("a table");
    assert_eq!(lookup(&world, 7), None);
    assert_eq!(update(&world, 7, 70, NOEXIST), 0);
    assert_eq!(update(&world, 7, 71, NOEXIST), code(errno::EEXIST));
    assert_eq!(lookup(&world, 7), Some(70));
    assert_eq!(update(&world, 7, 72, 0), 0);
    let word = |n: u64| n.to_ne_bytes().to_vec();
    assert_eq!(table.get(&word(7)).unwrap(), Some(word(72)));
    for key in 100..100 + u64::from(ENTRIES) - 1 {
        assert_eq!(update(&world, key, key, NOEXIST), 0);
    }
    assert_eq!(update(&world, 8, 80, NOEXIST), code(errno::E2BIG));
    assert_eq!(update(&world, 7, 73, 0), 0);
    assert!(!table.set(&word(8), &word(80)).unwrap());
    assert_eq!(world.run("delete", [0, at(&7u64)]), 0);
    assert_eq!(world.run("delete", [0, at(&7u64)]), code(errno::ENOENT));
    assert!(table.set(&word(8), &word(80)).unwrap());
    assert_eq!(lookup(&world, 8), Some(80));
    assert_eq!(table.drain().unwrap().len(), table.capacity());
    assert_eq!((lookup(&world, 8), lookup(&world, 100)), (None, None));
}

#[test]
fn elements_come_and_go_for_ever() {
    let world = World::new();
    let table = world.image.table(TABLE).expect("a table");
    let mut model = std::collections::BTreeMap::new();
    let mut random = 1u64;
    for _ in 0..50_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let key = (random >> 33) % 150;
        let there = model.contains_key(&key);
        let (word, full) = (key.to_ne_bytes(), model.len() == ENTRIES as usize);
        match random >> 62 {
            0 => {
                let removed = world.run("delete", [0, at(&key)]);
                assert_eq!(removed == 0, model.remove(&key).is_some());
            }
            1 => {
                table.remove(&word).unwrap();
                model.remove(&key);
            }
            2 => {
                let done = table.set(&word, &random.to_ne_bytes()).unwrap();
                assert_eq!(done, there || !full);
                if done {
                    model.insert(key, random);
                }
            }
            _ => {
                let done = update(&world, key, random, 0) == 0;
                assert_eq!(done, there || !full);
                if done {
                    model.insert(key, random);
                }
            }
        }
        let key = (random >> 20) % 150;
        assert_eq!(lookup(&world, key), model.get(&key).copied());
        assert_eq!(
            table.get(&key.to_ne_bytes()).unwrap().is_some(),
            model.contains_key(&key)
        );
    }
    let mut entries = table.entries().unwrap();
    entries.sort_by_key(|(key, _)| u64::from_ne_bytes(key[..].try_into().unwrap()));
    let model = model
        .iter()
        .map(|(k, v)| (k.to_ne_bytes().to_vec(), v.to_ne_bytes().to_vec()));
    assert_eq!(entries, model.collect::<Vec<_>>());
}

#[test]
fn a_walk_may_remove_its_elements() {
    let world = World::new();
    for key in 0..50 {
        update(&world, key, key, 0);
    }
    let mut words = [0; 5];
    assert_eq!(world.run_as(0, "visit", &mut words), 50);
    assert_eq!(words[..2], [(0..50).sum(), 0]);
    let table = world.image.table(TABLE).expect("a table");
    assert!(table.entries().unwrap().is_empty());
}

#[test]
fn keys_of_two_words_and_values_of_odd_lengths() {
    let world = World::new();
    let table = world.image.table(PAIRS).expect("a table");
    let keys = [[1u64, 2], [1, 3], [2, 2], [0, 0]];
    for (n, key) in (1u8..).zip(&keys) {
        assert_eq!(world.run("update_pair", [0, at(key), at(&[n; 24]), 0]), 0);
    }
    for (n, key) in (1u8..).zip(&keys) {
        assert_ne!(world.run("lookup_pair", [0, at(key)]), 0);
        let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(table.get(&bytes).unwrap(), Some(vec![n; 20]));
        assert!(table.get(&bytes[..8]).is_err());
    }
    assert_eq!(world.run("lookup_pair", [0, at(&[3u64, 3])]), 0);
}

#[test]
fn arrays_have_all_of_their_elements() {
    let world = World::new();
    let table = world.image.table(ARRAY).expect("an array");
    let region = world.image.array(ARRAY).expect("an array");
    let last = ENTRIES - 1;
    assert_eq!(
        world.run("update_array", [0, at(&last), at(&[7u8; 16]), 0]),
        0
    );
    let element = world.run("lookup_array", [0, at(&last)]) as usize;
    let expected = world.image.address() + region.offset + 16 * last as usize;
    assert_eq!(element, expected);
    assert_eq!(table.get(&last.to_ne_bytes()).unwrap(), Some(vec![7; 12]));
    assert_eq!(world.run("lookup_array", [0, at(&ENTRIES)]), 0);
    let full = world.run("update_array", [0, at(&ENTRIES), at(&[7u8; 16]), 0]);
    assert_eq!(full, code(errno::E2BIG));
    let exists = world.run("update_array", [0, at(&0u32), at(&[7u8; 16]), NOEXIST]);
    assert_eq!(exists, code(errno::EEXIST));
    assert_eq!(table.entries().unwrap().len(), ENTRIES as usize);
}

#[test]
fn records_come_in_order_and_the_ring_is_used_again() {
    let world = World::new();
    let mut ring = world.image.ring(RING).expect("a ring");
    let output = |bytes: &[u8]| world.run("output", [0, at(bytes), bytes.len() as u64, 0]);
    let mut expected = Vec::new();
    for round in 0..1000usize {
        let record: Vec<u8> = (0..=round % 300).map(|n| (n + round) as u8).collect();
        assert_eq!(output(&record), 0);
        expected.push(record);
        if round % 7 == 0 {
            let mut taken = expected.drain(..);
            let count = ring.consume(usize::MAX, |r| assert_eq!(Some(r), taken.next().as_deref()));
            assert!(count > 0 && taken.next().is_none());
            assert_eq!(world.run("waiting", [0, 0]), 0);
        }
    }
    assert!(!ring.is_damaged());
    ring.consume(usize::MAX, |_| {});
    let big = vec![1; RING_BYTES as usize / 4 - 8];
    let sent = (0..10).filter(|_| output(&big) == 0).count();
    assert!((3..=4).contains(&sent), "{sent}");
    assert_eq!(output(&big), code(errno::EAGAIN));
    assert_eq!(ring.consume(1, |_| {}), 1);
    assert_eq!(ring.consume(usize::MAX, |_| {}), sent - 1);
    assert_eq!(output(&[]), code(errno::EINVAL));
    assert_eq!(output(&vec![0; RING_BYTES as usize]), code(errno::EAGAIN));
}

#[test]
fn a_waiting_reader_is_woken() {
    let world = World::new();
    let ring = world.image.ring(RING).expect("a ring");
    let minute = std::time::Duration::from_mins(1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| ring.wait(minute).expect("waits"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(world.run("output", [0, at(&[1u64]), 8, 0]), 0);
        assert!(reader.join().expect("no panic"));
    });
    assert!(ring.wait(minute).expect("does not wait"));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let world = World::new();
    let text = b"text\0more";
    let mut to = [9u8; 8];
    assert_eq!(world.run("read", [at_mut(&mut to), 4, at(text)]), 0);
    assert_eq!(&to, b"text\x09\x09\x09\x09");
    assert_eq!(
        world.run("read", [at_mut(&mut to), 8, 8]),
        code(errno::EFAULT)
    );
    assert_eq!(to, [0; 8]);
    to = [9; 8];
    for handler in ["read_text", "copy_text"] {
        assert_eq!(world.run(handler, [at_mut(&mut to), 8, at(text)]), 5);
        assert_eq!(&to, b"text\0\x09\x09\x09", "bytes behind the NUL stay");
        assert_eq!(world.run(handler, [at_mut(&mut to), 3, at(text)]), 3);
        assert_eq!(&to, b"te\0t\0\x09\x09\x09");
        assert_eq!(world.run(handler, [at_mut(&mut to), 0, at(text)]), 0);
        to = [9; 8];
    }
    assert_eq!(
        world.run("read_text", [at_mut(&mut to), 8, 8]),
        code(errno::EFAULT)
    );
    assert_eq!(to, [0; 8]);
    assert_eq!(world.run("copy", [at_mut(&mut to), 7, at(text)]), 0);
    assert_eq!(&to, b"text\0mo\0");
}

#[test]
fn texts_end_with_their_page() {
    let world = World::new();
    let page = rustix::param::page_size();
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let (none, flags) = (std::ptr::null_mut(), rustix::mm::MapFlags::PRIVATE);
    // SAFETY: new memory, whose second half is taken away before anybody uses it.
    let start = unsafe {
        let start = rustix::mm::mmap_anonymous(none, 2 * page, access, flags).expect("memory");
        rustix::mm::munmap(start.byte_add(page), page).expect("mapped");
        start.cast::<u8>()
    };
    let mut to = [0u8; 1000];
    let text = |length: usize| {
        let first = page - length - 1;
        // SAFETY: it is within the page.
        unsafe {
            start.add(first).write_bytes(b'x', length);
            start.add(page - 1).write(0);
        }
        (start.addr() + first) as u64
    };
    for length in [0, 1, 255, 256, 257, 600] {
        let read = world.run("read_text", [at_mut(&mut to), 1000, text(length)]);
        assert_eq!(read, length as i64 + 1);
        assert!(to[..length].iter().all(|b| *b == b'x') && to[length] == 0);
    }
    let unended = text(600);
    // SAFETY: the same.
    unsafe { start.add(page - 1).write(b'x') };
    let read = world.run("read_text", [at_mut(&mut to), 1000, unended]);
    assert_eq!((read, to), (code(errno::EFAULT), [0; 1000]));
    let read = world.run("read_text", [at_mut(&mut to), 300, unended]);
    assert_eq!((read, to[298], to[299]), (300, b'x', 0));
}

#[test]
fn records_of_threads_are_the_current_task() {
    let world = World::new();
    let record = world.image.record(0).expect("a record");
    let word = |upper: u32, lower: u32| i64::from(upper) << 32 | i64::from(lower);
    assert_eq!(world.run("thread", []), word(record.tgid, record.tid));
    assert_eq!(world.run("user", []), word(6, 5));
    let mut words = [0; 5];
    assert_eq!(world.run_as(3, "processor", &mut words), 3);
    let address = world.image.address() + world.image.record_offset(3).expect("a record");
    assert_eq!(world.run_as(3, "task", &mut words), address as u64);
    let mut name = [0u8; 16];
    assert_eq!(world.run("name", [at_mut(&mut name), 16]), 0);
    assert_eq!(name, record.comm);
    assert_eq!(world.image.record(u32::MAX), None);
}

#[test]
fn time_is_the_kernels_and_random_numbers_differ() {
    let world = World::new();
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    for clock in [crate::measured::clock(), 0] {
        let record = world.image.record(0).expect("a record");
        world
            .image
            .set_record(0, &spile_layout::ThreadRecord { clock, ..record });
        let (before, time, after) = (now(), world.run("now", []), now());
        assert!((before..=after).contains(&time), "{before} {time} {after}");
    }
    let numbers: std::collections::BTreeSet<i64> =
        (0..100).map(|_| world.run("random", [])).collect();
    assert!(numbers.len() > 95 && numbers.iter().all(|n| u32::try_from(*n).is_ok()));
}
