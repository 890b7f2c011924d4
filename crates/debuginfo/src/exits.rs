//! The exits of a function: its return instructions, and its jumps to other functions, which return
//! instead. An ambiguous case is refused or reported as unknown.

use crate::cfi;
use crate::code::Instruction;
use crate::image::Image;
use crate::module::DebugFile;
use crate::symbols::ElfSymbol;

/// Size in bytes from which on a function is taken for damage.
const MAX_BYTES: u64 = 16 << 20;

/// The exits of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionExits {
    /// Linked addresses of its return instructions, ascending.
    pub returns: Vec<u64>,
    /// Its jumps to other functions.
    pub jumps: Vec<TailJump>,
    /// Whether it calls other functions: only then can an exception pass through it.
    pub calls: bool,
}

/// A jump to another function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailJump {
    /// The linked address of the instruction.
    pub address: u64,
    /// The other function, if the instruction names it.
    pub to: Option<u64>,
}

/// The exits of the function at a linked address. `code` are its ranges by debugging information;
/// if empty, symbols and unwind tables give them.
///
/// # Errors
/// Why the exits cannot be determined.
pub fn find(module: &DebugFile, entry: u64, code: &[(u64, u64)]) -> Result<FunctionExits, String> {
    match module.image().instructions() {
        Some(known) => (known.exits)(module, entry, code),
        None => Err("the instructions of its processor are not known".into()),
    }
}

/// The range of a function by symbols or unwind tables.
pub(crate) fn extent(module: &DebugFile, entry: u64) -> Option<(u64, u64)> {
    let symbols = module.symbols();
    let starts_there = |s: &&ElfSymbol<'_>| s.address == entry && s.size > 0;
    let named = symbols.starting_at(entry).find(starts_there);
    let end = match named {
        Some(s) => entry.checked_add(s.size)?,
        None => {
            cfi::function_at(module.image(), entry)
                .filter(|f| f.0 == entry)?
                .1
        }
    };
    Some((entry, end))
}

/// The instructions from one linked address to another; none if their code or the processor's
/// instructions are not known.
pub(crate) fn instructions(image: &Image, start: u64, end: u64) -> Vec<Instruction> {
    let bytes = code(image, start, end).unwrap_or_default();
    let known = image.instructions();
    known.map_or_else(Vec::new, |known| (known.decode)(bytes, start, bytes.len()))
}

/// The file's bytes from one linked address to another.
pub(crate) fn code(image: &Image, start: u64, end: u64) -> Option<&[u8]> {
    let length = end.checked_sub(start).filter(|l| *l <= MAX_BYTES)?;
    image.bytes_at(start, usize::try_from(length).ok()?)
}
