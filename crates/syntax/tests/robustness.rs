//! Property: no input makes the front end panic. A bounded run of the fuzz target on the stable
//! toolchain: arbitrary bytes, random tokens, and damaged real scripts.

mod common;

use proptest::collection::vec;
use proptest::prelude::*;

#[path = "common/front_end.rs"]
mod front_end;
use front_end::front_end;

/// Tokens of the grammar, so that random text gets past the first token.
const PIECES: &[&str] = &[
    "probe ",
    "global ",
    "function ",
    "private ",
    "if ",
    "else ",
    "for ",
    "foreach ",
    "in ",
    "limit ",
    "return ",
    "delete ",
    "while ",
    "break ",
    "next ",
    "try ",
    "catch ",
    "begin ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ":",
    "?",
    "!",
    "%",
    "%(",
    "%)",
    "%?",
    "%:",
    "%{",
    "%}",
    "$1",
    "@2",
    "$#",
    "@#",
    "$9",
    "@define ",
    "m ",
    "@m ",
    "@two(",
    "@count(",
    "@hist_linear(",
    "@cast(",
    "@var(",
    "$x",
    "$x$$",
    "->",
    "&",
    "=",
    "==",
    "<<<",
    "<<",
    ">>>",
    "+",
    "-",
    "++",
    "--",
    "*",
    ".",
    "=~",
    "\"a\\n\"",
    "\"",
    "0x1f",
    "017",
    "99999999999999999999",
    "1",
    "x ",
    "arch ",
    "kernel_v ",
    "CONFIG_A ",
    "&&",
    "||",
    "/*",
    "*/",
    "#",
    "//",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{e9}",
    "printf(",
    "print ",
    ":string",
    ":long",
];

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(data in vec(any::<u8>(), 0..400)) {
        front_end(&data);
    }

    #[test]
    fn random_tokens_do_not_panic(picks in vec(0..PIECES.len(), 0..80)) {
        let text: String = picks.iter().map(|&i| PIECES[i]).collect();
        front_end(text.as_bytes());
        front_end(format!("probe begin {{ {text} }}").as_bytes());
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn damaged_scripts_do_not_panic(
        script in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), 0..4u8, 0..PIECES.len()), 1..8),
    ) {
        let own = [concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/library.stpm").into()];
        let scripts = [spile_testing::files::example_files(&["stp"]), own.to_vec()].concat();
        let mut text = std::fs::read(script.get(&scripts)).unwrap_or_default();
        for (at, what, piece) in damage {
            let at = at.index(text.len() + 1);
            let end = (at + 7).min(text.len());
            match what {
                0 => drop(text.splice(at..at, PIECES[piece].bytes())),
                1 => drop(text.drain(at..end)),
                2 => text.truncate(at),
                _ => drop(text.splice(at..end, PIECES[piece].bytes())),
            }
        }
        front_end(&text);
    }
}
