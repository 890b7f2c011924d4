//! Entries by way of others: those in an entry, and those that it completes.

use gimli::{AttributeValue, UnitOffset};

use crate::dwarf::Dwarf;
use crate::unit::{Die, Entry, MAX_CHAIN};

/// The entry that is visited next.
pub(crate) enum Next {
    /// The first one in the entry.
    Inside,
    /// The one behind the entry and all that is in it.
    Behind,
    /// None.
    Stop,
}

impl Dwarf {
    /// The direct children of an entry.
    pub(crate) fn children(&self, die: Die) -> Vec<Die> {
        let mut children = Vec::new();
        let _ = self.list_children(die, &mut children);
        children
    }

    fn list_children(&self, die: Die, children: &mut Vec<Die>) -> Option<()> {
        let unit = self.unit(die.part, die.unit)?;
        let mut cursor = unit.entries_at_offset(UnitOffset(die.offset)).ok()?;
        // The entry itself, then its first child.
        cursor.next_entry().ok()?;
        if !cursor.current()?.has_children() {
            return None;
        }
        cursor.next_entry().ok()?;
        while let Some(child) = cursor.current() {
            children.push(die.with_offset(child.offset().0));
            cursor.next_sibling().ok()?;
        }
        Some(())
    }

    /// The direct children of an entry that can be read.
    pub(crate) fn child_entries(&self, die: Die) -> impl Iterator<Item = (Die, Entry)> {
        let children = self.children(die).into_iter();
        children.filter_map(|child| Some((child, self.entry(child)?.1)))
    }

    /// Visits an entry, whose depth is 0, and those in it, in their order. `None` where the rest is
    /// unreadable.
    pub(crate) fn visit(
        &self,
        root: Die,
        mut each: impl FnMut(isize, Die, &Entry) -> Next,
    ) -> Option<()> {
        let unit = self.unit(root.part, root.unit)?;
        let mut raw = unit.entries_raw(Some(UnitOffset(root.offset))).ok()?;
        let mut entry = Entry::null();
        // The depth at which the reader started, and that of an entry that is passed over.
        let (mut base, mut passed) = (0, None);
        loop {
            let (offset, depth) = (raw.next_offset(), base + raw.next_depth());
            let any = raw.read_entry(&mut entry).ok()?;
            if any && passed.is_none_or(|passed| depth <= passed) {
                passed = None;
                match each(depth, root.with_offset(offset.0), &entry) {
                    Next::Inside => {}
                    Next::Behind => passed = Some(depth),
                    Next::Stop => return Some(()),
                }
            }
            if passed == Some(depth)
                && entry.has_children()
                && let Some(AttributeValue::UnitRef(to)) = entry.attr_value(gimli::DW_AT_sibling)
                && to.0 > raw.next_offset().0
            {
                raw = unit.entries_raw(Some(to)).ok()?;
                base = depth;
            }
            if base + raw.next_depth() <= 0 || raw.is_empty() {
                return Some(());
            }
        }
    }

    /// The entry that an entry completes.
    pub(crate) fn origin(&self, die: Die, entry: &Entry) -> Option<Die> {
        let value = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        self.refer(die, value)
    }

    /// An entry, the one that it completes, and so on.
    pub(crate) fn origins(&self, die: Die) -> impl Iterator<Item = Die> {
        let next = |die: &Die| self.origin(*die, &self.entry(*die)?.1);
        std::iter::successors(Some(die), next).take(MAX_CHAIN + 1)
    }

    /// The abstract entry that describes a function with code.
    pub(crate) fn outermost_origin(&self, die: Die) -> Die {
        self.origins(die).last().unwrap_or(die)
    }
}
