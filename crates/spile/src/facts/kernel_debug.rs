//! Debugging information of the kernel and of its modules, opened when a query needs it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use spile_debuginfo::{DebugFile as File, Image, KernelQuery, SearchPaths};
use spile_ir::CodeLocation;
use spile_kernel::functions::{self, Functions};
use spile_kernel::symbols::Symbols;
use spile_runtime::text::kernel_files::{KernelImage, build_id};
use spile_sema::facts::{CodeQuery, FoundLocation, FunctionKind, LinePattern, Variable};

use super::code_owner::CodeOwner;
use super::dwarf::{FileTable, OpenedFile};

/// The kernel that a script is compiled for (`-r`).
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetKernel {
    /// Its release.
    pub release: String,
    /// Its build directory.
    pub build: Option<PathBuf>,
    /// Whether it differs from the running kernel.
    pub other: bool,
}

/// The files that were opened or searched.
pub(crate) struct KernelDebug {
    kernel: TargetKernel,
    search: SearchPaths,
    files: Mutex<HashMap<Option<Arc<str>>, SearchOutcome>>,
}

/// The outcome of a search, and whether debuginfod servers were asked.
type SearchOutcome = (Result<Arc<OpenedFile>, String>, bool);

type LocationResult = Result<Vec<FoundLocation>, String>;

/// Maximum number of locations that are named by symbols, which stay right when the kernel is
/// relocated.
const FEW: usize = 16;

impl KernelDebug {
    /// Without any file opened yet.
    pub(crate) fn new(kernel: TargetKernel) -> KernelDebug {
        KernelDebug {
            kernel,
            search: SearchPaths::from_env(),
            files: Mutex::default(),
        }
    }

    /// Opens the file of the kernel or of a module, once.
    ///
    /// # Errors
    /// The files that were searched and the way out. `remote`: debuginfod servers are asked.
    pub(super) fn opened(
        &self,
        module: Option<&Arc<str>>,
        remote: bool,
    ) -> Result<Arc<OpenedFile>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((opened, asked)) = files.get(&module.cloned())
            && (opened.is_ok() || *asked || !remote)
        {
            return opened.clone();
        }
        let opened = self.open(module, remote).map(Arc::new);
        files.insert(module.cloned(), (opened.clone(), remote));
        opened
    }

    fn open(&self, module: Option<&Arc<str>>, remote: bool) -> Result<OpenedFile, String> {
        let build_id = match self.kernel.other {
            true => None,
            false => build_id(module.map(|m| &**m)),
        };
        let wanted = KernelQuery {
            release: &self.kernel.release,
            module: module.map(|m| &**m),
            build_id: build_id.as_deref(),
            build: self.kernel.build.as_deref(),
        };
        let image = self.search.kernel(&wanted, remote);
        let image = image.map_err(|notes| missing(&wanted, &notes))?;
        let file = Arc::new(File::new(image, &self.search));
        let loaded = match module {
            _ if self.kernel.other => KernelImage::elsewhere(module),
            Some(name) => KernelImage::module(&file, name)?,
            None => KernelImage::kernel(&file)?,
        };
        let home = CodeOwner::Kernel(loaded);
        Ok(OpenedFile { file, home })
    }

    /// The image of a kernel other than the running one, from which symbols and BTF come.
    ///
    /// # Errors
    /// Those of [`KernelDebug::locations`].
    pub(crate) fn image_of_other(&self) -> Result<Arc<File>, String> {
        Ok(self.opened(None, true)?.file.clone())
    }

    /// Functions and statements that a query matches.
    ///
    /// # Errors
    /// When there is no debugging information, with the way out, or why there are no such locations.
    pub(crate) fn locations(
        &self,
        table: &FileTable,
        module: Option<&Arc<str>>,
        query: &CodeQuery,
    ) -> LocationResult {
        let opened = self.opened(module, true)?;
        if let CodeQuery::Address { address, .. } = query {
            return opened.address(table, *address);
        }
        let locations = opened.queried(table).locations(query)?;
        self.best_attachable(module, locations)
    }

    /// The functions of that name with inlined copies and lines, which only debugging information
    /// has. `None` where it is not on this machine.
    pub(crate) fn with_lines(
        &self,
        table: &FileTable,
        module: Option<&Arc<str>>,
        name: &str,
        kind: &FunctionKind,
        locations: &mut Vec<FoundLocation>,
    ) {
        let Ok(opened) = self.opened(module, false) else {
            return;
        };
        let asked = opened.queried(table);
        let ask = |kind| asked.functions(name, None, &LinePattern::Any, kind);
        if !spile_glob::is_pattern(name) {
            for f in ask(&FunctionKind::Call).unwrap_or_default() {
                for location in locations
                    .iter_mut()
                    .filter(|p| same_location(&p.location, &f.location))
                {
                    (location.file, location.line) = (f.file.clone(), f.line);
                }
            }
        }
        if *kind == FunctionKind::Any {
            let inlined = ask(&FunctionKind::Inline).unwrap_or_default();
            locations.extend(self.best_attachable(module, inlined).unwrap_or_default());
        }
    }

    /// The variables at the entry or the return of a function that was found by its symbol.
    ///
    /// # Errors
    /// When there is no debugging information, or it lacks this function.
    pub(crate) fn locals(
        &self,
        table: &FileTable,
        module: Option<&Arc<str>>,
        location: &FoundLocation,
        ret: bool,
    ) -> Result<Vec<Variable>, String> {
        let opened = self.opened(module, true)?;
        let asked = opened.queried(table);
        let functions = asked.functions(
            &location.name,
            None,
            &LinePattern::Any,
            &FunctionKind::Return,
        )?;
        let function = functions
            .iter()
            .find(|f| same_location(&location.location, &f.location));
        match function {
            Some(function) => asked.variables(function.id, ret),
            None => Err(format!(
                "the debugging information of {} has no function `{}`",
                opened.home, location.name
            )),
        }
    }

    /// Locations in the form in which they attach best: a few by their symbols, many by ftrace where
    /// they begin functions. Locations that the kernel forbids are left out.
    fn best_attachable(
        &self,
        module: Option<&Arc<str>>,
        mut locations: Vec<FoundLocation>,
    ) -> LocationResult {
        if self.kernel.other || locations.is_empty() {
            return Ok(locations);
        }
        if locations.len() > FEW {
            let functions = Functions::kernel().map_err(ToString::to_string)?;
            locations.retain_mut(|f| match f.location {
                CodeLocation::Address(address) => match functions.at(address) {
                    Some(true) => {
                        f.location = CodeLocation::Traced(address);
                        true
                    }
                    other => other.is_some(),
                },
                _ => true,
            });
        } else if let Ok(symbols) = Symbols::kernel() {
            let alone = locations.len() == 1;
            for f in &mut locations {
                if let CodeLocation::Address(address) = f.location {
                    let location = by_symbol(symbols, module, address, alone);
                    f.location = location.unwrap_or_else(|| by_address(symbols, address));
                }
            }
        }
        match locations.is_empty() {
            true => Err("the kernel forbids probing the locations that were found".into()),
            false => Ok(locations),
        }
    }
}

impl OpenedFile {
    /// `statement(ADDRESS)`: an address as linked.
    fn address(&self, known: &FileTable, address: u64) -> LocationResult {
        let location = self.home.location(&self.file, address);
        let location = location.filter(|_| self.file.image().is_code(address));
        let location = location.ok_or_else(|| self.home.no_code(address))?;
        let named = self.file.symbols().function_at(address);
        let name = named.map_or("", |(s, _)| s.name).into();
        let location = FoundLocation::new(0, name, location, address);
        Ok(vec![self.queried(known).describe(location)])
    }
}

/// The location of an address by its symbol, if the symbol's name is unique. ftrace attaches functions
/// by name and has to have all of one name, so only a function that is `alone` is named.
fn by_symbol(
    symbols: &Symbols,
    module: Option<&Arc<str>>,
    address: u64,
    alone: bool,
) -> Option<CodeLocation> {
    let (symbol, offset) = symbols.resolve(address)?;
    let one = symbols.find(symbol.name).count() == 1;
    // ftrace does not check whether they may be probed.
    let allowed = offset != 0 || (alone && functions::can_be_probed(symbol.name));
    (one && allowed).then(|| CodeLocation::Symbol {
        module: module.cloned(),
        name: symbol.name.into(),
        offset,
    })
}

/// The location of an address without a unique symbol.
fn by_address(symbols: &Symbols, address: u64) -> CodeLocation {
    let begins = symbols
        .resolve(address)
        .is_some_and(|(_, offset)| offset == 0);
    let traced = || Functions::kernel().ok()?.at(address);
    match begins && traced() == Some(true) {
        true => CodeLocation::Traced(address),
        false => CodeLocation::Address(address),
    }
}

/// Whether two locations are the same.
fn same_location(a: &CodeLocation, b: &CodeLocation) -> bool {
    let address = |location: &CodeLocation| match location {
        CodeLocation::Address(known) | CodeLocation::Traced(known) => Some(*known),
        CodeLocation::Symbol { name, offset, .. } => {
            let start = Symbols::kernel().ok()?.address_of(name)?;
            Some(start.wrapping_add(*offset))
        }
        CodeLocation::File { .. } => None,
    };
    a == b || address(a).is_some_and(|known| address(b) == Some(known))
}

/// The message for missing debugging information.
fn missing(wanted: &KernelQuery<'_>, notes: &[String]) -> String {
    let release = wanted.release;
    let subject = match wanted.module {
        Some(module) => format!("the module {module} of Linux {release}"),
        None => format!("Linux {release}"),
    };
    let id = wanted.build_id.into_iter().flatten();
    let id: String = id.map(|b| format!("{b:02x}")).collect();
    let id = match &*id {
        "" => id,
        _ => format!(", build-id {id},"),
    };
    let looked = match notes {
        [] => String::new(),
        notes => format!(" (looked for {})", notes.join("; ")),
    };
    format!(
        "it needs the debugging information of {subject}{id} which is not here{looked}; install \
         linux-image-{release}-dbg (Debian), linux-image-{release}-dbgsym (Ubuntu) or \
         kernel-debuginfo-{release} (Fedora), or name a server in DEBUGINFOD_URLS"
    )
}

/// Makes the image of another kernel the source of types and symbols, instead of the running
/// kernel.
pub(crate) fn stand_in(file: &File) {
    let image: &Image = file.image();
    let mut text = String::new();
    for s in file.symbols().all() {
        let kind = match (s.kind, s.binding) {
            (spile_debuginfo::SymbolKind::Func, spile_debuginfo::Binding::Local) => 't',
            (spile_debuginfo::SymbolKind::Func, _) => 'T',
            (_, spile_debuginfo::Binding::Local) => 'd',
            _ => 'D',
        };
        text.push_str(&format!("{:016x} {kind} {}\n", s.address, s.name));
    }
    spile_kernel::foreign_kernel::activate(image.bytes_of(".BTF"), text);
}
