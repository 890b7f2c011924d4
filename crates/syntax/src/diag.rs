//! Diagnostics: the error, its location and the way out; and their rendering with source lines.

use std::borrow::Cow;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use spile_cast::Cast;

use crate::ast::{FileId, Span};
use crate::codes;
use crate::source::{BAD_BYTE, SourceFile, Sources};

/// Maximum number of stored errors; further ones are only counted.
const MAX_KEPT: usize = 100;
/// Source lines longer than this are shown in part.
const MAX_LINE: usize = 240;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information only.
    Note,
    /// The script still runs.
    Warning,
    /// The script cannot run.
    Error,
}

/// A location with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanLabel {
    /// The location.
    pub span: Span,
    /// The text; may be empty.
    pub text: String,
}

/// A result whose error is one diagnostic that the caller reports.
pub type DiagResult<T> = Result<T, Box<Diagnostic>>;

/// One diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// Stable code, `E0110`; see [`crate::codes`].
    pub code: &'static str,
    /// One sentence without a full stop, lower case.
    pub message: String,
    /// The main location; `None` for a diagnostic about the whole run.
    pub primary: Option<SpanLabel>,
    /// Other locations.
    pub secondary: Vec<SpanLabel>,
    /// Additional facts.
    pub notes: Vec<String>,
    /// Ways out.
    pub help: Vec<String>,
}

impl Diagnostic {
    fn new(severity: Severity, code: &'static str, message: String) -> Self {
        Self {
            severity,
            code,
            message,
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// An error.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    /// A warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message.into())
    }

    /// A note.
    pub fn note_only(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message.into())
    }

    /// Sets the primary location, without text.
    pub fn at(self, span: Span) -> Self {
        self.label(span, "")
    }

    /// Sets the primary location and the text under its caret.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.primary = Some(SpanLabel {
            span,
            text: text.into(),
        });
        self
    }

    /// Adds another location.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(SpanLabel {
            span,
            text: text.into(),
        });
        self
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a way out.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Adds a way out, if there is one.
    pub fn help_if(self, text: Option<impl Into<String>>) -> Self {
        match text {
            Some(text) => self.help(text),
            None => self,
        }
    }

    /// The diagnostic as the error of a result.
    ///
    /// # Errors
    /// Always: the diagnostic.
    pub fn err<T>(self) -> DiagResult<T> {
        Err(Box::new(self))
    }

    /// Adds ``did you mean `x`?`` if one of the candidates is similar to `name`.
    pub fn did_you_mean<'a>(
        self,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let near = suggest(name, candidates);
        self.help_if(near.map(|near| format!("did you mean `{near}`?")))
    }

    /// The rendered diagnostic, ending in a newline.
    pub fn render(&self, sources: &Sources, color: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let mut group = Group::with_title(level.primary_title(escape(&self.message)).id(self.code));
        for snippet in self.snippets(sources) {
            group = group.element(snippet);
        }
        for n in &self.notes {
            group = group.element(Level::NOTE.message(escape(n)));
        }
        for h in &self.help {
            group = group.element(Level::HELP.message(escape(h)));
        }
        let renderer = match color {
            true => Renderer::styled(),
            false => Renderer::plain(),
        };
        let mut out = renderer.render(&[group]);
        out.push('\n');
        out
    }

    /// One snippet for each file, the primary label's file first.
    fn snippets<'a>(&'a self, sources: &'a Sources) -> Vec<Snippet<'a, Annotation<'a>>> {
        let labels = self.primary.iter().map(|l| (l, AnnotationKind::Primary));
        let others = self.secondary.iter().map(|l| (l, AnnotationKind::Context));
        let labels: Vec<_> = labels.chain(others).collect();
        let mut files: Vec<FileId> = Vec::new();
        for (l, _) in &labels {
            if !files.contains(&l.span.file) {
                files.push(l.span.file);
            }
        }
        let mut out = Vec::new();
        for id in files {
            let Some(file) = sources.get(id) else {
                continue;
            };
            let in_file = labels.iter().filter(|(l, _)| l.span.file == id);
            // Labels close together share an excerpt; distant ones get their own, so that rendering
            // a large file costs no more than a small one.
            let mut groups: Vec<SourceWindow<'a>> = Vec::new();
            for (l, kind) in in_file {
                let w = SourceWindow::window(file, l, *kind);
                match groups
                    .iter_mut()
                    .find(|g| g.start <= w.end && w.start <= g.end)
                {
                    Some(g) => g.merge(w),
                    None => groups.push(w),
                }
            }
            out.extend(groups.into_iter().map(|g| g.snippet(file)));
        }
        out
    }
}

/// A stretch of a file in the rendering, with its labels.
struct SourceWindow<'a> {
    start: usize,
    end: usize,
    labels: Vec<(&'a SpanLabel, AnnotationKind, usize, usize)>,
}

impl<'a> SourceWindow<'a> {
    fn window(file: &SourceFile, label: &'a SpanLabel, kind: AnnotationKind) -> Self {
        let text = file.text();
        let from = file.floor_char(label.span.start as usize);
        // Only the first lines of a long construct are shown.
        let to = file
            .floor_char((label.span.end as usize).min(from + MAX_LINE))
            .max(from);
        let before = file.floor_char(from.saturating_sub(MAX_LINE));
        let start = match text[before..from].rfind('\n') {
            Some(i) => before + i + 1,
            None => before,
        };
        let after = file.floor_char(to + MAX_LINE);
        let end = text[to..after].find('\n').map_or(after, |i| to + i);
        // A line break `\r
        // ` is not shown at all.
        let end = to + text[to..end].trim_end_matches('\r').len();
        Self {
            start,
            end: end.max(to),
            labels: vec![(label, kind, from, to)],
        }
    }

    fn merge(&mut self, other: Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.labels.extend(other.labels);
    }

    fn snippet(self, file: &'a SourceFile) -> Snippet<'a, Annotation<'a>> {
        let line = file.line(self.start.fit::<u32>()) as usize;
        let text = visible(&file.text()[self.start..self.end]);
        let mut s = Snippet::source(text)
            .line_start(line)
            .path(file.name().to_owned());
        for (l, kind, from, to) in self.labels {
            let a = kind.span(from - self.start..to - self.start);
            s = s.annotation(match l.text.is_empty() {
                true => a,
                false => a.label(escape(&l.text)),
            });
        }
        s
    }
}

/// Replaces control characters, which would corrupt a terminal, by `?`s of the same length.
fn visible(text: &str) -> Cow<'_, str> {
    let bad = |c: char| spile_plain::acts_on_terminal(c) && !matches!(c, '\n' | '\t' | '\r');
    let lone_cr = text.replace("\r\n", "").contains('\r');
    if !lone_cr && !text.contains(|c| bad(c) || c == BAD_BYTE as char) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let cr = c == '\r' && chars.peek() != Some(&'\n');
        match bad(c) || cr {
            true => out.extend(std::iter::repeat_n('?', c.len_utf8())),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Messages can quote the script and names of programs: removes control characters.
fn escape(text: &str) -> Cow<'_, str> {
    spile_plain::lines(text)
}

/// Where the passes put their diagnostics.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// No diagnostics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a diagnostic. After 100 of a severity they are only counted.
    pub fn push(&mut self, d: Diagnostic) {
        let count = match d.severity {
            Severity::Error => &mut self.errors,
            _ => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_KEPT {
            self.list.push(d);
        }
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Number of errors, including those not stored.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Number of warnings and notes, including those not stored.
    pub fn warning_count(&self) -> usize {
        self.warnings
    }

    /// The stored diagnostics in order of arrival.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Whether there are no diagnostics of any severity.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Moves all of `other` here, the diagnostics of a library's file. If the file does not parse, one
    /// warning that it is left out stands for them; returns whether it is. What needs a privilege
    /// stays an error.
    pub fn append_library(&mut self, file: &str, other: Diagnostics) -> bool {
        let is_error = |d: &&Diagnostic| d.severity == Severity::Error;
        let first = other.list.iter().find(is_error);
        let unprivileged = |d: &Diagnostic| d.code == codes::NEEDS_GURU;
        let Some(first) = first.filter(|_| !other.list.iter().any(unprivileged)) else {
            self.append(other);
            return false;
        };
        let why = &first.message;
        let message = format!("`{file}` is left out, because it does not parse: {why}");
        let page = format!("`spile --explain {}` says more", first.code);
        self.push(Diagnostic {
            severity: Severity::Warning,
            code: codes::LEFT_OUT,
            message,
            ..first.clone().help(page)
        });
        true
    }

    /// Moves all of `other` here.
    pub fn append(&mut self, other: Diagnostics) {
        let (kept_e, kept_w) = other.counts();
        self.errors += other.errors - kept_e;
        self.warnings += other.warnings - kept_w;
        for d in other.list {
            self.push(d);
        }
    }

    fn counts(&self) -> (usize, usize) {
        let errors = self.list.iter().filter(|d| d.severity == Severity::Error);
        let errors = errors.count();
        (errors, self.list.len() - errors)
    }

    /// Drops the errors that match; returns their number.
    pub fn drop_errors(&mut self, matches: impl Fn(&Diagnostic) -> bool) -> usize {
        let before = self.list.len();
        self.list
            .retain(|d| d.severity != Severity::Error || !matches(d));
        let dropped = before - self.list.len();
        self.errors -= dropped;
        dropped
    }

    /// Drops the warnings and notes (`-w`).
    pub fn drop_warnings(&mut self) {
        self.list.retain(|d| d.severity == Severity::Error);
        self.warnings = 0;
    }

    /// All diagnostics, rendered with blank lines in between, and a line about those not stored.
    pub fn render(&self, sources: &Sources, color: bool) -> String {
        let mut out = String::new();
        for d in &self.list {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&d.render(sources, color));
        }
        let (kept_e, kept_w) = self.counts();
        let more = (self.errors - kept_e, self.warnings - kept_w);
        if more != (0, 0) {
            out.push_str(&format!(
                "\n... and {} more errors, {} more warnings\n",
                more.0, more.1
            ));
        }
        out
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// The candidate that `name` most likely misspells: the one with the least edit distance (with
/// transpositions), which is at most a third of the length; the first of equal ones. Underscores at the beginning do not
/// count: the kernel renames members this way.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let len = name.chars().count();
    let limit = (len / 3).max(1);
    let bare = name.trim_start_matches('_');
    let distance = |c: &str| match c.trim_start_matches('_') == bare {
        true => 0,
        false => strsim::osa_distance(name, c),
    };
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(name.len()) <= limit * 2 && *c != name)
        .map(|c| (distance(c), c))
        // A one-letter name is similar to everything.
        .filter(|(d, _)| *d <= limit && *d < len)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}
