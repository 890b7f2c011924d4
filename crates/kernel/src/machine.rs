//! The machine and its kernel: CPUs, clocks, release and configuration.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// The CPUs that can ever exist, in order; per-CPU maps have a value for each.
#[must_use]
pub fn possible_cpus() -> &'static [u32] {
    static CPUS: OnceLock<Vec<u32>> = OnceLock::new();
    CPUS.get_or_init(|| listed_cpus("possible"))
}

/// The CPUs that are online, in order.
#[must_use]
pub fn online_cpus() -> Vec<u32> {
    listed_cpus("online")
}

/// Reads a list such as `0-3,8` from sysfs; without sysfs, counts CPUs by the C library.
fn listed_cpus(name: &str) -> Vec<u32> {
    let path = format!("/sys/devices/system/cpu/{name}");
    let listed = std::fs::read_to_string(path)
        .ok()
        .and_then(|text| parse_cpus(&text));
    listed.unwrap_or_else(|| {
        // SAFETY: asks for a number; touches no memory of ours.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        (0..u32::try_from(count).unwrap_or(1).max(1)).collect()
    })
}

/// Parses a list of processors such as `0-3,8`.
#[must_use]
pub fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    /// More than any kernel is built for.
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The kernel's release, such as `6.12.9-amd64` (`uname -r`).
#[must_use]
pub fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// The build of the kernel (`uname -v`).
#[must_use]
pub fn version_text() -> String {
    rustix::system::uname()
        .version()
        .to_string_lossy()
        .into_owned()
}

/// The machine's architecture (`uname -m`), such as `x86_64`.
#[must_use]
pub fn architecture() -> String {
    rustix::system::uname()
        .machine()
        .to_string_lossy()
        .into_owned()
}

/// The version of a kernel: 6.12.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version {
    /// 6 of 6.12.9.
    pub major: u32,
    /// 12 of 6.12.9.
    pub minor: u32,
    /// 9 of 6.12.9.
    pub patch: u32,
}

impl Version {
    /// The first kernel of a minor version.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Version {
        Version {
            major,
            minor,
            patch: 0,
        }
    }
}

/// The version of the running kernel; 0 for a part that its release lacks. Distributions backport
/// features: ask [`crate::features`] whether one works.
#[must_use]
pub fn version() -> Version {
    parse_version(&release())
}

/// Whether the kernel may preempt threads within its own code, and so within BPF programs that run
/// with preemption enabled. Where this is chosen at boot, debugfs has the setting. Where debugfs
/// may not be read (under lockdown, which also forbids changing it there), the command line and the
/// configuration decide. `true` where it is unknown. Found out at the first call.
#[must_use]
pub fn preempts() -> bool {
    static PREEMPTS: OnceLock<bool> = OnceLock::new();
    *PREEMPTS.get_or_init(|| preempts_by(&version_text(), preemption_set))
}

/// The setting, where the kernel has one.
fn preemption_set() -> Option<String> {
    let line = crate::tracepoints::debugfs("sched/preempt");
    let by_debugfs = line.as_deref().and_then(marked_word);
    by_debugfs.map(str::to_owned).or_else(|| {
        let line = std::fs::read_to_string("/proc/cmdline").ok()?;
        preemption_at_boot(&line, |name| config(name) == Some("y")).map(str::to_owned)
    })
}

/// Whether a setting, by its name on the kernel's command line (`preempt=`), preempts.
fn preempts_by(version: &str, setting: impl FnOnce() -> Option<String>) -> bool {
    let model = version.split(' ').find(|w| w.starts_with("PREEMPT"));
    match model {
        None => false,
        Some("PREEMPT_DYNAMIC") => {
            setting().is_none_or(|name| !matches!(&*name, "none" | "voluntary"))
        }
        Some(_) => true,
    }
}

/// The word in parentheses (`sched_dynamic_show`).
fn marked_word(line: &str) -> Option<&str> {
    Some(line.split_once('(')?.1.split_once(')')?.0)
}

/// The choice of `preempt_dynamic_init`: the last known word of the command line, else the kernel's
/// configuration.
fn preemption_at_boot(cmdline: &str, set: impl Fn(&str) -> bool) -> Option<&'static str> {
    const MODELS: [(&str, &str); 4] = [
        ("none", "CONFIG_PREEMPT_NONE"),
        ("voluntary", "CONFIG_PREEMPT_VOLUNTARY"),
        ("lazy", "CONFIG_PREEMPT_LAZY"),
        ("full", "CONFIG_PREEMPT"),
    ];
    let words = cmdline.split_whitespace();
    let asked = words.filter_map(|w| w.strip_prefix("preempt=")).rev();
    let model = |word: &str| MODELS.iter().find(|m| m.0 == word);
    let mut asked = asked.filter_map(model);
    asked
        .next()
        .or_else(|| MODELS.iter().find(|m| set(m.1)))
        .map(|m| m.0)
}

/// Whether a kernel of that version may preempt threads within programs at raw tracepoints: since
/// 6.19. The kernel then rejects other hits of the program on that processor.
#[must_use]
pub fn tracepoints_preempted(version: Version) -> bool {
    version >= Version::new(6, 19)
}

fn parse_version(release: &str) -> Version {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .take(3)
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    Version {
        major: next(),
        minor: next(),
        patch: next(),
    }
}

/// A setting of the running kernel's configuration, such as `CONFIG_HZ`: `y`, `m`, a number, a
/// string with its quotes. `None` if it is not set, or if the configuration cannot be read (see
/// [`has_config`]).
#[must_use]
pub fn config(name: &str) -> Option<&'static str> {
    lookup_config(config_text()?, name)
}

/// Whether the kernel's configuration can be read: from `/proc/config.gz`,
/// `/boot/config-RELEASE` or the modules' directory.
#[must_use]
pub fn has_config() -> bool {
    config_text().is_some()
}

fn config_text() -> Option<&'static str> {
    static TEXT: OnceLock<Option<String>> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        if let Ok(packed) = File::open("/proc/config.gz")
            && flate2::read::GzDecoder::new(packed)
                .read_to_string(&mut text)
                .is_ok()
        {
            return Some(text);
        }
        let release = release();
        [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
    })
    .as_deref()
}

fn lookup_config<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    memchr::memmem::find_iter(text.as_bytes(), name.as_bytes()).find_map(|start| {
        let starts = start == 0 || text.as_bytes()[start - 1] == b'\n';
        let value = text.get(start + name.len()..)?.strip_prefix('=')?;
        (starts && !name.is_empty()).then(|| value.lines().next().unwrap_or(""))
    })
}

/// The frequency of the kernel's timer tick (jiffies per second): from the coarse clock's
/// resolution, else from `CONFIG_HZ` (expensive: the configuration is compressed), else 250, the
/// default of most distributions.
#[must_use]
pub fn hz() -> u32 {
    static HZ: OnceLock<u32> = OnceLock::new();
    *HZ.get_or_init(|| {
        coarse_hz()
            .or_else(|| config("CONFIG_HZ").and_then(|hz| hz.parse().ok()))
            .filter(|&hz| hz > 0)
            .unwrap_or(250)
    })
}

/// The coarse clock advances once per tick: its resolution is 1 s / HZ.
fn coarse_hz() -> Option<u32> {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let ns = u32::try_from(tick.tv_nsec).ok().filter(|&ns| ns > 0)?;
    Some((1_000_000_000 + ns / 2) / ns)
}

/// Size of a page in bytes.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// The time of a clock in nanoseconds, as the kernel's own code and eBPF programs see it: without the
/// offsets of this process's time namespace.
#[must_use]
pub fn clock_ns(clock: rustix::time::ClockId) -> i64 {
    use rustix::time::ClockId;
    let t = rustix::time::clock_gettime(clock);
    let (monotonic, boottime) = namespace_offsets();
    let offset = match clock {
        ClockId::Monotonic | ClockId::MonotonicCoarse | ClockId::MonotonicRaw => monotonic,
        ClockId::Boottime | ClockId::BoottimeAlarm => boottime,
        _ => 0,
    };
    t.tv_sec * 1_000_000_000 + t.tv_nsec - offset
}

/// What this process's time namespace adds to the monotonic clock and to the time since boot, in
/// nanoseconds.
#[must_use]
pub fn namespace_offsets() -> (i64, i64) {
    static OFFSETS: OnceLock<(i64, i64)> = OnceLock::new();
    *OFFSETS.get_or_init(|| {
        // The file is about the namespace of children, which is another one between unshare and fork.
        let namespace = |name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if namespace("time") != namespace("time_for_children") {
            return (0, 0);
        }
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        (offset_in(&text, "monotonic"), offset_in(&text, "boottime"))
    })
}

/// A line of `timens_offsets`: `monotonic  SECONDS  NANOSECONDS`.
fn offset_in(text: &str, clock: &str) -> i64 {
    let line = text
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let offset = |words: Vec<&str>| match words[..] {
        [name, seconds, ns] if name == clock => {
            let (seconds, ns) = (seconds.parse::<i64>().ok()?, ns.parse::<i64>().ok()?);
            seconds.checked_mul(1_000_000_000)?.checked_add(ns)
        }
        _ => None,
    };
    line.filter_map(offset).next().unwrap_or(0)
}

/// Nanoseconds since boot without suspended time: the clock of `bpf_ktime_get_ns`.
#[must_use]
pub fn monotonic_ns() -> i64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

/// Nanoseconds since boot with suspended time: the clock of `bpf_ktime_get_boot_ns`.
#[must_use]
pub fn boottime_ns() -> i64 {
    clock_ns(rustix::time::ClockId::Boottime)
}

/// The difference between the time since 1970 and the monotonic clock, in nanoseconds. Accurate to
/// about a microsecond: of several readings, the fastest counts. It changes when the clock is set.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let real = clock_ns(rustix::time::ClockId::Realtime);
            let after = monotonic_ns();
            (after - before, real - before - (after - before) / 2)
        })
        .min()
        .map_or(0, |best| best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_is_read_from_the_version_and_the_mode() {
        let with = |line: &str| {
            let name = marked_word(line).map(str::to_owned);
            preempts_by("#1 SMP PREEMPT_DYNAMIC Debian 6.12", || name)
        };
        assert!(!with("none (voluntary) full") && !with("(none) voluntary full lazy"));
        assert!(with("none voluntary (full)") && with("full (lazy)") && with(""));
        assert!(!preempts_by("#1 SMP Debian 6.1", || None));
        assert!(preempts_by("#1 SMP PREEMPT_RT x", || Some("none".into())));
    }

    #[test]
    fn preemption_of_the_command_line_is_read() {
        let lazy = |name: &str| name == "CONFIG_PREEMPT_LAZY";
        let at = |cmdline| preemption_at_boot(cmdline, lazy);
        assert_eq!(at("quiet preempt=none x"), Some("none"));
        assert_eq!(at("preempt=none preempt=full preempt=odd"), Some("full"));
        assert_eq!(at("quiet"), Some("lazy"));
        assert_eq!(preemption_at_boot("quiet", |_| false), None);
    }

    #[test]
    fn tracepoints_are_preempted_from_6_19() {
        for release in ["6.1.0", "6.18.44"] {
            assert!(!tracepoints_preempted(parse_version(release)), "{release}");
        }
        for release in ["6.19.0-rc1", "6.19.1", "7.2"] {
            assert!(tracepoints_preempted(parse_version(release)), "{release}");
        }
    }

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpus(""), None);
        assert_eq!(parse_cpus("3-1"), None);
        assert_eq!(parse_cpus("0-4000000000"), None);
        assert!(!possible_cpus().is_empty());
        assert!(
            online_cpus()
                .iter()
                .all(|cpu| possible_cpus().contains(cpu))
        );
    }

    #[test]
    fn versions_are_parsed_and_compared() {
        let of_three = Version {
            patch: 44,
            ..Version::new(6, 18)
        };
        assert_eq!(parse_version("6.18.44-fc"), of_three);
        assert_eq!(parse_version("6.1-rc3"), Version::new(6, 1));
        assert_eq!(parse_version("weird"), Version::default());
        assert!(version() > Version::new(3, 0));
        assert!(!architecture().is_empty() && !version_text().is_empty());
    }

    #[test]
    fn options_of_the_configuration_are_looked_up() {
        let text = "# CONFIG_NO is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\nXCONFIG_A=1\n";
        assert_eq!(lookup_config(text, "CONFIG_HZ"), Some("250"));
        assert_eq!(lookup_config(text, "CONFIG_A"), None);
        assert_eq!(lookup_config(text, "CONFIG_NO"), None);
        assert_eq!(lookup_config(text, ""), None);
        if !has_config() {
            spile_testing::skip!("no kernel configuration");
        }
        assert!(config("CONFIG_HZ").is_some());
        assert_eq!(coarse_hz(), Some(hz()));
    }

    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let text = "monotonic      100000         5\nboottime          -7         0\n";
        assert_eq!(offset_in(text, "monotonic"), 100_000_000_000_005);
        assert_eq!(offset_in(text, "boottime"), -7_000_000_000);
        assert_eq!(offset_in("", "boottime"), 0);
        assert_eq!(offset_in("monotonic x 1", "monotonic"), 0);
    }

    #[test]
    fn clocks_agree_with_the_standard_library() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_nanos() as i64;
        let ours = monotonic_ns() + realtime_offset_ns();
        assert!((ours - now).abs() < 1_000_000_000);
        assert!(boottime_ns() >= monotonic_ns() - 1_000_000);
        assert!(page_size() >= 4096);
    }
}
