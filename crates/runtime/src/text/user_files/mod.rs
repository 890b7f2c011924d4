//! The files in user stacks, by the number that kernel handlers use: their symbols, and their
//! unwind rows, which are loaded into a map that kernel handlers search.
//!
//! In: announcements of files, and addresses in them. Out: names and lines for the controller,
//! tables for the kernel's handlers. A file that cannot be read has no names and no rows. Stacks
//! are unwound in the kernel, not here.
//!
//! A file is opened as soon as its first frame is announced: through the process that has it
//! mapped, or, if that is gone, through the names of its path and the mount points of its device.
//! It stays open, so that a replacement of the file does no harm.

mod copies;
mod jit_names;
pub mod names;
mod packed_rows;
pub mod reader;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use spile_abi::HOST;
use spile_debuginfo::{DebugFile, Image, SearchPaths, dynamic};
use spile_kernel::process;
use spile_layout::{
    BEHIND, FILE_NAME, FILE_NAMES, FILES_MAP, MAX_ROWS, NO_ROWS, ROWS_MAP, StackWords, VDSO,
};

use crate::error::Error;
use crate::machine::parallel::compute;
use crate::shared::maps::{ByteTable, HostTables};
use crate::shared::ring_record::FieldValue;
use crate::shared::state::HostMemory;
use copies::StackCopies;
pub use jit_names::JitNames;
use names::{NameTables, linked_at, loaded_size, symbol_at};
use reader::{ReadJob, ReadTables, TableReader, WantedTables};

/// Directories of the libraries that programs name, behind those of the processor ([`spile_abi::Abi::multiarch`]).
const LIBRARIES: [&str; 6] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// A frame in a program, as kernel handlers send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// The address, if it was sent.
    pub addr: Option<u64>,
    /// The file's number, 0 for none.
    pub file: u64,
    /// The offset in the file; without a file, the process.
    pub offset: u64,
    /// Distance in bytes back to the instruction in question: a return address lies behind the
    /// call.
    pub back: u64,
}

/// The description of a frame.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FrameInfo {
    /// The symbol, the distance from its start, its size.
    pub symbol: Option<(String, u64, u64)>,
    /// Path of the file, or a name instead of one.
    pub module: Option<String>,
    /// Link-time address in the file.
    pub linked: u64,
    /// Size of the file in memory, in bytes.
    pub size: u64,
}

/// A known file.
struct KnownFile {
    name: String,
    module: Option<Arc<DebugFile>>,
    /// Its rows, once a copy of a stack was unwound.
    rows: Option<Rc<[u64]>>,
}

/// The known files, and the tables that handlers search.
pub struct UserFiles {
    files: Box<dyn ByteTable>,
    rows: HostMemory,
    /// Whether stacks are unwound, which needs rows. Without them none are loaded.
    unwinds: bool,
    /// The symbols that kernel handlers inspect.
    names: Option<NameTables>,
    /// Number of files whose symbols or lines did not fit.
    pub without_names: u64,
    reader: TableReader,
    used: u32,
    known_files: HashMap<u64, KnownFile>,
    copies: StackCopies,
    /// Number of stacks that could not be completed.
    pub unfinished: u64,
    search: SearchPaths,
    /// Names of run-time generated code, by process.
    jit_files: HashMap<u64, JitNames>,
    /// Number of files whose rows did not fit.
    pub without_rows: u64,
    /// Whether an unannounced file was requested; the reader clears it.
    pub met_unknown: bool,
    /// Whether run-time generated code was requested, whose names can still come.
    pub met_made: bool,
}

impl UserFiles {
    /// The files for a host's tables; `None` if this process can make no thread that reads files.
    ///
    /// # Errors
    /// The host does not give out a table.
    pub fn new(tables: &dyn HostTables, stacks: &StackWords) -> Result<Option<UserFiles>, Error> {
        let names = stacks
            .symbols
            .then(|| NameTables::new(tables, stacks.lines));
        let unwinds = stacks.rows;
        let Ok(reader) = TableReader::new() else {
            return Ok(None);
        };
        let mut known = UserFiles {
            files: tables.table(FILES_MAP)?,
            rows: tables.memory(ROWS_MAP)?,
            unwinds,
            names: names.transpose()?,
            without_names: 0,
            reader,
            used: 0,
            known_files: HashMap::new(),
            copies: StackCopies::default(),
            unfinished: 0,
            search: SearchPaths::from_env(),
            jit_files: HashMap::new(),
            without_rows: 0,
            met_unknown: false,
            met_made: false,
        };
        // Without rows the file is read when it is first needed.
        let wanted = unwinds || known.names.is_some();
        let image = wanted.then(vdso).flatten();
        if image.is_some() || !wanted {
            let job = known.add_file(VDSO.into(), (0, 0), "[vdso]".into(), image);
            known.install(job.read());
        }
        Ok(Some(known))
    }

    /// Reads the files of a program, and of the libraries that it names, before anything runs;
    /// `next` allocates numbers.
    pub fn preload(&mut self, paths: Vec<PathBuf>, next: &mut dyn FnMut() -> u64) {
        let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let given: Vec<PathBuf> = std::env::split_paths(&given)
            .filter(|p| p.is_absolute())
            .collect();
        let mut todo = paths;
        let (mut seen, mut jobs) = (Vec::new(), Vec::new());
        while let Some(path) = todo.pop() {
            let Ok(path) = path.canonicalize() else {
                continue;
            };
            if seen.contains(&path) || seen.len() > 64 {
                continue;
            }
            seen.push(path.clone());
            let (Some(key), Ok(image)) = (process::file_identity(&path), Image::open(&path)) else {
                continue;
            };
            let run_paths = dynamic::needs(&image).folders_from(&path);
            let native = ["/lib", "/usr/lib"].map(|dir| Path::new(dir).join(HOST.multiarch));
            for name in image.needed() {
                let folders = run_paths.iter().chain(&given).chain(&native);
                let folders = folders.map(PathBuf::as_path);
                let folders = folders.chain(LIBRARIES.iter().map(Path::new));
                let mut candidates = folders.map(|dir| dir.join(&name));
                todo.extend(candidates.find(|p| p.exists()));
            }
            let name = path.to_string_lossy().into_owned();
            jobs.push(self.add_file(next(), key, name, Some(image)));
        }
        for read in compute(jobs, usize::MAX, |job| job.read()) {
            self.install(read);
        }
    }

    /// A descriptor that is readable when [`UserFiles::take_read`] has work to do.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.reader.ready()
    }

    /// Installs the tables of files that were read.
    pub fn take_read(&mut self) {
        for read in self.reader.take_results() {
            self.install(read);
        }
    }

    /// Learns the file that a record announces. Returns whether it could be opened; `None` for a
    /// malformed record.
    pub fn learn_file(&mut self, fields: &[FieldValue<'_>]) -> Option<bool> {
        let numbers = fields.iter().map(FieldValue::number);
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let (&[number, process, start, end, device, inode], names) =
            numbers.split_first_chunk::<6>()?;
        let names: Vec<u8> = names.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let path = path_of(&names);
        let link = PathBuf::from(format!("/proc/{process}/map_files/{start:x}-{end:x}"));
        let mut opened = None;
        // The process may have called `execve` in the meantime.
        if let (Ok(image), Ok(meta), Ok(name)) = (
            Image::open(&link),
            fs::metadata(&link),
            fs::read_link(&link),
        ) && meta.ino() == inode
        {
            opened = Some((name, image));
        }
        for path in mounted(device, &path) {
            if opened.is_none()
                && fs::metadata(&path).is_ok_and(|m| m.ino() == inode)
                && let Ok(image) = Image::open(&path)
            {
                opened = Some((path, image));
            }
        }
        let good = opened.is_some();
        let (name, image) = match opened {
            Some((name, image)) => (name.to_string_lossy().into_owned(), Some(image)),
            None => (path.to_string_lossy().into_owned(), None),
        };
        let name = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
        let job = self.add_file(number, (device, inode), name, image);
        // Runs in the background: until it is finished, hits work without the tables.
        if let Some(job) = self.reader.enqueue(job) {
            self.install(job.read());
        }
        Some(good)
    }

    /// Adds a file; returns the job to read it.
    fn add_file(
        &mut self,
        number: u64,
        key: (u64, u64),
        name: String,
        image: Option<Image>,
    ) -> ReadJob {
        let module = image.map(|i| Arc::new(DebugFile::new(i, &self.search)));
        let file = KnownFile {
            name: name.clone(),
            module: module.clone(),
            rows: None,
        };
        self.known_files.insert(number, file);
        ReadJob {
            number,
            key,
            path: name,
            module,
            wanted: WantedTables {
                rows: self.unwinds,
                names: self.names.as_ref().map(NameTables::with_lines),
            },
        }
    }

    /// Installs what was read of a file for handlers.
    fn install(&mut self, read: ReadTables) {
        if let Some(rows) = &read.rows {
            self.install_rows(read.number, read.key, rows);
        }
        if let (Some(names), Some(tables)) = (&mut self.names, &read.tables)
            && !names.add(read.number, tables)
        {
            self.without_names += 1;
        }
    }

    fn install_rows(&mut self, number: u64, key: (u64, u64), rows: &[u64]) {
        let first = self.load(rows);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&key.0.to_ne_bytes());
        id[8..].copy_from_slice(&key.1.to_ne_bytes());
        let mut value = [0; 24];
        let count = if first.is_some() {
            rows.len() as u64
        } else {
            0
        };
        let words = [number, first.map_or(NO_ROWS, u64::from), count];
        for (to, word) in value.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        if !matches!(self.files.set(&id, &value), Ok(true)) {
            self.without_rows += 1;
        }
    }

    /// Loads rows into the kernel's table; returns the index of the first, or `None` if the table
    /// is full.
    fn load(&mut self, rows: &[u64]) -> Option<u32> {
        let first = self.used;
        let count = u32::try_from(rows.len()).ok()?;
        if count == 0 {
            return None;
        }
        if count > MAX_ROWS - first {
            self.without_rows += 1;
            return None;
        }
        if names::write(&self.rows, first as usize, rows.iter().copied()).is_err() {
            self.without_rows += 1;
            return None;
        }
        self.used += count;
        Some(first)
    }

    /// Describes a frame.
    pub fn find(&mut self, location: FrameLocation) -> FrameInfo {
        if location.file == 0 {
            return self.find_jit(location);
        }
        if self.file(location.file).is_none() {
            self.met_unknown = true;
        }
        let Some(file) = self.file(location.file) else {
            return FrameInfo::default();
        };
        let mut info = FrameInfo {
            module: Some(file.name.clone()),
            ..FrameInfo::default()
        };
        let Some(module) = &file.module else {
            return info;
        };
        let image = module.image();
        let meant = (location.offset & !BEHIND).wrapping_sub(location.back);
        let Some(linked) = linked_at(image, meant | location.offset & BEHIND) else {
            // Memory that happens to lie behind a file.
            let is_behind = location.offset & BEHIND != 0;
            return if is_behind {
                FrameInfo::default()
            } else {
                info
            };
        };
        info.linked = linked;
        info.size = loaded_size(module);
        let symbol = symbol_at(image, module.symbols(), linked);
        info.symbol = symbol.map(|(name, offset, size)| (name, offset + location.back, size));
        info
    }

    fn file(&mut self, number: u64) -> Option<&mut KnownFile> {
        let file = self.known_files.get_mut(&number)?;
        if number == VDSO.into() && file.module.is_none() {
            file.module = vdso().map(|image| Arc::new(DebugFile::new(image, &self.search)));
        }
        Some(file)
    }

    /// Describes a frame in code without a file.
    fn find_jit(&mut self, location: FrameLocation) -> FrameInfo {
        self.met_made = true;
        let names = self.jit_files.entry(location.offset).or_default();
        let addr = location.addr.unwrap_or(0).wrapping_sub(location.back);
        if names.find(addr).is_none() {
            names.reread(location.offset);
        }
        let symbol = names.find(addr);
        FrameInfo {
            symbol: symbol.map(|s| (s.name.clone(), addr - s.start + location.back, s.size)),
            ..FrameInfo::default()
        }
    }

    /// Number of lines with names of generated code that could not be read.
    pub fn bad_names(&self) -> u64 {
        self.jit_files.values().map(|names| names.bad).sum()
    }

    /// Source file and line of a frame.
    pub fn line(&mut self, location: FrameLocation) -> Option<(String, u32)> {
        let linked = self.find(location).linked;
        let file = self.file(location.file)?;
        let dwarf = file.module.as_ref()?.dwarf()?;
        let (name, line) = dwarf.line_at(linked)?;
        Some((name?.to_string(), line))
    }
}

/// The files with executable mappings in a process.
pub fn mapped_files(process: u32) -> Vec<PathBuf> {
    let maps = process::mappings(process).unwrap_or_default().into_iter();
    let code = maps.filter(|m| m.executable && m.path.starts_with('/'));
    code.map(|m| m.path.into()).collect()
}

/// The programs that a command line names: the first word, and all words that are paths, as behind
/// `env` or `taskset`. The libraries of `LD_PRELOAD` follow, because the dynamic linker adds them to each program.
pub fn programs_of(command: &str) -> Vec<PathBuf> {
    let words = shlex::split(command).unwrap_or_default();
    let mut paths: Vec<PathBuf> = words
        .iter()
        .filter(|w| w.contains('/'))
        .map(Into::into)
        .collect();
    if let (Some(first), Some(dirs)) = (words.first(), std::env::var_os("PATH")) {
        let files = std::env::split_paths(&dirs).map(|d| d.join(first));
        paths.extend(files.into_iter().find(|p| p.is_file()));
    }
    let added = std::env::var("LD_PRELOAD").unwrap_or_default();
    let added = added.split([':', ' ']).map(PathBuf::from);
    paths.extend(added.filter(|p| p.is_absolute()));
    paths
}

/// The path from names, innermost first.
fn path_of(names: &[u8]) -> PathBuf {
    let mut parts: Vec<&[u8]> = names
        .chunks(FILE_NAME)
        .take(FILE_NAMES)
        .map(|n| n.split(|b| *b == 0).next().unwrap_or(n))
        .take_while(|n| !n.is_empty())
        .collect();
    parts.push(b"/");
    parts.iter().rev().map(|p| OsStr::from_bytes(p)).collect()
}

/// Possible paths in our mounts for a path in a device's file system.
fn mounted(device: u64, path: &Path) -> Vec<PathBuf> {
    let device = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let location = |line: &str| {
        let mut words = line.split(' ').skip(2);
        if words.next()? != device {
            return None;
        }
        let (root, point) = (words.next()?, words.next()?);
        let below = path.strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    };
    mounts.lines().filter_map(location).collect()
}

/// The vDSO of this process.
pub(crate) fn vdso() -> Option<Image> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(end - start).ok()?.min(1 << 20)];
    let memory = fs::File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Image::from_bytes(bytes, Path::new("[vdso]")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_through_mounts() {
        let mut names = vec![0; FILE_NAMES * FILE_NAME];
        for (i, name) in ["prog", "bin", "usr"].iter().enumerate() {
            names[i * FILE_NAME..][..name.len()].copy_from_slice(name.as_bytes());
        }
        assert_eq!(path_of(&names), Path::new("/usr/bin/prog"));
        assert_eq!(path_of(&[0; 64]), Path::new("/"));
        assert!(mounted(u64::MAX, Path::new("/x")).is_empty());
    }
}
