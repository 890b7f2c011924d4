//! A document after all passes: its diagnostics, and the meaning of its names.

use spile_sema::analyse::{Inputs, analyse_seen};
use spile_sema::library::Library;
use spile_sema::probe::list;
use spile_sema::types::hir::{Tree, UnitKind};
use spile_sema::types::unify::{Base, TyVar, Types};
use spile_syntax::ast::{self, FileId, Item, Name, Span};
use spile_syntax::codes;
use spile_syntax::diag::{Diagnostic, Diagnostics};
use spile_syntax::lexer::lex;
use spile_syntax::parser::{parse_file, parse_macros};
use spile_syntax::source::Sources;
use spile_syntax::token::{Tok, Token};

use crate::workspace::Workspace;

/// The kind of a document, by its name and location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    /// A script.
    Script,
    /// `.stpm`: only macros.
    Macros,
    /// A copy of a tapset file, which is analysed where it is used.
    Tapset(FileId),
}

/// A variable with its type.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub name: Name,
    pub span: Span,
    /// `long`, `string [long, long]`
    pub ty: String,
}

/// A handler or a function with its variables.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub span: Span,
    pub locals: Vec<Variable>,
    /// The signature of a function, with inferred types.
    pub signature: Option<String>,
}

/// The analysis of a document.
pub(crate) struct Analysis {
    /// The tapset's files and the document.
    pub sources: Sources,
    /// The document.
    pub file: FileId,
    /// The file whose private names the document sees.
    pub scope: FileId,
    /// Its tokens before the preprocessor.
    pub tokens: Vec<Token>,
    /// Its tree, as far as it parses.
    pub tree: ast::File,
    /// The tapset with the document.
    pub library: Library,
    /// Its diagnostics.
    pub diags: Diagnostics,
    /// The used globals, and those of the document.
    pub globals: Vec<Variable>,
    /// The used handlers and functions, and those of the document.
    pub units: Vec<Unit>,
}

impl Analysis {
    /// Runs all passes.
    pub(crate) fn new(
        workspace: &Workspace,
        name: &str,
        text: &str,
        kind: DocumentKind,
    ) -> Analysis {
        let mut analysis = Analysis::parse(workspace, name, text, kind, 0);
        if (&analysis.diags)
            .into_iter()
            .any(|d| d.code == codes::ARG_RANGE)
        {
            // The script uses arguments, whose values are unknown.
            let arguments = analysis.arguments();
            let numbers = arguments.filter_map(|t| analysis.slice(t).get(1..)?.parse().ok());
            let wanted = numbers.filter(|n| *n <= MAX_ARGS).max().unwrap_or(0);
            analysis = Analysis::parse(workspace, name, text, kind, wanted);
        }
        analysis.library = workspace.library.clone();
        if kind == DocumentKind::Script {
            let tree = analysis.tree.clone();
            analysis.library.add(analysis.file, tree, true);
            analysis.names(workspace);
        }
        analysis
    }

    /// Parses a document, with `args` made-up arguments.
    fn parse(
        workspace: &Workspace,
        name: &str,
        text: &str,
        kind: DocumentKind,
        args: usize,
    ) -> Analysis {
        let mut sources = workspace.sources.clone();
        let mut diags = Diagnostics::new();
        let env = (workspace.env)(vec!["1".into(); args]);
        let text = text.as_bytes().to_vec();
        // A file of the built-in library has its privileges in an editor too.
        let file = match kind {
            DocumentKind::Tapset(original) if original.is_built_in() => {
                sources.add_built_in(name, text)
            }
            _ => sources.add(name, text),
        };
        let tokens = lex(&sources, file, &mut Diagnostics::new());
        let tree = match kind {
            DocumentKind::Macros => {
                parse_macros(&mut sources, file, &env, &mut diags);
                ast::File::default()
            }
            _ => parse_file(&mut sources, file, &env, &workspace.macros, &mut diags),
        };
        Analysis {
            sources,
            file,
            scope: match kind {
                DocumentKind::Tapset(original) => original,
                _ => file,
            },
            tokens,
            tree,
            library: Library::new(),
            diags,
            globals: Vec::new(),
            units: Vec::new(),
        }
    }

    /// The tokens `$1`, `@1` and so on.
    fn arguments(&self) -> impl Iterator<Item = &Token> {
        let is_arg = |t: &&Token| matches!(t.kind, Tok::Arg | Tok::ArgQuoted);
        self.tokens.iter().filter(is_arg)
    }

    /// Analyses probe points, names and types; as on the command line, a document with syntax
    /// errors is analysed only as far as its names are known.
    fn names(&mut self, workspace: &Workspace) {
        let mut diags = Diagnostics::new();
        let library = &self.library;
        let facts = &*workspace.facts;
        let inputs = Inputs {
            library,
            sources: &self.sources,
            facts,
            tables: &*workspace.tables,
            options: &workspace.options,
        };
        let (mut globals, mut units) = (Vec::new(), Vec::new());
        let mut seen = |tree: &Tree, types: &Types| {
            globals = tree_globals(tree, types);
            units = tree_units(tree, types);
        };
        let _ = analyse_seen(&inputs, &mut diags, &mut seen);
        if !self.diags.has_errors() && workspace.blind.is_none() {
            let certain = |d: &&Diagnostic| !self.is_about_argument(d);
            let certain: Vec<Diagnostic> = diags.into_iter().filter(certain).cloned().collect();
            certain.into_iter().for_each(|d| self.diags.push(d));
        }
        (self.globals, self.units) = (globals, units);
    }

    /// Whether a diagnostic is about a command line argument, whose value is unknown.
    fn is_about_argument(&self, d: &Diagnostic) -> bool {
        let Some(span) = d.primary.as_ref().map(|l| l.span) else {
            return false;
        };
        if self.sources.name(span.file).starts_with("<argument") {
            return true;
        }
        let inside = |t: &Token| span.start <= t.span.start && t.span.end <= span.end;
        span.file == self.file && self.arguments().any(inside)
    }

    /// The document's text.
    pub(crate) fn text(&self) -> &str {
        self.sources.text(self.file)
    }

    /// The text of a token.
    pub(crate) fn slice(&self, t: &Token) -> &str {
        self.sources.slice(t.span)
    }

    /// The text of token `i`; empty past the end.
    pub(crate) fn word(&self, i: usize) -> &str {
        self.tokens.get(i).map_or("", |t| self.slice(t))
    }

    pub(crate) fn kind(&self, i: usize) -> Tok {
        self.tokens.get(i).map_or(Tok::Eof, |t| t.kind)
    }

    /// The units whose item begins in a range of the document.
    pub(crate) fn units_in(&self, start: usize, end: usize) -> impl Iterator<Item = &Unit> {
        let inside = move |u: &&Unit| {
            u.span.file == self.file && (start..end).contains(&(u.span.start as usize))
        };
        self.units.iter().filter(inside)
    }

    /// The functions of a name that the document sees, with their files.
    pub(crate) fn functions(&self, name: &str) -> Vec<(FileId, std::sync::Arc<ast::Function>)> {
        self.library.functions(name, self.scope)
    }

    /// A function for hovers and completions, with inferred types if it is used.
    pub(crate) fn signature(&self, f: &ast::Function) -> String {
        let unit = self.units.iter().find(|u| u.span == f.name.span);
        unit.and_then(|u| u.signature.clone())
            .unwrap_or_else(|| list::signature(f))
    }

    /// The document's functions, including private ones.
    pub(crate) fn own_functions(&self) -> impl Iterator<Item = &ast::Function> {
        self.tree.items.iter().filter_map(|i| match i {
            Item::Function(f) => Some(f),
            _ => None,
        })
    }
}

/// Maximum number of arguments that are made up for a script.
const MAX_ARGS: usize = 99;

fn name(types: &Types, v: TyVar) -> &'static str {
    match types.get(v) {
        Some(Base::Long) => "long",
        Some(Base::Str) => "string",
        Some(Base::Stats) => "statistic",
        None => "unknown",
    }
}

fn tree_globals(tree: &Tree, types: &Types) -> Vec<Variable> {
    let shown = tree.globals.iter().filter(|g| !g.synthetic);
    shown
        .map(|g| {
            let keys = g.keys.iter().flatten().map(|k| name(types, *k));
            let keys: Vec<&str> = keys.collect();
            let mut ty = name(types, g.value).to_owned();
            if !keys.is_empty() {
                ty.push_str(&format!(" [{}]", keys.join(", ")));
            }
            Variable {
                name: g.name.clone(),
                span: g.span,
                ty,
            }
        })
        .collect()
}

fn tree_units(tree: &Tree, types: &Types) -> Vec<Unit> {
    let shown = tree.units.iter().filter(|u| !u.name.starts_with('@'));
    shown
        .map(|u| {
            let locals = u.locals.iter().filter(|l| !l.name.starts_with(['@', '_']));
            let signature = match &u.kind {
                UnitKind::Func {
                    params,
                    ret,
                    has_value,
                    ..
                } => {
                    let typed = |l: &spile_sema::types::hir::Local| {
                        format!("{}:{}", l.name, name(types, l.ty))
                    };
                    let params = params.iter().filter_map(|p| u.locals.get(p.0));
                    let params: Vec<String> = params.map(typed).collect();
                    let ret = if *has_value {
                        format!(":{}", name(types, *ret))
                    } else {
                        String::new()
                    };
                    Some(format!("{}{ret} ({})", u.name, params.join(", ")))
                }
                UnitKind::Handler { .. } => None,
            };
            Unit {
                span: u.span,
                locals: locals
                    .map(|l| Variable {
                        name: l.name.clone(),
                        span: l.span,
                        ty: name(types, l.ty).to_owned(),
                    })
                    .collect(),
                signature,
            }
        })
        .collect()
}
