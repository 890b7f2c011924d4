//! The notes of the macros in this test program itself: names, sizes, registers, semaphores.

use spile_debuginfo::sdt::{self, ArgLocation};

#[allow(clippy::too_many_arguments)]
#[inline(never)]
fn sites(a: u8, b: i8, c: u16, d: i16, e: u32, f: i32, g: u64, h: i64, p: *const u8) -> bool {
    let text = [1_u8, 2];
    spile_sdt::probe!(rust_notes, none);
    spile_sdt::probe!(rust_notes, one, f);
    spile_sdt::probe!(
        rust_notes, twelve, a, b, c, d, e, f, g, h, p, &text, true, 'x'
    );
    if spile_sdt::probe_enabled!(rust_notes, none) {
        return true;
    }
    spile_sdt::probe!(rust_notes, generic, std::hint::black_box(5_usize),);
    spile_sdt::probe_enabled!(rust_notes, nowhere)
}

#[test]
fn markers_are_in_the_program() {
    assert!(!sites(1, -2, 3, -4, 5, -6, 7, -8, std::ptr::null()));
    let exe = std::fs::read("/proc/self/exe").expect("this program");
    let all = sdt::markers(&exe).expect("an ELF file");
    let all: Vec<_> = all.iter().filter(|m| m.provider == "rust_notes").collect();
    let one = |name: &str| {
        let found: Vec<_> = all.iter().filter(|m| m.name == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]
    };
    let sizes = |name: &str| -> Vec<i32> {
        let sized = |o: &sdt::MarkerArg| i32::from(o.size) * if o.signed { -1 } else { 1 };
        one(name).args.iter().map(sized).collect()
    };
    assert_eq!(sizes("none"), [0; 0]);
    assert_eq!(sizes("one"), [-4]);
    assert_eq!(sizes("generic"), [8]);
    assert_eq!(sizes("twelve"), [1, -1, 2, -2, 4, -4, 8, -8, 8, 8, 1, 4]);
    for marker in &all {
        assert_ne!(marker.semaphore, 0, "{}", marker.name);
        let registers = marker.args.iter();
        assert!(
            registers
                .clone()
                .all(|o| matches!(o.location, ArgLocation::Register { .. }))
        );
        if cfg!(target_arch = "x86_64") {
            let at = usize::try_from(marker.offset).expect("an offset");
            assert_eq!(exe[at..at + 5], [0x0f, 0x1f, 0x44, 0, 0], "{}", marker.name);
        }
    }
}
