//! The heads of items: probe points, parameters, names of globals and macros.

use super::super::frames::{ItemFrame, OpenBrackets, OpenFrame, StmtPosition};
use super::{FormatMachine, LineBreak, TokenClass, TokenLayout, begins_statement};
use crate::token::Tok;

impl FormatMachine<'_> {
    /// A token of the head of an item. `None`: the item ended before it.
    pub(super) fn head_token(
        &mut self,
        i: usize,
        kind: Tok,
        head: ItemFrame,
    ) -> Option<TokenLayout> {
        let indent = self.cont_indent();
        let item = match self.stack.last() {
            Some(OpenFrame::Item { indent, .. }) => *indent,
            _ => 0,
        };
        match head {
            ItemFrame::Probe => Some(self.probe_token(i, kind, indent, item)),
            ItemFrame::Function | ItemFrame::Macro if kind == Tok::LParen => {
                self.open_group(OpenBrackets::params());
                Some(self.decision(TokenClass::OpenTight, indent))
            }
            ItemFrame::Function => match kind {
                Tok::LBrace => Some(self.open_block(i, item, LineBreak::Never)),
                Tok::Embedded => {
                    self.pos = StmtPosition::Done;
                    Some(TokenLayout {
                        line: LineBreak::Never,
                        ..self.decision(TokenClass::Word, item)
                    })
                }
                Tok::Colon if self.previous(i) == Tok::RParen => {
                    Some(self.decision(TokenClass::Binary, indent))
                }
                Tok::Colon => Some(self.decision(TokenClass::Tight, indent)),
                Tok::KwGlobal | Tok::KwProbe | Tok::Eof => None,
                _ => Some(self.decision(TokenClass::Word, indent)),
            },
            ItemFrame::Macro => match kind {
                Tok::Ident => Some(self.decision(TokenClass::Word, indent)),
                _ if kind.is_keyword() => Some(self.decision(TokenClass::Word, indent)),
                _ => None,
            },
            ItemFrame::Global => self.global_token(i, kind, indent),
        }
    }

    fn global_token(&mut self, i: usize, kind: Tok, indent: usize) -> Option<TokenLayout> {
        if kind == Tok::KwGlobal && self.previous(i) == Tok::KwPrivate {
            return Some(self.decision(TokenClass::Word, indent));
        }
        let class = match kind {
            Tok::Semi => {
                self.pos = StmtPosition::Done;
                TokenClass::Suffix
            }
            Tok::Percent => TokenClass::Suffix,
            Tok::Comma => {
                self.pos = StmtPosition::Operand;
                TokenClass::Suffix
            }
            Tok::LBracket => {
                self.open_group(OpenBrackets::default());
                TokenClass::OpenTight
            }
            Tok::Assign => {
                self.pos = StmtPosition::Operand;
                TokenClass::Binary
            }
            Tok::Minus | Tok::Plus => TokenClass::Prefix,
            _ if self.pos == StmtPosition::Operand
                && !begins_statement(kind)
                && kind != Tok::Eof =>
            {
                self.pos = StmtPosition::After;
                TokenClass::Word
            }
            _ => return None,
        };
        Some(self.decision(class, indent))
    }

    fn probe_token(&mut self, i: usize, kind: Tok, indent: usize, item: usize) -> TokenLayout {
        let before = self.previous(i);
        let second = self.pos == StmtPosition::Operand;
        self.pos = StmtPosition::After;
        let class = match kind {
            Tok::LBrace => {
                let starts = matches!(
                    before,
                    Tok::Dot | Tok::KwProbe | Tok::Assign | Tok::AddAssign
                ) || before == Tok::Comma && !second;
                if !starts {
                    return self.open_block(i, item, LineBreak::Never);
                }
                self.open_group(OpenBrackets::braces());
                match before {
                    Tok::Dot => TokenClass::OpenTight,
                    _ => TokenClass::Open,
                }
            }
            Tok::LParen if before == Tok::KwIf => {
                self.open_group(OpenBrackets::default());
                TokenClass::Open
            }
            Tok::LParen => {
                self.open_group(OpenBrackets::default());
                TokenClass::OpenTight
            }
            Tok::Comma | Tok::Question | Tok::Bang => TokenClass::Suffix,
            Tok::Assign | Tok::AddAssign => TokenClass::Binary,
            Tok::Dot => TokenClass::Tight,
            Tok::KwIf if self.kind(i + 1) == Tok::LParen && before != Tok::Dot => TokenClass::Word,
            _ => TokenClass::AsIs,
        };
        self.decision(class, indent)
    }
}
