//! Queries about a process, answered by `/proc`, and operations on this process.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread::JoinHandle;

use spile_cast::Cast;

/// Ignores SIGXFSZ: from now on a write past the file size limit (`ulimit -f`) is an error, instead
/// of a signal that ends this process.
pub fn file_limit_is_an_error() {
    // SAFETY: nobody else handles this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Runs `act` with SIGINT blocked, so that Ctrl-C ends a child that it waits for and not this
/// process.
pub fn without_interrupts<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are plain data that the calls fill, and live on this stack.
    unsafe {
        let mut interrupt = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut interrupt);
        libc::sigaddset(&raw mut interrupt, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const interrupt, &raw mut before);
        let result = act();
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // What came meanwhile was for the child.
        libc::sigtimedwait(&raw const interrupt, std::ptr::null_mut(), &raw const now);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// The content of `/proc/PID/stat` of a process or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStat {
    /// Its command name (`comm`), up to 15 bytes.
    pub comm: String,
    /// Its state letter: `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Its parent's number.
    pub ppid: u32,
}

/// Whether a process or thread of that id exists, including zombies.
#[must_use]
pub fn exists(pid: u32) -> bool {
    pid != 0 && fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false)
}

/// Reads `/proc/PID/stat`; `None` if there is no such process.
#[must_use]
pub fn stat(pid: u32) -> Option<ProcStat> {
    parse(&String::from_utf8_lossy(
        &fs::read(format!("/proc/{pid}/stat")).ok()?,
    ))
}

/// The process that a thread belongs to.
#[must_use]
pub fn of_thread(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The path of a process's program, as `/proc/PID/exe` shows it.
#[must_use]
pub fn executable(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// In a child that will execute a command: restores the signals that this process blocks or ignores, and its
/// limit of open files; async-signal-safe.
///
/// # Errors
/// Those of the system call.
pub fn restore_for_command() -> std::io::Result<()> {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: the default action needs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    crate::resources::restore_open_files();
    match unblock_signals() {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Unblocks all signals in this thread; async-signal-safe.
fn unblock_signals() -> libc::c_int {
    // SAFETY: a set of signals is plain numbers, and the calls only write to it or read it.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    }
}

/// Unblocks all signals in a command's process, whatever the thread that starts it blocks.
pub fn with_all_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the function may be called between fork and exec.
    unsafe { command.pre_exec(restore_for_command) }
}

/// Ends this process by a signal that ended another one, so that its parent sees the same status.
/// Writes no core. Returns if the signal does not end the process.
pub fn end_by(signal: i32) {
    // SAFETY: no handler of this process runs after the first call.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        unblock_signals();
        libc::kill(libc::getpid(), signal);
    }
}

/// Runs a closure in a thread with all signals blocked: signals are for the threads that wait for
/// them, and would end the process here while no thread waits. Where no thread can be made, the
/// closure is dropped without running.
pub fn spawn_masked(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    // SAFETY: sets of signals are plain numbers, and each call only writes to its own or reads it.
    unsafe {
        let (mut every_signal, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut every_signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every_signal, &raw mut before);
        // A thread inherits the mask of its creator.
        let thread = std::thread::Builder::new().spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread.ok()
    }
}

/// Minimum growth of the heap, in bytes.
#[cfg(target_env = "gnu")]
const HEAP: usize = 8 << 20;
/// Order of a huge page in `/proc/buddyinfo`.
#[cfg(target_env = "gnu")]
const HUGE_ORDER: usize = 9;

/// Makes the C library's heap grow by megabytes, on huge pages if some are free: a page fault for
/// each small page takes longer than the work on the page. If none are free, the kernel would stop
/// to make some. Heaps of other C libraries stay as they are.
#[cfg(target_env = "gnu")]
pub fn large_heap() {
    let text = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    if free_blocks(&text, HUGE_ORDER) < 4 * (HEAP >> 21) as u64 {
        return;
    }
    // SAFETY: the heap's end is only read, the block is freed, and the advice is about memory of the
    // heap, whose contents it leaves alone.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, HEAP.fit::<libc::c_int>());
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * HEAP.fit::<libc::c_int>());
        // A threshold set by hand no longer adapts, so set the one for blocks with mappings of
        // their own.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        let start = libc::sbrk(0);
        // More than is left of the first piece, and less than the threshold.
        libc::free(std::hint::black_box(libc::malloc(512 << 10)));
        let end = libc::sbrk(0);
        if (start as usize).is_multiple_of(crate::machine::page_size())
            && end as usize > start as usize
        {
            libc::madvise(start, end as usize - start as usize, libc::MADV_HUGEPAGE);
        }
    }
}

/// Does nothing: other C libraries have no such setting.
#[cfg(not(target_env = "gnu"))]
pub fn large_heap() {}

/// Number of free blocks of that order, larger blocks included: lines are zones, and columns from
/// the fifth on are the orders from 0.
#[cfg(target_env = "gnu")]
fn free_blocks(buddyinfo: &str, order: usize) -> u64 {
    let of_zone = |line: &str| -> u64 {
        let counts = line.split_ascii_whitespace().skip(4).enumerate();
        let large = counts.skip(order);
        large
            .filter_map(|(o, n)| Some(n.parse::<u64>().ok()? << (o - order)))
            .sum()
    };
    buddyinfo.lines().map(of_zone).sum()
}

/// Makes a system call without effect that a script can recognise: `prctl(what, argument, token)`,
/// of an option that no kernel has.
pub fn mark(option: i32, argument: u64, token: u64) {
    // SAFETY: the kernel refuses the option, and touches no memory of ours.
    unsafe { libc::prctl(option, argument, token, 0, 0) };
}

/// A mapping of a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Whether it is readable.
    pub readable: bool,
    /// Whether it is executable.
    pub executable: bool,
    /// Inode of the file, or 0.
    pub inode: u64,
    /// The file, or the kernel's name (`[stack]`); empty for anonymous memory.
    pub path: String,
}

/// The mappings of a process, in order of addresses.
///
/// # Errors
/// Those of reading `/proc/PID/maps`.
pub fn mappings(pid: u32) -> std::io::Result<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(mapping).collect())
}

/// The processes that run a program (by its device and inode), each with the address of the first
/// byte of the program's file.
#[must_use]
pub fn running(program: &std::path::Path) -> Vec<(u32, u64)> {
    let Some(wanted) = file_identity(program) else {
        return Vec::new();
    };
    let start = |pid| Some((pid, start_if_running(pid, wanted)?));
    all().into_iter().filter_map(start).collect()
}

/// The address of the first byte of the program's file in one process, if it runs the program.
#[must_use]
pub fn start_of(program: &std::path::Path, pid: u32) -> Option<u64> {
    start_if_running(pid, file_identity(program)?)
}

fn start_if_running(pid: u32, wanted: (u64, u64)) -> Option<u64> {
    let path = format!("/proc/{pid}/exe");
    let path = std::path::Path::new(&path);
    if file_identity(path)? != wanted {
        return None;
    }
    let name = fs::read_link(path).ok()?;
    let name = name.to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
    let first = mappings(pid).ok()?;
    let first = first.iter().find(|m| m.path == name && m.offset == 0)?;
    Some(first.start)
}

/// A line of `/proc/PID/maps`: `START-END PERMS OFFSET DEVICE INODE   PATH`.
fn mapping(line: &str) -> Option<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = hex(fields.next()?)?;
    let inode = fields.nth(1)?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        readable: permissions.starts_with('r'),
        executable: permissions.contains('x'),
        inode,
        path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
    })
}

/// The device, as in `super_block.s_dev`, and the inode of a file; symbolic links are followed.
#[must_use]
pub fn file_identity(path: &std::path::Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    /// Width of the minor part in the kernel's device numbers.
    const MINOR: u32 = 20;
    let meta = std::fs::metadata(path).ok()?;
    let major = u64::from(rustix::fs::major(meta.dev()));
    let minor = u64::from(rustix::fs::minor(meta.dev()));
    Some((major << MINOR | minor, meta.ino()))
}

/// The ids of all processes, in order.
#[must_use]
pub fn all() -> Vec<u32> {
    numeric_entries("/proc")
}

/// A process and its descendants. Calls back with those that each round finds; they are searched until a round
/// finds none, because some begin meanwhile.
pub fn descendants(target: u32, mut report: impl FnMut(&[u32])) -> BTreeSet<u32> {
    let mut known = BTreeSet::from([target]);
    loop {
        let mut new = Vec::new();
        for pid in all() {
            let parent = || stat(pid).map(|s| s.ppid);
            if !known.contains(&pid) && parent().is_some_and(|p| known.contains(&p)) {
                known.insert(pid);
                new.push(pid);
            }
        }
        if new.is_empty() {
            return known;
        }
        report(&new);
    }
}

/// The inode number of the PID namespace of a process, or of this one; `None` if there is no
/// such process.
#[must_use]
pub fn pid_namespace(pid: Option<u32>) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let meta = fs::metadata(format!("/proc/{process}/ns/pid")).ok()?;
    Some(meta.ino())
}

/// A range in a user namespace's map of user or group ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first id inside.
    pub inside: u32,
    /// The first id outside: the kernel's own number, if this process is in the initial namespace.
    pub outside: u32,
    /// Number of ids.
    pub count: u32,
}

/// The maps of user ids and of group ids (`/proc/PID/uid_map`, `gid_map`) of a process's user
/// namespace, or of this one's; `None` if there is no such process.
#[must_use]
pub fn id_maps(pid: Option<u32>) -> Option<[Vec<IdRange>; 2]> {
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let map = |kind: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/{kind}_map")).ok()?;
        Some(text.lines().filter_map(id_range).collect())
    };
    Some([map("uid")?, map("gid")?])
}

/// A line of `uid_map`: inside, outside, count.
fn id_range(line: &str) -> Option<IdRange> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse);
    Some(IdRange {
        inside: numbers.next()?.ok()?,
        outside: numbers.next()?.ok()?,
        count: numbers.next()?.ok()?,
    })
}

/// The user id and the group id that stand for ids without a mapping in a user namespace
/// (`/proc/sys/kernel/overflowuid`, `overflowgid`).
#[must_use]
pub fn overflow_ids() -> [u32; 2] {
    /// The kernel's default: nobody.
    const NOBODY: u32 = 65534;
    ["uid", "gid"].map(|kind| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}"));
        text.ok()
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(NOBODY)
    })
}

/// The thread ids of a process, the main thread's first; empty when the process is gone.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    let mut ids = numeric_entries(&format!("/proc/{pid}/task"));
    ids.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    ids
}

/// Names in a directory that are numbers, in order.
fn numeric_entries(folder: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
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

/// Processor time of this process so far in milliseconds: in user mode, and in the kernel.
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
fn parse(text: &str) -> Option<ProcStat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let comm = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    Some(ProcStat {
        comm,
        state: fields.first()?.chars().next()?,
        ppid: fields.get(1)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_env = "gnu")]
    #[test]
    fn free_blocks_of_all_zones_are_added() {
        let text = "Node 0, zone    DMA32      6      2      1      3\n\
                    Node 0, zone   Normal     15     28      5      0\n";
        assert_eq!(free_blocks(text, 2), 1 + 2 * 3 + 5);
        assert_eq!(free_blocks(text, 3), 3);
        assert_eq!(free_blocks("", 0), 0);
    }

    #[test]
    fn id_ranges_are_parsed() {
        let range = |inside, outside, count| IdRange {
            inside,
            outside,
            count,
        };
        let all = id_range("         0          0 4294967295");
        assert_eq!(all, Some(range(0, 0, u32::MAX)));
        assert_eq!(id_range("1 100000 65536"), Some(range(1, 100_000, 65536)));
        assert_eq!(id_range("1 2"), None);
        assert_eq!(id_range("a b c"), None);
        assert!(id_maps(None).is_some_and(|maps| maps.iter().all(|m| !m.is_empty())));
    }

    #[test]
    fn this_program_is_found_as_running() {
        let own = std::env::current_exe().unwrap();
        let found = running(&own);
        let start = found.iter().find(|(pid, _)| *pid == std::process::id());
        let start = start.expect("this process").1;
        let all = mappings(std::process::id()).unwrap();
        assert!(all.iter().any(|m| m.start == start && m.offset == 0));
        assert_eq!(start_of(&own, std::process::id()), Some(start));
        assert_eq!(start_of(&own, 0), None);
        assert!(running(std::path::Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn parses_awkward_names() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let stat = parse(text).expect("parses");
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.ppid),
            ("a) b (c)", 'S', 1)
        );
        assert_eq!(parse("7 (x"), None);
        assert_eq!(parse(")("), None);
    }

    #[test]
    fn this_process_answers_for_itself() {
        let me = std::process::id();
        assert!(exists(me) && !exists(0) && !exists(u32::MAX));
        assert!(stat(me).is_some_and(|stat| stat.ppid > 0));
        assert_eq!(stat(u32::MAX), None);
        assert!(executable(me).is_some());
        assert!(arguments(me).is_some_and(|args| !args.is_empty()));
    }

    #[test]
    fn lines_of_maps_are_parsed() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 247849    /usr/lib/a b.so (deleted)";
        let expected = super::Mapping {
            start: 0x7f00,
            end: 0x8f00,
            offset: 0x1000,
            readable: true,
            executable: true,
            inode: 247_849,
            path: "/usr/lib/a b.so".into(),
        };
        assert_eq!(super::mapping(line), Some(expected));
        assert_eq!(
            super::mapping("7f00-8f00 rw-p 00000000 00:00 0").map(|m| m.path),
            Some(String::new())
        );
        assert_eq!(super::mapping("nonsense"), None);
        let own = super::mappings(std::process::id()).expect("our own");
        assert!(own.iter().any(|m| m.executable && m.path.starts_with('/')));
        assert_eq!(super::threads(std::process::id())[0], std::process::id());
    }
}
