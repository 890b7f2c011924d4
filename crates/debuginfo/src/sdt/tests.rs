//! Operands of all forms, and notes that are damaged.

use proptest::prelude::*;
use spile_abi::{AARCH64, Abi, X86_64};

use super::operand::{ArgLocation, MarkerArg, split};
use super::*;

fn parse(text: &str, abi: Option<&Abi>) -> MarkerArg {
    MarkerArg::parse(text, abi.and_then(operand_reader), &mut |name| {
        (name == "table").then_some(0x4000)
    })
}

fn reg(number: u16) -> ArgLocation {
    ArgLocation::Register { number, shift: 0 }
}

fn mem(base: u16, displacement: i64) -> ArgLocation {
    ArgLocation::Memory {
        base: Some(base),
        index: None,
        displacement,
    }
}

#[test]
fn operands_of_x86_are_read() {
    let indexed = |base, displacement, scale| ArgLocation::Memory {
        base,
        index: Some((1, scale)),
        displacement,
    };
    let table = [
        ("4@%edi", reg(5)),
        ("-4@$5", ArgLocation::Constant(5)),
        ("-8@$-0x10", ArgLocation::Constant(-16)),
        ("8@$18446744073709551615", ArgLocation::Constant(-1)),
        ("8@-16(%rbp)", mem(6, -16)),
        ("8@(%rsp)", mem(7, 0)),
        ("8@0x20(%r12)", mem(12, 32)),
        ("8@8(%rax,%rdx,4)", indexed(Some(0), 8, 4)),
        ("8@(%rax,%rdx)", indexed(Some(0), 0, 1)),
        ("8@16(,%rdx,8)", indexed(None, 16, 8)),
        ("8@table+4(%rip)", ArgLocation::Linked(0x4004)),
        ("8@4+table(%rip)", ArgLocation::Linked(0x4004)),
        ("4@table-4", ArgLocation::Linked(0x3ffc)),
        ("8@$table", ArgLocation::LinkedAddress(0x4000)),
        ("1@%al", reg(0)),
        (
            "1@%ah",
            ArgLocation::Register {
                number: 0,
                shift: 8,
            },
        ),
        ("4@%r10d", reg(10)),
        ("2@%r9w", reg(9)),
        ("1@%r15b", reg(15)),
        ("1@%sil", reg(4)),
    ];
    for (text, location) in table {
        assert_eq!(parse(text, Some(&X86_64)).location, location, "{text}");
    }
    for text in [
        "8f@%xmm0",
        "8@%fs:16(%rax)",
        "8@missing(%rip)",
        "8@table(%rax)",
        "8@8(%rax",
        "8@8(%rax,%rdx,3)",
        "3@%eax",
        "x@%eax",
        "8@%r16",
        "8@",
        "@",
        "8@--5",
    ] {
        let parsed = parse(text, Some(&X86_64));
        assert_eq!(
            parsed.location,
            ArgLocation::Unreadable(text.into()),
            "{text}"
        );
    }
}

#[test]
fn operands_of_aarch64_are_read() {
    let table = [
        ("-4@x1", reg(1)),
        ("4@w30", reg(30)),
        ("8@5", ArgLocation::Constant(5)),
        ("-8@-5", ArgLocation::Constant(-5)),
        ("8@sp", reg(31)),
        ("8@[sp, 16]", mem(31, 16)),
        ("8@[x29, -8]", mem(29, -8)),
        ("8@[x0]", mem(0, 0)),
        ("8@[x0, #24]", mem(0, 24)),
        (
            "8@[x2, x1, lsl 3]",
            ArgLocation::Memory {
                base: Some(2),
                index: Some((1, 8)),
                displacement: 0,
            },
        ),
        ("8@xzr", ArgLocation::Constant(0)),
    ];
    for (text, location) in table {
        assert_eq!(parse(text, Some(&AARCH64)).location, location, "{text}");
    }
    for text in ["8f@d0", "8@x31", "8@[x0, x1, sxtw 3]", "8@[", "8@[sp, 16"] {
        let parsed = parse(text, Some(&AARCH64));
        assert_eq!(
            parsed.location,
            ArgLocation::Unreadable(text.into()),
            "{text}"
        );
    }
}

#[test]
fn sizes_and_signs_of_operands_are_read() {
    let of = |text| {
        let o = parse(text, Some(&X86_64));
        (o.size, o.signed, o.float)
    };
    assert_eq!(of("-2@%ax"), (2, true, false));
    assert_eq!(of("1@%al"), (1, false, false));
    assert_eq!(of("%rax"), (8, true, false), "a note of the oldest kind");
    assert_eq!(of("-8f@%rax"), (8, true, true));
}

#[test]
fn operands_are_split_outside_of_brackets() {
    let parts: Vec<_> = split("8@[sp, 16] -4@8(%rax, %rdx,4)  2@x1 ").collect();
    assert_eq!(parts, ["8@[sp, 16]", "-4@8(%rax, %rdx,4)", "2@x1"]);
}

const READER: Reader = Reader {
    wide: true,
    little: true,
};

fn note(desc: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [8, desc.len() as u32, NOTE_TYPE] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"stapsdt\0");
    bytes.extend(desc);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn desc(provider: &str, name: &str, args: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = [0x1000_u64, 0x2000, 0]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    for text in [provider, name, args] {
        bytes.extend(text.bytes());
        bytes.push(0);
    }
    bytes
}

#[test]
fn notes_are_read_and_damaged_ones_left_out() {
    let mut section = note(&desc("shop", "sold", "-4@%edi"));
    section.extend(note(&[1, 2, 3]));
    section.extend(note(&desc("shop", "bought", "")));
    let names: Vec<_> = READER.notes(&section).into_iter().map(|n| n.name).collect();
    assert_eq!(names, ["sold", "bought"]);
    section.truncate(section.len() - 5);
    assert_eq!(READER.notes(&section).len(), 1);
}

#[test]
fn what_is_no_elf_file_is_an_error() {
    assert!(markers(b"").is_err());
    assert!(markers(b"\x7fELF\x02\x01\x01").is_err());
}

proptest! {
    #[test]
    fn no_operand_panics(text in "[-+%$@()\\[\\],a-z0-9 ]{0,40}") {
        for machine in [Some(&X86_64), Some(&AARCH64), None] {
            for part in split(&text) {
                parse(part, machine);
            }
        }
    }

    #[test]
    fn no_note_panics(
        at in 0_usize..80, value: u8, cut in 0_usize..90, wide: bool, little: bool,
    ) {
        let mut section = note(&desc("shop", "sold", "-4@%edi"));
        section.extend(note(&desc("shop", "bought", "")));
        let at = at.min(section.len() - 1);
        section[at] = value;
        section.truncate(cut);
        Reader { wide, little }.notes(&section);
    }

    #[test]
    fn no_damaged_file_panics(at in 0_usize..4096, value: u8, tail: bool, cut in 0_usize..3000) {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        // Headers are at the file's beginning and end.
        let at = if tail { bytes.len() - 1 - at.min(bytes.len() - 1) } else { at };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        if cut < 1500 {
            bytes.truncate(bytes.len() - cut);
        }
        let _ = markers(&bytes);
    }
}
