//! The tables of system calls, `tests/syscalls.tsv` and, for 32-bit programs, `tests/syscalls-32.tsv`:
//! each variable that scripts can read at a call has its location there, and a call that
//! `tests/programs/calls.py` does not make has a reason.

use std::collections::{BTreeMap, BTreeSet};

use spile_ir::NrSet;
use spile_syscalls::{ArgForm, Syscall};

fn read(path: &str) -> String {
    let path = spile_testing::files::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A row of the tables of system calls: how it was checked, and variables.
type CallRow = (String, BTreeSet<String>);

/// The rows of a table of system calls by name and number.
fn call_rows(file: &str, first: u32) -> BTreeMap<(String, u32), CallRow> {
    let text = read(file);
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, .., number, how, _, args] = cells[..] else {
            panic!("{file}: too few cells: {line:?}");
        };
        let variables = args.split(' ').filter_map(|a| a.split_once(':'));
        let variables = variables.flat_map(|(_, names)| names.split(','));
        let variables = variables.map(|name| name.trim_start_matches('#'));
        let row = (how.to_owned(), variables.map(str::to_owned).collect());
        let (base, digits) = match number.split_at(1) {
            ("s", digits) => (NrSet::PARTS, digits),
            ("i", digits) => (NrSet::IPC_PARTS, digits),
            _ => (first, number),
        };
        let key = (name.to_owned(), base + digits.parse::<u32>().expect(line));
        assert!(
            rows.insert(key, row).is_none(),
            "{file}: two rows of {name}"
        );
    }
    rows
}

/// The variables that scripts can read at a call besides those that all calls have.
fn variables_of_call(call: &Syscall) -> BTreeSet<String> {
    let endings = ["", "_str", "_unquoted", "_str_unquoted", "_uaddr", "_name"];
    let mut names = BTreeSet::new();
    for arg in call.args {
        let base = arg.name.strip_suffix("_uaddr").unwrap_or(arg.name);
        let base = base.strip_suffix("_str").unwrap_or(base);
        let all = endings.iter().map(|end| format!("{base}{end}"));
        let ours = |name: &String| {
            call.variable(name)
                .is_some_and(|(_, form)| form != ArgForm::TextOnly)
        };
        names.extend(all.filter(ours));
    }
    // All calls have it, and no argument hides it.
    names.remove("name");
    names.extend(call.variables.iter().map(|v| v.name.to_owned()));
    names
}

/// The faults of a table of system calls, and the number of calls that no test makes. `name` gives
/// the name that a call has in the table.
fn compare_calls(file: &str, compat: bool, name: fn(&Syscall) -> &str) -> (Vec<String>, usize) {
    let mut rows = call_rows(file, if compat { NrSet::COMPAT } else { 0 });
    let (mut wrong, mut left) = (Vec::new(), 0);
    let calls = spile_syscalls::of(spile_abi::HOST).iter();
    for call in calls.filter(|call| call.is_compat() == compat) {
        let name = name(call);
        let Some((how, there)) = rows.remove(&(name.to_owned(), call.nr)) else {
            wrong.push(format!("{file}: {name} {} has no row", call.nr));
            continue;
        };
        match how.strip_prefix("not called: ") {
            Some(reason) => left += usize::from(!reason.is_empty()),
            None if how == "called" => {}
            None => wrong.push(format!("{file}: {name}: `{how}`")),
        }
        let variables = variables_of_call(call);
        if variables != there {
            let without: Vec<_> = variables.difference(&there).collect();
            let unknown: Vec<_> = there.difference(&variables).collect();
            wrong.push(format!(
                "{file}: {name}: without {without:?}, unknown {unknown:?}"
            ));
        }
    }
    let unknown = rows.keys();
    wrong.extend(unknown.map(|(name, nr)| format!("{file}: no call {name} {nr}")));
    (wrong, left)
}

// The bounds only go down.

#[test]
fn every_variable_of_a_system_call_has_a_location() {
    let (wrong, left) = compare_calls("tests/syscalls.tsv", false, |c| c.probe);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left <= 1, "{left} calls are not called");
}

#[test]
fn every_variable_of_a_32_bit_system_call_has_a_location() {
    let (wrong, left) = compare_calls("tests/syscalls-32.tsv", true, |c| c.name);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left <= 3, "{left} calls are not called");
}
