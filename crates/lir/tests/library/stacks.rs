//! Texts of stacks and addresses against Rust, on random frames, tables of names and lines, and symbols.
//! The functions run with those that append numbers, as written and with loops as callbacks.

use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::Module;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::append::{self, flag};
use spile_lir::library::stacks::rows::{kernel_row, stack_words, symbol_row};
use spile_lir::library::stacks::{self, OWN_FRAMES, StackLayout, StackText};
use spile_lir::library::stacks::{address, frame, line, location, part};
use spile_lir::library::unwind::{BEHIND, EXACT, VDSO, at, buffer};
use spile_lir::verify::{HostLimits, verify};

use super::forms::{Forms, Reads, forms, properties};

/// Limit on the frames.
const FRAMES: usize = 6;
/// Words for addresses in the buffer.
const BUFFER: usize = FRAMES + OWN_FRAMES as usize + 2;
/// Bytes of the longest text of [`LONG`].
const LONG: usize = 4000;
/// The same where texts are cut.
const SHORT: usize = 60;
/// Bytes of the slot of a text of addresses.
const INPUT: usize = 96;

/// Offsets in the block.
const LENGTH: usize = 0;
const DIGITS: usize = 8;
const WORDS: usize = 56;
const CUT: usize = 72;
const TRUNCATED: usize = 80;
const UNNAMED: usize = 88;
const COUNT: usize = 96;
const FIRST: usize = 104;
const ADDRESSES: usize = 112;
const UNWIND: usize = ADDRESSES + 8 * BUFFER;
const OFFSETS: usize = at::offsets(FRAMES as u32) as usize;
const INPUT_AT: usize = UNWIND + buffer(FRAMES as u32) as usize;
const TEXT: usize = INPUT_AT + INPUT + 32;

fn layout(most: usize, lines: bool) -> StackLayout {
    StackLayout {
        text: append::AppendLayout {
            length: LENGTH as i32,
            text: TEXT as i32,
            most: most as i32,
            digits: DIGITS as i32,
        },
        most: FRAMES as u32,
        frames: ADDRESSES as u32,
        count: COUNT as u32,
        first: FIRST as u32,
        unwind: UNWIND as u32,
        words: WORDS as u32,
        texts: TEXT as u32,
        ranges: 16,
        lines,
        symbols: "symbols",
        symbol_rows: "symbol_rows",
        names: "names",
        line_rows: "line_rows",
        kernel_lines: "kernel_lines",
        cut_stacks: CUT as u32,
        truncated: TRUNCATED as u32,
        unnamed: UNNAMED as u32,
    }
}

/// The longest text, and whether there are lines.
type Made = (usize, bool);

const KINDS: [Made; 3] = [(LONG, true), (LONG, false), (SHORT, true)];

/// All functions.
fn functions((most, lines): Made) -> Rc<Forms> {
    forms(&format!("stacks {most} {lines}"), || {
        let at = layout(most, lines);
        let mut parts = vec![
            append::append_hex(at.text),
            append::append_number(at.text, 10),
            stacks::of_text(&at, "kernel_location", INPUT as u32),
        ];
        parts.extend(StackText::all(&at).map(|text| text.module()));
        let mut all = Module::default();
        for part in parts {
            verify(&part, &HostLimits::NONE).unwrap_or_else(|e| panic!("{e}\n{part}"));
            all.funcs.extend(part.funcs);
            for data in part.data {
                if all.data(&data.name).is_none() {
                    all.data.push(data);
                }
            }
        }
        all
    })
}

/// A symbol or a gap: its first position, its name, the two words in front of it.
type Symbol = (u32, String, u64, u64);
/// A line or a gap: its first position, the source file's name, the line.
type Line = (u32, Option<String>, u32);

#[derive(Debug, Clone)]
struct File {
    path: String,
    size: u64,
    symbols: Vec<Symbol>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
struct World {
    /// The files with tables: numbers from 1 on.
    files: Vec<File>,
    /// Address, file, offset.
    frames: Vec<(u64, u64, u64)>,
    process: u64,
    /// Texts of kernel addresses.
    symbols: Vec<(u64, String)>,
    /// The address from which positions of the kernel count, and its lines.
    base: u64,
    kernel: Vec<Line>,
    /// The offset of the first frame.
    first: usize,
    /// The buffer ends in front of this frame.
    buffer: usize,
    /// The map among [`MAPS`] that has no elements, if there is one.
    broken: usize,
}

impl World {
    fn is_broken(&self, map: &str) -> bool {
        MAPS.iter().position(|m| *m == map) == Some(self.broken)
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The host, with the tables in its memory.
struct Kernel<'a> {
    world: &'a World,
    block: u64,
    state: u64,
    format: u64,
    /// Address, bytes of an element, number of elements, by map.
    maps: Vec<(u64, u64, u64)>,
    /// Elements of files.
    files: Vec<u64>,
}

const MAPS: [&str; 5] = [
    "symbols",
    "symbol_rows",
    "names",
    "line_rows",
    "kernel_lines",
];
/// The address of the first map.
const MAP: u64 = 0xffff_0000_0000_0000;

/// The names of a map, in order.
#[derive(Default)]
struct Names(Vec<u8>);

impl Names {
    /// Adds a name behind two words; gives its position, which counts words.
    fn push(&mut self, name: &str, words: [u64; 2]) -> u64 {
        let position = self.0.len() as u64 / 8;
        self.0.extend(bytes(&words));
        self.0.extend(name.as_bytes());
        let end = self.0.len() / 8 * 8 + 8;
        self.0.resize(end, 0);
        position
    }
}

impl<'a> Kernel<'a> {
    fn new(memory: &mut Memory, world: &'a World, most: usize) -> Kernel<'a> {
        let mut block = vec![0; TEXT + 3 * most + 700];
        // What an earlier unwind has left.
        block[UNWIND..UNWIND + at::FILES as usize].fill(0xa5);
        let mut set = |at: usize, n: u64| block[at..at + 8].copy_from_slice(&n.to_le_bytes());
        for (n, (address, file, offset)) in world.frames.iter().enumerate() {
            set(ADDRESSES + 8 * n, *address);
            set(UNWIND + at::FILES as usize + 8 * n, *file);
            set(UNWIND + OFFSETS + 8 * n, *offset);
        }
        set(UNWIND + at::N as usize, world.frames.len() as u64);
        set(UNWIND + at::TGID as usize, world.process);
        set(COUNT, 8 * world.buffer as u64);
        set(FIRST, (world.first as u64).wrapping_mul(8));
        // Names begin in front of the end of a page, so that some are in two.
        let mut names = Names(vec![0; symbol_row::NAMES_VALUE as usize - 64]);
        let (mut symbol_rows, mut line_rows, mut files) = (vec![0], vec![0, 0], Vec::new());
        for file in &world.files {
            let component = file.path.rfind('/').map_or(0, |at| at + 1);
            let name = names.push(&file.path, [component as u64, file.size]);
            let rows = [symbol_rows.len() as u64, file.symbols.len() as u64];
            for (start, name, base, size) in &file.symbols {
                symbol_rows.push(u64::from(*start) | names.push(name, [*base, *size]) << 32);
            }
            let lines = [line_rows.len() as u64 / 2, file.lines.len() as u64];
            for (start, source, line) in &file.lines {
                let name = source.as_ref().map_or(0, |name| names.push(name, [0; 2]));
                line_rows.extend([u64::from(*start) | name << 32, u64::from(*line)]);
            }
            let element = [rows[0], rows[1], name, lines[0], lines[1]];
            files.push(memory.add(bytes(&element), RegionKind::Memory));
        }
        let mut kernel = vec![world.base, world.kernel.len() as u64];
        let mut sources = Vec::new();
        for (start, source, line) in &world.kernel {
            let element = 1 + world.kernel.len() + sources.len() / 16;
            let name = source.as_ref().map_or(0, |_| element as u64);
            if let Some(source) = source {
                sources.extend(source.as_bytes());
                sources.resize(sources.len() / 16 * 16 + 16, 0);
            }
            kernel.extend([u64::from(*start) | name << 32, u64::from(*line)]);
        }
        let page = u64::from(symbol_row::NAMES_VALUE);
        names
            .0
            .resize(names.0.len().next_multiple_of(page as usize), 0);
        let mut add = |content: Vec<u8>, size: u64| {
            let count = content.len() as u64 / size;
            (memory.add(content, RegionKind::Memory), size, count)
        };
        let maps = vec![
            add(bytes(&symbol_rows), 8),
            add(names.0, page),
            add(bytes(&line_rows), u64::from(symbol_row::LINE_ROW)),
            add(
                [bytes(&kernel), sources].concat(),
                u64::from(kernel_row::BYTES),
            ),
        ];
        Kernel {
            world,
            block: memory.add(block, RegionKind::Memory),
            state: memory.add(vec![0; 16 + 16 + 32 + 8192], RegionKind::Memory),
            format: 0,
            maps,
            files,
        }
    }

    /// The kernel's text for an address.
    fn symbol(&self, address: u64) -> String {
        symbol(self.world, address)
    }
}

fn symbol(world: &World, address: u64) -> String {
    let known = world.symbols.iter().find(|(at, _)| *at == address);
    known.map_or_else(|| format!("{address:#x}"), |(_, text)| text.clone())
}

/// What the kernel's `strtoul` takes from a text in base 16: the number and its characters.
fn parse(text: &[u8]) -> Option<(u64, usize)> {
    let mark = matches!(text, [b'0', b'x' | b'X', ..]);
    let digits = &text[if mark { 2 } else { 0 }..];
    let count = digits.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let number = u64::from_str_radix(std::str::from_utf8(&digits[..count]).ok()?, 16).ok()?;
    Some((number, count + if mark { 2 } else { 0 }))
}

impl Host for Kernel<'_> {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let invalid = (-22i64).cast_unsigned();
        let mut word = |at: u64, size| {
            let found = memory.read(at, size)?.iter().rev();
            Ok(found.fold(0u64, |n, b| n << 8 | u64::from(*b)))
        };
        match (helper, args) {
            (Helper::MapLookup, [MAP, key]) => {
                let file = (word(*key, 8)? as usize).wrapping_sub(1);
                Ok(self.files.get(file).copied().unwrap_or(0))
            }
            (Helper::MapLookup, [map, key]) => {
                let index = word(*key, 4)?;
                if map - MAP == self.world.broken as u64 {
                    return Ok(0);
                }
                let (address, size, count) = self.maps[(map - MAP - 1) as usize];
                Ok(if index < count {
                    address + index * size
                } else {
                    0
                })
            }
            (Helper::Format, [to, size, format, values, 8]) => {
                assert_eq!(memory.read(*format, 4)?, b"%pS\0");
                self.format =
                    u64::from_le_bytes(memory.read(*values, 8)?.try_into().unwrap_or_default());
                let text = self.symbol(self.format);
                let most = (*size as usize - 1).min(text.len());
                memory.write(*to, &[&text.as_bytes()[..most], b"\0"].concat())?;
                Ok(text.len() as u64 + 1)
            }
            (Helper::ParseNumber, [text, size, 16, to]) => {
                let Some((number, count)) = parse(memory.read(*text, *size as usize)?) else {
                    return Ok(invalid);
                };
                memory.write(*to, &number.to_le_bytes())?;
                Ok(count as u64)
            }
            _ => Reads.helper(memory, helper, args),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        Some(match of {
            MemoryOperand::Cpu(off) => self.block + u64::from(*off),
            MemoryOperand::State(off) => self.state + u64::from(*off),
            MemoryOperand::Map(name) => MAP + MAPS.iter().position(|m| m == name)? as u64,
            _ => return None,
        })
    }
}

/// What a run leaves: the text, and the counters.
#[derive(Debug, PartialEq)]
struct Left {
    result: u64,
    text: String,
    cut: u64,
    truncated: u64,
    unnamed: u64,
    first: u64,
    /// Whether the text is longer than the longest one.
    full: bool,
}

/// Runs a function in both forms; `input` fills the slot of a text, `ranges` the state.
fn run(
    world: &World,
    (most, lines): Made,
    (name, args): (&str, &[i64]),
    (input, ranges): (&[u8], &[u64]),
) -> Left {
    let args: Vec<u64> = args.iter().map(|n| n.cast_unsigned()).collect();
    functions((most, lines)).same(1_000_000, |mut machine| {
        let mut kernel = Kernel::new(&mut machine.memory, world, most);
        let write = |memory: &mut Memory, to, b: &[u8]| memory.write(to, b).expect("buffer");
        let at = kernel.block + INPUT_AT as u64;
        write(&mut machine.memory, at, input);
        write(&mut machine.memory, kernel.state + 16, &bytes(ranges));
        let result = machine.run(name, &args, &mut kernel);
        let result = result.unwrap_or_else(|e| panic!("{name}: {e}"));
        let block = machine.memory.region(kernel.block).unwrap_or_default();
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
        let text = &block[TEXT..TEXT + most];
        let end = text.iter().position(|b| *b == 0).unwrap_or(most);
        let full = word(LENGTH) as usize > most;
        assert!(
            full || word(LENGTH) as usize == end,
            "{} {end}",
            word(LENGTH)
        );
        assert!(full || text[end..].iter().all(|b| *b == 0), "{text:?}");
        Left {
            result,
            text: String::from_utf8_lossy(&text[..end]).into_owned(),
            cut: word(CUT),
            truncated: word(TRUNCATED),
            unnamed: word(UNNAMED),
            first: word(FIRST),
            full,
        }
    })
}

/// The last of the rows that starts at or before a position.
fn last_row<T>(rows: &[T], start: impl Fn(&T) -> u32, position: u64) -> Option<&T> {
    rows.iter().rfind(|row| u64::from(start(row)) <= position)
}

/// What the tables have for a frame.
#[derive(Default)]
struct Found<'a> {
    file: Option<&'a File>,
    symbol: Option<&'a Symbol>,
    line: Option<(&'a str, u32)>,
    position: u64,
    unnamed: bool,
}

impl World {
    /// Whether a name alone fills the shorter text, which is then not known to be cut.
    fn has_long_names(&self) -> bool {
        let lines = |lines: &[Line]| {
            lines
                .iter()
                .any(|l| l.1.as_ref().is_some_and(|s| s.len() >= SHORT))
        };
        self.files.iter().any(|file| {
            let mut symbols = file.symbols.iter();
            symbols.any(|s| s.1.len() >= SHORT) || lines(&file.lines)
        })
    }

    fn find(&self, index: usize, how: i32) -> Found<'_> {
        let (_, file, offset) = self.frames[index];
        let mut found = Found::default();
        if file == 0 {
            return found;
        }
        found.position = offset & (EXACT - 1);
        let tables = self.files.get((file as usize).wrapping_sub(1));
        let tables = tables.filter(|_| found.position < 1 << 31);
        let Some(tables) = tables else {
            found.unnamed = file != u64::from(VDSO);
            return found;
        };
        let returns = how & part::STACK != 0 && index != 0 && offset & EXACT == 0;
        let inside = (found.position as u32).wrapping_sub(u32::from(returns)) & 0x7fff_ffff;
        let behind = if offset & BEHIND != 0 { 1 << 31 } else { 0 };
        let key = u64::from(inside | behind);
        found.file = Some(tables);
        // A look-up that fails finds nothing, which is no loss.
        let read = |map: &str| !self.is_broken(map);
        found.symbol = last_row(&tables.symbols, |s| s.0, key).filter(|_| read("symbol_rows"));
        let line = last_row(&tables.lines, |l| l.0, key).filter(|_| read("line_rows"));
        found.line = line.and_then(|(_, source, line)| Some((source.as_deref()?, *line)));
        found
    }

    /// The text for a frame.
    fn frame(&self, index: usize, how: i32, lines: bool) -> String {
        let has = |bits: i32| how & bits != 0;
        let address = format!("{:#x}", self.frames[index].0);
        let found = self.find(index, how);
        let file = found.file.map(|file| match has(part::BASE) {
            true => file.path.rsplit('/').next().unwrap_or_default(),
            false => &file.path,
        });
        if has(part::ONLY) {
            return file.unwrap_or("<unknown>").to_owned();
        }
        let location = |how: i32| {
            found.line.map(|(source, line)| {
                let at = if how & part::AT != 0 { " at " } else { "" };
                match (how & part::FILE != 0, how & part::NUMBER != 0) {
                    (true, true) => format!("{at}{source}:{line}"),
                    (true, false) => format!("{at}{source}"),
                    (false, true) => format!("{at}{line}"),
                    _ => at.to_owned(),
                }
            })
        };
        let both = part::FILE | part::NUMBER;
        if lines && has(both) {
            return location(how).unwrap_or(address);
        }
        let at = match lines && has(part::AT) {
            true => location(both | part::AT).unwrap_or_default(),
            false => String::new(),
        };
        let module = file.filter(|_| has(part::MODULE | part::BASE));
        let size = |n: u64| match has(part::SIZE) {
            true => format!("/{n:#x}"),
            false => String::new(),
        };
        let mut text = if has(part::LINE) { " " } else { "" }.to_owned();
        let base = found.symbol.map_or(0, |s| s.2);
        let distance = found.position.wrapping_sub(base);
        match found.symbol.filter(|s| !s.1.is_empty()) {
            Some((_, name, _, bytes)) => {
                if has(part::LINE) {
                    text += &format!("{address} : ");
                }
                text += name;
                if has(part::OFFSET) {
                    text += &format!("+{distance:#x}{}{at}", size(*bytes));
                    text += &module.map_or_else(String::new, |file| format!(" [{file}]"));
                }
            }
            None => {
                text += &address;
                if let Some(name) = module {
                    let bytes = found.file.map_or(0, |file| file.size);
                    text += &format!(" [{name}+{distance:#x}{}]{at}", size(bytes));
                }
            }
        }
        if lines && has(part::LOCATION) {
            text += &format!("\t{}", location(both).unwrap_or(address));
        }
        text + if has(part::END) { "\n" } else { "" }
    }

    /// The frame in a mark.
    fn mark(&self, index: usize, how: i32) -> String {
        let (address, file, offset) = self.frames[index];
        let space = if how & frame::SPACE != 0 { " " } else { "" };
        let full = match file == 0 || how & frame::FULL != 0 {
            true => format!("{address:x}."),
            false => String::new(),
        };
        let second = if file == 0 {
            offset & EXACT | self.process
        } else {
            offset
        };
        format!("{space}{full}{file:x}.{second:x}")
    }

    /// The line of a kernel address.
    fn kernel_line(&self, address: u64, how: i32) -> String {
        let symbol = symbol(self, address);
        let bare = symbol.starts_with('0');
        if how != 0 {
            let kernel = if bare || symbol.ends_with(']') {
                ""
            } else {
                " [kernel]"
            };
            return format!(" {address:#x} : {symbol}{kernel}\n");
        }
        if bare {
            return format!("{symbol}\n");
        }
        let Some((name, rest)) = symbol.split_once('/') else {
            return symbol;
        };
        let module = rest
            .split_once(' ')
            .map_or("[kernel]", |(_, module)| module);
        format!("{name} {module}\n")
    }

    /// The position of a kernel address.
    fn kernel_location(&self, address: u64, how: i32) -> String {
        let position = address.wrapping_sub(self.base);
        let row = last_row(&self.kernel, |l| l.0, position);
        match row.filter(|_| position < 1 << 32 && !self.is_broken("kernel_lines")) {
            Some((_, Some(source), line)) => match how {
                location::FILE => source.clone(),
                location::NUMBER => line.to_string(),
                _ => format!("{source}:{line}"),
            },
            _ => format!("{address:#x}"),
        }
    }

    /// The addresses in the buffer from an index on, at most `most`, and whether the limit cuts them.
    fn buffer(&self, first: usize, most: i64) -> (Vec<u64>, bool) {
        let all = (0..BUFFER).map(|n| self.frames.get(n).map_or(0, |f| f.0));
        let all: Vec<u64> = all.take(self.buffer).skip(self.first).collect();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for address in all.iter().skip(first).take(most).take_while(|a| **a != 0) {
            if first + found.len() >= FRAMES {
                return (found, true);
            }
            found.push(*address);
        }
        (found, false)
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![9 => "[a-z_]{1,12}", 1 => "[a-z]{60,90}"]
}

fn sorted<T>(mut rows: Vec<T>, start: impl Fn(&T) -> u32) -> Vec<T> {
    rows.sort_by_key(&start);
    rows.dedup_by_key(|row| start(row));
    rows
}

/// Positions near each other, some behind the file's content.
fn position() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..40u32, 1 => (0..20u32).prop_map(|n| n | 1 << 31), 1 => any::<u32>()]
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let source = prop_oneof![4 => name().prop_map(Some), 1 => Just(None)];
    vec((position(), source, any::<u32>()), 0..6).prop_map(|rows| sorted(rows, |l| l.0))
}

fn file() -> impl Strategy<Value = File> {
    let text = prop_oneof![5 => name(), 1 => Just(String::new())];
    let symbols = vec((position(), text, 0..60u64, any::<u64>()), 1..7);
    let path = prop_oneof![4 => "(/[a-z]{1,5}){1,3}", 1 => "[a-z]{1,4}"];
    (path, any::<u64>(), symbols, lines()).prop_map(|(path, size, symbols, lines)| File {
        path,
        size,
        symbols: sorted(symbols, |s| s.0),
        lines,
    })
}

fn frame_of() -> impl Strategy<Value = (u64, u64, u64)> {
    let file = prop_oneof![1 => Just(0u64), 8 => 1..4u64, 1 => Just(9), 1 => Just(VDSO.into())];
    let exact = prop_oneof![Just(0), Just(EXACT)];
    let behind = prop_oneof![4 => Just(0), 1 => Just(BEHIND)];
    let at = prop_oneof![12 => 0..45u64, 1 => Just((1 << 31) - 1), 1 => Just(1 << 31), 1 => any::<u64>()];
    let bits = (at, exact, behind);
    let address = prop_oneof![12 => 1..24u64, 1 => Just(0), 3 => any::<u64>()];
    let offset = bits.prop_map(|(at, exact, behind)| at & (EXACT - 1) | exact | behind);
    (address, file, offset)
}

fn world() -> impl Strategy<Value = World> {
    let known = "[a-z_.]{2,9}(\\+0x[0-9a-f]{1,3}/0x[0-9a-f]{1,16}( \\[[a-z]{1,6}\\])?)?";
    let symbols = vec((1..24u64, known), 0..20);
    let numbers = (
        any::<u64>(),
        prop_oneof![Just(0u64), 1..30u64, any::<u64>()],
    );
    // None, or one of those behind the files and but the names.
    let broken = prop_oneof![9 => Just(usize::MAX), 1 => Just(1), 1 => Just(3), 1 => Just(4)];
    let buffer = (0..4usize, prop_oneof![Just(BUFFER), 0..BUFFER], broken);
    let frames = vec(frame_of(), 1..=FRAMES);
    (vec(file(), 3), frames, symbols, lines(), numbers, buffer).prop_map(
        |(files, frames, symbols, kernel, (process, base), (first, buffer, broken))| World {
            files,
            frames,
            process,
            symbols,
            base,
            kernel,
            first,
            buffer,
            broken,
        },
    )
}

/// A text as a block of the longest length keeps it.
fn limited(text: String, most: usize) -> String {
    text[..text.len().min(most)].to_owned()
}

const NOTHING: (&[u8], &[u64]) = (&[], &[]);

properties! {
    800 cases: fn user_frames_have_symbols_files_and_lines(
        world in world(), index in 0..9usize, how in 0..4096i32, kind in 0..3usize,
    ) {
        let (most, lines) = KINDS[kind];
        let args = [index as i64, how.into()];
        let left = run(&world, (most, lines), ("append_symbol", &args), NOTHING);
        // The buffer has an extra frame, for single addresses.
        let mut world = world;
        world.frames.resize(FRAMES + 1, (0, 0, 0));
        let expected = if index <= FRAMES { world.frame(index, how, lines) } else { String::new() };
        prop_assert!(world.has_long_names() || left.full == (expected.len() > most));
        prop_assert_eq!(left.text, limited(expected, most));
        let unnamed = index <= FRAMES && world.find(index, how).unnamed;
        prop_assert_eq!(left.unnamed, u64::from(unnamed));
    }

    800 cases: fn user_frames_follow_each_other(
        world in world(), how in 0..4096i32, first in 0..7usize, most in -1..8i64, marks in any::<bool>(), long in any::<bool>(),
    ) {
        let count = usize::try_from(most).unwrap_or(usize::MAX);
        let frames = (first..world.frames.len()).take(count);
        let (name, how) = if marks { ("append_frames", how & 3) } else { ("append_symbols", how) };
        let text = |n: usize| match marks {
            true => world.mark(n, if n == first { how } else { how | frame::SPACE }),
            false => world.frame(n, how, true),
        };
        let expected: String = frames.map(text).collect();
        let args = [how.into(), first as i64, most];
        let longest = if long { LONG } else { SHORT };
        let left = run(&world, (longest, true), (name, &args), NOTHING);
        prop_assert_eq!(left.result, 0);
        prop_assert!(world.has_long_names() || left.full == (expected.len() > longest));
        prop_assert_eq!(left.text, limited(expected, longest));
    }

    300 cases: fn the_buffer_s_addresses_become_words_or_lines(
        world in world(), more in vec(1..24u64, 0..12), how in 0..3i32, mark in any::<bool>(),
        first in 0..7usize, most in -1..9i64, long in any::<bool>(),
    ) {
        // More frames than the limit, which the buffer has because some are the probe's.
        let mut world = world;
        world.frames.extend(more.iter().map(|address| (*address, 0, 0)));
        world.frames.truncate(BUFFER);
        let limit = if long { LONG } else { SHORT };
        let (addresses, cut) = world.buffer(first, most);
        let mark = if mark { flag::MARK } else { 0 };
        let between = how == 0;
        let spaced = |(n, address): (usize, &u64)| {
            let space = |here: bool| if here { " " } else { "" };
            let text = if mark == 0 { format!("{address:x}") } else { format!("{address:#x}") };
            format!("{}{text}{}", space(between && n != 0), space(!between))
        };
        let expected: String = addresses.iter().enumerate().map(spaced).collect();
        let bits = if between { address::BETWEEN } else { address::BEHIND } | mark;
        let args = [bits.into(), first as i64, most];
        let left = run(&world, (limit, true), ("append_stack", &args), NOTHING);
        prop_assert_eq!(left.text, limited(expected, limit));
        prop_assert_eq!(left.cut, u64::from(cut));
        let how = how & line::LINE;
        let args = [how.into(), first as i64, most];
        let left = run(&world, (LONG, true), ("kernel_frame_lines", &args), NOTHING);
        let expected: String = addresses.iter().map(|a| world.kernel_line(*a, how)).collect();
        prop_assert_eq!(left.text, expected);
    }

    300 cases: fn single_frames_report_the_end(world in world(), index in 0..12usize, line in any::<bool>()) {
        let (addresses, cut) = world.buffer(index, 1);
        let expected = match (addresses.first(), line) {
            (Some(address), true) => world.kernel_line(*address, 0),
            (Some(address), false) => format!("{address:x}"),
            (None, _) => String::new(),
        };
        let name = if line { "kernel_frame_line" } else { "append_address" };
        let left = run(&world, (LONG, true), (name, &[index as i64, 0]), NOTHING);
        prop_assert_eq!(left.text, expected);
        prop_assert_eq!((left.result, left.cut), (u64::from(addresses.is_empty()), u64::from(cut)));
    }

    300 cases: fn a_symbol_that_does_not_fit_is_counted(world in world(), long in "[a-z]{55,80}", how in 0..2i32) {
        let mut world = world;
        world.symbols.insert(0, (7, format!("{long}+0x1/0x2")));
        let args = [7, how.into()];
        let left = run(&world, (SHORT, true), ("kernel_line", &args), NOTHING);
        let full = long.len() + 8 >= SHORT;
        // The line's address is in front of the symbol.
        prop_assert_eq!(left.truncated, u64::from(full && how == 0));
        if full && how == 0 {
            prop_assert_eq!(left.text, limited(format!("{long}+0x1/0x2"), SHORT - 1));
        }
    }

    300 cases: fn addresses_in_a_text_have_positions(
        world in world(),
        words in vec(prop_oneof![
            4 => "(0x)?[0-9a-f]{1,3}", 1 => "[0-9a-f]{15,17}", 1 => "[0-9a-fxg]{1,4}", 1 => Just("0x".to_owned()), 1 => "[!g-z]{0,3}",
        ], 0..9),
        spaces in vec("[ \t\n]{1,3}", 11),
        how in 1..4i32,
        front in any::<bool>(),
    ) {
        // Addresses at the end of what the kernel's lines can have.
        let mut words = words;
        let ends = [u64::from(u32::MAX), 1 << 32].map(|far| format!("{:x}", world.base.wrapping_add(far)));
        words.splice(0..0, ends);
        let text: String = words.iter().zip(&spaces).map(|(word, space)| match front {
            true => format!("{space}{word}"),
            false => format!("{word}{space}"),
        }).collect();
        let text = limited(text, INPUT - 1);
        let numbers = text.split(|c: char| c <= ' ').filter_map(|word| {
            let (number, count) = parse(word.as_bytes())?;
            (count == word.len()).then_some(number)
        });
        let expected: String = numbers.map(|n| world.kernel_location(n, how)).collect();
        let args = [INPUT_AT as i64, how.into()];
        let name = format!("kernel_locations_of_{INPUT}");
        let left = run(&world, (LONG, true), (&name, &args), (text.as_bytes(), &[]));
        prop_assert_eq!(left.text, expected);
    }

    1000 cases: fn the_probe_s_own_frames_are_skipped(
        world in world(), addresses in vec(1..20u64, BUFFER), ends in [1..20u64, 1..20u64, 1..20u64],
        sizes in [0..5u64, 0..5u64, 0..5u64], other in 0..2u64,
    ) {
        let mut world = world;
        // What an earlier stack has left there.
        world.first = usize::MAX / 8;
        // Addresses of the kernel, some of which differ in the upper half only.
        let far = |n: u64| n + ((0xffff_ffff - n % 3 / 2) << 32);
        let addresses: Vec<u64> = addresses.into_iter().map(far).collect();
        world.frames = addresses.iter().map(|a| (*a, 0, 0)).collect();
        let ends = ends.map(far);
        let ranges: Vec<(u64, u64)> = ends.iter().zip(sizes).map(|(end, size)| (end.saturating_sub(size), *end)).collect();
        let is = |n: usize, address: u64| (ranges[n].0..ranges[n].1).contains(&address);
        let known = &addresses[..world.buffer];
        let run_at = known.iter().take(OWN_FRAMES as usize).rposition(|a| is(0, *a));
        let mut first = run_at.map_or(0, |at| at + 1);
        for _ in 0..2 {
            if known.get(first).is_some_and(|a| is(1, *a) || is(2, *a)) {
                first += 1;
            }
        }
        // The tracepoint's ranges are those of the point before or after others.
        let (run_range, point) = (ranges[0], [ranges[1].0, ranges[1].1, ranges[2].0, ranges[2].1]);
        let mut state = vec![run_range.0, run_range.1, 0, 0, 0, 0, 0, 0, 0, 0];
        let at = 2 + 4 * other as usize;
        state[at..at + 4].copy_from_slice(&point);
        let words = 16 + u64::from(stack_words::POINTS) + other * u64::from(stack_words::POINT);
        let left = run(&world, (LONG, true), ("stack_first", &[words as i64]), (&[], &state));
        prop_assert_eq!(left.first, 8 * first as u64);
    }
}
