//! The libraries that a file needs, as the dynamic linker sees it.

use std::path::{Path, PathBuf};

use crate::image::Image;

/// Tags of `.dynamic` (generic ABI).
const NEEDED: u64 = 1;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

/// The library entries of `.dynamic`.
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
        let own = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let location = |d: &String| d.replace("${ORIGIN}", &own).replace("$ORIGIN", &own);
        self.folders.iter().map(|d| location(d).into()).collect()
    }
}

/// The needs of a file; empty for static and damaged files.
#[must_use]
pub fn needs(image: &Image) -> NeededLibraries {
    let mut needs = NeededLibraries::default();
    let (Some((_, table)), Some((_, strings))) = (
        image.loaded_section(".dynamic"),
        image.loaded_section(".dynstr"),
    ) else {
        return needs;
    };
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let text = |at: u64| {
        let bytes = strings.get(usize::try_from(at).ok()?..)?;
        let end = bytes.iter().position(|b| *b == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    for entry in table.chunks_exact(16) {
        match word(entry) {
            0 => break,
            NEEDED => needs.libraries.extend(text(word(&entry[8..]))),
            RPATH | RUNPATH => {
                let folders = text(word(&entry[8..])).unwrap_or_default();
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
}
