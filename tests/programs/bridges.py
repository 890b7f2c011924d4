"""Values of the library's aliases of bridges and of ARP: `bridges.py SPILE TEST`, as families.py.

A bridge has two ports, which are devices of this program: it is the network on both sides.
"""

import fcntl
import os
import socket
import struct
import sys
import time

# No files beside the sources.
sys.dont_write_bytecode = True

from aliases import main, test
from families import Pattern, line, show

FRAME = (
    "pf:s indev outdev indev_name:s outdev_name:s indev_mac_len outdev_mac_len in_mac:s out_mac:s length data_hex:s"
    " data_str:s nf_drop nf_accept nf_stolen nf_queue nf_repeat nf_stop ipproto_tcp ipproto_udp"
)
ARP = FRAME + " family arphdr ar_hrd ar_pro ar_hln ar_pln ar_op ar_data ar_sha:s ar_sip:s ar_tha:s ar_tip:s"
TREE = (
    FRAME + " llcpdu brhdr llcproto_stp protocol br_prid br_vid br_type br_flags br_rid br_rmac:s br_cost br_bid br_mac:s"
    " br_poid br_msg br_max br_htime br_fd"
)
NAMES = ("spile-br", "spile-a", "spile-b")
NUMBERS = dict(nf_drop=0, nf_accept=1, nf_stolen=2, nf_queue=3, nf_repeat=4, nf_stop=5, ipproto_tcp=6, ipproto_udp=17)
ADDRESS = Pattern(r"-\d+")
BROADCAST = b"\xff" * 6
# Hosts behind the first port and on the bridge itself.
GUEST, HERE, NOBODY = "10.9.8.7", "10.9.8.1", "10.9.8.200"
GUEST_MAC = bytes.fromhex("0ad1c2b3a495")


def mac_text(mac):
    return ":".join(f"{byte:02x}" for byte in mac)


class Bridge:
    """A bridge with an address of IPv4 and two ports."""

    def __init__(self):
        self.control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        fcntl.ioctl(self.control, 0x89A0, NAMES[0].encode() + b"\0")
        self.ports = [self.port(name) for name in NAMES[1:]]
        # SIOCSIFADDR
        self.request(0x8916, NAMES[0], struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(HERE)))
        for name in NAMES:
            # SIOCSIFFLAGS: IFF_UP
            self.request(0x8914, name, struct.pack("H22x", 1))
        for name in NAMES[1:]:
            self.wait(f"/sys/class/net/{name}/brport/state", "3")
        self.wait(f"/sys/class/net/{NAMES[0]}/operstate", "up")

    def request(self, number, name, data):
        return fcntl.ioctl(self.control, number, struct.pack("16s24s", name.encode(), data))

    def port(self, name):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # TUNSETIFF: IFF_TAP | IFF_NO_PI
        fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
        self.request(0x89A2, NAMES[0], struct.pack("i20x", socket.if_nametoindex(name)))
        return tap

    def wait(self, path, value):
        end = time.monotonic() + 30
        while open(path).read().strip() != value:
            assert time.monotonic() < end, (path, open(path).read())
            time.sleep(0.05)

    def receive(self, port, wanted):
        """The first frame at a port that is wanted."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                frame = os.read(self.ports[port], 2000)
                if wanted(frame):
                    return frame
            except BlockingIOError:
                time.sleep(0.02)
        raise TimeoutError("no such frame")

    def close(self):
        for tap in self.ports:
            os.close(tap)
        self.request(0x8914, NAMES[0], bytes(24))
        fcntl.ioctl(self.control, 0x89A1, NAMES[0].encode() + b"\0")


def device(way, name):
    """The variables of the device on one side of a hook; of no device without a name."""
    if not name:
        return {f"{way}dev": 0, f"{way}dev_name": "", f"{way}dev_mac_len": 0, f"{way}_mac": ""}
    mac = open(f"/sys/class/net/{name}/address").read().strip()
    return {f"{way}dev": ADDRESS, f"{way}dev_name": name, f"{way}dev_mac_len": 6, f"{way}_mac": mac}


def sides(inside, outside):
    return device("in", inside) | device("out", outside) | NUMBERS


@test("".join(show(f"netfilter.bridge.{hook}", TREE, "llcproto_stp == protocol") for hook in ("pre_routing", "local_in", "forward", "local_out", "post_routing")))
def spanning_tree(_):
    """A message of the spanning tree protocol, which a bridge without it passes on as any other frame."""
    root, own = bytes.fromhex("8000aabbccddee01"), bytes.fromhex("9001aabbccddee02")
    message = struct.pack(">HBBB8sI8sHHHHH", 0, 2, 0x80, 0x3C, root, 0x12345, own, 0x8003, 0x100, 0x1400, 0x200, 0xF00)
    group = bytes.fromhex("0180c2000000")

    def frame(by):
        body = b"\x42\x42\x03" + message
        return (group + by + struct.pack(">H", len(body)) + body).ljust(60, b"\0")

    bridge = Bridge()
    try:
        bridge.wait(f"/sys/class/net/{NAMES[0]}/bridge/stp_state", "0")
        os.write(bridge.ports[0], frame(GUEST_MAC))
        bridge.receive(1, lambda got: got[6:12] == GUEST_MAC and got[:6] == group)
        # The bridge's own.
        mac = bytes.fromhex(open(f"/sys/class/net/{NAMES[0]}/address").read().strip().replace(":", ""))
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as by:
            by.bind((NAMES[0], 0))
            by.send(frame(mac))
        bridge.receive(0, lambda got: got[6:12] == mac and got[:6] == group)
        bridge.receive(1, lambda got: got[6:12] == mac and got[:6] == group)
        values = dict(
            pf="bridge", length=46, llcpdu=ADDRESS, brhdr=ADDRESS, llcproto_stp=0x42, protocol=0x42,
            br_prid=0, br_vid=2, br_type=0x80, br_flags=0x3C, br_rid=int.from_bytes(root, "little", signed=True),
            br_rmac=mac_text(root[2:]), br_cost=0x12345, br_bid=int.from_bytes(own, "little", signed=True),
            br_mac=mac_text(own[2:]), br_poid=0x8003, br_msg=0x100, br_max=0x1400, br_htime=0x200, br_fd=0xF00,
            data_hex=frame(mac)[14:].hex(), data_str=Pattern('".*"'),
        )  # fmt: skip
        bridged, one, other = NAMES
        return [
            line("netfilter.bridge.pre_routing", **values, **sides(one, "")),
            line("netfilter.bridge.local_in", **values, **sides(one, "")),
            line("netfilter.bridge.forward", **values, **sides(one, other)),
            line("netfilter.bridge.post_routing", **values, **sides("", other)),
            line("netfilter.bridge.local_out", **values, **sides("", one)),
            line("netfilter.bridge.local_out", **values, **sides("", other)),
            line("netfilter.bridge.post_routing", **values, **sides("", one)),
        ]
    finally:
        bridge.close()


@test("".join(show(f"netfilter.arp.{hook}", ARP, "1") for hook in ("in", "out", "forward")))
def address_resolution(_):
    """Questions for addresses: of a host behind the bridge, which it answers, and of the bridge's own."""

    def question(by_mac, by, of):
        head = BROADCAST + by_mac + struct.pack(">H", 0x806)
        body = struct.pack(">HHBBH", 1, 0x800, 6, 4, 1) + by_mac + socket.inet_aton(by) + bytes(6) + socket.inet_aton(of)
        return head + body

    bridge = Bridge()
    try:
        # Without a table of rules, ARP goes through the hooks all the same.
        open("/proc/sys/net/bridge/bridge-nf-call-arptables", "w").write("1")
        own = bytes.fromhex(open(f"/sys/class/net/{NAMES[0]}/address").read().strip().replace(":", ""))
        asked = question(GUEST_MAC, GUEST, HERE)
        os.write(bridge.ports[0], asked)
        bridge.receive(1, lambda got: got == asked)
        answer = bridge.receive(0, lambda got: got[:6] == GUEST_MAC and got[12:14] == b"\x08\x06")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as by:
            by.sendto(b"x", (NOBODY, 9))
        searched = bridge.receive(0, lambda got: got[:42] == question(own, HERE, NOBODY))
        common = dict(pf="arp", family=0, arphdr=ADDRESS, ar_hrd=1, ar_pro=0x800, ar_hln=6, ar_pln=4, ar_data=ADDRESS)
        bridged, one, other = NAMES

        def values(data, op, sha, sip, tha, tip):
            return dict(
                common, ar_op=op, ar_sha=mac_text(sha), ar_sip=sip, ar_tha=mac_text(tha), ar_tip=tip,
                length=len(data), data_hex=data.hex(), data_str=Pattern('".*"'),
            )  # fmt: skip

        # A packet that leaves has its header already.
        of_guest = values(asked[14:], 1, GUEST_MAC, GUEST, bytes(6), HERE)
        return [
            line("netfilter.arp.in", **of_guest, **sides(bridged, "")),
            line("netfilter.arp.forward", **of_guest, **sides(one, other)),
            line("netfilter.arp.out", **values(answer[:42], 2, own, HERE, GUEST_MAC, GUEST), **sides("", bridged)),
            line("netfilter.arp.out", **values(searched[:42], 1, own, HERE, bytes(6), NOBODY), **sides("", bridged)),
        ]
    finally:
        bridge.close()


if __name__ == "__main__":
    sys.exit(main())
