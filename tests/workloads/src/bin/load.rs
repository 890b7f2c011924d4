//! Workloads of known size for the tests and the benchmark.
//!
//! `load calls THREADS COUNT [MS]`: each thread makes COUNT getppid calls. `load errors COUNT
//! [MS]`: COUNT calls each of close(-1) (EBADF) and of open of a missing file. `load forks COUNT`:
//! COUNT children that end at once. `load signals COUNT`: COUNT signals 0 and COUNT SIGCHLD sent to
//! itself. `load names COUNT`: renames its thread `nameN` for each N below COUNT, one getppid each.
//! `load keys COUNT ROUNDS`: closes COUNT numbers that are no descriptors, the same in each round,
//! and prints the nanoseconds of processor time of a call in each round on standard error. `load
//! wait MS`: sleeps. `load naps COUNT MS [MS]`: sleeps COUNT times, with a system call each. `load
//! spin MS`: computes, without a system call. `load cold FILE [MS]`: passes paths to access() that
//! are in memory which it never touched: a file just mapped (`/cold/mapped`), the same across the
//! end of a page (`/cold/crossing`), a file that the kernel dropped from its cache
//! (`/cold/dropped`), a mapping of which another page was written (`/cold/written`), one with
//! unprintable bytes (`/cold/\t\"\001`). `load faults COUNT`: writes to COUNT pages of new memory;
//! says where it is, its bytes, and how many minor faults the kernel counted meanwhile, on standard
//! output. `load marks COUNT`: passes a marker of the crate spile-sdt with N, -N and 7 for N from 1
//! to COUNT; where the marker `seen` is probed, that one too. `load gone FILE`: access() with
//! `/cold/gone`, which is not in the cache, then a kill of itself. `load datagrams SIZE...`: sends
//! a UDP datagram of each size through the loopback device, and prints the size of each datagram that
//! arrives, up to the last one. With a last MS it says `done` on standard error and stays that long,
//! in one system call.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::ffi::CString;
use std::io::Write;
use std::time::{Duration, Instant};

use spile_cast::Cast;

fn number(args: &[String], i: usize) -> u64 {
    args.get(i).and_then(|a| a.parse().ok()).unwrap_or_else(|| {
        eprintln!("load: argument {i} must be a number");
        std::process::exit(2)
    })
}

fn getppid(n: u64) {
    for _ in 0..n {
        // SAFETY: getppid takes and touches no memory; the raw call is never cached.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn calls(threads: u64, count: u64) {
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(move || getppid(count));
        }
    });
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    // One write: lines of the tracer go to the same location.
    let line = format!("{ns:.1} ns a call\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn errors(count: u64) {
    let path = CString::new("/nonexistent/file").expect("no NUL");
    for _ in 0..count {
        // SAFETY: plain system calls; the path outlives the call.
        unsafe {
            libc::close(-1);
            libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        }
    }
}

fn forks(count: u64) {
    for _ in 0..count {
        // SAFETY: the child only calls _exit.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A page of data in front of the semaphores. lld makes two writable segments, whose ends share a page of the
/// file, and of two writable mappings of a semaphore the kernel raises the one in the first (docs/markers.md).
#[used]
static APART: std::sync::atomic::AtomicPtr<[u8; 4096]> =
    std::sync::atomic::AtomicPtr::new(&raw mut FILLED);
static mut FILLED: [u8; 4096] = [1; 4096];

fn marks(count: u64) {
    for n in 1..=count {
        spile_sdt::probe!(load, mark, n, -n.low32().cast_signed(), 7_u8);
        if spile_sdt::probe_enabled!(load, seen) {
            spile_sdt::probe!(load, seen);
        }
    }
}

fn datagrams(sizes: &[String]) {
    use std::net::UdpSocket;
    let bound = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (from, to) = (bound(), bound());
    // Packets of one processor arrive in order.
    // SAFETY: the set has the size that the call names, and all zeros are a valid set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0).fit::<usize>(), &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
    let sizes: Vec<usize> = sizes.iter().filter_map(|s| s.parse().ok()).collect();
    for size in &sizes {
        let address = to.local_addr().expect("an address");
        from.send_to(&vec![b'.'; *size], address).expect("sent");
    }
    // For when the last one is lost as well.
    let wait = Some(Duration::from_secs(20));
    to.set_read_timeout(wait).expect("a time");
    let mut arrived = Vec::new();
    while let Ok(size) = to.recv(&mut [0; PAGE]) {
        arrived.push(size.to_string());
        if sizes.last() == Some(&size) {
            break;
        }
    }
    println!("{}", arrived.join(" "));
}

fn signals(count: u64) {
    for _ in 0..count {
        // SAFETY: signal 0 and an ignored signal to this process.
        unsafe {
            libc::kill(libc::getpid(), 0);
            libc::kill(libc::getpid(), libc::SIGCHLD);
        }
    }
}

fn names(count: u64) {
    for i in 0..count {
        let name = CString::new(format!("name{i}")).expect("no NUL");
        // SAFETY: the name outlives the call.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        getppid(1);
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    // SAFETY: the kernel fills the structure, which is valid when zeroed.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.fit::<u32>())
}

/// The first number that [`keys`] closes. It is above all descriptors that a process may have.
const NO_DESCRIPTOR: u64 = 1 << 30;

fn keys(count: u64, rounds: u64) {
    let round = |_| {
        let start = processor_time();
        for n in 0..count {
            // SAFETY: a number that is no descriptor; the call touches no memory.
            unsafe { libc::close((NO_DESCRIPTOR + n).low32().cast_signed()) };
        }
        let ns = (processor_time() - start).as_nanos() as f64 / count.max(1) as f64;
        format!("{ns:.1}")
    };
    let times: Vec<String> = (0..rounds).map(round).collect();
    let line = times.join(" ") + " ns a call\n";
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn naps(count: u64, ms: u64) {
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Prints `done`, and stays in one system call for the milliseconds of the argument, if it is
/// given.
fn stay(args: &[String], i: usize) {
    if args.len() > i {
        let _ = std::io::stderr().write_all(b"done\n");
        let ms = number(args, i).min(i32::MAX as u64).fit::<i32>();
        // SAFETY: no descriptors are given, and so no memory.
        unsafe { libc::poll(std::ptr::null_mut(), 0, ms) };
    }
}

/// Size of a page in bytes.
const PAGE: usize = 4096;

/// Writes a file of three pages with a path at that offset, and maps it without touching it.
fn mapped(file: &std::path::Path, path: &[u8], at: usize, drop: bool, write: bool) -> *const u8 {
    use std::os::fd::AsRawFd;
    let mut bytes = vec![b'#'; 3 * PAGE];
    bytes[at..at + path.len()].copy_from_slice(path);
    bytes[at + path.len()] = 0;
    let _ = std::fs::remove_file(file);
    std::fs::write(file, &bytes).expect("a file");
    let open = std::fs::File::open(file).expect("the file");
    if drop {
        open.sync_all().expect("synchronised");
        // SAFETY: advice about an open file.
        unsafe { libc::posix_fadvise(open.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    let prot = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new private mapping of three pages, which stays; the last is written where asked.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            3 * PAGE,
            prot,
            libc::MAP_PRIVATE,
            open.as_raw_fd(),
            0,
        );
        assert_ne!(map, libc::MAP_FAILED, "mapped");
        if write {
            *map.cast::<u8>().add(2 * PAGE) = 1;
        }
        libc::madvise(map, 2 * PAGE, libc::MADV_DONTNEED);
        libc::madvise(map, 3 * PAGE, libc::MADV_RANDOM);
        map.cast::<u8>().add(at)
    }
}

/// Passes the kernel a path to read.
fn access(path: *const u8) {
    // SAFETY: the text ends with NUL, and its mapping stays.
    unsafe { libc::access(path.cast(), 0) };
}

fn cold(file: &str) {
    let file = std::path::Path::new(file);
    access(mapped(file, b"/cold/mapped", 0, false, false));
    access(mapped(file, b"/cold/crossing", PAGE - 7, false, false));
    access(mapped(file, b"/cold/\t\"\x01", 0, false, false));
    access(mapped(file, b"/cold/dropped", 0, true, false));
    access(mapped(file, b"/cold/written", 0, false, true));
}

fn minor_faults() -> i64 {
    // SAFETY: getrusage fills the structure, for which all zeros are valid.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt
    }
}

fn faults(count: usize) {
    let size = count * PAGE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory of this size, of single pages; each write is within it.
    let (start, before) = unsafe {
        let start = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "no memory");
        libc::madvise(start, size, libc::MADV_NOHUGEPAGE);
        let before = minor_faults();
        for page in 0..count {
            start.cast::<u8>().add(page * PAGE).write_volatile(1);
        }
        (start, before)
    };
    println!("{} {size} {}", start as usize, minor_faults() - before);
}

fn gone(file: &str) {
    let path = mapped(std::path::Path::new(file), b"/cold/gone", 0, true, false);
    access(path);
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn spin(ms: u64) {
    let end = Instant::now() + Duration::from_millis(ms);
    // The clock is read without a system call.
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("calls") => {
            calls(number(&args, 2), number(&args, 3));
            stay(&args, 4);
        }
        Some("errors") => {
            errors(number(&args, 2));
            stay(&args, 3);
        }
        Some("forks") => forks(number(&args, 2)),
        Some("signals") => signals(number(&args, 2)),
        Some("marks") => marks(number(&args, 2)),
        Some("datagrams") => datagrams(&args[2..]),
        Some("names") => names(number(&args, 2)),
        Some("keys") => keys(number(&args, 2), number(&args, 3)),
        Some("wait") => std::thread::sleep(Duration::from_millis(number(&args, 2))),
        Some("naps") => {
            naps(number(&args, 2), number(&args, 3));
            stay(&args, 4);
        }
        Some("spin") => spin(number(&args, 2)),
        Some("cold") => {
            cold(args.get(2).map_or("cold", String::as_str));
            stay(&args, 3);
        }
        Some("faults") => faults(number(&args, 2).fit::<usize>()),
        Some("gone") => gone(args.get(2).map_or("gone", String::as_str)),
        _ => {
            eprintln!(
                "usage: load calls|datagrams|errors|forks|signals|names|keys|wait|naps|spin|cold|gone ..."
            );
            std::process::exit(2);
        }
    }
}
