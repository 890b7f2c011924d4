//! An array while the controller holds its lock. Nobody else changes it in the meantime, so it is
//! fetched once, changed in memory, and written back at once. Each system call under a lock
//! lengthens it, hits system-call probes whose handlers need the same lock, and is a point where
//! the thread can be switched out.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::shared::maps::{ByteTable, Entries};

/// An array is fetched as a whole if it may have at most this many elements for each one that was
/// requested.
const WORTH: usize = 64;

/// A table that can be held.
pub struct Held {
    below: Box<dyn ByteTable>,
    holds: bool,
    /// Elements that were requested one by one while it is held.
    asked: usize,
    copy: Option<ArrayCopy>,
}

/// The content, and the changes that the table below does not have yet.
#[derive(Default)]
struct ArrayCopy {
    elements: HashMap<Vec<u8>, Vec<u8>>,
    emptied: bool,
    changed: BTreeSet<Vec<u8>>,
}

impl Held {
    /// Wraps another table.
    pub fn new(below: Box<dyn ByteTable>) -> Held {
        Held {
            below,
            holds: false,
            asked: 0,
            copy: None,
        }
    }

    /// The copy; fetches it if there is none.
    fn fetched(&mut self) -> io::Result<&mut ArrayCopy> {
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => ArrayCopy {
                elements: self.below.entries()?.into_iter().collect(),
                ..ArrayCopy::default()
            },
        };
        Ok(self.copy.insert(copy))
    }

    /// The copy, if it exists or is worth fetching.
    fn for_one(&mut self) -> io::Result<Option<&mut ArrayCopy>> {
        if self.holds && self.copy.is_none() {
            self.asked += 1;
            if self.asked.saturating_mul(WORTH) >= self.below.capacity() {
                return self.fetched().map(Some);
            }
        }
        Ok(self.copy.as_mut())
    }
}

impl ByteTable for Held {
    fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.for_one()? {
            Some(copy) => Ok(copy.elements.get(key).cloned()),
            None => self.below.get(key),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let most = self.below.capacity();
        let Some(copy) = self.for_one()? else {
            return self.below.set(key, value);
        };
        let fits = copy.elements.len() < most || copy.elements.contains_key(key);
        if fits {
            copy.elements.insert(key.to_vec(), value.to_vec());
            copy.changed.insert(key.to_vec());
        }
        Ok(fits)
    }

    fn remove(&mut self, key: &[u8]) -> io::Result<()> {
        let Some(copy) = self.for_one()? else {
            return self.below.remove(key);
        };
        if copy.elements.remove(key).is_some() {
            copy.changed.insert(key.to_vec());
        }
        Ok(())
    }

    fn entries(&mut self) -> io::Result<Entries> {
        if !self.holds {
            return self.below.entries();
        }
        let elements = &self.fetched()?.elements;
        Ok(elements
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }

    fn drain(&mut self) -> io::Result<Entries> {
        let Some(copy) = &mut self.copy else {
            return self.below.drain();
        };
        copy.emptied = true;
        copy.changed.clear();
        Ok(copy.elements.drain().collect())
    }

    fn capacity(&self) -> usize {
        self.below.capacity()
    }

    fn hold(&mut self) {
        (self.holds, self.asked) = (true, 0);
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.holds = false;
        let Some(mut copy) = self.copy.take() else {
            return Ok(());
        };
        if copy.emptied {
            self.below.drain()?;
        }
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for key in copy.changed {
            match copy.elements.remove(&key) {
                Some(value) => new.push((key, value)),
                None if copy.emptied => {}
                None => gone.push(key),
            }
        }
        // Removal comes first, because it makes room.
        self.below.remove_all(gone)?;
        match self.below.set_all(new)? {
            true => Ok(()),
            false => Err(io::Error::other("the map is full")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::maps::PlainMap;
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

    fn filled(n: usize, max: usize) -> (Held, Watched) {
        let map = Watched::default();
        map.0.borrow_mut().0.max = max;
        for i in 0..n {
            assert!(map.clone().set(&bytes(i), &bytes(10 * i)).unwrap());
        }
        map.0.borrow_mut().1 = 0;
        (Held::new(Box::new(map.clone())), map)
    }

    #[test]
    fn a_walk_asks_once_and_writes_what_changed() {
        let (mut held, map) = filled(100, 100);
        held.hold();
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
        held.give_back().unwrap();
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
    fn emptied_and_filled_again() {
        let (mut held, map) = filled(3, 4);
        held.hold();
        assert_eq!(held.entries().unwrap().len(), 3);
        assert_eq!(held.drain().unwrap().len(), 3);
        for i in 10..14 {
            assert!(held.set(&bytes(i), &bytes(i)).unwrap());
        }
        assert!(!held.set(&bytes(14), &bytes(14)).unwrap());
        held.remove(&bytes(10)).unwrap();
        held.give_back().unwrap();
        let mut expected: Entries = (11..14).map(|i| (bytes(i), bytes(i))).collect();
        expected.sort();
        assert_eq!(map.sorted(), expected);
    }

    #[test]
    fn few_elements_of_a_large_array_are_asked_for_one_by_one() {
        let (mut held, map) = filled(1000, 1000);
        held.hold();
        for i in 0..15 {
            assert_eq!(held.get(&bytes(i)).unwrap(), Some(bytes(10 * i)));
        }
        assert!(held.copy.is_none());
        for i in 0..100 {
            assert_eq!(held.get(&bytes(i)).unwrap(), Some(bytes(10 * i)));
        }
        assert!(map.0.borrow().1 < 20);
        held.give_back().unwrap();
        assert_eq!(map.sorted().len(), 1000);
    }
}
