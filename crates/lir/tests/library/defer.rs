//! Reads that are left to the controller: records and marks against Rust, on random tasks, texts and
//! rings.

use std::rc::Rc;

use proptest::prelude::*;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::append::AppendLayout;
use spile_lir::library::defer::{DeferLayout, MARK, RECORD, user_defer};

use super::forms::{Forms, forms, properties};

const MOST: usize = 100;
/// Offsets in the block.
const LENGTH: usize = 0;
const COUNT: usize = 8;
const AT: usize = 16;
const TEXT: usize = AT + RECORD as usize;
const BLOCK: usize = TEXT + 3 * MOST;
/// Offset of the session's word in the state.
const WORD: usize = 24;
const SHAPE: u32 = 7;
const WAKEUP: i32 = 2;
/// The task's address as a number.
const TASK: u64 = 0xffff_8880_1234_5678;

fn layout() -> DeferLayout {
    DeferLayout {
        text: AppendLayout {
            length: LENGTH as i32,
            text: TEXT as i32,
            most: MOST as i32,
            digits: 0,
        },
        record: AT as i32,
        count: COUNT as u32,
        mark: WORD as u32,
        ring: "ring",
        shape: SHAPE,
        wakeup: WAKEUP,
        task_id: 4,
        task_start: 16,
        task_program: 8,
    }
}

fn function() -> Rc<Forms> {
    forms("user_defer", || user_defer(&layout()))
}

/// What the function meets.
#[derive(Debug, Clone)]
struct World {
    before: String,
    word: Option<String>,
    /// The words of the task's description.
    task: [u64; 3],
    cpu: u64,
    reads: u64,
    /// The answer of the ring.
    full: bool,
}

struct Kernel<'a> {
    world: &'a World,
    block: u64,
    state: u64,
    task: u64,
    ring: u64,
    records: Vec<Vec<u8>>,
}

impl Kernel<'_> {
    fn new<'a>(memory: &mut Memory, world: &'a World) -> Kernel<'a> {
        let mut block = vec![0; BLOCK];
        let mut state = vec![0; WORD + 24];
        let mut set = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        set(LENGTH, &(world.before.len() as u64).to_le_bytes());
        set(COUNT, &world.reads.to_le_bytes());
        set(AT, &[0xa5; RECORD as usize]);
        set(TEXT, world.before.as_bytes());
        if let Some(word) = &world.word {
            state[WORD..WORD + 16].copy_from_slice(word.as_bytes());
        }
        let task = world.task.iter().flat_map(|w| w.to_le_bytes()).collect();
        let [block, state, task, ring] =
            [block, state, task, vec![0; 8]].map(|bytes| memory.add(bytes, RegionKind::Memory));
        Kernel {
            world,
            block,
            state,
            task,
            ring,
            records: Vec::new(),
        }
    }
}

impl Host for Kernel<'_> {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        match (helper, args) {
            (Helper::Cpu, []) => Ok(self.world.cpu),
            (Helper::Task, []) => Ok(self.task),
            (Helper::TaskAddress, []) => Ok(TASK),
            (Helper::Output, [ring, data, size, 2]) if *ring == self.ring => {
                let record = memory.read(*data, *size as usize)?.to_vec();
                self.records.push(record);
                let no_space = (-11i64).cast_unsigned();
                Ok(if self.world.full { no_space } else { 0 })
            }
            other => Err(Trap::Helper(format!("{other:?}"))),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            MemoryOperand::State(off) => Some(self.state + u64::from(*off)),
            MemoryOperand::Map(name) if name == "ring" => Some(self.ring),
            _ => None,
        }
    }
}

fn world() -> impl Strategy<Value = World> {
    (
        prop_oneof![3 => "[a-z]{0,40}", 2 => "[a-z]{60,100}"],
        proptest::option::weighted(0.9, "[A-Z0-9]{16}"),
        any::<[u64; 3]>(),
        0..8192u64,
        (any::<u64>(), 24..64u32).prop_map(|(n, shift)| n >> shift),
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(before, word, task, cpu, reads, full)| World {
            before,
            word,
            task,
            cpu,
            reads,
            full,
        })
}

properties! {
    also a_full_text_takes_no_mark;

    1000 cases: fn a_mark_stands_for_each_record(world in world(), args in any::<[u64; 3]>()) {
        for mut machine in function().machines(1000) {
            let mut kernel = Kernel::new(&mut machine.memory, &world);
            let result = machine.run("user_defer", &args, &mut kernel);
            let block = machine.memory.region(kernel.block).expect("the block");
            let number = |bytes: &[u8], at: usize| {
                u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
            };
            let (length, text) = (number(block, LENGTH) as usize, &block[TEXT..]);
            let Some(word) = &world.word else {
                prop_assert!(result.is_ok_and(|failed| failed != 0));
                prop_assert_eq!((kernel.records.len(), length), (0, world.before.len()));
                continue;
            };
            // The processor's number is above the count of its reads.
            let read = (world.cpu << 40) + world.reads + 1;
            let header = [0, u64::from(SHAPE)];
            let id = world.task[0] >> 32;
            let fields = [read, args[0], args[1], args[2], TASK, id, world.task[2], world.task[1]];
            let mut record: Vec<u8> = header.iter().chain(&fields).flat_map(|w| w.to_le_bytes()).collect();
            record[4] = RECORD as u8;
            prop_assert_eq!(&kernel.records, &[record]);
            prop_assert_eq!(number(block, COUNT), world.reads + 1);
            prop_assert_eq!(result, Ok(u64::from(world.full) * 2));
            let mark = format!("{word}{read:016x};");
            prop_assert_eq!(mark.len(), MARK as usize);
            let expected = if world.full { world.before.clone() } else { format!("{}{mark}", world.before) };
            prop_assert_eq!(length, expected.len());
            let behind = [expected.as_bytes(), &[0]].concat();
            prop_assert_eq!(&text[..behind.len()], &behind);
        }
    }
}

/// Behind a full text there is no mark, and no record that would have none.
#[test]
fn a_full_text_takes_no_mark() {
    let world = World {
        before: "x".repeat(MOST + 1),
        word: Some("ABCDEFGHIJKLMNOP".into()),
        task: [0; 3],
        cpu: 0,
        reads: 0,
        full: false,
    };
    for mut machine in function().machines(1000) {
        let mut kernel = Kernel::new(&mut machine.memory, &world);
        assert_eq!(machine.run("user_defer", &[1, 2, 3], &mut kernel), Ok(0));
        assert!(kernel.records.is_empty());
        let block = machine.memory.region(kernel.block).expect("the block");
        assert_eq!(block[LENGTH] as usize, MOST + 1);
        assert!(block[TEXT + MOST + 1..].iter().all(|b| *b == 0));
    }
}
