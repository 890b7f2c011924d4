//! Operands of 32-bit and 64-bit code as compilers print them for the assembler, such as `-4(%rbp,%rax,8)`.

use spile_abi::X86_64;

use crate::sdt::operand::{ArgLocation, Symbols, constant_address, sum};

/// Reads an operand in AT&T syntax.
pub(crate) fn read(text: &str, symbols: Symbols<'_>) -> Option<ArgLocation> {
    if let Some(name) = text.strip_prefix('%')
        && !text.contains('(')
        && !text.contains(':')
    {
        let (number, shift) = X86_64.register(name)?;
        return Some(ArgLocation::Register { number, shift });
    }
    if let Some(value) = text.strip_prefix('$') {
        let (symbol, add) = sum(value, symbols)?;
        return Some(match constant_address(symbol, add) {
            Some(address) => ArgLocation::LinkedAddress(address),
            None => ArgLocation::Constant(add),
        });
    }
    let Some((front, inside)) = text.split_once('(') else {
        let (symbol, add) = sum(text, symbols)?;
        return Some(
            constant_address(symbol, add).map_or(ArgLocation::Constant(add), ArgLocation::Linked),
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
        Some(name) => Some(Some(X86_64.register(name.strip_prefix('%')?)?.0)),
    };
    let (base, index) = (register()?, register()?);
    let scale = match parts.next() {
        None | Some("") => 1,
        Some(text) => text.parse().ok().filter(|s| matches!(s, 1 | 2 | 4 | 8))?,
    };
    if let Some(address) = constant_address(symbol, displacement) {
        // A symbol's address is known only relative to the instruction pointer.
        return (base == Some(X86_64.program_counter) && index.is_none())
            .then_some(ArgLocation::Linked(address));
    }
    Some(ArgLocation::Memory {
        base,
        index: index.map(|i| (i, scale)),
        displacement,
    })
}
