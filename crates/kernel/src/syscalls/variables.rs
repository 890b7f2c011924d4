//! Variables of system calls that are no argument and no text of one.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{Abi, Syscall};

const TABLE: &str = include_str!("../../data/variables.tsv");

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

/// A variable besides the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Whether it is a text, not a number.
    pub text: bool,
    /// Whether only return handlers have it.
    pub at_return: bool,
    /// Its value, as the table writes it.
    pub value: &'static str,
}

/// A line of the table: the calls' names, and the variable.
type Line = (&'static str, Variable);

/// The variables of a call, each name once.
pub fn variables(call: &Syscall) -> Vec<Variable> {
    static BY_NAME: OnceLock<HashMap<&str, Vec<(usize, Line)>>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let mut by_name: HashMap<&str, Vec<(usize, Line)>> = HashMap::new();
        for (at, line) in lines().flat_map(parse).flatten().enumerate() {
            by_name.entry(bare(line.0)).or_default().push((at, line));
        }
        by_name
    });
    let names = [call.name, call.entry].into_iter();
    let lines = names.filter_map(|name| by_name.get(name)).flatten();
    let mut lines: Vec<_> = lines.filter(|(_, (name, _))| is_of(name, call)).collect();
    lines.sort_by_key(|(at, _)| *at);
    let mut found: Vec<Variable> = Vec::new();
    for (_, (_, variable)) in lines {
        let known = found.iter().any(|v| v.name == variable.name);
        let argument = call.args.iter().any(|a| a.name == variable.name);
        if !known && !argument {
            found.push(*variable);
        }
    }
    found
}

/// A name of the table without the mark of calls of 32-bit programs.
fn bare(name: &str) -> &str {
    name.strip_prefix("compat_").unwrap_or(name)
}

/// Whether a name of the table is that of a call.
fn is_of(name: &str, call: &Syscall) -> bool {
    let own = |name: &str| call.name == name || call.entry == name;
    match name.strip_prefix("compat_") {
        Some(name) => call.abi == Abi::I386 && own(name),
        None => own(name),
    }
}

/// The variable that a line describes, for each of its calls.
fn parse(line: &'static str) -> Option<impl Iterator<Item = Line>> {
    let mut columns = line.split('\t');
    let calls = columns.next()?;
    let (name, kind) = columns.next()?.split_once(':')?;
    let text = match kind {
        "string" => true,
        "long" => false,
        _ => return None,
    };
    let value = columns.next()?;
    Some(calls.split_ascii_whitespace().map(move |call| {
        let bare = call.strip_suffix(".return");
        let variable = Variable {
            name,
            text,
            at_return: bare.is_some(),
            value,
        };
        (bare.unwrap_or(call), variable)
    }))
}

/// The lines of the table that nothing understands, or that fit no call.
#[cfg(test)]
pub(super) fn unknown_lines() -> Vec<&'static str> {
    let calls = || {
        let tables = [Abi::X86_64, Abi::I386];
        tables.into_iter().flat_map(|abi| super::all(abi).iter())
    };
    let fits = |(name, _): Line| calls().any(|call| is_of(name, call));
    let known = |line: &&'static str| parse(line).is_some_and(|mut all| all.all(fits));
    lines().filter(|line| !known(line)).collect()
}
