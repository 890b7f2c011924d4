"""Compares the values of the library's aliases with what a workload does: `aliases.py SPILE TEST`.

Each test has a script and a workload that runs under it. The workload knows what the script must print: from
its process numbers, from /proc, and from the packets that it sent. Prints the lines that it compared and their
number, or the differences.
"""

import ctypes
import fcntl
import json
import mmap
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

TESTS = {}
# Starts the session of a test.
BEFORE = {}
libc = ctypes.CDLL(None)
# The port that workloads use; `$1` in scripts.
PORT = 47113


def test(script):
    """Declares a test. The function is the workload, and runs in the process that target() returns. It
    returns the expected lines, some of them regular expressions, or a function that checks the output."""

    def add(work):
        TESTS[work.__name__] = (script, work)
        return work

    return add


def fields(pid, name):
    """The fields of /proc/PID/NAME, which has the format of stat, numbered from 1 as in proc(5)."""
    text = open(f"/proc/{pid}/{name}").read()
    before, after = text.rsplit(")", 1)
    return [None, *before.split(" (", 1), *after.split()]


def child(run):
    pid = os.fork()
    if pid == 0:
        run()
        os._exit(3)
    return pid


# ---- scheduler, processes

CTX = """
probe scheduler.ctxswitch {
  if (prev_pid == target()) printf("prev %s %d %d %s %d task %d\\n", name, prev_priority, prev_tid, prev_task_name, prevtsk_state & 1, task_pid(prev_task))
  if (next_pid == target()) printf("next %s %d %d %s %d task %d\\n", name, next_priority, next_tid, next_task_name, nexttsk_state, task_pid(next_task))
}
probe scheduler.cpu_off {
  if (pid() == target()) printf("off %s %d %d %d\\n", name, task_pid(task_prev), idle, task_pid(task_next) == 0)
}
probe scheduler.cpu_on { if (task_pid(task_prev) == target()) printf("on %s %d\\n", name, idle) }
probe scheduler.wakeup {
  if (task_pid == target()) printf("wakeup %s %d %d %d %d %d\\n", name, task_pid(task), task_tid, task_priority, task_cpu, task_state)
}
"""


def priorities(pid):
    # proc(5): 0 to 39 for nice values, negative for real-time tasks. The kernel's own value is larger by 100.
    return int(fields(pid, "stat")[18]) + 100


@test(CTX)
def scheduler(pid):
    want = []
    os.sched_setaffinity(0, {0})
    for do in (
        lambda: os.nice(5),
        lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)),
    ):
        do()
        prio = priorities(pid)
        for _ in range(3):
            time.sleep(0.02)
        comm = open("/proc/self/comm").read().strip()
        want += [
            f"prev ctxswitch {prio} {pid} {comm} 1 task {pid}",
            f"next ctxswitch {prio} {pid} {comm} 0 task {pid}",
            # The state is set to running before the tracepoint is hit.
            f"wakeup wakeup {pid} {pid} {prio} 0 0",
        ]
    want += [rf"off cpu_off {pid} 0 \d", r"on cpu_on \d"]
    assert prio == 99 - 10
    return want


@test(
    """
probe scheduler.wakeup_new { if (pid() == target()) printf("new %s %d %d %d %d %d cpu %d\\n", name, task_pid(task), task_pid, task_tid, task_priority, task_state, task_cpu) }
probe scheduler.process_fork { if (pid() == target()) printf("fork %s %d %d %d %d %d\\n", name, parent_pid, child_pid, child_tid, task_pid(parent), task_pid(child)) }
probe scheduler.process_exit { if (ppid() == target()) printf("exit %s %d %d %d\\n", name, task_pid(task), pid, priority) }
probe scheduler.process_free { if (pid in kids) printf("free %s %d %d %d\\n", name, pid, priority, task_pid(task)) }
probe scheduler.process_wait { if (pid() == target()) printf("wait %s %d\\n", name, pid) }
probe kprocess.create { if (pid() == target()) { kids[new_pid] = 1; printf("create %d %d %d\\n", new_pid, new_tid, task_tid(task)) } }
probe kprocess.exit { if (ppid() == target()) printf("code %d %d\\n", pid(), code) }
probe kprocess.exec { if (ppid() == target()) printf("exec %d %s %s\\n", pid(), name, filename) }
probe kprocess.exec_complete { if (ppid() == target()) printf("complete %d %d %d %s\\n", pid(), errno, success, name) }
global kids
"""
)
def processes(pid):
    os.nice(3)
    last = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})

    def run():
        for path in ("/nothing/there", "/bin/true"):
            try:
                os.execv(path, [path])
            except OSError:
                pass

    kid = child(run)
    os.waitpid(kid, 0)
    other = child(lambda: os._exit(7))
    os.waitpid(-1, 0)
    killed = child(lambda: time.sleep(100))
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    # The kernel frees a task some time after its end.
    time.sleep(0.5)
    want = [
        f"fork process_fork {pid} {kid} {kid} {pid} {kid}",
        rf"new wakeup_new {kid} {kid} {kid} 123 \d+ cpu {last}",
        f"exit process_exit {kid} {kid} 123",
        f"free process_free {kid} 123 {kid}",
        f"wait process_wait {kid}",
        "wait process_wait 0",
        f"create {kid} {kid} {kid}",
        f"code {kid} 0",
        f"code {other} {7 << 8}",
        f"code {killed} 9",
        f'exec {kid} execve "/nothing/there"',
        f'exec {kid} execve "/bin/true"',
        f"complete {kid} -2 0 execve",
        f"complete {kid} 0 1 execve",
    ]
    return want


@test(
    """
probe scheduler.migrate { if (pid == target()) printf("migrate %s %d %d %d %d\\n", name, task_pid(task), priority, cpu_from, cpu_to) }
"""
)
def migration(pid):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return []
    os.nice(2)
    for cpu in (cpus[0], cpus[1], cpus[0]):
        os.sched_setaffinity(0, {cpu})
    return [
        f"migrate migrate {pid} 122 {cpus[0]} {cpus[1]}",
        f"migrate migrate {pid} 122 {cpus[1]} {cpus[0]}",
    ]


@test(
    """
probe scheduler.wait_task { if (pid() == target()) printf("%s %d %d %d\\n", name, task_pid(task), task_pid, task_priority) }
"""
)
def waits(_):
    # The tracer of a stopped task waits until the task has left its processor.
    os.sched_setaffinity(0, {0})

    def run():
        os.nice(4)
        libc.ptrace(0, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)

    kid = child(run)
    os.waitpid(kid, 0)
    # PTRACE_SETOPTIONS, PTRACE_CONT
    assert libc.ptrace(0x4200, kid, None, None) == 0
    assert libc.ptrace(7, kid, None, None) == 0
    os.waitpid(kid, 0)
    return [f"wait_task {kid} {kid} 124"]


@test(
    """
probe scheduler.kthread_stop { if (pid() == target()) printf("%s %d %d\\n", name, thread_pid, thread_priority) }
probe scheduler.kthread_stop.return { if (pid() == target()) printf("%s returned %d\\n", name, return_value) }
"""
)
def threads(_):
    # A network device with a kernel thread for its packets. The thread ends with the device.
    tun = os.open("/dev/net/tun", os.O_RDWR)
    napi, frames, bare = 0x10, 2, 0x1000
    request = struct.pack("16sH14x", b"spile0", frames | napi | bare)
    fcntl.ioctl(tun, 0x400454CA, request)
    try:
        subprocess.run(["ip", "link", "set", "spile0", "up"], check=True)
        with open("/sys/class/net/spile0/threaded", "w") as f:
            f.write("1")
        mine = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if comm_of(pid) == "napi/spile0-0"]
        # A thread that is stopped before its function ran returns EINTR.
        while state_of(mine[0]) != "S":
            time.sleep(0.001)
        prio = priorities(mine[0])
    finally:
        os.close(tun)
    return [f"kthread_stop {mine[0]} {prio}", "kthread_stop returned 0"]


def state_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def comm_of(pid):
    try:
        return open(f"/proc/{pid}/comm").read().strip()
    except OSError:
        return ""


@test(
    """
probe signal.send, scheduler.signal_send { if (pid() == target()) printf("%s %d\\n", name, name == "signal_send" ? signal_number : sig) }
probe scheduler.signal_send { if (pid() == target()) printf("to %d %d\\n", pid, signal_number) }
probe signal.send { if (pid() == target()) printf("send %d %s %d %d %s %d %s %d\\n", sig, sig_name, sig_pid, task_pid(task), pid_name, shared, si_code, sinfo) }
probe signal.handle { if (pid() == target()) printf("%s %d %s %d %s %d\\n", name, sig, sig_name, sig_code, sig_mode, ka_addr != 0) }
probe signal.handle { if (pid() == target() && sig == 40) printf("by %d %d\\n", @cast(sinfo, "kernel_siginfo")->si_signo, @cast(sinfo, "kernel_siginfo")->_sifields->_kill->_pid) }
"""
)
def signals(pid):
    comm = open("/proc/self/comm").read().strip()
    want = []
    names = {29: "SIGIO/SIGPOLL", 40: "0x28"}
    for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, 40):
        signal.signal(sig, lambda *_: None)
        os.kill(pid, sig)
        name = names.get(int(sig)) or signal.Signals(sig).name
        want += [
            f"signal_generate {int(sig)}",
            f"signal_send {int(sig)}",
            f"to {pid} {int(sig)}",
            rf"send {int(sig)} {name} {pid} {pid} {comm} 1 SI_USER or SI_TIMER or SI_ASYNCIO -?\d+",
            f"handle {int(sig)} {name} 0 User Mode Signal 1",
        ]
    want.append(f"by 40 {pid}")
    # Signals that the kernel sends: for a pipe without a reader, and, with a code, for an unmapped address.
    signal.signal(signal.SIGPIPE, lambda *_: None)
    r, w = os.pipe()
    os.close(r)
    try:
        os.write(w, b"x")
    except OSError:
        pass
    want += [
        rf"send 13 SIGPIPE {pid} {pid} {comm} \d SI_USER or SI_TIMER or SI_ASYNCIO 0",
        r"handle 13 SIGPIPE 0 User Mode Signal 1",
    ]
    # To this thread only.
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    want.append(rf"send 10 SIGUSR1 {pid} {pid} {comm} 0 .*")
    want.append("handle 10 SIGUSR1 -6 User Mode Signal 1")
    return want


# ---- block devices

@test(
    """
probe ioblock.request, ioblock_trace.request { if (execname() == "dd" || execname() == "blkdiscard") printf("%s %s rw %d sector %d size %d ino %d start %d segments %d idx %d op %d done %d own %d\\n", name, devname, rw, sector, size, ino, p_start_sect, phys_segments == vcnt, idx, opf & 255, name == "ioblock.request" ? hw_segments : bytes_done, bdev == bdev_contains) }
probe ioblock.end { if ((opf & 255) == rw && vcnt == phys_segments && idx + hw_segments >= 0) ends[devname, rw, error, ino]++ }
probe ioblock.end { printf("%s %s dev %d rw %d sector %d size %d done %d pinned %d traced %d\\n", name, devname, @cast(bdev, "block_device")->bd_dev, rw, sector, size, bytes_done, flags >> $2 & 1, flags >> $3 & 1) }
probe ioblock.request, ioblock_trace.request { if (execname() == "dd") printf("%s %d flags %d%d\\n", name, sector, flags >> $2 & 1, flags >> $3 & 1) }
probe ioblock.request { if (execname() == "dd" || execname() == "blkdiscard") begins[devname, rw, ino]++ }
probe end { foreach ([d, r, i] in begins) printf("ends of %s %d %d: %d of %d\\n", d, r, i, ends[d, r, 0, i], begins[d, r, i]) }
global begins, ends
probe ioblock_trace.request { if (execname() == "dd") printf("queue %d\\n", q == @cast(bdev, "block_device")->bd_queue) }
"""
)
def blocks(_):
    with open("disk", "wb") as f:
        f.truncate(16 << 20)
    device = subprocess.check_output(["losetup", "-f", "--show", "disk"], text=True).strip()
    try:
        for command in (
            f"dd if=/dev/zero of={device} bs=64k count=1 seek=3 oflag=direct status=none",
            f"dd if={device} of=/dev/null bs=4k count=1 skip=5 iflag=direct status=none",
            f"dd if={device} of=/dev/null bs=4k count=1 skip=1000 status=none",
            f"blkdiscard -o 65536 -l 131072 {device}",
            f"blkdiscard -z -o 65536 -l 131072 {device}",
        ):
            subprocess.run(command.split(), check=True)
        rdev = os.stat(device).st_rdev
        # Reads the second page of a partition at 1 MiB. A killed test may have left its partition behind.
        subprocess.run(["delpart", device, "1"], stderr=subprocess.DEVNULL)
        subprocess.run(["addpart", device, "1", "2048", "4096"], check=True)
        part = open(f"/sys/class/block/{os.path.basename(device)}p1/dev").read().strip().split(":")
        os.mknod("part", 0o600 | stat.S_IFBLK, os.makedev(*map(int, part)))
        subprocess.run("dd if=part of=/dev/null bs=4k count=1 skip=1 iflag=direct status=none".split(), check=True)
        subprocess.run(["delpart", device, "1"], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    # The inode that has a block device's pages has the device's number.
    node = os.major(rdev) << 20 | os.minor(rdev)
    name = os.path.basename(device)
    want = ["queue 1"]
    line = f"%s {name}p1 rw 0 sector %d size 4096 ino -1 start 2048 segments 1 idx 0 op 0 done %d own 0"
    want += [line % ("ioblock.request", 8, 0), line % ("ioblock_trace.request", 2056, 4096)]
    for rw, at, size, ino in (
        (1, 3 * 65536, 65536, -1),
        (0, 5 * 4096, 4096, -1),
        (0, 1000 * 4096, 4096, node),
        (3, 65536, 131072, -1),
        (9, 65536, 131072, -1),
    ):
        line = f"%s {name} rw {rw} sector {at // 512} size {size} ino {ino} start 0 segments 1 idx 0 op {rw} done %d own 1"
        want.append(rf"ends of {name} {rw} {ino}: (\d+) of \1")
        want += [line % ("ioblock.request", 0), line % ("ioblock_trace.request", size)]
        # The kernel pins a program's pages for direct input and output. Its own page of zeros is not pinned.
        pinned = int(rw < 2 and ino == -1)
        want.append(f"ioblock.end {name} dev {node} rw {rw} sector {at // 512} size {size} done {size} pinned {pinned} traced 1")
        if rw < 2:
            want += [f"{point} {at // 512} flags {pinned}0" for point in ("ioblock.request", "ioblock_trace.request")]
    return want


def bits_of_requests():
    """The numbers of two request flags, which bpftool reads from the kernel's types."""
    text = subprocess.check_output(["bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux"], text=True)
    return [re.search(rf"'{name}' val=(\d+)", text)[1] for name in ("BIO_PAGE_PINNED", "BIO_TRACE_COMPLETION")]


@test(
    """
probe ioblock_trace.end {
  if (!(devname =~ "^zram")) next
  printf("%s %s %d of %d rw %d sector %d size %d done %d op %d start %d idx %d vcnt %d %d ino %d pinned %d traced %d\\n", name, devname, @cast(bdev, "block_device")->bd_dev, @cast(bdev_contains, "block_device")->bd_dev, rw, sector, size, bytes_done, opf & 255, p_start_sect, idx, vcnt, phys_segments, ino, flags >> $2 & 1, flags >> $3 & 1)
  printf("sectors %d\\n", @cast(q, "request_queue")->disk->part0->bd_nr_sectors)
}
"""
)
def completions(_):
    # A disk in memory has no queue of its own.
    number = int(open("/sys/class/zram-control/hot_add").read())
    try:
        with open(f"/sys/block/zram{number}/disksize", "w") as f:
            f.write(str(8 << 20))
        device = f"/dev/zram{number}"
        for command in (
            f"dd if=/dev/zero of={device} bs=64k count=1 seek=3 oflag=direct status=none",
            f"dd if={device} of=/dev/null bs=8k count=1 skip=5 iflag=direct status=none",
            f"dd if={device} of=/dev/null bs=4k count=1 skip=1000 status=none",
        ):
            subprocess.run(command.split(), check=True)
        rdev = os.stat(device).st_rdev
        node = os.major(rdev) << 20 | os.minor(rdev)
    finally:
        with open("/sys/class/zram-control/hot_remove", "w") as f:
            f.write(str(number))
    want = [f"sectors {(8 << 20) // 512}"]
    for rw, at, size, ino in (
        (1, 3 * 65536, 65536, -1), (0, 5 * 8192, 8192, -1), (0, 1000 * 4096, 4096, node),
    ):  # fmt: skip
        pinned = int(ino == -1)
        want.append(rf"ioblock_trace\.end zram{number} {node} of {node} rw {rw} sector {at // 512} size {size} done {size} op {rw} start 0 idx \d+ vcnt (\d+) \1 ino {ino} pinned {pinned} traced 1")
    return want


# ---- the kernel's memory, interrupts

GFP = {
    "DMA": 0x1, "HIGHMEM": 0x2, "DMA32": 0x4, "MOVABLE": 0x8, "RECLAIMABLE": 0x10, "HIGH": 0x20,
    "IO": 0x40, "FS": 0x80, "ZERO": 0x100, "DIRECT_RECLAIM": 0x400, "KSWAPD_RECLAIM": 0x800,
    "WRITE": 0x1000, "NOWARN": 0x2000, "RETRY_MAYFAIL": 0x4000, "NOFAIL": 0x8000,
    "NORETRY": 0x10000, "MEMALLOC": 0x20000, "COMP": 0x40000, "NOMEMALLOC": 0x80000,
    "HARDWALL": 0x100000, "THISNODE": 0x200000, "ACCOUNT": 0x400000,
}  # fmt: skip
RECLAIM = GFP["DIRECT_RECLAIM"] | GFP["KSWAPD_RECLAIM"]
SETS = {
    "GFP_ATOMIC": GFP["HIGH"] | GFP["KSWAPD_RECLAIM"],
    "GFP_NOIO": RECLAIM,
    "GFP_NOFS": RECLAIM | GFP["IO"],
    "GFP_KERNEL": RECLAIM | GFP["IO"] | GFP["FS"],
    "GFP_USER": RECLAIM | GFP["IO"] | GFP["FS"] | GFP["HARDWALL"],
}


@test(
    """
probe vm.kmalloc, vm.kmem_cache_alloc { if (pid() == target()) printf("%s|%d|%s|%d|%d|%d|%d|%s\\n", name, gfp_flags, gfp_flag_name, bytes_req, bytes_alloc, ptr, call_site, caller_function) }
probe vm.kfree, vm.kmem_cache_free { if (pid() == target()) printf("%s|%d|%d|%s\\n", name, ptr, call_site, caller_function) }
"""
)
def memory(_):
    for _ in range(20):
        os.close(os.open("/proc/self/status", os.O_RDONLY))
        r, w = os.pipe()
        os.close(r)
        os.close(w)
    return check_memory


def check_memory(lines):
    symbols = {}
    for line in open("/proc/kallsyms"):
        address, kind, name = line.split()[:3]
        if kind in "tTwW":
            symbols.setdefault(name, []).append(int(address, 16))
    live, seen, freed = {}, set(), 0
    for line in lines:
        part = line.split("|") if "|" in line else []
        if part and part[0] in ("kmalloc", "kmem_cache_alloc"):
            name, flags, text, wanted, given, ptr, site, caller = (
                part[0], int(part[1]), "|".join(part[2:-5]), *map(int, part[-5:-1]), part[-1],
            )  # fmt: skip
            bits = SETS.get(text)
            if bits is None:
                bits = sum(GFP[word.removeprefix("__GFP_")] for word in text.split(" | ") if word)
            assert bits == flags & 0x7FFDFF, line
            assert (flags in SETS.values()) == (text in SETS), line
            assert 0 < wanted <= given or ptr == 0, line
            live[ptr] = name
            seen.add(name)
        elif part and part[0] in ("kfree", "kmem_cache_free"):
            ptr, site, caller = int(part[1]), int(part[2]), part[3]
            freed += live.pop(ptr, None) is not None
            seen.add(part[0])
        else:
            continue
        # The caller is the function of the last symbol before the address.
        site += 1 << 64 if site < 0 else 0
        if caller in symbols:
            assert any(0 <= site - at < 65536 for at in symbols[caller]), line
    assert seen == {"kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"}, seen
    assert freed > 10, freed


@test(
    """
probe vm.kmem_cache_alloc_node {
  if (pid() == target() && symname(call_site) == "perf_event_alloc")
    printf("%s %d %s %d %d %d %s\\n", name, gfp_flags, gfp_flag_name, bytes_req, bytes_alloc, ptr < 0, caller_function)
}
"""
)
def nodes(_):
    # The kernel allocates the event of a processor in the memory of the processor's node.
    attr = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 1), 112)
    for _ in range(5):
        event = libc.syscall(298, attr, -1, 0, -1, 0)
        assert event >= 0
        os.close(event)
    return check_nodes


def check_nodes(lines):
    size, room = (open(f"/sys/kernel/slab/perf_event/{name}").read().strip() for name in ("object_size", "slab_size"))
    words = ("IO", "FS", "ZERO", "DIRECT_RECLAIM", "KSWAPD_RECLAIM")
    flags, text = sum(GFP[w] for w in words), " | ".join(f"__GFP_{w}" for w in words)
    want = f"kmem_cache_alloc_node {flags} {text} {size} {room} 1 perf_event_alloc"
    assert lines == [want] * 5, (lines, want)


@test(
    """
probe irq_handler.entry, irq_handler.exit { printf("irq|%s|%d|%s|%d|%s|%d\\n", name, irq, kernel_string(dev_name), flags, flags_str, name == "exit" ? ret : 0)
  if (irqflags_str(flags) != flags_str || action != $action || handler != $action->handler || dev_id != $action->dev_id || next_irqaction != $action->next || thread_fn != $action->thread_fn || thread != $action->thread || thread_flags != $action->thread_flags || dir != $action->dir) println("differs") }
probe softirq.entry, softirq.exit { count[name, vec_nr]++; if (h || vec || action) println("differs") }
probe end { foreach ([n, v] in count) printf("soft|%s|%d|%d\\n", n, v, count[n, v]) }
global count
"""
)
def interrupts(_):
    # Interrupts of a disk or of a network device.
    for _ in range(20):
        with open("data", "wb") as f:
            f.write(b"x" * 65536)
            f.flush()
            os.fsync(f.fileno())
    return check_interrupts


def check_interrupts(lines):
    names = {}
    for line in open("/proc/interrupts"):
        words = line.split()
        if words and words[0].rstrip(":").isdigit():
            names[int(words[0].rstrip(":"))] = line
    flag = {
        0x80: "SHARED", 0x100: "PROBE_SHARED", 0x200: "TIMER", 0x400: "PERCPU", 0x800: "NOBALANCING",
        0x1000: "IRQPOLL", 0x2000: "ONESHOT",
    }  # fmt: skip
    soft = {}
    for line in lines:
        assert line != "differs"
        part = line.split("|")
        if part[0] == "irq":
            number, device, flags, text = int(part[2]), part[3], int(part[4]), "|".join(part[5:-1])
            assert number in names and device in names[number], line
            known = [f"IRQF_{name}" for bit, name in flag.items() if flags & bit]
            rest = flags & ~sum(flag) & ~(0x14000 if flags & 0x200 else 0)
            assert text == "|".join(known + ([f"{rest:#x}"] if rest or not known else [])), line
            assert part[-1] in "012", line
        elif part[0] == "soft":
            assert 0 <= int(part[2]) < 10 and int(part[3]) > 0, line
            soft[part[1], part[2]] = int(part[3])
    assert ("entry", "1") in soft or ("entry", "7") in soft or ("entry", "9") in soft, soft


# ---- at functions of the kernel

@test(
    """
probe vfs.read, vfs.write { if (pid() == target()) printf("%s %s|%s %d|%s|%d\\n", pn(), name, argstr, buf, devname, ino) }
probe vfs.read.return { if (pid() == target() && bytes_to_read == 21) printf("%s %s %d %s %d %d %s|%d %d\\n", pn(), name, ret, retstr, bytes_read, error, error_str, ino, dev) }
probe vfs.write.return { if (pid() == target() && bytes_to_write == 23) printf("%s %s %d %s %d %d %s|%d %d\\n", pn(), name, ret, retstr, bytes_written, error, error_str, ino, dev) }
probe vfs.open { if (pid() == target()) printf("%s %s %s %d\\n", pn(), name, filename, @cast(cred, "cred")->uid->val) }
probe vfs.open.return { if (pid() == target()) printf("%s %s %s %d %s %d %s\\n", pn(), name, filename, ret, retstr, error, error_str) }
probe vfs.read { if (pid() == target() && bytes_to_read == 21) at("read", file, dev, pos, buf) }
probe vfs.write { if (pid() == target() && bytes_to_write == 23) at("write", file, dev, pos, buf) }
probe vfs.read.return { if (pid() == target() && bytes_to_read == 21) { at("has read", file, dev, pos, buf); println(devname) } }
probe vfs.write.return { if (pid() == target() && bytes_to_write == 23) { at("has written", file, dev, pos, buf); println(devname) } }
function at(what, file, dev, pos, buf) { printf("%s %d %d %d %d\\n", what, @cast(file, "file")->f_inode->i_ino, dev, @kderef(8, pos), buf) }
probe vfs.open { if (pid() == target()) printf("%s of %s with %o\\n", pn(), d_name(@cast(path, "path")->dentry), @cast(file, "file")->f_flags & 03777) }
probe vfs.open.return { if (pid() == target()) printf("%s of %s with %o by %d, inode %d\\n", pn(), d_name(@cast(path, "path")->dentry), @cast(file, "file")->f_flags & 03777, @cast(cred, "cred")->fsuid->val, @cast(file, "file")->f_inode->i_ino) }
probe kprocess.release { if (released_pid in kids) printf("release %d %d %d %d by %d\\n", pid, released_pid, released_tid, task_pid(task), pid()) }
probe kprocess.create { if (pid() == target()) kids[new_pid] = 1 }
global kids
"""
)
def files(pid):
    with open("there", "wb") as f:
        f.write(b"0123456789")
    want = []
    fd = os.open("there", os.O_RDWR)
    st = os.fstat(fd)
    dev = os.major(st.st_dev) << 20 | os.minor(st.st_dev)
    os.read(fd, 21)
    os.write(fd, b"x" * 23)
    # The call gives the position in the file. The address of the buffer is known.
    data = ctypes.create_string_buffer(64)
    at = ctypes.addressof(data)
    node = f"{st.st_ino} {dev}"
    assert libc.pread(fd, data, 21, ctypes.c_long(28)) == 5
    want += [f"read {node} 28 {at}", f"has read {node} 33 {at}"]
    assert libc.pwrite(fd, data, 23, ctypes.c_long(2)) == 23
    want += [f"write {node} 2 {at}", f"has written {node} 25 {at}"]
    os.chmod(".", 0o755)
    os.chmod("there", 0o666)
    libc.setfsuid(1234)
    os.close(os.open("there", os.O_WRONLY | os.O_APPEND))
    libc.setfsuid(0)
    flags = f"{os.O_WRONLY | os.O_APPEND:o}"
    want += [f"vfs.open of there with {flags}", f"vfs.open.return of there with {flags} by 1234, inode {st.st_ino}"]
    # A device with major number 0 is not a block device.
    if os.major(st.st_dev) == 0:
        want.append("N/A")
    folder = os.open(".", os.O_RDONLY)
    try:
        os.read(folder, 21)
    except OSError:
        pass
    want += [
        "vfs.open vfs.open there 0",
        "vfs.open.return vfs.open there 0 0 0 ",
        rf"vfs\.read vfs\.read\|21, -?\d+, 0x[0-9a-f]+ \d+\|.*\|{st.st_ino}",
        rf"vfs\.write vfs\.write\|23, -?\d+, 0x[0-9a-f]+ \d+\|.*\|{st.st_ino}",
        f"vfs.read.return vfs.read 10 10 10 0 |{st.st_ino} {dev}",
        f"vfs.write.return vfs.write 23 23 23 0 |{st.st_ino} {dev}",
        f"vfs.read.return vfs.read -21 -21 0 -21 EISDIR|{os.fstat(folder).st_ino} {dev}",
    ]
    kid = child(lambda: os._exit(0))
    os.waitpid(kid, 0)
    return want + [f"release {kid} {kid} {kid} {kid} by {pid}"]


@test(
    """
probe vm.pagefault { if (pid() == target() || ppid() == target()) { at[tid()] = address; printf("%s %d to write %d\\n", name, address, write_access) } }
probe vm.pagefault.return { if (tid() in at) printf("%s %d done, fault %d minor %d bus %d error %d\\n", name, at[tid()], fault_type, vm_fault_contains(fault_type, VM_FAULT_MINOR), vm_fault_contains(fault_type, VM_FAULT_SIGBUS), vm_fault_contains(fault_type, VM_FAULT_ERROR)) }
global at
"""
)
def faults(_):
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[3 * 4096 + 7] = 1
    memory[10 * 4096 + 9]
    want = []
    for at, write in ((start + 3 * 4096 + 7, 1), (start + 10 * 4096 + 9, 0)):
        want.append(f"pagefault {at} to write {write}")
        want.append(f"pagefault {at} done, fault 0 minor 1 bus 0 error 0")
    # Beyond the end of a file.
    with open("short", "wb+") as f:
        f.write(b"x")
        f.truncate(8192)
        beyond = mmap.mmap(f.fileno(), 8192)
        f.truncate(1)
    at = ctypes.addressof(ctypes.c_char.from_buffer(beyond)) + 5000
    kid = child(lambda: ctypes.string_at(at, 1))
    assert os.waitpid(kid, 0)[1] & 127 == signal.SIGBUS
    return want + [f"pagefault {at} to write 0", rf"pagefault {at} done, fault \d+ minor 0 bus 1 error 1"]


def run(spile, name):
    """The differences, and the lines without one."""
    script, work = TESTS[name]
    command = f"{sys.executable} {os.path.abspath(sys.argv[0])} work {name}"
    args = [spile, "-g", "-w", "-D", "MAXSKIPPED=1000000", "-e", script]
    args += ["-o", "saw", "-c", command, str(PORT)]
    if "$2" in script:
        args += bits_of_requests()
    args = [*BEFORE.get(name, []), *args]
    done = subprocess.run(args, text=True, capture_output=True, timeout=120)
    if done.returncode != 0:
        return [f"status {done.returncode}", done.stdout, done.stderr], []
    lines = open("saw").read().splitlines()
    want = json.load(open("did"))
    if want is None:
        globals()[f"check_{name}"](lines)
        return [], lines
    text = set(lines)
    found = {w: w if w in text else next((line for line in lines if re.fullmatch(w, line)), None) for w in want}
    missing = [w for w, line in found.items() if line is None]
    if "differs" in text:
        missing.append("a value differs from that of the tracepoint")
    return [f"missing: {w}" for w in missing] + (lines[:60] if missing else []), [line for line in found.values() if line]


def main():
    if sys.argv[1] == "work":
        want = TESTS[sys.argv[2]][1](os.getpid())
        with open("did", "w") as f:
            json.dump(None if callable(want) else want, f)
        return 0
    wrong, same = run(sys.argv[1], sys.argv[2])
    print("\n".join(wrong) if wrong else "\n".join([*same, f"{len(same)} lines as expected"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
