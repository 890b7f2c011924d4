//! Addresses of sockets.

use super::{ArgumentLayout, function, kind};
use crate::func::LirFunc;
use crate::op::{ExtOp, Size};

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_NETLINK: i32 = 16;
const AF_PACKET: i32 = 17;
/// Sizes of `struct sockaddr_in` and `sockaddr_in6`, and of `sun_path`.
const SOCKADDR_IN: i32 = 16;
const SOCKADDR_IN6: i32 = 28;
const UNIX_PATH: i32 = 108;
/// The largest size of any address (`struct sockaddr_storage`).
const MOST: i32 = 128;
/// Sizes of `struct sockaddr_nl` and `sockaddr_ll`.
const SOCKADDR_NL: i32 = 12;
const SOCKADDR_LL: i32 = 20;

pub(super) fn put_inet6(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends the eight groups of the address in the staged `struct sockaddr_in6`.
Cost: eight numbers.";
    function(layout, ("put_inet6", contract), [], |t, []| {
        for group in 0..8 {
            if group > 0 {
                t.literal(":");
            }
            t.padded(16, t.network_u16(8 + 2 * group), 4);
        }
    })
}

pub(super) fn put_unix(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends the path of a `struct sockaddr_un`, or the name of an abstract socket.
address, length: of the structure.
Cost: a read and put_escaped.";
    let params = ["address", "length"];
    let name = ("put_unix", contract);
    function(layout, name, params, |t, [address, length]| {
        let f = t.f;
        let size = t.at_most(length - 2, UNIX_PATH);
        t.read(size, address + 2, || t.literal("{...}"));
        // The path need not end with a NUL.
        (t.staged(0) + size).store_u8(0, 0);
        t.literal("{AF_UNIX, ");
        t.literal("\"");
        let from = f.var("from", 0);
        f.if_(t.staged(0).load_u8(0).eq(0), || {
            t.literal("\\000");
            from.set(1);
        });
        f.call("put_escaped", &[from.get()]);
        t.literal("\"");
        t.literal("}");
    })
}

pub(super) fn put_link(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends the address of another kind of socket: netlink, packets of a device, or one that nothing here knows.
address, length: of the structure.
Cost: a read and up to six numbers.";
    let params = ["address", "length"];
    let name = ("put_link", contract);
    function(layout, name, params, |t, [address, length]| {
        let f = t.f;
        let number = |before: &str, value| {
            t.literal(before);
            t.put(kind::SIGNED, value);
        };
        let family = t.staged(0).load_u16(0);
        let word = |byte: i32| t.staged(byte).load_bytes(Size::U32, 0);
        let bad = || t.literal("{...}");
        let end = || {
            t.literal("}");
            f.ret(0);
        };
        let netlink = (family ^ AF_NETLINK) | (length ^ SOCKADDR_NL);
        f.if_(netlink.eq(0), || {
            t.read(t.f.number(SOCKADDR_NL), address, bad);
            number("{AF_NETLINK, pid=", t.staged(4).load_s32(0));
            t.literal(", groups=");
            t.padded(16, word(8), 8);
            end();
        });
        let packet = (family ^ AF_PACKET) | (length ^ SOCKADDR_LL);
        f.if_(packet.eq(0), || {
            t.read(t.f.number(SOCKADDR_LL), address, bad);
            number("{AF_PACKET, proto=", t.staged(2).load_u16(0));
            number(", ind=", t.staged(4).load_s32(0));
            number(", hatype=", t.staged(8).load_u16(0));
            number(", pkttype=", t.staged(10).load_u8(0));
            number(", halen=", t.staged(11).load_u8(0));
            t.literal(", addr=");
            let high = word(16) << 32;
            t.put(kind::HEX, word(12) | high);
            end();
        });
        number("{unknown sockaddr with sa=", family);
        number(", salen=", length);
        t.literal("}");
    })
}

pub(super) fn put_sockaddr(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends `{AF_INET, 127.0.0.1, 80}`, or `{...}` if it cannot be read.
address, length: of the structure; of the length the low 32 bits count.
Cost: two reads and up to nine numbers.";
    let params = ["address", "length"];
    let name = ("put_sockaddr", contract);
    function(layout, name, params, |t, [address, length]| {
        let f = t.f;
        let bad = || t.literal("{...}");
        t.literal_if(address.eq(0), "NULL");
        // Of a longer one that much counts.
        let length = t.f.at_most(length.ext(ExtOp::Zext, Size::U32), MOST);
        f.if_(length.lt(2), || {
            t.literal("{unknown sockaddr with salen=");
            t.put(kind::SIGNED, length);
            t.literal("}");
            f.ret(0);
        });
        t.read(t.f.number(2), address, bad);
        let family = t.staged(0).load_u16(0);
        let is = |kind: i32, size: i32| ((family ^ kind) | (length ^ size)).eq(0);
        let port = || {
            t.literal(", ");
            t.put(kind::SIGNED, t.network_u16(2));
            t.literal("}");
            f.ret(0);
        };
        f.if_(is(AF_INET, SOCKADDR_IN), || {
            t.read(t.f.number(SOCKADDR_IN), address, bad);
            t.literal("{AF_INET, ");
            for byte in 0..4 {
                if byte > 0 {
                    t.literal(".");
                }
                t.put(kind::SIGNED, t.staged(4 + byte).load_u8(0));
            }
            port();
        });
        f.if_(is(AF_INET6, SOCKADDR_IN6), || {
            t.read(t.f.number(SOCKADDR_IN6), address, bad);
            t.literal("{AF_INET6, ");
            f.call("put_inet6", &[]);
            port();
        });
        f.if_(family.eq(AF_UNIX), || {
            // At least one byte of the path and a following one.
            f.if_(length.ge(4), || {
                f.call("put_unix", &[address, length]);
                f.ret(0);
            });
        });
        f.call("put_link", &[address, length]);
    })
}
