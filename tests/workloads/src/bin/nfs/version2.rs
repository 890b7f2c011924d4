//! A server of NFS version 2, which Debian's kernels do not have: one directory of files in memory, over TCP.
//! It has the operations that `nfs work2` makes its client send (RFC 1094).

use std::collections::BTreeMap;

use spile_cast::Cast;

/// Bytes of a file handle.
const HANDLE: usize = 32;
/// Number of the directory.
const ROOT: u32 = 1;
const OK: u32 = 0;
const NOENT: u32 = 2;

struct File {
    mode: u32,
    bytes: Vec<u8>,
}

/// The directory.
pub(crate) struct Directory {
    files: BTreeMap<u32, File>,
    names: BTreeMap<String, u32>,
    next: u32,
}

/// The arguments of a call.
struct Arguments<'a>(&'a [u8]);

impl Arguments<'_> {
    fn bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        let taken = self.0.get(..length)?.to_vec();
        self.0 = self.0.get(length.next_multiple_of(4)..)?;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn opaque(&mut self) -> Option<Vec<u8>> {
        let length = self.number()?;
        self.bytes(length as usize)
    }

    fn name(&mut self) -> Option<String> {
        String::from_utf8(self.opaque()?).ok()
    }

    fn handle(&mut self) -> Option<u32> {
        let bytes = self.bytes(HANDLE)?;
        Some(u32::from_be_bytes(bytes[..4].try_into().ok()?))
    }
}

/// The file handle of a number.
fn handle(number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(HANDLE, 0);
    bytes
}

/// The result of a mount by version 1 of its protocol.
pub(crate) fn mounted() -> Vec<u8> {
    [OK.to_be_bytes().to_vec(), handle(ROOT)].concat()
}

fn status(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next: ROOT + 1,
        }
    }

    fn attributes(&self, number: u32) -> Option<Vec<u8>> {
        let (kind, mode, size) = match self.files.get(&number) {
            Some(file) => (1, file.mode | 0o100_000, file.bytes.len().fit::<u32>()),
            None if number == ROOT => (2, 0o040_777, 4096),
            None => return None,
        };
        let blocks = size.div_ceil(512);
        // Links, owner and group before the size; the size of blocks, the device, and the file system after it.
        let words = [kind, mode, 1, 0, 0, size, 4096, 0, blocks, 1, number];
        // The same time for reads, writes and changes.
        let times = [1, 0].repeat(3);
        let all = words.into_iter().chain(times);
        Some(all.flat_map(u32::to_be_bytes).collect())
    }

    /// A status and attributes.
    fn described(&self, number: u32) -> Vec<u8> {
        match self.attributes(number) {
            Some(attributes) => [status(OK), attributes].concat(),
            None => status(NOENT),
        }
    }

    /// A status, a handle and attributes.
    fn found(&self, number: Option<&u32>) -> Vec<u8> {
        match number.and_then(|&n| Some((n, self.attributes(n)?))) {
            Some((n, attributes)) => [status(OK), handle(n), attributes].concat(),
            None => status(NOENT),
        }
    }

    fn set(&mut self, number: u32, mode: u32, size: u32) {
        if let Some(file) = self.files.get_mut(&number) {
            // All ones: no change.
            file.mode = if mode == u32::MAX {
                file.mode
            } else {
                mode & 0o7777
            };
            if size != u32::MAX {
                file.bytes.resize(size as usize, 0);
            }
        }
    }

    /// Mode and size of the attributes to set.
    fn wishes(arguments: &mut Arguments) -> Option<(u32, u32)> {
        let (mode, _owner, _group) = (
            arguments.number()?,
            arguments.number()?,
            arguments.number()?,
        );
        Some((mode, arguments.number()?))
    }

    /// The results of a call; `None` if its arguments are wrong.
    pub(crate) fn call(&mut self, procedure: u32, arguments: &[u8]) -> Option<Vec<u8>> {
        let mut arguments = Arguments(arguments);
        if procedure == 0 {
            return Some(Vec::new());
        }
        let at = arguments.handle()?;
        Some(match procedure {
            1 => self.described(at),
            2 => {
                let (mode, size) = Directory::wishes(&mut arguments)?;
                self.set(at, mode, size);
                self.described(at)
            }
            4 => self.found(self.names.get(&arguments.name()?)),
            6 => {
                let (from, count) = (arguments.number()? as usize, arguments.number()? as usize);
                let bytes = &self.files.get(&at)?.bytes;
                let read = bytes
                    .get(from..bytes.len().min(from + count))
                    .unwrap_or_default();
                let mut result = self.described(at);
                result.extend(read.len().fit::<u32>().to_be_bytes());
                result.extend(read);
                result.resize(result.len().next_multiple_of(4), 0);
                result
            }
            8 => {
                let (_, from, _) = (
                    arguments.number()?,
                    arguments.number()?,
                    arguments.number()?,
                );
                let written = arguments.opaque()?;
                let (from, bytes) = (from as usize, &mut self.files.get_mut(&at)?.bytes);
                bytes.resize(bytes.len().max(from + written.len()), 0);
                bytes[from..from + written.len()].copy_from_slice(&written);
                self.described(at)
            }
            9 => {
                let name = arguments.name()?;
                let (mode, _) = Directory::wishes(&mut arguments)?;
                let (number, mode) = (self.next, mode & 0o7777);
                self.next += 1;
                let bytes = Vec::new();
                self.files.insert(number, File { mode, bytes });
                self.names.insert(name, number);
                self.found(Some(&number))
            }
            10 => match self.names.remove(&arguments.name()?) {
                Some(number) => {
                    self.files.remove(&number);
                    status(OK)
                }
                None => status(NOENT),
            },
            11 => {
                let (old, _to) = (arguments.name()?, arguments.handle()?);
                match self.names.remove(&old) {
                    Some(number) => {
                        self.names.insert(arguments.name()?, number);
                        status(OK)
                    }
                    None => status(NOENT),
                }
            }
            // Bytes of a transfer and of a block, and blocks: all, free, and free for users.
            17 => [OK, 4096, 4096, 1024, 512, 512]
                .map(u32::to_be_bytes)
                .concat(),
            _ => return None,
        })
    }
}
