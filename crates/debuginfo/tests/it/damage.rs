//! Damaged files: arbitrary bytes give answers or errors in bounded time.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::build::Dir;
use crate::queries::run_all;

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

/// A relocatable file of the same source.
fn unlinked() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = Dir::new();
        std::fs::read(dir.compile("x.c", TEXT, &["-c", "-g", "-O2"])).expect("read")
    })
}

/// The range from the first to the last section with that prefix.
fn part(prefix: &str) -> (usize, usize) {
    use object::{Object, ObjectSection};
    let file = object::File::parse(program()).expect("ELF");
    let sections = file
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(prefix)));
    let ranges: Vec<_> = sections.filter_map(|s| s.file_range()).collect();
    let first = ranges.iter().map(|r| r.0).min().expect("some");
    let last = ranges.iter().map(|r| r.0 + r.1).max().expect("some");
    (first as usize, last as usize)
}

/// Time after which a query on one file counts as hanging.
const HANG: Duration = Duration::from_secs(60);

/// Programs of many kinds, for the long run.
fn many() -> Vec<Vec<u8>> {
    let dir = Dir::new();
    let kinds: [&[&str]; 8] = [
        &["-O2", "-gdwarf-5"],
        &["-O0", "-gdwarf-4"],
        &["-O2", "-gdwarf-4", "-fdebug-types-section"],
        &["-O1", "-gdwarf-5", "-gz"],
        &["-O2", "-gdwarf-2"],
        &["-O2", "-g", "-flto"],
        &["-O2", "-g", "-c"],
        &["-O2", "-gdwarf-4", "-c"],
    ];
    let build = |flags: &&[&str]| std::fs::read(dir.compile("x.c", TEXT, flags)).expect("read");
    kinds.iter().map(build).collect()
}

/// Runs for as long as `cargo xtask fuzz --debuginfo` says; otherwise does nothing. A file that
/// causes a panic or takes too long is saved next to the tests.
#[test]
fn a_long_run_of_damaged_files_does_not_panic() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let Some(seconds) = number("SPILE_FUZZ_SECONDS") else {
        return;
    };
    let start = Instant::now();
    let programs = many();
    let mut state = number("SPILE_SEED").unwrap_or(1) | 1;
    // xorshift64*
    let mut below = move |n: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    };
    let mut tried = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = programs[below(programs.len())].clone();
        for _ in 0..1 + below(24) {
            let at = below(bytes.len() - 8);
            match below(6) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] ^= 1 << below(8),
                2 => bytes[at..at + 8].fill([0, 0xff, 0x80, 0x7f][below(4)]),
                3 => bytes[at] = bytes[at].wrapping_add(1),
                4 => {
                    let last = bytes.len() - 64;
                    let (from, len) = (below(last), 1 + below(64));
                    bytes.copy_within(from..from + len, at.min(last));
                }
                _ => {
                    let word = (below(1 << 16) as u32).to_le_bytes();
                    bytes[at..at + 4].copy_from_slice(&word);
                }
            }
        }
        let copy = bytes.clone();
        let asked = Instant::now();
        let fine = std::panic::catch_unwind(|| run_all(copy)).is_ok() && asked.elapsed() < HANG;
        if !fine {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("damaged");
            std::fs::write(&kept, &bytes).expect("kept");
            panic!("after {tried} files: {}", kept.display());
        }
        tried += 1;
    }
    eprintln!("{tried} damaged files");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64)) {
        let mut bytes = program().to_vec();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        run_all(bytes);
    }

    #[test]
    fn changed_bytes_of_relocatable_files_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..64)) {
        let mut bytes = unlinked().to_vec();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        run_all(bytes);
    }

    /// Changes only within the debugging information.
    #[test]
    fn changed_dwarf_does_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16)) {
        let mut bytes = program().to_vec();
        let (from, to) = part(".debug_");
        for (at, to_byte) in changes {
            bytes[from + at.index(to - from)] = to_byte;
        }
        run_all(bytes);
    }

    /// Changes only within the unwind tables.
    #[test]
    fn changed_unwind_tables_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16)) {
        let mut bytes = program().to_vec();
        let (from, to) = part(".eh_frame");
        for (at, to_byte) in changes {
            bytes[from + at.index(to - from)] = to_byte;
        }
        run_all(bytes);
    }

    #[test]
    fn truncated_files_do_not_panic(len in any::<prop::sample::Index>()) {
        let len = len.index(program().len());
        run_all(program()[..len].to_vec());
    }

    /// Extreme numbers, at locations of lengths and offsets.
    #[test]
    fn extreme_lengths_and_offsets_do_not_panic(at in any::<prop::sample::Index>(), word in prop::sample::select(vec![0u64, 1, u64::MAX, 1 << 63, 0xffff_ffff, 0xffff_fff0])) {
        let mut bytes = program().to_vec();
        let at = at.index(bytes.len() - 8) & !3;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        run_all(bytes);
    }
}
