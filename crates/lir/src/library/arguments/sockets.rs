//! Addresses of sockets.

use super::{ArgumentLayout, kind, texts};
use crate::func::Func;
use crate::op::{ExtOp, Size};

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
/// Sizes of `struct sockaddr_in` and `sockaddr_in6`, and of `sun_path`.
const SOCKADDR_IN: i32 = 16;
const SOCKADDR_IN6: i32 = 28;
const UNIX_PATH: i32 = 108;

pub(super) fn put_inet6(layout: &ArgumentLayout) -> Func {
    let contract = "\
Appends the eight groups of the address in the staged `struct sockaddr_in6`.
Cost: eight numbers.";
    texts(layout, ("put_inet6", contract), [], |t, []| {
        for group in 0..8 {
            if group > 0 {
                t.literal(":");
            }
            t.padded(16, t.network_u16(8 + 2 * group), 4);
        }
    })
}

pub(super) fn put_unix(layout: &ArgumentLayout) -> Func {
    let contract = "\
Appends the path of a `struct sockaddr_un`, or the name of an abstract socket.
address, length: of the structure.
Cost: a read and put_escaped.";
    let params = ["address", "length"];
    texts(
        layout,
        ("put_unix", contract),
        params,
        |t, [address, length]| {
            let f = t.f;
            // At least one byte and a following one.
            t.literal_if(length.lt(4), "{...}");
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
        },
    )
}

pub(super) fn put_sockaddr(layout: &ArgumentLayout) -> Func {
    let contract = "\
Appends `{AF_INET, 127.0.0.1, 80}`, or `{...}` if it cannot be read.
address, length: of the structure; of the length the low 32 bits count.
Cost: two reads and up to nine numbers.";
    let params = ["address", "length"];
    texts(
        layout,
        ("put_sockaddr", contract),
        params,
        |t, [address, length]| {
            let f = t.f;
            let bad = || t.literal("{...}");
            t.literal_if(address.eq(0), "NULL");
            let length = length.ext(ExtOp::Zext, Size::U32);
            t.literal_if(length.lt(2), "{...}");
            t.read(t.f.number(2), address, bad);
            let family = t.staged(0).load_u16(0);
            let port = || {
                t.literal(", ");
                t.put(kind::SIGNED, t.network_u16(2));
                t.literal("}");
                f.ret(0);
            };
            f.if_(family.eq(AF_INET), || {
                t.literal_if(length.ne(SOCKADDR_IN), "{...}");
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
            f.if_(family.eq(AF_INET6), || {
                t.literal_if(length.ne(SOCKADDR_IN6), "{...}");
                t.read(t.f.number(SOCKADDR_IN6), address, bad);
                t.literal("{AF_INET6, ");
                f.call("put_inet6", &[]);
                port();
            });
            f.if_(family.eq(AF_UNIX), || {
                f.call("put_unix", &[address, length]);
                f.ret(0);
            });
            t.literal("{unknown address family (");
            t.put(kind::SIGNED, family);
            t.literal(")}");
        },
    )
}
