"""Values of the library's aliases against what a workload does: `aliases.py SPILE TEST`.

Each test is a script, the work that is done under it, and what the script must have printed by what
the work knows of itself: its numbers, /proc, its packets. Prints `ok`, or what differs.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

TESTS = {}


def test(script):
    """The function makes the work, in the process that the script has for target(). It gives back
    the lines that must be there, some as regular expressions, or what checks them."""

    def add(work):
        TESTS[work.__name__] = (script, work)
        return work

    return add


def fields(pid, name):
    """The numbers of /proc/PID/stat, from 1 on as in proc(5)."""
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
    # proc(5): 39 to 0 for nice values, below 0 for real-time tasks; the kernel's own is 100 more.
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
probe scheduler.wakeup_new { if (pid() == target()) printf("new %s %d %d %d %d %d\\n", name, task_pid(task), task_pid, task_tid, task_priority, task_state) }
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
    # The kernel frees a task some time after it is gone.
    time.sleep(0.5)
    want = [
        f"fork process_fork {pid} {kid} {kid} {pid} {kid}",
        rf"new wakeup_new {kid} {kid} {kid} 123 \d+",
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
probe signal.send, scheduler.signal_send { if (pid() == target()) printf("%s %d\\n", name, name == "signal_send" ? signal_number : sig) }
probe scheduler.signal_send { if (pid() == target()) printf("to %d %d\\n", pid, signal_number) }
probe signal.send { if (pid() == target()) printf("send %d %s %d %d %s %d %s %d\\n", sig, sig_name, sig_pid, task_pid(task), pid_name, shared, si_code, sinfo) }
probe signal.handle { if (pid() == target()) printf("%s %d %s %d %s %d\\n", name, sig, sig_name, sig_code, sig_mode, ka_addr != 0) }
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
    # The kernel's own: of a pipe that nobody reads, and with its code of an address that is not there.
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
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    # The inode of a block device's pages is numbered by the device.
    node = os.major(rdev) << 20 | os.minor(rdev)
    name = os.path.basename(device)
    want = ["queue 1"]
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
        # The function that asked is the last symbol before the place.
        site += 1 << 64 if site < 0 else 0
        if caller in symbols:
            assert any(0 <= site - at < 65536 for at in symbols[caller]), line
    assert seen == {"kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"}, seen
    assert freed > 10, freed


@test(
    """
probe irq_handler.entry, irq_handler.exit { printf("irq|%s|%d|%s|%d|%s|%d\\n", name, irq, dev_name, flags, flags_str, name == "exit" ? ret : 0)
  if (irqflags_str(flags) != flags_str || action != $action || handler != $action->handler || dev_id != $action->dev_id || next_irqaction != $action->next || thread_fn != $action->thread_fn || thread != $action->thread || thread_flags != $action->thread_flags || dir != $action->dir) println("differs") }
probe softirq.entry, softirq.exit { count[name, vec_nr]++; if (h || vec || action) println("differs") }
probe end { foreach ([n, v] in count) printf("soft|%s|%d|%d\\n", n, v, count[n, v]) }
global count
"""
)
def interrupts(_):
    # A disk's or a network's interrupts.
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


# ---- packets

PACKETS = """
probe netfilter.ip.local_out, netfilter.ip.post_routing, netfilter.ip.pre_routing, netfilter.ip.local_in {
  if (dport == $1) printf("%s %d %d\\n", pn(), family, length)
}
probe netfilter.ipv4.local_out, netfilter.ipv4.post_routing, netfilter.ipv4.pre_routing, netfilter.ipv4.local_in, netfilter.ipv6.local_out, netfilter.ipv6.post_routing, netfilter.ipv6.pre_routing, netfilter.ipv6.local_in {
  if (sport != $1 && dport != $1) next
  if (nf_drop != 0 || nf_accept != 1 || nf_stolen != 2 || nf_queue != 3 || nf_repeat != 4 || nf_stop != 5 || ipproto_tcp != 6 || ipproto_udp != 17 || udphdr != tcphdr) println("differs")
  printf("%s %s %d %d %s %s %d %d len %d flags %d%d%d%d%d%d in <%s> <%s> %d out <%s> <%s> %d devices %d%d\\n", pn(), pf, family, protocol, saddr, daddr, sport, dport, length, urg, ack, psh, rst, syn, fin, indev_name, in_mac, indev_mac_len, outdev_name, out_mac, outdev_mac_len, indev != 0, outdev != 0)
  printf("%s port %d version %d\\n", pn(), ntohs(@kderef(2, tcphdr)), @kderef(1, iphdr) >> 4)
}
probe netdev.transmit, netdev.receive { if (dev_name == "lo") printf("%s %s %d %d %d\\n", pn(), dev_name, length, protocol, truesize >= length) }
"""


@test(PACKETS)
def packets(pid):
    mac = open("/sys/class/net/lo/address").read().strip()
    length = int(open("/sys/class/net/lo/addr_len").read())
    want = []
    for family, host, pf, header in (
        (socket.AF_INET, "127.0.0.1", "ipv4", 20),
        (socket.AF_INET6, "::1", "ipv6", 40),
    ):
        text = host if family == socket.AF_INET else ":".join(["0000"] * 7 + ["0001"])
        to = socket.socket(family, socket.SOCK_DGRAM)
        try:
            to.bind((host, PORT))
        except OSError:
            continue
        by = socket.socket(family, socket.SOCK_DGRAM)
        by.bind((host, 0))
        by.sendto(b"a" * 33, (host, PORT))
        to.recv(100)
        own = by.getsockname()[1]
        size = header + 8 + 33
        lines = {}
        for hook, inside, outside in (
            ("local_out", 0, 1), ("post_routing", 0, 1), ("pre_routing", 1, 0), ("local_in", 1, 0),
        ):  # fmt: skip
            of = [f"<lo> <{mac}> {length}" if there else "<> <> 0" for there in (inside, outside)]
            lines[hook] = rf"%s {pf} {int(family)} %d {text} {text} %s %s len %s flags %s in {of[0]} out {of[1]} devices {inside}{outside}"
            point = rf"netfilter\.{pf}\.{hook}"
            want.append(lines[hook] % (point, 17, own, PORT, size, "000000"))
            want.append(rf"{point} port {own} version {pf[-1]}")
            want.append(f"netfilter.ip.{hook} {int(family)} {size}")
        ethernet = 0x0800 if family == socket.AF_INET else 0x86DD
        want.append(rf"netdev\.transmit lo {size + 14} {socket.htons(ethernet)} 1")
        want.append(rf"netdev\.receive lo {size} {socket.htons(ethernet)} 1")
        # The flags of a connection: its first packet, the answer, what is sent, and the end.
        server = socket.socket(family)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, PORT))
        server.listen()
        client = socket.socket(family)
        client.connect((host, PORT))
        peer, _ = server.accept()
        client.send(b"hello")
        peer.recv(10)
        own = client.getsockname()[1]
        client.close()
        peer.recv(10)
        peer.close()
        server.close()
        for hook, line in lines.items():
            point = rf"netfilter\.{pf}\.{hook}"
            want.append(line % (point, 6, own, PORT, r"\d+", "000010"))
            want.append(line % (point, 6, PORT, own, r"\d+", "010010"))
            want.append(line % (point, 6, own, PORT, header + 32 + 5, "011000"))
            want.append(line % (point, 6, own, PORT, header + 32, "010001"))
    return want


PORT = 47113


# ---- at functions of the kernel

@test(
    """
probe vfs.read, vfs.write { if (pid() == target()) printf("%s %s|%s %d|%s|%d\\n", pn(), name, argstr, buf, devname, ino) }
probe vfs.read.return { if (pid() == target() && bytes_to_read == 21) printf("%s %s %d %s %d %d %s|%d %d\\n", pn(), name, ret, retstr, bytes_read, error, error_str, ino, dev) }
probe vfs.write.return { if (pid() == target() && bytes_to_write == 23) printf("%s %s %d %s %d %d %s|%d %d\\n", pn(), name, ret, retstr, bytes_written, error, error_str, ino, dev) }
probe vfs.open { if (pid() == target()) printf("%s %s %s %d\\n", pn(), name, filename, @cast(cred, "cred")->uid->val) }
probe vfs.open.return { if (pid() == target()) printf("%s %s %s %d %s %d %s\\n", pn(), name, filename, ret, retstr, error, error_str) }
probe kprocess.release { if (released_pid in kids) printf("release %d %d %d by %d\\n", released_pid, released_tid, task_pid(task), pid()) }
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
    return want + [f"release {kid} {kid} {kid} by {pid}"]


@test(
    """
probe tcp.sendmsg, udp.sendmsg { if (pid() == target()) printf("%s %s %d %d %d\\n", pn(), name, family, size, sock != 0) }
probe tcp.sendmsg.return { if (pid() == target()) printf("%s %s %d\\n", pn(), name, size) }
probe tcp.recvmsg, udp.recvmsg, udp.sendmsg.return, tcp.recvmsg.return, udp.recvmsg.return { if (pid() == target()) printf("%s %s %d %d %s %s %d %d\\n", pn(), name, family, size, saddr, daddr, sport, dport) }
probe tcp.disconnect { if (pid() == target()) printf("%s %s %d %s %s %d %d\\n", pn(), name, family, saddr, daddr, sport, dport) }
probe tcp.disconnect.return { if (pid() == target()) printf("%s %s %d\\n", pn(), name, ret) }
probe tcp.receive { if (sport == $1 || dport == $1) printf("%s %d %d %s %s %d %d flags %d%d%d%d%d%d window %d %d\\n", name, family, protocol, saddr, daddr, sport, dport, urg, ack, psh, rst, syn, fin, window == ntohs(@cast(tcphdr, "tcphdr")->window), @kderef(1, iphdr) >> 4)
  if (syn && !ack) first = seq
  if (psh) printf("from %d ack %d\\n", seq - first, ackseq != 0) }
global first
"""
)
def connections(_):
    want = []
    for family, host, of in (
        (socket.AF_INET, "127.0.0.1", "ipv4"),
        (socket.AF_INET6, "::1", "ipv6"),
    ):
        text = host if family == socket.AF_INET else ":".join(["0000"] * 7 + ["0001"])
        server = socket.socket(family)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, PORT))
        except OSError:
            continue
        server.listen()
        client = socket.socket(family)
        client.connect((host, PORT))
        own = client.getsockname()[1]
        peer, _ = server.accept()
        client.send(b"hello")
        peer.recv(17)
        ends = f"{text} {text} {PORT} {own}"
        want += [
            f"tcp.sendmsg tcp.sendmsg {int(family)} 5 1",
            "tcp.sendmsg.return tcp.sendmsg 5",
            f"tcp.recvmsg tcp.recvmsg {int(family)} 17 {ends}",
            f"tcp.recvmsg.return tcp.recvmsg {int(family)} 5 {ends}",
            f"tcp.{of}.receive {int(family)} 6 {text} {text} {own} {PORT} flags 000010 window 1 {of[-1]}",
            f"tcp.{of}.receive {int(family)} 6 {text} {text} {PORT} {own} flags 010010 window 1 {of[-1]}",
            f"tcp.{of}.receive {int(family)} 6 {text} {text} {own} {PORT} flags 011000 window 1 {of[-1]}",
            # The first byte comes after the number that opened the connection.
            "from 1 ack 1",
        ]
        # A connection that the other side cut has its local port still in `inet_sport`.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        try:
            client.recv(19)
        except OSError:
            pass
        want.append(f"tcp.recvmsg tcp.recvmsg {int(family)} 19 {text} {text} {own} {PORT}")
        client.close()
        server.close()
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.bind(("127.0.0.1", PORT))
    by = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    by.connect(("127.0.0.1", PORT))
    own = by.getsockname()[1]
    by.send(b"a" * 33)
    to.recv(100)
    return want + [
        "udp.sendmsg udp.sendmsg 2 33 1",
        f"udp.sendmsg.return udp.sendmsg 2 33 127.0.0.1 127.0.0.1 {own} {PORT}",
        f"udp.recvmsg udp.recvmsg 2 100 127.0.0.1 0.0.0.0 {PORT} 0",
        f"udp.recvmsg.return udp.recvmsg 2 33 127.0.0.1 0.0.0.0 {PORT} 0",
    ]


def run(spile, name):
    script, work = TESTS[name]
    command = f"{sys.executable} {os.path.abspath(__file__)} work {name}"
    args = [spile, "-w", "-D", "MAXSKIPPED=1000000", "-e", script]
    args += ["-o", "saw", "-c", command, str(PORT)]
    done = subprocess.run(args, text=True, capture_output=True, timeout=120)
    if done.returncode != 0:
        return [f"status {done.returncode}", done.stdout, done.stderr]
    lines = open("saw").read().splitlines()
    want = json.load(open("did"))
    if want is None:
        globals()[f"check_{name}"](lines)
        return []
    text = set(lines)
    missing = [w for w in want if w not in text and not any(re.fullmatch(w, line) for line in text)]
    if "differs" in text:
        missing.append("a value differs from that of the tracepoint")
    return [f"missing: {w}" for w in missing] + (lines[:60] if missing else [])


def main():
    if sys.argv[1] == "work":
        want = TESTS[sys.argv[2]][1](os.getpid())
        with open("did", "w") as f:
            json.dump(None if callable(want) else want, f)
        return 0
    wrong = run(sys.argv[1], sys.argv[2])
    print("\n".join(wrong) if wrong else "ok")
    return 1 if wrong else 0


sys.exit(main())
