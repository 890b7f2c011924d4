//! Files of programs as stacks meet them: by the number that kernel handlers know them by, with
//! their symbols; and their unwind rows, which are loaded into a map that kernel handlers search.
//!
//! A file is opened as soon as its first frame is told of: through the process that has it
//! mapped, or where that is gone by the names that lead to it and the mount points of its
//! device. Whatever is opened stays open, so it is right also when the file is replaced.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use spile_bpf::layout::{FILE_NAME, FILE_NAMES, MAX_ROWS, VDSO, unwind_row::kind};
use spile_debuginfo::cfi::{self, Cfa, RBP, RSP, Saved, UnwindRow};
use spile_debuginfo::{Image, Module, Search};
use spile_kernel::bpf::Map;

use crate::record::Field;

/// Most rows that are sent to the kernel at once.
const BATCH: usize = 4096;
/// Where libraries are that programs name.
const LIBRARIES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// A place in a program, as kernel handlers tell of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The address, where it was told.
    pub addr: Option<u64>,
    /// The file, 0 for none.
    pub file: u64,
    /// The offset in it; without a file the process.
    pub offset: u64,
    /// How many bytes before the place the instruction is that is meant: a return address lies
    /// behind the call.
    pub back: u64,
}

/// What is known of a place.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    /// Symbol, distance from its start, its size.
    pub symbol: Option<(String, u64, u64)>,
    /// Path of the file, or the name that stands for one.
    pub module: Option<String>,
    /// Address in the file as it was linked.
    pub linked: u64,
}

/// A file.
struct File {
    name: String,
    module: Option<Module>,
}

/// The files, and the maps that kernel handlers look them up in.
pub struct UserFiles {
    files: Map<OwnedFd>,
    rows: Map<OwnedFd>,
    used: u32,
    known: HashMap<u64, File>,
    search: Search,
    vdso: Option<File>,
    /// Names of code that programs made themselves, by process.
    jit: HashMap<u64, Vec<(u64, u64, String)>>,
    /// Rows that found no room.
    pub no_room: bool,
}

impl UserFiles {
    /// For these maps.
    pub fn new(files: OwnedFd, rows: OwnedFd) -> Option<UserFiles> {
        Some(UserFiles {
            files: Map::new(files).ok()?,
            rows: Map::new(rows).ok()?,
            used: 0,
            known: HashMap::new(),
            search: Search::from_env(),
            vdso: None,
            jit: HashMap::new(),
            no_room: false,
        })
    }

    /// Takes up the files of a program and of the libraries that it names, before anything runs;
    /// `next` gives numbers.
    pub fn preload(&mut self, paths: Vec<PathBuf>, next: &mut dyn FnMut() -> u64) {
        let mut todo = paths;
        let mut seen = Vec::new();
        while let Some(path) = todo.pop() {
            let Ok(path) = path.canonicalize() else {
                continue;
            };
            if seen.contains(&path) || seen.len() > 64 {
                continue;
            }
            seen.push(path.clone());
            let (Ok(meta), Ok(image)) = (fs::metadata(&path), Image::open(&path)) else {
                continue;
            };
            for name in image.needed() {
                let found = LIBRARIES.iter().map(|dir| Path::new(dir).join(&name));
                todo.extend(found.into_iter().find(|p| p.exists()));
            }
            let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
            let device = u64::from(major) << 20 | u64::from(minor);
            let name = path.to_string_lossy().into_owned();
            self.add(next(), (device, meta.ino()), name, Some(image));
        }
    }

    /// Takes up a file that a record tells of; `None` for a record that is not as it should be,
    /// else whether it could be opened.
    pub fn learn(&mut self, fields: &[Field<'_>]) -> Option<bool> {
        let numbers: Vec<u64> = fields
            .iter()
            .map(|f| match f {
                Field::Long(n) => Some(*n as u64),
                Field::Str(_) => None,
            })
            .collect::<Option<_>>()?;
        let (&[number, process, start, end, device, inode], names) =
            numbers.split_first_chunk::<6>()?;
        let names: Vec<u8> = names.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let path = path_of(&names);
        let link = PathBuf::from(format!("/proc/{process}/map_files/{start:x}-{end:x}"));
        let mut found = None;
        // The process may have become another one.
        if let (Ok(image), Ok(meta), Ok(name)) = (
            Image::open(&link),
            fs::metadata(&link),
            fs::read_link(&link),
        ) && meta.ino() == inode
        {
            found = Some((name, image));
        }
        for path in mounted(device, &path) {
            if found.is_none()
                && fs::metadata(&path).is_ok_and(|m| m.ino() == inode)
                && let Ok(image) = Image::open(&path)
            {
                found = Some((path, image));
            }
        }
        let good = found.is_some();
        let (name, image) = match found {
            Some((name, image)) => (name.to_string_lossy().into_owned(), Some(image)),
            None => (path.to_string_lossy().into_owned(), None),
        };
        let name = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
        self.add(number, (device, inode), name, image);
        Some(good)
    }

    fn add(&mut self, number: u64, key: (u64, u64), name: String, image: Option<Image>) {
        let rows = image.as_ref().map(packed).unwrap_or_default();
        let first = self.load(&rows);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&key.0.to_ne_bytes());
        id[8..].copy_from_slice(&key.1.to_ne_bytes());
        let mut value = [0; 24];
        let count = if first.is_some() {
            rows.len() as u64
        } else {
            0
        };
        let words = [number, u64::from(first.unwrap_or(0)), count];
        for (to, word) in value.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        // Where this fails the file goes without rows.
        let _ = self.files.update(&id, &value, 0);
        let module = image.map(|i| Module::new(i, &self.search));
        self.known.insert(number, File { name, module });
    }

    /// Sends rows to the kernel; the index of the first, `None` where there is no room.
    fn load(&mut self, rows: &[u64]) -> Option<u32> {
        let first = self.used;
        let count = u32::try_from(rows.len()).ok()?;
        if count == 0 {
            return None;
        }
        if count > MAX_ROWS - first {
            self.no_room = true;
            return None;
        }
        for (i, part) in rows.chunks(BATCH).enumerate() {
            let at = first + (i * BATCH) as u32;
            let keys: Vec<u8> = (at..).take(part.len()).flat_map(u32::to_ne_bytes).collect();
            let values: Vec<u8> = part.iter().flat_map(|r| r.to_ne_bytes()).collect();
            self.rows.update_batch(&keys, &values).ok()?;
        }
        self.used += count;
        Some(first)
    }

    /// What is known of a place.
    pub fn find(&mut self, place: Place) -> Found {
        if place.file == 0 {
            return self.find_made(place);
        }
        let Some(file) = self.file(place.file) else {
            return Found::default();
        };
        let mut found = Found {
            module: Some(file.name.clone()),
            ..Found::default()
        };
        let Some(module) = &file.module else {
            return found;
        };
        let meant = place.offset.wrapping_sub(place.back);
        let Some(linked) = module.image().address_of_offset(meant) else {
            return found;
        };
        found.linked = linked;
        found.symbol = module.symbols().function_at(linked).map(|(s, offset)| {
            let name = spile_debuginfo::demangle::short(s.name);
            let name = name.unwrap_or_else(|| s.name.to_owned());
            (name, offset + place.back, s.size)
        });
        found
    }

    fn file(&mut self, number: u64) -> Option<&mut File> {
        if number == u64::from(VDSO) {
            if self.vdso.is_none() {
                self.vdso = vdso(&self.search);
            }
            return self.vdso.as_mut();
        }
        self.known.get_mut(&number)
    }

    /// Code that is in no file.
    fn find_made(&mut self, place: Place) -> Found {
        let names = self.jit.entry(place.offset).or_default();
        let addr = place.addr.unwrap_or(0).wrapping_sub(place.back);
        let holds = |n: &&(u64, u64, String)| (n.0..n.0.saturating_add(n.1)).contains(&addr);
        if !names.iter().any(|n| holds(&n)) {
            *names = jit_names(place.offset);
        }
        let symbol = names.iter().find(holds);
        Found {
            symbol: symbol.map(|n| (n.2.clone(), addr - n.0 + place.back, n.1)),
            ..Found::default()
        }
    }

    /// Source file and line of a place.
    pub fn line(&mut self, place: Place) -> Option<(String, u32)> {
        let linked = self.find(place).linked;
        let file = self.file(place.file)?;
        let dwarf = file.module.as_ref()?.dwarf()?;
        let (name, line) = dwarf.line_at(linked)?;
        Some((name?.to_string(), line))
    }
}

/// The files that a process has mapped as code.
pub fn mapped(process: i32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let code = maps
        .lines()
        .filter(|l| l.split(' ').nth(1).is_some_and(|f| f.contains('x')));
    let path = |l: &str| l.find('/').map(|at| PathBuf::from(&l[at..]));
    code.filter_map(path).collect()
}

/// The programs that a command line names: the first word, and whatever is a path, as behind
/// `env` or `taskset`.
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
    paths
}

/// The path that names lead to, innermost first.
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

/// Where a path of a device's file system may be in ours.
fn mounted(device: u64, path: &Path) -> Vec<PathBuf> {
    let device = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &str| {
        let mut words = line.split(' ').skip(2);
        if words.next()? != device {
            return None;
        }
        let (root, point) = (words.next()?, words.next()?);
        let below = path.strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    };
    mounts.lines().filter_map(place).collect()
}

/// What `perf` and its kin read: names that a program gives to code it makes.
fn jit_names(process: u64) -> Vec<(u64, u64, String)> {
    let text = fs::read(format!("/tmp/perf-{process}.map")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let hex = |w: &str| u64::from_str_radix(w.strip_prefix("0x").unwrap_or(w), 16).ok();
    let row = |line: &str| {
        let mut words = line.splitn(3, ' ');
        Some((
            hex(words.next()?)?,
            hex(words.next()?)?,
            words.next()?.to_owned(),
        ))
    };
    text.lines().filter_map(row).collect()
}

/// The kernel's code in programs, as this process has it.
fn vdso(search: &Search) -> Option<File> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(end - start).ok()?.min(1 << 20)];
    let memory = fs::File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    let image = Image::from_bytes(bytes, Path::new("[vdso]")).ok()?;
    Some(File {
        name: "[vdso]".into(),
        module: Some(Module::new(image, search)),
    })
}

/// A file's rows as kernel handlers read them, in order.
fn packed(image: &Image) -> Vec<u64> {
    const EM_X86_64: u16 = 62;
    if image.machine() != EM_X86_64 {
        return Vec::new();
    }
    let mut out: Vec<u64> = Vec::new();
    let mut last = None;
    for row in cfi::rows(image, None) {
        let Some(start) = image
            .file_offset(row.start)
            .or_else(|| image.file_offset(row.start.wrapping_sub(1)).map(|o| o + 1))
            .and_then(|o| u32::try_from(o).ok())
        else {
            continue;
        };
        let (how, cfa, rbp) = rule(&row);
        let rest = u64::from(how) << 56 | u64::from(rbp) << 48 | u64::from(cfa as u16) << 32;
        if last == Some(rest) {
            continue;
        }
        last = Some(rest);
        out.push(rest | u64::from(start));
    }
    out.sort_by_key(|r| *r as u32);
    out
}

/// Kind, CFA and rbp of a row.
fn rule(row: &UnwindRow) -> (u8, i16, u8) {
    const NONE: (u8, i16, u8) = (kind::NONE, 0, 0);
    if row.signal {
        return (kind::SIGNAL, 0, 0);
    }
    match row.ra {
        Saved::AtCfa(-8) => {}
        Saved::Undefined => return (kind::END, 0, 0),
        _ => return NONE,
    }
    let words = |offset: i32| (offset % 8 == 0).then(|| i16::try_from(offset / 8).ok());
    let (how, offset) = match row.cfa {
        Cfa::Register { register, offset } if register == RSP => (kind::RSP, offset),
        Cfa::Register { register, offset } if register == RBP => (kind::RBP, offset),
        Cfa::Deref { register, offset } if register == RSP => (kind::AT_RSP, offset),
        Cfa::Deref { register, offset } if register == RBP => (kind::AT_RBP, offset),
        Cfa::Plt { byte } => return (kind::PLT, i16::from(byte), 0),
        _ => return NONE,
    };
    let Some(cfa) = words(offset).flatten() else {
        return NONE;
    };
    let rbp = match row.rbp {
        Saved::AtCfa(at) if at < 0 && at % 8 == 0 => u8::try_from(-at / 8).ok(),
        Saved::AtCfa(_) | Saved::Register(_) | Saved::AtRegister { .. } => None,
        Saved::Same | Saved::Undefined | Saved::Other => Some(0),
    };
    rbp.map_or(NONE, |rbp| (how, cfa, rbp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_mounts() {
        let mut names = vec![0; FILE_NAMES * FILE_NAME];
        for (i, name) in ["prog", "bin", "usr"].iter().enumerate() {
            names[i * FILE_NAME..][..name.len()].copy_from_slice(name.as_bytes());
        }
        assert_eq!(path_of(&names), Path::new("/usr/bin/prog"));
        assert_eq!(path_of(&[0; 64]), Path::new("/"));
        assert!(mounted(u64::MAX, Path::new("/x")).is_empty());
    }

    #[test]
    fn rows_of_this_program() {
        let image = Image::open(Path::new("/proc/self/exe")).expect("own program");
        let rows = packed(&image);
        assert!(rows.len() > 1000, "{}", rows.len());
        assert!(rows.is_sorted_by_key(|r| *r as u32));
        let of = |row| rule(&row);
        let row = |cfa, rbp, ra| UnwindRow {
            start: 0,
            cfa,
            rbp,
            ra,
            signal: false,
        };
        let sp = |offset| Cfa::Register {
            register: RSP,
            offset,
        };
        let ra = Saved::AtCfa(-8);
        assert_eq!(of(row(sp(16), Saved::AtCfa(-16), ra)), (kind::RSP, 2, 2));
        assert_eq!(of(row(sp(12), Saved::Same, ra)), (kind::NONE, 0, 0));
        assert_eq!(
            of(row(sp(8), Saved::Same, Saved::Undefined)),
            (kind::END, 0, 0)
        );
    }
}
