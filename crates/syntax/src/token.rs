//! Tokens, the output of the lexer and the input of the parser.

use crate::ast::Span;

/// Makes the enum, the texts of the fixed tokens and the keyword look-up from one table.
macro_rules! tokens {
    (
        plain { $($plain:ident $pdoc:literal,)* }
        keywords { $($kw:ident $ktext:literal,)* }
        operators { $($op:ident $otext:literal,)* }
    ) => {
        /// The kind of a token.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Tok {
            $(#[doc = $pdoc] $plain,)*
            $(#[doc = $ktext] $kw,)*
            $(#[doc = $otext] $op,)*
        }

        impl Tok {
            /// The description of the token in messages.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Tok::$plain => $pdoc,)*
                    $(Tok::$kw => concat!("`", $ktext, "`"),)*
                    $(Tok::$op => concat!("`", $otext, "`"),)*
                }
            }

            /// The keyword with this spelling.
            pub fn keyword(text: &str) -> Option<Tok> {
                match text {
                    $($ktext => Some(Tok::$kw),)*
                    _ => None,
                }
            }

            /// Whether it is a keyword.
            pub fn is_keyword(self) -> bool {
                matches!(self, $(Tok::$kw)|*)
            }

            /// Every token of fixed spelling that is not a keyword.
            pub const OPERATORS: &[(Tok, &str)] = &[$((Tok::$op, $otext),)*];
        }
    };
}

tokens! {
    plain {
        Eof "end of file",
        Ident "a name",
        AtIdent "an `@` operator",
        Num "a number",
        Str "a string",
        ArgStr "a string",
        Arg "a command line argument",
        ArgQuoted "a quoted command line argument",
        ArgCount "`$#`",
        ArgCountQuoted "`@#`",
        Embedded "embedded C code",
    }
    keywords {
        KwProbe "probe", KwGlobal "global", KwPrivate "private", KwFunction "function",
        KwIf "if", KwElse "else", KwFor "for", KwForeach "foreach", KwIn "in",
        KwLimit "limit", KwReturn "return", KwDelete "delete", KwWhile "while",
        KwBreak "break", KwContinue "continue", KwNext "next", KwString "string",
        KwLong "long", KwTry "try", KwCatch "catch",
    }
    // Longer spellings stand before their prefixes.
    operators {
        StatAdd "<<<", ShlAssign "<<=", UShr ">>>", ShrAssign ">>=",
        PpOpen "%(", PpClose "%)", PpThen "%?", PpElse "%:",
        Shl "<<", Shr ">>", Le "<=", Ge ">=", EqEq "==", Ne "!=", Match "=~", NoMatch "!~",
        AndAnd "&&", OrOr "||", AddAssign "+=", SubAssign "-=", MulAssign "*=",
        DivAssign "/=", ModAssign "%=", AndAssign "&=", OrAssign "|=", XorAssign "^=",
        ConcatAssign ".=", Inc "++", Dec "--", Arrow "->",
        LParen "(", RParen ")", LBracket "[", RBracket "]", LBrace "{", RBrace "}",
        Comma ",", Semi ";", Colon ":", Question "?", Bang "!", Tilde "~", Plus "+",
        Minus "-", Star "*", Slash "/", Percent "%", Amp "&", Pipe "|", Caret "^",
        Lt "<", Gt ">", Assign "=", Dot ".",
    }
}

/// A token. Its text is that of its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its kind.
    pub kind: Tok,
    /// The location of its text.
    pub span: Span,
    /// The macro or argument that it came from: 0 for none, otherwise an index (from 1) into
    /// [`crate::preproc::PreprocOutput::expansions`].
    pub expansion: u32,
}
