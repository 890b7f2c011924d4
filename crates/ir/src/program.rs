//! The intermediate representation: the result of analysis, and the input of every executor.
//!
//! A [`Program`] is a set of globals, functions and handlers. Code is three-address code over
//! typed, mutable virtual registers in basic blocks. Registers hold a 64-bit integer or a
//! string of bounded width. Operations on globals, strings and output are single instructions;
//! each executor (interpreter, eBPF) decides how to do them.
//!
//! # Semantics every executor keeps
//! - Integers wrap at 64 bits. Shifts use the low six bits of the count. `i64::MIN / -1` wraps.
//! - A register reads as 0 or "" before its first write.
//! - A string is a run of bytes without NUL, shorter than its register's width. Writing a
//!   longer one cuts it and counts a truncation.
//! - An instruction that fails (see [`Inst::fallible`]) sets the current error and goes to its
//!   block's [`Block::catch`] block; with none it ends the handler with that error.
//! - Reading a missing array element gives 0, "" or an empty aggregate and adds nothing.

use std::fmt::{Display, Formatter, Result};
use std::sync::Arc;

#[macro_use]
mod fields;
pub(crate) mod ids;
pub(crate) mod operators;
pub(crate) mod types;

use fields::Field;
pub use ids::*;
pub use operators::*;
pub use types::*;

use crate::event::{Event, Watch, WatchOwner};
use crate::fmt::format::Format;
use crate::form::{Form, Printer};
use crate::intrinsics::Intrinsic;
use crate::regex::Regex;
use crate::storage::class::Storage;
use crate::token::{Reader, Res};

/// A whole script, ready to run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Global variables.
    pub globals: Vec<Global>,
    /// User and tapset functions that are still called (others are inlined).
    pub funcs: Vec<Func>,
    /// Handlers in the order in which they run when they share an event.
    pub handlers: Vec<Handler>,
    /// Formats of `print` and `sprint` instructions.
    pub formats: Vec<Format>,
    /// String constants.
    pub strings: Vec<Bytes>,
    /// Constant tables from number to string.
    pub tables: Vec<ConstTable>,
    /// Regular expressions.
    pub regexes: Vec<Regex>,
    /// Locations in the script that errors name. Entry 0 is "unknown".
    pub sites: Vec<Site>,
    /// The limits of a run.
    pub limits: Limits,
}

/// Defines the limits of a run, from rows `name: type = default`.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:literal,)*) => {
        /// The limits of a run (`-D NAME=VALUE`), with SystemTap's names and defaults.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $ty,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default),* }
            }
        }

        impl Display for Limits {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.write_str("limits")?;
                $(write!(f, concat!(" ", stringify!($name), "={}"), self.$name)?;)*
                Ok(())
            }
        }

        impl Limits {
            /// Reads limits in any order.
            pub(crate) fn read(&mut self, r: &mut Reader) -> Res<()> {
                loop {
                    $(if r.opt(stringify!($name)) {
                        r.want("=")?;
                        self.$name = r.number()?;
                        continue;
                    })*
                    return Ok(());
                }
            }
        }
    };
}

limits! {
    maxaction: u64 = 1000,
    maxaction_interruptible: u64 = 10_000,
    /// Maximum length of a string in bytes, without its NUL: one less than a multiple of 8, at most
    /// 4,095. (`-D MAXSTRINGLEN` counts the NUL, as in SystemTap.)
    maxstringlen: u32 = 511,
    maxmapentries: u32 = 2048,
    maxerrors: u64 = 0,
    maxskipped: u64 = 100,
    maxnesting: u32 = 10,
    maxtrylock: u32 = 100,
    /// Maximum number of frames of a stack.
    maxbacktrace: u32 = 20,
}

/// Maximum number of indexes of an array.
pub const MAX_KEYS: usize = 9;

/// The content of a global.
#[derive(Debug, Clone, PartialEq)]
pub enum GlobalKind {
    /// One integer or string.
    Scalar(Ty),
    /// One statistic.
    Stats(StatsSpec),
    /// An associative array.
    Array {
        /// One to [`MAX_KEYS`] key types.
        keys: Vec<Ty>,
        /// The type of the elements.
        value: ElemTy,
        /// Maximum number of elements.
        max: u32,
        /// `%`: a new element evicts the oldest one instead of failing.
        wrap: bool,
    },
}

impl GlobalKind {
    /// The layout of its statistic, or of its elements' statistics.
    pub fn stats(&self) -> Option<&StatsSpec> {
        match self {
            GlobalKind::Stats(s)
            | GlobalKind::Array {
                value: ElemTy::Stats(s),
                ..
            } => Some(s),
            _ => None,
        }
    }

    /// The type of its integer or string, or of its elements'.
    pub(crate) fn scalar(&self) -> Option<Ty> {
        match self {
            GlobalKind::Scalar(ty)
            | GlobalKind::Array {
                value: ElemTy::Scalar(ty),
                ..
            } => Some(*ty),
            _ => None,
        }
    }

    /// The types of the keys; empty for a scalar.
    pub fn keys(&self) -> &[Ty] {
        match self {
            GlobalKind::Array { keys, .. } => keys,
            _ => &[],
        }
    }
}

/// A global variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Global {
    /// Its name, made unique if private (`name@file`).
    pub name: Arc<str>,
    /// Its content.
    pub kind: GlobalKind,
    /// Initial value of a scalar.
    pub init: Option<Init>,
    /// Its storage class; [`crate::storage::classify`] decides it.
    pub storage: Storage,
    /// Whether it is displayed at the end because no handler reads it.
    pub display: bool,
    /// The location of its declaration.
    pub site: SiteId,
}

/// The start of the names of arrays that analysis makes for values of entries (`@entry`). No name in
/// a script starts with `@`.
pub const ENTRY_ARRAY: &str = "@entry";

/// Name of the counter of returns whose entry has no element in such an array.
pub const UNSEEN_ENTRIES: &str = "@unseen";

impl Global {
    /// Whether analysis made the array for values of entries (`@entry`). Each element then belongs
    /// to one call, which the keys identify: the handler at the entry stores it, and the one at the
    /// return takes it out.
    pub fn saves_entry_values(&self) -> bool {
        self.name.starts_with(ENTRY_ARRAY)
    }
}

/// The initial value of a scalar global.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Init {
    Long(i64),
    Str(Bytes),
}

/// A function that handlers call.
#[derive(Debug, Clone, PartialEq)]
pub struct Func {
    /// Its name for messages and the text form.
    pub name: Arc<str>,
    /// The registers that receive the arguments.
    pub params: Vec<Reg>,
    /// Type of the result.
    pub ret: Option<Ty>,
    /// Whether it can call itself, directly or through others: such activations count against
    /// MAXNESTING. [`crate::opt::inline::mark_recursive`] sets it.
    pub recursive: bool,
    /// The code.
    pub body: Body,
}

/// An event and the code that it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    /// `pp()`: the probe point with wildcards and aliases resolved.
    pub point: Arc<str>,
    /// Number of points served (a handler of `syscall.*` serves hundreds).
    pub points: u32,
    /// The event that makes it run.
    pub event: Event,
    /// The code; it ends with [`Term::Ret`] without a value.
    pub body: Body,
    /// The probe in the script.
    pub site: SiteId,
}

/// A constant table from small numbers to strings (names of system calls, errors, signals).
#[derive(Debug, Clone, PartialEq)]
pub struct ConstTable {
    /// Its name in the text form.
    pub name: Arc<str>,
    /// Entry `i` is the string for `i`; missing entries and those out of range are "".
    pub entries: Vec<Bytes>,
}

/// A location in the script, in the form in which errors print it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Site {
    /// `identifier 'x' at script.stp:3:4`, as in `near identifier 'x' at ...`.
    pub near: Arc<str>,
    /// The call that led here, for code of inlined functions.
    pub caller: Option<SiteId>,
    /// Whether it is in a library file instead of the script.
    pub library: bool,
}

/// Maximum number of callers in a message.
pub const MAX_CALLERS: usize = 16;

impl Site {
    /// A location in the script, without callers.
    pub fn at(near: impl Into<Arc<str>>) -> Site {
        Site {
            near: near.into(),
            ..Site::default()
        }
    }
}

impl Program {
    /// Whether the descendants of the target must be tracked.
    pub fn follows_target(&self) -> bool {
        let asks = |i: &Inst| {
            let tree = [Intrinsic::InTree, Intrinsic::TreeAdd];
            matches!(i, Inst::Intr { f: asked, .. } if tree.contains(asked))
        };
        self.handlers.iter().any(|h| {
            let mut insts = h.body.insts();
            matches!(&h.event, Event::Code(probe) if probe.tree) || insts.any(asks)
        })
    }

    /// The content of a global; `None` if there is no such global.
    pub(crate) fn kind(&self, g: GlobalId) -> Option<&GlobalKind> {
        Some(&self.globals.get(g.index())?.kind)
    }

    /// Whether the program watches memory of all processes that run a program.
    pub fn watches_programs(&self) -> bool {
        let of_program = |w: &Watch| matches!(w.owner, WatchOwner::Program(_));
        let mut events = self.handlers.iter().map(|h| &h.event);
        events.any(|e| matches!(e, Event::Watch(w) if of_program(w)))
    }

    /// A location and the calls that led there, innermost first: those of inlined functions, and those
    /// in progress at run time. Locations in the library come first only if there are no others: the
    /// script's author looks for his own line.
    pub fn trace(&self, site: SiteId, callers: &[SiteId]) -> Vec<&Site> {
        let mut sites = Vec::new();
        for start in [site].iter().chain(callers) {
            let mut next = Some(*start);
            while let Some(site) = next.and_then(|id| self.sites.get(id.index())) {
                sites.push(site);
                next = site.caller;
            }
        }
        let first = sites.iter().position(|s| !s.library).unwrap_or(0);
        sites.drain(..first);
        sites.truncate(1 + MAX_CALLERS);
        sites
    }
}

/// Code: registers and blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// Type of each register.
    pub regs: Vec<Ty>,
    /// Blocks; 0 is the entry.
    pub blocks: Vec<Block>,
    /// Number of `foreach` iterators.
    pub iters: u32,
}

/// A basic block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The instructions.
    pub insts: Vec<(Inst, SiteId)>,
    /// The block's terminator.
    pub term: Term,
    /// The block that a failing instruction of this block goes to.
    pub catch: Option<BlockId>,
}

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Val {
    /// A register.
    Reg(Reg),
    /// An integer.
    Imm(i64),
    /// A string constant.
    Str(StrId),
}

/// What an instruction does, where its operands and its global do not change that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only writes its register, from its operands alone.
    Pure,
    /// It only writes its register.
    Reads,
    /// It changes its global.
    Writes,
    /// It can always fail.
    Fails,
}

instructions! {
/// An instruction. What it reads and writes follows from the types of its fields, its text from its form:
/// see `instructions` in `program/fields.rs`. An [`Effect`] may follow. "Keys" are one operand per key of the
/// array, none for a scalar.
pub enum Inst {
    /// `dst = src`, also a constant.
    Copy { dst: Reg, src: Val } = ("copy" src) -> dst; Pure,
    /// `dst = op a`
    Un { dst: Reg, op: UnOp, a: Val } = (op a) -> dst; Pure,
    /// `dst = a op b`; `Div` and `Mod` fail when b is 0.
    Bin { dst: Reg, op: BinOp, a: Val, b: Val } = (op a, b) -> dst; Pure,
    /// `dst = a op b` on strings.
    StrCmp { dst: Reg, op: CmpOp, a: Val, b: Val } = (op a, b) -> dst; Pure,
    /// `dst = a . b`
    Concat { dst: Reg, a: Val, b: Val } = ("concat" a, b) -> dst; Pure,
    /// `dst` = 1 if the text has a match, otherwise 0. With `keep`, the intrinsics `match_*` report
    /// this match, or its failure, until the next such instruction of the handler's run, in
    /// whatever function; the text is copied.
    Regex { dst: Reg, re: RegexId, text: Val, keep: bool } = ("match" re, text {"keep" keep}) -> dst; Pure,
    /// `dst = table[idx]`
    TableGet { dst: Reg, table: TableId, idx: Val } = ("table" table, idx) -> dst; Pure,
    /// `dst = sprintf(...)`; `%m` and the like can fail.
    Sprint { dst: Reg, fmt: FormatId, args: Vec<Val> } = ("sprint" fmt (args)) -> dst; Pure,
    /// `printf(...)`
    Print { stream: Stream, fmt: FormatId, args: Vec<Val> } = ("print" stream fmt (args)),
    /// Draws the histogram of a statistic (as `print(@hist_log(x))`); fails if it is empty. With
    /// `dst`, which only controller handlers have, the text becomes its value (as `sprint`).
    PrintHist { dst: Option<Reg>, g: GlobalId, keys: Vec<Val> } = ("print_hist" g [keys]) -> dst; Fails,
    /// An intrinsic operation.
    Intr { dst: Option<Reg>, f: Intrinsic, args: Vec<Val> } = ("intr" f (args)) -> dst,
    /// `dst = g`, a scalar.
    GLoad { dst: Reg, g: GlobalId } = ("gload" g) -> dst; Reads,
    /// `g = val`, a scalar.
    GStore { g: GlobalId, val: Val } = ("gstore" g, val); Writes,
    /// `g += val`, a number; `old` gets the previous value.
    GAdd { g: GlobalId, val: Val, old: Option<Reg> } = ("gadd" g, val) -> old; Writes,
    /// `dst = g[keys]`
    AGet { dst: Reg, g: GlobalId, keys: Vec<Val> } = ("aget" g [keys]) -> dst; Reads,
    /// `g[keys] = val`; fails if the array is full and does not wrap.
    ASet { g: GlobalId, keys: Vec<Val>, val: Val } = ("aset" g [keys], val); Writes,
    /// `g[keys] += val`; `old` gets the previous value. Fails like `ASet`.
    AAdd { g: GlobalId, keys: Vec<Val>, val: Val, old: Option<Reg> } = ("aadd" g [keys], val) -> old; Writes,
    /// `dst = [keys] in g`; `None` is `*`.
    AHas { dst: Reg, g: GlobalId, keys: Vec<Option<Val>> } = ("ahas" g [keys]) -> dst; Reads,
    /// `delete g[keys]`; `None` is `*`.
    ADel { g: GlobalId, keys: Vec<Option<Val>> } = ("adel" g [keys]); Writes,
    /// `delete g`: empties an array, resets a scalar.
    GClear { g: GlobalId } = ("gclear" g); Writes,
    /// `g[keys] <<< val`; fails like `ASet`.
    StatAdd { g: GlobalId, keys: Vec<Val>, val: Val } = ("stat_add" g [keys], val); Writes,
    /// `dst = @what(g[keys])`. `Min`, `Max`, `Avg`, `Variance` fail if it is empty.
    StatGet { dst: Reg, g: GlobalId, keys: Vec<Val>, what: Extract, shift: u8 }
        = ("stat_get" what g [keys] {"shift" shift}) -> dst; Reads,
    /// `dst = @hist(g[keys])[idx]`; fails if idx is out of range.
    HistGet { dst: Reg, g: GlobalId, keys: Vec<Val>, idx: Val } = ("hist_get" g [keys], idx) -> dst; Fails,
    /// Starts (or restarts) iterator `it` over the current elements of `g`. `slice` is empty or has
    /// one entry for each key; `limit` is the maximum number of elements (negative counts as 0).
    IterNew { it: IterId, g: GlobalId, slice: Vec<Option<Val>>, sort: Option<SortSpec>, limit: Option<Val> }
        = ("iter" it g [slice] {sort} {"limit" limit}),
    /// Starts an iterator over the non-empty buckets of a histogram; its one key is the
    /// bucket's number, its value the count.
    IterHist { it: IterId, g: GlobalId, keys: Vec<Val> } = ("iter_hist" it g [keys]),
    /// `dst` = the integer at `addr`; fails on a bad address.
    Load { dst: Reg, space: Space, ty: IntTy, addr: Val } = ("load" space ty addr) -> dst; Fails,
    /// Fails with this message.
    Raise { msg: Val } = ("raise" msg); Fails,
    /// `dst` = the message of the error that led to this catch block.
    CatchMsg { dst: Reg } = ("catch_msg") -> dst; Reads,
    /// `dst = func(args)`
    Call { dst: Option<Reg>, func: FuncId, args: Vec<Val> } = ("call" func (args)) -> dst; Fails,
    /// Counts `n` statements against MAXACTION; fails when the budget is exhausted.
    Tick { n: u32 } = ("tick" n); Fails,
    /// Begins an activation of a function that can call itself, with space for the registers that
    /// `Save` stores; fails if MAXNESTING of them are in progress. Made by [`crate::opt::flatten`].
    Enter = ("enter"); Fails,
    /// Ends the innermost activation.
    Leave = ("leave"),
    /// Saves a register in the innermost activation, at this byte offset of its saved registers.
    Save { src: Val, offset: u32 } = ("save" src, offset),
    /// `dst` = the value saved there.
    Restore { dst: Reg, offset: u32 } = ("restore" offset) -> dst; Reads,
    /// Fails again with the error that led to this catch block; the instruction's location becomes one
    /// more caller.
    Rethrow = ("rethrow"); Fails,
}

/// The end of a block.
pub enum Term {
    /// Goes to the block.
    Jump(to: BlockId) = ("jump" to),
    /// Goes to `then` when `cond` is not 0, to `els` otherwise.
    Branch { cond: Val, then: BlockId, els: BlockId } = ("branch" cond, then, els),
    /// Fetches the iterator's next element into the registers and goes to `body`, or to `done` if
    /// there is none. `value` gets the element (for a statistic: its count).
    IterNext { it: IterId, keys: Vec<Reg>, value: Option<Reg>, body: BlockId, done: BlockId }
        = ("next" it {" [" "]" keys} body, done) -> value,
    /// Ends the function or the handler.
    Ret(value: Option<Val>) = ("ret" {value}),
    /// Ends the handler from inside a function.
    EndHandler = ("end_handler"),
}
}
