//! A kernel with the structures of a process.

use std::collections::BTreeMap;

use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::mappings::search;
use spile_lir::library::unwind::{FILE_NAME, VDSO, copy, row};

use super::super::kernel::{tree, words};
use super::world::*;

/// The host, whose kernel has the world's structures.
pub(super) struct Kernel<'a> {
    pub(super) world: &'a World,
    pub(super) block: u64,
    pub(super) state: u64,
    pub(super) task: u64,
    pub(super) registers: u64,
    /// Values of the map of files, by key.
    pub(super) files: BTreeMap<Vec<u8>, u64>,
    pub(super) rows: Vec<u64>,
    pub(super) copy: u64,
    pub(super) records: Vec<Vec<u8>>,
    /// Records for which the ring has no space.
    pub(super) lost: u64,
}

pub(super) fn word(memory: &mut Memory, at: u64, value: u64) {
    memory.write(at, &value.to_le_bytes()).expect("a word");
}

pub(super) fn row_word((start, rule, distance, saved): Row) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&start.to_le_bytes());
    bytes[row::CFA as usize..][..2].copy_from_slice(&distance.to_le_bytes());
    bytes[row::SAVED as usize] = saved;
    bytes[row::KIND as usize] = rule;
    u64::from_le_bytes(bytes)
}

impl<'a> Kernel<'a> {
    pub(super) fn new(memory: &mut Memory, world: &'a World) -> Kernel<'a> {
        let mut block = vec![0; SEARCH + search::BYTES as usize + 64];
        // What an earlier unwind has left.
        block[FRAMES..].fill(0xa5);
        let block = memory.add(block, RegionKind::Memory);
        let mut kernel = Kernel {
            world,
            block,
            state: words(memory, &[0; 4]),
            task: 0,
            registers: 0,
            files: BTreeMap::new(),
            rows: vec![0],
            copy: memory.add(vec![0xa5; copy::BYTES as usize], RegionKind::Memory),
            records: Vec::new(),
            lost: 0,
        };
        let superblock = structure(memory, &[0xffff_0000_0000_0007]);
        let name = memory.add(b"root\0".to_vec(), RegionKind::Memory);
        let root = structure(memory, &[0, name]);
        let at_root = root.to_le_bytes();
        memory.write(root + 8, &at_root).expect("the root");
        let first = first_rows(&world.files);
        let mut files = Vec::new();
        for (n, table) in world.files.iter().enumerate() {
            let inode = structure(memory, &[1000 + n as u64, superblock]);
            // Parents have lower addresses than their entries, or higher ones.
            let entries: Vec<u64> = (0..world.depth)
                .map(|_| structure(memory, &[0, 0]))
                .collect();
            let nth = |i: usize| {
                if n == 0 {
                    entries[i]
                } else {
                    entries[world.depth - 1 - i]
                }
            };
            for i in 0..world.depth {
                let text = [World::name(n, i).as_bytes(), &[0]].concat();
                let parent = if i + 1 < world.depth {
                    nth(i + 1)
                } else {
                    root
                };
                word(memory, nth(i) + 8, parent);
                let text = memory.add(text, RegionKind::Memory);
                word(memory, nth(i) + 16, text);
            }
            let entry = if world.depth > 0 { nth(0) } else { root };
            files.push(structure(memory, &[inode, entry]));
            let value = match table {
                Table::New => continue,
                Table::Loading => [100 + n as u64, 0, 0],
                Table::None => [100 + n as u64, 1 << 32, 0],
                Table::Rows(rows) => {
                    for row in rows {
                        kernel.rows.push(words(memory, &[row_word(*row)]));
                    }
                    [100 + n as u64, first[n], rows.len() as u64]
                }
            };
            let key = [7u64, 1000 + n as u64].map(u64::to_le_bytes).concat();
            kernel.files.insert(key, words(memory, &value));
        }
        if let (true, Table::Rows(rows)) = (world.vdso_rows, &world.files[0]) {
            let value = words(memory, &[VDSO.into(), first[0], rows.len() as u64]);
            kernel.files.insert(vec![0; 16], value);
        }
        let mut entries = Vec::new();
        for (n, mapping) in world.mappings.iter().enumerate() {
            let (from, to) = world.range(n);
            if mapping.gap != 0 || n == 0 {
                entries.push((from - 1, 0));
            }
            let file = mapping.file.map_or(0, |f| files[f]);
            let flags = if mapping.executable { 5 } else { 1 };
            entries.push((
                to - 1,
                structure(memory, &[from, to, mapping.pgoff, file, flags]),
            ));
        }
        entries.push((u64::MAX, 0));
        let top = tree(memory, world.slots, &entries);
        let vdso = world.vdso.map_or(0, |n| world.range(n).0);
        let mm = structure(memory, &[top, vdso]);
        let mut returns = 0;
        for (location, original) in world.returns.iter().rev() {
            returns = structure(memory, &[*location, *original, returns]);
        }
        let utask = structure(memory, &[returns]);
        kernel.task = structure(memory, &[mm, 0xdead_0000_0000 | 77, utask]);
        let selector = if world.compat { 0x23 } else { 0x33 };
        // Other bits than the selector's are anything.
        let mut registers = [0; 21];
        for (offset, value) in [
            (128, world.ip),
            (152, world.sp),
            (32, world.bp),
            (136, selector),
        ] {
            registers[offset / 8] = value | if offset == 136 { 0xabc_0000 } else { 0 };
        }
        kernel.registers = words(memory, &registers);
        kernel
    }
}

impl Host for Kernel<'_> {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let fault = (-14i64).cast_unsigned();
        Ok(match (helper, args) {
            (Helper::Task | Helper::TaskAddress, []) => self.task,
            (Helper::Registers, [task]) if *task == self.task => self.registers,
            (Helper::Cpu, []) => CPU,
            (Helper::TimeNs, []) => 9,
            (Helper::Waiting, [_, 0]) => self.world.waiting,
            (Helper::Read, [to, size, from]) => {
                let bytes = memory.read(*from, *size as usize).map(<[u8]>::to_vec);
                let ok = bytes.is_ok();
                memory.write(*to, &bytes.unwrap_or_else(|_| vec![0; *size as usize]))?;
                if ok { 0 } else { fault }
            }
            (Helper::ReadText, [to, size, from]) if *size == FILE_NAME as u64 => {
                let mut text = Vec::new();
                while text.last() != Some(&0) {
                    text.push(memory.read(*from + text.len() as u64, 1)?[0]);
                }
                memory.write(*to, &text)?;
                text.len() as u64
            }
            (Helper::ReadUser, [to, size, from]) => {
                let byte = |i| self.world.byte(from.wrapping_add(i));
                let bytes: Option<Vec<u8>> = (0..*size).map(byte).collect();
                let ok = bytes.is_some();
                memory.write(*to, &bytes.unwrap_or_else(|| vec![0; *size as usize]))?;
                if ok { 0 } else { fault }
            }
            (Helper::MapLookup, [map, key]) if *map == TASK + 1 => {
                let key = memory.read(*key, 16)?;
                self.files.get(key).copied().unwrap_or(0)
            }
            (Helper::MapLookup, [map, key]) if *map == TASK + 2 => {
                let key = memory.read(*key, 4)?;
                let n = u32::from_le_bytes(key.try_into().unwrap_or_default());
                let row = self.rows.get(n as usize).filter(|_| !self.world.no_rows);
                row.copied().unwrap_or(0)
            }
            (Helper::MapLookup, [_, key]) => {
                assert_eq!(memory.read(*key, 4)?, (CPU as u32).to_le_bytes());
                if self.world.buffer { self.copy } else { 0 }
            }
            (Helper::MapUpdate, [_, key, value, 1]) => {
                let key = memory.read(*key, 16)?.to_vec();
                let value = memory.read(*value, 24)?.to_vec();
                if self.files.contains_key(&key) {
                    return Ok((-17i64).cast_unsigned());
                }
                let (value, result) = match self.world.update {
                    Update::Done => (value, 0),
                    Update::Full => return Ok((-7i64).cast_unsigned()),
                    Update::Raced => {
                        let n = u64::from_le_bytes(key[8..].try_into().unwrap_or_default());
                        let value = [n - 300, 0, 0].map(u64::to_le_bytes).concat();
                        (value, (-17i64).cast_unsigned())
                    }
                };
                let value = memory.add(value, RegionKind::Memory);
                self.files.insert(key, value);
                result
            }
            (Helper::Output, [_, record, size, 2]) if self.world.full => {
                memory.read(*record, *size as usize)?;
                self.lost += 1;
                (-11i64).cast_unsigned()
            }
            (Helper::Output, [_, record, size, 2]) => {
                self.records
                    .push(memory.read(*record, *size as usize)?.to_vec());
                0
            }
            other => return Err(Trap::Helper(format!("{other:?}"))),
        })
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        Some(match of {
            MemoryOperand::Cpu(off) => self.block + u64::from(*off),
            MemoryOperand::State(off) => self.state + u64::from(*off),
            MemoryOperand::Map(name) => match &**name {
                "files" => TASK + 1,
                "rows" => TASK + 2,
                "copies" => TASK + 3,
                _ => TASK + 4,
            },
            _ => return None,
        })
    }
}
