//! What Linux's user probes do with instructions.

use std::fmt;

/// A version of Linux, by which the behaviour is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl KernelVersion {
    /// The version of a release such as `6.18.4-amd64`. An unreadable one counts as the newest.
    #[must_use]
    pub fn of_release(release: &str) -> KernelVersion {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => KernelVersion { major, minor },
            _ => NEWEST,
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NEWEST => f.write_str("this Linux"),
            KernelVersion { major, minor } => write!(f, "Linux {major}.{minor}"),
        }
    }
}

/// What the kernel does with a breakpoint on an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The instruction has its effect, and each execution is one hit.
    Right,
    /// The same, except that the 128 bytes below the stack pointer are overwritten.
    OverwritesRedZone,
    /// The kernel refuses the breakpoint, for this reason.
    Refused(&'static str),
    /// The effect of the instruction is another one.
    Wrong(&'static str),
}

const NEWEST: KernelVersion = KernelVersion {
    major: u32::MAX,
    minor: u32::MAX,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::verdict;

    #[test]
    fn versions_are_read_from_releases() {
        let of = KernelVersion::of_release;
        assert_eq!(
            of("6.18.44-fc"),
            KernelVersion {
                major: 6,
                minor: 18
            }
        );
        assert_eq!(of("7.2-amd64").to_string(), "Linux 7.2");
        assert!(of("6.9") < of("6.12.1") && of("6.12") < of("7.0"));
        assert_eq!(of("unknown"), NEWEST);
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(
            verdict(&spile_abi::X86_64, &nop, of("6.12.5")),
            Some(Verdict::Right)
        );
        assert_eq!(
            verdict(&spile_abi::X86_64, &nop, of("?")),
            Some(Verdict::OverwritesRedZone)
        );
    }
}
