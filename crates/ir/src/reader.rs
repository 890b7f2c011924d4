//! The reader of the text form that [`crate::text`] writes. It checks the form only;
//! [`crate::verify`] checks ids and types.

use crate::form::Form;
pub use crate::token::ReadError;
use crate::token::{Reader, Res};
use crate::*;

/// What comes next in a program, for errors.
const ITEMS: &str = "`site`, `str`, `fmt`, `global`, `func` or `handler`";

/// Reads a program.
///
/// # Errors
/// The first position that departs from the form described in [`crate::text`].
pub fn read(text: &str) -> Result<Program, ReadError> {
    let mut r = Reader::new(text)?;
    let mut p = Program::default();
    while let Some(word) = r.opt_word() {
        r.item(&word, &mut p)?;
    }
    match r.peek() {
        None => {
            crate::opt::inline::mark_recursive(&mut p);
            Ok(p)
        }
        Some(_) => r.error(ITEMS),
    }
}

impl Reader {
    fn item(&mut self, word: &str, p: &mut Program) -> Res<()> {
        match word {
            "limits" => p.limits.read(self),
            "site" => self.entry("@", &mut p.sites),
            "str" => self.entry("s", &mut p.strings),
            "table" => self.entry("t", &mut p.tables),
            "regex" => self.entry("re", &mut p.regexes),
            "fmt" => self.entry("f", &mut p.formats),
            "global" => self.entry("g", &mut p.globals),
            "func" => self.entry("fn", &mut p.funcs),
            "handler" => Form::read(&[], self).map(|handler| p.handlers.push(handler)),
            _ => self.error_before(ITEMS),
        }
    }

    /// Reads the next entry of a table.
    fn entry<T: Form>(&mut self, letters: &str, table: &mut Vec<T>) -> Res<()> {
        self.index(letters, table.len())?;
        table.push(T::read(&[], self)?);
        Ok(())
    }
}
