//! Random edits of real scripts: every request gets an answer, and the server keeps running.

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use support::{Client, URI, at, folder};

const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "\"",
    "->",
    "$",
    "@",
    ".",
    "%(",
    "%)",
    "probe ",
    "function ",
    "global ",
    "if ",
    "/*",
    "\n",
    "\u{1f600}",
    "$prev->",
    "@cast(",
    "syscall.",
    "kernel.trace(\"",
    "{a,",
    "@define x ",
    "1",
];

#[test]
fn random_edits_of_real_scripts_keep_server_and_editor_equal() {
    let scripts: Vec<String> = [folder("examples"), folder("tapset")]
        .concat()
        .iter()
        .map(|p| std::fs::read_to_string(p).expect("readable"))
        .collect();
    let mut client = Client::with("");
    let mut version = 1;
    let edit = (
        any::<prop::sample::Index>(),
        0..3usize,
        0..PIECES.len(),
        any::<prop::sample::Index>(),
    );
    let strategy = (
        any::<prop::sample::Index>(),
        prop::collection::vec(edit, 1..8),
    );
    let config = Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    };
    let client = &mut client;
    let case = std::cell::RefCell::new((client, &mut version));
    let run = TestRunner::new(config).run(&strategy, |(script, edits)| {
        let mut case = case.borrow_mut();
        let mut text = script.get(&scripts).clone();
        *case.1 += 1;
        let version = *case.1;
        case.0.change(version, Value::Null, &text);
        for (location, what, piece, ask) in edits {
            let lines: Vec<&str> = text.split('\n').collect();
            let count = lines.len();
            let line = location.index(count);
            let col = location.index(lines[line].chars().count() + 1);
            let end = if what == 0 { col } else { col + what * 3 };
            let range = json!({
                "start": {"line": line, "character": col},
                "end": {"line": line, "character": end},
            });
            let piece = if what == 2 { "" } else { PIECES[piece] };
            // The mirror applies edits like the server, in characters. They may differ on lines
            // with characters outside the BMP, which does not matter here.
            let mut chars: Vec<char> = lines[line].chars().collect();
            let to = end.min(chars.len());
            chars.splice(col..to, piece.chars());
            let edited: String = chars.into_iter().collect();
            text = [&lines[..line], &[edited.as_str()], &lines[line + 1..]]
                .concat()
                .join("\n");
            *case.1 += 1;
            let version = *case.1;
            case.0.change(version, range, piece);
            let line = if ask.index(2) == 0 {
                line
            } else {
                ask.index(count)
            };
            for method in ["completion", "hover", "definition"] {
                let answer = case.0.ask(
                    &format!("textDocument/{method}"),
                    at(line, col + piece.len()),
                );
                prop_assert!(
                    answer.error.is_none(),
                    "{method}: {:?}\n{text}",
                    answer.error
                );
            }
        }
        let document =
            json!({"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": true}});
        for method in ["documentSymbol", "formatting"] {
            let answer = case
                .0
                .ask(&format!("textDocument/{method}"), document.clone());
            prop_assert!(
                answer.error.is_none(),
                "{method}: {:?}\n{text}",
                answer.error
            );
        }
        Ok(())
    });
    run.expect("answers");
}
