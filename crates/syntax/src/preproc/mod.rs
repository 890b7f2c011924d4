//! The preprocessor: arguments, macros and conditionals; tokens in, tokens out.
//!
//! In: tokens of the lexer, arguments, the macros of the library, [`PreprocEnv`]. Out: tokens
//! without `@macro` calls, `$1` and `%( %)`, each with its location in the text. Errors are in the
//! diagnostics; the stream goes on after them.
//!
//! SystemTap describes two passes, macros first and conditionals second. Here both are one lazy
//! stream: conditionals pull from macro expansion, macro expansion pulls from a stack of frames
//! (the file, macro bodies, macro arguments, command line arguments). The result is the same,
//! except that branches not taken are never expanded, so that the only possible error in them is an
//! unbalanced `%(`.
//!
//! ```text
//! lexer ─► frames ─► expand (@macro, $1) ─► conditionals (%( %? %: %)) ─► parser
//! ```
//!
//! Macro arguments expand where they are used, with the meaning that names had at the macro call:
//! each frame carries its scope.

mod cond;
mod env;
mod macros;
mod version;

use std::rc::Rc;
use std::sync::Arc;

use spile_cast::Cast;

use crate::ast::{FileId, Name, Span};
use crate::codes;
use crate::diag::{DiagResult, Diagnostic, Diagnostics};
use crate::lexer::{escape, lex};
use crate::source::Sources;
use crate::token::{Tok, Token};

pub use env::{KernelConfig, NoConfig, PreprocEnv, Privilege, RUNTIME, SYSTEMTAP_VERSION};
pub(crate) use macros::Macros;
pub use macros::{Macro, MacroLibrary, NameIndex, macro_file};

/// Maximum nesting of macros and their arguments.
pub const MAX_MACRO_DEPTH: usize = 200;
/// Maximum number of tokens from macros in one file.
pub const MAX_MACRO_TOKENS: usize = 2_000_000;
/// Largest number of a command line argument: `$999`.
pub const MAX_ARG: usize = 999;

/// The output of the preprocessor.
#[derive(Debug, Default)]
pub struct PreprocOutput {
    /// Only tokens of the grammar.
    pub tokens: Vec<Token>,
    /// Locations of macro calls and arguments; [`Token::expansion`] counts them from 1.
    pub expansions: Vec<Span>,
    /// Where conditions on `systemtap_v` stood: the numbers of the tokens behind them.
    pub version_conditions: Vec<usize>,
}

/// Lexes and preprocesses one script or tapset file. The macros of the file are added to `local`, the macros
/// of the parts before it.
pub(crate) fn preprocess(
    sources: &mut Sources,
    file: FileId,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    local: &mut Macros,
    diags: &mut Diagnostics,
) -> PreprocOutput {
    let tokens = lex(sources, file, diags);
    let args = Arguments::collect(sources, &tokens, env, diags);
    expanded(sources, tokens, args, env, macros, local, diags)
}

/// As [`preprocess`] of a file of the library, by arguments that are there already: nothing is added to the
/// sources.
pub fn preprocess_library(
    sources: &Sources,
    file: FileId,
    args: &Arguments,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    diags: &mut Diagnostics,
) -> PreprocOutput {
    let tokens = lex(sources, file, diags);
    let (args, mut local) = (args.clone(), Macros::default());
    expanded(sources, tokens, args, env, macros, &mut local, diags)
}

fn expanded(
    sources: &Sources,
    tokens: Vec<Token>,
    args: Arguments,
    env: &PreprocEnv,
    macros: &MacroLibrary,
    local: &mut Macros,
    diags: &mut Diagnostics,
) -> PreprocOutput {
    let mut p = Preproc::new(sources, args, env, macros, local, diags);
    p.push_file(tokens);
    p.run();
    PreprocOutput {
        tokens: p.out,
        expansions: p.expansions,
        version_conditions: p.version_conditions,
    }
}

/// The command line arguments as tokens of virtual files.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// For `$N`: its tokens; for `@N`: its one token.
    raw: Vec<Arc<[Token]>>,
    quoted: Vec<Token>,
    count: Option<Token>,
}

impl Arguments {
    /// Adds the virtual files, if the file uses arguments at all.
    fn collect(
        sources: &mut Sources,
        tokens: &[Token],
        env: &PreprocEnv,
        diags: &mut Diagnostics,
    ) -> Self {
        let is_arg = |t: &Token| {
            matches!(
                t.kind,
                Tok::Arg | Tok::ArgQuoted | Tok::ArgCount | Tok::ArgCountQuoted
            )
        };
        if !tokens.iter().any(is_arg) {
            return Self::default();
        }
        let mut args = Self::quoted(sources, env);
        // Only those that are used: a raw argument need not be lexable.
        let used = |n: usize| {
            tokens
                .iter()
                .any(|t| t.kind == Tok::Arg && arg_number(sources, t) == Some(n))
        };
        for (i, t) in args.quoted.iter().enumerate() {
            let raw = match used(i + 1) {
                true => lex(sources, t.span.file, diags),
                false => Vec::new(),
            };
            args.raw.push(raw.into());
        }
        args
    }

    /// Adds the virtual files, for files of the library, which ask for the number of arguments and for
    /// texts (`$#`, `@1`) alone.
    pub fn quoted(sources: &mut Sources, env: &PreprocEnv) -> Self {
        let mut whole = |name: String, text: String, kind| {
            let end = text.len().fit::<u32>();
            let file = sources.add(name, text.into_bytes());
            Token {
                kind,
                span: Span::new(file, 0, end),
                expansion: 0,
            }
        };
        let count = env.args.len().to_string();
        let count = whole("<argument count>".into(), count, Tok::Num);
        let texts = env.args.iter().take(MAX_ARG).enumerate();
        let quoted = texts.map(|(i, a)| {
            let name = format!("<argument {}>", i + 1);
            whole(name, a.clone(), Tok::ArgStr)
        });
        Self {
            raw: Vec::new(),
            quoted: quoted.collect(),
            count: Some(count),
        }
    }
}

impl Arguments {
    /// Whether a file is the text of an argument.
    fn contains(&self, file: FileId) -> bool {
        self.quoted.iter().any(|t| t.span.file == file)
    }
}

/// The `7` of `$7` or `@7`.
fn arg_number(sources: &Sources, t: &Token) -> Option<usize> {
    sources.slice(t.span).get(1..)?.parse().ok()
}

/// The meaning of names at a location: the parameters of the macro whose body contains it.
struct MacroScope {
    definition: Arc<Macro>,
    args: Vec<Arc<[Token]>>,
    /// The scope of the macro's call.
    parent: Option<Rc<MacroScope>>,
    depth: usize,
    expansion: u32,
}

/// A source of tokens.
struct TokenFrame {
    tokens: Arc<[Token]>,
    pos: usize,
    scope: Option<Rc<MacroScope>>,
    /// The expansion number of its tokens.
    expansion: u32,
    is_arg: bool,
}

struct Preproc<'a> {
    sources: &'a Sources,
    args: Arguments,
    env: &'a PreprocEnv,
    library: &'a MacroLibrary,
    diags: &'a mut Diagnostics,
    local: &'a mut Macros,
    frames: Vec<TokenFrame>,
    /// Open conditionals whose taken branch is being read: location, and whether `%:` was passed.
    open: Vec<(Span, bool)>,
    out: Vec<Token>,
    expansions: Vec<Span>,
    version_conditions: Vec<usize>,
    from_macros: usize,
    /// The unknown kernel configuration was reported.
    config_warned: bool,
}

impl<'a> Preproc<'a> {
    fn new(
        sources: &'a Sources,
        args: Arguments,
        env: &'a PreprocEnv,
        library: &'a MacroLibrary,
        local: &'a mut Macros,
        diags: &'a mut Diagnostics,
    ) -> Self {
        Self {
            sources,
            args,
            env,
            library,
            diags,
            local,
            frames: Vec::new(),
            open: Vec::new(),
            out: Vec::new(),
            expansions: Vec::new(),
            version_conditions: Vec::new(),
            from_macros: 0,
            config_warned: false,
        }
    }

    fn push_file(&mut self, tokens: Vec<Token>) {
        self.out.reserve(tokens.len());
        self.push_frame(tokens.into(), None, 0);
    }

    fn push_frame(
        &mut self,
        tokens: Arc<[Token]>,
        scope: Option<Rc<MacroScope>>,
        expansion: u32,
    ) -> &mut TokenFrame {
        self.frames.push_mut(TokenFrame {
            tokens,
            pos: 0,
            scope,
            expansion,
            is_arg: false,
        })
    }

    fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.diags.push(Diagnostic::error(code, message).at(span));
    }

    /// Runs the whole stream: conditionals over expanded tokens.
    fn run(&mut self) {
        while let Some(t) = self.next() {
            match t.kind {
                Tok::PpOpen => self.conditional(t),
                Tok::PpElse => match self.open.last_mut() {
                    Some((_, seen_else @ false)) => {
                        *seen_else = true;
                        let opening = self.open.last().map_or(t.span, |o| o.0);
                        if self.skip(opening, false) {
                            self.open.pop();
                        }
                    }
                    _ => self.report_stray(t),
                },
                Tok::PpClose if self.open.pop().is_some() => {}
                Tok::PpClose | Tok::PpThen => self.report_stray(t),
                _ => self.out.push(t),
            }
        }
        while let Some((opening, _)) = self.open.pop() {
            self.unclosed(opening);
        }
    }

    fn report_stray(&mut self, t: Token) {
        let message = format!("{} without `%(`", t.kind.describe());
        self.error(codes::STRAY_CONDITION, t.span, message);
    }

    fn unclosed(&mut self, span: Span) {
        let d = Diagnostic::error(codes::UNCLOSED_CONDITION, "this `%(` is never closed");
        self.diags.push(d.label(span, "no `%)` after this"));
    }

    /// The next token as written, with its scope. Frames that ended are dropped.
    fn raw(&mut self) -> Option<Token> {
        loop {
            let f = self.frames.last_mut()?;
            if let Some(t) = f.tokens.get(f.pos) {
                f.pos += 1;
                let t = Token {
                    expansion: f.expansion,
                    ..*t
                };
                if self.frames.len() > 1 && !self.count_macro_token(t) {
                    return None;
                }
                return Some(t);
            }
            self.frames.pop();
        }
    }

    /// The next token after expansion of macros and arguments and removal of definitions.
    fn next(&mut self) -> Option<Token> {
        loop {
            let t = self.raw()?;
            match t.kind {
                Tok::AtIdent => {
                    if !self.at_ident(t) {
                        return Some(t);
                    }
                }
                Tok::Arg | Tok::ArgQuoted | Tok::ArgCount | Tok::ArgCountQuoted => {
                    if let Some(t) = self.argument(t) {
                        return Some(t);
                    }
                }
                _ => return Some(t),
            }
        }
    }

    /// Guards against macros that double at each level.
    fn count_macro_token(&mut self, t: Token) -> bool {
        self.from_macros += 1;
        if self.from_macros <= MAX_MACRO_TOKENS {
            return true;
        }
        let message = format!("macros expand to more than {MAX_MACRO_TOKENS} tokens");
        self.error(codes::MACRO_TOO_LARGE, t.span, message);
        self.frames.clear();
        self.open.clear();
        false
    }

    /// A command line argument: a token instead, or a frame of its tokens.
    fn argument(&mut self, t: Token) -> Option<Token> {
        let stand_in = |given_token: Option<&Token>, kind: Tok| {
            given_token.map(|a| Token {
                kind,
                expansion: t.expansion,
                ..*a
            })
        };
        match t.kind {
            Tok::ArgCount => return stand_in(self.args.count.as_ref(), Tok::Num),
            Tok::ArgCountQuoted => return stand_in(self.args.count.as_ref(), Tok::ArgStr),
            _ => {}
        }
        let number = arg_number(self.sources, &t).filter(|n| (1..=MAX_ARG).contains(n));
        // Arguments inside arguments are not substituted: they could repeat forever.
        let nested = self.frames.last().is_some_and(|f| f.is_arg);
        let index = number.filter(|_| !nested).map_or(usize::MAX, |n| n - 1);
        if t.kind == Tok::ArgQuoted
            && let Some(a) = self.args.quoted.get(index).copied()
        {
            return Some(Token {
                expansion: self.expansion(t.span),
                ..a
            });
        }
        if let Some(tokens) = self.args.raw.get(index) {
            let tokens = tokens.clone();
            let expansion = self.expansion(t.span);
            self.push_frame(tokens, None, expansion).is_arg = true;
            return None;
        }
        let text = self.sources.slice(t.span);
        let given = match self.env.args.len() {
            0 => "no arguments were given".to_owned(),
            1 => "one argument was given".to_owned(),
            n => format!("{n} arguments were given"),
        };
        let d = Diagnostic::error(codes::ARG_RANGE, format!("`{text}` is not there"));
        let d = d.label(t.span, given);
        self.diags
            .push(d.help("arguments follow the name of the script"));
        // Still a value, so that the parser does not report it again.
        let kind = match t.kind {
            Tok::Arg => Tok::Num,
            _ => Tok::ArgStr,
        };
        Some(Token { kind, ..t })
    }

    /// A name after `@`: a definition, a macro parameter or a macro. `false`: an operator.
    fn at_ident(&mut self, t: Token) -> bool {
        let sources = self.sources;
        let name = &sources.slice(t.span)[1..];
        let scope = self.frames.last().and_then(|f| f.scope.clone());
        if name == "define" {
            if scope.is_some() {
                self.error(codes::BAD_DEFINE, t.span, "`@define` inside a macro");
            }
            self.define(t);
            return true;
        }
        if let Some(s) = &scope
            && let Some(i) = s.definition.params.iter().position(|p| **p == *name)
        {
            let tokens = s.args[i].clone();
            let parent = s.parent.clone();
            if self.deep_enough(t, 0) {
                let expansion = parent.as_ref().map_or(0, |p| p.expansion);
                self.push_frame(tokens, parent, expansion);
            }
            return true;
        }
        // What the built-in library means by a name stays when a script defines the name too.
        let origin = t.span.file;
        let seen = |m: &&Arc<Macro>| m.span.file.is_built_in() || !origin.is_built_in();
        let local = self.local.get(name).filter(seen);
        let library = || self.library.find(name, origin, self.sources, self.env);
        let Some(m) = local.or_else(library).cloned() else {
            return false;
        };
        self.invoke(t, m, scope);
        true
    }

    fn deep_enough(&mut self, t: Token, scopes: usize) -> bool {
        // Ended frames do not count: they are dropped late.
        self.frames.retain(|f| f.pos < f.tokens.len());
        if self.frames.len().max(scopes) < MAX_MACRO_DEPTH {
            return true;
        }
        let message = format!("macros nest more than {MAX_MACRO_DEPTH} deep");
        self.error(codes::MACRO_TOO_LARGE, t.span, message);
        false
    }

    fn invoke(&mut self, t: Token, m: Arc<Macro>, scope: Option<Rc<MacroScope>>) {
        let mut up = scope.as_ref();
        while let Some(s) = up {
            if Arc::ptr_eq(&s.definition, &m) {
                let message = format!("`@{}` uses itself", m.name);
                let d = Diagnostic::error(codes::MACRO_RECURSION, message);
                self.diags.push(d.at(t.span).also(m.span, "defined here"));
                return self.stand_in(t);
            }
            up = s.parent.as_ref();
        }
        let mut args = Vec::new();
        if !m.params.is_empty() {
            if self.peek_at(0) != Some(Tok::LParen) {
                return self.bad_args(t, &m, 0);
            }
            match self.macro_args(t) {
                Some(a) => args = a,
                None => return self.stand_in(t),
            }
            // Nested calls copy their inner ones at each level.
            self.from_macros += args.iter().map(|a| a.len()).sum::<usize>();
            if args.len() != m.params.len() {
                return self.bad_args(t, &m, args.len());
            }
        } else if self.peek_at(0) == Some(Tok::LParen) && self.peek_at(1) == Some(Tok::RParen) {
            // `@m()` for a macro without parameters.
            self.raw();
            self.raw();
        }
        let depth = scope.as_ref().map_or(0, |s| s.depth) + 1;
        if !self.deep_enough(t, depth) {
            return;
        }
        let expansion = self.expansion(t.span);
        let tokens = m.body.clone();
        let scope = MacroScope {
            definition: m,
            args,
            parent: scope,
            depth,
            expansion,
        };
        self.push_frame(tokens, Some(Rc::new(scope)), expansion);
    }

    /// The expansion number of tokens from the macro or argument at `call`.
    fn expansion(&mut self, call: Span) -> u32 {
        self.expansions.push(call);
        self.expansions.len().fit::<u32>()
    }

    /// A token of the current frame, 0 being the next one, without taking it.
    fn peek_at(&self, ahead: usize) -> Option<Tok> {
        let f = self.frames.last()?;
        f.tokens.get(f.pos + ahead).map(|t| t.kind)
    }

    fn bad_args(&mut self, t: Token, m: &Macro, given: usize) {
        let wanted = m.params.len();
        let message = format!("`@{}` takes {wanted} arguments, not {given}", m.name);
        let d = Diagnostic::error(codes::MACRO_ARGS, message).at(t.span);
        self.diags.push(d.also(m.span, "defined here"));
        self.stand_in(t);
    }

    /// A value instead of a macro that cannot be expanded: one error is enough.
    fn stand_in(&mut self, t: Token) {
        let kind = Tok::Num;
        self.push_frame([Token { kind, ..t }].into(), None, t.expansion);
    }

    /// The arguments of a macro call, unexpanded; the next token is `(`.
    fn macro_args(&mut self, call: Token) -> Option<Vec<Arc<[Token]>>> {
        let f = self.frames.last_mut()?;
        let mut args = Vec::new();
        let mut current: Vec<Token> = Vec::new();
        let mut depth = 0usize;
        let start = f.pos;
        while let Some(t) = f.tokens.get(f.pos) {
            f.pos += 1;
            match t.kind {
                Tok::LParen | Tok::LBracket | Tok::LBrace | Tok::PpOpen => {
                    depth += 1;
                    if depth == 1 {
                        continue;
                    }
                }
                Tok::RParen | Tok::RBracket | Tok::RBrace | Tok::PpClose => {
                    depth -= 1;
                    if depth == 0 {
                        args.push(current.into());
                        return Some(args);
                    }
                }
                Tok::Comma if depth == 1 => {
                    args.push(std::mem::take(&mut current).into());
                    continue;
                }
                _ => {}
            }
            current.push(*t);
        }
        f.pos = start + 1;
        let d = Diagnostic::error(codes::MACRO_ARGS, "the arguments of this macro never end");
        self.diags.push(d.label(call.span, "no `)` after this"));
        None
    }

    /// `@define NAME [(a, b)] %( BODY %)`, after `@define`.
    fn define(&mut self, keyword: Token) {
        match self.definition(keyword) {
            Ok(m) => {
                if let Some(old) = self.local.get(&m.name) {
                    let message = format!("`@{}` is defined twice", m.name);
                    let d = Diagnostic::error(codes::MACRO_TWICE, message).at(m.span);
                    self.diags.push(d.also(old.span, "first defined here"));
                    return;
                }
                self.local.insert(m.name.clone(), Arc::new(m));
            }
            Err(d) => {
                self.diags.push(*d);
                self.skip_macro_body();
            }
        }
    }

    /// After a malformed head: drops the body, if one begins close by.
    fn skip_macro_body(&mut self) {
        let Some(f) = self.frames.last_mut() else {
            return;
        };
        // The unexpected token may be the `%(` itself.
        let from = f.pos.saturating_sub(1);
        let close = f.tokens[from..]
            .iter()
            .take(16)
            .position(|t| t.kind == Tok::PpOpen);
        if let Some(n) = close {
            let open = f.tokens[from + n].span;
            f.pos = from + n + 1;
            self.skip(open, false);
        }
    }

    fn definition(&mut self, keyword: Token) -> DiagResult<Macro> {
        let sources = self.sources;
        let bad = |span: Span, wanted: &str| {
            let d = Diagnostic::error(codes::BAD_DEFINE, "malformed `@define`");
            let d = d.label(span, format!("{wanted} expected"));
            Box::new(d.help("write `@define name(a, b) %( ... %)`"))
        };
        let span_of = |t: Option<Token>| t.map_or(keyword.span, |t| t.span);
        let name = match self.raw() {
            Some(t) if sources.slice(t.span) == "define" => {
                return Err(bad(t.span, "another name"));
            }
            Some(t) if t.kind == Tok::Ident || t.kind.is_keyword() => t,
            t => return Err(bad(span_of(t), "a name")),
        };
        let mut params: Vec<Name> = Vec::new();
        let mut t = self.raw();
        if t.is_some_and(|t| t.kind == Tok::LParen) {
            loop {
                match self.raw() {
                    Some(p) if p.kind == Tok::Ident || p.kind.is_keyword() => {
                        params.push(sources.slice(p.span).into());
                    }
                    Some(p) if p.kind == Tok::RParen && params.is_empty() => break,
                    p => return Err(bad(span_of(p), "a parameter name")),
                }
                match self.raw() {
                    Some(p) if p.kind == Tok::Comma => {}
                    Some(p) if p.kind == Tok::RParen => break,
                    p => return Err(bad(span_of(p), "`,` or `)`")),
                }
            }
            t = self.raw();
        }
        let open = match t {
            Some(t) if t.kind == Tok::PpOpen => t,
            t => return Err(bad(span_of(t), "`%(`")),
        };
        let mut body = Vec::new();
        let mut depth = 0;
        while let Some(t) = self.raw() {
            match t.kind {
                Tok::PpOpen => depth += 1,
                Tok::PpClose if depth == 0 => {
                    let name = sources.slice(name.span).into();
                    return Ok(Macro {
                        name,
                        params,
                        body: body.into(),
                        span: keyword.span,
                    });
                }
                Tok::PpClose => depth -= 1,
                Tok::AtIdent if sources.slice(t.span) == "@define" => {
                    let d = Diagnostic::error(codes::BAD_DEFINE, "`@define` inside a macro");
                    self.diags.push(d.at(t.span).also(name.span, "the macro"));
                    continue;
                }
                _ => {}
            }
            body.push(t);
        }
        let d = Diagnostic::error(codes::BAD_DEFINE, "the body of this macro never ends");
        Err(Box::new(d.label(open.span, "no `%)` after this")))
    }
}

/// An argument's text as a literal, for messages.
fn quoted(text: &str) -> String {
    escape(text.as_bytes())
}
