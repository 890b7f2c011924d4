//! Questions about a process, answered by `/proc`.

use std::fs;

/// What `/proc/PID/stat` says about a process or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its command name (`comm`), up to 15 bytes.
    pub comm: String,
    /// Its state letter: `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Its parent's number.
    pub ppid: u32,
    /// When it started, in clock ticks (`sysconf(_SC_CLK_TCK)`) after boot. With
    /// the number it names a process for good: numbers are used again.
    pub start_ticks: u64,
}

/// Whether there is a process or thread of that number, a zombie included.
#[must_use]
pub fn exists(pid: u32) -> bool {
    pid != 0 && fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false)
}

/// Reads `/proc/PID/stat`; `None` if there is no such process.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    parse(&String::from_utf8_lossy(
        &fs::read(format!("/proc/{pid}/stat")).ok()?,
    ))
}

/// The start time of a process in clock ticks after boot.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_ticks)
}

/// The path of a process's program, as `/proc/PID/exe` shows it.
#[must_use]
pub fn executable(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The arguments of a process, its program's name first; empty for kernel threads.
#[must_use]
pub fn arguments(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    if text.is_empty() {
        return Some(Vec::new());
    }
    Some(text.split('\0').map(str::to_owned).collect())
}

/// Real user id of this process.
#[must_use]
pub fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Processor time of this process so far, in milliseconds: in user mode, in the kernel.
#[must_use]
pub fn own_cpu_ms() -> (f64, f64) {
    // SAFETY: all-zero bytes are a valid `rusage`, and the call writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    (ms(usage.ru_utime), ms(usage.ru_stime))
}

/// The command name may hold spaces and parentheses: the last `)` ends it.
fn parse(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let comm = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    Some(Stat {
        comm,
        state: fields.first()?.chars().next()?,
        ppid: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_awkward_names() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let stat = parse(text).expect("parses");
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.ppid),
            ("a) b (c)", 'S', 1)
        );
        assert_eq!(stat.start_ticks, 4242);
        assert_eq!(parse("7 (x"), None);
        assert_eq!(parse(")("), None);
    }

    #[test]
    fn this_process() {
        let me = std::process::id();
        assert!(exists(me) && !exists(0) && !exists(u32::MAX));
        assert!(start_ticks(me).is_some_and(|ticks| ticks > 0));
        assert_eq!(stat(u32::MAX), None);
        assert!(executable(me).is_some());
        assert!(arguments(me).is_some_and(|args| !args.is_empty()));
    }
}
