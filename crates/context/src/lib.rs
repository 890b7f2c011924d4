//! The region library (`context/`), which reports the region of a program that each thread is in:
//! its bytes, its file in the user's cache, and the environment that loads it into a command.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

mod fingerprint;

use flate2::read::DeflateDecoder;

use self::fingerprint::Fingerprint;

/// The shared object, compressed.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/context.z"));

/// Its length in bytes, 0 for processors without support, and its number.
const VERSION: (u64, u64) = include!(concat!(env!("OUT_DIR"), "/context.rs"));

/// The bytes of the shared object; none for processors without support.
pub fn library() -> Vec<u8> {
    let mut library = Vec::new();
    // The build script wrote them.
    let _ = DeflateDecoder::new(PACKED).read_to_end(&mut library);
    library
}

/// `spile/region.h`, with which C and C++ programs name their regions.
pub const HEADER: &str = include_str!("../../../include/spile/region.h");

/// First argument of the `prctl` calls with which the library announces regions: "SPL1".
pub const MAGIC: u64 = 0x5350_4c31;

/// The reason why a command runs without the library.
#[derive(Debug)]
pub enum NoLibrary {
    /// The library does not support this processor.
    Processor,
    /// Neither `XDG_CACHE_HOME` nor `HOME` names the user's cache.
    NoCache,
    /// The path contains a space or a colon, which the dynamic linker takes as separators.
    Name(PathBuf),
    /// The file cannot be written, or others could change it.
    Unwritable(PathBuf, std::io::Error),
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NoLibrary::Processor => f.write_str("regions are not supported on this processor"),
            NoLibrary::NoCache => {
                f.write_str("neither XDG_CACHE_HOME nor HOME gives a folder for the region library")
            }
            NoLibrary::Name(path) => write!(
                f,
                "{}: a library whose path has a space or a colon cannot be loaded into programs",
                path.display()
            ),
            NoLibrary::Unwritable(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for NoLibrary {}

/// The environment variables that load the library into a command and its descendants; `variable` returns their current values. Writes the library to the user's cache unless it is there. `own` creates a directory that nobody else can change, and whose path nobody else can redirect: dynamic linkers open the library by its path.
///
/// # Errors
/// The reason why there is no library. The command runs without it.
pub fn environment(
    variable: impl Fn(&str) -> Option<OsString>,
    own: impl FnOnce(&Path) -> std::io::Result<PathBuf>,
) -> Result<Vec<(&'static str, OsString)>, NoLibrary> {
    let library = install(&cache(&variable)?, own)?;
    let now = |name| variable(name).filter(|v| !v.is_empty());
    // First, so that tools that the user preloads are observed like the program.
    let preload = join_values(Some(library.clone().into()), ":", now("LD_PRELOAD"));
    // For a runtime that cannot be interposed. The user's own tools come before ours.
    let tools = join_values(now("OMP_TOOL_LIBRARIES"), ":", Some(library.into()));
    // Programs with gcc's address sanitizer refuse to run if another library is first.
    let sanitizer = "verify_asan_link_order=0".into();
    let sanitizer = join_values(now("ASAN_OPTIONS"), ":", Some(sanitizer));
    Ok(vec![
        ("LD_PRELOAD", preload),
        ("OMP_TOOL_LIBRARIES", tools),
        ("ASAN_OPTIONS", sanitizer),
    ])
}

fn join_values(first: Option<OsString>, between: &str, second: Option<OsString>) -> OsString {
    let both: Vec<OsString> = first.into_iter().chain(second).collect();
    both.join(OsStr::new(between))
}

/// The directory in the user's cache.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoLibrary> {
    let folder = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Ok(cache.ok_or(NoLibrary::NoCache)?.join("spile/context"))
}

/// Name of the library's file, by which stacks recognise functions outside of the program.
pub fn file_name() -> String {
    format!("{:016x}.so", VERSION.1)
}

/// The library's file in a directory, under a name derived from its content.
fn install(
    folder: &Path,
    own: impl FnOnce(&Path) -> std::io::Result<PathBuf>,
) -> Result<PathBuf, NoLibrary> {
    if VERSION.0 == 0 {
        return Err(NoLibrary::Processor);
    }
    let path = readable(folder.join(file_name()))?;
    let folder = own(folder).map_err(|error| NoLibrary::Unwritable(path, error))?;
    let path = readable(folder.join(file_name()))?;
    // Read completely: only our library may be loaded into programs.
    if !is_valid(&path).unwrap_or(false) {
        write(&folder, &path).map_err(|error| NoLibrary::Unwritable(path.clone(), error))?;
    }
    Ok(path)
}

/// A path that dynamic linkers can parse in their variables.
fn readable(path: PathBuf) -> Result<PathBuf, NoLibrary> {
    let bytes = path.as_os_str().as_bytes();
    match bytes.iter().any(|b| b.is_ascii_whitespace() || *b == b':') {
        true => Err(NoLibrary::Name(path)),
        false => Ok(path),
    }
}

/// Whether the file has the library's content, and nobody else can write to it. Its number is compared, not each byte:
/// who may write to it can also change spile.
fn is_valid(path: &Path) -> std::io::Result<bool> {
    let named = path.symlink_metadata()?;
    let folder = path.parent().unwrap_or(Path::new("/")).metadata()?;
    if !named.is_file() || named.uid() != folder.uid() || named.mode() & 0o022 != 0 {
        return Ok(false);
    }
    let mut file = std::fs::File::open(path)?;
    let mut piece = [0; 16 << 10];
    let mut number = Fingerprint::new();
    let mut rest = VERSION.0;
    while rest > 0 {
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(piece.len());
        file.read_exact(&mut piece[..length])?;
        number.add(&piece[..length]);
        rest -= length as u64;
    }
    Ok(file.read(&mut piece)? == 0 && number.finish() == VERSION.1)
}

/// Writes the file atomically: another session may do the same.
fn write(folder: &Path, path: &Path) -> std::io::Result<()> {
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(&library())?;
    new.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o555))?;
    new.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + Copy + 'a {
        move |name| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| value.into())
        }
    }

    /// Calls [`super::environment`] without checks of directories.
    fn environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Vec<(&'static str, OsString)>, NoLibrary> {
        super::environment(variable, |folder| {
            std::fs::create_dir_all(folder)?;
            Ok(folder.to_owned())
        })
    }

    fn text(variables: &[(&'static str, OsString)], name: &str) -> String {
        let value = &variables.iter().find(|(n, _)| *n == name).expect(name).1;
        value.to_string_lossy().into_owned()
    }

    #[test]
    fn set_variables_stay() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().to_str().expect("a name");
        let fresh = environment(with(&[("HOME", home), ("LD_PRELOAD", "")])).expect("variables");
        let library = text(&fresh, "LD_PRELOAD");
        assert_eq!(text(&fresh, "OMP_TOOL_LIBRARIES"), library);
        assert_eq!(std::fs::read(&library).expect("the file"), super::library());
        assert!(library.starts_with(&format!("{home}/.cache/spile/context/")));

        std::fs::remove_file(&library).expect("there");
        std::fs::write(&library, "damaged").expect("writable");
        let set = environment(with(&[
            ("HOME", home),
            ("LD_PRELOAD", "/a.so /b.so"),
            ("OMP_TOOL_LIBRARIES", "/c.so"),
            ("ASAN_OPTIONS", "detect_leaks=0"),
        ]))
        .expect("variables");
        assert_eq!(text(&set, "LD_PRELOAD"), format!("{library}:/a.so /b.so"));
        let tools = text(&set, "OMP_TOOL_LIBRARIES");
        assert_eq!(tools, format!("/c.so:{library}"));
        let sanitizer = text(&set, "ASAN_OPTIONS");
        assert_eq!(sanitizer, "detect_leaks=0:verify_asan_link_order=0");
        assert_eq!(std::fs::read(&library).expect("the file"), super::library());
    }

    #[test]
    fn a_file_that_others_may_write_is_not_kept() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().to_str().expect("a name");
        let library = || {
            let fresh = environment(with(&[("HOME", home)])).expect("variables");
            PathBuf::from(text(&fresh, "LD_PRELOAD"))
        };
        let path = library();
        let open = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, open).expect("set");
        assert_eq!(library(), path);
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o555);

        // Nor is another content of the same length.
        let mut damaged = super::library();
        damaged[12345] ^= 1;
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, damaged).expect("written");
        assert_eq!(library(), path);
        assert_eq!(std::fs::read(&path).expect("the file"), super::library());

        // A link to the same bytes is not accepted.
        let elsewhere = path.with_file_name("elsewhere");
        std::fs::rename(&path, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("linked");
        library();
        assert!(path.symlink_metadata().expect("there").is_file());

        let refused = super::environment(with(&[("HOME", home)]), |_| {
            Err(std::io::ErrorKind::PermissionDenied.into())
        });
        assert!(matches!(refused, Err(NoLibrary::Unwritable(..))));
    }

    #[test]
    fn a_missing_or_odd_cache_folder_is_reported() {
        let absent = |pairs: &[(&str, &str)]| environment(with(pairs)).expect_err("no location");
        assert!(matches!(absent(&[]), NoLibrary::NoCache));
        assert!(matches!(
            absent(&[("HOME", "relative")]),
            NoLibrary::NoCache
        ));
        for odd in ["/a b", "/a:b"] {
            assert!(matches!(
                absent(&[("XDG_CACHE_HOME", odd)]),
                NoLibrary::Name(_)
            ));
        }
        let at_a_file = absent(&[("XDG_CACHE_HOME", "/dev/null")]);
        assert!(
            at_a_file
                .to_string()
                .starts_with("/dev/null/spile/context/")
        );
    }
}
