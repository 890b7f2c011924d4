"""Compares what kernel handlers and a process itself say about the process: `library_target.py SPILE GROUP`.

The process (`library_target.py --target GROUP`) calls getppid with the addresses of two blocks of memory. It writes
the expected value of each expression, which it knows from its memory, its own calls, and /proc.
"""
import ctypes, os, resource, select, signal, socket, struct, subprocess, sys, threading, time

TEXT = b'he"llo\tworld\0'
LONG = b"y" * 1999 + b"\0"
NUMBERS = struct.pack("<qiIhHbB", -7, -123456, 4000000000, -321, 65000, -5, 250)
AT = dict(zip(("q", "i", "I", "h", "H", "b", "B"), (0, 8, 12, 16, 18, 20, 21)))
UTF16 = "aé€\U0001F600z\0".encode("utf-16-le")
UTF32 = "aé€\U0001F600z\0".encode("utf-32-le")
OFFSETS, BLOCK = {}, b""
for name, part in (("text", TEXT), ("long", LONG), ("numbers", NUMBERS), ("utf16", UTF16), ("utf32", UTF32)):
    BLOCK += b"\0" * (-len(BLOCK) % 8)
    OFFSETS[name] = len(BLOCK)
    BLOCK += part
BAD = 16


def in_quotes(text):
    """The text in quotes, with escapes for characters outside of ASCII."""
    def shown(c):
        n = ord(c)
        if n < 128:
            return c if n >= 32 else f"\\{n:03o}"
        return f"\\u{n:04X}" if n < 65536 else f"\\U{n:08X}"

    return '"' + "".join(map(shown, text)) + '"'


def memory():
    at = {name: f"(pointer_arg(1) + {offset})" for name, offset in OFFSETS.items()}
    text, quoted = TEXT[:-1].decode(), '"he\\"llo\\tworld"'
    t = at["text"]
    yield f"user_string({t})", text
    yield f'user_string({t}, "no")', text
    yield f'user_string({BAD}, "no")', "no"
    yield f"user_string({BAD})", "error: user string copy fault at 0x10"
    for n in (0, 3, 100):
        yield f"user_string_n({t}, {n})", text[:n]
        yield f'user_string_n({t}, {n}, "no")', text[:n]
        yield f'user_string_n2({t}, {n}, "no")', text[:n]
        yield f"user_string_n_nofault({t}, {n})", text[:n]
        yield f"user_string_n_warn({t}, {n})", text[:n]
    yield f'user_string_n({BAD}, 3, "no")', "no"
    yield f"user_string_nofault({t})", text
    yield f"user_string_nofault({BAD})", ""
    yield f"user_string_n_nofault({BAD}, 3)", ""
    yield f'user_string2({t}, "no")', text
    yield f'user_string2({BAD}, "no")', "no"
    yield f"user_string_warn({t})", text
    yield f"user_string_warn({BAD})", ""
    yield f'user_string_warn({BAD}, "w")', "w"
    yield f"user_string_n_warn({BAD}, 4)", ""
    yield f'user_string_n_warn({BAD}, 4, "w")', "w"
    yield f"user_string_quoted({t})", quoted
    yield f"user_string_quoted({BAD})", "0x10"
    yield "user_string_quoted(0)", "0x0"
    yield f"user_string_quoted({at['long']})", '"' + "y" * 506 + '"...'
    yield f"user_string_n_quoted({t}, 4)", '"he\\"l"'
    yield f"user_string_n_quoted({t}, 100, 10)", '"he\\"l"...'
    yield "user_string_n_quoted(0, 5)", "0x0"
    yield f"kernel_or_user_string_quoted({t})", quoted
    yield f"kernel_or_user_string_quoted({BAD})", "error: user string copy fault at 0x10"
    yield f"user_buffer_quoted({t}, 6, 100)", '"he\\"llo"'
    yield f"user_buffer_quoted_error({t}, 6, 100)", '"he\\"llo"'
    yield f"user_buffer_quoted({BAD}, 6, 100)", "0x10"
    yield f"user_buffer_quoted_error({BAD}, 6, 100)", "error: Unable to access user space data at 0x10"
    for bits, block in ((16, UTF16), (32, UTF32)):
        whole = block.decode(f"utf-{bits}-le")[:-1]
        a = at[f"utf{bits}"]
        yield f"user_string_utf{bits}({a})", whole
        yield f'user_string_utf{bits}({a}, "no")', whole
        yield f'user_string2_utf{bits}({a}, "no")', whole
        yield f'user_string_utf{bits}({BAD}, "no")', "no"
        yield f"user_string_quoted_utf{bits}({a})", in_quotes(whole)
        yield f"user_string_quoted_utf{bits}({BAD})", "0x10"
        yield f"kernel_or_user_string_quoted_utf{bits}({a})", in_quotes(whole)
    yield f'user_string2_warn({t}, "w")', text
    yield f'user_string2_warn({BAD}, "w")', "w"
    yield f"user_string_n2_quoted({t}, 100, 10)", '"he\\"l"...'
    kinds = (("long", "q"), ("ulong", "q"), ("int", "i"), ("short", "h"), ("ushort", "H"), ("char", "b"), ("int8", "b"),
             ("uint8", "B"), ("int16", "h"), ("uint16", "H"), ("int32", "i"), ("uint32", "I"), ("int64", "q"), ("uint64", "q"))
    for name, code in kinds:
        value = struct.unpack_from("<" + code, NUMBERS, AT[code])[0]
        suffixes = ["", "_error"] + (["_warn"] if name in ("long", "ulong", "int", "short", "ushort", "char") else [])
        for suffix in suffixes:
            yield f"user_{name}{suffix}({at['numbers']} + {AT[code]})", value
            if suffix != "_error":
                yield f"user_{name}{suffix}({BAD})", 0
        yield f"(user_{name}_error({BAD}) + 1)", "error: read fault at 0x10"


def kernel_memory():
    name = b"ab\x01"
    open("/proc/self/comm", "wb").write(name)
    at = '(&@task(task_current())->comm[0])'
    fault = "error: kernel string copy fault at 0x10"
    yield f"strlen(kernel_string({at}))", len(name)
    yield f'(kernel_string({at}) == "ab\\001")', 1
    yield f'(kernel_string({at}, "no") == "ab\\001")', 1
    yield f'kernel_string({BAD}, "no")', "no"
    yield f'kernel_string2({BAD}, "no")', "no"
    yield f"kernel_string({BAD})", fault
    for n in (0, 1, 2):
        yield f"kernel_string_n({at}, {n})", name[:n].decode()
    yield f"kernel_string_quoted({at})", '"ab\\001"'
    yield f"kernel_string_quoted({BAD})", "0x10"
    yield "kernel_string_quoted(0)", "0x0"
    yield f"kernel_buffer_quoted({at}, 4)", '"ab\\001\\000"'
    yield f"kernel_buffer_quoted({at}, 4, 20)", '"ab\\001\\000"'
    yield f"kernel_buffer_quoted_error({at}, 2, 20)", '"ab"'
    yield f"kernel_buffer_quoted({BAD}, 4)", "0x10"
    yield f"kernel_buffer_quoted_error({BAD}, 4, 20)", "error: Unable to access kernel space data at 0x10"
    memory = name + b"\0" * 5
    wide = chr(int.from_bytes(name + b"\0", "little"))
    two = (name + b"\0").decode("utf-16-le")
    yield f"kernel_string_utf32({at})", wide
    yield f'kernel_string_utf32({at}, "no")', wide
    yield f'kernel_string2_utf32({at}, "no")', wide
    yield f"kernel_string_utf16({at})", two
    yield f'kernel_string_utf16({at}, "no")', two
    yield f'kernel_string2_utf16({BAD}, "no")', "no"
    for bits, text in ((16, two), (32, wide)):
        yield f"kernel_string_quoted_utf{bits}({at})", in_quotes(text.rstrip("\0"))
        yield f"kernel_string_quoted_utf{bits}({BAD})", "0x10"
    yield f"rcu_dereference({at})", int.from_bytes(memory[:8], "little")
    for kind, size in (("char", 1), ("short", 2), ("int", 4), ("long", 8), ("pointer", 8)):
        yield f"kernel_{kind}({at})", int.from_bytes(memory[:size], "little")
        yield f"(kernel_{kind}({BAD}) + 1)", "error: read fault at 0x10"
    for kind, size in (("char", 1), ("short", 2), ("int", 4)):
        # The lower bytes of the process number, sign-extended.
        yield f"kernel_{kind}(&@task(task_current())->pid)", int.from_bytes(struct.pack("<i", os.getpid())[:size], "little", signed=True)
    yield "atomic_read(&@task(task_current())->mm->mm_users->counter)", 1
    for line in open("/proc/self/status"):
        if line.startswith("VmPTE"):
            yield "atomic_long_read(&@task(task_current())->mm->pgtables_bytes->counter)", int(line.split()[1]) * 1024
    yield "d_name(@task(task_current())->mm->exe_file->f_path->dentry)", os.path.basename(os.readlink("/proc/self/exe"))


def stat(field):
    """Field n of /proc/self/stat, numbered as in proc(5)."""
    return int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[field - 3])


def context():
    me, thread = os.getpid(), threading.get_native_id()
    yield "pid()", me
    yield "ns_pid()", me
    yield "tid()", thread
    yield "ns_tid()", thread
    yield "ppid()", os.getppid()
    yield "ns_ppid()", os.getppid()
    yield "pgrp()", os.getpgrp()
    yield "ns_pgrp()", os.getpgrp()
    yield "sid()", os.getsid(0)
    yield "ns_sid()", os.getsid(0)
    for name in ("uid", "euid", "gid", "egid"):
        value = getattr(os, "get" + name)()
        yield f"{name}()", value
        yield f"ns_{name}()", value
        yield f"task_{name}(task_current())", value
    comm = open("/proc/self/comm").read()[:-1]
    yield "execname()", comm
    yield "task_execname(task_current())", comm
    yield "pexecname()", open(f"/proc/{os.getppid()}/comm").read()[:-1]
    yield "task_execname(task_parent(task_current()))", open(f"/proc/{os.getppid()}/comm").read()[:-1]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    yield "cpu()", max(os.sched_getaffinity(0))
    yield "task_cpu(task_current())", stat(39)
    yield "target()", me
    yield "target_set_pid(pid())", 1
    yield "target_set_pid(1)", 0
    yield "is_myproc()", 1
    yield "is_return()", 0
    yield "user_mode()", 0
    yield "registers_valid()", 0
    yield "task_pid(task_current())", me
    yield "task_tid(task_current())", thread
    yield "task_ns_pid(task_current())", me
    yield "task_ns_tid(task_current())", thread
    yield "task_ppid(task_current())", os.getppid()
    yield "task_nice(task_current())", os.nice(3)
    yield "task_prio(task_current())", stat(18)
    yield "task_state(task_current())", 0
    yield "task_exit_code(task_current())", 0
    # In hundredths of a second.
    yield "(task_start_time(tid()) / 10000000)", stat(22)
    yield "(task_start_time(1 << 23))", 0
    yield "probe_type()", "kernel_tracepoint"
    yield "pn()", "syscall.getppid"
    yield "pp()", "syscall.getppid"
    yield "ppfunc()", ""
    for name, size in (("int", 4), ("long", 8), ("longlong", 8), ("s32", 4), ("s64", 8)):
        yield f"{name}_arg(3)", -2
    for name, value in (("uint", 2 ** 32 - 2), ("u32", 2 ** 32 - 2), ("ulong", -2), ("ulonglong", -2), ("u64", -2), ("pointer", -2)):
        yield f"{name}_arg(3)", value
    first, *rest = open("/proc/self/cmdline").read()[:-1].split("\0")
    yield "cmdline_str()", " ".join([first, *(a or '""' for a in rest)])
    yield "current_syscall()", 110
    yield "syscall_index()", 110
    yield "(stack_used() + stack_unused())", 16384
    yield "(stack_used() > 100 && stack_unused() > 1000)", 1
    path = open("/proc/self/cgroup").read().split("::")[-1].strip()
    if os.path.isdir("/sys/fs/cgroup" + path) and os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        yield "cgroup_id()", os.stat("/sys/fs/cgroup" + path).st_ino
    now, mono = time.time_ns(), time.monotonic_ns()
    # The call follows within a minute.
    for unit, ns in (("ns", 1), ("us", 1000), ("ms", 10 ** 6), ("s", 10 ** 9)):
        yield f"(gettimeofday_{unit}() >= {now // ns} && gettimeofday_{unit}() < {(now + 60 * 10 ** 9) // ns})", 1
        yield f"(local_clock_{unit}() >= {mono // ns} && local_clock_{unit}() < {(mono + 60 * 10 ** 9) // ns})", 1
    yield f"(ktime_get_ns() >= {mono} && ktime_get_ns() < {mono + 60 * 10 ** 9})", 1
    yield f"(get_cycles() >= {mono})", 1
    yield "(jiffies() > 0)", 1


def numbered(first, kept):
    """Duplicates files to fixed descriptors, which are the same in both processes."""
    for number, file in enumerate(kept, first):
        os.dup2(file if isinstance(file, int) else file.fileno(), number)
    return range(first, first + len(kept))


def files():
    task = "task_current()"
    os.makedirs("/tmp/spile-library", exist_ok=True)
    os.chdir("/tmp/spile-library")
    kept = [open("/etc/hostname"), open("/proc/self/status"), *os.pipe(), open("/proc/self/ns/mnt"), select.epoll(), os.memfd_create("kept")]
    files.kept = kept
    numbers = numbered(100, kept)
    # All open files, less the descriptor that lists the folder.
    yield f"task_open_file_handles({task})", len(os.listdir("/proc/self/fd")) - 1
    for line in open("/proc/self/status"):
        if line.startswith("FDSize"):
            yield f"task_max_file_handles({task})", int(line.split()[1])
    yield f"fullpath_struct_path(task_cwd_path({task}))", os.getcwd()
    for exe in (f"task_exe_file({task})", "current_exe_file()"):
        yield f"fullpath_struct_file({task}, {exe})", os.readlink("/proc/self/exe")
    at = {n: f"@cast(task_fd_lookup({task}, {n}), \"file\")" for n in numbers}
    for n in numbers:
        link = os.readlink(f"/proc/self/fd/{n}")
        if link.startswith("anon_inode:"):
            link = "ANON_INODE:" + link[11:]
        if not link.startswith("/memfd"):
            yield f"fullpath_struct_file({task}, task_fd_lookup({task}, {n}))", link
    yield f"(task_fd_lookup({task}, 1000000) + 1)", "error: cannot find file in task"
    yield f"(task_fd_lookup({task}, -1) + 1)", "error: cannot find file in task"
    name = at[numbers[0]]
    yield f"inode_path({name}->f_inode)", "/etc/hostname"
    root = os.stat("/etc/hostname").st_dev
    inside = "/etc/hostname"
    while os.path.dirname(inside) != inside and os.stat(os.path.dirname(inside)).st_dev == root:
        inside = os.path.dirname(inside)
    within = os.path.relpath("/etc/hostname", inside)
    yield f"inode_name({name}->f_inode)", within
    yield f"reverse_path_walk({name}->f_path->dentry)", within
    yield f"task_dentry_path({task}, {name}->f_path->dentry, {name}->f_path->mnt)", "/etc/hostname"
    yield f"(@cast(real_mount({name}->f_path->mnt), \"mount\")->mnt->mnt_root == {name}->f_path->mnt->mnt_root)", 1


LIMITS = "CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS LOCKS SIGPENDING MSGQUEUE NICE RTPRIO RTTIME".split()


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (12345, -1))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, -1))
    for number, name in enumerate(LIMITS):
        # The C library has no name for the limit of file locks.
        soft = resource.getrlimit(number)[0]
        yield f"task_rlimit_{name.lower()}(task_current())", soft
        yield f'task_rlimit(task_current(), "RLIMIT_{name}")', soft
    yield 'task_rlimit(task_current(), "RLIMIT_NONE")', -1


def processes():
    me, task = os.getpid(), "task_current()"
    if "--target" in sys.argv:
        os.environ["ADDED"] = "later"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, 40})
    yield "(pid2task(tid()) == task_current())", 1
    yield "pid2task(1 << 23)", 0
    yield "pid2execname(ppid())", open(f"/proc/{os.getppid()}/comm").read()[:-1]
    yield "pid2execname(1 << 23)", ""
    chain, pid = [], me
    while pid > 0:
        words = open(f"/proc/{pid}/stat").read()
        chain.append((words[words.index("(") + 1:words.rindex(")")], pid))
        pid = int(words.rpartition(")")[2].split()[1])
    yield f"pstrace({task})", "".join(f" {name}({pid})" for name, pid in chain if pid > 1)
    # The parent may be a thread that has another name than its process.
    yield f'strpos(task_ancestry({task}, 0), "swapper/0=>")', 0
    yield f'isinstr(task_ancestry({task}, 0) . "$", "=>" . pexecname() . "=>" . execname() . "$")', 1
    yield f'isinstr(task_ancestry({task}, 1), sprintf("=>%s(%s)", execname(), nsecs_to_string(task_start_time(tid()))))', 1
    yield "(task_time_string() == sprintf(\"usr: %s, sys: %s\", cputime_to_string(task_utime()), cputime_to_string(task_stime())))", 1
    yield "(task_time_string_tid(tid()) == task_time_string())", 1
    yield "task_time_string_tid(1 << 23)", "usr: 0m0.000s, sys: 0m0.000s"
    yield "(task_utime_tid(tid()) == task_utime() && task_stime_tid(tid()) == task_stime())", 1
    for name in ("uid", "euid", "gid", "egid"):
        yield f"task_ns_{name}({task})", getattr(os, "get" + name)()
    for number in (signal.SIGUSR1, signal.SIGUSR2, 40, 41, 0, 65):
        yield f"is_sig_blocked({task}, {int(number)})", int(number in (signal.SIGUSR1, 40))
    # The environment at the start of the process.
    began = dict(v.split("=", 1) for v in open("/proc/self/environ").read().split("\0") if "=" in v)
    for name in ("PATH", "LC_SAID"):
        yield f'env_var("{name}")', began.get(name)
    for name in ("", "ADDED", "PAT", "LC_SAID=a"):
        yield f'env_var("{name}")', ""
    arguments = open("/proc/self/cmdline").read()[:-1].split("\0")
    yield "cmdline_arg(0)", arguments[0]
    yield "cmdline_arg(2)", "--target"
    yield "cmdline_arg(100)", ""
    yield 'cmdline_args(2, 3, "|")', "--target|processes"
    yield 'cmdline_args(4, -1, "|")', '|two words|""|""'
    yield 'cmdline_args(3, 2, "|")', ""
    yield "HZ()", hz()


class Action(ctypes.Structure):
    """The C library's struct sigaction on x86-64."""
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]


def signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, 40, 64})
    # A program that nohup started ignores this signal.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield "get_sigset(&@task(task_current())->blocked)", 1 << 9 | 1 << 39 | -1 << 63
    # The C library adds SA_RESTORER.
    restorer = 0x04000000
    for number, handler, mask, flags in ((10, 1, 0, 0), (12, 0x401000, 1 << 1 | 1 << 14, 0x10000004), (15, 0x402000, 1 << 40, 0x08000001)):
        action = Action(handler, (ctypes.c_uint64 * 16)(mask), flags, None)
        assert ctypes.CDLL(None).sigaction(number, ctypes.byref(action), None) == 0
        at = f"(&@task(task_current())->sighand->action[{number - 1}])"
        yield f"get_sa_handler({at})", handler
        yield f"get_sigaction_mask({at})", mask
        yield f"get_sa_flags({at})", flags | restorer
    yield "get_sa_handler(&@task(task_current())->sighand->action[0])", 0


def connections():
    connections.kept = kept = []
    for family, ip, client in ((socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "0000:0000:0000:0000:0000:0000:0000:0001")):
        listener = socket.create_server((ip, 0), family=family)
        one = socket.create_connection(listener.getsockname()[:2])
        other, _ = listener.accept()
        one.send(b"x" * 5000)
        other.recv(5000)
        other.send(b"answer")
        one.recv(100)
        kept += [listener, one, other]
        own, listens = numbered(120 + family * 2, (one, listener))
        sk = f'@cast(@cast(task_fd_lookup(task_current(), {own}), "file")->private_data, "socket")->sk'
        yield f"inet_get_local_port({sk})", one.getsockname()[1]
        yield f"inet_get_dest_port({sk})", one.getpeername()[1]
        yield f"inet_get_ip_source({sk})", client
        yield f"inet_get_ip_dest({sk})", client
        yield f"get_netdev_name({sk}->sk_dst_cache->dev)", "lo"
        # struct tcp_info of <linux/tcp.h>: bytes, then numbers of 32 bits.
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        words = struct.unpack("=8x24I", info)
        yield f"tcp_ts_get_info_state({sk})", info[0]
        yield f"tcp_get_info_rto({sk})", words[0]
        yield f"tcp_ts_get_info_rcv_mss({sk})", words[3]
        yield f"tcp_ts_get_info_snd_ssthresh({sk})", words[17]
        yield f"tcp_get_info_snd_cwnd({sk})", words[18]
        listening = f'@cast(@cast(task_fd_lookup(task_current(), {listens}), "file")->private_data, "socket")->sk'
        yield f"tcp_ts_get_info_state({listening})", 10


def hz():
    """Ticks per second, from the kernel's configuration."""
    import gzip
    for path in ("/proc/config.gz", f"/boot/config-{os.uname().release}"):
        if os.path.exists(path):
            with (gzip.open if path.endswith("gz") else open)(path, "rt") as config:
                for line in config:
                    if line.startswith("CONFIG_HZ="):
                        return int(line[10:])
    return 250


def memory_use():
    memory_use.kept = bytearray(64 << 20)
    size, resident, shared, text, _, data, _ = map(int, open("/proc/self/statm").read().split())
    for name, value in (("size", size), ("txt", text), ("data", data)):
        yield f"proc_mem_{name}()", value
        yield f"proc_mem_{name}(pid())", value
        yield f"proc_mem_{name}_pid(pid())", value
        yield f"proc_mem_{name}(1 << 23)", 0
    # A processor adds its page counts to the kernel's total only from time to time.
    slack = 64 * os.cpu_count()
    for name, value in (("rss", resident), ("shr", shared)):
        for call in (f"proc_mem_{name}()", f"proc_mem_{name}(pid())", f"proc_mem_{name}_pid(pid())"):
            yield f"({call} > 1000 && ({call} - {value}) / {slack} == 0)", 1
        yield f"proc_mem_{name}(1 << 23)", 0
    parts = ", ".join(f"{n}: %s" for n in ("size", "rss", "shr", "txt", "data"))
    values = ", ".join(f"pages_to_string(proc_mem_{n}())" for n in ("size", "rss", "shr", "txt", "data"))
    for call in ("proc_mem_string()", "proc_mem_string(pid())", "proc_mem_string_pid(pid())"):
        yield f'({call} == sprintf("{parts}", {values}))', 1


GROUPS = {g.__name__: g for g in (memory, context, kernel_memory, files, limits, processes, memory_use, signals, connections)}
HANDLER = 8


def main():
    if sys.argv[1] == "--target":
        block = ctypes.create_string_buffer(BLOCK)
        bytes(block)  # Reads all pages, so that they are in memory.
        checks = list(GROUPS[sys.argv[2]]())
        for expression, want in checks:
            os.write(2, f"{expression}\037{want}\036".encode())
        ctypes.CDLL(None).syscall(110, ctypes.c_void_p(ctypes.addressof(block)), 0, ctypes.c_long(-2))
        return
    spile, group = sys.argv[1:]
    options = [[]]
    wrong = 0
    # Both processes make the same expressions.
    for option in options:
        expressions = [e for e, _ in GROUPS[group]()]
        lines = []
        for at in range(0, len(expressions), HANDLER):
            lines.append("probe syscall.getppid { if (pid() != target()) next")
            for i, e in enumerate(expressions[at:at + HANDLER], at):
                lines.append(f'try {{ printf("{i}=%s\\036", sprint({e})) }} catch (m) {{ printf("{i}=error: %s\\036", m) }}')
            lines.append("}")
        target = f"{sys.executable} {os.path.abspath(__file__)} --target {group} '' 'two words' '' ''"
        command = [spile, *option, "-gw", "-DMAXACTION=100000", "-e", "\n".join(lines), "-c", target]
        done = subprocess.run(command, capture_output=True, timeout=250, env={**os.environ, "LC_SAID": "a=b"})
        got = dict(row.split("=", 1) for row in done.stdout.decode("utf-8", "replace").split("\036") if "=" in row)
        said = [row.split("\n")[-1] if row.startswith("WARNING") else row for row in done.stderr.decode().split("\036")]
        wants = [row.rpartition("\037")[2] for row in said[:len(expressions)]]
        if len(wants) < len(expressions):
            sys.exit(done.stderr.decode())
        for i, (expression, want) in enumerate(zip(expressions, wants)):
            if got.get(str(i)) != want:
                wrong += 1
                print(f"{option}: {expression}: {got.get(str(i))!r}, not {want!r}")
    print(f"{group}: {len(expressions)} expressions, {wrong} wrong")


main()
