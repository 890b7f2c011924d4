//! The libraries and the dynamic linker that a file names.

use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, ProgramHeader};
use object::{LittleEndian, ReadRef, elf};

use crate::image::Image;

/// The libraries in the dynamic linker's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededLibraries {
    /// Names of libraries, in order.
    pub libraries: Vec<String>,
    /// Directories to search before the usual ones; `$ORIGIN` is the file's own.
    pub folders: Vec<String>,
}

impl NeededLibraries {
    /// [`NeededLibraries::folders`] resolved for a file at that path.
    pub fn folders_from(&self, file: &Path) -> Vec<PathBuf> {
        let folder = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let location = |d: &String| d.replace("${ORIGIN}", &folder).replace("$ORIGIN", &folder);
        self.folders.iter().map(|d| location(d).into()).collect()
    }
}

impl Image {
    /// The entries of the dynamic linker's table, by tag; none for static and damaged files.
    pub(crate) fn dynamic_entries(&self) -> Vec<(elf::DynamicTag, u64)> {
        let (e, data) = (LittleEndian, self.elf().data());
        let mut headers = self.elf().elf_program_headers().iter();
        let table = headers.find_map(|h| h.dynamic(e, data).ok().flatten());
        let entries = table.unwrap_or_default().iter();
        let entries = entries.map(|d| (d.d_tag(e), d.d_val(e)));
        entries.take_while(|d| d.0 != elf::DT_NULL).collect()
    }

    /// Names of the libraries that it needs, followed by the path of its interpreter.
    #[must_use]
    pub fn needed(&self) -> Vec<String> {
        let mut names = needs(self).libraries;
        for header in self.elf().elf_program_headers() {
            if let Ok(Some(path)) = header.interpreter(LittleEndian, self.elf().data()) {
                names.extend(std::str::from_utf8(path).map(str::to_owned));
            }
        }
        names
    }
}

/// The needs of a file; empty for static and damaged files.
#[must_use]
pub fn needs(image: &Image) -> NeededLibraries {
    let mut needs = NeededLibraries::default();
    let entries = image.dynamic_entries();
    let strings = entries.iter().find(|d| d.0 == elf::DT_STRTAB);
    let Some(strings) = strings.and_then(|d| image.file_offset(d.1)) else {
        return needs;
    };
    let text = |value: u64| {
        let data = image.elf().data();
        let start = strings.saturating_add(value);
        let text = data.read_bytes_at_until(start..data.len() as u64, 0).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    for (tag, value) in entries {
        match tag {
            elf::DT_NEEDED => needs.libraries.extend(text(value)),
            elf::DT_RPATH | elf::DT_RUNPATH => {
                let folders = text(value).unwrap_or_default();
                needs.folders.extend(folders.split(':').map(str::to_owned));
            }
            _ => {}
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_this_test_are_found() {
        let path = std::env::current_exe().expect("a path");
        let image = Image::open(&path).expect("an ELF file");
        let needs = needs(&image);
        assert!(
            needs.libraries.iter().any(|l| l.starts_with("libc.so")),
            "{needs:?}"
        );
        let folders = ["$ORIGIN/../lib", "/a", "${ORIGIN}"].map(str::to_owned);
        let needs = NeededLibraries {
            folders: folders.to_vec(),
            ..needs
        };
        assert_eq!(
            needs.folders_from(Path::new("/x/bin/p")),
            ["/x/bin/../lib", "/a", "/x/bin"].map(PathBuf::from)
        );
    }

    #[test]
    fn libraries_that_this_program_needs_are_found() {
        let image = Image::open(Path::new("/proc/self/exe")).expect("own program");
        let needed = image.needed();
        assert!(
            needed.iter().any(|n| n.starts_with("libc.so")),
            "{needed:?}"
        );
        assert!(needed.iter().any(|n| n.starts_with('/')), "{needed:?}");
    }
}
