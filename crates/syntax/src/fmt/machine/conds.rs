//! Conditionals of the preprocessor, and the bodies of macros.

use super::super::frames::{CondPhase, ItemFrame, OpenConditional, OpenFrame, StmtPosition};
use super::{FormatMachine, LEVEL, LineBreak, MAX_FRAMES, TokenClass, TokenLayout};
use crate::token::Tok;

/// The class of a mark: within probe points as the author wrote it.
fn mark_class(as_is: bool) -> TokenClass {
    match as_is {
        true => TokenClass::AsIs,
        false => TokenClass::Binary,
    }
}

impl FormatMachine<'_> {
    /// `%(`: a conditional, or the body of a macro.
    pub(super) fn pp_open(&mut self, i: usize) -> TokenLayout {
        let define = self.in_head() == Some(ItemFrame::Macro) && self.pos != StmtPosition::Done;
        let simple = self.in_simple() || self.in_head() == Some(ItemFrame::Global);
        if !define
            && simple
            && self.tokens[i].is_first_on_line()
            && matches!(self.pos, StmtPosition::After | StmtPosition::End)
        {
            self.stack.pop();
            self.pos = StmtPosition::Done;
        }
        if self.pos == StmtPosition::Done && self.end_statements(i, Tok::PpOpen).is_none() {
            self.pos = StmtPosition::Start;
        }
        let indent = match self.pos {
            StmtPosition::Start | StmtPosition::Body => self.stmt_indent(),
            _ => self.cont_indent(),
        };
        let nested = self
            .stack
            .iter()
            .any(|f| matches!(f, OpenFrame::Block { .. } | OpenFrame::Group(_)));
        let as_is = self.in_head() == Some(ItemFrame::Probe);
        if self.conds.len() + self.stack.len() >= MAX_FRAMES {
            self.overflow = true;
            return self.decision(TokenClass::Binary, indent);
        }
        self.conds.push(OpenConditional {
            phase: match define {
                true => CondPhase::Define,
                false => CondPhase::Test,
            },
            saved: (self.stack.clone(), self.pos),
            then: None,
            line: indent,
            outer: self.extra,
            adds: if nested && !define { LEVEL } else { 0 },
        });
        let mut d = self.decision(mark_class(as_is), indent);
        if define {
            d.line = LineBreak::Never;
            let indent = match self.stack.pop() {
                Some(OpenFrame::Item { indent, .. }) => indent,
                _ => 0,
            };
            self.push(OpenFrame::Define { indent });
            self.pos = StmtPosition::Start;
        } else {
            self.pos = StmtPosition::Operand;
        }
        d
    }

    /// `%?`, `%:`, `%)`
    pub(super) fn pp_mark(&mut self, kind: Tok) -> TokenLayout {
        let comments = self.stmt_indent();
        let Some(mut c) = self.conds.pop() else {
            return self.decision(TokenClass::Binary, comments);
        };
        let as_is = matches!(
            c.saved.0.last(),
            Some(OpenFrame::Item {
                head: ItemFrame::Probe,
                ..
            })
        );
        // Comments above the mark belong to the branch that ends; the columns are relative to
        // what `decide` adds afterwards.
        let (line, branch) = (c.line, self.extra);
        match kind {
            Tok::PpThen if c.phase == CondPhase::Test => {
                (self.stack, self.pos) = c.saved.clone();
                c.phase = CondPhase::Then;
                self.extra = c.outer + c.adds;
                self.conds.push(c);
            }
            Tok::PpElse if c.phase == CondPhase::Then => {
                let saved = c.saved.clone();
                c.then = Some((std::mem::replace(&mut self.stack, saved.0), self.pos));
                self.pos = saved.1;
                c.phase = CondPhase::Else;
                self.conds.push(c);
            }
            Tok::PpClose => {
                self.extra = c.outer;
                if c.phase == CondPhase::Define {
                    self.stack = c.saved.0;
                    self.pos = StmtPosition::Done;
                } else if let Some(then) = c.then {
                    (self.stack, self.pos) = then;
                }
            }
            _ => self.conds.push(c),
        }
        let outer = match kind {
            Tok::PpClose => self.extra,
            _ => self.conds.last().map_or(0, |c| c.outer),
        };
        // `decide` adds `self.extra` to both.
        let mut d = self.decision(mark_class(as_is), (line + outer).saturating_sub(self.extra));
        d.comments = (comments + branch).saturating_sub(self.extra);
        d.tight = false;
        d
    }
}
