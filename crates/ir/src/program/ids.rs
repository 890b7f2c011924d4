//! The numbers that name the parts of a program.

macro_rules! ids {
    ($($(#[$m:meta])* $name:ident),*) => {$(
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The value as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
ids! {
    /// A virtual register of one body.
    Reg,
    /// A basic block of one body; block 0 is the entry.
    BlockId,
    /// Index into [`Program::globals`].
    GlobalId,
    /// Index into [`Program::funcs`].
    FuncId,
    /// Index into [`Program::handlers`].
    HandlerId,
    /// Index into [`Program::formats`].
    FormatId,
    /// Index into [`Program::strings`].
    StrId,
    /// Index into [`Program::tables`].
    TableId,
    /// Index into [`Program::regexes`].
    RegexId,
    /// Index into [`Program::sites`].
    SiteId,
    /// A `foreach` iterator of one body.
    IterId
}
