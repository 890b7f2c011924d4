"""Compares the values of network aliases with workloads, like aliases.py: `packets.py SPILE TEST`."""

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
import sys
import threading
import time

# Writes no bytecode files next to the sources.
sys.dont_write_bytecode = True

from aliases import BEFORE, PORT, child, libc, main, test

CLONE_NEWNET = 0x40000000

PACKETS = """
probe netfilter.ip.local_out, netfilter.ip.post_routing, netfilter.ip.pre_routing, netfilter.ip.local_in {
  if (dport == $1) printf("%s %d %d\\n", pn(), family, length)
}
probe netfilter.ipv4.local_out, netfilter.ipv4.post_routing, netfilter.ipv4.pre_routing, netfilter.ipv4.local_in, netfilter.ipv6.local_out, netfilter.ipv6.post_routing, netfilter.ipv6.pre_routing, netfilter.ipv6.local_in {
  if (sport != $1 && dport != $1) next
  if (nf_drop != 0 || nf_accept != 1 || nf_stolen != 2 || nf_queue != 3 || nf_repeat != 4 || nf_stop != 5 || ipproto_tcp != 6 || ipproto_udp != 17 || udphdr != tcphdr) println("differs")
  printf("%s %s %d %d %s %s %d %d len %d flags %d%d%d%d%d%d in <%s> <%s> %d out <%s> <%s> %d devices %d%d\\n", pn(), pf, family, protocol, saddr, daddr, sport, dport, length, urg, ack, psh, rst, syn, fin, indev_name, in_mac, indev_mac_len, outdev_name, out_mac, outdev_mac_len, indev != 0, outdev != 0)
  printf("%s port %d version %d\\n", pn(), ntohs(@kderef(2, tcphdr)), @kderef(1, iphdr) >> 4)
  if (protocol == ipproto_udp) printf("%s data %s %s\\n", pn(), data_hex, data_str)
}
probe netdev.transmit, netdev.receive { if (dev_name == "lo") printf("%s %s %d %d %d\\n", name, dev_name, length, protocol, truesize >= length) }
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
            # The UDP header in hexadecimal: ports and length.
            udp = struct.pack(">HHH", own, PORT, 8 + 33).hex()
            want.append(rf'{point} data {pf[-1]}[0-9a-f]*{udp}....{"61" * 33} ".*{"a" * 33}"')
            want.append(rf"{point} port {own} version {pf[-1]}")
            want.append(f"netfilter.ip.{hook} {int(family)} {size}")
        ethernet = 0x0800 if family == socket.AF_INET else 0x86DD
        want.append(rf"netdev\.transmit lo {size + 14} {socket.htons(ethernet)} 1")
        want.append(rf"netdev\.receive lo {size} {socket.htons(ethernet)} 1")
        # The flags of the first packet of a connection, of the answer, of the data, and of the end.
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


FORWARDS = """
probe netfilter.ip.forward { if (dport == $1) printf("%s %s %d %d %s %s\\n", pn(), pf, family, length, indev_name, outdev_name) }
probe netfilter.ipv4.forward, netfilter.ipv6.forward {
  if (sport != $1 && dport != $1) next
""" + PACKETS.split("next\n", 1)[1].split("probe netdev")[0]


# The session has its own network namespace, and so has the router.
BEFORE["forwards"] = ["unshare", "-n"]


@test(FORWARDS)
def forwards(pid):
    """This process routes packets between two others. Each of the three has its own network namespace."""
    kids = []

    def run(*words, of=None):
        inside = ["nsenter", "-t", str(of), "-n"] if of else []
        subprocess.run([*inside, *words], check=True)

    def host(talk):
        ready, go = os.pipe(), os.pipe()

        def work():
            libc.unshare(CLONE_NEWNET)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            talk()
            os._exit(0)

        kid = child(work)
        os.read(ready[0], 1)
        kids.append((kid, go[1]))
        return kid

    servers, told = os.pipe(), os.pipe()
    places = ((socket.AF_INET, "10.77.2.2", "10.77.1.2"), (socket.AF_INET6, "fd77:2::2", "fd77:1::2"))

    def answer(echo):
        while True:
            data, peer = echo.recvfrom(10)
            echo.sendto(data, peer)

    def reach(family, there):
        """Waits until packets reach an address and come back: a link takes some time to come up."""
        probe = socket.socket(family, socket.SOCK_DGRAM)
        probe.settimeout(0.1)
        while True:
            try:
                probe.sendto(b"there?", (there, PORT + 1))
                return probe.recv(10)
            except OSError:
                time.sleep(0.01)

    def serve():
        udp, tcp = [], []
        for family, here, _ in places:
            udp.append(socket.socket(family, socket.SOCK_DGRAM))
            udp[-1].bind((here, PORT))
            tcp.append(socket.create_server((here, PORT), family=family))
            echo = socket.socket(family, socket.SOCK_DGRAM)
            echo.bind((here, PORT + 1))
            threading.Thread(target=answer, args=(echo,), daemon=True).start()
        os.write(servers[1], b"x")
        for one in udp:
            one.recv(100)
        for one in tcp:
            peer, _ = one.accept()
            peer.recv(10)
            peer.recv(10)
            peer.close()

    def ask():
        for family, there, _ in places:
            reach(family, there)
        for family, there, _ in places:
            by = socket.socket(family, socket.SOCK_DGRAM)
            by.connect((there, PORT))
            by.send(b"a" * 33)
            os.write(told[1], by.getsockname()[1].to_bytes(2, "big"))
        for family, there, _ in places:
            client = socket.socket(family)
            client.connect((there, PORT))
            os.write(told[1], client.getsockname()[1].to_bytes(2, "big"))
            client.send(b"hello")
            client.shutdown(socket.SHUT_WR)
            client.recv(10)
            client.close()

    asks, serves = host(ask), host(serve)
    for n, kid in ((1, asks), (2, serves)):
        run("ip", "link", "add", f"r{n}", "type", "veth", "peer", "name", "out", "netns", str(kid))
        for dev, last, of in ((f"r{n}", 1, None), ("out", 2, kid)):
            run("ip", "addr", "add", f"10.77.{n}.{last}/24", "dev", dev, of=of)
            run("ip", "-6", "addr", "add", f"fd77:{n}::{last}/64", "dev", dev, "nodad", of=of)
            run("ip", "link", "set", dev, "up", of=of)
        run("ip", "route", "add", "default", "via", f"10.77.{n}.1", of=kid)
        run("ip", "-6", "route", "add", "default", "via", f"fd77:{n}::1", of=kid)
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        with open(f"/proc/sys/net/{path}", "w") as f:
            f.write("1")
    macs = {}
    for line in subprocess.check_output(["ip", "-o", "link"], text=True).splitlines():
        words = line.split()
        macs[words[1].split("@")[0]] = words[words.index("link/ether") + 1] if "link/ether" in words else ""
    os.write(kids[1][1], b"x")
    os.read(servers[0], 1)
    os.write(kids[0][1], b"x")
    for kid, _ in kids:
        assert os.waitpid(kid, 0)[1] == 0
    ports = [int.from_bytes(os.read(told[0], 2), "big") for _ in range(4)]
    want = []
    for n, (family, there, here) in enumerate(places):
        pf, header = ("ipv4", 20) if family == socket.AF_INET else ("ipv6", 40)
        full = lambda a: a if pf == "ipv4" else ":".join(ipaddress.ip_address(a).exploded.split(":"))  # fmt: skip
        ways = {True: (full(here), full(there), "r1", "r2"), False: (full(there), full(here), "r2", "r1")}

        def line(out, protocol, sport, dport, size, flags):
            saddr, daddr, inside, outside = ways[out]
            of = [f"<{dev}> <{macs[dev]}> 6" for dev in (inside, outside)]
            want.append(rf"netfilter\.{pf}\.forward {pf} {int(family)} {protocol} {saddr} {daddr} {sport} {dport} len {size} flags {flags} in {of[0]} out {of[1]} devices 11")

        line(True, 17, ports[n], PORT, header + 8 + 33, "000000")
        want.append(rf"netfilter\.{pf}\.forward port {ports[n]} version {pf[-1]}")
        want.append(f"netfilter.ip.forward {pf} {int(family)} {header + 8 + 33} r1 r2")
        udp = struct.pack(">HHH", ports[n], PORT, 8 + 33).hex()
        want.append(rf'netfilter\.{pf}\.forward data {pf[-1]}[0-9a-f]*{udp}[0-9a-f]{{70}} ".*"')
        own = ports[2 + n]
        line(True, 6, own, PORT, r"\d+", "000010")
        line(False, 6, PORT, own, r"\d+", "010010")
        line(True, 6, own, PORT, header + 32 + 5, "011000")
        line(True, 6, own, PORT, header + 32, "010001")
    return want


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
probe tcp.sendmsg, udp.sendmsg, tcp.recvmsg, udp.recvmsg, tcp.disconnect { if (pid() == target() && @cast(sock, "sock")->sk_socket) printf("%s of %d\\n", pn(), @cast(sock, "sock")->sk_socket->file->f_inode->i_ino) }
probe udp.sendmsg { if (pid() == target()) printf("%s %s %s %d %d\\n", pn(), saddr, daddr, sport, dport) }
probe tcp.disconnect { if (pid() == target()) printf("flags %d\\n", flags) }
probe tcp.ipv4.receive, tcp.ipv6.receive { if (dport == $1 && syn) printf("%s opens %s\\n", pn(), saddr) }
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
            # The first byte has the sequence number after the one that opened the connection.
            "from 1 ack 1",
            f"tcp.{of}.receive opens {text}",
            f"tcp.sendmsg of {os.fstat(client.fileno()).st_ino}",
            f"tcp.recvmsg of {os.fstat(peer.fileno()).st_ino}",
        ]
        # The other side resets the connection, which still has its local port in `inet_sport`.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        try:
            client.recv(19)
        except OSError:
            pass
        want.append(f"tcp.recvmsg tcp.recvmsg {int(family)} 19 {text} {text} {own} {PORT}")
        client.close()
        # Connecting to AF_UNSPEC disconnects.
        cut = socket.create_connection((host, PORT))
        own = cut.getsockname()[1]
        cut.setblocking(False)
        assert libc.connect(cut.fileno(), bytes(16), 16) == 0
        want += [
            f"tcp.disconnect tcp.disconnect {int(family)} {text} {text} {own} {PORT}",
            "tcp.disconnect.return tcp.disconnect 0",
            f"tcp.disconnect of {os.fstat(cut.fileno()).st_ino}",
            f"flags {fcntl.fcntl(cut, fcntl.F_GETFL)}",
        ]
        cut.close()
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
        f"udp.sendmsg 127.0.0.1 127.0.0.1 {own} {PORT}",
        f"udp.sendmsg of {os.fstat(by.fileno()).st_ino}",
        f"udp.recvmsg of {os.fstat(to.fileno()).st_ino}",
        f"udp.sendmsg.return udp.sendmsg 2 33 127.0.0.1 127.0.0.1 {own} {PORT}",
        f"udp.recvmsg udp.recvmsg 2 100 127.0.0.1 0.0.0.0 {PORT} 0",
        f"udp.recvmsg.return udp.recvmsg 2 33 127.0.0.1 0.0.0.0 {PORT} 0",
    ]


sys.exit(main())
