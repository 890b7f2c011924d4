//! An index of types by the hashes of their names.

use spile_cast::Cast;

/// A free slot.
const FREE: u32 = u32::MAX;

/// The types of a blob by name; a type is its index in the blob. A search begins at the slot of the
/// name's hash; types of one name follow in insertion order.
#[derive(Default)]
pub(super) struct TypeIndex {
    /// The table; its length is a power of two above the number of names, or 0.
    slots: Vec<u32>,
}

/// The hash of the bytes before the first zero.
fn hash(mut bytes: &[u8]) -> u32 {
    let mut hash = 0u64;
    loop {
        let (word, rest) = match bytes.split_first_chunk::<8>() {
            Some((word, rest)) => (u64::from_le_bytes(*word), rest),
            None => {
                let mut last = [0; 8];
                last[..bytes.len()].copy_from_slice(bytes);
                (u64::from_le_bytes(last), &[][..])
            }
        };
        // The lowest bit set here belongs to the first zero byte (Mycroft).
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        let before = zeros & zeros.wrapping_neg();
        let ends = zeros != 0;
        let word = if ends {
            word & (before >> 7).wrapping_sub(1)
        } else {
            word
        };
        // The multiplier of FxHash; the upper bits depend on all input bits.
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        if ends {
            return (hash >> 32) as u32;
        }
        bytes = rest;
    }
}

impl TypeIndex {
    /// An empty index with space for `names` names.
    pub(super) fn for_names(names: usize) -> TypeIndex {
        // At least a quarter of the slots stays free, so that searches are short.
        let slots = (names + names / 3 + 1).next_power_of_two();
        TypeIndex {
            slots: vec![FREE; slots],
        }
    }

    /// Adds a type; its name ends at the first zero byte.
    pub(super) fn add(&mut self, name: &[u8], ix: usize) {
        let mut slot = self.first(name);
        while self.slots[slot] != FREE {
            slot = self.after(slot);
        }
        self.slots[slot] = ix.fit::<u32>();
    }

    /// The types that may have that name.
    pub(super) fn matching(&self, name: &str) -> impl Iterator<Item = usize> {
        let mut slot = self.first(name.as_bytes());
        std::iter::from_fn(move || {
            let ix = *self.slots.get(slot).filter(|ix| **ix != FREE)?;
            slot = self.after(slot);
            Some(ix as usize)
        })
    }

    fn first(&self, name: &[u8]) -> usize {
        hash(name) as usize & self.slots.len().wrapping_sub(1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_zero() {
        for name in [
            "",
            "a",
            "1234567",
            "12345678",
            "123456789",
            "\u{1}\u{1}",
            "\u{80}x",
        ] {
            let mut longer = [name.as_bytes(), b"\0rest of the table"].concat();
            assert_eq!(hash(name.as_bytes()), hash(&longer), "{name}");
            longer[name.len()] = b'x';
            assert_ne!(hash(name.as_bytes()), hash(&longer), "{name}");
        }
    }

    #[test]
    fn types_of_one_name_are_in_order() {
        let names = ["one", "two", "one", "three", "two", "one"];
        let mut index = TypeIndex::for_names(names.len());
        for (ix, name) in names.iter().enumerate() {
            index.add(name.as_bytes(), ix);
        }
        let like = |name: &str| -> Vec<usize> {
            index
                .matching(name)
                .filter(|ix| names[*ix] == name)
                .collect()
        };
        assert_eq!(like("one"), [0, 2, 5]);
        assert_eq!(like("two"), [1, 4]);
        assert!(like("four").is_empty());
        assert_eq!(TypeIndex::default().matching("one").count(), 0);
    }
}
