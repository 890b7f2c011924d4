//! Symbols of the running kernel, from `/proc/kallsyms`.
//!
//! The text is read once and cached; a sorted index of addresses points into it. The first few names
//! are searched in the text itself, later ones in a hash table. The kernel formats the list line by
//! line: reading some 120,000 symbols takes about as long as the rest of the start-up, so nothing is
//! read before the first query.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use spile_cast::Cast;
use spile_glob as glob;

/// Where the kernel lists its symbols.
pub const KALLSYMS: &str = "/proc/kallsyms";

/// Assumed size of the last symbol of the kernel or of a module, because the list has no sizes: up
/// to the page's end.
const LAST: u64 = 4096;
/// Assumed maximum size of a BPF program.
const PROGRAM: u64 = 1 << 20;
/// Number of names that are searched in the text before the table is made, which takes as long as
/// some eight searches.
const SCANS: u32 = 8;

/// The reason why symbols can't be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolError {
    /// The list could not be read.
    Unreadable(String),
    /// The kernel shows all addresses as zero: `kernel.kptr_restrict` or
    /// `kernel.perf_event_paranoid` hides them from this process.
    Hidden,
}

impl fmt::Display for SymbolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SymbolError::Unreadable(why) => write!(f, "cannot read {KALLSYMS}: {why}"),
            SymbolError::Hidden => f.write_str(
                "the kernel hides its symbols' addresses (kernel.kptr_restrict); run as root",
            ),
        }
    }
}

impl std::error::Error for SymbolError {}

/// A symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its address.
    pub address: u64,
    /// The type letter of `nm`: `t` and `T` are text, capitals are global.
    pub kind: char,
    /// Its name.
    pub name: &'a str,
    /// The module that it belongs to (`bpf` for programs), if any.
    pub module: Option<&'a str>,
}

impl Symbol<'_> {
    /// Whether it is code.
    #[must_use]
    pub fn is_function(&self) -> bool {
        matches!(self.kind, 't' | 'T' | 'w' | 'W')
    }
}

/// All symbols of a kernel.
pub struct Symbols {
    text: Vec<u8>,
    /// (address, offset of the line), sorted by address; lines of one address in order.
    by_address: Vec<(u64, u32)>,
    /// Made when names have been searched [`SCANS`] times.
    by_name: OnceLock<NameTable>,
    /// Number of searches in the text.
    scans: AtomicU32,
}

/// A hash table of names up to their first dot, so that a function and its copies (`f.isra.0`) are
/// in one list. Numbers in it are indexes of [`Symbols::by_address`] plus one; 0 ends a list.
struct NameTable {
    /// The first of each list; their number is a power of two.
    heads: Vec<u32>,
    /// The next one in the list of each symbol.
    next: Vec<u32>,
}

/// The part of a name that [`NameTable`] knows it by.
fn stem(name: &[u8]) -> &[u8] {
    &name[..memchr::memchr(b'.', name).unwrap_or(name.len())]
}

impl NameTable {
    fn new(symbols: &Symbols) -> NameTable {
        let entries = &symbols.by_address;
        let mut heads = vec![0; entries.len().next_power_of_two()];
        let mut next = vec![0; entries.len()];
        for (i, entry) in entries.iter().enumerate() {
            if let Some(offset) = symbols.name_of_line(entry.1) {
                let name = stem(symbols.bytes_at(offset));
                let list = NameTable::hash(name) & (heads.len() - 1);
                next[i] = std::mem::replace(&mut heads[list], i.fit::<u32>() + 1);
            }
        }
        NameTable { heads, next }
    }

    /// FNV-1a, by words of eight bytes.
    fn hash(name: &[u8]) -> usize {
        const PRIME: u64 = 0x0100_0000_01b3;
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(PRIME);
            mixed ^ (mixed >> 32)
        };
        let (words, rest) = name.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let rest = rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        mix(words.fold(0xcbf2_9ce4_8422_2325, mix), rest).fit::<usize>()
    }

    /// The indexes in the list of a stem. Some may have another stem.
    fn list(&self, stem: &[u8]) -> impl Iterator<Item = usize> {
        let list = NameTable::hash(stem) & (self.heads.len() - 1);
        let first = (self.heads[list] as usize).checked_sub(1);
        std::iter::successors(first, |i| (self.next[*i] as usize).checked_sub(1))
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Symbols({})", self.by_address.len())
    }
}

impl Symbols {
    /// The running kernel's symbols, read at the first call and cached. Modules and programs loaded
    /// later are missing.
    ///
    /// # Errors
    /// [`SymbolError`], which is cached as well.
    pub fn kernel() -> Result<&'static Symbols, &'static SymbolError> {
        static KERNEL: OnceLock<Result<Symbols, SymbolError>> = OnceLock::new();
        KERNEL
            .get_or_init(|| {
                if let Some(text) = crate::foreign_kernel::symbols() {
                    return Symbols::parse(text);
                }
                let text = crate::sysfile::read_fully(KALLSYMS)
                    .map_err(|e| SymbolError::Unreadable(e.to_string()))?;
                Symbols::parse(text)
            })
            .as_ref()
    }

    /// Indexes text in the format of `/proc/kallsyms`; malformed lines are skipped.
    ///
    /// # Errors
    /// [`SymbolError::Hidden`] if no address differs from zero.
    pub fn parse(text: impl Into<Vec<u8>>) -> Result<Symbols, SymbolError> {
        let text = text.into();
        let mut by_address = Vec::with_capacity(text.len() / 36);
        let mut start = 0;
        let mut sorted = true;
        let mut last = 0;
        for end in memchr::memchr_iter(b'\n', &text).chain([text.len()]) {
            if let Some(address) = address(&text[start..end])
                && start <= u32::MAX as usize
            {
                sorted &= address >= last;
                last = address;
                by_address.push((address, start.fit::<u32>()));
            }
            start = end + 1;
        }
        if by_address.iter().all(|entry| entry.0 == 0) {
            return Err(SymbolError::Hidden);
        }
        if !sorted {
            by_address.sort_unstable();
        }
        Ok(Symbols {
            text,
            by_address,
            by_name: OnceLock::new(),
            scans: AtomicU32::new(0),
        })
    }

    /// Number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether there are no symbols; false for every parsed list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// The symbol that contains an address, and the offset in it. Of several at one address the
    /// first, as in the kernel's own messages. `None` below the first symbol, and after the last
    /// one of the kernel or a module.
    #[must_use]
    pub fn resolve(&self, address: u64) -> Option<(Symbol<'_>, u64)> {
        let after = self.by_address.partition_point(|entry| entry.0 <= address);
        let start = self.by_address[..after].last()?.0;
        if start == 0 && address != 0 {
            return None; // per-CPU offsets and absolute symbols, no addresses
        }
        if address > start && self.end_after(after)? <= address {
            return None;
        }
        let first = self.by_address[..after].partition_point(|entry| entry.0 < start);
        let mut symbols = self.by_address[first..after]
            .iter()
            .filter_map(|e| self.line(e.1));
        Some((symbols.next()?, address - start))
    }

    /// `name+0xOFFSET/0xSIZE [module]` of an address, or the address itself. As in SystemTap
    /// the kernel itself is the module `kernel`. A symbol ends where the next one begins.
    #[must_use]
    pub fn describe(&self, address: u64) -> String {
        let Some((symbol, offset)) = self.resolve(address) else {
            return format!("{address:#x}");
        };
        let end = self.end_of(address).unwrap_or(address);
        let size = end - symbol.address;
        let module = symbol.module.unwrap_or("kernel");
        format!("{}+{offset:#x}/{size:#x} [{module}]", symbol.name)
    }

    /// The symbols that begin at an address.
    pub fn at(&self, address: u64) -> impl Iterator<Item = Symbol<'_>> {
        let first = self.by_address.partition_point(|e| e.0 < address);
        let entries = self.by_address[first..].iter();
        entries
            .take_while(move |e| e.0 == address)
            .filter_map(|e| self.line(e.1))
    }

    /// A number by which [`Symbols::name_at`] finds the name of this symbol again.
    #[must_use]
    pub fn offset_of(&self, symbol: &Symbol<'_>) -> u32 {
        (symbol.name.as_ptr() as usize)
            .wrapping_sub(self.text.as_ptr() as usize)
            .low32()
    }

    /// The name that begins at `offset`, see [`Symbols::offset_of`].
    #[must_use]
    pub fn name_at(&self, offset: u32) -> Option<&str> {
        self.text.get(offset as usize)?;
        std::str::from_utf8(self.bytes_at(offset)).ok()
    }

    /// The end of the symbol that contains an address: the start of the next one, or by [`LAST`].
    #[must_use]
    pub fn end_of(&self, address: u64) -> Option<u64> {
        self.end_after(self.by_address.partition_point(|e| e.0 <= address))
    }

    /// The end of the symbol before an entry of the index.
    fn end_after(&self, next: usize) -> Option<u64> {
        let &(start, line) = self.by_address.get(next.checked_sub(1)?)?;
        let module = self.line(line)?.module;
        let next = self.by_address.get(next);
        let same = next
            .and_then(|n| self.line(n.1))
            .filter(|n| n.module == module);
        Some(same.map_or_else(
            || {
                let most = if module == Some("bpf") { PROGRAM } else { LAST };
                (start | (most - 1)).saturating_add(1)
            },
            |n| n.address,
        ))
    }

    /// All symbols of that name: static functions may share one.
    pub fn find<'a>(&'a self, name: &str) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let name_only = name.to_owned();
        self.find_with_copies(name)
            .filter(move |symbol| symbol.name == name_only)
    }

    /// All symbols whose names are `name`, or `name` followed by a dot and more, in the order of the
    /// text; none for an empty one.
    pub fn find_with_copies<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let prefix = name.to_owned();
        let candidates = match self.by_name.get() {
            _ if name.is_empty() => Vec::new(),
            None if self.scans.fetch_add(1, Ordering::Relaxed) < SCANS => self.scan(name),
            _ => self.look_up(name),
        };
        candidates
            .into_iter()
            .filter_map(|offset| self.named_at(offset))
            .filter(move |symbol| {
                let rest = symbol.name.strip_prefix(&*prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
    }

    /// All symbols whose names have this prefix, in the order of the text; none for an empty one.
    pub fn starting_with<'a>(&'a self, prefix: &str) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let names = match prefix.is_empty() {
            true => Vec::new(),
            false => self.scan(prefix),
        };
        names.into_iter().filter_map(|offset| self.named_at(offset))
    }

    /// The offsets of the names in the list of a name, ascending.
    fn look_up(&self, name: &str) -> Vec<u32> {
        let list = self.names().list(stem(name.as_bytes()));
        let offset = |i: usize| self.name_of_line(self.by_address[i].1);
        let mut offsets: Vec<u32> = list.filter_map(offset).collect();
        offsets.sort_unstable();
        offsets
    }

    /// Makes the table of names, for a caller that will look up some.
    pub fn index_names(&self) {
        self.names();
    }

    fn names(&self) -> &NameTable {
        self.by_name.get_or_init(|| NameTable::new(self))
    }

    /// The symbol whose name begins at `offset`, if a name begins there.
    fn named_at(&self, offset: u32) -> Option<Symbol<'_>> {
        let before = self.text.get(..offset as usize)?;
        let start = memchr::memrchr(b'\n', before).map_or(0, |nl| nl + 1);
        let symbol = self.line(start.fit::<u32>())?;
        (self.offset_of(&symbol) == offset).then_some(symbol)
    }

    /// The offsets where a prefix follows a blank, ascending. Not all are names.
    fn scan(&self, prefix: &str) -> Vec<u32> {
        let needle = format!(" {prefix}");
        let blanks = memchr::memmem::find_iter(&self.text, needle.as_bytes());
        blanks.map(|blank| blank.fit::<u32>() + 1).collect()
    }

    /// The offset of the name in the line at `start`: behind the address and the kind.
    fn name_of_line(&self, start: u32) -> Option<u32> {
        let head = self.text.get(start as usize..)?;
        // Usually sixteen digits.
        let gap = match head.get(16) {
            Some(b' ') => 16,
            _ => head.iter().take(17).position(|&c| c == b' ')?,
        };
        let name = start + gap.fit::<u32>() + 3;
        (self.text.get(name as usize - 1) == Some(&b' ')).then_some(name)
    }

    /// The bytes of the name that begins at `offset`.
    fn bytes_at(&self, offset: u32) -> &[u8] {
        let rest = self.text.get(offset as usize..).unwrap_or_default();
        &rest[..memchr::memchr3(b'\n', b'\t', b' ', rest).unwrap_or(rest.len())]
    }

    /// The address of a symbol, the first if several have the name.
    #[must_use]
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.find(name).next().map(|symbol| symbol.address)
    }

    /// All symbols by address.
    pub fn all(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.by_address
            .iter()
            .filter_map(|entry| self.line(entry.1))
    }

    /// Functions whose names match a pattern, by address.
    pub fn functions<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = Symbol<'a>> {
        self.all()
            .filter(move |s| s.is_function() && glob::matches(pattern, s.name))
    }

    /// Parses the line at `start`: `ADDRESS KIND NAME[\t[MODULE]]`.
    fn line(&self, start: u32) -> Option<Symbol<'_>> {
        let rest = self.text.get(start as usize..)?;
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        let address = address(line)?;
        let gap = memchr::memchr(b' ', line)?;
        let kind = char::from(*line.get(gap + 1)?);
        let name = std::str::from_utf8(line.get(gap + 3..)?).ok()?;
        let (name, module) = match memchr::memchr2(b'\t', b' ', name.as_bytes()) {
            Some(blank) => (&name[..blank], Some(name[blank + 1..].trim())),
            None => (name, None),
        };
        let module = module
            .filter(|m| !m.is_empty())
            .map(|m| m.trim_matches(['[', ']']));
        Some(Symbol {
            address,
            kind,
            name,
            module,
        })
    }
}

/// The address at the start of a line.
fn address(line: &[u8]) -> Option<u64> {
    let len = line.iter().take(17).position(|&c| c == b' ')?;
    if len == 0 {
        return None;
    }
    line[..len].iter().try_fold(0u64, |sum, &c| {
        let digit = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            b'A'..=b'F' => c - b'A' + 10,
            _ => return None,
        };
        Some((sum << 4) | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 t _stext_alias
ffffffff81000000 T _stext
ffffffff81000100 t helper
ffffffff81000200 T sys_call
no line
ffffffffc0001000 t helper\t[xfs]
ffffffffc0000000 T xfs_init\t[xfs]
";

    #[test]
    fn addresses_have_names_and_offsets() {
        let s = Symbols::parse(SAMPLE).expect("addresses");
        assert_eq!(s.len(), 7);
        assert_eq!(
            s.describe(0xffff_ffff_8100_0004),
            "_stext_alias+0x4/0x100 [kernel]"
        );
        assert_eq!(
            s.describe(0xffff_ffff_8100_0100),
            "helper+0x0/0x100 [kernel]"
        );
        assert_eq!(
            s.describe(0xffff_ffff_c000_0010),
            "xfs_init+0x10/0x1000 [xfs]"
        );
        assert_eq!(s.describe(0x10), "0x10");
        // The last one of the kernel and of a module ends at its page's end.
        assert_eq!(
            s.describe(0xffff_ffff_8100_0fff),
            "sys_call+0xdff/0xe00 [kernel]"
        );
        for address in [0xffff_ffff_8100_1000, 0xffff_ffff_c000_2000, u64::MAX] {
            assert_eq!(s.describe(address), format!("{address:#x}"));
        }
        assert_eq!(s.find("helper").count(), 2);
        assert_eq!(s.address_of("sys_call"), Some(0xffff_ffff_8100_0200));
        assert_eq!(s.address_of("sys_cal"), None);
        assert_eq!(s.address_of("call"), None);
        assert_eq!(s.address_of(""), None);
        let start: Vec<Symbol<'_>> = s.at(0xffff_ffff_8100_0000).collect();
        assert_eq!((start.len(), start[1].name), (2, "_stext"));
        assert_eq!(s.name_at(s.offset_of(&start[1])), Some("_stext"));
        assert_eq!(s.at(0xffff_ffff_8100_0001).count(), 0);
        let names: Vec<&str> = s.functions("*helper").map(|f| f.name).collect();
        assert_eq!(names, ["helper", "helper"]);
    }

    #[test]
    fn the_table_of_names_finds_what_a_search_finds() {
        let text = "ffffffff81000000 t a_name_of_sixteen_and_more\n\
                    ffffffff81000000 T a_name_of_sixteen\n\
                    ffffffff81000100 t a_name_of_sixteen.part.0\n\
                    ffffffff81000200 T a\n\
                    ffffffffc0001000 t a_name_of_sixteen\t[xfs]\n\
                    ffffffffc0001100 t T\t[a]\n";
        let ask = |s: &Symbols, query| {
            let order: Vec<u64> = s.starting_with(query).map(|f| f.address).collect();
            (
                order,
                s.find(query).count(),
                s.find_with_copies(query).count(),
            )
        };
        let indexed = Symbols::parse(text).expect("addresses");
        (0..=SCANS).for_each(|_| assert_eq!(indexed.find("a").count(), 1));
        assert!(indexed.by_name.get().is_some());
        for (query, counts) in [
            ("a", [5, 1, 1]),
            ("a_name_of_sixteen", [4, 2, 3]),
            ("a_name_of_sixteen_", [1, 0, 0]),
            ("a_name_of_sixteen.part", [1, 0, 1]),
            ("a_name_of_sixteen.part.0", [1, 1, 1]),
            ("T", [1, 1, 1]),
            ("[a]", [0; 3]),
            ("b", [0; 3]),
            ("", [0; 3]),
        ] {
            let fresh = Symbols::parse(text).expect("addresses");
            let found = ask(&fresh, query);
            assert!(fresh.by_name.get().is_none());
            assert_eq!([found.0.len(), found.1, found.2], counts, "{query}");
            assert_eq!(ask(&indexed, query), found, "{query}");
        }
    }

    #[test]
    fn hidden_addresses_are_reported() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 T foo\n";
        assert_eq!(Symbols::parse(hidden).err(), Some(SymbolError::Hidden));
        assert_eq!(Symbols::parse("").err(), Some(SymbolError::Hidden));
        assert!(Symbols::parse(vec![0xff; 100]).is_err());
    }

    #[test]
    fn symbols_of_the_running_kernel_are_found() {
        let symbols = match Symbols::kernel() {
            Ok(symbols) => symbols,
            Err(why) => spile_testing::skip!("{why}"),
        };
        let address = symbols.address_of("schedule").expect("schedule");
        let (symbol, offset) = symbols.resolve(address + 1).expect("text");
        assert_eq!((symbol.name, offset), ("schedule", 1));
        assert!(symbols.functions("sched_*").count() > 10);
        for (name, there) in [
            ("schedule", true),
            ("_stext", true),
            ("no_such_symbol", false),
        ] {
            assert_eq!(symbols.address_of(name).is_some(), there, "{name}");
        }
    }
}
