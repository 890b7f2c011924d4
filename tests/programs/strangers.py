"""Values of aliases that need packets of other machines, or memory that is short: `strangers.py SPILE TEST`, as
families.py.

The other machines are behind two devices of this program. The kernel's own counters say what the probes must count.
"""

import ctypes
import fcntl
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

# No files beside the sources.
sys.dont_write_bytecode = True

from aliases import PORT, child, libc, main, test
from families import Pattern, line, show

SOME = Pattern(r"-\d+")
# Ends of the devices: this machine's address and the other's.
NEAR, FAR = {"spile-a": "10.9.8.1", "spile-b": "10.9.9.1"}, {"spile-a": "10.9.8.7", "spile-b": "10.9.9.7"}
NOWHERE = "198.51.100.1"
GROUP = "239.7.7.7"
SYN, ACK, RST = 2, 16, 4


def setting(path, value):
    with open(f"/proc/sys/net/ipv4/{path}", "w") as file:
        file.write(value)


def counters():
    """The kernel's counters of protocols, by names as `Ip.ForwDatagrams`."""
    found = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        lines = open(path).read().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            kind, names = names.split(":")
            found |= {f"{kind}.{n}": int(v) for n, v in zip(names.split(), values.split(":")[1].split())}
    return found


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(source, to, protocol, payload, offset=0, wrong=0):
    """A packet of IPv4; `wrong` is added to its checksum."""
    ends = socket.inet_aton(source) + socket.inet_aton(to)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 7, offset, 64, protocol, 0) + ends
    return head[:10] + struct.pack(">H", checksum(head) ^ wrong) + head[12:] + payload


def segment(port, number, reply, flags, data=b""):
    """A segment of TCP from that port of the first machine to PORT of this one."""
    source, to = FAR["spile-a"], NEAR["spile-a"]
    head = struct.pack(">HHIIBBHHH", port, PORT, number, reply, 0x50, flags, 65000, 0, 0)
    over = socket.inet_aton(source) + socket.inet_aton(to) + struct.pack(">HH", 6, len(head) + len(data))
    padded = data + b"\0" * (len(data) % 2)
    sums = checksum(over + head + padded)
    return packet(source, to, 6, head[:16] + struct.pack(">HH", sums, 0) + data)


class Wire:
    """A device of packets of IPv4 whose other end is this program."""

    def __init__(self, name):
        self.name = name
        self.end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # TUNSETIFF: IFF_TUN | IFF_NO_PI
        fcntl.ioctl(self.end, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))
        control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # SIOCSIFADDR, SIOCSIFDSTADDR, SIOCSIFFLAGS: IFF_UP
        for request, data in (
            (0x8916, struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(NEAR[name]))),
            (0x8918, struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(FAR[name]))),
            (0x8914, struct.pack("H22x", 1)),
        ):
            fcntl.ioctl(control, request, struct.pack("16s24s", name.encode(), data))

    def send(self, *packets):
        for one in packets:
            os.write(self.end, one)

    def receive(self, wanted, limit=30):
        """The first packet that is wanted."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            try:
                one = os.read(self.end, 2000)
                if wanted(one):
                    return one
            except BlockingIOError:
                time.sleep(0.01)
        raise TimeoutError(f"no such packet at {self.name}")

    def rest(self):
        """The packets that wait."""
        found = []
        try:
            while True:
                found.append(os.read(self.end, 2000))
        except BlockingIOError:
            return found


def from_port(one, to):
    """Whether a packet is a segment of PORT for that port."""
    return one[9] == 6 and struct.unpack(">HH", one[20:24]) == (PORT, to)


def numbers(one):
    """Number, reply and flags of a segment."""
    number, reply, _, flags = struct.unpack(">IIBB", one[24:34])
    return number, reply, flags


def shake(wire, ports):
    """Begins connections from these ports; returns the numbers that each side expects."""
    ends = {}
    wire.send(*[segment(port, 1000, 0, SYN) for port in ports])
    for port in ports:
        answer = wire.receive(lambda one: from_port(one, port) and numbers(one)[2] == SYN | ACK)
        ends[port] = numbers(answer)[0] + 1
    wire.send(*[segment(port, 1001, ends[port], ACK) for port in ports])
    return ends


COUNTED = ("ForwDatagrams", "InNoRoutes", "InAddrErrors", "InDiscards", "ReasmTimeout")


@test(
    "".join(show(f"ipmib.{name}", "skb op SourceIsLocal key", "key") for name in COUNTED)
    + "probe ipmib.ReasmTimeout { if (key) timeouts++ }\nglobal timeouts\n"
    + 'probe end { printf("counts %d %d %d %d %d\\n", ForwDatagrams[1], InNoRoutes[1], InAddrErrors[1], InDiscards[1], timeouts) }\n'
)
def strange_packets(_):
    """Of ipmib: ipmib.ForwDatagrams, ipmib.InNoRoutes, ipmib.InAddrErrors, ipmib.InDiscards, ipmib.ReasmTimeout."""
    first, second = Wire("spile-a"), Wire("spile-b")
    setting("conf/spile-a/forwarding", "1")
    setting("conf/spile-b/forwarding", "0")
    setting("ipfrag_time", "1")
    before = counters()
    text = struct.pack(">HHHH", 5000, 5001, 12, 0) + b"text"
    first.send(*[packet(FAR["spile-a"], FAR["spile-b"], 17, text) for _ in range(3)])
    for _ in range(3):
        assert second.receive(lambda one: one[9] == 17)[-4:] == b"text"
    first.send(*[packet(FAR["spile-a"], NOWHERE, 17, text) for _ in range(2)])
    # This machine takes no packet further that comes from there.
    second.send(*[packet(FAR["spile-b"], NOWHERE, 17, text) for _ in range(4)])
    first.send(*[packet(FAR["spile-a"], NEAR["spile-a"], 17, text, wrong=1) for _ in range(5)])
    # The first part of a packet; 0x2000: more follow.
    first.send(packet(FAR["spile-a"], NEAR["spile-a"], 17, text + b"12345678" * 4, offset=0x2000))
    # The answer: it took too long.
    first.receive(lambda one: one[9] == 1 and one[20:22] == b"\x0b\x01")
    after = counters()
    did = [after[n] - before[n] for n in ("Ip.ForwDatagrams", "IpExt.InNoRoutes", "Ip.InAddrErrors", "Ip.ReasmTimeout")]
    assert did == [3, 2, 4, 1], did
    known = dict(skb=SOME, key=1)
    return [
        "counts 3 2 4 5 1",
        *[line(f"ipmib.{name}", op=1, SourceIsLocal=0, **known) for name in COUNTED[:-1]],
        line("ipmib.ReasmTimeout", op=0, SourceIsLocal=1, **known),
    ]


MINE = "tcpmib_local_port(sk) == $1"


@test(
    show("linuxmib.ListenOverflows", "sk op key", MINE)
    + show("linuxmib.ListenDrops", "sk op key", MINE)
    + show("tcpmib.RetransSegs", "sk op key", MINE)
    + f"probe tcpmib.RetransSegs {{ if ({MINE}) again++ }}\n"
    + f"probe linuxmib.DelayedACKs {{ if (op && {MINE}) late++ }}\nglobal again, late\n"
    + 'probe end { printf("counts %d %d %d\\n", ListenOverflows[1], ListenDrops[1], DelayedACKs[1]) printf("own %d %d\\n", again, late) }\n'
)
def strange_connections(_):
    wire = Wire("spile-a")
    server = socket.socket(socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((NEAR["spile-a"], PORT))
    # One connection may wait.
    server.listen(0)
    before = counters()
    ends = shake(wire, (5001, 5002, 5003))
    peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    wire.send(segment(5001, 1001, ends[5001], ACK, b"late"))
    wire.receive(lambda one: from_port(one, 5001) and numbers(one)[1:] == (1005, ACK))
    # What this machine sends gets no answer, so it comes again.
    peer.send(b"lost")
    same = lambda one: from_port(one, 5001) and one[-4:] == b"lost"
    for _ in range(3):
        wire.receive(same)
    wire.send(segment(5001, 1005, ends[5001], RST | ACK))
    try:
        peer.recv(9)
        assert peer.recv(9) == b""
    except ConnectionResetError:
        pass
    sent = 3 + sum(map(same, wire.rest()))
    after = counters()
    did = [after[f"TcpExt.{n}"] - before[f"TcpExt.{n}"] for n in ("ListenOverflows", "ListenDrops", "DelayedACKs")]
    assert did[:2] == [2, 2] and did[2] > 0, did
    server.close()
    known = dict(sk=SOME, op=1, key=1)
    return [
        f"counts {did[0]} {did[1]} {did[2]}",
        f"own {sent - 1} 1",
        line("linuxmib.ListenOverflows", **known),
        line("linuxmib.ListenDrops", **known),
        line("tcpmib.RetransSegs", **known),
    ]


@test(show("linuxmib.TCPMemoryPressures", "sk op key", "1") + 'probe end { printf("counts %d\\n", TCPMemoryPressures[1]) }\n')
def short_of_network_memory(_):
    limits = open("/proc/sys/net/ipv4/tcp_mem").read()
    before = counters()["TcpExt.TCPMemoryPressures"]
    setting("tcp_mem", "1 2 1000000")
    try:
        server = socket.create_server(("127.0.0.1", PORT))
        ends = [server]
        # Each processor has some memory of its own before the common limits count.
        for _ in range(40):
            client = socket.create_connection(("127.0.0.1", PORT))
            ends += [client, server.accept()[0]]
            client.setblocking(False)
            try:
                while True:
                    client.send(b"a" * 10000)
            except BlockingIOError:
                pass
        for end in ends:
            end.close()
    finally:
        setting("tcp_mem", limits)
    did = counters()["TcpExt.TCPMemoryPressures"] - before
    assert did > 0
    return [f"counts {did}", line("linuxmib.TCPMemoryPressures", sk=SOME, op=1, key=1)]


def move(name, pid):
    """Moves a device to the network of another process."""
    attributes = struct.pack("HHI", 8, 19, pid)
    # RTM_NEWLINK with IFLA_NET_NS_PID, to be acknowledged.
    body = struct.pack("BxHiII", 0, 0, socket.if_nametoindex(name), 0, 0) + attributes
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    link.send(struct.pack("IHHII", 16 + len(body), 16, 5, 1, 0) + body)
    assert struct.unpack("i", link.recv(4096)[16:20]) == (0,)


@test(
    show("netdev.rx", "netdev dev_name:s protocol")
    + show("netdev.close", "dev_name:s")
    + show("netdev.change_rx_flag", "dev_name:s flags").replace("_flag {", "_flag? {")
)
def devices_of_strangers(_):
    wire = Wire("spile-a")
    index = socket.if_nametoindex("spile-a")
    member = struct.pack("4s4si", socket.inet_aton(GROUP), bytes(4), index)
    by = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.bind((GROUP, PORT))
    to.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    by.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, member)
    # This machine gets its own copy.
    by.sendto(b"to the group", (GROUP, PORT))
    assert to.recv(99) == b"to the group"
    watch = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # PACKET_ADD_MEMBERSHIP of PACKET_MR_PROMISC
    watch.setsockopt(263, 1, struct.pack("iHH8s", index, 1, 0, b""))
    watch.close()
    ready, go = os.pipe()

    def elsewhere():
        assert libc.unshare(0x40000000) == 0
        os.write(go, b"x")
        time.sleep(100)

    kid = child(elsewhere)
    os.read(ready, 1)
    move("spile-a", kid)
    os.kill(kid, signal.SIGKILL)
    os.waitpid(kid, 0)
    want = [
        # 0x0800 as on the wire.
        line("netdev.rx", netdev=SOME, dev_name="spile-a", protocol=8),
        line("netdev.close", dev_name="spile-a"),
    ]
    if there("dev_change_rx_flags"):
        # IFF_PROMISC
        want.append(line("netdev.change_rx_flag", dev_name="spile-a", flags=256))
    return want


def there(function):
    """Whether the kernel has a function of that name."""
    return re.search(rf"^\S+ [tT] {function}$", open("/proc/kallsyms").read(), re.M) is not None


@test('probe vm.oom_kill { printf("%s %d %s\\n", name, task_pid(task), task_execname(task)) }\n')
def short_of_memory(_):
    folder = os.path.abspath("groups")
    os.mkdir(folder)
    assert libc.mount(b"none", folder.encode(), b"cgroup2", 0, None) == 0
    group = f"{folder}/spile"
    try:
        with open(f"{folder}/cgroup.subtree_control", "w") as file:
            file.write("+memory")
        os.mkdir(group)
        for name, value in (("memory.max", str(20 << 20)), ("memory.swap.max", "0")):
            if os.path.exists(f"{group}/{name}"):
                with open(f"{group}/{name}", "w") as file:
                    file.write(value)

        def greedy():
            with open("/proc/self/comm", "w") as file:
                file.write("greedy")
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write("0")
            b"a" * (100 << 20)

        kid = child(greedy)
        assert os.waitpid(kid, 0)[1] == signal.SIGKILL
        kills = re.search(r"^oom_kill (\d+)$", open(f"{group}/memory.events").read(), re.M)
        assert int(kills[1]) == 1
        os.rmdir(group)
    finally:
        libc.umount2(folder.encode(), 2)
    return [f"oom_kill {kid} greedy"]


@test('probe begin {} probe vm.write_shared_copy? { if (ppid() == target()) printf("%s %d %d\\n", name, address, zero) }\n')
def copies_of_pages(_):
    pages = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[7] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))

    def write():
        pages[9] = 2
        # A page that was only read is that of zeros.
        assert pages[4096 + 11] == 0
        pages[4096 + 12] = 3
        os._exit(0)

    assert os.waitpid(child(write), 0)[1] == 0
    if not there("wp_page_copy"):
        return []
    return [rf"write_shared_copy ({start}|{start + 9}) 0", rf"write_shared_copy ({start + 4096}|{start + 4096 + 12}) 1"]


@test(
    show("generic.fop.open", "name:s argstr:s dev devname:s file filename:s flag ino pathname:s size")
    + show("generic.fop.open.return", "name:s retstr:s")
)
def files_in_memory(_):
    folder = os.path.abspath("memory")
    os.mkdir(folder)
    assert libc.mount(b"none", folder.encode(), b"tmpfs", 0, None) == 0
    try:
        path = f"{folder}/some file"
        with open(path, "w") as file:
            file.write("twelve bytes")
        file = os.open(path, os.O_RDONLY)
        st = os.fstat(file)
        os.close(file)
    finally:
        libc.umount2(folder.encode(), 2)
    version = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()
    if tuple(map(int, version)) < (6, 6):
        # There a file in memory is opened by no function of its own.
        return []
    return [
        line(
            "generic.fop.open", name="generic_file_open", dev=st.st_dev, devname="N/A", file=SOME, filename="some file",
            flag=os.O_RDONLY | 0o100000, ino=st.st_ino, pathname=path, size=12,
        ),
        line("generic.fop.open.return", name="generic_file_open", retstr="0"),
    ]


PAGE = "name:s argstr:s dev devname:s index ino size units:s"


@test(
    show("vfs.buffer_migrate_page", PAGE, 'devname == "ram0"')
    + show("vfs.buffer_migrate_page.return", "name:s retstr:s size units:s")
    + show("vfs.do_mpage_readpage", PAGE)
    + show("vfs.do_mpage_readpage.return", "name:s retstr:s size units:s")
)
def pages_of_disks(_):
    """A disk in memory, with a file system whose pages have buffers."""
    folder = os.path.abspath("disk")
    os.mkdir(folder)
    module = f"/usr/lib/modules/{os.uname().release}/brd.ko"
    subprocess.run(["insmod", module, "rd_nr=1", "rd_size=8192"], check=True)
    try:
        subprocess.run(["mke2fs", "/dev/ram0"], check=True, stdout=subprocess.DEVNULL)
        raw = os.open("/dev/ram0", os.O_RDONLY)
        os.posix_fadvise(raw, 0, 0, os.POSIX_FADV_DONTNEED)
        assert len(os.pread(raw, 4096, 16 * 4096)) == 4096
        disk = os.fstat(raw).st_rdev
        os.close(raw)
        assert libc.mount(b"/dev/ram0", folder.encode(), b"ext4", 0, None) == 0
        try:
            with open(f"{folder}/file", "wb+") as file:
                file.write(b"a" * (8 * 4096))
                file.flush()
                os.fsync(file.fileno())
                st = os.fstat(file.fileno())
                place = mmap.mmap(file.fileno(), 8 * 4096)
                # The kernel drops a page that it could read again.
                place[3 * 4096] = ord("b")
                # MADV_SOFT_OFFLINE: the kernel gives the memory of a page up, and moves its bytes elsewhere.
                try:
                    place.madvise(101, 3 * 4096, 4096)
                    moved = True
                except OSError:
                    # CONFIG_MEMORY_FAILURE is not set.
                    moved = False
                assert place[3 * 4096 : 3 * 4096 + 2] == b"ba"
                place.close()
        finally:
            libc.umount2(folder.encode(), 0)
    finally:
        subprocess.run(["rmmod", "brd"], check=True)
    number = (os.major(st.st_dev) << 20) | os.minor(st.st_dev)
    move = dict(name="buffer_migrate_page", size=1, units="pages")
    read = dict(name="do_mpage_readpage", units="pages")
    # The inode of a block device has its number.
    inode = (os.major(disk) << 20) | os.minor(disk)
    moves = [
        line("vfs.buffer_migrate_page", argstr="3", index=3, dev=number, devname="ram0", ino=st.st_ino, **move),
        line("vfs.buffer_migrate_page.return", retstr="0", **move),
    ]
    return (moves if moved else []) + [
        line("vfs.do_mpage_readpage", argstr="16", index=16, ino=inode, size=1, **read),
        line("vfs.do_mpage_readpage.return", size=1, **read),
    ]


if __name__ == "__main__":
    sys.exit(main())
