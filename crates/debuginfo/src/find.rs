//! Finds the file with a file's debugging information: by build-id, by debuglink, in extra roots,
//! from a debuginfod server, or packed inside the file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::debuginfod;
use crate::image::Image;
use crate::kernel::ModuleListings;
use crate::trust;

/// The directory of separate debugging information in distributions.
pub(crate) const DEBUG_ROOT: &str = "usr/lib/debug";

/// Maximum size that a packed symbol table (`.gnu_debugdata`) may unpack to.
const MAX_MINI: usize = 256 << 20;

/// The locations to search.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    /// Roots of file systems that are searched before the machine's own (`-r DIR`).
    pub roots: Vec<PathBuf>,
    /// debuginfod servers, as in `DEBUGINFOD_URLS`; empty: none is asked.
    pub urls: Vec<String>,
    /// The cache of elfutils' `debuginfod-find`, which also supports https.
    pub client: Option<PathBuf>,
    /// Directory for indexes and downloads, `$XDG_CACHE_HOME/spile`; `None`: nothing is stored.
    pub cache: Option<PathBuf>,
    /// Listings of directories with kernel modules.
    pub listed: ModuleListings,
}

impl SearchPaths {
    /// Settings from the environment: `DEBUGINFOD_URLS`, `XDG_CACHE_HOME` or `HOME`. Directories
    /// that others can change are not used.
    #[must_use]
    pub fn from_env() -> SearchPaths {
        let dir = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let cache = dir("XDG_CACHE_HOME").or_else(|| dir("HOME").map(|h| h.join(".cache")));
        let client = dir("DEBUGINFOD_CACHE_PATH");
        let client = client.or_else(|| Some(cache.as_ref()?.join("debuginfod_client")));
        let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
        SearchPaths {
            urls: urls.split_whitespace().map(Into::into).collect(),
            client: client.filter(|c| trust::is_own_once(c)),
            cache: cache
                .filter(|c| c.is_absolute())
                .map(|c| c.join("spile"))
                .filter(|c| trust::is_own_once(c)),
            ..SearchPaths::default()
        }
    }

    /// The file with the DWARF of `image`, if it is not in `image` itself, and errors on the way.
    pub(crate) fn debug_of(&self, image: &Image) -> (Option<Image>, Vec<String>) {
        let mut notes = Vec::new();
        for path in self.candidates(image) {
            if path == image.path() || !path.exists() {
                continue;
            }
            match Image::open(&path) {
                Ok(debug) if matches_build(image, &debug) => return (Some(debug), notes),
                Ok(_) => notes.push(format!("{}: is of another build", path.display())),
                Err(e) => notes.push(e.to_string()),
            }
        }
        let downloaded = image
            .build_id()
            .and_then(|id| self.download(id, &mut notes));
        (downloaded, notes)
    }

    pub(crate) fn download(&self, id: &[u8], notes: &mut Vec<String>) -> Option<Image> {
        if self.urls.is_empty() {
            return None;
        }
        let path = debuginfod::fetch(&self.urls, self.cache.as_deref()?, &hex(id), notes)?;
        Image::open(&path)
            .map_err(|e| notes.push(e.to_string()))
            .ok()
    }

    /// Paths in the order of preference.
    fn candidates(&self, image: &Image) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if let Some(id) = image.build_id() {
            paths.extend(self.by_build_id(id, ".debug"));
        }
        let dir = image.path().parent().unwrap_or(Path::new("/"));
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.into());
        let inside = dir.strip_prefix("/").unwrap_or(&dir);
        let link = image.debug_link().map(|(name, _)| name.to_owned());
        // gdb's order: next to the file, in .debug next to it, in the global directory.
        if let Some(link) = link.filter(|l| !l.contains('/')) {
            paths.push(dir.join(&link));
            paths.push(dir.join(".debug").join(&link));
            for root in self.roots() {
                paths.push(root.join(DEBUG_ROOT).join(inside).join(&link));
            }
            paths.extend(self.roots.iter().map(|r| r.join(inside).join(&link)));
        }
        if let Some(name) = image.path().file_name().and_then(OsStr::to_str) {
            for root in self.roots() {
                let file = format!("{name}.debug");
                paths.push(root.join(DEBUG_ROOT).join(inside).join(file));
            }
        }
        paths
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots
            .iter()
            .map(PathBuf::as_path)
            .chain([Path::new("/")])
    }

    /// Paths by a build-id.
    pub(crate) fn by_build_id(&self, id: &[u8], ends: &str) -> Vec<PathBuf> {
        let hex = hex(id);
        let (first, rest) = hex.split_at(2);
        let file = format!(".build-id/{first}/{rest}{ends}");
        let in_roots = self.roots.iter().map(|r| r.join(&file));
        let global = self.roots().map(|r| r.join(DEBUG_ROOT).join(&file));
        // An empty file stands for one that servers lack.
        let fetched = self.client.iter().map(|c| c.join(&hex).join("debuginfo"));
        let fetched = fetched.filter(|p| p.metadata().is_ok_and(|m| m.len() > 0));
        global.chain(in_roots).chain(fetched).collect()
    }

    /// The file that `.gnu_debugaltlink` (dwz) of an image names.
    pub(crate) fn alt_of(&self, image: &Image) -> Option<Image> {
        let (name, id) = image.alt_link()?;
        let dir = image.path().parent().unwrap_or(Path::new("/"));
        let mut paths = vec![dir.join(name)];
        if !id.is_empty() {
            paths.extend(self.by_build_id(id, ".debug"));
        }
        for root in &self.roots {
            paths.push(root.join(name.trim_start_matches('/')));
        }
        let mut open = paths.iter().filter_map(|p| Image::open(p).ok());
        open.find(|i| id.is_empty() || i.build_id() == Some(id))
    }

    /// Paths of a package (`.dwp`) with all that was split off from a program's debugging
    /// information. The first is the usual one.
    pub(crate) fn packages_of(&self, main: &Image, debug: &Image) -> Vec<PathBuf> {
        let package = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            PathBuf::from(name)
        };
        let mut paths = vec![package(main.path()), package(debug.path())];
        let whole = main.path().canonicalize();
        let whole = whole.unwrap_or_else(|_| main.path().into());
        paths.push(package(&whole));
        let inside = package(whole.strip_prefix("/").unwrap_or(&whole));
        paths.extend(self.roots().map(|r| r.join(DEBUG_ROOT).join(&inside)));
        if let Some(id) = main.build_id() {
            paths.extend(self.by_build_id(id, ".dwp"));
        }
        paths
    }

    /// Paths of a `.dwo` file that was written in a folder: there, in roots and debug folders, and
    /// next to the program. The first is where the compiler wrote it.
    pub(crate) fn split_paths(
        &self,
        main: &Image,
        debug: &Image,
        folder: &Path,
        name: &Path,
    ) -> Vec<PathBuf> {
        let written = folder.join(name);
        let inside = written.strip_prefix("/").ok();
        let mut paths = Vec::new();
        paths.extend(inside.map(|_| written.clone()));
        paths.extend(
            inside
                .iter()
                .flat_map(|i| self.roots.iter().map(move |r| r.join(i))),
        );
        for image in [main, debug] {
            let dir = image.path().parent().unwrap_or(Path::new("/"));
            paths.push(dir.join(&written));
            paths.push(dir.join(name));
            paths.extend(name.file_name().map(|file| dir.join(file)));
        }
        let global = |i| self.roots().map(move |r| r.join(DEBUG_ROOT).join(i));
        paths.extend(inside.into_iter().flat_map(global));
        paths
    }

    /// The path of the cached index of the file's DWARF; `None` without build-id or cache.
    pub(crate) fn index_path(&self, image: &Image) -> Option<PathBuf> {
        let id = image.build_id()?;
        Some(self.cache.as_ref()?.join("index").join(hex(id)))
    }
}

/// The symbol table that Fedora and others pack into stripped files.
pub(crate) fn mini(image: &Image) -> Option<Arc<Image>> {
    let packed = image.section(".gnu_debugdata")?;
    let mut out = LimitedBuffer(Vec::new());
    lzma_rs::xz_decompress(&mut &packed[..], &mut out).ok()?;
    Image::from_bytes(out.0, image.path()).ok().map(Arc::new)
}

/// Collects bytes up to a limit.
struct LimitedBuffer(Vec<u8>);

impl std::io::Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_MINI {
            return Err(std::io::Error::other("unpacks to too many bytes"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether a separate file is from the same build: the build-ids agree, or the checksum does.
fn matches_build(image: &Image, debug: &Image) -> bool {
    match (image.build_id(), debug.build_id()) {
        (Some(a), Some(b)) => a == b,
        _ => image
            .debug_link()
            .is_some_and(|(_, crc)| crc == crc32(debug.bytes())),
    }
}

/// The checksum of `.gnu_debuglink`: CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
