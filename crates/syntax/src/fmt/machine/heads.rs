//! The heads of items: probe points, parameters, names of globals and macros.

use super::super::frames::{Group, Head, OpenFrame, Pos};
use super::{Break, Class, Decision, Machine, begins_statement};
use crate::token::Tok;

impl Machine<'_> {
    /// A token of the head of an item. `None`: the item ended before it.
    pub(super) fn head_token(&mut self, i: usize, kind: Tok, head: Head) -> Option<Decision> {
        let indent = self.cont_indent();
        let item = match self.stack.last() {
            Some(OpenFrame::Item { indent, .. }) => *indent,
            _ => 0,
        };
        match head {
            Head::Probe => Some(self.probe_token(i, kind, indent, item)),
            Head::Function => match kind {
                Tok::LBrace => Some(self.open_block(i, item, Break::Never)),
                Tok::Embedded => {
                    self.pos = Pos::Done;
                    Some(Decision {
                        line: Break::Never,
                        ..self.decision(Class::Word, item)
                    })
                }
                Tok::LParen => {
                    self.open_group(Group::params());
                    Some(self.decision(Class::OpenTight, indent))
                }
                Tok::Colon if self.previous(i) == Tok::RParen => {
                    Some(self.decision(Class::Binary, indent))
                }
                Tok::Colon => Some(self.decision(Class::Tight, indent)),
                Tok::KwGlobal | Tok::KwProbe | Tok::Eof => None,
                _ => Some(self.decision(Class::Word, indent)),
            },
            Head::Macro => match kind {
                Tok::LParen => {
                    self.open_group(Group::params());
                    Some(self.decision(Class::OpenTight, indent))
                }
                Tok::Ident => Some(self.decision(Class::Word, indent)),
                _ if kind.is_keyword() => Some(self.decision(Class::Word, indent)),
                _ => None,
            },
            Head::Global => self.global_token(i, kind, indent),
        }
    }

    fn global_token(&mut self, i: usize, kind: Tok, indent: usize) -> Option<Decision> {
        if kind == Tok::KwGlobal && self.previous(i) == Tok::KwPrivate {
            return Some(self.decision(Class::Word, indent));
        }
        let class = match kind {
            Tok::Semi => {
                self.pos = Pos::Done;
                Class::Suffix
            }
            Tok::Percent => Class::Suffix,
            Tok::Comma => {
                self.pos = Pos::Operand;
                Class::Suffix
            }
            Tok::LBracket => {
                self.open_group(Group::default());
                Class::OpenTight
            }
            Tok::Assign => {
                self.pos = Pos::Operand;
                Class::Binary
            }
            Tok::Minus | Tok::Plus => Class::Prefix,
            _ if self.pos == Pos::Operand && !begins_statement(kind) && kind != Tok::Eof => {
                self.pos = Pos::After;
                Class::Word
            }
            _ => return None,
        };
        Some(self.decision(class, indent))
    }

    fn probe_token(&mut self, i: usize, kind: Tok, indent: usize, item: usize) -> Decision {
        let before = self.previous(i);
        let second = self.pos == Pos::Operand;
        self.pos = Pos::After;
        let class = match kind {
            Tok::LBrace => {
                let starts = matches!(
                    before,
                    Tok::Dot | Tok::KwProbe | Tok::Assign | Tok::AddAssign
                ) || before == Tok::Comma && !second;
                if !starts {
                    return self.open_block(i, item, Break::Never);
                }
                self.open_group(Group::braces());
                if before == Tok::Dot {
                    Class::OpenTight
                } else {
                    Class::Open
                }
            }
            Tok::LParen if before == Tok::KwIf => {
                self.open_group(Group::default());
                Class::Open
            }
            Tok::LParen => {
                self.open_group(Group::default());
                Class::OpenTight
            }
            Tok::Comma | Tok::Question | Tok::Bang => Class::Suffix,
            Tok::Assign | Tok::AddAssign => Class::Binary,
            Tok::Dot => Class::Tight,
            Tok::KwIf if self.kind(i + 1) == Tok::LParen && before != Tok::Dot => Class::Word,
            _ => Class::AsIs,
        };
        self.decision(class, indent)
    }
}
