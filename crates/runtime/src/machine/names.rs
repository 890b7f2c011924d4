//! Names of kernel addresses, and command lines of processes.

use std::fs;

use spile_kernel::symbols::Symbols;

/// The command line of a process in `/proc`, with arguments joined by spaces.
pub(crate) fn command_line(process: &str) -> Vec<u8> {
    let mut text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    if text.last() == Some(&0) {
        text.pop();
    }
    let mut line = Vec::with_capacity(text.len());
    for (i, argument) in text.split(|b| *b == 0).enumerate() {
        if i > 0 {
            line.push(b' ');
        }
        // As in SystemTap, empty arguments are shown, except for the program's name.
        line.extend_from_slice(match argument {
            b"" if i > 0 => b"\"\"",
            _ => argument,
        });
    }
    line
}

/// The symbol at a kernel address, or the address.
pub(crate) fn symbol_name(address: u64) -> String {
    let symbols = Symbols::kernel().ok();
    match symbols.and_then(|s| s.resolve(address)) {
        Some((symbol, _)) => spile_plain::name(symbol.name).into_owned(),
        None => format!("{address:#x}"),
    }
}

/// `name+0xoff/0xsize [module]` of a kernel address.
pub(crate) fn symbol_data(address: u64) -> String {
    let text = Symbols::kernel().map_or_else(|_| format!("{address:#x}"), |s| s.describe(address));
    spile_plain::name(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_addresses_stay_numbers() {
        assert_eq!(symbol_name(1), "0x1");
        assert_eq!(symbol_data(1), "0x1");
    }
}
