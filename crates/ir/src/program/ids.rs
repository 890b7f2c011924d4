//! The numbers that name the parts of a program. In the text form an id is the letters of its kind and the
//! number.

use std::fmt::{Display, Formatter, Result};

use crate::form::{Form, Printer};
use crate::token::{Reader, Res};

macro_rules! ids {
    ($($(#[$m:meta])* $name:ident $letters:literal),*) => {$(
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The value as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                write!(f, concat!($letters, "{}"), self.0)
            }
        }
        impl Form for $name {
            fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> Result {
                p.item(self)
            }
            fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Self>> {
                Ok(r.opt_id($letters).map($name))
            }
            fn expected(_: &[&str]) -> String {
                concat!("`", $letters, "` and a number").into()
            }
        }
    )*};
}
ids! {
    /// A virtual register of one body.
    Reg "r",
    /// A basic block of one body; block 0 is the entry.
    BlockId "b",
    /// Index into [`Program::globals`].
    GlobalId "g",
    /// Index into [`Program::funcs`].
    FuncId "fn",
    /// Index into [`Program::handlers`].
    HandlerId "h",
    /// Index into [`Program::formats`].
    FormatId "f",
    /// Index into [`Program::strings`].
    StrId "s",
    /// Index into [`Program::tables`].
    TableId "t",
    /// Index into [`Program::regexes`].
    RegexId "re",
    /// Index into [`Program::sites`].
    SiteId "@",
    /// A `foreach` iterator of one body.
    IterId "i"
}
