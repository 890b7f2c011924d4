//! Source lines to addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::caches::ScopeKind;
use crate::dwarf::Dwarf;
use crate::functions::{FunctionLocation, Pattern};
use crate::lines::path_matches;
use crate::unit::Die;

/// The lines that a query selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineQuery {
    /// A single line.
    At(u32),
    /// A line relative to the function's declaration.
    Plus(u32),
    /// A range of lines, both ends included.
    Range(u32, u32),
    /// All lines of the function.
    All,
}

/// A statement: an address where a line begins.
#[derive(Debug, Clone)]
pub struct StatementLocation {
    /// The address.
    pub address: u64,
    /// The function or inlined instance that it is in.
    pub die: Die,
    /// The name of that function or instance.
    pub name: Arc<str>,
    /// Its source file.
    pub file: Arc<str>,
    /// Its line.
    pub line: u32,
}

/// The answer to a query about lines.
#[derive(Debug, Clone, Default)]
pub struct Statements {
    /// The locations in order of address, one for each line and instance of a function.
    pub locations: Vec<StatementLocation>,
    /// If there are none: the nearest lines with code before and after the line in the query.
    pub nearest: (Option<u32>, Option<u32>),
}

impl Dwarf {
    /// Addresses of lines in functions by name, in files by (an end of) their path.
    #[must_use]
    pub fn statements(
        &self,
        function: Pattern<'_>,
        file: Option<Pattern<'_>>,
        lines: LineQuery,
    ) -> Statements {
        let mut answer = Statements::default();
        // Lines with code of the files in the query.
        let mut lines_with_code = BTreeSet::new();
        for unit in self.units_of(function, file) {
            self.statements_in(
                unit,
                function,
                file,
                lines,
                &mut answer,
                &mut lines_with_code,
            );
        }
        answer.locations.sort_by_key(|p| (p.address, p.die));
        answer.locations.dedup_by_key(|p| (p.address, p.die));
        if answer.locations.is_empty()
            && let LineQuery::At(line) = lines
        {
            answer.nearest = (
                lines_with_code.range(..line).next_back().copied(),
                lines_with_code.range(line + 1..).next().copied(),
            );
        }
        answer
    }

    /// Units that may contain such functions.
    fn units_of(&self, function: Pattern<'_>, file: Option<Pattern<'_>>) -> Vec<u32> {
        let any = function.glob.is_some_and(|g| g(function.text, ""));
        if any {
            // For a pattern that matches every function: by the names of the units' files.
            let with_file = file.map(|f| self.units_with(f));
            let has = |unit: &u32| with_file.as_ref().is_none_or(|w| w[*unit as usize]);
            let units = 0..self.own_units();
            return units.filter(has).filter(|u| self.has_code(*u)).collect();
        }
        let kinds = crate::functions::LocationKinds {
            outline: true,
            inlined: true,
        };
        let units: BTreeSet<u32> = self
            .functions(function, None, kinds)
            .iter()
            .map(|p| p.die.unit)
            .collect();
        units.into_iter().collect()
    }

    fn statements_in(
        &self,
        unit: u32,
        function: Pattern<'_>,
        file: Option<Pattern<'_>>,
        lines: LineQuery,
        answer: &mut Statements,
        known: &mut BTreeSet<u32>,
    ) {
        let Some(table) = self.lines(0, unit) else {
            return;
        };
        let fits: Vec<bool> = table
            .files
            .iter()
            .map(|path| file.is_none_or(|f| path_matches(path, &|p| f.matches(p))))
            .collect();
        let range = match lines {
            LineQuery::At(l) => Some((l, l)),
            LineQuery::Range(a, b) => Some((a, b)),
            LineQuery::Plus(_) | LineQuery::All => None,
        };
        let mut best: BTreeMap<(Die, u32), StatementLocation> = BTreeMap::new();
        let mut infos: HashMap<Die, Option<FunctionLocation>> = HashMap::new();
        let info = |die| self.locate_code(die, self.name(die, &self.entry(die)?.1)?, Vec::new());
        for row in table
            .rows
            .iter()
            .filter(|r| r.is_stmt && !r.end && r.line != 0)
        {
            if !fits.get(row.file as usize).is_some_and(|f| *f) {
                continue;
            }
            known.insert(row.line);
            if range.is_some_and(|(a, b)| row.line < a || row.line > b)
                || !self.main.is_code(row.address)
            {
                continue;
            }
            let chain = self.scopes_at(row.address);
            let chain = chain.iter().filter(|s| s.kind != ScopeKind::Block);
            let chain: Vec<Die> = chain.map(|s| s.die).collect();
            for &die in &chain {
                infos.entry(die).or_insert_with(|| info(die));
            }
            let path = &table.files[row.file as usize];
            let functions = chain
                .iter()
                .filter_map(|die| infos.get(die)?.as_ref())
                .filter(|f| function.matches_in(&f.name, || self.scope_names(f.die)));
            let Some(info) = owner(functions, path, row.line) else {
                continue;
            };
            if matches!(lines, LineQuery::Plus(n) if row.line != info.line.saturating_add(n)) {
                continue;
            }
            let address = if row.address == info.entry {
                info.body
            } else {
                row.address
            };
            let location = StatementLocation {
                address,
                die: info.die,
                name: info.name.clone(),
                file: table.files[row.file as usize].clone(),
                line: row.line,
            };
            let kept = best
                .entry((info.die, row.line))
                .or_insert_with(|| location.clone());
            if location.address < kept.address {
                *kept = location;
            }
        }
        answer.locations.extend(best.into_values());
    }

    fn scope_names(&self, die: Die) -> Vec<&'static str> {
        let name = self.entry(die).and_then(|(_, e)| self.name(die, &e));
        let abstract_die = self.outermost_origin(die);
        let entry_of_name = name.and_then(|n| {
            let mut named = self.index().named(self, n);
            named.find(|f| {
                f.die == die
                    || f.die == abstract_die
                    || self.outermost_origin(f.die) == abstract_die
            })
        });
        entry_of_name
            .map(|f| self.index().scopes(self, &f))
            .unwrap_or_default()
    }

    /// First and last line of a function's own code in the file that declares it.
    #[must_use]
    pub fn line_range(&self, die: Die) -> Option<(u32, u32)> {
        let (unit, entry) = self.entry(die)?;
        let (file, line) = self.function_location(die, &entry);
        let table = self.lines(die.part, die.unit)?;
        let (mut low, mut high) = (line, line);
        for (start, end) in self.code(die, &unit, &entry) {
            let is_own = |r: &&crate::lines::LineRow| {
                r.line != 0 && !r.end && table.file(u64::from(r.file)) == file.as_ref()
            };
            for row in table.within(start, end).iter().filter(is_own) {
                // Code inlined from above the function is not the function's.
                if row.line >= line {
                    high = high.max(row.line);
                }
                if low == 0 {
                    low = row.line;
                }
            }
        }
        Some((low, high))
    }
}

/// Finds the function that a line belongs to among the functions that an instruction is inlined in.
/// Compilers attribute lines of the enclosing function to inlined code, so the line belongs to the
/// function that is declared nearest above it.
fn owner<'i>(
    functions: impl Iterator<Item = &'i FunctionLocation>,
    path: &Arc<str>,
    line: u32,
) -> Option<&'i FunctionLocation> {
    functions.max_by_key(|f| match f.file.as_ref() == Some(path) && f.line <= line {
        true => f.line,
        false => 0,
    })
}
