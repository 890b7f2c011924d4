//! An object as text, for people: the programs as the kernel gets them, by the names of the compiler.

use std::fmt::Write as _;

use super::elf::{ElfError, ObjectSpec};
use super::link::{by_name, members};

/// Lists the instructions of each program and its subprograms, with the script's lines if the object
/// has them. Slots are those of the verifier's log.
///
/// # Errors
/// The same as for [`super::link::link`].
pub fn listing(spec: &ObjectSpec) -> Result<String, ElfError> {
    spec.check_names()?;
    let functions = by_name(spec);
    let mut out = String::new();
    for program in &spec.programs {
        let members = members(&functions, &program.function)?;
        let slots: u32 = members.iter().map(|(f, _)| f.slots()).sum();
        let (section, count) = (&program.section, members.len() - 1);
        if !out.is_empty() {
            out.push('\n');
        }
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "; program {}, section {section}: {slots} slots, {count} subprogram(s)",
            program.function.name
        );
        for (function, start) in members {
            out.push_str(&function.listing_at(start));
        }
    }
    Ok(out)
}
