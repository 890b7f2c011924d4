//! Damaged files: any bytes give answers or errors, and soon.

use std::sync::OnceLock;

use proptest::prelude::*;

use crate::ask::ask;
use crate::build::Dir;

const TEXT: &str = r#"
#include <stdio.h>
struct tree { struct tree *left, *right; union { int a; struct { short b, c; }; }; int grid[2][2]; };
enum e { A, B = -4 };
int shared = 5;
static inline __attribute__((always_inline)) int twice(int x) { int y = x * 2; shared = y; return y + shared; }
__attribute__((noipa)) int walk(struct tree *t, enum e e, int n) {
  int sum = 0;
  for (int i = 0; i < n && t; i++) { int v = twice(t->b + e); sum += v; t = t->left; }
  return sum;
}
int main(int argc, char **argv) { struct tree t = {0}; return walk(&t, B, argc) + puts(argv[0]); }
"#;

fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = Dir::new();
        std::fs::read(dir.compile("x.c", TEXT, &["-g", "-O2"])).expect("read")
    })
}

/// The same, not linked.
fn unlinked() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = Dir::new();
        std::fs::read(dir.compile("x.c", TEXT, &["-c", "-g", "-O2"])).expect("read")
    })
}

/// From the first to the last section of debugging information.
fn debug_part() -> (usize, usize) {
    use object::{Object, ObjectSection};
    let file = object::File::parse(program()).expect("ELF");
    let sections = file
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug_")));
    let ranges: Vec<_> = sections.filter_map(|s| s.file_range()).collect();
    let first = ranges.iter().map(|r| r.0).min().expect("some");
    let last = ranges.iter().map(|r| r.0 + r.1).max().expect("some");
    (first as usize, last as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64)) {
        let mut bytes = program().to_vec();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        ask(bytes);
    }

    #[test]
    fn changed_bytes_of_what_is_not_linked(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..64)) {
        let mut bytes = unlinked().to_vec();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        ask(bytes);
    }

    /// Only where the debugging information is.
    #[test]
    fn changed_dwarf(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16)) {
        let mut bytes = program().to_vec();
        let (from, to) = debug_part();
        for (at, to_byte) in changes {
            bytes[from + at.index(to - from)] = to_byte;
        }
        ask(bytes);
    }

    #[test]
    fn cut_off(len in any::<prop::sample::Index>()) {
        let len = len.index(program().len());
        ask(program()[..len].to_vec());
    }

    /// Numbers at the ends of their ranges, where lengths and offsets are.
    #[test]
    fn extreme_words(at in any::<prop::sample::Index>(), word in prop::sample::select(vec![0u64, 1, u64::MAX, 1 << 63, 0xffff_ffff, 0xffff_fff0])) {
        let mut bytes = program().to_vec();
        let at = at.index(bytes.len() - 8) & !3;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        ask(bytes);
    }
}
