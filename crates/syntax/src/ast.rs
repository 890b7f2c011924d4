//! The syntax tree of a script, as the parser builds it and the pretty-printer writes it.
//!
//! Nothing here is resolved: names are text, types are what the author wrote, macros and
//! preprocessor conditions are already expanded. Every node carries its [`Span`].

use std::sync::Arc;

use spile_cast::Cast;

/// A name as written; cheap to clone.
pub type Name = Arc<str>;
/// The bytes of a string literal after its escapes are resolved (not always UTF-8).
pub type LiteralBytes = Arc<[u8]>;

/// Which source file a span lies in: an index into [`crate::source::Sources`], and whether the file
/// belongs to the built-in library. A token keeps the file that it was written in wherever macros,
/// arguments and aliases take it, so this is what grants privileges: text of the built-in library may
/// use internal operations, and all other text needs `-g` for what changes a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId(u32);

impl FileId {
    /// The bit of files of the built-in library.
    const BUILT_IN: u32 = 1 << 31;
    /// The origin of what the compiler itself adds to a script, as if it were built-in text.
    pub const COMPILER: FileId = FileId(u32::MAX);
    /// No file: the origin of a look-up in the name of any script.
    pub const ANYONE: FileId = FileId(u32::MAX >> 1);

    /// The file at a location in [`crate::source::Sources`].
    pub(crate) fn new(index: usize, built_in: bool) -> FileId {
        let origin = if built_in { Self::BUILT_IN } else { 0 };
        FileId(index.fit::<u32>() & !Self::BUILT_IN | origin)
    }

    /// Its location in [`crate::source::Sources`].
    pub(crate) fn index(self) -> usize {
        (self.0 & !Self::BUILT_IN) as usize
    }

    /// A number that no other file of the run has.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Whether the text of the file is part of the program.
    pub fn is_built_in(self) -> bool {
        self.0 & Self::BUILT_IN != 0
    }
}

/// A half-open range of byte offsets in one file. Tokens that a macro produced carry the span
/// of the token in the macro's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A name and its location.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ident {
    /// The text.
    pub name: Name,
    /// The location of the name.
    pub span: Span,
}

/// One parsed file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct File {
    /// Its top-level items in source order.
    pub items: Vec<Item>,
}

/// A top-level item.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// `probe POINTS { ... }`
    Probe(Probe),
    /// `probe a = b = POINTS { ... }` and its `+=` form.
    Alias(Alias),
    /// `global a, b[10] = ...`
    Global(GlobalDecl),
    /// `function f:string(a:long) { ... }`
    Function(Function),
    /// `%{ ... %}` at top level.
    Embedded(Embedded),
}

/// `probe POINTS BODY`
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The probe points, braces already expanded, in source order.
    pub points: Vec<ProbePoint>,
    /// The handler.
    pub body: StmtBlock,
    /// From `probe` to the closing brace.
    pub span: Span,
}

/// The order of an alias body and the handler of a probe that uses the alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasKind {
    /// `=`: the body runs before the user's handler.
    Prologue,
    /// `+=`: the body runs after it.
    Epilogue,
}

/// `probe NAME = POINTS BODY`
#[derive(Debug, Clone, PartialEq)]
pub struct Alias {
    /// The alias names (`a = b = points` gives two); no arguments or suffixes.
    pub names: Vec<ProbePoint>,
    /// `=` or `+=`.
    pub kind: AliasKind,
    /// The points that the names stand for.
    pub points: Vec<ProbePoint>,
    /// The first body (prologue for `=`, epilogue for `+=`).
    pub body: StmtBlock,
    /// The second body of `= POINTS {prologue}, {epilogue}`.
    pub second: Option<StmtBlock>,
    /// The comment block right above, if any (documentation of tapset aliases).
    pub doc: Option<String>,
    /// The whole item.
    pub span: Span,
}

/// One probe point: `kernel.trace("x").return ? if (c)`
#[derive(Debug, Clone, PartialEq)]
pub struct ProbePoint {
    /// Dotted components.
    pub components: Vec<Component>,
    /// `?`
    pub optional: bool,
    /// `!`
    pub sufficient: bool,
    /// `if (EXPR)`
    pub condition: Option<Box<Expr>>,
    /// The point without the condition.
    pub span: Span,
}

/// One component of a probe point. `name` can contain `*` and `**`.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Text before the parenthesis.
    pub name: Name,
    /// The literal argument.
    pub arg: Option<Literal>,
    /// The location of the component.
    pub span: Span,
}

/// A literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A number (64-bit, wrapped).
    Num(i64),
    /// A string.
    Str(LiteralBytes),
}

/// `global a, b = 3, c%[100]`
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalDecl {
    /// `private global`
    pub private: bool,
    /// The variables.
    pub vars: Vec<GlobalVar>,
    /// The whole item.
    pub span: Span,
}

/// One global variable.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalVar {
    /// Its name.
    pub name: Ident,
    /// `%`: the oldest element makes space for a new one.
    pub wrap: bool,
    /// `[N]`
    pub max: Option<i64>,
    /// `= LITERAL`
    pub init: Option<Literal>,
}

/// A written type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TypeName {
    /// `long`
    Long,
    /// `string`
    String,
}

/// `function f:string(a:long, b) : PRIORITY { ... }`
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// `private function`
    pub private: bool,
    /// Name.
    pub name: Ident,
    /// Written return type.
    pub ret: Option<TypeName>,
    /// Parameters.
    pub params: Vec<(Ident, Option<TypeName>)>,
    /// `:N` after the parameter list.
    pub priority: Option<i64>,
    /// The body.
    pub body: FnBody,
    /// The comment block right above (documentation of tapset functions).
    pub doc: Option<String>,
    /// The whole item.
    pub span: Span,
}

/// The body of a function.
#[derive(Debug, Clone, PartialEq)]
pub enum FnBody {
    /// Statements.
    Block(StmtBlock),
    /// `%{ C %}`: parsed and refused by analysis.
    Embedded(Embedded),
}

/// `%{ ... %}`: the text between, untouched.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// The text.
    pub text: Name,
    /// Its location, including the marks.
    pub span: Span,
}

/// `{ ... }`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StmtBlock {
    /// The statements.
    pub stmts: Vec<Stmt>,
    /// Its location, including the braces.
    pub span: Span,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// The statement itself.
    pub kind: StmtKind,
    /// Its location.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named in the syntax above them")]
pub enum StmtKind {
    /// `;`
    Empty,
    /// An expression, evaluated for its effect.
    Expr(Expr),
    /// `{ ... }`
    Block(StmtBlock),
    /// `if (c) a else b`
    If {
        cond: Expr,
        then: Box<Stmt>,
        els: Option<Box<Stmt>>,
    },
    /// `while (c) s`
    While { cond: Expr, body: Box<Stmt> },
    /// `for (init; cond; step) s`
    For {
        init: Option<Expr>,
        cond: Option<Expr>,
        step: Option<Expr>,
        body: Box<Stmt>,
    },
    /// `foreach`
    Foreach(Box<Foreach>),
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return e`
    Return(Option<Expr>),
    /// `next`
    Next,
    /// `try { } catch (v) { }`
    Try {
        body: StmtBlock,
        var: Option<Ident>,
        handler: StmtBlock,
    },
    /// `delete e`: a scalar, an array, an element or a slice.
    Delete(Expr),
    /// `%{ %}` as a statement.
    Embedded(Embedded),
}

/// `foreach (v = [a, b-] in arr[x, *] @count- limit e) s`
#[derive(Debug, Clone, PartialEq)]
pub struct Foreach {
    /// `v =`
    pub value: Option<Ident>,
    /// The key variables.
    pub keys: Vec<Ident>,
    /// The array or histogram.
    pub over: ForeachOver,
    /// Slice of the array: one entry for each key, if written.
    pub slice: Option<Vec<Key>>,
    /// The sort order.
    pub sort: Option<Sort>,
    /// `limit e`
    pub limit: Option<Expr>,
    /// The body.
    pub body: Stmt,
}

/// The array or histogram of a `foreach`.
#[derive(Debug, Clone, PartialEq)]
pub enum ForeachOver {
    /// An array.
    Array(Ident),
    /// `@hist_log(x)` buckets.
    Hist(Expr),
}

/// How a `foreach` is sorted.
#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    /// The column to sort by.
    pub by: SortBy,
    /// `-`
    pub descending: bool,
    /// The location of the mark.
    pub span: Span,
}

/// The column that a `foreach` is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SortBy {
    /// Key column, from 0.
    Key(u32),
    /// The value (for statistics: `@count`).
    Value,
    /// A named extractor: `in a @sum-`.
    Stat(StatOp),
}

/// An index of an array access: an expression or `*`.
#[derive(Debug, Clone, PartialEq)]
pub enum Key {
    /// A value.
    Expr(Expr),
    /// `*`: any value.
    Any(Span),
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// The expression itself.
    pub kind: ExprKind,
    /// Its location.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named in the syntax above them")]
pub enum ExprKind {
    /// A number.
    Num(i64),
    /// A string literal (adjacent ones are joined).
    Str(LiteralBytes),
    /// A variable.
    Var(Name),
    /// `a[k, *]`, `@hist_log(x)[i]`; the base is `Var` or `Hist`.
    Index { base: Box<Expr>, keys: Vec<Key> },
    /// `f(a, b)`
    Call { name: Ident, args: Vec<Expr> },
    /// `- ! ~ +`
    Unary(UnOp, Box<Expr>),
    /// Binary operators except assignments, including `&&` and `||`.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `c ? a : b`
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `l OP= r`; `op` is `None` for plain `=`.
    Assign {
        op: Option<BinOp>,
        lhs: Box<Expr>,
        rhs: Box<Expr>,
    },
    /// `l <<< r`
    StatAdd { lhs: Box<Expr>, rhs: Box<Expr> },
    /// `++x`, `x--` ...
    IncDec {
        prefix: bool,
        inc: bool,
        target: Box<Expr>,
    },
    /// `[k, *] in a`
    In { keys: Vec<Key>, array: Ident },
    /// `e =~ "re"`, `e !~ "re"`
    Match {
        negated: bool,
        subject: Box<Expr>,
        pattern: LiteralBytes,
        pattern_span: Span,
    },
    /// `@count(e)`, `@variance(e, 3)`
    Stat {
        op: StatOp,
        arg: Box<Expr>,
        params: Vec<i64>,
    },
    /// `@hist_log(e)`, `@hist_linear(e, lo, hi, step)`
    Hist { kind: HistKind, arg: Box<Expr> },
    /// `print` and its family.
    Print { op: PrintOp, args: Vec<Expr> },
    /// `$name->a[1]`, `&$name`, `$name$$`. The name keeps its leading `$` (`$fd`, `$$vars`);
    /// a trailing `$` or `$$` is in `pretty` and not in the name.
    Target {
        name: Name,
        addr_of: bool,
        access: Vec<Access>,
        pretty: Pretty,
    },
    /// An operator that starts with `@` and is none of the above. Only `Var` and `Cast` have
    /// `addr_of`, `access` and `pretty`; the others are wrapped in [`ExprKind::Arrow`] for these.
    At {
        op: AtOp,
        args: Vec<Expr>,
        addr_of: bool,
        access: Vec<Access>,
        pretty: Pretty,
    },
    /// `e->f`, `&e->f` on any other expression: automatic cast.
    Arrow {
        base: Box<Expr>,
        addr_of: bool,
        access: Vec<Access>,
        pretty: Pretty,
    },
    /// `%{ expression %}`
    Embedded(Embedded),
}

/// `$x$` shows one level of a structure, `$x$$` all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pretty {
    /// The value itself.
    #[default]
    None,
    /// `$`
    Shallow,
    /// `$$`
    Deep,
}

/// One step of a structure walk.
#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    /// `->name`
    Member(Ident),
    /// `[expr]`
    Index(Expr),
}

/// Unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// `-`
    Neg,
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `+`
    Plus,
}

/// Binary operators, including those of compound assignments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Shl,
    Shr,
    /// `>>>`
    UShr,
    And,
    Or,
    Xor,
    LogAnd,
    LogOr,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    /// `.`
    Concat,
}

/// Statistics extractors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum StatOp {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    Variance,
}

/// Histograms with their parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum HistKind {
    Log,
    Linear { low: i64, high: i64, step: i64 },
}

/// `print`, `println`, ...; the `s` forms return the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrintOp {
    /// `sprint*`: returns a string instead of printing.
    pub to_string: bool,
    /// `printf`/`sprintf`: the first argument is the format.
    pub format: bool,
    /// `printd`, `printdln`: the first argument is the delimiter.
    pub delim: bool,
    /// `println`, `printdln`, ...: a newline at the end.
    pub newline: bool,
    /// `print_char(c)`: the argument is a byte.
    pub char: bool,
}

/// `@`-operators with expressions as operands (literals where the language requires literals).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AtOp {
    Var,
    Cast,
    Defined,
    ProbeWrite,
    Entry,
    Perf,
    Enum,
    EnumName,
    Const,
    KRegister,
    KDeref,
    URegister,
    UDeref,
}
