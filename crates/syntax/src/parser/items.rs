//! Top-level items, and their documentation comments.

use super::doc::doc_comment;
use super::{Globals, Parse, Parser, ProductionFailed};
use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// Tokens that can begin an item.
const ITEM_START: &[Tok] = &[
    Tok::KwProbe,
    Tok::KwGlobal,
    Tok::KwPrivate,
    Tok::KwFunction,
    Tok::Embedded,
];

impl Parser<'_> {
    /// The items of a file; its global variables are added to those of the parts before it.
    pub(super) fn file(&mut self, globals: &mut Globals) -> File {
        let mut file = File::default();
        while !self.at(Tok::Eof) {
            let before = self.pos;
            let item = match self.pattern && before == 0 {
                true => self.probe(self.token()).map(Some),
                false => self.item(),
            };
            match item {
                Ok(Some(item)) => {
                    if let Item::Global(decl) = &item {
                        self.check_globals(decl, globals);
                    }
                    if self.checks_version {
                        self.check_version(&item, before);
                    }
                    file.items.push(item);
                }
                Ok(None) => {}
                Err(ProductionFailed) => self.skip_to_item(before),
            }
        }
        file
    }

    /// Warns of an item, whose first token has the number `start`, that a condition on the version of
    /// SystemTap stands in or before.
    fn check_version(&mut self, item: &Item, start: usize) {
        let tokens = start..self.pos;
        if !self.version_conditions.iter().any(|n| tokens.contains(n)) {
            return;
        }
        let (what, span) = match item {
            Item::Probe(p) => ("probe", p.span),
            Item::Alias(a) => ("alias", a.span),
            Item::Function(f) => ("function", f.name.span),
            Item::Global(g) => ("global", g.span),
            Item::Embedded(e) => ("embedded code", e.span),
        };
        let message = format!("this {what} depends on the version of SystemTap");
        let d = Diagnostic::warning(codes::VERSION_DEPENDENT, message).at(span);
        self.diags
            .push(d.help("--compatible=VERSION names the version"));
    }

    /// Refuses a second global variable of one name in a script.
    fn check_globals(&mut self, decl: &GlobalDecl, known: &mut Globals) {
        for v in &decl.vars {
            let name = &v.name.name;
            let Some((private, first)) = known.get(name).copied() else {
                known.insert(name.clone(), (decl.private, v.name.span));
                continue;
            };
            let message = match private == decl.private {
                true => format!("global variable `{name}` is declared twice"),
                false => format!("`{name}` is both a global and a private variable"),
            };
            let d = Diagnostic::error(codes::BAD_DECLARATION, message).at(v.name.span);
            self.report(d.also(first, "declared here first"));
        }
    }

    fn skip_to_item(&mut self, before: usize) {
        if self.pos == before {
            self.bump();
        }
        let mut depth = 0usize;
        while !self.at(Tok::Eof) && !ITEM_START.contains(&self.kind()) {
            match self.bump().kind {
                Tok::LBrace => depth += 1,
                // The end of the body of an intended item.
                Tok::RBrace if depth <= 1 => return,
                Tok::RBrace => depth -= 1,
                _ => {}
            }
        }
    }

    fn item(&mut self) -> Parse<Option<Item>> {
        let t = self.token();
        let private = self.accept(Tok::KwPrivate).is_some();
        self.in_function = self.at(Tok::KwFunction);
        match self.kind() {
            Tok::KwGlobal => Ok(Some(Item::Global(self.global(t, private)?))),
            Tok::KwFunction => Ok(Some(Item::Function(self.function(t, private)?))),
            // `private x` is a global, too.
            Tok::Ident if private => Ok(Some(Item::Global(self.global(t, private)?))),
            _ if private => self.unexpected("`global`, `function` or a name"),
            Tok::KwProbe => {
                self.bump();
                Ok(Some(self.probe(t)?))
            }
            Tok::Embedded => Ok(Some(Item::Embedded(self.embedded()))),
            Tok::Semi => {
                self.bump();
                Ok(None)
            }
            _ => {
                let message = format!(
                    "expected `probe`, `global` or `function`, found {}",
                    self.found(t)
                );
                let d = Diagnostic::error(codes::UNEXPECTED, message);
                let d = d.label(t.span, "this is outside of any probe and function");
                let near = ["probe", "global", "function", "private"];
                let text = self.text(t);
                self.fail(d.did_you_mean(text, near))
            }
        }
    }

    pub(super) fn embedded(&mut self) -> Embedded {
        let t = self.bump();
        if !self.is_privileged(t) {
            let message = "embedded code in an unprivileged script; need `-g`";
            let help = "spile runs no C, even with `-g`: use functions of the library, `@cast` and `@kderef`";
            let d = Diagnostic::error(codes::NEEDS_GURU, message).at(t.span);
            self.report(d.help(help));
        }
        let text = self.text(t);
        let inner = text.get(2..text.len().saturating_sub(2)).unwrap_or("");
        Embedded {
            text: inner.into(),
            span: t.span,
        }
    }

    /// `global a, b = 3, c[100], d%, e%[10]`
    fn global(&mut self, start: Token, private: bool) -> Parse<GlobalDecl> {
        if !(private && self.at(Tok::Ident)) {
            self.expect(Tok::KwGlobal)?;
        }
        let mut vars = Vec::new();
        self.comma_list(|p| {
            vars.push(p.global_var()?);
            Ok(())
        })?;
        let span = self.since(start.span);
        self.accept(Tok::Semi);
        Ok(GlobalDecl {
            private,
            vars,
            span,
        })
    }

    fn global_var(&mut self) -> Parse<GlobalVar> {
        let name = self.new_ident("the name of a global")?;
        let wrap = self.accept(Tok::Percent).is_some();
        let max = match self.accept(Tok::LBracket) {
            Some(open) => {
                let size_span = self.token().span;
                let n = self.number("the array's size")?;
                if !(1..=i64::from(i32::MAX)).contains(&n) {
                    let message = format!("an array cannot have {n} elements");
                    self.report(
                        Diagnostic::error(codes::BAD_DECLARATION, message)
                            .at(self.since(size_span)),
                    );
                }
                self.expect_close(Tok::RBracket, open)?;
                Some(n)
            }
            None => None,
        };
        let init = self.after(Tok::Assign, |p| p.literal("the initial value"))?;
        if init.is_some() && (wrap || max.is_some()) {
            let message = format!("the array `{}` cannot have an initial value", name.name);
            self.report(Diagnostic::error(codes::BAD_DECLARATION, message).at(name.span));
        }
        Ok(GlobalVar {
            name,
            wrap,
            max,
            init,
        })
    }

    fn type_name(&mut self) -> Parse<TypeName> {
        let t = self.token();
        let ty = match t.kind {
            Tok::KwLong => TypeName::Long,
            Tok::KwString => TypeName::String,
            _ => {
                let message = format!("expected a type, found {}", self.found(t));
                let d = Diagnostic::error(codes::BAD_TYPE, message).at(t.span);
                return self.fail(d.help("the types are `long` and `string`"));
            }
        };
        self.bump();
        Ok(ty)
    }

    fn opt_type(&mut self) -> Parse<Option<TypeName>> {
        self.after(Tok::Colon, Self::type_name)
    }

    /// `function f:string(a:long, b) :1 { ... }`
    fn function(&mut self, start: Token, private: bool) -> Parse<Function> {
        self.expect(Tok::KwFunction)?;
        let name = self.new_ident("the name of a function")?;
        let ret = self.opt_type()?;
        let open = self.expect(Tok::LParen)?;
        let mut params: Vec<(Ident, Option<TypeName>)> = Vec::new();
        while !self.at(Tok::RParen) {
            let param = self.new_ident("the name of a parameter")?;
            if let Some((other, _)) = params.iter().find(|(p, _)| p.name == param.name) {
                let message = format!("two parameters are called `{}`", param.name);
                let d = Diagnostic::error(codes::BAD_DECLARATION, message).at(param.span);
                let d = d.also(other.span, "the other one");
                self.report(d);
            }
            params.push((param, self.opt_type()?));
            if self.accept(Tok::Comma).is_none() {
                break;
            }
        }
        self.expect_close(Tok::RParen, open)?;
        let priority = self.after(Tok::Colon, |p| p.number("the function's priority"))?;
        let body = match self.kind() {
            Tok::Embedded => FnBody::Embedded(self.embedded()),
            _ => FnBody::Block(self.block("the function's body")?),
        };
        let doc = self.doc_comment(start.span);
        Ok(Function {
            private,
            name,
            ret,
            params,
            priority,
            body,
            doc,
            span: self.since(start.span),
        })
    }

    /// `probe POINTS { }` or an alias, behind the keyword. The last handler of a pattern is left out.
    fn probe(&mut self, start: Token) -> Parse<Item> {
        let mut points = self.probe_points()?;
        let mut names = Vec::new();
        let kind = loop {
            let epilogue = self.at(Tok::AddAssign);
            if !epilogue && !self.at(Tok::Assign) {
                break None;
            }
            self.bump();
            names.extend(self.alias_names(points)?);
            points = self.probe_points()?;
            if epilogue {
                break Some(AliasKind::Epilogue);
            }
            if !matches!(self.kind(), Tok::Assign | Tok::AddAssign) {
                break Some(AliasKind::Prologue);
            }
        };
        let body = match self.pattern && kind.is_none() && self.at(Tok::Eof) {
            true => StmtBlock::default(),
            false => self.block("the handler of the probe")?,
        };
        let Some(kind) = kind else {
            return Ok(Item::Probe(Probe {
                points,
                body,
                span: self.since(start.span),
            }));
        };
        let second = match (kind, self.accept(Tok::Comma)) {
            (AliasKind::Prologue, Some(_)) => Some(self.block("the alias's epilogue")?),
            (AliasKind::Epilogue, Some(_)) => return self.unexpected("the end of the alias"),
            (_, None) => None,
        };
        let doc = self.doc_comment(start.span);
        let span = self.since(start.span);
        Ok(Item::Alias(Alias {
            names,
            kind,
            points,
            body,
            second,
            doc,
            span,
        }))
    }

    /// Checks that the left side of `=` can be a name.
    fn alias_names(&mut self, points: Vec<ProbePoint>) -> Parse<Vec<ProbePoint>> {
        for p in &points {
            let plain = |c: &Component| c.arg.is_none() && !c.name.contains('*');
            let suffix = p.optional || p.sufficient || p.condition.is_some();
            if suffix || !p.components.iter().all(plain) {
                let message = "the name of an alias has no arguments, wildcards or suffixes";
                return self.fail(Diagnostic::error(codes::BAD_PROBE_POINT, message).at(p.span));
            }
        }
        Ok(points)
    }

    fn doc_comment(&self, item: Span) -> Option<String> {
        doc_comment(self.sources.text(item.file), item.start as usize)
    }
}
