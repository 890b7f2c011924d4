//! Names of SystemTap's library that this one lacks: variables of aliases, which would silently be
//! 0, and aliases over what no kernel has any more.

use std::borrow::Cow;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::families::CALL_FAMILIES;

/// The names, as a table in text: see `tapset/missing.tsv`.
#[derive(Debug)]
pub struct Missing {
    table: &'static str,
    /// Analysis asks for each variable that a handler reads.
    variables: OnceLock<Variables>,
}

/// The rows of variables.
#[derive(Debug)]
struct Variables {
    /// By alias, with blanks between them, and why it does not set them.
    of_alias: FxHashMap<&'static str, (&'static str, &'static str)>,
    /// Those of any system call.
    of_calls: FxHashSet<&'static str>,
}

/// Second column for an alias over what no kernel has any more.
const GONE: &str = "gone";

impl Missing {
    /// Wraps the text of a table.
    pub const fn new(table: &'static str) -> Missing {
        Missing {
            table,
            variables: OnceLock::new(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + use<> {
        let lines = self.table.lines().filter(|l| !l.starts_with('#'));
        lines.filter_map(|line| {
            let mut columns = line.split('\t');
            let (name, what) = (columns.next()?, columns.next()?);
            Some((name, what, columns.next().unwrap_or("")))
        })
    }

    /// The missing variables: alias, variables.
    pub fn variables(
        &self,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
        let rows = self.variable_rows();
        rows.map(|(name, vars, _)| (name, vars.split_ascii_whitespace()))
    }

    fn variable_rows(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + use<> {
        self.rows().filter(|(_, what, _)| *what != GONE)
    }

    fn indexed(&self) -> &Variables {
        self.variables.get_or_init(|| {
            let rows = self
                .variable_rows()
                .map(|(name, vars, why)| (name, (vars, why)));
            let of_alias: FxHashMap<_, _> = rows.collect();
            let calls = of_alias.iter().filter(|(a, _)| a.starts_with("syscall."));
            let of_calls = calls.flat_map(|(_, (vars, _))| vars.split_ascii_whitespace());
            Variables {
                of_calls: of_calls.collect(),
                of_alias,
            }
        })
    }

    /// Why the library's alias does not set this variable, if SystemTap's alias does.
    pub fn lacks(&self, alias: &str, variable: &str) -> Option<&'static str> {
        let alias = family_name(alias);
        let (vars, why) = self.indexed().of_alias.get(&*alias)?;
        let mut vars = vars.split_ascii_whitespace();
        vars.any(|v| v == variable).then_some(*why)
    }

    /// Whether any system call lacks this variable.
    pub fn lacks_call_variable(&self, variable: &str) -> bool {
        self.indexed().of_calls.contains(variable)
    }

    /// Why no kernel that spile runs on can have SystemTap's alias, and what to use instead.
    pub fn gone(&self, alias: &str) -> Option<&'static str> {
        let alias = family_name(alias);
        let call = alias.starts_with("syscall.");
        let alias = alias
            .strip_suffix(".return")
            .filter(|_| call)
            .unwrap_or(&alias);
        let mut rows = self.rows().filter(|(_, what, _)| *what == GONE);
        rows.find(|(name, ..)| *name == alias).map(|(.., why)| why)
    }
}

/// The name of a point with `syscall.` for the other names of that family.
fn family_name(alias: &str) -> Cow<'_, str> {
    match alias.split_once('.') {
        Some((family, rest)) if CALL_FAMILIES.contains(&family) => {
            Cow::Owned(format!("syscall.{rest}"))
        }
        _ => Cow::Borrowed(alias),
    }
}
