//! Text forms that print and read from one description, which [`form!`] makes of the fields of a type in their order.
//!
//! A form is a sequence of words, numbers, strings and punctuation. Printed, spaces are between them, except around
//! `(` and before `,` and `)`.

use std::fmt::{Display, Formatter, Result, Write};
use std::sync::Arc;

use crate::token::{Reader, Res};

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
        self.glued |= ["(", ")", ","].contains(&word);
        self.item(word)?;
        self.glued = word == "(";
        Ok(())
    }

    fn item(&mut self, item: impl Display) -> Result {
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
/// | `Option` | the value or its default | the word and the value, if there is one | |
/// | `Vec` | the elements with commas, up to `)` | the word before each element | |
/// | enum | the word of the variant and its fields | | the fields between the words |
pub(crate) trait Form: Sized {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result;
    fn read(words: &[&str], r: &mut Reader) -> Res<Self>;
}

impl Form for bool {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        match words {
            [yes] if *self => p.word(yes),
            [no, yes] => p.word(if *self { yes } else { no }),
            _ => Ok(()),
        }
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<bool> {
        let yes = words.last().is_some_and(|yes| r.opt(yes));
        match words {
            [no, yes_word] if !yes && !r.opt(no) => r.error(&format!("`{no}` or `{yes_word}`")),
            _ => Ok(yes),
        }
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
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
        p.item(Quoted(self.as_bytes()))
    }

    fn read(_: &[&str], r: &mut Reader) -> Res<Arc<str>> {
        Ok(r.text()?.into())
    }
}

impl<T: Form> Form for Arc<T> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        (**self).print(words, p)
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Arc<T>> {
        Ok(Arc::new(T::read(words, r)?))
    }
}

impl<T: Form + Default + PartialEq> Form for Option<T> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        match (self, words) {
            (None, []) => T::default().print(&[], p),
            (None, _) => Ok(()),
            (Some(value), words) => {
                words.iter().try_for_each(|w| p.word(w))?;
                value.print(&[], p)
            }
        }
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Option<T>> {
        match words {
            [] => Ok(Some(T::read(&[], r)?).filter(|value| *value != T::default())),
            [word, ..] => r.opt(word).then(|| T::read(&[], r)).transpose(),
        }
    }
}

impl<T: Form> Form for Vec<T> {
    fn print(&self, words: &[&str], p: &mut Printer<'_, '_>) -> Result {
        self.iter().enumerate().try_for_each(|(i, item)| {
            p.word(words.first().unwrap_or(if i == 0 { &"" } else { &"," }))?;
            item.print(&[], p)
        })
    }

    fn read(words: &[&str], r: &mut Reader) -> Res<Vec<T>> {
        let mut items = Vec::new();
        while match words {
            [word, ..] => r.opt(word),
            [] if items.is_empty() => !r.at(')'),
            [] => r.opt(","),
        } {
            items.push(T::read(&[], r)?);
        }
        Ok(items)
    }
}

/// Makes the [`Form`] of structures from their fields, and of enums from a word and the fields of each variant. A
/// field stands with its words, and with the punctuation after it. The word "" is for the variant that none of the
/// words before it names.
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
    ($(enum $ty:ident { $(
        $variant:ident $name:literal
            $(($item:ident $([$($item_word:literal),+])?))?
            $({ $($field:ident $([$($word:literal),+])? $($then:literal)?)* })?
            $(= { $($constant:tt)* })?
    ),* $(,)? })*) => { $(
        #[allow(unused_variables)]
        impl $crate::form::Form for $ty {
            fn print(&self, words: &[&str], p: &mut $crate::form::Printer<'_, '_>) -> std::fmt::Result {
                let [open, close] = *words.first_chunk().unwrap_or(&["", ""]);
                match self { $(
                    $ty::$variant $(($item))? $({ $($field),* })? $({ $($constant)* })? => {
                        p.word($name)?;
                        $(
                            p.word(open)?;
                            $item.print(&[$($($item_word),+)?], p)?;
                            p.word(close)?;
                        )?
                        $(
                            p.word(open)?;
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

            fn read(words: &[&str], r: &mut $crate::token::Reader) -> $crate::token::Res<$ty> {
                let [open, close] = *words.first_chunk().unwrap_or(&["", ""]);
                $(if r.opt($name) {
                    $(
                        r.want(open)?;
                        let $item = $crate::form::Form::read(&[$($($item_word),+)?], r)?;
                        r.want(close)?;
                    )?
                    $(
                        r.want(open)?;
                        $(
                            let $field = $crate::form::Form::read(&[$($($word),+)?], r)?;
                            $(r.want($then)?;)?
                        )*
                        r.want(close)?;
                    )?
                    return Ok($ty::$variant $(($item))? $({ $($field),* })? $({ $($constant)* })?);
                })*
                r.error(&format!("one of {:?}", [$($name),*]))
            }
        }
    )* };
}
pub(crate) use form;
