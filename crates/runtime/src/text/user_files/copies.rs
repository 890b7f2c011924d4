//! User stacks that kernel handlers could not unwind to the end, because a file had just been loaded:
//! the unwind continues here in a copy of the stack, with the same rows.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use spile_abi::{Abi, HOST};
use spile_cast::Cast;
use spile_debuginfo::cfi;
use spile_layout::{EXACT, copy, unwind_row::kind};

use super::packed_rows::{packed, packed_rule};
use super::{FrameLocation, UserFiles};
use crate::shared::ring_record::OutputRecord;

/// Number of copies that are remembered.
const KEEP: usize = 4096;
const PAGE: u64 = spile_abi::PAGE as u64;

/// The frames found in copies, by the number of the copy.
#[derive(Default)]
pub(super) struct StackCopies {
    frames: HashMap<u64, Vec<FrameLocation>>,
    order: VecDeque<u64>,
}

/// An executable mapping.
struct Mapping {
    start: u64,
    end: u64,
    /// The difference between an address and its offset in the file.
    offset: u64,
    file: u64,
}

/// Registers of a frame, and the stack.
struct StackUnwind<'a> {
    abi: &'static Abi,
    ip: u64,
    /// The address to look up.
    lookup: u64,
    sp: u64,
    bp: u64,
    /// The link register of the innermost frame, if the processor has one and it is known.
    link: Option<u64>,
    base: u64,
    words: &'a [u64],
}

impl StackUnwind<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        let (word, part) = (usize::try_from(offset / 8).ok()?, offset % 8);
        let low = *self.words.get(word)?;
        if part == 0 {
            return Some(low);
        }
        let high = *self.words.get(word + 1)?;
        Some(low >> (8 * part) | high << (64 - 8 * part))
    }

    /// Steps to the caller by a frame pointer.
    fn by_frame_pointer(&mut self) -> Option<()> {
        if self.bp < self.sp || !self.bp.is_multiple_of(8) {
            return None;
        }
        let (bp, ip) = (self.word(self.bp)?, self.word(self.bp + 8)?);
        (self.sp, self.bp, self.ip) = (self.bp + 16, bp, ip);
        self.lookup = ip.wrapping_sub(1);
        Some(())
    }

    /// Steps to the caller by a row, as `user_step` of kernel handlers does. Returns whether the
    /// row is that of a signal frame; `None` at the end.
    fn by_row(&mut self, row: Option<u64>) -> Option<bool> {
        let Some(row) = row else {
            return self.by_frame_pointer().map(|()| false);
        };
        let (how, saved) = ((row >> 56) as u8, (row >> 48).low8());
        let cfa = i64::from((row >> 32).low16().cast_signed());
        let from = |register: u64| register.wrapping_add_signed(8 * cfa);
        let cfa = match how {
            kind::END => return None,
            kind::SIGNAL => {
                let frame = &self.abi.unwind.signal_frame;
                let word = |offset: i32| self.word(self.sp.wrapping_add_signed(offset.into()));
                let [bp, ip] = [frame.frame_pointer, frame.program_counter].map(word);
                let (sp, link) = (word(frame.stack_pointer)?, frame.link.and_then(word));
                (self.bp, self.ip, self.sp, self.link) = (bp?, ip?, sp, link);
                self.lookup = self.ip;
                return Some(true);
            }
            kind::STACK => from(self.sp),
            kind::FRAME => from(self.bp),
            kind::AT_STACK => self.word(from(self.sp))?,
            kind::AT_FRAME => self.word(from(self.bp))?,
            kind::PLT => {
                let later = i64::try_from(self.ip & 15).is_ok_and(|byte| byte >= cfa);
                self.sp + if later { 16 } else { 8 }
            }
            _ => return self.by_frame_pointer().map(|()| false),
        };
        let link = self.link.take().filter(|_| saved == 0);
        // Callers have higher stack pointers, except those of functions without a frame.
        if cfa < self.sp || cfa == self.sp && link.is_none() {
            return None;
        }
        let location = cfa.wrapping_sub(8 * u64::from(saved));
        let ip = match self.abi.link {
            None => self.word(cfa.wrapping_sub_signed(self.abi.calls.popped))?,
            Some(_) if saved == 0 => link?,
            Some(_) => self.word(location.wrapping_add(8))?,
        };
        if saved != 0 {
            self.bp = self.word(location)?;
        }
        (self.ip, self.sp) = (ip, cfa);
        self.lookup = self.ip.wrapping_sub(1);
        Some(false)
    }
}

/// The file and offset of an address.
fn location_of(maps: &[Mapping], address: u64, process: u64) -> FrameLocation {
    let mapping = maps.iter().find(|m| (m.start..m.end).contains(&address));
    let (file, offset) = mapping.map_or((0, process), |m| (m.file, address.wrapping_add(m.offset)));
    FrameLocation {
        addr: None,
        file,
        offset,
        back: 0,
    }
}

impl UserFiles {
    /// Continues the unwind in a copy of a stack; `None` for a malformed record.
    pub fn learn_copy(&mut self, piece: &OutputRecord<'_>, most: usize) -> Option<()> {
        let mut numbers = [0; copy::FIELDS];
        for (to, field) in numbers.iter_mut().zip(&piece.fields) {
            *to = field.number()?;
        }
        let [id, process, ip, lookup, sp, bp, pages, mapped] = numbers;
        let capacity = copy::PAGES * PAGE.fit::<usize>() / 8;
        let words = usize::try_from(pages)
            .ok()?
            .checked_mul(PAGE.fit::<usize>() / 8)?;
        let mut unwind = StackUnwind {
            abi: HOST,
            ip,
            lookup,
            sp,
            bp,
            // The copy begins behind it.
            link: None,
            base: sp & !(PAGE - 1),
            words: piece.words.get(..words.min(capacity))?,
        };
        let rest = piece.words.get(capacity..)?.chunks_exact(4);
        let maps: Vec<Mapping> = rest
            .take(usize::try_from(mapped).ok()?)
            .map(|m| Mapping {
                start: m[0],
                end: m[1],
                offset: m[2],
                file: m[3],
            })
            .collect();
        let mut frames: Vec<FrameLocation> = Vec::new();
        let mut ended = false;
        while frames.len() < most {
            let (row, known) = self.row_at(&maps, unwind.lookup);
            if !known && frames.is_empty() {
                break;
            }
            let end = row.is_some_and(|r| (r >> 56) as u8 == kind::END);
            let Some(signal) = unwind.by_row(row) else {
                ended = end || row.is_none();
                break;
            };
            if signal && let Some(last) = frames.last_mut() {
                last.offset |= EXACT;
            }
            if unwind.ip == 0 {
                ended = true;
                break;
            }
            let mut location = location_of(&maps, unwind.lookup, process);
            location.addr = Some(unwind.ip);
            // The offset belongs to the address itself.
            if location.file != 0 {
                location.offset += unwind.ip.wrapping_sub(unwind.lookup);
            }
            location.offset |= if signal { EXACT } else { 0 };
            frames.push(location);
        }
        self.unfinished += u64::from(!ended && frames.len() < most);
        self.copies.frames.insert(id, frames);
        self.copies.order.push_back(id);
        if self.copies.order.len() > KEEP
            && let Some(old) = self.copies.order.pop_front()
        {
            self.copies.frames.remove(&old);
        }
        Some(())
    }

    /// The frames found in a copy.
    pub fn frames_of_copy(&self, id: u64) -> Vec<FrameLocation> {
        self.copies.frames.get(&id).cloned().unwrap_or_default()
    }

    /// The row of an address, and whether its file is known.
    fn row_at(&mut self, maps: &[Mapping], address: u64) -> (Option<u64>, bool) {
        let location = location_of(maps, address, 0);
        if let Some(row) = self.header_row(location) {
            return (Some(row), true);
        }
        let Some(rows) = self.rows(location.file) else {
            return (None, false);
        };
        let after = rows.partition_point(|r| u64::from(r.low32()) <= location.offset);
        (after.checked_sub(1).map(|index| rows[index]), true)
    }

    /// The row, from the table of functions that most files have: reading all rows takes long.
    fn header_row(&mut self, location: FrameLocation) -> Option<u64> {
        let file = self.file(location.file)?;
        if file.rows.is_some() {
            return None;
        }
        let image = file.module.as_ref()?.image();
        let row = cfi::by_header(image, image.address_of_offset(location.offset)?)?;
        Some(packed_rule(&row, image.abi()?))
    }

    fn rows(&mut self, number: u64) -> Option<Rc<[u64]>> {
        let file = self.file(number)?;
        if file.rows.is_none() {
            file.rows = Some(packed(file.module.as_ref()?).into());
        }
        file.rows.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_unwinds_step_by_their_rows() {
        let words = [0, 1, 2, 0x7f00, 0x8010, 0x9001, 6, 7];
        let unwind = || StackUnwind {
            abi: &spile_abi::X86_64,
            link: None,
            ip: 5,
            lookup: 5,
            sp: 0x8000,
            bp: 0x8020,
            base: 0x8000,
            words: &words,
        };
        assert_eq!(unwind().word(0x8008), Some(1));
        assert_eq!(unwind().word(0x8001), Some(1 << 56));
        assert_eq!((unwind().word(0x7ff8), unwind().word(0x8040)), (None, None));
        let row =
            |how: u8, saved: u64, cfa: u64| Some(u64::from(how) << 56 | saved << 48 | cfa << 32);
        let mut w = unwind();
        assert_eq!(w.by_row(row(kind::STACK, 2, 6)), Some(false));
        assert_eq!(
            (w.ip, w.lookup, w.sp, w.bp),
            (0x9001, 0x9000, 0x8030, 0x8010)
        );
        assert_eq!(unwind().by_row(row(kind::END, 0, 0)), None);
        assert_eq!(unwind().by_row(row(kind::STACK, 0, 0)), None);
        let mut w = unwind();
        assert_eq!(w.by_row(None), Some(false));
        assert_eq!((w.ip, w.sp, w.bp), (0x9001, 0x8030, 0x8010));
    }

    /// A stack of three functions as clang makes their frames for 64-bit ARM: `leaf` has none, `inner` has
    /// 32 bytes with the record of its caller's registers at the bottom, `outer` has 48 with the record on top.
    #[test]
    fn stacks_of_processors_with_a_link_register_are_unwound() {
        use spile_abi::AARCH64;
        use spile_debuginfo::cfi::{Cfa, SavedRule, UnwindRow};
        let (sp, fp) = (AARCH64.stack_pointer, AARCH64.frame_pointer);
        let row = |register, offset, frame_pointer, ra| {
            let row = UnwindRow {
                start: 0,
                cfa: Cfa::Register { register, offset },
                frame_pointer,
                ra,
                signal: false,
            };
            Some(packed_rule(&row, &AARCH64))
        };
        // The rows of `llvm-dwarfdump --eh-frame`.
        let leaf = row(sp, 0, SavedRule::Same, SavedRule::Same);
        let inner = row(fp, 32, SavedRule::AtCfa(-32), SavedRule::AtCfa(-24));
        let outer = row(fp, 16, SavedRule::AtCfa(-16), SavedRule::AtCfa(-8));
        // x29, x30, x19, padding; locals of `outer`, x29, x30.
        let words = [0x8040, 0x106c, 0, 0, 1, 2, 3, 4, 0x9000, 0x2010];
        let mut w = StackUnwind {
            abi: &AARCH64,
            ip: 0x1004,
            lookup: 0x1004,
            sp: 0x8000,
            bp: 0x8000,
            link: Some(0x1024),
            base: 0x8000,
            words: &words,
        };
        assert_eq!(w.by_row(leaf), Some(false));
        assert_eq!((w.ip, w.sp, w.bp), (0x1024, 0x8000, 0x8000));
        assert_eq!(w.by_row(inner), Some(false));
        assert_eq!(
            (w.ip, w.lookup, w.sp, w.bp),
            (0x106c, 0x106b, 0x8020, 0x8040)
        );
        assert_eq!(w.by_row(outer), Some(false));
        assert_eq!((w.ip, w.sp, w.bp), (0x2010, 0x8050, 0x9000));
        // Only the innermost function can have its return address in the register.
        assert_eq!(w.by_row(leaf), None);
        // By frame pointers alone.
        let mut w = StackUnwind {
            link: None,
            sp: 0x8000,
            bp: 0x8000,
            ip: 0x1024,
            ..w
        };
        assert_eq!(w.by_row(None), Some(false));
        assert_eq!((w.ip, w.bp), (0x106c, 0x8040));
        assert_eq!(w.by_row(None), Some(false));
        assert_eq!((w.ip, w.bp), (0x2010, 0x9000));
    }

    #[test]
    fn signal_frames_of_64_bit_arm_are_followed() {
        use spile_abi::AARCH64;
        let mut words = [0; 80];
        // x29, x30, sp, pc
        words[68..72].copy_from_slice(&[0x8100, 0x3000, 0x80f0, 0x4444]);
        let mut w = StackUnwind {
            abi: &AARCH64,
            ip: 1,
            lookup: 1,
            sp: 0x8000,
            bp: 0,
            link: None,
            base: 0x8000,
            words: &words,
        };
        let signal = Some(u64::from(kind::SIGNAL) << 56);
        assert_eq!(w.by_row(signal), Some(true));
        assert_eq!(
            (w.ip, w.lookup, w.sp, w.bp),
            (0x4444, 0x4444, 0x80f0, 0x8100)
        );
        assert_eq!(w.link, Some(0x3000));
    }
}
