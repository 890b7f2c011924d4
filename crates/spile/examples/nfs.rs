//! An NFS server of this machine with its client over the loopback device, for guests that have nothing else:
//! no daemons, no programs of a distribution.
//!
//! `nfs modules` loads the modules. `nfs start`: loads them, exports a file system in memory, `/export`, and starts
//! one thread of the server, if none runs. `nfs mount 3|4 DIR`: mounts it with transfers of 4096 bytes, if it is not
//! mounted. `nfs work DIR`: one operation of each kind on
//! files there, as user 1234 of group 4321, then a line `OPERATION COUNT` for each operation that the client sent, as
//! `/proc/self/mountstats` counts them. `nfs pages DIR`: operations on pages of files. `nfs unmount DIR` ends a mount,
//! `nfs stop` the server.
//!
//! The server asks programs which clients may use what; the answers are written before it asks. It registers at
//! port 111, and mounting by version 3 asks a program for the first file handle: threads give these answers.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

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

fn attach(source: &str, dir: &str, kind: &str, options: &str) {
    fs::create_dir_all(dir).unwrap_or_else(|e| panic!("{dir}: {e}"));
    let (source, kind, options) = (text(source), text(kind), text(options));
    let place = text(dir);
    // SAFETY: all texts outlive the call.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            place.as_ptr(),
            kind.as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    };
    checked(done.into(), dir);
}

fn unmount(dir: &str) {
    let place = text(dir);
    // SAFETY: the text outlives the call.
    checked(unsafe { libc::umount(place.as_ptr()) }.into(), dir);
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The results of a call of a program: yes for all registrations, the first file handle for a mount.
fn results(program: u32, procedure: u32, handle: &[u8]) -> Vec<u8> {
    let one = 1_u32.to_be_bytes();
    match (program, procedure) {
        (p, 1 | 2) if p == RPCBIND.1 => one.to_vec(),
        (p, 3) if p == RPCBIND.1 => 0_u32.to_be_bytes().to_vec(),
        (p, 1) if p == MOUNTD.1 => {
            let length = u32::try_from(handle.len()).expect("short");
            let mut out = [0_u32.to_be_bytes(), length.to_be_bytes()].concat();
            out.extend(handle);
            out.resize(out.len().next_multiple_of(4), 0);
            // One kind of authentication, of Unix.
            out.extend([one, one].concat());
            out
        }
        _ => Vec::new(),
    }
}

/// Answers the calls of a connection, each one a record of one part.
fn answer(mut peer: TcpStream, handle: &[u8]) -> io::Result<()> {
    loop {
        let mut header = [0; 4];
        peer.read_exact(&mut header)?;
        let mut call = vec![0; (u32::from_be_bytes(header) & 0x7fff_ffff) as usize];
        peer.read_exact(&mut call)?;
        let fields = (number(&call, 0), number(&call, 12), number(&call, 20));
        let (Some(id), Some(program), Some(procedure)) = fields else {
            return Ok(());
        };
        // A reply, accepted, no verifier, success.
        let mut reply: Vec<u8> = [id, 1, 0, 0, 0, 0]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        reply.extend(results(program, procedure, handle));
        let length = u32::try_from(reply.len()).expect("short") | 0x8000_0000;
        peer.write_all(&length.to_be_bytes())?;
        peer.write_all(&reply)?;
    }
}

/// Answers at a port until the process ends.
fn listen(port: u16, handle: &[u8]) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let handle = handle.to_vec();
    std::thread::spawn(move || {
        for peer in listener.incoming().flatten() {
            let handle = handle.clone();
            std::thread::spawn(move || answer(peer, &handle));
        }
    });
}

fn start() {
    let threads = "/proc/fs/nfsd/threads";
    if fs::read_to_string(threads).is_ok_and(|n| n.trim() != "0") {
        return;
    }
    load_modules();
    attach("tmpfs", EXPORT, "tmpfs", "");
    attach("nfsd", "/proc/fs/nfsd", "nfsd", "");
    listen(RPCBIND.0, &[]);
    let cache = |name: &str, line: &str| write(&format!("/proc/net/rpc/{name}/channel"), line);
    cache("auth.unix.ip", &format!("nfsd 127.0.0.1 {NEVER} *"));
    let users = "65534 65534";
    cache(
        "nfsd.export",
        &format!("* {EXPORT} {NEVER} {EXPORT_FLAGS} {users} 0"),
    );
    cache("nfsd.fh", &format!("* 1 \\x00000000 {NEVER} {EXPORT}"));
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
    listen(RPCBIND.0, &[]);
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
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    if mounts.contains(&format!(" {dir} nfs")) {
        return;
    }
    let common = "proto=tcp,addr=127.0.0.1,port=2049,rsize=4096,wsize=4096,lookupcache=none";
    if version == "3" {
        listen(MOUNTD.0, &root_handle());
        let port = MOUNTD.0;
        let options = format!(
            "vers=3,{common},nolock,noacl,mountaddr=127.0.0.1,mountproto=tcp,mountport={port},mountvers=3"
        );
        attach(&format!("127.0.0.1:{EXPORT}"), dir, "nfs", &options);
    } else {
        accepts_new_clients();
        let options = format!("vers=4.2,{common},clientaddr=127.0.0.1");
        attach("127.0.0.1:/", dir, "nfs", &options);
    }
}

/// How often the client of a mounted file system sent each operation.
fn operations(dir: &str, mut counts: &File) -> BTreeMap<String, u64> {
    let mut all = String::new();
    counts.rewind().expect("mountstats");
    counts.read_to_string(&mut all).expect("mountstats");
    let mut found = BTreeMap::new();
    let mut within = false;
    for line in all.lines() {
        if line.starts_with("device ") {
            within = line.contains(&format!(" mounted on {dir} "));
        }
        let mut words = line.split_ascii_whitespace();
        let (name, count) = (words.next().unwrap_or_default(), words.next());
        let name = name.trim_end_matches(':');
        let count = count.and_then(|n| n.parse().ok());
        if let (true, Some(count)) = (within, count)
            && name.len() > 3
            && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        {
            found.insert(name.to_owned(), count);
        }
    }
    found
}

/// Takes a lock of a whole file, maps its first page, and reads that.
fn lock_and_map(file: &File) {
    // SAFETY: all fields of the structure are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as _;
    // SAFETY: the structure outlives the call.
    checked(
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) }.into(),
        "a lock",
    );
    // SAFETY: the kernel chooses the place, and the page is unmapped below.
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

fn work(dir: &str) -> io::Result<()> {
    // Only root opens it.
    let counts = File::open("/proc/self/mountstats")?;
    let before = operations(dir, &counts);
    // SAFETY: the calls take numbers only.
    unsafe {
        checked(libc::setgid(GROUP).into(), "setgid");
        checked(libc::setuid(USER).into(), "setuid");
    }
    let place = |name: &str| format!("{dir}/{name}");
    let mut file = File::create(place("alpha.txt"))?;
    file.write_all(&[b'x'; 10_000])?;
    file.sync_all()?;
    // SAFETY: the call takes numbers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    drop(file);
    let mut file = File::open(place("alpha.txt"))?;
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
    assert!(fs::metadata(place("missing")).is_err());
    fs::rename(place("alpha.txt"), place("beta.txt"))?;
    fs::create_dir(place("gamma"))?;
    fs::remove_dir(place("gamma"))?;
    let names = fs::read_dir(dir)?.count();
    assert_eq!(names, 1);
    fs::remove_file(place("beta.txt"))?;
    for (name, count) in operations(dir, &counts) {
        let sent = count - before.get(&name).copied().unwrap_or_default();
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
    // SAFETY: the kernel chooses the place, and the page is unmapped below.
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
    let place = text(&other);
    // SAFETY: the text outlives the call.
    checked(
        unsafe { libc::mknod(place.as_ptr(), libc::S_IFREG | 0o640, 0) }.into(),
        &other,
    );
    fs::remove_file(other)?;
    fs::remove_file(path)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["modules"] => load_modules(),
        ["start"] => start(),
        ["stop"] => stop(),
        ["mount", version @ ("3" | "4"), dir] => mount(version, dir),
        ["unmount", dir] => unmount(dir),
        ["pages", dir] => pages(dir).unwrap_or_else(|e| panic!("{dir}: {e}")),
        ["work", dir] => work(dir).unwrap_or_else(|e| panic!("{dir}: {e}")),
        _ => {
            eprintln!(
                "usage: nfs modules | start | mount 3|4 DIR | work DIR | pages DIR | unmount DIR | stop"
            );
            std::process::exit(2);
        }
    }
}
