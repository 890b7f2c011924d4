//! A program or library together with the files that its debugging information is in.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::dwarf::Dwarf;
use crate::error::Error;
use crate::find::{self, SearchPaths};
use crate::image::Image;
use crate::sdt::marker::Marker;
use crate::symbols::ElfSymbols;

/// A file with its debugging information. Other files than the file itself are searched when a
/// query needs them.
pub struct DebugFile {
    // Points into the images below; declared before them, so dropped before them.
    symbols: OnceLock<ElfSymbols<'static>>,
    dwarf: OnceLock<Option<Dwarf>>,
    main: Arc<Image>,
    markers: OnceLock<Vec<Marker>>,
    debug: OnceLock<DebugFiles>,
    mini: OnceLock<Option<Arc<Image>>>,
    search: SearchPaths,
}

/// The files with DWARF.
struct DebugFiles {
    /// The file itself if it has DWARF, otherwise a separate one.
    image: Option<Arc<Image>>,
    /// The file that dwz moved shared parts to.
    alt: Option<Arc<Image>>,
    notes: Vec<String>,
}

impl DebugFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a 64-bit little-endian ELF file.
    pub fn open(path: &Path, search: &SearchPaths) -> Result<DebugFile, Error> {
        Ok(DebugFile::new(Image::open(path)?, search))
    }

    /// A module from an opened file.
    #[must_use]
    pub fn new(image: Image, search: &SearchPaths) -> DebugFile {
        DebugFile {
            symbols: OnceLock::new(),
            dwarf: OnceLock::new(),
            main: Arc::new(image),
            markers: OnceLock::new(),
            debug: OnceLock::new(),
            mini: OnceLock::new(),
            search: search.clone(),
        }
    }

    /// The file itself.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.main
    }

    /// The static markers of the file, in the order of their notes.
    #[must_use]
    pub fn markers(&self) -> &[Marker] {
        self.markers.get_or_init(|| self.main.markers())
    }

    fn debug(&self) -> &DebugFiles {
        self.debug.get_or_init(|| {
            let has_own =
                self.main.has_section(".debug_info") || self.main.has_section(".zdebug_info");
            let (image, notes) = if has_own {
                (Some(self.main.clone()), Vec::new())
            } else {
                let (debug, notes) = self.search.debug_of(&self.main);
                (debug.map(Arc::new), notes)
            };
            let alt = image.as_ref().and_then(|i| self.search.alt_of(i));
            DebugFiles {
                image,
                alt: alt.map(Arc::new),
                notes,
            }
        })
    }

    /// The file with the DWARF, if there is one.
    #[must_use]
    pub fn debug_image(&self) -> Option<&Image> {
        self.debug().image.as_deref()
    }

    /// Errors in the search for separate debugging information.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.debug().notes
    }

    /// The DWARF, if there is any.
    #[must_use]
    pub fn dwarf(&self) -> Option<&Dwarf> {
        let dwarf = self.dwarf.get_or_init(|| {
            let debug = self.debug();
            let image = debug.image.as_ref()?;
            Some(Dwarf::new(
                &self.main,
                image,
                debug.alt.as_ref(),
                &self.search,
            ))
        });
        dwarf.as_ref()
    }

    /// Symbols of the file, of its separate debugging information and of the packed table.
    #[must_use]
    pub fn symbols(&self) -> &ElfSymbols<'_> {
        self.symbols.get_or_init(|| {
            let mut images: Vec<&Image> = vec![&self.main];
            // Only a stripped file needs other files for its symbols.
            if self.main.elf().elf_symbol_table().is_empty() {
                if let Some(debug) = self.debug_image() {
                    images.push(debug);
                } else if let Some(mini) = self.mini.get_or_init(|| find::mini(&self.main)) {
                    images.push(mini);
                }
            }
            let symbols = ElfSymbols::new(&images);
            // SAFETY: the names lie in images that self holds, set once and never replaced,
            // and dropped after this field; given out bound to `&self` only.
            unsafe { std::mem::transmute::<ElfSymbols<'_>, ElfSymbols<'static>>(symbols) }
        })
    }
}
