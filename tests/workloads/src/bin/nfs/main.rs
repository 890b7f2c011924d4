//! An NFS server of this machine with its client over the loopback device, for guests that have nothing else:
//! no daemons, no programs of a distribution.
//!
//! `nfs modules` loads the modules. `nfs start`: loads them, exports a file system in memory, `/export`, and starts
//! one thread of the server, if none runs. `nfs mount 3|acl|eager|4 DIR`: mounts it with transfers of 4096 bytes, if it is
//! not mounted; `acl` is version 3 with lists of access, and `eager` version 3 that writes at once and does not ask the
//! server to keep what it wrote. `nfs work DIR`: one operation of each kind on
//! files there, as user 1234 of group 4321, then a line `OPERATION COUNT` for each operation that the client sent, as
//! `/proc/self/mountstats` counts them. `nfs pages DIR`: operations on pages of files. `nfs inner DIR`: exports a file
//! system within the exported one for a while, and opens it through a mount of version 4. `nfs later DIR`: reads a
//! file whose lease a local process has, so that the server says to come later, and says how often it did.
//! `nfs reclaim DIR`: takes the memory of written pages back, and says how many are gone. `nfs copy DIR`: lets the
//! server of version 4.2 copy a part of a file; the server calls the client when it has.
//! `nfs totals DIR`: a line `calls NUMBER transmissions NUMBER sent BYTES received BYTES` of all operations so far.
//! `nfs short NUMBER`: a request of this number that ends too early. `nfs work2 DIR`: mounts a server of version 2 that
//! is a part of this program, works with a file there, and ends the mount. `nfs unmount DIR` ends a mount, `nfs stop` the
//! server.
//!
//! The server asks programs which clients may use what; the answers are written before it asks. It registers at
//! port 111, and mounting by version 3 asks a program for the first file handle: threads give these answers.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod version2;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spile_cast::Cast;

/// In the order of their dependences; a kernel may lack some.
const MODULES: [&str; 13] = [
    "sunrpc",
    "grace",
    "lockd",
    "nfs_acl",
    "auth_rpcgss",
    "nfsd",
    "netfs",
    "fscache",
    "dns_resolver",
    "nfs",
    "nfsv2",
    "nfsv3",
    "nfsv4",
];

/// The exported file system.
const EXPORT: &str = "/export";
/// Flags of the export: has a number (0), no check of subtrees, any port of clients.
const EXPORT_FLAGS: u32 = 0x2000 | 0x400 | 2;
/// Far in the future, in seconds.
const NEVER: u32 = i32::MAX as u32;
/// Who works.
const USER: u32 = 1234;
const GROUP: u32 = 4321;
const RPCBIND: (u16, u32) = (111, 100_000);
const MOUNTD: (u16, u32) = (20048, 100_005);

fn text(path: &str) -> CString {
    CString::new(path).expect("no NUL")
}

fn checked(result: i64, what: &str) {
    if result < 0 {
        panic!("{what}: {}", io::Error::last_os_error());
    }
}

fn write(path: &str, line: &str) {
    let file = OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|e| panic!("{path}: {line}: {e}"));
}

fn load_modules() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let folder = Path::new("/usr/lib/modules").join(release.trim());
    for name in MODULES {
        let Ok(file) = File::open(folder.join(format!("{name}.ko"))) else {
            continue;
        };
        let options = text("");
        // SAFETY: the descriptor is open and the text outlives the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                file.as_raw_fd(),
                options.as_ptr(),
                0,
            )
        };
        if io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
            checked(done, name);
        }
    }
}

/// Whether a file system of this kind is mounted there.
fn mounted(dir: &str, kind: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    mounts.contains(&format!(" {dir} {kind}"))
}

fn attach(source: &str, dir: &str, kind: &str, options: &str) {
    fs::create_dir_all(dir).unwrap_or_else(|e| panic!("{dir}: {e}"));
    let (source, kind, options) = (text(source), text(kind), text(options));
    let location = text(dir);
    // SAFETY: all texts outlive the call.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            location.as_ptr(),
            kind.as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    };
    checked(done.into(), dir);
}

fn unmount(dir: &str) {
    let location = text(dir);
    // SAFETY: the text outlives the call.
    checked(unsafe { libc::umount(location.as_ptr()) }.into(), dir);
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// What answers calls: program, procedure and arguments to results.
type Answer = dyn Fn(u32, u32, &[u8]) -> Vec<u8> + Send + Sync;

/// Yes to all registrations.
fn rpcbind(program: u32, procedure: u32, _: &[u8]) -> Vec<u8> {
    match (program, procedure) {
        (p, 1 | 2) if p == RPCBIND.1 => 1_u32.to_be_bytes().to_vec(),
        (p, 3) if p == RPCBIND.1 => 0_u32.to_be_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// The result of a mount by version 3 of its protocol: the first file handle.
fn mount_result(handle: &[u8]) -> Vec<u8> {
    let length = u32::try_from(handle.len()).expect("short");
    let mut out = [0_u32.to_be_bytes(), length.to_be_bytes()].concat();
    out.extend(handle);
    out.resize(out.len().next_multiple_of(4), 0);
    // One kind of authentication, of Unix.
    out.extend([1_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat());
    out
}

/// Gives this result to mounts, and none to other calls.
fn mountd(result: Vec<u8>) -> impl Fn(u32, u32, &[u8]) -> Vec<u8> {
    move |program, procedure, _| match (program, procedure) {
        (p, 1) if p == MOUNTD.1 => result.clone(),
        _ => Vec::new(),
    }
}

/// The arguments of a call behind its credentials and verifier.
fn arguments(call: &[u8]) -> Option<&[u8]> {
    let mut at = 24;
    for _ in 0..2 {
        at += 8 + number(call, at + 4)?.next_multiple_of(4) as usize;
    }
    call.get(at..)
}

/// Answers the calls of a connection, each one a record of one part.
fn answer(mut peer: TcpStream, answers: &Answer) -> io::Result<()> {
    loop {
        let mut header = [0; 4];
        peer.read_exact(&mut header)?;
        let mut call = vec![0; (u32::from_be_bytes(header) & 0x7fff_ffff) as usize];
        peer.read_exact(&mut call)?;
        let fields = (number(&call, 0), number(&call, 12), number(&call, 20));
        let (Some(id), Some(program), Some(procedure)) = fields else {
            return Ok(());
        };
        let Some(arguments) = arguments(&call) else {
            return Ok(());
        };
        // A reply, accepted, no verifier, success.
        let mut reply: Vec<u8> = [id, 1, 0, 0, 0, 0]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        reply.extend(answers(program, procedure, arguments));
        let length = u32::try_from(reply.len()).expect("short") | 0x8000_0000;
        peer.write_all(&length.to_be_bytes())?;
        peer.write_all(&reply)?;
    }
}

/// Answers at a port until the process ends.
fn listen(port: u16, answers: impl Fn(u32, u32, &[u8]) -> Vec<u8> + Send + Sync + 'static) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for peer in listener.incoming().flatten() {
            let answers = answers.clone();
            std::thread::spawn(move || answer(peer, &*answers));
        }
    });
}

/// Answers what the server asks about clients and file systems.
fn cache(name: &str, line: &str) {
    write(&format!("/proc/net/rpc/{name}/channel"), line);
}

/// Exports a file system under a number below 256.
fn export(dir: &str, number: u8) {
    let users = "65534 65534";
    cache(
        "nfsd.export",
        &format!("* {dir} {NEVER} {EXPORT_FLAGS} {users} {number}"),
    );
    cache(
        "nfsd.fh",
        &format!("* 1 \\x{number:02x}000000 {NEVER} {dir}"),
    );
}

fn start() {
    let threads = "/proc/fs/nfsd/threads";
    if fs::read_to_string(threads).is_ok_and(|n| n.trim() != "0") {
        return;
    }
    load_modules();
    // Both stay when a server stops. The kernel refuses to mount its interface a second time at the same location, and
    // a second file system in memory would hide the files of the first one.
    for (kind, dir) in [("tmpfs", EXPORT), ("nfsd", "/proc/fs/nfsd")] {
        if !mounted(dir, kind) {
            attach(kind, dir, kind, "");
        }
    }
    listen(RPCBIND.0, rpcbind);
    cache("auth.unix.ip", &format!("nfsd 127.0.0.1 {NEVER} *"));
    export(EXPORT, 0);
    // Clients of an earlier server get the shortest time to come back.
    write("/proc/fs/nfsd/nfsv4leasetime", "10");
    write("/proc/fs/nfsd/nfsv4gracetime", "10");
    write("/proc/fs/nfsd/portlist", "tcp 2049");
    write(threads, "1");
}

/// Waits until the server accepts new clients of version 4.
fn accepts_new_clients() {
    let path = "/proc/fs/nfsd/v4_end_grace";
    let limit = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(path).expect(path).starts_with('Y') {
        assert!(
            Instant::now() < limit,
            "{path}: the server waits for clients"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn stop() {
    listen(RPCBIND.0, rpcbind);
    write("/proc/fs/nfsd/threads", "0");
}

/// The file handle of the export.
fn root_handle() -> Vec<u8> {
    let path = "/proc/fs/nfsd/filehandle";
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect(path);
    file.write_all(format!("* {EXPORT} 64\n").as_bytes())
        .expect(path);
    let mut hex = String::new();
    file.read_to_string(&mut hex).expect(path);
    let hex = hex.trim().trim_start_matches("\\x");
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn mount(version: &str, dir: &str) {
    if mounted(dir, "nfs") {
        return;
    }
    let common = "proto=tcp,addr=127.0.0.1,port=2049,rsize=4096,wsize=4096,lookupcache=none";
    if version != "4" {
        let extra = match version {
            "acl" => "acl",
            "eager" => "noacl,write=eager",
            _ => "noacl",
        };
        listen(MOUNTD.0, mountd(mount_result(&root_handle())));
        let port = MOUNTD.0;
        let options = format!(
            "vers=3,{common},nolock,{extra},mountaddr=127.0.0.1,mountproto=tcp,mountport={port},mountvers=3"
        );
        attach(&format!("127.0.0.1:{EXPORT}"), dir, "nfs", &options);
    } else {
        accepts_new_clients();
        let options = format!("vers=4.2,{common},clientaddr=127.0.0.1");
        attach("127.0.0.1:/", dir, "nfs", &options);
    }
}

/// The numbers of a mounted file system's lines in `/proc/self/mountstats`, by the name before the colon.
fn statistics(dir: &str, mut counts: &File) -> BTreeMap<String, Vec<u64>> {
    let mut all = String::new();
    counts.rewind().expect("mountstats");
    counts.read_to_string(&mut all).expect("mountstats");
    let lines = all.lines();
    let here = lines.skip_while(|l| !l.contains(&format!(" mounted on {dir} ")));
    let here = here.skip(1).take_while(|l| !l.starts_with("device "));
    let pair = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let numbers = rest.split_ascii_whitespace().map_while(|n| n.parse().ok());
        Some((name.trim().to_owned(), numbers.collect()))
    };
    here.filter_map(pair).collect()
}

/// The numbers of each operation of a mounted file system, its calls first.
fn operations(dir: &str, counts: &File) -> BTreeMap<String, Vec<u64>> {
    let mut found = statistics(dir, counts);
    found.retain(|name, numbers| {
        let word = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        word && name.len() > 3 && !numbers.is_empty()
    });
    found
}

/// Takes a lock of a whole file, maps its first page, and reads that.
fn lock_and_map(file: &File) {
    // SAFETY: all fields of the structure are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK.fit();
    // SAFETY: the structure outlives the call.
    checked(
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) }.into(),
        "a lock",
    );
    // SAFETY: the kernel chooses the location, and the page is unmapped below.
    let page = unsafe {
        let fd = file.as_raw_fd();
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: the page is mapped, and the file has more bytes.
    assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, b'x');
    // SAFETY: it was mapped above, and nothing refers to it.
    unsafe { libc::munmap(page, 4096) };
}

/// Makes a file of 10,000 bytes that the server has and the page cache has not.
fn write_uncached(path: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[b'x'; 10_000])?;
    file.sync_all()?;
    // SAFETY: the call takes numbers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

fn work(dir: &str) -> io::Result<()> {
    // Only root opens it.
    let counts = File::open("/proc/self/mountstats")?;
    let before = operations(dir, &counts);
    // SAFETY: the calls take numbers only.
    unsafe {
        checked(libc::setgid(GROUP).into(), "setgid");
        checked(libc::setuid(USER).into(), "setuid");
    }
    let location = |name: &str| format!("{dir}/{name}");
    write_uncached(&location("alpha.txt"))?;
    let mut file = File::open(location("alpha.txt"))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    assert_eq!(bytes.len(), 10_000);
    // SAFETY: the call takes numbers only.
    checked(
        unsafe { libc::lseek(file.as_raw_fd(), 100, libc::SEEK_SET) },
        "lseek",
    );
    lock_and_map(&file);
    drop(file);
    assert!(fs::metadata(location("missing")).is_err());
    fs::rename(location("alpha.txt"), location("beta.txt"))?;
    fs::create_dir(location("gamma"))?;
    fs::remove_dir(location("gamma"))?;
    let names = fs::read_dir(dir)?.count();
    assert_eq!(names, 1);
    fs::remove_file(location("beta.txt"))?;
    for (name, numbers) in operations(dir, &counts) {
        let sent = numbers[0] - before.get(&name).map_or(0, |n| n[0]);
        if sent > 0 {
            println!("{name} {sent}");
        }
    }
    Ok(())
}

/// Gives pages of a file to the server without a commit, drops them, changes a byte of a page that
/// is not in memory, and one through a mapping, and makes a file without opening it.
fn pages(dir: &str) -> io::Result<()> {
    let (path, other) = (format!("{dir}/delta.txt"), format!("{dir}/epsilon.txt"));
    let mut file = File::create(&path)?;
    file.write_all(&[b'x'; 10_000])?;
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // The kernel asks for a page only while nothing else uses it, so several pages.
    for page in 0..50 {
        file.write_at(&[b'x'; 4096], page * 4096)?;
        // SAFETY: the calls take numbers only.
        unsafe {
            checked(
                libc::sync_file_range(file.as_raw_fd(), 0, 0, flags).into(),
                "sync_file_range",
            );
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        }
    }
    file.sync_all()?;
    // SAFETY: the call takes numbers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    drop(file);
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    file.write_at(b"y", 5000)?;
    // SAFETY: the kernel chooses the location, and the page is unmapped below.
    let page = unsafe {
        let (fd, rights) = (file.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
        libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(page, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: the page is mapped, and the file has more bytes; it was mapped above, and nothing refers to it.
    unsafe {
        page.cast::<u8>().write_volatile(b'z');
        libc::munmap(page, 4096);
    }
    file.sync_all()?;
    drop(file);
    let location = text(&other);
    // SAFETY: the text outlives the call.
    checked(
        unsafe { libc::mknod(location.as_ptr(), libc::S_IFREG | 0o640, 0) }.into(),
        &other,
    );
    fs::remove_file(other)?;
    fs::remove_file(path)
}

/// Reads the pages of a mapped file, takes their memory back, and returns how many are still there.
///
/// # Safety
/// `location` is the mapping of that many pages of a file that has all their bytes.
unsafe fn resident(location: *mut u8, pages: usize) -> usize {
    let mut there = vec![0; pages];
    // SAFETY: the caller says so, and `there` has a byte for each page.
    unsafe {
        for page in 0..pages {
            assert_eq!(location.add(page * 4096).read_volatile(), b'x');
        }
        checked(
            libc::madvise(location.cast(), pages * 4096, libc::MADV_PAGEOUT).into(),
            "madvise",
        );
        checked(
            libc::mincore(location.cast(), pages * 4096, there.as_mut_ptr()).into(),
            "mincore",
        );
    }
    there.iter().filter(|page| *page & 1 == 1).count()
}

/// Writes pages that the server need not have on its disk yet, and takes their memory back, for which the client has to
/// let them go; and again when the server has them.
fn reclaim(dir: &str) -> io::Result<()> {
    const PAGES: usize = 64;
    const SIZE: usize = PAGES * 4096;
    let path = format!("{dir}/zeta.txt");
    let mut options = OpenOptions::new();
    let mut file = (options.read(true).write(true).create_new(true)).open(&path)?;
    let fd = file.as_raw_fd();
    // A mapping that begins later could make the client look at the server's file again.
    // SAFETY: the kernel chooses the location, which is unmapped below.
    let location = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), SIZE, rights, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(location, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // One by one: a large write makes folios of several pages.
    for _ in 0..PAGES {
        file.write_all(&[b'x'; 4096])?;
    }
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only.
    checked(
        unsafe { libc::sync_file_range(fd, 0, 0, flags) }.into(),
        "sync_file_range",
    );
    // SAFETY: the mapping has these pages, and the file all their bytes.
    let kept = unsafe { resident(location.cast(), PAGES) };
    file.sync_all()?;
    // SAFETY: as above; nothing refers to the mapping later.
    let left = unsafe {
        let left = resident(location.cast(), PAGES);
        libc::munmap(location, SIZE);
        left
    };
    let about = file.metadata()?;
    let device = about.dev();
    let number = (libc::major(device) << 20) | libc::minor(device);
    let gone = PAGES - left;
    println!(
        "kept {kept} reclaimed {gone} ino {} dev {number}",
        about.ino()
    );
    drop(file);
    fs::remove_file(path)
}

/// Lets the server copy 100,000 bytes of a file to byte 5,000 of another.
fn copy(dir: &str) -> io::Result<()> {
    let (from, to) = (format!("{dir}/eta.txt"), format!("{dir}/theta.txt"));
    fs::write(&from, [b'x'; 200_000])?;
    let (source, copy) = (File::open(&from)?, File::create(&to)?);
    let (mut first, mut location) = (1000, 5000);
    // SAFETY: both numbers outlive the call, and both descriptors are open.
    let copied = unsafe {
        let (source, copy) = (source.as_raw_fd(), copy.as_raw_fd());
        libc::copy_file_range(source, &mut first, copy, &mut location, 100_000, 0)
    };
    checked(copied as i64, "copy_file_range");
    println!("copied {copied}");
    drop((source, copy));
    assert_eq!(fs::metadata(&to)?.len(), 105_000);
    fs::remove_file(from)?;
    fs::remove_file(to)
}

/// Exports a file system within the exported one, opens it through a mount, and takes it back.
fn inner(dir: &str) -> io::Result<()> {
    let (location, there) = (format!("{EXPORT}/inner"), format!("{dir}/inner"));
    attach("tmpfs", &location, "tmpfs", "");
    export(&location, 1);
    assert_eq!(fs::read_dir(&there)?.count(), 0);
    assert!(mounted(&there, "nfs4"), "{there}: not a mount of its own");
    unmount(&there);
    for cache in ["nfsd.export", "nfsd.fh"] {
        write(&format!("/proc/net/rpc/{cache}/flush"), "1");
    }
    unmount(&location);
    fs::remove_dir(&location)?;
    export(EXPORT, 0);
    Ok(())
}

/// Reads a file through a mount while a lease keeps others away from it, until the server asks for the lease.
fn later(dir: &str) -> io::Result<()> {
    /// Calls that the server answered with "later", among the counters of events in `mountstats`.
    const DELAYS: usize = 24;
    let counts = File::open("/proc/self/mountstats")?;
    let delays = || statistics(dir, &counts)["events"][DELAYS];
    let before = delays();
    let (path, there) = (format!("{EXPORT}/lease.txt"), format!("{dir}/lease.txt"));
    fs::write(&path, "lease")?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    // SAFETY: the set and the number outlive the calls, and the descriptor is open.
    let asked = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut signals, libc::SIGIO);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        let leased = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK);
        checked(leased.into(), "a lease");
        let reader = std::thread::spawn(move || fs::read_to_string(there));
        let mut signal = 0;
        libc::sigwait(&signals, &mut signal);
        let free = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        checked(free.into(), "no lease");
        reader
    };
    assert_eq!(asked.join().expect("a reader")?, "lease");
    println!("delays {}", delays() - before);
    fs::remove_file(path)
}

/// Sums of all operations of a mounted file system.
fn totals(dir: &str) -> io::Result<()> {
    let counts = File::open("/proc/self/mountstats")?;
    let all = operations(dir, &counts);
    let sum = |column: usize| all.values().map(|n| n[column]).sum::<u64>();
    println!(
        "calls {} transmissions {} sent {} received {}",
        sum(0),
        sum(1),
        sum(3),
        sum(4)
    );
    Ok(())
}

/// One operation of each kind of version 2, with a server of its own, which ends with the mount.
fn work2(dir: &str) -> io::Result<()> {
    const PORT: u16 = 2050;
    const PROGRAM: u32 = 100_003;
    let directory = Mutex::new(version2::Directory::new());
    listen(PORT, move |program, procedure, arguments| {
        let mut directory = directory.lock().expect("no panic");
        let results = match program {
            PROGRAM => directory.call(procedure, arguments),
            _ => None,
        };
        results.unwrap_or_default()
    });
    listen(MOUNTD.0, mountd(version2::mounted()));
    let options = format!(
        "vers=2,proto=tcp,addr=127.0.0.1,port={PORT},rsize=4096,wsize=4096,lookupcache=none,nolock,\
         mountaddr=127.0.0.1,mountproto=tcp,mountport={},mountvers=1",
        MOUNTD.0
    );
    attach("127.0.0.1:/", dir, "nfs", &options);
    let location = |name: &str| format!("{dir}/{name}");
    write_uncached(&location("alpha.txt"))?;
    assert_eq!(fs::read(location("alpha.txt"))?, [b'x'; 10_000]);
    assert!(fs::metadata(location("missing")).is_err());
    fs::rename(location("alpha.txt"), location("beta.txt"))?;
    fs::remove_file(location("beta.txt"))?;
    unmount(dir);
    Ok(())
}

/// Sends a request without program, version and procedure; the server ends the connection.
fn short(number: &str) -> io::Result<()> {
    let id: u32 = number.parse().expect("a number");
    let mut peer = TcpStream::connect(("127.0.0.1", 2049))?;
    for word in [0x8000_0000 | 12, id, 0, 2] {
        peer.write_all(&u32::to_be_bytes(word))?;
    }
    assert_eq!(peer.read(&mut [0; 4])?, 0, "no reply");
    Ok(())
}

fn usage() -> ! {
    eprintln!(
        "usage: nfs modules | start | mount 3|acl|eager|4 DIR | work DIR | pages DIR | reclaim DIR | copy DIR | \
         inner DIR | later DIR | totals DIR | short NUMBER | work2 DIR | unmount DIR | stop"
    );
    std::process::exit(2)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["modules"] => load_modules(),
        ["start"] => start(),
        ["stop"] => stop(),
        ["mount", version @ ("3" | "acl" | "eager" | "4"), dir] => mount(version, dir),
        ["unmount", dir] => unmount(dir),
        [what, at] => {
            let done = match what {
                "pages" => pages(at),
                "reclaim" => reclaim(at),
                "copy" => copy(at),
                "work" => work(at),
                "inner" => inner(at),
                "later" => later(at),
                "totals" => totals(at),
                "work2" => work2(at),
                "short" => short(at),
                _ => usage(),
            };
            done.unwrap_or_else(|e| panic!("{what} {at}: {e}"));
        }
        _ => usage(),
    }
}
