//! Texts of the program's memory that are left to the controller, which can wait for a page.
//!
//! In: where the host has what the function needs ([`DeferLayout`]). Out: [`user_defer`], which sends a
//! record with the process and the address, and appends a mark that stands for the text: the session's
//! word, the read's number in hexadecimal digits and a semicolon. The word is random, so no text of a
//! program is mistaken for a mark.

use super::append::{AppendLayout, TextAppender};
use super::numbers::eight_hex;
use super::usermem;
use crate::builder::build;
use crate::func::{MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::{ExtOp, Size};

/// Bytes of the session's word.
const WORD: i16 = 16;
/// Bytes of a mark: the word, 16 digits and a semicolon.
pub const MARK: u32 = 33;
/// Fields of a record, all numbers.
pub const FIELDS: usize = 8;
/// Bytes of a record: a header, its shape, the fields.
pub const RECORD: u32 = 16 + 8 * spile_cast::u32_of(FIELDS);
/// Bit of the processor's number in the number of a read.
pub const CPU_SHIFT: i32 = 40;

/// Where the host has what the function needs. Offsets are those of bytes in the per-CPU area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferLayout {
    /// The text, whose longest length is above [`MARK`].
    pub text: AppendLayout,
    /// Memory for a record, [`RECORD`] bytes.
    pub record: i32,
    /// The word that counts the processor's reads.
    pub count: u32,
    /// The session's word in the state, with zeros if the controller reads nothing.
    pub mark: u32,
    /// The ring.
    pub ring: &'static str,
    /// The number of the record's shape.
    pub shape: u32,
    /// The flag with which a record wakes the controller.
    pub wakeup: i32,
    /// Offset of the thread's id in a task's description.
    pub task_id: u32,
    /// The same of the time of its start.
    pub task_start: u32,
    /// The same of the number of its program.
    pub task_program: u32,
}

/// `user_defer`.
pub fn user_defer(layout: &DeferLayout) -> Module {
    let contract = "\
Leaves a text of the program to the controller, and appends the mark that stands for it; nonzero if there
is no controller that reads, or no capacity in the ring.
address: of the text. capacity: the largest number of its bytes. quote: how to write it.
Cost: about 110 instructions and a record.";
    let params = ["address", "capacity", "quote"];
    let func = build("user_defer", contract, params, |f, p| {
        let [address, capacity, quote] = p;
        let word = f.addr(MemoryOperand::State(layout.mark));
        f.ret_if(word.load_u64(0).eq(0), usermem::status::BAD);
        let block = f.addr(MemoryOperand::Cpu(0));
        let t = TextAppender::new(f, layout.text, block);
        let record = block + layout.record;
        record.store_bytes(Size::U32, 0, 0);
        record.store_bytes(Size::U32, 4, RECORD.cast_signed());
        record.store_u64(8, layout.shape.cast_signed());
        let field = |n: i16| 16 + 8 * n;
        for (n, argument) in [(1, address), (2, capacity), (3, quote)] {
            record.store_u64(field(n), argument);
        }
        let cpu = f.helper(Helper::Cpu, &[]);
        let count = block + layout.count.cast_signed();
        let reads = count.load_u64(0) + 1;
        count.store_u64(0, reads);
        let number = reads + (cpu << CPU_SHIFT);
        record.store_u64(field(0), number);
        let task = f.helper(Helper::Task, &[]);
        let of_task = |offset: u32| task + offset.cast_signed();
        let id = of_task(layout.task_id).load_bytes(Size::U32, 0);
        record.store_u64(field(5), id);
        record.store_u64(field(6), of_task(layout.task_start).load_u64(0));
        record.store_u64(field(7), of_task(layout.task_program).load_u64(0));
        record.store_u64(field(4), f.helper(Helper::TaskAddress, &[]));
        let ring = f.addr(MemoryOperand::Map(layout.ring.into()));
        let [bytes, flags] = [RECORD.cast_signed(), layout.wakeup].map(|n| f.number(n));
        let lost = f.helper(Helper::Output, &[ring, record, bytes, flags]);
        f.ret_if(lost.ne(0), usermem::status::BAD);
        let end = t.end();
        for part in [0, 8] {
            end.store_u64(part, word.load_u64(part));
        }
        let letters = f.constant(u64::from(b'a' - b'0' - 10));
        let halves = [number >> 32, number.ext(ExtOp::Zext, Size::U32)];
        for (half, part) in halves.into_iter().zip([WORD, WORD + 8]) {
            end.store_u64(part, eight_hex(f, half, letters));
        }
        end.store_bytes(Size::U16, WORD + 16, i32::from(b';'));
        t.length.set(t.length + MARK.cast_signed());
        t.store_length();
        f.ret(0);
    });
    Module::from(vec![func])
}
