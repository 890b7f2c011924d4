//! Damaged files: any bytes give answers or errors, and soon.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use spile_debuginfo::{Image, Module, Search, cfi, plt};

use crate::build::Dir;

fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let text = "#include <stdio.h>\nint main(void) { return puts(\"x\"); }\n";
        let dir = Dir::new();
        std::fs::read(dir.compile("x.c", text, &["-g", "-O1"])).expect("read")
    })
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
