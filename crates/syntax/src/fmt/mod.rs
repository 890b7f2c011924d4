//! `spile fmt`: formats scripts in one style, keeping their tokens and comments.
//!
//! In: a script's text. Out: the same tokens and comments with other space, or an error and no
//! text. Names and types are not looked at, and no macro is expanded.
//!
//! ```text
//! lexer ─► gaps (comments, line breaks) ─► machine (where statements are) ─► lines ─► checks
//! ```
//!
//! The formatter works on tokens before the preprocessor, because the tree has neither comments nor
//! macros. Line breaks stay where the author put them, except at braces: `{` is on the line of
//! its head, and the content of a block over several lines has lines of its own. All other
//! space between tokens is made anew: two columns for each level, blanks around operators, at most
//! one empty line. The result is compared with the input before it is returned.

mod frames;
mod gaps;
mod lines;
mod machine;

use std::ops::Range;

use crate::ast::FileId;
use crate::codes;
use crate::diag::{Diagnostic, Diagnostics, Severity};
use crate::lexer::lex;
use crate::parser::{parse_file, parse_macros};
use crate::preproc::{MacroLibrary, PreprocEnv};
use crate::pretty;
use crate::source::Sources;
use crate::token::{Tok, Token};

use gaps::{Comment, SpacedToken};
use lines::{OutputLines, columns};
use machine::{FormatMachine, LineBreak, TokenClass, TokenLayout};

/// The reason why a text was not formatted. Errors of the lexer are already in the diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatRefusal {
    /// The text has errors.
    Errors,
    /// Brackets and conditionals nest too deeply.
    TooDeep,
    /// The result would not be the same script. (A bug.)
    Changed,
}

/// Formats the tokens of a text. `bytes` is the file as stored; bytes in comments that are not
/// UTF-8 stay as they are.
///
/// # Errors
/// See [`FormatRefusal`]. A text of tokens that is not a script is formatted in some way; use
/// [`format_script`] to refuse it.
pub fn format(bytes: &[u8]) -> Result<Vec<u8>, FormatRefusal> {
    let (sources, file, tokens) = lexed(bytes)?;
    let text = sources.text(file);
    let elements = gaps::elements(text, &tokens);
    let out = OutputState {
        bytes,
        text,
        tokens: &elements,
        lines: OutputLines::default(),
        cursor: (0, 0),
    }
    .run()?;
    let (again_sources, again, again_tokens) = lexed(&out).map_err(|_| FormatRefusal::Changed)?;
    let again_text = again_sources.text(again);
    let same = same_tokens((text, &tokens), (again_text, &again_tokens))
        && comments(text, &elements).eq(comments(
            again_text,
            &gaps::elements(again_text, &again_tokens),
        ));
    same.then_some(out).ok_or(FormatRefusal::Changed)
}

/// Formats a script, or a macro library if its name ends in `.stpm`. It has to parse with the
/// macros of the tapset, and the result has to parse to the same tree. Arguments need not be given.
/// `None`: the reason is in `diags`.
pub fn format_script(
    sources: &mut Sources,
    file: FileId,
    bytes: &[u8],
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> Option<Vec<u8>> {
    let before = parsed(sources, file, env, macros, diags)?;
    let refusal = match format(bytes) {
        Ok(out) => {
            let name = sources.name(file).to_owned();
            let again = sources.add(name, out.clone());
            let mut unheard = Diagnostics::new();
            if parsed(sources, again, env, macros, &mut unheard) == Some(before) {
                return Some(out);
            }
            FormatRefusal::Changed
        }
        Err(refusal) => refusal,
    };
    let text = match refusal {
        FormatRefusal::TooDeep => "this nests too deeply to be formatted",
        _ => "internal error: formatting would change this script",
    };
    let text = format!("{}: {text}", sources.name(file));
    diags.push(Diagnostic::error(codes::NOT_FORMATTED, text));
    None
}

/// The tree as text; for macro libraries the names.
fn parsed(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> Option<String> {
    let mut reported = Diagnostics::new();
    let tree = if sources.name(file).ends_with(".stpm") {
        let library = parse_macros(sources, file, env, &mut reported);
        let mut names: Vec<&str> = library.names().collect();
        names.sort_unstable();
        names.join(" ")
    } else {
        pretty::file(&parse_file(sources, file, env, macros, &mut reported))
    };
    // What a run would need is no matter of form.
    let of_a_run = [codes::ARG_RANGE, codes::NEEDS_GURU];
    let wrong = |d: &&Diagnostic| d.severity == Severity::Error && !of_a_run.contains(&d.code);
    let errors: Vec<&Diagnostic> = reported.into_iter().filter(wrong).collect();
    let failed = !errors.is_empty();
    errors.into_iter().for_each(|d| diags.push(d.clone()));
    (!failed).then_some(tree)
}

fn lexed(bytes: &[u8]) -> Result<(Sources, FileId, Vec<Token>), FormatRefusal> {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let file = sources.add("", bytes.to_vec());
    let tokens = lex(&sources, file, &mut diags);
    match diags.has_errors() {
        true => Err(FormatRefusal::Errors),
        false => Ok((sources, file, tokens)),
    }
}

fn same_tokens(a: (&str, &[Token]), b: (&str, &[Token])) -> bool {
    let piece =
        |text: &'_ str, t: &Token| text[t.span.start as usize..t.span.end as usize].to_owned();
    a.1.len() == b.1.len()
        && a.1
            .iter()
            .zip(b.1)
            .all(|(x, y)| x.kind == y.kind && piece(a.0, x) == piece(b.0, y))
}

/// The comments without the blanks at both ends of their lines.
fn comments<'a>(
    text: &'a str,
    elements: &'a [SpacedToken],
) -> impl Iterator<Item = String> + use<'a> {
    let each = elements.iter().flat_map(|e| &e.comments);
    each.map(|c| {
        text[c.range.clone()]
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// The state of the output.
struct OutputState<'a> {
    bytes: &'a [u8],
    text: &'a str,
    tokens: &'a [SpacedToken],
    lines: OutputLines,
    /// The last offset whose column was computed, and its column.
    cursor: (usize, usize),
}

impl OutputState<'_> {
    fn run(mut self) -> Result<Vec<u8>, FormatRefusal> {
        let mut machine = FormatMachine::new(self.tokens, self.text);
        let mut before = TokenClass::Open;
        for i in 0..self.tokens.len() {
            let d = machine.decide(i);
            if machine.overflow {
                return Err(FormatRefusal::TooDeep);
            }
            let commented = self.comments(i, d);
            if self.tokens[i].kind == Tok::Eof {
                break;
            }
            self.token(i, d, before, commented);
            machine.written(i, self.lines.column(), self.lines.indent());
            before = d.class;
        }
        Ok(self.lines.finish())
    }

    fn push(&mut self, range: Range<usize>) {
        self.lines
            .push(&self.bytes[range.clone()], &self.text[range]);
    }

    /// Writes the comments before token `i`; returns whether there are any.
    fn comments(&mut self, i: usize, d: TokenLayout) -> bool {
        let tokens = self.tokens;
        for (n, c) in tokens[i].comments.iter().enumerate() {
            let own_line = c.newlines > 0 || self.lines.ended();
            if own_line {
                let blank = c.newlines > 1 && !(n == 0 && d.tight && tokens[i].kind != Tok::RBrace);
                let opened = n == 0 && i > 0 && tokens[i - 1].kind == Tok::LBrace;
                self.lines.start(d.comments, blank && !opened);
            }
            if c.line && !self.lines.at_start() {
                let col = self.column_of(c.range.start);
                self.lines.trailing(&self.bytes[c.range.clone()], col);
            } else {
                if !self.lines.at_start() {
                    self.lines.push(b" ", " ");
                }
                self.comment(c);
            }
        }
        !tokens[i].comments.is_empty()
    }

    /// Writes a comment; its further lines keep their position relative to the first.
    fn comment(&mut self, c: &Comment) {
        let (was, is) = (self.column_of(c.range.start), self.lines.column());
        let mut offset = c.range.start;
        for (n, line) in self.text[c.range.clone()].split('\n').enumerate() {
            let (from, to) = (offset, offset + line.len());
            offset = to + 1;
            if n == 0 {
                let end = from + line.trim_ascii_end().len();
                self.push(from..end);
                continue;
            }
            let body = line.trim_ascii_start();
            let blanks = line.len() - body.len();
            let col = (columns(&line[..blanks], 0) + is).saturating_sub(was);
            let end = from + line.trim_ascii_end().len();
            self.lines.push(b"\n", "\n");
            if !body.is_empty() {
                let pad = " ".repeat(col);
                self.lines.push(pad.as_bytes(), &pad);
                self.push(from + blanks..end);
            }
        }
    }

    /// The column of an offset in the author's text; called with ascending offsets.
    fn column_of(&mut self, offset: usize) -> usize {
        let (from, col) = self.cursor;
        let between = &self.text[from..offset];
        let col = match between.rfind('\n') {
            Some(n) => columns(&between[n + 1..], 0),
            None => columns(between, col),
        };
        self.cursor = (offset, col);
        col
    }

    fn token(&mut self, i: usize, d: TokenLayout, before: TokenClass, commented: bool) {
        let e = &self.tokens[i];
        let breaks = match d.line {
            LineBreak::Free => e.is_first_on_line(),
            LineBreak::Must => true,
            LineBreak::Never => commented && e.is_first_on_line(),
        };
        // A token continues the line of the comment before it, unless it must begin a line.
        let begun = self.lines.at_start() && i > 0;
        if i == 0 && !commented {
            self.lines.start(d.indent, false);
        } else if breaks && !begun || self.lines.ended() {
            self.lines.start(d.indent, e.newlines > 1 && !d.tight);
        } else if !self.lines.at_start() && (commented || self.spaced(i, before, d.class)) {
            let glued = commented && matches!(d.class, TokenClass::Close | TokenClass::Suffix);
            if !glued {
                // Two blanks can mark the end of a statement where nothing else does.
                let apart = d.apart && e.wide && !commented;
                let blanks = if apart { "  " } else { " " };
                self.lines.push(blanks.as_bytes(), blanks);
            }
        }
        self.push(self.tokens[i].range.clone());
    }

    /// Whether a blank separates token `i` from the one before.
    fn spaced(&self, i: usize, before: TokenClass, class: TokenClass) -> bool {
        use TokenClass::*;
        let Some(previous) = i.checked_sub(1).map(|p| &self.tokens[p]) else {
            return false;
        };
        let e = &self.tokens[i];
        if matches!(before, AsIs | PointComma) && class == AsIs {
            return !e.adjacent;
        }
        if matches!(previous.kind, Tok::PpThen | Tok::PpElse) {
            return true;
        }
        let tight = matches!(before, Open | OpenTight | Prefix | Tight)
            || matches!(class, Close | Suffix | PointComma | Tight | OpenTight);
        !tight
            || merges(
                &self.text[previous.range.clone()],
                &self.text[e.range.clone()],
            )
    }
}

/// Whether two adjacent tokens would be read as another token.
fn merges(a: &str, b: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'@');
    let (Some(last), Some(first)) = (a.bytes().last(), b.bytes().next()) else {
        return false;
    };
    if word(last) {
        return word(first)
            || first == b'#'
            || a.starts_with(|c: char| c.is_ascii_digit()) && first == b'.';
    }
    let both = [a, b].concat();
    let longer = |op: &str| op.len() > a.len() && both.starts_with(op);
    Tok::OPERATORS.iter().any(|(_, op)| longer(op))
        || matches!(
            (last, first),
            (b'/', b'/' | b'*') | (b'%', b'{') | (b'@', _) | (b'$', _)
        )
}

#[cfg(test)]
mod tests;
