//! Unwind rows in the form that kernel handlers search ([`spile_layout::unwind_row`]).

use spile_abi::Abi;
use spile_cast::Cast;
use spile_debuginfo::DebugFile;
use spile_debuginfo::cfi::{self, Cfa, SavedRule, UnwindRow};
use spile_layout::unwind_row::kind;

/// Bytes of a word.
const WORD: i32 = 8;

/// A file's rows. If much of its code has none, as without `.eh_frame`, rows for functions' first
/// instructions are added.
fn rows_of(module: &DebugFile, abi: &Abi) -> Vec<UnwindRow> {
    let rows = cfi::rows(module.image(), None);
    let code = module.image().segments().iter().filter(|s| s.executable);
    let code: u64 = code.map(|s| s.file_size).sum();
    if cfi::described_bytes(&rows) >= code / 2 {
        return rows;
    }
    let symbols = module.symbols();
    let functions = symbols.functions().map(|s| s.address);
    cfi::with_entries(rows, functions.collect(), abi)
}

/// A file's rows in the form that kernel handlers search, in order.
pub(super) fn packed(module: &DebugFile) -> Vec<u64> {
    let image = module.image();
    let Some(abi) = image.abi() else {
        return Vec::new();
    };
    pack(&rows_of(module, abi), abi, |address| {
        let before = || image.file_offset(address.wrapping_sub(1));
        let behind = || before().and_then(|o| o.checked_add(1));
        image.file_offset(address).or_else(behind)
    })
}

/// Packs rows; `offset` maps an address to its offset in the file.
fn pack(rows: &[UnwindRow], abi: &Abi, offset: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let mut last = None;
    for row in rows {
        let Some(start) = offset(row.start).and_then(|o| u32::try_from(o).ok()) else {
            continue;
        };
        let rest = packed_rule(row, abi);
        if last == Some(rest) {
            continue;
        }
        last = Some(rest);
        out.push(rest | u64::from(start));
    }
    out.sort_by_key(|r| r.low32());
    out
}

/// A row without its start.
pub(super) fn packed_rule(row: &UnwindRow, abi: &Abi) -> u64 {
    let (how, cfa, saved) = rule(row, abi);
    u64::from(how) << 56 | u64::from(saved) << 48 | u64::from(cfa.cast_unsigned()) << 32
}

/// Kind, CFA and saved frame pointer of a row.
fn rule(row: &UnwindRow, abi: &Abi) -> (u8, i16, u8) {
    const NONE: (u8, i16, u8) = (kind::NONE, 0, 0);
    if row.signal {
        return (kind::SIGNAL, 0, 0);
    }
    let saved = match row.frame_pointer {
        SavedRule::AtCfa(offset) if offset < 0 && offset % WORD == 0 => {
            u8::try_from(offset.unsigned_abs() / WORD.unsigned_abs()).ok()
        }
        SavedRule::AtCfa(_) | SavedRule::Register(_) | SavedRule::AtRegister { .. } => None,
        SavedRule::Same | SavedRule::Undefined | SavedRule::Other => Some(0),
    };
    let followed = match (row.ra, row.frame_pointer) {
        (SavedRule::Undefined, _) => return (kind::END, 0, 0),
        (SavedRule::AtCfa(offset), _) if abi.link.is_none() => {
            i64::from(offset) == -abi.calls.popped
        }
        // In the link register, or beside the frame pointer.
        (SavedRule::Same, _) => abi.link.is_some() && saved == Some(0),
        (SavedRule::AtCfa(offset), SavedRule::AtCfa(frame)) => offset == frame + WORD,
        _ => false,
    };
    let Some(saved) = saved.filter(|_| followed) else {
        return NONE;
    };
    let words = |offset: i32| (offset % WORD == 0).then(|| i16::try_from(offset / WORD).ok());
    let (stack, frame) = (abi.stack_pointer, abi.frame_pointer);
    let (how, offset) = match row.cfa {
        Cfa::Register { register, offset } if register == stack => (kind::STACK, offset),
        Cfa::Register { register, offset } if register == frame => (kind::FRAME, offset),
        Cfa::Deref { register, offset } if register == stack => (kind::AT_STACK, offset),
        Cfa::Deref { register, offset } if register == frame => (kind::AT_FRAME, offset),
        Cfa::Plt { byte } => return (kind::PLT, i16::from(byte), 0),
        _ => return NONE,
    };
    words(offset)
        .flatten()
        .map_or(NONE, |cfa| (how, cfa, saved))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use spile_abi::X86_64;
    use spile_debuginfo::SearchPaths;

    use super::*;

    fn saved() -> impl Strategy<Value = SavedRule> {
        prop_oneof![
            Just(SavedRule::Same),
            Just(SavedRule::Undefined),
            Just(SavedRule::Other),
            any::<u16>().prop_map(SavedRule::Register),
            any::<i32>().prop_map(SavedRule::AtCfa),
            (-4..0).prop_map(|words| SavedRule::AtCfa(8 * words)),
            (any::<u16>(), any::<i32>())
                .prop_map(|(register, offset)| SavedRule::AtRegister { register, offset }),
        ]
    }

    fn row() -> impl Strategy<Value = UnwindRow> {
        let register = prop_oneof![
            Just(X86_64.stack_pointer),
            Just(X86_64.frame_pointer),
            any::<u16>()
        ];
        let offset = prop_oneof![any::<i32>(), (-2..99).prop_map(|words| 8 * words)];
        let cfa = (0..4, register, offset, any::<u8>()).prop_map(
            |(how, register, offset, byte)| match how {
                0 => Cfa::Unknown,
                1 => Cfa::Register { register, offset },
                2 => Cfa::Deref { register, offset },
                _ => Cfa::Plt { byte },
            },
        );
        let all = (0..300u64, cfa, saved(), saved(), any::<bool>());
        all.prop_map(|(start, cfa, frame_pointer, ra, signal)| UnwindRow {
            start,
            cfa,
            frame_pointer,
            ra,
            signal,
        })
    }

    proptest! {
        /// A kernel handler's search for an address finds the address's row.
        #[test]
        fn packed_rows_say_the_same(mut rows in prop::collection::vec(row(), 0..60), at in 0..320u64) {
            rows.sort_by_key(|r| r.start);
            rows.dedup_by_key(|r| r.start);
            let packed = pack(&rows, &X86_64, |a| Some(a + 0x1000));
            prop_assert!(packed.is_sorted_by_key(|r| *r as u32));
            let row = rows[..rows.partition_point(|r| r.start <= at)].last();
            let found = packed.partition_point(|r| u64::from(*r as u32) <= at + 0x1000);
            let found = packed[..found].last().map(|r| {
                ((r >> 56) as u8, (r >> 32) as u16 as i16, (r >> 48) as u8)
            });
            prop_assert_eq!(found, row.map(|row| rule(row, &X86_64)));
        }
    }

    #[test]
    fn unwind_rows_of_this_program_are_ordered() {
        let path = Path::new("/proc/self/exe");
        let module = DebugFile::open(path, &SearchPaths::from_env()).expect("own program");
        let rows = packed(&module);
        assert!(rows.len() > 1000, "{}", rows.len());
        assert!(rows.is_sorted_by_key(|r| *r as u32));
        let of = |row| rule(&row, &X86_64);
        let row = |cfa, frame_pointer, ra| UnwindRow {
            start: 0,
            cfa,
            frame_pointer,
            ra,
            signal: false,
        };
        let sp = |offset| Cfa::Register {
            register: X86_64.stack_pointer,
            offset,
        };
        let ra = SavedRule::AtCfa(-8);
        assert_eq!(
            of(row(sp(16), SavedRule::AtCfa(-16), ra)),
            (kind::STACK, 2, 2)
        );
        assert_eq!(of(row(sp(12), SavedRule::Same, ra)), (kind::NONE, 0, 0));
        assert_eq!(
            of(row(sp(8), SavedRule::Same, SavedRule::Undefined)),
            (kind::END, 0, 0)
        );
    }
}
