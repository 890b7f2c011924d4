"""Compares the values of whole families of aliases with workloads, like aliases.py: `families.py SPILE TEST`.

A script prints all variables of an alias in one line for each hit. The workload gives the expected values of those
that it knows. The others must only have the right type.
"""

import ctypes
import fcntl
import mmap
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

# Writes no bytecode files next to the sources.
sys.dont_write_bytecode = True

from aliases import PORT, child, libc, main, test

# The variables that scripts print, by alias; `:s` marks texts.
SHOWN = {}
SIGUSR1, SIGSEGV = int(signal.SIGUSR1), int(signal.SIGSEGV)


def show(alias, variables, when="pid() == target()"):
    """A probe of the alias that prints these variables."""
    names = [v.removesuffix(":s") for v in variables.split()]
    SHOWN[alias] = variables.split()
    marks = [f"{n}=%{'s' if v.endswith(':s') else 'd'}" for n, v in zip(names, variables.split())]
    values = "".join(f", {n}" for n in names)
    return f'probe {alias} {{ if ({when}) printf("{alias} {" ".join(marks)}\\n"{values}) }}\n'


class Pattern(str):
    """A regular expression that the value must match."""


def line(alias, **known):
    """A regular expression for the line of an alias, with the known values."""
    parts = []
    for variable in SHOWN[alias]:
        name = variable.removesuffix(":s")
        value = known.pop(name, Pattern(".*" if variable.endswith(":s") else r"-?\d+"))
        text = f"(?:{value})" if isinstance(value, Pattern) else re.escape(str(value))
        parts.append(f"{name}={text}")
    assert not known, known
    return re.escape(alias) + " " + " ".join(parts)


SOCKET = "protocol family state flags type"
MADE = "name:s protocol family type requester"


@test(
    show("socket.create", MADE)
    + show("socket.create.return", MADE + " err success")
    + "".join(
        show(f"socket.{way}", f"name:s size {SOCKET}")
        + show(f"socket.{way}.return", f"name:s size {SOCKET} success _sock")
        for way in ("sendmsg", "recvmsg")
    )
    + "".join(
        show(f"socket.{way}", f"name:s size {SOCKET} _sock")
        + show(f"socket.{way}.return", f"name:s size {SOCKET} success _sock")
        for way in ("write_iter", "read_iter")
    )
    + show("socket.close", f"name:s {SOCKET}")
    + show("socket.close.return", "name:s")
    + "".join(show(f"socket.{way}", f"name:s size {SOCKET} success _sock") for way in ("send", "receive"))
)
def sockets(_):
    """socket.sendmsg, socket.sendmsg.return, socket.recvmsg, socket.recvmsg.return, socket.write_iter,
    socket.write_iter.return, socket.read_iter, socket.read_iter.return, socket.send, socket.receive."""
    # The kernels differ in the state of a pair: SS_UNCONNECTED or SS_CONNECTED.
    pair = dict(protocol=0, family=int(socket.AF_UNIX), type=int(socket.SOCK_DGRAM))
    of = dict(pair, state=Pattern("[13]"))
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"a" * 33)
    assert len(other.recv(77)) == 33
    os.write(one.fileno(), b"a" * 34)
    assert len(os.read(other.fileno(), 78)) == 34
    one.close()
    other.close()
    server = socket.create_server(("127.0.0.1", PORT))
    client = socket.create_connection(("127.0.0.1", PORT))
    peer, _ = server.accept()
    client.send(b"a" * 35)
    os.write(client.fileno(), b"a" * 36)
    assert len(peer.recv(71, socket.MSG_WAITALL)) == 71
    client.send(b"a" * 37)
    assert len(os.read(peer.fileno(), 80)) == 37
    # SS_CONNECTED
    connected = dict(protocol=6, family=2, type=1, state=3)
    for end in (client, peer, server):
        end.close()
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_UDP)
    except OSError as error:
        refused = -error.errno
    want = [
        line("socket.create", name="socket.create", **pair, requester=0),
        line("socket.create.return", name="socket.create.return", **pair, requester=0, err=0, success=1),
        line("socket.create.return", protocol=17, family=2, type=1, requester=0, err=refused, success=0),
        line("socket.close", name="socket.close", flags=0, **of),
        line("socket.close", name="socket.close", **connected),
        line("socket.close.return", name="socket.close.return"),
    ]
    address = Pattern(r"-\d+")
    for way, size, done in (("sendmsg", 35, 35), ("recvmsg", 71, 71), ("write_iter", 36, 36), ("read_iter", 80, 37)):
        want += [
            line(f"socket.{way}", size=size, **connected),
            line(f"socket.{way}.return", size=done, success=1, _sock=address, **connected),
        ]
    want += [line("socket.send", size=35, success=1, **connected), line("socket.receive", size=71, success=1, **connected)]
    for way, size, done in (("sendmsg", 33, 33), ("recvmsg", 77, 33)):
        want += [
            line(f"socket.{way}", name=f"socket.{way}", size=size, flags=0, **of),
            line(f"socket.{way}.return", name=f"socket.{way}.return", size=done, success=1, _sock=address, **of),
        ]
    for way, size, done in (("write_iter", 34, 34), ("read_iter", 78, 34)):
        want += [
            line(f"socket.{way}", name=f"socket.{way}", size=size, _sock=address, **of),
            line(f"socket.{way}.return", name=f"socket.{way}.return", size=done, success=1, _sock=address, **of),
        ]
    for way in ("send", "receive"):
        want += [line(f"socket.{way}", name=f"socket.{way}", size=n, success=1, _sock=address, **of) for n in (33, 34)]
    return want


FILE = "inode_number inode_state inode_flags file_name:s file_mode file_flags"
DRIVER = "driver_name:s name:s module:s"
SIZES = [f"{when}_{what}" for when in ("old", "new") for what in ("row", "col", "xpixel", "ypixel")]


@test(
    show("tty.open", FILE)
    + show("tty.release", FILE)
    + show("tty.init", DRIVER)
    + show("tty.resize", "name:s " + " ".join(SIZES))
    + show("tty.ioctl", "name:s cmd arg")
    + show("tty.poll", "file_name:s wait_key")
    + show("tty.write", "buffer:s nr file_name:s driver_name:s")
    + show("tty.read", "buffer:s nr file_name:s driver_name:s")
    + show("tty.receive", "cp:s fp:s count driver_name:s name:s index id", "1")
)
def terminals(_):
    lead, side = os.openpty()
    path = os.ttyname(side)
    again = os.open(path, os.O_RDWR | os.O_NOCTTY)
    st = os.fstat(again)
    number = os.path.basename(path)
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 5, 7))
    data = ctypes.create_string_buffer(8)
    libc.ioctl(side, termios.TIOCGWINSZ, data)
    os.write(side, b"seven\t7")
    os.write(lead, b"come\n")
    assert os.read(side, 99) == b"come\n"
    select.select([side], [], [], 0)
    flags = fcntl.fcntl(again, fcntl.F_GETFL)
    os.close(again)
    time.sleep(0.1)
    of = dict(inode_number=st.st_ino, file_name=number)
    return [
        line("tty.open", **of),
        line("tty.release", **of, file_flags=Pattern(rf"{flags}|{flags | 0o100000}|{flags | os.O_NOCTTY}|{flags | 0o100000 | os.O_NOCTTY}")),
        line("tty.init", driver_name='"pty_master"', name='"ptm"', module=""),
        line(
            "tty.resize", name=f'"pts{number}"', old_row=24, old_col=80, old_xpixel=0, old_ypixel=0,
            new_row=31, new_col=97, new_xpixel=5, new_ypixel=7,
        ),
        line("tty.ioctl", name=number, cmd=termios.TIOCGWINSZ, arg=ctypes.addressof(data)),
        line("tty.poll", file_name=number),
        line("tty.write", buffer='"seven\\t7"', nr=7, file_name=number, driver_name='"pty_slave"'),
        line("tty.read", file_name=number, driver_name='"pty_slave"'),
        line("tty.receive", cp=Pattern(r'"come\\n.*'), count=5, driver_name='"pty_slave"', name='"pts"', index=number, id=0x5401),
    ]  # fmt: skip


@test(
    show("signal.checkperm", "name:s sig sig_name:s task sig_pid pid_name:s sinfo si_code:s")
    + show("signal.checkperm.return", "name:s retstr:s")
    + show("signal.wakeup", "name:s resume state_mask:s sig_pid pid_name:s")
    + show("signal.check_ignored", "name:s sig sig_name:s sig_pid pid_name:s")
    + show("signal.check_ignored.return", "name:s retstr:s")
    + show("signal.force_segv", "name:s sig sig_name:s sig_pid pid_name:s", "ppid() == target()")
    + show("signal.force_segv.return", "name:s retstr:s", "ppid() == target()")
    + show("signal.syskill", "name:s sig_name:s sig_pid task pid_name:s")
    + show("signal.syskill.return", "name:s")
    + show("signal.systkill", "name:s sig_name:s sig_pid task pid_name:s")
    + show("signal.systkill.return", "name:s")
    + show("signal.systgkill", "name:s sig_name:s sig_pid task pid_name:s")
    + show("signal.systgkill.return", "name:s")
    + show("signal.send_sig_queue", "name:s sig sig_name:s sig_pid pid_name:s sigqueue_addr", "1")
    + show("signal.send_sig_queue.return", "name:s retstr:s", "1")
    + show("signal.pending", "name:s sigset_add sigset_size")
    + show("signal.pending.return", "name:s retstr:s")
    + show("signal.do_action", "name:s sig sig_name:s sigact_addr oldsigact_addr sa_handler sa_mask")
    + show("signal.do_action.return", "name:s retstr:s")
    + show("signal.procmask", "name:s how sigset_addr oldsigset_addr sigset")
    + show("signal.procmask.return", "name:s retstr:s")
)
def sent_signals(pid):
    comm = open("/proc/self/comm").read().strip()
    kid = child(lambda: time.sleep(100))
    libc.kill(kid, SIGUSR1)
    os.waitpid(kid, 0)
    libc.syscall(200, kid := child(lambda: time.sleep(100)), SIGUSR1)
    os.waitpid(kid, 0)
    last = child(lambda: time.sleep(100))
    libc.syscall(234, last, last, SIGUSR1)
    os.waitpid(last, 0)
    signal.signal(SIGUSR1, signal.SIG_IGN)
    os.kill(pid, SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    data = (ctypes.c_ulong * 16)()
    assert libc.syscall(127, data, 8) == 0

    def no_stack():
        # The kernel cannot write to the handler's stack.
        signal.signal(SIGUSR1, lambda *_: None)
        memory = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ)
        address = libc.mmap(0, 1 << 16, 0, 0x22, -1, 0)
        del memory
        libc.sigaltstack(struct.pack("QiiQ", address & (1 << 64) - 1, 0, 0, 1 << 16), 0)
        os.kill(os.getpid(), SIGUSR1)

    libc.mmap.restype = ctypes.c_long
    shot = child(no_stack)
    assert os.waitpid(shot, 0)[1] & 127 == SIGSEGV
    timer = ctypes.c_void_p()
    # struct sigevent: SIGEV_SIGNAL with SIGUSR1, which is ignored.
    assert libc.timer_create(1, struct.pack("QiiQQ48x", 0, SIGUSR1, 0, 0, 0), ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 0, 0, 1000000), 0) == 0
    time.sleep(0.1)
    usr1 = dict(sig=SIGUSR1, sig_name="SIGUSR1")
    sent = dict(sig_name="SIGUSR1", task=Pattern(r"-\d+"), pid_name=comm)
    return [
        line("signal.checkperm", name="checkperm", **usr1, task=Pattern(r"-\d+"), sig_pid=last, pid_name=comm, si_code=Pattern("SI_.*")),
        line("signal.checkperm.return", name="checkperm", retstr="0"),
        line("signal.wakeup", name="wakeup", resume=1, state_mask=Pattern("TASK_INTERRUPTIBLE.*TASK_WAKEKILL"), sig_pid=last, pid_name=comm),
        line("signal.check_ignored", name="check_ignored", **usr1, sig_pid=pid, pid_name=comm),
        line("signal.check_ignored.return", name="check_ignored", retstr="1"),
        line("signal.check_ignored.return", name="check_ignored", retstr="0"),
        line("signal.force_segv", name="force_segv", **usr1, sig_pid=shot, pid_name=comm),
        line("signal.force_segv.return", name="force_segv", retstr=Pattern(".*")),
        line("signal.syskill", name="syskill", sig_pid=Pattern(r"\d+"), **sent),
        line("signal.syskill.return", name="syskill"),
        line("signal.systkill", name="systkill", sig_pid=kid, **sent),
        line("signal.systkill.return", name="systkill"),
        line("signal.systgkill", name="systgkill", sig_pid=last, **sent),
        line("signal.systgkill.return", name="systgkill"),
        line("signal.send_sig_queue", name="send_sig_queue", **usr1, sig_pid=pid, pid_name=comm, sigqueue_addr=Pattern(r"-\d+")),
        line("signal.send_sig_queue.return", name="send_sig_queue"),
        line("signal.pending", name="pending", sigset_add=ctypes.addressof(data), sigset_size=8),
        line("signal.pending.return", name="pending", retstr="0"),
        line("signal.do_action", name="do_action", **usr1, sigact_addr=Pattern(r"-\d+"), sa_handler=1, sa_mask=0),
        line("signal.do_action.return", name="do_action", retstr="0"),
        line("signal.procmask", name="procmask", how=0, sigset_addr=Pattern(r"\d+"), sigset=1 << int(signal.SIGUSR2) - 1),
        line("signal.procmask.return", name="procmask", retstr="0"),
    ]


@test(
    show("netdev.change_mtu", "old_mtu new_mtu dev_name:s")
    + show("netdev.ioctl", "cmd arg:s")
    + show("netdev.set_promiscuity", "dev_name:s enable disable inc")
    + show("netdev.hard_transmit", "dev_name:s protocol length truesize")
    + show("netdev.get_stats", "dev_name:s")
    + show("netdev.register", "dev_name:s")
    + show("netdev.change_mac", "dev_name:s mac_len old_mac:s new_mac:s")
)
def devices(_):
    by = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    name = b"lo".ljust(16, b"\0")
    mtu = int(open("/sys/class/net/lo/mtu").read())
    for new in (mtu - 100, mtu):
        fcntl.ioctl(by, 0x8922, name + struct.pack("i20x", new))
    packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    index = socket.if_nametoindex("lo")
    # PACKET_ADD_MEMBERSHIP of PACKET_MR_PROMISC
    packet.setsockopt(263, 1, struct.pack("iHH8s", index, 1, 0, b""))
    packet.close()
    by.sendto(b"a" * 33, ("127.0.0.1", PORT))
    open("/proc/net/dev").read()
    assert libc.unshare(0x40000000) == 0
    return [
        line("netdev.change_mtu", dev_name="lo", old_mtu=mtu, new_mtu=mtu - 100),
        line("netdev.ioctl", cmd=0x8922, arg='"lo"'),
        line("netdev.set_promiscuity", dev_name="lo", enable=1, disable=0, inc=1),
        line("netdev.set_promiscuity", dev_name="lo", enable=1, disable=0, inc=-1),
        # The packet with the headers of UDP, IP and Ethernet; protocol: 0x0800 as on the wire.
        line("netdev.hard_transmit", dev_name="lo", protocol=8, length=33 + 8 + 20 + 14),
        line("netdev.get_stats", dev_name="lo"),
        line("netdev.register", dev_name="lo"),
    ]


TCP = ["ActiveOpens", "AttemptFails", "CurrEstab", "EstabResets", "InSegs", "OutRsts", "OutSegs", "PassiveOpens", "RetransSegs"]
IP = ["InReceives", "InNoRoutes", "InAddrErrors", "InUnknownProtos", "InDiscards", "ForwDatagrams", "OutRequests", "ReasmTimeout", "ReasmReqds", "FragOKs", "FragFails"]
LINUX = ["DelayedACKs", "ListenOverflows", "ListenDrops", "TCPMemoryPressures"]


@test(
    show("tcpmib.ActiveOpens", "key op sk", "tcpmib_remote_port(sk) == $1")
    + show("tcpmib.AttemptFails", "sk state op TCP_SYN_SENT TCP_SYN_RECV key")
    + show("tcpmib.CurrEstab", "sk state oldstate TCP_ESTABLISHED op key")
    + show("tcpmib.EstabResets", "sk state oldstate op TCP_CLOSE TCP_CLOSE_WAIT TCP_ESTABLISHED key")
    + show("tcpmib.InSegs", "sk key op", "key && tcpmib_remote_port(sk) == $1")
    + show("tcpmib.OutRsts", "sk op key")
    + show("tcpmib.OutSegs", "op iphdr sk key", "tcpmib_remote_port(sk) == $1")
    + show("tcpmib.PassiveOpens", "sk op key", "tcpmib_local_port(sk) == $1")
    + "".join(
        show(f"ipmib.{name}", "skb op SourceIsLocal key", "ipmib_remote_addr(skb, SourceIsLocal) == 0x7f000001")
        for name in ("InReceives", "InUnknownProtos", "OutRequests", "ReasmReqds", "FragOKs")
    )
    + "probe tcpmib.RetransSegs, linuxmib.* { if (op > 1) println(sk, key) }\n"
    + 'probe end { printf("keys %d%d %d%d %d%d %d\\n", tcpmib_filter_key(0, 1), tcpmib_filter_key(5, 1), linuxmib_filter_key(0, 1), linuxmib_filter_key(5, 1), ipmib_filter_key(0, 1, 0), ipmib_filter_key(5, 1, 0), indelack_timer[0]) }\n'
    + "probe ipmib.* { if (op > 1) println(skb, key) }\n"
    + 'probe end { printf("counts'
    + "".join(f" {name}=%d" for name in TCP + IP + LINUX)
    + '\\n"'
    + "".join(f", {name}[1]" for name in TCP + IP + LINUX)
    + ") }\n"
    + 'probe netfilter.ipv4.local_out { if (dport == $1 && syn) printf("to %x %x %d %d %d\\n", ipmib_local_addr($skb, 1), ipmib_remote_addr($skb, 1), ipmib_tcp_remote_port($skb, 1), ipmib_tcp_local_port($skb, 1) == sport, ipmib_get_proto($skb)) }\n'
)
def counters(_):
    """Of ipmib: ipmib.InReceives, ipmib.InUnknownProtos, ipmib.OutRequests, ipmib.ReasmReqds, ipmib.FragOKs."""
    address = ("127.0.0.1", PORT)
    try:
        socket.create_connection(address)
        raise AssertionError("the port is used")
    except ConnectionRefusedError:
        pass
    server = socket.create_server(address)
    client = socket.create_connection(address)
    peer, _ = server.accept()
    client.send(b"hello")
    peer.recv(17)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    peer.close()
    server.close()
    by = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The datagram is larger than the packets of the device.
    mtu = int(open("/sys/class/net/lo/mtu").read())
    fcntl.ioctl(by, 0x8922, b"lo".ljust(16, b"\0") + struct.pack("i20x", 1500))
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.bind(address)
    by.setsockopt(socket.IPPROTO_IP, 10, 0)
    by.sendto(b"a" * 3000, address)
    assert len(to.recv(4000)) == 3000
    fcntl.ioctl(by, 0x8922, b"lo".ljust(16, b"\0") + struct.pack("i20x", mtu))
    # A packet with a header of this program; a socket of the packet's own protocol would receive it.
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    loop = socket.inet_aton("127.0.0.1")
    raw.sendto(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 27, 1, 0, 64, 253, 0, loop, loop) + b"unknown", ("127.0.0.1", 0))
    raw.close()
    sk = Pattern(r"-\d+")
    some = Pattern("[1-9][0-9]*")
    counts = {name: Pattern(r"-?\d+") for name in TCP + IP + LINUX}
    # Other programs on this machine may send packets, too.
    counts |= {name: some for name in ("ActiveOpens", "AttemptFails", "EstabResets", "InSegs", "OutRsts", "OutSegs", "PassiveOpens", "InReceives", "OutRequests", "FragOKs")}
    counts |= {"ReasmReqds": 0, "InDiscards": 0, "TCPMemoryPressures": 0, "FragFails": 0, "ForwDatagrams": 0, "ListenOverflows": 0}
    packet = dict(skb=sk, op=1, key=1)
    return [
        "counts" + "".join(f" {name}={counts[name]}" for name in TCP + IP + LINUX),
        line("tcpmib.ActiveOpens", key=1, op=1, sk=sk),
        line("tcpmib.AttemptFails", sk=sk, state=2, op=1, TCP_SYN_SENT=2, TCP_SYN_RECV=3, key=1),
        line("tcpmib.CurrEstab", sk=sk, state=1, op=1, TCP_ESTABLISHED=1, key=1),
        line("tcpmib.CurrEstab", sk=sk, oldstate=1, op=-1, TCP_ESTABLISHED=1, key=1),
        line("tcpmib.EstabResets", sk=sk, state=7, oldstate=1, op=1, TCP_CLOSE=7, TCP_CLOSE_WAIT=8, TCP_ESTABLISHED=1, key=1),
        line("tcpmib.InSegs", sk=sk, key=1, op=1),
        line("tcpmib.OutRsts", sk=Pattern(r"-?\d+"), op=1, key=Pattern("[01]")),
        line("tcpmib.OutSegs", op=1, iphdr=sk, sk=sk, key=1),
        line("tcpmib.PassiveOpens", sk=sk, op=1, key=1),
        line("ipmib.InReceives", SourceIsLocal=0, **packet),
        line("ipmib.InUnknownProtos", SourceIsLocal=0, **packet),
        line("ipmib.OutRequests", SourceIsLocal=1, **packet),
        line("ipmib.FragOKs", SourceIsLocal=1, **packet),
        line("ipmib.ReasmReqds", skb=sk, op=0, SourceIsLocal=1, key=1),
        "keys 01 01 01 0",
        f"to 7f000001 7f000001 {PORT} 1 6",
    ]


AT = "file pathname:s"
WHOLE = AT + " dev devname:s ino"
ERROR = "error error_str:s"
ITER = f"name:s {WHOLE} pos buf count argstr:s size units:s"
SPLICE = f"name:s {WHOLE} len flags argstr:s size units:s"


@test(
    show("vfs.readv", f"name:s {WHOLE} pos vec vlen bytes_to_read argstr:s")
    + show("vfs.readv.return", f"name:s {WHOLE} pos vec vlen bytes_to_read ret retstr:s bytes_read {ERROR}")
    + show("vfs.writev", f"name:s {WHOLE} pos vec vlen bytes_to_write argstr:s")
    + show("vfs.writev.return", f"name:s {WHOLE} pos vec vlen bytes_to_write ret retstr:s bytes_written {ERROR}")
    + show("vfs.do_sync_read", f"name:s {WHOLE} len pos buf bytes_to_read argstr:s size units:s")
    + show("vfs.do_sync_read.return", f"name:s retstr:s bytes_to_read ret bytes_read {ERROR} size units:s")
    + show("vfs.do_sync_write", f"name:s {WHOLE} len pos buf bytes_to_write argstr:s size units:s")
    + show("vfs.do_sync_write.return", f"name:s retstr:s bytes_to_write pos ret bytes_written {ERROR} size units:s")
    + show("vfs.read", "pathname:s", "pid() == target() && bytes_to_read == 21")
    + show("vfs.read.return", "pathname:s", "pid() == target() && bytes_to_read == 21")
    + show("vfs.write", "pathname:s", "pid() == target() && bytes_to_write == 23")
    + show("vfs.write.return", "pathname:s", "pid() == target() && bytes_to_write == 23")
    + show("vfs.open", "pathname:s argstr:s")
    + show("vfs.open.return", "pathname:s")
    + show("vfs.add_to_page_cache", "name:s dev devname:s ino index nrpages size units:s argstr:s")
    + show("vfs.add_to_page_cache.return", "name:s retstr:s size units:s")
    + show("generic.fop.llseek", f"name:s {WHOLE} offset whence whence_str:s maxbyte argstr:s")
    + show("generic.fop.llseek.return", f"name:s retstr:s {AT} offset whence whence_str:s {ERROR}")
    + show("generic.fop.read_iter", ITER)
    + show("generic.fop.read_iter.return", f"name:s {AT} nr_segs bytes_read retstr:s size units:s {ERROR}")
    + show("generic.fop.write_iter", ITER)
    + show("generic.fop.write_iter.return", f"name:s {AT} retstr:s size units:s")
    + show("generic.fop.mmap", f"name:s {WHOLE} vm_start vm_end vm_flags argstr:s")
    + show("generic.fop.mmap.return", f"name:s retstr:s {AT} {ERROR}")
    + show("generic.fop.splice_read", SPLICE + " dev_major dev_minor")
    + show("generic.fop.splice_read.return", f"name:s {AT} ino dev dev_major dev_minor ret retstr:s size units:s {ERROR}")
    + show("generic.fop.splice_write", SPLICE)
    + show("generic.fop.splice_write.return", f"name:s {AT} retstr:s size units:s {ERROR}")
)
def common_files(_):
    os.mkdir("ram")
    assert libc.mount(b"none", b"ram", b"ramfs", 0, 0) == 0
    path = os.path.realpath("ram/there")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    st = os.fstat(fd)
    dev = os.major(st.st_dev) << 20 | os.minor(st.st_dev)
    data = ctypes.create_string_buffer(64)
    at = ctypes.addressof(data)
    assert libc.pwrite(fd, data, 23, ctypes.c_long(5)) == 23
    assert libc.pread(fd, data, 21, ctypes.c_long(6)) == 21
    assert os.writev(fd, [b"ab", b"cde", b"f" * 7]) == 12
    assert os.lseek(fd, 3, os.SEEK_SET) == 3
    parts = [bytearray(4), bytearray(5)]
    assert os.readv(fd, parts) == 9
    try:
        os.lseek(fd, -1, os.SEEK_SET)
    except OSError as error:
        wrong = -error.errno
    memory = mmap.mmap(fd, 28, flags=mmap.MAP_SHARED)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ends = os.pipe()
    assert os.splice(fd, ends[1], 11, offset_src=2) == 11
    assert os.splice(ends[0], fd, 10, offset_dst=100) == 10
    of = dict(file=Pattern(r"-\d+"), pathname=path)
    whole = dict(of, dev=dev, devname="N/A", ino=st.st_ino)
    fine = dict(error=0, error_str="")
    bytes_ = dict(units="bytes")
    parts_of = dict(vlen=3, bytes_to_write=12)
    return [
        line("vfs.writev", name="vfs.writev", **whole, **parts_of, argstr=Pattern(r"12, -?\d+, 0x[0-9a-f]+")),
        line("vfs.writev.return", name="vfs.writev", **whole, **parts_of, ret=12, retstr="12", bytes_written=12, **fine),
        line("vfs.readv", name="vfs.readv", **whole, vlen=2, bytes_to_read=9),
        line("vfs.readv.return", name="vfs.readv", **whole, vlen=2, bytes_to_read=9, ret=9, retstr="9", bytes_read=9, **fine),
        line("vfs.do_sync_write", name="do_sync_write", **whole, len=23, pos=5, buf=at, bytes_to_write=23, argstr=f"23, 5, {at:#x}", size=23, **bytes_),
        line("vfs.do_sync_write.return", name="do_sync_write", retstr="23", bytes_to_write=23, pos=28, ret=23, bytes_written=23, **fine, size=23, **bytes_),
        line("vfs.do_sync_read", name="do_sync_read", **whole, len=21, pos=6, buf=at, bytes_to_read=21, argstr=f"21, 6, {at:#x}", size=21, **bytes_),
        line("vfs.do_sync_read.return", name="do_sync_read", retstr="21", bytes_to_read=21, ret=21, bytes_read=21, **fine, size=21, **bytes_),
        *[line(f"vfs.{way}", pathname=path) for way in ("read", "read.return", "write", "write.return", "open.return")],
        line("vfs.open", pathname=path, argstr=Pattern(re.escape(path) + ", 0x[0-9a-f]+")),
        line("vfs.add_to_page_cache", name="vfs.add_to_page_cache", dev=dev, devname="N/A", ino=st.st_ino, index=0, nrpages=0, size=0, units="pages", argstr=f"{st.st_ino}, 0"),
        line("vfs.add_to_page_cache.return", name="vfs.add_to_page_cache", retstr="0", size=1, units="pages"),
        line("generic.fop.llseek", name="generic_file_llseek", **whole, offset=3, whence=0, whence_str="SEEK_SET", maxbyte=2**63 - 1, argstr="3, 0"),
        line("generic.fop.llseek.return", name="generic_file_llseek", retstr="3", **of, offset=3, whence=0, whence_str="SEEK_SET", **fine),
        line("generic.fop.llseek.return", **of, offset=-1, error=wrong, error_str="EINVAL"),
        line("generic.fop.read_iter", name="generic_file_read_iter", **whole, pos=6, buf=at, count=21, argstr=f"21, 6, {at:#x}", size=21, **bytes_),
        line("generic.fop.read_iter.return", name="generic_file_read_iter", **of, bytes_read=21, retstr="21", size=21, **bytes_, **fine),
        line("generic.fop.read_iter.return", **of, nr_segs=Pattern("[0-2]"), bytes_read=9),
        line("generic.fop.write_iter", name="generic_file_write_iter", **whole, pos=5, buf=at, count=23, argstr=f"23, 5, {at:#x}", size=23, **bytes_),
        line("generic.fop.write_iter.return", name="generic_file_write_iter", **of, retstr="23", size=23, **bytes_),
        line("generic.fop.mmap", name="generic_file_mmap", **whole, vm_start=start, vm_end=start + 4096, argstr=Pattern(f"{start:#x}, {start + 4096:#x}, 0x[0-9a-f]+")),
        line("generic.fop.mmap.return", name="generic_file_mmap", retstr="0", **of, **fine),
        line("generic.fop.splice_read", name="generic_file_splice_read", **whole, len=11, argstr=Pattern("11, [0-9a-f]+"), size=11, **bytes_, dev_major=os.major(st.st_dev), dev_minor=os.minor(st.st_dev)),
        line("generic.fop.splice_read.return", name="generic_file_splice_read", **of, ino=st.st_ino, dev=dev, dev_major=os.major(st.st_dev), dev_minor=os.minor(st.st_dev), ret=11, retstr="11", size=11, **bytes_, **fine),
        line("generic.fop.splice_write", name="generic_file_splice_write", **whole, len=10, flags=0, argstr="10, 0", size=10, **bytes_),
        line("generic.fop.splice_write.return", name="generic_file_splice_write", **of, retstr="10", size=10, **bytes_, **fine),
    ]


@test(
    show("vm.brk", "name:s address length")
    + show("vm.mmap", "name:s address length")
    + show("vm.munmap", "name:s address length")
    + show("vm.write_shared", "name:s address", "ppid() == target()")
    + 'probe kprocess.start { if (ppid() == target()) printf("starts %d\\n", pid()) }\n'
    + show("scheduler.tick", "name:s idle")
    + show("scheduler.balance", "name:s", "1")
    + show("tcp.ipv4.setsockopt", "name:s sock family level optname optstr:s optlen")
    + show("tcp.ipv4.setsockopt.return", "name:s ret")
    + show("tcp.ipv6.setsockopt", "name:s sock family level optname optstr:s optlen")
    + show("tcp.ipv6.setsockopt.return", "name:s ret")
    + 'probe tcp.setsockopt { if (pid() == target()) printf("any %s %d\\n", name, optname) }\n'
    + 'probe tcp.setsockopt.return { if (pid() == target()) printf("any done %s %d\\n", name, ret) }\n'
    + show("udp.disconnect", "name:s sock flags family saddr:s daddr:s sport dport")
    + show("udp.disconnect.return", "name:s ret family saddr:s daddr:s sport dport")
)
def memory_and_options(pid):
    libc.sbrk.restype = ctypes.c_long
    top = libc.sbrk(0)
    libc.sbrk(1 << 20)
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[7] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))

    def write():
        page[9] = 2
        os._exit(0)

    kid = child(write)
    os.waitpid(kid, 0)

    def busy():
        # More tasks than processors, which idle now and then.
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            if int(time.monotonic() * 1000) % 4 == os.getpid() % 4:
                time.sleep(0.001)
        os._exit(0)

    for kid_of in [child(busy) for _ in range(5)]:
        os.waitpid(kid_of, 0)
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    by = socket.socket(socket.AF_INET)
    by.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    six = socket.socket(socket.AF_INET6)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.connect(("127.0.0.1", PORT))
    own = to.getsockname()[1]
    libc.connect(to.fileno(), bytes(16), 16)
    ends = dict(family=2, saddr="127.0.0.1", daddr="127.0.0.1", sport=own, dport=PORT)
    return [
        f"starts {kid}",
        line("vm.brk", name="brk", address=top + 4095 & ~4095, length=1 << 20),
        line("vm.write_shared", name="write_shared", address=Pattern(f"{start}|{start + 9}")),
        line("scheduler.tick", name="tick", idle=0),
        line("scheduler.balance", name="balance"),
        line("tcp.ipv4.setsockopt", name="tcp.ipv4.setsockopt", sock=Pattern(r"-\d+"), family=2, level=6, optname=1, optstr="TCP_NODELAY", optlen=4),
        line("tcp.ipv4.setsockopt.return", name="tcp.ipv4.setsockopt", ret=0),
        line("tcp.ipv6.setsockopt", name="tcp.ipv6.setsockopt", family=10, level=41, optname=26, optlen=4),
        line("tcp.ipv6.setsockopt.return", name="tcp.ipv6.setsockopt", ret=0),
        "any tcp.ipv4.setsockopt 1",
        "any tcp.ipv6.setsockopt 26",
        "any done tcp.ipv4.setsockopt 0",
        line("udp.disconnect", name="udp.disconnect", sock=Pattern(r"-\d+"), **ends),
        line("udp.disconnect.return", name="udp.disconnect", ret=0, **ends),
    ]


REQUEST = "name:s q elevator_name:s rq disk_major disk_minor rq_flags"


@test(
    'probe init { println("first") } probe begin(-9223372036854775807) { println("second") }\n'
    + "global said probe timer.profile.freq.hz(100) { if (!said++) println(\"tick\") }\n"
    + "".join(
        show(alias, REQUEST, "disk_major == 7")
        for alias in (
            "ioscheduler.elv_add_request", "ioscheduler.elv_add_request.tp", "ioscheduler_trace.elv_completed_request",
            "ioscheduler_trace.elv_issue_request", "ioscheduler_trace.elv_requeue_request",
        )
    )
    + show("ioscheduler_trace.plug", "name:s rq_queue", 'execname() == "dd"')
    + show("ioscheduler_trace.unplug_io", "name:s rq_queue", 'execname() == "dd"')
    + 'probe workqueue.insert { if (work && !(work in queued) && n++ < 100) { queued[work] = work_func; if (wq_thread) println("differs") } }\n'
    + 'probe workqueue.execute { if (work in queued) { printf("work %d %d\\n", queued[work] == work_func, task_tid(wq_thread) == tid()); delete queued[work] } }\n'
    + "global queued, n\n"
    + 'probe kernel.trace("timer_start") { if (timer_pending($timer)) set++; else unset++ } global set, unset\n'
    + 'probe kernel.trace("block_rq_issue") { if (get_scsi_request($rq + @cast_sizeof("request")) == $rq && scsi_cmd_to_rq($rq + @cast_sizeof("request")) == $rq && scsi_timer_pending($rq + @cast_sizeof("request")) == timer_pending(&$rq->q->timeout) && cmd_request_timer_pending($rq + @cast_sizeof("request")) == timer_pending(&$rq->q->timeout)) println("request behind") }\n'
    + 'probe kernel.trace("block_rq_issue") { if (disk_major_from_request($rq) == 7) printf("disk %d %d\\n", disk_major_from_request($rq), disk_minor_from_request($rq)) }\n'
    + 'probe end { printf("timers %d %d\\n", set > 0, unset); for (i = 0; i < 11; i++) printf("%d%s ", i, describe_device_state(i)) println("") }\n'
    + 'probe vm.kmalloc_node { if (seen["kmalloc"]++ < 1) printf("%s %d %d %d %d %s\\n", name, bytes_req <= bytes_alloc, ptr != 0, call_site != 0, gfp_flags != 0, caller_function == symname(call_site) && gfp_flag_name != "" ? "named" : "unnamed") }\n'
    + "global seen\n"
)
def work_and_queues(_):
    with open("disk", "wb") as f:
        f.truncate(16 << 20)
    device = subprocess.check_output(["losetup", "-f", "--show", "disk"], text=True).strip()
    name = os.path.basename(device)
    try:
        choice = f"/sys/block/{name}/queue/scheduler"
        elevator = ""
        if "mq-deadline" in open(choice).read():
            elevator = "mq-deadline"
            open(choice, "w").write(elevator)
        subprocess.run(f"dd if=/dev/zero of={device} bs=64k count=4 oflag=direct status=none".split(), check=True)
        subprocess.run(f"dd if={device} of=/dev/null bs=4k count=64 skip=1000 status=none".split(), check=True)
        rdev = os.stat(device).st_rdev
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    address = Pattern(r"-\d+")
    of = dict(q=address, elevator_name=elevator, rq=address, disk_major=os.major(rdev), disk_minor=os.minor(rdev))
    want = [
        line("ioscheduler_trace.elv_completed_request", name="elv_completed_request", **of),
        line("ioscheduler_trace.elv_issue_request", name="elv_issue_request", **of),
        line("ioscheduler_trace.plug", name="plug", rq_queue=address),
        line("ioscheduler_trace.unplug_io", name="unplug_io", rq_queue=address),
        "first",
        "second",
        "tick",
        "work 1 1",
        "timers 1 0",
        "request behind",
        f"disk {os.major(rdev)} {os.minor(rdev)}",
        "kmalloc_node 1 1 1 1 named",
        # The numbers of enum scsi_device_state.
        "0[INVALID] 1CREATED 2RUNNING 3CANCEL 4DEL 5QUIESCE 6OFFLINE 7[INVALID] 8BLOCK 9CREATED_BLOCK 10[INVALID] ",
    ]
    if elevator:
        want += [line("ioscheduler.elv_add_request", name="elv_add_request", **of), line("ioscheduler.elv_add_request.tp", name="elv_add_request", **of)]
    return want


if __name__ == "__main__":
    sys.exit(main())
