//! Stubs of the procedure linkage table (psABI).

/// Sections with stubs, and the size of a stub in bytes (8 in `.plt.got` without CET).
pub(super) const SECTIONS: [(&str, usize); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];

/// `jmp *disp32(%rip)`
const JUMP: [u8; 2] = [0xff, 0x25];
/// `endbr64`
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The slot that the stub at an offset jumps through.
pub(super) fn jump_slot(base: u64, code: &[u8], offset: usize) -> Option<u64> {
    let mut pc = offset;
    if code.get(pc..pc + 4) == Some(&ENDBR) {
        pc += 4;
    }
    // `bnd` prefix
    if code.get(pc) == Some(&0xf2) {
        pc += 1;
    }
    if code.get(pc..pc + 2) != Some(&JUMP) {
        return None;
    }
    let disp = i32::from_le_bytes(code.get(pc + 2..pc + 6)?.try_into().ok()?);
    Some(
        base.wrapping_add(pc as u64 + 6)
            .wrapping_add(i64::from(disp).cast_unsigned()),
    )
}
