//! Regular expressions against the matchers of `spile-ir`, which its tests compare with glibc.

use proptest::collection::vec;
use proptest::prelude::*;
use spile_ir::regex::{self, Regex};
use spile_lir::Module;
use spile_lir::interp::RegionKind;
use spile_lir::library;
use spile_lir::library::regex::{self as matchers, CHUNK, FinderView, MATCH_AT, ScannerView, area};

use super::forms::{Reads, forms, properties, slot};

/// Bytes of the longest text.
const MOST: usize = 24;

/// Compiles a pattern; rejects those with too large tables, as scripts' are refused.
fn regex(pattern: &str, groups: bool) -> Result<Regex, TestCaseError> {
    Regex::new(pattern.as_bytes(), groups).map_err(|e| {
        match e.message.contains("too many states") {
            true => TestCaseError::reject("a large table"),
            false => TestCaseError::fail(format!("{pattern}: {e:?}")),
        }
    })
}

fn pattern() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        "[abc]",
        Just("[ab]".into()),
        Just("[^/]".into()),
        Just(".".into())
    ];
    let atom = prop_oneof![6 => atom, 1 => Just("()".into())];
    let times = prop_oneof![3 => Just(""), 1 => Just("*"), 1 => Just("+"), 1 => Just("?"), 1 => Just("{1,2}")];
    let part = (atom, times.clone()).prop_map(|(atom, times)| format!("{atom}{times}"));
    let parts = part.prop_recursive(3, 12, 4, move |inner| {
        let all = vec(inner, 1..4).prop_map(|parts| parts.concat());
        prop_oneof![
            all.clone(),
            (all.clone(), times.clone()).prop_map(|(inner, times)| format!("({inner}){times}")),
            (all.clone(), all).prop_map(|(a, b)| format!("({a}|{b})")),
        ]
    });
    ("\\^?", parts, "\\$?").prop_map(|(begin, parts, end)| format!("{begin}{parts}{end}"))
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(b'a'), 3 => Just(b'b'), 1 => Just(b'c'), 1 => Just(b'/'), 1 => Just(200)];
    vec(byte, 0..MOST)
}

fn scanner(s: &regex::Scanner) -> ScannerView<'_> {
    ScannerView {
        next: &s.next,
        start: s.start,
        accept: s.accept,
        edge: s.edge(),
    }
}

fn finder(f: &regex::Finder) -> FinderView<'_> {
    FinderView {
        groups: f.groups,
        reverse: (!f.anchored).then(|| scanner(&f.reverse)),
        columns: f.columns,
        accept: f.accept,
        start: f.start,
        start_list: f.start_list,
        next: &f.next,
        lists: &f.lists,
        ops: &f.ops,
    }
}

/// A function of an expression together with the steps.
fn with_steps(mut module: Module, steps: Module) -> Module {
    module.externs.clear();
    module.funcs.extend(steps.funcs);
    module
}

properties! {
    400 cases: fn texts_match(pattern in pattern(), texts in vec(text(), 1..6)) {
        let regex = regex(&pattern, false)?;
        let compiled = &regex.compiled;
        // Callers do not ask for an expression that matches every text.
        prop_assume!(compiled.test.start < compiled.test.accept);
        let forms = forms(&format!("match {pattern}"), || {
            let steps = library::only(MATCH_AT).expect("a function");
            with_steps(matchers::matches("match", &compiled.classes, &scanner(&compiled.test)), steps)
        });
        for text in texts {
            let slot = slot(&text, 0);
            let found = forms.same(3_000, |mut machine| {
                let at = machine.memory.add(slot.clone(), RegionKind::Memory);
                let area = machine.memory.add(vec![b'#'; 64], RegionKind::Memory);
                let chunks = slot.len() as u64 / CHUNK as u64;
                machine.run("match", &[at, area, chunks], &mut Reads).expect("it runs")
            });
            prop_assert_eq!(found, u64::from(regex.is_match(&text)), "{} in {:?}", pattern, text);
        }
    }

    400 cases: fn matches_are_found_with_their_groups(
        pattern in pattern(),
        texts in vec((text(), prop_oneof![9 => Just(None), 1 => (-5i64..1).prop_map(Some)]), 1..6),
    ) {
        let regex = regex(&pattern, true)?;
        let compiled = &regex.compiled;
        let tables = compiled.find.as_ref().expect("with its position");
        let forms = forms(&format!("find {pattern}"), || {
            let find = matchers::find("find", &compiled.classes, &finder(tables), MOST as u32);
            with_steps(find, matchers::find_steps())
        });
        for (text, error) in texts {
            let text = if error.is_some() { Vec::new() } else { text };
            let bytes = error.unwrap_or(text.len() as i64 + 1);
            let (result, words) = forms.same(6_000, |mut machine| {
                let mut content = vec![b'a'; area::size(MOST as u32) as usize];
                content[area::TEXT as usize..][..text.len()].copy_from_slice(&text);
                content[area::TEXT as usize + text.len()] = 0;
                let at = machine.memory.add(content, RegionKind::Memory);
                let args = [at, bytes.cast_unsigned()];
                let result = machine.run("find", &args, &mut Reads).expect("it runs");
                let words = machine.memory.region(at).expect("stays")[..area::TEXT as usize].to_vec();
                (result, words)
            });
            let word = |at: i16| {
                let bytes = words[at as usize..][..8].try_into().expect("8 bytes");
                i64::from_le_bytes(bytes)
            };
            let position = |at: i16| {
                let ends = (usize::try_from(word(at)), usize::try_from(word(at + 8)));
                Some((ends.0.ok()?, ends.1.ok()?))
            };
            let Some(expected) = regex.find(&text) else {
                prop_assert_eq!((result, word(area::STATE)), (0, -1), "{} in {:?}", pattern, text);
                continue;
            };
            prop_assert_eq!(result, 1, "{} in {:?}", pattern, text);
            prop_assert_eq!(word(area::STATE), i64::from(tables.groups));
            prop_assert_eq!(position(area::START), Some(expected.whole), "{} in {:?}", pattern, text);
            let groups = (0..tables.groups as i16).map(|n| position(area::TAGS + 16 * n));
            prop_assert_eq!(groups.collect::<Vec<_>>(), expected.groups, "{} in {:?}", pattern, text);
        }
    }
}
