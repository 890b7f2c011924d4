//! The `bpf(2)` funnel on the running kernel. Without privileges tests are skipped with a reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::*;

const EXIT: u64 = insn(0x95, 0, 0, 0, 0);

/// A map; the test is skipped where none can be created.
fn map(ty: u32, key_size: u32, value_size: u32) -> Map<OwnedFd> {
    let spec = MapAttr {
        ty,
        key_size,
        value_size,
        max_entries: 64,
        flags: 0,
        name: "a-test",
        types: None,
    };
    match map_create(&spec) {
        Ok(fd) => Map::new(fd).expect("info"),
        Err(why) => spile_testing::skip(why),
    }
}

/// A loaded program; the test is skipped where none can be loaded.
fn program(ty: u32, insns: &[u64]) -> OwnedFd {
    match load(&ProgSpec {
        ty,
        insns,
        name: "a.test",
        ..Default::default()
    }) {
        Ok(fd) => fd,
        Err(why @ BpfError::Rejected { .. }) => panic!("{why}"),
        Err(why) => spile_testing::skip(why),
    }
}

#[test]
fn instructions_have_the_kernels_layout() {
    assert_eq!(
        insn(0xb7, 1, 2, -1, 5).to_le_bytes(),
        [0xb7, 0x21, 0xff, 0xff, 5, 0, 0, 0]
    );
}

#[test]
fn entries_of_a_hash_map_are_set_read_and_removed() {
    let map = map(map_type::HASH, 4, 8);
    assert_eq!((map.key_len(), map.value_len()), (4, 8));
    assert_eq!(map.info().name, "a_test");
    let key = |n: u32| n.to_ne_bytes();
    let mut value = [0; 8];
    assert_eq!(map.lookup(&key(1), &mut value), Ok(false));
    for n in 0..10u32 {
        map.update(&key(n), &u64::from(n * n).to_ne_bytes(), 0)
            .expect("space");
    }
    assert_eq!(map.lookup(&key(7), &mut value), Ok(true));
    assert_eq!(u64::from_ne_bytes(value), 49);
    assert_eq!(map.delete(&key(7)), Ok(true));
    assert_eq!(map.delete(&key(7)), Ok(false));
    let exists = map.update(&key(1), &value, 1).expect_err("BPF_NOEXIST");
    assert_eq!(exists.errno(), Some(Errno::EXIST));

    let (mut keys, mut values) = ([0; 64], [0; 128]);
    let batch = map.batch(&mut Vec::new(), &mut keys, &mut values, false);
    assert_eq!(batch.map(|b| b.count), Ok(9));
    assert!(matches!(
        map.lookup(&[0; 3], &mut value),
        Err(BpfError::Argument(_))
    ));
    assert!(matches!(
        map.lookup(&key(1), &mut [0; 7]),
        Err(BpfError::Argument(_))
    ));
}

#[test]
fn batches_read_and_drain() {
    let map = map(map_type::PERCPU_HASH, 8, 12);
    let cpus = crate::machine::possible_cpus().len();
    assert_eq!(map.value_len(), 16 * cpus);
    for n in 0..50u64 {
        map.update(&n.to_ne_bytes(), &vec![n as u8; map.value_len()], 0)
            .expect("space");
    }
    let collect = |delete| {
        let (mut cursor, mut all) = (Vec::new(), Vec::new());
        let mut keys = vec![0; 8 * 40];
        let mut values = vec![0; map.value_len() * 40];
        loop {
            let batch = map
                .batch(&mut cursor, &mut keys, &mut values, delete)
                .expect("batch");
            for i in 0..batch.count {
                assert_eq!(keys[i * 8], values[i * map.value_len()]);
                all.push(keys[i * 8]);
            }
            if batch.done {
                all.sort_unstable();
                return all;
            }
        }
    };
    assert_eq!(collect(false), (0..50).collect::<Vec<u8>>());
    let some: Vec<u8> = [3u64, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
    assert_eq!(
        map.delete_batch(&some),
        Ok(BatchResult {
            count: 3,
            done: true
        })
    );
    assert!(!map.delete_batch(&some).expect("absent").done);
    let values: Vec<u8> = [3u8, 4, 5]
        .iter()
        .flat_map(|n| vec![*n; map.value_len()])
        .collect();
    map.update_batch(&some, &values).expect("space");
    map.delete_batch(&some[..16]).expect("they are there");
    assert_eq!(collect(true).len(), 48);
    assert_eq!(collect(true).len(), 0);
    assert!(map.batch(&mut Vec::new(), &mut [], &mut [], false).is_err());
}

#[test]
fn a_program_runs_on_demand() {
    // r0 = *(u64 *)(r1 + 8): the second word of the context
    let insns = [insn(0x79, 0, 1, 8, 0), EXIT];
    let prog = program(prog_type::RAW_TRACEPOINT, &insns);
    let run = test_run(prog.as_fd(), &mut [1, 42], None).expect("runs");
    assert_eq!(run.retval, 42);
    for &cpu in &crate::machine::online_cpus() {
        assert_eq!(
            test_run(prog.as_fd(), &mut [1, 43], Some(cpu))
                .expect("runs")
                .retval,
            43
        );
    }
    let short = test_run(prog.as_fd(), &mut [1], None).expect_err("context too short");
    assert_eq!(short.errno(), Some(Errno::INVAL));
}

#[test]
fn errors_contain_the_verifiers_log() {
    program(prog_type::RAW_TRACEPOINT, &[insn(0xb7, 0, 0, 0, 0), EXIT]);
    let spec = ProgSpec {
        ty: prog_type::RAW_TRACEPOINT,
        insns: &[EXIT],
        ..Default::default()
    };
    match load(&spec) {
        Err(BpfError::Rejected { log, .. }) => assert!(log.contains("R0 !read_ok"), "{log}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn programs_are_listed_attached_and_counted() {
    let insns = [insn(0xb7, 0, 0, 0, 0), EXIT];
    let prog = program(prog_type::RAW_TRACEPOINT, &insns);
    let id = prog_info(prog.as_fd()).expect("info").id;
    assert!(
        programs()
            .expect("list")
            .iter()
            .any(|p| p.id == id && p.name == "a.test")
    );
    let stats = enable_stats().expect("statistics");
    let link = raw_tracepoint_open(Some("sys_enter"), prog.as_fd()).expect("attached");
    assert!(links().expect("list").iter().any(|l| l.prog_id == id));
    std::thread::yield_now();
    assert!(prog_info(prog.as_fd()).expect("info").run_count > 0);
    drop((link, stats));
    let absent = raw_tracepoint_open(Some("no_such_tracepoint"), prog.as_fd());
    assert_eq!(absent.expect_err("absent").errno(), Some(Errno::NOENT));
    assert!(raw_tracepoint_open(Some("a\0b"), prog.as_fd()).is_err());
    drop(prog);
    // A link's program is released after a grace period.
    let listed = || ids(ObjectKind::Prog).expect("list").contains(&id);
    for _ in 0..10_000 {
        if !listed() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!listed());
    assert_eq!(
        info::by_id(ObjectKind::Prog, id).expect_err("gone").errno(),
        Some(Errno::NOENT)
    );
}

#[test]
fn maps_are_listed() {
    let map = map(map_type::ARRAY, 4, 8);
    let id = map.info().id;
    assert!(
        maps()
            .expect("list")
            .iter()
            .any(|m| m.id == id && m.value_size == 8)
    );
    let again = Map::new(info::by_id(ObjectKind::Map, id).expect("by id")).expect("info");
    assert_eq!(again.info(), map.info());
}

/// Bytes of the ring buffer.
const RING: u32 = 4096;

/// A ring buffer of a page, and a program that writes its first argument three times into a record there.
/// With a second argument it takes the record back. It returns whether there was space.
fn ring_and_writer() -> (Ring, OwnedFd) {
    const RESERVE: i32 = 131;
    const SUBMIT: i32 = 132;
    const DISCARD: i32 = 133;
    if rustix::param::page_size() != RING as usize {
        spile_testing::skip!("pages are not of 4 KB here");
    }
    let spec = MapAttr {
        ty: map_type::RINGBUF,
        max_entries: RING,
        name: "ring",
        ..MapAttr::default()
    };
    let fd = match map_create(&spec) {
        Ok(fd) => fd,
        Err(why) => spile_testing::skip!("{why}"),
    };
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&fd);
    let call = |helper| insn(0x85, 0, 0, 0, helper);
    let insns = [
        insn(0x79, 6, 1, 0, 0),
        insn(0x79, 7, 1, 8, 0),
        insn(0x18, 1, 1, 0, descriptor),
        0,
        insn(0xb7, 2, 0, 0, 24),
        insn(0xb7, 3, 0, 0, 0),
        call(RESERVE),
        insn(0x15, 0, 0, 10, 0),
        insn(0x7b, 0, 6, 0, 0),
        insn(0x7b, 0, 6, 8, 0),
        insn(0x7b, 0, 6, 16, 0),
        insn(0xbf, 1, 0, 0, 0),
        insn(0xb7, 2, 0, 0, 0),
        insn(0x15, 7, 0, 2, 0),
        call(DISCARD),
        insn(0x05, 0, 0, 1, 0),
        call(SUBMIT),
        insn(0xb7, 0, 0, 0, 1),
        EXIT,
    ];
    let prog = program(prog_type::RAW_TRACEPOINT, &insns);
    assert!(Ring::new(fd.try_clone().expect("descriptor"), RING - 8).is_err());
    (Ring::new(fd, RING).expect("mapped"), prog)
}

/// The record that the program wrote.
fn written(record: &[u8]) -> u64 {
    let (words, rest) = record.as_chunks();
    let words: Vec<u64> = words.iter().map(|w| u64::from_ne_bytes(*w)).collect();
    match (&words[..], rest) {
        (&[first, second, third], []) if first == second && second == third => first,
        // What nobody writes.
        _ => u64::MAX,
    }
}

/// Many times around, some records taken back.
#[test]
fn records_of_a_ring_buffer_come_in_order() {
    let (mut ring, prog) = ring_and_writer();
    let mut wanted = Vec::new();
    let mut seen: Vec<u64> = Vec::new();
    for n in 0..2000u64 {
        let taken_back = n % 7 == 3;
        test_run(prog.as_fd(), &mut [n, u64::from(taken_back)], None).expect("runs");
        wanted.extend((!taken_back).then_some(n));
        if n % 50 == 49 {
            let mut take = |most| ring.consume(most, |record| seen.push(written(record)));
            assert_eq!(take(10), 10);
            assert!((30..40).contains(&take(usize::MAX)));
            assert_eq!(take(usize::MAX), 0);
        }
    }
    assert_eq!(seen, wanted);
}

/// Several write while one reads, which sleeps whenever it has read all: nobody is forgotten asleep, no
/// record is lost, and those of each come in their order.
#[test]
fn a_ring_buffer_is_read_while_it_is_written() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 20_000;
    let (mut ring, prog) = ring_and_writer();
    let ended = AtomicBool::new(false);
    let write = |writer: u64| {
        for n in 0..EACH {
            let mut args = [writer << 32 | n, 0];
            while test_run(prog.as_fd(), &mut args, None)
                .expect("runs")
                .retval
                == 0
                && !ended.load(Relaxed)
            {
                std::thread::yield_now();
            }
        }
    };
    let mut next = [0; WRITERS as usize];
    let mut in_order = true;
    let mut woken = Ok(1);
    std::thread::scope(|s| {
        for writer in 0..WRITERS {
            s.spawn(move || write(writer));
        }
        while woken == Ok(1) && in_order && next != [EACH; WRITERS as usize] {
            let mut fds = [PollFd::new(&ring, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            };
            woken = poll(&mut fds, Some(&limit));
            ring.consume(usize::MAX, |record| {
                let word = written(record);
                match next.get_mut((word >> 32) as usize) {
                    Some(next) if word & 0xffff_ffff == *next => *next += 1,
                    _ => in_order = false,
                }
            });
        }
        // Writers wait for space that nobody makes any more.
        ended.store(true, Relaxed);
    });
    assert!(in_order);
    assert_eq!((woken, next), (Ok(1), [EACH; WRITERS as usize]));
}
