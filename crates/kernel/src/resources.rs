//! Resource limits of this process: open files, memory, `/proc`. Messages name the limit that is
//! reached, with the way out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum number of descriptors in use at a time while a script is read and facts are looked up.
const FILES: usize = 24;
/// Soft limit from which on free descriptors are not counted.
const PLENTY: u64 = 256;
/// The limits of open files at the start of this process.
static FILES_BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// The way out of an error that says that a limit is reached.
#[must_use]
pub fn remedy(e: &io::Error) -> Option<String> {
    Some(match e.raw_os_error()? {
        libc::EMFILE => too_few_files(),
        libc::ENFILE => {
            "the machine has no space for more open files: raise /proc/sys/fs/file-max".into()
        }
        libc::ENOMEM => match getrlimit(Resource::As).current {
            Some(bytes) => format!(
                "this process may have {} KB of address space: raise `ulimit -v`",
                bytes >> 10
            ),
            None => "there is too little memory: look at `free`, and at memory.max of the control \
                     group"
                .into(),
        },
        libc::EAGAIN => {
            "the user may have no more threads or locked memory: raise `ulimit -u` and \
                         `ulimit -l`"
                .into()
        }
        _ => return None,
    })
}

/// An error, with the way out if there is one.
#[must_use]
pub fn error_text(e: &io::Error) -> String {
    match remedy(e) {
        Some(way) => format!("{e}; {way}"),
        None => e.to_string(),
    }
}

fn too_few_files() -> String {
    match getrlimit(Resource::Nofile).current {
        Some(n) => format!("this process may have {n} open files: raise `ulimit -n`"),
        None => "this process has too many open files: raise `ulimit -n`".into(),
    }
}

/// Whether this process has the resources that every run needs.
///
/// # Errors
/// The missing resource, and the way out.
pub fn check() -> Result<(), String> {
    if let Some(limit) = getrlimit(Resource::Nofile).current
        && limit < PLENTY
        && free_files(limit) < FILES
    {
        return Err(format!("too few descriptors are free; {}", too_few_files()));
    }
    if rustix::fs::stat("/proc/self").is_err() {
        return Err(
            "/proc is missing, and programs, symbols and types cannot be found without it: \
                    mount -t proc proc /proc"
                .into(),
        );
    }
    Ok(())
}

/// Number of unused descriptors below the limit.
fn free_files(limit: u64) -> usize {
    let open = |fd: &u64| {
        // SAFETY: only asks, whatever the number is.
        i32::try_from(*fd).is_ok_and(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
    };
    (0..limit).filter(|fd| !open(fd)).count()
}

/// Raises the soft limit of open files to the hard limit: large scripts attach to thousands of
/// locations. Commands that this process starts get the original limits back by [`restore_open_files`].
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    FILES_BEFORE.get_or_init(|| limit);
    set_open_files(limit.maximum, limit.maximum);
}

/// Raises the hard limit too where `more` descriptors beyond those of a usual session pass it, as far as
/// this process may: many systems start programs with one of 4,096.
pub fn reserve_open_files(more: usize) {
    let needed = PLENTY + more as u64;
    let too_low = getrlimit(Resource::Nofile)
        .maximum
        .is_some_and(|m| m < needed);
    if too_low {
        set_open_files(Some(needed), Some(needed));
    }
}

/// Where this is refused, the error of the call that finds no free descriptor names the limit.
fn set_open_files(current: Option<u64>, maximum: Option<u64>) {
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// Restores the limits in a new process before it executes another program; async-signal-safe.
pub fn restore_open_files() {
    if let Some(before) = FILES_BEFORE.get() {
        set_open_files(before.current, before.maximum);
    }
}

/// The C library's heap. When it is exhausted, the process ends with a message and status 1; its
/// attachments to the kernel end with it, as always.
pub struct Heap;

// SAFETY: all is done by the system's allocator; where that has no memory, nothing is returned at all.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked_allocation(unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked_allocation(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked_allocation(unsafe { System.realloc(memory, layout, size) })
    }
}

#[inline]
fn checked_allocation(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        out_of_memory();
    }
    memory
}

/// Makes a panic for lack of memory end the process as an exhausted heap does: the standard library
/// panics when a new thread gets no signal stack.
pub fn handle_memory_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let lack = |text: &str| text.contains(&format!("(os error {})", libc::ENOMEM));
        if info.payload_as_str().is_some_and(lack) {
            out_of_memory();
        }
        report(info);
    }));
}

#[cold]
fn out_of_memory() -> ! {
    let limited = getrlimit(Resource::As).current.is_some();
    let text: &[u8] = match limited {
        true => b"ERROR: out of memory: raise the limit of the address space, `ulimit -v`\n",
        false => b"ERROR: out of memory: look at `free`, and at memory.max of the control group\n",
    };
    // SAFETY: both may be called at any time; the text is static.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_way_out() {
        for (errno, words) in [
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "file-max"),
            (libc::ENOMEM, "memory"),
        ] {
            let e = io::Error::from_raw_os_error(errno);
            assert!(remedy(&e).unwrap().contains(words), "{e}");
            assert!(error_text(&e).starts_with(&e.to_string()));
        }
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::ENOENT)), None);
        assert_eq!(check(), Ok(()));
    }
}
