//! The states of the formatter's machine: what is open around a token.

/// Something that is open. Columns leave out what conditionals add.
#[derive(Debug, Clone, Copy)]
pub(super) enum Frame {
    /// `{`
    Block {
        /// Columns of the line with the head.
        indent: usize,
        /// Its `}` stands on the same line.
        flat: bool,
    },
    /// The body of a `@define`.
    Define {
        /// Columns of the `@define`.
        indent: usize,
    },
    /// Brackets.
    Group(Group),
    /// A statement.
    Stmt {
        /// Which.
        kind: St,
        /// Its columns.
        indent: usize,
    },
    /// The head of an item.
    Item {
        /// Which.
        head: Head,
        /// Its columns.
        indent: usize,
        /// Columns more of its further lines.
        cont: usize,
    },
}

/// Brackets of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Was opened by the token that is being written.
    pub fresh: bool,
    /// Column behind the bracket, where something follows it on its line.
    pub align: Option<usize>,
    /// Columns of the line with the bracket.
    pub base: usize,
    /// The head of an `if` or a loop: a statement follows.
    pub head: bool,
    /// Parameters, with types after a colon.
    pub params: bool,
    /// `{a, b}` in a probe point.
    pub brace: bool,
    /// The position before it.
    pub before: Pos,
}

impl Default for Group {
    fn default() -> Self {
        Group {
            fresh: true,
            align: None,
            base: 0,
            head: false,
            params: false,
            brace: false,
            before: Pos::Start,
        }
    }
}

impl Group {
    pub fn head() -> Group {
        Group {
            head: true,
            ..Group::default()
        }
    }

    pub fn params() -> Group {
        Group {
            params: true,
            ..Group::default()
        }
    }

    pub fn braces() -> Group {
        Group {
            brace: true,
            ..Group::default()
        }
    }

    /// Columns more of its lines where nothing follows the bracket on its own.
    pub fn hang(&self) -> usize {
        if self.head || self.params { 4 } else { 2 }
    }
}

/// Kinds of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum St {
    Simple,
    If,
    Else,
    Loop,
    Try,
    Catch,
}

/// Kinds of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Probe,
    Global,
    Function,
    Macro,
}

impl Head {
    /// Columns more of its further lines: behind the keyword.
    pub fn hang(self) -> usize {
        match self {
            Head::Probe => "probe ".len(),
            Head::Global => "global ".len(),
            Head::Function | Head::Macro => 4,
        }
    }

    /// The position after its keyword.
    pub fn pos(self) -> Pos {
        match self {
            Head::Global => Pos::Operand,
            _ => Pos::After,
        }
    }
}

/// Where in a statement the next token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pos {
    /// A statement begins.
    Start,
    /// A value is wanted. (In the head of a probe: a second body is.)
    Operand,
    /// A value is complete.
    After,
    /// After `->`.
    Member,
    /// A statement that takes nothing more, such as `next`.
    End,
    /// The parenthesis of a head is wanted.
    HeadParen,
    /// What a head governs is wanted.
    Body,
    /// A statement is complete.
    Done,
}

/// Where in a conditional the next token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Test,
    Then,
    Else,
    /// No conditional but the body of a macro.
    Define,
}

/// `%( ...`
#[derive(Debug, Clone)]
pub(super) struct Cond {
    pub phase: Phase,
    /// The state before it.
    pub saved: (Vec<Frame>, Pos),
    /// The state after its first branch.
    pub then: Option<(Vec<Frame>, Pos)>,
    /// Columns of the line with the `%(`, without `outer`.
    pub line: usize,
    /// Columns that the conditionals around it add.
    pub outer: usize,
    /// Columns that it adds.
    pub adds: usize,
}
