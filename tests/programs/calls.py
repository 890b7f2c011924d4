"""Compares the variables of system calls with the arguments: `calls.py SPILE values|texts|more|every|short|names`.

All 64 bits of each argument's register are set. ctypes computes the expected value of a variable from the
C type that the manual declares (`man 2 NAME`). Expected texts are literals. No call has an effect: its files
and sockets are not open, its processes do not exist. Prints the lines or names that it compared and their number, or
the differences.
"""

import ctypes
import errno
import json
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None)
syscall = libc.syscall
syscall.restype = ctypes.c_long

# Python has the other name of the number.
errno.errorcode[errno.EOPNOTSUPP] = "EOPNOTSUPP"

TYPES = {
    "int": ctypes.c_int,
    "uint": ctypes.c_uint,
    "long": ctypes.c_long,
    # Numbers of the script language are signed, with 64 bits.
    "ulong": ctypes.c_long,
    "ptr": ctypes.c_long,
}

# Number and name of the call, then type and name of each argument. `!` between them stands for a value with
# which the call certainly fails, `.` for a null pointer.
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

# For `int!`: no descriptor and no process has the number in the lower half. The kernel ignores the upper half.
BAD = 0xDEADBEEF7FFFFF63
# For all others: some are negative as an int, some as a long.
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
            # Unmapped pointers.
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
        # The arguments are also available at the return.
        text = " ".join(["%s.return"] + ["%d"] * (len(names) + 1))
        yield f'probe syscall.{name}.return {{ if (pid() == target()) printf("{text} %s\\n", name, {", ".join(names)}, retval, retstr) }}'


def values_work():
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
    "kill shutdown msync sendmsg clone mkdirat fcntl openat lseek madvise shmget prctl unlinkat mprotect access dup3 "
    "signalfd signalfd4 epoll_create1 clock_nanosleep sched_setscheduler ioprio_set quotactl mknod keyctl msgctl unshare rt_sigaction getsockopt "
    "fchownat mmap"
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
    # Buffers: in quotes, with octal escapes for unprintable bytes, in at most 50 bytes.
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
    call(38, 0xFF, ctypes.addressof(four), 0, text="setitimer(0xff, [1.000005,0.000007], 0x0)")
    # Socket addresses, packed by the socket module.
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
    # For flags and choices, only those bits count that the kernel reads.
    call(41, 0xDEAD0000FFFFFFFF, 1, 0, text="socket(0xffffffff, SOCK_STREAM, 0)")
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
    call(72, fd, 1, 0, text=f"fcntl({n}, F_GETFD, 0x0)", also=["cmd F_GETFD"])
    call(28, 1, 4096, 4, text="madvise(0x1, 4096, MADV_DONTNEED)")
    call(29, 0xFFFFFFFF, 0, 0xFFFFFFFF, text=r"shmget\(-1, 0, .*")
    call(157, 0xFFFFFFFF, 0, 0, 0, 0, text=r"prctl\(0xffffffff, .*")
    call(202, 0, 99, -1 & (1 << 64) - 1, 0, 0, 0x80000000, text="futex(0x0, 0x63, -1)")
    # What SystemTap shows of the arguments depends on one or two of them; unknown bits are a number of their own.
    for number, args, text in (
        (157, (33, 0, 2, 3), "prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR)"),
        (157, (33, 1, 9, 3), "prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 0x9)"),
        (157, (33, 7, 9, 3), "prctl(PR_MCE_KILL, 0x7, 0x9)"),
        (157, (22, 9, 16), "prctl(PR_SET_SECCOMP, 0x9, 0x10)"),
        (10, (1, 4096, 0), "mprotect(0x1, 4096, PROT_NONE)"),
        (10, (1, 4096, 0x3000000), "mprotect(0x1, 4096, PROT_GROWSDOWN|PROT_GROWSUP)"),
        (10, (1, 4096, 0x30), "mprotect(0x1, 4096, 0x30)"),
        (21, (b"/nothing", os.R_OK | 0x30), 'access("/nothing", R_OK|0x30)'),
        (21, (b"/nothing", os.F_OK), 'access("/nothing", F_OK)'),
        (292, (fd, 0, os.O_CLOEXEC | os.O_EXCL), f"dup3({n}, 0, O_EXCL|O_CLOEXEC)"),
        (292, (fd, 0, 0x1000), f"dup3({n}, 0, O_SYNC)"),
        (289, (fd, 16, 8, os.O_NONBLOCK), f"signalfd4({n}, 0x10, 8, SFD_NONBLOCK)"),
        (289, (fd, 16, 8, 0), f"signalfd({n}, 0x10, 8)"),
        (291, (2,), "epoll_create1(0x2)"),
        (230, (0, 3, 0, 0), "clock_nanosleep(CLOCK_REALTIME, 0x3, NULL, 0x0)"),
        (144, (-1, os.SCHED_RESET_ON_FORK | os.SCHED_RR, 0), "sched_setscheduler(-1, SCHED_RESET_ON_FORK|SCHED_RR, 0x0)"),
        (144, (-1, -1, 0), "sched_setscheduler(-1, 0xffffffff, 0x0)"),
        (251, (9, 0, 3 << 13 | 5), "ioprio_set(9, 0, IOPRIO_CLASS_IDLE|5)"),
        (179, (0xFFFFFFFF, 0, 0, 0), "quotactl(0xffffff|0xff, 0x0, 0, 0x0)"),
        (179, (0x80000102, 16, 0, 0), "quotactl(Q_SYNC|PRJQUOTA, 0x10, 0, 0x0)"),
        (133, (b"/nothing/x", 0xFFFFFFFF, 0), 'mknod("/nothing/x", 037777777777, 0)'),
        (2, (b"/nothing/x", os.O_TMPFILE | os.O_RDWR, 0o600), 'open("/nothing/x", O_RDWR|O_DIRECTORY|0x400000)'),
        (133, (b"/nothing/x", 0o100000, 0), 'mknod("/nothing/x", S_IFREG|00, 0)'),
        (133, (b"/nothing/x", 0o014755, 0), 'mknod("/nothing/x", S_IFIFO|04755, 0)'),
        (133, (b"/nothing/x", 0o040755, 0), 'mknod("/nothing/x", 040755, 0)'),
        (250, (18, 1, 2, 3, -4), "keyctl(KEYCTL_SESSION_TO_PARENT, 1, 2, 3, -4)"),
        (71, (-1, 0x100, 0), "msgctl(-1, IPC_64|IPC_RMID, 0x0)"),
        (71, (-1, 0x1FF, 0), "msgctl(-1, IPC_64|0xff, 0x0)"),
        (202, (2, 128, 3), "futex(0x2, FUTEX_WAIT_PRIVATE, 3)"),
        (272, (0x80000001,), "unshare(CLONE_IO|SIGHUP)"),
        # SystemTap extends the sign of some arguments.
        (2, (b"/nothing", 0x80000000), 'open("/nothing", O_RDONLY|0xffffffff80000000)'),
        (55, (fd, -1, -2, 0, 0), f"getsockopt({n}, 0x{-1 % (1 << 64):x}, 0x{-2 % (1 << 64):x}, 0x0, 0x0)"),
        (260, (fd, b"", 0, 0, -1 << 16), f'fchownat({n}, "", 0, 0, 0x{(-1 << 16) % (1 << 64):x})'),
        (263, (fd, b"", 0x80000200), f'unlinkat({n}, "", AT_REMOVEDIR|0x80000000)'),
        (13, (9, 0, 0, 8), "rt_sigaction(SIGKILL, {NULL}, 0x0, 8)"),
        (13, (9, 4096, 0, 8), "rt_sigaction(SIGKILL, {0x1000}, 0x0, 8)"),
        (13, (9, buffer(struct.pack("4Q", 1, 0, 0, 0)), 0, 8), "rt_sigaction(SIGKILL, {SIG_IGN}, 0x0, 8)"),
    ):  # fmt: skip
        call(number, *args, text=text)
    # Signals.
    for sig in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD):
        call(62, fd, int(sig), text=f"kill({n}, {sig.name})", also=[f"sig {int(sig)} {sig.name}"])
    # A signal without a name, no signal, and a signal with two names.
    call(62, fd, 40, text=f"kill({n}, 0x28)", also=["sig 40 0x28"])
    call(62, fd, 0, text=f"kill({n}, SIG_0)", also=["sig 0 SIG_0"])
    call(62, fd, 29, text=f"kill({n}, SIGIO/SIGPOLL)", also=["sig 29 SIGIO/SIGPOLL"])
    # Values without a name, in the library's base for them; no flags; the signal of a child.
    call(48, fd, 77, text=f"shutdown({n}, 0x4d)")
    call(41, 1, 1, 77, text="socket(PF_LOCAL, SOCK_STREAM, 77)")
    call(26, fd, 0, 4, text="msync(0xdeadbeef7fffff63, 0, MS_SYNC)")
    call(46, fd, 0, 0, text=f"sendmsg({n}, 0x0, 0x0)")
    call(46, fd, 0, 1 | 1 << 31, text=f"sendmsg({n}, 0x0, MSG_OOB|MSG_CMSG_COMPAT)")
    # The upper six bits are the logarithm of a size. Nothing is mapped, as the length is 0.
    for bits, shown in ((12, "4KB"), (22, "4MB"), (31, "2GB"), (34, "16GB")):
        text = f"mmap(0x0, 0, PROT_READ, MAP_HUGE_{shown}|MAP_PRIVATE|MAP_ANONYMOUS|MAP_HUGETLB, -1, 0)"
        call(9, 0, 0, 1, 0x40022 | bits << 26, -1, 0, text=text)
    # CLONE_THREAD needs CLONE_VM, so this call fails.
    call(56, 0x10000 | 17, 0, 0, 0, 0, text="clone(CLONE_THREAD|SIGCHLD, 0x0, 0x0, 0x0)")
    # Results in the base that suits them.
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
    # Calls that share the probe point of another call but have their own names.
    for number, args, name in (
        (293, (0, 0), "pipe2"), (290, (0, 0xFFFFFFFF), "eventfd2"), (291, (0xFFFFFFFF,), "epoll_create1"),
        (294, (0xFFFFFFFF,), "inotify_init1"), (289, (BAD, 0, 8, os.O_CLOEXEC), "signalfd4"), (213, (0,), "epoll_create"),
        (22, (0,), "pipe"), (282, (BAD, 0, 8), "signalfd"),
    ):  # fmt: skip
        libc_call(number, args)
        want.append(f"point {name}")
    return want


# ---- texts and variables that need memory or an effect

MORE = """
probe syscall.connect { if (pid() == target()) printf("%s|%s|%s|%s|%s|%s|%s\\n", name, argstr, uaddr_af, uaddr_ip, uaddr_ip_port, uaddr_ipv6_flowinfo, uaddr_ipv6_scope_id) }
probe syscall.bind {
  at = my_addr_uaddr
  if (pid() == target()) printf("%s|%s|%s|%s|%s|%s|%s\\n", name, argstr, _struct_sockaddr_u_sa_family(at, addrlen), _struct_sockaddr_u_ip_addr(at, addrlen), _struct_sockaddr_u_tcp_port(at, addrlen), _struct_sockaddr_u_ipv6_flowinfo(at, addrlen), _struct_sockaddr_u_ipv6_scope_id(at, addrlen))
}
probe syscall.utime { if (pid() == target()) printf("times %d %d %d %d\\n", _struct_utimbuf_actime(buf_uaddr), _struct_utimbuf_modtime(buf_uaddr), _struct_compat_utimbuf_actime(buf_uaddr), _struct_compat_utimbuf_modtime(buf_uaddr)) }
probe syscall.pipe.return { if (pid() == target()) printf("pair %d %d %d\\n", _fildes_index_u(fildes_uaddr, 0), _fildes_index_u(fildes_uaddr, 1), _fildes_index_u(fildes_uaddr, 2)) }
probe syscall.ptrace.return { if (pid() == target()) printf("told %d %#x %#x\\n", request, _ptrace_return_geteventmsg_data(request, data), _ptrace_return_arch_prctl_addr(request, addr, data)) }
probe syscall.futex, syscall.mq_open, syscall.getrandom, syscall.utime { if (pid() == target()) printf("%s(%s)\\n", name, argstr) }
probe syscall.getrandom.return { if (pid() == target() && retval < 0) printf("%s\\n", buf_unquoted) }
probe syscall.pipe.return { if (pid() == target()) printf("%s %d %d\\n", name, pipe0, pipe1) }
probe syscall.ptrace.return { if (pid() == target()) printf("%s %d %#x %#x\\n", name, request, geteventmsg_data, arch_prctl_addr) }
"""


def more_script():
    yield MORE.strip()


def addresses():
    """Addresses of sockets as bytes, what `argstr` shows, and family, IP address, port, flow and scope as texts."""
    one = struct.pack("!4s", socket.inet_aton("10.20.30.40"))
    yield struct.pack("=H2s4s8x", 2, (65535).to_bytes(2, "big"), one), "{AF_INET, 10.20.30.40, 65535}", ["AF_INET", "10.20.30.40", "65535", "", ""]
    six, text = socket.inet_pton(socket.AF_INET6, "fe80::1:ff"), "fe80:0000:0000:0000:0000:0000:0001:00ff"
    packed = struct.pack("=H2si16sI", 10, (443).to_bytes(2, "big"), -7, six, 4000000000)
    yield packed, f"{{AF_INET6, {text}, 443}}", ["AF_INET6", text, "443", "-7", "4000000000"]
    yield b"\1\0/tmp/so\0", '{AF_UNIX, "/tmp/so"}', ["AF_UNIX", "", "", "", ""]
    yield struct.pack("=HHiI", 16, 0, -9, 0xABC), "{AF_NETLINK, pid=-9, groups=00000abc}", ["AF_NETLINK", "", "", "", ""]
    device = struct.pack("=HHiHBB8s", 17, 0x300, 4, 1, 2, 6, bytes(range(1, 9)))
    yield device, "{AF_PACKET, proto=768, ind=4, hatype=1, pkttype=2, halen=6, addr=0x807060504030201}", ["AF_PACKET", "", "", "", ""]
    # Known families with a wrong length, an unknown one, and less than a family.
    for data in (struct.pack("=H6x", 2), struct.pack("=H26x", 2), struct.pack("=H14x", 10), struct.pack("=H14x", 77), b"\1\0a"):
        shown = f"{{unknown sockaddr with sa={int.from_bytes(data[:2], 'little')}, salen={len(data)}}}"
        yield data, shown, [shown, "", "", "", ""]
    yield b"\2", "{unknown sockaddr with salen=1}", ["{unknown sockaddr with salen=1}", "", "", "", ""]


def more_work():
    want = []
    n = ctypes.c_int(BAD).value
    for data, shown, variables in addresses():
        for number, name in ((42, "connect"), (49, "bind")):
            libc_call(number, [BAD, buffer(data), len(data)])
            want.append("|".join([name, f"{n}, {shown}, {len(data)}", *variables]))
    for address, shown in ((0, "NULL"), (1 << 62, "{...}")):
        libc_call(42, [BAD, address, 16])
        want.append("|".join(["connect", f"{n}, {shown}, 16", shown, "", "", "", ""]))
    # FUTEX_OP(op, oparg, cmp, cmparg) of linux/futex.h. An address that is no multiple of 4 is refused.
    for op, oparg, cmp, cmparg, shown in (
        (1, 5, 4, -2, "{FUTEX_OP_ADD, 5, FUTEX_OP_CMP_GT, -2}"),
        (4 | 8, -2048, 5, 2047, "{FUTEX_OP_OPARG_SHIFT|FUTEX_OP_XOR, -2048, FUTEX_OP_CMP_GE, 2047}"),
        (0, 0, 0, 0, "{FUTEX_OP_SET, 0, FUTEX_OP_CMP_EQ, 0}"),
    ):
        coded = (op & 15) << 28 | (cmp & 15) << 24 | (oparg & 0xFFF) << 12 | cmparg & 0xFFF
        libc_call(202, [1, 5, 1, 2, 1, coded])
        want.append(f"futex(0x1, FUTEX_WAKE_OP, 1, 2, 0x1, {shown})")
    name = buffer(b"/no/queue\0")
    libc_call(240, [name, os.O_RDWR, 0o640, 4096])
    want.append('mq_open("/no/queue", O_RDWR)')
    libc_call(240, [name, os.O_RDWR | os.O_CREAT, 0o640, 4096])
    want.append('mq_open("/no/queue", O_RDWR|O_CREAT, 0640, 0x1000)')
    room = ctypes.create_string_buffer(b"before", 16)
    libc_call(318, [ctypes.addressof(room), 3, 0x40])
    want += ['getrandom("before", 3, 0x40)', "before"]
    path = buffer(b"/nothing/there\0")
    for first, second in ((951782399, 951782400), (0, 2147483647), (-2147483648, 1709164800), (4102444800, -1)):
        libc_call(132, [path, buffer(struct.pack("2q", first, second))])
        dates = [time.asctime(time.gmtime(t)) if -(1 << 31) <= t < 1 << 31 else str(t) for t in (first, second)]
        want.append(f'utime("/nothing/there", [{dates[0]}, {dates[1]}])')
        short = struct.unpack("2i", struct.pack("q", first))
        want.append(f"times {first} {second} {short[0]} {short[1]}")
    libc_call(132, [path, 0])
    want += ['utime("/nothing/there", NULL)', "times 0 0 0 0"]
    pair = (ctypes.c_int * 2)(-1, -1)
    for number, name in ((22, "pipe"), (293, "pipe2")):
        assert libc_call(number, [ctypes.addressof(pair), 0]) == 0
        want += [f"{name} {pair[0]} {pair[1]}", f"pair {pair[0]} {pair[1]} 0"]
    return want + traced()


def traced():
    """A child stops at its end, and the parent asks for its status (`geteventmsg`) and its segment's base."""
    want, cell = [], ctypes.c_long(0)
    at = ctypes.addressof(cell)

    def ask(request, *more):
        assert libc_call(101, [request, child, *more]) >= 0, request

    child = os.fork()
    if child == 0:
        libc.ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(42)
    os.waitpid(child, 0)
    ask(0x4200, 0, 0x40)  # PTRACE_SETOPTIONS, PTRACE_O_TRACEEXIT
    want += ["ptrace 16896 0x0 0x0", "told 16896 0x0 0x0"]
    ask(30, at, 0x1003)  # PTRACE_ARCH_PRCTL, ARCH_GET_FS
    want += [f"ptrace 30 0x0 {cell.value:#x}", f"told 30 0x0 {cell.value:#x}"]
    ask(7, 0, 0)
    os.waitpid(child, 0)
    ask(0x4201, 0, at)  # PTRACE_GETEVENTMSG
    assert cell.value == 42 << 8
    want += [f"ptrace 16897 {cell.value:#x} 0x0", f"told 16897 {cell.value:#x} 0x0"]
    ask(7, 0, 0)
    os.waitpid(child, 0)
    return want


# ---- every call of tests/syscalls.tsv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PATH = "/nothing/there"
STRINGS = ["a", 'b "c"']
BUFFER = b'hi "x"\n\0'
BETWEEN = " ~ "
# Numeric kinds: the C type and the format.
NUMBERS = {
    "int": (ctypes.c_int, "{}"), "uint": (ctypes.c_uint, "{}"),
    "long": (ctypes.c_long, "{}"), "ulong": (ctypes.c_ulong, "{}"),
    "hex": (ctypes.c_ulong, "{:#x}"), "hex32": (ctypes.c_uint, "{:#x}"), "ptr": (ctypes.c_ulong, "{:#x}"),
    "mode": (ctypes.c_uint, "0{:o}"), "long-": (ctypes.c_long, ""), "hex-": (ctypes.c_ulong, ""), "int-": (ctypes.c_int, ""),
    "int16": (ctypes.c_short, "{}"), "blocks": (ctypes.c_ulong, "{}"), "result": (ctypes.c_ulong, "[{:#x}]"), "pair": (ctypes.c_longlong, "{}"),
    "pairu": (ctypes.c_ulonglong, "{}"), "pairx": (ctypes.c_ulonglong, "{:#x}"),
}  # fmt: skip
# The types of words in 32-bit programs.
SHORT = {ctypes.c_long: ctypes.c_int, ctypes.c_ulong: ctypes.c_uint}
CONSTANTS = {"i": ctypes.c_int, "u": ctypes.c_uint, "l": ctypes.c_ulong}
# Invalid times, with which every call fails.
TIMES = {
    "ts": ((-3, 1234567890), "[-3.1234567890]"), "tv": ((-3, 1234567890), "[-3.1234567890]"),
    "its": ((1, 5, -3, 1234567890), "[1.000005,-3.1234567890]"),
    "itv": ((1, 5, -3, 1234567890), "[1.000005,-3.1234567890]"),
}  # fmt: skip
# Structures of 64-bit programs, packed by the struct module in the order of `man 2`, and what SystemTap writes.
STRUCTURES = {
    # The current limit is above the highest one.
    "rlimit": (struct.pack("2Q", 9, 4), "[9,4]"),
    "sigset": (struct.pack("Q", 1 << 9 | 1 << 13), "[SIGUSR1|SIGALRM]"),
    "action": (struct.pack("4Q", 0x1000, 0x10000004, 0x2000, 1 << 13), "0x1000, SA_RESTART|SA_SIGINFO, 0x2000, [SIGALRM]"),
    "user": (struct.pack("3iI2I", 10, 0, 0, 0, 7, 8), "{si_signo=SIGUSR1, si_code=SI_USER, si_pid=7, si_uid=8}"),
    "kernel": (struct.pack("3i", 14, 0, 0x80) + bytes(20), "{si_signo=SIGALRM, si_code=SI_KERNEL}"),
    # No such flag.
    "stack": (struct.pack("QiQ", 0x1000, 0x40, 4096), "{ss_sp=0x1000, ss_flags=0x40, ss_size=4096}"),
    "times": (struct.pack("4q", 1000000000, 1234, 2000000000, 5678), "[1000000000.001234][2000000000.005678]"),
    "now": (struct.pack("4q", 0, 0x3FFFFFFF, 5, 123456789), "[UTIME_NOW][5.123456789]"),
    "attr": (struct.pack("IIQiI3Q", 48, 1, 2, -3, 4, 5, 6, 7), "{size=48, sched_policy=1, sched_flags=2, sched_nice=-3, sched_priority=4, sched_runtime=5, sched_deadline=6, sched_period=7}"),
    "descriptors": (struct.pack("2i", 7, -8), "[7, -8]"),
    "tms": (struct.pack("4q", 1, 2, 3, 4), "{tms_utime=1, tms_stime=2, tms_cutime=3, tms_cstime=4}"),
    "sysinfo": (struct.pack("q9QH", 1, *range(2, 11), 11) + bytes(30), "{uptime=1, loads=[2, 3, 4], totalram=5, freeram=6, sharedram=7, bufferram=8, totalswap=9, freeswap=10, procs=11}"),
    # Two dates, and one that has more than 32 bits.
    "dates": (struct.pack("2q", 951782399, 1 << 40), f"[{time.asctime(time.gmtime(951782399))}, {1 << 40}]"),
    # `struct user_desc` of asm/ldt.h, whose last word has bit fields from the lowest bit on: 1, 2, 1, 1, 1, 1, 1.
    "segment": (struct.pack("4I", 77, 4096, 0xFFFFF, 1 | 2 << 1 | 1 << 4 | 1 << 6), "{entry_number=77, base_addr=4096, limit=1048575, seg_32bit=1, contents=2, read_exec_only=0, limit_in_pages=1, seg_not_present=0, useable=1, lm=0}"),
    # It changes nothing.
    "timex": (struct.pack("I4qi6q", 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 9) + bytes(112), "{0x0, constant=6, esterror=4, freq=2, maxerror=3, offset=1, precision=7, status=5, tick=9, tolerance=8}"),
}  # fmt: skip

# Those that differ in 32-bit programs.
WIDE = STRUCTURES["timex"]
SHORT_STRUCTURES = {
    "rlimit": (struct.pack("2I", 9, 4), "[9,4]"),
    "limit64": (struct.pack("2Q", 9, 1 << 40), f"[9,{1 << 40}]"),
    "action": (struct.pack("=3IQ", 0x1000, 0x10000004, 0x2000, 1 << 13), "0x1000, SA_RESTART|SA_SIGINFO, 0x2000, [SIGALRM]"),
    "old_action": (struct.pack("4I", 0x1000, 1 << 13, 0x10000004, 0x2000), STRUCTURES["action"][1]),
    "user": (struct.pack("4iI", 10, 0, 0, 7, 8), STRUCTURES["user"][1]),
    "stack": (struct.pack("IiI", 0x1000, 0x40, 4096), STRUCTURES["stack"][1]),
    "times": (struct.pack("4i", 1000000000, 1234, -5, 5678), "[1000000000.001234][-5.005678]"),
    "now": (struct.pack("4i", 0, 0x3FFFFFFF, -5, 123456789), "[UTIME_NOW][-5.123456789]"),
    "now64": STRUCTURES["now"],
    "tms": (struct.pack("4i", 1, 2, 3, -4), "{tms_utime=1, tms_stime=2, tms_cutime=3, tms_cstime=-4}"),
    "sysinfo": (struct.pack("i9IH", 1, *range(2, 11), 11) + bytes(30), STRUCTURES["sysinfo"][1]),
    "dates": (struct.pack("2i", 951782400, -1), f"[{time.asctime(time.gmtime(951782400))}, {time.asctime(time.gmtime(-1))}]"),
    "timex": (struct.pack("I4ii6i", 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 9) + bytes(80), WIDE[1]),
    "timex64": WIDE,
    "descriptors": STRUCTURES["descriptors"],
    "memory": (struct.pack("6i", 0x5000, 8192, 1, 0x22, -1, 3), ""),
    "sets": (struct.pack("i4I", 7, 0xDEAD0100, 0xDEAD0200, 0xDEAD0300, 0xDEAD0400), ""),
}  # fmt: skip


class Argument:
    """An argument in a row: its kind, the value that is passed, and the values of its variables."""

    def __init__(self, spec, turn, constants, short):
        self.short = short
        kind, _, variables = spec.partition(":")
        self.numbers = {v[1:] for v in variables.split(",") if v.startswith("#")}
        self.variables = [v.removeprefix("#") for v in variables.split(",")]
        self.text = self.raw = None
        self.own = re.fullmatch(r"(text|number|return)\((.*)\)", kind)
        if self.own:
            # Variables without an argument.
            self.kind, self.shown, self.word = self.own[1], "", None
            return
        self.kind, _, given = kind.partition("=")
        dirty = DIRTY[turn % len(DIRTY)]
        bare = self.kind.rstrip("!")
        named = re.fullmatch(r"as\((.*)\)", self.kind)
        constant = re.fullmatch(r"([iul])(?:\((.*)\)(?:\+(0\d+))?|#(.*))", self.kind)
        if constant:
            of, names, permissions, number = constant.groups()
            value = int(number, 0) if number else int(permissions or "0", 8)
            for name in (names or "").split("|"):
                value |= constants[name] if name else 0
            # A signal set has the width of its C type. The other bits of the register do not count.
            self.word = value & 0xFFFFFFFF | (0 if of == "l" else 0xDEAD0000 << 32)
            of = "u" if short and of == "l" else of
            self.ctype = CONSTANTS[of]
            self.text = f"{names}|{permissions}" if permissions else names or number
        elif bare in NUMBERS:
            self.ctype, form = NUMBERS[bare]
            self.word = int(given) & (1 << 64) - 1 if given else BAD if "!" in self.kind else dirty
            if bare == "ptr":
                # Unmapped.
                self.word = (0xDEAD0000 if short else 0xDEAD000000000000) | dirty
            if short and not bare.startswith("pair"):
                self.ctype = SHORT.get(self.ctype, self.ctype)
            self.shown = form.format(self.ctype(self.word).value)
            if bare == "blocks":
                # The kernel counts pages, SystemTap bytes.
                self.shown = str(self.ctype(self.word).value * 4096)
        elif named:
            self.ctype, self.text, self.word = ctypes.c_uint, named[1], int(given, 0)
        else:
            self.ctype = ctypes.c_ulong
            self.word = self.memory()
        if self.text is not None:
            self.shown = f"{{{self.text}}}" if bare.startswith("braced") else self.text

    def memory(self):
        place = low if self.short else buffer
        if self.kind == "str":
            self.text, self.raw = f'"{PATH}"', PATH
            return place(PATH.encode() + b"\0")
        if self.kind == "strings":
            self.text = "[" + ", ".join(json.dumps(s) for s in STRINGS) + "]"
            size = 4 if self.short else 8
            all = [place(s.encode() + b"\0") for s in STRINGS]
            return place(b"".join(at.to_bytes(size, "little") for at in [*all, 0]))
        if self.kind.removesuffix("64") in TIMES:
            numbers, self.text = TIMES[self.kind.removesuffix("64")]
            size = 4 if self.short and not self.kind.endswith("64") else 8
            return place(b"".join(n.to_bytes(size, "little", signed=True) for n in numbers))
        if self.kind.startswith("sig("):
            self.ctype, self.text = ctypes.c_int, self.kind[4:-1]
            return 0xDEAD000000000000 | int(signal.Signals[self.text])
        if self.kind == "dirfd":
            self.ctype, self.text = ctypes.c_int, "AT_FDCWD"
            return 0xDEAD0000FFFFFF9C
        if self.kind == "bytes":
            self.text = '"hi "x"\\x0a\\x00"'
            return place(BUFFER)
        if self.kind.startswith(("struct(", "braced(")):
            name = self.kind[7:-1]
            packed, self.text = self.short and SHORT_STRUCTURES.get(name) or STRUCTURES[name]
            if not self.text:
                # Shown by its address.
                self.text = f"{place(packed):#x}"
                return int(self.text, 0)
            return place(packed)
        if self.kind == "buf":
            self.text = r'"hi \"x\"\n\000"'
            return place(BUFFER)
        assert self.kind == "sockaddr", self.kind
        self.text = "{AF_INET, 127.0.0.1, 80}"
        return place(bytes([2, 0, 0, 80, 127, 0, 0, 1]) + bytes(8))

    def words(self):
        """The values of the registers. Bits outside the argument do not count."""
        if self.own:
            return []
        if self.kind.startswith("pair"):
            return [self.word & 0xFFFFFFFF | 0xDEAD << 48, self.word >> 32 | 0xDEAD << 48]
        return [self.word & 0xFFFFFFFF | 0xDEAD << 48 if self.short else self.word]

    def value(self, variable):
        """The expected value of the variable."""
        if self.own:
            return self.own[2]
        if self.kind in ("str", "strings"):
            if variable.endswith("_unquoted"):
                return self.raw
            return str(self.word) if variable.endswith("_uaddr") else self.text
        if variable != self.variables[0] and variable not in self.numbers:
            # An address that cannot be read is its own text.
            return self.shown if self.text is None else self.text
        if self.kind == "blocks":
            return self.shown
        # Numbers of the script language are signed.
        return str(ctypes.c_long(self.ctype(self.word).value).value)

    def is_text(self, variable):
        if self.own:
            return self.kind == "text"
        if self.kind in ("str", "strings"):
            return not variable.endswith("_uaddr")
        return variable != self.variables[0] and variable not in self.numbers

    def at_return(self, variable):
        """Whether return handlers have the variable: texts of arguments other than strings exist at the entry only."""
        if self.own:
            return not variable.endswith("_str")
        return self.kind == "str" or not self.is_text(variable)

    def at_entry(self):
        return self.kind != "return"


def rows(short):
    """The calls to make: name of the probe point, name in the library, number, result, arguments."""
    for line in open(f"{ROOT}/tests/syscalls{'-32' if short else ''}.tsv"):
        if not line.startswith("#"):
            own, *more, number, how, result, args = line.rstrip("\n").split("\t")
            if how == "called":
                yield f"compat_{own}" if short else own, more[0] if short else own, number, result, args.split()


def constants(all):
    """The constants in rows, with their values in C headers."""
    kinds = [spec.split(":")[0] for *_, args in all for spec in args]
    sets = [re.fullmatch(r"[iul]\((.*)\)(\+0\d+)?", kind) for kind in kinds]
    return of_c({name for found in sets if found for name in found[1].split("|")})


def arguments(row, turn, values):
    point, *_, specs = row
    short = point.startswith("compat_")
    args = [Argument(spec, turn + i, values, short) for i, spec in enumerate(specs)]
    for i, arg in enumerate(args[:-1]):
        # The next argument is the length of the buffer or address.
        if arg.kind in ("buf", "bytes", "sockaddr"):
            length = 16 if arg.kind == "sockaddr" else len(BUFFER)
            args[i + 1].word = length
            args[i + 1].shown = str(length)
    return args


def every_script(some, values):
    for row in some:
        point, _, number, result, _ = row
        args = arguments(row, 0, values)
        mine = "if (ppid() != target()) next"
        for at, extra in (("", "argstr"), (".return", "retval retstr errno")):
            if at and result == "-":
                continue
            there = lambda a, v: a.at_return(v) if at else a.at_entry()  # noqa: E731
            own = [(v, a.is_text(v)) for a in args for v in a.variables if there(a, v)]
            own += [(v, v.endswith("str")) for v in extra.split()]
            forms = ["%s", *("%s" if text else "%d" for _, text in own)]
            names = ["name", *(v for v, _ in own)]
            print_it = f'printf("{point}{at} {BETWEEN.join(forms)}\\n", {", ".join(names)})'
            yield f"probe syscall.{point}{at} {{ {mine} {print_it} }}"


TURNS = (0, 3)


def every_work(some, values):
    want = []
    # Shared memory, in which the parent reads the result of a call.
    told = mmap.mmap(-1, 4096)
    for turn in TURNS:
        for row in some:
            point, name, number, result, _ = row
            args = arguments(row, turn, values)
            words = [word for a in args for word in a.words()]
            told[:9] = bytes(9)
            pid = os.fork()
            if pid == 0:
                prepare(name)
                ret = make(point, number, words)
                told[:9] = ret.to_bytes(8, "little", signed=True) + b"x"
                os._exit(0)
            os.waitpid(pid, 0)
            shown = ", ".join(a.shown for a in args if a.shown)
            own = [a.value(v) for a in args for v in a.variables if a.at_entry()]
            want.append(f"{point} " + BETWEEN.join([name, *own, shown]))
            if result == "-":
                continue
            ret = int.from_bytes(told[:8], "little", signed=True)
            if result not in "dxo":
                ret = int(result)
            else:
                assert told[8:9] == b"x", f"{point} does not return"
            own = [a.value(v) for a in args for v in a.variables if a.at_return(v)]
            text = {"d": "{}", "x": "{:#x}", "o": "0{:o}"}.get(result, "{}").format(ret)
            if result == "o" and ret == 0:
                text = "0"
            if ret < 0:
                code = errno.errorcode.get(-ret)
                text = f"{ret} ({code})" if code else str(ret)
            want.append(f"{point}.return " + BETWEEN.join([name, *own, str(ret), text, str(max(-ret, 0))]))
    return want


def prepare(name):
    """Prepares the child so that its call cannot affect the session."""
    libc.setsid()
    # An intended end leaves no message of the interpreter, and no core file.
    signal.signal(signal.SIGALRM, lambda *_: None)
    if name == "pause":
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)


def make(point, number, words):
    if point == "vfork":
        # Made by the C library: a process that shares its parent's stack must not return.
        child = subprocess.Popen(["/bin/true"])
        child.wait()
        return child.pid
    ret = short_call(number, words) if point.startswith("compat_") else libc_call(int(number), words)
    if point.endswith("fork"):
        if ret == 0:
            os._exit(0)
        os.waitpid(ret, 0)
    return ret


# Saves the callee-saved registers, loads number and six arguments from memory, executes int $0x80, restores.
CODE = bytes.fromhex(
    "53 55 41 54 41 55 41 56 41 57 48 89 f8 48 8b 58 08 48 8b 48 10 48 8b 50 18 48 8b 70 20"
    "48 8b 78 28 48 8b 68 30 48 8b 00 cd 80 41 5f 41 5e 41 5d 41 5c 5d 5b c3"
)
ARENA = []


def low(data):
    """Copies bytes to memory with a 32-bit address."""
    if not ARENA:
        libc.mmap.restype = ctypes.c_void_p
        readable, of_nobody = 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40
        ARENA.append(libc.mmap(None, ctypes.c_ulong(1 << 22), readable, of_nobody, -1, ctypes.c_long(0)))
    at = ARENA[0]
    ctypes.memmove(at, data, len(data))
    ARENA[0] += -(-len(data) // 16) * 16
    return at


# The order of the arguments of ipc(2) from the second on, by the first one: the words of the call, -1 for one that it
# lacks, or a list of words in memory.
IPC = {
    1: [0, 2, -1, 1], 2: [0, 1, 2], 3: [0, 1, 2, [3]], 4: [0, 2, -1, 1, 3], 11: [0, 2, 3, 1], 12: [0, 2, 4, [1, 3]],
    13: [0, 1], 14: [0, 1, -1, 2], 21: [0, 2, -1, 1], 22: [-1, -1, -1, 0], 23: [0, 1, 2], 24: [0, 1, -1, 2],
    28: [0, 2, 4, 1, 3],
}  # fmt: skip


def part(number, words):
    """The number and the words of the call with a part: `s1` is one of socketcall, `i1` one of ipc."""
    kind, which = number[0], int(number[1:])
    in_memory = lambda some: low(b"".join((w & 0xFFFFFFFF).to_bytes(4, "little") for w in some))  # noqa: E731
    if kind == "s":
        return 102, [which, in_memory(words), 0, 0, 0, 0]
    order = IPC[which]
    from_words = lambda i: in_memory([words[j] for j in i]) if isinstance(i, list) else 0 if i < 0 else words[i]  # noqa: E731
    given = [from_words(i) for i in order]
    first = 12 | 1 << 16 if which == 28 else which
    return 117, [first, *given, *[0] * (5 - len(given))]


def short_call(number, words):
    """Makes a system call the way 32-bit programs do."""
    if not number.isdigit():
        number, words = part(number, words)
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(CODE)
    given = (ctypes.c_ulong * 7)(int(number), *words)
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(at)(ctypes.addressof(given))


def short(spile):
    return every(spile, True)


def every(spile, short=False):
    """Tests all rows, in several sessions: one session cannot have programs for all calls."""
    all, wrong, same = list(rows(short)), [], []
    values = constants(all)
    # A part has the name of another call, so both need sessions of their own.
    whole = [row for row in all if row[2].isdigit()]
    parts = [row for row in all if not row[2].isdigit()]
    some_of = lambda rows: [rows[at : at + 64] for at in range(0, len(rows), 64)]  # noqa: E731
    for some in some_of(whole) + some_of(parts):
        with open("some", "w") as f:
            json.dump([some, values], f)
        differ, equal = run(spile, "every", "\n".join(every_script(some, values)))
        wrong += differ
        same += equal
    return wrong, same


# ---- names of constants

# Headers of the C library are included together. Those of the kernel partly define the same names, so each is
# compiled by itself.
LIBRARY = """
fcntl.h poll.h sched.h signal.h time.h unistd.h asm/prctl.h netinet/in.h sys/epoll.h sys/eventfd.h sys/fanotify.h
sys/file.h sys/inotify.h sys/ipc.h sys/mman.h sys/mount.h sys/msg.h sys/prctl.h sys/ptrace.h sys/random.h
sys/resource.h sys/shm.h sys/signalfd.h sys/socket.h sys/stat.h sys/swap.h sys/time.h sys/timerfd.h sys/uio.h sys/wait.h
sys/xattr.h
""".split()
KERNEL = """
bpf close_range falloc fcntl fs futex in io_uring ioprio ipc kcmp keyctl membarrier memfd mempolicy mman module
mount msg net openat2 perf_event pidfd prctl ptrace random reboot resource sched seccomp sem shm socket stat swap
time timerfd types wait xattr
""".split()


def of_c(names):
    """The values of constants that C headers define, by name, found with a C compiler."""
    found = {}
    for headers in [LIBRARY, *([f"linux/{name}.h"] for name in KERNEL)]:
        rest = sorted(n for n in names if n not in found)
        while rest:
            lines = "".join(f'printf("%s %lld\\n", "{n}", (long long) {n});\n' for n in rest)
            includes = "".join(f"#if __has_include(<{h}>)\n#include <{h}>\n#endif\n" for h in headers)
            program = f"#define _GNU_SOURCE\n{includes}#include <stdio.h>\nint main(void) {{\n{lines}}}\n"
            done = subprocess.run(
                ["gcc", "-w", "-fmax-errors=0", "-x", "c", "-o", "./constants", "-"],
                input=program, text=True, capture_output=True, env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
            if done.returncode == 0:
                out = subprocess.run(["./constants"], text=True, capture_output=True).stdout
                found.update((line.split()[0], int(line.split()[1])) for line in out.splitlines())
                break
            unknown = set(re.findall(r"error: '(\w+)' undeclared", done.stderr))
            if not unknown & set(rest):
                break
            rest = [n for n in rest if n not in unknown]
    return found


def names(_):
    """Compares the tables of names for flags and choices with C headers."""
    wrong, same, tables = [], [], {}
    for line in open(f"{ROOT}/crates/syscalls/data/flags.tsv"):
        if not line.startswith("#"):
            table, entries = line.rstrip("\n").split("\t")
            # Its names come from /etc/protocols, and are not constants of C.
            if table == "protocol:d":
                continue
            # The values of another processor: the unit tests compare them with its headers.
            if "@" in table:
                continue
            # Others are texts of no constant, such as 0x0.
            entries = re.findall(r"(?:^| )([A-Za-z_]\w*)=([-\w]+)", entries)
            # What a name has further entries for are parts of its bits.
            tables[table] = [e for i, e in enumerate(entries) if e[0] not in {name for name, _ in entries[:i]}]
    real = of_c({name for entries in tables.values() for name, _ in entries})
    # On 64-bit systems the C library defines this flag as 0, and these commands as those without 64.
    for name in ("O_LARGEFILE", "F_GETLK64", "F_SETLK64", "F_SETLKW64"):
        real.pop(name, None)
    for table, entries in tables.items():
        for name, text in entries:
            value = int(text, 0)
            if table == "sigset":
                # Signals of a set are bits.
                value = value.bit_length()
            if name not in real:
                continue
            if (value - real[name]) % (1 << 32):
                wrong.append(f"{table}: {name} is {real[name]:#x}, not {text}")
            else:
                same.append(f"{table} {name} {value:#x}")
    if len(real) < 850:
        wrong.append(f"only {len(real)} names are in headers")
    return wrong, same


def run(spile, name, script=None):
    script = script or "\n".join(globals()[f"{name}_script"]())
    command = f"{sys.executable} {os.path.abspath(__file__)} work {name}"
    # A 32-bit call of the same name may have other arguments, for which spile prints a warning.
    args = [spile, "-w" if name == "every" else "-W", "-D", "MAXSKIPPED=1000000", "-e", script, "-o", "saw", "-c", command]
    done = subprocess.run(args, text=True, capture_output=True, timeout=300)
    if done.returncode != 0:
        return [f"status {done.returncode}", done.stdout, done.stderr], []
    # Random bytes may be shown as text.
    text = set(open("saw", errors="replace").read().splitlines())
    want = json.load(open("did"))

    def found(w):
        like = (t for t in text if "\\" in w and "*" in w and re.fullmatch(w, t))
        return w if w in text else next(like, None)

    same = [line for line in map(found, want) if line is not None]
    missing = [w for w in want if found(w) is None]
    near = {w.split("(")[0].split(" ")[0] for w in missing}
    wrong = [f"missing: {w}" for w in missing]
    wrong += sorted(t for t in text if re.split(r"[( ]", t)[0] in near)[:80]
    return wrong, same


def main():
    if sys.argv[1] == "work":
        given = json.load(open("some")) if sys.argv[2] == "every" else ()
        want = globals()[f"{sys.argv[2]}_work"](*given)
        with open("did", "w") as f:
            json.dump(want, f)
        return 0
    test = globals().get(sys.argv[2])
    wrong, same = test(sys.argv[1]) if test else run(sys.argv[1], sys.argv[2])
    print("\n".join(wrong or [*same, f"{len(same)} as expected"]))
    return 1 if wrong else 0


sys.exit(main())
