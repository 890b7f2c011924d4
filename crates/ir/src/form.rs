//! Text forms that print and read from one description, which [`form!`] makes of the fields of a type in their order.
//!
//! A form is a sequence of words, numbers, strings and punctuation. Printed, spaces are between them, except around
//! `(` and before `,` and `)`.

use std::fmt::{Display, Formatter, Result, Write};
use std::sync::Arc;

use crate::program::types::Bytes;
use crate::token::{Reader, Res, Token};

/// Bytes in quotes.
pub(crate) struct Quoted<'a>(pub &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_char('"')?;
        for b in self.0 {
            match b {
                b'"' => f.write_str("\\\"")?,
                b'\\' => f.write_str("\\\\")?,
                b'\n' => f.write_str("\\n")?,
                b'\t' => f.write_str("\\t")?,
                b' '..=b'~' => f.write_char(char::from(*b))?,
                _ => write!(f, "\\x{b:02x}")?,
            }
        }
        f.write_char('"')
    }
}

/// Prints a form.
pub(crate) struct Printer<'a, 'f> {
    f: &'a mut Formatter<'f>,
    /// No space comes next.
    glued: bool,
}

impl<'a, 'f> Printer<'a, 'f> {
    pub(crate) fn new(f: &'a mut Formatter<'f>) -> Printer<'a, 'f> {
        Printer { f, glued: true }
    }

    /// Prints a word or punctuation; nothing for "".
    pub(crate) fn word(&mut self, word: &str) -> Result {
        if word.is_empty() {
            return Ok(());
        }
        self.glued |= ["(", ")", "[", "]", ","].contains(&word);
        let word = word.trim_start();
        self.item(word)?;
        self.glued = ["(", "["].contains(&word);
        Ok(())
    }

    pub(crate) fn item(&mut self, item: impl Display) -> Result {
        if !std::mem::take(&mut self.glued) {
            self.f.write_char(' ')?;
        }
        item.fmt(self.f)
    }
}

/// A type with a text form. Its form as a field depends on the field's words:
///
/// | type | no words | a word | two words |
/// |---|---|---|---|
/// | `bool` | | the word if true | the first if false, the second if true |
/// | integer | itself | the word and itself, if it is not 0 | |
/// | `Option` | the value, or [`Form::ABSENT`] | the word and the value, if there is one | |
/// | `Vec` | the elements with commas, up to `)` | the word before each element | the elements with commas, between the words |
/// | enum | the word of the variant and its fields | | the fields between the words |
///
/// The word "" is no text. A space at the start of a word separates a bracket from what is in front of it.
///
/// A type implements `opt` and `expected` if something else can be in its location, otherwise `read`.
pub(crate) trait Form: Sized {
    /// The form of an absent value that no word precedes.
    const ABSENT: &str = "";

    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result;

    /// Reads it if it comes next.
    fn opt(words: &[&str], r: &mut Reader) -> Res<Option<Self>> {
        Self::read(words, r).map(Some)
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Self> {
        match Self::opt(words, r)? {
            Some(value) => Ok(value),
            None => r.error(&Self::expected(words)),
        }
    }

    /// What the reader expects, for errors.
    fn expected(_: &[&str]) -> String {
        String::new()
    }
}

/// Reads a value after a word, if the word comes next; after "", if the value itself does.
fn opt_after<T: Form>(word: &str, r: &mut Reader) -> Res<Option<T>> {
    match word {
        "" => T::opt(&[], r),
        word => r.opt(word).then(|| T::read(&[], r)).transpose(),
    }
}

impl Form for bool {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        match words {
            [yes] if *self => p.word(yes),
            [no, yes] => p.word(if *self { yes } else { no }),
            _ => Ok(()),
        }
    }

    fn opt(words: &[&str], r: &mut Reader) -> Res<Option<bool>> {
        let yes = words.last().is_some_and(|yes| r.opt(yes));
        Ok(match words {
            [no, _] if !yes => r.opt(no).then_some(false),
            _ => Some(yes),
        })
    }

    fn expected(words: &[&str]) -> String {
        format!("`{}`", words.join("` or `"))
    }
}

macro_rules! integers {
    ($($ty:ty)*) => { $(impl Form for $ty {
        fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
            match words {
                [_] if *self == 0 => Ok(()),
                words => {
                    words.iter().try_for_each(|w| p.word(w))?;
                    p.item(self)
                }
            }
        }

        fn read(words: &[&str], r: &mut Reader) -> Res<$ty> {
            match words {
                [word] if !r.opt(word) => Ok(0),
                _ => r.number(),
            }
        }
    })* };
}
integers! { u8 u16 u32 u64 i32 i64 }

impl Form for Arc<str> {
    const ABSENT: &str = r#""""#;

    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        p.item(Quoted(self.as_bytes()))
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Arc<str>> {
        Ok(r.text()?.into())
    }
}

impl Form for Bytes {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        p.item(Quoted(self))
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Bytes>> {
        let next = matches!(r.peek(), Some(Token::Str(_)));
        next.then(|| Ok(r.bytes()?.into())).transpose()
    }

    fn expected(_: &[&str]) -> String {
        "a string".into()
    }
}

impl<T: Form> Form for Arc<T> {
    const ABSENT: &str = T::ABSENT;

    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        (**self).print(words, p)
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Arc<T>> {
        Ok(Arc::new(T::read(words, r)?))
    }
}

impl<T: Form> Form for Option<T> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        match self {
            Some(value) => {
                words.iter().try_for_each(|w| p.word(w))?;
                value.print(&[], p)
            }
            None if words.is_empty() => p.word(T::ABSENT),
            None => Ok(()),
        }
    }

    fn opt(words: &[&str], r: &mut Reader) -> Res<Option<Option<T>>> {
        Ok(match (words, T::ABSENT) {
            ([], "") => Some(T::opt(&[], r)?),
            ([], absent) if r.opt(absent) => Some(None),
            ([], _) => T::opt(&[], r)?.map(Some),
            ([word, ..], _) => Some(opt_after(word, r)?),
        })
    }

    fn expected(words: &[&str]) -> String {
        format!("{} or `{}`", T::expected(words), T::ABSENT)
    }
}

impl<T: Form> Form for Vec<T> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        let (open, each, close) = match words {
            [open, close] => (*open, None, *close),
            words => ("", words.first(), ""),
        };
        p.word(open)?;
        self.iter().enumerate().try_for_each(|(i, item)| {
            p.word(each.unwrap_or(if i == 0 { &"" } else { &"," }))?;
            item.print(&[], p)
        })?;
        p.word(close)
    }

    fn opt(words: &[&str], r: &mut Reader) -> Res<Option<Vec<T>>> {
        let mut items = Vec::new();
        match words {
            [word] => {
                while let Some(item) = opt_after(word, r)? {
                    items.push(item);
                }
            }
            [open, _] if !r.opt(open) => return Ok(None),
            _ => {
                while match words {
                    [_, close] => !r.opt(close),
                    _ => !r.at(')'),
                } {
                    if !items.is_empty() {
                        r.want(",")?;
                    }
                    items.push(T::read(&[], r)?);
                }
            }
        }
        Ok(Some(items))
    }

    fn expected(words: &[&str]) -> String {
        format!("`{}`", words.first().map_or("", |open| open.trim_start()))
    }
}

/// Prints types in their form.
macro_rules! display {
    ($($ty:ty)*) => { $(impl std::fmt::Display for $ty {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            $crate::form::Form::print(self, &[], &mut $crate::form::Printer::new(f))
        }
    })* };
}
pub(crate) use display;

/// Reads the first field of an enum's variant with that word: after "", only if it comes next.
pub(crate) fn first<T: Form>(variant: &str, words: &[&str], r: &mut Reader) -> Res<Option<T>> {
    match variant {
        "" => T::opt(words, r),
        _ => T::read(words, r).map(Some),
    }
}

/// Makes the [`Form`] of structures from their fields, and of enums from a word and the fields of each variant. A
/// field stands with its words, and with the punctuation after it. The word "" is for a variant that none of the
/// words before it names, and whose first field, if it has one, comes next. Errors name the words of an enum, or
/// the text behind its name.
macro_rules! form {
    ($(struct $ty:ident { $($field:ident $([$($word:literal),+])? $($then:literal)?)* })*) => { $(
        impl $crate::form::Form for $ty {
            fn print(&self, _: &[&str], p: &mut $crate::form::Printer<'_, '_>) -> std::fmt::Result {
                $(
                    self.$field.print(&[$($($word),+)?], p)?;
                    $(p.word($then)?;)?
                )*
                Ok(())
            }

            fn read(_: &[&str], r: &mut $crate::token::Reader) -> $crate::token::Res<$ty> {
                $(
                    let $field = $crate::form::Form::read(&[$($($word),+)?], r)?;
                    $(r.want($then)?;)?
                )*
                Ok($ty { $($field),* })
            }
        }
    )* };
    ($(enum $ty:ident $($expected:literal)? { $(
        $variant:ident $name:literal
            $(($item:ident $([$($item_word:literal),+])?))?
            $({
                $first:ident $([$($first_word:literal),+])? $($first_then:literal)?
                $(, $field:ident $([$($word:literal),+])? $($then:literal)?)*
            })?
            $(= { $($constant:tt)* })?
    ),* $(,)? })*) => { $(
        #[allow(unused_variables, unused_labels)]
        impl $crate::form::Form for $ty {
            fn print(&self, words: &[&str], p: &mut $crate::form::Printer<'_, '_>) -> std::fmt::Result {
                let [open, close] = *words.first_chunk().unwrap_or(&["", ""]);
                match self { $(
                    $ty::$variant $(($item))? $({ $first, $($field),* })? $({ $($constant)* })? => {
                        p.word($name)?;
                        $(
                            p.word(open)?;
                            $item.print(&[$($($item_word),+)?], p)?;
                            p.word(close)?;
                        )?
                        $(
                            p.word(open)?;
                            $first.print(&[$($($first_word),+)?], p)?;
                            $(p.word($first_then)?;)?
                            $(
                                $field.print(&[$($($word),+)?], p)?;
                                $(p.word($then)?;)?
                            )*
                            p.word(close)?;
                        )?
                    }
                )* }
                Ok(())
            }

            fn opt(words: &[&str], r: &mut $crate::token::Reader) -> $crate::token::Res<Option<$ty>> {
                let [open, close] = *words.first_chunk().unwrap_or(&["", ""]);
                $(if r.opt($name) {
                    let variant = 'read: {
                        $(
                            r.want(open)?;
                            let Some($item) = $crate::form::first($name, &[$($($item_word),+)?], r)? else {
                                break 'read None;
                            };
                            r.want(close)?;
                        )?
                        $(
                            r.want(open)?;
                            let Some($first) = $crate::form::first($name, &[$($($first_word),+)?], r)? else {
                                break 'read None;
                            };
                            $(r.want($first_then)?;)?
                            $(
                                let $field = $crate::form::Form::read(&[$($($word),+)?], r)?;
                                $(r.want($then)?;)?
                            )*
                            r.want(close)?;
                        )?
                        Some($ty::$variant $(($item))? $({ $first, $($field),* })? $({ $($constant)* })?)
                    };
                    if variant.is_some() {
                        return Ok(variant);
                    }
                })*
                Ok(None)
            }

            fn expected(_: &[&str]) -> String {
                let expected: &[&str] = &[$($expected)?];
                let words = || format!("one of {:?}", [$($name),*]);
                expected.first().map_or_else(words, ToString::to_string)
            }
        }
    )* };
}
pub(crate) use form;
