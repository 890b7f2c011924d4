//! Files that become shorter while they are read through a mapping. The kernel then sends `SIGBUS`,
//! which would end the process without a message.

/// The message; a signal handler does not know the file.
const TEXT: &[u8] = b"error: a file became shorter while it was read: start again\n";

/// Makes SIGBUS end this process with a message and status 1. Its attachments to the kernel end
/// with it, as always.
pub fn end_with_a_message() {
    // SAFETY: all-zero bytes are a valid `sigaction`; the handler does nothing but what is safe
    // in one, and does not return.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = print_message as *const () as libc::sighandler_t;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn print_message(_: libc::c_int) {
    // SAFETY: both are async-signal-safe; the text is static.
    unsafe {
        libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
        libc::_exit(1);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const VICTIM: &str = "SPILE_TEST_TRUNCATED";

    /// Runs itself again, to read a file that is truncated meanwhile.
    #[test]
    fn a_mapped_file_that_becomes_shorter_reads_as_zeros() {
        if let Some(path) = std::env::var_os(VICTIM) {
            super::end_with_a_message();
            let file = std::fs::File::options().read(true).write(true).open(path);
            let file = file.expect("the file");
            // SAFETY: a new mapping, read while it lives.
            let first = unsafe {
                let at = rustix::mm::mmap(
                    std::ptr::null_mut(),
                    4096,
                    rustix::mm::ProtFlags::READ,
                    rustix::mm::MapFlags::PRIVATE,
                    &file,
                    0,
                );
                file.set_len(0).expect("truncated");
                at.expect("mapped").cast::<u8>().read_volatile()
            };
            panic!("read {first}");
        }
        let path = std::env::temp_dir().join(format!("spile-short-{}", std::process::id()));
        std::fs::write(&path, [1; 4096]).expect("written");
        let out = Command::new(std::env::current_exe().expect("this"))
            .args([
                "--nocapture",
                "a_mapped_file_that_becomes_shorter_reads_as_zeros",
            ])
            .env(VICTIM, &path)
            .output();
        let _ = std::fs::remove_file(&path);
        let out = out.expect("it runs");
        assert_eq!(out.status.code(), Some(1));
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains("became shorter"), "{text}");
    }
}
