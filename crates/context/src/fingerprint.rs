//! The number of a version of the library. The build script computes it as well.

/// FNV-1a over words, of which the last one is filled up with zeros.
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// That of no bytes.
    pub(crate) const fn new() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a piece. All but the last one have a multiple of 8 bytes.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        for chunk in piece.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The number of all pieces.
    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}
