//! Error numbers in messages.

use spile_abi::names;

/// An error number for messages: its name, and the C library's description (none for the kernel's
/// own numbers).
#[must_use]
pub fn describe_errno(errno: rustix::io::Errno) -> String {
    let code = errno.raw_os_error().cast_unsigned();
    match names::errno_name(code) {
        Some(name) if code >= names::KERNEL_ERRORS => format!("{name} ({code})"),
        Some(name) => format!("{name}: {errno}"),
        None => errno.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_name_and_the_description() {
        let kernels = rustix::io::Errno::from_raw_os_error(524);
        assert_eq!(describe_errno(kernels), "ENOTSUPP (524)");
        assert!(describe_errno(rustix::io::Errno::PERM).starts_with("EPERM: "));
    }

    #[test]
    fn numbers_are_those_of_the_c_library() {
        let errors = [libc::EPERM, libc::EHWPOISON].map(i32::cast_unsigned);
        assert_eq!(
            errors.map(names::errno_name),
            [Some("EPERM"), Some("EHWPOISON")]
        );
        let signal = names::signal_name(libc::SIGCHLD.cast_unsigned());
        assert_eq!(signal.as_deref(), Some("SIGCHLD"));
    }
}
