//! Times in regions: the files in which the library in the program counts (docs/profile-context.md
//! has their layout), their folder, and their clock.
//!
//! A file belongs to the program that made it, so its content is trusted only as numbers.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use spile_cast::Cast;
use spile_profile::model::Ns;

/// The environment variable that gives the library the folder.
pub(super) const VARIABLE: &str = "SPILE_REGIONS";

/// Size of a chunk's header. After it a chunk has, for each region number, the thread's entries and
/// its ticks in the region.
pub(super) const HEAD: u64 = 64;
pub(super) const CELL: u64 = 16;
pub(super) const CELLS: u64 = 4096;
pub(super) const CHUNK: u64 = HEAD + CELL * CELLS;
/// Maximum number of chunks of a thread.
const CHUNKS: usize = 16;

/// Prefix of the folders' names.
const NAME: &str = "spile-regions";

/// The folder, which is removed on drop.
#[derive(Debug)]
pub(super) struct CountFolder {
    folder: tempfile::TempDir,
    /// Held locked for as long as the session lives.
    _lock: File,
    pub(super) clock: Clock,
    /// Whether changes are recorded.
    trace: bool,
}

/// The regions that a thread was in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CountedRegions {
    /// For each region, and for ranks that calls were for: number, entries, time.
    pub regions: Vec<(u32, u64, Ns)>,
    /// The number of the region that the thread was in last; 0 for none.
    pub last: u32,
}

impl CountFolder {
    /// Makes the folder, in memory where the system has a location for it. `trace`: changes of regions
    /// are recorded.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn new(trace: bool) -> io::Result<CountFolder> {
        let uid = rustix::process::geteuid().as_raw();
        let shared = Path::new("/dev/shm");
        let parent = match shared.is_dir() {
            true => shared.to_owned(),
            false => std::env::temp_dir(),
        };
        remove_abandoned(&parent, uid);
        let made =
            create_locked(&parent, uid).or_else(|_| create_locked(&std::env::temp_dir(), uid));
        let (folder, lock) = made?;
        Ok(CountFolder {
            folder,
            _lock: lock,
            clock: Clock::new(),
            trace,
        })
    }

    /// The value of [`VARIABLE`]: a plus in front of the path requests changes, a colon the
    /// kernel's clock.
    pub(super) fn value(&self) -> std::ffi::OsString {
        let mut value = std::ffi::OsString::new();
        if self.trace {
            value.push("+");
        }
        if self.clock.start().is_none() {
            value.push(":");
        }
        value.push(self.folder.path());
        value
    }

    /// Whether times were taken from processor counters that the kernel no longer trusts.
    pub(super) fn is_distrusted(&self) -> bool {
        self.clock.start().is_some() && !counter_is_trusted()
    }

    /// The times that a thread counted. `file` is the name of its process's file and `location` its
    /// first chunk there, as the library announced them. Region numbers are below `numbers`.
    /// `until` is the monotonic clock when the thread ended, or now.
    ///
    /// # Errors
    /// When the file does not exist, or is not one of the library's.
    pub(super) fn read(
        &self,
        file: u64,
        location: u64,
        numbers: u32,
        until: Ns,
    ) -> io::Result<CountedRegions> {
        let file = self.open(file, false)?;
        let mut out = CountedRegions::default();
        let rate = self.clock.rate();
        let mut next = Some(location);
        let (mut since, mut peers) = (0, 0);
        for nth in 0..CHUNKS {
            let Some(location) = next else { break };
            let offset = location
                .checked_mul(CHUNK)
                .ok_or(io::ErrorKind::InvalidData)?;
            let [begun, number, following, base] = words(&file, offset)?;
            if nth == 0 {
                since = begun;
                (out.last, peers) = (number.low32(), (number >> 32).low32());
            }
            next = following.checked_sub(1);
            let cells = u64::from(numbers).saturating_sub(base).min(CELLS);
            let mut bytes = vec![0; (cells * CELL).fit::<usize>()];
            file.read_exact_at(&mut bytes, offset + HEAD)?;
            for (i, cell) in bytes.chunks_exact(CELL.fit::<usize>()).enumerate() {
                let [entries, ticks] = [0, 8].map(|n| word(&cell[n..]));
                if entries > 0 || ticks > 0 {
                    let number = base.fit::<u32>() + i.fit::<u32>();
                    out.regions.push((number, entries, rate.span(ticks)));
                }
            }
        }
        // The thread has been in the last region since then.
        let more = until.saturating_sub(rate.monotonic_ns(since));
        for number in [out.last, peers] {
            match out.regions.iter_mut().find(|r| r.0 == number) {
                Some(region) => region.2 += more,
                None => out.regions.push((number, 0, more)),
            }
        }
        out.regions.retain(|r| r.0 != 0);
        Ok(out)
    }

    /// The path of a process's file.
    pub(super) fn path_of(&self, file: u64) -> PathBuf {
        self.folder.path().join(format!("{file:016x}"))
    }

    /// Opens a process's file.
    pub(super) fn open(&self, file: u64, write: bool) -> io::Result<File> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(
                (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK)
                    .bits()
                    .cast_signed(),
            )
            .open(self.path_of(file))?;
        // A file to write to must not be something else under another name.
        let metadata = file.metadata()?;
        if !metadata.is_file() || write && metadata.nlink() > 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(file)
    }
}

pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Consecutive words of a file.
pub(super) fn words<const N: usize>(file: &File, offset: u64) -> io::Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    file.read_exact_at(bytes.as_flattened_mut(), offset)?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Makes a folder and locks it. Before it is locked, another session that begins can take it for an
/// abandoned folder and remove it: then another one is made.
fn create_locked(parent: &Path, uid: u32) -> io::Result<(tempfile::TempDir, File)> {
    // A program started by root may go on as another user, who can make files but not list
    // those of others.
    let mode = if uid == 0 { 0o1733 } else { 0o700 };
    loop {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{NAME}-{uid}-"))
            .tempdir_in(parent)?;
        let lock = match File::open(folder.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        lock.lock()?;
        let id = |m: &std::fs::Metadata| (m.dev(), m.ino());
        let named = folder.path().symlink_metadata();
        if named.is_ok_and(|named| {
            lock.metadata()
                .is_ok_and(|locked| id(&locked) == id(&named))
        }) {
            lock.set_permissions(std::fs::Permissions::from_mode(mode))?;
            return Ok((folder, lock));
        }
    }
}

/// Removes the folders that killed sessions of this user left behind: those that no process has
/// locked.
fn remove_abandoned(parent: &Path, uid: u32) {
    let prefix = format!("{NAME}-{uid}-");
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        let is_ours = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == uid);
        let Some(folder) = is_ours.then(|| File::open(entry.path()).ok()).flatten() else {
            continue;
        };
        // It stays locked until it is gone: a session that has just made it waits, and notices.
        if folder.try_lock().is_ok() {
            // Files that cannot be removed stay.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Converts the processors' counter to nanoseconds of the monotonic clock, by readings of both.
#[derive(Debug)]
pub(super) struct Clock {
    /// Counter and clock at the start, and later readings, because the kernel adjusts the speed of its clock;
    /// none where the library reads the kernel's clock.
    marks: RefCell<Vec<(u64, Ns)>>,
}

/// Distance of the readings in nanoseconds.
const APART: Ns = 1_000_000_000;

/// Readings of both clocks in order, for converting the counter to the monotonic clock.
#[derive(Debug)]
pub(super) struct ClockReadings(Vec<(u64, Ns)>);

impl ClockReadings {
    /// The monotonic clock at a reading of the counter.
    pub(super) fn monotonic_ns(&self, ticks: u64) -> Ns {
        let next = self.0.partition_point(|(counter, _)| *counter < ticks);
        let next = next.clamp(1, self.0.len().max(2) - 1);
        let (Some(&from), Some(&to)) = (self.0.get(next - 1), self.0.get(next)) else {
            return ticks;
        };
        ClockRate::between(from, to).monotonic_ns(ticks)
    }
}

/// A [`Clock`] at some time after the start.
#[derive(Debug, Clone, Copy)]
struct ClockRate {
    start: (u64, Ns),
    /// Nanoseconds for each tick.
    rate: f64,
}

impl Clock {
    fn new() -> Clock {
        Clock {
            marks: RefCell::new(read_both_clocks().into_iter().collect()),
        }
    }

    /// Counter and clock at the start.
    pub(super) fn start(&self) -> Option<(u64, Ns)> {
        self.marks.borrow().first().copied()
    }

    /// Reads both clocks if the last reading is old enough.
    pub(super) fn mark(&self) -> Option<(u64, Ns)> {
        let now = read_both_clocks()?;
        let mut marks = self.marks.borrow_mut();
        let last = marks.last().copied()?;
        if now.1.saturating_sub(last.1) >= APART {
            marks.push(now);
        }
        Some(now)
    }

    /// The readings up to now.
    pub(super) fn line(&self) -> ClockReadings {
        let now = self.mark();
        let mut readings = self.marks.borrow().clone();
        readings.extend(now.filter(|now| readings.last().is_some_and(|last| last < now)));
        ClockReadings(readings)
    }

    fn rate(&self) -> ClockRate {
        let readings = self.start().zip(read_both_clocks());
        let (start, end) = readings.unwrap_or_default();
        ClockRate::between(start, end)
    }
}

impl ClockRate {
    fn between(start: (u64, Ns), end: (u64, Ns)) -> ClockRate {
        let rate = match end.0.checked_sub(start.0) {
            None | Some(0) => 1.0,
            Some(ticks) => end.1.saturating_sub(start.1) as f64 / ticks as f64,
        };
        ClockRate { start, rate }
    }

    fn span(self, ticks: u64) -> Ns {
        spile_cast::whole(ticks as f64 * self.rate)
    }

    /// The monotonic clock at a reading of the counter.
    fn monotonic_ns(self, ticks: u64) -> Ns {
        let (start, ns) = self.start;
        match ticks.checked_sub(start) {
            Some(after) => ns.saturating_add(self.span(after)),
            None => ns.saturating_sub(self.span(start - ticks)),
        }
    }
}

/// Counter and clock at one time: of several readings the pair with the least time between them,
/// because another process can be scheduled in between.
fn read_both_clocks() -> Option<(u64, Ns)> {
    let readings = (0..16).filter_map(|_| {
        let (before, ns, after) = (counter()?, now(), counter()?);
        let between = after.checked_sub(before)?;
        Some((between, before + between / 2, ns))
    });
    let (_, ticks, ns) = readings.min()?;
    Some((ticks, ns))
}

/// The monotonic clock.
fn now() -> Ns {
    spile_kernel::machine::monotonic_ns().cast_unsigned()
}

/// The processors' counter; `None` where the kernel does not trust it, for example where processors
/// differ.
fn counter() -> Option<u64> {
    static TRUSTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let trusted = TRUSTED.get_or_init(counter_is_trusted);
    trusted.then(spile_kernel::cycles::cycles)
}

/// Whether the kernel trusts the processors' counter now.
fn counter_is_trusted() -> bool {
    let folder = Path::new("/sys/devices/system/clocksource/clocksource0");
    let names = |file| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    is_trusted(
        &names("current_clocksource"),
        &names("available_clocksource"),
    )
}

/// Whether the kernel's current clock source, and the available ones, show that it trusts the
/// counter: an unstable counter is not among the available ones. The clocks of hypervisors read the
/// counter, too.
fn is_trusted(current: &str, available: &str) -> bool {
    let by_counter = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    by_counter.contains(&current.trim()) && available.split_whitespace().any(|n| n == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as the library writes it: numbers 1 and 4,097, in the second of two chunks. The thread is in a call for
    /// the ranks of number 9.
    #[test]
    fn what_is_counted_is_read() {
        let folder = CountFolder::new(false).expect("a folder");
        let file = File::create(folder.path_of(7)).expect("made");
        file.set_len(3 * CHUNK).expect("sparse");
        let put = |at: u64, words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            file.write_all_at(&bytes, at).expect("written");
        };
        let (start, ns) = folder.clock.start().unwrap_or((0, 0));
        put(CHUNK, &[start, 9 << 32 | 4097, 3, 0]);
        put(CHUNK + HEAD + CELL, &[5, 0]);
        put(2 * CHUNK, &[0, 0, 0, CELLS]);
        put(2 * CHUNK + HEAD + CELL, &[2, 0]);
        let counted = folder.read(7, 1, 5000, ns + 1000).expect("read");
        assert_eq!(counted.last, 4097);
        assert_eq!(counted.regions, [(1, 5, 0), (4097, 2, 1000), (9, 0, 1000)]);
        // Unannounced numbers are not read, nor are files of another kind.
        let few = folder.read(7, 1, 1, ns).expect("read").regions;
        assert_eq!(few, [(4097, 0, 0), (9, 0, 0)]);
        for location in [u64::MAX, 1 << 60, 3] {
            assert!(folder.read(7, location, 1, ns).is_err(), "{location}");
        }
        assert!(folder.read(8, 0, 1, ns).is_err());
    }

    /// As ranks do that one launcher starts: no session takes a folder that another has just made.
    #[test]
    fn sessions_that_begin_together_keep_their_folders() {
        let ranks = (0..8).map(|_| {
            std::thread::spawn(|| {
                for _ in 0..100 {
                    let folder = CountFolder::new(false).expect("a folder");
                    File::create(folder.path_of(2)).expect("it is there");
                }
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().for_each(|r| r.join().expect("all"));
    }

    #[test]
    fn ticks_become_nanoseconds() {
        let clock = Clock::new();
        let Some((before, begun)) = read_both_clocks() else {
            return;
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (after, ended) = read_both_clocks().expect("there");
        let (ticks, ns) = (after - before, ended - begun);
        let off = clock.rate().span(ticks).abs_diff(ns);
        assert!(off < ns / 100, "{off} of {ns}");
    }

    #[test]
    fn counters_that_the_kernel_found_unstable_are_not_read() {
        for (current, available, trusted) in [
            ("tsc\n", "tsc kvm-clock \n", true),
            ("kvm-clock", "kvm-clock tsc hpet", true),
            ("kvm-clock", "kvm-clock hpet acpi_pm", false),
            ("hpet", "hpet acpi_pm", false),
            ("hpet", "tsc hpet acpi_pm", false),
            ("", "", false),
        ] {
            assert_eq!(
                is_trusted(current, available),
                trusted,
                "{current} {available}"
            );
        }
    }

    /// A program's own measurement agrees with the library's, by the processors' counter and by the
    /// kernel's clock.
    #[test]
    fn either_clock_measures_what_a_program_does() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("region-times");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let done = std::process::Command::new("cc")
            .args(["-O1", "-pthread", "-I"])
            .arg(root.join("include"))
            .arg("-o")
            .args([&program, &root.join("tests/programs/region-times.c")])
            .status();
        assert!(done.expect("cc").success());
        let own = spile_debuginfo::trust::own_folder;
        let cache = |name: &str| (name == "XDG_CACHE_HOME").then(|| dir.path().into());
        let variables = spile_context::environment(cache, own).expect("the library");
        for kernel in [false, true] {
            let folder = CountFolder::new(false).expect("a folder");
            if kernel {
                folder.clock.marks.take();
            }
            let run = std::process::Command::new(&program)
                .arg("plain")
                .envs(variables.iter().cloned())
                .env(VARIABLE, folder.value())
                .output();
            let printed = String::from_utf8(run.expect("run").stdout).expect("text");
            let mut files = std::fs::read_dir(folder.folder.path()).expect("files");
            let name = files.next().expect("a file").expect("its name").file_name();
            let name = u64::from_str_radix(&name.to_string_lossy(), 16).expect("a number");
            let counted = folder.read(name, 0, 3, now()).expect("read");
            assert_eq!(counted.last, 0, "{printed}");
            assert_eq!(counted.regions.len(), 2, "{printed}");
            for (line, region) in printed.lines().zip(&counted.regions) {
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!(words[1], region.1.to_string(), "{line}");
                let own: Ns = words[2].parse().expect("nanoseconds");
                let (least, most) = (own - own / 4, own + own / 50 + 1_000_000);
                assert!((least.saturating_sub(80_000_000)..=most).contains(&region.2));
            }
        }
    }
}
