//! The files of the kernel and its modules with debugging information: their load addresses, and
//! the source lines of addresses.
//!
//! In: the names of modules and addresses in the kernel. Out: lines of source. A file that is
//! missing or damaged gives no lines, and no error. Names of addresses come from the kernel itself.

pub(crate) mod locations;

use std::collections::HashMap;
use std::sync::Arc;

use spile_abi::HOST;
use spile_debuginfo::{
    DebugFile as File, KernelQuery, PlacedSection, SearchPaths, build_id_of_notes,
};
use spile_kernel::symbols::Symbols;

/// Symbols that reveal the kernel's relocation.
const LANDMARKS: [&str; 2] = ["_stext", "_text"];
/// Start of the kernel's own image; lower addresses of its file are not relocated with it.
static IMAGE: u64 = HOST.kernel_image;

/// The kernel or a module, with its load address.
pub struct KernelImage {
    /// The module; `None` for the kernel itself.
    pub module: Option<Arc<str>>,
    /// The load address.
    pub load_address: LoadAddress,
}

/// The load address of a file's code.
pub enum LoadAddress {
    /// Not loaded: another kernel is running.
    Elsewhere,
    /// Relocated by this distance from its link address.
    Moved(u64),
    /// Separately loaded parts: link address, size, load address.
    Parts(Vec<(u64, u64, u64)>),
}

impl KernelImage {
    /// The running kernel.
    ///
    /// # Errors
    /// Its addresses are hidden.
    pub fn kernel(file: &File) -> Result<KernelImage, String> {
        let symbols = Symbols::kernel().map_err(ToString::to_string)?;
        let distance = LANDMARKS.iter().find_map(|name| {
            let linked = file.symbols().named(name).next()?.address;
            Some(symbols.address_of(name)?.wrapping_sub(linked))
        });
        let distance = distance.ok_or("the address of the kernel is unknown")?;
        Ok(KernelImage {
            module: None,
            load_address: LoadAddress::Moved(distance),
        })
    }

    /// A loaded module.
    ///
    /// # Errors
    /// The addresses of its sections are hidden.
    pub fn module(file: &File, name: &Arc<str>) -> Result<KernelImage, String> {
        let part = |p: &PlacedSection| {
            let path = format!("/sys/module/{name}/sections/{}", p.name);
            let text = std::fs::read_to_string(path).ok()?;
            let digits = text.trim().trim_start_matches("0x");
            let address = u64::from_str_radix(digits, 16).ok().filter(|a| *a != 0)?;
            Some((p.address, p.size, address))
        };
        let parts: Vec<_> = file
            .image()
            .placed_sections()
            .iter()
            .filter_map(part)
            .collect();
        match parts.is_empty() {
            true => Err(format!(
                "the addresses of the sections of the module {name} are hidden; run as root"
            )),
            false => Ok(KernelImage {
                module: Some(name.clone()),
                load_address: LoadAddress::Parts(parts),
            }),
        }
    }

    /// The kernel or a module of another machine.
    #[must_use]
    pub fn elsewhere(module: Option<&Arc<str>>) -> KernelImage {
        KernelImage {
            module: module.cloned(),
            load_address: LoadAddress::Elsewhere,
        }
    }

    /// The load address of a link address.
    #[must_use]
    pub fn to_load_address(&self, linked: u64) -> Option<u64> {
        match &self.load_address {
            LoadAddress::Elsewhere => None,
            LoadAddress::Moved(_) if linked < IMAGE => Some(linked),
            LoadAddress::Moved(distance) => Some(linked.wrapping_add(*distance)),
            LoadAddress::Parts(parts) => parts.iter().find_map(|&(first, size, loaded)| {
                let within = linked.checked_sub(first).filter(|d| *d < size)?;
                Some(loaded.wrapping_add(within))
            }),
        }
    }

    /// The link address of a load address.
    fn to_link_address(&self, address: u64) -> Option<u64> {
        match &self.load_address {
            LoadAddress::Elsewhere => None,
            LoadAddress::Moved(_) if address < IMAGE => None,
            LoadAddress::Moved(distance) => Some(address.wrapping_sub(*distance)),
            LoadAddress::Parts(parts) => parts.iter().find_map(|&(first, size, loaded)| {
                let within = address.checked_sub(loaded).filter(|d| *d < size)?;
                Some(first.wrapping_add(within))
            }),
        }
    }
}

/// The build-id of the running kernel, or of one of its modules.
#[must_use]
pub fn build_id(module: Option<&str>) -> Option<Vec<u8>> {
    let notes = match module {
        Some(name) => std::fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")),
        None => std::fs::read("/sys/kernel/notes"),
    };
    build_id_of_notes(&notes.ok()?).map(<[u8]>::to_vec)
}

/// Source lines by address. Files are searched on this machine when they are first needed.
#[derive(Default)]
pub struct KernelLines {
    files: HashMap<Option<String>, Option<(File, KernelImage)>>,
}

impl KernelLines {
    /// Source file and line of an address in the kernel's code; `None` if unknown.
    pub fn line(&mut self, address: u64) -> Option<(String, u32)> {
        let (symbol, _) = Symbols::kernel().ok()?.resolve(address)?;
        let module = symbol.module.map(str::to_owned);
        let file = self
            .files
            .entry(module)
            .or_insert_with_key(|m| open(m.as_deref(), &SearchPaths::from_env()));
        let (file, loaded) = file.as_ref()?;
        let (name, line) = file.dwarf()?.line_at(loaded.to_link_address(address)?)?;
        Some((name?.to_string(), line)).filter(|(_, line)| *line > 0)
    }
}

/// The file of the kernel or of a module.
fn open(module: Option<&str>, search: &SearchPaths) -> Option<(File, KernelImage)> {
    let (release, build_id) = (spile_kernel::machine::release(), build_id(module));
    let wanted = KernelQuery {
        release: &release,
        module,
        build_id: build_id.as_deref(),
        build: None,
    };
    // Debuginfod servers are not asked: output would wait for hundreds of megabytes.
    let file = File::new(search.kernel(&wanted, false).ok()?, search);
    let loaded = match module {
        Some(name) => KernelImage::module(&file, &name.into()),
        None => KernelImage::kernel(&file),
    };
    Some((file, loaded.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_become_load_addresses() {
        let kernel = KernelImage {
            module: None,
            load_address: LoadAddress::Moved(0x1000),
        };
        assert_eq!(kernel.to_load_address(IMAGE), Some(IMAGE + 0x1000));
        assert_eq!(kernel.to_link_address(IMAGE + 0x1000), Some(IMAGE));
        // Per-CPU variables.
        assert_eq!(kernel.to_load_address(0x20), Some(0x20));
        assert_eq!(kernel.to_link_address(0x20), None);
        let module = KernelImage {
            module: Some("m".into()),
            load_address: LoadAddress::Parts(vec![(0x1000, 0x10, 0x7000), (0x2000, 8, 0x9000)]),
        };
        for (linked, address) in [(0x1004, 0x7004), (0x2007, 0x9007)] {
            assert_eq!(module.to_load_address(linked), Some(address));
            assert_eq!(module.to_link_address(address), Some(linked));
        }
        assert_eq!(module.to_load_address(0x1010), None);
        assert_eq!(module.to_link_address(0x7010), None);
    }

    #[test]
    fn addresses_outside_of_the_kernel_have_no_lines() {
        let mut lines = KernelLines::default();
        assert_eq!(lines.line(0), None);
        assert_eq!(lines.line(u64::MAX), None);
    }
}
