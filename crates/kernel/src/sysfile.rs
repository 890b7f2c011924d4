//! Bytes of a system file: mapped where the kernel allows it, else owned.

use std::fs::File;
use std::io::Read;
use std::ops::Deref;

use crate::mapping::{MapAccess, MappedPages};

/// Read-only bytes, mapped or owned.
pub(crate) enum Blob {
    Owned(Vec<u8>),
    Mapped(MappedPages),
}

impl Blob {
    /// Maps `len` bytes of a file; `None` where its file system cannot map it.
    pub(crate) fn map(file: &File, len: usize) -> Option<Blob> {
        let mapped = MappedPages::new(file, 0, len, MapAccess::Private);
        mapped.ok().map(Blob::Mapped)
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Blob {
        Blob::Owned(bytes)
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Blob::Owned(bytes) => bytes,
            // SAFETY: these bytes are readable until the mapping is dropped, and nobody writes them: the
            // kernel's BTF never changes.
            Blob::Mapped(m) => unsafe { std::slice::from_raw_parts(m.start().as_ptr(), m.bytes()) },
        }
    }
}

/// Reads a file of `/proc` or `/sys` whole, in large pieces: such files report no size, and each
/// read costs the kernel some work.
pub(crate) fn read_fully(path: &str) -> std::io::Result<Vec<u8>> {
    read_whole(File::open(path)?)
}

/// Reads an open file whole, in large pieces.
pub(crate) fn read_whole(mut file: File) -> std::io::Result<Vec<u8>> {
    const PIECE: usize = 1 << 20;
    let mut bytes = Vec::new();
    let mut len = 0;
    loop {
        if bytes.len() - len < PIECE / 4 {
            bytes.resize(bytes.len() + PIECE, 0);
        }
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(len);
    bytes.shrink_to_fit();
    Ok(bytes)
}
