//! The states of the formatter's machine: the open constructs around a token.

/// An open construct. Columns do not include those that conditionals add.
#[derive(Debug, Clone, Copy)]
pub(super) enum OpenFrame {
    /// `{`
    Block {
        /// Indentation of the line with the head.
        indent: usize,
        /// Its `}` is on the same line.
        flat: bool,
    },
    /// The body of a `@define`.
    Define {
        /// Indentation of the `@define`.
        indent: usize,
    },
    /// Brackets.
    Group(OpenBrackets),
    /// A statement.
    Stmt {
        /// Its kind.
        kind: StmtFrame,
        /// Its indentation.
        indent: usize,
    },
    /// The head of an item.
    Item {
        /// Its kind.
        head: ItemFrame,
        /// Its indentation.
        indent: usize,
        /// Additional indentation of its further lines.
        cont: usize,
    },
}

/// Brackets of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenBrackets {
    /// Whether it was opened by the token that is being written.
    pub fresh: bool,
    /// Column after the bracket, if another token follows it on its line.
    pub align: Option<usize>,
    /// Indentation of the line with the bracket.
    pub base: usize,
    /// The head of an `if` or a loop: a statement follows.
    pub head: bool,
    /// Parameters, with types after a colon.
    pub params: bool,
    /// `{a, b}` in a probe point.
    pub brace: bool,
    /// The position before it.
    pub before: StmtPosition,
}

impl Default for OpenBrackets {
    fn default() -> Self {
        OpenBrackets {
            fresh: true,
            align: None,
            base: 0,
            head: false,
            params: false,
            brace: false,
            before: StmtPosition::Start,
        }
    }
}

impl OpenBrackets {
    pub(super) fn head() -> OpenBrackets {
        OpenBrackets {
            head: true,
            ..OpenBrackets::default()
        }
    }

    pub(super) fn params() -> OpenBrackets {
        OpenBrackets {
            params: true,
            ..OpenBrackets::default()
        }
    }

    pub(super) fn braces() -> OpenBrackets {
        OpenBrackets {
            brace: true,
            ..OpenBrackets::default()
        }
    }

    /// Additional indentation of its lines, if nothing follows the bracket on its own line.
    pub(super) fn hanging_indent(&self) -> usize {
        if self.head || self.params { 4 } else { 2 }
    }
}

/// Kinds of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StmtFrame {
    Simple,
    If,
    Else,
    Loop,
    Try,
    Catch,
}

/// Kinds of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemFrame {
    Probe,
    Global,
    Function,
    Macro,
}

impl ItemFrame {
    /// Additional indentation of its further lines: after the keyword.
    pub(super) fn hanging_indent(self) -> usize {
        match self {
            ItemFrame::Probe => "probe ".len(),
            ItemFrame::Global => "global ".len(),
            ItemFrame::Function | ItemFrame::Macro => 4,
        }
    }

    /// The position after its keyword.
    pub(super) fn pos(self) -> StmtPosition {
        match self {
            ItemFrame::Global => StmtPosition::Operand,
            _ => StmtPosition::After,
        }
    }
}

/// The position of the next token in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StmtPosition {
    /// A statement begins.
    Start,
    /// A value is expected. (In the head of a probe: a second body.)
    Operand,
    /// A value is complete.
    After,
    /// After `->`.
    Member,
    /// A complete statement without operands, such as `next`.
    End,
    /// The parenthesis of a head is expected.
    HeadParen,
    /// The body of a head is expected.
    Body,
    /// A statement is complete.
    Done,
}

/// The position of the next token in a conditional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CondPhase {
    Test,
    Then,
    Else,
    /// Not a conditional, but the body of a macro.
    Define,
}

/// `%( ...`
#[derive(Debug, Clone)]
pub(super) struct OpenConditional {
    pub phase: CondPhase,
    /// The state before it.
    pub saved: (Vec<OpenFrame>, StmtPosition),
    /// The state after its first branch.
    pub then: Option<(Vec<OpenFrame>, StmtPosition)>,
    /// Indentation of the line with the `%(`, without `outer`.
    pub line: usize,
    /// Indentation that the conditionals around it add.
    pub outer: usize,
    /// Indentation that it adds.
    pub adds: usize,
}
