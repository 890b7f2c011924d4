//! The libraries and the dynamic linker that a program names.

use object::read::elf::{Dyn, ProgramHeader};
use object::{LittleEndian, elf};

use crate::image::Image;

impl Image {
    /// Names of the libraries that it needs, followed by the path of its interpreter.
    #[must_use]
    pub fn needed(&self) -> Vec<String> {
        let e = LittleEndian;
        let elf_file = self.elf();
        let data = elf_file.data();
        let mut names = Vec::new();
        for header in elf_file.elf_program_headers() {
            if let Ok(Some(entries)) = header.dynamic(e, data) {
                let value = |tag| {
                    let entry = entries.iter().find(|d| d.d_tag(e) == tag);
                    entry.map(|d| d.d_val(e))
                };
                let Some(strings) = value(elf::DT_STRTAB).and_then(|at| self.file_offset(at))
                else {
                    continue;
                };
                for entry in entries.iter().filter(|d| d.d_tag(e) == elf::DT_NEEDED) {
                    let at = strings.saturating_add(entry.d_val(e));
                    let bytes =
                        object::ReadRef::read_bytes_at_until(data, at..data.len() as u64, 0);
                    let name = bytes.ok().and_then(|b| std::str::from_utf8(b).ok());
                    names.extend(name.filter(|n| n.len() < 256).map(str::to_owned));
                }
            }
        }
        for header in elf_file.elf_program_headers() {
            if let Ok(Some(path)) = header.interpreter(e, data) {
                names.extend(std::str::from_utf8(path).map(str::to_owned));
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use crate::Image;
    use std::path::Path;

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
