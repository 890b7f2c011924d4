//! Structures of the kernel in the memory of a run.

use spile_lir::interp::{Memory, RegionKind};

/// Writes words; returns their address.
pub(crate) fn words(memory: &mut Memory, words: &[u64]) -> u64 {
    let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.add(bytes, RegionKind::Memory)
}

/// Writes the tree of mappings above these entries, which are descriptions with the last address of
/// their range; returns the entry of the top.
pub(crate) fn tree(memory: &mut Memory, slots: usize, entries: &[(u64, u64)]) -> u64 {
    let mut level: Vec<(u64, u64)> = entries.to_vec();
    let mut leaf = true;
    loop {
        // Nodes of type 3 have nine pivots and ten slots, others fifteen and sixteen.
        let (kind, pivots) = match (leaf, slots <= 10) {
            (true, _) => (1, 15),
            (false, true) => (3, 9),
            (false, false) => (2, 15),
        };
        let mut above = Vec::new();
        let chunks: Vec<Vec<(u64, u64)>> = level.chunks(slots).map(<[_]>::to_vec).collect();
        for chunk in &chunks {
            let mut node = vec![0u64; 32];
            for (i, (last, entry)) in chunk.iter().enumerate() {
                if i < pivots && *last != u64::MAX {
                    node[1 + i] = *last;
                }
                node[1 + pivots + i] = *entry;
            }
            let last = chunk.last().map_or(u64::MAX, |e| e.0);
            let address = words(memory, &node);
            above.push((last, address | kind << 3 | 4));
        }
        leaf = false;
        if let [(_, top)] = *above {
            return top | 2;
        }
        level = above;
    }
}
