//! Symbols of a file: functions and data by name and by address.

use object::read::elf::Sym;
use object::{LittleEndian, elf};
use spile_cast::Cast;

use crate::image::Image;

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolKind {
    /// Code.
    Func,
    /// An indirect function (ifunc), which selects an implementation at load time; its address is
    /// that of the resolver.
    IFunc,
    /// A variable.
    Data,
    /// A thread-local variable; its address is an offset.
    Tls,
}

/// The binding of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// Visible to all files.
    Global,
    /// Visible to all files, unless there is a global one of the name.
    Weak,
    /// Visible to its compilation unit.
    Local,
}

/// A defined symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfSymbol<'a> {
    /// Its name as in the file, mangled.
    pub name: &'a str,
    /// Its address as linked.
    pub address: u64,
    /// Size in bytes; 0 if the file does not give it.
    pub size: u64,
    /// Its kind.
    pub kind: SymbolKind,
    /// Its binding.
    pub binding: Binding,
    /// Whether it is in the dynamic symbol table.
    pub dynamic: bool,
    /// Whether the file says what it is; assembly code often omits it.
    pub typed: bool,
}

impl ElfSymbol<'_> {
    /// Whether only its compilation unit sees it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.binding == Binding::Local
    }
}

/// Symbols in order of address; at one address the best name first (global before weak before
/// local, then by name).
#[derive(Debug, Default)]
pub struct ElfSymbols<'a> {
    symbols: Vec<ElfSymbol<'a>>,
    /// Indexes of functions in order of address, only the first name at each address.
    code: Vec<u32>,
    /// Indexes of all symbols in order of name.
    by_name: Vec<u32>,
}

impl<'a> ElfSymbols<'a> {
    /// The symbols of all these files together, without duplicates.
    #[must_use]
    pub fn new(images: &[&'a Image]) -> ElfSymbols<'a> {
        let mut symbols = Vec::new();
        for image in images {
            read(image, true, &mut symbols);
            read(image, false, &mut symbols);
        }
        ElfSymbols::sorted(symbols)
    }

    /// The symbols that a file exports, which are few compared to all symbols of a large program.
    #[must_use]
    pub fn exported(image: &'a Image) -> ElfSymbols<'a> {
        let mut symbols = Vec::new();
        read(image, true, &mut symbols);
        ElfSymbols::sorted(symbols)
    }

    fn sorted(mut symbols: Vec<ElfSymbol<'a>>) -> ElfSymbols<'a> {
        symbols.sort_unstable_by_key(|s| (s.address, s.binding, s.name, s.kind, !s.dynamic));
        symbols.dedup_by(|b, a| {
            let same = a.address == b.address && a.name == b.name && a.kind == b.kind;
            if same {
                a.size = a.size.max(b.size);
                a.dynamic |= b.dynamic;
                a.typed |= b.typed;
            }
            same
        });
        let mut code: Vec<u32> = Vec::new();
        for (i, s) in symbols.iter().enumerate() {
            let before = code.last().map(|&l| &symbols[l as usize]);
            let function = matches!(s.kind, SymbolKind::Func | SymbolKind::IFunc);
            if function && before.is_none_or(|b| b.address != s.address) {
                code.push(i.fit::<u32>());
            }
        }
        let mut by_name: Vec<u32> = (0..symbols.len().fit::<u32>()).collect();
        by_name.sort_unstable_by_key(|&i| (symbols[i as usize].name, symbols[i as usize].binding));
        ElfSymbols {
            symbols,
            code,
            by_name,
        }
    }

    /// All of them, in order of address.
    #[must_use]
    pub fn all(&self) -> &[ElfSymbol<'a>] {
        &self.symbols
    }

    /// Functions in order of address, one name for each address.
    pub fn functions(&self) -> impl Iterator<Item = &ElfSymbol<'a>> {
        self.code.iter().map(|&i| &self.symbols[i as usize])
    }

    /// The symbols of a name, global ones first.
    pub fn named<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s ElfSymbol<'a>> {
        let symbol = |i: &u32| &self.symbols[*i as usize];
        let from = self.by_name.partition_point(|i| symbol(i).name < name);
        let to = from + self.by_name[from..].partition_point(|i| symbol(i).name <= name);
        self.by_name[from..to].iter().map(symbol)
    }

    /// The symbols at an address, the best name first.
    pub fn starting_at(&self, address: u64) -> impl Iterator<Item = &ElfSymbol<'a>> {
        let from = self.symbols.partition_point(|s| s.address < address);
        let rest = self.symbols[from..].iter();
        rest.take_while(move |s| s.address == address)
    }

    /// The function that contains an address, and the offset from its start. A function without a
    /// size extends to the next one.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<(&ElfSymbol<'a>, u64)> {
        let symbol = |i: u32| &self.symbols[i as usize];
        let mut i = self.code.partition_point(|&i| symbol(i).address <= address);
        // A nested function (a second entry) may end before the outer one.
        for _ in 0..8 {
            i = i.checked_sub(1)?;
            let s = symbol(self.code[i]);
            let offset = address - s.address;
            if offset < s.size || (s.size == 0 && offset < 1 << 20) {
                return Some((s, offset));
            }
        }
        None
    }

    /// The variable that contains an address, and the offset from its start.
    #[must_use]
    pub fn data_at(&self, address: u64) -> Option<(&ElfSymbol<'a>, u64)> {
        let end = self.symbols.partition_point(|s| s.address <= address);
        self.symbols[..end]
            .iter()
            .rev()
            .take(16)
            .filter(|s| s.kind == SymbolKind::Data)
            .find(|s| address - s.address < s.size.max(1))
            .map(|s| (s, address - s.address))
    }
}

/// Adds the defined symbols of one of a file's two tables.
fn read<'a>(image: &'a Image, dynamic: bool, symbols: &mut Vec<ElfSymbol<'a>>) {
    let e = LittleEndian;
    let table = match dynamic {
        true => image.elf().elf_dynamic_symbol_table(),
        false => image.elf().elf_symbol_table(),
    };
    symbols.reserve(table.len());
    for sym in table.iter() {
        let address = image.symbol_address(sym);
        let kind = match sym.st_type() {
            elf::STT_FUNC => SymbolKind::Func,
            elf::STT_GNU_IFUNC => SymbolKind::IFunc,
            elf::STT_OBJECT => SymbolKind::Data,
            elf::STT_TLS => SymbolKind::Tls,
            // Assembly code often omits the type.
            elf::STT_NOTYPE if image.is_code(address) => SymbolKind::Func,
            _ => continue,
        };
        if sym.is_undefined(e) {
            continue;
        }
        let name = sym.name(e, table.strings()).ok();
        let Some(name) = name.and_then(|n| std::str::from_utf8(n).ok()) else {
            continue;
        };
        // Linkers append versions to names here, `name@@VERSION`.
        let name = match name.find('@') {
            Some(index) if !dynamic => &name[..index],
            _ => name,
        };
        if name.is_empty() {
            continue;
        }
        let binding = match sym.st_bind() {
            elf::STB_LOCAL => Binding::Local,
            elf::STB_WEAK => Binding::Weak,
            _ => Binding::Global,
        };
        symbols.push(ElfSymbol {
            name,
            address,
            size: sym.st_size(e),
            kind,
            binding,
            dynamic,
            typed: sym.st_type() != elf::STT_NOTYPE,
        });
    }
}
