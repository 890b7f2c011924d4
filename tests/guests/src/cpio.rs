//! cpio archives in the format `newc`, which the kernel unpacks into its initial file system.
//! Source: `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use spile_cast::Cast;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("files of the image are small");
        // inode, mode, user, group, links, time, size, device of the file system, device, length
        // of the name with its NUL, checksum
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name.len().fit::<u32>() + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The name of a path in the archive, after adding the directories above it.
    fn placed(&mut self, path: &Path) -> String {
        let parts = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        let mut name = String::new();
        for part in parts {
            if !name.is_empty() {
                if self.folders.insert(name.clone()) {
                    self.entry(&name.clone(), FOLDER, (0, 0), &[]);
                }
                name.push('/');
            }
            name += &part;
        }
        name
    }

    /// Adds a directory.
    pub(super) fn folder(&mut self, path: &Path) {
        let name = self.placed(path);
        if self.folders.insert(name.clone()) {
            self.entry(&name, FOLDER, (0, 0), &[]);
        }
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &Path, data: &[u8]) {
        let name = self.placed(path);
        self.entry(&name, PROGRAM, (0, 0), data);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &Path, target: &str) {
        let name = self.placed(path);
        self.entry(&name, LINK, (0, 0), target.as_bytes());
    }

    /// Adds a character device by its numbers.
    pub(super) fn device(&mut self, path: &Path, major: u32, minor: u32) {
        let name = self.placed(path);
        self.entry(&name, DEVICE, (major, minor), &[]);
    }

    /// The complete archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_reads_it() {
        let mut archive = Archive::default();
        archive.file(Path::new("/a/b/file"), b"12345");
        archive.link(Path::new("/a/link"), "b/file");
        archive.folder(Path::new("/a/empty"));
        let bytes = archive.finish();
        // Every header begins at a multiple of four, and so does every file's data.
        let heads: Vec<usize> = (0..bytes.len())
            .filter(|&i| bytes[i..].starts_with(b"070701"))
            .collect();
        assert_eq!(heads.len(), 6); // a, a/b, a/b/file, a/link, a/empty, end
        assert!(heads.iter().all(|at| at % 4 == 0));
        let size = |at: usize| std::str::from_utf8(&bytes[at + 54..at + 62]).map(str::to_owned);
        assert_eq!(size(heads[2]).as_deref(), Ok("00000005"));
    }
}
