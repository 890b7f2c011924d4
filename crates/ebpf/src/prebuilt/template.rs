//! Code of a request to the run-time library with numbers that are filled in later.

use spile_cast::Cast;
use spile_lir::library::routine::{NAME, Routine};

use super::Blocks;
use crate::emit::CpuBlocks;
use crate::isa::asm::{AsmFunction, Reloc, RelocTarget, Section, strength_reduced};
use crate::isa::insn::Insn;

/// Code of all functions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// What the code knows of the processors' blocks.
    pub blocks: Blocks,
    /// The numbers that the code has now: those of [`numbers`].
    pub numbers: &'static [i32],
    /// The functions and the steps of their loops, in the order of emission.
    pub functions: &'static [Code],
    /// The constants by name. Those that only the caller has are empty or zeros.
    pub data: &'static [(&'static str, &'static [u8])],
}

/// Code of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The function's name.
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [&'static str],
    /// Whether it can be a global subprogram: callbacks cannot.
    pub callable: bool,
    /// The instructions as the kernel has them.
    pub words: &'static [u64],
    /// The locations of numbers.
    pub fields: &'static [Field],
    /// The references, with their slots.
    pub relocs: &'static [(u32, TemplateTarget)],
}

/// A location that contains a number, or the sum of one and a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Which part of the instruction or reference.
    pub part: Part,
    /// Index of the slot, or of the reference.
    pub index: u32,
    /// Index of the number.
    pub number: u32,
}

/// The part of an instruction, or of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The displacement, 16 bits.
    Off,
    /// The constant, 32 bits.
    Imm,
    /// The offset of a reference.
    Target,
}

/// The target of a reference, as [`RelocTarget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateTarget {
    /// A map, by name.
    Map(&'static str),
    /// An offset in the state memory.
    Bss(u32),
    /// An offset in the constants.
    Rodata(u32),
    /// A function that is called.
    Call(&'static str),
    /// A function whose address is taken.
    Func(&'static str),
}

/// Where the displacement and the constant of an instruction begin in its word.
pub(super) const OFF_SHIFT: u32 = 16;
pub(super) const IMM_SHIFT: u32 = 32;

/// The numbers that code depends on: those of the request, the processors' blocks, and the offset of
/// each constant.
pub fn numbers(
    routine: &mut Routine,
    blocks: Option<CpuBlocks>,
    data: impl Iterator<Item = u32>,
) -> Vec<i32> {
    let requested = routine.free().into_iter().map(|(number, _)| number.get());
    let blocks = blocks.map(|b| [b.first, b.stride, b.count]);
    let others = blocks.into_iter().flatten().chain(data);
    requested.chain(others.map(u32::cast_signed)).collect()
}

impl Template {
    /// The functions with other numbers, and a name instead of [`NAME`].
    pub fn link(&self, numbers: &[i32], name: Option<&str>) -> Result<Vec<AsmFunction>, String> {
        let deltas = numbers.iter().zip(self.numbers);
        let deltas: Vec<i32> = deltas.map(|(to, from)| to.wrapping_sub(*from)).collect();
        self.functions
            .iter()
            .map(|code| code.link(&deltas, name))
            .collect()
    }
}

impl Code {
    fn link(&self, deltas: &[i32], name: Option<&str>) -> Result<AsmFunction, String> {
        let bad = || format!("the template of {} is damaged", self.name);
        let mut words = self.words.to_vec();
        let mut targets: Vec<(u32, TemplateTarget)> = self.relocs.to_vec();
        for Field {
            part,
            index,
            number,
        } in self.fields
        {
            let index = *index as usize;
            let delta = *deltas.get(*number as usize).ok_or_else(bad)?;
            match part {
                Part::Target => targets.get_mut(index).ok_or_else(bad)?.1.add(delta),
                Part::Off => add_off(words.get_mut(index).ok_or_else(bad)?, delta),
                Part::Imm => add_imm(words.get_mut(index).ok_or_else(bad)?, delta),
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut insns = Vec::with_capacity(words.len());
        let mut offset = 0;
        while offset < bytes.len() {
            let insn = Insn::decode(&bytes[offset..]).map_err(|_| bad())?;
            offset += 8 * insn.slots() as usize;
            // A multiplication by a number can be a shift.
            insns.push(strength_reduced(&insn).flatten().unwrap_or(insn));
        }
        let named = |text: &str| name.map_or_else(|| text.to_owned(), |n| text.replace(NAME, n));
        Ok(AsmFunction {
            name: named(self.name),
            params: self.params.iter().map(|p| (*p).into()).collect(),
            insns,
            relocs: targets
                .into_iter()
                .map(|(slot, target)| Reloc {
                    slot,
                    target: target.linked(named),
                })
                .collect(),
            ..AsmFunction::default()
        })
    }
}

fn add_off(word: &mut u64, delta: i32) {
    let off = (*word >> OFF_SHIFT).low16();
    let sum = off.wrapping_add(delta.low16());
    *word ^= u64::from(off ^ sum) << OFF_SHIFT;
}

fn add_imm(word: &mut u64, delta: i32) {
    let imm = (*word >> IMM_SHIFT) as u32;
    let sum = imm.wrapping_add(delta.cast_unsigned());
    *word ^= u64::from(imm ^ sum) << IMM_SHIFT;
}

impl TemplateTarget {
    /// Adds to the offset.
    fn add(&mut self, delta: i32) {
        if let TemplateTarget::Bss(off) | TemplateTarget::Rodata(off) = self {
            *off = off.wrapping_add_signed(delta);
        }
    }

    fn linked(self, named: impl Fn(&str) -> String) -> RelocTarget {
        match self {
            TemplateTarget::Map(name) => RelocTarget::Map(named(name).into()),
            TemplateTarget::Bss(off) => RelocTarget::Data(Section::Bss, off),
            TemplateTarget::Rodata(off) => RelocTarget::Data(Section::Rodata, off),
            TemplateTarget::Call(name) => RelocTarget::Call(named(name).into()),
            TemplateTarget::Func(name) => RelocTarget::Func(named(name).into()),
        }
    }
}
