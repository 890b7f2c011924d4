"""Values of system calls' variables against what is passed: `calls.py SPILE values|texts`.

Arguments are passed with all 64 bits of their registers set to something. What a variable has to be
follows from the C type that the call declares (the manual's, `man 2 NAME`), by ctypes. Texts are
written out. No call here does anything: files and sockets are not open, processes do not exist.
Prints `ok`, or what differs.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

libc = ctypes.CDLL(None)
syscall = libc.syscall
syscall.restype = ctypes.c_long

TYPES = {
    "int": ctypes.c_int,
    "uint": ctypes.c_uint,
    "long": ctypes.c_long,
    # Numbers of the language are signed, and of 64 bits.
    "ulong": ctypes.c_long,
    "ptr": ctypes.c_long,
}

# Number, name, and type and name of each argument. `!` in front: a value that fails for sure,
# `.`: a null pointer.
CALLS = """
0 read int!fd ptr buf_uaddr ulong count
1 write int!fd ptr buf_uaddr ulong count
3 close int!fd
5 fstat int!filedes ptr buf_uaddr
8 lseek int!fildes long offset uint whence
16 ioctl int!fd int request ulong argp
17 pread int!fd ptr buf_uaddr ulong count long offset
18 pwrite int!fd ptr buf_uaddr ulong count long offset
19 readv int!fd ptr vector_uaddr int count
20 writev int!fd ptr vector_uaddr int count
32 dup int!oldfd
33 dup2 int!oldfd int newfd
40 sendfile int!out_fd int!in_fd ptr. offset_uaddr ulong count
42 connect int!sockfd ptr serv_addr_uaddr uint addrlen
43 accept int!sockfd ptr addr_uaddr ptr addrlen_uaddr
44 sendto int!s ptr buf_uaddr ulong len uint flags ptr to_uaddr uint tolen
45 recvfrom int!s ptr buf_uaddr ulong len uint flags ptr addr_uaddr ptr addrlen_uaddr
46 sendmsg int!s ptr msg_uaddr uint flags
47 recvmsg int!s ptr msg_uaddr uint flags
48 shutdown int!s int how
49 bind int!sockfd ptr my_addr_uaddr int addrlen
50 listen int!sockfd int backlog
51 getsockname int!s ptr name_uaddr ptr namelen_uaddr
52 getpeername int!s ptr name_uaddr ptr namelen_uaddr
54 setsockopt int!fd int level int optname ptr optval_uaddr uint optlen
55 getsockopt int!fd int level int optname ptr optval_uaddr ptr optlen_uaddr
62 kill int!pid int!sig
72 fcntl int!fd int cmd long arg
73 flock int!fd int operation
74 fsync int!fd
75 fdatasync int!fd
77 ftruncate int!fd long length
78 getdents int!fd ptr dirp_uaddr uint count
81 fchdir int!fd
91 fchmod int!fildes uint mode
93 fchown int!fd int owner int group
138 fstatfs int!fd ptr buf_uaddr
187 readahead int!fd long offset ulong count
202 futex ptr futex_uaddr int!op int val ptr utime_uaddr ptr uaddr2_uaddr int val3
217 getdents int!fd ptr dirp_uaddr uint count
221 fadvise64 int!fd long offset long len int advice
232 epoll_wait int!epfd ptr events_uaddr int maxevents int timeout
233 epoll_ctl int!epfd int op int fd ptr event_uaddr
234 tgkill int!tgid int!pid int!sig
255 inotify_rm_watch int!fd int wd
275 splice int!fd_in ptr off_in int!fd_out ptr off_out ulong len uint flags
276 tee int!fdin int!fdout ulong len uint flags
277 sync_file_range int!fd long offset long nbytes uint flags
278 vmsplice int!fd ptr iov ulong nr_segs uint flags
285 fallocate int!fd uint mode long offset long len
287 timerfd_gettime int!fd ptr value_uaddr
288 accept4 int!sockfd ptr addr_uaddr ptr addrlen_uaddr int flags
289 signalfd4 int!fd ptr. mask_uaddr ulong sigsetsize int flags
292 dup3 int!oldfd int newfd int flags
295 preadv int!fd ptr vector_uaddr int count
296 pwritev int!fd ptr vector_uaddr int count
299 recvmmsg int!s ptr mmsg_uaddr uint vlen uint flags ptr. timeout_uaddr
306 syncfs int!fd
307 sendmmsg int!s ptr mmsg_uaddr uint vlen uint flags
308 setns int!fd int nstype
326 copy_file_range int!fd_in ptr off_in int!fd_out ptr off_out ulong len uint flags
"""

# For `int!`: a descriptor or a process that there is not, whatever the upper half says.
BAD = 0xDEADBEEF7FFFFF63
# For all others: negative as an int, and as a long.
DIRTY = [0x9876543280000001, 0xFFFFFFFFFFFFFFFF, 0x80000000FFFFFFFE, 0x00000001FFFFFFFF, 7]


def calls():
    for line in CALLS.strip().splitlines():
        number, name, *rest = line.replace("!", " ! ").replace(".", " . ").split()
        args, kind = [], None
        for word in rest:
            if word in TYPES:
                kind, mark = word, ""
            elif word in "!.":
                mark = word
            else:
                args.append((kind, mark, word))
        yield int(number), name, args


def passed(args, turn):
    for i, (kind, mark, _) in enumerate(args):
        if mark == "!":
            yield BAD
        elif mark == ".":
            yield 0
        else:
            # Pointers that are not mapped.
            yield (0xDEAD000000000000 if kind == "ptr" else 0) | DIRTY[(turn + i) % len(DIRTY)]


def values_script():
    seen = set()
    for _, name, args in calls():
        if name in seen:
            continue
        seen.add(name)
        names = [n for _, _, n in args]
        text = " ".join(["%s"] + ["%d"] * len(names))
        yield f'probe syscall.{name} {{ if (pid() == target()) printf("{text}\\n", name, {", ".join(names)}) }}'
        # The arguments are there on return, too.
        text = " ".join(["%s.return"] + ["%d"] * (len(names) + 1))
        yield f'probe syscall.{name}.return {{ if (pid() == target()) printf("{text} %s\\n", name, {", ".join(names)}, retval, retstr) }}'


def values_work():
    import errno

    want = []
    for turn in range(len(DIRTY)):
        for number, name, args in calls():
            given = list(passed(args, turn))
            ctypes.set_errno(0)
            ret = libc_call(number, given)
            numbers = [str(TYPES[kind](value).value) for (kind, _, _), value in zip(args, given)]
            want.append(" ".join([name, *numbers]))
            error = f"-{-ret} ({errno.errorcode[-ret]})" if ret < 0 else str(ret)
            want.append(" ".join([f"{name}.return", *numbers, str(ret), error]))
    return want


def libc_call(number, given):
    errno_syscall = ctypes.CDLL(None, use_errno=True).syscall
    errno_syscall.restype = ctypes.c_long
    ret = errno_syscall(ctypes.c_long(number), *[ctypes.c_ulong(v) for v in given])
    return ret if ret >= 0 else -ctypes.get_errno()


# ---- texts

TEXTS = """
probe syscall.* { if (pid() == target() && name in wanted) printf("%s(%s)\\n", name, argstr) }
probe syscall.umask.return, syscall.brk.return, syscall.openat.return { if (pid() == target()) printf("%s = %s %d\\n", name, retstr, retval) }
probe syscall.openat { if (pid() == target()) printf("%s %s %s %s\\n", filename, filename_unquoted, flags_str, dfd_str) }
probe syscall.kill { if (pid() == target()) printf("sig %d %s\\n", sig, sig_name) }
probe syscall.nanosleep { if (pid() == target()) printf("req %s\\n", req_str) }
probe syscall.execve { if (pid() == target()) printf("args %s env %s\\n", args, env_str) }
probe syscall.fcntl { if (pid() == target()) printf("cmd %s\\n", cmd_str) }
probe syscall.pipe, syscall.eventfd, syscall.epoll_create, syscall.inotify_init, syscall.signalfd { if (pid() == target()) printf("point %s\\n", name) }
probe begin { WANTED }
global wanted

"""
NAMES = (
    "write bind connect socket open setitimer umask ioctl execve inotify_add_watch futex nanosleep "
    "kill mkdirat fcntl openat lseek madvise shmget prctl unlinkat"
).split()


def texts_script():
    yield TEXTS.strip().replace("WANTED", " ".join(f'wanted["{n}"] = 1;' for n in NAMES))


def buffer(data, size=None):
    data = ctypes.create_string_buffer(data, size or len(data))
    KEPT.append(data)
    return ctypes.addressof(data)


KEPT = []


def texts_work():
    want = []

    def call(number, *args, text, also=()):
        libc_call(number, [a if isinstance(a, int) else buffer(a + b"\0") for a in args])
        want.append(text)
        want.extend(also)

    fd = BAD
    n = ctypes.c_int(BAD).value
    # A buffer is quoted, with octal numbers for what cannot be printed, in 50 bytes.
    data = buffer(b'hi "x"\t\n\0\x01' + b"z" * 80)
    call(1, fd, data, 6, text=f'write({n}, "hi \\"x\\"", 6)')
    call(1, fd, data, 10, text=f'write({n}, "hi \\"x\\"\\t\\n\\000\\001", 10)')
    whole = '"hi \\"x\\"\\t\\n\\000\\001' + "z" * 80
    call(1, fd, data, 90, text=f'write({n}, {whole[:46]}"..., 90)')
    call(1, fd, 0, 6, text=f"write({n}, 0x0, 6)")
    call(1, fd, 1 << 62, 6, text=f"write({n}, 0x4000000000000000, 6)")
    # Times.
    pair = (ctypes.c_long * 2)(0, 5)
    call(35, ctypes.addressof(pair), 0, text="nanosleep([0.000000005], 0x0)", also=["req [0.000000005]"])
    pair = (ctypes.c_long * 2)(-3, 1234567890)
    call(35, ctypes.addressof(pair), 0, text="nanosleep([-3.1234567890], 0x0)")
    call(35, 0, 0, text="nanosleep(NULL, 0x0)", also=["req NULL"])
    call(35, 4096, 0, text="nanosleep(0x1000, 0x0)")
    four = (ctypes.c_long * 4)(1, 5, 0, 7)
    call(38, 0xFF, ctypes.addressof(four), 0, text="setitimer(255, [1.000005,0.000007], 0x0)")
    # Addresses of sockets, as the socket module packs them.
    def inet(host, port):
        return bytes([2, 0]) + port.to_bytes(2, "big") + socket.inet_aton(host) + bytes(8)

    def inet6(host, port):
        return bytes([10, 0]) + port.to_bytes(2, "big") + bytes(4) + socket.inet_pton(socket.AF_INET6, host) + bytes(4)

    full = lambda host: ":".join(f"{b:04x}" for b in memoryview(socket.inet_pton(socket.AF_INET6, host)).cast("B").tobytes() and [int.from_bytes(socket.inet_pton(socket.AF_INET6, host)[i : i + 2], "big") for i in range(0, 16, 2)])  # fmt: skip
    for host, port in (("127.0.0.1", 80), ("255.0.10.9", 65535)):
        call(49, fd, buffer(inet(host, port)), 16, text=f"bind({n}, {{AF_INET, {host}, {port}}}, 16)")
        call(42, fd, buffer(inet(host, port)), 16, text=f"connect({n}, {{AF_INET, {host}, {port}}}, 16)")
    for host in ("2001:db8::1", "::"):
        call(42, fd, buffer(inet6(host, 443)), 28, text=f"connect({n}, {{AF_INET6, {full(host)}, 443}}, 28)")
    call(42, fd, buffer(b"\1\0/tmp/so\0", 110), 110, text=f'connect({n}, {{AF_UNIX, "/tmp/so"}}, 110)')
    call(42, fd, buffer(b"\1\0/tmp/socket"), 9, text=f'connect({n}, {{AF_UNIX, "/tmp/so"}}, 9)')
    call(42, fd, buffer(b"\1\0\0abc"), 6, text=f'connect({n}, {{AF_UNIX, "\\000abc"}}, 6)')
    call(42, fd, 0, 16, text=f"connect({n}, NULL, 16)")
    # Flags and choices count as many bits as the kernel takes.
    call(41, 0xDEAD0000FFFFFFFF, 1, 0, text="socket(-1, SOCK_STREAM, IPPROTO_IP)")
    call(2, b"/nothing/there", 0xDEAD000000000000, 0, text='open("/nothing/there", O_RDONLY)')
    call(2, b"/nothing/there", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640, text='open("/nothing/there", O_WRONLY|O_CREAT|O_APPEND, 0640)')
    call(
        257, 0xDEAD0000FFFFFF9C, b"/nothing/x", os.O_RDWR | os.O_CLOEXEC, 0,
        text='openat(AT_FDCWD, "/nothing/x", O_RDWR|O_CLOEXEC)',
        also=['"/nothing/x" /nothing/x O_RDWR|O_CLOEXEC AT_FDCWD', "openat = -2 (ENOENT) -2"],
    )  # fmt: skip
    call(257, fd, b"x", 0, 0, text=f'openat({n}, "x", O_RDONLY)', also=[f'"x" x O_RDONLY {n}', "openat = -9 (EBADF) -9"])
    call(258, fd, b"x", 0o1777, text=f'mkdirat({n}, "x", 01777)')
    call(263, fd, b"x", 0x200, text=f'unlinkat({n}, "x", AT_REMOVEDIR)')
    call(254, fd, b"f", 0x80000002, text=f'inotify_add_watch({n}, "f", IN_MODIFY|IN_ONESHOT)')
    call(8, fd, -1 & (1 << 64) - 1, 2, text=f"lseek({n}, -1, SEEK_END)")
    call(16, fd, 0x80045430, 0, text=f"ioctl({n}, {ctypes.c_int(0x80045430).value}, 0x0)")
    call(72, fd, 1, 0, text=f"fcntl({n}, F_GETFD, 0)", also=["cmd F_GETFD"])
    call(28, 1, 4096, 4, text="madvise(0x1, 4096, MADV_DONTNEED)")
    call(29, 0xFFFFFFFF, 0, 0xFFFFFFFF, text=r"shmget\(-1, 0, .*")
    call(157, 0xFFFFFFFF, 0, 0, 0, 0, text=r"prctl\(-1, .*")
    call(202, 0, 99, -1 & (1 << 64) - 1, 0, 0, 0x80000000, text="futex(0x0, 0x63, -1, 0x0, 0x0, -2147483648)")
    # Signals.
    for sig in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD):
        call(62, fd, int(sig), text=f"kill({n}, {sig.name})", also=[f"sig {int(sig)} {sig.name}"])
    # Results in the base that fits.
    old = os.umask(0o27)
    call(95, old, text=f"umask(0{old:o})" if old else "umask(0)", also=["umask = 027 23"])
    here = libc_call(12, [0])
    want.append(f"brk = {here} {here}")
    # Lists of strings.
    args = (ctypes.c_char_p * 3)(b"a", b'b "c"', None)
    env = (ctypes.c_char_p * 2)(b"X=1", None)
    both = ctypes.addressof(args), ctypes.addressof(env)
    line = '["a", "b \\"c\\""]', '["X=1"]'
    call(59, b"/nothing/y", *both, text=f'execve("/nothing/y", {line[0]}, {line[1]})', also=[f"args {line[0]} env {line[1]}"])
    call(59, b"/nothing/y", 1, 0, text='execve("/nothing/y", [0x1], [])')
    # Calls that are hits of another's point, under their own names.
    for number, args, name in (
        (293, (0, 0), "pipe2"), (290, (0, 0xFFFFFFFF), "eventfd2"), (291, (0xFFFFFFFF,), "epoll_create1"),
        (294, (0xFFFFFFFF,), "inotify_init1"), (289, (BAD, 0, 8, 0), "signalfd4"), (213, (0,), "epoll_create"),
        (22, (0,), "pipe"), (282, (BAD, 0, 8), "signalfd"),
    ):  # fmt: skip
        libc_call(number, args)
        want.append(f"point {name}")
    return want


def run(spile, name):
    script = "\n".join(globals()[f"{name}_script"]())
    command = f"{sys.executable} {os.path.abspath(__file__)} work {name}"
    args = [spile, "-W", "-D", "MAXSKIPPED=1000000", "-e", script, "-o", "saw", "-c", command]
    done = subprocess.run(args, text=True, capture_output=True, timeout=300)
    if done.returncode != 0:
        return [f"status {done.returncode}", done.stdout, done.stderr]
    import re

    text = set(open("saw").read().splitlines())
    want = json.load(open("did"))
    missing = [w for w in want if w not in text and not any(re.fullmatch(w, t) for t in text if "\\" in w and "*" in w)]
    near = {w.split("(")[0].split(" ")[0] for w in missing}
    wrong = [f"missing: {w}" for w in missing]
    return wrong + sorted(t for t in text if re.split(r"[( ]", t)[0] in near)[:80] if wrong else []


def main():
    if sys.argv[1] == "work":
        with open("did", "w") as f:
            json.dump(globals()[f"{sys.argv[2]}_work"](), f)
        return 0
    wrong = run(sys.argv[1], sys.argv[2])
    print("\n".join(wrong) if wrong else "ok")
    return 1 if wrong else 0


sys.exit(main())
