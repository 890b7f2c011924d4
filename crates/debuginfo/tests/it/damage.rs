//! Damaged files: any bytes give answers or errors, and soon.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use spile_debuginfo::{Die, Dwarf, Image, LineQuery, Module, Pattern, Search, Which, cfi, plt};

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

/// Asks everything.
fn ask(bytes: Vec<u8>) {
    let Ok(image) = Image::from_bytes(bytes, Path::new("damaged")) else {
        return;
    };
    let module = Module::new(image, &Search::default());
    let image = module.image();
    let _ = (image.build_id(), image.debug_link(), image.alt_link());
    let _ = plt::entries(image);
    let rows = cfi::rows(image, module.debug_image());
    for s in module.symbols().all() {
        let _ = module.symbols().function_at(s.address);
        let _ = module.symbols().data_at(s.address.wrapping_add(1));
        let _ = image.file_offset(s.address);
        let _ = cfi::row_at(&rows, s.address);
        let _ = spile_debuginfo::demangle::full(s.name);
    }
    if let Some(dwarf) = module.dwarf() {
        ask_dwarf(dwarf);
    }
}

fn ask_dwarf(dwarf: &Dwarf) {
    let any = Pattern {
        text: "*",
        glob: Some(|_, _| true),
    };
    let all = Which {
        outline: true,
        inlined: true,
    };
    let mut places: Vec<(u64, Die)> = Vec::new();
    for f in dwarf.functions(any, None, all).into_iter().take(50) {
        let _ = dwarf.callees(f.die);
        let _ = dwarf.line_range(f.die);
        places.push((f.body, f.die));
    }
    let lines = dwarf.statements(any, None, LineQuery::All).places;
    places.extend(lines.into_iter().take(100).map(|l| (l.address, l.die)));
    for (address, die) in places {
        let _ = dwarf.frames(address);
        for v in dwarf.variables(address, Some(die)) {
            let _ = dwarf.locate(&v, address);
            let _ = dwarf.c_name(v.ty);
            let _ = dwarf.ctype(v.ty);
            let _ = dwarf.enum_values(v.ty);
            for m in dwarf.members(v.ty).into_iter().take(50) {
                let _ = (dwarf.c_name(m.ty), dwarf.ctype(m.ty));
            }
        }
    }
    let _ = dwarf.global("shared", None);
    let _ = dwarf.type_named("struct tree");
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
