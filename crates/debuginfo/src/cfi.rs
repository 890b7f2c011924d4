//! Call frame information: finds the caller's frame from any instruction.
//!
//! `.eh_frame`, and `.debug_frame` for code that it omits, become compact rows that an unwinder
//! without an interpreter can follow.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
};
use spile_cast::Cast;

use spile_abi::Abi;

use crate::image::Image;

type R<'a> = EndianSlice<'a, LittleEndian>;

/// Maximum length of a CIE: its instructions are run again for each of its FDEs.
const MAX_CIE: usize = 1024;
/// Maximum number of rows from one file.
const MAX_ROWS: usize = 16 << 20;

/// The rule for the canonical frame address: the stack pointer before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// Unknown, or no code here.
    Unknown,
    /// Register plus offset.
    Register {
        /// DWARF number.
        register: u16,
        /// Offset in bytes.
        offset: i32,
    },
    /// The word at register plus offset (signal frames, realigned stacks).
    Deref {
        /// DWARF number.
        register: u16,
        /// Offset in bytes.
        offset: i32,
    },
    /// Stubs of the procedure linkage table that push a word: the stack pointer plus the return address, and
    /// a word more from the given byte of each 16-byte stub on (`((pc & 15) >= byte) << 3`).
    Plt {
        /// 11, or 10 in some linkers' stubs.
        byte: u8,
    },
}

/// The location of the caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SavedRule {
    /// Still in the register.
    Same,
    /// In memory at the canonical frame address plus an offset.
    AtCfa(i32),
    /// In memory at a register's value plus an offset (signal frames).
    AtRegister {
        /// DWARF number.
        register: u16,
        /// Offset in bytes.
        offset: i32,
    },
    /// In another register.
    Register(u16),
    /// Nowhere; for the return address this marks the outermost frame.
    Undefined,
    /// By an unsupported rule.
    Other,
}

/// The unwind rules from an address on, up to the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnwindRow {
    /// First address of the row.
    pub start: u64,
    /// The canonical frame address.
    pub cfa: Cfa,
    /// The location of the caller's frame pointer.
    pub frame_pointer: SavedRule,
    /// The location of the return address.
    pub ra: SavedRule,
    /// Whether it is a signal frame: its return address is that of an interrupted instruction, not
    /// of a call.
    pub signal: bool,
}

impl UnwindRow {
    /// The row of a function's first instruction.
    fn entry(start: u64, abi: &Abi) -> UnwindRow {
        UnwindRow {
            cfa: frame_at_entry(abi),
            ra: match abi.link {
                Some(_) => SavedRule::Same,
                None => SavedRule::AtCfa(-abi.calls.popped.fit::<i32>()),
            },
            ..UnwindRow::gap(start)
        }
    }

    fn gap(start: u64) -> UnwindRow {
        UnwindRow {
            start,
            cfa: Cfa::Unknown,
            frame_pointer: SavedRule::Same,
            ra: SavedRule::Other,
            signal: false,
        }
    }
}

/// The `.eh_frame` of a file, and the base addresses of its pointers.
fn eh_frame(image: &Image) -> Option<(EhFrame<R<'static>>, BaseAddresses)> {
    let (address, bytes) = image.loaded_section(".eh_frame")?;
    let text = image.loaded_section(".text").map_or(0, |t| t.0);
    let bases = BaseAddresses::default()
        .set_eh_frame(address)
        .set_text(text);
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    Some((section, bases))
}

/// The rows of a file and of its separate debugging information in order of address. Where there is
/// no information, a row has [`Cfa::Unknown`]. Adjacent rows differ.
#[must_use]
pub fn rows(image: &Image, debug: Option<&Image>) -> Vec<UnwindRow> {
    let mut pieces = Vec::new();
    let Some(abi) = image.abi() else {
        return Vec::new();
    };
    if let Some((section, bases)) = eh_frame(image) {
        collect(&section, &bases, abi, &mut pieces);
    }
    for image in std::iter::once(image).chain(debug.filter(|d| d.path() != image.path())) {
        if let Some(bytes) = image.section(".debug_frame") {
            let mut section = DebugFrame::new(&bytes, LittleEndian);
            section.set_address_size(8);
            collect(&section, &BaseAddresses::default(), abi, &mut pieces);
        }
    }
    // The first description of an address wins; `.eh_frame` came first and the sort is stable.
    pieces.sort_by_key(|p: &FunctionRows| p.start);
    join(pieces)
}

/// The row at one address of a file; other rows are not read if the file has a table of its
/// functions.
#[must_use]
pub fn row_for(image: &Image, debug: Option<&Image>, address: u64) -> Option<UnwindRow> {
    let row = by_header(image, address);
    row.or_else(|| row_at(&rows(image, debug), address).copied())
}

/// The row at one address through `.eh_frame_hdr`; `None` also if the file has no such table.
#[must_use]
pub fn by_header(image: &Image, address: u64) -> Option<UnwindRow> {
    let abi = image.abi()?;
    with_header(image, address, |section, bases, fde| {
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(section, bases, &mut context, address)
            .ok()?;
        Some(unwind_row(section, row, abi, fde))
    })
}

/// The rows of the function at an address through `.eh_frame_hdr`; none also if the file has no such table.
pub(crate) fn function_rows(image: &Image, address: u64) -> Vec<UnwindRow> {
    let rows = image.abi().and_then(|abi| {
        with_header(image, address, |section, bases, fde| {
            let mut context = UnwindContext::new();
            Some(entry_rows(section, bases, abi, fde, &mut context))
        })
    });
    rows.unwrap_or_default()
}

/// Start and end of the function, or the part of one, that an entry of the table describes. The description of what a
/// signal's handler returns to begins a byte in front of it: unwinders look for the byte before a return address.
#[must_use]
pub fn function_at(image: &Image, address: u64) -> Option<(u64, u64)> {
    with_header(image, address, |_, _, fde| {
        let start = fde.initial_address();
        let end = start.checked_add(fde.len())?;
        Some((start + u64::from(fde.is_signal_trampoline()), end))
    })
}

/// Applies `f` to the entry for an address in `.eh_frame_hdr`.
fn with_header<T>(
    image: &Image,
    address: u64,
    use_it: impl FnOnce(
        &EhFrame<R<'static>>,
        &BaseAddresses,
        &gimli::FrameDescriptionEntry<R<'static>>,
    ) -> Option<T>,
) -> Option<T> {
    let (section, bases) = eh_frame(image)?;
    let (header_start, hdr) = image.loaded_section(".eh_frame_hdr")?;
    let bases = bases.set_eh_frame_hdr(header_start);
    let header = gimli::EhFrameHdr::new(hdr, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    // Not by `fde_for_address`, whose subtraction is unchecked (gimli 0.34).
    let entry = header.table()?.lookup(address, &bases).ok()?;
    let offset = entry.direct().ok()?.checked_sub(bases.eh_frame.section?)?;
    let offset = gimli::EhFrameOffset(usize::try_from(offset).ok()?);
    let fde = section
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()
        .filter(|fde| fde.contains(address))?;
    use_it(&section, &bases, &fde)
}

/// Adds rows for the first instructions of functions (`entries`) without a description: the return
/// address is where the call left it. `rows` are those of [`rows`].
#[must_use]
pub fn with_entries(mut rows: Vec<UnwindRow>, mut entries: Vec<u64>, abi: &Abi) -> Vec<UnwindRow> {
    entries.sort_unstable();
    entries.dedup();
    entries.retain(|e| row_at(&rows, *e).is_none());
    let mut more = Vec::new();
    for start in entries {
        more.push(UnwindRow::entry(start, abi));
        let next = start.saturating_add(1);
        if row_at(&rows, next).is_none() {
            more.push(UnwindRow::gap(next));
        }
    }
    rows.extend(more);
    rows.sort_by_key(|r| r.start);
    rows
}

/// Number of bytes that the rows describe.
#[must_use]
pub fn described_bytes(rows: &[UnwindRow]) -> u64 {
    let described = rows.windows(2).filter(|w| w[0].cfa != Cfa::Unknown);
    described.fold(0, |sum, w| {
        sum.saturating_add(w[1].start.saturating_sub(w[0].start))
    })
}

/// The row among sorted ones that contains an address.
#[must_use]
pub fn row_at(rows: &[UnwindRow], address: u64) -> Option<&UnwindRow> {
    let i = rows.partition_point(|r| r.start <= address);
    rows.get(i.checked_sub(1)?)
        .filter(|r| r.cfa != Cfa::Unknown)
}

/// The rows of one function.
struct FunctionRows {
    start: u64,
    end: u64,
    rows: Vec<UnwindRow>,
}

/// Adds the rows of a section, function by function. Damaged functions are left out; damage that
/// hides the start of the next one ends the section.
fn collect<'a, S>(section: &S, bases: &BaseAddresses, abi: &Abi, pieces: &mut Vec<FunctionRows>)
where
    S: UnwindSection<R<'a>>,
{
    let mut cies = HashMap::new();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(bases);
    let mut total: usize = pieces.iter().map(|p| p.rows.len()).sum();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|section, bases, offset| {
            let key: usize = gimli::UnwindOffset::into(offset);
            if let Some(cie) = cies.get(&key) {
                return Ok::<gimli::CommonInformationEntry<R<'a>>, gimli::Error>(Clone::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(key, cie.clone());
            Ok(cie)
        });
        let Ok(fde) = fde else { continue };
        if fde.cie().entry_len() > MAX_CIE || fde.len() == 0 || total > MAX_ROWS {
            continue;
        }
        let rows = entry_rows(section, bases, abi, &fde, &mut context);
        total += rows.len();
        pieces.push(FunctionRows {
            start: fde.initial_address(),
            end: fde.initial_address().saturating_add(fde.len()),
            rows,
        });
    }
}

/// The rows of an entry; none if it is damaged.
fn entry_rows<'a, S: UnwindSection<R<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    abi: &Abi,
    fde: &gimli::FrameDescriptionEntry<R<'a>>,
    context: &mut UnwindContext<usize>,
) -> Vec<UnwindRow> {
    let mut rows = Vec::new();
    let Ok(mut table) = fde.rows(section, bases, context) else {
        return rows;
    };
    while let Ok(Some(row)) = table.next_row() {
        let next = unwind_row(section, row, abi, fde);
        if rows.last().is_none_or(|l: &UnwindRow| l.start < next.start) {
            rows.push(next);
        }
    }
    rows
}

/// The compact form of a row.
fn unwind_row<'a, S: UnwindSection<R<'a>>>(
    section: &S,
    row: &gimli::UnwindTableRow<usize>,
    abi: &Abi,
    fde: &gimli::FrameDescriptionEntry<R<'a>>,
) -> UnwindRow {
    let saved = |register| saved(section, row.register(register).as_ref());
    UnwindRow {
        start: row.start_address(),
        cfa: cfa(section, row.cfa(), abi),
        frame_pointer: saved(gimli::Register(abi.frame_pointer)),
        ra: saved(fde.cie().return_address_register()),
        signal: fde.is_signal_trampoline(),
    }
}

/// The frame at a function's first instruction, and at its return.
pub(crate) fn frame_at_entry(abi: &Abi) -> Cfa {
    Cfa::Register {
        register: abi.stack_pointer,
        offset: abi.calls.popped.fit(),
    }
}

/// Joins the functions' rows into one sequence, with gaps marked.
fn join(pieces: Vec<FunctionRows>) -> Vec<UnwindRow> {
    let mut out: Vec<UnwindRow> = Vec::new();
    let mut push = |row: UnwindRow| {
        let same = out.last().is_some_and(|l| {
            UnwindRow {
                start: row.start,
                ..*l
            } == row
        });
        if !same {
            out.push(row);
        }
    };
    let mut end = None;
    for piece in pieces {
        if let Some(end) = end {
            if piece.start < end {
                continue;
            }
            if piece.start > end {
                push(UnwindRow::gap(end));
            }
        }
        for row in piece.rows {
            if row.start < piece.end {
                push(row);
            }
        }
        end = Some(piece.end);
    }
    if let Some(end) = end {
        push(UnwindRow::gap(end));
    }
    out
}

fn cfa<'a, S: UnwindSection<R<'a>>>(section: &S, rule: &CfaRule<usize>, abi: &Abi) -> Cfa {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } => match i32::try_from(*offset) {
            Ok(offset) => Cfa::Register {
                register: register.0,
                offset,
            },
            Err(_) => Cfa::Unknown,
        },
        CfaRule::Expression(e) => {
            cfa_expression(&operations(section, e), abi).unwrap_or(Cfa::Unknown)
        }
    }
}

/// Recognises the forms of expressions that compilers and linkers emit.
fn cfa_expression(ops: &[Operation<R<'_>>], abi: &Abi) -> Option<Cfa> {
    let [
        Operation::RegisterOffset {
            register, offset, ..
        },
        rest @ ..,
    ] = ops
    else {
        return None;
    };
    let (register, offset) = (register.0, i32::try_from(*offset).ok()?);
    match rest {
        [] => Some(Cfa::Register { register, offset }),
        [Operation::Deref { size: 8, .. }] => Some(Cfa::Deref { register, offset }),
        [
            Operation::RegisterOffset { .. },
            mask,
            Operation::And,
            byte,
            Operation::Ge,
            shift,
            Operation::Shl,
            Operation::Plus,
        ] if frame_at_entry(abi) == (Cfa::Register { register, offset })
            && small(mask) == Some(15)
            && small(shift) == Some(3) =>
        {
            Some(Cfa::Plt {
                byte: u8::try_from(small(byte)?).ok()?,
            })
        }
        _ => None,
    }
}

fn small(op: &Operation<R<'_>>) -> Option<u64> {
    match op {
        Operation::UnsignedConstant { value } => Some(*value),
        Operation::SignedConstant { value } => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// The first operations of an expression; longer ones are of no supported form.
fn operations<'a, S: UnwindSection<R<'a>>>(
    section: &S,
    expression: &UnwindExpression<usize>,
) -> Vec<Operation<R<'a>>> {
    let encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    let mut ops = Vec::new();
    if let Ok(e) = expression.get(section) {
        let mut iter = e.operations(encoding);
        while let Ok(Some(op)) = iter.next() {
            ops.push(op);
            if ops.len() > 16 {
                break;
            }
        }
    }
    ops
}

/// A register without a rule keeps its value.
fn saved<'a, S: UnwindSection<R<'a>>>(
    section: &S,
    rule: Option<&RegisterRule<usize>>,
) -> SavedRule {
    let small = |o: i64| i32::try_from(o).ok();
    let Some(rule) = rule else {
        return SavedRule::Same;
    };
    match rule {
        RegisterRule::SameValue => SavedRule::Same,
        RegisterRule::Undefined => SavedRule::Undefined,
        RegisterRule::Offset(o) => small(*o).map_or(SavedRule::Other, SavedRule::AtCfa),
        RegisterRule::Register(r) => SavedRule::Register(r.0),
        RegisterRule::Expression(e) => match operations(section, e)[..] {
            [
                Operation::RegisterOffset {
                    register, offset, ..
                },
            ] => small(offset).map_or(SavedRule::Other, |offset| SavedRule::AtRegister {
                register: register.0,
                offset,
            }),
            _ => SavedRule::Other,
        },
        _ => SavedRule::Other,
    }
}
