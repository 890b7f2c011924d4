//! The start and end of statements, as far as tokens show them; indentation and blanks follow from
//! these.
//!
//! The tokens are those before the preprocessor, so there is no tree: branches of conditionals can
//! open a block that is closed after them. A conditional remembers the state before it, its second
//! branch starts from there, and the tokens after it continue from the end of the first branch. A
//! mistake of the machine affects only the layout: tokens are never changed.

mod conds;
mod heads;

use super::frames::{
    CondPhase, ItemFrame, OpenBrackets, OpenConditional, OpenFrame, StmtFrame, StmtPosition,
};
use super::gaps::SpacedToken;
use crate::parser::expr::{ASSIGN, BINARY};
use crate::token::Tok;

/// Indentation of a level.
pub(super) const LEVEL: usize = 2;
/// Maximum column of alignment after an opening bracket.
const MAX_ALIGN: usize = 60;
/// Maximum nesting that is formatted: the states that conditionals remember would grow too large.
const MAX_FRAMES: usize = 1000;

/// The class of a token, which decides the blanks around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenClass {
    /// A name, a number, a keyword: blanks on both sides.
    Word,
    /// An operator with two operands, a preprocessor mark: blanks on both sides.
    Binary,
    /// `(` or `[` where a value begins.
    Open,
    /// `(` or `[` of a call or index: nothing before it.
    OpenTight,
    /// `)`, `]`
    Close,
    /// An operator before its operand: no blank after it.
    Prefix,
    /// `,`, `;`, `x++`: no blank before it.
    Suffix,
    /// `->`: no blanks at all.
    Tight,
    /// The `{` and `}` of a block.
    Brace,
    /// Part of a probe point: blanks stay as the author wrote them.
    AsIs,
    /// `,` in the braces of a probe point: no blank before it; after it as the author wrote it.
    PointComma,
}

/// Whether a token begins a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineBreak {
    /// As the author wrote it.
    Free,
    /// It does.
    Must,
    /// It does not, unless a comment precedes it.
    Never,
}

/// The decision about a token before it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenLayout {
    pub class: TokenClass,
    pub line: LineBreak,
    /// Indentation if it begins a line.
    pub indent: usize,
    /// Indentation of comments above it.
    pub comments: usize,
    /// No empty line above.
    pub tight: bool,
    /// A statement without a `;` between it and the one before.
    pub apart: bool,
}

/// See the module's documentation.
pub(super) struct FormatMachine<'a> {
    tokens: &'a [SpacedToken],
    /// For each `{`: its `}` is on the same line.
    flat: Vec<bool>,
    stack: Vec<OpenFrame>,
    conds: Vec<OpenConditional>,
    pos: StmtPosition,
    /// Indentation that open conditionals add.
    extra: usize,
    /// Whether the last `{` or `}` was that of a block over several lines.
    after_block: bool,
    /// Nesting was too deep.
    pub overflow: bool,
}

impl<'a> FormatMachine<'a> {
    pub(super) fn new(tokens: &'a [SpacedToken], text: &str) -> Self {
        let flat = flat_braces(tokens, text);
        FormatMachine {
            tokens,
            flat,
            stack: Vec::new(),
            conds: Vec::new(),
            pos: StmtPosition::Start,
            extra: 0,
            after_block: false,
            overflow: false,
        }
    }

    fn kind(&self, i: usize) -> Tok {
        self.tokens.get(i).map_or(Tok::Eof, |e| e.kind)
    }

    fn previous(&self, i: usize) -> Tok {
        i.checked_sub(1).map_or(Tok::Eof, |i| self.kind(i))
    }

    fn push(&mut self, f: OpenFrame) {
        if self.stack.len() + self.conds.len() >= MAX_FRAMES {
            self.overflow = true;
        } else {
            self.stack.push(f);
        }
    }

    /// Indentation of a statement that begins here.
    fn stmt_indent(&self) -> usize {
        match self.stack.last() {
            None => 0,
            Some(
                OpenFrame::Block { indent, .. }
                | OpenFrame::Define { indent }
                | OpenFrame::Stmt { indent, .. },
            ) => indent + LEVEL,
            Some(OpenFrame::Item { indent, .. }) => *indent,
            Some(OpenFrame::Group(_)) => self.cont_indent(),
        }
    }

    /// Indentation of a line that continues an open construct.
    fn cont_indent(&self) -> usize {
        match self.stack.last() {
            Some(OpenFrame::Group(g)) => g.align.unwrap_or(g.base + g.hanging_indent()),
            Some(OpenFrame::Stmt {
                indent,
                kind: StmtFrame::Simple,
            }) => indent + LEVEL,
            Some(OpenFrame::Stmt { indent, .. }) => *indent,
            Some(OpenFrame::Item { indent, cont, .. }) => indent + cont,
            _ => self.stmt_indent(),
        }
    }

    fn in_group(&self) -> bool {
        matches!(self.stack.last(), Some(OpenFrame::Group(_)))
    }

    fn in_simple(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(OpenFrame::Stmt {
                kind: StmtFrame::Simple,
                ..
            })
        )
    }

    fn in_head(&self) -> Option<ItemFrame> {
        match self.stack.last() {
            Some(OpenFrame::Item { head, .. }) => Some(*head),
            _ => None,
        }
    }

    /// Decides about token `i`; called once for each, in order.
    pub(super) fn decide(&mut self, i: usize) -> TokenLayout {
        let kind = self.kind(i);
        let after_block = std::mem::take(&mut self.after_block);
        let opened = after_block && self.previous(i) == Tok::LBrace;
        let mut d = self.location(i, kind);
        d.indent += self.extra;
        d.comments += self.extra;
        d.tight |= opened;
        if after_block && d.line == LineBreak::Free {
            let joins = matches!(
                kind,
                Tok::Semi | Tok::Comma | Tok::PpClose | Tok::PpElse | Tok::RParen
            );
            if opened || !joins {
                d.line = LineBreak::Must;
            }
        }
        d
    }

    /// Called when token `i` was written, with the end column of its text and the line's
    /// indentation.
    pub(super) fn written(&mut self, i: usize, column: usize, line_indent: usize) {
        let hangs = self.tokens.get(i + 1).is_none_or(SpacedToken::broken);
        let extra = self.extra;
        let is_open = matches!(self.kind(i), Tok::LParen | Tok::LBracket | Tok::LBrace);
        match self.stack.last_mut() {
            Some(OpenFrame::Group(g)) if is_open && g.fresh => {
                g.fresh = false;
                g.base = line_indent.saturating_sub(extra);
                g.align = (!hangs && column <= MAX_ALIGN).then(|| column.saturating_sub(extra));
            }
            _ => {}
        }
        if self.kind(i) == Tok::PpOpen
            && let Some(c) = self.conds.last_mut()
        {
            c.line = line_indent.saturating_sub(c.outer);
        }
    }

    fn location(&mut self, i: usize, kind: Tok) -> TokenLayout {
        match kind {
            Tok::PpOpen => return self.pp_open(i),
            Tok::PpThen | Tok::PpElse | Tok::PpClose => return self.pp_mark(kind),
            _ => {}
        }
        if self
            .conds
            .last()
            .is_some_and(|c| c.phase == CondPhase::Test)
        {
            let indent = self.conds.last().map_or(0, |c| c.line) + 2 * LEVEL;
            return self.expression(i, kind, indent);
        }
        if kind == Tok::RBrace {
            return self.close_brace(i);
        }
        if self.in_group() {
            return self.expression(i, kind, self.cont_indent());
        }
        if let Some(head) = self.in_head().filter(|_| self.pos != StmtPosition::Done) {
            if let Some(d) = self.head_token(i, kind, head) {
                return d;
            }
            self.pos = StmtPosition::Done;
        }
        if self.statement_ends(i, kind) {
            self.stack.pop();
            self.pos = StmtPosition::Done;
            return TokenLayout {
                apart: true,
                ..self.statement(i, kind)
            };
        }
        self.statement(i, kind)
    }

    /// A token outside brackets and heads of items.
    fn statement(&mut self, i: usize, kind: Tok) -> TokenLayout {
        match self.pos {
            StmtPosition::Done => {
                if let Some(d) = self.end_statements(i, kind) {
                    return d;
                }
                self.pos = StmtPosition::Start;
                self.begin(i, kind)
            }
            StmtPosition::Start => self.begin(i, kind),
            StmtPosition::Body => self.body(i, kind),
            StmtPosition::HeadParen if kind == Tok::LParen => {
                self.open_group(OpenBrackets::head());
                self.decision(TokenClass::Open, self.cont_outer())
            }
            StmtPosition::HeadParen => {
                self.pos = StmtPosition::Body;
                self.body(i, kind)
            }
            _ => self.expression(i, kind, self.cont_indent()),
        }
    }

    /// Like [`Self::cont_indent`], before the group that was just opened.
    fn cont_outer(&self) -> usize {
        match self.stack.len().checked_sub(2).map(|n| &self.stack[n]) {
            Some(OpenFrame::Stmt { indent, .. }) => indent + 2 * LEVEL,
            _ => self.stmt_indent(),
        }
    }

    fn decision(&self, class: TokenClass, indent: usize) -> TokenLayout {
        TokenLayout {
            class,
            line: LineBreak::Free,
            indent,
            comments: indent,
            tight: false,
            apart: false,
        }
    }

    /// Whether the simple statement on top ends before this token.
    fn statement_ends(&self, i: usize, kind: Tok) -> bool {
        if !self.in_simple() || kind == Tok::Semi {
            return false;
        }
        let begins = begins_statement(kind) && self.pos != StmtPosition::Member;
        match self.pos {
            StmtPosition::End => true,
            StmtPosition::After => begins || !self.continues(i, kind),
            _ => begins || matches!(kind, Tok::Eof | Tok::LBrace),
        }
    }

    /// Whether a token after a value continues the expression, as the parser reads it.
    fn continues(&self, i: usize, kind: Tok) -> bool {
        match kind {
            Tok::Str | Tok::ArgStr | Tok::ArgQuoted => {
                matches!(self.previous(i), Tok::Str | Tok::ArgStr | Tok::ArgQuoted)
            }
            Tok::LParen => matches!(self.previous(i), Tok::Ident | Tok::AtIdent | Tok::Arg),
            Tok::Inc | Tok::Dec => !self.tokens[i].is_first_on_line(),
            Tok::LBracket | Tok::Arrow | Tok::Comma | Tok::Question | Tok::Colon => true,
            Tok::KwIn | Tok::KwLimit => true,
            _ => is_binary(kind),
        }
    }

    /// After a statement: ends the enclosing statements that end with it. `Some` if the token
    /// continues one of them.
    fn end_statements(&mut self, i: usize, kind: Tok) -> Option<TokenLayout> {
        loop {
            match self.stack.last().copied()? {
                OpenFrame::Stmt { kind: open, indent } => {
                    self.stack.pop();
                    let (kind, pos) = match (open, kind) {
                        (StmtFrame::If, Tok::KwElse) => (StmtFrame::Else, StmtPosition::Body),
                        (StmtFrame::Try, Tok::KwCatch) => {
                            (StmtFrame::Catch, StmtPosition::HeadParen)
                        }
                        _ => continue,
                    };
                    self.push(OpenFrame::Stmt { kind, indent });
                    self.pos = pos;
                    return Some(self.after_brace(i, indent));
                }
                OpenFrame::Item { head, indent, .. } => {
                    if head == ItemFrame::Probe && kind == Tok::Comma {
                        // A second body follows.
                        self.pos = StmtPosition::Operand;
                        return Some(self.decision(TokenClass::Suffix, indent));
                    }
                    self.stack.pop();
                }
                _ => return None,
            }
        }
    }

    /// `else` or `catch`: on the line of the `}` before it.
    fn after_brace(&self, i: usize, indent: usize) -> TokenLayout {
        let mut d = self.decision(TokenClass::Word, indent);
        if self.previous(i) == Tok::RBrace {
            d.line = LineBreak::Never;
        }
        d
    }

    /// The first token of a statement or an item.
    fn begin(&mut self, i: usize, kind: Tok) -> TokenLayout {
        let indent = self.stmt_indent();
        if kind == Tok::Eof {
            return self.decision(TokenClass::Word, indent);
        }
        if let Some(head) = self.item(i, kind) {
            let fresh = OpenFrame::Item {
                head,
                indent,
                cont: head.hanging_indent(),
            };
            self.push(fresh);
            self.pos = head.pos();
            return self.decision(TokenClass::Word, indent);
        }
        let (st, pos, class) = match kind {
            Tok::LBrace => return self.open_block(i, indent, LineBreak::Free),
            Tok::Semi => {
                self.pos = StmtPosition::Done;
                return self.decision(TokenClass::Suffix, indent);
            }
            Tok::KwIf => (StmtFrame::If, StmtPosition::HeadParen, TokenClass::Word),
            Tok::KwWhile | Tok::KwFor | Tok::KwForeach => {
                (StmtFrame::Loop, StmtPosition::HeadParen, TokenClass::Word)
            }
            Tok::KwTry => (StmtFrame::Try, StmtPosition::Body, TokenClass::Word),
            Tok::KwElse => (StmtFrame::Else, StmtPosition::Body, TokenClass::Word),
            Tok::KwCatch => (StmtFrame::Catch, StmtPosition::HeadParen, TokenClass::Word),
            Tok::KwReturn | Tok::KwDelete => {
                (StmtFrame::Simple, StmtPosition::Operand, TokenClass::Word)
            }
            Tok::KwNext | Tok::KwBreak | Tok::KwContinue => {
                (StmtFrame::Simple, StmtPosition::End, TokenClass::Word)
            }
            _ => {
                self.push(OpenFrame::Stmt {
                    kind: StmtFrame::Simple,
                    indent,
                });
                self.pos = StmtPosition::Operand;
                return self.expression(i, kind, indent);
            }
        };
        self.push(OpenFrame::Stmt { kind: st, indent });
        self.pos = pos;
        self.decision(class, indent)
    }

    /// The kind of item that begins with a token.
    fn item(&self, i: usize, kind: Tok) -> Option<ItemFrame> {
        match kind {
            Tok::KwProbe => Some(ItemFrame::Probe),
            Tok::KwGlobal => Some(ItemFrame::Global),
            Tok::KwFunction => Some(ItemFrame::Function),
            Tok::KwPrivate => Some(match self.kind(i + 1) {
                Tok::KwFunction => ItemFrame::Function,
                Tok::KwProbe => ItemFrame::Probe,
                _ => ItemFrame::Global,
            }),
            Tok::AtIdent if self.is_define(i) => Some(ItemFrame::Macro),
            _ => None,
        }
    }

    fn is_define(&self, i: usize) -> bool {
        // `@define` is seven bytes long, and a name and its body follow.
        let named = matches!(self.kind(i + 1), Tok::Ident) || self.kind(i + 1).is_keyword();
        let bodied = matches!(self.kind(i + 2), Tok::PpOpen | Tok::LParen);
        self.tokens[i].range.len() == "@define".len()
            && named
            && bodied
            && !self.tokens[i + 1].adjacent
    }

    /// The body of an `if` or a loop.
    fn body(&mut self, i: usize, kind: Tok) -> TokenLayout {
        let parent = match self.stack.last() {
            Some(OpenFrame::Stmt { indent, .. }) => *indent,
            _ => self.stmt_indent(),
        };
        match kind {
            Tok::LBrace => self.open_block(i, parent, LineBreak::Never),
            Tok::Semi => {
                self.pos = StmtPosition::Done;
                self.decision(TokenClass::Suffix, parent + LEVEL)
            }
            _ => {
                let own_line = self.tokens[i].broken();
                self.pos = StmtPosition::Start;
                let d = self.begin(i, kind);
                // `else if`, or everything on one line: the next lines are indented below the head.
                if !own_line && let Some(OpenFrame::Stmt { indent, .. }) = self.stack.last_mut() {
                    *indent = parent;
                }
                d
            }
        }
    }

    fn open_block(&mut self, i: usize, indent: usize, line: LineBreak) -> TokenLayout {
        let flat = self.flat[i];
        self.push(OpenFrame::Block { indent, flat });
        self.pos = StmtPosition::Start;
        self.after_block = !flat;
        TokenLayout {
            line,
            ..self.decision(TokenClass::Brace, indent)
        }
    }

    fn close_brace(&mut self, i: usize) -> TokenLayout {
        if matches!(self.stack.last(), Some(OpenFrame::Group(g)) if g.brace) {
            return self.close_group();
        }
        let block = self
            .stack
            .iter()
            .rposition(|f| matches!(f, OpenFrame::Block { .. } | OpenFrame::Define { .. }));
        let inner = self.stmt_indent_of_block(block);
        let Some((depth, OpenFrame::Block { indent, flat })) = block.map(|n| (n, self.stack[n]))
        else {
            self.pos = StmtPosition::Done;
            return self.decision(TokenClass::Brace, self.stmt_indent());
        };
        self.stack.truncate(depth);
        self.pos = StmtPosition::Done;
        self.after_block = !flat;
        let empty = self.previous(i) == Tok::LBrace && self.tokens[i].comments.is_empty();
        let (class, line) = match (empty, flat) {
            (true, _) => (TokenClass::Close, LineBreak::Never),
            (false, true) => (TokenClass::Brace, LineBreak::Free),
            (false, false) => (TokenClass::Brace, LineBreak::Must),
        };
        TokenLayout {
            class,
            line,
            indent,
            comments: inner,
            tight: true,
            apart: false,
        }
    }

    fn stmt_indent_of_block(&self, block: Option<usize>) -> usize {
        match block.map(|n| &self.stack[n]) {
            Some(OpenFrame::Block { indent, .. } | OpenFrame::Define { indent }) => indent + LEVEL,
            _ => 0,
        }
    }

    fn open_group(&mut self, group: OpenBrackets) {
        self.push(OpenFrame::Group(OpenBrackets {
            fresh: true,
            before: self.pos,
            ..group
        }));
        self.pos = StmtPosition::Operand;
    }

    fn close_group(&mut self) -> TokenLayout {
        let indent = match self.stack.pop() {
            Some(OpenFrame::Group(g)) => {
                self.pos = match g {
                    OpenBrackets { head: true, .. } => StmtPosition::Body,
                    // In heads of items the position has a different meaning.
                    _ if self.in_head().is_some() => match g.before {
                        StmtPosition::Operand => StmtPosition::After,
                        other => other,
                    },
                    _ => StmtPosition::After,
                };
                g.align.map_or(g.base, |a| a.saturating_sub(1))
            }
            _ => self.stmt_indent(),
        };
        self.decision(TokenClass::Close, indent)
    }

    /// A token of an expression.
    fn expression(&mut self, i: usize, kind: Tok, indent: usize) -> TokenLayout {
        let value = matches!(self.pos, StmtPosition::After);
        let member = self.pos == StmtPosition::Member;
        let next = self.kind(i + 1);
        let last_column = matches!(
            next,
            Tok::Comma | Tok::RBracket | Tok::RParen | Tok::KwIn | Tok::KwLimit
        );
        let in_points = matches!(self.stack.last(), Some(OpenFrame::Group(g)) if g.brace);
        let typed = matches!(self.stack.last(), Some(OpenFrame::Group(g)) if g.params);
        let (class, pos) = match kind {
            Tok::RParen | Tok::RBracket => {
                if self.in_group() {
                    return self.close_group();
                }
                (TokenClass::Close, StmtPosition::After)
            }
            Tok::LParen | Tok::LBracket => {
                let tight = value && (kind == Tok::LBracket || self.previous(i) != Tok::RParen)
                    || in_points;
                self.open_group(OpenBrackets::default());
                let class = match tight {
                    true => TokenClass::OpenTight,
                    false => TokenClass::Open,
                };
                return self.decision(class, indent);
            }
            Tok::LBrace => {
                self.open_group(OpenBrackets::braces());
                return self.decision(TokenClass::OpenTight, indent);
            }
            Tok::Semi => {
                if self.in_group() {
                    (TokenClass::Suffix, StmtPosition::Operand)
                } else {
                    if self.in_simple() {
                        self.stack.pop();
                    }
                    (TokenClass::Suffix, StmtPosition::Done)
                }
            }
            Tok::Comma if in_points => (TokenClass::PointComma, StmtPosition::Operand),
            Tok::Comma => (TokenClass::Suffix, StmtPosition::Operand),
            Tok::Arrow => (TokenClass::Tight, StmtPosition::Member),
            Tok::Dot | Tok::Question | Tok::Bang if in_points => {
                (TokenClass::AsIs, StmtPosition::Operand)
            }
            Tok::Colon if typed => (TokenClass::Tight, StmtPosition::Operand),
            Tok::Star if !value && (last_column || in_points) => {
                (TokenClass::Word, StmtPosition::After)
            }
            Tok::Plus | Tok::Minus if value && last_column => {
                (TokenClass::Suffix, StmtPosition::After)
            }
            Tok::Inc | Tok::Dec if value => (TokenClass::Suffix, StmtPosition::After),
            Tok::Inc | Tok::Dec | Tok::Bang | Tok::Tilde => {
                (TokenClass::Prefix, StmtPosition::Operand)
            }
            Tok::Minus | Tok::Plus | Tok::Amp | Tok::Star if !value && !member => {
                (TokenClass::Prefix, StmtPosition::Operand)
            }
            Tok::KwIn | Tok::KwLimit if !member => (TokenClass::Word, StmtPosition::Operand),
            _ if is_binary(kind) || matches!(kind, Tok::Question | Tok::Colon) => {
                (TokenClass::Binary, StmtPosition::Operand)
            }
            _ if in_points => (TokenClass::AsIs, StmtPosition::After),
            _ => (TokenClass::Word, StmtPosition::After),
        };
        self.pos = pos;
        self.decision(class, indent)
    }
}

/// For each token, whether it is a `{` with its `}` on the same line.
fn flat_braces(tokens: &[SpacedToken], text: &str) -> Vec<bool> {
    let mut flat = vec![false; tokens.len()];
    let (mut open, mut marks): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut line = 0;
    for (i, e) in tokens.iter().enumerate() {
        let within = |r: &std::ops::Range<usize>| text[r.clone()].matches('\n').count();
        line += e.newlines
            + e.comments
                .iter()
                .map(|c| c.newlines + within(&c.range))
                .sum::<usize>();
        match e.kind {
            Tok::LBrace => open.push((i, line)),
            Tok::RBrace => {
                if let Some((index, from)) = open.pop() {
                    let empty = index + 1 == i && e.comments.is_empty();
                    flat[index] = from == line || empty;
                }
            }
            Tok::PpOpen => marks.push(open.len()),
            Tok::PpElse => open.truncate(marks.last().copied().unwrap_or(0)),
            Tok::PpClose => drop(marks.pop()),
            _ => {}
        }
        if e.kind == Tok::Embedded {
            line += within(&e.range);
        }
    }
    flat
}

fn begins_statement(kind: Tok) -> bool {
    use Tok::*;
    matches!(
        kind,
        KwProbe
            | KwGlobal
            | KwPrivate
            | KwFunction
            | KwIf
            | KwElse
            | KwFor
            | KwForeach
            | KwReturn
            | KwDelete
            | KwWhile
            | KwBreak
            | KwContinue
            | KwNext
            | KwTry
            | KwCatch
    )
}

/// Whether a token is a binary operator.
fn is_binary(kind: Tok) -> bool {
    const OTHERS: [Tok; 4] = [Tok::StatAdd, Tok::Match, Tok::NoMatch, Tok::Assign];
    BINARY.iter().any(|(tok, ..)| *tok == kind)
        || ASSIGN.iter().any(|(tok, _)| *tok == kind)
        || OTHERS.contains(&kind)
}
