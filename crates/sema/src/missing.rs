//! Names of SystemTap's library that this one lacks: variables of aliases, which would silently be
//! 0, and aliases, which patterns would silently leave out.

use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::Facts;
use spile_glob::matches_point;

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
    /// By alias, with blanks between them.
    of_alias: FxHashMap<&'static str, &'static str>,
    /// Those of any system call.
    of_calls: FxHashSet<&'static str>,
}

/// Second column of the table for an alias that is missing as a whole.
const WHOLE: &str = "-";

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
        rows.map(|(name, vars)| (name, vars.split_ascii_whitespace()))
    }

    fn variable_rows(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let rows = self.rows().map(|(name, what, _)| (name, what));
        rows.filter(|(_, what)| ![WHOLE, GONE].contains(what))
    }

    fn indexed(&self) -> &Variables {
        self.variables.get_or_init(|| {
            let of_alias: FxHashMap<_, _> = self.variable_rows().collect();
            let calls = of_alias.iter().filter(|(a, _)| a.starts_with("syscall."));
            let of_calls = calls.flat_map(|(_, vars)| vars.split_ascii_whitespace());
            Variables {
                of_calls: of_calls.collect(),
                of_alias,
            }
        })
    }

    /// Whether SystemTap's alias sets this variable, and the library's does not.
    pub fn lacks(&self, alias: &str, variable: &str) -> bool {
        let alias = match alias.split_once('.') {
            Some(("nd_syscall" | "tp_syscall", rest)) => &format!("syscall.{rest}"),
            _ => alias,
        };
        let vars = self.indexed().of_alias.get(alias);
        vars.is_some_and(|vars| vars.split_ascii_whitespace().any(|v| v == variable))
    }

    /// Whether any system call lacks this variable.
    pub fn lacks_call_variable(&self, variable: &str) -> bool {
        self.indexed().of_calls.contains(variable)
    }

    /// The missing aliases.
    pub fn aliases(&self) -> impl Iterator<Item = &'static str> {
        let rows = self.rows().filter(|(_, what, _)| *what == WHOLE);
        rows.map(|(name, ..)| name)
    }

    /// Why no kernel that spile runs on can have SystemTap's alias, and what to use in its place.
    pub fn gone(&self, alias: &str) -> Option<&'static str> {
        let mut rows = self.rows().filter(|(_, what, _)| *what == GONE);
        rows.find(|(name, ..)| *name == alias).map(|(.., why)| why)
    }

    /// The missing aliases that a pattern matches, as far as the running kernel has their events.
    pub fn left_out(&self, pattern: &str, facts: &dyn Facts) -> Vec<&'static str> {
        let words = |text: &str| text.split('.').count();
        let across = pattern.contains("**");
        // The cheap comparison comes first.
        let prefix = spile_glob::literal_prefix(pattern);
        let there = |base: &str| match base.split_once(':') {
            Some(("t", name)) => !facts.tracepoints(name).is_empty(),
            Some((_, name)) => facts.symbol_exists(name),
            None => false,
        };
        let rows = self.rows().filter(|(name, what, bases)| {
            *what == WHOLE
                && name.starts_with(prefix)
                && (across || words(pattern) == words(name))
                && matches_point(pattern, name)
                && (bases.is_empty() || bases.split_ascii_whitespace().any(there))
        });
        rows.map(|(name, ..)| name).collect()
    }
}
