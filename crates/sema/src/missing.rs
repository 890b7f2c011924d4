//! Names of SystemTap's library that this one lacks: variables of aliases, which would silently be
//! 0, and aliases, which patterns would silently leave out.

use crate::facts::Facts;
use spile_glob::matches_point;

/// The names, as a table in text: see `tapset/missing.tsv`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Missing(&'static str);

/// Second column of the table for an alias that is missing as a whole.
const WHOLE: &str = "-";

impl Missing {
    /// Wraps the text of a table.
    pub const fn new(table: &'static str) -> Missing {
        Missing(table)
    }

    fn rows(self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let lines = self.0.lines().filter(|l| !l.starts_with('#'));
        lines.filter_map(|line| {
            let mut columns = line.split('\t');
            let (name, what) = (columns.next()?, columns.next()?);
            Some((name, what, columns.next().unwrap_or("")))
        })
    }

    /// The missing variables: alias, variables.
    pub fn variables(
        self,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
        let rows = self.rows().filter(|(_, what, _)| *what != WHOLE);
        rows.map(|(name, what, _)| (name, what.split_ascii_whitespace()))
    }

    /// Whether SystemTap's alias sets this variable, and the library's does not.
    pub fn lacks(self, alias: &str, variable: &str) -> bool {
        let alias = match alias.split_once('.') {
            Some(("nd_syscall" | "tp_syscall", rest)) => &format!("syscall.{rest}"),
            _ => alias,
        };
        self.variables()
            .any(|(name, mut vars)| name == alias && vars.any(|v| v == variable))
    }

    /// Whether any system call lacks this variable.
    pub fn lacks_of_call(self, variable: &str) -> bool {
        self.variables()
            .filter(|(alias, _)| alias.starts_with("syscall."))
            .any(|(_, mut vars)| vars.any(|v| v == variable))
    }

    /// The missing aliases.
    pub fn aliases(self) -> impl Iterator<Item = &'static str> {
        let rows = self.rows().filter(|(_, what, _)| *what == WHOLE);
        rows.map(|(name, ..)| name)
    }

    /// The missing aliases that a pattern matches, as far as the running kernel has their events.
    pub fn left_out(self, pattern: &str, facts: &dyn Facts) -> Vec<&'static str> {
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
