//! The processor's output buffer.

use crate::builder::build;
use crate::func::{MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::Size;

/// The function's name.
pub const FLUSH: &str = "flush";

/// Where the host has what the function needs. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushLayout {
    /// The word with the number of the running handler, counted from 1.
    pub running: u32,
    /// The word with the number of bytes in the buffer.
    pub position: u32,
    /// The buffer. A header of two numbers of 32 bits comes first: the handler, the number of bytes.
    pub buffer: u32,
    /// Bytes of the buffer.
    pub size: u32,
    /// The ring.
    pub ring: &'static str,
    /// The word in the state with the flags for the ring.
    pub wake: u32,
    /// The word that counts buffers for which the ring has no space.
    pub lost: u32,
}

/// `flush`.
pub fn flush(layout: &FlushLayout) -> Module {
    let contract = "\
Sends the output buffer, if there is anything in it, and empties it; returns 0.
Cost: about 25 instructions and a record.";
    Module::from(build(FLUSH, contract, [], |f, []| {
        let block = f.addr(MemoryOperand::Cpu(0));
        let of_block = |offset: u32| block + offset.cast_signed();
        let position = of_block(layout.position);
        let bytes = position.load_u64(0);
        f.ret_if(bytes.eq(0), 0);
        f.ret_if(bytes.gt(layout.size.cast_signed()), 0);
        let buffer = of_block(layout.buffer);
        let handler = of_block(layout.running).load_u64(0) - 1;
        buffer.store_bytes(Size::U32, 0, handler);
        buffer.store_bytes(Size::U32, 4, bytes);
        let ring = f.addr(MemoryOperand::Map(layout.ring.into()));
        let flags = f.addr(MemoryOperand::State(layout.wake)).load_u64(0);
        let lost = f.helper(Helper::Output, &[ring, buffer, bytes, flags]);
        position.store_u64(0, 0);
        f.ret_if(lost.eq(0), 0);
        let count = of_block(layout.lost);
        count.store_u64(0, count.load_u64(0) + 1);
        f.ret(0);
    }))
}
