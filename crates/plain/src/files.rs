//! Regular files where files are meant: a pipe or a device of that name would wait for ever, or do
//! something else than to keep data.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file to read it.
///
/// # Errors
/// Those of the system call, and anything that is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true), path)
}

/// Creates a regular file, or empties an existing one.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    let file = regular(OpenOptions::new().write(true).create(true), path)?;
    // Only now, because nothing else may be changed.
    file.set_len(0)?;
    Ok(file)
}

/// Opens without waiting.
fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let other = |file_type: FileType| {
        let kind = kind(file_type);
        io::Error::new(io::ErrorKind::InvalidInput, format!("{kind}, not a file"))
    };
    match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => match file.metadata()?.file_type() {
            file_type if file_type.is_file() => Ok(file),
            file_type => Err(other(file_type)),
        },
        // A pipe without a reader, a socket and a folder cannot be opened.
        Err(e) => Err(match path.metadata() {
            Ok(m) if !m.is_file() => other(m.file_type()),
            _ => e,
        }),
    }
}

fn kind(file_type: FileType) -> &'static str {
    match file_type {
        file_type if file_type.is_dir() => "a folder",
        file_type if file_type.is_fifo() => "a pipe",
        file_type if file_type.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("spile-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, pipe, socket) = (folder.join("f"), folder.join("p"), folder.join("s"));
        create(&file).unwrap().write_all(b"old and long").unwrap();
        create(&file).unwrap().write_all(b"new").unwrap();
        let mut text = String::new();
        open(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "new");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let others = [
            (&*pipe, "a pipe, not a file"),
            (&*socket, "a socket, not a file"),
            (&*folder, "a folder, not a file"),
            (Path::new("/dev/null"), "a device, not a file"),
        ];
        for (path, text) in others {
            assert_eq!(open(path).unwrap_err().to_string(), text);
            assert_eq!(create(path).unwrap_err().to_string(), text);
        }
        // A reader makes no difference.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let _reads = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(create(&pipe).unwrap_err().to_string(), "a pipe, not a file");
        let none = open(&folder.join("none")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
