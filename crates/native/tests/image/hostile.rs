//! The controller's side where a process has written anything into the shared memory: no panic, nothing outside of the
//! image, and an end.

use std::sync::atomic::Ordering;

use crate::world::{ARRAY, Bytes, ENTRIES, PAIRS, RING, RING_BYTES, TABLE, World};

/// Pseudo-random words (Knuth's constants), many of which look like small numbers, cells or headers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 16
    }

    fn word(&mut self) -> u64 {
        let any = (self.next() << 32) | self.next();
        match self.next() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => any % 200,
            3 => (any % 200) | (any << 32),
            4 => any & 0xffff_ffff_c000_0fff,
            5 => any % u64::from(RING_BYTES),
            _ => any,
        }
    }
}

/// Uses everything that the controller has.
fn use_all(world: &World, random: &mut Random) {
    for name in [TABLE, PAIRS, ARRAY] {
        let table = world.image.table(name).expect("a table");
        let keys = match name {
            TABLE => random.word().to_ne_bytes().to_vec(),
            PAIRS => [random.word(); 2]
                .map(u64::to_ne_bytes)
                .as_flattened()
                .to_vec(),
            _ => (random.next() as u32 % 200).to_ne_bytes().to_vec(),
        };
        let entries = table.entries().expect("entries");
        assert!(entries.len() <= ENTRIES as usize);
        let value = table
            .get(&keys)
            .expect("a key")
            .unwrap_or_else(|| match name {
                TABLE => vec![1; 8],
                PAIRS => vec![1; 20],
                _ => vec![1; 12],
            });
        // It may be locked, or full of anything.
        let _ = table.set(&keys, &value);
        if let Some((key, _)) = entries.first() {
            let _ = table.remove(key);
        }
    }
    let mut ring = world.image.ring(RING).expect("a ring");
    let mut bytes = 0;
    ring.consume(usize::MAX, |record| bytes += record.len());
    assert!(bytes <= RING_BYTES as usize);
    let _ = ring.is_damaged();
    ring.wait(std::time::Duration::from_micros(1))
        .expect("a timeout");
    assert!(world.image.record(3).is_some());
}

#[test]
fn any_words_are_safe() {
    let world = World::new();
    let memory = Bytes::of(&world);
    let mut random = Random(1);
    for round in 0..400 {
        for word in memory.words() {
            if round % 2 == 0 || random.next().is_multiple_of(20) {
                word.store(random.word(), Ordering::Relaxed);
            }
        }
        world.image.recover_dead(|thread| thread % 2 == 0);
        world.image.recover_dead(|_| false);
        use_all(&world, &mut random);
    }
}

#[test]
fn words_that_change_meanwhile_are_safe() {
    let world = World::new();
    let memory = Bytes::of(&world);
    let words = memory.words();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The other thread ends even if this one panics.
        let _ends = Ends(&done);
        scope.spawn(|| {
            let mut random = Random(2);
            while !done.load(Ordering::Relaxed) {
                let at = random.next() as usize % words.len();
                words[at].store(random.word(), Ordering::Relaxed);
            }
        });
        let mut random = Random(3);
        // Few: a table that looks locked is waited for.
        for _ in 0..20 {
            world.image.recover_dead(|_| false);
            use_all(&world, &mut random);
        }
    });
}

/// Sets a flag when it is dropped.
struct Ends<'f>(&'f std::sync::atomic::AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
