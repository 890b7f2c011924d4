//! Regular expressions: matchers that follow the tables of their automata. A function of each expression puts its
//! tables' positions into words, and repeats the steps, which serve all expressions.
//!
//! The verifier knows the words of [`word`], because they are on the stack, and so the size of each table:
//! every index is compared with it, and for a correct table the comparison never holds. Rows and positions
//! are words of [`area`], in memory that the verifier knows nothing about. So it follows each step once.

use spile_cast::Cast;

use crate::builder::{BlockExit, Builder, IntoOperand, Scalar, Var, build};
use crate::func::{LirFunc, Module};
use crate::op::Size;

/// The largest number of groups.
pub const MAX_GROUPS: u32 = 31;
/// A slot that there is not.
pub const NO_SLOT: i32 = 0xffff;

/// Offsets of the words and buffers of a match.
pub mod area {
    /// Number of groups of the last match; -1: no match, -2: nothing matched yet.
    pub const STATE: i16 = 0;
    /// The current row.
    pub const ROW: i16 = 8;
    /// The current position.
    pub const POS: i16 = 16;
    /// The current slot.
    pub const SLOT: i16 = 24;
    /// Start and end of the match, -1 for none; the groups follow.
    pub const START: i16 = 32;
    /// The same.
    pub const END: i16 = 40;
    /// Start and end of each group.
    pub const TAGS: i16 = 48;
    /// The text.
    pub const TEXT: i32 = TAGS as i32 + 16 * super::MAX_GROUPS.cast_signed();

    /// Bytes for texts of up to `most` bytes. A note takes two bytes.
    pub fn size(most: u32) -> u32 {
        TEXT as u32 + 3 * (most + 16)
    }
}

/// Values of a tag: not reached yet, and discarded.
const OPEN: i32 = -2;
const NONE: i32 = -1;

/// Offsets of the words that steps read.
mod word {
    /// The match area.
    pub(super) const AREA: i16 = 0;
    /// The text.
    pub(super) const TEXT: i16 = 8;
    /// The byte classes.
    pub(super) const CLASSES: i16 = 16;
    /// The current table, its last entry, and the first accepting row.
    pub(super) const TABLE: i16 = 24;
    pub(super) const LAST: i16 = 32;
    pub(super) const ACCEPT: i16 = 40;
    /// The largest length of a text, or the number of iterations.
    pub(super) const BOUND: i16 = 48;
    /// The per-position notes.
    pub(super) const NOTES: i16 = 56;
    /// The tag operations, and the last one.
    pub(super) const OPS: i16 = 64;
    pub(super) const OPS_LAST: i16 = 72;
    pub(super) const SIZE: u32 = 80;
}

/// Bytes of a text that one step of `match_at` processes.
pub const CHUNK: i32 = 8;
/// Bytes that one step of the other matchers processes.
const STEPS: i32 = 4;

/// The name of the step of [`matches`].
pub const MATCH_AT: &str = "match_at";
/// The name of the first one of the steps of [`find`].
pub const FIND_ON: &str = "find_on";
/// The names of the others.
const FIND_BACK: &str = "find_back";
const FIND_TAGS: &str = "find_tags";
const FIND_OPS: &str = "find_ops";

/// An automaton that says whether a text matches.
#[derive(Debug, Clone)]
pub struct ScannerView<'a> {
    /// The next row by row and class; the last class is the text's edge.
    pub next: &'a [u16],
    /// The first row.
    pub start: u16,
    /// This row and those after it accept.
    pub accept: u16,
    /// Column of the text's edge.
    pub edge: u32,
}

/// Automata that find a match and its groups.
#[derive(Debug, Clone)]
pub struct FinderView<'a> {
    /// Number of groups, at most [`MAX_GROUPS`].
    pub groups: u32,
    /// Finds where matches begin, backwards. Without it they begin at position 0 only.
    pub reverse: Option<ScannerView<'a>>,
    /// Number of entries of a row of `next`: one for each class of bytes, then the slot that accepts at any
    /// position, with in the upper half the one that accepts at the text's end ([`NO_SLOT`]: none).
    pub columns: u32,
    /// This row and those after it accept at any position.
    pub accept: u16,
    /// The first row at position 0, elsewhere.
    pub start: [u16; 2],
    /// The lists of the first rows: their tags are at the start of the match.
    pub start_list: [u16; 2],
    /// By row and class: the next row, and in the upper half the list.
    pub next: &'a [u32],
    /// Lists: for each slot of the next row its slot in this row, and in the upper half the index of its
    /// operations.
    pub lists: &'a [u32],
    /// Operations: their number, then each one. Index 0 has none.
    pub ops: &'a [u8],
}

/// The constants of a function.
const CLASSES: &str = "classes";
const REVERSE: &str = "reverse";
const NEXT: &str = "next";
const LISTS: &str = "lists";
const OPS: &str = "ops";

fn halves(table: &[u16]) -> Vec<u8> {
    table.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

fn words(table: &[u32]) -> Vec<u8> {
    table.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

/// The numbers of parameters of the steps.
const STEP: usize = 2;
const STEP_OPS: usize = 3;

/// The function `name` of an expression: whether a text matches.
pub fn matches(name: &str, classes: &[u8; 256], scanner: &ScannerView<'_>) -> Module {
    let contract = "\
Whether a text matches.
text: a slot. area: words of the matcher. chunks: the number of eights of bytes in the slot.
Cost: a step for each eight bytes, 13 instructions for each byte.";
    let accept = i32::from(scanner.accept);
    let func = build(name, contract, ["text", "area", "chunks"], |f, p| {
        let [text, area, chunks] = p;
        let matcher = Matcher::new(f, area);
        matcher.put(word::TEXT, text);
        matcher.put(word::BOUND, chunks);
        matcher.put(word::CLASSES, f.data(CLASSES));
        matcher.scan(NEXT, scanner);
        f.repeat_call(chunks, MATCH_AT, matcher.words);
        let row = area.load_u64(area::ROW);
        f.ret_if(row.ge(accept), 1);
        let last = matcher.column(row, Table::of(NEXT, scanner), scanner.edge);
        f.ret_if(last.ge(accept), 1);
        f.ret(0);
    });
    Module::from(func)
        .with_externs(&[(MATCH_AT, STEP)])
        .with_data(CLASSES, *classes)
        .with_data(NEXT, halves(scanner.next))
}

/// The function `name` of an expression: finds its match in a text of at most `most` bytes.
pub fn find(name: &str, classes: &[u8; 256], finder: &FinderView<'_>, most: u32) -> Module {
    let contract = "\
Whether the text of an area matches; writes the match and its groups to the area.
area: the words of a match, with the text. bytes: of the text with its NUL, or an error.
Cost: three steps for each four bytes, about 25 instructions for each byte.";
    let func = build(name, contract, ["area", "bytes"], |f, [area, bytes]| {
        area.store_u64(area::STATE, NONE);
        let bytes = f.var("bytes", bytes);
        f.if_(bytes.sle(0), || bytes.set(1));
        let matcher = Matcher::new(f, area);
        let text = area + area::TEXT;
        matcher.put(word::TEXT, text);
        matcher.put(word::NOTES, text + (most.cast_signed() + 8));
        matcher.put(word::BOUND, most.cast_signed());
        matcher.put(word::CLASSES, f.data(CLASSES));
        for tag in 0..2 * finder.groups.fit::<i16>() {
            area.store_u64(area::TAGS + 8 * tag, OPEN);
        }
        let length = bytes - 1;
        matcher.find_start(finder.reverse.as_ref(), length);
        matcher.find_end(finder, length);
        if finder.groups > 0 {
            matcher.find_groups(finder);
        }
        area.store_u64(area::STATE, finder.groups.cast_signed());
        f.ret(1);
    });
    let mut module = Module::from(func)
        .with_externs(&[(FIND_ON, STEP)])
        .with_data(CLASSES, *classes)
        .with_data(NEXT, words(finder.next));
    if let Some(reverse) = &finder.reverse {
        module = module
            .with_externs(&[(FIND_BACK, STEP)])
            .with_data(REVERSE, halves(reverse.next));
    }
    if finder.groups > 0 {
        module = module
            .with_externs(&[(FIND_TAGS, STEP), (FIND_OPS, STEP_OPS)])
            .with_data(LISTS, words(finder.lists))
            .with_data(OPS, finder.ops);
    }
    module
}

/// The steps of [`find`].
pub fn find_steps() -> Module {
    Module::from(vec![find_on(), find_back(), find_tags(), find_ops()])
}

/// A table: its constant, its number of entries, and their size.
struct Table {
    name: &'static str,
    entries: usize,
    size: Size,
}

impl Table {
    fn of(name: &'static str, scanner: &ScannerView<'_>) -> Table {
        Table {
            name,
            entries: scanner.next.len(),
            size: Size::U16,
        }
    }

    fn last(&self) -> i32 {
        self.entries.fit::<i32>() - 1
    }
}

/// The code of an expression's function.
struct Matcher<'b> {
    f: &'b Builder,
    area: Scalar<'b>,
    /// The address of the words for steps.
    words: Scalar<'b>,
}

impl<'b> Matcher<'b> {
    fn new(f: &'b Builder, area: Scalar<'b>) -> Matcher<'b> {
        let matcher = Matcher {
            f,
            area,
            words: f.slot(word::SIZE),
        };
        matcher.put(word::AREA, area);
        matcher
    }

    fn put(&self, offset: i16, v: impl IntoOperand<'b>) {
        self.words.store_u64(offset, v);
    }

    /// Makes a table the current one.
    fn put_table(&self, table: &Table) {
        self.put(word::TABLE, self.f.data(table.name));
        self.put(word::LAST, table.last());
    }

    /// Begins a scan.
    fn scan(&self, name: &'static str, scanner: &ScannerView<'_>) {
        self.put_table(&Table::of(name, scanner));
        self.put(word::ACCEPT, i32::from(scanner.accept));
        self.area.store_u64(area::ROW, i32::from(scanner.start));
    }

    /// The entry of a row at a column; returns 0 past the table's end.
    fn column(&self, row: Scalar<'b>, table: Table, column: u32) -> Scalar<'b> {
        let index = row + column.cast_signed();
        self.f.ret_if(index.gt(table.last()), 0);
        let shift = table.size.bytes().ilog2().cast_signed();
        (self.f.data(table.name) + (index << shift)).load_bytes(table.size, 0)
    }

    /// Computes START, where the match begins, in a text of that length; returns 0 if there is none.
    fn find_start(&self, reverse: Option<&ScannerView<'_>>, length: Scalar<'b>) {
        let (f, area) = (self.f, self.area);
        let Some(scanner) = reverse else {
            return area.store_u64(area::START, 0);
        };
        self.scan(REVERSE, scanner);
        match scanner.start >= scanner.accept {
            true => area.store_u64(area::START, length),
            false => area.store_u64(area::START, NONE),
        }
        area.store_u64(area::POS, length);
        self.repeat(length, FIND_BACK);
        let row = area.load_u64(area::ROW);
        let last = self.column(row, Table::of(REVERSE, scanner), scanner.edge);
        f.if_(last.ge(i32::from(scanner.accept)), || {
            area.store_u64(area::START, 0);
        });
        f.ret_if(area.load_u64(area::START).eq(NONE), 0);
    }

    /// Repeats a step for a text of that length.
    fn repeat(&self, length: Scalar<'b>, step: &str) {
        let times = (length >> STEPS.ilog2().cast_signed()) + 1;
        self.f.repeat_call(times, step, self.words);
    }

    /// Computes END and SLOT: the longest match from START on, and the path that ends it; returns 0 if
    /// there is none.
    fn find_end(&self, finder: &FinderView<'_>, length: Scalar<'b>) {
        let (f, area) = (self.f, self.area);
        let table = || Table {
            name: NEXT,
            entries: finder.next.len(),
            size: Size::U32,
        };
        self.put_table(&table());
        self.put(word::ACCEPT, i32::from(finder.accept));
        area.store_u64(area::END, NONE);
        let start = area.load_u64(area::START);
        area.store_u64(area::POS, start);
        area.store_u64(area::ROW, self.by_position(start, finder.start));
        self.repeat(length, FIND_ON);
        // More paths can end at the text's end. A row without transitions has none.
        let accepting = finder.columns - 1;
        let slots = self.column(area.load_u64(area::ROW), table(), accepting);
        let slot = f.var("slot", slots >> 16);
        f.if_else(
            slot.eq(NO_SLOT),
            || {
                f.ret_if(area.load_u64(area::END).eq(NONE), 0);
                let slots = self.column(area.load_u64(area::SLOT), table(), accepting);
                slot.set(slots & 0xffff);
            },
            || area.store_u64(area::END, length),
        );
        area.store_u64(area::SLOT, slot);
    }

    /// One of two numbers: for a match that starts at position 0, and for others.
    fn by_position(&self, start: Scalar<'b>, [first, other]: [u16; 2]) -> Var<'b> {
        let number = self.f.var("number", i32::from(first));
        self.f.if_(start.ne(0), || number.set(i32::from(other)));
        number
    }

    /// Computes the groups, backwards from END to START.
    fn find_groups(&self, finder: &FinderView<'_>) {
        let (f, area) = (self.f, self.area);
        let lists = Table {
            name: LISTS,
            entries: finder.lists.len(),
            size: Size::U32,
        };
        self.put_table(&lists);
        self.put(word::OPS, f.data(OPS));
        self.put(word::OPS_LAST, finder.ops.len().fit::<i32>() - 1);
        let end = area.load_u64(area::END);
        area.store_u64(area::POS, end);
        f.repeat_call(end - area.load_u64(area::START), FIND_TAGS, self.words);
        // Applies the tags before the first byte.
        let start = area.load_u64(area::START);
        let list = self.by_position(start, finder.start_list);
        let entry = self.column(area.load_u64(area::SLOT) + list, lists, 0);
        f.call(FIND_OPS, &[self.words, entry >> 16, start]);
    }
}

/// What a step has: the words of the expression's function, and the current row.
struct Step<'b> {
    f: &'b Builder,
    words: Scalar<'b>,
    area: Scalar<'b>,
    table: Scalar<'b>,
    classes: Scalar<'b>,
    last: Scalar<'b>,
    accept: Scalar<'b>,
    row: Var<'b>,
}

impl<'b> Step<'b> {
    fn new(f: &'b Builder, words: Scalar<'b>) -> Step<'b> {
        let word = |offset: i16| words.load_u64(offset);
        let area = word(word::AREA);
        Step {
            f,
            words,
            area,
            row: f.var("row", area.load_u64(area::ROW)),
            table: word(word::TABLE),
            classes: word(word::CLASSES),
            last: word(word::LAST),
            accept: word(word::ACCEPT),
        }
    }

    fn word(&self, offset: i16) -> Scalar<'b> {
        self.words.load_u64(offset)
    }

    /// The entry of the current row for a byte, in a table of 2^`shift` bytes each; stops the loop past the
    /// table's end.
    fn entry(&self, byte: Scalar<'b>, shift: i32) -> Scalar<'b> {
        let index = self.row + (self.classes + byte).load_u8(0);
        self.f.ret_if(index.gt(self.last), 1);
        self.table + (index << shift)
    }

    /// Ends the step: runs `on` and goes on with the loop, or ends it where `code` left. Both keep the row.
    fn finish(&self, code: impl FnOnce(BlockExit<'b>), on: impl FnOnce()) {
        self.f.block(|end| {
            code(end);
            on();
            self.keep_row();
            self.f.ret(0);
        });
        self.keep_row();
        self.f.ret(1);
    }

    fn keep_row(&self) {
        self.area.store_u64(area::ROW, self.row);
    }

    /// The byte at a position; stops the loop beyond the longest text.
    fn byte(&self, position: Scalar<'b>) -> Scalar<'b> {
        self.f.ret_if(position.ge(self.word(word::BOUND)), 1);
        (self.word(word::TEXT) + position).load_u8(0)
    }
}

/// `match_at`, the step of [`matches`].
pub(super) fn match_at() -> LirFunc {
    let contract = "\
Processes a chunk of bytes. Returns 1, which ends the loop, at the text's end, in an accepting row, and in row 0,
which nothing leaves.
index: of the chunk. words: see `word`.
Cost: 12 instructions for each byte, and 20.";
    build(
        MATCH_AT,
        contract,
        ["index", "words"],
        |f, [index, words]| {
            f.ret_if(index.ge(words.load_u64(word::BOUND)), 1);
            let step = Step::new(f, words);
            let text = step.word(word::TEXT) + (index << CHUNK.ilog2().cast_signed());
            step.finish(
                |end| {
                    for i in 0..CHUNK.fit::<i16>() {
                        let byte = text.load_u8(i);
                        end.leave_if(byte.eq(0));
                        step.row.set(step.entry(byte, 1).load_u16(0));
                        end.leave_if(step.row.ge(step.accept));
                    }
                    end.leave_if(step.row.eq(0));
                },
                || {},
            );
        },
    )
}

/// `find_back`: finds START.
fn find_back() -> LirFunc {
    let contract = "\
Processes bytes backwards from the end, and notes where a match can begin. Returns 1, which ends the loop, at the
beginning.
index: not read. words: see `word`.
Cost: 18 instructions for each byte, and 20.";
    build(FIND_BACK, contract, ["index", "words"], |f, [_, words]| {
        let step = Step::new(f, words);
        let position = f.var("position", step.area.load_u64(area::POS));
        step.finish(
            |end| {
                for _ in 0..STEPS {
                    end.leave_if(position.eq(0));
                    position.set(position - 1);
                    let byte = step.byte(position.get());
                    step.row.set(step.entry(byte, 1).load_u16(0));
                    f.if_(step.row.ge(step.accept), || {
                        step.area.store_u64(area::START, position);
                    });
                }
            },
            || step.area.store_u64(area::POS, position),
        );
    })
}

/// `find_on`: finds END and SLOT.
fn find_on() -> LirFunc {
    let contract = "\
Processes bytes from START on; notes lists, and the last accepting row. Returns 1, which ends the loop, at the text's
end and in row 0, which nothing leaves.
index: not read. words: see `word`.
Cost: 24 instructions for each byte, and 20.";
    build(FIND_ON, contract, ["index", "words"], |f, [_, words]| {
        let step = Step::new(f, words);
        let position = f.var("position", step.area.load_u64(area::POS));
        step.finish(
            |end| {
                for _ in 0..STEPS {
                    f.if_(step.row.ge(step.accept), || {
                        step.area.store_u64(area::END, position);
                        step.area.store_u64(area::SLOT, step.row);
                    });
                    let byte = step.byte(position.get());
                    end.leave_if(byte.eq(0));
                    let entry = step.entry(byte, 2);
                    step.row.set(entry.load_u16(0));
                    let note = step.word(word::NOTES) + position + position;
                    note.store_bytes(Size::U16, 0, entry.load_u16(2));
                    position.set(position + 1);
                    end.leave_if(step.row.eq(0));
                }
            },
            || step.area.store_u64(area::POS, position),
        );
    })
}

/// `find_tags`: follows the match back.
fn find_tags() -> LirFunc {
    let contract = "\
Follows one transition backwards: the previous slot, and the tags on the transition. Returns 1 past a table's end.
index: not read. words: see `word`.
Cost: 25 instructions, and those of `find_ops`.";
    build(FIND_TAGS, contract, ["index", "words"], |f, [_, words]| {
        let word = |offset: i16| words.load_u64(offset);
        let area = word(word::AREA);
        let position = area.load_u64(area::POS) - 1;
        f.ret_if(position.ge(word(word::BOUND)), 1);
        let note = (word(word::NOTES) + position + position).load_u16(0);
        let index = note + area.load_u64(area::SLOT);
        f.ret_if(index.gt(word(word::LAST)), 1);
        let entry = word(word::TABLE) + (index << 2);
        area.store_u64(area::SLOT, entry.load_u16(0));
        area.store_u64(area::POS, position);
        let ops = entry.load_u16(2);
        f.if_(ops.ne(0), || {
            f.call(FIND_OPS, &[words, ops, position + 1]);
        });
        f.ret(0);
    })
}

/// `find_ops`: the tags of a transition.
fn find_ops() -> LirFunc {
    let contract = "\
Sets or discards tags that were not reached yet. Returns 0.
words: see `word`. number: the index of the operations. position: behind the transition.
Cost: 15 instructions for each operation.";
    let params = ["words", "number", "position"];
    build(
        FIND_OPS,
        contract,
        params,
        |f, [words, number, position]| {
            let word = |offset: i16| words.load_u64(offset);
            let (area, ops, last) = (word(word::AREA), word(word::OPS), word(word::OPS_LAST));
            f.ret_if(number.gt(last), 0);
            let count = (ops + number).load_u8(0);
            let done = f.var("done", 0);
            let index = f.var("at", number);
            let tags = 2 * MAX_GROUPS;
            f.repeat_inline(tags, || {
                f.break_if(done.ge(count));
                done.set(done + 1);
                index.set(index + 1);
                f.break_if(index.gt(last));
                let op = (ops + index).load_u8(0);
                let tag = op >> 1;
                f.break_if(tag.ge(tags.cast_signed()));
                let slot = area + (tag << 3);
                f.if_(slot.load_u64(area::TAGS).eq(OPEN), || {
                    f.if_else(
                        (op & 1).eq(0),
                        || slot.store_u64(area::TAGS, position),
                        || slot.store_u64(area::TAGS, NONE),
                    );
                });
            });
            f.ret(0);
        },
    )
}
