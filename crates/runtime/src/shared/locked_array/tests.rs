//! Arrays whose lock the controller holds: tests.

use super::*;
use crate::shared::tests::PlainMap;
use std::cell::RefCell;
use std::rc::Rc;

/// A shared table that counts the requests to it.
#[derive(Clone, Default)]
struct Watched(Rc<RefCell<(PlainMap, usize)>>);

impl Watched {
    fn asked<T>(&self, f: impl FnOnce(&mut PlainMap) -> T) -> T {
        let mut inner = self.0.borrow_mut();
        inner.1 += 1;
        f(&mut inner.0)
    }

    fn sorted(&self) -> Entries {
        let mut all = self.0.borrow_mut().0.entries().unwrap();
        all.sort();
        all
    }
}

impl ByteTable for Watched {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.asked(|m| m.get(key))
    }
    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        self.asked(|m| m.set(key, value))
    }
    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        self.asked(|m| m.remove(key))
    }
    fn entries(&mut self) -> io::Result<Entries> {
        self.asked(PlainMap::entries)
    }
    fn drain(&mut self) -> io::Result<Entries> {
        self.asked(PlainMap::drain)
    }
    fn capacity(&self) -> usize {
        self.0.borrow().0.max
    }
    fn remove_all(&mut self, keys: Vec<Vec<u8>>) -> io::Result<()> {
        self.asked(|m| m.remove_all(keys))
    }
    fn set_all(&mut self, entries: Entries) -> io::Result<bool> {
        self.asked(|m| m.set_all(entries))
    }
}

fn bytes(n: usize) -> Vec<u8> {
    n.to_ne_bytes().to_vec()
}

fn filled(n: usize, max: usize) -> (LockedTable, Watched) {
    let map = Watched::default();
    map.0.borrow_mut().0.max = max;
    for i in 0..n {
        assert!(map.clone().set(&bytes(i), &bytes(10 * i)).unwrap());
    }
    map.0.borrow_mut().1 = 0;
    (LockedTable::new(Box::new(map.clone())), map)
}

#[test]
fn an_iteration_reads_once_and_writes_changes() {
    let (mut held, map) = filled(100, 100);
    held.begin_exclusive();
    for (key, value) in held.entries().unwrap() {
        assert_eq!(held.get(&key).unwrap(), Some(value));
    }
    for i in 0..50 {
        held.remove(&bytes(i)).unwrap();
    }
    assert!(held.set(&bytes(70), &bytes(1)).unwrap());
    assert!(held.set(&bytes(200), &bytes(2)).unwrap());
    assert_eq!(held.get(&bytes(3)).unwrap(), None);
    assert_eq!(map.0.borrow().1, 1);
    assert_eq!(map.sorted().len(), 100);
    held.end_exclusive().unwrap();
    assert!(map.0.borrow().1 <= 3);
    let mut expected: Entries = (50..100).map(|i| (bytes(i), bytes(10 * i))).collect();
    expected[20].1 = bytes(1);
    expected.push((bytes(200), bytes(2)));
    expected.sort();
    assert_eq!(map.sorted(), expected);
    // After the release everything comes from the table below again.
    map.clone().set(&bytes(51), &bytes(7)).unwrap();
    assert_eq!(held.get(&bytes(51)).unwrap(), Some(bytes(7)));
}

#[test]
fn an_emptied_array_is_filled_again() {
    let (mut held, map) = filled(3, 4);
    held.begin_exclusive();
    assert_eq!(held.entries().unwrap().len(), 3);
    assert_eq!(held.drain().unwrap().len(), 3);
    for i in 10..14 {
        assert!(held.set(&bytes(i), &bytes(i)).unwrap());
    }
    assert!(!held.set(&bytes(14), &bytes(14)).unwrap());
    held.remove(&bytes(10)).unwrap();
    held.end_exclusive().unwrap();
    let mut expected: Entries = (11..14).map(|i| (bytes(i), bytes(i))).collect();
    expected.sort();
    assert_eq!(map.sorted(), expected);
}

#[test]
fn few_elements_of_a_large_array_are_asked_for_one_by_one() {
    let (mut held, map) = filled(1000, 1000);
    held.begin_exclusive();
    for i in 0..15 {
        assert_eq!(held.get(&bytes(i)).unwrap(), Some(bytes(10 * i)));
    }
    assert!(held.copy.is_none());
    for i in 0..100 {
        assert_eq!(held.get(&bytes(i)).unwrap(), Some(bytes(10 * i)));
    }
    assert!(map.0.borrow().1 < 20);
    held.end_exclusive().unwrap();
    assert_eq!(map.sorted().len(), 1000);
}
