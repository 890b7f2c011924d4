//! Workloads that take the kernel's rarer paths, for guests that have no devices and few programs.
//!
//! `rare keys CODE...`: the keyboard's controller delivers these keys, each pressed and released. `rare confine`:
//! confines itself to few system calls, makes another one, and dies. `rare collapse COUNT`: COUNT times 2 MB of small
//! pages, each made a huge page; says how many the kernel made. `rare split COUNT`: the same, and then tells the kernel
//! that the first 4 KB of each are seldom used, for which it splits the page. `rare huge COUNT`: writes to COUNT huge
//! pages, and so does a child that has them from its parent; takes twice as many of `/proc/sys/vm/nr_hugepages`. `rare
//! submit COUNT`: submits COUNT asynchronous reads of an empty pipe, each of which waits within the system call until a
//! child writes. `rare cancel COUNT DEVICE`: COUNT times an asynchronous read of a block device whose context is
//! destroyed before the device answers. `rare timeouts POLL SELECT EPOLL FUTEX NANOSLEEP SIGNAL ITIMER`: as many calls
//! of each kind that wait 2 ms in vain, and as many expired timers; then it says `timed out` on standard error and
//! waits for ever. `rare reads COUNT MS`: COUNT reads of a pipe into which a child writes every MS milliseconds, then
//! it waits for ever. `rare full COUNT`: opens files until it has COUNT, which is its limit, and one more. `rare
//! terminal ROWS COLUMNS PROGRAM...`: runs a program in a terminal of that size, and copies what that shows. `rare nodes
//! COUNT`: COUNT pages on each of the nodes 0 and 1, then a huge page, a page without access and one without memory on
//! node 1; of one of each it writes 1000 bytes to `/dev/null`, and one more for each node that the kernel says, or fewer
//! if it says an error. Then a child writes to the first pages of both nodes, which it has from its parent. `rare remote
//! COUNT SECONDS`: reads COUNT pages of node 1 again and again. They may move; the processors' node should be another one.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use spile_cast::Cast;

fn checked(result: i64, what: &str) -> i64 {
    if result < 0 {
        eprintln!("rare: {what}: {}", io::Error::last_os_error());
        std::process::exit(1);
    }
    result
}

/// A system call with numbers and pointers as arguments; the memory of all pointers must be valid.
macro_rules! call {
    ($name:ident $(, $argument:expr)*) => {
        // SAFETY: each use passes numbers, and pointers to values that outlive the call.
        checked(unsafe { libc::syscall(libc::$name $(, $argument)*) }, stringify!($name))
    };
}

/// The controller of a PC's keyboard.
#[cfg(target_arch = "x86_64")]
mod keyboard {
    use std::arch::asm;
    use std::time::Duration;

    const DATA: u16 = 0x60;
    const STATUS: u16 = 0x64;
    /// Status: a byte from the device waits for the kernel; one for the device waits for the controller.
    const BUSY: u8 = 0b11;
    /// Command: the next byte appears as if the keyboard had sent it.
    const AS_KEYBOARD: u8 = 0xd2;
    /// Keys of the second half of the keyboard: their codes in Linux, and the second byte they send.
    const EXTENDED: [(u8, u8); 4] = [(103, 0x48), (105, 0x4b), (106, 0x4d), (108, 0x50)];

    fn write(port: u16, byte: u8) {
        // SAFETY: `press` got the permission for these ports, and they reach no memory.
        unsafe { asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack)) };
    }

    fn settle() {
        loop {
            let status: u8;
            // SAFETY: as in `write`; reading the status changes nothing.
            unsafe {
                asm!("in al, dx", in("dx") STATUS, out("al") status, options(nomem, nostack));
            };
            if status & BUSY == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(byte: u8) {
        settle();
        write(STATUS, AS_KEYBOARD);
        settle();
        write(DATA, byte);
        settle();
    }

    pub(super) fn press(codes: &[u8]) {
        // SAFETY: the call takes numbers only.
        let allowed = unsafe { libc::ioperm(DATA.into(), 5, 1) };
        super::checked(allowed.into(), "ioperm");
        for code in codes {
            let extended = EXTENDED.iter().find(|(linux, _)| linux == code);
            let byte = extended.map_or(*code, |(_, byte)| *byte);
            for up in [0, 0x80] {
                if extended.is_some() {
                    send(0xe0);
                }
                send(byte | up);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod keyboard {
    pub(super) fn press(_codes: &[u8]) {
        eprintln!("rare: only a PC has this controller");
        std::process::exit(1);
    }
}

fn confine() {
    call!(SYS_prctl, libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
    call!(SYS_getppid);
}

const HUGE: usize = 2 << 20;
const SMALL: usize = 4096;

/// New memory of the process's own; its address.
fn memory(length: usize, flags: i32) -> usize {
    // SAFETY: the kernel chooses the address.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        checked(-1, "mmap");
    }
    start as usize
}

/// Writes a byte into each page.
fn touch(start: usize, pages: usize, size: usize) {
    for page in 0..pages {
        // SAFETY: the callers pass memory of theirs, of that many pages.
        unsafe { std::ptr::write_volatile((start + page * size) as *mut u8, 1) };
    }
}

/// Makes huge pages of small ones; the address of the first.
fn collapse(count: usize) -> usize {
    // A part of HUGE is to spare.
    let length = (count + 1) * HUGE;
    let start = memory(length, 0);
    let first = start.next_multiple_of(HUGE);
    call!(SYS_madvise, start, length, libc::MADV_NOHUGEPAGE);
    touch(first, count * HUGE / SMALL, SMALL);
    call!(SYS_madvise, start, length, libc::MADV_HUGEPAGE);
    (0..count).for_each(|part| make_huge(first + part * HUGE));
    println!("{count} huge pages");
    first
}

/// Makes a huge page of the small ones from an address on.
fn make_huge(at: usize) {
    // The kernel says `EAGAIN` while some of them are on the way to its lists.
    for _ in 0..100 {
        // SAFETY: the call takes numbers only.
        let result = unsafe { libc::syscall(libc::SYS_madvise, at, HUGE, libc::MADV_COLLAPSE) };
        if result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
            checked(result, "madvise");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the kernel makes no huge page");
}

fn split(count: usize) {
    let first = collapse(count);
    for part in 0..count {
        call!(SYS_madvise, first + part * HUGE, SMALL, libc::MADV_COLD);
    }
}

fn huge(count: usize) {
    let start = memory(count * HUGE, libc::MAP_HUGETLB);
    touch(start, count, HUGE);
    in_child(|| touch(start, count, HUGE));
}

/// Does something in a child, and waits for it.
fn in_child(work: impl FnOnce()) {
    // SAFETY: this program has one thread, so its child can do everything.
    let child = unsafe { libc::fork() };
    if checked(child.into(), "fork") == 0 {
        work();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: the pointer is to a value that outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child got no memory");
}

/// New memory that shall be on a node.
fn memory_on(node: u64, length: usize) -> usize {
    let start = memory(length, 0);
    let nodes = 1_u64 << node;
    let bits = u64::BITS;
    call!(
        SYS_mbind,
        start,
        length,
        libc::MPOL_BIND,
        &raw const nodes,
        bits,
        0
    );
    start
}

fn nodes(count: usize) {
    let null = File::options().write(true).open("/dev/null");
    let null = null.expect("/dev/null");
    let location = |at: usize| {
        let mut node = i32::MIN;
        let none = std::ptr::null::<i32>();
        call!(SYS_move_pages, 0, 1, &raw const at, none, &raw mut node, 0);
        1000 + i64::from(node)
    };
    let tell = |at: usize, length: i64| call!(SYS_write, null.as_raw_fd(), at, length);
    let small = [0, 1].map(|node| memory_on(node, count * SMALL));
    for start in small {
        touch(start, count, SMALL);
        tell(start + 10, location(start + 10));
    }
    let large = memory_on(1, 2 * HUGE).next_multiple_of(HUGE);
    touch(large, HUGE / SMALL, SMALL);
    make_huge(large);
    let inside = large + HUGE / 2 + SMALL;
    tell(inside, location(inside));
    let hidden = memory_on(1, SMALL);
    touch(hidden, 1, SMALL);
    // Older kernels do not say it of a page without access.
    let length = location(hidden);
    call!(SYS_mprotect, hidden, SMALL, libc::PROT_NONE);
    tell(hidden, length);
    let absent = memory_on(1, SMALL);
    tell(absent, location(absent));
    in_child(|| small.iter().for_each(|&start| touch(start, count, SMALL)));
}

fn remote(count: usize, time: Duration) {
    let start = memory_on(1, count * SMALL);
    touch(start, count, SMALL);
    let none = std::ptr::null::<u64>();
    // The kernel moves no pages of memory that is bound to a node, and does not look who uses them.
    call!(
        SYS_mbind,
        start,
        count * SMALL,
        libc::MPOL_DEFAULT,
        none,
        0,
        0
    );
    let begin = std::time::Instant::now();
    while begin.elapsed() < time {
        for page in 0..count {
            // SAFETY: the mapping has that many pages.
            unsafe { std::ptr::read_volatile((start + page * SMALL) as *const u8) };
        }
    }
}

/// A request of `io_submit`, as `linux/aio_abi.h` has it.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_file: u32,
}

/// Submits a read to a new context; returns the context.
fn submit(file: &File, buffer: *mut u8, bytes: u64) -> u64 {
    let mut context = 0_u64;
    call!(SYS_io_setup, 1, &raw mut context);
    let mut request = Request {
        file: u32::try_from(file.as_raw_fd()).expect("open"),
        buffer: buffer as u64,
        bytes,
        ..Request::default()
    };
    let mut list = [&raw mut request];
    call!(SYS_io_submit, context, 1, list.as_mut_ptr());
    context
}

/// A child that writes a byte into a pipe every `pause`, `count` times; returns the other end.
fn trickle(count: u64, pause: Duration) -> File {
    let mut ends = [0; 2];
    // SAFETY: `ends` has space for two numbers, which are then nobody else's.
    let (out, mut into) = unsafe {
        checked(libc::pipe(ends.as_mut_ptr()).into(), "pipe");
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    // SAFETY: this program has one thread, so its child can do everything.
    if checked(unsafe { libc::fork() }.into(), "fork") == 0 {
        drop(out);
        for _ in 0..count {
            std::thread::sleep(pause);
            into.write_all(b"x").expect("the parent reads");
        }
        std::process::exit(0);
    }
    out
}

fn submit_reads(count: u64) {
    let file = trickle(count, Duration::from_millis(100));
    let mut byte = 0_u8;
    for _ in 0..count {
        let context = submit(&file, &raw mut byte, 1);
        call!(SYS_io_destroy, context);
    }
}

fn cancel(count: u64, device: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECT);
    let file = options.open(device);
    let file = file.unwrap_or_else(|e| panic!("{device}: {e}"));
    // Direct reads need aligned memory.
    let mut memory = vec![0_u8; 8192];
    let unaligned = memory.as_mut_ptr();
    let at = unaligned.wrapping_add(unaligned.align_offset(4096));
    for _ in 0..count {
        let context = submit(&file, at, 4096);
        call!(SYS_io_destroy, context);
    }
}

fn for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn times(count: u64, mut wait: impl FnMut() -> i64) {
    for _ in 0..count {
        wait();
    }
}

fn timeouts(counts: [u64; 7]) {
    const MS: i64 = 2;
    let none = std::ptr::null_mut::<u8>();
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: MS * 1_000_000,
    };
    let [poll, select, epoll, futex, nanosleep, signal, itimer] = counts;
    times(poll, || call!(SYS_poll, none, 0, MS));
    times(select, || {
        // The kernel writes the time that is left.
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: MS * 1000,
        };
        call!(SYS_select, 0, none, none, none, &raw mut time)
    });
    let set = call!(SYS_epoll_create1, 0);
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    times(epoll, || call!(SYS_epoll_wait, set, &raw mut event, 1, MS));
    let word = 0_u32;
    let fails = |error, result: i64| {
        let last = io::Error::last_os_error();
        assert!(result < 0 && last.raw_os_error() == Some(error), "{last}");
        result
    };
    times(futex, || {
        // SAFETY: all pointers are to values that outlive the call.
        let wait =
            unsafe { libc::syscall(libc::SYS_futex, &raw const word, 0, 0, &raw const time) };
        fails(libc::ETIMEDOUT, wait)
    });
    times(nanosleep, || call!(SYS_nanosleep, &raw const time, none));
    let user_signal = 1_u64 << (libc::SIGUSR1 - 1);
    times(signal, || {
        let set = &raw const user_signal;
        // SAFETY: all pointers are to values that outlive the call, and a set has eight bytes.
        let wait =
            unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, set, none, &raw const time, 8) };
        fails(libc::EAGAIN, wait)
    });
    // SAFETY: an ignored signal has no handler.
    unsafe { libc::signal(libc::SIGALRM, libc::SIG_IGN) };
    times(itimer, || {
        let mut timer = [0_i64, 0, 0, MS * 1000];
        call!(SYS_setitimer, libc::ITIMER_REAL, timer.as_ptr(), none);
        // Computes meanwhile, so that the timer interrupts this process.
        while timer[3] != 0 || timer[2] != 0 {
            call!(SYS_getitimer, libc::ITIMER_REAL, timer.as_mut_ptr());
        }
        0
    });
    eprintln!("timed out");
    for_ever();
}

fn reads(count: u64, pause: Duration) {
    let mut file = trickle(count, pause);
    for _ in 0..count {
        let mut byte = [0];
        file.read_exact(&mut byte).expect("the child writes");
    }
    for_ever();
}

fn full(count: u64) {
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: the pointer is to a value that outlives the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    checked(set.into(), "setrlimit");
    let mut files = Vec::new();
    let last = loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => break error.raw_os_error(),
        }
    };
    assert_eq!(last, Some(libc::EMFILE));
    // Wakes up while it has them all.
    std::thread::sleep(Duration::from_millis(100));
}

fn terminal(rows: u16, columns: u16, program: &[String]) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let mut main = 0;
    let none = std::ptr::null_mut();
    // SAFETY: the pointers are to values that outlive the call; this program has one thread.
    let child = unsafe { libc::forkpty(&raw mut main, none, none.cast(), &raw const size) };
    if checked(child.into(), "forkpty") == 0 {
        let words: Vec<CString> = (program.iter())
            .map(|word| CString::new(word.as_str()).expect("no NUL"))
            .collect();
        let mut words: Vec<_> = words.iter().map(|w| w.as_ptr()).collect();
        words.push(std::ptr::null());
        // SAFETY: the list of words ends with a null pointer, and they outlive the call.
        let result = unsafe { libc::execvp(words[0], words.as_ptr()) };
        checked(result.into(), &program[0]);
    }
    // SAFETY: `forkpty` opened it for us.
    let mut main = unsafe { File::from_raw_fd(main) };
    let mut chunk = [0; 4096];
    // Reading fails once no process has the terminal open.
    while let Ok(n @ 1..) = main.read(&mut chunk) {
        let mut out = io::stdout();
        let _ = out.write_all(&chunk[..n]).and_then(|()| out.flush());
    }
    let mut status = 0;
    // SAFETY: the pointer is to a value that outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    std::process::exit(libc::WEXITSTATUS(status));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().skip(1).filter_map(|a| a.parse().ok()).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match (&words[..], &numbers[..]) {
        (["keys", codes @ ..], numbers) if codes.len() == numbers.len() => {
            keyboard::press(&numbers.iter().map(|&n| n.fit::<u8>()).collect::<Vec<_>>());
        }
        (["confine"], _) => confine(),
        (["collapse", _], &[count]) => {
            collapse(count.fit::<usize>());
        }
        (["full", _], &[count]) => full(count),
        (["split", _], &[count]) => split(count.fit::<usize>()),
        (["huge", _], &[count]) => huge(count.fit::<usize>()),
        (["nodes", _], &[count]) => nodes(count.fit::<usize>()),
        (["remote", _, _], &[count, seconds]) => {
            remote(count.fit::<usize>(), Duration::from_secs(seconds));
        }
        (["submit", _], &[count]) => submit_reads(count),
        (["cancel", _, device], &[count]) => cancel(count, device),
        (["timeouts", ..], counts) if counts.len() == 7 => {
            timeouts(std::array::from_fn(|i| counts[i]));
        }
        (["reads", _, _], &[count, ms]) => reads(count, Duration::from_millis(ms)),
        (["terminal", _, _, _, ..], &[rows, columns, ..]) => {
            terminal(rows.fit::<u16>(), columns.fit::<u16>(), &args[3..]);
        }
        _ => {
            eprintln!("rare: see the head of its source for the arguments");
            std::process::exit(2);
        }
    }
}
