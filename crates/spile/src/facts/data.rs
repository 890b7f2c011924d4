//! Addresses of variables by their symbols, and the kernel's identity of files.

use std::path::Path;

use spile_debuginfo::{DebugFile, SearchPaths, SymbolKind};
use spile_ir::WatchOwner;
use spile_kernel::process::mappings;
use spile_kernel::symbols::Symbols;
use spile_sema::facts::{DataLocation, FileIdentity};

/// See [`spile_sema::facts::CodeFacts::file_identity`].
pub(super) fn file_identity(path: &str) -> Option<FileIdentity> {
    let (device, inode) = spile_kernel::process::file_identity(Path::new(path))?;
    Some(FileIdentity { device, inode })
}

/// See [`spile_sema::facts::CodeFacts::data_location`].
pub(super) fn location(owner: &WatchOwner, name: &str) -> Result<DataLocation, String> {
    match owner {
        WatchOwner::Kernel => kernel(name),
        WatchOwner::Process(pid) => process(*pid, name),
        WatchOwner::Program(path) => in_file(path, 0, name, &SearchPaths::from_env())
            .ok_or_else(|| format!("{path} has no variable `{name}`")),
    }
}

fn kernel(name: &str) -> Result<DataLocation, String> {
    let symbols = Symbols::kernel().map_err(|e| e.to_string())?;
    let mut matches = symbols.find(name);
    let first = matches.next();
    let first = first.ok_or_else(|| format!("the kernel has no variable `{name}`"))?;
    match matches.next() {
        None => Ok(DataLocation {
            address: first.address,
            size: 0,
        }),
        Some(_) => Err(format!("the kernel has several variables `{name}`")),
    }
}

/// Searches the program, then its libraries.
fn process(pid: u32, name: &str) -> Result<DataLocation, String> {
    let mappings = mappings(pid).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => super::paths::no_process(pid),
        _ => format!("the memory of process {pid} cannot be read: {e}"),
    })?;
    let search = SearchPaths::from_env();
    let starts = mappings
        .iter()
        .filter(|m| m.offset == 0 && m.path.starts_with('/'));
    for mapping in starts {
        if let Some(location) = in_file(&mapping.path, mapping.start, name, &search) {
            return Ok(location);
        }
    }
    Err(format!("process {pid} has no variable `{name}`"))
}

/// Searches a file whose first byte is mapped at `start`.
fn in_file(path: &str, start: u64, name: &str, search: &SearchPaths) -> Option<DataLocation> {
    let file = DebugFile::open(Path::new(path), search).ok()?;
    let symbol = file
        .symbols()
        .named(name)
        .find(|s| s.kind == SymbolKind::Data)?;
    let first = file.image().segments().first()?;
    let linked = first.address.wrapping_sub(first.offset);
    Some(DataLocation {
        address: start.wrapping_sub(linked).wrapping_add(symbol.address),
        size: symbol.size,
    })
}
