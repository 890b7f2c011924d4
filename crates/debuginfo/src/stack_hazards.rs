//! Whether code leaves functions without a return, switches stacks, or loads code that may: what the
//! kernel's uretprobe does not survive. It replaces the return address of a call. An unwinder finds
//! no caller there; and a function that returns on another stack than the last call is one that the
//! kernel does not know, so it ends the program with SIGILL.
//!
//! The absence of a hazard is shown by what a file refers to, and by its instructions. A file of
//! which that cannot be said has one.

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian as Little, elf};

use crate::code::Instructions;
use crate::image::Image;

/// Size in bytes up to which a file's code is examined.
const MAX_CODE: usize = 16 << 20;

/// Functions of the C library and of the language's runtime: their names, and what they do. A name
/// that ends with `*` stands for all that begin so.
const FUNCTIONS: [(&[&str], &str); 10] = [
    (
        &[
            "setjmp",
            "_setjmp",
            "__setjmp",
            "sigsetjmp",
            "__sigsetjmp",
            "longjmp",
            "_longjmp",
            "siglongjmp",
            "__longjmp_chk",
        ],
        "leaves functions without a return",
    ),
    (
        &["_Unwind_*", "__cxa_throw", "__cxa_rethrow"],
        "unwinds the stack for exceptions",
    ),
    (
        &["pthread_exit", "pthread_cancel", "thrd_exit"],
        "unwinds the stack when a thread ends",
    ),
    (
        &["makecontext", "swapcontext", "setcontext", "getcontext"],
        "switches stacks",
    ),
    (
        &["sigaltstack", "sigstack", "__sigaltstack"],
        "runs signal handlers on a stack of their own",
    ),
    (&["vfork", "__vfork"], "returns twice on one stack"),
    (
        &["clone", "__clone", "clone3", "pthread_attr_setstack*"],
        "runs code on a stack of its own",
    ),
    (&["syscall"], "makes system calls that are not known"),
    (
        &["dlopen", "dlmopen", "dlsym", "__libc_dlopen_mode"],
        "finds code that is not known",
    ),
    (
        &["seccomp*", "prctl"],
        "can forbid system calls, of which the kernel's return probe is one",
    ),
];

/// What of a program's file, or of a library's, could make a uretprobe kill the program; `None` if
/// nothing can.
#[must_use]
pub fn hazard(image: &Image) -> Option<String> {
    let Some(known) = image.instructions() else {
        return Some("the instructions of its processor are not known".into());
    };
    if image.is_go() {
        return Some("a program in Go moves its stacks".into());
    }
    // The C library has these functions; they run only where a file refers to them.
    if is_c_library(image) {
        return None;
    }
    let linked_statically = image.needed().is_empty();
    symbol_hazard(image, linked_statically).or_else(|| instruction_hazard(image, known))
}

fn is_c_library(image: &Image) -> bool {
    let name = image
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    [
        "libc.so.6",
        "libc-2.",
        "ld-linux",
        "ld-2.",
        "ld-musl",
        "libc.musl",
    ]
    .iter()
    .any(|known| name.starts_with(known))
}

/// The first of [`FUNCTIONS`] that a file refers to; of a static program, that it has.
fn symbol_hazard(image: &Image, linked_statically: bool) -> Option<String> {
    let (file, endian) = (image.elf(), Little);
    let table = match linked_statically {
        true => file.elf_symbol_table(),
        false => file.elf_dynamic_symbol_table(),
    };
    if linked_statically && table.is_empty() {
        return Some("it is linked statically and has no symbols".into());
    }
    for symbol in table.symbols() {
        let wanted = linked_statically || symbol.is_undefined(endian);
        let name = symbol.name(endian, table.strings()).unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        if wanted && let Some(effect) = meaning(&name) {
            return Some(format!("it has `{name}`, which {effect}"));
        }
    }
    None
}

fn meaning(name: &str) -> Option<&'static str> {
    let is = |known: &&str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    };
    FUNCTIONS
        .iter()
        .find_map(|(names, effect)| names.iter().any(is).then_some(*effect))
}

/// The first instruction that sets the stack pointer to another stack, or makes a system call.
fn instruction_hazard(image: &Image, known: &Instructions) -> Option<String> {
    let (endian, data) = (Little, image.elf().data());
    let Ok(sections) = image.elf().elf_header().sections(endian, data) else {
        return Some("its code is damaged".into());
    };
    let mut seen = 0;
    for section in sections.iter() {
        let code = section.sh_flags(endian).contains(elf::SHF_EXECINSTR);
        if !code || section.sh_type(endian) != elf::SHT_PROGBITS {
            continue;
        }
        let Ok(code) = section.data(endian, data) else {
            return Some("its code is damaged".into());
        };
        seen += code.len();
        if seen > MAX_CODE {
            return Some("it has too much code to be examined".into());
        }
        if let Some((address, effect)) = (known.hazard)(code, section.sh_addr(endian)) {
            return Some(format!("its code at {address:#x} {effect}"));
        }
    }
    (seen == 0).then(|| "its code is not known".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_meaning() {
        assert_eq!(
            meaning("longjmp"),
            Some("leaves functions without a return")
        );
        assert_eq!(
            meaning("_Unwind_Resume"),
            Some("unwinds the stack for exceptions")
        );
        assert_eq!(meaning("vforked"), None);
        assert_eq!(meaning(""), None);
    }
}
