//! Operands as compilers print them for the assembler, such as `[sp, 16]`.

use spile_abi::AARCH64;

use crate::sdt::operand::{ArgLocation, Symbols, constant_address, number, sum};

/// Reads an operand.
pub(crate) fn read(text: &str, symbols: Symbols<'_>) -> Option<ArgLocation> {
    if let Some((number, shift)) = AARCH64.register(text) {
        return Some(ArgLocation::Register { number, shift });
    }
    if matches!(text, "xzr" | "wzr") {
        return Some(ArgLocation::Constant(0));
    }
    let Some(inside) = text.strip_prefix('[') else {
        let (symbol, add) = sum(text.strip_prefix('#').unwrap_or(text), symbols)?;
        return Some(
            constant_address(symbol, add)
                .map_or(ArgLocation::Constant(add), ArgLocation::LinkedAddress),
        );
    };
    let mut parts = inside.strip_suffix(']')?.split(',').map(str::trim);
    let base = Some(AARCH64.register(parts.next()?)?.0);
    let (mut index, mut displacement) = (None, 0);
    match parts.next() {
        None => {}
        Some(text) => match AARCH64.register(text) {
            Some((register, _)) => index = Some((register, 1)),
            None => displacement = number(text.strip_prefix('#').unwrap_or(text))?,
        },
    }
    if let Some(shift) = parts.next() {
        let by = shift.strip_prefix("lsl")?.trim().trim_start_matches('#');
        let by: u32 = by.parse().ok().filter(|by| *by <= 4)?;
        index = Some((index?.0, 1 << by));
    }
    Some(ArgLocation::Memory {
        base,
        index,
        displacement,
    })
}
