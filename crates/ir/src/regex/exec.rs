//! Matching by following the tables; generated code follows them in the same way.

use spile_cast::Cast;

use super::compiled::{Compiled, Regex};
use super::scan::Scanner;
use super::tagged::{Finder, NO_SLOT};

/// A match: its position and its groups, as byte offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Start and end of the whole match.
    pub whole: (usize, usize),
    /// Start and end of each group, from the first one on.
    pub groups: Vec<Option<(usize, usize)>>,
}

impl Regex {
    /// Whether there is a match.
    pub fn is_match(&self, text: &[u8]) -> bool {
        let Compiled { classes, test, .. } = &*self.compiled;
        let mut row = usize::from(test.start);
        for b in text {
            if row >= usize::from(test.accept) {
                return true;
            }
            row = step(test, row, classes[usize::from(*b)].into());
        }
        row >= usize::from(test.accept)
            || step(test, row, test.edge() as usize) >= usize::from(test.accept)
    }

    /// The match; `None` also if the tables were compiled without captures.
    pub fn find(&self, text: &[u8]) -> Option<Match> {
        let finder = self.compiled.find.as_ref()?;
        finder.find(&self.compiled.classes, text)
    }
}

fn step(s: &Scanner, row: usize, column: usize) -> usize {
    s.next.get(row + column).copied().unwrap_or(0).into()
}

impl Finder {
    fn find(&self, classes: &[u8; 256], text: &[u8]) -> Option<Match> {
        let class = |b: u8| usize::from(classes[usize::from(b)]);
        let start = self.begin(classes, text)?;
        let edge = usize::from(start != 0);
        let mut row = usize::from(self.start[edge]);
        // The transitions taken, by the number of their list.
        let mut notes = Vec::new();
        let mut last = None;
        let slot = |row: usize, end: bool| {
            let accepts = self.next[row + self.columns as usize - 1];
            let slot = (accepts >> if end { 16 } else { 0 }).low16();
            (slot != NO_SLOT).then_some(usize::from(slot))
        };
        for (position, b) in text.iter().enumerate().skip(start) {
            if row >= usize::from(self.accept) {
                last = slot(row, false).map(|s| (position, s));
            }
            let cell = self.next[row + class(*b)];
            row = (cell & 0xffff) as usize;
            notes.push((cell >> 16) as usize);
            if row == 0 {
                break;
            }
        }
        if let Some(s) = slot(row, true) {
            // Row 0 has no end slot: this is the string's end.
            last = Some((text.len(), s));
        }
        let (end, mut slot) = last?;
        let mut tags = vec![Tag::Open; 2 * self.groups as usize];
        for position in (start..end).rev() {
            slot = self.back(notes[position - start], slot, position + 1, &mut tags);
        }
        self.back(self.start_list[edge].into(), slot, start, &mut tags);
        let groups = tags.chunks(2).map(|pair| match pair {
            [Tag::At(a), Tag::At(b)] => Some((*a, *b)),
            _ => None,
        });
        Some(Match {
            whole: (start, end),
            groups: groups.collect(),
        })
    }

    /// The start of the leftmost match.
    fn begin(&self, classes: &[u8; 256], text: &[u8]) -> Option<usize> {
        if self.anchored {
            return Some(0);
        }
        let r = &self.reverse;
        let accepts = |row: usize| row >= usize::from(r.accept);
        let mut row = usize::from(r.start);
        let mut start = accepts(row).then_some(text.len());
        for (position, b) in text.iter().enumerate().rev() {
            row = step(r, row, classes[usize::from(*b)].into());
            if accepts(row) {
                start = Some(position);
            }
        }
        if accepts(step(r, row, r.edge() as usize)) {
            start = Some(0);
        }
        start
    }

    /// Goes one transition back: returns the slot before, and sets the tags on the transition.
    fn back(&self, list: usize, slot: usize, position: usize, tags: &mut [Tag]) -> usize {
        let entry = self.lists[list + slot];
        let ops = (entry >> 16) as usize;
        let count = usize::from(self.ops[ops]);
        for op in &self.ops[ops + 1..ops + 1 + count] {
            let tag = &mut tags[usize::from(op >> 1)];
            if *tag == Tag::Open {
                *tag = if op & 1 == 1 {
                    Tag::None
                } else {
                    Tag::At(position)
                };
            }
        }
        (entry & 0xffff) as usize
    }
}

/// A tag during the way back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tag {
    /// Not met yet.
    Open,
    /// Forgotten.
    None,
    At(usize),
}
