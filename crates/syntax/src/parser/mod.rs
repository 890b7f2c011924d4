//! Tokens to syntax tree: recursive descent for items and statements, precedence climbing for
//! expressions.
//!
//! In: tokens from [`crate::preproc`]. Out: an [`crate::ast::File`], always: what could not be
//! parsed is missing in it, and is in the diagnostics. Names and types are not looked at.
//!
//! Each grammar function is a production. One that fails has reported its error and returns
//! `Failed`; the nearest list (statements of a block, items of a file) then skips at least one
//! token, up to one that can begin the next element, and goes on.
//!
//! Limits: [`MAX_NESTING`] bounds the recursion of the parser and the height of every expression,
//! so that passes over the tree can recurse without overflowing the stack: a tree is never higher
//! than twice that.

pub mod at_ops;
mod doc;
pub(crate) mod expr;
mod items;
mod precedence;
mod probe;
mod stmt;

pub use doc::doc_comment;

use rustc_hash::FxHashMap;
use spile_cast::Cast;

use crate::ast::{File, FileId, Ident, Literal, LiteralBytes, Name, ProbePoint, Span};
use crate::codes;
use crate::diag::{Diagnostic, Diagnostics};
use crate::lexer::{parse_number, unescape};
use crate::preproc::{self, Arguments, MacroLibrary, Macros, PreprocEnv};
use crate::source::Sources;
use crate::token::{Tok, Token};

/// The version of the language that brought automatic casts.
const AUTOCAST: &str = "2.6";

/// The version of the language in which strings on both sides of a comment are one.
const JOIN_OVER_COMMENTS: &str = "2.0";

/// Maximum nesting of statements, and of expressions.
pub const MAX_NESTING: u32 = 300;

/// A failed production; the error is already reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProductionFailed;

type Parse<T> = Result<T, ProductionFailed>;

/// Global variables of a file by their names: whether each is private, and where it is declared.
type Globals = FxHashMap<Name, (bool, Span)>;

/// What the parts of a script define for the parts behind them: those names must not be defined again, and
/// macros can be used.
#[derive(Debug, Default)]
pub struct Definitions {
    macros: Macros,
    globals: Globals,
}

/// Lexes, preprocesses and parses one script or tapset file. The parsed part is returned even if
/// there are errors; do not run it if `diags` has any. Embedded C, `@kderef` and `@kregister`
/// need guru mode, except where the built-in library wrote them.
pub fn parse_file(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> File {
    let mut definitions = Definitions::default();
    parse_part(sources, file, env, macros, &mut definitions, diags)
}

/// As [`parse_file`] of the next part of a script, whose parts before define `before`. The definitions of
/// this part are added if it has no error.
pub fn parse_part(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    before: &mut Definitions,
    diags: &mut Diagnostics,
) -> File {
    let errors = diags.error_count();
    let parsed = parse_with(sources, (file, env), macros, before, diags, |_| {});
    if diags.error_count() > errors {
        before.macros.retain(|_, m| m.span.file != file);
        before.globals.retain(|_, (_, span)| span.file != file);
    }
    parsed
}

/// Parses a file with a parser that `adjust` has changed.
fn parse_with(
    sources: &mut Sources,
    (file, env): (FileId, &PreprocEnv),
    macros: &MacroLibrary,
    before: &mut Definitions,
    diags: &mut Diagnostics,
    adjust: impl FnOnce(&mut Parser),
) -> File {
    let output = preproc::preprocess(sources, file, env, macros, &mut before.macros, diags);
    let mut p = Parser::new(sources, file, &output, macros, diags);
    p.guru = env.guru;
    p.autocast = env.has_version(AUTOCAST);
    p.joins_over_comments = env.has_version(JOIN_OVER_COMMENTS);
    adjust(&mut p);
    p.file(&mut before.globals)
}

/// As [`parse_file`] of the user's script, which must have something in it. Files of a library may
/// be empty.
pub fn parse_script(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> File {
    let errors = diags.error_count();
    let mut definitions = Definitions::default();
    let parsed = parse_with(sources, (file, env), macros, &mut definitions, diags, |p| {
        p.checks_version = env.check_version;
    });
    if parsed.items.is_empty() && diags.error_count() == errors {
        let message = "the script has nothing in it: no probe, function or global";
        let end = sources.text(file).trim_ascii_end().len().fit::<u32>();
        let d = Diagnostic::error(codes::EMPTY_SCRIPT, message);
        let d = d.at(Span::new(file, end, end));
        diags.push(d.help("`probe begin { println(\"hello\") }` is a script"));
    }
    parsed
}

/// As [`parse_file`] of the pattern of `-l` and `-L`: the text stands between `probe` and `{}`, so
/// definitions can precede the points that are listed (`a = begin { } probe a`).
pub fn parse_pattern(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> File {
    let mut definitions = Definitions::default();
    parse_with(sources, (file, env), macros, &mut definitions, diags, |p| {
        p.pattern = true;
    })
}

/// As [`parse_file`] of a file of the library, which adds nothing to the sources.
pub fn parse_library_file(
    sources: &Sources,
    file: FileId,
    args: &Arguments,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> File {
    let output = preproc::preprocess_library(sources, file, args, env, macros, diags);
    let mut p = Parser::new(sources, file, &output, macros, diags);
    p.file(&mut Globals::default())
}

/// Reads a `.stpm` file: the public macros it defines.
pub fn parse_macros(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    diags: &mut Diagnostics,
) -> MacroLibrary {
    preproc::macro_file(sources, file, env, diags)
}

/// Parses only probe points; braces are expanded. The text becomes a
/// file of `sources` called `name`. Empty if there is an error.
pub fn parse_probe_points(
    sources: &mut Sources,
    name: &str,
    text: &str,
    diags: &mut Diagnostics,
) -> Vec<ProbePoint> {
    let file = sources.add(name, text.as_bytes().to_vec());
    let env = PreprocEnv::new("", "");
    let none = MacroLibrary::new();
    let mut definitions = Macros::default();
    let output = preproc::preprocess(sources, file, &env, &none, &mut definitions, diags);
    let before = diags.error_count();
    let mut p = Parser::new(sources, file, &output, &none, diags);
    let points = p.probe_points();
    match points.and_then(|points| p.expect(Tok::Eof).map(|_| points)) {
        Ok(points) if p.diags.error_count() == before => points,
        _ => Vec::new(),
    }
}

/// The additions to a short error message.
#[derive(Default, Clone, Copy)]
struct ErrorExtras {
    label: &'static str,
    second: Option<(Span, &'static str)>,
}

/// A label under the caret.
fn label(label: &'static str) -> ErrorExtras {
    ErrorExtras {
        label,
        second: None,
    }
}

/// A label under the caret, and another location.
fn labels(label: &'static str, span: Span, text: &'static str) -> ErrorExtras {
    ErrorExtras {
        label,
        second: Some((span, text)),
    }
}

struct Parser<'a> {
    sources: &'a Sources,
    tokens: &'a [Token],
    expansions: &'a [Span],
    /// See [`preproc::PreprocOutput`].
    version_conditions: &'a [usize],
    macros: &'a MacroLibrary,
    diags: &'a mut Diagnostics,
    /// Guru mode.
    guru: bool,
    /// `->` and `&` on values that are no variables of an event are allowed.
    autocast: bool,
    /// Strings on both sides of a comment are one.
    joins_over_comments: bool,
    /// The item is a function.
    in_function: bool,
    /// Items that depend on the version of SystemTap are warnings.
    checks_version: bool,
    /// The text is a pattern of `-l`: see [`parse_pattern`].
    pattern: bool,
    pos: usize,
    eof: Token,
    /// Depth of the parser's recursion.
    depth: u32,
    /// Height of the last parsed expression.
    height: u32,
    /// The outermost operator of the last parsed expression.
    top: precedence::OutermostOp,
    /// Start of the last chain of comparisons with a warning.
    chain: Option<u32>,
    /// Token of the last reported error; no second one is reported there.
    last_error: usize,
}

impl<'a> Parser<'a> {
    fn new(
        sources: &'a Sources,
        file: FileId,
        output: &'a preproc::PreprocOutput,
        macros: &'a MacroLibrary,
        diags: &'a mut Diagnostics,
    ) -> Self {
        let end = sources.text(file).trim_ascii_end().len().fit::<u32>();
        let eof = Token {
            kind: Tok::Eof,
            span: Span::new(file, end, end),
            expansion: 0,
        };
        Self {
            sources,
            tokens: &output.tokens,
            expansions: &output.expansions,
            version_conditions: &output.version_conditions,
            macros,
            diags,
            guru: false,
            autocast: true,
            joins_over_comments: true,
            in_function: false,
            checks_version: false,
            pattern: false,
            pos: 0,
            eof,
            depth: 0,
            height: 0,
            top: None,
            chain: None,
            last_error: usize::MAX,
        }
    }

    /// Whether a token may be embedded C, `@kderef` or `@kregister`.
    fn is_privileged(&self, t: Token) -> bool {
        self.guru || t.span.file.is_built_in()
    }

    fn token(&self) -> Token {
        self.tokens.get(self.pos).copied().unwrap_or(self.eof)
    }

    fn kind(&self) -> Tok {
        self.token().kind
    }

    fn nth(&self, ahead: usize) -> Tok {
        self.tokens
            .get(self.pos + ahead)
            .map_or(Tok::Eof, |t| t.kind)
    }

    fn text(&self, t: Token) -> &'a str {
        self.sources.slice(t.span)
    }

    fn at(&self, kind: Tok) -> bool {
        self.kind() == kind
    }

    fn bump(&mut self) -> Token {
        let t = self.token();
        self.pos = (self.pos + 1).min(self.tokens.len());
        t
    }

    fn accept(&mut self, kind: Tok) -> Option<Token> {
        (self.kind() == kind && kind != Tok::Eof).then(|| self.bump())
    }

    /// Span of the token before the current one.
    fn prev_span(&self) -> Span {
        match self.pos.checked_sub(1) {
            Some(i) => self.tokens[i].span,
            None => self.token().span,
        }
    }

    /// From `start` to the last token that was read.
    fn since(&self, start: Span) -> Span {
        start.to(self.prev_span())
    }

    fn expect(&mut self, kind: Tok) -> Parse<Token> {
        if self.kind() == kind {
            return Ok(self.bump());
        }
        self.unexpected(kind.describe())
    }

    /// What stands behind a token, if the token is next.
    fn after<T>(
        &mut self,
        kind: Tok,
        production: impl FnOnce(&mut Self) -> Parse<T>,
    ) -> Parse<Option<T>> {
        match self.accept(kind) {
            Some(_) => production(self).map(Some),
            None => Ok(None),
        }
    }

    /// One or more elements, separated by commas.
    fn comma_list(&mut self, mut element: impl FnMut(&mut Self) -> Parse<()>) -> Parse<()> {
        loop {
            element(self)?;
            if self.accept(Tok::Comma).is_none() {
                return Ok(());
            }
        }
    }

    /// The closing token of a construct opened at `open`.
    fn expect_close(&mut self, kind: Tok, open: Token) -> Parse<Token> {
        if self.kind() == kind {
            return Ok(self.bump());
        }
        let t = self.token();
        let code = match t.kind {
            Tok::Eof => codes::UNCLOSED,
            _ => codes::UNEXPECTED,
        };
        let message = format!("expected {}, found {}", kind.describe(), self.found(t));
        let label = format!("{} expected here", kind.describe());
        let d = Diagnostic::error(code, message).label(t.span, label);
        let opens = format!("closes this {}", open.kind.describe());
        self.fail(d.also(open.span, opens))
    }

    /// The description of an unexpected token for messages.
    fn found(&self, t: Token) -> String {
        match t.kind {
            Tok::Ident | Tok::AtIdent | Tok::Num if t.span.len() <= 40 => {
                format!("`{}`", self.text(t))
            }
            kind if kind.is_keyword() => format!("the keyword {}", kind.describe()),
            kind => kind.describe().to_owned(),
        }
    }

    fn unexpected<T>(&mut self, wanted: &str) -> Parse<T> {
        let t = self.token();
        let message = format!("expected {wanted}, found {}", self.found(t));
        let d = Diagnostic::error(codes::UNEXPECTED, message);
        self.fail(d.label(t.span, format!("{wanted} expected here")))
    }

    /// Reports an error unless one was already reported at this token.
    fn report(&mut self, d: Diagnostic) {
        if self.last_error == self.pos {
            return;
        }
        self.last_error = self.pos;
        let call = |t: Option<&Token>| {
            let index = (t?.expansion as usize).checked_sub(1)?;
            self.expansions.get(index).copied()
        };
        let current = call(self.tokens.get(self.pos));
        let before = self
            .pos
            .checked_sub(1)
            .and_then(|i| call(self.tokens.get(i)));
        self.diags.push(match (current, before) {
            (Some(call), _) => d.also(call, "it comes from here"),
            (None, Some(call)) => d.also(call, "the tokens before it come from here"),
            _ => d,
        });
    }

    /// [`Self::report`] for recursive productions: a diagnostic built in place would make their
    /// stack frames several times as large in unoptimised builds.
    #[inline(never)]
    fn report_at(
        &mut self,
        code: &'static str,
        span: Span,
        message: &str,
        also: ErrorExtras,
    ) -> ProductionFailed {
        let d = Diagnostic::error(code, message).label(span, also.label);
        self.report(match also.second {
            Some((span, text)) => d.also(span, text),
            None => d,
        });
        ProductionFailed
    }

    fn fail<T>(&mut self, d: Diagnostic) -> Parse<T> {
        self.report(d);
        Err(ProductionFailed)
    }

    /// Runs a production one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= MAX_NESTING {
            return self.too_deep();
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn too_deep<T>(&mut self) -> Parse<T> {
        let t = self.token();
        let d = Diagnostic::error(codes::TOO_DEEP, "nested too deeply");
        let d = d.label(t.span, format!("level {MAX_NESTING}"));
        self.report(d.help("split it with variables or functions"));
        // All enclosing productions fail too: nothing useful can be said about the rest.
        self.pos = self.tokens.len();
        self.last_error = self.pos;
        Err(ProductionFailed)
    }

    fn name(&self, t: Token) -> Name {
        self.text(t).into()
    }

    fn ident_of(&self, t: Token) -> Ident {
        Ident {
            name: self.name(t),
            span: t.span,
        }
    }

    fn ident(&mut self, what: &str) -> Parse<Ident> {
        let t = self.token();
        match t.kind {
            Tok::Ident if !self.text(t).starts_with('$') => {
                self.bump();
                Ok(self.ident_of(t))
            }
            Tok::Ident => {
                let message = format!(
                    "expected {what}, found the target variable `{}`",
                    self.text(t)
                );
                self.fail(Diagnostic::error(codes::UNEXPECTED, message).at(t.span))
            }
            kind if kind.is_keyword() => {
                let message = format!("the keyword {} cannot be {what}", kind.describe());
                let d = Diagnostic::error(codes::RESERVED_NAME, message).at(t.span);
                self.fail(d.help("choose another name"))
            }
            _ => self.unexpected(what),
        }
    }

    /// A name that is being defined; built-in names are refused.
    fn new_ident(&mut self, what: &str) -> Parse<Ident> {
        let id = self.ident(what)?;
        if expr::print_op(&id.name).is_some() {
            let message = format!("`{}` is built in and cannot be {what}", id.name);
            let d = Diagnostic::error(codes::RESERVED_NAME, message).at(id.span);
            self.diags.push(d.help("choose another name"));
        }
        Ok(id)
    }

    /// One or more adjacent string literals.
    fn string(&mut self) -> Parse<(LiteralBytes, Span)> {
        let start = self.token().span;
        let mut pieces: Vec<LiteralBytes> = Vec::new();
        while matches!(self.kind(), Tok::Str | Tok::ArgStr) {
            if !pieces.is_empty() && !self.joins_over_comments && self.is_after_comment() {
                break;
            }
            let t = self.bump();
            pieces.push(self.string_value(t));
        }
        match &pieces[..] {
            [] => self.unexpected("a string literal"),
            [one] => Ok((one.clone(), self.since(start))),
            several => Ok((several.concat().into(), self.since(start))),
        }
    }

    /// Whether a comment stands between the token and the one before it.
    fn is_after_comment(&self) -> bool {
        let (before, current) = (self.prev_span(), self.token().span);
        let text = self.sources.text(current.file);
        let between = (before.file == current.file)
            .then(|| text.get(before.end as usize..current.start as usize));
        let comment = |text: &str| ["/*", "//", "#"].iter().any(|c| text.contains(c));
        between.flatten().is_some_and(comment)
    }

    fn string_value(&mut self, t: Token) -> LiteralBytes {
        let text = self.text(t);
        if t.kind == Tok::ArgStr {
            return text.as_bytes().into();
        }
        let inner = text.get(1..text.len() - 1).unwrap_or("");
        let (bytes, unknown) = unescape(inner);
        for offset in unknown {
            let start = t.span.start + 1 + offset.fit::<u32>();
            let c = inner[offset + 1..].chars().next().unwrap_or(' ');
            let span = Span::new(t.span.file, start, start + 1 + c.len_utf8().fit::<u32>());
            let message = format!("`\\{c}` is no escape and stands for `{c}`");
            let d = Diagnostic::warning(codes::UNKNOWN_ESCAPE, message).at(span);
            self.diags.push(d.help("for a backslash write `\\\\`"));
        }
        bytes
    }

    /// A number literal, with an optional `-`.
    fn number(&mut self, what: &str) -> Parse<i64> {
        let minus = self.at(Tok::Minus) && self.nth(1) == Tok::Num;
        if minus {
            self.bump();
        }
        if !self.at(Tok::Num) {
            return self.unexpected(what);
        }
        let t = self.bump();
        let n = self.num_value(t);
        Ok(if minus { n.wrapping_neg() } else { n })
    }

    fn num_value(&mut self, t: Token) -> i64 {
        parse_number(self.text(t)).unwrap_or_else(|why| {
            // The lexer reports numbers with a point, the preprocessor stand-ins for bad macros and
            // arguments.
            let text = self.text(t);
            if !text.contains('.') && text.starts_with(|c: char| c.is_ascii_digit()) {
                self.diags
                    .push(Diagnostic::error(codes::BAD_NUMBER, why).at(t.span));
            }
            0
        })
    }

    fn literal(&mut self, what: &str) -> Parse<Literal> {
        match self.kind() {
            Tok::Str | Tok::ArgStr => Ok(Literal::Str(self.string()?.0)),
            Tok::Num => Ok(Literal::Num(self.number(what)?)),
            Tok::Minus if self.nth(1) == Tok::Num => Ok(Literal::Num(self.number(what)?)),
            _ => {
                let t = self.token();
                let message = format!("expected {what}, found {}", self.found(t));
                let d = Diagnostic::error(codes::LITERAL_WANTED, message);
                self.fail(d.label(t.span, "a number or a string in quotes is expected here"))
            }
        }
    }
}
