//! Makes templates: emits the functions of a request with two lists of immediates, and finds the fields
//! of the code that differ.
//!
//! Each immediate changes by a different amount, so the change of a field tells which immediate it holds.
//! The template is then checked: for the least and the greatest values, among others, it must give the
//! code that the emitter writes.

use spile_cast::Cast;
use spile_lir::Module;
use spile_lir::library::routine::{Routine, Values};

use super::Blocks;
use super::template::{Code, Field, IMM_SHIFT, OFF_SHIFT, Part, Template, TemplateTarget, numbers};
use crate::emit::{CpuBlocks, ObjectSymbols, emit, symbol};
use crate::isa::asm::{AsmFunction, RelocTarget, Section};

/// A request with its numbers, and what the emitter writes for it.
pub struct Emitted {
    module: Module,
    /// The functions.
    pub functions: Vec<AsmFunction>,
    /// The numbers in them.
    pub numbers: Vec<i32>,
}

/// Which numbers to take.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// The same for all.
    Base,
    /// Each one with another distance from the base.
    Changed,
    /// The smallest ones.
    Smallest,
    /// The largest ones.
    Largest,
    /// Random ones.
    Random(u64),
}

/// The largest offset in the state memory and in the constants, and the largest block.
const STATE: i32 = 1 << 30;
const BLOCK: i32 = 1 << 20;

impl Choice {
    /// The `nth` number, if these values are possible.
    fn number(self, nth: usize, values: &Values) -> i32 {
        let (smallest, largest) = (*values.start(), *values.end());
        let base = smallest + 4096;
        match self {
            Choice::Base => base,
            Choice::Changed => base + 8 * nth.fit::<i32>(),
            Choice::Smallest => smallest,
            Choice::Largest => largest,
            Choice::Random(seed) => {
                let random = (seed + nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                smallest + (random % (largest - smallest).fit::<u64>()) as i32
            }
        }
    }

    /// A number of processors of this kind.
    fn processors(self, blocks: Blocks) -> u32 {
        let nth = match self {
            Choice::Base => 0,
            Choice::Changed => 1,
            Choice::Smallest => 2,
            Choice::Largest => 3,
            Choice::Random(seed) => seed.fit::<usize>() % 4,
        };
        // Both differences are unique: those of other numbers are multiples of 8.
        match blocks {
            Blocks::None => 0,
            Blocks::PowerOfTwo => [4, 8, 1, 8192][nth],
            Blocks::Other => [5, 7, 3, 8191][nth],
        }
    }
}

/// Emits a request with a choice of numbers.
pub fn emitted(routine: &Routine, blocks: Blocks, choice: Choice) -> Result<Emitted, String> {
    let mut routine = routine.clone();
    let mut nth = 0;
    let mut next = |values: &Values| {
        nth += 1;
        choice.number(nth, values)
    };
    for (mut number, values) in routine.free() {
        number.set(next(&values));
    }
    let module = routine.module(&[]);
    let mut offset = |largest: i32| next(&(8..=largest)).cast_unsigned();
    let cpu_blocks = (blocks != Blocks::None).then(|| CpuBlocks {
        first: offset(STATE),
        stride: offset(BLOCK),
        count: choice.processors(blocks),
    });
    let offsets: Vec<u32> = module.data.iter().map(|_| offset(STATE)).collect();
    let names = module.data.iter().map(|d| d.name.clone());
    let around = ObjectSymbols {
        data: names.zip(offsets.iter().copied()).collect(),
        cpu_blocks,
        ..ObjectSymbols::default()
    };
    Ok(Emitted {
        functions: emit(&module, &around).map_err(|e| e.to_string())?,
        numbers: numbers(&mut routine, cpu_blocks, offsets.into_iter()),
        module,
    })
}

/// The template of a request.
///
/// # Errors
/// Code that depends on a number in another way than by a sum.
pub fn extract(routine: &Routine, blocks: Blocks) -> Result<Template, String> {
    let emitted = |choice| emitted(routine, blocks, choice);
    let (base, changed) = (emitted(Choice::Base)?, emitted(Choice::Changed)?);
    if base.functions.len() != changed.functions.len() {
        return Err("the number of loops depends on a number".into());
    }
    let changes = changed.numbers.iter().zip(&base.numbers);
    let changes: Vec<i32> = changes.map(|(to, from)| to - from).collect();
    let pairs = base.functions.iter().zip(&changed.functions);
    let functions = pairs.map(|(a, b)| code(&base.module, (a, b), &changes));
    let functions: Vec<Code> = functions.collect::<Result<_, String>>()?;
    let data = base.module.data.into_iter();
    let data: Vec<(&str, &[u8])> = data.map(|d| (&*d.name.leak(), &*d.bytes.leak())).collect();
    let template = Template {
        blocks,
        numbers: base.numbers.leak(),
        functions: functions.leak(),
        data: data.leak(),
    };
    for choice in [
        Choice::Base,
        Choice::Changed,
        Choice::Smallest,
        Choice::Largest,
    ] {
        let other = emitted(choice)?;
        if template.link(&other.numbers, None)? != other.functions {
            return Err(format!(
                "the code for the {choice:?} numbers has another form"
            ));
        }
    }
    Ok(template)
}

/// The code of a function, from what the emitter wrote for two lists of numbers.
fn code(
    module: &Module,
    (a, b): (&AsmFunction, &AsmFunction),
    changes: &[i32],
) -> Result<Code, String> {
    let bad = |location: String| format!("{}: {location} is no sum with one number", a.name);
    let number = |change: i32, location: String| -> Result<u32, String> {
        let index = changes.iter().position(|c| *c == change);
        index.map(|n| n.fit::<u32>()).ok_or_else(|| bad(location))
    };
    let mut fields = Vec::new();
    let mut add = |part, index: usize, change: i32| -> Result<(), String> {
        if change != 0 {
            fields.push(Field {
                part,
                index: index.fit(),
                number: number(change, format!("slot {index}"))?,
            });
        }
        Ok(())
    };
    let (words, others) = (words(a), words(b));
    if words.len() != others.len() || a.relocs.len() != b.relocs.len() {
        return Err(bad("the length".into()));
    }
    for (slot, (word, other)) in words.iter().zip(&others).enumerate() {
        if word.low16() != other.low16() {
            return Err(bad(format!("the operation at slot {slot}")));
        }
        let off = |word: u64| i32::from((word >> OFF_SHIFT).low16().cast_signed());
        let imm = |word: u64| (word >> IMM_SHIFT) as i32;
        add(Part::Off, slot, off(*other) - off(*word))?;
        add(Part::Imm, slot, imm(*other).wrapping_sub(imm(*word)))?;
    }
    let mut relocs = Vec::new();
    for (index, (reloc, other)) in a.relocs.iter().zip(&b.relocs).enumerate() {
        let target = match (&reloc.target, &other.target) {
            (RelocTarget::Data(section, from), RelocTarget::Data(_, to)) => {
                add(Part::Target, index, to.cast_signed() - from.cast_signed())?;
                match section {
                    Section::Bss => TemplateTarget::Bss(*from),
                    Section::Rodata => TemplateTarget::Rodata(*from),
                }
            }
            (RelocTarget::Map(name), _) => TemplateTarget::Map(leak(name)),
            (RelocTarget::Call(name), _) => TemplateTarget::Call(leak(name)),
            (RelocTarget::Func(name), _) => TemplateTarget::Func(leak(name)),
            _ => return Err(bad(format!("reference {index}"))),
        };
        relocs.push((reloc.slot, target));
    }
    let named = |name: &str| symbol(name) == a.name;
    let is_function = module.funcs.iter().any(|f| named(&f.name));
    let params: Vec<&str> = a.params.iter().map(|p| leak(p)).collect();
    Ok(Code {
        name: leak(&a.name),
        params: params.leak(),
        callable: is_function && !module.callbacks().any(named),
        words: words.leak(),
        fields: fields.leak(),
        relocs: relocs.leak(),
    })
}

/// A text for the rest of the process: templates are made at most once.
fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn words(function: &AsmFunction) -> Vec<u64> {
    let mut bytes = Vec::new();
    function.insns.iter().for_each(|i| i.encode(&mut bytes));
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|w| u64::from_le_bytes(*w)).collect()
}
