//! The exits of functions, by decoding their instructions.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use spile_abi::X86_64;

use crate::cfi::{self, Cfa, frame_at_entry};
use crate::exits::{FunctionExits, TailJump, code, extent};
use crate::module::DebugFile;
use crate::unit::contains;

/// Maximum number of parts of one function.
const MAX_PARTS: usize = 16;

/// See [`crate::exits::find`].
pub(super) fn find(
    module: &DebugFile,
    entry: u64,
    code: &[(u64, u64)],
) -> Result<FunctionExits, String> {
    let exact = contains(code, entry);
    let mut function = FunctionDecoder {
        module,
        entry,
        exact,
        parts: Vec::new(),
        instructions: BTreeMap::new(),
    };
    match exact {
        true => function.parts = code.to_vec(),
        false => function
            .parts
            .push(extent(module, entry).ok_or("its end is not known")?),
    }
    function.decode()?;
    function.collect_exits()
}

/// A function being decoded.
struct FunctionDecoder<'m> {
    module: &'m DebugFile,
    entry: u64,
    /// Whether the parts are complete.
    exact: bool,
    parts: Vec<(u64, u64)>,
    /// Its instructions by address.
    instructions: BTreeMap<u64, Instruction>,
}

impl FunctionDecoder<'_> {
    /// Decodes the instructions of all parts, including those found on the way.
    fn decode(&mut self) -> Result<(), String> {
        for part in self.parts.clone() {
            self.decode_part(part)?;
        }
        while let Some(part) = self.part_missing() {
            if self.parts.len() >= MAX_PARTS {
                return Err("it has too many parts".into());
            }
            self.parts.push(part);
            self.decode_part(part)?;
        }
        let mut inside = self.instructions.values().filter_map(to);
        match inside.any(|t| contains(&self.parts, t) && !self.instructions.contains_key(&t)) {
            true => Err("it has data among its instructions".into()),
            false => Ok(()),
        }
    }

    /// A part that a jump leads to and that was not decoded.
    fn part_missing(&self) -> Option<(u64, u64)> {
        let mut out = self.instructions.values().filter(|_| !self.exact);
        out.find_map(|i| {
            let target = to(i).filter(|t| !contains(&self.parts, *t))?;
            self.part_at(i.ip(), target)
        })
    }

    /// Decodes the instructions of a part in order.
    fn decode_part(&mut self, (start, end): (u64, u64)) -> Result<(), String> {
        let bytes = code(self.module.image(), start, end).ok_or("its code is not in the file")?;
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut last = None;
        while decoder.can_decode() {
            let i = decoder.decode();
            if i.is_invalid() {
                return Err(format!("at {:#x} it has no instruction", i.ip()));
            }
            if !matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                last = Some(i);
            }
            self.instructions.insert(i.ip(), i);
        }
        // A call at the end is to a function that does not return.
        let on = last.is_none_or(|i| {
            matches!(
                i.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
            ) && i.mnemonic() != Mnemonic::Hlt
        });
        match on {
            true => Err("it runs on into the code behind it".into()),
            false => Ok(()),
        }
    }

    /// The part of the function that a jump leads to, if the target is one: cold code that
    /// compilers move away. Its frame is that of the jump; a function's entry has no frame yet.
    fn part_at(&self, from: u64, target: u64) -> Option<(u64, u64)> {
        let symbols = self.module.symbols();
        let (symbol, _) = symbols.function_at(target).unzip();
        let is_cold_part = |name: &str| {
            let (first, _) = name.split_once(".cold")?;
            let mut here = symbols.starting_at(self.entry);
            here.any(|s| s.name == first).then_some(())
        };
        if let Some(s) = symbol
            && s.size > 0
            && is_cold_part(s.name).is_some()
        {
            return Some((s.address, s.address.checked_add(s.size)?));
        }
        let (from_frame, target_frame) = (self.frame(from)?, self.frame(target)?);
        let part = || cfi::function_at(self.module.image(), target);
        (from_frame == target_frame && from_frame != frame_at_entry(&X86_64)).then(part)?
    }

    fn frame(&self, address: u64) -> Option<Cfa> {
        Some(cfi::by_header(self.module.image(), address)?.cfa)
    }

    /// The exits among the instructions.
    fn collect_exits(&self) -> Result<FunctionExits, String> {
        let mut exits = FunctionExits::default();
        for (&address, i) in &self.instructions {
            match i.flow_control() {
                FlowControl::Return if i.mnemonic() == Mnemonic::Ret => {
                    if self.replaces_return(address) {
                        return Err(format!("at {address:#x} it returns to a computed address"));
                    }
                    exits.returns.push(address);
                }
                FlowControl::Return => {
                    return Err(format!("at {address:#x} it returns as the kernel does"));
                }
                FlowControl::Call | FlowControl::IndirectCall => exits.calls = true,
                FlowControl::IndirectBranch if !self.is_switch(i) => {
                    exits.jumps.push(TailJump { address, to: None });
                }
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => match to(i) {
                    Some(t) if contains(&self.parts, t) => {}
                    to => exits.jumps.push(TailJump { address, to }),
                },
                _ => {}
            }
        }
        Ok(exits)
    }

    /// Whether the return address on the stack was pushed just before, as by retpolines.
    fn replaces_return(&self, address: u64) -> bool {
        let Some((_, before)) = self.instructions.range(..address).next_back() else {
            return false;
        };
        match before.mnemonic() {
            Mnemonic::Push => true,
            Mnemonic::Mov => {
                before.op0_kind() == OpKind::Memory
                    && before.memory_base() == Register::RSP
                    && before.memory_index() == Register::None
                    && before.memory_displacement64() == 0
            }
            _ => false,
        }
    }

    /// Whether an indirect jump stays in the function: there is a frame, which a jump to another
    /// function would have removed, or the table of a nearby load leads back into the function.
    fn is_switch(&self, jump: &Instruction) -> bool {
        // `notrack`: compilers emit it only for tables.
        let memory = jump.op0_kind() == OpKind::Memory;
        if !memory && jump.segment_prefix() == Register::DS {
            return true;
        }
        let epilogue = self
            .frame(jump.ip())
            .is_none_or(|f| f == frame_at_entry(&X86_64));
        if !epilogue {
            return true;
        }
        if memory {
            return jump.memory_index_scale() == 8
                && self
                    .table_of(jump)
                    .and_then(|t| self.word::<8>(t))
                    .is_some_and(|w| self.is_decoded(u64::from_le_bytes(w)));
        }
        // `movslq (table,index,4), r; add table, r; jmp *r`
        let load = self
            .instructions
            .range(..jump.ip())
            .rev()
            .take(12)
            .map(|(_, i)| i);
        let load = load.filter(|i| i.memory_index() != Register::None);
        load.take(1)
            .any(|i| match (i.mnemonic(), i.memory_index_scale()) {
                (Mnemonic::Movsxd, 4) => self.table_of(i).is_some_and(|t| {
                    let far = self.word::<4>(t).map(i32::from_le_bytes);
                    far.is_some_and(|d| self.is_decoded(t.wrapping_add_signed(d.into())))
                }),
                (Mnemonic::Mov, 8) => {
                    let word = self.table_of(i).and_then(|t| self.word::<8>(t));
                    word.is_some_and(|w| self.is_decoded(u64::from_le_bytes(w)))
                }
                _ => false,
            })
    }

    fn is_decoded(&self, address: u64) -> bool {
        self.instructions.contains_key(&address)
    }

    /// Address of the table that an instruction loads an element of.
    fn table_of(&self, i: &Instruction) -> Option<u64> {
        let base = i.memory_base();
        if base == Register::None {
            return Some(i.memory_displacement64());
        }
        let before = self.instructions.range(..i.ip()).rev().map(|(_, i)| i);
        let mut leas = before.filter(|l| {
            l.mnemonic() == Mnemonic::Lea
                && l.op0_register() == base
                && l.is_ip_rel_memory_operand()
        });
        let table = leas.next()?.ip_rel_memory_address();
        Some(table.wrapping_add(i.memory_displacement64()))
    }

    fn word<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let bytes = code(self.module.image(), address, address.checked_add(N as u64)?)?;
        bytes.try_into().ok()
    }
}

/// The address that a direct jump names.
fn to(i: &Instruction) -> Option<u64> {
    let jumps = matches!(
        i.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    jumps.then(|| i.near_branch_target())
}
