//! System-call arguments that are structures or buffers in user space, as text: subprograms of
//! [`super::argstr`].

use crate::isa::asm::{Asm, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size};
use crate::lower::Pool;
use crate::lower::event::usermem::{USER_TEXT, staging_area};
use crate::lower::text::append::flag;
use crate::lower::text::put::{ArgAppender, kind};
use crate::lower::text::quote;

/// Bits of a time's descriptor. This one: 32-bit fields.
pub(in crate::lower) const NARROW: u8 = 1;
/// Microseconds rather than nanoseconds.
pub(in crate::lower) const MICRO: u8 = 2;
/// Two times, interval and value.
pub(in crate::lower) const TIMER: u8 = 4;

/// Length of a buffer's text with its quotes: `syscall_string_trunc` of SystemTap.
const SHOWN: i32 = 50;
/// The largest number of bytes to read of a buffer; more bytes count as truncated.
const READ: i32 = SHOWN;
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
/// Sizes of `struct sockaddr_in` and `sockaddr_in6`.
const SOCKADDR_IN: i32 = 16;
const SOCKADDR_IN6: i32 = 28;
/// Size of `sun_path`.
const UNIX_PATH: i32 = 108;

type NewAppender<'m, 'a> = &'m dyn Fn(&str, &[&'static str]) -> ArgAppender<'a>;

/// Defines the subprograms.
pub(in crate::lower) fn define_subs(
    pool: &mut Pool,
    put: NewAppender<'_, '_>,
) -> Result<(), String> {
    pool.sub("put_time", |_| {
        put_time(put("put_time", &["descriptor", "address"]))
    })?;
    let max = put("put_buffer", &[]).plan.max_string;
    let quote = quote::sub(pool, max)?;
    pool.sub("put_buffer", |_| {
        put_buffer(put("put_buffer", &["address", "length"]), &quote)
    })?;
    pool.sub("put_inet6", |_| put_inet6(put("put_inet6", &[])))?;
    pool.sub("put_unix", |_| {
        put_unix(put("put_unix", &["address", "length"]))
    })?;
    pool.sub("put_sockaddr", |_| {
        put_sockaddr(put("put_sockaddr", &["address", "length"]))
    })
}

/// Reads `size` bytes (a constant or a bounded register) at the address in a register into the
/// staging area.
fn read_into_staging(asm: &mut Asm, from: i32, size: Reg, address: Reg, bad: Label) {
    let there = asm.label();
    asm.mov(R1, R6);
    asm.add(R1, from);
    asm.mov(R2, size);
    asm.mov(R3, address);
    asm.call(Helper::ProbeReadUser);
    asm.jump_if(Cond::Eq, R0, 0, there);
    asm.mov(R1, size);
    asm.mov(R2, address);
    asm.mov(R3, 1);
    asm.call_sub(USER_TEXT);
    asm.jump_if(Cond::Ne, R0, 0, bad);
    asm.bind(there);
}

/// Loads a number from the staging area.
fn load_staged(p: &mut ArgAppender<'_>, size: Size, at: i32, to: Reg) {
    let from = staging_area(p.plan) as i32;
    p.asm.mov(to, R6);
    p.asm.add(to, from + at);
    p.asm.load(size, to, to, 0);
}

/// Appends the number in a register, with leading zeros up to `digits` digits.
fn append_padded(p: &mut ArgAppender<'_>, base: i32, value: Reg, digits: i32) {
    p.asm.mov(R2, value);
    p.asm.mov(R1, digits);
    p.asm.mov(R3, if base == 10 { flag::SIGNED } else { 0 });
    p.asm.mov(R4, 0);
    p.asm.call_sub(format!("append_number_{base}"));
}

/// `put_time(descriptor, address)`: appends `[1.000000002]`, or interval and value of a timer.
fn put_time(mut p: ArgAppender<'_>) -> Result<Function, String> {
    let from = staging_area(p.plan) as i32;
    let [some, wide, single, bad, moment, next, close] = std::array::from_fn(|_| p.asm.label());
    p.asm.jump_if(Cond::Ne, R8, 0, some);
    p.literal("NULL");
    p.asm.jump(p.end);
    p.asm.bind(some);
    p.asm.alu(AluOp::Rsh, R7, 16);
    p.asm.mov(R9, 8);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, i32::from(NARROW));
    p.asm.jump_if(Cond::Ne, R1, 0, wide);
    p.asm.mov(R9, 16);
    p.asm.bind(wide);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, i32::from(TIMER));
    p.asm.jump_if(Cond::Eq, R1, 0, single);
    p.asm.add(R9, R9);
    p.asm.bind(single);
    read_into_staging(&mut p.asm, from, R9, R8, bad);
    p.literal("[");
    p.asm.mov(R9, 0);
    p.asm.bind(moment);
    let [narrow, seconds, micro, both] = std::array::from_fn(|_| p.asm.label());
    // Seconds to r8, the fraction to the stack.
    p.asm.mov(R2, R6);
    p.asm.add(R2, from);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, i32::from(NARROW));
    p.asm.jump_if(Cond::Ne, R1, 0, narrow);
    p.asm.add(R2, R9);
    p.asm.add(R2, R9);
    p.asm.load(Size::DW, R8, R2, 0);
    p.asm.load(Size::DW, R1, R2, 8);
    p.asm.jump(seconds);
    p.asm.bind(narrow);
    p.asm.add(R2, R9);
    p.asm.load(Size::W, R8, R2, 0);
    p.asm.load(Size::W, R1, R2, 4);
    for reg in [R8, R1] {
        p.asm.alu(AluOp::Lsh, reg, 32);
        p.asm.alu(AluOp::Arsh, reg, 32);
    }
    p.asm.bind(seconds);
    p.asm.store(Size::DW, R10, -8, R1);
    p.number(R8, kind::SIGNED);
    p.literal(".");
    p.asm.load(Size::DW, R8, R10, -8);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, i32::from(MICRO | TIMER));
    p.asm.jump_if(Cond::Ne, R1, 0, micro);
    append_padded(&mut p, 10, R8, 9);
    p.asm.jump(both);
    p.asm.bind(micro);
    append_padded(&mut p, 10, R8, 6);
    p.asm.bind(both);
    p.asm.mov(R1, R7);
    p.asm.alu(AluOp::And, R1, i32::from(TIMER));
    p.asm.jump_if(Cond::Ne, R1, 0, next);
    p.asm.bind(close);
    p.literal("]");
    p.asm.jump(p.end);
    p.asm.bind(next);
    p.asm.jump_if(Cond::Ne, R9, 0, close);
    p.literal(",");
    p.asm.mov(R9, 8);
    p.asm.jump(moment);
    p.asm.bind(bad);
    p.number(R8, kind::HEX);
    p.finish()
}

/// `put_buffer(address, length)`: appends the bytes in quotes, truncated to the limit, or the
/// address if they cannot be read.
fn put_buffer(mut p: ArgAppender<'_>, quote: &str) -> Result<Function, String> {
    let from = staging_area(p.plan) as i32;
    let to = (p.plan.scratch.text + 3 * p.plan.max_string) as i32;
    let [short, bad, none] = std::array::from_fn(|_| p.asm.label());
    p.asm.jump_if(Cond::Eq, R7, 0, bad);
    p.asm.jump_if(Cond::Le, R8, READ, short);
    p.asm.mov(R8, READ);
    p.asm.bind(short);
    p.asm.jump_if(Cond::Eq, R8, 0, none);
    read_into_staging(&mut p.asm, from, R8, R7, bad);
    p.asm.bind(none);
    for at in (0..64).step_by(8) {
        store(&mut p.asm, to + at, 0.into());
    }
    for (reg, off) in [(R1, from), (R2, to)] {
        p.asm.mov(reg, R6);
        p.asm.add(reg, off);
    }
    p.asm.mov(R3, R8);
    p.asm.mov(R4, SHOWN - 1);
    p.asm.mov(R5, 1);
    p.asm.call_sub(quote);
    p.asm.mov(R2, R6);
    p.asm.add(R2, to);
    p.text(SHOWN + 8);
    p.asm.jump(p.end);
    p.asm.bind(bad);
    p.number(R7, kind::HEX);
    p.finish()
}

/// A register or an immediate.
enum Operand {
    Reg(Reg),
    Num(i32),
}

impl From<Reg> for Operand {
    fn from(r: Reg) -> Operand {
        Operand::Reg(r)
    }
}

impl From<i32> for Operand {
    fn from(n: i32) -> Operand {
        Operand::Num(n)
    }
}

/// Stores a word in the CPU's block, at any displacement.
fn store(asm: &mut Asm, at: i32, value: Operand) {
    asm.mov(R1, R6);
    asm.add(R1, at);
    match value {
        Operand::Reg(r) => asm.store(Size::DW, R1, 0, r),
        Operand::Num(n) => asm.store(Size::DW, R1, 0, n),
    }
}

/// `r1` = a 16-bit number of the staging area, converted from network byte order.
fn load_network_u16(p: &mut ArgAppender<'_>, at: i32) {
    load_staged(p, Size::B, at, R1);
    load_staged(p, Size::B, at + 1, R2);
    p.asm.alu(AluOp::Lsh, R1, 8);
    p.asm.alu(AluOp::Or, R1, R2);
}

/// `put_inet6()`: appends the eight groups of an address in the staging area.
fn put_inet6(mut p: ArgAppender<'_>) -> Result<Function, String> {
    for group in 0..8 {
        if group > 0 {
            p.literal(":");
        }
        load_network_u16(&mut p, 8 + 2 * group);
        p.asm.mov(R8, R1);
        append_padded(&mut p, 16, R8, 4);
    }
    p.finish()
}

/// `put_sockaddr(address, length)`: appends `{AF_INET, 127.0.0.1, 80}`, or `{...}` if it cannot be
/// read.
fn put_sockaddr(mut p: ArgAppender<'_>) -> Result<Function, String> {
    let from = staging_area(p.plan) as i32;
    let [some, bad, inet, inet6, unix] = std::array::from_fn(|_| p.asm.label());
    p.asm.jump_if(Cond::Ne, R7, 0, some);
    p.literal("NULL");
    p.asm.jump(p.end);
    p.asm.bind(some);
    // The length is an int.
    p.asm.mov32(R8, R8);
    p.asm.jump_if(Cond::Lt, R8, 2, bad);
    p.asm.mov(R9, 2);
    read_into_staging(&mut p.asm, from, R9, R7, bad);
    load_staged(&mut p, Size::H, 0, R9);
    for (family, to) in [(AF_INET, inet), (AF_INET6, inet6), (AF_UNIX, unix)] {
        p.asm.jump_if(Cond::Eq, R9, family, to);
    }
    p.literal("{unknown address family (");
    p.number(R9, kind::SIGNED);
    p.literal(")}");
    p.asm.jump(p.end);
    p.asm.bind(inet);
    p.asm.jump_if(Cond::Ne, R8, SOCKADDR_IN, bad);
    p.asm.mov(R9, SOCKADDR_IN);
    read_into_staging(&mut p.asm, from, R9, R7, bad);
    p.literal("{AF_INET, ");
    for byte in 0..4 {
        if byte > 0 {
            p.literal(".");
        }
        load_staged(&mut p, Size::B, 4 + byte, R9);
        p.number(R9, kind::SIGNED);
    }
    let port = p.asm.label();
    p.asm.bind(port);
    p.literal(", ");
    load_network_u16(&mut p, 2);
    p.asm.mov(R9, R1);
    p.number(R9, kind::SIGNED);
    p.literal("}");
    p.asm.jump(p.end);
    p.asm.bind(inet6);
    p.asm.jump_if(Cond::Ne, R8, SOCKADDR_IN6, bad);
    p.asm.mov(R9, SOCKADDR_IN6);
    read_into_staging(&mut p.asm, from, R9, R7, bad);
    p.literal("{AF_INET6, ");
    p.asm.call_sub("put_inet6");
    p.asm.jump(port);
    p.asm.bind(unix);
    p.asm.mov(R1, R7);
    p.asm.mov(R2, R8);
    p.asm.call_sub("put_unix");
    p.asm.jump(p.end);
    p.asm.bind(bad);
    p.literal("{...}");
    p.finish()
}

/// `put_unix(address, length)`: appends a socket's path, or the name of an abstract socket.
fn put_unix(mut p: ArgAppender<'_>) -> Result<Function, String> {
    let from = staging_area(p.plan) as i32;
    let [bad, whole, path, text] = std::array::from_fn(|_| p.asm.label());
    // At least one byte and a following one.
    p.asm.jump_if(Cond::Lt, R8, 4, bad);
    p.asm.add(R8, -2);
    p.asm.jump_if(Cond::Le, R8, UNIX_PATH, whole);
    p.asm.mov(R8, UNIX_PATH);
    p.asm.bind(whole);
    p.asm.add(R7, 2);
    read_into_staging(&mut p.asm, from, R8, R7, bad);
    // The path need not end with a NUL.
    p.asm.mov(R1, R6);
    p.asm.add(R1, from);
    p.asm.add(R1, R8);
    p.asm.store(Size::B, R1, 0, 0);
    p.literal("{AF_UNIX, ");
    p.literal("\"");
    p.asm.mov(R9, 0);
    load_staged(&mut p, Size::B, 0, R1);
    p.asm.jump_if(Cond::Ne, R1, 0, path);
    p.literal("\\000");
    p.asm.mov(R9, 1);
    p.asm.jump(text);
    p.asm.bind(path);
    p.asm.mov(R9, 0);
    p.asm.bind(text);
    p.asm.mov(R1, R9);
    p.asm.call_sub("put_escaped");
    p.literal("\"");
    p.literal("}");
    p.asm.jump(p.end);
    p.asm.bind(bad);
    p.literal("{...}");
    p.finish()
}
