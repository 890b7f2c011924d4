//! The arguments of markers: assembler operands such as `-4@%edi` or `8@[sp, 16]`.
//!
//! `SIZE@OPERAND`: the size in bytes, negative if signed, followed by an `f` for a floating-point
//! number; then an operand as the compiler printed it for the assembler. Registers get DWARF's
//! numbers of the 64-bit processor.

use object::Architecture;

/// The assembler syntax of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assembler {
    /// x86, 32 and 64 bits, AT&T syntax.
    X86,
    /// 64-bit ARM.
    Aarch64,
    /// Unsupported.
    Other,
}

impl Assembler {
    /// The machine of an ELF file.
    #[must_use]
    pub fn for_architecture(architecture: Architecture) -> Assembler {
        match architecture {
            Architecture::X86_64 | Architecture::X86_64_X32 | Architecture::I386 => Assembler::X86,
            Architecture::Aarch64 => Assembler::Aarch64,
            _ => Assembler::Other,
        }
    }
}

/// An argument of a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Size in bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether the number is signed.
    pub signed: bool,
    /// Whether it is a floating-point number.
    pub float: bool,
    /// Its location.
    pub place: ArgPlace,
}

/// The location of an argument at the marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgPlace {
    /// A number in the note.
    Constant(i64),
    /// A register, from bit `shift` on (8 for `%ah`).
    Register {
        /// DWARF's number.
        number: u16,
        /// Number of low bits to skip.
        shift: u8,
    },
    /// Memory at `base + index * scale + displacement`.
    Memory {
        /// DWARF's number of the base register.
        base: Option<u16>,
        /// DWARF's number of the index register, and its scale.
        index: Option<(u16, u8)>,
        /// Bytes to add.
        displacement: i64,
    },
    /// Memory at this address of the file as linked.
    Linked(u64),
    /// The number is this address of the file as linked, plus the load bias.
    LinkedAddress(u64),
    /// Not understood, or in a register that is not saved: the operand's text.
    Unreadable(String),
}

/// Splits a note's text into operands: at spaces outside brackets.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        c.is_whitespace() && depth <= 0
    })
    .filter(|part| !part.is_empty())
}

/// Looks up the address of a symbol.
type Symbols<'a> = &'a mut dyn FnMut(&str) -> Option<u64>;

impl Operand {
    /// Parses one operand; `symbols` looks up symbols of the file.
    pub fn parse(text: &str, machine: Assembler, symbols: Symbols<'_>) -> Operand {
        let (size, body) = text.split_once('@').unwrap_or(("-8", text));
        let (number, float) = match size.strip_suffix('f') {
            Some(number) => (number, true),
            None => (size, false),
        };
        let width = number.parse::<i8>().unwrap_or(0);
        let valid_width = matches!(width.unsigned_abs(), 1 | 2 | 4 | 8);
        let place = match machine {
            _ if !valid_width => None,
            Assembler::X86 => x86(body, symbols),
            Assembler::Aarch64 => aarch64(body, symbols),
            Assembler::Other => None,
        };
        Operand {
            size: if valid_width { width.unsigned_abs() } else { 8 },
            signed: width < 0,
            float,
            place: place.unwrap_or_else(|| ArgPlace::Unreadable(text.to_owned())),
        }
    }
}

/// A number as compilers print it: decimal or hexadecimal, possibly negative. Unsigned
/// constants of 64 bits wrap.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.starts_with(['-', '+']) => return None,
        None => digits.parse::<u64>().ok()?,
    };
    let value = value.cast_signed();
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The sum of numbers and at most one symbol, as in `4+table-8`: symbol's address, sum.
fn sum(text: &str, symbols: Symbols<'_>) -> Option<(Option<u64>, i64)> {
    let (mut symbol, mut total) = (None, 0_i64);
    let starts = text
        .char_indices()
        .filter(|(i, c)| *i > 0 && matches!(c, '+' | '-'));
    let mut ends: Vec<usize> = starts.map(|(i, _)| i).collect();
    ends.push(text.len());
    let mut start = 0;
    for end in ends {
        let term = &text[start..end];
        start = end;
        match number(term) {
            Some(n) => total = total.wrapping_add(n),
            None if symbol.is_none() && !term.starts_with('-') => {
                let name = term.trim_start_matches('+');
                let name = name.split_once('@').map_or(name, |(n, _)| n);
                symbol = Some(symbols(name)?);
            }
            None => return None,
        }
    }
    Some((symbol, total))
}

/// The address of an optional symbol plus a number, without registers.
fn constant_address(symbol: Option<u64>, add: i64) -> Option<u64> {
    symbol.map(|at| at.wrapping_add_signed(add))
}

// ---- x86 ----

/// Names of the registers by DWARF's number, for each width from 8 to 1 byte.
const X86: [[&str; 4]; 8] = [
    ["rax", "eax", "ax", "al"],
    ["rdx", "edx", "dx", "dl"],
    ["rcx", "ecx", "cx", "cl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsp", "esp", "sp", "spl"],
];

/// DWARF's number of the instruction pointer.
const RIP: u16 = 16;

/// A register after its `%`: number, and the number of low bits to skip.
fn x86_register(name: &str) -> Option<(u16, u8)> {
    if let Some(i) = X86.iter().position(|names| names.contains(&name)) {
        return Some((i as u16, 0));
    }
    if let Some(i) = ["ah", "dh", "ch", "bh"].iter().position(|n| *n == name) {
        return Some((i as u16, 8));
    }
    if matches!(name, "rip" | "eip") {
        return Some((RIP, 0));
    }
    let rest = name.strip_prefix('r')?;
    let digits = rest.strip_suffix(['d', 'w', 'b', 'l']).unwrap_or(rest);
    let n: u16 = digits.parse().ok()?;
    (8..16).contains(&n).then_some((n, 0))
}

fn x86(text: &str, symbols: Symbols<'_>) -> Option<ArgPlace> {
    if let Some(name) = text.strip_prefix('%')
        && !text.contains('(')
        && !text.contains(':')
    {
        let (number, shift) = x86_register(name)?;
        return Some(ArgPlace::Register { number, shift });
    }
    if let Some(value) = text.strip_prefix('$') {
        let (symbol, add) = sum(value, symbols)?;
        return Some(match constant_address(symbol, add) {
            Some(at) => ArgPlace::LinkedAddress(at),
            None => ArgPlace::Constant(add),
        });
    }
    let Some((front, inside)) = text.split_once('(') else {
        let (symbol, add) = sum(text, symbols)?;
        return Some(
            constant_address(symbol, add).map_or(ArgPlace::Constant(add), ArgPlace::Linked),
        );
    };
    let inside = inside.strip_suffix(')')?;
    let (symbol, displacement) = match front {
        "" => (None, 0),
        _ => sum(front, symbols)?,
    };
    let mut parts = inside.split(',').map(str::trim);
    let mut register = || match parts.next() {
        None | Some("") => Some(None),
        Some(name) => Some(Some(x86_register(name.strip_prefix('%')?)?.0)),
    };
    let (base, index) = (register()?, register()?);
    let scale = match parts.next() {
        None | Some("") => 1,
        Some(text) => text.parse().ok().filter(|s| matches!(s, 1 | 2 | 4 | 8))?,
    };
    if let Some(at) = constant_address(symbol, displacement) {
        // A symbol's address is known only relative to the instruction pointer.
        return (base == Some(RIP) && index.is_none()).then_some(ArgPlace::Linked(at));
    }
    Some(ArgPlace::Memory {
        base,
        index: index.map(|i| (i, scale)),
        displacement,
    })
}

// ---- aarch64 ----

/// A general register of aarch64: `x0`..`x30`, `w0`.., `sp`, `fp`, `lr`.
fn aarch64_register(name: &str) -> Option<u16> {
    match name {
        "sp" | "wsp" => return Some(31),
        "fp" => return Some(29),
        "lr" => return Some(30),
        _ => {}
    }
    let n: u16 = name.strip_prefix(['x', 'w'])?.parse().ok()?;
    (n <= 30).then_some(n)
}

fn aarch64(text: &str, symbols: Symbols<'_>) -> Option<ArgPlace> {
    if let Some(number) = aarch64_register(text) {
        return Some(ArgPlace::Register { number, shift: 0 });
    }
    if matches!(text, "xzr" | "wzr") {
        return Some(ArgPlace::Constant(0));
    }
    let Some(inside) = text.strip_prefix('[') else {
        let (symbol, add) = sum(text.strip_prefix('#').unwrap_or(text), symbols)?;
        return Some(
            constant_address(symbol, add).map_or(ArgPlace::Constant(add), ArgPlace::LinkedAddress),
        );
    };
    let mut parts = inside.strip_suffix(']')?.split(',').map(str::trim);
    let base = Some(aarch64_register(parts.next()?)?);
    let (mut index, mut displacement) = (None, 0);
    match parts.next() {
        None => {}
        Some(text) => match aarch64_register(text) {
            Some(register) => index = Some((register, 1)),
            None => displacement = number(text.strip_prefix('#').unwrap_or(text))?,
        },
    }
    if let Some(shift) = parts.next() {
        let by = shift.strip_prefix("lsl")?.trim().trim_start_matches('#');
        let by: u32 = by.parse().ok().filter(|by| *by <= 4)?;
        index = Some((index?.0, 1 << by));
    }
    Some(ArgPlace::Memory {
        base,
        index,
        displacement,
    })
}
